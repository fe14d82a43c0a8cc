/* gridcomm: messages and collectives between processes on hosts that form no tidy network.
 * SPDX-License-Identifier: MIT
 *
 * A job is a number of processes, its ranks 0 .. size - 1, on one host or on many. Each calls gc_init, which finds the
 * others and proves to them that it belongs to the job; from then on any rank can send to any other, and groups of them
 * (communicators) take part in collective operations. Connections are opened on first use, over plain TCP. Linux, C11;
 * nothing but libc and pthreads is needed.
 *
 *     #include "gridcomm.h"
 *     #include <stdio.h>
 *
 *     int main(void)
 *     {
 *         gc_comm *world;
 *         if (gc_init(&world, NULL)) return 1;
 *         int mine = gc_rank(world) + 1, sum;
 *         int err = gc_allreduce(world, &mine, &sum, 1, GC_INT32, GC_SUM);
 *         if (!err && gc_rank(world) == 0) printf("%d ranks, sum %d\n", gc_size(world), sum);
 *         return gc_finalize(world) || err;
 *     }
 *
 *     cc app.c gridcomm.c -lpthread -o app && gcrun -n 8 ./app            (or mpiexec.hydra, or srun)
 *
 * Errors   A function that can fail returns GC_OK (0) or a negative GC_ERR_...; gc_strerror names it, and gc_last_error
 *          tells more: a text, and the rank at fault. Every function that takes a communicator or a request may return
 *          GC_ERR_ARG (a wrong argument; nothing has happened) and GC_ERR_NOMEM, and every one that exchanges data
 *          GC_ERR_PEER (a rank that is needed died or left; it is named), GC_ERR_UNREACHABLE (no connection to it could
 *          be made) and GC_ERR_ABORTED (some rank called gc_abort). These are not repeated below. Nothing calls exit,
 *          raises a signal, or prints, but for the log that the user enabled.
 * Waiting  A call that blocks says so. It ends when its condition holds, when a rank it needs dies, or on gc_abort.
 * Owning   Buffers belong to the caller. One that is being sent may be read, one that is being received into may not be
 *          touched, until its operation is complete. NULL is a fine buffer of 0 bytes. Arrays of sizes and ranks are
 *          copied at the call. What a function returns through a pointer is freed as the function says, and only so.
 * Threads  Calls on different communicators may run at the same time, and so may messages on one communicator.
 *          Collectives on one communicator come from one thread at a time; a request is waited for by one thread. There
 *          is no global state: several worlds can live in one process. After fork, the child may only exec or exit.
 * Network  Every connection proves the job's key at its start (HMAC-SHA-256, both ways). What follows is not encrypted.
 */
#ifndef GRIDCOMM_H
#define GRIDCOMM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- version ----------------------------------------------------------------------------------------------------- */

#define GRIDCOMM_VERSION_MAJOR 0
#define GRIDCOMM_VERSION_MINOR 1
#define GRIDCOMM_VERSION_PATCH 0

/* Returns the version of the library that is linked: major * 10000 + minor * 100 + patch. */
int gc_version(void);

/* ---- errors ------------------------------------------------------------------------------------------------------ */

enum { GC_OK = 0,
       GC_ERR_ARG = -1,             /* an argument is wrong: nothing was done */
       GC_ERR_NOMEM = -2,           /* out of memory */
       GC_ERR_SYSTEM = -3,          /* a system call failed; the text has its errno */
       GC_ERR_TIMEOUT = -4,         /* not done in the time given */
       GC_ERR_UNREACHABLE = -5,     /* no connection to a rank can be made, nor is there a way over others */
       GC_ERR_AUTH = -6,            /* the other end does not know the key of this job */
       GC_ERR_PROTOCOL = -7,        /* the other end said what a rank of this job would not */
       GC_ERR_PEER = -8,            /* a rank died or left */
       GC_ERR_ABORTED = -9,         /* gc_abort was called by some rank */
       GC_ERR_TRUNCATE = -10,       /* a message longer than its receive: the head is there, the rest discarded */
       GC_ERR_MISMATCH = -11,       /* ranks called different collectives, or with arguments that do not agree */
       GC_ERR_CANCELLED = -12,      /* gc_cancel came before the other side */
       GC_ERR_PENDING = -13,        /* requests are not complete */
       GC_ERR_CONFIG = -14,         /* an option or an environment variable is wrong; the text says which */
       GC_ERR_UNSUPPORTED = -15 };  /* not in this version, or not defined for this type */

/* Returns the text of an error code: static, in English, never NULL. */
const char *gc_strerror(int err);

/* ---- types and constants ----------------------------------------------------------------------------------------- */

typedef struct gc_comm gc_comm;         /* a group of ranks that exchange messages apart from all others */
typedef struct gc_request gc_request;   /* an operation under way */
typedef struct gc_message gc_message;   /* a message that gc_mprobe has found, to be received by gc_mrecv */
typedef int gc_type;                    /* GC_INT8 ... */
typedef int gc_op;                      /* GC_SUM ..., or what gc_op_create gave */

enum { GC_ANY_SOURCE = -1, GC_ANY_TAG = -1, GC_UNDEFINED = -2,   /* GC_UNDEFINED: a colour: "no communicator for me" */
       GC_TAG_MAX = 0x3fffffff };                                /* tags: 0 .. GC_TAG_MAX */
enum { GC_INT8 = 1, GC_INT16, GC_INT32, GC_INT64, GC_UINT8, GC_UINT16, GC_UINT32, GC_UINT64,
       GC_FLOAT, GC_DOUBLE, GC_FLOAT16, GC_BFLOAT16, GC_OPAQUE };
enum { GC_SUM = 1, GC_PROD, GC_MIN, GC_MAX, GC_BAND, GC_BOR, GC_BXOR, GC_LAND, GC_LOR, GC_LXOR };
enum { GC_OP_ASSOCIATIVE = 1, GC_OP_COMMUTATIVE = 2 };          /* flags of gc_op_create */
enum { GC_LOG_ERROR, GC_LOG_WARN, GC_LOG_INFO, GC_LOG_DEBUG };

