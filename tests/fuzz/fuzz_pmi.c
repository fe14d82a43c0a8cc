/* fuzz_pmi.c: libFuzzer target for what a launcher says by PMI-1, and for Slurm's variables. Whatever it says, a start ends,
 * well or with a code of gc_init and a text; a record that is taken gives roots and a key, and what rank 0 writes is taken by
 * others.
 * SPDX-License-Identifier: MIT
 *
 * covers: pmi.c ^(pmi_|gci_pmi)
 * covers: launch.c ^(place_first_host|place_slurm)
 */
#include "gridcomm_int.h"
#include "tests/fuzz/fuzz.h"

#include <errno.h>

enum { FD = 7 };
/* The system, with a launcher at the other end that answers as it should, or with what the input has, in pieces that the input
 * chooses. */
typedef struct talk {
    gci_sys     sys;            /* first: the functions are given this */
    source      in;
    const char *answer;         /* what is left of the one that is right */
    int64_t     now;
} talk;

static const struct { const char *request, *answer; } right[] = {
    { "cmd=initack ", "cmd=initack\ncmd=set size=2\ncmd=set rank=1\ncmd=set debug=0\n" },
    { "cmd=init ", "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n" },
    { "cmd=get_maxes\n", "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=40\n" },
    { "cmd=get_my_kvsname\n", "cmd=my_kvsname kvsname=k\n" },
    { "cmd=put ", "cmd=put_result rc=0 msg=success\n" },
    { "cmd=barrier_in\n", "cmd=barrier_out\n" },
    { "cmd=get ", "cmd=get_result rc=0 msg=success value=.1,h,1,k,a:1\n" },
    { "cmd=finalize\n", "cmd=finalize_ack\n" },
};

static int64_t talk_now(gci_sys *sys) { return ((talk *)sys)->now += GCI_NS_PER_MS; }
static int talk_random(gci_sys *sys, void *to, size_t bytes) { (void)sys; memset(to, 0x5a, bytes); return 0; }
static int talk_inherit(gci_sys *sys, int fd) { (void)sys; return fd == FD ? 0 : -EBADF; }
static int talk_connect(gci_sys *sys, const gci_addr *to, const gci_addr *from, uint32_t bind)
{
    (void)to, (void)from, (void)bind;
    return next(&((talk *)sys)->in) == 0xff ? -ECONNREFUSED : FD;
}
static int talk_connected(gci_sys *sys, int fd) { must(fd == FD); return next(&((talk *)sys)->in) == 0xff ? -EHOSTUNREACH : 0; }
static int talk_poller(gci_sys *sys) { (void)sys; return 3; }
static int talk_watch(gci_sys *sys, int poller, int fd, unsigned events, uint64_t tag)
{
    (void)sys, (void)tag;
    must(poller == 3 && fd == FD && events);
    return 0;
}
static int talk_wait(gci_sys *sys, int poller, gci_event *event, int max, int64_t timeout)
{
    (void)sys, (void)poller, (void)event;
    must(max > 0 && timeout > 0);
    return 1;
}
static void talk_close(gci_sys *sys, int fd) { (void)sys; must(fd == 3 || fd == FD); }

static ssize_t talk_send(gci_sys *sys, int fd, const struct iovec *part, int n)
{
    talk *t = (talk *)sys;
    must(fd == FD && n == 1 && part->iov_len > 4 && part->iov_len <= 1024);
    t->answer = NULL;
    for (size_t i = 0; i < GCI_COUNT(right) && !t->answer; i++)
        if (strncmp(part->iov_base, right[i].request, strlen(right[i].request)) == 0)
            t->answer = right[i].answer;
    must(t->answer && ((const char *)part->iov_base)[part->iov_len - 1] == '\n');
    return (ssize_t)part->iov_len;
}

static ssize_t talk_recv(gci_sys *sys, int fd, const struct iovec *part, int n)
{
    talk *t = (talk *)sys;
    uint8_t choice = next(&t->in);
    size_t left = choice & 1 ? t->in.bytes : strlen(t->answer);
    size_t take = gci_min(gci_min(choice & 1 ? choice / 2 * 8 : choice / 2 + 1, left), part->iov_len);
    must(fd == FD && n == 1 && part->iov_len > 0);
    if (take == 0 && left)
        return -EAGAIN;
    memcpy(part->iov_base, choice & 1 ? (const char *)t->in.data : t->answer, take);
    if (choice & 1) {
        t->in.data += take;
        t->in.bytes -= take;
    } else {
        t->answer += take;
    }
    return (ssize_t)take;
}

static void check_text(int code, const char text[GCI_TEXT])
{
    must(code <= 0 && code >= GC_ERR_UNSUPPORTED && memchr(text, 0, GCI_TEXT));
    must(code == GC_OK || text[0]);
}

