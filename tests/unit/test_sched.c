/* test_sched.c: every algorithm of the pool, on whatever call, is right or says that it does not fit.
 * SPDX-License-Identifier: MIT
 *
 * Proven by sched_check, which test_sched_faults.c tests. GCT_SEED replays the random jobs from the one on that failed;
 * GCT_ROUNDS: how many.
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
#include <time.h>

enum { WHAT_BYTES = 320, PATH_MAX_BYTES = 32, ROUNDS = 1500, CLUSTERS_MAX = 16, HOSTED_MAX = 48 };

static gci_env env;

/* ---- jobs -------------------------------------------------------------------------------------------------------- */

static const struct { bool in_any_order, from_left, canonical; } orders[] =
    { { true, false, false }, { false, false, false }, { true, false, true }, { false, false, true }, { false, true, false } };

static bool has_root(enum gci_coll coll)
{
    return coll == GCI_BCAST || coll == GCI_SCATTER || coll == GCI_GATHER || coll == GCI_REDUCE;
}

static bool has_blocks(enum gci_coll coll)
{
    return (coll >= GCI_SCATTER && coll <= GCI_ALLTOALL) || coll == GCI_REDUCE_SCATTER;
}

/* How many sizes an uneven job has. */
static size_t size_count(const job_spec *spec)
{
    return (size_t)spec->ranks * (spec->coll == GCI_ALLTOALL ? (size_t)spec->ranks : 1);
}

static const char *describe(const job_spec *spec)
{
    static char what[WHAT_BYTES];
    static const char *const places[] = { "", ", in place", ", some in place" };
    snprintf(what, sizeof what, "%s %s, %d ranks, root %d, %zu bytes%s, elements of %zu, segments of %zu%s%s%s%s, %d clusters%s",
             gci_coll_name(spec->coll), spec->algo, spec->ranks, spec->root, spec->bytes, spec->sizes ? " (uneven)" : "",
             spec->elem_bytes, spec->segment, places[spec->places], spec->in_any_order ? ", any order" : "",
             spec->from_left ? ", from left" : "", spec->canonical ? ", canonical" : "",
             spec->clusters ? spec->clusters->clusters : 1, spec->clusters && spec->clusters->runs ? " (runs)" : "");
    return what;
}

/* Is it right, or does it say that it does not fit, if it may? Messages, or JOB_UNSUPPORTED. */
static int prove(const job_spec *spec, check_report *report)
{
    char why[CHECK_TEXT];
    int messages = job_run(&env, spec, report, why);
    if (messages == JOB_UNSUPPORTED && (strcmp(spec->algo, "flat") == 0 || strcmp(spec->algo, "direct") == 0))
        fail_msg("%s: refused", describe(spec));
    if (messages < 0 && messages != JOB_UNSUPPORTED)
        fail_msg("%s: %s", describe(spec), why);
    return messages;
}

/* Calls look for every algorithm of every collective. */
static void each_algo(void (*look)(job_spec *))
{
    const gci_algo *algo;
    for (int i = 0; (algo = gci_algo_at(i)) != NULL; i++)
        for (int coll = 0; coll < GCI_COLLS; coll++)
            if (algo->colls >> coll & 1)
                look(&(job_spec){ .coll = (enum gci_coll)coll, .algo = algo->name });
}

/* ---- clusters and trees ------------------------------------------------------------------------------------------ */

typedef struct place { gci_topo topo; gci_clusters clusters; } place;

typedef void path_of(char path[PATH_MAX_BYTES], int rank, int site);

static void site_and_rack(char path[PATH_MAX_BYTES], int rank, int site)
{
    snprintf(path, PATH_MAX_BYTES, "site%d/rack%d", site, rank / 3 % 3);
}

/* Any depth, not the same for all; of one site some ranks without any name. */
static void random_path(char path[PATH_MAX_BYTES], int rank, int site)
{
    (void)rank;
    path[0] = 0;
    if (site == 0 && !below(4))
        return;
    int used = snprintf(path, PATH_MAX_BYTES, "site%d", site);
    for (int depth = below(5); depth > 0; depth--)
        used += snprintf(path + used, PATH_MAX_BYTES - (size_t)used, "/%c%d", 'a' + depth, below(3));
}

