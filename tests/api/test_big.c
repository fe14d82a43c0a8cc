/* test_big.c: long messages, up to beyond 4 GiB.
 * SPDX-License-Identifier: MIT
 *
 * The longest ones lie in a window: a great range of addresses in which the same 2 MiB are mapped again and again. A message
 * of 4 GiB then takes 2 MiB of memory at each end, and every one of its bytes is written where the next round is, too: so the
 * content is a pattern with that period, and a byte put to a wrong place of the period is seen. A tail beyond the last
 * whole period has pages of its own, where nothing else is written, and a page that may not be touched ends the range.
 */
#define _GNU_SOURCE
#include "../gct.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#define PERIOD ((size_t)2 << 20)
/* So far beyond 4 GiB that whole packets lie there, not the end of the last one alone. Under sanitizers, time limit: 500 s. */
#define BIG    (((size_t)4 << 30) + ((size_t)3 << 20) + 12345)

/* ---- 64 MiB, byte by byte --------------------------------------------------------------------------------------------- */

static int long_messages(gc_comm *world, int rank, int size, void *arg)
{
    static const size_t sizes[] = { ((size_t)64 << 20) + 1, ((size_t)8 << 20) - 1 };
    (void)arg;
    for (int i = 0; i < 2; i++) {
        uint8_t *out = gct_buffer(sizes[i]), *in = gct_buffer(sizes[i]);
        int before = (rank + size - 1) % size;
        gc_status status;
        gct_fill(out, sizes[i], rank, i);
        gct_ok(gc_sendrecv(world, out, sizes[i], (rank + 1) % size, i, in, sizes[i], before, i, &status));
        gct_require(status.bytes == sizes[i] && !gct_check(in, sizes[i], before, i), "message of %zu", sizes[i]);
        gct_ok(gc_bcast(world, out, sizes[i], size - 1));
        gct_require(!gct_check(out, sizes[i], size - 1, i), "bcast of %zu", sizes[i]);
        gct_require(!gct_buffer_free(out) && !gct_buffer_free(in), "canaries");
    }
    return 0;
}

static void test_long(void **state)
{
    (void)state;
    assert_int_equal(0, gct_job(&(gct_spec){ .ranks = 2, .time_limit = 280, .lan_rate = 1000000000 }, long_messages, NULL));
}

/* ---- beyond 4 GiB -------------------------------------------------------------------------------------------------------- */

typedef struct window { uint8_t *at; size_t reserved, bytes; } window;

static void window_close(window *w)
{
    if (w->at)
        munmap(w->at, w->reserved);
    w->at = NULL;
}

/* Whole periods of one piece of memory, then the tail's own, then a page without access. */
static int window_open(window *w, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = bytes / PERIOD * PERIOD, tail = (bytes - whole + page - 1) / page * page;
    int fd = memfd_create("window", MFD_CLOEXEC);
    w->bytes = bytes;
    w->reserved = whole + tail + page;
    w->at = mmap(NULL, w->reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (w->at == MAP_FAILED)
        w->at = NULL;
    bool failed = fd < 0 || !w->at || ftruncate(fd, (off_t)(PERIOD + tail)) != 0;
    for (size_t at = 0; !failed && at < whole + tail; at += PERIOD)
        failed = mmap(w->at + at, at < whole ? PERIOD : tail, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
                      at < whole ? 0 : (off_t)PERIOD) == MAP_FAILED;
    if (fd >= 0)
        close(fd);
    if (failed)
        window_close(w);
    return failed;
}

static void window_fill(window *w, int salt)
{
    size_t tail = w->bytes % PERIOD;
    gct_fill(w->at, PERIOD, salt, 1);
    gct_fill(w->at + w->bytes - tail, tail, salt, 2);
}

static int window_check(const window *w, int salt)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), tail = w->bytes % PERIOD;
    gct_require(!gct_check(w->at, PERIOD, salt, 1) && !gct_check(w->at + w->bytes - tail, tail, salt, 2), "content");
    for (size_t at = w->bytes; at < w->reserved - page; at++)   /* behind the end: as memfd_create gave it */
        gct_require(w->at[at] == 0, "%zu bytes behind the end", at - w->bytes);
    return 0;
}

static int big_messages(gc_comm *world, int rank, int size, void *arg)
{
    window *w = (window *)arg + rank;
    gc_status status;
    (void)size;
    window_fill(w, rank);
    if (rank == 0) {
        gct_ok(gc_send(world, w->at, BIG, 1, 1));
    } else {
        gct_ok(gc_recv(world, w->at, BIG, 0, 1, &status));
        gct_require(status.bytes == BIG, "%zu bytes", status.bytes);
    }
    if (window_check(w, 0))
        return 1;
    gct_ok(gc_barrier(world));
    window_fill(w, 10 + rank);
    gct_ok(gc_bcast(world, w->at, BIG, 1));
    if (window_check(w, 11))
        return 1;
    char little[100] = "";              /* more than fits: the head, and the rest is discarded without being sent */
    if (rank == 0) {
        gct_ok(gc_send(world, w->at, BIG, 1, 2));
        return 0;
    }
    gct_require(gc_recv(world, little, sizeof little, 0, 2, &status) == GC_ERR_TRUNCATE && status.bytes == sizeof little &&
                !memcmp(little, w->at, sizeof little), "truncated to %zu bytes", status.bytes);
    return 0;
}

static void test_beyond_4_gib(void **state)
{
    (void)state;
    window w[2] = { { .at = NULL } };
    if (window_open(&w[0], BIG) || window_open(&w[1], BIG)) {
        window_close(&w[0]);
        print_message("no address space or no memfd for windows of %zu bytes\n", BIG);
        skip();
    }
    int failed = gct_job(&(gct_spec){ .ranks = 2, .time_limit = 280 }, big_messages, w);
    window_close(&w[0]);
    window_close(&w[1]);
    assert_int_equal(0, failed);
}

int main(void)
{
    const struct CMUnitTest anywhere[] = { cmocka_unit_test(test_long) };
    const struct CMUnitTest real[] = { cmocka_unit_test(test_beyond_4_gib) };
    int failed = cmocka_run_group_tests_name("big", anywhere, NULL, NULL);
    if (!gct_simulated(&(gct_spec){ .on = GCT_ON_REAL, .ranks = 2 }) && sizeof(size_t) > 4)
        failed += cmocka_run_group_tests_name("big, real sockets", real, NULL, NULL);
    return failed;
}
