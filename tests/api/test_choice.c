/* test_choice.c: a model in use: rank 0's decides for all, whatever the others have; what it does not decide goes on as before.
 * SPDX-License-Identifier: MIT
 */
#define _POSIX_C_SOURCE 200809L
#include "colls.h"

#include <unistd.h>

enum { RANKS = 5, TEXT = 64 * 1024 };

/* ---- models ------------------------------------------------------------------------------------------------------ */

/* Writes one of so many ranks, each on a host of its own, to a file; the caller removes it. */
static void model_file(char path[64], int ranks, const char *latency, const char *send)
{
    snprintf(path, 64, "/tmp/gct_model_XXXXXX");
    int fd = mkstemp(path);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    if (!file)
        abort();
    fprintf(file, "gridcomm-model 1\nkind plogp\nheader 48\neager 0\nreduce 0\ncopy 0\n");
    for (int i = 0; i < ranks; i++)
        fprintf(file, "rank %d class 0 host %d\n", i, i);
    fprintf(file, "class 0 site 0 nic 8e-9 8e-9 apart\nsite 0 uplink 0 0 apart\nwithin 0 latency %s per-byte 0\n"
                  "between 0 0 latency %s per-byte 0\nbetween 0 0 send 1 %s\n", latency, latency, send);
    if (fclose(file) != 0)
        abort();
}

static int model_new(int ranks, const char *latency, const char *send, gc_model **model)
{
    char path[64], why[256];
    model_file(path, ranks, latency, send);
    int err = gc_model_load(path, model, why, sizeof why);
    unlink(path);
    gct_require(err == GC_OK, "%s", why);
    return 0;
}

static int described(gc_comm *comm, char text[TEXT])
{
    size_t needed;
    gct_ok(gc_describe(comm, "collectives", "text", text, TEXT, &needed));
    gct_require(needed <= TEXT, "%zu bytes", needed);
    return 0;
}

static int is_modelled(gc_comm *comm, bool wanted)
{
    char *text = gct_buffer(TEXT);
    GCT_TRY(described(comm, text));
    gct_require((strstr(text, "by the model") != NULL) == wanted, "%s", text);
    return gct_buffer_free(text);
}

/* ---- collectives ------------------------------------------------------------------------------------------------- */

/* a after b, as maps x -> a x + b of one byte each: associative, not commutative. */
static void compose(const void *in, void *inout, size_t count, gc_type type, void *user)
{
    const uint8_t *a = in;
    uint8_t *b = inout;
    (void)type, (void)user;
    for (size_t i = 0; i < count; i++, a += 2, b += 2) {
        b[1] = (uint8_t)(b[0] * a[1] + b[1]);
        b[0] = (uint8_t)(a[0] * b[0]);
    }
}

static int reduce_in_order(gc_comm *comm, int rank, int size)
{
    uint8_t mine[2] = { (uint8_t)(2 * rank + 3), (uint8_t)(rank + 1) }, got[2], want[2] = { 3, 1 };
    gc_op op;
    gct_ok(gc_op_create(comm, compose, 2, GC_OP_ASSOCIATIVE, NULL, &op));
    gct_ok(gc_allreduce(comm, mine, got, 1, GC_OPAQUE, op));
    for (int r = 1; r < size; r++) {
        uint8_t next[2] = { (uint8_t)(2 * r + 3), (uint8_t)(r + 1) };
        compose(want, next, 1, GC_OPAQUE, NULL);
        memcpy(want, next, sizeof want);
    }
    gct_require(memcmp(got, want, sizeof got) == 0, "%d %d for %d %d", got[0], got[1], want[0], want[1]);
    gct_ok(gc_op_free(comm, op));
    return 0;
}

