#!/bin/bash
# test_failure.sh: what becomes of a job when something goes wrong: ranks that die, stop, compute, abort or never come,
# wrong keys, a rendezvous that is not one, and strangers at the ports. On real processes and sockets, all on this
# machine. GCT_LONG=1: the computing rank computes for a minute. GCT_SEED: what strangers say. time limit: 480 s
# SPDX-License-Identifier: MIT
set -u
kept='_(CREDITS|QUEUE_PACKETS)$'   # with one of each it has to hold, too
. "$(dirname "$0")/common.sh"
gcrun=$build/gcrun bin=$build/tests/run shown='init.*' stale='port flood stop go stopped told init.*'
seed=${GCT_SEED:-$(date +%s)}
death_ms=2000                   # from a death to the last GC_ERR_PEER
abort_ms=1000
start_s=2                       # GRIDCOMM_START_TIMEOUT; gc_init may take one second more
# Sanitizers keep much of what the job itself freed, and take more time for each process.
rss_kib=1024; [ -z "${SAN:-}" ] || rss_kib=100000000
spare_ms=300; [ -z "${SAN:-}" ] || spare_ms=2000

want_failed() { [ "$status" -eq 137 ] || [ "$status" -eq 3 ] || wrong "status $status"; }   # whoever ended first

job() { # RANKS ROLE [NUMBER]: a job in the background
    "$gcrun" -n "$1" --on-failure=wait "$bin/failing" "$2" "$dir" "${3:--1}" "$mark" >out 2>err </dev/null &
    pid=$! own="$own $!"
}
pid_of() { sed -n "s/^\[$1\] pid //p" out; }

# met COUNT CODE RANK SINCE WITHIN: so many ranks met this code and this rank at fault, in time.
met() {
    local all late
    all=$(grep -c "^\[[0-9]*\] met $2 fault $3 at " out)
    [ "$all" -eq "$1" ] || wrong "$all of $1 ranks met $2 by rank $3"
    late=$(sed -n 's/.* met .* at \([0-9]*\):.*/\1/p' out | sort -n | tail -n 1)
    [ $((${late:-0} - $4)) -le "$5" ] || wrong "$((late - $4)) ms, more than $5"
    ! grep -q 'wrong:' out || wrong "$(grep -m 1 'wrong:' out)"
}

need "$bin/failing" "$bin/stranger"

# ---- death

for victim in 0 1 2 3 4 5 6 7; do
    begin "kill -9 of rank $victim of 8 in an allreduce loop: all others name it"
    job 8 loop; lines 8 ready
    since=$(now_ms); kill -9 "$(pid_of "$victim")"; finish 10
    met 7 GC_ERR_PEER "$victim" "$since" $death_ms
    want_failed; want_err "^gcrun: rank $victim on host .* was killed by signal 9"
    want_err '^gcrun: 8 of 8 ranks failed'; want_nothing_left; end
done

begin 'a rank that exits without gc_finalize'
job 5 loop 3; finish 20
since=$(sed -n 's/.* leaves at //p' out)
met 4 GC_ERR_PEER 3 "${since:-0}" $death_ms
want_status 3; want_err '^gcrun: 4 of 5 ranks failed'; want_nothing_left; end

begin 'two ranks that die at once: all others name one of them'
job 8 loop; lines 8 ready
since=$(now_ms); kill -9 "$(pid_of 2)" "$(pid_of 5)"; finish 10
# The second kill is a moment later: that rank may have met the first death before its own. It is none of the others.
sed -i -e '/^\[[25]\] met /d' -e 's/ fault 5 / fault 2 /' out
met 6 GC_ERR_PEER 2 "$since" $death_ms; want_nothing_left; end

begin 'a rank that dies while it is stopped'
job 4 loop; lines 4 ready
kill -STOP "$(pid_of 1)"; sleep 0.3
since=$(now_ms); kill -9 "$(pid_of 1)"; finish 10
met 3 GC_ERR_PEER 1 "$since" $death_ms; want_failed; want_nothing_left; end

# ---- stopped is alive

export GRIDCOMM_PEER_TIMEOUT=3
begin 'SIGSTOP with full windows for 3 x peer_timeout: no error, all data right'
job 3 windows; lines 3 ready
kill -STOP "$(pid_of 1)"; touch stopped go; lines 2 full
until_true 9 '! alive $pid || grep -q "met\|wrong" out' && wrong 'ended while a rank was stopped'
touch told; kill -CONT "$(pid_of 1)"; finish 20
! grep -q 'met\|wrong:' out || wrong 'an error'
want_status 0; want_nothing_left; end

