/* test_control.c: whole jobs of control threads in one process, on loopback: start, links, notices, deaths, strangers.
 * SPDX-License-Identifier: MIT
 *
 * Each rank is a gci_control with an environment of its own. What it tells is kept in a log per rank; tests wait for what
 * they expect with a time limit, and look at the whole log afterwards, so that a second LINK or a false death is seen.
 * A rank "dies" by being a forked child that is killed, as a real one would be.
 */
#include "gridcomm_int.h"
#include "../port.h"

#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <netinet/in.h>
#include <time.h>
#include <unistd.h>

enum { RANKS_MAX = 64, NEWS_MAX = 512, LIMIT_S = 20 };

/* The real table of system functions, with a count of what went out. */
typedef struct counted_sys {
    gci_sys     sys;                /* first: the functions are given this */
    atomic_int *sends;
    bool        no_unix;            /* as in a sandbox that forbids Unix sockets */
    int         taken;              /* so many attempts to listen find somebody else at the port */
} counted_sys;

typedef struct rank_state {
    struct job  *job;
    int          rank, code;
    bool         started, skip, no_unix;
    int          taken;
    const char  *ports;
    double       start_timeout, peer_timeout, took;
    const char  *key;
    int          ranks;             /* the size that it believes */
    gci_env      env;
    counted_sys  counted;
    gci_control *control;
    gci_news     news[NEWS_MAX];
    int          count;
    char         text[GCI_TEXT];
    pthread_t    thread;
} rank_state;

typedef struct job {
    int             n, port;
    pthread_mutex_t lock;
    pthread_cond_t  changed;
    atomic_int     *sends;          /* by rank; children share it */
    rank_state      rank[RANKS_MAX];
} job;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void on_news(void *user, const gci_news *news)
{
    rank_state *r = user;
    pthread_mutex_lock(&r->job->lock);
    if (r->count < NEWS_MAX)
        r->news[r->count++] = *news;
    pthread_cond_broadcast(&r->job->changed);
    pthread_mutex_unlock(&r->job->lock);
}

static int count_news(rank_state *r, enum gci_news_kind kind, int rank)
{
    int count = 0;
    for (int i = 0; i < r->count; i++)
        count += r->news[i].kind == kind && (rank < 0 || r->news[i].rank == rank);
    return count;
}

/* Waits until r has at least wanted news of that kind from rank (-1: any). */
static bool await_news(rank_state *r, enum gci_news_kind kind, int rank, int wanted)
{
    struct timespec until;
    bool found;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LIMIT_S;
    pthread_mutex_lock(&r->job->lock);
    while (!(found = count_news(r, kind, rank) >= wanted))
        if (pthread_cond_timedwait(&r->job->changed, &r->job->lock, &until) == ETIMEDOUT)
            break;
    pthread_mutex_unlock(&r->job->lock);
    return found;
}

static ssize_t counted_send(gci_sys *sys, int fd, const struct iovec *part, int n)
{
    ssize_t sent = gci_sys_real()->send(gci_sys_real(), fd, part, n);
    atomic_fetch_add(((counted_sys *)sys)->sends, sent > 0);
    return sent;
}

static int counted_listen(gci_sys *sys, gci_addr *at)
{
    counted_sys *counted = (counted_sys *)sys;
    if (at->family == GCI_UNIX && counted->no_unix)
        return -EAFNOSUPPORT;
    if (at->family != GCI_UNIX && counted->taken-- > 0)
        return -EADDRINUSE;
    return gci_sys_real()->listen(gci_sys_real(), at);
}

static int counted_connect(gci_sys *sys, const gci_addr *to, const gci_addr *source, uint32_t bind)
{
    bool never = to->family == GCI_UNIX && ((counted_sys *)sys)->no_unix;
    return never ? -EAFNOSUPPORT : gci_sys_real()->connect(gci_sys_real(), to, source, bind);
}

