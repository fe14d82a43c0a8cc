#!/bin/bash
# apps.sh [BUILD]: the applications of examples/ between sites of a test bed (root), with the hierarchy and without it.
# SPDX-License-Identifier: MIT
#
#     RANKS=10 SITES='1 2 4'   beds: so many sites, over which the ranks are spread, a host for each
#     ASP=1000 QR=400          sizes of the two problems
#     ROUNDS=3                 runs behind a time, of which the median is taken
#     LATENCY=10ms RATE=1MB/s  of the link between each two sites: those of papers/002, chapter 4
#
# Without the hierarchy means that the two operations which the applications are made of go along trees that do not know the
# sites: "rules", those that gridcomm takes within one site, and "binomial" for both, as MPICH had them in papers/002.
# Messages and payload are counted by gridcomm at every rank, from the start of the computation to its end; "crossed" are the
# bytes that the emulator let through from one site to another in the whole job, with start and collection of the result.
# Prints a table for docs/collectives.md. Ends with 0 unless something could not be measured.
set -u
cd "$(dirname "$0")/../.." || exit 1
export BED_BUILD
BED_BUILD=$(realpath "${1:-build}")
bed=$PWD/tests/net/bed
: "${RANKS:=10}" "${SITES:=1 2 4}" "${ASP:=1000}" "${QR:=400}" "${ROUNDS:=3}" "${LATENCY:=10ms}" "${RATE:=1MB/s}" "${LIMIT:=300}"
letters=(a b c d e f g h)
work=$(mktemp -d)
failed=0 B=''
trap '[ -z "$B" ] || $bed down "$B"; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

if [ "$(id -u)" != 0 ]; then
    echo 'apps.sh: not measured: network namespaces need root' >&2
    exit 1
fi

build_bed() { # sites
    local i k n
    [ -z "$B" ] || $bed down "$B"
    for i in $(seq 0 $(($1 - 1))); do
        n=$((RANKS / $1 + (i < RANKS % $1)))
        echo "site ${letters[i]}: switch lan 10.$((i + 1)).0.0/24 rate 1gbit"
        for k in $(seq $n); do echo "host ${letters[i]}$k on ${letters[i]}/lan"; done
    done >"$work/plan"
    [ "$1" = 1 ] || echo "wan * *: latency $LATENCY rate $RATE queue 64KiB" >>"$work/plan"
    B=$($bed up "$work/plan" --owner $$) || exit 1
}
ways() { # sites: name=algorithms
    echo 'hierarchy='
    [ "$1" = 1 ] || echo 'rules=bcast:binomial,allreduce:knomial:8 binomial=bcast:binomial,allreduce:binomial'
}
once() { # program, size, algorithms: "s messages payload crossed"
    [ ! -s "$work/wan" ] || $bed reset "$B"
    GRIDCOMM_ALGO=$3 timeout -k 5 "$LIMIT" "$bed" gcrun "$B" -n "$RANKS" --no-prefix "$BED_BUILD/examples/$1" "$2" \
        >"$work/out" 2>"$work/err" </dev/null || return
    $bed bytes "$B" | grep '^wan ' >"$work/wan"
    awk '{ for (i = 4; i < NF; i++) if ($i == "bytes") sum += $(i + 1) } END { printf "%d\n", sum }' "$work/wan" >"$work/crossed"
    sed -nE 's/.*; ([0-9.]+) s, wide area: ([0-9]+) messages, ([0-9]+) bytes$/\1 \2 \3/p' "$work/out" |
        awk -v c="$(cat "$work/crossed")" 'NF == 3 { print $0, c; found = 1 } END { exit !found }'
}
median() { sort -g | awk '{ v[NR] = $1 } END { if (NR) print v[int((NR + 1) / 2)] }'; }
row() { # program, size, sites, way, algorithms
    local t
    for _ in $(seq "$ROUNDS"); do once "$1" "$2" "$5" || break; done >"$work/runs"
    if [ "$(wc -l <"$work/runs")" != "$ROUNDS" ]; then
        echo "$1, $3 clusters, $4: NOT MEASURED"
        tail -n 3 "$work/err" | sed 's/^/    | /'
        failed=1
        return
    fi
    t=$(cut -d' ' -f1 "$work/runs" | median)
    [ "$4" != hierarchy ] || echo "$t" >"$work/base"
    awk -v what="$1 $2" -v sites="$3" -v way="$4" -v t="$t" -v base="$(cat "$work/base")" '
        { differs = differs || (NR > 1 && ($2 != messages || $3 != payload)); messages = $2; payload = $3; crossed = $4 }
        END { printf "| %s | %s | %s | %.2f | %.2f | %d | %.2f | %.2f |%s\n", what, sites, way, t, t / base, messages,
                     payload / 1e6, crossed / 1e6, (differs ? " messages differ" : "") void }' \
        void="$([ "$3" = 1 ] || $bed late "$B" >/dev/null || echo ' packets were late')" "$work/runs"
}

echo "$RANKS ranks, $LATENCY and $RATE between two sites; $(uname -sr), $(nproc) cores," \
    "load before: $(cut -d' ' -f1 /proc/loadavg)"
echo
echo '| application | clusters | algorithms | time, s | x the hierarchy | wide-area messages | payload, MB | crossed, MB |'
echo '|---|---|---|---|---|---|---|---|'
for sites in $SITES; do
    build_bed "$sites"
    for app in "asp $ASP" "qr $QR"; do
        for way in $(ways "$sites"); do row "${app% *}" "${app#* }" "$sites" "${way%%=*}" "${way#*=}"; done
    done
done
exit $failed