static int vectors(gc_comm *comm, int rank, int size, size_t n)
{
    uint32_t *mine = gct_buffer(n * sizeof *mine), *got = gct_buffer(n * sizeof *got);
    int root = size - 1;
    for (size_t i = 0; i < n; i++)
        mine[i] = (uint32_t)rank * 1000 + (uint32_t)i;
    gct_ok(gc_allreduce(comm, mine, got, n, GC_UINT32, GC_SUM));
    uint32_t sum = (uint32_t)(size * (size - 1) / 2) * 1000, before = (uint32_t)(rank * (rank - 1) / 2) * 1000;
    for (size_t i = 0; i < n; i++)
        gct_require(got[i] == sum + (uint32_t)size * (uint32_t)i, "allreduce at %zu", i);
    gct_ok(gc_reduce(comm, mine, got, n, GC_UINT32, GC_MAX, root));
    for (size_t i = 0; i < n && rank == root; i++)
        gct_require(got[i] == (uint32_t)(size - 1) * 1000 + i, "reduce at %zu", i);
    gct_ok(gc_exscan(comm, mine, got, n, GC_UINT32, GC_SUM));
    for (size_t i = 0; i < n && rank > 0; i++)
        gct_require(got[i] == before + (uint32_t)rank * (uint32_t)i, "exscan at %zu", i);
    gct_ok(gc_scan(comm, mine, got, n, GC_UINT32, GC_SUM));
    for (size_t i = 0; i < n; i++)
        gct_require(got[i] == before + (uint32_t)rank * 1000 + (uint32_t)(rank + 1) * (uint32_t)i, "scan at %zu", i);
    gct_ok(gc_bcast(comm, mine, n * sizeof *mine, root));
    for (size_t i = 0; i < n; i++)
        gct_require(mine[i] == (uint32_t)root * 1000 + i, "bcast at %zu", i);
    return gct_buffer_free(mine) | gct_buffer_free(got);
}

static int blocks(gc_comm *comm, int rank, int size, size_t bytes)
{
    uint8_t *one = gct_buffer(bytes), *all = gct_buffer((size_t)size * bytes), *to = gct_buffer((size_t)size * bytes);
    gct_fill(one, bytes, rank, 1);
    gct_ok(gc_allgather(comm, one, bytes, all));
    gct_ok(gc_gather(comm, one, bytes, to, 1 % size));
    for (int r = 0; r < size; r++) {
        GCT_TRY(gct_check(all + (size_t)r * bytes, bytes, r, 1));
        GCT_TRY(rank == 1 % size ? gct_check(to + (size_t)r * bytes, bytes, r, 1) : 0);
        gct_fill(to + (size_t)r * bytes, bytes, rank, 2 + r);
    }
    gct_ok(gc_alltoall(comm, to, bytes, all));
    for (int r = 0; r < size; r++)
        GCT_TRY(gct_check(all + (size_t)r * bytes, bytes, r, 2 + rank));
    gct_ok(gc_scatter(comm, to, bytes, one, 0));
    GCT_TRY(gct_check(one, bytes, 0, 2 + rank));
    gct_ok(gc_reduce_scatter_block(comm, to, one, bytes, GC_UINT8, GC_BXOR));
    return gct_buffer_free(one) | gct_buffer_free(all) | gct_buffer_free(to);
}

static int uneven(gc_comm *comm, int rank, int size)
{
    size_t bytes[16], at[16], sum = 0;
    for (int r = 0; r < size; sum += bytes[r++]) {
        bytes[r] = (size_t)r * 100;
        at[r] = sum;
    }
    uint8_t *one = gct_buffer(bytes[rank]), *all = gct_buffer(sum);
    gct_fill(one, bytes[rank], rank, 7);
    gct_ok(gc_allgatherv(comm, one, bytes[rank], all, bytes, at));
    for (int r = 0; r < size; r++)
        GCT_TRY(gct_check(all + at[r], bytes[r], r, 7));
    return gct_buffer_free(one) | gct_buffer_free(all);
}

static int everything(gc_comm *comm)
{
    static const size_t sizes[] = { 0, 1, 3, 700, 5000, 100000 };
    int rank = gc_rank(comm), size = gc_size(comm);
    for (int i = 0; i < COUNT(sizes); i++) {
        GCT_TRY(vectors(comm, rank, size, sizes[i]));
        GCT_TRY(blocks(comm, rank, size, sizes[i]));
    }
    GCT_TRY(reduce_in_order(comm, rank, size));
    GCT_TRY(uneven(comm, rank, size));
    gct_ok(gc_barrier(comm));
    return 0;
}

/* ---- in use ------------------------------------------------------------------------------------------------------ */

