/* pmi.c: a launcher that speaks PMI-1 (mpiexec.hydra, Slurm's pmi2): the rendezvous and a key by way of its table.
 * SPDX-License-Identifier: MIT
 *
 * PMI-1 is lines of text: "cmd=... key=value ...", one from us, one in answer. The launcher keeps a table for the job; what was
 * put there before a barrier of all processes can be got behind it.
 *
 *     begin   init, at the start of gc_init. At a PMI_PORT before that: initack, which tells rank and size
 *     meet    rank 0, which listens by now, puts a record: where, and a key that it has drawn; barrier; the others get it
 *     end     finalize, at the end of a gc_finalize that went well
 *
 * From init to finalize the launcher watches the connection: one that ends before is a process that died, and it ends the job.
 * So the connection stays open between meet and end, and after a start that failed or a job that was aborted there is no
 * finalize: when such a process ends, so does the job. After finalize the launcher has closed its end, so a process can be
 * in one world only that way. Whether a connection is taken is seen by its close-on-exec flag: no state has to be kept for
 * that, and the programs that a rank starts do not keep a dead rank's connection open.
 *
 * What comes from the launcher is checked like what comes from any stranger, and every wait for it has a deadline. Requests
 * are never pipelined: Slurm takes what one read() gives it for one request.
 *
 * The record: "1,HOST,PORT,KEY,host:port,[v6]:port,...". HOST is a hash of rank 0's host identity: who is there comes by
 * loopback, whatever addresses there are. A HOST or KEY of "-": the user has given rank 0 the rendezvous, or the key, which
 * is then not told. Values have a greatest length: "+first part", "+more", ".the last" stand under gridcomm-0, -1, -2.
 */
#include "gridcomm_int.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    PMI_REQUEST = 1000,             /* bytes: launchers have room for 1,024, the greatest value's length as well */
    PMI_LINE = 4096,                /* bytes of an answer */
    PMI_NAME = 257,                 /* of the table's name, with its end */
    PMI_PART_LEAST = 16, PMI_PARTS = GCI_PMI_RECORD / PMI_PART_LEAST + 1,
    PMI_SECRET = 32,                /* random bytes of a key, hexadecimal twice as many */
    PMI_HOST_TEXT = 17,
    PMI_ADDRS = 8,                  /* of the host that PMI_PORT names */
    PMI_END_MS = 5000               /* a launcher that does not answer holds no gc_finalize longer */
};

/* ---- lines (pure) ---------------------------------------------------------------------------------------------- */

static const char *pmi_find(const char *line, const char *key, size_t *bytes)
{
    size_t n = strlen(key);

    for (const char *at = line; *at; at += strspn(at, " ")) {
        size_t word = strcspn(at, " ");
        *bytes = word - n - 1;
        if (word > n && at[n] == '=' && memcmp(at, key, n) == 0)
            return at + n + 1;
        at += word;
    }
    return NULL;
}

GCI bool gci_pmi_value(const char *line, const char *key, char *value, size_t room)
{
    size_t bytes;
    const char *at = pmi_find(line, key, &bytes);

    if (!at || bytes >= room)
        return false;
    memcpy(value, at, bytes);
    value[bytes] = 0;
    return true;
}

GCI bool gci_pmi_number(const char *line, const char *key, int *number)
{
    char value[10];                 /* what has nine digits fits into an int */

    if (!gci_pmi_value(line, key, value, sizeof value) || !value[0] || value[strspn(value, "0123456789")])
        return false;
    *number = (int)strtol(value, NULL, 10);
    return true;
}