static job *job_new(int n)
{
    job *j = calloc(1, sizeof *j);
    assert_non_null(j);
    j->n = n;
    j->sends = mmap(NULL, RANKS_MAX * sizeof *j->sends, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(j->sends != MAP_FAILED);
    j->port = free_port();
    pthread_mutex_init(&j->lock, NULL);
    pthread_cond_init(&j->changed, NULL);
    for (int r = 0; r < n; r++)
        j->rank[r] = (rank_state){ .job = j, .rank = r, .key = "sesame", .ranks = n, .start_timeout = LIMIT_S, .peer_timeout = 10 };
    return j;
}

static void *start_one(void *arg)
{
    rank_state *r = arg;
    gc_options o = GRIDCOMM_OPTIONS_INIT;
    gci_place place = { .rank = r->rank, .ranks = r->ranks, .roots = 1, .listen_fd = -1 };
    double begun = seconds();

    o.start_timeout = r->start_timeout;
    o.peer_timeout = r->peer_timeout;
    o.ports = r->ports;
    snprintf(place.root[0].host, sizeof place.root[0].host, "127.0.0.1");
    place.root[0].port = (uint16_t)r->job->port;
    place.key_bytes = strlen(r->key);
    memcpy(place.key, r->key, place.key_bytes);
    snprintf(place.cluster, sizeof place.cluster, "site%d/rack%d", r->rank % 3, r->rank % 2);
    r->counted = (counted_sys){ *gci_sys_real(), &r->job->sends[r->rank], r->no_unix, r->taken };
    r->counted.sys.send = counted_send;
    r->counted.sys.listen = counted_listen;
    r->counted.sys.connect = counted_connect;
    gci_env_init(&r->env, &r->counted.sys, NULL);
    r->env.rank = r->rank;
    r->code = gci_control_start(&r->control, &r->env, &o, &place, on_news, r, r->text);
    r->took = seconds() - begun;
    return NULL;
}

static void job_begin(job *j)
{
    for (int r = 0; r < j->n; r++)
        if (!j->rank[r].skip) {
            assert_int_equal(pthread_create(&j->rank[r].thread, NULL, start_one, &j->rank[r]), 0);
            j->rank[r].started = true;
        }
}

static void job_wait(job *j)
{
    for (int r = 0; r < j->n; r++)
        if (j->rank[r].started)
            pthread_join(j->rank[r].thread, NULL);
}

static job *job_start(int n)
{
    job *j = job_new(n);
    job_begin(j);
    job_wait(j);
    for (int r = 0; r < n; r++)
        if (j->rank[r].code != GC_OK)
            fail_msg("rank %d of %d: %d %s", r, n, j->rank[r].code, j->rank[r].text);
    return j;
}

static void *stop_one(void *arg)
{
    rank_state *r = arg;
    double begun = seconds();
    gci_control_stop(r->control, true);
    r->control = NULL;
    r->took = seconds() - begun;
    return NULL;
}

static void job_free(job *j)
{
    for (int r = 0; r < j->n; r++) {
        rank_state *s = &j->rank[r];
        for (int i = 0; i < s->count; i++)
            if (s->news[i].kind == GCI_NEWS_LINK)
                s->env.sys->close(s->env.sys, s->news[i].fd);
        if (s->env.sys)
            assert_int_equal(atomic_load(&s->env.memory), 0);       /* nothing leaked */
    }
    pthread_mutex_destroy(&j->lock);
    pthread_cond_destroy(&j->changed);
    munmap(j->sends, RANKS_MAX * sizeof *j->sends);
    free(j);
}

/* All leave together, as gc_finalize does; nobody waits for the bound, nobody takes it for a death. */
static void job_stop(job *j)
{
    for (int r = 0; r < j->n; r++)
        if (j->rank[r].control)
            pthread_create(&j->rank[r].thread, NULL, stop_one, &j->rank[r]);
        else
            j->rank[r].started = false;
    job_wait(j);
    for (int r = 0; r < j->n; r++)
        if (j->rank[r].started) {
            assert_true(j->rank[r].took < 0.9);
            assert_int_equal(count_news(&j->rank[r], GCI_NEWS_LEFT, -1), 0);
        }
}

static int link_of(rank_state *r, int peer)
{
    for (int i = 0; i < r->count; i++)
        if (r->news[i].kind == GCI_NEWS_LINK && r->news[i].rank == peer)
            return r->news[i].fd;
    return -1;
}

static uint8_t exchange(rank_state *from, int to, uint8_t byte, int in)
{
    struct iovec v = { &byte, 1 };
    struct pollfd p = { .fd = in, .events = POLLIN };
    uint8_t got = 0;
    struct iovec w = { &got, 1 };
    assert_int_equal(from->env.sys->send(from->env.sys, link_of(from, to), &v, 1), 1);
    assert_int_equal(poll(&p, 1, LIMIT_S * 1000), 1);
    assert_int_equal(from->env.sys->recv(from->env.sys, in, &w, 1), 1);
    return got;
}

/* Both sides of every pair ask at once: one LINK each, and it is the same connection. */
static void test_all_pairs(void **state)
{
    static const int sizes[] = { 1, 2, 3, 5, 16, 64 };
    (void)state;
    for (size_t s = 0; s < GCI_COUNT(sizes); s++) {
        int n = sizes[s];
        job *j = job_start(n);
        for (int distance = 1; distance < n; distance++)
            for (int r = 0; r < n; r++)
                assert_int_equal(gci_control_connect(j->rank[r].control, GCI_PURPOSE_DATA, (r + distance) % n, 0), GC_OK);
        for (int a = 0; a < n; a++)
            for (int b = 0; b < n; b++)
                if (a != b && !await_news(&j->rank[a], GCI_NEWS_LINK, b, 1))
                    fail_msg("n %d: rank %d has no link to %d", n, a, b);
        for (int a = 0; a < n; a++) {
            for (int b = 0; b < n; b++)
                if (a != b)
                    assert_int_equal(exchange(&j->rank[a], b, (uint8_t)(1 + a + b), link_of(&j->rank[b], a)), 1 + a + b);
            assert_int_equal(j->rank[a].count, n - 1);
        }
        job_stop(j);
        for (int a = 0; a < n; a++)
            assert_int_equal(j->rank[a].count, n - 1);
        job_free(j);
    }
}

/* A lost link: the count that the caller has seen tells a new request from a stale one. */
static void test_had(void **state)
{
    job *j = job_start(2);
    (void)state;
    gci_control_connect(j->rank[0].control, GCI_PURPOSE_DATA, 1, 0);
    assert_true(await_news(&j->rank[0], GCI_NEWS_LINK, 1, 1) && await_news(&j->rank[1], GCI_NEWS_LINK, 0, 1));
    gci_control_connect(j->rank[0].control, GCI_PURPOSE_DATA, 1, 0);
    gci_control_connect(j->rank[1].control, GCI_PURPOSE_DATA, 0, 0);
    for (int round = 2; round < 20; round++) {
        gci_control_connect(j->rank[0].control, GCI_PURPOSE_DATA, 1, (uint32_t)round - 1);
        gci_control_connect(j->rank[1].control, GCI_PURPOSE_DATA, 0, (uint32_t)round - 1);
        assert_true(await_news(&j->rank[0], GCI_NEWS_LINK, 1, round) && await_news(&j->rank[1], GCI_NEWS_LINK, 0, round));
        assert_int_equal(j->rank[0].count, round);
        assert_int_equal(j->rank[1].count, round);
    }
    job_stop(j);
    job_free(j);
}

static void test_notices(void **state)
{
    enum { RANKS = 16, EACH = 20 };
    job *j = job_start(RANKS);
    (void)state;
    for (uint32_t i = 0; i < EACH; i++)
        for (int r = 0; r < RANKS; r += 5)
            assert_int_equal(gci_control_notify(j->rank[r].control, &(gci_notice){ GCI_NOTICE_MISMATCH, (uint32_t)r, { i, ~i, 3 } }), GC_OK);
    assert_int_equal(gci_control_notify(j->rank[2].control, &(gci_notice){ GCI_NOTICE_ABORT, 2, { 7 } }), GC_OK);
    for (int r = 0; r < RANKS; r++) {
        int expected = (r % 5 ? 4 : 3) * EACH + (r != 2);
        assert_true(await_news(&j->rank[r], GCI_NEWS_NOTICE, -1, expected));
        assert_int_equal(j->rank[r].count, expected);
        for (int i = 0; i < expected; i++) {
            const gci_notice *n = &j->rank[r].news[i].notice;
            assert_true(n->kind == GCI_NOTICE_ABORT ? n->origin == 2 && n->word[0] == 7 : n->word[0] == ~n->word[1] && n->word[2] == 3);
        }
    }
    job_stop(j);
    job_free(j);
}

static void test_left(void **state)
{
    job *j = job_start(5);
    (void)state;
    gci_control_stop(j->rank[3].control, false);
    j->rank[3].control = NULL;
    for (int r = 0; r < 5; r++)
        if (r != 3) {
            assert_true(await_news(&j->rank[r], GCI_NEWS_LEFT, 3, 1));
            assert_int_equal(j->rank[r].count, 1);
            j->rank[r].count = 0;
        }
    job_stop(j);
    job_free(j);
}

/* ---- Unix sockets within a host ---------------------------------------------------------------------------------------- */

static int domain_of(int fd)
{
    int domain = -1;
    socklen_t bytes = sizeof domain;
    assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes), 0);
    return domain;
}

