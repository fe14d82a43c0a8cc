/* message.c: messages between two ranks: sends in all modes, receives, probes.
 * SPDX-License-Identifier: MIT
 *
 * A message without holes goes from and to the program's memory; nothing is allocated for a blocking one. Buffered sends are
 * sends of a copy that nobody waits for; how much may wait is what the program has attached, whose memory is not touched.
 */
#include "mpi_int.h"

#include <pthread.h>

struct gcm_message { gcm_object object; gc_message *gc; MPI_Comm comm; };
struct gcm_message gcm_message_no_proc;

static struct attached {
    pthread_mutex_t lock;
    void *buffer;
    size_t bytes;
} attached = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* ---- arguments --------------------------------------------------------------------------------------------------- */

static int send_check(MPI_Comm comm, int dest, int tag)
{
    return gcm_comm_bad(comm) ? MPI_ERR_COMM : dest != MPI_PROC_NULL && (dest < 0 || dest >= comm->size) ? MPI_ERR_RANK :
           tag < 0 || tag > GC_TAG_MAX ? MPI_ERR_TAG : MPI_SUCCESS;
}

static int recv_check(MPI_Comm comm, int source, int tag)
{
    return gcm_comm_bad(comm) ? MPI_ERR_COMM : source < MPI_PROC_NULL || source >= comm->size ? MPI_ERR_RANK :
           tag < MPI_ANY_TAG || tag > GC_TAG_MAX ? MPI_ERR_TAG : MPI_SUCCESS;
}

static gcm_side side_of(const void *buf, int count, MPI_Datatype type)
{
    return (gcm_side){ .buf = (void *)(uintptr_t)buf, .type = type, .blocks = 1, .count = count };
}

/* ---- sends ------------------------------------------------------------------------------------------------------- */

static int send_blocking(const char *call, int (*send)(gc_comm *, const void *, size_t, int, int), const void *buf, int count,
                         MPI_Datatype type, int dest, int tag, MPI_Comm comm)
{
    gcm_side side = side_of(buf, count, type);
    int class = send_check(comm, dest, tag);
    if (!class)
        class = gcm_side_open(&side, GCM_LOAD);
    if (class)
        return gcm_error(comm, call, class, NULL);
    int err = dest == MPI_PROC_NULL ? GC_OK : send(comm->gc, side.at, side.bytes, dest, tag);
    gcm_side_close(&side, false, 0);
    return gcm_gc_error(comm, call, err);
}

int MPI_Send(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm)
{
    return send_blocking(__func__, gc_send, buf, count, type, dest, tag, comm);
}

int MPI_Ssend(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm)
{
    return send_blocking(__func__, gc_ssend, buf, count, type, dest, tag, comm);
}

int MPI_Rsend(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm)
{
    return send_blocking(__func__, gc_send, buf, count, type, dest, tag, comm);
}

/* ---- buffered sends ---------------------------------------------------------------------------------------------- */

int MPI_Buffer_attach(void *buffer, int bytes)
{
    if (!buffer || bytes < 0)
        return GCM_FAIL(NULL, !buffer ? MPI_ERR_BUFFER : MPI_ERR_ARG);
    pthread_mutex_lock(&attached.lock);
    bool taken = attached.buffer != NULL;
    if (!taken) {
        attached.buffer = buffer;
        attached.bytes = (size_t)bytes;
    }
    pthread_mutex_unlock(&attached.lock);
    return taken ? GCM_FAIL(NULL, MPI_ERR_BUFFER) : MPI_SUCCESS;
}

int MPI_Buffer_detach(void *buffer, int *bytes)
{
    if (!buffer || !bytes)
        return GCM_FAIL(NULL, MPI_ERR_ARG);
    gcm_orphans_wait(false, false);
    pthread_mutex_lock(&attached.lock);
    memcpy(buffer, &attached.buffer, sizeof attached.buffer);
    *bytes = (int)attached.bytes;
    attached.buffer = NULL;
    attached.bytes = 0;
    pthread_mutex_unlock(&attached.lock);
    return MPI_SUCCESS;
}

/* A copy of the message, packed, that the side owns. */
static int side_copy(gcm_side *side)
{
    int class = gcm_side_open(side, GCM_LOAD);
    if (class || side->temp)
        return class;
    char *copy = malloc(side->bytes + 1);
    if (!copy)
        return MPI_ERR_NO_MEM;
    if (side->bytes > 0)
        memcpy(copy, side->at, side->bytes);
    *side = (gcm_side){ .buf = copy, .temp = copy, .type = MPI_BYTE, .blocks = 1, .at = copy, .bytes = side->bytes };
    return MPI_SUCCESS;
}