/* All have the table of rank 0. */
static int all_have_the_same(gc_comm *comm)
{
    char *text = gct_buffer(TEXT), *first = gct_buffer(TEXT);
    GCT_TRY(described(comm, text));
    memcpy(first, text, TEXT);
    gct_ok(gc_bcast(comm, first, TEXT, 0));
    gct_require(strcmp(first, text) == 0, "%s is not\n%s", text, first);
    return gct_buffer_free(text) | gct_buffer_free(first);
}

/* What is taken for a short broadcast: where latencies are dear, what the rules say of so few ranks; where a processor is long busy
 * with a send, a chain. */
static int explained(gc_comm *comm, const char *name)
{
    char text[4096], line[64];
    gct_ok(gc_explain(comm, "bcast", 1, 0, text, sizeof text, NULL));
    char *taken = strstr(text, " taken");
    gct_require(taken != NULL, "%s", text);
    *taken = '\0';
    snprintf(line, sizeof line, "us  %s", name);
    gct_require(strstr(text, line) != NULL && strchr(strstr(text, line), '\n') == NULL, "%s", text);
    return 0;
}

static int use_main(gc_comm *world, int rank, int size, void *arg)
{
    gc_model *latency, *sends, *other;
    const char *one_step = arg;
    GCT_TRY(model_new(size, "1", "1e-6", &latency));
    GCT_TRY(model_new(size, "1e-9", "1", &sends));
    GCT_TRY(model_new(size + 1, "1", "1", &other));
    gct_require(gc_explain(world, "bcast", 1, 0, NULL, 0, NULL) == GC_ERR_UNSUPPORTED, "no model is in use");
    GCT_TRY(is_modelled(world, false));
    gct_ok(gc_model_use(world, rank == 0 ? sends : rank == 1 ? latency : rank == 2 ? other : NULL));
    GCT_TRY(is_modelled(world, true) | all_have_the_same(world) | everything(world));
    GCT_TRY(size > 3 ? explained(world, "chain") : 0);
    gct_ok(gc_model_use(world, latency));
    GCT_TRY(all_have_the_same(world) | everything(world));
    GCT_TRY(size > 3 ? explained(world, one_step) : 0);
    gct_require(gc_model_use(world, other) == GC_ERR_ARG, "a model of another number of ranks");
    GCT_TRY(size > 3 ? explained(world, one_step) : 0);
    gc_comm *child;
    gct_ok(gc_comm_dup(world, &child));
    GCT_TRY(is_modelled(child, false));
    gct_ok(gc_model_use(child, sends));
    GCT_TRY(everything(child) | everything(world));
    gct_ok(gc_comm_free(child));
    gct_ok(gc_model_use(world, rank == 0 ? NULL : sends));
    GCT_TRY(is_modelled(world, false) | everything(world));
    gc_model_free(latency);
    gc_model_free(sends);
    gc_model_free(other);
    return 0;
}

static void test_use(void **state)
{
    (void)state;
    static const int ranks[] = { 1, 2, RANKS, 8 };
    for (int i = 0; i < COUNT(ranks); i++)
        run(ranks[i], use_main, "knomial:8");
}

static void test_between_sites(void **state)
{
    (void)state;
    assert_int_equal(0, gct_job(&(gct_spec){ .ranks = 6, .sites = 2, .time_limit = 100 }, use_main, "flat"));
}

/* One line is marked, whatever the size, and whether the model, its segments made longer, or GRIDCOMM_ALGO says so. */
static int marked_main(gc_comm *world, int rank, int size, void *arg)
{
    static const char *const operations[] = { "bcast", "allreduce", "scan", "alltoall", "barrier" };
    static const size_t sizes[] = { 0, 1, 12000, (4 << 20) / 3 * 2, 4 << 20, (4 << 20) + 1, 9 << 20, 33 << 20 };
    const char *forced = arg ? strchr(arg, ':') + 1 : NULL;     /* of bcast */
    gc_model *model;
    (void)rank;
    GCT_TRY(model_new(size, "1e-4", "1e-6", &model));
    gct_ok(gc_model_use(world, model));
    for (int i = 0; i < COUNT(operations) * COUNT(sizes); i++) {
        const char *operation = operations[i / COUNT(sizes)];
        char text[8192], *taken;
        gct_ok(gc_explain(world, operation, sizes[i % COUNT(sizes)], 0, text, sizeof text, NULL));
        taken = strstr(text, " taken");
        gct_require(taken != NULL && strstr(taken + 1, " taken") == NULL, "%s", text);
        *taken = '\0';
        gct_require(!forced || i >= COUNT(sizes) || strstr(strrchr(text, '\n'), forced), "%s", text);
    }
    gc_model_free(model);
    return 0;
}

