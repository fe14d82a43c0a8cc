/* shrink.c: the survivors of a communicator agree who they are, whoever dies meanwhile.
 * SPDX-License-Identifier: MIT
 *
 * The coordinator is the lowest member that a rank does not know dead. It hears from all others whom they know dead, decides (a
 * context, and who is no member), sees that all have the decision, and lets them go:
 *
 *     all -> coordinator     STATE      whom I know dead
 *     coordinator -> all     DECIDE     the decision, when all have spoken or are dead
 *     all -> coordinator     ACK        I hold it
 *     coordinator -> all     RELEASE    all hold it but these, who are dead for me
 *
 * Who of them lives for somebody (a partition) is passed the decision by that one (FORWARD).
 *
 * If the coordinator dies, who holds its decision passes that on to all and is through; who holds none turns to the next coordinator.
 * That begins as the first did, only that it may be told a decision instead of a STATE: then it passes that on, and is through.
 *
 * What is relied on: who dies is heard of by all in the end, and a death is never taken back (life.c, peers.c). So a rank's
 * coordinator changes only upwards, and it waits for nobody but its coordinator, or as coordinator for all; those answer or die.
 *
 * Two decisions do not meet:
 *  - A rank takes a decision from its present coordinator alone, or as coordinator from anybody. So when a coordinator decides anew,
 *    nobody holds another one who lives for it: that rank would have passed it on, to it too, instead of speaking or dying.
 *  - Nobody who has spoken to it takes an older one later: who could pass that on is dead. But this rank may hear of that death after
 *    the coordinator's, and take the dead one for its next coordinator. So what that has passed on waits until it is dead here, too;
 *    if it lives on, as long as what is contested below.
 *  - Who is through by RELEASE leaves nobody without the decision who lives for it, but those it passes that on to; who is through
 *    otherwise has passed it on to all before: so nobody waits for a rank that is through and owes it something. The messages of
 *    FORWARD come in the end, or their sender dies.
 *  - Who says what makes no sense is given up, which all hear of as of a death, and the agreement goes on without it.
 *  - Who is dead for some although it lives (a partition, a rank that was given up) learns so, or that the others are dead for
 *    it. It gets GC_ERR_PEER, or is among those left at its side. Who has its decision has it with the same ranks.
 *
 * A network may fall apart and be whole again just then: what one side's coordinator says of the other side's ranks may come before
 * these have given it up (life.c). So whoever is told that somebody is dead who lives for it waits until that one is dead here as
 * well, or the teller: whose word does not count then, as if it had died before it came. What is not known here after
 * SHRINK_CONTEST will not be, and is believed.
 *
 * Messages have a context of their own and the number of the shrink as tag. What comes for a number that is over is dropped
 * (p2p.c); it may come because FORWARD goes to those, too, who are through. Sends belong to nobody: they hold their own bytes,
 * so who is through may leave, free the communicator, and need not wait for those who do not listen any more.
 *
 * Lack of memory: before the first message it is an error, and nothing has happened. Later, what was to be posted is posted
 * again until there is memory; the others wait for that, but after SHRINK_HUNGER the rank gives itself up.
 *
 * Time: two round trips if nobody dies. Memory: a message is 8 bytes and a bit for each rank; the coordinator has one for each rank.
 */
#include "gridcomm_int.h"

enum { SHRINK_STATE = 1, SHRINK_DECIDE, SHRINK_ACK, SHRINK_RELEASE, SHRINK_FORWARD,
       SHRINK_HEAD = 8 };                       /* bytes: what it is; the context. Then a bit for each rank: is it no member? Or, of
                                                   RELEASE: does it not hold the decision? */
#define SHRINK_HUNGER (5 * GCI_SECOND)          /* without success: documented */
#define SHRINK_LINGER GCI_SECOND                /* what is on its way to others is waited for, but not for ever */
#define SHRINK_CONTEST (3 * GCI_LIFE_CONTEST)   /* a side gives up who tells of a death, then who tells it next, and says so */

typedef struct shrink shrink;

/* A message to some ranks. It goes when none of its sends is under way, and none will be. */
typedef struct shrink_mail {
    struct shrink_mail *next;
    gci_env *env;
    shrink  *s;                     /* NULL: that is over */
    int      posted;                /* sends under way */
    uint8_t *due;                   /* [size]: still to be posted to this rank */
    uint8_t  bytes[];
} shrink_mail;

