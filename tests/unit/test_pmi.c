/* test_pmi.c: a launcher that speaks PMI-1, as mpiexec.hydra and Slurm do, and one that does not as it should.
 * SPDX-License-Identifier: MIT
 *
 * The launcher is a thread with a socket to each process. It reads as Slurm does, which takes what one read() gives it for one
 * request, and shows what was put only behind a barrier, as hydra does. One of its answers may be another one.
 */
#include "gridcomm_int.h"
#include "../port.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CLIENTS = 8, ENTRIES = 200, LINE = 1024 };

typedef struct launcher {
    int         clients, size, vallen_max;
    bool        slow;               /* answers come byte by byte */
    const char *spoils;             /* the answer to this command is ... */
    const char *instead;            /* ... this one; "": the connection is closed; NULL: none comes */
    size_t      instead_bytes;      /* if it is no text */
    int         fd[CLIENTS], theirs[CLIENTS], listener, port, stop[2];
    char        key[ENTRIES][64], value[ENTRIES][LINE];
    int         entries, visible, waiting, finalized;
    char        complaint[128];     /* what a client has done wrong */
    pthread_t   thread;
} launcher;

static void complain(launcher *l, const char *what, const char *line)
{
    if (!l->complaint[0])
        snprintf(l->complaint, sizeof l->complaint, "%s: %.80s", what, line);
}

static void say(launcher *l, int fd, const char *text, size_t bytes)
{
    for (size_t step = l->slow ? 1 : bytes; bytes > 0; text += step, bytes -= step) {
        if (write(fd, text, step) != (ssize_t)step)
            return;
        if (l->slow)
            sched_yield();
    }
}

static void put(launcher *l, const char *line, char *answer)
{
    char kvs[16], *key = l->key[l->entries], *value = l->value[l->entries];
    if (sscanf(line, "cmd=put kvsname=%15s key=%63s value=%1023s\n", kvs, key, value) != 3 || strcmp(kvs, "kvs_7") != 0
        || (int)strlen(value) >= l->vallen_max)
        complain(l, "what is put", line);
    else if (l->entries < ENTRIES - 1)
        l->entries++;
    snprintf(answer, LINE, "cmd=put_result rc=0 msg=success\n");
}

static void get(launcher *l, const char *line, char answer[2 * LINE])
{
    char kvs[16] = "", key[64] = "";
    if (sscanf(line, "cmd=get kvsname=%15s key=%63s\n", kvs, key) != 2 || strcmp(kvs, "kvs_7") != 0)
        complain(l, "what is got", line);
    snprintf(answer, 2 * LINE, "cmd=get_result rc=-1 msg=key_%s_not_found value=unknown\n", key);
    for (int i = 0; i < l->visible; i++)
        if (strcmp(l->key[i], key) == 0)
            snprintf(answer, 2 * LINE, "cmd=get_result rc=0 msg=success value=%s\n", l->value[i]);
}

static void barrier(launcher *l)
{
    if (++l->waiting < l->clients)
        return;
    l->waiting = 0;
    l->visible = l->entries;
    for (int i = 0; i < l->clients; i++)
        say(l, l->fd[i], "cmd=barrier_out\n", 16);
}

static void close_client(launcher *l, int i)
{
    close(l->fd[i]);
    l->fd[i] = -1;
}

