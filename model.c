/* model.c: what messages cost between ranks (pure).
 * SPDX-License-Identifier: MIT
 *
 * One form serves all models: a message keeps its sender's processor for o_s, passes through what it shares with others
 * (ports and lines, each at its rate; the gap is that of its own connection), takes the latency, and keeps its receiver's
 * processor for o_r. Its bytes flow through all of these at once, so alone it takes the latency and the time of the slowest.
 * Hockney's model is that with nothing but a latency and a rate; PLogP's latency covers both overheads; LogP and LogGP
 * (Alexandrov et al. 1995) are put in terms of PLogP, by Kielmann, Bal and Verstoep 2000.
 *
 * Costs belong to pairs of classes and ports to hosts and sites, so 1,000 ranks in 20 clusters need 400 entries, not 10^6.
 */
#include "gridcomm_int.h"

/* ---- life -------------------------------------------------------------------------------------------------------- */

static void model_curves_free(gci_env *env, gci_cost_model *cost, size_t n)
{
    for (size_t i = 0; cost && i < n; i++)
        for (int k = 0; k < GCI_COSTS; k++)
            gci_free(env, cost[i].curve[k].point);
    gci_free(env, cost);
}

GCI void gci_model_drop(gci_env *env, gc_model *m)
{
    if (!m)
        return;
    model_curves_free(env, m->between, (size_t)m->classes * (size_t)m->classes);
    model_curves_free(env, m->within, (size_t)m->classes);
    gci_free(env, m->class_of);
    gci_free(env, m->host_of);
    gci_free(env, m->site_of);
    gci_free(env, m->nic);
    gci_free(env, m->uplink);
    gci_free(env, m->trunk);
    gci_free(env, m->table);
    gci_free(env, m);
}

void gc_model_free(gc_model *model)
{
    gci_env env = { .alloc = NULL };
    gci_model_drop(&env, model);
}

/* One more than the highest of n numbers of which none is left out; 0: some is, or is negative. *out is a copy of them. given
 * NULL: they count up by `step`. */
static int model_numbers(gci_env *env, const int32_t *given, int n, int step, int32_t **out)
{
    int32_t *own = *out = gci_alloc(env, (size_t)n * sizeof *own);
    char *seen = gci_alloc(env, (size_t)n);
    int highest = -1, found = 0;
    for (int i = 0; own && seen && i < n; i++) {
        own[i] = given ? given[i] : i * step;
        if (own[i] < 0 || own[i] >= n) {
            found = -1;
            break;
        }
        highest = gci_max32(highest, own[i]);
        found += !seen[own[i]];
        seen[own[i]] = 1;
    }
    gci_free(env, seen);
    return !own || !seen ? GC_ERR_NOMEM : found == highest + 1 ? found : GC_ERR_ARG;
}

/* The ranks of a host are of one class. */
static int model_check_hosts(gci_env *env, const gc_model *m)
{
    int err = GC_OK;
    int32_t *class_of_host = gci_alloc(env, (size_t)m->hosts * sizeof *class_of_host);      /* + 1 */
    if (!class_of_host)
        return GC_ERR_NOMEM;
    for (int i = 0; i < m->ranks; i++) {
        int32_t *known = &class_of_host[m->host_of[i]];
        if (*known && *known != m->class_of[i] + 1)
            err = GC_ERR_ARG;
        *known = m->class_of[i] + 1;
    }
    gci_free(env, class_of_host);
    return err;
}

static int model_fill(gci_env *env, gc_model *m, const int32_t class_of[], const int32_t host_of[], const int32_t site_of[])
{
    if ((m->classes = model_numbers(env, class_of, m->ranks, 0, &m->class_of)) < 0)
        return m->classes;
    if ((m->hosts = model_numbers(env, host_of, m->ranks, 1, &m->host_of)) < 0)
        return m->hosts;
    if ((m->sites = model_numbers(env, site_of, m->classes, 0, &m->site_of)) < 0)
        return m->sites;
    size_t classes = (size_t)m->classes, sites = (size_t)m->sites;
    if (classes * classes > GCI_MODEL_PAIRS)
        return GC_ERR_ARG;
    m->between = gci_alloc(env, classes * classes * sizeof *m->between);
    m->within = gci_alloc(env, classes * sizeof *m->within);
    m->nic = gci_alloc(env, classes * sizeof *m->nic);
    m->uplink = gci_alloc(env, sites * sizeof *m->uplink);
    m->trunk = gci_alloc(env, sites * sites * sizeof *m->trunk);
    if (!m->between || !m->within || !m->nic || !m->uplink || !m->trunk)
        return GC_ERR_NOMEM;
    return model_check_hosts(env, m);
}