begin 'the first message to a rank that is stopped for 3 x peer_timeout'
job 3 first; lines 3 ready
kill -STOP "$(pid_of 1)"; touch stopped go
until_true 9 '! alive $pid || grep -q "met\|wrong" out' && wrong 'ended while a rank was stopped'
kill -CONT "$(pid_of 1)"; finish 20
! grep -q 'met\|wrong:' out || wrong 'an error'
want_status 0; want_nothing_left; end
unset GRIDCOMM_PEER_TIMEOUT

# ---- a rank that computes

seconds=8; export GRIDCOMM_PEER_TIMEOUT=2
[ -z "${GCT_LONG:-}" ] || { seconds=60; unset GRIDCOMM_PEER_TIMEOUT; }
begin "a rank that computes for $seconds s hides nobody's death"
job 8 compute $seconds; lines 8 ready
sleep 3                         # longer than peer_timeout
since=$(now_ms); kill -9 "$(pid_of 6)"
lines 6 ' met '; met 6 GC_ERR_PEER 5 "$since" $death_ms           # rank 6 in a communicator without rank 2
! grep -q computed out || wrong 'it computed for too short a time to tell'
finish $((seconds + 10))
since=$(sed -n 's/.* computed at //p' out)
met 1 GC_ERR_PEER 6 "${since:-0}" $spare_ms                     # at its next call
want_failed; want_nothing_left; end

begin "a rank that computes for $seconds s keeps nobody from connecting"
job 4 connect $seconds; lines 4 pid; touch go; lines 2 ' connected after '
! grep -q computed out || wrong 'it computed for too short a time to tell'
touch told
[ "$(grep -c 'connected after [0-9]\{1,3\} ms, connections 0, then 1' out)" -eq 2 ] || wrong 'no new link, or later than 1 s'
finish $((seconds + 20))
[ "$(grep -c 'received after' out)" -eq 2 ] || wrong 'not received'
want_status 0; want_nothing_left; end
unset GRIDCOMM_PEER_TIMEOUT

# ---- out of descriptors

export GRIDCOMM_PEER_TIMEOUT=2
for direct in 0 1; do
    begin "a rank without a descriptor for a connection, links of their own $direct: who wants one is told, in time"
    export GRIDCOMM_DIRECT=$direct
    job 4 poor; lines 4 ready
    since=$(now_ms); touch go; finish 40
    sed -i '/^\[1\] met GC_ERR_PEER fault [023] /d' out
    met 3 GC_ERR_PEER 1 "$since" 20000
    # Who finds no route any more may say so a moment before it hears why, and others hear of that.
    [ "$(grep -c ' met .*\(out of descriptors\|no route leads there\|gave rank 1 up\)' out)" -eq 3 ] || wrong 'another cause is told'
    grep -q ' met .*\(out of descriptors\|no route leads there\)' out || wrong 'nobody tells the cause'
    want_status 3; want_nothing_left; end
done
unset GRIDCOMM_DIRECT

export GRIDCOMM_PEER_TIMEOUT=8
begin 'a rank without a descriptor for a connection for 5 s: no error'
job 4 poor 5; lines 4 ready
touch go; finish 30
grep -q 'has more at' out || wrong 'it was through before'
! grep -q 'met\|wrong:' out || wrong 'an error'
want_status 0; want_nothing_left; end
unset GRIDCOMM_PEER_TIMEOUT

# ---- abort

begin 'gc_abort while the others wait'
job 6 abort; lines 6 ready
sleep 0.2; touch go; finish 10
since=$(sed -n 's/.* aborts at //p' out)
met 6 GC_ERR_ABORTED "\\(2\\|-1\\)" "${since:-0}" $abort_ms
[ "$(grep -c 'met .* code 42$' out)" -ge 4 ] || wrong 'the code is not told'
want_status 3; want_nothing_left; end

# ---- who waits for whom

