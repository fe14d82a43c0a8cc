/* modelfile.c: models as text (docs/models.md) (pure, but for gc_model_load and gc_model_save).
 * SPDX-License-Identifier: MIT
 *
 * One line, one fact, in a fixed order and with as many digits as it takes to read the same number again, so that two models
 * can be compared by diff. A file is read twice: first what there is (ranks, classes), then what it costs. It may be damaged or
 * not be one at all: every line has to have one of the shapes below, every number its bounds, and an error shows line and word,
 * printable whatever is in it. Numbers have a point whatever the program's locale says.
 */
#include "gridcomm_int.h"

#include <locale.h>
#include <stdlib.h>

enum { MODELFILE_WORDS = 8, MODELFILE_WORD = 32, MODELFILE_SHOWN = 40, MODELFILE_BYTES_MAX = 1 << 28 };
static const double modelfile_most = 1e9;       /* s, s/byte */
static const char modelfile_first[] = "gridcomm-model 1";

/* #: a whole number, x: one that may have a fraction, w: any word. What stands in one group is read in the same turn. */
enum modelfile_shape {
    MODELFILE_HOCKNEY, MODELFILE_PLOGP, MODELFILE_HEADER, MODELFILE_EAGER, MODELFILE_REDUCE, MODELFILE_COPY, MODELFILE_RANK,
    MODELFILE_CLASS, MODELFILE_CLASS_TOGETHER,
    MODELFILE_SITE, MODELFILE_SITE_TOGETHER, MODELFILE_TRUNK,
    MODELFILE_WITHIN, MODELFILE_WITHIN_SEND, MODELFILE_WITHIN_RECV, MODELFILE_WITHIN_GAP, MODELFILE_WITHIN_WAY,
    MODELFILE_WITHIN_LOGGP,
    MODELFILE_BETWEEN, MODELFILE_BETWEEN_SEND, MODELFILE_BETWEEN_RECV, MODELFILE_BETWEEN_GAP, MODELFILE_BETWEEN_WAY,
    MODELFILE_BETWEEN_LOGGP,
    MODELFILE_TABLE, MODELFILE_CHOICE, MODELFILE_SHAPES
};
static const char *const modelfile_shapes[MODELFILE_SHAPES] = {
    "kind hockney", "kind plogp", "header #", "eager #", "reduce x", "copy x", "rank # class # host #",
    "class # site # nic x x apart", "class # site # nic x x together",
    "site # uplink x x apart", "site # uplink x x together", "trunk # # x",
    "within # latency x per-byte x", "within # send # x", "within # recv # x", "within # gap # x", "within # way # x",
    "within # loggp x x x x",
    "between # # latency x per-byte x", "between # # send # x", "between # # recv # x", "between # # gap # x", "between # # way # x",
    "between # # loggp x x x x", "table #", "choice w # w",
};

typedef struct modelfile_word { const char *at; size_t bytes; } modelfile_word;
typedef struct modelfile_reader {
    gci_env  *env;
    char     *error;                    /* [GCI_TEXT] */
    int       line, words, ints, reals, room;
    modelfile_word word[MODELFILE_WORDS + 1];
    size_t    n[MODELFILE_WORDS];       /* the numbers of a line */
    double    x[MODELFILE_WORDS];
    gc_model  of;                       /* what the first turn finds, */
    bool      found[MODELFILE_RANK];    /* and what that may stand but once */
    gc_model *m;                        /* the second turn's */
} modelfile_reader;

/* ---- lines ------------------------------------------------------------------------------------------------------- */

/* Refuses the line: why, and what more there is to say. */
static int modelfile_fail(modelfile_reader *r, const char *why, const char *more)
{
    snprintf(r->error, GCI_TEXT, "model file, line %d: %s%s", r->line, why, more);
    return GC_ERR_CONFIG;
}

static int modelfile_fail_at(modelfile_reader *r, const modelfile_word *w, const char *why)
{
    char shown[MODELFILE_SHOWN + 1];
    size_t n = gci_min(w->bytes, MODELFILE_SHOWN);
    for (size_t i = 0; i < n; i++)
        shown[i] = w->at[i] > ' ' && w->at[i] <= '~' ? w->at[i] : '?';
    shown[n] = 0;
    snprintf(r->error, GCI_TEXT, "model file, line %d: %s '%s%s'", r->line, why, shown, w->bytes > n ? "..." : "");
    return GC_ERR_CONFIG;
}