/* How one operation ended. */
typedef struct gc_status {
    int    source, tag;         /* of the message received or probed */
    int    error;               /* GC_OK or GC_ERR_* of this operation */
    int    fault_rank;          /* rank in this communicator that caused it, or -1 */
    size_t bytes;               /* received (after truncation: the receive's size) or waiting */
} gc_status;

/* ---- options ----------------------------------------------------------------------------------------------------- */

/* What gc_init may be told. A field that is 0 or NULL (rank and direct: -1) is taken from the environment variable
 * GRIDCOMM_<FIELD> (ranks: GRIDCOMM_SIZE, interfaces: GRIDCOMM_IF), and if that is not set either, has its default.
 * Begin with GRIDCOMM_OPTIONS_INIT or gc_options_init. Strings need to live only until gc_init returns. */
typedef struct gc_options {
    size_t size;                /* of this struct as the caller knows it */

    /* Who this process is. Without any of it, here or in the environment, it is a world of one. */
    int rank, ranks;            /* -1, 0: unset */
    const char *root;           /* "host:port,host:port": where rank 0 listens; ranks try the list in turn */
    const char *key;            /* shared secret of the job; without one only loopback is used */
    const char *cluster;        /* where this rank stands: "site/rack/..."; default: none */

    /* Nobody should need these three: the library finds out which interface reaches whom. */
    const char *interfaces;     /* "eth*,ib0": interfaces that take part; "^docker*,virbr*": all but those. One that is named
                                   without * and ? must be there */
    const char *advertise;      /* "192.0.2.1", "192.0.2.1:7000", "[2001:db8::1]:7000": where others reach this process, too,
                                   if that is no address of its host: a container with a mapped port */
    const char *ports;          /* "lo-hi": listen on a port of this range, for firewalls */
    const char *links;          /* name of a file with lines "require <src-pattern> <dst-pattern> via=ssh user=NAME": how
                                   hosts are reached that take no connection but ssh's. # begins a comment. Rank 0's file
                                   holds for all ranks; if it has none, each rank's own */
    const char *algo;           /* "bcast:binomial,reduce:flat": algorithms to take */
    const char *model;          /* name of a file that gc_model_save wrote: gc_model_use for the world. Rank 0's holds for all */
    const char *order;          /* "rank": reductions give the same bits on any topology and algorithm; "": the fastest order */
    const char *progress;       /* how to wait: "auto" (poll as long as that pays, then sleep), "poll", "sleep"; "thread":
                                   a thread of the library moves messages while the program computes */
    const char *routing;        /* how relays are chosen, the same at every rank: "updown-dfs" (default), "updown-bfs",
                                   "ordered"; "unrestricted", shortest paths that may deadlock, for comparison only */
    const char *debug;          /* "boot,links,addrsel,p2p,coll" or "all": what to log, to standard error if log is NULL */

    double start_timeout;       /* s, 60: gc_init fails when the job is not complete by then */
    double peer_timeout;        /* s, 30: a host that has not answered for so long is dead */
    double stall;               /* s, 0: off. A call that has waited for so long without anything moving is reported: its operation,
                                   the way to its peer, and what that waits for; again after twice the time, and so on. To the
                                   log function as GC_LOG_WARN, to standard error if there is none. Nothing ends because of it */
    double link_density;        /* share of all pairs of ranks that keep a link for relaying, 0 .. 1, the same at every
                                   rank; default: about 2 log2(ranks) links a rank, up to 9 ranks all */
    int    max_links;           /* direct connections that this rank holds at most, beside those for relaying, 1 .. 1000000;
                                   pairs beyond are relayed. Default: half of the descriptors that the process may open,
                                   16 .. 1024 */
    int    streams;             /* 1: connections over each pair of network cards, for long fat pipes, 1 .. 64 */
    int    credits;             /* 64: messages that may come from one rank before they are asked for, 1 .. 16384 */
    int    queue_packets;       /* 8: packets that wait for one connection, 1 .. 8 */
    int    direct;              /* 1 (default): a pair connects directly where it can; 0: everything is relayed; -1: unset */
    int    insecure;            /* 1: listen beyond loopback without a key */
    size_t eager_budget;        /* bytes, 16 MiB: memory for messages that come before their receive, at least 64 KiB */

    void (*log)(void *user, int level, const char *line);       /* one line without its end; on any thread, often inside the
                                                                   library's lock: it must not call gc_ functions, nor wait */
    void *log_user;
    void *(*alloc)(void *user, void *old, size_t bytes);        /* as realloc; bytes 0 frees. Any thread */
    void *alloc_user;
    char  *error_text;          /* where gc_init says why it failed, or NULL */
    size_t error_text_size;
} gc_options;

#define GRIDCOMM_OPTIONS_INIT { .size = sizeof(gc_options), .rank = -1, .direct = -1 }

/* Sets every option to "unset": what GRIDCOMM_OPTIONS_INIT does, for C++ and other languages. size_of_options is
 * sizeof(gc_options) as the caller was compiled; nothing beyond it is written. */
void gc_options_init(gc_options *options, size_t size_of_options);

/* ---- open and close ---------------------------------------------------------------------------------------------- */

/* Joins the job and gives the communicator of all its ranks. Blocks until every rank has joined, at most
 * start_timeout and one second. options may be NULL. All ranks succeed or all fail, but that one may be lost at the very
 * end, when others are through: those get GC_ERR_PEER from what needs it. On failure *world is NULL, nothing is left
 * behind, and options->error_text says why, naming rank and address where one is at fault. End it with gc_finalize. mpiexec
 * (PMI-1) has one world for each process, whose place a second gc_init has to be told.
 * Returns GC_OK, GC_ERR_ARG, GC_ERR_NOMEM, GC_ERR_SYSTEM; GC_ERR_CONFIG: contradictory or unusable options, also between
 * ranks (another size, a rank twice), no key for an address beyond loopback; GC_ERR_TIMEOUT: not all ranks came, or rank 0
 * was not found where it should be; GC_ERR_UNREACHABLE: all came, but there are no connections that hold them together;
 * GC_ERR_PEER: a rank died meanwhile; GC_ERR_AUTH: rank 0 has another key; GC_ERR_PROTOCOL: rank 0 speaks another version,
 * or a rank says what makes no sense. */
