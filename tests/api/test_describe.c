/* test_describe.c: what gc_describe says of jobs whose shape is known, and that its pictures are Graphviz.
 * SPDX-License-Identifier: MIT
 */
#include "tests/gct.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

enum { TEXT = 1 << 16, RANKS = 6, TRIES = 10000, PATIENCE_S = 30 };

static const char *const subjects[] = { "links", "routes", "waits", "clusters", "addresses", "collectives" };

static void relayed(gc_options *o, int rank, void *arg)
{
    (void)rank, (void)arg;
    o->direct = 0;
}

/* A small message between every two ranks. */
static int exchange(gc_comm *world, int rank, int size)
{
    for (int step = 1; step < size; step++) {
        int got = -1, to = (rank + step) % size, from = (rank + size - step) % size;
        gct_ok(gc_sendrecv(world, &rank, sizeof rank, to, 0, &got, sizeof got, from, 0, NULL));
        gct_require(got == from, "%d from %d", got, from);
    }
    return 0;
}

static int count(const char *text, const char *part)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at += strlen(part))
        n++;
    return n;
}

/* One statement of Graphviz' language: a node, an edge, a box that begins or ends. */
static bool statement(const char *line)
{
    size_t n = strlen(line);
    bool quoted = false;
    if (n == 0 || strcmp(line, "}") == 0)
        return n > 0;
    for (size_t i = 0; i < n; i++) {
        if (line[i] == '\\' && quoted && i + 1 < n)
            i++;
        else if (line[i] == '"')
            quoted = !quoted;
        else if (!quoted && !strchr("{}[]=-> ;,_abcdefghijklmnopqrstuvwxyz0123456789", line[i]))
            return false;
    }
    return !quoted && (line[n - 1] == ';' || line[n - 1] == '{');
}

/* Boxes that a line begins, less those that it ends. */
static int boxes(const char *line)
{
    int n = 0;
    bool quoted = false;
    for (; *line; line++) {
        if (*line == '\\' && quoted && line[1])
            line++;
        else if (*line == '"')
            quoted = !quoted;
        else if (!quoted)
            n += (*line == '{') - (*line == '}');
    }
    return n;
}

static int check_dot(const char *what, char *text)
{
    int depth = 0, lines = 0;
    for (char *end; (end = strchr(text, '\n')) != NULL; text = end + 1, lines++) {
        char *line = text + strspn(text, " ");
        *end = '\0';
        gct_require(statement(line), "%s: '%s'", what, line);
        gct_require(lines > 0 || strstr(line, what), "%s begins with '%s'", what, line);
        gct_require(lines == 0 || depth > 0, "%s: '%s' behind the end", what, line);
        depth += boxes(line);
    }
    gct_require(depth == 0 && lines >= 2 && *text == '\0', "%s: %d boxes are open after %d lines", what, depth, lines);
    return 0;
}

/* One look: the whole text fits exactly into what is said to be needed, and is cut to any less. *moved: the next look saw
 * something else, so nothing can be said. */
static int look(gc_comm *world, const char *what, const char *form, bool *moved)
{
    size_t needed = 0, again = 0;
    gct_ok(gc_describe(world, what, form, NULL, 0, &needed));
    char *text = gct_buffer(needed), *cut = gct_buffer(needed);
    int bad = 0;
    *moved = false;
    gct_ok(gc_describe(world, what, form, text, needed, &again));
    *moved = again != needed;
    for (size_t room = 1; room < needed && !*moved && !bad; room += 1 + needed / 7) {
        memset(cut, 'x', needed);
        gct_ok(gc_describe(world, what, form, cut, room, &again));
        if (again != needed || memcmp(cut, text, room - 1) != 0)
            *moved = true;
        else if (strlen(cut) != room - 1 || cut[room] != 'x')
            bad = gct_fail(__FILE__, __LINE__, what, "cut to %zu: %zu", room, strlen(cut));
    }
    if (!*moved && strlen(text) != needed - 1)
        bad += gct_fail(__FILE__, __LINE__, what, "%zu needed for %zu", needed, strlen(text));
    if (!*moved && strcmp(form, "dot") == 0)
        bad += check_dot(what, text);
    return bad + gct_buffer_free(text) + gct_buffer_free(cut);
}

/* The last packets of others may still come and change what is told. */
static int check_room(gc_comm *world, const char *what, const char *form)
{
    bool moved = true;
    int bad = 0;
    for (int i = 0; i < TRIES && moved && !bad; i++) {
        gc_progress(world);
        bad = look(world, what, form, &moved);
    }
    gct_require(!moved, "%s: not the same for two looks in %d tries", what, TRIES);
    return bad;
}

