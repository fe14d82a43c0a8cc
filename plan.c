/* plan.c: schedules made ready to run, and a cache of them (pure).
 * SPDX-License-Identifier: MIT
 *
 * A program calls the same collectives again and again. What its last PLANS_MAX calls took, of PLANS_BYTES together, is kept, the
 * last used first; a plan that is running outlives its place. A plan for a given tree is for its call alone: trees may be changed.
 */
#include "gridcomm_int.h"

enum { PLANS_MAX = 32, PLANS_BYTES = 1 << 20 };

static bool plan_same_list(const size_t *a, const size_t *b, int ranks)
{
    return a && b ? memcmp(a, b, (size_t)ranks * sizeof *a) == 0 : a == b;
}

static bool plan_same_blocks(const gci_blocks *a, const gci_blocks *b, int ranks)
{
    return a->each == b->each && plan_same_list(a->bytes, b->bytes, ranks) && plan_same_list(a->at, b->at, ranks);
}

static bool plan_same_call(const gci_call *a, const gci_call *b)
{
    return a->coll == b->coll && a->root == b->root && a->bytes == b->bytes && a->own == b->own && a->even == b->even &&
           a->elem_bytes == b->elem_bytes && a->segment == b->segment && a->in_place == b->in_place &&
           a->commutative == b->commutative && a->associative == b->associative && a->canonical == b->canonical &&
           plan_same_blocks(&a->send, &b->send, a->ranks) && plan_same_blocks(&a->recv, &b->recv, a->ranks) &&
           a->heard_bytes == b->heard_bytes && !a->heard == !b->heard &&
           (!a->heard || memcmp(a->heard, b->heard, a->heard_bytes) == 0);
}

GCI size_t gci_call_lists(const gci_call *call)
{
    return call->even ? 0 : 4 * (size_t)call->ranks + call->heard_bytes / sizeof(size_t) + 1;
}

static void plan_copy_list(const size_t **list, int ranks, size_t **room)
{
    if (!*list)
        return;
    memcpy(*room, *list, (size_t)ranks * sizeof **list);
    *list = *room;
    *room += ranks;
}

GCI void gci_call_copy_lists(gci_call *call, size_t *room)
{
    plan_copy_list(&call->send.bytes, call->ranks, &room);
    plan_copy_list(&call->send.at, call->ranks, &room);
    plan_copy_list(&call->recv.bytes, call->ranks, &room);
    plan_copy_list(&call->recv.at, call->ranks, &room);
    if (call->heard)
        call->heard = memcpy(room, call->heard, call->heard_bytes);
}

static void plan_free(gci_env *env, gci_plan *plan)
{
    gci_sched_free(env, &plan->sched);
    gci_free(env, plan->first_after);
    gci_free(env, plan->after);
    gci_free(env, plan->nth);
    gci_free(env, plan);
}

/* The messages with a peer are counted, in either direction. */
static void plan_number(gci_plan *plan, uint32_t *peers)
{
    for (int32_t i = 0; i < plan->sched.steps; i++) {
        const gci_step *step = &plan->sched.step[i];
        if (step->kind <= GCI_STEP_RECV)
            plan->nth[i] = peers[2 * step->peer + (step->kind == GCI_STEP_RECV)]++;
    }
}

/* The schedule says for each step what it waits for; the executor needs what waits for it. */
static int plan_invert(gci_env *env, gci_plan *plan)
{
    const gci_sched *s = &plan->sched;
    plan->first_after = gci_alloc(env, ((size_t)s->steps + 2) * sizeof *plan->first_after);
    plan->after = gci_alloc(env, ((size_t)s->waits + 1) * sizeof *plan->after);
    plan->nth = gci_alloc(env, ((size_t)s->steps + 1) * sizeof *plan->nth);
    uint32_t *peers = gci_alloc(env, 2 * (size_t)plan->call.ranks * sizeof *peers);
    if (!plan->first_after || !plan->after || !plan->nth || !peers) {
        gci_free(env, peers);
        return GC_ERR_NOMEM;
    }
    plan_number(plan, peers);
    gci_free(env, peers);
    int32_t *count = plan->first_after + 2;     /* two ahead: the filling below moves each up to its final value */
    for (int32_t i = 0; i < s->steps; i++) {
        plan->swaps |= s->step[i].swapped;
        for (int32_t k = 0; k < s->step[i].waits; k++) {
            int32_t earlier = s->wait[s->step[i].first_wait + k];
            if (earlier + 1 < s->steps)
                count[earlier]++;
        }
    }
    for (int32_t i = 1; i < s->steps; i++)
        plan->first_after[i + 1] += plan->first_after[i];
    for (int32_t i = 0; i < s->steps; i++)
        for (int32_t k = 0; k < s->step[i].waits; k++)
            plan->after[plan->first_after[s->wait[s->step[i].first_wait + k] + 1]++] = i;
    plan->bytes += (size_t)s->steps * (sizeof *s->step + sizeof *plan->first_after + sizeof *plan->nth) +
                   (size_t)s->waits * (sizeof *s->wait + sizeof *plan->after);
    return GC_OK;
}

