#!/bin/bash
# foreign.sh [PROGRAM...]: MPI programs that others wrote, as Debian has their sources, compiled unchanged by gcmpicc and run by
# gcrun on 2 to 8 ranks: benchmarks, solvers, partitioners, a renderer, the test suite of another MPI. Needs the network, and for
# all of them half an hour on two cores: not part of `make test`. `make SAN=address,undefined foreign` checks the layer and
# the programs as well: a report fails a run, unless foreign.known has it.
# SPDX-License-Identifier: MIT
#
# Sources and objects stay in BUILD/foreign, so that a second run only runs. apt is given a configuration of its own there; the
# system's is left alone. A program whose sources cannot be had, or that needs a tool that is not there, is skipped. Closes with
# "N passed, N failed, N skipped".
set -u
build=$(cd "${BUILD:-build}" && pwd) || exit 1
home=$build/foreign
known=$(cd "$(dirname "$0")" && pwd)/foreign.known       # tests of the suite that are not run, and the programs' own faults
export GCMPI_CC="${CC:-cc}${SAN:+ -fsanitize=$SAN -fno-omit-frame-pointer}"
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=0}"   # the programs' own leaks are theirs
mpicc=$build/gcmpicc
passed=0 failed=0 skipped=0
slow=${SAN:+4}                          # times longer under sanitizers
slow=${slow:-1}
quick=${SAN:+-O0}                       # for the long compilations: what is found is the same
mkdir -p "$home/apt" "$home/source" || exit 1
unset "${!GRIDCOMM_@}"
unset MAKEFLAGS MAKEOVERRIDES MFLAGS    # what `make foreign` was told, such as CC, is not for the programs' own make

good() { printf 'ok   %s\n' "$1"; passed=$((passed + 1)); }
bad() { printf 'FAIL %s: %s\n' "$1" "$2"; failed=$((failed + 1)); }
skip() { printf 'skip %s: %s\n' "$1" "$2"; skipped=$((skipped + 1)); }

# What UBSan says in a run's output, which does not end by it as by ASan; but for what is known.
report() { # file
    grep -o '[^ /]*:[0-9]*:[0-9]*: runtime error: .*' "$1" |
        grep -v -m 1 -f <(sed -n 's/^report \([^ ]*\) .*/^\1:/p' "$known")
}

# A check, which may be a run.
holds() { # what, why not, command...
    local what=$1 why=$2 found
    shift 2
    if ! "$@" >"$tree/held" 2>&1 </dev/null; then
        bad "$what" "$why"
    elif found=$(report "$tree/held"); then
        bad "$what" "$found"
    else
        good "$what"
    fi
}

# ---- sources

apt_begin() {
    local apt=$home/apt
    [ ! -e "$apt/ready" ] || return 0
    mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
    : >"$apt/status"
    local keys=/usr/share/keyrings/debian-archive-keyring.gpg
    echo "deb-src [signed-by=$keys] http://deb.debian.org/debian bookworm main" >"$apt/sources"
    cat >"$apt/conf" <<END
Dir::Etc::SourceList "$apt/sources";
Dir::Etc::SourceParts "-";
Dir::State::Lists "$apt/lists";
Dir::State::Status "$apt/status";
Dir::Cache "$apt/cache";
APT::Sandbox::User "";
END
    APT_CONFIG=$apt/conf timeout 300 apt-get -q update >"$apt/log" 2>&1 && : >"$apt/ready"
}

