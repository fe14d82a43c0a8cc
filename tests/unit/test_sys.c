/* test_sys.c: the real system table on loopback, the allocator, the log, addresses, SHA-256 and HMAC.
 * SPDX-License-Identifier: MIT
 *
 * No test sleeps to wait for something: it waits in the poller or a monitor, with a deadline, and a watchdog ends the program if
 * one hangs all the same. Times are only checked from below (never too early), which no busy machine can break.
 */
#include "gridcomm_int.h"

#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <net/if.h>
#include <poll.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GCT_WATCHDOG_S = 120, GCT_CANARY = 0xa5 };
#define GCT_PATIENCE (20 * GCI_SECOND)          /* how long a thing that must happen may take on a crowded machine */

static gci_sys *sys;

/* ---- SHA-256, HMAC ------------------------------------------------------------------------------------------- */

static void expect_hex(const uint8_t *got, size_t bytes, const char *hex)
{
    char text[2 * GCI_MAC_BYTES + 1];
    for (size_t i = 0; i < bytes; i++)
        snprintf(text + 2 * i, 3, "%02x", (unsigned)got[i]);
    assert_string_equal(text, hex);
}

static void test_sha256(void **state)
{
    (void)state;
    static const struct { const char *text, *hex; } vector[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
         "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
    };
    uint8_t out[GCI_MAC_BYTES + 1];
    gci_sha256 sha;
    for (size_t i = 0; i < GCI_COUNT(vector); i++) {
        size_t bytes = strlen(vector[i].text);
        for (size_t cut = 0; cut <= bytes; cut++) {         /* fed in two pieces, cut everywhere */
            out[GCI_MAC_BYTES] = GCT_CANARY;
            gci_sha256_init(&sha);
            gci_sha256_add(&sha, vector[i].text, cut);
            gci_sha256_add(&sha, vector[i].text + cut, bytes - cut);
            gci_sha256_end(&sha, out);
            expect_hex(out, GCI_MAC_BYTES, vector[i].hex);
            assert_int_equal(out[GCI_MAC_BYTES], GCT_CANARY);
        }
    }
}

