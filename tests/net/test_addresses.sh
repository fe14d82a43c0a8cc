#!/bin/bash
# test_addresses.sh: on hosts with many and misleading addresses gridcomm connects by itself, over the NICs that it should use
# and no others, stripes over them, and says why where it cannot. No option is set but where a test is about one.
# SPDX-License-Identifier: MIT
#
# The set-ups are those of Peiselt 2007, chapters 2.4.3 to 4, and what users meet today. The hosts' own counters say which NICs
# carried a job, and a recorder on every host where its SYNs went. PARTS="paper today" runs those parts only.
# time limit: 600 s
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/net/common.sh
ring=$BED_BUILD/examples/ring striping=$tools/striping
unset "${!GRIDCOMM_@}"

for program in "$BED_BUILD/gcrun" "$ring" "$striping" "$tools/survivors"; do
    [ -x "$program" ] || { skip 'addresses on the test bed' "$program is not built"; close; }
done

W=                          # the bed at hand
USED=100000 IDLE=10000      # bytes: a NIC that carries a job has at least so many, one that does not has at most so many
SOME='5 300000' MUCH='8 4000000' # rounds and bytes of a ring: of whole messages, and of such that are worth striping

gc() { # SECONDS, HOST,HOST..., RANKS PROGRAM...: a job over these hosts, in order
    timeout -k 5 "$1" $bed gcrun "$W" --on "$2" -n "${@:3}"
}
called() { # what, how many processes: are there so many?
    [ "$($bed members "$W" "$1" | wc -l)" -ge "$2" ]
}
world() { # name, what
    W=ta-$$-$1
    check "a bed: $2" up "$work/$1" "$W"
}
remove() { check 'it is removed' $bed down "$W"; }

