/* gcrun_node.c: the process that gcrun starts on each host, directly or through an agent.
 * SPDX-License-Identifier: MIT
 *
 * It speaks frames over its standard input and output, starts the ranks of its host, carries their output line by line,
 * and ends only when no process of theirs is left. It never stops reading its input, and what it holds is bounded: a line
 * per stream, a window of output that gcrun has not written yet, a window per tunnelled connection.
 *
 *   waiting for the job -> listening -> waiting for START -> running -> ending -> gone
 *
 * The end of its input (gcrun died, or the agent's connection), a broken output, SIGTERM and STOP all lead to `ending`:
 * SIGTERM to every rank, SIGKILL to all that is left after the grace.
 */
#include "gcrun.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    NODE_LINE_MAX = 16384,          /* bytes of a rank's line; a longer one is cut, its pieces marked [rank]+ */
    NODE_WINDOW = 131072,           /* bytes of output under way that gcrun has not written: two full frames */
    NODE_KILL_EVERY_MS = 50,        /* SIGKILL again while something is left: a process may have been forking */
    NODE_LINGER_MS = 10000,         /* after the last rank, for what its tunnelled connections still hold */
    NODE_JOB_MAX = 16 << 20,        /* bytes of a job's description; the kernel takes 2 MiB of arguments by default */
    NODE_VARIABLES = 6              /* of each rank, see node_environment */
};

extern char **environ;

enum { NODE_OUT = 1, NODE_ERR = 2 };

typedef struct node_stream {        /* a rank's standard output or error */
    int    fd, poll;
    bool   cut;                     /* the line's beginning has been sent already */
    size_t bytes;
    char  *line;                    /* NODE_LINE_MAX, while something is in it */
} node_stream;

typedef struct node_rank {
    pid_t       pid;                /* 0: not running */
    node_stream stream[3];          /* NODE_OUT, NODE_ERR */
} node_rank;

typedef struct node {
    gcrun_queue  in, out, description, input;   /* input: for rank 0 */
    gcrun_job    job;
    gcrun_inherit inherit;
    node_rank   *rank;
    int          signals, null_fd, listener, input_fd;
    int          in_poll, out_poll, signal_poll, input_poll;
    uint16_t     entry_port;        /* of the tunnel; 0: none */
    bool         have_job, started, input_end, head_gone, ending, killing, nothing_left, done;
    int          running, streams;  /* ranks not ended; streams still open */
    int64_t      linger;            /* ms; until when the tunnel is waited for, or 0 */
    int64_t      deadline;          /* ms; when ending: of the next SIGKILL */
    int64_t      credit[3];         /* bytes that may be sent, per stream */
    char         root[GCRUN_ADDRS_TEXT + 64];
    gcrun_tunnel *tunnel;
    gcrun_polls  polls;
    gcrun_queue  text;              /* lines on their way into a frame */
} node;

/* ---- output of the ranks ---- */

static void node_text_send(node *n, int kind)
{
    size_t bytes = gcrun_queue_bytes(&n->text);
    while (bytes > 0 && !n->head_gone) {
        size_t piece = bytes < GCRUN_FRAME_MAX ? bytes : GCRUN_FRAME_MAX;
        gcrun_frame_put(&n->out, GCRUN_OUTPUT, (uint32_t)kind, n->text.data + n->text.start, piece);
        gcrun_queue_drop(&n->text, piece);
        n->credit[kind] -= (int64_t)piece;
        bytes -= piece;
    }
    gcrun_queue_drop(&n->text, gcrun_queue_bytes(&n->text));
}

/* A line, or a piece of one, goes out with its rank in front. Lines never share a write with a part of another one. */
static void node_line_end(node *n, int rank, node_stream *s, bool piece)
{
    char prefix[24];
    int bytes = snprintf(prefix, sizeof prefix, "[%d]%c", rank, s->cut ? '+' : ' ');
    gcrun_queue_put(&n->text, prefix, (size_t)bytes);
    gcrun_queue_put(&n->text, s->line, s->bytes);
    gcrun_queue_put(&n->text, "\n", 1);
    s->bytes = 0;
    s->cut = piece;
}