/* By what the link of the pair is made that the first of the two opens. */
static int linked_by(job *j, int from, int to)
{
    gci_control_connect(j->rank[from].control, GCI_PURPOSE_DATA, to, 0);
    assert_true(await_news(&j->rank[from], GCI_NEWS_LINK, to, 1) && await_news(&j->rank[to], GCI_NEWS_LINK, from, 1));
    int domain = domain_of(link_of(&j->rank[from], to));
    assert_int_equal(domain == AF_UNIX, domain_of(link_of(&j->rank[to], from)) == AF_UNIX);
    assert_int_equal(exchange(&j->rank[from], to, 7, link_of(&j->rank[to], from)), 7);
    assert_int_equal(exchange(&j->rank[to], from, 8, link_of(&j->rank[from], to)), 8);
    return domain;
}

static void test_by_unix_sockets(void **state)
{
    job *j = job_start(3);
    (void)state;
    for (int a = 0; a < 3; a++)
        assert_int_equal(linked_by(j, a, (a + 1) % 3), AF_UNIX);
    job_stop(j);
    job_free(j);
}

/* Rank 1 can have none, the others would. */
static void test_without_unix_sockets(void **state)
{
    job *j = job_new(3);
    (void)state;
    j->rank[1].no_unix = true;
    job_begin(j);
    job_wait(j);
    for (int r = 0; r < 3; r++)
        assert_int_equal(j->rank[r].code, GC_OK);
    assert_int_not_equal(linked_by(j, 0, 1), AF_UNIX);
    assert_int_not_equal(linked_by(j, 1, 2), AF_UNIX);
    assert_int_equal(linked_by(j, 2, 0), AF_UNIX);
    job_stop(j);
    job_free(j);
}

