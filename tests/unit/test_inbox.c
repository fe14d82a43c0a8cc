/* test_inbox.c: whatever memory does, no connection is lost or closed twice, and no loss goes untold.
 * SPDX-License-Identifier: MIT
 *
 * GCT_SEED replays the random part; GCT_ROUNDS says how many sequences it draws, in fifties.
 */
#include "gridcomm_int.h"
#include "tests/unit/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>

enum { ROUNDS = 5000, RANKS = 5, FDS_MAX = 256, FD = 1000, CODE = 8 };

static bool fails;                      /* every second allocation, at random */
static int closed[FDS_MAX], handed[FDS_MAX], fds;
static gci_sys sys;
static gci_env env;
static gci_edge edges[RANKS] = { { .a = 0, .b = 1 }, { .a = 0, .b = 4 }, { .a = 1, .b = 2 }, { .a = 2, .b = 3 },
                                 { .a = 3, .b = 4 } };
static gci_graph ring = { .nodes = RANKS, .edges = RANKS, .edge = edges };

static void *may_fail(void *user, void *old, size_t bytes)
{
    (void)user;
    if (bytes == 0) {
        free(old);
        return NULL;
    }
    return fails && below(2) ? NULL : realloc(old, bytes);
}

static void note_close(gci_sys *s, int fd)
{
    (void)s;
    assert_in_range(fd, FD, FD + fds - 1);
    closed[fd - FD]++;
}

/* What has been put, as far as it must come out; and what has come out. */
typedef struct account {
    uint32_t links[RANKS][GCI_LINK_KINDS];
    int      last_fd[RANKS][GCI_LINK_KINDS], refused[RANKS][GCI_LINK_KINDS];
    enum gci_news_kind loss[RANKS];
    bool     down[RANKS];               /* by edge */
    bool     aborts, grown, given_up[RANKS];
    uint16_t epoch;
} account;

static gci_news draw(uint16_t *epoch)
{
    static const enum gci_news_kind kinds[] = { GCI_NEWS_LINK, GCI_NEWS_LINK, GCI_NEWS_LINK, GCI_NEWS_NO_LINK, GCI_NEWS_DEAD,
                                                GCI_NEWS_LEFT, GCI_NEWS_DOWN, GCI_NEWS_UP, GCI_NEWS_EPOCH, GCI_NEWS_NOTICE };
    gci_news news = { .kind = kinds[below((int)GCI_COUNT(kinds))], .rank = below(RANKS), .fd = -1, .text = "a text" };
    news.purpose = below(2) ? GCI_PURPOSE_BACKBONE : GCI_PURPOSE_DATA;
    switch (news.kind) {
    case GCI_NEWS_LINK:
        news.fd = FD + fds++;
        news.id = (uint32_t)news.fd;
        break;
    case GCI_NEWS_NO_LINK:
        news.code = GC_ERR_UNREACHABLE;
        break;
    case GCI_NEWS_NOTICE:
        news.notice.kind = (uint32_t)(GCI_NOTICE_ABORT + below(GCI_NOTICE_STALL));
        news.notice.origin = (uint32_t)news.rank;
        if (news.notice.kind == GCI_NOTICE_LOST) {
            news.notice.word[0] = (uint32_t)below(RANKS);
            news.notice.word[1] = CODE;
        }
        break;
    case GCI_NEWS_EPOCH:
        news.rank = -1;
        news.epoch = ++*epoch;
        break;
    default:
        news.other = (news.rank + 1) % RANKS;
        news.epoch = ++*epoch;
    }
    return news;
}

static void count(account *a, const gci_news *news)
{
    int kind = gci_news_link_kind(news);
    switch (news->kind) {
    case GCI_NEWS_LINK:
        a->links[news->rank][kind] += news->links;
        a->last_fd[news->rank][kind] = news->fd;
        a->refused[news->rank][kind] = 0;
        return;
    case GCI_NEWS_NO_LINK:
        a->refused[news->rank][kind] = news->code;
        return;
    case GCI_NEWS_NOTICE:
        assert_int_equal(news->rank, (int)news->notice.origin);
        a->aborts |= news->notice.kind == GCI_NOTICE_ABORT;
        if (news->notice.kind == GCI_NOTICE_LOST) {
            assert_int_equal(news->notice.word[1], CODE);
            a->given_up[news->notice.word[0]] = true;
        }
        return;
    case GCI_NEWS_DEAD:
    case GCI_NEWS_LEFT:
        a->loss[news->rank] = news->kind;
        break;
    case GCI_NEWS_DOWN:
        a->down[gci_graph_find(&ring, news->rank, news->other)] = true;
        break;
    case GCI_NEWS_UP:
        a->grown = true;
        break;
    case GCI_NEWS_EPOCH:
        break;
    }
    a->epoch = news->epoch;
}

static void take(gci_inbox *in, account *a, int most)
{
    gci_news news;
    while (most-- > 0 && gci_inbox_take(in, &news)) {
        assert_true(news.links >= 1);
        count(a, &news);
        if (news.kind == GCI_NEWS_LINK) {
            assert_int_equal((int)news.id, news.fd);
            handed[news.fd - FD]++;
        }
    }
}

