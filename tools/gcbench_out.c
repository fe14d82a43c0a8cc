/* gcbench_out.c: what gcbench writes: tables, CSV, JSON, and a picture as SVG.
 * SPDX-License-Identifier: MIT
 */
#include "gcbench.h"

#include <errno.h>
#include <math.h>

/* ---- tables ------------------------------------------------------------------------------------------------------ */

void bench_head(FILE *out, const bench_options *o, bool predicted, int ranks)
{
    const char *timing = bench_timing_name(o->timing);
    if (o->form == BENCH_CSV)
        fprintf(out, "operation,algorithm,bytes,timing,repetitions,median_s,low_s,high_s,predicted_s\n");
    else if (o->form == BENCH_JSON)
        fprintf(out, "{ \"ranks\": %d, \"root\": %d, \"timing\": \"%s\", \"rows\": [", ranks, o->root, timing);
    else
        fprintf(out, "# %d ranks, root %d, timing %s; medians and their 95 %% intervals, us\n"
                     "# %-15s %-18s %10s %6s %12s %12s %12s%s\n", ranks, o->root, timing, "operation", "algorithm", "bytes", "n",
                "median", "low", "high", predicted ? "    predicted    error" : "");
}

static void bench_put_json(FILE *out, const bench_row *r, bool first)
{
    fprintf(out, "%s\n  { \"operation\": \"%s\", \"algorithm\": \"%s\", \"bytes\": %zu, \"repetitions\": %d, \"median_s\": %.9g, "
                 "\"low_s\": %.9g, \"high_s\": %.9g", first ? "" : ",", bench_op_name(r->op), r->algo, r->bytes, r->n, r->median,
            r->low, r->high);
    if (r->predicted >= 0)
        fprintf(out, ", \"predicted_s\": %.9g", r->predicted);
    fprintf(out, " }");
}

int bench_put(FILE *out, const bench_options *o, bool predicted, const bench_row *r, bool first)
{
    const char *op = bench_op_name(r->op), *algo = r->algo[0] ? r->algo : "-";
    if (o->form == BENCH_JSON) {
        bench_put_json(out, r, first);
    } else if (o->form == BENCH_CSV) {
        fprintf(out, "%s,%s,%zu,%s,%d,%.9g,%.9g,%.9g,", op, r->algo, r->bytes,
                bench_timing_name(r->op == BENCH_P2P ? BENCH_ROOT : o->timing), r->n, r->median, r->low, r->high);
        fprintf(out, r->predicted >= 0 ? "%.9g\n" : "\n", r->predicted);
    } else {
        fprintf(out, "  %-15s %-18s %10zu %6d %12.2f %12.2f %12.2f", op, algo, r->bytes, r->n, r->median * 1e6, r->low * 1e6,
                r->high * 1e6);
        if (predicted && r->predicted >= 0)
            fprintf(out, " %12.2f %+7.1f%%", r->predicted * 1e6, (r->predicted / r->median - 1) * 100);
        fprintf(out, "\n");
    }
    return fflush(out) == 0 ? 0 : errno;
}

void bench_tail(FILE *out, const bench_options *o)
{
    if (o->form == BENCH_JSON)
        fprintf(out, "\n] }\n");
}

/* ---- pictures ---------------------------------------------------------------------------------------------------- */

enum { PLOT_WIDTH = 560, PLOT_HEIGHT = 300, PLOT_LEFT = 80, PLOT_TOP = 40, PLOT_LEGEND = 190, PLOT_GAP = 70 };
static const char *const plot_colors[] = { "#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#e377c2",
                                           "#7f7f7f", "#bcbd22" };

/* The field of one operation: sizes from 2^x0 to 2^x1, times from 10^y0 to 10^y1. */
typedef struct plot { FILE *out; const bench_row *row; int rows, op; double x0, x1, y0, y1; int top; } plot;

static double plot_log2(size_t bytes) { return log2((double)gci_max(bytes, 1)); }
static double plot_x(const plot *p, double log) { return PLOT_LEFT + (log - p->x0) / (p->x1 - p->x0) * PLOT_WIDTH; }
static double plot_y(const plot *p, double s) { return p->top + (p->y1 - log10(s)) / (p->y1 - p->y0) * PLOT_HEIGHT; }

/* false: there is no row of it. */
static bool plot_range(plot *p)
{
    double least = HUGE_VAL, most = 0;
    p->x0 = HUGE_VAL;
    p->x1 = -1;
    for (int i = 0; i < p->rows; i++) {
        const bench_row *r = &p->row[i];
        if (r->op != p->op || r->median <= 0)
            continue;
        p->x0 = fmin(p->x0, plot_log2(r->bytes));
        p->x1 = fmax(p->x1, plot_log2(r->bytes));
        least = fmin(least, r->predicted > 0 ? fmin(r->median, r->predicted) : r->median);
        most = fmax(most, fmax(r->median, r->predicted));
    }
    if (most <= 0)
        return false;
    p->x1 = fmax(p->x1, p->x0 + 1);
    p->y0 = floor(log10(least));
    p->y1 = fmax(ceil(log10(most)), p->y0 + 1);
    return true;
}

