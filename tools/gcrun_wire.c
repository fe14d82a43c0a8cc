/* gcrun_wire.c: byte queues, frames and the description of a job, as they travel between gcrun and its nodes.
 * SPDX-License-Identifier: MIT
 *
 * Either end may be another version, a login shell's greeting or worse, so every length is checked here, once, before
 * anything is done with it. The job's description is a series of texts, each with one letter in front that says what it is
 * and a 0 behind.
 */
#include "gcrun.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- queues ---- */

bool gcrun_queue_reserve(gcrun_queue *q, size_t bytes)
{
    if (q->start == q->end) q->start = q->end = 0;
    if (q->room - q->end >= bytes) return true;
    size_t held = gcrun_queue_bytes(q);
    if (q->room - held >= bytes && held <= q->room / 2) {     /* the copy is paid by what has been read since the last one */
        memmove(q->data, q->data + q->start, held);
        q->start = 0;
        q->end = held;
        return true;
    }
    if (bytes > SIZE_MAX / 4 || held > SIZE_MAX / 4) return false;
    size_t room = 4096;
    while (room < held + bytes) room *= 2;
    unsigned char *grown = malloc(room);
    if (!grown) return false;
    if (held) memcpy(grown, q->data + q->start, held);
    free(q->data);
    *q = (gcrun_queue){ grown, 0, held, room };
    return true;
}

void gcrun_queue_put(gcrun_queue *q, const void *from, size_t bytes)
{
    if (!gcrun_queue_reserve(q, bytes)) gcrun_die(GCRUN_EXIT_FAILED, "out of memory");
    if (bytes) memcpy(q->data + q->end, from, bytes);
    q->end += bytes;
}

void gcrun_queue_drop(gcrun_queue *q, size_t bytes)
{
    q->start += bytes;
}

void gcrun_queue_free(gcrun_queue *q)
{
    free(q->data);
    *q = (gcrun_queue){ NULL, 0, 0, 0 };
}

/* ---- frames ---- */

static void wire_put32(unsigned char *at, uint32_t v)
{
    at[0] = (unsigned char)(v >> 24);
    at[1] = (unsigned char)(v >> 16);
    at[2] = (unsigned char)(v >> 8);
    at[3] = (unsigned char)v;
}

