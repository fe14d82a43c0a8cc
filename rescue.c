/* rescue.c: survivors whom deaths have parted find each other again.
 * SPDX-License-Identifier: MIT
 *
 *     before                the 3 dies                    rescued
 *     1 --- 3 --- 5         1           5        1 ------------------- 5     a link that the backbone did not have
 *     |     |     |         |           |        |                     |     (UP, told to all)
 *     2 ----+     6         2           6        2                     6
 *
 * The backbone is sparse. Some deaths leave a rank without a path of links that are up to ranks that live: it is parted from them,
 * and they may or may not live. That alone is no verdict. Everybody's cards are known, so they are dialled for a control connection,
 * from both sides; of two that cross each other one remains, by the rule of all connections (control.c). Who has one, or hears
 * of it, adds the link to the backbone: a fact like a loss, that only grows, is flooded, counted once by whoever tells it,
 * and begins an epoch. So what each side knew reaches the other over the new link, and tables are made of the same graph by all
 * (overlay.c: a graph that has grown is numbered afresh, so Up/Down and ordered links hold there as they did).
 *
 * Who dials whom. All of one side at all of the other would be a flood, and one link is enough. Of this side the first
 * RESCUE_FIRST ranks begin, each with RESCUE_WIDTH of the parted, of which everybody's are others; and both double each RESCUE_STEP_MS
 * as long as nothing is heard. In the end every pair has been tried, up to RESCUE_MOST at once. A pair whose own link is down is
 * not: it has been.
 *
 * The verdict. One that is reached by nobody is dead at last: after peer_timeout, or REFUSED_MS after it is seen that no address
 * of it can be had and one refuses, which is what a process that has ended leaves. But where links went down for silence,
 * peer_timeout is over already: neighbours have dialled its end in vain. A rank whose own links have gone so has SILENT_MS from
 * the first of them (the others follow within SUSPECT_MS, life.c); those behind such ranks, whom nobody has tried before, have
 * LEAST_MS from the first try, and MOST_MS from when they were parted if they take a connection or this rank has not come to try
 * them. Since this depends on clocks, a verdict is told to all, and who has been given up by one is given up by all.
 *
 * Nobody who is parted has said that it has come to the end, so the goodbye waits for the verdict.
 */
#include "gridcomm_int.h"

enum {
    RESCUE_FIRST = 4, RESCUE_WIDTH = 2, RESCUE_MOST = 32, RESCUE_STEP_MS = 100,
    RESCUE_AGAIN_MS = 1000,         /* between two tries for which there is no address, or no memory */
    RESCUE_STEPS = 20,              /* doublings, beyond any number of ranks */
    RESCUE_REFUSED_MS = 1000,       /* for others, to whom that rank's addresses may be open: some round trips over a wide area */
    RESCUE_SILENT_MS = 500, RESCUE_LEAST_MS = 250,
    RESCUE_MOST_MS = 900            /* some round trips over a wide area; with the way of the news, within a second */
};

static int64_t rescue_ms(int ms) { return (int64_t)ms * GCI_NS_PER_MS; }

/* Who is parted from this rank, by all that is known. */
static void rescue_look(gci_control *c)
{
    c->look_for_cut_off = false;
    c->parted_count = 0;
    gci_life_span(c, c->place.rank);
    for (int r = 0; r < c->place.ranks; r++) {
        struct gci_parted *p = &c->parted[r];
        bool parted = c->span[r] < 0 && !c->gone[r];
        if (!parted && p->since && !c->gone[r]) {
            gci_dial *d = gci_dial_find(c, GCI_PURPOSE_CONTROL, r);
            if (d && !d->chosen && !gci_life_find(c, r))
                gci_dial_end(c, d);
        }
        if (!parted)
            p->since = p->tried_at = p->refused_at = p->again_at = p->met = 0;
        else if (!p->since)
            p->since = c->now;
        c->parted_count += parted;
    }
}

/* Did somebody fall silent when this rank was parted? */
static bool rescue_is_recent(const struct gci_parted *p, int64_t doubted_at)
{
    int64_t apart = p->since > doubted_at ? p->since - doubted_at : doubted_at - p->since;
    return doubted_at && apart < rescue_ms(GCI_DOUBT_MS);
}

/* One that nobody had tried before. */
static int64_t rescue_least(const struct gci_parted *p)
{
    return p->tried_at && !p->met ? p->tried_at + rescue_ms(RESCUE_LEAST_MS) : p->since + rescue_ms(RESCUE_MOST_MS);
}

