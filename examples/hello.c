/* hello.c: every rank says who it is and where; rank 0 says how many hosts and clusters there are.
 * SPDX-License-Identifier: MIT
 *
 * gcrun -n 4 hello
 */
#define _POSIX_C_SOURCE 200809L
#include "gridcomm.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* How many different texts there are among those of all ranks. */
static int count_different(const gc_comm *world, const char *(*text)(const gc_comm *, int))
{
    int different = 0;
    for (int i = 0; i < gc_size(world); i++) {
        int earlier = 0;
        while (earlier < i && strcmp(text(world, earlier), text(world, i)) != 0) earlier++;
        different += earlier == i;
    }
    return different;
}

int main(void)
{
    char why[256] = "", host[256] = "?";
    gc_options options = GRIDCOMM_OPTIONS_INIT;
    gc_comm *world;
    options.error_text = why;
    options.error_text_size = sizeof why;
    int err = gc_init(&world, &options);
    if (err) {
        fprintf(stderr, "hello: cannot join the job: %s: %s\n", gc_strerror(err), why);
        return 1;
    }

    int rank = gc_rank(world), size = gc_size(world);
    const char *cluster = gc_cluster(world, rank);
    gethostname(host, sizeof host - 1);
    printf("rank %d of %d on host %s%s%s\n", rank, size, host, *cluster ? ", cluster " : "", cluster);
    fflush(stdout);

    err = gc_barrier(world);
    if (!err && rank == 0)
        printf("all %d ranks are here: hosts: %d, clusters: %d\n", size, count_different(world, gc_host),
               count_different(world, gc_cluster));
    if (err) {
        gc_last_error(world, NULL, why, sizeof why);
        fprintf(stderr, "hello: rank %d: barrier: %s: %s\n", rank, gc_strerror(err), why);
    }
    int left = gc_finalize(world);
    if (left && !err) fprintf(stderr, "hello: rank %d: finalize: %s\n", rank, gc_strerror(left));
    return err || left;
}
