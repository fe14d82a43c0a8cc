/* bounds.c: collectives timed on the simulated network, each beside its lower bound.
 * SPDX-License-Identifier: MIT
 *
 * Before each run all ranks meet, let the library come to rest, and sleep until one instant. Who is through only looks after the
 * library now and then: what others would wait for would cost them milliseconds.
 */
#include "tests/sim/bounds.h"

#include "gridcomm_int.h"
#include "tests/gct.h"
#include "tests/sim/simnet.h"

#include <stdlib.h>
#include <string.h>

static const int64_t bounds_latency = 10000000, bounds_near = 50000, bounds_rate = 1000000, bounds_nic = 125000000;
enum { BOUNDS_HEADER = 48 };

/* What an operation moves, as far as the bound depends on it. */
enum bounds_flow { FROM_ROOT, TO_ROOT, TO_LATER, ALL };
enum bounds_size { NOTHING, VECTOR, BLOCKS_OF_SENDER, BLOCKS_OF_RECEIVER, BLOCKS_OF_PAIRS };

static const struct bounds_kind {
    const char       *name;
    enum bounds_flow  flow;
    enum bounds_size  size;
    bool              before, after;    /* it needs data of, or for, others in the cluster */
} bounds_kinds[BOUNDS_OPS] = {
    [BOUNDS_BARRIER]              = { "barrier",              ALL,       NOTHING,            true,  true },
    [BOUNDS_BCAST]                = { "bcast",                FROM_ROOT, VECTOR,             false, true },
    [BOUNDS_SCATTER]              = { "scatter",              FROM_ROOT, BLOCKS_OF_RECEIVER, false, true },
    [BOUNDS_SCATTERV]             = { "scatterv",             FROM_ROOT, BLOCKS_OF_RECEIVER, false, true },
    [BOUNDS_GATHER]               = { "gather",               TO_ROOT,   BLOCKS_OF_SENDER,   true,  false },
    [BOUNDS_GATHERV]              = { "gatherv",              TO_ROOT,   BLOCKS_OF_SENDER,   true,  false },
    [BOUNDS_ALLGATHER]            = { "allgather",            ALL,       BLOCKS_OF_SENDER,   true,  true },
    [BOUNDS_ALLGATHERV]           = { "allgatherv",           ALL,       BLOCKS_OF_SENDER,   true,  true },
    [BOUNDS_ALLTOALL]             = { "alltoall",             ALL,       BLOCKS_OF_PAIRS,    true,  true },
    [BOUNDS_ALLTOALLV]            = { "alltoallv",            ALL,       BLOCKS_OF_PAIRS,    true,  true },
    [BOUNDS_REDUCE]               = { "reduce",               TO_ROOT,   VECTOR,             true,  false },
    [BOUNDS_ALLREDUCE]            = { "allreduce",            ALL,       VECTOR,             true,  true },
    [BOUNDS_REDUCE_SCATTER]       = { "reduce_scatter",       ALL,       BLOCKS_OF_RECEIVER, true,  true },
    [BOUNDS_REDUCE_SCATTER_BLOCK] = { "reduce_scatter_block", ALL,       BLOCKS_OF_RECEIVER, true,  true },
    [BOUNDS_SCAN]                 = { "scan",                 TO_LATER,  VECTOR,             true,  true },
    [BOUNDS_EXSCAN]               = { "exscan",               TO_LATER,  VECTOR,             true,  true },
};

const char *bounds_op_name(enum bounds_op op) { return bounds_kinds[op].name; }

bool bounds_rooted(enum bounds_op op)
{
    return bounds_kinds[op].flow == FROM_ROOT || bounds_kinds[op].flow == TO_ROOT;
}

/* ---- the bound ---- */

int bounds_ranks(const bounds_net *net)
{
    int n = 0;
    for (int i = 0; i < net->clusters; i++) {
        n += net->ranks[i];
    }
    return n;
}

