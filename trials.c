/* trials.c: who measures what at the same time, and which model follows from what was found (pure).
 * SPDX-License-Identifier: MIT
 *
 * A trial is a driver and up to three parts, one after another; the flows of a part are under way at once:
 *
 *     pair      a -> b; b -> a                    latency and rate of the two, there and back
 *     site      x -> y, x -> z;                   do messages to several sites share x's uplink?
 *               y -> x, z -> x; x -> y, z -> x    and from them? and does what goes out share with what comes in?
 *     trunk     x -> y, x' -> y'; and back        two hosts of each site: do they share the line between the sites?
 *     host      as site, among hosts of one       what a host's NIC takes
 *
 * If sites have few hosts, each is a class; else each rack is (the hosts whose paths of names are the same), unless there are too
 * many; else each site. Classes of a site are measured in all pairs (those that share nothing at once: Dichev 2014, ch. 6), by one
 * pair of hosts and by a second one to check, and so are sites; of a class's own hosts each is in two pairs.
 *
 * Each trial is put into the first round in which neither its hosts nor the links out of its classes and sites are busy, the longest
 * first; the pairs of n sites or classes come in the order of (x + y) mod n, so that n rounds take them. Without the first pair of
 * each there is no model; all else is optional, should there be no time.
 *
 * k flows that take k times as long as one share something, whose rate that is; if hosts or links that are known already do not
 * explain it.
 */
#include "gridcomm_int.h"

#include <stdlib.h>

#define TRIALS_SHARED 1.3               /* times as long as what is known explains: something is shared */
#define TRIALS_PACKETS 2                /* a message of so many tells the rate */
#define TRIALS_WAY 0.02                 /* of an empty message's time there and back: a latency that grows by more is noted */
#define TRIALS_TOGETHER 1.5             /* the same for two flows, one out and one in: 1 or 2 is to be expected */

/* ---- hosts and classes ------------------------------------------------------------------------------------------- */

static int32_t trials_rack(const gci_clusters *s, int32_t rank) { return s->topo->parent[s->topo->of[rank]]; }
static int32_t trials_count(const gci_trials *t, int32_t site) { return t->first_host[site + 1] - t->first_host[site]; }

/* Site by site in the order of the topology, in which those of a site, of a rack and of a host are runs. */
static void trials_hosts(const gci_clusters *s, gci_trials *t)
{
    const gci_topo *topo = s->topo;
    for (int32_t k = 0; k < t->sites; k++) {
        int32_t begin = topo->nodes, ranks = s->first[k + 1] - s->first[k];
        t->first_host[k] = t->hosts;
        for (int32_t i = s->first[k]; i < s->first[k + 1]; i++)
            begin = topo->place[s->member[i]] < begin ? topo->place[s->member[i]] : begin;
        for (int32_t i = begin; i < begin + ranks; i++) {
            int32_t rank = topo->order[i];
            if (i == begin || topo->of[rank] != topo->of[topo->order[i - 1]]) {
                t->rank[t->hosts] = rank;
                t->second[t->hosts++] = -1;
            } else if (t->second[t->hosts - 1] < 0)
                t->second[t->hosts - 1] = rank;
            t->host_of[rank] = t->hosts - 1;
        }
    }
    t->first_host[t->sites] = t->hosts;
}

/* Does a class begin with this host? */
static bool trials_begins(const gci_clusters *s, const gci_trials *t, int32_t host, bool few, bool racks)
{
    int32_t rank = t->rank[host], before = t->rank[gci_max32(host - 1, 0)];
    return host == 0 || few || s->of[rank] != s->of[before] || (racks && trials_rack(s, rank) != trials_rack(s, before));
}

static void trials_classes(const gci_clusters *s, gci_trials *t)
{
    bool few = t->hosts <= GCI_TRIAL_CLASSES;
    int32_t racks = 0;
    for (int32_t k = 0; k < t->sites; k++)
        few &= trials_count(t, k) <= GCI_TRIAL_FEW;
    for (int32_t h = 0; h < t->hosts; h++)
        racks += trials_begins(s, t, h, false, true);
    for (int32_t h = 0; h < t->hosts; h++) {
        int32_t site = s->of[t->rank[h]];
        if (trials_begins(s, t, h, few, racks <= GCI_TRIAL_CLASSES)) {
            if (h == t->first_host[site])
                t->first_class[site] = t->classes;
            t->class_host[t->classes] = h;
            t->site_of[t->classes++] = site;
        }
        t->class_host[t->classes] = h + 1;
    }
    t->first_class[t->sites] = t->classes;
    for (int32_t i = 0, c = 0; i < t->ranks; i++, c = 0) {
        while (t->class_host[c + 1] <= t->host_of[i])
            c++;
        t->class_of[i] = c;
    }
}

