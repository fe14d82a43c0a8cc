/* test_start.c: starts in trouble, on the simulated network: ranks that stop or die in every phase, strangers, dead ways.
 * SPDX-License-Identifier: MIT
 *
 * A start has phases of a few milliseconds: join, cards, fetch, links, READY, TRY, GO. The trouble is put at one instant after
 * another, so that each phase gets its share, whichever instants it has.
 */
#include "simnet.h"
#include "../gct.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include <errno.h>

enum { RANKS = 6, RANKS_MAX = 240, ALONE_AMONG = 220, START_S = 20, PEER_S = 5, PORT = 4000 };

/* What happened to each rank of a start. */
typedef struct start {
    int         victim;
    int64_t     when, away;         /* away: stopped for so long; 0: killed */
    bool        host;               /* killed with its host */
    bool        mute;
    double      timeout, density;   /* s; of links */
    const char *root;               /* for all but rank 0 */
    sim        *network;
    sim_host   *root_host;
    void      (*arrange)(sim *, sim_proc **, int ranks, void *start);   /* NULL: the victim */
    int       (*run)(gc_comm *, int rank, int size, void *start);       /* NULL: start_run */
    int         code[RANKS_MAX];    /* 1: none */
    char        text[RANKS_MAX][GCI_TEXT];
    int64_t     at[RANKS_MAX];      /* when the outcome came */
} start;

static void start_options(gc_options *o, int rank, void *arg)
{
    const start *s = arg;
    (void)rank;
    o->start_timeout = s->timeout > 0 ? s->timeout : START_S;
    o->peer_timeout = PEER_S;
    o->link_density = s->density;
    if (s->root && rank > 0)
        o->root = s->root;
}

static void start_outcome(start *s, int rank, int code, const char *text)
{
    gci_sys *sys = sim_sys(sim_current());
    s->code[rank] = code;
    s->at[rank] = sys->now(sys);
    snprintf(s->text[rank], GCI_TEXT, "%s", text);
}

static void start_refused(int rank, int code, const char *text, void *arg) { start_outcome(arg, rank, code, text); }

/* How the job ends is no matter here. */
static int start_run(gc_comm *world, int rank, int size, void *arg)
{
    (void)size;
    start_outcome(arg, rank, GC_OK, "");
    gc_abort(world, 1);
    gc_finalize(world);
    return 0;
}

static void arrange_victim(sim *network, sim_proc **procs, int ranks, void *arg)
{
    start *s = arg;
    (void)network, (void)ranks;
    if (s->host) {
        sim_kill_host_at(sim_proc_host(procs[s->victim]), s->when);
    } else if (s->away) {
        sim_stop_proc_at(procs[s->victim], s->when);
        sim_continue_proc_at(procs[s->victim], s->when + s->away);
    } else {
        sim_kill_proc_at(procs[s->victim], s->when);
    }
}

static int run(start *s, gct_spec spec)
{
    gct_outcome outcome;
    spec.on = GCT_ON_SIM;
    spec.calm = true;
    spec.seed = 3;
    spec.options = start_options;
    spec.refused = start_refused;
    spec.arrange = s->arrange ? s->arrange : arrange_victim;
    spec.finalizes = true;
    spec.outcome = &outcome;
    for (int r = 0; r < RANKS_MAX; r++)
        s->code[r] = 1;
    return gct_job(&spec, s->run ? s->run : start_run, s);
}

/* ---- ranks that stop or die ------------------------------------------------------------------------------------------ */

/* Two sites that are open; and three of which two are closed to each other, so that rank 0 has links tried (TRY). */
static const gct_place open_sites[] = { { .ranks = 3 }, { .ranks = 3 } };
static const gct_place walls[] = { { .ranks = 2 }, { .ranks = 2, .wall = GCT_REFUSE }, { .ranks = 2, .wall = GCT_REFUSE } };
static const struct layout { const gct_place *places; int64_t until, step; } layouts[] = {
    { open_sites, 150 * GCI_NS_PER_MS, GCI_NS_PER_MS / 2 }, { walls, 1400 * GCI_NS_PER_MS, 4 * GCI_NS_PER_MS }
};

