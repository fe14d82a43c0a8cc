/* mpi_int.h: what the rooms of the MPI layer share, from the ground up.
 * SPDX-License-Identifier: MIT
 *
 *   collective.c   collectives, blocking and not, each written once
 *   message.c      sends, receives, probes
 *   request.c      requests and their completion; those that nobody waits for
 *   reduce.c       operations: the predefined ones, those of users, what gridcomm does itself
 *   side.c         a buffer as a call describes it, and as gridcomm gets it
 *   cart.c         Cartesian topologies
 *   comm.c         communicators
 *   attr.c         their attributes
 *   group.c        groups (pure)
 *   type.c         data types (pure)
 *   life.c         start, end, environment, errors
 *   handle.c       numbers for handles
 *
 * The layer uses gridcomm.h and nothing else of gridcomm. mpi.c joins its rooms; GCM marks what they share, then static.
 */
#ifndef GRIDCOMM_MPI_INT_H
#define GRIDCOMM_MPI_INT_H

#include "gridcomm.h"
#include "mpi.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#ifndef GCM
#define GCM
#endif

/* ---- handle.c ---------------------------------------------------------------------------------------------------- */

GCM void gcm_handle_forget(const void *handle);        /* that is going to be freed */
GCM void gcm_handles_end(void);

/* ---- life.c ------------------------------------------------------------------------------------------------------ */

/* What programs make and forget to free goes with MPI_Finalize. Stands first in all that gcm_new gives: zeros, or NULL. */
typedef struct gcm_object {
    struct gcm_object *next, *before;
    void (*end)(struct gcm_object *);   /* called before the job ends, and deletes it; or NULL */
    atomic_bool numbered;               /* its handle has a number */
} gcm_object;
GCM void *gcm_new(size_t bytes);
GCM void gcm_delete(void *object);

struct gcm_errhandler { gcm_object object; MPI_Comm_errhandler_function *fn; atomic_int refs; };
GCM MPI_Errhandler gcm_errhandler_of(MPI_Comm comm);    /* with a reference; NULL: the communicator has gone */
GCM void gcm_errhandler_drop(MPI_Errhandler handler);

/* An error of a call on comm (NULL: of the world) goes to its handler; returns the class, if that returns. why may be NULL. */
GCM int gcm_error(MPI_Comm comm, const char *call, int class, const char *why);
/* As gcm_error for a code of gridcomm's: 0 is no error, else the class and the text are those of gc_last_error. */
GCM int gcm_gc_error(MPI_Comm comm, const char *call, int err);
GCM int gcm_class(int err);             /* of an error of gridcomm's */

#define GCM_FAIL(comm, class)   gcm_error(comm, __func__, class, NULL)

/* ---- type.c ------------------------------------------------------------------------------------------------------ */

/* What reductions can do with a basic type. */
enum gcm_kind { GCM_NO_KIND, GCM_INTEGER, GCM_FLOATING, GCM_LOGICAL, GCM_BYTES, GCM_COMPLEX, GCM_LONG_DOUBLE, GCM_PAIR };

/* `blocks` blocks, `stride` bytes apart, the first at `at`; each of `length` elements of a type, an extent of it apart. */
typedef struct gcm_part { MPI_Datatype type; MPI_Aint at, stride; size_t blocks, length; } gcm_part;

struct gcm_type {
    gcm_object object;
    size_t    size, align;              /* bytes of data in an element; what the compiler would align it to */
    size_t    basics;                   /* basic elements in it */
    MPI_Aint  lb, ub, low, high;        /* bounds; first byte of data and the one behind the last */
    bool      lb_set, ub_set;           /* bounds that were set, which types made of this one inherit */
    bool      dense;                    /* data without holes, in the order of addresses */
    bool      committed, derived;
    int       kind;                     /* of basic types */
    gc_type   gc;                       /* as reductions of gridcomm know it, or 0 */
    atomic_int refs;                    /* of derived types: handle, types made of it, operations under way */
    int       parts;
    gcm_part *part;
    const char *name;
    char      given_name[MPI_MAX_OBJECT_NAME];
};

typedef struct gcm_cursor { char *packed; size_t left; bool pack; } gcm_cursor;

GCM void gcm_type_keep(MPI_Datatype type);
GCM void gcm_type_drop(MPI_Datatype type);
/* Moves data of count elements between at and the cursor, until nothing is left. */
GCM void gcm_type_walk(MPI_Datatype type, void *at, size_t count, gcm_cursor *c);

static inline char *gcm_at(const void *base, MPI_Aint bytes)   /* base may be MPI_BOTTOM */
{
    return (char *)((uintptr_t)base + (uintptr_t)bytes);
}

static inline MPI_Aint gcm_extent(const struct gcm_type *t) { return t->ub - t->lb; }

/* Do count elements lie in memory as they are sent? */
static inline bool gcm_is_dense(const struct gcm_type *t, size_t count)
{
    return t->size == 0 || (t->dense && (count <= 1 || gcm_extent(t) == (MPI_Aint)t->size));
}

static inline bool gcm_type_bad(const struct gcm_type *t) { return !t || !t->committed; }

/* ---- group.c ----------------------------------------------------------------------------------------------------- */

/* rank: my own, or MPI_UNDEFINED; world[n]: the ranks of its members there. */
struct gcm_group { gcm_object object; atomic_int refs; int n, rank; int world[]; };

GCM MPI_Group gcm_group_new(int n);     /* of n ranks of the world, to be filled in; NULL: out of memory */
GCM void gcm_group_find(MPI_Group group);       /* sets rank */
GCM void gcm_group_drop(MPI_Group group);

/* ---- attr.c ------------------------------------------------------------------------------------------------------ */

