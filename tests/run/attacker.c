/* attacker.c: a job under attack, once for each attack of a table, on real loopback or on a test bed: honest ranks that work and
 * look at every byte, and beside them a stranger, who does not have the job's key, or a liar, who has it and is a rank.
 * SPDX-License-Identifier: MIT
 *
 * usage: attacker [--bed DIR HOST ADDRESS ...] [WORD...]
 *
 * The attacks whose name has one of the words, or all: one line for each, then the totals. --bed: on the hosts of a test bed
 * (tests/net/bed), whose directory and IPv4 addresses these are: of each of four ranks, and of the stranger. ATTACKER_SEE=1: what
 * each rank met, too.
 *
 * Three ranks are honest whatever happens: they exchange messages and reduce, all checked, until the attack is over and some
 * rounds beyond. Each has a receive open from rank 3, and a long send to it: what the liar's packets can do something to.
 * Strangers attack while all four ranks are honest. The liar has joined by the library's own start and is a raw mouth from then on:
 * it writes packets into the sockets that the library handed it, and frames into its control connections, whose thread rests.
 *
 * Whatever was done: no rank crashes, no operation hangs, and no byte is wrong. What else must hold says the table:
 *   UNHARMED   nobody meets an error, and the job ends as ever
 *   IGNORED    the honest ranks meet no error among themselves; the liar is met as dead when its process ends
 *   BLAMED     the same, but the victim's operations with the liar have ended before: GC_ERR_PROTOCOL, the liar at fault
 *   GONE       the same, but the liar is met as dead (GC_ERR_PEER) although its process lives
 *   BELIEVED   whoever has the key may say that others died: honest ranks may meet GC_ERR_PEER, or an abort
 *   NO_START   gc_init fails at every honest rank, in time, with GC_ERR_PROTOCOL and a text that names the liar
 * and memory, which only grows by what the table allows.
 */
#define _GNU_SOURCE
#include "gridcomm_int.h"
#include "../port.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 4, HONEST = 3, VICTIM = 0, LIAR = 3,
       LIMIT_S = 40,                    /* of one attack; no process outlives it */
       PEER_TIMEOUT_S = 2, SLOW_MS = 4000,          /* a round of honest ranks, with a verdict in it */
       TAKEN_S = 15, PUT_MS = 2000,     /* until what involves the liar ends; until a socket takes more */
       ROUNDS_BEFORE = 5, ROUNDS_AFTER = 20,
       TRAP_TAG = 1, TRAP_BYTES = 4096, BAIT_TAG = 7, BAIT_BYTES = 300000, LONGEST = 100000,
       CREDITS = 16, SPARE_KIB = 512,
       STRANGERS = 60 };                /* connections at once to each port */

static const char key[] = "of the job";

enum outcome { UNHARMED, IGNORED, BLAMED, GONE, BELIEVED, NO_START };
static const char *const outcome_name[] = { "unharmed", "ignored", "blamed", "gone", "believed", "no start" };

/* What the processes of one job tell each other. */
typedef struct seen {
    int         init, work, work_fault, trap, trap_fault, bait, bait_fault, end;
    long        rounds, slowest_ms;
    bool        wrong, done;
    size_t      before, most;           /* bytes of memory: after the first rounds, and at the most from then on */
    char        text[GCI_TEXT];
} seen;
typedef struct board {
    atomic_int  ready, in_place, over, trapped, ended;
    int         root;                   /* the port of rank 0 */
    int         port[RANKS];
    uint64_t    job;
    uint32_t    context;                /* of the honest ranks' communicator */
    seen        rank[RANKS];
} board;
static board *b;

/* Where each rank is, and a stranger. */
static const char *bed;                 /* the directory of a test bed; NULL: all are on loopback */
static const char *host[RANKS + 1], *address[RANKS + 1] = { "127.0.0.1", "127.0.0.1", "127.0.0.1", "127.0.0.1", "127.0.0.1" };

/* From here on this process is on its host. */
static bool enter(int rank)
{
    static const struct { const char *name; int type; } space[] = { { "net", CLONE_NEWNET }, { "uts", CLONE_NEWUTS } };
    bool in = true;
    for (size_t i = 0; bed && in && i < GCI_COUNT(space); i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/%s.%s", bed, host[rank], space[i].name);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        in = fd >= 0 && setns(fd, space[i].type) == 0;
        close(fd);
    }
    return in;
}

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void pause_ms(long ms)
{
    struct timespec t = { ms / 1000, ms % 1000 * 1000000 };
    while (nanosleep(&t, &t)) { }
}

/* false: not within the limit of an attack */
static bool until(atomic_int *what, int at_least)
{
    int64_t end = now_ms() + LIMIT_S * 1000;
    while (atomic_load(what) < at_least && now_ms() < end) pause_ms(2);
    return atomic_load(what) >= at_least;
}

/* ---- an honest rank ------------------------------------------------------------------------------------------------ */

static atomic_size_t held, most_held;

static void *counted_alloc(void *user, void *old, size_t bytes)
{
    size_t *block = old ? (size_t *)old - 2 : NULL, before = block ? block[0] : 0, after, most;
    (void)user;
    if (bytes) {
        size_t *grown = realloc(block, bytes + 2 * sizeof *grown);
        if (!grown) return NULL;
        grown[0] = bytes;
        block = grown;
    } else {
        free(block);
    }
    after = atomic_fetch_add(&held, bytes - before) + bytes - before;
    most = atomic_load(&most_held);
    while (after > most && !atomic_compare_exchange_weak(&most_held, &most, after)) { }
    return bytes ? block + 2 : NULL;
}

static uint8_t byte_of(int from, int to, long nth, size_t at)
{
    return (uint8_t)(from * 31 + to * 57 + nth * 101 + (long)at * 7 + (long)(at >> 8));
}

/* One message round the ring of honest ranks, and a reduction. Returns the error, or > 0 if all have done enough. */
static int round_of(gc_comm *honest, long nth, seen *s)
{
    static const size_t sizes[] = { 1, 700, 5000, 40000, LONGEST };
    static uint8_t out[LONGEST], in[LONGEST + 1];
    size_t bytes = sizes[nth % (long)GCI_COUNT(sizes)];
    int me = gc_rank(honest), to = (me + 1) % HONEST, from = (me + HONEST - 1) % HONEST;
    int32_t mine[2] = { (int32_t)nth * (me + 1), atomic_load(&b->over) }, all[2];
    for (size_t i = 0; i < bytes; i++) out[i] = byte_of(me, to, nth, i);
    memset(in, 0x5a, sizeof in);
    int err = gc_sendrecv(honest, out, bytes, to, 0, in, LONGEST, from, 0, NULL);
    for (size_t i = 0; !err && i < sizeof in; i++) s->wrong |= in[i] != (i < bytes ? byte_of(from, me, nth, i) : 0x5a);
    if (!err) err = gc_allreduce(honest, mine, all, 2, GC_INT32, GC_SUM);
    if (!err) s->wrong |= all[0] != (int32_t)nth * (HONEST * (HONEST + 1) / 2);
    return err ? err : all[1] > 0;
}

