#!/bin/bash
# test_examples.sh: the applications of examples/ on this machine, in declared clusters: they check their own results; here,
# that they say so, that they count what crosses between clusters, and that they refuse what they cannot do. time limit: 240 s
# SPDX-License-Identifier: MIT
set -u
build=$(cd "${BUILD:-build}" && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
unset "${!GRIDCOMM_@}"
passed=0 failed=0

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
run() { # RANKS, program, arguments...: in two clusters, unless there is one rank; leaves its output in said
    local n=$1 program=$2
    shift 2
    printf 'localhost slots=%d cluster=a\n' $(((n + 1) / 2)) >hosts
    [ "$n" -lt 2 ] || printf 'localhost slots=%d cluster=b\n' $((n / 2)) >>hosts
    timeout -k 5 60 "$build/gcrun" -H hosts -n "$n" --no-prefix "$build/examples/$program" "$@" >said
    local status=$?
    cat said
    return $status
}
right() { # RANKS, program, N, words of its one line
    run "$1" "$2" "$3" && [ "$(wc -l <said)" = 1 ] && grep -q "$4" said || return
    if [ "$1" -lt 2 ]; then grep -q 'wide area: 0 messages, 0 bytes' said; else ! grep -q 'wide area: 0 messages' said; fi
}
refused() { "$build/examples/$1" "$2"; [ $? -eq 2 ]; }

for ranks in 1 2 3 5 8; do
    for n in 1 2 7 64 200; do check "asp $n, $ranks ranks" right $ranks asp $n "$n places, $ranks ranks: every distance right"; done
    for n in 1 2 7 64 101; do check "qr $n, $ranks ranks" right $ranks qr $n "$n x $n, $ranks ranks: A P = Q R"; done
done
for program in asp qr; do
    for n in 0 -1 12x '' 99999999; do check "$program '$n' is refused" refused $program "$n"; done
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]