static void node_line_add(node *n, int rank, node_stream *s, const char *at, size_t bytes)
{
    if (!s->line) s->line = gcrun_alloc(1, NODE_LINE_MAX);
    while (bytes > 0) {
        const char *newline = memchr(at, '\n', bytes);
        size_t part = newline ? (size_t)(newline - at) : bytes;
        if (part > NODE_LINE_MAX - s->bytes) part = NODE_LINE_MAX - s->bytes;
        memcpy(s->line + s->bytes, at, part);
        s->bytes += part;
        at += part;
        bytes -= part;
        if (bytes > 0 && *at == '\n') {
            node_line_end(n, rank, s, false);
            at++;
            bytes--;
        } else if (s->bytes == NODE_LINE_MAX && bytes > 0) {
            node_line_end(n, rank, s, true);
        }
    }
}

static void node_stream_end(node *n, int rank, int kind, node_stream *s)
{
    if (s->bytes > 0) node_line_end(n, rank, s, false);
    node_text_send(n, kind);
    free(s->line);
    s->line = NULL;
    close(s->fd);
    s->fd = s->poll = -1;
    n->streams--;
}

/* One read. False: there was nothing to read now. */
static bool node_stream_read(node *n, int rank, int kind)
{
    node_stream *s = &n->rank[rank - n->job.first].stream[kind];
    char data[NODE_LINE_MAX];
    ssize_t got = read(s->fd, data, sizeof data);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (got <= 0) {
        node_stream_end(n, rank, kind, s);
        return false;
    }
    if (n->head_gone) return true;
    if (n->job.prefix) node_line_add(n, rank, s, data, (size_t)got);
    else gcrun_queue_put(&n->text, data, (size_t)got);
    node_text_send(n, kind);
    return true;
}

/* ---- starting ---- */

static void node_end(node *n, int64_t grace_ms);

static void node_failed(node *n, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));