# Sets tree to a fresh copy of a package's sources, with Debian's patches if they can be had.
fetch() { # package
    tree=$home/$1
    [ ! -e "$tree/built" ] || return 0
    local at=$home/source/$1
    if [ ! -e "$at/done" ]; then
        mkdir -p "$at"
        apt_begin || return 1
        (cd "$at" && APT_CONFIG=$home/apt/conf timeout 600 apt-get -q source --download-only "$1") >"$at/log" 2>&1
        ls "$at"/*.orig.tar.* >/dev/null 2>&1 || return 1
        : >"$at/done"
    fi
    rm -rf "$tree"
    (cd "$at" && dpkg-source --no-check -x ./*.dsc "$tree") >>"$at/log" 2>&1 && return 0
    rm -rf "$tree"
    mkdir "$tree" && tar -C "$tree" --strip-components=1 -xf "$at"/*.orig.tar.*
}

# Compiles what fetch gave; false: told.
make_it() { # package, commands in its tree
    local what=$1 status
    fetch "$1" || { skip "$1" 'its sources cannot be had'; return 1; }
    [ ! -e "$tree/built" ] || return 0
    shift
    (cd "$tree" && set -e && "$@") >"$tree/log" 2>&1 </dev/null         # not in a condition, where -e counts for nothing
    status=$?
    [ $status -eq 0 ] || bad "$what" "it does not compile: $tree/log"
    [ $status -ne 0 ] || : >"$tree/built"
    return $status
}

# ---- runs

# In a program's own directory: must end well, and say certain words.
try() { # what, ranks, seconds, words, command...
    local what="$1, $2 ranks" ranks=$2 limit=$3 words=$4 begin=$SECONDS found
    shift 4
    timeout -k 5 $((limit * slow)) "$build/gcrun" --no-prefix -n "$ranks" "$@" >"$tree/out" 2>&1 <"${input:-/dev/null}"
    local status=$?
    if [ $status -ne 0 ]; then
        bad "$what" "status $status"
    elif [ -n "$words" ] && ! grep -q -e "$words" "$tree/out"; then
        bad "$what" "no '$words'"
    elif found=$(report "$tree/out"); then
        bad "$what" "$found"
        return 1
    else
        good "$what, $((SECONDS - begin)) s"
        return 0
    fi
    tail -n 8 "$tree/out" | cut -c 1-150 | sed 's/^/       /'
    return 1
}

have() { # program, tools...
    local what=$1 tool
    shift
    for tool; do
        command -v "$tool" >/dev/null 2>&1 || { skip "$what" "needs $tool"; return 1; }
    done
}

# ---- the programs

build_examples() {
    for name in cpi icpi hellow; do "$mpicc" -w -O1 examples/$name.c -o $name -lm; done
}
run_examples() {
    make_it mpich build_examples || return
    cd "$tree" || return
    try cpi 2 60 'pi is approximately 3.14159265' ./cpi
    try cpi 8 60 'pi is approximately 3.14159265' ./cpi
    try hellow 8 60 'Hello world from process 7 of 8' ./hellow
    echo 100000 >intervals
    input=intervals try icpi 4 60 'pi is approximately 3.14159265' ./icpi
}

build_netpipe() { make mpi MPICC="$mpicc"; }
run_netpipe() {
    make_it netpipe build_netpipe || return
    cd "$tree" || return
    try NetPIPE 2 120 '100[0-9]* bytes\|[0-9] bytes' ./NPmpi -u 1000000 -n 5
    try 'NetPIPE -i' 2 120 'Integrity check passed' ./NPmpi -i -u 1000000 -n 5
}

# shellcheck disable=SC2016  # what make expands
build_hpcc() {
    sed -e "s|^TOPdir .*|TOPdir = ../../..|" -e 's|^MPdir .*|MPdir =|' -e 's|^MPinc .*|MPinc =|' -e 's|^MPlib .*|MPlib =|' \
        -e 's|^LAdir .*|LAdir =|' -e 's|^LAlib .*|LAlib = -lblas|' -e "s|^CC .*|CC = $mpicc|" -e "s|^LINKER .*|LINKER = $mpicc|" \
        -e 's|^CCFLAGS .*|CCFLAGS = $(HPL_DEFS) -O2 -w|' -e 's|^LINKFLAGS .*|LINKFLAGS = -lm|' \
        hpl/setup/Make.Linux_PII_FBLAS >hpl/Make.foreign
    make arch=foreign
    cp _hpccinf.txt hpccinf.txt
}
hpcc_succeeds() { grep -q '^Success=1' hpccoutf.txt && ! grep -q 'FAILED' hpccoutf.txt; }
run_hpcc() {
    have hpcc gfortran || return
    make_it hpcc build_hpcc || return
    cd "$tree" || return
    rm -f hpccoutf.txt
    try HPCC 4 400 '' ./hpcc || return
    holds 'HPCC: its own checks' "$tree/hpccoutf.txt" hpcc_succeeds
}

build_scotch() {
    cd src
    sed "s/-O3/${quick:--O3}/" Make.inc/Makefile.inc.x86-64_pc_linux2 >Makefile.inc
    make ptscotch CC="$mpicc" CCS="$mpicc" CCP="$mpicc" CCD="$mpicc"
}
run_scotch() {
    have scotch flex bison || return
    make_it scotch build_scotch || return
    cd "$tree/src/check" || return
    local ranks
    local -x LD_LIBRARY_PATH=$tree/lib
    local -x ASAN_OPTIONS=$ASAN_OPTIONS:detect_odr_violation=0         # its two libraries have files in common, by design
    for ranks in 3 4 8; do
        try 'PT-Scotch dgpart' $ranks 120 '' "$tree/bin/dgpart" 7 "$tree/src/check/data/bump.grf" "$tree/map" -vmt
        try 'PT-Scotch dgord' $ranks 120 '' "$tree/bin/dgord" "$tree/src/check/data/bump.grf" "$tree/order" -vt
    done
    holds 'PT-Scotch: make ptcheck, 3 and 4 ranks' "$tree/held" timeout $((600 * slow)) make \
        CCS="$mpicc" CCP="$mpicc" CCD="$mpicc" EXECPPROG="$build/gcrun --no-prefix" EXECPFLAGS= ptcheck
}

build_hmmer() {
    (cd easel && autoconf)
    autoconf
    env -u CC ./configure --enable-mpi MPICC="$mpicc" CFLAGS='-O2 -w'       # a CC of its own would be that of MPI
    make -j"$(nproc)"
}
run_hmmer() {
    have hmmer autoconf || return
    echo '#include <divsufsort.h>' | $GCMPI_CC -E - >/dev/null 2>&1 || { skip hmmer 'needs libdivsufsort-dev'; return; }
    make_it hmmer build_hmmer || return
    cd "$tree" || return
    src/hmmsearch tutorial/globins4.hmm tutorial/globins45.fa 2>/dev/null | grep -v '^#\|CPU time\|Mc/sec' >alone
    try 'HMMER hmmsearch --mpi' 4 120 'E-value' src/hmmsearch --mpi tutorial/globins4.hmm tutorial/globins45.fa || return
    grep -v '^#\|CPU time\|Mc/sec' out >together
    holds 'HMMER: as without MPI' "$tree/together" cmp alone together
}

build_tachyon() {
    cd unix
    make linux-mpi CC="$mpicc" MPIDIR=/nowhere || make linux-lam CC="$mpicc"
}
run_tachyon() {
    make_it tachyon build_tachyon || return
    cd "$tree" || return
    local program ranks
    program=$(find compile -name tachyon -type f | head -n 1)
    for ranks in 1 2 4 8; do
        try Tachyon $ranks 200 'Ray Tracing Time\|Rendering' "./$program" scenes/balls.dat -o "picture$ranks.tga" \
            -res 200 200 || return
    done
    for ranks in 2 4 8; do
        holds "Tachyon: the picture of $ranks ranks is that of one" "$tree" cmp picture1.tga "picture$ranks.tga"
    done
}

build_mrbayes() {
    ./configure --with-mpi --without-beagle --without-readline CC="$mpicc" MPICC="$mpicc" CFLAGS='-O2 -w'
    make -j"$(nproc)"
}
run_mrbayes() {
    make_it mrbayes build_mrbayes || return
    cd "$tree" || return
    cat >foreign.nex <<'END'
begin mrbayes;
 set autoclose=yes nowarn=yes seed=1 swapseed=1;
 execute examples/primates.nex;
 lset nst=6 rates=gamma;
 mcmc nruns=2 nchains=4 ngen=5000 samplefreq=50 printfreq=1000;
 sump; sumt;
end;
END
    rm -f examples/primates.nex.con.tre
    try MrBayes 4 300 'Summary statistics\|consensus' src/mb foreign.nex || return
    holds 'MrBayes: the consensus tree' 'not there' test -s examples/primates.nex.con.tre
}

build_fftw3() {
    ./configure --enable-mpi --disable-fortran --disable-doc CC="$GCMPI_CC" MPICC="$mpicc" CFLAGS='-O1 -w'
    make -j"$(nproc)"
}
run_fftw3() {
    make_it fftw3 build_fftw3 || return
    cd "$tree" || return
    local ranks
    for ranks in 2 4 8; do
        # --verify says nothing but what is wrong
        try FFTW $ranks 200 '' mpi/mpi-bench --verify 'ocf1000' --verify 'icf64x32' --verify 'ocb24x12x8' --verify 'ik10bx12b'
    done
}

build_hypre() {
    cd src
    ./configure CC="$mpicc" CXX="${mpicc}xx" --with-MPI --disable-fortran CFLAGS="${quick:--O1} -w"
    make -j"$(nproc)"
    cd test
    make ij struct
}
run_hypre() {
    make_it hypre build_hypre || return
    cd "$tree/src/test" || return
    local ranks
    for ranks in 2 4 8; do
        try 'hypre ij, AMG-PCG' $ranks 120 'Final Relative Residual Norm = [0-9.]*e-' ./ij -solver 1 -n 20 20 20 -P $ranks 1 1
        try 'hypre struct' $ranks 120 'Final Relative Residual Norm = [0-9.]*e-' ./struct -n 10 10 10 -P $ranks 1 1 -solver 10
    done
}

# ---- MPICH's test suite

# Its own configure asks for all of MPI; what it would find on this machine.
suite_config() {
    local name
    for name in STDLIB_H STDIO_H STRING_H STDARG_H STDINT_H INTTYPES_H UNISTD_H SYS_TIME_H SYS_RESOURCE_H PTHREAD_H STRDUP USLEEP \
                GETRUSAGE LONG_LONG LONG_DOUBLE FLOAT__COMPLEX DOUBLE__COMPLEX LONG_DOUBLE__COMPLEX _BOOL; do
        echo "#define HAVE_$name 1"
    done
    printf '#define %s\n' 'THREAD_PACKAGE_POSIX 1' 'THREAD_PACKAGE_NAME THREAD_PACKAGE_POSIX' 'SIZEOF_INT 4' 'SIZEOF_LONG 8' \
        'SIZEOF_VOID_P 8' 'POINTERINT_t long'
}

# Its helpers make one of their communicators by way of an intercommunicator: the world, with its halves swapped.
suite_stand_in() {
    cat <<'END'
#include <mpi.h>
int MPI_Intercomm_create(MPI_Comm local, int leader, MPI_Comm peer, int remote, int tag, MPI_Comm *out)
{
    return MPI_Comm_dup(peer, out);
}
int MPI_Intercomm_merge(MPI_Comm comm, int high, MPI_Comm *out)
{
    int rank;
    MPI_Comm_rank(comm, &rank);
    return MPI_Comm_split(comm, 0, 2 * rank + (high ? 1 << 20 : 0), out);
}
END
}

# What else its helpers call and nobody has only has to be there: tests that might call it are skipped.
build_suite() {
    cd test/mpi
    suite_config >include/mpitestconf.h
    nm -g --defined-only "$build/libgcmpi.a" | sed -n 's/.* T \(MPI_.*\)/\1/p' | sort -u >../../has
    suite_stand_in >stand_in.c
    local name
    for name in mtest mtest_common mtest_thread dtypes; do
        "$mpicc" -w -DMPI_COMBINER_NAMED=1 -Iinclude -c util/$name.c -o $name.o
    done
    "$mpicc" -w -c stand_in.c -o stand_in.o
    ld -r -o known.o mtest.o mtest_common.o mtest_thread.o dtypes.o stand_in.o
    nm -u known.o | sed -n 's/.* U \(M[PT].*\)/\1/p' | sort -u | comm -23 - ../../has |
        sed 's/.*/int &(void) { return 1; }/' >missing.c
    "$mpicc" -w -c missing.c -o missing.o
    ld -r -o helpers.o known.o missing.o
    mkdir -p ../../objects
}

