/* simnet_int.h: what the files of the simulated network share.
 * SPDX-License-Identifier: MIT
 *
 *   simnet.c        events and time, contexts and their stacks, the run loop, trace, dumps
 *   simnet_sys.c    what a process sees: threads, monitors, descriptors, pollers, clock, memory
 *   simnet_net.c    hosts, networks, routes and the links that segments wait for
 *   simnet_tcp.c    sockets: handshake, streams with windows, ends and resets
 *   simnet_fault.c  deaths, stops, cuts, resets
 *
 * Events are embedded in what they are about; those with `owned` set are one malloc with the event first, freed after firing.
 */
#ifndef SIMNET_INT_H
#define SIMNET_INT_H

#include "simnet.h"

#include <errno.h>
#include <setjmp.h>
#include <stdlib.h>
#include <ucontext.h>

typedef struct sim_event sim_event;
struct sim_event {
    int64_t  at;
    uint64_t seq;               /* ties are fired in the order of scheduling */
    size_t   place;             /* 1 + index in the heap; 0: not scheduled */
    bool     owned;
    void   (*fire)(sim *, sim_event *);
};

/* Where a context goes on: at the beginning of its function, or where it was left. */
typedef struct sim_point { ucontext_t machine; jmp_buf jump; bool entered; } sim_point;

typedef struct sim_ctx sim_ctx;
typedef struct sim_file sim_file;
typedef struct sim_poller sim_poller;
typedef struct sim_sock sim_sock;
typedef struct sim_pipe sim_pipe;
typedef struct sim_segment sim_segment;
typedef struct sim_link sim_link;

/* ---- contexts ---- */

enum sim_state { SIM_RUNNABLE, SIM_RUNNING, SIM_BLOCKED, SIM_ENDED };
enum sim_why { SIM_FOR_NOTHING, SIM_FOR_POLLER, SIM_FOR_MONITOR, SIM_FOR_NOTIFY, SIM_FOR_THREAD, SIM_FOR_TIME, SIM_FOR_SPIN };

struct sim_ctx {
    sim_event  timer;           /* first: the end of a sleep or of a timeout */
    sim       *s;
    sim_proc  *proc;
    sim_ctx   *next;            /* of the process */
    int        id;              /* in the simulation */
    void     (*run)(void *);    void *arg;
    enum sim_state state;
    enum sim_why   why;         /* while blocked ... */
    void      *on;              /* ... and on which poller, monitor or context */
    bool       queued, held;    /* in the run queue; runnable, but its process is stopped */
    bool       timed_out, thread, joined;
    int        fruitless;       /* polls in a row that found nothing */
    int        idle_calls;      /* calls in a row that found nothing and did not wait */
    int        stuck;           /* waits in a row that something was ready for, of which nothing came */
    int64_t    since;           /* when it last blocked */
    sim_point  point;
    void      *stack;           /* the mapping, guard page first */
    size_t     stack_bytes;
    void      *fiber;           /* of the sanitizer */
    const void *bounds;  size_t bounds_bytes;
};

struct sim_monitor { sim_ctx *inside; struct sim_monitor *next; bool freed; };     /* freed: kept, to catch who uses it still */

/* ---- descriptors ---- */

enum sim_kind { SIM_SOCKET, SIM_POLLER, SIM_WAKER };

typedef struct sim_watch sim_watch;
struct sim_watch {
    sim_poller *poller;
    sim_file   *file;
    unsigned    events;
    uint64_t    tag;
    bool        queued;
    sim_watch  *of_file, *of_poller;    /* next in the lists of both */
    sim_watch  *ready, *ready_before;   /* in the poller's queue of those that may be ready */
};

struct sim_file {
    enum sim_kind kind;
    int        fd;              /* -1: closed, or not accepted yet */
    sim_proc  *proc;
    sim_watch *watches;
    sim_file  *all;             /* next in sim.files; freed with it */
};

struct sim_poller { sim_file file; sim_watch *watches, *ready, *ready_last; };
struct sim_waker { sim_file file; sim_event alarm; bool awake, armed; };        /* a timer, too */

/* ---- network ---- */

/* What segments are serialised on: one direction of a NIC or of a wide-area link. */
struct sim_link {
    const char *name;
    int64_t   rate, free_at;    /* byte/s; when the last one that has been let on is through */
    bool      off;              /* nothing gets over it */
    size_t    limit, queued;    /* bytes let on and not yet through; 0: no limit */
    uint64_t  bytes;
    sim_pipe *waiting, *waiting_last, *turn;    /* turn: has waited, and may pass the others */
};