enum shrink_stand { SHRINK_IDLE, SHRINK_DUE, SHRINK_POSTED, SHRINK_COME, SHRINK_GONE, SHRINK_WRONG };
typedef struct shrink_slot {        /* what is heard from a rank */
    shrink     *s;
    int         rank;
    enum shrink_stand stand;
    uint8_t    *room;
} shrink_slot;

struct shrink {
    gc_comm     *comm;
    gci_env     *env;
    size_t       bytes;             /* of each message */
    shrink_slot *slot;              /* [size] */
    gc_request **request;           /* [size]: of slots that are posted */
    uint8_t     *rooms;             /* of a coordinator's slots */
    uint8_t     *room;              /* of the only slot of others */
    uint8_t     *value;             /* as a message: the decision, if it is held; else whom I know dead */
    shrink_mail *mails;
    int          waiting;           /* slots that are due or posted */
    int          unsent;            /* messages that are due or posted */
    int          hint;
    int          asked;             /* the coordinator before this one, to whom this rank has spoken; -1: none */
    int64_t      hungry_since;      /* some memory that must be had has not been; 0: it has */
    bool         held, through, again;      /* again: memory has failed for what was posted, and it is due once more */
    bool         contests;          /* all has come, but not all of it is known here */
};

/* ---- who lives ---------------------------------------------------------------------------------------------------- */

/* Why this rank cannot go on. */
static int shrink_trouble(const shrink *s)
{
    return gci_comm_gone(s->comm, s->comm->rank);       /* it is taken for dead, or the job is aborted */
}

static bool shrink_lives(const shrink *s, int rank)
{
    return gci_comm_gone(s->comm, rank) == GC_OK;
}

static int shrink_coordinator(const shrink *s)
{
    int rank = 0;
    while (rank < s->comm->rank && !shrink_lives(s, rank))
        rank++;
    return rank;
}

/* It breaks the rules: nobody is to wait for it. Not from inside of a callback, whose pair this ends. */
static void shrink_give_up(const shrink *s, int rank)
{
    gci_give_up(s->comm->world->p2p, gci_world_rank(s->comm, rank), GC_ERR_PROTOCOL, "in gc_comm_shrink it said what makes no sense");
}

static bool shrink_is_out(const uint8_t *message, int rank)
{
    return message[SHRINK_HEAD + rank / 8] >> rank % 8 & 1;
}

static void shrink_bury(uint8_t *message, int rank)
{
    message[SHRINK_HEAD + rank / 8] |= (uint8_t)(1 << rank % 8);
}

static void shrink_note_dead(shrink *s)
{
    for (int rank = 0; rank < s->comm->size; rank++)
        if (!shrink_lives(s, rank))
            shrink_bury(s->value, rank);
}

/* ---- sending ------------------------------------------------------------------------------------------------------ */

static void shrink_mail_review(shrink_mail *m)
{
    if (m->posted == 0 && !m->s)
        gci_free(m->env, m);
}

/* The communicator may be gone, unless the shrink is still under way. */
static void shrink_sent(gc_request *r)
{
    shrink_mail *m = r->user;
    shrink *s = m->s;
    m->posted--;
    if (s && r->status.error == GC_ERR_NOMEM) {
        m->due[gci_comm_rank(s->comm, r->peer)] = true;
        s->again = true;
    } else if (s) {
        s->unsent--;
    }
    if (s)
        gci_overlay_wake(s->comm->world->overlay);
    shrink_mail_review(m);
}

/* To a rank that is gone it need not go. false: out of memory. */
static bool shrink_send(shrink *s, shrink_mail *m, int rank)
{
    gci_post post = { .kind = GCI_CONTEXT_SHRINK, .tag = s->comm->shrinks, .orphan = true, .done_fn = shrink_sent, .user = m };
    gc_request *request;
    m->posted++;
    m->due[rank] = false;
    int err = gci_send_post(s->comm, m->bytes, s->bytes, rank, &post, &request);
    if (err == GC_OK)
        return true;
    m->posted--;
    m->due[rank] = err == GC_ERR_NOMEM;
    s->unsent -= err != GC_ERR_NOMEM;
    return err != GC_ERR_NOMEM;
}

