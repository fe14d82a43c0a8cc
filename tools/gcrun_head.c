/* gcrun_head.c: the process that the user started.
 * SPDX-License-Identifier: MIT
 *
 * One channel (the agent's standard input and output) to a node per host. When every node has said hello and rank 0's
 * node has told where rank 0 will listen, all are told to start; so a host that cannot be reached leaves no half a job.
 * From then on the head carries: output and standard input (with credit, so that a slow reader holds the ranks back and
 * not this process' memory), signals, ends of ranks, frames of tunnelled connections.
 *
 * Why it ends: a node ends when its ranks have ended, or when it is told to STOP, at the latest GCRUN_GRACE_MS later; its
 * end closes the channel. A node that does not end in time is given up, and its agent is killed. If this process is killed, every
 * node sees the end of its input and does the same alone.
 *
 * Why it does not deadlock: nodes always read. The head stops reading a channel only while some node's queue is longer
 * than HEAD_QUEUE_MAX, and that queue shrinks because its node reads.
 */
#include "gcrun.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <limits.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    HEAD_KEY_BYTES = 32,            /* as long as the SHA-256 that it goes into */
    HEAD_INPUT_WINDOW = 65536,      /* bytes of standard input that rank 0 has not taken */
    HEAD_QUEUE_MAX = 8 << 20,       /* bytes for one node beyond which nobody adds to them */
    HEAD_PATIENCE_MS = 5000,        /* for a node to say that it is done, beyond the grace that it gives its ranks */
    HEAD_ORPHANS_MS = 2000,         /* for what a killed node left behind to die of SIGKILL */
    HEAD_SPARES = 64,               /* children that this process had before it was gcrun */
    HEAD_GATHER_MS = 100,           /* after a failure, for the news of another rank that was killed: that one is the cause */
    HEAD_NAMED = 8                  /* failed ranks named in the summary */
};

extern char **environ;

typedef struct head_node {
    const gcrun_host *host;
    int         first;              /* its ranks are first .. first + host->slots - 1 */
    pid_t       pid;                /* agent or local node; 0: reaped */
    int         status;             /* of waitpid */
    int         to, from;           /* -1: closed */
    int         to_poll, from_poll;
    gcrun_queue in, out;
    bool        magic, hello, done, given_up;
    char        id[GCRUN_HOST_ID];
} head_node;

enum head_state { HEAD_RUNNING, HEAD_ENDED, HEAD_FAILED, HEAD_STOPPED };
typedef struct head_rank { enum head_state state; gcrun_exit how; } head_rank;

/* Output on its way to standard output or error: records of a head_record and its bytes. */
typedef struct head_record { int32_t node; uint32_t bytes; } head_record;     /* node -1: of the head itself */
typedef struct head_print { int fd, poll; size_t piece, left; head_record now; gcrun_queue queue; bool broken; } head_print;

typedef struct head {
    const gcrun_options *opt;
    head_node    *node;
    head_rank    *rank;
    int          *held, helds;      /* ranks that failed and were not told yet */
    int64_t       held_until;
    gcrun_inherit inherit;
    gcrun_polls   polls;
    gcrun_queue   input;
    head_print    print[3];         /* 1 and 2 are used */
    int           signals, signal_poll, input_poll;
    bool          started, stopping, input_end, have_root, said_failed;
    int           status;           /* exit status: the first failure's */
    int           asked;            /* the first signal by which the user asked for the end, or 0 */
    uint32_t      input_credit;
    uint16_t      port;
    char          addresses[GCRUN_ADDRS_TEXT];
    int64_t       start_deadline, stop_deadline;
    pid_t         spare[HEAD_SPARES];
    int           spares;
} head;

/* ---- printing ---- */

static void head_put(head *h, int kind, int32_t node, const void *data, size_t bytes)
{
    head_record record = { node, (uint32_t)bytes };
    gcrun_queue_put(&h->print[kind].queue, &record, sizeof record);
    gcrun_queue_put(&h->print[kind].queue, data, bytes);
}