enum { SIM_ADDRESSES = 8, SIM_HOPS = 14, SIM_NATS = 2, SIM_SEGMENT_MIN = 1448, SIM_SEGMENT_MAX = 65536 };

struct sim_net { sim_net *next; char *name; int64_t latency; sim_site *site; sim_nic *nics; };

typedef struct sim_address { gci_addr addr; uint8_t prefix, flags; } sim_address;

struct sim_nic {
    sim_host *host;
    sim_net  *net;
    sim_nic  *next, *next_in_net;
    char      name[GCI_IFNAME_BYTES];
    uint32_t  index;
    int64_t   speed;            /* Mbit/s, as it says; -1: as its rate is */
    bool      point_to_point, down, idle, cut;      /* idle: no carrier */
    int       addresses;
    sim_address address[SIM_ADDRESSES];
    sim_link  out, in;
};

typedef struct sim_forward { struct sim_forward *next; uint16_t port, to_port; sim_host *to; } sim_forward;

/* What stands between a site's IPv4 addresses and the world. */
typedef struct sim_nat {
    gci_addr  address;          /* family 0: there is none */
    int64_t   idle;             /* a mapping unused for longer is forgotten; 0: never */
    enum sim_verdict unknown;   /* packets without a mapping: SIM_DROP or SIM_REFUSE */
    bool      hairpin;          /* its own hosts may use its address, too */
    uint16_t  next_port;
    sim_forward *forwards;
} sim_nat;

struct sim_site { sim *s; sim_site *next; char *name; int index; sim_net *net; bool has_uplink; sim_link up, down; sim_nat nat; };

/* Of a host's routing table, beside the networks of its NICs. nic NULL: there is no way. */
typedef struct sim_entry { struct sim_entry *next; gci_addr to; uint8_t prefix; sim_nic *nic; } sim_entry;

struct sim_host {
    sim      *s;
    sim_site *site;
    sim_host *next;
    char     *name;
    int       index;
    bool      dead;
    sim_nic  *nics;             /* in the order they were made; loopback is not one of them */
    sim_link  loopback;
    sim_entry *routes;          /* in the order they were made */
    bool      routes_hidden, no_binding, no_unix, strict, gate_set;
    uint64_t  gate;
    sim_sock *listening;
    uint16_t  next_port;
    sim_proc *procs;
};

typedef struct sim_wide { struct sim_wide *next; sim_site *from, *to; int64_t latency; sim_link link; } sim_wide;
typedef struct sim_broken { struct sim_broken *next; sim_host *a, *b; sim_site *site_a, *site_b; } sim_broken;    /* from a to b */
typedef struct sim_filter { struct sim_filter *next; sim_rule rule; } sim_filter;

typedef struct sim_hop { sim_link *link; int64_t latency; } sim_hop;      /* latency: behind the link */
/* via: the host whose process makes the connection, if that is not from. */
typedef struct sim_path {
    sim_host *from, *via, *to;
    sim_site *from_site, *to_site;      /* of the NICs' networks; NULL: an island, or loopback */
    sim_hop   hop[SIM_HOPS];
    int       hops;
    int64_t   latency, slowest;
} sim_path;

/* How one end reaches an address, and what both ends see of each other. */
typedef struct sim_way {
    sim_path  there, back;
    sim_nic  *nic;              /* by which the SYN leaves; NULL: loopback */
    gci_addr  from, seen, at;   /* own address; what the other end takes it for (port 0: the same port); where that one listens */
    sim_site *nat[SIM_NATS];    /* whose mappings it needs: the opener's, the other end's */
} sim_way;

/* ---- streams ---- */

enum sim_segment_kind { SIM_DATA, SIM_FIN, SIM_RST };

struct sim_segment {
    sim_event event;            /* first */
    sim_pipe *pipe;
    sim_segment *next;
    enum sim_segment_kind kind;
    int       hop;
    int64_t   first;            /* when its first byte can be on the next link */
    size_t    bytes, taken;     /* taken: read by the application */
    uint8_t   data[];
};

typedef struct sim_queue { sim_segment *first, *last; } sim_queue;