/* The k-th rank of cluster i as the communicator counts: cluster by cluster, or one of each cluster in turn. */
static int bounds_rank(const bounds_net *net, int i, int k)
{
    int rank = 0;
    for (int j = 0; j < net->clusters; j++) {
        int n = net->ranks[j];
        rank += !net->cyclic ? (j < i ? n : 0) : j < i ? (n < k + 1 ? n : k + 1) : n < k ? n : k;
    }
    return net->cyclic ? rank : rank + k;
}

int bounds_cluster(const bounds_net *net, int rank)
{
    for (int i = 0; i < net->clusters; i++) {
        for (int k = 0; k < net->ranks[i]; k++) {
            if (bounds_rank(net, i, k) == rank) {
                return i;
            }
        }
    }
    abort();
}

/* Must something get from cluster i to cluster k, and how many bytes at least? */
static bool bounds_flows(const bounds_net *net, const bounds_cell *c, int i, int k, double *bytes)
{
    const struct bounds_kind *kind = &bounds_kinds[c->op];
    bool scattered = kind->flow == TO_LATER && net->cyclic;     /* a prefix ends and begins again in every cluster */
    int root = bounds_rooted(c->op) ? bounds_cluster(net, c->root) : 0, n = net->ranks[i], to = net->ranks[k];
    double m = (double)c->bytes;
    switch (scattered ? BLOCKS_OF_SENDER : kind->size) {
    case NOTHING:            *bytes = 0; break;
    case VECTOR:             *bytes = m; break;
    case BLOCKS_OF_SENDER:   *bytes = n * m; break;
    case BLOCKS_OF_RECEIVER: *bytes = to * m; break;
    case BLOCKS_OF_PAIRS:    *bytes = (double)n * to * m; break;
    }
    switch (scattered ? ALL : kind->flow) {
    case FROM_ROOT: return i != k && i == root;
    case TO_ROOT:   return i != k && k == root;
    case TO_LATER:  return i < k;
    case ALL:       break;
    }
    return i != k;
}

/* header: of each message that crosses; one more is always counted. */
static int64_t bounds_least(const bounds_net *net, const bounds_cell *c, double header)
{
    double most = 0, out[BOUNDS_CLUSTERS] = { 0 }, in[BOUNDS_CLUSTERS] = { 0 }, bytes = 0;
    bool before = false, after = false;
    for (int i = 0; i < net->clusters; i++) {
        for (int k = 0; k < net->clusters; k++) {
            if (!bounds_flows(net, c, i, k, &bytes)) {
                continue;
            }
            before |= bounds_kinds[c->op].before && net->ranks[i] > 1;
            after |= bounds_kinds[c->op].after && net->ranks[k] > 1;
            out[i] = net->uplinks ? out[i] + bytes + header : bytes + header;
            in[k] = net->uplinks ? in[k] + bytes + header : bytes + header;
            most = out[i] > most ? out[i] : most;
            most = in[k] > most ? in[k] : most;
        }
    }
    return bounds_latency + (before + after) * bounds_near +
           (int64_t)((most + BOUNDS_HEADER - header) * (1e9 / (double)bounds_rate));
}

int64_t bounds_lower(const bounds_net *net, const bounds_cell *c) { return bounds_least(net, c, 0); }
int64_t bounds_with_headers(const bounds_net *net, const bounds_cell *c) { return bounds_least(net, c, BOUNDS_HEADER); }

int64_t bounds_divided(const bounds_net *net, const bounds_cell *c)
{
    if ((c->op != BOUNDS_BCAST && c->op != BOUNDS_ALLREDUCE) || net->clusters < 3)
        return INT64_MAX;
    bounds_cell none = { .op = c->op, .root = c->root };
    bool twice = c->op == BOUNDS_ALLREDUCE;         /* over each link goes a share of the vector there, and one of the result */
    double others = net->clusters - 1, share = (double)c->bytes / (twice ? net->clusters : others);
    int64_t once = (int64_t)(share * (net->uplinks ? others : 1) * (1e9 / (double)bounds_rate));
    return bounds_lower(net, &none) + once + (twice && once > bounds_latency ? once : bounds_latency);
}