static void work(gc_comm *honest, seen *s)
{
    int left = ROUNDS_AFTER, err = GC_OK;
    for (long nth = 0; left > 0 && err >= 0; nth++) {
        int64_t begun = now_ms();
        err = round_of(honest, nth, s);
        if (err > 0) left--;
        s->rounds++;
        if (now_ms() - begun > s->slowest_ms) s->slowest_ms = (long)(now_ms() - begun);
        if (nth + 1 == ROUNDS_BEFORE) {
            s->before = atomic_load(&most_held);
            atomic_fetch_add(&b->in_place, 1);
        }
        pause_ms(1);
    }
    if (err < 0) {
        gc_status status = { .fault_rank = -1 };
        s->work = gc_last_error(honest, &status, s->text, sizeof s->text);
        s->work_fault = status.fault_rank;
        if (s->rounds < ROUNDS_BEFORE) atomic_fetch_add(&b->in_place, 1);
    }
}

/* Ends, because in the end the liar's process dies. */
static void take_in(gc_request **request, int *code, int *fault)
{
    gc_status status = { .fault_rank = -1 };
    *code = gc_wait_for(request, TAKEN_S, &status);
    *fault = status.fault_rank;
}

static void be_honest(int rank, bool direct, bool with_liar, double start_s)
{
    static const int members[HONEST] = { 0, 1, 2 };
    static uint8_t bait[BAIT_BYTES], trap[TRAP_BYTES + 1];
    seen *s = &b->rank[rank];
    gc_options o = GRIDCOMM_OPTIONS_INIT;
    gc_comm *world = NULL, *honest = NULL;
    gc_request *caught = NULL, *sent = NULL;
    char root[64];
    snprintf(root, sizeof root, "%s:%d", address[0], b->root);
    o.rank = rank, o.ranks = RANKS, o.root = root, o.key = key;
    o.peer_timeout = PEER_TIMEOUT_S, o.start_timeout = start_s, o.credits = CREDITS, o.direct = direct;
    o.alloc = counted_alloc;
    o.error_text = s->text, o.error_text_size = sizeof s->text;
    s->init = gc_init(&world, &o);
    if (s->init) return;
    for (int r = 0; r < RANKS; r++) b->port[r] = world->world->table->card[r].port;
    b->job = world->world->table->job;
    memset(trap, 0x5a, sizeof trap);
    if (rank == LIAR) {                 /* of a job without one */
        atomic_fetch_add(&b->ready, 1);
        until(&b->trapped, HONEST);
        s->end = gc_finalize(world);
        s->done = true;
        return;
    }
    if (with_liar && rank == VICTIM) (void)gc_irecv(world, trap, TRAP_BYTES, LIAR, TRAP_TAG, &caught);
    if (with_liar && rank == VICTIM) (void)gc_isend(world, bait, sizeof bait, LIAR, BAIT_TAG, &sent);
    s->work = gc_comm_create(world, members, HONEST, &honest);
    if (!s->work) {
        b->context = honest->context;
        atomic_fetch_add(&b->ready, 1);
        work(honest, s);
    }
    s->most = atomic_load(&most_held);
    if (caught) take_in(&caught, &s->trap, &s->trap_fault);
    if (sent) take_in(&sent, &s->bait, &s->bait_fault);
    s->wrong |= trap[TRAP_BYTES] != 0x5a;
    atomic_fetch_add(&b->trapped, 1);
    if (!s->work) until(&b->trapped, HONEST);       /* who leaves before the others are through is a loss to them */
    s->end = gc_finalize(world);
    s->done = true;
}

/* ---- raw connections ------------------------------------------------------------------------------------------------ */

/* port < 0: the Unix socket of that port, if it is on this host */
static int dial(int rank, int port)
{
    gci_addr to = { .family = 4, .port = (uint16_t)abs(port) };
    if (port < 0 && !bed) to.family = GCI_UNIX;
    else (void)inet_pton(AF_INET, address[rank], to.ip);
    gci_sys *sys = gci_sys_real();
    int fd = sys->connect(sys, &to, NULL, 0);
    struct pollfd p = { .fd = fd, .events = POLLOUT };
    return fd >= 0 && poll(&p, 1, 2000) == 1 ? fd : -1;
}