/* Somebody else has the name of rank 0's socket: he does not answer, or has no room, or hangs up, or talks nonsense. */
enum thief { MUTE, FULL, HANGS_UP, TALKS, THIEVES };
typedef struct theft { enum thief how; int listener, waits[8], waiting; pthread_t thread; atomic_int over, callers; } theft;

static void *steal(void *arg)
{
    static const char nonsense[] = "HTTP/1.1 400 Bad Request\r\nServer: another one\r\nContent-Length: 0\r\n\r\n";
    theft *t = arg;
    struct pollfd p = { .fd = t->listener, .events = POLLIN };
    int kept[256], n = 0;
    while (!atomic_load(&t->over)) {
        if (poll(&p, 1, 10) != 1 || n == (int)GCI_COUNT(kept))
            continue;
        int fd = accept(t->listener, NULL, NULL);
        atomic_fetch_add(&t->callers, 1);
        if (t->how == TALKS)
            (void)!send(fd, nonsense, sizeof nonsense - 1, MSG_NOSIGNAL);
        if (t->how == MUTE)
            kept[n++] = fd;
        else
            close(fd);
    }
    while (n > 0)
        close(kept[--n]);
    return NULL;
}

static void theft_begin(theft *t, enum thief how, int port)
{
    gci_addr at = { .family = GCI_UNIX, .port = (uint16_t)port };
    *t = (theft){ .how = how, .listener = gci_sys_real()->listen(gci_sys_real(), &at) };
    assert_true(t->listener >= 0);
    if (how == FULL) {              /* one waits, and nobody is ever let in */
        assert_int_equal(listen(t->listener, 0), 0);
        while ((t->waits[t->waiting] = gci_sys_real()->connect(gci_sys_real(), &at, NULL, 0)) >= 0)
            assert_true(++t->waiting < (int)GCI_COUNT(t->waits));
        return;
    }
    assert_int_equal(pthread_create(&t->thread, NULL, steal, t), 0);
}

