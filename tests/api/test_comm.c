/* test_comm.c: communicators: made, nested, freed, and kept apart from each other.
 * SPDX-License-Identifier: MIT
 */
#include "../gct.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { RANKS_MAX = 16 };
static const int job_sizes[] = { 1, 2, 3, 5, 8, 11, 16 };

static void run(int ranks, gct_main *main, void *arg)
{
    assert_int_equal(0, gct_job(&(gct_spec){ .ranks = ranks, .time_limit = 100 }, main, arg));
}

static void run_all_sizes(gct_main *main)
{
    for (size_t i = 0; i < sizeof job_sizes / sizeof job_sizes[0]; i++)
        run(job_sizes[i], main, NULL);
}

/* ---- is this the communicator of these world ranks, and does everything work in it? ----------------------------- */

static int exercise_ring(gc_comm *comm, int salt)
{
    int rank = gc_rank(comm), size = gc_size(comm), next = (rank + 1) % size, before = (rank + size - 1) % size;
    size_t bytes = 700 + (size_t)salt % 13;
    uint8_t *out = gct_buffer(bytes), *in = gct_buffer(bytes);
    gc_status status;
    gct_fill(out, bytes, rank, salt);
    gct_ok(gc_sendrecv(comm, out, bytes, next, 5, in, bytes, before, GC_ANY_TAG, &status));
    gct_require(status.source == before && status.tag == 5 && status.bytes == bytes, "from %d tag %d", status.source, status.tag);
    gct_require(!gct_check(in, bytes, before, salt) && !gct_buffer_free(in) && !gct_buffer_free(out), "ring %d", salt);
    return 0;
}

static int exercise_collectives(gc_comm *comm, int salt)
{
    int rank = gc_rank(comm), size = gc_size(comm), root = salt % size;
    size_t bytes = 30 + (size_t)salt % 5;
    uint8_t *mine = gct_buffer(bytes), *all = gct_buffer(bytes * (size_t)size);
    gct_fill(mine, bytes, rank, salt);
    gct_ok(gc_allgather(comm, mine, bytes, all));
    for (int i = 0; i < size; i++)
        gct_require(!gct_check(all + (size_t)i * bytes, bytes, i, salt), "block %d", i);
    gct_ok(gc_bcast(comm, mine, bytes, root));
    gct_require(!gct_check(mine, bytes, root, salt), "bcast");
    int64_t one = rank + 1, sum = 0;
    gct_ok(gc_allreduce(comm, &one, &sum, 1, GC_INT64, GC_SUM));
    gct_require(sum == (int64_t)size * (size + 1) / 2, "sum %lld", (long long)sum);
    gct_require(!gct_buffer_free(mine) && !gct_buffer_free(all), "canaries");
    return 0;
}

static int exercise(gc_comm *comm, int salt)
{
    return exercise_ring(comm, salt) || exercise_collectives(comm, salt);
}

/* comm has exactly the members want[0 .. n - 1], ranks of `of`, in that order. */
static int is_made_of(gc_comm *comm, gc_comm *of, const int want[], int n)
{
    int ranks[RANKS_MAX], back[RANKS_MAX], there[RANKS_MAX];
    gct_require(comm, "no communicator");
    gct_require(gc_size(comm) == n, "size %d, not %d", gc_size(comm), n);
    gct_require(want[gc_rank(comm)] == gc_rank(of), "rank %d", gc_rank(comm));
    for (int i = 0; i < n; i++)
        ranks[i] = i;
    gct_ok(gc_comm_translate(comm, ranks, n, of, back));
    gct_require(!memcmp(back, want, (size_t)n * sizeof *want), "members");
    gct_ok(gc_comm_translate(of, want, n, comm, there));
    gct_require(!memcmp(there, ranks, (size_t)n * sizeof *ranks), "members, the other way");
    return 0;
}

/* ---- dup ------------------------------------------------------------------------------------------------------------ */

static int duplicates(gc_comm *world, int rank, int size, void *arg)
{
    (void)arg;
    int all[RANKS_MAX];
    gc_comm *one, *two, *three;
    for (int i = 0; i < size; i++)
        all[i] = i;
    gct_ok(gc_comm_dup(world, &one));
    gct_ok(gc_comm_dup(one, &two));
    if (is_made_of(one, world, all, size) || is_made_of(two, one, all, size) || exercise(one, 1) || exercise(two, 2))
        return 1;
    gct_require(gc_rank(two) == rank, "rank %d", gc_rank(two));
    gct_ok(gc_comm_free(one));                  /* its copy lives on */
    gct_ok(gc_comm_dup(two, &three));
    if (exercise(two, 3) || exercise(world, 4) || exercise(three, 5))
        return 1;
    gct_ok(gc_comm_free(three));
    return 0;                                   /* two: freed by gc_finalize */
}