int64_t bounds_warm(const bounds_cell *c)
{
    int64_t most = 0;
    for (int i = 0; i < BOUNDS_WARM; i++) {
        most = c->warm[i] > most ? c->warm[i] : most;
    }
    return most;
}

double bounds_ratio(const bounds_cell *c) { return (double)bounds_warm(c) / (double)c->bound; }
bool bounds_holds(const bounds_cell *c) { return bounds_ratio(c) <= (c->bytes <= 1 ? 1.02 : 1.05); }

/* ---- the job ---- */

typedef struct bounds_job {
    const bounds_net *net;
    bounds_cell *cells;
    int      count, ranks;
    int      arrived;               /* at meetings, all together */
    int64_t  start, end;
    bool     bad;                   /* somebody found something wrong: no need to go on */
    gct_outcome outcome;
} bounds_job;

static int64_t now(void) { return sim_sys(sim_current())->now(sim_sys(sim_current())); }

/* All come, rest, and leave at one instant. */
static int bounds_meet(gc_comm *world, bounds_job *job, int meeting)
{
    const int64_t look = 1000000, rest = 300 * look;
    if (++job->arrived == (meeting + 1) * job->ranks) {
        job->start = now() + rest;
        job->end = 0;
    }
    while (job->arrived < (meeting + 1) * job->ranks || now() < job->start - 10 * look) {
        if (job->bad) {
            return 1;
        }
        (void)gc_progress(world);
        sim_sleep(sim_current(), look);
    }
    sim_sleep(sim_current(), job->start - now());
    return 0;
}

typedef struct bounds_buffers {
    uint8_t *send, *recv;
    size_t  *sizes, *offsets;       /* of the v forms: equal blocks */
    size_t   send_bytes, recv_bytes;
} bounds_buffers;

static int bounds_call(gc_comm *comm, const bounds_cell *c, const bounds_buffers *b)
{
    size_t m = c->bytes;
    switch (c->op) {
    case BOUNDS_BARRIER:        return gc_barrier(comm);
    case BOUNDS_BCAST:          return gc_bcast(comm, b->recv, m, c->root);
    case BOUNDS_GATHER:         return gc_gather(comm, b->send, m, b->recv, c->root);
    case BOUNDS_ALLGATHER:      return gc_allgather(comm, b->send, m, b->recv);
    case BOUNDS_REDUCE:         return gc_reduce(comm, b->send, b->recv, m, GC_UINT8, GC_SUM, c->root);
    case BOUNDS_ALLREDUCE:      return gc_allreduce(comm, b->send, b->recv, m, GC_UINT8, GC_SUM);
    case BOUNDS_SCATTER:        return gc_scatter(comm, b->send, m, b->recv, c->root);
    case BOUNDS_SCATTERV:       return gc_scatterv(comm, b->send, b->sizes, b->offsets, b->recv, m, c->root);
    case BOUNDS_GATHERV:        return gc_gatherv(comm, b->send, m, b->recv, b->sizes, b->offsets, c->root);
    case BOUNDS_ALLGATHERV:     return gc_allgatherv(comm, b->send, m, b->recv, b->sizes, b->offsets);
    case BOUNDS_ALLTOALL:       return gc_alltoall(comm, b->send, m, b->recv);
    case BOUNDS_ALLTOALLV:
        return gc_alltoallv(comm, b->send, b->sizes, b->offsets, b->recv, b->sizes, b->offsets);
    case BOUNDS_REDUCE_SCATTER: return gc_reduce_scatter(comm, b->send, b->recv, b->sizes, GC_UINT8, GC_SUM);
    case BOUNDS_REDUCE_SCATTER_BLOCK:
        return gc_reduce_scatter_block(comm, b->send, b->recv, m, GC_UINT8, GC_SUM);
    case BOUNDS_SCAN:           return gc_scan(comm, b->send, b->recv, m, GC_UINT8, GC_SUM);
    case BOUNDS_EXSCAN:         return gc_exscan(comm, b->send, b->recv, m, GC_UINT8, GC_SUM);
    default:                    return GC_ERR_ARG;
    }
}