static void head_say(head *, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void head_say(head *h, const char *format, ...)
{
    char line[2 * GCRUN_TEXT];
    int n = snprintf(line, sizeof line, "gcrun: ");
    va_list args;
    va_start(args, format);
    vsnprintf(line + n, sizeof line - (size_t)n - 1, format, args);
    va_end(args);
    size_t bytes = strlen(line);
    line[bytes++] = '\n';
    head_put(h, STDERR_FILENO, -1, line, bytes);
}

static void head_stop(head *h, int grace_ms);

static void head_print_broken(head *h, head_print *p, int why)
{
    p->broken = true;
    if (p->fd != STDOUT_FILENO || h->stopping) return;
    if (why != EPIPE) head_say(h, "standard output: %s", strerror(why));
    if (!h->status) h->status = why == EPIPE ? 128 + SIGPIPE : 1;   /* as any program whose reader has gone */
    head_stop(h, GCRUN_GRACE_MS);
}

/* Takes the next record, or acknowledges one that is through. False: nothing to do. */
static bool head_print_next(head *h, head_print *p)
{
    if (p->left > 0) return true;
    if (p->now.bytes > 0 && p->now.node >= 0) {
        gcrun_frame_put_number(&h->node[p->now.node].out, GCRUN_ACK, (uint32_t)p->fd, p->now.bytes);
        p->now.bytes = 0;
    }
    if (gcrun_queue_bytes(&p->queue) < sizeof p->now) return false;
    memcpy(&p->now, p->queue.data + p->queue.start, sizeof p->now);
    gcrun_queue_drop(&p->queue, sizeof p->now);
    p->left = p->now.bytes;
    return true;
}

/* The descriptor is the user's and may be shared, so it stays blocking: never more at once than a pipe that polls as
 * writable surely takes. */
static void head_print_work(head *h, head_print *p)
{
    struct pollfd ready = { .fd = p->fd, .events = POLLOUT };
    while (head_print_next(h, p)) {
        size_t piece = p->left < p->piece ? p->left : p->piece;
        if (p->broken) {
            gcrun_queue_drop(&p->queue, p->left);
            p->left = 0;
            continue;
        }
        if (piece > 0) {
            if (poll(&ready, 1, 0) <= 0) return;
            ssize_t n = write(p->fd, p->queue.data + p->queue.start, piece);
            if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
            if (n < 0) { head_print_broken(h, p, errno); continue; }
            gcrun_queue_drop(&p->queue, (size_t)n);
            p->left -= (size_t)n;
        }
    }
}

static bool head_printed(const head_print *p)
{
    return p->left == 0 && gcrun_queue_bytes(&p->queue) == 0;
}

/* ---- ends ---- */

static void head_close(head_node *node)
{
    if (node->to >= 0) close(node->to);
    if (node->from >= 0) close(node->from);
    node->to = node->from = -1;
    gcrun_queue_drop(&node->out, gcrun_queue_bytes(&node->out));
}

static void head_stop(head *h, int grace_ms)
{
    int64_t deadline = gcrun_now_ms() + grace_ms + HEAD_PATIENCE_MS;
    if (!h->stopping || deadline < h->stop_deadline) h->stop_deadline = deadline;
    h->stopping = true;
    for (int i = 0; i < h->opt->hosts; i++) {
        head_node *node = &h->node[i];
        if (node->hello) {
            if (node->to >= 0) gcrun_frame_put(&node->out, GCRUN_STOP, (uint32_t)grace_ms, NULL, 0);
            continue;
        }
        if (node->pid > 0) kill(-node->pid, SIGKILL);   /* an agent on its way: what it may start sees the end of its input */
        head_close(node);
        node->done = true;
    }
}

/* The job cannot go on whatever the user said about failures. */
static void head_fatal(head *h, int status)
{
    if (!h->status) h->status = status;
    if (!h->stopping) head_stop(h, GCRUN_GRACE_MS);
}

static int head_rank_status(const gcrun_exit *how)
{
    return how->flags & GCRUN_BY_SIGNAL ? 128 + (int)how->code : (int)how->code;
}

static void head_describe(const gcrun_exit *how, char *out, size_t bytes)
{
    if (how->flags & GCRUN_NOT_STARTED) snprintf(out, bytes, "was lost with its host");
    else if (how->flags & GCRUN_BY_SIGNAL)
        snprintf(out, bytes, "was killed by signal %u (%s)%s", how->code, strsignal((int)how->code),
                 how->flags & GCRUN_CORE ? ", core dumped" : "");
    else snprintf(out, bytes, "exited with status %u", how->code);
}

static void head_tell_rank(head *h, int rank)
{
    const gcrun_exit *how = &h->rank[rank].how;
    const head_node *node = h->node;
    char what[128];
    bool wanted = h->asked && (how->flags & GCRUN_BY_SIGNAL) && (int)how->code == h->asked;
    while (rank >= node->first + node->host->slots) node++;
    if (!h->status) h->status = head_rank_status(how);
    head_describe(how, what, sizeof what);
    if (!h->stopping && !wanted) head_say(h, "rank %d on host %s (pid %u) %s", rank, node->host->name, how->pid, what);
    if (!h->opt->wait && !h->asked && !h->stopping) head_stop(h, GCRUN_GRACE_MS);
}

/* When a rank is killed its peers end too, with a status that says so, and the kernel may tell of them first. So news of
 * a status waits a moment; what was killed goes before it. */
static void head_tell(head *h)
{
    int helds = h->helds;
    h->helds = 0;
    for (int killed = 1; killed >= 0; killed--)
        for (int i = 0; i < helds; i++)
            if (!!(h->rank[h->held[i]].how.flags & GCRUN_BY_SIGNAL) == killed) head_tell_rank(h, h->held[i]);
}

static void head_rank_failed(head *h, int rank)
{
    h->rank[rank].state = HEAD_FAILED;
    if (h->helds == 0) h->held_until = gcrun_now_ms() + HEAD_GATHER_MS;
    h->held[h->helds++] = rank;
    if (h->rank[rank].how.flags & GCRUN_BY_SIGNAL) head_tell(h);
}

static bool head_exit(head *h, head_node *node, const gcrun_frame *frame)
{
    gcrun_exit how;
    int rank = (int)frame->id;
    if (!gcrun_exit_get(frame, &how) || rank < node->first || rank >= node->first + node->host->slots) return false;
    if (h->rank[rank].state != HEAD_RUNNING) return false;
    h->rank[rank].how = how;
    if (h->stopping && (how.flags & GCRUN_STOPPED)) h->rank[rank].state = HEAD_STOPPED;
    else if (how.code == 0) h->rank[rank].state = HEAD_ENDED;
    else head_rank_failed(h, rank);
    return true;
}

static void head_summary(head *h)
{
    int failed = 0, stopped = 0, named = 0;
    char list[GCRUN_TEXT] = "";
    for (int i = 0; i < h->opt->ranks; i++) {
        const gcrun_exit *how = &h->rank[i].how;
        stopped += h->rank[i].state == HEAD_STOPPED;
        if (h->rank[i].state != HEAD_FAILED) continue;
        size_t used = strlen(list);
        if (failed++ >= HEAD_NAMED) continue;
        if (how->flags & GCRUN_NOT_STARTED) snprintf(list + used, sizeof list - used, "%srank %d (lost)", used ? ", " : "", i);
        else snprintf(list + used, sizeof list - used, "%srank %d (%s %u)", used ? ", " : "", i,
                      how->flags & GCRUN_BY_SIGNAL ? "signal" : "status", how->code);
        named++;
    }
    if (!failed || h->opt->ranks == 1) return;
    char more[48] = "", rest[64] = "";
    if (failed > named) snprintf(more, sizeof more, " and %d more", failed - named);
    if (stopped) snprintf(rest, sizeof rest, "; %d stopped by gcrun", stopped);
    head_say(h, "%d of %d ranks failed: %s%s%s", failed, h->opt->ranks, list, more, rest);
}

/* ---- nodes: starting and losing them ---- */

static const char *head_where(const head *h, const head_node *node, char out[GCRUN_NAME_MAX + 16])
{
    out[0] = 0;
    if (h->opt->hosts > 1 || node->pid < 0) snprintf(out, GCRUN_NAME_MAX + 16, "host %s: ", node->host->name);
    return out;
}

static bool head_is_local(const gcrun_options *opt, const char *name)
{
    char own[GCRUN_NAME_MAX] = "";
    if (opt->agent_given) return false;
    gethostname(own, sizeof own - 1);
    return strcmp(name, "localhost") == 0 || strcmp(name, own) == 0;
}

static void head_key(char out[2 * HEAD_KEY_BYTES + 1])
{
    unsigned char key[HEAD_KEY_BYTES];
    size_t have = 0;
    while (have < sizeof key) {
        ssize_t n = getrandom(key + have, sizeof key - have, 0);
        if (n < 0 && errno != EINTR) gcrun_die(GCRUN_EXIT_FAILED, "no random numbers for the job's key: %s", strerror(errno));
        if (n > 0) have += (size_t)n;
    }
    for (size_t i = 0; i < sizeof key; i++) snprintf(out + 2 * i, 3, "%02x", key[i]);
}

/* Set but empty is as good as not set, as for the library. */
static bool head_has_variable(const char *name)
{
    const char *value = getenv(name);
    return value && *value;
}

/* What every rank gets beyond its host's environment: the key, every GRIDCOMM_ variable that is set here but those that
 * are a rank's own, and what the user named. Later ones win. */
static void head_environment(const gcrun_options *opt, gcrun_job *job, char key[2 * HEAD_KEY_BYTES + 16])
{
    static const char *const own[] = { "GRIDCOMM_RANK=", "GRIDCOMM_SIZE=", "GRIDCOMM_ROOT=", "GRIDCOMM_LISTEN_FD=" };
    int n = 0;
    while (environ[n]) n++;
    job->env = gcrun_alloc((size_t)(n + opt->envs + 2), sizeof *job->env);
    for (int i = 0; i < n; i++) {
        bool take = strncmp(environ[i], "GRIDCOMM_", 9) == 0;
        for (size_t k = 0; k < sizeof own / sizeof own[0]; k++) take = take && strncmp(environ[i], own[k], strlen(own[k])) != 0;
        if (take) job->env[job->envs++] = environ[i];
    }
    if (!head_has_variable("GRIDCOMM_KEY") && !head_has_variable("GRIDCOMM_KEY_FILE")) {
        int used = snprintf(key, 16, "GRIDCOMM_KEY=");
        head_key(key + used);
        job->env[job->envs++] = key;
    }
    for (int i = 0; i < opt->envs; i++) job->env[job->envs++] = opt->env[i];
}

/* 0, or why gcrun ends. */
static int head_node_start(head *h, head_node *node)
{
    const gcrun_options *opt = h->opt;
    bool local = head_is_local(opt, node->host->name);
    int words = local ? 0 : opt->agent_words, at = 0, to[2] = { -1, -1 }, from[2] = { -1, -1 };
    char self[PATH_MAX], *argv[opt->agent_words + 4];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = 0;
    for (int i = 0; i < words; i++) argv[at++] = opt->agent[i];
    if (!local) argv[at++] = (char *)node->host->name;
    argv[at++] = local || !opt->node_path ? self : opt->node_path;
    argv[at++] = (char *)"--node";
    argv[at] = NULL;
    if (!gcrun_pipe(to) || !gcrun_pipe(from)) {
        head_say(h, "cannot make a pipe: %s", strerror(errno));
        for (int i = 0; i < 2; i++) if (to[i] >= 0) close(to[i]);
        return GCRUN_EXIT_FAILED;
    }
    gcrun_spawn spawn = { .argv = argv, .envp = environ, .fd = { to[0], from[1], STDERR_FILENO }, .keep = -1,
                          .inherit = &h->inherit };
    pid_t pid = gcrun_spawn_run(&spawn);
    close(to[0]);
    close(from[1]);
    node->to = to[1];
    node->from = from[0];
    gcrun_nonblock(node->to);
    gcrun_nonblock(node->from);
    if (pid < 0) head_say(h, "cannot run %s'%s': %s", local ? "" : "the agent ", argv[0], strerror(-pid));
    node->pid = pid < 0 ? 0 : pid;
    return pid < 0 ? GCRUN_EXIT_NO_PROGRAM : 0;
}

/* Nobody at the other ends of its tunnelled connections may wait for it. */
static void head_tunnel_lost(head *h, const head_node *node)
{
    for (int i = 1; i < h->opt->hosts && node == h->node; i++)
        if (h->node[i].to >= 0) gcrun_frame_put(&h->node[i].out, GCRUN_TUNNEL_RESET, 0, NULL, 0);
    if (node != h->node && h->node[0].to >= 0)
        gcrun_frame_put(&h->node[0].out, GCRUN_TUNNEL_RESET, (uint32_t)(node - h->node) << 16, NULL, 0);
}

/* The channel has ended before the node said that it is done, and the agent is gone. */
static void head_lost(head *h, head_node *node)
{
    int lost = 0, status = node->status;
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : WIFSIGNALED(status) ? 128 + WTERMSIG(status) : 0;
    head_tunnel_lost(h, node);
    node->done = true;
    for (int i = node->first; i < node->first + node->host->slots; i++) {
        if (h->rank[i].state != HEAD_RUNNING) continue;
        h->rank[i].how = (gcrun_exit){ .code = (uint32_t)code, .flags = GCRUN_NOT_STARTED };
        h->rank[i].state = h->stopping ? HEAD_STOPPED : HEAD_FAILED;
        lost++;
    }
    if (h->stopping && !node->given_up) return;
    if (!h->started)
        head_say(h, "host %s could not be reached: '%s' ended with status %d before gcrun ran there", node->host->name,
                 h->opt->agent_words && !head_is_local(h->opt, node->host->name) ? h->opt->agent[0] : "gcrun --node", code);
    else
        head_say(h, "host %s is lost (status %d), and with it %d ranks (%d to %d)", node->host->name, code, lost, node->first,
                 node->first + node->host->slots - 1);
    if (!h->status) h->status = code ? code : GCRUN_EXIT_FAILED;
    if (!h->started || !h->opt->wait) head_fatal(h, h->status);
}

static void head_reap(head *h)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0 || (pid < 0 && errno == EINTR))
        for (int i = 0; i < h->opt->hosts; i++)
            if (h->node[i].pid == pid) {
                h->node[i].pid = 0;
                h->node[i].status = status;
            }
}

