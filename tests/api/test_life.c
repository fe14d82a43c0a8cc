/* test_life.c: init and finalize, options, aborts, memory and what a world tells about itself.
 * SPDX-License-Identifier: MIT
 */
#define _DEFAULT_SOURCE                 /* setenv */
#include "../gct.h"
#include "../port.h"

#include <malloc.h>
#include <math.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { TEXT = 256 };

/* ---- worlds of one ---------------------------------------------------------------------------------------------- */

static int use_alone(gc_comm *world)
{
    uint8_t out[100], in[100];
    gc_request *request;
    gc_comm *comm;
    int value = 5, sum = 0, dead;
    gct_require(gc_rank(world) == 0 && gc_size(world) == 1, "rank %d of %d", gc_rank(world), gc_size(world));
    gct_fill(out, sizeof out, 0, 1);
    gct_ok(gc_isend(world, out, sizeof out, 0, 1, &request));
    gct_ok(gc_recv(world, in, sizeof in, GC_ANY_SOURCE, 1, NULL));
    gct_ok(gc_wait(&request, NULL));
    gct_require(!gct_check(in, sizeof in, 0, 1), "message to oneself");
    gct_ok(gc_allreduce(world, &value, &sum, 1, GC_INT32, GC_SUM));
    gct_ok(gc_barrier(world));
    gct_ok(gc_comm_dup(world, &comm));
    gct_ok(gc_bcast(comm, out, sizeof out, 0));
    gct_require(sum == 5 && gc_comm_failed(world, &dead, 1) == 0 && gc_last_error(world, NULL, NULL, 0) == GC_OK, "sum %d", sum);
    gct_require(gc_host(world, 0) && gc_host(world, 0)[0] && gc_cluster(world, 0), "no host");
    return 0;
}

static void test_alone(void **state)
{
    (void)state;
    gc_comm *world = NULL;
    for (int i = 0; i < 20; i++) {
        gc_options options = GRIDCOMM_OPTIONS_INIT;
        assert_int_equal(0, gc_init(&world, i % 2 ? &options : NULL));
        assert_int_equal(0, use_alone(world));
        assert_int_equal(0, gc_finalize(world));
    }
    gc_comm *two[2];                    /* at the same time, and one outlives the other */
    assert_int_equal(0, gc_init(&two[0], NULL));
    assert_int_equal(0, gc_init(&two[1], NULL));
    assert_int_equal(0, use_alone(two[1]));
    assert_int_equal(GC_ERR_ARG, gc_comm_translate(two[0], (int[]){ 0 }, 1, two[1], (int[]){ 0 }));
    assert_int_equal(0, gc_finalize(two[0]));
    assert_int_equal(0, use_alone(two[1]));
    assert_int_equal(0, gc_finalize(two[1]));
    assert_int_equal(GC_ERR_ARG, gc_init(NULL, NULL));
    assert_int_equal(GC_ERR_ARG, gc_finalize(NULL));
    assert_int_equal(GC_ERR_ARG, gc_abort(NULL, 1));
}

/* Options of a caller that was compiled against a shorter struct, and of one with a longer one. */
static void test_other_sizes(void **state)
{
    (void)state;
    struct { gc_options known; char more[64]; } longer;
    memset(&longer, 0xee, sizeof longer);
    gc_options_init(&longer.known, offsetof(gc_options, progress));
    assert_true(longer.known.rank == -1 && longer.known.ranks == 0 && longer.known.root == NULL);
    assert_int_equal(offsetof(gc_options, progress), longer.known.size);
    assert_int_equal(0xee, *(const unsigned char *)&longer.known.progress);
    gc_comm *world;
    assert_int_equal(0, gc_init(&world, &longer.known));        /* what lies beyond is not looked at */
    assert_int_equal(0, gc_finalize(world));
    memset(&longer, 0xee, sizeof longer);
    gc_options_init(&longer.known, sizeof longer.known);
    longer.known.size = sizeof longer;
    assert_int_equal(0, gc_init(&world, &longer.known));
    assert_int_equal(0, gc_finalize(world));
    longer.known.size = 1;
    assert_int_equal(GC_ERR_ARG, gc_init(&world, &longer.known));
    assert_null(world);
    gc_options_init(NULL, 100);

    gc_options same = GRIDCOMM_OPTIONS_INIT, fresh;
    memset(&fresh, 0xee, sizeof fresh);
    gc_options_init(&fresh, sizeof fresh);
    assert_true(fresh.size == same.size && fresh.rank == same.rank && fresh.direct == same.direct && !fresh.log && !fresh.key &&
                fresh.credits == 0 && fresh.peer_timeout == 0 && !fresh.error_text);
}

static int say_hello(gc_comm *world, int rank, int size, void *arg)
{
    int value = rank, before = -1;
    (void)arg;
    gct_ok(gc_sendrecv(world, &value, sizeof value, (rank + 1) % size, 0,
                       &before, sizeof before, (rank + size - 1) % size, 0, NULL));
    gct_require(before == (rank + size - 1) % size, "from %d", before);
    gct_ok(gc_allreduce(world, &value, &before, 1, GC_INT32, GC_MAX));
    gct_require(before == size - 1, "maximum %d", before);
    return 0;
}

static void test_again_and_again(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++)
        assert_int_equal(0, gct_job(&(gct_spec){ .ranks = 1 + i % 4 }, say_hello, NULL));
}

/* ---- options: the caller's, the environment's, the default -------------------------------------------------------- */

static const char *text_of(int code, const char *text) { return code ? text : "success"; }

static int try_alone(gc_options *options, char text[TEXT], char cluster[TEXT])
{
    gc_comm *world;
    text[0] = 0;
    options->error_text = text;
    options->error_text_size = TEXT;
    int code = gc_init(&world, options);
    if (code) {
        return world ? 1 : code;
    }
    if (cluster)
        snprintf(cluster, TEXT, "%s", gc_cluster(world, 0));
    return gc_finalize(world);
}

