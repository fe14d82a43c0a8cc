/* test_reach.c: networks that mislead, simulated: ranks find each other at the right addresses, and knock at no other's door.
 * SPDX-License-Identifier: MIT
 *
 * Each network is built by hand, but for those drawn at the end (GCT_SEED, GCT_ROUNDS). All its ranks trade a message with each
 * other; rank r listens on port 5000 + r, so each SYN tells whom it was meant for.
 */
#include "simnet.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include <errno.h>

enum { RANKS_MAX = 40, PORT = 5000, MEGABIT = 125000, SYNS_MAX = 1 << 14, BULK = 4 << 20, ADDRESS = 32 };

typedef struct syn { sim_host *from; sim_nic *nic; gci_addr to; int64_t at; } syn;

typedef struct rank {
    struct world *w;
    int         number;
    sim_proc   *proc;
    const char *root, *advertise;       /* NULL: as the world says, or none */
    int         code, failed;
    int64_t     started, talked;    /* talked: with everybody, for the first time */
    char        text[GCI_TEXT];
} rank;

typedef struct world {
    sim        *net;
    sim_host   *host[RANKS_MAX];        /* of ranks */
    int         ranks;
    const char *root;
    bool        bulk;                   /* long messages too, over all links */
    int       (*live)(gc_comm *, rank *);       /* NULL: everybody talks to everybody */
    rank        rank[RANKS_MAX];
    syn        *syn;
    int         syns;
} world;

static world *world_new(const char *root)
{
    world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->net = sim_new(5);
    sim_calm(w->net);
    sim_tune(w->net)->report = NULL;
    w->root = root;
    w->syn = calloc(SYNS_MAX, sizeof *w->syn);
    assert_non_null(w->syn);
    return w;
}

static void world_free(world *w)
{
    sim_free(w->net);
    free(w->syn);
    free(w);
}

static rank *add(world *w, sim_host *h)
{
    rank *r = &w->rank[w->ranks];
    *r = (rank){ .w = w, .number = w->ranks, .code = 1 };
    w->host[w->ranks++] = h;
    return r;
}

static int talk(gc_comm *c, const rank *r, size_t bytes)
{
    int n = r->w->ranks, err = GC_OK;
    unsigned char *out = malloc(bytes), *in = malloc(bytes);
    for (int step = 1; step < n && out && in && !err; step++) {
        int to = (r->number + step) % n, from = (r->number + n - step) % n;
        for (size_t i = 0; i < bytes; i++)
            out[i] = (unsigned char)(i * 7 + i / 251 + (unsigned)(r->number * 31 + to));
        err = gc_sendrecv(c, out, bytes, to, step, in, bytes, from, step, NULL);
        for (size_t i = 0; i < bytes && !err; i++)
            if (in[i] != (unsigned char)(i * 7 + i / 251 + (unsigned)(from * 31 + r->number)))
                err = GC_ERR_PROTOCOL;
    }
    free(out);
    free(in);
    return err;
}

static int live(gc_comm *c, rank *r)
{
    int err = talk(c, r, 64);
    r->talked = r->talked ? r->talked : sim_now(r->w->net);
    if (!err && r->w->bulk)
        err = talk(c, r, BULK);
    if (!err && r->w->bulk)             /* by now all links are there */
        err = talk(c, r, BULK);
    return err;
}

static void member(sim_proc *p, void *arg)
{
    rank *r = arg;
    gc_options o = GRIDCOMM_OPTIONS_INIT;
    gc_comm *c;
    char ports[24];
    snprintf(ports, sizeof ports, "%d-%d", PORT + r->number, PORT + r->number);
    o.direct = 1;                       /* whatever the environment says: it is connections that are looked at */
    o.alloc = sim_alloc;
    o.alloc_user = p;
    o.rank = r->number;
    o.ranks = r->w->ranks;
    o.root = r->root ? r->root : r->w->root;
    o.key = "of this job";
    o.ports = ports;
    o.advertise = r->advertise;
    o.start_timeout = 20;
    o.peer_timeout = 5;
    o.error_text = r->text;
    o.error_text_size = sizeof r->text;
    r->code = gci_open(&c, &o, sim_sys(p));
    r->started = sim_now(r->w->net);
    if (r->code)
        return;
    r->failed = r->w->live ? r->w->live(c, r) : live(c, r);
    int err = gc_finalize(c);
    r->failed = r->failed ? r->failed : err;
}

