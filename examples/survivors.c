/* survivors.c: a computation that goes on when ranks are killed, until two are left, and then to its end.
 * SPDX-License-Identifier: MIT
 *
 * gcrun -n 8 --on-failure=wait survivors [CHUNKS]
 *
 * Pi is summed up chunk by chunk, each by all ranks that are left. As long as there are more than two, every third chunk costs one of
 * them its life, any of them; and whoever likes may kill -9 others. A rank that meets a death shrinks its communicator to those who
 * live. One may have had the sum of a chunk when another one met the death, so then they compare, and all go on from the furthest.
 * Nothing else need be kept, because every rank has the whole sum.
 */
#define _POSIX_C_SOURCE 200809L
#include "gridcomm.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum { STEPS = 200000,                  /* of a chunk */
       CHUNKS = 30, CHUNKS_MAX = 100000,
       EVERY = 3, LEAST = 2 };          /* chunks for each death; as long as there are more ranks */

typedef struct progress { long long chunks; double sum; } progress;

/* This rank's part of a chunk: every size-th step. The integral of 4 / (1 + x^2) from 0 to 1. */
static double part_of(long long chunk, long long chunks, int rank, int size)
{
    double width = 1.0 / ((double)chunks * STEPS), sum = 0;
    for (int i = rank; i < STEPS; i += size) {
        double x = ((double)chunk * STEPS + i + 0.5) * width;
        sum += 4 / (1 + x * x);
    }
    return sum * width;
}

/* It hits another rank each time, 0 among them. */
static void perhaps_die(const gc_comm *comm, long long chunk)
{
    if (gc_size(comm) > LEAST && chunk % EVERY == EVERY - 1 && (int)(chunk * 5 / EVERY % gc_size(comm)) == gc_rank(comm))
        raise(SIGKILL);
}

static int compute(gc_comm *comm, long long chunks, progress *p)
{
    int err = GC_OK;
    while (err == GC_OK && p->chunks < chunks) {
        double mine = part_of(p->chunks, chunks, gc_rank(comm), gc_size(comm)), all = 0;
        perhaps_die(comm, p->chunks);
        err = gc_allreduce(comm, &mine, &all, 1, GC_DOUBLE, GC_SUM);
        if (err == GC_OK) {
            p->sum += all;
            p->chunks++;
        }
    }
    return err;
}

/* All take over what the furthest has. */
static int compare(gc_comm *comm, progress *p)
{
    progress *all = malloc((size_t)gc_size(comm) * sizeof *all);
    int err = all ? gc_allgather(comm, p, sizeof *p, all) : GC_ERR_NOMEM;
    for (int i = 0; err == GC_OK && i < gc_size(comm); i++)
        if (all[i].chunks > p->chunks) *p = all[i];
    free(all);
    return err;
}

/* *comm becomes a communicator of those who live. */
static int shrink(gc_comm *world, gc_comm **comm)
{
    gc_comm *smaller;
    int err = gc_comm_shrink(*comm, &smaller);
    if (err) return err;
    if (*comm != world) gc_comm_free(*comm);
    *comm = smaller;
    return GC_OK;
}

static int survive(gc_comm *world, long long chunks)
{
    gc_comm *comm = world;
    progress p = { 0, 0 };
    int err = compute(comm, chunks, &p);
    while (err == GC_ERR_PEER) {
        err = shrink(world, &comm);
        if (err) break;
        if (gc_rank(comm) == 0) printf("%lld of %lld chunks: %d ranks are left\n", p.chunks, chunks, gc_size(comm));
        err = compare(comm, &p);
        if (err == GC_OK) err = compute(comm, chunks, &p);
    }
    if (err) {
        fprintf(stderr, "survivors: %s\n", gc_strerror(err));
        return err;
    }
    if (fabs(p.sum - 3.14159265358979323846) > 1e-9) {
        fprintf(stderr, "survivors: %.15f is not pi\n", p.sum);
        return GC_ERR_PROTOCOL;
    }
    if (gc_rank(comm) == 0) printf("%d of %d ranks: pi is %.10f\n", gc_size(comm), gc_size(world), p.sum);
    return GC_OK;
}

int main(int argc, char **argv)
{
    char why[256] = "", *end = "";
    gc_options options = GRIDCOMM_OPTIONS_INIT;
    gc_comm *world;
    long chunks = argc > 1 ? strtol(argv[1], &end, 10) : CHUNKS;
    if (argc > 2 || *end || chunks < 1 || chunks > CHUNKS_MAX) {
        fprintf(stderr, "usage: survivors [CHUNKS]\n");
        return 2;
    }
    options.error_text = why;
    options.error_text_size = sizeof why;
    int err = gc_init(&world, &options);
    if (err) {
        fprintf(stderr, "survivors: cannot join the job: %s: %s\n", gc_strerror(err), why);
        return 1;
    }
    err = survive(world, chunks);
    int left = gc_finalize(world);              /* that ranks have died is no news */
    return err || (left && left != GC_ERR_PEER);
}