static void describe(const start *s, int r)
{
    print_error("rank %d%s, at %lld us for %lld s: rank %d after %lld ms: %d %s\n", s->victim, s->host ? " with its host" : "",
                (long long)s->when / 1000, (long long)(s->away / GCI_SECOND), r, (long long)(s->at[r] / GCI_NS_PER_MS),
                s->code[r], s->text[r]);
}

/* One rank does not run for longer than any patience with a connection, and then goes on: the job starts. */
static void test_stopped(void **state)
{
    (void)state;
    int bad = 0;
    for (size_t i = 0; i < GCI_COUNT(layouts); i++)
        for (int victim = 0; victim < RANKS; victim += victim ? 3 : 1)
            for (int64_t when = 0; when < layouts[i].until; when += layouts[i].step) {
                if (!gct_drawn())
                    continue;
                start s = { .victim = victim, .when = when, .away = 7 * GCI_SECOND };
                int failed = run(&s, (gct_spec){ .ranks = RANKS, .places = layouts[i].places });
                for (int r = 0; r < RANKS; r++)
                    if (s.code[r] != GC_OK && ++failed == 1)
                        describe(&s, r);
                bad += failed;
            }
    assert_int_equal(bad, 0);
}

/* Of those that live all start or none does, but for those whom rank 0 had no time to tell; and all hear why in time. */
static int judge_death(const start *s)
{
    int started = 0, refused = 0, wrong = 0;
    for (int r = 0; r < RANKS; r++) {
        bool named = strstr(s->text[r], "rank") != NULL;
        if (r == s->victim)
            continue;
        started += s->code[r] == GC_OK;
        refused += s->code[r] < 0;
        if (s->code[r] > 0 || (s->code[r] < 0 && (s->at[r] > (START_S + 1) * GCI_SECOND || !named)))
            wrong++, describe(s, r);
        /* a kernel's time-out begins anew with what is sent meanwhile */
        if (strstr(s->text[r], "died") && s->at[r] > s->when + (s->host ? 2 * PEER_S : 1) * GCI_SECOND)
            wrong++, describe(s, r);
    }
    return wrong + (started && refused && s->victim != 0);
}

static void test_killed(void **state)
{
    (void)state;
    int bad = 0;
    for (size_t i = 0; i < GCI_COUNT(layouts); i++)
        for (int kind = 0; kind < 6; kind++)
            for (int64_t when = 0; when < layouts[i].until; when += layouts[i].step) {
                if (!gct_drawn())
                    continue;
                start s = { .victim = kind % 3 ? 3 * (kind % 3) - 2 : 0, .when = when, .host = kind >= 3 };
                int failed = run(&s, (gct_spec){ .ranks = RANKS, .places = layouts[i].places });
                bad += failed + judge_death(&s);
            }
    assert_int_equal(bad, 0);
}

/* ---- names and addresses -------------------------------------------------------------------------------------------- */

static void nothing(sim *network, sim_proc **procs, int ranks, void *arg)
{
    (void)network, (void)procs, (void)ranks, (void)arg;
}

static void assert_started(const start *s, int ranks, int64_t within)
{
    for (int r = 0; r < ranks; r++)
        if (s->code[r] != GC_OK || s->at[r] > within)
            fail_msg("rank %d after %lld ms: %d %s", r, (long long)(s->at[r] / GCI_NS_PER_MS), s->code[r], s->text[r]);
}