static void see(void *user, sim_host *from, sim_nic *nic, const gci_addr *to)
{
    world *w = user;
    if (w->syns < SYNS_MAX)
        w->syn[w->syns++] = (syn){ from, nic, *to, sim_now(w->net) };
}

static void spawn(world *w)
{
    char name[16];
    for (int r = 0; r < w->ranks; r++) {
        snprintf(name, sizeof name, "rank %d", r);
        w->rank[r].proc = sim_spawn(w->host[r], name, member, &w->rank[r]);
    }
    sim_on_syn(w->net, see, w);
}

static void tell_syns(const world *w)
{
    char text[GCI_ADDR_TEXT];
    for (int i = 0; i < w->syns; i++)
        print_error("%9.3f ms: %s to %s\n", (double)w->syn[i].at / GCI_NS_PER_MS, sim_host_name(w->syn[i].from),
                    gci_addr_text(&w->syn[i].to, text));
}

/* All start within so long, and everything arrives. Whoever else is there need not come to an end. */
static void assert_works(world *w, int64_t within)
{
    int bad = 0;
    for (int r = 0; r < w->ranks; r++) {
        const rank *k = &w->rank[r];
        if (k->code || k->failed || k->started > within) {
            print_error("rank %d: %d after %lld ms: %s; then %d\n", r, k->code, (long long)(k->started / GCI_NS_PER_MS), k->text,
                        k->failed);
            bad++;
        }
        sim_leftovers left = sim_proc_leftovers(k->proc);
        assert_true(!left.blocks && !left.fds && !left.threads && !left.monitors);
    }
    if (bad)
        tell_syns(w);
    assert_int_equal(bad, 0);
}

/* How many SYNs to addresses that begin so (NULL: any), from that host (NULL: any), for that rank (-1: any). */
static int syns(const world *w, const char *begin, const sim_host *from, int to)
{
    char text[GCI_ADDR_TEXT];
    int n = 0;
    for (int i = 0; i < w->syns; i++) {
        gci_addr bare = w->syn[i].to;
        bare.port = 0;
        bare.scope = 0;
        if ((!begin || strncmp(gci_addr_text(&bare, text), begin, strlen(begin)) == 0) && (!from || w->syn[i].from == from)
            && (to < 0 || w->syn[i].to.port == PORT + to))
            n++;
    }
    return n;
}

/* ---- bridges that are the same everywhere -------------------------------------------------------------------------------- */

static sim_host *lan_host(sim_site *site, char initial, const char *prefix, int i)
{
    char address[ADDRESS], name[ADDRESS];
    snprintf(address, sizeof address, "%s.%d/24", prefix, i);
    snprintf(name, sizeof name, "%c%d", initial, i);
    return sim_host_new(site, name, address, 1000 * MEGABIT);
}

static sim_nic *bridge(world *w, sim_host *h, const char *nic, const char *address)
{
    char name[64];
    snprintf(name, sizeof name, "%s of %s", nic, sim_host_name(h));
    return sim_nic_new(h, nic, sim_net_new(w->net, name, 1000), address, 0);
}

static void test_bridges(void **state)
{
    (void)state;
    world *w = world_new("10.1.0.1:5000");
    sim_site *site = sim_site_new(w->net, "a", 50000);
    for (int i = 1; i <= 3; i++) {
        sim_host *h = lan_host(site, 'a', "10.1.0", i);
        bridge(w, h, "docker0", "172.17.0.1/16");
        bridge(w, h, "virbr0", "192.168.122.1/24");
        add(w, h);
    }
    w->bulk = true;
    spawn(w);
    sim_run(w->net);
    assert_works(w, GCI_SECOND);
    assert_int_equal(syns(w, "172.17.", NULL, -1) + syns(w, "192.168.", NULL, -1), 0);
    world_free(w);
}

/* So many ranks that some fetch the table from others before they know who collides with whom; and bridges that look fast. */
static void test_bridges_of_many(void **state)
{
    (void)state;
    world *w = world_new("10.1.0.1:5000");
    sim_site *site = sim_site_new(w->net, "a", 50000);
    for (int i = 1; i <= RANKS_MAX; i++) {
        char address[ADDRESS];
        sim_host *h = lan_host(site, 'a', "10.1.0", i);
        snprintf(address, sizeof address, "192.168.122.%d/24", i % 2 ? i : 1);
        sim_nic_speed(bridge(w, h, "virbr0", address), 100000);
        add(w, h);
    }
    spawn(w);
    sim_run(w->net);
    assert_works(w, GCI_SECOND);
    assert_int_equal(syns(w, "192.168.", NULL, -1), 0);
    world_free(w);
}

