/* decide.c: which algorithm a model says is the fastest: tables for choose.c (pure).
 * SPDX-License-Identifier: MIT
 *
 * A table has one choice for each operation and each class of sizes, around 1, 2, 4 bytes and so on up to 4 MiB; beyond,
 * segments grow with the vector. Where the rules of choose.c are as good, it has none. It is made of predictions for calls that
 * any algorithm can do: even, commutative, associative, from root 0. Calls of another kind take what the rules say, and so does
 * a call that the chosen algorithm refuses.
 *
 * The candidates are the pool, with trees that are made for the model, trees by several numbers, and each that can cut a vector with
 * several segments. What the rules
 * say comes first, and another one must be faster by DECIDE_GAIN: predictions are not so exact that a tie would tell anything.
 *
 * Not all is predicted, for a job of 1,000 ranks has hundreds of candidates: where two classes DECIDE_STRIDE apart agree, what
 * is between them follows; nobody is faster than the latency, nor than itself with fewer bytes; a prediction ends when it is not
 * the fastest any more; and what takes very many steps (a message for nearly every two of many ranks) is not looked at.
 */
#include "gridcomm_int.h"

#include <math.h>
#include <stdlib.h>

enum { DECIDE_VERSION = 5,              /* of all of this: tables that were saved by another one are made again */
       DECIDE_STRIDE = 4,               /* classes from one full look to the next, */
       DECIDE_FEW = 100,                /* of more ranks than this twice as many */
       DECIDE_PARTS = 256,              /* segments of a vector, at most */
       DECIDE_STEPS = 200 * 1000 };     /* of all ranks: what takes more is not looked at */
#define DECIDE_EITHER 0.01              /* more time for each rank that one sends long messages to, or gets them from; ... */
#define DECIDE_BOTH   0.05              /* ... for each but the first, if both; but ... */
#define DECIDE_LOST   0.3               /* ... no more than that: as much as is lost between 8 ranks */
#define DECIDE_GAIN 0.98               /* of the time that the rules' choice takes: less is a gain */

static const char *const decide_shapes[] = { "kary:3", "kary:8", "knomial:3", "knomial:8" };
static const char decide_rules[] = "rules";     /* in texts: what they say */
static const size_t decide_segments[] = { 8 * 1024, 64 * 1024 };

/* ---- tables ------------------------------------------------------------------------------------------------------ */

/* The class of 2^k holds from 2/3 of it to 4/3 of it. */
static int decide_class(size_t bytes)
{
    int k = 0;
    for (size_t half = gci_min(bytes, GCI_DECIDE_MOST); (half + half / 2) >> 1 >> k; )
        k++;
    return k < GCI_DECIDE_SIZES ? k : GCI_DECIDE_SIZES - 1;
}

static bool decide_has_blocks(enum gci_coll coll)
{
    return (coll >= GCI_SCATTER && coll <= GCI_ALLTOALL) || coll == GCI_REDUCE_SCATTER;
}

GCI bool gci_decided(const gci_decisions *d, const gci_call *call, gci_algo_choice *out)
{
    size_t bytes = decide_has_blocks(call->coll) ? call->own : call->bytes;
    if (call->tree || !call->even || !call->commutative || !call->associative || call->canonical)
        return false;
    *out = d->at[call->coll][decide_class(bytes)];
    if (bytes > GCI_DECIDE_MOST)
        out->segment *= bytes / GCI_DECIDE_MOST;
    return out->name[0] != 0;
}

static bool decide_is_same(const gci_algo_choice *a, const gci_algo_choice *b)
{
    return a->segment == b->segment && strcmp(a->name, b->name) == 0;
}

static void decide_add_choice(gci_text *out, const gci_algo_choice *c)
{
    gci_text_add(out, " %s", c->name[0] ? c->name : decide_rules);
    if (c->segment > 0)
        gci_text_add(out, "@%zu", c->segment);
}

GCI void gci_decisions_write(const gci_decisions *d, gci_text *out)
{
    for (int coll = 0; coll < GCI_COLLS; coll++)
        for (int k = 0; k < GCI_DECIDE_SIZES; k++) {
            if (k > 0 ? decide_is_same(&d->at[coll][k], &d->at[coll][k - 1]) : !d->at[coll][k].name[0])
                continue;
            gci_text_add(out, "choice %s %zu", gci_coll_name((enum gci_coll)coll), (size_t)1 << k);
            decide_add_choice(out, &d->at[coll][k]);
            gci_text_add(out, "\n");
        }
}