/* All of a communicator's: up to the first that a function of the program's objects to, whose code is returned. */
GCM int gcm_attrs_end(MPI_Comm comm);
GCM int gcm_attrs_copy(MPI_Comm from, MPI_Comm to);

/* ---- comm.c ------------------------------------------------------------------------------------------------------ */

/* The grid whose points a communicator's ranks are. */
typedef struct gcm_dim { int size; bool periodic; } gcm_dim;
typedef struct gcm_cart { gcm_object object; atomic_int refs; int ndims; gcm_dim dim[]; } gcm_cart;

struct gcm_comm {
    gcm_object object;
    gc_comm *gc;
    atomic_int refs;                    /* handle and requests */
    int rank, size;
    MPI_Group group;
    MPI_Errhandler handler;             /* reference */
    struct gcm_attr *attrs;             /* the newest first */
    gcm_cart *cart;                     /* reference, or NULL */
    char name[MPI_MAX_OBJECT_NAME];
};

GCM int  gcm_comm_open(MPI_Comm comm, gc_comm *gc, const char *name);  /* fills one in; MPI_ERR_NO_MEM */
GCM int  gcm_comm_split(const char *call, MPI_Comm comm, int color, int key, MPI_Comm *out);  /* color: or MPI_UNDEFINED */
GCM void gcm_comm_drop(MPI_Comm comm);  /* frees it with the last reference */
GCM void gcm_comm_close(MPI_Comm comm); /* of the two that are always there */

static inline bool gcm_comm_bad(const struct gcm_comm *comm) { return !comm || !comm->gc; }

/* ---- side.c ------------------------------------------------------------------------------------------------------ */

/* A buffer of one block of count elements of a type, of several of them in a row, or of listed ones. */
typedef struct gcm_side {
    void *buf;
    MPI_Datatype type;
    const MPI_Datatype *types;          /* [blocks] instead of type; then displacements are bytes */
    const int *counts, *displs;         /* [blocks], or NULL */
    int blocks, count;
    /* as gridcomm gets it */
    char *at;
    size_t bytes;                       /* of a block, if they are not listed */
    size_t *sizes, *offsets;            /* [blocks], if they are */
    void *temp;                         /* packed data, if at is not in buf */
} gcm_side;

enum { GCM_LOAD = 1, GCM_STORE = 2 };   /* data go to gridcomm; come from there */

/* Fills in at, bytes, sizes and offsets. Returns an error class; nothing is to be closed then. */
GCM int  gcm_side_open(gcm_side *side, int how);
/* Unpacks up to bytes of what has come, if store, and frees. */
GCM void gcm_side_close(gcm_side *side, bool store, size_t bytes);

/* ---- reduce.c ---------------------------------------------------------------------------------------------------- */

typedef void gcm_kernel(const void *in, void *inout, size_t count);

struct gcm_op { gcm_object object; gc_op gc; MPI_User_function *fn; bool commutes, derived; };

/* An operation on a type while it is under way. */
typedef struct gcm_reduction {
    gc_op op;                           /* what gridcomm is told */
    gc_type type;
    bool made;                          /* for this call: to be freed once it has begun */
    gcm_kernel *kernel;                 /* what gridcomm calls then; or the user's function, */
    MPI_User_function *fn;
    MPI_Datatype user_type;             /* on memory laid out as this type has it: reference */
    char *scratch;                      /* two areas of one element, if data have holes there but not on their way */
    size_t area;
} gcm_reduction;

/* r stays where it is until the operation is complete, and is then closed. Returns an error class; nothing is to be closed
 * then. */
GCM int  gcm_reduction_open(gcm_reduction *r, MPI_Op op, MPI_Datatype type);
GCM void gcm_reduction_begun(gcm_reduction *r);
GCM void gcm_reduction_close(gcm_reduction *r);         /* of zeros, too */

/* ---- request.c --------------------------------------------------------------------------------------------------- */

enum gcm_mode { GCM_STANDARD, GCM_SYNCHRONOUS, GCM_BUFFERED, GCM_RECEIVE, GCM_TAKEN };
/* taken: what GCM_TAKEN receives. */
typedef struct gcm_message_args { enum gcm_mode mode; gcm_side side; int peer, tag; gc_message **taken; } gcm_message_args;

/* An operation under way. Blocking ones have theirs on the stack. */
struct gcm_request {
    gcm_object object;
    gc_request *gc;                     /* NULL: it is complete, and result says how */
    gc_status result;
    MPI_Comm comm;                      /* reference */
    const char *call;
    gcm_side send, recv;                /* closed when it is complete */
    gcm_reduction reduction;
    bool receives;                      /* a message, of which the status tells */
    size_t buffered;                    /* bytes of the attached buffer that it takes */
    gcm_message_args message;           /* of a message between two ranks */
    bool persistent, active;            /* begun by MPI_Start, again and again */
    struct gcm_request *next;           /* of the orphans */
};

/* To be begun: gc, or result, is set by the caller, who then gives it to the program, or gives it up. NULL: out of memory. */
GCM MPI_Request gcm_request_new(MPI_Comm comm, const char *call);
GCM void gcm_request_drop(MPI_Request request, bool store, size_t bytes);   /* as gcm_side_close, and frees it */
GCM void gcm_request_orphan(MPI_Request request);       /* it is completed and freed some time */
GCM size_t gcm_orphans_sweep(void);     /* of those that are complete; how many bytes of the attached buffer the rest takes */
GCM void gcm_orphans_unpack(void);      /* something has completed: so may they have */
/* For those in the attached buffer; or (last) for all. take_back: all ranks are in MPI_Finalize. */
GCM void gcm_orphans_wait(bool last, bool take_back);
GCM void gcm_status_set(MPI_Status *to, const gc_status *from);
extern const gc_status gcm_nobody;                      /* of a message to or from MPI_PROC_NULL */

#endif