/* What each byte is that a rank sends in block k, and that it must have in block k. */
static uint8_t bounds_sent(int rank, int k) { return (uint8_t)(7 * rank + k + 1); }

static uint8_t bounds_sum(int ranks, int k)
{
    unsigned sum = 0;
    for (int i = 0; i < ranks; i++) {
        sum += bounds_sent(i, k);
    }
    return (uint8_t)sum;
}

static uint8_t bounds_wanted(const bounds_cell *c, int rank, int size, int k)
{
    switch (c->op) {
    case BOUNDS_BCAST:          return bounds_sent(c->root, 0);
    case BOUNDS_SCATTER:
    case BOUNDS_SCATTERV:       return bounds_sent(c->root, rank);
    case BOUNDS_GATHER:
    case BOUNDS_GATHERV:
    case BOUNDS_ALLGATHER:
    case BOUNDS_ALLGATHERV:     return bounds_sent(k, 0);
    case BOUNDS_ALLTOALL:
    case BOUNDS_ALLTOALLV:      return bounds_sent(k, rank);
    case BOUNDS_REDUCE:
    case BOUNDS_ALLREDUCE:      return bounds_sum(size, 0);
    case BOUNDS_REDUCE_SCATTER:
    case BOUNDS_REDUCE_SCATTER_BLOCK: return bounds_sum(size, rank);
    case BOUNDS_SCAN:           return bounds_sum(rank + 1, 0);
    case BOUNDS_EXSCAN:         return bounds_sum(rank, 0);
    default:                    return 0;
    }
}

static void bounds_prepare(bounds_buffers *b, const bounds_cell *c, int rank, int size)
{
    enum bounds_op op = c->op;
    bool root = rank == c->root, all_send = op == BOUNDS_ALLTOALL || op == BOUNDS_ALLTOALLV || op == BOUNDS_REDUCE_SCATTER ||
                                            op == BOUNDS_REDUCE_SCATTER_BLOCK;
    bool all_get = op == BOUNDS_ALLTOALL || op == BOUNDS_ALLTOALLV || op == BOUNDS_ALLGATHER || op == BOUNDS_ALLGATHERV;
    int sends = all_send || (root && (op == BOUNDS_SCATTER || op == BOUNDS_SCATTERV)) ? size : 1;
    int gets = all_get || (root && (op == BOUNDS_GATHER || op == BOUNDS_GATHERV)) ? size : 1;
    b->send_bytes = (size_t)sends * c->bytes;
    b->recv_bytes = (size_t)gets * c->bytes;
    b->send = gct_buffer(b->send_bytes);
    b->recv = gct_buffer(b->recv_bytes);
    b->sizes = gct_buffer((size_t)size * sizeof *b->sizes);
    b->offsets = gct_buffer((size_t)size * sizeof *b->offsets);
    for (int k = 0; k < size; k++) {
        b->sizes[k] = c->bytes;
        b->offsets[k] = (size_t)k * c->bytes;
    }
    for (int k = 0; k < sends; k++) {
        memset(b->send + (size_t)k * c->bytes, bounds_sent(rank, k), c->bytes);
    }
    if (op == BOUNDS_BCAST && root) {
        memset(b->recv, bounds_sent(rank, 0), c->bytes);
    }
}

static int bounds_check(const bounds_buffers *b, const bounds_cell *c, int rank, int size)
{
    bool only_root = c->op == BOUNDS_GATHER || c->op == BOUNDS_GATHERV || c->op == BOUNDS_REDUCE;
    if (c->op == BOUNDS_BARRIER || (only_root && rank != c->root) || (c->op == BOUNDS_EXSCAN && rank == 0)) {
        return 0;
    }
    for (size_t k = 0; k * c->bytes < b->recv_bytes; k++) {
        uint8_t wanted = bounds_wanted(c, rank, size, (int)k);
        const uint8_t *block = b->recv + k * c->bytes;
        gct_require(block[0] == wanted && memcmp(block, block + 1, c->bytes - 1) == 0, "%s of %zu bytes: block %zu has %d for %d",
                    bounds_op_name(c->op), c->bytes, k, block[0], wanted);
    }
    return 0;
}

