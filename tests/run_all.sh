#!/bin/sh
# run_all.sh PROGRAM...: runs cmocka programs and test scripts (*.sh), each with a time limit, and closes with cmocka's
# totals and one line "N passed, N failed, N skipped". What knows no real time and no real network runs first, as many at
# once as there are cores; the others one after another.
# SPDX-License-Identifier: MIT
#
# A script closes with such a line of its own and finds BUILD, CC and SAN in its environment. A program that crashes, runs
# out of time, or runs no test at all counts as one failure. A program that may take longer than TIME_LIMIT says so in
# its source, in a comment: "time limit: 600 s". In CI (CI=true) a skipped test fails the run.
set -u
unset MAKEFLAGS MFLAGS MAKELEVEL # a script that calls make is no part of this one
: "${BUILD:=build}" "${TIME_LIMIT:=300}"
export BUILD TIME_LIMIT

# Race reports need a fixed address layout on kernels with much randomness.
run=
case ${SAN:-} in *thread*) setarch -R true 2>/dev/null && run="setarch -R" ;; esac
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=1:detect_stack_use_after_return=0:allocator_may_return_null=1}" # as malloc does
export UBSAN_OPTIONS="${UBSAN_OPTIONS:-print_stacktrace=1}"
export TSAN_OPTIONS="${TSAN_OPTIONS:-halt_on_error=0:second_deadlock_stack=1}"

# What a log says: "passed failed skipped run". cmocka's summary may carry the group's name before the number.
count() {
    awk '/^\[==========\].* test\(s\) run\.$/ { cmocka = 1; ran += number() }
         /^\[       OK \] / { fine++ }
         /^\[  PASSED  \].* test\(s\)\.$/ { passed += number() }
         /^\[  FAILED  \].* test\(s\), listed/ { failed += number() }
         /^\[  SKIPPED \].* test\(s\), listed/ { skipped += number() }
         /^\[  ERROR   \].* test\(s\), listed/ { failed += number() }
         /^[0-9]+ passed, [0-9]+ failed(, [0-9]+ skipped)?$/ { last = $0 }
         function number(    i) { for (i = NF; i > 1; i--) if ($i ~ /^test\(s\)/) return $(i - 1); return 0 }
         END { if (!cmocka && last != "") { split(last, word, /[ ,]+/)
                   passed = word[1]; failed = word[3]; skipped = word[5] }
               else if (!cmocka) passed = fine     # it crashed on the way
               printf "%d %d %d\n", passed, failed, skipped }' "$1"
}

limit_of() { # the source's own time limit, or the common one
    case $1 in
        *.sh) source=$1 ;;
        *) source=tests/${1#"$BUILD"/tests/}.c; source=$(echo "$source" | sed 's,/api-[a-z]*/,/api/,') ;;
    esac
    own=$(sed -n 's/.*[Tt]ime limit: \([0-9][0-9]*\) s.*/\1/p' "$source" 2>/dev/null | head -n 1)
    if [ "${own:-0}" -gt "$TIME_LIMIT" ]; then echo "$own"; else echo "$TIME_LIMIT"; fi
}

run_one() { # totals, test: prints how it went, and adds a line to totals: "NAME scripts|programs PASSED FAILED SKIPPED"
    totals=$1 test=$2 name=${2#"$BUILD"/} log=$(mktemp) report=$(mktemp) kind=programs
    name=${name#tests/}
    limit=$(limit_of "$test")
    start=$(date +%s%N)
    case $test in
        *.sh) kind=scripts; timeout -k 10 "$limit" bash "$test" </dev/null >"$log" 2>&1; status=$? ;;
        *) timeout -k 10 "$limit" $run "$(realpath "$test")" </dev/null >"$log" 2>&1; status=$? ;;
    esac
    end=$(date +%s%N)
    read -r p f s <<END
$(count "$log")
END
    why=
    case $status in
        0) [ $((p + f + s)) -gt 0 ] || { f=1; why=', ran no test'; } ;;
        124 | 137) f=$((f + 1)); why=", stopped after $limit s" ;;
        *) [ "$f" -gt 0 ] || { f=1; why=", ended with status $status"; } ;;
    esac
    ms=$(((end - start) / 1000000))
    word=ok
    [ "$f" -eq 0 ] || word=FAIL
    {
        printf '%-4s %-32s %4d passed, %d failed, %d skipped%s  (%d.%d s)\n' "$word" "$name" "$p" "$f" "$s" "$why" \
            $((ms / 1000)) $((ms % 1000 / 100))
        [ "$f" -eq 0 ] || { grep -vE '^(ok  |\[       OK \])' "$log" | sed 's/^/    | /' | tail -n "${LOG_LINES:-80}"; }
        [ "$s" -eq 0 ] || grep -E '^(\[  SKIPPED \] [A-Za-z_]|skip)' "$log" | sort -u | sed 's/^/    | /' | head -n 5
    } >"$report"
    cat "$report"
    echo "$name $kind $p $f $s" >>"$totals"
    rm -f "$log" "$report"
}
if [ "$1" = --one ]; then # of those that run at once
    run_one "$2" "$3"
    exit
fi

totals=$(mktemp) || exit 1
trap 'rm -f "$totals"' EXIT
at_once() { case $1 in */unit/* | */sim/* | */api-sim/*) ;; *) return 1 ;; esac; }
for test in "$@"; do ! at_once "$test" || echo "$test"; done | xargs -r -P "$(nproc)" -n 1 sh "$0" --one "$totals"
for test in "$@"; do at_once "$test" || run_one "$totals" "$test"; done

sum() { awk -v kind="$1" -v n="$2" '$2 ~ kind { all += $n } END { print all + 0 }' "$totals"; }
passed=$(sum . 3) failed=$(sum . 4) skipped=$(sum . 5) bad=$(awk '$4 > 0 { printf " %s", $1 }' "$totals")
c_passed=$(sum programs 3) c_failed=$(sum programs 4) c_skipped=$(sum programs 5)
[ "$(wc -l <"$totals")" = $# ] || { failed=$((failed + 1)); bad="$bad (some did not run)"; }
echo
[ -z "$bad" ] || echo "failed:$bad"
echo "[==========] $((c_passed + c_failed + c_skipped)) test(s) run."
echo "[  PASSED  ] $c_passed test(s)."
[ "$c_skipped" -eq 0 ] || echo "[  SKIPPED ] $c_skipped test(s)."
[ "$c_failed" -eq 0 ] || echo "[  FAILED  ] $c_failed test(s)."
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] || exit 1
[ "$passed" -gt 0 ] || { echo 'no test was run' >&2; exit 1; }
if [ "${CI:-}" = true ] && [ "$skipped" -gt 0 ]; then
    echo 'a skipped test is a failure in CI' >&2
    exit 1
fi