/* ---- rounds ------------------------------------------------------------------------------------------------------ */

/* While trials are added: in which rounds hosts are busy, and the links out of classes and sites. */
typedef struct trials_plan {
    gci_env    *env;
    gci_trials *t;
    uint8_t    *busy;                   /* [rounds * (hosts + classes + sites)] */
    int32_t     room;
    bool        full;                   /* out of memory */
} trials_plan;

static int32_t trials_site(const gci_trials *t, int32_t rank) { return t->site_of[t->class_of[rank]]; }

static size_t trials_width(const gci_trials *t) { return (size_t)(t->hosts + t->classes + t->sites); }

/* Takes what a flow needs in that round, or looks whether it is free. */
static bool trials_use_flow(const trials_plan *p, gci_flow flow, int32_t round, bool take)
{
    const gci_trials *t = p->t;
    uint8_t *host = p->busy + (size_t)round * trials_width(t), *class = host + t->hosts, *site = class + t->classes;
    int32_t a = t->class_of[flow.from], b = t->class_of[flow.to], x = t->site_of[a], y = t->site_of[b];
    uint8_t *used[] = { &host[t->host_of[flow.from]], &host[t->host_of[flow.to]], &class[a], &class[b], &site[x], &site[y] };
    bool free = true;
    for (int k = 0; k < (x != y ? 6 : a != b ? 4 : 2); k++) {
        free &= !*used[k];
        *used[k] |= take;
    }
    return free;
}

static bool trials_use(const trials_plan *p, const gci_trial *trial, int32_t round, bool take)
{
    bool free = true;
    for (int part = 0; part < trial->parts; part++)
        for (int i = 0; i < trial->flows[part]; i++)
            free &= trials_use_flow(p, trial->flow[part][i], round, take);
    return free;
}

static void trials_add(trials_plan *p, const gci_trial *trial)
{
    gci_trials *t = p->t;
    int32_t round = 0;
    size_t width = trials_width(t);
    while (round < t->rounds && !trials_use(p, trial, round, false))
        round++;
    if (round == t->rounds) {
        uint8_t *busy = gci_realloc(p->env, p->busy, ((size_t)round + 1) * width);
        p->full |= !busy;
        if (!busy)
            return;
        p->busy = busy;
        memset(busy + (size_t)round * width, 0, width);
        t->rounds++;
    }
    if (t->n == p->room) {
        int32_t room = 2 * p->room + 16;
        gci_trial *grown = gci_realloc(p->env, t->trial, (size_t)room * sizeof *grown);
        p->full |= !grown;
        if (!grown)
            return;
        t->trial = grown;
        p->room = room;
    }
    trials_use(p, trial, round, true);
    t->trial[t->n] = *trial;
    t->trial[t->n++].round = round;
}

/* ---- trials ------------------------------------------------------------------------------------------------------ */

/* A flow and, in the part after it, its way back. */
static void trials_flow(gci_trial *trial, int32_t from, int32_t to)
{
    trial->flow[0][trial->flows[0]++] = (gci_flow){ from, to };
    trial->flow[1][trial->flows[1]++] = (gci_flow){ to, from };
}

static void trials_pair(trials_plan *p, int32_t a, int32_t b, bool optional)
{
    gci_trial trial = { .driver = a, .parts = 2, .optional = optional };
    trials_flow(&trial, a, b);
    trials_add(p, &trial);
}

/* Rank i of a site: the first of each host, then, if there is one, the second; and again. */
static int32_t trials_end(const gci_trials *t, int32_t site, int32_t i)
{
    int32_t n = trials_count(t, site), host = t->first_host[site] + i % n;
    return i < n || t->second[host] < 0 ? t->rank[host] : t->second[host];
}

