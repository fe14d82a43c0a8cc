/* fuzz_control.c: libFuzzer target for the control thread: what comes on connections that have proven the key, and who connects.
 * The input plays all other ranks of a job of four: whether and how far they start honestly, which connections they open and
 * take, what frames they say, well formed or not, how connections end, what this rank's own threads ask for, and time.
 *
 * Whatever they do: the control thread ends, by its own deadlines; nobody is told dead or gone twice, and nothing of a rank that
 * there is not; epochs only grow by what is told; memory stays within bounds, and none is left, nor a descriptor.
 * SPDX-License-Identifier: MIT
 *
 * covers: life.c ^(gci_life_frame|life_notice|life_hear_loss|life_gone|life_down|life_restarts|life_leave_frame|life_done_frame)$
 * covers: join.c ^(gci_join_frame|join_frame_at_root|join_frame_from_root|join_card|join_fetch|join_code|gci_join_text|gci_join_judge)$
 * covers: join.c ^(join_table|join_table_head)$
 * covers: mesh.c ^(gci_mesh_frame|mesh_ready_frame|mesh_try_frame|mesh_go_frame|mesh_remove|mesh_tried|mesh_keep_missed)$
 * covers: control.c ^(control_frame|control_call_frame|control_starved_frame|control_judge)$
 * covers: dial.c ^(stream_take|stream_read)$
 */
#include "gridcomm_int.h"
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <stdio.h>

enum { RANKS = 4, CONNS = 48, WAITS_MAX = 60000, MEMORY_MAX = 4 << 20, LISTENER = 1, POLLER = 2, WAKER = 3, FD = 10, PORT = 4000 };

static const char key[] = "sesame";

struct gci_monitor { int inside; };

typedef struct end {                    /* the others' end of a connection */
    bool      open, waits, over, reset, shaking, connector;     /* waits: to be accepted */
    int       rank;
    gci_shake shake;
    uint8_t  *in;  size_t in_bytes, in_at;     /* for the library */
    unsigned  watched;
    uint64_t  tag;
} end;

typedef struct fuzz {
    gci_sys     sys;                    /* first: the functions are given this */
    source      in;
    int64_t     now;
    uint8_t     nonce;
    int         me, ends, help, helped, waits;
    bool        woken, listens, stopped, mute, refuses, patient, dead[RANKS];   /* patient: speaks when all is quiet */
    uint64_t    listener_tag, job;
    gci_control *control;
    void      (*run)(void *), *arg;
    gci_monitor monitor;
    uint16_t    epoch;
    uint8_t     card[GCI_CARD_BYTES_MAX];  size_t card_bytes;   /* of this rank */
    end         end[CONNS];
} fuzz;

/* ---- the others ------------------------------------------------------------------------------------------------------ */

static void others_card(int rank, gci_full_card *card)
{
    const gci_ifaddr a = { .addr = { .family = 4, .ip = { 10, 0, 0, (uint8_t)(rank + 1) } }, .prefix = 24, .index = 1, .name = "eth0" };
    char id[] = "host0";
    id[4] = (char)('0' + rank);
    gci_card_fill(card, id, id, "", (uint16_t)(PORT + rank), &a, 1);
}

static void give(end *e, const void *data, size_t bytes)
{
    if (!e->open || bytes == 0) return;
    e->in = realloc(e->in, e->in_bytes + bytes);
    must(e->in != NULL);
    memcpy(e->in + e->in_bytes, data, bytes);
    e->in_bytes += bytes;
}

static void shake_out(end *e)
{
    give(e, e->shake.out, e->shake.out_bytes);
    e->shake.out_bytes = 0;
    e->shaking = e->shake.state == GCI_SHAKE_READS;
}

/* What the library says: to a handshake it matters, else it is forgotten, but for its card. */
static void heard(fuzz *f, end *e, const uint8_t *data, size_t bytes)
{
    if (!e->shaking && f->me > 0 && bytes > GCI_FRAME_HEAD + 4 && data[0] == GCI_FRAME_CARD && bytes < sizeof f->card) {
        f->card_bytes = bytes - GCI_FRAME_HEAD - 4;
        memcpy(f->card, data + GCI_FRAME_HEAD + 4, f->card_bytes);
    }
    while (e->shaking && bytes > 0) {
        size_t took = gci_shake_feed(&e->shake, data, bytes);
        data += took;
        bytes -= took;
        if (e->shake.state == GCI_SHAKE_DECIDES)
            gci_shake_decide(&e->shake, f->refuses ? GCI_REFUSE_BUSY : GCI_REFUSE_NOT);
        shake_out(e);
        if (!took) break;
    }
}

