#!/bin/bash
# test_bed.sh: the test bed does what its description says, and goes away without a trace; then gridcomm runs on it.
# SPDX-License-Identifier: MIT
#
# time limit: 600 s
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/net/common.sh

# Names of this run, so that others on the machine do not matter.
burst=tests/net/burst.py
A=tb-$$-a B=tb-$$-b U=tb-$$-u W=tb-$$-w S=tb-$$-s N=tb-$$-n
cat >"$work/slow" <<END
site a: switch lan 10.1.0.0/24 fd01::/64 rate 20mbit
site b: switch lan 10.2.0.0/24 fd02::/64
host a1 a2 on a/lan
host b1 b2 on b/lan         # two sites of two hosts
wan a b: latency 10ms
wan b > a: latency 10ms rate 1MB/s queue 64KiB
END
cat >"$work/shared" <<END
site a: switch lan 10.1.0.0/24
site a: uplink rate 1MB/s queue 64KiB
site a: downlink rate 500kB/s queue 64KiB
site b: switch lan 10.2.0.0/24
site c: switch lan 10.3.0.0/24
site c: switch side 10.4.0.0/24 alone
host a1 on a/lan
host b1 on b/lan
host c1 on c/lan c/side
host c2 on c/side
wan * *: latency 1ms
END

cat >"$work/walls" <<END
site a: switch lan 192.168.1.0/24
site a: nat 198.51.100.1
site b: switch lan 192.168.1.0/24 fd0b::/64             # the same private addresses
site b: nat 198.51.100.2 2001:db8:b::1
site p: switch lan 203.0.113.0/24 2001:db8:1::/64
site f: switch lan 198.18.0.0/24
site f: firewall from p in 22,7000-7001 reject
site f: firewall in none
site o: switch lan 198.18.1.0/24
site o: firewall in none out 7000
host a1 a2 on a/lan
host b1 on b/lan
host p1 p2 on p/lan
host f1 on f/lan
host o1 on o/lan
host s1 on p/lan
host s1: sshd
host s1: firewall in 22 out none
site a: map 7100 a1 7000
wan * *: latency 1ms
END
cat >"$work/nics" <<END
site a: switch lan 10.1.0.0/24 fd01::/64
site a: switch two 10.2.0.0/24 fd02::/64
site a: switch bare alone
host n1 n2 n3 on a/lan a/two
host n1: address eth0 10.9.0.1/24 10.9.1.1
host n1: address eth1 fd02::d/64 deprecated fd02::e/64 temporary
host n1: bridge docker0 172.17.0.1/16
host n1: bridge virbr0 192.168.122.1/24 carrier
host n1: default eth1 eth0
host n1: rp_filter strict
host n1: hosts 127.0.1.1 n1 n1.lan
host n1: hosts 10.1.0.2 n2
host n2: default none
host n2: route 10.8.0.0/16 via 10.1.0.254
host n3: down eth1
host o1 o2 on a/bare a/two
host o1: address eth0 10.7.0.1 peer 10.7.0.2
host o2: address eth0 10.7.0.2 peer 10.7.0.1
host o2: address eth1 only 10.2.0.77/24
END
{
    for i in {0..15}; do echo "site a: switch s$i 10.3.$i.0/24 alone"; done
    echo "host k1 on" a/s{0..15}
} >>"$work/nics"
cat >"$work/small" <<END
site a: switch lan 10.1.0.0/24 rate 20mbit buffer 32KiB
site a: switch fast 10.2.0.0/24
site a: switch quick 10.3.0.0/24 rate 1gbit
host a1 on a/lan
host f1 on a/fast
host q1 on a/quick
END

burst() { # NAME FROM TO ADDRESS COUNT BYTES [RATE]: what arrives, "datagrams bytes seconds"
    : >"$work/count"           # the last one's "ready" is not this one's
    run "$1" "$3" python3 $burst count 7000 >"$work/count" &
    local counter=$!
    until_true grep -q ready "$work/count" && run "$1" "$2" python3 $burst send "$4" 7000 "${@:5}"
    wait $counter
    tail -n 1 "$work/count"
}
half_round_trip() { # NAME FROM TO ADDRESS: us; how long a process takes to wake is none of the bed's
    run "$1" "$3" "$tools/peer_tcp" serve 7001 &
    run "$1" "$2" "$tools/peer_tcp" pingpong "$4" 7001 poll 1 0
    wait $!
}

