#!/bin/bash
# test_mpi.sh: the programs of tests/mpi, compiled by gcmpicc, on 1, 2, 3, 5 and 8 ranks, and on 5 and 8 in two clusters; how
# MPI programs that fail end; and the wrapper itself. time limit: 600 s
# SPDX-License-Identifier: MIT
set -u
. "$(dirname "$0")/common.sh"
export GCMPI_CC="${CC:-cc}"

# The sum of a program's own cases at every size; a line for each size.
try() { # name, ranks, clusters
    local what="$1, $2 ranks" p f
    if [ "$3" -eq 2 ]; then
        what="$what, 2 clusters"
        two_clusters "$2"
        timeout -k 5 120 "$build/gcrun" --no-prefix -H hosts -n "$2" "./$1" >out 2>&1 </dev/null
    else
        timeout -k 5 120 "$build/gcrun" --no-prefix -n "$2" "./$1" >out 2>&1 </dev/null
    fi
    local status=$?
    read -r p f < <(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p' out) || p=0 f=1
    passed=$((passed + p)) failed=$((failed + f))
    if [ "$status" -eq 0 ] && [ "$f" -eq 0 ] && [ "$p" -gt 0 ]; then
        echo "ok   $what: $p cases"
    else
        [ "$f" -gt 0 ] || failed=$((failed + 1))
        echo "FAIL $what: status $status"
        show
    fi
}

sanitize=${SAN:+-fsanitize=$SAN -Wno-error}      # gcc warns of other things when it instruments
# shellcheck disable=SC2086  # words or nothing
for source in "$here"/../mpi/test_*.c; do
    name=$(basename "$source" .c)
    if "$build/gcmpicc" -std=c11 -O1 -g -Wall -Wextra -Werror $sanitize "$source" -o "$name" >out 2>&1; then
        for ranks in 1 2 3 5 8; do try "$name" "$ranks" 1; done
        for ranks in 5 8; do try "$name" "$ranks" 2; done
    else
        bad "$name" 'it does not compile'
    fi
done

if [ -z "${SAN:-}" ]; then      # the launcher does not tell a sanitizer's report from an end
    timeout -k 5 120 mpiexec.hydra -n 3 ./test_messages >out 2>&1 </dev/null && grep -q ' 0 failed$' out &&
        good 'mpiexec.hydra starts MPI programs' || bad 'mpiexec.hydra starts MPI programs' 'see'
fi

# ---- early ends: all of the job is over soon, and the launcher's status says so

ends() { # what, argument of test_life, status wanted, words wanted in what it says
    local begin=$SECONDS status
    timeout -k 5 60 "$build/gcrun" --no-prefix -n 3 ./test_life "$2" >out 2>&1 </dev/null
    status=$?
    if [ "$status" -ne "$3" ]; then bad "$1" "status $status, not $3"
    elif [ -n "$4" ] && ! has "$4"; then bad "$1" "no '$4' in what it says"
    elif [ $((SECONDS - begin)) -gt 20 ]; then bad "$1" "after $((SECONDS - begin)) s"
    else good "$1"; fi
}
ends 'MPI_Abort ends the job' abort 7 'rank 2'
ends 'from inside of an operation, too' inside 9 ''
ends 'and with code 0, which is none of an end in peace' zero 1 'rank 0'
ends 'so does an error that nobody hears of' fatal 6 'rank 2: MPI_Send: the rank is invalid'
ends 'requests that were forgotten, and sends that nobody receives, do not hold it up' forget 0 ''
ends 'nor are those lost that are received while their sender ends' late 0 ''

# ---- the wrapper

says() { # what, words or none, command...
    local what=$1 words=$2
    shift 2
    "$@" >out 2>&1
    local status=$?
    if [ $status -ne 0 ]; then bad "$what" "status $status"
    elif [ -n "$words" ] && ! has "$words"; then bad "$what" "no '$words'"
    else good "$what"; fi
}
says 'gcmpicc -show' '^[^ ]* -I.*-lgcmpi.* -lgridcomm' "$build/gcmpicc" -show
says 'gcmpicc -compile-info' '^-I' "$build/gcmpicc" -compile-info
says 'gcmpicc -link-info' '^-L.*-lgridcomm' "$build/gcmpicc" -link-info
printf '#include <mpi.h>\nint main(int c, char **v) { MPI_Init(&c, &v); return MPI_Finalize(); }\n' >plain.c
cp plain.c plain.cc
cat >part.c <<'END'
#include <mpi.h>
int part(void) { int size; return MPI_Comm_size(MPI_COMM_WORLD, &size) ? -1 : size; }
END
cat >whole.c <<'END'
#include <mpi.h>
#include <dlfcn.h>
int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    void *library = dlopen("./part.so", RTLD_NOW);
    int (*part)(void) = library ? (int (*)(void))dlsym(library, "part") : 0;
    int bad = !part || part() != 1;
    MPI_Finalize();
    return bad;
}
END
sed 's/return/MPI_Comm_spawn(); return/' plain.c >missing.c
# shellcheck disable=SC2086
{
    says 'gcmpicc -c, and linked' '' "$build/gcmpicc" $sanitize -c plain.c -o plain.o
    says 'gcmpicc links' '' "$build/gcmpicc" $sanitize plain.o -o plain
    says 'it runs without a launcher' '' ./plain
    says 'gcmpicxx' '' "$build/gcmpicxx" $sanitize plain.cc -o plain++
    says 'it runs, too' '' "$build/gcrun" -n 2 ./plain++
    says 'gcmpicc -shared' '' "$build/gcmpicc" $sanitize -shared -fPIC part.c -o part.so
    says 'a program that loads it' '' "$build/gcmpicc" $sanitize whole.c -o whole
    says 'it shows MPI to what it loads' '' ./whole
    says 'what is missing fails at link time' '' sh -c "! '$build/gcmpicc' $sanitize -w missing.c -o missing"
}
close
