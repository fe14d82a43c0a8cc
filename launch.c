/* launch.c: what a process is told when it is started: options, environment, the variables of launchers.
 * SPDX-License-Identifier: MIT
 *
 * Pure, but for the key's file. Each value comes from the options, else GRIDCOMM_..., else the variables of the launcher, a
 * row in a table. What is half said is an error that names the variable: a job of which one process believes to be alone
 * would hang.
 */
#include "gridcomm_int.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* A launcher and the variables by which it tells a process its place. root: a list "host:port,..."; else host and port; or
 * PMI's table (pmi.c: there what stands for the size is where to ask for it); or what a job step of Slurm has. A launcher that
 * is run by another one comes first: torchrun by any, mpiexec by srun. */
enum launcher_way { LAUNCHER_ROOT, LAUNCHER_PMI_FD, LAUNCHER_PMI_PORT, LAUNCHER_SLURM };
typedef struct launcher { const char *name, *rank, *size, *root, *host, *port; enum launcher_way way; } launcher;
static const launcher launchers[] = {
    { "gridcomm", "GRIDCOMM_RANK", "GRIDCOMM_SIZE", "GRIDCOMM_ROOT", NULL, NULL, LAUNCHER_ROOT },
    { "torchrun", "RANK", "WORLD_SIZE", NULL, "MASTER_ADDR", "MASTER_PORT", LAUNCHER_ROOT },
    { "pmi", "PMI_RANK", "PMI_SIZE", NULL, NULL, NULL, LAUNCHER_PMI_FD },
    { "pmi", "PMI_ID", "PMI_PORT", NULL, NULL, NULL, LAUNCHER_PMI_PORT },
    { "slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", NULL, NULL, NULL, LAUNCHER_SLURM },
};

enum { PLACE_FD_MAX = 1 << 20,      /* no Linux process has more descriptors by default */
       /* Slurm: ports that Linux gives nobody by itself. Steps of a job, and jobs of near numbers, have different ones. */
       PLACE_PORT_LEAST = 16384, PLACE_PORTS = 16384, PLACE_STEPS = 16 };

typedef struct place_finder {
    const char *(*look_up)(void *user, const char *name);
    void       *user;
    gci_place  *place;
    char       *text;               /* GCI_TEXT bytes */
} place_finder;

static const char *place_get(const place_finder *f, const char *name)
{
    const char *value = name ? f->look_up(f->user, name) : NULL;
    return value && value[0] ? value : NULL;        /* set but empty is as good as not set */
}

static int place_wrong(const place_finder *f, const char *name, const char *value, const char *why)
{
    snprintf(f->text, GCI_TEXT, "%s=%.80s: %s", name, value, why);
    return GC_ERR_CONFIG;
}

static int place_unset(const place_finder *f, const char *set, const char *missing)
{
    snprintf(f->text, GCI_TEXT, "%s is set, but %s is not", set, missing);
    return GC_ERR_CONFIG;
}

/* A whole decimal number in lo .. hi; anything before or behind it is an error. */
static int place_number(const place_finder *f, const char *name, const char *value, int lo, int hi, int *out)
{
    char why[64], *end;
    long number;

    errno = 0;
    number = value[0] >= '0' && value[0] <= '9' ? strtol(value, &end, 10) : (end = NULL, -1);
    if (!end || *end)
        return place_wrong(f, name, value, "not a number");
    if (errno || number < lo || number > hi) {
        snprintf(why, sizeof why, "not between %d and %d", lo, hi);
        return place_wrong(f, name, value, why);
    }
    *out = (int)number;
    return GC_OK;
}

/* One "host:port" or "[v6]:port" of bytes characters; name and list are for the error text. */
static int place_root(const place_finder *f, const char *name, const char *list, const char *entry, size_t bytes)
{
    gci_place *p = f->place;
    const char *host = entry, *colon = NULL;
    char port[64];
    size_t host_bytes, port_bytes;
    int number;

    for (size_t i = 0; i < bytes; i++)
        if (entry[i] == ':')
            colon = entry + i;
    if (!colon || colon == entry)
        return place_wrong(f, name, list, "not host:port,[v6]:port,...");
    host_bytes = (size_t)(colon - entry);
    if (host[0] == '[' && host_bytes > 2 && host[host_bytes - 1] == ']') {
        host++;
        host_bytes -= 2;
    } else if (memchr(host, ':', host_bytes) || host[0] == '[') {
        return place_wrong(f, name, list, "an IPv6 address needs brackets: [v6]:port");
    }
    if (p->roots == GCI_ROOTS_MAX || host_bytes >= sizeof p->root[0].host)
        return place_wrong(f, name, list, "too many or too long addresses");
    port_bytes = bytes - (size_t)(colon + 1 - entry);
    snprintf(port, sizeof port, "%.*s", (int)gci_min(port_bytes, sizeof port - 1), colon + 1);
    if (port_bytes >= sizeof port || place_number(f, name, port, 1, UINT16_MAX, &number) < 0)
        return place_wrong(f, name, list, "a port is a number between 1 and 65535");
    memcpy(p->root[p->roots].host, host, host_bytes);
    p->root[p->roots].host[host_bytes] = 0;
    p->root[p->roots++].port = (uint16_t)number;
    return GC_OK;
}

