/* test_life.c: start and end, what surrounds them, several threads, and what a program forgets to free. With an argument it is
 * a program that ends early: "abort", by MPI_Abort of its last rank; "fatal", by an error there; "forget", after operations
 * that nobody completes; "late", with one rank in MPI_Finalize while another still receives what it has sent.
 * SPDX-License-Identifier: MIT
 */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <pthread.h>

enum { THREADS = 4, ROUNDS = 60 };

static int level;

static void surroundings(void)
{
    char name[MPI_MAX_PROCESSOR_NAME], text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = -1, version = 0, subversion = -1, flag = 0, got = -1;
    double *memory, before = MPI_Wtime();
    MPI_Get_processor_name(name, &length);
    CHECK(length > 0 && length == (int)strlen(name));
    MPI_Get_version(&version, &subversion);
    CHECK(version == MPI_VERSION && subversion == MPI_SUBVERSION && version >= 3);
    MPI_Get_library_version(text, &length);
    CHECK(length > 0 && (length == (int)strlen(text) || !STRICT));
    MPI_Initialized(&flag);
    CHECK(flag);
    MPI_Finalized(&flag);
    CHECK(!flag);
    MPI_Query_thread(&got);
    CHECK_EQUAL(got, level);
    MPI_Is_thread_main(&flag);
    CHECK(flag);
    MPI_Alloc_mem(100 * sizeof *memory, MPI_INFO_NULL, &memory);
    for (int i = 0; i < 100; i++)
        memory[i] = i;
    CHECK(memory[99] == 99);
    MPI_Free_mem(memory);
    CHECK(MPI_Wtick() > 0 && MPI_Wtick() < 1);
    CHECK(MPI_Wtime() >= before && MPI_Wtime() < before + 60);
    MPI_Pcontrol(1);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

static void sum_of(void *in, void *inout, int *count, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *count; i++)
        ((int *)inout)[2 * i] += ((int *)in)[2 * i];
}

typedef struct worker { pthread_t thread; MPI_Comm comm; int number, wrong; } worker;

/* Messages, collectives, types and operations, in a communicator of its own. */
static void *work(void *argument)
{
    worker *w = argument;
    int n = check.size, next = (check.rank + 1) % n, before = (check.rank + n - 1) % n, main_thread = 1;
    MPI_Is_thread_main(&main_thread);
    w->wrong += main_thread;
    for (int i = 0; i < ROUNDS; i++) {
        int out[4] = { check.rank, w->number, i, -1 }, in[4] = { 0 }, sum[4] = { -1, -1, -1, -1 };
        MPI_Datatype spread;
        MPI_Op op;
        MPI_Request r[2];
        MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &spread);
        MPI_Type_commit(&spread);
        MPI_Irecv(in, 2, spread, before, i, w->comm, &r[0]);
        MPI_Isend(out, 2, spread, next, i, w->comm, &r[1]);
        MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
        w->wrong += in[0] != before || in[1] != 0 || in[2] != i || in[3] != 0;
        MPI_Op_create(sum_of, 1, &op);
        MPI_Allreduce(out, sum, 2, spread, op, w->comm);
        w->wrong += sum[0] != n * (n - 1) / 2 || sum[1] != -1 || sum[2] != n * i || sum[3] != -1;
        MPI_Iallreduce(MPI_IN_PLACE, out, 3, MPI_INT, MPI_MAX, w->comm, r);
        MPI_Wait(r, MPI_STATUS_IGNORE);
        w->wrong += out[0] != n - 1 || out[1] != w->number || out[2] != i || out[3] != -1;
        MPI_Op_free(&op);
        MPI_Type_free(&spread);
    }
    return NULL;
}

static void threads(void)
{
    worker workers[THREADS];
    if (level < MPI_THREAD_MULTIPLE) {
        CHECK(!STRICT);
        return;
    }
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){ .number = i };
        MPI_Comm_dup(MPI_COMM_WORLD, &workers[i].comm);
    }
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        CHECK_EQUAL(workers[i].wrong, 0);
        MPI_Comm_free(&workers[i].comm);
    }
}

/* Several threads make communicators of one at a time: tags tell them apart. */
typedef struct maker { pthread_t thread; int number, wrong; } maker;

static void *make_comms(void *argument)
{
    maker *m = argument;
    MPI_Group world, group;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, 1 + m->number % check.size, (int[]){ 0, 1, 2, 3, 4, 5, 6, 7 }, &group);
    for (int i = 0; i < 20; i++) {
        MPI_Comm comm;
        int sum = 0, one = 1, n = 1 + m->number % check.size;
        if (check.rank >= n)
            continue;
        MPI_Comm_create_group(MPI_COMM_WORLD, group, m->number, &comm);
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
        m->wrong += sum != n;
        MPI_Comm_free(&comm);
    }
    MPI_Group_free(&group);
    MPI_Group_free(&world);
    return NULL;
}