static void test_dup(void **state)
{
    (void)state;
    run_all_sizes(duplicates);
}

/* ---- split ---------------------------------------------------------------------------------------------------------- */

typedef struct choice { int color, key; } choice;

static choice chosen(int round, int rank, int size)
{
    switch (round) {
    case 0: return (choice){ 0, 0 };                                            /* all, in order */
    case 1: return (choice){ 7, -rank };                                        /* all, reversed by negative keys */
    case 2: return (choice){ rank % 2, 0 };
    case 3: return (choice){ rank % 3, size - rank };
    case 4: return (choice){ rank, 5 };                                         /* one rank each */
    case 5: return (choice){ rank % 3 == 1 ? GC_UNDEFINED : rank % 2, rank * 7 % 5 };
    case 6: return (choice){ rank % 2 ? INT_MAX : 0, rank % 4 < 2 ? INT_MIN : INT_MAX };
    case 7: return (choice){ GC_UNDEFINED, 0 };
    default: return (choice){ rank < size / 2, rank % 2 ? -1 : 1 };             /* blocks, odd ranks first */
    }
}
enum { SPLIT_ROUNDS = 9 };

/* Its members by counting, not by sorting: the place of a rank is the number of those that come before it. */
static int expected(int round, int rank, int size, int members[])
{
    int n = 0, color = chosen(round, rank, size).color;
    for (int i = 0; i < size; i++) {
        choice his = chosen(round, i, size);
        int place = 0;
        if (his.color != color)
            continue;
        n++;
        for (int j = 0; j < size; j++) {
            choice other = chosen(round, j, size);
            place += other.color == color && (other.key < his.key || (other.key == his.key && j < i));
        }
        members[place] = i;
    }
    return n;
}

static int splits(gc_comm *world, int rank, int size, void *arg)
{
    (void)arg;
    gc_comm *kept[SPLIT_ROUNDS] = { NULL };
    for (int round = 0; round < SPLIT_ROUNDS; round++) {
        choice mine = chosen(round, rank, size);
        int members[RANKS_MAX], n = expected(round, rank, size, members);
        gct_ok(gc_comm_split(world, mine.color, mine.key, &kept[round]));
        if (mine.color == GC_UNDEFINED) {
            gct_require(!kept[round], "a communicator for GC_UNDEFINED");
            continue;
        }
        if (is_made_of(kept[round], world, members, n) || exercise(kept[round], round))
            return 1;
    }
    for (int round = SPLIT_ROUNDS - 1; round >= 0; round--)                     /* all of them at once, then the end */
        if (kept[round] && exercise(kept[round], 100 + round))
            return 1;
    for (int round = 0; round < SPLIT_ROUNDS; round += 2)
        if (kept[round])
            gct_ok(gc_comm_free(kept[round]));
    gc_comm *none = world;
    gct_require(gc_comm_split(world, -1, 0, &none) == GC_ERR_ARG && !none, "colour -1");
    none = world;
    gct_require(gc_comm_split(world, INT_MIN, 0, &none) == GC_ERR_ARG && !none, "the lowest colour");
    gct_require(gc_comm_split(world, 0, 0, NULL) == GC_ERR_ARG && gc_comm_dup(world, NULL) == GC_ERR_ARG, "no out");
    gct_require(gc_comm_split(NULL, 0, 0, &none) == GC_ERR_ARG && gc_comm_dup(NULL, &none) == GC_ERR_ARG, "no communicator");
    return exercise(world, 1);
}

static void test_split(void **state)
{
    (void)state;
    run_all_sizes(splits);
}

/* Halves of halves of halves, each level used while all above it live. */
static int halves(gc_comm *world, int rank, int size, void *arg)
{
    (void)arg, (void)rank, (void)size;
    gc_comm *level[8] = { world };
    int depth = 0;
    while (gc_size(level[depth]) > 1) {
        gc_comm *above = level[depth];
        gct_ok(gc_comm_split(above, gc_rank(above) < (gc_size(above) + 1) / 2, -gc_rank(above), &level[depth + 1]));
        depth++;
        if (exercise(level[depth], depth))
            return 1;
    }
    for (int i = depth; i >= 0; i--)
        if (exercise(level[i], 50 + i))
            return 1;
    for (int i = 1; i <= depth; i++)
        gct_ok(gc_comm_free(level[i]));
    return exercise(world, 9);
}

