#!/bin/bash
# test_ring_of_four.sh: four transfers round a ring of relays with one-packet queues deadlock when routes are unrestricted, and
# go on with every other routing. GCT_LONG=1: for a minute each.
# SPDX-License-Identifier: MIT
set -u
cd "$(dirname "$0")/../.." || exit 1
program=${BUILD:-build}/tests/run/ring_of_four
passed=0 failed=0
unset "${!GRIDCOMM_@}"

rounds() { # what, ROUTING, SECONDS
    if timeout -k 5 $(($3 + 40)) "$program" "$2" "$3" >"$log" 2>&1; then
        echo "ok   $1"
        passed=$((passed + 1))
    else
        echo "FAIL $1: status $?"
        failed=$((failed + 1))
    fi
    sed 's/^/       /' "$log"
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
rounds 'unrestricted: all four wait for each other' unrestricted 60
seconds=5
[ -z "${GCT_LONG:-}" ] || seconds=60
for routing in updown-dfs updown-bfs ordered; do rounds "$routing: goes on" $routing $seconds; done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]
