/* test_netlink.c: interfaces, routes and the router that leads out, in network namespaces made for it, and what becomes of
 * answers that the kernel would not give.
 * SPDX-License-Identifier: MIT
 *
 * Each test has a network of its own, which goes when the next one is made or the program ends. That takes root; without it
 * those tests are skipped. The calls to the kernel are defined here, in front of libc's, so that they can be refused and the
 * answers changed. GCT_SEED: that of the answers broken at random.
 */
#include "gridcomm_int.h"

#include <setjmp.h>
#include <cmocka.h>

#include <fcntl.h>
#include <linux/neighbour.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { GCT_WATCHDOG_S = 240, GCT_PATIENCE_S = 20, GCT_CANARY = 0xa5, GCT_MANY = 200, GCT_BROKEN = 4000, GCT_TEXT = 2048 };

static uint64_t seed = 4711;

/* ---- the calls to the kernel ----------------------------------------------------------------------------------------- */

static struct {
    bool no_netlink, no_bind, no_bind_by_index;     /* calls that this process may not make */
    bool old_kernel;                                /* it does not know RTM_F_FIB_MATCH */
    int  questions;                                 /* how many were asked */
    void (*change)(uint8_t *piece, ssize_t *bytes, struct msghdr *);    /* what comes, before it is read */
} kernel;

int socket(int domain, int type, int protocol)
{
    if (domain == AF_NETLINK && kernel.no_netlink)
        return errno = EACCES, -1;
    return (int)syscall(SYS_socket, domain, type, protocol);
}

int setsockopt(int fd, int level, int name, const void *value, socklen_t bytes)
{
    bool by_index = level == SOL_SOCKET && name == SO_BINDTOIFINDEX, by_name = level == SOL_SOCKET && name == SO_BINDTODEVICE;
    if (by_index && kernel.no_bind_by_index)
        return errno = ENOPROTOOPT, -1;
    if ((by_index || by_name) && kernel.no_bind)
        return errno = EPERM, -1;
    return (int)syscall(SYS_setsockopt, fd, level, name, value, bytes);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    struct nlmsghdr head;
    struct rtmsg route;
    kernel.questions++;
    memcpy(&head, message->msg_iov[0].iov_base, sizeof head);
    if (kernel.old_kernel && head.nlmsg_type == RTM_GETROUTE) {
        memcpy(&route, message->msg_iov[1].iov_base, sizeof route);
        route.rtm_flags &= ~(unsigned)RTM_F_FIB_MATCH;
        memcpy(message->msg_iov[1].iov_base, &route, sizeof route);
    }
    return syscall(SYS_sendmsg, fd, message, flags);
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    ssize_t n = syscall(SYS_recvmsg, fd, message, flags);
    if (n >= 0 && kernel.change)
        kernel.change(message->msg_iov->iov_base, &n, message);
    return n;
}

/* ---- networks --------------------------------------------------------------------------------------------------------- */

static bool ip(const char *lines)
{
    FILE *pipe = popen("PATH=$PATH:/usr/sbin:/sbin exec ip -batch -", "w");
    return pipe && fputs(lines, pipe) >= 0 && pclose(pipe) == 0;
}

static void set_up(const char *lines)
{
    if (!ip(lines))
        fail_msg("ip could not do this:\n%s", lines);
}

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

/* A network with nothing in it but a loopback interface that is down; or the test is skipped. */
static void own_network(void)
{
    static enum { UNTRIED, POSSIBLE, IMPOSSIBLE } networks;
    memset(&kernel, 0, sizeof kernel);
    if (networks == UNTRIED)
        networks = unshare(CLONE_NEWNET) == 0 && access("/proc/net/if_inet6", F_OK) == 0
                   && ip("link add name gct0 type veth peer name gct1\ntuntap add dev gct2 mode tun\n") ? POSSIBLE : IMPOSSIBLE;
    if (networks == IMPOSSIBLE) {
        print_message("skip: it takes root, IPv6, veth and tun to make a network\n");
        skip();
    }
    assert_int_equal(unshare(CLONE_NEWNET), 0);
    write_file("/proc/sys/net/ipv6/conf/default/addr_gen_mode", "1");       /* no addresses but the test's */
}

/* The kernel takes note of some things in its own time. */
static void wait_until(bool (*is_so)(int how_many), int how_many)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    for (time_t end = t.tv_sec + GCT_PATIENCE_S; t.tv_sec < end; clock_gettime(CLOCK_MONOTONIC, &t)) {
        if (is_so(how_many))
            return;
        usleep(1000);
    }
    fail_msg("it does not come to %d addresses", how_many);
}

/* So many addresses are of interfaces with a carrier. */
static bool have_carriers(int how_many)
{
    gci_ifaddr list[16];
    int n = gci_netlink_interfaces(list, 16), up = 0;
    for (int i = 0; i < n && i < 16; i++)
        up += !(list[i].flags & GCI_IF_IDLE);
    return up == how_many;
}

/* So many IPv6 addresses have become known as this host's own. */
static bool are_own(int how_many)
{
    gci_ifaddr list[16];
    int n = gci_netlink_interfaces(list, 16), own = 0;
    for (int i = 0; i < n && i < 16; i++)
        own += list[i].addr.family == 6 && gci_netlink_route(&list[i].addr, 0).index == 1;
    return own == how_many;
}

/* a and b, each with an address of both families. What is at the other end of their cables has none. */
static void two_networks(void)
{
    own_network();
    set_up("link set dev lo up\n"
           "link add name a index 10 type veth peer name a0 index 20\nlink set dev a0 up\nlink set dev a up\n"
           "addr add 10.1.0.1/24 dev a\naddr add fd01::1/64 dev a nodad\n"
           "link add name b index 11 type veth peer name b0 index 21\nlink set dev b0 up\nlink set dev b up\n"
           "addr add 10.2.0.1/24 dev b\naddr add fd02::1/64 dev b nodad\n");
    wait_until(have_carriers, 6);
    wait_until(are_own, 3);
}

static gci_addr parsed(const char *text)
{
    gci_addr addr = {0};
    assert_int_equal(gci_addr_parse(text, &addr), GC_OK);
    return addr;
}

/* ---- interfaces --------------------------------------------------------------------------------------------------------- */

