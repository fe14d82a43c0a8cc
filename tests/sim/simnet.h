/* simnet.h: a simulated network of hosts and processes behind gridcomm's table of system functions.
 * SPDX-License-Identifier: MIT
 *
 * A simulation is one OS thread. Every process and every library thread is a context with its own stack; the contexts
 * take turns, and time is a number that jumps from event to event. All chance comes from one 64-bit seed, so a run can
 * be had again, event by event: sim_trace_hash() is equal for equal seeds.
 *
 *     sim *s = sim_new(seed);
 *     sim_site *a = sim_site_new(s, "a", 50000), *b = sim_site_new(s, "b", 50000);
 *     sim_host *h = sim_host_new(a, "a1", "10.0.1.1/24", 125000000), *g = sim_host_new(b, "b1", "10.0.2.1/24", 125000000);
 *     sim_wan(a, b, 10000000, 1000000);
 *     sim_proc *p = sim_spawn(h, "rank 0", main_0, arg), *q = sim_spawn(g, "rank 1", main_1, arg);
 *     sim_kill_proc_at(p, 3 * GCI_SECOND);
 *     int verdict = sim_run(s);
 *     sim_free(s);
 *
 * Inside main_0, sim_sys(p) is the table to hand to gci_open, sim_alloc and p are alloc and alloc_user of gc_options.
 * Times are ns, rates byte/s (0: infinite), latencies one way. Simulation objects live until sim_free; out of memory aborts.
 * A run in which nobody can go on ends as SIM_DEADLOCK, also one in which contexts merely look now and then whether they can.
 * Misuse of the table (a closed descriptor, a monitor left by one who is not inside) ends the run as SIM_MISUSE.
 */
#ifndef SIMNET_H
#define SIMNET_H

#include "gridcomm_int.h"

#include <stdio.h>

typedef struct sim sim;
typedef struct sim_site sim_site;
typedef struct sim_net sim_net;
typedef struct sim_host sim_host;
typedef struct sim_nic sim_nic;
typedef struct sim_proc sim_proc;

/* Bugs planted in the simulator itself, to see that the programs that check streams find them. */
enum sim_planted {
    SIM_PLANT_NONE, SIM_PLANT_SWAP, SIM_PLANT_LOSE_BYTE, SIM_PLANT_LOSE_SEGMENT, SIM_PLANT_DOUBLE, SIM_PLANT_FLIP_BIT,
    SIM_PLANT_OTHER_STREAM, SIM_PLANT_NO_WINDOW, SIM_PLANT_LEAKY_CUT, SIM_PLANT_FIN_EARLY, SIM_PLANT_FIN_LOST,
    SIM_PLANT_MUTE_DEATH, SIM_PLANT_NO_WAKE, SIM_PLANT_NO_LATENCY, SIM_PLANT_NO_RATE, SIM_PLANT_NO_NIC_SHARING,
    SIM_PLANT_GHOST_LISTENER, SIM_PLANT_NO_KEEPALIVE, SIM_PLANT_TWO_INSIDE, SIM_PLANT_WRITE_LOST,
    SIM_PLANT_NAT_TRANSPARENT, SIM_PLANT_NAT_BARE, SIM_PLANT_NAT_REMEMBERS, SIM_PLANT_NO_RULES, SIM_PLANT_ANSWERS_LEAK, SIM_PLANT_BLIND_AIM,
    SIM_PLANT_NO_BACKOFF, SIM_PLANT_CHILD_HANGS, SIM_PLANT_SOURCE_ROUTES, SIM_PLANT_NO_BINDING, SIM_PLANT_BOUND_HEARS_ALL,
    SIM_PLANT_ANSWERS_ON_ARRIVAL, SIM_PLANT_ANY_PREFIX, SIM_PLANT_LEAKY_NIC, SIM_PLANT_NIC_CUTS_HOST, SIM_PLANT_DOWN_IS_LISTED,
    SIM_PLANT_ONE_GATE, SIM_PLANT_SYN_UNSEEN, SIM_PLANTS
};

