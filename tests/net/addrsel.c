/* addrsel.c: how long address selection takes, in ms. Pure computing: no network is touched.
 * SPDX-License-Identifier: MIT
 *
 *     addrsel choices       1,000 peers of 16 interfaces with two addresses each: the slowest of several kinds of network
 *     addrsel collisions    the collision table of 10,000 hosts with 4 addresses each
 */
#include "gridcomm_int.h"

#include <stdlib.h>
#include <time.h>

enum { PEERS = 1000, NICS = 16, HOSTS = 10000, ADDRS = 4, ROUNDS = 5 };

/* What the networks of two hosts have in common, and where routes lead. */
enum kind { SWITCHED, PUBLIC, PRIVATE, ROUTED, KINDS };
static const char *const kind_text[KINDS] = { "a switch per NIC", "public networks", "private networks",
    "routed private networks" };

typedef struct kernel { gci_sys sys; enum kind kind; } kernel;

static gci_route_answer route(gci_sys *sys, const gci_addr *to, uint32_t bound)
{
    enum kind kind = ((kernel *)(void *)sys)->kind;
    if (kind == SWITCHED || kind == ROUTED)
        return (gci_route_answer){ GCI_ROUTE_SPECIFIC, 1 + to->ip[to->family == 4 ? 1 : 3] };
    return (gci_route_answer){ GCI_ROUTE_DEFAULT, bound ? bound : 1 };
}

/* IPv4 and IPv6 of interface i of host h, both with i where route() reads it. On a switch all hosts share the network, else
 * each has its own. */
static gci_ifaddr *fill(enum kind kind, int h, gci_ifaddr *at)
{
    uint8_t high = (uint8_t)(h >> 8), low = (uint8_t)h, prefix = kind == SWITCHED ? 16 : 32;

    for (int i = 0; i < NICS; i++) {
        gci_ifaddr a = { .index = (uint32_t)(i + 1), .speed = i % 2 ? 1000 : 10000 };
        snprintf(a.name, sizeof a.name, "eth%d", i);
        a.prefix = prefix;
        a.addr = (gci_addr){ .family = 4, .ip = { kind == PUBLIC ? 198 : 10, (uint8_t)i, high, low } };
        *at++ = a;
        a.prefix = (uint8_t)(2 * prefix);
        a.addr = (gci_addr){ .family = 6, .ip = { kind == PUBLIC ? 0x20 : 0xfd, 1, 0, (uint8_t)i, [6] = high, [7] = low } };
        *at++ = a;
    }
    return at;
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

static double choices(gci_env *env, enum kind kind)
{
    gci_host *host = calloc(PEERS + 1, sizeof *host);
    gci_ifaddr *addr = calloc((PEERS + 1) * NICS * 2, sizeof *addr), *at = addr;
    kernel here = { .sys = { .route = route }, .kind = kind };
    gci_addrsel *s;
    double best = 1e9;
    long links = 0;

    for (int h = 0; h <= PEERS; h++) {
        snprintf(host[h].id, sizeof host[h].id, "%05d", h * 7919 % 10007);
        host[h].addr = at;
        at = fill(kind, h, at);
        host[h].addrs = (int)(at - host[h].addr);
    }
    if (gci_addrsel_make(env, host, PEERS + 1, &s) < 0)
        exit(1);
    gci_onlooker look = { .host = 0, .own = host[0].addr, .owns = host[0].addrs, .sys = &here.sys };
    for (int round = 0; round < ROUNDS; round++) {
        double since = now_ms();
        links = 0;
        gci_addrsel_look(s, &look);
        for (int h = 1; h <= PEERS; h++)
            links += gci_addrsel_choose(s, h, 7000)->links;
        double took = now_ms() - since;
        best = took < best ? took : best;
    }
    fprintf(stderr, "%s: %.2f ms, %ld links\n", kind_text[kind], best, links);
    gci_addrsel_free(env, s);
    free(host);
    free(addr);
    return best;
}

static double collisions(gci_env *env)
{
    gci_host *host = calloc(HOSTS, sizeof *host);
    gci_ifaddr *addr = calloc(HOSTS * ADDRS, sizeof *addr);
    double best = 1e9;

    for (int h = 0; h < HOSTS; h++) {
        host[h] = (gci_host){ .addrs = ADDRS, .addr = addr + h * ADDRS };
        snprintf(host[h].id, sizeof host[h].id, "%05d", h);
        for (int i = 0; i < ADDRS; i++) {
            gci_addr a = { .family = 4, .ip = { 10, (uint8_t)i, (uint8_t)(h / 250), (uint8_t)(1 + h % 250) } };
            if (i == 3)
                a = (gci_addr){ .family = 4, .ip = { 172, 17, 0, 1 } };         /* docker0 */
            host[h].addr[i] = (gci_ifaddr){ .addr = a, .prefix = 16, .index = (uint32_t)i };
        }
    }
    for (int round = 0; round < ROUNDS; round++) {
        gci_addrsel *s;
        double since = now_ms();
        if (gci_addrsel_make(env, host, HOSTS, &s) < 0)
            exit(1);
        double took = now_ms() - since;
        best = took < best ? took : best;
        gci_addrsel_free(env, s);
    }
    free(host);
    free(addr);
    return best;
}

int main(int argc, char **argv)
{
    gci_env env;
    double worst = 0;

    gci_env_init(&env, gci_sys_real(), NULL);
    if (argc == 2 && strcmp(argv[1], "choices") == 0) {
        for (int kind = 0; kind < KINDS; kind++) {
            double took = choices(&env, (enum kind)kind);
            worst = took > worst ? took : worst;
        }
    } else if (argc == 2 && strcmp(argv[1], "collisions") == 0)
        worst = collisions(&env);
    else {
        fprintf(stderr, "addrsel choices|collisions\n");
        return 2;
    }
    printf("%.2f\n", worst);
    return 0;
}