/* false: out of memory. */
static bool shrink_receive(shrink *s, shrink_slot *slot);

/* Posts all that is due. false: out of memory for some of it, now or since it was posted. */
static bool shrink_post(shrink *s)
{
    bool all = !s->again;
    s->again = false;
    for (shrink_mail *m = s->mails; m; m = m->next)
        for (int rank = 0; rank < s->comm->size; rank++)
            if (m->due[rank])
                all &= shrink_send(s, m, rank);
    for (int rank = 0; rank < s->comm->size; rank++)
        if (s->slot[rank].stand == SHRINK_DUE)
            all &= shrink_receive(s, &s->slot[rank]);
    all &= !s->again;
    s->again = false;                   /* that is due after a pause */
    return all;
}

/* The rank that has made this decision: all below are dead for it. */
static int shrink_decider(const shrink *s, const uint8_t *decision)
{
    int rank = 0;
    while (rank < s->comm->size && shrink_is_out(decision, rank))
        rank++;
    return rank;
}

/* Has it been passed on by one without whom another coordinator, spoken to since, may have decided anew? */
static bool shrink_is_old(const shrink *s, const uint8_t *message)
{
    return gci_get32(message) == SHRINK_FORWARD && shrink_decider(s, message) < s->asked;
}

/* Is everybody dead here, too, whom this rank has said to be dead? Or it has died itself. */
static bool shrink_agrees(const shrink *s, int rank)
{
    if (s->slot[rank].stand != SHRINK_COME || !shrink_lives(s, rank))
        return true;
    if (shrink_is_old(s, s->slot[rank].room))
        return false;
    for (int other = 0; other < s->comm->size; other++)
        if (shrink_is_out(s->slot[rank].room, other) && shrink_lives(s, other))
            return false;
    return true;
}

/* Has somebody said what is not known here? Of a decision that is held that does not matter any more. */
static bool shrink_doubts(const shrink *s)
{
    bool doubts = false;
    for (int rank = 0; !s->held && !doubts && rank < s->comm->size; rank++)
        doubts = !shrink_agrees(s, rank);
    return doubts;
}

static bool shrink_stirs(void *arg)
{
    const shrink *s = arg;
    return s->again || shrink_trouble(s) < 0 || (s->waiting == 0 && !(s->contests && shrink_doubts(s)));
}

/* There was all the memory that is needed, or not: is it time to end that? */
static void shrink_fed(shrink *s, bool all)
{
    gci_world *w = s->comm->world;
    int64_t now = s->env->sys->now(s->env->sys);
    if (all)
        s->hungry_since = 0;
    else if (s->hungry_since == 0)
        s->hungry_since = now;
    else if (now - s->hungry_since > SHRINK_HUNGER && shrink_trouble(s) == GC_OK)
        gci_give_up(w->p2p, w->rank, GC_ERR_NOMEM, "it has no memory for gc_comm_shrink");
}

static void shrink_review(shrink *s)
{
    for (int rank = 0; rank < s->comm->size; rank++)
        if (s->slot[rank].stand == SHRINK_WRONG) {
            s->slot[rank].stand = SHRINK_GONE;
            shrink_give_up(s, rank);
        }
}

/* Until all that is to be heard has been, or will not be, and is known here. */
static int shrink_wait(shrink *s)
{
    gci_caller caller = { .request = s->request, .requests = s->comm->size };
    gci_world *w = s->comm->world;
    int64_t end = GCI_FOREVER;
    for (s->contests = false;;) {
        bool all = shrink_post(s);
        int64_t now = s->env->sys->now(s->env->sys);
        shrink_fed(s, all);
        shrink_review(s);
        int err = shrink_trouble(s);
        if (err < 0 || now >= end || (s->waiting == 0 && !shrink_doubts(s)))
            return err;
        s->contests = s->waiting == 0;
        if (s->contests)
            end = gci_min64(end, now + SHRINK_CONTEST);
        gci_world_wait(w, &caller, shrink_stirs, s, &s->hint, all ? end : gci_min64(end, now + GCI_MEMORY_PAUSE));
    }
}

static bool shrink_in_trouble(void *arg)
{
    return shrink_trouble(arg) < 0;
}