/* ---- two labs ------------------------------------------------------------------------------------------------------------- */

enum { LAB = 3 };

/* Both number 192.168.1.0/24 alike; rank 0 is in the first, and let in at its NAT. Ranks 0-2 are a's, 3-5 b's. */
static world *two_labs(sim_site *lab[2])
{
    static const int number[2][LAB] = { { 1, 2, 3 }, { 1, 2, 9 } };
    static const char *const gate[2] = { "203.0.113.1", "203.0.113.2" };
    world *w = world_new("203.0.113.1:5000");
    for (int s = 0; s < 2; s++) {
        lab[s] = sim_site_new(w->net, s ? "b" : "a", 50000);
        for (int i = 0; i < LAB; i++) {
            rank *r = add(w, lan_host(lab[s], s ? 'b' : 'a', "192.168.1", number[s][i]));
            r->root = s ? NULL : "192.168.1.1:5000";
        }
        sim_nat_new(lab[s], gate[s], 0, SIM_DROP);
    }
    sim_wan(lab[0], lab[1], 5000000, 100 * MEGABIT);
    sim_nat_forward(lab[0], PORT, w->host[0], PORT);
    return w;
}

/* Nobody of one lab knocks at a private address for a rank of the other. */
static int strays(const world *w)
{
    int n = 0;
    for (int from = 0; from < 2 * LAB; from++)
        for (int to = 0; to < 2 * LAB; to++)
            if (from / LAB != to / LAB)
                n += syns(w, "192.168.1.", w->host[from], to);
    if (n > 0)
        tell_syns(w);
    return n;
}

static void assert_labs_keep_to_themselves(const world *w)
{
    assert_int_equal(strays(w), 0);
    for (int s = 0; s < 2; s++)
        for (int x = 0; x < LAB; x++)
            for (int y = 0; y < x; y++) {
                int a = s * LAB + x, b = s * LAB + y;
                assert_true(syns(w, "192.168.1.", w->host[a], b) + syns(w, "192.168.1.", w->host[b], a) > 0);
            }
}

static void test_labs(void **state)
{
    (void)state;
    sim_site *lab[2];
    world *w = two_labs(lab);
    spawn(w);
    sim_run(w->net);
    assert_works(w, 6 * GCI_SECOND);
    assert_labs_keep_to_themselves(w);
    world_free(w);
}

static void show_gate(void *host, void *gate) { sim_host_gate(host, (uint64_t)(uintptr_t)gate); }

/* A host that has sent nothing yet does not know its gate; or it never will, and where rank 0 sees it must do. */
static void test_labs_without_gates(void **state)
{
    (void)state;
    for (int round = 0; round < 2; round++) {
        sim_site *lab[2];
        world *w = two_labs(lab);
        for (int r = 0; r < w->ranks; r++) {
            sim_host_gate(w->host[r], 0);
            if (round)
                sim_at(w->net, 20000, show_gate, w->host[r], (void *)(uintptr_t)(1 + r / LAB));
        }
        spawn(w);
        sim_run(w->net);
        assert_works(w, 6 * GCI_SECOND);
        assert_labs_keep_to_themselves(w);
        world_free(w);
    }
}

/* ---- somebody else at the best address ------------------------------------------------------------------------------------ */

enum squatter { NOBODY, MUTE, CHATTER, CLOSER, OTHER_JOB, SQUATTERS };
typedef struct squat { world *w; enum squatter what; } squat;

