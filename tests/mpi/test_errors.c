/* test_errors.c: what becomes of wrong calls: their classes, and who hears of them.
 * SPDX-License-Identifier: MIT
 */
#include "check.h"

static MPI_Comm quiet;

static int class_of(int err)
{
    int class = -1;
    MPI_Error_class(err, &class);
    return class;
}
#define WRONG(call, want) CHECK_EQUAL(class_of(call), want)

static void messages(void)
{
    int x = 0, n = check.size;
    MPI_Request r;
    MPI_Status s;
    MPI_Datatype raw;
    MPI_Type_contiguous(2, MPI_INT, &raw);
    WRONG(MPI_Send(&x, 1, MPI_INT, n, 0, quiet), MPI_ERR_RANK);
    WRONG(MPI_Send(&x, 1, MPI_INT, MPI_ANY_SOURCE, 0, quiet), MPI_ERR_RANK);
    WRONG(MPI_Send(&x, 1, MPI_INT, 0, -1, quiet), MPI_ERR_TAG);
    WRONG(MPI_Send(&x, -1, MPI_INT, 0, 0, quiet), MPI_ERR_COUNT);
    WRONG(MPI_Send(&x, 1, MPI_DATATYPE_NULL, 0, 0, quiet), MPI_ERR_TYPE);
    if (STRICT)                         /* not committed: MPICH does not look */
        WRONG(MPI_Send(&x, 0, raw, 0, 0, quiet), MPI_ERR_TYPE);
    WRONG(MPI_Recv(&x, 1, MPI_INT, n, 0, quiet, &s), MPI_ERR_RANK);
    WRONG(MPI_Recv(&x, 1, MPI_INT, 0, -5, quiet, &s), MPI_ERR_TAG);
    WRONG(MPI_Recv(&x, -1, MPI_INT, 0, 0, quiet, &s), MPI_ERR_COUNT);
    WRONG(MPI_Isend(&x, 1, MPI_INT, n, 0, quiet, &r), MPI_ERR_RANK);
    WRONG(MPI_Irecv(&x, 1, MPI_INT, 0, -9, quiet, &r), MPI_ERR_TAG);
    WRONG(MPI_Sendrecv(&x, 1, MPI_INT, n, 0, NULL, 0, MPI_INT, 0, 0, quiet, &s), MPI_ERR_RANK);
    if (STRICT)                         /* nor here */
        WRONG(MPI_Sendrecv_replace(&x, -1, MPI_INT, 0, 0, 0, 0, quiet, &s), MPI_ERR_COUNT);
    WRONG(MPI_Probe(n, 0, quiet, &s), MPI_ERR_RANK);
    WRONG(MPI_Send_init(&x, 1, MPI_INT, n, 0, quiet, &r), MPI_ERR_RANK);
    MPI_Type_free(&raw);
}

static void collectives(void)
{
    int x[2] = { 0 }, y[2] = { 0 }, n = check.size;
    MPI_Request r;
    WRONG(MPI_Bcast(x, 1, MPI_INT, n, quiet), MPI_ERR_ROOT);
    WRONG(MPI_Bcast(x, -1, MPI_INT, 0, quiet), MPI_ERR_COUNT);
    WRONG(MPI_Bcast(x, 1, MPI_DATATYPE_NULL, 0, quiet), MPI_ERR_TYPE);
    WRONG(MPI_Reduce(x, y, 1, MPI_INT, MPI_SUM, -1, quiet), MPI_ERR_ROOT);
    WRONG(MPI_Allreduce(x, y, 1, MPI_INT, MPI_OP_NULL, quiet), MPI_ERR_OP);
    WRONG(MPI_Allreduce(x, y, 1, MPI_FLOAT, MPI_BAND, quiet), MPI_ERR_OP);
    WRONG(MPI_Allreduce(x, y, 1, MPI_INT, MPI_MAXLOC, quiet), MPI_ERR_OP);
    WRONG(MPI_Allreduce(x, y, -1, MPI_INT, MPI_SUM, quiet), MPI_ERR_COUNT);
    WRONG(MPI_Iallreduce(x, y, 1, MPI_FLOAT, MPI_BAND, quiet, &r), MPI_ERR_OP);
    WRONG(MPI_Gather(x, 1, MPI_INT, y, 1, MPI_INT, n + 3, quiet), MPI_ERR_ROOT);
    MPI_Barrier(quiet);                 /* nothing of that has begun anywhere */
    x[0] = check.rank;
    MPI_Allreduce(x, y, 1, MPI_INT, MPI_SUM, quiet);
    CHECK_EQUAL(y[0], n * (n - 1) / 2);
}