static void test_sha256_million(void **state)
{
    (void)state;
    static const size_t piece[] = {1, 63, 64, 65, 999, 1000};
    char a[1000];
    memset(a, 'a', sizeof a);
    for (size_t p = 0; p < GCI_COUNT(piece); p++) {
        uint8_t out[GCI_MAC_BYTES];
        gci_sha256 sha;
        gci_sha256_init(&sha);
        for (size_t left = 1000000; left > 0; left -= gci_min(left, piece[p]))
            gci_sha256_add(&sha, a, gci_min(left, piece[p]));
        gci_sha256_end(&sha, out);
        expect_hex(out, sizeof out, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    }
}

/* RFC 4231, cases 1 to 7; a key or text given as one byte is that byte repeated. */
static void test_hmac(void **state)
{
    (void)state;
    static const char key4[] = "\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10"
                               "\x11\x12\x13\x14\x15\x16\x17\x18\x19";
    static const struct { const char *key; size_t key_bytes; const char *text; size_t repeat; const char *hex; } vector[] = {
        {"\x0b", 20, "Hi There", 0, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
        {"Jefe", 4, "what do ya want for nothing?", 0, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
        {"\xaa", 20, "\xdd", 50, "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"},
        {key4, 25, "\xcd", 50, "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b"},
        {"\x0c", 20, "Test With Truncation", 0, "a3b6167473100ee06e0c796c2955552b"},
        {"\xaa", 131, "Test Using Larger Than Block-Size Key - Hash Key First", 0,
         "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
        {"\xaa", 131, "This is a test using a larger than block-size key and a larger than block-size data. The key needs to "
         "be hashed before being used by the HMAC algorithm.", 0,
         "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"},
    };
    for (size_t i = 0; i < GCI_COUNT(vector); i++) {
        uint8_t key[131], text[160], out[GCI_MAC_BYTES];
        size_t bytes = vector[i].repeat ? vector[i].repeat : strlen(vector[i].text);
        if (strlen(vector[i].key) == 1)
            memset(key, vector[i].key[0], vector[i].key_bytes);
        else
            memcpy(key, vector[i].key, vector[i].key_bytes);
        if (vector[i].repeat)
            memset(text, vector[i].text[0], bytes);
        else
            memcpy(text, vector[i].text, bytes);
        struct iovec parts[3] = {{text, bytes / 3}, {text, 0}, {text + bytes / 3, bytes - bytes / 3}};
        gci_hmac(key, vector[i].key_bytes, parts, 3, out);
        expect_hex(out, strlen(vector[i].hex) / 2, vector[i].hex);
    }
}

static void test_equal_in_constant_time(void **state)
{
    (void)state;
    uint8_t a[33], b[33];
    memset(a, 7, sizeof a);
    memset(b, 7, sizeof b);
    assert_true(gci_equal_in_constant_time(a, b, sizeof a));
    for (size_t i = 0; i < sizeof a; i++)
        for (unsigned bit = 0; bit < 8; bit++) {
            b[i] = (uint8_t)(7 ^ 1u << bit);
            assert_false(gci_equal_in_constant_time(a, b, sizeof a));
            assert_true(gci_equal_in_constant_time(a, b, i));
            b[i] = 7;
        }
    assert_true(gci_equal_in_constant_time(NULL, NULL, 0));
}

/* ---- addresses, integers ------------------------------------------------------------------------------------- */

static void test_addr_round_trip(void **state)
{
    (void)state;
    static const struct { const char *text; int family; uint16_t port; const char *printed; } good[] = {
        {"1.2.3.4", 4, 0, "1.2.3.4"},
        {"1.2.3.4", 4, 5, "1.2.3.4:5"},
        {"255.255.255.255", 4, 65535, "255.255.255.255:65535"},
        {"::", 6, 0, "::"},
        {"::1", 6, 80, "[::1]:80"},
        {"2001:DB8:0:0:0:0:0:1", 6, 7, "[2001:db8::1]:7"},
        {"fe80::1", 6, 0, "fe80::1"},
        {"fe80::1%2", 6, 0, "fe80::1%2"},
        {"fe80:1111:2222:3333:4444:5555:6666:7777%4294967295", 6, 65535,
         "[fe80:1111:2222:3333:4444:5555:6666:7777%4294967295]:65535"},
        {"::ffff:10.1.2.3", 4, 9, "10.1.2.3:9"},
    };
    for (size_t i = 0; i < GCI_COUNT(good); i++) {
        gci_addr addr = {.port = good[i].port};
        char text[GCI_ADDR_TEXT];
        assert_int_equal(gci_addr_parse(good[i].text, &addr), GC_OK);
        assert_int_equal(addr.family, good[i].family);
        assert_int_equal(addr.port, good[i].port);
        assert_string_equal(gci_addr_text(&addr, text), good[i].printed);
    }
    char text[GCI_ADDR_TEXT];
    assert_string_equal(gci_addr_text(&(gci_addr){.family = 0}, text), "none");
    assert_string_equal(gci_addr_text(&(gci_addr){.family = 9}, text), "none");
    assert_string_equal(gci_addr_text(&(gci_addr){.family = GCI_UNIX, .port = 65535}, text), "unix:65535");
    assert_string_equal(gci_addr_text(&(gci_addr){.family = GCI_UNIX}, text), "unix");
}

static void test_addr_rejects(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "", " ", "1", "1.2.3", "1.2.3.4.5", "1.2.3.256", "1.2.3.4 ", " 1.2.3.4", "01.2.3.4", "0x1.2.3.4", "1.2.3.4:5", "1.2.3.4%1",
        "[::1]", ":::", "1::2::3", "12345::", "fe80::1%", "fe80::1%0", "fe80::1%4294967297", "fe80::1%18446744073709551617",
        "fe80::1%no-such-if", "fe80::1%a-name-longer-than-any-interface", "fe80::1%1%1", "2001:db8::1%1", "localhost",
        "1111:2222:3333:4444:5555:6666:7777:8888:9999:aaaa:bbbb:cccc:dddd",
    };
    for (size_t i = 0; i < GCI_COUNT(bad); i++) {
        gci_addr addr, before;
        memset(&addr, GCT_CANARY, sizeof addr);
        before = addr;
        if (gci_addr_parse(bad[i], &addr) != GC_ERR_ARG)
            fail_msg("\"%s\" was taken for an address", bad[i]);
        assert_memory_equal(&addr, &before, sizeof addr);
    }
}

static void test_addr_scope_by_name(void **state)
{
    (void)state;
    char name[IF_NAMESIZE], text[GCI_ADDR_TEXT];
    if (!if_indextoname(1, name))
        skip();
    snprintf(text, sizeof text, "fe80::1%%%s", name);
    gci_addr addr = {0};
    assert_int_equal(gci_addr_parse(text, &addr), GC_OK);
    assert_int_equal(addr.scope, 1);
}

static gci_addr parsed(const char *text)
{
    gci_addr addr = {0};
    assert_int_equal(gci_addr_parse(text, &addr), GC_OK);
    return addr;
}

static void test_addr_relations(void **state)
{
    (void)state;
    gci_addr a = parsed("1.2.3.4"), b = parsed("1.2.3.4"), c = parsed("1.2.3.5"), six = parsed("::1"), other = parsed("::2");
    b.port = 7;
    b.ip[9] = 1;                        /* beyond an IPv4 address: means nothing */
    assert_true(gci_addr_equal(&a, &b));
    assert_false(gci_addr_equal(&a, &c));
    assert_false(gci_addr_equal(&a, &six));
    assert_true(gci_addr_equal(&six, &six));
    assert_false(gci_addr_equal(&six, &other));

    gci_addr local = parsed("127.3.2.1"), mapped = {.family = 6, .ip = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}};
    assert_true(gci_addr_is_loopback(&local));
    assert_true(gci_addr_is_loopback(&six));
    assert_true(gci_addr_is_loopback(&mapped));
    assert_false(gci_addr_is_loopback(&a));
    assert_false(gci_addr_is_loopback(&other));
    assert_false(gci_addr_is_loopback(&(gci_addr){.family = 0, .ip = {127}}));
    assert_true(gci_addr_is_loopback(&(gci_addr){.family = GCI_UNIX}));
    assert_int_equal(gci_addr_class(&(gci_addr){.family = GCI_UNIX, .ip = {10}}), GCI_CLASS_NOWHERE);
}

static void test_put_get(void **state)
{
    (void)state;
    uint8_t p[11];
    for (size_t at = 0; at < 3; at++) {             /* at any alignment, and nothing beyond */
        memset(p, GCT_CANARY, sizeof p);
        gci_put64(p + at, UINT64_C(0x0102030405060708));
        for (size_t i = 0; i < sizeof p; i++)
            assert_int_equal(p[i], i >= at && i < at + 8 ? 8 - (i - at) : GCT_CANARY);
        assert_true(gci_get64(p + at) == UINT64_C(0x0102030405060708));
        assert_int_equal(gci_get32(p + at), 0x05060708);
        assert_int_equal(gci_get16(p + at), 0x0708);
        gci_put32(p + at, 0xfffefdfc);
        assert_true(gci_get64(p + at) == UINT64_C(0x01020304fffefdfc));
        gci_put16(p + at, 0x8001);
        assert_true(gci_get64(p + at) == UINT64_C(0x01020304fffe8001));
        gci_put_real(p + at, -1.5);
        assert_true(gci_get64(p + at) == UINT64_C(0xbff8000000000000));
        double real = gci_get_real(p + at);
        assert_true(real >= -1.5 && real <= -1.5);
    }
}

/* ---- allocator ----------------------------------------------------------------------------------------------- */

typedef struct hook { int calls, fail_at, live; size_t held; } hook;    /* fail_at: the call, from 1, that fails; 0: none */

static void *hook_alloc(void *user, void *old, size_t bytes)
{
    hook *h = user;
    if (bytes == 0) {
        h->live -= old != NULL;
        free(old);
        return NULL;
    }
    if (++h->calls == h->fail_at)
        return NULL;
    void *block = realloc(old, bytes);
    if (block && !old) {
        h->live++;
        memset(block, GCT_CANARY, bytes);           /* gci_alloc must not count on zeroes */
    }
    return block;
}

static void expect_bytes(const void *block, int value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(((const uint8_t *)block)[i], value);
}

static void exercise_allocator(const gc_options *options)
{
    gci_env env;
    gci_env_init(&env, sys, options);
    assert_int_equal(env.rank, -1);
    uint8_t *a = gci_alloc(&env, 1000), *b = gci_alloc(&env, 0);
    assert_non_null(a);
    assert_non_null(b);
    assert_int_equal((uintptr_t)a % _Alignof(max_align_t), 0);
    expect_bytes(a, 0, 1000);
    memset(a, 1, 1000);
    size_t two = env.memory;
    assert_in_range(two, 1000, 1000 + 64);
    a = gci_realloc(&env, a, 5000);
    assert_non_null(a);
    expect_bytes(a, 1, 1000);
    memset(a, 2, 5000);
    assert_int_equal(env.memory, two + 4000);
    a = gci_realloc(&env, a, 10);
    assert_non_null(a);
    expect_bytes(a, 2, 10);
    assert_int_equal(env.memory, two - 990);
    assert_int_equal(env.memory_peak, two + 4000);
    assert_null(gci_alloc(&env, SIZE_MAX));
    assert_null(gci_alloc(&env, SIZE_MAX - 15));
    assert_null(gci_realloc(&env, a, SIZE_MAX - 7));
    expect_bytes(a, 2, 10);
    char *copy = gci_strdup(&env, "text");
    assert_string_equal(copy, "text");
    gci_free(&env, copy);
    gci_free(&env, a);
    gci_free(&env, b);
    gci_free(&env, NULL);
    assert_int_equal(env.memory, 0);
    assert_int_equal(env.memory_peak, two + 4000);
}

static void test_allocator(void **state)
{
    (void)state;
    hook h = {0};
    gc_options options = GRIDCOMM_OPTIONS_INIT;
    exercise_allocator(NULL);
    exercise_allocator(&options);
    options.alloc = hook_alloc;
    options.alloc_user = &h;
    exercise_allocator(&options);
    assert_int_equal(h.live, 0);
    assert_int_equal(h.calls, 5);
}

/* Each allocation in turn fails: what was there lives on, and the account stays right. */
static void test_allocation_fails(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n++) {
        hook h = {.fail_at = n};
        gc_options options = {.alloc = hook_alloc, .alloc_user = &h};
        gci_env env;
        gci_env_init(&env, sys, &options);
        uint8_t *a = gci_alloc(&env, 100);
        assert_int_equal(a == NULL, n == 1);
        size_t before = env.memory;
        assert_int_equal(before > 0, n != 1);
        uint8_t *b = gci_realloc(&env, a, 200);
        assert_int_equal(b == NULL, n == 2);
        if (n == 2) {
            assert_int_equal(env.memory, before);
            expect_bytes(a, 0, 100);
            b = a;
        }
        char *c = gci_strdup(&env, "x");
        assert_int_equal(c == NULL, n == 3);
        gci_free(&env, b);
        gci_free(&env, c);
        assert_int_equal(env.memory, 0);
        assert_int_equal(h.live, 0);
    }
}

/* ---- log ----------------------------------------------------------------------------------------------------- */

typedef struct record { int lines, level; char line[2048]; } record;

static void keep_line(void *user, int level, const char *line)
{
    record *r = user;
    r->lines++;
    r->level = level;
    snprintf(r->line, sizeof r->line, "%s", line);
}

static void test_log_hook(void **state)
{
    (void)state;
    record r = {0};
    gc_options options = {.log = keep_line, .log_user = &r};
    gci_env env;
    gci_env_init(&env, sys, &options);
    gci_log(&env, GC_LOG_INFO, "%s %d", "seven", 7);
    assert_int_equal(r.lines, 1);
    assert_int_equal(r.level, GC_LOG_INFO);
    assert_string_equal(r.line, "gridcomm: seven 7");
    env.rank = 12;
    gci_log(&env, GC_LOG_ERROR, "a\nb\x1b\x7f");
    assert_string_equal(r.line, "gridcomm[12]: a?b??");
    assert_int_equal(r.level, GC_LOG_ERROR);

    char text[1500];
    static const size_t head = sizeof "gridcomm[12]: " - 1;
    for (size_t bytes = 490; bytes < 505; bytes++) {
        memset(text, 'x', bytes);
        text[bytes] = 0;
        gci_log(&env, GC_LOG_WARN, "%s", text);
        assert_int_equal(strlen(r.line), gci_min(head + bytes, 511));
        assert_string_equal(r.line + strlen(r.line) - 3, head + bytes > 511 ? "..." : "xxx");
    }
    memset(text, 'y', sizeof text - 1);
    text[sizeof text - 1] = 0;
    gci_log(&env, GC_LOG_WARN, "%s", text);
    assert_int_equal(strlen(r.line), 511);
}

static void test_debug_words(void **state)
{
    (void)state;
    static const struct { const char *words; unsigned bits; int warnings; } set[] = {
        {NULL, 0, 0}, {"", 0, 0}, {",, ", 0, 0}, {"boot", GCI_DEBUG_BOOT, 0}, {"links", GCI_DEBUG_LINKS, 0},
        {"p2p", GCI_DEBUG_P2P, 0},
        {"coll", GCI_DEBUG_COLL, 0}, {"addrsel", GCI_DEBUG_ADDRSEL, 0}, {"all", 31, 0},
        {"boot, coll", GCI_DEBUG_BOOT | GCI_DEBUG_COLL, 0},
        {"link,boot", GCI_DEBUG_BOOT, 1}, {"bootlinks", 0, 1}, {"all2,al", 0, 1},
    };
    for (size_t i = 0; i < GCI_COUNT(set); i++) {
        record r = {0};
        gc_options options = {.log = keep_line, .log_user = &r, .debug = set[i].words};
        gci_env env;
        gci_env_init(&env, sys, &options);
        assert_int_equal(env.debug, set[i].bits);
        assert_int_equal(r.lines, set[i].warnings);
        if (set[i].warnings)
            assert_int_equal(r.level, GC_LOG_WARN);
    }
}

/* What a log call writes to stderr. */
static void logged_to_stderr(gci_env *env, bool report, char *out, size_t bytes)
{
    int ends[2], saved = dup(STDERR_FILENO);
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    if (report)
        gci_report(env, "%s", "hello");
    else
        gci_log(env, GC_LOG_INFO, "hello");
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(ends[1]);
    ssize_t n = read(ends[0], out, bytes - 1);
    close(ends[0]);
    assert_true(n >= 0);
    out[n] = 0;
}

static void test_log_stderr(void **state)
{
    (void)state;
    char out[600];
    gci_env env;
    gci_env_init(&env, sys, NULL);
    logged_to_stderr(&env, false, out, sizeof out);
    assert_string_equal(out, "");
    logged_to_stderr(&env, true, out, sizeof out);
    assert_string_equal(out, "gridcomm: hello\n");
    env.debug = GCI_DEBUG_P2P;
    env.rank = 3;
    logged_to_stderr(&env, false, out, sizeof out);
    assert_string_equal(out, "gridcomm[3]: hello\n");

    int ends[2], saved = dup(STDERR_FILENO);        /* nobody reads: a SIGPIPE would end the test here */
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    gci_log(&env, GC_LOG_INFO, "hello");
    dup2(saved, STDERR_FILENO);
    close(saved);
    sigset_t pending;
    sigpending(&pending);
    assert_false(sigismember(&pending, SIGPIPE));
}

static void test_strerrno(void **state)
{
    (void)state;
    assert_string_equal(gci_strerrno(-ECONNREFUSED), "Connection refused");
    static const int odd[] = {0, 1, INT32_MIN, INT32_MAX, -5000, -ENOENT};
    for (size_t i = 0; i < GCI_COUNT(odd); i++)
        assert_true(strlen(gci_strerrno(odd[i])) > 0);
}

/* ---- sockets ------------------------------------------------------------------------------------------------- */

static void expect_flags(int fd, bool non_blocking)
{
    assert_true(fd >= 0);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    if (non_blocking)
        assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
}

/* Waits until fd has one of the events; fails the test if it never has. */
static unsigned wait_for(int fd, unsigned events)
{
    int poller = sys->poller(sys), n = 0;
    gci_event event = {0, 0};
    int64_t end = sys->now(sys) + GCT_PATIENCE;
    assert_int_equal(sys->watch(sys, poller, fd, events, 77), 0);
    while (n == 0 && sys->now(sys) < end)
        n = sys->wait(sys, poller, &event, 1, GCI_SECOND);
    sys->close(sys, poller);
    assert_int_equal(n, 1);
    assert_int_equal(event.tag, 77);
    return event.events;
}

typedef struct pair { int listener, client, server; gci_addr at, from; } pair;

/* false: this machine has no such address. */
static bool pair_open(pair *p, const char *listen_at, const char *connect_to)
{
    p->at = (gci_addr){0};
    if (*listen_at)
        p->at = parsed(listen_at);
    p->listener = sys->listen(sys, &p->at);
    if (p->listener == -EADDRNOTAVAIL || p->listener == -EAFNOSUPPORT)
        return false;
    expect_flags(p->listener, true);
    assert_true(p->at.port > 0);
    assert_int_equal(sys->accept(sys, p->listener, &p->from), -EAGAIN);
    gci_addr to = parsed(connect_to);
    to.port = p->at.port;
    p->client = sys->connect(sys, &to, NULL, 0);
    expect_flags(p->client, true);
    wait_for(p->client, GCI_WRITE);
    assert_int_equal(sys->connected(sys, p->client), 0);
    wait_for(p->listener, GCI_READ);
    p->server = sys->accept(sys, p->listener, &p->from);
    expect_flags(p->server, true);
    assert_true(gci_addr_equal(&p->from, &to));
    assert_true(p->from.port > 0 && p->from.port != to.port);
    return true;
}

static void pair_close(pair *p)
{
    sys->close(sys, p->listener);
    sys->close(sys, p->client);
    sys->close(sys, p->server);
}

static void expect_transfer(int from, int to)
{
    char in[12];
    struct iovec out[3] = {{(char[]){"hel"}, 3}, {NULL, 0}, {(char[]){"lo wide"}, 7}};
    memset(in, '#', sizeof in);
    struct iovec into[2] = {{in + 1, 4}, {in + 5, 6}};
    assert_int_equal(sys->recv(sys, to, into, 2), -EAGAIN);
    assert_int_equal(sys->recv(sys, to, into, 1), -EAGAIN);
    assert_int_equal(sys->send(sys, from, out, 3), 10);
    for (size_t got = 0; got < 10;) {               /* a stream may hand it over in pieces */
        struct iovec rest[2] = {{in + 1 + got, gci_min(4, 10 - got)}, {in + 1 + got + gci_min(4, 10 - got), 0}};
        rest[1].iov_len = 10 - got - rest[0].iov_len;
        wait_for(to, GCI_READ);
        ssize_t n = sys->recv(sys, to, rest, 2);
        assert_true(n > 0);
        got += (size_t)n;
    }
    assert_memory_equal(in, "#hello wide#", 12);
    struct iovec one = {(char[]){"!"}, 1}, back = {in, 5};
    assert_int_equal(sys->send(sys, from, &one, 1), 1);
    wait_for(to, GCI_READ);
    assert_int_equal(sys->recv(sys, to, &back, 1), 1);
    assert_memory_equal(in, "!hello wide#", 12);
}

static void connection_works(const char *listen_at, const char *connect_to)
{
    pair p;
    if (!pair_open(&p, listen_at, connect_to)) {
        print_message("no %s here\n", listen_at);
        skip();
    }
    expect_transfer(p.client, p.server);
    expect_transfer(p.server, p.client);
    sys->close(sys, p.client);
    p.client = -1;
    wait_for(p.server, GCI_READ);                   /* the end is something to read */
    struct iovec part = {(char[4]){0}, 4};
    assert_int_equal(sys->recv(sys, p.server, &part, 1), 0);
    pair_close(&p);
}

static void test_connection_v4(void **state)        { (void)state; connection_works("127.0.0.1", "127.0.0.1"); }
static void test_connection_v6(void **state)        { (void)state; connection_works("::1", "::1"); }
static void test_connection_any_v4(void **state)    { (void)state; connection_works("", "127.0.0.1"); }
static void test_connection_any_v6(void **state)    { (void)state; connection_works("::", "::1"); }
static void test_connection_six_v4(void **state)    { (void)state; connection_works("::", "127.0.0.1"); }
static void test_connection_zero_v4(void **state)   { (void)state; connection_works("0.0.0.0", "127.0.0.1"); }

/* ---- Unix sockets ---- */

static gci_addr near_at(uint16_t port) { return (gci_addr){.family = GCI_UNIX, .port = port}; }

/* A TCP port that is ours, so that its name among the Unix sockets is, too. */
static int near_listen(int *tcp, gci_addr *at)
{
    gci_addr any = {0};
    *tcp = sys->listen(sys, &any);
    assert_true(*tcp >= 0);
    *at = near_at(any.port);
    int fd = sys->listen(sys, at);
    expect_flags(fd, true);
    assert_true(at->family == GCI_UNIX && at->port == any.port);
    return fd;
}

static void near_open(pair *p, int *tcp)
{
    p->listener = near_listen(tcp, &p->at);
    assert_int_equal(sys->accept(sys, p->listener, NULL), -EAGAIN);
    p->client = sys->connect(sys, &p->at, NULL, 0);
    expect_flags(p->client, true);
    wait_for(p->client, GCI_WRITE);
    assert_int_equal(sys->connected(sys, p->client), 0);
    wait_for(p->listener, GCI_READ);
    memset(&p->from, GCT_CANARY, sizeof p->from);
    p->server = sys->accept(sys, p->listener, &p->from);
    expect_flags(p->server, true);
    assert_true(p->from.family == GCI_UNIX && p->from.port == 0);
}

static void test_near(void **state)
{
    (void)state;
    pair p;
    int tcp;
    char in[4];
    struct iovec part = {in, sizeof in};
    near_open(&p, &tcp);
    for (int how = GCI_TUNE_HANDSHAKE; how <= GCI_TUNE_DATA; how++)
        assert_int_equal(sys->tune(sys, p.client, (enum gci_tune)how, GCI_SECOND), 0);
    expect_transfer(p.client, p.server);
    expect_transfer(p.server, p.client);
    assert_int_equal(sys->silence(sys, p.client), 0);
    assert_int_equal(sys->send(sys, p.client, &part, 1), sizeof in);
    assert_int_equal(sys->silence(sys, p.client), 0);       /* nor while something is not read */
    sys->close(sys, p.client);
    p.client = -1;
    wait_for(p.server, GCI_READ);                   /* what was sent before the end comes before it */
    assert_int_equal(sys->recv(sys, p.server, &part, 1), sizeof in);
    assert_int_equal(sys->recv(sys, p.server, &part, 1), 0);
    assert_int_equal(sys->send(sys, p.server, &part, 1), -EPIPE);
    pair_close(&p);
    sys->close(sys, tcp);
}

/* What is written and not read is bounded on a data connection, whatever the system's default is: short messages wait for it. */
static void test_near_full(void **state)
{
    (void)state;
    static char big[1 << 16];
    struct iovec large = {big, sizeof big};
    size_t all = 0;
    pair p;
    int tcp;
    near_open(&p, &tcp);
    assert_int_equal(setsockopt(p.client, SOL_SOCKET, SO_SNDBUF, &(int){4 << 20}, sizeof(int)), 0);
    assert_int_equal(sys->tune(sys, p.client, GCI_TUNE_DATA, GCI_SECOND), 0);
    for (ssize_t n; (n = sys->send(sys, p.client, &large, 1)) > 0;)
        all += (size_t)n;
    assert_in_range(all, 64 * 1024, 512 * 1024);
    gci_event event;
    int poller = sys->poller(sys);
    assert_int_equal(sys->watch(sys, poller, p.client, GCI_WRITE, 1), 0);
    assert_int_equal(sys->wait(sys, poller, &event, 1, 0), 0);
    for (ssize_t n; (n = sys->recv(sys, p.server, &large, 1)) > 0;)
        all -= (size_t)n;
    assert_int_equal(all, 0);
    assert_int_equal(sys->wait(sys, poller, &event, 1, GCT_PATIENCE), 1);      /* there is room again */
    sys->close(sys, poller);
    pair_close(&p);
    sys->close(sys, tcp);
}

static void test_near_taken_and_refused(void **state)
{
    (void)state;
    int tcp;
    gci_addr at, source = parsed("127.0.0.1");
    int listener = near_listen(&tcp, &at);
    gci_addr again = at;
    assert_int_equal(sys->listen(sys, &again), -EADDRINUSE);
    assert_int_equal(sys->connect(sys, &at, &source, 0), -EAFNOSUPPORT);
    int fd = sys->connect(sys, &at, NULL, 0);
    assert_true(fd >= 0);
    sys->close(sys, listener);                      /* whom nobody has accepted is sent away */
    wait_for(fd, GCI_READ);
    struct iovec part = {(char[1]){0}, 1};
    assert_int_equal(sys->recv(sys, fd, &part, 1), -ECONNRESET);
    sys->close(sys, fd);
    assert_int_equal(sys->connect(sys, &at, NULL, 0), -ECONNREFUSED);
    listener = sys->listen(sys, &again);            /* free again */
    assert_true(listener >= 0);
    sys->close(sys, listener);
    sys->close(sys, tcp);
}

/* Many wait to be accepted; when they are too many for the listener the next is told so at once. */
static void test_near_many(void **state)
{
    (void)state;
    enum { MANY = 200 };
    int tcp, fd[MANY], server[MANY], full;
    gci_addr at, from;
    int listener = near_listen(&tcp, &at);
    for (int i = 0; i < MANY; i++) {
        struct iovec part = {&i, sizeof i};
        fd[i] = sys->connect(sys, &at, NULL, 0);
        assert_true(fd[i] >= 0);
        assert_int_equal(sys->connected(sys, fd[i]), 0);
        assert_int_equal(sys->send(sys, fd[i], &part, 1), sizeof i);        /* before it is accepted */
    }
    for (int i = 0, got = -1; i < MANY; i++) {
        struct iovec part = {&got, sizeof got};
        server[i] = sys->accept(sys, listener, &from);
        assert_true(server[i] >= 0);
        assert_int_equal(sys->recv(sys, server[i], &part, 1), sizeof got);
        assert_int_equal(got, i);
    }
    assert_int_equal(listen(listener, 1), 0);
    for (full = 0; full < MANY; full++) {
        sys->close(sys, fd[full]);
        if ((fd[full] = sys->connect(sys, &at, NULL, 0)) < 0)
            break;
    }
    assert_true(full < MANY);
    assert_int_equal(fd[full], -EAGAIN);
    for (int i = 0; i < MANY; i++) {
        sys->close(sys, fd[i]);
        sys->close(sys, server[i]);
    }
    sys->close(sys, listener);
    sys->close(sys, tcp);
}

/* ---- TCP again ---- */

static void test_listen_taken(void **state)
{
    (void)state;
    gci_addr at = parsed("127.0.0.1");
    int fd = sys->listen(sys, &at);
    assert_true(fd >= 0);
    gci_addr again = at, any = {.port = at.port}, stranger = parsed("203.0.113.7"), none = {.family = 9};
    assert_int_equal(sys->listen(sys, &again), -EADDRINUSE);
    assert_int_equal(sys->listen(sys, &any), -EADDRINUSE);
    assert_int_equal(sys->listen(sys, &stranger), -EADDRNOTAVAIL);
    assert_int_equal(sys->listen(sys, &none), -EAFNOSUPPORT);
    assert_int_equal(sys->connect(sys, &none, NULL, 0), -EAFNOSUPPORT);
    sys->close(sys, fd);
    fd = sys->listen(sys, &again);                  /* free again */
    assert_true(fd >= 0);
    sys->close(sys, fd);
    sys->close(sys, -1);
}

static void test_connect_refused(void **state)
{
    (void)state;
    gci_addr at = parsed("127.0.0.1");
    int fd = sys->listen(sys, &at);
    sys->close(sys, fd);
    fd = sys->connect(sys, &at, NULL, 0);                    /* loopback may refuse at once */
    if (fd >= 0) {
        wait_for(fd, GCI_WRITE | GCI_READ);
        assert_int_equal(sys->connected(sys, fd), -ECONNREFUSED);
        sys->close(sys, fd);
    } else {
        assert_int_equal(fd, -ECONNREFUSED);
    }
}

/* A listener whose queue is full drops the calls: they stay in progress. */
static void test_connect_in_progress(void **state)
{
    (void)state;
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof name;
    int listener = socket(AF_INET, SOCK_STREAM, 0), fd[8], n = 0, seen = 0;
    assert_int_equal(bind(listener, (struct sockaddr *)&name, bytes), 0);
    assert_int_equal(listen(listener, 0), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&name, &bytes), 0);
    gci_addr to = parsed("127.0.0.1");
    to.port = ntohs(name.sin_port);
    while (n < 8 && seen == 0) {
        fd[n] = sys->connect(sys, &to, NULL, 0);
        assert_true(fd[n] >= 0);
        seen = sys->connected(sys, fd[n++]);
    }
    assert_int_equal(seen, -EINPROGRESS);
    while (n > 0)
        sys->close(sys, fd[--n]);
    close(listener);
}

