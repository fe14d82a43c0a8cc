/* inbox.c: news from control's thread to the driver's, none of which may be lost.
 * SPDX-License-Identifier: MIT
 *
 * A list under a lock of its own. When there is no memory for one more, or it is as long as no peer that keeps the rules makes it
 * (a rank that computes for long does not look at it, and whoever sends notices without end must not fill its memory), the gist
 * of what must not be lost is kept in places that were set aside before: for each rank its last connection of each kind, that it
 * could not be had, that the rank is gone, that it was given up; for each link of the backbone that it went down; that links were
 * added, which control knows; one abort. From then on all news go there, until they have been taken: so they keep their order where
 * it matters. Losses come before connections, and all bear the last epoch of them.
 */
#include "gridcomm_int.h"

enum { INBOX_SPARE = 512, INBOX_EACH = 4 };    /* how long the list may be, beside so many of each rank */

struct gci_inbox_item { struct gci_inbox_item *next; gci_news news; };

struct gci_inbox_held {
    struct { uint32_t links, id; int fd, code; } kind[GCI_LINK_KINDS];  /* links, of which the last is kept; code of NO_LINK */
    enum gci_news_kind loss;            /* DEAD or LEFT; else LINK: none */
    int      loss_code;
    bool     given_up;                  /* by this rank, for this */
    uint32_t by, why;
};

GCI int gci_inbox_open(gci_inbox *in, gci_env *env, int ranks)
{
    *in = (gci_inbox){ .env = env, .ranks = ranks };
    in->end = &in->first;
    in->of = gci_alloc(env, (size_t)ranks * sizeof *in->of);
    if (!in->of)
        return GC_ERR_NOMEM;
    for (int rank = 0; rank < ranks; rank++)
        in->of[rank].loss = GCI_NEWS_LINK;
    return env->sys->monitor(env->sys, &in->lock) == 0 ? GC_OK : GC_ERR_NOMEM;
}

GCI int gci_inbox_graph(gci_inbox *in, const gci_graph *graph)
{
    gci_sys *sys = in->env->sys;
    uint8_t *down = gci_alloc(in->env, (size_t)graph->edges);
    if (!down)
        return GC_ERR_NOMEM;
    sys->enter(sys, in->lock);
    in->graph = graph;
    in->down = down;
    bool untold = in->untold;
    sys->leave(sys, in->lock);
    if (untold)
        gci_log(in->env, GC_LOG_ERROR, "out of memory before the job began: a link that was lost is not known here");
    return GC_OK;
}

/* A notice of a mismatch may be lost: who waits in one asks again; that of a stall holds for a while only. */
static void hold_notice(gci_inbox *in, const gci_notice *notice)
{
    if (notice->kind == GCI_NOTICE_ABORT) {
        in->held = in->aborts = true;
        in->abort = *notice;
    } else if (notice->kind == GCI_NOTICE_LOST && notice->word[0] < (uint32_t)in->ranks) {
        struct gci_inbox_held *held = &in->of[notice->word[0]];
        in->held = in->verdicts = held->given_up = true;
        held->by = notice->origin;
        held->why = notice->word[1];
    }
}

/* A strand may be lost, too: all works without it. */
static void hold(gci_inbox *in, const gci_news *news)
{
    struct gci_inbox_held *held = &in->of[news->rank >= 0 ? news->rank : 0];    /* an EPOCH is of nobody */
    int kind = gci_news_link_kind(news), edge;
    if (news->kind == GCI_NEWS_NOTICE) {
        hold_notice(in, &news->notice);
        return;
    }
    if (news->purpose == GCI_PURPOSE_STRAND) {
        in->env->sys->close(in->env->sys, news->fd);
        return;
    }
    in->held = true;
    switch (news->kind) {
    case GCI_NEWS_LINK:
        if (held->kind[kind].links++ > 0)
            in->env->sys->close(in->env->sys, held->kind[kind].fd);
        held->kind[kind].fd = news->fd;
        held->kind[kind].id = news->id;
        return;
    case GCI_NEWS_NO_LINK:
        held->kind[kind].code = news->code;
        return;
    case GCI_NEWS_DOWN:
        edge = in->down ? gci_graph_find(in->graph, news->rank, news->other) : -1;
        if (edge >= 0)
            in->down[edge] = 1;
        in->grown |= in->down && edge < 0;
        in->untold |= !in->down;
        break;
    case GCI_NEWS_UP:
        in->grown = true;
        break;
    case GCI_NEWS_DEAD:
    case GCI_NEWS_LEFT:
        held->loss = news->kind;
        held->loss_code = news->code;
        break;
    case GCI_NEWS_EPOCH:
    case GCI_NEWS_NOTICE:
        break;
    }
    in->turns = true;
    in->epoch = news->epoch;
}

