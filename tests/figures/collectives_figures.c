/* collectives_figures.c: makes the tables of docs/collectives-figures.md: every collective on the simulated network, beside its
 * lower bound. `make figures` runs it.
 * SPDX-License-Identifier: MIT
 *
 * collectives_figures DIRECTORY [NETWORK]: rewrites, in collectives-figures.md there, what stands between <!-- tables --> and
 * <!-- end -->; with the name of a network that one alone goes to standard output. All comes out the same every time. Each cell
 * has a job of its own, so that cold means cold; as many networks are measured at a time as there are processors.
 */
#define _GNU_SOURCE
#include "tests/sim/bounds.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SHORT = 1, LONG = 65536, REAL_LIMIT_S = 1200, LONG_RANKS = 64, TEXT_MAX = 1 << 18 };

static const bounds_net nets[] = {
    { "two-8", 2, { 8, 8 }, false, false, false },
    { "two-20", 2, { 20, 20 }, false, false, false },
    { "two-32", 2, { 32, 32 }, false, false, false },
    { "two-32-turn", 2, { 32, 32 }, true, false, false },
    { "two-unequal", 2, { 1, 15 }, false, false, false },
    { "two-150", 2, { 150, 150 }, false, false, false },
    { "four-4", 4, { 4, 4, 4, 4 }, false, false, false },
    { "four-4-turn", 4, { 4, 4, 4, 4 }, true, false, false },
    { "four-unequal", 4, { 1, 5, 18, 40 }, false, false, false },
    { "four-unequal-turn", 4, { 40, 18, 5, 1 }, true, false, false },
    { "four-75", 4, { 75, 75, 75, 75 }, false, false, false },
    { "eight-2", 8, { 2, 2, 2, 2, 2, 2, 2, 2 }, false, false, false },
    { "eight-5", 8, { 5, 5, 5, 5, 5, 5, 5, 5 }, false, false, false },
    { "eight-unequal-turn", 8, { 1, 2, 3, 5, 8, 12, 16, 17 }, true, false, false },
    { "eight-300", 8, { 100, 80, 50, 30, 20, 10, 9, 1 }, false, false, false },
    { "sixteen-1", 16, { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 }, false, false, false },
    { "sixteen-4", 16, { 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4 }, false, false, false },
    { "sixteen-4-turn", 16, { 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4 }, true, false, false },
    { "sixteen-300", 16, { 1, 4, 7, 10, 13, 16, 19, 20, 20, 21, 22, 25, 26, 28, 32, 36 }, false, false, false },
    { "two-8-uplinks", 2, { 8, 8 }, false, true, false },
    { "four-4-uplinks", 4, { 4, 4, 4, 4 }, false, true, false },
    { "eight-5-uplinks", 8, { 5, 5, 5, 5, 5, 5, 5, 5 }, false, true, false },
    { "sixteen-4-uplinks", 16, { 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4 }, false, true, false },
};
enum { NETS = sizeof nets / sizeof *nets };

/* Shared with the processes that measure. bound 0: not measured. */
typedef struct results { bounds_cell cell[NETS][BOUNDS_OPS][2]; } results;

typedef struct text { char at[TEXT_MAX]; size_t used; } text;

static void fail(const char *what)
{
    fprintf(stderr, "collectives_figures: %s\n", what);
    exit(1);
}

static void say(text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(t->at + t->used, sizeof t->at - t->used, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof t->at - t->used) {
        fail("a text is too long");
    }
    t->used += (size_t)n;
}

/* ---- measuring ---- */

/* Where every rank has a block of every other, 300 of them would not fit into memory. */
static bool is_measured(const bounds_net *net, enum bounds_op op, int is_long)
{
    bool large = op == BOUNDS_ALLGATHER || op == BOUNDS_ALLGATHERV || op == BOUNDS_ALLTOALL || op == BOUNDS_ALLTOALLV ||
                 op == BOUNDS_REDUCE_SCATTER || op == BOUNDS_REDUCE_SCATTER_BLOCK;
    return !is_long || (op != BOUNDS_BARRIER && (!large || bounds_ranks(net) <= LONG_RANKS));
}