/* Blanks part words, # begins a comment. One word more than any shape has may stand there. */
static void modelfile_split(modelfile_reader *r, const char *at, const char *end)
{
    for (r->words = 0; r->words <= MODELFILE_WORDS; r->words++) {
        while (at < end && (*at == ' ' || *at == '\t' || *at == '\r'))
            at++;
        if (at == end || *at == '#')
            return;
        modelfile_word *w = &r->word[r->words];
        for (w->at = at; at < end && *at != ' ' && *at != '\t' && *at != '\r';)
            at++;
        w->bytes = (size_t)(at - w->at);
    }
}

static bool modelfile_is(const modelfile_word *w, const char *text, size_t bytes)
{
    return w->bytes == bytes && memcmp(w->at, text, bytes) == 0;
}

/* Does the line have the words of a shape? head: only the first one is looked at. */
static bool modelfile_fits(const modelfile_reader *r, const char *shape, bool head)
{
    for (int i = 0; ; i++) {
        size_t bytes = strcspn(shape, " ");
        bool any = bytes == 1 && (*shape == '#' || *shape == 'x' || *shape == 'w');
        if (i >= r->words || (!any && !modelfile_is(&r->word[i], shape, bytes)))
            return false;
        if (head || !shape[bytes])
            return head || r->words == i + 1;
        shape += bytes + 1;
    }
}

static int modelfile_number(modelfile_reader *r, const modelfile_word *w, bool whole)
{
    char text[MODELFILE_WORD] = "", *end = text;
    if (w->bytes >= sizeof text)
        return modelfile_fail_at(r, w, "too long for a number:");
    memcpy(text, w->at, w->bytes);
    bool plain = text[0] >= '0' && text[0] <= '9' && strspn(text, whole ? "0123456789" : "0123456789.e+-") == w->bytes;
    if (whole) {
        errno = 0;
        unsigned long long n = plain ? strtoull(text, &end, 10) : 0;
        r->n[r->ints++] = (size_t)n;
        plain = plain && errno == 0 && n <= SIZE_MAX / 2;
    } else {
        double x = r->x[r->reals++] = plain ? strtod(text, &end) : 0;
        plain = plain && x >= 0 && x <= modelfile_most;
    }
    return plain && *end == 0 ? GC_OK : modelfile_fail_at(r, w, whole ? "not a whole number:" : "not a number from 0 to 1e9:");
}

/* Which shape the line has, or GC_ERR_CONFIG. Its numbers are taken. */
static int modelfile_shape_of(modelfile_reader *r)
{
    int like = -1;
    r->ints = r->reals = 0;
    for (int i = 0; i < MODELFILE_SHAPES; i++) {
        const char *shape = modelfile_shapes[i];
        if (like < 0 && modelfile_fits(r, shape, true))
            like = i;
        if (!modelfile_fits(r, shape, false))
            continue;
        for (int k = 0, err; k < r->words; k++, shape += strcspn(shape, " ") + 1)
            if ((*shape == '#' || (*shape == 'x' && (shape[1] == ' ' || !shape[1]))) &&
                (err = modelfile_number(r, &r->word[k], *shape == '#')) < 0)
                return err;
        return i;
    }
    return like < 0 ? modelfile_fail_at(r, &r->word[0], "unknown word")
                    : modelfile_fail(r, "not like: ", modelfile_shapes[like]);
}

/* ---- the first turn: what there is ------------------------------------------------------------------------------- */

static bool modelfile_grow(modelfile_reader *r, void **array, int n, size_t bytes)
{
    if (n & (n - 1))                    /* grown at powers of two, to the next one */
        return true;
    void *grown = gci_realloc(r->env, *array, (n ? 2 * (size_t)n : 1) * bytes);
    *array = grown ? grown : *array;
    return grown != NULL;
}

static int modelfile_rank(modelfile_reader *r)
{
    gc_model *of = &r->of;
    void *class_of = of->class_of, *host_of = of->host_of;
    if (r->n[0] != (size_t)of->ranks || r->n[1] >= GCI_RANKS_MAX || r->n[2] >= GCI_RANKS_MAX || of->ranks == GCI_RANKS_MAX)
        return modelfile_fail(r, "ranks count from 0, classes and hosts are below 65536", "");
    bool room = modelfile_grow(r, &class_of, of->ranks, sizeof *of->class_of);
    of->class_of = class_of;
    room = room && modelfile_grow(r, &host_of, of->ranks, sizeof *of->host_of);
    of->host_of = host_of;
    if (!room)
        return GC_ERR_NOMEM;
    of->class_of[of->ranks] = (int32_t)r->n[1];
    of->host_of[of->ranks++] = (int32_t)r->n[2];
    return GC_OK;
}

