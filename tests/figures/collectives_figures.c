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
#include "page.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SHORT = 1, LONG = 65536, REAL_LIMIT_S = 1200, LONG_RANKS = 64 };

static const bounds_net nets[] = {
    { .name = "two-8", .clusters = 2, .ranks = { 8, 8 } },
    { .name = "two-20", .clusters = 2, .ranks = { 20, 20 } },
    { .name = "two-32", .clusters = 2, .ranks = { 32, 32 } },
    { .name = "two-32-turn", .clusters = 2, .ranks = { 32, 32 }, .cyclic = true },
    { .name = "two-unequal", .clusters = 2, .ranks = { 1, 15 } },
    { .name = "two-150", .clusters = 2, .ranks = { 150, 150 } },
    { .name = "four-4", .clusters = 4, .ranks = { 4, 4, 4, 4 } },
    { .name = "four-4-turn", .clusters = 4, .ranks = { 4, 4, 4, 4 }, .cyclic = true },
    { .name = "four-unequal", .clusters = 4, .ranks = { 1, 5, 18, 40 } },
    { .name = "four-unequal-turn", .clusters = 4, .ranks = { 40, 18, 5, 1 }, .cyclic = true },
    { .name = "four-75", .clusters = 4, .ranks = { 75, 75, 75, 75 } },
    { .name = "eight-2", .clusters = 8, .ranks = { 2, 2, 2, 2, 2, 2, 2, 2 } },
    { .name = "eight-5", .clusters = 8, .ranks = { 5, 5, 5, 5, 5, 5, 5, 5 } },
    { .name = "eight-unequal-turn", .clusters = 8, .ranks = { 1, 2, 3, 5, 8, 12, 16, 17 }, .cyclic = true },
    { .name = "eight-300", .clusters = 8, .ranks = { 100, 80, 50, 30, 20, 10, 9, 1 } },
    { .name = "sixteen-1", .clusters = 16, .ranks = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 } },
    { .name = "sixteen-4", .clusters = 16, .ranks = { 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4 } },
    { .name = "sixteen-4-turn", .clusters = 16, .ranks = { 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4 }, .cyclic = true },
    { .name = "sixteen-300", .clusters = 16, .ranks = { 1, 4, 7, 10, 13, 16, 19, 20, 20, 21, 22, 25, 26, 28, 32, 36 } },
    { .name = "two-8-uplinks", .clusters = 2, .ranks = { 8, 8 }, .uplinks = true },
    { .name = "four-4-uplinks", .clusters = 4, .ranks = { 4, 4, 4, 4 }, .uplinks = true },
    { .name = "eight-5-uplinks", .clusters = 8, .ranks = { 5, 5, 5, 5, 5, 5, 5, 5 }, .uplinks = true },
    { .name = "sixteen-4-uplinks", .clusters = 16, .ranks = { 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4 }, .uplinks = true },
};
enum { NETS = sizeof nets / sizeof *nets };

/* Shared with the processes that measure. bound 0: not measured. */
typedef struct results { bounds_cell cell[NETS][BOUNDS_OPS][2]; } results;

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

int main(int argc, char **argv)
{
    static text page, tables;
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
    file_read(argv[1], "collectives-figures.md", &page);
    measure_all(r);
    say_summary(&tables, r);
    say_reasons(&tables, r);
    for (int i = 0; i < NETS; i++) {
        say_net(&tables, &nets[i], r->cell[i]);
    }
    part_replace(&page, "tables", &tables);
    file_write(argv[1], "collectives-figures.md", &page);
    return 0;
}
