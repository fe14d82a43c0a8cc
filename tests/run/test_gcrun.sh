#!/bin/bash
# test_gcrun.sh: the launcher, with plain programs as ranks: what they are given, what becomes of their output, how they
# end, and that nothing is left of them. Needs bash: job control without a terminal. time limit: 240 s
# SPDX-License-Identifier: MIT
set -u
. "$(dirname "$0")/common.sh"
gcrun=$build/gcrun
gone_s=1

run() { timeout -k 5 30 "$gcrun" "$@" >out 2>err </dev/null; status=$?; }
want_out() { sort out | cmp -s - want || wrong "wrong output"; }
want_quiet() { [ ! -s err ] || wrong "errors"; }
start() { # gcrun in the background, in a job of its own so that it does not ignore SIGINT
    set -m
    "$gcrun" "$@" >out 2>err </dev/null &
    pid=$! own="$own $!"
    set +m
}

# ---- what ranks are given

begin 'an empty key is none: one is made'
GRIDCOMM_KEY='' GRIDCOMM_KEY_FILE='' run -n 1 sh -c 'echo ${#GRIDCOMM_KEY}'
want_status 0; echo '[0] 64' >want; want_out
end

begin 'rank, size, rendezvous, key'
run -n 3 sh -c 'echo "$GRIDCOMM_RANK/$GRIDCOMM_SIZE ${#GRIDCOMM_KEY} ${GRIDCOMM_LISTEN_FD+listens} ${GRIDCOMM_CLUSTER-none}"'
printf '[0] 0/3 64 listens none\n[1] 1/3 64  none\n[2] 2/3 64  none\n' >want
want_status 0; want_out; want_quiet; end

begin 'one key and one rendezvous for all, a new key each time'
run -n 4 --no-prefix sh -c 'echo "$GRIDCOMM_KEY $GRIDCOMM_ROOT"'
[ "$(sort -u out | wc -l)" -eq 1 ] || wrong 'they differ'
grep -Eq '^[0-9a-f]{64} 127\.0\.0\.1:[0-9]+$' out || wrong 'not a key and an address'
first=$(cut -c 1-64 out | head -n 1)
run -n 1 --no-prefix sh -c 'echo "$GRIDCOMM_KEY"'
[ "$(cat out)" != "$first" ] || wrong 'the same key twice'
end

begin 'a key of the user is kept'
GRIDCOMM_KEY=mine run -n 2 --no-prefix sh -c 'echo $GRIDCOMM_KEY'
printf 'mine\nmine\n' >want; want_out
GRIDCOMM_KEY_FILE=/k run -n 1 --no-prefix sh -c 'echo ${GRIDCOMM_KEY-no} $GRIDCOMM_KEY_FILE'
echo 'no /k' >want; want_out; end

begin 'the key is on no command line'
run -n 2 --no-prefix sh -c 'printf %s "$GRIDCOMM_KEY" >key; grep -lsa -f key /proc/[0-9]*/cmdline; true'
printf '' >want; want_status 0; want_out; end

begin 'rank 0 inherits a socket that listens at the rendezvous'
run -n 1 --no-prefix sh -c 'port=$(printf %04X ${GRIDCOMM_ROOT##*:}); inode=$(readlink /proc/$$/fd/$GRIDCOMM_LISTEN_FD)
    cat /proc/net/tcp /proc/net/tcp6 | grep -i ":$port .* 0A .* $(echo "$inode" | tr -dc 0-9) " | wc -l'
echo 1 >want; want_out; end

begin 'arguments, directory and variables arrive as they are'
mkdir -p 'a dir'
for agent in '' "$here/agent_here" "$here/agent_shell"; do
    echo 'far' >hosts
    [ -n "$agent" ] || echo localhost >hosts
    FOO='x  y' GRIDCOMM_DEBUG='d $d' run -H hosts ${agent:+--agent "$agent"} -x FOO -x 'BAR=$B "q"' --wdir "$dir/a dir" --no-prefix \
        sh -c 'printf "%s|" "$@" "$FOO" "$BAR" "$GRIDCOMM_DEBUG" "$(pwd)"' sh 'two  words' '*' "it's" '' '$HOME'
    printf '%s|' 'two  words' '*' "it's" '' '$HOME' 'x  y' '$B "q"' 'd $d' "$dir/a dir" >want
    want_status 0; want_quiet
    cmp -s out want || wrong "differs with agent '$agent'"