static void test_precedence(void **state)
{
    (void)state;
    char text[TEXT], cluster[TEXT];
    gc_options options = GRIDCOMM_OPTIONS_INIT;
    assert_int_equal(0, try_alone(&options, text, cluster));
    assert_string_equal("", cluster);
    setenv("GRIDCOMM_CLUSTER", "site/rack", 1);
    assert_int_equal(0, try_alone(&options, text, cluster));
    assert_string_equal("site/rack", cluster);
    options.cluster = "other";
    assert_int_equal(0, try_alone(&options, text, cluster));
    assert_string_equal("other", cluster);
    setenv("GRIDCOMM_CLUSTER", "", 1);          /* empty is unset */
    options.cluster = NULL;
    assert_int_equal(0, try_alone(&options, text, cluster));
    assert_string_equal("", cluster);
    unsetenv("GRIDCOMM_CLUSTER");

    static const char *const bad[] = { "GRIDCOMM_PROGRESS", "GRIDCOMM_CREDITS", "GRIDCOMM_START_TIMEOUT", "GRIDCOMM_EAGER_BUDGET",
                                       "GRIDCOMM_QUEUE_PACKETS", "GRIDCOMM_PEER_TIMEOUT", "GRIDCOMM_ALGO" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        setenv(bad[i], "nonsense", 1);
    assert_int_equal(GC_ERR_CONFIG, try_alone(&options, text, NULL));
    options.progress = "sleep";                 /* what the caller says, the environment is not asked for */
    options.credits = 3;
    options.start_timeout = 7;
    options.peer_timeout = 7;
    options.eager_budget = 1 << 20;
    options.queue_packets = 2;
    options.algo = "bcast:flat";
    int code = try_alone(&options, text, NULL);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        unsetenv(bad[i]);
    assert_string_equal("success", text_of(code, text));
}

static const struct bad_value { const char *name, *value; int code; } bad_values[] = {
    { "PORTS", "x", GC_ERR_CONFIG }, { "PORTS", "70000-70001", GC_ERR_CONFIG }, { "PORTS", "5-4", GC_ERR_CONFIG },
    { "PORTS", "0-5", GC_ERR_CONFIG }, { "PORTS", "4000-4010x", GC_ERR_CONFIG },
    { "ALGO", "bcast:nonsense", GC_ERR_CONFIG }, { "ALGO", "nonsense:flat", GC_ERR_CONFIG }, { "ALGO", "bcast", GC_ERR_CONFIG },
    { "ALGO", "bcast:flat,", GC_OK }, { "ALGO", ":", GC_ERR_CONFIG },
    { "PROGRESS", "fast", GC_ERR_CONFIG }, { "PROGRESS", "thread", GC_OK },
    { "START_TIMEOUT", "-1", GC_ERR_CONFIG }, { "START_TIMEOUT", "1e99", GC_ERR_CONFIG },
    { "START_TIMEOUT", "nan", GC_ERR_CONFIG },
    { "START_TIMEOUT", "60 s", GC_ERR_CONFIG }, { "START_TIMEOUT", "0", GC_ERR_CONFIG }, { "START_TIMEOUT", "1.5", GC_OK },
    { "PEER_TIMEOUT", "soon", GC_ERR_CONFIG }, { "PEER_TIMEOUT", "inf", GC_ERR_CONFIG },
    { "PEER_TIMEOUT", "-0.5", GC_ERR_CONFIG },
    { "CREDITS", "0", GC_ERR_CONFIG }, { "CREDITS", "16385", GC_ERR_CONFIG }, { "CREDITS", "1.5", GC_ERR_CONFIG },
    { "CREDITS", "12 packets", GC_ERR_CONFIG }, { "CREDITS", "16384", GC_OK },
    { "QUEUE_PACKETS", "0", GC_ERR_CONFIG }, { "QUEUE_PACKETS", "-8", GC_ERR_CONFIG },
    { "QUEUE_PACKETS", "99999999", GC_ERR_CONFIG },
    { "EAGER_BUDGET", "100", GC_ERR_CONFIG }, { "EAGER_BUDGET", "16M", GC_ERR_CONFIG }, { "EAGER_BUDGET", "1e18", GC_ERR_CONFIG },
    { "EAGER_BUDGET", "65536", GC_OK },
    { "IF", "nosuchif0", GC_ERR_CONFIG }, { "IF", "^*", GC_ERR_CONFIG }, { "IF", "nosuch*", GC_ERR_CONFIG },
    { "ADVERTISE", "192.0.2.1", GC_OK }, { "ADVERTISE", "[2001:db8::1]:7000", GC_OK }, { "ADVERTISE", "node1", GC_ERR_CONFIG },
    { "ADVERTISE", "192.0.2.1:0", GC_ERR_CONFIG }, { "ADVERTISE", "127.0.0.1", GC_ERR_CONFIG },
    { "LINKS", "/nonexistent/links", GC_ERR_CONFIG }, { "LINKS", "/", GC_ERR_CONFIG }, { "LINKS", "/dev/null", GC_OK },
    { "ROUTING", "ordered", GC_OK }, { "ROUTING", "updown-bfs", GC_OK }, { "ROUTING", "up", GC_ERR_CONFIG },
    { "ROUTING", "updown-dfs ", GC_ERR_CONFIG }, { "LINK_DENSITY", "0.1", GC_OK }, { "LINK_DENSITY", "1.1", GC_ERR_CONFIG },
    { "LINK_DENSITY", "-0.1", GC_ERR_CONFIG }, { "LINK_DENSITY", "half", GC_ERR_CONFIG }, { "MAX_LINKS", "5", GC_OK },
    { "MAX_LINKS", "0", GC_ERR_CONFIG }, { "MAX_LINKS", "1.5", GC_ERR_CONFIG }, { "MAX_LINKS", "2000000", GC_ERR_CONFIG },
    { "DIRECT", "0", GC_OK }, { "DIRECT", "1", GC_OK }, { "DIRECT", "no", GC_ERR_CONFIG }, { "DIRECT", "-1", GC_ERR_CONFIG },
    { "MODEL", "/no/such/file", GC_ERR_CONFIG }, { "ORDER", "rank", GC_OK }, { "ORDER", "rnak", GC_ERR_CONFIG }, { "STALL", "60", GC_OK },
    { "STALL", "-1", GC_ERR_CONFIG }, { "STALL", "0", GC_OK },
    { "STREAMS", "2", GC_OK }, { "STREAMS", "64", GC_OK }, { "STREAMS", "0", GC_ERR_CONFIG }, { "STREAMS", "65", GC_ERR_CONFIG },
    { "STREAMS", "many", GC_ERR_CONFIG },
    { "RANK", "x", GC_ERR_CONFIG }, { "RANK", "-1", GC_ERR_CONFIG }, { "RANK", "0", GC_ERR_CONFIG },
    { "SIZE", "2", GC_ERR_CONFIG }, { "SIZE", "0", GC_ERR_CONFIG }, { "SIZE", "99999999", GC_ERR_CONFIG },
    { "CLUSTER", "a\tb", GC_ERR_CONFIG }, { "INSECURE", "yes", GC_ERR_CONFIG }, { "INSECURE", "2", GC_ERR_CONFIG },
    { "KEY_FILE", "/nonexistent/key", GC_ERR_CONFIG }, { "KEY_FILE", "/dev/null", GC_ERR_CONFIG },
    { "KEY_FILE", "/", GC_ERR_CONFIG },
    { "LISTEN_FD", "-1", GC_ERR_CONFIG }, { "LISTEN_FD", "x", GC_ERR_CONFIG },
};

static int refused_value(const struct bad_value *row, int size)
{
    gc_options options = GRIDCOMM_OPTIONS_INIT;
    char name[TEXT], text[TEXT];
    snprintf(name, sizeof name, "GRIDCOMM_%s", row->name);
    if (size > 1) {                             /* as a rank of a job: but it never comes to that */
        setenv("GRIDCOMM_RANK", "0", 1);
        setenv("GRIDCOMM_SIZE", "2", 1);
        setenv("GRIDCOMM_ROOT", "127.0.0.1:29999", 1);
        setenv("GRIDCOMM_START_TIMEOUT", "0.05", 1);
    }
    setenv(name, row->value, 1);
    int code = try_alone(&options, text, NULL), bad = 0;
    int want = size > 1 && row->code == GC_OK ? GC_ERR_TIMEOUT : row->code;
    if (code != want)
        bad = gct_fail(__FILE__, __LINE__, name, "'%s' as one of %d: %s: %s", row->value, size, gc_strerror(code), text);
    else if (row->code != GC_OK && !strstr(text, name))
        bad = gct_fail(__FILE__, __LINE__, name, "'%s' as one of %d: not named in '%s'", row->value, size, text);
    unsetenv("GRIDCOMM_RANK");
    unsetenv("GRIDCOMM_SIZE");
    unsetenv("GRIDCOMM_ROOT");
    unsetenv("GRIDCOMM_START_TIMEOUT");
    unsetenv(name);
    return bad;
}

static void test_bad_values(void **state)
{
    (void)state;
    int bad = 0;
    for (size_t i = 0; i < sizeof bad_values / sizeof bad_values[0]; i++) {
        const struct bad_value *row = &bad_values[i];
        bool place = !strcmp(row->name, "RANK") || !strcmp(row->name, "SIZE");
        bool listens = !strcmp(row->name, "PORTS") || !strcmp(row->name, "IF") || !strcmp(row->name, "ADVERTISE");
        if (!listens)                           /* who is alone does not */
            bad += refused_value(row, 1);
        if (!place && strcmp(row->name, "START_TIMEOUT") != 0)
            bad += refused_value(row, 2);
    }
    char longest[400];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    bad += refused_value(&(struct bad_value){ "KEY", longest, GC_ERR_CONFIG }, 1);
    bad += refused_value(&(struct bad_value){ "CLUSTER", longest, GC_ERR_CONFIG }, 1);
    assert_int_equal(0, bad);
}

/* The same through gc_options. */
static void test_bad_options(void **state)
{
    (void)state;
    const gc_options init = GRIDCOMM_OPTIONS_INIT;
    gc_options bad[24];
    int n = 0;
    for (int i = 0; i < 24; i++)
        bad[i] = init;
    bad[n++].credits = -1;
    bad[n++].credits = 16385;
    bad[n++].queue_packets = -1;
    bad[n++].queue_packets = 1 << 30;
    bad[n++].start_timeout = -1;
    bad[n++].start_timeout = (double)NAN;
    bad[n++].peer_timeout = 1e30;
    bad[n++].eager_budget = 1;
    bad[n++].progress = "";
    bad[n++].routing = "";
    bad[n++].direct = 2;
    bad[n++].max_links = -1;
    bad[n++].link_density = 1.5;
    bad[n++].links = "/nonexistent/links";
    bad[n++].algo = "bcast:";
    bad[n].ranks = 2, bad[n++].rank = 2;
    bad[n].ranks = 2, bad[n++].rank = 1;        /* and no root */
    bad[n].ranks = 2, bad[n].rank = 1, bad[n++].root = "no port";
    bad[n].ranks = 2, bad[n].rank = 1, bad[n++].root = "127.0.0.1:99999";
    for (int i = 0; i < n; i++) {
        char text[TEXT];
        int code = try_alone(&bad[i], text, NULL);
        if (code != GC_ERR_CONFIG || strlen(text) < 10)
            fail_msg("options %d: %s: '%s'", i, gc_strerror(code), text);
    }
    gc_options wrong = init;
    char text[TEXT];
    wrong.stall = -60;
    assert_int_equal(GC_ERR_CONFIG, try_alone(&wrong, text, NULL));
    assert_non_null(strstr(text, "GRIDCOMM_STALL"));
    char tiny[8] = "1234567";           /* an error text that is too small is cut, with its end */
    gc_comm *world;
    wrong.error_text = tiny;
    wrong.error_text_size = 5;
    assert_int_equal(GC_ERR_CONFIG, gc_init(&world, &wrong));
    assert_true(strlen(tiny) == 4 && tiny[5] == '6');
    wrong.error_text_size = 0;
    assert_int_equal(GC_ERR_CONFIG, gc_init(&world, &wrong));
}

/* ---- a job that does not become complete ----------------------------------------------------------------------------- */

typedef struct start_case {
    int  bad_rank, want_other;          /* rank that is different; what the others may say: this or want_second */
    int  want_second, want_bad;         /* want_bad: what it says itself */
    const char *names;                  /* stands in the others' texts */
    void (*spoil)(gc_options *);
} start_case;

typedef struct start_run { const start_case *c; atomic_int refused, wrong; } start_run;

static void spoil_progress(gc_options *o) { o->progress = "nonsense"; }         /* it never joins */
static void spoil_key(gc_options *o) { o->key = "another key"; }
static void spoil_ranks(gc_options *o) { o->ranks++; }

static void spoil_one(gc_options *o, int rank, void *arg)
{
    const start_run *run = arg;
    o->start_timeout = 0.6;
    if (rank == run->c->bad_rank)
        run->c->spoil(o);
}

static void see_refused(int rank, int code, const char *text, void *arg)
{
    start_run *run = arg;
    const start_case *c = run->c;
    run->refused++;
    bool right = rank == c->bad_rank ? code == c->want_bad
                                     : (code == c->want_other || code == c->want_second) && strstr(text, c->names);
    if (!right || strlen(text) < 10) {
        run->wrong++;
        gct_fail(__FILE__, __LINE__, "refused", "rank %d, the bad one is %d: %s: %s", rank, c->bad_rank, gc_strerror(code), text);
    }
}

static int never(gc_comm *world, int rank, int size, void *arg)
{
    (void)world, (void)size, (void)arg;
    return gct_fail(__FILE__, __LINE__, "gc_init", "rank %d has joined", rank);
}

static void test_incomplete(void **state)
{
    static const start_case cases[] = {
        { 2, GC_ERR_TIMEOUT, GC_ERR_TIMEOUT, GC_ERR_CONFIG, "rank 2", spoil_progress },
        { 3, GC_ERR_TIMEOUT, GC_ERR_TIMEOUT, GC_ERR_CONFIG, "rank 3", spoil_progress },
        { 0, GC_ERR_TIMEOUT, GC_ERR_UNREACHABLE, GC_ERR_CONFIG, "rank 0", spoil_progress },
        { 1, GC_ERR_TIMEOUT, GC_ERR_AUTH, GC_ERR_AUTH, "rank 1", spoil_key },
        { 1, GC_ERR_TIMEOUT, GC_ERR_PROTOCOL, GC_ERR_CONFIG, "rank 1", spoil_ranks },
    };
    enum { RANKS = 4 };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        start_run run = { .c = &cases[i] };
        gct_spec spec = { .ranks = RANKS, .options = spoil_one, .refused = see_refused };
        assert_int_equal(0, gct_job(&spec, never, &run));
        assert_int_equal(RANKS, run.refused);
        assert_int_equal(0, run.wrong);
    }
}