static end *new_end(fuzz *f, int rank)
{
    for (int i = 0; i < f->ends || f->ends < CONNS; i++) {
        end *e = &f->end[i];
        if (i == f->ends) f->ends++;
        if (e->open || e->waits) continue;
        *e = (end){ .rank = rank };
        return e;
    }
    return NULL;
}

static gci_shake_self self_of(const fuzz *f, int rank, unsigned purpose)
{
    uint64_t job = f->control->job ? f->control->job : f->job;
    return (gci_shake_self){ rank, RANKS, purpose == GCI_PURPOSE_JOIN ? 0 : job, (const uint8_t *)key, strlen(key) };
}

static void nonce_of(fuzz *f, uint8_t nonce[GCI_NONCE_BYTES])
{
    memset(nonce, 0, GCI_NONCE_BYTES);
    nonce[0] = ++f->nonce;
}

static void come(fuzz *f, int rank, unsigned purpose)
{
    uint8_t nonce[GCI_NONCE_BYTES];
    gci_shake_self self = self_of(f, rank, purpose);
    end *e = new_end(f, rank);
    if (!e) return;
    e->waits = e->open = e->connector = true;
    nonce_of(f, nonce);
    bool strand = purpose == GCI_PURPOSE_STRAND;
    gci_shake_connect(&e->shake, &self, (enum gci_purpose)purpose, f->me, strand, strand, nonce);
    shake_out(e);
}

static end *find(fuzz *f, int rank, unsigned purpose)
{
    for (int i = f->ends - 1; i >= 0; i--)
        if (f->end[i].open && !f->end[i].over && !f->end[i].shaking && f->end[i].rank == rank && f->end[i].shake.purpose == purpose)
            return &f->end[i];
    return NULL;
}

static void say(end *e, unsigned kind, unsigned flag, const void *body, size_t bytes)
{
    uint8_t head[GCI_FRAME_HEAD] = { (uint8_t)kind, (uint8_t)flag, (uint8_t)bytes, (uint8_t)(bytes >> 8) };
    if (!e) return;
    give(e, head, sizeof head);
    give(e, body, bytes);
}

static void say_card(fuzz *f, int rank)
{
    uint8_t body[4 + GCI_CARD_BYTES_MAX];
    gci_full_card card;
    others_card(rank, &card);
    gci_put32(body, 60000);
    say(find(f, rank, GCI_PURPOSE_JOIN), GCI_FRAME_CARD, 0, body, 4 + gci_card_encode(&card, body + 4));
}

/* TABLE and PART, by rank 0 or by another. */
static void say_table(fuzz *f, end *e, unsigned how)
{
    uint8_t wire[RANKS][GCI_CARD_BYTES_MAX], *card[RANKS], head[8], out[4096];
    static const char links[] = "require host0 host1 via=ssh\n";
    size_t bytes[RANKS], n, more = how & 1 ? sizeof links - 1 : 0;
    gci_addr seen[RANKS] = { { 0 } };
    gci_full_card c;
    gci_env env;
    gci_table t;
    gci_env_init(&env, &f->sys, NULL);
    for (int r = 0; r < RANKS; r++) {
        others_card(r, &c);
        bytes[r] = gci_card_encode(&c, card[r] = wire[r]);
        if (r == f->me && f->card_bytes) memcpy(wire[r], f->card, bytes[r] = f->card_bytes);
    }
    if (gci_table_gather(&env, how & 2 ? f->job + 2 : f->job, RANKS, card, bytes, seen, &t) < 0) return;
    n = gci_table_encode(&t, NULL);
    must(n + more <= sizeof out);
    gci_table_encode(&t, out);
    memcpy(out + n, links, more);
    gci_table_free(&env, &t);
    if (how & 4) out[how % n] ^= (uint8_t)how;
    gci_put32(head, (uint32_t)(n + more));
    gci_put32(head + 4, (uint32_t)more);
    say(e, GCI_FRAME_TABLE, 0, head, sizeof head);
    say(e, GCI_FRAME_PART, 0, out, (n + more) / 2);
    say(e, GCI_FRAME_PART, 0, out + (n + more) / 2, n + more - (n + more) / 2);
}

