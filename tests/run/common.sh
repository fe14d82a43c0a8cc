# common.sh: what the scripts of this directory share: a temporary directory, which is the current one from here on, an
# environment without a job, and how tests are reported. Sourced first.
# SPDX-License-Identifier: MIT
#
# A test is a command (check), or stands between begin and end, where all that is wrong is collected. What its programs say is
# in the files out and err, which are shown when it fails, and with them those that `shown` names; those that `stale` names
# are removed before the next. `kept`, set before this file is read, is a pattern of variables that stay in the environment.
# shellcheck shell=bash disable=SC2034  # not all are used here
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${BUILD:-build}" && pwd)
dir=$(mktemp -d)
pid='' own=''                   # of what was started last, of all that may still run
at_exit() { for p in $own; do kill -9 "$p"; done 2>/dev/null; rm -rf "$dir"; }
trap at_exit EXIT
cd "$dir" || exit 1
for name in $(compgen -e | grep -E '^(GRIDCOMM_|RANK$|WORLD_SIZE$|MASTER_|PMI|SLURM|HYD)' | grep -vE "${kept:-^$}"); do
    unset "$name"
done
passed=0 failed=0 skipped=0 case='' bad='' shown='' stale='' status=0
gone_s=3                        # from the end of a job to that of the last process

# Every rank that should be gone carries this number on its command line.
mark=4$$
printf '%s' "$mark" >mark

# ---- reports

show() { local f; for f in out err $shown; do grep -v '^ok  ' "$f" 2>/dev/null | sed "s/^/       $f: /" | tail -n 20; done; }
good() { passed=$((passed + 1)); echo "ok   $1"; }
bad() { failed=$((failed + 1)); echo "FAIL $1${2:+: $2}"; show; } # what, why
skip() { skipped=$((skipped + 1)); echo "skip $1: $2"; }
close() {
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ] && { [ "$skipped" -eq 0 ] || [ "${CI:-}" != true ]; }
    exit
}
check() { # what, command...: good if the command succeeds
    local what=$1
    shift
    if "$@"; then good "$what"; else bad "$what"; fi
}
# shellcheck disable=SC2086  # a list
begin() { case=$1 bad=''; rm -f $stale; : >out; : >err; }
wrong() { bad="$bad${bad:+; }$*"; }
end() { if [ -z "$bad" ]; then good "$case"; else bad "$case" "$bad"; fi; }
need() { # PROGRAM...
    local program
    for program; do [ -x "$program" ] || { bad "$program is not there" 'make test builds it'; close; }; done
}

# ---- what programs said

has() { grep -q -e "$1" out; }
counts() { [ "$(grep -c -e "$1" out)" -eq "$2" ]; }
want_status() { [ "$status" -eq "$1" ] || wrong "status $status, not $1"; }
want_err() { grep -q -e "$1" err || wrong "no '$1' in the errors"; }

# ---- processes

now_ms() { echo $(($(date +%s%N) / 1000000)); }
alive() { [ -d "/proc/$1" ] && ! grep -q '^[0-9]* (.*) Z' "/proc/$1/stat" 2>/dev/null; }
left() { grep -lsa -f "$dir/mark" /proc/[0-9]*/cmdline | wc -l; }
until_true() { # SECONDS CONDITION...: polls
    local tries=$(($1 * 50)); shift
    while ! eval "$*"; do
        tries=$((tries - 1)); [ $tries -gt 0 ] || return 1
        sleep 0.02
    done
}
lines() { until_true 20 "[ \"\$(grep -c '${2:-}' out)\" -ge $1 ]" || wrong "fewer than $1 lines${2:+ of '$2'}"; } # N [PATTERN]
wait_for() { # SECONDS PID: its status; the shell would tell of its death
    until_true "$1" "! alive $2" || { wrong "still there after $1 s"; kill -9 "$2"; }
    { wait "$2"; status=$?; } 2>/dev/null
    own=${own/ $2/}
}
finish() { wait_for "$1" "$pid"; } # SECONDS
want_nothing_left() { until_true "${1:-$gone_s}" '[ "$(left)" -eq 0 ]' || wrong "$(left) processes left"; } # [SECONDS]
two_clusters() { # RANKS: the file hosts; one rank is in one
    printf 'localhost slots=%d cluster=a\n' $((($1 + 1) / 2)) >hosts
    [ "$1" -lt 2 ] || printf 'localhost slots=%d cluster=b\n' $(($1 / 2)) >>hosts
}