static int place_roots(const place_finder *f, const char *name, const char *list)
{
    for (const char *at = list;; at++) {
        size_t bytes = strcspn(at, ",");
        int err = place_root(f, name, list, at, bytes);
        if (err < 0)
            return err;
        at += bytes;
        if (!*at)
            return GC_OK;
    }
}

/* torchrun's way: a host (IPv6 without brackets) and a port, each in a variable of its own. */
static int place_master(const place_finder *f, const launcher *l, const char *host)
{
    const char *port = place_get(f, l->port);
    gci_place *p = f->place;
    int number, err;

    if (!port)
        return place_unset(f, l->host, l->port);
    if ((err = place_number(f, l->port, port, 1, UINT16_MAX, &number)) < 0)
        return err;
    if (strlen(host) >= sizeof p->root[0].host)
        return place_wrong(f, l->host, host, "too long");
    memcpy(p->root[0].host, host, strlen(host) + 1);
    p->root[0].port = (uint16_t)number;
    p->roots = 1;
    return GC_OK;
}

/* Rank and size: from the options, each else from the first launcher that says either. */
static int place_rank(const place_finder *f, const gc_options *options, const launcher **said)
{
    gci_place *p = f->place;
    const char *rank = NULL, *size = NULL, *rank_name = "gc_options.rank";
    const launcher *l = launchers;
    int err;

    p->rank = options ? options->rank : -1;
    p->ranks = options ? options->ranks : 0;
    snprintf(p->launcher, sizeof p->launcher, "%s", p->rank >= 0 || p->ranks > 0 ? "options" : "none");
    for (size_t i = 0; i < GCI_COUNT(launchers) && !rank && !size; i++) {
        l = &launchers[i];
        size = place_get(f, l->size);
        rank = l->way == LAUNCHER_SLURM && !size ? NULL : place_get(f, l->rank);    /* a batch script has one, too */
    }
    *said = rank || size ? l : NULL;
    if (p->rank < 0 && rank) {
        rank_name = l->rank;
        snprintf(p->launcher, sizeof p->launcher, "%s", l->name);
        if ((err = place_number(f, l->rank, rank, 0, GCI_RANKS_MAX - 1, &p->rank)) < 0)
            return err;
    }
    if (size && l->way == LAUNCHER_PMI_PORT) {      /* the launcher knows how many there are */
        if (rank_name == l->rank)
            return GC_OK;
        if (p->rank < 0)
            return place_unset(f, l->size, l->rank);
    } else if (p->ranks <= 0 && size && (err = place_number(f, l->size, size, 1, GCI_RANKS_MAX, &p->ranks)) < 0) {
        return err;
    }
    if (p->rank < 0 && p->ranks <= 0) {
        p->rank = 0;
        p->ranks = 1;
    } else if (p->rank < 0) {
        return place_unset(f, size ? l->size : "gc_options.ranks", size ? l->rank : "GRIDCOMM_RANK");
    } else if (p->ranks <= 0) {
        return place_unset(f, rank_name, *said && !size ? l->size : "GRIDCOMM_SIZE");
    }
    if (p->rank >= p->ranks || p->ranks > GCI_RANKS_MAX) {
        snprintf(f->text, GCI_TEXT, "%s=%d: a job of %d ranks has ranks 0 to %d, and at most %d of them", rank_name, p->rank,
                 p->ranks, p->ranks - 1, GCI_RANKS_MAX);
        return GC_ERR_CONFIG;
    }
    return GC_OK;
}

/* A process of a PMI job takes part in its barrier whatever else it has been given: the others wait for it. */
static int place_pmi(const place_finder *f, const launcher *l)
{
    gci_place *p = f->place;
    const char *fd = place_get(f, "PMI_FD"), *port = l->way == LAUNCHER_PMI_PORT ? place_get(f, l->size) : NULL;
    int err;

    if (port) {
        if ((err = place_root(f, l->size, port, port, strlen(port))) < 0)
            return err;
        p->pmi = (gci_pmi){ .kind = GCI_PMI_PORT, .fd = -1, .at = p->root[--p->roots] };
    } else if (fd && p->ranks > 1) {        /* alone it has nobody to meet, and the launcher nothing to watch */
        if ((err = place_number(f, "PMI_FD", fd, 0, PLACE_FD_MAX, &p->pmi.fd)) < 0)
            return err;
        p->pmi.kind = GCI_PMI_FD;
    }
    return GC_OK;
}