int gc_init(gc_comm **world, const gc_options *options);

/* Leaves the job. Collective over the world: blocks until every rank has called it and all messages under way have
 * arrived, then frees the world and its communicators. If a rank has died or the job was aborted it does not wait for
 * the others, frees everything, and returns the error; the others learn that this rank left.
 * Returns GC_OK; GC_ERR_ARG: not a world, GC_ERR_PENDING: requests are not complete: nothing was done, the world
 * lives on; GC_ERR_PEER, GC_ERR_ABORTED: the job did not end whole. */
int gc_finalize(gc_comm *world);

/* Ends the whole job's communication: every pending and later operation, at every rank, ends with GC_ERR_ABORTED.
 * Local, does not block, may be called from any thread. code stands in the others' error texts. gc_finalize is still
 * due.
 * Returns GC_OK or GC_ERR_ARG. */
int gc_abort(gc_comm *comm, int code);

/* Tells the last call or operation that failed on this communicator, wrong arguments included. status (its error and
 * fault_rank) and text may be NULL; text is cut to text_bytes with its end. What succeeds later changes nothing.
 * Returns its code, GC_OK if none failed. */
int gc_last_error(const gc_comm *comm, gc_status *status, char *text, size_t text_bytes);

/* ---- communicators ----------------------------------------------------------------------------------------------- */

/* A communicator is a list of ranks of the world, numbered anew from 0, and a context of its own: what is sent in one
 * is never received in another. Creating one is collective: it blocks until all members have called. On failure *out
 * is NULL. If a member has no memory for it they all get GC_ERR_NOMEM (of gc_comm_shrink see there); also when the numbers of
 * contexts are used up: a rank has 858,993,458 / gc_size(world), of which gc_comm_split takes one at each rank, gc_comm_dup one at
 * rank 0, gc_comm_create one at the lowest rank listed. Free it with gc_comm_free, or let gc_finalize do so. */

/* Returns the caller's rank in comm, 0 .. gc_size - 1, or GC_ERR_ARG for NULL. */
int gc_rank(const gc_comm *comm);

/* Returns the number of ranks in comm, dead ones too, or GC_ERR_ARG for NULL. */
int gc_size(const gc_comm *comm);

/* Gives a communicator of the same ranks in the same order. Collective over comm, blocks.
 * Returns GC_OK or GC_ERR_MISMATCH. */
int gc_comm_dup(gc_comm *comm, gc_comm **out);

/* Gives each caller the communicator of those with the same color (>= 0), ranked by key, and by rank in comm where keys
 * are equal. With color GC_UNDEFINED *out is NULL. Collective over comm, blocks.
 * Returns GC_OK or GC_ERR_MISMATCH. */
int gc_comm_split(gc_comm *comm, int color, int key, gc_comm **out);

/* Gives the communicator of the n listed ranks of comm, in that order; all of them, and only they, need to call it,
 * with the same list. A caller who is not listed gets *out = NULL at once. Blocks. Who has not even
 * memory for a message of this, for 5 seconds, gives itself up.
 * Returns GC_OK; GC_ERR_MISMATCH: lists with the same lowest rank differ. Who lists a rank that does not call, or whose list has another
 * lowest rank, waits for it: it may yet call. */
int gc_comm_create(gc_comm *comm, const int ranks[], int n, gc_comm **out);

/* As gc_comm_create, for threads that make communicators of one at the same time: calls with the same tag (0 .. GC_TAG_MAX)
 * belong together, and those that other threads make meanwhile have others. Tag 0 is that of gc_comm_create.
 * Returns as gc_comm_create. */
int gc_comm_create_tagged(gc_comm *comm, const int ranks[], int n, int tag, gc_comm **out);

/* Frees a communicator, not the world. Local: each member frees its own. Messages sent in it still arrive.
 * Returns GC_OK; GC_ERR_PENDING: requests on it are not complete. */
int gc_comm_free(gc_comm *comm);

/* When a rank dies, or leaves without the others:
 *   - Whoever lives hears of it, within moments if the process ended, within peer_timeout and a second if its host went silent,
 *     within twice that if the network carries its packets in one direction alone, or if the process was stopped and then ended.
 *     Ranks that a network which has fallen apart keeps from each other are dead to each other. Those who are left without a path of
 *     living ranks over the links that the job keeps for relaying open new ones: what they say to each other waits for that.
 *   - Collectives of a communicator that has it as a member end with GC_ERR_PEER at all others, those under way and all later
 *     ones; a few may have ended well at some ranks just before. What is left in their buffers is undefined.
 *   - Sends to it and receives from it end with GC_ERR_PEER; what had come whole before may still be received.
 *   - If it lives all the same (the network fell apart, or a rank gave it up) all that it waits for ends with GC_ERR_PEER, too, the
 *     rank at fault being its own: for it all others are gone.
 *   - A rank that lacks memory for more than a second to reach others, or to take in what they send, gives itself up: for the others it
 *     is dead, and what it waits for itself, and all that it begins later, ends with GC_ERR_NOMEM.
 *   - Receives and probes from GC_ANY_SOURCE end with it in each communicator that has it as a member, once no message that fits
 *     is there: nobody knows whether what they wait for would have come from it.
 *   - All else goes on: messages between living ranks, also in communicators that it was in, posted before or later; and
 *     communicators, made before or later, that it is not in.
 * Requests that end so are complete, and are to be waited for as ever. gc_comm_failed says who it was, gc_comm_shrink makes a
 * communicator of those who are left. */

/* Gives the communicator of those ranks of comm that live, in the same order. The survivors agree: whoever gets one gets the same
 * members, also if more die meanwhile, and none that a caller knew dead; on each side, if the network has fallen apart. Whoever
 * dies later is a dead member of it: shrink it again.
 * comm may be in any state, with requests pending and collectives that failed, and stays as it is; with nobody dead this is
 * gc_comm_dup. Collective over the living members of comm, apart from its other collectives: it blocks until each of them has called,
 * or has died, so one that does not call, or waits for a message of a rank that is in here, holds all. Takes two round trips, and for
 * a rank that dies meanwhile as long as it takes to hear of that. *out is NULL after an error.
 * A rank that says what makes no sense is given up by the others, which agree without it.
 * Returns GC_OK; GC_ERR_PEER: the others take this rank for dead, or do so soon; GC_ERR_NOMEM: nothing has happened, the others wait
 * until this rank calls again or leaves; or, if gc_comm_failed lists this rank, too: it had begun, memory has failed for 5 s since, and
 * for the others it is dead. */