static void test_connect_to_itself(void **state)
{
    (void)state;
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof name;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&name, bytes), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&name, &bytes), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&name, bytes), 0);     /* so it does happen */
    assert_int_equal(sys->connected(sys, fd), -ECONNREFUSED);
    close(fd);
}

static int option(int fd, int level, int name);

/* Calls a listener at `to` from `source`; what the listener sees of the caller. false: no such address here. */
static bool call_from(const char *to_text, const char *source_text, uint32_t bind_to, gci_addr *seen)
{
    gci_addr at = parsed(to_text), source = {0};
    int listener = sys->listen(sys, &at);
    if (listener == -EADDRNOTAVAIL || listener == -EAFNOSUPPORT)
        return false;
    assert_true(listener >= 0);
    if (source_text)
        source = parsed(source_text);
    source.port = at.port;                          /* which means nothing: it is taken */
    int fd = sys->connect(sys, &at, source_text ? &source : NULL, bind_to);
    expect_flags(fd, true);
    wait_for(fd, GCI_WRITE);
    assert_int_equal(sys->connected(sys, fd), 0);
    assert_int_equal(option(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT), source_text != NULL);
    assert_int_equal(option(fd, SOL_SOCKET, SO_BINDTOIFINDEX), bind_to);
    wait_for(listener, GCI_READ);
    int server = sys->accept(sys, listener, seen);
    assert_true(server >= 0);
    assert_true(seen->port > 0 && seen->port != at.port);
    sys->close(sys, server);
    sys->close(sys, fd);
    sys->close(sys, listener);
    return true;
}

