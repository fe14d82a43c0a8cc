/* gctopo.c: shows what gridcomm chose for a job and why: clusters, links, routes and relays, addresses, and who waits for whom.
 * SPDX-License-Identifier: MIT
 *
 * Every rank asks gc_describe; rank 0 gathers the texts and prints what they have in common once. So the job should be
 * started as the program would be: on the same hosts, with the same GRIDCOMM_ variables.
 */
#define _POSIX_C_SOURCE 200809L
#include "tool.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: gcrun -n N [-H HOSTFILE] gctopo [options]\n"
    "Starts a job and shows how its ranks reach each other.\n"
    "\n"
    "  --clusters     the tree of clusters and hosts, with their ranks\n"
    "  --links        the links that the job keeps for relaying, with the costs that routes are made by, and the\n"
    "                 connections of every rank\n"
    "  --routes       the numbering that keeps relays free of deadlock, and the path between every two ranks: of small\n"
    "                 messages and, where it is another one, of bulk\n"
    "  --waits        packets that wait for room in a queue, and requests that wait for a peer\n"
    "  --addresses    the interfaces of every host, which of them reach which of another host's, how well, why others do not,\n"
    "                 and what is tried in which order; half a KiB for every two hosts, and as much the other way\n"
    "  --collectives  which algorithm each collective takes for how many bytes; no picture\n"
    "  --traffic      first sends a small message between every two ranks, so that there are connections to show\n"
    "  --dot FILE     writes a picture for Graphviz to FILE, instead of text (`-`: to standard output). With several of\n"
    "                 the above, FILE has one graph after another: dot -Tsvg -O FILE\n"
    "  --help         this text\n"
    "\n"
    "Without any of the first six it shows clusters, links and routes. Exit status: 0; 1 if the job failed; 2 for wrong usage.\n";

static const char *const subjects[] = { "clusters", "links", "routes", "waits", "addresses", "collectives" };
enum { SUBJECTS = 6, DEFAULT_SUBJECTS = 3, TRAFFIC_TAG = 1 };

typedef struct topo_options { bool subject[SUBJECTS], traffic, help; const char *dot; } topo_options;

static bool options_read(topo_options *o, int argc, char **argv)
{
    bool any = false;
    for (int i = 1; i < argc; i++) {
        bool known = true;
        if (strcmp(argv[i], "--traffic") == 0)
            o->traffic = true;
        else if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            o->help = true;
        else if (strcmp(argv[i], "--dot") == 0 && i + 1 < argc)
            o->dot = argv[++i];
        else
            known = false;
        for (int s = 0; s < SUBJECTS && !known; s++)
            if (strncmp(argv[i], "--", 2) == 0 && strcmp(argv[i] + 2, subjects[s]) == 0)
                known = any = o->subject[s] = true;
        if (!known)
            return false;
    }
    for (int s = 0; s < DEFAULT_SUBJECTS && !any; s++)
        o->subject[s] = true;
    return true;
}

/* ---- one rank ------------------------------------------------------------------------------------------------- */

/* A small message between every two ranks. */
static int traffic(gc_comm *world)
{
    int rank = gc_rank(world), size = gc_size(world), err = GC_OK;
    for (int step = 1; step < size && err == GC_OK; step++) {
        int to = (rank + step) % size, from = (rank + size - step) % size, got = -1;
        err = gc_sendrecv(world, &rank, sizeof rank, to, TRAFFIC_TAG, &got, sizeof got, from, TRAFFIC_TAG, NULL);
        if (err == GC_OK && got != from)
            err = GC_ERR_PROTOCOL;
    }
    return err == GC_OK ? gc_barrier(world) : err;
}

/* The text of this rank; NULL: none. */
static char *describe(gc_comm *world, const char *what, bool dot)
{
    const char *form = dot ? "dot" : "text";
    size_t needed = 0, room = 0;
    char *text = NULL;
    int err;
    while ((err = gc_describe(world, what, form, text, room, &needed)) == GC_OK && needed > room) {
        free(text);                     /* it may have grown since */
        room = needed + needed / 4;
        text = malloc(room);
        if (!text)
            return NULL;
    }
    if (err == GC_OK)
        return text;
    tool_failed("gctopo", world, what, err);
    free(text);
    return NULL;
}

/* Every rank's text at rank 0, padded to the longest; *each: bytes of one. NULL: not rank 0, or *err. */
static char *gather(gc_comm *world, const char *own, size_t *each, int *err)
{
    uint64_t mine = strlen(own) + 1, most = 0;
    *err = gc_allreduce(world, &mine, &most, 1, GC_UINT64, GC_MAX);
    if (*err != GC_OK)
        return NULL;
    *each = (size_t)most;
    char *padded = calloc(1, *each), *all = gc_rank(world) == 0 ? calloc((size_t)gc_size(world), *each) : NULL;
    if (!padded || (gc_rank(world) == 0 && !all)) {
        fprintf(stderr, "gctopo: out of memory\n");
        gc_abort(world, GC_ERR_NOMEM);
        *err = GC_ERR_NOMEM;
    } else {
        memcpy(padded, own, (size_t)mine);
        *err = gc_gather(world, padded, *each, all, 0);
    }
    free(padded);
    if (*err == GC_OK)
        return all;
    free(all);
    return NULL;
}

