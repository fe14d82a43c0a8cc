/* choose.c: which algorithm a collective takes (pure).
 * SPDX-License-Identifier: MIT
 *
 * Fixed rules, of which the first that fits is taken; if its algorithm cannot do the call (an operation that does not commute,
 * say), the next. GRIDCOMM_ALGO=op:name[,op:name...] goes before them. They look only at what every rank knows alike, so all
 * choose alike. A name may carry a number and a segment: "kary:3", "chain@65536".
 *
 * Between clusters it is "wide" (wide.c): nothing else has one wide-area latency. "wide-divided" has two, and out of a cluster go
 * 2 (c - 1) / c vectors of an allreduce instead of c - 1, of a bcast 1: some c - 2 fewer. On shared uplinks that pays where they
 * are more than the L B bytes that a latency is worth. Nothing here knows L and B: CHOOSE_WORTH is of a slow link, since where it
 * is too small a collective takes twice its least time at most, and where it is too large, c / 2 times or c - 1.
 *
 * Between the hosts of one, where they have several ranks, the same algorithms pay for the same reason, since a host's ranks share
 * its NIC ("by-host"); but few bytes are worth a latency there, and beyond CHOOSE_FEW_HOSTS rounds of pairs have fewer messages at a
 * time than everybody to everybody. One vector to or from all goes host by host, without a step of its own for each host ("nested").
 * Time beside that of the rules for ranks alone, simulated as below:
 *
 *                     4 hosts of 8 ranks            16 hosts of 2
 *                     8 B   1 KiB  64 KiB  1 MiB    8 B   1 KiB  64 KiB  1 MiB
 *     barrier         0.55                          0.32
 *     bcast           1.00  1.00   0.36    0.23     1.03  1.08   0.74    0.59
 *     reduce          1.00  1.00   0.35    0.27     1.01  0.96   0.73    0.62
 *     allreduce       0.55  0.61   0.16    0.12     0.33  0.47   0.43    0.34
 *     allgather       0.53  0.19   0.13             0.30  0.53   0.51
 *     reduce_scatter  0.40  0.20   0.10             0.28  0.32   0.33
 *     alltoall        0.48                          0.29
 *
 * Among ranks that are alike:
 *
 * Short ones take a tree, which has the fewest messages: that counts where ranks share cores, and a wide tree has the fewest
 * ranks that a message wakes twice (40 ranks on 2 cores: an allreduce takes 0.62 ms; binomial 0.78, flat 0.56, doubling 1.7).
 * Of up to four ranks doubling has few more messages, and half the latency.
 *
 * Long ones take what loads every NIC equally: circulant graphs, which from 8 KiB on little beats by more than a twentieth, for
 * any number of ranks; allgather takes doubling where it can, which has the same rounds and bytes and copies nothing. ms in the
 * simulated network, a host for each rank, 1 Gbit/s, 50 us:
 *
 *                  8 ranks, 64 KiB                             8 ranks, 1 MiB
 *     bcast        1.0; chain 1.4, scatter 1.5, binomial 3.2   10.1; chain 11.1, scatter 24, binomial 50
 *     reduce       1.0; halving 1.2, chain 1.4, binomial 1.7   10.2; chain 11.1, halving 15, binomial 25
 *     allreduce    1.2; halving 1.2, ring 1.6, doubling 1.7    15.0; halving 15, ring 15.5, doubling 25
 *
 * Blocks of an alltoall go all at once where queues hold them, or last long enough for TCP to share the links; else in turn, since
 * a burst of flows from everybody overflows the queue of a port. Real sockets, 8 hosts, 1 Gbit/s: 64 KiB 5.5 ms and 6.4 all at
 * once, 128 KiB 11 and 19, 512 KiB 44 and 44, 4 MiB 345 and 295.
 *
 * On one host memory is the network, and what saves messages is no worse up to CHOOSE_ONE_HOST.
 */
#include "gridcomm_int.h"

#include <stdlib.h>