static void plot_axes(const plot *p)
{
    fprintf(p->out, "<text x='%d' y='%d' font-weight='bold'>%s</text>\n", PLOT_LEFT, p->top - 12, bench_op_name(p->op));
    for (int y = (int)p->y0; y <= (int)p->y1; y++) {
        double at = plot_y(p, pow(10, y));
        const char *unit = y < -3 ? "us" : y < 0 ? "ms" : "s";
        fprintf(p->out, "<path d='M%d %.1fh%d' stroke='#ddd'/><text x='%d' y='%.1f' text-anchor='end'>%g %s</text>\n", PLOT_LEFT,
                at, PLOT_WIDTH, PLOT_LEFT - 6, at + 4, pow(10, y) * (y < -3 ? 1e6 : y < 0 ? 1e3 : 1), unit);
    }
    int step = gci_max32(1, (int)ceil((p->x1 - p->x0) / 12));
    for (int x = (int)ceil(p->x0); x <= (int)p->x1; x += step) {
        double at = plot_x(p, x), bytes = pow(2, x);
        int kilo = bytes >= 1 << 20 ? 2 : bytes >= 1024;
        fprintf(p->out, "<path d='M%.1f %dv%d' stroke='#ddd'/><text x='%.1f' y='%d' text-anchor='middle'>%g%s</text>\n", at,
                p->top, PLOT_HEIGHT, at, p->top + PLOT_HEIGHT + 16, bytes / pow(1024, kilo), kilo == 2 ? "M" : kilo ? "K" : "");
    }
}

/* A line through the points of one algorithm, measured or predicted. */
static void plot_line(const plot *p, const char *algo, const char *color, bool predicted)
{
    fprintf(p->out, "<polyline fill='none' stroke='%s'%s points='", color, predicted ? " stroke-dasharray='5 4'" : "");
    for (int i = 0; i < p->rows; i++) {
        const bench_row *r = &p->row[i];
        double s = predicted ? r->predicted : r->median;
        if (r->op == p->op && strcmp(r->algo, algo) == 0 && s > 0)
            fprintf(p->out, "%.1f,%.1f ", plot_x(p, plot_log2(r->bytes)), plot_y(p, s));
    }
    fprintf(p->out, "'/>\n");
}

static void plot_series(const plot *p)
{
    int n = 0;
    for (int i = 0; i < p->rows; i++) {
        const char *algo = p->row[i].algo, *color = plot_colors[n % (int)GCI_COUNT(plot_colors)];
        bool known = p->row[i].op != p->op;
        for (int k = 0; k < i && !known; k++)
            known = p->row[k].op == p->op && strcmp(p->row[k].algo, algo) == 0;
        if (known)
            continue;
        plot_line(p, algo, color, false);
        plot_line(p, algo, color, true);
        for (int k = i; k < p->rows; k++)
            if (p->row[k].op == p->op && strcmp(p->row[k].algo, algo) == 0 && p->row[k].median > 0)
                fprintf(p->out, "<circle cx='%.1f' cy='%.1f' r='2.5' fill='%s'/>\n", plot_x(p, plot_log2(p->row[k].bytes)),
                        plot_y(p, p->row[k].median), color);
        fprintf(p->out, "<text x='%d' y='%d' fill='%s'>%s</text>\n", PLOT_LEFT + PLOT_WIDTH + 12, p->top + 12 + 16 * n++, color,
                algo[0] ? algo : "as chosen");
    }
}

int bench_plot(const char *path, const bench_row *row, int rows)
{
    int fields = 0;
    FILE *out = fopen(path, "w");
    if (!out)
        return -1;
    for (int op = 0; op < BENCH_OPS; op++)
        fields += plot_range(&(plot){ .row = row, .rows = rows, .op = op });
    fprintf(out, "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' font-family='sans-serif' font-size='11'>\n"
                 "<rect width='100%%' height='100%%' fill='#fff'/>\n"
                 "<text x='%d' y='16'>time over bytes; solid: measured, dashed: predicted</text>\n",
            PLOT_LEFT + PLOT_WIDTH + PLOT_LEGEND, PLOT_TOP + fields * (PLOT_HEIGHT + PLOT_GAP), PLOT_LEFT);
    for (int op = 0, nth = 0; op < BENCH_OPS; op++) {
        plot p = { .out = out, .row = row, .rows = rows, .op = op, .top = PLOT_TOP + 20 + nth * (PLOT_HEIGHT + PLOT_GAP) };
        if (!plot_range(&p))
            continue;
        plot_axes(&p);
        plot_series(&p);
        nth++;
    }
    fprintf(out, "</svg>\n");
    bool written = !ferror(out);
    return fclose(out) == 0 && written ? 0 : -1;
}