GCI int gci_pmi_answer(const char *line, size_t bytes, const char *answer, char text[GCI_TEXT])
{
    size_t n = strlen(answer);
    char rc[16] = "?", msg[100] = "no reason";

    for (size_t i = 0; i < bytes; i++)
        if (line[i] < ' ' || line[i] > '~') {
            snprintf(text, GCI_TEXT, "PMI: the launcher says what is no text, where cmd=%s is due", answer);
            return GC_ERR_PROTOCOL;
        }
    if (strncmp(line, "cmd=", 4) != 0 || strncmp(line + 4, answer, n) != 0 || (line[4 + n] && line[4 + n] != ' ')) {
        /* no more of it, because there may be a key in it */
        snprintf(text, GCI_TEXT, "PMI: the launcher says '%.24s', where cmd=%s is due", line, answer);
        return GC_ERR_PROTOCOL;
    }
    if (pmi_find(line, "rc", &n) && (!gci_pmi_value(line, "rc", rc, sizeof rc) || strcmp(rc, "0") != 0)) {
        (void)gci_pmi_value(line, "msg", msg, sizeof msg);
        snprintf(text, GCI_TEXT, "PMI: the launcher says cmd=%s rc=%s: %s", answer, rc, msg);
        return GC_ERR_PROTOCOL;
    }
    return GC_OK;
}

/* ---- the record (pure) ------------------------------------------------------------------------------------------- */

static void pmi_host(const char *id, char host[PMI_HOST_TEXT])
{
    uint8_t hash[GCI_MAC_BYTES];
    gci_sha256 sha;

    gci_sha256_init(&sha);
    gci_sha256_add(&sha, id, strlen(id));
    gci_sha256_end(&sha, hash);
    snprintf(host, PMI_HOST_TEXT, "%016llx", (unsigned long long)gci_get64(hash));
}

/* A link-local address says nothing without the interface, whose number only its own host knows. */
static void pmi_own_roots(gci_place *p, const gci_full_card *me)
{
    for (int i = 0; i < me->addrs && p->roots < GCI_ROOTS_MAX; i++) {
        gci_addr addr = me->addr[i].addr;
        gci_root *root = &p->root[p->roots];
        if (gci_addr_class(&addr) == GCI_CLASS_LINK_LOCAL)
            continue;
        root->port = addr.port ? addr.port : me->port;
        addr.port = 0;
        (void)gci_addr_text(&addr, root->host);
        p->roots++;
    }
}

GCI int gci_pmi_write(gci_place *p, const gci_full_card *me, const char *key, char record[GCI_PMI_RECORD], char text[GCI_TEXT])
{
    bool given = p->roots > 0;
    char host[PMI_HOST_TEXT];
    gci_text t;

    pmi_host(me->id, host);
    if (!given)
        pmi_own_roots(p, me);
    gci_text_begin(&t, record, GCI_PMI_RECORD);     /* all there can be fits in */
    gci_text_add(&t, "1,%s,%u,%s,", given ? "-" : host, (unsigned)me->port, key);
    for (int i = 0; i < p->roots; i++) {
        const char *name = p->root[i].host;
        for (const char *c = name; *c; c++)
            if (*c <= ' ' || *c > '~' || strchr(",;=[]", *c)) {
                snprintf(text, GCI_TEXT, "GRIDCOMM_ROOT: '%.80s', which is no name of a host, cannot be told by PMI", name);
                return GC_ERR_CONFIG;
            }
        gci_text_add(&t, strchr(name, ':') ? "%s[%s]:%u" : "%s%s:%u", i ? "," : "", name, (unsigned)p->root[i].port);
    }
    return GC_OK;
}

/* The next field up to its comma, which must be there. */
static bool pmi_field(const char **at, char *field, size_t room)
{
    size_t bytes = strcspn(*at, ",");

    if (!bytes || bytes >= room || (*at)[bytes] != ',')
        return false;
    memcpy(field, *at, bytes);
    field[bytes] = 0;
    *at += bytes + 1;
    return true;
}

