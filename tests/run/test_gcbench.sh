#!/bin/bash
# test_gcbench.sh: what gcbench writes, on this machine: tables, CSV, JSON, pictures, models, explanations. time limit: 300 s
# SPDX-License-Identifier: MIT
set -u
. "$(dirname "$0")/common.sh"

run() { # RANKS, arguments...; few repetitions
    ranks=$1
    shift
    timeout -k 5 100 "$build/gcrun" --no-prefix -n "$ranks" "$build/gcbench" --repeat 3-5 --seconds 2 "$@" >out 2>err </dev/null
}

run 2 --sizes 900G bcast; status=$?
check 'why it has failed' eval '[ $status -eq 1 ] && grep -q "^gcbench: rank 0: measuring: out of memory$" err'

# A model of three ranks on hosts of their own.
{
    printf 'gridcomm-model 1\nkind hockney\nheader 48\neager 0\nreduce 0\ncopy 0\n'
    printf 'rank 0 class 0 host 0\nrank 1 class 0 host 1\nrank 2 class 0 host 2\n'
    printf 'class 0 site 0 nic 8e-9 8e-9 apart\nsite 0 uplink 0 0 apart\n'
    printf 'within 0 latency 1e-3 per-byte 0\nbetween 0 0 latency 1e-3 per-byte 0\n'
} >model

run 3; status=$?
check 'everything, by default' eval '[ $status -eq 0 ] && counts "^  " 49 && has "^# 3 ranks, root 0, timing global"'
check 'messages, too' has '^  p2p  *-  *65536  *[345] '
for way in root max global; do
    run 2 --timing $way --form csv --sizes 8 bcast; status=$?
    check "timing $way" eval '[ $status -eq 0 ] && has "^bcast,,8,'$way',[345],[0-9.e-]*,[0-9.e-]*,[0-9.e-]*,$" && counts . 2'
done
run 3 --algorithms all --sizes 1-64 --form csv allreduce; status=$?
check 'the whole pool, powers of four' eval '[ $status -eq 0 ] && has "^allreduce,ring,16,global," && has "^allreduce,circulant,64," && ! has ",given," && counts "^allreduce,doubling," 4'
GRIDCOMM_ALGO=bcast:chain run 3 --algorithms flat,- --sizes 1K --form csv bcast p2p; status=$?
check 'by name, and by itself' eval '[ $status -eq 0 ] && counts "^bcast,flat,1024," 1 && counts "^bcast,,1024," 1 && counts "^p2p,,1024," 1 && counts . 4'
run 3 --algorithms 'chain@65536,kary:2,ring' --sizes 1M --root 2 --form csv bcast reduce; status=$?
check 'algorithms by name, those that there are' eval '[ $status -eq 0 ] && counts "^[a-z]*,chain@65536,1048576," 2 && counts "^[a-z]*,kary:2," 2 && ! has ring'

run 2 --repeat 10 --sizes 1 --form csv bcast p2p; status=$?
check 'not one repetition too many' eval '[ $status -eq 0 ] && counts ",10,[0-9.e-]*,[0-9.e-]*,[0-9.e-]*,$" 2'
run 2 --repeat 9-1000 --precision 1 --sizes 1-1K --form csv bcast p2p; status=$?
check 'it looks after each, not now and then' eval '[ $status -eq 0 ] && awk -F, '"'"'NR > 1 && $5 < 9 { few = 1 } NR > 1 && $5 % 8 { odd = 1 } END { exit few || !odd }'"'"' out'

run 3 --model model --sizes 1 --plot picture.svg --output table bcast p2p; status=$?
check 'predicted beside measured' eval '[ $status -eq 0 ] && [ ! -s out ] && grep -q "^  p2p .* 1000.39  *[+-][0-9.]*%$" table'
check 'a picture' eval 'grep -q "<svg" picture.svg && grep -q "</svg>" picture.svg && grep -q ">bcast</text>" picture.svg && [ "$(grep -c "<polyline" picture.svg)" -eq 4 ]'
# Of 3 blocks of mean 100 KiB the shortest is 2/11 of that, and is the root's own; the others go out one after the other.
run 3 --model model --sizes 100K --form csv scatterv gatherv allgatherv alltoallv reduce_scatterv; status=$?
check 'blocks of different sizes, and predicted' eval '[ $status -eq 0 ] && counts "^[a-z_]*v,,102400,.*,0.00[0-9.]*$" 5 && counts "^\(scatter\|gather\)v,.*,0.003309424$" 2'
run 3 --model model --sizes 100K --spread 1 --form csv scatterv; status=$?
check 'a spread of 1: none' eval '[ $status -eq 0 ] && has "^scatterv,,.*,0.002639168$"'
run 7 --algorithms all,pairwise@1 --sizes 1,1000 --spread 1000 --form csv scatterv alltoallv; status=$?
check 'by those algorithms that can' eval '[ $status -eq 0 ] && counts "^scatterv,flat," 2 && counts "^alltoallv,pairwise," 2 && ! has bruck && ! has binomial'
run 3 --model model --form json --sizes 1,1K gather barrier; status=$?
check 'JSON' eval '[ $status -eq 0 ] && counts "predicted_s" 3'
if command -v python3 >/dev/null; then
    check 'JSON that others read' python3 -c 'import json; t = json.load(open("out")); assert t["ranks"] == 3 and len(t["rows"]) == 3'