static void theft_end(theft *t)
{
    atomic_store(&t->over, 1);
    if (t->how != FULL)
        pthread_join(t->thread, NULL);
    while (t->waiting > 0)
        close(t->waits[--t->waiting]);
    close(t->listener);
}

static void test_name_taken(void **state)
{
    (void)state;
    for (int how = 0; how < THIEVES; how++) {
        job *j = job_new(3);
        theft t;
        theft_begin(&t, (enum thief)how, j->port);
        double begun = seconds();
        job_begin(j);
        job_wait(j);
        for (int r = 0; r < 3; r++)
            if (j->rank[r].code != GC_OK)
                fail_msg("thief %d: rank %d: %d %s", how, r, j->rank[r].code, j->rank[r].text);
        assert_int_not_equal(linked_by(j, 1, 0), AF_UNIX);
        assert_int_equal(linked_by(j, 0, 2), AF_UNIX);
        assert_true(seconds() - begun < 3);         /* it costs a try, now and then */
        assert_true(how == FULL || atomic_load(&t.callers) > 0);
        job_stop(j);
        for (int r = 0; r < 3; r++)
            assert_int_equal(count_news(&j->rank[r], GCI_NEWS_DEAD, -1), 0);
        theft_end(&t);
        job_free(j);
    }
}

/* ---- starts that fail: everybody hears the same reason in time ------------------------------------------------------- */

static void test_missing(void **state)
{
    job *j = job_new(8);
    (void)state;
    j->rank[3].skip = j->rank[5].skip = j->rank[6].skip = j->rank[7].skip = true;
    for (int r = 0; r < 8; r++)
        j->rank[r].start_timeout = 1;
    job_begin(j);
    job_wait(j);
    for (int r = 0; r < 8; r++)
        if (!j->rank[r].skip) {
            assert_int_equal(j->rank[r].code, GC_ERR_TIMEOUT);
            assert_string_equal(j->rank[r].text, "ranks 3, 5-7 of 8 did not join within 1 s");
            assert_true(j->rank[r].took < 2);
        }
    job_free(j);
}

static void test_no_root(void **state)
{
    job *j = job_new(2);
    (void)state;
    j->rank[0].skip = true;
    j->rank[1].start_timeout = 0.5;
    job_begin(j);
    job_wait(j);
    assert_int_equal(j->rank[1].code, GC_ERR_TIMEOUT);
    assert_non_null(strstr(j->rank[1].text, "rank 0 was not reached within 0.5 s: 127.0.0.1:"));
    assert_true(j->rank[1].took < 1.5);
    job_free(j);
}

static void test_wrong_key(void **state)
{
    job *j = job_new(3);
    (void)state;
    j->rank[2].key = "open";
    for (int r = 0; r < 3; r++)
        j->rank[r].start_timeout = 2;
    job_begin(j);
    job_wait(j);
    assert_int_equal(j->rank[2].code, GC_ERR_AUTH);
    assert_non_null(strstr(j->rank[2].text, "wrong key"));
    assert_true(j->rank[2].took < 1.5);
    assert_int_equal(j->rank[1].code, GC_ERR_TIMEOUT);
    assert_non_null(strstr(j->rank[1].text, "rank 2 of 3 did not join within 2 s"));
    assert_non_null(strstr(j->rank[0].text, "another key"));
    job_free(j);
}

static void test_wrong_size(void **state)
{
    job *j = job_new(3);
    (void)state;
    j->rank[2].ranks = 4;
    for (int r = 0; r < 3; r++)
        j->rank[r].start_timeout = 2;
    job_begin(j);
    job_wait(j);
    assert_int_equal(j->rank[2].code, GC_ERR_CONFIG);
    assert_non_null(strstr(j->rank[2].text, "wrong size: counts 3 ranks, not 4"));
    job_free(j);
}

static void test_taken(void **state)
{
    job *j = job_new(4);
    (void)state;
    j->rank[2].rank = 1;            /* two that believe to be rank 1, and rank 2 is missing */
    for (int r = 0; r < 4; r++)
        j->rank[r].start_timeout = 2;
    job_begin(j);
    job_wait(j);
    assert_true((j->rank[1].code == GC_ERR_CONFIG) != (j->rank[2].code == GC_ERR_CONFIG));
    assert_non_null(strstr(j->rank[j->rank[1].code == GC_ERR_CONFIG ? 1 : 2].text, "rank 1 is taken"));
    assert_non_null(strstr(j->rank[3].text, "rank 2 of 4 did not join"));
    job_free(j);
}