static int plan_build(gci_env *env, const gc_model *model, const gci_algo_choice *choice, const gci_call *call, bool insisted,
                      gci_plan **out)
{
    size_t lists = gci_call_lists(call) * sizeof(size_t);
    gci_plan *plan = gci_alloc(env, sizeof *plan + lists);
    if (!plan)
        return GC_ERR_NOMEM;
    plan->choice = plan->used = *choice;
    plan->call = *call;
    plan->bytes = sizeof *plan + lists;
    if (lists > 0)
        gci_call_copy_lists(&plan->call, plan->list);
    gci_call own = *call;
    own.model = model;
    int err = gci_choose_sched(env, &own, &plan->used, &plan->sched);
    if (err == GC_OK)
        err = plan_invert(env, plan);
    if (err < 0) {
        plan_free(env, plan);
        return err;
    }
    if (plan->used.next != choice->next)
        gci_log(env, insisted ? GC_LOG_WARN : GC_LOG_DEBUG, "%s: %s does not fit this call, %s does", gci_coll_name(call->coll),
                choice->name, plan->used.name);
    if (env->debug & GCI_DEBUG_COLL)
        gci_log(env, GC_LOG_DEBUG, "%s: %d ranks, root %d, %zu bytes: %s, %d steps", gci_coll_name(call->coll),
                call->ranks, call->root, call->bytes ? call->bytes : call->own, plan->used.name, (int)plan->sched.steps);
    *out = plan;
    return GC_OK;
}

/* ---- the cache --------------------------------------------------------------------------------------------------- */

/* Takes the plan at *at out of it. */
static void plan_evict(gci_env *env, gci_plans *plans, gci_plan **at)
{
    gci_plan *plan = *at;
    *at = plan->next;
    plans->count--;
    plans->bytes -= plan->bytes;
    plan->cached = false;
    if (plan->runs == 0)
        plan_free(env, plan);
}

static void plan_keep(gci_env *env, gci_plans *plans, gci_plan *plan)
{
    if (plan->bytes > PLANS_BYTES)
        return;
    plan->next = plans->first;
    plan->cached = true;
    plans->first = plan;
    plans->count++;
    plans->bytes += plan->bytes;
    while (plans->count > PLANS_MAX || plans->bytes > PLANS_BYTES) {
        gci_plan **last = &plans->first;
        while ((*last)->next)
            last = &(*last)->next;
        plan_evict(env, plans, last);
    }
}

GCI int gci_plan_get(gci_env *env, gci_plans *plans, const gci_algo_choice *choice, const gci_call *call, bool insisted,
                     gci_plan **out)
{
    for (gci_plan **at = call->tree ? NULL : &plans->first; at && *at; at = &(*at)->next) {
        gci_plan *plan = *at;
        if (strcmp(plan->choice.name, choice->name) == 0 && plan_same_call(&plan->call, call)) {
            *at = plan->next;
            plan->next = plans->first;
            plans->first = plan;
            plan->runs++;
            *out = plan;
            return GC_OK;
        }
    }
    int err = plan_build(env, plans->model, choice, call, insisted, out);
    if (err < 0)
        return err;
    (*out)->runs++;
    if (!call->tree)
        plan_keep(env, plans, *out);
    return GC_OK;
}

GCI void gci_plan_release(gci_env *env, gci_plan *plan)
{
    if (--plan->runs == 0 && !plan->cached)
        plan_free(env, plan);
}

GCI void gci_plans_drop(gci_env *env, gci_plans *plans)
{
    while (plans->first)
        plan_evict(env, plans, &plans->first);
}