/* One step of an honest start. false: nothing more to do, or not yet. */
static bool help(fuzz *f)
{
    int at = f->helped;
    if (at >= f->help) return false;
    if (f->me == 0) {
        if (at < 3) come(f, at + 1, GCI_PURPOSE_JOIN);
        else if (at < 6) say_card(f, at - 2);
        else if (at == 6 && f->control->phase < GCI_PHASE_READY) return false;
        else if (at < 9) say(find(f, at - 5, GCI_PURPOSE_JOIN), GCI_FRAME_READY, 0, NULL, 0);
        else return false;
    } else {
        if (at == 0 && !f->card_bytes) return false;
        if (at == 0) say_table(f, find(f, 0, GCI_PURPOSE_JOIN), 0);
        else if (at < 3) come(f, at - 1, GCI_PURPOSE_CONTROL);
        else if (at > 3 || f->control->phase != GCI_PHASE_READY) return false;
        else say(find(f, 0, GCI_PURPOSE_JOIN), GCI_FRAME_GO, 0, NULL, 0);
    }
    f->helped++;
    return true;
}

/* ---- the system -------------------------------------------------------------------------------------------------------- */

static int64_t sys_now(gci_sys *sys) { return ((fuzz *)sys)->now += 1000; }
static int sys_random(gci_sys *sys, void *buf, size_t bytes) { memset(buf, ++((fuzz *)sys)->nonce, bytes); return 0; }
static int sys_host(gci_sys *sys, char id[GCI_HOST_ID_BYTES], char name[GCI_HOST_NAME_BYTES])
{
    snprintf(id, GCI_HOST_ID_BYTES, "host%d", ((fuzz *)sys)->me);
    snprintf(name, GCI_HOST_NAME_BYTES, "host%d", ((fuzz *)sys)->me);
    return 0;
}
static int sys_interfaces(gci_sys *sys, gci_ifaddr *out, int max)
{
    gci_full_card card;
    others_card(((fuzz *)sys)->me, &card);
    if (max > 0) out[0] = card.addr[0];
    return 1;
}
static gci_route_answer sys_route(gci_sys *sys, const gci_addr *to, uint32_t bound)
{
    (void)sys, (void)to, (void)bound;
    return (gci_route_answer){ GCI_ROUTE_SPECIFIC, 1 };
}
static uint64_t sys_gate(gci_sys *sys) { (void)sys; return 0; }
static int sys_resolve(gci_sys *sys, const char *name, uint16_t port, gci_addr *out, int max)
{
    (void)sys, (void)max;
    if (gci_addr_parse(name, out) < 0) return -ENOENT;
    out->port = port;
    return 1;
}
static int sys_listen(gci_sys *sys, gci_addr *at)
{
    if (at->family == GCI_UNIX) return -EAFNOSUPPORT;
    at->port = (uint16_t)(PORT + ((fuzz *)sys)->me);
    return LISTENER;
}
static end *end_of(fuzz *f, int fd) { must(fd >= FD && fd < FD + f->ends && f->end[fd - FD].open); return &f->end[fd - FD]; }
static int sys_accept(gci_sys *sys, int fd, gci_addr *from)
{
    fuzz *f = (fuzz *)sys;
    (void)fd;
    for (int i = 0; i < f->ends; i++)
        if (f->end[i].waits) {
            f->end[i].waits = false;
            *from = (gci_addr){ .family = 4, .ip = { 10, 0, 0, (uint8_t)(f->end[i].rank + 1) }, .port = 50000 };
            return FD + i;
        }
    return -EAGAIN;
}
static int sys_connect(gci_sys *sys, const gci_addr *to, const gci_addr *own, uint32_t bind)
{
    fuzz *f = (fuzz *)sys;
    uint8_t nonce[GCI_NONCE_BYTES];
    int rank = to->ip[3] - 1;
    end *e = rank >= 0 && rank < RANKS && !f->refuses ? new_end(f, rank) : NULL;
    (void)own, (void)bind;
    if (!e) return -ECONNREFUSED;
    e->open = true;
    if (!f->mute) {
        gci_shake_self self = self_of(f, rank, 0);
        self.job = self.job ? self.job : 1;
        nonce_of(f, nonce);
        gci_shake_accept(&e->shake, &self, nonce);
        e->shaking = true;
    }
    return FD + (int)(e - f->end);
}
static int sys_connected(gci_sys *sys, int fd) { (void)end_of((fuzz *)sys, fd); return 0; }
static int sys_tune(gci_sys *sys, int fd, enum gci_tune how, int64_t t) { (void)how, (void)t; (void)end_of((fuzz *)sys, fd); return 0; }
static int64_t sys_silence(gci_sys *sys, int fd) { fuzz *f = (fuzz *)sys; return end_of(f, fd)->reset && f->mute ? GCI_SECOND : 0; }
static ssize_t sys_send(gci_sys *sys, int fd, const struct iovec *iov, int n)
{
    fuzz *f = (fuzz *)sys;
    end *e = end_of(f, fd);
    must(n == 1 && iov->iov_len > 0);
    if (e->reset) return f->mute ? -EAGAIN : -EPIPE;
    heard(f, e, iov->iov_base, iov->iov_len);
    return (ssize_t)iov->iov_len;
}
static ssize_t sys_recv(gci_sys *sys, int fd, const struct iovec *iov, int n)
{
    fuzz *f = (fuzz *)sys;
    end *e = end_of(f, fd);
    size_t take = gci_min(iov->iov_len, e->in_bytes - e->in_at);
    must(n == 1 && iov->iov_len > 0);
    if (!take) return e->over ? 0 : e->reset && !f->mute ? -ECONNRESET : -EAGAIN;
    memcpy(iov->iov_base, e->in + e->in_at, take);
    e->in_at += take;
    return (ssize_t)take;
}
static void sys_close(gci_sys *sys, int fd)
{
    fuzz *f = (fuzz *)sys;
    if (fd < FD) return;
    free(end_of(f, fd)->in);
    f->end[fd - FD] = (end){ .open = false };
}
static int sys_poller(gci_sys *sys) { (void)sys; return POLLER; }
static int sys_waker(gci_sys *sys) { (void)sys; return WAKER; }
static void sys_wake(gci_sys *sys, int fd) { (void)fd; ((fuzz *)sys)->woken = true; }
static void sys_rest(gci_sys *sys, int fd) { (void)fd; ((fuzz *)sys)->woken = false; }
static int sys_watch(gci_sys *sys, int poller, int fd, unsigned events, uint64_t tag)
{
    fuzz *f = (fuzz *)sys;
    (void)poller;
    if (fd == LISTENER) f->listens = events != 0, f->listener_tag = tag;
    if (fd >= FD) end_of(f, fd)->watched = events, end_of(f, fd)->tag = tag;
    return 0;
}
static int sys_spawn(gci_sys *sys, char *const argv[]) { (void)sys, (void)argv; return -ENOENT; }
static int sys_thread(gci_sys *sys, gci_thread **thread, void (*run)(void *), void *arg)
{
    fuzz *f = (fuzz *)sys;
    *thread = NULL;
    f->run = run;
    f->arg = f->control = arg;
    return 0;
}
static void sys_join(gci_sys *sys, gci_thread *thread) { (void)sys, (void)thread; }
static int sys_monitor(gci_sys *sys, gci_monitor **out) { *out = &((fuzz *)sys)->monitor; return 0; }
static void sys_monitor_free(gci_sys *sys, gci_monitor *m) { (void)sys; must(m->inside == 0); }
static void sys_enter(gci_sys *sys, gci_monitor *m) { (void)sys; must(m->inside++ == 0); }
static void sys_leave(gci_sys *sys, gci_monitor *m) { (void)sys; must(--m->inside == 0); }
static void sys_notify(gci_sys *sys, gci_monitor *m) { (void)sys; must(m->inside == 1); }
/* Whoever waits for the start: the control thread runs now, from its beginning to its end. */
static void sys_await(gci_sys *sys, gci_monitor *m, int64_t timeout)
{
    fuzz *f = (fuzz *)sys;
    (void)timeout;
    must(f->run != NULL);
    sys_leave(sys, m);
    f->run(f->arg);
    f->run = NULL;
    sys_enter(sys, m);
}