/* A line for each address: interface, address, prefix and a letter for each flag. */
static const char *listed(const gci_ifaddr *list, int n, char text[GCT_TEXT])
{
    size_t at = 0;
    text[0] = 0;
    for (int i = 0; i < n; i++) {
        char addr[GCI_ADDR_TEXT], flags[6] = "";
        for (int f = 0, used = 0; f < 5; f++)
            if (list[i].flags & 1 << f)
                flags[used++] = "lpdti"[f];
        assert_int_equal(list[i].addr.port, 0);
        assert_int_equal(list[i].index, if_nametoindex(list[i].name));
        at += (size_t)snprintf(text + at, GCT_TEXT - at, "%s %s/%u%s%s\n", list[i].name, gci_addr_text(&list[i].addr, addr),
                               (unsigned)list[i].prefix, *flags ? " " : "", flags);
        assert_true(at < GCT_TEXT);
    }
    return text;
}

static void expect_interfaces(const char *want)
{
    gci_ifaddr list[32];
    char text[GCT_TEXT];
    int n = gci_netlink_interfaces(list, 32);
    assert_in_range(n, 0, 32);
    assert_string_equal(listed(list, n, text), want);
}

static void test_interfaces(void **state)
{
    (void)state;
    own_network();
    expect_interfaces("");
    assert_int_equal(gci_netlink_interfaces(NULL, 0), 0);
    two_networks();
    /* The kernel tells of all IPv4 addresses first, and of IPv6 ones the latest. */
    set_up("addr add 10.1.7.1/16 dev a label a:more\naddr add 192.0.2.1/32 dev a\naddr add fe80::7/64 dev a nodad\n"
           "addr add fd03::1/128 dev a nodad\n");
    expect_interfaces("lo 127.0.0.1/8 l\nlo ::1/128 l\n"
                      "a 10.1.0.1/24\na 10.1.7.1/16\na 192.0.2.1/32\na fd03::1/128\na fd01::1/64\na fe80::7%10/64\n"
                      "b 10.2.0.1/24\nb fd02::1/64\n");
}

/* Interfaces that are down are left out, and so are addresses which may yet turn out to be another's. */
static void test_interfaces_idle(void **state)
{
    (void)state;
    two_networks();
    set_up("link set dev a down\n"
           "link add name c index 12 type veth peer name d index 13\nlink set dev c up\n"
           "addr add 10.3.0.1/24 dev c\naddr add fd03::1/64 dev c nodad\naddr add fd03::2/64 dev c\n"
           "addr add 10.4.0.1/24 dev d\n");
    expect_interfaces("lo 127.0.0.1/8 l\nlo ::1/128 l\nb 10.2.0.1/24\nb fd02::1/64\nc 10.3.0.1/24 i\nc fd03::1/64 i\n");
    set_up("link set dev d up\naddr del fd03::2/64 dev c\n");
    wait_until(have_carriers, 7);
    expect_interfaces("lo 127.0.0.1/8 l\nlo ::1/128 l\nb 10.2.0.1/24\nb fd02::1/64\nc 10.3.0.1/24\nc fd03::1/64\n"
                      "d 10.4.0.1/24\n");
}

static void test_interfaces_point_to_point(void **state)
{
    (void)state;
    own_network();
    set_up("link set dev lo up\ntuntap add dev p mode tun\nlink set dev p up\n"        /* nobody holds it: there is no carrier */
           "addr add 10.1.0.1 peer 10.1.0.2/32 dev p\naddr add 10.2.0.1 peer 10.2.0.9/24 dev p\n"
           "addr add 10.3.0.1 peer 10.4.0.9/24 dev p\naddr add fd01::1 peer fd01::2/128 dev p nodad\n"
           "addr add fd02::1 peer fd02::2/64 dev p nodad\n");
    expect_interfaces("lo 127.0.0.1/8 l\nlo ::1/128 l\n"
                      "p 10.1.0.1/32 pi\np 10.2.0.1/24 pi\np 10.3.0.1/32 pi\np fd02::1/64 pi\np fd01::1/128 pi\n");
}

/* IPv4 marks addresses, too, but there the same bits mean nothing of the kind. */
static void test_interfaces_ipv6_flags(void **state)
{
    (void)state;
    own_network();
    set_up("link add name a index 10 type veth peer name a0\nlink set dev a0 up\nlink set dev a up\n"
           "addr add 10.1.0.1/24 dev a preferred_lft 0 valid_lft 1000\naddr add 10.1.0.2/24 dev a\n"
           "addr add fd01::1/64 dev a nodad preferred_lft 0 valid_lft 1000\naddr add fd01::2/64 dev a nodad\n");
    gci_ifaddr list[8];
    char text[GCT_TEXT];
    wait_until(have_carriers, 4);
    expect_interfaces("a 10.1.0.1/24\na 10.1.0.2/24\na fd01::2/64\na fd01::1/64 d\n");
    write_file("/proc/sys/net/ipv6/conf/a/accept_dad", "0");
    write_file("/proc/sys/net/ipv6/conf/a/use_tempaddr", "2");
    set_up("addr add 2001:db8::1/64 dev a nodad mngtmpaddr preferred_lft 100000 valid_lft 200000\n");
    wait_until(have_carriers, 6);
    assert_int_equal(gci_netlink_interfaces(list, 8), 6);
    int temporary = -1;
    for (int i = 0; i < 6; i++)
        if (list[i].flags & GCI_IF_TEMPORARY) {
            assert_int_equal(temporary, -1);
            temporary = i;
        }
    assert_true(temporary >= 0);
    assert_non_null(strstr(listed(&list[temporary], 1, text), "a 2001:db8::"));
    assert_int_equal(list[temporary].flags, GCI_IF_TEMPORARY);
}

/* More than fit into one piece of an answer, and more than are wanted. */
static void test_interfaces_many(void **state)
{
    (void)state;
    static char lines[GCT_MANY * 160];
    static gci_ifaddr list[3 * GCT_MANY + 2], some[6];
    size_t at = 0;
    own_network();
    for (int i = 0; i < GCT_MANY; i += 2)
        at += (size_t)snprintf(lines + at, sizeof lines - at, "link add name n%d index %d type veth peer name n%d index %d\n",
                               i, 1000 - i, i + 1, 1000 - (i + 1));
    for (int i = 0; i < GCT_MANY; i++)
        at += (size_t)snprintf(lines + at, sizeof lines - at, "link set dev n%d up\naddr add 10.%d.0.1/24 dev n%d\n"
                               "addr add fd01:1%02x::1/64 dev n%d nodad\naddr add 10.%d.1.1/24 dev n%d\n", i, i, i, i, i, i, i);
    set_up(lines);
    assert_int_equal(gci_netlink_interfaces(list, 3 * GCT_MANY + 2), 3 * GCT_MANY);
    for (int i = 0; i < 3 * GCT_MANY; i++) {
        static const char *const each[] = {"n%d 10.%d.0.1/24\n", "n%d 10.%d.1.1/24\n", "n%d fd01:1%02x::1/64\n"};
        char text[GCT_TEXT], want[GCT_TEXT];
        int k = GCT_MANY - 1 - i / 3;
        list[i].flags &= (uint8_t)~GCI_IF_IDLE;     /* some have just come up */
        snprintf(want, sizeof want, each[i % 3], k, k);
        assert_string_equal(listed(&list[i], 1, text), want);
    }
    memset(some, GCT_CANARY, sizeof some);
    const gci_ifaddr untouched = some[5];
    assert_int_equal(gci_netlink_interfaces(some, 5), 3 * GCT_MANY);
    for (int i = 0; i < 5; i++)
        assert_true(gci_addr_equal(&some[i].addr, &list[i].addr));
    assert_memory_equal(&some[5], &untouched, sizeof untouched);
    assert_int_equal(gci_netlink_interfaces(NULL, 0), 3 * GCT_MANY);
}