/* ---- frames ---- */

static void head_root_text(const head *h, const head_node *node, char out[GCRUN_ADDRS_TEXT])
{
    char port[8], list[GCRUN_ADDRS_TEXT + 16];
    size_t used = 0;
    bool together = strcmp(node->id, h->node[0].id) == 0;
    out[0] = 0;
    snprintf(port, sizeof port, ":%u", (unsigned)h->port);
    snprintf(list, sizeof list, "%s%s%s", together ? "127.0.0.1" : "", together && h->addresses[0] ? "," : "", h->addresses);
    char *rest = list, *address;
    while ((address = strsep(&rest, ",")) != NULL) {
        size_t need = strlen(address) + strlen(port) + 2;
        if (!*address || used + need > GCRUN_ADDRS_TEXT) continue;
        used += (size_t)snprintf(out + used, GCRUN_ADDRS_TEXT - used, "%s%s%s", used ? "," : "", address, port);
    }
}

static void head_start_if_ready(head *h)
{
    char root[GCRUN_ADDRS_TEXT];
    if (h->started || h->stopping || !h->have_root) return;
    for (int i = 0; i < h->opt->hosts; i++)
        if (!h->node[i].hello) return;
    for (int i = 0; i < h->opt->hosts; i++) {
        head_node *node = &h->node[i];
        bool apart = strcmp(node->id, h->node[0].id) != 0;
        head_root_text(h, node, root);
        gcrun_frame_put(&node->out, GCRUN_START, apart, root, strlen(root));
    }
    h->started = true;
}