/* As message_start. */
static int send_buffered(const char *call, gcm_side side, int dest, int tag, MPI_Comm comm, int *err)
{
    MPI_Request r = NULL;
    int class = side_copy(&side);
    if (class)
        return class;
    if (dest == MPI_PROC_NULL) {        /* takes no room */
        gcm_side_close(&side, false, 0);
        return MPI_SUCCESS;
    }
    pthread_mutex_lock(&attached.lock);
    size_t need = side.bytes + MPI_BSEND_OVERHEAD, used = gcm_orphans_sweep();
    if (need > attached.bytes || used > attached.bytes - need)
        class = MPI_ERR_BUFFER;
    else if (!(r = gcm_request_new(comm, call)))
        class = MPI_ERR_NO_MEM;
    if (r) {
        r->send = side;
        r->buffered = need;
        *err = gc_isend(comm->gc, side.at, side.bytes, dest, tag, &r->gc);
    }
    if (r && !*err)
        gcm_request_orphan(r);
    pthread_mutex_unlock(&attached.lock);
    if (r && *err)
        gcm_request_drop(r, false, 0);
    if (!r)
        gcm_side_close(&side, false, 0);
    return class;
}

int MPI_Bsend(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm)
{
    int err = GC_OK, class = send_check(comm, dest, tag);
    if (!class)
        class = send_buffered(__func__, side_of(buf, count, type), dest, tag, comm, &err);
    return class ? GCM_FAIL(comm, class) : gcm_gc_error(comm, __func__, err);
}

/* ---- receives ---------------------------------------------------------------------------------------------------- */

/* What has come is unpacked, also if it was too long. */
static int recv_end(const char *call, gcm_side *side, int err, const gc_status *got, MPI_Comm comm, MPI_Status *status)
{
    gcm_side_close(side, err == GC_OK || err == GC_ERR_TRUNCATE, got->bytes);
    gcm_status_set(status, got);
    int class = gcm_gc_error(comm, call, err);
    gcm_orphans_unpack();               /* which may have errors of its own */
    return class;
}

int MPI_Recv(void *buf, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Status *status)
{
    gcm_side side = side_of(buf, count, type);
    gc_status got = gcm_nobody;
    int class = recv_check(comm, source, tag);
    if (!class)
        class = gcm_side_open(&side, GCM_STORE);
    if (class)
        return GCM_FAIL(comm, class);
    int err = source == MPI_PROC_NULL ? GC_OK : gc_recv(comm->gc, side.at, side.bytes, source, tag, &got);
    return recv_end(__func__, &side, err, &got, comm, status);
}

/* ---- begun, once or again and again ------------------------------------------------------------------------------ */

/* Begins what message says. Returns an error class, or sets *err; the request stays. */
static int message_start(MPI_Request r, int *err)
{
    const gcm_message_args *m = &r->message;
    gcm_side *side = r->receives ? &r->recv : &r->send;
    gc_comm *gc = r->comm->gc;
    r->result = gcm_nobody;
    if (m->mode == GCM_BUFFERED)        /* the message is copied: the request is complete at once */
        return send_buffered(r->call, m->side, m->peer, m->tag, r->comm, err);
    *side = m->side;
    int class = gcm_side_open(side, r->receives ? GCM_STORE : GCM_LOAD);
    if (class || m->peer == MPI_PROC_NULL)
        return class;
    switch (m->mode) {
    case GCM_RECEIVE:     *err = gc_irecv(gc, side->at, side->bytes, m->peer, m->tag, &r->gc); break;
    case GCM_TAKEN:       *err = gc_imrecv(m->taken, side->at, side->bytes, &r->gc); break;
    case GCM_SYNCHRONOUS: *err = gc_issend(gc, side->at, side->bytes, m->peer, m->tag, &r->gc); break;
    default:              *err = gc_isend(gc, side->at, side->bytes, m->peer, m->tag, &r->gc); break;
    }
    return MPI_SUCCESS;
}

/* A request for a message; persistent ones are not begun yet. *out is NULL after an error. */
static int message_new(const char *call, const gcm_message_args *message, MPI_Comm comm, bool persistent, MPI_Request *out)
{
    bool receives = message->mode >= GCM_RECEIVE;
    int err = GC_OK, class = !out ? MPI_ERR_ARG : receives ? recv_check(comm, message->peer, message->tag) :
                             send_check(comm, message->peer, message->tag);
    if (!class && gcm_type_bad(message->side.type))
        class = MPI_ERR_TYPE;
    MPI_Request r = class ? NULL : gcm_request_new(comm, call);
    if (!class && !r)
        class = MPI_ERR_NO_MEM;
    if (r) {
        r->message = *message;
        r->receives = receives;
        r->persistent = persistent;
    }
    if (r && persistent)
        gcm_type_keep(message->side.type);
    else if (r)
        class = message_start(r, &err);
    if (r && (class || err)) {
        gcm_request_drop(r, false, 0);
        r = NULL;
    }
    if (out)
        *out = r;
    return class ? gcm_error(comm, call, class, NULL) : gcm_gc_error(comm, call, err);
}

