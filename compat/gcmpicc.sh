#!/bin/sh
# gcmpicc, gcmpicxx: the C or C++ compiler for MPI programs on gridcomm: as mpicc of other MPIs.
# SPDX-License-Identifier: MIT
#
#     gcmpicc prog.c -o prog && gcrun -n 8 ./prog
#
# All arguments go to the compiler: GCMPI_CC (GCMPI_CXX) if it is set, else cc (c++). -show prints the command line, and
# -compile-info and -link-info its parts, without running it. Shared objects are linked without the library: the program that
# loads them has all of it, and shows it to them.
set -f
include='@INCLUDE@'
lib='@LIB@'
case $0 in
*++ | *xx) compiler=${GCMPI_CXX:-c++} ;;
*)         compiler=${GCMPI_CC:-cc} ;;
esac
flags="-I$include"
show_all='-Wl,--export-dynamic-symbol=MPI_*,--export-dynamic-symbol=gcm_*'
libs="-L$lib $show_all -Wl,--whole-archive -lgcmpi -Wl,--no-whole-archive -lgridcomm -lpthread"
link=$libs show=
[ $# -gt 0 ] || link=
for argument; do
    case $argument in
    -c | -S | -E | -M | -MM | -fsyntax-only | -shared | --version | -dumpversion | -dumpmachine | -print-*) link= ;;
    -show | -showme | --showme) show="$compiler $flags" ;;
    -compile-info | -showme:compile | --showme:compile) echo "$flags"; exit ;;
    -link-info | -showme:link | --showme:link) echo "$libs"; exit ;;
    esac
done
if [ -n "$show" ]; then
    echo "$show" "$link"
    exit
fi
# shellcheck disable=SC2086  # lists of words
exec $compiler $flags "$@" $link
