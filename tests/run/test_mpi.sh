#!/bin/bash
# test_mpi.sh: the tests of the MPI layer (tests/mpi), compiled by gcmpicc and run by gcrun and mpiexec.hydra: on several numbers of
# ranks, and in two clusters; and what gcmpicc says and does. time limit: 600 s
# SPDX-License-Identifier: MIT
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$(cd "${BUILD:-build}" && pwd)
tests=$PWD/tests/mpi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
unset "${!GRIDCOMM_@}"
passed=0 failed=0
sanitize=${SAN:+-fsanitize=$SAN}

check() { # description, command...: ok if the command succeeds
    local what=$1
    shift
    if "$@" >>out 2>&1; then
        echo "ok   $what"
        passed=$((passed + 1))
    else
        echo "FAIL $what"
        sed 's/^/       /' out | tail -n 10
        failed=$((failed + 1))
    fi
    rm -f out
}
mpicc() { # arguments: as of a compiler; warnings are errors, but gcc warns of other things when it instruments
    GCMPI_CC=${CC:-cc} "$build/gcmpicc" -g -O1 -Wall -Wextra -Werror ${sanitize:+-Wno-error "$sanitize"} "$@"
}
right() { # command...: a test, whose cases all pass
    "$@" >said 2>&1
    local status=$?
    cat said
    [ $status = 0 ] && grep -qE '^[1-9][0-9]* passed, 0 failed$' said
}
here() { timeout -k 5 100 "$build/gcrun" --no-prefix -n "$@"; }
apart() { # RANKS, program: in two clusters, whose ranks take turns
    for i in $(seq 0 $(($1 - 1))); do echo "localhost cluster=$((i % 2))"; done >hosts
    timeout -k 5 100 "$build/gcrun" --no-prefix -H hosts -n "$@"
}

for source in "$tests"/test_*.c; do
    name=$(basename "$source" .c)
    check "$name is compiled" mpicc "$source" -o "$name" -lm
    for ranks in 1 2 3 5 8; do check "$name, $ranks ranks" right here $ranks "./$name"; done
    check "$name, 6 ranks in two clusters" right apart 6 "./$name"
done
if [ -z "${SAN:-}" ]; then      # the launcher says nothing of a sanitizer's report
    check 'mpiexec.hydra starts them, too' right timeout -k 5 100 mpiexec.hydra -n 3 ./test_messages
fi

cat >program.c <<'END'
#include <mpi.h>
int main(int argc, char **argv) { MPI_Init(&argc, &argv); return MPI_Finalize(); }
END
cp program.c program.cc
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
cat >missing.c <<'END'
#include <mpi.h>
int main(int argc, char **argv) { MPI_Init(&argc, &argv); MPI_Comm_spawn(); return MPI_Finalize(); }
END
compiled() { mpicc -c program.c -o program.o && mpicc program.o -o program && ./program; }
plus_plus() { GCMPI_CXX=c++ "$build/gcmpicxx" -Wall -Wextra -Werror ${sanitize:+"$sanitize"} program.cc -o plus && ./plus; }
shared() { mpicc -shared -fPIC part.c -o part.so && mpicc -Wno-pedantic whole.c -o whole && ./whole; }
shown() { mpicc -show program.c | grep -q -- -lgcmpi && ! ls a.out; }
link_fails() { ! "$build/gcmpicc" -w missing.c -o missing; }
check 'gcmpicc compiles and links apart' compiled
check 'gcmpicxx compiles C++' plus_plus
check 'a shared object that is loaded finds MPI in the program' shared
check 'gcmpicc -show shows and does not run' shown
check 'what is missing fails at link time' link_fails
echo "$passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]