done
end

begin 'variables have one value: the rank'"'"'s own, then -x, then the environment'
FOO=1 GRIDCOMM_RANK=77 GRIDCOMM_LISTEN_FD=78 run -n 2 --no-prefix -x FOO=2 -x FOO=3 -x GRIDCOMM_SIZE=9 env
grep -a -e "^FOO=" -e "^GRIDCOMM_RANK" -e "^GRIDCOMM_SIZE" out | sort >got
printf "FOO=3\nFOO=3\nGRIDCOMM_RANK=0\nGRIDCOMM_RANK=1\nGRIDCOMM_SIZE=2\nGRIDCOMM_SIZE=2\n" | cmp -s - got || wrong "$(tr "\n" " " <got)"
[ "$(grep -c "^GRIDCOMM_LISTEN_FD" out)" -eq 1 ] || wrong "a foreign socket"; end

begin 'a large environment and long arguments'
long=$(head -c 100000 /dev/zero | tr '\0' a)
run -n 2 --no-prefix -x "LONG=$long" sh -c 'echo ${#LONG} ${#1}' sh "$long"
printf '100000 100000\n100000 100000\n' >want; want_status 0; want_out; end

# ---- output and input

begin 'lines are whole and have their rank in front'
run -n 8 sh -c 'i=0; while [ $i -lt 500 ]; do echo "line $i of $GRIDCOMM_RANK"; i=$((i+1)); done'
[ "$(grep -Ec '^\[([0-7])\] line [0-9]+ of \1$' out)" -eq 4000 ] || wrong "$(wc -l <out) lines"
want_status 0; end

begin 'a last line without an end gets one'
run -n 2 printf 'a\nb'
printf '[0] a\n[0] b\n[1] a\n[1] b\n' >want; want_out; end

begin 'a long line is cut, nothing is lost'
run -n 1 sh -c 'head -c 40000 /dev/zero | tr "\0" x; echo; echo short'
[ "$(wc -l <out)" -eq 4 ] || wrong "$(wc -l <out) lines"
[ "$(tr -dc x <out | wc -c)" -eq 40000 ] || wrong 'bytes are missing'
[ "$(grep -c '^\[0\]+' out)" -eq 2 ] || wrong 'pieces are not marked'
grep -q '^\[0\] short$' out || wrong 'the next line is wrong'
end

begin '--no-prefix passes bytes as they are'
head -c 300000 /dev/urandom >bytes
run -n 1 --no-prefix cat bytes
cmp -s out bytes || wrong 'differs'; end

begin 'standard error is standard error'
run -n 2 sh -c 'echo o; echo e >&2'
printf '[0] o\n[1] o\n' >want; want_out
printf '[0] e\n[1] e\n' >want; sort err | cmp -s - want || wrong 'wrong errors'; end

begin 'standard input goes to rank 0 alone'
timeout 20 "$gcrun" -n 3 --no-prefix sh -c 'if [ $GRIDCOMM_RANK = 0 ]; then cat; else wc -c | tr -d " " >got.$GRIDCOMM_RANK; fi' <bytes >out 2>err
cmp -s out bytes || wrong 'differs'
[ "$(cat got.1 got.2 | tr '\n' ' ')" = '0 0 ' ] || wrong 'others got some'; end

begin 'a rank 0 that does not read does not hold the job'
timeout 20 "$gcrun" -n 2 true <bytes >out 2>err; status=$?
want_status 0; want_quiet; end