static int bounds_try(gc_comm *world, gc_comm *comm, bounds_job *job, int cell, int turn)
{
    bounds_cell *c = &job->cells[cell];
    bounds_buffers b;
    int rank = gc_rank(comm), size = gc_size(comm);
    bounds_prepare(&b, c, rank, size);
    if (bounds_meet(world, job, 2 * (cell * (1 + BOUNDS_WARM) + turn))) {
        return 1;
    }
    int64_t start = now();
    gct_require(start == job->start, "late");
    gct_ok(bounds_call(comm, c, &b));
    job->end = now() > job->end ? now() : job->end;
    int bad = bounds_check(&b, c, rank, size);
    bad |= gct_buffer_free(b.send) | gct_buffer_free(b.recv) | gct_buffer_free(b.sizes) | gct_buffer_free(b.offsets);
    if (getenv("BOUNDS_TRACE") && turn == BOUNDS_WARM) {
        printf("%s %zu: rank %d through after %.3f ms\n", bounds_op_name(c->op), c->bytes, rank, (double)(now() - start) / 1e6);
    }
    int64_t *end = turn ? &c->warm[turn - 1] : &c->cold;
    *end = job->end - start > *end ? job->end - start : *end;
    return bad | bounds_meet(world, job, 2 * (cell * (1 + BOUNDS_WARM) + turn) + 1);
}

static const char *bounds_operation(enum bounds_op op)
{
    static const char *const even[BOUNDS_OPS] = { [BOUNDS_SCATTERV] = "scatter", [BOUNDS_GATHERV] = "gather",
                                                  [BOUNDS_ALLGATHERV] = "allgather", [BOUNDS_ALLTOALLV] = "alltoall",
                                                  [BOUNDS_REDUCE_SCATTER_BLOCK] = "reduce_scatter" };
    return even[op] ? even[op] : bounds_op_name(op);
}

static int bounds_predict(gc_comm *comm, const bounds_net *net, bounds_cell *c)
{
    int err = gc_predict(comm, net->model, bounds_operation(c->op), c->algo, c->bytes, c->root, &c->predicted);
    if (err == GC_ERR_UNSUPPORTED) {            /* and another algorithm ran */
        c->predicted = 0;
        return 0;
    }
    gct_ok(err);
    return 0;
}

static int bounds_run(gc_comm *world, gc_comm *comm, bounds_job *job, int cell, int turn)
{
    int bad = bounds_try(world, comm, job, cell, turn);
    job->bad |= bad != 0;
    return bad;
}

static int bounds_main(gc_comm *world, int rank, int size, void *arg)
{
    bounds_job *job = arg;
    const bounds_net *net = job->net;
    gc_comm *comm = world;
    int bad = 0, cluster = 0, before = 0;
    (void)size;
    while (rank >= before + net->ranks[cluster]) {
        before += net->ranks[cluster++];
    }
    if (net->cyclic) {
        gct_ok(gc_comm_split(world, 0, bounds_rank(net, cluster, rank - before), &comm));
    }
    if (net->uses_model) {
        gct_ok(gc_model_use(comm, net->model));
    }
    for (int cell = 0; cell < job->count && !bad; cell++) {
        for (int turn = 0; turn <= BOUNDS_WARM && !bad; turn++) {
            bad = bounds_run(world, comm, job, cell, turn);
        }
        bad |= net->model && gc_rank(comm) == 0 ? bounds_predict(comm, net, &job->cells[cell]) : 0;
    }
    return bad;
}

static void bounds_arrange(struct sim *s, struct sim_proc **procs, int ranks, void *arg)
{
    const bounds_job *job = arg;
    (void)s;
    for (int i = 0; i < ranks && job->net->uplinks; i++) {
        sim_uplink(sim_site_of(sim_proc_host(procs[i])), bounds_rate);
    }
}

