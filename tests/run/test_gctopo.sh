#!/bin/bash
# test_gctopo.sh: what gctopo shows of jobs on this machine, as text and as pictures. Where Graphviz is installed it draws them.
# SPDX-License-Identifier: MIT
set -u
. "$(dirname "$0")/common.sh"

run() { timeout -k 5 60 "$build/gcrun" --no-prefix -n "$1" "$build/gctopo" $2 >out 2>err </dev/null; }

run 5 '--traffic'; status=$?
check 'ends well' [ $status -eq 0 ]
check 'clusters, links and routes by default' eval 'has "==== clusters" && has "==== links" && has "==== routes" && ! has "==== waits"'
check 'the backbone stands there once' counts '^backbone: 0 - 1' 1
check 'a direct link between every two ranks, from both ends' counts '^rank [0-4]: direct link to rank' 20
check 'a route for every two ranks' counts '^rank [0-4]: to [0-4], direct' 20

export GRIDCOMM_DIRECT=0 GRIDCOMM_LINK_DENSITY=0.2
run 12 '--traffic --links --routes --waits'; status=$?
check 'a sparse job ends well' [ $status -eq 0 ]
check 'no direct link' eval '! has "direct link" && has "backbone link to rank"'
check 'all pairs are routed' counts '^rank [0-9]*: to [0-9]*, routed: ' 132
check 'some over relays' eval 'has " hops over " && has "^rank [0-9]*: its routes pass over [0-9]"'
check 'bytes were relayed' has ', [1-9][0-9]* bytes relayed'
for routing in updown-dfs updown-bfs ordered unrestricted; do
    export GRIDCOMM_ROUTING=$routing
    run 12 '--routes'; status=$?
    check "the numbering of $routing, once" eval '[ $status -eq 0 ] && counts "^epoch [0-9]*, routing '$routing': [a-z]" 1'
done
unset GRIDCOMM_ROUTING
run 12 '--traffic --clusters --links --routes --waits --addresses --dot picture'; status=$?
check 'pictures' eval '[ $status -eq 0 ] && [ ! -s out ] && [ "$(grep -c -e "^}" picture)" -eq 5 ]'
check 'a box for this host, once' [ "$(grep -c -e '^  subgraph cluster_0 { label="ranks 0-11 on ' picture)" -eq 1 ]
check 'each node once in a picture' eval '[ "$(grep -c -e "^  .7. .label=.rank 7" picture)" -eq 2 ]'
if command -v dot >/dev/null; then
    check 'Graphviz draws them' eval 'dot -Tsvg picture >pictures.svg 2>err && [ ! -s err ]'
else
    echo 'Graphviz is not installed: tests/api/test_describe.c checks the form alone'
fi

unset GRIDCOMM_DIRECT GRIDCOMM_LINK_DENSITY
run 5 '--addresses'; status=$?
check 'addresses alone' eval '[ $status -eq 0 ] && has "==== addresses" && ! has "==== clusters"'
check 'this host, once for all its ranks' counts '^ranks 0-4 on [^:]*: .*site' 1
check 'whose ranks need no network' counts '^ranks 0-4 on [^:]*: among themselves over unix, 127.0.0.1, ::1$' 1
check 'loopback is not told of as an interface' eval '! has ": lo[:,]"'
for entry in $(ip -o -4 address show up scope global 2>/dev/null | awk '$4 ~ /\// { print $2 "=" $4 }'); do
    [ "$(cat "/sys/class/net/${entry%%=*}/carrier" 2>/dev/null)" = 1 ] || continue
    check "its interface with ${entry#*=}" counts "^ranks 0-4 on [^:]*: ${entry%%=*}[:,].* ${entry#*=} p" 1
done
"$build/gctopo" --addresses >out 2>err; status=$?
check 'addresses of a world of one' eval '[ $status -eq 0 ] && counts "^rank 0 on [^:]*: unknown site" 1 && ! has among'
GRIDCOMM_IF=nosuchif0
export GRIDCOMM_IF
run 2 '--addresses'; status=$?
check 'an interface that is not there' eval '[ $status -ne 0 ] && grep -q "no interface .nosuchif0. that is up" err'
unset GRIDCOMM_IF
run 3 '--collectives'; status=$?
check 'the rules for collectives, once for all ranks' eval '[ $status -eq 0 ] && counts "^reduce  *knomial:8 to " 1'
"$build/gctopo" --help >out 2>err; status=$?
check 'help' eval '[ $status -eq 0 ] && has "usage: gcrun"'
"$build/gctopo" --nonsense >out 2>err; status=$?
check 'wrong usage' [ $status -eq 2 ]
"$build/gctopo" --links --dot /nonexistent/picture >out 2>err; status=$?
check 'a file that cannot be written' [ $status -eq 1 ]
"$build/gctopo" --clusters --dot /dev/full >out 2>err; status=$?
check 'no room for a picture' eval '[ $status -eq 1 ] && grep -q "/dev/full: No space left" err'
"$build/gctopo" --clusters >/dev/full 2>err; status=$?
check 'no room for standard output' eval '[ $status -eq 1 ] && grep -q "standard output: No space left" err'
close