static void squat_on(sim_proc *p, void *arg)
{
    const squat *s = arg;
    gci_sys *sys = sim_sys(p);
    gci_addr at = { .family = 6, .port = PORT + 1 };
    int listener = sys->listen(sys, &at), fd[64], n = 0;
    char text[] = "220 mail.example ESMTP, and a good deal more than one of our handshakes would ever be able to swallow\r\n";
    while (listener >= 0 && sim_now(s->w->net) < 10 * GCI_SECOND) {
        if (n < 64 && (fd[n] = sys->accept(sys, listener, &at)) >= 0) {
            if (s->what == CHATTER)
                (void)sys->send(sys, fd[n], &(struct iovec){ text, sizeof text }, 1);
            if (s->what == CLOSER)
                sys->close(sys, fd[n]);
            n++;
        }
        sim_sleep(p, GCI_NS_PER_MS);
    }
    for (int i = 0; i < n && s->what != CLOSER; i++)
        sys->close(sys, fd[i]);
    sys->close(sys, listener);
}

static void other_job(sim_proc *p, void *arg)
{
    gc_options o = GRIDCOMM_OPTIONS_INIT;
    gc_comm *c;
    (void)arg;
    o.alloc = sim_alloc;
    o.alloc_user = p;
    o.rank = 0;
    o.ranks = 2;
    o.root = "192.168.9.2:5001";
    o.key = "of another job";
    o.start_timeout = 10;
    (void)gci_open(&c, &o, sim_sys(p));
}

/* Both hosts have a card on a network 192.168.9.0/24, but those are two networks. On the one of rank 0 somebody else has the
 * address that rank 1 has on the other. Their other addresses are private ones without a route of their own. */
static world *squatted(enum squatter what, squat *s)
{
    world *w = world_new("10.1.0.1:5000");
    sim_site *a = sim_site_new(w->net, "a", 50000), *b = sim_site_new(w->net, "b", 50000);
    sim_host *x = sim_host_new(a, "x", "10.1.0.1/24", 1000 * MEGABIT), *y = sim_host_new(b, "y", "10.2.0.1/24", 1000 * MEGABIT);
    sim_host *z = sim_host_new(a, "z", "10.1.0.9/24", 1000 * MEGABIT);
    sim_net *ours = sim_net_new(w->net, "ours", 50000), *theirs = sim_net_new(w->net, "theirs", 50000);
    sim_wan(a, b, 5000000, 1000 * MEGABIT);
    sim_nic_new(x, "eth1", ours, "192.168.9.1/24", 1000 * MEGABIT);
    sim_nic_new(y, "eth1", theirs, "192.168.9.2/24", 1000 * MEGABIT);
    add(w, x);
    add(w, y);
    *s = (squat){ w, what };
    spawn(w);
    if (what != NOBODY) {
        sim_nic_new(z, "eth1", ours, "192.168.9.2/24", 1000 * MEGABIT);
        sim_spawn(z, "squatter", what == OTHER_JOB ? other_job : squat_on, s);
    }
    return w;
}

static void test_somebody_else(void **state)
{
    (void)state;
    for (enum squatter what = NOBODY; what < SQUATTERS; what++) {
        squat s;
        world *w = squatted(what, &s);
        sim_run(w->net);
        assert_works(w, 1200 * GCI_NS_PER_MS);
        assert_true(w->rank[0].talked - w->rank[0].started < GCI_SECOND);
        assert_true(syns(w, "192.168.9.2", w->host[0], 1) > 0);
        world_free(w);
    }
}

/* ---- a neighbour that dies ------------------------------------------------------------------------------------------------- */

static int wait_for_the_end(gc_comm *c, rank *r)
{
    char byte;
    int err = gc_recv(c, &byte, 1, !r->number, 1, NULL);
    r->talked = sim_now(r->w->net);
    return err;
}

/* Its port takes one more connection before it refuses, and another of its addresses, which leads nowhere here, says nothing. */
static void test_death_beside_silence(void **state)
{
    const int64_t death = 2 * GCI_SECOND, after = 3 * GCI_NS_PER_MS;
    (void)state;
    world *w = world_new("10.1.0.1:5000");
    sim_site *a = sim_site_new(w->net, "a", 50000);
    for (int i = 1; i <= 2; i++) {
        char name[ADDRESS], address[ADDRESS];
        sim_host *h = lan_host(a, 'a', "10.1.0", i);
        snprintf(name, sizeof name, "apart %d", i);
        snprintf(address, sizeof address, "fe80::%d/64", i);
        sim_nic_new(h, "eth1", sim_net_new(w->net, name, 50000), address, 1000 * MEGABIT);
        add(w, h);
    }
    w->live = wait_for_the_end;
    spawn(w);
    sim_tune(w->net)->port_outlives = after;
    sim_kill_proc_at(w->rank[1].proc, death);
    sim_run(w->net);
    assert_int_equal(w->rank[0].code, GC_OK);
    assert_int_equal(w->rank[0].failed, GC_ERR_PEER);
    assert_true(syns(w, "fe80::2", w->host[0], 1) > 0);
    assert_true(w->rank[0].talked > death && w->rank[0].talked < death + after + 50 * GCI_NS_PER_MS);
    world_free(w);
}