# What of MPI a test needs that is not there: words, or nothing.
suite_needs() { # object
    nm -u "$1" | sed -n 's/.* U \(P\{0,1\}MPI[XT]*_.*\)/\1/p' | sort -u | comm -23 - ../../has | head -n 2 | tr '\n' ' '
    nm -u "$1" | grep -o 'MTestGetIntercomm$\|MTestGetComm$\|MTestGetWin$' | head -n 1
}

suite_one() { # directory, name, ranks, arguments...
    local dir=$1 name=$2 ranks=$3 what="suite: $1/$2" object=../../objects/${1//\//-}-$2 needs
    shift 3
    if [ ! -e "$object.o" ] && ! "$mpicc" -w -Iinclude -I"$dir" -c "$dir/$name.c" -o "$object.o" >"$object.log" 2>&1; then
        skip "$what" "$(sed -n 's/.*error: \(.\{0,60\}\).*/\1/p' "$object.log" | head -n 1)"
        return
    fi
    needs=$(suite_needs "$object.o")
    if [ -n "$needs" ]; then skip "$what" "needs $needs"; return; fi
    needs=$(sed -n "s|^$dir/$name ||p" "$known")
    if [ -n "$needs" ]; then skip "$what" "$needs"; return; fi
    [ -e "$object" ] || "$mpicc" -w "$object.o" helpers.o -o "$object" -lm >"$object.log" 2>&1 || { bad "$what" 'it does not link'; return; }
    try "$what" "$ranks" 180 'No [Ee]rrors' "$object" "$@" || :
}

run_suite() {
    make_it mpich build_examples || return
    if [ ! -e "$tree/test/mpi/helpers.o" ]; then
        (cd "$tree" && set -e && build_suite) >"$tree/log" 2>&1         # as in make_it
        [ -e "$tree/test/mpi/helpers.o" ] || { bad suite "its helpers do not compile: $tree/log"; return; }
    fi
    cd "$tree/test/mpi" || return
    local dir name ranks rest seen=' '
    for dir in group comm coll pt2pt datatype topo init errors/pt2pt errors/topo threads attr; do
        while read -r name ranks rest; do
            case $seen in *" $dir/$name/$ranks "*) continue ;; esac
            seen="$seen$dir/$name/$ranks "
            [ -e "$dir/$name.c" ] || continue
            # shellcheck disable=SC2046,SC2086  # words
            suite_one "$dir" "$name" "$ranks" $(printf '%s\n' $rest | sed -n 's/^arg=//p')
        done < <(cat "$dir"/testlist* 2>/dev/null | grep '^[a-z][a-zA-Z0-9_]* [1-8]\( \|$\)')
    done
}

all='examples netpipe fftw3 hmmer scotch hypre hpcc tachyon mrbayes suite'
# shellcheck disable=SC2048,SC2086  # words
for program in ${*:-$all}; do "run_$program"; done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