/* ---- abort -------------------------------------------------------------------------------------------------------------- */

enum { ABORT_ROLES = 12, ABORT_CODE = 4242, READY = 1, NEVER = 99, LONG = 3000000 };

/* What a rank is in the middle of when the job is aborted. */
static int wait_in_role(gc_comm *world, gc_comm *other, int role, int size)
{
    static uint8_t out[LONG];           /* read only */
    uint8_t in[8];
    gc_request *request[3] = { NULL };
    gc_message *message;
    gc_status status;
    int index, code, value = 1, sum;
    switch (role) {
    case 1: return gc_recv(world, in, sizeof in, 0, NEVER, NULL);
    case 2: return gc_recv(world, in, sizeof in, GC_ANY_SOURCE, GC_ANY_TAG, NULL);
    case 3: return gc_barrier(other);
    case 4: return gc_probe(world, 0, NEVER, &status);
    case 5:
        gct_ok(gc_irecv(world, in, sizeof in, 0, NEVER, &request[0]));
        code = gc_wait_for(&request[0], 50, &status);
        gct_require(!request[0] && status.error == code, "the request is still there");
        return code;
    case 6: return gc_sendrecv(world, out, LONG, 0, NEVER, in, sizeof in, 0, NEVER, NULL);
    case 7: return gc_ssend(world, out, 1, 0, NEVER);
    case 8: return gc_mprobe(other, GC_ANY_SOURCE, NEVER, &message, &status);
    case 9:
        for (int i = 0; i < 3; i++)
            gct_ok(gc_irecv(world, in, sizeof in, (i + 1) % size, NEVER, &request[i]));
        code = gc_waitany(3, request, &index, &status);
        gct_require(index >= 0 && gc_waitall(3, request, NULL) == GC_ERR_ABORTED, "waitall, index %d", index);
        return code;
    case 10: return gc_send(world, out, LONG, 0, NEVER);
    case 11: return gc_allreduce(other, &value, &sum, 1, GC_INT32, GC_SUM);
    default: {
        gc_comm *comm = world;
        code = gc_comm_split(other, 0, 0, &comm);
        gct_require(!comm, "a communicator");
        return code;
    }
    }
}