/* Knobs. All but stack_bytes and start_spread may be turned while the simulation runs. */
typedef struct sim_tuning {
    /* seeded faults, on from the start; sim_calm() clears them. "x_in": one in so many, 0 never */
    int     preempt_in;         /* a system call lets another context run first */
    int     short_in;           /* a send or recv moves only a random part */
    int     again_in;           /* a send, recv or accept that could do something says -EAGAIN */
    int     interrupt_in;       /* a wait that would sleep returns 0, an await wakes without cause */
    int64_t stall;              /* a preempted context is away for up to this long */
    int64_t jitter;             /* most extra delay of a segment; a stream is never reordered */
    int64_t start_spread;       /* processes start within this time */
    int64_t port_outlives;      /* what a killed process listens at is closed up to so long after its connections */
    bool    shuffle;            /* which of several runnable contexts is next, and the order of events in wait */
    /* the machine */
    int64_t call_cost;          /* of every system call: 0 */
    int64_t yield_cost;         /* 200 ns. Fruitless polls in a row cost twice the last, up to yield_max, but end when */
    int64_t yield_max;          /* something happens to the process: so spinning is exact, yet cheap to simulate */
    size_t  stack_bytes;        /* of a context */
    int     fd_limit;           /* of a process: then -EMFILE */
    /* TCP */
    size_t  send_buffer, recv_buffer;   /* 256 KiB ... */
    bool    autotune;           /* ... and grown to twice bandwidth x round trip, as a kernel does */
    int     wire_overhead;      /* bytes of headers per 1448 of payload: 0; 52 is real */
    int64_t segment_time;       /* a segment's time on the slowest link of its path, within 1448 B and 64 KiB */
    int64_t retransmit_time;    /* after a loss, beyond the round trip: 200 ms; doubled each time, up to 120 s */
    int64_t give_up;            /* unacknowledged for so long: ETIMEDOUT, 924 s. Tuned control sockets: their peer_timeout */
    int64_t connect_timeout;    /* 127 s */
    int     backlog;            /* of a listening socket */
    /* limits of one sim_run */
    int64_t time_limit;         /* virtual: 1 h */
    int64_t quiet_limit;        /* nothing but waits that time out and begin again for so long is a deadlock: 300 s */
    int     real_limit;         /* s: 120. Overrun by 5 s (a loop without system calls): aborts the program */
    FILE   *trace;              /* every event as text, or NULL. Environment SIM_TRACE=1: stderr */
    FILE   *report;             /* where dumps go: stderr; NULL: nowhere */
    enum sim_planted planted;
} sim_tuning;

/* ---- building ---- */
sim        *sim_new(uint64_t seed);
void        sim_free(sim *);
sim_tuning *sim_tune(sim *);
void        sim_calm(sim *);                    /* no seeded faults: exact times */

sim_site *sim_site_new(sim *, const char *name, int64_t lan_latency);
sim_host *sim_host_new(sim_site *, const char *name, const char *address_and_prefix, int64_t rate);   /* eth0 on the site's own network */
sim_net  *sim_net_new(sim *, const char *name, int64_t latency);                /* a further network (or the one of that name) */
sim_nic  *sim_nic_new(sim_host *, const char *name, sim_net *, const char *address_and_prefix, int64_t rate);
sim_nic  *sim_host_nic(sim_host *, int index);                                  /* 0: eth0 */
const char *sim_nic_name(const sim_nic *);
/* One more: "fd00::1/64"; or, of one that it has, other flags. flags: GCI_IF_DEPRECATED, GCI_IF_TEMPORARY. */
void      sim_nic_address(sim_nic *, const char *address_and_prefix, unsigned flags);
void      sim_nic_speed(sim_nic *, uint32_t mbit_per_s);                        /* what it says; else what its rate is */
void      sim_nic_point_to_point(sim_nic *);            /* with an address of /32 the peer is reached by sim_host_route only */

/* Routing is by destination, as Linux does it: the longest prefix among the networks of the host's NICs and the routes given here
 * (of equal ones the first), else the default route, which is by the first NIC on a network of a site. A route given here leads
 * to whom its NIC's network has, and to the router there, if it is a site's. nic NULL: there is no way. "0.0.0.0/0", "::/0":
 * instead of the default route of that family; of several the first, the others for who is bound to their NICs.
 *
 * The source address of a connection has no part in it. One that is bound to a NIC has the routes of that NIC alone (none:
 * -ENETUNREACH, where Linux takes what is IPv4 for on-link, and finds nobody; no such NIC: -ENODEV), and takes no answer that
 * comes in by another. The answers take the other host's own routes to the source address: by another NIC maybe, or, if that
 * address is its own too, or somebody else's there, nowhere. The way is found once, by the first SYN. */