static void test_nested(void **state)
{
    (void)state;
    run_all_sizes(halves);
}

/* ---- create --------------------------------------------------------------------------------------------------------- */

static int create_and_use(gc_comm *from, const int list[], int n, int salt)
{
    gc_comm *comm = from;
    bool listed = false;
    for (int i = 0; i < n; i++)
        listed = listed || list[i] == gc_rank(from);
    gct_ok(gc_comm_create(from, list, n, &comm));
    if (!listed) {
        gct_require(!comm, "a communicator for a rank that is not listed");
        return 0;
    }
    if (is_made_of(comm, from, list, n) || exercise(comm, salt))
        return 1;
    if (salt % 2)
        gct_ok(gc_comm_free(comm));
    return 0;
}

static int creates(gc_comm *world, int rank, int size, void *arg)
{
    (void)arg;
    int list[RANKS_MAX] = { 0 }, n = 0;
    for (int i = 0; i < size; i += 2)
        list[n++] = i;
    if (create_and_use(world, list, n, 1))                                      /* every second; the others pass by */
        return 1;
    for (int i = 0; i < size; i++)
        list[i] = size - 1 - i;
    if (create_and_use(world, list, size, 2))                                   /* reversed */
        return 1;
    for (int i = 0; i < size; i++)
        list[i] = (i * 7 + 3) % size;
    if (size % 7 && create_and_use(world, list, size, 3))                       /* shuffled */
        return 1;
    if (create_and_use(world, &rank, 1, 4))                                     /* each alone, all at the same time */
        return 1;
    int low = (size + 1) / 2, first = rank < low ? 0 : low;
    for (n = 0; n < (rank < low ? low : size - low); n++)
        list[n] = first + n;
    if (create_and_use(world, list, n, 5))                                      /* two halves at the same time */
        return 1;
    for (int pair = 0; pair + 1 < size; pair++)                                 /* a chain: all but the ends are in two */
        if (rank == pair || rank == pair + 1)
            if (create_and_use(world, (int[]){ pair + 1, pair }, 2, 6 + pair))
                return 1;
    return exercise(world, 30);
}

static int creates_within(gc_comm *world, int rank, int size, void *arg)
{
    (void)arg;
    gc_comm *odd;
    int list[RANKS_MAX];
    gct_ok(gc_comm_split(world, rank % 2, -rank, &odd));
    int n = gc_size(odd);
    for (int i = 0; i < n; i++)
        list[i] = (i + 1) % n;
    return create_and_use(odd, list, n, 1) || create_and_use(odd, list, (n + 1) / 2, 2) || (size > 1 && exercise(odd, 3));
}

static void test_create(void **state)
{
    (void)state;
    run_all_sizes(creates);
    run_all_sizes(creates_within);
}

static int wrong_lists(gc_comm *world, int rank, int size, void *arg)
{
    (void)arg;
    static const struct { int list[4], n; } bad[] = { { { 0, 1, 0 }, 3 }, { { 2, 2 }, 2 }, { { 0, 3 }, 2 }, { { -1 }, 1 },
                                                      { { INT_MAX }, 1 }, { { 0 }, 0 }, { { 0 }, -1 }, { { 0, 1, 2, 0 }, 4 } };
    gc_comm *comm;
    gct_require(size == 3, "made for three");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        comm = world;
        gct_require(gc_comm_create(world, bad[i].list, bad[i].n, &comm) == GC_ERR_ARG && !comm, "list %zu", i);
        gct_require(gc_last_error(world, NULL, NULL, 0) == GC_ERR_ARG, "last error");
    }
    gct_require(gc_comm_create(world, NULL, 1, &comm) == GC_ERR_ARG && gc_comm_create(NULL, &rank, 1, &comm) == GC_ERR_ARG &&
                gc_comm_create(world, &rank, 1, NULL) == GC_ERR_ARG, "NULL");
    static const int differ[][3] = { { 0, 1, 2 }, { 0, 2, 1 }, { 2, 1, 0 } };
    for (int odd = 0; odd < 3; odd++) {         /* one of them has another order */
        comm = world;
        int code = gc_comm_create(world, differ[rank == odd ? 1 : 0], 3, &comm);
        gct_require(code == GC_ERR_MISMATCH && !comm, "odd one %d: %s", odd, gc_strerror(code));
        char text[100];
        gct_require(gc_last_error(world, NULL, text, sizeof text) == GC_ERR_MISMATCH && strlen(text) > 5, "text");
        if (create_and_use(world, differ[2], 3, odd))       /* nothing of it is left over */
            return 1;
    }
    comm = world;                               /* one of them is listed by the others and lists fewer */
    int code = gc_comm_create(world, differ[0], rank == 1 ? 2 : 3, &comm);
    gct_require(code == GC_ERR_MISMATCH && !comm, "a shorter list: %s", gc_strerror(code));
    return exercise(world, 1);
}