GCI int gci_model_make(gci_env *env, enum gci_model_kind kind, int ranks, const int32_t class_of[], const int32_t host_of[],
                       const int32_t site_of[], gc_model **out)
{
    *out = NULL;
    if (ranks < 1 || ranks > GCI_RANKS_MAX)
        return GC_ERR_ARG;
    gc_model *m = gci_alloc(env, sizeof *m);
    if (!m)
        return GC_ERR_NOMEM;
    m->kind = kind;
    m->ranks = ranks;
    m->table = gci_alloc(env, sizeof *m->table);
    int err = m->table ? model_fill(env, m, class_of, host_of, site_of) : GC_ERR_NOMEM;
    if (err < 0) {
        m->classes = gci_max32(m->classes, 0);
        gci_model_drop(env, m);
        return err;
    }
    *out = m;
    return GC_OK;
}

/* ---- costs ------------------------------------------------------------------------------------------------------- */

GCI int gci_model_point(gci_env *env, gci_curve *curve, size_t bytes, double seconds)
{
    if (curve->points > 0 && curve->point[curve->points - 1].bytes >= bytes)
        return GC_ERR_ARG;
    gci_point *grown = gci_realloc(env, curve->point, ((size_t)curve->points + 1) * sizeof *grown);
    if (!grown)
        return GC_ERR_NOMEM;
    grown[curve->points++] = (gci_point){ bytes, seconds };
    curve->point = grown;
    return GC_OK;
}

/* s/byte from one point to the next. */
static double model_slope(const gci_curve *c, int32_t i)
{
    const gci_point *a = &c->point[i], *b = a + 1;
    return (b->seconds - a->seconds) / ((double)b->bytes - (double)a->bytes);
}

/* The point from which on the line to the next one counts; there are two points or more. */
static int32_t model_piece(const gci_curve *c, size_t bytes)
{
    int32_t i = 0;
    while (i < c->points - 2 && c->point[i + 1].bytes <= bytes)
        i++;
    return i;
}

GCI double gci_curve_at(const gci_curve *c, size_t bytes)
{
    if (c->points < 2)
        return c->points ? c->point[0].seconds : 0;
    int32_t i = model_piece(c, bytes);
    return gci_max_real(c->point[i].seconds + model_slope(c, i) * ((double)bytes - (double)c->point[i].bytes), 0);
}

GCI double gci_cost_latency(const gci_cost_model *cost, size_t bytes)
{
    return cost->latency + gci_curve_at(&cost->curve[GCI_COST_WAY], bytes);
}

GCI const gci_cost_model *gci_model_cost(const gc_model *m, int from, int to)
{
    int32_t a = m->class_of[from], b = m->class_of[to];
    return m->host_of[from] == m->host_of[to] ? &m->within[a] : &m->between[(size_t)a * (size_t)m->classes + (size_t)b];
}

GCI double gci_model_gap(const gc_model *m, const gci_cost_model *cost, size_t bytes)
{
    return cost->per_byte * (double)(bytes + m->header) + gci_curve_at(&cost->curve[GCI_COST_GAP], bytes);
}

/* s/byte of the slowest thing that a message shares with others. */
static double model_shared(const gc_model *m, int from, int to)
{
    int32_t a = m->class_of[from], b = m->class_of[to], x = m->site_of[a], y = m->site_of[b];
    if (m->host_of[from] == m->host_of[to])
        return 0;
    double most = gci_max_real(m->nic[a].out, m->nic[b].in);
    if (x != y) {
        most = gci_max_real(most, m->trunk[(size_t)x * (size_t)m->sites + (size_t)y]);
        most = gci_max_real(most, gci_max_real(m->uplink[x].out, m->uplink[y].in));
    }
    return most;
}

GCI double gci_model_p2p(const gc_model *m, int from, int to, size_t bytes)
{
    const gci_cost_model *cost = gci_model_cost(m, from, to);
    double shared = model_shared(m, from, to) * (double)(bytes + m->header);
    return from == to ? 0 : gci_cost_latency(cost, bytes) + gci_max_real(gci_model_gap(m, cost, bytes), shared);
}

int gc_model_p2p(const gc_model *model, int source, int dest, size_t bytes, double *seconds)
{
    if (!model || !seconds || source < 0 || source >= model->ranks || dest < 0 || dest >= model->ranks)
        return GC_ERR_ARG;
    *seconds = gci_model_p2p(model, source, dest, bytes);
    return GC_OK;
}

/* ---- in ticks ------------------------------------------------------------------------------------------------------ */

/* What ranks work out each for itself must come out the same on all processors, and floating point need not. All of them read the
 * same numbers, though, and to scale one by a power of two, to compare it and to cut off what is behind its point is exact; from
 * there on it is integers. */
enum { MODEL_FINE = 50,                 /* 2^-50 s, or s/byte: 10 Gbit/s are 10^6 of them */
       MODEL_TICK = 16 };               /* 2^16 of them are a tick, 58 ps */

