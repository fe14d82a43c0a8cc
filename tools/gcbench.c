/* gcbench.c: times messages and collectives, fits models, and tells what a model says of every algorithm.
 * SPDX-License-Identifier: MIT
 *
 * Every rank runs it and reads the same options; rank 0 writes. It sees more of the library than a program may, because an
 * algorithm is named for each row and not for a whole job.
 */
#define _POSIX_C_SOURCE 200809L
#include "gcbench.h"
#include "tool.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static const char usage[] =
    "usage: gcrun -n N [-H HOSTFILE] gcbench [options] [OPERATION...]\n"
    "Times operations: p2p barrier bcast scatter gather allgather alltoall reduce allreduce reduce_scatter scan exscan, and with\n"
    "blocks of different sizes scatterv gatherv allgatherv alltoallv reduce_scatterv; without any of them, all. p2p is half the\n"
    "time of a message there and back.\n"
    "\n"
    "  --sizes LIST       bytes of the vector or of each block: 1,1K,64K or 1-1M (powers of 4). Default 1,1K,64K\n"
    "  --algorithms LIST  of the pool: binomial,chain@65536; all of it: all; what it takes by itself: - (default). Those that an\n"
    "                     operation does not have are left out\n"
    "  --root R           default 0; --peer R, for p2p: default the last\n"
    "  --spread S         of different sizes the longest is S times the shortest, default 10; --sizes: the mean\n"
    "  --timing WAY       root: the root's own time, after a barrier; max: the longest of the ranks' own times, after a\n"
    "                     barrier; global (default): from one instant of a global clock until the last is through\n"
    "  --repeat A-B       at least and at most so many times, default 10-1000\n"
    "  --precision P      until half the 95 % confidence interval is this part of the median, default 0.02\n"
    "  --seconds S        at most for one row, default 5; for --fit altogether, default 60\n"
    "  --model FILE       what this model predicts beside what is measured; --choose: the model chooses, too\n"
    "  --form FORM        text (default), csv or json; --output FILE: not to standard output\n"
    "  --plot FILE        a picture (SVG) of time over size, measured and predicted, a line for each algorithm\n"
    "  --fit FILE         measures a model and writes it to FILE; --kind hockney (default) or plogp\n"
    "  --explain OPERATION BYTES    what the model (--model, GRIDCOMM_MODEL) says of every algorithm that could do it\n"
    "  --help             this text\n"
    "\n"
    "Exit status: 0; 1 if the job failed; 2 for wrong usage.\n";

static const struct { enum gci_coll coll; const char *name; } bench_v[BENCH_OPS - BENCH_V] = {
    { GCI_SCATTER, "scatterv" }, { GCI_GATHER, "gatherv" }, { GCI_ALLGATHER, "allgatherv" }, { GCI_ALLTOALL, "alltoallv" },
    { GCI_REDUCE_SCATTER, "reduce_scatterv" } };

enum gci_coll bench_coll(int op)
{
    return op >= BENCH_V ? bench_v[op - BENCH_V].coll : (enum gci_coll)op;
}

const char *bench_op_name(int op)
{
    return op == BENCH_P2P ? "p2p" : op >= BENCH_V ? bench_v[op - BENCH_V].name : gci_coll_name((enum gci_coll)op);
}

static const char *const timing_names[BENCH_TIMINGS] = { "root", "max", "global" };
const char *bench_timing_name(enum bench_timing timing) { return timing_names[timing]; }

/* ---- options ----------------------------------------------------------------------------------------------------- */

/* "64K" */
static bool read_bytes(const char *text, char **end, size_t *bytes)
{
    unsigned long long n = strtoull(text, end, 10);
    int shift = **end == 'K' ? 10 : **end == 'M' ? 20 : **end == 'G' ? 30 : 0;
    bool fine = *text >= '0' && *text <= '9' && n <= (SIZE_MAX / 4) >> shift;
    *end += shift > 0;
    *bytes = fine ? (size_t)n << shift : 0;
    return fine;
}

/* "a,b": has it an empty element? */
static bool has_gap(const char *list)
{
    size_t n = strlen(list);
    return n == 0 || list[0] == ',' || list[n - 1] == ',' || strstr(list, ",,");
}

