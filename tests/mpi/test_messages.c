/* test_messages.c: messages between two ranks: all modes and sizes, any source and tag, their order, what is too long, nobody,
 * both at once, probes, and buffered sends with their buffer.
 * SPDX-License-Identifier: MIT
 */
#include "check.h"

enum { TAG = 11, LONGEST = 300000 };

static int next, before;

/* ints with a gap behind each */
static MPI_Datatype spread;

static const int sizes[] = { 0, 1, 2, 3, 100, 1000, 20000, LONGEST };
enum { SIZES = sizeof sizes / sizeof *sizes };

typedef int send_fn(const void *, int, MPI_Datatype, int, int, MPI_Comm);
typedef int isend_fn(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);

static void fill(int a[], int n, int from)
{
    for (int i = 0; i < n; i++)
        a[i] = from * 1000003 + i;
}

static int wrong_in(const int a[], int n, int step, int from)
{
    int wrong = 0;
    for (int i = 0; i < n; i++)
        wrong += a[i * step] != from * 1000003 + i;
    return wrong;
}

/* ---- modes ------------------------------------------------------------------------------------------------------- */

/* Sends and receives n ints, of the one side without gaps, of the other with them. */
static void pass(int n, send_fn *send, isend_fn *isend, int gaps)
{
    size_t bytes = (size_t)n * 2 * sizeof(int);
    unsigned char *in = area_new(bytes, 1), *want = area_new(bytes, 1);
    int *out = malloc(bytes + 1), step = gaps ? 2 : 1, count;
    MPI_Request requests[2] = { MPI_REQUEST_NULL, MPI_REQUEST_NULL };
    MPI_Status status;
    fill(out, n, check.rank);
    MPI_Irecv(in, n, gaps ? spread : MPI_INT, before, TAG, MPI_COMM_WORLD, &requests[0]);
    if (send)
        CHECK_EQUAL(send(out, n, MPI_INT, next, TAG, MPI_COMM_WORLD), MPI_SUCCESS);
    else
        CHECK_EQUAL(isend(out, n, MPI_INT, next, TAG, MPI_COMM_WORLD, &requests[1]), MPI_SUCCESS);
    MPI_Wait(&requests[0], &status);
    MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
    for (int i = 0; i < n; i++)
        ((int *)want)[i * step] = before * 1000003 + i;
    CHECK_SAME(in, want, bytes);
    CHECK(status.MPI_SOURCE == before && status.MPI_TAG == TAG);
    MPI_Get_count(&status, MPI_INT, &count);
    CHECK_EQUAL(count, n);
    area_free(in);
    area_free(want);
    free(out);
}

static void all_modes(void)
{
    send_fn *const blocking[] = { MPI_Send, MPI_Ssend, MPI_Rsend };
    isend_fn *const begun[] = { MPI_Isend, MPI_Issend, MPI_Irsend };
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < SIZES; i++)
            for (int gaps = 0; gaps < 2; gaps++) {
                pass(sizes[i], blocking[k], NULL, gaps);
                pass(sizes[i], NULL, begun[k], gaps);
            }
    for (int k = 0; k < 2; k++) {       /* ready: the receive is there before */
        int out[3] = { check.rank, 1, 2 }, in[3] = { 0 };
        MPI_Request requests[2] = { MPI_REQUEST_NULL, MPI_REQUEST_NULL };
        MPI_Irecv(in, 3, MPI_INT, before, TAG, MPI_COMM_WORLD, &requests[0]);
        MPI_Barrier(MPI_COMM_WORLD);
        if (k == 0)
            blocking[2](out, 3, MPI_INT, next, TAG, MPI_COMM_WORLD);
        else
            begun[2](out, 3, MPI_INT, next, TAG, MPI_COMM_WORLD, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        CHECK(in[0] == before && in[1] == 1 && in[2] == 2);
    }
}

