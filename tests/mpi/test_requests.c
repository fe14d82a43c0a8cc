/* test_requests.c: requests and the calls that complete them, alone and many, with null, idle and complete ones among them;
 * what stands in statuses; persistent ones; cancelled and freed ones.
 * SPDX-License-Identifier: MIT
 */
#include "check.h"

enum { MANY = 100, TAG = 3, MARK = -77 };

static int next, before;
static MPI_Comm quiet;                  /* errors return */

static void is_empty(const MPI_Status *status)
{
    int count = -1, cancelled = 1;
    CHECK_EQUAL(status->MPI_SOURCE, MPI_ANY_SOURCE);
    CHECK_EQUAL(status->MPI_TAG, MPI_ANY_TAG);
    MPI_Get_count(status, MPI_INT, &count);
    CHECK_EQUAL(count, 0);
    MPI_Test_cancelled(status, &cancelled);
    CHECK(!cancelled);
}

static void marked(MPI_Status statuses[], int n)
{
    for (int i = 0; i < n; i++)
        statuses[i].MPI_ERROR = MARK;
}

static int class_of(int err)
{
    int class;
    MPI_Error_class(err, &class);
    return class;
}

/* ---- null ones --------------------------------------------------------------------------------------------------- */

static void null_ones(void)
{
    MPI_Request r[3] = { MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL };
    MPI_Status s[3];
    int flag = 0, index = 0, count = 0, indices[3];
    CHECK_EQUAL(MPI_Wait(&r[0], &s[0]), MPI_SUCCESS);
    is_empty(&s[0]);
    MPI_Test(&r[0], &flag, &s[1]);
    CHECK(flag);
    is_empty(&s[1]);
    MPI_Waitall(3, r, s);
    for (int i = 0; i < 3; i++)
        is_empty(&s[i]);
    MPI_Testall(3, r, &flag, s);
    CHECK(flag);
    MPI_Waitany(3, r, &index, s);
    CHECK_EQUAL(index, MPI_UNDEFINED);
    is_empty(s);
    flag = 0;
    MPI_Testany(3, r, &index, &flag, s);
    CHECK(flag && index == MPI_UNDEFINED);
    is_empty(s);
    MPI_Waitsome(3, r, &count, indices, s);
    CHECK_EQUAL(count, MPI_UNDEFINED);
    MPI_Testsome(3, r, &count, indices, s);
    CHECK_EQUAL(count, MPI_UNDEFINED);
    MPI_Request_get_status(r[0], &flag, s);
    CHECK(flag);
    is_empty(s);
    MPI_Waitall(0, NULL, MPI_STATUSES_IGNORE);
    MPI_Testall(0, NULL, &flag, MPI_STATUSES_IGNORE);
    CHECK(flag);
    MPI_Waitany(0, NULL, &index, MPI_STATUS_IGNORE);
    CHECK_EQUAL(index, MPI_UNDEFINED);
    MPI_Waitsome(0, NULL, &count, indices, MPI_STATUSES_IGNORE);
    CHECK_EQUAL(count, MPI_UNDEFINED);
}

/* ---- many -------------------------------------------------------------------------------------------------------- */

/* Receives with tags 0 .. MANY - 1, every third of them null, and the sends for them, last tag first. */
typedef struct many { MPI_Request r[2 * MANY]; MPI_Status s[2 * MANY]; int in[MANY], out[MANY]; } many;

static void begin(many *m, int length)
{
    for (int i = 0; i < MANY; i++) {
        m->in[i] = -1;
        m->r[i] = MPI_REQUEST_NULL;
        if (i % 3)
            MPI_Irecv(&m->in[i], length, MPI_INT, before, i, MPI_COMM_WORLD, &m->r[i]);
    }
    for (int i = MANY - 1; i >= 0; i--) {
        m->out[i] = check.rank * 1000 + i;
        m->r[MANY + i] = MPI_REQUEST_NULL;
        if (i % 3)
            MPI_Isend(&m->out[i], length, MPI_INT, next, i, MPI_COMM_WORLD, &m->r[MANY + i]);
    }
    marked(m->s, 2 * MANY);
}

