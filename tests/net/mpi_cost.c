/* mpi_cost.c: what a call of the MPI layer costs above gridcomm's own: messages to oneself and collectives of one rank, where
 * nothing crosses a network.
 *
 * SPDX-License-Identifier: MIT
 *
 *     mpi_cost     prints for each kind: ns per call of gridcomm, of the layer, and the difference (medians of ROUNDS)
 */
#define _GNU_SOURCE
#include "gridcomm.h"
#include "../../compat/mpi.h"
#include "measure.h"

#include <stdio.h>

enum { CALLS = 2000, ROUNDS = 101 };

static gc_comm *world;
static char from[64], to[64];

/* Each does CALLS calls and returns how many those were per turn of its loop. */
static int own_messages(void)
{
    for (int i = 0; i < CALLS / 4; i++) {
        gc_request *recv, *send;
        gc_irecv(world, to, sizeof to, 0, 1, &recv);
        gc_isend(world, from, sizeof from, 0, 1, &send);
        gc_wait(&send, NULL);
        gc_wait(&recv, NULL);
    }
    return 0;
}

static int mpi_messages(void)
{
    for (int i = 0; i < CALLS / 4; i++) {
        MPI_Request recv, send;
        MPI_Irecv(to, sizeof to, MPI_CHAR, 0, 1, MPI_COMM_WORLD, &recv);
        MPI_Isend(from, sizeof from, MPI_CHAR, 0, 1, MPI_COMM_WORLD, &send);
        MPI_Wait(&send, MPI_STATUS_IGNORE);
        MPI_Wait(&recv, MPI_STATUS_IGNORE);
    }
    return 0;
}

static int own_blocking(void)
{
    for (int i = 0; i < CALLS / 2; i++) {
        gc_send(world, from, 8, 0, 1);
        gc_recv(world, to, 8, 0, 1, NULL);
    }
    return 0;
}

static int mpi_blocking(void)
{
    for (int i = 0; i < CALLS / 2; i++) {
        MPI_Send(from, 8, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
        MPI_Recv(to, 8, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    return 0;
}

static int own_reduction(void)
{
    for (int i = 0; i < CALLS; i++) gc_allreduce(world, from, to, 8, GC_DOUBLE, GC_SUM);
    return 0;
}

static int mpi_reduction(void)
{
    for (int i = 0; i < CALLS; i++) MPI_Allreduce(from, to, 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return 0;
}

static double ns(int (*calls)(void))
{
    int64_t before = measure_now();
    calls();
    return (double)(measure_now() - before) / CALLS;
}

static void compare(const char *what, int (*own)(void), int (*layer)(void))
{
    double a[ROUNDS], b[ROUNDS], more[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        a[i] = ns(own);
        b[i] = ns(layer);
        more[i] = b[i] - a[i];
    }
    printf("%-40s gridcomm %7.1f ns, MPI layer %7.1f ns, more %6.1f ns a call\n", what, measure_median(a, ROUNDS),
           measure_median(b, ROUNDS), measure_median(more, ROUNDS));
}

int main(void)
{
    if (gc_init(&world, NULL) != 0 || MPI_Init(NULL, NULL) != MPI_SUCCESS) return 1;
    compare("Irecv, Isend, Wait, Wait", own_messages, mpi_messages);
    compare("Send, Recv", own_blocking, mpi_blocking);
    compare("Allreduce", own_reduction, mpi_reduction);
    MPI_Finalize();
    return gc_finalize(world) != 0;
}