/* ---- what the input says --------------------------------------------------------------------------------------------- */

static uint32_t number(fuzz *f)
{
    static const uint32_t numbers[] = { 0, 1, 2, 3, 4, 5, 16, 17, 18, 255, 256, 65535, 1u << 24, INT32_MAX, 1u << 31, UINT32_MAX };
    uint8_t choice = next(&f->in);
    return choice < 128 ? numbers[choice % GCI_COUNT(numbers)] : choice - 128u;
}

/* A frame of a kind that is said there, its numbers as the input says. */
static void op_frame(fuzz *f)
{
    static const uint8_t kinds[] = { GCI_FRAME_NOTICE, GCI_FRAME_SEEN, GCI_FRAME_LEAVE, GCI_FRAME_DONE, GCI_FRAME_CALL, GCI_FRAME_STARVED,
                                     GCI_FRAME_READY, GCI_FRAME_MISSED, GCI_FRAME_TRIED, GCI_FRAME_TRY, GCI_FRAME_GO, GCI_FRAME_FAIL,
                                     GCI_FRAME_NOTE, GCI_FRAME_WANT, GCI_FRAME_FROM, GCI_FRAME_PART };
    static const uint8_t words[GCI_COUNT(kinds)] = { 9, 0, 0, 1, 1, 1, 2, 3, 1, 1, 2, 2, 2, 0, 1, 3 };
    uint8_t choice = next(&f->in), which = next(&f->in), body[4 * 16 + GCI_CARD_BYTES_MAX];
    unsigned kind = kinds[choice % GCI_COUNT(kinds)], flag = next(&f->in);
    size_t n = words[choice % GCI_COUNT(kinds)] + (choice >= 240 ? which / 64u : 0u);
    for (size_t i = 0; i < n; i++) gci_put32(body + 4 * i, number(f));
    if (kind == GCI_FRAME_FROM) {
        gci_full_card card;
        others_card((int)(gci_get32(body) % RANKS), &card);
        n = 1 + gci_card_encode(&card, body + 4) / 4;
    }
    unsigned purpose = which & 16 ? GCI_PURPOSE_JOIN : which & 32 ? GCI_PURPOSE_FETCH : GCI_PURPOSE_CONTROL;
    say(find(f, which % RANKS, purpose), kind, flag, body, 4 * n);
}

