/* gridcomm.c: life cycle, options, communicators: the public face.
 * SPDX-License-Identifier: MIT
 *
 * The world owns everything that a gc_init made: options, memory account, overlay, control thread, communicators. It is
 * built from the ground up and taken down in the opposite order; a failure on the way up takes down what stands.
 *
 * A communicator is a context number and a list of world ranks. The number is drawn by its first member from numbers
 * that no other rank draws, so communicators can be made at the same time by several threads.
 */
#include "gridcomm_int.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

int gc_version(void)
{
    return GRIDCOMM_VERSION_MAJOR * 10000 + GRIDCOMM_VERSION_MINOR * 100 + GRIDCOMM_VERSION_PATCH;
}

/* ---- options -------------------------------------------------------------------------------------------------- */

enum { MAX_LINKS_LEAST = 16, MAX_LINKS_MOST = 1024 };     /* of the default */
#define CREATE_HUNGER (5 * GCI_SECOND)      /* without memory for a message that others wait for: this rank gives itself up */

enum option_kind { OPTION_TEXT, OPTION_INT, OPTION_REAL, OPTION_SIZE };
typedef struct option_row {
    const char *name;           /* GRIDCOMM_<name> */
    enum option_kind kind;
    size_t      at;             /* in gc_options */
    double      least, most;
    double      fallback;
    const char *text;           /* the default of a text */
} option_row;

#define OPTION_AT(field) offsetof(gc_options, field)
static const option_row option_rows[] = {
    { "PORTS", OPTION_TEXT, OPTION_AT(ports), 0, 0, 0, NULL },
    { "ALGO", OPTION_TEXT, OPTION_AT(algo), 0, 0, 0, "" },
    { "PROGRESS", OPTION_TEXT, OPTION_AT(progress), 0, 0, 0, "auto" },
    { "DEBUG", OPTION_TEXT, OPTION_AT(debug), 0, 0, 0, NULL },
    { "START_TIMEOUT", OPTION_REAL, OPTION_AT(start_timeout), 1e-3, 1e6, 60, NULL },
    { "PEER_TIMEOUT", OPTION_REAL, OPTION_AT(peer_timeout), 1e-3, 1e6, 30, NULL },
    { "CREDITS", OPTION_INT, OPTION_AT(credits), 1, 16384, 64, NULL },
    { "QUEUE_PACKETS", OPTION_INT, OPTION_AT(queue_packets), 1, 8, 8, NULL },
    { "EAGER_BUDGET", OPTION_SIZE, OPTION_AT(eager_budget), 65536, 1e15, 16 << 20, NULL },
    { "LINKS", OPTION_TEXT, OPTION_AT(links), 0, 0, 0, NULL },
    { "ROUTING", OPTION_TEXT, OPTION_AT(routing), 0, 0, 0, "updown-dfs" },
    { "LINK_DENSITY", OPTION_REAL, OPTION_AT(link_density), 0, 1, 0, NULL },
    { "MAX_LINKS", OPTION_INT, OPTION_AT(max_links), 1, 1e6, 0, NULL },     /* 0: max_links_default */
    { "IF", OPTION_TEXT, OPTION_AT(interfaces), 0, 0, 0, NULL },
    { "ADVERTISE", OPTION_TEXT, OPTION_AT(advertise), 0, 0, 0, NULL },
    { "STREAMS", OPTION_INT, OPTION_AT(streams), 1, 64, 1, NULL },
    { "MODEL", OPTION_TEXT, OPTION_AT(model), 0, 0, 0, NULL },
    { "ORDER", OPTION_TEXT, OPTION_AT(order), 0, 0, 0, NULL },
    { "STALL", OPTION_REAL, OPTION_AT(stall), 0, 1e9, 0, NULL },
};

void gc_options_init(gc_options *options, size_t size_of_options)
{
    gc_options fresh = GRIDCOMM_OPTIONS_INIT;
    if (!options)
        return;
    memcpy(options, &fresh, gci_min(size_of_options, sizeof fresh));
    options->size = size_of_options;
}

static void *option_field(gc_options *o, const option_row *row)
{
    return (char *)o + row->at;
}

/* Has the caller set it? */
static bool option_is_set(gc_options *o, const option_row *row)
{
    const void *field = option_field(o, row);
    switch (row->kind) {
    case OPTION_TEXT: return *(const char *const *)field != NULL;
    case OPTION_INT:  return *(const int *)field != 0;
    case OPTION_REAL: return *(const double *)field != 0;
    default:          return *(const size_t *)field != 0;
    }
}

static void option_put(gc_options *o, const option_row *row, double value)
{
    void *field = option_field(o, row);
    if (row->kind == OPTION_INT)
        *(int *)field = (int)value;
    else if (row->kind == OPTION_REAL)
        *(double *)field = value;
    else if (row->kind == OPTION_SIZE)
        *(size_t *)field = (size_t)value;
}

