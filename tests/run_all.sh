#!/bin/sh
# run_all.sh PROGRAM...: runs cmocka programs and test scripts (*.sh) one after another, each with a time limit, and
# closes with cmocka's totals and one line "N passed, N failed, N skipped".
# SPDX-License-Identifier: MIT
#
# A script closes with such a line of its own and finds BUILD, CC and SAN in its environment. A program that crashes, runs
# out of time, or runs no test at all counts as one failure. A program that may take longer than TIME_LIMIT says so in
# its source, in a comment: "time limit: 600 s". In CI (CI=true) a skipped test fails the run.
set -u
unset MAKEFLAGS MFLAGS MAKELEVEL # a script that calls make is no part of this one
: "${BUILD:=build}" "${TIME_LIMIT:=300}"
export BUILD
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Race reports need a fixed address layout on kernels with much randomness.
run=
case ${SAN:-} in *thread*) setarch -R true 2>/dev/null && run="setarch -R" ;; esac
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=1:detect_stack_use_after_return=0}"
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
    echo "${own:-$TIME_LIMIT}"
}

passed=0 failed=0 skipped=0 c_passed=0 c_failed=0 c_skipped=0 bad=
for test in "$@"; do
    name=${test#"$BUILD"/}
    name=${name#tests/}
    limit=$(limit_of "$test")
    start=$(date +%s%N)
    case $test in
        *.sh) timeout -k 10 "$limit" bash "$test" </dev/null >"$log" 2>&1; status=$? ;;
        *) timeout -k 10 "$limit" $run "$(realpath "$test")" </dev/null >"$log" 2>&1; status=$?
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
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    case $test in *.sh) ;; *) c_passed=$((c_passed + p)) c_failed=$((c_failed + f)) c_skipped=$((c_skipped + s)) ;; esac

    ms=$(((end - start) / 1000000))
    word=ok
    [ "$f" -eq 0 ] || { word=FAIL; bad="$bad $name"; }
    printf '%-4s %-32s %4d passed, %d failed, %d skipped%s  (%d.%d s)\n' "$word" "$name" "$p" "$f" "$s" "$why" \
        $((ms / 1000)) $((ms % 1000 / 100))
    [ "$f" -eq 0 ] || { grep -vE '^(ok  |\[       OK \])' "$log" | sed 's/^/    | /' | tail -n "${LOG_LINES:-80}"; }
    [ "$s" -eq 0 ] || grep -E '^(\[  SKIPPED \] [A-Za-z_]|skip)' "$log" | sort -u | sed 's/^/    | /' | head -n 5
done

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