/* Eleven addresses that nobody answers at, before the one that counts: the last is tried within a second. */
static void test_black_holes(void **state)
{
    char root[512] = "";
    size_t n = 0;
    (void)state;
    for (int i = 1; i < 12; i++)
        n += (size_t)snprintf(root + n, sizeof root - n, "10.99.0.%d:%d,", i, PORT);
    snprintf(root + n, sizeof root - n, "10.1.0.1:%d", PORT);
    start s = { .root = root, .arrange = nothing };
    assert_int_equal(run(&s, (gct_spec){ .ranks = RANKS }), 0);
    assert_started(&s, RANKS, 1300 * GCI_NS_PER_MS);
}

/* Rank 0 of another job, with another key: it waits for its own ranks. */
static void other_job(sim_proc *p, void *arg)
{
    gc_options o = GRIDCOMM_OPTIONS_INIT;
    gc_comm *world;
    (void)arg;
    o.alloc = sim_alloc;
    o.alloc_user = p;
    o.rank = 0;
    o.ranks = RANKS;
    o.root = "10.1.0.2:4000";
    o.key = "of another job";
    o.start_timeout = START_S;
    (void)gci_open(&world, &o, sim_sys(p));
}

/* As if rank 0 had not begun yet. */
static enum sim_verdict not_yet(void *user, sim_host *from, sim_host *to, uint16_t port)
{
    const start *s = user;
    (void)from, (void)port;
    return to == s->root_host && sim_now(s->network) < s->when ? SIM_REFUSE : SIM_PASS;
}

static void late_root_beside_another(sim *network, sim_proc **procs, int ranks, void *arg)
{
    start *s = arg;
    (void)ranks;
    s->network = network;
    s->root_host = sim_proc_host(procs[0]);
    sim_firewall(network, not_yet, s);
    sim_spawn(sim_proc_host(procs[1]), "stranger", other_job, NULL);
}

/* The first address is another job's now; at the second rank 0 has not begun yet. Who waits for it finds it. If it does not
 * come, the reason is named soon. */
static void test_another_job(void **state)
{
    (void)state;
    start s = { .root = "10.1.0.2:4000,10.1.0.1:4000", .arrange = late_root_beside_another, .when = 2 * GCI_SECOND };
    assert_int_equal(run(&s, (gct_spec){ .ranks = RANKS }), 0);
    assert_started(&s, RANKS, 3 * GCI_SECOND);

    start never = { .root = s.root, .arrange = late_root_beside_another, .when = 15 * GCI_SECOND };
    run(&never, (gct_spec){ .ranks = RANKS });
    for (int r = 1; r < RANKS; r++) {       /* rank 1 has the first address itself, and so tries it last */
        assert_int_equal(never.code[r], GC_ERR_AUTH);
        assert_non_null(strstr(never.text[r], r == 1 ? "rank 0 at 10.1.0.1:4000: Connection refused; 10.1.0.2:4000: wrong key"
                                                     : "rank 0 at 10.1.0.2:4000: wrong key; 10.1.0.1:4000: Connection refused"));
        assert_true(never.at[r] < 7 * GCI_SECOND);
    }
}

/* A name server that learns where rank 0 is only after 3 s, beside an address that is of no use. */
static int (*resolve_really)(gci_sys *, const char *, uint16_t, gci_addr *, int);

static int resolve_later(gci_sys *sys, const char *name, uint16_t port, gci_addr *out, int max)
{
    if (strcmp(name, "root.example") != 0)
        return resolve_really(sys, name, port, out, max);
    return sys->now(sys) < 3 * GCI_SECOND ? -ENXIO : resolve_really(sys, "10.1.0.1", port, out, max);
}

static void names_later(sim *network, sim_proc **procs, int ranks, void *arg)
{
    (void)network, (void)arg;
    for (int r = 0; r < ranks; r++) {
        resolve_really = sim_sys(procs[r])->resolve;
        sim_sys(procs[r])->resolve = resolve_later;
    }
}

static void test_name_comes_later(void **state)
{
    (void)state;
    start s = { .root = "10.1.0.2:4000,root.example:4000", .arrange = names_later };
    assert_int_equal(run(&s, (gct_spec){ .ranks = RANKS }), 0);
    assert_started(&s, RANKS, 6 * GCI_SECOND);
}