export GRIDCOMM_STALL=0.5
begin 'GRIDCOMM_STALL: five ranks that wait say so, and that it is over'
job 6 abort; lines 6 ready
until_true 10 '[ "$(grep -c "stall: nothing has moved" err)" -ge 7 ]' || wrong "$(wc -l <err) lines are said"
touch go; finish 10
said() { grep -q "gridcomm\\[$1\\]: stall: $2" err || wrong "rank $1 does not say: $2"; }
said 0 'nothing has moved for 0\.[5-9] s: receive, tag 0, .* from rank 1 on .*: no message yet$'
said 0 'rank 0 waits for rank 1, which waits for rank [0-9] (\(receive\|send\) of barrier '
said 3 '.* send, tag 0, .* to rank 1 on .*: waits for its receive$'
said 3 'way to rank 1 on .*: a link of its own, unix[:0-9]*; that host answers; no rank has missed rank 1$'
said 4 '.* gc_probe, tag 0, from any rank: no message yet$'
said 5 '.* barrier 1 of 6 ranks by .* steps are done$'
said 1 'over, after '
want_status 3; want_nothing_left; end
unset GRIDCOMM_STALL

# ---- starting by hand

free_port() { # of those below the range from which the kernel takes them for others
    for port in $(shuf -i 20000-32000 -n 50); do
        grep -qi ":$(printf %04X "$port") " /proc/net/tcp /proc/net/tcp6 || return 0
    done
}
hand() { # NAME RANK SIZE [VARIABLE=VALUE...]: a rank in the background; its words in init.NAME
    local name=$1 rank=$2 size=$3; shift 3
    env GRIDCOMM_RANK="$rank" GRIDCOMM_SIZE="$size" GRIDCOMM_ROOT="127.0.0.1:$port" GRIDCOMM_KEY=right \
        GRIDCOMM_START_TIMEOUT=$start_s "$@" "$bin/failing" start "$dir" -1 "$mark" >"init.$name" 2>&1 </dev/null &
    eval "pid_$name=$!"; own="$own $!"
}
hand_ends() { eval "wait_for $((start_s + 8)) \$pid_$1"; }
hand_dies() { eval "set -- \$pid_$1"; kill -9 "$1"; { wait "$1"; } 2>/dev/null; own=${own/ $1/}; }
joined() { hand_ends "$1"; [ "$status" -eq 0 ] || wrong "$1: status $status"; }
refused() { # NAME CODE LEAST_MS MOST_MS TEXT: gc_init failed with this code, this text, in this time
    local ms
    hand_ends "$1"; [ "$status" -eq 2 ] || wrong "$1: status $status"
    ms=$(sed -n "s/^refused $2 after \([0-9]*\) ms: .*/\1/p" "init.$1")
    [ -n "$ms" ] || { wrong "$1: no $2"; return; }
    [ "$ms" -ge "$3" ] && [ "$ms" -le $(($4 + spare_ms)) ] || wrong "$1: after $ms ms"
    grep -Eq "$5" "init.$1" || wrong "$1: no '$5'"
}
# Rank 0 counts from the first to come, and tells the others.
soon=1000 late=$((start_s * 1000 - 500)) latest=$((start_s * 1000 + 1000))

begin 'a wrong key: told at once to who has it, by name and address to all others'
free_port
hand a 0 3; hand b 1 3; hand c 2 3 GRIDCOMM_KEY=other
refused c GC_ERR_AUTH 0 $latest "rank 0 at 127\.0\.0\.1:$port: wrong key"
for n in a b; do refused $n GC_ERR_TIMEOUT $late $latest 'rank 2 .*did not join.*127\.0\.0\.1:[0-9]* tried, but has another key'; done
want_nothing_left; end

begin 'a wrong size'
free_port
hand a 0 3; hand b 1 3; hand c 2 4
refused c GC_ERR_CONFIG 0 $latest "rank 0 at 127\.0\.0\.1:$port: wrong size: counts 3 ranks, not 4"
for n in a b; do refused $n GC_ERR_TIMEOUT $late $latest 'rank 2 of 3 did not join'; done
want_nothing_left; end

begin 'a rank twice: the second is refused, the job starts'
free_port
hand a 0 3 GRIDCOMM_START_TIMEOUT=20; hand b 1 3 GRIDCOMM_START_TIMEOUT=20; hand c 1 3 GRIDCOMM_START_TIMEOUT=20
until_true 5 'grep -q refused init.b init.c' || wrong 'both were taken'
grep -q refused init.b && first=b second=c || first=c second=b
refused $first GC_ERR_CONFIG 0 $soon "rank 0 at 127\.0\.0\.1:$port: rank 1 is taken"
hand d 2 3; joined a; joined $second; joined d; want_nothing_left; end