static void test_no_key_beyond_loopback(void **state)
{
    gci_place place = { .rank = 1, .ranks = 2, .roots = 1, .listen_fd = -1 };
    gci_control *control;
    gci_env env;
    char text[GCI_TEXT];
    (void)state;
    snprintf(place.root[0].host, sizeof place.root[0].host, "192.0.2.1");
    place.root[0].port = 4000;
    gci_env_init(&env, gci_sys_real(), NULL);
    assert_int_equal(gci_control_start(&control, &env, NULL, &place, on_news, NULL, text), GC_ERR_CONFIG);
    assert_non_null(strstr(text, "GRIDCOMM_KEY"));
    assert_int_equal(atomic_load(&env.memory), 0);
}

/* Every port of the range is taken for the moment, because others who want one look at the same instant. */
static void test_ports_taken(void **state)
{
    job *j = job_new(2);
    char ports[24];
    int low = free_port();
    (void)state;
    snprintf(ports, sizeof ports, "%d-%d", low, low + 1);
    j->rank[1].ports = ports;
    j->rank[1].taken = 3;
    job_begin(j);
    job_wait(j);
    assert_int_equal(j->rank[1].code, GC_OK);
    job_stop(j);
    job_free(j);

    j = job_new(2);
    j->rank[1].ports = ports;
    j->rank[1].taken = 1000;
    j->rank[0].start_timeout = 0.5;
    job_begin(j);
    job_wait(j);
    assert_int_equal(j->rank[1].code, GC_ERR_SYSTEM);
    assert_non_null(strstr(j->rank[1].text, "cannot listen on port"));
    job_free(j);
}

/* A file of links that is wrong is said before anything else is done; one that is not there is no error. */
static void test_links_file(void **state)
{
    gci_place place = { .rank = 0, .ranks = 1, .roots = 1, .listen_fd = -1, .key = "k", .key_bytes = 1 };
    char path[] = "/tmp/gct_links_XXXXXX", text[GCI_TEXT];
    gc_options o = GRIDCOMM_OPTIONS_INIT;
    int fd = mkstemp(path);
    gci_control *control;
    gci_env env;
    (void)state;
    assert_int_equal(write(fd, "require a b via=pigeon\n", 23), 23);
    close(fd);
    o.links = path;
    snprintf(place.root[0].host, sizeof place.root[0].host, "127.0.0.1");
    place.root[0].port = (uint16_t)free_port();
    gci_env_init(&env, gci_sys_real(), NULL);
    assert_int_equal(gci_control_start(&control, &env, &o, &place, on_news, NULL, text), GC_ERR_CONFIG);
    assert_non_null(strstr(text, path));
    assert_non_null(strstr(text, "pigeon"));
    remove(path);
    assert_int_equal(gci_control_start(&control, &env, &o, &place, on_news, NULL, text), GC_OK);
    gci_control_stop(control, true);
    assert_int_equal(atomic_load(&env.memory), 0);
}

/* Restarts of all ranks: all reach the same epoch; what nobody may ask for is refused. */
static void test_restart(void **state)
{
    enum { RANKS = 7, EACH = 5 };
    job *j = job_start(RANKS);
    (void)state;
    for (int i = 0; i < EACH; i++)
        for (int r = 0; r < RANKS; r++)
            assert_int_equal(gci_control_restart(j->rank[r].control), GC_OK);
    for (int r = 0; r < RANKS; r++)
        for (double until = seconds() + LIMIT_S; seconds() < until; usleep(1000)) {
            pthread_mutex_lock(&j->lock);
            bool there = j->rank[r].count && j->rank[r].news[j->rank[r].count - 1].epoch == RANKS * EACH;
            pthread_mutex_unlock(&j->lock);
            if (there)
                break;
        }
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(j->rank[r].news[j->rank[r].count - 1].epoch, RANKS * EACH);
    assert_int_equal(gci_control_connect(j->rank[0].control, GCI_PURPOSE_CONTROL, 1, 0), GC_ERR_ARG);
    assert_int_equal(gci_control_connect(j->rank[0].control, GCI_PURPOSE_DATA, 0, 0), GC_ERR_ARG);
    assert_int_equal(gci_control_connect(j->rank[0].control, GCI_PURPOSE_BACKBONE, RANKS, 0), GC_ERR_ARG);
    job_stop(j);
    job_free(j);
}