static bool head_text(const gcrun_frame *frame, char *out, size_t bytes)
{
    if (frame->length >= bytes || memchr(frame->payload, 0, frame->length)) return false;
    memcpy(out, frame->payload, frame->length);
    out[frame->length] = 0;
    return true;
}

static bool head_take_root(head *h, const head_node *node, const gcrun_frame *frame)
{
    if (node != h->node || h->have_root || frame->id == 0 || frame->id > 65535) return false;
    if (!head_text(frame, h->addresses, sizeof h->addresses)) return false;
    if (h->addresses[strspn(h->addresses, "0123456789abcdefABCDEF.:,[]")]) return false;
    h->port = (uint16_t)frame->id;
    h->have_root = true;
    return true;
}

static bool head_take_failed(head *h, const head_node *node, const gcrun_frame *frame)
{
    char text[GCRUN_TEXT], where[GCRUN_NAME_MAX + 16];
    if (!head_text(frame, text, sizeof text) || frame->id == 0 || frame->id > 255) return false;
    if (!h->said_failed) head_say(h, "%s%s", head_where(h, node, where), text);
    h->said_failed = true;          /* the other hosts' reason is most often the same */
    head_fatal(h, (int)frame->id);
    return true;
}

/* Connections are entered at any node but rank 0's, and left there. On rank 0's channel the upper half of the id is the
 * entering node's number. */