/* ---- the whole job, at rank 0 ------------------------------------------------------------------------------------ */

typedef struct topo_line { const char *text; size_t nth; } topo_line;

static int by_text(const void *a, const void *b)
{
    const topo_line *x = a, *y = b;
    int differ = strcmp(x->text, y->text);
    return differ ? differ : x->nth < y->nth ? -1 : 1;
}

static int by_place(const void *a, const void *b)
{
    const topo_line *x = a, *y = b;
    return x->nth < y->nth ? -1 : x->nth > y->nth;
}

/* Cuts the texts into lines. Of a picture the first line and the last are left out, *frame gets the first. */
static size_t lines_cut(char *all, int ranks, size_t each, bool dot, topo_line *line, const char **frame)
{
    size_t n = 0;
    for (int rank = 0; rank < ranks; rank++) {
        char *at = all + (size_t)rank * each;
        bool first = true;
        while (*at) {
            char *end = strchr(at, '\n');
            if (end)
                *end = '\0';
            bool edge = dot && (first || strcmp(at, "}") == 0);
            if (edge && first)
                *frame = at;
            if (!edge && line)
                line[n] = (topo_line){ at, n };
            n += !edge;
            first = false;
            if (!end)
                break;
            at = end + 1;
        }
    }
    return n;
}

static size_t lines_count(const char *all, size_t bytes)
{
    size_t n = 0;
    for (size_t i = 0; i < bytes; i++)
        n += all[i] == '\n';
    return n;
}

/* What several ranks say is printed once, where it was said first. */
static int print_merged(FILE *out, char *all, int ranks, size_t each, bool dot)
{
    const char *frame = "";
    topo_line *line = malloc((lines_count(all, (size_t)ranks * each) + (size_t)ranks + 1) * sizeof *line);
    if (!line)
        return GC_ERR_NOMEM;
    size_t n = lines_cut(all, ranks, each, dot, line, &frame), kept = 0;
    qsort(line, n, sizeof *line, by_text);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || strcmp(line[i].text, line[kept - 1].text) != 0)
            line[kept++] = line[i];
    qsort(line, kept, sizeof *line, by_place);
    if (dot)
        fprintf(out, "%s\n", frame);
    for (size_t i = 0; i < kept; i++)
        fprintf(out, "%s\n", line[i].text);
    if (dot)
        fprintf(out, "}\n");
    free(line);
    return GC_OK;
}

static int show(gc_comm *world, int subject, bool dot, FILE *out)
{
    char *own = describe(world, subjects[subject], dot);
    size_t each = 0;
    int err = GC_OK;
    bool same = strcmp(subjects[subject], "clusters") == 0;
    char *all = gather(world, own ? own : "", &each, &err);
    if (err == GC_OK && !own)
        err = GC_ERR_NOMEM;             /* it has said so */
    free(own);
    if (!all)
        return err;
    if (!dot)
        fprintf(out, "==== %s\n", subjects[subject]);
    if (same)                           /* every rank knows all of it */
        fputs(all, out);
    else if (print_merged(out, all, gc_size(world), each, dot) < 0)
        err = GC_ERR_NOMEM;
    free(all);
    return err;
}

static int run(gc_comm *world, const topo_options *o)
{
    FILE *out = stdout;
    int err = o->traffic ? traffic(world) : GC_OK;
    if (err < 0)
        return tool_failed("gctopo", world, "traffic", err);
    if (gc_rank(world) == 0 && o->dot && strcmp(o->dot, "-") != 0) {
        out = fopen(o->dot, "w");
        if (!out) {
            fprintf(stderr, "gctopo: %s cannot be written\n", o->dot);
            gc_abort(world, GC_ERR_ARG);
            return GC_ERR_ARG;
        }
    }
    for (int s = 0; s < SUBJECTS && err == GC_OK; s++)
        if (o->subject[s])
            err = show(world, s, o->dot != NULL, out);
    if (gc_rank(world) == 0 && !tool_close(out) && err == GC_OK) {
        fprintf(stderr, "gctopo: %s: %s\n", out == stdout ? "standard output" : o->dot, strerror(errno));
        return GC_ERR_SYSTEM;
    }
    return err == GC_OK ? GC_OK : tool_failed("gctopo", world, "gathering", err);
}

int main(int argc, char **argv)
{
    topo_options o = { .dot = NULL };
    if (!options_read(&o, argc, argv)) {
        fputs(usage, stderr);
        return 2;
    }
    if (o.help) {
        fputs(usage, stdout);
        return 0;
    }
    gc_comm *world = tool_init("gctopo");
    if (!world)
        return 1;
    int err = run(world, &o);
    return gc_finalize(world) < 0 || err < 0;
}
