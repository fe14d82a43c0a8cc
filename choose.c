/* choose.c: which algorithm a collective takes (pure).
 * SPDX-License-Identifier: MIT
 *
 * Fixed rules, of which the first that fits is taken; GRIDCOMM_ALGO=op:name[,op:name...] goes before them. They look only
 * at what every rank knows alike, so all choose alike. A name may carry a number and a segment: "kary:3", "chain@65536".
 *
 * Between clusters it is "wide" (wide.c): nothing else has one wide-area latency. Within one, trees have the fewest messages,
 * which is what counts for short ones when ranks share cores; for those the wide tree, since it has the fewest ranks that a
 * message wakes twice (40 ranks on 2 cores: an allreduce takes 0.62 ms; binomial 0.78, flat 0.56, doubling 1.7). Of two ranks
 * doubling has as few messages as a tree, and half the latency.
 */
#include "gridcomm_int.h"

#include <stdlib.h>

enum { CHOOSE_SHORT = 1024,             /* up to here a message costs its wake-up, not its bytes */
       CHOOSE_GATHER_FLAT = 16 * 1024,  /* bytes per rank above which a gather saves the copies of a tree's inner ranks */
       CHOOSE_SEGMENT = 8 * 1024,       /* between clusters: what is on its way while the next is made ready; */
       CHOOSE_LONG = 256 * 1024,        /* of a longer vector, segments that are granted one by one: no window holds it all, ... */
       CHOOSE_SEGMENTS = 256 };         /* ... and not more of them than this */

static const struct choose_rule {
    enum gci_coll coll;
    bool          apart;                /* only between clusters */
    int           ranks;                /* at most; 0: any */
    size_t        bytes;                /* at most; 0: any */
    const char   *name;
    size_t        segment;
} choose_rules[] = {
    { GCI_COLLS,          true,  0, 0, "wide", CHOOSE_SEGMENT },
    { GCI_BARRIER,        false, 2, 0, "doubling", 0 },
    { GCI_BARRIER,        false, 0, 0, "knomial:8", 0 },
    { GCI_BCAST,          false, 0, CHOOSE_SHORT, "knomial:8", 0 },
    { GCI_BCAST,          false, 0, 0, "binomial", 0 },
    { GCI_SCATTER,        false, 0, CHOOSE_SHORT, "binomial", 0 },
    { GCI_SCATTER,        false, 0, 0, "flat", 0 },
    { GCI_GATHER,         false, 0, CHOOSE_SHORT, "knomial:8", 0 },
    { GCI_GATHER,         false, 0, CHOOSE_GATHER_FLAT, "binomial", 0 },
    { GCI_GATHER,         false, 0, 0, "flat", 0 },
    { GCI_ALLGATHER,      false, 0, CHOOSE_SHORT, "knomial:8", 0 },
    { GCI_ALLGATHER,      false, 0, 0, "ring", 0 },
    { GCI_ALLTOALL,       false, 0, 0, "direct", 0 },
    { GCI_REDUCE,         false, 0, CHOOSE_SHORT, "knomial:8", 0 },
    { GCI_REDUCE,         false, 0, 0, "binomial", 0 },
    { GCI_ALLREDUCE,      false, 2, 0, "doubling", 0 },
    { GCI_ALLREDUCE,      false, 0, CHOOSE_SHORT, "knomial:8", 0 },
    { GCI_ALLREDUCE,      false, 0, 0, "binomial", 0 },
    { GCI_REDUCE_SCATTER, false, 0, 0, "binomial", 0 },
    { GCI_SCAN,           false, 0, 0, "direct", 0 },
    { GCI_EXSCAN,         false, 0, 0, "direct", 0 },
};

/* Bytes of a vector or of a block on average, as far as every rank knows them. */
static size_t choose_bytes(const gci_call *call)
{
    switch (call->coll) {
    case GCI_SCATTER:
    case GCI_GATHER:
    case GCI_ALLTOALL:
        return call->even ? call->own : SIZE_MAX;
    case GCI_ALLGATHER:
        return gci_blocks_bytes(&call->recv, 0, call->ranks) / (size_t)call->ranks;
    case GCI_REDUCE_SCATTER:
        return gci_blocks_bytes(&call->send, 0, call->ranks) / (size_t)call->ranks;
    default:
        return call->bytes;
    }
}