static int everything_is_aborted(gc_comm *world, gc_comm *other, int rank, int size)
{
    gc_request *request = NULL;
    gc_comm *comm = world;
    gc_status status;
    char text[TEXT];
    int next = (rank + 1) % size, value = 0;
    gct_require(gc_send(world, &value, 4, next, 1) == GC_ERR_ABORTED, "send");
    gct_require(gc_isend(world, &value, 4, next, 1, &request) == GC_ERR_ABORTED && !request, "isend");
    gct_require(gc_recv(other, &value, 4, next, 1, NULL) == GC_ERR_ABORTED, "recv");
    gct_require(gc_irecv(world, &value, 4, GC_ANY_SOURCE, 1, &request) == GC_ERR_ABORTED && !request, "irecv");
    gct_require(gc_probe(world, GC_ANY_SOURCE, GC_ANY_TAG, &status) == GC_ERR_ABORTED, "probe");
    gct_require(gc_send(world, &value, 4, rank, 1) == GC_ERR_ABORTED, "send to oneself");
    gct_require(gc_barrier(world) == GC_ERR_ABORTED && gc_bcast(other, &value, 4, 0) == GC_ERR_ABORTED, "collectives");
    gct_require(gc_ibarrier(world, &request) == GC_ERR_ABORTED || gc_wait(&request, NULL) == GC_ERR_ABORTED, "ibarrier");
    gct_require(gc_comm_dup(world, &comm) == GC_ERR_ABORTED && !comm, "dup");
    gct_require(gc_comm_create(world, &rank, 1, &comm) != GC_OK || gc_comm_free(comm) == GC_OK, "create, alone");
    gct_require(gc_last_error(world, &status, text, sizeof text) == GC_ERR_ABORTED && status.error == GC_ERR_ABORTED,
                "last error");
    return 0;
}

static int aborted(gc_comm *world, int rank, int size, void *arg)
{
    gc_comm *other;
    gc_request *request;
    uint8_t byte = 0;
    char text[TEXT];
    (void)arg;
    gct_ok(gc_comm_dup(world, &other));
    if (rank > 0) {
        gct_ok(gc_send(world, &byte, 1, 0, READY));
        int code = wait_in_role(world, other, rank, size);
        gc_last_error(rank == 3 || rank == 8 || rank >= 11 ? other : world, NULL, text, sizeof text);
        gct_require(code == GC_ERR_ABORTED, "role %d: %s: %s", rank, gc_strerror(code), text);
    } else {
        for (int i = 1; i < size; i++)
            gct_ok(gc_recv(world, &byte, 1, GC_ANY_SOURCE, READY, NULL));
        gct_ok(gc_irecv(world, &byte, 1, 1, NEVER, &request));
        gct_require(gc_wait_for(&request, 0.03, NULL) == GC_ERR_TIMEOUT, "nobody sends");       /* by now all of them wait */
        gct_ok(gc_abort(other, ABORT_CODE));
        gct_require(gc_wait(&request, NULL) == GC_ERR_ABORTED, "my own");
    }
    /* last_error of where it waited: the code that rank 0 gave stands in the text, but for probes */
    bool in_other = rank == 3 || rank == 8 || rank >= 11;
    gct_require(gc_last_error(in_other ? other : world, NULL, text, sizeof text) == GC_ERR_ABORTED && strlen(text) > 5, "text");
    gct_require(rank == 0 || rank == 4 || rank == 8 || strstr(text, "4242"), "no code in '%s'", text);
    if (everything_is_aborted(world, other, rank, size))
        return 1;
    gct_ok(gc_abort(world, 1));                 /* again: harmless */
    gct_ok(gc_comm_free(other));
    gct_require(gc_finalize(world) == GC_ERR_ABORTED, "finalize");
    return 0;
}