static void test_wrong_lists(void **state)
{
    (void)state;
    run(3, wrong_lists, NULL);
}

/* ---- collectives that do not agree ---------------------------------------------------------------------------------- */

/* One rank splits while the others duplicate. It cannot get what it waits for; nor can they, if they wait for it. */
static int disagree(gc_comm *world, int rank, int size, void *arg)
{
    int odd = *(const int *)arg;
    (void)size;
    gc_comm *comm = world;
    int code = rank == odd ? gc_comm_split(world, 0, 0, &comm) : gc_comm_dup(world, &comm);
    gct_require(code == GC_ERR_MISMATCH || (code == GC_OK && odd != 0 && rank != odd), "%s", gc_strerror(code));
    gct_require(code == GC_OK ? comm != NULL : comm == NULL, "a communicator with %s", gc_strerror(code));
    return 0;
}

static void test_disagree(void **state)
{
    (void)state;
    for (int odd = 0; odd < 3; odd++)
        assert_int_equal(0, gct_job(&(gct_spec){ .ranks = 3, .leave_anyhow = true }, disagree, &odd));
}

/* ---- free with something pending --------------------------------------------------------------------------------- */

static int frees(gc_comm *world, int rank, int size, void *arg)
{
    (void)arg;
    gc_comm *comm;
    gc_request *request;
    gc_message *message;
    char text[100];
    int value = 0;
    gct_ok(gc_comm_dup(world, &comm));
    gct_ok(gc_irecv(comm, &value, sizeof value, (rank + size - 1) % size, 3, &request));
    gct_require(gc_comm_free(comm) == GC_ERR_PENDING, "a receive is pending");
    gct_require(gc_last_error(comm, NULL, text, sizeof text) == GC_ERR_PENDING && strlen(text) > 5, "text");
    if (exercise(comm, 1))                      /* still usable */
        return 1;
    gct_require(gc_comm_free(comm) == GC_ERR_PENDING, "the receive is still pending");
    gct_ok(gc_send(comm, &rank, sizeof rank, (rank + 1) % size, 3));
    gct_ok(gc_wait(&request, NULL));
    gct_require(value == (rank + size - 1) % size, "value %d", value);

    gct_ok(gc_isend(comm, &rank, sizeof rank, (rank + 1) % size, 4, &request));
    gct_require(gc_comm_free(comm) == GC_ERR_PENDING, "a send is not collected");
    gct_ok(gc_wait(&request, NULL));
    gct_ok(gc_mprobe(comm, GC_ANY_SOURCE, 4, &message, NULL));
    gct_require(gc_comm_free(comm) == GC_ERR_PENDING, "a message is held");
    gct_ok(gc_mrecv(&message, &value, sizeof value, NULL));

    gct_ok(gc_ibarrier(comm, &request));
    gct_require(gc_comm_free(comm) == GC_ERR_PENDING, "a collective is pending");
    gct_ok(gc_wait(&request, NULL));
    gct_ok(gc_irecv(comm, &value, sizeof value, GC_ANY_SOURCE, GC_ANY_TAG, &request));
    gct_ok(gc_cancel(request));
    gct_require(gc_comm_free(comm) == GC_ERR_PENDING, "cancelled, not collected");
    gct_require(gc_wait(&request, NULL) == GC_ERR_CANCELLED, "cancelled");
    gct_ok(gc_comm_free(comm));
    gct_require(gc_comm_free(NULL) == GC_ERR_ARG && gc_comm_free(world) == GC_ERR_ARG, "not to be freed");
    return exercise(world, 2);
}