#define MESSAGE(kind, other) \
    (&(gcm_message_args){ .mode = (kind), .side = side_of(buf, count, type), .peer = (other), .tag = tag })

int MPI_Isend(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm, MPI_Request *request)
{
    return message_new(__func__, MESSAGE(GCM_STANDARD, dest), comm, false, request);
}

int MPI_Issend(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm, MPI_Request *request)
{
    return message_new(__func__, MESSAGE(GCM_SYNCHRONOUS, dest), comm, false, request);
}

int MPI_Irsend(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm, MPI_Request *request)
{
    return message_new(__func__, MESSAGE(GCM_STANDARD, dest), comm, false, request);
}

int MPI_Ibsend(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm, MPI_Request *request)
{
    return message_new(__func__, MESSAGE(GCM_BUFFERED, dest), comm, false, request);
}

int MPI_Irecv(void *buf, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Request *request)
{
    return message_new(__func__, MESSAGE(GCM_RECEIVE, source), comm, false, request);
}

int MPI_Send_init(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm, MPI_Request *request)
{
    return message_new(__func__, MESSAGE(GCM_STANDARD, dest), comm, true, request);
}

int MPI_Ssend_init(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm, MPI_Request *request)
{
    return message_new(__func__, MESSAGE(GCM_SYNCHRONOUS, dest), comm, true, request);
}

int MPI_Rsend_init(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm, MPI_Request *request)
{
    return message_new(__func__, MESSAGE(GCM_STANDARD, dest), comm, true, request);
}

int MPI_Bsend_init(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm, MPI_Request *request)
{
    return message_new(__func__, MESSAGE(GCM_BUFFERED, dest), comm, true, request);
}

int MPI_Recv_init(void *buf, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Request *request)
{
    return message_new(__func__, MESSAGE(GCM_RECEIVE, source), comm, true, request);
}

int MPI_Start(MPI_Request *request)
{
    int err = GC_OK;
    if (!request || !*request || !(*request)->persistent || (*request)->active)
        return GCM_FAIL(NULL, MPI_ERR_REQUEST);
    MPI_Request r = *request;
    int class = message_start(r, &err);
    r->active = !class && !err;
    if (!r->active) {
        gcm_side_close(&r->send, false, 0);
        gcm_side_close(&r->recv, false, 0);
    }
    return class ? GCM_FAIL(r->comm, class) : gcm_gc_error(r->comm, __func__, err);
}

int MPI_Startall(int n, MPI_Request requests[])
{
    int class = n < 0 || (n > 0 && !requests) ? GCM_FAIL(NULL, MPI_ERR_ARG) : MPI_SUCCESS;
    for (int i = 0; !class && i < n; i++)
        class = MPI_Start(&requests[i]);
    return class;
}

/* ---- both -------------------------------------------------------------------------------------------------------- */

static int exchange(const char *call, gcm_side *send, int dest, int send_tag, gcm_side *recv, int source, int recv_tag,
                    MPI_Comm comm, MPI_Status *status)
{
    gc_status got = gcm_nobody;
    int err = GC_OK;
    if (dest != MPI_PROC_NULL && source != MPI_PROC_NULL)
        err = gc_sendrecv(comm->gc, send->at, send->bytes, dest, send_tag, recv->at, recv->bytes, source, recv_tag, &got);
    else if (dest != MPI_PROC_NULL)
        err = gc_send(comm->gc, send->at, send->bytes, dest, send_tag);
    else if (source != MPI_PROC_NULL)
        err = gc_recv(comm->gc, recv->at, recv->bytes, source, recv_tag, &got);
    gcm_side_close(send, false, 0);
    return recv_end(call, recv, err, &got, comm, status);
}

int MPI_Sendrecv(const void *send, int send_count, MPI_Datatype send_type, int dest, int send_tag,
                 void *recv, int recv_count, MPI_Datatype recv_type, int source, int recv_tag, MPI_Comm comm,
                 MPI_Status *status)
{
    gcm_side out = side_of(send, send_count, send_type), in = side_of(recv, recv_count, recv_type);
    int class = send_check(comm, dest, send_tag);
    if (!class)
        class = recv_check(comm, source, recv_tag);
    if (!class)
        class = gcm_side_open(&out, GCM_LOAD);
    if (class)
        return GCM_FAIL(comm, class);
    if ((class = gcm_side_open(&in, GCM_STORE)) != MPI_SUCCESS) {
        gcm_side_close(&out, false, 0);
        return GCM_FAIL(comm, class);
    }
    return exchange(__func__, &out, dest, send_tag, &in, source, recv_tag, comm, status);
}

