#!/bin/bash
# test_examples.sh: the applications of examples/ on this machine, in declared clusters: they check their own results; here,
# that they say so, that they count what crosses between clusters, and that they refuse what they cannot do. time limit: 240 s
# SPDX-License-Identifier: MIT
set -u
. "$(dirname "$0")/common.sh"

run() { # RANKS, program, arguments...: in two clusters, unless there is one rank
    local n=$1 program=$2
    shift 2
    two_clusters "$n"
    timeout -k 5 60 "$build/gcrun" -H hosts -n "$n" --no-prefix "$build/examples/$program" "$@" >out 2>err
}
right() { # RANKS, program, N, words of its one line
    run "$1" "$2" "$3" && [ "$(wc -l <out)" = 1 ] && has "$4" || return
    if [ "$1" -lt 2 ]; then has 'wide area: 0 messages, 0 bytes'; else ! has 'wide area: 0 messages'; fi
}
refused() { "$build/examples/$1" "$2" >out 2>err; [ $? -eq 2 ]; }

for ranks in 1 2 3 5 8; do
    for n in 1 2 7 64 200; do check "asp $n, $ranks ranks" right $ranks asp $n "$n places, $ranks ranks: every distance right"; done
    for n in 1 2 7 64 101; do check "qr $n, $ranks ranks" right $ranks qr $n "$n x $n, $ranks ranks: A P = Q R"; done
done
for program in asp qr; do
    for n in 0 -1 12x '' 99999999; do check "$program '$n' is refused" refused $program "$n"; done
done
close