/* ---- addresses of the last resort ----------------------------------------------------------------------------------------- */

/* A switch, and nobody who gives out addresses. */
static void test_link_local(void **state)
{
    (void)state;
    world *w = world_new("fe80::1%2:5000");
    sim_site *a = sim_site_new(w->net, "a", 50000);
    for (int i = 1; i <= 3; i++) {
        char address[ADDRESS], name[ADDRESS];
        snprintf(address, sizeof address, "fe80::%d/64", i);
        snprintf(name, sizeof name, "h%d", i);
        add(w, sim_host_new(a, name, address, 1000 * MEGABIT))->root = "[fe80::1%2]:5000";
    }
    w->bulk = true;
    spawn(w);
    sim_run(w->net);
    assert_works(w, GCI_SECOND);
    world_free(w);
}

static sim_host *with_many_nics(world *w, sim_host *h, int last)
{
    for (int i = 1; i <= 8; i++) {
        char nic[ADDRESS], address[ADDRESS];
        snprintf(nic, sizeof nic, "eth%d", i);
        snprintf(address, sizeof address, "fe80::%d:%d/64", i, last);
        (void)bridge(w, h, nic, address);
    }
    return h;
}

/* Two NATs, of which rank 0's lets its port in. No card says so: it is where it was joined. And there are more link-local
 * addresses on either side than a dial has room for. */
static void test_only_where_it_was_joined(void **state)
{
    (void)state;
    world *w = world_new("203.0.113.1:5000");
    sim_site *a = sim_site_new(w->net, "a", 50000), *b = sim_site_new(w->net, "b", 50000);
    add(w, with_many_nics(w, lan_host(a, 'a', "192.168.1", 1), 1))->root = "192.168.1.1:5000";
    add(w, with_many_nics(w, lan_host(b, 'b', "192.168.2", 1), 2));
    sim_nat_new(a, "203.0.113.1", 0, SIM_DROP);
    sim_nat_new(b, "203.0.113.2", 0, SIM_DROP);
    sim_wan(a, b, 5000000, 100 * MEGABIT);
    sim_nat_forward(a, PORT, w->host[0], PORT);
    spawn(w);
    sim_run(w->net);
    assert_works(w, 2 * GCI_SECOND);
    world_free(w);
}

/* ---- what this host has is not what it had --------------------------------------------------------------------------------- */

static int (*connect_really)(gci_sys *, const gci_addr *, const gci_addr *, uint32_t);

static int connect_from_nowhere(gci_sys *sys, const gci_addr *to, const gci_addr *source, uint32_t bind)
{
    return source ? -EADDRNOTAVAIL : connect_really(sys, to, source, bind);
}

static int has_direct_link(gc_comm *c, rank *r)
{
    char text[4096];
    int err = live(c, r);
    err = err ? err : gc_describe(c, "links", "text", text, sizeof text, NULL);
    if (!err && !strstr(text, ": direct link to rank "))
        err = GC_ERR_UNREACHABLE;
    return err ? err : gc_barrier(c);
}

/* The address that a link is to leave from has been taken from this host, and its card still has it. */
static void test_moved(void **state)
{
    (void)state;
    world *w = world_new("10.1.0.1:5000");
    sim_site *site = sim_site_new(w->net, "a", 50000);
    for (int i = 1; i <= 2; i++)
        add(w, lan_host(site, 'a', "10.1.0", i));
    w->live = has_direct_link;
    spawn(w);
    for (int r = 0; r < w->ranks; r++) {
        connect_really = sim_sys(w->rank[r].proc)->connect;
        sim_sys(w->rank[r].proc)->connect = connect_from_nowhere;
    }
    sim_run(w->net);
    assert_works(w, GCI_SECOND);
    world_free(w);
}

/* ---- a mapped port --------------------------------------------------------------------------------------------------------- */