/* Memory that must be had. NULL: this rank cannot go on for another reason. */
static void *shrink_alloc(shrink *s, size_t bytes)
{
    gci_world *w = s->comm->world;
    void *room;
    while (!(room = gci_alloc(s->env, bytes)) && shrink_trouble(s) == GC_OK) {
        shrink_fed(s, false);
        gci_overlay_wait(w->overlay, shrink_in_trouble, s, NULL, s->env->sys->now(s->env->sys) + GCI_MEMORY_PAUSE);
    }
    shrink_fed(s, room != NULL);
    return room;
}

/* To nobody as yet. NULL: this rank cannot go on. */
static shrink_mail *shrink_write(shrink *s, int what, const uint8_t *says)
{
    shrink_mail *m = shrink_alloc(s, sizeof *m + s->bytes + (size_t)s->comm->size);
    if (!m)
        return NULL;
    m->env = s->env;
    m->s = s;
    m->due = m->bytes + s->bytes;
    memcpy(m->bytes, says, s->bytes);
    gci_put32(m->bytes, (uint32_t)what);
    m->next = s->mails;
    s->mails = m;
    return m;
}

static void shrink_address(shrink *s, shrink_mail *m, int rank)
{
    m->due[rank] = true;
    s->unsent++;
}

/* The value, to one rank. */
static void shrink_answer(shrink *s, int what, int rank)
{
    shrink_mail *m = shrink_write(s, what, s->value);
    if (!m)
        return;
    shrink_address(s, m, rank);
    shrink_post(s);
}

/* To all others that live, or to those of them whose bits `only` has. */
static void shrink_say(shrink *s, int what, const uint8_t *says, const uint8_t *only)
{
    shrink_mail *m = shrink_write(s, what, says);
    for (int rank = 0; m && rank < s->comm->size; rank++)
        if (rank != s->comm->rank && shrink_lives(s, rank) && (!only || shrink_is_out(only, rank)))
            shrink_address(s, m, rank);
    shrink_post(s);
}

/* ---- receiving ---------------------------------------------------------------------------------------------------- */

static void shrink_came(gc_request *r)
{
    shrink_slot *slot = r->user;
    shrink *s = slot->s;
    bool whole = r->status.error == GC_OK && r->status.bytes == s->bytes;
    s->request[slot->rank] = NULL;
    slot->stand = whole ? SHRINK_COME : shrink_lives(s, slot->rank) ? SHRINK_WRONG : SHRINK_GONE;
    s->waiting--;
    gci_overlay_wake(s->comm->world->overlay);
}

static bool shrink_receive(shrink *s, shrink_slot *slot)
{
    gci_post post = { .kind = GCI_CONTEXT_SHRINK, .tag = s->comm->shrinks, .done_fn = shrink_came, .user = slot };
    gc_request *request = NULL;
    slot->stand = SHRINK_POSTED;
    int err = gci_recv_post(s->comm, slot->room, s->bytes, slot->rank, &post, &request);
    if (err == GC_OK) {
        if (slot->stand == SHRINK_POSTED)       /* else it has come, and the request is gone */
            s->request[slot->rank] = request;
        return true;
    }
    slot->stand = err == GC_ERR_NOMEM ? SHRINK_DUE : SHRINK_GONE;
    s->waiting -= err != GC_ERR_NOMEM;
    return err != GC_ERR_NOMEM;
}

static void shrink_listen(shrink *s, int rank, uint8_t *room)
{
    s->slot[rank].room = room;
    s->slot[rank].stand = SHRINK_DUE;
    s->waiting++;
    s->hint = gci_world_rank(s->comm, rank);
}

/* One that no communicator has or had here. */
static bool shrink_is_fresh(const shrink *s, uint32_t context)
{
    const gci_world *w = s->comm->world;
    for (const gc_comm *comm = w->comms; comm; comm = comm->next)
        if (comm->context == context)
            return false;
    return context % GCI_CONTEXT_KINDS == 0 && !gci_context_is_closed(w->p2p, context);
}