/* Of too many, link-local ones give way, the last ones first. */
static void test_interfaces_containers(void **state)
{
    (void)state;
    enum { CONTAINERS = 70 };
    static char lines[(CONTAINERS + 2) * 160];
    gci_ifaddr list[64];
    size_t at = 0;
    int found = 0, n;
    own_network();
    for (int i = 0; i < CONTAINERS; i += 2)
        at += (size_t)snprintf(lines + at, sizeof lines - at, "link add name v%d index %d type veth peer name v%d index %d\n",
                               i, 100 + i, i + 1, 101 + i);
    for (int i = 0; i < CONTAINERS; i++)
        at += (size_t)snprintf(lines + at, sizeof lines - at, "link set dev v%d up\naddr add fe80::%x/64 dev v%d nodad\n", i,
                               i + 1, i);
    at += (size_t)snprintf(lines + at, sizeof lines - at, "link add name wg0 index 900 type veth peer name wg1 index 901\n"
                           "link set dev wg0 up\nlink set dev wg1 up\naddr add 10.9.0.1/24 dev wg0\n");
    set_up(lines);
    n = gci_netlink_interfaces(list, 64);
    assert_true(n > CONTAINERS);
    for (int i = 0; i < 64; i++) {
        found += strcmp(list[i].name, "wg0") == 0 && list[i].addr.family == 4;
        assert_true(i == 0 || list[i - 1].index <= list[i].index);
    }
    assert_int_equal(found, 1);
    assert_string_equal(list[0].name, "v0");        /* as many of them as there is room for */
}

static uint32_t speed_of(const char *name)
{
    gci_ifaddr list[16];
    int n = gci_netlink_interfaces(list, 16);
    for (int i = 0; i < n && i < 16; i++)
        if (strcmp(list[i].name, name) == 0)
            return list[i].speed;
    fail_msg("no %s", name);
    return 0;
}

/* sysfs shows the interfaces of the network that it was mounted in: here first those of another. */
static void test_interfaces_speed(void **state)
{
    (void)state;
    own_network();
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) {
        print_message("skip: no mounts here\n");
        skip();
    }
    static const char pair[] = "link add name c index 12 type veth peer name d index %d\nlink set dev c up\nlink set dev d up\n"
                               "addr add 10.1.0.1/24 dev c\naddr add 10.2.0.1/24 dev d\n";
    char lines[sizeof pair + 8];
    snprintf(lines, sizeof lines, pair, 13);
    set_up(lines);
    assert_int_equal(mount("gct", "/sys", "sysfs", 0, NULL), 0);
    assert_int_equal(speed_of("c"), 10000);             /* what veth says */
    assert_int_equal(speed_of("d"), 10000);
    assert_int_equal(unshare(CLONE_NEWNET), 0);
    snprintf(lines, sizeof lines, pair, 14);
    set_up(lines);
    assert_int_equal(speed_of("d"), 0);
    assert_int_equal(umount("/sys"), 0);
}

/* ---- routes ------------------------------------------------------------------------------------------------------------- */

/* bound, by: names of interfaces, NULL: none. */
static void expect_route_at(int line, const char *to, const char *bound, enum gci_route_kind kind, const char *by)
{
    static const char *const name[] = {"unknown", "none", "default", "specific"};
    gci_addr addr = parsed(to);
    gci_route_answer got = gci_netlink_route(&addr, bound ? if_nametoindex(bound) : 0);
    uint32_t index = by ? if_nametoindex(by) : 0;
    if (got.kind != kind || got.index != index)
        fail_msg("line %d: to %s by %s: %s by %u, not %s by %u", line, to, bound ? bound : "any", name[got.kind],
                 (unsigned)got.index, name[kind], (unsigned)index);
}

#define expect_route(...) expect_route_at(__LINE__, __VA_ARGS__)

static void test_route(void **state)
{
    (void)state;
    own_network();
    expect_route("10.1.0.9", NULL, GCI_ROUTE_NONE, NULL);           /* no network at all */
    expect_route("fd01::9", NULL, GCI_ROUTE_NONE, NULL);
    two_networks();
    expect_route("192.0.2.1", NULL, GCI_ROUTE_NONE, NULL);
    expect_route("2001:db8::1", NULL, GCI_ROUTE_NONE, NULL);
    set_up("route add default via 10.1.0.254\nroute add 10.9.0.0/16 via 10.2.0.254\nroute add 10.8.0.7/32 via 10.2.0.254\n"
           "route add default via fd01::fe\nroute add fd09::/32 via fd02::fe\nroute add fd08::7/128 via fd02::fe\n"
           "route add fd08::8/128 via fd02::fe src fd02::1\n");
    expect_route("10.1.0.9", NULL, GCI_ROUTE_SPECIFIC, "a");
    expect_route("10.2.0.9", NULL, GCI_ROUTE_SPECIFIC, "b");
    expect_route("10.9.7.7", NULL, GCI_ROUTE_SPECIFIC, "b");
    expect_route("10.8.0.7", NULL, GCI_ROUTE_SPECIFIC, "b");
    expect_route("10.8.0.8", NULL, GCI_ROUTE_DEFAULT, "a");
    expect_route("192.0.2.1", NULL, GCI_ROUTE_DEFAULT, "a");
    expect_route("10.2.0.1", NULL, GCI_ROUTE_SPECIFIC, "lo");
    expect_route("127.0.0.1", NULL, GCI_ROUTE_SPECIFIC, "lo");
    expect_route("fd01::9", NULL, GCI_ROUTE_SPECIFIC, "a");
    expect_route("fd02::9", NULL, GCI_ROUTE_SPECIFIC, "b");
    expect_route("fd09::9", NULL, GCI_ROUTE_SPECIFIC, "b");
    expect_route("fd08::7", NULL, GCI_ROUTE_SPECIFIC, "b");
    expect_route("fd08::8", NULL, GCI_ROUTE_SPECIFIC, "b");
    expect_route("2001:db8::1", NULL, GCI_ROUTE_DEFAULT, "a");
    expect_route("fd02::1", NULL, GCI_ROUTE_SPECIFIC, "lo");
    expect_route("::1", NULL, GCI_ROUTE_SPECIFIC, "lo");
    expect_route("10.2.0.255", NULL, GCI_ROUTE_NONE, NULL);         /* broadcast: no connection goes there */
    gci_addr nowhere = {.family = 0}, odd = {.family = 9};
    assert_int_equal(gci_netlink_route(&nowhere, 0).kind, GCI_ROUTE_UNKNOWN);
    assert_int_equal(gci_netlink_route(&odd, 0).kind, GCI_ROUTE_UNKNOWN);
}