static void test_connect_from(void **state)
{
    (void)state;
    gci_addr seen, source = parsed("127.0.0.2"), six = parsed("::1");
    assert_true(call_from("127.0.0.1", "127.0.0.2", 0, &seen));
    assert_true(gci_addr_equal(&seen, &source));
    assert_true(call_from("127.0.0.3", "127.0.0.2", 0, &seen));
    assert_true(gci_addr_equal(&seen, &source));
    if (call_from("::1", "::1", 0, &seen))
        assert_true(gci_addr_equal(&seen, &six));
}

static void test_connect_from_elsewhere(void **state)
{
    (void)state;
    gci_addr to = parsed("127.0.0.1"), six = parsed("::1"), stranger = parsed("203.0.113.7"), stranger6 = parsed("2001:db8::7");
    int listener = sys->listen(sys, &to);
    assert_true(listener >= 0);
    six.port = to.port;
    assert_int_equal(sys->connect(sys, &to, &stranger, 0), -EADDRNOTAVAIL);
    assert_int_equal(sys->connect(sys, &to, &six, 0), -EAFNOSUPPORT);
    assert_int_equal(sys->connect(sys, &six, &to, 0), -EAFNOSUPPORT);
    int err = sys->connect(sys, &six, &stranger6, 0);
    assert_true(err == -EADDRNOTAVAIL || err == -EAFNOSUPPORT);
    assert_int_equal(sys->accept(sys, listener, NULL), -EAGAIN);
    sys->close(sys, listener);
}

