/* request.c: requests: their life, and the completion calls of the public interface.
 * SPDX-License-Identifier: MIT
 *
 * A request is made by whoever starts an operation, ended exactly once (gci_request_done or gci_request_fail) by the
 * room that carries it out, and freed by whoever holds it: the user through the completion calls, or at once if it is
 * not owned. Ended requests go to the world's free list, so a steady exchange allocates nothing.
 */
#include "gridcomm_int.h"

/* ---- the life of a request ------------------------------------------------------------------------------------ */

GCI gc_request *gci_request_new(gc_comm *comm, enum gci_request_kind kind)
{
    gci_world *w = comm->world;
    gc_request *r = w->spare_requests;
    if (r)
        w->spare_requests = r->next;
    else if (!(r = gci_alloc(&w->env, sizeof *r)))
        return NULL;
    r->kind = kind;                     /* field by field: compilers clear a whole record of this size slowly */
    r->stage = 0;
    r->done = r->owned = r->any_tag = r->sync = r->early = r->streams = r->scattered = r->withdrawn = r->asks = false;
    r->comm = comm;
    r->status = (gc_status){ .source = -1, .tag = -1, .error = GC_OK, .fault_rank = -1, .bytes = 0 };
    r->done_fn = NULL;
    r->user = NULL;
    r->text = NULL;
    r->context = r->tag = r->signature = r->seq = r->nth = 0;
    r->peer = -1;
    r->buf = NULL;
    r->bytes = r->moved = r->limit = 0;
    r->in_flight = r->asked = 0;
    r->ask_at = 0;
    r->message = NULL;
    r->next = NULL;
    r->prev = NULL;
    return r;
}

GCI void gci_request_free(gc_request *r)
{
    gci_world *w = r->comm->world;
    if (r->owned)
        r->comm->requests--;
    if (r->asks)
        w->p2p->asking--;
    gci_free(&w->env, r->text);
    r->next = w->spare_requests;
    w->spare_requests = r;
}

GCI void gci_request_done(gc_request *r, int error)
{
    r->status.error = error;
    r->done = true;
    if (r->done_fn)
        r->done_fn(r);
    if (r->owned)
        gci_overlay_wake(r->comm->world->overlay);
    else
        gci_request_free(r);
}

