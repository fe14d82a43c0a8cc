/* message.c: the message calls of the public interface.
 * SPDX-License-Identifier: MIT
 *
 * Each checks its arguments, posts (post.c) and, if it blocks, waits for the end of its request (request.c).
 */
#include "gridcomm_int.h"

/* ---- messages ------------------------------------------------------------------------------------------------- */

static int check_message(gc_comm *comm, const void *buf, size_t bytes, int peer, int tag, bool receive)
{
    if (!comm)
        return GC_ERR_ARG;
    if (!buf && bytes > 0)
        return gci_fail(comm, GC_ERR_ARG, -1, "no buffer for %zu bytes", bytes);
    if (!(receive && peer == GC_ANY_SOURCE) && (peer < 0 || peer >= comm->size))
        return gci_fail(comm, GC_ERR_ARG, -1, "rank %d is not in 0 .. %d", peer, comm->size - 1);
    if (!(receive && tag == GC_ANY_TAG) && (tag < 0 || tag > GC_TAG_MAX))
        return gci_fail(comm, GC_ERR_ARG, -1, "tag %d is not in 0 .. %d", tag, GC_TAG_MAX);
    return GC_OK;
}

static gci_post user_post(int tag, bool sync)
{
    return (gci_post){ .kind = GCI_CONTEXT_P2P, .tag = (uint32_t)tag, .any_tag = tag == GC_ANY_TAG, .sync = sync };
}

GCI int gci_post_failed(gc_comm *comm, int error, int peer)
{
    if (error == GC_OK)
        return GC_OK;
    if (error == GC_ERR_ABORTED)
        return gci_fail(comm, error, gci_comm_rank(comm, comm->world->abort_origin), "rank %d called gc_abort with code %d",
                        comm->world->abort_origin, comm->world->abort_code);
    if (error != GC_ERR_PEER && error != GC_ERR_UNREACHABLE)
        return gci_fail(comm, error, -1, "message with rank %d: %s", peer, gc_strerror(error));
    if (peer == GC_ANY_SOURCE)
        gc_comm_failed(comm, &peer, 1);
    return gci_fail(comm, error, peer, "rank %d is gone: %s", peer, gc_strerror(error));
}

/* Starts a send; request NULL: and waits for its end. */
static int start_send(gc_comm *comm, const void *buf, size_t bytes, int dest, int tag, bool sync, gc_request **request)
{
    gc_request *own = NULL, **r = request ? request : &own;
    *r = NULL;
    int err = check_message(comm, buf, bytes, dest, tag, false);
    if (err < 0)
        return err;
    gci_post post = user_post(tag, sync);
    gci_enter(comm->world);
    int posted = gci_send_post(comm, buf, bytes, dest, &post, r);
    if (posted == GC_OK && !request)
        err = gci_request_wait_inside(r, GCI_FOREVER, NULL);
    gci_leave(comm->world);
    return posted < 0 ? gci_post_failed(comm, posted, dest) : err;
}

/* The same for a receive. */
static int start_recv(gc_comm *comm, void *buf, size_t bytes, int source, int tag, gc_request **request, gc_status *status)
{
    gc_request *own = NULL, **r = request ? request : &own;
    *r = NULL;
    int err = check_message(comm, buf, bytes, source, tag, true);
    if (err < 0)
        return err;
    gci_post post = user_post(tag, false);
    gci_enter(comm->world);
    int posted = gci_recv_post(comm, buf, bytes, source, &post, r);
    if (posted == GC_OK && !request)
        err = gci_request_wait_inside(r, GCI_FOREVER, status);
    gci_leave(comm->world);
    return posted < 0 ? gci_post_failed(comm, posted, source) : err;
}

int gc_isend(gc_comm *comm, const void *buf, size_t bytes, int dest, int tag, gc_request **request)
{
    return request ? start_send(comm, buf, bytes, dest, tag, false, request) : GC_ERR_ARG;
}

int gc_issend(gc_comm *comm, const void *buf, size_t bytes, int dest, int tag, gc_request **request)
{
    return request ? start_send(comm, buf, bytes, dest, tag, true, request) : GC_ERR_ARG;
}

int gc_irecv(gc_comm *comm, void *buf, size_t bytes, int source, int tag, gc_request **request)
{
    return request ? start_recv(comm, buf, bytes, source, tag, request, NULL) : GC_ERR_ARG;
}

int gc_send(gc_comm *comm, const void *buf, size_t bytes, int dest, int tag)
{
    return start_send(comm, buf, bytes, dest, tag, false, NULL);
}

int gc_ssend(gc_comm *comm, const void *buf, size_t bytes, int dest, int tag)
{
    return start_send(comm, buf, bytes, dest, tag, true, NULL);
}

int gc_recv(gc_comm *comm, void *buf, size_t bytes, int source, int tag, gc_status *status)
{
    return start_recv(comm, buf, bytes, source, tag, NULL, status);
}

