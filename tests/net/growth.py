#!/usr/bin/env python3
# growth.py: by how much the processes of a job grow.
#
# SPDX-License-Identifier: MIT
"""usage: growth.py BED WHAT COUNT
waits until COUNT processes on the bed's hosts are called WHAT, then looks how much resident memory each has (VmRSS) until
none is called so any more. Prints for the one that grew most: KiB of growth, KiB at first, samples taken."""

import os, subprocess, sys, time

PATIENCE = 120      # s, for all to be called so
EVERY = 0.02        # s

def members(bed, what):
    out = subprocess.run([os.path.join(os.path.dirname(os.path.realpath(__file__)), 'bed'), 'members', bed, what],
                         capture_output=True, text=True).stdout
    return [int(line.split()[0]) for line in out.splitlines()]

def resident(pid, what):
    """KiB, or None when the process is called otherwise or is gone."""
    try:
        with open(f'/proc/{pid}/status') as f:
            fields = dict(line.split(':\t', 1) for line in f if ':\t' in line)
    except (OSError, ValueError):
        return None
    return int(fields['VmRSS'].split()[0]) if fields['Name'].strip() == what and 'VmRSS' in fields else None

def main(bed, what, count):
    end, pids = time.monotonic() + PATIENCE, []
    while len(pids) < count:
        if time.monotonic() > end:
            sys.exit(f'growth.py: {len(pids)} of {count} processes are called {what}')
        pids = members(bed, what)
    first, most, samples = {}, {}, 0
    while pids:
        for pid in list(pids):
            now = resident(pid, what)
            if now is None:
                pids.remove(pid)
                continue
            first.setdefault(pid, now)
            most[pid] = max(most.get(pid, 0), now)
            samples += 1
        time.sleep(EVERY)
    if not first:
        sys.exit('growth.py: too late')
    pid = max(first, key=lambda p: most[p] - first[p])
    print(most[pid] - first[pid], first[pid], samples)

if len(sys.argv) != 4:
    sys.exit(__doc__)
main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