static void test_marked(void **state)
{
    (void)state;
    run(RANKS, marked_main, NULL);
    run_algorithm(RANKS, marked_main, "bcast:chain@1000");
}

/* What is named stays. */
static int forced_main(gc_comm *world, int rank, int size, void *arg)
{
    gc_model *model;
    (void)rank, (void)arg;
    GCT_TRY(model_new(size, "1", "1e-6", &model));
    gct_ok(gc_model_use(world, model));
    GCT_TRY(explained(world, "chain"));
    gc_model_free(model);
    return everything(world);
}

static void test_forced(void **state)
{
    (void)state;
    run_algorithm(RANKS, forced_main, "bcast:chain");
}

/* How many messages rank 0 sends in a broadcast. */
static int sends_at_the_root(gc_comm *world, int wanted)
{
    gc_stats before = { .size = sizeof before }, after = { .size = sizeof after };
    uint8_t byte = 1;
    gct_ok(gc_get_stats(world, &before));
    gct_ok(gc_bcast(world, &byte, 1, 0));
    gct_ok(gc_get_stats(world, &after));
    int sent = (int)(after.messages - before.messages);
    gct_require(gc_rank(world) != 0 || sent == wanted, "%d messages, not %d", sent, wanted);
    return 0;
}

/* Trees are made for the model in use: another one, another tree; none, and the rules say what is taken. */
static int trees_main(gc_comm *world, int rank, int size, void *arg)
{
    gc_model *latency, *sends;
    (void)rank, (void)arg;
    GCT_TRY(model_new(size, "1", "1e-6", &latency));
    GCT_TRY(model_new(size, "1e-9", "1", &sends));
    GCT_TRY(everything(world));
    gct_ok(gc_model_use(world, latency));
    GCT_TRY(everything(world) | sends_at_the_root(world, size - 1));     /* what is cached now is of no use then: */
    gct_ok(gc_model_use(world, sends));
    GCT_TRY(sends_at_the_root(world, 1) | everything(world));
    gct_ok(gc_model_use(world, NULL));
    gc_model_free(latency);
    gc_model_free(sends);
    return everything(world);
}

static void test_trees(void **state)
{
    (void)state;
    run_algorithm(RANKS, trees_main, "bcast:prim-ready,scatter:traeff,gather:binomial-nearest,reduce:prim-ahead@8192");
    run_algorithm(11, trees_main, "bcast:prim-ready,scatter:prim-ahead,gather:traeff@100,reduce:prim");
}

/* Reads what was saved, with one text replaced by another and a line more. */
static int edited(const char *path, const char *from, const char *to, const char *more, gc_model **model)
{
    char *text = gct_buffer(TEXT), *at, why[256];
    FILE *file = fopen(path, "r+");
    gct_require(file != NULL, "%s", path);
    text[fread(text, 1, TEXT - 1, file)] = '\0';
    at = strstr(text, from);
    gct_require(at != NULL && strstr(text, "\ntable ") != NULL, "%s", text);
    rewind(file);
    fprintf(file, "%.*s%s%s%s", (int)(at - text), text, to, at + strlen(from), more);
    gct_require(fclose(file) == 0, "%s", path);
    gct_require(gc_model_load(path, model, why, sizeof why) == GC_OK, "%s", why);
    return gct_buffer_free(text);
}

/* What was worked out is saved with the model, and holds where that is loaded, as long as what it was worked out from is the same. */
static int saved_main(gc_comm *world, int rank, int size, void *arg)
{
    gc_model *model, *same = NULL, *other = NULL;
    char path[64];
    (void)arg;
    GCT_TRY(model_new(size, "1", "1e-6", &model));
    gct_ok(gc_model_use(world, model));
    model_file(path, 1, "1", "1");
    if (rank == 0) {
        gct_ok(gc_model_save(model, path));
        GCT_TRY(edited(path, "reduce 0", "reduce 0", "choice bcast 1 chain\n", &same));
        GCT_TRY(edited(path, "reduce 0", "reduce 1", "", &other));
    }
    unlink(path);
    gct_ok(gc_model_use(world, same));
    GCT_TRY(all_have_the_same(world) | explained(world, "chain") | everything(world));
    gct_ok(gc_model_use(world, other));
    GCT_TRY(all_have_the_same(world) | explained(world, "knomial:8"));
    gc_model_free(model);
    gc_model_free(same);
    gc_model_free(other);
    return 0;
}

