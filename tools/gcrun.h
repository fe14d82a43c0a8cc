/* gcrun.h: what the files of the launcher share.
 * SPDX-License-Identifier: MIT
 *
 * gcrun is a plain POSIX program; it shares nothing with the library but the names of environment variables.
 *
 *   gcrun.c         options, main
 *   gcrun_head.c    the process that the user started: one channel to each node, output, reports, exit status
 *   gcrun_node.c    one process per host: starts the ranks, carries their output, leaves nothing behind
 *   gcrun_tunnel.c  connections to rank 0 from hosts that cannot reach it, carried over the channels
 *   gcrun_proc.c    starting and ending processes
 *   gcrun_net.c     rank 0's listening socket, this host's addresses and identity
 *   gcrun_wire.c    byte queues, frames, the description of the job (pure)
 *   gcrun_hosts.c   the host file (pure)
 *
 *                        agent's stdin and stdout                pipes
 *   user <--> gcrun (head) <====== frames ======> gcrun --node <-------> ranks of that host
 *                   \\<========== frames ======> gcrun --node <-------> ranks of another host
 */
#ifndef GCRUN_H
#define GCRUN_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE     /* vfork, pipe2, accept4, execvpe, prctl */
#endif

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

enum {
    GCRUN_TEXT = 512,               /* bytes of an error text */
    GCRUN_RANKS_MAX = 65536,        /* as many as the library takes */
    GCRUN_NAME_MAX = 256,           /* a host's name, with the final 0: DNS allows 253 */
    GCRUN_CLUSTER_MAX = 128,        /* a cluster path, with the final 0: as in the library */
    GCRUN_GRACE_MS = 2000           /* between SIGTERM and SIGKILL */
};

enum { GCRUN_EXIT_FAILED = 1, GCRUN_EXIT_USAGE = 2, GCRUN_EXIT_NO_PROGRAM = 127 };

/* ---- gcrun_hosts.c ---- */

typedef struct gcrun_host {
    char name[GCRUN_NAME_MAX];
    char cluster[GCRUN_CLUSTER_MAX];    /* "" if none */
    int  slots;                         /* 1 .. GCRUN_RANKS_MAX */
} gcrun_host;

/* Reads a host file's text: lines of `host [slots=N] [cluster=path/of/names]`, # begins a comment. Returns 0 and an
 * array of at least one host, to be freed by the caller; or -1 and a text "file:line: reason". Any bytes are safe. */
int gcrun_hosts_parse(const char *text, size_t bytes, const char *file, gcrun_host **hosts, int *count,
                      char error[GCRUN_TEXT]);

/* ---- gcrun_wire.c ---- */

/* A queue of bytes: written at the end, read at the start. All zero is an empty one. */
typedef struct gcrun_queue { unsigned char *data; size_t start, end, room; } gcrun_queue;

static inline size_t gcrun_queue_bytes(const gcrun_queue *q) { return q->end - q->start; }
bool gcrun_queue_reserve(gcrun_queue *, size_t bytes);      /* false: no memory; the queue is as it was */
void gcrun_queue_put(gcrun_queue *, const void *, size_t bytes);    /* ends the program when there is no memory */
void gcrun_queue_drop(gcrun_queue *, size_t bytes);
void gcrun_queue_free(gcrun_queue *);

/* A frame is 12 bytes, in network order: type, id, length; then length bytes. */
enum { GCRUN_FRAME_HEADER = 12, GCRUN_FRAME_MAX = 65536 };