static int ask(gc_comm *world, const char *what, char text[TEXT])
{
    gct_ok(gc_describe(world, what, "text", text, TEXT, NULL));
    return 0;
}

static int wrong_arguments(gc_comm *world)
{
    char text[8];
    gct_require(gc_describe(NULL, "links", "text", text, 8, NULL) == GC_ERR_ARG, "no world");
    gct_require(gc_describe(world, NULL, "text", text, 8, NULL) == GC_ERR_ARG, "no subject");
    gct_require(gc_describe(world, "links", NULL, text, 8, NULL) == GC_ERR_ARG, "no form");
    gct_require(gc_describe(world, "links", "text", NULL, 8, NULL) == GC_ERR_ARG, "no text");
    gct_require(gc_describe(world, "link", "text", text, 8, NULL) == GC_ERR_ARG, "a subject that is none");
    gct_require(gc_describe(world, "links", "svg", text, 8, NULL) == GC_ERR_ARG, "a form that is none");
    gct_require(gc_describe(world, "addresses", "svg", text, 8, NULL) == GC_ERR_ARG, "a form that is none, of addresses");
    return 0;
}

static int forms(gc_comm *world, int rank, int size, void *arg)
{
    (void)arg;
    int bad = exchange(world, rank, size) + wrong_arguments(world);
    gct_ok(gc_barrier(world));
    for (size_t i = 0; i < sizeof subjects / sizeof subjects[0]; i++)
        bad += check_room(world, subjects[i], "text") + check_room(world, subjects[i], "dot");
    return bad;
}

static int links_direct(gc_comm *world, int rank, int size, void *arg)
{
    char text[TEXT], line[64];
    (void)arg;
    int bad = exchange(world, rank, size);
    snprintf(line, sizeof line, "rank %d: direct link to ", rank);
    time_t until = time(NULL) + PATIENCE_S;
    do {                                /* on a busy machine the first messages may have gone over relays */
        gc_progress(world);
        bad += ask(world, "links", text);
    } while (!bad && count(text, line) < size - 1 && time(NULL) < until);
    gct_require(count(text, line) == size - 1, "%s", text);
    gct_require(count(text, "backbone: ") >= size - 1, "%s", text);
    bad += ask(world, "routes", text);
    gct_require(count(text, ", direct (routed it would be 1 hop)") == size - 1 && strstr(text, "routing updown-dfs"), "%s", text);
    return bad;
}

static int links_relayed(gc_comm *world, int rank, int size, void *arg)
{
    char text[TEXT];
    (void)arg;
    int bad = exchange(world, rank, size) + ask(world, "links", text);
    gct_require(count(text, "direct link") == 0 && count(text, "backbone link") >= 1, "%s", text);
    bad += ask(world, "routes", text);
    gct_require(count(text, ", routed: 1 hop\n") == size - 1 && strstr(text, "routes pass over nobody\n"), "%s", text);
    gct_require(count(text, "no route") == 0, "%s", text);
    return bad;
}

/* What waits is told with its peer, tag and size, and no longer once it is over. */
static int waits(gc_comm *world, int rank, int size, void *arg)
{
    char text[TEXT], line[96];
    uint8_t *buf = gct_buffer(300000);
    gc_request *r = NULL;
    int peer = rank ^ 1;
    (void)arg, (void)size;
    gct_ok(gc_barrier(world));
    if (rank % 2 == 0) {
        gct_ok(gc_irecv(world, buf, 1000, peer, 77, &r));
        snprintf(line, sizeof line, "rank %d: receive, tag 77, 1000 bytes, rank %d: no message yet\n", rank, peer);
    } else {
        gct_ok(gc_isend(world, buf, 300000, peer, 78, &r));
        snprintf(line, sizeof line, "rank %d: send, tag 78, 300000 bytes, rank %d: ", rank, peer);
    }
    int bad = ask(world, "waits", text);
    gct_require(strstr(text, line), "no '%s' in '%s'", line, text);
    gct_ok(gc_barrier(world));
    if (rank % 2 == 0) {
        gct_ok(gc_recv(world, buf, 300000, peer, 78, NULL));
        gct_ok(gc_wait(&r, NULL));
    } else {
        gct_ok(gc_wait(&r, NULL));
        gct_ok(gc_send(world, buf, 1000, peer, 77));
    }
    bad += ask(world, "waits", text);
    gct_require(!strstr(text, "tag 7"), "%s", text);
    return bad + gct_buffer_free(buf);
}