enum { CHOOSE_TINY = 256,               /* up to here it is cheaper to send a block on, and again, than to each rank its own */
       CHOOSE_SHORT = 1024,             /* up to here a message costs its wake-up, not its bytes */
       CHOOSE_MIDDLE = 8 * 1024,        /* up to here latencies count, not bytes */
       CHOOSE_BURST = 16 * 1024,        /* blocks of an alltoall that queues on the way hold, if all are sent at once, */
       CHOOSE_FLOW = 256 * 1024,        /* and beyond which TCP has the time to find each flow's share */
       CHOOSE_ONE_HOST = 64 * 1024,
       CHOOSE_BLOCKS = 16 * 1024,       /* beyond, the copies of a tree's inner ranks cost more than its messages save */
       CHOOSE_SEGMENT = 8 * 1024,       /* what is on its way while the next is made ready; */
       CHOOSE_SEGMENTS = 64,            /* of a longer vector as many as this, */
       CHOOSE_SEGMENT_MAX = 128 * 1024, /* none longer than 1 ms at 1 Gbit/s */
       CHOOSE_NEAR = 32 * 1024,         /* between hosts, where half of it costs cores more than it gains */
       CHOOSE_WORTH = 64 * 1024,        /* bytes that a cluster sends in a wide-area latency; */
       CHOOSE_SHARES = 64,              /* no share of a divided vector is less than that part of these */
       CHOOSE_FEW_HOSTS = 16, CHOOSE_FEW_RANKS = 64,        /* a block for each other rank of a host is few messages then */
       CHOOSE_FAR = 256 * 1024,         /* between clusters: of a longer vector, segments that are granted one by one, because no
                                           window holds it all */
       CHOOSE_MOST_SEGMENTS = 256 };    /* of any: schedules stay short */

/* More: three or more. Hosts: of one cluster, if they have several ranks; few: CHOOSE_FEW_HOSTS at most. */
enum choose_where { ANYWHERE, ON_ONE_HOST, BETWEEN_CLUSTERS, BETWEEN_MORE, BETWEEN_HOSTS, BETWEEN_FEW_HOSTS, BETWEEN_MORE_FEW_HOSTS };