/* Each of 16 name servers takes 4 s to say that it knows nothing: the start still ends in time, but for the one at which its
 * time runs out. */
static int resolve_slowly(gci_sys *sys, const char *name, uint16_t port, gci_addr *out, int max)
{
    (void)sys, (void)name, (void)port, (void)out, (void)max;
    sim_sleep(sim_current(), 4 * GCI_SECOND);
    return -EAGAIN;
}

static void names_slowly(sim *network, sim_proc **procs, int ranks, void *arg)
{
    (void)network, (void)arg;
    for (int r = 1; r < ranks; r++)
        sim_sys(procs[r])->resolve = resolve_slowly;
}

static void test_slow_names(void **state)
{
    (void)state;
    const char *root = "a:1,b:1,c:1,d:1,e:1,f:1,g:1,h:1,i:1,j:1,k:1,l:1,m:1,n:1,o:1,p:1";
    start s = { .root = root, .arrange = names_slowly, .timeout = 6 };
    run(&s, (gct_spec){ .ranks = RANKS });
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(s.code[r], GC_ERR_TIMEOUT);
        assert_true(s.at[r] <= 9 * GCI_SECOND);
    }
    assert_non_null(strstr(s.text[1], "rank 0 was not found within 6 s"));
}

/* ---- who is at one site --------------------------------------------------------------------------------------------- */

static void without_gates(sim *network, sim_proc **procs, int ranks, void *arg)
{
    (void)network;
    for (int r = 0; r < ranks && ((start *)arg)->victim; r++)
        sim_host_gate(sim_proc_host(procs[r]), 0);
}

static int sites_run(gc_comm *world, int rank, int size, void *arg)
{
    const gci_table *t = world->world->table;
    uint64_t site[RANKS];
    for (int r = 0; r < size; r++)
        site[r] = t->host[t->card[r].host].site;
    for (int r = 0; r < size; r += 2) {
        assert_true(site[r] && site[r] == site[r + 1]);
        assert_true(r == 0 || site[r] & GCI_SITE_NAT);
        for (int o = 0; o < r; o++)
            assert_true(site[o] != site[r]);
    }
    return start_run(world, rank, size, arg);
}

/* Rank 0's, behind a NAT or not, and two behind NATs: known by their gates, or by where rank 0 saw them. */
static void test_sites(void **state)
{
    static const gct_place open[] = { { .ranks = 2 }, { .ranks = 2, .nat = true }, { .ranks = 2, .nat = true } };
    static const gct_place closed[] = { { .ranks = 2, .nat = true }, { .ranks = 2, .nat = true }, { .ranks = 2, .nat = true } };
    (void)state;
    for (int round = 0; round < 4; round++) {
        start s = { .victim = round & 1, .arrange = without_gates, .run = sites_run };
        assert_int_equal(run(&s, (gct_spec){ .ranks = RANKS, .places = round & 2 ? closed : open }), 0);
        assert_started(&s, RANKS, 5 * GCI_SECOND);
    }
}

/* ---- a file of links ------------------------------------------------------------------------------------------------ */

/* Who has which file: that of rank 0, of the rank on host a2 (which runs ssh), of all others. */
typedef struct links_case { start s; const char *root, *a2, *others; int spawned, elsewhere; } links_case;

static const gct_place closed_sites[] = { { .ranks = 3, .wall = GCT_REFUSE, .port_first = PORT, .port_last = PORT },
                                          { .ranks = 3, .wall = GCT_REFUSE } };

static void links_options(gc_options *o, int rank, void *arg)
{
    const links_case *c = arg;
    start_options(o, rank, arg);
    o->links = rank == 0 ? c->root : rank == 1 ? c->a2 : c->others;
}

