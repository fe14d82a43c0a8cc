/* modeluse.c: a communicator chooses its algorithms by a model.
 * SPDX-License-Identifier: MIT
 *
 * Rank 0 makes the table (decide.c), because floating point need not give the same on all processors, and tells the others its
 * text and the model's. When all have both, all take them, between the same two collectives of the communicator. If anyone fails
 * nobody does. A measured model goes the same way (measure.c).
 */
#include "gridcomm_int.h"

#include <limits.h>

enum { USE_HEAD = 8,                    /* bytes: how long a text, or a part of it, is */
       USE_TEXT_MAX = INT_MAX / 2,      /* no model has a longer one, */
       USE_TABLE_MAX = 1 << 16 };       /* and no table */
static const char use_call[] = "gc_model_use";

/* ---- one rank's text for all --------------------------------------------------------------------------------------- */

/* An error has one byte, which all processors write alike. */
GCI int gci_agree(gc_comm *comm, const char *call, int error)
{
    uint8_t mine = (uint8_t)-error, worst = 0;
    int err = gc_allreduce(comm, &mine, &worst, 1, GC_UINT8, GC_MAX);
    return err < 0 || worst == 0 ? err : gci_fail(comm, -worst, -1, "%s: %s", call, gc_strerror(-worst));
}

GCI int gci_share_text(gc_comm *comm, const char *call, int error, char **text, size_t *bytes)
{
    uint8_t head[USE_HEAD];
    gci_put64(head, *bytes);
    int err = gc_bcast(comm, head, sizeof head, 0);
    uint64_t length = gci_get64(head);
    *bytes = (size_t)length;
    error = error < 0 ? error : err;
    if (error == GC_OK && length > USE_TEXT_MAX)
        error = comm->rank == 0 ? GC_ERR_NOMEM : GC_ERR_PROTOCOL;
    if (error == GC_OK && comm->rank != 0 && (*text = gci_alloc(&comm->world->env, *bytes + 1)) == NULL)
        error = GC_ERR_NOMEM;
    err = gci_agree(comm, call, error);         /* there is room for it everywhere */
    return err == GC_OK && length > 0 ? gc_bcast(comm, *text, *bytes, 0) : err;
}

/* ---- a table and its model ----------------------------------------------------------------------------------------- */

typedef struct use {
    gci_decisions *table;
    gc_model      *model;
    char          *text;                /* how long that of the table is; it; that of the model. No model: none */
    size_t         bytes;
} use;

static void use_drop(gci_env *env, use *u)
{
    gci_free(env, u->table);
    gci_model_drop(env, u->model);
    gci_free(env, u->text);
}

static int use_write(gci_env *env, const gc_model *model, use *u)
{
    char *of_model = NULL;
    size_t model_bytes = 0;
    gci_text text;
    int err = gci_model_write(env, model, &of_model, &model_bytes);
    gci_text_begin(&text, NULL, 0);
    gci_decisions_write(u->table, &text);
    size_t table_bytes = text.used;
    if (err == GC_OK && (u->text = gci_alloc(env, USE_HEAD + table_bytes + model_bytes + 1)) == NULL)
        err = GC_ERR_NOMEM;
    if (err == GC_OK) {
        u->bytes = USE_HEAD + table_bytes + model_bytes;
        gci_put64((uint8_t *)u->text, table_bytes);
        gci_text_begin(&text, u->text + USE_HEAD, table_bytes + 1);
        gci_decisions_write(u->table, &text);
        memcpy(u->text + USE_HEAD + table_bytes, of_model, model_bytes);
    }
    gci_free(env, of_model);
    return err;
}

static int use_read(gci_env *env, use *u)
{
    char why[GCI_TEXT];
    if (u->bytes == 0)
        return GC_OK;
    uint64_t table_bytes = u->bytes < USE_HEAD ? UINT64_MAX : gci_get64((const uint8_t *)u->text);
    if (table_bytes > USE_TABLE_MAX || table_bytes > u->bytes - USE_HEAD)
        return GC_ERR_PROTOCOL;
    const char *of_model = u->text + USE_HEAD + table_bytes;
    int err = gci_decisions_read(u->text + USE_HEAD, (size_t)table_bytes, u->table);
    return err < 0 ? err : gci_model_read(env, of_model, (size_t)(u->text + u->bytes - of_model), &u->model, why);
}