void      sim_host_route(sim_host *, const char *prefix, sim_nic *);
void      sim_host_hide_routes(sim_host *, bool on);    /* route() says UNKNOWN */
void      sim_host_forbid_binding(sim_host *, bool on); /* -EPERM; and route() says UNKNOWN of bound sockets */
void      sim_host_forbid_unix(sim_host *, bool on);    /* it has no Unix sockets: -EAFNOSUPPORT */
void      sim_host_strict(sim_host *, bool on);         /* rp_filter 1: IPv4 that comes in where it would not go out is lost */
void      sim_host_gate(sim_host *, uint64_t gate);     /* what gate() says; else a number per site, 0 without a default route */
/* Both directions. latency is that of the whole path between hosts of two sites; each direction has its own rate. */
void      sim_wan(sim_site *, sim_site *, int64_t latency, int64_t rate);
void      sim_wan_one_way(sim_site *from, sim_site *to, int64_t latency, int64_t rate);
void      sim_wan_queue(sim_site *, sim_site *, size_t bytes);                  /* 64 KiB: senders are slowed down beyond it */
void      sim_uplink(sim_site *, int64_t rate);                                 /* all that leaves, and all that enters */
/* sites named a, b, ...; hosts a1, a2, ... with 10.1.0.1/16 ...; hosts in one array, site by site; free() it. */
sim_host **sim_grid(sim *, int sites, const int hosts_per_site[], int64_t lan_latency, int64_t lan_rate, int64_t wan_latency,
                    int64_t wan_rate);

enum sim_verdict { SIM_PASS, SIM_REFUSE, SIM_DROP };

/* A site's IPv4 addresses become private: what its hosts open comes from the NAT's address, replies find their way, nobody else
 * gets in; several such sites may use the same addresses. IPv6 passes as it is. A connection that is idle for longer than `idle`
 * (0: any time) is forgotten: its packets are dropped, or (unknown = SIM_REFUSE) answered with a RST. */
void sim_nat_new(sim_site *, const char *address, int64_t idle, enum sim_verdict unknown);
void sim_nat_forward(sim_site *, uint16_t port, sim_host *to, uint16_t to_port);    /* let in at the NAT's address */
void sim_nat_hairpin(sim_site *, bool on);              /* forwarded ports are there for the site's own hosts, too */
int  sim_nat_forget(sim_site *);                        /* all mappings, at once: how many connections that was */
sim_net *sim_site_net(sim_site *, const char *name, int64_t latency);       /* one more network behind the site's router */

/* Firewalls: what becomes of a SYN. The first rule that fits decides; none: it passes. Connections once made are let alone. */
typedef struct sim_rule {
    sim_site *from_site, *to_site;      /* NULL: any ... */
    sim_host *from_host, *to_host;
    bool      across;                   /* only what goes from one site into another */
    uint16_t  port_first, port_last;    /* 0, 0: any */
    enum sim_verdict verdict;
} sim_rule;
void sim_rule_add(sim *, const sim_rule *);
/* Asked after the rules, at the arrival of each SYN. */
void sim_firewall(sim *, enum sim_verdict (*)(void *user, sim_host *from, sim_host *to, uint16_t port), void *user);

/* Told of each SYN, those sent again too: from which host (a child's: the one it works through), by which NIC (NULL: loopback),
 * to which address and port. One to an address on the link that nobody answers for is told of once. Unix sockets need none. */
void sim_on_syn(sim *, void (*)(void *user, sim_host *from, sim_nic *, const gci_addr *to), void *user);

/* What becomes of the system call spawn: -ENOSYS without this. The hook looks at argv, and says from which host (such as the
 * one that sshd runs on) which address is connected to: then the child's input and output are that connection, as with
 * `ssh -W host:port`; when it fails the stream ends. Or it returns a negative errno. */
void sim_on_spawn(sim *, int (*)(void *user, sim_proc *by, char *const argv[], sim_host **from, gci_addr *to), void *user);

/* ---- processes ---- */
sim_proc *sim_spawn(sim_host *, const char *name, void (*run)(sim_proc *, void *arg), void *arg);
gci_sys  *sim_sys(sim_proc *);
int       sim_prelisten(sim_proc *, gci_addr *at);      /* before it runs: an inherited listening socket, for adopt */
void     *sim_alloc(void *proc, void *old, size_t bytes);       /* for gc_options.alloc; owned by the process */
void      sim_alloc_fail(sim_proc *, int64_t nth);      /* the nth allocation from now on fails, and all after it; < 0 that one only */
int64_t   sim_alloc_count(const sim_proc *);
sim_proc *sim_current(void);                            /* whose context runs; NULL: none */
const char *sim_proc_name(const sim_proc *);
sim_host *sim_proc_host(const sim_proc *);
const char *sim_host_name(const sim_host *);
const char *sim_host_site(const sim_host *);
/* As setrlimit: descriptors below `limit` alone can be had from now on, those above stay open. 0: as the tuning says; < 0: none
 * but what is open now, and none of those again that are closed. */