/* These have no communicator, or none that is one: the handler of the world hears of them. */
static void others(void)
{
    int x = 0, ranks[2] = { 0, check.size };
    MPI_Datatype t;
    MPI_Group world, g;
    MPI_Op op = MPI_SUM;
    MPI_Comm c = MPI_COMM_NULL;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    WRONG(MPI_Send(&x, 1, MPI_INT, 0, 0, MPI_COMM_NULL), MPI_ERR_COMM);
    WRONG(MPI_Comm_rank(MPI_COMM_NULL, &x), MPI_ERR_COMM);
    WRONG(MPI_Comm_free(&c), MPI_ERR_COMM);
    WRONG(MPI_Type_contiguous(-1, MPI_INT, &t), STRICT ? MPI_ERR_COUNT : class_of(MPI_Type_contiguous(-1, MPI_INT, &t)));
    WRONG(MPI_Type_contiguous(1, MPI_DATATYPE_NULL, &t), MPI_ERR_TYPE);
    WRONG(MPI_Type_indexed(1, &x, &x, MPI_DATATYPE_NULL, &t), MPI_ERR_TYPE);
    WRONG(MPI_Type_free(&(MPI_Datatype){ MPI_DATATYPE_NULL }), MPI_ERR_TYPE);
    WRONG(MPI_Op_free(&op), MPI_ERR_OP);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    WRONG(MPI_Group_incl(world, 1, &ranks[1], &g), MPI_ERR_RANK);
    WRONG(MPI_Group_size(MPI_GROUP_NULL, &x), MPI_ERR_GROUP);
    if (STRICT)                         /* Open MPI does not look */
        WRONG(MPI_Group_translate_ranks(world, 1, &ranks[1], world, &x), MPI_ERR_RANK);
    MPI_Group_free(&world);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

static void texts(void)
{
    const int classes[] = { MPI_SUCCESS, MPI_ERR_BUFFER, MPI_ERR_COUNT, MPI_ERR_TYPE, MPI_ERR_TAG, MPI_ERR_COMM, MPI_ERR_RANK,
                            MPI_ERR_REQUEST, MPI_ERR_ROOT, MPI_ERR_GROUP, MPI_ERR_OP, MPI_ERR_ARG, MPI_ERR_UNKNOWN,
                            MPI_ERR_TRUNCATE, MPI_ERR_OTHER, MPI_ERR_INTERN, MPI_ERR_PENDING, MPI_ERR_IN_STATUS };
    char text[MPI_MAX_ERROR_STRING], last[MPI_MAX_ERROR_STRING] = "";
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        int length = -1;
        MPI_Error_string(classes[i], text, &length);
        CHECK(length > 0 && length == (int)strlen(text) && strcmp(text, last) != 0);
        strcpy(last, text);
        CHECK_EQUAL(class_of(classes[i]), classes[i]);
        CHECK(classes[i] >= 0 && classes[i] <= MPI_ERR_LASTCODE);
    }
}

/* ---- handlers ---------------------------------------------------------------------------------------------------- */

static int heard, heard_class;
static MPI_Comm heard_comm;

static void hear(MPI_Comm *comm, int *code, ...)
{
    heard++;
    heard_class = class_of(*code);
    heard_comm = *comm;
}

static void heard_of(void)
{
    MPI_Errhandler handler, got;
    MPI_Comm c, child;
    MPI_Request r[2];
    int x = 0, n = check.size, y[4], next = (check.rank + 1) % n, before = (check.rank + n - 1) % n;
    MPI_Comm_dup(MPI_COMM_WORLD, &c);
    MPI_Comm_create_errhandler(hear, &handler);
    MPI_Comm_set_errhandler(c, handler);
    MPI_Comm_get_errhandler(c, &got);
    CHECK(got == handler);
    MPI_Errhandler_free(&got);
    MPI_Errhandler_free(&handler);
    CHECK(handler == MPI_ERRHANDLER_NULL);              /* the communicator still has it */
    WRONG(MPI_Send(&x, 1, MPI_INT, n, 0, c), MPI_ERR_RANK);
    CHECK(heard == 1 && heard_class == MPI_ERR_RANK && heard_comm == c);
    MPI_Comm_dup(c, &child);                            /* inherits it */
    WRONG(MPI_Bcast(&x, 1, MPI_INT, n, child), MPI_ERR_ROOT);
    CHECK(heard == 2 && heard_class == MPI_ERR_ROOT && heard_comm == child);
    MPI_Comm_set_errhandler(c, MPI_ERRORS_RETURN);
    WRONG(MPI_Send(&x, 1, MPI_INT, 0, -1, c), MPI_ERR_TAG);
    CHECK_EQUAL(heard, 2);
    MPI_Comm_call_errhandler(child, MPI_ERR_OTHER);
    CHECK(heard == 3 && heard_class == MPI_ERR_OTHER);
    MPI_Irecv(y, 1, MPI_INT, before, 0, child, &r[0]);  /* one that shows when it is completed */
    MPI_Barrier(child);
    MPI_Send(&(int[2]){ 1, 2 }, 2, MPI_INT, next, 0, child);
    if (STRICT || n > 1) {
        WRONG(MPI_Wait(&r[0], MPI_STATUS_IGNORE), MPI_ERR_TRUNCATE);
        CHECK(heard == 4 && heard_class == MPI_ERR_TRUNCATE && heard_comm == child);
    }
    if (STRICT) {                                       /* others tell the world of it */
        r[1] = MPI_REQUEST_NULL;
        MPI_Irecv(y, 1, MPI_INT, before, 0, child, &r[0]);
        MPI_Barrier(child);
        MPI_Send(&(int[2]){ 1, 2 }, 2, MPI_INT, next, 0, child);
        WRONG(MPI_Waitall(2, r, MPI_STATUSES_IGNORE), MPI_ERR_TRUNCATE);
        CHECK(heard == 5 && heard_comm == child);
    }
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &got);
    CHECK(got == MPI_ERRORS_ARE_FATAL);
    MPI_Errhandler_free(&got);
    MPI_Comm_free(&c);
    MPI_Comm_free(&child);
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv, 60);
    MPI_Comm_dup(MPI_COMM_WORLD, &quiet);
    MPI_Comm_set_errhandler(quiet, MPI_ERRORS_RETURN);
    run("messages", messages);
    run("collectives", collectives);
    run("others", others);
    run("texts", texts);
    run("handlers", heard_of);
    MPI_Comm_free(&quiet);
    return check_end();
}
