#!/bin/bash
# test_descriptors.sh: processes that may have few descriptors, and disks that are full: each gets an error that says so, or works.
# SPDX-License-Identifier: MIT
# time limit: 600 s
set -u
. "$(dirname "$0")/common.sh"
need "$build/tests/run/descriptors" "$build/gcrun" "$build/gcbench" "$build/gctopo"
ranks=3 works=0

# ---- descriptors

# LIMIT RANK: of that one, or of "all". The status is 0 if nothing was wrong; out says what each rank got.
few() {
    timeout -k 5 60 "$build/gcrun" --no-prefix -n $ranks "$build/tests/run/descriptors" "$@" "$(cat mark)" >out 2>err </dev/null
}
judge() { # LIMIT: every rank came to an end, with an error or without; 0: all work
    local working
    working=$(grep -c '^works' out)
    [ "$status" -eq 0 ] || wrong "limit $1: status $status"
    [ $((working + $(grep -c '^error: ..*: ..*' out))) -eq $ranks ] || wrong "limit $1: not every rank has told how it ended"
    has '^wrong' && wrong "limit $1: $(grep '^wrong' out)"
    [ "$working" -eq $ranks ]
}
# GCT_LONG=1: every limit, else every second one
sweep() { # WHAT RANK: from a few descriptors up to as many as are enough, twice
    begin "$1"
    shift
    local n=4 enough=0 failed_once=''
    while [ $n -lt 64 ] && [ $enough -lt 2 ] && [ -z "$bad" ]; do
        few $n "$@"
        status=$?
        if judge $n "$@"; then enough=$((enough + 1)); else enough=0 failed_once=yes; fi
        n=$((n + ${GCT_LONG:-2}))
    done
    [ -n "$failed_once" ] || wrong 'no limit was too small'
    [ $enough -eq 2 ] || wrong "$n descriptors were not enough"
    want_nothing_left
    end
}
sweep 'all ranks may have few descriptors' all
sweep 'rank 0 may' 0
sweep 'rank 2 may' 2

# gcrun itself, and what it starts: it says what it lacks.
begin 'gcrun may have few descriptors'
for n in 5 6 7 8 9 10 12 14 16 18 20 24 32 48; do
    works=0
    (ulimit -n $n && exec timeout -k 5 60 "$build/gcrun" --no-prefix -n $ranks "$build/tests/run/descriptors" 0 none "$(<mark)") \
        >out 2>err </dev/null
    status=$?
    case $status in 124 | 12[89] | 1[3-9]? | 2??) wrong "limit $n: status $status" ;; esac
    if [ $status -eq 0 ]; then
        [ "$(grep -c '^works' out)" -eq $ranks ] && works=1
    elif ! grep -q . err && ! has '^error: ..*: ..*'; then
        wrong "limit $n: no reason is told"
    fi
done
[ $works -eq 1 ] || wrong '48 descriptors were not enough'
want_nothing_left
end

# ---- disks

full() { # RANKS PROGRAM...: no file may have a byte; what is written to pipes is not meant
    local n=$1
    shift
    (trap '' XFSZ; ulimit -f 0; timeout -k 5 100 "$build/gcrun" --no-prefix -n "$n" "$@" </dev/null 2>&1; echo "status $?") | cat >out
    status=$(sed -n 's/^status //p' out)
}
refused() { # WHAT PATTERN
    check "$1" eval '[ "$status" -gt 0 ] && [ "$status" -lt 124 ] && has "'"$2"'"'
}
bench=("$build/gcbench" --repeat 3 --seconds 1 --sizes 8)
for form in text csv json; do
    full 2 "${bench[@]}" --form $form --output rows bcast
    refused "no room for rows as $form" 'rows.*File too large'
    timeout -k 5 100 "$build/gcrun" --no-prefix -n 2 "${bench[@]}" --form $form --output /dev/full bcast >out 2>&1 </dev/null
    status=$?
    refused "nor on a full disk" '/dev/full.*No space left'
done
full 2 "${bench[@]}" --plot picture.svg bcast
refused 'no room for a picture' 'picture.svg.*File too large'
full 2 "${bench[@]}" --fit fresh.model p2p
refused 'no room for a model' 'fresh.model.*File too large'
check 'nothing of it is left' eval '[ ! -e fresh.model ] && [ ! -e fresh.model.new ]'
echo 'what was there before' >fresh.model
full 2 "${bench[@]}" --fit fresh.model p2p
check 'nor is the one before it lost' eval '[ "$(cat fresh.model)" = "what was there before" ] && [ ! -e fresh.model.new ]'
{
    printf 'gridcomm-model 1\nkind hockney\nheader 48\neager 0\nreduce 0\ncopy 0\nrank 0 class 0 host 0\n'
    printf 'class 0 site 0 nic 8e-9 8e-9 apart\nsite 0 uplink 0 0 apart\n'
    printf 'within 0 latency 1e-3 per-byte 0\nbetween 0 0 latency 1e-3 per-byte 0\n'
} >alone.model
check 'an explanation' eval '"$build/gcbench" --model alone.model --explain bcast 8 >out 2>&1 && [ -s out ]'
"$build/gcbench" --model alone.model --explain bcast 8 2>out >/dev/full
status=$?
refused 'no room for it' 'standard output.*No space left'
full 2 "$build/gctopo" --links --dot picture
refused 'no room for a picture of links' 'picture.*File too large'
timeout -k 5 60 "$build/gcrun" -n 2 echo hello 2>out >/dev/full
status=$?
refused 'no room for what ranks say' 'gcrun: standard output: No space left'
check 'nothing is left running' eval 'until_true $gone_s "[ \$(left) -eq 0 ]"'
close
