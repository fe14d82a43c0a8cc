/* guests.h: processes beside a simulated job: a launcher that speaks PMI-1, and strangers.
 * SPDX-License-Identifier: MIT
 */
#ifndef GUESTS_H
#define GUESTS_H

#include "simnet.h"

enum { GUEST_PMI_PORT = 6000 };

/* On that host, for a job of so many ranks, until all have left it or two minutes are over. The caller keeps the guest. */
typedef struct guest { int ranks, listener, count; gci_addr at; } guest;
void guest_launcher(sim_host *, guest *);

/* So many connections to g->at from that host, which say nothing and end after three seconds. */
void guest_strangers(sim_host *, guest *);

#endif