static void test_saved(void **state)
{
    (void)state;
    run(RANKS, saved_main, NULL);
}

static int arguments_main(gc_comm *world, int rank, int size, void *arg)
{
    gc_model *model;
    char text[4096], cut[10];
    size_t needed;
    (void)rank, (void)arg;
    REFUSES(gc_explain(world, "cast", 1, 0, text, sizeof text, NULL));
    REFUSES(gc_explain(world, "bcast", 1, size, text, sizeof text, NULL));
    REFUSES(gc_explain(world, "bcast", SIZE_MAX / 2, 0, text, sizeof text, NULL));
    gct_require(gc_explain(world, "bcast", 1, 0, NULL, 1, NULL) == GC_ERR_ARG && gc_model_use(NULL, NULL) == GC_ERR_ARG, "NULL");
    GCT_TRY(model_new(size, "1", "1e-6", &model));
    gct_ok(gc_model_use(world, model));
    gct_ok(gc_explain(world, "alltoall", 4096, 0, text, sizeof text, &needed));
    gct_require(needed == strlen(text) + 1 && strstr(text, "pairwise"), "%zu: %s", needed, text);
    gct_ok(gc_explain(world, "alltoall", 4096, 0, cut, sizeof cut, &needed));
    gct_require(needed == strlen(text) + 1 && strncmp(cut, text, 9) == 0 && cut[9] == '\0', "%zu: %s", needed, cut);
    gct_ok(gc_explain(world, "barrier", 0, 0, NULL, 0, &needed));
    gc_model_free(model);
    return 0;
}

static void test_arguments(void **state)
{
    (void)state;
    run(3, arguments_main, NULL);
}

/* ---- GRIDCOMM_MODEL ---------------------------------------------------------------------------------------------- */

static void options_of(gc_options *o, int rank, void *arg)
{
    o->model = rank == 0 ? arg : rank == 1 ? "/no/such/file" : NULL;
}

static int option_main(gc_comm *world, int rank, int size, void *arg)
{
    (void)rank, (void)size, (void)arg;
    GCT_TRY(is_modelled(world, true) | all_have_the_same(world) | everything(world));
    return explained(world, "knomial:8");
}

static void test_option(void **state)
{
    (void)state;
    char path[64];
    model_file(path, RANKS, "1", "1e-6");
    assert_int_equal(0, gct_job(&(gct_spec){ .ranks = RANKS, .options = options_of, .time_limit = 100 }, option_main, path));
    unlink(path);
}

static char refusal[256];

static void refused(int rank, int code, const char *text, void *arg)
{
    (void)rank, (void)arg;
    snprintf(refusal, sizeof refusal, "%d %s", code, text);
}

static void test_bad_option(void **state)
{
    (void)state;
    char path[64];
    gct_spec spec = { .ranks = 1, .options = options_of, .refused = refused };
    (void)gct_job(&spec, option_main, "/no/such/file");
    assert_non_null(strstr(refusal, "-14 GRIDCOMM_MODEL: /no/such/file: "));
    model_file(path, 3, "1", "1");
    (void)gct_job(&spec, option_main, path);
    assert_non_null(strstr(refusal, "-14 GRIDCOMM_MODEL: "));
    assert_non_null(strstr(refusal, "of 3 ranks, this job has 1"));
    unlink(path);
    model_file(path, 1, "x", "1");
    (void)gct_job(&spec, option_main, path);
    assert_non_null(strstr(refusal, "'x'"));
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_use),
        cmocka_unit_test(test_between_sites),
        cmocka_unit_test(test_marked),
        cmocka_unit_test(test_forced), cmocka_unit_test(test_trees), cmocka_unit_test(test_saved),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_option),
        cmocka_unit_test(test_bad_option),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
