#!/bin/bash
# test_overlay.sh: gridcomm between hosts that cannot all reach each other, links that are cut, relays that die, and relays
# under load. No option is set but where a test is about one.
# SPDX-License-Identifier: MIT
#
# PARTS="nat relays" runs those parts only. GCT_LONG=1: the rank that takes nothing does so for a minute, with a message of
# 1 GiB. time limit: 900 s
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/net/common.sh
ring=$BED_BUILD/examples/ring
unset "${!GRIDCOMM_@}"

for program in "$BED_BUILD/gcrun" "$ring" "$tools/alltoall" "$tools/survivors" "$tools/bystander"; do
    [ -x "$program" ] || { skip 'the overlay on the test bed' "$program is not built"; close; }
done

N=to-$$-n F=to-$$-f V=to-$$-v S=to-$$-s C=to-$$-c R=to-$$-r P=to-$$-p M=to-$$-m B=to-$$-b

gc() { # SECONDS, NAME RANKS PROGRAM...: a job over the bed's hosts, in order
    timeout -k 5 "$1" $bed gcrun "$2" -n "${@:3}"
}
called() { # NAME, what, how many processes: are there so many?
    [ "$($bed members "$1" "$2" | wc -l)" -ge "$3" ]
}
connects() { # what, NAME, RANKS: the two jobs that must pass wherever the ranks are
    check "$1: ring" gc 75 "$2" "$3" "$ring" 3 1000
    check "$1: all-to-all" gc 75 "$2" "$3" "$tools/alltoall"
}
remove() { check 'it is removed' $bed down "$1"; }      # NAME

# ---- who cannot reach whom ----
cat >"$work/nat" <<END
site a: switch lan 192.168.1.0/24
site a: nat 198.51.100.1
site b: switch lan 192.168.1.0/24       # the same addresses
site b: nat 198.51.100.2
site p: switch lan 203.0.113.0/24
host p1 p2 on p/lan
host a1 a2 on a/lan
host b1 b2 on b/lan
wan * *: latency 5ms
END
cat >"$work/outgoing" <<END
site o: switch lan 198.18.0.0/24
site o: firewall in none
site q: switch lan 198.18.1.0/24
site q: firewall in none reject
site p: switch lan 203.0.113.0/24
host o1 o2 on o/lan
host q1 q2 on q/lan
host p1 on p/lan
wan * *: latency 5ms
END
cat >"$work/versions" <<END
site l: switch four 10.1.0.0/24
site l: switch six fd06::/64
host v1 v2 on l/four
host w1 w2 on l/six
host d1 on l/four l/six
END
cat >"$work/ssh" <<END
site a: switch lan 10.1.0.0/24
site b: switch lan 10.2.0.0/24
host a1 a2 on a/lan
host b1 on b/lan
host s1 on b/lan
host s1: sshd
host s1: firewall in 22 out none
wan a b: latency 2ms
END
inside_out() { # rank 0 is behind a NAT: nobody reaches it from outside
    sed 's/^host p1 p2.*//; $a host p1 p2 on p/lan' "$work/nat" >"$work/nat-first" && up "$work/nat-first" "$B" &&
        gc 75 "$B" 6 "$tools/alltoall" && $bed down "$B"
}
part_nat() {
    check 'a bed: two NATs with the same addresses, and a public site' up "$work/nat" "$N"
    connects 'NATs' "$N" 12
    remove "$N"
    check 'NATs: all-to-all with rank 0 behind one' inside_out
}
part_outgoing() {
    check 'a bed: two sites that let nothing in, and one that does' up "$work/outgoing" "$F"
    connects 'only outgoing' "$F" 10
    remove "$F"
}
part_versions() {
    check 'a bed: IPv4 hosts, IPv6 hosts, and one that has both' up "$work/versions" "$V"
    connects 'IPv4 and IPv6' "$V" 10
    remove "$V"
}

