#!/bin/bash
# bench.sh [BUILD]: gridcomm beside bare TCP and beside two MPIs, over relays and through a crowded switch port, as ratios, on
# test beds (root); in the end what models predict and choose (bench_model.sh, an hour or two). ONLY=overlay runs the rows whose
# name has that word, ONLY=-models those whose name has not.
# SPDX-License-Identifier: MIT
#
# The two sides of a ratio run in turns, A B A B ..., and a row shows the median of the ratios of neighbours with the least
# and the greatest; budgets are those of the design. Ends with 0 unless something could not be measured; whether the
# budgets hold is what the table says.
set -u
caller=$PWD
cd "$(dirname "$0")/../.." || exit 1
export BED_BUILD
BED_BUILD=$(realpath "${1:-build}")
bed=tests/net/bed tools=$BED_BUILD/tests/net gcrun=$BED_BUILD/gcrun
: "${ROUNDS:=7}" "${MPI_ROUNDS:=3}" "${START_ROUNDS:=5}" "${ONLY:=}"
IDLE=40 PORT=7000 STREAM=8388608 FLOW=67108864 RANKS=40 RELAYS=4 CROWD=36 STRIPED=67108864
: "${DENSITIES:=0.06 0.1 0.2 0.4}" "${INCAST_ROUNDS:=3}"
failed=0 near='' far='' chain='' crowd='' stripes='' grid=''
work=$(mktemp -d)

