/* guests.c: processes beside a simulated job; guests.h tells which.
 * SPDX-License-Identifier: MIT
 */
#include "guests.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- a launcher: PMI-1, as much as pmi.c asks for ------------------------------------------------------------------------ */

enum { CLIENTS = 8, ENTRIES = 64, LINE = 1100, MINUTES = 2 };

typedef struct launcher {
    gci_sys *sys;
    int      ranks, poller, accepted, open, entries, waiting;
    struct { int fd; size_t bytes; char line[LINE]; } client[CLIENTS];
    char     key[ENTRIES][32], value[ENTRIES][LINE];
} launcher;

static void launcher_say(launcher *l, int i, const char *text)
{
    for (size_t left = strlen(text); left;) {
        ssize_t n = l->sys->send(l->sys, l->client[i].fd, &(struct iovec){ (void *)(uintptr_t)text, left }, 1);
        if (n < 0 && n != -EAGAIN)
            return;
        text += n > 0 ? n : 0;
        left -= n > 0 ? (size_t)n : 0;
    }
}

static void launcher_serve(launcher *l, int i)
{
    const char *line = l->client[i].line;
    char answer[2 * LINE] = "", key[32];
    if (sscanf(line, "cmd=put kvsname=kvs key=%31s value=%1023s", l->key[l->entries], l->value[l->entries]) == 2) {
        l->entries += l->entries < ENTRIES - 1;
        launcher_say(l, i, "cmd=put_result rc=0 msg=success\n");
    } else if (sscanf(line, "cmd=get kvsname=kvs key=%31s", key) == 1) {
        snprintf(answer, sizeof answer, "cmd=get_result rc=-1 msg=key_%s_not_found value=unknown\n", key);
        for (int e = 0; e < l->entries; e++)
            if (strcmp(l->key[e], key) == 0)
                snprintf(answer, sizeof answer, "cmd=get_result rc=0 msg=success value=%s\n", l->value[e]);
        launcher_say(l, i, answer);
    } else if (strncmp(line, "cmd=initack", 11) == 0) {
        snprintf(answer, sizeof answer, "cmd=initack\ncmd=set size=%d\ncmd=set rank=%d\ncmd=set debug=0\n", l->ranks, atoi(line + 18));
        launcher_say(l, i, answer);
    } else if (strncmp(line, "cmd=init ", 9) == 0) {
        launcher_say(l, i, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
    } else if (strcmp(line, "cmd=get_maxes\n") == 0) {
        launcher_say(l, i, "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n");
    } else if (strcmp(line, "cmd=get_my_kvsname\n") == 0) {
        launcher_say(l, i, "cmd=my_kvsname kvsname=kvs\n");
    } else if (strcmp(line, "cmd=finalize\n") == 0) {
        launcher_say(l, i, "cmd=finalize_ack\n");
    } else if (strcmp(line, "cmd=barrier_in\n") == 0 && ++l->waiting == l->ranks) {
        for (int k = 0; k < l->accepted; k++)
            if (l->client[k].fd >= 0)
                launcher_say(l, k, "cmd=barrier_out\n");
    }
}

static void launcher_hear(launcher *l, int i)
{
    ssize_t n = 1;
    while (n > 0 && l->client[i].fd >= 0) {
        char *line = l->client[i].line, *end;
        size_t *bytes = &l->client[i].bytes;
        n = l->sys->recv(l->sys, l->client[i].fd, &(struct iovec){ line + *bytes, LINE - 1 - *bytes }, 1);
        *bytes += n > 0 ? (size_t)n : 0;
        line[*bytes] = 0;
        if ((end = strchr(line, '\n')) != NULL) {       /* a request is one line, and waits for its answer */
            launcher_serve(l, i);
            *bytes = 0;
        } else if ((n <= 0 && n != -EAGAIN) || *bytes == LINE - 1) {
            l->sys->close(l->sys, l->client[i].fd);
            l->client[i].fd = -1;
            l->open--;
        }
    }
}

static void launcher_take(launcher *l, int listener)
{
    gci_addr from;
    int fd = l->sys->accept(l->sys, listener, &from);
    if (fd >= 0 && l->accepted < CLIENTS && l->sys->watch(l->sys, l->poller, fd, GCI_READ, (uint64_t)l->accepted) >= 0) {
        l->client[l->accepted++].fd = fd;
        l->open++;
    }
}

static void launcher_run(sim_proc *p, void *arg)
{
    const guest *g = arg;
    launcher *l = calloc(1, sizeof *l);
    gci_sys *sys = sim_sys(p);
    if (!l)
        abort();
    l->sys = sys, l->ranks = g->ranks, l->poller = sys->poller(sys);
    int64_t end = sys->now(sys) + (int64_t)MINUTES * 60 * GCI_SECOND;
    (void)sys->watch(sys, l->poller, g->listener, GCI_READ, CLIENTS);
    while ((l->accepted < l->ranks || l->open) && sys->now(sys) < end) {
        gci_event event[CLIENTS + 1];
        int n = sys->wait(sys, l->poller, event, CLIENTS + 1, end - sys->now(sys));
        for (int i = 0; i < n; i++) {
            if (event[i].tag == CLIENTS)
                launcher_take(l, g->listener);
            else
                launcher_hear(l, (int)event[i].tag);
        }
    }
    free(l);
}

void guest_launcher(sim_host *h, guest *g)
{
    gci_addr at = { .family = 4, .port = GUEST_PMI_PORT };
    g->listener = sim_prelisten(sim_spawn(h, "launcher", launcher_run, g), &at);
}

/* ---- strangers ------------------------------------------------------------------------------------------------------------ */

static void strangers_run(sim_proc *p, void *arg)
{
    const guest *g = arg;
    gci_sys *sys = sim_sys(p);
    for (int i = 0; i < g->count; i++)
        (void)sys->connect(sys, &g->at, NULL, 0);
    sim_sleep(p, 3 * GCI_SECOND);
}

void guest_strangers(sim_host *h, guest *g) { sim_spawn(h, "strangers", strangers_run, g); }