static void finished(const many *m)
{
    int wrong = 0;
    for (int i = 0; i < MANY; i++)
        wrong += m->in[i] != (i % 3 ? before * 1000 + i : -1);
    for (int i = 0; i < 2 * MANY; i++)
        wrong += m->r[i] != MPI_REQUEST_NULL;
    CHECK_EQUAL(wrong, 0);
}

static void received(const MPI_Status *status, int i)
{
    int count = 0;
    CHECK_EQUAL(status->MPI_SOURCE, before);
    CHECK_EQUAL(status->MPI_TAG, i);
    MPI_Get_count(status, MPI_INT, &count);
    CHECK_EQUAL(count, 1);
}

static void all_at_once(void)
{
    static many m;
    for (int tests = 0; tests < 3; tests++) {
        int flag = 0, wrong = 0;
        begin(&m, 1);
        if (tests == 0)
            CHECK_EQUAL(MPI_Waitall(2 * MANY, m.r, m.s), MPI_SUCCESS);
        else if (tests == 1)
            CHECK_EQUAL(MPI_Waitall(2 * MANY, m.r, MPI_STATUSES_IGNORE), MPI_SUCCESS);
        else
            while (!flag) {
                MPI_Testall(2 * MANY, m.r, &flag, m.s);
                for (int i = 0; i < 2 * MANY && !flag; i++)     /* none is taken before all are complete */
                    wrong += (m.r[i] == MPI_REQUEST_NULL) != (i % MANY % 3 == 0);
            }
        CHECK_EQUAL(wrong, 0);
        finished(&m);
        for (int i = 0; i < MANY && tests != 1; i++)
            if (i % 3)
                received(&m.s[i], i);
            else
                is_empty(&m.s[i]);
        for (int i = 0; i < MANY; i++)  /* 3.2.5: only where MPI_ERR_IN_STATUS is returned */
            wrong += i % 3 && m.s[i].MPI_ERROR != MARK;
        CHECK(wrong == 0 || !STRICT);
    }
}

static void one_by_one(void)
{
    static many m;
    for (int tests = 0; tests < 2; tests++) {
        int left = 2 * (MANY - (MANY + 2) / 3), index, flag;
        MPI_Status status;
        begin(&m, 1);
        while (left > 0) {
            flag = 1;
            if (tests)
                MPI_Testany(2 * MANY, m.r, &index, &flag, &status);
            else
                MPI_Waitany(2 * MANY, m.r, &index, &status);
            if (!flag)
                continue;
            left--;
            if (!CHECK(index >= 0 && index < 2 * MANY && index % MANY % 3 != 0 && m.r[index] == MPI_REQUEST_NULL))
                return;
            if (index < MANY)
                received(&status, index);
        }
        finished(&m);
        MPI_Waitany(2 * MANY, m.r, &index, MPI_STATUS_IGNORE);
        CHECK_EQUAL(index, MPI_UNDEFINED);
    }
}

static void some_at_a_time(void)
{
    static many m;
    static int indices[2 * MANY];
    for (int tests = 0; tests < 2; tests++) {
        int left = 2 * (MANY - (MANY + 2) / 3), n;
        begin(&m, 1);
        while (left > 0) {
            if (tests)
                MPI_Testsome(2 * MANY, m.r, &n, indices, m.s);
            else
                MPI_Waitsome(2 * MANY, m.r, &n, indices, m.s);
            if (!CHECK(n >= !tests && n <= left))
                return;
            left -= n;
            for (int i = 0; i < n; i++)
                if (CHECK(indices[i] >= 0 && indices[i] < 2 * MANY && m.r[indices[i]] == MPI_REQUEST_NULL) && indices[i] < MANY)
                    received(&m.s[i], indices[i]);
        }
        finished(&m);
    }
}