/* What has come from this rank, if it is one of the two that may come now; 0: it is gone. */
static int shrink_heard(shrink *s, int rank, int one, int other)
{
    if (s->slot[rank].stand != SHRINK_COME || !shrink_lives(s, rank))
        return 0;
    uint32_t what = gci_get32(s->slot[rank].room);
    uint32_t context = gci_get32(s->slot[rank].room + 4);
    bool decision = what == SHRINK_DECIDE || what == SHRINK_FORWARD;
    s->slot[rank].stand = SHRINK_IDLE;
    if ((what == (uint32_t)one || what == (uint32_t)other) &&
        (!decision || shrink_is_fresh(s, context)))
        return (int)what;
    shrink_give_up(s, rank);
    return 0;
}

/* ---- the agreement ------------------------------------------------------------------------------------------------ */

static void shrink_hold(shrink *s, const uint8_t *message)
{
    memcpy(s->value, message, s->bytes);
    s->held = true;
}

/* To all, or to those who may not hold it. */
static void shrink_pass_on(shrink *s, const uint8_t *missed)
{
    shrink_say(s, SHRINK_FORWARD, s->value, missed);
    s->through = true;
}

/* Until it is through, or the coordinator is dead and nothing is held. */
static int shrink_follow(shrink *s, int coordinator)
{
    shrink_note_dead(s);
    shrink_answer(s, SHRINK_STATE, coordinator);
    while (!s->through) {
        shrink_listen(s, coordinator, s->room);
        int err = shrink_wait(s);
        if (err < 0)
            return err;
        int what = s->held ? shrink_heard(s, coordinator, SHRINK_RELEASE, SHRINK_RELEASE)
                           : shrink_heard(s, coordinator, SHRINK_DECIDE, SHRINK_FORWARD);
        if (what == 0 && !s->held) {
            s->asked = coordinator;
            return GC_OK;
        }
        if (what == SHRINK_DECIDE || what == SHRINK_FORWARD)
            shrink_hold(s, s->room);
        if (what == SHRINK_DECIDE)
            shrink_answer(s, SHRINK_ACK, coordinator);
        else
            shrink_pass_on(s, what == SHRINK_RELEASE ? s->room : NULL);
    }
    return GC_OK;
}

/* Hears one message from all that live. */
static int shrink_hear_all(shrink *s)
{
    for (int rank = 0; rank < s->comm->size; rank++)
        if (rank != s->comm->rank && shrink_lives(s, rank))
            shrink_listen(s, rank, s->rooms + (size_t)rank * s->bytes);
    return shrink_wait(s);
}

/* Makes one of what all have said. */
static void shrink_gather(shrink *s)
{
    const uint8_t *decided = NULL;
    for (int rank = 0; rank < s->comm->size; rank++) {
        const uint8_t *said = s->slot[rank].room;
        int what = shrink_heard(s, rank, SHRINK_STATE, SHRINK_FORWARD);
        for (size_t i = SHRINK_HEAD; what == SHRINK_STATE && i < s->bytes; i++)
            s->value[i] |= said[i];
        if (what == SHRINK_FORWARD && (!decided || shrink_decider(s, said) > shrink_decider(s, decided)))
            decided = said;
    }
    if (decided)
        shrink_hold(s, decided);
}

/* Lets all go. Who has not acknowledged is dead by now, here. */
static void shrink_release(shrink *s)
{
    uint8_t *missed = s->room;          /* who leads hears nothing there */
    memset(missed, 0, s->bytes);
    for (int rank = 0; rank < s->comm->size; rank++)
        if (rank != s->comm->rank && !shrink_heard(s, rank, SHRINK_ACK, SHRINK_ACK))
            shrink_bury(missed, rank);
    shrink_say(s, SHRINK_RELEASE, missed, NULL);
    s->through = true;
}

static int shrink_lead(shrink *s, uint32_t context)
{
    s->asked = -1;                      /* who holds what is newer, and lives, says so */
    s->rooms = shrink_alloc(s, (size_t)s->comm->size * s->bytes);
    int err = s->rooms ? shrink_hear_all(s) : shrink_trouble(s);
    if (err < 0)
        return err;
    shrink_gather(s);
    if (s->held) {
        shrink_pass_on(s, NULL);
        return GC_OK;
    }
    shrink_note_dead(s);
    gci_put32(s->value + 4, context);
    s->held = true;
    shrink_say(s, SHRINK_DECIDE, s->value, NULL);
    err = shrink_hear_all(s);
    if (err == GC_OK)
        shrink_release(s);
    return err;
}