static void test_route_that_says_no(void **state)
{
    (void)state;
    static const char *const how[] = {"unreachable", "blackhole", "prohibit", "throw"};
    two_networks();
    set_up("route add default via 10.1.0.254\nroute add default via fd01::fe\n");
    for (int i = 0; i < (int)GCI_COUNT(how); i++) {
        char lines[128], four[24], six[24];
        snprintf(lines, sizeof lines, "route add %s 10.1%d.0.0/16\nroute add %s fd1%d::/16\n", how[i], i, how[i], i);
        snprintf(four, sizeof four, "10.1%d.0.1", i);
        snprintf(six, sizeof six, "fd1%d::1", i);
        expect_route(four, NULL, GCI_ROUTE_DEFAULT, "a");
        expect_route(six, NULL, GCI_ROUTE_DEFAULT, "a");
        set_up(lines);
        expect_route(four, NULL, GCI_ROUTE_NONE, NULL);
        expect_route(six, NULL, GCI_ROUTE_NONE, NULL);
        expect_route(four, "a", GCI_ROUTE_NONE, NULL);
        expect_route(six, "a", GCI_ROUTE_DEFAULT, "a");             /* in IPv6 such an entry is one of loopback's */
    }
}

/* With an interface given IPv4 takes what it has no route for to be on the link: that is none. */
static void test_route_bound(void **state)
{
    (void)state;
    two_networks();
    set_up("route add default via 10.1.0.254\nroute add 10.9.0.0/16 via 10.2.0.254\n"
           "route add default via fd01::fe\nroute add fd09::/32 via fd02::fe\n"
           "link add name c index 12 type veth peer name c0\naddr add 10.3.0.1/24 dev c\n");
    expect_route("10.1.0.9", "a", GCI_ROUTE_SPECIFIC, "a");
    expect_route("10.1.0.9", "b", GCI_ROUTE_NONE, NULL);
    expect_route("10.2.0.9", "a", GCI_ROUTE_DEFAULT, "a");
    expect_route("10.9.0.9", "b", GCI_ROUTE_SPECIFIC, "b");
    expect_route("10.9.0.9", "a", GCI_ROUTE_DEFAULT, "a");
    expect_route("192.0.2.1", "a", GCI_ROUTE_DEFAULT, "a");
    expect_route("192.0.2.1", "b", GCI_ROUTE_NONE, NULL);
    expect_route("192.0.2.1", "c", GCI_ROUTE_NONE, NULL);           /* which is down */
    expect_route("fd01::9", "a", GCI_ROUTE_SPECIFIC, "a");
    expect_route("fd01::9", "b", GCI_ROUTE_NONE, NULL);
    expect_route("fd09::9", "b", GCI_ROUTE_SPECIFIC, "b");
    expect_route("2001:db8::1", "a", GCI_ROUTE_DEFAULT, "a");
    expect_route("2001:db8::1", "b", GCI_ROUTE_NONE, NULL);
    set_up("route add default via 10.2.0.254 metric 50\nroute add default via fd02::fe metric 2000\n");
    expect_route("192.0.2.1", NULL, GCI_ROUTE_DEFAULT, "a");
    expect_route("192.0.2.1", "b", GCI_ROUTE_DEFAULT, "b");
    expect_route("2001:db8::1", NULL, GCI_ROUTE_DEFAULT, "a");
    expect_route("2001:db8::1", "b", GCI_ROUTE_DEFAULT, "b");
    gci_addr to = parsed("10.1.0.9");
    assert_int_equal(gci_netlink_route(&to, 999).kind, GCI_ROUTE_UNKNOWN);      /* there is no such interface */
    kernel.no_bind_by_index = true;                                             /* before Linux 5.1 */
    expect_route("10.1.0.9", "a", GCI_ROUTE_SPECIFIC, "a");
    assert_int_equal(gci_netlink_route(&to, 999).kind, GCI_ROUTE_UNKNOWN);
    kernel.no_bind = true;
    expect_route("10.1.0.9", "a", GCI_ROUTE_UNKNOWN, NULL);
    kernel.no_bind_by_index = false;
    expect_route("10.1.0.9", "a", GCI_ROUTE_UNKNOWN, NULL);
    expect_route("10.1.0.9", NULL, GCI_ROUTE_SPECIFIC, "a");
}

static void test_route_two_on_one_network(void **state)
{
    (void)state;
    two_networks();
    set_up("addr add 10.1.0.2/24 dev b\naddr add fd01::2/64 dev b nodad\n");
    expect_route("10.1.0.9", NULL, GCI_ROUTE_SPECIFIC, "a");
    expect_route("10.1.0.9", "a", GCI_ROUTE_SPECIFIC, "a");
    expect_route("10.1.0.9", "b", GCI_ROUTE_SPECIFIC, "b");
    expect_route("fd01::9", "a", GCI_ROUTE_SPECIFIC, "a");
    expect_route("fd01::9", "b", GCI_ROUTE_SPECIFIC, "b");
}

/* What several hops share goes by one of them, nobody knows which; a bound socket takes those of its interface. */
static void test_route_multipath(void **state)
{
    (void)state;
    two_networks();
    set_up("link add name c index 12 type veth peer name c0\nlink set dev c0 up\nlink set dev c up\n"
           "route add 10.20.0.0/16 nexthop via 10.1.0.7 nexthop via 10.2.0.7\n"
           "route add 10.21.0.0/16 nexthop via 10.2.0.7 nexthop via 10.2.0.8\n"
           "route add fd20::/16 nexthop via fd01::7 nexthop via fd02::7\n"
           "route add fd21::/16 nexthop via fd02::7 nexthop via fd02::8\n"
           "route add default nexthop via 10.1.0.7 nexthop via 10.2.0.7\n");
    static const char *const mixed[] = {"10.20.0.1", "fd20::1"}, *const same[] = {"10.21.0.1", "fd21::1"};
    for (int i = 0; i < 2; i++) {
        expect_route(mixed[i], NULL, GCI_ROUTE_SPECIFIC, NULL);
        expect_route(mixed[i], "a", GCI_ROUTE_SPECIFIC, "a");
        expect_route(mixed[i], "b", GCI_ROUTE_SPECIFIC, "b");
        expect_route(mixed[i], "c", GCI_ROUTE_NONE, NULL);
        expect_route(same[i], NULL, GCI_ROUTE_SPECIFIC, "b");
        expect_route(same[i], "b", GCI_ROUTE_SPECIFIC, "b");
    }
    expect_route("192.0.2.1", NULL, GCI_ROUTE_DEFAULT, NULL);
    expect_route("192.0.2.1", "b", GCI_ROUTE_DEFAULT, "b");
}