/* At rank 0. */
static int use_decide(gc_comm *comm, const gc_model *model, use *u)
{
    gci_env *env = &comm->world->env;
    const gci_clusters *clusters = gci_coll_clusters(comm);
    if (!model)
        return GC_OK;
    if (model->ranks != comm->size)
        return GC_ERR_ARG;
    int err = clusters && u->table ? gci_decide(env, model, clusters, u->table) : GC_ERR_NOMEM;
    return err == GC_OK ? use_write(env, model, u) : err;
}

GCI int gci_model_adopt(gc_comm *comm, const gc_model *model)
{
    gci_env *env = &comm->world->env;
    use u = { .table = gci_alloc(env, sizeof *u.table) };
    int err = comm->rank == 0 ? use_decide(comm, model, &u) : u.table ? GC_OK : GC_ERR_NOMEM;
    err = gci_share_text(comm, use_call, err, &u.text, &u.bytes);
    err = gci_agree(comm, use_call, err < 0 ? err : use_read(env, &u));
    if (err == GC_OK) {
        gci_coll_decide_by(comm, u.model ? u.table : NULL, u.model);
        u.table = u.model ? NULL : u.table;
        u.model = NULL;
    }
    use_drop(env, &u);
    return err != GC_ERR_ARG ? err : gci_fail(comm, err, -1, "%s: rank 0's model is not of %d ranks", use_call, comm->size);
}

int gc_model_use(gc_comm *comm, const gc_model *model)
{
    return comm ? gci_model_adopt(comm, model) : GC_ERR_ARG;
}

/* ---- why --------------------------------------------------------------------------------------------------------- */

/* What cannot do the call is not in the list: then the rules' own is taken. */
static bool use_is_taken(const gci_candidate *c, const gci_algo_choice *taken)
{
    return strcmp(c->how.name, taken->name) == 0 && c->how.segment == taken->segment;
}

static void use_explain(const gci_call *call, const gci_algo_choice *taken, const gci_candidate list[], int n, gci_text *out)
{
    bool can = false;
    for (int i = 0; i < n; i++)
        can |= use_is_taken(&list[i], taken);
    gci_text_add(out, "%s of %zu bytes, %d ranks, root %d\n", gci_coll_name(call->coll), call->bytes, call->ranks, call->root);
    for (int i = 0; i < n; i++) {
        const gci_candidate *c = &list[i];
        char name[GCI_TEXT];
        snprintf(name, sizeof name, c->how.segment ? "%s@%zu" : "%s", c->how.name, c->how.segment);
        bool is_taken = can ? use_is_taken(c, taken) : c->is_rule;
        gci_text_add(out, "%14.3f us  %-20s%s%s\n", c->seconds * 1e6, name, is_taken ? " taken" : "",
                     c->is_rule ? " by the rules" : "");
    }
}

int gc_explain(gc_comm *comm, const char *operation, size_t bytes, int root, char *text, size_t text_bytes, size_t *needed)
{
    gci_candidate list[GCI_CANDIDATES];
    int n = 0;
    if (!comm || !operation || (!text && text_bytes > 0))
        return GC_ERR_ARG;
    int coll = gci_coll_find(operation, strlen(operation));
    const gc_model *model = gci_coll_model(comm);
    const gci_clusters *clusters = gci_coll_clusters(comm);
    if (coll == GCI_COLLS || root < 0 || root >= comm->size || bytes > SIZE_MAX / 4 / (size_t)comm->size)
        return gci_fail(comm, GC_ERR_ARG, -1, "gc_explain: no such operation or root, or too many bytes");
    if (!model)
        return gci_fail(comm, GC_ERR_UNSUPPORTED, -1, "gc_explain: no model is in use here");
    gci_call call = gci_decide_example((enum gci_coll)coll, comm->size, root, bytes, clusters);
    gci_algo_choice taken = gci_coll_would_take(comm, &call);
    int err = clusters ? gci_decide_call(&comm->world->env, model, &call, &taken, list, &n) : GC_ERR_NOMEM;
    if (err < 0)
        return gci_fail(comm, err, -1, "gc_explain: %s", gc_strerror(err));
    gci_text out;
    gci_text_begin(&out, text, text_bytes);
    use_explain(&call, &taken, list, n, &out);
    if (needed)
        *needed = out.used + 1;
    return GC_OK;
}