static void node_failed(node *n, int status, const char *format, ...)
{
    char text[GCRUN_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    gcrun_frame_put(&n->out, GCRUN_FAILED, (uint32_t)status, text, strlen(text));
    node_end(n, 0);
}

static const char *node_job_variable(const node *n, const char *name)
{
    size_t bytes = strlen(name);
    for (int i = 0; i < n->job.envs; i++)
        if (strncmp(n->job.env[i], name, bytes) == 0 && n->job.env[i][bytes] == '=') return n->job.env[i] + bytes + 1;
    return getenv(name);
}

/* Rank 0 is here: opens its socket and tells gcrun where it is. */
static void node_listen(node *n)
{
    char addresses[GCRUN_ADDRS_TEXT];
    uint16_t port = 0;
    const char *ports = node_job_variable(n, "GRIDCOMM_PORTS");
    n->listener = gcrun_listen_any(ports, &port);
    if (n->listener < 0) {
        int err = -n->listener;
        node_failed(n, GCRUN_EXIT_FAILED, "cannot listen for the ranks%s%s: %s", ports ? ", GRIDCOMM_PORTS=" : "",
                    ports ? ports : "", strerror(err));
        return;
    }
    addresses[0] = 0;
    if (!n->job.local) gcrun_addresses(node_job_variable(n, "GRIDCOMM_IF"), addresses);
    gcrun_tunnel_target(n->tunnel, n->job.size, port);
    gcrun_frame_put(&n->out, GCRUN_ROOT, port, addresses, strlen(addresses));
}

static void node_take_job(node *n)
{
    char *text = (char *)n->description.data + n->description.start;
    if (n->have_job || gcrun_job_parse(text, gcrun_queue_bytes(&n->description), &n->job) != 0) {
        node_failed(n, GCRUN_EXIT_FAILED, "cannot read the job's description (is gcrun the same version on all hosts?)");
        return;
    }
    n->have_job = true;
    n->rank = gcrun_alloc((size_t)n->job.count, sizeof *n->rank);
    for (int i = 0; i < n->job.count; i++)
        for (int kind = NODE_OUT; kind <= NODE_ERR; kind++) n->rank[i].stream[kind].fd = n->rank[i].stream[kind].poll = -1;
    if (chdir(n->job.cwd) != 0)
        node_failed(n, GCRUN_EXIT_FAILED, "cannot enter the directory %.300s: %s (--wdir names another)", n->job.cwd,
                    strerror(errno));
    else if (n->job.first == 0)
        node_listen(n);
}

static bool node_same_variable(const char *a, const char *b)
{
    size_t name = strcspn(a, "=");
    return strncmp(a, b, name) == 0 && b[name] == '=';
}

/* The environment that all ranks share: the node's own, with the job's variables in place of any of the same name; behind
 * it, room for the rank's own. Returns how many are shared. */
static int node_environment(const node *n, const char *const own[NODE_VARIABLES], char ***env)
{
    int theirs = 0, count = 0;
    while (environ[theirs]) theirs++;
    char **all = gcrun_alloc((size_t)(theirs + n->job.envs + NODE_VARIABLES + 1), sizeof *all);
    for (int i = 0; i < theirs + n->job.envs; i++) {
        char *variable = i < theirs ? environ[i] : n->job.env[i - theirs];
        bool replaced = false;
        for (int k = i < theirs ? 0 : i - theirs + 1; k < n->job.envs && !replaced; k++)
            replaced = node_same_variable(variable, n->job.env[k]);
        for (int k = 0; k < NODE_VARIABLES && !replaced; k++) replaced = own[k] && node_same_variable(own[k], variable);
        if (!replaced) all[count++] = variable;
    }
    *env = all;
    return count;
}

static int node_rank_start(node *n, int index, char **env, int shared)
{
    char rank[48], size[48], root[sizeof n->root + 16], cluster[GCRUN_CLUSTER_MAX + 24], listener[48];
    int out[2] = { -1, -1 }, err[2] = { -1, -1 }, in[2] = { -1, -1 }, number = n->job.first + index, at = shared;
    node_rank *r = &n->rank[index];
    if (!gcrun_pipe(out) || !gcrun_pipe(err) || (number == 0 && !gcrun_pipe(in))) {
        int failed = errno;
        for (int i = 0; i < 2; i++) {
            if (out[i] >= 0) close(out[i]);
            if (err[i] >= 0) close(err[i]);
        }
        return -failed;
    }
    snprintf(rank, sizeof rank, "GRIDCOMM_RANK=%d", number);
    snprintf(size, sizeof size, "GRIDCOMM_SIZE=%d", n->job.size);
    snprintf(root, sizeof root, "GRIDCOMM_ROOT=%s", n->root);
    snprintf(cluster, sizeof cluster, "GRIDCOMM_CLUSTER=%s", n->job.cluster);
    snprintf(listener, sizeof listener, "GRIDCOMM_LISTEN_FD=%d", n->listener);
    env[at++] = rank;
    env[at++] = size;
    env[at++] = root;
    if (n->job.cluster[0]) env[at++] = cluster;
    if (number == 0) env[at++] = listener;
    env[at] = NULL;
    gcrun_spawn spawn = { .argv = n->job.arg, .envp = env, .fd = { number == 0 ? in[0] : n->null_fd, out[1], err[1] },
                          .keep = number == 0 ? n->listener : -1, .die_with_parent = true, .inherit = &n->inherit };
    pid_t pid = gcrun_spawn_run(&spawn);
    close(out[1]);
    close(err[1]);
    if (number == 0) {
        close(in[0]);
        n->input_fd = in[1];
        gcrun_nonblock(in[1]);
    }
    r->stream[NODE_OUT].fd = out[0];
    r->stream[NODE_ERR].fd = err[0];
    gcrun_nonblock(out[0]);
    gcrun_nonblock(err[0]);
    n->streams += 2;
    if (pid < 0) return pid;
    r->pid = pid;
    n->running++;
    return 0;
}

static void node_start(node *n, const gcrun_frame *frame)
{
    if (!n->have_job || n->started || n->ending) return;
    int used = snprintf(n->root, sizeof n->root, "%.*s", (int)(frame->length < GCRUN_ADDRS_TEXT ? frame->length : 0),
                        (const char *)frame->payload);
    if (frame->id == 1) {
        int err = gcrun_tunnel_enter(n->tunnel, n->job.count, &n->entry_port);
        if (err < 0) node_failed(n, GCRUN_EXIT_FAILED, "cannot listen on loopback: %s", strerror(-err));
        else snprintf(n->root + used, sizeof n->root - (size_t)used, "%s127.0.0.1:%u", used ? "," : "", (unsigned)n->entry_port);
    }
    n->started = true;
    static const char *const own[NODE_VARIABLES] = { "GRIDCOMM_RANK", "GRIDCOMM_SIZE", "GRIDCOMM_ROOT", "GRIDCOMM_LISTEN_FD" };
    const char *names[NODE_VARIABLES] = { own[0], own[1], own[2], own[3], n->job.cluster[0] ? "GRIDCOMM_CLUSTER" : NULL };
    char **env;
    int shared = node_environment(n, names, &env), err = 0, i = 0;
    for (; i < n->job.count && !err && !n->ending; i++) err = node_rank_start(n, i, env, shared);
    free(env);
    if (n->listener >= 0) close(n->listener);       /* rank 0 has it; the port shall end with rank 0 */
    n->listener = -1;
    if (err)
        node_failed(n, err == -ENOENT ? GCRUN_EXIT_NO_PROGRAM : 126, "cannot run '%.300s': %s", n->job.arg[0], strerror(-err));
}

/* ---- ending ---- */

static void node_signal(const node *n, int sig)
{
    for (int i = 0; i < (n->rank ? n->job.count : 0); i++)
        if (n->rank[i].pid > 0) kill(-n->rank[i].pid, sig);     /* not reaped yet, so the number is still its own */
}

static void node_end(node *n, int64_t grace_ms)
{
    int64_t deadline = gcrun_now_ms() + grace_ms;
    if (!n->ending || deadline < n->deadline) n->deadline = deadline;
    if (n->ending) return;
    n->ending = true;
    if (grace_ms > 0) {
        node_signal(n, SIGTERM);
        node_signal(n, SIGCONT);                    /* a stopped process gets its SIGTERM only then */
    }
}

static void node_head_gone(node *n)
{
    n->head_gone = true;
    gcrun_queue_drop(&n->out, gcrun_queue_bytes(&n->out));
    node_end(n, GCRUN_GRACE_MS);
}

static void node_rank_ended(node *n, int index, int status)
{
    node_rank *r = &n->rank[index];
    gcrun_exit how = { .pid = (uint32_t)r->pid };
    int rank = n->job.first + index;
    r->pid = 0;
    n->running--;
    for (int kind = NODE_OUT; kind <= NODE_ERR; kind++)     /* its last words before the news of its end */
        while (r->stream[kind].fd >= 0 && n->credit[kind] > 0 && node_stream_read(n, rank, kind)) continue;
    if (WIFSIGNALED(status)) {
        how.code = (uint32_t)WTERMSIG(status);
        how.flags = GCRUN_BY_SIGNAL | (WCOREDUMP(status) ? GCRUN_CORE : 0u);
        if (n->ending && (how.code == SIGTERM || how.code == SIGKILL)) how.flags |= GCRUN_STOPPED;
    } else {
        how.code = (uint32_t)WEXITSTATUS(status);
    }
    gcrun_exit_put(&n->out, rank, &how);
}

static void node_reap(node *n)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0 || (pid < 0 && errno == EINTR))
        for (int i = 0; i < (n->rank && pid > 0 ? n->job.count : 0); i++)
            if (n->rank[i].pid == pid) node_rank_ended(n, i, status);
    n->nothing_left = pid < 0;                      /* ECHILD; 0: some live */
}