static void test_route_without_carrier(void **state)
{
    (void)state;
    two_networks();
    set_up("link add name c index 12 type veth peer name d index 13\nlink set dev c up\n"
           "addr add 10.3.0.1/24 dev c\naddr add fd03::1/64 dev c nodad\n"
           "route add 10.30.0.0/16 nexthop via 10.3.0.7 nexthop via 10.3.0.8\n"
           "route add 10.31.0.0/16 nexthop via 10.3.0.7 nexthop via 10.2.0.8\n");
    expect_route("10.3.0.9", NULL, GCI_ROUTE_NONE, NULL);
    expect_route("10.3.0.9", "c", GCI_ROUTE_NONE, NULL);
    expect_route("fd03::9", NULL, GCI_ROUTE_NONE, NULL);
    expect_route("10.30.0.9", NULL, GCI_ROUTE_NONE, NULL);
    expect_route("10.31.0.9", NULL, GCI_ROUTE_SPECIFIC, NULL);
    expect_route("10.31.0.9", "b", GCI_ROUTE_SPECIFIC, "b");
    expect_route("10.31.0.9", "c", GCI_ROUTE_NONE, NULL);
    expect_route("10.3.0.1", NULL, GCI_ROUTE_SPECIFIC, "lo");
}

/* A route that only refers to a hop kept elsewhere. */
static void test_route_by_reference(void **state)
{
    (void)state;
    two_networks();
    set_up("nexthop add id 7 via 10.1.0.254 dev a\nroute add 10.9.0.0/16 nhid 7\n");
    expect_route("10.9.0.1", NULL, GCI_ROUTE_SPECIFIC, "a");
    write_file("/proc/sys/net/ipv4/nexthop_compat_mode", "0");
    expect_route("10.9.0.1", NULL, GCI_ROUTE_SPECIFIC, NULL);
    expect_route("10.9.0.1", "a", GCI_ROUTE_SPECIFIC, "a");
    expect_route("10.9.0.1", "b", GCI_ROUTE_NONE, NULL);
}

static void test_route_halves(void **state)
{
    (void)state;
    two_networks();
    set_up("route add default via 10.1.0.254\nroute add 0.0.0.0/1 via 10.2.0.254\nroute add 128.0.0.0/1 via 10.2.0.254\n"
           "route add 64.0.0.0/2 via 10.1.0.254\n");
    expect_route("10.9.0.1", NULL, GCI_ROUTE_DEFAULT, "b");
    expect_route("192.0.2.1", NULL, GCI_ROUTE_DEFAULT, "b");
    expect_route("65.0.0.1", NULL, GCI_ROUTE_SPECIFIC, "a");
}

static void test_route_link_local(void **state)
{
    (void)state;
    two_networks();
    set_up("addr add fe80::1/64 dev a nodad\naddr add fe80::2/64 dev b nodad\n");
    expect_route("fe80::9%10", NULL, GCI_ROUTE_SPECIFIC, "a");
    expect_route("fe80::9%11", NULL, GCI_ROUTE_SPECIFIC, "b");
    expect_route("fe80::9%11", "b", GCI_ROUTE_SPECIFIC, "b");
    expect_route("fe80::9%11", "a", GCI_ROUTE_NONE, NULL);
    expect_route("fe80::9", "b", GCI_ROUTE_SPECIFIC, "b");
    expect_route("fe80::9", NULL, GCI_ROUTE_UNKNOWN, NULL);         /* of which link? */
}

/* It tells what it would do, but not whether that is an entry of its tables. */
static void test_route_old_kernel(void **state)
{
    (void)state;
    two_networks();
    set_up("route add default via 10.1.0.254\nroute add default via fd01::fe\nroute add unreachable 10.9.0.0/16\n");
    kernel.old_kernel = true;
    expect_route("10.1.0.9", NULL, GCI_ROUTE_UNKNOWN, NULL);
    expect_route("192.0.2.1", NULL, GCI_ROUTE_UNKNOWN, NULL);
    expect_route("192.0.2.1", "b", GCI_ROUTE_UNKNOWN, NULL);
    expect_route("fd01::9", NULL, GCI_ROUTE_UNKNOWN, NULL);
    expect_route("2001:db8::1", NULL, GCI_ROUTE_UNKNOWN, NULL);
    expect_route("10.9.0.1", NULL, GCI_ROUTE_NONE, NULL);
    expect_route("10.2.0.1", NULL, GCI_ROUTE_SPECIFIC, "lo");
    expect_route("fd02::1", NULL, GCI_ROUTE_SPECIFIC, "lo");
}

/* A call that leaves by one end of a cable and comes in at the other, and calls that are not begun. */
static void test_connect_by_interface(void **state)
{
    (void)state;
    gci_sys *sys = gci_sys_real();
    gci_addr any = {0}, seen = {0}, source = parsed("fe80::1"), to = parsed("fe80::2");
    two_networks();
    set_up("addr add fe80::1/64 dev a nodad\naddr add fe80::2/64 dev a0 nodad\n");
    int listener = sys->listen(sys, &any), begun;
    assert_true(listener >= 0);
    to.port = any.port;
    for (int bound = 1; bound >= 0; bound--) {                      /* either says which link is meant */
        source.scope = bound ? 0 : 10;
        to.scope = source.scope;
        begun = sys->connect(sys, &to, &source, bound ? 10 : 0);
        assert_true(begun >= 0);
        struct pollfd ask = {.fd = listener, .events = POLLIN};
        assert_int_equal(poll(&ask, 1, 1000 * GCT_PATIENCE_S), 1);
        int got = sys->accept(sys, listener, &seen);
        assert_true(got >= 0);
        assert_true(gci_addr_equal(&seen, &source));
        assert_int_equal(seen.scope, 20);
        close(got);
        close(begun);
    }
    source.scope = to.scope = 0;
    assert_int_equal(sys->connect(sys, &to, &source, 0), -EINVAL);
    to = parsed("127.0.0.1");
    to.port = any.port;
    kernel.no_bind = true;
    assert_int_equal(sys->connect(sys, &to, NULL, 10), -EPERM);
    close(listener);
}