static bool head_tunnel(head *h, const head_node *from, const gcrun_frame *frame)
{
    uint32_t index = (uint32_t)(from - h->node), other = frame->id >> 16;
    if (index > 0) {
        if (frame->id == 0 || frame->id > 0xffff) return false;
        if (h->node[0].to < 0 && frame->type <= GCRUN_TUNNEL_DATA)
            gcrun_frame_put(&h->node[index].out, GCRUN_TUNNEL_RESET, frame->id, NULL, 0);
        if (h->node[0].to >= 0)
            gcrun_frame_put(&h->node[0].out, frame->type, index << 16 | frame->id, frame->payload, frame->length);
        return true;
    }
    if (other == 0 || other >= (uint32_t)h->opt->hosts || frame->type == GCRUN_TUNNEL_OPEN) return false;
    if (h->node[other].to >= 0)
        gcrun_frame_put(&h->node[other].out, frame->type, frame->id & 0xffff, frame->payload, frame->length);
    return true;
}

static bool head_ack(head *h, const head_node *node, const gcrun_frame *frame)
{
    uint32_t bytes;
    if (node != h->node || frame->id != 0 || !gcrun_frame_number(frame, &bytes)) return false;
    if (bytes > HEAD_INPUT_WINDOW - h->input_credit) return false;
    h->input_credit += bytes;
    return true;
}