static void not_yet(void)
{
    MPI_Request r[2] = { MPI_REQUEST_NULL, MPI_REQUEST_NULL };
    int in = -1, out = check.rank, flag = 1, index = 0, n = -1, indices[2];
    MPI_Irecv(&in, 1, MPI_INT, before, TAG, MPI_COMM_WORLD, &r[1]);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Test(&r[1], &flag, MPI_STATUS_IGNORE);
    CHECK(!flag);
    MPI_Testall(2, r, &flag, MPI_STATUSES_IGNORE);
    CHECK(!flag);
    MPI_Testany(2, r, &index, &flag, MPI_STATUS_IGNORE);
    CHECK(!flag && index == MPI_UNDEFINED);
    MPI_Testsome(2, r, &n, indices, MPI_STATUSES_IGNORE);
    CHECK_EQUAL(n, 0);
    MPI_Request_get_status(r[1], &flag, MPI_STATUS_IGNORE);
    CHECK(!flag);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Send(&out, 1, MPI_INT, next, TAG, MPI_COMM_WORLD);
    for (flag = 0; !flag;) {
        MPI_Status status;
        MPI_Request_get_status(r[1], &flag, &status);
        if (flag)
            CHECK(status.MPI_SOURCE == before && status.MPI_TAG == TAG && r[1] != MPI_REQUEST_NULL);
    }
    CHECK_EQUAL(in, before);
    MPI_Waitany(2, r, &index, MPI_STATUS_IGNORE);       /* it is complete, and was not taken */
    CHECK(index == 1 && r[1] == MPI_REQUEST_NULL);
}

/* ---- errors in statuses ------------------------------------------------------------------------------------------ */

/* Three receives, of which the second is too short. */
static void begin_short(MPI_Request r[4], int in[6], int out[6])
{
    for (int i = 0; i < 3; i++) {
        out[2 * i] = out[2 * i + 1] = i;
        in[2 * i] = in[2 * i + 1] = -1;
        MPI_Irecv(&in[2 * i], i == 1 ? 1 : 2, MPI_INT, before, i, quiet, &r[i]);
    }
    r[3] = MPI_REQUEST_NULL;
    MPI_Barrier(quiet);
    for (int i = 0; i < 3; i++)
        MPI_Send(&out[2 * i], 2, MPI_INT, next, i, quiet);
}

static void errors_in_statuses(void)
{
    MPI_Request r[4];
    MPI_Status s[4];
    int in[6], out[6], n, indices[4], taken = 0, told = 0, index;
    begin_short(r, in, out);
    marked(s, 4);
    CHECK_EQUAL(class_of(MPI_Waitall(4, r, s)), MPI_ERR_IN_STATUS);
    if (!STRICT)                        /* others may leave what is pending */
        while (MPI_Waitall(4, r, MPI_STATUSES_IGNORE) != MPI_SUCCESS);
    for (int i = 0; i < 4; i++)
        CHECK(i == 1 || s[i].MPI_ERROR == MPI_SUCCESS || (!STRICT && class_of(s[i].MPI_ERROR) == MPI_ERR_PENDING));
    CHECK_EQUAL(class_of(s[1].MPI_ERROR), MPI_ERR_TRUNCATE);
    CHECK(s[1].MPI_SOURCE == before && s[1].MPI_TAG == 1);
    CHECK(in[0] == 0 && in[1] == 0 && in[3] == -1 && in[4] == 2 && in[5] == 2);
    for (int i = 0; i < 4; i++)
        CHECK(r[i] == MPI_REQUEST_NULL);
    begin_short(r, in, out);
    while (taken < 3) {
        marked(s, 4);
        int err = MPI_Waitsome(4, r, &n, indices, s), here = 0;
        if (!CHECK(n > 0))
            return;
        taken += n;
        for (int i = 0; i < n; i++)
            here |= indices[i] == 1;
        CHECK_EQUAL(class_of(err), here ? MPI_ERR_IN_STATUS : MPI_SUCCESS);
        for (int i = 0; i < n && here; i++)
            CHECK_EQUAL(class_of(s[i].MPI_ERROR), indices[i] == 1 ? MPI_ERR_TRUNCATE : MPI_SUCCESS);
        told += here;
    }
    CHECK_EQUAL(told, 1);
    begin_short(r, in, out);
    for (int i = told = 0; i < 3; i++) {        /* one request: its own error */
        int err = MPI_Waitany(4, r, &index, s);
        CHECK_EQUAL(class_of(err), index == 1 ? MPI_ERR_TRUNCATE : MPI_SUCCESS);
        told += index == 1;
    }
    CHECK_EQUAL(told, 1);
}

