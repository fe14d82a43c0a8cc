/* gridcomm_int.h: what the rooms of gridcomm share, a section per room, from the ground up.
 * SPDX-License-Identifier: MIT
 *
 * The floors (a room calls down, never up; it hears from below only through callbacks given at start):
 *
 *   gridcomm.c     life cycle, options, making communicators
 *   stall.c        who waits for whom, told when nothing moves
 *   describe.c     what was chosen and why, as text and pictures
 *   measure.c      models measured over a running communicator
 *   modeluse.c     a communicator chooses its algorithms by a model
 *   coll.c         collectives: choice, executor, agreement of all ranks
 *   message.c      the message calls of the public interface
 *   shrink.c       the survivors of a communicator agree who they are
 *   post.c         starting messages: sends, receives, probes, and giving them up
 *   peers.c        peers that come and go: ways, the dead, farewells
 *   p2p.c          pairs, eager and rendezvous, credits
 *   match.c        posted receives and unexpected messages
 *   request.c      requests: their life and completion
 *   comm.c         what a communicator knows: members, who is gone, the last error
 *   drive.c        who runs the I/O loop: polling, sleeping, the I/O thread, a poller of the user's own
 *   overlay.c      ways to peers, epochs, what control's news mean for them
 *   strand.c       further links beside one of a pair's own, for much data
 *   forward.c      packets through links: sent, received, passed on with fixed buffers
 *   link.c         a connection with a queue of whole packets at either side
 *   inbox.c        news from control's thread, none of which may be lost
 *   control.c      the control thread: its loop, requests for links, how a rank is reached
 *   mesh.c         the end of the start: the backbone, as far as it can be had
 *   life.c         control connections: life and death, notices, epochs, the goodbye
 *   reach.c        how a rank is reached: at which addresses, from which interfaces, or by ssh
 *   join.c         how ranks find each other at start and trade cards
 *   dial.c         connecting, accepting, proving; frames on control connections
 *   pmi.c          a launcher that speaks PMI-1: a rendezvous and a key by way of its table
 *   override.c     what the user lays down about addresses (pure)
 *   addrsel.c      which interface talks to which address (pure)
 *   launch.c       what a process is told at start: options, environment, the variables of launchers
 *   boot.c         cards, the handshake of every port (bytes in, bytes out)
 *   site.c         which hosts are at one site (pure)
 *   plan.c         schedules made ready to run, and a cache of them (pure)
 *   sched.c op.c   schedules and the algorithms that emit them; types and reduction kernels (pure)
 *   decide.c       which algorithm a model says is the fastest (pure)
 *   predict.c      how long a collective takes under a model (pure)
 *   trials.c       who measures what at the same time, and which model follows (pure)
 *   tree.c treemodel.c  rooted trees by name; those made for what messages cost (pure)
 *   modelfile.c    models as text (pure)
 *   model.c        what messages cost between ranks (pure)
 *   linksfile.c    the file that says which links are made by ssh (pure)
 *   mend.c         does a graph of links hold, and which links would mend it? (pure)
 *   backbone.c     which ranks wish for links to each other, so that the job holds together (pure)
 *   route.c topo.c routing tables over a graph of links; clusters as a tree (pure)
 *   text.c         texts put together piece by piece (pure)
 *   netlink.c      what the kernel knows of networks: interfaces, addresses, routes (no packet leaves the host)
 *   sys.c          the table of system functions, allocator, log, SHA-256 and HMAC
 *
 * GCI marks what rooms share: nothing when each room is a file of its own, static in the amalgamated source.
 */
#ifndef GRIDCOMM_INT_H
#define GRIDCOMM_INT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE             /* accept4, epoll and network namespaces; only sys.c and netlink.c may rely on it */
#endif

#include "gridcomm.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>

#ifndef GCI
#define GCI
#endif

enum { GCI_TEXT = 256 };        /* bytes of an error text */
#define GCI_COUNT(array) (sizeof(array) / sizeof((array)[0]))