static bool head_frame(head *h, head_node *node, const gcrun_frame *frame)
{
    switch (frame->type) {
    case GCRUN_HELLO:
        if (node->hello || !head_text(frame, node->id, sizeof node->id)) return false;
        node->hello = true;
        return true;
    case GCRUN_ROOT:   return head_take_root(h, node, frame);
    case GCRUN_FAILED: return head_take_failed(h, node, frame);
    case GCRUN_EXIT:   return head_exit(h, node, frame);
    case GCRUN_DONE:   node->done = true; return true;
    case GCRUN_ACK:    return head_ack(h, node, frame);
    case GCRUN_OUTPUT:
        if (frame->id != STDOUT_FILENO && frame->id != STDERR_FILENO) return false;
        if (frame->length) head_put(h, (int)frame->id, (int32_t)(node - h->node), frame->payload, frame->length);
        return true;
    case GCRUN_TUNNEL_OPEN: case GCRUN_TUNNEL_DATA: case GCRUN_TUNNEL_ACK: case GCRUN_TUNNEL_EOF: case GCRUN_TUNNEL_RESET:
        return head_tunnel(h, node, frame);
    default:
        return false;
    }
}

/* Drops what a login shell printed before the node spoke. False: it goes on and on. */
static bool head_find_magic(head_node *node)
{
    static const char magic[] = GCRUN_MAGIC;
    size_t have = gcrun_queue_bytes(&node->in), length = sizeof magic - 1;
    const unsigned char *at = have >= length ? memmem(node->in.data + node->in.start, have, magic, length) : NULL;
    if (!at) return have <= GCRUN_NOISE_MAX;
    gcrun_queue_drop(&node->in, (size_t)(at - (node->in.data + node->in.start)) + length);
    node->magic = true;
    return true;
}

static void head_read(head *h, head_node *node)
{
    gcrun_frame frame;
    size_t bytes;
    int got = 0;
    enum gcrun_io io = gcrun_queue_fill(&node->in, node->from, GCRUN_FRAME_MAX);
    if (!node->magic && !head_find_magic(node)) got = -1;
    while (node->magic && (got = gcrun_frame_get(&node->in, &frame, &bytes)) > 0) {
        if (!head_frame(h, node, &frame)) { got = -1; break; }
        gcrun_queue_drop(&node->in, bytes);
    }
    if (got < 0) {
        head_say(h, "host %s: what came from it makes no sense (is gcrun the same version on all hosts?)", node->host->name);
        if (node->pid > 0) kill(-node->pid, SIGKILL);
        head_fatal(h, GCRUN_EXIT_FAILED);
    }
    if (got < 0 || io == GCRUN_IO_END) head_close(node);
}

/* ---- signals, standard input ---- */

static void head_signal(head *h, int sig)
{
    for (int i = 0; i < h->opt->hosts; i++)
        if (h->node[i].to >= 0) gcrun_frame_put(&h->node[i].out, GCRUN_SIGNAL, (uint32_t)sig, NULL, 0);
}

/* Stops the ranks, then this process as if it had not caught the signal. */
static void head_suspend(head *h)
{
    head_signal(h, SIGTSTP);
    for (int i = 0; i < h->opt->hosts; i++)
        if (h->node[i].to >= 0) gcrun_queue_flush(&h->node[i].out, h->node[i].to);
    kill(getpid(), SIGSTOP);
}

static void head_asked(head *h, int sig)
{
    if (h->asked || !h->started || h->stopping) {   /* asked again, or nothing to pass it on to */
        if (!h->status) h->status = 128 + sig;
        if (!h->asked) h->asked = sig;
        head_stop(h, 0);
        return;
    }
    h->asked = sig;
    head_signal(h, sig);
}