/* ---- persistent -------------------------------------------------------------------------------------------------- */

typedef int init_fn(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);

static void again_and_again(void)
{
    init_fn *const kinds[] = { MPI_Send_init, MPI_Ssend_init, MPI_Bsend_init };
    enum { N = 500, ROUNDS = 5 };
    static int in[2 * N], out[N];
    int bytes, size;
    void *buffer;
    MPI_Pack_size(N, MPI_INT, MPI_COMM_WORLD, &bytes);
    buffer = malloc((size_t)bytes + MPI_BSEND_OVERHEAD);
    for (int kind = 0; kind < 3; kind++) {
        MPI_Request r[2];
        MPI_Status s[2];
        MPI_Datatype spread;
        MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &spread);
        MPI_Type_commit(&spread);
        MPI_Buffer_attach(buffer, bytes + MPI_BSEND_OVERHEAD);
        MPI_Recv_init(in, N, spread, before, TAG, MPI_COMM_WORLD, &r[0]);
        kinds[kind](out, N, MPI_INT, next, TAG, MPI_COMM_WORLD, &r[1]);
        MPI_Type_free(&spread);
        for (int round = 0; round < ROUNDS; round++) {
            int wrong = 0, flag = 0;
            CHECK_EQUAL(MPI_Wait(&r[0], &s[0]), MPI_SUCCESS);   /* idle ones count as complete */
            is_empty(&s[0]);
            MPI_Testall(2, r, &flag, s);
            CHECK(flag);
            MPI_Waitany(2, r, &size, &s[0]);
            CHECK_EQUAL(size, MPI_UNDEFINED);
            for (int i = 0; i < N; i++) {
                out[i] = check.rank * 1000 + round * 100 + i;
                in[2 * i] = in[2 * i + 1] = -1;
            }
            if (round % 2)
                MPI_Startall(2, r);
            else {
                MPI_Start(&r[0]);
                MPI_Start(&r[1]);
            }
            if (round < 3)
                MPI_Waitall(2, r, s);
            else
                for (int left = 2; left > 0; left--) {
                    int index;
                    MPI_Waitany(2, r, &index, &s[1]);
                    if (index == 0)
                        s[0] = s[1];
                }
            CHECK(r[0] != MPI_REQUEST_NULL && r[1] != MPI_REQUEST_NULL);
            CHECK(s[0].MPI_SOURCE == before && s[0].MPI_TAG == TAG);
            for (int i = 0; i < N; i++)
                wrong += in[2 * i] != before * 1000 + round * 100 + i || in[2 * i + 1] != -1;
            CHECK_EQUAL(wrong, 0);
        }
        MPI_Buffer_detach(&(void *){ NULL }, &size);
        MPI_Request_free(&r[0]);
        MPI_Request_free(&r[1]);
        CHECK(r[0] == MPI_REQUEST_NULL && r[1] == MPI_REQUEST_NULL);
    }
    free(buffer);
}

/* ---- cancelled, freed -------------------------------------------------------------------------------------------- */