static void op_raw(fuzz *f)
{
    uint8_t which = next(&f->in);
    size_t n = gci_min(1u + next(&f->in), f->in.bytes);
    end *e = f->ends ? &f->end[which % f->ends] : NULL;
    if (e) give(e, f->in.data, n);
    f->in.data += n;
    f->in.bytes -= n;
}

static void op_end(fuzz *f)
{
    uint8_t which = next(&f->in);
    end *e = f->ends ? &f->end[which % f->ends] : NULL;
    if (e && e->open) *(which & 128 ? &e->over : &e->reset) = true;
}

/* What this rank's other threads ask for. */
static void op_ask(fuzz *f)
{
    uint8_t choice = next(&f->in);
    int rank = choice / 16 % RANKS;
    gci_notice n = { .kind = GCI_NOTICE_MISMATCH, .origin = (uint32_t)f->me };
    if (f->control->phase != GCI_PHASE_RUN) return;
    switch (choice % 8) {
    case 0: case 1: (void)gci_control_connect(f->control, GCI_PURPOSE_DATA, rank, choice / 64); break;
    case 2: (void)gci_control_connect(f->control, GCI_PURPOSE_BACKBONE, rank, choice / 64); break;
    case 3: (void)gci_control_restart(f->control); break;
    case 4: (void)gci_control_down(f->control, rank); break;
    case 5: (void)gci_control_notify(f->control, &n); break;
    case 6: (void)gci_control_strand(f->control, rank, 1, 1 + choice / 64u); break;
    default: gci_control_full(f->control, choice & 128);
    }
}

static void stop(fuzz *f, bool clean)
{
    if (f->stopped || f->control->phase != GCI_PHASE_RUN) return;
    f->stopped = true;
    gci_control_leave(f->control, clean);
}

static void operate(fuzz *f)
{
    uint8_t op = next(&f->in), choice;
    switch (op % 16) {
    case 0: case 1: case 2: case 3: case 4: case 5: op_frame(f); break;
    case 6: op_raw(f); break;
    case 7: case 8:
        choice = next(&f->in);
        come(f, choice % RANKS, 1 + choice / RANKS % (GCI_PURPOSES - 1));
        break;
    case 9: op_end(f); break;
    case 10: case 11: op_ask(f); break;
    case 12: f->now += (int64_t)1 << next(&f->in) % 36; break;
    case 13: choice = next(&f->in); f->mute = choice & 1; f->refuses = choice & 2; break;
    case 14:
        choice = next(&f->in);
        say_table(f, find(f, choice % RANKS, choice & 8 ? GCI_PURPOSE_FETCH : GCI_PURPOSE_JOIN), choice / 16);
        break;
    default: if (op & 64) stop(f, op & 128); else say_card(f, 1 + op / 16 % 3);
    }
}