static double option_get(gc_options *o, const option_row *row)
{
    const void *field = option_field(o, row);
    return row->kind == OPTION_INT ? *(const int *)field : row->kind == OPTION_REAL ? *(const double *)field
                                                                                      : (double)*(const size_t *)field;
}

static int option_resolve(gci_env *env, gc_options *o, const option_row *row, char error_text[GCI_TEXT])
{
    char name[64];
    snprintf(name, sizeof name, "GRIDCOMM_%s", row->name);
    const char *from_environment = getenv(name);
    if (from_environment && !*from_environment)
        from_environment = NULL;
    bool set = option_is_set(o, row), given = set || from_environment;
    if (row->kind == OPTION_TEXT) {
        const char **field = option_field(o, row);
        const char *value = set ? *field : from_environment ? from_environment : row->text;
        *field = value ? gci_strdup(env, value) : NULL;
        if (!value || *field)
            return GC_OK;
        snprintf(error_text, GCI_TEXT, "out of memory");
        return GC_ERR_NOMEM;
    }
    if (!given) {
        option_put(o, row, row->fallback);
        return GC_OK;
    }
    char *end = NULL;
    double value = set ? option_get(o, row) : strtod(from_environment, &end);
    bool bad = !(value >= row->least && value <= row->most) || (end && *end != '\0') ||
               (row->kind != OPTION_REAL && value != (double)(long long)value);
    if (bad) {
        snprintf(error_text, GCI_TEXT, "%s: %s is not a number from %g to %g", name, set ? "the option" : from_environment,
                 row->least, row->most);
        return GC_ERR_CONFIG;
    }
    option_put(o, row, value);
    return GC_OK;
}

static void options_free(gci_env *env, gc_options *o)
{
    for (size_t i = 0; i < GCI_COUNT(option_rows); i++)
        if (option_rows[i].kind == OPTION_TEXT)
            gci_free(env, *(void **)option_field(o, &option_rows[i]));
}

/* Half of the descriptors that this process may have: the rest is the program's, and the backbone's. */
static int max_links_default(void)
{
    long descriptors = sysconf(_SC_OPEN_MAX);
    if (descriptors < 0 || descriptors / 2 > MAX_LINKS_MOST)
        return MAX_LINKS_MOST;
    return descriptors / 2 > MAX_LINKS_LEAST ? (int)(descriptors / 2) : MAX_LINKS_LEAST;
}

static int direct_resolve(gc_options *o, char error_text[GCI_TEXT])
{
    const char *text = getenv("GRIDCOMM_DIRECT");
    if (o->direct == 0 || o->direct == 1)
        return GC_OK;
    if (o->direct != -1) {
        snprintf(error_text, GCI_TEXT, "GRIDCOMM_DIRECT: the option %d is not 0, 1 or -1", o->direct);
        return GC_ERR_CONFIG;
    }
    if (text && *text && strcmp(text, "0") != 0 && strcmp(text, "1") != 0) {
        snprintf(error_text, GCI_TEXT, "GRIDCOMM_DIRECT: '%.60s' is not 0 or 1", text);
        return GC_ERR_CONFIG;
    }
    o->direct = !(text && strcmp(text, "0") == 0);
    return GC_OK;
}

/* What it says is control's; that nobody can read it must not pass for "no such lines". Rank 0 tells the others. */
static int links_check(const char *path, char error_text[GCI_TEXT])
{
    FILE *file = fopen(path, "re");
    if (file && (getc(file) != EOF || !ferror(file))) {
        fclose(file);
        return GC_OK;
    }
    snprintf(error_text, GCI_TEXT, "GRIDCOMM_LINKS: %.150s: %s", path, gci_strerrno(-errno));
    if (file)
        fclose(file);
    return GC_ERR_CONFIG;
}

static int options_check(gc_options *o, char error_text[GCI_TEXT])
{
    const char *p = o->progress;
    if (strcmp(p, "auto") != 0 && strcmp(p, "poll") != 0 && strcmp(p, "sleep") != 0 && strcmp(p, "thread") != 0) {
        snprintf(error_text, GCI_TEXT, "GRIDCOMM_PROGRESS: '%.60s' is not auto, poll, sleep or thread", p);
        return GC_ERR_CONFIG;
    }
    if (gci_routing_parse(o->routing) < 0) {
        int used = snprintf(error_text, GCI_TEXT, "GRIDCOMM_ROUTING: '%.60s' is not one of", o->routing);
        for (int i = 0; i < GCI_ROUTINGS; i++)
            used += snprintf(error_text + used, (size_t)(GCI_TEXT - used), "%s %s", i > 0 ? "," : "",
                             gci_routing_name((enum gci_routing)i));
        return GC_ERR_CONFIG;
    }
    if (o->order && o->order[0] && strcmp(o->order, "rank") != 0) {
        snprintf(error_text, GCI_TEXT, "GRIDCOMM_ORDER: '%.60s' is not rank", o->order);
        return GC_ERR_CONFIG;
    }
    if (o->max_links == 0)
        o->max_links = max_links_default();
    int err = direct_resolve(o, error_text);
    gci_algo_choice forced[GCI_COLLS] = { 0 };
    return err == GC_OK ? gci_choose_read(o->algo, forced, error_text) : err;
}

