/* modeluse.c: a communicator chooses its algorithms by a model.
 * SPDX-License-Identifier: MIT
 *
 * Rank 0 makes the table (decide.c), because floating point need not give the same on all processors; or the model has one for
 * these clusters from before. The others are told the text of both. When all have it, all take it, between the same two
 * collectives of the communicator. If anyone fails nobody does. A measured model goes the same way (measure.c).
 */
#include "gridcomm_int.h"

#include <limits.h>

enum { USE_HEAD = 8,                    /* bytes: how long a text is */
       USE_TEXT_MAX = INT_MAX / 2 };    /* no model has a longer one */
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

/* ---- a model and its table ----------------------------------------------------------------------------------------- */

/* At rank 0: the model's text, with its table. */
static int use_write(gc_comm *comm, const gc_model *model, char **text, size_t *bytes)
{
    gci_env *env = &comm->world->env;
    const gci_clusters *clusters = gci_coll_clusters(comm);
    if (!model)
        return GC_OK;
    if (model->ranks != comm->size)
        return GC_ERR_ARG;
    int err = clusters ? GC_OK : GC_ERR_NOMEM;
    if (err == GC_OK)
        err = gci_decide(env, model, clusters, model->table);
    return err == GC_OK ? gci_model_write(env, model, text, bytes) : err;
}

GCI int gci_model_adopt(gc_comm *comm, const gc_model *model)
{
    gci_env *env = &comm->world->env;
    gc_model *own = NULL;
    char *text = NULL, why[GCI_TEXT];
    size_t bytes = 0;
    int err = comm->rank == 0 ? use_write(comm, model, &text, &bytes) : GC_OK;
    err = gci_share_text(comm, use_call, err, &text, &bytes);
    if (err == GC_OK && bytes > 0)
        err = gci_model_read(env, text, bytes, &own, why);
    err = gci_agree(comm, use_call, err);
    if (err == GC_OK)
        gci_coll_decide_by(comm, own);
    else
        gci_model_drop(env, own);
    gci_free(env, text);
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