static int links_spawn(void *user, sim_proc *by, char *const argv[], sim_host **from, gci_addr *to)
{
    links_case *c = user;
    int n = 0, port = 0;
    while (argv[n])
        n++;
    for (int i = 0; i + 1 < n; i++)
        if (strcmp(argv[i], "-W") == 0 && sscanf(argv[i + 1], "127.0.0.1:%5d", &port) != 1)
            port = 0;
    c->spawned++;
    c->elsewhere += strcmp(sim_host_name(sim_proc_host(by)), "a2") != 0 || strcmp(argv[n - 1], "me@b1") != 0;
    *from = c->s.root_host;
    to->port = (uint16_t)port;
    return gci_addr_parse("127.0.0.1", to) == GC_OK && port ? 0 : -EINVAL;
}

static void links_arrange(sim *network, sim_proc **procs, int ranks, void *arg)
{
    links_case *c = arg;
    (void)ranks;
    c->s.root_host = sim_proc_host(procs[3]);       /* where sshd is: b1 */
    sim_on_spawn(network, links_spawn, c);
}

static void run_links(links_case *c)
{
    gct_outcome outcome;
    gct_spec spec = { .ranks = RANKS, .places = closed_sites, .on = GCT_ON_SIM, .calm = true, .seed = 3, .finalizes = true,
                      .options = links_options, .refused = start_refused, .arrange = links_arrange, .outcome = &outcome };
    gct_job(&spec, start_run, c);
}

static void test_links_file(void **state)
{
    char path[] = "/tmp/gct_links_XXXXXX";
    int fd = mkstemp(path);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    const char *none = "/nonexistent/links";
    links_case known = { .root = path, .a2 = none, .others = none }, own = { .a2 = path }, nowhere = { .a2 = none };
    links_case root_lacks = { .root = none, .a2 = path };
    (void)state;
    assert_non_null(file);
    fprintf(file, "# the way in\nrequire a2 b1 via=ssh user=me # by its gate\n");
    fclose(file);
    run_links(&known);
    run_links(&own);
    run_links(&nowhere);
    run_links(&root_lacks);
    remove(path);
    assert_started(&known.s, RANKS, 5 * GCI_SECOND);        /* rank 0's file is enough, whatever the others' variable names */
    assert_true(known.spawned > 0 && known.elsewhere == 0);
    assert_started(&own.s, RANKS, 5 * GCI_SECOND);          /* so is that of who runs ssh */
    assert_true(own.spawned > 0 && own.elsewhere == 0);
    for (int r = 0; r < RANKS; r++) {                       /* nobody has it: that is no "no such lines" */
        assert_int_equal(nowhere.s.code[r], GC_ERR_CONFIG);
        assert_non_null(strstr(nowhere.s.text[r], "rank 1: the file that GRIDCOMM_LINKS names cannot be opened"));
        assert_int_equal(root_lacks.s.code[r], r ? GC_ERR_TIMEOUT : GC_ERR_CONFIG);
    }
}

/* ---- strangers ------------------------------------------------------------------------------------------------------ */

enum { FLOOD_EACH_MS = 2, FLOOD_S = 15, FLOOD_BEGINS_S = 6 };

/* 2,000 connections a second that stay, and begin as a rank would, or say nothing. */
static void flood(sim_proc *p, void *arg)
{
    gci_sys *sys = sim_sys(p);
    gci_shake_self self = { .rank = 1, .ranks = RANKS, .key = (const uint8_t *)"guess", .key_bytes = 5 };
    gci_shake shake;
    gci_addr root;
    bool mute = ((const start *)arg)->mute;
    int *fd = calloc(FLOOD_S * 1000 * FLOOD_EACH_MS, sizeof *fd), n = 0, said = 0;
    gci_shake_connect(&shake, &self, GCI_PURPOSE_JOIN, 0, 0, 0, (const uint8_t[GCI_NONCE_BYTES]){ 0 });
    gci_addr_parse("10.1.0.1", &root);
    root.port = PORT;
    for (int ms = 0; fd && ms < FLOOD_S * 1000; ms++, sim_sleep(p, GCI_NS_PER_MS)) {
        for (int i = 0; i < FLOOD_EACH_MS; i++)
            if ((fd[n] = sys->connect(sys, &root, NULL, 0)) >= 0)
                n++;
        for (; !mute && said < n && sys->connected(sys, fd[said]) != -EINPROGRESS; said++)
            (void)sys->send(sys, fd[said], &(struct iovec){ shake.out, GCI_HELLO_BYTES }, 1);
    }
    for (int i = 0; i < n; i++)
        sys->close(sys, fd[i]);
    free(fd);
}

