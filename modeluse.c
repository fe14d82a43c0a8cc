/* modeluse.c: a communicator chooses its algorithms by a model.
 * SPDX-License-Identifier: MIT
 *
 * Rank 0 makes the table (decide.c), because floating point need not give the same on all processors, and tells the others its
 * text and the model's. When all have both, all take them, between the same two collectives of the communicator. If anyone fails
 * nobody does.
 */
#include "gridcomm_int.h"

#include <limits.h>

enum { USE_HEAD = 12,                   /* bytes: rank 0's error, and how long its two texts are; none: no model */
       USE_TABLE_MAX = 1 << 16 };       /* no table has a longer one */

typedef struct use {
    gci_decisions *table;
    gc_model      *model;
    char          *text;                /* of the table, and behind it of the model */
    size_t         table_bytes, model_bytes;
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
    gci_text text;
    int err = gci_model_write(env, model, &of_model, &u->model_bytes);
    gci_text_begin(&text, NULL, 0);
    gci_decisions_write(u->table, &text);
    u->table_bytes = text.used;
    if (err == GC_OK && u->model_bytes > INT_MAX / 2)
        err = GC_ERR_NOMEM;
    if (err == GC_OK && (u->text = gci_alloc(env, u->table_bytes + u->model_bytes + 1)) == NULL)
        err = GC_ERR_NOMEM;
    if (err == GC_OK) {
        gci_text_begin(&text, u->text, u->table_bytes + 1);
        gci_decisions_write(u->table, &text);
        memcpy(u->text + u->table_bytes, of_model, u->model_bytes);
    }
    gci_free(env, of_model);
    return err;
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

/* The worst of all ranks' errors into *mine. */
static int use_agree(gc_comm *comm, int32_t *mine)
{
    return gc_allreduce(comm, mine, mine, 1, GC_INT32, GC_MIN);
}

/* Rank 0's texts to all. all: this rank's error so far; then that of all. Returns that of the collectives: all take part in each
 * of them, whatever has failed before. */
static int use_share(gc_comm *comm, use *u, int32_t *all)
{
    gci_env *env = &comm->world->env;
    char why[GCI_TEXT];
    uint8_t head[USE_HEAD];
    gci_put32(head, (uint32_t)*all);
    gci_put32(head + 4, (uint32_t)u->table_bytes);
    gci_put32(head + 8, (uint32_t)u->model_bytes);
    int err = gc_bcast(comm, head, sizeof head, 0);
    *all = err < 0 ? err : *all < 0 ? *all : (int32_t)gci_get32(head);
    u->table_bytes = gci_get32(head + 4);
    u->model_bytes = gci_get32(head + 8);
    if (*all == GC_OK && (u->table_bytes > USE_TABLE_MAX || u->model_bytes > INT_MAX / 2))
        *all = GC_ERR_PROTOCOL;
    else if (*all == GC_OK && comm->rank != 0 && (u->text = gci_alloc(env, u->table_bytes + u->model_bytes + 1)) == NULL)
        *all = GC_ERR_NOMEM;
    err = use_agree(comm, all);         /* there is room for it everywhere */
    if (err < 0 || *all < 0 || u->model_bytes == 0)
        return err;
    *all = gc_bcast(comm, u->text, u->table_bytes + u->model_bytes, 0);
    if (*all == GC_OK)
        *all = gci_decisions_read(u->text, u->table_bytes, u->table);
    if (*all == GC_OK)
        *all = gci_model_read(env, u->text + u->table_bytes, u->model_bytes, &u->model, why);
    return use_agree(comm, all);
}

GCI int gci_model_adopt(gc_comm *comm, const gc_model *model)
{
    gci_env *env = &comm->world->env;
    use u = { .table = gci_alloc(env, sizeof *u.table) };
    int32_t all = comm->rank == 0 ? use_decide(comm, model, &u) : u.table ? GC_OK : GC_ERR_NOMEM;
    int err = use_share(comm, &u, &all);
    if (err == GC_OK && all == GC_OK) {
        gci_coll_decide_by(comm, u.model ? u.table : NULL, u.model);
        u.table = u.model ? NULL : u.table;
        u.model = NULL;
    }
    use_drop(env, &u);
    if (err < 0)
        return err;                     /* noted already */
    return all < 0 ? gci_fail(comm, all, -1, all == GC_ERR_ARG ? "gc_model_use: rank 0's model is not of %d ranks"
                                                               : "gc_model_use: some of %d ranks failed", comm->size) : GC_OK;
}

int gc_model_use(gc_comm *comm, const gc_model *model)
{
    return comm ? gci_model_adopt(comm, model) : GC_ERR_ARG;
}

/* ---- why --------------------------------------------------------------------------------------------------------- */

static void use_explain(gc_comm *comm, const gci_call *call, const gci_candidate list[], int n, gci_text *out)
{
    gci_algo_choice taken = gci_coll_would_take(comm, call);
    gci_text_add(out, "%s of %zu bytes, %d ranks, root %d\n", gci_coll_name(call->coll), call->bytes, call->ranks, call->root);
    for (int i = 0; i < n; i++) {
        const gci_candidate *c = &list[i];
        char name[GCI_TEXT];
        snprintf(name, sizeof name, c->how.segment ? "%s@%zu" : "%s", c->how.name, c->how.segment);
        bool is_taken = strcmp(c->how.name, taken.name) == 0 && c->how.segment == taken.segment;
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
    int err = clusters ? gci_decide_call(&comm->world->env, model, &call, list, &n) : GC_ERR_NOMEM;
    if (err < 0)
        return gci_fail(comm, err, -1, "gc_explain: %s", gc_strerror(err));
    gci_text out;
    gci_text_begin(&out, text, text_bytes);
    use_explain(comm, &call, list, n, &out);
    if (needed)
        *needed = out.used + 1;
    return GC_OK;
}