GCI void gci_inbox_put(gci_inbox *in, const gci_news *news)
{
    gci_sys *sys = in->env->sys;
    struct gci_inbox_item *item = gci_alloc(in->env, sizeof *item);
    if (item)
        item->news = *news;
    sys->enter(sys, in->lock);
    if (item && !in->held && in->items < INBOX_SPARE + INBOX_EACH * (size_t)in->ranks) {
        in->items++;
        *in->end = item;
        in->end = &item->next;
        item = NULL;
    } else {
        hold(in, news);
    }
    atomic_store(&in->has_news, true);
    sys->leave(sys, in->lock);
    gci_free(in->env, item);
}

/* One of the verdicts; false: there is none. */
static bool held_verdict(gci_inbox *in, gci_news *news)
{
    for (int rank = 0; in->verdicts && rank < in->ranks; rank++) {
        struct gci_inbox_held *held = &in->of[rank];
        if (!held->given_up)
            continue;
        held->given_up = false;
        news->rank = (int)held->by;
        news->notice = (gci_notice){ .kind = GCI_NOTICE_LOST, .origin = held->by, .word = { (uint32_t)rank, held->why } };
        return true;
    }
    in->verdicts = false;
    return false;
}

/* One of the losses; the news of their epoch is the last of them. */
static void held_loss(gci_inbox *in, gci_news *news)
{
    news->epoch = in->epoch;
    for (int i = 0; in->down && i < in->graph->edges; i++)
        if (in->down[i]) {
            in->down[i] = 0;
            news->kind = GCI_NEWS_DOWN;
            news->rank = in->graph->edge[i].a;
            news->other = in->graph->edge[i].b;
            return;
        }
    for (int rank = 0; rank < in->ranks; rank++)
        if (in->of[rank].loss != GCI_NEWS_LINK) {
            news->kind = in->of[rank].loss;
            news->rank = rank;
            news->code = in->of[rank].loss_code;
            snprintf(news->text, sizeof news->text, "rank %d is gone", rank);
            in->of[rank].loss = GCI_NEWS_LINK;
            return;
        }
    news->kind = in->grown ? GCI_NEWS_UP : GCI_NEWS_EPOCH;
    in->turns = in->grown;
    in->grown = false;
}

static bool held_link(gci_inbox *in, gci_news *news)
{
    for (int i = 0; i < GCI_LINK_KINDS * in->ranks; i++) {
        int rank = i / GCI_LINK_KINDS, kind = i % GCI_LINK_KINDS;
        struct gci_inbox_held *held = &in->of[rank];
        news->rank = rank;
        news->purpose = kind == GCI_BACKBONE ? GCI_PURPOSE_BACKBONE : GCI_PURPOSE_DATA;
        if (held->kind[kind].links > 0) {
            news->kind = GCI_NEWS_LINK;
            news->fd = held->kind[kind].fd;
            news->id = held->kind[kind].id;
            news->links = held->kind[kind].links;
            held->kind[kind].links = 0;
            return true;
        }
        if (held->kind[kind].code < 0) {
            news->kind = GCI_NEWS_NO_LINK;
            news->code = held->kind[kind].code;
            snprintf(news->text, sizeof news->text, "rank %d cannot be connected", rank);
            held->kind[kind].code = 0;
            return true;
        }
    }
    return false;
}

static bool held_take(gci_inbox *in, gci_news *news)
{
    *news = (gci_news){ .kind = GCI_NEWS_NOTICE, .rank = (int)in->abort.origin, .fd = -1, .links = 1, .notice = in->abort };
    if (in->aborts)
        in->aborts = false;
    else if (held_verdict(in, news))
        return true;
    else if (in->turns)
        held_loss(in, news);
    else
        in->held = held_link(in, news);
    return in->held;
}

GCI bool gci_inbox_take(gci_inbox *in, gci_news *news)
{
    gci_sys *sys = in->env->sys;
    if (!atomic_load(&in->has_news))
        return false;
    sys->enter(sys, in->lock);
    struct gci_inbox_item *item = in->first;
    bool found = item != NULL;
    if (item) {
        *news = item->news;
        news->links = 1;
        in->first = item->next;
        in->items--;
        if (!in->first)
            in->end = &in->first;
    } else if (in->held) {
        found = held_take(in, news);
    }
    atomic_store(&in->has_news, in->first || in->held);
    sys->leave(sys, in->lock);
    gci_free(in->env, item);
    return found;
}

GCI void gci_inbox_close(gci_inbox *in)
{
    gci_news news;
    if (!in->of)
        return;
    while (in->lock && gci_inbox_take(in, &news))
        if (news.kind == GCI_NEWS_LINK)
            in->env->sys->close(in->env->sys, news.fd);
    if (in->lock)
        in->env->sys->monitor_free(in->env->sys, in->lock);
    gci_free(in->env, in->down);
    gci_free(in->env, in->of);
    in->of = NULL;
}
