#!/bin/bash
# bench_coll.sh [BUILD]: every collective between sites of a test bed (root), beside its lower bound, bare sockets and two MPIs;
# and within one site, beside the MPIs.
# SPDX-License-Identifier: MIT
#
#     ONLY='4 sites, pairs, 65536 B: bcast'   the rows whose name has these words
#     SITES='2:8 4:4 8:3'   beds: so many sites of so many ranks each, a host for each rank
#     TIMES=20 MPI_TIMES=10 operations of a median (50, of the longest 8, and fewer where one takes seconds; of the MPIs between sites 10)
#     HOSTS='2 4 8 4x4'     hosts within one site, and how many ranks on each
#     ROUNDS=7              pairs of runs behind a ratio within one site
#     MPI='openmpi mpich openmpi-han openmpi-adapt mpich-smp'   which of them, or none
#     RATE=1000             kByte/s of the links between sites, but for the 64 MiB: less, where the cores are too slow for that
#     CONGESTION=cubic      what TCP does between sites, not what the machine does by default
#     GRIDCOMM_ALGO=...     as the ranks of gridcomm have it
#     MODEL=hockney         64 KiB once more, as a model chooses that gcbench fits on the same bed (plogp, or none)
#
# A row is one operation. bound: the least time that the links allow, at RATE and 10 ms (with 1,500 bytes on the wire for
# 1,448 of payload). bare: the median of what must cross, over one bare connection from site to site. warm: the median.
# crossed: bytes on the busiest link, or uplink, for one operation, as the bed counted them, and beside it how many it must be. Times are ms. "void": packets were late on the bed because the machine was busy.
# Ends with 0 unless something could not be measured.
set -u
cd "$(dirname "$0")/../.." || exit 1
export BED_BUILD
BED_BUILD=$(realpath "${1:-build}")
bed=$PWD/tests/net/bed tools=$BED_BUILD/tests/net
: "${ONLY:=}" "${SITES:=2:8 4:4 8:3}" "${TIMES:=0}" "${ROUNDS:=7}" "${MPI=openmpi mpich openmpi-han openmpi-adapt mpich-smp}"
: "${MPI_TIMES:=10}" "${HOSTS:=2 4 8 4x4}" "${LIMIT:=240}" "${MODEL:=hockney}" "${RATE:=1000}" "${CONGESTION:=}"
OPERATIONS='barrier bcast scatter scatterv gather gatherv allgather allgatherv alltoall alltoallv reduce allreduce
            reduce_scatter reduce_scatter_block scan exscan'
letters=(a b c d e f g h i j k l m n o p)
work=$(mktemp -d)
failed=0 B='' hosts=() per_site=0 per_host=1
trap '[ -z "$B" ] || $bed down "$B"; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

if [ "$(id -u)" != 0 ]; then
    echo 'bench_coll.sh: not measured: network namespaces need root' >&2
    exit 1
fi

