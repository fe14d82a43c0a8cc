#!/bin/bash
# test_attacks.sh: jobs under attack, by strangers and by a rank that lies: a table in attacker.c, a job for each line.
# time limit: 400 s
# SPDX-License-Identifier: MIT
set -u
. "$(dirname "$0")/common.sh"
need "$build/tests/run/attacker"
timeout -k 5 380 "$build/tests/run/attacker"
exit $?