/* Explicit options win over the environment, the environment over the defaults. Strings become the world's own. */
static int options_resolve(gci_env *env, const gc_options *given, gc_options *o, char error_text[GCI_TEXT])
{
    *o = *given;
    o->root = o->key = o->cluster = NULL;       /* in the place; here they would outlive the caller's */
    o->error_text = NULL;
    int err = GC_OK;
    for (size_t i = 0; i < GCI_COUNT(option_rows); i++) {
        if (err == GC_OK)
            err = option_resolve(env, o, &option_rows[i], error_text);
        if (err < 0 && option_rows[i].kind == OPTION_TEXT)
            *(const char **)option_field(o, &option_rows[i]) = NULL;    /* the caller's: not ours to free */
    }
    return err == GC_OK ? options_check(o, error_text) : err;
}

/* ---- communicators -------------------------------------------------------------------------------------------- */

static void comm_free(gc_comm *comm)
{
    gci_env *env = &comm->world->env;
    gci_free(env, comm->ranks);
    gci_free(env, comm->sorted);
    gci_free(env, comm);
}

/* comm->sorted: comm ranks in order of their world ranks. Heap sort: no recursion, no bad case. */
static void sort_by_world_rank(int *sorted, const int *ranks, int n)
{
    for (int i = 0; i < n; i++)
        sorted[i] = i;
    for (int start = n / 2, end = n; end > 1;) {
        if (start > 0) {
            start--;
        } else {
            end--;
            int swap = sorted[0];
            sorted[0] = sorted[end];
            sorted[end] = swap;
        }
        for (int at = start, child; (child = 2 * at + 1) < end; at = child) {
            if (child + 1 < end && ranks[sorted[child]] < ranks[sorted[child + 1]])
                child++;
            if (ranks[sorted[at]] >= ranks[sorted[child]])
                break;
            int swap = sorted[at];
            sorted[at] = sorted[child];
            sorted[child] = swap;
        }
    }
}

/* ranks: world ranks of the members, taken over in any case; NULL: the whole world. What comes of it nobody knows yet. */
static int comm_make(gci_world *w, uint32_t context, int *ranks, int size, gc_comm **out)
{
    gc_comm *comm = gci_alloc(&w->env, sizeof *comm);
    int *sorted = ranks ? gci_alloc(&w->env, (size_t)size * sizeof *sorted) : NULL;
    if (!comm || (ranks && !sorted)) {
        gci_free(&w->env, comm);
        gci_free(&w->env, ranks);
        gci_free(&w->env, sorted);
        return GC_ERR_NOMEM;
    }
    *comm = (gc_comm){ .world = w, .context = context, .size = size, .ranks = ranks, .sorted = sorted, .first_dead = -1 };
    if (ranks)
        sort_by_world_rank(sorted, ranks, size);
    comm->rank = gci_comm_rank(comm, w->rank);
    int err = gci_coll_open(comm);
    if (err < 0)
        comm_free(comm);
    else
        *out = comm;
    return err;
}

static void comm_link(gc_comm *comm)
{
    gci_world *w = comm->world;
    gci_enter(w);
    for (int i = 0; i < comm->size; i++)
        if (w->dead[gci_world_rank(comm, i)] && comm->dead++ == 0)
            comm->first_dead = i;
    if (comm->dead > 0)
        gci_unexpected_drop(comm, GCI_CONTEXT_COLL);    /* as when they die later */
    comm->next = w->comms;
    w->comms = comm;
    gci_leave(w);
}

/* The first n ranks of a communicator that nobody knows yet become its members. */
static void comm_settle(gc_comm *comm, uint32_t context, int n)
{
    gci_env *env = &comm->world->env;
    int *ranks = gci_realloc(env, comm->ranks, (size_t)n * sizeof *ranks);      /* less than before: no error */
    int *sorted = gci_realloc(env, comm->sorted, (size_t)n * sizeof *sorted);
    comm->ranks = ranks ? ranks : comm->ranks;
    comm->sorted = sorted ? sorted : comm->sorted;
    comm->context = context;
    comm->size = n;
    sort_by_world_rank(comm->sorted, comm->ranks, n);
    comm->rank = gci_comm_rank(comm, comm->world->rank);
    comm_link(comm);
}

