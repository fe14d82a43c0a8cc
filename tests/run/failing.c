/* failing.c: the ranks of test_failure.sh, to whom things happen.
 * SPDX-License-Identifier: MIT
 *
 * usage: failing ROLE DIRECTORY [NUMBER [MARK]]
 *   start        joins, passes a barrier, leaves
 *   loop         allreduces, checked, until DIRECTORY/stop is there; then every pair exchanges a message. Rank NUMBER
 *                exits without a word in the middle
 *   windows      ranks 0 and 2 fill the windows of rank 1 while it is stopped
 *   first        rank 0 sends its first message to rank 1 while that is stopped
 *   compute      rank 2 computes for NUMBER s while rank 6 dies
 *   connect      rank 2 computes for NUMBER s while others connect to it
 *   poor         rank 1 has no descriptor more than after gc_init, for NUMBER s or, if that is not positive, for good
 *   abort        rank 2 aborts, the others wait in various calls
 *
 * What a rank meets is one line: "met CODE fault RANK at MS: TEXT", MS of the clock that `date` shows. The script is
 * told of stages by lines too, and answers with files in DIRECTORY. Exit status: 0, 2 if gc_init failed, 3 if a call
 * failed, 4 if data is wrong or a later call says something else.
 */
#define _POSIX_C_SOURCE 200809L
#include "gridcomm.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_REFUSED = 2, EXIT_MET = 3, EXIT_WRONG = 4,
       LIFE_S = 200,                    /* no rank outlives the test, whatever happens */
       LOOP_READY = 50, LOOP_LEAVES = 200, LOOP_COUNT_MAX = 20000,
       SHORTS = 1000, SHORT_BYTES = 1000, LONGS = 4, LONG_BYTES = 3000001,  /* far more than 64 credits */
       VICTIM = 6, BUSY = 2, ABORT_CODE = 42 };

typedef struct part {
    gc_comm    *world;
    int         rank, size, number;
    const char *dir;
} part;

static const char *code_name(int code)
{
    static const char *const name[] = { "GC_OK", "GC_ERR_ARG", "GC_ERR_NOMEM", "GC_ERR_SYSTEM", "GC_ERR_TIMEOUT",
        "GC_ERR_UNREACHABLE", "GC_ERR_AUTH", "GC_ERR_PROTOCOL", "GC_ERR_PEER", "GC_ERR_ABORTED", "GC_ERR_TRUNCATE",
        "GC_ERR_MISMATCH", "GC_ERR_CANCELLED", "GC_ERR_PENDING", "GC_ERR_CONFIG", "GC_ERR_UNSUPPORTED" };
    return code <= 0 && code >= GC_ERR_UNSUPPORTED ? name[-code] : "unknown";
}

static long long now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

static bool is_there(const part *p, const char *file)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", p->dir, file);
    return access(path, F_OK) == 0;
}

static void pause_ms(long ms)
{
    struct timespec t = { ms / 1000, ms % 1000 * 1000000 };
    while (nanosleep(&t, &t)) { }
}

static void until_there(const part *p, const char *file)
{
    while (!is_there(p, file)) pause_ms(5);
}

static int met(gc_comm *comm, int code)
{
    char text[256] = "";
    gc_status status = { .fault_rank = -1 };
    gc_last_error(comm, &status, text, sizeof text);
    printf("met %s fault %d at %lld: %s\n", code_name(code), status.fault_rank, now_ms(), text);
    return EXIT_MET;
}

static int wrong(const char *what)
{
    printf("wrong: %s\n", what);
    return EXIT_WRONG;
}

/* Message number k from one rank: its bytes. */
static unsigned char byte_of(int from, int k, size_t at)
{
    return (unsigned char)((size_t)from * 151 + (size_t)k * 31 + at * 7 + at / 251);
}

static unsigned char *message(int from, int k, size_t bytes)
{
    unsigned char *m = malloc(bytes);
    for (size_t i = 0; m && i < bytes; i++) m[i] = byte_of(from, k, i);
    return m;
}

static bool is_message(const unsigned char *m, int from, int k, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (m[i] != byte_of(from, k, i)) return false;
    return true;
}

/* ---- loop ---------------------------------------------------------------------------------------------------------- */

static int every_pair(const part *p)
{
    for (int d = 1; d < p->size; d++) {
        int to = (p->rank + d) % p->size, from = (p->rank + p->size - d) % p->size, got = -1;
        int err = gc_sendrecv(p->world, &p->rank, sizeof p->rank, to, d, &got, sizeof got, from, d, NULL);
        if (err) return met(p->world, err);
        if (got != from) return wrong("a message of a pair");
    }
    return 0;
}

