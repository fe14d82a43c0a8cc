/* tool.c: joining a job, and saying what failed.
 * SPDX-License-Identifier: MIT
 */
#include "tool.h"

#include <stdio.h>

gc_comm *tool_init(const char *tool)
{
    char why[256] = "";
    gc_options options = GRIDCOMM_OPTIONS_INIT;
    gc_comm *world;
    options.error_text = why;
    options.error_text_size = sizeof why;
    int err = gc_init(&world, &options);
    if (err == GC_OK)
        return world;
    fprintf(stderr, "%s: %s: %s\n", tool, gc_strerror(err), why);
    return NULL;
}

int tool_failed(const char *tool, gc_comm *world, const char *what, int err)
{
    char why[256] = "";
    gc_last_error(world, NULL, why, sizeof why);
    fprintf(stderr, "%s: rank %d: %s: %s: %s\n", tool, gc_rank(world), what, gc_strerror(err), why);
    return err;
}