static void comm_discard(gc_comm *comm)
{
    if (!comm)
        return;
    gci_coll_close(comm);
    comm_free(comm);
}

static void comm_unlink(gc_comm *comm)
{
    gci_world *w = comm->world;
    gc_comm **at = &w->comms;
    while (*at != comm)
        at = &(*at)->next;
    *at = comm->next;
}

int gc_comm_free(gc_comm *comm)
{
    if (!comm || comm == comm->world->self)
        return GC_ERR_ARG;
    gci_world *w = comm->world;
    gci_enter(w);
    int pending = comm->requests;
    if (pending == 0) {
        comm_unlink(comm);
        gci_comm_drop_messages(comm);
        gci_coll_close(comm);
    }
    gci_leave(w);
    if (pending > 0)
        return gci_fail(comm, GC_ERR_PENDING, -1, "%d requests or messages are pending", pending);
    comm_free(comm);
    return GC_OK;
}

/* Contexts of which no other rank draws any; 0: this rank has drawn all that it has. They are not used again: of a communicator that
 * was freed something may still be on its way. */
static uint32_t context_draw(gci_world *w)
{
    gci_enter(w);
    uint32_t ranks = (uint32_t)w->ranks, drawn = 0;
    if (w->contexts < (UINT32_MAX / GCI_CONTEXT_KINDS - 1) / ranks)
        drawn = w->contexts++ * ranks + (uint32_t)w->rank + 1;
    gci_leave(w);
    return drawn * GCI_CONTEXT_KINDS;
}

/* All memory that a communicator of n of these ranks, the listed ones or the first, takes, before the others hear anything: what is
 * agreed on cannot fail then. Returns GC_OK or GC_ERR_NOMEM, which the others are to be told. */
static int comm_prepare(gc_comm *comm, const int listed[], int n, gc_comm **out)
{
    int *ranks = gci_alloc(&comm->world->env, (size_t)n * sizeof *ranks);
    for (int i = 0; ranks && i < n; i++)
        ranks[i] = gci_world_rank(comm, listed ? listed[i] : i);
    return ranks ? comm_make(comm->world, 0, ranks, n, out) : GC_ERR_NOMEM;
}

static int comm_no_memory(gc_comm *comm)
{
    return gci_fail(comm, GC_ERR_NOMEM, -1, "no memory, or no number, for a communicator, here or at another of %d ranks", comm->size);
}

enum { DUP_BYTES = 5 };                 /* on the wire: of rank 0 the context; did anybody fail? */

int gc_comm_dup(gc_comm *comm, gc_comm **out)
{
    if (!comm || !out)
        return GC_ERR_ARG;
    *out = NULL;
    gc_comm *made = NULL;
    uint8_t mine[DUP_BYTES] = { 0 }, all[DUP_BYTES];
    uint32_t context = comm->rank == 0 ? context_draw(comm->world) : 0;
    mine[4] = comm_prepare(comm, NULL, comm->size, &made) < 0 || (comm->rank == 0 && context == 0);
    gci_put32(mine, context);
    int err = gc_allreduce(comm, mine, all, DUP_BYTES, GC_UINT8, GC_BOR);
    if (err == GC_OK && all[4])
        err = comm_no_memory(comm);
    if (err < 0) {
        comm_discard(made);
        return err;
    }
    comm_settle(made, gci_get32(all), comm->size);
    *out = made;
    return GC_OK;
}

enum { SPLIT_BYTES = 12 };              /* on the wire: colour, key, a context drawn */
typedef struct split_entry { int32_t color, key; uint32_t context; } split_entry;

static split_entry split_read(const uint8_t *all, int rank)
{
    const uint8_t *at = all + (size_t)rank * SPLIT_BYTES;
    return (split_entry){ (int32_t)gci_get32(at), (int32_t)gci_get32(at + 4), gci_get32(at + 8) };
}

/* The members of a colour in order of key, then of rank in the old communicator. Returns how many. */
static int split_members(const gc_comm *comm, const uint8_t *all, int color, int member[])
{
    int n = 0;
    for (int rank = 0; rank < comm->size; rank++) {
        split_entry entry = split_read(all, rank);
        if (entry.color != color)
            continue;
        int at = n++;
        for (; at > 0 && split_read(all, member[at - 1]).key > entry.key; at--)
            member[at] = member[at - 1];
        member[at] = rank;
    }
    return n;
}

/* Of all ranks, for which it was prepared, a communicator gets those of its colour. */
static void split_settle(const gc_comm *comm, const uint8_t *all, int color, gc_comm *made)
{
    int n = split_members(comm, all, color, made->ranks);
    uint32_t context = split_read(all, made->ranks[0]).context;
    for (int i = 0; i < n; i++)
        made->ranks[i] = gci_world_rank(comm, made->ranks[i]);
    comm_settle(made, context, n);
}