# The one line, and an ssh that finds the key of this bed.
echo 'require a* s1 via=ssh user=nobody' >"$work/links"
mkdir "$work/bin"
printf '#!/bin/sh\nexec %s -F /run/gridcomm-bed/%s/ssh_config "$@"\n' "$(command -v ssh)" "$S" >"$work/bin/ssh"
chmod +x "$work/bin/ssh"
by_ssh() { PATH=$work/bin:$PATH GRIDCOMM_LINKS=$work/links "$@"; }
not_without() { ! GRIDCOMM_START_TIMEOUT=5 gc 40 "$S" 8 "$ring" 2>"$work/why" && grep -i 'rank [67]\|s1' "$work/why"; }
no_ssh_left() { ! $bed members "$S" ssh | grep . && ! $bed members "$S" alltoall-over | grep .; }
part_ssh() {
    check 'a bed: a host reached by ssh alone' up "$work/ssh" "$S"
    check 'ssh alone: ring' by_ssh gc 75 "$S" 8 "$ring" 3 1000
    check 'ssh alone: all-to-all' by_ssh gc 75 "$S" 8 "$tools/alltoall"
    check 'without its line, an error that names the rank' not_without
    check 'and no ssh is left' until_true no_ssh_left
    remove "$S"
}

# ---- what is cut and comes back ----
cat >"$work/cut" <<END
site a: switch lan 10.1.0.0/24
site b: switch lan 10.2.0.0/24
host a1 a2 on a/lan
host b1 b2 on b/lan
wan a b: latency 5ms
END
disturbed() { # NAME RANKS SECONDS, command...: done once while an all-to-all goes on, which must come to its end
    local job ranks=$2 name=$1
    GRIDCOMM_PEER_TIMEOUT=10 gc $(($3 + 50)) "$name" "$ranks" "$tools/alltoall" seconds="$3" bytes=100000 &
    job=$!
    until_true called "$name" alltoall-warm "$ranks" && "${@:4}"
    wait $job
}
cut_for() { # NAME A B SECONDS
    $bed cut "${@:1:3}" && sleep "$4" && $bed mend "${@:1:3}"
}
sed 's/nat 198.51.100.*/& reject/' "$work/nat" >"$work/refusing"
part_cuts() {
    check 'a bed of two sites' up "$work/cut" "$C"
    check 'sites cut for 3 s: nothing is lost' disturbed "$C" 8 8 cut_for "$C" a b 3
    check 'a host cut for 3 s: nothing is lost' disturbed "$C" 8 8 cut_for "$C" a2 both 3
    check 'cables unplugged for 3 s: nothing is lost' disturbed "$C" 8 8 cut_for "$C" b1 link 3
    remove "$C"
    check 'a bed with NATs' up "$work/nat" "$N"
    check 'a NAT that silently forgets: nothing is lost' disturbed "$N" 12 25 $bed forget "$N" a
    remove "$N"
    check 'a bed with NATs that refuse what they do not know' up "$work/refusing" "$N"
    check 'a NAT that forgets and refuses: nothing is lost' disturbed "$N" 12 8 $bed forget "$N" a
    remove "$N"
}

# ---- relays that die ----
# a and b meet only at m1 and m2.
cat >"$work/relays" <<END
site l: switch x 10.1.0.0/24 alone
site l: switch y 10.2.0.0/24 alone
host a1 a2 on l/x
host b1 b2 on l/y
host m1 m2 on l/x l/y
END
# A killed process is noticed at once, being cut off within peer_timeout and a second.
lose() { # NAME RANKS SECONDS HOST...: a job in which the processes on these hosts are killed after 2 s
    local name=$1 ranks=$2 job host
    GRIDCOMM_PEER_TIMEOUT=10 gc 60 "$name" "$ranks" --on-failure wait "$tools/survivors" "$3" >"$work/survivors" 2>"$work/why" &
    job=$!
    until_true called "$name" survivors-run "$ranks" || { cat "$work/why"; return 1; }
    sleep 2
    for host in "${@:4}"; do kill -9 "$($bed members "$name" survivors-run | awk -v h="$host" '$2 == h { print $1 }')"; done
    wait $job
    sed 's/^\[[0-9]*\] //' "$work/survivors" >"$work/pairs"
    cat "$work/why" "$work/pairs"
}
lost_text='a peer died or left'        # GC_ERR_PEER
fared() { # A B ok|lost: all ranks of list A with all of B; ok: they went on after the loss
    awk -v left="$1" -v right="$2" -v want="$3" -v text="$lost_text" '
        { how[$1, $2] = $3; later[$1, $2] = $5; line = $0; sub(/^[^ ]+ [^ ]+ [^ ]+ [^ ]+ [^ ]+ /, "", line); why[$1, $2] = line }
        END { n = split(left, l); m = split(right, r)
              for (i = 1; i <= n; i++) for (k = 1; k <= m; k++) {
                  a = l[i]; b = r[k]
                  if (a != b && (how[a, b] != want || (want == "ok" ? later[a, b] < 10 : why[a, b] != text))) {
                      print "pair", a, b, "did not end with", want; bad = 1 } }
              exit bad }' "$work/pairs"
}
one_of_two() { lose "$1" 6 8 m1 && fared '0 1 2 3 5' '0 1 2 3 5' ok && fared '0 1 2 3 5' 4 lost; }
both_of_two() {
    lose "$1" 6 20 m1 m2 && fared '0 1' '0 1' ok && fared '2 3' '2 3' ok && fared '0 1' '2 3 4 5' lost && fared '2 3' '0 1 4 5' lost
}
part_relays() {
    check 'a bed: two groups of hosts that meet at two' up "$work/relays" "$R"
    connects 'two relays' "$R" 6
    check 'a relay is killed: the others go on over the second' one_of_two "$R"
    check 'both relays are killed: who still has a way goes on' both_of_two "$R"
    remove "$R"
}