GCI int gci_pmi_read(gci_place *p, const char *id, const char *record, char text[GCI_TEXT])
{
    char version[4], host[PMI_HOST_TEXT], port[8], key[2 * PMI_SECRET + 1], own[PMI_HOST_TEXT], here[32];

    if (!pmi_field(&record, version, sizeof version) || strcmp(version, "1") != 0 || !pmi_field(&record, host, sizeof host)
        || !pmi_field(&record, port, sizeof port) || !pmi_field(&record, key, sizeof key)) {
        snprintf(text, GCI_TEXT, "PMI: what rank 0 has put into the launcher's table makes no sense: another version?");
        return GC_ERR_PROTOCOL;
    }
    if (!p->key_bytes && strcmp(key, "-") != 0) {
        p->key_bytes = strlen(key);
        memcpy(p->key, key, p->key_bytes);
    } else if (!p->key_bytes && !p->insecure) {
        snprintf(text, GCI_TEXT, "rank 0 has been given a key (GRIDCOMM_KEY, GRIDCOMM_KEY_FILE), rank %d has not", p->rank);
        return GC_ERR_CONFIG;
    }
    if (p->roots)
        return GC_OK;
    pmi_host(id, own);
    snprintf(here, sizeof here, "127.0.0.1:%s", port);
    if (strcmp(host, own) != 0 && !record[0]) {
        snprintf(text, GCI_TEXT, "rank 0 is on another host, which has no address but loopback");
        return GC_ERR_UNREACHABLE;
    }
    return gci_place_add_roots(p, "PMI: rank 0", strcmp(host, own) == 0 ? here : record, text) < 0 ? GC_ERR_PROTOCOL : GC_OK;
}

/* ---- talking ------------------------------------------------------------------------------------------------------ */

typedef struct pmi_talk {
    gci_sys *sys;
    int      fd, poller;
    int64_t  until;
    char    *text;                  /* GCI_TEXT bytes: what went wrong */
    size_t   have;
    char     in[PMI_LINE], line[PMI_LINE];      /* what has come; the last answer */
} pmi_talk;

static int pmi_failed(const pmi_talk *t, const char *what, int err)
{
    snprintf(t->text, GCI_TEXT, "PMI: %s: %s", what, gci_strerrno(err));
    return GC_ERR_SYSTEM;
}

static int pmi_open(pmi_talk *t, gci_sys *sys, int fd, int64_t until, char text[GCI_TEXT])
{
    t->sys = sys;
    t->fd = fd;
    t->until = until;
    t->text = text;
    t->have = 0;
    t->poller = sys->poller(sys);
    return t->poller < 0 ? pmi_failed(t, "no poller", t->poller) : GC_OK;
}

static int pmi_unasked(const pmi_talk *t)
{
    snprintf(t->text, GCI_TEXT, "PMI: the launcher says more than it was asked");
    return GC_ERR_PROTOCOL;
}

/* Passes on how it went. */
static int pmi_close(pmi_talk *t, int err)
{
    if (t->poller >= 0)
        t->sys->close(t->sys, t->poller);
    if (err == GC_OK && t->have)
        err = pmi_unasked(t);
    explicit_bzero(t->in, sizeof t->in);        /* the key was in it */
    explicit_bzero(t->line, sizeof t->line);
    return err;
}

static int pmi_await(pmi_talk *t, unsigned events)
{
    gci_event event;
    int n = t->sys->watch(t->sys, t->poller, t->fd, events, 0);

    for (int64_t now; n == 0 && (now = t->sys->now(t->sys)) < t->until;)
        n = t->sys->wait(t->sys, t->poller, &event, 1, t->until - now);
    if (n < 0)
        return pmi_failed(t, "cannot wait for the launcher", n);
    if (n > 0)
        return GC_OK;
    snprintf(t->text, GCI_TEXT, "PMI: the launcher does not answer in time");
    return GC_ERR_TIMEOUT;
}