enum gcrun_frame_type {
    /* to a node */
    GCRUN_JOB = 1,      /* a piece of the job's description; id 1: the last piece */
    GCRUN_START,        /* go: payload is GRIDCOMM_ROOT; id 1: append an entry of the tunnel */
    GCRUN_SIGNAL,       /* id: the signal, for all ranks */
    GCRUN_STOP,         /* end all ranks: SIGTERM, and after id milliseconds SIGKILL */
    GCRUN_INPUT,        /* for rank 0's standard input; empty: its end */
    /* from a node */
    GCRUN_HELLO,        /* payload: the host's identity */
    GCRUN_ROOT,         /* rank 0's rendezvous; id: port, payload: addresses with commas between, best first */
    GCRUN_OUTPUT,       /* for standard output (id 1) or standard error (id 2) */
    GCRUN_EXIT,         /* id: rank; payload: a gcrun_exit */
    GCRUN_FAILED,       /* the node cannot do its work; id: exit status, payload: why */
    GCRUN_DONE,         /* no rank and no process of a rank is left */
    /* both ways */
    GCRUN_ACK,          /* id: stream (0 input, 1 output, 2 error); payload: bytes (32 bits) that are consumed */
    GCRUN_TUNNEL_OPEN,  /* id: the connection */
    GCRUN_TUNNEL_DATA,
    GCRUN_TUNNEL_ACK,   /* payload: bytes (32 bits) that the socket at this end took */
    GCRUN_TUNNEL_EOF,
    GCRUN_TUNNEL_RESET,
    GCRUN_FRAME_TYPES
};

typedef struct gcrun_frame {
    enum gcrun_frame_type type;
    uint32_t id, length;
    const unsigned char *payload;
} gcrun_frame;

void gcrun_frame_put(gcrun_queue *, enum gcrun_frame_type, uint32_t id, const void *payload, size_t bytes);
void gcrun_frame_put_number(gcrun_queue *, enum gcrun_frame_type, uint32_t id, uint32_t number);
/* The first frame in the queue: 1, and its bytes (to be dropped after use) in *bytes; 0: not complete yet; -1: not a frame. */
int  gcrun_frame_get(const gcrun_queue *, gcrun_frame *, size_t *bytes);
bool gcrun_frame_number(const gcrun_frame *, uint32_t *number);     /* false: its payload is no number */

/* How a rank ended. */
enum { GCRUN_BY_SIGNAL = 1, GCRUN_CORE = 2, GCRUN_STOPPED = 4, GCRUN_NOT_STARTED = 8 };
typedef struct gcrun_exit { uint32_t pid, code, flags; } gcrun_exit;   /* code: exit status, or signal if GCRUN_BY_SIGNAL */
void gcrun_exit_put(gcrun_queue *, int rank, const gcrun_exit *);
bool gcrun_exit_get(const gcrun_frame *, gcrun_exit *);

/* What a node is told to run. The pointers of a parsed job point into the description. */
typedef struct gcrun_job {
    int first, count, size;     /* the node's ranks are first .. first + count - 1 of size */
    bool prefix, local;         /* local: all ranks are on one host */
    const char *cwd, *cluster;
    char **arg;  int args;      /* NULL-terminated */
    char **env;  int envs;      /* NAME=VALUE, to be added to the node's own environment */
} gcrun_job;
void gcrun_job_put(gcrun_queue *, const gcrun_job *);       /* as JOB frames */
int  gcrun_job_parse(char *text, size_t bytes, gcrun_job *);    /* 0, or -1: malformed or no memory; free with: */
void gcrun_job_free(gcrun_job *);

/* What a node says first, so that what a login shell prints before it is told apart. */
#define GCRUN_MAGIC "\ngcrun-node 1\n"
enum { GCRUN_NOISE_MAX = 65536 };       /* bytes that a login shell may print before it */

/* ---- gcrun_proc.c ---- */

void gcrun_say(const char *format, ...) __attribute__((format(printf, 1, 2)));      /* "gcrun: ...\n" on standard error */
void gcrun_die(int status, const char *format, ...) __attribute__((format(printf, 2, 3), noreturn));
void *gcrun_alloc(size_t count, size_t bytes);      /* zeroed; ends the program when there is no memory */
int64_t gcrun_now_ms(void);                         /* monotonic */

/* The state of this process that those it starts must not inherit. */
typedef struct gcrun_inherit { sigset_t mask; struct rlimit files; bool pipe_ignored; } gcrun_inherit;
/* Blocks signals[0 .. n-1] but those that the caller ignores, ignores SIGPIPE, raises the limit of descriptors, becomes
 * the parent of orphans below it. Returns a signalfd for the signals and SIGCHLD. Keeps what was, for children. */
