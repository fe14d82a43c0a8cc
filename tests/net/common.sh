# common.sh: what the scripts on the test bed share: the bed under names of this run, and how a test is reported. Sourced
# from the top of the tree.
# SPDX-License-Identifier: MIT
#
# Needs root and TUN; without them all is skipped with one line, which in CI (CI=true) is a failure.
# shellcheck shell=bash
export BED_BUILD
BED_BUILD=$(realpath "${BUILD:-build}")
bed=tests/net/bed tools=$BED_BUILD/tests/net
passed=0 failed=0 skipped=0
: "${SAN:=}"
work=$(mktemp -d)
beds=()

finish() {
    for b in "${beds[@]}"; do [ ! -d "/run/gridcomm-bed/$b" ] || $bed down "$b"; done
    rm -rf "$work"
}
trap finish EXIT

close() {
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ] && { [ "$skipped" -eq 0 ] || [ "${CI:-}" != true ]; }
    exit
}
check() { # description, command...: ok if the command succeeds
    local what=$1
    shift
    if "$@" >"$work/out" 2>&1; then
        echo "ok      $what"
        passed=$((passed + 1))
    else
        echo "FAILED  $what"
        sed 's/^/        | /' "$work/out" | tail -n 20
        failed=$((failed + 1))
    fi
}
skip() { # what, why
    echo "skip    $1: $2"
    skipped=$((skipped + 1))
}
near() { # what, value, wanted, allowed difference
    awk -v v="$2" -v w="$3" -v d="$4" 'BEGIN { d < 0 && d = -d; exit !(v != "" && v >= w - d && v <= w + d) }' ||
        { echo "$1: $2, wanted $3 +- $4"; return 1; }
}
until_true() { # command...: within 10 s
    for _ in $(seq 500); do "$@" && return; sleep 0.02; done
    echo "not within 10 s: $*"
    return 1
}
thrice() { # command...: a measurement that the machine's other work may blur is repeated when that may be over
    "$@" || { sleep 2; "$@"; } || { sleep 10; "$@"; }
}
up() { # description, NAME: a bed under that name; removed at the end of this script at the latest
    beds+=("$2")
    timeout 60 $bed up "$1" --name "$2" --owner $$
}
run() { timeout 30 $bed run "$@"; }
wan_count() { $bed bytes "$1" | awk -v a="$2" -v b="$3" -v w="$4" '$1 == "wan" && $2 == a && $3 == b { for (i = 4; i < NF; i += 2) if ($i == w) print $(i + 1) }'; }
nic_count() { $bed bytes "$1" | awk -v h="$2" -v w="$3" '$1 == "nic" && $2 == h { print w == "sent" ? $5 : $7 }'; }

if [ "$(id -u)" != 0 ] || [ ! -c /dev/net/tun ] || ! unshare --net --uts true 2>/dev/null; then
    skip 'the test bed' 'it needs root, network namespaces and /dev/net/tun'
    close
fi
