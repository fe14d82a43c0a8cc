#!/bin/bash
# bench_model.sh [BUILD]: how well a model that was fitted on point-to-point messages alone predicts collectives, and what it
# chooses, on test beds (root) where links are the limit and not the processor.
# SPDX-License-Identifier: MIT
#
#     NETWORKS='1x8 2x4 4x3'   clusters of the beds, and hosts of each: 16 together at most, and so few that processors wait for links
#     SIZES=1,1K,16K,256K OPERATIONS='bcast reduce'   what is measured; LARGE=4M for bcast, reduce and allreduce, or none
#     REPEAT=5-20 SECONDS_EACH=2                      of each row
#     KIND=hockney          or plogp
#     FIGURE=FILE           predicted over measured, as SVG;  KEEP=DIRECTORY: models and tables stay there (from where it is called)
#
# Every host stands alone behind 20 Mbit/s out and as much in, 1 ms from the others of its cluster. Between clusters it is 5 to 12 ms and
# 4 to 16 Mbit/s for each pair of hosts. Every operation runs by every algorithm of the pool, and by what the model chooses. A
# bed whose processor was busy for more than 60 % of the time (what others do at a nice value is not counted, since it waits),
# or whose packets were late, is void. Ends with 0 unless something could not be measured.
set -u
caller=$PWD
cd "$(dirname "$0")/../.." || exit 1
export BED_BUILD
BED_BUILD=$(realpath "${1:-build}")
bed=$PWD/tests/net/bed gcbench=$BED_BUILD/gcbench
: "${NETWORKS:=1x8 2x4 4x3}" "${SIZES:=1,1K,16K,256K}" "${LARGE=4M}" "${REPEAT:=5-20}" "${SECONDS_EACH:=2}" "${KIND:=hockney}"
: "${OPERATIONS:=barrier bcast scatter gather allgather alltoall reduce allreduce reduce_scatter scan exscan}" "${FIGURE:=}" "${KEEP:=}"
BUSY_MOST=60
work=$(mktemp -d)
here() { case $1 in '' | /*) printf %s "$1" ;; *) printf %s "$caller/$1" ;; esac; }
FIGURE=$(here "$FIGURE") KEEP=$(here "$KEEP")
[ -z "$KEEP" ] || mkdir -p "$KEEP" || exit 2
failed=0 B=
bed_down() { [ -z "$B" ] || "$bed" down "$B"; B=; }
trap 'bed_down; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

if [ "$(id -u)" != 0 ]; then
    echo 'bench_model.sh: not measured: network namespaces need root' >&2
    exit 1
fi

for network in $NETWORKS; do
    [[ $network =~ ^[1-8]x[1-9][0-9]?$ ]] || { echo "bench_model.sh: $network: 4x3 are 4 clusters of 3 hosts" >&2; exit 2; }
done

latency=(5 8 12 6 10 7) rate=(16 8 4 12 6 10)   # of the pairs of clusters in turn, ms and Mbit/s
lay_out() { # clusters, hosts of each: the description of a bed
    local i k pair=0 of=$2 letters=abcdefgh a b
    for i in $(seq 0 $(($1 * of - 1))); do
        a=${letters:i / of:1}
        echo "site $a$((i % of)): switch lan 10.$((i + 1)).0.0/24"
        echo "site $a$((i % of)): uplink rate 20mbit queue 256KiB"
        echo "site $a$((i % of)): downlink rate 20mbit queue 256KiB"
        echo "host $a$((i % of))h on $a$((i % of))/lan cluster $a"
    done
    echo 'wan * *: latency 1ms'
    for a in $(seq 0 $(($1 - 1))); do
        for b in $(seq $((a + 1)) $(($1 - 1))); do
            for i in $(seq 0 $((of - 1))); do
                for k in $(seq 0 $((of - 1))); do
                    echo "wan ${letters:a:1}$i ${letters:b:1}$k: latency ${latency[pair % 6]}ms rate ${rate[pair % 6]}mbit queue 256KiB"
                done
            done
            pair=$((pair + 1))
        done
    done
}
ticks() { awk '$1 == "cpu" { print $2 + $4 + $7 + $8 + $9, $3 + $5 + $6 }' /proc/stat; }       # busy; idle, or nice: at hand at once
say() { grep -v '^\[[0-9]*\] *$' "$work/err" | tail -n 3 | sed 's/^/    | /'; }
job() { # seconds, gcbench's arguments: a job over the bed
    timeout -k 5 "$1" "$bed" gcrun "$B" -n "$ranks" "$gcbench" "${@:2}" >>"$work/err" 2>&1 </dev/null
}
measure() { # name, sizes, operations: adds rows to the table
    # shellcheck disable=SC2086  # words
    job 3600 --model "$work/$1.model" --choose --algorithms all,- --sizes "$2" --repeat "$REPEAT" --seconds "$SECONDS_EACH" \
        --form csv --output "$work/rows" $3 && cat "$work/rows" >>"$work/$1.csv"
}
network() { # 4x3
    local name=$1 ranks=$((${1/x/*})) idle busy begun=$SECONDS
    lay_out "${1%x*}" "${1#*x}" >"$work/plan"
    : >"$work/err"
    : >"$work/$name.csv"
    B=$($bed up "$work/plan" --owner $$) || return
    job 120 --fit "$work/$name.model" --kind "$KIND" || { say; return 1; }
    echo "$name: $ranks hosts, a model by point-to-point in $((SECONDS - begun)) s"
    $bed reset "$B"
    read -r busy idle < <(ticks)
    if ! measure "$name" "$SIZES" "$OPERATIONS" || { [ -n "$LARGE" ] && ! measure "$name" "$LARGE" "bcast reduce allreduce"; }; then
        say
        return 1
    fi
    [ -z "$KEEP" ] || cp "$work/$name.model" "$work/$name.csv" "$KEEP"
    ticks | awk -v busy="$busy" -v idle="$idle" -v most=$BUSY_MOST '{ busy = $1 - busy; idle = $2 - idle; share = 100 * busy / (busy + idle)
        void = share > most
        printf("    processor %.0f %%%s\n", share, void ? ": VOID, it is the limit" : ""); exit void }' &&
        $bed late "$B" | sed 's/^/    /' && $bed late "$B" >/dev/null
}
tables=()
for network in $NETWORKS; do
    if network "$network"; then tables+=("$work/$network.csv"); else echo "$network: NOT MEASURED"; failed=1; fi
    bed_down
done
[ ${#tables[@]} = 0 ] || tests/net/predicted.py ${FIGURE:+--figure "$FIGURE"} "${tables[@]}" || failed=1
exit $failed