/* ---- the router that leads out ------------------------------------------------------------------------------------------ */

static const char gate_a[] = "route replace default via 10.1.0.254 metric 100\n"
                             "neigh replace 10.1.0.254 lladdr 02:00:00:00:00:0a dev a nud permanent\n";

static void test_gate(void **state)
{
    (void)state;
    own_network();
    assert_int_equal(gci_netlink_gate(), 0);
    two_networks();
    assert_int_equal(gci_netlink_gate(), 0);
    set_up("neigh add 10.1.0.254 lladdr 02:00:00:00:00:0a dev a nud permanent\n");
    set_up("route add 10.9.0.0/16 via 10.1.0.254\n");
    assert_int_equal(gci_netlink_gate(), 0);                        /* a neighbour, but no way out */
    set_up(gate_a);
    uint64_t first = gci_netlink_gate(), other;
    assert_true(first != 0);
    assert_true(gci_netlink_gate() == first);
    set_up("neigh replace 10.1.0.254 lladdr 02:00:00:00:00:0b dev a nud permanent\n");
    other = gci_netlink_gate();
    assert_true(other != 0 && other != first);
    set_up("neigh replace 10.1.0.254 lladdr 02:00:00:00:00:0a dev a nud permanent\n");
    assert_true(gci_netlink_gate() == first);
    set_up("neigh add 10.1.0.253 lladdr 02:00:00:00:00:0a dev a nud permanent\n"
           "route replace default via 10.1.0.253 metric 100\n");
    other = gci_netlink_gate();
    assert_true(other != 0 && other != first);                      /* another router, though of the same MAC */
    set_up("addr add 10.1.0.1/16 dev a\naddr del 10.1.0.1/24 dev a\nroute replace default via 10.1.0.254 metric 100\n");
    other = gci_netlink_gate();
    assert_true(other != 0 && other != first);                      /* another network */
    own_network();                                                  /* another host behind the same router */
    set_up("link add name x type veth peer name x0\nlink set dev x0 up\nlink set dev x up\n"
           "addr add 10.1.0.77/24 dev x\naddr add 10.5.0.1/28 dev x\n"
           "route add default via 10.1.0.254\nneigh add 10.1.0.254 lladdr 02:00:00:00:00:0a dev x nud permanent\n"
           "neigh add 10.1.0.253 lladdr 02:00:00:00:00:0b dev x nud permanent\n");
    assert_true(gci_netlink_gate() == first);
}

/* What the neighbour table says counts as long as it may still be true. */
static void test_gate_states(void **state)
{
    (void)state;
    static const char *const good[] = {"reachable", "stale", "delay", "probe", "permanent"},
                      *const bad[] = {"noarp", "incomplete", "failed"};
    char lines[128];
    two_networks();
    set_up(gate_a);
    uint64_t first = gci_netlink_gate();
    assert_true(first != 0);
    for (size_t i = 0; i < GCI_COUNT(good); i++) {
        snprintf(lines, sizeof lines, "neigh replace 10.1.0.254 lladdr 02:00:00:00:00:0a dev a nud %s\n", good[i]);
        set_up(lines);
        assert_true(gci_netlink_gate() == first);
    }
    for (size_t i = 0; i < GCI_COUNT(bad); i++) {
        snprintf(lines, sizeof lines, "neigh del 10.1.0.254 dev a\nneigh replace 10.1.0.254 %s dev a nud %s\n",
                 i ? "" : "lladdr 02:00:00:00:00:0a", bad[i]);
        set_up(gate_a);
        set_up(lines);
        assert_int_equal(gci_netlink_gate(), 0);
    }
    set_up("neigh flush all nud all\nneigh add 10.1.0.254 lladdr 02:00:00:00:00:0a dev b nud permanent\n");
    assert_int_equal(gci_netlink_gate(), 0);                        /* another interface's */
    set_up("neigh add 10.1.0.253 lladdr 02:00:00:00:00:0a dev a nud permanent\n");
    assert_int_equal(gci_netlink_gate(), 0);                        /* another neighbour's */
}

static void test_gate_choice(void **state)
{
    (void)state;
    two_networks();
    set_up(gate_a);
    uint64_t a = gci_netlink_gate(), b;
    set_up("route add default via 10.2.0.254 metric 50\nneigh add 10.2.0.254 lladdr 02:00:00:00:00:0c dev b nud permanent\n");
    b = gci_netlink_gate();
    assert_true(b != 0 && b != a);
    set_up("route del default via 10.2.0.254\nroute add default via 10.2.0.254 metric 150\n");
    assert_true(gci_netlink_gate() == a);
    set_up("route flush default\nroute add default via 10.2.0.254 table 77\n");
    assert_int_equal(gci_netlink_gate(), 0);
    set_up("route add default dev b metric 1\nroute add default via 10.1.0.254 metric 9\n");
    assert_true(gci_netlink_gate() == a);                           /* the other one names no router */
    set_up("route flush default\nroute add default nexthop via 10.2.0.254 nexthop via 10.1.0.254\n");
    assert_true(gci_netlink_gate() == a);                           /* the lower address, in any order */
    set_up("route flush default\nroute add default nexthop via 10.1.0.254 nexthop via 10.2.0.254\n");
    assert_true(gci_netlink_gate() == a);
    set_up("route flush default\nroute add unreachable default metric 1\nroute add default via 10.2.0.254 metric 9\n");
    assert_true(gci_netlink_gate() == b);
    set_up("link add name c index 12 type veth peer name d index 13\nlink set dev c up\naddr add 10.0.0.1/24 dev c\n"
           "route add default via 10.0.0.254 metric 2\nneigh add 10.0.0.254 lladdr 02:00:00:00:00:0d dev c nud permanent\n");
    assert_true(gci_netlink_gate() == b);                           /* no carrier there */
}

static void test_gate_ipv6(void **state)
{
    (void)state;
    two_networks();
    set_up("addr add fe80::1/64 dev a nodad\nroute add default via fe80::fe dev a\n"
           "neigh add fe80::fe lladdr 02:00:00:00:00:0a dev a nud permanent\n");
    uint64_t six = gci_netlink_gate(), four;
    assert_true(six != 0);
    set_up("neigh replace fe80::fe lladdr 02:00:00:00:00:0b dev a nud permanent\n");
    assert_true(gci_netlink_gate() != 0 && gci_netlink_gate() != six);
    set_up("neigh replace fe80::fe lladdr 02:00:00:00:00:0a dev a nud permanent\n");
    set_up(gate_a);
    four = gci_netlink_gate();
    assert_true(four != 0 && four != six);
    set_up("neigh del 10.1.0.254 dev a\n");
    assert_true(gci_netlink_gate() == six);
}