static void test_abort(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        assert_int_equal(0, gct_job(&(gct_spec){ .ranks = ABORT_ROLES + 1, .finalizes = true }, aborted, NULL));
    gc_comm *world;
    assert_int_equal(0, gc_init(&world, NULL));
    assert_int_equal(0, gc_abort(world, 1));
    assert_int_equal(GC_ERR_ABORTED, gc_barrier(world));
    assert_int_equal(GC_ERR_ABORTED, gc_finalize(world));
}

/* All ranks are in gc_finalize but one, which aborts instead. */
static int aborted_at_the_end(gc_comm *world, int rank, int size, void *arg)
{
    (void)arg;
    if (rank < size - 1)
        gct_ok(gc_send(world, &rank, sizeof rank, size - 1, 1));
    for (int i = 0, from; rank == size - 1 && i < size - 1; i++)
        gct_ok(gc_recv(world, &from, sizeof from, GC_ANY_SOURCE, 1, NULL));
    if (rank == size - 1)
        gct_ok(gc_abort(world, 1));
    gct_require(gc_finalize(world) == GC_ERR_ABORTED, "finalize");
    return 0;
}

static void test_abort_at_the_end(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++)
        assert_int_equal(0, gct_job(&(gct_spec){ .ranks = 2 + i % 4, .finalizes = true }, aborted_at_the_end, NULL));
}

/* ---- memory: through the hook, and none left ---------------------------------------------------------------------- */

/* An allocator that takes nothing from libc, so that what libc gave out meanwhile was not for the library. */
typedef struct arena { _Alignas(16) uint8_t store[1 << 20]; size_t used; long blocks; } arena;

static void *arena_alloc(void *user, void *old, size_t bytes)
{
    arena *a = user;
    size_t had = 0, whole = (bytes + 31) / 16 * 16;
    if (old)
        memcpy(&had, (uint8_t *)old - 16, sizeof had);
    if (!bytes) {
        a->blocks -= old != NULL;
        return NULL;
    }
    if (bytes > sizeof a->store || whole > sizeof a->store - a->used)
        return NULL;
    uint8_t *new = a->store + a->used + 16;
    memcpy(new - 16, &bytes, sizeof bytes);
    a->used += whole;
    a->blocks += !old;
    return old ? memcpy(new, old, had < bytes ? had : bytes) : new;
}

enum { LOCK_BYTES = 512 };      /* locks and threads are of the system's making: they alone go past the hook */

static void test_all_memory_is_hooked(void **state)
{
    (void)state;
    static arena a;
    gc_options options = GRIDCOMM_OPTIONS_INIT;
    gc_comm *world;
    options.alloc = arena_alloc;
    options.alloc_user = &a;
    options.algo = "bcast:flat";
    options.cluster = "somewhere";
    assert_int_equal(0, gc_init(&world, NULL));             /* what libc makes once is made now */
    assert_int_equal(0, gc_finalize(world));
    struct mallinfo2 before = mallinfo2();
    int code = gc_init(&world, &options);
    code = code ? code : use_alone(world);
    struct mallinfo2 during = mallinfo2();
    assert_int_equal(0, code);
    assert_true(a.blocks > 3);
    size_t past = during.uordblks + during.hblkhd - before.uordblks - before.hblkhd;
    assert_in_range(past, 0, LOCK_BYTES);
    assert_int_equal(0, gc_finalize(world));
    assert_int_equal(0, a.blocks);
}

/* ---- memory: every allocation fails in turn -------------------------------------------------------------------------- */

typedef struct failing {
    int    victim;
    bool   onwards;                     /* all that follow fail, too */
    long   nth;                         /* 0: none */
    atomic_long count;
    void *(*alloc)(void *, void *, size_t);
    void  *alloc_user;
    atomic_int joined, not_joined, data_wrong, stuck;
} failing;

static void *failing_alloc(void *user, void *old, size_t bytes)
{
    failing *f = user;
    if (bytes > 0) {
        long now = ++f->count;
        if (f->nth && (f->onwards ? now >= f->nth : now == f->nth))
            return NULL;
    }
    return f->alloc(f->alloc_user, old, bytes);
}

static void put_failing(gc_options *o, int rank, void *arg)
{
    failing *f = arg;
    o->start_timeout = 1.5;
    o->peer_timeout = 0.3;              /* on real sockets every second of it is one */
    if (rank != f->victim)
        return;
    f->alloc = o->alloc;
    f->alloc_user = o->alloc_user;
    o->alloc = failing_alloc;
    o->alloc_user = f;
}

static void not_joined(int rank, int code, const char *text, void *arg)
{
    failing *f = arg;
    f->not_joined++;
    if (rank == f->victim && code != GC_ERR_NOMEM && code != GC_ERR_PEER && code != GC_ERR_TIMEOUT) {
        gct_fail(__FILE__, __LINE__, "gc_init", "allocation %ld: %s: %s", f->nth, gc_strerror(code), text);
        f->data_wrong++;
    }
}

static void add_bytes(const void *in, void *inout, size_t count, gc_type type, void *user)
{
    const uint8_t *from = in;
    uint8_t *to = inout;
    (void)type, (void)user;
    for (size_t i = 0; i < count; i++)
        to[i] = (uint8_t)(to[i] + from[i]);
}

enum { FAIL_BYTES = 200000, FAIL_SMALL = 2000, FAIL_REQUESTS = 8 };
typedef struct fail_work {
    uint8_t *out, *in;
    gc_request *request[2 * FAIL_REQUESTS];
    gc_message *message;
    int wrong;
} fail_work;

/* Calls until one fails: its code. */
#define TRY(call) do { int code_ = (call); if (code_) return code_; } while (0)
#define DATA(bytes, from, tag) (w->wrong += gct_check(w->in, bytes, from, tag))