typedef int host_of(int ranks, int rank, int site);

static int two_to_a_host(int ranks, int rank, int site) { return rank / 2 * ranks + site; }
static int five_to_a_host(int ranks, int rank, int site) { return rank / 5 * ranks + site; }
static int every_fourth(int ranks, int rank, int site) { return rank % 4 * ranks + site; }
static int any_of_six(int ranks, int rank, int site) { (void)rank; return below(6) * ranks + site; }
static int alone(int ranks, int rank, int site) { (void)ranks; (void)site; return rank; }

/* of: site of each rank. */
static void make_paths(place *p, int ranks, const int of[], path_of *name, host_of *host)
{
    char (*path)[PATH_MAX_BYTES] = calloc((size_t)ranks, sizeof *path);
    const char **paths = calloc((size_t)ranks, sizeof *paths);
    int *hosts = calloc((size_t)ranks, sizeof *hosts);
    assert_non_null(path);
    assert_non_null(paths);
    assert_non_null(hosts);
    for (int r = 0; r < ranks; r++) {
        name(path[r], r, of[r]);
        paths[r] = path[r];
        hosts[r] = host(ranks, r, of[r]);
    }
    assert_int_equal(gci_topo_make(&env, ranks, paths, hosts, &p->topo), GC_OK);
    assert_int_equal(gci_clusters_make(&env, &p->topo, &p->clusters), GC_OK);
    free(hosts);
    free(paths);
    free(path);
}

static void no_name(char path[PATH_MAX_BYTES], int rank, int site)
{
    (void)rank;
    (void)site;
    path[0] = 0;
}

/* Which look at where ranks are: in clusters, or on hosts of one? */
static bool is_wide(const char *algo) { return strncmp(algo, "wide", 4) == 0; }
static bool is_by_host(const char *algo) { return strncmp(algo, "by-host", 7) == 0 || strcmp(algo, "nested") == 0; }

static void drop_place(place *p)
{
    gci_clusters_free(&env, &p->clusters);
    gci_topo_free(&env, &p->topo);
}

/* With racks of three, and two ranks to a host. */
static void make_place(place *p, int ranks, const int of[])
{
    make_paths(p, ranks, of, site_and_rack, two_to_a_host);
}

/* Or with hosts alone, where an algorithm asks for that. */
static void make_place_for(const char *algo, place *p, int ranks, const int of[])
{
    make_paths(p, ranks, of, is_by_host(algo) ? no_name : site_and_rack, two_to_a_host);
}

/* Three classes of ranks, each pair of them with a latency of its own. */
static gc_model *make_model(int ranks)
{
    int32_t *class_of = calloc((size_t)ranks, sizeof *class_of);
    gc_model *m;
    assert_non_null(class_of);
    for (int r = 0; r < ranks; r++)
        class_of[r] = r % 3;
    assert_int_equal(gci_model_make(&env, GCI_HOCKNEY, ranks, class_of, NULL, NULL, &m), GC_OK);
    for (int i = 0; i < m->classes * m->classes; i++)
        m->between[i] = (gci_cost_model){ .latency = 1e-3 / (1 + i), .per_byte = 1e-8 };
    free(class_of);
    return m;
}

static void hang(gc_tree *t, int parent, int child)
{
    t->parent[child] = parent;
    t->next_sibling[child] = parent < 0 ? -1 : t->first_child[parent];
    t->first_child[child] = -1;
    if (parent >= 0)
        t->first_child[parent] = child;
}

static void drop_tree(gc_tree *t)
{
    free(t->parent);
    free(t->first_child);
    free(t->next_sibling);
}

static gc_tree make_tree(int ranks, int root)
{
    size_t n = (size_t)ranks;
    gc_tree t = { ranks, root, calloc(n, sizeof(int)), calloc(n, sizeof(int)), calloc(n, sizeof(int)) };
    assert_non_null(t.parent);
    assert_non_null(t.first_child);
    assert_non_null(t.next_sibling);
    hang(&t, -1, root);
    return t;
}

/* ---- all kinds of small jobs ------------------------------------------------------------------------------------- */

