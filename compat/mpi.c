/* mpi.c: the MPI layer, all of it: compile this file beside gridcomm.
 * SPDX-License-Identifier: MIT
 *
 *     cc prog.c mpi.c gridcomm.c -lpthread
 *
 * Its rooms, from the ground up, and what they share: mpi_int.h.
 */
#define _POSIX_C_SOURCE 200809L
#define GCM static

#include "handle.c"
#include "life.c"
#include "type.c"
#include "group.c"
#include "attr.c"
#include "comm.c"
#include "cart.c"
#include "side.c"
#include "reduce.c"
#include "request.c"
#include "message.c"
#include "collective.c"
