#!/bin/sh
# run.sh BUILD SECONDS TARGET...: fuzzes each target for so long, as many at a time as there are processors. What it finds
# new stays in BUILD/fuzz/corpus/TARGET; an input that fails is kept beside the target, and its file named. FUZZ_SEED=n: a
# run that begins without a corpus goes the same way each time. Closes with "N passed, N failed".
# SPDX-License-Identifier: MIT
set -u
build=$1 seconds=$2
shift 2
here=tests/fuzz
at_once=$(nproc 2>/dev/null || echo 1)
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

# Addresses that differ from run to run lead libFuzzer different ways.
same=
[ -z "${FUZZ_SEED:-}" ] || ! setarch -R true 2>/dev/null || same='setarch -R'

# fuzz TARGET: leaves LOGS/TARGET.ok if nothing was found.
fuzz() {
    corpus=$build/fuzz/corpus/$1
    mkdir -p "$corpus"
    seeds=$here/corpus/$1
    [ -d "$seeds" ] || seeds=
    # -timeout: one input; -rss_limit_mb: a length that was believed shows as memory.
    timeout -k 10 $((seconds + 60)) $same "$build/fuzz/$1" -max_total_time="$seconds" -seed="${FUZZ_SEED:-0}" -timeout=10 -rss_limit_mb=1024 \
        -print_final_stats=1 -artifact_prefix="$build/fuzz/$1." "$corpus" $seeds >"$logs/$1" 2>&1 && : >"$logs/$1.ok"
}

started=0
for target in "$@"; do
    fuzz "$target" &
    started=$((started + 1))
    [ $((started % at_once)) -ne 0 ] || wait
done
wait

passed=0 failed=0
for target in "$@"; do
    if [ -e "$logs/$target.ok" ]; then
        passed=$((passed + 1))
        awk -v target="$target" '/number_of_executed_units/ { n = $2 } /peak_rss_mb/ { m = $2 }
            END { printf "ok   %-20s %d inputs, peak memory %d MB\n", target, n, m }' "$logs/$target"
    else
        failed=$((failed + 1))
        echo "FAIL $target"
        tail -n 40 "$logs/$target" | sed 's/^/    | /'
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
