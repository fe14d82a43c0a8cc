/* bcast_file.c: copies a file of rank 0 to every rank.
 * SPDX-License-Identifier: MIT
 *
 * gcrun -n 8 bcast_file IN OUT       rank r writes OUT with each %r replaced by r
 *
 * The file goes in pieces, so it may be larger than any memory, and of unknown length (a pipe). Two buffers take turns:
 *
 *     rank 0   read 0 | read 1           | read 2           | ...
 *     all             | broadcast 0      | broadcast 1      | broadcast 2 ...
 *     all                                | write, hash 0    | write, hash 1 ...
 *
 * Before each piece its length is broadcast: 0 ends the file, -1 says that it cannot be read. Whoever cannot write says so
 * when all agree, every PIECES_AGREE pieces and at the end; until then it takes part as if nothing had happened, so nobody
 * waits for it. A copy has its final name only when it is complete and right.
 */
#define _POSIX_C_SOURCE 200809L
#include "gridcomm.h"
#include "sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PIECE_BYTES = 1 << 20,       /* large enough that the length before it costs little */
       PIECES_AGREE = 32,           /* a full disk is noticed after so many MiB */
       PATH_BYTES = 4096 };

typedef struct copy {
    gc_comm *world;
    int      rank, size, in, out;           /* descriptors; in is used at rank 0 */
    bool     failed;                        /* this rank cannot go on; it has said why */
    bool     made;                          /* the copy is complete, right and in its place, everywhere */
    char     path[PATH_BYTES], part[PATH_BYTES + 32];   /* final name; name until complete, "" if written in place */
    unsigned char *buffer[2], digest[SHA256_BYTES];
    int64_t  length[2], total;
    sha256   hash;
} copy;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void fail(copy *c, const char *what, const char *why)
{
    if (!c->failed) fprintf(stderr, "bcast_file: rank %d: %s: %s\n", c->rank, what, why);
    c->failed = true;
}

/* A call of the library failed: the job is over. */
static int broken(copy *c, const char *what, int err)
{
    char why[256] = "";
    gc_last_error(c->world, NULL, why, sizeof why);
    fprintf(stderr, "bcast_file: rank %d: %s: %s: %s\n", c->rank, what, gc_strerror(err), why);
    c->failed = true;
    return err;
}

/* Whether all ranks can go on. */
static int agree(copy *c, bool *all_well)
{
    int32_t mine = c->failed, failed = 0;
    int err = gc_allreduce(c->world, &mine, &failed, 1, GC_INT32, GC_SUM);
    if (err) return broken(c, "allreduce", err);
    if (failed && c->rank == 0) fprintf(stderr, "bcast_file: given up: %d of %d ranks failed\n", (int)failed, c->size);
    *all_well = failed == 0;
    return GC_OK;
}

/* ---- files ---- */

static bool expand(const char *pattern, int rank, char out[PATH_BYTES])
{
    size_t used = 0;
    for (; *pattern; pattern++) {
        int n = 1;
        if (pattern[0] == '%' && pattern[1] == 'r') {
            n = snprintf(out + used, PATH_BYTES - used, "%d", rank);
            pattern++;
        } else {
            out[used] = *pattern;
        }
        used += (size_t)n;
        if (used >= PATH_BYTES - 1) return false;
    }
    out[used] = 0;
    return used > 0;
}

/* Anything but a regular file (a terminal, /dev/null) is written in place. */
static void open_files(copy *c, const char *in, const char *out)
{
    struct stat st;
    if (c->rank == 0 && (c->in = open(in, O_RDONLY | O_CLOEXEC)) < 0) fail(c, in, strerror(errno));
    if (!expand(out, c->rank, c->path)) {
        fail(c, out, "too long a name, or none");
        return;
    }
    if (stat(c->path, &st) == 0 && !S_ISREG(st.st_mode)) {
        c->out = open(c->path, O_WRONLY | O_CLOEXEC);
    } else if (!c->failed) {
        snprintf(c->part, sizeof c->part, "%s.part%d", c->path, c->rank);
        c->out = open(c->part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        if (c->out < 0) c->part[0] = 0;
    }
    if (c->out < 0) fail(c, c->path, strerror(errno));
}

/* Fills a buffer. Returns how much there was, 0 at the end of the file, -1 on failure. */
static int64_t read_piece(copy *c, unsigned char *buffer)
{
    size_t have = 0;
    while (have < PIECE_BYTES) {
        ssize_t n = read(c->in, buffer + have, PIECE_BYTES - have);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            fail(c, "reading", strerror(errno));
            return -1;
        }
        if (n == 0) break;
        have += (size_t)n;
    }
    return (int64_t)have;
}

static void write_piece(copy *c, const unsigned char *buffer, int64_t length)
{
    size_t done = 0;
    sha256_add(&c->hash, buffer, (size_t)length);
    c->total += length;
    while (done < (size_t)length && !c->failed) {
        ssize_t n = write(c->out, buffer + done, (size_t)length - done);
        if (n < 0 && errno != EINTR) fail(c, c->path, strerror(errno));
        if (n > 0) done += (size_t)n;
    }
}

/* ---- the broadcast ---- */