/* Element 0 counts the ranks that want to stop, so that all stop in the same turn. */
static int loop_on(const part *p, gc_comm *comm)
{
    static const size_t count[] = { 1, 7, 1000, LOOP_COUNT_MAX };
    uint32_t *in = malloc(LOOP_COUNT_MAX * sizeof *in), *out = malloc(LOOP_COUNT_MAX * sizeof *out);
    uint32_t size = (uint32_t)gc_size(comm), turn = 0;
    long long longest = 0;
    int err = in && out ? GC_OK : GC_ERR_NOMEM;
    bool right = true, stop = false;
    for (; !err && right && !stop; turn++) {
        size_t n = count[turn % 4];
        long long begun = now_ms();
        in[0] = is_there(p, "stop");
        for (uint32_t i = 1; i < n; i++) in[i] = (uint32_t)gc_rank(comm) + turn * i;
        if (turn == LOOP_LEAVES && p->number == p->rank) {
            printf("leaves at %lld\n", begun);
            _exit(0);
        }
        err = gc_allreduce(comm, in, out, n, GC_UINT32, GC_SUM);
        for (uint32_t i = 1; !err && right && i < n; i++) right = out[i] == size * (turn * i) + size * (size - 1) / 2;
        stop = !err && out[0] > 0;
        if (now_ms() - begun > longest) longest = now_ms() - begun;
        if (turn == LOOP_READY) printf("ready\n");
    }
    printf("%u turns, the longest %lld ms\n", (unsigned)turn, longest);
    free(in);
    free(out);
    return !right ? wrong("a sum") : err ? met(comm, err) : 0;
}

/* After a death: the next collective fails at once, with the same words. */
static int loop(const part *p)
{
    int status = loop_on(p, p->world);
    if (!status) return every_pair(p);
    int first = gc_last_error(p->world, NULL, NULL, 0), again = gc_barrier(p->world);
    return again == first ? status : wrong("a later barrier says something else");
}

static int start(const part *p)
{
    int err = gc_barrier(p->world);
    return err ? met(p->world, err) : 0;
}

/* ---- stopped ------------------------------------------------------------------------------------------------------- */

static size_t window_bytes(int k) { return k < SHORTS ? SHORT_BYTES : LONG_BYTES; }

/* Ranks 0 and 2 go on with each other, until rank 0 has seen the script's word. */
static int ping_pong(const part *p)
{
    int err = GC_OK, end = 0, other = 2 - p->rank;
    while (!err && !end) {
        int mine = p->rank == 0 && is_there(p, "told"), yours = 0;
        err = gc_sendrecv(p->world, &mine, sizeof mine, other, 0, &yours, sizeof yours, other, 0, NULL);
        end = mine + yours;
        if (p->rank == 0) pause_ms(5);
    }
    return err;
}

static int windows_fill(const part *p)
{
    static gc_request *request[SHORTS + LONGS];
    static unsigned char *m[SHORTS + LONGS];
    int err = GC_OK, status = 0;
    for (int k = 0; k < SHORTS + LONGS && !err; k++) {
        m[k] = message(p->rank, k, window_bytes(k));
        err = m[k] ? gc_isend(p->world, m[k], window_bytes(k), 1, k, &request[k]) : GC_ERR_NOMEM;
    }
    if (!err) {
        err = gc_wait_for(&request[SHORTS - 1], 0.5, NULL);
        if (err == GC_OK) status = wrong("the windows are not full");
        if (err == GC_ERR_TIMEOUT) err = GC_OK;
        printf("full\n");
    }
    if (!err) err = ping_pong(p);
    if (!err) err = gc_waitall(SHORTS + LONGS, request, NULL);
    if (!err) err = gc_barrier(p->world);
    for (int k = 0; k < SHORTS + LONGS; k++) free(m[k]);
    return status ? status : err ? met(p->world, err) : 0;
}

static int windows_drain(const part *p)
{
    unsigned char *m = malloc(LONG_BYTES);
    int err = m ? GC_OK : GC_ERR_NOMEM;
    bool right = true;
    until_there(p, "go");                       /* stopped before that, and continued long after */
    for (int k = 0; k < SHORTS + LONGS && !err && right; k++)
        for (int from = 0; from <= 2 && !err && right; from += 2) {
            gc_status status;
            err = gc_recv(p->world, m, LONG_BYTES, from, GC_ANY_TAG, &status);
            right = err || (status.tag == k && status.bytes == window_bytes(k) && is_message(m, from, k, status.bytes));
        }
    free(m);
    if (!err && right) err = gc_barrier(p->world);
    return !right ? wrong("a message of a full window") : err ? met(p->world, err) : 0;
}

static int windows(const part *p)
{
    int status = every_pair(p);                 /* the links are there */
    if (status) return status;
    printf("ready\n");
    if (p->rank == 1) return windows_drain(p);
    until_there(p, "stopped");
    return windows_fill(p);
}