static int fits, refusals;

static void prove_orders(job_spec *spec)
{
    for (size_t o = 0; o < (gci_coll_reduces(spec->coll) ? GCI_COUNT(orders) : 1); o++)
        for (int places = JOB_APART; places <= (spec->coll == GCI_BARRIER ? JOB_APART : JOB_MIXED); places++) {
            spec->in_any_order = orders[o].in_any_order;
            spec->from_left = orders[o].from_left;
            spec->canonical = orders[o].canonical;
            spec->places = (enum job_places)places;
            int messages = prove(spec, NULL);
            fits += messages >= 0;
            refusals += messages < 0;
            if (messages > 0 && spec->bytes == 0 && !spec->sizes && spec->coll != GCI_BARRIER)
                fail_msg("%s: %d messages of nothing", describe(spec), messages);
        }
}

/* The sizes of an even job, and of some uneven ones. */
static void prove_sizes(job_spec *spec)
{
    static const size_t counts[] = { 0, 1, 3, 20 };
    size_t sizes[17 * 17];
    for (size_t c = 0; c < GCI_COUNT(counts); c++) {
        spec->bytes = spec->elem_bytes * counts[c];
        spec->segment = c == 2 ? spec->elem_bytes + 1 : 0;
        prove_orders(spec);
    }
    spec->bytes = 0;
    for (size_t kind = 0; kind < 3 && has_blocks(spec->coll); kind++) {     /* nobody has anything; one; most */
        for (size_t i = 0; i < size_count(spec); i++)
            sizes[i] = kind == 0 ? 0 : kind == 1 ? (i == 1) * spec->elem_bytes : (i * 5 + 2) % 7 * spec->elem_bytes;
        spec->sizes = sizes;
        prove_orders(spec);
    }
    spec->sizes = NULL;
}

static void prove_ranks(job_spec *spec)
{
    static const int ranks[] = { 1, 2, 3, 4, 5, 6, 7, 8, 11, 16, 17 };
    fits = refusals = 0;
    for (size_t n = 0; n < GCI_COUNT(ranks); n++) {
        int of[17];
        place p;
        spec->ranks = ranks[n];
        spec->elem_bytes = gci_coll_reduces(spec->coll) ? 5 : 1;
        for (int r = 0; r < ranks[n]; r++)
            of[r] = n % 2 ? r * 3 / ranks[n] : r % 3;
        make_place_for(spec->algo, &p, ranks[n], of);
        gc_model *model = make_model(ranks[n]);
        spec->model = model;
        for (spec->root = 0; spec->root < (has_root(spec->coll) ? ranks[n] : 1); spec->root += 1 + ranks[n] / 3) {
            gc_tree given = make_tree(ranks[n], spec->root);
            for (int i = 1; i < ranks[n]; i++)
                hang(&given, (spec->root + i / 2) % ranks[n], (spec->root + i) % ranks[n]);
            spec->tree = strcmp(spec->algo, "given") == 0 ? &given : NULL;
            spec->clusters = is_wide(spec->algo) || is_by_host(spec->algo) ? &p.clusters : NULL;
            prove_sizes(spec);
            drop_tree(&given);
        }
        gci_model_drop(&env, model);
        drop_place(&p);
    }
    print_message("%-14s %-10s %5d right, %5d refused\n", gci_coll_name(spec->coll), spec->algo, fits, refusals);
    if (fits == 0)
        fail_msg("%s %s fits nothing", gci_coll_name(spec->coll), spec->algo);
}

static void test_small_jobs(void **state)
{
    (void)state;
    each_algo(prove_ranks);
}

/* ---- the wide area ----------------------------------------------------------------------------------------------- */

/* What "wide" promises: (1) one wide-area message on any way from input to output, (2) no data enter a cluster twice, of a
 * reduction one partial result per ordered pair of clusters. Named exceptions from (2), where a cluster may send a partial
 * result per rank at most (papers/002, table 1 and 3.5): */