/* All pairs of n groups of hosts, as a tournament; first: of each, and behind the last. check: by a second pair of hosts. */
static void trials_pairs(trials_plan *p, const int32_t first[], int32_t n, bool check)
{
    const int32_t *rank = p->t->rank;
    for (int32_t sum = 0; sum < n; sum++)
        for (int32_t x = 0; x < n; x++) {
            int32_t y = (sum - x + n) % n, of_x = first[x + 1] - first[x], of_y = first[y + 1] - first[y];
            if (x < y && (!check || of_x > 1 || of_y > 1))
                trials_pair(p, rank[first[x] + (y + check) % of_x], rank[first[y] + (x + check) % of_y], check);
        }
}

static void trials_trunks(trials_plan *p)
{
    const gci_trials *t = p->t;
    for (int32_t sum = 0; sum < t->sites; sum++)
        for (int32_t x = 0; x < t->sites; x++) {
            int32_t y = (sum - x + t->sites) % t->sites, a = trials_end(t, x, 0), b = trials_end(t, y, 0);
            int32_t a2 = trials_end(t, x, 1), b2 = trials_end(t, y, 1);
            if (x >= y || (a == a2 && b == b2))
                continue;
            gci_trial trial = { .driver = a, .parts = 2, .optional = true };
            trials_flow(&trial, a, b);
            trials_flow(&trial, a2, b2);
            trials_add(p, &trial);
        }
}

/* From several ranks of one site or host to others, back, and one each way at once. */
static void trials_fan(trials_plan *p, const int32_t from[], const int32_t to[], int32_t n)
{
    gci_trial trial = { .driver = from[0], .parts = 3, .optional = true, .flows = { 0, 0, 2 } };
    for (int32_t i = 0; i < n; i++)
        trials_flow(&trial, from[i], to[i]);
    trial.flow[2][0] = trial.flow[0][0];
    trial.flow[2][1] = trial.flow[1][1];
    trials_add(p, &trial);
}

static void trials_uplinks(trials_plan *p)
{
    const gci_trials *t = p->t;
    int32_t from[GCI_TRIAL_FLOWS], to[GCI_TRIAL_FLOWS], n = gci_max32(t->sites - 1, 0);
    n = n < GCI_TRIAL_FLOWS ? n : GCI_TRIAL_FLOWS;
    for (int32_t x = 0; x < t->sites && n > 1; x++) {
        for (int32_t i = 0; i < n; i++) {
            from[i] = trials_end(t, x, i);
            to[i] = t->rank[t->first_host[(x + 1 + i) % t->sites]];
        }
        trials_fan(p, from, to, n);
    }
}

/* Each with its two neighbours. */
static void trials_neighbours(trials_plan *p, int32_t class)
{
    const gci_trials *t = p->t;
    for (int32_t first = t->class_host[class], h = first; h + 1 < t->class_host[class + 1]; h++)
        trials_pair(p, t->rank[h], t->rank[h + 1], h > first);
}

static void trials_within(trials_plan *p, int32_t class)
{
    const gci_trials *t = p->t;
    int32_t h = t->class_host[class];
    while (h < t->class_host[class + 1] && t->second[h] < 0)
        h++;
    if (h < t->class_host[class + 1])
        trials_pair(p, t->rank[h], t->second[h], false);
}

/* What the first host of a class takes, to and from others of the class, or of the site if that has too few. */
static void trials_nic(trials_plan *p, int32_t class)
{
    const gci_trials *t = p->t;
    int32_t first = t->class_host[class], n = t->class_host[class + 1] - first, i = 0;
    if (n < 3) {
        i = first - t->first_host[t->site_of[class]];
        n = trials_count(t, t->site_of[class]);
    }
    const int32_t *rank = t->rank + first - i;
    if (n > 2)
        trials_fan(p, (int32_t[]){ rank[i], rank[i] }, (int32_t[]){ rank[(i + 1) % n], rank[(i + 2) % n] }, 2);
}