# ---- a set-up: hosts, the NICs that must carry the job, the addresses that nobody may ask for ----
rings() { # HOST,HOST..., ring's arguments: one rank on each host
    local hosts ranks
    read -ra hosts <<<"${1//,/ }"
    ranks=${#hosts[@]}
    # shellcheck disable=SC2086  # two words
    $bed record "$W" "${hosts[@]}" && $bed bytes "$W" >"$work/before" && gc 40 "$1" "$ranks" "$ring" $2 &&
        $bed bytes "$W" >"$work/after"
}
carried() { # HOST,HOST..., NICs ("eth0", or "a1/eth0" of that host alone): these and no others
    awk -v hosts=",$1," -v used=" $2 " -v most=$IDLE -v least=$USED '
        $1 != "nic" || !index(hosts, "," $2 ",") { next }
        { nic = $2 "/" $3; bytes = $5 + $7 }
        FNR == NR { before[nic] = bytes; next }
        { bytes -= before[nic]; n++; want = index(used, " " $3 " ") || index(used, " " nic " "); line = nic ": " bytes " bytes"
          wrong = want ? bytes < least : bytes > most
          bad += wrong; print line (!wrong ? "" : want ? ", too few" : ", though idle") }
        END { exit bad || !n }' "$work/before" "$work/after"
}
asked() { # HOST,HOST...: where their SYNs went
    local host
    for host in ${1//,/ }; do $bed syns "$W" "$host" || return; done
}
unasked() { # HOST,HOST..., pattern of "host NIC address" that must not be there, or after "!" of all that may; none asks itself
    asked "$1" >"$work/asked" || return
    awk -v pattern="${2#!}" -v others="${2%"${2#!}"}" '
        { n++; itself = $2 == "lo" && $3 !~ /^127\.0\.0\.1$|^::1$/; fits = $1 " " $2 " " $3 ~ pattern }
        $2 == "lo" && !itself { next }                     # the way to rank 0 through gcrun
        itself || fits == (others == "") { print; bad = 1 }
        END { if (!n) print "no SYN at all"; exit bad || !n }' "$work/asked"
}
setup() { # what, HOST,HOST..., ring's arguments, NICs or "", forbidden addresses or ""
    check "$1: ring" rings "$2" "$3"
    [ -z "$4" ] || check "$1: $4, and no other NIC" carried "$2" "$4"
    [ -z "$5" ] || check "$1: no SYN to a forbidden address" unasked "$2" "$5"
}

# ---- what the paper has ----
# Where several NICs are to be used they are as fast as real ones: without a rate the first takes all, since it is never full.
cat >"$work/paper" <<END
site p: switch four 192.168.1.0/24 alone
site p: switch six 2001:db8:1::/64 alone
site p: switch dual 192.168.2.0/24 2001:db8:2::/64 alone
site p: switch n17 192.168.17.0/24 rate 1gbit alone
site p: switch n18 192.168.18.0/24 rate 1gbit alone
host f1 f2 f3 on p/four
host s1 s2 s3 on p/six
host d1 d2 d3 on p/dual
host n1 n2 on p/n17 p/n18
site r: switch x 10.1.0.0/24            # private networks with a router between them
site r: switch y 10.2.0.0/24
host x1 x2 x3 on r/x
host y1 y2 y3 on r/y
host x3: default none
host x3: route 10.2.0.0/24 via 10.1.0.254
host y3: default none
host y3: route 10.1.0.0/24 via 10.2.0.254
site u: switch i 2001:db8:a::/64        # Fig. 2.1: two clusters of one private network, and IPv6
site u: switch k 2001:db8:b::/64
host i1 i2 i3 on u/i
host k1 k2 k3 on u/k
host i1 k1: address eth0 192.168.9.1/24
host i2 k2: address eth0 192.168.9.2/24
host i3: address eth0 192.168.7.1/24    # 4.2.2: two private networks, and nothing between them
host k3: address eth0 192.168.8.1/24
site m: switch m0 2001:db8:c::/64 rate 1gbit       # Fig. 3.1: each cluster has two private networks, all have IPv6
site m: switch m1 10.4.0.0/24 rate 1gbit alone
site m: switch w0 2001:db8:d::/64
site m: switch w1 10.6.0.0/24 alone
host m1 m2 on m/m0 m/m1
host w1 w2 on m/w0 m/w1
host m1: address eth0 10.3.0.1/24
host m2: address eth0 10.3.0.2/24
host w1: address eth0 10.5.0.1/24
host w2: address eth0 10.5.0.2/24
site t: switch t1 193.175.13.0/24 2001:906:638:aa01::/64 rate 1gbit        # the table of 2.4.3
site t: switch t2 2001:906:638:bb01::/64 rate 1gbit
site t: switch t3 193.175.14.0/24 rate 1gbit
site t: switch t4 193.175.15.0/24 2001:906:638:bb02::/64 rate 1gbit
host ta on t/t1 t/t2
host tb on t/t3 t/t4
host ta tb: default eth0 eth1
END
part_paper() {
    world paper 'the set-ups of the paper'
    setup 'private IPv4' f1,f2,f3 "$SOME" eth0 ''
    setup 'IPv6 only' s1,s2,s3 "$SOME" eth0 ''
    setup 'dual stack' d1,d2,d3 "$SOME" eth0 ''
    setup 'private networks, routed by default' x1,x2,y1,y2 "$SOME" eth0 ''
    setup 'private networks with routes of their own' x3,y3 "$SOME" eth0 ''
    setup 'one private network twice, and IPv6' i1,i2,k1,k2 "$SOME" eth0 ' 192\.168\.9\.'
    setup 'unrouted private networks, and IPv6' i3,k3 "$SOME" eth0 ' 192\.168\.'
    setup 'two private networks each, one cluster' m1,m2 "$MUCH" 'eth0 eth1' ''
    setup 'two private networks each, across' m1,w1 "$MUCH" eth0 ' 10\.'
    setup 'two NICs' n1,n2 "$MUCH" 'eth0 eth1' ''
    setup 'the table of 2.4.3' ta,tb "$MUCH" 'eth0 eth1' ''
    check 'two jobs on the same hosts at once' two_jobs
    check 'a dead NIC at the start costs less than a second' dead_candidate
    remove
}
two_jobs() {
    local first
    # shellcheck disable=SC2086  # two words
    gc 40 n1,n2 4 "$ring" 50 300000 >"$work/first" &
    first=$!
    gc 40 n1,n2 4 "$ring" 50 300000 && wait $first
}
seconds_of() { # command...
    local start=$EPOCHREALTIME
    "$@" >&2 && awk "BEGIN { print $EPOCHREALTIME - $start }"
}
dead_candidate() { # neither end notices
    local well dead
    well=$(seconds_of gc 40 n1,n2 2 "$ring") && $bed cut "$W" n2/eth0 both || return
    dead=$(seconds_of gc 40 n1,n2 2 "$ring")
    $bed mend "$W" n2/eth0 both && near 'seconds more' "$(awk "BEGIN { print $dead - $well }")" 0 1
}

# ---- what users meet ----
{
    cat <<END
site e: switch lan 10.7.0.0/24 alone
site e: switch bare alone
host e1 e2 e3 g1 g2 g3 on e/lan
host e1 e2 e3: bridge docker0 172.17.0.1/16             # nobody is on it
host e1 e2 e3: bridge virbr0 192.168.122.1/24
host g1 g2 g3: bridge docker0 172.17.0.1/16 carrier
host g1 g2 g3: bridge virbr0 192.168.122.1/24 carrier
site e: switch da 10.20.0.0/24 rate 1gbit alone
site e: switch db 10.21.0.0/24 rate 1gbit alone
host o1 o2 r1 r2 on e/da e/db
host o1: down eth1
host r1 r2: rp_filter strict
site e: switch many 10.22.0.0/24 alone
host v1 v2 v3 on e/many
host v1 v2 v3: address eth0 192.168.50.1/24 192.168.51.1/32
host v1: address eth0 10.23.0.1/24 10.24.0.1/32
host v2: address eth0 10.23.0.2/24 10.24.0.2/32
host v3: address eth0 10.23.0.3/24 10.24.0.3/32
host w1 w2 w3 on e/bare e/lan                           # their first NIC has one address on all of them
host w1 w2 w3: address eth0 192.168.60.1/24
site e: switch twice 10.25.0.0/24 alone
host b1 b2 b3 b4 on e/twice e/twice
host b3 b4: rp_filter strict
host j1 j2 j3 on e/bare                                 # they have but fe80::
host q1 q2 on e/bare
host q1: address eth0 10.8.0.1 peer 10.8.0.2
host q2: address eth0 10.8.0.2 peer 10.8.0.1
site e: switch privacy 2001:db8:5::/64 alone
host h1 h2 on e/privacy
host h1: address eth0 2001:db8:5::d1/64 deprecated
host h2: address eth0 2001:db8:5::d2/64 deprecated
host h1: address eth0 2001:db8:5::e1/64 temporary
host h2: address eth0 2001:db8:5::e2/64 temporary
site z: switch z1 198.51.100.0/25
site z: switch z2 198.51.100.128/25
site z: switch z3 203.0.113.0/25
site z: switch z4 203.0.113.128/25
host c1 on z/z1 z/z2                                    # two public NICs, one default route
host c2 on z/z3 z/z4
site z: switch cloud 10.26.0.0/24
host l1 l2 l3 on z/cloud
host l1: address eth0 only 10.26.0.1/32
host l2: address eth0 only 10.26.0.2/32
host l3: address eth0 only 10.26.0.3/32
site e: switch named 10.27.0.0/24 alone
host y1 y2 on e/named
host y1: hosts 127.0.1.1 y1                             # as Debian has it
host y2: hosts 127.0.1.1 y2
host y2: hosts 10.27.0.1 y1
site e: switch walled 10.28.0.0/24 alone
host u1 u2 on e/walled
host u1 u2: firewall in 7000-7001
END
    for i in {0..15}; do echo "site k: switch s$i 10.30.$i.0/24 fd30:$i::/64 rate 50mbit alone"; done
    echo "host k1 k2 on" k/s{0..15}
} >"$work/today"
sixteen() { printf '%s\n' eth{0..15} | paste -sd' '; }
by_hand() { # HOST HOST ROOT: without gcrun, which tells everybody all addresses of rank 0's host
    local first
    $bed record "$W" "$1" "$2" && $bed bytes "$W" >"$work/before" || return
    # shellcheck disable=SC2086  # two words
    run "$W" "$1" env GRIDCOMM_RANK=0 GRIDCOMM_SIZE=2 "GRIDCOMM_ROOT=$3" GRIDCOMM_KEY=k "$ring" $SOME &
    first=$!
    # shellcheck disable=SC2086
    run "$W" "$2" env GRIDCOMM_RANK=1 GRIDCOMM_SIZE=2 "GRIDCOMM_ROOT=$3" GRIDCOMM_KEY=k "$ring" $SOME
    wait $first && $bed bytes "$W" >"$work/after"
}
hand_made() { # what, HOST HOST ROOT, NICs, forbidden addresses
    check "$1: ring" by_hand "${@:2:3}"
    check "$1: $5, and no other NIC" carried "$2,$3" "$5"
    check "$1: no SYN to a forbidden address" unasked "$2,$3" "$6"
}
interface_missing() { # an error that names the host
    ! GRIDCOMM_IF=eth7 gc 20 r1,r2 2 "$ring" 2>"$work/why"
    cat "$work/why"
    grep -q 'r[12] has no interface "eth7".* eth0, eth1' "$work/why"
}
within_ports() { # twice: the last job's connections have not quite gone
    ! GRIDCOMM_START_TIMEOUT=3 gc 20 u1,u2 2 "$ring" && GRIDCOMM_PORTS=7000-7001 gc 20 u1,u2 4 "$ring" &&
        GRIDCOMM_PORTS=7000-7001 gc 20 u1,u2 4 "$ring"
}
part_today() {
    world today 'what users meet'
    setup 'docker0 and virbr0 on every host' e1,e2,e3 "$SOME" eth0 ' (172\.17|192\.168\.122)\.'
    setup 'docker0 and virbr0, somebody on them' g1,g2,g3 "$SOME" eth0 ' (172\.17|192\.168\.122)\.'
    setup 'a NIC that is down' o1,o2 "$MUCH" eth0 ' 10\.21\.'
    setup 'strict rp_filter' r1,r2 "$MUCH" 'eth0 eth1' ''
    setup 'several addresses on a NIC, some collide' v1,v2,v3 "$SOME" eth0 ' 192\.168\.5'
    setup 'a first NIC that has one address on all hosts' w1,w2,w3 "$SOME" eth1 ' 192\.168\.60'
    setup 'two NICs on one subnet' b1,b2 "$MUCH" '' ''      # either answers for both: who takes what is the kernels' business
    setup 'two NICs on one subnet, strict rp_filter' b3,b4 "$MUCH" eth0 ''
    setup 'two public NICs, one default route' c1,c2 "$MUCH" eth0 ''
    setup 'addresses without a network (/32)' l1,l2,l3 "$SOME" eth0 ''
    setup 'point to point' q1,q2 "$SOME" eth0 ''
    hand_made 'temporary and deprecated addresses' h1 h2 '[2001:db8:5::1]:7000' eth0 '! 2001:db8:5::(1|2|e1|e2)$'
    setup 'only fe80:: on a shared switch' j1,j2,j3 "$SOME" eth0 ''
    setup 'sixteen NICs' k1,k2 '3 16000000' "$(sixteen)" ''
    hand_made 'a host name that means loopback' y1 y2 y1:7000 eth0 '! eth0 10.27.0.[12]$'
    GRIDCOMM_IF=eth1 hand_made 'GRIDCOMM_IF=eth1' r1 r2 10.21.0.3:7000 eth1 ' 10\.20\.'
    GRIDCOMM_IF='^eth0,docker*' hand_made 'GRIDCOMM_IF=^eth0,docker*' r1 r2 10.21.0.3:7000 eth1 ' 10\.20\.'
    check 'GRIDCOMM_IF: a NIC that is not there is an error that names the host' interface_missing
    check 'GRIDCOMM_PORTS: through a firewall with a few ports' within_ports
    remove
}

# ---- labs behind NATs, strangers, hosts that cannot meet ----
cat >"$work/labs" <<END
site a: switch lan 192.168.1.0/24
site a: nat 198.51.100.1
site b: switch lan 192.168.1.0/24           # the same network, and some equal addresses
site b: nat 198.51.100.2
site p: switch lan 203.0.113.0/24
host a1 a2 a3 on a/lan
host b1 b2 on b/lan
host p1 p2 on p/lan
site a: map 7100 a1 7000
site x: switch four 10.50.0.0/24 alone
site x: switch six fd50::/64 alone
host v1 on x/four
host w1 on x/six
wan * *: latency 2ms
END
inside() { # each lab talks over its own network
    asked a1,a2,a3 | grep ' 192\.168\.1\.' && asked b1,b2 | grep ' 192\.168\.1\.'
}
# Behind a1's NAT stands somebody at the address and port of b2, with whom a1 shares a job. To be sure that b2 does not come
# a1 waits 2.5 s, and 10 s for one who takes its connection and says nothing; not for one who is not b2.
stranger() { # SECONDS, command...: a2 runs it meanwhile
    local other fares=0 start
    "${@:2}" >"$work/other" 2>&1 &
    other=$!
    until_true listening || fares=1
    start=$EPOCHREALTIME
    # shellcheck disable=SC2086  # two words
    GRIDCOMM_PORTS=7000-7000 gc 40 p1,a1,b2 3 "$ring" $SOME &&
        near 'seconds of the ring' "$(awk "BEGIN { print $EPOCHREALTIME - $start }")" 0 "$1" || fares=1
    [ "$2" = gc ] || kill $other
    wait $other || [ "$2" != gc ] || fares=1
    cat "$work/other"
    return $fares
}
listening() { # port 7000
    "$tools/enter" "/run/gridcomm-bed/$W" a2 cat /proc/net/tcp /proc/net/tcp6 | grep -q ':1B58 0*:0000 0A'
}
other_job() { GRIDCOMM_PORTS=7000-7000 stranger 7 gc 40 a2,a3 2 "$tools/survivors" 4; }
hold='import socket, time; s = socket.create_server(("", 7000)); time.sleep(60)'
mute() { stranger 20 timeout 60 $bed run "$W" a2 python3 -c "$hold"; }
talker() { stranger 7 timeout 60 $bed run "$W" a2 python3 tests/net/reach.py serve 7000; }

cat >"$work/mapped" <<END
#!/bin/sh
[ "\$(uname -n)" != a1 ] || export GRIDCOMM_ADVERTISE=198.51.100.1:7100
exec "\$@"
END
chmod +x "$work/mapped"
advertised() {
    ! GRIDCOMM_START_TIMEOUT=3 GRIDCOMM_PORTS=7000-7009 gc 20 a1,b1 2 "$ring" &&
        $bed record "$W" b1 && GRIDCOMM_PORTS=7000-7009 gc 40 a1,b1 2 "$work/mapped" "$ring" &&
        asked b1 | grep ' 198.51.100.1 7100$'
}
never() { # both hosts, what each offers, and why nothing fits
    ! GRIDCOMM_START_TIMEOUT=5 gc 30 v1,w1 2 "$ring" 2>"$work/why" || return
    cat "$work/why"
    for word in v1 w1 10.50.0.1 fd50::1 'no address family in common'; do
        grep -q "$word" "$work/why" || { echo "not in it: $word"; return 1; }
    done
}
part_labs() {
    world labs 'two labs of one private network behind NATs, and a public site'
    setup 'two labs' p1,a1,a2,a3,b1,b2 "$SOME" eth0 '^p.* 192\.168\.1\.[12]|^b.* 192\.168\.1\.3'
    check 'two labs: each uses its private network inside' inside
    check 'another job listens at the colliding address' other_job
    check 'somebody mute listens at the colliding address' mute
    check 'somebody talkative listens at the colliding address' talker
    check 'GRIDCOMM_ADVERTISE: a mapped port' advertised
    check 'IPv4 here, IPv6 there: an error that says who, what and why' never
    remove
}

# ---- striping ----
cat >"$work/stripes" <<END
site s: switch g0 10.40.0.0/24 rate 1gbit alone
site s: switch h0 10.41.0.0/24 rate 100mbit alone
site s: switch h1 10.42.0.0/24 rate 100mbit alone
host s1 s2 on s/g0 s/h0 s/h1
END
PART=0.85                   # of the sum of both NICs, where any machine has time for both; 2 Gbit/s are for bench.sh
stripe() { # NICs, BYTES TIMES: byte/s and the longest transfer's seconds
    GRIDCOMM_IF=$1 gc 60 s1,s2 2 "$striping" "${@:2}" | sed 's/^\[0\] //'
}
both() { # NIC NIC BYTES
    local one two sum
    sum=$(stripe "$1,$2" "$3" 3) && one=$(stripe "$1" "$3" 1) && two=$(stripe "$2" "$3" 1) || return
    echo "${sum% *} byte/s over both, ${one% *} and ${two% *} alone"
    awk "BEGIN { exit !(${sum% *} >= $PART * (${one% *} + ${two% *})) }"
}
said() { tail -n 1 "$work/out" | sed 's/^/        /'; }
alone=''
cut_one() { # NIC both|link: cut in mid-transfer; with both NICs it would take half as long as with one
    local job seconds bytes=33554432
    [ -n "$alone" ] || alone=$(stripe eth1 $bytes 1) || return
    stripe eth1,eth2 $bytes 1 >"$work/cut" &
    job=$!
    until_true called striping-run 2 && $bed cut "$W" "s2/$1" "$2"
    wait $job
    seconds=$(cut -d' ' -f2 "$work/cut")
    $bed mend "$W" "s2/$1" "$2" && near seconds "$seconds" "$(awk "BEGIN { print 1.3 * ${alone#* } }")" \
        "$(awk "BEGIN { print 0.7 * ${alone#* } }")" && echo "$seconds s, ${alone#* } s alone"
}
part_striping() {
    world stripes 'a NIC of 1 Gbit/s, two of 100 Mbit/s'
    check '100 + 100 Mbit/s: nearly the sum' thrice both eth1 eth2 33554432
    said
    check '1 Gbit/s + 100 Mbit/s: nearly the sum' thrice both eth0 eth1 33554432
    said
    for nic in eth1 eth2; do
        check "$nic is cut in mid-transfer: the other carries all" thrice cut_one $nic both
        said
        check "$nic loses its cable in mid-transfer: the other carries all" thrice cut_one $nic link
        said
    done
    remove
}

for part in ${PARTS:-paper today labs striping}; do "part_$part"; done
close
