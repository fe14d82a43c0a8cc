/* overlay_figures.c: makes the tables and plots of docs/overlay-figures.md (Hironaka 2009, 5.2.2). `make figures` runs it.
 * SPDX-License-Identifier: MIT
 *
 * overlay_figures DIRECTORY: rewrites, in overlay-figures.md there, what stands between <!-- NAME --> and <!-- end -->, and
 * the plots. All but the times comes out the same every time.
 */
#include "../unit/overlay_world.h"
#include "page.h"

#include <math.h>
#include <time.h>

static const double densities[] = { 0.01, 0.015, 0.02, 0.03, 0, 0.05, 0.065, 0.08, 0.1, 0.15, 0.2 };    /* 0: the default */
enum { DENSITIES = GCI_COUNT(densities), SEEDS = 3, JUDGED_SEEDS = 10, TIMED_NODES = 103 };
static const double judged_density = 0.08;

static gci_env env;

static void must(int err)
{
    if (err < 0)
        fail(err == GC_ERR_UNREACHABLE ? "a pair has no route" : "out of memory");
}

/* ---- measuring ---------------------------------------------------------------------------------------------------- */

static void measure(const world *w, double density, uint64_t seed, enum world_costs costs, enum gci_routing routing,
                    overlay_figures *f)
{
    gci_graph g;
    must(world_backbone(&env, w, density, seed, &g));
    world_costs(w, costs, &g);
    must(world_measure(&env, w, &g, routing, f));
    gci_graph_free(&env, &g);
}

/* Over some seeds: means of what is a mean, the worst of what is an extreme. */
static void measure_seeds(const world *w, double density, enum world_costs costs, enum gci_routing routing, int seeds,
                          overlay_figures *sum)
{
    *sum = (overlay_figures){ .ratio_least = 1 };
    for (int seed = 1; seed <= seeds; seed++) {
        overlay_figures f;
        measure(w, density, (uint64_t)seed, costs, routing, &f);
        sum->density += f.density / seeds;
        sum->hops_mean += f.hops_mean / seeds;
        sum->ratio_mean += f.ratio_mean / seeds;
        sum->two_sites += f.two_sites / seeds;
        sum->left += f.left;
        sum->hops_most = f.hops_most > sum->hops_most ? f.hops_most : sum->hops_most;
        sum->inside_hops_most = f.inside_hops_most > sum->inside_hops_most ? f.inside_hops_most : sum->inside_hops_most;
        sum->ratio_least = fmin(sum->ratio_least, f.ratio_least);
        sum->between_median += f.between_median / seeds;
        sum->between_p95 += f.between_p95 / seeds;
        sum->between_most = fmax(sum->between_most, f.between_most);
        sum->inside_median += f.inside_median / seeds;
        sum->inside_p95 += f.inside_p95 / seeds;
        sum->inside_most = fmax(sum->inside_most, f.inside_most);
    }
}

