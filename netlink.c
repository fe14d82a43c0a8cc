/* netlink.c: what the kernel knows of networks: interfaces and their addresses, routes, the router that leads out.
 * SPDX-License-Identifier: MIT
 *
 * Asked over rtnetlink (rtnetlink(7)). Nothing is sent to anybody but the kernel, no packet leaves the host. For sys.c alone;
 * the rooms above ask its table.
 *
 * Invariants
 * - A call opens what it needs and closes it: there is no state, and any thread may call.
 * - Nothing waits. The kernel has answered when the question is sent, and goes on with a long answer as it is read; a read
 *   that finds nothing is an error. How much is read is limited.
 * - What comes is checked as if a stranger had sent it: who sent it, each length, each number that leads to another. What is
 *   too short for its kind or of an unknown kind is passed over.
 * - While a long answer is read the network may change; then the kernel says so, and it is asked again. The last of a few
 *   answers counts as it is: where containers come and go all the time, a list that lacks the latest is better than none.
 *
 * Where such sockets are forbidden (by a sandbox), the error goes up. getifaddrs would be no way around: in glibc and musl it
 * asks the same kernel over the same kind of socket.
 */
#include "gridcomm_int.h"

#include <linux/neighbour.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef RTM_F_FIB_MATCH         /* headers older than the kernels that know it: Linux 4.13 */
#define RTM_F_FIB_MATCH 0x2000
#endif
#ifndef RTNH_F_LINKDOWN
#define RTNH_F_LINKDOWN 16
#endif

enum {
    NL_PIECE = 32 * 1024,       /* bytes: no kernel hands out more at once */
    NL_PIECES = 4096,           /* of one answer: a hundred thousand interfaces, a million routes */
    NL_TRIES = 5,               /* to get an answer that nothing changed meanwhile */
    NL_ATTRS = 32,              /* attributes of higher numbers are of no use here */
    NL_LOOPBACK = 1,            /* its index, in every network namespace */
    NL_LOWER_UP = 1 << 16,      /* IFF_LOWER_UP: <linux/if.h> and <net/if.h> do not go together */
    NL_MAC_MAX = 32             /* MAX_ADDR_LEN of the kernel */
};

/* ---- questions and answers ----------------------------------------------------------------------------------------- */

typedef struct nl_talk {
    int      fd;
    uint32_t seq;
    int      refusal;           /* what the kernel said instead of an answer: a negative errno */
    uint16_t answer;            /* the type of the messages that are asked for */
    bool     torn;              /* the network changed while they came */
    uint8_t  piece[NL_PIECE];
} nl_talk;

/* Takes a message of the answer; or body NULL: forget what came, it begins anew. 0 or a negative errno, which ends it. */
typedef int nl_take(void *user, const uint8_t *body, size_t bytes);

static int nl_open(nl_talk **out)
{
    nl_talk *t = malloc(sizeof *t);
    if (!t)
        return -ENOMEM;
    t->seq = 0;
    t->fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (t->fd < 0) {
        int err = -errno;
        free(t);
        return err;
    }
    *out = t;
    return 0;
}

static void nl_close(nl_talk *t)
{
    close(t->fd);
    free(t);
}

static int nl_send(nl_talk *t, int type, int flags, void *body, size_t bytes)
{
    struct nlmsghdr head = {.nlmsg_len = (uint32_t)(sizeof head + bytes), .nlmsg_type = (uint16_t)type,
                            .nlmsg_flags = (uint16_t)(NLM_F_REQUEST | flags), .nlmsg_seq = ++t->seq};
    struct iovec part[2] = {{&head, sizeof head}, {body, bytes}};
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    struct msghdr message = {.msg_name = &kernel, .msg_namelen = sizeof kernel, .msg_iov = part, .msg_iovlen = 2};
    ssize_t n;
    do
        n = sendmsg(t->fd, &message, 0);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : 0;
}