# ---- the description ----
refuses() { # lines, the last of which is wrong; what the message must have
    printf 'site a: switch lan 10.1.0.0/24\n%s\n' "$1" >"$work/bad"
    $bed up "$work/bad" --name tb-$$-bad 2>&1 | tee "$work/why"
    grep -q "bad:$(wc -l <"$work/bad"): .*$2" "$work/why" && [ ! -e /run/gridcomm-bed/tb-$$-bad ]
}
check 'an unknown statement is refused with its line' refuses 'hots a1 on a/lan' hots
check 'an unknown switch is refused' refuses 'host a1 on a/wlan' 'a/wlan'
check 'an unknown site is refused' refuses 'wan a b: latency 1ms' SITE
check 'a number without a unit is refused' refuses 'wan a a: latency 10' "'10'"
check 'a name too long for an interface is refused' refuses 'host abcdefghijkl on a/lan' abcdefghijkl
check 'a firewall against an unknown site is refused' refuses 'site a: firewall from b in none' 'b: no such site'
check 'ports that are none are refused' refuses 'site a: firewall in 22,x' '22,x'
check 'a buffer without a rate is refused' refuses 'site b: switch lan 10.2.0.0/24 buffer 64KiB' rate
check 'a full switch is refused' refuses 'site b: switch lan 10.2.0.0/31' room
check 'a switch with a router but without a prefix is refused' refuses 'site b: switch lan' prefix
check 'a NIC that is not there is refused' refuses $'host a1 on a/lan\nhost a1: down eth1' eth1
check 'an address that is none is refused' refuses $'host a1 on a/lan\nhost a1: address eth0 10.1.0.300/24' 10.1.0.300
check 'a mapped port without NAT is refused' refuses $'host a1 on a/lan\nsite a: map 7100 a1 7000' NAT

# ---- hosts and links ----
ip netns list >"$work/netns"; ip -o link | cut -d: -f2 >"$work/links"
begin=$(date +%s%N)
check 'a bed of two sites stands' up "$work/slow" "$A"
echo "        it took $((($(date +%s%N) - begin) / 1000000)) ms"
check 'a bed with the same names and addresses beside it' up "$work/slow" "$B"
check 'a name is taken only once' eval "! $bed up $work/slow --name $A"
check 'a host has its own name' eval "[ \$($bed run $A b2 uname -n) = b2 ]"
check 'nothing appears in the namespace of the machine' eval 'ip netns list | cmp - $work/netns && ip -o link | cut -d: -f2 | cmp - $work/links'

# With every core busy, at the lowest priority there is: nor is how long an idle core takes.
awake() {
    local core spinners=() status
    for core in $(seq 0 $(($(nproc) - 1))); do
        taskset -c "$core" chrt -i 0 sh -c 'while :; do :; done' & spinners+=($!)
    done
    "$@"
    status=$?
    kill "${spinners[@]}"
    wait "${spinners[@]}" 2>/dev/null
    return $status
}
accurate() { # ADDRESS; 53 bytes take 53 us at 1 MB/s, one way of two
    $bed reset "$A"
    near 'half a round trip, us' "$(awake half_round_trip "$A" a1 b1 "$1")" 10027 300 && $bed late "$A"
}
check 'latency within 0.3 ms, IPv4' thrice accurate 10.2.0.1
check 'latency within 0.3 ms, IPv6' thrice accurate fd02::1
within_site() { near us "$(half_round_trip "$A" a1 a2 10.1.0.2)" 0 1000; }
check 'within a site there is no wide-area latency' within_site

