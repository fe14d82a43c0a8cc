/* app.c: what a user would write first; compiled with the two files of dist/ alone, run as a world of one.
 * SPDX-License-Identifier: MIT
 */
#include "gridcomm.h"

#include <stdio.h>

int main(void)
{
    char why[256] = "";
    gc_options options = GRIDCOMM_OPTIONS_INIT;
    options.error_text = why;
    options.error_text_size = sizeof why;

    gc_comm *world;
    int err = gc_init(&world, &options);
    if (err) {
        fprintf(stderr, "%s: %s\n", gc_strerror(err), why);
        return 1;
    }
    int mine = gc_rank(world) + 1, sum = 0;
    err = gc_allreduce(world, &mine, &sum, 1, GC_INT32, GC_SUM);
    int expected = gc_size(world) * (gc_size(world) + 1) / 2;
    int end = gc_finalize(world);
    return err || end || sum != expected;
}