static int interrupted(gc_comm *c, rank *r)
{
    int err = live(c, r);
    sim_sleep(r->proc, 3 * GCI_SECOND - sim_now(r->w->net));
    if (!err && r->number == 0)
        sim_reset_between(r->proc, r->w->rank[1].proc);
    sim_sleep(r->proc, GCI_SECOND);
    return err ? err : live(c, r);
}

/* A NAT passes port 7000 on to rank 1, and refuses the port that rank 1 itself listens on: that is not its end. Rank 0 dials
 * first, or cannot. */
static void test_mapped_port(void **state)
{
    (void)state;
    for (int outward = 0; outward < 2; outward++) {
        world *w = world_new("193.175.13.1:5000");
        sim_site *a = sim_site_new(w->net, "a", 50000), *b = sim_site_new(w->net, "b", 50000);
        add(w, lan_host(a, 'a', "193.175.13", 1));
        add(w, lan_host(b, 'b', "192.168.1", 1))->advertise = "203.0.113.2:7000";
        sim_nat_new(b, "203.0.113.2", 0, SIM_REFUSE);
        sim_wan(a, b, 5000000, 100 * MEGABIT);
        if (!outward)
            sim_nat_forward(b, 7000, w->host[1], PORT + 1);
        w->live = interrupted;
        spawn(w);
        sim_run(w->net);
        assert_works(w, 5 * GCI_SECOND);
        assert_int_equal(syns(w, "203.0.113.2", NULL, 1), 0);
        world_free(w);
    }
}

static int describe_links(gc_comm *c, rank *r)
{
    char text[4096];
    int err = gc_describe(c, "addresses", "text", text, sizeof text, NULL);
    if (err || !strstr(text, "link eth0 - eth0") || !strstr(text, ": private, stripes")) {
        print_error("%s\n", text);
        err = err ? err : GC_ERR_PROTOCOL;
    }
    return err ? err : live(c, r);
}

/* Two ranks of one host with a port each are still of one host. */
static void test_mapped_ports_of_one_host(void **state)
{
    (void)state;
    world *w = world_new("193.175.13.1:5000");
    sim_site *a = sim_site_new(w->net, "a", 50000), *b = sim_site_new(w->net, "b", 50000);
    sim_host *inside = lan_host(b, 'b', "192.168.1", 1);
    add(w, lan_host(a, 'a', "193.175.13", 1));
    add(w, inside)->advertise = "203.0.113.2:7000";
    add(w, inside)->advertise = "203.0.113.2:7001";
    sim_nat_new(b, "203.0.113.2", 0, SIM_REFUSE);
    sim_nat_hairpin(b, true);
    sim_nat_forward(b, 7000, inside, PORT + 1);
    sim_nat_forward(b, 7001, inside, PORT + 2);
    sim_wan(a, b, 5000000, 100 * MEGABIT);
    w->bulk = true;
    w->live = interrupted;
    spawn(w);
    sim_run(w->net);
    assert_works(w, 5 * GCI_SECOND);
    assert_int_equal(syns(w, "203.0.113.2", inside, -1), 0);
    world_free(w);
}

/* An address that the host does have, advertised: it still stands in its network, and is no worse for it. */
static void test_advertised_own(void **state)
{
    (void)state;
    world *w = world_new("10.1.0.1:5000");
    sim_site *site = sim_site_new(w->net, "a", 50000);
    static const char *const address[] = { "10.1.0.1", "10.1.0.2:5001" };
    for (int i = 0; i < 2; i++)
        add(w, lan_host(site, 'a', "10.1.0", i + 1))->advertise = address[i];
    w->live = describe_links;
    spawn(w);
    sim_run(w->net);
    assert_works(w, GCI_SECOND);
    world_free(w);
}

/* ---- families ------------------------------------------------------------------------------------------------------------- */

/* So many that rank 0 would have one fetch the table from another, but it has both families and they have one each. */
static void test_families_of_many(void **state)
{
    (void)state;
    world *w = world_new("10.1.0.1:5000,[2001:db8:1::1]:5000");
    sim_site *a = sim_site_new(w->net, "a", 50000);
    sim_nic_address(sim_host_nic(add(w, lan_host(a, 'a', "10.1.0", 1))->w->host[0], 0), "2001:db8:1::1/64", 0);
    for (int i = 2; i <= RANKS_MAX; i++) {
        char address[ADDRESS], name[ADDRESS];
        snprintf(address, sizeof address, i / 16 % 2 ? "2001:db8:1::%d/64" : "10.1.0.%d/24", i);
        snprintf(name, sizeof name, "a%d", i);
        add(w, sim_host_new(a, name, address, 1000 * MEGABIT));
    }
    spawn(w);
    sim_run(w->net);
    assert_works(w, 8 * GCI_SECOND);
    world_free(w);
}