static const char *wide_exception(const job_spec *spec, const gci_clusters *clusters)
{
    if (!gci_coll_reduces(spec->coll))
        return NULL;
    if (spec->from_left)
        return "not associative, short";
    if (spec->canonical)
        return "canonical order";
    if (!clusters->runs && !spec->in_any_order)
        return "rank order against clusters";
    return !clusters->runs && (spec->coll == GCI_SCAN || spec->coll == GCI_EXSCAN) ? "scan against clusters" : NULL;
}

static size_t total_bytes(const job_spec *spec)
{
    size_t sum = 0;
    for (int r = 0; r < spec->ranks && spec->sizes; r++)
        sum += spec->sizes[r];
    return spec->sizes ? sum : spec->bytes * (has_blocks(spec->coll) ? (size_t)spec->ranks : 1);
}

/* Each cluster tells each other one the vectors of all of its ranks, instead of one. */
static size_t repeated_at_most(const job_spec *spec)
{
    const gci_clusters *c = spec->clusters;
    return total_bytes(spec) * (size_t)(c->clusters - 1) * (size_t)(spec->ranks - c->clusters);
}

static struct { const char *name; int jobs, repeats; } exceptions[8];

static void note_exception(const char *name, bool repeats)
{
    size_t i = 0;
    while (exceptions[i].name && strcmp(exceptions[i].name, name) != 0)
        i++;
    exceptions[i].name = name;
    exceptions[i].jobs++;
    exceptions[i].repeats += repeats;
}

static void prove_wide(job_spec *spec, int hops)
{
    check_report report;
    if (prove(spec, &report) < 0)
        return;
    const char *exception = wide_exception(spec, spec->clusters);
    if (report.wan_hops > hops)
        fail_msg("%s: %d wide-area messages in a row", describe(spec), report.wan_hops);
    if (exception)
        note_exception(exception, report.repeated > 0);
    if (report.repeated > (exception ? repeated_at_most(spec) : 0))
        fail_msg("%s: %zu bytes enter clusters again (%s)", describe(spec), report.repeated, exception ? exception : "");
}

static void prove_wide_orders(job_spec *spec)
{
    for (size_t o = 0; o < (gci_coll_reduces(spec->coll) ? GCI_COUNT(orders) : 1); o++)
        for (size_t bytes = 8; bytes <= 8 * 1024; bytes *= 32) {
            spec->in_any_order = orders[o].in_any_order;
            spec->from_left = orders[o].from_left;
            spec->canonical = orders[o].canonical;
            spec->bytes = spec->coll == GCI_BARRIER ? 0 : bytes;
            spec->segment = bytes == 8 * 1024 ? 1024 : 0;
            prove_wide(spec, 1);
        }
}

static void test_wide_area(void **state)
{
    static const int ranks[] = { 4, 7, 16, 23, 40 };
    (void)state;
    for (size_t n = 0; n < GCI_COUNT(ranks); n++)
        for (int kind = 0; kind < 3; kind++) {
            int of[40];
            place p;
            for (int r = 0; r < ranks[n]; r++)      /* runs; one by one; runs of two sizes that come back */
                of[r] = kind == 0 ? r * 4 / ranks[n] : kind == 1 ? r % 4 : r / 3 % 3;
            make_place(&p, ranks[n], of);
            for (int coll = 0; coll < GCI_COLLS; coll++)
                for (int root = 0; root < (has_root((enum gci_coll)coll) ? ranks[n] : 1); root += 3)
                    prove_wide_orders(&(job_spec){ .coll = (enum gci_coll)coll, .algo = "wide", .ranks = ranks[n], .root = root,
                                                   .elem_bytes = 8, .clusters = &p.clusters });
            drop_place(&p);
        }
    for (size_t i = 0; i < GCI_COUNT(exceptions) && exceptions[i].name; i++) {
        print_message("exception: %-28s %3d of %3d jobs\n", exceptions[i].name, exceptions[i].repeats, exceptions[i].jobs);
        assert_true(exceptions[i].repeats > 0);     /* else it is none */
    }
}