/* How many bytes; 0 also for those of another sender than the kernel. */
static ssize_t nl_receive(nl_talk *t)
{
    struct sockaddr_nl from = {0};
    struct iovec part = {t->piece, sizeof t->piece};
    struct msghdr message = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &part, .msg_iovlen = 1};
    ssize_t n;
    do
        n = recvmsg(t->fd, &message, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return errno == EAGAIN ? -EIO : -errno;
    if (message.msg_flags & MSG_TRUNC)
        return -EMSGSIZE;
    return from.nl_pid == 0 ? n : 0;
}

static int nl_error(const uint8_t *body, size_t bytes)
{
    int32_t error;
    if (bytes < sizeof error)
        return -EPROTO;
    memcpy(&error, body, sizeof error);
    return error <= 0 && error > -4096 ? error : -EPROTO;
}

/* > 0: there is more to come, 0: that was all, < 0: errno. */
static int nl_take_message(nl_talk *t, const struct nlmsghdr *head, const uint8_t *body, nl_take *take, void *user)
{
    size_t bytes = head->nlmsg_len - sizeof *head;
    int err = 0;
    if (head->nlmsg_seq != t->seq)
        return 1;
    if (head->nlmsg_flags & NLM_F_DUMP_INTR)
        t->torn = true;
    switch (head->nlmsg_type) {
    case NLMSG_NOOP:    return 1;
    case NLMSG_DONE:    return bytes ? nl_error(body, bytes) : 0;
    case NLMSG_ERROR:   return t->refusal = nl_error(body, bytes);
    case NLMSG_OVERRUN: return -ENOBUFS;
    default:            break;
    }
    if (head->nlmsg_type == t->answer)
        err = take(user, body, bytes);
    return err < 0 ? err : head->nlmsg_flags & NLM_F_MULTI ? 1 : 0;
}

static size_t nl_align(size_t bytes)
{
    return (bytes + 3) & ~(size_t)3;
}

static int nl_take_piece(nl_talk *t, size_t bytes, nl_take *take, void *user)
{
    const uint8_t *at = t->piece;
    struct nlmsghdr head;
    while (bytes >= sizeof head) {
        memcpy(&head, at, sizeof head);
        if (head.nlmsg_len < sizeof head || head.nlmsg_len > bytes)
            return -EPROTO;
        int more = nl_take_message(t, &head, at + sizeof head, take, user);
        if (more <= 0)
            return more;
        size_t step = gci_min(nl_align(head.nlmsg_len), bytes);
        at += step;
        bytes -= step;
    }
    return 1;
}

/* Of what kind a question asks, it is answered by messages of RTM_NEW..., two below RTM_GET... */
static int nl_ask(nl_talk *t, int type, int flags, void *body, size_t bytes, nl_take *take, void *user)
{
    t->answer = (uint16_t)(type - RTM_GETLINK + RTM_NEWLINK);
    t->refusal = 0;
    t->torn = false;
    int err = nl_send(t, type, flags, body, bytes), more = err ? err : 1;
    for (int pieces = 0; more > 0; pieces++) {
        ssize_t n = pieces < NL_PIECES ? nl_receive(t) : -E2BIG;
        more = n < 0 ? (int)n : nl_take_piece(t, (size_t)n, take, user);
    }
    return more;
}

/* All that the kernel has of a kind. bytes: of the question's body, which begins with the family and is zero else. */
static int nl_dump(nl_talk *t, int type, size_t bytes, int family, nl_take *take, void *user)
{
    int err = 0;
    for (int tries = 0; tries < NL_TRIES; tries++) {
        uint8_t body[sizeof(struct ifinfomsg)] = {(uint8_t)family};
        take(user, NULL, 0);
        err = nl_ask(t, type, NLM_F_DUMP, body, bytes, take, user);
        if (err || !t->torn)
            break;
    }
    return err;
}

/* ---- attributes ---------------------------------------------------------------------------------------------------- */

typedef struct nl_attr { const uint8_t *at; size_t bytes; } nl_attr;

static void nl_attrs(const uint8_t *at, size_t bytes, nl_attr attr[NL_ATTRS])
{
    struct rtattr head;
    memset(attr, 0, NL_ATTRS * sizeof *attr);
    while (bytes >= sizeof head) {
        memcpy(&head, at, sizeof head);
        if (head.rta_len < sizeof head || head.rta_len > bytes)
            return;
        unsigned type = head.rta_type & (unsigned)NLA_TYPE_MASK;
        if (type < NL_ATTRS)
            attr[type] = (nl_attr){at + sizeof head, head.rta_len - sizeof head};
        size_t step = gci_min(nl_align(head.rta_len), bytes);
        at += step;
        bytes -= step;
    }
}