/* ---- deaths ---------------------------------------------------------------------------------------------------------- */

/* ThreadSanitizer cannot follow a fork of a process that had threads: those tests run in the other builds. */
#if defined __SANITIZE_THREAD__
#define CONTROL_FORKS 0
#elif defined __has_feature
#if __has_feature(thread_sanitizer)
#define CONTROL_FORKS 0
#endif
#endif
#ifndef CONTROL_FORKS
#define CONTROL_FORKS 1
#endif

/* One rank in a child process that starts with the others and then sleeps. */
static pid_t fork_rank(job *j, int rank)
{
    pid_t pid = fork();
    if (pid == 0) {
        alarm(2 * LIMIT_S);
        start_one(&j->rank[rank]);
        for (;;)
            pause();
    }
    assert_true(pid > 0);
    j->rank[rank].skip = true;
    return pid;
}

static void test_killed(void **state)
{
    (void)state;
    for (int victim = 0; victim < 9; victim += 4) {
        job *j = job_new(9);
        pid_t pid;
        double killed;
        for (int r = 0; r < 9; r++)
            j->rank[r].peer_timeout = 1;
        pid = fork_rank(j, victim);
        job_begin(j);
        job_wait(j);
        for (int r = 0; r < 9; r++)
            assert_int_equal(j->rank[r].code, GC_OK);
        killed = seconds();
        kill(pid, SIGKILL);
        for (int r = 0; r < 9; r++)
            if (r != victim)
                assert_true(await_news(&j->rank[r], GCI_NEWS_DEAD, victim, 1));
        assert_true(seconds() - killed < 1);
        waitpid(pid, NULL, 0);
        gci_control_connect(j->rank[(victim + 3) % 9].control, GCI_PURPOSE_DATA, victim, 0);
        assert_true(await_news(&j->rank[(victim + 3) % 9], GCI_NEWS_NO_LINK, victim, 1));
        for (int r = 0; r < 9; r++)
            if (r != victim) {
                assert_int_equal(j->rank[r].count, 1 + (r == (victim + 3) % 9));
                assert_non_null(strstr(j->rank[r].news[0].text, "died"));
            }
        job_stop(j);
        job_free(j);
    }
}

/* A stopped process is alive, however long, and hears of what it missed when it goes on. */
static void test_stopped(void **state)
{
    (void)state;
    enum { MANY = 300 };
    job *j = job_new(5);
    pid_t pid = fork_rank(j, 2);
    for (int r = 0; r < 5; r++)
        j->rank[r].peer_timeout = 3;
    job_begin(j);
    job_wait(j);
    kill(pid, SIGSTOP);
    for (uint32_t i = 0; i < MANY; i++)     /* more than its connections may be ahead */
        gci_control_notify(j->rank[1].control, &(gci_notice){ GCI_NOTICE_MISMATCH, 1, { i } });
    sleep(4);                               /* longer than peer_timeout */
    for (int r = 0; r < 5; r++)
        if (r != 2)
            assert_int_equal(j->rank[r].count, r == 1 ? 0 : MANY);
    kill(pid, SIGCONT);
    kill(pid, SIGKILL);
    for (int r = 0; r < 5; r++)
        if (r != 2)
            assert_true(await_news(&j->rank[r], GCI_NEWS_DEAD, 2, 1));
    waitpid(pid, NULL, 0);
    job_stop(j);
    job_free(j);
}

/* A rank that has joined: it has sent HELLO and PROOF, and then, because rank 0 had proven itself too, its card. */
static void await_joined(job *j, int rank)
{
    double until = seconds() + LIMIT_S;
    while (atomic_load(&j->sends[rank]) < 3 && seconds() < until)
        usleep(1000);
    assert_true(atomic_load(&j->sends[rank]) >= 3);
}