static void test_connect_bound(void **state)
{
    (void)state;
    gci_addr seen, source = parsed("127.0.0.2"), to = parsed("127.0.0.1");
    uint32_t lo = if_nametoindex("lo");
    to.port = 1;
    int fd = sys->connect(sys, &to, NULL, 0x7fffff);        /* there is no such interface */
    assert_true(fd == -ENODEV || fd == -EPERM);
    fd = sys->connect(sys, &to, NULL, lo);
    if (fd == -EPERM) {
        print_message("skip: sockets may not be bound to an interface here\n");
        skip();
    }
    sys->close(sys, fd);
    assert_true(call_from("127.0.0.1", NULL, lo, &seen));
    assert_true(call_from("127.0.0.1", "127.0.0.2", lo, &seen));
    assert_true(gci_addr_equal(&seen, &source));
    call_from("::1", "::1", lo, &seen);
}

static void test_send_to_closed_peer(void **state)
{
    (void)state;
    pair p;
    char byte[1] = {0};
    struct iovec part[2] = {{byte, 1}, {byte, 1}};
    for (int parts = 1; parts <= 2; parts++) {      /* both ways of sending; a SIGPIPE would end the test here */
        assert_true(pair_open(&p, "127.0.0.1", "127.0.0.1"));
        sys->close(sys, p.server);
        p.server = -1;
        ssize_t n = 1;
        for (int64_t end = sys->now(sys) + GCT_PATIENCE; n >= 0 && sys->now(sys) < end;)
            n = sys->send(sys, p.client, part, parts);
        assert_true(n == -EPIPE || n == -ECONNRESET);
        n = sys->send(sys, p.client, part, parts);
        assert_true(n == -EPIPE || n == -ECONNRESET);
        pair_close(&p);
    }
}

/* More parts than the system takes at once: some of them go. A socket that is full says so. */
static void test_many_parts_and_full(void **state)
{
    (void)state;
    enum { PARTS = 1500 };
    static char bytes[PARTS], big[1 << 16];
    static struct iovec part[PARTS];
    for (size_t i = 0; i < PARTS; i++)
        part[i] = (struct iovec){&bytes[i], 1};
    pair p;
    assert_true(pair_open(&p, "127.0.0.1", "127.0.0.1"));
    assert_in_range(sys->send(sys, p.client, part, PARTS), 1, PARTS);
    wait_for(p.server, GCI_READ);
    assert_in_range(sys->recv(sys, p.server, part, PARTS), 1, PARTS);
    struct iovec large = {big, sizeof big};
    ssize_t n = 1;
    for (int i = 0; i < 100000 && n > 0; i++)
        n = sys->send(sys, p.client, &large, 1);
    assert_int_equal(n, -EAGAIN);
    pair_close(&p);
    assert_int_equal(sys->send(sys, p.client, &large, 1), -EBADF);
    assert_int_equal(sys->recv(sys, p.client, &large, 1), -EBADF);
}

static int option(int fd, int level, int name)
{
    int value = -1;
    socklen_t bytes = sizeof value;
    assert_int_equal(getsockopt(fd, level, name, &value, &bytes), 0);
    return value;
}

static void test_tune(void **state)
{
    (void)state;
    static const struct { int64_t timeout; int total, user_ms; } set[] = {
        {30 * GCI_SECOND, 30, 30000}, {3 * GCI_SECOND, 3, 3000}, {3500 * (int64_t)GCI_NS_PER_MS, 3, 3500},
        {2 * GCI_SECOND, 2, 2000},
        {GCI_NS_PER_MS, 2, 1}, {0, 2, 1}, {-1, 2, 1}, {600 * GCI_SECOND, 600, 600000}, {GCI_FOREVER, 32767, INT32_MAX},
    };
    pair p;
    assert_true(pair_open(&p, "127.0.0.1", "127.0.0.1"));
    int fd = p.client;
    assert_int_equal(sys->tune(sys, fd, GCI_TUNE_HANDSHAKE, GCI_SECOND), 0);
    assert_true(option(fd, IPPROTO_TCP, TCP_NODELAY));
    assert_false(option(fd, SOL_SOCKET, SO_KEEPALIVE));
    assert_int_not_equal(option(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT), 128 * 1024);
    for (size_t i = 0; i < GCI_COUNT(set); i++) {
        assert_int_equal(sys->tune(sys, fd, GCI_TUNE_CONTROL, set[i].timeout), 0);
        assert_true(option(fd, SOL_SOCKET, SO_KEEPALIVE));
        int idle = option(fd, IPPROTO_TCP, TCP_KEEPIDLE), interval = option(fd, IPPROTO_TCP, TCP_KEEPINTVL);
        assert_int_equal(idle + interval * option(fd, IPPROTO_TCP, TCP_KEEPCNT), set[i].total);
        assert_int_equal(option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), set[i].user_ms);
        assert_true(idle >= 1 && idle <= 25);           /* s: NATs forget what is silent for longer */
    }
    assert_int_equal(sys->tune(sys, fd, GCI_TUNE_DATA, GCI_SECOND), 0);
    assert_true(option(fd, IPPROTO_TCP, TCP_NODELAY));
    assert_true(option(fd, SOL_SOCKET, SO_KEEPALIVE));      /* for NATs; whoever is silent for minutes is not given up here */
    assert_true(option(fd, IPPROTO_TCP, TCP_KEEPIDLE) <= 25 && option(fd, IPPROTO_TCP, TCP_KEEPINTVL) <= 2);
    assert_true(option(fd, IPPROTO_TCP, TCP_KEEPINTVL) * option(fd, IPPROTO_TCP, TCP_KEEPCNT) > 240);
    assert_int_equal(option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), 0);
    assert_int_equal(option(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT), 128 * 1024);
    pair_close(&p);
    assert_int_equal(sys->tune(sys, fd, GCI_TUNE_DATA, GCI_SECOND), -EBADF);
}

/* What comes to this socket is thrown away before the kernel's TCP sees it, as if it had been lost on the way. */
static void deafen(int fd, bool deaf)
{
    struct sock_filter none = BPF_STMT(BPF_RET | BPF_K, 0);
    struct sock_fprog program = {1, &none};
    assert_int_equal(setsockopt(fd, SOL_SOCKET, deaf ? SO_ATTACH_FILTER : SO_DETACH_FILTER, &program, sizeof program), 0);
}

/* Until it is silent for at least so long, or (-1) not at all. */
static void expect_silence(int fd, int64_t least)
{
    int64_t until = sys->now(sys) + GCT_PATIENCE, silence;
    do {
        silence = sys->silence(sys, fd);
        assert_true(silence >= 0);
        sys->yield(sys);
    } while ((least < 0 ? silence != 0 : silence < least) && sys->now(sys) < until);
    assert_true(least < 0 ? silence == 0 : silence >= least);
}

static void test_silence(void **state)
{
    (void)state;
    static const int64_t some = 300 * (int64_t)GCI_NS_PER_MS;
    static char big[1 << 20];
    struct iovec byte = {"x", 1}, large = {big, sizeof big};
    pair p;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(sys->silence(sys, ends[0]), 0);
    assert_int_equal(sys->silence(sys, -1), 0);
    close(ends[0]);
    close(ends[1]);
    assert_true(pair_open(&p, "127.0.0.1", "127.0.0.1"));
    assert_int_equal(sys->silence(sys, p.client), 0);
    deafen(p.server, true);                         /* data that nobody acknowledges */
    assert_int_equal(sys->send(sys, p.client, &byte, 1), 1);
    expect_silence(p.client, some);
    assert_int_equal(sys->silence(sys, p.server), 0);       /* it has said nothing that wants an answer */
    deafen(p.server, false);
    expect_silence(p.client, -1);                   /* its kernel has it, though nobody reads it */
    assert_int_equal(sys->tune(sys, p.client, GCI_TUNE_CONTROL, 30 * GCI_SECOND), 0);
    assert_int_equal(setsockopt(p.client, IPPROTO_TCP, TCP_KEEPIDLE, &(int){1}, sizeof(int)), 0);
    deafen(p.server, true);                         /* a probe of keepalive */
    expect_silence(p.client, some);
    deafen(p.server, false);
    expect_silence(p.client, -1);
    for (ssize_t n = 1; n > 0;)                     /* a window that is shut: whoever does not read is there all the same */
        n = sys->send(sys, p.client, &large, 1);
    expect_silence(p.client, -1);
    deafen(p.server, true);
    expect_silence(p.client, some);
    pair_close(&p);
}

/* How long the kernel of fd's other end takes to acknowledge what was sent. */
static int64_t acknowledged_after(int fd)
{
    int64_t from = sys->now(sys);
    while (sys->backlog(sys, fd) > 0 && sys->now(sys) < from + GCT_PATIENCE)
        sys->yield(sys);
    return sys->now(sys) - from;
}