static int modelfile_class(modelfile_reader *r, bool together)
{
    gc_model *of = &r->of;
    void *site_of = of->site_of, *nic = of->nic;
    if (r->n[0] != (size_t)of->classes || r->n[1] >= GCI_RANKS_MAX || of->classes == GCI_RANKS_MAX)
        return modelfile_fail(r, "classes count from 0, sites are below 65536", "");
    bool room = modelfile_grow(r, &site_of, of->classes, sizeof *of->site_of);
    of->site_of = site_of;
    room = room && modelfile_grow(r, &nic, of->classes, sizeof *of->nic);
    of->nic = nic;
    if (!room)
        return GC_ERR_NOMEM;
    of->site_of[of->classes] = (int32_t)r->n[1];
    of->nic[of->classes++] = (gci_port){ r->x[0], r->x[1], together };
    return GC_OK;
}

static int modelfile_what(modelfile_reader *r, int shape)
{
    if (shape < MODELFILE_RANK) {
        bool *found = &r->found[shape == MODELFILE_PLOGP ? MODELFILE_HOCKNEY : shape];
        if (*found)
            return modelfile_fail_at(r, &r->word[0], "stands twice:");
        *found = true;
    }
    switch (shape) {
    case MODELFILE_HOCKNEY:
    case MODELFILE_PLOGP:
        r->of.kind = shape == MODELFILE_PLOGP ? GCI_PLOGP : GCI_HOCKNEY;
        return GC_OK;
    case MODELFILE_HEADER:
        r->of.header = r->n[0];
        return r->n[0] <= UINT16_MAX ? GC_OK : modelfile_fail_at(r, &r->word[1], "a header of so many bytes:");
    case MODELFILE_EAGER:
        r->of.eager = r->n[0];
        return GC_OK;
    case MODELFILE_REDUCE:
        r->of.reduce = r->x[0];
        return GC_OK;
    case MODELFILE_COPY:
        r->of.copy = r->x[0];
        return GC_OK;
    case MODELFILE_RANK:
        return modelfile_rank(r);
    case MODELFILE_CLASS:
    case MODELFILE_CLASS_TOGETHER:
        return modelfile_class(r, shape == MODELFILE_CLASS_TOGETHER);
    default:
        return GC_OK;
    }
}

/* Costs that no line has given yet are told by a latency, rate or trunk below 0. */
static int modelfile_make(modelfile_reader *r)
{
    gc_model *of = &r->of, *m;
    int highest = 0;
    for (int i = 0; i < of->ranks; i++)
        highest = gci_max32(highest, of->class_of[i]);
    int err = highest >= of->classes ? GC_ERR_ARG
                                     : gci_model_make(r->env, of->kind, of->ranks, of->class_of, of->host_of, of->site_of, &m);
    if (err == GC_OK && m->classes != of->classes) {
        gci_model_drop(r->env, m);
        err = GC_ERR_ARG;
    }
    if (err == GC_ERR_ARG)
        return modelfile_fail(r, "of ranks, classes, hosts and sites some have no line or no rank, or a host is of two "
                              "classes, or there are too many classes", "");
    if (err < 0)
        return err;
    memcpy(m->nic, of->nic, (size_t)m->classes * sizeof *m->nic);
    m->header = of->header;
    m->eager = of->eager;
    m->reduce = of->reduce;
    m->copy = of->copy;
    for (int i = 0; i < m->classes * m->classes; i++)
        m->between[i].latency = -1;
    for (int i = 0; i < m->classes; i++)
        m->within[i].latency = -1;
    for (int i = 0; i < m->sites; i++)
        m->uplink[i].out = -1;
    for (int i = 0; i < m->sites * m->sites; i++)
        m->trunk[i] = -1;
    r->m = m;
    return GC_OK;
}

/* ---- the second turn: what it costs ------------------------------------------------------------------------------ */

static int modelfile_twice(modelfile_reader *r) { return modelfile_fail(r, "these costs stand twice", ""); }