static int first(const part *p)
{
    int got = -1, err = GC_OK;
    printf("ready\n");
    until_there(p, p->rank == 1 ? "go" : "stopped");
    if (p->rank == 0) {
        err = gc_send(p->world, &p->rank, sizeof p->rank, 1, 0);
        if (!err) printf("sent\n");
    } else if (p->rank == 1) {
        err = gc_recv(p->world, &got, sizeof got, 0, 0, NULL);
    }
    if (!err && p->rank == 1 && got != 0) return wrong("the first message");
    if (!err) err = gc_barrier(p->world);
    return err ? met(p->world, err) : 0;
}

/* ---- computing ----------------------------------------------------------------------------------------------------- */

/* Works, and looks at nobody, for so many seconds: one part in ten on the processor, which others need too. */
static void compute(int seconds)
{
    long long end = now_ms() + seconds * 1000LL;
    volatile double x = 1;
    while (now_ms() < end) {
        for (int i = 0; i < 1000000; i++) x = x * 1.0000001 + 1e-9;
        pause_ms(50);
    }
    printf("computed at %lld\n", now_ms());
}

static int compute_and_loop(const part *p)
{
    gc_comm *others = NULL;
    int value = 0, err = gc_comm_split(p->world, p->rank == BUSY, p->rank, &others), gone[VICTIM + 2], n, known = 0;
    if (err) return met(p->world, err);
    if (p->rank == BUSY) {
        printf("ready\n");
        compute(p->number);
        err = gc_recv(p->world, &value, sizeof value, GC_ANY_SOURCE, 0, NULL);
        return met(p->world, err);
    }
    int status = loop_on(p, others);
    n = gc_comm_failed(p->world, gone, VICTIM + 2);         /* those who left in haste, too */
    for (int i = 0; i < n && i < VICTIM + 2; i++) known |= gone[i] == VICTIM;
    if (!known) return wrong("the list of the dead");
    if (gc_send(p->world, &value, sizeof value, VICTIM, 0) != GC_ERR_PEER) return wrong("a send to the dead");
    if (gc_recv(p->world, &value, sizeof value, VICTIM, 0, NULL) != GC_ERR_PEER) return wrong("a receive from the dead");
    if (gc_barrier(p->world) != GC_ERR_PEER) return wrong("a barrier with the dead");
    return status;
}

static int connections(const part *p)
{
    gc_stats stats = { .size = sizeof stats };
    gc_get_stats(p->world, &stats);
    return stats.connections;
}

/* Ranks 0 and 3 meet the computing rank for the first time: the link comes up at once. */
static int connect_to(const part *p)
{
    unsigned char *m = message(p->rank, 1, LONG_BYTES);
    int err = m ? GC_OK : GC_ERR_NOMEM, before = connections(p), moved = 0;
    gc_request *r = NULL;
    until_there(p, "go");
    long long begun = now_ms();
    if (!err) err = gc_isend(p->world, &p->rank, sizeof p->rank, BUSY, 0, &r);
    while (!err && moved >= 0 && connections(p) == before && now_ms() < begun + p->number * 1000LL) {
        moved = gc_progress(p->world);
        pause_ms(1);
    }
    printf("connected after %lld ms, connections %d, then %d\n", now_ms() - begun, before, connections(p));
    if (!err) err = gc_wait(&r, NULL);
    if (!err) err = gc_ssend(p->world, m, LONG_BYTES, BUSY, 1);
    if (!err) printf("received after %lld ms\n", now_ms() - begun);
    free(m);
    return err ? met(p->world, err) : 0;
}

static int connect_from(const part *p)
{
    unsigned char *m = malloc(LONG_BYTES);
    int err = m ? GC_OK : GC_ERR_NOMEM, got = -1;
    bool right = true;
    until_there(p, "go");
    compute(p->number);
    for (int from = 0; from <= 3 && !err && right; from += 3) {
        err = gc_recv(p->world, &got, sizeof got, from, 0, NULL);
        if (!err) err = gc_recv(p->world, m, LONG_BYTES, from, 1, NULL);
        right = err || (got == from && is_message(m, from, 1, LONG_BYTES));
    }
    free(m);
    return !right ? wrong("a message on a new link") : err ? met(p->world, err) : 0;
}

static int connecting(const part *p)
{
    int status = p->rank == BUSY ? connect_from(p) : p->rank == 0 || p->rank == 3 ? connect_to(p) : 0;
    if (p->rank == 1) until_there(p, "told");   /* else its barrier opens a link of its own, which counts too */
    int err = status ? GC_OK : gc_barrier(p->world);
    return err ? met(p->world, err) : status;
}

/* ---- out of descriptors -------------------------------------------------------------------------------------------- */

static struct rlimit before;