static void threads_make_comms(void)
{
    enum { MAKERS = 5 };
    maker makers[MAKERS];
    if (level < MPI_THREAD_MULTIPLE || check.size > 8)
        return;
    for (int i = 0; i < MAKERS; i++) {
        makers[i] = (maker){ .number = i };
        CHECK(pthread_create(&makers[i].thread, NULL, make_comms, &makers[i]) == 0);
    }
    for (int i = 0; i < MAKERS; i++) {
        pthread_join(makers[i].thread, NULL);
        CHECK_EQUAL(makers[i].wrong, 0);
    }
}

/* One thread sets error handlers and frees them, while others ask for them. */
static void ignore(MPI_Comm *comm, int *code, ...)
{
    (void)comm, (void)code;
}

static void *set_handlers(void *argument)
{
    for (int i = 0; i < 2000; i++) {
        MPI_Errhandler handler;
        MPI_Comm_create_errhandler(ignore, &handler);
        MPI_Comm_set_errhandler(*(MPI_Comm *)argument, handler);
        MPI_Errhandler_free(&handler);
    }
    return NULL;
}

static void threads_and_handlers(void)
{
    MPI_Comm comm;
    pthread_t thread;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    if (STRICT && level >= MPI_THREAD_MULTIPLE) {       /* others free what is asked for */
        CHECK(pthread_create(&thread, NULL, set_handlers, &comm) == 0);
        for (int i = 0; i < 2000; i++) {
            MPI_Errhandler handler;
            MPI_Comm_get_errhandler(comm, &handler);
            MPI_Errhandler_free(&handler);
            MPI_Send(NULL, 0, MPI_INT, check.size, 0, comm);
        }
        pthread_join(thread, NULL);
    }
    MPI_Comm_free(&comm);
}