bandwidth() {
    read -r n bytes seconds <<<"$(burst "$A" b1 a1 10.1.0.1 2000 1472 1500000)"
    near 'wide-area byte/s' "$(awk "BEGIN { print ($n - 1) * 1500 / $seconds }")" 1000000 30000
}
check 'wide-area bandwidth within 3 %' thrice bandwidth
tail_drop() { # 43 packets of 1,500 bytes fit; what is sent meanwhile makes room for a few more
    $bed reset "$A"
    read -r n bytes seconds <<<"$(burst "$A" b2 a2 10.1.0.2 200 1472)"
    near datagrams "$n" 46 3 && near drops "$(wan_count "$A" b a drops)" $((200 - n)) 0
}
check 'the queue takes 64 KiB and drops the rest' thrice tail_drop
nic_rate() { # 1,472 bytes are 1,514 on the wire; the sender waits for its NIC
    read -r n bytes seconds <<<"$(burst "$A" a1 a2 10.1.0.2 3000 1472)"
    near 'NIC byte/s' "$(awk "BEGIN { print ($n - 1) * 1514 / $seconds }")" 2500000 75000
}
check 'the rate of a NIC within 3 %' thrice nic_rate

counts() {
    $bed reset "$A"; $bed reset "$B"
    local sent received other
    sent=$(nic_count "$A" a1 sent) received=$(nic_count "$A" b1 received) other=$(nic_count "$B" b1 received)
    read -r n bytes seconds <<<"$(burst "$A" a1 b1 10.2.0.1 1000 1000 5000000)"
    near arrived "$n" 1000 0 && near 'wan bytes' "$(wan_count "$A" a b bytes)" 1028000 0 &&
        near 'wan packets' "$(wan_count "$A" a b packets)" 1000 0 &&
        near 'sent by the NIC' $(($(nic_count "$A" a1 sent) - sent)) 1042500 500 &&
        near 'received by the NIC' $(($(nic_count "$A" b1 received) - received)) 1042500 500 &&
        near 'the other bed' $(($(nic_count "$B" b1 received) - other)) 0 500
}
check 'bytes are counted at NICs and wide-area links' counts
fast() { # 64 starts on hosts, as a launcher does them
    local start=$EPOCHREALTIME
    for i in $(seq 64); do "$tools/enter" --agent "/run/gridcomm-bed/$A" a1 true & done
    wait
    near seconds "$(awk "BEGIN { print $EPOCHREALTIME - $start }")" 0 $((${#SAN} > 0 ? 5 : 1))     # sanitizers start slowly
}
check '64 commands on hosts start within a second' thrice fast

uplink() { # two flows share what is one transmitter
    local n m _ seconds longer
    run "$U" c1 python3 $burst count 7000 >"$work/c" &
    until_true grep -q ready "$work/c" && read -r n bytes seconds <<<"$(burst "$U" a1 b1 10.2.0.1,10.3.0.1 2000 1472 1500000)"
    wait
    read -r m _ longer <<<"$(tail -n 1 "$work/c")"
    near 'both together, byte/s' "$(awk "BEGIN { print ($n + $m - 2) * 1500 / ($seconds + $longer) * 2 }")" 1000000 30000
}
downlink() { # two flows share it, and what it cannot take is dropped and counted
    local n bytes seconds
    $bed reset "$U"
    (until_true grep -q ready "$work/count" && run "$U" c1 python3 $burst send 10.1.0.1 7000 600 1472 500000) >"$work/c" &
    read -r n bytes seconds <<<"$(burst "$U" b1 a1 10.1.0.1 600 1472 500000)"
    wait
    near 'byte/s' "$(awk "BEGIN { print ($n - 1) * 1500 / $seconds }")" 500000 15000 &&
        near drops $(($(wan_count "$U" b a drops) + $(wan_count "$U" c a drops))) $((1200 - n)) 0
}
check 'a bed of three sites' up "$work/shared" "$U"
check 'an uplink is shared, within 3 %' thrice uplink
check 'a downlink is shared, within 3 %' thrice downlink
alone() { near us "$(half_round_trip "$U" c1 c2 10.4.0.2)" 0 1000 && ! run "$U" c2 "$tools/peer_tcp" pingpong 10.2.0.1 7001 sleep 1 0; }
check 'a switch without router connects its hosts, and no others' alone
check 'it is removed' $bed down "$U"

small_buffer() { # 21 frames of 1,514 bytes fit, and 13 go at once (the bucket of 20 KiB); what is sent meanwhile makes room
    read -r n bytes seconds <<<"$(burst "$S" f1 a1 10.1.0.1 200 1472)"
    near datagrams "$n" 37 4
}
check 'a bed with a small buffer' up "$work/small" "$S"
check 'a port of a switch holds its buffer and drops the rest' thrice small_buffer
late_timer() { # a train of 16 KiB, and what flows at 1 Gbit/s in 160 us
    local bucket
    bucket=$(run "$S" q1 tc qdisc show dev eth0 | grep -o 'burst [0-9]*b' | tr -dc 0-9)
    [ "${bucket:-0}" -ge 36384 ] || { echo "a bucket of '$bucket' bytes, wanted at least 36384"; return 1; }
}
check 'a NIC loses nothing of its rate while a timer is late' late_timer
check 'it is removed too' $bed down "$S"

# ---- NAT, firewalls, ssh, cuts ----
check 'a bed of NATs and firewalls' up "$work/walls" "$W"
serve() { # HOST PORT...: disowned, or the shell would tell of its end
    timeout 300 $bed run "$W" "$1" python3 tests/net/reach.py serve "${@:2}" >"$work/serve.$1" 2>&1 &
    disown
}
for host in a1 p1 f1 o1; do serve $host 22 7000 7002; done
serve s1 7000
all_serve() { for host in a1 p1 f1 o1 s1; do until_true grep -q ready "$work/serve.$host" || return; done; }
check 'servers on it' all_serve
seen() { # FROM ADDRESS PORT, what the other end answers; after a cut the kernel may still look for the neighbour for a second
    local answer tries=3
    while
        answer=$(run "$W" "$1" python3 tests/net/reach.py ask "$2" "$3")
        [ "$answer" = silent ] && [ "$4" != silent ] && [ $((--tries)) -gt 0 ]
    do :; done
    [ "$answer" = "$4" ] || { echo "$1 to $2 port $3: '$answer', wanted '$4'"; return 1; }
}
natted() {
    seen a1 203.0.113.1 7000 198.51.100.1 && seen b1 203.0.113.1 7000 198.51.100.2 && seen b1 2001:db8:1::1 7000 2001:db8:b::1
}
private_inside() { seen a2 192.168.1.1 7000 192.168.1.2 && seen b1 192.168.1.1 7002 refused; }
private_outside() { seen p1 192.168.1.1 7000 silent && seen p1 198.51.100.1 7000 silent && seen p1 2001:db8:b::1 7000 silent; }
walled() {
    seen f1 203.0.113.1 7002 198.18.0.1 && seen p1 198.18.0.1 7000 203.0.113.1 && seen p1 198.18.0.1 7002 refused &&
        seen a1 198.18.0.1 7000 silent
}
only_out() { seen o1 203.0.113.1 7000 198.18.1.1 && seen o1 203.0.113.1 7002 silent && seen p1 198.18.1.1 7000 silent; }
check 'NAT: the outside sees the router' natted
check 'NAT: equal private addresses stay inside' private_inside
check 'NAT: nothing comes in' private_outside
check 'firewall: one site is let in to some ports, and refused at others' walled
check 'firewall: nothing comes in, and out goes only one port' only_out
check 'NAT: a mapped port leads to its host' seen p1 198.51.100.1 7100 203.0.113.1

log_in() { run "$W" "$1" ssh -F "/run/gridcomm-bed/$W/ssh_config" -o BatchMode=yes "${@:2}" </dev/null; }
by_ssh_alone() {
    seen p1 203.0.113.3 7000 silent && seen s1 203.0.113.1 7000 silent && seen s1 203.0.113.3 7000 203.0.113.3 &&
        [ "$(log_in p1 -W 127.0.0.1:7000 nobody@203.0.113.3)" = 127.0.0.1 ] &&
        [ "$(log_in a1 -W 203.0.113.3:7000 nobody@s1)" = 203.0.113.3 ]
}
no_shell() { ! log_in p1 nobody@s1 true 2>"$work/why" && ! log_in p1 root@s1 true 2>>"$work/why" && grep -q denied "$work/why"; }
check 'a host is reached by ssh alone' by_ssh_alone
check 'ssh: no shell, no other user' no_shell

cut_sites() { # a loses p, b does not
    $bed cut "$W" a p && seen a1 203.0.113.1 7000 silent && seen b1 203.0.113.1 7000 198.51.100.2 &&
        seen a2 192.168.1.1 7000 192.168.1.2 && $bed mend "$W" a p && seen a1 203.0.113.1 7000 198.51.100.1
}
cut_one_way() { # what p sends to f arrives, no answer
    local before after
    $bed cut "$W" f to p && before=$(nic_count "$W" f1 received) && seen p1 198.18.0.1 7000 silent &&
        after=$(nic_count "$W" f1 received) && $bed mend "$W" f to p && seen p1 198.18.0.1 7000 203.0.113.1 && [ $((after - before)) -gt 60 ]
}
cut_host() { # HOW
    $bed cut "$W" p1 "$1" && seen a1 203.0.113.1 7000 silent && seen p2 203.0.113.1 7000 silent &&
        seen p1 203.0.113.1 7000 203.0.113.1 && seen p1 203.0.113.2 7002 silent && $bed mend "$W" p1 "$1" && seen a1 203.0.113.1 7000 198.51.100.1 &&
        seen b1 2001:db8:1::1 7000 2001:db8:b::1
}
cut_hosts() {
    $bed cut "$W" p1 p2 && seen p2 203.0.113.1 7000 silent && seen a1 203.0.113.1 7000 198.51.100.1 && $bed mend "$W" p1 p2 &&
        seen p2 203.0.113.1 7000 203.0.113.2
}
kept() { # what is done meanwhile, how the connection fares
    run "$W" a1 python3 tests/net/reach.py keep 203.0.113.1 7000 "$work/kept" >"$work/fares" &
    until_true test -e "$work/kept" && $1 && rm "$work/kept" && wait $! && grep -qx "$2" "$work/fares" && return
    cat "$work/fares"
    return 1
}
cut_and_mend() { $bed cut "$W" a p && $bed mend "$W" a p; }
forget() { $bed forget "$W" a; }
refusing() { # the same with a NAT that refuses what it does not know: one that is rebooted
    sed 's/nat 198.51.100.1/& reject/' "$work/walls" >"$work/refusing"
    $bed down "$W" && up "$work/refusing" "$W" || return
    serve p1 7000
    until_true grep -q ready "$work/serve.p1" && kept forget refused && seen p1 198.51.100.1 7000 refused
}
check 'two sites are cut and mended, others are not' cut_sites
check 'one direction is cut and mended' cut_one_way
for how in both in out link; do check "a host is cut and mended: $how" cut_host $how; done
check 'two hosts are cut and mended, others are not' cut_hosts
check 'a connection lives through a short cut' kept cut_and_mend alive
check 'a NAT that forgets its connections ends them' kept forget silent
check 'new connections pass it' seen a1 203.0.113.1 7000 198.51.100.1
check 'what was never cut cannot be mended' eval "! $bed mend $W a p"
servers() { [ "$($bed members "$W" python3 | cut -d' ' -f2 | sort | tr '\n' ' ')" = 'a1 f1 o1 p1 s1 ' ]; }
check 'processes are found by name' servers
check 'one that refuses what it does not know says so' refusing
check 'the bed of NATs and firewalls is removed' $bed down "$W"
removed() { ! pgrep -f "gridcomm-bed/$W/" && [ ! -e "/run/gridcomm-bed/$W" ] && ! grep "gridcomm-bed/$W/" /proc/mounts; }
check 'and its sshd too' removed

# ---- many NICs and addresses ----
cksum /etc/hosts >"$work/machine-hosts"
check 'a bed of many NICs and addresses' up "$work/nics" "$N"
has() { # HOST, pattern, command...: a line of what it says there
    run "$N" "$1" "${@:3}" >"$work/said"
    grep -E -e "$2" "$work/said" || { echo "no line with '$2' in:"; cat "$work/said"; return 1; }
}
further() {
    has n1 ' 10.1.0.1/24 ' ip -o addr show dev eth0 && has n1 ' 10.9.0.1/24 ' ip -o addr show dev eth0 &&
        has n1 ' 10.9.1.1/32 ' ip -o addr show dev eth0 && has n1 'fd02::d/64.* deprecated' ip -o addr show dev eth1 &&
        has n1 'fd02::.* temporary' ip -o addr show dev eth1 && has n1 ' fd02::e/64 ' ip -o addr show dev eth1
}
instead() { has o2 ' 10.2.0.77/24 ' ip -o addr show dev eth1 && ! has o2 ' (10.2.0.5|fd02::5)/' ip -o addr show dev eth1; }
bridges() {
    has n1 ' 172.17.0.1/16 ' ip -o addr show dev docker0 && ! has n1 LOWER_UP ip -o link show docker0 &&
        has n1 UP,LOWER_UP ip -o link show virbr0 && $bed bytes "$N" | grep -q '^nic n1 docker0 '
}
defaults() {
    has n1 'default via 10.2.0.254 dev eth1 .*metric 100' ip route &&
        has n1 'default via 10.1.0.254 dev eth0 .*metric 101' ip route &&
        has n1 'default via fd02::fffe dev eth1 metric 100 ' ip -6 route && ! has n2 default ip route &&
        has n2 '10.8.0.0/16 via 10.1.0.254 ' ip route && has o1 'default via 10.2.0.254 dev eth1' ip route
}
names() {
    has n1 '^127.0.1.1 ' getent hosts n1.lan && has n1 '^10.1.0.2 ' getent hosts n2 && ! has n2 n1.lan cat /etc/hosts &&
        cksum /etc/hosts | cmp - "$work/machine-hosts"
}
sixteen() { for i in {0..15}; do has k1 " 10.3.$i.1/24 " ip -o addr show dev "eth$i" || return; done; }
at() { # the same with the servers of this bed
    local W=$N
    "$@"
}
cut_nic() { # HOW
    $bed cut "$N" n1/eth0 "$1" && at seen n2 10.1.0.1 7000 silent && at seen n2 10.2.0.1 7000 10.2.0.2 &&
        $bed mend "$N" n1/eth0 "$1" && at seen n2 10.1.0.1 7000 10.1.0.2
}
carrier() { # what n1 notices of its own cable
    $bed cut "$N" n1/eth0 link && ! has n1 LOWER_UP ip -o link show eth0 && has n1 LOWER_UP ip -o link show eth1 &&
        $bed mend "$N" n1/eth0 link && has n1 LOWER_UP ip -o link show eth0
}
recorded() {
    $bed record "$N" && at seen n2 10.1.0.1 7000 10.1.0.2 && at seen n2 fd02::1 7002 refused &&
        at seen n2 127.0.0.1 7002 refused &&
        [ "$($bed syns "$N" n2 | sort | paste -sd,)" = 'n2 eth0 10.1.0.1 7000,n2 eth1 fd02::1 7002,n2 lo 127.0.0.1 7002' ] &&
        [ -z "$($bed syns "$N" n1)" ] && $bed record "$N" n2 && [ -z "$($bed syns "$N")" ]
}
check 'further addresses, deprecated and temporary ones' further
check 'addresses instead of those of the switch' instead
check 'bridges, with and without carrier' bridges
check 'default routes and others' defaults
check 'a NIC that is down' has n3 'state DOWN' ip -o link show eth1
check 'a host drops what comes by the wrong NIC' has n1 '^1$' cat /proc/sys/net/ipv4/conf/all/rp_filter
check "a host's own /etc/hosts" names
check 'a switch without a prefix: fe80:: alone' has o1 'inet6 fe80::' ip -o addr show dev eth0
check 'sixteen NICs' sixteen
for host in n1 o1; do at serve $host 7000; done
check 'servers on it' eval 'until_true grep -q ready "$work/serve.n1" && until_true grep -q ready "$work/serve.o1"'
check 'point to point' at seen o2 10.7.0.1 7000 10.7.0.2
for how in both in out link; do check "one NIC is cut and mended: $how" cut_nic $how; done
check 'a host notices that its cable is unplugged' carrier
check 'SYNs are recorded' recorded
remove_nics() { $bed down "$N" && [ ! -e "/run/gridcomm-bed/$N" ] && ! grep "gridcomm-bed/$N/" /proc/mounts; }
check 'it is removed without a trace' remove_nics

# ---- removal ----
in_bed() { # what must be gone: processes that were inside, wan
    run "$1" a1 sleep 600 &
    until_true test -n "$(cat /run/gridcomm-bed/"$1"/wan.pid)"
    wan=$(cut -d' ' -f1 /run/gridcomm-bed/"$1"/wan.pid)
    supervisor=$(cut -d' ' -f1 /run/gridcomm-bed/"$1"/supervisor)
    namespace=$(stat -c %i /run/gridcomm-bed/"$1"/a1.net)
    until_true pids_inside
    inside=$(pids_inside)
}
pids_inside() { find /proc -maxdepth 3 -path '/proc/[0-9]*/ns/net' -lname "net:\[$namespace\]" 2>/dev/null | cut -d/ -f3 | grep .; }
ended() { [ ! -d "/proc/$1" ] || grep -q '^State:.Z' "/proc/$1/status"; }
traceless() { # NAME
    [ ! -e "/run/gridcomm-bed/$1" ] || { echo 'the directory is there'; return 1; }
    ! grep "gridcomm-bed/$1/" /proc/mounts || return 1
    for p in $inside $wan $supervisor; do until_true ended "$p" || return 1; done
    ip netns list | cmp - "$work/netns" && ip -o link | cut -d: -f2 | cmp - "$work/links"
}
gone() { [ ! -e "/run/gridcomm-bed/$1" ]; }

plain_down() { in_bed "$B"; $bed down "$B" && traceless "$B"; }
check 'down removes all, also what runs on a host' plain_down
check 'the other bed still works' eval "[ \$($bed run $A a1 uname -n) = a1 ] && $bed bytes $A"
supervisor_killed() {
    up "$work/slow" "$B" && in_bed "$B" && kill -9 "$supervisor" && until_true ended "$wan" && $bed sweep && traceless "$B"
}
check 'killed supervisor: wan ends, and a sweep removes the rest' supervisor_killed
owner_killed() {
    sleep 600 &
    local owner=$!
    beds+=("$B")
    $bed up "$work/slow" --name "$B" --owner $owner && in_bed "$B" && kill -9 $owner && until_true gone "$B" && traceless "$B"
}
check 'killed owner: the supervisor removes the bed' owner_killed
wan_killed() { up "$work/slow" "$B" && in_bed "$B" && kill -9 "$wan" && $bed down "$B" && traceless "$B"; }
check 'killed wan: down works' wan_killed
with_killed() {
    $bed with "$work/slow" -- sh -c "echo \$BED > $work/name; exec sleep 600" &
    local owner=$!
    until_true test -s "$work/name" && in_bed "$(cat "$work/name")" && kill -9 $owner &&
        until_true gone "$(cat "$work/name")" && traceless "$(cat "$work/name")"
}
check 'killed "with": the bed is removed' with_killed
with_status() { $bed with "$work/slow" -- sh -c 'exit 7'; [ $? = 7 ] && ! $bed list | grep '^slow-'; }
check '"with" removes the bed and has the status of the command' with_status
check 'sweeping left the living bed alone' eval "$bed list | grep -qx $A && [ \$($bed run $A a1 uname -n) = a1 ]"

# ---- gridcomm on it ----
if [ -x "$BED_BUILD/gcrun" ] && [ -x "$BED_BUILD/examples/ring" ] && [ -x "$BED_BUILD/examples/bcast_file" ]; then
    head -c 1000003 /dev/urandom >"$work/in"
    broadcast() {
        timeout 60 $bed gcrun "$A" -n 8 "$BED_BUILD/examples/bcast_file" "$work/in" "$work/copy.%r" || return
        for i in 0 1 2 3 4 5 6 7; do cmp "$work/in" "$work/copy.$i" || return; done
    }
    collectives() { timeout 60 $bed gcrun "$A" -n 8 "$tools/all_collectives"; }
    some() { [ "$(timeout 60 $bed gcrun "$A" --on b1,a2 -n 2 uname -n | sort | paste -sd,)" = '[0] b1,[1] a2' ]; }
    check 'gcrun on some of the hosts' some
    check 'ring over 2 sites of 2 hosts' timeout 60 $bed gcrun "$A" -n 8 "$BED_BUILD/examples/ring"
    check 'bcast_file over 2 sites of 2 hosts' broadcast
    check 'all collectives over 2 sites of 2 hosts' collectives
    nobody_left() {
        for host in a1 a2 b1 b2; do
            namespace=$(stat -c %i "/run/gridcomm-bed/$A/$host.net")
            ! pids_inside || return 1
        done
    }
    check 'no process is left on the hosts' nobody_left
else
    skip 'gridcomm on the bed' "gcrun and the examples are not in $BED_BUILD"
fi
close