static void pass_a_byte(int from, int to)
{
    char byte = 'x';
    struct iovec part = {&byte, 1};
    assert_int_equal(sys->send(sys, from, &part, 1), 1);
    wait_for(to, GCI_READ);
    assert_int_equal(sys->recv(sys, to, &part, 1), 1);
}

/* Between two who answer each other the kernel lets the acknowledgement of a few bytes wait for the next answer. */
static void test_acknowledge(void **state)
{
    (void)state;
    static const int64_t soon = 20 * (int64_t)GCI_NS_PER_MS;
    pair p;
    assert_true(pair_open(&p, "127.0.0.1", "127.0.0.1"));
    for (int asked = 0; asked < 2; asked++) {
        pass_a_byte(p.client, p.server);
        pass_a_byte(p.server, p.client);
        acknowledged_after(p.server);
        pass_a_byte(p.client, p.server);
        if (asked)
            sys->acknowledge(sys, p.server);
        assert_true((acknowledged_after(p.client) < soon) == asked);
    }
    pair_close(&p);
    sys->acknowledge(sys, -1);
}

static void test_adopt(void **state)
{
    (void)state;
    gci_addr at, before;
    memset(&at, GCT_CANARY, sizeof at);
    before = at;
    int ends[2], fd = socket(AF_INET, SOCK_STREAM, 0), datagram = socket(AF_INET, SOCK_DGRAM, 0);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(sys->adopt(sys, ends[0], &at), -ENOTSOCK);
    assert_int_equal(sys->adopt(sys, -1, &at), -EBADF);
    assert_true(sys->adopt(sys, datagram, &at) < 0);
    assert_int_equal(sys->adopt(sys, fd, &at), -EINVAL);                /* does not listen */
    assert_memory_equal(&at, &before, sizeof at);
    assert_false(fcntl(ends[0], F_GETFL) & O_NONBLOCK);                 /* left as they were, and open */
    assert_false(fcntl(fd, F_GETFL) & O_NONBLOCK);

    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(bind(fd, (struct sockaddr *)&name, sizeof name), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(sys->adopt(sys, fd, &at), fd);
    expect_flags(fd, true);
    assert_int_equal(sys->adopt(sys, fd, &at), -EBUSY);                 /* once */
    assert_int_equal(at.family, 4);
    assert_true(at.port > 0 && gci_addr_is_loopback(&at));
    assert_int_equal(sys->accept(sys, fd, NULL), -EAGAIN);
    close(fd);
    close(datagram);
    close(ends[0]);
    close(ends[1]);
}

static void test_inherit(void **state)
{
    (void)state;
    int ends[2], both[2], letters[2], fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, both), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM, 0, letters), 0);
    assert_int_equal(sys->inherit(sys, letters[0]), -EINVAL);
    assert_int_equal(sys->inherit(sys, ends[0]), -ENOTSOCK);
    assert_int_equal(sys->inherit(sys, -1), -EBADF);
    assert_int_equal(sys->inherit(sys, fd), -ENOTCONN);
    assert_false(fcntl(ends[0], F_GETFD) & FD_CLOEXEC);                 /* left as they were */
    assert_false(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(sys->inherit(sys, both[0]), 0);
    assert_true(fcntl(both[0], F_GETFD) & FD_CLOEXEC);
    assert_false(fcntl(both[1], F_GETFD) & FD_CLOEXEC);
    assert_int_equal(sys->inherit(sys, both[0]), -EBUSY);
    close(fd);
    for (int i = 0; i < 2; i++) {
        close(ends[i]);
        close(both[i]);
        close(letters[i]);
    }
}

/* ---- poller -------------------------------------------------------------------------------------------------- */

static void test_poller(void **state)
{
    (void)state;
    enum { WAKERS = 100 };
    int poller = sys->poller(sys), waker[WAKERS];
    gci_event event[WAKERS];
    expect_flags(poller, false);
    for (int i = 0; i < WAKERS; i++) {
        waker[i] = sys->waker(sys);
        expect_flags(waker[i], true);
        assert_int_equal(sys->watch(sys, poller, waker[i], GCI_READ, UINT64_MAX - (uint64_t)i), 0);
    }
    assert_int_equal(sys->wait(sys, poller, event, WAKERS, 0), 0);
    sys->wake(sys, waker[3]);
    sys->wake(sys, waker[3]);
    for (int again = 0; again < 3; again++) {               /* level-triggered: until it rests */
        assert_int_equal(sys->wait(sys, poller, event, WAKERS, GCT_PATIENCE), 1);
        assert_true(event[0].tag == UINT64_MAX - 3);
        assert_int_equal(event[0].events, GCI_READ);
    }
    sys->rest(sys, waker[3]);
    sys->rest(sys, waker[3]);                               /* at rest already: does not block */
    assert_int_equal(sys->wait(sys, poller, event, WAKERS, 0), 0);

    for (int i = 0; i < WAKERS; i++)
        sys->wake(sys, waker[i]);
    bool seen[WAKERS] = {false};
    for (int found = 0, n; found < WAKERS; found += n) {    /* not more than max, and all of them in the end */
        n = sys->wait(sys, poller, event, 30, GCT_PATIENCE);
        assert_in_range(n, 1, 30);
        for (int i = 0; i < n; i++) {
            uint64_t which = UINT64_MAX - event[i].tag;
            assert_true(which < WAKERS && !seen[which]);
            seen[which] = true;
            sys->rest(sys, waker[which]);
        }
    }
    for (int i = 0; i < WAKERS; i++)
        sys->close(sys, waker[i]);
    sys->close(sys, poller);
    assert_int_equal(sys->wait(sys, poller, event, 1, 0), -EBADF);
}

static void test_poller_events(void **state)
{
    (void)state;
    pair p;
    gci_event event[2];
    int poller = sys->poller(sys), outer = sys->poller(sys);
    assert_true(pair_open(&p, "127.0.0.1", "127.0.0.1"));
    assert_int_equal(sys->watch(sys, outer, poller, GCI_READ, 5), 0);       /* a poller is a descriptor itself */
    assert_int_equal(sys->watch(sys, poller, p.client, 0, 1), 0);           /* not watched: fine */
    assert_int_equal(sys->watch(sys, poller, p.client, GCI_READ, 1), 0);
    assert_int_equal(sys->wait(sys, outer, event, 2, 0), 0);
    assert_int_equal(sys->watch(sys, poller, p.client, GCI_READ | GCI_WRITE, 2), 0);
    assert_int_equal(sys->wait(sys, outer, event, 2, GCT_PATIENCE), 1);
    assert_int_equal(event[0].tag, 5);
    assert_int_equal(sys->wait(sys, poller, event, 2, GCT_PATIENCE), 1);
    assert_int_equal(event[0].tag, 2);
    assert_int_equal(event[0].events, GCI_WRITE);
    struct iovec part = {(char[1]){0}, 1};
    assert_int_equal(sys->send(sys, p.server, &part, 1), 1);
    wait_for(p.client, GCI_READ);
    assert_int_equal(sys->wait(sys, poller, event, 2, GCT_PATIENCE), 1);
    assert_int_equal(event[0].events, GCI_READ | GCI_WRITE);
    assert_int_equal(sys->watch(sys, poller, p.client, 0, 2), 0);
    assert_int_equal(sys->wait(sys, poller, event, 2, 0), 0);
    assert_int_equal(sys->watch(sys, poller, -1, GCI_READ, 2), -EBADF);
    pair_close(&p);
    sys->close(sys, poller);
    sys->close(sys, outer);
}

/* A wait of less than a millisecond must take that long, not return at once. -1: it returned events or too early. */
static int wait_lasts(int64_t timeout)
{
    gci_event event;
    int poller = sys->poller(sys);
    int64_t start = sys->now(sys);
    int n = sys->wait(sys, poller, &event, 1, timeout);
    int64_t took = sys->now(sys) - start;
    sys->close(sys, poller);
    return n == 0 && took >= timeout ? 0 : -1;
}

static void test_wait_timeouts(void **state)
{
    (void)state;
    static const int64_t timeout[] = {0, 1, 1000, 300000, 1000000, 1700000, 20000000};
    for (size_t i = 0; i < GCI_COUNT(timeout); i++)
        assert_int_equal(wait_lasts(timeout[i]), 0);
}

/* The same where the kernel, or a sandbox, does not know the call that counts in ns. */
static void test_wait_timeouts_old_kernel(void **state)
{
    (void)state;
#ifdef SYS_epoll_pwait2
    static const int error[] = {ENOSYS, EPERM};
    for (size_t i = 0; i < GCI_COUNT(error); i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            struct sock_filter code[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_epoll_pwait2, 0, 1),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error[i]),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
            };
            struct sock_fprog program = {.len = GCI_COUNT(code), .filter = code};
            if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0))
                _exit(77);
            if (syscall(SYS_epoll_pwait2, -1, NULL, 0, NULL, NULL, (size_t)0) == 0 || errno != error[i])
                _exit(2);
            _exit(wait_lasts(0) || wait_lasts(1) || wait_lasts(300000) || wait_lasts(1700000));
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        if (WEXITSTATUS(status) == 77)
            skip();
        assert_int_equal(WEXITSTATUS(status), 0);
    }