/* In one piece, as launchers expect it; one that is slow to read gets it in several all the same. */
static int pmi_say(pmi_talk *t, const char *request, size_t bytes)
{
    while (bytes > 0) {
        struct iovec part = { (void *)(uintptr_t)request, bytes };
        ssize_t sent = t->sys->send(t->sys, t->fd, &part, 1);
        int err = sent == -EAGAIN ? pmi_await(t, GCI_WRITE)
                  : sent < 0      ? pmi_failed(t, "cannot ask the launcher", (int)sent) : GC_OK;
        if (err < 0)
            return err;
        request += sent > 0 ? sent : 0;
        bytes -= sent > 0 ? (size_t)sent : 0;
    }
    return GC_OK;
}

/* The next line goes to t->line. */
static int pmi_hear(pmi_talk *t, const char *answer)
{
    const char *end;

    while ((end = memchr(t->in, '\n', t->have)) == NULL) {
        struct iovec part = { t->in + t->have, sizeof t->in - t->have };
        ssize_t got = part.iov_len ? t->sys->recv(t->sys, t->fd, &part, 1) : -EMSGSIZE;
        int err = got == -EAGAIN ? pmi_await(t, GCI_READ)
                  : got < 0      ? pmi_failed(t, "the launcher's answer", (int)got) : GC_OK;
        if (err < 0)
            return err;
        if (got == 0) {
            snprintf(t->text, GCI_TEXT, "PMI: the launcher has closed the connection, where cmd=%s is due", answer);
            return GC_ERR_SYSTEM;
        }
        t->have += got > 0 ? (size_t)got : 0;
    }
    size_t bytes = (size_t)(end - t->in);
    memcpy(t->line, t->in, bytes);
    t->line[bytes] = 0;
    t->have -= bytes + 1;
    memmove(t->in, end + 1, t->have);
    return gci_pmi_answer(t->line, bytes, answer, t->text);
}

static int pmi_ask(pmi_talk *t, const char *answer, const char *format, ...) __attribute__((format(printf, 3, 4)));
static int pmi_ask(pmi_talk *t, const char *answer, const char *format, ...)
{
    char request[PMI_REQUEST + 1];
    va_list args;
    int bytes, err;

    va_start(args, format);
    bytes = vsnprintf(request, sizeof request, format, args);
    va_end(args);
    if (bytes < 0 || bytes >= (int)sizeof request)
        return pmi_failed(t, "the launcher's table has too long a name", -EMSGSIZE);
    if (t->have)
        return pmi_unasked(t);
    err = pmi_say(t, request, (size_t)bytes);
    return err < 0 ? err : pmi_hear(t, answer);
}

static int pmi_senseless(const pmi_talk *t)
{
    snprintf(t->text, GCI_TEXT, "PMI: the launcher's answer %.*s makes no sense", (int)strcspn(t->line, " "), t->line);
    return GC_ERR_PROTOCOL;
}

/* ---- begin ---------------------------------------------------------------------------------------------------------- */

static int pmi_inherit(pmi_talk *t)
{
    int err = t->sys->inherit(t->sys, t->fd);

    if (err == -EBUSY)
        snprintf(t->text, GCI_TEXT, "PMI_FD=%d is taken by an earlier gc_init: a process is in one world of its launcher; "
                 "further ones need GRIDCOMM_RANK, _SIZE and _ROOT", t->fd);
    else if (err < 0)
        snprintf(t->text, GCI_TEXT, "PMI_FD=%d is no connection to a launcher: %s", t->fd, gci_strerrno(err));
    return err < 0 ? GC_ERR_CONFIG : GC_OK;
}

static int pmi_dial(pmi_talk *t, const gci_root *at)
{
    gci_addr addr[PMI_ADDRS];
    int n = t->sys->resolve(t->sys, at->host, at->port, addr, PMI_ADDRS), err = n < 0 ? n : -ENXIO;

    for (int i = 0; i < n && i < PMI_ADDRS; i++) {
        t->fd = err = t->sys->connect(t->sys, &addr[i], NULL, 0);
        if (err < 0)
            continue;
        err = pmi_await(t, GCI_WRITE) < 0 ? -ETIMEDOUT : t->sys->connected(t->sys, t->fd);
        if (err == 0)
            return GC_OK;
        t->sys->close(t->sys, t->fd);
        t->fd = -1;
    }
    snprintf(t->text, GCI_TEXT, "PMI_PORT=%.100s:%u: %s", at->host, (unsigned)at->port, gci_strerrno(err));
    return GC_ERR_SYSTEM;
}