/* The curves that L, o, g and G amount to. */
static int modelfile_loggp(modelfile_reader *r, gci_cost_model *cost)
{
    for (int i = 0; i < GCI_COSTS; i++)
        if (cost->curve[i].points > 0)
            return modelfile_twice(r);
    int err = gci_model_from_loggp(r->env, &(gci_loggp){ r->x[0], r->x[1], r->x[2], r->x[3] }, cost);
    return err == GC_ERR_ARG ? modelfile_fail(r, "of LogGP's L o g G, g is above L + 2 o", "") : err;
}

static int modelfile_cost(modelfile_reader *r, int kind, gci_cost_model *cost)
{
    if (kind > 0 && kind <= GCI_COSTS) {
        int err = gci_model_point(r->env, &cost->curve[kind - 1], r->n[r->ints - 1], r->x[0]);
        return err == GC_ERR_ARG ? modelfile_fail(r, "sizes must ascend", "") : err;
    }
    if (cost->latency >= 0)
        return modelfile_twice(r);
    if (kind > GCI_COSTS)
        return modelfile_loggp(r, cost);
    cost->latency = r->x[0];
    cost->per_byte = r->x[1];
    return GC_OK;
}

/* A table that was worked out before; each choice holds from its size on. */
static int modelfile_table(modelfile_reader *r, int shape)
{
    gci_decisions *table = r->m->table;
    if (shape == MODELFILE_TABLE) {
        bool twice = table->made_for > 0;
        table->made_for = r->n[0];
        return twice ? modelfile_fail_at(r, &r->word[0], "stands twice:") : GC_OK;
    }
    if (table->made_for == 0)
        return modelfile_fail(r, "a choice before the table", "");
    bool fine = gci_decisions_read(table, r->word[1].at, r->word[1].bytes, r->n[0], r->word[3].at, r->word[3].bytes);
    return fine ? GC_OK : modelfile_fail_at(r, &r->word[3], "no such choice:");
}

static int modelfile_costs(modelfile_reader *r, int shape)
{
    gc_model *m = r->m;
    bool sites = shape == MODELFILE_SITE || shape == MODELFILE_SITE_TOGETHER || shape == MODELFILE_TRUNK;
    size_t a = r->n[0], last = shape == MODELFILE_TRUNK || shape >= MODELFILE_BETWEEN ? r->n[1] : a;
    size_t most = (size_t)(sites ? m->sites : m->classes);
    if (shape < MODELFILE_SITE)
        return GC_OK;
    if (shape >= MODELFILE_TABLE)
        return modelfile_table(r, shape);
    if (a >= most || last >= most)
        return modelfile_fail_at(r, &r->word[a >= most ? 1 : 2], sites ? "no such site:" : "no such class:");
    if (!sites && shape < MODELFILE_BETWEEN)
        return modelfile_cost(r, shape - MODELFILE_WITHIN, &m->within[a]);
    if (!sites)
        return modelfile_cost(r, shape - MODELFILE_BETWEEN, &m->between[a * most + last]);
    if ((shape == MODELFILE_TRUNK ? m->trunk[a * most + last] : m->uplink[a].out) >= 0)
        return modelfile_twice(r);
    if (shape == MODELFILE_TRUNK)
        m->trunk[a * most + last] = r->x[0];
    else
        m->uplink[a] = (gci_port){ r->x[0], r->x[1], shape == MODELFILE_SITE_TOGETHER };
    return GC_OK;
}

static int modelfile_turn(modelfile_reader *r, const char *at, const char *end)
{
    int err = GC_OK;
    bool begun = false;
    for (r->line = 1; at < end && err >= 0; r->line++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        modelfile_split(r, at, stop ? stop : end);
        at = stop ? stop + 1 : end;
        if (r->words == 0)
            continue;
        if (!begun && !modelfile_fits(r, modelfile_first, false))
            return modelfile_fail(r, "the first line is not: ", modelfile_first);
        if (begun && (err = modelfile_shape_of(r)) >= 0)
            err = r->m ? modelfile_costs(r, err) : modelfile_what(r, err);
        begun = true;
        r->line -= err < 0;             /* which counts on */
    }
    return err < 0 ? err : GC_OK;
}