/* Two wide-area messages in a row, but no more than two vectors for each cluster but one; of a broadcast one. */
static void test_divided_vectors(void **state)
{
    static const int ranks[] = { 3, 7, 16, 40 };
    static const enum gci_coll colls[] = { GCI_BCAST, GCI_ALLREDUCE };
    (void)state;
    for (size_t n = 0; n < GCI_COUNT(ranks); n++)
        for (int kind = 0; kind < 4; kind++) {
            int of[40], clusters = kind < 2 ? 3 : 5;
            place p;
            for (int r = 0; r < ranks[n]; r++)
                of[r] = kind % 2 ? r % clusters : r * clusters / ranks[n];
            make_place(&p, ranks[n], of);
            clusters = p.clusters.clusters;
            for (size_t i = 0; i < 2 * GCI_COUNT(colls); i++) {
                check_report report;
                job_spec spec = { .coll = colls[i / 2], .algo = "wide-divided", .ranks = ranks[n], .root = ranks[n] / 2,
                                  .elem_bytes = 8, .bytes = 1 << 20, .segment = i % 2 ? 8192 : 0, .in_any_order = true,
                                  .clusters = &p.clusters };
                size_t vectors = (size_t)(clusters - 1) * (spec.coll == GCI_BCAST ? 1 : 2);
                assert_true(prove(&spec, &report) > 0);
                if (report.wan_hops != 2 || report.wan_bytes != vectors * spec.bytes)
                    fail_msg("%s: %d wide-area messages in a row, %zu bytes", describe(&spec), report.wan_hops, report.wan_bytes);
            }
            drop_place(&p);
        }
}

/* ---- hosts ------------------------------------------------------------------------------------------------------- */

static int host_of_site(int ranks, int rank, int site) { (void)ranks; (void)rank; return site; }

/* Proven with hosts as clusters, so that the checker counts what goes from host to host. */
static void check_between_hosts(const job_spec *spec, check_report *report)
{
    char why[CHECK_TEXT];
    gci_call call[HOSTED_MAX];
    gci_sched sched[HOSTED_MAX];
    for (int r = 0; r < spec->ranks; r++)
        job_call(spec, r, &call[r]);
    assert_int_equal(job_build(&env, spec, call, sched, why), 0);
    for (int r = 0; r < spec->ranks; r++)
        call[r].clusters = spec->clusters->by_host;
    if (sched_check(&(check_job){ .ranks = spec->ranks, .call = call, .sched = sched }, report, why) < 0)
        fail_msg("%s: %s", describe(spec), why);
    for (int r = 0; r < spec->ranks; r++) {
        job_call_free(&call[r]);
        gci_sched_free(&env, &sched[r]);
    }
}

/* How many bytes go from host to host, at most: all of what there is to each, or of an allreduce twice; what must keep its order goes
 * by halving, which has one more such move. */
static size_t between_hosts(const job_spec *spec, int hosts)
{
    size_t once = total_bytes(spec) * (size_t)(hosts - 1);
    return once * (spec->coll == GCI_ALLREDUCE ? 2 : 1) + (gci_coll_reduces(spec->coll) && !spec->in_any_order ? once : 0);
}

/* What goes by host promises: between hosts goes what would with one rank on each. */
static void prove_by_host(job_spec *spec)
{
    check_report report;
    if (prove(spec, NULL) == JOB_UNSUPPORTED) {
        bool reduces = gci_coll_reduces(spec->coll), orderly = spec->in_any_order || spec->clusters->by_host->runs;
        bool few = strcmp(spec->algo, "by-host-divided") == 0 && spec->clusters->hosts < 3;
        if (!few && (!reduces || (orderly && !spec->from_left && !spec->canonical)))
            fail_msg("%s: refused", describe(spec));
        return;
    }
    check_between_hosts(spec, &report);
    if (!wide_exception(spec, spec->clusters->by_host) &&
        (report.repeated > 0 || report.wan_bytes > between_hosts(spec, spec->clusters->hosts)))
        fail_msg("%s: %zu bytes between hosts, %zu of them again", describe(spec), report.wan_bytes, report.repeated);
}

