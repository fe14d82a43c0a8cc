#!/bin/bash
# test_attacks.sh: the attacks of tests/run/attacker.c across hosts and sites: the liar and the stranger each at a site of its own,
# the victim and who must not be harmed at two.
# SPDX-License-Identifier: MIT
#
# time limit: 400 s
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/net/common.sh
attacker=$BED_BUILD/tests/run/attacker
unset "${!GRIDCOMM_@}"
[ -x "$attacker" ] || { skip 'attacks on the test bed' "$attacker is not built"; close; }

A=at-$$
cat >"$work/sites" <<END
site a: switch lan 198.18.1.0/24
site b: switch lan 198.18.2.0/24
site l: switch lan 198.18.3.0/24
site s: switch lan 198.18.4.0/24
host a1 a2 on a/lan
host b1 on b/lan
host l1 on l/lan
host s1 on s/lan
wan * *: latency 5ms
END
check 'hosts at four sites' up "$work/sites" "$A"
timeout -k 5 380 "$attacker" --bed "/run/gridcomm-bed/$A" \
    a1 198.18.1.1 a2 198.18.1.2 b1 198.18.2.1 l1 198.18.3.1 s1 198.18.4.1 >"$work/attacks" 2>&1
while read -r word what; do
    case $word in
    ok) echo "ok      $what"; passed=$((passed + 1)) ;;
    FAIL) echo "FAILED  $what"; failed=$((failed + 1)) ;;
    *) echo "        | $word $what" ;;
    esac
done <"$work/attacks"
check 'the table came to its end' grep -q ' failed, 0 skipped$' "$work/attacks"
check 'it is removed' $bed down "$A"
close