/* Returns an error of the library; c->failed tells of the rest. *complete: the end of the file was reached. */
static int transfer(copy *c, bool *complete)
{
    gc_request *under_way[2] = { NULL, NULL };
    int err = GC_OK;
    bool all_well = true;
    *complete = false;
    for (int k = 0; !err; k++) {
        int now = k % 2, before = 1 - now;
        if (k % PIECES_AGREE == PIECES_AGREE - 1) {
            if ((err = agree(c, &all_well)) != GC_OK || !all_well) break;
        }
        if (c->rank == 0) c->length[now] = read_piece(c, c->buffer[now]);      /* while piece k - 1 is on its way */
        if ((err = gc_bcast(c->world, &c->length[now], sizeof c->length[now], 0)) != GC_OK) break;
        if (c->length[now] > PIECE_BYTES) {
            fail(c, "length of a piece", "not possible");
            err = GC_ERR_PROTOCOL;
            break;
        }
        if (c->length[now] > 0) err = gc_ibcast(c->world, c->buffer[now], (size_t)c->length[now], 0, &under_way[now]);
        if (!err) err = gc_wait(&under_way[before], NULL);
        if (!err && k > 0) write_piece(c, c->buffer[before], c->length[before]);
        if (c->length[now] <= 0) break;
    }
    for (int i = 0; i < 2; i++) {
        int late = gc_wait(&under_way[i], NULL);        /* an empty one returns at once */
        if (!err) err = late;
    }
    *complete = !err && all_well && c->length[0] >= 0 && c->length[1] >= 0;
    return err ? broken(c, "broadcast", err) : GC_OK;
}

static bool same_everywhere(copy *c, int *err)
{
    unsigned char *all = malloc((size_t)c->size * SHA256_BYTES);
    bool same = true;
    if (!all) {
        *err = GC_ERR_NOMEM;
        fail(c, "digests", "out of memory");
        return false;
    }
    if ((*err = gc_allgather(c->world, c->digest, SHA256_BYTES, all)) != GC_OK) broken(c, "allgather", *err);
    for (int i = 0; i < c->size && !*err; i++)
        if (memcmp(all + (size_t)i * SHA256_BYTES, c->digest, SHA256_BYTES) != 0) {
            same = false;
            if (c->rank == 0) fprintf(stderr, "bcast_file: the copy of rank %d differs\n", i);
        }
    free(all);
    return same && !*err;
}

static void report(const copy *c, double took)
{
    printf("%lld bytes to %d ranks in %.3f s: %.1f MB/s\nSHA-256 ", (long long)c->total, c->size, took, (double)c->total / took / 1e6);
    for (int i = 0; i < SHA256_BYTES; i++) printf("%02x", c->digest[i]);
    printf(", the same at every rank\n");
}

static int run(copy *c, const char *in, const char *out)
{
    bool all_well, complete;
    int err;
    open_files(c, in, out);
    c->buffer[0] = malloc(PIECE_BYTES);
    c->buffer[1] = malloc(PIECE_BYTES);
    if (!c->buffer[0] || !c->buffer[1]) fail(c, "buffers", "out of memory");
    if ((err = agree(c, &all_well)) != GC_OK || !all_well) return err;

    double start = seconds();
    sha256_begin(&c->hash);
    if ((err = transfer(c, &complete)) != GC_OK) return err;
    sha256_end(&c->hash, c->digest);
    if (!complete) return GC_OK;                        /* as all ranks know; who failed has said why */
    if (c->out >= 0 && close(c->out) != 0) fail(c, c->path, strerror(errno));
    c->out = -1;
    if ((err = agree(c, &all_well)) != GC_OK || !all_well) return err;
    double took = seconds() - start;                    /* all have written all */
    if (!same_everywhere(c, &err)) return err;
    if (c->part[0] && rename(c->part, c->path) != 0) fail(c, c->path, strerror(errno));
    else c->part[0] = 0;
    if ((err = agree(c, &all_well)) != GC_OK || !all_well) return err;
    c->made = true;
    if (c->rank == 0) report(c, took);
    return GC_OK;
}

int main(int argc, char **argv)
{
    char why[256] = "";
    gc_options options = GRIDCOMM_OPTIONS_INIT;
    copy c = { .in = -1, .out = -1 };
    if (argc != 3) {
        fprintf(stderr, "usage: bcast_file IN OUT     (%%r in OUT becomes the rank)\n");
        return 2;
    }
    options.error_text = why;
    options.error_text_size = sizeof why;
    int err = gc_init(&c.world, &options);
    if (err) {
        fprintf(stderr, "bcast_file: cannot join the job: %s: %s\n", gc_strerror(err), why);
        return 1;
    }
    c.rank = gc_rank(c.world);
    c.size = gc_size(c.world);
    err = run(&c, argv[1], argv[2]);
    if (c.in >= 0) close(c.in);
    if (c.out >= 0) close(c.out);
    if (c.part[0]) unlink(c.part);
    if (err) gc_abort(c.world, 1);
    int left = gc_finalize(c.world);
    if (left && !err) fprintf(stderr, "bcast_file: rank %d: finalize: %s\n", c.rank, gc_strerror(left));
    free(c.buffer[0]);
    free(c.buffer[1]);
    return err || left || !c.made;
}