static void test_freeing(void **state)
{
    (void)state;
    run(1, frees, NULL);
    run(2, frees, NULL);
    run(5, frees, NULL);
}

/* ---- translate, failed, host, cluster ------------------------------------------------------------------------------- */

static int translates(gc_comm *world, int rank, int size, void *arg)
{
    (void)arg;
    gc_comm *odd, *pair;
    gct_ok(gc_comm_split(world, rank % 2, -rank, &odd));
    gct_ok(gc_comm_split(world, rank / 2, 0, &pair));
    int ranks[RANKS_MAX + 1], out[RANKS_MAX + 1];
    for (int i = 0; i <= size; i++)
        ranks[i] = i, out[i] = 99;
    gct_ok(gc_comm_translate(world, ranks, size, odd, out));
    for (int i = 0; i < size; i++) {
        int last = rank % 2 == (size - 1) % 2 ? size - 1 : size - 2;
        gct_require(out[i] == (i % 2 == rank % 2 ? (last - i) / 2 : -1), "rank %d is %d", i, out[i]);
    }
    gct_require(out[size] == 99, "overrun");
    int mine = gc_rank(odd), there = 99;
    gct_ok(gc_comm_translate(odd, &mine, 1, pair, &there));
    gct_require(there == gc_rank(pair), "me: %d", there);
    gct_ok(gc_comm_translate(odd, NULL, 0, pair, NULL));
    out[0] = 99;
    gct_require(gc_comm_translate(world, &ranks[size], 1, odd, out) == GC_ERR_ARG && out[0] == 99, "rank beyond");
    gct_require(gc_comm_translate(world, (int[]){ -1 }, 1, odd, out) == GC_ERR_ARG, "rank below");
    gct_require(gc_comm_translate(world, ranks, -1, odd, out) == GC_ERR_ARG &&
                gc_comm_translate(NULL, ranks, 1, odd, out) == GC_ERR_ARG &&
                gc_comm_translate(world, ranks, 1, NULL, out) == GC_ERR_ARG &&
                gc_comm_translate(world, NULL, 1, odd, out) == GC_ERR_ARG &&
                gc_comm_translate(world, ranks, 1, odd, NULL) == GC_ERR_ARG, "NULL");
    gct_require(gc_comm_failed(world, out, size) == 0 && gc_comm_failed(odd, NULL, 0) == 0, "nobody has failed");
    gct_require(gc_comm_failed(world, out, -1) == GC_ERR_ARG && gc_comm_failed(NULL, out, 1) == GC_ERR_ARG &&
                gc_comm_failed(world, NULL, 1) == GC_ERR_ARG, "arguments");
    return 0;
}

enum { SITES = 3, RANKS_PER_HOST = 2 };

static int site_of(int rank, int size) { return rank * SITES / size; }

static int host_of(int rank, int size)          /* within its site */
{
    int in_site = 0;
    while (rank - in_site > 0 && site_of(rank - in_site - 1, size) == site_of(rank, size))
        in_site++;
    return in_site / RANKS_PER_HOST;
}

static int places(gc_comm *world, int rank, int size, void *arg)
{
    bool simulated = *(const bool *)arg;
    gc_comm *back;
    gct_ok(gc_comm_split(world, 0, -rank, &back));
    for (int i = 0; i < size; i++) {
        char want[2] = { (char)('a' + site_of(i, size)), 0 };
        gct_require(gc_cluster(world, i) && !strcmp(gc_cluster(world, i), want), "cluster of %d: %s", i, gc_cluster(world, i));
        gct_require(gc_host(world, i) && gc_host(world, i)[0], "no host of %d", i);
        gct_require(!strcmp(gc_host(back, size - 1 - i), gc_host(world, i)) &&
                    !strcmp(gc_cluster(back, size - 1 - i), want), "rank %d in another communicator", i);
        bool same = !simulated || (site_of(i, size) == site_of(rank, size) && host_of(i, size) == host_of(rank, size));
        gct_require((strcmp(gc_host(world, i), gc_host(world, rank)) == 0) == same, "host of %d", i);
    }
    gct_require(!gc_host(world, -1) && !gc_host(world, size) && !gc_host(NULL, 0), "no such rank");
    gct_require(!gc_cluster(world, -1) && !gc_cluster(world, size) && !gc_cluster(NULL, 0), "no such rank");
    return 0;
}