/* One thread waits in Buffer_detach for a message that another receives, which frees and buffers meanwhile. */
static void *receive_late(void *argument)
{
    static int in[200000];
    int x = 1, y = 0;
    MPI_Request r;
    (void)argument;
    nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
    MPI_Isend(&x, 1, MPI_INT, 0, 2, MPI_COMM_SELF, &r);
    MPI_Request_free(&r);
    MPI_Recv(&y, 1, MPI_INT, 0, 2, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    MPI_Recv(in, 200000, MPI_INT, 0, 1, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    return in[199999] == 5 && y == 1 ? NULL : argument;
}

static void threads_and_buffers(void)
{
    static int out[200000];
    int bytes, size;
    void *buffer, *got, *wrong = &size;
    pthread_t thread;
    if (level < MPI_THREAD_MULTIPLE)
        return;
    MPI_Pack_size(200000, MPI_INT, MPI_COMM_SELF, &bytes);
    buffer = malloc((size_t)bytes + MPI_BSEND_OVERHEAD);
    MPI_Buffer_attach(buffer, bytes + MPI_BSEND_OVERHEAD);
    out[199999] = 5;
    MPI_Bsend(out, 200000, MPI_INT, 0, 1, MPI_COMM_SELF);
    CHECK(pthread_create(&thread, NULL, receive_late, &size) == 0);
    MPI_Buffer_detach(&got, &size);
    pthread_join(thread, &wrong);
    CHECK(got == buffer && wrong == NULL);
    free(buffer);
}

/* ---- forgotten --------------------------------------------------------------------------------------------------- */


static int forgotten_in[4], forgotten_out[4] = { 6, 0, 7 };

/* Nothing of this is freed. */
static void forgotten(void)
{
    MPI_Datatype spread, more;
    MPI_Comm c, self;
    MPI_Group group;
    MPI_Op op;
    MPI_Errhandler handler;
    MPI_Request r;
    int next = (check.rank + 1) % check.size, before = (check.rank + check.size - 1) % check.size;
    MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &spread);
    MPI_Type_contiguous(2, spread, &more);
    MPI_Type_commit(&more);
    MPI_Comm_dup(MPI_COMM_WORLD, &c);
    MPI_Comm_dup(MPI_COMM_SELF, &self);
    MPI_Comm_group(c, &group);
    MPI_Group_excl(group, 0, NULL, &group);
    MPI_Op_create(sum_of, 1, &op);
    MPI_Comm_create_errhandler(ignore, &handler);
    MPI_Comm_set_errhandler(c, handler);
    MPI_Send_init(forgotten_out, 1, more, next, 1, c, &r);
    if (STRICT) {                       /* nor completed, as it should be */
        MPI_Irecv(forgotten_in, 1, more, before, 9, c, &r);
        MPI_Isend(forgotten_out, 1, more, next, 2, c, &r);
        MPI_Recv(forgotten_in, 2, MPI_INT, before, 2, c, MPI_STATUS_IGNORE);
        CHECK(forgotten_in[0] == 6 && forgotten_in[1] == 7);
    }
}

/* ---- early ends -------------------------------------------------------------------------------------------------- */

enum { LONG = 500000, SHORT = 100 };

/* Freed, buffered, forgotten; SHORT of them are more than a receiver has room for. */
static void send_in_vain(int to)
{
    static int out[LONG], buffer[LONG + 1000];
    MPI_Request r;
    MPI_Issend(out, 1, MPI_INT, to, 8, MPI_COMM_WORLD, &r);
    MPI_Request_free(&r);
    MPI_Isend(out, LONG, MPI_INT, to, 8, MPI_COMM_WORLD, &r);
    MPI_Request_free(&r);
    for (int i = 0; i < SHORT; i++) {
        MPI_Isend(out, 100, MPI_INT, to, 8, MPI_COMM_WORLD, &r);
        MPI_Request_free(&r);
    }
    MPI_Buffer_attach(buffer, sizeof buffer);
    MPI_Bsend(out, LONG, MPI_INT, to, 8, MPI_COMM_WORLD);
    MPI_Isend(out, LONG, MPI_INT, to, 8, MPI_COMM_WORLD, &r);
}

/* How many numbers are wrong of those that rank 0 has sent and forgotten. The nap is for it to get into MPI_Finalize. */
static int receive_from_the_end(void)
{
    static int numbers[LONG];
    int wrong = 0;
    MPI_Request r;
    for (int i = 0; i < LONG && check.rank == 0; i++)
        numbers[i] = i + 1;
    if (check.rank == 0) {
        MPI_Isend(numbers, LONG, MPI_INT, check.size - 1, 7, MPI_COMM_WORLD, &r);
        MPI_Request_free(&r);
    } else if (check.rank == check.size - 1) {
        MPI_Probe(0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        nanosleep(&(struct timespec){ .tv_nsec = 200000000 }, NULL);
        MPI_Recv(numbers, LONG, MPI_INT, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 0; i < LONG; i++)
            wrong += numbers[i] != i + 1;
    }
    return wrong;
}

static void aborts(void *in, void *inout, int *count, MPI_Datatype *type)
{
    (void)in, (void)inout, (void)count, (void)type;
    MPI_Abort(MPI_COMM_WORLD, 9);
}

/* By whoever reduces; whoever does not waits. */
static void abort_inside(void)
{
    int x = 1, y;
    MPI_Op op;
    MPI_Op_create(aborts, 1, &op);
    MPI_Allreduce(&x, &y, 1, MPI_INT, op, MPI_COMM_WORLD);
    pause();
}

static int early(const char *how)
{
    int x = 0;
    MPI_Request r;
    if (strcmp(how, "forget") == 0) {
        MPI_Irecv(&x, 1, MPI_INT, 0, 9, MPI_COMM_WORLD, &r);
        send_in_vain((check.rank + 1) % check.size);
        return MPI_Finalize();
    }
    if (strcmp(how, "late") == 0)
        return (receive_from_the_end() > 0) + MPI_Finalize();
    MPI_Barrier(MPI_COMM_WORLD);
    if (check.rank == check.size - 1 && strcmp(how, "abort") == 0)
        MPI_Abort(MPI_COMM_WORLD, 7);
    if (check.rank == 0 && strcmp(how, "zero") == 0)
        MPI_Abort(MPI_COMM_WORLD, 0);
    if (strcmp(how, "zero") == 0)
        pause();
    if (strcmp(how, "inside") == 0)
        abort_inside();
    if (check.rank == check.size - 1)
        MPI_Send(&x, 1, MPI_INT, check.size, 0, MPI_COMM_WORLD);
    MPI_Recv(&x, 1, MPI_INT, check.size - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return 0;                           /* nobody comes here */
}

int main(int argc, char **argv)
{
    int flag = 1;
    MPI_Initialized(&flag);
    if (flag)
        return 1;
    MPI_Finalized(&flag);
    if (flag)
        return 1;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    check_begin(&argc, &argv, 60);
    if (argc > 1)
        return early(argv[1]);
    run("surroundings", surroundings);
    run("threads", threads);
    run("threads make communicators", threads_make_comms);
    run("threads and error handlers", threads_and_handlers);
    run("threads and buffers", threads_and_buffers);
    run("forgotten", forgotten);
    int status = check_end();
    MPI_Initialized(&flag);
    status |= !flag;
    MPI_Finalized(&flag);
    return status | !flag;
}