static inline size_t gci_min(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t gci_max(size_t a, size_t b) { return a > b ? a : b; }
static inline int gci_max32(int a, int b) { return a > b ? a : b; }
static inline int64_t gci_min64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t gci_max64(int64_t a, int64_t b) { return a > b ? a : b; }
static inline double gci_max_real(double a, double b) { return a > b ? a : b; }
static inline double gci_min_real(double a, double b) { return a < b ? a : b; }

/* SplitMix64 (Steele, Lea and Flood 2014): state in, number out. */
static inline uint64_t gci_mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* ---- sys.c: the table of system functions ------------------------------------------------------------------- */

enum { GCI_NS_PER_MS = 1000000, GCI_HOST_ID_BYTES = 64, GCI_HOST_NAME_BYTES = 64, GCI_IFNAME_BYTES = 16, GCI_ADDR_TEXT = 64 };
#define GCI_SECOND INT64_C(1000000000)      /* in ns, the unit of every time inside the library */
#define GCI_MEMORY_PAUSE (10 * (int64_t)GCI_NS_PER_MS)      /* between two tries of what memory is lacking for */
#define GCI_FOREVER INT64_MAX

/* An address; in host byte order where it is a number. GCI_UNIX: a process of this host, by a Unix socket; all there is to it
 * is the port at which the process listens for TCP. family 0: none. */
enum { GCI_UNIX = 1 };
typedef struct gci_addr {
    uint8_t  family;            /* 0, 4, 6 or GCI_UNIX */
    uint8_t  ip[16];            /* network order; the first 4 bytes for IPv4 */
    uint16_t port;
    uint32_t scope;             /* IPv6 link-local: interface index */
} gci_addr;

enum { GCI_IF_LOOPBACK = 1, GCI_IF_POINT_TO_POINT = 2, GCI_IF_DEPRECATED = 4, GCI_IF_TEMPORARY = 8,   /* these two: IPv6 */
       GCI_IF_IDLE = 16 };          /* no carrier: nothing gets there or comes from there now */

/* One address of one interface that is up. An interface with several addresses has several entries, one after another. */
typedef struct gci_ifaddr {
    gci_addr addr;              /* port 0 */
    uint8_t  prefix;            /* bits */
    uint8_t  flags;             /* GCI_IF_* */
    uint32_t index;             /* of the interface on its host */
    uint32_t speed;             /* Mbit/s; 0 unknown */
    char     name[GCI_IFNAME_BYTES];
} gci_ifaddr;

/* What the kernel would do with a packet to somewhere: it has no route (or one that says no), the default one, another. */
enum gci_route_kind { GCI_ROUTE_UNKNOWN, GCI_ROUTE_NONE, GCI_ROUTE_DEFAULT, GCI_ROUTE_SPECIFIC };
typedef struct gci_route_answer { enum gci_route_kind kind; uint32_t index; } gci_route_answer;     /* index: of the interface */

enum { GCI_READ = 1, GCI_WRITE = 2 };
typedef struct gci_event { uint64_t tag; unsigned events; } gci_event;     /* GCI_READ also on end or error of a stream */

enum gci_tune { GCI_TUNE_HANDSHAKE, GCI_TUNE_CONTROL, GCI_TUNE_DATA };

typedef struct gci_thread gci_thread;
typedef struct gci_monitor gci_monitor;     /* a lock and one condition */

/* All that the library asks of the system. The tests put a simulated network here. Every function that can fail returns
 * a negative errno; descriptors are >= 0; sockets are non-blocking streams, close-on-exec, and never raise SIGPIPE. */
typedef struct gci_sys gci_sys;
struct gci_sys {
    int64_t (*now)(gci_sys *);                                      /* ns, monotonic */
    int     (*random)(gci_sys *, void *buf, size_t bytes);          /* fit for nonces */
    void    (*yield)(gci_sys *);                                    /* between two polls: let others have the core */

    int     (*host)(gci_sys *, char id[GCI_HOST_ID_BYTES], char name[GCI_HOST_NAME_BYTES]);    /* id: boot id and network
                                                                       namespace, equal = same host; name: as people call it */
    int     (*interfaces)(gci_sys *, gci_ifaddr *out, int max);     /* how many there are (may exceed max); loopback too */
    /* The kernel's entry for a destination; bound: of a socket bound to that interface, 0: of any. Its guess that what it has
     * no route for is on the link is no entry: NONE. UNKNOWN: it cannot be asked, or sockets cannot be bound. */
    gci_route_answer (*route)(gci_sys *, const gci_addr *to, uint32_t bound);
    uint64_t (*gate)(gci_sys *);                                    /* the router that leads out, as a number that others behind
                                                                       the same one find too; 0: none, or it is not known */
    int     (*resolve)(gci_sys *, const char *name, uint16_t port, gci_addr *out, int max);   /* how many; name or literal */

    int     (*listen)(gci_sys *, gci_addr *at);                     /* port 0: chosen, and written back. :: takes IPv4 too. At
                                                                       a Unix socket the port is given */
    int     (*adopt)(gci_sys *, int inherited, gci_addr *at);       /* a listening socket that the launcher made */
    int     (*inherit)(gci_sys *, int inherited);                   /* a connection that it made: 0, and it is close-on-exec
                                                                       from now on. -EBUSY: it was, so somebody here has it */
    int     (*accept)(gci_sys *, int fd, gci_addr *from);           /* -EAGAIN: nobody waits */
    /* Begins; watch for GCI_WRITE. source: this end's address, its port is free, NULL: the kernel chooses. bind: index of the
     * only interface that is to carry it, 0: any. To a Unix socket, -EAGAIN: too many wait there. */
    int     (*connect)(gci_sys *, const gci_addr *to, const gci_addr *source, uint32_t bind);
    int     (*connected)(gci_sys *, int fd);                        /* then: 0, -EINPROGRESS or why not */
    int     (*tune)(gci_sys *, int fd, enum gci_tune, int64_t peer_timeout);
    int64_t (*silence)(gci_sys *, int fd);                          /* ns that the other end's kernel has said nothing, though it
                                                                       owes an answer to data or to a probe; 0: it owes none */
    size_t  (*backlog)(gci_sys *, int fd);                          /* bytes sent that the other end's kernel does not have yet */
    ssize_t (*send)(gci_sys *, int fd, const struct iovec *, int n);
    ssize_t (*recv)(gci_sys *, int fd, const struct iovec *, int n);    /* 0: the peer closed */
    void    (*acknowledge)(gci_sys *, int fd);                      /* what has come, at once: not with the next data only */
    void    (*close)(gci_sys *, int fd);

    int     (*poller)(gci_sys *);                                   /* a set of descriptors, itself a descriptor */
    int     (*watch)(gci_sys *, int poller, int fd, unsigned events, uint64_t tag);   /* level-triggered; 0: no more */
    /* ns, 0 polls, GCI_FOREVER; how many; EINTR is 0 */
    int     (*wait)(gci_sys *, int poller, gci_event *, int max, int64_t timeout);
    int     (*waker)(gci_sys *);                                    /* a descriptor for a poller ... */
    void    (*wake)(gci_sys *, int waker);                          /* ... readable from here, on any thread ... */
    void    (*rest)(gci_sys *, int waker);                          /* ... until here */
    int     (*timer)(gci_sys *);                                    /* a descriptor for a poller ... */
    void    (*arm)(gci_sys *, int timer, int64_t at);               /* ... readable from that time on, until armed anew */

    /* A child process (argv[0] sought in PATH) whose standard input and output are one stream, returned; its errors go where
     * ours go. close() of the stream ends the child. */
    int     (*spawn)(gci_sys *, char *const argv[]);

    int     (*thread)(gci_sys *, gci_thread **, void (*run)(void *), void *arg);
    void    (*join)(gci_sys *, gci_thread *);                       /* and free */
    int     (*monitor)(gci_sys *, gci_monitor **);
    void    (*monitor_free)(gci_sys *, gci_monitor *);
    void    (*enter)(gci_sys *, gci_monitor *);
    void    (*leave)(gci_sys *, gci_monitor *);
    void    (*await)(gci_sys *, gci_monitor *, int64_t timeout);    /* inside; may wake without cause */
    void    (*notify)(gci_sys *, gci_monitor *);                    /* inside; wakes all that await */
};

GCI gci_sys *gci_sys_real(void);            /* the real calls: Linux */

/* The first line of a small file of procfs or sysfs, without its end. How many bytes, or a negative errno. */
GCI int gci_read_line(const char *path, char *line, size_t bytes);

/* ---- netlink.c: for sys.c, the entries of that table of these names --------------------------------------------- */

GCI int      gci_netlink_interfaces(gci_ifaddr *out, int max);
GCI gci_route_answer gci_netlink_route(const gci_addr *to, uint32_t bound);
GCI uint64_t gci_netlink_gate(void);
GCI int      gci_netlink_bind(int fd, uint32_t index);          /* nothing but that interface is to carry what it sends */

/* What every room needs: the system, memory with an account, a log. One per world; safe on any thread. */
enum { GCI_DEBUG_BOOT = 1, GCI_DEBUG_LINKS = 2, GCI_DEBUG_P2P = 4, GCI_DEBUG_COLL = 8, GCI_DEBUG_ADDRSEL = 16 };
struct gci_seen;
typedef struct gci_env {
    gci_sys *sys;
    void  *(*alloc)(void *user, void *old, size_t bytes);   void *alloc_user;
    void   (*log)(void *user, int level, const char *line); void *log_user;
    int      rank;              /* for log lines; -1 before it is known */
    unsigned debug;             /* GCI_DEBUG_* */
    void   (*seen)(void *user, const struct gci_seen *);    void *seen_user;    /* a test looks on (coll.c), or NULL */
    atomic_size_t memory, memory_peak;
} gci_env;

GCI void  gci_env_init(gci_env *, gci_sys *, const gc_options *);   /* options: log, alloc and debug only; may be NULL */
GCI void *gci_alloc(gci_env *, size_t bytes);                       /* zeroed; NULL: out of memory */
GCI void *gci_realloc(gci_env *, void *old, size_t bytes);          /* what is new is not zeroed; NULL: old lives on */
GCI void  gci_free(gci_env *, void *);                              /* NULL is fine */
GCI char *gci_strdup(gci_env *, const char *);
GCI void  gci_log(gci_env *, int level, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* A warning that the user has asked for: to standard error, if nobody listens. */
GCI void gci_report(gci_env *, const char *format, ...) __attribute__((format(printf, 2, 3)));
GCI const char *gci_strerrno(int negative_errno);                   /* text of a system error, without locale */

GCI int   gci_addr_parse(const char *text, gci_addr *);             /* "1.2.3.4", "fe80::1%2"; port untouched. GC_ERR_ARG */
GCI const char *gci_addr_text(const gci_addr *, char text[GCI_ADDR_TEXT]);   /* "1.2.3.4:5", "[::1]:5", "unix:5"; no port if 0 */
GCI bool  gci_addr_equal(const gci_addr *, const gci_addr *);       /* family and ip */
GCI bool  gci_addr_same(const gci_addr *, const gci_addr *);        /* ... port and scope */
GCI bool  gci_addr_is_loopback(const gci_addr *);                   /* or a Unix socket */

enum { GCI_MAC_BYTES = 32 };
typedef struct gci_sha256 { uint32_t h[8]; uint64_t bytes; uint8_t block[64]; } gci_sha256;
GCI void  gci_sha256_init(gci_sha256 *);
GCI void  gci_sha256_add(gci_sha256 *, const void *, size_t);
GCI void  gci_sha256_end(gci_sha256 *, uint8_t out[GCI_MAC_BYTES]);
GCI void  gci_hmac(const void *key, size_t key_bytes, const struct iovec *parts, int n, uint8_t out[GCI_MAC_BYTES]);
GCI bool  gci_equal_in_constant_time(const void *, const void *, size_t);

/* Numbers on the wire: little-endian, at any alignment; a double as its 64 bits. */
static inline void gci_put16(uint8_t *p, uint16_t v) { p[0] = (uint8_t)v; p[1] = (uint8_t)(v >> 8); }
static inline void gci_put32(uint8_t *p, uint32_t v) { gci_put16(p, (uint16_t)v); gci_put16(p + 2, (uint16_t)(v >> 16)); }
static inline void gci_put64(uint8_t *p, uint64_t v) { gci_put32(p, (uint32_t)v); gci_put32(p + 4, (uint32_t)(v >> 32)); }
static inline void gci_put_real(uint8_t *p, double v) { uint64_t bits; memcpy(&bits, &v, sizeof bits); gci_put64(p, bits); }
static inline uint16_t gci_get16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }
static inline uint32_t gci_get32(const uint8_t *p) { return gci_get16(p) | (uint32_t)gci_get16(p + 2) << 16; }
static inline uint64_t gci_get64(const uint8_t *p) { return gci_get32(p) | (uint64_t)gci_get32(p + 4) << 32; }
/* Of a size that is larger than any here, and with it there is no memory for, the largest. */
static inline size_t gci_get_size(const uint8_t *p) { uint64_t bytes = gci_get64(p); return bytes < SIZE_MAX ? (size_t)bytes : SIZE_MAX; }
static inline double gci_get_real(const uint8_t *p) { uint64_t bits = gci_get64(p); double v; memcpy(&v, &bits, sizeof v); return v; }

/* ---- text.c: texts put together piece by piece (pure) ---------------------------------------------------------- */

typedef struct gci_text { char *text; size_t room, used; } gci_text;   /* used: also what did not fit; without its end */
GCI void gci_text_begin(gci_text *, char *text, size_t room);
GCI void gci_text_add(gci_text *, const char *format, ...) __attribute__((format(printf, 2, 3)));
GCI void gci_text_quote(gci_text *, const char *name);      /* as it may stand between double quotes */

/* ---- op.c: types and reduction kernels (pure) ---------------------------------------------------------------- */

enum { GCI_OP_FIRST_USER = 64 };        /* gc_op values below are the predefined ones */

GCI size_t gci_type_bytes(gc_type);                         /* 0: no such type. GC_OPAQUE: 1 */
GCI bool   gci_op_predefined(gc_op, gc_type);               /* is op defined on type? */
/* inout[i] = in[i] (op) inout[i] for a predefined pair. */
GCI void   gci_op_apply(gc_op, gc_type, const void *in, void *inout, size_t count);
GCI const char *gci_type_name(gc_type);                     /* "double" */
GCI const char *gci_op_name(gc_op);                         /* "sum" */

typedef struct gci_user_op { gc_op_fn *fn; void *user; size_t elem_bytes; unsigned flags; } gci_user_op;

/* ---- topo.c: clusters as a tree (pure) ------------------------------------------------------------------------- */

/* Cluster 0 is the whole job; below it stand all prefixes of the cluster paths, below those the hosts (a host whose ranks
 * bear different paths counts once under each). A cluster's number is greater than its parent's. */
typedef struct gci_topo {
    int      nodes, clusters;
    int32_t *parent, *depth;    /* [clusters]; parent[0] is -1, depth[0] is 0 */
    int32_t *of;                /* [nodes] the innermost cluster of each, its host */
    int32_t *order, *place;     /* [nodes] the nodes such that every cluster is a block; where each stands in it */
    int32_t *first, *size;      /* [clusters] its block in that order */
} gci_topo;

/* paths: cluster path of each node, "" or NULL: none. hosts: any number per host, equal = same host. GC_ERR_NOMEM. */
GCI int  gci_topo_make(gci_env *, int nodes, const char *const paths[], const int hosts[], gci_topo *);
GCI void gci_topo_free(gci_env *, gci_topo *);
GCI int  gci_topo_common(const gci_topo *, int a, int b);               /* the innermost cluster of both */
GCI bool gci_topo_inside(const gci_topo *, int cluster, int node);

/* The clusters between which the wide area lies: those of the first level of names that has more than one (who has no name
 * there is in one with all others who have none). If there is but one, its hosts are clusters, too. */
typedef struct gci_clusters {
    int      clusters, hosts;   /* the former are numbered by their lowest node */
    int      longest, second;   /* nodes of the two largest; 0: there is but one */
    int32_t *of;                /* [nodes] */
    int32_t *first;             /* [clusters + 1] into member[] */
    int32_t *member;            /* [nodes] by cluster, ascending within it */
    bool     runs;              /* each is a run of consecutive nodes */
    const gci_topo *topo;
    struct gci_clusters *by_host;       /* of one with several hosts, of several ranks: each host as a cluster; else NULL */
} gci_clusters;
GCI int  gci_clusters_make(gci_env *, const gci_topo *, gci_clusters *);        /* GC_ERR_NOMEM */
GCI void gci_clusters_free(gci_env *, gci_clusters *);

/* ---- local.c: the tree inside a cluster (pure) ---------------------------------------------------------------------- */

typedef struct gci_places { int first, end; } gci_places;   /* places [first, end) */

/* A member in the tree of its cluster: the whole of it, or a run of places of which it is the first. */
typedef struct gci_local_node {
    int       top, parent;      /* places; -1: this is the top */
    int       first, end;       /* places of its subtree; of a chain, of its host */
    int       children, before; /* in order of places; so many are lower than itself */
    gci_places *child;            /* their subtrees; the top apart, the first place is the child. What a chain goes on with, as the
                                   last one, is as long, but need not be one run */
} gci_local_node;

/* Of so many parts of which each gets a message of so many bytes: how many go together. */
GCI int  gci_local_group(int parts, size_t bytes);
/* What parts member[i - 1] from member[i], into cut[i], for i in (first, end). */
GCI void gci_local_cuts(const gci_topo *, const int32_t *member, int first, int end, int32_t *cut);
/* Puts equals in groups where they are many. bytes: of a vector that all get; 0 for blocks, each rank's own, where few levels
 * make all NICs share the work. */
GCI void gci_local_groups(int first, int end, size_t bytes, int32_t *cut);
/* The member at `place` in the tree around `top`; in that for streams; in the chain from `top` over all hosts, of whose cuts none
 * is in a group. node->child has room for end - first + 1. */
GCI void gci_local_node_at(const int32_t *cut, int first, int end, int place, int top, gci_local_node *node);
GCI void gci_local_stream_at(const int32_t *cut, int first, int end, int place, int top, gci_local_node *node);
GCI void gci_local_chain_at(const int32_t *cut, int first, int end, int place, int top, gci_local_node *node);
GCI int  gci_local_chain_end(const int32_t *cut, int first, int end, int top);      /* who is the last one's first */

/* ---- route.c: routing tables over any connected graph (pure) ---------------------------------------------------- */

enum gci_metric { GCI_LATENCY, GCI_BANDWIDTH, GCI_METRICS };
enum gci_routing { GCI_UPDOWN_DFS, GCI_UPDOWN_BFS, GCI_ORDERED, GCI_UNRESTRICTED, GCI_ROUTINGS };

/* An undirected link. Costs are sums along a path: latency in units of 100 ns, inverse bandwidth in ps per byte. */
typedef struct gci_edge { int32_t a, b; uint32_t cost[GCI_METRICS]; } gci_edge;     /* a < b; any cost 0: the link is down */
typedef struct gci_graph { int nodes, edges; gci_edge *edge; } gci_graph;           /* ascending (a, b), each once */
GCI void gci_graph_free(gci_env *, gci_graph *);
GCI int  gci_graph_copy(gci_env *, const gci_graph *, gci_graph *out);              /* GC_ERR_NOMEM */
GCI int  gci_graph_find(const gci_graph *, int a, int b);                           /* index of the edge, either way round; -1 */

/* What keeps routes free of cycles, the same at every node of an epoch. */
typedef struct gci_numbering {
    enum gci_routing routing;
    int      phases;            /* up/down 2, ordered as many as there are spanning forests, unrestricted 1 */
    int      entries;
    int32_t *number;            /* up/down: [nodes], up is towards the lower; ordered: [edges] the forest of each */
} gci_numbering;

/* next: what a packet that came in phase p and goes to dest does at node self. */
enum { GCI_NO_ROUTE = 0xffff };
typedef struct gci_routes {
    int       nodes, self, phases, degree;
    int32_t  *neighbour;        /* [degree] ascending; those whose link is not down */
    uint16_t *came;             /* [degree] the phase of what has come from that neighbour */
    uint16_t *next;             /* [metric][phase][dest]: index in neighbour, or GCI_NO_ROUTE */
} gci_routes;

/* "updown-dfs", "updown-bfs", "ordered", "unrestricted"; or GC_ERR_CONFIG */
GCI int  gci_routing_parse(const char *name);
GCI const char *gci_routing_name(enum gci_routing);
GCI int  gci_number(gci_env *, const gci_graph *, const gci_topo *, enum gci_routing, gci_numbering *);
GCI void gci_numbering_free(gci_env *, gci_numbering *);
/* With links gone down since: does every pair that is still connected still have a legal path? (unrestricted: always) */
GCI bool gci_numbering_holds(const gci_graph *, const gci_numbering *, int32_t scratch[]);      /* scratch: [3 * nodes] */
/* GC_ERR_NOMEM, GC_ERR_UNSUPPORTED: more than 65,535 neighbours, GC_ERR_ARG: the numbering is of another graph. */
GCI int  gci_routes_make(gci_env *, const gci_graph *, const gci_topo *, const gci_numbering *, int self, gci_routes *);
GCI void gci_routes_free(gci_env *, gci_routes *);
/* The paths of one node's packets, hop by hop, as the tables of all nodes send them, without making those. Graph, topo and
 * numbering are not copied. GC_ERR_* as above. walk: how many hops, path: [nodes] where each ends; 0: there is no route. */
typedef struct gci_paths gci_paths;
GCI int  gci_paths_make(gci_env *, const gci_graph *, const gci_topo *, const gci_numbering *, int self, gci_paths **);
GCI int  gci_paths_walk(gci_paths *, enum gci_metric, int dest, int32_t path[]);
GCI void gci_paths_free(gci_paths *);
/* from: index of the neighbour that it came from, -1: it starts here. Index of the neighbour it goes to, or -1. Never back
 * to where it came from: tables of one knowledge do not ask for that, those of mixed knowledge could, and wait in a circle. */
static inline int gci_route_next(const gci_routes *r, enum gci_metric metric, int from, int dest)
{
    size_t phase = from < 0 ? 0 : r->came[from];
    uint16_t next = r->next[((size_t)metric * (size_t)r->phases + phase) * (size_t)r->nodes + (size_t)dest];
    return next == GCI_NO_ROUTE || next == from ? -1 : next;
}

/* ---- backbone.c: which ranks wish for links to each other (pure) -------------------------------------------------- */

/* The links that every rank wishes for: the locality-aware choice of Hironaka 4.5.1 over cluster tiers, the same at every
 * rank for the same arguments. density: links / pairs, 0: about 2 log2 n links a rank. speed: Mbit/s per node, 0 or NULL
 * unknown. The result is connected, and no single node cuts it (where n > 2 allows). GC_ERR_NOMEM. */
GCI int  gci_backbone_choose(gci_env *, const gci_topo *, const uint32_t speed[], double density, uint64_t seed, gci_graph *);
GCI void gci_backbone_cost(const gci_topo *, const uint32_t speed[], gci_edge *);       /* fills in the costs of (a, b) */
/* site: [nodes] -> number of its site, in block order: the clusters below the root; hosts that stand there themselves are
 * one. How many there are. */
GCI int32_t gci_backbone_sites(const gci_topo *, int32_t site[]);

/* ---- mend.c: does a graph of links hold, and what would mend it? (pure) ------------------------------------------- */

/* Some links could not be had: they stand in the graph as down. Which others should be tried, so that it becomes connected
 * and then without a node that cuts it? At most max (a few per part that is to be joined do), none that stands in the graph
 * already. To be called again when it is known which of them are up and which down; how often it may propose
 * is bounded, see mend.c. Once the graph is connected a caller in haste may stop. Returns how many; 0: it holds, or
 * nothing sensible is left to try. GC_ERR_NOMEM. */
GCI int  gci_backbone_repair(gci_env *, const gci_topo *, const gci_graph *, uint64_t seed, int max, gci_edge out[]);
/* in its place; twice: replaces. GC_ERR_NOMEM */
GCI int  gci_graph_add(gci_env *, gci_graph *, const gci_edge *);
/* [nodes] -> number of its component; how many there are */
GCI int  gci_graph_parts(const gci_graph *, int32_t part[]);
/* [nodes] -> 1: its death cuts others off; how many; GC_ERR_NOMEM */
GCI int  gci_graph_cuts(gci_env *, const gci_graph *, uint8_t cut[]);

/* ---- linksfile.c: the file that GRIDCOMM_LINKS names (pure) -------------------------------------------------------- */

/* A line of the file that GRIDCOMM_LINKS names (docs/links.md): `require <src-pattern> <dst-pattern> via=ssh user=NAME`.
 * Patterns (* and ?) are held against host name, address and cluster path of a rank. user "": ssh's own default. The error
 * text names line and word. */
typedef struct gci_require { char from[128], to[128], user[64]; } gci_require;
/* GC_ERR_CONFIG, _NOMEM */
GCI int  gci_links_parse(gci_env *, const char *text, size_t bytes, gci_require **out, int *n, char error_text[GCI_TEXT]);
GCI bool gci_pattern_fits(const char *pattern, const char *text);
GCI bool gci_pattern_part_fits(const char *pattern, size_t bytes, const char *text);    /* the pattern: so many bytes */

/* ---- model.c: what messages cost (pure) --------------------------------------------------------------------------- */

/* Seconds by a message's bytes: straight lines between points of ascending size, the last one goes on; one point: constant;
 * none: 0. */
typedef struct gci_point { size_t bytes; double seconds; } gci_point;
typedef struct gci_curve { int32_t points; gci_point *point; } gci_curve;

/* What a message between ranks of two classes costs. Heterogeneous Hockney: latency (alpha) and per_byte (beta), no curves.
 * PLogP: latency L, and curves o_s, o_r and g. The gap of either is per_byte * (bytes + header) + g(bytes). The way is how much
 * more the latency of a longer message is, where a packet has to be whole before it goes on: it keeps no message behind it waiting. */
enum gci_cost { GCI_COST_SEND, GCI_COST_RECV, GCI_COST_GAP, GCI_COST_WAY, GCI_COSTS };
typedef struct gci_cost_model { double latency, per_byte; gci_curve curve[GCI_COSTS]; } gci_cost_model;

/* What messages share: s/byte, 0: no limit. together: what goes out and what comes in share one. */
typedef struct gci_port { double out, in; bool together; } gci_port;

/* Ranks that a host or cluster treats alike are of one class; all ranks of a host are. A class belongs to one site. */
enum gci_model_kind { GCI_HOCKNEY, GCI_PLOGP };
enum { GCI_MODEL_PAIRS = 1 << 20 };         /* of classes, at most; as many of sites */
struct gc_model {
    enum gci_model_kind kind;
    int       ranks, hosts, classes, sites;
    int32_t  *class_of, *host_of;           /* [ranks] */
    int32_t  *site_of;                      /* [classes] */
    gci_cost_model *between;                /* [classes * classes] from * classes + to: on different hosts */
    gci_cost_model *within;                 /* [classes] on one host */
    gci_port *nic;                          /* [classes] of each of its hosts */
    gci_port *uplink;                       /* [sites] */
    double   *trunk;                        /* [sites * sites] the line between two, per direction: s/byte, 0: no limit */
    size_t    header;                       /* bytes on the wire besides a message's own */
    size_t    eager;                        /* longer messages are announced, and wait for their receive; 0: none are */
    double    reduce, copy;                 /* s/byte of the processor */
    struct gci_decisions *table;            /* what it chooses, once that has been worked out (gci_decide) */
};

/* class_of, host_of: [ranks], host_of NULL: each rank has its own; site_of: [classes], NULL: one site. Numbers from 0 on, none
 * left out. Everything costs nothing yet. GC_ERR_ARG, GC_ERR_NOMEM. One that a user gets is made with a plain env. */
GCI int  gci_model_make(gci_env *, enum gci_model_kind, int ranks, const int32_t class_of[], const int32_t host_of[],
                        const int32_t site_of[], gc_model **);
GCI void gci_model_drop(gci_env *, gc_model *);                         /* NULL is fine */
GCI int  gci_model_point(gci_env *, gci_curve *, size_t bytes, double seconds);     /* one more; GC_ERR_ARG: not ascending */
GCI double gci_curve_at(const gci_curve *, size_t bytes);
GCI double gci_cost_latency(const gci_cost_model *, size_t bytes);
GCI const gci_cost_model *gci_model_cost(const gc_model *, int from, int to);       /* ranks */
/* Seconds until a message is there; both ranks and all that is shared are idle. */
GCI double gci_model_p2p(const gc_model *, int from, int to, size_t bytes);
/* The same, and until its sender can begin the next one, in ticks of 2^-34 s: alike on all processors. Half an hour at most, so
 * that sums over all ranks fit. */
#define GCI_TICKS_MOST (INT64_C(1) << 45)
GCI int64_t gci_model_ticks(const gc_model *, int from, int to, size_t bytes);
GCI int64_t gci_model_busy_ticks(const gc_model *, int from, int to, size_t bytes);
GCI double gci_model_gap(const gc_model *, const gci_cost_model *, size_t bytes);

/* LogGP (L, o, g, G); LogP is that with G = 0. In a model of kind GCI_PLOGP. */
typedef struct gci_loggp { double latency, overhead, gap, per_byte; } gci_loggp;
GCI int gci_model_from_loggp(gci_env *, const gci_loggp *, gci_cost_model *);       /* GC_ERR_ARG: g > L + 2 o; GC_ERR_NOMEM */
GCI gci_loggp gci_model_to_loggp(const gci_cost_model *);

/* ---- modelfile.c: models as text (pure) --------------------------------------------------------------------------- */

GCI int gci_model_read(gci_env *, const char *text, size_t bytes, gc_model **, char error_text[GCI_TEXT]);  /* _CONFIG, _NOMEM */
GCI int gci_model_write(gci_env *, const gc_model *, char **text, size_t *bytes);       /* GC_ERR_NOMEM; gci_free it */

/* ---- sched.c: schedules, how they are written, and the pool of algorithms (pure) -------------------------------- */

/* A schedule is what one rank does in one collective: steps, and which waits for which. It has no pointers and no
 * communicator, is never changed once built, and is run by coll.c, priced by the models and checked by the tests. */
enum gci_step_kind { GCI_STEP_SEND, GCI_STEP_RECV, GCI_STEP_REDUCE, GCI_STEP_COPY };
/* The user's two buffers, the schedule's scratch, and what others have told before (gci_ask). */
enum gci_buffer { GCI_BUF_SEND, GCI_BUF_RECV, GCI_BUF_TEMP, GCI_BUF_HEARD, GCI_BUFFERS };

typedef struct gci_step {
    uint8_t kind;
    uint8_t to, from;           /* enum gci_buffer: written (recv, reduce, copy), read (send, reduce, copy) */
    int32_t peer;               /* send, recv: rank in the communicator */
    size_t  to_at, from_at;     /* byte offsets in those buffers */
    size_t  bytes;              /* reduce: to = from (op) to, or, see swapped */
    bool    swapped;            /* reduce: to = to (op) from */
    int32_t waits;              /* how many earlier steps it waits for */
    int32_t first_wait;         /* where they stand in gci_sched.waits */
    uint32_t sizes;             /* send, recv: a hash of what else its two ranks must know alike; 0: nothing */
} gci_step;

typedef struct gci_sched {
    int32_t   steps, waits;     /* lengths */
    size_t    temp_bytes;       /* scratch to allocate */
    gci_step *step;             /* a step waits for earlier steps only: no cycle by construction */
    int32_t  *wait;
} gci_sched;

enum gci_coll { GCI_BARRIER, GCI_BCAST, GCI_SCATTER, GCI_GATHER, GCI_ALLGATHER, GCI_ALLTOALL,
                GCI_REDUCE, GCI_ALLREDUCE, GCI_REDUCE_SCATTER, GCI_SCAN, GCI_EXSCAN, GCI_COLLS };

/* Blocks, one per rank: equal ones, one after another; or as two arrays say. */
typedef struct gci_blocks { size_t each; const size_t *bytes, *at; } gci_blocks;    /* bytes NULL: each; at NULL: packed */

/* What a builder sees of a call. All sizes and offsets in bytes. */
typedef struct gci_call {
    enum gci_coll coll;
    int    rank, ranks, root;
    size_t bytes;               /* the vector of bcast and of reductions but reduce_scatter; unused by the others */
    gci_blocks send;            /* scatter (at the root), alltoall, reduce_scatter: the block for each rank */
    gci_blocks recv;            /* gather (at the root), allgather, alltoall: the block of each rank */
    size_t own;                 /* this rank's block: sent in (all)gather, got in scatter and reduce_scatter */
    bool   even;                /* all blocks have the size `own`, and every rank knows */
    bool   known;               /* uneven gather, scatter: all ranks, not the root alone, have all sizes */
    size_t elem_bytes;          /* reductions: never cut an element */
    size_t segment;             /* bytes of a message where an algorithm can cut them; 0: whole */
    bool   in_place;
    bool   commutative;         /* else operands meet in rank order */
    bool   associative;         /* else reductions are evaluated strictly from rank 0 up */
    bool   canonical;           /* one expression on every path: [0, p) is [0, 2^k) (op) [2^k, p), 2^k the largest below p;
                                   not of what is not associative */
    const gci_clusters *clusters;       /* NULL: all in one */
    const gc_tree   *tree;      /* of gc_tree_*: the given one; NULL: the algorithm's own */
    const gc_model  *model;     /* that trees may be made for, alike at all ranks; NULL: none */
    const uint8_t   *heard;     /* uneven: sizes that others of the cluster have told (gci_ask); NULL: none */
    size_t heard_bytes;
    struct gci_tree_seen *seen; /* calls that differ by their rank alone share it; NULL: this one has its own */
} gci_call;

GCI size_t gci_block_bytes(const gci_blocks *, int rank);
GCI size_t gci_block_at(const gci_blocks *, int rank);          /* where it begins; O(rank) if packed and uneven */
GCI size_t gci_blocks_bytes(const gci_blocks *, int first, int end);    /* of all in [first, end) */

/* A schedule being written. An algorithm appends steps, and never looks after each: the first failure sticks. */
typedef struct gci_spot { uint8_t buf; size_t at; } gci_spot;     /* enum gci_buffer; its offset */
enum { GCI_NO_STEP = -1 };      /* nothing to wait for */

typedef struct gci_builder {
    gci_env         *env;
    const gci_call  *call;
    const char      *name;      /* of the algorithm, with what follows it: "chain", "kary:3" */
    gci_sched       *out;
    gci_spot        input;     /* the vector or blocks that this rank brings in, after the step `ready` (see sched.c) */
    int32_t          ready;
    bool             input_is_recv;     /* it lies in the receive buffer: may be overwritten, and must where the result goes */
    int32_t          step_room, wait_room;
    int32_t         *pending;   int32_t pendings, pending_room;     /* steps for the next join */
    int              error;     /* GC_OK, GC_ERR_NOMEM, GC_ERR_UNSUPPORTED: this algorithm does not fit the call,
                                   GC_ERR_MISMATCH: sizes that were told do not agree */
} gci_builder;

/* Each appends a step that waits for `after`, and returns it. */
GCI int32_t gci_emit_send(gci_builder *, int peer, gci_spot from, size_t bytes, int32_t after);
GCI int32_t gci_emit_recv(gci_builder *, int peer, gci_spot to, size_t bytes, int32_t after);
GCI int32_t gci_emit_copy(gci_builder *, gci_spot to, gci_spot from, size_t bytes, int32_t after);
GCI int32_t gci_emit_reduce(gci_builder *, gci_spot to, gci_spot from, size_t bytes, bool swapped, int32_t after);
/* One step that stands for both (an empty copy, unless one is enough). */
GCI int32_t gci_emit_both(gci_builder *, int32_t a, int32_t c);
/* Lets the step that was appended last wait for another one too. */
GCI void    gci_emit_also(gci_builder *, int32_t step, int32_t earlier);
/* Notes a step; the join stands for all that were noted since the last one. */
GCI void    gci_emit_pend(gci_builder *, int32_t step);
GCI int32_t gci_emit_join(gci_builder *);
/* Scratch, aligned to a cache line. */
GCI gci_spot gci_emit_slot(gci_builder *, size_t bytes);
GCI gci_spot gci_spot_at(gci_spot, size_t further);
/* How many messages `bytes` are cut into, at least one, and the i-th of them; whole elements each. */
GCI int32_t gci_segments(const gci_call *, size_t bytes);
GCI size_t  gci_segment_at(const gci_call *, size_t bytes, int32_t i);          /* i == gci_segments: bytes */

/* An algorithm of the pool. Names may take a number: "kary:3". colls: 1 << gci_coll; by_model: it needs one that is in use. */
typedef struct gci_algo { const char *name; unsigned colls; void (*emit)(gci_builder *); bool by_model; } gci_algo;
GCI const gci_algo *gci_algo_at(int i);                                 /* NULL: there are no more */
GCI const gci_algo *gci_algo_find(enum gci_coll, const char *name);     /* NULL: none such */
/* GC_OK, GC_ERR_NOMEM, GC_ERR_UNSUPPORTED, GC_ERR_MISMATCH. name: as given to gci_algo_find. */
GCI int  gci_sched_build(gci_env *, const gci_algo *, const char *name, const gci_call *, gci_sched *);
GCI void gci_sched_free(gci_env *, gci_sched *);
GCI const char *gci_coll_name(enum gci_coll);                           /* "allreduce" */
GCI int  gci_coll_find(const char *name, size_t bytes);                 /* of so many bytes; GCI_COLLS: none such */
GCI bool gci_coll_reduces(enum gci_coll);
GCI bool gci_call_has_result(const gci_call *);                         /* has this rank a receive buffer? */
/* May what the ranks of each part bring in be added up first, and that of all parts then? (Calls that reduce nothing: yes.) */
GCI bool gci_call_adds_up(const gci_call *, const gci_clusters *parts);

/* ---- predict.c: how long a collective takes under a model (pure) ---------------------------------------------------- */

/* The schedules of all the model's ranks, begun at once. seconds: [ranks] until each is through, or NULL. GC_ERR_ARG: messages
 * and receives do not fit each other; GC_ERR_NOMEM. */
GCI int gci_predict(gci_env *, const gc_model *, const gci_sched sched[], double seconds[], double *longest);
/* One call by an algorithm (and the call's segment): even, the same at all ranks but for its rank. GC_ERR_UNSUPPORTED too. */
GCI int gci_predict_call(gci_env *, const gc_model *, const gci_call *, const char *name, double seconds[], double *longest);
/* How many other ranks, on other hosts, the busiest one sends more than a packet to, or gets more than one from; and, of both, as many
 * as there are of the fewer. */
typedef struct gci_partners { int32_t either, both; } gci_partners;
/* For those who compare many: GC_ERR_UNSUPPORTED, soon, if the schedules have more steps together (half a us each, and 150 bytes);
 * and if it takes longer than most_seconds, *longest is some time beyond them. */
GCI int gci_predict_within(gci_env *, const gc_model *, const gci_call *, const char *name, size_t most_steps,
                           double most_seconds, double *longest, gci_partners *partners);

/* ---- trials.c: who measures what at the same time, and which model follows (pure) ---------------------------------- */

/* A part of a trial: messages of equal size that flow at once. Their driver tells each sender that is not itself to begin,
 * hears from each receiver that is not itself that all has come, and has the only clock. */
enum { GCI_TRIAL_FLOWS = 3, GCI_TRIAL_PARTS = 3, GCI_TRIAL_POINTS = 12, GCI_TRIAL_PACKET = 1448 };    /* bytes of a packet */
typedef struct gci_flow { int32_t from, to; } gci_flow;         /* ranks */
typedef struct gci_trial {
    int32_t round, driver, parts;       /* one after another */
    bool    optional;                   /* there is a model without it */
    int32_t flows[GCI_TRIAL_PARTS];
    gci_flow flow[GCI_TRIAL_PARTS][GCI_TRIAL_FLOWS];
} gci_trial;

/* Trials of a round share neither host nor a class's or a site's link to others. Hosts and classes are numbered site by site, hosts
 * class by class. */
typedef struct gci_trials {
    int      ranks, hosts, sites, classes, n;
    int      rounds, needed;            /* needed: so many have all that is not optional */
    gci_trial *trial;                   /* in the order of their rounds */
    int32_t *host_of, *class_of;        /* [ranks] */
    int32_t *site_of;                   /* [classes] */
    int32_t *first_host, *first_class;  /* [sites + 1] */
    int32_t *class_host;                /* [classes + 1] the first of each */
    int32_t *rank, *second;             /* [hosts] the first two ranks of each; -1: there is none */
} gci_trials;
enum { GCI_TRIAL_SITES = 64,            /* more are not measured */
       GCI_TRIAL_FEW = 8,               /* hosts of a site, of which all pairs are measured, and each is a class ... */
       GCI_TRIAL_CLASSES = 64 };        /* ... if there are no more than so many in all; else each rack, or each site */
GCI int  gci_trials_make(gci_env *, const gci_clusters *, gci_trials *);    /* GC_ERR_NOMEM; _UNSUPPORTED: too many sites */
GCI void gci_trials_free(gci_env *, gci_trials *);

/* What a trial found: medians, by ascending bytes, from the beginning of a part until its driver knew all to have come. busy:
 * how long the sending (part 0) or reception (part 1) of a pair kept its driver; 0: not asked for. */
typedef struct gci_finding { uint64_t bytes; double seconds, busy; } gci_finding;
typedef struct gci_findings {
    int64_t  points[GCI_TRIAL_PARTS];
    gci_finding point[GCI_TRIAL_PARTS][GCI_TRIAL_POINTS];
    double   gap;                       /* s between empty messages one after another; PLogP */
} gci_findings;
/* The model that follows from the findings, one for each trial; of trials that were left out they have no points. It is made with
 * a plain env. */
GCI int  gci_trials_fit(gci_env *, const gci_trials *, const gci_findings[], enum gci_model_kind, gc_model **);

/* ---- choose.c: which algorithm a collective takes (pure) ---------------------------------------------------------- */

enum { GCI_ALGO_NAME = 32 };
/* name "": none. next: the rule to be asked next. */
typedef struct gci_algo_choice { char name[GCI_ALGO_NAME]; size_t segment; int next; } gci_algo_choice;
/* forced: by GRIDCOMM_ALGO, or with the name "". */
GCI gci_algo_choice  gci_choose(const gci_call *, const gci_algo_choice *forced);
/* What further rules say, for calls that this algorithm cannot do. The last one takes every call. false: there is no more. */
GCI bool gci_choose_next(const gci_call *, gci_algo_choice *);
/* The schedule of the choice's algorithm (of the name "": of the rules' own); if it does not fit, of the next that does: the choice
 * becomes that, and the call takes its segment. GC_ERR_NOMEM. */
GCI int  gci_choose_sched(gci_env *, gci_call *, gci_algo_choice *, gci_sched *);
/* The rules that apply to a communicator, a line per operation. */
GCI void gci_choose_describe(const gci_clusters *, int ranks, const gci_algo_choice forced[GCI_COLLS], gci_text *);
/* "kary:3@8192", as many bytes. false: no such algorithm of this operation. */
GCI bool gci_choose_read_name(enum gci_coll, const char *text, size_t bytes, gci_algo_choice *);
/* GRIDCOMM_ALGO: GC_OK or GC_ERR_CONFIG; NULL is fine. */
GCI int gci_choose_read(const char *text, gci_algo_choice forced[GCI_COLLS], char error_text[GCI_TEXT]);

/* ---- plan.c: schedules made ready to run, and a cache of them (pure) ------------------------------------------------ */

/* A schedule, what shaped it, and the steps that each step lets go. */
typedef struct gci_plan {
    struct gci_plan *next;              /* in the cache, last used first */
    gci_algo_choice  choice;
    gci_algo_choice  used;              /* whose schedule it is: another's if that one does not fit the call */
    gci_call         call;
    gci_sched        sched;
    int32_t         *first_after;       /* [steps + 1] into after[] */
    int32_t         *after;             /* steps that wait for a step */
    uint32_t        *nth;               /* [steps] of the messages with the same peer in the same direction */
    size_t           bytes;
    bool             swaps;             /* a step is swapped */
    bool             cached;
    int              runs;              /* that use it */
    size_t           list[];            /* of an uneven call */
} gci_plan;

/* Of one communicator; starts as zeros. */
typedef struct gci_plans {
    gc_model *model;                    /* that trees are made for, or NULL; its owner's. Another: drop the plans */
    gci_plan *first;
    int       count;
    size_t    bytes;
} gci_plans;

/* The plan for a call, with one more run counted on it; of the algorithm chosen, or else the next by the rules that fits (a
 * warning if it was insisted on). Errors as of gci_sched_build. */
GCI int  gci_plan_get(gci_env *, gci_plans *, const gci_algo_choice *, const gci_call *, bool insisted, gci_plan **out);
GCI void gci_plan_release(gci_env *, gci_plan *);       /* a run of it is over */
GCI void gci_plans_drop(gci_env *, gci_plans *);        /* all of them, as soon as their runs are over */
GCI size_t gci_call_lists(const gci_call *);            /* size_t for the lists of an uneven call, and what it has heard; */
GCI void gci_call_copy_lists(gci_call *, size_t *room); /* puts them there, and lets the call have these */

/* ---- decide.c: which algorithm a model says is the fastest (pure) --------------------------------------------------- */

enum { GCI_DECIDE_SIZES = 23, GCI_DECIDE_MOST = 1 << 22,    /* classes of sizes: 1, 2, 4 ... this */
       GCI_CANDIDATES = 64 };
/* name "": what the rules of choose.c say. made_for: a model and its clusters, as gci_decide_for names them; 0: nothing yet */
typedef struct gci_decisions { uint64_t made_for; gci_algo_choice at[GCI_COLLS][GCI_DECIDE_SIZES]; } gci_decisions;
typedef struct gci_candidate { gci_algo_choice how; double seconds; gci_partners partners; bool is_rule; } gci_candidate;

/* An even, commutative and associative call of bytes in elements of one. */
GCI gci_call gci_decide_example(enum gci_coll, int ranks, int root, size_t bytes, const gci_clusters *);
/* All that can do such a call, the fastest first, unless the rules' own is hardly slower. also: one more candidate, such as one
 * with a segment that no other has; NULL: none. GC_ERR_NOMEM. */
GCI int  gci_decide_call(gci_env *, const gc_model *, const gci_call *, const gci_algo_choice *also,
                         gci_candidate[GCI_CANDIDATES], int *n);
/* The table of a model's ranks, who stand in these clusters; it stays if it is that already. GC_ERR_NOMEM. */
GCI int  gci_decide(gci_env *, const gc_model *, const gci_clusters *, gci_decisions *);
/* A number that other costs, clusters or ways to choose hardly have: 1 to INT32_MAX. */
GCI uint64_t gci_decide_for(const gc_model *, const gci_clusters *);
/* What it says of a call. false: nothing. */
GCI bool gci_decided(const gci_decisions *, const gci_call *, gci_algo_choice *);
/* As lines, "choice bcast 1024 kary:3@8192": from that size on. Read word by word and in that order; false: no such choice, nothing
 * has changed. */
GCI void gci_decisions_write(const gci_decisions *, gci_text *);
GCI bool gci_decisions_read(gci_decisions *, const char *operation, size_t operation_bytes, size_t from, const char *name,
                            size_t name_bytes);
GCI void gci_decisions_describe(const gci_decisions *, gci_text *);     /* a line per operation */

/* ---- tree.c: rooted trees (pure) ----------------------------------------------------------------------------------- */
/* ---- treemodel.c: trees made for what messages cost (pure) --------------------------------------------------------- */

typedef struct gci_tree_costs {
    const gc_model *model;      /* NULL: a byte costs a tick, and so does a message */
    const size_t   *bytes;      /* for each rank; NULL: each */
    const int32_t  *rank;       /* which these are of those of model and bytes; NULL: all */
    size_t          each;
    bool            up;         /* messages go to the root */
} gci_tree_costs;

/* Which rank each place takes of those left: 1: the nearest to its parent, -1: the farthest, 0: the next. */
typedef struct gci_tree_deal { int prefer; bool breadth, largest; } gci_tree_deal;     /* largest: subtrees, first */
enum gci_tree_edge { GCI_EDGE_PLAIN, GCI_EDGE_READY, GCI_EDGE_AHEAD };

GCI int gci_tree_deal_out(gci_env *, const gci_tree_costs *, gci_tree_deal, gc_tree *);    /* of a shape; the root stays */
/* Of a root alone. GC_ERR_NOMEM. */
GCI int gci_tree_prim(gci_env *, const gci_tree_costs *, enum gci_tree_edge, gc_tree *);
GCI int gci_tree_traeff(gci_env *, const gci_tree_costs *, gc_tree *);

/* ---- tree.c: rooted trees by name (pure) --------------------------------------------------------------------------- */

/* A tree of ranks by its name, see gc_tree_build; of those that are needed no model for. GC_ERR_ARG, _NOMEM. */
GCI int  gci_tree_make_for(gci_env *, const char *shape, const gci_tree_costs *, int size, int root, gc_tree *);
GCI int  gci_tree_make(gci_env *, const char *shape, int size, int root, gc_tree *);
GCI bool gci_tree_is_shape(const char *);                               /* of which every subtree is a run of ranks? */
/* One over clusters: the root reaches a rank of each other cluster itself; within a cluster (and its racks and hosts, level by
 * level) the shape. */
GCI int  gci_tree_over_clusters(gci_env *, const char *shape, const gci_tree_costs *, const gci_clusters *, int root,
                                gc_tree *);
GCI void gci_tree_drop(gci_env *, gc_tree *);                           /* what these have made */
/* Is it one tree over 0 .. size - 1? */
GCI bool gci_tree_is_sound(const gc_tree *);
/* Is every subtree a run of consecutive ranks? (No memory: false.) */
GCI bool gci_tree_is_ordered(gci_env *, const gc_tree *);
/* The subtree of a rank: how many ranks, between which, and where they stand when each rank is followed by the subtrees of
 * its children, the last sibling first: at place, ..., place + size - 1. */
typedef struct gci_subtree { int32_t low, high, size, place; } gci_subtree;
GCI void gci_tree_subtrees(const gc_tree *, gci_subtree *);             /* [size]; of a sound tree */

/* A tree with what collectives along it ask of it. */
typedef struct gci_tree_seen {
    const gc_tree *t;           /* NULL: nothing yet */
    gc_tree      made;          /* unless it was given */
    gci_subtree *sub;           /* [ranks] */
    int32_t     *order;         /* [2 * ranks] by place; scratch */
    bool         flat;          /* all are the root's children */
} gci_tree_seen;
GCI void gci_tree_forget(gci_env *, gci_tree_seen *);                   /* treecoll.c */

/* ---- places.c: who stands where in a collective between clusters (pure) ------------------------------------------- */

/* Trees inside a cluster: by racks and hosts, for blocks that each go through it once, for vectors that all get, for long ones, for
 * the longest (a chain of hosts); or of one level. */
enum gci_wide_shape { GCI_WIDE_BLOCKS, GCI_WIDE_VECTORS, GCI_WIDE_STREAMS, GCI_WIDE_CHAIN, GCI_WIDE_STAR, GCI_WIDE_SHAPES };
typedef struct gci_wide_tree gci_wide_tree;

/* A collective between clusters at one rank. A place is an index to member[]. */
typedef struct gci_wide {
    gci_env            *env;
    gci_builder        *b;
    bool                hungry;             /* memory has failed */
    const gci_call     *call;
    const gci_clusters *s;
    int32_t            *member;             /* [ranks] by cluster, and within it near ones together where the order is free */
    int32_t            *cut[GCI_WIDE_SHAPES];       /* [ranks] of the own cluster, see local.c; of chains of the root's, too */
    gci_wide_tree      *trees;
    bool                ranks_are_places, near_together;    /* the latter: a host's ranks stand side by side */
    bool                divided;            /* each cluster has a share of the vector: two latencies, fewer bytes */
    int                 shares;             /* of the blocks of a cluster that all get or add up: each has tops of its own */
    int                 mine, place;        /* this rank's */
    int                 root_place;         /* -1: there is no root */
    int32_t             may_write;          /* the step after which the receive buffer may be written */
    gci_blocks          blocks;             /* of reduce_scatter and allgather, with their offsets */
    size_t             *offset;
    gci_blocks          bundled;            /* scatter, gather: what goes in bundles; */
    gci_blocks          waited_for;         /* of a gather, what of that has not ridden with the sizes; not set at the root */
    size_t             *lists;              /* [3 * ranks] of both */
    int32_t            *queue;              /* [2 * ranks] see places_queue: of sends, and of receives */
    struct { int32_t a, b, both; } joined;  /* the last ones */
} gci_wide;

GCI int  gci_wide_begin(gci_wide *, gci_env *, const gci_call *);       /* GC_ERR_NOMEM; to be ended in any case */
GCI void gci_wide_end(gci_wide *);
GCI int  gci_wide_rank(const gci_wide *, int place);
GCI int  gci_wide_size(const gci_wide *, int cluster);
/* The place of the member of `cluster` that deals with cluster `with`; of its coordinator; of the top of every `turn`-th segment
 * of a long vector, of which so many share it. */
GCI int  gci_wide_top(const gci_wide *, int cluster, int with);
GCI int  gci_wide_share_top(const gci_wide *, int cluster, int with, int share);
GCI int  gci_wide_coordinator(const gci_wide *, int cluster);
GCI int  gci_wide_turn_top(const gci_wide *, int cluster, int turn);
GCI int  gci_wide_turns(const gci_wide *);
/* The places of a share of a cluster; of which share a place of it is. */
GCI gci_places gci_wide_share(const gci_wide *, int cluster, int share);
GCI int  gci_wide_share_of(const gci_wide *, int cluster, int place);
/* This rank, or any member, in a tree of its cluster, of its share of that; which is best for vectors, for sums of
 * blocks. */
GCI gci_local_node gci_wide_local(gci_wide *, int top, enum gci_wide_shape);
GCI gci_local_node gci_wide_local_share(gci_wide *, enum gci_wide_shape);
GCI gci_local_node gci_wide_local_at(gci_wide *, int place, int top, enum gci_wide_shape);
GCI enum gci_wide_shape gci_wide_vectors(const gci_wide *);
GCI enum gci_wide_shape gci_wide_sums(const gci_wide *);
/* Messages to and from ranks; those of two ranks in one direction go in this order. */
GCI int32_t gci_wide_send(gci_wide *, int rank, gci_spot from, size_t bytes, int32_t after);
GCI int32_t gci_wide_recv(gci_wide *, int rank, gci_spot to, size_t bytes, int32_t after);
/* A message goes to the children; goes down: from the parent, or what is here `after` at the top, to the children. Returns when
 * it is here. */
GCI void gci_wide_pass_down(gci_wide *, const gci_local_node *, gci_spot at, size_t bytes, int32_t after);
GCI int32_t gci_wide_down(gci_wide *, const gci_local_node *, gci_spot at, size_t bytes, int32_t after);

/* The blocks of places [first, end), or, of one that is longer than a segment, bytes [at, at + bytes) of it. */
typedef struct gci_wide_piece { int first, end; size_t at, bytes; } gci_wide_piece;
/* The next piece of the blocks of places up to `end`; the first one follows an empty one. false: there is none. */
GCI bool gci_wide_next(const gci_wide *, const gci_blocks *, int end, gci_wide_piece *);
GCI size_t gci_wide_part_bytes(const gci_wide *, const gci_blocks *, const gci_wide_piece *, int place);    /* of its block */
/* Does a piece of the blocks in `area` lie in one run? Then *where. Copies it to `packed`, or back; returns when that is done. */
GCI bool gci_wide_lies(const gci_wide *, gci_spot area, const gci_blocks *, const gci_wide_piece *, gci_spot *where);
GCI int32_t gci_wide_move(gci_wide *, gci_spot area, const gci_blocks *, const gci_wide_piece *, gci_spot packed, bool back,
                          int32_t after);
GCI gci_wide_piece gci_wide_whole(const gci_wide *, const gci_blocks *, int first, int end);        /* all these places */
/* A piece as a message; after: when it is in `area`, or may be written there. Returns when it has left, or is there. */
GCI int32_t gci_wide_send_blocks(gci_wide *, int place, gci_spot area, const gci_blocks *, gci_wide_piece, int32_t after);
GCI int32_t gci_wide_recv_blocks(gci_wide *, int place, gci_spot area, const gci_blocks *, gci_wide_piece, int32_t after);
/* A hash of sizes, one after another; begins with 1. Of uneven blocks, whose sizes the two ranks of a message have from different
 * calls, the step bears it: so that the same sum does not deceive. */
GCI uint32_t gci_wide_hash(uint32_t hash, size_t bytes);
GCI uint32_t gci_wide_sizes(const gci_wide *, const gci_blocks *, int first, int end);
GCI int32_t gci_wide_sign(gci_wide *, int32_t step, uint32_t sizes);
/* Blocks of more than `above` bytes each, from rank to rank: those from and to other clusters, or those `here`. */
GCI void gci_wide_direct(gci_wide *, size_t above, bool here);

/* Before an uneven scatter, gather or alltoall between clusters, whose sizes not all know, the ranks of each cluster tell each
 * other some: by the alltoall `call` of what is in `told`. Short blocks ride with that, so that who bundles them has them at once.
 * After it `sizes` is for the real call, and `heard` its GCI_BUF_HEARD. One block, for gci_free. */
typedef struct gci_ride { size_t told_at, send_at, bytes; } gci_ride;   /* bytes of the send buffer (in place: of the one there
                                                                           is) that are to be copied into `told` first */
typedef struct gci_ask {
    gci_call  call;
    gci_ride *ride;
    int       rides;
    uint8_t  *told, *heard, *sizes;
    size_t    heard_bytes, sizes_bytes;
    size_t    word_bytes, word_sizes;       /* of what one member has told this rank: all; sizes, which come first */
} gci_ask;
GCI bool   gci_wide_asks(const gci_call *);     /* alike at all ranks */
GCI int    gci_wide_ask(gci_env *, const gci_call *, gci_ask **);       /* GC_ERR_NOMEM */
GCI void   gci_wide_hear(gci_ask *);            /* all has been told: makes `sizes` */
GCI size_t gci_wide_ride_bytes(const gci_wide *);       /* that may ride with what one member tells about one cluster */
GCI void   gci_wide_board(gci_ask *, size_t told_at, size_t send_at, size_t bytes);

/* wide_alltoall.c. How many bytes one member tells another one, or itself, about clusters: sizes, and room for what
 * rides; and what, `at` in ask->told. */
GCI void   gci_wide_alltoall(gci_wide *);
GCI bool   gci_alltoall_bundles(const gci_wide *);                      /* do all blocks between two clusters go together? */
GCI bool   gci_alltoall_asks(const gci_wide *);                         /* must sizes be told, if they are uneven? */
GCI size_t gci_alltoall_told(const gci_wide *, int to);
GCI size_t gci_alltoall_rides(const gci_wide *, int to);
GCI void   gci_alltoall_tell(const gci_wide *, int to, gci_ask *, size_t at);

/* ---- treecoll.c, exchange.c, circulant.c, wide_reduce.c, wide.c: the algorithms (pure) -------------------------- */

GCI void gci_tree_algo(gci_builder *);          /* treecoll.c: on any tree */
GCI void gci_doubling_algo(gci_builder *);      /* exchange.c: among all ranks, as if they were equally near */
GCI void gci_halving_algo(gci_builder *);
GCI void gci_ring_algo(gci_builder *);
GCI void gci_bruck_algo(gci_builder *);
GCI void gci_pairwise_algo(gci_builder *);
GCI void gci_direct_algo(gci_builder *);
GCI void gci_scatter_algo(gci_builder *);
GCI void gci_circulant_algo(gci_builder *);     /* circulant.c */
/* A rank's receive schedule of a broadcast by rank 0: in round k + q * phase block[k] + q * phase, none if < 0. Returns q. */
enum { GCI_CIRCULANT_ROUNDS_MAX = 31 };
GCI int  gci_circulant_blocks(int ranks, int rank, int32_t block[GCI_CIRCULANT_ROUNDS_MAX]);
GCI void gci_wide_reduce(gci_wide *);           /* wide_reduce.c: reductions between clusters, and the barrier */
GCI void gci_wide_algo(gci_builder *);          /* wide.c: between clusters */
GCI void gci_by_host_algo(gci_builder *);       /* the same between the hosts of one */
GCI void gci_nested_algo(gci_builder *);        /* nested.c: host by host */

/* ---- site.c: which hosts are at one site (pure) ------------------------------------------------------------------- */

/* Where an address leads. NOWHERE: loopback, multicast, unspecified, reserved. PRIVATE: RFC 1918, 100.64/10, unique local. */
enum gci_class { GCI_CLASS_NOWHERE, GCI_CLASS_LINK_LOCAL, GCI_CLASS_PRIVATE, GCI_CLASS_PUBLIC };
GCI enum gci_class gci_addr_class(const gci_addr *);

/* What is known of a host's place: its addresses, the router that leads out of it (gci_sys.gate), and at which address it was
 * seen from elsewhere. */
typedef struct gci_whereabouts { const gci_ifaddr *addr; int addrs; uint64_t gate; gci_addr seen; } gci_whereabouts;
#define GCI_SITE_NAT (UINT64_C(1) << 63)    /* in the number of a site: hosts of it were seen behind a NAT */
/* site: [hosts] equal = the same site, 0: unknown. Host 0 is that of rank 0, who saw the others. GC_ERR_NOMEM. */
GCI int gci_sites(gci_env *, const gci_whereabouts *, int hosts, uint64_t site[]);

/* ---- boot.c: cards, the handshake of every port (pure: bytes in, bytes out) -------------------------------------- */

enum { GCI_IFADDRS_MAX = 64, GCI_CLUSTER_MAX = 128, GCI_RANKS_MAX = 65536 };

/* A host as every rank sees it; a rank's card. Hosts are told once however many ranks they run. */
typedef struct gci_host {
    char        id[GCI_HOST_ID_BYTES], name[GCI_HOST_NAME_BYTES];
    uint64_t    site;           /* where it is, as far as anybody can tell; 0: unknown */
    int         addrs;
    gci_ifaddr *addr;           /* a port in it: it is reached there, and not at its ranks' own (GRIDCOMM_ADVERTISE) */
} gci_host;
/* host: index; -1: not heard of yet */
typedef struct gci_card { int host; uint16_t port; uint8_t big_endian; const char *cluster; } gci_card;
typedef struct gci_table {
    uint64_t  job;              /* drawn by rank 0 */
    int       ranks, hosts;
    bool      modelled;         /* rank 0 has a model that all are to use */
    gci_card *card;             /* [ranks] */
    gci_host *host;
    char     *clusters;         /* storage of the cluster texts */
} gci_table;
GCI void gci_table_free(gci_env *, gci_table *);

/* One rank's card as it stands alone: what a process tells when it joins, and enough to connect to it. Loopback addresses and
 * idle interfaces are never in it; of too many addresses link-local ones give way first, then an interface's further ones. */
enum { GCI_CARD_ADDRS_MAX = 40, GCI_CARD_ADDR_BYTES_MAX = 49,
       GCI_CARD_BYTES_MAX = 25 + GCI_HOST_ID_BYTES + GCI_HOST_NAME_BYTES + GCI_CLUSTER_MAX
                            + GCI_CARD_ADDRS_MAX * GCI_CARD_ADDR_BYTES_MAX };
typedef struct gci_full_card {
    char       id[GCI_HOST_ID_BYTES], name[GCI_HOST_NAME_BYTES], cluster[GCI_CLUSTER_MAX];
    uint16_t   port;
    uint8_t    big_endian;
    uint64_t   gate;            /* gci_sys.gate */
    uint64_t   site;            /* of a card out of a table; 0: unknown */
    int        addrs;
    gci_ifaddr addr[GCI_CARD_ADDRS_MAX];
} gci_full_card;

GCI void   gci_card_fill(gci_full_card *, const char *id, const char *name, const char *cluster, uint16_t port,
                         const gci_ifaddr *, int n);
GCI bool   gci_is_cluster(const char *path, size_t bytes);              /* printable, no blanks, not too long */
GCI size_t gci_card_encode(const gci_full_card *, uint8_t out[GCI_CARD_BYTES_MAX]);
GCI int    gci_card_decode(gci_full_card *, const uint8_t *, size_t);       /* GC_ERR_PROTOCOL */

/* The table of encoded cards (each decodable), one per rank; its wire form; the tree along which it travels. seen: the
 * address at which rank 0 saw each rank, of itself that which others know it by; family 0: not known. */
GCI int    gci_table_gather(gci_env *, uint64_t job, int ranks, uint8_t *const card[], const size_t bytes[],
                            const gci_addr seen[], gci_table *);
GCI size_t gci_table_encode(const gci_table *, uint8_t *out);               /* out NULL: how many bytes */
GCI size_t gci_table_bytes_max(int ranks);                                  /* no wire form is longer */
GCI int    gci_table_decode(gci_env *, const uint8_t *, size_t, gci_table *);   /* GC_ERR_PROTOCOL, GC_ERR_NOMEM */
GCI int    gci_table_parents(gci_env *, const gci_table *, int parent[]);   /* parent[0] = -1; once per site, once per host */
GCI void   gci_table_card(const gci_table *, int rank, gci_full_card *);
GCI bool   gci_table_same_site(const gci_table *, int rank, int other);     /* the first names of their cluster paths are the same */

/* The handshake that opens every connection:
 *
 *     connector                                            acceptor
 *     HELLO  magic version purpose from to ranks job nonce  -->
 *       <--  CHALLENGE  magic version status job ranks rank nonce MAC("acceptor" | HELLO | CHALLENGE)
 *     PROOF  MAC("connector" | HELLO | CHALLENGE)            -->
 *       <--  VERDICT  status
 *
 * The acceptor's owner decides twice: on the HELLO (nothing proven yet), and on the PROOF. */
enum gci_purpose { GCI_PURPOSE_JOIN = 1, GCI_PURPOSE_FETCH, GCI_PURPOSE_CONTROL,
                   GCI_PURPOSE_DATA,            /* a link of the pair's own: nothing is forwarded over it */
                   GCI_PURPOSE_BACKBONE,        /* a link of the backbone, for packets on their way between any two ranks */
                   GCI_PURPOSE_STRAND,          /* a further link beside one of the pair's own (DATA), for chunks alone */
                   GCI_PURPOSES };
enum gci_refusal { GCI_REFUSE_NOT, GCI_REFUSE_VERSION, GCI_REFUSE_PURPOSE, GCI_REFUSE_JOB, GCI_REFUSE_RANKS, GCI_REFUSE_FROM,
                   GCI_REFUSE_TO, GCI_REFUSE_TAKEN, GCI_REFUSE_BUSY, GCI_REFUSE_LEAVING, GCI_REFUSE_STARTED, GCI_REFUSE_KEY,
                   GCI_REFUSE_FULL, GCI_REFUSE_SILENCE, GCI_REFUSE_STRANGER, GCI_REFUSALS };
enum { GCI_PROTOCOL_VERSION = 2, GCI_NONCE_BYTES = 32, GCI_HELLO_BYTES = 64, GCI_CHALLENGE_BYTES = 88, GCI_VERDICT_BYTES = 4 };
enum gci_shake_state { GCI_SHAKE_READS, GCI_SHAKE_DECIDES, GCI_SHAKE_DONE, GCI_SHAKE_FAILED };
enum gci_shake_step { GCI_SHAKE_HELLO, GCI_SHAKE_CHALLENGE, GCI_SHAKE_PROOF, GCI_SHAKE_VERDICT };   /* the message awaited */

/* This side of a handshake; key must outlive it. job 0: not known yet (joining), taken from the acceptor. */
typedef struct gci_shake_self { int rank, ranks; uint64_t job; const uint8_t *key; size_t key_bytes; } gci_shake_self;
typedef struct gci_shake {
    gci_shake_self self;
    uint8_t  acceptor, state, step, refusal;        /* the enums above */
    uint8_t  purpose;           /* acceptor: known from GCI_SHAKE_DECIDES on */
    int      peer;              /* the other side's rank; acceptor: what it claims */
    uint16_t peer_version;
    uint32_t peer_ranks;
    uint32_t id;                /* names the connection at both ends, once it is proven; never 0 */
    uint8_t  strand;            /* of a STRAND: its number, 1 ... 255 ... */
    uint32_t trunk;             /* ... and the id of the connection that it belongs to */
    uint64_t job;               /* connector: proven with the CHALLENGE */
    size_t   have, want, out_bytes;
    uint8_t  in[GCI_CHALLENGE_BYTES], out[GCI_CHALLENGE_BYTES];     /* out: out_bytes to send now; then set it to 0 */
    uint8_t  transcript[GCI_HELLO_BYTES + GCI_CHALLENGE_BYTES - GCI_MAC_BYTES];
} gci_shake;

/* strand, trunk: of a STRAND, else 0 */
GCI void   gci_shake_connect(gci_shake *, const gci_shake_self *, enum gci_purpose, int to, unsigned strand, uint32_t trunk,
                             const uint8_t nonce[GCI_NONCE_BYTES]);
GCI void   gci_shake_accept(gci_shake *, const gci_shake_self *, const uint8_t nonce[GCI_NONCE_BYTES]);
GCI size_t gci_shake_wants(const gci_shake *);      /* bytes to read now, never more than the handshake's own; 0: none */
GCI size_t gci_shake_feed(gci_shake *, const uint8_t *, size_t);            /* how many were taken */
GCI void   gci_shake_decide(gci_shake *, enum gci_refusal);                 /* in GCI_SHAKE_DECIDES only */
GCI const char *gci_shake_text(const gci_shake *, char text[GCI_TEXT]);     /* why it failed: "wrong key", "speaks version 2" */

/* ---- launch.c: what a process is told at start ------------------------------------------------------------------------ */

enum { GCI_ROOTS_MAX = 16, GCI_KEY_MAX = 256 };

typedef struct gci_root { char host[128]; uint16_t port; } gci_root;

/* The connection to a launcher that speaks PMI-1: inherited, or where it is to be had. Nobody else uses it. */
enum gci_pmi_kind { GCI_PMI_NONE, GCI_PMI_FD, GCI_PMI_PORT };
typedef struct gci_pmi { enum gci_pmi_kind kind; int fd; gci_root at; } gci_pmi;

/* Where a process stands and whom to ask. From the options, else the environment, else the launcher's variables. */
typedef struct gci_place {
    int      rank, ranks;                        /* ranks 0: the launcher at a PMI_PORT knows */
    int      roots;                              /* 0: a world of one, or the launcher's table tells (pmi) */
    gci_root root[GCI_ROOTS_MAX];
    gci_pmi  pmi;
    uint8_t  key[GCI_KEY_MAX];  size_t key_bytes;   /* 0: none */
    int      listen_fd;                          /* rank 0: socket that the launcher opened (GRIDCOMM_LISTEN_FD), or -1 */
    bool     insecure;
    char     cluster[GCI_CLUSTER_MAX];
    char     launcher[16];                       /* "gridcomm", "torchrun", "pmi", "slurm", "none": who said so, for texts */
} gci_place;

/* getenv-like look-up, so that tests bring their own. error_text gets one line that says what is wrong. */
GCI int gci_place_find(const gc_options *, const char *(*look_up)(void *user, const char *name), void *user, gci_place *,
                       char error_text[GCI_TEXT]);
/* Adds "host:port,[v6]:port,..." to the roots; name: who says so, for the text. GC_ERR_CONFIG */
GCI int gci_place_add_roots(gci_place *, const char *name, const char *list, char error_text[GCI_TEXT]);

/* ---- addrsel.c: which interface talks to which address (pure) ----------------------------------------------------- */

/* What a pair of addresses is good for, the better the greater. From GCI_QUALITY_PRIVATE on both ends see it alike. */
enum gci_quality {
    GCI_QUALITY_NONE,
    GCI_QUALITY_LINK_LOCAL,     /* last resorts: link-local ... */
    GCI_QUALITY_FAR,            /* ... or a private address on another network */
    GCI_QUALITY_ROUTED,         /* the latter, and the kernel here has a route of its own to it, not just the default one */
    GCI_QUALITY_OUTWARD,        /* IPv4, from a private address to a public one: there may be a NAT between */
    GCI_QUALITY_PRIVATE,        /* private, on the same network, no collision */
    GCI_QUALITY_PUBLIC,         /* public, on different networks */
    GCI_QUALITY_NEAR,           /* public, on the same network */
    GCI_QUALITIES
};
/* Why an edge or address is not a link, the closer to it the greater. */
enum gci_why { GCI_WHY_FAMILY, GCI_WHY_SHARED, GCI_WHY_COLLISION, GCI_WHY_OTHER_SITE, GCI_WHY_FAR, GCI_WHY_LINK_LOCAL,
               GCI_WHY_OTHERS,              /* others fit better */
               GCI_WHY_OWN, GCI_WHY_NO_ROUTE, GCI_WHY_UNKNOWN_ROUTE, GCI_WHY_OTHER_NIC, GCI_WHY_CHOSEN,
               GCI_WHY_SAME_HOST, GCI_WHYS };
GCI const char *gci_quality_text(enum gci_quality);
GCI const char *gci_why_text(enum gci_why);

/* The host that looks at others, and what only it knows. */
typedef struct gci_onlooker {
    int  host;                  /* which of the table */
    const gci_ifaddr *own;      /* every address that it has, those not on its card too: never targets. The first 64 of these */
    int  owns;
    gci_sys *sys;               /* whose route() is asked; NULL: there is nobody to ask */
} gci_onlooker;

typedef struct gci_target {
    gci_addr addr;              /* with port; the scope of a link-local address is of this host */
    gci_addr source;            /* of a link: this end's address, port 0; else family 0, the kernel chooses */
    int      mine, theirs;      /* interfaces in the order of the cards; -1: whichever */
    const char *my_name, *their_name;   /* of them, or NULL */
    uint32_t index, speed;      /* of a link: this end's interface; Mbit/s of the slower end */
    uint8_t  quality, why;      /* enum gci_quality, gci_why */
    uint8_t  dislike;           /* 1: temporary, 2: deprecated address */
    bool     link;              /* of a matching of interfaces */
    bool     stripes;           /* and it does use this end's interface; no two of these share one at either end */
    bool     bind;              /* it does if the socket is bound to that interface */
    bool     last;              /* last resort: only if nothing else connects, several at a time */
} gci_target;

enum { GCI_TARGETS_MAX = 64 };
/* links: that stripe, the first */
typedef struct gci_choice { int targets, links; gci_target target[GCI_TARGETS_MAX]; } gci_choice;

/* Knows who collides with whom among all hosts of a job. They must outlive it. GC_ERR_NOMEM. */
typedef struct gci_addrsel gci_addrsel;
GCI int  gci_addrsel_make(gci_env *, const gci_host *, int hosts, gci_addrsel **);
GCI void gci_addrsel_free(gci_env *, gci_addrsel *);                /* NULL is fine */
GCI void gci_addrsel_look(gci_addrsel *, const gci_onlooker *);     /* sets who looks; `own` is not needed afterwards */
/* Where to connect to peer (a host), whose port is given, best first; it stays until the next choice. */
GCI const gci_choice *gci_addrsel_choose(gci_addrsel *, int peer, uint16_t port);
GCI void gci_addrsel_explain(gci_addrsel *, gci_text *);            /* the last choice: lines on interfaces, edges and targets */
/* Address i of a host: "10.1.0.1/16 private, also of b, network forbidden". */
GCI void gci_addrsel_tell_address(const gci_addrsel *, int host, int i, gci_text *);
/* The last choice, edge by edge. Interfaces are numbered from 0 as they come in the cards; false: there are not so many, or
 * both are one host. */
typedef struct gci_edge_view {
    const char *my_name, *their_name;
    uint8_t     quality, why;   /* enum gci_quality, gci_why; of a link-local one: why it has nothing better */
    bool        near;           /* it has nothing better, though there are addresses of one network */
} gci_edge_view;
GCI bool gci_addrsel_edge(gci_addrsel *, int mine, int theirs, gci_edge_view *);
GCI void gci_addrsel_nothing(const gci_addrsel *, gci_text *);      /* one line: why it has no target */

/* Matching of most pairs, among those of greatest weight. weight: [rows][columns], as below, 0: no pair; at most 64 either way.
 * column_of: [rows], -1: none. How many pairs. */
GCI int     gci_match_links(int rows, int columns, const int64_t *weight, int column_of[]);
GCI int64_t gci_edge_weight(enum gci_quality, uint32_t mbit_a, uint32_t mbit_b, int row, int column);

/* ---- override.c: what the user lays down about addresses (pure) ---------------------------------------------------- */

/* GRIDCOMM_IF: "eth*,ib0", or "^docker*,virbr*" for all but those. Keeps what fits, and loopback, which never leaves the host;
 * how many. GC_ERR_CONFIG: an interface named without * and ? is not there, or none is left. */
GCI int gci_if_filter(const char *patterns, const char *host, gci_ifaddr *, int n, char error_text[GCI_TEXT]);
/* GRIDCOMM_ADVERTISE, port 0: none given; GRIDCOMM_PORTS. GC_ERR_CONFIG. */
GCI int gci_advertise_parse(const char *text, gci_addr *, char error_text[GCI_TEXT]);
GCI int gci_ports_parse(const char *text, uint16_t *low, uint16_t *high, char error_text[GCI_TEXT]);

/* ---- pmi.c: a launcher that speaks PMI-1 ------------------------------------------------------------------------------ */

enum { GCI_PMI_RECORD = 2560 };     /* bytes of what rank 0 tells the others, with its end */

/* All of these do nothing for a place without PMI. begin: also who this is, at a PMI_PORT. meet: rank 0 listens as its card
 * says, and gets a key if it has none; the others get roots and key, if they have none. Codes as of gc_init. end: the launcher
 * no longer cares how this process ends; not for one that has failed. */
GCI int  gci_pmi_begin(gci_env *, gci_place *, double seconds, char error_text[GCI_TEXT]);
GCI int  gci_pmi_meet(gci_env *, gci_place *, const gci_full_card *me, int64_t until, char error_text[GCI_TEXT]);
GCI void gci_pmi_end(gci_env *, gci_pmi *);

/* Pure. A line without its end: is it "cmd=answer ...", with rc=0 if it has one? GC_ERR_PROTOCOL. The value of key=value in one
 * that is; false: none, or none that fits, or no number of up to nine digits. */
GCI int  gci_pmi_answer(const char *line, size_t bytes, const char *answer, char error_text[GCI_TEXT]);
GCI bool gci_pmi_value(const char *line, const char *key, char *value, size_t room);
GCI bool gci_pmi_number(const char *line, const char *key, int *number);
/* Pure. The record from rank 0's place and card, and into the place of another rank. key: "-" if it is not to be told. id: of
 * the own host. The place of rank 0 gets its roots. GC_ERR_CONFIG, _PROTOCOL, _UNREACHABLE. */
GCI int  gci_pmi_write(gci_place *, const gci_full_card *, const char *key, char record[GCI_PMI_RECORD],
                       char error_text[GCI_TEXT]);
GCI int  gci_pmi_read(gci_place *, const char *id, const char *record, char error_text[GCI_TEXT]);

/* ---- control.c: the control thread ---------------------------------------------------------------------------- */

/* The control thread owns the listening port and every connection until it is proven; it keeps the control connections
 * to this rank's neighbours, by which life and death are seen, and floods notices over them. It touches no data
 * connection: proven data sockets are handed up as news. */
enum gci_news_kind {
    /* fd: a proven connection to rank for `purpose`, known as `id` at both ends; the receiver's now. A STRAND belongs to the
     * connection `trunk`. strands: so many of them could be opened from here beside this one (DATA) */
    GCI_NEWS_LINK,
    GCI_NEWS_NO_LINK,           /* rank could not be connected for `purpose` (gci_control_connect); code and text say why */
    GCI_NEWS_DEAD,              /* rank died or is cut off: code GC_ERR_PEER; text says how it was seen. A new epoch */
    GCI_NEWS_LEFT,              /* rank left (gc_finalize) without waiting for the others; code GC_OK: all have been in the last
                                 * barrier; else GC_ERR_PEER. A new epoch */
    GCI_NEWS_DOWN,              /* the backbone link between rank and other is gone for good. A new epoch */
    GCI_NEWS_UP,                /* rank and other have a link that the backbone did not have (gci_control_rescued). A new epoch */
    GCI_NEWS_EPOCH,             /* what was on its way over the backbone may be lost (gci_control_restart). A new epoch */
    GCI_NEWS_NOTICE             /* a notice that some rank flooded */
};
enum { GCI_NOTICE_ABORT = 1, GCI_NOTICE_MISMATCH = 2,
        GCI_NOTICE_LOST = 3,    /* origin has given rank word[0] up, for the error -word[1] */
        GCI_NOTICE_STALL = 4,   /* stall.c */
        GCI_NOTICE_FIRST_INTERNAL = 16, GCI_NOTICE_WORDS = 6 };
/* origin: world rank */
typedef struct gci_notice { uint32_t kind; uint32_t origin; uint32_t word[GCI_NOTICE_WORDS]; } gci_notice;
typedef struct gci_news {
    enum gci_news_kind kind;
    int        rank, other, fd, code;
    enum gci_purpose purpose;
    uint32_t   id, trunk;
    gci_addr   at;              /* of a LINK: where its other end is; family 0: not known */
    unsigned   strand, strands;
    uint32_t   links;           /* of a LINK that comes out of the inbox: how many it stands for, of which it is the last */
    uint16_t   epoch;           /* from this news on */
    gci_notice notice;
    char       text[GCI_TEXT];
} gci_news;

enum { GCI_OWN, GCI_BACKBONE, GCI_LINK_KINDS };     /* kinds of data links, as an index */
static inline int gci_news_link_kind(const gci_news *news)
{
    return news->purpose == GCI_PURPOSE_BACKBONE ? GCI_BACKBONE : GCI_OWN;
}

typedef struct gci_control gci_control;
/* Joins the job: listens, finds rank 0, trades cards, connects to the neighbours, and returns when every rank has done so.
 * All ranks succeed, or all fail by start_timeout (+ 1 s) with a text that names rank and address at fault.
 * on_news is called on the control thread, from the first moment on; it must not call back into control. */
GCI int  gci_control_start(gci_control **, gci_env *, const gc_options *, const gci_place *,
                           void (*on_news)(void *user, const gci_news *), void *user, char error_text[GCI_TEXT]);
/* Complete and constant after start: the table; the clusters; the backbone as all ranks agreed on it, no link down. */
GCI const gci_table *gci_control_table(const gci_control *);
GCI const gci_topo  *gci_control_topo(const gci_control *);
GCI const gci_graph *gci_control_graph(const gci_control *);
/* The nth link that was added since (rescue.c), without costs if it is down again. false: there are no more. Any thread. */
GCI bool gci_control_rescued(gci_control *, int nth, gci_edge *);
/* Asks for a connection to rank, for GCI_PURPOSE_DATA or _BACKBONE (to a backbone neighbour: either side may end up opening
 * it). had: how many GCI_NEWS_LINK of that rank and purpose the caller has seen; if control has delivered more by then, the
 * request is stale and dropped. Answered by LINK, NO_LINK, DEAD, LEFT or (backbone) DOWN. Any thread. */
GCI int  gci_control_connect(gci_control *, enum gci_purpose, int rank, uint32_t had);
/* Asks for a further link beside the one of the pair's own that is known as trunk; strand: 1 ... strands, as its news said.
 * Answered by a LINK of GCI_PURPOSE_STRAND, or not at all. Any thread. */
GCI int  gci_control_strand(gci_control *, int rank, unsigned strand, uint32_t trunk);
GCI void gci_control_full(gci_control *, bool full);                /* full: others' links of their own are refused. Any thread */
/* The epoch counts the losses that this rank has heard of, so all ranks reach the same one. This adds a loss. Any thread. */
GCI int  gci_control_restart(gci_control *);
/* The backbone's link to this neighbour carries no data: it goes down, everywhere. GC_ERR_ARG: there is no such link. Any
 * thread. */
GCI int  gci_control_down(gci_control *, int rank);
/* Floods to all ranks but this one. Verdicts, which are an abort and that a rank was given up (LOST), always find room and reach all;
 * of several aborts, or verdicts on one rank, the first that comes to each. Any thread. */
GCI int  gci_control_notify(gci_control *, const gci_notice *);
/* Says goodbye and ends the thread. clean: every rank is known to leave too, and none ends before all have come here, since
 * others' packets may still need it as a relay; else neighbours flood that this one left. */
GCI void gci_control_leave(gci_control *, bool clean);
/* does so, if it is still to be done, and frees all: the overlay has been closed */
GCI void gci_control_stop(gci_control *, bool clean);

/* What control.c shares with the rooms below it. dial.c: how a connection is opened, accepted and proven, and how frames
 * travel on it. join.c: how ranks find each other and trade cards. life.c: control connections to the neighbours, and what is
 * known of everybody's life. rescue.c: ranks that deaths have parted. mesh.c: which neighbours a rank gets. All of it belongs to
 * the control thread alone. */

/* A frame on a proven connection: 0 kind  1 flag  2 length of the body (16 bits)  4 body. Ranks are 32 bits. */
enum { GCI_FRAME_HEAD = 4, GCI_FRAME_MAX = 4096, GCI_STREAM_OUT = 2 * (GCI_FRAME_HEAD + GCI_FRAME_MAX), GCI_CANDIDATES_MAX = 32,
       GCI_NOTICES_KEPT = 512, GCI_MISSED_KEPT = 16 };
enum gci_frame {
    GCI_FRAME_CARD = 1,         /* joiner: ms that it will still wait (32 bits), its card */
    GCI_FRAME_READY,            /* joiner: its links are tried; entries of those that could not be had, and of further ones */
    GCI_FRAME_NOTE,             /* joiner: text, what it waits for */
    GCI_FRAME_WANT,             /* joiner: the fetch failed, send the table yourself */
    GCI_FRAME_TABLE,            /* bytes of the whole table with the links that rank 0 requires as text behind it, and of
                                   that text (32 bits each), then ... */
    GCI_FRAME_PART,             /* ... a piece of it */
    GCI_FRAME_FROM,             /* rank 0: fetch the table from rank with this card */
    GCI_FRAME_GO,               /* rank 0: everybody is ready; entries of how the backbone differs from the wish */
    GCI_FRAME_FAIL,             /* both: code (32 bits), text; from rank 0 it ends the start of all */
    GCI_FRAME_NOTICE,           /* control: number of its origin's notices, a gci_notice; 32 bits each */
    GCI_FRAME_SEEN,             /* control: so many notices (flag) more have been read */
    GCI_FRAME_LEAVE,            /* control: flag = GCI_LEAVE_ALL, GCI_LEAVE_THROUGH or 0 */
    GCI_FRAME_MISSED,           /* joiner: rank, text: why there is no link to it */
    GCI_FRAME_TRY,              /* rank 0: try a link to rank */
    GCI_FRAME_TRIED,            /* joiner: rank; flag 1: the link stands */
    GCI_FRAME_DONE,             /* control: what it knows of losses (32 bits); all behind it have come to the end */
    GCI_FRAME_CALL,             /* control: open a link for purpose (flag) to me, who has seen so many (32 bits); or
                                   flag = purpose | GCI_CALL_FAILED: it cannot be opened */
    GCI_FRAME_STARVED           /* control: for so many ms (32 bits) I could have no descriptor for a connection, or no memory */
};
enum { GCI_FRAME_MORE = 1,      /* flag of READY and GO: more such frames follow */
       GCI_LEAVE_ALL = 2,       /* every rank is known to have come to the end; without it the goodbye is a loss */
       GCI_LEAVE_THROUGH = 4,   /* this rank was through the last barrier: all have been in it */
       GCI_CALL_FAILED = 128, GCI_ENTRY_BYTES = 8, GCI_ENTRY_ADDED = 1 };   /* entry: two ranks, in the second's top byte this */

typedef struct gci_stream {
    uint8_t  in[GCI_FRAME_HEAD + GCI_FRAME_MAX], out[GCI_STREAM_OUT];
    size_t   in_bytes, out_bytes;
    bool     table, ready;      /* join: is to get the table; its READY has come */
    bool     report;            /* join: control.report is to go out, READY or GO */
    int64_t  patience;          /* each time that bytes leave, the deadline is so far away again; 0: it stays */
    size_t   table_at;          /* next byte of the table to send */
    size_t   report_at;
    uint32_t loss_at, verdict_at, notice_at, restart_at;    /* control: next entries of the logs to tell */
    unsigned unseen, heard;     /* control: notices sent and not yet SEEN; read and not yet told so */
} gci_stream;

/* Where to connect to, and from where: as gci_target says. */
typedef struct gci_goal { gci_addr addr, source; uint32_t bind; bool last; } gci_goal;

enum gci_conn_stage { GCI_CONN_CONNECTING, GCI_CONN_SHAKING, GCI_CONN_PROVEN, GCI_CONN_CLOSED };
typedef struct gci_dial gci_dial;
typedef struct gci_conn {
    int         fd, index, peer;
    uint8_t     stage, purpose;
    bool        incoming, tunnel;   /* tunnel: the stream of a child */
    unsigned    watched;        /* events asked of the poller */
    uint32_t    generation;     /* tells late events of a former connection in this place */
    uint32_t    epoch;          /* links that the peer had at its HELLO: a later PROOF may be stale */
    int64_t     since, deadline;    /* deadline 0: none */
    gci_addr    addr;           /* of the other end */
    gci_goal    goal;           /* outgoing */
    gci_dial   *dial;           /* outgoing and unproven */
    int         candidate;      /* of dial */
    gci_stream *stream;         /* proven */
    gci_shake   shake;
} gci_conn;

/* The attempt to reach a rank: its addresses in order, with staggered starts, round after round until proven or due. */
struct gci_dial {
    gci_dial *next_dial;
    int       peer, n, next, open;      /* addresses, the next to try, connections under way */
    uint8_t   purpose, strand;
    uint32_t  trunk;
    bool      over;
    bool      met;              /* an address took a connection: a host is there ... */
    bool      mute;             /* ... and in this round one did, and then said nothing */
    bool      hurry;            /* all addresses at once, nearly */
    bool      repeats;          /* in this round those that are not under way are tried once more */
    bool      asked, called;    /* it is the overlay that wants it; the peer */
    gci_conn *chosen;           /* the one that got our PROOF; it alone may succeed */
    int64_t   next_at, backoff, backoff_max, deadline, begun;
    int       rounds;
    uint16_t  peer_version;     /* as the last refusal said, for its text */
    uint32_t  peer_ranks;
    char      via[GCI_ADDR_TEXT + 80];  /* not "": there is one address, and the way to it is ssh to this destination */
    gci_goal  goal[GCI_CANDIDATES_MAX];
    int       err[GCI_CANDIDATES_MAX];  /* 0 none yet, < 0 errno, > 0 enum gci_refusal */
};

typedef struct gci_neighbour {
    int       rank, edge;       /* edge: its index in the graph, once that is agreed */
    gci_conn *conn;
    uint32_t  ups;              /* connections so far */
    uint32_t  notice_at;        /* of the last one, when it was lost (gci_stream) */
    int64_t   suspect_until;    /* its kernel has been asked for a sign of life; 0: no */
    int64_t   owed_since;       /* its kernel has owed us an answer for so long, as far as we looked; 0: it owes none */
    int64_t   heard_at;         /* it said something last; kept while it owes, and when its connection ends; 0: not known */
    int64_t   hungry_since;     /* there has been no memory to dial it; 0: there is */
    int64_t   refused_since;    /* its own address refuses since it was last connected; 0: it does not */
    int64_t   contested_since;  /* what it tells is not heard: that somebody of this side is dead; 0: it is */
    bool      silent;           /* for too long: a fresh connection is tried beside this one */
    int64_t   starved_at;       /* it said last that it can have no descriptors for connections; 0: it never did */
    bool      left;             /* it said goodbye */
    bool      cannot;           /* only the other side can open a connection */
    bool      proven;           /* the peer has been met at ... */
    bool      dialled;          /* ... by a connection that we opened */
    bool      reset;            /* its connection ended otherwise than by its own closing it */
    gci_addr  proven_at;
    /* start */
    bool      wished, required; /* of the backbone; by a file of links here */
    bool      alone;            /* the other side cannot dial */
    bool      settled, stands, ordered;     /* ordered: rank 0 waits for TRIED */
    int64_t   begun, dial_at, give_up_at;
    /* the end */
    bool      child, done;      /* of the tree on which the end is told; its DONE has come ... */
    uint32_t  done_view;        /* ... with this */
    /* links that the overlay asked for, by purpose - GCI_PURPOSE_DATA */
    int64_t   called[2];        /* CALL was sent, and is given up then; 0: no */
    int64_t   recall_at[2], recall_after[2];    /* when it is sent again, so long after the last time */
    bool      waits[2];         /* for the control connection to be back */
    int64_t   linked_at[2];
    uint32_t  linked_id[2];     /* name of the connection then; 0: none yet */
} gci_neighbour;

/* What dial.c calls above it. */
typedef struct gci_dial_upcalls {
    enum gci_refusal (*judge)(gci_control *, gci_conn *);           /* incoming: at its HELLO and at its PROOF */
    void (*proven)(gci_control *, gci_conn *);
    void (*missed)(gci_control *, gci_dial *, int candidate, int err);  /* may end the dial */
    void (*round)(gci_control *, gci_dial *);                       /* no address is left; the next round is set */
    void (*expired)(gci_control *, gci_dial *);                     /* its deadline has passed; it ends behind this */
    bool (*frame)(gci_control *, gci_conn *, unsigned kind, unsigned flag, const uint8_t *, size_t);    /* false: not yet */
    void (*refill)(gci_control *, gci_conn *);                      /* everything queued is sent */
    void (*closed)(gci_control *, gci_conn *, int err);             /* proven and not handed on; 0: the peer closed */
} gci_dial_upcalls;

enum gci_tag { GCI_TAG_WAKER = 1, GCI_TAG_LISTENER, GCI_TAG_UNIX };  /* of the poller; those of connections are beyond 32 bits */
enum gci_phase { GCI_PHASE_JOIN, GCI_PHASE_LINK, GCI_PHASE_READY, GCI_PHASE_RUN, GCI_PHASE_QUIESCE, GCI_PHASE_LEAVE,
                 GCI_PHASE_FAILED, GCI_PHASE_END };
struct gci_control_request;
/* A rank that is gone, or a link that is down (then a and b are its ends). origin saw it; from told it, -1: nobody. */
struct gci_lost { uint32_t a, b, origin; uint8_t kind, how; int from; };
struct gci_rescued { int a, b; bool down; };
enum { GCI_DOUBT_MS = 3000 };   /* what goes down within this time of each other may have gone silent together */
#define GCI_LIFE_CONTEST (1500 * (int64_t)GCI_NS_PER_MS)    /* what another side knows of a death is known here by then */
/* Of a rank, times; 0: not so. No links that are up lead to it; its addresses refuse us; not to be dialled
 * before; the first of its links of late went down. */
struct gci_parted { int64_t since, tried_at, refused_at, again_at, doubted_at; bool met; };
struct gci_missed { int from, to; char text[GCI_TEXT]; };
struct gci_try { int a, b; uint8_t answers, stands; };

struct gci_control {
    gci_env   *env;
    gci_sys   *sys;
    gci_place  place;
    void     (*on_news)(void *user, const gci_news *);      void *user;
    const gci_dial_upcalls *up;
    gci_thread *thread;
    gci_monitor *monitor;       /* guards the inbox and the outcome */
    struct gci_control_request *inbox, **inbox_end, *stop;     /* stop: kept for gci_control_stop, which cannot fail */
    struct gci_control_request *spare;  /* for others, when there is no memory */
    uint32_t  *given_up;        /* [ranks] why, of whom this rank has given up and control is to tell; 0: of nobody */
    gci_notice abort;           /* kind 0, or to be told */
    bool       judged;          /* there is some of these */
    int        outcome;         /* > 0: still starting */
    int        fail_code;       /* of the control thread: what outcome will be */
    char       text[GCI_TEXT];

    enum gci_phase phase;
    int64_t    now, start_deadline, peer_timeout, end_at, look_at;     /* look_at: whether neighbours are silent */
    bool       modelled;        /* rank 0: by GRIDCOMM_MODEL */
    double     start_seconds, density;
    int        poller, waker, listener;
    int        unix_listener;   /* for processes of this host; -1: none could be had */
    gci_addr   listen_at;
    int64_t    accept_at;       /* 0: accepting; else paused until then */
    bool       flooded;         /* by strangers: nobody has a right to stay */
    int        starved;         /* why no connection could be had here the last time; 0: one could */
    int64_t    starved_since, starved_at, starved_tell_at;  /* first and last time in a row, since 0: not now; when to tell */

    gci_conn **conn;  int conns;    /* places, some NULL */
    int        unproven;        /* incoming */
    bool       dirty;           /* something was queued, closed or begun since the loop looked */
    uint32_t   generation;
    gci_dial  *dials;

    gci_full_card me;
    gci_ifaddr *own;  int owns; /* all that this host has */
    unsigned   streams;         /* connections per link */
    gci_addrsel *addrsel;       /* from the table on ... */
    uint8_t   *explained;       /* ... [hosts] its choice has been logged */
    gci_goal **trunk;           /* [ranks] of the links of their own that were dialled here, or NULL */
    uint64_t   job;
    gci_table  table;           /* ranks 0: not there yet */
    uint8_t   *wire;  size_t wire_bytes, wire_have;     /* its wire form, while others may fetch it ... */
    size_t     wire_links;      /* ... of which the last so many bytes are the links that rank 0 requires */
    gci_conn  *root, *fetch;    /* joiner: to rank 0; to whom it fetches from */
    gci_addr   root_at;         /* where rank 0 was joined; family 0: on this host, or by a tunnel */
    gci_conn **joined;          /* rank 0: [ranks] */
    uint8_t  **card;  size_t *card_bytes;               /* rank 0: [ranks] */
    gci_addr  *seen;            /* rank 0: [ranks] where each was seen; of itself, what others know it by */
    int        cards, ready;
    int64_t    noted_at, resolved_at;
    int        note_rank;       /* who seemed to have another key */
    char       note[GCI_TEXT];  /* what the start last waited for */

    gci_require *require;  int requires;    /* of rank 0's file of links; if it has none, of this rank's own */
    bool       links_missing;   /* there should be such a file here */
    gci_topo   topo;
    uint32_t  *speed;           /* [ranks] */
    gci_graph  graph;           /* the wish; from GO on as agreed */
    gci_neighbour **neighbour;  /* ascending by rank */
    int        neighbours, neighbours_room;
    bool       linking, reported;   /* the neighbours are known; READY is said */
    bool       trying;          /* rank 0: repairs */
    atomic_bool full;           /* others' links of their own are refused */
    uint8_t   *report;  size_t report_bytes, report_room;       /* entries of READY, of GO */
    struct gci_try *tries;  int try_count;              /* rank 0: the links that it has asked for */
    struct gci_missed missed[GCI_MISSED_KEPT];  int missed_count;

    unsigned   leave;           /* GCI_LEAVE_*, of the goodbye */
    uint16_t   epoch;
    uint32_t   view;            /* what is known of losses, as one number */
    uint32_t   tree_view;       /* of the tree on which the end is told ... */
    int        tree_parent;     /* ... this rank's parent in it, -1: it is the root, -2: there is no tree yet */
    bool       done_told;
    bool       look_for_cut_off;    /* something was lost: who can no longer be reached? */
    uint8_t   *gone;            /* [ranks] enum gci_news_kind DEAD or LEFT, 0: alive */
    uint8_t   *down;  int down_room;    /* [edges, rescues] > 0: for good, and how */
    struct gci_rescued *rescued;  int rescues, rescues_room;    /* links beyond the graph, as heard of; written under the monitor */
    struct gci_parted *parted;  int parted_count;       /* [ranks]; of so many it is to be seen whether they live */
    int64_t    doubted_at;      /* the first link of late went down, of any rank */
    int32_t   *span;            /* [2 * ranks] scratch: of a spanning tree */
    struct gci_lost *losses;  uint32_t loss_count, loss_room;   /* in the order heard of */
    uint32_t  *restarts, *restart_at, restart_clock;    /* [ranks] how many; when the latest was heard of */
    uint32_t  *heard;           /* [ranks] number of the latest notice of that origin */
    uint32_t  *delivered;       /* [2 * ranks] GCI_NEWS_LINK so far, of GCI_PURPOSE_DATA, of GCI_PURPOSE_BACKBONE */
    uint32_t   gone_count, notices, verdicts;
    struct gci_kept *verdict;   /* [ranks + 1] in the order heard of: of each rank the first, and an abort */
    struct gci_kept { gci_notice notice; uint32_t number; int from; } kept[GCI_NOTICES_KEPT];  /* the latest, by index modulo */
};

GCI gci_dial *gci_dial_new(gci_control *, enum gci_purpose, int peer, const gci_goal *, int n, int64_t deadline);
GCI gci_dial *gci_dial_ssh(gci_control *, enum gci_purpose, int peer, const char *destination, uint16_t port, int64_t deadline);
GCI gci_dial *gci_dial_find(gci_control *, enum gci_purpose, int peer);
GCI void      gci_dial_end(gci_control *, gci_dial *);          /* NULL is fine; no upcall */
GCI bool      gci_dial_meets(const gci_control *, const gci_dial *);
GCI bool      gci_dial_hopeless(const gci_dial *);              /* a round is over, and trying again will not help */
GCI bool      gci_dial_is_starved(const gci_dial *);            /* there is no descriptor, or no memory, for its connections here */
GCI bool      gci_dial_is_desperate(const gci_dial *);          /* there are none but link-local addresses */
GCI const char *gci_dial_text(gci_control *, const gci_dial *, char text[GCI_TEXT]);    /* each address and its error */
GCI void      gci_dial_accept(gci_control *, int listener);
GCI int64_t   gci_dial_timers(gci_control *);                   /* does what is due; when the next is */
GCI void      gci_dial_flush(gci_control *);                    /* sends what is queued; frees what has been closed */
GCI void      gci_conn_event(gci_control *, gci_conn *, unsigned events);
GCI void      gci_conn_close(gci_control *, gci_conn *);        /* NULL is fine; no upcall */
GCI int       gci_conn_hand_over(gci_control *, gci_conn *);    /* its descriptor, no longer control's */
GCI bool      gci_conn_send(gci_control *, gci_conn *, unsigned kind, unsigned flag, const void *, size_t);   /* false: no room */
GCI void      gci_conn_resume(gci_control *, gci_conn *);       /* frames that were not to be taken yet */

GCI void      gci_join_begin(gci_control *);
GCI enum gci_refusal gci_join_judge(gci_control *, gci_conn *);
GCI void      gci_join_proven(gci_control *, gci_conn *);
GCI void      gci_join_round(gci_control *, gci_dial *);
GCI void      gci_join_expired(gci_control *, gci_dial *);
GCI void      gci_join_frame(gci_control *, gci_conn *, unsigned kind, unsigned flag, const uint8_t *, size_t);
GCI void      gci_join_refill(gci_control *, gci_conn *);
GCI void      gci_join_closed(gci_control *, gci_conn *, int err);
GCI void      gci_join_note(gci_control *, const char *text);   /* what this rank waits for */
GCI int64_t   gci_join_timers(gci_control *);
GCI bool      gci_join_has_failed(const gci_control *);         /* everybody has been told */
GCI void      gci_join_fail(gci_control *, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
GCI void      gci_join_out_of_memory(gci_control *);
GCI const char *gci_join_text(const uint8_t *from, size_t bytes, char text[GCI_TEXT]);     /* a peer's text, made printable */
enum { GCI_LIST_TEXT = 121 };
/* "rank 3", "ranks 3, 5-7": those for which in says true. */
GCI void      gci_join_list(const gci_control *, bool (*in)(const gci_control *, int rank), char text[GCI_LIST_TEXT]);

GCI gci_neighbour *gci_life_find(const gci_control *, int rank);        /* NULL: no neighbour */
GCI gci_neighbour *gci_life_add(gci_control *, int rank);               /* or finds; NULL: out of memory */
GCI void      gci_life_drop(gci_control *, gci_neighbour *);
GCI bool      gci_life_prepare(gci_control *);                  /* memory for the graph as it is; false: there is none */
GCI bool      gci_life_begin(gci_control *);                    /* the graph is agreed; false: out of memory */
GCI bool      gci_life_running(const gci_control *);
GCI bool      gci_life_is_down(const gci_control *, const gci_neighbour *);
GCI bool      gci_life_gave_up(const gci_control *, const gci_neighbour *);
GCI void      gci_life_up(gci_control *, gci_conn *);
GCI void      gci_life_closed(gci_control *, gci_conn *, int err);
GCI void      gci_life_missed(gci_control *, gci_dial *, int candidate, int err);
GCI void      gci_life_expired(gci_control *, gci_dial *);
GCI bool      gci_life_frame(gci_control *, gci_conn *, unsigned kind, unsigned flag, const uint8_t *, size_t);
GCI void      gci_life_refill(gci_control *, gci_conn *);
GCI void      gci_life_notify(gci_control *, const gci_notice *);
GCI void      gci_life_restart(gci_control *);
GCI bool      gci_life_join(gci_control *, int peer);            /* a link that the backbone did not have; false: out of memory */
GCI bool      gci_life_refuses(int err);                        /* at an address: nobody is there, or somebody else */
GCI void      gci_life_span(gci_control *, int root);           /* fills span */
GCI void      gci_life_cut_off(gci_control *, int rank);         /* it is given up */
GCI void      gci_life_useless(gci_control *, int rank);        /* a link that carries no data goes down */
GCI void      gci_life_settle(gci_control *);                   /* what follows from what was heard */
GCI int64_t   gci_life_timers(gci_control *);                   /* does what is due; when the next is */
GCI void      gci_life_stop(gci_control *, bool clean);
GCI void      gci_life_leave(gci_control *);
GCI bool      gci_life_has_left(const gci_control *);
GCI void      gci_life_tell(gci_control *, gci_news *);         /* news of the present epoch */
GCI const char *gci_life_address(const gci_control *, int rank, char text[GCI_ADDR_TEXT]);

GCI void      gci_rescue_settle(gci_control *);                 /* who is parted is dialled, or given up */
GCI int64_t   gci_rescue_timers(gci_control *);                 /* when the next is due */
GCI void      gci_rescue_up(gci_control *, gci_conn *);         /* to one who is no neighbour; closes it if there is no memory */

/* Fills in me. GC_ERR_CONFIG, _SYSTEM, _NOMEM */
GCI int       gci_reach_card(gci_control *, const gc_options *, char text[GCI_TEXT]);
GCI int       gci_reach_open(gci_control *);                    /* the table is here; GC_ERR_NOMEM */
GCI void      gci_reach_close(gci_control *);
/* A dial to rank by whatever way there is; NULL: out of memory. candidates: how many addresses there were. */
GCI gci_dial *gci_reach_dial(gci_control *, enum gci_purpose, int rank, int64_t patience, int *candidates);
/* The card of rank `to` with no more addresses than `from` may try, for gci_reach_fetch there. */
GCI void      gci_reach_card_for(gci_control *, int from, int to, gci_full_card *);
/* To whom only the card is known of; NULL: there is no address, or no memory. */
GCI gci_dial *gci_reach_fetch(gci_control *, int rank, gci_full_card *, int64_t deadline);
GCI bool      gci_reach_possible(gci_control *, int from, int to);      /* is there an address to try? */
GCI const char *gci_reach_why(gci_control *, int rank, char text[GCI_TEXT]);                /* why there is none */
GCI bool      gci_reach_by_ssh(const gci_control *, int from, int to, char destination[GCI_ADDR_TEXT + 80]);
GCI unsigned  gci_reach_strands(gci_control *, const gci_conn *trunk);
GCI gci_dial *gci_reach_strand(gci_control *, int rank, unsigned strand, uint32_t trunk, int64_t deadline);

/* GC_ERR_CONFIG, text says what; _NOMEM */
GCI int       gci_mesh_read_links(gci_control *, const char *path, char text[GCI_TEXT]);
GCI size_t    gci_mesh_links_text(const gci_control *, char *out);      /* the required links; out NULL: how many bytes */
GCI int       gci_mesh_take_links(gci_control *, const char *text, size_t bytes);      /* GC_ERR_PROTOCOL, _NOMEM */
GCI size_t    gci_mesh_links_max(void);                         /* no such text is longer */
GCI void      gci_mesh_settle(gci_control *);                   /* goes on with it as far as it can */
GCI int64_t   gci_mesh_timers(gci_control *);
GCI void      gci_mesh_round(gci_control *, gci_dial *);        /* a dial to a neighbour has tried all its addresses */
/* false: not of this room */
GCI bool      gci_mesh_frame(gci_control *, gci_conn *, unsigned kind, unsigned flag, const uint8_t *, size_t);
GCI void      gci_mesh_refill(gci_control *, gci_conn *);
GCI void      gci_mesh_forget_report(gci_control *);            /* when the start is over, as soon as it has gone out */

/* ---- overlay.c: packets, and ways to peers ----------------------------------------------------------------------- */

/* A packet: 48 bytes of header, then `length` bytes of payload. The same on every link, direct or relayed.
 *   0 type  1 flags  2 epoch  4 source  8 dest  12 length  16 ack  20 credit  22 window  24 seq  28 context  32 tag
 *   36 signature  40 total */
enum { GCI_HEADER_BYTES = 48, GCI_SEGMENT_BYTES = 1448,     /* of TCP over Ethernet */
       GCI_PACKET_MAX = 65536,                              /* payload bytes on a link of the pair's own, and on the backbone: */
       GCI_ROUTED_MAX = 11 * GCI_SEGMENT_BYTES - GCI_HEADER_BYTES };
enum gci_packet_type { GCI_ENVELOPE = 1, GCI_CHUNK, GCI_STATE, GCI_GRANT, GCI_FIN, GCI_ASK, GCI_TYPES };
enum { GCI_FLAG_SYNC = 1,       /* envelope: the sender waits for the match */
       GCI_FLAG_STARVED = 2,    /* the sender has more to say than its credit allows */
       GCI_FLAG_RESUME = 4,     /* state: first packet of a new link or way; send again from ack on. On the backbone the
                                   overlay adds in seq the id of the last link of its own to that peer, 0: none yet */
       GCI_FLAG_AGAIN = 8,      /* envelope sent before: payload only if the receiver does not have it yet */
       GCI_FLAG_BYE = 16,       /* state: the last packet on this link */
       GCI_FLAG_STREAMS = 32,   /* envelope: its chunks follow without a grant, an ASK was one already */
       GCI_FLAG_OVER = 64,      /* ASK: the answer to one: of that collective nothing comes from here in envelopes from seq on */
       GCI_FLAG_BACK = 64,      /* envelope, with AGAIN: its sender would have it back. FIN: it has */
       GCI_FLAG_LESS = 32,      /* state: the window is smaller than was said, for the tag-th time; to be answered by ... */
       GCI_FLAG_KNOWN = 64 };   /* state: ... that this is known of the context-th time: no envelope goes beyond it any more */
typedef struct gci_packet {
    uint8_t  type, flags;
    uint16_t epoch;
    uint32_t source, dest;      /* world ranks */
    uint32_t length;
    uint32_t ack;               /* every envelope from dest to source below this has come */
    uint16_t credit;            /* envelopes that dest may send beyond ack */
    uint16_t window;            /* KiB of eager payload that dest may send beyond ack */
    uint32_t seq;               /* of the envelope that this is, or is about; ASK: which message of the collective */
    uint32_t context, tag, signature;   /* GRANT: context and tag are the low and high half of the limit. CHUNK: context:
                                           how often the window had been made smaller */
    uint64_t total;             /* envelope: bytes of the message; chunk, grant: offset; ASK: bytes granted early, or 0 */
} gci_packet;

GCI void gci_packet_encode(const gci_packet *, uint8_t out[GCI_HEADER_BYTES]);
GCI int  gci_packet_decode(gci_packet *, const uint8_t in[GCI_HEADER_BYTES]);   /* GC_ERR_PROTOCOL: no such packet */

typedef struct gci_overlay gci_overlay;

/* What next() is asked for: what must come in order and soon, or chunks that have a route of their own, or whatever there is. */
enum { GCI_WANT_ORDERED = 1, GCI_WANT_BULK = 2 };

/* What overlay calls above it, inside the world's monitor. A way to a peer is a link of the pair's own, or (in one epoch) the
 * route over the backbone; there is one at a time. */
typedef struct gci_upcalls {
    /* The next packet for dest, of at most `most` bytes of payload, or false. The payload stays where it is until sent or
     * lost. Chunks whose envelope the peer may not have yet count as ordered. */
    bool (*next)(void *user, int dest, unsigned want, size_t most, gci_packet *, const void **payload, void **token);
    void (*sent)(void *user, int dest, enum gci_packet_type, void *token);  /* the socket has all of a packet */
    /* A packet's header has come from peer: where do its bytes go? Fewer than length: the rest is discarded.
     * GC_ERR_PROTOCOL: it breaks the rules; the way ends. Any other error: the way ends and may begin anew. */
    int  (*begin)(void *user, int peer, const gci_packet *, void **sink, size_t *sink_bytes, void **token);
    void (*end)(void *user, int peer, const gci_packet *, void *token);     /* all of its payload has come */
    void (*way_up)(void *user, int peer, bool routed);
    /* What was in it is gone, tokens of packets begun or not sent are void. broke_rules: the peer did. */
    void (*way_down)(void *user, int peer, bool broke_rules);
    void (*news)(void *user, const gci_news *); /* DEAD, LEFT, NO_LINK (and no route) and notices, in order */
    int64_t (*tick)(void *user, int64_t now);   /* before sleeping: do what is due, tell when to call again */
    /* Strands: links beside that of the pair's own, for chunks alone, which may get past all else. As begin; and one has ended:
     * its chunks that were not sent are sent() for the last time, what it had sent may be lost. */
    int  (*strand_begin)(void *user, int peer, const gci_packet *, void **sink, size_t *sink_bytes, void **token);
    void (*strand_down)(void *user, int peer);
    size_t (*strand_left)(void *user, int peer, unsigned want);     /* bytes of chunks that could go now */
} gci_upcalls;

GCI int  gci_overlay_open(gci_overlay **, gci_env *, gci_monitor *, int rank, int ranks, const gc_options *resolved,
                          const gci_upcalls *, void *user, gc_stats *);
GCI void gci_overlay_close(gci_overlay *);                          /* control must have ended; ends the I/O thread */
GCI void gci_overlay_news(void *overlay, const gci_news *);         /* what control calls, on its own thread */
GCI void gci_overlay_start(gci_overlay *, gci_control *);           /* from now on links can be asked for */
/* All of these inside the world's monitor: */
GCI void gci_overlay_push(gci_overlay *, int peer);                 /* there is something for peer: send, or look for a way */
GCI void gci_overlay_cut(gci_overlay *, int peer);                  /* the way, if any, ends here and now */
/* The buffers behind this token go away: what waits to be sent from them goes on from a copy, what still comes is skipped. */
GCI void gci_overlay_disown(gci_overlay *, int peer, const void *token);
/* Tests bring tables of their own, which are taken over; they hold until the overlay is closed, whatever dies. */
GCI void gci_overlay_use_routes(gci_overlay *, gci_routes *);

/* For descriptions: each link as it stands, and each peer that is reached. */
typedef struct gci_link_view {
    int      peer;
    bool     backbone;
    unsigned strand;            /* 0: none */
    int      queued, queue_max; /* packets that wait to be sent */
    int      holds;             /* dest of the received packet that waits for room elsewhere, or -1 ... */
    int      waits_for;         /* ... and the neighbour whose queue is full, or -1 */
    int      waiters;           /* links whose packet waits for room here */
    uint64_t relayed;           /* bytes of payload forwarded to it */
} gci_link_view;
enum gci_way { GCI_WAY_NONE, GCI_WAY_OWN, GCI_WAY_ROUTED };
GCI void gci_overlay_links(const gci_overlay *, void (*each)(void *arg, const gci_link_view *), void *arg);
/* Does an envelope of this context wait for the socket of a connection of this rank's own? */
GCI bool gci_overlay_holds(const gci_overlay *, uint32_t context);
GCI enum gci_way gci_overlay_way(const gci_overlay *, int peer);
/* The way to one peer, as it stands. */
typedef struct gci_way_view {
    enum gci_way way;
    const char *why;            /* there is none: why, so far */
    int      next;              /* whose link it takes: the peer's, or that of the next hop for small messages; -1: no such link */
    bool     connected;         /* that link is, at present, with ... */
    gci_addr to;                /* ... this address; family 0: not known */
    int      queued, queue_max; /* packets that wait to be sent on it */
    int64_t  silence;           /* ns that its other end's kernel owes an answer; 0: it owes none */
} gci_way_view;
GCI gci_way_view gci_overlay_view(const gci_overlay *, int peer);
/* The tables in use, made if need be; NULL: out of memory. epoch, numbering: may be NULL. */
GCI const gci_routes *gci_overlay_routes(gci_overlay *, uint16_t *epoch, const gci_numbering **);

enum gci_progress { GCI_PROGRESS_AUTO, GCI_PROGRESS_POLL, GCI_PROGRESS_SLEEP, GCI_PROGRESS_THREAD };

/* ---- inbox.c: news from control's thread --------------------------------------------------------------------------- */

typedef struct gci_inbox {
    gci_env     *env;
    gci_monitor *lock;
    int          ranks;
    struct gci_inbox_item *first, **end;
    size_t       items;
    atomic_bool  has_news;
    /* what there was no memory or no room for, without its text */
    bool         held;          /* there is some: all that comes goes there, too */
    struct gci_inbox_held *of;  /* [ranks] */
    const gci_graph *graph;
    uint8_t     *down;          /* [edges] it went down */
    uint16_t     epoch;
    bool         grown;         /* links were added, or an added one went down */
    bool         turns;         /* there was a loss, and epoch is of the last one */
    bool         untold;        /* one of them came before there was a graph */
    bool         verdicts;      /* some rank was given up */
    bool         aborts;
    gci_notice   abort;
} gci_inbox;

GCI int  gci_inbox_open(gci_inbox *, gci_env *, int ranks);         /* GC_ERR_NOMEM: to be closed all the same */
GCI void gci_inbox_close(gci_inbox *);                              /* connections in it are closed */
GCI int  gci_inbox_graph(gci_inbox *, const gci_graph *);           /* the backbone, which must not go away; GC_ERR_NOMEM */
GCI void gci_inbox_put(gci_inbox *, const gci_news *);              /* any thread */
GCI bool gci_inbox_take(gci_inbox *, gci_news *);                   /* false: there is none */

/* ---- link.c: a connection with a queue of whole packets at either side --------------------------------------------- */

enum {
    GCI_QUEUE_MAX = 8,          /* packets in a send queue */
    GCI_HEAD_MAX = 256          /* header and payload up to this leave as one piece: cheaper than two */
};
typedef struct gci_link gci_link;

typedef struct gci_slot {
    gci_packet  packet;
    const void *payload;                /* NULL: none, or in head */
    void       *token;                  /* of this rank's own packets */
    void       *copy;                   /* owned: the payload's owner has gone */
    void       *buffer;                 /* owned, GCI_ROUTED_MAX: a packet on its way */
    size_t      head_bytes;
    uint8_t     passed;                 /* of a chunk: by so many that came later */
    uint8_t     head[GCI_HEAD_MAX];     /* the header, and a short payload */
} gci_slot;

/* Who waits for room in the queue of a hop: a link that holds a packet, or this rank itself. */
typedef struct gci_waiter {
    struct gci_waiter *next;
    gci_link *source;                   /* NULL: this rank */
    bool waits;
} gci_waiter;

enum gci_passing { GCI_PASS_SKIP, GCI_PASS_DELIVER, GCI_PASS_FORWARD };     /* what becomes of the packet being received */

struct gci_link {
    int      fd, peer;                  /* fd -1: a hop without a connection */
    gci_addr address;                   /* of its other end; family 0: not known */
    bool     backbone;
    bool     far_away;                  /* to another site */
    uint8_t  strand;                    /* 0: none */
    gci_link *next_strand;
    bool     broken;
    bool     pumping, pushed;           /* in gci_link_pump; and there is more since it last asked */
    bool     mute;                      /* sending failed; what the peer sent before may still be read */
    bool     broke_rules;               /* the peer did */
    bool     writing;                   /* the poller watches for room */
    bool     spoke;                     /* since its peer's kernel was last seen to owe nothing */
    uint64_t handed;                    /* bytes that the socket has taken, ever */
    size_t   backlog;                   /* of those, not with the peer yet, at the last look */
    uint64_t there;                     /* with the peer, at the last look */
    int64_t  moved_at;                  /* when it was last seen to grow, or to be all */
    uint64_t sampled;                   /* there, when the latest sample of the rate began: ... */
    int64_t  sampled_at;                /* ... then; 0: none runs */
    double   rate;                      /* bytes per ns; 0: not known */
    /* of several of a pair */
    bool     busy, works;               /* it has sent since the last comparison; or has at that owed something */
    int64_t  silent_since, heard_at;    /* the peer's kernel owes an answer, 0: it does not; when it was last heard */
    int64_t  outdone_at;                /* when it was silent, and the peer was first seen to be heard on another */
    int64_t  listened_at, slow;         /* the latest comparison; how long its answers took, lately at most */
    uint64_t mark;                      /* what was handed over by marked_at, and an answer is owed to; 0: none is */
    int64_t  marked_at;
    uint8_t  owed;                      /* looks since when that owes something, and has said nothing */
    unsigned watched;                   /* events asked of the poller */
    int      paid;                      /* waits that polling it has ended, towards HOT_AFTER */
    /* sending: out[0 .. queued), of which the first `gone` bytes of out[0] have left */
    int      queued;
    size_t   gone;
    gci_slot out[GCI_QUEUE_MAX];
    /* receiving: ahead[from .. to) is read but not taken; in a packet, sink_left then skip_left bytes are to come */
    size_t   from, to;
    bool     in_packet;
    enum gci_passing passing;
    gci_packet in;
    uint8_t *sink;
    size_t   sink_left, skip_left;
    void    *token;
    /* a long packet has ended since this rank last turned away; at most that often is it acknowledged (gci_links_acknowledge) */
    bool     ended;
    gci_link *next_ended;
    int64_t  acknowledged_at;           /* about: moves on by a pace each time */
    /* of a hop: receiving */
    void    *buffer;                    /* of the packet being received or held */
    gci_link *next;                     /* where it goes */
    bool     holds;                     /* it has come whole, and waits for room there */
    bool     stopped;                   /* the packet whose header is here cannot begin: of a newer epoch, or no memory */
    int64_t  stopped_at;
    bool     again;                     /* may be read on */
    gci_waiter wait;                    /* while it holds */
    int      at;                        /* its place among the neighbours in the routes, or -1 */
    int      offences, failures;        /* connections that broke the rules; that could not be had, one after another */
    /* of a hop: sending */
    gci_waiter *waiters, **waiters_end, local; /* for room here; this rank's place among them */
    int      waiting;
    uint32_t local_first, local_last;   /* this rank's destinations that go by here: 1 + 2 * rank + metric; 0: none */
    bool     sent, lost;                /* something, in an epoch: it was written; it may be lost with a connection */
    uint16_t sent_epoch, lost_epoch;
    bool     turn;                      /* this rank's, though links may be read on that could get in line before it */
    bool     due;                       /* among those with something new */
    gci_link *next_due, *next_hop;
    uint64_t relayed;
    size_t   ahead_room;
    uint8_t  ahead[];
};

static inline bool gci_link_is_read(const gci_link *link) { return !link->holds && !link->stopped; }

/* without a connection; NULL: out of memory */
GCI gci_link *gci_link_new(gci_overlay *, int peer, bool backbone, unsigned strand);
GCI int  gci_link_open(gci_overlay *, gci_link *, int fd);                  /* takes fd over; < 0: it is broken */
GCI void gci_link_close(gci_overlay *, gci_link *);
GCI void gci_link_break(gci_overlay *, gci_link *, const char *why);        /* marks it, for the driver to tear down */
GCI int  gci_link_watch(gci_overlay *, gci_link *);                         /* whether it is to be read, or hot, has changed */
GCI void gci_link_writing(gci_overlay *, gci_link *, bool writing);
GCI void gci_link_heat(gci_overlay *, gci_link *);                          /* NULL: none is hot */
GCI bool gci_link_listen(gci_overlay *, gci_link *, int64_t since);         /* is an answer owed? Breaks one that is silent */
GCI void gci_link_forget(gci_overlay *, gci_link *, int dest);
GCI void gci_link_skip(gci_link *);
GCI int  gci_link_vector(const gci_link *, struct iovec[2 * GCI_QUEUE_MAX]);
GCI void gci_link_ended(gci_overlay *, gci_link *);                         /* a packet has come whole */
GCI void gci_links_acknowledge(gci_overlay *);                              /* this rank turns away from its links */
GCI ssize_t gci_link_receive(gci_overlay *, gci_link *, bool *all);
GCI void gci_slot_settle(gci_link *);
GCI void gci_slot_encode(gci_slot *);
GCI bool gci_slot_keep(gci_overlay *, gci_link *, gci_slot *);
GCI void gci_slot_free(gci_overlay *, gci_slot *);
GCI void *gci_buffer_take(gci_overlay *);                                   /* GCI_ROUTED_MAX bytes; NULL: out of memory */
GCI void gci_buffer_give(gci_overlay *, void *buffer);

/* ---- forward.c: packets through links ------------------------------------------------------------------------------ */

GCI gci_link *gci_hop_get(gci_overlay *, int peer);                         /* made if need be; NULL: out of memory */
GCI void gci_hop_place(gci_overlay *, gci_link *hop);                       /* routes have changed */
GCI bool gci_hop_is_wanted(const gci_overlay *, int peer);
GCI bool gci_hop_has_lost(const gci_overlay *, const gci_link *hop);
GCI void gci_hop_due(gci_overlay *, gci_link *hop);                         /* gci_hops_pump is to look at it */
GCI void gci_hops_pump(gci_overlay *);
GCI void gci_hops_go_on(gci_overlay *);
GCI void gci_hops_turn(gci_overlay *);                                      /* a new epoch */
GCI gci_link *gci_route_hop(const gci_overlay *, enum gci_metric, int dest);
GCI void gci_route_push(gci_overlay *, int peer);                           /* this rank has something for it */
GCI bool gci_link_pump(gci_overlay *, gci_link *);
GCI int  gci_packet_deliver(gci_overlay *, gci_link *, void **sink, size_t *sink_bytes);   /* as gci_upcalls.begin */
GCI void gci_link_parse(gci_overlay *, gci_link *);
GCI bool gci_link_read(gci_overlay *, gci_link *);
GCI void gci_link_drain(gci_overlay *, gci_link *);                         /* a connection ends */

/* What overlay.c does for them. */
GCI const gci_routes *gci_overlay_tables(gci_overlay *);                    /* of this epoch; NULL: no memory, or no backbone */
GCI void gci_overlay_ask(gci_overlay *, int peer, int kind);                /* control, for a link */
GCI void gci_owns_review(gci_overlay *);                                    /* the number of links of pairs' own has changed */
GCI void gci_overlay_errand(gci_overlay *);                                 /* the driver has something to do */
GCI void gci_overlay_alarm(gci_overlay *, int64_t at);                      /* gci_links_tick has, then */
GCI void gci_overlay_spoke(gci_overlay *, gci_link *);                      /* it has: is it heard? */
/* A packet for this rank: where its bytes go. link->passing tells whether it is delivered. */
GCI void gci_route_deliver(gci_overlay *, gci_link *, void **sink, size_t *sink_bytes);

/* ---- strand.c: further links beside one of a pair's own -------------------------------------------------------------- */

struct gci_overlay_peer;
GCI gci_link *gci_strand_find(const struct gci_overlay_peer *, unsigned strand);
GCI void gci_overlay_bulk(gci_overlay *, int peer, size_t bytes);           /* chunks have gone over its own links, or come */
GCI void gci_strand_attach(gci_overlay *, const gci_news *);
GCI void gci_strands_end(gci_overlay *, int peer);                          /* what has come over them still counts */
GCI void gci_strands_free(gci_overlay *, int peer);
GCI void gci_strands_tear_down(gci_overlay *, int peer);                    /* those that are broken */
GCI void gci_strands_cut(gci_overlay *, int peer);
GCI void gci_strands_pump(gci_overlay *, int peer);
GCI bool gci_strand_takes(gci_overlay *, gci_link *);                       /* the next chunk, or is it for others? */
GCI void gci_strands_watch(gci_overlay *, const gci_link *);                /* it has sent: is it heard? */
GCI void gci_strands_compare(gci_overlay *, int64_t now);

/* ---- overlay.c, what it shares with those and drive.c, all of it inside the world's monitor but for the inbox -------- */

/* Memory for something has failed since then, and last then; since 0: it does not fail. */
typedef struct gci_hunger { int64_t since, at; } gci_hunger;

typedef struct gci_overlay_peer {
    gci_link *own, *hop;
    gci_link *strands;                  /* beside own, while that lasts */
    uint8_t  strands_most;              /* that can be opened from here */
    size_t   bulk;                      /* bytes of chunks over its own links since strands were last thought of */
    int64_t  strands_at;                /* not before that time */
    uint32_t seen[2], own_id;           /* links so far, by kind; the last of its own */
    bool     asked[2], unasked[2];      /* by kind; no memory to ask: tried again */
    bool     routed;                    /* the way is the route ... */
    bool     was_routed;                /* ... or was, in this epoch */
    bool     over;                      /* no way any more: it is gone, or was given up */
    bool     gone;
    bool     fallen;                    /* the way has ended, and above has not been told */
    bool     turning;                   /* one way ends because the next is here: do not look for any */
    bool     wants;                     /* something is for it, and it has no way */
    bool     hurry;                     /* it had a route when the epoch ended */
    bool     refused;                   /* no link of its own in this epoch */
    bool     ignored;                   /* it began a route in this epoch, which was not taken */
    bool     listed[GCI_METRICS];
    uint8_t  lost;                      /* links of its own, up to LOST_MAX */
    uint32_t after[GCI_METRICS];        /* the next in the list of a hop */
    int64_t  verdict_at;                /* without link or route, control's verdict is waited for until then; 0: it is not */
    int64_t  patience;                  /* until when its own link is waited for; 0: not yet, -1: not any more */
    gci_hunger hungry, unreached;       /* for what it sends on the route; for a way to it */
} gci_overlay_peer;

struct gci_overlay {
    gci_env     *env;
    gci_sys     *sys;
    gci_monitor *monitor;
    gci_control *control;       /* NULL: tests that do without */
    gci_upcalls  up;
    void        *user;
    gc_stats    *stats;
    int          rank, ranks, queue_max;
    int          poller, waker;
    gci_overlay_peer *peer;     /* [ranks] */
    int          broken;        /* links to tear down */
    gci_link    *hot;           /* of a pair's own: not watched for reading, but polled; or NULL */
    /* links of a pair's own */
    int          owns, max_owns;        /* max_owns 0: any number */
    bool         direct, full;          /* may be asked for at all; control has been told to take no more */
    uint8_t     *unreachable;   /* [hosts] no rank there could be connected; or NULL */
    /* the backbone */
    gci_link    *hops;          /* links to neighbours, also those whose connection is still to come */
    int          hop_count;
    void        *spare;         /* buffers of GCI_ROUTED_MAX bytes, a list through their first word ... */
    int          buffers;       /* ... and how many there are, used ones too: at most three a hop */
    gci_link    *due;           /* links with something new to be sent */
    gci_link    *ended;         /* links over which a long packet has ended since this rank last turned away */
    /* routes and epochs */
    gci_graph    graph;         /* with what has gone down since; no nodes: there is none */
    gci_numbering first, fresh; /* of the whole graph; of what is left, if that does not hold any more */
    const gci_numbering *numbering;     /* the one in use */
    gci_routes   routes;
    enum gci_routing routing;
    bool         grown;         /* links were added to the backbone, and there was no memory for them yet */
    bool         stale, given;  /* routes are to be made anew; a test has brought them */
    uint16_t     epoch, restarted;      /* now; in which a restart was asked for last ... */
    bool         restarts, owes_restart;        /* ... if ever; it still has to be */
    int64_t      restart_at, doubt_at;  /* not before; when a lost connection still in the way wants one. 0: none */
    int64_t      peer_timeout;
    gci_hunger   unprepared, asks;      /* for memory: for the graph; for asking control */
    bool         asks_starve;   /* for too long */
    /* errands: what the driver does next, once the stack is unwound */
    bool         errands;
    bool         wants;         /* peers without a way that something is for */
    bool         fallen;        /* ways that have ended, which above has not been told */
    bool         again;         /* links may be read on */
    bool         unasked;       /* links without memory to ask for them */
    bool         inside;        /* the driver is at work: no need to wake it */
    bool         started;       /* links can be asked for; before, news wait */
    int64_t      alarm;         /* when the clock brings one of these */
    int64_t      listened_at, listen_at, listen_all_at; /* for the silence of links that spoke; at the latest of all */
    int64_t      compare_at;            /* for the silence of links beside others of their pair */
    gci_inbox    inbox;
    /* drive.c: who waits, and how */
    enum gci_progress progress;
    bool         driving;       /* a thread of the user's does ... */
    bool         asleep;        /* ... and is in the poller */
    int          waiters;       /* threads of the user's that wait for it */
    unsigned     round, calls;
    int64_t      next_tick;
    int          penalty, skip; /* waits that sleep after a wait that polling did not end; still to come */
    int          outer, bell, timer;    /* for a user who waits at a poller of his own; or -1 */
    bool         rung;          /* the bell, and nobody has looked yet */
    gci_thread  *thread;        /* the I/O thread, or NULL */
    bool         threaded, thread_asleep, thread_rests, thread_parked, thread_called, thread_ends;
    int64_t      thread_until;  /* when it comes out of the poller by itself */
};

/* For descriptions: the backbone of the whole job; links that are down have no costs. No nodes: there is none. */
static inline const gci_graph *gci_overlay_graph(const gci_overlay *o) { return &o->graph; }

GCI int  gci_links_open(gci_overlay **, gci_env *, gci_monitor *, int rank, int ranks, const gc_options *, const gci_upcalls *,
                        void *user, gc_stats *);
GCI void gci_links_close(gci_overlay *);
GCI void gci_links_news(gci_overlay *, const gci_news *);   /* into the inbox. Any thread */
GCI bool gci_links_has_work(gci_overlay *);                  /* that no socket tells of */
GCI bool gci_links_round(gci_overlay *, int hint, bool all);    /* one without waiting; true: something moved */
GCI bool gci_links_look(gci_overlay *, int64_t timeout);    /* at the poller; leaves the monitor while it sleeps there */
GCI int64_t gci_links_tick(gci_overlay *, int64_t now);     /* does what is due, also above; when to call again */
GCI void gci_links_paid(gci_overlay *, int hint);           /* polling that peer's socket has ended a wait */
GCI void gci_links_cool(gci_overlay *);                     /* no link is hot */

/* ---- drive.c: who runs the I/O loop --------------------------------------------------------------------------------- */

/* All of these inside the world's monitor. Drives the I/O, or waits for the thread that does, until done(arg) or the
 * deadline (GCI_FOREVER: none). *hint: the peer that is waited for at the moment, whose socket is polled first; < 0: none. */
GCI void gci_overlay_wait(gci_overlay *, bool (*done)(void *arg), void *arg, const int *hint, int64_t deadline);
GCI bool gci_overlay_poll(gci_overlay *, int hint);                 /* one round without waiting; true: something moved */
GCI void gci_overlay_wake(gci_overlay *);                           /* a request has ended: whoever waits looks again */
GCI void gci_overlay_ring(gci_overlay *);                           /* ... in a poller of its own */
static inline void gci_overlay_tick_soon(gci_overlay *o) { o->next_tick = 0; }      /* what this thread waits for is timed */
/* A poller, readable when gci_overlay_poll has work; or GC_ERR_SYSTEM. */
GCI int  gci_overlay_fd(gci_overlay *);

/* ---- comm.c: communicators and the world they live in ---------------------------------------------------------------- */

typedef struct gci_world gci_world;
typedef struct gci_p2p gci_p2p;
/* Contexts: a communicator owns one per kind of traffic, told apart by what is left when they are divided by the number of kinds. */
enum gci_context_kind { GCI_CONTEXT_P2P, GCI_CONTEXT_COLL, GCI_CONTEXT_CREATE, GCI_CONTEXT_MEASURE, GCI_CONTEXT_SHRINK,
                        GCI_CONTEXT_KINDS };

struct gci_coll_state;          /* coll.c: schedules and running collectives of one communicator */

struct gc_comm {
    gci_world *world;
    gc_comm   *next;            /* in world->comms */
    uint32_t   context;         /* of GCI_CONTEXT_P2P; + kind for the others */
    int        rank, size;
    int       *ranks;           /* world rank of each; NULL: the identity */
    int       *sorted;          /* comm ranks in order of world rank; NULL: the identity */
    int        requests;        /* not yet freed by the user */
    int        dead;            /* members known dead or gone */
    int        first_dead;      /* comm rank of the first of them, or -1 */
    uint32_t   shrinks;         /* that are over: the number of the present or next one */
    struct gci_coll_state *coll;
    gc_status  last;            /* of the last failed operation ... */
    int        last_code;
    char       last_text[GCI_TEXT];     /* ... and its text */
};

struct gci_world {
    gci_env      env;
    gci_monitor *monitor;       /* guards all below but what control owns */
    gc_options   options;       /* resolved: every field has its value; strings are this world's */
    gc_comm     *self;          /* the world communicator */
    gc_comm     *comms;         /* all of them, self too */
    uint32_t     contexts;      /* drawn by this rank so far */
    int          rank, ranks;
    char         own_host[GCI_HOST_ID_BYTES], own_cluster[GCI_CLUSTER_MAX];
    gci_pmi      pmi;           /* as of the place */
    const gci_table *table;     /* NULL in a world of one */
    gci_control *control;       /* NULL in a world of one */
    gci_overlay *overlay;
    gci_p2p     *p2p;
    gc_request  *spare_requests;
    uint8_t     *dead;          /* [ranks] enum gci_fate */
    int          aborted, abort_origin, abort_code;     /* aborted: 0 or 1; by which rank, with what */
    bool         ending;        /* this rank is in the last barrier, or was ... */
    bool         through;       /* ... and so have all others been, as one says that has left */
    struct gci_stall *stall;    /* stall.c; NULL: nobody wants to know of calls that wait */
    struct gci_caller *callers; /* else: those that do */
    bool         stall_idle;    /* and none has for so long that no look is due */
    int64_t    (*stall_look)(gci_world *, int64_t now);     /* what stall.c does when the clock is looked at; when again */
    void       (*stall_over)(gci_world *, struct gci_caller *);     /* and when such a call ends that it has told of */
    gci_user_op *ops;  int op_count;
    atomic_bool  applies;       /* one of them runs, inside the monitor */
    gc_stats     stats;
};

/* Is this a message of a shrink that is over? */
static inline bool gci_comm_past(const gc_comm *comm, uint32_t context, uint32_t tag)
{
    return context - comm->context == GCI_CONTEXT_SHRINK && (int32_t)(tag - comm->shrinks) < 0;
}

/* Notes the error, returns code. Outside the monitor. */
GCI int gci_fail(gc_comm *, int code, int fault_rank, const char *format, ...) __attribute__((format(printf, 4, 5)));
GCI int gci_world_rank(const gc_comm *, int rank);
GCI int gci_comm_rank(const gc_comm *, int world_rank);          /* -1: not a member */
GCI int gci_comm_gone(const gc_comm *, int rank);                /* or GC_ANY_SOURCE: GC_OK, or why nothing comes from there */

static inline void gci_enter(gci_world *w) { w->env.sys->enter(w->env.sys, w->monitor); }
static inline void gci_leave(gci_world *w) { w->env.sys->leave(w->env.sys, w->monitor); }

/* ---- request.c: requests ---------------------------------------------------------------------------------------------- */

enum gci_request_kind { GCI_REQUEST_SEND, GCI_REQUEST_RECV, GCI_REQUEST_COLL };

struct gc_request {
    enum gci_request_kind kind;
    uint8_t   stage;            /* p2p.c: where it stands */
    bool      done, owned;      /* owned: the user holds it, gc_wait frees it; else done_fn is told and it is freed */
    bool      any_tag, sync;
    bool      early;            /* a receive whose early grant is still to be told; a send that no early grant starts any more */
    bool      streams;          /* a send granted early: its chunks stay behind its envelope */
    bool      scattered;        /* a send: some of its chunks went where its envelope did not */
    bool      withdrawn;        /* an open send that the user would have back, and nobody has answered */
    bool      asks;             /* a collective's receive, which is counted (gci_p2p.asking) */
    gc_comm  *comm;
    gc_status status;           /* valid when done */
    void    (*done_fn)(gc_request *);       /* inside the monitor; may post further messages */
    void     *user;
    char     *text;             /* why it failed, or NULL */
    /* messages */
    uint32_t  context, tag, signature, seq;
    uint32_t  nth;              /* of a collective's messages between the two ranks in this direction */
    int       peer;             /* world rank; GC_ANY_SOURCE; of a collective: that it waits for, or -1 */
    void     *buf;
    size_t    bytes;            /* of buf */
    size_t    moved, limit;     /* a granted send: the next byte to go, and where to stop */
    int       in_flight;        /* its chunks that wait in a link */
    int       asked;            /* a collective's receive: so often it has asked whether anything comes, ... */
    int64_t   ask_at;           /* ... and not again before; 0: that is not said yet */
    gc_message *message;        /* a receive: what it has been matched with */
    gc_request *next, **prev;   /* in the queue where it stands */
};

GCI gc_request *gci_request_new(gc_comm *, enum gci_request_kind);  /* NULL: out of memory */
GCI void gci_request_free(gc_request *);
GCI void gci_request_done(gc_request *, int error);         /* sets status.error, tells who waits */
GCI void gci_request_fail(gc_request *, int error, int fault_world_rank, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
GCI int  gci_request_wait(gc_request **, int64_t timeout, gc_status *);     /* outside the monitor; an owned one. gc_wait_for */
GCI int  gci_request_wait_inside(gc_request **, int64_t deadline, gc_status *);     /* the same inside the monitor */

/* A call that waits, as the report of stalls sees it: for these requests of one world, or as `call` says. */
typedef struct gci_caller {
    struct gci_caller *next;
    gc_request **request;  int requests;        /* NULLs among them are over */
    const char *call;                           /* NULL: for requests */
    gc_comm    *comm;  int source, tag;         /* of a probe; comm NULL: it is none */
    /* stall.c */
    uint64_t    mark;                           /* of all that may move, at the last look */
    int64_t     since, report_at;               /* when it was first seen to wait, or seen to have moved; when to report */
    bool        looked, told, reported;         /* at; the others know; the user does */
} gci_caller;

/* gci_overlay_wait for a call of the user's. */
GCI void gci_world_wait(gci_world *, gci_caller *, bool (*done)(void *arg), void *arg, const int *hint, int64_t deadline);

/* ---- match.c: posted receives and unexpected messages ------------------------------------------------------------- */

typedef struct gci_match gci_match;

/* An envelope received that still needs something: a receive, the rest of its bytes, a FIN to be sent. */
struct gc_message {
    gc_message *next, **prev;           /* unexpected, in its match */
    gc_message *open_next, **open_prev; /* in its pair */
    gci_match  *match;                  /* NULL: of a communicator that was freed here */
    int         source;                 /* world rank */
    gci_packet  packet;                 /* the envelope */
    uint8_t    *payload;                /* of one not matched when it came */
    gc_request *recv;
    gc_request *local;                  /* a send to oneself that waits for its receive */
    size_t      got;                    /* bytes in place, from the front */
    struct gci_spans *ahead;            /* what is in place beyond them, or NULL */
    size_t      granted;                /* the end of the latest grant; 0: none */
    uint8_t     owe;                    /* GCI_OWE_* */
    bool        come;                   /* the envelope is complete */
    bool        held;                   /* it uses a credit */
    bool        queued;                 /* it is among the unexpected */
    bool        dropped;                /* nobody wants it any more */
    bool        taken;                  /* the user holds it (gc_mprobe) */
    int         lost;                   /* taken, and the rest of it will not come: why */
};

/* One context. */
struct gci_match {
    gci_match  *next;
    uint32_t    context;
    gc_comm    *comm;                   /* NULL: not created here yet */
    gc_request *posted, **posted_end;
    gc_message *unexpected, **unexpected_end;
};

enum { GCI_MATCH_BUCKETS = 64 };
GCI gci_match *gci_match_get(gci_env *, gci_match *buckets[GCI_MATCH_BUCKETS], uint32_t context);       /* NULL: memory */
GCI gci_match *gci_match_find(gci_match *const buckets[GCI_MATCH_BUCKETS], uint32_t context);      /* NULL: none */
GCI void gci_match_end(gci_env *, gci_match *buckets[GCI_MATCH_BUCKETS], gci_match *);  /* an empty one */
GCI void gci_match_post(gci_match *, gc_request *);
GCI void gci_match_withdraw(gci_match *, gc_request *);
GCI gc_request *gci_match_posted(gci_match *, int source, uint32_t tag);            /* the first that fits, withdrawn; or NULL */
GCI gc_message *gci_match_come(const gci_match *, const gc_request *want);          /* the first that fits, or NULL */
GCI void gci_match_keep(gci_match *, gc_message *);
GCI void gci_match_forget(gc_message *);
GCI bool gci_match_wanted(gci_match *const buckets[GCI_MATCH_BUCKETS], int source); /* does any receive wait for it? */
GCI void gci_queue_append(gc_request *, gc_request ***end);                         /* queues of requests, anywhere */
GCI void gci_queue_insert(gc_request *, gc_request **at, gc_request ***end);        /* before *at */
GCI void gci_queue_remove(gc_request *, gc_request ***end);

/* ---- p2p.c: pairs, eager and rendezvous, credits ------------------------------------------------------------------ */

/* gci_world.dead. STARVED: this rank, and so all others for it: it has no memory to go on. */
enum gci_fate { GCI_ALIVE, GCI_GONE_DEAD, GCI_GONE_LEFT, GCI_GONE_UNREACHABLE, GCI_GONE_STARVED };
enum { GCI_STAGE_QUEUED, GCI_STAGE_SENT, GCI_STAGE_GRANTED, GCI_STAGE_FINISHED };   /* gc_request.stage of a send */
enum { GCI_OWE_GRANT = 1, GCI_OWE_FIN = 2 };

/* An envelope sent and not acknowledged. */
typedef struct gci_sent {
    struct gci_sent *next;
    gci_packet  packet;
    const void *payload;        /* NULL: no longer at hand */
    gc_request *request;        /* completes when the socket has it all; on a route when it is acknowledged */
    gc_request *rest;           /* a send of the library's own: brings what this does no longer carry, and frees it in the end */
    bool        written;        /* the socket has it all */
    bool        withdrawn;      /* its sender has given it up */
    bool        acknowledged;   /* and rest goes on */
} gci_sent;

enum { GCI_EARLY_KEPT = 32,             /* early grants remembered; what is forgotten costs a round trip, no more */
       GCI_CORK_MAX = 32 };             /* peers for which something may wait that is posted, before it is flushed */

/* A grant for a send that has not begun: that message of a collective, so many bytes; 0: free. */
typedef struct gci_early { uint32_t context, tag, nth; size_t limit; } gci_early;

/* What this rank shares with one peer. */
typedef struct gci_pair {
    int         peer;
    bool        keep;                   /* payloads are copied: the peer is on another host */
    bool        far_away;               /* at another site */
    bool        up, heard;              /* a way; and its RESUME has come */
    bool        routed;                 /* the way is a route over relays */
    bool        strands;                /* chunks have come over strands */
    bool        owe_resume, owe_state;
    bool        farewell, farewell_sent, bye;   /* the last packet is to be sent, was; the peer's has come */
    /* sending */
    gc_request *queue, **queue_end;     /* not begun */
    gc_request *open, **open_end;       /* begun, a grant or FIN is to come */
    gci_sent   *sent, **sent_end;       /* not acknowledged */
    gci_sent  **again;                  /* sent again from here on; NULL: nothing */
    size_t      sent_bytes;             /* payload in `sent` */
    uint32_t    next_seq, acked;
    uint32_t    credit, window;         /* beyond acked: envelopes, bytes */
    bool        starved, starved_told;
    bool        owe_known;              /* the answer to a window that was made smaller */
    uint32_t    less_heard;             /* how often it was */
    bool        reask;                  /* open sends ask again for their answer, from reask_seq on */
    uint32_t    reask_seq;
    gc_request *withdrawing;            /* the open send that is asked back, one at a time; NULL: none */
    bool        owe_withdrawal;         /* it, or perhaps another one, is to be asked back */
    /* receiving */
    uint32_t    expect;                 /* number of the next envelope */
    gc_message *incoming;               /* begun but not complete */
    gc_request *asker;                  /* while it is chosen who asks this peer: who has waited longest */
    gc_message *messages;               /* open ones */
    bool        gave_back;              /* the envelope gave_back_seq, as the last one: so its FIN says, however often */
    uint32_t    gave_back_seq;
    int         owing;                  /* how many of them owe */
    uint32_t    held, lent;             /* envelopes: not yet consumed; lent beyond the rule */
    size_t      held_bytes, room;       /* payload: not yet consumed; what the peer may fill */
    size_t      share;                  /* what it is to have: less than room until it knows, or has been read out of it */
    bool        used, idle;             /* payload has come since windows were last looked at; had not, and not since */
    bool        wants;                  /* it starved when the pool was empty, and has less than others */
    bool        recalled, owe_recall;   /* it has been told that its window is smaller, and has not answered; is to be told */
    uint32_t    recalls;                /* how often */
    uint64_t    taken_bytes;
    uint32_t    told_limit;
    uint64_t    told_bytes;
    unsigned    untold;                 /* enough has come back to be told if the peer is quiet at so many looks more */
    bool        peer_starved;
    bool        owe_ask, owe_early;     /* an ask; perhaps an early grant of some posted receive */
    bool        owe_over;               /* an answer to an ask */
    bool        corked;                 /* stands in gci_p2p.behind */
    gci_packet  ask, over;
    gci_early   early[GCI_EARLY_KEPT];
    uint32_t    early_next;
} gci_pair;

typedef struct gci_p2p_upcalls {    /* what p2p calls above it, inside the monitor */
    /* A collective message, or an ASK about one, has come. true: it is stale or wrong, drop it. */
    bool (*signature)(gc_comm *, int source_world_rank, uint32_t seq, uint32_t signature);
    /* Every running collective of this communicator ends with code: a member is gone, or the world was aborted. */
    void (*fail)(gc_comm *, int code, int fault_world_rank, const char *why);
    void (*notice)(gci_world *, const gci_notice *);    /* any but an abort */
    /* Has this rank handed over all that it sends to dest in that collective, now and later? */
    bool (*over)(gc_comm *, int dest_world_rank, uint32_t seq, uint32_t signature);
} gci_p2p_upcalls;

struct gci_p2p {
    gci_world  *world;
    gci_env    *env;
    gci_p2p_upcalls up;
    gci_pair  **pair;                   /* [ranks], made at first use */
    gci_match  *match[GCI_MATCH_BUCKETS], *last_match;
    gci_sent   *spare_sent;
    gc_message *spare_messages;
    uint32_t    credits;
    size_t      room_first, room_left;  /* bytes: lent to a new peer; not yet lent on demand, ... */
    size_t      room_all;               /* ... at first */
    size_t      room_even;              /* what each had if those in use were alike, when the pool was last short */
    int64_t     look_at;                /* not before: which of them are idle */
    bool        may_recall;             /* something of them may come back */
    int         starving, probes;       /* peers that are; probes that wait */
    int         asking;                 /* receives of collectives */
    bool        untold;                 /* some peer is to be looked at whether it is quiet, ... */
    int64_t     quiet_at;               /* ... not before */
    bool        short_of_memory;        /* some envelope waits for memory to go again */
    int64_t     memory_at;
    int64_t     ask_at;                 /* when to look which of them ask */
    bool        ask_soon, ask_far;      /* one was posted since; that is later than one just posted needs */
    uint32_t   *closed;                 /* contexts of communicators freed here, ascending: what comes late is dropped */
    size_t      closed_count, closed_room;
    bool        leaving;                /* in gci_p2p_farewell */
    bool        corked;                 /* what is posted waits for gci_flush: */
    int         behind[GCI_CORK_MAX], behind_count;     /* for these peers */
};

/* What the overlay calls (gci_upcalls). */
GCI bool gci_packet_next(void *world, int dest, unsigned want, size_t most, gci_packet *, const void **payload, void **token);
GCI void gci_packet_sent(void *world, int dest, enum gci_packet_type, void *token);
GCI int  gci_packet_begin(void *world, int peer, const gci_packet *, void **sink, size_t *sink_bytes, void **token);
GCI int  gci_strand_begin(void *world, int peer, const gci_packet *, void **sink, size_t *sink_bytes, void **token);
GCI size_t gci_strand_left(void *world, int peer, unsigned want);
/* For peers.c. */
GCI bool gci_packet_end(gci_p2p *, gci_pair *, const gci_packet *, void *token);    /* false: what a lost way had is lost */
GCI void gci_send_close(gci_pair *, gc_request *);                      /* if it is over */
GCI void gci_sent_free(gci_p2p *, gci_sent *);
GCI void gci_own_sends_end(gci_p2p *, gci_pair *);                      /* those of the library */
GCI void gci_message_link(gci_pair *, gc_message *);                    /* among the open ones, which end with the pair */
GCI void gci_message_unlink(gc_message *);
/* For post.c, inside the monitor. */
GCI gci_match  *gci_match_of(gci_p2p *, uint32_t context);              /* NULL: out of memory */
GCI void gci_context_close(gci_p2p *, uint32_t context);                /* its communicator is freed */
GCI bool gci_context_is_closed(const gci_p2p *, uint32_t context);
GCI gci_pair   *gci_pair_of(gci_p2p *, int peer);                       /* NULL: out of memory */
GCI gc_message *gci_message_new(gci_p2p *);
GCI void gci_message_free(gci_p2p *, gc_message *);
GCI bool gci_message_suffices(const gc_message *, size_t bytes);        /* all is here that a receive of so many bytes takes */
GCI void gci_message_take(gci_p2p *, gc_message *, gc_request *);       /* a receive takes a message that came before it */
GCI void gci_message_disown(gci_p2p *, gc_message *);                   /* its receive does not want it any more */
GCI void gci_message_settle(gci_p2p *, gc_message *);                   /* matched or dropped, and complete: what next? */
GCI void gci_message_drop(gci_p2p *, gc_message *);                     /* an unexpected one that nobody will take */
GCI void gci_payload_consumed(gci_p2p *, gc_message *);                 /* its room is free again */
GCI gc_request *gci_open_send(const gci_pair *, uint32_t seq);
GCI void gci_send_ask_back(gci_p2p *, gci_pair *, gc_request *);        /* an open one: its receiver decides */
GCI void gci_owe(gci_p2p *, gc_message *, uint8_t what);
GCI void gci_push(gci_p2p *, gci_pair *);                               /* there is something for the peer */
GCI bool gci_cork(gci_p2p *);           /* pushes wait for gci_flush, for some peers; returns what gci_uncork is to be given */
GCI bool gci_flush(gci_p2p *);          /* false: there was nothing */
GCI void gci_uncork(gci_p2p *, bool was);
GCI void gci_recall(gci_p2p *, gci_pair *, size_t keep);                /* of its window, what is more comes back */
GCI void gci_lend_all(gci_p2p *);                                       /* somebody waits for a message that has not come */

/* ---- peers.c: peers that come and go --------------------------------------------------------------------------------- */

GCI int  gci_p2p_open(gci_world *, const gci_p2p_upcalls *);     /* opens the overlay below it, world->overlay */
GCI void gci_p2p_close(gci_world *);
/* A verdict of this rank alone, on a peer that may live, or on itself (GC_ERR_NOMEM): all are told. Not from inside of a callback. */
GCI void gci_give_up(gci_p2p *, int peer, int code, const char *why);
GCI void gci_ask_soon(gci_p2p *);       /* a receive of a collective begins to wait, or failed by what its peer said */
GCI void gci_p2p_farewell(gci_world *, int64_t deadline);   /* every rank leaves: what is under way arrives, ways end in peace */

/* ---- post.c: starting messages --------------------------------------------------------------------------------------- */

/* What a message carries beside its bytes. */
typedef struct gci_post {
    enum gci_context_kind kind;
    uint32_t tag, signature;    /* signature: 0 outside collectives */
    uint32_t nth;               /* of the messages that this collective sends the same way */
    bool     any_tag, sync;
    bool     orphan;            /* may outlive the communicator: becomes the world's own */
    void   (*done_fn)(gc_request *);    void *user;     /* NULL: the user holds the request */
} gci_post;

/* All of these inside the world's monitor. dest, source: ranks in the communicator. A post that fails at once (memory, a
 * dead peer) returns the error, leaves *request NULL and calls nobody; otherwise done_fn may be called before it returns. */
GCI int  gci_send_post(gc_comm *, const void *buf, size_t bytes, int dest, const gci_post *, gc_request **);
GCI int  gci_recv_post(gc_comm *, void *buf, size_t bytes, int source, const gci_post *, gc_request **);
GCI void gci_request_drop(gc_request *);        /* an unowned message ends without a word: done_fn is not called */
GCI int  gci_post_failed(gc_comm *, int error, int peer);       /* outside the monitor: says why; returns error */
GCI bool gci_send_is_queued(const gc_request *);        /* not a byte of it has left */
GCI bool gci_recv_withdraw(gc_request *);       /* a receive that nothing has matched ends with GC_ERR_CANCELLED, ... */
GCI void gci_send_withdraw(gc_request *);       /* ... and so does a send, now or when its receiver has given it back */
GCI gc_message *gci_unexpected_find(gc_comm *, int source, int tag, gc_status *);   /* the first that a receive would take */
GCI void gci_unexpected_take(gc_message *);     /* out of the queue: only gci_message_recv gets it now */
GCI void gci_probing(gci_world *, int more);     /* so many more calls wait for any message */
GCI int  gci_message_recv(gc_message *, void *buf, size_t bytes, const gci_post *, gc_request **);
GCI gc_comm *gci_message_comm(const gc_message *);
/* A signature: the operation; whether it bears more than what all ranks must give alike, which then only its receive can judge;
 * and a hash. */
enum { GCI_SIGNED_COLL = 28, GCI_SIGNED_SIZES = 1 << 27 };
static inline bool gci_signature_fits(uint32_t theirs, uint32_t mine)
{
    return theirs == mine || (mine != 0 && theirs & GCI_SIGNED_SIZES && theirs >> GCI_SIGNED_COLL == mine >> GCI_SIGNED_COLL);
}

/* 1: a collective message with sequence number seq has come whose signature does not fit mine; 0: that of any. */
GCI int  gci_unexpected_signature(gc_comm *, uint32_t seq, uint32_t mine, uint32_t *theirs, int *source_world_rank);
GCI void gci_unexpected_past(gc_comm *);        /* drops what has come for shrinks that are over */
GCI void gci_unexpected_drop(gc_comm *, uint32_t kind);     /* what has come and no receive has yet, of one of its contexts */
GCI void gci_match_drop(gci_p2p *, gci_match *);        /* a context ends: nobody will take what came for it, or is on its way */
GCI void gci_comm_drop_messages(gc_comm *);     /* a communicator ends: nobody will take what has come for it */

/* ---- shrink.c: the survivors of a communicator agree who they are ----------------------------------------------------- */

/* Outside the monitor; blocks. *context: drawn by this rank, then that of the survivors. out[comm->size]: who is none of them.
 * GC_OK, or what gci_fail has noted; GC_ERR_NOMEM: nothing has happened. */
GCI int  gci_shrink(gc_comm *, uint32_t *context, uint8_t out[]);

/* ---- coll.c ---------------------------------------------------------------------------------------------------------- */

GCI int  gci_coll_open(gc_comm *);                               /* for a new communicator */
GCI void gci_coll_close(gc_comm *);
/* A member of comm is gone, or the world aborted: every running collective of comm ends with code. Inside the monitor. */
GCI void gci_coll_fail(gc_comm *, int code, int fault_world_rank, const char *why);
GCI void gci_coll_notice(gci_world *, const gci_notice *);       /* GCI_NOTICE_MISMATCH came. Inside the monitor */
GCI bool gci_coll_signature(gc_comm *, int source_world_rank, uint32_t seq, uint32_t signature);   /* true: drop the message */
GCI bool gci_coll_is_over(gc_comm *, int dest_world_rank, uint32_t seq, uint32_t signature);       /* gci_p2p_upcalls */
GCI const char *gci_coll_signed(uint32_t signature);             /* the name of its operation */
/* A collective under way, for who looks on inside the monitor. */
typedef struct gci_coll_view {
    const void     *run;
    uint32_t        seq, signature;
    const gci_call *call;
    const gci_algo_choice *choice;
    bool            asks;           /* for sizes; its own schedule comes next */
    int32_t         steps, left;    /* of its schedule; not ended */
} gci_coll_view;
GCI bool gci_coll_view_of(const gc_request *, gci_coll_view *);     /* false: it has ended */
/* The message of the next step behind *step (at first -1) that is posted and has not ended; NULL: there is no more. */
GCI const gc_request *gci_coll_next_wait(const gci_coll_view *, int32_t *step);

/* What a call says, beside what shapes its schedule. */
typedef struct gci_coll_args {
    gci_call    call;           /* arrays and tree are copied where they are kept */
    const void *send;
    void       *recv;
    gc_type     type;
    gc_op       op;
    gci_user_op user;           /* fn NULL: op is predefined */
    int         error;          /* why this rank cannot take part: the collective fails with it everywhere; GC_OK */
} gci_coll_args;
/* The barrier of the end, blocking. Who is through does not wait for ever for one that is not; who leaves so tells the others
 * that it was (life.c), and that ends the barrier for them, too. */
GCI int  gci_coll_last_barrier(gc_comm *);
/* gc_allgather of equal blocks, in which who has an error takes part too, without buffers: then it fails for all. calls.c */
GCI int  gci_allgather_unless(gc_comm *, int error, const void *send, size_t bytes, void *recv);
GCI int  gci_coll_describe(gc_comm *, gci_text *);      /* which algorithm it takes for what; GC_ERR_NOMEM */
GCI const gci_clusters *gci_coll_clusters(gc_comm *);   /* of its ranks, for as long as it lives; NULL: out of memory */
/* The error with which some rank has begun the next collective already, so that it fails everywhere. Inside the monitor. */
GCI int  gci_coll_foreseen(const gc_comm *);
/* GC_OK and a request, or what gci_fail has noted. Outside the monitor. */
GCI int  gci_coll_start(gc_comm *, const gci_coll_args *, gc_request **);
GCI void gci_coll_apply(const gci_coll_args *, const void *in, void *inout, size_t bytes);    /* inout = in (op) inout */

/* What gci_env.seen is told of every collective that runs here, as it happens, inside the monitor. */
enum gci_seen_what { GCI_SEEN_START,    /* it has its schedule */
                     GCI_SEEN_STEP,     /* step n is posted, or carried out */
                     GCI_SEEN_DONE,     /* the message of step n is over */
                     GCI_SEEN_END };    /* all of it; n: GC_OK or why it failed */
typedef struct gci_seen {
    enum gci_seen_what      what;
    const gc_comm          *comm;
    uint32_t                seq, signature;
    bool                    asks;           /* for the sizes of the call that follows under the same number */
    const gci_coll_args    *args;           /* as called */
    const gci_algo_choice  *choice, *used;  /* these differ if what was chosen does not fit */
    const gci_sched        *sched;          /* that it runs: of this call, or from the cache */
    int32_t                 n;
    const void             *to, *from;      /* STEP: what it really reads and writes; of a message both are its buffer */
} gci_seen;

/* A model whose table holds for its calls from now on, and becomes its own. NULL: none. Outside the monitor. */
GCI void gci_coll_decide_by(gc_comm *, gc_model *);
GCI const gc_model *gci_coll_model(const gc_comm *);
/* As GRIDCOMM_ALGO, from now on: for gcbench. */
GCI void gci_coll_force(gc_comm *, const gci_algo_choice forced[GCI_COLLS]);
GCI gci_algo_choice gci_coll_would_take(const gc_comm *, const gci_call *);     /* if it can */

/* ---- modeluse.c: a communicator chooses by a model ------------------------------------------------------------------- */

GCI int  gci_model_adopt(gc_comm *, const gc_model *);           /* gc_model_use */
/* For measure.c, too. Collective: all take part, whatever has failed before; what they return is noted as the call's. */
GCI int  gci_agree(gc_comm *, const char *call, int error);      /* the worst of all ranks' errors, or that of the collective */
/* Rank 0's text to all: theirs is allocated, everybody frees it. error: this rank's so far; if any has one, none gets the text.
 * What is returned may be this rank's alone: gci_agree comes next. */
GCI int  gci_share_text(gc_comm *, const char *call, int error, char **text, size_t *bytes);

/* ---- describe.c: words of descriptions -------------------------------------------------------------------------------- */

GCI void gci_describe_rank(gci_text *, const gci_world *, int rank);        /* "rank 3 on wolf (a/rack1)" */
GCI void gci_describe_path(gci_text *, const int32_t path[], int hops);     /* "3 hops over 4, 9" */
GCI void gci_describe_message(gci_text *, const gc_request *);              /* "receive of bcast 12", "send, tag 5" */
/* What its message waits for; the pair may be NULL for a receive. */
GCI void gci_describe_stage(gci_text *, const gci_pair *, const gc_request *);

/* ---- stall.c: who waits for whom, told when nothing moves --------------------------------------------------------------- */

typedef struct gci_stall gci_stall;
GCI int  gci_stall_open(gci_world *);                            /* GRIDCOMM_STALL; GC_ERR_NOMEM */
GCI void gci_stall_close(gci_world *);
GCI void gci_stall_notice(gci_world *, const gci_notice *);      /* any but an abort; those that are not its own go to coll.c */

/* ---- gridcomm.c: the life of a world ------------------------------------------------------------------------------------ */

GCI int gci_open(gc_comm **, const gc_options *, gci_sys *);    /* gc_init on a given system */

#endif
