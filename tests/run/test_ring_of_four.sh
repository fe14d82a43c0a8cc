#!/bin/bash
# test_ring_of_four.sh: four transfers round a ring of relays with one-packet queues deadlock when routes are unrestricted, and
# go on with every other routing. GCT_LONG=1: for a minute each.
# SPDX-License-Identifier: MIT
set -u
. "$(dirname "$0")/common.sh"

rounds() { # what, ROUTING, SECONDS
    if timeout -k 5 $(($3 + 40)) "$build/tests/run/ring_of_four" "$2" "$3" >out 2>&1; then
        good "$1"
        sed 's/^/       /' out
    else
        bad "$1" "status $?"
    fi
}
rounds 'unrestricted: all four wait for each other' unrestricted 60
seconds=5
[ -z "${GCT_LONG:-}" ] || seconds=60
for routing in updown-dfs updown-bfs ordered; do rounds "$routing: goes on" $routing $seconds; done
close