int gc_comm_shrink(gc_comm *comm, gc_comm **out);

/* Lists the ranks of comm that are known here to have died or left: the first max of them, in order; ranks may be NULL
 * if max is 0. Local. Returns how many there are, which may be more than max. */
int gc_comm_failed(const gc_comm *comm, int ranks[], int max);

/* Writes to out[i] which rank ranks[i] of `from` has in `to`, or -1 if it is not in it; both of one world. Local.
 * Returns GC_OK. */
int gc_comm_translate(const gc_comm *from, const int ranks[], int n, const gc_comm *to, int out[]);

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* A message is any number of bytes, 0 to beyond 4 GiB, with a tag (0 .. GC_TAG_MAX). A receive takes the first
 * message that fits its source and tag (either may be any). Order holds as in MPI: of two messages from one rank that
 * both fit a receive, the earlier is taken; of two receives that both fit a message, the one posted earlier gets it.
 *
 * A send is complete when its buffer may be used again. Short messages are so as soon as they are on their way,
 * longer ones only when the receiver has posted its receive: do not count on either. A program that is right when
 * every gc_send waits for its receive is right.
 *
 * Sending to a rank that has died fails. A receive from a rank that died gets what had come before, then fails; one
 * from GC_ANY_SOURCE fails when any rank of the communicator has died. */

/* Sends bytes to dest. Blocks until buf may be used again. Returns GC_OK. */
int gc_send(gc_comm *comm, const void *buf, size_t bytes, int dest, int tag);

/* Sends as gc_send, and blocks until the receiver has matched the message with a receive, or has freed the communicator and
 * takes none any more. Returns GC_OK. */
int gc_ssend(gc_comm *comm, const void *buf, size_t bytes, int dest, int tag);

/* Receives a message of at most bytes from source (or GC_ANY_SOURCE) with tag (or GC_ANY_TAG). Blocks until it is
 * there. status may be NULL. Returns GC_OK; GC_ERR_TRUNCATE: it was longer, its first bytes are in buf, the rest is
 * discarded. */
int gc_recv(gc_comm *comm, void *buf, size_t bytes, int source, int tag, gc_status *status);

/* Sends and receives at once, so that rings and swaps cannot wait for each other; the buffers must not overlap. Blocks
 * until both are complete; if one fails because its rank died, the other goes on. status, of the receive, may be NULL.
 * Returns the first error of the two: as gc_recv. */
int gc_sendrecv(gc_comm *comm, const void *send, size_t send_bytes, int dest, int send_tag,
                void *recv, size_t recv_bytes, int source, int recv_tag, gc_status *status);

/* gc_send, gc_ssend and gc_recv begun: gc_isend, gc_issend and gc_irecv do not block and give a request, to be
 * completed by one of the functions of the next section, by which alone it is freed. The buffer is the library's
 * until then.
 * Each returns GC_OK, or an error that was there at once: then *request is NULL. */
int gc_isend(gc_comm *comm, const void *buf, size_t bytes, int dest, int tag, gc_request **request);
int gc_issend(gc_comm *comm, const void *buf, size_t bytes, int dest, int tag, gc_request **request);
int gc_irecv(gc_comm *comm, void *buf, size_t bytes, int source, int tag, gc_request **request);

/* Blocks until a message that fits source and tag waits, and tells its source, tag and bytes, without receiving it.
 * With several threads the message may be gone when it is received: use gc_mprobe. Returns GC_OK. */
int gc_probe(gc_comm *comm, int source, int tag, gc_status *status);

/* As gc_probe without blocking: *found says whether there is one. Returns GC_OK. */
int gc_iprobe(gc_comm *comm, int source, int tag, int *found, gc_status *status);

/* Blocks until a message that fits waits, and takes it out of the queue: only gc_mrecv or gc_imrecv can receive it now,
 * and one of them must. status may be NULL. Returns GC_OK. */
int gc_mprobe(gc_comm *comm, int source, int tag, gc_message **message, gc_status *status);

/* As gc_mprobe without blocking: if there is none, *message is NULL. Returns GC_OK. */
int gc_improbe(gc_comm *comm, int source, int tag, gc_message **message, gc_status *status);

/* Receives the message that was taken, blocks, frees it and sets *message to NULL. Returns as gc_recv. */
int gc_mrecv(gc_message **message, void *buf, size_t bytes, gc_status *status);

/* As gc_mrecv without blocking: gives a request. Returns GC_OK, or an error that was there at once: then *message is
 * still there to be received. */
int gc_imrecv(gc_message **message, void *buf, size_t bytes, gc_request **request);

/* ---- completion -------------------------------------------------------------------------------------------------- */

/* A request that is complete is freed and its variable set to NULL; a NULL request counts as complete, and as a
 * success. A status may be NULL. The value returned is the operation's own error (GC_ERR_TRUNCATE, GC_ERR_PEER,
 * GC_ERR_MISMATCH, ...), which also stands in its status. The requests of one call are of one world: GC_ERR_ARG, if not.
 * Operations progress inside any call of the library for their world. While a rank waits in one world it does not send again
 * what a broken connection has lost in another: progress "thread" does. */

/* Blocks until the operation is complete. Returns its error. */
int gc_wait(gc_request **request, gc_status *status);

/* As gc_wait, for at most so many seconds (0: looks once). Returns the operation's error; GC_ERR_TIMEOUT: it is not
 * complete, and the request lives on. */
int gc_wait_for(gc_request **request, double seconds, gc_status *status);

/* Looks whether the operation is complete (*done), without blocking. Returns its error if so, else GC_OK. */
int gc_test(gc_request **request, int *done, gc_status *status);

/* Blocks until all n operations are complete, failed ones too. statuses has n entries or is NULL. Returns the first
 * error in the order of the array. */
int gc_waitall(int n, gc_request *requests[], gc_status statuses[]);