static void test_places(void **state)
{
    (void)state;
    run_all_sizes(translates);
    for (size_t i = 0; i < sizeof job_sizes / sizeof job_sizes[0]; i++) {
        gct_spec spec = { .ranks = job_sizes[i], .sites = SITES, .ranks_per_host = RANKS_PER_HOST };
        bool simulated = gct_simulated(&spec);
        assert_int_equal(0, gct_job(&spec, places, &simulated));
    }
}

/* ---- traffic of one communicator is not seen in another ---------------------------------------------------------- */

static int apart(gc_comm *world, int rank, int size, void *arg)
{
    enum { COMMS = 4, TAG = 9 };
    size_t bytes = *(const size_t *)arg;
    gc_comm *comm[COMMS] = { world };
    gc_request *request[COMMS];
    uint8_t *out[COMMS], *in = gct_buffer(bytes);
    int next = (rank + 1) % size, before = (rank + size - 1) % size, found;
    for (int i = 1; i < COMMS; i++)
        gct_ok(gc_comm_dup(comm[i - 1], &comm[i]));
    for (int i = 0; i < COMMS - 1; i++) {       /* sent in this order with one tag; none in the last one */
        out[i] = gct_buffer(bytes);
        gct_fill(out[i], bytes, rank, i);
        gct_ok(gc_isend(comm[i], out[i], bytes, next, TAG, &request[i]));
    }
    for (int i = COMMS - 2; i >= 0; i--) {      /* received in the opposite order, through wildcards */
        gc_status status;
        gct_ok(gc_probe(comm[i], GC_ANY_SOURCE, GC_ANY_TAG, &status));
        gct_require(status.source == before && status.tag == TAG && status.bytes == bytes, "probe %d", i);
        gct_ok(gc_iprobe(comm[COMMS - 1], GC_ANY_SOURCE, GC_ANY_TAG, &found, NULL));
        gct_require(!found, "found in a communicator where nobody has sent");
        gct_ok(gc_recv(comm[i], in, bytes, i % 2 ? GC_ANY_SOURCE : before, GC_ANY_TAG, &status));
        gct_require(status.bytes == bytes && !gct_check(in, bytes, before, i), "message of communicator %d", i);
        gct_ok(gc_iprobe(comm[i], GC_ANY_SOURCE, GC_ANY_TAG, &found, NULL));
        gct_require(!found, "one more in communicator %d", i);
    }
    gct_ok(gc_waitall(COMMS - 1, request, NULL));
    for (int i = 0; i < COMMS - 1; i++)
        gct_require(!gct_buffer_free(out[i]), "canaries");
    gct_require(!gct_buffer_free(in), "canaries");
    gct_ok(gc_barrier(comm[COMMS - 1]));
    return 0;
}

static void test_apart(void **state)
{
    (void)state;
    static size_t bytes[] = { 1, 3000, 200000 };
    for (int i = 0; i < 3; i++) {
        run(2, apart, &bytes[i]);
        run(5, apart, &bytes[i]);
    }
}

