/* fuzz_gcrun.c: libFuzzer target for what gcrun and its nodes read from each other: frames, the description of a job, and the
 * connections that are carried over their channel. The sockets of these are real ones, on loopback.
 *
 * No bytes make a frame longer than it may be, a rank that is not of the job, or more of a connection wait than its window. A
 * description that was taken is the same when it is written and read again.
 * SPDX-License-Identifier: MIT
 *
 * covers: tools/gcrun_wire.c ^(gcrun_frame_get|gcrun_frame_number|gcrun_exit_get|gcrun_job_parse|wire_numbers|gcrun_job_put)$
 * covers: tools/gcrun_wire.c ^(gcrun_queue_reserve|gcrun_queue_put|gcrun_queue_drop|gcrun_job_free)$
 * covers: tools/gcrun_tunnel.c ^(gcrun_tunnel_frame|tunnel_open|tunnel_reset_host|tunnel_find|tunnel_add|tunnel_remove)$
 * covers: tools/gcrun_tunnel.c ^(tunnel_write|tunnel_read|gcrun_tunnel_work|gcrun_tunnel_polls|gcrun_tunnel_busy)$
 */
#include "tools/gcrun.h"
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FRAMES_MAX = 300, SOCKETS = 16, WINDOW = 65536 };

/* All that may come over a channel: how far it is frames, they are taken. */
static void frames(source *s)
{
    gcrun_queue q = { 0 };
    gcrun_frame frame;
    gcrun_exit how;
    uint32_t number;
    size_t bytes;
    int got = 0;
    while (s->bytes > 0 && got >= 0) {
        size_t piece = 1 + next(s) % 64;
        piece = piece < s->bytes ? piece : s->bytes;
        gcrun_queue_put(&q, s->data, piece);
        s->data += piece;
        s->bytes -= piece;
        while ((got = gcrun_frame_get(&q, &frame, &bytes)) == 1) {
            must(frame.type > 0 && frame.type < GCRUN_FRAME_TYPES && frame.length <= GCRUN_FRAME_MAX);
            must(bytes == GCRUN_FRAME_HEADER + frame.length && bytes <= gcrun_queue_bytes(&q));
            must(!gcrun_exit_get(&frame, &how) || (frame.length == 12 && how.code < 256));
            must(!gcrun_frame_number(&frame, &number) || frame.length == 4);
            gcrun_queue_drop(&q, bytes);
        }
    }
    gcrun_queue_free(&q);
}

/* A job's description, as text; one that is taken goes over the wire and comes out as it was. */
static void description(source *s)
{
    size_t bytes = s->bytes, put = 0, took;
    char *text = malloc(bytes + 1), *again = malloc(2 * bytes + 200);
    gcrun_job job, same;
    gcrun_queue q = { 0 };
    gcrun_frame frame;
    must(text && again);
    if (bytes) memcpy(text, s->data, bytes);
    if (gcrun_job_parse(text, bytes, &job) == 0) {
        must(job.size >= 1 && job.size <= GCRUN_RANKS_MAX && job.count >= 1 && job.first >= 0 && job.first + job.count <= job.size);
        must(job.args > 0 && !job.arg[job.args] && !job.env[job.envs]);
        gcrun_job_put(&q, &job);
        while (gcrun_frame_get(&q, &frame, &took) == 1) {
            must(frame.type == GCRUN_JOB && put + frame.length <= 2 * bytes + 200);
            memcpy(again + put, frame.payload, frame.length);
            put += frame.length;
            gcrun_queue_drop(&q, took);
        }
        must(gcrun_job_parse(again, put, &same) == 0);
        must(same.first == job.first && same.count == job.count && same.size == job.size && same.args == job.args);
        must(same.envs == job.envs && strcmp(same.cwd, job.cwd) == 0 && strcmp(same.cluster, job.cluster) == 0);
        for (int i = 0; i < job.args; i++) must(strcmp(same.arg[i], job.arg[i]) == 0);
        gcrun_job_free(&same);
        gcrun_job_free(&job);
    }
    gcrun_queue_free(&q);
    free(text);
    free(again);
}

/* What a tunnel says is well formed. */
static void said(gcrun_queue *q)
{
    gcrun_frame frame;
    size_t bytes;
    while (gcrun_frame_get(q, &frame, &bytes) == 1) {
        must(frame.type >= GCRUN_TUNNEL_OPEN && frame.type <= GCRUN_TUNNEL_RESET && frame.length <= WINDOW);
        gcrun_queue_drop(q, bytes);
    }
    must(gcrun_queue_bytes(q) == 0);
}

static void work(gcrun_tunnel *t, gcrun_polls *polls, gcrun_queue *q)
{
    int ready;
    polls->n = 0;
    gcrun_tunnel_polls(t, polls);
    do
        ready = poll(polls->at, (nfds_t)polls->n, 0);
    while (ready < 0 && errno == EINTR);     /* libFuzzer's own clock is a signal */
    must(ready >= 0);
    gcrun_tunnel_work(t, polls, q);
    said(q);
}

/* A connection that leaves no port behind when it is closed: there are thousands of them. */
static int taken(int listener)
{
    const struct linger none = { 1, 0 };
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    return fd;
}

/* The exit of a tunnel: the other end says frames, and behind the sockets is somebody who reads, writes and ends as the input
 * says. */
static void tunnel(source *s)
{
    static int listener = -1;
    static uint16_t port;
    static char bin[WINDOW];
    if (listener < 0) listener = gcrun_listen_loopback(&port);
    must(listener >= 0 && gcrun_nonblock(listener));
    gcrun_tunnel *t = gcrun_tunnel_new();
    gcrun_queue q = { 0 };
    gcrun_polls polls = { 0 };
    int fd[SOCKETS], fds = 0, got;
    gcrun_tunnel_target(t, 1, port);
    bool sound = true;
    for (int i = 0; i < FRAMES_MAX && sound && s->bytes > 0; i++) {
        uint8_t op = next(s), which = next(s);
        uint32_t id = (which & 64 ? 65536u : 0) + which % 8;
        uint8_t number[4] = { which & 32 ? 0xff : 0, 0, next(s), which };
        gcrun_frame frame = { (enum gcrun_frame_type)(GCRUN_TUNNEL_OPEN + op % 5), id, op & 32 ? WINDOW : which, (unsigned char *)bin };
        if (frame.type == GCRUN_TUNNEL_ACK) frame.payload = number, frame.length = op & 64 ? 3 : 4;
        if (op % 8 < 5) sound = gcrun_tunnel_frame(t, &frame, &q);
        said(&q);
        if (op % 8 == 5 && fds > 0) (void)!send(fd[which % fds], bin, op & 64 ? WINDOW : which, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (op % 8 == 6 && fds > 0) (void)!recv(fd[which % fds], bin, sizeof bin, MSG_DONTWAIT);
        if (op % 8 == 7 && fds > 0) {
            close(fd[which % fds]);
            fd[which % fds] = fd[fds - 1];
            fds--;
        }
        work(t, &polls, &q);
        (void)gcrun_tunnel_busy(t);
        while (fds < SOCKETS && (got = taken(listener)) >= 0) fd[fds++] = got;
    }
    gcrun_tunnel_free(t);
    gcrun_queue_free(&q);
    free(polls.at);
    while (fds > 0) close(fd[--fds]);
    while ((got = taken(listener)) >= 0) close(got);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    source s = { data, bytes };
    switch (next(&s) % 3) {
    case 0: frames(&s); break;
    case 1: description(&s); break;
    default: tunnel(&s);
    }
    return 0;
}