/* One direction of a connection: what the sender has, what is under way, what the receiver has not read. */
struct sim_pipe {
    sim_event  pump;            /* first: its segment has left the NIC, or lost segments are to be sent again */
    sim_sock  *from, *to;
    sim_path   path;
    uint8_t   *ring;            /* not yet sent */
    size_t     ring_bytes, head, unsent;
    size_t     unacked, window, unread, opened;     /* opened: read, but not yet told to the sender */
    size_t     send_buffer, recv_buffer, segment;   /* limits */
    int        under_way;       /* segments */
    bool       leaving;         /* one of its segments is on its way out of the NIC */
    bool       fin_due, fin_sent, broken, stuck, waiting;
    int64_t    stuck_since;     /* stuck: a segment was lost, and is sent again when TCP's timer says so */
    size_t     held_acks, held_window;  /* what the receiver told the sender in vain, since ... */
    int64_t    held_since;
    sim_pipe  *next_waiting;
    int64_t    last_arrival;
    sim_queue  lost, unread_queue;
};

enum sim_sock_state { SIM_LISTENING, SIM_CONNECTING, SIM_EMBRYO, SIM_UP, SIM_FAILED, SIM_CLOSED };

struct sim_sock {
    sim_file   file;            /* first */
    sim_event  watchdog;        /* keepalive, or the connect time-out */
    sim_host  *host;
    int        id;
    enum sim_sock_state state;
    gci_addr   local, remote;
    enum gci_tune tune;
    int64_t    heard;           /* when something of the other end's kernel last came */
    int        error;           /* positive errno, told once */
    bool       got_fin, got_rst, tunnel;    /* tunnel: may be written before it is connected; a failure is its end */
    int64_t    peer_timeout;
    int64_t    cut_since;       /* the path is down since then; -1: it is up */
    sim_sock  *peer;            /* the other end */
    sim_sock  *opener;          /* the end that connected: it keeps what middleboxes know of the connection */
    sim_way   *way;             /* of the opener */
    sim_host  *via;             /* of the opener: whose SYNs they are */
    int64_t    used;            /* of the opener: when a packet last passed its NATs */
    bool       forgotten;       /* of the opener: ... and they know it no more */
    size_t     opening_bytes;   /* of the opener: the first that it sent, by which a middlebox may know what it is */
    uint8_t    opening[SIM_OPENING];
    sim_pipe   out;             /* peer->out is what comes in */
    sim_sock  *next_listening;
    sim_sock  *queue, *queue_last, *next_queued;    /* listening: who waits to be accepted */
    int        waiting;         /* in that queue */
    sim_sock  *listener;        /* of an embryo */
    int        tries;           /* SYNs sent ... */
    int64_t    started;         /* ... the first at this time */
};

/* ---- processes and the whole ---- */

typedef struct sim_block { struct sim_block *next, *prev; size_t bytes; uint64_t fill; } sim_block;     /* fill: keeps what follows aligned */

struct sim_proc {
    gci_sys   sys;              /* first: what the library is handed */
    sim      *s;
    sim_host *host;
    sim_proc *next, *next_on_host;
    char     *name;
    int       id;
    void    (*run)(sim_proc *, void *);     void *arg;
    sim_ctx  *contexts;         /* the main one is the last */
    bool      stopped, killed, done;
    sim_file **files;           /* by descriptor */
    int       files_room, fd_limit;     /* fd_limit: 0: the tuning's; < 0: no more */
    struct sim_monitor *monitors;
    sim_block blocks;           /* head of the list of live blocks */
    int64_t   allocations, fail_at;
    bool      fail_once;
    sim_leftovers leftovers;
};

struct sim {
    uint64_t    seed, random, trace, seq;
    sim_tuning  tuning;
    int64_t     now, moved;     /* moved: when something last happened but a look */
    sim_event **heap;           size_t events, events_room;
    sim_ctx   **run;            size_t run_head, run_count, run_room;
    sim_ctx    *current;
    sim_point   point;          /* the scheduler's own */
    void       *fiber;
    const void *bounds;  size_t bounds_bytes;
    int         contexts, socks, hosts, procs;
    int         unfinished;     /* processes */
    int         verdict;
    sim_site   *sites;          sim_net *nets;
    sim_host   *host_list, *host_last;
    sim_proc   *proc_list;
    sim_wide   *wide;
    sim_broken *broken;
    sim_filter *filters, *filters_last;
    sim_file   *files;
    bool        links_off;      /* some link was off once */
    enum sim_verdict (*firewall)(void *, sim_host *, sim_host *, uint16_t);     void *firewall_user;
    void      (*syn_seen)(void *, sim_host *, sim_nic *, const gci_addr *);     void *syn_user;
    int       (*spawner)(void *, sim_proc *, char *const[], sim_host **, gci_addr *);    void *spawner_user;
    int         planted_done;   /* planted faults that happen once */
    sim_pipe   *planted_pipe;   /* where data came last */
};