static bool read_sizes(bench_options *o, const char *text)
{
    char *end;
    size_t last;
    for (o->sizes = 0; *text && o->sizes < BENCH_SIZES; text = end + (*end == ',')) {
        if (!read_bytes(text, &end, &o->size[o->sizes++]) || (*end && *end != ',' && *end != '-'))
            return false;
        if (*end != '-')
            continue;
        if (!read_bytes(end + 1, &end, &last) || (*end && *end != ','))
            return false;
        for (size_t next = gci_max(o->size[o->sizes - 1], 1); next <= last / 4 && o->sizes < BENCH_SIZES;)
            o->size[o->sizes++] = next *= 4;
    }
    return o->sizes > 0 && !*text;
}

static bool read_number(const char *text, double least, double most, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return end != text && !*end && *out >= least && *out <= most;
}

static bool read_int(const char *text, int least, int most, int *out)
{
    double x;
    bool fine = read_number(text, least, most, &x);
    *out = fine ? (int)x : 0;
    return fine && x <= *out;
}

static bool read_repeat(bench_options *o, const char *text)
{
    char low[16] = "", *dash = strchr(text, '-');
    size_t bytes = dash ? (size_t)(dash - text) : strlen(text);
    if (bytes >= sizeof low)
        return false;
    snprintf(low, sizeof low, "%.*s", (int)bytes, text);
    return read_int(low, 1, BENCH_SAMPLES, &o->least) && read_int(dash ? dash + 1 : low, o->least, BENCH_SAMPLES, &o->most);
}

static int one_of(const char *text, const char *const name[], int n)
{
    int i = 0;
    while (i < n && strcmp(name[i], text) != 0)
        i++;
    return i;
}

static bool read_op(bench_options *o, const char *text)
{
    int op = 0;
    while (op < BENCH_OPS && strcmp(text, bench_op_name(op)) != 0)
        op++;
    if (op < BENCH_OPS)
        o->op[op] = true;
    return op < BENCH_OPS;
}

/* An option with a value. */
static bool read_option(bench_options *o, const char *name, const char *value)
{
    static const char *const forms[] = { "text", "csv", "json" };
    static const struct { const char *name; size_t at; } texts[] = {
        { "--algorithms", offsetof(bench_options, algorithms) }, { "--model", offsetof(bench_options, model) },
        { "--plot", offsetof(bench_options, plot) }, { "--output", offsetof(bench_options, output) },
        { "--fit", offsetof(bench_options, fit) }, { "--kind", offsetof(bench_options, kind) } };
    bool list = strcmp(name, "--sizes") == 0 || strcmp(name, "--algorithms") == 0;
    if (list && has_gap(value)) {
        fprintf(stderr, "gcbench: %s '%s': an element is empty\n", name, value);
        o->told = true;
        return false;
    }
    for (size_t i = 0; i < GCI_COUNT(texts); i++)
        if (strcmp(name, texts[i].name) == 0) {
            *(const char **)((char *)o + texts[i].at) = value;
            return true;
        }
    if (strcmp(name, "--sizes") == 0)
        return read_sizes(o, value);
    if (strcmp(name, "--root") == 0)
        return read_int(value, 0, GCI_RANKS_MAX, &o->root);
    if (strcmp(name, "--peer") == 0)
        return read_int(value, 0, GCI_RANKS_MAX, &o->peer);
    if (strcmp(name, "--spread") == 0)
        return read_int(value, 1, BENCH_SPREAD_MAX, &o->spread);
    if (strcmp(name, "--repeat") == 0)
        return read_repeat(o, value);
    if (strcmp(name, "--precision") == 0)
        return read_number(value, 0, 1, &o->precision);
    if (strcmp(name, "--seconds") == 0)
        return read_number(value, 1e-3, 1e6, &o->seconds);
    if (strcmp(name, "--timing") == 0)
        return (o->timing = (enum bench_timing)one_of(value, timing_names, BENCH_TIMINGS)) < BENCH_TIMINGS;
    if (strcmp(name, "--form") == 0)
        return (o->form = (enum bench_form)one_of(value, forms, 3)) <= BENCH_JSON;
    return false;
}