static void check_conversation(source s, uint8_t how)
{
    static const gci_addr lan = { .family = 4, .ip = { 10, 0, 0, 1 } };
    gci_ifaddr addr = { .addr = lan, .prefix = 24, .index = 2 };
    gci_place p = { .rank = how >> 1 & 1, .ranks = 2, .insecure = how & 4, .pmi = { .kind = GCI_PMI_FD, .fd = FD } };
    talk t = { .sys = *gci_sys_real(), .in = s };
    char text[GCI_TEXT] = "";
    gci_full_card me;
    gci_env env;
    int code;

    t.sys.now = talk_now, t.sys.random = talk_random, t.sys.inherit = talk_inherit, t.sys.connect = talk_connect;
    t.sys.connected = talk_connected, t.sys.poller = talk_poller, t.sys.watch = talk_watch, t.sys.wait = talk_wait;
    t.sys.send = talk_send, t.sys.recv = talk_recv, t.sys.close = talk_close;
    if (how & 1) {
        p.ranks = 0;
        p.pmi = (gci_pmi){ .kind = GCI_PMI_PORT, .fd = -1, .at = { "127.0.0.1", 1 } };
    }
    gci_env_init(&env, &t.sys, NULL);
    gci_card_fill(&me, "here", "node", "", 4321, &addr, 1);
    check_text(code = gci_pmi_begin(&env, &p, 1e3, text), text);
    if (code == GC_OK) {
        must(p.rank >= 0 && p.rank < p.ranks && p.ranks <= GCI_RANKS_MAX);
        check_text(code = gci_pmi_meet(&env, &p, &me, t.now + INT64_C(1000) * GCI_SECOND, text), text);
    }
    if (code == GC_OK) {
        must(p.roots > 0 && p.roots <= GCI_ROOTS_MAX && (p.key_bytes > 0 || p.insecure) && p.key_bytes <= GCI_KEY_MAX);
        gci_pmi_end(&env, &p.pmi);
    }
}

static void check_record(source s)
{
    char line[GCI_PMI_RECORD], text[GCI_TEXT] = "", value[32];
    size_t n = gci_min(s.bytes, sizeof line - 1);
    gci_place p = { .rank = 1, .ranks = 2 };
    int number = 0;

    memcpy(line, s.data, n);
    line[n] = 0;
    check_text(gci_pmi_answer(line, n, "maxes", text), text);
    if (gci_pmi_value(line, "a", value, sizeof value))
        must(memchr(value, 0, sizeof value) && !strchr(value, ' '));
    must(!gci_pmi_number(line, "n", &number) || (number >= 0 && number <= 999999999));
    check_text(gci_pmi_read(&p, "here", line, text), text);
    must(p.roots >= 0 && p.roots <= GCI_ROOTS_MAX && p.key_bytes <= 64);
}

/* Rank 0's record, from a place that the input makes. */
static void check_written(source s)
{
    gci_place p = { .ranks = 2 }, other = { .rank = 1, .ranks = 2 };
    char list[512], record[GCI_PMI_RECORD], text[GCI_TEXT] = "";
    gci_full_card me;
    size_t n = gci_min(s.bytes, sizeof list - 1);

    memcpy(list, s.data, n);
    list[n] = 0;
    gci_card_fill(&me, "here", "node", "", 4321, NULL, 0);
    if (list[0] && gci_place_add_roots(&p, "list", list, text) < 0)
        return;
    if (gci_pmi_write(&p, &me, "k", record, text) < 0)
        return;
    must(gci_pmi_read(&other, "here", record, text) == GC_OK && other.key_bytes == 1 && other.roots == (p.roots ? p.roots : 1));
    for (int i = 0; i < p.roots; i++)
        must(strcmp(p.root[i].host, other.root[i].host) == 0 && p.root[i].port == other.root[i].port);
}

/* Variables as lines: job, step, nodes, reserved ports, list. */
enum { VARIABLES = 5 };
static const char *look_up(void *user, const char *name)
{
    static const char *const names[VARIABLES] = { "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_STEP_NUM_NODES",
                                                  "SLURM_STEP_RESV_PORTS", "SLURM_STEP_NODELIST" };
    char (*value)[256] = user;
    if (strcmp(name, "SLURM_PROCID") == 0 || strcmp(name, "GRIDCOMM_INSECURE") == 0)
        return "1";
    if (strcmp(name, "SLURM_STEP_NUM_TASKS") == 0)
        return "2";
    for (int i = 0; i < VARIABLES; i++)
        if (strcmp(name, names[i]) == 0)
            return value[i];
    return NULL;
}

static void check_slurm(source s)
{
    char value[VARIABLES][256] = { "", "", "", "", "" }, text[GCI_TEXT];
    gci_place p;

    for (int i = 0; i < VARIABLES; i++) {
        size_t n = 0;
        for (uint8_t c; (c = next(&s)) != '\n' && c != 0 && n < sizeof value[0] - 1;)
            value[i][n++] = (char)c;
    }
    int code = gci_place_find(NULL, look_up, value, &p, text);
    check_text(code, text);
    if (code < 0)
        return;
    must(p.rank == 1 && p.ranks == 2 && p.roots == 1 && p.root[0].port > 0 && memchr(p.root[0].host, 0, sizeof p.root[0].host));
    must(p.root[0].host[0] && !strpbrk(p.root[0].host, "[], \n"));
    must(value[3][0] || (p.root[0].port >= 16384 && p.root[0].port < 32768));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    source s = { data, bytes };
    uint8_t how = next(&s);
    switch (how % 4) {
    case 0:  check_record(s); break;
    case 1:  check_written(s); break;
    case 2:  check_slurm(s); break;
    default: check_conversation(s, how >> 2); break;
    }
    return 0;
}
