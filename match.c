/* match.c: posted receives and unexpected messages, each in its order, per context.
 * SPDX-License-Identifier: MIT
 *
 * Plain lists: an envelope takes the first posted receive that fits it, a receive the first message that fits it; that is
 * MPI's matching order, since envelopes of one source come here in the order in which they were sent. A list is searched
 * from its front: short where it matters, because a collective has few receives posted and knows their sources.
 */
#include "gridcomm_int.h"

GCI void gci_queue_append(gc_request *r, gc_request ***end)
{
    r->next = NULL;
    r->prev = *end;
    **end = r;
    *end = &r->next;
}

GCI void gci_queue_insert(gc_request *r, gc_request **at, gc_request ***end)
{
    r->next = *at;
    r->prev = at;
    if (*at)
        (*at)->prev = &r->next;
    else
        *end = &r->next;
    *at = r;
}

GCI void gci_queue_remove(gc_request *r, gc_request ***end)
{
    *r->prev = r->next;
    if (r->next)
        r->next->prev = r->prev;
    else
        *end = r->prev;
    r->next = NULL;
    r->prev = NULL;
}

static uint32_t match_bucket(uint32_t context)
{
    return context * UINT32_C(2654435761) >> 26;        /* Knuth's multiplicative hash, 6 bits */
}

GCI gci_match *gci_match_find(gci_match *const buckets[GCI_MATCH_BUCKETS], uint32_t context)
{
    gci_match *match = buckets[match_bucket(context)];
    while (match && match->context != context)
        match = match->next;
    return match;
}

GCI gci_match *gci_match_get(gci_env *env, gci_match *buckets[GCI_MATCH_BUCKETS], uint32_t context)
{
    gci_match **bucket = &buckets[match_bucket(context)];
    gci_match *match = gci_match_find(buckets, context);
    if (match)
        return match;
    match = gci_alloc(env, sizeof *match);
    if (!match)
        return NULL;
    match->context = context;
    match->posted_end = &match->posted;
    match->unexpected_end = &match->unexpected;
    match->next = *bucket;
    *bucket = match;
    return match;
}

GCI void gci_match_end(gci_env *env, gci_match *buckets[GCI_MATCH_BUCKETS], gci_match *match)
{
    gci_match **at = &buckets[match_bucket(match->context)];
    while (*at != match)
        at = &(*at)->next;
    *at = match->next;
    gci_free(env, match);
}

GCI void gci_match_post(gci_match *match, gc_request *r)
{
    gci_queue_append(r, &match->posted_end);
}

GCI void gci_match_withdraw(gci_match *match, gc_request *r)
{
    gci_queue_remove(r, &match->posted_end);
}

static bool match_takes(const gc_request *r, int source, uint32_t tag)
{
    return (r->peer == source || r->peer == GC_ANY_SOURCE) && (r->any_tag || r->tag == tag);
}

GCI gc_request *gci_match_posted(gci_match *match, int source, uint32_t tag)
{
    for (gc_request *r = match->posted; r; r = r->next)
        if (match_takes(r, source, tag)) {
            gci_match_withdraw(match, r);
            return r;
        }
    return NULL;
}

GCI gc_message *gci_match_come(const gci_match *match, const gc_request *want)
{
    for (gc_message *m = match->unexpected; m; m = m->next)
        if (match_takes(want, m->source, m->packet.tag))
            return m;
    return NULL;
}

GCI void gci_match_keep(gci_match *match, gc_message *m)
{
    m->queued = true;
    m->next = NULL;
    m->prev = match->unexpected_end;
    *match->unexpected_end = m;
    match->unexpected_end = &m->next;
}

GCI void gci_match_forget(gc_message *m)
{
    *m->prev = m->next;
    if (m->next)
        m->next->prev = m->prev;
    else
        m->match->unexpected_end = m->prev;
    m->queued = false;
}

GCI bool gci_match_wanted(gci_match *const buckets[GCI_MATCH_BUCKETS], int source)
{
    for (int i = 0; i < GCI_MATCH_BUCKETS; i++)
        for (const gci_match *match = buckets[i]; match; match = match->next)
            for (const gc_request *r = match->posted; r; r = r->next)
                if (r->peer == source || r->peer == GC_ANY_SOURCE)
                    return true;
    return false;
}