static void bounds_options(gc_options *o, int rank, void *arg)
{
    const bounds_job *job = arg;
    gct_usual_options(o, rank, arg);
    o->algo = job->net->algo;
}

int bounds_measure(const bounds_net *net, bounds_cell *cells, int count, int time_limit)
{
    const int64_t wide = INT64_C(1000000000000);
    gct_place places[BOUNDS_CLUSTERS] = { { 0 } };
    bounds_job job = { .net = net, .cells = cells, .count = count, .ranks = bounds_ranks(net) };
    for (int i = 0; i < net->clusters; i++) {
        places[i].ranks = net->ranks[i];
    }
    for (int i = 0; i < count; i++) {
        cells[i].bound = bounds_lower(net, &cells[i]);
        cells[i].cold = 0;
        memset(cells[i].warm, 0, sizeof cells[i].warm);
    }
    gct_spec spec = { .ranks = job.ranks, .on = GCT_ON_SIM, .seed = 1, .calm = true, .places = places, .arrange = bounds_arrange,
                      .lan_latency = bounds_near, .lan_rate = bounds_nic, .wan_latency = bounds_latency,
                      .wan_rate = net->uplinks ? wide : bounds_rate, .time_limit = time_limit, .outcome = &job.outcome,
                      .options = bounds_options, .virtual_limit = 36000 * (int64_t)1000000000, .unwitnessed = net->unwitnessed };
    return gct_job(&spec, bounds_main, &job);
}

/* ---- models of it --------------------------------------------------------------------------------------------------- */

gc_model *bounds_model(struct gci_env *env, const bounds_net *net)
{
    int32_t class_of[64] = { 0 }, site_of[BOUNDS_CLUSTERS] = { 0 };
    int n = 0;
    gc_model *m;
    for (int i = 0; i < net->clusters; i++) {
        site_of[i] = i;
        for (int k = 0; k < net->ranks[i]; k++) {
            class_of[n++] = i;
        }
    }
    if (gci_model_make(env, GCI_HOCKNEY, n, class_of, NULL, site_of, &m) < 0) {
        return NULL;
    }
    m->header = BOUNDS_HEADER;
    for (int i = 0; i < net->clusters; i++) {
        m->nic[i] = (gci_port){ .out = 8e-9, .in = 8e-9 };
        m->uplink[i] = (gci_port){ .out = net->uplinks ? 1e-6 : 0, .in = net->uplinks ? 1e-6 : 0 };
        for (int k = 0; k < net->clusters; k++) {
            m->between[i * net->clusters + k].latency = i == k ? 50e-6 : 10e-3;
            m->trunk[i * net->clusters + k] = i == k || net->uplinks ? 0 : 1e-6;
        }
    }
    return m;
}

/* ---- the library's operations ---------------------------------------------------------------------------------------- */

enum bounds_op bounds_op_of(int coll)
{
    static const enum bounds_op even[GCI_COLLS] = {
        BOUNDS_BARRIER, BOUNDS_BCAST, BOUNDS_SCATTER, BOUNDS_GATHER, BOUNDS_ALLGATHER, BOUNDS_ALLTOALL, BOUNDS_REDUCE,
        BOUNDS_ALLREDUCE, BOUNDS_REDUCE_SCATTER_BLOCK, BOUNDS_SCAN, BOUNDS_EXSCAN };
    return even[coll];
}

const char *bounds_force(char *list, size_t room, int coll, int k, bool clusters)
{
    for (int i = 0; gci_algo_at(i); i++) {
        const gci_algo *a = gci_algo_at(i);
        bool can = strcmp(a->name, "given") != 0 && (clusters || strncmp(a->name, "wide", 4) != 0);
        if (can && a->colls >> coll & 1 && k-- == 0) {
            snprintf(list + strlen(list), room - strlen(list), "%s:%s,", gci_coll_name((enum gci_coll)coll), a->name);
            return a->name;
        }
    }
    return NULL;
}