/* The first name of "n[01-03,7]x,m": n01x. */
static bool place_first_host(const char *list, char *host, size_t room)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    size_t n = 0;

    for (const char *at = list; *at && *at != ',';) {
        bool range = *at == '[';
        size_t bytes = range ? strcspn(++at, "-,]") : strcspn(at, "[,");
        const char *end = range ? strchr(at, ']') : at + bytes;
        if (!end || !bytes || strspn(at, plain) < bytes || n + bytes >= room)
            return false;
        memcpy(host + n, at, bytes);
        n += bytes;
        at = range ? end + 1 : end;
    }
    host[n] = 0;
    return n > 0;
}

/* At which port the ranks of a job step meet: one that Slurm keeps for it, or one that all can work out. */
static int place_slurm_port(const place_finder *f, uint16_t *port)
{
    static const char *const name[] = { "SLURM_JOB_ID", "SLURM_STEP_ID" };
    const char *reserved = place_get(f, "SLURM_STEP_RESV_PORTS"), *text;
    int number[GCI_COUNT(name)], err;
    char first[16];

    if (reserved) {                         /* "12000-12003,12007" */
        snprintf(first, sizeof first, "%.*s", (int)gci_min(strcspn(reserved, "-,"), sizeof first), reserved);
        err = place_number(f, "SLURM_STEP_RESV_PORTS", first, 1, UINT16_MAX, &number[0]);
        *port = (uint16_t)number[0];
        return err;
    }
    for (size_t i = 0; i < GCI_COUNT(name); i++)
        if ((text = place_get(f, name[i])) == NULL)
            return place_unset(f, "SLURM_STEP_NUM_TASKS", name[i]);
        else if ((err = place_number(f, name[i], text, 0, INT32_MAX, &number[i])) < 0)
            return err;
    *port = (uint16_t)(PLACE_PORT_LEAST + ((unsigned)number[0] * PLACE_STEPS + (unsigned)number[1]) % PLACE_PORTS);
    return GC_OK;
}

/* Slurm starts rank 0 on the first host of the step, but where the user has said which rank goes where (srun -m arbitrary). */
static int place_slurm(const place_finder *f)
{
    const char *node = f->place->rank == 0 ? place_get(f, "SLURM_NODEID") : NULL;
    const char *nodes = place_get(f, "SLURM_STEP_NUM_NODES"), *name = "SLURM_STEP_NODELIST", *list = place_get(f, name);
    gci_root *root = f->place->root;
    int number = 0, err;

    if (nodes && (err = place_number(f, "SLURM_STEP_NUM_NODES", nodes, 1, GCI_RANKS_MAX, &number)) < 0)
        return err;
    if (!list)
        list = place_get(f, name = "SLURM_JOB_NODELIST");
    if (number == 1)
        list = "127.0.0.1";
    else if (!list)
        return place_unset(f, "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST");
    if (!place_first_host(list, root->host, sizeof root->host))
        return place_wrong(f, name, list, "not a list of hosts");
    if (node && strcmp(node, "0") != 0)
        return place_wrong(f, "SLURM_NODEID", node, "rank 0 is not on the first host: set GRIDCOMM_ROOT, or srun --mpi=pmi2");
    if (number != 1 && !f->place->key_bytes && !f->place->insecure) {
        snprintf(f->text, GCI_TEXT, "%s=%.60s: a job on several hosts needs a key: set GRIDCOMM_KEY or GRIDCOMM_KEY_FILE, let "
                 "srun --mpi=pmi2 make one, or do without by GRIDCOMM_INSECURE=1", name, list);
        return GC_ERR_CONFIG;
    }
    f->place->roots = 1;
    return place_slurm_port(f, &root->port);
}

static int place_rendezvous(const place_finder *f, const gc_options *options, const launcher *said)
{
    const char *value;
    gci_place *p = f->place;
    const launcher *ranked = said && strcmp(p->launcher, said->name) == 0 ? said : NULL;       /* it gave the rank, too */
    int err;

    if (ranked && (ranked->way == LAUNCHER_PMI_FD || ranked->way == LAUNCHER_PMI_PORT) && (err = place_pmi(f, ranked)) < 0)
        return err;
    if (options && options->root && options->root[0])
        return place_roots(f, "gc_options.root", options->root);
    for (size_t i = 0; i < GCI_COUNT(launchers); i++) {
        const launcher *l = &launchers[i];
        if ((value = place_get(f, l->root)) != NULL)
            return place_roots(f, l->root, value);
        if ((l == said || !said) && p->ranks > 1 && (value = place_get(f, l->host)) != NULL)
            return place_master(f, l, value);
    }
    if (p->ranks == 1 || p->pmi.kind != GCI_PMI_NONE)
        return GC_OK;
    if (ranked && ranked->way == LAUNCHER_PMI_FD)
        return place_unset(f, ranked->rank, "PMI_FD");
    if (ranked && ranked->way == LAUNCHER_SLURM)
        return place_slurm(f);
    snprintf(f->text, GCI_TEXT, "rank %d of %d has no rendezvous: set GRIDCOMM_ROOT=host:port%s%s", p->rank, p->ranks,
             said && said->host ? " or " : "", said && said->host ? said->host : "");
    return GC_ERR_CONFIG;
}

