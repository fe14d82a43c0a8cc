/* strand.c: further links beside one of a pair's own, so that much data uses all NICs between two hosts.
 * SPDX-License-Identifier: MIT
 *
 * The link of a pair's own is the trunk: all that keeps an order goes there. Beside it there may be strands, over other pairs
 * of NICs or, with GRIDCOMM_STREAMS, the same once more. They carry chunks alone, of which whichever link is free takes the
 * next: so unequal NICs share in proportion to their speed. The receiver puts chunks in their places in any order (p2p.c).
 * Towards the end of what there is to send a slow one must not hold up all: a link takes a chunk only if it would be through
 * with it before the others could be through with everything. It leaves it to links that are at work only, which come back
 * for more, so somebody takes it.
 *
 * The side that dialled the trunk asks for strands, once there is bulk in either direction. They end with their trunk; the next
 * one brings new ones. A strand that is lost costs speed and no data, and is asked for again after a while.
 *
 * A NIC may die silently. TCP would try for minutes, and so does a link that is the only one. But of several links of a pair
 * one is given up soon if nothing gets through while the peer is heard on another: then it is not the peer that is mute. A
 * link that has nothing to send asks with an empty chunk, whose answer is the kernel's. Silence counts from when something
 * was sent, and only beyond the time that answers take on that link; if all were silent, the kernels have time to try again.
 */
#include "gridcomm_int.h"

enum { STRANDS_AFTER = 256 * 1024 };    /* bytes of chunks between two ranks: then strands are worth their connections */
#define STRAND_PAUSE   (6 * GCI_SECOND)                     /* between askings: beyond what one may take to come */
#define STRAND_COMPARE (100 * (int64_t)GCI_NS_PER_MS)       /* between looks at the links of a pair */
#define STRAND_SAMPLE  (5 * (int64_t)GCI_NS_PER_MS)         /* in which the rate of a link is measured, at least; ... */
#define STRAND_STALE   (50 * (int64_t)GCI_NS_PER_MS)        /* ... and at most */
#define STRAND_SILENT  (400 * (int64_t)GCI_NS_PER_MS)       /* it has been for too long, ... */
#define STRAND_NEW     (1 * GCI_SECOND)                     /* ... if nobody knows yet how fast its answers are, ... */
#define STRAND_HEARD   (50 * (int64_t)GCI_NS_PER_MS)        /* ... and the peer was heard on another since: so long after */

GCI gci_link *gci_strand_find(const gci_overlay_peer *p, unsigned strand)
{
    gci_link *link = p->strands;
    while (link && link->strand != strand)
        link = link->next_strand;
    return link;
}

/* ---- strands come and go ------------------------------------------------------------------------------------------ */

GCI void gci_overlay_bulk(gci_overlay *o, int peer, size_t bytes)
{
    gci_overlay_peer *p = &o->peer[peer];
    p->bulk += bytes;
    if (p->bulk < STRANDS_AFTER || p->strands_most == 0 || !p->own)
        return;
    p->bulk = 0;
    int64_t now = o->sys->now(o->sys);
    if (now < p->strands_at)
        return;
    p->strands_at = now + STRAND_PAUSE;
    for (unsigned strand = 1; strand <= p->strands_most && !o->full; strand++)
        if (!gci_strand_find(p, strand))
            (void)gci_control_strand(o->control, peer, strand, p->own_id);      /* out of memory: the next time */
}

static void strand_free(gci_overlay *o, gci_link *strand)
{
    gci_link **at = &o->peer[strand->peer].strands;
    while (*at != strand)
        at = &(*at)->next_strand;
    *at = strand->next_strand;
    gci_link_close(o, strand);
    gci_free(o->env, strand);
    o->owns--;
    gci_owns_review(o);
}

/* Its chunks that have not gone are given back one by one. */
static void strand_end(gci_overlay *o, gci_link *strand)
{
    int peer = strand->peer;
    gci_link_drain(o, strand);
    strand->pumping = true;             /* whoever is told of a chunk may push, but no more to this one */
    while (strand->queued > 0) {
        gci_slot *slot = &strand->out[--strand->queued];
        void *token = slot->token;
        gci_slot_free(o, slot);
        if (token)
            o->up.sent(o->user, peer, GCI_CHUNK, token);
    }
    gci_link *own = o->peer[peer].own;
    if (strand->broke_rules && own && !own->broken) {
        own->broke_rules = true;
        gci_link_break(o, own, "a strand beside it broke the rules");
    }
    strand_free(o, strand);
}