int gc_comm_split(gc_comm *comm, int color, int key, gc_comm **out)
{
    if (!comm || !out)
        return GC_ERR_ARG;
    *out = NULL;
    if (color < 0 && color != GC_UNDEFINED)
        return gci_fail(comm, GC_ERR_ARG, -1, "colour %d is neither >= 0 nor GC_UNDEFINED", color);
    gci_world *w = comm->world;
    gc_comm *made = NULL;
    uint8_t mine[SPLIT_BYTES], *all = gci_alloc(&w->env, (size_t)comm->size * SPLIT_BYTES);
    int err = !all ? GC_ERR_NOMEM : color == GC_UNDEFINED ? GC_OK : comm_prepare(comm, NULL, comm->size, &made);
    gci_put32(mine, (uint32_t)color);
    gci_put32(mine + 4, (uint32_t)key);
    uint32_t context = color == GC_UNDEFINED ? 0 : context_draw(w);
    err = err == GC_OK && context == 0 && color != GC_UNDEFINED ? comm_no_memory(comm) : err;
    gci_put32(mine + 8, context);
    err = gci_allgather_unless(comm, err, mine, sizeof mine, all);
    if (err == GC_OK && made)
        split_settle(comm, all, color, made);
    else
        comm_discard(made);
    *out = err == GC_OK ? made : NULL;
    gci_free(&w->env, all);
    return err;
}

static bool create_is_over(void *arg)
{
    const gc_comm *comm = arg;
    return gci_comm_gone(comm, comm->rank) < 0;
}

/* One message of gc_comm_create between two listed ranks. The other one waits for it: without memory it is tried again, until this
 * rank gives itself up. */
static int create_trade(gc_comm *comm, bool send, void *buf, size_t bytes, int peer, int tag)
{
    gci_world *w = comm->world;
    gci_sys *sys = w->env.sys;
    gci_post post = { .kind = GCI_CONTEXT_CREATE, .tag = (uint32_t)tag };
    bool posted = false;
    int err = GC_ERR_NOMEM;
    gci_enter(w);
    for (int64_t until = 0; err == GC_ERR_NOMEM; ) {
        gc_request *r;
        err = send ? gci_send_post(comm, buf, bytes, peer, &post, &r) : gci_recv_post(comm, buf, bytes, peer, &post, &r);
        posted = err == GC_OK;
        if (posted)
            err = gci_request_wait_inside(&r, GCI_FOREVER, NULL);
        if (err != GC_ERR_NOMEM || create_is_over(comm))
            break;
        int64_t now = sys->now(sys);
        until = until ? until : now + CREATE_HUNGER;
        if (now >= until)
            gci_give_up(w->p2p, w->rank, GC_ERR_NOMEM, "it has no memory for gc_comm_create");
        gci_overlay_wait(w->overlay, create_is_over, comm, NULL, now + GCI_MEMORY_PAUSE);
        posted = false;
        err = gci_comm_gone(comm, peer) < 0 ? gci_comm_gone(comm, peer) : err;
    }
    gci_leave(w);
    return err == GC_OK || posted ? err : gci_post_failed(comm, err, peer);
}

enum { CREATE_BYTES = 12 };             /* on the wire: context, hash of the list, GC_OK or why it failed */
typedef struct create_offer { uint32_t context, list_hash; int code; } create_offer;

static int create_send(gc_comm *comm, const create_offer *offer, int peer, int tag)
{
    uint8_t wire[CREATE_BYTES];
    gci_put32(wire, offer->context);
    gci_put32(wire + 4, offer->list_hash);
    gci_put32(wire + 8, (uint32_t)-offer->code);
    return create_trade(comm, true, wire, sizeof wire, peer, tag);
}

static int create_receive(gc_comm *comm, create_offer *offer, int peer, int tag)
{
    uint8_t wire[CREATE_BYTES] = { 0 };
    int err = create_trade(comm, false, wire, sizeof wire, peer, tag);
    *offer = (create_offer){ gci_get32(wire), gci_get32(wire + 4), -(int)gci_get32(wire + 8) };
    return err;
}

/* The lowest of the listed ranks hears every other one and answers all that live: with the context, or with what went
 * wrong, so that nobody waits for it. */
