/* test_hostfile.c: the launcher's host file, its frames and its job description: what is taken, what is refused and how.
 * SPDX-License-Identifier: MIT
 */
#include "../../tools/gcrun.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void hosts_are(const char *text, int count, const gcrun_host expected[])
{
    char error[GCRUN_TEXT] = "none";
    gcrun_host *host;
    int n;
    assert_int_equal(gcrun_hosts_parse(text, strlen(text), "f", &host, &n, error), 0);
    assert_int_equal(n, count);
    for (int i = 0; i < n; i++) {
        assert_string_equal(host[i].name, expected[i].name);
        assert_string_equal(host[i].cluster, expected[i].cluster);
        assert_int_equal(host[i].slots, expected[i].slots);
    }
    free(host);
}

static void refused_bytes(const char *text, size_t bytes, const char *expected)
{
    char error[GCRUN_TEXT] = "none";
    gcrun_host *host = (gcrun_host *)&error;
    int n = 7;
    char *exact = malloc(bytes ? bytes : 1);        /* no byte behind it: a checker of memory sees a read beyond */
    assert_non_null(exact);
    memcpy(exact, text, bytes);
    assert_int_equal(gcrun_hosts_parse(exact, bytes, "f", &host, &n, error), -1);
    free(exact);
    assert_string_equal(error, expected);
    assert_null(host);
    assert_int_equal(n, 0);
}

static void refused(const char *text, const char *expected)
{
    refused_bytes(text, strlen(text), expected);
}

static void test_lines(void **state)
{
    (void)state;
    hosts_are("one", 1, (gcrun_host[]){ { "one", "", 1 } });
    hosts_are("one\n", 1, (gcrun_host[]){ { "one", "", 1 } });
    hosts_are("  one\tslots=12   cluster=site/rack-1 # words\r\n\n#slots=0\n two cluster=b slots=3", 2,
              (gcrun_host[]){ { "one", "site/rack-1", 12 }, { "two", "b", 3 } });
    hosts_are("a slots=65535\na#b\n", 2, (gcrun_host[]){ { "a", "", 65535 }, { "a", "", 1 } });
    hosts_are("user@host.example\n2001:db8::1\n[fe80::1%eth0]\n10.0.0.1", 4,
              (gcrun_host[]){ { "user@host.example", "", 1 }, { "2001:db8::1", "", 1 }, { "[fe80::1%eth0]", "", 1 }, { "10.0.0.1", "", 1 } });
}

static void test_many(void **state)
{
    (void)state;
    enum { MANY = 1000 };
    char *text = malloc(MANY * 16), error[GCRUN_TEXT], name[16];
    gcrun_host *host;
    int n;
    size_t at = 0;
    assert_non_null(text);
    for (int i = 0; i < MANY; i++) at += (size_t)sprintf(text + at, "h%d slots=%d\n", i, i % 7 + 1);
    assert_int_equal(gcrun_hosts_parse(text, at, "f", &host, &n, error), 0);
    assert_int_equal(n, MANY);
    for (int i = 0; i < n; i++) {
        sprintf(name, "h%d", i);
        assert_string_equal(host[i].name, name);
        assert_int_equal(host[i].slots, i % 7 + 1);
    }
    free(host);
    free(text);
}

static void test_refused(void **state)
{
    (void)state;
    refused("", "f: no host in it");
    refused("\n # only words\n\n", "f: no host in it");
    refused("a slots=0", "f:1: slots must be a number from 1 to 65536, not '0'");
    refused("a\nb slots=", "f:2: slots must be a number from 1 to 65536, not ''");
    refused("a slots=65537", "f:1: slots must be a number from 1 to 65536, not '65537'");
    refused("a slots=99999999999999999999", "f:1: slots must be a number from 1 to 65536, not '99999999999999999999'");
    refused("a slots=-1", "f:1: slots must be a number from 1 to 65536, not '-1'");
    refused("a slots=3x", "f:1: slots must be a number from 1 to 65536, not '3x'");
    refused("a slots=3 slots=3", "f:1: slots= stands twice");
    refused("a cluster=b cluster=b", "f:1: cluster= stands twice");
    refused("a slot=3", "f:1: unknown word 'slot=3' (slots=N and cluster=PATH are known)");
    refused("a b", "f:1: unknown word 'b' (slots=N and cluster=PATH are known)");
    refused("a\n\nslots=3", "f:3: the line must begin with a host name, not 'slots=3'");
    refused("-oProxyCommand", "f:1: a host name cannot begin with '-': '-oProxyCommand'");
    refused("a;reboot", "f:1: not a host name: 'a;reboot'");
    refused("$(id)", "f:1: not a host name: '$(id)'");
    refused("h\xc3\xb6st", "f:1: not a host name: 'h??st'");
    refused("a cluster=", "f:1: not a path of cluster names: ''");
    refused("a cluster=/b", "f:1: not a path of cluster names: '/b'");
    refused("a cluster=b/", "f:1: not a path of cluster names: 'b/'");
    refused("a cluster=b//c", "f:1: not a path of cluster names: 'b//c'");
    refused("a cluster=b,c", "f:1: not a path of cluster names: 'b,c'");
    refused("a slots=65536\nb", "f:2: more than 65536 slots in all");
    refused_bytes("a\0b", 3, "f:1: not a host name: 'a?b'");
    refused_bytes("a cluster=b\0", 12, "f:1: not a path of cluster names: 'b?'");
    refused("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx!",
            "f:1: not a host name: 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...'");
}