int gc_sendrecv(gc_comm *comm, const void *send, size_t send_bytes, int dest, int send_tag, void *recv, size_t recv_bytes,
                int source, int recv_tag, gc_status *status)
{
    int err = check_message(comm, send, send_bytes, dest, send_tag, false);
    if (err < 0)
        return err;
    gc_request *r[2] = { NULL, NULL };
    int refused = start_recv(comm, recv, recv_bytes, source, recv_tag, &r[0], NULL);
    if (refused < 0 && refused != GC_ERR_PEER)
        return refused;
    if (refused < 0 && status)
        gc_last_error(comm, status, NULL, 0);
    gci_post post = user_post(send_tag, false);
    gci_enter(comm->world);
    err = gci_send_post(comm, send, send_bytes, dest, &post, &r[1]);
    if (r[0] && err < 0 && err != GC_ERR_PEER)  /* the receive must not outlive its buffer */
        gci_recv_withdraw(r[0]);
    gci_leave(comm->world);
    int received = gci_request_wait(&r[0], GCI_FOREVER, refused < 0 ? NULL : status);
    int sent = gci_request_wait(&r[1], GCI_FOREVER, NULL);
    return err < 0 ? gci_post_failed(comm, err, dest) : refused < 0 ? refused : received < 0 ? received : sent;
}

int gc_cancel(gc_request *request)
{
    if (!request || (request->kind != GCI_REQUEST_RECV && request->kind != GCI_REQUEST_SEND))
        return GC_ERR_ARG;
    gci_world *w = request->comm->world;
    gci_enter(w);
    if (request->kind == GCI_REQUEST_RECV)
        gci_recv_withdraw(request);
    else
        gci_send_withdraw(request);
    gci_leave(w);
    return GC_OK;
}

/* ---- probing -------------------------------------------------------------------------------------------------- */

typedef struct request_probe { gc_comm *comm; int source, tag, gone; gc_message *found; gc_status status; } request_probe;

static bool probe_ended(void *arg)
{
    request_probe *p = arg;
    p->gone = gci_comm_gone(p->comm, p->source);
    p->found = p->gone == GC_ERR_ABORTED ? NULL : gci_unexpected_find(p->comm, p->source, p->tag, &p->status);
    return p->found || p->gone < 0;
}

/* The one way to look: wait or not, take or not. */
static int probe(gc_comm *comm, int source, int tag, bool wait, int *found, gc_message **message, gc_status *status)
{
    if (message)
        *message = NULL;
    int err = check_message(comm, NULL, 0, source, tag, true);
    if (err < 0)
        return err;
    gci_world *w = comm->world;
    request_probe p = { .comm = comm, .source = source, .tag = tag };
    gci_enter(w);
    int hint = source == GC_ANY_SOURCE ? -1 : gci_world_rank(comm, source);
    gci_probing(w, 1);
    if (!wait && !probe_ended(&p)) {
        gci_overlay_poll(w->overlay, hint);
        probe_ended(&p);
    }
    while (wait && !probe_ended(&p))    /* what the wait has found may have been taken back before that was over */
        gci_world_wait(w, &(gci_caller){ .call = "gc_probe", .comm = comm, .source = source, .tag = tag }, probe_ended, &p, &hint,
                       GCI_FOREVER);
    gci_probing(w, -1);
    if (p.found && message)
        gci_unexpected_take(p.found);
    gci_leave(w);
    if (found)
        *found = p.found != NULL;
    if (message)
        *message = p.found;
    if (p.found && status)
        *status = p.status;
    if (!p.found && p.gone < 0)
        return gci_post_failed(comm, p.gone, source);
    if (!p.found)
        w->env.sys->yield(w->env.sys);  /* as gc_test */
    return GC_OK;
}

int gc_probe(gc_comm *comm, int source, int tag, gc_status *status)
{
    return probe(comm, source, tag, true, NULL, NULL, status);
}

int gc_iprobe(gc_comm *comm, int source, int tag, int *found, gc_status *status)
{
    return found ? probe(comm, source, tag, false, found, NULL, status) : GC_ERR_ARG;
}

int gc_mprobe(gc_comm *comm, int source, int tag, gc_message **message, gc_status *status)
{
    return message ? probe(comm, source, tag, true, NULL, message, status) : GC_ERR_ARG;
}

int gc_improbe(gc_comm *comm, int source, int tag, gc_message **message, gc_status *status)
{
    return message ? probe(comm, source, tag, false, NULL, message, status) : GC_ERR_ARG;
}

int gc_imrecv(gc_message **message, void *buf, size_t bytes, gc_request **request)
{
    if (!message || !*message || !request)
        return GC_ERR_ARG;
    *request = NULL;
    gc_comm *comm = gci_message_comm(*message);
    int source = gci_comm_rank(comm, (*message)->source);
    if (!buf && bytes > 0)
        return gci_fail(comm, GC_ERR_ARG, -1, "no buffer for %zu bytes", bytes);
    gci_post post = user_post(0, false);
    gci_enter(comm->world);
    int err = gci_message_recv(*message, buf, bytes, &post, request);
    gci_leave(comm->world);
    if (err == GC_OK)
        *message = NULL;
    return gci_post_failed(comm, err, source);
}

int gc_mrecv(gc_message **message, void *buf, size_t bytes, gc_status *status)
{
    gc_request *r;
    int err = gc_imrecv(message, buf, bytes, &r);
    return err < 0 ? err : gci_request_wait(&r, GCI_FOREVER, status);
}