begin 'rank 0 twice'
free_port
hand a 0 2 GRIDCOMM_START_TIMEOUT=20; until_true 5 'grep -qi ":$(printf %04X $port) .* 0A " /proc/net/tcp /proc/net/tcp6'
hand b 0 2; refused b GC_ERR_SYSTEM 0 $soon "cannot listen on port $port"
hand c 1 2; joined a; joined c; want_nothing_left; end

begin 'a rank of another job, at a rendezvous whose job has started'
GRIDCOMM_KEY=right job 3 loop; lines 3 ready
port=$(tr '\0' '\n' <"/proc/$(pid_of 0)/environ" | sed -n 's/^GRIDCOMM_ROOT=.*://p')
hand a 1 3; refused a GC_ERR_CONFIG 0 $soon "rank 0 at 127\.0\.0\.1:$port: the job has started already"
touch stop; finish 10; want_status 0; want_nothing_left; end

begin 'too few processes: all name who is missing'
free_port
hand a 0 5; hand b 1 5; hand c 3 5
for n in a b c; do refused $n GC_ERR_TIMEOUT $late $latest 'ranks 2, 4 of 5 did not join'; done
want_nothing_left; end

begin 'too few processes under gcrun, which ends with them'
GRIDCOMM_START_TIMEOUT=$start_s timeout 20 "$gcrun" -n 3 --on-failure=wait sh -c \
    '[ $GRIDCOMM_RANK = 1 ] || exec "$0" start "$@"' "$bin/failing" "$dir" -1 "$mark" >out 2>err </dev/null; status=$?
[ "$(grep -c 'refused GC_ERR_TIMEOUT after .* ms: .*rank 1 of 3 did not join' out)" -eq 2 ] || wrong 'rank 1 is not named'
want_status 2; want_err '2 of 3 ranks failed: rank 0 (status 2), rank 2 (status 2)'; want_nothing_left; end

begin 'a rank that dies while the job starts: all name it, at once'
free_port
hand a 0 4 GRIDCOMM_START_TIMEOUT=20; hand b 1 4 GRIDCOMM_START_TIMEOUT=20; hand c 2 4 GRIDCOMM_START_TIMEOUT=20
# each has a connection to rank 0 that is proven when both ends have sent something; a second later it surely is
sleep 1; hand_dies b
for n in a c; do refused $n GC_ERR_PEER 0 3000 'rank 1 \(127\.0\.0\.1:[0-9]*\) died during start'; done
want_nothing_left; end

begin 'rank 0 dies while the job starts'
free_port
hand a 0 3 GRIDCOMM_START_TIMEOUT=20; hand b 1 3 GRIDCOMM_START_TIMEOUT=20
sleep 1; hand_dies a
refused b GC_ERR_PEER 0 3000 "rank 0 \(127\.0\.0\.1:$port\) died during start"; want_nothing_left; end

# ---- a rendezvous that is none

begin 'nothing listens at the rendezvous'
free_port
hand a 1 3; hand b 2 3
for n in a b; do refused $n 'GC_ERR_[TU][A-Z]*' $late $latest "rank 0 was not reached within 2 s: 127\.0\.0\.1:$port: .*refused"; done
want_nothing_left; end

for kind in mute noise; do
    begin "what listens at the rendezvous is $kind"
    "$bin/stranger" $kind >port 2>err & listener=$! own="$own $!"
    until_true 5 '[ -s port ]'; port=$(cat port)
    hand a 1 2
    [ $kind = mute ] && text='no answer' || text='does not speak gridcomm'
    refused a 'GC_ERR_[TU][A-Z]*' $late $latest "rank 0 was not reached within 2 s: 127\.0\.0\.1:$port: $text"
    kill -9 $listener; { wait $listener; } 2>/dev/null; own=${own/ $listener/}
    want_nothing_left; end
done

# ---- strangers at the ports of a running job

