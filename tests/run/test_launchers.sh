#!/bin/bash
# test_launchers.sh: programs started by others' launchers: MPICH's mpiexec.hydra, here and on two hosts of the test bed, and
# srun of a Slurm that runs on those hosts, out of a temporary directory, for the time of this script. time limit: 180 s
# SPDX-License-Identifier: MIT
#
# The bed needs root and TUN; without them that part is skipped, which in CI (CI=true) is a failure.
set -u
. "$(dirname "$0")/common.sh"
bed=$here/../net/bed B=tl-$$    # its program, and its name
run=$build/tests/run examples=$build/examples
# Backwards, as they need each other. A slurmd that waits for a step that cannot report any more is not waited for.
at_exit() {
    local p latest_first=
    for p in $own; do latest_first="$p $latest_first"; done
    for p in $latest_first; do
        kill "$p" 2>/dev/null
        until_true 3 "! alive $p" || kill -9 "$p"
    done
    [ ! -d "/run/gridcomm-bed/$B" ] || $bed down "$B"
    rm -rf "$dir"
}
chmod 755 "$dir"
stale='go stop'

job() { # SECONDS COMMAND...: leaves status and ms
    local since limit=$1
    shift
    since=$(now_ms)
    timeout -k 5 "$limit" "$@" >out 2>err </dev/null
    status=$?
    ms=$(($(now_ms) - since))
}
want_failed() { [ "$status" -ne 0 ] && [ "$status" -ne 124 ] || wrong "status $status"; }
want_within() { [ "$ms" -le "$1" ] || wrong "$ms ms, more than $1"; }
want_out() { has "$1" || wrong "no '$1'"; }
want_ranks() { # N: each has said who it is
    [ "$(sort -u out | grep -c "^rank [0-9]* of $1 ")" -eq "$1" ] || wrong "not $1 ranks"
    want_out "^all $1 ranks are here: hosts: ${2:-1},"
}
died_ms=3000                    # from a death to the end of the launcher
[ -z "${SAN:-}" ] || died_ms=10000

need "$run/failing" "$run/launched" "$examples/hello" "$examples/ring"

# ---- mpiexec.hydra ---------------------------------------------------------------------------------------------------

if ! hydra=$(command -v mpiexec.hydra); then
    bad 'mpiexec.hydra is not there' 'sh tests/need.sh test installs it'
    close
fi

for n in 1 2 8; do
    begin "mpiexec.hydra: hello and ring, $n ranks"
    job 20 "$hydra" -n $n "$examples/hello"; want_status 0; want_ranks $n
    job 20 "$hydra" -n $n "$examples/ring" 10 1000; want_status 0; want_out "every byte right"
    end
    begin "mpiexec.hydra -pmi-port: hello and ring, $n ranks"
    job 20 "$hydra" -pmi-port -n $n "$examples/hello"; want_status 0; want_ranks $n
    job 20 "$hydra" -pmi-port -n $n "$examples/ring" 10 1000; want_status 0; want_out "every byte right"
    end
done

begin 'a key of the user is not told by the launcher, and one that only some have is an error'
job 20 "$hydra" -n 2 -genv GRIDCOMM_KEY mine "$examples/hello"; want_status 0; want_ranks 2
job 20 "$hydra" -n 1 env GRIDCOMM_KEY=mine "$examples/hello" : -n 1 "$examples/hello"
want_failed; want_err 'rank 0 has been given a key'; want_within 8000
job 20 "$hydra" -n 1 "$examples/hello" : -n 1 env GRIDCOMM_KEY=mine "$examples/hello"
want_failed; want_err 'cannot join the job'; want_within 8000
end

begin 'what GRIDCOMM_ROOT and GRIDCOMM_PORTS say wins'
port=$((16000 + $$ % 16000))
job 20 "$hydra" -n 2 -genv GRIDCOMM_ROOT "127.0.0.1:$port" "$examples/hello"; want_status 0; want_ranks 2
job 20 "$hydra" -n 1 "$examples/hello" : -n 1 env GRIDCOMM_ROOT=127.0.0.1:9 GRIDCOMM_START_TIMEOUT=1 "$examples/hello"
want_failed; want_err '127.0.0.1:9'; want_within 6000
job 20 "$hydra" -n 2 -genv GRIDCOMM_PORTS "$port-$((port + 50))" "$examples/hello"; want_status 0; want_ranks 2
end