static void flooded(sim *network, sim_proc **procs, int ranks, void *arg)
{
    sim_tune(network)->backlog = 4096;
    sim_tune(network)->fd_limit = 2 * FLOOD_S * 1000 * FLOOD_EACH_MS;
    sim_spawn(sim_proc_host(procs[1]), "flood", flood, arg);
    for (int r = 1; r < ranks; r++) {
        sim_stop_proc_at(procs[r], 0);
        sim_continue_proc_at(procs[r], FLOOD_BEGINS_S * GCI_SECOND);
    }
}

static void test_flood(void **state)
{
    (void)state;
    for (int mute = 0; mute < 2; mute++) {
        start s = { .arrange = flooded, .mute = mute };
        assert_int_equal(run(&s, (gct_spec){ .ranks = RANKS, .sites = 2 }), 0);
        assert_started(&s, RANKS, (FLOOD_BEGINS_S + 4) * GCI_SECOND);
    }
}

/* ---- those who know the key and speak nonsense ------------------------------------------------------------------------ */

enum { LIAR_ROUNDS = 150, LIAR_FRAMES = 40 };

typedef struct liar { start s; uint64_t seed; } liar;

static uint64_t draw(liar *l, uint64_t below) { return gct_random(&l->seed) % below; }

/* A frame that nearly makes sense: of any kind, with numbers that are small, large, or of some rank. */
static size_t lie(liar *l, uint8_t *out)
{
    static const size_t lengths[] = { 0, 3, 4, 5, 8, 8, 16, 44, 48, 300, GCI_FRAME_MAX };
    static const uint8_t usual[2][4] = { { GCI_FRAME_TABLE, GCI_FRAME_PART, GCI_FRAME_TRY, GCI_FRAME_GO },
                                         { GCI_FRAME_READY, GCI_FRAME_NOTE, GCI_FRAME_TRIED, GCI_FRAME_MISSED } };
    size_t bytes = lengths[draw(l, GCI_COUNT(lengths))];
    out[0] = (uint8_t)(draw(l, 20) ? usual[l->s.victim > 0][draw(l, 4)] : draw(l, GCI_FRAME_CALL + 3));
    out[1] = (uint8_t)(draw(l, 3) ? draw(l, 3) : draw(l, 256));
    gci_put16(out + 2, (uint16_t)(draw(l, 99) ? bytes : 0xffff));
    for (size_t at = 0; at < bytes; at += 4) {
        uint8_t word[4];
        gci_put32(word, (uint32_t)(draw(l, 4) ? draw(l, RANKS + 1) : draw(l, UINT64_C(1) << 32)));
        memcpy(out + GCI_FRAME_HEAD + at, word, gci_min(4, bytes - at));
    }
    return GCI_FRAME_HEAD + bytes;
}