/* Of a site; the longest first. */
static void trials_of_site(trials_plan *p, int32_t site)
{
    const gci_trials *t = p->t;
    int32_t first = t->first_class[site], end = t->first_class[site + 1];
    for (int32_t c = first; c < end; c++)
        trials_nic(p, c);
    trials_pairs(p, t->class_host + first, end - first, false);
    for (int32_t c = first; c < end; c++)
        trials_neighbours(p, c);
    trials_pairs(p, t->class_host + first, end - first, true);
    for (int32_t c = first; c < end; c++)
        trials_within(p, c);
}

static int trials_order(const void *a, const void *b)
{
    const gci_trial *x = a, *y = b;
    int by_round = (x->round > y->round) - (x->round < y->round);
    return by_round ? by_round : (x->driver > y->driver) - (x->driver < y->driver);
}

GCI int gci_trials_make(gci_env *env, const gci_clusters *s, gci_trials *t)
{
    size_t ranks = (size_t)s->topo->nodes, sites = (size_t)s->clusters;
    *t = (gci_trials){ .ranks = s->topo->nodes, .sites = s->clusters };
    if (s->clusters > GCI_TRIAL_SITES)
        return GC_ERR_UNSUPPORTED;
    trials_plan p = { .env = env, .t = t };
    int32_t *block = gci_alloc(env, (6 * ranks + 2 * sites + 3) * sizeof *block);
    if (block) {
        t->host_of = block;
        t->class_of = block + ranks;
        t->site_of = block + 2 * ranks;
        t->rank = block + 3 * ranks;
        t->second = block + 4 * ranks;
        t->class_host = block + 5 * ranks;
        t->first_host = block + 6 * ranks + 1;
        t->first_class = block + 6 * ranks + sites + 2;
        trials_hosts(s, t);
        trials_classes(s, t);
        trials_pairs(&p, t->first_host, t->sites, false);
        trials_uplinks(&p);
        trials_trunks(&p);
        trials_pairs(&p, t->first_host, t->sites, true);
        for (int32_t k = 0; k < t->sites; k++)
            trials_of_site(&p, k);
        if (t->n > 0)
            qsort(t->trial, (size_t)t->n, sizeof *t->trial, trials_order);
        for (int i = 0; i < t->n; i++)
            t->needed = t->trial[i].optional ? t->needed : t->trial[i].round + 1;
    }
    gci_free(env, p.busy);
    if (block && !p.full)
        return GC_OK;
    gci_trials_free(env, t);
    return GC_ERR_NOMEM;
}

GCI void gci_trials_free(gci_env *env, gci_trials *t)
{
    gci_free(env, t->host_of);
    gci_free(env, t->trial);
    *t = (gci_trials){ 0 };
}

/* ---- what was found ---------------------------------------------------------------------------------------------- */

/* Where the flows of a part come from and go to; -1: from or to several. */
typedef struct trials_ends { int32_t from_host, to_host, from_site, to_site; } trials_ends;

/* A part, and what it says: the time of a byte beside those of an empty message, of each of its flows. */
typedef struct trials_part {
    const gci_findings *found;
    const gci_flow     *flow;
    int         part, flows;
    double      slope;
    trials_ends ends;
} trials_part;

typedef struct trials_fit {
    gci_env          *env;
    const gci_trials *t;
    trials_part      *part;             /* of all trials, those of one beside each other */
    const trials_part **some;           /* room for all */
    int               parts;
    gc_model         *m;
    double           *slope;            /* [classes * classes] of one message between hosts; 0: not known */
    double           *single;           /* [2 * classes] of the fastest out of a host, and into it */
} trials_fit;

/* The first of those that have several packets, if there is one of twice its length to tell a rate with; else the shortest. */
static int trials_first_long(const gci_findings *found, int part)
{
    const gci_finding *point = found->point[part];
    int n = (int)found->points[part], i = 0;
    while (i < n && point[i].bytes < TRIALS_PACKETS * GCI_TRIAL_PACKET)
        i++;
    return i < n && point[n - 1].bytes >= 2 * point[i].bytes ? i : 0;
}

/* One flow: the straight line with the least squares through the first of those that have several packets: how long a message of
 * one takes tells more than a rate, where it has to be whole before it goes on. Several, which may have begun one after another:
 * between the two longest, where all are under way. */