static int64_t rescue_deadline(const gci_control *c, const struct gci_parted *p)
{
    int64_t at = p->since + c->peer_timeout;

    if (rescue_is_recent(p, p->doubted_at))
        at = gci_min64(at, p->doubted_at + rescue_ms(RESCUE_SILENT_MS));
    else if (rescue_is_recent(p, c->doubted_at))
        at = gci_min64(at, gci_max64(c->doubted_at + rescue_ms(RESCUE_SILENT_MS), rescue_least(p)));
    return p->refused_at ? gci_min64(at, p->refused_at + rescue_ms(RESCUE_REFUSED_MS)) : at;
}

/* Somebody is not, or not any more, where that rank was. Silence, or a host that is out of reach from here, says less. */
static bool rescue_is_refused(const gci_dial *d)
{
    bool refused = false;

    for (int i = 0; i < d->n; i++)
        refused = refused || gci_life_refuses(d->err[i]);
    return refused && gci_dial_hopeless(d);
}

static int rescue_step(const gci_control *c, const struct gci_parted *p)
{
    int64_t step = (c->now - p->since) / rescue_ms(RESCUE_STEP_MS);
    return step < RESCUE_STEPS ? (int)step : RESCUE_STEPS;
}

/* Goes on with one of the parted, the nth of them; place: this rank's among those of its side. Returns whether it is dialled. */
static bool rescue_try(gci_control *c, int rank, int place, int nth, bool may_begin)
{
    struct gci_parted *p = &c->parted[rank];
    int64_t ahead = (nth - place) % c->parted_count, wide = (int64_t)1 << rescue_step(c, p);
    gci_dial *d = gci_dial_find(c, GCI_PURPOSE_CONTROL, rank);
    int candidates;

    if (gci_life_find(c, rank)) {       /* a link between the two is down: it has been tried */
        p->tried_at = p->since;
        return false;
    }
    p->met = d && gci_dial_meets(c, d);
    if (d && !p->refused_at && rescue_is_refused(d))
        p->refused_at = c->now;
    ahead += ahead < 0 ? c->parted_count : 0;
    if (d || !may_begin || c->now < p->again_at || place >= RESCUE_FIRST * wide || ahead >= RESCUE_WIDTH * wide)
        return d != NULL;
    d = gci_reach_dial(c, GCI_PURPOSE_CONTROL, rank, c->peer_timeout, &candidates);
    if (d && candidates > 0) {
        p->tried_at = p->tried_at ? p->tried_at : c->now;
        return true;
    }
    gci_dial_end(c, d);                 /* no memory now; or only others can, or it can */
    p->again_at = c->now + rescue_ms(RESCUE_AGAIN_MS);
    return false;
}

static void rescue_try_all(gci_control *c)
{
    int place = 0, nth = 0, dials = 0;

    for (int r = 0; r < c->place.rank; r++)
        place += !c->gone[r] && !c->parted[r].since;
    for (int r = 0; r < c->place.ranks; r++)
        if (c->parted[r].since && !c->gone[r])
            dials += rescue_try(c, r, place, nth++, dials < RESCUE_MOST);
}

/* Who is dead for the others has no word on them: it is they who have parted. */
static bool rescue_is_due(const gci_control *c)
{
    return gci_life_running(c) && !c->gone[c->place.rank];
}

GCI void gci_rescue_settle(gci_control *c)
{
    if (!rescue_is_due(c))
        return;
    if (c->look_for_cut_off)
        rescue_look(c);
    for (int r = 0; r < c->place.ranks && c->parted_count; r++)
        if (c->parted[r].since && !c->gone[r] && c->now >= rescue_deadline(c, &c->parted[r]))
            gci_life_cut_off(c, r);
    if (c->look_for_cut_off)
        rescue_look(c);
    if (c->parted_count)
        rescue_try_all(c);
}

GCI int64_t gci_rescue_timers(gci_control *c)
{
    int64_t next = GCI_FOREVER;

    for (int r = 0; r < c->place.ranks && c->parted_count && rescue_is_due(c); r++) {
        const struct gci_parted *p = &c->parted[r];
        if (!p->since || c->gone[r])
            continue;
        if (rescue_step(c, p) < RESCUE_STEPS)
            next = gci_min64(next, p->since + (rescue_step(c, p) + 1) * rescue_ms(RESCUE_STEP_MS));
        next = gci_min64(next, rescue_deadline(c, p));
    }
    return next;
}

/* One with whom this rank has had no link has come, or has been met. What parts it from others may not be known here yet. */
GCI void gci_rescue_up(gci_control *c, gci_conn *k)
{
    if (gci_life_join(c, k->peer))
        return;
    gci_log(c->env, GC_LOG_ERROR, "no memory for a link to rank %d", k->peer);
    gci_conn_close(c, k);               /* it is dialled again */
}