/* All ranks have ended, or must: what else they started goes too. */
static void node_clear(node *n)
{
    if (n->started && n->running == 0 && !n->ending && !n->nothing_left) {
        node_end(n, GCRUN_GRACE_MS);
        gcrun_kill_descendants(SIGTERM, NULL, 0);
    }
    if (!n->ending || n->nothing_left || gcrun_now_ms() < n->deadline) return;
    gcrun_kill_descendants(SIGKILL, NULL, 0);
    n->deadline = gcrun_now_ms() + NODE_KILL_EVERY_MS;
}

static void node_read_signals(node *n)
{
    struct signalfd_siginfo info;
    while (read(n->signals, &info, sizeof info) == (ssize_t)sizeof info)
        if (info.ssi_signo != SIGCHLD) node_end(n, GCRUN_GRACE_MS);     /* somebody ends the node itself */
    node_reap(n);
}

/* ---- the channel ---- */

static void node_input_close(node *n)
{
    if (n->input_fd >= 0) close(n->input_fd);
    n->input_fd = -1;
    gcrun_queue_drop(&n->input, gcrun_queue_bytes(&n->input));
}

static void node_input(node *n, const gcrun_frame *frame)
{
    if (frame->length == 0) n->input_end = true;
    else if (n->input_fd >= 0 || !n->started) gcrun_queue_put(&n->input, frame->payload, frame->length);
    else gcrun_frame_put_number(&n->out, GCRUN_ACK, 0, frame->length);  /* rank 0 is gone, or does not read: away with it */
}

