/* failing_alloc.h: an allocator that gives so many times, and then no more.
 * SPDX-License-Identifier: MIT
 */
#ifndef GCT_FAILING_ALLOC_H
#define GCT_FAILING_ALLOC_H

#include <stddef.h>
#include <stdlib.h>

static int allocations_left;

static void *failing_alloc(void *user, void *old, size_t bytes)
{
    (void)user;
    if (bytes == 0) {
        free(old);
        return NULL;
    }
    return allocations_left-- > 0 ? realloc(old, bytes) : NULL;
}

#endif