static int create_agree(gc_comm *comm, const int ranks[], int n, int tag, create_offer *offer)
{
    int first = ranks[0];
    for (int i = 1; i < n; i++)
        first = ranks[i] < first ? ranks[i] : first;
    int err = GC_OK;
    create_offer theirs = { 0 };
    if (comm->rank == first) {
        offer->context = context_draw(comm->world);
        offer->code = offer->code == GC_OK && offer->context == 0 ? GC_ERR_NOMEM : offer->code;
        for (int i = 0; i < n; i++) {
            err = ranks[i] == first ? GC_OK : create_receive(comm, &theirs, ranks[i], tag);
            if (err == GC_OK && ranks[i] != first)
                err = theirs.list_hash != offer->list_hash ? GC_ERR_MISMATCH : theirs.code;
            if (err < 0 && offer->code == GC_OK)
                offer->code = err;
        }
        for (int i = 0; i < n; i++)
            if (ranks[i] != first && create_send(comm, offer, ranks[i], tag) < 0 && offer->code == GC_OK)
                offer->code = GC_ERR_PEER;
    } else {
        err = create_send(comm, offer, first, tag);
        if (err == GC_OK)
            err = create_receive(comm, &theirs, first, tag);
        if (err < 0)
            return err;
        *offer = theirs;
    }
    if (offer->code == GC_ERR_MISMATCH)
        return gci_fail(comm, GC_ERR_MISMATCH, -1, "the ranks listed for gc_comm_create differ between members");
    return offer->code < 0 ? gci_fail(comm, offer->code, -1, "a listed rank failed: %s", gc_strerror(offer->code)) : GC_OK;
}

/* GC_ERR_NOMEM a listed rank has to tell the others, if they have no reason to return at once. */
static int create_check(gc_comm *comm, const int ranks[], int n, bool *listed)
{
    gci_env *env = &comm->world->env;
    if (n < 1 || n > comm->size || !ranks)
        return gci_fail(comm, GC_ERR_ARG, -1, "a list of %d ranks out of %d", n, comm->size);
    uint8_t *seen = gci_alloc(env, (size_t)comm->size);
    int bad = -1;
    for (int i = 0; i < n && bad < 0; i++) {
        bool twice = false;
        for (int k = 0; k < i && !seen; k++)
            twice |= ranks[k] == ranks[i];
        if (ranks[i] < 0 || ranks[i] >= comm->size || twice || (seen && seen[ranks[i]]++))
            bad = i;
        *listed |= ranks[i] == comm->rank;
    }
    gci_free(env, seen);
    if (bad >= 0)
        return gci_fail(comm, GC_ERR_ARG, -1, "rank %d in the list is out of range or there twice", ranks[bad]);
    return seen ? GC_OK : comm_no_memory(comm);
}

int gc_comm_create(gc_comm *comm, const int ranks[], int n, gc_comm **out)
{
    return gc_comm_create_tagged(comm, ranks, n, 0, out);
}

int gc_comm_create_tagged(gc_comm *comm, const int ranks[], int n, int tag, gc_comm **out)
{
    if (!comm || !out)
        return GC_ERR_ARG;
    *out = NULL;
    if (tag < 0 || tag > GC_TAG_MAX)
        return gci_fail(comm, GC_ERR_ARG, -1, "tag %d is not in 0 .. %d", tag, GC_TAG_MAX);
    bool listed = false;
    int err = create_check(comm, ranks, n, &listed);
    if (err == GC_ERR_ARG || !listed)
        return err;
    gc_comm *made = NULL;
    if (err == GC_OK)
        err = comm_prepare(comm, ranks, n, &made);
    create_offer offer = { 0, 2166136261u, err };       /* FNV-1a over the list */
    for (int i = 0; i < n; i++)
        offer.list_hash = (offer.list_hash ^ (uint32_t)ranks[i]) * 16777619u;
    err = create_agree(comm, ranks, n, tag, &offer);
    if (err < 0) {
        comm_discard(made);
        return err;
    }
    comm_settle(made, offer.context, n);
    *out = made;
    return GC_OK;
}

int gc_comm_shrink(gc_comm *comm, gc_comm **out)
{
    if (!comm || !out)
        return GC_ERR_ARG;
    *out = NULL;
    gci_world *w = comm->world;
    gc_comm *made = NULL;
    uint8_t *lost = gci_alloc(&w->env, (size_t)comm->size);
    int err = lost ? comm_prepare(comm, NULL, comm->size, &made) : GC_ERR_NOMEM, n = 0;
    if (err < 0) {
        gci_fail(comm, err, -1, "no memory for a communicator of %d ranks", comm->size);
    } else {
        uint32_t context = context_draw(w);
        err = context ? gci_shrink(comm, &context, lost) : comm_no_memory(comm);
        for (int i = 0; i < comm->size && err == GC_OK; i++)
            if (!lost[i])
                made->ranks[n++] = made->ranks[i];
        if (err == GC_OK)
            comm_settle(made, context, n);
        else
            comm_discard(made);
        *out = err == GC_OK ? made : NULL;
    }
    gci_free(&w->env, lost);
    return err;
}