static void node_input_write(node *n)
{
    size_t before = gcrun_queue_bytes(&n->input);
    enum gcrun_io io = gcrun_queue_flush(&n->input, n->input_fd);
    size_t written = before - gcrun_queue_bytes(&n->input);
    if (io == GCRUN_IO_END) written = before;
    if (written) gcrun_frame_put_number(&n->out, GCRUN_ACK, 0, (uint32_t)written);
    if (io == GCRUN_IO_END) node_input_close(n);
}

static bool node_ack(node *n, const gcrun_frame *frame)
{
    uint32_t bytes;
    if ((frame->id != NODE_OUT && frame->id != NODE_ERR) || !gcrun_frame_number(frame, &bytes)) return false;
    n->credit[frame->id] += bytes;
    return n->credit[frame->id] <= NODE_WINDOW;
}

static bool node_frame(node *n, const gcrun_frame *frame)
{
    switch (frame->type) {
    case GCRUN_JOB:
        if (n->have_job || gcrun_queue_bytes(&n->description) + frame->length > NODE_JOB_MAX) return false;
        gcrun_queue_put(&n->description, frame->payload, frame->length);
        if (frame->id == 1) node_take_job(n);
        return true;
    case GCRUN_START:  node_start(n, frame); return true;
    case GCRUN_SIGNAL: node_signal(n, (int)frame->id); return frame->id < 65;
    case GCRUN_STOP:   node_end(n, frame->id); return true;
    case GCRUN_INPUT:  node_input(n, frame); return true;
    case GCRUN_ACK:    return node_ack(n, frame);
    case GCRUN_TUNNEL_OPEN: case GCRUN_TUNNEL_DATA: case GCRUN_TUNNEL_ACK: case GCRUN_TUNNEL_EOF: case GCRUN_TUNNEL_RESET:
        return gcrun_tunnel_frame(n->tunnel, frame, &n->out);
    default:
        return false;
    }
}

static void node_read_head(node *n)
{
    gcrun_frame frame;
    size_t bytes;
    int got;
    if (gcrun_queue_fill(&n->in, STDIN_FILENO, GCRUN_FRAME_MAX) == GCRUN_IO_END) {
        node_head_gone(n);
        return;
    }
    while ((got = gcrun_frame_get(&n->in, &frame, &bytes)) > 0) {
        if (!node_frame(n, &frame)) { got = -1; break; }
        gcrun_queue_drop(&n->in, bytes);
    }
    if (got < 0) {
        gcrun_say("node: what came from gcrun makes no sense");
        node_head_gone(n);
    }
}

/* ---- the loop ---- */

static void node_poll(node *n)
{
    gcrun_polls *p = &n->polls;
    p->n = 0;
    n->in_poll = gcrun_polls_add(p, STDIN_FILENO, n->head_gone ? 0 : POLLIN);
    n->out_poll = gcrun_polls_add(p, STDOUT_FILENO, gcrun_queue_bytes(&n->out) > 0 ? POLLOUT : 0);
    n->signal_poll = gcrun_polls_add(p, n->signals, POLLIN);
    n->input_poll = gcrun_polls_add(p, n->input_fd, gcrun_queue_bytes(&n->input) > 0 ? POLLOUT : 0);
    for (int i = 0; i < (n->rank ? n->job.count : 0); i++)
        for (int kind = NODE_OUT; kind <= NODE_ERR; kind++) {
            node_stream *s = &n->rank[i].stream[kind];
            s->poll = gcrun_polls_add(p, s->fd, n->credit[kind] > 0 || n->head_gone ? POLLIN : 0);
        }
    gcrun_tunnel_polls(n->tunnel, p);
    int64_t until = n->ending && !n->nothing_left ? n->deadline : n->linger, left = until ? until - gcrun_now_ms() : -1;
    if (until && left < 0) left = 0;
    if (poll(p->at, (nfds_t)p->n, (int)left) < 0) p->n = 0;     /* EINTR cannot be: signals come as reads */
}