/* A body is a head of its kind and attributes. false: it is too short. */
static bool nl_parse(const uint8_t *body, size_t bytes, void *head, size_t head_bytes, nl_attr attr[NL_ATTRS])
{
    if (bytes < head_bytes)
        return false;
    memcpy(head, body, head_bytes);
    nl_attrs(body + head_bytes, bytes - head_bytes, attr);
    return true;
}

static uint32_t nl_number(const nl_attr *attr, uint32_t otherwise)
{
    uint32_t number = otherwise;
    if (attr->bytes >= sizeof number)
        memcpy(&number, attr->at, sizeof number);
    return number;
}

static bool nl_addr(int family, const nl_attr *attr, gci_addr *out)
{
    size_t bytes = family == AF_INET ? 4 : family == AF_INET6 ? 16 : 0;
    memset(out, 0, sizeof *out);
    if (bytes == 0 || attr->bytes < bytes)
        return false;
    out->family = family == AF_INET ? 4 : 6;
    memcpy(out->ip, attr->at, bytes);
    return true;
}

static bool nl_is_link_local(const gci_addr *a)
{
    return a->family == 6 && a->ip[0] == 0xfe && (a->ip[1] & 0xc0) == 0x80;
}

static uint8_t nl_whole(const gci_addr *a)
{
    return a->family == 4 ? 32 : 128;
}

/* Of one family, at most all of its bits. */
static bool nl_is_in(const gci_addr *a, const gci_addr *network, unsigned bits)
{
    for (unsigned i = 0; i < bits; i++)
        if ((a->ip[i / 8] ^ network->ip[i / 8]) & 0x80 >> i % 8)
            return false;
    return true;
}

/* ---- interfaces and their addresses ---------------------------------------------------------------------------------- */

/* Interfaces have name, index and flags, addresses what belongs to them; speed is a number in the order of coming. */
typedef struct nl_list { gci_ifaddr *at; size_t n, room; } nl_list;

static int nl_list_add(nl_list *list, const gci_ifaddr *one)
{
    if (list->n == list->room) {
        size_t room = list->room ? 2 * list->room : 16;
        gci_ifaddr *at = realloc(list->at, room * sizeof *at);
        if (!at)
            return -ENOMEM;
        list->at = at;
        list->room = room;
    }
    list->at[list->n] = *one;
    list->at[list->n].speed = (uint32_t)list->n;
    list->n++;
    return 0;
}

static int nl_order(const void *left, const void *right)
{
    const gci_ifaddr *a = left, *b = right;
    if (a->index != b->index)
        return a->index < b->index ? -1 : 1;
    return a->speed < b->speed ? -1 : a->speed > b->speed;
}

static void nl_list_sort(nl_list *list)
{
    if (list->n)
        qsort(list->at, list->n, sizeof *list->at, nl_order);
}

/* One without carrier is idle. (Whether a carrier may be used yet, as with 802.1X, IFF_RUNNING would say, but late.) */
static int nl_take_link(void *user, const uint8_t *body, size_t bytes)
{
    nl_list *links = user;
    struct ifinfomsg link;
    nl_attr attr[NL_ATTRS];
    if (!body)
        return links->n = 0, 0;
    if (!nl_parse(body, bytes, &link, sizeof link, attr) || link.ifi_index <= 0 || !(link.ifi_flags & IFF_UP))
        return 0;
    gci_ifaddr one = {.index = (uint32_t)link.ifi_index};
    if (link.ifi_flags & IFF_LOOPBACK)
        one.flags |= GCI_IF_LOOPBACK;
    if (link.ifi_flags & IFF_POINTOPOINT)
        one.flags |= GCI_IF_POINT_TO_POINT;
    if (!(link.ifi_flags & NL_LOWER_UP))
        one.flags |= GCI_IF_IDLE;
    if (attr[IFLA_IFNAME].at)
        memcpy(one.name, attr[IFLA_IFNAME].at, gci_min(attr[IFLA_IFNAME].bytes, GCI_IFNAME_BYTES - 1));
    return nl_list_add(links, &one);
}