/* Blocks until one of the n operations is complete and tells which: *index, -1 if all requests are NULL. Returns that
 * operation's error. */
int gc_waitany(int n, gc_request *requests[], int *index, gc_status *status);

/* Looks whether all n operations are complete; frees all of them (*done = 1) or none (*done = 0). Returns the first
 * error in the order of the array, or GC_OK if not done. */
int gc_testall(int n, gc_request *requests[], int *done, gc_status statuses[]);

/* As gc_waitany without blocking: *done says whether one was complete; it is 1, with *index -1, if all requests are
 * NULL.
 * Returns that operation's error, or GC_OK. */
int gc_testany(int n, gc_request *requests[], int *index, int *done, gc_status *status);

/* Asks that a message operation end without a message. Does not block. The request must still be completed: it ends with
 * GC_ERR_CANCELLED, or as if nothing had been asked. A receive does the latter if a message was there first. A send does so
 * if a receive or gc_mprobe was, or if all of the message has left already (a short one has, unless it is synchronous); else
 * its receiver takes it for never sent, as soon as that is in a gc_ call. Returns GC_OK; GC_ERR_ARG: neither of them. */
int gc_cancel(gc_request *request);

/* Moves on what can move, without blocking. Only for programs that wait for something else while operations are
 * pending.
 * Returns how much moved: > 0 something, 0 nothing, < 0 an error. */
int gc_progress(gc_comm *world);

/* Gives a descriptor for the program's own poll or epoll: readable when gc_progress should be called, also when a
 * timer is due. It belongs to the library: do not read from it or close it. Returns it, or an error, GC_ERR_SYSTEM if there
 * is no descriptor left. */
int gc_pollfd(gc_comm *world);

/* ---- collectives ------------------------------------------------------------------------------------------------- */

/* All members of a communicator call the same operation, in the same order, with sizes, types, operations and roots
 * that agree. Where they do not, every rank that would otherwise wait for something else gets GC_ERR_MISMATCH, with a
 * text that names both sides. A call blocks until this rank's part is done: that another has finished, only
 * gc_barrier says.
 *
 * Blocks: every rank has a block, in the order of ranks. `bytes` is the size of one: gc_gather of 4 bytes over 8 ranks
 * fills 32 bytes at the root. Functions that end in v take blocks of any sizes, 0 too, at any places: arrays of gc_size
 * sizes and gc_size offsets from the beginning of the buffer, both in bytes. Gaps stay as they are. What is
 * received must not overlap; what is sent may.
 *
 * In place: the smaller buffer of scatter, gather, allgather and their v forms may be this rank's own block inside the
 * larger one; of all others send == recv, for alltoallv with the same sizes and offsets. For reduce_scatter both are
 * fine: with send == recv the result comes to the buffer's beginning. Any other overlap is GC_ERR_ARG where it can be
 * seen. Each rank decides for itself. Arguments that matter at the root alone are not looked at elsewhere.
 *
 * When a member dies, every collective of the communicator that is pending or begun later ends with GC_ERR_PEER, at
 * every other member; what is in recv then is undefined. Besides the common codes each returns GC_OK or
 * GC_ERR_MISMATCH. */

/* Blocks until every member has called it. Returns: see above. */
int gc_barrier(gc_comm *comm);

/* Copies buf of root, bytes long, to buf of every other rank. Returns: see above. */
int gc_bcast(gc_comm *comm, void *buf, size_t bytes, int root);

/* Gives every rank its block (bytes) of root's send (gc_size * bytes). send matters at the root. Returns: see above. */
int gc_scatter(gc_comm *comm, const void *send, size_t bytes, void *recv, int root);

/* As gc_scatter, with blocks of any size: root has send, bytes[] and offsets[]; each rank says how long its own is, as
 * root does (recv_bytes == bytes[rank]). Returns: see above. Sizes that only two ranks know are compared when a message
 * comes: who receives it gets GC_ERR_MISMATCH. No message is sent for 0 bytes: who waits for one asks, and gets it all the same,
 * within a second or so; but who expects none perhaps does not notice that one comes. */
int gc_scatterv(gc_comm *comm, const void *send, const size_t bytes[], const size_t offsets[], void *recv,
                size_t recv_bytes, int root);

/* Puts every rank's send (bytes each) one after another into recv of root (gc_size * bytes). recv matters at the root.
 * Returns: see above. */
int gc_gather(gc_comm *comm, const void *send, size_t bytes, void *recv, int root);

/* As gc_gather, with blocks of any size: root has recv, bytes[] and offsets[]; each rank says how long its own is
 * (send_bytes == bytes[rank]). Returns: as gc_scatterv. */
int gc_gatherv(gc_comm *comm, const void *send, size_t send_bytes, void *recv, const size_t bytes[],
               const size_t offsets[], int root);

/* As gc_gather, with the result at every rank. Returns: see above. */
int gc_allgather(gc_comm *comm, const void *send, size_t bytes, void *recv);

/* As gc_gatherv, with the result at every rank. bytes[] is the same at all ranks, offsets[] each rank's own affair.
 * Returns: see above. */
int gc_allgatherv(gc_comm *comm, const void *send, size_t send_bytes, void *recv, const size_t bytes[],
                  const size_t offsets[]);

/* Gives every rank j block j of this rank's send, which becomes this rank's block of j's recv. Both have gc_size blocks
 * of bytes each. Returns: see above. */
int gc_alltoall(gc_comm *comm, const void *send, size_t bytes, void *recv);

/* As gc_alltoall, with blocks of any size. What i sends to j has the same size at both: send_bytes[j] at i is
 * recv_bytes[i] at j. Returns: as gc_scatterv. */
int gc_alltoallv(gc_comm *comm, const void *send, const size_t send_bytes[], const size_t send_offsets[], void *recv,
                 const size_t recv_bytes[], const size_t recv_offsets[]);