static void head_read_signals(head *h)
{
    struct signalfd_siginfo info;
    while (read(h->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        int sig = (int)info.ssi_signo;
        if (sig == SIGCHLD) continue;
        if (sig == SIGTSTP) head_suspend(h);
        else if (sig == SIGUSR1 || sig == SIGUSR2 || sig == SIGCONT) head_signal(h, sig);
        else head_asked(h, sig);
    }
}

/* A terminal is read only in the foreground: a background process that reads it is stopped. */
static bool head_wants_input(const head *h)
{
    if (!h->started || h->input_end || h->input_credit == 0 || h->node[0].to < 0) return false;
    pid_t group = tcgetpgrp(STDIN_FILENO);
    return group < 0 || group == getpgrp();
}

static void head_read_input(head *h)
{
    h->input_end = gcrun_queue_fill(&h->input, STDIN_FILENO, h->input_credit) == GCRUN_IO_END;
    size_t bytes = gcrun_queue_bytes(&h->input);
    if (bytes == 0 && !h->input_end) return;
    gcrun_frame_put(&h->node[0].out, GCRUN_INPUT, 0, h->input.data + h->input.start, bytes);
    gcrun_queue_drop(&h->input, bytes);
    h->input_credit -= (uint32_t)bytes;
}

/* ---- the loop ---- */

static void head_poll(head *h)
{
    gcrun_polls *p = &h->polls;
    size_t longest = 0;
    p->n = 0;
    h->signal_poll = gcrun_polls_add(p, h->signals, POLLIN);
    h->input_poll = gcrun_polls_add(p, STDIN_FILENO, head_wants_input(h) ? POLLIN : 0);
    for (int kind = STDOUT_FILENO; kind <= STDERR_FILENO; kind++)
        h->print[kind].poll = gcrun_polls_add(p, kind, head_printed(&h->print[kind]) ? 0 : POLLOUT);
    for (int i = 0; i < h->opt->hosts; i++) {
        size_t bytes = gcrun_queue_bytes(&h->node[i].out);
        if (bytes > longest) longest = bytes;
    }
    for (int i = 0; i < h->opt->hosts; i++) {
        head_node *node = &h->node[i];
        node->from_poll = gcrun_polls_add(p, node->from, longest < HEAD_QUEUE_MAX ? POLLIN : 0);
        node->to_poll = gcrun_polls_add(p, node->to, gcrun_queue_bytes(&node->out) > 0 ? POLLOUT : 0);
    }
    int64_t until = h->stopping ? h->stop_deadline : h->started ? 0 : h->start_deadline;
    if (h->helds && (!until || h->held_until < until)) until = h->held_until;
    int64_t left = until ? until - gcrun_now_ms() : -1;
    if (until && left < 0) left = 0;
    if (poll(p->at, (nfds_t)p->n, left > INT_MAX ? INT_MAX : (int)left) < 0) p->n = 0;
}

static void head_work(head *h)
{
    const gcrun_polls *p = &h->polls;
    if (p->n == 0) return;
    if (gcrun_polls_seen(p, h->signal_poll)) head_read_signals(h);
    for (int i = 0; i < h->opt->hosts; i++) {
        head_node *node = &h->node[i];
        if (gcrun_polls_seen(p, node->from_poll)) head_read(h, node);
    }
    head_start_if_ready(h);
    if (gcrun_polls_seen(p, h->input_poll)) head_read_input(h);
    for (int kind = STDOUT_FILENO; kind <= STDERR_FILENO; kind++)
        if (!head_printed(&h->print[kind])) head_print_work(h, &h->print[kind]);
    for (int i = 0; i < h->opt->hosts; i++) {
        head_node *node = &h->node[i];
        if (node->to >= 0 && gcrun_queue_flush(&node->out, node->to) == GCRUN_IO_END) {
            close(node->to);                        /* what it still has to say is read; then its end is seen */
            node->to = -1;
            gcrun_queue_drop(&node->out, gcrun_queue_bytes(&node->out));
        }
    }
}

/* A node whose ranks have all ended may have to wait until what they have written is read: then it is not late, unless the user
 * does not want to wait for that. */
static bool head_waits_for_reader(const head *h, const head_node *node)
{
    bool printed = head_printed(&h->print[STDOUT_FILENO]) && head_printed(&h->print[STDERR_FILENO]);
    for (int i = 0; i < node->host->slots && !printed; i++)
        if (h->rank[node->first + i].state == HEAD_RUNNING) return false;
    return !printed && node->hello && !h->asked;
}

static void head_late(head *h)
{
    int64_t now = gcrun_now_ms();
    if (h->helds && now >= h->held_until) head_tell(h);
    if (!h->started && !h->stopping && now >= h->start_deadline) {
        for (int i = 0; i < h->opt->hosts; i++)
            if (!h->node[i].hello)
                head_say(h, "host %s did not answer within %g s", h->node[i].host->name, h->opt->start_timeout);
        head_fatal(h, GCRUN_EXIT_FAILED);
    }
    if (!h->stopping || now < h->stop_deadline) return;
    for (int i = 0; i < h->opt->hosts; i++) {
        head_node *node = &h->node[i];
        if ((node->from < 0 && node->pid == 0) || head_waits_for_reader(h, node)) continue;
        if (node->hello && !node->done) head_say(h, "host %s does not confirm that its processes have ended", node->host->name);
        node->given_up = node->done = true;
        if (node->pid > 0) kill(-node->pid, SIGKILL);
        head_close(node);
    }
    h->stop_deadline = now + HEAD_PATIENCE_MS;
}

/* True when every node is gone. */
static bool head_finished(head *h)
{
    bool over = true;
    for (int i = 0; i < h->opt->hosts; i++) {
        head_node *node = &h->node[i];
        if (node->from < 0 && node->pid == 0 && !node->done) head_lost(h, node);
        if (node->from >= 0 || node->pid != 0) over = false;
    }
    return over;
}

static void head_setup(head *h)
{
    static const int signals[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT };
    struct stat st;
    h->spares = gcrun_children(h->spare, HEAD_SPARES);
    h->signals = gcrun_process_begin(signals, (int)(sizeof signals / sizeof signals[0]), &h->inherit);
    if (h->signals < 0) gcrun_die(GCRUN_EXIT_FAILED, "cannot watch signals: %s", strerror(-h->signals));
    for (int kind = STDOUT_FILENO; kind <= STDERR_FILENO; kind++) {
        bool file = fstat(kind, &st) == 0 && S_ISREG(st.st_mode);
        h->print[kind].fd = kind;
        h->print[kind].piece = file ? GCRUN_FRAME_MAX : PIPE_BUF;
    }
    h->node = gcrun_alloc((size_t)h->opt->hosts, sizeof *h->node);
    h->rank = gcrun_alloc((size_t)h->opt->ranks, sizeof *h->rank);
    h->held = gcrun_alloc((size_t)h->opt->ranks, sizeof *h->held);
    h->input_credit = HEAD_INPUT_WINDOW;
    h->start_deadline = gcrun_now_ms() + (int64_t)(h->opt->start_timeout * 1000);
}

static void head_launch(head *h)
{
    const gcrun_options *opt = h->opt;
    char key[2 * HEAD_KEY_BYTES + 16];
    gcrun_job job = { .size = opt->ranks, .prefix = opt->prefix, .local = true, .cwd = opt->cwd, .arg = opt->arg,
                      .args = opt->args };
    for (int i = 0; i < opt->hosts; i++) {
        h->node[i].to = h->node[i].from = -1;
        h->node[i].host = &opt->host[i];
        job.local = job.local && head_is_local(opt, opt->host[i].name);
    }
    head_environment(opt, &job, key);
    for (int i = 0, first = 0; i < opt->hosts; first += opt->host[i].slots, i++) {
        head_node *node = &h->node[i];
        node->first = job.first = first;
        job.count = opt->host[i].slots;
        job.cluster = opt->host[i].cluster;
        int failed = head_node_start(h, node);
        if (failed) {
            head_close(node);
            node->done = true;
            head_fatal(h, failed);
            break;
        }
        gcrun_job_put(&node->out, &job);
    }
    free(job.env);
    memset(key, 0, sizeof key);
}

/* What a node that was killed has left: its children are this process' now. */
static void head_clear_orphans(const head *h)
{
    int64_t deadline = gcrun_now_ms() + HEAD_ORPHANS_MS;
    for (;;) {
        while (waitpid(-1, NULL, WNOHANG) > 0) continue;
        siginfo_t info;
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0) return;     /* no child at all */
        if (gcrun_kill_descendants(SIGKILL, h->spare, h->spares) == 0 || gcrun_now_ms() > deadline) return;
        poll(NULL, 0, 10);
    }
}