static int place_key_file(const place_finder *f, const char *path)
{
    uint8_t data[GCI_KEY_MAX + 2];          /* the longest key and its end of line */
    FILE *file = fopen(path, "rbe");
    size_t bytes;
    bool failed;

    if (!file)
        return place_wrong(f, "GRIDCOMM_KEY_FILE", path, "cannot be opened");
    bytes = fread(data, 1, sizeof data, file);
    failed = ferror(file) != 0 || !feof(file);
    fclose(file);
    if (bytes && data[bytes - 1] == '\n')
        bytes--;
    if (bytes && data[bytes - 1] == '\r')
        bytes--;
    if (failed || bytes > GCI_KEY_MAX)
        return place_wrong(f, "GRIDCOMM_KEY_FILE", path, "cannot be read, or longer than 256 bytes");
    if (!bytes)
        return place_wrong(f, "GRIDCOMM_KEY_FILE", path, "empty");
    memcpy(f->place->key, data, bytes);
    f->place->key_bytes = bytes;
    return GC_OK;
}

static int place_key(const place_finder *f, const gc_options *options)
{
    const char *key = options && options->key && options->key[0] ? options->key : place_get(f, "GRIDCOMM_KEY");
    const char *path;

    if (!key) {
        path = place_get(f, "GRIDCOMM_KEY_FILE");
        return path ? place_key_file(f, path) : GC_OK;
    }
    if (strlen(key) > GCI_KEY_MAX) {
        snprintf(f->text, GCI_TEXT, "the job key (GRIDCOMM_KEY) is longer than %d bytes", GCI_KEY_MAX);
        return GC_ERR_CONFIG;               /* its value belongs into no text */
    }
    f->place->key_bytes = strlen(key);
    memcpy(f->place->key, key, f->place->key_bytes);
    return GC_OK;
}

static int place_rest(const place_finder *f, const gc_options *options)
{
    bool given = options && options->cluster && options->cluster[0];
    const char *cluster = given ? options->cluster : place_get(f, "GRIDCOMM_CLUSTER");
    bool elsewhere = options && options->root && options->root[0];      /* than where the launcher's socket listens */
    const char *fd = elsewhere ? NULL : place_get(f, "GRIDCOMM_LISTEN_FD"), *insecure = place_get(f, "GRIDCOMM_INSECURE");
    gci_place *p = f->place;
    int number = 0, err;

    if (cluster && !gci_is_cluster(cluster, strlen(cluster)))
        return place_wrong(f, "GRIDCOMM_CLUSTER", cluster, "not a path of up to 127 printable characters");
    if (cluster)
        memcpy(p->cluster, cluster, strlen(cluster) + 1);
    if (fd && (err = place_number(f, "GRIDCOMM_LISTEN_FD", fd, 0, PLACE_FD_MAX, &p->listen_fd)) < 0)
        return err;
    if (insecure && (err = place_number(f, "GRIDCOMM_INSECURE", insecure, 0, 1, &number)) < 0)
        return err;
    p->insecure = number == 1 || (options && options->insecure == 1);
    return GC_OK;
}

GCI int gci_place_find(const gc_options *options, const char *(*look_up)(void *user, const char *name), void *user,
                       gci_place *place, char error_text[GCI_TEXT])
{
    place_finder f = { look_up, user, place, error_text };
    const launcher *said;
    int err;

    memset(place, 0, sizeof *place);
    place->listen_fd = -1;
    error_text[0] = 0;
    if ((err = place_rank(&f, options, &said)) < 0 || (err = place_key(&f, options)) < 0
        || (err = place_rest(&f, options)) < 0 || (err = place_rendezvous(&f, options, said)) < 0)
        return err;
    if (place->ranks == 1)
        place->roots = 0;                   /* alone: nobody to meet */
    return GC_OK;
}

GCI int gci_place_add_roots(gci_place *place, const char *name, const char *list, char error_text[GCI_TEXT])
{
    place_finder f = { NULL, NULL, place, error_text };
    return place_roots(&f, name, list);
}