static int clusters(gc_comm *world, int rank, int size, void *arg)
{
    char text[TEXT];
    (void)rank, (void)arg;
    int bad = ask(world, "clusters", text);
    gct_require(strstr(text, "the job: 6 ranks\n"), "%s", text);
    if (size == RANKS)
        gct_require(strstr(text, "  a: 3 ranks\n") && strstr(text, "  b: 3 ranks\n"), "%s", text);
    return bad;
}

/* How many hosts the job has. */
static int hosts(gc_comm *world, int size)
{
    int n = 0;
    for (int rank = 0; rank < size; rank++) {
        int k = 0;
        while (strcmp(gc_host(world, k), gc_host(world, rank)) != 0)
            k++;
        n += k == rank;
    }
    return n;
}

/* Every host is told of with its place, and this one with every other. */
static int addresses(gc_comm *world, int rank, int size, void *arg)
{
    char text[TEXT];
    int n = hosts(world, size);
    (void)rank, (void)arg;
    int bad = ask(world, "addresses", text);
    gct_require(count(text, ": unknown site") + count(text, ": site ") == n, "%d hosts: %s", n, text);
    gct_require(count(text, ": among themselves over unix, 127.0.0.1, ::1\n") == (n < size), "%s", text);
    gct_require(count(text, "link eth0 - eth0, ") == (n > 1 ? n - 1 : 0), "%s", text);
    for (const char *line = text; *line; line = strchr(line, '\n') + 1)
        gct_require(strncmp(line, "rank", 4) == 0, "%s", line);
    return bad;
}

static void test_forms(void **state)
{
    (void)state;
    assert_int_equal(0, gct_job(&(gct_spec){ .ranks = 4 }, forms, NULL));
    assert_int_equal(0, gct_job(&(gct_spec){ .ranks = 1 }, forms, NULL));
    assert_int_equal(0, gct_job(&(gct_spec){ .ranks = 5, .options = relayed }, forms, NULL));
}

static void test_links(void **state)
{
    (void)state;
    assert_int_equal(0, gct_job(&(gct_spec){ .ranks = RANKS, .options = relayed }, links_relayed, NULL));
    const char *direct = getenv("GRIDCOMM_DIRECT");
    if (!direct || strcmp(direct, "0") != 0)
        assert_int_equal(0, gct_job(&(gct_spec){ .ranks = RANKS }, links_direct, NULL));
}

static void test_waits(void **state)
{
    (void)state;
    assert_int_equal(0, gct_job(&(gct_spec){ .ranks = 4 }, waits, NULL));
    assert_int_equal(0, gct_job(&(gct_spec){ .ranks = 4, .options = relayed }, waits, NULL));
}

static void test_clusters(void **state)
{
    (void)state;
    assert_int_equal(0, gct_job(&(gct_spec){ .ranks = RANKS, .sites = 2 }, clusters, NULL));
}

static void chained(gc_options *o, int rank, void *arg)
{
    (void)rank, (void)arg;
    o->algo = "bcast:chain@4096";
}

/* What is said is what runs: an override, then the rules for these hosts and sites. */
static int collectives(gc_comm *world, int rank, int size, void *arg)
{
    (void)rank, (void)size;
    char text[TEXT];
    const char *const *wanted = arg;
    int bad = ask(world, "collectives", text);
    gct_require(count(text, "\n") == 11, "%d lines: %s", count(text, "\n"), text);
    for (; *wanted; wanted++)
        gct_require(count(text, *wanted) == 1, "%s in %s", *wanted, text);
    return bad;
}

static void test_collectives(void **state)
{
    (void)state;
    static const char *alone[] = { "\nscatter         binomial to 1024 bytes; flat\n", NULL };
    static const char *apart[] = { "\nbcast           chain by GRIDCOMM_ALGO; wide in segments; knomial:8", "barrier         wide", NULL };
    assert_int_equal(0, gct_job(&(gct_spec){ .ranks = RANKS }, collectives, alone));
    assert_int_equal(0, gct_job(&(gct_spec){ .ranks = RANKS, .sites = 2, .options = chained }, collectives, apart));
}

static void test_addresses(void **state)
{
    (void)state;
    assert_int_equal(0, gct_job(&(gct_spec){ .ranks = RANKS }, addresses, NULL));
    assert_int_equal(0, gct_job(&(gct_spec){ .ranks = RANKS, .ranks_per_host = 4 }, addresses, NULL));
    assert_int_equal(0, gct_job(&(gct_spec){ .ranks = 1 }, addresses, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_forms), cmocka_unit_test(test_links), cmocka_unit_test(test_waits),
                                        cmocka_unit_test(test_clusters), cmocka_unit_test(test_addresses),
                                        cmocka_unit_test(test_collectives) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