begin 'a slow reader holds the ranks, not memory'
(exec "$gcrun" -n 4 sh -c ": $mark; while :; do echo yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy; done" 2>err </dev/null & echo $! >pid; wait $!) |
    { until_true 10 '[ -s pid ]'; sleep 1; sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$(cat pid)/status" >rss; head -n 1 >/dev/null; }
[ "$(cat rss)" -lt 16000 ] || wrong "$(cat rss) KiB"
want_nothing_left 5; end

begin 'a reader that goes away ends the job'
{ timeout 20 "$gcrun" -n 2 sh -c ": $mark; while :; do echo y; done" 2>err </dev/null; echo $? >status; } | head -n 1 >/dev/null
status=$(cat status); want_status 141; want_nothing_left 3; end

begin 'what a rank has written before it failed waits for a reader that pauses'
{ timeout 25 "$gcrun" -n 1 --no-prefix sh -c "yes | head -c 250000; exit 3" 2>err </dev/null; echo $? >status; } | { sleep 9; wc -c >bytes; }
status=$(cat status); want_status 3; [ "$(cat bytes)" -eq 250000 ] || wrong "$(cat bytes) bytes of 250000"; end

# ---- ends

begin 'a rank that fails: the status, its name, the others end'
run -n 4 sh -c ": $mark; "'[ $GRIDCOMM_RANK = 2 ] && exit 7; sleep 30; true'
want_status 7; want_err '^gcrun: rank 2 on host .* (pid [0-9]*) exited with status 7$'
want_err '^gcrun: 1 of 4 ranks failed: rank 2 (status 7); 3 stopped by gcrun$'; want_nothing_left; end

begin 'a rank that is killed: 128 + signal'
run -n 3 sh -c ": $mark; "'[ $GRIDCOMM_RANK = 1 ] && kill -9 $$; sleep 30; true'
want_status 137; want_err 'rank 1 on host .* was killed by signal 9 (Killed)'; want_nothing_left; end

begin 'what was killed is told before those who say that it was'
run -n 3 sh -c '[ $GRIDCOMM_RANK = 2 ] && kill -9 $$; exit 1'
want_status 137; head -n 1 err | grep -q "rank 2 .* killed by signal 9" || wrong "another one first"; end

begin 'a rank that ignores SIGTERM is killed 2 s later'
before=$(date +%s%N)
run -n 2 sh -c ": $mark; "'[ $GRIDCOMM_RANK = 1 ] && { sleep 0.3; exit 3; }; trap "" TERM; while :; do sleep 1; done'
ms=$((($(date +%s%N) - before) / 1000000))
want_status 3; want_nothing_left; [ $ms -ge 2000 ] && [ $ms -lt 4500 ] || wrong "$ms ms"; end

begin '--on-failure=wait lets the others end'
run -n 4 --on-failure=wait sh -c '[ $GRIDCOMM_RANK = 1 ] && exit 5; [ $GRIDCOMM_RANK = 3 ] && { sleep 0.2; kill -9 $$; }; sleep 0.6; echo done'
printf '[0] done\n[2] done\n' >want
want_status 5; want_out; want_err 'rank 1 .* exited with status 5'; want_err 'rank 3 .* killed by signal 9'
want_err '^gcrun: 2 of 4 ranks failed: rank 1 (status 5), rank 3 (signal 9)$'; end

begin 'a program that does not exist: one line, 127'
run -n 8 ./no-such-program
want_status 127; [ "$(wc -l <err)" -eq 1 ] || wrong "$(wc -l <err) lines"; want_err 'no-such-program.*No such file'; end

begin 'a program that is not one: 126'
echo >plain; run -n 2 ./plain
want_status 126; want_err 'plain.*Permission denied'; end

begin 'what a rank leaves running is ended with the job'
run -n 2 sh -c "(setsid sleep $mark &) ; (sleep $mark &); echo out"
printf '[0] out\n[1] out\n' >want; want_status 0; want_out; want_nothing_left; end

# ---- signals

for sig in TERM INT HUP USR1; do
    begin "SIG$sig reaches every rank"
    start -n 3 sh -c ": $mark; trap 'echo got; exit 0' $sig; echo ready; while :; do sleep 0.05; done"
    lines 3; kill -$sig "$pid"; finish 5
    printf '[0] got\n[0] ready\n[1] got\n[1] ready\n[2] got\n[2] ready\n' >want
    want_status 0; want_out; want_nothing_left; end
done

begin 'ranks that die of the signal: 128 + signal, said once'
start -n 3 sh -c ": $mark; echo ready; while :; do sleep 0.05; done"
lines 3; kill -INT "$pid"; finish 5
want_status 130; [ "$(wc -l <err)" -eq 1 ] || wrong "$(wc -l <err) lines"; want_nothing_left; end

begin 'a second SIGINT kills'
start -n 2 sh -c ": $mark; trap '' INT TERM; echo ready; while :; do sleep 0.05; done"
lines 2; kill -INT "$pid"; sleep 0.3; alive "$pid" || wrong 'ended by the first'
kill -INT "$pid"; finish 2
want_status 130; want_nothing_left; end

begin 'a reader that takes nothing does not keep it from ending'
mkfifo fifo; exec 9<>fifo
set -m; "$gcrun" -n 2 sh -c ": $mark; while :; do echo yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy; done" >fifo 2>err </dev/null & pid=$!; set +m
until_true 10 '[ "$(left)" -ge 3 ]' || wrong "ranks did not start"
sleep 0.5; kill -INT "$pid"; sleep 0.5; kill -INT "$pid"; finish 14; exec 9>&-
want_status 130; want_nothing_left; end

begin 'nothing outlives a gcrun that is killed'
start -n 3 sh -c ": $mark; (setsid sleep $mark &) ; (trap '' TERM; exec sleep $mark) & echo ready; wait; sleep 30"
lines 3; kill -9 "$pid"; finish 2; [ "$(left)" -gt 0 ] || wrong 'nothing ran'; want_nothing_left 4; end

begin 'nothing outlives a node that is killed'
start -n 3 sh -c ": $mark; (setsid sleep $mark &) ; echo ready; sleep 30"
lines 3; kill -9 "$(cat "/proc/$pid/task/$pid/children")"; finish 5
want_status 137; want_err 'host localhost is lost'; want_nothing_left; end

begin 'a stopped rank is ended too'
start -n 2 sh -c ": $mark; echo "'ready; [ $GRIDCOMM_RANK = 0 ] && kill -STOP $$; sleep 0.3; exit 4'
lines 2; finish 2; want_status 4; want_nothing_left; end         # SIGKILL would come after 2.3 s

# ---- hosts and agents

cat >hosts <<END
# a comment
near slots=2 cluster=a/rack1   # another
far.example slots=1

	far2	cluster=b
END
begin 'hosts: slots in order, clusters'
run -H hosts --agent "$here/agent_here" sh -c 'echo "$GRIDCOMM_SIZE ${GRIDCOMM_CLUSTER-none}"'
printf '[0] 4 a/rack1\n[1] 4 a/rack1\n[2] 4 none\n[3] 4 b\n' >want; want_status 0; want_out; want_quiet
run -H hosts -n 3 --agent "$here/agent_shell" sh -c 'echo "$GRIDCOMM_SIZE ${GRIDCOMM_CLUSTER-none}"'
printf '[0] 3 a/rack1\n[1] 3 a/rack1\n[2] 3 none\n' >want; want_status 0; want_out; end

begin 'hosts: this one needs no agent, unless one is given'
printf 'localhost slots=2 cluster=a\nlocalhost slots=2 cluster=b\n' >local
run -H local sh -c 'echo "$GRIDCOMM_CLUSTER"'
printf '[0] a\n[1] a\n[2] b\n[3] b\n' >want; want_status 0; want_out
run -H local --agent false true
want_status 1; want_err 'localhost could not be reached'; end

begin 'hosts: more ranks than slots, and lines that make no sense'
run -H hosts -n 5 true; want_status 2; want_err '-n 5 is more than the 4 slots in hosts'
printf 'one\ntwo slot=3\n' >wrong; run -H wrong true
want_status 2; want_err "^gcrun: wrong:2: unknown word 'slot=3'"
run -H nowhere true; want_status 2; want_err 'nowhere: No such file'
run -H /dev/null true; want_status 2; want_err 'no host in it'; end

begin 'an agent that fails, one that does not exist, one that hangs'
bad=''
printf '#!/bin/sh\nexit 255\n' >fails; chmod +x fails
run -H hosts --agent ./fails true; want_status 255; want_err 'host .* could not be reached'
run -H hosts --agent no-such-agent true; want_status 127; want_err "agent 'no-such-agent'"
printf '#!/bin/sh\nexec sleep %s\n' "$mark" >hangs; chmod +x hangs
run -H hosts --agent ./hangs --start-timeout 0.3 true; want_status 1; want_err 'host near did not answer within 0.3 s'
want_nothing_left; end

begin 'SIGINT while a host does not answer'
start -H hosts --agent ./hangs true
until_true 10 '[ "$(left)" -ge 3 ]' || wrong "agents did not start"
kill -INT "$pid"; finish 2; want_status 130; want_nothing_left; end

begin 'an agent that prints for ever'
printf '#!/bin/sh\nexec yes %s\n' "$mark" >noisy; chmod +x noisy
run -H hosts --agent ./noisy true; want_status 1; want_err 'makes no sense'; want_nothing_left; end

begin 'a host that is lost ends the job, and is named'
start -H hosts --agent "$here/agent_here" sh -c ": $mark; echo ready; sleep 30"
lines 4
node=$(for p in $(cat "/proc/$pid/task/$pid/children"); do [ "$(cat "/proc/$p/task/$p/children" | wc -w)" -eq 2 ] && echo "$p"; done)
kill -9 "$node"; finish 6; want_status 137; want_err 'host near is lost .* 2 ranks (0 to 1)'; want_nothing_left; end

begin 'killed gcrun, ranks behind agents'
start -H hosts --agent "$here/agent_shell" sh -c ": $mark; trap '' HUP; echo ready; sleep 30"
lines 4; kill -9 "$pid"; finish 2; want_nothing_left 4; end

peer=$dir/tunnel_peer
if ! ${CC:-cc} -std=c11 -O1 -o "$peer" "$here/tunnel_peer.c" 2>err; then
    begin 'the tunnel'; wrong 'cannot compile tunnel_peer.c'; end
elif ! unshare -n true 2>/dev/null || ! command -v ip >/dev/null; then
    skip 'the tunnel' 'needs root and ip'
else
    printf 'near slots=1\nfar1 slots=2\nfar2 slots=3\n' >apart
    begin 'hosts without any network reach rank 0 through the tunnel'
    run -H apart --agent "$here/agent_apart" "$peer"; want_status 0; want_quiet; end
    begin 'the end of a tunnelled connection is seen'
    run -H apart --agent "$here/agent_apart" "$peer" close; want_status 0; want_quiet; end
    begin 'more ranks of a host than any fixed number'
    printf 'near slots=1\nfar1 slots=100\n' >apart
    run -H apart --agent "$here/agent_apart" "$peer" all; want_status 0; want_quiet; end
    begin 'rank 0 behind the agent, too'
    printf 'far1 slots=1\nnear slots=2\nfar2 slots=2\n' >apart
    run -H apart --agent "$here/agent_apart" "$peer"; want_status 0; want_quiet; end
fi

# ---- usage

begin 'wrong usage is told'
run -n 0 true; want_status 2; want_err '-n needs a number from 1 to 65536'
run -n 2; want_status 2; want_err 'which program'
run true; want_status 2; want_err 'how many'
run --frobnicate true; want_status 2; want_err "unknown option '--frobnicate'"
run -n 1 --on-failure=maybe true; want_status 2; want_err 'kill or wait'
run -n2 --on-failure wait -- true; want_status 0
run --help; want_status 0; grep -q '^usage: gcrun' out || wrong 'no usage'
run -n 1 --wdir /no/such/dir true; want_status 1; want_err '/no/such/dir: No such file'; end

begin '64 ranks'
before=$(date +%s%N)
run -n 64 sh -c 'echo $GRIDCOMM_RANK'
echo "     64 ranks of sh: $((($(date +%s%N) - before) / 1000000)) ms from start to end"
i=0; while [ $i -lt 64 ]; do echo "[$i] $i"; i=$((i + 1)); done | sort >want
want_status 0; want_out; end

close