static void cancelled(void)
{
    int in = -1, out = 8, flag = 0;
    MPI_Request r[2];
    MPI_Status s;
    MPI_Irecv(&in, 1, MPI_INT, before, 99, MPI_COMM_WORLD, &r[0]);      /* never sent */
    MPI_Cancel(&r[0]);
    CHECK_EQUAL(MPI_Wait(&r[0], &s), MPI_SUCCESS);
    MPI_Test_cancelled(&s, &flag);
    CHECK(flag && r[0] == MPI_REQUEST_NULL && in == -1);
    MPI_Irecv(&in, 1, MPI_INT, before, TAG, MPI_COMM_WORLD, &r[0]);     /* has come before it is cancelled */
    MPI_Send(&out, 1, MPI_INT, next, TAG, MPI_COMM_WORLD);
    for (flag = 0; !flag;)
        MPI_Request_get_status(r[0], &flag, MPI_STATUS_IGNORE);
    MPI_Cancel(&r[0]);
    MPI_Wait(&r[0], &s);
    MPI_Test_cancelled(&s, &flag);
    CHECK(!flag && in == 8);
    MPI_Recv_init(&in, 1, MPI_INT, before, 99, MPI_COMM_WORLD, &r[0]);  /* persistent: it can be started again */
    MPI_Start(&r[0]);
    MPI_Cancel(&r[0]);
    MPI_Waitall(1, r, &s);
    MPI_Test_cancelled(&s, &flag);
    CHECK(flag && r[0] != MPI_REQUEST_NULL);
    out = 9;
    MPI_Barrier(MPI_COMM_WORLD);        /* nobody waits for that tag in vain any more */
    MPI_Start(&r[0]);
    MPI_Isend(&out, 1, MPI_INT, next, 99, MPI_COMM_WORLD, &r[1]);
    MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
    CHECK_EQUAL(in, 9);
    MPI_Request_free(&r[0]);
}

enum { LONG = 2000000 };                /* ints: more than goes before somebody asks for it */

/* Nobody receives it, and nobody has to: waiting for it ends. */
static void cancelled_sends(void)
{
    int *out = calloc(LONG, sizeof(int)), in = -1, flag = 0;
    MPI_Request r;
    MPI_Status s;
    for (int how = 0; STRICT && how < 3; how++) {       /* others leave it to the receiver */
        if (how == 0)
            MPI_Isend(out, LONG, MPI_INT, next, TAG, MPI_COMM_WORLD, &r);
        else if (how == 1)
            MPI_Issend(out, 1, MPI_INT, next, TAG, MPI_COMM_WORLD, &r);
        else
            MPI_Issend(out, 1, MPI_INT, check.rank, TAG, MPI_COMM_WORLD, &r);
        MPI_Barrier(MPI_COMM_WORLD);    /* it has been announced */
        MPI_Cancel(&r);
        for (flag = 0; how == 1 && !flag;)
            MPI_Request_get_status(r, &flag, &s);
        MPI_Test_cancelled(&s, &flag);
        CHECK(how != 1 || flag);
        CHECK_EQUAL(MPI_Wait(&r, &s), MPI_SUCCESS);
        MPI_Test_cancelled(&s, &flag);
        CHECK(flag && r == MPI_REQUEST_NULL);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &s);
        CHECK(!flag);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    out[0] = 7;
    MPI_Isend(out, 1, MPI_INT, next, TAG, MPI_COMM_WORLD, &r);
    MPI_Recv(&in, 1, MPI_INT, before, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&r, MPI_STATUS_IGNORE);
    CHECK_EQUAL(in, 7);
    free(out);
}