GCI void gci_decisions_describe(const gci_decisions *d, gci_text *out)
{
    for (int coll = 0; coll < GCI_COLLS; coll++) {
        const gci_algo_choice *at = d->at[coll];
        gci_text_add(out, "%-15s by the model", gci_coll_name((enum gci_coll)coll));
        for (int k = 0; k < GCI_DECIDE_SIZES; k++) {
            bool last = k + 1 == GCI_DECIDE_SIZES;
            if (!last && decide_is_same(&at[k], &at[k + 1]))
                continue;
            decide_add_choice(out, &at[k]);
            if (!last)
                gci_text_add(out, " to %zu bytes;", (((size_t)4 << k) - 1) / 3);
        }
        gci_text_add(out, "\n");
    }
}

GCI bool gci_decisions_read(gci_decisions *d, const char *operation, size_t operation_bytes, size_t from, const char *name,
                            size_t name_bytes)
{
    gci_algo_choice choice = { .segment = 0 };
    int coll = gci_coll_find(operation, operation_bytes);
    bool rules = name_bytes == strlen(decide_rules) && memcmp(name, decide_rules, name_bytes) == 0;
    if (coll == GCI_COLLS || from < 1 || from > GCI_DECIDE_MOST ||
        (!rules && !gci_choose_read_name((enum gci_coll)coll, name, name_bytes, &choice)))
        return false;
    for (int k = decide_class(from); k < GCI_DECIDE_SIZES; k++)
        d->at[coll][k] = choice;
    return true;
}

/* ---- candidates -------------------------------------------------------------------------------------------------- */

typedef struct decide_list { gci_candidate *item; int n; } decide_list;

static void decide_add(decide_list *list, const char *name, size_t segment)
{
    gci_candidate *c = &list->item[list->n];
    if (list->n == GCI_CANDIDATES)
        return;
    *c = (gci_candidate){ .how.segment = segment };
    snprintf(c->how.name, sizeof c->how.name, "%s", name);
    for (int i = 0; i < list->n; i++)
        if (decide_is_same(&list->item[i].how, &c->how))
            return;
    list->n++;
}

/* Can it cut the vector of this operation? */
static bool decide_cuts(const gci_algo *algo, enum gci_coll coll)
{
    if (coll == GCI_SCAN || coll == GCI_EXSCAN)
        return algo->emit == gci_direct_algo || algo->emit == gci_wide_algo || algo->emit == gci_by_host_algo;
    return (coll == GCI_BCAST || coll == GCI_REDUCE || coll == GCI_ALLREDUCE) &&
           (algo->emit == gci_tree_algo || algo->emit == gci_circulant_algo || algo->emit == gci_wide_algo ||
            algo->emit == gci_by_host_algo);
}

static void decide_add_cuts(decide_list *list, const gci_algo *algo, const char *name, const gci_call *call)
{
    decide_add(list, name, 0);
    for (size_t i = 0; i < GCI_COUNT(decide_segments) && decide_cuts(algo, call->coll); i++)
        if (decide_segments[i] < call->bytes && call->bytes / decide_segments[i] <= DECIDE_PARTS)
            decide_add(list, name, decide_segments[i]);
}

/* Between clusters, or hosts, "wide" and "by-host" are what the rules say; of what they cannot cut, no second form is asked for. */
static bool decide_is_asked(const gci_algo *algo, const gci_call *call)
{
    const gci_clusters *s = call->clusters;
    if (algo->emit == gci_wide_algo)
        return s && s->clusters > 1 && decide_cuts(algo, call->coll);
    if (algo->emit == gci_by_host_algo)
        return s && s->by_host && decide_cuts(algo, call->coll);
    return algo->emit != gci_nested_algo || (s && s->by_host);
}

static void decide_pool(decide_list *list, const gci_call *call)
{
    for (int i = 0; gci_algo_at(i); i++) {
        const gci_algo *algo = gci_algo_at(i);
        bool numbered = strcmp(algo->name, "kary") == 0 || strcmp(algo->name, "knomial") == 0;
        if (!(algo->colls >> call->coll & 1) || strcmp(algo->name, "given") == 0)
            continue;
        for (size_t k = 0; k < GCI_COUNT(decide_shapes) && numbered; k++)
            if (strncmp(decide_shapes[k], algo->name, strlen(algo->name)) == 0)
                decide_add_cuts(list, algo, decide_shapes[k], call);
        if (!numbered && decide_is_asked(algo, call))
            decide_add_cuts(list, algo, algo->name, call);
    }
}