/* Both ends of a point-to-point link have an address, and the prefix is that of the other end's. It says nothing about an
 * address of ours that lies elsewhere: that one stands alone. */
static uint8_t nl_prefix(const gci_addr *own, const struct ifaddrmsg *head, const nl_attr *network)
{
    uint8_t whole = nl_whole(own), bits = (uint8_t)gci_min(head->ifa_prefixlen, whole);
    gci_addr theirs;
    return nl_addr(head->ifa_family, network, &theirs) && nl_is_in(own, &theirs, bits) ? bits : whole;
}

/* An address that is not yet known to be no other host's, or known to be one's, cannot be used. */
static int nl_take_addr(void *user, const uint8_t *body, size_t bytes)
{
    nl_list *addrs = user;
    struct ifaddrmsg head;
    nl_attr attr[NL_ATTRS];
    if (!body)
        return addrs->n = 0, 0;
    if (!nl_parse(body, bytes, &head, sizeof head, attr))
        return 0;
    uint32_t flags = nl_number(&attr[IFA_FLAGS], head.ifa_flags);
    gci_ifaddr one = {.index = head.ifa_index};
    if (!nl_addr(head.ifa_family, &attr[attr[IFA_LOCAL].at ? IFA_LOCAL : IFA_ADDRESS], &one.addr)
        || flags & (IFA_F_TENTATIVE | IFA_F_DADFAILED))
        return 0;
    one.prefix = nl_prefix(&one.addr, &head, &attr[IFA_ADDRESS]);
    if (nl_is_link_local(&one.addr))
        one.addr.scope = one.index;
    if (one.addr.family == 6 && flags & IFA_F_DEPRECATED)
        one.flags |= GCI_IF_DEPRECATED;
    if (one.addr.family == 6 && flags & IFA_F_TEMPORARY)        /* in IPv4 the same bit means a further address */
        one.flags |= GCI_IF_TEMPORARY;
    return nl_list_add(addrs, &one);
}

/* Mbit/s, 0 if unknown. A sysfs mounted in another network namespace shows that one's interfaces: then even an equal name
 * is another interface, which the index betrays. */
static uint32_t nl_speed(const char *name, uint32_t index)
{
    char path[sizeof "/sys/class/net//ifindex" + GCI_IFNAME_BYTES], text[24];
    snprintf(path, sizeof path, "/sys/class/net/%s/ifindex", name);
    if (gci_read_line(path, text, sizeof text) <= 0 || strtoul(text, NULL, 10) != index)
        return 0;
    snprintf(path, sizeof path, "/sys/class/net/%s/speed", name);
    if (gci_read_line(path, text, sizeof text) <= 0)
        return 0;
    long speed = strtol(text, NULL, 10);        /* -1 is the kernel's "unknown" */
    return speed > 0 && speed <= INT32_MAX ? (uint32_t)speed : 0;
}

/* Addresses whose interface is down, or came or went meanwhile, are left out; returns how many link-local ones stay. */
static size_t nl_join(nl_list *links, nl_list *addrs)
{
    size_t kept = 0, local = 0;
    nl_list_sort(links);
    nl_list_sort(addrs);
    for (size_t i = 0, l = 0; i < addrs->n; i++) {
        const gci_ifaddr *one = &addrs->at[i];
        while (l < links->n && links->at[l].index < one->index)
            l++;
        if (l == links->n || links->at[l].index != one->index)
            continue;
        gci_ifaddr *to = &addrs->at[kept++];
        *to = *one;
        to->flags |= links->at[l].flags;
        memcpy(to->name, links->at[l].name, sizeof to->name);
        local += nl_is_link_local(&to->addr);
    }
    addrs->n = kept;
    return local;
}

/* As many as there is room for; of too many, the last link-local ones give way first: on a host of containers each of their
 * interfaces has one, and no other address. */