static double trials_slope(const gci_findings *found, int part, int flows)
{
    const gci_finding *point = found->point[part];
    double above = 0, below = 0;
    int n = (int)found->points[part], first = trials_first_long(found, part);
    for (int i = first + 1; i < n && flows == 1; i++) {
        double bytes = (double)(point[i].bytes - point[first].bytes);
        above += bytes * (point[i].seconds - point[first].seconds);
        below += bytes * bytes;
    }
    if (flows == 1 && n > 1 && above <= 0) {            /* the first one was disturbed: some rate is better than none */
        above = point[n - 1].seconds - point[0].seconds;
        below = (double)(point[n - 1].bytes - point[0].bytes);
    }
    if (flows > 1 && n > 1) {
        above = point[n - 1].seconds - point[n - 2].seconds;
        below = (double)(point[n - 1].bytes - point[n - 2].bytes);
    }
    return below > 0 && above > 0 ? above / below : 0;
}

static int32_t trials_same(int i, int32_t before, int32_t now) { return i == 0 || before == now ? now : -1; }

static trials_ends trials_ends_of(const gci_trials *t, const gci_flow flow[], int flows)
{
    trials_ends e = { -1, -1, -1, -1 };
    for (int i = 0; i < flows; i++) {
        e.from_host = trials_same(i, e.from_host, t->host_of[flow[i].from]);
        e.to_host = trials_same(i, e.to_host, t->host_of[flow[i].to]);
        e.from_site = trials_same(i, e.from_site, trials_site(t, flow[i].from));
        e.to_site = trials_same(i, e.to_site, trials_site(t, flow[i].to));
    }
    return e;
}

static void trials_parts(trials_fit *f, const gci_findings found[])
{
    const gci_trials *t = f->t;
    for (int i = 0; i < t->n; i++)
        for (int part = 0; part < t->trial[i].parts; part++) {
            const gci_flow *flow = t->trial[i].flow[part];
            int flows = t->trial[i].flows[part];
            f->part[f->parts++] = (trials_part){ &found[i], flow, part, flows, trials_slope(&found[i], part, flows),
                                                 trials_ends_of(t, flow, flows) };
        }
}

static int trials_slower(const void *a, const void *b)
{
    double x = (*(const trials_part *const *)a)->slope, y = (*(const trials_part *const *)b)->slope;
    return (x > y) - (x < y);
}

/* The single flow that stands for those between two classes: of several the one of median rate, of two the faster. All pairs of
 * two sites have the same. NULL: none was tried. */
static const trials_part *trials_stands(const trials_fit *f, int32_t a, int32_t b, bool within)
{
    const gci_trials *t = f->t;
    bool apart = t->site_of[a] != t->site_of[b];
    int n = 0;
    for (int i = 0; i < f->parts; i++) {
        const trials_part *p = &f->part[i];
        const trials_ends *e = &p->ends;
        if (p->flows > 1 || p->found->points[p->part] < 2 || (e->from_host == e->to_host) != within)
            continue;
        if (apart ? e->from_site == t->site_of[a] && e->to_site == t->site_of[b]
                  : t->class_of[p->flow->from] == a && t->class_of[p->flow->to] == b)
            f->some[n++] = p;
    }
    if (n > 0)
        qsort(f->some, (size_t)n, sizeof *f->some, trials_slower);
    return n > 0 ? f->some[(n - 1) / 2] : NULL;
}

/* ---- the costs of pairs ------------------------------------------------------------------------------------------ */

/* There and back: two latencies, two bytes and their headers. If all long messages take longer than at this rate, by so much or
 * more, that is on the way of their first packet. */
static int trials_hockney(gci_env *env, const trials_part *p, size_t header, gci_cost_model *cost)
{
    const trials_part *back = p->part ? p - 1 : p + 1;
    const gci_finding *point = p->found->point[p->part];
    int first = trials_first_long(p->found, p->part), n = (int)p->found->points[p->part], err = GC_OK;
    double latency = (point[0].seconds - (p->slope + back->slope) * (double)(1 + header)) / 2, way = point[first].seconds;
    cost->latency = gci_max_real(latency, 0);
    cost->per_byte = p->slope;
    for (int i = first; i < n; i++)
        way = gci_min_real(way, point[i].seconds - point[0].seconds - p->slope * (double)(point[i].bytes - point[0].bytes));
    bool has_way = first > 0 && p->slope > 0 && way > TRIALS_WAY * point[0].seconds;
    for (size_t packets = 0; packets <= 2 && has_way && err == GC_OK; packets++)
        err = gci_model_point(env, &cost->curve[GCI_COST_WAY], packets * GCI_TRIAL_PACKET, packets ? way : 0);
    return err;
}