void      sim_fd_limit(sim_proc *, int limit);
int       sim_fd_next(const sim_proc *);                /* the lowest that is not open */
bool      sim_proc_killed(const sim_proc *);
bool      sim_proc_done(const sim_proc *);              /* its run() returned */
/* What was still held when run() returned. A killed process leaves nothing: its memory is reclaimed. */
typedef struct sim_leftovers { int blocks, fds, threads, monitors; size_t bytes; } sim_leftovers;
sim_leftovers sim_proc_leftovers(const sim_proc *);

/* ---- running ---- */
enum { SIM_OK = 0, SIM_DEADLOCK = 1, SIM_TIME_LIMIT, SIM_REAL_LIMIT, SIM_MISUSE };
int      sim_run(sim *);                                /* until every process has ended; else dumps who waits for what */
int64_t  sim_now(const sim *);
uint64_t sim_trace_hash(const sim *);
uint64_t sim_random(sim *);                             /* from the seed */
void     sim_sleep(sim_proc *, int64_t ns);             /* the process "computes" */
void     sim_dump(sim *, FILE *);
uint64_t sim_wan_bytes(sim_site *from, sim_site *to);   /* that left so far over the link, headers too if simulated */
uint64_t sim_nic_bytes(const sim_nic *, bool out);
sim_site *sim_site_of(const sim_host *);

/* ---- faults: at once, or at a virtual instant ---- */
void sim_kill_proc(sim_proc *);                         /* kill -9: the kernel closes its sockets */
void sim_kill_host(sim_host *);                         /* power off: silence */
void sim_stop_proc(sim_proc *);                         /* SIGSTOP: the kernel still acknowledges */
void sim_continue_proc(sim_proc *);
void sim_cut(sim_host *, sim_host *);                   /* what is under way between the two is lost until mended */
void sim_cut_way(sim_host *from, sim_host *to);         /* in this direction only */
void sim_mend(sim_host *, sim_host *);                  /* both directions */
void sim_cut_sites(sim_site *, sim_site *);
void sim_cut_sites_way(sim_site *from, sim_site *to);
void sim_mend_sites(sim_site *, sim_site *);
void sim_nic_cut(sim_nic *);                            /* all that goes through that NIC is lost, unnoticed, until mended */
void sim_nic_mend(sim_nic *);
/* Down: its routes are gone, and it is not among the interfaces. Its IPv4 addresses stay the host's (its other NICs on that
 * network answer for them); the IPv6 ones go, and come back with it. Connections through it fall silent. */
void sim_nic_down(sim_nic *);
void sim_nic_up(sim_nic *);
void sim_nic_carrier(sim_nic *, bool on);               /* off: GCI_IF_IDLE; its routes stay, and lead to nobody */
int  sim_reset(sim_proc *, int fd);                     /* both ends see ECONNRESET at once; 0, or -ENOTCONN */
int  sim_reset_any(sim *);                              /* of all established connections one */
int  sim_reset_between(sim_proc *, sim_proc *);         /* every connection between the two: how many */
/* As a middlebox that looks into the packets: those of them whose first bytes from the opener the caller likes. q NULL: with
 * anybody. */
enum { SIM_OPENING = 64 };
int  sim_reset_where(sim_proc *p, sim_proc *q, bool (*like)(void *user, const uint8_t *opening, size_t bytes), void *user);
void sim_at(sim *, int64_t when, void (*)(void *a, void *b), void *a, void *b);     /* runs outside of all contexts */
void sim_kill_proc_at(sim_proc *, int64_t when);
void sim_kill_host_at(sim_host *, int64_t when);
void sim_stop_proc_at(sim_proc *, int64_t when);
void sim_continue_proc_at(sim_proc *, int64_t when);
void sim_cut_at(sim_host *, sim_host *, int64_t when);
void sim_mend_at(sim_host *, sim_host *, int64_t when);
void sim_cut_sites_at(sim_site *, sim_site *, int64_t when);
void sim_mend_sites_at(sim_site *, sim_site *, int64_t when);
void sim_nat_forget_at(sim_site *, int64_t when);
void sim_nic_cut_at(sim_nic *, int64_t when);
void sim_nic_mend_at(sim_nic *, int64_t when);

#endif