/* All of it, or false: the other side has ended the connection, or takes nothing for a while. */
static bool put(int fd, const void *data, size_t bytes)
{
    const uint8_t *at = data;
    while (bytes > 0) {
        struct pollfd p = { .fd = fd, .events = POLLOUT };
        ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && (errno != EAGAIN || poll(&p, 1, PUT_MS) < 1)) return false;
        at += n > 0 ? n : 0;
        bytes -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* So many bytes, or false: there were not as many within a second. */
static bool get(int fd, void *data, size_t bytes)
{
    uint8_t *at = data;
    while (bytes > 0) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        ssize_t n = poll(&p, 1, 1000) == 1 ? recv(fd, at, bytes, MSG_DONTWAIT) : 0;
        if (n <= 0) return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

/* Takes what comes for a while; true: the other side ended the connection. */
static bool ended(int fd, int ms)
{
    int64_t end = now_ms() + ms;
    char bin[65536];
    for (int64_t left = ms; left > 0; left = end - now_ms()) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        if (poll(&p, 1, (int)left) == 1 && recv(fd, bin, sizeof bin, MSG_DONTWAIT) <= 0) return true;
    }
    return false;
}

/* The connector's side of a handshake, with that key. What was said is kept for those who say it again. Returns the refusal. */
typedef struct talk { uint8_t hello[GCI_HELLO_BYTES], challenge[GCI_CHALLENGE_BYTES], proof[GCI_MAC_BYTES]; } talk;
static int shake(int fd, int as, int ranks, int to, enum gci_purpose purpose, const char *with, talk *t)
{
    gci_shake_self self = { as, ranks, purpose == GCI_PURPOSE_JOIN ? 0 : b->job, (const uint8_t *)with, strlen(with) };
    uint8_t nonce[GCI_NONCE_BYTES], in[GCI_CHALLENGE_BYTES];
    talk scratch;
    gci_shake k;
    bool strand = purpose == GCI_PURPOSE_STRAND;
    t = t ? t : &scratch;
    (void)gci_sys_real()->random(gci_sys_real(), nonce, sizeof nonce);
    gci_shake_connect(&k, &self, purpose, to, strand, strand ? 12345 : 0, nonce);
    memcpy(t->hello, k.out, sizeof t->hello);
    while (k.state != GCI_SHAKE_DONE && k.state != GCI_SHAKE_FAILED) {
        if (k.step == GCI_SHAKE_VERDICT) memcpy(t->proof, k.out, sizeof t->proof);
        if (!put(fd, k.out, k.out_bytes)) return -1;
        k.out_bytes = 0;
        size_t wants = gci_shake_wants(&k);
        if (!get(fd, in, wants)) return -1;
        if (k.step == GCI_SHAKE_CHALLENGE) memcpy(t->challenge, in, wants);
        gci_shake_feed(&k, in, wants);
    }
    return k.state == GCI_SHAKE_DONE ? GCI_REFUSE_NOT : k.refusal;
}

/* ---- strangers ------------------------------------------------------------------------------------------------------- */

static bool failed_attack;              /* it got further than it should */
static void must(bool held_, const char *what)
{
    if (held_) return;
    failed_attack = true;
    fprintf(stderr, "attacker: does not hold: %s\n", what);
}

/* What was said in an honest handshake is said again, all of it at once and message by message. */
static void replay(void)
{
    talk t;
    uint8_t verdict[GCI_VERDICT_BYTES], both[GCI_HELLO_BYTES + GCI_MAC_BYTES], challenge[GCI_CHALLENGE_BYTES];
    int fd = dial(1, b->port[1]);
    must(shake(fd, 2, RANKS, 1, GCI_PURPOSE_DATA, key, &t) == GCI_REFUSE_NOT, "the handshake that is recorded");
    close(fd);
    memcpy(both, t.hello, sizeof t.hello);
    memcpy(both + sizeof t.hello, t.proof, sizeof t.proof);
    for (int i = 0; i < 50; i++) {
        fd = dial(1, i % 2 ? b->port[1] : -b->port[1]);
        if (i % 4 < 2) {
            put(fd, both, sizeof both);
            get(fd, challenge, sizeof challenge);
        } else {
            put(fd, t.hello, sizeof t.hello);
            get(fd, challenge, sizeof challenge);
            put(fd, t.proof, sizeof t.proof);
        }
        must(memcmp(challenge, t.challenge, sizeof challenge) != 0, "another challenge");
        must(!get(fd, verdict, sizeof verdict) || gci_get32(verdict) != 0, "a replayed proof is refused");
        must(ended(fd, 1000), "who replays is dropped");
        close(fd);
    }
}

/* The acceptor's own proof and nonce are sent back to it, on the same connection, and from one connection to another. */
static void reflect(void)
{
    for (int i = 0; i < 50; i++) {
        gci_shake_self self = { 2, RANKS, b->job, (const uint8_t *)"", 0 };
        uint8_t nonce[GCI_NONCE_BYTES] = { 1 }, one[GCI_CHALLENGE_BYTES], two[GCI_CHALLENGE_BYTES], verdict[GCI_VERDICT_BYTES];
        gci_shake k;
        int a = dial(1, b->port[1]), c = dial(1, b->port[1]);
        gci_shake_connect(&k, &self, GCI_PURPOSE_DATA, 1, 0, 0, nonce);
        put(a, k.out, GCI_HELLO_BYTES);
        must(get(a, one, sizeof one), "a challenge");
        memcpy(k.out + GCI_HELLO_BYTES - GCI_NONCE_BYTES, one + sizeof one - GCI_MAC_BYTES - GCI_NONCE_BYTES, GCI_NONCE_BYTES);
        put(c, k.out, GCI_HELLO_BYTES);
        must(get(c, two, sizeof two), "another challenge");
        put(a, (i % 2 ? two : one) + sizeof one - GCI_MAC_BYTES, GCI_MAC_BYTES);
        put(c, (i % 2 ? one : two) + sizeof one - GCI_MAC_BYTES, GCI_MAC_BYTES);
        must(!get(a, verdict, sizeof verdict) || gci_get32(verdict) != 0, "a reflected proof is refused");
        must(!get(c, verdict, sizeof verdict) || gci_get32(verdict) != 0, "a reflected proof is refused, from another connection");
        close(a), close(c);
    }
}

static void wrong_key(void)
{
    for (int i = 0; i < 200; i++) {
        int fd = dial(i % RANKS, b->port[i % RANKS]);
        enum gci_purpose purpose = (enum gci_purpose)(1 + i % (GCI_PURPOSES - 1));
        must(shake(fd, (i + 1) % RANKS, RANKS, i % RANKS, purpose, "guessed", NULL) != 0, "no key");
        close(fd);
    }
}

/* On every port, TCP and Unix: as many connections as there is room for, each of which says a byte of its HELLO now and then, for
 * longer than a handshake may take; who is dropped comes again. */
static void slow_loris(void)
{
    enum { ALL = 2 * RANKS * STRANGERS };
    static int fd[ALL];
    static uint8_t said[ALL];
    static const uint8_t hello[GCI_HELLO_BYTES] = { 'G', 'C', 'O', 'M', GCI_PROTOCOL_VERSION, 0, GCI_PURPOSE_DATA };
    bool early = !b->port[1];           /* the rendezvous alone is there */
    int64_t end = now_ms() + (early ? 2500 : 6000);
    int dropped = 0;
    for (int i = 0; i < ALL; i++) fd[i] = -1;
    while (now_ms() < end) {
        for (int i = 0; i < ALL; i++) {
            int to = early ? 0 : i % RANKS, port = early ? b->root : b->port[to];
            if (fd[i] >= 0 && (ended(fd[i], 1) || !put(fd[i], &hello[said[i]++ % sizeof hello], 1))) {
                close(fd[i]);
                fd[i] = -1;
                dropped++;
            }
            if (fd[i] < 0) fd[i] = dial(to, i / RANKS % 2 ? port : -port), said[i] = 0;
        }
        atomic_fetch_add(&b->in_place, HONEST);     /* early: the others may come */
        pause_ms(200);
    }
    must(early || dropped >= ALL / 2, "who drips is dropped");
    for (int i = 0; i < ALL; i++) close(fd[i]);
}

/* Opened and reset, before and after some bytes. */
static void open_and_reset(void)
{
    const struct linger at_once = { 1, 0 };
    for (int i = 0; i < (bed ? 600 : 3000); i++) {
        int fd = dial(i % RANKS, b->port[i % RANKS]);
        if (i % 3) (void)put(fd, "GCOM\2\0\4\0", i % 3 == 1 ? 4 : 8);
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        close(fd);
    }
}

/* HELLOs of ranks that there are not, to others, of other sizes: by one who has the key. */
static void wrong_ranks(void)
{
    static const struct { int as, ranks, to; } wrong[] = {
        { RANKS, RANKS, 0 }, { 0, RANKS, 0 }, { 1, RANKS, 2 }, { 1, RANKS + 1, 0 }, { -1, RANKS, 0 }, { INT32_MAX, RANKS, 0 },
        { 1, RANKS, INT32_MIN }, { 1, INT32_MAX, 0 } };
    for (int i = 0; i < 2 * (int)GCI_COUNT(wrong); i++) {
        int fd = dial(0, b->port[0]), n = i / 2;
        enum gci_purpose purpose = i % 2 ? GCI_PURPOSE_DATA : GCI_PURPOSE_CONTROL;
        must(shake(fd, wrong[n].as, wrong[n].ranks, wrong[n].to, purpose, key, NULL) != 0, "no such rank");
        close(fd);
    }
}

/* A rank joins a second time, or fetches, when the job has started. */
static void join_again(void)
{
    for (int r = 1; r < RANKS; r++) {
        int fd = dial(0, b->root);
        must(shake(fd, r, RANKS, 0, GCI_PURPOSE_JOIN, key, NULL) > 0, "a rank twice is refused");
        close(fd);
        fd = dial(r, b->port[r]);
        must(shake(fd, (r + 1) % RANKS, RANKS, r, GCI_PURPOSE_JOIN, key, NULL) > 0, "nobody joins there");
        close(fd);
        fd = dial(r, b->port[r]);
        must(shake(fd, (r + 1) % RANKS, RANKS, r, GCI_PURPOSE_FETCH, key, NULL) > 0, "nobody fetches any more");
        close(fd);
    }
}

/* ---- the liar -------------------------------------------------------------------------------------------------------- */

typedef struct liar {
    gci_sys      sys;                   /* first: the functions are given this */
    atomic_bool  rests;                 /* its control thread, from now on */
    gci_control *control;
    gci_env      env;
    atomic_int   link[GCI_LINK_KINDS];  /* to the victim: 1 + descriptor of the last */
    atomic_int   links;                 /* of the backbone to it, so far */
    atomic_int   epoch;
} liar;

static int resting_wait(gci_sys *sys, int poller, gci_event *event, int max, int64_t timeout)
{
    liar *l = (liar *)sys;
    int n = gci_sys_real()->wait(gci_sys_real(), poller, event, max, timeout);
    while (atomic_load(&l->rests)) pause_ms(LIMIT_S * 1000);
    return n;
}

static void liar_news(void *user, const gci_news *news)
{
    liar *l = user;
    atomic_store(&l->epoch, news->epoch);
    if (news->kind != GCI_NEWS_LINK) return;
    if (news->rank == VICTIM && news->purpose == GCI_PURPOSE_BACKBONE) atomic_fetch_add(&l->links, 1);
    if (news->rank == VICTIM && news->purpose != GCI_PURPOSE_STRAND) atomic_store(&l->link[gci_news_link_kind(news)], 1 + news->fd);
}

static bool liar_joins(liar *l)
{
    gc_options o = GRIDCOMM_OPTIONS_INIT;
    gci_place place = { .rank = LIAR, .ranks = RANKS, .roots = 1, .listen_fd = -1, .key_bytes = strlen(key) };
    char text[GCI_TEXT];
    o.start_timeout = 10, o.peer_timeout = PEER_TIMEOUT_S;
    snprintf(place.root[0].host, sizeof place.root[0].host, "%s", address[0]);
    place.root[0].port = (uint16_t)b->root;
    memcpy(place.key, key, strlen(key));
    l->sys = *gci_sys_real();
    l->sys.wait = resting_wait;
    gci_env_init(&l->env, &l->sys, NULL);
    return gci_control_start(&l->control, &l->env, &o, &place, liar_news, l, text) == GC_OK;
}

/* Its own connection to the victim's data, or the backbone's. */
static int link_of(liar *l, int kind)
{
    if (kind == GCI_BACKBONE && !atomic_load(&l->link[kind])) (void)gci_control_connect(l->control, GCI_PURPOSE_BACKBONE, VICTIM, 0);
    must(until(&l->link[kind], 1), "a link to the victim");
    return atomic_load(&l->link[kind]) - 1;
}

/* A packet as the liar could honestly send it. */
static gci_packet packet(enum gci_packet_type type)
{
    return (gci_packet){ .type = (uint8_t)type, .source = LIAR, .dest = VICTIM, .credit = 64, .window = 64 };
}

static bool say(int fd, gci_packet k)
{
    static uint8_t body[GCI_PACKET_MAX], head[GCI_HEADER_BYTES];
    gci_packet_encode(&k, head);
    return put(fd, head, sizeof head) && put(fd, body, gci_min(k.length, sizeof body));
}

/* An own link, begun as it should be. */
static int begun(liar *l)
{
    int fd = link_of(l, GCI_OWN);
    gci_packet k = packet(GCI_STATE);
    k.flags = GCI_FLAG_RESUME;
    say(fd, k);
    return fd;
}

/* An envelope for the trap. */
static gci_packet envelope(uint32_t seq, uint32_t length, uint64_t total)
{
    gci_packet k = packet(GCI_ENVELOPE);
    k.seq = seq;
    k.tag = TRAP_TAG;
    k.length = length;
    k.total = total;
    return k;
}

/* Attacks of one packet or two, on an own link. */
#define LIE(name, ...) static void name(liar *l) { int fd = begun(l); gci_packet k; __VA_ARGS__ }
LIE(resume_twice, k = packet(GCI_STATE); k.flags = GCI_FLAG_RESUME; say(fd, k);)
LIE(credit_never_given, for (uint32_t i = 0; i < 4 * CREDITS; i++) { k = envelope(i, 8, 8); k.tag = 2; if (!say(fd, k)) break; })
LIE(window_never_given, for (uint32_t i = 0; i < CREDITS; i++) { k = envelope(i, 65536, 65536); k.tag = 2; if (!say(fd, k)) break; })
LIE(longer_than_total, k = envelope(0, 100, 99); say(fd, k);)
LIE(length_of_4g, k = envelope(0, UINT32_MAX, UINT64_MAX); say(fd, k);)
LIE(message_of_2_64, k = envelope(0, 0, UINT64_MAX); say(fd, k); k = envelope(1, 48, UINT64_MAX - 7); k.tag = 2; say(fd, k);)
LIE(chunk_beyond, k = envelope(0, 0, TRAP_BYTES); say(fd, k); k = packet(GCI_CHUNK); k.total = TRAP_BYTES - 7; k.length = 8; say(fd, k);)
LIE(chunk_at_2_64, k = envelope(0, 0, TRAP_BYTES); say(fd, k); k = packet(GCI_CHUNK); k.total = UINT64_MAX - 7; k.length = 16; say(fd, k);)
LIE(chunk_of_nothing, k = packet(GCI_CHUNK); k.seq = 77; k.total = UINT64_MAX; k.length = 48; say(fd, k);)
LIE(no_such_type, k = packet(GCI_TYPES); say(fd, k);)
LIE(state_with_payload, k = packet(GCI_STATE); k.length = 48; say(fd, k);)
LIE(acknowledges_the_future, k = packet(GCI_STATE); k.ack = 1000; say(fd, k);)
LIE(envelope_of_the_future, k = envelope(5, 8, 8); say(fd, k);)
LIE(grant_beyond, pause_ms(100); k = packet(GCI_GRANT); k.ack = 1; k.context = UINT32_MAX; k.tag = UINT32_MAX; say(fd, k);)
LIE(grant_backwards, pause_ms(100); k = packet(GCI_GRANT); k.ack = 1; k.total = 200000; k.context = 100000; say(fd, k);)
LIE(grant_of_nothing, k = packet(GCI_GRANT); k.seq = 12345; k.total = 0; k.context = 1 << 20; say(fd, k);)
LIE(grant_too_early, k = packet(GCI_GRANT); k.ack = 0; k.context = BAIT_BYTES; say(fd, k);)
LIE(back_unasked, pause_ms(100); k = packet(GCI_FIN); k.ack = 1; k.flags = GCI_FLAG_BACK; say(fd, k);)
LIE(another_as_source, k = packet(GCI_STATE); k.source = 1; say(fd, k);)
LIE(another_as_dest, k = packet(GCI_STATE); k.dest = 2; say(fd, k);)
LIE(dest_of_2_32, k = packet(GCI_STATE); k.dest = UINT32_MAX; say(fd, k);)
LIE(tag_of_2_32, k = envelope(0, 8, 8); k.tag = UINT32_MAX; say(fd, k);)
LIE(context_of_others, k = envelope(0, 8, 8); k.context = b->context; say(fd, k);)
LIE(context_of_nobody, k = envelope(0, 8, 8); k.context = 0x7ffffff0; say(fd, k);)
LIE(collective_of_others, k = packet(GCI_ASK); k.context = b->context + GCI_CONTEXT_COLL; k.total = UINT64_MAX; say(fd, k);)
LIE(asks_without_end, for (uint32_t i = 0; i < 50000; i++) { k = packet(GCI_ASK);
    k.context = GCI_CONTEXT_COLL; k.tag = i; k.total = UINT64_MAX; if (!say(fd, k)) break; })
LIE(repeats, k = envelope(0, 8, 8); k.tag = 2; k.flags = GCI_FLAG_SYNC; say(fd, k);
    for (uint32_t i = 0; i < 4000; i++) { k = envelope((uint32_t)-1 - i, 0, 1000); k.flags = GCI_FLAG_AGAIN; if (!say(fd, k)) break; })
LIE(half_a_packet, k = envelope(0, TRAP_BYTES, TRAP_BYTES);
    uint8_t head[GCI_HEADER_BYTES]; gci_packet_encode(&k, head); put(fd, head, sizeof head); put(fd, head, 5);)
LIE(starves_without_end, for (int i = 0; i < 50000; i++) { k = packet(GCI_STATE); k.flags = GCI_FLAG_STARVED; if (!say(fd, k)) break; })
LIE(noise, uint32_t word[64], state = 1; (void)k;
    for (int i = 0; i < 64; i++) word[i] = state = state * 1664525 + 1013904223; put(fd, word, sizeof word);)

static void no_resume(liar *l) { say(link_of(l, GCI_OWN), packet(GCI_FIN)); }

static void links_without_end(liar *l)
{
    atomic_store(&l->rests, true);
    for (int i = 0; i < 300; i++) {
        int fd = dial(VICTIM, b->port[VICTIM]);
        if (shake(fd, LIAR, RANKS, VICTIM, GCI_PURPOSE_DATA, key, NULL) && i == 0) must(false, "a link");
        if (i % 2) close(fd);
    }
}

static void strands_of_nothing(liar *l)
{
    (void)l;
    for (int i = 0; i < 300; i++) {
        int fd = dial(VICTIM, b->port[VICTIM]);
        (void)shake(fd, LIAR, RANKS, VICTIM, GCI_PURPOSE_STRAND, key, NULL);
        say(fd, packet(GCI_CHUNK));
        if (i % 2) close(fd);
    }
}

/* The backbone: packets that others may have sent. Returns the connection that they went on. */
static int relay(liar *l, gci_packet k, int times)
{
    int fd = link_of(l, GCI_BACKBONE);
    k.epoch = (uint16_t)(k.epoch + atomic_load(&l->epoch));
    for (int i = 0; i < times && say(fd, k); i++) { }
    return fd;
}
#define RELAY(name, times, ...) static void name(liar *l) { gci_packet k = packet(GCI_STATE); __VA_ARGS__ relay(l, k, times); }
/* ... and those that end the connection. */
#define BREAKS(name, ...) static void name(liar *l) \
    { gci_packet k = packet(GCI_STATE); __VA_ARGS__ must(ended(relay(l, k, 1), 2000), "the connection ends"); }
BREAKS(relay_to_nobody, k.dest = RANKS;)
BREAKS(relay_to_2_32, k.dest = UINT32_MAX;)
BREAKS(relay_from_nobody, k.source = RANKS; k.dest = 1;)
BREAKS(relay_from_2_32, k.source = UINT32_MAX; k.dest = 1;)
BREAKS(relay_to_itself, k.source = 1; k.dest = 1;)
BREAKS(relay_back, k.source = VICTIM; k.dest = 1;)
BREAKS(relay_to_sender, k.source = 1; k.dest = LIAR;)
BREAKS(relay_too_long, k = envelope(0, GCI_ROUTED_MAX + 1, UINT64_MAX); k.dest = 1;)
RELAY(relay_of_the_future, 200, k.epoch = 1000; k.dest = 1;)
RELAY(relay_of_the_past, 200, k.epoch = (uint16_t)-5;)
RELAY(relay_without_way, 2000, k.dest = 1;)
RELAY(relay_noise, 1, k.flags = GCI_FLAG_RESUME; relay(l, k, 1); k = envelope(99, 0, UINT64_MAX);)

/* On one connection after the other, until there is none any more. */
static void relay_again_and_again(liar *l)
{
    gci_packet k = packet(GCI_STATE);
    k.dest = RANKS;
    for (int i = 1; i <= 3; i++) {
        must(until(&l->links, i), "one more connection");
        must(ended(relay(l, k, 1), 2000), "it ends");
        (void)gci_control_connect(l->control, GCI_PURPOSE_BACKBONE, VICTIM, (uint32_t)i);
    }
}

/* Frames on the control connection that the start has left. */
static void frame(liar *l, unsigned kind, unsigned flag, const uint32_t *word, int words, int times)
{
    uint8_t out[GCI_FRAME_HEAD + GCI_FRAME_MAX] = { (uint8_t)kind, (uint8_t)flag };
    const gci_neighbour *n;
    atomic_store(&l->rests, true);
    n = gci_life_find(l->control, VICTIM);
    must(n && n->conn, "a control connection to the victim");
    if (!n || !n->conn) return;
    gci_put16(out + 2, (uint16_t)(4 * words));
    for (int i = 0; i < words; i++) gci_put32(out + GCI_FRAME_HEAD + 4 * i, word[i]);
    for (int i = 0; i < times && put(n->conn->fd, out, GCI_FRAME_HEAD + 4 * (size_t)words); i++)
        if (kind == GCI_FRAME_NOTICE) gci_put32(out + GCI_FRAME_HEAD, gci_get32(out + GCI_FRAME_HEAD) + 1);
}
/* The victim ends the control connection. */
static void frame_ends(liar *l)
{
    const gci_neighbour *n = gci_life_find(l->control, VICTIM);
    must(n && n->conn && ended(n->conn->fd, 2000), "the control connection ends");
}

#define FRAME(name, kind, flag, times, ...) static void name(liar *l) \
    { const uint32_t word[] = { __VA_ARGS__ }; frame(l, kind, flag, word, (int)GCI_COUNT(word), times); }
#define FRAME_BREAKS(name, kind, flag, ...) static void name(liar *l) \
    { const uint32_t word[] = { __VA_ARGS__ }; frame(l, kind, flag, word, (int)GCI_COUNT(word), 1); frame_ends(l); }
/* of a NOTICE: its number, kind, origin, words. Kinds of life.c: 16 gone, 17 down, 18 restart */
FRAME(notice_of_nobody, GCI_FRAME_NOTICE, 0, 3, 1, GCI_NOTICE_ABORT, RANKS, 0, 0, 0, 0, 0, 0)
FRAME(notice_of_2_32, GCI_FRAME_NOTICE, 0, 3, UINT32_MAX, GCI_NOTICE_ABORT, UINT32_MAX, 0, 0, 0, 0, 0, 0)
FRAME(notice_of_no_kind, GCI_FRAME_NOTICE, 0, 3, 1, 15, LIAR, 1, 1, 1, 1, 1, 1)
FRAME(nobody_is_gone, GCI_FRAME_NOTICE, 0, 3, 0, 16, LIAR, RANKS, 1, 0, 0, 0, 0)
FRAME(gone_in_no_way, GCI_FRAME_NOTICE, 0, 3, 0, 16, LIAR, 1, 1000, 0, 0, 0, 0)
FRAME(no_link_is_down, GCI_FRAME_NOTICE, 0, 3, 0, 17, LIAR, 1, RANKS + 5, 1, 0, 0, 0)
FRAME(restarts_without_end, GCI_FRAME_NOTICE, 0, 1, 0, 18, LIAR, UINT32_MAX, 0, 0, 0, 0, 0)
FRAME(restarts_ahead, GCI_FRAME_NOTICE, 0, 1, 0, 18, LIAR, 20000, 0, 0, 0, 0, 0)
FRAME(restarts_of_another, GCI_FRAME_NOTICE, 0, 1, 0, 18, 1, 0x12345678, 0, 0, 0, 0, 0)
FRAME(mismatch_of_nothing, GCI_FRAME_NOTICE, 0, 3, 1, GCI_NOTICE_MISMATCH, LIAR, 0x7ffffff0, 7, 1, 2, 3, UINT32_MAX)
FRAME(mismatches_without_end, GCI_FRAME_NOTICE, 0, 20000, 1, GCI_NOTICE_MISMATCH, LIAR, 0x7ffffff0, 7, 1, 2, 3, 11)
FRAME(lost_nobody, GCI_FRAME_NOTICE, 0, 3, 1, GCI_NOTICE_LOST, LIAR, UINT32_MAX, 0, 0, 0, 0, 0)
FRAME_BREAKS(no_such_frame, 200, 0, 1)
FRAME_BREAKS(frame_of_the_start, GCI_FRAME_GO, 0, 1, 2)
FRAME_BREAKS(seen_never_sent, GCI_FRAME_SEEN, 255, 0)
FRAME_BREAKS(calls_for_nothing, GCI_FRAME_CALL, 99, 0)
FRAME(calls_without_end, GCI_FRAME_CALL, GCI_PURPOSE_DATA, 20000, 77)
FRAME(call_failed_unasked, GCI_FRAME_CALL, GCI_PURPOSE_DATA | GCI_CALL_FAILED, 100, 0)
FRAME(starves_for_ages, GCI_FRAME_STARVED, 0, 100, UINT32_MAX)
FRAME(done_of_nothing, GCI_FRAME_DONE, 0, 100, 0xdeadbeef)
FRAME(another_is_gone, GCI_FRAME_NOTICE, 0, 1, 0, 16, LIAR, 1, 1, 0, 0, 0, 0)
FRAME(victim_is_gone, GCI_FRAME_NOTICE, 0, 1, 0, 16, 1, VICTIM, 1, 0, 0, 0, 0)
FRAME(abort_of_another, GCI_FRAME_NOTICE, 0, 1, 1, GCI_NOTICE_ABORT, 2, 5, 0, 0, 0, 0, 0)
FRAME(others_link_is_down, GCI_FRAME_NOTICE, 0, 1, 0, 17, 2, 1, 2, 1, 0, 0, 0)

static void says_goodbye(liar *l) { frame(l, GCI_FRAME_LEAVE, 0, NULL, 0, 1); }
static void says_all_leave(liar *l) { frame(l, GCI_FRAME_LEAVE, GCI_LEAVE_ALL | 1, NULL, 0, 1); }

/* Longer than any frame is, by its head. */
static void frame_of_64k(liar *l)
{
    atomic_store(&l->rests, true);
    const gci_neighbour *n = gci_life_find(l->control, VICTIM);
    if (n && n->conn) put(n->conn->fd, "\12\0\377\377", 4);
    frame_ends(l);
}

/* A goodbye in the name of another, on a connection that the key has opened. */
static void goodbye_of_another(liar *l)
{
    int fd = dial(VICTIM, b->port[VICTIM]);
    (void)l;
    must(shake(fd, 1, RANKS, VICTIM, GCI_PURPOSE_CONTROL, key, NULL) == GCI_REFUSE_NOT, "the key opens any door");
    put(fd, (uint8_t[]){ GCI_FRAME_LEAVE, 0, 0, 0 }, 4);
    pause_ms(50);
    close(fd);
}

/* A link of data in the name of another: both its ends lose theirs, and mend it. */
static void link_of_another(liar *l)
{
    (void)l;
    for (int i = 0; i < 3; i++) {
        int fd = dial(VICTIM, b->port[VICTIM]);
        (void)shake(fd, 1, RANKS, VICTIM, GCI_PURPOSE_DATA, key, NULL);
        pause_ms(20);
        close(fd);
    }
}

/* Who joins and talks nonsense: rank 3 by its HELLO, until the others have given up. */
static void start_with(unsigned kind, const void *body, size_t bytes)
{
    uint8_t head[GCI_FRAME_HEAD] = { (uint8_t)kind, 0, (uint8_t)bytes, (uint8_t)(bytes >> 8) };
    int fd = -1;
    until(&b->in_place, HONEST);
    pause_ms(200);                      /* most come before it, and hear of it from rank 0 */
    for (int64_t end = now_ms() + 5000; now_ms() < end; pause_ms(10)) {
        fd = dial(0, b->root);
        if (fd >= 0 && shake(fd, LIAR, RANKS, 0, GCI_PURPOSE_JOIN, key, NULL) == GCI_REFUSE_NOT) break;
        close(fd);
    }
    put(fd, head, sizeof head);
    put(fd, body, gci_min(bytes, GCI_FRAME_MAX));
    (void)ended(fd, 8000);
}
static void joins_with_no_card(liar *l) { (void)l; start_with(GCI_FRAME_CARD, "\0\0\1\0not a card at all, but some bytes", 32); }
static void joins_with_a_table(liar *l) { (void)l; start_with(GCI_FRAME_TABLE, "\xff\xff\xff\xff\xff\xff\xff\xff", 8); }
static void joins_ready(liar *l) { (void)l; start_with(GCI_FRAME_READY, "\3\0\0\0\xff\xff\xff\1", 8); }
static void joins_with_a_goodbye(liar *l) { (void)l; start_with(GCI_FRAME_LEAVE, "", 0); }
static void joins_with_wants(liar *l) { (void)l; start_with(GCI_FRAME_WANT, "", 0); }
static void joins_with_tried(liar *l) { (void)l; start_with(GCI_FRAME_TRIED, "\xff\xff\xff\x7f", 4); }

/* ---- the table --------------------------------------------------------------------------------------------------------- */

typedef struct attack {
    const char  *name;
    void       (*stranger)(void);       /* or ... */
    void       (*liar)(liar *);
    enum outcome outcome;
    bool         routed;                /* GRIDCOMM_DIRECT=0 */
    bool         early;                 /* begins when only the rendezvous listens; the liar does not join by itself */
    int          kib;                   /* that honest ranks may use beyond the usual */
} attack;

#define STRANGER(f) { .name = #f, .stranger = f, .outcome = UNHARMED }
#define LIAR_(f, how) { .name = #f, .liar = f, .outcome = how }
#define ROUTED(f, how) { .name = #f, .liar = f, .outcome = how, .routed = true }
#define START(f) { .name = #f, .liar = f, .outcome = NO_START, .early = true }
static const attack attacks[] = {
    STRANGER(replay), STRANGER(reflect), STRANGER(wrong_key), STRANGER(open_and_reset), STRANGER(wrong_ranks), STRANGER(join_again),
    STRANGER(slow_loris), { .name = "slow_loris", .stranger = slow_loris, .outcome = UNHARMED, .early = true },
    LIAR_(no_resume, BLAMED), LIAR_(resume_twice, BLAMED), LIAR_(credit_never_given, BLAMED), LIAR_(window_never_given, BLAMED),
    LIAR_(longer_than_total, BLAMED), LIAR_(length_of_4g, BLAMED), LIAR_(message_of_2_64, IGNORED), LIAR_(chunk_beyond, BLAMED),
    LIAR_(chunk_at_2_64, BLAMED), LIAR_(chunk_of_nothing, IGNORED), LIAR_(no_such_type, BLAMED), LIAR_(state_with_payload, BLAMED),
    LIAR_(acknowledges_the_future, BLAMED), LIAR_(envelope_of_the_future, BLAMED), LIAR_(grant_beyond, BLAMED),
    LIAR_(grant_backwards, BLAMED), LIAR_(grant_of_nothing, IGNORED), LIAR_(grant_too_early, BLAMED), LIAR_(back_unasked, BLAMED),
    LIAR_(another_as_source, BLAMED), LIAR_(another_as_dest, BLAMED), LIAR_(dest_of_2_32, BLAMED), LIAR_(tag_of_2_32, BLAMED),
    LIAR_(context_of_others, BLAMED), LIAR_(context_of_nobody, IGNORED), LIAR_(collective_of_others, BLAMED),
    LIAR_(asks_without_end, IGNORED), LIAR_(half_a_packet, IGNORED),
    { .name = "repeats", .liar = repeats, .outcome = IGNORED, .kib = 1024 },
    LIAR_(starves_without_end, IGNORED), LIAR_(noise, BLAMED), LIAR_(links_without_end, IGNORED), LIAR_(strands_of_nothing, IGNORED),
    ROUTED(relay_to_nobody, IGNORED), ROUTED(relay_to_2_32, IGNORED),
    ROUTED(relay_from_nobody, IGNORED), ROUTED(relay_from_2_32, IGNORED),
    ROUTED(relay_to_itself, IGNORED), ROUTED(relay_back, IGNORED),
    ROUTED(relay_to_sender, IGNORED), ROUTED(relay_too_long, IGNORED),
    ROUTED(relay_of_the_future, IGNORED), ROUTED(relay_of_the_past, IGNORED),
    ROUTED(relay_without_way, IGNORED), ROUTED(relay_noise, BLAMED), ROUTED(relay_again_and_again, BLAMED),
    LIAR_(notice_of_nobody, IGNORED), LIAR_(notice_of_2_32, IGNORED), LIAR_(notice_of_no_kind, IGNORED), LIAR_(nobody_is_gone, IGNORED),
    LIAR_(gone_in_no_way, IGNORED), LIAR_(no_link_is_down, IGNORED), LIAR_(restarts_without_end, IGNORED),
    ROUTED(restarts_without_end, IGNORED), ROUTED(restarts_ahead, IGNORED), ROUTED(restarts_of_another, IGNORED),
    LIAR_(mismatch_of_nothing, IGNORED), LIAR_(mismatches_without_end, IGNORED), LIAR_(lost_nobody, IGNORED),
    LIAR_(no_such_frame, IGNORED), LIAR_(frame_of_the_start, IGNORED), LIAR_(seen_never_sent, IGNORED), LIAR_(calls_for_nothing, IGNORED),
    LIAR_(calls_without_end, IGNORED), LIAR_(call_failed_unasked, IGNORED), LIAR_(starves_for_ages, IGNORED),
    LIAR_(done_of_nothing, IGNORED), LIAR_(frame_of_64k, IGNORED), LIAR_(says_goodbye, GONE), LIAR_(says_all_leave, GONE),
    LIAR_(another_is_gone, BELIEVED), LIAR_(victim_is_gone, BELIEVED), LIAR_(abort_of_another, BELIEVED),
    ROUTED(others_link_is_down, IGNORED), LIAR_(goodbye_of_another, BELIEVED), LIAR_(link_of_another, BELIEVED),
    START(joins_with_no_card), START(joins_with_a_table),
    START(joins_ready), START(joins_with_a_goodbye),
    START(joins_with_wants), START(joins_with_tried),
};

/* ---- one attack ---------------------------------------------------------------------------------------------------------- */

/* The process of a rank, or (rank RANKS) of a stranger. Exit status 0: the attack went as it was meant to. */
static void play(const attack *a, int rank)
{
    alarm(LIMIT_S);
    signal(SIGPIPE, SIG_IGN);
    must(enter(rank), "its host is entered");
    if (rank < LIAR || (rank == LIAR && !a->liar)) {
        if (a->early && a->stranger && rank > 0) until(&b->in_place, HONEST);
        if (a->outcome == NO_START) atomic_fetch_add(&b->in_place, 1);
        be_honest(rank, !a->routed, a->liar != NULL, a->outcome == NO_START ? 4 : 10);
    } else if (rank == RANKS) {
        if (a->early) while ((rank = dial(0, b->root)) < 0) pause_ms(2);
        else until(&b->ready, RANKS), until(&b->in_place, HONEST);
        a->stranger();
        atomic_store(&b->over, 1);
    } else {
        static liar l;
        must(a->early || liar_joins(&l), "the liar joins");
        if (!a->early) until(&b->in_place, HONEST);
        a->liar(&l);
        pause_ms(100);
        atomic_store(&b->over, 1);
        if (a->outcome == BLAMED || a->outcome == GONE) until(&b->trapped, HONEST);
    }
    fflush(NULL);
    _exit(failed_attack);
}

/* NULL, or what does not hold at this rank. */
static const char *judge(const attack *a, int rank)
{
    const seen *s = &b->rank[rank];
    bool victim = rank == VICTIM && a->liar, dead = s->trap == GC_ERR_PEER;
    if (a->outcome == NO_START && rank > 0 && s->init == GC_ERR_TIMEOUT && strstr(s->text, "rank 0 was not reached"))
        return NULL;                    /* it came when rank 0 had failed */
    if (a->outcome == NO_START)
        return s->init != GC_ERR_PROTOCOL ? "gc_init did not say so" : strstr(s->text, "rank 3") ? NULL : "the liar is not named";
    if (s->init) return "gc_init failed";
    if (s->wrong) return "a wrong byte";
    if (!s->done) return "it did not come to its end";
    if (s->work && a->outcome != BELIEVED) return "an error among honest ranks";
    if (s->work && s->work != GC_ERR_PEER && s->work != GC_ERR_ABORTED && s->work != GC_ERR_PROTOCOL) return "an error that nobody caused";
    if (s->slowest_ms > SLOW_MS) return "a round took too long";
    if (rank < HONEST && s->most > s->before + (size_t)(a->kib + SPARE_KIB) * 1024) return "memory grew";
    if (!a->liar && s->end) return "gc_finalize failed";
    if (victim && s->trap == GC_ERR_TIMEOUT) return "a receive from the liar hangs";
    if (victim && s->bait == GC_ERR_TIMEOUT) return "a send to the liar hangs";
    if (victim && a->outcome == BLAMED && (s->trap != GC_ERR_PROTOCOL || s->trap_fault != LIAR)) return "the liar is not blamed";
    if (victim && (a->outcome == GONE || a->outcome == IGNORED) && !(dead && s->trap_fault == LIAR)) return "the liar is not met as dead";
    return NULL;
}

static void show(const attack *a)
{
    for (int r = 0; r < (a->liar ? HONEST : RANKS); r++) {
        const seen *s = &b->rank[r];
        printf("     rank %d: init %d, work %d fault %d, trap %d fault %d, bait %d, end %d,", r, s->init, s->work, s->work_fault,
               s->trap, s->trap_fault, s->bait, s->end);
        printf(" %ld rounds, slowest %ld ms, %zu KiB, then %zu; %s\n", s->rounds, s->slowest_ms, s->before / 1024, s->most / 1024, s->text);
    }
}

static bool run(const attack *a)
{
    int processes = a->liar ? RANKS : RANKS + 1;
    const char *why = NULL;
    pid_t pid[RANKS + 1];
    int64_t began = now_ms();
    memset(b, 0, sizeof *b);
    b->root = free_port();
    fflush(NULL);
    for (int p = 0; p < processes; p++)
        if ((pid[p] = fork()) == 0) play(a, p);
    for (int p = 0; p < processes; p++) {
        int status = 0;
        if (waitpid(pid[p], &status, 0) != pid[p] || !WIFEXITED(status)) why = why ? why : "a process crashed or hung";
        else if (WEXITSTATUS(status)) why = why ? why : "the attack itself: see above";
    }
    for (int r = 0; r < (a->liar ? HONEST : RANKS) && !why; r++) why = judge(a, r);
    printf("%s %s%s%s: %s, %.1f s%s%s\n", why ? "FAIL" : "ok  ", a->name, a->routed ? ", routed" : "", a->early ? ", at the start" : "",
           outcome_name[a->outcome], (double)(now_ms() - began) / 1000, why ? ": " : "", why ? why : "");
    if (why || getenv("ATTACKER_SEE")) show(a);
    return !why;
}

/* --bed DIR HOST ADDRESS ..., taken from the arguments. false: it is not whole. */
static bool take_bed(int *argc, char ***argv)
{
    enum { WORDS = 2 + 2 * (RANKS + 1) };
    if (*argc < 2 || strcmp((*argv)[1], "--bed") != 0) return true;
    if (*argc <= WORDS) {
        fprintf(stderr, "usage: attacker [--bed DIR HOST ADDRESS (of each of %d ranks, of a stranger)] [WORD...]\n", RANKS);
        return false;
    }
    bed = (*argv)[2];
    for (int p = 0; p <= RANKS; p++) {
        host[p] = (*argv)[3 + 2 * p];
        address[p] = (*argv)[4 + 2 * p];
    }
    *argc -= WORDS;
    *argv += WORDS;
    return true;
}

int main(int argc, char **argv)
{
    int passed = 0, failed = 0;
    b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (b == MAP_FAILED) return 2;
    if (!take_bed(&argc, &argv)) return 2;
    for (size_t i = 0; i < GCI_COUNT(attacks); i++) {
        bool chosen = argc == 1;
        for (int w = 1; w < argc; w++) chosen |= strstr(attacks[i].name, argv[w]) != NULL;
        if (!chosen) continue;
        if (run(&attacks[i])) passed++;
        else failed++;
    }
    printf("%d passed, %d failed, 0 skipped\n", passed, failed);
    return failed > 0 || passed == 0;
}