/* What is measured is what the tests prove; here it would only take time. */
static void measure(const bounds_net *of, bounds_cell cells[BOUNDS_OPS][2])
{
    bounds_net quick = *of, *net = &quick;
    quick.unwitnessed = true;
    for (int op = 0; op < BOUNDS_OPS; op++) {
        for (int is_long = 0; is_long < 2; is_long++) {
            bounds_cell c = { .op = (enum bounds_op)op, .bytes = op == BOUNDS_BARRIER ? 0 : is_long ? LONG : SHORT,
                              .root = bounds_rooted((enum bounds_op)op) ? bounds_ranks(net) / 3 : 0 };
            if (is_measured(net, c.op, is_long) && bounds_measure(net, &c, 1, REAL_LIMIT_S) == 0) {
                cells[op][is_long] = c;
            }
        }
    }
}

static void measure_all(results *r)
{
    long at_once = sysconf(_SC_NPROCESSORS_ONLN), running = 0;
    int status = 0;
    for (int i = 0; i < NETS || running > 0;) {
        if (i < NETS && running < at_once) {
            pid_t child = fork();
            if (child == 0) {
                measure(&nets[i], r->cell[i]);
                fprintf(stderr, "%s: measured\n", nets[i].name);
                _exit(0);
            }
            i++;
            running += child > 0;
        } else if (wait(&status) > 0) {
            running--;
            if (status) {
                fail("a process that measures ended badly");
            }
        } else if (errno != EINTR) {
            fail("wait");
        }
    }
}

/* ---- tables ---- */

static double ms(int64_t ns) { return (double)ns / 1e6; }

/* Of a cell that is over its budget: the page explains (h); (?) has no reason yet. */
static char why(const bounds_net *net, const bounds_cell *c)
{
    bool headers = c->bytes == SHORT || c->op == BOUNDS_BARRIER;
    return headers && (double)bounds_warm(c) <= 1.02 * (double)bounds_with_headers(net, c) ? 'h' : '?';
}

static void say_cell(text *t, const bounds_net *net, const bounds_cell *c, bool measured)
{
    if (!measured) {
        say(t, " | | | |");
    } else if (!c->bound) {
        say(t, " failed | | | |");
    } else if (bounds_holds(c)) {
        say(t, " %.3f | %.3f | %.3f | %.1f |", ms(c->bound), ms(bounds_warm(c)), bounds_ratio(c), ms(c->cold));
    } else {
        say(t, " %.3f | %.3f | **%.3f** (%c) | %.1f |", ms(c->bound), ms(bounds_warm(c)), bounds_ratio(c), why(net, c),
            ms(c->cold));
    }
}

static void say_net(text *t, const bounds_net *net, bounds_cell cells[BOUNDS_OPS][2])
{
    say(t, "### %d ranks in %d clusters:", bounds_ranks(net), net->clusters);
    for (int i = 0; i < net->clusters; i++) {
        say(t, "%s%d", i ? " + " : " ", net->ranks[i]);
    }
    say(t, "%s%s\n\n", net->cyclic ? ", ranks in turn" : "", net->uplinks ? ", shared uplinks" : "");
    say(t, "| operation | 1 byte: bound | warm | ratio | cold | 64 KiB: bound | warm | ratio | cold |\n"
           "|---|---|---|---|---|---|---|---|---|\n");
    for (int op = 0; op < BOUNDS_OPS; op++) {
        say(t, "| %s |", bounds_op_name((enum bounds_op)op));
        for (int is_long = 0; is_long < 2; is_long++) {
            say_cell(t, net, &cells[op][is_long], is_measured(net, (enum bounds_op)op, is_long));
        }
        say(t, "\n");
    }
    say(t, "\n");
}

