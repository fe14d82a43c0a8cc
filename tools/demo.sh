#!/bin/sh
# demo.sh BUILD_DIR: the main job on this machine: 8 processes in 2 declared clusters greet, send a message round a ring,
# copy a file of random bytes to everyone and add up vectors. What `make demo` runs.
# SPDX-License-Identifier: MIT
set -eu
build=$(cd "${1:-build}" && pwd)
megabytes=16
limit=120   # seconds for each step: none takes more than a few

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP
printf '%s\n' '# two clusters of four ranks, both on this machine' \
    'localhost slots=4 cluster=a' 'localhost slots=4 cluster=b' >"$dir/hosts"

step() { # TITLE PROGRAM ARGUMENTS...: runs it, shows its output and its command line
    title=$1 program=$2; shift 2
    printf '\n%s\n    $ gcrun -H hosts %s\n' "$title" "$program${*:+ }$*"
    if timeout "$limit" "$build/gcrun" -H "$dir/hosts" --wdir "$dir" --no-prefix "$build/examples/$program" "$@" >"$dir/out" 2>&1 </dev/null
    then sort_ranks <"$dir/out" | sed 's/^/    /'
    else
        status=$?
        sed 's/^/    /' "$dir/out"
        printf '\nThe demo failed in this step (status %d).\n' "$status"
        exit 1
    fi
}
sort_ranks() { # "rank N ..." in order of N, the rest behind
    awk '$1 == "rank" { n = $2 + 0; line[n] = line[n] $0 "\n"; if (n > last) last = n; next } { rest = rest $0 "\n" }
         END { for (i = 0; i <= last; i++) printf "%s", line[i]; printf "%s", rest }'
}

echo 'gridcomm demo: 8 processes on this machine. The host file:'
sed 's/^/    /' "$dir/hosts"

step 'Hello: who is where' hello
step 'Ring: a message from rank to rank, every byte checked at every hop' ring 100 1000

head -c $((megabytes * 1000000)) /dev/urandom >"$dir/file"
step "Broadcast: a file of $megabytes MB of random bytes from rank 0 to everyone" bcast_file file copy.%r
same=0
for rank in 0 1 2 3 4 5 6 7; do cmp -s "$dir/file" "$dir/copy.$rank" && same=$((same + 1)); done
echo "    $same of 8 copies are identical to the file"
[ $same -eq 8 ] || exit 1

step 'Allreduce: the sum of 8 vectors at every rank' allreduce 10000
printf '\nAll of it worked.\n'