GCI void gci_strand_attach(gci_overlay *o, const gci_news *news)
{
    gci_overlay_peer *p = &o->peer[news->rank];
    gci_link *before = gci_strand_find(p, news->strand);        /* the peer has lost it */
    bool wanted = p->own && p->own_id == news->trunk && !p->turning && (before || !o->full);
    gci_link *link = wanted ? gci_link_new(o, news->rank, false, news->strand) : NULL;
    if (!link) {
        o->sys->close(o->sys, news->fd);
        return;
    }
    if (before)
        strand_end(o, before);
    link->next_strand = p->strands;
    p->strands = link;
    o->owns++;
    gci_owns_review(o);
    gci_log(o->env, GC_LOG_DEBUG, "strand %u to rank %d is up", news->strand, news->rank);
    if (gci_link_open(o, link, news->fd) == 0)          /* else it is broken, and torn down soon */
        gci_link_pump(o, link);
    if (before)
        o->up.strand_down(o->user, news->rank);
}

GCI void gci_strands_end(gci_overlay *o, int peer)
{
    while (o->peer[peer].strands)
        strand_end(o, o->peer[peer].strands);
}

GCI void gci_strands_free(gci_overlay *o, int peer)
{
    while (o->peer[peer].strands)
        strand_free(o, o->peer[peer].strands);
}

GCI void gci_strands_tear_down(gci_overlay *o, int peer)
{
    gci_link *strand = o->peer[peer].strands;
    bool any = false;
    while (strand) {
        if (!strand->broken) {
            strand = strand->next_strand;
            continue;
        }
        strand_end(o, strand);
        any = true;
        strand = o->peer[peer].strands;
    }
    if (any && !o->peer[peer].own->broken)
        o->up.strand_down(o->user, peer);       /* else the way goes down in a moment */
}

GCI void gci_strands_cut(gci_overlay *o, int peer)
{
    for (gci_link *strand = o->peer[peer].strands; strand; strand = strand->next_strand) {
        strand->mute = false;           /* as with the trunk: what the peer sent before is not read any more either */
        for (int i = 0; i < strand->queued; i++)
            strand->out[i].token = NULL;        /* its send ends now */
        gci_link_break(o, strand, "cut");
    }
}

GCI void gci_strands_pump(gci_overlay *o, int peer)
{
    for (gci_link *strand = o->peer[peer].strands; strand; strand = strand->next_strand)
        if (!strand->broken)
            gci_link_pump(o, strand);
}

/* ---- who takes the next chunk -------------------------------------------------------------------------------------- */

static gci_link *strand_next(const gci_overlay_peer *p, const gci_link *link)
{
    return link == p->own ? p->strands : link->next_strand;
}

/* What it still has to do, and how fast it is: measured while it always has something to do. */
static void strand_look(gci_overlay *o, gci_link *link, int64_t now)
{
    link->backlog = o->sys->backlog(o->sys, link->fd);
    uint64_t there = link->handed > link->backlog ? link->handed - link->backlog : 0;
    int64_t took = now - link->sampled_at;
    bool runs = link->sampled_at > 0 && took <= STRAND_STALE;
    o->stats->system_calls++;
    if (there > link->there || link->backlog == 0)
        link->moved_at = now;
    link->there = there;
    if (link->backlog == 0)
        link->sampled_at = 0;
    if (link->backlog == 0 || (runs && took < STRAND_SAMPLE))
        return;
    if (runs) {
        double rate = (double)(there - link->sampled) / (double)took;
        link->rate = link->rate > 0 ? (3 * link->rate + rate) / 4 : rate;
    }
    link->sampled = there;
    link->sampled_at = now;
}

GCI bool gci_strand_takes(gci_overlay *o, gci_link *link)
{
    const gci_overlay_peer *p = &o->peer[link->peer];
    size_t shared = o->up.strand_left(o->user, link->peer, GCI_WANT_BULK), left = shared, chunk;
    int64_t now = o->sys->now(o->sys);
    if (!link->strand)
        left = o->up.strand_left(o->user, link->peer, GCI_WANT_BULK | GCI_WANT_ORDERED);
    if (left == 0)
        return false;
    strand_look(o, link, now);
    if (link->rate <= 0 || left > shared)
        return true;                    /* some chunks may take the trunk alone */
    chunk = gci_min(left, GCI_PACKET_MAX);
    double rates = 0, work = (double)left;
    double mine = (double)(link->backlog + chunk) / link->rate;
    for (gci_link *other = p->own; other; other = strand_next(p, other)) {
        if (other == link || other->broken || other->queued == 0)
            continue;
        strand_look(o, other, now);
        if (now - other->moved_at > STRAND_STALE)
            continue;                   /* it seems to be stuck */
        work += (double)other->backlog;
        rates += other->rate;
    }
    return mine * rates <= work;
}

/* ---- silence ------------------------------------------------------------------------------------------------------- */

/* Something that its kernel has to acknowledge, and is for nobody. */
static void strand_knock(gci_overlay *o, gci_link *link)
{
    if (link->queued > 0)
        return;
    gci_slot *slot = &link->out[link->queued++];
    slot->packet = (gci_packet){ .type = GCI_CHUNK, .source = (uint32_t)o->rank, .dest = (uint32_t)link->peer };
    slot->payload = slot->token = NULL;
    gci_slot_encode(slot);
    gci_slot_settle(link);
    gci_link_pump(o, link);
}