/* Receives, posted first on many communicators, each get their own, whatever the order of the sends. */
static int many(gc_comm *world, int rank, int size, void *arg)
{
    enum { COMMS = 120, BYTES = 50 };
    (void)arg;
    gc_comm *comm[COMMS];
    gc_request *request[2 * COMMS];
    uint8_t *in[COMMS], *out[COMMS];
    uint64_t random = gct_seed() + (uint64_t)rank;
    int order[COMMS], next = (rank + 1) % size, before = (rank + size - 1) % size;
    for (int i = 0; i < COMMS; i++) {
        gct_ok(gc_comm_dup(i % 5 == 4 ? comm[i - 1] : world, &comm[i]));
        in[i] = gct_buffer(BYTES);
        out[i] = gct_buffer(BYTES);
        gct_fill(out[i], BYTES, rank, i);
        gct_ok(gc_irecv(comm[i], in[i], BYTES, i % 2 ? before : GC_ANY_SOURCE, i % 3 ? 1 : GC_ANY_TAG, &request[i]));
        order[i] = i;
    }
    for (int i = COMMS - 1; i > 0; i--) {
        int j = (int)(gct_random(&random) % (uint64_t)(i + 1)), swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
    for (int i = 0; i < COMMS; i++)
        gct_ok(gc_isend(comm[order[i]], out[order[i]], BYTES, next, 1, &request[COMMS + i]));
    gct_ok(gc_waitall(2 * COMMS, request, NULL));
    for (int i = 0; i < COMMS; i++)
        gct_require(!gct_check(in[i], BYTES, before, i) && !gct_buffer_free(in[i]) && !gct_buffer_free(out[i]),
                    "communicator %d", i);
    for (int i = 0; i < COMMS; i++)             /* each rank in an order of its own; some are left to gc_finalize */
        if (order[i] % 4)
            gct_ok(gc_comm_free(comm[order[i]]));
        else if (order[i] % 40 == 0)
            gct_ok(gc_send(comm[order[i]], &rank, sizeof rank, rank, 2));       /* to oneself, never received */
    return exercise(world, 3);
}

static void test_many(void **state)
{
    (void)state;
    run(1, many, NULL);
    run(3, many, NULL);
    run(8, many, NULL);
}

/* ---- messages that nobody receives, in communicators that are freed --------------------------------------------- */

enum { LATE_ROUNDS = 300 };             /* several times the credits that a rank has with another */

static size_t memory_of(gc_comm *world)
{
    gc_stats stats = { .size = sizeof stats };
    return gc_get_stats(world, &stats) ? 0 : stats.memory;
}

/* Each rank sends to the next and frees: what comes late finds no communicator any more, what came early is dropped with
 * it. Both give their credit back, else the sends would come to an end soon. */
static int late(gc_comm *world, int rank, int size, void *arg)
{
    static const size_t sizes[] = { 0, 8, 3000, 1024, 1025 };
    (void)arg;
    uint8_t *buf = gct_buffer(3000);
    size_t memory = 0;
    gct_fill(buf, 3000, rank, 0);
    for (int round = 0; round < LATE_ROUNDS; round++) {
        gc_comm *comm;
        gct_ok(gc_comm_dup(world, &comm));
        gct_ok(gc_send(comm, buf, sizes[round % 5], (rank + 1) % size, 1));
        gct_ok(gc_send(comm, buf, 100, rank, 1));
        gct_ok(gc_comm_free(comm));
        if (round % 50 == 49 && exercise(world, round))
            return 1;
        if (round == LATE_ROUNDS / 3)
            memory = memory_of(world);
    }
    /* a few hundred bytes tell that a communicator is gone; its messages must not be kept */
    gct_require(memory_of(world) < memory + LATE_ROUNDS * 1024, "memory grew from %zu to %zu bytes", memory, memory_of(world));
    gct_require(!gct_buffer_free(buf), "canaries");
    return 0;
}

/* Long ones, which wait for a receive, end when the receiver has freed the communicator. */
static int late_and_long(gc_comm *world, int rank, int size, void *arg)
{
    static const size_t sizes[] = { 70000, 300000, 1000000 };
    (void)arg;
    uint8_t *buf = gct_buffer(1000000);
    for (int round = 0; round < LATE_ROUNDS; round++) {
        gc_comm *comm;
        gct_ok(gc_comm_dup(world, &comm));
        if (rank == round % size)
            gct_ok((round % 2 ? gc_send : gc_ssend)(comm, buf, sizes[round % 3], (rank + 1) % size, 1));
        gct_ok(gc_comm_free(comm));
    }
    gct_require(!gct_buffer_free(buf), "canaries");
    return exercise(world, 2);
}

static void one_credit(gc_options *o, int rank, void *arg)
{
    (void)rank, (void)arg;
    o->credits = 1;
    o->queue_packets = 1;
}

static void test_late(void **state)
{
    (void)state;
    run(1, late, NULL);
    run(2, late, NULL);
    run(5, late, NULL);
    run(2, late_and_long, NULL);
    run(3, late_and_long, NULL);
    assert_int_equal(0, gct_job(&(gct_spec){ .ranks = 3, .options = one_credit }, late, NULL));
    assert_int_equal(0, gct_job(&(gct_spec){ .ranks = 3, .options = one_credit }, late_and_long, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dup), cmocka_unit_test(test_split), cmocka_unit_test(test_nested), cmocka_unit_test(test_create),
        cmocka_unit_test(test_wrong_lists), cmocka_unit_test(test_disagree), cmocka_unit_test(test_freeing),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_apart), cmocka_unit_test(test_many), cmocka_unit_test(test_late),
    };
    return cmocka_run_group_tests_name("comm", tests, NULL, NULL);
}