/* One request of client i. */
static void serve(launcher *l, int i)
{
    char line[LINE + 1], answer[2 * LINE] = "";
    ssize_t got = read(l->fd[i], line, LINE);
    line[got > 0 ? got : 0] = 0;
    if (got <= 0) {
        close_client(l, i);
        return;
    }
    if (line[got - 1] != '\n' || strchr(line, '\n') != line + got - 1)
        complain(l, "not one line at once", line);
    if (l->spoils && got > 4 && strlen(l->spoils) == strcspn(line + 4, " \n")
        && strncmp(line + 4, l->spoils, strlen(l->spoils)) == 0) {
        if (l->instead && !l->instead[0] && !l->instead_bytes)
            close_client(l, i);
        else if (l->instead)
            say(l, l->fd[i], l->instead, l->instead_bytes ? l->instead_bytes : strlen(l->instead));
        return;
    }
    if (strncmp(line, "cmd=initack pmiid=", 18) == 0)
        snprintf(answer, sizeof answer, "cmd=initack\ncmd=set size=%d\ncmd=set rank=%d\ncmd=set debug=0\n", l->size,
                 atoi(line + 18));
    else if (strcmp(line, "cmd=init pmi_version=1 pmi_subversion=1\n") == 0)
        snprintf(answer, sizeof answer, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
    else if (strcmp(line, "cmd=get_maxes\n") == 0)
        snprintf(answer, sizeof answer, "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=%d\n", l->vallen_max);
    else if (strcmp(line, "cmd=get_my_kvsname\n") == 0)
        snprintf(answer, sizeof answer, "cmd=my_kvsname kvsname=kvs_7\n");
    else if (strncmp(line, "cmd=put ", 8) == 0)
        put(l, line, answer);
    else if (strncmp(line, "cmd=get ", 8) == 0)
        get(l, line, answer);
    else if (strcmp(line, "cmd=barrier_in\n") == 0)
        barrier(l);
    else if (strcmp(line, "cmd=finalize\n") == 0)
        snprintf(answer, sizeof answer, "cmd=finalize_ack\n");
    else
        complain(l, "an unknown request", line);
    say(l, l->fd[i], answer, strlen(answer));
    if (strcmp(answer, "cmd=finalize_ack\n") == 0) {
        l->finalized++;
        close_client(l, i);
    }
}

static void *launcher_run(void *arg)
{
    launcher *l = arg;
    for (;;) {
        struct pollfd p[CLIENTS + 2] = { { .fd = l->stop[0], .events = POLLIN }, { .fd = l->listener, .events = POLLIN } };
        for (int i = 0; i < l->clients; i++)
            p[i + 2] = (struct pollfd){ .fd = l->fd[i], .events = POLLIN };
        poll(p, (nfds_t)l->clients + 2, -1);
        if (p[0].revents)
            return NULL;
        for (int i = 0; i < l->clients; i++)
            if (p[i + 2].revents)
                serve(l, i);
        for (int i = 0; p[1].revents && i < l->clients; i++)
            if (l->fd[i] < 0) {
                l->fd[i] = accept(l->listener, NULL, NULL);
                break;
            }
    }
}

static launcher *launcher_start(const launcher *like)
{
    launcher *l = malloc(sizeof *l);
    assert_non_null(l);
    *l = *like;
    l->vallen_max = l->vallen_max ? l->vallen_max : LINE;
    l->size = l->size ? l->size : l->clients;
    l->listener = -1;
    assert_int_equal(pipe(l->stop), 0);
    for (int i = 0; i < CLIENTS; i++)
        l->fd[i] = l->theirs[i] = -1;
    if (l->port) {
        struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        socklen_t bytes = sizeof at;
        l->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(l->listener, (struct sockaddr *)&at, sizeof at), 0);
        assert_int_equal(listen(l->listener, CLIENTS), 0);
        assert_int_equal(getsockname(l->listener, (struct sockaddr *)&at, &bytes), 0);
        l->port = ntohs(at.sin_port);
    }
    for (int i = 0; i < l->clients && !l->port; i++) {
        int pair[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        l->fd[i] = pair[0];
        l->theirs[i] = pair[1];
    }
    assert_int_equal(pthread_create(&l->thread, NULL, launcher_run, l), 0);
    return l;
}

/* How many have said finalize. */
static int launcher_end(launcher *l)
{
    int finalized;
    char complaint[sizeof l->complaint];
    assert_int_equal(write(l->stop[1], "", 1), 1);
    pthread_join(l->thread, NULL);
    for (int i = 0; i < CLIENTS; i++) {
        if (l->fd[i] >= 0)
            close(l->fd[i]);
        if (l->theirs[i] >= 0)
            close(l->theirs[i]);
    }
    close(l->stop[0]);
    close(l->stop[1]);
    if (l->listener >= 0)
        close(l->listener);
    finalized = l->finalized;
    memcpy(complaint, l->complaint, sizeof complaint);
    free(l);
    assert_string_equal(complaint, "");
    return finalized;
}

static gci_place place_of(const launcher *l, int rank)
{
    gci_place p = { .rank = rank, .ranks = l->port ? 0 : l->size, .listen_fd = -1,
                    .pmi = { .kind = GCI_PMI_FD, .fd = l->theirs[rank % CLIENTS] } };
    if (l->port)
        p.pmi = (gci_pmi){ .kind = GCI_PMI_PORT, .fd = -1, .at = { "127.0.0.1", (uint16_t)l->port } };
    return p;
}

static gci_full_card card_of(const char *id, int addrs)
{
    gci_ifaddr a[GCI_CARD_ADDRS_MAX];
    gci_full_card card;
    memset(a, 0, sizeof a);
    for (int i = 0; i < addrs; i++) {
        char text[32];
        snprintf(text, sizeof text, i % 3 == 2 ? "fe80::%d" : i % 3 ? "fd00::%d" : "10.0.0.%d", i + 1);
        assert_int_equal(gci_addr_parse(text, &a[i].addr), GC_OK);
        a[i].index = (unsigned)i + 1;
        if (i == 3)
            a[i].addr.port = 7000;      /* GRIDCOMM_ADVERTISE */
    }
    gci_card_fill(&card, id, "node", "", 4321, a, addrs);
    return card;
}

/* ---- the record ---------------------------------------------------------------------------------------------------- */

static void test_record(void **state)
{
    gci_full_card card = card_of("here", 4);
    gci_place root = { .ranks = 4 }, there = { .rank = 1, .ranks = 4 }, here = there, given = there;
    char record[GCI_PMI_RECORD], text[GCI_TEXT] = "";
    (void)state;
    assert_int_equal(gci_pmi_write(&root, &card, "0123abcd", record, text), GC_OK);
    assert_non_null(strstr(record, ",4321,0123abcd,10.0.0.1:4321,[fd00::2]:4321,10.0.0.4:7000"));
    assert_int_equal(root.roots, 3);
    assert_int_equal(gci_pmi_read(&there, "there", record, text), GC_OK);
    assert_int_equal(there.roots, 3);
    assert_string_equal(there.root[1].host, "fd00::2");
    assert_true(there.root[1].port == 4321 && there.root[2].port == 7000);
    assert_true(there.key_bytes == 8 && memcmp(there.key, "0123abcd", 8) == 0);
    assert_int_equal(gci_pmi_read(&here, "here", record, text), GC_OK);         /* on rank 0's host */
    assert_true(here.roots == 1 && here.root[0].port == 4321);
    assert_string_equal(here.root[0].host, "127.0.0.1");
    given.roots = 1;                                                            /* what the user says stays */
    given.root[0] = (gci_root){ "mine", 1 };
    given.key_bytes = 1;
    given.key[0] = 'k';
    assert_int_equal(gci_pmi_read(&given, "there", record, text), GC_OK);
    assert_true(given.roots == 1 && given.key_bytes == 1 && given.key[0] == 'k');
    assert_string_equal(given.root[0].host, "mine");
}

/* Rank 0 has its rendezvous, or its key, from the user. */
static void test_record_given(void **state)
{
    gci_full_card card = card_of("here", 1), longest = card_of("here", GCI_CARD_ADDRS_MAX), lonely = card_of("here", 0);
    gci_place root = { .ranks = 4, .roots = 1, .root = { { "gate.example", 77 } } }, other = { .rank = 1, .ranks = 4 };
    char record[GCI_PMI_RECORD], text[GCI_TEXT] = "";
    (void)state;
    assert_int_equal(gci_pmi_write(&root, &card, "-", record, text), GC_OK);
    assert_string_equal(record, "1,-,4321,-,gate.example:77");
    assert_int_equal(gci_pmi_read(&other, "here", record, text), GC_ERR_CONFIG);
    assert_non_null(strstr(text, "GRIDCOMM_KEY"));
    other.insecure = true;
    assert_int_equal(gci_pmi_read(&other, "here", record, text), GC_OK);
    assert_true(other.roots == 1 && other.key_bytes == 0 && other.root[0].port == 77);
    for (const char *c = " ;=[]\x7f\xe4\n"; *c; c++) {
        snprintf(root.root[0].host, sizeof root.root[0].host, "a%cb", *c);
        assert_int_equal(gci_pmi_write(&root, &card, "-", record, text), GC_ERR_CONFIG);
    }
    root = (gci_place){ .ranks = 4 };
    assert_int_equal(gci_pmi_write(&root, &longest, "-", record, text), GC_OK);
    assert_int_equal(root.roots, GCI_ROOTS_MAX);
    root = (gci_place){ .ranks = 4, .roots = GCI_ROOTS_MAX };
    for (int i = 0; i < GCI_ROOTS_MAX; i++)
        memset(root.root[i].host, ':', sizeof root.root[i].host - 1);
    assert_int_equal(gci_pmi_write(&root, &card, "-", record, text), GC_OK);
    root = (gci_place){ .ranks = 4 };
    assert_int_equal(gci_pmi_write(&root, &lonely, "k", record, text), GC_OK);
    other = (gci_place){ .rank = 1, .ranks = 4 };
    assert_int_equal(gci_pmi_read(&other, "there", record, text), GC_ERR_UNREACHABLE);
    other = (gci_place){ .rank = 1, .ranks = 4 };
    assert_int_equal(gci_pmi_read(&other, "here", record, text), GC_OK);
}

static void test_record_wrong(void **state)
{
    static const char *const wrong[] = {
        "", "1", "1,", "1,h", "1,h,1,k", "2,h,1,k,a:1", "one,h,1,k,a:1", "1,h,1,,a:1", "1,,1,k,a:1", "1,h,,k,a:1",
        "1,12345678901234567,1,k,a:1", "1,h,12345678,k,a:1", "1,h,1,k,a", "1,h,1,k,a:0", "1,h,1,k,a:1,", "1,h,1,k,[a:1",
        "1,h,1,12345678901234567890123456789012345678901234567890123456789012345,a:1" };
    (void)state;
    for (size_t i = 0; i < GCI_COUNT(wrong); i++) {
        gci_place p = { .rank = 1, .ranks = 2 };
        char text[GCI_TEXT] = "";
        assert_int_equal(gci_pmi_read(&p, "there", wrong[i], text), GC_ERR_PROTOCOL);
        assert_true(strlen(text) > 0);
    }
}

static void test_lines(void **state)
{
    const char *line = "cmd=maxes rc=0 keylen_max=64  vallen_max=1024 x= =y rcx=1 many=1234567890";
    char value[8], text[GCI_TEXT] = "";
    int number = 0;
    (void)state;
    assert_int_equal(gci_pmi_answer(line, strlen(line), "maxes", text), GC_OK);
    assert_int_equal(gci_pmi_answer("cmd=maxes", 9, "maxes", text), GC_OK);
    assert_int_equal(gci_pmi_answer("cmd=maxes2", 10, "maxes", text), GC_ERR_PROTOCOL);
    assert_int_equal(gci_pmi_answer("cmd=max", 7, "maxes", text), GC_ERR_PROTOCOL);
    assert_int_equal(gci_pmi_answer(" cmd=maxes", 10, "maxes", text), GC_ERR_PROTOCOL);
    assert_int_equal(gci_pmi_answer("", 0, "maxes", text), GC_ERR_PROTOCOL);
    assert_int_equal(gci_pmi_answer("cmd=maxes\0rc=1", 14, "maxes", text), GC_ERR_PROTOCOL);
    assert_int_equal(gci_pmi_answer("cmd=maxes x=\x80", 13, "maxes", text), GC_ERR_PROTOCOL);
    assert_int_equal(gci_pmi_answer("cmd=put_result rc=-1 msg=duplicate_key", 38, "put_result", text), GC_ERR_PROTOCOL);
    assert_non_null(strstr(text, "rc=-1: duplicate_key"));
    assert_int_equal(gci_pmi_answer("cmd=put_result rc=", 18, "put_result", text), GC_ERR_PROTOCOL);
    assert_true(gci_pmi_number(line, "vallen_max", &number) && number == 1024);
    assert_false(gci_pmi_number(line, "vallen", &number));
    assert_false(gci_pmi_number(line, "x", &number));
    assert_false(gci_pmi_number(line, "many", &number));
    assert_false(gci_pmi_number(line, "cmd", &number));
    assert_true(gci_pmi_value(line, "x", value, sizeof value) && !value[0]);
    assert_true(gci_pmi_value(line, "cmd", value, sizeof value) && strcmp(value, "maxes") == 0);
    assert_false(gci_pmi_value(line, "many", value, sizeof value));     /* too long */
    assert_false(gci_pmi_value(line, "none", value, sizeof value));
}

/* ---- whole meetings --------------------------------------------------------------------------------------------------- */

typedef struct client {
    gci_place   place;
    double      seconds;
    const char *id;
    bool        job;                /* a whole job is started */
    int         code;
    char        text[GCI_TEXT];
    double      took;
} client;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void on_news(void *user, const gci_news *news)
{
    (void)user;
    if (news->kind == GCI_NEWS_LINK)
        gci_sys_real()->close(gci_sys_real(), news->fd);
}

static int client_job(gci_env *env, client *c)
{
    gc_options o = GRIDCOMM_OPTIONS_INIT;
    gci_control *control;
    o.start_timeout = c->seconds;
    int code = gci_control_start(&control, env, &o, &c->place, on_news, c, c->text);
    gci_control_stop(control, true);
    return code;
}

static void *client_run(void *arg)
{
    client *c = arg;
    double begun = seconds();
    gci_full_card me = card_of(c->id ? c->id : "here", 8);
    gci_sys *sys = gci_sys_real();
    gci_env env;
    gci_env_init(&env, sys, NULL);
    c->code = gci_pmi_begin(&env, &c->place, c->seconds, c->text);
    if (c->code == GC_OK && c->job)
        c->code = client_job(&env, c);
    else if (c->code == GC_OK)
        c->code = gci_pmi_meet(&env, &c->place, &me, sys->now(sys) + (int64_t)(c->seconds * 1e9), c->text);
    if (c->code == GC_OK)
        gci_pmi_end(&env, &c->place.pmi);
    else if (c->place.pmi.kind == GCI_PMI_PORT && c->place.pmi.fd >= 0)
        close(c->place.pmi.fd);
    c->took = seconds() - begun;
    return NULL;
}

static void run_clients(client c[], int n)
{
    pthread_t thread[CLIENTS];
    for (int i = 0; i < n; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, client_run, &c[i]), 0);
    for (int i = 0; i < n; i++)
        pthread_join(thread[i], NULL);
}