static const struct choose_rule {
    enum gci_coll     coll;             /* GCI_COLLS: any */
    enum choose_where where;
    int               ranks;            /* at most; 0: any */
    size_t            bytes;            /* at most; 0: any. Between more: that dividing spares the links */
    bool              cut;              /* into segments */
    const char       *name;
} choose_rules[] = {
    { GCI_BCAST,          BETWEEN_MORE, 0, CHOOSE_WORTH, true, "wide" },
    { GCI_BCAST,          BETWEEN_MORE, 0, 0, true, "wide-divided" },
    { GCI_ALLREDUCE,      BETWEEN_MORE, 0, CHOOSE_WORTH, true, "wide" },
    { GCI_ALLREDUCE,      BETWEEN_MORE, 0, 0, true, "wide-divided" },
    { GCI_COLLS,          BETWEEN_CLUSTERS, 0, 0, true, "wide" },
    { GCI_REDUCE,         BETWEEN_CLUSTERS, 0, 0, true, "chain" },
    { GCI_ALLREDUCE,      BETWEEN_CLUSTERS, 0, 0, true, "chain" },
    { GCI_BARRIER,        BETWEEN_FEW_HOSTS, 0, 0, false, "by-host" },
    { GCI_BARRIER,        ANYWHERE,    4, 0, false, "doubling" },
    { GCI_BARRIER,        ANYWHERE,    0, 0, false, "knomial:8" },
    { GCI_BCAST,          BETWEEN_HOSTS, 0, 0, false, "nested" },
    { GCI_BCAST,          ANYWHERE,    2, 0, false, "binomial" },
    { GCI_BCAST,          ANYWHERE,    0, CHOOSE_SHORT, false, "knomial:8" },
    { GCI_BCAST,          ANYWHERE,    0, CHOOSE_MIDDLE, false, "binomial" },
    { GCI_BCAST,          ON_ONE_HOST, 0, CHOOSE_ONE_HOST, false, "binomial" },
    { GCI_BCAST,          ANYWHERE,    0, 0, true, "circulant" },
    { GCI_SCATTER,        BETWEEN_FEW_HOSTS, 0, CHOOSE_SHORT, false, "by-host" },
    { GCI_SCATTER,        ANYWHERE,    0, CHOOSE_SHORT, false, "binomial" },
    { GCI_SCATTER,        ANYWHERE,    0, 0, false, "flat" },
    { GCI_GATHER,         BETWEEN_FEW_HOSTS, 0, CHOOSE_SHORT, false, "by-host" },
    { GCI_GATHER,         ANYWHERE,    0, CHOOSE_SHORT, false, "knomial:8" },
    { GCI_GATHER,         ANYWHERE,    0, CHOOSE_BLOCKS, false, "binomial" },
    { GCI_GATHER,         ANYWHERE,    0, 0, false, "flat" },
    { GCI_ALLGATHER,      ANYWHERE,    4, CHOOSE_SHORT, false, "doubling" },
    { GCI_ALLGATHER,      BETWEEN_FEW_HOSTS, 0, 0, true, "by-host" },
    { GCI_ALLGATHER,      BETWEEN_HOSTS, 0, 0, false, "nested" },
    { GCI_ALLGATHER,      ANYWHERE,    0, CHOOSE_SHORT, false, "knomial:8" },
    { GCI_ALLGATHER,      ON_ONE_HOST, 0, CHOOSE_BLOCKS, false, "knomial:8" },
    { GCI_ALLGATHER,      ON_ONE_HOST, 0, 0, false, "ring" },
    { GCI_ALLGATHER,      ANYWHERE,    0, 0, false, "doubling" },
    { GCI_ALLGATHER,      ANYWHERE,    0, 0, false, "circulant" },
    { GCI_ALLGATHER,      ANYWHERE,    0, 0, false, "direct" },
    { GCI_ALLTOALL,       BETWEEN_FEW_HOSTS, CHOOSE_FEW_RANKS, CHOOSE_TINY, false, "by-host" },
    { GCI_ALLTOALL,       ANYWHERE,    2, 0, false, "direct" },
    { GCI_ALLTOALL,       ON_ONE_HOST, 4, 0, false, "direct" },
    { GCI_ALLTOALL,       ANYWHERE,    0, CHOOSE_TINY, false, "bruck" },
    { GCI_ALLTOALL,       ANYWHERE,    4, 0, false, "direct" },
    { GCI_ALLTOALL,       ON_ONE_HOST, 0, 0, false, "direct" },
    { GCI_ALLTOALL,       ANYWHERE,    0, CHOOSE_BURST, false, "direct" },
    { GCI_ALLTOALL,       ANYWHERE,    0, CHOOSE_FLOW, false, "pairwise" },
    { GCI_ALLTOALL,       ANYWHERE,    0, 0, false, "direct" },
    { GCI_REDUCE,         BETWEEN_HOSTS, 0, 0, false, "nested" },
    { GCI_REDUCE,         ANYWHERE,    0, CHOOSE_SHORT, false, "knomial:8" },
    { GCI_REDUCE,         ANYWHERE,    0, CHOOSE_MIDDLE, false, "binomial" },
    { GCI_REDUCE,         ON_ONE_HOST, 0, CHOOSE_ONE_HOST, false, "binomial" },
    { GCI_REDUCE,         ANYWHERE,    0, 0, true, "circulant" },
    { GCI_REDUCE,         ANYWHERE,    0, 0, false, "halving" },
    { GCI_REDUCE,         ANYWHERE,    0, 0, true, "binomial" },
    { GCI_REDUCE,         ANYWHERE,    0, CHOOSE_BLOCKS, false, "flat" },
    { GCI_REDUCE,         ANYWHERE,    0, 0, true, "chain" },
    { GCI_ALLREDUCE,      ANYWHERE,    4, CHOOSE_SHORT, false, "doubling" },
    { GCI_ALLREDUCE,      BETWEEN_MORE_FEW_HOSTS, 0, CHOOSE_MIDDLE, true, "by-host" },
    { GCI_ALLREDUCE,      BETWEEN_MORE_FEW_HOSTS, 0, 0, true, "by-host-divided" },
    { GCI_ALLREDUCE,      BETWEEN_FEW_HOSTS, 0, 0, true, "by-host" },
    { GCI_ALLREDUCE,      BETWEEN_HOSTS, 0, 0, false, "nested" },
    { GCI_ALLREDUCE,      ANYWHERE,    4, CHOOSE_MIDDLE, false, "doubling" },
    { GCI_ALLREDUCE,      ANYWHERE,    0, CHOOSE_SHORT, false, "knomial:8" },
    { GCI_ALLREDUCE,      ON_ONE_HOST, 0, CHOOSE_ONE_HOST, false, "binomial" },
    { GCI_ALLREDUCE,      ANYWHERE,    0, CHOOSE_MIDDLE, false, "doubling" },
    { GCI_ALLREDUCE,      ANYWHERE,    0, 0, false, "circulant" },
    { GCI_ALLREDUCE,      ANYWHERE,    0, 0, false, "halving" },
    { GCI_ALLREDUCE,      ANYWHERE,    0, 0, true, "binomial" },
    { GCI_ALLREDUCE,      ANYWHERE,    0, CHOOSE_BLOCKS, false, "flat" },
    { GCI_ALLREDUCE,      ANYWHERE,    0, 0, true, "chain" },
    { GCI_REDUCE_SCATTER, BETWEEN_FEW_HOSTS, 0, 0, true, "by-host" },
    { GCI_REDUCE_SCATTER, BETWEEN_HOSTS, 0, 0, false, "nested" },
    { GCI_REDUCE_SCATTER, ON_ONE_HOST, 0, CHOOSE_BLOCKS, false, "binomial" },
    { GCI_REDUCE_SCATTER, ANYWHERE,    0, 0, false, "circulant" },
    { GCI_REDUCE_SCATTER, ANYWHERE,    0, 0, false, "halving" },
    { GCI_REDUCE_SCATTER, ANYWHERE,    0, 0, false, "direct" },
    { GCI_SCAN,           BETWEEN_FEW_HOSTS, 0, CHOOSE_SHORT, false, "by-host" },
    { GCI_SCAN,           ANYWHERE,    0, CHOOSE_SHORT, false, "direct" },
    { GCI_SCAN,           ANYWHERE,    0, CHOOSE_ONE_HOST, false, "doubling" },
    { GCI_SCAN,           ANYWHERE,    0, 0, true, "direct" },
    { GCI_EXSCAN,         BETWEEN_FEW_HOSTS, 0, CHOOSE_SHORT, false, "by-host" },
    { GCI_EXSCAN,         ANYWHERE,    0, CHOOSE_SHORT, false, "direct" },
    { GCI_EXSCAN,         ANYWHERE,    0, CHOOSE_ONE_HOST, false, "doubling" },
    { GCI_EXSCAN,         ANYWHERE,    0, 0, true, "direct" },
};