static bool options_read(bench_options *o, int argc, char **argv)
{
    bool any = false;
    char *end;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            o->help = true;
        } else if (strcmp(argv[i], "--choose") == 0) {
            o->choose = true;
        } else if (strcmp(argv[i], "--explain") == 0 && i + 2 < argc) {
            o->explain = argv[++i];
            if (!read_bytes(argv[++i], &end, &o->explain_bytes) || *end)
                return false;
        } else if (argv[i][0] == '-') {
            if (i + 1 == argc || !read_option(o, argv[i], argv[i + 1]))
                return false;
            i++;
        } else if (read_op(o, argv[i])) {
            any = true;
        } else {
            return false;
        }
    }
    for (int op = 0; op < BENCH_OPS && !any; op++)
        o->op[op] = true;
    if (o->seconds <= 0)
        o->seconds = o->fit ? 60 : 5;
    return true;
}

/* ---- what rank 0 writes ------------------------------------------------------------------------------------------ */

typedef struct report {
    const bench_options *o;
    FILE      *out;
    bool       predicted, terminal;
    bench_row *row;
    int        rows, why;       /* why: the first errno of writing a row */
} report;

/* Says at rank 0 what this program itself could not do, and ends the job. */
static int refuse(gc_comm *world, int err, const char *what, const char *why)
{
    fprintf(stderr, "gcbench: %s: %s\n", what, why);
    gc_abort(world, err);
    return err;
}

static void row_begins(void *user, int op, const char *algo, size_t bytes)
{
    const report *r = user;
    if (r->terminal)
        fprintf(stderr, "\r\033[K%s of %zu bytes %s%s", bench_op_name(op), bytes, algo[0] ? "by " : "", algo);
}

static void row_done(void *user, const bench_row *row)
{
    report *r = user;
    if (r->terminal)
        fprintf(stderr, "\r\033[K");
    int why = bench_put(r->out, r->o, r->predicted, row, r->rows == 0);
    r->why = r->why ? r->why : why;
    bench_row *grown = realloc(r->row, ((size_t)r->rows + 1) * sizeof *grown);
    if (!grown) {
        r->why = r->why ? r->why : ENOMEM;
        return;
    }
    r->row = grown;
    r->row[r->rows++] = *row;
}

static int measure(gc_comm *world, const bench_options *o, const gc_model *model)
{
    report r = { .o = o, .out = stdout, .predicted = model != NULL, .terminal = isatty(2) };
    bool writes = gc_rank(world) == 0;
    if (writes && o->output && (r.out = fopen(o->output, "w")) == NULL)
        return refuse(world, GC_ERR_SYSTEM, o->output, strerror(errno));
    if (writes)
        bench_head(r.out, o, r.predicted, gc_size(world));
    int err = bench_run(&(bench_job){ .world = world, .o = o, .model = model, .begin = row_begins, .done = row_done, .user = &r });
    if (writes)
        bench_tail(r.out, o);
    if (writes && err == GC_OK && o->plot && bench_plot(o->plot, r.row, r.rows) < 0)
        err = refuse(world, GC_ERR_SYSTEM, o->plot, strerror(errno));
    if (writes && (!tool_close(r.out) || r.why) && err == GC_OK)
        err = refuse(world, GC_ERR_SYSTEM, o->output ? o->output : "standard output", strerror(r.why ? r.why : errno));
    free(r.row);
    return err;
}

/* ---- models ------------------------------------------------------------------------------------------------------ */

/* A line on the terminal while all are busy with measuring. */
typedef struct progress { pthread_t thread; pthread_mutex_t lock; pthread_cond_t stop; bool stopped; double most; } progress;

static void *progress_show(void *arg)
{
    progress *p = arg;
    struct timespec next;
    clock_gettime(CLOCK_REALTIME, &next);
    pthread_mutex_lock(&p->lock);
    for (int seconds = 0; !p->stopped; seconds++, next.tv_sec++) {
        fprintf(stderr, "\r\033[Kmeasuring: %d s of at most %.0f", seconds, p->most);
        while (!p->stopped && pthread_cond_timedwait(&p->stop, &p->lock, &next) == 0) { }
    }
    pthread_mutex_unlock(&p->lock);
    fprintf(stderr, "\r\033[K");
    return NULL;
}