/* The rest of a handshake on a connection, waiting without a poller. */
static bool prove(sim_proc *p, int fd, gci_shake *shake)
{
    gci_sys *sys = sim_sys(p);
    uint8_t in[GCI_CHALLENGE_BYTES];
    for (int patience = 0; patience < 1000; patience++) {
        if (shake->out_bytes && sys->send(sys, fd, &(struct iovec){ shake->out, shake->out_bytes }, 1) == (ssize_t)shake->out_bytes)
            shake->out_bytes = 0;
        if (shake->state == GCI_SHAKE_DECIDES) {
            gci_shake_decide(shake, GCI_REFUSE_NOT);
            continue;
        }
        if (!shake->out_bytes && shake->state >= GCI_SHAKE_DONE)
            return shake->state == GCI_SHAKE_DONE;
        ssize_t n = gci_shake_wants(shake) ? sys->recv(sys, fd, &(struct iovec){ in, gci_shake_wants(shake) }, 1) : -EAGAIN;
        if (n == 0 || (n < 0 && n != -EAGAIN))
            return false;
        if (n > 0)
            gci_shake_feed(shake, in, (size_t)n);
        else
            sim_sleep(p, GCI_NS_PER_MS);
    }
    return false;
}

static void tell_lies(sim_proc *p, liar *l, int fd)
{
    gci_sys *sys = sim_sys(p);
    uint8_t frame[GCI_FRAME_HEAD + GCI_FRAME_MAX + 4];
    for (int i = 0; i < LIAR_FRAMES; i++) {
        size_t bytes = lie(l, frame);
        if (sys->send(sys, fd, &(struct iovec){ frame, bytes }, 1) < 0)
            break;
        sim_sleep(p, (int64_t)draw(l, 20) * GCI_NS_PER_MS);
    }
}

static gci_shake_self liar_self(int rank)
{
    return (gci_shake_self){ .rank = rank, .ranks = RANKS, .key = (const uint8_t *)"the key", .key_bytes = 7, .job = rank ? 0 : 7 };
}

/* As rank 5, who comes first. */
static void lying_joiner(sim_proc *p, void *arg)
{
    gci_sys *sys = sim_sys(p);
    gci_shake_self self = liar_self(5);
    gci_shake shake;
    gci_addr root;
    gci_addr_parse("10.1.0.1", &root);
    root.port = PORT;
    sim_sleep(p, 5 * GCI_NS_PER_MS);
    int fd = sys->connect(sys, &root, NULL, 0);
    gci_shake_connect(&shake, &self, GCI_PURPOSE_JOIN, 0, 0, 0, (const uint8_t[GCI_NONCE_BYTES]){ 1 });
    while (fd >= 0 && sys->connected(sys, fd) == -EINPROGRESS)
        sim_sleep(p, GCI_NS_PER_MS);
    if (fd >= 0 && prove(p, fd, &shake)) {
        uint8_t frame[GCI_FRAME_HEAD + 4 + GCI_CARD_BYTES_MAX];
        gci_full_card card;
        gci_ifaddr none;
        gci_card_fill(&card, "a host", "host", "", 9, &none, 0);
        size_t bytes = 4 + gci_card_encode(&card, frame + GCI_FRAME_HEAD + 4);
        frame[0] = GCI_FRAME_CARD;
        frame[1] = 0;
        gci_put16(frame + 2, (uint16_t)bytes);
        gci_put32(frame + GCI_FRAME_HEAD, 60000);
        if (draw(arg, 4))               /* most get beyond the card, to say nonsense in later phases */
            (void)sys->send(sys, fd, &(struct iovec){ frame, GCI_FRAME_HEAD + bytes }, 1);
        sim_sleep(p, (int64_t)draw(arg, 400) * GCI_NS_PER_MS);
        tell_lies(p, arg, fd);
    }
    if (fd >= 0)
        sys->close(sys, fd);
}

/* As rank 0: one joiner after another is told nonsense. */
static void lying_root(sim_proc *p, void *arg)
{
    gci_sys *sys = sim_sys(p);
    gci_shake_self self = liar_self(0);
    gci_addr at = { .family = 6, .port = PORT }, from;
    int listener = sys->listen(sys, &at);
    for (int ms = 0; listener >= 0 && ms < 3000; ms++, sim_sleep(p, GCI_NS_PER_MS)) {
        int fd = sys->accept(sys, listener, &from);
        gci_shake shake;
        if (fd < 0)
            continue;
        gci_shake_accept(&shake, &self, (const uint8_t[GCI_NONCE_BYTES]){ 2 });
        if (prove(p, fd, &shake))
            tell_lies(p, arg, fd);
        sys->close(sys, fd);
    }
    if (listener >= 0)
        sys->close(sys, listener);
}

