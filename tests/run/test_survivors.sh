#!/bin/bash
# test_survivors.sh: 1, 3 and 5 of 8 ranks are killed at random instants while all collectives run in turn: every survivor gets
# its error in time, and always a communicator of all survivors in which everything works. On real processes and sockets.
# ROUNDS=12: how many; GCT_SEED: who dies, and when. Half of the rounds have few links, so that deaths part those who are left.
# time limit: 600 s
# SPDX-License-Identifier: MIT
set -u
kept='_(CREDITS|QUEUE_PACKETS)$'
. "$(dirname "$0")/common.sh"
gcrun=$build/gcrun bin=$build/tests/run stale='stop'
rounds=${ROUNDS:-12} ranks=8 seed=${GCT_SEED:-$(date +%s)} RANDOM=${GCT_SEED:-$(date +%s)}
death_ms=3000                   # from the last death until all survivors work
[ -z "${SAN:-}" ] || death_ms=15000
need "$bin/survivors" "$build/examples/survivors"

drop=()                         # what the dead said
said() { sed "${drop[@]}" out; }
pid_of() { sed -n "s/^\[$1\] pid //p" out; }
sum_ms=0 most_ms=0 deaths=0 shrinks=0

one_round() { # VICTIMS
    local victims rank since late n=$((ranks - $1))
    begin "round $round: $1 of $ranks are killed (seed $seed)"
    unset GRIDCOMM_LINK_DENSITY
    [ $((round / 3 % 2)) -eq 0 ] || export GRIDCOMM_LINK_DENSITY=0.1
    "$gcrun" -n $ranks --on-failure=wait "$bin/survivors" "$dir" "$mark" >out 2>err </dev/null &
    pid=$! own="$own $!"
    lines $ranks ready
    # The order in which they die is the seed's. Half of the rounds have all deaths within some milliseconds.
    local order=(0 1 2 3 4 5 6 7) i k
    for i in 7 6 5 4 3 2 1; do k=$((RANDOM % (i + 1))) rank=${order[i]} order[i]=${order[k]} order[k]=$rank; done
    victims=${order[*]:0:$1}
    local apart=$((RANDOM % 2 ? 5 : 150))
    sleep "0.$(printf %03d $((RANDOM % 200)))"
    for rank in $victims; do
        kill -9 "$(pid_of "$rank")" || wrong "rank $rank was gone"
        since=$(now_ms)
        sleep "0.$(printf %03d $((RANDOM % apart)))"
    done
    drop=(-n -e '')
    for rank in $victims; do drop+=(-e "/^\[$rank\] /d"); done
    drop+=(-e p)
    until_true 30 "[ \"\$(said | grep -c '] $n work at')\" -ge $n ]" || wrong "not all $n survivors work"
    touch stop
    finish 30; want_nothing_left
    late=$(said | sed -n "s/.*] $n work at //p" | sort -n | tail -n 1)
    late=$((${late:-0} - since))
    [ "$late" -le $death_ms ] || wrong "$late ms, more than $death_ms"
    [ "$(said | sed -n 's/^\[\([0-9]*\)\] met at .*/\1/p' | sort -u | grep -c .)" -ge "$n" ] || wrong 'a survivor met no error'
    ! grep -q 'wrong:\|ERROR: \|runtime error' out err || wrong "$(grep -h -m 1 'wrong:\|ERROR: \|runtime error' out err)"
    [ "$status" -eq 137 ] || wrong "status $status"
    sum_ms=$((sum_ms + late)) deaths=$((deaths + $1)) shrinks=$((shrinks + $(said | grep -c ' met at ')))
    [ "$late" -le "$most_ms" ] || most_ms=$late
    end
}

for round in $(seq 1 "$rounds"); do
    case $((round % 3)) in 1) one_round 1 ;; 2) one_round 3 ;; *) one_round 5 ;; esac
done
unset GRIDCOMM_LINK_DENSITY
[ "$rounds" -le 0 ] || echo "     $deaths deaths, $shrinks errors met; until all work: $((sum_ms / rounds)) ms, at most $most_ms ms"

example() { # RANKS, what it says at last
    "$gcrun" -n "$1" --on-failure=wait --no-prefix "$build/examples/survivors" 40 >out 2>err </dev/null
    [ "$(tail -n 1 out)" = "$2" ]
}
check 'the example: 8 ranks, until two are left' example 8 '2 of 8 ranks: pi is 3.1415926536'
check 'the example: 3 ranks' example 3 '2 of 3 ranks: pi is 3.1415926536'
check 'the example: 1 rank' example 1 '1 of 1 ranks: pi is 3.1415926536'
close