finish() {
    for b in $near $far $chain $crowd $stripes $grid; do $bed down "$b"; done
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 1' INT TERM

if [ "$(id -u)" != 0 ]; then
    echo 'bench.sh: not measured: network namespaces need root' >&2
    exit 1
fi

# ---- the two sides ----
number() { tail -n 1 "$1" | sed 's/^\[0\] //' | grep -E '^[0-9.]+( [0-9.]+)*$'; }   # gcrun puts the rank in front
bare() { # pingpong|stream, poll|sleep, BYTES, IDLE
    timeout 60 $bed run "$near" a2 "$tools/peer_tcp" serve $PORT 2>>"$work/err" &
    timeout 60 $bed run "$near" a1 "$tools/peer_tcp" "$1" 10.1.0.2 $PORT "${@:2}" >"$work/bare" 2>>"$work/err"
    wait $!
    number "$work/bare"
}
grid() { # PROGRESS or "", RANKS, what, number
    GRIDCOMM_PROGRESS=$1 timeout 120 $bed gcrun "$near" -n "$2" "$tools/bench_gc" "$3" "$4" >"$work/grid" 2>>"$work/err"
    number "$work/grid"
}
local_grid() { timeout 120 "$gcrun" -n "$1" "$tools/bench_gc" "$2" "$3" 2>>"$work/err" >"$work/grid"; number "$work/grid"; }

# ---- the table ----
row() { printf '%-50s %12s %12s %8s %-17s %8s  %s\n' "$@"; }
lost() { # what
    row "$1" - - - - - 'NOT MEASURED'
    tail -n 3 "$work/err" | sed 's/^/    | /'
    failed=1
}
verdict() { awk -v r="$1" -v o="$2" -v b="$3" 'BEGIN { print (o == "<=" ? r <= b : r >= b) ? "pass" : "FALLS SHORT" }'; }
median() { sort -g | awk '{ v[NR] = $1 } END { if (NR) print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }
tabulate() { # what, operator, budget, file of pairs: the row of a ratio
    local a b r range
    a=$(cut -d' ' -f1 "$4" | median) b=$(cut -d' ' -f2 "$4" | median)
    r=$(awk '{ print $1 / $2 }' "$4" | median | xargs printf '%.3f')
    range=$(awk '{ print $1 / $2 }' "$4" | sort -g | sed -n '1p;$p' | xargs printf '%.2f .. %.2f')
    row "$1" "$a" "$b" "$r" "$range" "$2 $3" "$(verdict "$r" "$2" "$3")"
}
wanted() { if [[ $ONLY == -?* ]]; then [[ $1 != *${ONLY#-}* ]]; else [[ $1 == *$ONLY* ]]; fi; }

ratio() { # what, operator, budget, gridcomm's command, the other's
    wanted "$1" || return
    local a b
    : >"$work/pairs"
    for _ in $(seq "$ROUNDS"); do
        a=$($4) && b=$($5) && echo "$a $b" >>"$work/pairs" || { lost "$1"; return; }
    done
    tabulate "$1" "$2" "$3" "$work/pairs"
}
single() { # what, value, operator, budget, remark: a number of its own
    [ -n "$2" ] && row "$1" "$2" - - "$5" "$3 $4" "$(verdict "$2" "$3" "$4")" || lost "$1"
}

under_flow() {
    local what='ping-pong under 64 MiB at 1 MByte/s, s' seconds late
    wanted "$what" || return
    for _ in 1 2; do    # what other work on the machine has voided is tried once more
        $bed reset "$far"
        timeout 240 $bed gcrun "$far" -n 2 "$tools/bench_gc" under $FLOW >"$work/under" 2>>"$work/err"
        seconds=$(number "$work/under")
        late=$($bed late "$far") && break
        echo "$late" >>"$work/err"
        [ -z "$seconds" ] || echo "$seconds s, but the measurement is void" >>"$work/err"
        seconds=
    done
    single "$what" "$seconds" '<=' 0.4 "${late%% max*}"
}
start_time() {
    local what='64 processes to the end of their first barrier, s' s
    wanted "$what" || return
    : >"$work/starts"
    for _ in $(seq "$START_ROUNDS"); do local_grid 64 start "$("$tools/bench_gc" now)" >>"$work/starts"; done
    s=$(median <"$work/starts")
    single "$what" "$s" '<=' 1.0 "$(sort -g "$work/starts" | sed -n '1p;$p' | xargs printf '%s .. %s')"
}

# ---- estimation: 16 hosts in 4 clusters, 10 ms and 1 MByte/s between each two; what bare sockets take there in the same run ----
far_bare() { # pingpong|stream, BYTES
    timeout 60 $bed run "$grid" b1 "$tools/peer_tcp" serve $PORT 2>>"$work/err" &
    timeout 60 $bed run "$grid" a1 "$tools/peer_tcp" "$1" 10.2.0.1 $PORT sleep "$2" 0 >"$work/bare" 2>>"$work/err"
    wait $!
    number "$work/bare"
}
beside() { # what, estimated, bare
    local r
    r=$(awk -v a="$2" -v b="$3" 'BEGIN { print a / b }')
    row "$1" "$2" "$3" "$(printf '%.3f' "$r")" '' '+- 0.05' "$(verdict "$(awk -v r="$r" 'BEGIN { print (r > 1 ? r - 1 : 1 - r) }')" '<=' 0.05)"
}
estimation() {
    local what='estimation of 16 hosts in 4 clusters, s' bytes=65536 took alpha beta half rate
    wanted "$what" || return
    {
        for i in 1 2 3 4; do
            site=$(printf '%s' abcd | cut -c$i)
            echo "site $site: switch lan 10.$i.0.0/24 rate 1gbit"
            echo "host ${site}1 ${site}2 ${site}3 ${site}4 on $site/lan"
        done
        echo 'wan * *: latency 10ms rate 1MB/s queue 64KiB'
    } >"$work/grid-hosts"
    grid=$($bed up "$work/grid-hosts" --owner $$) || { lost "$what"; return; }
    timeout 120 $bed gcrun "$grid" -n 16 "$tools/estimate" hockney 20 $bytes >"$work/grid" 2>>"$work/err"
    read -r took alpha beta _ <<<"$(number "$work/grid")"
    half=$(far_bare pingpong 1) rate=$(far_bare stream $bytes)
    single "$what" "$took" '<=' 20 "$($bed late "$grid" | sed 's/ max.*//')"
    [ -n "$took" ] && [ -n "$half" ] && [ -n "$rate" ] || { lost 'estimation, beside bare sockets'; return; }
    beside 'estimation: latency between clusters, us' "$alpha" "$half"
    beside 'estimation: ns/byte between clusters' "$beta" \
        "$(awk -v h="$half" -v r="$rate" -v m=$bytes 'BEGIN { print (m / r - 2e-6 * h) / m * 1e9 }')"
}

selection() { # choices|collisions, what, budget: of pure computing, in ms of CPU time
    wanted "$2" || return
    single "$2" "$("$tools/addrsel" "$1" 2>>"$work/err")" '<=' "$3" ''
}

# ---- memory by the allocator hook, and the library's text; jobs on the simulated network fit into one process ----
memory() { # RANKS, sim|real
    local what="memory, $1 ranks, $2" stage most budget links
    wanted "$what" || return
    if [ "$2" = sim ]; then
        timeout 1800 "$tools/memory" "$1"
    else
        timeout 300 "$gcrun" -n "$1" "$tools/memory" | sed 's/^\[0\] //'
    fi >"$work/memory" 2>>"$work/err"
    [ "$(grep -c ';' "$work/memory")" = 4 ] || { lost "$what"; return; }
    while IFS='; ' read -r stage most budget links; do
        row "$what: $stage, KiB" $((most / 1024)) $((budget / 1024)) "$(awk "BEGIN { printf \"%.3f\", $most / $budget }")" \
            "$links connections" '<= 1.00' "$(verdict "$most" '<=' "$budget")"
    done < <(sed 's/all to all/all-to-all/' "$work/memory")
}
text_size() {
    local what='text of the library, KiB' bytes
    wanted "$what" || return
    bytes=$(size "$BED_BUILD/libgridcomm.a" | awk 'NR > 1 { n += $1 } END { print n }')
    single "$what" "$((bytes / 1024))" '<=' 256 'as it was compiled'
}

# ---- over relays: hosts in a row, each linked to the next alone, at 1 Gbit/s ----
need_chain() {
    [ -z "$chain" ] || return 0
    {
        for i in $(seq 0 $RELAYS); do echo "site c: switch l$i 10.$i.0.0/24 rate 1gbit alone"; done
        echo 'host h0 on c/l0'
        for i in $(seq $RELAYS); do echo "host h$i on c/l$((i - 1)) c/l$i"; done
        echo "host h$((RELAYS + 1)) on c/l$RELAYS"
    } >"$work/chain"
    chain=$($bed up "$work/chain" --owner $$)
}
chain_grid() { # PROGRESS, how many relays, what, number [, command in front of the ranks']
    GRIDCOMM_PROGRESS=$1 timeout 120 $bed gcrun "$chain" -n $(($2 + 2)) "${@:5}" "$tools/bench_gc" "$3" "$4" \
        >"$work/grid" 2>>"$work/err"
    number "$work/grid"
}
chain_bare() { # how many forwarders, pingpong|stream, poll|sleep, BYTES [, command in front of theirs]
    GRIDCOMM_RANK=$(($1 + 1)) timeout 60 $bed run "$chain" "h$(($1 + 1))" "${@:5}" "$tools/peer_tcp" serve $PORT 2>>"$work/err" &
    local i ends=$!
    for i in $(seq "$1"); do
        GRIDCOMM_RANK=$i timeout 60 $bed run "$chain" "h$i" "${@:5}" "$tools/forward_tcp" $PORT "10.$i.0.2" $PORT 2>>"$work/err" &
        ends="$ends $!"
    done
    GRIDCOMM_RANK=0 timeout 60 $bed run "$chain" h0 "${@:5}" "$tools/peer_tcp" "$2" 10.0.0.2 $PORT "$3" "$4" 0 \
        >"$work/bare" 2>>"$work/err"
    # shellcheck disable=SC2086  # a list
    wait $ends
    number "$work/bare"
}
relayed_stream() { # how many relays
    local what="overlay: 8 MiB over $1 relays, byte/s, 1 Gbit/s links"
    wanted "$what" && need_chain &&
        ratio "$what" '>=' 0.95 "chain_grid auto $1 stream $STREAM" "chain_bare 0 stream sleep $STREAM"
}
bare_stream() { # through bare forwarders: what these links and cores can do at all
    local what="overlay: 8 MiB over $RELAYS relays, byte/s, both bare"
    wanted "$what" && need_chain &&
        ratio "$what" '>=' 0.98 "chain_bare $RELAYS stream sleep $STREAM" "chain_bare 0 stream sleep $STREAM"
}
# shellcheck disable=SC2016  # for the rank's shell
in_turn=(sh -c 'exec taskset -c $((GRIDCOMM_RANK % $(nproc))) "$@"' in_turn)
added() { awk -v far="$1" -v near="$2" -v n="$3" 'BEGIN { print (far - near) / n }'; }
# Neighbours on different cores, and no core sleeps: which of them wakes where costs more than a relay does.
relayed_latency() { # how many relays, gridcomm's way to wait, the bare program's
    local what="overlay: 1 B, added by each of $1 relays, us, $3" a a0 b b0
    wanted "$what" && need_chain || return
    if [ "$3" = poll ] && [ "$(nproc)" -lt $(($1 + 2)) ]; then
        row "$what" - - - - '<= 1.30' "needs $(($1 + 2)) cores"
        return
    fi
    : >"$work/pairs"
    exec 9>/dev/cpu_dma_latency && printf '\0\0\0\0' >&9
    for _ in $(seq "$ROUNDS"); do
        a0=$(chain_grid "$2" 0 pingpong 1 "${in_turn[@]}") && b0=$(chain_bare 0 pingpong "$3" 1 "${in_turn[@]}") &&
            a=$(chain_grid "$2" "$1" pingpong 1 "${in_turn[@]}") && b=$(chain_bare "$1" pingpong "$3" 1 "${in_turn[@]}") ||
            { lost "$what"; break; }
        echo "$(added "$a" "$a0" "$1") $(added "$b" "$b0" "$1")" >>"$work/pairs"
    done
    exec 9>&-
    [ -z "$a" ] || [ -z "$b" ] || tabulate "$what" '<=' 1.30 "$work/pairs"
}

# ---- incast: all hosts on one switch whose ports drop what exceeds 128 KiB (Hironaka 2009, 5.2.4) ----
# At 100 Mbit/s: two cores do not send from 36 hosts fast enough to fill a port of 1 Gbit/s.
need_crowd() {
    [ -z "$crowd" ] || return 0
    {
        echo 'site a: switch lan 10.1.0.0/24 rate 100mbit buffer 128KiB'
        for i in $(seq 0 $((CROWD - 1))); do echo "host h$i on a/lan"; done
    } >"$work/crowd"
    crowd=$($bed up "$work/crowd" --owner $$)
}
drops() { # of all ports of the switch
    $bed run "$crowd" a tc -s qdisc show | grep -o 'dropped [0-9]*' | awk '{ n += $2 } END { print n + 0 }'
}
crowd_grid() { # DENSITY or direct, what, BYTES: median, least, most in ms, packets dropped
    local before sparse=()
    [ "$1" = direct ] || sparse=(GRIDCOMM_DIRECT=0 GRIDCOMM_LINK_DENSITY="$1")
    before=$(drops)
    env "${sparse[@]}" GRIDCOMM_ALGO=gather:flat timeout 240 $bed gcrun "$crowd" -n $CROWD "$tools/bench_gc" "$2" "$3" \
        >"$work/grid" 2>>"$work/err"
    number "$work/grid" | sed "s/\$/ $(($(drops) - before))/"
}
incast() { # gather|alltoall, BYTES: a row per density
    local what="incast: $1 of $2 B, $CROWD ranks, ms" way line
    wanted "$what" && need_crowd || return
    rm -f "$work"/ways.*
    for _ in $(seq "$INCAST_ROUNDS"); do
        for way in direct $DENSITIES; do
            line=$(crowd_grid "$way" "$1" "$2")
            [ -n "$line" ] || { lost "$what, $way"; continue; }
            echo "$line" >>"$work/ways.$way"
        done
    done
    for way in direct $DENSITIES; do
        [ -s "$work/ways.$way" ] || continue
        printf '%-50s median %9.2f  least %9.2f  most %9.2f  dropped %6.0f  x direct %.2f\n' "$what, $way" \
            "$(cut -d' ' -f1 "$work/ways.$way" | median)" "$(cut -d' ' -f2 "$work/ways.$way" | sort -g | head -n 1)" \
            "$(cut -d' ' -f3 "$work/ways.$way" | sort -g | tail -n 1)" "$(cut -d' ' -f4 "$work/ways.$way" | median)" \
            "$(paste -d' ' "$work/ways.$way" "$work/ways.direct" | awk 'NF == 8 { print $1 / $5 }' | median)"
    done
}

# ---- striping: two NICs beside each alone, 64 MiB one way ----
need_stripes() {
    [ -z "$stripes" ] || return 0
    {
        for i in 0 1; do echo "site s: switch g$i 10.40.$i.0/24 rate 1gbit alone"; done
        for i in 0 1; do echo "site s: switch h$i 10.41.$i.0/24 rate 100mbit alone"; done
        echo 'host s1 s2 on s/g0 s/g1 s/h0 s/h1'
    } >"$work/stripes"
    stripes=$($bed up "$work/stripes" --owner $$)
}
stripe() { # NICs, times: byte/s and the seconds of the longest
    GRIDCOMM_IF=$1 timeout 120 $bed gcrun "$stripes" -n 2 "$tools/striping" $STRIPED "$2" >"$work/grid" 2>>"$work/err"
    number "$work/grid"
}
striped() { stripe "$1,$2" 3 | cut -d' ' -f1 | grep .; }
apart() { # beside the sum of what each carries alone
    local one two
    one=$(stripe "$1" 1) && two=$(stripe "$2" 1) && awk "BEGIN { print ${one% *} + ${two% *} }"
}
two_nics() { # what they are, NIC NIC
    local what="striping: 64 MiB over $1, byte/s"
    wanted "$what" && need_stripes && ratio "$what" '>=' 0.95 "striped $2 $3" "apart $2 $3"
}
cut_striped() { # s2's NIC eth3 falls silent in mid-transfer: seconds
    local job i
    stripe eth2,eth3 1 >"$work/cut" &
    job=$!
    for i in $(seq 100); do [ "$($bed members "$stripes" striping-run | wc -l)" = 2 ] && break; sleep 0.02; done
    $bed cut "$stripes" s2/eth3 both
    wait $job
    $bed mend "$stripes" s2/eth3 both
    cut -d' ' -f2 "$work/cut" | grep .
}
slower_alone() { stripe eth2 1 | cut -d' ' -f2 | grep .; }
cut_nic() {
    local what='striping: 64 MiB, one of 2 NICs cut, s'
    wanted "$what" && need_stripes && ratio "$what" '<=' 2.00 cut_striped slower_alone
}

# ---- many ranks on few cores, beside the MPIs ----
declare -A mpi_command=(
    [openmpi]="mpirun.openmpi --allow-run-as-root --oversubscribe -n $RANKS --mca pml ob1 --mca btl tcp,self --mca mpi_yield_when_idle 1"
    [mpich]="env UCX_TLS=tcp,self LD_PRELOAD=$work/yield_ucx.so mpirun.mpich -n $RANKS"
)
mpi_ready() { # which: compiled?
    command -v "mpicc.$1" >/dev/null || { echo "$RANKS ranks beside $1: not measured, mpicc.$1 is not installed"; return 1; }
    "mpicc.$1" -std=c11 -O2 -o "$work/bench_$1" tests/net/mpi/bench_mpi.c 2>>"$work/err" &&
        ${CC:-cc} -std=c11 -O2 -shared -fPIC -o "$work/yield_ucx.so" tests/net/mpi/yield_ucx.c -ldl 2>>"$work/err"
}
beside_mpi() { # which
    local what="8 B allreduce, $RANKS ranks, us, $1" a b
    wanted "$what" && mpi_ready "$1" || return
    echo "$1: ${mpi_command[$1]} bench_mpi allreduce 1"
    : >"$work/pairs"
    for _ in $(seq "$MPI_ROUNDS"); do
        a=$(local_grid $RANKS allreduce 1) || { lost "$what"; return; }
        for _ in 1 2 3; do      # its abort at the end may overtake what it printed
            # shellcheck disable=SC2086  # a command line of words
            timeout -k 5 100 ${mpi_command[$1]} "$work/bench_$1" allreduce 1 >"$work/mpi" 2>>"$work/err" </dev/null
            b=$(grep -E '^[0-9.]+ [0-9.]+$' "$work/mpi") && break
        done
        [ -n "$b" ] || { lost "$what"; return; }
        echo "$a $b" >>"$work/pairs"
    done
    cut -d' ' -f1,3 "$work/pairs" >"$work/alone"
    cut -d' ' -f2,4 "$work/pairs" >"$work/rows"
    tabulate "$what, alone" '<=' 1.00 "$work/alone"
    tabulate "$what, in a row" '<=' 1.00 "$work/rows"
}

# ---- the run ----
cat >"$work/two-hosts" <<END
site a: switch lan 10.1.0.0/24
host a1 a2 on a/lan
END
cat >"$work/far-hosts" <<END
site a: switch lan 10.1.0.0/24
site b: switch lan 10.2.0.0/24
host a1 on a/lan
host b1 on b/lan
wan a b: latency 10ms rate 1MB/s queue 64KiB
END
near=$($bed up "$work/two-hosts" --owner $$) && far=$($bed up "$work/far-hosts" --owner $$) || exit 1

echo "$(uname -sr), $(nproc) cores, congestion control $($bed run "$near" a1 cat /proc/sys/net/ipv4/tcp_congestion_control)," \
    "load before: $(cut -d' ' -f1 /proc/loadavg)"
awk '{ exit !($1 > 0.7) }' /proc/loadavg && echo 'NOTE: this machine is not idle; what spins is then measured by the scheduler. Run it again alone.'
row 'what' gridcomm other ratio 'least .. most' budget ''
ratio '1 B ping-pong, us, beside polling' '<=' 1.10 "grid auto 2 pingpong 1" "bare pingpong poll 1 0"
ratio '1 B ping-pong, us, sleeping, beside sleeping' '<=' 1.10 "grid sleep 2 pingpong 1" "bare pingpong sleep 1 0"
ratio "1 B ping-pong, us, $IDLE idle peers, polling" '<=' 1.10 "grid auto $((IDLE + 2)) pingpong 1" "bare pingpong poll 1 $IDLE"
ratio "1 B ping-pong, us, $IDLE idle peers, sleeping" '<=' 1.10 "grid sleep $((IDLE + 2)) pingpong 1" "bare pingpong sleep 1 $IDLE"
ratio '8 MiB one way, byte/s, beside polling' '>=' 0.95 "grid auto 2 stream $STREAM" "bare stream poll $STREAM 0"
ratio '8 MiB one way, byte/s, beside sleeping' '>=' 0.95 "grid auto 2 stream $STREAM" "bare stream sleep $STREAM 0"
under_flow
start_time
estimation
selection choices 'address selection, 1,000 peers of 16 NICs, ms' 20
selection collisions 'collision table of 10,000 hosts, ms' 50
memory 64 real
for ranks in 64 256 1024; do memory $ranks sim; done
text_size
beside_mpi openmpi
beside_mpi mpich
! wanted 'MPI layer' || "$BED_BUILD/tests/net/mpi_cost" || failed=1
bare_stream
for relays in $(seq $RELAYS); do relayed_stream "$relays"; done
for relays in $(seq $RELAYS); do relayed_latency "$relays" sleep sleep; done
for relays in 1 $RELAYS; do relayed_latency "$relays" auto poll; done
two_nics '1 + 1 Gbit/s' eth0 eth1
two_nics '1 Gbit/s + 100 Mbit/s' eth0 eth2
cut_nic
for bytes in 1000 10000 65536 262144; do incast gather $bytes; done
for bytes in 1000 10000; do incast alltoall $bytes; done
bench_model=$PWD/tests/net/bench_model.sh
! wanted 'models' || (cd "$caller" && bash "$bench_model" "$BED_BUILD") || failed=1
exit $failed