/* simnet.c */
void *sim_calloc(size_t n, size_t bytes);           /* aborts when out of memory */
char *sim_copy(const char *);
bool  sim_one_in(sim *, int n);
void  sim_schedule(sim *, sim_event *, int64_t at);
void  sim_unschedule(sim *, sim_event *);
void  sim_after(sim *, int64_t delay, void (*)(sim *, void *what, int64_t n), void *what, int64_t n);
void  sim_note(sim *, const char *kind, int64_t a, int64_t b, int64_t n);   /* into the trace */
sim_ctx *sim_ctx_new(sim_proc *, void (*run)(void *), void *arg);
bool  sim_block_on(sim_ctx *, enum sim_why, void *on, int64_t timeout);     /* false: the time is over */
void  sim_ready(sim_ctx *);
void  sim_active(sim_proc *);                       /* something happened to it: spinning contexts look again */
void  sim_give_way(sim_ctx *);                      /* runnable contexts go first */
void  sim_end_contexts(sim_proc *);                 /* none of them runs again; does not return to one of them */
void  sim_leave_if_dead(sim *);
void  sim_misuse(sim_proc *, const char *format, ...) __attribute__((format(printf, 2, 3)));   /* does not return into a context */
void  sim_proc_exit(sim_proc *, bool killed);

/* simnet_sys.c */
void  sim_sys_fill(gci_sys *);
sim_ctx *sim_call(gci_sys *);                       /* begins every system call */
void  sim_found_nothing(sim_ctx *);
int   sim_file_open(sim_proc *, sim_file *, enum sim_kind);     /* descriptor, or -EMFILE */
sim_file *sim_file_get(sim_proc *, int fd, enum sim_kind, const char *call);    /* NULL: misuse was reported */
void  sim_touch(sim_file *);                        /* its readiness may have changed */
void  sim_file_close(sim_file *);
void  sim_sys_close_all(sim_proc *, bool but_ports);
void  sim_memory_free(sim_proc *);
const char *sim_file_text(const sim_file *, char *text, size_t bytes);

/* simnet_net.c */
bool  sim_passes(sim *, const sim_path *);          /* all alive and nothing on the way cut, in this direction */
/* Where a connection to `to` would go; source NULL, bound 0: as the host's routes say. 0; -ENETUNREACH, -EADDRNOTAVAIL, -ENODEV,
 * -EPERM, -EINVAL; -EHOSTUNREACH (later), or 1: nobody is there or no answer finds its way, silence; 2: a router refuses, and
 * way->there has the latency. */
int   sim_route(sim_host *, const gci_addr *to, const gci_addr *source, uint32_t bound, sim_way *);
int   sim_route_child(sim_host *, sim_host *via, const gci_addr *to, sim_way *);   /* of a child process that works through `via` */
enum sim_verdict sim_filtered(sim *, const sim_way *);              /* what the rules say to a SYN */
int64_t sim_wire_time(const sim *, const sim_link *, size_t bytes);
size_t sim_wire_bytes(const sim *, size_t bytes);
bool  sim_own_address(const sim_host *, const gci_addr *);
void  sim_net_free(sim *);
void  sim_net_fill(gci_sys *);

/* simnet_tcp.c */
void  sim_tcp_fill(gci_sys *);
bool  sim_tcp_listens(const sim_file *);
unsigned sim_sock_events(const sim_sock *);
void  sim_sock_close(sim_sock *);                   /* as the kernel does for the last close */
void  sim_sock_reset(sim_sock *);                   /* this end gets ECONNRESET */
void  sim_sock_path_changed(sim_sock *);            /* cut, mended, forgotten by a NAT, or a host died */
void  sim_sock_free(sim_sock *);
void  sim_pipe_pump(sim *, sim_pipe *);
int   sim_tunnel(sim_proc *, sim_host *via, const gci_addr *to);   /* the stream of a child that connects from via to that address */
void  sim_sock_forgotten(sim_sock *opener);         /* a NAT on the way knows the connection no more */
bool  sim_established(const sim_file *);            /* simnet_fault.c */

#endif
