#!/bin/sh
# coverage.sh BUILD TARGET...: how much of its parser each target has reached, with the corpus that `make fuzz` left; 80 % of
# the lines are asked for. A target says in a comment what it covers: "covers: FILE NAME-REGEX", the functions of a file.
# SPDX-License-Identifier: MIT
set -u
build=$1
shift
: "${LLVM_COV:=llvm-cov}" "${LLVM_PROFDATA:=llvm-profdata}"
least=80 passed=0 failed=0
for target in "$@"; do
    program=$build/fuzz-coverage/$target
    corpus=$build/fuzz/corpus/$target
    seeds=tests/fuzz/corpus/$target
    mkdir -p "$corpus"
    [ -d "$seeds" ] || seeds=
    # Without a corpus some seconds of fuzzing make one.
    runs=-runs=0
    [ -n "$(ls -A "$corpus")" ] || runs=-max_total_time=20
    LLVM_PROFILE_FILE=$program.profraw timeout 120 "$program" $runs "$corpus" $seeds >"$program.log" 2>&1 ||
        { tail -n 20 "$program.log"; failed=$((failed + 1)); continue; }
    "$LLVM_PROFDATA" merge -sparse "$program.profraw" -o "$program.profdata" || exit 1
    sed -n 's/.*covers: *\([a-z_0-9./]*\.c\) *\([^ *]*\).*/\1 \2/p' "tests/fuzz/$target.c" >"$program.covers"
    [ "$target" != fuzz_hostfile ] || echo 'tools/gcrun_hosts.c .' >"$program.covers"     # a file that is a parser
    [ -s "$program.covers" ] || { echo "FAIL $target: no line 'covers: FILE REGEX'"; failed=$((failed + 1)); continue; }
    while read -r file names; do
        "$LLVM_COV" report "$program" -instr-profile="$program.profdata" -show-functions "$file" 2>/dev/null |
            awk -v names="${names:-.}" '{ name = $1; sub(/.*:/, "", name) } name ~ names'
    done <"$program.covers" >"$program.report"
    # Columns: name, regions, missed, cover, lines, missed, cover, ...
    if awk -v target="$target" -v least=$least 'NF >= 7 && $5 ~ /^[0-9]+$/ && $1 != "TOTAL" { lines += $5; missed += $6
            if ($6 > 0) { sub(/.*:/, "", $1); part = part "\n    | " $1 ": " $6 " of " $5 " lines not reached" } }
        END { if (!lines) { print "FAIL " target ": no such function"; exit 1 }
              share = 100 * (lines - missed) / lines
              printf "%-4s %-20s %.0f %% of %d lines%s\n", share < least ? "FAIL" : "ok", target, share, lines, part
              exit share < least }' "$program.report"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