begin 'a rank that exits without gc_finalize ends the job, also one that computes'
job 60 "$hydra" -n 13 "$run/failing" compute "$dir" 12 "$mark"
since=$(sed -n 's/.*leaves at //p' out); late=$(($(now_ms) - ${since:-0}))
[ "$late" -le $died_ms ] || wrong "$late ms after that"         # its status is hydra's affair: the rank's was 0
want_nothing_left; end

for how in '' -pmi-port; do
    begin "kill -9 of a rank ends the job${how:+ ($how)}"
    "$hydra" $how -n 8 "$run/failing" loop "$dir" -1 "$mark" >out 2>err </dev/null &
    pid=$! own="$own $!"
    lines 8 ready
    since=$(now_ms); kill -9 "$(sed -n 's/^pid //p' out | sed -n 3p)"
    until_true 20 "! alive $pid" || { wrong 'it goes on'; kill "$pid"; }
    ms=$(($(now_ms) - since)); wait "$pid"; status=$?; own=${own/ $pid/}
    want_failed; want_within $died_ms; want_nothing_left; end
done

begin 'gc_abort: the ranks hear of it, and the first that ends because of it ends the others'
(lines 6 ready; touch go) &
job 40 "$hydra" -n 6 "$run/failing" abort "$dir" -1 "$mark"; wait $!
want_failed; want_out 'met GC_ERR_ABORTED'
job 40 "$hydra" -n 3 "$run/launched" abort "$mark"; want_failed; want_within $((died_ms + 2000))
want_nothing_left; end

begin 'a process that is no rank: the others say so in time'
job 20 "$hydra" -n 1 -env GRIDCOMM_START_TIMEOUT 1 "$examples/hello" : -n 1 true
want_failed; want_err 'not all of the 2 processes have called gc_init'; want_within 5000; end

begin 'a second gc_init says what is the matter, and does no harm'
for when in while after; do
    job 20 "$hydra" -n 3 "$run/launched" $when; want_status 0; want_out 'second: -14 PMI_FD=.* is taken by an earlier gc_init'
done
end

# ---- two hosts with the same docker0, joined by one switch --------------------------------------------------------------

if [ "$(id -u)" != 0 ] || [ ! -c /dev/net/tun ] || [ ! -x "$build/tests/net/enter" ]; then
    skip 'mpiexec.hydra on two hosts, and Slurm' 'needs root, TUN and tests/net'
    close
fi
cat >"$dir/plan" <<END
site a: switch lan 10.1.0.0/24
host a1 a2 on a/lan
host a1 a2: bridge docker0 172.17.0.1/16 carrier
host a1 a2: hosts 10.1.0.1 a1
host a1 a2: hosts 10.1.0.2 a2
END
export BED_BUILD=$build
on=("$build/tests/net/enter" "/run/gridcomm-bed/$B")
begin 'two hosts'; $bed up "$dir/plan" --name "$B" --owner $$ >out 2>err || wrong 'no bed'; end
[ -z "$bad" ] || close

begin 'mpiexec.hydra on two hosts'
printf '#!/bin/sh\n[ "$1" != -x ] || shift\nexec %s --agent %s "$@"\n' "${on[@]}" >"$dir/agent"
chmod +x "$dir/agent"
printf 'a1:2\na2:2\n' >"$dir/hosts"
for how in '' -pmi-port; do
    job 30 "$dir/agent" a1 "$hydra" $how -f "$dir/hosts" -launcher ssh -launcher-exec "$dir/agent" -iface eth0 -n 4 \
        "$examples/hello"
    want_status 0; want_ranks 4 2
done
end

# ---- Slurm on them -----------------------------------------------------------------------------------------------------