/* By what candidates are compared: what connections lose that share a NIC with others, and the more with what comes back. */
static double decide_weight(const gci_candidate *c)
{
    double others = DECIDE_EITHER * c->partners.either + DECIDE_BOTH * gci_max32(c->partners.both - 1, 0);
    return c->seconds * (1 + gci_min_real(others, DECIDE_LOST));
}

/* GC_ERR_UNSUPPORTED: it cannot. */
static int decide_predict(gci_env *env, const gc_model *model, const gci_call *call, size_t most, double limit,
                          gci_candidate *c)
{
    gci_call own = *call;
    own.segment = c->how.segment;
    return gci_predict_within(env, model, &own, c->how.name, most, limit, &c->seconds, &c->partners);
}

/* The first of the rules that can. GC_ERR_UNSUPPORTED: it has too many steps. */
static int decide_rule(gci_env *env, const gc_model *model, const gci_call *call, size_t most, gci_candidate *c)
{
    gci_sched sched;
    gci_call own = *call;
    *c = (gci_candidate){ .is_rule = true };
    int err = gci_choose_sched(env, &own, &c->how, &sched);
    gci_sched_free(env, &sched);
    c->how.next = 0;
    return err < 0 ? err : decide_predict(env, model, call, most, HUGE_VAL, c);
}

GCI int gci_decide_call(gci_env *env, const gc_model *model, const gci_call *call, const gci_algo_choice *also,
                        gci_candidate out[GCI_CANDIDATES], int *n)
{
    decide_list list = { out, 1 };
    int err = decide_rule(env, model, call, SIZE_MAX, &out[0]), kept = 1;
    if (err == GC_OK && also)
        decide_add(&list, also->name, also->segment);
    if (err == GC_OK)
        decide_pool(&list, call);
    for (int i = 1; i < list.n && err == GC_OK; i++) {
        gci_candidate c = out[i];
        int at = kept;
        err = decide_predict(env, model, call, SIZE_MAX, HUGE_VAL, &c);
        if (err == GC_ERR_UNSUPPORTED) {
            err = GC_OK;
            continue;
        }
        for (; at > 0 && decide_weight(&c) < decide_weight(&out[at - 1]) * (out[at - 1].is_rule ? DECIDE_GAIN : 1); at--)
            out[at] = out[at - 1];
        out[at] = c;
        kept++;
    }
    *n = err < 0 ? 0 : kept;
    return err;
}

GCI gci_call gci_decide_example(enum gci_coll coll, int ranks, int root, size_t bytes, const gci_clusters *clusters)
{
    return (gci_call){ .coll = coll, .ranks = ranks, .root = root, .bytes = bytes, .own = bytes, .even = true,
                       .send = { .each = bytes }, .recv = { .each = bytes }, .elem_bytes = 1, .commutative = true,
                       .associative = true, .clusters = clusters };
}

/* ---- a whole table ----------------------------------------------------------------------------------------------- */

/* known: what candidates have taken for fewer bytes, so what they take at least. */
typedef struct decide {
    gci_env            *env;
    const gc_model     *model;
    const gci_clusters *clusters;
    gci_algo_choice    *at;             /* of this operation */
    enum gci_coll       coll;
    gci_candidate       list[GCI_CANDIDATES], known[GCI_CANDIDATES];
    size_t              known_bytes[GCI_CANDIDATES];
    int                 knowns, stride;
    double              latency;        /* that nobody is faster than */
} decide;

static gci_call decide_call_of(const decide *d, int k)
{
    return gci_decide_example(d->coll, d->model->ranks, 0, d->coll == GCI_BARRIER ? 0 : (size_t)1 << k, d->clusters);
}

static void decide_note(decide *d, const gci_candidate *c, size_t bytes)
{
    int i = 0;
    while (i < d->knowns && !decide_is_same(&d->known[i].how, &c->how))
        i++;
    if (i == GCI_CANDIDATES)
        return;
    d->known[i] = *c;
    d->known_bytes[i] = bytes;
    d->knowns += i == d->knowns;
}

