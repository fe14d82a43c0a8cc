/* request.c: requests: their completion, and those that nobody waits for.
 * SPDX-License-Identifier: MIT
 *
 * A request holds gridcomm's, which goes when it is complete. What is then known stays in result until the program asks:
 * so Testall and Request_get_status may look without taking. Messages to MPI_PROC_NULL are complete from the start.
 *
 * A persistent one stays when it is complete, inactive, which all calls take for no request at all.
 *
 * Orphans (buffered sends, requests that were freed) are completed when the next one comes, and at the end of the program.
 * Those that unpack what has come are looked at whenever something else completes, from which the program may know that it
 * has. A send that nobody receives is an error of the program's, but does not hold up its end: GRACE after all ranks are in
 * MPI_Finalize it is taken back. (Receives that were freed there may still get what is on its way.)
 */
#include "mpi_int.h"

#include <pthread.h>

enum { FEW = 64 };                      /* requests of one call for which no memory is asked */
#define GRACE 1.0                       /* s */

const gc_status gcm_nobody = { .source = MPI_PROC_NULL, .tag = MPI_ANY_TAG, .fault_rank = -1 };
static const gc_status nothing = { .source = MPI_ANY_SOURCE, .tag = MPI_ANY_TAG, .fault_rank = -1 };

static struct orphanage { pthread_mutex_t lock; MPI_Request first; } orphanage = { .lock = PTHREAD_MUTEX_INITIALIZER };
static atomic_int unpacked;             /* orphans whose data are still to be unpacked */
static atomic_int orphans, kept;        /* how many there are; and were, when they had last been looked at */

GCM void gcm_status_set(MPI_Status *to, const gc_status *from)
{
    if (to == MPI_STATUS_IGNORE)
        return;
    to->MPI_SOURCE = from->source;
    to->MPI_TAG = from->tag;
    to->gcm_bytes = from->bytes;
    to->gcm_cancelled = from->error == GC_ERR_CANCELLED;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static bool is_idle(const struct gcm_request *r) { return !r || (r->persistent && !r->active); }

/* Has it completed? Looks once, or waits. */
static bool request_done(MPI_Request r, bool wait)
{
    int done = 1;
    if (r->gc && wait)
        gc_wait(&r->gc, &r->result);
    else if (r->gc)
        gc_test(&r->gc, &done, &r->result);
    return done;
}

/* The program ends without having completed it, and all ranks are in MPI_Finalize: what is matched arrives, the rest never
 * will. A collective is not to be cancelled, and ends. */
static void request_forgotten(gcm_object *object)
{
    MPI_Request r = (MPI_Request)object;
    if (r->gc)
        gc_cancel(r->gc);
    request_done(r, true);
    gcm_request_drop(r, false, 0);
}

GCM MPI_Request gcm_request_new(MPI_Comm comm, const char *call)
{
    MPI_Request r = gcm_new(sizeof *r);
    if (!r)
        return NULL;
    r->object.end = request_forgotten;
    r->comm = comm;
    r->call = call;
    comm->refs++;
    return r;
}

static void request_close(MPI_Request r, bool store, size_t bytes)
{
    gcm_side_close(&r->send, false, 0);
    gcm_side_close(&r->recv, store, bytes);
}

GCM void gcm_request_drop(MPI_Request r, bool store, size_t bytes)
{
    request_close(r, store, bytes);
    if (r->persistent)
        gcm_type_drop(r->message.side.type);
    gcm_reduction_close(&r->reduction);
    gcm_comm_drop(r->comm);
    gcm_delete(r);
}

/* What a completed request's status tells. */
static const gc_status *result_of(const struct gcm_request *r)
{
    return r->receives || r->result.error == GC_ERR_CANCELLED ? &r->result : &nothing;
}

/* Gives a completed request's result to the program and frees it. Returns its error class, which nobody has heard of yet. */
static int request_take(MPI_Request *request, MPI_Status *status)
{
    MPI_Request r = *request;
    int err = r->result.error;
    gcm_status_set(status, result_of(r));
    bool store = err == GC_OK || err == GC_ERR_TRUNCATE;
    size_t bytes = r->receives ? r->result.bytes : SIZE_MAX;
    if (r->persistent) {
        request_close(r, store, bytes);
        r->active = false;
    } else {
        gcm_request_drop(r, store, bytes);
        *request = MPI_REQUEST_NULL;
    }
    return err == GC_ERR_CANCELLED ? MPI_SUCCESS : gcm_class(err);
}

/* The first failure among the requests of a call: whose handler hears of it, and why. */
typedef struct failure { int class; MPI_Comm comm; char why[MPI_MAX_ERROR_STRING]; } failure;

static void failure_note(failure *f, MPI_Request r)
{
    int err = r->result.error;
    if (f->class || err == GC_OK || err == GC_ERR_CANCELLED)
        return;
    f->class = gcm_class(err);
    f->comm = r->comm;
    f->comm->refs++;                    /* the request goes before */
    gc_last_error(r->comm->gc, NULL, f->why, sizeof f->why);
}

static int failure_tell(const failure *f, const char *call, bool in_statuses)
{
    gcm_orphans_unpack();
    if (!f->class)
        return MPI_SUCCESS;
    int class = gcm_error(f->comm, call, in_statuses ? MPI_ERR_IN_STATUS : f->class, f->why);
    gcm_comm_drop(f->comm);
    return class;
}

/* Takes the request of a call that completes one. */
static int request_finish(MPI_Request *request, MPI_Status *status)
{
    failure f = { 0 };
    const char *call = (*request)->call;
    failure_note(&f, *request);
    request_take(request, status);
    return failure_tell(&f, call, false);
}

static int none_left(MPI_Status *status)
{
    gcm_status_set(status, &nothing);
    if (status)
        status->MPI_ERROR = MPI_SUCCESS;
    return MPI_SUCCESS;
}

/* ---- one --------------------------------------------------------------------------------------------------------- */

int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
    if (!request)
        return GCM_FAIL(NULL, MPI_ERR_REQUEST);
    if (is_idle(*request))
        return none_left(status);
    request_done(*request, true);
    return request_finish(request, status);
}