port_of() { # PID: the port on which it listens
    local inode
    for fd in "/proc/$1/fd"/*; do
        inode=$(readlink "$fd" | sed -n 's/^socket:\[\([0-9]*\)\]$/\1/p')
        [ -z "$inode" ] || awk -v inode="$inode" '$4 == "0A" && $10 == inode { sub(".*:", "", $2); print $2 }' /proc/net/tcp /proc/net/tcp6
    done | while read -r hex; do echo $((16#$hex)); done | head -n 1
}
rss() { sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$1/status"; }

for rank in 0 3; do
    begin "400 strangers at the port of rank $rank: dropped, memory constant, the job goes on"
    job 5 loop; lines 5 ready
    victim=$(pid_of $rank); port=$(port_of "$victim")
    sleep 1; before=$(rss "$victim") most=0
    "$bin/stranger" flood "${port:-0}" 400 "$seed" >flood 2>>err & stranger=$! own="$own $!"
    while alive $stranger; do now=$(rss "$victim"); [ "${now:-0}" -le $most ] || most=$now; sleep 0.02; done
    wait_for 1 $stranger; want_status 0
    grep -q '^400 dropped$' flood || wrong "$(tail -n 1 flood), seed $seed"
    [ $((most - before)) -le $rss_kib ] || wrong "$((most - before)) KiB more"
    echo "     resident memory $before KiB, at most $((most - before)) KiB more"
    touch stop; finish 10; want_status 0
    ! grep -q 'met\|wrong:' out || wrong 'an error'
    sed -n 's/.*the longest \([0-9]*\) ms/\1/p' out | while read -r ms; do [ "$ms" -le 1000 ] || echo "$ms"; done >slow
    [ ! -s slow ] || wrong "a turn took $(head -n 1 slow) ms"
    want_nothing_left; end
done

begin 'new links in the middle of a flood'
job 4 connect 3; lines 4 pid
port=$(port_of "$(pid_of 2)"); "$bin/stranger" flood "${port:-0}" 400 "$seed" >flood 2>>err & stranger=$! own="$own $!"
until_true 5 'grep -qs connected flood' || wrong 'no flood'
touch go                        # ranks 0 and 3 connect to rank 2, which is flooded and computes
lines 2 ' connected after '; touch told; sed -n 's/^/     /; s/, conn.*//p' out
finish 20; want_status 0
wait_for 40 $stranger; want_status 0
grep -q '^400 dropped$' flood || wrong "$(tail -n 1 flood), seed $seed"
want_nothing_left; end

begin 'strangers while the job starts'
free_port
hand a 0 3 GRIDCOMM_START_TIMEOUT=20; until_true 5 'grep -qi ":$(printf %04X $port) .* 0A " /proc/net/tcp /proc/net/tcp6'
"$bin/stranger" flood "$port" 400 "$seed" >flood 2>err & stranger=$! own="$own $!"
until_true 5 'grep -qs connected flood' || wrong 'no flood'
hand b 1 3; hand c 2 3 GRIDCOMM_START_TIMEOUT=20
joined a; joined b; joined c
wait_for 40 $stranger; want_status 0; want_nothing_left; end

# ---- no key

begin 'no key: refused for an address beyond loopback'
free_port
for rank in 0 1; do
    hand k$rank $rank 2 GRIDCOMM_KEY= GRIDCOMM_ROOT="192.0.2.1:$port"
    refused k$rank GC_ERR_CONFIG 0 $soon 'no job key.*192\.0\.2\.1.*GRIDCOMM_KEY.*GRIDCOMM_INSECURE=1'
done
want_nothing_left; end

begin 'no key: loopback is fine, and nothing else listens'
free_port
hand a 0 2 GRIDCOMM_KEY= GRIDCOMM_START_TIMEOUT=20
until_true 5 '[ -n "$(port_of $pid_a)" ]'
grep -hi ":$(printf %04X "$port") .* 0A " /proc/net/tcp /proc/net/tcp6 | grep -qv ' 0100007F:' && wrong 'listens beyond loopback'
hand b 1 2 GRIDCOMM_KEY=; joined a; joined b; want_nothing_left; end

here_address=$(awk '/32 host LOCAL/ && last !~ /^(127|169\.254)\./ { print last; exit } { last = $2 }' /proc/net/fib_trie 2>/dev/null)
if [ -n "$here_address" ]; then
    begin 'no key: GRIDCOMM_INSECURE=1 does without'
    free_port
    for rank in 0 1; do hand k$rank $rank 2 GRIDCOMM_KEY= GRIDCOMM_INSECURE=1 GRIDCOMM_ROOT="$here_address:$port"; done
    joined k0; joined k1; want_nothing_left; end
else
    skip 'no key: GRIDCOMM_INSECURE=1 does without' 'this host has no address but loopback'
fi

close