/* How long does it take until all that was handed over at some time has been acknowledged? */
static void strand_answers(gci_overlay *o, gci_link *link, int64_t now)
{
    size_t backlog = link->broken ? 0 : o->sys->backlog(o->sys, link->fd);
    uint64_t there = link->handed > backlog ? link->handed - backlog : 0;
    o->stats->system_calls++;
    if (there < link->mark || link->broken)
        return;
    int64_t took = link->mark > 0 ? now - link->marked_at : link->busy && backlog == 0 ? STRAND_COMPARE : 0;
    if (took > 0)
        link->slow = gci_max64(took, link->slow - link->slow / 8);
    link->mark = backlog > 0 ? link->handed : 0;
    link->marked_at = now;
}

/* When was the peer last heard on it? Since the last look all has been acknowledged, or its kernel says when. What that owes
 * an answer to was sent after the last look if it owed none then; or if that is long ago, because this process stood still. */
static void strand_listen(gci_overlay *o, gci_link *link, int64_t now)
{
    int64_t silence = link->broken ? 0 : o->sys->silence(o->sys, link->fd), before = link->silent_since;
    bool fresh = before == 0 || now - link->listened_at > 2 * STRAND_COMPARE;
    o->stats->system_calls++;
    link->listened_at = now;
    link->silent_since = silence > 0 ? gci_max64(now - silence, fresh ? now - STRAND_COMPARE : before) : 0;
    strand_answers(o, link, now);
    if (silence > 0 || link->busy)
        link->heard_at = gci_max64(link->heard_at, now - (silence > 0 ? silence : STRAND_COMPARE));
    link->works = link->busy || silence > 0;
    link->busy = false;
}

/* How long its answers may take: on some paths they need longer than others' silence lasts. */
static int64_t strand_patience(const gci_link *link)
{
    return link->slow > 0 ? gci_max64(STRAND_SILENT, 2 * link->slow) : STRAND_NEW;
}

/* true: nothing has got through on it for so long. */
static bool strand_is_silent(const gci_link *link, int64_t now, int64_t long_)
{
    return link->silent_since > 0 && now - link->silent_since >= long_;
}

/* Is the peer heard on another, and has it not been on this one for too long? If it was heard nowhere at first, it is given as
 * long again: the kernels try again in their own time. */
static bool strand_is_lost(gci_link *link, int64_t now, int64_t heard_at)
{
    int64_t patience = strand_patience(link);
    if (link->silent_since == 0 || heard_at <= link->silent_since + STRAND_HEARD)
        return false;
    if (link->outdone_at < link->silent_since)
        link->outdone_at = now;
    int64_t nowhere = link->outdone_at - link->silent_since;
    return strand_is_silent(link, now, patience) && (nowhere <= patience + STRAND_COMPARE || now - link->outdone_at >= nowhere);
}

/* true: some of them are at work. One that is stuck is found out by the others, which may have left their share to it, and
 * which knock if they have nothing to send. */
static bool strands_of_pair_compare(gci_overlay *o, int peer, int64_t now)
{
    const gci_overlay_peer *p = &o->peer[peer];
    int64_t heard_at = 0;
    bool doubt = false, works = false;
    for (gci_link *link = p->own; link; link = strand_next(p, link)) {
        strand_listen(o, link, now);
        heard_at = gci_max64(heard_at, link->heard_at);
        doubt |= strand_is_silent(link, now, strand_patience(link) * 3 / 4);
        works |= link->works;
    }
    for (gci_link *link = p->own; doubt && link; link = strand_next(p, link))
        if (strand_is_lost(link, now, heard_at)) {
            link->mute = true;          /* what has come before is good */
            gci_link_break(o, link, "nothing gets through any more, though the peer is heard");
        } else if (!link->works && !link->broken) {
            strand_knock(o, link);
        }
    gci_overlay_push(o, peer);
    return works;
}

GCI void gci_strands_compare(gci_overlay *o, int64_t now)
{
    bool works = false;
    if (now >= o->compare_at) {
        for (int peer = 0; peer < o->ranks; peer++)
            if (o->peer[peer].strands)
                works |= strands_of_pair_compare(o, peer, now);
        o->compare_at = works ? now + STRAND_COMPARE : GCI_FOREVER;
    }
    gci_overlay_alarm(o, o->compare_at);
}

GCI void gci_strands_watch(gci_overlay *o, const gci_link *link)
{
    if (o->compare_at != GCI_FOREVER || !o->peer[link->peer].strands || !o->control)
        return;
    o->compare_at = o->sys->now(o->sys) + STRAND_COMPARE;
    gci_overlay_alarm(o, o->compare_at);
}