static int nl_tell(const nl_list *addrs, size_t local, gci_ifaddr *out, int max)
{
    size_t most = max > 0 ? (size_t)max : 0, over = addrs->n > most ? addrs->n - most : 0, told = 0;
    size_t locals = local > over ? local - over : 0;
    for (size_t i = 0; i < addrs->n && told < most; i++) {
        bool last = nl_is_link_local(&addrs->at[i].addr);
        if (last && locals == 0)
            continue;
        locals -= last;
        out[told] = addrs->at[i];
        out[told].speed = told > 0 && out[told - 1].index == out[told].index ? out[told - 1].speed
                                                                             : nl_speed(out[told].name, out[told].index);
        told++;
    }
    return (int)addrs->n;
}

GCI int gci_netlink_interfaces(gci_ifaddr *out, int max)
{
    nl_list links = {0}, addrs = {0};
    nl_talk *t;
    int n = nl_open(&t);
    if (n)
        return n;
    n = nl_dump(t, RTM_GETLINK, sizeof(struct ifinfomsg), AF_UNSPEC, nl_take_link, &links);
    if (!n)
        n = nl_dump(t, RTM_GETADDR, sizeof(struct ifaddrmsg), AF_UNSPEC, nl_take_addr, &addrs);
    nl_close(t);
    if (!n) {
        size_t local = nl_join(&links, &addrs);
        n = nl_tell(&addrs, local, out, max);
    }
    free(links.at);
    free(addrs.at);
    return n;
}

/* ---- routes ---------------------------------------------------------------------------------------------------------- */

/* The entry of the kernel's tables that fits a destination. */
typedef struct nl_entry {
    uint32_t bound;             /* asked for a socket bound to this interface; 0: any */
    bool     found;
    bool     made;              /* not an entry, but what older kernels make of it for one destination */
    bool     sourced;           /* it names an address to send from */
    bool     down;              /* there is no carrier where it leads */
    uint8_t  type, bits;
    uint32_t index;             /* 0: several interfaces, or not told */
} nl_entry;

/* Several hops share what goes there: the kernel takes one of them for each connection. */
static void nl_take_hops(nl_entry *e, const nl_attr *hops)
{
    struct rtnexthop hop;
    bool first = true;
    e->down = true;
    e->index = 0;
    for (size_t at = 0; hops->bytes - at >= sizeof hop;) {
        memcpy(&hop, hops->at + at, sizeof hop);
        if (hop.rtnh_len < sizeof hop || hop.rtnh_len > hops->bytes - at)
            return;
        uint32_t index = (uint32_t)hop.rtnh_ifindex;
        if (!(hop.rtnh_flags & RTNH_F_DEAD) && (e->bound == 0 || e->bound == index)) {
            e->index = first || e->index == index ? index : 0;
            e->down = e->down && hop.rtnh_flags & RTNH_F_LINKDOWN;
            first = false;
        }
        at += gci_min(nl_align(hop.rtnh_len), hops->bytes - at);
    }
}

static int nl_take_entry(void *user, const uint8_t *body, size_t bytes)
{
    nl_entry *e = user;
    struct rtmsg route;
    nl_attr attr[NL_ATTRS];
    if (!nl_parse(body, bytes, &route, sizeof route, attr))
        return -EPROTO;
    e->found = true;
    e->made = route.rtm_flags & RTM_F_CLONED;
    e->sourced = attr[RTA_PREFSRC].at;
    e->down = route.rtm_flags & (RTNH_F_DEAD | RTNH_F_LINKDOWN);
    e->type = route.rtm_type;
    e->bits = route.rtm_dst_len;
    e->index = nl_number(&attr[RTA_OIF], 0);
    if (attr[RTA_MULTIPATH].at)
        nl_take_hops(e, &attr[RTA_MULTIPATH]);
    return 0;
}

static size_t nl_put(uint8_t *at, unsigned type, const void *data, size_t bytes)
{
    struct rtattr head = {.rta_type = (uint16_t)type, .rta_len = (uint16_t)(sizeof head + bytes)};
    memcpy(at, &head, sizeof head);
    memcpy(at + sizeof head, data, bytes);
    return sizeof head + bytes;
}