/* What may be left out has no limit then. */
static int modelfile_complete(modelfile_reader *r)
{
    gc_model *m = r->m;
    char pair[64];
    for (int i = 0; i < m->sites; i++)
        m->uplink[i].out = gci_max_real(m->uplink[i].out, 0);
    for (int i = 0; i < m->sites * m->sites; i++)
        m->trunk[i] = gci_max_real(m->trunk[i], 0);
    for (int i = 0; i < m->classes * (m->classes + 1); i++) {
        bool within = i >= m->classes * m->classes;
        int of = within ? i - m->classes * m->classes : i;
        if ((within ? m->within : m->between)[of].latency >= 0)
            continue;
        snprintf(pair, sizeof pair, within ? "within %d" : "between %d %d", within ? of : of / m->classes, of % m->classes);
        return modelfile_fail(r, "no line with the latency ", pair);
    }
    return GC_OK;
}

GCI int gci_model_read(gci_env *env, const char *text, size_t bytes, gc_model **out, char error_text[GCI_TEXT])
{
    modelfile_reader r = { .env = env, .error = error_text };
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0), before = uselocale(plain);
    error_text[0] = 0;
    int err = plain ? modelfile_turn(&r, text, text + bytes) : GC_ERR_NOMEM;
    if (err == GC_OK)
        err = modelfile_make(&r);
    if (err == GC_OK)
        err = modelfile_turn(&r, text, text + bytes);
    if (err == GC_OK)
        err = modelfile_complete(&r);
    uselocale(before);
    if (plain)
        freelocale(plain);
    if (err < 0)
        gci_model_drop(env, r.m);
    *out = err < 0 ? NULL : r.m;
    gci_free(env, r.of.class_of);
    gci_free(env, r.of.host_of);
    gci_free(env, r.of.site_of);
    gci_free(env, r.of.nic);
    return err;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

typedef struct modelfile_text { char text[MODELFILE_WORD]; } modelfile_text;

/* With the fewest digits that read as the same number. */
static modelfile_text modelfile_show(double x)
{
    modelfile_text t;
    for (int digits = 6; snprintf(t.text, sizeof t.text, "%.*g", digits, x), digits < 17; digits++) {
        double again = strtod(t.text, NULL);
        if (again >= x && again <= x)
            break;
    }
    return t;
}

static void modelfile_write_port(gci_text *out, const char *name, const gci_port *port)
{
    gci_text_add(out, " %s %s %s %s\n", name, modelfile_show(port->out).text, modelfile_show(port->in).text,
                 port->together ? "together" : "apart");
}

static void modelfile_write_cost(gci_text *out, const char *pair, const gci_cost_model *cost)
{
    static const char *const name[GCI_COSTS] = { "send", "recv", "gap", "way" };
    gci_text_add(out, "%s latency %s per-byte %s\n", pair, modelfile_show(cost->latency).text,
                 modelfile_show(cost->per_byte).text);
    for (int k = 0; k < GCI_COSTS; k++)
        for (int32_t i = 0; i < cost->curve[k].points; i++)
            gci_text_add(out, "%s %s %zu %s\n", pair, name[k], cost->curve[k].point[i].bytes,
                         modelfile_show(cost->curve[k].point[i].seconds).text);
}

static void modelfile_write(const gc_model *m, gci_text *out)
{
    char pair[64];
    gci_text_add(out, "%s\nkind %s\nheader %zu\neager %zu\n", modelfile_first, m->kind == GCI_PLOGP ? "plogp" : "hockney",
                 m->header, m->eager);
    gci_text_add(out, "reduce %s\ncopy %s\n", modelfile_show(m->reduce).text, modelfile_show(m->copy).text);
    for (int i = 0; i < m->ranks; i++)
        gci_text_add(out, "rank %d class %d host %d\n", i, (int)m->class_of[i], (int)m->host_of[i]);
    for (int i = 0; i < m->classes; i++) {
        gci_text_add(out, "class %d site %d", i, (int)m->site_of[i]);
        modelfile_write_port(out, "nic", &m->nic[i]);
    }
    for (int i = 0; i < m->sites; i++) {
        gci_text_add(out, "site %d", i);
        modelfile_write_port(out, "uplink", &m->uplink[i]);
    }
    for (int i = 0; i < m->sites * m->sites; i++)
        if (m->trunk[i] > 0)
            gci_text_add(out, "trunk %d %d %s\n", i / m->sites, i % m->sites, modelfile_show(m->trunk[i]).text);
    for (int i = 0; i < m->classes; i++) {
        snprintf(pair, sizeof pair, "within %d", i);
        modelfile_write_cost(out, pair, &m->within[i]);
    }
    for (int i = 0; i < m->classes * m->classes; i++) {
        snprintf(pair, sizeof pair, "between %d %d", i / m->classes, i % m->classes);
        modelfile_write_cost(out, pair, &m->between[i]);
    }
    if (m->table->made_for == 0)
        return;
    gci_text_add(out, "table %llu\n", (unsigned long long)m->table->made_for);
    gci_decisions_write(m->table, out);
}