int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status)
{
    if (!request || !flag)
        return GCM_FAIL(NULL, !request ? MPI_ERR_REQUEST : MPI_ERR_ARG);
    *flag = 1;
    if (is_idle(*request))
        return none_left(status);
    *flag = request_done(*request, false);
    return *flag ? request_finish(request, status) : MPI_SUCCESS;
}

int MPI_Request_get_status(MPI_Request request, int *flag, MPI_Status *status)
{
    if (!flag)
        return GCM_FAIL(NULL, MPI_ERR_ARG);
    *flag = is_idle(request) || request_done(request, false);
    if (*flag)
        gcm_status_set(status, is_idle(request) ? &nothing : result_of(request));
    return MPI_SUCCESS;
}

int MPI_Cancel(MPI_Request *request)
{
    if (!request || !*request)
        return GCM_FAIL(NULL, MPI_ERR_REQUEST);
    if ((*request)->gc)
        gc_cancel((*request)->gc);
    return MPI_SUCCESS;
}

int MPI_Test_cancelled(const MPI_Status *status, int *flag)
{
    if (!status || !flag)
        return GCM_FAIL(NULL, MPI_ERR_ARG);
    *flag = status->gcm_cancelled;
    return MPI_SUCCESS;
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

/* Takes all, which are complete. Where one failed every status tells of its own, and only there (MPI 3.1, 3.2.5). */
static int take_all(const char *call, int n, MPI_Request requests[], MPI_Status statuses[])
{
    failure f = { 0 };
    for (int i = 0; i < n; i++)
        if (!is_idle(requests[i]))
            failure_note(&f, requests[i]);
    for (int i = 0; i < n; i++) {
        MPI_Status *status = statuses ? &statuses[i] : MPI_STATUS_IGNORE;
        int class = is_idle(requests[i]) ? none_left(status) : request_take(&requests[i], status);
        if (status && f.class)
            status->MPI_ERROR = class;
    }
    return failure_tell(&f, call, statuses != NULL);
}

static int requests_check(const char *call, int n, const MPI_Request requests[], const void *other)
{
    if (n < 0 || (n > 0 && !requests) || !other)
        return gcm_error(NULL, call, n < 0 ? MPI_ERR_COUNT : !other ? MPI_ERR_ARG : MPI_ERR_REQUEST, NULL);
    return MPI_SUCCESS;
}

int MPI_Waitall(int n, MPI_Request requests[], MPI_Status statuses[])
{
    int class = requests_check(__func__, n, requests, "");
    if (class)
        return class;
    for (int i = 0; i < n; i++)
        if (!is_idle(requests[i]))
            request_done(requests[i], true);
    return take_all(__func__, n, requests, statuses);
}

int MPI_Testall(int n, MPI_Request requests[], int *flag, MPI_Status statuses[])
{
    int class = requests_check(__func__, n, requests, flag);
    if (class)
        return class;
    *flag = 1;
    for (int i = 0; *flag && i < n; i++)
        *flag = is_idle(requests[i]) || request_done(requests[i], false);
    return *flag ? take_all(__func__, n, requests, statuses) : MPI_SUCCESS;
}

/* ---- any and some ------------------------------------------------------------------------------------------------ */

/* Finds one that is complete: its index; -1: there is none left to wait for; -2: none is complete yet, or no memory. */
static int find_done(int n, const MPI_Request requests[], bool wait, int *class)
{
    gc_request *few[FEW], **list = n <= FEW ? few : malloc((size_t)n * sizeof(gc_request *));
    int found = -1, done = 1;
    gc_status status;
    *class = list ? MPI_SUCCESS : MPI_ERR_NO_MEM;
    if (!list)
        return -2;
    for (int i = 0; i < n; i++) {
        list[i] = is_idle(requests[i]) ? NULL : requests[i]->gc;
        if (!is_idle(requests[i]) && !requests[i]->gc && found < 0)
            found = i;
    }
    if (found < 0) {
        if (wait)
            gc_waitany(n, list, &found, &status);
        else
            gc_testany(n, list, &found, &done, &status);
        if (found >= 0 && done) {
            requests[found]->gc = NULL;
            requests[found]->result = status;
        }
    }
    if (list != few)
        free(list);
    return done ? found : -2;
}

static int find_any(const char *call, int n, MPI_Request requests[], bool wait, int *index, int *flag, MPI_Status *status)
{
    int class, found = find_done(n, requests, wait, &class);
    if (class)
        return gcm_error(NULL, call, class, NULL);
    *flag = found != -2;
    *index = found >= 0 ? found : MPI_UNDEFINED;
    return found >= 0 ? request_finish(&requests[found], status) : found == -1 ? none_left(status) : MPI_SUCCESS;
}

int MPI_Waitany(int n, MPI_Request requests[], int *index, MPI_Status *status)
{
    int flag, class = requests_check(__func__, n, requests, index);
    return class ? class : find_any(__func__, n, requests, true, index, &flag, status);
}

int MPI_Testany(int n, MPI_Request requests[], int *index, int *flag, MPI_Status *status)
{
    int class = requests_check(__func__, n, requests, index && flag ? index : NULL);
    return class ? class : find_any(__func__, n, requests, false, index, flag, status);
}

/* Takes all that are complete, if wait at least one. */
static int find_some(const char *call, int n, MPI_Request requests[], bool wait, int *count, int indices[],
                     MPI_Status statuses[])
{
    int class, k = 0, found;
    failure f = { 0 };
    while ((found = find_done(n, requests, wait && k == 0, &class)) >= 0) {
        int first = f.class ? k : 0;    /* of the statuses that do not tell of errors yet */
        failure_note(&f, requests[found]);
        int one = request_take(&requests[found], statuses ? &statuses[k] : MPI_STATUS_IGNORE);
        for (int i = first; statuses && f.class && i <= k; i++)
            statuses[i].MPI_ERROR = i < k ? MPI_SUCCESS : one;
        indices[k++] = found;
    }
    *count = k > 0 ? k : found == -1 ? MPI_UNDEFINED : 0;
    int told = failure_tell(&f, call, statuses != NULL);
    return class ? gcm_error(NULL, call, class, NULL) : told;
}

int MPI_Waitsome(int n, MPI_Request requests[], int *done, int indices[], MPI_Status statuses[])
{
    int class = requests_check(__func__, n, requests, done && (indices || n == 0) ? done : NULL);
    return class ? class : find_some(__func__, n, requests, true, done, indices, statuses);
}

int MPI_Testsome(int n, MPI_Request requests[], int *done, int indices[], MPI_Status statuses[])
{
    int class = requests_check(__func__, n, requests, done && (indices || n == 0) ? done : NULL);
    return class ? class : find_some(__func__, n, requests, false, done, indices, statuses);
}

/* ---- nobody waits ------------------------------------------------------------------------------------------------ */

GCM void gcm_request_orphan(MPI_Request r)
{
    pthread_mutex_lock(&orphanage.lock);
    r->next = orphanage.first;
    orphanage.first = r;
    orphans++;
    unpacked += r->recv.temp != NULL;
    pthread_mutex_unlock(&orphanage.lock);
}

GCM size_t gcm_orphans_sweep(void)
{
    size_t buffered = 0;
    pthread_mutex_lock(&orphanage.lock);
    for (MPI_Request *at = &orphanage.first; *at;) {
        MPI_Request r = *at;
        if (request_done(r, false)) {
            *at = r->next;
            orphans--;
            unpacked -= r->recv.temp != NULL;
            request_take(&r, MPI_STATUS_IGNORE);
        } else {
            buffered += r->buffered;
            at = &r->next;
        }
    }
    kept = orphans;
    pthread_mutex_unlock(&orphanage.lock);
    return buffered;
}

static MPI_Request orphan_out(bool any)
{
    pthread_mutex_lock(&orphanage.lock);
    MPI_Request *at = &orphanage.first;
    while (*at && !any && !(*at)->buffered)
        at = &(*at)->next;
    MPI_Request r = *at;
    if (r) {
        *at = r->next;
        orphans--;
        kept = kept < orphans ? kept : orphans;
        unpacked -= r->recv.temp != NULL;
    }
    pthread_mutex_unlock(&orphanage.lock);
    return r;
}

GCM void gcm_orphans_unpack(void)
{
    if (unpacked > 0)
        gcm_orphans_sweep();
}

/* Without the lock: what is waited for may need a thread that makes orphans. */
GCM void gcm_orphans_wait(bool last, bool take_back)
{
    const double until = MPI_Wtime() + GRACE;
    for (MPI_Request r; (r = orphan_out(last)) != NULL;) {
        double left = until - MPI_Wtime();
        if (take_back && r->gc && !r->receives && gc_wait_for(&r->gc, left > 0 ? left : 0, &r->result) == GC_ERR_TIMEOUT)
            gc_cancel(r->gc);
        request_done(r, true);
        request_take(&r, MPI_STATUS_IGNORE);
    }
}

int MPI_Request_free(MPI_Request *request)
{
    if (!request || !*request)
        return GCM_FAIL(NULL, MPI_ERR_REQUEST);
    if (orphans >= 2 * kept)            /* whoever frees thousands does not look at all of them each time */
        gcm_orphans_sweep();
    if (is_idle(*request)) {
        gcm_request_drop(*request, false, 0);
    } else {
        if ((*request)->persistent)
            gcm_type_drop((*request)->message.side.type);
        (*request)->persistent = false;
        gcm_request_orphan(*request);
    }
    *request = MPI_REQUEST_NULL;
    return MPI_SUCCESS;
}