/* Combines the count elements of every rank's send, element by element, into recv of root: send of rank 0 (op) send
 * of rank 1 (op) ... Operations that are associative are combined pairwise, in a placement that depends
 * on the ranks alone and never on who was faster: the same run gives the same bits. What is not commutative is
 * combined in the order of ranks, what is not associative strictly from rank 0 up. recv matters at the root.
 *
 * The predefined operations: GC_SUM, GC_PROD, GC_MIN and GC_MAX on all types but GC_OPAQUE; the others on integers.
 * Integers wrap; a NaN makes the minimum and the maximum NaN; logical operations give 0 or 1. GC_FLOAT16 is IEEE
 * binary16 and GC_BFLOAT16 the upper half of a float: each single operation is computed in float and rounded to nearest,
 * ties to even. GC_OPAQUE has operations of gc_op_create only. Returns: see above; GC_ERR_ARG also for an op that the
 * type does not have. */
int gc_reduce(gc_comm *comm, const void *send, void *recv, size_t count, gc_type type, gc_op op, int root);

/* As gc_reduce, with the same result, to the bit, at every rank (but GC_DOUBLE beside a rank whose compiler reckons in more than
 * 53 bits: 32-bit x86 without SSE2). Returns as gc_reduce. */
int gc_allreduce(gc_comm *comm, const void *send, void *recv, size_t count, gc_type type, gc_op op);

/* Combines as gc_reduce vectors of counts[0] + counts[1] + ... elements, and gives every rank its block of the result:
 * counts[rank] elements in recv. counts[] is the same at all ranks. Returns as gc_reduce. */
int gc_reduce_scatter(gc_comm *comm, const void *send, void *recv, const size_t counts[], gc_type type, gc_op op);

/* As gc_reduce_scatter, with count elements for every rank: send has gc_size * count. Returns as gc_reduce. */
int gc_reduce_scatter_block(gc_comm *comm, const void *send, void *recv, size_t count, gc_type type, gc_op op);

/* Combines as gc_reduce, and gives every rank the result of the ranks from 0 up to itself. Returns as gc_reduce. */
int gc_scan(gc_comm *comm, const void *send, void *recv, size_t count, gc_type type, gc_op op);

/* As gc_scan, without the rank's own: the result of ranks 0 .. rank - 1. At rank 0 recv is left as it is, and may be
 * NULL. Returns as gc_reduce. */
int gc_exscan(gc_comm *comm, const void *send, void *recv, size_t count, gc_type type, gc_op op);

/* The same begun: gc_ibarrier, gc_ibcast, gc_iscatter, gc_iscatterv, gc_igather, gc_igatherv, gc_iallgather,
 * gc_iallgatherv, gc_ialltoall, gc_ialltoallv, gc_ireduce, gc_iallreduce, gc_ireduce_scatter, gc_ireduce_scatter_block,
 * gc_iscan and gc_iexscan do not block and give a request, to be completed like any other; it progresses inside any call
 * of the library. Several may be under way; all members begin them in the same order. Buffers are the library's until
 * then, arrays only during the call. Each returns GC_OK, or an error that was there at once: then *request is NULL. */
int gc_ibarrier(gc_comm *comm, gc_request **request);
int gc_ibcast(gc_comm *comm, void *buf, size_t bytes, int root, gc_request **request);
int gc_iscatter(gc_comm *comm, const void *send, size_t bytes, void *recv, int root, gc_request **request);
int gc_iscatterv(gc_comm *comm, const void *send, const size_t bytes[], const size_t offsets[], void *recv,
                 size_t recv_bytes, int root, gc_request **request);
int gc_igather(gc_comm *comm, const void *send, size_t bytes, void *recv, int root, gc_request **request);
int gc_igatherv(gc_comm *comm, const void *send, size_t send_bytes, void *recv, const size_t bytes[],
                const size_t offsets[], int root, gc_request **request);
int gc_iallgather(gc_comm *comm, const void *send, size_t bytes, void *recv, gc_request **request);
int gc_iallgatherv(gc_comm *comm, const void *send, size_t send_bytes, void *recv, const size_t bytes[],
                   const size_t offsets[], gc_request **request);
int gc_ialltoall(gc_comm *comm, const void *send, size_t bytes, void *recv, gc_request **request);
int gc_ialltoallv(gc_comm *comm, const void *send, const size_t send_bytes[], const size_t send_offsets[], void *recv,
                  const size_t recv_bytes[], const size_t recv_offsets[], gc_request **request);
int gc_ireduce(gc_comm *comm, const void *send, void *recv, size_t count, gc_type type, gc_op op, int root,
               gc_request **request);
int gc_iallreduce(gc_comm *comm, const void *send, void *recv, size_t count, gc_type type, gc_op op,
                  gc_request **request);
int gc_ireduce_scatter(gc_comm *comm, const void *send, void *recv, const size_t counts[], gc_type type, gc_op op,
                       gc_request **request);
int gc_ireduce_scatter_block(gc_comm *comm, const void *send, void *recv, size_t count, gc_type type, gc_op op,
                             gc_request **request);
int gc_iscan(gc_comm *comm, const void *send, void *recv, size_t count, gc_type type, gc_op op, gc_request **request);
int gc_iexscan(gc_comm *comm, const void *send, void *recv, size_t count, gc_type type, gc_op op,
               gc_request **request);

/* ---- operations of one's own ------------------------------------------------------------------------------------- */

/* inout[i] = in[i] (op) inout[i] for count elements; `in` comes from lower ranks. It runs inside calls of the library,
 * perhaps on another thread than the one that started the collective, and must not call the library, but for gc_abort. */
typedef void gc_op_fn(const void *in, void *inout, size_t count, gc_type type, void *user);

/* Makes an operation on elements of elem_bytes each, for every communicator of this world. flags: GC_OP_ASSOCIATIVE
 * (else it is evaluated strictly from rank 0 up), GC_OP_COMMUTATIVE (else in rank order). user is handed to fn. Local;
 * every rank that takes part in a reduction has made its own, in the same order. The type in a call is one of the same
 * size, or GC_OPAQUE, where an element is elem_bytes long. Free it with gc_op_free or gc_finalize. Returns GC_OK. */
int gc_op_create(gc_comm *world, gc_op_fn *fn, size_t elem_bytes, unsigned flags, void *user, gc_op *op);

/* Frees an operation that gc_op_create made; collectives under way still use it. Local. Returns GC_OK. */
int gc_op_free(gc_comm *world, gc_op op);

