/* launched.c: what a launcher makes of ranks that do unusual things. For test_launchers.sh.
 * SPDX-License-Identifier: MIT
 *
 * usage: launched while|after|abort [MARK]
 *   while, after     a second gc_init, while the first world lives or when it has ended; rank 0 prints "second: CODE TEXT"
 *   abort            rank 0 aborts, finalizes and ends; the others are busy with something else, for 30 s
 *
 * Exit status: 0, 1 if the first world fails, 3 after an abort.
 */
#define _POSIX_C_SOURCE 200809L
#include "gridcomm.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_ABORTED = 3, BUSY_S = 30 };

static int abort_alone(gc_comm *world)
{
    if (gc_barrier(world)) return 1;
    if (gc_rank(world) > 0) {
        sleep(BUSY_S);
        return 0;
    }
    gc_abort(world, 1);
    return gc_finalize(world) == GC_ERR_ABORTED ? EXIT_ABORTED : 1;
}

static int twice(gc_comm *first, int after)
{
    char why[256] = "";
    gc_options options = GRIDCOMM_OPTIONS_INIT;
    gc_comm *second = NULL;
    int rank = gc_rank(first), err = after ? gc_finalize(first) : gc_barrier(first), code;
    options.error_text = why;
    options.error_text_size = sizeof why;
    if (err) return 1;
    code = gc_init(&second, &options);
    if (rank == 0) printf("second: %d %s\n", code, why);
    if (second) gc_finalize(second);
    return !after && gc_finalize(first);
}

int main(int argc, char **argv)
{
    gc_comm *world;
    if (argc < 2 || gc_init(&world, NULL)) return 1;
    return strcmp(argv[1], "abort") == 0 ? abort_alone(world) : twice(world, strcmp(argv[1], "after") == 0);
}