fi
run 3 --model model --choose --sizes 1 bcast; status=$?
check 'by the choice of a model' [ $status -eq 0 ]
run 3 --model model --explain bcast 64K; status=$?
check 'every candidate, the fastest first' eval '[ $status -eq 0 ] && counts " us  " "$(($(wc -l <out) - 1))" && sed -n 2p out | grep -q taken && tail -n +2 out | sort -c -s -k1,1n'
GRIDCOMM_MODEL=$dir/model
export GRIDCOMM_MODEL
run 3 --explain alltoall 1; status=$?
check 'by the model in use' eval '[ $status -eq 0 ] && has " bruck "'
run 2 barrier; status=$?
check 'a model of other ranks' eval '[ $status -eq 1 ] && grep -q "of 3 ranks, this job has 2" err'
unset GRIDCOMM_MODEL
run 3 --explain bcast 1; status=$?
check 'no model' eval '[ $status -eq 1 ] && grep -q "no model is in use" err'

for kind in hockney plogp; do
    run 2 --fit fitted --kind $kind --seconds 20; status=$?
    check "fits $kind" eval '[ $status -eq 0 ] && grep -q "^kind '$kind'" fitted'
    run 2 --model fitted --sizes 1 --form csv p2p; status=$?
    check "predicts by it" eval '[ $status -eq 0 ] && has "^p2p,,1,root,[345],.*,[0-9.e-][0-9.e-]*$"'
done
run 2 --fit /nonexistent/model --seconds 20; status=$?
check 'a model that cannot be written' eval '[ $status -eq 1 ] && grep -q "/nonexistent/model: No such" err'
run 2 --model /nonexistent bcast; status=$?
check 'a model that is not there' eval '[ $status -eq 1 ] && grep -q "/nonexistent: No such" err'
run 2 --root 2 bcast; status=$?
check 'a root that is not there' [ $status -eq 1 ]

"$build/gcbench" --sizes 1 --repeat 3 bcast >/dev/full 2>err; status=$?
check 'no room for standard output' eval '[ $status -eq 1 ] && grep -q "gcbench: standard output: " err'
for to in --output --plot; do
    "$build/gcbench" --sizes 1 --repeat 3 $to /dev/full bcast >out 2>err; status=$?
    check "no room for $to" eval '[ $status -eq 1 ] && grep -q "gcbench: /dev/full: " err'
done

"$build/gcbench" --help >out 2>err; status=$?
check 'help' eval '[ $status -eq 0 ] && has "usage: gcrun"'
"$build/gcbench" --sizes 1 --repeat 3 --form csv >out 2>err; status=$?
check 'a world of one' eval '[ $status -eq 0 ] && counts . 17'
for wrong in '--nonsense' '--sizes' '--sizes x' '--sizes 1,x' '--sizes 1-' '--sizes 99999999999999999999' '--repeat 0' '--repeat 5-3' '--repeat x' \
    '--timing never' '--form xml' '--precision 2' '--seconds 0' '--explain bcast' '--explain bcast x' '--root -1' '--spread 0' '--spread 1001' '--spread x' 'cast' 'bcastv'; do
    "$build/gcbench" $wrong >out 2>err; status=$?
    check "wrong: $wrong" [ $status -eq 2 ]
done
for gap in "--sizes '1,,2'" "--sizes '1,'" "--sizes ',1'" "--sizes ''" "--algorithms 'ring,,chain'" "--algorithms 'ring,'"; do
    eval "\"$build/gcbench\" $gap" >out 2>err; status=$?
    check "an empty element: $gap" eval '[ $status -eq 2 ] && [ "$(cat err)" = "gcbench: $gap: an element is empty" ]'
done
close