/* ---- nothing between ------------------------------------------------------------------------------------------------------- */

/* As gcrun's agent does it: what comes to this host's port is carried to rank 0's by the launcher's own connection. */
static void carry(sim_proc *p, void *arg)
{
    gci_sys *sys = sim_sys(p);
    gci_addr at = { .family = 6, .port = PORT };
    char *argv[] = { (char[]){ "agent" }, NULL };
    uint8_t data[4096];
    int listener = sys->listen(sys, &at), end[2] = { -1, -1 };
    (void)arg;
    while (listener >= 0 && end[0] < 0 && sim_now(arg) < 5 * GCI_SECOND) {
        sim_sleep(p, GCI_NS_PER_MS);
        end[0] = sys->accept(sys, listener, &at);
    }
    end[1] = sys->spawn(sys, argv);
    for (bool open = end[0] >= 0 && end[1] >= 0; open; sim_sleep(p, GCI_NS_PER_MS))
        for (int i = 0; i < 2 && open; i++) {
            ssize_t n = sys->recv(sys, end[i], &(struct iovec){ data, sizeof data }, 1);
            open = n > 0 || n == -EAGAIN;
            for (ssize_t at_byte = 0, sent = 0; at_byte < n && (sent >= 0 || sent == -EAGAIN); at_byte += sent > 0 ? sent : 0)
                sent = sys->send(sys, end[!i], &(struct iovec){ data + at_byte, (size_t)(n - at_byte) }, 1);
        }
    for (int i = 0; i < 2; i++)
        if (end[i] >= 0)
            sys->close(sys, end[i]);
    sys->close(sys, listener);
}

static int agent(void *user, sim_proc *by, char *const argv[], sim_host **from, gci_addr *to)
{
    (void)by, (void)argv;
    *from = user;
    gci_addr_parse("127.0.0.1", to);
    to->port = PORT;
    return 0;
}

static void test_nothing_between(void **state)
{
    (void)state;
    world *w = world_new("10.1.0.1:5000");
    sim_site *a = sim_site_new(w->net, "a", 50000);
    add(w, sim_host_new(a, "four", "10.1.0.1/24", 1000 * MEGABIT));
    add(w, sim_host_new(a, "six", "2001:db8:1::6/64", 1000 * MEGABIT))->root = "127.0.0.1:5000";
    sim_on_spawn(w->net, agent, w->host[0]);
    spawn(w);
    sim_spawn(w->host[1], "agent", carry, w->net);
    sim_run(w->net);
    for (int r = 0; r < 2; r++) {
        const char *text = w->rank[r].text;
        assert_int_equal(w->rank[r].code, GC_ERR_UNREACHABLE);
        assert_true(w->rank[r].started < 3 * GCI_SECOND);
        if (!strstr(text, "no address family in common") || !strstr(text, "four has 10.1.0.1/24 (eth0)")
            || !strstr(text, "six has 2001:db8:1::6/64 (eth0)"))
            fail_msg("rank %d: %s", r, text);
    }
    assert_int_equal(syns(w, "10.1.", w->host[1], -1) + syns(w, "2001:", w->host[0], -1), 0);
    world_free(w);
}

/* ---- whatever there may be ------------------------------------------------------------------------------------------------ */

