/* estimate.c: gc_model_measure beside what bare sockets take on the same bed.
 * SPDX-License-Identifier: MIT
 *
 *     estimate KIND SECONDS BYTES [FILE]
 *
 * Rank 0 prints the seconds it took; of the median pair between two clusters, then of that within one, the time of an empty
 * message in us and ns/byte up to BYTES; and how many uplinks and lines between sites are shared. FILE: it also saves the model.
 */
#include "gridcomm_int.h"

#include <stdlib.h>

enum { PAIRS_MAX = 64 * 64 };

static int order(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *value, int n)
{
    if (n == 0) return 0;
    qsort(value, (size_t)n, sizeof *value, order);
    return value[n / 2];
}

static void print_pairs(const gc_comm *world, const gc_model *m, bool apart, size_t bytes)
{
    static double empty[PAIRS_MAX], slope[PAIRS_MAX];
    int n = 0;
    for (int i = 0; i < gc_size(world); i++)
        for (int k = 0; k < gc_size(world); k++) {
            double full;
            const bool far = strcmp(gc_cluster(world, i), gc_cluster(world, k)) != 0;
            if (far != apart || strcmp(gc_host(world, i), gc_host(world, k)) == 0 || n == PAIRS_MAX) continue;
            gc_model_p2p(m, i, k, 0, &empty[n]);
            gc_model_p2p(m, i, k, bytes, &full);
            slope[n] = (full - empty[n]) / (double)bytes;
            n++;
        }
    printf(" %.1f %.2f", median(empty, n) * 1e6, median(slope, n) * 1e9);
}

int main(int argc, char **argv)
{
    gc_comm *world;
    gc_model *m;
    if (argc < 4) return 2;
    int err = gc_init(&world, NULL);
    if (err) return 1;
    const int64_t start = gci_sys_real()->now(gci_sys_real());
    err = gc_model_measure(world, argv[1], strtod(argv[2], NULL), &m);
    const double took = (double)(gci_sys_real()->now(gci_sys_real()) - start) / 1e9;
    if (err) fprintf(stderr, "estimate: %s\n", gc_strerror(err));
    if (!err && gc_rank(world) == 0) {
        const size_t bytes = strtoul(argv[3], NULL, 10);
        int uplinks = 0, trunks = 0;
        for (int x = 0; x < m->sites; x++) {
            uplinks += m->uplink[x].out > 0;
            for (int y = 0; y < m->sites; y++) trunks += m->trunk[x * m->sites + y] > 0;
        }
        printf("%.2f", took);
        print_pairs(world, m, true, bytes);
        print_pairs(world, m, false, bytes);
        printf(" %d %d\n", uplinks, trunks);
        if (argc > 4) err = gc_model_save(m, argv[4]);
    }
    gc_model_free(m);
    return gc_finalize(world) || err;
}
