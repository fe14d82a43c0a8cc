/* gct.h: whole gridcomm jobs inside one test program, on real sockets or on the simulated network, and checks for what they move.
 * SPDX-License-Identifier: MIT
 *
 *     static int ring(gc_comm *world, int rank, int size, void *arg) { gct_ok(gc_send(...)); return 0; }
 *     assert_int_equal(0, gct_job(&(gct_spec){ .ranks = 5 }, ring, NULL));
 *
 * Needs the public header alone: the same test is linked with the simulated network (gct_sim.c), with real sockets
 * (gct_real.c), and with the one-file form of the library. With both linked, GCT_ON=real or sim chooses.
 * GCT_SEED sets the seed of every job; a failing job prints its own. GCT_LOG=1 shows what the library logs.
 */
#ifndef GCT_H
#define GCT_H

#include "gridcomm.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sim;
struct sim_proc;

enum gct_on { GCT_ON_ANY, GCT_ON_REAL, GCT_ON_SIM };

typedef struct gct_outcome {
    enum gct_on on;
    uint64_t seed, trace;       /* trace: equal for equal seeds; simulated only */
    int64_t  virtual_ns;        /* when the last rank ended; simulated only */
    int      verdict;           /* of sim_run; real: 0 */
    int      resets;            /* connections that GCT_RESET found */
    int      collectives;       /* whose schedules were proven as they ran (sim/witness.h); simulated only */
} gct_outcome;

/* A site of a simulated job: its ranks are the next so many. Hosts of different sites reach each other unless it says otherwise. */
enum gct_wall { GCT_OPEN, GCT_DROP, GCT_REFUSE };
enum { GCT_PLACES = 30 };
typedef struct gct_place {
    int         ranks;
    const char *families;       /* of its hosts: "4" (NULL, too), "6" or "46" */
    bool        cards;          /* each host has a second network card, on a network of the site's hosts alone; the same addresses in each such site */
    bool        nat;            /* the hosts' IPv4 addresses are private, and the same in each such site; rank 0 is let in at its port */
    int         nat_idle;       /* s without a packet after which the NAT forgets a connection; 0: it does not */
    bool        nat_rst;        /* it answers what it has forgotten with RST; else with silence */
    enum gct_wall wall;         /* connections from other sites, but to ports ... */
    uint16_t    port_first, port_last;  /* ... of this range */
    enum gct_wall host_wall;    /* connections from other hosts, in the site or not */
    uint32_t    not_to;         /* bit i: connections from here to site i are dropped, but those to the port of rank 0 */
} gct_place;

/* What happens to a simulated job at a time after the last rank was through gc_init. Hosts and sites are those of ranks. */
enum gct_event_kind {
    GCT_KILL, GCT_KILL_HOST, GCT_STOP, GCT_CONTINUE,    /* a */
    GCT_CUT, GCT_MEND, GCT_CUT_WAY,                     /* between the hosts of a and b; from a to b only */
    GCT_CUT_SITES, GCT_MEND_SITES,
    GCT_CUT_CARD, GCT_MEND_CARD,                        /* the second network card of a's host */
    GCT_FORGET,                                         /* the NAT of a's site forgets all */
    GCT_RESET                                           /* all connections of a and b, or those for a purpose; b -1: with anybody */
};
typedef struct gct_event { int64_t at; enum gct_event_kind what; int a, b, purpose; } gct_event;