static void *relent(void *of_part)
{
    const part *p = of_part;
    pause_ms(p->number * 1000L);
    if (setrlimit(RLIMIT_NOFILE, &before) == 0) printf("has more at %lld\n", now_ms());
    return NULL;
}

static bool spend_all(part *p)
{
    int next = open("/dev/null", O_RDONLY);             /* the lowest that is free */
    struct rlimit none;
    pthread_t thread;
    if (next < 0 || getrlimit(RLIMIT_NOFILE, &before) || close(next)) return false;
    none = before;
    none.rlim_cur = (rlim_t)next;
    return setrlimit(RLIMIT_NOFILE, &none) == 0 && open("/dev/null", O_RDONLY) < 0
           && (p->number <= 0 || (pthread_create(&thread, NULL, relent, p) == 0 && pthread_detach(thread) == 0));
}

/* First messages, with the poor one last. */
static int poor(part *p)
{
    int err = GC_OK, got = -1;
    if (p->rank == 1 && !spend_all(p)) return wrong("the limit");
    printf("ready\n");
    until_there(p, "go");
    for (int poor_one = 0; poor_one < 2 && !err; poor_one++)
        for (int d = 0; d < p->size && !err; d++) {
            int other = (2 * p->size - p->rank + d) % p->size;          /* in each turn the other one's other is this one */
            if (other == p->rank || (other == 1 || p->rank == 1) != poor_one) continue;
            err = gc_sendrecv(p->world, &p->rank, sizeof p->rank, other, 0, &got, sizeof got, other, 0, NULL);
            if (!err && got != other) return wrong("a first message");
            if (err && !poor_one) return wrong("a message that has nothing to do with the poor one");
        }
    if (!err) err = gc_barrier(p->world);
    return err ? met(p->world, err) : 0;
}

/* ---- abort --------------------------------------------------------------------------------------------------------- */

static int aborting(part *p)
{
    static unsigned char big[LONG_BYTES];
    int err = gc_barrier(p->world), got;
    if (err) return met(p->world, err);
    printf("ready\n");
    switch (p->rank) {
    case 0:  err = gc_recv(p->world, &got, sizeof got, 1, 0, NULL); break;
    case 1:  err = gc_barrier(p->world); break;
    case BUSY:
        until_there(p, "go");
        printf("aborts at %lld\n", now_ms());
        err = gc_abort(p->world, ABORT_CODE);
        if (!err) err = gc_barrier(p->world);
        break;
    case 3:  err = gc_ssend(p->world, big, sizeof big, 1, 0); break;
    case 4:  err = gc_probe(p->world, GC_ANY_SOURCE, 0, NULL); break;
    default:
        err = gc_finalize(p->world);
        p->world = NULL;
        printf("met %s fault -1 at %lld: in gc_finalize\n", code_name(err), now_ms());
        return EXIT_MET;
    }
    return met(p->world, err);
}

/* ---- what all do --------------------------------------------------------------------------------------------------- */

static int act(part *p, const char *role)
{
    return strcmp(role, "start") == 0 ? start(p) : strcmp(role, "loop") == 0 ? loop(p)
         : strcmp(role, "windows") == 0 ? windows(p) : strcmp(role, "first") == 0 ? first(p)
         : strcmp(role, "compute") == 0 ? compute_and_loop(p) : strcmp(role, "connect") == 0 ? connecting(p)
         : strcmp(role, "poor") == 0 ? poor(p) : strcmp(role, "abort") == 0 ? aborting(p) : wrong("no such role");
}

int main(int argc, char **argv)
{
    char why[256] = "";
    gc_options options = GRIDCOMM_OPTIONS_INIT;
    part p = { .number = -1 };
    options.error_text = why;
    options.error_text_size = sizeof why;
    if (argc < 3) return wrong("usage: failing ROLE DIRECTORY [NUMBER [MARK]]");
    p.dir = argv[2];
    if (argc > 3) p.number = atoi(argv[3]);
    alarm(LIFE_S);
    setvbuf(stdout, NULL, _IOLBF, 0);

    long long begun = now_ms();
    int err = gc_init(&p.world, &options);
    if (err) {
        printf("refused %s after %lld ms: %s\n", code_name(err), now_ms() - begun, why);
        return EXIT_REFUSED;
    }
    p.rank = gc_rank(p.world);
    p.size = gc_size(p.world);
    printf("pid %ld\n", (long)getpid());
    int status = act(&p, argv[1]), left = p.world ? gc_finalize(p.world) : GC_OK;
    if (!status && left) printf("met %s fault -1 at %lld: in gc_finalize\n", code_name(left), now_ms());
    if (status == EXIT_MET && p.world && left != GC_ERR_PEER && left != GC_ERR_ABORTED)
        status = wrong("gc_finalize of a broken job");
    return status ? status : left ? EXIT_MET : 0;
}