static void test_lengths(void **state)
{
    (void)state;
    char text[600], expected[2][GCRUN_TEXT];
    snprintf(expected[0], GCRUN_TEXT, "f:1: host name longer than 255 bytes");
    snprintf(expected[1], GCRUN_TEXT, "f:1: cluster path longer than 127 bytes");
    for (int extra = 0; extra < 2; extra++) {
        gcrun_host host = { .slots = 1 };
        size_t bytes = GCRUN_NAME_MAX - 1 + (size_t)extra;
        memset(text, 'a', bytes);
        text[bytes] = 0;
        if (!extra) memcpy(host.name, text, bytes + 1);
        if (extra) refused(text, expected[0]);
        else hosts_are(text, 1, &host);

        bytes = GCRUN_CLUSTER_MAX - 1 + (size_t)extra;
        host = (gcrun_host){ .name = "h", .slots = 1 };
        strcpy(text, "h cluster=");
        memset(text + 10, 'c', bytes);
        text[10 + bytes] = 0;
        if (!extra) memcpy(host.cluster, text + 10, bytes + 1);
        if (extra) refused(text, expected[1]);
        else hosts_are(text, 1, &host);
    }
}

static void test_queue(void **state)
{
    (void)state;
    gcrun_queue q = { NULL, 0, 0, 0 };
    unsigned char next_in = 0, next_out = 0;
    for (int round = 0; round < 4000; round++) {    /* moves, grows and empties */
        unsigned char data[97];
        size_t put = (size_t)(round * 31 % 97), drop;
        for (size_t i = 0; i < put; i++) data[i] = next_in++;
        gcrun_queue_put(&q, data, put);
        drop = (size_t)(round * 53 % 101);
        if (round % 500 == 499 || drop > gcrun_queue_bytes(&q)) drop = gcrun_queue_bytes(&q);
        for (size_t i = 0; i < drop; i++) assert_int_equal(q.data[q.start + i], next_out++);
        gcrun_queue_drop(&q, drop);
    }
    assert_true(q.room < 65536);
    gcrun_queue_free(&q);
}

static void test_frames(void **state)
{
    (void)state;
    gcrun_queue q = { NULL, 0, 0, 0 }, part = { NULL, 0, 0, 0 };
    gcrun_frame frame;
    size_t bytes = 0;
    uint32_t number = 0;
    gcrun_exit how = { 4711, 137, GCRUN_BY_SIGNAL }, back;
    gcrun_frame_put_number(&q, GCRUN_ACK, 0xfedcba98u, 0x01020304u);
    gcrun_exit_put(&q, 12, &how);
    for (size_t n = 0; n < 16; n++) {               /* every beginning of it is "not complete yet" */
        assert_int_equal(gcrun_frame_get(&part, &frame, &bytes), 0);
        gcrun_queue_put(&part, q.data + n, 1);
    }
    assert_int_equal(gcrun_frame_get(&part, &frame, &bytes), 1);
    assert_int_equal(bytes, 16);
    assert_int_equal(frame.type, GCRUN_ACK);
    assert_int_equal(frame.id, 0xfedcba98u);
    assert_true(gcrun_frame_number(&frame, &number));
    assert_int_equal(number, 0x01020304u);
    assert_false(gcrun_exit_get(&frame, &back));
    gcrun_queue_drop(&q, bytes);
    assert_int_equal(gcrun_frame_get(&q, &frame, &bytes), 1);
    assert_int_equal(frame.id, 12);
    assert_true(gcrun_exit_get(&frame, &back));
    assert_memory_equal(&back, &how, sizeof how);
    gcrun_queue_free(&q);
    gcrun_queue_free(&part);
}

