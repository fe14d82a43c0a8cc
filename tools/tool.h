/* tool.h: what the programs that are ranks of a job have in common.
 * SPDX-License-Identifier: MIT
 *
 * `tool` is the program's name, which stands before what it says.
 */
#ifndef TOOL_H
#define TOOL_H

#include "gridcomm.h"

#include <stdbool.h>
#include <stdio.h>

gc_comm *tool_init(const char *tool);   /* NULL: it has said why */
/* Says what failed at this rank, and why. Returns err. */
int      tool_failed(const char *tool, gc_comm *, const char *what, int err);

/* Is all that was printed to out on its way to the file? Else errno says why. Closes it, if it is not stdout. */
bool     tool_close(FILE *out);

#endif