typedef struct gct_spec {
    int         ranks;
    enum gct_on on;
    uint64_t    seed;           /* 0: GCT_SEED, else drawn from the clock */
    int         sites;          /* 0: 1. Ranks stand in blocks; with more than one, each has its site's name as cluster */
    int         ranks_per_host; /* simulated; 0: 1 */
    int         time_limit;     /* s of real time; 0: 60. Real sockets: overrunning it aborts the program */
    bool        calm;           /* simulated: no seeded faults, exact times */
    bool        unwitnessed;    /* simulated: nobody checks the schedules of its collectives */
    int64_t     lan_latency, lan_rate, wan_latency, wan_rate;   /* simulated; 0: 50 us, 125 MB/s, 10 ms, 1 MB/s */
    bool        finalizes;      /* rank_main calls gc_finalize itself; else it is called, and must succeed if rank_main did */
    bool        leave_anyhow;   /* ... or need not succeed (somebody died) */
    void      (*options)(gc_options *, int rank, void *arg);    /* changes them */
    void      (*refused)(int rank, int code, const char *text, void *arg);  /* gc_init failed: not an error of the test then */
    void      (*arrange)(struct sim *, struct sim_proc **procs, int ranks, void *arg);   /* simulated: before it runs */
    void      (*started)(struct sim *, struct sim_proc **procs, int ranks, void *arg);   /* simulated: all are through gc_init */
    const gct_place *places;    /* simulated: instead of sites, as many as have room for all ranks */
    const gct_event *events;    /* simulated; event_count of them */
    int         event_count;
    int64_t     virtual_limit;  /* ns of virtual time that it may take; 0: 600 s */
    gct_outcome *outcome;
} gct_spec;

/* Runs a job; rank_main returns 0 for success. Returns how many ranks failed: by that, by gc_init or gc_finalize, by not
 * coming to an end, by memory, descriptors or threads that the library still holds. Killed ranks do not count. Simulated: and
 * what is wrong with the schedules of its collectives. */
typedef int gct_main(gc_comm *world, int rank, int size, void *arg);
int gct_job(const gct_spec *, gct_main *, void *arg);
bool gct_simulated(const gct_spec *);

/* ---- checks, inside rank_main: on failure they print file, line and rank, and return 1 from the function ---- */
#define gct_require(condition, ...) \
    do { if (!(condition)) return gct_fail(__FILE__, __LINE__, #condition, __VA_ARGS__); } while (0)
#define gct_ok(call) \
    do { int gct_code_ = (call); if (gct_code_) return gct_fail(__FILE__, __LINE__, #call, "%s", gc_strerror(gct_code_)); } while (0)
int gct_fail(const char *file, int line, const char *what, const char *format, ...) __attribute__((format(printf, 4, 5)));
int gct_rank(void);                                     /* of the running rank; -1 outside of jobs */

/* ---- buffers with canaries ---- */
void *gct_buffer(size_t bytes);                         /* aborts when out of memory; what is left is freed after the job */
int   gct_buffer_check(const void *);                   /* 0, or 1 and a line that says where it was overrun */
int   gct_buffer_free(void *);                          /* checks, too; NULL: 0 */
void  gct_buffers_end(void);                            /* frees all that are left */

/* ---- data that nobody else sends: depends on source, tag, length and position ---- */
void   gct_fill(void *, size_t bytes, int source, int tag);
size_t gct_wrong(const void *, size_t bytes, int source, int tag);      /* index of the first wrong byte; bytes: none */
int    gct_check(const void *, size_t bytes, int source, int tag);      /* 0, or 1 and a line */

/* gct_spec.options of what is timed or counted, whatever the environment says: own links, queues and credits as by default. */
void     gct_usual_options(gc_options *, int rank, void *arg);
const char *gct_filter(void);   /* for cmocka: the tests whose name has TEST in it; NULL: all. One such text at a time */
uint64_t gct_seed(void);                                /* GCT_SEED, else from the clock */
uint64_t gct_random(uint64_t *state);
bool     gct_drawn(void);       /* is this job of a sweep run: each is, but with GCT_ROUNDS=10 one in four, with 3 one in eleven, drawn */

/* ---- for gct_sim.c and gct_real.c ---- */
int  gct_job_real(const gct_spec *, uint64_t seed, gct_main *, void *arg);
int  gct_job_sim(const gct_spec *, uint64_t seed, gct_main *, void *arg);
void gct_options(gc_options *, const gct_spec *, int rank, const char *root, const char *cluster, char *text, size_t text_bytes);
int  gct_member(const gct_spec *, int code, const char *text, gc_comm *world, int rank, gct_main *, void *arg);
int  gct_site(const gct_spec *, int rank);              /* 0, 1, ... */
void gct_set_rank(int rank);                            /* of this thread */
void gct_set_rank_finder(int (*)(void));

#endif