/* Bytes of a vector, of all blocks together (allgather, reduce_scatter), or of each (scatter, gather, alltoall), if all ranks
 * know: else as many as can be. */
static size_t choose_bytes(const gci_call *call)
{
    switch (call->coll) {
    case GCI_SCATTER:
    case GCI_GATHER:
    case GCI_ALLTOALL:
        return call->even ? call->own : SIZE_MAX;
    case GCI_ALLGATHER:
        return gci_blocks_bytes(&call->recv, 0, call->ranks);
    case GCI_REDUCE_SCATTER:
        return gci_blocks_bytes(&call->send, 0, call->ranks);
    default:
        return call->bytes;
    }
}

/* bytes: as above. parts: clusters or hosts, of which each sends a vector, or the blocks of one; NULL: ranks do. */
static size_t choose_segment(const gci_call *call, const gci_clusters *parts, size_t bytes)
{
    size_t part = gci_min(gci_max(CHOOSE_SEGMENT, bytes / CHOOSE_SEGMENTS), CHOOSE_SEGMENT_MAX);
    if (!parts)
        return bytes == SIZE_MAX ? part : gci_max(part, bytes / CHOOSE_MOST_SEGMENTS);      /* not a number of this processor's */
    bool blocks = call->coll == GCI_ALLGATHER || call->coll == GCI_REDUCE_SCATTER;
    part = (blocks ? bytes / (size_t)parts->clusters : call->bytes) / CHOOSE_MOST_SEGMENTS;
    if (parts != call->clusters)
        return gci_max(CHOOSE_NEAR, part);
    if (blocks)
        return gci_max(CHOOSE_SEGMENT, part);
    return call->bytes > CHOOSE_FAR ? gci_max(2 * GCI_PACKET_MAX, part) : CHOOSE_SEGMENT;
}

/* Between which clusters or hosts the rule's algorithm works; NULL: between none. */
static const gci_clusters *choose_parts(const struct choose_rule *rule, const gci_clusters *s)
{
    if (rule->where < BETWEEN_CLUSTERS || !s)
        return NULL;
    return rule->where >= BETWEEN_HOSTS ? s->by_host : s->clusters > 1 ? s : NULL;
}

static bool choose_is_there(enum choose_where where, const gci_clusters *s, const gci_clusters *parts)
{
    switch (where) {
    case ANYWHERE:
        return true;
    case ON_ONE_HOST:
        return s && s->hosts == 1;
    case BETWEEN_CLUSTERS:
    case BETWEEN_HOSTS:
        return parts != NULL;
    case BETWEEN_MORE:
        return parts && parts->clusters > 2;
    case BETWEEN_FEW_HOSTS:
        return parts && parts->clusters <= CHOOSE_FEW_HOSTS;
    case BETWEEN_MORE_FEW_HOSTS:
        return parts && parts->clusters > 2 && parts->clusters <= CHOOSE_FEW_HOSTS;
    }
    return false;
}

/* Whatever its length. */
static bool choose_applies(const struct choose_rule *rule, enum gci_coll coll, int ranks, const gci_clusters *s)
{
    return (rule->coll == coll || rule->coll == GCI_COLLS) && (!rule->ranks || ranks <= rule->ranks) &&
           choose_is_there(rule->where, s, choose_parts(rule, s));
}