GCI int gci_model_write(gci_env *env, const gc_model *m, char **text, size_t *bytes)
{
    gci_text out;
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0), before = uselocale(plain);
    *text = NULL;
    gci_text_begin(&out, NULL, 0);
    if (plain) {
        modelfile_write(m, &out);
        *bytes = out.used;
        *text = gci_alloc(env, out.used + 1);
    }
    if (*text) {
        gci_text_begin(&out, *text, *bytes + 1);
        modelfile_write(m, &out);
    }
    uselocale(before);
    if (plain)
        freelocale(plain);
    return *text ? GC_OK : GC_ERR_NOMEM;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* The whole file; *bytes of it. GC_ERR_SYSTEM: see errno. */
static int modelfile_slurp(gci_env *env, FILE *file, char **text, size_t *bytes)
{
    *text = NULL;
    *bytes = 0;
    for (size_t room = 1 << 16; ; room *= 2) {
        char *grown = gci_realloc(env, *text, room);
        if (!grown)
            return GC_ERR_NOMEM;
        *text = grown;
        errno = 0;
        *bytes += fread(grown + *bytes, 1, room - *bytes, file);
        if (ferror(file))
            return GC_ERR_SYSTEM;
        if (*bytes < room)
            return GC_OK;
        if (room >= MODELFILE_BYTES_MAX) {
            errno = EFBIG;
            return GC_ERR_SYSTEM;
        }
    }
}

int gc_model_load(const char *path, gc_model **model, char *error_text, size_t error_text_bytes)
{
    gci_env env = { .alloc = NULL };
    char why[GCI_TEXT] = "", *text = NULL;
    size_t bytes = 0;
    if (model)
        *model = NULL;
    if (!path || !model || (!error_text && error_text_bytes > 0))
        return GC_ERR_ARG;
    FILE *file = fopen(path, "rbe");
    int err = file ? modelfile_slurp(&env, file, &text, &bytes) : GC_ERR_SYSTEM;
    if (err == GC_ERR_SYSTEM)
        snprintf(why, sizeof why, "%.100s: %s", path, gci_strerrno(-errno));
    if (file)
        fclose(file);
    if (err == GC_OK)
        err = gci_model_read(&env, text, bytes, model, why);
    gci_free(&env, text);
    if (error_text_bytes > 0)
        snprintf(error_text, error_text_bytes, "%s", err < 0 && !why[0] ? gc_strerror(err) : why);
    return err;
}

/* Whole or not at all. */
static bool modelfile_put(const char *path, const char *fresh, const char *text, size_t bytes)
{
    FILE *file = fopen(fresh, "wbe");
    if (!file)
        return false;
    bool written = fwrite(text, 1, bytes, file) == bytes && fflush(file) == 0;
    int why = errno;
    if (fclose(file) != 0 && written) {
        written = false;
        why = errno;
    }
    if (written && rename(fresh, path) == 0)
        return true;
    why = written ? errno : why;
    remove(fresh);
    errno = why;
    return false;
}

int gc_model_save(const gc_model *model, const char *path)
{
    gci_env env = { .alloc = NULL };
    char *text = NULL;
    size_t bytes = 0;
    if (!model || !path)
        return GC_ERR_ARG;
    size_t room = strlen(path) + sizeof ".new";
    char *fresh = gci_alloc(&env, room);
    int err = fresh ? gci_model_write(&env, model, &text, &bytes) : GC_ERR_NOMEM;
    if (err == GC_OK) {
        snprintf(fresh, room, "%s.new", path);
        err = modelfile_put(path, fresh, text, bytes) ? GC_OK : GC_ERR_SYSTEM;
    }
    int why = errno;
    gci_free(&env, text);
    gci_free(&env, fresh);
    errno = why;
    return err;
}