static int fail_messages(gc_comm *world, fail_work *w, int rank, int peer)
{
    gc_status status;
    for (int i = 0; i < 2; i++) {
        size_t bytes = i ? FAIL_BYTES : FAIL_SMALL;
        gct_fill(w->out, bytes, rank, i);
        TRY(gc_sendrecv(world, w->out, bytes, peer, i, w->in, bytes, peer, i, NULL));
        DATA(bytes, peer, i);
    }
    for (int i = 0; i < FAIL_REQUESTS; i++)
        TRY(gc_isend(world, w->out + i * 1000, i % 3 == 2 ? 20000 : 1000, peer, i, &w->request[i]));
    for (int i = 0; i < FAIL_REQUESTS; i++) {           /* the last one first: the others come unexpected */
        int tag = FAIL_REQUESTS - 1 - i;
        TRY(gc_irecv(world, w->in + i * 20000, 20000, i % 2 ? GC_ANY_SOURCE : peer, tag, &w->request[FAIL_REQUESTS + i]));
        TRY(gc_wait(&w->request[FAIL_REQUESTS + i], NULL));
    }
    TRY(gc_waitall(2 * FAIL_REQUESTS, w->request, NULL));
    gct_fill(w->out, FAIL_SMALL, rank, 7);
    TRY(gc_isend(world, w->out, FAIL_SMALL, peer, 7, &w->request[0]));
    TRY(gc_mprobe(world, peer, GC_ANY_TAG, &w->message, &status));
    TRY(gc_mrecv(&w->message, w->in, FAIL_SMALL, NULL));
    DATA(FAIL_SMALL, peer, 7);
    TRY(gc_wait(&w->request[0], NULL));
    TRY(gc_isend(world, w->out, FAIL_SMALL, rank, 8, &w->request[0]));
    TRY(gc_recv(world, w->in, FAIL_SMALL, GC_ANY_SOURCE, 8, NULL));
    DATA(FAIL_SMALL, rank, 7);
    return gc_wait(&w->request[0], NULL);
}

static int fail_collectives(gc_comm *comm, fail_work *w, int rank, int size)
{
    gc_op op;
    TRY(gc_barrier(comm));
    gct_fill(w->out, FAIL_BYTES, rank, 11);
    memcpy(w->in, w->out, FAIL_BYTES);
    TRY(gc_bcast(comm, w->in, FAIL_BYTES, 1));
    DATA(FAIL_BYTES, 1, 11);
    TRY(gc_gather(comm, w->out, 50000, w->in, 0));
    TRY(gc_allgather(comm, w->out, 1000, w->in));
    gct_fill(w->out, 1000, 0, 0);
    TRY(gc_op_create(comm, add_bytes, 1, GC_OP_ASSOCIATIVE, NULL, &op));
    TRY(gc_reduce(comm, w->out, w->in, 1000, GC_UINT8, op, size - 1));
    TRY(gc_allreduce(comm, w->out, w->in, 1000, GC_UINT8, op));
    for (int i = 0; i < 1000; i++)
        w->wrong += w->in[i] != (uint8_t)(size * w->out[i]);
    TRY(gc_ibarrier(comm, &w->request[0]));
    TRY(gc_iallreduce(comm, w->out, w->in, 100, GC_INT64, GC_BXOR, &w->request[1]));
    TRY(gc_waitall(2, w->request, NULL));
    return gc_op_free(comm, op);
}

static int fail_everything(gc_comm *world, fail_work *w, int rank, int size)
{
    gc_comm *one, *two, *three;
    TRY(fail_messages(world, w, rank, 1 - rank));
    TRY(fail_collectives(world, w, rank, size));
    TRY(gc_comm_dup(world, &one));
    TRY(gc_comm_split(one, 0, -rank, &two));
    TRY(gc_comm_create(two, (int[]){ 1, 0 }, 2, &three));
    TRY(fail_messages(three, w, gc_rank(three), 1 - gc_rank(three)));
    TRY(gc_comm_free(one));
    TRY(gc_comm_free(three));
    return gc_barrier(two);
}

static int failing_main(gc_comm *world, int rank, int size, void *arg)
{
    failing *f = arg;
    fail_work work = { .out = gct_buffer(FAIL_BYTES), .in = gct_buffer(FAIL_BYTES) }, *w = &work;
    f->joined++;
    int code = fail_everything(world, w, rank, size);
    if (code) {
        gc_abort(world, 1);
        if (w->message)
            gc_mrecv(&w->message, w->in, FAIL_SMALL, NULL);
        gc_waitall(2 * FAIL_REQUESTS, w->request, NULL);
    }
    int end = gc_finalize(world);
    if (end == GC_ERR_PENDING || (code && !end)) {
        f->stuck++;
        return gct_fail(__FILE__, __LINE__, "finalize", "allocation %ld of rank %d: %s, after %s",
                        f->nth, f->victim, gc_strerror(end), gc_strerror(code));
    }
    gct_require(!w->wrong && !gct_buffer_free(w->out) && !gct_buffer_free(w->in), "data, allocation %ld of rank %d",
                f->nth, f->victim);
    return 0;
}

static int one_failing(int victim, bool onwards, long nth, uint64_t seed, long *count)
{
    failing f = { .victim = victim, .onwards = onwards, .nth = nth };
    gct_spec spec = { .ranks = 2, .seed = seed, .finalizes = true, .options = put_failing, .refused = not_joined };
    int bad = gct_job(&spec, failing_main, &f) + f.data_wrong;
    if (f.joined && f.not_joined)
        bad += gct_fail(__FILE__, __LINE__, "gc_init", "%d ranks have joined, %d have not", f.joined, f.not_joined);
    if (bad)
        fprintf(stderr, "allocation %ld of rank %d%s\n", nth, victim, onwards ? " and all after it" : "");
    *count = f.count;
    return bad != 0;
}

static void test_failing_allocations(void **state)
{
    (void)state;
    const char *only = getenv("GCT_NTH");       /* this one alone */
    bool simulated = gct_simulated(&(gct_spec){ .ranks = 2 });
    uint64_t seed = gct_seed();
    int bad = 0;
    for (int way = 0; way < 4; way++) {
        long all, ignored, step = simulated ? 1 : 17;
        assert_int_equal(0, one_failing(way / 2, false, 0, seed, &all));
        assert_true(all > 50);
        for (long nth = only ? atol(only) : 1; nth <= all; nth += only ? all : step)
            bad += one_failing(way / 2, way % 2, nth, seed, &ignored);
    }
    assert_int_equal(0, bad);
}