/* The most bytes for which a rule that applies is there; 0: any. */
static size_t choose_limit(const struct choose_rule *rule, const gci_clusters *s)
{
    if ((rule->where != BETWEEN_MORE && rule->where != BETWEEN_MORE_FEW_HOSTS) || !rule->bytes)
        return rule->bytes;
    size_t parts = (size_t)choose_parts(rule, s)->clusters;
    return gci_max(rule->bytes / (parts - 2), rule->bytes / CHOOSE_SHARES * parts);
}

GCI gci_algo_choice gci_choose(const gci_call *call, const gci_algo_choice *forced)
{
    gci_algo_choice choice = *forced;
    if (call->tree) {
        size_t bytes = choose_bytes(call);
        return (gci_algo_choice){ "given", bytes > CHOOSE_MIDDLE ? choose_segment(call, NULL, bytes) : 0, 0 };
    }
    if (!choice.name[0])
        gci_choose_next(call, &choice);
    return choice;
}

GCI bool gci_choose_next(const gci_call *call, gci_algo_choice *choice)
{
    size_t bytes = choose_bytes(call);
    while (choice->next < (int)GCI_COUNT(choose_rules)) {
        const struct choose_rule *rule = &choose_rules[choice->next++];
        if (!choose_applies(rule, call->coll, call->ranks, call->clusters))
            continue;
        size_t limit = choose_limit(rule, call->clusters);
        if (limit && bytes > limit)
            continue;
        snprintf(choice->name, sizeof choice->name, "%s", rule->name);
        choice->segment = rule->cut ? choose_segment(call, choose_parts(rule, call->clusters), bytes) : 0;
        return true;
    }
    return false;
}

GCI int gci_choose_sched(gci_env *env, gci_call *call, gci_algo_choice *choice, gci_sched *out)
{
    int err = GC_ERR_UNSUPPORTED;
    *out = (gci_sched){ 0 };
    if (choice->name[0])
        err = gci_sched_build(env, gci_algo_find(call->coll, choice->name), choice->name, call, out);
    while (err == GC_ERR_UNSUPPORTED && gci_choose_next(call, choice)) {
        call->segment = choice->segment;
        call->tree = NULL;
        err = gci_sched_build(env, gci_algo_find(call->coll, choice->name), choice->name, call, out);
    }
    return err;
}

GCI void gci_choose_describe(const gci_clusters *s, int ranks, const gci_algo_choice forced[GCI_COLLS], gci_text *out)
{
    for (int coll = 0; coll < GCI_COLLS; coll++) {
        const char *separator = " ";
        gci_text_add(out, "%-15s", gci_coll_name((enum gci_coll)coll));
        if (forced[coll].name[0]) {
            gci_text_add(out, " %s by GRIDCOMM_ALGO", forced[coll].name);
            separator = "; ";
        }
        for (size_t i = 0; i < GCI_COUNT(choose_rules); i++) {
            const struct choose_rule *rule = &choose_rules[i];
            if (!choose_applies(rule, (enum gci_coll)coll, ranks, s))
                continue;
            gci_text_add(out, "%s%s", separator, rule->name);
            if (choose_limit(rule, s))
                gci_text_add(out, " to %zu bytes", choose_limit(rule, s));
            if (rule->cut)
                gci_text_add(out, " in segments");
            separator = "; ";
        }
        gci_text_add(out, "\n");
    }
}

/* ---- GRIDCOMM_ALGO ------------------------------------------------------------------------------------------------ */

/* "kary:3@8192" */
GCI bool gci_choose_read_name(enum gci_coll coll, const char *text, size_t bytes, gci_algo_choice *out)
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
    const gci_algo *algo = gci_algo_find(coll, word);
    bool sound = algo && strcmp(word, "given") != 0 && (!strchr(word, ':') || gci_tree_is_shape(word));
    if (!sound || strlen(word) >= sizeof out->name)
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
    int coll = gci_coll_find(text, op_bytes);
    if (coll < GCI_COLLS && colon && gci_choose_read_name((enum gci_coll)coll, colon + 1, name_bytes, &forced[coll]))
        return GC_OK;
    if (coll < GCI_COLLS)
        snprintf(error_text, GCI_TEXT, "GRIDCOMM_ALGO: %s has no algorithm \"%.*s\"", gci_coll_name((enum gci_coll)coll),
                 (int)gci_min(name_bytes, GCI_ALGO_NAME), colon ? colon + 1 : "");
    else
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