int gc_get_stats(const gc_comm *world, gc_stats *stats)
{
    if (!world || !stats || stats->size < sizeof(size_t))
        return GC_ERR_ARG;
    gci_world *w = world->world;
    gci_enter(w);
    gc_stats now = w->stats;
    gci_leave(w);
    now.size = gci_min(stats->size, sizeof now);
    now.memory = atomic_load(&w->env.memory);
    now.memory_peak = atomic_load(&w->env.memory_peak);
    memcpy(stats, &now, now.size);
    return GC_OK;
}

/* ---- life cycle ----------------------------------------------------------------------------------------------- */

static const char *environment(void *user, const char *name)
{
    (void)user;
    return getenv(name);
}

static void world_free(gci_world *w)
{
    gci_sys *sys = w->env.sys;
    gci_p2p_close(w);
    gci_control_stop(w->control, false);        /* it has left; the overlay looked at it to the last */
    while (w->comms) {
        gc_comm *comm = w->comms;
        w->comms = comm->next;
        gci_coll_close(comm);
        comm_free(comm);
    }
    for (gc_request *r = w->spare_requests, *next; r; r = next) {
        next = r->next;
        gci_free(&w->env, r);
    }
    if (w->monitor)
        sys->monitor_free(sys, w->monitor);
    if (w->pmi.kind == GCI_PMI_PORT && w->pmi.fd >= 0)
        sys->close(sys, w->pmi.fd);     /* of a job that has failed; the launcher ends what is left of it */
    gci_stall_close(w);
    gci_free(&w->env, w->ops);
    gci_free(&w->env, w->dead);
    options_free(&w->env, &w->options);
    gci_env env;                        /* the world's account closes with the world */
    gci_env_init(&env, sys, NULL);
    env.alloc = w->env.alloc;
    env.alloc_user = w->env.alloc_user;
    atomic_store(&env.memory, atomic_load(&w->env.memory));
    gci_free(&env, w);
}

static int world_start(gci_world *w, const gci_place *place, char error_text[GCI_TEXT])
{
    static const gci_p2p_upcalls upcalls = { gci_coll_signature, gci_coll_fail, gci_stall_notice, gci_coll_is_over };
    gci_sys *sys = w->env.sys;
    char name[GCI_HOST_NAME_BYTES];
    snprintf(error_text, GCI_TEXT, "out of memory or descriptors");
    w->dead = gci_alloc(&w->env, (size_t)w->ranks);
    int err = sys->host(sys, w->own_host, name);
    if (err < 0)
        return GC_ERR_SYSTEM;
    snprintf(w->own_cluster, sizeof w->own_cluster, "%s", place->cluster);
    if (!w->dead || sys->monitor(sys, &w->monitor) < 0)
        return GC_ERR_NOMEM;
    err = gci_stall_open(w);            /* before there is a thread that would look */
    if (err == GC_OK)
        err = gci_p2p_open(w, &upcalls);
    if (err == GC_OK)                   /* before anybody joins: from there on nothing may fail for this rank alone */
        err = comm_make(w, 0, NULL, w->ranks, &w->self);
    if (err < 0)
        return err;
    comm_link(w->self);
    if (w->ranks > 1) {
        err = gci_control_start(&w->control, &w->env, &w->options, place, gci_overlay_news, w->overlay, error_text);
        if (err < 0)
            return err;
        w->table = gci_control_table(w->control);
    }
    gci_overlay_start(w->overlay, w->control);
    return GC_OK;
}

/* GRIDCOMM_MODEL, which only rank 0 reads: before anybody joins, so that a bad file fails at once. */
static int world_load_model(const gci_world *w, gc_model **out, char error_text[GCI_TEXT])
{
    char why[GCI_TEXT];
    const char *path = w->options.model;
    if (w->rank != 0 || !path || !path[0])
        return GC_OK;
    int err = gc_model_load(path, out, why, sizeof why);
    if (err == GC_OK && (*out)->ranks != w->ranks) {
        snprintf(error_text, GCI_TEXT, "GRIDCOMM_MODEL: %.100s is of %d ranks, this job has %d", path, (*out)->ranks, w->ranks);
        return GC_ERR_CONFIG;
    }
    if (err < 0)
        snprintf(error_text, GCI_TEXT, "GRIDCOMM_MODEL: %.200s", why);
    return err == GC_ERR_SYSTEM ? GC_ERR_CONFIG : err;
}

static int world_use_model(gci_world *w, const gc_model *model, char error_text[GCI_TEXT])
{
    bool modelled = w->table ? w->table->modelled : model != NULL;
    int err = modelled ? gci_model_adopt(w->self, model) : GC_OK;
    if (err < 0)
        gc_last_error(w->self, NULL, error_text, GCI_TEXT);
    return err;
}