static void test_hosts(void **state)
{
    static const struct { enum gci_coll coll; const char *algo; } algos[] =
        { { GCI_BCAST, "nested" }, { GCI_ALLGATHER, "nested" }, { GCI_REDUCE, "nested" }, { GCI_ALLREDUCE, "nested" },
          { GCI_REDUCE_SCATTER, "nested" }, { GCI_BCAST, "by-host-divided" }, { GCI_ALLREDUCE, "by-host-divided" },
          { GCI_ALLGATHER, "by-host" }, { GCI_REDUCE_SCATTER, "by-host" } };
    static const struct { int ranks, hosts; } sizes[] = { { 4, 2 }, { 12, 3 }, { 32, 4 }, { 35, 7 }, { 48, 16 }, { 10, 9 } };
    (void)state;
    for (size_t n = 0; n < GCI_COUNT(sizes); n++)
        for (int kind = 0; kind < 3; kind++) {
            int of[HOSTED_MAX];
            place p;
            for (int r = 0; r < sizes[n].ranks; r++)        /* runs; one by one; runs that come back */
                of[r] = kind == 0 ? r * sizes[n].hosts / sizes[n].ranks : r / kind % sizes[n].hosts;
            make_paths(&p, sizes[n].ranks, of, no_name, host_of_site);
            for (size_t i = 0; i < GCI_COUNT(algos); i++)
                for (size_t o = 0; o < (gci_coll_reduces(algos[i].coll) ? GCI_COUNT(orders) : 1); o++)
                    for (int root = 0; root < (has_root(algos[i].coll) ? sizes[n].ranks : 1); root += 5)
                        prove_by_host(&(job_spec){ .coll = algos[i].coll, .algo = algos[i].algo, .ranks = sizes[n].ranks,
                                                   .root = root, .elem_bytes = 8, .bytes = 1 << 20, .clusters = &p.clusters,
                                                   .in_any_order = orders[o].in_any_order, .from_left = orders[o].from_left,
                                                   .canonical = orders[o].canonical });
            drop_place(&p);
        }
}

/* ---- random jobs ------------------------------------------------------------------------------------------------- */

static int random_ranks(void)
{
    int kind = below(20);
    return 1 + below(kind < 12 ? 20 : kind < 19 ? 80 : 300);
}

/* Runs, every so-many-th rank, or any. */
static void random_clusters(int ranks, int of[])
{
    int clusters = 1 + below(ranks < CLUSTERS_MAX ? ranks : CLUSTERS_MAX), kind = below(3);
    for (int r = 0; r < ranks; r++)
        of[r] = kind == 0 ? r * clusters / ranks : kind == 1 ? r % clusters : below(clusters);
}

static gc_tree random_tree(int ranks, int root)
{
    gc_tree t = make_tree(ranks, root);
    int reach = 1 + below(ranks);        /* 1: a chain */
    for (int i = 1; i < ranks; i++)
        hang(&t, (root + i - 1 - below(i < reach ? i : reach)) % ranks, (root + i) % ranks);
    return t;
}

static void random_name(char name[GCI_ALGO_NAME])
{
    int pool = 0;
    while (gci_algo_at(pool))
        pool++;
    const char *base = gci_algo_at(below(pool))->name;
    bool numbered = strcmp(base, "kary") == 0 || strcmp(base, "knomial") == 0;
    if (numbered && below(4))
        snprintf(name, GCI_ALGO_NAME, "%s:%d", base, 2 + below(8));
    else
        snprintf(name, GCI_ALGO_NAME, "%s", base);
}

static void random_sizes(job_spec *spec, size_t sizes[])
{
    static const size_t counts[] = { 0, 1, 2, 7, 64, 1000, 65536 };
    spec->elem_bytes = gci_coll_reduces(spec->coll) ? (size_t[]){ 1, 3, 8, 24 }[below(4)] : 1;
    size_t count = below(8) ? counts[below(GCI_COUNT(counts))] : (size_t)(spec->ranks * below(5) + below(3));
    spec->bytes = count * spec->elem_bytes;
    if (below(2))
        spec->segment = spec->bytes * (size_t)(has_blocks(spec->coll) ? spec->ranks : 1) / (size_t)(1 + below(20)) +
                        (size_t)below(3);
    for (size_t i = 0; i < size_count(spec); i++)
        sizes[i] = (size_t)(below(3) ? below(1 + (int)gci_min(count, 100)) : 0) * spec->elem_bytes;
    spec->sizes = has_blocks(spec->coll) && below(2) ? sizes : NULL;
}