/* The reasons that occur, and for how many cells. */
static void say_reasons(text *t, results *r)
{
    static const struct { char mark; const char *text; } reasons[] = {
        { 'h', "shared uplinks: the headers" }, { '?', "not explained" } };
    for (int i = 0; i < 2; i++) {
        int cells = 0;
        for (int k = 0; k < 2 * NETS * BOUNDS_OPS; k++) {
            const bounds_net *net = &nets[k / 2 / BOUNDS_OPS];
            const bounds_cell *c = &r->cell[k / 2 / BOUNDS_OPS][k / 2 % BOUNDS_OPS][k % 2];
            cells += c->bound && !bounds_holds(c) && why(net, c) == reasons[i].mark;
        }
        if (cells) {
            say(t, "- (%c), %d cell%s: %s\n", reasons[i].mark, cells, cells > 1 ? "s" : "", reasons[i].text);
        }
    }
    say(t, "\n");
}

/* Over all networks: how many cells, how many of them beyond the budget, and the worst. */
static void say_summary(text *t, results *r)
{
    say(t, "| operation | cells | within budget | worst ratio of 1 byte | of 64 KiB |\n|---|---|---|---|---|\n");
    for (int op = 0; op < BOUNDS_OPS; op++) {
        int cells = 0, good = 0;
        double worst[2] = { 0, 0 };
        for (int i = 0; i < 2 * NETS; i++) {
            const bounds_cell *c = &r->cell[i / 2][op][i % 2];
            if (is_measured(&nets[i / 2], (enum bounds_op)op, i % 2)) {
                cells++;
                good += c->bound && bounds_holds(c);
                worst[i % 2] = c->bound && bounds_ratio(c) > worst[i % 2] ? bounds_ratio(c) : worst[i % 2];
            }
        }
        say(t, "| %s | %d | %d | %.3f |", bounds_op_name((enum bounds_op)op), cells, good, worst[0]);
        if (op == BOUNDS_BARRIER) {
            say(t, " |\n");
        } else {
            say(t, " %.3f |\n", worst[1]);
        }
    }
    say(t, "\n");
}

/* ---- the page ---- */

static void page_read(const char *name, text *t)
{
    FILE *f = fopen(name, "r");
    if (!f) {
        fail("collectives-figures.md is not there");
    }
    t->used = fread(t->at, 1, sizeof t->at - 1, f);
    t->at[t->used] = 0;
    fclose(f);
}

static void page_write(const char *name, const text *page, const text *tables)
{
    static const char begin_mark[] = "<!-- tables -->\n";
    const char *begin = strstr(page->at, begin_mark), *end = begin ? strstr(begin, "<!-- end -->") : NULL;
    if (!end) {
        fail("a mark is missing in collectives-figures.md");
    }
    FILE *f = fopen(name, "w");
    int head = (int)(begin - page->at) + (int)sizeof begin_mark - 1;
    if (!f || fprintf(f, "%.*s%s%s", head, page->at, tables->at, end) < 0 || fclose(f)) {
        fail("collectives-figures.md cannot be written");
    }
}

int main(int argc, char **argv)
{
    static text page, tables;
    char name[4096];
    if (argc < 2) {
        fail("say in which directory collectives-figures.md stands");
    }
    results *r = mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (r == MAP_FAILED) {
        fail("out of memory");
    }
    for (int i = 0; i < NETS && argc > 2; i++) {
        if (strcmp(nets[i].name, argv[2]) == 0) {
            measure(&nets[i], r->cell[i]);
            say_net(&tables, &nets[i], r->cell[i]);
        }
    }
    if (argc > 2) {
        fputs(tables.at, stdout);
        return 0;
    }
    snprintf(name, sizeof name, "%s/collectives-figures.md", argv[1]);
    page_read(name, &page);
    measure_all(r);
    say_summary(&tables, r);
    say_reasons(&tables, r);
    for (int i = 0; i < NETS; i++) {
        say_net(&tables, &nets[i], r->cell[i]);
    }
    page_write(name, &page, &tables);
    return 0;
}