static void test_killed_during_start(void **state)
{
    (void)state;
    job *j = job_new(4);
    pid_t pid = fork_rank(j, 2);
    j->rank[3].skip = true;                 /* never comes, so the start hangs until the death */
    job_begin(j);
    await_joined(j, 1);
    await_joined(j, 2);
    kill(pid, SIGKILL);
    job_wait(j);
    waitpid(pid, NULL, 0);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(j->rank[r].code, GC_ERR_PEER);
        assert_non_null(strstr(j->rank[r].text, "rank 2 ("));
        assert_non_null(strstr(j->rank[r].text, "died during start"));
        assert_true(j->rank[r].took < 2);
    }
    job_free(j);
}

static void test_root_killed_during_start(void **state)
{
    (void)state;
    job *j = job_new(3);
    pid_t pid = fork_rank(j, 0);
    j->rank[2].skip = true;
    job_begin(j);
    await_joined(j, 1);
    kill(pid, SIGKILL);
    job_wait(j);
    waitpid(pid, NULL, 0);
    assert_int_equal(j->rank[1].code, GC_ERR_PEER);
    assert_non_null(strstr(j->rank[1].text, "rank 0 (127.0.0.1:"));
    job_free(j);
}

/* ---- strangers --------------------------------------------------------------------------------------------------------- */

static int stranger(int port, bool by_unix)
{
    if (by_unix) {
        int fd = gci_sys_real()->connect(gci_sys_real(), &(gci_addr){ .family = GCI_UNIX, .port = (uint16_t)port }, NULL, 0);
        assert_true(fd >= 0);
        return fd;
    }
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr = { htonl(INADDR_LOOPBACK) } };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

/* 400 strangers, half of them at the Unix socket: mute, noisy, half a HELLO, and one that drips. Then the job still links, in bounded memory. */
static void test_strangers(void **state)
{
    enum { STRANGERS = 400 };
    job *j = job_start(2);
    int fd[STRANGERS], port = gci_control_table(j->rank[0].control)->card[1].port;
    size_t before = atomic_load(&j->rank[1].env.memory);
    uint8_t noise[200];
    (void)state;
    srand(1);
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (uint8_t)rand();
    for (int i = 0; i < STRANGERS; i++) {
        fd[i] = stranger(port, i / 4 % 2);
        if (i % 4 == 1)
            (void)!send(fd[i], noise, sizeof noise, MSG_NOSIGNAL);
        else if (i % 4 == 2)
            (void)!send(fd[i], "GCOM\1\0\4\0", 8, MSG_NOSIGNAL);
        else if (i % 4 == 3)
            (void)!send(fd[i], "G", 1, MSG_NOSIGNAL);
    }
    gci_control_connect(j->rank[0].control, GCI_PURPOSE_DATA, 1, 0);
    assert_true(await_news(&j->rank[1], GCI_NEWS_LINK, 0, 1));
    assert_true(await_news(&j->rank[0], GCI_NEWS_LINK, 1, 1));
    /* 128 of them, and as many that have just made place and are freed when the loop comes round */
    assert_true(atomic_load(&j->rank[1].env.memory_peak) < before + 2 * 128 * (sizeof(gci_conn) + 64));
    for (int i = 0; i < STRANGERS; i++)
        close(fd[i]);
    job_stop(j);
    job_free(j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_pairs),
        cmocka_unit_test(test_had),
        cmocka_unit_test(test_notices),
        cmocka_unit_test(test_left),
        cmocka_unit_test(test_by_unix_sockets),
        cmocka_unit_test(test_without_unix_sockets),
        cmocka_unit_test(test_name_taken),
        cmocka_unit_test(test_missing),
        cmocka_unit_test(test_no_root),
        cmocka_unit_test(test_wrong_key),
        cmocka_unit_test(test_wrong_size),
        cmocka_unit_test(test_taken),
        cmocka_unit_test(test_no_key_beyond_loopback), cmocka_unit_test(test_ports_taken),
        cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_links_file),
        cmocka_unit_test(test_restart),
    };
    const struct CMUnitTest deaths[] = {
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_killed_during_start),
        cmocka_unit_test(test_root_killed_during_start),
    };
    signal(SIGPIPE, SIG_IGN);
    alarm(150);
    int failed = cmocka_run_group_tests_name("control", tests, NULL, NULL);
    if (CONTROL_FORKS)
        failed += cmocka_run_group_tests_name("control: deaths", deaths, NULL, NULL);
    return failed;
}