static int pmi_who(pmi_talk *t, gci_place *p)
{
    static const char *const name[] = { "size", "rank", "debug" };
    int value[GCI_COUNT(name)], err = pmi_ask(t, "initack", "cmd=initack pmiid=%d\n", p->rank);

    for (size_t i = 0; i < GCI_COUNT(name) && err == GC_OK; i++)
        if ((err = pmi_hear(t, "set")) == GC_OK && !gci_pmi_number(t->line, name[i], &value[i]))
            return pmi_senseless(t);
    if (err < 0)
        return err;
    if (value[0] < 1 || value[0] > GCI_RANKS_MAX || value[1] >= value[0] || (p->ranks > 0 && p->ranks != value[0])) {
        snprintf(t->text, GCI_TEXT, "PMI: the launcher says rank %d of %d, where at most %d are possible", value[1], value[0],
                 p->ranks > 0 ? p->ranks : GCI_RANKS_MAX);
        return GC_ERR_CONFIG;
    }
    p->ranks = value[0];
    p->rank = value[1];
    return GC_OK;
}

GCI int gci_pmi_begin(gci_env *env, gci_place *p, double seconds, char text[GCI_TEXT])
{
    int64_t until;
    int err, version = 0;
    pmi_talk t;

    if (p->pmi.kind == GCI_PMI_NONE)
        return GC_OK;
    until = env->sys->now(env->sys) + (int64_t)(seconds * (double)GCI_SECOND);
    if ((err = pmi_open(&t, env->sys, p->pmi.kind == GCI_PMI_FD ? p->pmi.fd : -1, until, text)) == GC_OK)
        err = p->pmi.kind == GCI_PMI_FD ? pmi_inherit(&t) : pmi_dial(&t, &p->pmi.at);
    p->pmi.fd = t.fd;
    if (err == GC_OK && p->pmi.kind == GCI_PMI_PORT)
        err = pmi_who(&t, p);
    if (err == GC_OK)
        err = pmi_ask(&t, "response_to_init", "cmd=init pmi_version=1 pmi_subversion=1\n");
    if (err == GC_OK && (!gci_pmi_number(t.line, "pmi_version", &version) || version != 1))
        err = pmi_senseless(&t);
    return pmi_close(&t, err);
}

/* ---- meet ----------------------------------------------------------------------------------------------------------- */

static int pmi_draw_key(gci_sys *sys, gci_place *p, char key[2 * PMI_SECRET + 1], char text[GCI_TEXT])
{
    uint8_t secret[PMI_SECRET];
    int err = sys->random(sys, secret, sizeof secret);

    if (err < 0) {
        snprintf(text, GCI_TEXT, "no random numbers for the job's key: %s", gci_strerrno(err));
        return GC_ERR_SYSTEM;
    }
    for (size_t i = 0; i < sizeof secret; i++)
        snprintf(key + 2 * i, 3, "%02x", secret[i]);
    p->key_bytes = 2 * sizeof secret;
    memcpy(p->key, key, p->key_bytes);
    explicit_bzero(secret, sizeof secret);
    return GC_OK;
}

static int pmi_put(pmi_talk *t, const char *table, size_t longest, const char *record)
{
    size_t left = strlen(record);
    int err = GC_OK;

    for (int i = 0; left > 0 && err == GC_OK; i++) {
        int bytes = (int)gci_min(left, longest - 1);
        left -= (size_t)bytes;
        err = pmi_ask(t, "put_result", "cmd=put kvsname=%s key=gridcomm-%d value=%c%.*s\n", table, i, left ? '+' : '.', bytes,
                      record);
        record += bytes;
    }
    return err;
}