# ---- beds ----
hook() { # what rank 0 runs: wide-area counts begin afresh, and are kept
    cat >"$work/hook" <<END
#!/bin/sh
export BED_BUILD='$BED_BUILD'
unset LD_PRELOAD
case \$1 in
begin) '$bed' reset '$B' ;;
end)   '$bed' bytes '$B' >'$work/counts' ;;
esac
END
    chmod +x "$work/hook"
}
lay_out() { # sites, ranks of each, pairs|uplinks|none|a rate, latency: the description of a bed
    local i k name addresses=()
    hosts=() per_site=$2
    for i in $(seq 0 $(($1 - 1))); do
        name=${letters[i]}
        echo "site $name: switch lan 10.$((i + 1)).0.0/24 rate 1gbit"
        [ "$3" != uplinks ] || echo "site $name: uplink rate ${RATE}kB/s queue 64KiB"
        for k in $(seq "$2"); do
            echo "host $name$k on $name/lan"
            [ -z "$CONGESTION" ] || echo "host $name$k: route 10.0.0.0/8 via 10.$((i + 1)).0.254 congctl $CONGESTION"
            hosts+=("$name$k") addresses+=("10.$((i + 1)).0.$k")
        done
    done >"$work/plan"
    for i in "${!hosts[@]}"; do echo "host ${hosts[*]}: hosts ${addresses[i]} ${hosts[i]}"; done >>"$work/plan"     # for the MPIs
    case $3 in
    pairs)   echo "wan * *: latency $4 rate ${RATE}kB/s queue 64KiB" ;;
    uplinks) echo "wan * *: latency $4" ;;
    none)    ;;
    *)       echo "wan * *: latency $4 rate $3 queue 256KiB" ;;
    esac >>"$work/plan"
}
build_bed() { # as lay_out
    [ -z "$B" ] || $bed down "$B"
    lay_out "$@"
    B=$($bed up "$work/plan" --owner $$) || exit 1
    hook
    # The MPIs start their daemons over it, as over ssh; MPICH gives it an option.
    printf '#!/bin/sh\n[ "$1" != -x ] || shift\nexec %s --agent /run/gridcomm-bed/%s "$@"\n' "$tools/enter" "$B" >"$work/agent"
    chmod +x "$work/agent"
    printf "%s slots=$per_host\\n" "${hosts[@]}" >"$work/hosts.openmpi"
    printf "%s:$per_host\\n" "${hosts[@]}" >"$work/hosts.mpich"
    : >"$work/one.openmpi"
    : >"$work/one.mpich"
    for i in $(seq 0 "$per_site" $((${#hosts[@]} - 1))); do     # a site's ranks on one host: what their hierarchies can see
        echo "${hosts[i]} slots=$per_site" >>"$work/one.openmpi"
        echo "${hosts[i]}:$per_site" >>"$work/one.mpich"
    done
}

# Neighbours on different cores, and no core sleeps: else how many ranks wake on one core, and how long a core takes to wake,
# makes more difference than what is timed.
in_turn=()
pin() {
    cat >"$work/in_turn" <<'END'
#!/bin/sh
exec taskset -c $((${GRIDCOMM_RANK:-${OMPI_COMM_WORLD_RANK:-$PMI_RANK}} % $(nproc))) "$@"
END
    chmod +x "$work/in_turn"
    in_turn=("$work/in_turn")
    [ ! -w /dev/cpu_dma_latency ] || { exec 9>/dev/cpu_dma_latency && printf '\0\0\0\0' >&9; }
}

# ---- one measurement: "cold median least most samples operations mean" ----
ranks() { echo $((${#hosts[@]} * per_host)); }
numbers() { sed 's/^\[0\] //' "$1" | grep -E -m 1 '^-?[0-9.]+( -?[0-9.]+){6}$'; }
grid() { # operation, bytes, [times]
    rm -f "$work/board" "$work/counts"
    timeout -k 5 "$LIMIT" "$bed" gcrun "$B" -n $(ranks) -x BOARD_HOOK \
        ${GRIDCOMM_MODEL:+-x GRIDCOMM_MODEL} ${GRIDCOMM_ALGO:+-x GRIDCOMM_ALGO} \
        "${in_turn[@]}" "$tools/bench_coll" "$work/board" "$1" "$2" "${3:-$TIMES}" >"$work/out" 2>>"$work/err" </dev/null
    numbers "$work/out"
}
bare() { # out|in|all|flow, [times, [bytes from site to site]]
    rm -f "$work/board"
    timeout -k 5 "$LIMIT" "$bed" gcrun "$B" -n $(ranks) "$tools/coll_tcp" "$work/board" "$1" "${2:-$TIMES}" "${3:-1}" \
        >"$work/out" 2>>"$work/err" </dev/null
    numbers "$work/out"
}

# ---- the MPIs ----
openmpi_line() { # hostfile, options...
    echo "mpirun.openmpi --allow-run-as-root --hostfile $1 -n $(ranks) --mca plm_rsh_agent $work/agent" \
        "--mca plm_rsh_no_tree_spawn 1 --mca oob_tcp_if_include eth0 --mca btl_tcp_if_include eth0 --mca pml ob1" \
        "--mca btl tcp,self --mca mpi_yield_when_idle 1 --mca hwloc_base_binding_policy none -x BOARD_HOOK" "${@:2}"
}
mpich_line() { # hostfile
    echo "env UCX_TLS=tcp,self UCX_NET_DEVICES=eth0 LD_PRELOAD=$work/yield_ucx.so mpirun.mpich -f $1 -n $(ranks)" \
        "-launcher ssh -launcher-exec $work/agent -iface eth0"
}
mpi_line() { # which
    case $1 in
    openmpi)       openmpi_line "$work/hosts.openmpi" ;;
    openmpi-han)   openmpi_line "$work/one.openmpi" --mca coll_han_priority 100 ;;
    openmpi-adapt) openmpi_line "$work/hosts.openmpi" --mca coll_adapt_priority 100 ;;
    mpich)         mpich_line "$work/hosts.mpich" ;;
    mpich-smp)     mpich_line "$work/one.mpich" ;;
    esac
}
mpi_ready() { # which: compiled?
    [ ! -x "$work/bench_$1" ] || return 0
    command -v "mpicc.$1" >/dev/null || { echo "$1: not measured, mpicc.$1 is not installed"; return 1; }
    "mpicc.$1" -std=c11 -O2 -o "$work/bench_$1" tests/net/mpi/bench_coll_mpi.c 2>>"$work/err" &&
        ${CC:-cc} -std=c11 -O2 -shared -fPIC -o "$work/yield_ucx.so" tests/net/mpi/yield_ucx.c -ldl 2>>"$work/err"
}
mpi() { # which, operation, bytes, [times]
    rm -f "$work/board" "$work/counts"
    # shellcheck disable=SC2046  # a command line of words
    timeout -k 5 "$LIMIT" "$bed" run "$B" "${hosts[0]}" $(mpi_line "$1") \
        "${in_turn[@]}" "$work/bench_${1%-*}" "$work/board" "$2" "$3" "${4:-$MPI_TIMES}" >"$work/out" 2>>"$work/err.mpi" </dev/null
    numbers "$work/out"
}
chosen=''
for m in $MPI; do mpi_ready "${m%-*}" && chosen="$chosen $m"; done

# ---- the bound ----
bound() { # operation, bytes, pairs|uplinks: bytes that must cross the busiest link, ms, bytes from site to site
    awk -v op="${1%v}" -v m="$2" -v up="$([ "$3" = uplinks ] && echo 1 || echo 0)" -v s="$SITE_COUNT" -v n="$per_site" \
        -v rate="$RATE" 'BEGIN {
        if (op == "bcast" || op == "allreduce" || op == "scan" || op == "exscan" || op == "reduce") flow = m
        else if (op == "alltoall") flow = n * n * m
        else flow = n * m               # gather, scatter, allgather, reduce_scatter
        away = up && op != "reduce" && op != "gather" ? s - 1 : 1       # other sites whose data share what is narrow
        x = away * flow
        before = op != "bcast" && op != "scatter"; after = op != "gather" && op != "reduce"
        printf "%d %.3f %d\n", x, 10 + (before + after) * (n > 1) * 0.05 + (x + 48) * 1500 / 1448 / rate, flow }'
}
crossed() { # pairs|uplinks, operations: bytes on the busiest
    awk -v up="$([ "$1" = uplinks ] && echo 1 || echo 0)" -v n="$2" '
        $1 == "wan" { k = up ? $2 : $2 " " $3; for (i = 4; i < NF; i++) if ($i == "bytes") sum[k] += $(i + 1) }
        END { for (k in sum) if (sum[k] > most) most = sum[k]; printf "%d", most / n }' "$work/counts"
}
void() { grep -qs '^late.* void$' "$work/counts" && echo void; }

# ---- rows ----
wanted() { [ -z "$ONLY" ] || [[ $1 == *$ONLY* ]]; }
any_wanted() { # name of a bed: is any of its rows?
    local op
    for op in $OPERATIONS; do wanted "$1: $op" && return; done
    return 1
}
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", a / b }'; }
lost() { # what
    echo "$1: NOT MEASURED"
    tail -n 2 "$work/err" | sed 's/^/    | /'
    failed=1
}
others() { # what, operation, bytes, gridcomm's median: a word for each MPI: its median, and how much slower it is
    local m line
    for m in $chosen; do
        line=$(mpi "$m" "$2" "$3") && printf '  %s %.1f (%s x)' "$m" "$(cut -d' ' -f2 <<<"$line")" \
            "$(ratio "$(cut -d' ' -f2 <<<"$line")" "$4")" || printf '  %s failed' "$m"
    done
    echo
}
fitted() { # the model of this bed
    [ -s "$work/model.$B" ] ||
        timeout -k 5 "$LIMIT" "$bed" gcrun "$B" -n $(ranks) "$BED_BUILD/gcbench" --fit "$work/model.$B" --kind "$MODEL" \
            >"$work/out" 2>>"$work/err" </dev/null
}
with_model() { # operation, bytes, the median without: a word like those of the MPIs
    local line
    [ "$MODEL" != none ] || return 0
    fitted && line=$(GRIDCOMM_MODEL=$work/model.$B grid "$1" "$2") && printf '  by the model %.1f (%s x)' \
        "$(cut -d' ' -f2 <<<"$line")" "$(ratio "$(cut -d' ' -f2 <<<"$line")" "$3")" || printf '  by the model failed'
}
bounded_row() { # name, operation, bytes, pairs|uplinks
    wanted "$1: $2" || return
    local must least flow tcp line cold warm low high n ops
    read -r must least flow < <(bound "$2" "$3" "$4")
    tcp=$(bare "$(class "$2")" "$TIMES" "$flow") || lost "$1: $2, bare sockets"
    line=$(grid "$2" "$3") || { lost "$1: $2"; return; }
    read -r cold warm low high n ops _ <<<"$line"
    printf '%-48s %9.2f %9.2f %9.2f %6s %9.2f..%-9.2f %9.2f %10d %10d %4s' "$1: $2" "$least" "$(cut -d' ' -f2 <<<"${tcp:-nan nan}")" \
        "$warm" "$(ratio "$warm" "$least")" "$low" "$high" "$cold" "$(crossed "$4" "$ops")" "$must" "$(void)"
    with_model "$2" "$3" "$warm"
    others "$1" "$2" "$3" "$warm"
}
class() { # operation
    case $1 in
    bcast | scatter*) echo out ;;
    reduce | gather*) echo in ;;
    *)                echo all ;;
    esac
}
# 1 byte for each rank: beside bare sockets at 10 ms, and how much of 50 ms more of latency shows.
small_rows() { # name, sites, ranks of each, pairs|uplinks
    local op near far tcp
    any_wanted "$1" || return
    for latency in 10 60; do
        build_bed "$2" "$3" "$4" ${latency}ms
        for op in $OPERATIONS; do
            wanted "$1: $op" || continue
            grid "$op" 1 >"$work/small.$op.$latency" || lost "$1: $op at $latency ms"
            cut -d' ' -f2 "$work/small.$op.$latency" >"$work/warm.$op.$latency"
            void >"$work/void.$op.$latency"
            [ $latency = 10 ] || continue
            bare "$(class "$op")" >"$work/small.$op.tcp" || lost "$1: $op, bare sockets"
            others "$1" "$op" 1 "$(cat "$work/warm.$op.10")" >"$work/small.$op.mpi"
        done
    done
    for op in $OPERATIONS; do
        wanted "$1: $op" && [ -s "$work/small.$op.10" ] && [ -s "$work/small.$op.60" ] && [ -s "$work/small.$op.tcp" ] || continue
        near=$(cat "$work/warm.$op.10") far=$(cat "$work/warm.$op.60") tcp=$(cut -d' ' -f2 "$work/small.$op.tcp")
        printf '%-48s %9.2f %9.2f %6s %9.2f %6s %9.2f %4s' "$1: $op" "$tcp" "$near" "$(ratio "$near" "$tcp")" "$far" \
            "$(awk "BEGIN { printf \"%.2f\", ($far - $near) / 50 }")" "$(cut -d' ' -f1 "$work/small.$op.10")" \
            "$(sort -u "$work/void.$op".*)"
        cat "$work/small.$op.mpi"
    done
}
between_sites() {
    local bytes way bedded
    for s in $SITES; do
        SITE_COUNT=${s%:*}
        for way in pairs uplinks; do
            for bytes in 1 65536; do
                local name="$SITE_COUNT sites, $way, $bytes B"
                any_wanted "$name" || continue
                printf '\n%s, %d ranks each\n' "$name" "${s#*:}"
                if [ $bytes = 1 ]; then
                    printf '%-48s %9s %9s %6s %9s %6s %9s\n' '(ms)' 'bare' '10 ms' 'ratio' '60 ms' 'slope' 'cold'
                    small_rows "$name" "$SITE_COUNT" "${s#*:}" $way
                else
                    printf '%-48s %9s %9s %9s %6s %20s %9s %10s %10s\n' '(ms)' bound bare warm ratio 'least .. most' cold crossed must
                    bedded=''
                    for op in ${OPERATIONS#barrier}; do            # which has no bytes
                        wanted "$name: $op" || continue
                        [ -n "$bedded" ] || build_bed "$SITE_COUNT" "${s#*:}" $way 10ms
                        bedded=1
                        bounded_row "$name" "$op" $bytes $way
                    done
                fi
            done
        done
    done
}
median() { sort -g | awk '{ v[NR] = $1 } END { if (NR) print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }
bottleneck() { # 64 MiB from one site to the other, both ways in turns
    local name='64 MiB broadcast over 10 MByte/s, 10 ms' a b
    wanted "$name" || return
    printf '\n%-48s %9s %9s %6s\n' '(MByte/s)' bare gridcomm ratio
    build_bed 2 4 10MB/s 10ms
    : >"$work/pairs"
    for _ in 1 2 3; do
        a=$(bare flow 1) && b=$(grid bcast 67108864 1) || { lost "$name"; return; }
        echo "$(cut -d' ' -f2 <<<"$a") $(cut -d' ' -f2 <<<"$b")" >>"$work/pairs"
    done
    a=$(cut -d' ' -f1 "$work/pairs" | median) b=$(cut -d' ' -f2 "$work/pairs" | median)
    printf '%-48s %9.2f %9.2f %6s %s\n' "$name" "$(awk "BEGIN { print 67108.864 / $a }")" \
        "$(awk "BEGIN { print 67108.864 / $b }")" "$(awk '{ printf "%.3f\n", $1 / $2 }' "$work/pairs" | median)" "$(void)"
}
mean() { awk '{ sum += $2 } END { print NR ? sum / NR : "nan" }'; }
# In turns: the median of each, the mean of its means (lan.*: a median and a mean for each run), and the median of the ratios of the
# rounds to the MPI whose median is the least, with the least and the most ratio (of 6 rounds and more they hold the true median
# with 97 % and more).
within_a_site() {
    local n op bytes name bedded line one m times longest
    pin
    for n in $HOSTS; do
        bedded='' per_host=1 longest=16777216
        [ "$n" = "${n%x*}" ] || per_host=${n#*x} longest=1048576
        for op in bcast allreduce allgather alltoall; do
            for bytes in 8 65536 $longest; do
                name="one site, ${n%x*} hosts, $bytes B: $op"
                [ "$per_host" = 1 ] || name="one site, ${n%x*} hosts of $per_host, $bytes B: $op"
                wanted "$name" || continue
                [ -n "$bedded" ] || { build_bed 1 "${n%x*}" none 0; printf '\n'; }
                bedded=1
                rm -f "$work"/lan.* "$work/medians"
                times=$TIMES
                [ $bytes -lt $longest ] || [ "$TIMES" != 0 ] || times=8
                for _ in $(seq "$ROUNDS"); do
                    line=$(grid "$op" $bytes "$times") || { lost "$name"; break; }
                    cut -d' ' -f2,7 <<<"$line" >>"$work/lan.gridcomm"
                    for m in $chosen; do
                        case $m in *-han | *-smp) continue ;; esac
                        line=$(mpi "$m" "$op" $bytes "$times") || line='- nan - - - - nan'
                        cut -d' ' -f2,7 <<<"$line" >>"$work/lan.$m"
                    done
                done
                [ -s "$work/lan.gridcomm" ] || continue
                printf '%-48s gridcomm %9.3f ms (mean %.3f)' "$name" "$(median <"$work/lan.gridcomm")" "$(mean <"$work/lan.gridcomm")"
                for m in $chosen; do
                    [ -s "$work/lan.$m" ] || continue
                    one=$(grep -v nan "$work/lan.$m" | median)
                    printf '  %s %9.3f (%.3f)' "$m" "${one:-nan}" "$(grep -v nan "$work/lan.$m" | mean)"
                    [ -z "$one" ] || echo "$one $work/lan.$m" >>"$work/medians"
                done
                [ ! -s "$work/medians" ] || paste "$work/lan.gridcomm" "$(sort -g "$work/medians" | sed -n '1s/.* //p')" |
                    awk '$3 != "nan" { print $1 / $3 }' | sort -g >"$work/ratios"
                [ ! -s "$work/medians" ] || printf '  x the faster %.2f  %s' "$(median <"$work/ratios")" \
                    "$(sed -n '1p;$p' "$work/ratios" | xargs printf '%.2f .. %.2f')"
                echo
            done
        done
    done
}

# ---- the run ----
export BOARD_HOOK=$work/hook
echo "$(uname -sr), $(nproc) cores, congestion control $(cat /proc/sys/net/ipv4/tcp_congestion_control)," \
    "${CONGESTION:+between sites $CONGESTION, }load before: $(cut -d' ' -f1 /proc/loadavg)"
awk '{ exit !($1 > 0.7) }' /proc/loadavg && echo 'NOTE: this machine is not idle. Run it again alone.'
SITE_COUNT=1
for m in $chosen; do echo "$m: $(mpi_line "$m" | sed "s,$work/,,g; s/-n 0/-n RANKS/") bench_coll_mpi BOARD OPERATION BYTES"; done
between_sites
bottleneck
within_a_site
exit $failed