static void head_free(head *h)
{
    for (int i = 0; i < h->opt->hosts; i++) {
        head_close(&h->node[i]);
        gcrun_queue_free(&h->node[i].in);
        gcrun_queue_free(&h->node[i].out);
    }
    for (int kind = STDOUT_FILENO; kind <= STDERR_FILENO; kind++) gcrun_queue_free(&h->print[kind].queue);
    gcrun_queue_free(&h->input);
    close(h->signals);
    free(h->node);
    free(h->rank);
    free(h->held);
    free(h->polls.at);
}

/* A reader who takes nothing is waited for, as any program would, until a signal comes or if one has come before. */
static void head_print_rest(head *h)
{
    while (!head_printed(&h->print[STDOUT_FILENO]) || !head_printed(&h->print[STDERR_FILENO])) {
        gcrun_polls *p = &h->polls;
        p->n = 0;
        h->signal_poll = gcrun_polls_add(p, h->signals, POLLIN);
        for (int kind = STDOUT_FILENO; kind <= STDERR_FILENO; kind++)
            gcrun_polls_add(p, kind, head_printed(&h->print[kind]) ? 0 : POLLOUT);
        if (poll(p->at, (nfds_t)p->n, h->asked ? HEAD_PATIENCE_MS : -1) <= 0) return;
        if (gcrun_polls_seen(p, h->signal_poll)) head_read_signals(h);
        for (int kind = STDOUT_FILENO; kind <= STDERR_FILENO; kind++) head_print_work(h, &h->print[kind]);
    }
}

int gcrun_head_main(const gcrun_options *opt)
{
    head h = { .opt = opt };
    head_setup(&h);
    head_launch(&h);
    for (;;) {
        head_reap(&h);
        head_late(&h);
        if (head_finished(&h)) break;
        head_poll(&h);
        head_work(&h);
    }
    head_tell(&h);
    head_clear_orphans(&h);
    head_summary(&h);
    head_print_rest(&h);
    int status = h.status;
    head_free(&h);
    return status;
}