static int pmi_get(pmi_talk *t, const char *table, char record[GCI_PMI_RECORD])
{
    char part[PMI_REQUEST + 1] = "+";
    size_t used = 0;

    for (int i = 0; part[0] == '+'; i++) {
        int err = pmi_ask(t, "get_result", "cmd=get kvsname=%s key=gridcomm-%d\n", table, i);
        if (err < 0)
            return err;
        if (i == PMI_PARTS || !gci_pmi_value(t->line, "value", part, sizeof part) || (part[0] != '+' && part[0] != '.')
            || used + strlen(part) > GCI_PMI_RECORD)
            return pmi_senseless(t);
        snprintf(record + used, GCI_PMI_RECORD - used, "%s", part + 1);
        used += strlen(part) - 1;
    }
    return GC_OK;
}

static int pmi_offer(pmi_talk *t, gci_place *p, const gci_full_card *me, const char *table)
{
    char record[GCI_PMI_RECORD], key[2 * PMI_SECRET + 1] = "-";
    int longest, room = PMI_REQUEST - (int)strlen("cmd=put kvsname= key=gridcomm-100 value=\n") - (int)strlen(table);
    int err = p->key_bytes ? GC_OK : pmi_draw_key(t->sys, p, key, t->text);

    if (err < 0 || (err = gci_pmi_write(p, me, key, record, t->text)) < 0
        || (err = pmi_ask(t, "maxes", "cmd=get_maxes\n")) < 0)
        return err;
    if (!gci_pmi_number(t->line, "vallen_max", &longest) || (longest < room ? longest : room) <= PMI_PART_LEAST)
        return pmi_senseless(t);
    return pmi_put(t, table, (size_t)(longest < room ? longest - 1 : room), record);
}

GCI int gci_pmi_meet(gci_env *env, gci_place *p, const gci_full_card *me, int64_t until, char text[GCI_TEXT])
{
    char table[PMI_NAME], record[GCI_PMI_RECORD];
    pmi_talk t;
    int err;

    if (p->pmi.kind == GCI_PMI_NONE)
        return GC_OK;
    if ((err = pmi_open(&t, env->sys, p->pmi.fd, until, text)) == GC_OK)
        err = pmi_ask(&t, "my_kvsname", "cmd=get_my_kvsname\n");
    if (err == GC_OK && !gci_pmi_value(t.line, "kvsname", table, sizeof table))
        err = pmi_senseless(&t);
    if (err == GC_OK && p->rank == 0)
        err = pmi_offer(&t, p, me, table);
    if (err == GC_OK && (err = pmi_ask(&t, "barrier_out", "cmd=barrier_in\n")) == GC_ERR_TIMEOUT)
        snprintf(text, GCI_TEXT, "PMI: not all of the %d processes have called gc_init in time", p->ranks);
    if (err == GC_OK && p->rank > 0 && (err = pmi_get(&t, table, record)) == GC_OK)
        err = gci_pmi_read(p, me->id, record, text);
    explicit_bzero(record, sizeof record);
    return pmi_close(&t, err);
}

/* ---- end ------------------------------------------------------------------------------------------------------------ */

GCI void gci_pmi_end(gci_env *env, gci_pmi *pmi)
{
    char text[GCI_TEXT];
    int64_t until;
    pmi_talk t;
    int err;

    if (pmi->kind == GCI_PMI_NONE)
        return;
    until = env->sys->now(env->sys) + (int64_t)PMI_END_MS * GCI_NS_PER_MS;
    if ((err = pmi_open(&t, env->sys, pmi->fd, until, text)) == GC_OK)
        err = pmi_ask(&t, "finalize_ack", "cmd=finalize\n");
    if (pmi_close(&t, err) < 0)
        gci_log(env, GC_LOG_ERROR, "%s", text);
    if (pmi->kind == GCI_PMI_PORT)          /* the other kind was there before us: its number stays taken */
        env->sys->close(env->sys, pmi->fd);
    pmi->kind = GCI_PMI_NONE;
}