/* Kielmann, Bal and Verstoep 2000: the shortest there and back takes 2 (L + g(0)), a longer one there g(m) - g(0) more. */
static int trials_plogp(gci_env *env, const trials_part *p, gci_cost_model *cost)
{
    const gci_finding *point = p->found->point[p->part];
    double before = 0, latency = point[0].seconds / 2 - p->found->gap;
    int err = GC_OK;
    cost->latency = gci_max_real(latency, 0);
    for (int i = 0; i < p->found->points[p->part] && err == GC_OK; i++) {
        double gap = point[i].seconds - point[0].seconds + p->found->gap;
        before = gci_max_real(gap, before);
        err = gci_model_point(env, &cost->curve[GCI_COST_GAP], (size_t)point[i].bytes, before);
    }
    for (int side = GCI_COST_SEND; side <= GCI_COST_RECV; side++)
        for (int i = 0; i < p->found->points[side] && err == GC_OK; i++) {
            const gci_finding *busy = &p->found->point[side][i];
            if (busy->busy > 0)
                err = gci_model_point(env, &cost->curve[side], (size_t)busy->bytes, busy->busy);
        }
    return err;
}

static int trials_cost(const trials_fit *f, const trials_part *p, gci_cost_model *cost)
{
    if (f->m->kind == GCI_PLOGP)
        return trials_plogp(f->env, p, cost);
    return trials_hockney(f->env, p, f->m->header, cost);
}

static int trials_costs(trials_fit *f)
{
    int err = GC_OK, n = f->t->classes;
    for (int32_t a = 0; a < n && err == GC_OK; a++) {
        const trials_part *p;
        for (int32_t b = 0; b < n && err == GC_OK; b++)
            if ((p = trials_stands(f, a, b, false)) != NULL) {
                f->slope[a * n + b] = p->slope;
                err = trials_cost(f, p, &f->m->between[a * n + b]);
            }
        if (err == GC_OK && (p = trials_stands(f, a, a, true)) != NULL)
            err = trials_cost(f, p, &f->m->within[a]);
    }
    return err;
}

/* ---- what is shared ---------------------------------------------------------------------------------------------- */

static void trials_least(double *rate, double found)
{
    if (found > 0 && (*rate <= 0 || found < *rate))
        *rate = found;
}

/* What a host takes, out or in: no less than its fastest single flow, and no more than as many of those as there were flows. */
static void trials_fit_nic(const trials_fit *f, const trials_part *p, int32_t class, bool in)
{
    double single = f->single[2 * class + in], together = p->slope / p->flows;
    double *rate = in ? &f->m->nic[class].in : &f->m->nic[class].out;
    if (p->flows == 1)
        trials_least(&f->single[2 * class + in], p->slope);
    else if (single <= 0)
        trials_least(rate, together);
    else
        trials_least(rate, gci_min_real(gci_max_real(together, single / p->flows), single));
}

/* First all single flows, then several at once; where those were not tried, a single one takes all that there is. */
static void trials_fit_nics(trials_fit *f)
{
    const gci_trials *t = f->t;
    for (int i = 0; i < 2 * f->parts; i++) {
        const trials_part *p = &f->part[i % f->parts];
        if ((p->flows == 1) != (i < f->parts) || p->ends.from_host == p->ends.to_host)
            continue;
        if (p->ends.from_host >= 0)
            trials_fit_nic(f, p, t->class_of[p->flow->from], false);
        if (p->ends.to_host >= 0)
            trials_fit_nic(f, p, t->class_of[p->flow->to], true);
    }
    for (int32_t c = 0; c < t->classes; c++) {
        gci_port *nic = &f->m->nic[c];
        nic->out = nic->out > 0 ? nic->out : f->single[2 * c];
        nic->in = nic->in > 0 ? nic->in : f->single[2 * c + 1];
    }
}