static void random_job(uint64_t seed)
{
    static host_of *const hosts[] = { two_to_a_host, five_to_a_host, every_fourth, any_of_six, alone };
    char name[GCI_ALGO_NAME];
    job_spec spec = { .algo = name };
    random_state = seed;
    do {
        random_name(name);
        spec.coll = (enum gci_coll)below(GCI_COLLS);
    } while (!gci_algo_find(spec.coll, name));
    spec.ranks = random_ranks();
    spec.root = below(spec.ranks);
    spec.places = (enum job_places)below(3);
    size_t order = (size_t)below(GCI_COUNT(orders));
    spec.in_any_order = orders[order].in_any_order;
    spec.from_left = orders[order].from_left;
    spec.canonical = orders[order].canonical;
    int *of = calloc((size_t)spec.ranks, sizeof *of);
    size_t *sizes = calloc((size_t)spec.ranks * (size_t)spec.ranks, sizeof *sizes);
    assert_non_null(of);
    assert_non_null(sizes);
    random_sizes(&spec, sizes);
    random_clusters(spec.ranks, of);
    place p;
    bool by_host = is_by_host(name);
    make_paths(&p, spec.ranks, of, by_host ? no_name : below(2) ? random_path : site_and_rack, hosts[below(GCI_COUNT(hosts))]);
    gc_tree given = random_tree(spec.ranks, spec.root);
    spec.clusters = is_wide(name) || by_host || below(2) ? &p.clusters : NULL;
    spec.tree = strcmp(name, "given") == 0 ? &given : NULL;
    gc_model *model = make_model(spec.ranks);
    spec.model = model;
    if (spec.clusters && strncmp(name, "wide", 4) == 0)
        prove_wide(&spec, strcmp(name, "wide") == 0 ? 1 : 2);
    else
        prove(&spec, NULL);
    gci_model_drop(&env, model);
    drop_tree(&given);
    drop_place(&p);
    free(sizes);
    free(of);
}