static void meet(const launcher *like)
{
    launcher *l = launcher_start(like);
    client c[CLIENTS];
    int n = l->clients;
    memset(c, 0, sizeof c);
    for (int i = 0; i < n; i++)
        c[i] = (client){ .place = place_of(l, i), .seconds = 20, .id = i % 3 == 2 ? "there" : "here" };
    run_clients(c, n);
    for (int i = 0; i < n; i++) {
        if (c[i].code != GC_OK)
            fail_msg("rank %d of %d: %d %s", i, n, c[i].code, c[i].text);
        assert_true(c[i].place.rank == i && c[i].place.ranks == n && c[i].place.key_bytes == 64);
        assert_memory_equal(c[i].place.key, c[0].place.key, 64);
        if (i > 0) {
            assert_int_equal(c[i].place.roots, i % 3 == 2 ? 6 : 1);
            assert_string_equal(c[i].place.root[0].host, i % 3 == 2 ? "10.0.0.1" : "127.0.0.1");
            assert_int_equal(c[i].place.root[0].port, 4321);
        }
    }
    assert_int_equal(launcher_end(l), n);
}

static int open_descriptors(void)
{
    int n = 0;
    for (int fd = 0; fd < 1024; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static void test_meet(void **state)
{
    int before = open_descriptors();
    (void)state;
    for (int n = 2; n <= CLIENTS; n += 3)
        for (int port = 0; port < 2; port++) {
            meet(&(launcher){ .clients = n, .port = port });
            meet(&(launcher){ .clients = n, .port = port, .vallen_max = 33 });
            meet(&(launcher){ .clients = n, .port = port, .slow = true });
        }
    assert_int_equal(open_descriptors(), before);
}

/* With the real start of a job behind it: the socket listens before anybody is told of it. */
static void test_job(void **state)
{
    (void)state;
    for (int n = 2; n <= CLIENTS; n += 3)
        for (int port = 0; port < 2; port++) {
            launcher *l = launcher_start(&(launcher){ .clients = n, .port = port });
            client c[CLIENTS];
            for (int i = 0; i < n; i++)
                c[i] = (client){ .place = place_of(l, i), .seconds = 20, .job = true };
            run_clients(c, n);
            for (int i = 0; i < n; i++)
                if (c[i].code != GC_OK)
                    fail_msg("rank %d of %d: %d %s", i, n, c[i].code, c[i].text);
            assert_int_equal(launcher_end(l), n);
        }
}

/* An address of this host that is not loopback, or no family. */
static gci_addr own_address(void)
{
    gci_ifaddr a[GCI_IFADDRS_MAX];
    gci_sys *sys = gci_sys_real();
    int n = sys->interfaces(sys, a, GCI_IFADDRS_MAX);
    for (int i = 0; i < n && i < GCI_IFADDRS_MAX; i++)
        if (a[i].addr.family == 4 && !(a[i].flags & (GCI_IF_LOOPBACK | GCI_IF_IDLE)))
            return a[i].addr;
    return (gci_addr){ .family = 0 };
}

/* Rank 0 has a rendezvous beyond loopback from the user, but no key: the launcher's will do. */
static void test_job_at_a_given_root(void **state)
{
    launcher *l = launcher_start(&(launcher){ .clients = 2 });
    gci_addr own = own_address();
    client c[2];
    (void)state;
    for (int i = 0; i < 2; i++)
        c[i] = (client){ .place = place_of(l, i), .seconds = 20, .job = true };
    if (own.family) {
        gci_addr_text(&own, c[0].place.root[0].host);
        c[0].place.root[0].port = (uint16_t)free_port();
        c[0].place.roots = 1;
    }
    run_clients(c, 2);
    for (int i = 0; i < 2; i++)
        if (c[i].code != GC_OK)
            fail_msg("rank %d: %d %s", i, c[i].code, c[i].text);
    assert_int_equal(launcher_end(l), 2);
}

static void test_no_pmi(void **state)
{
    gci_place p = { .rank = 1, .ranks = 2 };
    gci_full_card me = card_of("here", 1);
    char text[GCI_TEXT] = "";
    gci_env env;
    (void)state;
    gci_env_init(&env, gci_sys_real(), NULL);
    assert_int_equal(gci_pmi_begin(&env, &p, 1, text), GC_OK);
    assert_int_equal(gci_pmi_meet(&env, &p, &me, 0, text), GC_OK);
    gci_pmi_end(&env, &p.pmi);
    assert_true(p.rank == 1 && p.ranks == 2 && !p.roots && !p.key_bytes);
}

/* A process is in one world of its launcher: the second start says so, and does not disturb the first. */
static void test_twice(void **state)
{
    launcher *l = launcher_start(&(launcher){ .clients = 1, .size = 2 });
    gci_place first = place_of(l, 0), second = first;
    gci_full_card me = card_of("here", 1);
    char text[GCI_TEXT] = "";
    gci_env env;
    (void)state;
    gci_env_init(&env, gci_sys_real(), NULL);
    assert_int_equal(gci_pmi_begin(&env, &first, 5, text), GC_OK);
    assert_int_equal(gci_pmi_begin(&env, &second, 5, text), GC_ERR_CONFIG);
    assert_non_null(strstr(text, "earlier gc_init"));
    assert_int_equal(gci_pmi_meet(&env, &first, &me, INT64_MAX / 2, text), GC_OK);
    gci_pmi_end(&env, &first.pmi);
    assert_int_equal(gci_pmi_begin(&env, &second, 5, text), GC_ERR_CONFIG);
    assert_non_null(strstr(text, "earlier gc_init"));
    assert_int_equal(launcher_end(l), 1);
}

/* ---- launchers that do wrong -------------------------------------------------------------------------------------------- */

typedef struct wrong_case {
    const char *spoils, *instead;
    size_t      bytes;
    int         rank, code;
    const char *text;
    bool        port;
} wrong_case;

static char long_line[5000];
static const wrong_case wrong_cases[] = {
    { "init", "", 0, 1, GC_ERR_SYSTEM, "closed the connection, where cmd=response_to_init is due", false },
    { "init", NULL, 0, 1, GC_ERR_TIMEOUT, "does not answer in time", false },
    { "init", "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n", 0, 1, GC_ERR_PROTOCOL, "response_to_init", false },
    { "init", "cmd=response_to_init rc=1 pmi_version=2 pmi_subversion=0\n", 0, 1, GC_ERR_PROTOCOL, "rc=1", false },
    { "init", "cmd=response_to_init rc=0\n", 0, 1, GC_ERR_PROTOCOL, "makes no sense", false },
    { "init", "SSH-2.0-OpenSSH_9.2p1 Debian-2\n", 0, 1, GC_ERR_PROTOCOL, "says 'SSH-2.0-", false },
    { "init", "\n", 0, 1, GC_ERR_PROTOCOL, "says ''", false },
    { "init", "cmd=response_to_init\0pmi_version=1\n", 35, 1, GC_ERR_PROTOCOL, "no text", false },
    { "init", "\x7f\x80\xff\n", 4, 1, GC_ERR_PROTOCOL, "no text", false },
    { "init", long_line, sizeof long_line, 1, GC_ERR_SYSTEM, "Message too long", false },
    { "init", "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\ncmd=more\n", 0, 1, GC_ERR_PROTOCOL,
      "more than it was asked", false },
    { "get_my_kvsname", "cmd=my_kvsname\n", 0, 1, GC_ERR_PROTOCOL, "my_kvsname makes no sense", false },
    { "get_my_kvsname", long_line, 1000, 1, GC_ERR_PROTOCOL, "my_kvsname", false },
    { "get_my_kvsname", "cmd=my_kvsname kvsname=k\ncmd=my_kvsname kvsname=k\n", 0, 1, GC_ERR_PROTOCOL, "more than it was asked",
      false },
    { "get_maxes", "cmd=maxes kvsname_max=256 keylen_max=64\n", 0, 0, GC_ERR_PROTOCOL, "maxes makes no sense", false },
    { "get_maxes", "cmd=maxes vallen_max=16\n", 0, 0, GC_ERR_PROTOCOL, "maxes makes no sense", false },
    { "get_maxes", "cmd=maxes vallen_max=-1\n", 0, 0, GC_ERR_PROTOCOL, "maxes makes no sense", false },
    { "put", "cmd=put_result rc=-1 msg=duplicate_key\n", 0, 0, GC_ERR_PROTOCOL, "duplicate_key", false },
    { "put", "", 0, 0, GC_ERR_SYSTEM, "put_result", false },
    { "barrier_in", NULL, 0, 0, GC_ERR_TIMEOUT, "not all of the 2 processes have called gc_init", false },
    { "barrier_in", NULL, 0, 1, GC_ERR_TIMEOUT, "not all of the 2 processes have called gc_init", false },
    { "barrier_in", "cmd=barrier_out rc=-1 msg=failed_to_send_temp_kvs\n", 0, 1, GC_ERR_PROTOCOL, "failed_to_send", false },
    { "barrier_in", "", 0, 1, GC_ERR_SYSTEM, "barrier_out", false },
    { "barrier_in", "cmd=barrier_out\n", 0, 1, GC_ERR_PROTOCOL, "key_gridcomm-0_not_found", false },
    { "get", NULL, 0, 1, GC_ERR_TIMEOUT, "in time", false },
    { "get", "cmd=get_result rc=0 msg=success\n", 0, 1, GC_ERR_PROTOCOL, "get_result makes no sense", false },
    { "get", "cmd=get_result rc=0 value=\n", 0, 1, GC_ERR_PROTOCOL, "get_result makes no sense", false },
    { "get", "cmd=get_result rc=0 value=1,h,1,k,a:1\n", 0, 1, GC_ERR_PROTOCOL, "get_result makes no sense", false },
    { "get", "cmd=get_result rc=0 value=.1,h,1\n", 0, 1, GC_ERR_PROTOCOL, "makes no sense", false },
    { "get", "cmd=get_result rc=0 value=+1,h,1\n", 0, 1, GC_ERR_PROTOCOL, "makes no sense", false },     /* for ever */
    { "get", "cmd=get_result rc=0 value=+\n", 0, 1, GC_ERR_PROTOCOL, "makes no sense", false },
    { "get", "cmd=get_result rc=0 value=.1,h,1,k,a:66666\n", 0, 1, GC_ERR_PROTOCOL, "PMI: rank 0=a:66666", false },
    { "initack", "cmd=initack\ncmd=set size=2\ncmd=set rank=2\ncmd=set debug=0\n", 0, 1, GC_ERR_CONFIG, "rank 2 of 2", true },
    { "initack", "cmd=initack\ncmd=set size=0\ncmd=set rank=0\ncmd=set debug=0\n", 0, 1, GC_ERR_CONFIG, "rank 0 of 0", true },
    { "initack", "cmd=initack\ncmd=set size=99999\ncmd=set rank=0\ncmd=set debug=0\n", 0, 1, GC_ERR_CONFIG, "of 99999", true },
    { "initack", "cmd=initack\ncmd=set rank=2\n", 0, 1, GC_ERR_PROTOCOL, "set makes no sense", true },
    { "initack", "cmd=initack\ncmd=set size=2\n", 0, 1, GC_ERR_TIMEOUT, "in time", true },
    { "initack", "", 0, 1, GC_ERR_SYSTEM, "closed the connection", true },
};

static void test_wrong(void **state)
{
    (void)state;
    memset(long_line, 'x', sizeof long_line);
    memcpy(long_line, "cmd=my_kvsname kvsname=", 23);
    for (size_t i = 0; i < GCI_COUNT(wrong_cases); i++) {
        const wrong_case *w = &wrong_cases[i];
        long_line[999] = w->bytes == 1000 ? '\n' : 'x';         /* too long for a name, or for a line */
        launcher *l = launcher_start(&(launcher){ .clients = 1, .size = 2, .port = w->port, .spoils = w->spoils,
                                                  .instead = w->instead, .instead_bytes = w->bytes });
        client c = { .place = place_of(l, w->rank), .seconds = 0.2 };
        if (!w->port)
            c.place.pmi.fd = l->theirs[0];
        run_clients(&c, 1);
        if (c.code != w->code || !strstr(c.text, w->text) || c.took > 2)
            fail_msg("case %zu, %s: %d after %.2f s, \"%s\" and not %d, \"%s\"", i, w->spoils, c.code, c.took, c.text, w->code,
                     w->text);
        assert_int_equal(launcher_end(l), 0);
    }
}

/* What PMI_FD names may be anything. */
static void test_wrong_descriptor(void **state)
{
    int ends[2];
    (void)state;
    assert_int_equal(pipe(ends), 0);
    for (int i = 0; i < 2; i++) {
        gci_pmi pmi = { .kind = GCI_PMI_FD, .fd = i ? ends[0] : 999 };
        client c = { .place = { .rank = 1, .ranks = 2, .pmi = pmi }, .seconds = 0.2 };
        run_clients(&c, 1);
        assert_int_equal(c.code, GC_ERR_CONFIG);
        assert_non_null(strstr(c.text, i ? "is no connection to a launcher" : "PMI_FD=999 is no connection"));
    }
    close(ends[0]);
    close(ends[1]);
    client c = { .place = { .rank = 1, .pmi = { .kind = GCI_PMI_PORT, .fd = -1, .at = { "127.0.0.1", 1 } } }, .seconds = 0.2 };
    run_clients(&c, 1);
    assert_int_equal(c.code, GC_ERR_SYSTEM);
    assert_non_null(strstr(c.text, "PMI_PORT=127.0.0.1:1: Connection refused"));
}

/* A launcher that is gone, or mute, holds nobody at the end: finalize is a courtesy. */
static void test_end(void **state)
{
    launcher *l = launcher_start(&(launcher){ .clients = 1, .size = 2, .spoils = "finalize", .instead = "" });
    client c = { .place = place_of(l, 0), .seconds = 5 };
    (void)state;
    run_clients(&c, 1);
    assert_int_equal(c.code, GC_OK);
    assert_true(c.took < 2);
    assert_int_equal(launcher_end(l), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_record),
        cmocka_unit_test(test_record_given),
        cmocka_unit_test(test_record_wrong),
        cmocka_unit_test(test_no_pmi),
        cmocka_unit_test(test_meet),
        cmocka_unit_test(test_job),
        cmocka_unit_test(test_job_at_a_given_root),
        cmocka_unit_test(test_twice),
        cmocka_unit_test(test_wrong),
        cmocka_unit_test(test_wrong_descriptor),
        cmocka_unit_test(test_end),
    };
    alarm(120);
    return cmocka_run_group_tests_name("pmi", tests, NULL, NULL);
}
