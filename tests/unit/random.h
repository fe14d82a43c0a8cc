/* random.h: chance that can be repeated. GCT_SEED gives the seed, which is printed; else it is drawn from the clock.
 * SPDX-License-Identifier: MIT
 */
#ifndef GCT_RANDOM_H
#define GCT_RANDOM_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static uint64_t random_state;

static inline uint64_t seed_random(void)
{
    const char *given = getenv("GCT_SEED");
    random_state = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
    printf("GCT_SEED=%llu\n", (unsigned long long)random_state);
    return random_state;
}

static inline int below(int n)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int)((random_state >> 33) % (uint64_t)n);
}

#endif