#else
    skip();
#endif
}

static void wake_it(void *waker) { sys->wake(sys, *(int *)waker); }

static void test_wait_forever(void **state)
{
    (void)state;
    int poller = sys->poller(sys), waker = sys->waker(sys), n;
    gci_event event;
    gci_thread *thread;
    assert_int_equal(sys->watch(sys, poller, waker, GCI_READ, 9), 0);
    assert_int_equal(sys->thread(sys, &thread, wake_it, &waker), 0);
    do
        n = sys->wait(sys, poller, &event, 1, GCI_FOREVER);
    while (n == 0);
    assert_int_equal(n, 1);
    assert_int_equal(event.tag, 9);
    sys->join(sys, thread);
    sys->close(sys, waker);
    sys->close(sys, poller);
}

typedef struct pester { pthread_t whom; atomic_bool stop; } pester;

static void on_signal(int number) { (void)number; }

static void pester_it(void *arg)
{
    pester *p = arg;
    while (!atomic_load(&p->stop)) {
        pthread_kill(p->whom, SIGUSR1);
        sys->yield(sys);
    }
}

/* A signal ends a wait without an error, and a transfer not at all. */
static void test_signals(void **state)
{
    (void)state;
    struct sigaction action = {.sa_handler = on_signal}, before;       /* no SA_RESTART */
    static pester p;                    /* outlives a failed assertion, and so does the thread */
    p.whom = pthread_self();
    gci_thread *thread;
    gci_event event;
    pair q;
    sigaction(SIGUSR1, &action, &before);
    assert_true(pair_open(&q, "127.0.0.1", "127.0.0.1"));
    int poller = sys->poller(sys);
    assert_int_equal(sys->thread(sys, &thread, pester_it, &p), 0);
    assert_int_equal(sys->wait(sys, poller, &event, 1, GCI_FOREVER), 0);
    char byte = 1, in = 0;
    struct iovec out = {&byte, 1}, into = {&in, 1};
    for (int i = 0; i < 200; i++) {
        assert_int_equal(sys->send(sys, q.client, &out, 1), 1);
        ssize_t n;
        do
            n = sys->recv(sys, q.server, &into, 1);
        while (n == -EAGAIN);
        assert_int_equal(n, 1);
    }
    atomic_store(&p.stop, true);
    sys->join(sys, thread);
    sigaction(SIGUSR1, &before, NULL);
    sys->close(sys, poller);
    pair_close(&q);
}

/* ---- threads ------------------------------------------------------------------------------------------------- */

static void look_at_mask(void *arg)
{
    static const int number[] = {SIGINT, SIGTERM, SIGUSR1, SIGCHLD, SIGPIPE, SIGALRM};
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    *(int *)arg = 1;
    for (size_t i = 0; i < GCI_COUNT(number); i++)
        if (!sigismember(&mask, number[i]))
            *(int *)arg = -number[i];
}

static void test_thread(void **state)
{
    (void)state;
    int seen = 0;
    sigset_t before, after;
    gci_thread *thread;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    assert_int_equal(sys->thread(sys, &thread, look_at_mask, &seen), 0);
    sys->join(sys, thread);
    assert_int_equal(seen, 1);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    for (int number = 1; number < 32; number++)
        assert_int_equal(sigismember(&before, number), sigismember(&after, number));
}

static void test_await_timeout(void **state)
{
    (void)state;
    static const int64_t timeout[] = {-1, 0, 1, 5000000};
    gci_monitor *monitor;
    assert_int_equal(sys->monitor(sys, &monitor), 0);
    sys->enter(sys, monitor);
    for (size_t i = 0; i < GCI_COUNT(timeout); i++) {
        int64_t start = sys->now(sys), end = start + timeout[i], left;
        int waits = 0;
        while ((left = end - sys->now(sys)) > 0 || waits == 0) {
            sys->await(sys, monitor, left);
            assert_in_range(++waits, 1, 100);       /* it may wake without cause, but it does wait */
        }
    }
    sys->leave(sys, monitor);
    sys->monitor_free(sys, monitor);
    sys->monitor_free(sys, NULL);
}

typedef struct turns { gci_monitor *monitor; int turn, others; } turns;
enum { GCT_TURNS = 1000, GCT_PLAYERS = 3 };

static void take_turns(turns *t, int me)
{
    sys->enter(sys, t->monitor);
    for (int i = 0; i < GCT_TURNS; i++) {
        while (t->turn % GCT_PLAYERS != me)
            sys->await(sys, t->monitor, me ? GCI_FOREVER : GCT_PATIENCE);
        t->turn++;
        sys->notify(sys, t->monitor);
    }
    sys->leave(sys, t->monitor);
}

static void take_turns_too(void *arg)
{
    turns *t = arg;
    sys->enter(sys, t->monitor);
    int me = ++t->others;
    sys->leave(sys, t->monitor);
    take_turns(t, me);
}

/* Three threads count in turn; a lost notice would hang it (and the watchdog would bark). */
static void test_monitor_turns(void **state)
{
    (void)state;
    turns t = {0};
    gci_thread *thread[GCT_PLAYERS - 1];
    assert_int_equal(sys->monitor(sys, &t.monitor), 0);
    for (int i = 0; i < GCT_PLAYERS - 1; i++)
        assert_int_equal(sys->thread(sys, &thread[i], take_turns_too, &t), 0);
    take_turns(&t, 0);
    for (int i = 0; i < GCT_PLAYERS - 1; i++)
        sys->join(sys, thread[i]);
    assert_int_equal(t.turn, GCT_PLAYERS * GCT_TURNS);
    sys->monitor_free(sys, t.monitor);
}

/* ---- the host ------------------------------------------------------------------------------------------------ */

static void test_host(void **state)
{
    (void)state;
    char id[GCI_HOST_ID_BYTES], again[GCI_HOST_ID_BYTES], name[GCI_HOST_NAME_BYTES];
    memset(id, GCT_CANARY, sizeof id);
    assert_int_equal(sys->host(sys, id, name), 0);
    assert_int_equal(sys->host(sys, again, name), 0);
    assert_non_null(memchr(id, 0, sizeof id));
    assert_string_equal(id, again);
    assert_in_range(strlen(id), 3, GCI_HOST_ID_BYTES - 1);
    assert_non_null(strchr(id, ':'));
}

static void test_interfaces(void **state)
{
    (void)state;
    gci_ifaddr list[GCI_IFADDRS_MAX + 1];
    gci_addr local = parsed("127.0.0.1");
    memset(list, GCT_CANARY, sizeof list);
    gci_ifaddr untouched = list[GCI_IFADDRS_MAX];
    int all = sys->interfaces(sys, list, GCI_IFADDRS_MAX), n = all < GCI_IFADDRS_MAX ? all : GCI_IFADDRS_MAX;
    bool found = false;
    assert_true(all > 0);
    assert_int_equal(sys->interfaces(sys, NULL, 0), all);
    assert_memory_equal(&list[GCI_IFADDRS_MAX], &untouched, sizeof untouched);
    for (int i = 0; i < n; i++) {
        char name[IF_NAMESIZE] = "";
        assert_non_null(if_indextoname(list[i].index, name));
        assert_string_equal(name, list[i].name);
        assert_int_equal(list[i].addr.port, 0);
        assert_true(list[i].addr.family == 4 ? list[i].prefix <= 32 : list[i].addr.family == 6 && list[i].prefix <= 128);
        if (list[i].addr.family == 6 && list[i].addr.ip[0] == 0xfe && list[i].addr.ip[1] == 0x80)
            assert_int_equal(list[i].addr.scope, list[i].index);
        if (gci_addr_is_loopback(&list[i].addr))
            assert_true(list[i].flags & GCI_IF_LOOPBACK);
        if (gci_addr_equal(&list[i].addr, &local)) {
            found = true;
            assert_int_equal(list[i].prefix, 8);
        }
        for (int j = i + 2; j < n; j++)             /* the addresses of one interface stand together */
            if (list[j].index == list[i].index)
                assert_int_equal(list[j - 1].index, list[i].index);
    }
    assert_true(found);
}

static void test_resolve(void **state)
{
    (void)state;
    gci_addr out[9], six = parsed("::1");
    assert_int_equal(sys->resolve(sys, "127.0.0.1", 80, out, 8), 1);
    assert_int_equal(out[0].port, 80);
    assert_true(gci_addr_is_loopback(&out[0]));
    assert_int_equal(sys->resolve(sys, "::1", 81, out, 8), 1);
    assert_int_equal(out[0].port, 81);
    assert_true(gci_addr_equal(&out[0], &six));
    memset(out, 0, sizeof out);
    int n = sys->resolve(sys, "localhost", 82, out, 8);
    assert_in_range(n, 1, 8);
    for (int i = 0; i < n; i++) {
        assert_true(gci_addr_is_loopback(&out[i]));
        assert_int_equal(out[i].port, 82);
    }
    assert_int_equal(sys->resolve(sys, "localhost", 82, out, 1), 1);
    assert_true(sys->resolve(sys, "localhost", 82, out, 0) < 0);
    /* A label longer than 63 letters cannot exist, so nobody on the network is asked. */
    static const char too_long[] = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";
    assert_true(sys->resolve(sys, too_long, 1, out, 8) < 0);
    assert_true(sys->resolve(sys, "", 1, out, 8) < 0);
}