static int nl_look_up(nl_talk *t, const gci_addr *to, uint32_t index, nl_entry *e)
{
    uint8_t body[sizeof(struct rtmsg) + 2 * sizeof(struct rtattr) + sizeof to->ip + sizeof index];
    struct rtmsg route = {.rtm_family = to->family == 4 ? AF_INET : AF_INET6, .rtm_dst_len = nl_whole(to),
                          .rtm_flags = RTM_F_FIB_MATCH};
    size_t bytes = sizeof route;
    memcpy(body, &route, sizeof route);
    bytes += nl_put(body + bytes, RTA_DST, to->ip, to->family == 4 ? 4 : 16);
    if (index)
        bytes += nl_put(body + bytes, RTA_OIF, &index, sizeof index);
    *e = (nl_entry){.bound = index};
    return nl_ask(t, RTM_GETROUTE, 0, body, bytes, nl_take_entry, e);
}

/* How the kernel says that nothing leads there: no entry, or one to that end (unreachable, prohibit, blackhole, throw). With an
 * interface given, IPv4 then takes the destination to be on its link; as that is no entry it is "host unreachable", too. */
static bool nl_is_none(int refusal)
{
    return refusal == -ENETUNREACH || refusal == -EHOSTUNREACH || refusal == -EACCES || refusal == -EINVAL || refusal == -EAGAIN;
}

/* A kernel that does not know RTM_F_FIB_MATCH tells of the destination alone. In IPv4 such answers are marked. In IPv6 they
 * look like entries for one host that name a source, which are rare: then the other family is asked whether it is such a
 * kernel, since both learned it at one time. */
static bool nl_is_entry(nl_talk *t, const nl_entry *e, const gci_addr *to)
{
    nl_entry own;
    static const gci_addr localhost = {.family = 4, .ip = {127, 0, 0, 1}};
    if (e->made || to->family == 4 || e->bits < 128 || !e->sourced)
        return !e->made;
    return nl_look_up(t, &localhost, 0, &own) != 0 || !own.made;
}

/* Half of all addresses is a default route, too: clients of VPNs lay two of them over the one that was there. */
static gci_route_answer nl_judge(nl_talk *t, const nl_entry *e, const gci_addr *to)
{
    const gci_route_answer none = {GCI_ROUTE_NONE, 0}, unknown = {GCI_ROUTE_UNKNOWN, 0};
    if (!e->found)
        return nl_is_none(t->refusal) ? none : unknown;
    if (e->type == RTN_LOCAL)
        return (gci_route_answer){GCI_ROUTE_SPECIFIC, NL_LOOPBACK};
    if ((e->type != RTN_UNICAST && e->type != RTN_ANYCAST) || e->down)
        return none;
    if (!nl_is_entry(t, e, to))
        return unknown;
    if (e->bound && e->index && e->index != e->bound)
        return none;
    return (gci_route_answer){e->bits <= 1 ? GCI_ROUTE_DEFAULT : GCI_ROUTE_SPECIFIC, e->bound ? e->bound : e->index};
}

/* Since Linux 5.7 everybody may; before, it takes the capability CAP_NET_RAW. */
GCI int gci_netlink_bind(int fd, uint32_t index)
{
    char name[IF_NAMESIZE];
#ifdef SO_BINDTOIFINDEX
    if (setsockopt(fd, SOL_SOCKET, SO_BINDTOIFINDEX, &index, sizeof index) == 0)
        return 0;
    if (errno != ENOPROTOOPT)
        return -errno;
#endif
    if (!if_indextoname(index, name))
        return -errno;
    return setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name, (socklen_t)(strlen(name) + 1)) == 0 ? 0 : -errno;
}