# munged, slurmctld and a slurmd for each host, with files of their own. What they fork off are job steps.
start() { # HOST COMMAND...: in the background
    "${on[@]}" "$@" >"$dir/$1.${2##*/}.log" 2>&1 </dev/null &
    own="$own $!"
}
slurm_start() {
    local PATH=$PATH:/usr/sbin:/sbin
    mkdir "$dir/state" "$dir/spool.a1" "$dir/spool.a2" "$dir/munge"
    chmod 755 "$dir/munge"
    head -c 1024 /dev/urandom >"$dir/munge/key"
    chmod 600 "$dir/munge/key"
    cat >"$SLURM_CONF" <<END
ClusterName=gridcomm
SlurmctldHost=a1(10.1.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge/socket
CredType=cred/munge
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool.%n
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
NodeName=a1 NodeAddr=10.1.0.1 CPUs=8
NodeName=a2 NodeAddr=10.1.0.2 CPUs=8
PartitionName=all Nodes=a1,a2 Default=YES
END
    start a1 munged -F --force -S "$dir/munge/socket" --key-file="$dir/munge/key" --pid-file="$dir/munge/pid" \
        --seed-file="$dir/munge/seed" --log-file="$dir/munge/log" --num-threads=1
    until_true 10 "[ -S '$dir/munge/socket' ]" || { echo 'munged does not start'; cat "$dir/a1.munged.log"; return 1; }
    start a1 slurmctld -D -c -f "$SLURM_CONF"
    start a1 slurmd -D -f "$SLURM_CONF"
    start a2 slurmd -D -f "$SLURM_CONF"
    until_true 30 "\"\${on[@]}\" a1 sinfo -h -N -o %t 2>/dev/null | grep -c '^idle' | grep -q 2" && return
    tail -n 10 "$dir"/*.slurm*.log
    return 1
}
srun() { job 30 "${on[@]}" a1 srun "$@"; }

export SLURM_CONF=$dir/slurm.conf
begin 'Slurm starts'; slurm_start >out 2>&1 || wrong 'it does not'; end
[ -z "$bad" ] || close

for n in 1 2 8; do
    begin "srun: hello and ring, $n ranks"
    srun -N 1 -n $n "$examples/hello"; want_status 0; want_ranks $n
    srun -N 1 -n $n "$examples/ring" 10 1000; want_status 0; want_out 'every byte right'
    end
    begin "srun --mpi=pmi2: hello and ring, $n ranks"
    srun --mpi=pmi2 -N 1 -n $n "$examples/hello"; want_status 0; want_ranks $n
    srun --mpi=pmi2 -N 1 -n $n "$examples/ring" 10 1000; want_status 0; want_out 'every byte right'
    end
done

begin 'srun on two hosts: by --mpi=pmi2 as it is, else with a key'
srun --mpi=pmi2 -N 2 -n 4 "$examples/hello"; want_status 0; want_ranks 4 2
srun -N 2 -n 4 "$examples/hello"
want_failed; want_err 'SLURM_STEP_NODELIST=a\[1-2\]: a job on several hosts needs a key'; want_within 10000
GRIDCOMM_KEY=sesame srun -N 2 -n 4 "$examples/hello"; want_status 0; want_ranks 4 2
GRIDCOMM_INSECURE=1 srun -N 2 -n 4 -m cyclic "$examples/hello"; want_status 0; want_ranks 4 2
end

begin 'srun -m arbitrary: rank 0 is not on the first host'
printf '%s\n' a2 a1 a1 >"$dir/where"
SLURM_HOSTFILE=$dir/where GRIDCOMM_KEY=sesame srun -K -m arbitrary -n 3 "$examples/hello"
want_failed; want_err 'SLURM_NODEID=1: rank 0 is not on the first host'; want_within 10000
SLURM_HOSTFILE=$dir/where srun --mpi=pmi2 -m arbitrary -n 3 "$examples/hello"; want_status 0; want_ranks 3 2
end

begin 'srun: two jobs at once on one host have different ports'
start a1 srun -w a1 -n 4 "$run/failing" loop "$dir" -1 "$mark"
pid=$!
until_true 20 "[ \"\$(grep -c ready '$dir/a1.srun.log')\" -ge 4 ]" || wrong 'the first does not start'
srun -w a1 -n 4 "$examples/hello"; want_status 0; want_ranks 4
touch "$dir/stop"; wait "$pid" || wrong 'the first fails'; own=${own/ $pid/}
end

begin 'in a batch script a program of its own is a world of one, and its steps are jobs'
printf '#!/bin/sh\n%s\nsrun -n 3 %s\n' "$examples/hello" "$examples/hello" >"$dir/script"
job 40 "${on[@]}" a1 sbatch -W -n 4 -o "$dir/batch" "$dir/script"; want_status 0
grep -q '^all 1 ranks are here' "$dir/batch" || wrong 'no world of one'
grep -q '^all 3 ranks are here' "$dir/batch" || wrong 'no step'
end

begin 'srun -K: a rank that dies ends the job'
for how in none pmi2; do
    srun --mpi=$how -K -n 5 "$run/failing" loop "$dir" 3 "$mark"; want_failed
done
want_nothing_left; end
close