static void test_random_and_now(void **state)
{
    (void)state;
    uint8_t a[301], b[301];
    memset(a, GCT_CANARY, sizeof a);
    memset(b, GCT_CANARY, sizeof b);
    assert_int_equal(sys->random(sys, a, 300), 0);
    assert_int_equal(sys->random(sys, b, 300), 0);
    assert_memory_not_equal(a, b, 16);
    assert_memory_not_equal(a + 284, b + 284, 16);
    assert_int_equal(a[300], GCT_CANARY);
    int64_t before = sys->now(sys);
    for (int i = 0; i < 1000; i++) {
        int64_t now = sys->now(sys);
        assert_true(now >= before);
        before = now;
    }
}

static int open_descriptors(void)
{
    int count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* ---- children ------------------------------------------------------------------------------------------------ */

static int shell(const char *script)
{
    char *argv[] = {(char[]){"sh"}, (char[]){"-c"}, (char *)(uintptr_t)script, NULL};
    return sys->spawn(sys, argv);
}

/* What comes until the end of the stream, as text. */
static const char *hear(int fd, char *text, size_t room)
{
    size_t have = 0;
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        struct iovec v = {text + have, room - 1 - have};
        assert_int_equal(poll(&p, 1, 10000), 1);
        ssize_t n = sys->recv(sys, fd, &v, 1);
        if (n == -EAGAIN)
            continue;
        assert_true(n >= 0);
        if (n == 0)
            break;
        have += (size_t)n;
    }
    text[have] = 0;
    return text;
}

/* Gone from the table of processes, and nobody's zombie. */
static bool ends(int pid)
{
    for (int i = 0; i < 1000; i++) {
        if (kill(pid, 0) != 0)
            return true;
        usleep(10000);
    }
    return false;
}

static void test_spawn(void **state)
{
    char text[256];
    int pid, before = open_descriptors();
    (void)state;
    for (int closed = -1; closed <= STDOUT_FILENO; closed++) {      /* also where 0 or 1 is free for others to get */
        int kept = closed < 0 ? -1 : fcntl(closed, F_DUPFD_CLOEXEC, 10);
        if (closed >= 0)
            close(closed);
        int fd = shell("read word; echo heard $word; read word; echo then $word");
        if (closed >= 0) {
            if (fd == closed)       /* the lowest that was free */
                fd = fcntl(fd, F_DUPFD_CLOEXEC, 11), close(closed);
            dup2(kept, closed);
            close(kept);
        }
        assert_true(fd >= 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC && fcntl(fd, F_GETFL) & O_NONBLOCK);
        assert_int_equal(sys->tune(sys, fd, GCI_TUNE_HANDSHAKE, GCI_SECOND), 0);
        assert_int_equal(sys->tune(sys, fd, GCI_TUNE_CONTROL, GCI_SECOND), 0);
        assert_int_equal(sys->tune(sys, fd, GCI_TUNE_DATA, GCI_SECOND), 0);
        assert_int_equal(sys->connected(sys, fd), 0);
        struct iovec v = {(char[]){"one\ntwo\n"}, 8};
        assert_int_equal(sys->send(sys, fd, &v, 1), 8);
        assert_string_equal(hear(fd, text, sizeof text), "heard one\nthen two\n");
        sys->close(sys, fd);
    }
    int fd = shell("kill -STOP $$");        /* nothing comes of it, and closing does not wait */
    assert_true(fd >= 0);
    pid = fcntl(fd, F_GETOWN);
    assert_true(pid > 0 && getpgid(pid) == pid);
    kill(-pid, SIGCONT);
    sys->close(sys, fd);
    assert_true(ends(pid));
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);       /* no child of ours is left, nor ever was */
    assert_int_equal(errno, ECHILD);
    assert_int_equal(sys->spawn(sys, (char *[]){(char[]){"no-such-program-here"}, NULL}), -ENOENT);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(open_descriptors(), before);
}

/* close() ends a child that would go on, and what that has started; whatever this program does about signals, the child
 * has them as usual, and no more of our descriptors than it needs. */
static void test_spawn_ends(void **state)
{
    struct sigaction ignored = {.sa_handler = SIG_IGN}, before;
    sigset_t all, mask;
    char text[256];
    int pid, child = 0, fd, poller, waker;
    (void)state;
    sigaction(SIGCHLD, &ignored, &before);
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &mask);
    fd = shell("exec 2>&1; sleep 100 & echo $!; exec >&-; wait");
    assert_true(fd >= 0);
    pid = fcntl(fd, F_GETOWN);
    for (size_t have = 0; !have || text[have - 1] != '\n';) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        struct iovec v = {text + have, sizeof text - 1 - have};
        assert_int_equal(poll(&p, 1, 10000), 1);
        ssize_t n = sys->recv(sys, fd, &v, 1);
        assert_true(n > 0 || n == -EAGAIN);
        have += n > 0 ? (size_t)n : 0;
        text[have] = 0;
    }
    child = atoi(text);
    assert_true(child > 0 && kill(child, 0) == 0);
    sys->close(sys, fd);
    assert_true(ends(pid) && ends(child));
    fd = shell("kill -CHLD $$; kill -PIPE $$; echo alive");
    assert_string_equal(hear(fd, text, sizeof text), "");       /* SIGPIPE is neither ignored nor blocked there */
    sys->close(sys, fd);
    poller = sys->poller(sys);
    waker = sys->waker(sys);        /* [eventpoll], [eventfd] */
    fd = shell("for i in /proc/self/fd/*; do readlink $i; done");
    assert_null(strstr(hear(fd, text, sizeof text), "event"));
    sys->close(sys, fd);
    sys->close(sys, poller);
    sys->close(sys, waker);
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    sigaction(SIGCHLD, &before, NULL);
}


static int open_at_start;

static void test_nothing_left_open(void **state)
{
    (void)state;
    assert_int_equal(open_descriptors(), open_at_start);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sha256),
        cmocka_unit_test(test_sha256_million),
        cmocka_unit_test(test_hmac),
        cmocka_unit_test(test_equal_in_constant_time),
        cmocka_unit_test(test_addr_round_trip),
        cmocka_unit_test(test_addr_rejects),
        cmocka_unit_test(test_addr_scope_by_name),
        cmocka_unit_test(test_addr_relations),
        cmocka_unit_test(test_put_get),
        cmocka_unit_test(test_allocator),
        cmocka_unit_test(test_allocation_fails),
        cmocka_unit_test(test_log_hook),
        cmocka_unit_test(test_debug_words),
        cmocka_unit_test(test_log_stderr),
        cmocka_unit_test(test_strerrno),
        cmocka_unit_test(test_connection_v4),
        cmocka_unit_test(test_connection_v6),
        cmocka_unit_test(test_connection_any_v4),
        cmocka_unit_test(test_connection_any_v6),
        cmocka_unit_test(test_connection_six_v4),
        cmocka_unit_test(test_connection_zero_v4),
        cmocka_unit_test(test_near),
        cmocka_unit_test(test_near_full),
        cmocka_unit_test(test_near_taken_and_refused),
        cmocka_unit_test(test_near_many),
        cmocka_unit_test(test_listen_taken),
        cmocka_unit_test(test_connect_refused),
        cmocka_unit_test(test_connect_in_progress),
        cmocka_unit_test(test_connect_to_itself),
        cmocka_unit_test(test_connect_from),
        cmocka_unit_test(test_connect_from_elsewhere),
        cmocka_unit_test(test_connect_bound),
        cmocka_unit_test(test_send_to_closed_peer),
        cmocka_unit_test(test_many_parts_and_full),
        cmocka_unit_test(test_tune),
        cmocka_unit_test(test_silence), cmocka_unit_test(test_acknowledge),
        cmocka_unit_test(test_spawn),
        cmocka_unit_test(test_spawn_ends),
        cmocka_unit_test(test_adopt),
        cmocka_unit_test(test_inherit),
        cmocka_unit_test(test_poller),
        cmocka_unit_test(test_poller_events),
        cmocka_unit_test(test_wait_timeouts),
        cmocka_unit_test(test_wait_timeouts_old_kernel),
        cmocka_unit_test(test_wait_forever),
        cmocka_unit_test(test_signals),
        cmocka_unit_test(test_thread),
        cmocka_unit_test(test_await_timeout),
        cmocka_unit_test(test_monitor_turns),
        cmocka_unit_test(test_host),
        cmocka_unit_test(test_interfaces),
        cmocka_unit_test(test_resolve),
        cmocka_unit_test(test_random_and_now),
        cmocka_unit_test(test_nothing_left_open),       /* after all others, so that it sees what they left */
    };
    signal(SIGPIPE, SIG_DFL);           /* whoever started this may ignore it: then a SIGPIPE would go unseen */
    alarm(GCT_WATCHDOG_S);
    sys = gci_sys_real();
    open_at_start = open_descriptors();
    return cmocka_run_group_tests_name("sys", tests, NULL, NULL);
}