/* Of this thread: whatever else the machine does. */
static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int ascending(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

typedef struct times { double number, median, most; } times;

static times time_tables(const world *w, double density, enum gci_routing routing)
{
    gci_graph g;
    gci_numbering nb;
    double ms[TIMED_NODES];
    must(world_backbone(&env, w, density, 1, &g));
    world_costs(w, COSTS_TIERS, &g);
    double start = now_ms();
    must(gci_number(&env, &g, &w->topo, routing, &nb));
    times t = { .number = now_ms() - start };
    for (int i = 0; i < TIMED_NODES; i++) {
        gci_routes r;
        start = now_ms();
        must(gci_routes_make(&env, &g, &w->topo, &nb, i * WORLD_NODES / TIMED_NODES, &r));
        ms[i] = now_ms() - start;
        gci_routes_free(&env, &r);
    }
    qsort(ms, TIMED_NODES, sizeof *ms, ascending);
    t.median = ms[TIMED_NODES / 2];
    t.most = ms[TIMED_NODES - 1];
    gci_numbering_free(&env, &nb);
    gci_graph_free(&env, &g);
    return t;
}

/* ---- plots -------------------------------------------------------------------------------------------------------- */

enum { WIDTH = 640, HEIGHT = 400, LEFT = 60, RIGHT = 20, TOP = 40, BOTTOM = 50, TICKS_MAX = 12 };

typedef struct plot {
    const char *file, *title, *axis;
    double low, high;           /* of the y axis, logarithmic */
    double tick[TICKS_MAX];     /* ends with 0 */
    double (*value)(const overlay_figures *);
} plot;

static double hops_mean(const overlay_figures *f) { return f->hops_mean; }
static double hops_most(const overlay_figures *f) { return f->hops_most; }
static double ratio_least(const overlay_figures *f) { return f->ratio_least; }
static double between_p95(const overlay_figures *f) { return f->between_p95; }

static const plot plots[] = {
    { "overlay-hops.svg", "Average path length", "hops", 1, 16, { 1, 2, 3, 4, 6, 8, 12, 16 }, hops_mean },
    { "overlay-longest.svg", "Longest path", "hops", 2, 64, { 2, 3, 4, 6, 8, 16, 32, 64 }, hops_most },
    { "overlay-bandwidth.svg", "Least bandwidth ratio to the direct path", "ratio", 0.08, 1.2, { 0.1, 0.2, 0.3, 0.5, 0.7, 1 },
      ratio_least },
    { "overlay-latency.svg", "Latency stretch between clusters, 95th percentile", "stretch", 1, 10,
      { 1, 1.2, 1.5, 2, 3, 5, 7, 10 }, between_p95 },
};

static const char *const colours[GCI_ROUTINGS] = { "#0b5fa5", "#d97706", "#b91c1c", "#6b7280" };
static const char *const dashes[GCI_ROUTINGS] = { "none", "7 4", "2 3", "10 3 2 3" };

static double along(double value, double low, double high, double from, double to)
{
    return from + (to - from) * (log(value) - log(low)) / (log(high) - log(low));
}

static double x_of(double density) { return along(density, 0.009, 0.22, LEFT, WIDTH - RIGHT); }
static double y_of(const plot *p, double value)
{
    return along(fmin(fmax(value, p->low), p->high), p->low, p->high, HEIGHT - BOTTOM, TOP);
}

static void plot_frame(text *t, const plot *p)
{
    static const double xs[] = { 0.01, 0.02, 0.03, 0.05, 0.08, 0.1, 0.15, 0.2 };
    say(t, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"12\">\n"
        "<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n<text x=\"%d\" y=\"22\" font-size=\"15\">%s</text>\n",
        WIDTH, HEIGHT, WIDTH, HEIGHT, LEFT, p->title);
    for (size_t i = 0; i < GCI_COUNT(xs); i++)
        say(t, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\" stroke=\"#e5e7eb\"/><text x=\"%.1f\" y=\"%d\" "
            "text-anchor=\"middle\">%g</text>\n", x_of(xs[i]), x_of(xs[i]), TOP, HEIGHT - BOTTOM, x_of(xs[i]),
            HEIGHT - BOTTOM + 17, xs[i]);
    for (int i = 0; i < TICKS_MAX && p->tick[i] > 0; i++)
        say(t, "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#e5e7eb\"/><text x=\"%d\" y=\"%.1f\" "
            "text-anchor=\"end\">%g</text>\n", LEFT, WIDTH - RIGHT, y_of(p, p->tick[i]), y_of(p, p->tick[i]), LEFT - 6,
            y_of(p, p->tick[i]) + 4, p->tick[i]);
    say(t, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">density (links / pairs)</text>\n<text x=\"14\" y=\"%d\" "
        "transform=\"rotate(-90 14 %d)\" text-anchor=\"middle\">%s</text>\n", (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, HEIGHT / 2,
        HEIGHT / 2, p->axis);
}

static void plot_draw(text *t, const plot *p, overlay_figures f[DENSITIES][GCI_ROUTINGS])
{
    plot_frame(t, p);
    for (int r = 0; r < GCI_ROUTINGS; r++) {
        say(t, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" stroke-dasharray=\"%s\" points=\"", colours[r],
            dashes[r]);
        for (size_t i = 0; i < DENSITIES; i++)
            say(t, "%.1f,%.1f ", x_of(f[i][r].density), y_of(p, p->value(&f[i][r])));
        say(t, "\"/>\n<line x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\" stroke=\"%s\" stroke-width=\"2\" stroke-dasharray=\"%s\"/>"
            "<text x=\"%d\" y=\"%d\">%s</text>\n", WIDTH - 160, WIDTH - 125, TOP + 12 + 18 * r, TOP + 12 + 18 * r, colours[r],
            dashes[r], WIDTH - 118, TOP + 16 + 18 * r, gci_routing_name((enum gci_routing)r));
    }
    say(t, "</svg>\n");
}

/* ---- tables ------------------------------------------------------------------------------------------------------- */

static void sites_table(text *t)
{
    say(t, "| cluster | nodes | from | uplink | place (km east, north of Tokyo) |\n|---|---|---|---|---|\n");
    for (int s = 0; s < WORLD_SITES; s++) {
        const world_site *site = &world_sites[s];
        say(t, "| %s | %d | %s | %u Mbit/s | %.0f, %.0f |\n", site->name, site->nodes, site->stated, site->mbit, site->east,
            site->north);
    }
}

static void routings_head(text *t, const char *first)
{
    say(t, "| %s |", first);
    for (int r = 0; r < GCI_ROUTINGS; r++)
        say(t, " %s |", gci_routing_name((enum gci_routing)r));
    say(t, "\n|---|---|---|---|---|\n");
}

static void hops_table(text *t, overlay_figures f[DENSITIES][GCI_ROUTINGS])
{
    routings_head(t, "density: average / longest hops");
    for (size_t i = 0; i < DENSITIES; i++) {
        say(t, "| %.3f%s |", f[i][0].density, densities[i] > 0 ? "" : " (default)");
        for (int r = 0; r < GCI_ROUTINGS; r++)
            say(t, " %.2f / %d |", f[i][r].hops_mean, f[i][r].hops_most);
        say(t, "\n");
    }
}

static void bandwidth_table(text *t, overlay_figures f[DENSITIES][GCI_ROUTINGS])
{
    routings_head(t, "density: average / least bandwidth ratio");
    for (size_t i = 0; i < DENSITIES; i++) {
        say(t, "| %.3f |", f[i][0].density);
        for (int r = 0; r < GCI_ROUTINGS; r++)
            say(t, " %.3f / %.2f |", f[i][r].ratio_mean, f[i][r].ratio_least);
        say(t, "\n");
    }
}

static void latency_table(text *t, overlay_figures f[DENSITIES][GCI_ROUTINGS])
{
    routings_head(t, "density: stretch between clusters, median / 95 %; within, 95 %; pairs that leave their cluster");
    for (size_t i = 0; i < DENSITIES; i++) {
        say(t, "| %.3f |", f[i][0].density);
        for (int r = 0; r < GCI_ROUTINGS; r++)
            say(t, " %.2f / %.2f; %.0f; %ld |", f[i][r].between_median, f[i][r].between_p95, f[i][r].inside_p95,
                f[i][r].left / SEEDS);
        say(t, "\n");
    }
}

/* What it is worth to know how long links really are, and what the even world looks like. */
static void knowledge_table(text *t, const world worlds[WORLD_KINDS])
{
    static const double some[] = { 0.01, 0.02, 0, 0.08, 0.2 };
    say(t, "| density, `updown-dfs` | 10 ms everywhere: 95 %% | by the map: 95 %% | by the map, latencies known: 95 %% "
           "| pairs that take two links between clusters |\n|---|---|---|---|---|\n");
    for (size_t i = 0; i < GCI_COUNT(some); i++) {
        overlay_figures even, map, known;
        measure_seeds(&worlds[WORLD_EVEN], some[i], COSTS_TIERS, GCI_UPDOWN_DFS, SEEDS, &even);
        measure_seeds(&worlds[WORLD_MAP], some[i], COSTS_TIERS, GCI_UPDOWN_DFS, SEEDS, &map);
        measure_seeds(&worlds[WORLD_MAP], some[i], COSTS_TRUE, GCI_UPDOWN_DFS, SEEDS, &known);
        say(t, "| %.3f | %.3f | %.3f | %.3f | %.2f %% |\n", map.density, even.between_p95, map.between_p95, known.between_p95,
            100 * map.two_sites);
    }
}

static void judged_table(text *t, const world worlds[WORLD_KINDS])
{
    say(t, "| `updown-dfs`, density %.2f, %d seeds | 10 ms everywhere | by the map | wanted |\n|---|---|---|---|\n",
        judged_density, JUDGED_SEEDS);
    overlay_figures f[WORLD_KINDS], worst[WORLD_KINDS] = { { .left = 0 } };
    for (int kind = 0; kind < WORLD_KINDS; kind++)
        for (int seed = 1; seed <= JUDGED_SEEDS; seed++) {
            measure(&worlds[kind], judged_density, (uint64_t)seed, COSTS_TIERS, GCI_UPDOWN_DFS, &f[kind]);
            worst[kind].between_p95 = fmax(worst[kind].between_p95, f[kind].between_p95);
            worst[kind].left += f[kind].left;
            if (f[kind].inside_hops_most > worst[kind].inside_hops_most)
                worst[kind].inside_hops_most = f[kind].inside_hops_most;
        }
    say(t, "| latency stretch between clusters, 95th percentile, worst seed | %.3f | %.3f | ≤ 1.2 |\n", worst[0].between_p95,
        worst[1].between_p95);
    say(t, "| most hops of a pair in one cluster, worst seed | %d | %d | ≤ 3 |\n", worst[0].inside_hops_most,
        worst[1].inside_hops_most);
    say(t, "| pairs connected inside a cluster that leave it | %ld | %ld | 0 |\n", worst[0].left, worst[1].left);
}

static void times_table(text *t, const world *w)
{
    static const double some[] = { 0.02, 0, 0.05, 0.08, 0.1, 0.15, 0.2 };
    routings_head(t, "density: all tables of a node, ms, median (worst)");
    for (size_t i = 0; i < GCI_COUNT(some); i++) {
        gci_graph g;
        must(world_backbone(&env, w, some[i], 1, &g));
        say(t, "| %.3f |", 2.0 * g.edges / WORLD_NODES / (WORLD_NODES - 1));
        gci_graph_free(&env, &g);
        for (int r = 0; r < GCI_ROUTINGS; r++) {
            times found = time_tables(w, some[i], (enum gci_routing)r);
            say(t, " %.2f (%.2f) |", found.median, found.most);
        }
        say(t, "\n");
    }
    say(t, "\nNumbering 515 nodes at density 0.1 takes %.1f ms (`updown-dfs`).\n", time_tables(w, 0.1, GCI_UPDOWN_DFS).number);
}

static void least_table(text *t, const world *w)
{
    say(t, "| 4.5.1 as printed | density | average / longest hops, `updown-dfs` | `unrestricted` | stretch between, 95 %% |\n"
           "|---|---|---|---|---|\n");
    for (int d = 2; d <= 6; d++) {
        gci_graph g;
        overlay_figures updown, any;
        must(world_plain_graph(&env, w, d, 1, &g));
        world_costs(w, COSTS_TIERS, &g);
        must(world_measure(&env, w, &g, GCI_UPDOWN_DFS, &updown));
        must(world_measure(&env, w, &g, GCI_UNRESTRICTED, &any));
        say(t, "| d = %d | %.3f | %.2f / %d | %.2f / %d | %.2f |\n", d, updown.density, updown.hops_mean, updown.hops_most,
            any.hops_mean, any.hops_most, updown.between_p95);
        gci_graph_free(&env, &g);
    }
}

/* ---- the page ----------------------------------------------------------------------------------------------------- */

static text page, part;

static text *part_new(void)
{
    part.used = 0;
    part.at[0] = 0;
    return &part;
}

int main(int argc, char **argv)
{
    static overlay_figures f[DENSITIES][GCI_ROUTINGS];
    world worlds[WORLD_KINDS];
    if (argc != 2)
        fail("say in which directory overlay-figures.md stands");
    gci_env_init(&env, gci_sys_real(), NULL);
    file_read(argv[1], "overlay-figures.md", &page);
    for (int kind = 0; kind < WORLD_KINDS; kind++)
        must(world_make(&env, (enum world_kind)kind, &worlds[kind]));
    for (size_t i = 0; i < DENSITIES; i++)
        for (int r = 0; r < GCI_ROUTINGS; r++)
            measure_seeds(&worlds[WORLD_MAP], densities[i], COSTS_TIERS, (enum gci_routing)r, SEEDS, &f[i][r]);

    sites_table(part_new());                    part_replace(&page, "sites", &part);
    judged_table(part_new(), worlds);           part_replace(&page, "judged", &part);
    hops_table(part_new(), f);                  part_replace(&page, "hops", &part);
    bandwidth_table(part_new(), f);             part_replace(&page, "bandwidth", &part);
    latency_table(part_new(), f);               part_replace(&page, "latency", &part);
    knowledge_table(part_new(), worlds);        part_replace(&page, "knowledge", &part);
    least_table(part_new(), &worlds[WORLD_MAP]);    part_replace(&page, "least", &part);
    times_table(part_new(), &worlds[WORLD_MAP]);    part_replace(&page, "times", &part);
    file_write(argv[1], "overlay-figures.md", &page);
    for (size_t i = 0; i < GCI_COUNT(plots); i++) {
        plot_draw(part_new(), &plots[i], f);
        file_write(argv[1], plots[i].file, &part);
    }
    for (int kind = 0; kind < WORLD_KINDS; kind++)
        world_free(&env, &worlds[kind]);
    return 0;
}
