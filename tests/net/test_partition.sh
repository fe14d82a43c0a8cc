#!/bin/bash
# test_partition.sh: networks that fall apart, and processes that die or stop: scenes, and random ones.
# SPDX-License-Identifier: MIT
#
# MINUTES=N of random ones (none), with new seeds, or SEED=N and those that follow. time limit: 900 s, unless run by itself
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/net/common.sh
unset "${!GRIDCOMM_@}"
for program in "$BED_BUILD/gcrun" "$tools/survivors"; do
    [ -x "$program" ] || { skip 'networks that fall apart' "$program is not built"; close; }
done

counted() { # command...: its closing totals are added here
    "$@" | tee "$work/said"
    read -r p f < <(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p' "$work/said")
    passed=$((passed + ${p:-0})) failed=$((failed + ${f:-1}))
}
counted tests/net/partition.py scenes
[ -z "${MINUTES:-}" ] || counted tests/net/partition.py --minutes "$MINUTES" ${SEED:+--first "$SEED"}
close
