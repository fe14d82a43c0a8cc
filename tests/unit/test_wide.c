/* test_wide.c: collectives between clusters: right, one wide-area message on every way, nothing twice, and as many messages and
 * bytes between clusters as an oracle of its own says.
 * SPDX-License-Identifier: MIT
 *
 * GCT_SEED replays the random part.
 */
#include "sched_job.h"
#include "tests/unit/failing_alloc.h"
#include "tests/unit/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_RANKS = 300, MOST_CLUSTERS = 16,
       BUNDLE = 4096,           /* bytes: of a block that scatter and gather bundle, at most; */
       LITTLE = 4096,           /* bytes of all even blocks of a cluster, at most, that an alltoall sends over its coordinator; and
                                   of what is given there, or handed out, at once, where few ranks meet; */
       BUNDLE_ALL = 2048,       /* alltoall, if clusters have at least as many ranks as there are clusters, and */
       BUNDLES_ALL = 4 << 20,   /* so much room for what goes from one to another; */
       ROW = 65536,             /* that alltoall sends in rows, if clusters have more pairs of ranks than there are clusters, and */
       ROWS_ALL = 16 << 20,     /* no two clusters have more than so much for each other, and none has more ranks than */
       ROW_RANKS = 64,
       RIDE = 256,              /* that go with what is told of their sizes, of a rank for a cluster, and ... */
       RIDES = 4096,            /* ... of all of its ranks; */
       HOP = 10240,
       SHORT = 512,             /* bytes: of vectors that need not associate, at most; and of a piece of one with many parts, at least, */
       CUTS = 64 };             /* which is not of more pieces than these, or those that it were anyway */

static gci_env env;
#define PICK(array) ((array)[below((int)GCI_COUNT(array))])

/* ---- clusters ------------------------------------------------------------------------------------------------------ */

typedef struct grid { gci_topo topo; gci_clusters s; } grid;

/* site: of each rank. deep: with racks in the sites, and several ranks on a host. */
static void make_grid(grid *g, int ranks, const int site[], bool deep)
{
    enum { RACKS = 3, HOSTS = 4 };
    static char name[MOST_CLUSTERS * RACKS][32];
    const char *path[MOST_RANKS];
    int host[MOST_RANKS];
    for (int k = 0; k < MOST_CLUSTERS * RACKS; k++)
        snprintf(name[k], sizeof name[k], deep ? "site%d/rack%d" : "site%d", k / RACKS, k % RACKS);
    for (int r = 0; r < ranks; r++) {
        int rack = deep ? below(RACKS) : 0;
        path[r] = name[site[r] * RACKS + rack];
        host[r] = deep ? (site[r] * RACKS + rack) * HOSTS + below(HOSTS) : r;
    }
    assert_int_equal(gci_topo_make(&env, ranks, path, host, &g->topo), GC_OK);
    assert_int_equal(gci_clusters_make(&env, &g->topo, &g->s), GC_OK);
}

static void drop_grid(grid *g)
{
    gci_clusters_free(&env, &g->s);
    gci_topo_free(&env, &g->topo);
}

enum order { IN_RUNS, IN_TURN, SHUFFLED, ORDERS };

/* Some ranks in every cluster; lopsided: nearly all in the first one. */
static void place_ranks(int ranks, int clusters, enum order order, bool lopsided, int site[])
{
    int size[MOST_CLUSTERS];
    for (int k = 0; k < clusters; k++)
        size[k] = 1;
    for (int i = clusters; i < ranks; i++)
        size[lopsided && below(10) ? 0 : below(clusters)]++;
    for (int r = 0, k = 0; r < ranks; r++) {
        while (size[k] == 0)
            k = (k + 1) % clusters;
        site[r] = k;
        size[k]--;
        k = order == IN_TURN ? (k + 1) % clusters : k;
    }
    for (int r = ranks - 1; r > 0 && order == SHUFFLED; r--) {
        int other = below(r + 1), swap = site[r];
        site[r] = site[other];
        site[other] = swap;
    }
}

static int size_of(const gci_clusters *s, int k)
{
    return s->first[k + 1] - s->first[k];
}

/* ---- the oracle ------------------------------------------------------------------------------------------------------ */

static bool is_scan(const job_spec *j)
{
    return j->coll == GCI_SCAN || j->coll == GCI_EXSCAN;
}

static size_t block_of(const job_spec *j, int rank)
{
    return j->sizes ? j->sizes[rank] : j->bytes;
}

/* How many canonical subexpressions of [first, end) lie in one cluster, as large as can be: those in cluster k. */
static int canonical_parts(const gci_clusters *s, int first, int end, int k)
{
    bool same = true;
    for (int r = first; r < end; r++)
        same &= s->of[r] == s->of[first];
    if (same)
        return s->of[first] == k;
    int half = 1;
    while (2 * half < end - first)
        half *= 2;
    return canonical_parts(s, first, first + half, k) + canonical_parts(s, first + half, end, k);
}