static bool progress_begin(progress *p, double most)
{
    *p = (progress){ .most = most };
    return pthread_mutex_init(&p->lock, NULL) == 0 && pthread_cond_init(&p->stop, NULL) == 0 &&
           pthread_create(&p->thread, NULL, progress_show, p) == 0;
}

static void progress_end(progress *p)
{
    pthread_mutex_lock(&p->lock);
    p->stopped = true;
    pthread_cond_signal(&p->stop);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
}

static int fit(gc_comm *world, const bench_options *o)
{
    gc_model *model = NULL;
    progress p;
    bool shown = gc_rank(world) == 0 && isatty(2) && progress_begin(&p, o->seconds);
    int err = gc_model_measure(world, o->kind, o->seconds, &model);
    if (shown)
        progress_end(&p);
    if (err < 0)
        return tool_failed("gcbench", world, "measuring", err);
    if ((err = gc_model_use(world, model)) < 0)         /* its table is saved with it */
        tool_failed("gcbench", world, "deciding", err);
    if (err == GC_OK && gc_rank(world) == 0 && gc_model_save(model, o->fit) < 0)
        err = refuse(world, GC_ERR_SYSTEM, o->fit, strerror(errno));
    gc_model_free(model);
    return err;
}

static int explain(gc_comm *world, const bench_options *o)
{
    size_t needed = 0;
    if (gc_rank(world) != 0)
        return GC_OK;
    int err = gc_explain(world, o->explain, o->explain_bytes, o->root, NULL, 0, &needed);
    char *text = err == GC_OK ? malloc(needed) : NULL;
    if (err == GC_OK)
        err = text ? gc_explain(world, o->explain, o->explain_bytes, o->root, text, needed, NULL) : GC_ERR_NOMEM;
    if (err < 0) {
        free(text);
        return tool_failed("gcbench", world, "explaining", err);
    }
    fputs(text, stdout);
    free(text);
    return tool_close(stdout) ? GC_OK : refuse(world, GC_ERR_SYSTEM, "standard output", strerror(errno));
}

static int run(gc_comm *world, const bench_options *o)
{
    gc_model *model = NULL;
    char why[256] = "";
    int err = GC_OK;
    if (o->root >= gc_size(world) || o->peer >= gc_size(world))
        return gc_rank(world) == 0 ? refuse(world, GC_ERR_ARG, "root or peer", "no such rank") : GC_ERR_ARG;
    if (o->fit)
        return fit(world, o);
    if (gc_rank(world) == 0 && o->model && (err = gc_model_load(o->model, &model, why, sizeof why)) < 0)
        return refuse(world, err, o->model, why);
    if (model && model->ranks != gc_size(world)) {
        gc_model_free(model);
        return refuse(world, GC_ERR_ARG, o->model, "a model of another number of ranks");
    }
    if (o->model && (o->choose || o->explain) && (err = gc_model_use(world, model)) < 0)
        tool_failed("gcbench", world, o->model, err);
    if (err == GC_OK && o->explain)
        err = explain(world, o);
    else if (err == GC_OK)
        err = measure(world, o, model);
    gc_model_free(model);
    return err;
}

int main(int argc, char **argv)
{
    static bench_options o = { .peer = -1, .spread = 10, .least = 10, .most = 1000, .precision = 0.02, .timing = BENCH_GLOBAL,
                               .kind = "hockney", .algorithms = "-", .size = { 1, 1024, 65536 }, .sizes = 3 };
    if (!options_read(&o, argc, argv)) {
        if (!o.told)
            fputs(usage, stderr);
        return 2;
    }
    if (o.help) {
        fputs(usage, stdout);
        return 0;
    }
    gc_comm *world = tool_init("gcbench");
    if (!world)
        return 1;
    int err = run(world, &o);
    return gc_finalize(world) < 0 || err < 0;
}