static void node_work(node *n)
{
    const gcrun_polls *p = &n->polls;
    if (p->n == 0) return;
    if (gcrun_polls_seen(p, n->signal_poll)) node_read_signals(n);
    for (int i = 0; i < (n->rank ? n->job.count : 0); i++)
        for (int kind = NODE_OUT; kind <= NODE_ERR; kind++) {
            node_stream *s = &n->rank[i].stream[kind];
            if (s->fd >= 0 && gcrun_polls_seen(p, s->poll)) node_stream_read(n, n->job.first + i, kind);
            s->poll = -1;
        }
    gcrun_tunnel_work(n->tunnel, p, &n->out);
    if (gcrun_polls_seen(p, n->input_poll)) node_input_write(n);
    if (gcrun_polls_seen(p, n->in_poll)) node_read_head(n);
    if (n->input_end && n->input_fd >= 0 && gcrun_queue_bytes(&n->input) == 0) node_input_close(n);
}

/* Nothing runs, every pipe has ended, every word is out. */
static bool node_finished(node *n)
{
    bool over = (n->ending || (n->started && n->running == 0)) && n->nothing_left && n->streams == 0;
    if (!over) return false;
    if (!n->ending && gcrun_tunnel_busy(n->tunnel)) {
        if (!n->linger) n->linger = gcrun_now_ms() + NODE_LINGER_MS;
        if (gcrun_now_ms() < n->linger) return false;
    }
    if (!n->done && !n->head_gone) gcrun_frame_put(&n->out, GCRUN_DONE, 0, NULL, 0);
    n->done = true;
    return n->head_gone || gcrun_queue_bytes(&n->out) == 0;
}

static void node_close(node *n)
{
    gcrun_tunnel_free(n->tunnel);
    node_input_close(n);
    gcrun_queue_free(&n->in);
    gcrun_queue_free(&n->out);
    gcrun_queue_free(&n->description);
    gcrun_queue_free(&n->input);
    gcrun_queue_free(&n->text);
    gcrun_job_free(&n->job);
    free(n->rank);
    free(n->polls.at);
}

int gcrun_node_main(void)
{
    static const int ends[] = { SIGTERM, SIGINT, SIGHUP };
    char id[GCRUN_HOST_ID];
    node n = { .listener = -1, .input_fd = -1, .nothing_left = true, .credit = { 0, NODE_WINDOW, NODE_WINDOW } };
    n.signals = gcrun_process_begin(ends, 3, &n.inherit);
    n.null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (n.signals < 0 || n.null_fd < 0) gcrun_die(GCRUN_EXIT_FAILED, "node: cannot set up: %s", strerror(errno));
    gcrun_nonblock(STDIN_FILENO);
    gcrun_nonblock(STDOUT_FILENO);
    n.tunnel = gcrun_tunnel_new();
    gcrun_host_id(id);
    gcrun_queue_put(&n.out, GCRUN_MAGIC, strlen(GCRUN_MAGIC));
    gcrun_frame_put(&n.out, GCRUN_HELLO, 0, id, strlen(id));
    for (;;) {
        node_clear(&n);
        if (!n.head_gone && gcrun_queue_flush(&n.out, STDOUT_FILENO) == GCRUN_IO_END) node_head_gone(&n);
        if (node_finished(&n)) break;
        node_poll(&n);
        node_work(&n);
        if (n.head_gone) gcrun_queue_drop(&n.out, gcrun_queue_bytes(&n.out));
        node_reap(&n);
    }
    node_close(&n);
    return 0;
}