/* ---- what a world tells ---------------------------------------------------------------------------------------------- */

typedef struct log_seen { atomic_int lines, wrong; } log_seen;

static void see_log(void *user, int level, const char *line)
{
    log_seen *seen = user;
    seen->lines++;
    if (level < GC_LOG_ERROR || level > GC_LOG_DEBUG || !line[0] || strchr(line, '\n'))
        seen->wrong++;
}

static void log_all(gc_options *o, int rank, void *arg)
{
    (void)rank;
    o->log = see_log;
    o->log_user = arg;
    o->debug = "all";
}

static void test_log(void **state)
{
    (void)state;
    log_seen seen = { 0, 0 };
    assert_int_equal(0, gct_job(&(gct_spec){ .ranks = 3, .options = log_all }, say_hello, &seen));
    assert_true(seen.lines > 0);
    assert_int_equal(0, seen.wrong);
    seen.lines = 0;                     /* without debug, what fails is told still */
    gc_options options = GRIDCOMM_OPTIONS_INIT;
    gc_comm *world;
    options.log = see_log;
    options.log_user = &seen;
    options.progress = "nonsense";
    assert_int_equal(GC_ERR_CONFIG, gc_init(&world, &options));
    assert_true(seen.lines > 0 && seen.wrong == 0);
}

static int tells_stats(gc_comm *world, int rank, int size, void *arg)
{
    enum { N = 10, BYTES = 5000 };
    struct { gc_stats stats; uint8_t more[16]; } before, after;
    uint8_t *buf = gct_buffer(BYTES);
    (void)arg;
    memset(&before, 0x77, sizeof before);
    memset(&after, 0x77, sizeof after);
    before.stats.size = sizeof before;          /* of a newer caller: what this library does not know stays */
    after.stats.size = sizeof after.stats;
    gct_ok(gc_barrier(world));
    gct_ok(gc_get_stats(world, &before.stats));
    gct_require(before.stats.size == sizeof(gc_stats) && before.more[0] == 0x77 && before.more[15] == 0x77, "overrun");
    for (int i = 0; i < N; i++)
        gct_ok(gc_sendrecv(world, buf, BYTES / 2, (rank + 1) % size, 1,
                           buf + BYTES / 2, BYTES / 2, (rank + size - 1) % size, 1, NULL));
    gct_ok(gc_get_stats(world, &after.stats));
    const gc_stats *a = &before.stats, *b = &after.stats;
    gct_require(b->messages == a->messages + N && b->bytes == a->bytes + N * (BYTES / 2), "%d messages: %llu, %llu bytes", N,
                (unsigned long long)(b->messages - a->messages), (unsigned long long)(b->bytes - a->bytes));
    gct_require(b->memory > 0 && b->memory_peak >= b->memory && b->memory < 8 << 20, "%zu bytes, at most %zu",
                b->memory, b->memory_peak);
    gct_require(size == 1 || (b->connections >= 1 && b->connections < size), "%d connections", b->connections);
    gct_require(size == 1 || b->system_calls > a->system_calls, "%llu system calls", (unsigned long long)b->system_calls);
    gct_require(b->wan_messages == 0 && b->wan_bytes == 0 && b->relayed_bytes == 0, "not counted yet");
    memset(&after, 0x77, sizeof after);
    after.stats.size = offsetof(gc_stats, wan_messages);        /* of an older one */
    gct_ok(gc_get_stats(world, &after.stats));
    gct_require(after.stats.messages >= before.stats.messages && after.stats.wan_messages == UINT64_C(0x7777777777777777),
                "overrun");
    after.stats.size = 1;
    gct_require(gc_get_stats(world, &after.stats) == GC_ERR_ARG && gc_get_stats(world, NULL) == GC_ERR_ARG &&
                gc_get_stats(NULL, &after.stats) == GC_ERR_ARG, "arguments");
    gct_ok(gc_barrier(world));
    gct_require(!gct_buffer_free(buf), "canaries");
    return 0;
}

static int tells_last_error(gc_comm *world, int rank, int size, void *arg)
{
    gc_comm *other;
    gc_status status = { .tag = 77 };
    char text[TEXT] = "x", tiny[4] = "abc";
    (void)arg;
    gct_require(gc_last_error(world, &status, text, sizeof text) == GC_OK && status.error == GC_OK && !text[0],
                "'%s' at first", text);
    gct_ok(gc_comm_dup(world, &other));
    gct_require(gc_send(world, NULL, 1, rank, 0) == GC_ERR_ARG, "no buffer");
    gct_require(gc_last_error(world, &status, text, sizeof text) == GC_ERR_ARG && status.error == GC_ERR_ARG, "a wrong argument");
    gct_require(gc_last_error(other, NULL, NULL, 0) == GC_OK, "of another communicator");
    gct_ok(gc_barrier(world));
    gct_ok(gc_barrier(other));
    gct_require(gc_last_error(world, NULL, tiny, 3) == GC_ERR_ARG && strlen(tiny) == 2 && !strncmp(tiny, text, 2),
                "'%s', cut", tiny);
    gct_require(gc_last_error(world, NULL, tiny, 0) == GC_ERR_ARG && strlen(tiny) == 2, "no room");
    gct_require(gc_last_error(NULL, &status, text, sizeof text) == GC_ERR_ARG, "no communicator");
    gct_ok(gc_send(other, text, 20, rank, 1));
    gct_require(gc_recv(other, tiny, 2, rank, 1, &status) == GC_ERR_TRUNCATE, "truncated");
    gct_require(gc_last_error(other, NULL, text, sizeof text) == GC_ERR_TRUNCATE &&
                gc_last_error(world, NULL, NULL, 0) == GC_ERR_ARG &&
                strlen(text) > 5 && size > 0, "'%s'", text);
    return 0;
}

static void test_tells(void **state)
{
    (void)state;
    static const int ranks[] = { 1, 2, 3, 5 };
    for (int i = 0; i < 4; i++) {
        assert_int_equal(0, gct_job(&(gct_spec){ .ranks = ranks[i] }, tells_stats, NULL));
        assert_int_equal(0, gct_job(&(gct_spec){ .ranks = ranks[i] }, tells_last_error, NULL));
    }
}