/* ---- one shrink --------------------------------------------------------------------------------------------------- */

static int shrink_open(shrink *s, gc_comm *comm)
{
    size_t ranks = (size_t)comm->size;
    *s = (shrink){ .comm = comm, .env = &comm->world->env, .bytes = SHRINK_HEAD + (ranks + 7) / 8, .hint = -1, .asked = -1 };
    s->slot = gci_alloc(s->env, ranks * sizeof *s->slot);
    s->request = gci_alloc(s->env, ranks * sizeof(gc_request *));
    s->room = gci_alloc(s->env, 2 * s->bytes);
    if (!s->slot || !s->request || !s->room) {
        gci_free(s->env, s->slot);
        gci_free(s->env, s->request);
        gci_free(s->env, s->room);
        return GC_ERR_NOMEM;
    }
    s->value = s->room + s->bytes;
    for (int rank = 0; rank < comm->size; rank++)
        s->slot[rank] = (shrink_slot){ .s = s, .rank = rank };
    return GC_OK;
}

/* Has something for others not left yet? */
static bool shrink_owes(const shrink *s)
{
    return s->unsent > 0 || gci_overlay_holds(s->comm->world->overlay, s->comm->context + GCI_CONTEXT_SHRINK);
}

static bool shrink_is_sent(void *arg)
{
    const shrink *s = arg;
    return !shrink_owes(s) || s->again || shrink_trouble(s) < 0;
}

/* Others wait for what is still to go, and after this only other calls move it. */
static void shrink_linger(shrink *s)
{
    gci_sys *sys = s->env->sys;
    int64_t now = sys->now(sys), end = now + SHRINK_LINGER;
    for (bool all = false; shrink_owes(s) && (now < end || !all || s->again) && shrink_trouble(s) == GC_OK; now = sys->now(sys)) {
        all = shrink_post(s);
        shrink_fed(s, all);
        gci_overlay_wait(s->comm->world->overlay, shrink_is_sent, s, NULL, all ? end : now + GCI_MEMORY_PAUSE);
    }
}

static void shrink_close(shrink *s)
{
    for (int rank = 0; rank < s->comm->size; rank++)
        if (s->request[rank])
            gci_request_drop(s->request[rank]);
    for (shrink_mail *m = s->mails, *next; m; m = next) {
        next = m->next;
        m->s = NULL;
        shrink_mail_review(m);
    }
    s->comm->shrinks++;
    gci_unexpected_past(s->comm);
    gci_free(s->env, s->slot);
    gci_free(s->env, s->request);
    gci_free(s->env, s->rooms);
    gci_free(s->env, s->room);
}

GCI int gci_shrink(gc_comm *comm, uint32_t *context, uint8_t out[])
{
    shrink s;
    gci_enter(comm->world);
    int err = shrink_open(&s, comm);
    if (err < 0) {
        gci_leave(comm->world);
        return gci_fail(comm, err, -1, "no memory for what %d ranks say", comm->size);
    }
    err = shrink_trouble(&s);
    while (err == GC_OK && !s.through) {
        int coordinator = shrink_coordinator(&s);
        err = coordinator == comm->rank ? shrink_lead(&s, *context) : shrink_follow(&s, coordinator);
    }
    if (err == GC_OK) {
        shrink_linger(&s);
        err = shrink_trouble(&s);       /* what it owed the others may have been too much for its memory */
    }
    *context = gci_get32(s.value + 4);
    for (int rank = 0; rank < comm->size; rank++)
        out[rank] = shrink_is_out(s.value, rank);
    shrink_close(&s);
    gci_leave(comm->world);
    if (err == GC_OK && !out[comm->rank])
        return GC_OK;
    if (err == GC_ERR_ABORTED)
        return gci_fail(comm, err, gci_comm_rank(comm, comm->world->abort_origin), "gc_comm_shrink: gc_abort was called");
    if (err == GC_ERR_NOMEM)
        return gci_fail(comm, err, comm->rank, "gc_comm_shrink: there has been no memory for too long, this rank gave itself up");
    return gci_fail(comm, GC_ERR_PEER, comm->rank, "gc_comm_shrink: the others take this rank for dead");
}