static void test_bad_frames(void **state)
{
    (void)state;
    static const unsigned char bad[][GCRUN_FRAME_HEADER] = {
        { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }, { 0, 0, 0, GCRUN_FRAME_TYPES, 0, 0, 0, 0, 0, 0, 0, 0 },
        { 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0 }, { 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 1 }, { 0, 0, 0, 1, 0, 0, 0, 0, 255, 255, 255, 255 } };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        gcrun_queue q = { NULL, 0, 0, 0 };
        gcrun_frame frame;
        size_t bytes;
        gcrun_queue_put(&q, bad[i], sizeof bad[i]);
        assert_int_equal(gcrun_frame_get(&q, &frame, &bytes), -1);
        gcrun_queue_free(&q);
    }
}

/* Takes the JOB frames apart; the caller frees. */
static size_t job_text(const gcrun_job *job, char **text)
{
    gcrun_queue frames = { NULL, 0, 0, 0 }, all = { NULL, 0, 0, 0 };
    gcrun_frame frame = { .id = 0 };
    size_t bytes;
    gcrun_job_put(&frames, job);
    while (gcrun_frame_get(&frames, &frame, &bytes) == 1) {
        assert_int_equal(frame.type, GCRUN_JOB);
        gcrun_queue_put(&all, frame.payload, frame.length);
        gcrun_queue_drop(&frames, bytes);
        assert_int_equal(frame.id, gcrun_queue_bytes(&frames) == 0);
    }
    gcrun_queue_free(&frames);
    bytes = gcrun_queue_bytes(&all);
    *text = (char *)all.data;
    return bytes;
}

static void test_job(void **state)
{
    (void)state;
    static char big[200000];
    char *args[] = { (char *)"prog", (char *)"", big }, *env[] = { (char *)"A=b c", (char *)"B=" }, *text;
    gcrun_job job = { .first = 3, .count = 4, .size = 9, .prefix = true, .cwd = "/a b", .cluster = "x/y", .arg = args, .args = 3,
                      .env = env, .envs = 2 }, back;
    memset(big, 'z', sizeof big - 1);
    size_t bytes = job_text(&job, &text);
    assert_int_equal(gcrun_job_parse(text, bytes, &back), 0);
    assert_int_equal(back.first, 3);
    assert_int_equal(back.count, 4);
    assert_int_equal(back.size, 9);
    assert_true(back.prefix);
    assert_false(back.local);
    assert_string_equal(back.cwd, "/a b");
    assert_string_equal(back.cluster, "x/y");
    assert_int_equal(back.args, 3);
    for (int i = 0; i < 3; i++) assert_string_equal(back.arg[i], args[i]);
    assert_null(back.arg[3]);
    assert_int_equal(back.envs, 2);
    for (int i = 0; i < 2; i++) assert_string_equal(back.env[i], env[i]);
    gcrun_job_free(&back);
    assert_int_equal(gcrun_job_parse(text, bytes - 1, &back), -1);      /* the last 0 is missing */
    assert_int_equal(gcrun_job_parse(text, 0, &back), -1);
    free(text);
}

static void test_bad_jobs(void **state)
{
    (void)state;
    static const char *const bad[] = { "n0 1 1 1 1", "n-1 1 1 1 1", "n0 2 1 1 1", "n1 1 1 1 1", "n0 0 1 1 1", "n0 1 65537 1 1",
                                       "n0 1 1 1 1 1", "n0 1 1 1", "n", "", "q" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {           /* the first: right, but alone */
        char text[64];
        gcrun_job job;
        size_t bytes = strlen(bad[i]) + 1;
        memcpy(text, bad[i], bytes);
        if (i > 0) {
            memcpy(text + bytes, "w/\0c\0ap", 8);
            bytes += 8;
        }
        assert_int_equal(gcrun_job_parse(text, bytes, &job), -1);
        assert_null(job.arg);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),  cmocka_unit_test(test_many),   cmocka_unit_test(test_refused),
        cmocka_unit_test(test_lengths), cmocka_unit_test(test_queue), cmocka_unit_test(test_frames),
        cmocka_unit_test(test_bad_frames), cmocka_unit_test(test_job), cmocka_unit_test(test_bad_jobs),
    };
    return cmocka_run_group_tests_name("hostfile", tests, NULL, NULL);
}