int gcrun_process_begin(const int signals[], int n, gcrun_inherit *was);

typedef struct gcrun_spawn {
    char *const *argv, *const *envp;
    int  fd[3];                 /* become 0, 1, 2; each > 2, but fd[2] may be 2 */
    int  keep;                  /* a further descriptor to inherit, or -1 */
    bool die_with_parent;
    const gcrun_inherit *inherit;
} gcrun_spawn;
pid_t gcrun_spawn_run(const gcrun_spawn *);         /* in a process group of its own; or a negative errno */

/* Sends a signal to every process below this one but spare[] and those below them. Returns how many there are. */
int gcrun_kill_descendants(int sig, const pid_t spare[], int spares);
int gcrun_children(pid_t out[], int max);           /* the direct ones; how many, at most max */

bool gcrun_nonblock(int fd);
bool gcrun_pipe(int fd[2]);                         /* close-on-exec */
enum gcrun_io { GCRUN_IO_OK, GCRUN_IO_END };
enum gcrun_io gcrun_queue_fill(gcrun_queue *, int fd, size_t max);      /* one read; END: end of file or an error */
enum gcrun_io gcrun_queue_flush(gcrun_queue *, int fd);                 /* as much as fd takes; END: it takes no more ever */

/* The descriptors of one poll. */
typedef struct gcrun_polls { struct pollfd *at; int n, room; } gcrun_polls;
int gcrun_polls_add(gcrun_polls *, int fd, short events);       /* its index; fd < 0 or no events: -1 */
short gcrun_polls_seen(const gcrun_polls *, int index);         /* index -1: 0 */

/* ---- gcrun_net.c ---- */

enum { GCRUN_HOST_ID = 96, GCRUN_ADDRS_TEXT = 1024 };
void gcrun_host_id(char out[GCRUN_HOST_ID]);        /* boot id and network namespace: equal text = same host */
/* Rank 0's rendezvous: on any address, on a free port, of `ports` ("lo-hi") if not NULL. A negative errno on failure. */
int  gcrun_listen_any(const char *ports, uint16_t *port);
int  gcrun_listen_loopback(uint16_t *port);
int  gcrun_connect_loopback(uint16_t port);         /* begins; a negative errno on failure */
/* Of this host, best first, commas between; "" if only loopback. interfaces: GRIDCOMM_IF of the job, or NULL. */
void gcrun_addresses(const char *interfaces, char out[GCRUN_ADDRS_TEXT]);

/* ---- gcrun_tunnel.c ---- */

typedef struct gcrun_tunnel gcrun_tunnel;
gcrun_tunnel *gcrun_tunnel_new(void);
int  gcrun_tunnel_enter(gcrun_tunnel *, int ranks, uint16_t *port);     /* listens for ranks of this host; a negative errno on failure */
void gcrun_tunnel_target(gcrun_tunnel *, int ranks, uint16_t port);     /* connections opened by others go to this port of this host */
void gcrun_tunnel_polls(gcrun_tunnel *, gcrun_polls *);
void gcrun_tunnel_work(gcrun_tunnel *, const gcrun_polls *, gcrun_queue *to_head);
bool gcrun_tunnel_frame(gcrun_tunnel *, const gcrun_frame *, gcrun_queue *to_head);     /* false: malformed */
bool gcrun_tunnel_busy(const gcrun_tunnel *);        /* a socket here may have more to say */
void gcrun_tunnel_free(gcrun_tunnel *);

/* ---- gcrun_node.c, gcrun_head.c ---- */

int gcrun_node_main(void);

typedef struct gcrun_options {
    int    ranks;
    gcrun_host *host;  int hosts;       /* only those that get ranks, slots cut to what they run */
    char **agent;  int agent_words;     /* NULL: this host is started directly */
    bool   agent_given;                 /* by the user: then this host goes through it too */
    char  *node_path;                   /* gcrun on the hosts */
    bool   wait, prefix;
    double start_timeout;               /* s */
    const char *cwd;
    char **arg;  int args;
    char **env;  int envs;              /* NAME=VALUE for the ranks */
} gcrun_options;
int gcrun_head_main(const gcrun_options *);

#endif
