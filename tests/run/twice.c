/* twice.c: what a second gc_init makes of a launcher that has one world for each process. For test_launchers.sh.
 * SPDX-License-Identifier: MIT
 *
 * usage: twice [after]     while the first world lives; after: when it has ended
 *
 * Rank 0 prints "second: CODE TEXT". Exit status: 0, 1 if the first world fails.
 */
#include "gridcomm.h"

#include <stdio.h>

int main(int argc, char **argv)
{
    char why[256] = "";
    gc_options options = GRIDCOMM_OPTIONS_INIT;
    gc_comm *first, *second = NULL;
    int err = gc_init(&first, NULL), rank, code = 0;
    (void)argv;
    options.error_text = why;
    options.error_text_size = sizeof why;
    if (err) return 1;
    rank = gc_rank(first);
    if (argc > 1) err = gc_finalize(first);
    if (!err) code = gc_init(&second, &options);
    if (!err && rank == 0) printf("second: %d %s\n", code, why);
    if (second) gc_finalize(second);
    if (argc < 2) err = gc_barrier(first);
    if (argc < 2 && !err) err = gc_finalize(first);
    return err != 0;
}