GCI void gci_request_fail(gc_request *r, int error, int fault_world_rank, const char *format, ...)
{
    char text[GCI_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    r->text = gci_strdup(&r->comm->world->env, text);
    r->status.fault_rank = fault_world_rank >= 0 ? gci_comm_rank(r->comm, fault_world_rank) : -1;
    gci_request_done(r, error);
}

/* ---- completion ----------------------------------------------------------------------------------------------- */

#define WAIT_LONGEST 4e18               /* ns: with any time of the clock it is still one; beyond is for ever */

static int64_t deadline_in(gci_world *w, int64_t timeout)
{
    return timeout == GCI_FOREVER ? GCI_FOREVER : w->env.sys->now(w->env.sys) + timeout;
}

static bool request_is_done(void *arg)
{
    return ((const gc_request *)arg)->done;
}

/* An ended request leaves the user's hands; its error becomes the communicator's last. Inside the monitor. */
static int request_collect(gc_request **request, gc_status *status)
{
    gc_request *r = *request;
    int error = r->status.error;
    if (status)
        *status = r->status;
    if (error != GC_OK) {
        gc_comm *comm = r->comm;
        comm->last = r->status;
        comm->last_code = error;
        snprintf(comm->last_text, sizeof comm->last_text, "%s", r->text ? r->text : gc_strerror(error));
    }
    *request = NULL;
    gci_request_free(r);
    return error;
}

static void status_of_nothing(gc_status *status)
{
    if (status)
        *status = (gc_status){ .source = -1, .tag = -1, .fault_rank = -1 };
}

GCI void gci_world_wait(gci_world *w, gci_caller *caller, bool (*done)(void *arg), void *arg, const int *hint, int64_t deadline)
{
    gci_caller **at = &w->callers;
    if (!w->stall) {
        gci_overlay_wait(w->overlay, done, arg, hint, deadline);
        return;
    }
    if (w->stall_idle)
        gci_overlay_tick_soon(w->overlay);
    caller->next = w->callers;
    w->callers = caller;
    gci_overlay_wait(w->overlay, done, arg, hint, deadline);
    while (*at != caller)
        at = &(*at)->next;
    *at = caller->next;
    if (caller->told || caller->reported)
        w->stall_over(w, caller);
}

/* Inside the monitor. GC_ERR_TIMEOUT: it lives on. */
GCI int gci_request_wait_inside(gc_request **request, int64_t deadline, gc_status *status)
{
    gc_request *r = *request;
    gci_caller caller = { .request = &r, .requests = 1 };
    if (!r->done)
        gci_world_wait(r->comm->world, &caller, request_is_done, r, &r->peer, deadline);
    return r->done ? request_collect(request, status) : GC_ERR_TIMEOUT;
}

GCI int gci_request_wait(gc_request **request, int64_t timeout, gc_status *status)
{
    if (!*request) {
        status_of_nothing(status);
        return GC_OK;
    }
    gci_world *w = (*request)->comm->world;
    gci_enter(w);
    int error = gci_request_wait_inside(request, deadline_in(w, timeout), status);
    gci_leave(w);
    return error;
}

int gc_wait(gc_request **request, gc_status *status)
{
    return request ? gci_request_wait(request, GCI_FOREVER, status) : GC_ERR_ARG;
}

int gc_wait_for(gc_request **request, double seconds, gc_status *status)
{
    if (!request || !(seconds >= 0))
        return GC_ERR_ARG;
    double ns = seconds * (double)GCI_SECOND;
    return gci_request_wait(request, ns < WAIT_LONGEST ? (int64_t)ns : GCI_FOREVER, status);
}

/* The requests of one call; all in one world. */
typedef struct request_set { gc_request **request; int n, found; } request_set;

static bool any_is_done(void *arg)
{
    request_set *set = arg;
    for (int i = 0; i < set->n; i++)
        if (set->request[i] && set->request[i]->done) {
            set->found = i;
            return true;
        }
    return false;
}

static bool all_are_done(void *arg)
{
    const request_set *set = arg;
    for (int i = 0; i < set->n; i++)
        if (set->request[i] && !set->request[i]->done)
            return false;
    return true;
}

/* Whose they are; NULL: there are none. GC_ERR_ARG: of several worlds, which one wait cannot drive. */
static int set_world(const request_set *set, gci_world **out)
{
    *out = NULL;
    for (int i = 0; i < set->n; i++) {
        gci_world *w = set->request[i] ? set->request[i]->comm->world : *out;
        if (*out && *out != w)
            return GC_ERR_ARG;
        *out = w;
    }
    return GC_OK;
}

static int collect_all(const request_set *set, gc_status statuses[])
{
    int error = GC_OK;
    for (int i = 0; i < set->n; i++) {
        gc_status *status = statuses ? &statuses[i] : NULL;
        if (!set->request[i]) {
            status_of_nothing(status);
            continue;
        }
        int e = request_collect(&set->request[i], status);
        if (error == GC_OK)
            error = e;
    }
    return error;
}

int gc_waitall(int n, gc_request *requests[], gc_status statuses[])
{
    if (n < 0 || (n > 0 && !requests))
        return GC_ERR_ARG;
    request_set set = { requests, n, -1 };
    gci_world *w;
    if (set_world(&set, &w) < 0)
        return GC_ERR_ARG;
    if (!w)
        return collect_all(&set, statuses);
    gci_enter(w);
    for (int i = 0; i < n; i++)
        if (requests[i] && !requests[i]->done)
            gci_world_wait(w, &(gci_caller){ .request = requests + i, .requests = n - i }, request_is_done, requests[i],
                           &requests[i]->peer, GCI_FOREVER);
    int error = collect_all(&set, statuses);
    gci_leave(w);
    return error;
}

int gc_waitany(int n, gc_request *requests[], int *index, gc_status *status)
{
    if (n < 0 || (n > 0 && !requests) || !index)
        return GC_ERR_ARG;
    request_set set = { requests, n, -1 };
    gci_world *w;
    if (set_world(&set, &w) < 0)
        return GC_ERR_ARG;
    *index = -1;
    if (!w) {
        status_of_nothing(status);
        return GC_OK;
    }
    gci_enter(w);
    gci_world_wait(w, &(gci_caller){ .request = requests, .requests = n }, any_is_done, &set, NULL, GCI_FOREVER);
    *index = set.found;
    int error = request_collect(&requests[set.found], status);
    gci_leave(w);
    return error;
}

int gc_test(gc_request **request, int *done, gc_status *status)
{
    int index;
    return request ? gc_testany(1, request, &index, done, status) : GC_ERR_ARG;
}

int gc_testany(int n, gc_request *requests[], int *index, int *done, gc_status *status)
{
    if (n < 0 || (n > 0 && !requests) || !index || !done)
        return GC_ERR_ARG;
    request_set set = { requests, n, -1 };
    gci_world *w;
    if (set_world(&set, &w) < 0)
        return GC_ERR_ARG;
    *index = -1;
    *done = 1;
    if (!w) {
        status_of_nothing(status);
        return GC_OK;
    }
    gci_enter(w);
    if (!any_is_done(&set))
        gci_overlay_poll(w->overlay, -1);
    *done = any_is_done(&set);
    *index = set.found;
    int error = *done ? request_collect(&requests[set.found], status) : GC_OK;
    gci_leave(w);
    if (!*done)
        w->env.sys->yield(w->env.sys);  /* other threads of this world, and other ranks on this core, have their turn */
    return error;
}

int gc_testall(int n, gc_request *requests[], int *done, gc_status statuses[])
{
    if (n < 0 || (n > 0 && !requests) || !done)
        return GC_ERR_ARG;
    request_set set = { requests, n, -1 };
    gci_world *w;
    if (set_world(&set, &w) < 0)
        return GC_ERR_ARG;
    *done = 1;
    if (!w)
        return collect_all(&set, statuses);
    gci_enter(w);
    if (!all_are_done(&set))
        gci_overlay_poll(w->overlay, -1);
    *done = all_are_done(&set);
    int error = *done ? collect_all(&set, statuses) : GC_OK;
    gci_leave(w);
    if (!*done)
        w->env.sys->yield(w->env.sys);
    return error;
}

int gc_progress(gc_comm *world)
{
    if (!world)
        return GC_ERR_ARG;
    gci_world *w = world->world;
    gci_enter(w);
    bool moved = gci_overlay_poll(w->overlay, -1);
    gci_leave(w);
    return moved;
}

int gc_pollfd(gc_comm *world)
{
    if (!world)
        return GC_ERR_ARG;
    gci_enter(world->world);
    int fd = gci_overlay_fd(world->world->overlay);
    gci_leave(world->world);
    return fd;
}
