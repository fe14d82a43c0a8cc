/* gcrun_net.c: rank 0's listening socket, and what a host tells of itself.
 * SPDX-License-Identifier: MIT
 *
 * The node opens the socket at which rank 0 will be found and hands it down by inheritance: the port is known before any
 * rank runs, so no rank waits for another one's start, and there is no moment at which somebody else could take the port.
 */
#include "gcrun.h"
#include "gridcomm_int.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { NET_BACKLOG = 4096,          /* all ranks may connect before rank 0 has begun to accept */
       NET_ADDRS = 12 };            /* the library takes 16 rendezvous addresses; loopback and the tunnel need two */

typedef union net_name { struct sockaddr any; struct sockaddr_in v4; struct sockaddr_in6 v6; } net_name;

static void net_loopback(net_name *name, uint16_t port)
{
    memset(name, 0, sizeof *name);
    name->v4.sin_family = AF_INET;
    name->v4.sin_port = htons(port);
    name->v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
}

static int net_listen_at(net_name *name, socklen_t bytes, uint16_t *port)
{
    int fd = socket(name->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), zero = 0, one = 1;
    if (fd < 0) return -errno;
    if (name->any.sa_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    if (name->v4.sin_port) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);  /* the last job's connections end slowly */
    if (bind(fd, &name->any, bytes) != 0 || listen(fd, NET_BACKLOG) != 0 || getsockname(fd, &name->any, &bytes) != 0) {
        int err = errno;
        close(fd);
        return -err;
    }
    *port = ntohs(name->any.sa_family == AF_INET6 ? name->v6.sin6_port : name->v4.sin_port);
    return fd;
}

/* :: takes IPv4 too; a host without IPv6 has only 0.0.0.0. */
static int net_listen(uint16_t wish, uint16_t *port)
{
    net_name name;
    memset(&name, 0, sizeof name);
    name.v6.sin6_family = AF_INET6;
    name.v6.sin6_port = htons(wish);
    int fd = net_listen_at(&name, sizeof name.v6, port);
    if (fd >= 0 || fd == -EADDRINUSE || fd == -EACCES) return fd;
    net_loopback(&name, wish);
    name.v4.sin_addr.s_addr = htonl(INADDR_ANY);
    return net_listen_at(&name, sizeof name.v4, port);
}

int gcrun_listen_any(const char *ports, uint16_t *port)
{
    if (!ports || !*ports) return net_listen(0, port);
    char *end;
    long low = strtol(ports, &end, 10), high = *end == '-' ? strtol(end + 1, &end, 10) : low;
    if (*end || low < 1 || high > 65535 || low > high) return -EINVAL;
    int fd = -EADDRINUSE;
    for (long p = low; p <= high && fd < 0; p++) fd = net_listen((uint16_t)p, port);
    return fd;
}

int gcrun_listen_loopback(uint16_t *port)
{
    net_name name;
    net_loopback(&name, 0);
    return net_listen_at(&name, sizeof name.v4, port);
}

int gcrun_connect_loopback(uint16_t port)
{
    net_name name;
    net_loopback(&name, port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -errno;
    if (connect(fd, &name.any, sizeof name.v4) == 0 || errno == EINPROGRESS) return fd;
    int err = errno;
    close(fd);
    return -err;
}

/* Small is better: public before private, IPv4 before IPv6, lasting before temporary; negative: not to be told to others.
 * Link-local addresses mean nothing without their interface. */
static int net_rank_address(const gci_ifaddr *a)
{
    enum gci_class class = gci_addr_class(&a->addr);
    if (class < GCI_CLASS_PRIVATE || a->flags & (GCI_IF_LOOPBACK | GCI_IF_IDLE)) return -1;
    bool passing = a->flags & (GCI_IF_DEPRECATED | GCI_IF_TEMPORARY);
    return (class == GCI_CLASS_PRIVATE ? 4 : 0) + (a->addr.family == 6 ? 2 : 0) + passing;
}

static void net_append(char out[GCRUN_ADDRS_TEXT], const gci_addr *addr)
{
    char text[GCI_ADDR_TEXT];
    size_t used = strlen(out);
    snprintf(out + used, GCRUN_ADDRS_TEXT - used, addr->family == 6 ? "%s[%s]" : "%s%s", used ? "," : "",
             gci_addr_text(addr, text));
}

void gcrun_addresses(const char *interfaces, char out[GCRUN_ADDRS_TEXT])
{
    gci_ifaddr list[GCI_IFADDRS_MAX];
    char why[GCI_TEXT];                     /* a rank will say it */
    gci_sys *sys = gci_sys_real();
    int n = sys->interfaces(sys, list, GCI_IFADDRS_MAX), told = 0;
    out[0] = 0;
    if (n > GCI_IFADDRS_MAX) n = GCI_IFADDRS_MAX;
    if (n > 0 && interfaces && interfaces[0]) {
        int kept = gci_if_filter(interfaces, "", list, n, why);
        if (kept >= 0) n = kept;
    }
    for (int want = 0; want < 8; want++)
        for (int i = 0; i < n && told < NET_ADDRS; i++)
            if (net_rank_address(&list[i]) == want) {
                net_append(out, &list[i].addr);
                told++;
            }
}

void gcrun_host_id(char out[GCRUN_HOST_ID])
{
    char boot[40] = "", net[40] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t n = read(fd, boot, sizeof boot - 1);
        boot[n > 0 ? n : 0] = 0;
        boot[strcspn(boot, "\n")] = 0;
        close(fd);
    }
    ssize_t n = readlink("/proc/self/ns/net", net, sizeof net - 1);
    net[n > 0 ? n : 0] = 0;
    snprintf(out, GCRUN_HOST_ID, "%s %s", boot, net);
}