/* A card on one of a few networks. The number of the network says little of which one it is, that of the host not always more. */
static void draw_nic(world *w, sim_host *h, int host, int i)
{
    char net[ADDRESS], nic[ADDRESS], address[64];
    uint64_t dice = sim_random(w->net);
    int number = (int)(dice % 3), which = (int)(dice / 3 % 3), own = dice / 9 % 4 ? host + 1 : 1;
    snprintf(net, sizeof net, "net %d", which);
    snprintf(nic, sizeof nic, "eth%d", i);
    switch (dice / 36 % 6) {
    case 0: snprintf(address, sizeof address, "192.168.%d.%d/24", number, own); break;
    case 1: snprintf(address, sizeof address, "fd00:%d::%d/64", number, own); break;
    case 2: snprintf(address, sizeof address, "fe80::%d:%d/64", i, own); break;
    case 3: snprintf(address, sizeof address, "2001:db8:%d::%d/64", number, own); break;
    case 4: snprintf(address, sizeof address, "198.18.%d.%d/24", number, own); break;
    default:
        snprintf(address, sizeof address, "172.17.0.1/16");
        snprintf(net, sizeof net, "bridge of %d", host);
    }
    sim_nic *n = sim_nic_new(h, nic, sim_net_new(w->net, net, 50000), address, (1 + (int)(dice / 216 % 10)) * 100 * MEGABIT);
    if (dice / 2160 % 4 == 0) {
        snprintf(address, sizeof address, "10.77.%d.%d/24", which, own);
        sim_nic_address(n, address, 0);
    }
    if (dice / 8640 % 8 == 0)
        sim_nic_cut(n);
}

static world *draw(uint64_t seed)
{
    world *w = world_new("10.1.0.1:5000");
    sim_free(w->net);
    w->net = sim_new(seed);
    sim_calm(w->net);
    sim_site *site[2] = { sim_site_new(w->net, "a", 50000), sim_site_new(w->net, "b", 50000) };
    bool nat = sim_random(w->net) % 2;
    int hosts = 2 + (int)(sim_random(w->net) % 5);
    for (int i = 0; i < hosts; i++) {
        int s = (int)(sim_random(w->net) % 2);
        sim_host *h = lan_host(site[s], s ? 'b' : 'a', s ? "10.2.0" : "10.1.0", i + 1);
        for (int nics = (int)(sim_random(w->net) % 4), k = 1; k <= nics; k++)
            draw_nic(w, h, i, k);
        for (int ranks = 1 + (sim_random(w->net) % 4 == 0); ranks > 0; ranks--)
            add(w, h);
        if (i == 0 && s)
            w->root = "10.2.0.1:5000";
        if (sim_random(w->net) % 3 == 0)
            sim_host_gate(h, 0);
        sim_host_strict(h, sim_random(w->net) % 3 == 0);
        sim_host_hide_routes(h, sim_random(w->net) % 4 == 0);
        sim_host_forbid_binding(h, sim_random(w->net) % 4 == 0);
    }
    sim_wan(site[0], site[1], 5000000, 100 * MEGABIT);
    if (nat)                                /* before the site that rank 0 is not in */
        sim_nat_new(site[w->root[3] == '1'], "203.0.113.9", 0, SIM_DROP);
    w->bulk = sim_random(w->net) % 2;
    return w;
}

/* The LANs do connect everybody; all else may or may not. */
static void test_drawn(void **state)
{
    const char *seed = getenv("GCT_SEED"), *rounds = getenv("GCT_ROUNDS");
    uint64_t first = seed ? strtoull(seed, NULL, 0) : 1, count = rounds ? strtoull(rounds, NULL, 0) : 12;
    (void)state;
    for (uint64_t i = 0; i < count; i++) {
        world *w = draw(first + i);
        spawn(w);
        int verdict = sim_run(w->net);
        for (int r = 0; r < w->ranks; r++)
            if (verdict || w->rank[r].code || w->rank[r].failed || w->rank[r].started > 8 * GCI_SECOND)
                print_error("GCT_SEED=%llu GCT_ROUNDS=1: verdict %d\n", (unsigned long long)(first + i), verdict);
        assert_works(w, 8 * GCI_SECOND);
        world_free(w);
    }
}

/* ---- main ----------------------------------------------------------------------------------------------------------------- */

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bridges), cmocka_unit_test(test_bridges_of_many), cmocka_unit_test(test_labs),
        cmocka_unit_test(test_labs_without_gates), cmocka_unit_test(test_somebody_else),
        cmocka_unit_test(test_death_beside_silence), cmocka_unit_test(test_link_local),
        cmocka_unit_test(test_only_where_it_was_joined), cmocka_unit_test(test_moved), cmocka_unit_test(test_mapped_port),
        cmocka_unit_test(test_mapped_ports_of_one_host), cmocka_unit_test(test_advertised_own),
        cmocka_unit_test(test_families_of_many), cmocka_unit_test(test_nothing_between),
        cmocka_unit_test(test_drawn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
