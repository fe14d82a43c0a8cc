/* fuzz.h: what the targets share: the input, taken byte by byte, and what must hold.
 * SPDX-License-Identifier: MIT
 */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

typedef struct source { const uint8_t *data; size_t bytes; } source;

/* 0 when the input has ended. */
static inline uint8_t next(source *s)
{
    if (!s->bytes)
        return 0;
    s->bytes--;
    return *s->data++;
}

static inline void must(bool held)
{
    if (!held)
        abort();
}

#endif