GCI gci_algo_choice gci_choose(const gci_call *call, const gci_algo_choice *forced)
{
    gci_algo_choice choice = { "flat", 0 };
    bool apart = call->clusters && call->clusters->clusters > 1;
    if (call->tree)
        return (gci_algo_choice){ "given", call->segment };
    if (forced->name[0])
        return *forced;
    for (size_t i = 0; i < GCI_COUNT(choose_rules); i++) {
        const struct choose_rule *rule = &choose_rules[i];
        if ((rule->coll == call->coll || rule->coll == GCI_COLLS) && (!rule->apart || apart) &&
            (!rule->ranks || call->ranks <= rule->ranks) && (!rule->bytes || choose_bytes(call) <= rule->bytes)) {
            snprintf(choice.name, sizeof choice.name, "%s", rule->name);
            choice.segment = rule->segment;
            if (rule->segment && call->bytes > CHOOSE_LONG)
                choice.segment = gci_max(2 * GCI_PACKET_MAX, call->bytes / CHOOSE_SEGMENTS);
            return choice;
        }
    }
    return choice;
}

/* Every collective has one that takes every call. */
GCI const char *gci_choose_last(enum gci_coll coll)
{
    return gci_algo_find(coll, "flat") ? "flat" : "direct";
}

/* ---- GRIDCOMM_ALGO ------------------------------------------------------------------------------------------------ */

/* "kary:3@8192" */
static bool choose_read_name(enum gci_coll coll, const char *text, size_t bytes, gci_algo_choice *out)
{
    char word[GCI_ALGO_NAME + 16] = "", *at, *end;
    if (bytes == 0 || bytes >= sizeof word)
        return false;
    memcpy(word, text, bytes);
    unsigned long long segment = 0;
    if ((at = strchr(word, '@')) != NULL) {
        *at++ = 0;
        segment = strtoull(at, &end, 10);
        if (*at < '0' || *at > '9' || *end || segment == 0 || segment > SIZE_MAX / 2)
            return false;
    }
    if (strlen(word) >= sizeof out->name || !gci_algo_find(coll, word))
        return false;
    *out = (gci_algo_choice){ .segment = (size_t)segment };
    memcpy(out->name, word, strlen(word));
    return true;
}

/* One "op:name". */
static int choose_read_one(const char *text, size_t bytes, gci_algo_choice forced[GCI_COLLS], char error_text[GCI_TEXT])
{
    const char *colon = memchr(text, ':', bytes);
    size_t op_bytes = colon ? (size_t)(colon - text) : bytes, name_bytes = colon ? bytes - op_bytes - 1 : 0;
    for (int coll = 0; coll < GCI_COLLS; coll++) {
        const char *op = gci_coll_name((enum gci_coll)coll);
        if (strlen(op) != op_bytes || memcmp(op, text, op_bytes) != 0)
            continue;
        if (colon && choose_read_name((enum gci_coll)coll, colon + 1, name_bytes, &forced[coll]))
            return GC_OK;
        snprintf(error_text, GCI_TEXT, "GRIDCOMM_ALGO: %s has no algorithm \"%.*s\"", op,
                 (int)gci_min(name_bytes, GCI_ALGO_NAME), colon ? colon + 1 : "");
        return GC_ERR_CONFIG;
    }
    snprintf(error_text, GCI_TEXT, "GRIDCOMM_ALGO: no operation \"%.*s\" (want operation:algorithm,...)",
             (int)gci_min(op_bytes, GCI_ALGO_NAME), text);
    return GC_ERR_CONFIG;
}

GCI int gci_choose_read(const char *text, gci_algo_choice forced[GCI_COLLS], char error_text[GCI_TEXT])
{
    while (text && *text) {
        size_t bytes = strcspn(text, ",");
        int err = bytes ? choose_read_one(text, bytes, forced, error_text) : GC_OK;
        if (err < 0)
            return err;
        text += bytes + (text[bytes] == ',');
    }
    return GC_OK;
}