/* MACs that do not tell one router from another. */
static void test_gate_anybodys(void **state)
{
    (void)state;
    static const char *const shared[] = {"00:00:5e:00:01:07", "00:00:0c:07:ac:01", "12:34:56:78:9a:bc", "ee:ee:ee:ee:ee:ee",
                                         "42:01:0a:01:00:fe", "00:00:00:00:00:00"},
                      *const own[] = {"00:00:5e:01:01:07", "12:34:56:78:9a:bd", "42:01:0a:01:00:fd"};
    char lines[128];
    two_networks();
    set_up(gate_a);
    for (size_t i = 0; i < GCI_COUNT(shared) + GCI_COUNT(own); i++) {
        bool is_own = i >= GCI_COUNT(shared);
        snprintf(lines, sizeof lines, "neigh replace 10.1.0.254 lladdr %s dev a nud permanent\n",
                 is_own ? own[i - GCI_COUNT(shared)] : shared[i]);
        set_up(lines);
        assert_int_equal(gci_netlink_gate() != 0, is_own);
    }
}

/* ---- answers that the kernel would not give ------------------------------------------------------------------------------ */

static int torn;                /* that many more pieces say that the network has changed */

static void tear(uint8_t *piece, ssize_t *bytes, struct msghdr *message)
{
    struct nlmsghdr head;
    (void)message;
    if (*bytes < (ssize_t)sizeof head || torn == 0)
        return;
    memcpy(&head, piece, sizeof head);
    head.nlmsg_flags |= NLM_F_DUMP_INTR;
    memcpy(piece, &head, sizeof head);
    torn--;
}

static void test_torn(void **state)
{
    (void)state;
    static const char want[] = "lo 127.0.0.1/8 l\nlo ::1/128 l\na 10.1.0.1/24\na fd01::1/64\nb 10.2.0.1/24\nb fd02::1/64\n";
    two_networks();
    kernel.questions = 0;
    expect_interfaces(want);
    assert_int_equal(kernel.questions, 2);
    kernel.change = tear;
    for (torn = 1; torn <= 3; torn++) {
        int tears = torn;
        kernel.questions = 0;
        expect_interfaces(want);
        assert_in_range(kernel.questions, 3, 5);                    /* a piece is a link's dump or its end */
        assert_int_equal(torn, 0);
        torn = tears;
    }
    torn = 1000000;                                                 /* it never comes to rest */
    kernel.questions = 0;
    expect_interfaces(want);
    assert_in_range(kernel.questions, 4, 20);
    kernel.change = NULL;
}

static enum { OF_STRANGER, CUT_OFF, EMPTY, OTHER_QUESTION, LENGTH_0, LENGTH_HUGE, OVERRUN, REFUSED, ODD_ERROR, MUTE,
              FAULTS } fault;

static void spoil(uint8_t *piece, ssize_t *bytes, struct msghdr *message)
{
    struct nlmsghdr head;
    struct sockaddr_nl from;
    int32_t error = fault == REFUSED ? -EPERM : fault == ODD_ERROR ? INT32_MIN : -ENODATA;
    if (*bytes < (ssize_t)sizeof head)
        return;
    memcpy(&head, piece, sizeof head);
    switch (fault) {
    case OF_STRANGER:
        memcpy(&from, message->msg_name, sizeof from);
        from.nl_pid = 4711;
        memcpy(message->msg_name, &from, sizeof from);
        break;
    case CUT_OFF:        message->msg_flags |= MSG_TRUNC; break;
    case EMPTY:          *bytes = 0; break;
    case OTHER_QUESTION: head.nlmsg_seq += 7; break;
    case LENGTH_0:       head.nlmsg_len = 0; break;
    case LENGTH_HUGE:    head.nlmsg_len = UINT32_MAX; break;
    case OVERRUN:        head.nlmsg_type = NLMSG_OVERRUN; break;
    case MUTE:           *bytes = -1; errno = EAGAIN; break;
    default:             head.nlmsg_type = NLMSG_ERROR; memcpy(piece + sizeof head, &error, sizeof error); break;
    }
    memcpy(piece, &head, sizeof head);
}

static void test_spoiled(void **state)
{
    (void)state;
    static const int want[FAULTS] = {[OF_STRANGER] = -EIO, [CUT_OFF] = -EMSGSIZE, [EMPTY] = -EIO, [OTHER_QUESTION] = -EIO,
        [LENGTH_0] = -EPROTO, [LENGTH_HUGE] = -EPROTO, [OVERRUN] = -ENOBUFS, [REFUSED] = -EPERM, [ODD_ERROR] = -EPROTO,
        [MUTE] = -EIO};
    two_networks();
    set_up(gate_a);
    kernel.change = spoil;
    for (fault = OF_STRANGER; fault < FAULTS; fault++) {
        gci_ifaddr list[8];
        assert_int_equal(gci_netlink_interfaces(list, 8), want[fault]);
        expect_route("10.1.0.9", NULL, GCI_ROUTE_UNKNOWN, NULL);
        assert_int_equal(gci_netlink_gate(), 0);
    }
    kernel.change = NULL;
}

/* The length of the attribute of that type grows, to the end of its message and by beyond. */
static void stretch(uint8_t *at, size_t bytes, uint16_t type, int beyond)
{
    struct rtattr head;
    for (; bytes >= sizeof head; at += RTA_ALIGN(head.rta_len), bytes -= gci_min(RTA_ALIGN(head.rta_len), bytes)) {
        memcpy(&head, at, sizeof head);
        if (head.rta_type != type)
            continue;
        head.rta_len = (uint16_t)(bytes + (size_t)beyond);
        memcpy(at, &head, sizeof head);
        return;
    }
}

static void overstate(uint8_t *piece, ssize_t *bytes, struct msghdr *message)
{
    struct nlmsghdr head;
    (void)message;
    for (size_t left = *bytes > 0 ? (size_t)*bytes : 0; left >= sizeof head; left -= gci_min(NLMSG_ALIGN(head.nlmsg_len), left)) {
        uint8_t *at = piece + (size_t)*bytes - left, *body = at + sizeof head;
        memcpy(&head, at, sizeof head);
        size_t rest = head.nlmsg_len - sizeof head;
        if (head.nlmsg_type == RTM_NEWADDR)
            body[offsetof(struct ifaddrmsg, ifa_prefixlen)] = 255;
        if (head.nlmsg_type == RTM_NEWROUTE && !(head.nlmsg_flags & NLM_F_MULTI))
            stretch(body + sizeof(struct rtmsg), rest - sizeof(struct rtmsg), RTA_OIF, 4);
        if (head.nlmsg_type == RTM_NEWNEIGH) {
            stretch(body + sizeof(struct ndmsg), rest - sizeof(struct ndmsg), NDA_LLADDR, 0);
            memset(body + rest - 4, 0x55, 4);       /* what it would write over would not be 0 by chance */
        }
    }
}