/* What is sent has holes, and is read before the send returns its request. */
static void sent_with_gaps(void)
{
    int out[2 * 50], in[50];
    MPI_Request request;
    for (int i = 0; i < 100; i++)
        out[i] = i % 2 ? -1 : check.rank * 1000003 + i / 2;
    MPI_Isend(out, 50, spread, next, TAG, MPI_COMM_WORLD, &request);
    MPI_Recv(in, 50, MPI_INT, before, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK_EQUAL(wrong_in(in, 50, 1, before), 0);
    CHECK(out[1] == -1 && out[2] == check.rank * 1000003 + 1);
}

/* A synchronous send is not complete before its receive is there. */
static void synchronous(void)
{
    int out = check.rank, in = -1, done = 0;
    MPI_Request request;
    MPI_Issend(&out, 1, MPI_INT, next, TAG, MPI_COMM_WORLD, &request);
    for (int i = 0; i < 200 && !done; i++)
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    CHECK(!done);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Recv(&in, 1, MPI_INT, before, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK_EQUAL(in, before);
}

static void to_oneself(void)
{
    int out[2] = { 3, 4 }, in[2] = { 0 };
    MPI_Request request;
    MPI_Status status;
    MPI_Isend(out, 2, MPI_INT, check.rank, TAG, MPI_COMM_WORLD, &request);
    MPI_Recv(in, 2, MPI_INT, MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, &status);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(in[0] == 3 && in[1] == 4 && status.MPI_SOURCE == check.rank);
    MPI_Isend(out, 2, MPI_INT, 0, TAG, MPI_COMM_SELF, &request);
    MPI_Recv(in, 2, MPI_INT, 0, TAG, MPI_COMM_SELF, &status);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK_EQUAL(status.MPI_SOURCE, 0);
}

/* ---- matching ---------------------------------------------------------------------------------------------------- */

/* All send to rank 0, in this order and with these tags; it receives tag by tag, and the rest as it comes. */
static void any_source_any_tag(void)
{
    enum { EACH = 6 };
    int seen = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Request requests[EACH];
    int out[EACH];
    for (int i = 0; i < EACH; i++) {
        out[i] = check.rank * 100 + i;
        MPI_Isend(&out[i], 1, MPI_INT, 0, i % 3, MPI_COMM_WORLD, &requests[i]);
    }
    if (check.rank == 0) {
        int *last = malloc((size_t)check.size * sizeof *last);
        for (int i = 0; i < check.size; i++)
            last[i] = -1;
        for (int i = 0; i < 2 * check.size; i++) {
            int in;
            MPI_Status status;
            MPI_Recv(&in, 1, MPI_INT, MPI_ANY_SOURCE, 2, MPI_COMM_WORLD, &status);
            seen += status.MPI_TAG == 2 && in / 100 == status.MPI_SOURCE && in % 100 % 3 == 2 && in % 100 > last[in / 100];
            last[in / 100] = in % 100;
        }
        CHECK_EQUAL(seen, 2 * check.size);
        for (int i = 0; i < check.size; i++)
            last[i] = -1;
        for (int i = 0; i < 4 * check.size; i++) {
            int in, from = i < check.size ? i : MPI_ANY_SOURCE;
            MPI_Status status;
            MPI_Recv(&in, 1, MPI_INT, from, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
            seen += in / 100 == status.MPI_SOURCE && in % 100 % 3 == status.MPI_TAG && in % 100 > last[in / 100];
            last[in / 100] = in % 100;
        }
        CHECK_EQUAL(seen, 6 * check.size);
        free(last);
    }
    MPI_Waitall(EACH, requests, MPI_STATUSES_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* The same tag in two communicators. */
static void apart(void)
{
    MPI_Comm other;
    int out[2] = { 1, 2 }, in[2] = { 0 };
    MPI_Request requests[2];
    MPI_Comm_dup(MPI_COMM_WORLD, &other);
    MPI_Isend(&out[0], 1, MPI_INT, next, TAG, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(&out[1], 1, MPI_INT, next, TAG, other, &requests[1]);
    MPI_Recv(&in[1], 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, other, MPI_STATUS_IGNORE);
    MPI_Recv(&in[0], 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    CHECK(in[0] == 1 && in[1] == 2);
    MPI_Comm_free(&other);
}

static void largest_tag(void)
{
    int *most, found, out = 5, in = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most, &found);
    CHECK(found && *most >= 32767);
    MPI_Sendrecv(&out, 1, MPI_INT, next, *most, &in, 1, MPI_INT, before, *most, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK_EQUAL(in, 5);
}

/* Longer than the receive: an error, and what fits is there. */
static void too_long(void)
{
    MPI_Comm quiet;
    MPI_Comm_dup(MPI_COMM_WORLD, &quiet);
    MPI_Comm_set_errhandler(quiet, MPI_ERRORS_RETURN);
    for (int gaps = 0; gaps < 2; gaps++)
        for (int i = 2; i < SIZES; i++) {
            int n = sizes[i], room = n / 2, class, count;
            size_t bytes = (size_t)n * 2 * sizeof(int);
            unsigned char *in = area_new(bytes, 1), *want = area_new(bytes, 1);
            int *out = malloc(bytes);
            MPI_Request request;
            MPI_Status status;
            fill(out, n, check.rank);
            MPI_Isend(out, n, MPI_INT, next, TAG, quiet, &request);
            int err = MPI_Recv(in, room, gaps ? spread : MPI_INT, before, TAG, quiet, &status);
            MPI_Error_class(err, &class);
            CHECK_EQUAL(class, MPI_ERR_TRUNCATE);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            CHECK(status.MPI_SOURCE == before && status.MPI_TAG == TAG);
            for (int k = 0; k < room; k++)
                ((int *)want)[k * (gaps ? 2 : 1)] = before * 1000003 + k;
            MPI_Get_count(&status, MPI_INT, &count);
            if (STRICT) {               /* others do not promise what is there */
                CHECK_SAME(in, want, bytes);
                CHECK_EQUAL(count, room);
            }
            area_free(in);
            area_free(want);
            free(out);
        }
    MPI_Comm_free(&quiet);
}

/* ---- nobody ------------------------------------------------------------------------------------------------------ */

static void is_nobody(const MPI_Status *status)
{
    int count = -1;
    CHECK_EQUAL(status->MPI_SOURCE, MPI_PROC_NULL);
    CHECK_EQUAL(status->MPI_TAG, MPI_ANY_TAG);
    MPI_Get_count(status, MPI_INT, &count);
    CHECK_EQUAL(count, 0);
}

static void nobody(void)
{
    isend_fn *const begun[] = { MPI_Isend, MPI_Issend, MPI_Irsend, MPI_Ibsend, MPI_Send_init, MPI_Ssend_init, MPI_Bsend_init };
    int x[4] = { 1, 2, 3, 4 }, flag = 0;
    MPI_Request request;
    MPI_Status status;
    MPI_Message message;
    MPI_Send(x, 2, spread, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
    MPI_Ssend(x, 2, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
    MPI_Rsend(x, 2, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
    MPI_Bsend(x, 2, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
    for (size_t i = 0; i < sizeof begun / sizeof *begun; i++) {
        begun[i](x, 2, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &request);
        if (i >= 4)
            MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        if (i >= 4)
            MPI_Request_free(&request);
        CHECK(request == MPI_REQUEST_NULL);
    }
    MPI_Recv(x, 2, spread, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &status);
    is_nobody(&status);
    MPI_Irecv(x, 2, spread, MPI_PROC_NULL, MPI_ANY_TAG, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, &status);
    is_nobody(&status);
    MPI_Sendrecv(x, 1, MPI_INT, MPI_PROC_NULL, 0, &x[1], 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &status);
    is_nobody(&status);
    MPI_Sendrecv_replace(x, 2, spread, MPI_PROC_NULL, 0, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &status);
    is_nobody(&status);
    MPI_Probe(MPI_PROC_NULL, 0, MPI_COMM_WORLD, &status);
    is_nobody(&status);
    MPI_Iprobe(MPI_PROC_NULL, 0, MPI_COMM_WORLD, &flag, &status);
    CHECK(flag);
    is_nobody(&status);
    MPI_Mprobe(MPI_PROC_NULL, 0, MPI_COMM_WORLD, &message, &status);
    CHECK(message == MPI_MESSAGE_NO_PROC);
    is_nobody(&status);
    MPI_Mrecv(x, 2, MPI_INT, &message, &status);
    CHECK(message == MPI_MESSAGE_NULL);
    is_nobody(&status);
    MPI_Improbe(MPI_PROC_NULL, 0, MPI_COMM_WORLD, &flag, &message, &status);
    CHECK(flag && message == MPI_MESSAGE_NO_PROC);
    MPI_Imrecv(x, 2, MPI_INT, &message, &request);
    MPI_Wait(&request, &status);
    is_nobody(&status);
    CHECK(x[0] == 1 && x[1] == 2 && x[2] == 3 && x[3] == 4);
}

/* A line of ranks, whose ends have one neighbour. */
static void in_a_line(void)
{
    int right = check.rank + 1 < check.size ? check.rank + 1 : MPI_PROC_NULL, x = check.rank, in = -5;
    int left = check.rank > 0 ? check.rank - 1 : MPI_PROC_NULL;
    MPI_Status status;
    MPI_Sendrecv(&x, 1, MPI_INT, right, TAG, &in, 1, MPI_INT, left, TAG, MPI_COMM_WORLD, &status);
    CHECK_EQUAL(in, check.rank > 0 ? check.rank - 1 : -5);
    CHECK_EQUAL(status.MPI_SOURCE, left);
    MPI_Sendrecv_replace(&x, 1, MPI_INT, left, TAG, right, TAG, MPI_COMM_WORLD, &status);
    CHECK_EQUAL(x, right == MPI_PROC_NULL ? check.rank : check.rank + 1);
}

/* ---- both at once ------------------------------------------------------------------------------------------------ */

static void both(void)
{
    for (int i = 0; i < SIZES; i++) {
        int n = sizes[i], *out = malloc((size_t)n * sizeof(int) + 1), count;
        size_t bytes = (size_t)n * 2 * sizeof(int);
        unsigned char *in = area_new(bytes, 1), *want = area_new(bytes, 1);
        MPI_Status status;
        fill(out, n, check.rank);
        MPI_Sendrecv(out, n, MPI_INT, next, 1, in, n, spread, before, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        for (int k = 0; k < n; k++)
            ((int *)want)[2 * k] = before * 1000003 + k;
        CHECK_SAME(in, want, bytes);
        MPI_Get_count(&status, MPI_INT, &count);
        CHECK(count == n && status.MPI_TAG == 1);
        /* and on, with gaps; there comes less than is sent where ranks differ */
        int mine = check.rank % 2 ? n : n / 2, theirs = before % 2 ? n : n / 2;
        for (int k = 0; k < mine; k++)
            ((int *)in)[2 * k] = ((int *)want)[2 * k] = check.rank * 1000003 + k;
        MPI_Request request;
        MPI_Isend(in, mine, spread, next, 2, MPI_COMM_WORLD, &request);
        MPI_Recv(out, n, MPI_INT, before, 2, MPI_COMM_WORLD, &status);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Get_count(&status, MPI_INT, &count);
        CHECK_EQUAL(count, theirs);
        CHECK_EQUAL(wrong_in(out, theirs, 1, before), 0);
        CHECK_SAME(in, want, bytes);
        area_free(in);
        area_free(want);
        free(out);
    }
}

/* The buffer's gaps stay, and so does what is behind a shorter message. */
static void replaced(void)
{
    for (int gaps = 0; gaps < 2; gaps++)
        for (int i = 0; i < SIZES; i++) {
            int n = sizes[i], step = gaps ? 2 : 1, count;
            size_t bytes = (size_t)n * 2 * sizeof(int);
            unsigned char *data = area_new(bytes, 3), *want = area_new(bytes, 3);
            MPI_Status status;
            for (int k = 0; k < n; k++) {
                ((int *)data)[k * step] = check.rank * 1000003 + k;
                ((int *)want)[k * step] = before * 1000003 + k;
            }
            MPI_Sendrecv_replace(data, n, gaps ? spread : MPI_INT, next, 7, before, 7, MPI_COMM_WORLD, &status);
            CHECK_SAME(data, want, bytes);
            MPI_Get_count(&status, gaps ? spread : MPI_INT, &count);
            CHECK_EQUAL(count, n);
            area_free(data);
            area_free(want);
        }
    /* one more from the side: a receive that is longer than what comes */
    int x[6] = { 1, 2, 3, 4, 5, 6 };
    MPI_Request request;
    int y = 40 + check.rank;
    MPI_Isend(&y, 1, MPI_INT, next, 8, MPI_COMM_WORLD, &request);
    MPI_Sendrecv_replace(x, 3, spread, MPI_PROC_NULL, 7, before, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(x[0] == 40 + before && x[1] == 2 && x[2] == 3 && x[3] == 4 && x[4] == 5 && x[5] == 6);
}

/* ---- probes ------------------------------------------------------------------------------------------------------ */

static void probed(void)
{
    for (int i = 0; i < SIZES; i++) {
        int n = sizes[i], *out = malloc((size_t)n * sizeof(int) + 1), count, flag = 0;
        size_t bytes = (size_t)n * 2 * sizeof(int);
        unsigned char *in = area_new(bytes, 1), *want = area_new(bytes, 1);
        MPI_Request request, second;
        MPI_Message message = MPI_MESSAGE_NULL;
        MPI_Status status;
        fill(out, n, check.rank);
        for (int k = 0; k < n; k++)
            ((int *)want)[2 * k] = before * 1000003 + k;
        for (int way = 0; way < 4; way++) {
            unsigned char *fresh = area_new(bytes, 1);
            memcpy(in - GUARD, fresh - GUARD, bytes + 2 * GUARD);
            area_free(fresh);
            MPI_Isend(out, n, MPI_INT, next, 20 + way, MPI_COMM_WORLD, &request);
            if (way == 0)
                MPI_Probe(before, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
            for (flag = 0; way == 1 && !flag;)
                MPI_Iprobe(MPI_ANY_SOURCE, 21, MPI_COMM_WORLD, &flag, &status);
            if (way == 2)
                MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &message, &status);
            for (flag = 0; way == 3 && !flag;)
                MPI_Improbe(before, 23, MPI_COMM_WORLD, &flag, &message, &status);
            MPI_Get_count(&status, MPI_INT, &count);
            CHECK(count == n && status.MPI_SOURCE == before && status.MPI_TAG == 20 + way);
            if (way >= 2) {             /* nobody else gets it */
                MPI_Iprobe(before, 20 + way, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
                CHECK(!flag);
            }
            if (way < 2)
                MPI_Recv(in, n, spread, before, 20 + way, MPI_COMM_WORLD, &status);
            else if (way == 2)
                MPI_Mrecv(in, n, spread, &message, &status);
            else {
                MPI_Imrecv(in, n, spread, &message, &second);
                CHECK(message == MPI_MESSAGE_NULL);
                MPI_Wait(&second, &status);
            }
            CHECK(message == MPI_MESSAGE_NULL);
            CHECK(status.MPI_SOURCE == before && status.MPI_TAG == 20 + way);
            CHECK_SAME(in, want, bytes);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            MPI_Barrier(MPI_COMM_WORLD);        /* so that ranks that are before others do not meet them */
        }
        area_free(in);
        area_free(want);
        free(out);
    }
    int flag = 1;
    MPI_Message message;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    CHECK(!flag);
    MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &message, MPI_STATUS_IGNORE);
    CHECK(!flag);
}

/* ---- buffered ---------------------------------------------------------------------------------------------------- */

static void buffered(void)
{
    enum { MESSAGES = 3, LENGTH = 5000 };
    int bytes, all = 0, out[2 * LENGTH], in[LENGTH], size;
    void *got = NULL;
    MPI_Request request;
    MPI_Comm quiet;
    MPI_Comm_dup(MPI_COMM_WORLD, &quiet);
    MPI_Comm_set_errhandler(quiet, MPI_ERRORS_RETURN);
    MPI_Pack_size(LENGTH, MPI_INT, quiet, &bytes);
    all = MESSAGES * (bytes + MPI_BSEND_OVERHEAD);
    char *buffer = malloc((size_t)all);
    for (int round = 0; round < 3; round++) {
        MPI_Buffer_attach(buffer, all);
        for (int i = 0; i < MESSAGES; i++) {    /* nobody receives yet, and the memory of each is used again at once */
            for (int k = 0; k < LENGTH; k++) {
                out[i == 1 ? 2 * k : k] = check.rank * 1000003 + i * LENGTH + k;
                out[i == 1 ? 2 * k + 1 : LENGTH + k] = -1;
            }
            int err = i < 2 ? MPI_Bsend(out, LENGTH, i == 1 ? spread : MPI_INT, next, i, quiet)
                            : MPI_Ibsend(out, LENGTH, MPI_INT, next, i, quiet, &request);
            CHECK_EQUAL(err, MPI_SUCCESS);
            if (i == 2)
                MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        memset(out, 0, sizeof out);
        MPI_Barrier(quiet);
        for (int i = MESSAGES - 1; i >= 0; i--) {
            int wrong = 0;
            MPI_Recv(in, LENGTH, MPI_INT, before, i, quiet, MPI_STATUS_IGNORE);
            for (int k = 0; k < LENGTH; k++)
                wrong += in[k] != before * 1000003 + i * LENGTH + k;
            CHECK_EQUAL(wrong, 0);
        }
        MPI_Buffer_detach(&got, &size);
        CHECK(got == (void *)buffer && size == all);
    }
    MPI_Buffer_attach(buffer, 100);     /* too short for the message */
    int class, err = MPI_Bsend(out, LENGTH, MPI_INT, next, 0, quiet);
    MPI_Error_class(err, &class);
    CHECK_EQUAL(class, MPI_ERR_BUFFER);
    MPI_Buffer_detach(&got, &size);
    CHECK(got == (void *)buffer && size == 100);
    free(buffer);
    MPI_Comm_free(&quiet);
}

/* Detaching waits for the messages in the buffer, though nobody has received them yet; and for no request that was freed. */
static void detached_late(void)
{
    static int out[LONGEST], in[LONGEST];
    int size, bytes, x = 9, y = 0;
    void *got;
    MPI_Request request;
    MPI_Pack_size(LONGEST, MPI_INT, MPI_COMM_WORLD, &bytes);
    char *buffer = malloc((size_t)bytes + MPI_BSEND_OVERHEAD);
    fill(out, LONGEST, check.rank);
    MPI_Buffer_attach(buffer, bytes + MPI_BSEND_OVERHEAD);
    MPI_Irecv(&y, 1, MPI_INT, before, 2, MPI_COMM_WORLD, &request);
    MPI_Request_free(&request);
    MPI_Irecv(in, LONGEST, MPI_INT, before, 1, MPI_COMM_WORLD, &request);
    MPI_Bsend(out, LONGEST, MPI_INT, next, 1, MPI_COMM_WORLD);
    MPI_Buffer_detach(&got, &size);
    CHECK(got == (void *)buffer);
    free(buffer);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK_EQUAL(wrong_in(in, LONGEST, 1, before), 0);
    MPI_Send(&x, 1, MPI_INT, next, 2, MPI_COMM_WORLD);
    int z;                              /* when it is there, so is the one before it */
    MPI_Sendrecv(&x, 1, MPI_INT, next, 3, &z, 1, MPI_INT, before, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK_EQUAL(*(volatile int *)&y, 9);
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv, 100);
    next = (check.rank + 1) % check.size;
    before = (check.rank + check.size - 1) % check.size;
    MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &spread);
    MPI_Type_commit(&spread);
    run("all modes", all_modes);
    run("sent with gaps", sent_with_gaps);
    run("synchronous", synchronous);
    run("to oneself", to_oneself);
    run("any source, any tag", any_source_any_tag);
    run("communicators are apart", apart);
    run("the largest tag", largest_tag);
    run("too long", too_long);
    run("nobody", nobody);
    run("in a line", in_a_line);
    run("both at once", both);
    run("replaced", replaced);
    run("probes", probed);
    run("buffered", buffered);
    run("detached late", detached_late);
    MPI_Type_free(&spread);
    return check_end();
}