/* What the library looks at, and has something to do with. */
static int events_of(fuzz *f, gci_event *event, int max)
{
    int n = 0;
    if (f->woken) event[n++] = (gci_event){ GCI_TAG_WAKER, GCI_READ };
    for (int i = 0; i < f->ends && n < max; i++) {
        const end *e = &f->end[i];
        bool can = e->in_at < e->in_bytes || e->over || (e->reset && !f->mute);
        unsigned events = e->watched & ((can ? GCI_READ : 0u) | (e->reset && f->mute ? 0u : GCI_WRITE));
        if (e->open && !e->waits && events) event[n++] = (gci_event){ e->tag, events };
        if (e->waits && f->listens && n < max) event[n++] = (gci_event){ f->listener_tag, GCI_READ };
    }
    return n;
}

static int sys_wait(gci_sys *sys, int poller, gci_event *event, int max, int64_t timeout)
{
    fuzz *f = (fuzz *)sys;
    int n;
    (void)poller;
    must(++f->waits < WAITS_MAX);       /* it ends */
    must(atomic_load(&f->control->env->memory) < MEMORY_MAX);
    bool helped = help(f), quiet = events_of(f, event, max) == 0;
    bool enough = f->waits > WAITS_MAX / 2;     /* peers that fall silent, and come again, could go on so for ever */
    if (enough || (!helped && (quiet || !f->patient) && (f->helped >= f->help || f->waits % 8 == 0))) {
        if (f->in.bytes && !enough) operate(f);
        else stop(f, true);
    }
    n = events_of(f, event, max);
    if (n == 0) f->now += timeout == GCI_FOREVER ? GCI_SECOND : timeout;
    return n;
}

static void on_news(void *user, const gci_news *news)
{
    fuzz *f = user;
    bool gone = news->kind == GCI_NEWS_DEAD || news->kind == GCI_NEWS_LEFT;
    must(news->rank >= 0 && news->rank < RANKS && memchr(news->text, 0, sizeof news->text));
    must((news->kind != GCI_NEWS_DOWN && news->kind != GCI_NEWS_UP) || (news->other >= 0 && news->other < RANKS && news->other != news->rank));
    must(!gone || !f->dead[news->rank]);
    f->dead[news->rank] |= gone;
    must(news->epoch == f->epoch || gone || news->kind == GCI_NEWS_DOWN || news->kind == GCI_NEWS_UP || news->kind == GCI_NEWS_EPOCH);
    f->epoch = news->epoch;
    if (news->kind == GCI_NEWS_LINK) {
        must(news->rank != f->me && news->purpose >= GCI_PURPOSE_DATA);
        sys_close(&f->sys, news->fd);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static fuzz f;
    gc_options o = GRIDCOMM_OPTIONS_INIT;
    gci_place place = { .ranks = RANKS, .roots = 1, .root = { { "10.0.0.1", PORT } }, .listen_fd = -1 };
    char text[GCI_TEXT];
    gci_env env;
    f = (fuzz){ .in = { data, bytes }, .job = 1234567,
        .sys = { .now = sys_now, .random = sys_random, .host = sys_host, .interfaces = sys_interfaces, .route = sys_route,
                 .gate = sys_gate, .resolve = sys_resolve, .listen = sys_listen, .accept = sys_accept, .connect = sys_connect,
                 .connected = sys_connected, .tune = sys_tune, .silence = sys_silence, .send = sys_send, .recv = sys_recv,
                 .close = sys_close, .poller = sys_poller, .watch = sys_watch, .wait = sys_wait, .waker = sys_waker, .wake = sys_wake,
                 .rest = sys_rest, .spawn = sys_spawn, .thread = sys_thread, .join = sys_join, .monitor = sys_monitor,
                 .monitor_free = sys_monitor_free, .enter = sys_enter, .leave = sys_leave, .await = sys_await, .notify = sys_notify } };
    uint8_t choice = next(&f.in);
    f.me = choice & 1 ? 2 : 0;
    f.patient = choice & 128;
    f.help = choice & 2 ? 9 : choice / 4 % 32 % 10;
    place.rank = f.me;
    place.key_bytes = strlen(key);
    memcpy(place.key, key, strlen(key));
    o.start_timeout = 2, o.peer_timeout = 1;
    o.debug = "";
    o.log = NULL;
    gci_env_init(&env, &f.sys, &o);
    gci_control *c = NULL;
    int err = gci_control_start(&c, &env, &o, &place, on_news, &f, text);
    must((err == GC_OK) == (c != NULL) && memchr(text, 0, sizeof text));
    gci_control_stop(c, false);
    must(atomic_load(&env.memory) == 0);
    for (int i = 0; i < f.ends; i++) {
        must(!f.end[i].open || f.end[i].waits);
        free(f.end[i].in);
    }
    return 0;
}
