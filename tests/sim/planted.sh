#!/usr/bin/env bash
# planted.sh OUT: plants faults in the library, one at a time, and sees whether the random jobs of test_chaos find them.
# SPDX-License-Identifier: MIT
#
# OUT is the directory of a build that has tests/sim/test_chaos; COMPILE and LINK are the commands of the Makefile, OBJECTS and
# LIBS what the program is linked of. A fault is found when a seed fails, or the program crashes or hangs. SEEDS (5000) is how many
# are tried, LIMIT (300) the seconds for each fault. ONLY=regex: those whose line has it. It ends with "N found, N of them before
# seed 9, N not found": what the first seeds find any test of the calls would, and it belongs there.
set -u
: "${SEEDS:=5000}" "${LIMIT:=300}" "${ONLY:=}"
out=$1 dir=$1/planted found=0 coarse=0 missed=0 broken=0
mkdir -p "$dir"

# file | what stands there (its first occurrence) | what is put in its place | what that is
faults() {
cat <<'TABLE'
p2p.c|    r->moved = (size_t)packet->total;||offset: a grant does not say where to go on
p2p.c|    m->got = gci_min(m->packet.length, r->bytes);|    m->got = m->packet.length == 1025 ? 1024 : gci_min(m->packet.length, r->bytes);|offset: of 1025 bytes before their receive 1024 are counted
p2p.c|    p->lent++;|    p->lent += p->lent < 3;|credits: only three are lent to messages behind others
p2p.c|p->again = p->sent ? &p->sent : NULL;|p->again = NULL;|sequence: what a way lost is not sent again
p2p.c|    p->reask = p->open != NULL;|    p->reask = false;|sequence: on a new way open sends do not ask for their answers
p2p.c|    p->reask_seq = p->open ? p->open->seq : 0;|    p->reask_seq = p->open ? p->open->seq + 1 : 0;|sequence: on a new way the first open send does not ask for its answer
p2p.c|    if (!m) {\n        if (p->owing > OWING_MAX)|    if (!m) {\n        return GC_OK;\n        if (p->owing > OWING_MAX)|sequence: an answer that a way lost is not given again
p2p.c|(m->recv && m->come && m->got < message_need(m))|false|sequence: a grant that a way lost is not given again
peers.c|        r->in_flight = 0;||sequence: chunks that a way lost count as under way
peers.c|            r->stage = GCI_STAGE_SENT;\n    }|            r->in_flight = 0;\n    }|sequence: a send goes on where a lost way had brought it
coll.c|        if (--run->step[plan->after[k]].waits == 0)|        if (--run->step[plan->after[k]].waits == (i == 61))|executor: one step of a long schedule does not wait for all that it should
plan.c|plan_same_blocks(&a->recv, &b->recv, a->ranks) &&||schedules: that of other blocks is taken
forward.c|    if (link->in.epoch != o->epoch)|    if (link->in.epoch != o->epoch \|\| link->in.seq == 19)|forwarding: the twentieth packet of a pair is dropped
forward.c|    return hop->lost && hop->lost_epoch == o->epoch;|    return false;|epochs: a link that lost packets is used on in the same epoch
forward.c|        else if (ahead > 0)|        else if (ahead > 9)|epochs: packets of the next epoch are skipped
life.c|        life_restarts(c, (int)n->origin, n->word[0]);|        ;|epochs: restarts of others are not heard of
life.c|    c->restart_at[origin] = ++c->restart_clock;|    c->restart_at[origin] = origin == c->place.rank ? ++c->restart_clock : 0;|epochs: restarts are not passed on
life.c|        if (verdict->from != k->peer && |        if (verdict->from >= 0 && verdict->from != k->peer && |control: verdicts of this rank are not flooded
life.c|    return silence >= c->peer_timeout &&|    return false && silence >= c->peer_timeout &&|control: silence is no verdict
p2p.c|        to = gci_max(to, s->at[high].to);||strands: spans that join lose their end
p2p.c|    bool copy = !answer && (p->keep|    bool copy = !answer && (false|requests: a send is complete while its buffer is still needed
inbox.c|        *in->end = item;|        item->next = in->first; in->first = item; if (!item->next)|inbox: news in the opposite order
peers.c|        pair_end(p2p, p2p->pair[peer], fault, code, why);|        ;|deaths: sends to the dead do not end
peers.c|        pair_end(p2p, p2p->pair[peer], fault, code, why);|        if (!p2p->pair[peer]->open) pair_end(p2p, p2p->pair[peer], fault, code, why);|deaths: what is open with the dead does not end
peers.c|(r->peer != GC_ANY_SOURCE \|\| gci_comm_rank(r->comm, peer) < 0))|true)|deaths: receives from any source do not end
peers.c|bool whole = m->come && !m->local && m->packet.total == m->packet.length;|bool whole = m->come;|deaths: a message whose rest died with its sender counts as whole
shrink.c|    message[SHRINK_HEAD + rank / 8] \|= (uint8_t)(1 << rank % 8);|    message[SHRINK_HEAD] \|= (uint8_t)(1 << rank % 8);|shrink: the ninth rank is taken for the first
life.c|    while (s->loss_at < c->loss_count &&|    while (s->loss_at + (c->loss_count > 4) < c->loss_count &&|control: of five losses the last is not passed on
life.c|        if ((!n->conn \|\| n->silent) && !n->left|        if ((!n->conn \|\| n->silent) && n->ups < 2 && !n->left|control: a control connection that is lost twice is not opened again
comm.c|comm->dead > 0 ? GC_ERR_PEER : GC_OK|comm->dead > 0 && comm->dead != 3 ? GC_ERR_PEER : GC_OK|executor: a collective begins in spite of three deaths
TABLE
}

while IFS= read -r line; do
    fields=${line//\\|/$'\1'}
    IFS='|' read -r file from to what <<<"$fields"
    [[ $what != "(none)" && $line =~ $ONLY ]] || continue
    from=${from//$'\1'/|} to=${to//$'\1'/|}
    from=${from//\\n/$'\n'} to=${to//\\n/$'\n'}
    text=$(cat "$file"; echo .)
    head=${text%%"$from"*}
    if [[ $head == "$text" ]]; then
        printf '%-10s %-70s NOT THERE any more\n' "$file" "$what"
        broken=$((broken + 1))
        continue
    fi
    printf '%s%s%s' "$head" "$to" "${text:${#head}+${#from}}" | sed '$ s/\.$//' >"$dir/$file"
    if ! $COMPILE -w -c -o "$dir/planted.o" "$dir/$file" 2>"$dir/log" || ! $LINK -o "$dir/test_chaos" "$dir/planted.o" $OBJECTS $LIBS 2>>"$dir/log"; then
        printf '%-10s %-70s does not compile\n' "$file" "$what"
        broken=$((broken + 1))
        continue
    fi
    start=$SECONDS
    CHAOS_SEEDS=$SEEDS CHAOS_STOP=1 CHAOS_TELL=1 timeout -k 5 "$LIMIT" "$dir/test_chaos" >"$dir/log" 2>&1
    status=$?
    last=$(grep -a '^seed ' "$dir/log" | tail -n 1 | sed 's/^seed \([0-9]*\):.*/\1/')
    if [[ $status == 0 || ($status -ge 124 && $status -le 137 && $((SECONDS - start)) -ge $LIMIT) ]]; then
        printf '%-10s %-70s NOT FOUND by %s seeds in %d s\n' "$file" "$what" "${last:-0}" $((SECONDS - start))
        missed=$((missed + 1))
    else
        grep -aq 'failed. Again' "$dir/log" || last=$((${last:-0} + 1))
        why=$(grep -aE '^tests/.*: rank|^simnet: seed|did not come|still holds|exception|AddressSan' "$dir/log" | head -n 1 | sed 's/^tests[^ ]* //' | cut -c1-90)
        printf '%-10s %-70s seed %s: %s\n' "$file" "$what" "$last" "$why"
        found=$((found + 1)) coarse=$((coarse + (last < 9)))
    fi
done < <(faults)
rm -rf "$dir"
echo "$found found, $coarse of them before seed 9, $missed not found, $broken out of date"
[[ $missed == 0 && $broken == 0 ]]