/* The liar stands in for one rank, which itself is kept away. */
static void with_liar(sim *network, sim_proc **procs, int ranks, void *arg)
{
    liar *l = arg;
    (void)network, (void)ranks;
    sim_kill_proc_at(procs[l->s.victim], 0);
    sim_spawn(sim_proc_host(procs[l->s.victim]), "liar", l->s.victim ? lying_joiner : lying_root, l);
}

static void liar_options(gc_options *o, int rank, void *arg)
{
    start_options(o, rank, arg);
    o->key = "the key";
}

/* Whatever is said, everybody else's start fails in time with a reason, and nothing is left. */
static void test_liars(void **state)
{
    (void)state;
    for (int round = 0; round < LIAR_ROUNDS; round++) {
        liar l = { .s = { .victim = round % 2 ? 5 : 0, .timeout = 4 }, .seed = 1000 + (uint64_t)round };
        gct_outcome outcome;
        gct_spec spec = { .ranks = RANKS, .on = GCT_ON_SIM, .calm = true, .seed = 3, .finalizes = true, .options = liar_options,
                          .refused = start_refused, .arrange = with_liar, .outcome = &outcome };
        for (int r = 0; r < RANKS_MAX; r++)
            l.s.code[r] = 1;
        assert_int_equal(gct_job(&spec, start_run, &l), 0);
        for (int r = 0; r < RANKS; r++)
            if (r != l.s.victim && (l.s.code[r] >= 0 || !l.s.text[r][0] || l.s.at[r] > 5 * GCI_SECOND))
                fail_msg("round %d, rank %d after %lld ms: %d %s", round, r, (long long)(l.s.at[r] / GCI_NS_PER_MS), l.s.code[r],
                         l.s.text[r]);
    }
}

/* ---- size ----------------------------------------------------------------------------------------------------------- */

/* More links cannot be had than a stream holds entries of: GO goes out in several pieces. */
static void test_long_go(void **state)
{
    static const gct_place places[] = { { .ranks = 2 }, { .ranks = 40, .wall = GCT_REFUSE },
                                        { .ranks = 40, .wall = GCT_REFUSE } };
    enum { MANY = 82 };
    start s = { .arrange = nothing, .density = 1 };
    (void)state;
    assert_int_equal(run(&s, (gct_spec){ .ranks = MANY, .places = places }), 0);
    assert_started(&s, MANY, 10 * GCI_SECOND);
}

/* One host is let out to rank 0's port alone, and nobody in. So many other links are tried meanwhile that more end in one instant
 * than a stream has room for; and the link to rank 0, which can be had, comes last. */
static void test_alone(void **state)
{
    static const gct_place places[] = { { .ranks = ALONE_AMONG - 1, .families = "46" },
                                        { .ranks = 1, .families = "46", .wall = GCT_DROP, .not_to = 1 } };
    start s = { .arrange = nothing };
    (void)state;
    assert_int_equal(run(&s, (gct_spec){ .ranks = ALONE_AMONG, .places = places }), 0);
    assert_started(&s, ALONE_AMONG, 30 * GCI_SECOND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stopped), cmocka_unit_test(test_killed), cmocka_unit_test(test_black_holes),
        cmocka_unit_test(test_another_job), cmocka_unit_test(test_name_comes_later), cmocka_unit_test(test_slow_names),
        cmocka_unit_test(test_sites),
        cmocka_unit_test(test_links_file), cmocka_unit_test(test_liars), cmocka_unit_test(test_flood), cmocka_unit_test(test_long_go),
        cmocka_unit_test(test_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