# ---- relays under load ----
cat >"$work/sixteen" <<END
site a: switch lan 10.1.0.0/24
host a1 a2 a3 a4 on a/lan cluster a/one
host a5 a6 a7 a8 on a/lan cluster a/two
host b1 b2 b3 b4 on a/lan cluster b/one
host b5 b6 b7 b8 on a/lan cluster b/two
END
GROWTH_MAX=1024     # KiB
sparse() { GRIDCOMM_DIRECT=0 GRIDCOMM_LINK_DENSITY=0.14 GRIDCOMM_QUEUE_PACKETS=1 "$@"; }
constant() { # alltoall's arguments: it ends, and no process grows once it is warm
    local watcher grown
    tests/net/growth.py "$P" alltoall-warm 16 >"$work/growth" &
    watcher=$!
    sparse gc 100 "$P" 16 "$tools/alltoall" bytes=1048576 exact=1 "$@" || { kill $watcher; return 1; }
    wait $watcher || return
    read -r grown first samples <"$work/growth"
    echo "grew by $grown KiB from $first, $samples samples"
    [ "$samples" -ge 320 ] && [ "$grown" -le $GROWTH_MAX ]
}
said() { tail -n 1 "$work/out" | sed 's/^/        /'; }
part_load() {
    check 'a bed of sixteen hosts' up "$work/sixteen" "$P"
    check 'sparse, one-packet queues: all-to-all of random sizes' sparse gc 75 "$P" 16 "$tools/alltoall"
    check 'sparse, one-packet queues: 1 MiB per pair in constant memory' constant rounds=8
    said
    check 'the same with one slow receiver' constant rounds=4 slow=5 pause=100
    said
    remove "$P"
}

# One rank takes nothing; others share its relay.
cat >"$work/star" <<END
site l: switch ls 10.1.0.0/24 rate 100mbit alone
site l: switch lc 10.2.0.0/24 rate 100mbit alone
site l: switch lp 10.3.0.0/24 rate 100mbit alone
site l: switch lq 10.4.0.0/24 rate 100mbit alone
host s1 on l/ls
host c1 on l/lc
host p1 on l/lp
host q1 on l/lq
host r1 on l/ls l/lc l/lp l/lq
END
bytes=134217728 seconds=8
[ -z "${GCT_LONG:-}" ] || bytes=1073741824 seconds=60
bystanders() {
    gc $((seconds + 130)) "$M" 5 "$tools/bystander" $bytes $seconds >"$work/bystander" || return
    cat "$work/bystander"
    awk '/before/ { r = $6 / $3; l = $7 / $4; printf "throughput %.3f, latency %.2f of before\n", r, l }
         END { exit !(r >= 0.9 && l <= 2) }' "$work/bystander"
}
part_bystanders() {
    check 'a bed: four hosts round one' up "$work/star" "$M"
    check "one takes nothing for $seconds s: others behind its relay notice nothing" thrice bystanders
    said
    remove "$M"
}

for part in ${PARTS:-nat outgoing versions ssh cuts relays load bystanders}; do "part_$part"; done
close