static int64_t model_fine(double x)
{
    const int64_t most = GCI_TICKS_MOST << MODEL_TICK;
    double scaled = x * (double)(INT64_C(1) << MODEL_FINE);
    return scaled >= (double)most ? most : scaled > 0 ? (int64_t)scaled : 0;
}

static int64_t model_at_most(int64_t ticks)
{
    return ticks < GCI_TICKS_MOST ? ticks : GCI_TICKS_MOST;
}

/* What so many bytes take. */
static int64_t model_flow(int64_t rate, size_t bytes)
{
    if (rate > 0 && bytes > (uint64_t)(INT64_MAX / rate))
        return GCI_TICKS_MOST;
    return model_at_most(rate * (int64_t)bytes >> MODEL_TICK);
}

static int64_t model_curve_ticks(const gci_curve *c, size_t bytes)
{
    if (c->points < 2)
        return c->points ? model_fine(c->point[0].seconds) >> MODEL_TICK : 0;
    const gci_point *a = &c->point[model_piece(c, bytes)], *b = a + 1;
    int64_t from = model_fine(a->seconds), up = model_fine(b->seconds) - from;
    bool falls = up < 0, before = bytes < a->bytes;
    uint64_t rate = (uint64_t)(falls ? -up : up) / (b->bytes - a->bytes);
    int64_t way = model_flow((int64_t)rate, before ? a->bytes - bytes : bytes - a->bytes);
    int64_t ticks = (from >> MODEL_TICK) + (falls == before ? way : -way);
    return ticks > 0 ? model_at_most(ticks) : 0;
}

static int64_t model_gap_ticks(const gc_model *m, const gci_cost_model *cost, size_t bytes)
{
    return model_flow(model_fine(cost->per_byte), bytes + m->header) + model_curve_ticks(&cost->curve[GCI_COST_GAP], bytes);
}

GCI int64_t gci_model_ticks(const gc_model *m, int from, int to, size_t bytes)
{
    const gci_cost_model *cost = gci_model_cost(m, from, to);
    int64_t gap = model_gap_ticks(m, cost, bytes), shared = model_flow(model_fine(model_shared(m, from, to)), bytes + m->header);
    int64_t latency = (model_fine(cost->latency) >> MODEL_TICK) + model_curve_ticks(&cost->curve[GCI_COST_WAY], bytes);
    return from == to ? 0 : model_at_most(latency + (gap > shared ? gap : shared));
}

GCI int64_t gci_model_busy_ticks(const gc_model *m, int from, int to, size_t bytes)
{
    const gci_cost_model *cost = gci_model_cost(m, from, to);
    double nic = m->host_of[from] == m->host_of[to] ? 0 : m->nic[m->class_of[from]].out;
    int64_t busy = nic > 0 ? model_flow(model_fine(nic), bytes + m->header) : model_gap_ticks(m, cost, bytes);
    int64_t send = model_curve_ticks(&cost->curve[GCI_COST_SEND], bytes);
    return model_at_most(busy > send ? busy : send);
}

/* ---- LogP and LogGP ---------------------------------------------------------------------------------------------- */

/* L + 2 o + (m - 1) G = L' + g'(m), with g'(m) = g + (m - 1) G. */
GCI int gci_model_from_loggp(gci_env *env, const gci_loggp *p, gci_cost_model *out)
{
    int err;
    *out = (gci_cost_model){ .latency = p->latency + 2 * p->overhead - p->gap };
    if (out->latency < 0 && out->latency > -1e-9 * p->gap)
        out->latency = 0;               /* as wide as sums of decimal fractions are */
    if (out->latency < 0)
        return GC_ERR_ARG;
    if ((err = gci_model_point(env, &out->curve[GCI_COST_SEND], 1, p->overhead)) == GC_OK &&
        (err = gci_model_point(env, &out->curve[GCI_COST_RECV], 1, p->overhead)) == GC_OK &&
        (err = gci_model_point(env, &out->curve[GCI_COST_GAP], 1, p->gap)) == GC_OK)
        err = gci_model_point(env, &out->curve[GCI_COST_GAP], 2, p->gap + p->per_byte);
    return err;
}

GCI gci_loggp gci_model_to_loggp(const gci_cost_model *cost)
{
    const gci_curve *gap = &cost->curve[GCI_COST_GAP];
    double both = gci_curve_at(&cost->curve[GCI_COST_SEND], 1) + gci_curve_at(&cost->curve[GCI_COST_RECV], 1);
    gci_loggp p = { .overhead = both / 2, .gap = gci_curve_at(gap, 1) + cost->per_byte, .per_byte = cost->per_byte };
    p.latency = cost->latency + p.gap - both;
    if (gap->points > 1)
        p.per_byte += model_slope(gap, gap->points - 2);
    return p;
}