int MPI_Sendrecv_replace(void *buf, int count, MPI_Datatype type, int dest, int send_tag, int source, int recv_tag,
                         MPI_Comm comm, MPI_Status *status)
{
    gcm_side out = side_of(buf, count, type), in = out;
    int class = send_check(comm, dest, send_tag);
    if (!class)
        class = recv_check(comm, source, recv_tag);
    if (!class)
        class = side_copy(&out);
    if (class)
        return GCM_FAIL(comm, class);
    if ((class = gcm_side_open(&in, GCM_STORE)) != MPI_SUCCESS) {
        gcm_side_close(&out, false, 0);
        return GCM_FAIL(comm, class);
    }
    return exchange(__func__, &out, dest, send_tag, &in, source, recv_tag, comm, status);
}

/* ---- probes ------------------------------------------------------------------------------------------------------ */

int MPI_Probe(int source, int tag, MPI_Comm comm, MPI_Status *status)
{
    gc_status got = gcm_nobody;
    int class = recv_check(comm, source, tag);
    if (class)
        return GCM_FAIL(comm, class);
    int err = source == MPI_PROC_NULL ? GC_OK : gc_probe(comm->gc, source, tag, &got);
    gcm_status_set(status, &got);
    return gcm_gc_error(comm, __func__, err);
}

int MPI_Iprobe(int source, int tag, MPI_Comm comm, int *flag, MPI_Status *status)
{
    gc_status got = gcm_nobody;
    int class = !flag ? MPI_ERR_ARG : recv_check(comm, source, tag);
    if (class)
        return GCM_FAIL(comm, class);
    *flag = 1;
    int err = source == MPI_PROC_NULL ? GC_OK : gc_iprobe(comm->gc, source, tag, flag, &got);
    if (*flag)
        gcm_status_set(status, &got);
    return gcm_gc_error(comm, __func__, err);
}

/* *flag NULL: blocks. */
static int probe_take(const char *call, int source, int tag, MPI_Comm comm, int *flag, MPI_Message *message, MPI_Status *status)
{
    gc_status got = gcm_nobody;
    int class = !message ? MPI_ERR_ARG : recv_check(comm, source, tag);
    if (class)
        return gcm_error(comm, call, class, NULL);
    if (source == MPI_PROC_NULL) {
        *message = MPI_MESSAGE_NO_PROC;
        gcm_status_set(status, &got);
        if (flag)
            *flag = 1;
        return MPI_SUCCESS;
    }
    MPI_Message m = gcm_new(sizeof *m);
    if (!m)
        return gcm_error(comm, call, MPI_ERR_NO_MEM, NULL);
    m->comm = comm;
    comm->refs++;
    int err = flag ? gc_improbe(comm->gc, source, tag, &m->gc, &got) : gc_mprobe(comm->gc, source, tag, &m->gc, &got);
    bool found = !err && m->gc;
    if (found)
        gcm_status_set(status, &got);
    if (flag)
        *flag = found;
    *message = found ? m : MPI_MESSAGE_NULL;
    if (!found) {
        gcm_comm_drop(comm);
        gcm_delete(m);
    }
    return gcm_gc_error(comm, call, err);
}

int MPI_Mprobe(int source, int tag, MPI_Comm comm, MPI_Message *message, MPI_Status *status)
{
    return probe_take(__func__, source, tag, comm, NULL, message, status);
}

int MPI_Improbe(int source, int tag, MPI_Comm comm, int *flag, MPI_Message *message, MPI_Status *status)
{
    return !flag ? GCM_FAIL(comm, MPI_ERR_ARG) : probe_take(__func__, source, tag, comm, flag, message, status);
}

int MPI_Imrecv(void *buf, int count, MPI_Datatype type, MPI_Message *message, MPI_Request *request)
{
    if (!message || !*message || !request)
        return GCM_FAIL(NULL, !request ? MPI_ERR_ARG : MPI_ERR_REQUEST);
    MPI_Message m = *message;
    bool nobody = m == MPI_MESSAGE_NO_PROC;
    MPI_Comm comm = nobody ? MPI_COMM_WORLD : m->comm;
    gcm_message_args args = { .mode = GCM_TAKEN, .side = side_of(buf, count, type), .tag = MPI_ANY_TAG,
                              .peer = nobody ? MPI_PROC_NULL : MPI_ANY_SOURCE, .taken = nobody ? NULL : &m->gc };
    int class = message_new(__func__, &args, comm, false, request);
    if (class)
        return class;
    *message = MPI_MESSAGE_NULL;
    if (!nobody) {
        gcm_comm_drop(comm);
        gcm_delete(m);
    }
    return MPI_SUCCESS;
}

int MPI_Mrecv(void *buf, int count, MPI_Datatype type, MPI_Message *message, MPI_Status *status)
{
    MPI_Request request;
    int class = MPI_Imrecv(buf, count, type, message, &request);
    return class ? class : MPI_Wait(&request, status);
}