/* The time of a byte of each flow, as far as pairs and hosts explain it. */
static double trials_explained(const trials_fit *f, const trials_part *p)
{
    const gci_trials *t = f->t;
    double most = 0;
    for (int i = 0; i < p->flows; i++) {
        gci_flow flow = p->flow[i];
        int32_t a = t->class_of[flow.from], b = t->class_of[flow.to], out = 0, in = 0;
        for (int k = 0; k < p->flows; k++) {
            out += t->host_of[p->flow[k].from] == t->host_of[flow.from];
            in += t->host_of[p->flow[k].to] == t->host_of[flow.to];
        }
        most = gci_max_real(most, f->slope[a * t->classes + b]);
        most = gci_max_real(most, gci_max_real(f->m->nic[a].out * out, f->m->nic[b].in * in));
    }
    return most;
}

static void trials_fit_uplinks(trials_fit *f)
{
    for (int i = 0; i < f->parts; i++) {
        const trials_part *p = &f->part[i];
        if (p->flows < 2 || p->slope <= TRIALS_SHARED * trials_explained(f, p))
            continue;
        if (p->ends.from_site >= 0 && p->ends.to_site < 0)
            f->m->uplink[p->ends.from_site].out = p->slope / p->flows;
        else if (p->ends.to_site >= 0 && p->ends.from_site < 0)
            f->m->uplink[p->ends.to_site].in = p->slope / p->flows;
    }
}

static void trials_fit_trunks(trials_fit *f)
{
    for (int i = 0; i < f->parts; i++) {
        const trials_part *p = &f->part[i];
        int32_t x = p->ends.from_site, y = p->ends.to_site;
        if (p->flows < 2 || x < 0 || y < 0 || x == y)
            continue;
        double uplinks = p->flows * gci_max_real(f->m->uplink[x].out, f->m->uplink[y].in);
        if (p->slope > TRIALS_SHARED * gci_max_real(uplinks, trials_explained(f, p)))
            f->m->trunk[x * f->t->sites + y] = p->slope / p->flows;
    }
}

/* One flow out of a host or site, one into it: the third part of a trial. */
static void trials_fit_together(trials_fit *f)
{
    const gci_trials *t = f->t;
    for (int i = 0; i < f->parts; i++) {
        const trials_part *p = &f->part[i];
        if (p->part < 2)
            continue;
        int32_t a = t->class_of[p->flow[0].from], x = t->site_of[a];
        bool apart = trials_site(t, p->flow[0].to) != x;
        gci_port *port = apart ? &f->m->uplink[x] : &f->m->nic[a];
        if (p->slope > TRIALS_TOGETHER * trials_explained(f, p) && port->out > 0 && port->in > 0)
            port->together = true;
    }
}

GCI int gci_trials_fit(gci_env *env, const gci_trials *t, const gci_findings found[], enum gci_model_kind kind, gc_model **out)
{
    gci_env plain = { .alloc = NULL };
    trials_fit f = { .env = &plain, .t = t };
    size_t classes = (size_t)t->classes, parts = (size_t)t->n * GCI_TRIAL_PARTS + 1;
    int err = gci_model_make(&plain, kind, t->ranks, t->class_of, t->host_of, t->site_of, &f.m);
    *out = NULL;
    if (err < 0)
        return err;
    f.m->header = GCI_HEADER_BYTES;
    f.part = gci_alloc(env, parts * sizeof *f.part);
    f.some = gci_alloc(env, parts * sizeof *f.some);
    f.slope = gci_alloc(env, classes * classes * sizeof *f.slope);
    f.single = gci_alloc(env, 2 * classes * sizeof *f.single);
    err = f.part && f.some && f.slope && f.single ? GC_OK : GC_ERR_NOMEM;
    if (err == GC_OK) {
        trials_parts(&f, found);
        err = trials_costs(&f);
    }
    if (err == GC_OK) {
        trials_fit_nics(&f);
        trials_fit_uplinks(&f);
        trials_fit_trunks(&f);
        trials_fit_together(&f);
        *out = f.m;
    } else
        gci_model_drop(&plain, f.m);
    gci_free(env, f.part);
    gci_free(env, f.some);
    gci_free(env, f.slope);
    gci_free(env, f.single);
    return err;
}
