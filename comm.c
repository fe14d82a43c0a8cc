/* comm.c: what a communicator knows without asking anybody: its members, where they are, who is gone, its last error.
 * SPDX-License-Identifier: MIT
 */
#include "gridcomm_int.h"

/* ---- errors --------------------------------------------------------------------------------------------------- */

const char *gc_strerror(int err)
{
    static const char *const text[] = {
        "success", "wrong argument", "out of memory", "a system call failed", "time is up", "no way to reach the peer",
        "proof of the job key failed", "a peer broke the protocol", "a peer died or left", "the job was aborted",
        "the message is longer than the receive", "ranks called different collectives", "cancelled",
        "requests are pending", "bad configuration", "not supported"
    };
    return err <= 0 && err > -(int)GCI_COUNT(text) ? text[-err] : "unknown error";
}

GCI int gci_fail(gc_comm *comm, int code, int fault_rank, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    gci_enter(comm->world);
    comm->last_code = code;
    comm->last = (gc_status){ .source = -1, .tag = -1, .error = code, .fault_rank = fault_rank };
    vsnprintf(comm->last_text, sizeof comm->last_text, format, args);
    gci_leave(comm->world);
    va_end(args);
    return code;
}

int gc_last_error(const gc_comm *comm, gc_status *status, char *text, size_t text_bytes)
{
    if (!comm)
        return GC_ERR_ARG;
    gci_enter(comm->world);
    int code = comm->last_code;
    if (status)
        *status = comm->last;
    if (text && text_bytes > 0)
        snprintf(text, text_bytes, "%s", comm->last_text);
    gci_leave(comm->world);
    return code;
}

/* ---- members -------------------------------------------------------------------------------------------------- */

GCI int gci_world_rank(const gc_comm *comm, int rank)
{
    return comm->ranks ? comm->ranks[rank] : rank;
}

GCI int gci_comm_rank(const gc_comm *comm, int world_rank)
{
    if (!comm->ranks)
        return world_rank < comm->size ? world_rank : -1;
    int low = 0, high = comm->size - 1;
    while (low <= high) {
        int middle = (low + high) / 2, rank = comm->sorted[middle];
        if (comm->ranks[rank] == world_rank)
            return rank;
        if (comm->ranks[rank] < world_rank)
            low = middle + 1;
        else
            high = middle - 1;
    }
    return -1;
}

/* Why nothing can be exchanged with this rank any more (GC_ANY_SOURCE: with some rank); GC_OK: it can. Inside the monitor. */
GCI int gci_comm_gone(const gc_comm *comm, int rank)
{
    const gci_world *w = comm->world;
    if (w->aborted)
        return GC_ERR_ABORTED;
    if (w->dead[w->rank] == GCI_GONE_STARVED)
        return GC_ERR_NOMEM;
    if (rank == GC_ANY_SOURCE)
        return comm->dead > 0 ? GC_ERR_PEER : GC_OK;
    switch (w->dead[gci_world_rank(comm, rank)]) {
    case GCI_ALIVE:            return GC_OK;
    case GCI_GONE_UNREACHABLE: return GC_ERR_UNREACHABLE;
    default:                   return GC_ERR_PEER;
    }
}

int gc_comm_failed(const gc_comm *comm, int ranks[], int max)
{
    if (!comm || max < 0 || (max > 0 && !ranks))
        return GC_ERR_ARG;
    gci_world *w = comm->world;
    int n = 0;
    gci_enter(w);
    for (int i = 0; comm->dead > 0 && i < comm->size; i++)
        if (w->dead[gci_world_rank(comm, i)]) {
            if (n < max)
                ranks[n] = i;
            n++;
        }
    gci_leave(w);
    return n;
}

int gc_comm_translate(const gc_comm *from, const int ranks[], int n, const gc_comm *to, int out[])
{
    if (!from || !to || from->world != to->world || n < 0 || (n > 0 && (!ranks || !out)))
        return GC_ERR_ARG;
    for (int i = 0; i < n; i++)
        if (ranks[i] < 0 || ranks[i] >= from->size)
            return GC_ERR_ARG;
    for (int i = 0; i < n; i++)
        out[i] = gci_comm_rank(to, gci_world_rank(from, ranks[i]));
    return GC_OK;
}

int gc_rank(const gc_comm *comm) { return comm ? comm->rank : GC_ERR_ARG; }
int gc_size(const gc_comm *comm) { return comm ? comm->size : GC_ERR_ARG; }

const char *gc_host(const gc_comm *comm, int rank)
{
    if (!comm || rank < 0 || rank >= comm->size)
        return NULL;
    const gci_world *w = comm->world;
    return w->table ? w->table->host[w->table->card[gci_world_rank(comm, rank)].host].id : w->own_host;
}

const char *gc_cluster(const gc_comm *comm, int rank)
{
    if (!comm || rank < 0 || rank >= comm->size)
        return NULL;
    const gci_world *w = comm->world;
    return w->table ? w->table->card[gci_world_rank(comm, rank)].cluster : w->own_cluster;
}