/* Applies op here: inout = in (op) inout, count elements, without communication; the buffers must not overlap. Returns
 * GC_OK. */
int gc_reduce_local(gc_comm *world, const void *in, void *inout, size_t count, gc_type type, gc_op op);

/* ---- advanced: topology and statistics --------------------------------------------------------------------------- */

/* Returns the identity of the host of a rank: equal text, same host. Lives as long as the communicator. NULL: no such
 * rank. */
const char *gc_host(const gc_comm *comm, int rank);

/* Returns the cluster of a rank: "site/rack", "" if none was given. Lives as long as the communicator. NULL: no such
 * rank. */
const char *gc_cluster(const gc_comm *comm, int rank);

/* A rooted tree of the ranks 0 .. size - 1: each rank's parent, its first child, and the next child of its parent; -1: none.
 * Who sends to its children sends in the order of siblings. */
typedef struct gc_tree { int size, root; int *parent; int *first_child; int *next_sibling; } gc_tree;

/* What is known of the times of messages between ranks (docs/models.md). It may be used by several threads, since nothing
 * changes it. */
typedef struct gc_model gc_model;

/* Makes a tree. Shapes:
 *   "flat"       all are children of the root: the least latency for few ranks
 *   "chain"      each has one child, the next rank: for long data that is cut into segments
 *   "binary", "kary:K"        a rank has up to K children, whose subtrees are as equal as can be: log(size) levels
 *   "binomial", "knomial:K"   subtrees of 1, K, K^2, ... ranks, K - 1 of each, at the root: while a rank sends to one child,
 *                those that it sent to before send to theirs; K is 2 for "binomial"
 * K is 8 where it is left out ("kary"). Every subtree is a run of ranks, counted on from the root, 0 after the highest;
 * children stand in sending order, the largest subtree first. After a shape may stand how else ranks are dealt out to its
 * places ("binomial-dfs-nearest"), in this order:
 *   "-dfs", "-bfs"            place by place depth-first, which is usual, or breadth-first;
 *   "-nearest", "-farthest"   to each place the rank, of those left, to which a message from its parent takes least, or
 *                most, time by the model; else the next one;
 *   "-smallest", "-largest"   siblings from the smallest subtree on, which is usual, or from the largest.
 * "-nearest" keeps together what is near. Trees whose shape the model or the sizes give:
 *   "prim", "prim-ready", "prim-ahead"   by the model, the cheapest edge first, for broadcasts. An edge costs the message's
 *                time; or until when it is there; or that and the least time to pass it on
 *   "traeff"     for scatterv and gatherv: subtrees of about equal cost, by the model or, without one, by bytes; in each
 *                the rank that is nearest for all that goes there is on top
 * bytes: of the message for each rank, of scatterv its block; NULL: none. model: made for `size` ranks; NULL: none. Local;
 * needs no world. Free the tree with gc_tree_free. Source: Dichev 2014, 2.2.1 and 6.2.
 * Returns GC_OK; GC_ERR_ARG: no such shape or number, size < 1, root not in 0 .. size - 1, a model for another number of
 * ranks, or none for "-nearest", "-farthest" and "prim"; GC_ERR_NOMEM. *tree is NULL after an error. */
int gc_tree_build(gc_tree **tree, const char *shape, int size, int root, const gc_model *model, const size_t bytes[]);

/* Frees a tree that gc_tree_build made, and no other. NULL is fine. */
void gc_tree_free(gc_tree *tree);

/* Writes a tree into text: a line per rank, indented by its depth, siblings in order; or for Graphviz, if dot is not 0. The
 * text is cut to text_bytes with its end; *needed, which may be NULL, is what the whole takes. Local. Returns GC_OK;
 * GC_ERR_ARG: not one tree over all its ranks. */
int gc_tree_print(const gc_tree *tree, int dot, char *text, size_t text_bytes, size_t *needed);

/* Collectives along a given tree, whose root is the collective's: gc_tree_bcast, gc_tree_reduce, gc_tree_scatterv and
 * gc_tree_gatherv are gc_bcast, gc_reduce, gc_scatterv and gc_gatherv otherwise. Any tree of gc_size ranks will do, the
 * same at all ranks. Messages run between parent and child alone, except where a reduction has an operation that the
 * tree cannot take in its order. Before scatterv and gatherv the root tells all ranks the sizes. Each blocks, and returns
 * as the other does; GC_ERR_ARG also for a tree of another size, or that is none; GC_ERR_MISMATCH also for trees that
 * differ. */
int gc_tree_bcast(gc_comm *comm, const gc_tree *tree, void *buf, size_t bytes);
int gc_tree_reduce(gc_comm *comm, const gc_tree *tree, const void *send, void *recv, size_t count, gc_type type,
                   gc_op op);
int gc_tree_scatterv(gc_comm *comm, const gc_tree *tree, const void *send, const size_t bytes[], const size_t offsets[],
                     void *recv, size_t recv_bytes);
int gc_tree_gatherv(gc_comm *comm, const gc_tree *tree, const void *send, size_t send_bytes, void *recv,
                    const size_t bytes[], const size_t offsets[]);

/* Reads a model from a file (docs/models.md). Local; needs no world; blocks on the file alone. Free it with gc_model_free.
 * error_text, which may be NULL with size 0, gets why it failed: line and word, if it is the text's fault. *model is NULL
 * after any error.
 * Returns GC_OK; GC_ERR_SYSTEM: it cannot be read; GC_ERR_CONFIG: it is no model; GC_ERR_ARG; GC_ERR_NOMEM. */
int gc_model_load(const char *path, gc_model **model, char *error_text, size_t error_text_bytes);

/* Writes a model to a file, by way of one of that name with ".new" behind it: after an error what was there before is there
 * still. Local. Returns GC_OK; GC_ERR_SYSTEM: it cannot be written, errno says why; GC_ERR_ARG; GC_ERR_NOMEM. */
int gc_model_save(const gc_model *model, const char *path);