static void open_it(gci_inbox *in)
{
    memset(closed, 0, sizeof closed);
    memset(handed, 0, sizeof handed);
    fds = 0;
    assert_int_equal(gci_inbox_open(in, &env, RANKS), GC_OK);
    assert_int_equal(gci_inbox_graph(in, &ring), GC_OK);
}

/* Memory fails now and then: what comes out amounts to what went in. */
static void test_amounts(void **state)
{
    (void)state;
    const char *rounds = getenv("GCT_ROUNDS");
    for (int round = rounds ? atoi(rounds) * (ROUNDS / 100) : ROUNDS; round > 0; round--) {
        gci_inbox in;
        account put = { .epoch = 0 }, taken = { .epoch = 0 };
        uint16_t epoch = 0;
        open_it(&in);
        for (int i = below(60); i > 0; i--) {
            gci_news news = draw(&epoch);
            fails = below(3) > 0;
            gci_inbox_put(&in, &news);
            fails = false;
            news.links = 1;
            count(&put, &news);
            if (below(6) == 0)
                take(&in, &taken, below(8));
        }
        take(&in, &taken, 1000);
        assert_memory_equal(put.links, taken.links, sizeof put.links);
        assert_memory_equal(put.last_fd, taken.last_fd, sizeof put.last_fd);
        assert_memory_equal(put.loss, taken.loss, sizeof put.loss);
        assert_memory_equal(put.down, taken.down, sizeof put.down);
        assert_int_equal(put.aborts, taken.aborts);
        assert_int_equal(put.grown, taken.grown);
        assert_memory_equal(put.given_up, taken.given_up, sizeof put.given_up);
        assert_int_equal(put.epoch, taken.epoch);
        for (int i = 0; i < RANKS * GCI_LINK_KINDS; i++) {
            int last = put.refused[i / GCI_LINK_KINDS][i % GCI_LINK_KINDS];
            assert_true(last == 0 || taken.refused[i / GCI_LINK_KINDS][i % GCI_LINK_KINDS] == last);
        }
        gci_inbox_close(&in);
        for (int i = 0; i < fds; i++)
            assert_int_equal(closed[i] + handed[i], 1);
    }
}

/* With memory enough, all comes as it was put. */
static void test_order(void **state)
{
    (void)state;
    gci_inbox in;
    gci_news put[60], news;
    uint16_t epoch = 0;
    open_it(&in);
    assert_false(gci_inbox_take(&in, &news));
    for (int i = 0; i < (int)GCI_COUNT(put); i++) {
        put[i] = draw(&epoch);
        gci_inbox_put(&in, &put[i]);
    }
    for (int i = 0; i < (int)GCI_COUNT(put); i++) {
        assert_true(gci_inbox_take(&in, &news));
        assert_int_equal(news.links, 1);
        news.links = put[i].links;
        assert_memory_equal(&news, &put[i], sizeof news);
    }
    assert_false(gci_inbox_take(&in, &news));
    gci_inbox_close(&in);
}

/* Connections that nobody takes are closed, those without memory too. */
static void test_close(void **state)
{
    (void)state;
    for (int failing = 0; failing < 2; failing++) {
        gci_inbox in;
        uint16_t epoch = 0;
        open_it(&in);
        for (int i = 0; i < 100; i++) {
            gci_news news = draw(&epoch);
            fails = failing;
            gci_inbox_put(&in, &news);
        }
        fails = false;
        gci_inbox_close(&in);
        for (int i = 0; i < fds; i++)
            assert_int_equal(closed[i], 1);
    }
}

/* Nobody looks, and notices come without end: they take no more memory than the list may have, and what must not be lost is not. */
static void test_without_end(void **state)
{
    gci_inbox in;
    gci_news news = { .kind = GCI_NEWS_NOTICE, .rank = 1, .fd = -1, .notice = { .kind = GCI_NOTICE_MISMATCH, .origin = 1 } };
    gci_news loss = { .kind = GCI_NEWS_DEAD, .rank = 2, .fd = -1, .epoch = 1 };
    int dead = 0, taken = 0;
    (void)state;
    fails = false;
    assert_int_equal(gci_inbox_open(&in, &env, RANKS), GC_OK);
    for (int i = 0; i < 100000; i++)
        gci_inbox_put(&in, &news);
    gci_inbox_put(&in, &loss);
    assert_true(atomic_load(&env.memory) < 1 << 20);
    for (; gci_inbox_take(&in, &news); taken++)
        dead += news.kind == GCI_NEWS_DEAD && news.rank == 2;
    assert_int_equal(dead, 1);
    assert_in_range(taken, 500, 1000);
    gci_inbox_put(&in, &loss);          /* there is room again */
    assert_true(gci_inbox_take(&in, &news) && news.kind == GCI_NEWS_DEAD);
    gci_inbox_close(&in);
    assert_int_equal(atomic_load(&env.memory), 0);
}

int main(void)
{
    static gc_options options = { .alloc = may_fail };
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_amounts), cmocka_unit_test(test_order),
                                        cmocka_unit_test(test_close), cmocka_unit_test(test_without_end) };
    seed_random();
    sys = *gci_sys_real();
    sys.close = note_close;
    gci_env_init(&env, &sys, &options);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
