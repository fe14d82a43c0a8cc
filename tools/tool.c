/* tool.c: joining a job, and saying what failed.
 * SPDX-License-Identifier: MIT
 */
#include "tool.h"

#include <errno.h>
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
    if (gc_last_error(world, NULL, why, sizeof why) != err)
        why[0] = 0;
    fprintf(stderr, "%s: rank %d: %s: %s%s%s\n", tool, gc_rank(world), what, gc_strerror(err), why[0] ? ": " : "", why);
    return err;
}

bool tool_close(FILE *out)
{
    bool before = !ferror(out);         /* whose errno is gone */
    errno = 0;
    bool flushed = fflush(out) == 0;
    int why = errno ? errno : EIO;
    if (out != stdout && fclose(out) != 0 && flushed) {
        why = errno;
        flushed = false;
    }
    errno = why;
    return before && flushed;
}