static void test_random_jobs(void **state)
{
    const char *seed_text = getenv("GCT_SEED"), *rounds_text = getenv("GCT_ROUNDS");
    uint64_t seed = seed_text ? strtoull(seed_text, NULL, 0) : (uint64_t)time(NULL) << 20;
    int rounds = rounds_text ? atoi(rounds_text) : ROUNDS;
    (void)state;
    for (int i = 0; i < rounds; i++) {
        print_message("\rGCT_SEED=%llu ", (unsigned long long)seed + (unsigned long long)i);
        fflush(stdout);
        random_job(seed + (uint64_t)i);
    }
    print_message("and %d before it\n", rounds - 1);
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* A tree has one message per rank but the root and direction. */
static void test_messages_of_trees(void **state)
{
    static const char *const shapes[] = { "flat", "chain", "binary", "binomial", "kary:3", "knomial:4" };
    static const struct { enum gci_coll coll; int ways; } colls[] =
        { { GCI_BARRIER, 2 }, { GCI_BCAST, 1 }, { GCI_SCATTER, 1 }, { GCI_GATHER, 1 }, { GCI_ALLGATHER, 2 }, { GCI_REDUCE, 1 },
          { GCI_ALLREDUCE, 2 }, { GCI_REDUCE_SCATTER, 2 } };
    (void)state;
    for (size_t s = 0; s < GCI_COUNT(shapes); s++)
        for (size_t c = 0; c < GCI_COUNT(colls); c++)
            for (int ranks = 1; ranks < 20; ranks++) {
                job_spec spec = { .coll = colls[c].coll, .algo = shapes[s], .ranks = ranks, .root = ranks / 2, .bytes = 8,
                                  .in_any_order = true };
                assert_int_equal(prove(&spec, NULL), colls[c].ways * (ranks - 1));
            }
}

/* ---- limits ------------------------------------------------------------------------------------------------------ */

static void test_table(void **state)
{
    (void)state;
    for (int coll = 0; coll < GCI_COLLS; coll++) {
        assert_null(gci_algo_find((enum gci_coll)coll, "no such"));
        assert_null(gci_algo_find((enum gci_coll)coll, ""));
        assert_null(gci_algo_find((enum gci_coll)coll, "fla"));
    }
    assert_ptr_equal(gci_algo_find(GCI_BCAST, "kary:3"), gci_algo_find(GCI_BCAST, "kary"));
    assert_null(gci_algo_find(GCI_BCAST, "ring"));
    for (int i = 0; gci_algo_at(i); i++)
        for (int k = 0; k < i; k++)
            assert_string_not_equal(gci_algo_at(i)->name, gci_algo_at(k)->name);
    assert_null(gci_algo_at(-1));
    assert_string_equal(gci_coll_name(GCI_ALLREDUCE), "allreduce");
    assert_string_equal(gci_coll_name(GCI_COLLS), "no collective");
}

/* Where sizes overflow there is no schedule that fits, so there is none. */
static void test_huge(void **state)
{
    (void)state;
    gci_call call = { .coll = GCI_GATHER, .rank = 0, .ranks = 8, .root = 7, .even = true, .own = SIZE_MAX / 9, .elem_bytes = 1 };
    call.send.each = call.recv.each = call.own;
    gci_sched sched;
    call.rank = 3;      /* 3 and 4 to 6 below it */
    for (int r = 0, failed = 0; r < 8; r++) {
        call.rank = r;
        int err = gci_sched_build(&env, gci_algo_find(GCI_GATHER, "binomial"), "binomial", &call, &sched);
        failed += err == GC_ERR_NOMEM;
        assert_true(err == GC_OK || err == GC_ERR_NOMEM);
        gci_sched_free(&env, &sched);
        assert_true(r < 7 || failed > 0);
    }
}

static void starve(job_spec *spec)
{
    enum { RANKS = 16, ATTEMPTS = 1000 };     /* a power of two: some fit no other number */
    gc_options options = GRIDCOMM_OPTIONS_INIT;
    gci_env poor;
    options.alloc = failing_alloc;
    gci_env_init(&poor, gci_sys_real(), &options);
    static const int of[RANKS] = { 0, 0, 0, 1, 1, 2, 2, 2, 3, 3, 3, 3, 0, 1, 2, 2 };
    place p;
    make_place_for(spec->algo, &p, RANKS, of);
    spec->ranks = RANKS;
    spec->bytes = spec->coll == GCI_BARRIER ? 0 : 96;
    spec->elem_bytes = 8;
    spec->segment = 16;
    spec->in_any_order = true;
    spec->clusters = &p.clusters;
    gc_tree given = make_tree(RANKS, 0);
    for (int r = 1; r < RANKS; r++)
        hang(&given, r / 2, r);
    spec->tree = strcmp(spec->algo, "given") == 0 ? &given : NULL;
    gc_model *model = make_model(RANKS);
    spec->model = model;
    for (int rank = 0; rank < RANKS; rank += 5) {
        gci_call call;
        job_call(spec, rank, &call);
        int err = GC_ERR_NOMEM;
        for (int n = 0; err == GC_ERR_NOMEM; n++) {
            gci_sched sched;
            allocations_left = n;
            err = gci_sched_build(&poor, gci_algo_find(spec->coll, spec->algo), spec->algo, &call, &sched);
            if (n >= ATTEMPTS)
                fail_msg("%s: still out of memory after %d allocations", describe(spec), n);
            if (err < 0)
                assert_null(sched.step);
            gci_sched_free(&poor, &sched);
            if (atomic_load(&poor.memory) != 0)
                fail_msg("%s: leaves memory behind after %d allocations", describe(spec), n);
        }
        if (err != GC_OK)
            fail_msg("%s: rank %d: %d", describe(spec), rank, err);
        job_call_free(&call);
    }
    gci_model_drop(&env, model);
    drop_tree(&given);
    drop_place(&p);
}

static void test_out_of_memory(void **state)
{
    (void)state;
    each_algo(starve);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_messages_of_trees),
        cmocka_unit_test(test_small_jobs),
        cmocka_unit_test(test_wide_area),
        cmocka_unit_test(test_divided_vectors),
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_random_jobs),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_huge),
    };
    gci_env_init(&env, gci_sys_real(), NULL);
    return cmocka_run_group_tests_name("sched", tests, NULL, NULL);
}