/* Measures what messages cost between the ranks of comm, which nothing else should load meanwhile. kind: "hockney", a latency
 * and a rate for each pair; or "plogp", overheads and gaps by size (Kielmann, Bal and Verstoep 2000), in about twice the time.
 * Collective over comm; blocks for about max_seconds at most (up to 1e6; rank 0's counts), for less if its medians are certain
 * before. Pairs that share neither host nor site are measured at once: all of a site with up to 8 hosts; of two sites, which
 * the first different names of gc_cluster tell apart, one, and another one to check. Then it is seen whether messages of one
 * host, of a site to several others, and between two sites go through something that they share. If there is not the time for
 * all, this and the checks are left out. Takes 4 MiB of memory, and at rank 0 about 2 KiB for each rank and each pair measured.
 * *model is the same at all ranks, each frees its own with gc_model_free; after an error, which all ranks get, it is NULL.
 * Returns GC_OK; GC_ERR_ARG: no such kind or time; GC_ERR_TIMEOUT: not even the pairs could be measured in that time;
 * GC_ERR_UNSUPPORTED: more than 64 sites. */
int gc_model_measure(gc_comm *comm, const char *kind, double max_seconds, gc_model **model);

/* Frees a model, which no call may be using. NULL is fine. */
void gc_model_free(gc_model *model);

/* Puts into *seconds how long a message of so many bytes takes between two of the model's ranks, if nothing else is under way.
 * Local; needs no world. Returns GC_OK; GC_ERR_ARG: no such rank, or NULL. */
int gc_model_p2p(const gc_model *model, int source, int dest, size_t bytes, double *seconds);

/* Predicts how long a collective takes under a model of the communicator's ranks, from the instant at which all begin until the
 * last is through: the schedules of all ranks are evaluated step by step. operation: "barrier", "bcast", "scatter", "gather",
 * "allgather", "alltoall", "reduce", "allreduce", "reduce_scatter", "scan" or "exscan"; algorithm: as in GRIDCOMM_ALGO, such as
 * "binomial" or "chain@65536" (of trees that are made for a model, as with this one in use), or NULL: the one that the operation
 * would take. bytes: of the vector of a broadcast or reduction, of each block of the others. Local; takes about 0.5 us for each
 * message of all ranks.
 * Returns GC_OK; GC_ERR_ARG: no such operation, algorithm or root, or a model of another number of ranks;
 * GC_ERR_UNSUPPORTED: this algorithm cannot do it. */
int gc_predict(gc_comm *comm, const gc_model *model, const char *operation, const char *algorithm, size_t bytes, int root,
               double *seconds);

/* The communicator's collectives take from now on what the model says is the fastest: for each operation and size, of calls that
 * any algorithm can do (blocks of one size, operations that commute and associate, no GRIDCOMM_ORDER). Other calls, and what
 * GRIDCOMM_ALGO names, go on as without. Rank 0's model is taken, the others' are not looked at; NULL there: none any more.
 * Predictions are made for root 0; rank 0 makes hundreds, for which the others wait: 1 s with 64 ranks, 5 s with 1,000. What comes
 * out is kept in rank 0's model, too, so that gc_model_save saves it and the next use, of the same ranks in the same clusters, has
 * it at once; so no other call may use that model meanwhile. It may be freed: every rank keeps a copy. Communicators made of
 * this one begin without a model. GRIDCOMM_MODEL=FILE does it for the world in gc_init. Collective; blocks. Returns GC_OK; GC_ERR_ARG: not a model of gc_size ranks. After an error nothing
 * has changed. */
int gc_model_use(gc_comm *comm, const gc_model *model);

/* Writes every algorithm that could do a collective, and what the model in use says of it, into text: a line each, the fastest
 * first, and which of them is taken. Arguments as of gc_predict, text as of gc_describe. Local; takes as long as 10 to 50 calls of
 * gc_predict. Returns GC_OK; GC_ERR_ARG: no such operation or root; GC_ERR_UNSUPPORTED: no model is in use. */
int gc_explain(gc_comm *comm, const char *operation, size_t bytes, int root, char *text, size_t text_bytes, size_t *needed);

/* What this process has sent and holds. Later versions may add fields at the end. */
typedef struct gc_stats {
    size_t   size;              /* of this struct as the caller knows it */
    uint64_t messages, bytes;           /* sent by this process, of the program's own data */
    uint64_t wan_messages, wan_bytes;   /* of these, to ranks of another site (the first name of the cluster) */
    uint64_t relayed_bytes;     /* forwarded for others */
    uint64_t system_calls;      /* on data connections */
    size_t   memory, memory_peak;       /* bytes allocated now and at most */
    int      connections;       /* data connections open now */
} gc_stats;

/* Fills stats, of which the caller has set size; nothing beyond that is written. Local. Returns GC_OK. */
int gc_get_stats(const gc_comm *world, gc_stats *stats);

/* Writes what was chosen and why, as this process knows it now, into text: a line for each fact with form "text", a picture
 * for Graphviz with form "dot". What:
 *   "links"     each connection of this process with its queue and what was relayed over it, and the links that
 *               the whole job keeps for relaying, with their costs; which of them are down
 *   "routes"    the numbering that keeps relays free of deadlock, the path to every rank (for short latency, and for
 *               bandwidth), whether it is in use, and which ranks relay for this one
 *   "waits"     who waits for whom: packets for room in a queue, requests for their peers
 *   "clusters"  the tree of clusters and hosts, with their ranks
 *   "addresses" the interfaces and addresses of every host, where it stands, what collides; for every other host which
 *               pairs of interfaces are links and why the others are not, and which addresses are tried in which order
 *   "collectives" which algorithm each collective of this communicator takes, and up to how many bytes (of the vector; of
 *               all blocks of an allgather or reduce_scatter; of one block of the others), the first that can; with a model, before
 *               that what it chose (bytes as of gc_predict); no picture
 * Without their first and last line the pictures of all ranks can be joined into one of the job. The text is cut to
 * text_bytes with its end; *needed, which may be NULL, is what the whole takes. Local; does not block, but "routes" takes
 * time that grows with the square of the ranks, and "addresses" asks the kernel for the route to each address of the job.
 * Returns GC_OK; GC_ERR_ARG: no such what or form; GC_ERR_SYSTEM: this host's interfaces cannot be read. */
int gc_describe(gc_comm *world, const char *what, const char *form, char *text, size_t text_bytes, size_t *needed);

#ifdef __cplusplus
}
#endif
#endif
