/* yield_ucx.c: preloaded under MPICH over UCX, which spins and never yields, so that more ranks than cores can be compared.
 *
 * SPDX-License-Identifier: MIT
 *
 * An empty poll of UCX's progress function gives the core away: yield = sched_yield() up to EMPTY_POLLS times in a row,
 * then a short sleep, as a waiting gridcomm rank does. Nothing else of MPICH is touched.
 *
 *     cc -shared -fPIC -o yield_ucx.so yield_ucx.c -ldl; LD_PRELOAD=./yield_ucx.so
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

enum { EMPTY_POLLS = 4, NAP_NS = 20000 };

unsigned ucp_worker_progress(void *worker);

unsigned ucp_worker_progress(void *worker)
{
    static unsigned (*real)(void *);    /* a preloaded library has no better place */
    static int empty;
    if (!real) {
        void *symbol = dlsym(RTLD_NEXT, "ucp_worker_progress");
        memcpy(&real, &symbol, sizeof real);
        prctl(PR_SET_TIMERSLACK, 1UL);
    }
    const unsigned moved = real(worker);
    const struct timespec nap = { .tv_sec = 0, .tv_nsec = NAP_NS };
    if (moved) empty = 0;
    else if (empty++ < EMPTY_POLLS) sched_yield();
    else nanosleep(&nap, NULL);
    return moved;
}