static int world_make(gci_env *env, const gc_options *options, gci_world **out, char error_text[GCI_TEXT])
{
    gci_place place;
    int err = gci_place_find(options, environment, NULL, &place, error_text);
    if (err < 0)
        return err;
    gci_world *w = gci_alloc(env, sizeof *w);
    if (!w) {
        snprintf(error_text, GCI_TEXT, "out of memory");
        return GC_ERR_NOMEM;
    }
    w->env = (gci_env){ .sys = env->sys, .alloc = env->alloc, .alloc_user = env->alloc_user, .log = env->log,
                        .log_user = env->log_user, .debug = env->debug };
    w->env.rank = place.rank;
    atomic_store(&w->env.memory, atomic_load(&env->memory));
    err = options_resolve(&w->env, options, &w->options, error_text);
    if (err == GC_OK)
        err = gci_pmi_begin(&w->env, &place, w->options.start_timeout, error_text);
    w->env.rank = w->rank = place.rank;
    w->ranks = place.ranks;
    w->pmi = place.pmi;
    if (err == GC_OK && w->options.links && w->rank == 0)
        err = links_check(w->options.links, error_text);
    gc_model *model = NULL;
    if (err == GC_OK)
        err = world_load_model(w, &model, error_text);
    if (err == GC_OK)
        err = world_start(w, &place, error_text);
    if (err == GC_OK)
        err = world_use_model(w, model, error_text);
    gc_model_free(model);
    if (err < 0) {
        if (w->control)
            gci_control_leave(w->control, false);
        world_free(w);
        return err;
    }
    *out = w;
    return GC_OK;
}

GCI int gci_open(gc_comm **out, const gc_options *options, gci_sys *sys)
{
    if (out)
        *out = NULL;
    if (!out || (options && options->size < sizeof options->size))
        return GC_ERR_ARG;
    gc_options basic = GRIDCOMM_OPTIONS_INIT;
    if (options)                        /* of an older caller it may be shorter */
        memcpy(&basic, options, gci_min(options->size, sizeof basic));
    if (!basic.debug)
        basic.debug = getenv("GRIDCOMM_DEBUG");
    gci_env env;
    gci_env_init(&env, sys, &basic);
    gci_world *w = NULL;
    char text[GCI_TEXT] = "";
    int err = world_make(&env, &basic, &w, text);
    if (err == GC_OK) {
        *out = w->self;
        return GC_OK;
    }
    gci_log(&env, GC_LOG_ERROR, "gc_init: %s: %s", gc_strerror(err), text);
    if (basic.error_text && basic.error_text_size > 0)
        snprintf(basic.error_text, basic.error_text_size, "%s", text[0] ? text : gc_strerror(err));
    return err;
}

int gc_init(gc_comm **world, const gc_options *options)
{
    return gci_open(world, options, gci_sys_real());
}

int gc_finalize(gc_comm *comm)
{
    if (!comm || comm != comm->world->self)
        return GC_ERR_ARG;
    gci_world *w = comm->world;
    gci_sys *sys = w->env.sys;
    int pending = 0;
    gci_enter(w);
    for (gc_comm *c = w->comms; c; c = c->next)
        pending += c->requests;
    w->ending = pending == 0;
    gci_leave(w);
    if (pending > 0)
        return gci_fail(comm, GC_ERR_PENDING, -1, "%d requests or messages are pending", pending);
    int err = gci_coll_last_barrier(comm);
    if (w->control) {
        if (err == GC_OK) {
            gci_enter(w);
            gci_p2p_farewell(w, sys->now(sys) + (int64_t)(w->options.peer_timeout * (double)GCI_SECOND));
            gci_leave(w);
        }
        gci_control_leave(w->control, err == GC_OK);
    }
    if (err == GC_OK)                   /* else the launcher ends what is left of the job with this process */
        gci_pmi_end(&w->env, &w->pmi);
    world_free(w);
    return err;
}

int gc_abort(gc_comm *comm, int code)
{
    if (!comm)
        return GC_ERR_ARG;
    gci_world *w = comm->world;
    gci_news news = { .kind = GCI_NEWS_NOTICE, .rank = w->rank, .fd = -1, .code = GC_ERR_ABORTED };
    news.notice = (gci_notice){ .kind = GCI_NOTICE_ABORT, .origin = (uint32_t)w->rank, .word = { (uint32_t)code } };
    gci_overlay_news(w->overlay, &news);    /* first: before any news of those who leave because of it */
    int err = w->control ? gci_control_notify(w->control, &news.notice) : GC_OK;
    if (atomic_load(&w->applies))       /* perhaps by the operation that calls this, inside the monitor: the next call sees to it */
        return err;
    gci_enter(w);
    gci_overlay_poll(w->overlay, -1);
    gci_leave(w);
    return err;
}