/* A send and its receive agree on what became of it. */
static void cancelled_too_late(void)
{
    int *out = calloc(LONG, sizeof(int)), *in = calloc(LONG, sizeof(int)), flag = 0, came = 0, told;
    MPI_Request r[2];
    MPI_Status s;
    out[LONG - 1] = 5;
    MPI_Irecv(in, LONG, MPI_INT, before, TAG, MPI_COMM_WORLD, &r[0]);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Isend(out, LONG, MPI_INT, next, TAG, MPI_COMM_WORLD, &r[1]);
    MPI_Cancel(&r[1]);
    MPI_Wait(&r[1], &s);
    MPI_Test_cancelled(&s, &flag);
    MPI_Sendrecv(&flag, 1, MPI_INT, next, 98, &told, 1, MPI_INT, before, 98, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (told)
        MPI_Cancel(&r[0]);
    MPI_Wait(&r[0], &s);
    MPI_Test_cancelled(&s, &came);
    CHECK(!!came == !!told && in[LONG - 1] == (told ? 0 : 5));
    free(out);
    free(in);
}

static void freed(void)
{
    enum { N = 100000 };                /* longer than what goes at once */
    int *out = malloc(N * sizeof(int)), *in = malloc(N * sizeof(int)), wrong = 0;
    MPI_Request r;
    for (int i = 0; i < N; i++)
        out[i] = check.rank + i;
    MPI_Isend(out, N, MPI_INT, next, TAG, MPI_COMM_WORLD, &r);
    MPI_Request_free(&r);
    CHECK(r == MPI_REQUEST_NULL);
    MPI_Recv(in, N, MPI_INT, before, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < N; i++)
        wrong += in[i] != before + i;
    CHECK_EQUAL(wrong, 0);
    MPI_Barrier(MPI_COMM_WORLD);        /* then all have what was sent */
    free(out);
    free(in);
}

/* A receive into holes that was freed: what completes behind it tells that it has come. */
static void freed_into_holes(void)
{
    int out[2] = { 3, 4 };
    MPI_Datatype spread;
    MPI_Request r;
    MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &spread);
    MPI_Type_commit(&spread);
    for (int how = 0; how < 4; how++) {
        int in[4] = { -1, -1, -1, -1 };
        MPI_Request sent = MPI_REQUEST_NULL;
        MPI_Irecv(in, 2, spread, before, TAG, MPI_COMM_WORLD, &r);
        MPI_Request_free(&r);
        MPI_Send(out, 2, MPI_INT, next, TAG, MPI_COMM_WORLD);
        if (how == 0) {                 /* of one sender, in order */
            MPI_Sendrecv(NULL, 0, MPI_INT, next, 98, NULL, 0, MPI_INT, before, 98, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else if (how == 1) {
            MPI_Isend(NULL, 0, MPI_INT, next, 98, MPI_COMM_WORLD, &sent);
            MPI_Recv(NULL, 0, MPI_INT, before, 98, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else if (how == 2) {
            MPI_Irecv(NULL, 0, MPI_INT, before, 98, MPI_COMM_WORLD, &r);
            MPI_Send(NULL, 0, MPI_INT, next, 98, MPI_COMM_WORLD);
            MPI_Wait(&r, MPI_STATUS_IGNORE);
        } else {
            MPI_Irecv(NULL, 0, MPI_INT, before, 98, MPI_COMM_WORLD, &r);
            MPI_Send(NULL, 0, MPI_INT, next, 98, MPI_COMM_WORLD);
            MPI_Waitall(1, &r, MPI_STATUSES_IGNORE);
        }
        CHECK(in[0] == 3 && in[1] == -1 && in[2] == 4 && in[3] == -1);
        MPI_Wait(&sent, MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Type_free(&spread);
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv, 100);
    next = (check.rank + 1) % check.size;
    before = (check.rank + check.size - 1) % check.size;
    MPI_Comm_dup(MPI_COMM_WORLD, &quiet);
    MPI_Comm_set_errhandler(quiet, MPI_ERRORS_RETURN);
    if (!STRICT)                        /* others tell the world of requests that fail together */
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    run("null requests", null_ones);
    run("all at once", all_at_once);
    run("one by one", one_by_one);
    run("some at a time", some_at_a_time);
    run("not yet", not_yet);
    run("errors in statuses", errors_in_statuses);
    run("persistent", again_and_again);
    run("cancelled", cancelled);
    run("cancelled sends", cancelled_sends);
    run("cancelled too late", cancelled_too_late);
    run("freed", freed);
    run("freed into holes", freed_into_holes);
    MPI_Comm_free(&quiet);
    return check_end();
}