/* How many vectors cluster k has to send in a reduction. */
static int parts_of(const job_spec *j, int k)
{
    const gci_clusters *s = j->clusters;
    if (j->coll == GCI_BARRIER)
        return 1;
    if (j->from_left || (is_scan(j) && (j->canonical || !s->runs)))
        return size_of(s, k);
    if (j->canonical)
        return canonical_parts(s, 0, j->ranks, k);
    if (j->in_any_order || s->runs)
        return 1;
    int runs = 0;
    for (int r = 0; r < j->ranks; r++)
        runs += s->of[r] == k && (r == 0 || s->of[r - 1] != k);
    return runs;
}

static size_t segment_of(const job_spec *j)
{
    size_t elem = j->elem_bytes ? j->elem_bytes : 1;
    return j->segment == 0 ? SIZE_MAX : j->segment < elem ? elem : j->segment - j->segment % elem;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Of the cluster that has the most parts a message is as long as a segment, if pieces do not become too small or too many. */
static int vector_pieces(const job_spec *j)
{
    size_t parts = 1;
    if (j->bytes == 0 || j->segment == 0 || j->coll == GCI_BARRIER)
        return 1;
    for (int k = 0; k < j->clusters->clusters && gci_coll_reduces(j->coll); k++)
        parts = larger(parts, (size_t)parts_of(j, k));
    job_spec cut = *j;
    size_t most = larger(larger(j->segment / parts, j->bytes / CUTS), SHORT);
    cut.segment = j->segment < most ? j->segment : most;
    return (int)((j->bytes + segment_of(&cut) - 1) / segment_of(&cut));
}

static int hosts_of(const gci_clusters *s, int k)
{
    int hosts = 0;
    for (int i = s->first[k]; i < s->first[k + 1]; i++) {
        int before = s->first[k];
        while (s->topo->of[s->member[before]] != s->topo->of[s->member[i]])
            before++;
        hosts += before == i;
    }
    return hosts;
}

/* Tops among which hosts share the blocks of a cluster: four, as many as hosts, and each has half a MiB of the mean one; or one, where
 * summing up would take too much memory. */
static int block_shares(const job_spec *j)
{
    size_t sum = 0, most = 4, clusters = (size_t)j->clusters->clusters;
    for (int r = 0; r < j->ranks; r++)
        sum += block_of(j, r);
    size_t scratch = 2 * clusters * ((size_t)j->clusters->longest + clusters + 2) * gci_min(segment_of(j), sum / clusters);
    if (j->coll == GCI_REDUCE_SCATTER && scratch > gci_max(64 << 20, sum / clusters / 4 * clusters))
        return 1;
    for (int k = 0; k < j->clusters->clusters; k++)
        most = gci_min(most, (size_t)hosts_of(j->clusters, k));
    return (int)gci_max(1, gci_min(most, sum / (size_t)j->clusters->clusters / (512 << 10)));
}

/* The blocks of cluster k, near ranks' together if any order will do: as many whole ones as fit into a segment go together,
 * longer ones are cut. */
static int block_pieces(const job_spec *j, int k)
{
    const gci_clusters *s = j->clusters;
    bool in_order = j->coll != GCI_ALLGATHER && (!j->in_any_order || j->from_left || j->canonical);
    size_t segment = segment_of(j), filled = 0;
    int pieces = 0, shares = in_order ? 1 : block_shares(j), hosts = hosts_of(s, k), host = -1, last = -1;
    for (int i = 0; i < j->ranks; i++) {
        int rank = in_order ? i : s->topo->order[i];
        size_t block = s->of[rank] == k ? block_of(j, rank) : 0;
        if (s->of[rank] == k && s->topo->of[rank] != last) {
            last = s->topo->of[rank];
            host++;
            for (int share = 0; share < shares; share++)
                filled = share * hosts / shares == host ? 0 : filled;       /* another one begins */
        }
        if (block == 0)
            continue;
        if (block > segment) {
            pieces += (int)((block + segment - 1) / segment);
            filled = 0;
        } else if (filled > 0 && filled + block <= segment) {
            filled += block;
        } else {
            pieces++;
            filled = block;
        }
    }
    return pieces;
}

static size_t block_sum(const job_spec *j, int k)
{
    size_t sum = 0;
    for (int i = j->clusters->first[k]; i < j->clusters->first[k + 1]; i++)
        sum += block_of(j, j->clusters->member[i]);
    return sum;
}

typedef struct traffic { int messages; size_t bytes; bool repeats; } traffic;

static void add_reduction(const job_spec *j, traffic *t, int from, int pieces, size_t bytes)
{
    int parts = parts_of(j, from);
    t->messages += pieces;
    t->bytes += bytes * (size_t)parts;
    t->repeats |= parts > 1 && bytes > 0;
}

static size_t alltoall_block(const job_spec *j, int a, int b)
{
    if (!j->sizes)
        return j->bytes;
    if (j->places != JOB_APART && a > b)
        return alltoall_block(j, b, a);
    return j->sizes[a * j->ranks + b];
}

/* Does a block of so many bytes go together with others? */
static bool is_bundled(const job_spec *j, size_t bytes)
{
    const gci_clusters *s = j->clusters;
    bool fits = true;
    for (int k = 0; k < s->clusters; k++)
        fits &= bytes * (size_t)size_of(s, k) * (size_t)size_of(s, k) <= BUNDLES_ALL;
    if (j->coll != GCI_ALLTOALL)
        return bytes <= BUNDLE;
    return fits && bytes <= BUNDLE_ALL && bytes * (size_t)(s->clusters * s->clusters) <= (size_t)(BUNDLE_ALL * j->ranks);
}

static bool is_in_row(const job_spec *j, size_t bytes)
{
    const gci_clusters *s = j->clusters;
    size_t pairs = 0, longest = j->sizes ? ROW : j->bytes;
    bool few = true;
    for (int k = 0; k < s->clusters; k++) {
        few &= size_of(s, k) <= ROW_RANKS;
        for (int i = 0; i < k; i++)
            pairs = gci_max(pairs, (size_t)size_of(s, k) * (size_t)size_of(s, i));
    }
    return j->coll == GCI_ALLTOALL && few && bytes <= ROW && pairs > (size_t)s->clusters && pairs * longest <= ROWS_ALL;
}

/* What rank a has for rank b alone. */
static size_t personal_block(const job_spec *j, int a, int b)
{
    if (j->coll == GCI_ALLTOALL)
        return alltoall_block(j, a, b);
    if (j->coll == GCI_SCATTER)
        return a == j->root ? block_of(j, b) : 0;
    return b == j->root ? block_of(j, a) : 0;
}

static void add_personal(const job_spec *j, traffic *t, int from, int to)
{
    const gci_clusters *s = j->clusters;
    bool bundle = false;
    for (int a = s->first[from]; a < s->first[from + 1]; a++) {
        bool row = false;
        for (int b = s->first[to]; b < s->first[to + 1]; b++) {
            size_t bytes = personal_block(j, s->member[a], s->member[b]);
            bool bundled = is_bundled(j, bytes), rowed = !bundled && is_in_row(j, bytes);
            bundle |= bytes > 0 && bundled;
            row |= bytes > 0 && rowed;
            t->messages += bytes > 0 && !bundled && !rowed;
            t->bytes += bytes;
        }
        t->messages += row;
    }
    t->messages += bundle;
}

/* What is to go from one cluster to another. */
static void add_pair(const job_spec *j, traffic *t, int from, int to)
{
    int home = j->clusters->of[j->root];
    bool all_vectors = is_scan(j) && (j->from_left || j->canonical || !j->clusters->runs);
    switch (j->coll) {
    case GCI_BARRIER:
    case GCI_ALLREDUCE:
        add_reduction(j, t, from, vector_pieces(j), j->coll == GCI_BARRIER ? 0 : j->bytes);
        break;
    case GCI_REDUCE:
        if (to == home)
            add_reduction(j, t, from, vector_pieces(j), j->bytes);
        break;
    case GCI_BCAST:
        t->messages += from == home ? vector_pieces(j) : 0;
        t->bytes += from == home ? j->bytes : 0;
        break;
    case GCI_ALLGATHER:
        t->messages += block_pieces(j, from);
        t->bytes += block_sum(j, from);
        break;
    case GCI_REDUCE_SCATTER:
        add_reduction(j, t, from, block_pieces(j, to), block_sum(j, to));
        break;
    case GCI_SCAN:
    case GCI_EXSCAN:
        if (all_vectors || from < to)
            add_reduction(j, t, from, vector_pieces(j), j->bytes);
        break;
    default:
        add_personal(j, t, from, to);
    }
}

static traffic expected(const job_spec *j)
{
    traffic t = { 0 };
    for (int a = 0; a < j->clusters->clusters; a++)
        for (int b = 0; b < j->clusters->clusters; b++)
            if (a != b)
                add_pair(j, &t, a, b);
    return t;
}

static size_t all_bytes(const job_spec *j)
{
    size_t sum = 0;
    if (j->coll != GCI_REDUCE_SCATTER)
        return j->bytes;
    for (int r = 0; r < j->ranks; r++)
        sum += block_of(j, r);
    return sum / (size_t)j->ranks;
}

/* ---- one job --------------------------------------------------------------------------------------------------------- */

static void describe(const job_spec *j, const char *what)
{
    print_message("%s: %s of %d ranks in %d clusters (%s), root %d, %zu bytes%s, elements of %zu, segments of %zu", what,
                  gci_coll_name(j->coll), j->ranks, j->clusters->clusters, j->clusters->runs ? "runs" : "no runs", j->root,
                  j->bytes, j->sizes ? " (uneven)" : "", j->elem_bytes, j->segment);
    print_message(", places %d%s%s%s\n", (int)j->places, j->in_any_order ? ", in any order" : "",
                  j->from_left ? ", from the left" : "", j->canonical ? ", canonical" : "");
}

/* What need not associate a chain does; but it has a wide-area latency wherever the next rank is in another cluster. */
static bool is_for_a_chain(const job_spec *j)
{
    const gci_clusters *s = j->clusters;
    size_t hops = 0, limit = SHORT;
    for (int r = 1; r < j->ranks; r++)
        hops += s->of[r - 1] != s->of[r];
    if (j->coll != GCI_REDUCE_SCATTER && !s->runs)
        limit = larger(limit, HOP * hops / (size_t)(s->longest * (s->clusters - 1)));
    return gci_coll_reduces(j->coll) && j->from_left && all_bytes(j) > limit;
}

static bool run_job(const job_spec *j)
{
    check_report report = { 0 };
    char why[CHECK_TEXT] = "";
    bool empty = !j->sizes && j->bytes == 0 && j->coll != GCI_BARRIER;
    int result = job_run(&env, j, &report, why);
    if (!empty && is_for_a_chain(j)) {
        if (result != JOB_UNSUPPORTED)
            describe(j, "not refused");
        return result == JOB_UNSUPPORTED;
    }
    if (result < 0) {
        describe(j, why[0] ? why : "refused");
        return false;
    }
    traffic want = empty ? (traffic){ 0 } : expected(j);
    bool right = report.wan_hops <= 1 && (report.repeated > 0) == want.repeats && report.wan_messages == want.messages &&
                 report.wan_bytes == want.bytes;
    if (!right) {
        describe(j, "not optimal");
        print_message("    %d hops, %zu bytes repeated (%s), %d messages (want %d), %zu bytes (want %zu)\n", report.wan_hops,
                      report.repeated, want.repeats ? "some are to be" : "none is to be", report.wan_messages, want.messages,
                      report.wan_bytes, want.bytes);
    }
    return right;
}

/* ---- tests ----------------------------------------------------------------------------------------------------------- */

static const struct { bool in_any_order, from_left, canonical; } promises[] = {
    { true, false, false }, { false, false, false }, { false, true, false }, { true, false, true }, { false, false, true } };

static bool has_root(enum gci_coll coll)
{
    return coll == GCI_BCAST || coll == GCI_SCATTER || coll == GCI_GATHER || coll == GCI_REDUCE;
}

static bool run_promises(job_spec j)
{
    bool right = true;
    for (size_t i = 0; i < (gci_coll_reduces(j.coll) ? GCI_COUNT(promises) : 1); i++) {
        j.in_any_order = promises[i].in_any_order;
        j.from_left = promises[i].from_left;
        j.canonical = promises[i].canonical;
        right &= run_job(&j);
    }
    return right;
}

/* All ways to put up to 6 ranks into clusters, all roots, in place and not. */
static void test_all_small_grids(void **state)
{
    (void)state;
    bool right = true;
    for (int ranks = 2; ranks <= 6; ranks++)
        for (int code = 1, codes = 1 << 2 * (ranks - 1); code < codes; code++) {
            int site[6] = { 0 }, most = 0;
            bool numbered = true;           /* each arrangement once: a new cluster has the next number */
            for (int r = 1; r < ranks; r++) {
                site[r] = code >> 2 * (r - 1) & 3;
                numbered &= site[r] <= most + 1;
                most = site[r] > most ? site[r] : most;
            }
            if (!numbered || most == 0)
                continue;
            grid g;
            make_grid(&g, ranks, site, below(2));
            for (int coll = 0; coll < GCI_COLLS; coll++)
                for (int root = 0; root < (has_root((enum gci_coll)coll) ? ranks : 1); root++)
                    for (int places = 0; places <= (coll == GCI_BARRIER || coll == GCI_BCAST ? 0 : 2); places++)
                        right &= run_promises((job_spec){ .coll = (enum gci_coll)coll, .algo = "wide", .ranks = ranks,
                                                          .root = root, .bytes = 12, .elem_bytes = 4, .segment = 8,
                                                          .places = (enum job_places)places, .clusters = &g.s });
            drop_grid(&g);
        }
    assert_true(right);
}

static job_spec random_job(int coll, int ranks, const gci_clusters *s)
{
    static const size_t lengths[] = { 0, 1, 2, 63, 64, 65, 128, 511, 512, 1000 }, elems[] = { 1, 4, 24 };
    size_t elem = gci_coll_reduces((enum gci_coll)coll) ? PICK(elems) : 1, length = PICK(lengths) / (ranks > 100 ? 4 : 1);
    static const size_t segments[] = { 0, 0, 1, 64, 100, 8192 };
    size_t most = ranks > 100 ? 4 : 12, segment = PICK(segments) * elem;      /* pieces */
    if (segment > 0 && coll == GCI_REDUCE_SCATTER && ranks > 20)
        segment = 8 * length * elem;
    if (segment > 0 && length * elem / segment > most)
        segment = length * elem / most;
    return (job_spec){ .coll = (enum gci_coll)coll, .algo = "wide", .ranks = ranks, .root = below(ranks), .bytes = length * elem,
                       .elem_bytes = elem, .segment = segment, .places = (enum job_places)below(3), .clusters = s };
}

static void random_promise(job_spec *j)
{
    size_t i = (size_t)below((int)GCI_COUNT(promises));
    j->in_any_order = promises[i].in_any_order;
    j->from_left = promises[i].from_left;
    j->canonical = promises[i].canonical;
}

static void test_random_grids(void **state)
{
    (void)state;
    int site[MOST_RANKS];
    bool right = true;
    for (int i = 0; i < 40; i++) {
        int ranks = i % 10 == 9 ? 100 + below(MOST_RANKS - 99) : 2 + below(60);
        int most = ranks < MOST_CLUSTERS ? ranks : MOST_CLUSTERS;
        grid g;
        place_ranks(ranks, 2 + below(most - 1), (enum order)below(ORDERS), below(3) == 0, site);
        make_grid(&g, ranks, site, below(2));
        for (int coll = 0; coll < GCI_COLLS; coll++) {
            job_spec j = random_job(coll, ranks, &g.s);
            random_promise(&j);
            if (ranks > 100 && coll == GCI_ALLTOALL)
                continue;               /* 90,000 messages take the checker too long */
            if (ranks > 100 && coll == GCI_REDUCE_SCATTER)
                j.from_left = j.canonical = false;      /* as long: each rank's vector goes to each cluster */
            right &= run_job(&j);
        }
        drop_grid(&g);
    }
    assert_true(right);
}

static void test_uneven_blocks(void **state)
{
    (void)state;
    static const enum gci_coll colls[] = { GCI_SCATTER, GCI_GATHER, GCI_ALLGATHER, GCI_ALLTOALL, GCI_REDUCE_SCATTER };
    static const size_t lengths[] = { 0, 0, 1, 3, 40, 64, 65, 300, BUNDLE_ALL, BUNDLE_ALL + 1, BUNDLE, BUNDLE + 1, ROW, ROW + 1 };
    enum { SHORT_ONES = 5 };
    int site[MOST_RANKS];
    bool right = true;
    for (int i = 0; i < 80; i++) {
        bool large = i % 8 == 7;            /* trees of two levels */
        int ranks = large ? 70 + below(50) : 2 + below(40), most = large ? 4 : ranks < MOST_CLUSTERS ? ranks : MOST_CLUSTERS;
        grid g;
        place_ranks(ranks, 2 + below(most - 1), (enum order)below(ORDERS), below(3) == 0, site);
        make_grid(&g, ranks, site, below(2));
        job_spec j = random_job(large ? i / 8 % 2 ? GCI_SCATTER : GCI_GATHER : (int)PICK(colls), ranks, &g.s);
        size_t few = j.coll == GCI_ALLGATHER || j.coll == GCI_REDUCE_SCATTER ? 8 : GCI_COUNT(lengths);
        size_t *sizes = calloc((size_t)(ranks * ranks), sizeof *sizes);
        assert_non_null(sizes);
        for (int k = 0; k < ranks * ranks; k++)
            sizes[k] = lengths[below((int)(i % 2 ? few : SHORT_ONES))] * j.elem_bytes;
        j.sizes = sizes;
        j.segment = j.segment > 0 && j.segment < 32 * j.elem_bytes ? 32 * j.elem_bytes : j.segment;
        random_promise(&j);
        right &= run_job(&j);
        free(sizes);
        drop_grid(&g);
    }
    assert_true(right);
}

/* Either side of the limits: blocks that are bundled and not, vectors that are refused and not. */
static void test_limits(void **state)
{
    (void)state;
    static const int site[9] = { 0, 0, 0, 1, 1, 1, 1, 2, 2 };
    static const size_t lengths[] = { LITTLE / 4 / 9, LITTLE / 4 / 9 + 1, BUNDLE_ALL, BUNDLE_ALL + 1, BUNDLE, BUNDLE + 1,
                                      SHORT, SHORT + 1, ROW, ROW + 1 };
    grid g;
    bool right = true;
    make_grid(&g, 9, site, false);
    for (int coll = 0; coll < GCI_COLLS; coll++)
        for (size_t i = 0; i < GCI_COUNT(lengths); i++)
            right &= run_promises((job_spec){ .coll = (enum gci_coll)coll, .algo = "wide", .ranks = 9, .root = 4,
                                              .bytes = lengths[i], .segment = 1024, .clusters = &g.s });
    drop_grid(&g);
    assert_true(right);
}

/* How many messages, of blocks of so many bytes each; in clusters of `size` ranks. */
static int count_messages(enum gci_coll coll, bool even, size_t block, int clusters, int size)
{
    int ranks = clusters * size, site[MOST_RANKS];
    size_t *sizes = calloc((size_t)(ranks * ranks), sizeof *sizes);
    char why[CHECK_TEXT];
    grid g;
    assert_non_null(sizes);
    for (int i = 0; i < ranks * ranks; i++)
        sizes[i] = block;
    for (int r = 0; r < ranks; r++)
        site[r] = r / size;
    make_grid(&g, ranks, site, false);
    const job_spec j = { .coll = coll, .algo = "wide", .ranks = ranks, .elem_bytes = 1, .bytes = block,
                         .clusters = &g.s, .sizes = even ? NULL : sizes };
    int messages = job_run(&env, &j, NULL, why);
    if (messages < 0)
        describe(&j, why);
    free(sizes);
    drop_grid(&g);
    return messages;
}

/* What is told of their sizes bears short blocks, too: nothing comes to who makes a bundle but that. */
static void test_short_blocks_ride(void **state)
{
    (void)state;
    static const struct { int clusters, size; } grids[] = { { 3, 4 }, { 2, 16 }, { 2, 32 } };
    for (size_t i = 0; i < GCI_COUNT(grids); i++) {
        int c = grids[i].clusters, n = grids[i].size, local = n - 1, others = c - 1, gathered = others + local;
        size_t ride = gci_min(RIDE, RIDES / (size_t)n);
        assert_int_equal(count_messages(GCI_GATHER, false, 1, c, n), gathered);
        assert_int_equal(count_messages(GCI_GATHER, false, ride, c, n), gathered);
        assert_int_equal(count_messages(GCI_GATHER, false, ride + 1, c, n), gathered + others * local);
    }
    const int c = 2, n = 32, local = n - 1, all = c * (n * local + 1 + local);      /* straight; across; handed out */
    const size_t ride = gci_min(RIDE, RIDES / (size_t)n) / (size_t)n;
    assert_int_equal(count_messages(GCI_ALLTOALL, false, 1, c, n), all);
    assert_int_equal(count_messages(GCI_ALLTOALL, false, ride, c, n), all);
    assert_int_equal(count_messages(GCI_ALLTOALL, false, ride + 1, c, n), all + c * local);
}

/* In a call of few ranks: what short blocks there are goes to the coordinator at once, if it is little, or cluster by cluster, and
 * comes back so; longer ones of the own cluster go straight. */
static void test_few_meet_at_the_coordinator(void **state)
{
    (void)state;
    static const struct { int clusters, size; } grids[] = { { 3, 4 }, { 2, 16 }, { 8, 3 } };
    for (size_t i = 0; i < 2 * GCI_COUNT(grids); i++) {
        bool even = i % 2;
        int c = grids[i / 2].clusters, n = grids[i / 2].size, local = n - 1, others = c - 1;
        size_t at_once = LITTLE / (size_t)(n * c * n), rides = even ? at_once : gci_min(RIDE, LITTLE / (size_t)(n * c)) / (size_t)n;
        size_t here = LITTLE / (size_t)(n * n), blocks[] = { 1, rides, rides + 1, at_once, at_once + 1, here, here + 1 };
        for (size_t k = 0; k < GCI_COUNT(blocks); k++) {
            size_t block = blocks[k];
            int by_cluster = c * (block <= here ? c : others) * local, straight = block <= here ? 0 : c * n * local;
            int given = block <= rides ? even * c * local : by_cluster, got = block <= at_once ? c * local : by_cluster;
            assert_int_equal(count_messages(GCI_ALLTOALL, even, block, c, n), given + c * others + got + straight);
        }
    }
}

/* Of many ranks only even blocks do that are so few bytes. */
static void test_little_meets_at_the_coordinator(void **state)
{
    (void)state;
    const int c = 2, n = 32, local = n - 1;
    const size_t little = LITTLE / (size_t)(n * c * n);
    assert_int_equal(count_messages(GCI_ALLTOALL, true, 1, c, n), c * (2 * local + 1));
    assert_int_equal(count_messages(GCI_ALLTOALL, true, little, c, n), c * (2 * local + 1));
    assert_int_equal(count_messages(GCI_ALLTOALL, true, little + 1, c, n), c * (n * local + 2 * local + 1));
}

/* Two ranks of a cluster are top and taker for each other, and rows are more than a taker has room for; so many ranks do not meet. */
static void test_rows_do_not_wait_in_a_circle(void **state)
{
    (void)state;
    static const int site[24] = { 0, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 3, 1, 3, 1, 3, 1, 3, 1, 1, 1, 3, 1, 3 };
    size_t sizes[24 * 24];
    grid g;
    for (size_t i = 0; i < GCI_COUNT(sizes); i++)
        sizes[i] = ROW;
    make_grid(&g, 24, site, false);
    bool right = run_job(&(job_spec){ .coll = GCI_ALLTOALL, .algo = "wide", .ranks = 24, .elem_bytes = 1, .bytes = ROW,
                                      .clusters = &g.s, .sizes = sizes });
    drop_grid(&g);
    assert_true(right);
}

/* So many rounds that scratch is used again; and vectors of which not many rounds fit in. */
static void test_long_vectors(void **state)
{
    (void)state;
    static const enum gci_coll colls[] = { GCI_BCAST, GCI_REDUCE, GCI_ALLREDUCE, GCI_REDUCE_SCATTER, GCI_SCAN, GCI_EXSCAN };
    static const size_t segments[] = { 8, (size_t)1 << 20 };
    int site[40];
    bool right = true;
    for (int order = 0; order < ORDERS; order++) {
        grid g;
        place_ranks(40, 3, (enum order)order, true, site);
        make_grid(&g, 40, site, below(2));
        for (size_t i = 0; i < GCI_COUNT(colls); i++)
            for (size_t k = 0; k < GCI_COUNT(segments); k++) {
                size_t rounds = colls[i] == GCI_REDUCE_SCATTER ? 3 : k == 0 ? 70 : 5;
                job_spec j = { .coll = colls[i], .algo = "wide", .ranks = 40, .root = 7, .elem_bytes = 8,
                               .segment = segments[k], .bytes = segments[k] * rounds, .places = (enum job_places)(order % 3),
                               .clusters = &g.s, .in_any_order = true };
                right &= run_job(&j);
                j.canonical = true;
                if (k == 1)
                    right &= run_job(&j);
            }
        drop_grid(&g);
    }
    assert_true(right);
}

/* Vectors that several tops share, chains of hosts; blocks of which each host sends its own. */
static void test_random_long_ones(void **state)
{
    (void)state;
    static const enum gci_coll colls[] = { GCI_BCAST, GCI_REDUCE, GCI_ALLREDUCE, GCI_ALLGATHER, GCI_REDUCE_SCATTER };
    static const size_t lengths[] = { 0, 1, 7, 16, 33, 40 };
    enum { ELEM = 32768, MOST = 24 };
    int site[MOST];
    bool right = true;
    for (int i = 0; i < 100; i++) {
        int ranks = 6 + below(MOST - 5);
        grid g;
        place_ranks(ranks, 2 + below(4), (enum order)below(ORDERS), below(3) == 0, site);
        make_grid(&g, ranks, site, below(2));
        size_t sizes[MOST];
        for (int r = 0; r < ranks; r++)
            sizes[r] = PICK(lengths) * ELEM;
        for (size_t k = 0; k < GCI_COUNT(colls); k++) {
            bool blocks = colls[k] == GCI_ALLGATHER || colls[k] == GCI_REDUCE_SCATTER;
            right &= run_job(&(job_spec){ .coll = colls[k], .algo = "wide", .ranks = ranks, .root = below(ranks), .elem_bytes = ELEM,
                                          .bytes = (size_t)(blocks ? 1 + below(40) : 20 + below(100)) * ELEM, .clusters = &g.s,
                                          .segment = (size_t)(1 + below(4)) * ELEM, .sizes = blocks && below(2) ? sizes : NULL,
                                          .places = (enum job_places)below(3), .in_any_order = below(8) > 0 });
        }
        drop_grid(&g);
    }
    assert_true(right);
}

/* Blocks that lie together are sent from where they are, in rounds between others that need their place of the ring. */
static void test_rounds_without_scratch(void **state)
{
    (void)state;
    int site[200];
    bool right = true;
    for (int i = 0; i < 4; i++) {
        grid g;
        place_ranks(200, 2, SHUFFLED, true, site);
        make_grid(&g, 200, site, below(2));
        right &= run_job(&(job_spec){ .coll = GCI_REDUCE_SCATTER, .algo = "wide", .ranks = 200, .bytes = 6000, .elem_bytes = 24,
                                      .segment = 48000, .places = JOB_MIXED, .clusters = &g.s, .in_any_order = true });
        drop_grid(&g);
    }
    assert_true(right);
}

/* Hosts of cluster k whose ranks send to other clusters. */
static int sending_hosts(const job_spec *j, int k)
{
    gci_call call[MOST_RANKS];
    gci_sched sched[MOST_RANKS];
    char why[CHECK_TEXT];
    bool sends[MOST_RANKS] = { false };
    int hosts = 0;
    for (int r = 0; r < j->ranks; r++)
        job_call(j, r, &call[r]);
    assert_int_equal(job_build(&env, j, call, sched, why), 0);
    for (int r = 0; r < j->ranks; r++) {
        for (int i = 0; i < sched[r].steps; i++) {
            const gci_step *step = &sched[r].step[i];
            int host = j->clusters->topo->of[r];
            if (step->kind != GCI_STEP_SEND || j->clusters->of[r] != k || j->clusters->of[step->peer] == k)
                continue;
            hosts += !sends[host];
            sends[host] = true;
        }
        gci_sched_free(&env, &sched[r]);
        job_call_free(&call[r]);
    }
    return hosts;
}

/* A long vector leaves a site over the NICs of several hosts, a short one over one; so does what comes to the root of it. */
static void test_long_vectors_use_several_hosts(void **state)
{
    (void)state;
    enum { CLUSTERS = 3, EACH = 10, RANKS = CLUSTERS * EACH };
    static const enum gci_coll colls[] = { GCI_BCAST, GCI_REDUCE, GCI_ALLREDUCE };
    static const char *const name[CLUSTERS] = { "a", "b", "c" };
    const char *path[RANKS];
    int host[RANKS];
    grid g;
    for (int r = 0; r < RANKS; r++) {
        path[r] = name[r / EACH];
        host[r] = r / 2;
    }
    assert_int_equal(gci_topo_make(&env, RANKS, path, host, &g.topo), GC_OK);
    assert_int_equal(gci_clusters_make(&env, &g.topo, &g.s), GC_OK);
    for (size_t i = 0; i < GCI_COUNT(colls); i++) {
        job_spec j = { .coll = colls[i], .algo = "wide", .ranks = RANKS, .root = EACH + 5, .segment = 65536, .bytes = 8 << 20,
                       .elem_bytes = 8, .clusters = &g.s, .in_any_order = true };
        int away = colls[i] == GCI_REDUCE ? 0 : 1;      /* a cluster that sends: to the root's, or the root's own */
        assert_int_equal(sending_hosts(&j, away), 4);
        assert_true(run_job(&j));
        j.bytes = 3 << 19;
        assert_int_equal(sending_hosts(&j, away), 3);
        assert_true(run_job(&j));
        j.bytes = 1 << 19;
        assert_int_equal(sending_hosts(&j, away), 1);
        assert_true(run_job(&j));
    }
    drop_grid(&g);
}

static void test_one_cluster_is_refused(void **state)
{
    (void)state;
    static const int site[3] = { 0, 0, 0 };
    char why[CHECK_TEXT];
    grid g;
    make_grid(&g, 3, site, false);
    for (int coll = 0; coll < GCI_COLLS; coll++) {
        job_spec j = { .coll = (enum gci_coll)coll, .algo = "wide", .ranks = 3, .bytes = 4, .clusters = &g.s };
        assert_int_equal(job_run(&env, &j, NULL, why), JOB_UNSUPPORTED);
        j.clusters = NULL;
        assert_int_equal(job_run(&env, &j, NULL, why), JOB_UNSUPPORTED);
    }
    drop_grid(&g);
}

static void test_no_memory(void **state)
{
    (void)state;
    static const int site[7] = { 0, 1, 0, 2, 2, 1, 0 };
    char why[CHECK_TEXT];
    grid g;
    make_grid(&g, 7, site, true);
    gci_env poor = { .alloc = failing_alloc };
    size_t sizes[49];
    for (size_t i = 0; i < GCI_COUNT(sizes); i++)
        sizes[i] = 8 * (i % 3);
    for (int coll = 0; coll < GCI_COLLS; coll++)
        for (int uneven = 0; uneven < 2; uneven++) {
            job_spec j = { .coll = (enum gci_coll)coll, .algo = "wide", .ranks = 7, .bytes = 24, .elem_bytes = 8, .segment = 8,
                           .clusters = &g.s, .sizes = uneven ? sizes : NULL };
            int result = JOB_NO_MEMORY, allowed = 0;
            for (; result == JOB_NO_MEMORY; allowed++) {
                allocations_left = allowed;
                result = job_run(&poor, &j, NULL, why);
            }
            assert_true(result > 0 && allowed > 1);
        }
    drop_grid(&g);
}

static int fails_at;

static void *fails_once(void *user, void *old, size_t bytes)
{
    (void)user;
    if (bytes == 0) {
        free(old);
        return NULL;
    }
    return --fails_at == 0 ? NULL : realloc(old, bytes);
}

/* One allocation alone that fails is no schedule either: not one without the copies that it would send from, say. */
static void test_no_memory_once(void **state)
{
    (void)state;
    static const int site[7] = { 0, 1, 0, 2, 2, 1, 0 };
    grid g;
    make_grid(&g, 7, site, true);
    gci_env poor = { .alloc = fails_once };
    size_t sizes[49];
    for (size_t i = 0; i < GCI_COUNT(sizes); i++)
        sizes[i] = 8;
    for (int coll = 0; coll < GCI_COLLS; coll++)
        for (int kind = 0; kind < 4; kind++) {
            job_spec j = { .coll = (enum gci_coll)coll, .algo = "wide", .ranks = 7, .bytes = 24, .elem_bytes = 8, .segment = 8,
                           .clusters = &g.s, .sizes = kind % 2 ? sizes : NULL, .places = kind / 2 ? JOB_IN_PLACE : JOB_APART };
            gci_call call;
            job_call(&j, 0, &call);
            for (int nth = 1, met = 1; met; nth++) {
                gci_sched sched;
                fails_at = nth;
                int err = gci_sched_build(&poor, gci_algo_find(j.coll, "wide"), "wide", &call, &sched);
                met = fails_at <= 0;
                assert_true(err == (met ? GC_ERR_NOMEM : GC_OK));
                gci_sched_free(&poor, &sched);
            }
            job_call_free(&call);
        }
    drop_grid(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_small_grids),
        cmocka_unit_test(test_random_grids),
        cmocka_unit_test(test_short_blocks_ride), cmocka_unit_test(test_little_meets_at_the_coordinator),
        cmocka_unit_test(test_few_meet_at_the_coordinator),
        cmocka_unit_test(test_rows_do_not_wait_in_a_circle), cmocka_unit_test(test_uneven_blocks),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_long_vectors),
        cmocka_unit_test(test_random_long_ones), cmocka_unit_test(test_rounds_without_scratch),
        cmocka_unit_test(test_long_vectors_use_several_hosts),
        cmocka_unit_test(test_one_cluster_is_refused),
        cmocka_unit_test(test_no_memory), cmocka_unit_test(test_no_memory_once),
    };
    seed_random();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