static void test_texts(void **state)
{
    (void)state;
    assert_int_equal(GRIDCOMM_VERSION_MAJOR * 10000 + GRIDCOMM_VERSION_MINOR * 100 + GRIDCOMM_VERSION_PATCH, gc_version());
    for (int a = GC_ERR_UNSUPPORTED; a <= GC_OK; a++) {
        assert_true(strlen(gc_strerror(a)) > 3);
        for (int b = GC_ERR_UNSUPPORTED - 1; b < a; b++)        /* all differ, also from that of no error code */
            assert_string_not_equal(gc_strerror(a), gc_strerror(b));
    }
    static const int none[] = { 1, 1000, INT32_MAX, GC_ERR_UNSUPPORTED - 1, INT32_MIN };
    for (int i = 0; i < 5; i++)
        assert_string_equal(gc_strerror(1), gc_strerror(none[i]));
}

/* ---- the program waits itself ------------------------------------------------------------------------------------- */

/* A long message each way, without a call that blocks; the simulated descriptor is nothing for poll(). */
static int polls(gc_comm *world, int rank, int size, void *arg)
{
    enum { BYTES = 3000000, TIMEOUT_MS = 20000 };
    bool simulated = *(const bool *)arg;
    uint8_t *out = gct_buffer(BYTES), *in = gct_buffer(BYTES);
    gc_request *request[2];
    int done = 0;
    gct_require(gc_pollfd(world) >= 0 && gc_pollfd(NULL) == GC_ERR_ARG && gc_progress(NULL) == GC_ERR_ARG, "pollfd");
    gct_fill(out, BYTES, rank, 1);
    gct_ok(gc_irecv(world, in, BYTES, (rank + size - 1) % size, 1, &request[0]));
    gct_ok(gc_isend(world, out, BYTES, (rank + 1) % size, 1, &request[1]));
    while (!done) {
        struct pollfd at = { .fd = gc_pollfd(world), .events = POLLIN };
        gct_require(simulated || poll(&at, 1, TIMEOUT_MS) > 0, "poll: nothing for 20 s");
        gct_require(gc_progress(world) >= 0, "progress");
        gct_ok(gc_testall(2, request, &done, NULL));
    }
    gct_require(!gct_check(in, BYTES, (rank + size - 1) % size, 1) && !gct_buffer_free(in) && !gct_buffer_free(out), "data");
    return 0;
}

static void test_pollfd(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 4; ranks++) {
        gct_spec spec = { .ranks = ranks };
        bool simulated = gct_simulated(&spec);
        assert_int_equal(0, gct_job(&spec, polls, &simulated));
    }
}

/* ---- two jobs at once in every process: real sockets only --------------------------------------------------------- */

static int in_two_jobs(gc_comm *world, int rank, int size, void *arg)
{
    gc_comm *second, *alone;
    char root[32], text[TEXT] = "";
    int reversed = size - 1 - rank;
    snprintf(root, sizeof root, "127.0.0.1:%d", *(const int *)arg);
    gc_options options = GRIDCOMM_OPTIONS_INIT;
    options.rank = reversed;
    options.ranks = size;
    options.root = root;
    options.key = "of the second job";
    options.error_text = text;
    options.error_text_size = sizeof text;
    int code = gc_init(&second, &options);
    gct_require(code == GC_OK, "%s: %s", gc_strerror(code), text);
    gct_ok(gc_init(&alone, NULL));
    for (int i = 0; i < 5; i++)
        if (say_hello(world, rank, size, NULL) || say_hello(second, reversed, size, NULL) || use_alone(alone))
            return 1;
    gc_request *request[2];             /* one of each under way at once, but no wait drives both */
    int mine = rank, of_world = -1, of_second = -1, index, done;
    gct_ok(gc_iallreduce(world, &mine, &of_world, 1, GC_INT32, GC_SUM, &request[0]));
    gct_ok(gc_iallreduce(second, &mine, &of_second, 1, GC_INT32, GC_MAX, &request[1]));
    gct_require(gc_testall(2, request, &done, NULL) == GC_ERR_ARG && gc_testany(2, request, &index, &done, NULL) == GC_ERR_ARG &&
                gc_waitany(2, request, &index, NULL) == GC_ERR_ARG && gc_waitall(2, request, NULL) == GC_ERR_ARG, "two worlds");
    gct_ok(gc_wait(&request[1], NULL));
    gct_ok(gc_wait(&request[0], NULL));
    gct_require(of_world == size * (size - 1) / 2 && of_second == size - 1, "%d %d", of_world, of_second);
    gct_ok(gc_finalize(alone));
    gct_ok(gc_finalize(second));
    return say_hello(world, rank, size, NULL);
}

static void test_two_jobs(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        int port = free_port();
        assert_true(port > 0);
        assert_int_equal(0, gct_job(&(gct_spec){ .ranks = 2 + i }, in_two_jobs, &port));
    }
}

static void forget_environment(void)
{
    static const char *const launcher[] = { "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "PMI_RANK", "PMI_SIZE",
                                           "PMI_ID", "PMI_PORT", "SLURM_STEP_NUM_TASKS" };
    char name[TEXT];
    for (size_t i = 0; i < sizeof bad_values / sizeof bad_values[0]; i++) {
        snprintf(name, sizeof name, "GRIDCOMM_%s", bad_values[i].name);
        unsetenv(name);
    }
    unsetenv("GRIDCOMM_ROOT");
    unsetenv("GRIDCOMM_KEY");
    unsetenv("GRIDCOMM_DEBUG");
    for (size_t i = 0; i < sizeof launcher / sizeof launcher[0]; i++)
        unsetenv(launcher[i]);
}

int main(void)
{
    const struct CMUnitTest anywhere[] = {
        cmocka_unit_test(test_alone), cmocka_unit_test(test_other_sizes), cmocka_unit_test(test_again_and_again),
        cmocka_unit_test(test_precedence), cmocka_unit_test(test_bad_values), cmocka_unit_test(test_bad_options),
        cmocka_unit_test(test_incomplete), cmocka_unit_test(test_abort), cmocka_unit_test(test_abort_at_the_end),
        cmocka_unit_test(test_all_memory_is_hooked), cmocka_unit_test(test_failing_allocations), cmocka_unit_test(test_log),
        cmocka_unit_test(test_tells), cmocka_unit_test(test_texts), cmocka_unit_test(test_pollfd),
    };
    const struct CMUnitTest real[] = { cmocka_unit_test(test_two_jobs) };
    forget_environment();
    int failed = cmocka_run_group_tests_name("life", anywhere, NULL, NULL);
    if (!gct_simulated(&(gct_spec){ .on = GCT_ON_REAL, .ranks = 2 }))
        failed += cmocka_run_group_tests_name("life, real sockets", real, NULL, NULL);
    return failed;
}