/* It takes no less than for fewer bytes, nor less than the way of one segment. */
static double decide_floor(const decide *d, const gci_algo_choice *how)
{
    double most = 0;
    for (int i = 0; i < d->knowns; i++) {
        const gci_candidate *c = &d->known[i];
        bool way = c->how.segment == 0 && how->segment >= d->known_bytes[i] && strcmp(c->how.name, how->name) == 0;
        if ((way || decide_is_same(&c->how, how)) && c->seconds > most)
            most = c->seconds;
    }
    return most;
}

/* No byte of a rank for another one comes before this. */
static double decide_latency(const gc_model *m)
{
    double longest = 0;
    for (int y = 0; y < m->sites; y++) {
        double in = HUGE_VAL;           /* the nearest way into a site, or out of it; of all ways if there is but one */
        for (int i = 0; i < m->classes * m->classes; i++) {
            int from = m->site_of[i / m->classes], to = m->site_of[i % m->classes];
            if (m->sites == 1 || (to == y) != (from == y))
                in = gci_min_real(in, m->between[i].latency + m->trunk[from * m->sites + to] * (double)(m->header + 1));
        }
        for (int c = 0; c < m->classes && m->sites == 1; c++)
            in = gci_min_real(in, m->within[c].latency);
        if (y != m->site_of[m->class_of[0]] || m->sites == 1)
            longest = gci_max_real(longest, in);
    }
    return longest;
}

/* Of the list's candidates the best; the first is that of the rules. */
static int decide_best(decide *d, const decide_list *list, const gci_call *call, gci_algo_choice *out)
{
    double best = decide_weight(&list->item[0]) * DECIDE_GAIN;
    *out = (gci_algo_choice){ .segment = 0 };
    decide_note(d, &list->item[0], call->bytes);
    if (best <= d->latency)
        return GC_OK;
    for (int i = 1; i < list->n; i++) {
        gci_candidate *c = &list->item[i];
        if (decide_floor(d, &c->how) >= best)
            continue;
        int err = decide_predict(d->env, d->model, call, DECIDE_STEPS, best, c);
        if (err < 0 && err != GC_ERR_UNSUPPORTED)
            return err;
        if (err == GC_ERR_UNSUPPORTED)
            c->seconds = HUGE_VAL;      /* whatever the size */
        decide_note(d, c, call->bytes);
        if (decide_weight(c) < best) {
            best = decide_weight(c);
            *out = c->how;
        }
    }
    return GC_OK;
}

static int decide_fully(decide *d, int k)
{
    gci_call call = decide_call_of(d, k);
    decide_list list = { d->list, 1 };
    int err = decide_rule(d->env, d->model, &call, DECIDE_STEPS, &d->list[0]);
    if (err == GC_ERR_UNSUPPORTED)
        return GC_OK;                   /* too long to compare with */
    decide_pool(&list, &call);
    return err < 0 ? err : decide_best(d, &list, &call, &d->at[k]);
}

/* A class between two that are decided: what the rules say, or one of theirs. */
static int decide_between(decide *d, int first, int k, int last)
{
    gci_call call = decide_call_of(d, k);
    decide_list list = { d->list, 1 };
    int err = decide_rule(d->env, d->model, &call, DECIDE_STEPS, &d->list[0]);
    if (err == GC_ERR_UNSUPPORTED)
        return GC_OK;
    for (int i = first; i <= last; i += last - first)
        if (d->at[i].name[0])
            decide_add(&list, d->at[i].name, d->at[i].segment);
    d->knowns = 0;                      /* of another size, perhaps a larger one */
    return err < 0 ? err : decide_best(d, &list, &call, &d->at[k]);
}

/* Those above first and below last, which are decided. */
static int decide_inside(decide *d, int first, int last)
{
    int middle = (first + last) / 2, err = GC_OK;
    if (last - first < 2)
        return GC_OK;
    if (decide_is_same(&d->at[first], &d->at[last])) {
        for (int k = first + 1; k < last; k++)
            d->at[k] = d->at[first];
        return GC_OK;
    }
    err = decide_between(d, first, middle, last);
    if (err == GC_OK)
        err = decide_inside(d, first, middle);
    return err == GC_OK ? decide_inside(d, middle, last) : err;
}

