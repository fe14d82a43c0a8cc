/* gcbench.h: what the files of the benchmark share.
 * SPDX-License-Identifier: MIT
 *
 *   gcbench.c       options, main; fitting a model, explaining a choice
 *   gcbench_run.c   what is measured and how: operations, ways of timing, repetition
 *   gcbench_out.c   tables, CSV, JSON, pictures
 */
#ifndef GCBENCH_H
#define GCBENCH_H

#include "gridcomm_int.h"

/* Operations: the collectives, messages, and those with blocks of different sizes. */
enum { BENCH_SIZES = 64, BENCH_P2P = GCI_COLLS, BENCH_V, BENCH_OPS = BENCH_V + 5, BENCH_SPREAD_MAX = 1000, BENCH_SAMPLES = 4096 };

enum bench_timing { BENCH_ROOT, BENCH_MAX, BENCH_GLOBAL, BENCH_TIMINGS };
enum bench_form { BENCH_TEXT, BENCH_CSV, BENCH_JSON };

typedef struct bench_options {
    bool        op[BENCH_OPS];
    size_t      size[BENCH_SIZES];      int sizes;
    const char *algorithms;             /* "binomial,chain@65536"; "all": the pool; "-": what the operation takes */
    int         root, peer;             /* peer: of ping-pongs; -1: the last rank */
    int         spread;                 /* the longest block over the shortest, where they differ */
    int         least, most;            /* repetitions */
    double      precision, seconds;     /* half a confidence interval over the median; at most for one row, or for --fit */
    enum bench_timing timing;
    enum bench_form form;
    const char *model, *plot, *output;
    bool        choose;                 /* --choose: by the model */
    const char *fit, *kind;
    const char *explain;                size_t explain_bytes;
    bool        help;
    bool        told;                   /* what is wrong with the options has been said */
} bench_options;

/* A row of the table. s; predicted < 0: nothing is said */
typedef struct bench_row {
    int    op;                          /* enum gci_coll, BENCH_P2P or BENCH_V ... */
    char   algo[GCI_ALGO_NAME + 16];    /* "": what the operation takes */
    size_t bytes;
    int    n;
    double median, low, high, predicted;        /* low, high: 95 % of the median */
} bench_row;

const char *bench_op_name(int op);
enum gci_coll bench_coll(int op);       /* the collective that it is; not of BENCH_P2P */
const char *bench_timing_name(enum bench_timing);

/* gcbench_run.c: measures all rows, at every rank; rank 0's are handed over as they come. GC_OK or GC_ERR_*. */
typedef struct bench_job {
    gc_comm *world;
    const bench_options *o;
    const gc_model *model;              /* rank 0: that predicts, or NULL */
    void (*begin)(void *user, int op, const char *algo, size_t bytes);          /* rank 0: before a row; and after it */
    void (*done)(void *user, const bench_row *);
    void *user;
} bench_job;
int bench_run(const bench_job *);

/* gcbench_out.c */
void bench_head(FILE *, const bench_options *, bool predicted, int ranks);
int  bench_put(FILE *, const bench_options *, bool predicted, const bench_row *, bool first);     /* 0, or errno: it is not written */
void bench_tail(FILE *, const bench_options *);
/* Time over size, both logarithmic: a field for each operation, a line for each algorithm, dashed as predicted. */
int  bench_plot(const char *path, const bench_row *, int rows);     /* 0, or -1 and errno */

#endif