static uint32_t wire_get32(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

void gcrun_frame_put(gcrun_queue *q, enum gcrun_frame_type type, uint32_t id, const void *payload, size_t bytes)
{
    unsigned char header[GCRUN_FRAME_HEADER];
    wire_put32(header, (uint32_t)type);
    wire_put32(header + 4, id);
    wire_put32(header + 8, (uint32_t)bytes);
    gcrun_queue_put(q, header, sizeof header);
    gcrun_queue_put(q, payload, bytes);
}

void gcrun_frame_put_number(gcrun_queue *q, enum gcrun_frame_type type, uint32_t id, uint32_t number)
{
    unsigned char payload[4];
    wire_put32(payload, number);
    gcrun_frame_put(q, type, id, payload, sizeof payload);
}

int gcrun_frame_get(const gcrun_queue *q, gcrun_frame *frame, size_t *bytes)
{
    if (gcrun_queue_bytes(q) < GCRUN_FRAME_HEADER) return 0;
    const unsigned char *at = q->data + q->start;
    uint32_t type = wire_get32(at), length = wire_get32(at + 8);
    if (type == 0 || type >= GCRUN_FRAME_TYPES || length > GCRUN_FRAME_MAX) return -1;
    if (gcrun_queue_bytes(q) - GCRUN_FRAME_HEADER < length) return 0;
    *frame = (gcrun_frame){ (enum gcrun_frame_type)type, wire_get32(at + 4), length, at + GCRUN_FRAME_HEADER };
    *bytes = GCRUN_FRAME_HEADER + (size_t)length;
    return 1;
}

bool gcrun_frame_number(const gcrun_frame *frame, uint32_t *number)
{
    if (frame->length != 4) return false;
    *number = wire_get32(frame->payload);
    return true;
}

void gcrun_exit_put(gcrun_queue *q, int rank, const gcrun_exit *how)
{
    unsigned char payload[12];
    wire_put32(payload, how->pid);
    wire_put32(payload + 4, how->code);
    wire_put32(payload + 8, how->flags);
    gcrun_frame_put(q, GCRUN_EXIT, (uint32_t)rank, payload, sizeof payload);
}

bool gcrun_exit_get(const gcrun_frame *frame, gcrun_exit *how)
{
    if (frame->length != 12) return false;
    *how = (gcrun_exit){ wire_get32(frame->payload), wire_get32(frame->payload + 4), wire_get32(frame->payload + 8) };
    return how->code < 256;
}

/* ---- the job ---- */

static void wire_text(gcrun_queue *q, char what, const char *text)
{
    gcrun_queue_put(q, &what, 1);
    gcrun_queue_put(q, text, strlen(text) + 1);
}

void gcrun_job_put(gcrun_queue *q, const gcrun_job *job)
{
    gcrun_queue text = { NULL, 0, 0, 0 };
    char numbers[64];
    snprintf(numbers, sizeof numbers, "%d %d %d %d %d", job->first, job->count, job->size, job->prefix, job->local);
    wire_text(&text, 'n', numbers);
    wire_text(&text, 'w', job->cwd);
    wire_text(&text, 'c', job->cluster);
    for (int i = 0; i < job->args; i++) wire_text(&text, 'a', job->arg[i]);
    for (int i = 0; i < job->envs; i++) wire_text(&text, 'e', job->env[i]);
    size_t left = gcrun_queue_bytes(&text);
    while (left > 0) {
        size_t piece = left < GCRUN_FRAME_MAX ? left : GCRUN_FRAME_MAX;
        left -= piece;
        gcrun_frame_put(q, GCRUN_JOB, left == 0, text.data + text.start, piece);
        gcrun_queue_drop(&text, piece);
    }
    gcrun_queue_free(&text);
}

static int wire_numbers(const char *text, gcrun_job *job)
{
    int prefix, local, used = 0;
    if (sscanf(text, "%6d %6d %6d %1d %1d%n", &job->first, &job->count, &job->size, &prefix, &local, &used) != 5) return -1;
    if (text[used] != 0) return -1;
    job->prefix = prefix != 0;
    job->local = local != 0;
    if (job->size < 1 || job->size > GCRUN_RANKS_MAX || job->count < 1 || job->count > job->size) return -1;
    return job->first < 0 || job->first > job->size - job->count ? -1 : 0;
}

int gcrun_job_parse(char *text, size_t bytes, gcrun_job *job)
{
    *job = (gcrun_job){ .cwd = NULL };
    if (bytes == 0 || text[bytes - 1] != 0) return -1;
    size_t texts = 0;
    for (size_t i = 0; i < bytes; i++) texts += text[i] == 0;
    job->arg = calloc(texts + 1, sizeof *job->arg);
    job->env = calloc(texts + 1, sizeof *job->env);
    int err = job->arg && job->env ? 0 : -1;
    for (char *at = text, *end = text + bytes; !err && at < end; at += strlen(at) + 1) {
        switch (at[0]) {
        case 'n': err = wire_numbers(at + 1, job); break;
        case 'w': job->cwd = at + 1; break;
        case 'c': job->cluster = at + 1; break;
        case 'a': job->arg[job->args++] = at + 1; break;
        case 'e': job->env[job->envs++] = at + 1; break;
        default: err = -1;
        }
    }
    if (!err && job->size && job->cwd && job->cluster && job->args) return 0;
    gcrun_job_free(job);
    return -1;
}

void gcrun_job_free(gcrun_job *job)
{
    free(job->arg);
    free(job->env);
    *job = (gcrun_job){ .cwd = NULL };
}