static int decide_coll(decide *d)
{
    const int most = d->coll == GCI_BARRIER ? 0 : GCI_DECIDE_SIZES - 1;
    int err = GC_OK;
    for (int k = 0; k < most + d->stride && err == GC_OK; k += d->stride)
        err = decide_fully(d, k < most ? k : most);
    for (int k = 0; k < most && err == GC_OK; k += d->stride)
        err = decide_inside(d, k, k + d->stride < most ? k + d->stride : most);
    for (int k = 1; k < GCI_DECIDE_SIZES && most == 0; k++)
        d->at[k] = d->at[0];
    return err;
}

/* ---- what a table is made for ------------------------------------------------------------------------------------- */

/* FNV-1a (Fowler, Noll and Vo), of the same bytes on all processors. */
static void decide_mix(uint64_t *hash, double x)
{
    uint8_t bytes[8];
    gci_put_real(bytes, x);
    for (size_t i = 0; i < sizeof bytes; i++)
        *hash = (*hash ^ bytes[i]) * UINT64_C(1099511628211);
}

static void decide_mix_ints(uint64_t *hash, const int32_t *x, int n)
{
    for (int i = 0; i < n; i++)
        decide_mix(hash, x[i]);
}

static void decide_mix_port(uint64_t *hash, const gci_port *p)
{
    decide_mix(hash, p->out);
    decide_mix(hash, p->in);
    decide_mix(hash, p->together);
}

static void decide_mix_cost(uint64_t *hash, const gci_cost_model *c)
{
    decide_mix(hash, c->latency);
    decide_mix(hash, c->per_byte);
    for (int k = 0; k < GCI_COSTS; k++) {
        decide_mix(hash, c->curve[k].points);
        for (int32_t i = 0; i < c->curve[k].points; i++) {
            decide_mix(hash, (double)c->curve[k].point[i].bytes);
            decide_mix(hash, c->curve[k].point[i].seconds);
        }
    }
}

GCI uint64_t gci_decide_for(const gc_model *m, const gci_clusters *clusters)
{
    const gci_topo *topo = clusters->topo;
    const double numbers[] = { DECIDE_VERSION, m->ranks, m->classes, m->sites, (double)m->header, (double)m->eager, m->reduce, m->copy };
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < GCI_COUNT(numbers); i++)
        decide_mix(&hash, numbers[i]);
    decide_mix_ints(&hash, m->class_of, m->ranks);
    decide_mix_ints(&hash, m->host_of, m->ranks);
    decide_mix_ints(&hash, m->site_of, m->classes);
    for (int i = 0; i < m->sites * m->sites; i++)
        decide_mix(&hash, m->trunk[i]);
    for (int i = 0; i < m->sites; i++)
        decide_mix_port(&hash, &m->uplink[i]);
    for (int i = 0; i < m->classes; i++) {
        decide_mix_port(&hash, &m->nic[i]);
        decide_mix_cost(&hash, &m->within[i]);
    }
    for (int i = 0; i < m->classes * m->classes; i++)
        decide_mix_cost(&hash, &m->between[i]);
    decide_mix_ints(&hash, topo->of, topo->nodes);
    decide_mix_ints(&hash, topo->parent, topo->clusters);
    return (hash ^ hash >> 32) % INT32_MAX + 1;         /* which all machines can read in a file */
}

GCI int gci_decide(gci_env *env, const gc_model *model, const gci_clusters *clusters, gci_decisions *out)
{
    uint64_t made_for = gci_decide_for(model, clusters);
    if (out->made_for == made_for)
        return GC_OK;
    decide *d = gci_alloc(env, sizeof *d);
    int err = d ? GC_OK : GC_ERR_NOMEM;
    double latency = decide_latency(model);
    memset(out, 0, sizeof *out);
    for (int coll = 0; coll < GCI_COLLS && err == GC_OK; coll++) {
        *d = (decide){ .env = env, .model = model, .clusters = clusters, .at = out->at[coll], .coll = (enum gci_coll)coll,
                       .latency = latency, .stride = model->ranks > DECIDE_FEW ? 2 * DECIDE_STRIDE : DECIDE_STRIDE };
        err = decide_coll(d);
    }
    out->made_for = err < 0 ? 0 : made_for;
    gci_free(env, d);
    return err;
}