static bool nl_can_bind(const gci_addr *to, uint32_t index)
{
    int fd = socket(to->family == 4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    int err = gci_netlink_bind(fd, index);
    close(fd);
    return !err;
}

/* A link-local destination is on the link that its scope says. */
GCI gci_route_answer gci_netlink_route(const gci_addr *to, uint32_t bound)
{
    gci_route_answer answer = {GCI_ROUTE_UNKNOWN, 0};
    uint32_t index = nl_is_link_local(to) && to->scope ? to->scope : bound;
    nl_entry entry;
    nl_talk *t;
    if ((to->family != 4 && to->family != 6) || (nl_is_link_local(to) && index == 0))
        return answer;
    if (bound && bound != index)
        return (gci_route_answer){GCI_ROUTE_NONE, 0};
    if ((bound && !nl_can_bind(to, bound)) || nl_open(&t) != 0)
        return answer;
    if (nl_look_up(t, to, index, &entry) == 0 || t->refusal)
        answer = nl_judge(t, &entry, to);
    nl_close(t);
    return answer;
}

/* ---- the router that leads out ----------------------------------------------------------------------------------------- */

typedef struct nl_router {
    gci_addr addr;              /* family 0: none is known */
    uint32_t metric, index;
    uint8_t  mac[NL_MAC_MAX];
    size_t   mac_bytes;         /* 0: not known */
    uint8_t  bits;              /* of the network in which it is reached, 0: not known */
} nl_router;

/* The least metric; of several, the lowest address, so that all hosts agree. */
static void nl_consider(nl_router *r, int family, const nl_attr *gateway, uint32_t metric, uint32_t index)
{
    gci_addr addr;
    if (!nl_addr(family, gateway, &addr))
        return;
    if (r->addr.family && (metric > r->metric || (metric == r->metric && memcmp(addr.ip, r->addr.ip, sizeof addr.ip) >= 0)))
        return;
    *r = (nl_router){.addr = addr, .metric = metric, .index = index};
}

static void nl_consider_hops(nl_router *r, int family, const nl_attr *hops, uint32_t metric)
{
    struct rtnexthop hop;
    nl_attr attr[NL_ATTRS];
    for (size_t at = 0; hops->bytes - at >= sizeof hop;) {
        memcpy(&hop, hops->at + at, sizeof hop);
        if (hop.rtnh_len < sizeof hop || hop.rtnh_len > hops->bytes - at)
            return;
        nl_attrs(hops->at + at + sizeof hop, hop.rtnh_len - sizeof hop, attr);
        if (!(hop.rtnh_flags & (RTNH_F_DEAD | RTNH_F_LINKDOWN)))
            nl_consider(r, family, &attr[RTA_GATEWAY], metric, (uint32_t)hop.rtnh_ifindex);
        at += gci_min(nl_align(hop.rtnh_len), hops->bytes - at);
    }
}

/* Only the tables that everything uses: a VPN's own says where the VPN leads, not where this host is. */
static int nl_take_default(void *user, const uint8_t *body, size_t bytes)
{
    nl_router *r = user;
    struct rtmsg route;
    nl_attr attr[NL_ATTRS];
    if (!body) {
        *r = (nl_router){0};
        return 0;
    }
    if (!nl_parse(body, bytes, &route, sizeof route, attr) || route.rtm_dst_len || route.rtm_src_len
        || route.rtm_type != RTN_UNICAST || route.rtm_flags & (RTM_F_CLONED | RTNH_F_DEAD | RTNH_F_LINKDOWN))
        return 0;
    uint32_t table = nl_number(&attr[RTA_TABLE], route.rtm_table), metric = nl_number(&attr[RTA_PRIORITY], 0);
    if (table != RT_TABLE_MAIN && table != RT_TABLE_DEFAULT)
        return 0;
    if (attr[RTA_MULTIPATH].at)
        nl_consider_hops(r, route.rtm_family, &attr[RTA_MULTIPATH], metric);
    else
        nl_consider(r, route.rtm_family, &attr[RTA_GATEWAY], metric, nl_number(&attr[RTA_OIF], 0));
    return 0;
}

static int nl_take_neighbour(void *user, const uint8_t *body, size_t bytes)
{
    nl_router *r = user;
    struct ndmsg head;
    nl_attr attr[NL_ATTRS];
    gci_addr addr;
    if (!body)
        return r->mac_bytes = 0, 0;
    if (nl_parse(body, bytes, &head, sizeof head, attr) && (uint32_t)head.ndm_ifindex == r->index
        && head.ndm_state & (NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE | NUD_PERMANENT)
        && nl_addr(head.ndm_family, &attr[NDA_DST], &addr) && gci_addr_equal(&addr, &r->addr)
        && attr[NDA_LLADDR].bytes <= sizeof r->mac && attr[NDA_LLADDR].bytes > 0) {
        r->mac_bytes = attr[NDA_LLADDR].bytes;
        memcpy(r->mac, attr[NDA_LLADDR].at, r->mac_bytes);
    }
    return 0;
}

static int nl_take_network(void *user, const uint8_t *body, size_t bytes)
{
    nl_router *r = user;
    struct ifaddrmsg head;
    nl_attr attr[NL_ATTRS];
    gci_addr network;
    if (!body)
        return r->bits = 0, 0;
    if (nl_parse(body, bytes, &head, sizeof head, attr) && head.ifa_index == r->index
        && nl_addr(head.ifa_family, &attr[IFA_ADDRESS], &network) && network.family == r->addr.family
        && head.ifa_prefixlen > r->bits && head.ifa_prefixlen <= nl_whole(&network)
        && nl_is_in(&r->addr, &network, head.ifa_prefixlen))
        r->bits = head.ifa_prefixlen;
    return 0;
}

/* Some MACs are those of many routers: of virtual ones (VRRP, HSRP), or of clouds, containers and virtual machines, where all
 * have one, or each one made of the address. They do not tell where this host is. */
static bool nl_is_anybodys(const nl_router *r)
{
    static const struct { uint8_t bytes, mac[6]; } shared[] = {
        {4, {0x00, 0x00, 0x5e, 0x00}}, {5, {0x00, 0x00, 0x0c, 0x07, 0xac}}, {4, {0x00, 0x00, 0x0c, 0x9f}},
        {6, {0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc}}, {6, {0xee, 0xee, 0xee, 0xee, 0xee, 0xee}},
        {6, {0x52, 0x54, 0x00, 0x12, 0x35, 0x02}}, {6, {0}},
    };
    if (r->mac_bytes != 6)
        return false;
    for (size_t i = 0; i < GCI_COUNT(shared); i++)
        if (memcmp(r->mac, shared[i].mac, shared[i].bytes) == 0)
            return true;
    return r->addr.family == 4 && memcmp(r->mac + 2, r->addr.ip, 4) == 0;
}

static int nl_find_router(nl_talk *t, int family, nl_router *r)
{
    int err = nl_dump(t, RTM_GETROUTE, sizeof(struct rtmsg), family, nl_take_default, r);
    if (err || r->addr.family == 0)
        return err;
    err = nl_dump(t, RTM_GETNEIGH, sizeof(struct ndmsg), family, nl_take_neighbour, r);
    return err ? err : nl_dump(t, RTM_GETADDR, sizeof(struct ifaddrmsg), family, nl_take_network, r);
}

/* Neither the addresses of a host's network nor its router's MAC need be known to others: they get a hash. */
static uint64_t nl_router_number(const nl_router *r)
{
    uint8_t hash[GCI_MAC_BYTES];
    gci_sha256 sha;
    if (r->mac_bytes == 0 || nl_is_anybodys(r))
        return 0;
    gci_sha256_init(&sha);
    gci_sha256_add(&sha, &r->addr.family, 1);
    gci_sha256_add(&sha, r->addr.ip, sizeof r->addr.ip);
    gci_sha256_add(&sha, &r->bits, 1);
    gci_sha256_add(&sha, r->mac, r->mac_bytes);
    gci_sha256_end(&sha, hash);
    uint64_t number = gci_get64(hash);
    return number ? number : 1;
}

GCI uint64_t gci_netlink_gate(void)
{
    static const int family[] = {AF_INET, AF_INET6};
    uint64_t number = 0;
    nl_talk *t;
    if (nl_open(&t) != 0)
        return 0;
    for (size_t i = 0; i < GCI_COUNT(family) && number == 0; i++) {
        nl_router router = {0};
        if (nl_find_router(t, family[i], &router) == 0)
            number = nl_router_number(&router);
    }
    nl_close(t);
    return number;
}