/* A prefix longer than an address, an attribute that ends behind its message, a MAC longer than there are any. */
static void test_too_long(void **state)
{
    (void)state;
    two_networks();
    set_up(gate_a);
    expect_route("10.1.0.9", NULL, GCI_ROUTE_SPECIFIC, "a");
    assert_true(gci_netlink_gate() != 0);
    kernel.change = overstate;
    expect_interfaces("lo 127.0.0.1/32 l\nlo ::1/128 l\na 10.1.0.1/32\na fd01::1/128\nb 10.2.0.1/32\nb fd02::1/128\n");
    expect_route("10.1.0.9", NULL, GCI_ROUTE_SPECIFIC, NULL);
    assert_int_equal(gci_netlink_gate(), 0);
    kernel.change = NULL;
}

static uint64_t chance;

static uint64_t next(uint64_t below)
{
    chance += UINT64_C(0x9e3779b97f4a7c15);
    return gci_mix(chance) % below;
}

/* Some bytes become others, the end is missing; what is behind it is not there for anybody. */
static void break_it(uint8_t *piece, ssize_t *bytes, struct msghdr *message)
{
    static const uint8_t odd[] = {0, 1, 3, 4, 5, 0x7f, 0x80, 0xff};
    (void)message;
    for (uint64_t n = next(6); n > 0 && *bytes > 0; n--) {
        uint64_t at = next(2) ? next((uint64_t)*bytes) : next(gci_min((size_t)*bytes, 64));
        piece[at] = next(2) ? odd[next(GCI_COUNT(odd))] : (uint8_t)next(256);
    }
    if (next(4) == 0 && *bytes > 0)
        *bytes = (ssize_t)next((uint64_t)*bytes);
    memset(piece + *bytes, 0xff, 64);               /* lengths and numbers as large as they get */
}

static void test_broken(void **state)
{
    (void)state;
    gci_ifaddr list[9];
    gci_addr to[] = {parsed("10.20.0.1"), parsed("fd20::1"), parsed("10.1.0.9"), parsed("2001:db8::1")};
    int whole = 0;
    two_networks();
    set_up(gate_a);
    set_up("route add 10.20.0.0/16 nexthop via 10.1.0.7 nexthop via 10.2.0.7\n"
           "route add fd20::/16 nexthop via fd01::7 nexthop via fd02::7\nroute add default via fd01::fe\n"
           "route add default nexthop via 10.1.0.254 nexthop via 10.2.0.254\n");
    kernel.change = break_it;
    memset(list, GCT_CANARY, sizeof list);
    const gci_ifaddr untouched = list[8];
    for (int i = 0; i < GCT_BROKEN; i++) {
        chance = seed + (uint64_t)i;
        int n = gci_netlink_interfaces(list, 8);
        whole += n == 6;
        assert_true(n > -4096);
        for (int k = 0; k < n && k < 8; k++) {
            assert_true(list[k].addr.family == 4 ? list[k].prefix <= 32 : list[k].addr.family == 6 && list[k].prefix <= 128);
            assert_non_null(memchr(list[k].name, 0, sizeof list[k].name));
        }
        assert_memory_equal(&list[8], &untouched, sizeof untouched);
        for (size_t k = 0; k < GCI_COUNT(to); k++)
            assert_true(gci_netlink_route(&to[k], k % 2 ? 10 : 0).kind <= GCI_ROUTE_SPECIFIC);
        (void)gci_netlink_gate();
    }
    kernel.change = NULL;
    assert_in_range(whole, 1, GCT_BROKEN - 1);      /* broken enough, and not too much */
}

static void test_no_netlink(void **state)
{
    (void)state;
    gci_ifaddr list[8];
    gci_addr to = parsed("127.0.0.1");
    memset(&kernel, 0, sizeof kernel);
    kernel.no_netlink = true;
    assert_int_equal(gci_netlink_interfaces(list, 8), -EACCES);
    assert_int_equal(gci_netlink_route(&to, 0).kind, GCI_ROUTE_UNKNOWN);
    assert_int_equal(gci_netlink_gate(), 0);
    kernel.no_netlink = false;
    assert_true(gci_netlink_interfaces(list, 8) >= 0);
}

static int open_at_start;

static int open_descriptors(void)
{
    int count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static void test_nothing_left_open(void **state)
{
    (void)state;
    assert_int_equal(open_descriptors(), open_at_start);
}

int main(void)
{
    const char *given = getenv("GCT_SEED");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_interfaces),
        cmocka_unit_test(test_interfaces_idle),
        cmocka_unit_test(test_interfaces_point_to_point),
        cmocka_unit_test(test_interfaces_ipv6_flags),
        cmocka_unit_test(test_interfaces_many), cmocka_unit_test(test_interfaces_containers),
        cmocka_unit_test(test_interfaces_speed),
        cmocka_unit_test(test_route),
        cmocka_unit_test(test_route_that_says_no),
        cmocka_unit_test(test_route_bound),
        cmocka_unit_test(test_route_two_on_one_network),
        cmocka_unit_test(test_route_multipath),
        cmocka_unit_test(test_route_without_carrier),
        cmocka_unit_test(test_route_by_reference),
        cmocka_unit_test(test_route_halves),
        cmocka_unit_test(test_route_link_local),
        cmocka_unit_test(test_route_old_kernel),
        cmocka_unit_test(test_connect_by_interface),
        cmocka_unit_test(test_gate),
        cmocka_unit_test(test_gate_states),
        cmocka_unit_test(test_gate_choice),
        cmocka_unit_test(test_gate_ipv6),
        cmocka_unit_test(test_gate_anybodys),
        cmocka_unit_test(test_torn),
        cmocka_unit_test(test_spoiled),
        cmocka_unit_test(test_too_long),
        cmocka_unit_test(test_broken),
        cmocka_unit_test(test_no_netlink),
        cmocka_unit_test(test_nothing_left_open),       /* after all others, so that it sees what they left */
    };
    if (given)
        seed = strtoull(given, NULL, 0);
    print_message("GCT_SEED=%llu\n", (unsigned long long)seed);
    alarm(GCT_WATCHDOG_S);
    open_at_start = open_descriptors();
    return cmocka_run_group_tests_name("netlink", tests, NULL, NULL);
}
