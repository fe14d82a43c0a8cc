/* sys.c: all that the library asks of the system, and what libc lacks: an allocator with an account, a log, SHA-256 and HMAC.
 * SPDX-License-Identifier: MIT
 *
 * With netlink.c, which answers what it asks of networks, the only room that knows which system it runs on (Linux: epoll,
 * eventfd, accept4, procfs). The rooms above call the table of gridcomm_int.h, behind which the tests put a simulated
 * network; the real table below has no state at all, so it is constant and every world of a process shares it.
 *
 * Invariants
 * - Every descriptor made here is close-on-exec, every socket non-blocking. No call raises SIGPIPE.
 * - A call that fails returns a negative errno and leaves nothing open. Descriptors handed in are never closed, but by close.
 * - EINTR never gets out: the call is made again, except in wait, where it counts as "nothing happened".
 * - Nothing here blocks but wait, await, enter and join, as their callers ask, and resolve, as long as the resolver of
 *   libc takes (its own timeouts end it), and spawn, until the program has been loaded.
 * - Threads and monitors come from libc's malloc, not from gci_alloc: the table knows no env. They are a few hundred bytes
 *   per world.
 *
 * Addresses: an IPv4 address mapped into IPv6 (::ffff:1.2.3.4) is IPv4 everywhere above the system calls, so that
 * one peer has one name, whichever socket it came in by.
 *
 * gci_log and the allocator may be called on any thread; their counters are relaxed atomics, because nobody orders other
 * memory by them.
 */
#include "gridcomm_int.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/timerfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    SYS_BACKLOG = 4096,             /* a whole job may knock at rank 0 at once; the kernel caps it by net.core.somaxconn */
    SYS_EVENTS = 64,                /* events fetched per epoll call: 768 bytes of stack; what is left comes next time */
    SYS_IOV = 1024,                 /* IOV_MAX of Linux; beyond it sendmsg fails instead of sending what it can */
    SYS_UNSENT = 128 * 1024,        /* bytes that may wait in a data socket: a short message waits for no more than these */
    SYS_LOCAL_BUFFER = 208 * 1024,  /* bytes; the kernel doubles it: 0.1 ms of data. With less the cores wait for each other */
    SYS_KEEPALIVE_PROBES = 3,       /* so one or two lost probes kill no peer */
    SYS_KEEPALIVE_MAX = 32767,      /* s; the kernel's limit on idle time and interval */
    SYS_KEEPALIVE_IDLE = 25,        /* s: NATs and firewalls forget what is silent for longer, some after 30 */
    SYS_KEEPALIVE_AGAIN = 2,        /* s: an answer that is missing is asked for again, on a data connection */
    SYS_KEEPALIVE_LONG = 127,       /* the kernel's limit on probes */
    SYS_STACK = 256 * 1024,         /* bytes; see sys_thread */
    SYS_LOG_LINE = 512              /* bytes, with the 0: below PIPE_BUF, so lines of several processes never mix */
};

/* ---- clock, chance, cores ------------------------------------------------------------------------------------ */

static int64_t sys_now(gci_sys *sys)
{
    (void)sys;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);         /* no system call: the vdso answers */
    return (int64_t)t.tv_sec * GCI_SECOND + t.tv_nsec;
}

static int sys_random(gci_sys *sys, void *buf, size_t bytes)
{
    (void)sys;
    for (size_t got = 0; got < bytes;) {
        ssize_t n = getrandom((char *)buf + got, bytes - got, 0);
        if (n >= 0)
            got += (size_t)n;
        else if (errno != EINTR)
            return -errno;
    }
    return 0;
}

static void sys_yield(gci_sys *sys)
{
    (void)sys;
    sched_yield();
}

/* ---- who and where this host is ------------------------------------------------------------------------------ */

GCI int gci_read_line(const char *path, char *line, size_t bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t n;
    do
        n = read(fd, line, bytes - 1);
    while (n < 0 && errno == EINTR);
    int err = n < 0 ? -errno : 0;
    close(fd);
    if (err)
        return err;
    line[n] = 0;
    line[strcspn(line, "\n")] = 0;
    return (int)strlen(line);
}

/* The boot id alone would call two containers of one machine the same host, though neither reaches the other's loopback. */
static int sys_host(gci_sys *sys, char id[GCI_HOST_ID_BYTES], char name[GCI_HOST_NAME_BYTES])
{
    (void)sys;
    enum { INODE_TEXT = 1 + 20, BOOT_BYTES = GCI_HOST_ID_BYTES - INODE_TEXT };
    char boot[BOOT_BYTES];
    struct stat net;
    if (gethostname(name, GCI_HOST_NAME_BYTES) != 0 && errno != ENAMETOOLONG)
        return -errno;
    name[GCI_HOST_NAME_BYTES - 1] = 0;
    if (gci_read_line("/proc/sys/kernel/random/boot_id", boot, sizeof boot) <= 0)
        snprintf(boot, sizeof boot, "%.*s", BOOT_BYTES - 1, name);
    if (stat("/proc/self/ns/net", &net) != 0)
        net.st_ino = 0;
    snprintf(id, GCI_HOST_ID_BYTES, "%s:%" PRIu64, boot, (uint64_t)net.st_ino);
    return 0;
}

/* Every shape of a socket's name, so that no pointer is cast between them. */
typedef union sys_name {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_un local;
    struct sockaddr_storage room;
} sys_name;

static const uint8_t sys_mapped_prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

/* In the abstract namespace, which is the network namespace's, as ports are: nothing is left over in a file system, and who
 * shares ports shares these names. Anybody may take one; the handshake tells who it is. */
static socklen_t sys_name_local(uint16_t port, sys_name *name)
{
    name->local.sun_family = AF_UNIX;
    int bytes = snprintf(name->local.sun_path + 1, sizeof name->local.sun_path - 1, "gridcomm.%u", (unsigned)port);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)bytes);
}

/* The bytes of the name, 0 if the address has no family. */
static socklen_t sys_name_from_addr(const gci_addr *addr, sys_name *name)
{
    memset(name, 0, sizeof *name);
    if (addr->family == 4) {
        name->v4.sin_family = AF_INET;
        name->v4.sin_port = htons(addr->port);
        memcpy(&name->v4.sin_addr, addr->ip, 4);
        return sizeof name->v4;
    }
    if (addr->family == 6) {
        name->v6.sin6_family = AF_INET6;
        name->v6.sin6_port = htons(addr->port);
        memcpy(&name->v6.sin6_addr, addr->ip, 16);
        name->v6.sin6_scope_id = addr->scope;
        return sizeof name->v6;
    }
    return addr->family == GCI_UNIX ? sys_name_local(addr->port, name) : 0;
}

/* From a name of the length that its family has; family 0 if it is of another. */
static void sys_addr_from_name(const struct sockaddr *from, gci_addr *addr)
{
    memset(addr, 0, sizeof *addr);
    if (from->sa_family == AF_INET) {
        struct sockaddr_in v4;
        memcpy(&v4, from, sizeof v4);
        addr->family = 4;
        addr->port = ntohs(v4.sin_port);
        memcpy(addr->ip, &v4.sin_addr, 4);
    } else if (from->sa_family == AF_INET6) {
        struct sockaddr_in6 v6;
        memcpy(&v6, from, sizeof v6);
        addr->port = ntohs(v6.sin6_port);
        if (memcmp(&v6.sin6_addr, sys_mapped_prefix, sizeof sys_mapped_prefix) == 0) {
            addr->family = 4;
            memcpy(addr->ip, v6.sin6_addr.s6_addr + sizeof sys_mapped_prefix, 4);
        } else {
            addr->family = 6;
            addr->scope = v6.sin6_scope_id;
            memcpy(addr->ip, &v6.sin6_addr, 16);
        }
    }
}

static int sys_interfaces(gci_sys *sys, gci_ifaddr *out, int max)
{
    (void)sys;
    return gci_netlink_interfaces(out, max);
}

static gci_route_answer sys_route(gci_sys *sys, const gci_addr *to, uint32_t bound)
{
    (void)sys;
    return gci_netlink_route(to, bound);
}

static uint64_t sys_gate(gci_sys *sys)
{
    (void)sys;
    return gci_netlink_gate();
}

/* getaddrinfo's reasons as errno. ENXIO, "No such device or address": the name does not exist; EAGAIN: ask again later. */
static int sys_resolve_error(int reason)
{
    switch (reason) {
    case EAI_SYSTEM: return errno ? -errno : -EIO;
    case EAI_MEMORY: return -ENOMEM;
    case EAI_AGAIN:  return -EAGAIN;
    case EAI_FAIL:   return -EIO;
    default:         return -ENXIO;
    }
}

/* On a host without a hosts file (a small container, a board) the name still means loopback: RFC 6761, 6.3. */
static int sys_localhost(uint16_t port, gci_addr *out, int max)
{
    static const char *const text[] = {"127.0.0.1", "::1"};
    int n = 0;
    for (; n < max && n < (int)GCI_COUNT(text); n++) {
        gci_addr_parse(text[n], &out[n]);
        out[n].port = port;
    }
    return n;
}

/* How many of them were stored, at most max. Without AI_ADDRCONFIG, which would hide IPv6 loopback and link-local
 * addresses on a host that has no other IPv6. */
static int sys_resolve(gci_sys *sys, const char *name, uint16_t port, gci_addr *out, int max)
{
    (void)sys;
    gci_addr literal = {0};
    if (max <= 0)
        return -EINVAL;
    if (gci_addr_parse(name, &literal) == GC_OK) {
        literal.port = port;
        out[0] = literal;
        return 1;
    }
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *all;
    errno = 0;
    int reason = getaddrinfo(name, NULL, &hints, &all);
    if (reason && strcmp(name, "localhost") == 0)
        return sys_localhost(port, out, max);
    if (reason)
        return sys_resolve_error(reason);
    int count = 0;
    for (struct addrinfo *one = all; one && count < max; one = one->ai_next) {
        sys_addr_from_name(one->ai_addr, &out[count]);
        out[count].port = port;
        if (out[count].family)
            count++;
    }
    freeaddrinfo(all);
    return count ? count : -ENXIO;
}

/* ---- sockets ------------------------------------------------------------------------------------------------- */

static int sys_set(int fd, int level, int name, int value)
{
    return setsockopt(fd, level, name, &value, sizeof value) == 0 ? 0 : -errno;
}

/* Not TCP: a connection within this host, or the stream of a child (sys_spawn). */
static bool sys_is_local(int fd)
{
    int domain = 0;
    socklen_t bytes = sizeof domain;
    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) == 0 && domain == AF_UNIX;
}

/* Our end of a child's stream remembers the child as its owner (F_SETOWN, see sys_spawn). The kernel keeps the process itself,
 * not its number, and one that has ended reads as none (since Linux 5.12) and has hung up: so no stranger who got the number is
 * hit. Nothing waits for the child here; if it is a child of ours after all, because we take in orphans, it is given its due. */
static void sys_close(gci_sys *sys, int fd)
{
    (void)sys;
    int child = fd >= 0 ? fcntl(fd, F_GETOWN) : 0;
    if (child > 1 && sys_is_local(fd)) {
        struct pollfd ask = {.fd = fd};
        if (poll(&ask, 1, 0) == 0)
            kill(-child, SIGTERM);
        waitpid(child, NULL, WNOHANG);
    }
    if (fd >= 0)
        close(fd);                  /* after EINTR Linux has closed it: a second try could close another thread's */
}

static int sys_own_name(int fd, gci_addr *addr)
{
    sys_name name;
    socklen_t bytes = sizeof name;
    memset(&name, 0, sizeof name);
    if (getsockname(fd, &name.any, &bytes) != 0)
        return -errno;
    sys_addr_from_name(&name.any, addr);
    return addr->family ? 0 : -EAFNOSUPPORT;
}

static int sys_socket(const gci_addr *addr)
{
    if (addr->family != 4 && addr->family != 6 && addr->family != GCI_UNIX)
        return -EAFNOSUPPORT;
    int domain = addr->family == 4 ? AF_INET : addr->family == 6 ? AF_INET6 : AF_UNIX;
    int fd = socket(domain, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, domain == AF_UNIX ? 0 : IPPROTO_TCP);
    return fd >= 0 ? fd : -errno;
}

static bool sys_is_any(const gci_addr *addr)
{
    static const uint8_t zero[16];
    return addr->family == 0 || (addr->family == 6 && memcmp(addr->ip, zero, sizeof zero) == 0);
}

static int sys_listen_at(const gci_addr *at)
{
    sys_name name;
    socklen_t bytes = sys_name_from_addr(at, &name);
    int err = 0, fd = sys_socket(at);
    if (fd < 0)
        return fd;
    /* A fixed port outlives its last connections; for a free one REUSEADDR halves the choice. */
    if (at->port && at->family != GCI_UNIX)
        err = sys_set(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (!err && at->family == 6 && sys_is_any(at))
        err = sys_set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    if (!err && (bind(fd, &name.any, bytes) != 0 || listen(fd, SYS_BACKLOG) != 0))
        err = -errno;
    if (err) {
        close(fd);
        return err;
    }
    return fd;
}

/* "Any address" is one IPv6 socket that takes IPv4 too, or an IPv4 socket where the kernel has no IPv6. */
static int sys_listen(gci_sys *sys, gci_addr *at)
{
    gci_addr want = *at;
    bool any = sys_is_any(at);
    if (any)
        want = (gci_addr){.family = 6, .port = at->port};
    int fd = sys_listen_at(&want);
    if (any && (fd == -EAFNOSUPPORT || fd == -EPROTONOSUPPORT || fd == -EADDRNOTAVAIL)) {
        want.family = 4;
        fd = sys_listen_at(&want);
    }
    if (fd < 0 || at->family == GCI_UNIX)
        return fd;
    int err = sys_own_name(fd, at);
    if (err) {
        sys_close(sys, fd);
        return err;
    }
    return fd;
}

/* The number comes from the environment and may be anything: nothing is changed before it has shown that it listens, and that it
 * was inherited: what is close-on-exec was made in this process, or is somebody's already. */
static int sys_adopt(gci_sys *sys, int inherited, gci_addr *at)
{
    (void)sys;
    int listening = 0, type = 0, descriptor = fcntl(inherited, F_GETFD);
    socklen_t bytes = sizeof listening;
    if (descriptor < 0)
        return -errno;
    if (descriptor & FD_CLOEXEC)
        return -EBUSY;
    if (getsockopt(inherited, SOL_SOCKET, SO_ACCEPTCONN, &listening, &bytes) != 0)
        return -errno;
    bytes = sizeof type;
    if (getsockopt(inherited, SOL_SOCKET, SO_TYPE, &type, &bytes) != 0)
        return -errno;
    if (!listening || type != SOCK_STREAM)
        return -EINVAL;
    gci_addr name;
    int err = sys_own_name(inherited, &name);
    if (err)
        return err;
    int flags = fcntl(inherited, F_GETFL);
    if (flags < 0 || fcntl(inherited, F_SETFL, flags | O_NONBLOCK) != 0 || fcntl(inherited, F_SETFD, FD_CLOEXEC) != 0)
        return -errno;
    *at = name;
    return inherited;
}

/* As for adopt. */
static int sys_inherit(gci_sys *sys, int inherited)
{
    (void)sys;
    int type = 0, flags;
    socklen_t bytes = sizeof type, name_bytes = sizeof(sys_name);
    sys_name name;
    if (getsockopt(inherited, SOL_SOCKET, SO_TYPE, &type, &bytes) != 0 || (flags = fcntl(inherited, F_GETFD)) < 0)
        return -errno;
    if (type != SOCK_STREAM)
        return -EINVAL;
    if (flags & FD_CLOEXEC)
        return -EBUSY;
    if (getpeername(inherited, &name.any, &name_bytes) != 0 || fcntl(inherited, F_SETFD, flags | FD_CLOEXEC) != 0)
        return -errno;
    return 0;
}

/* Some errors belong to the connection that was about to be accepted and is gone. They count as "nobody waits": whoever is
 * next in the queue makes the level-triggered poller report again. */
static bool sys_is_lost_caller(int err)
{
    return err == ECONNABORTED || err == EPROTO || err == ENOPROTOOPT || err == ENETDOWN || err == ENETUNREACH ||
           err == EHOSTDOWN || err == EHOSTUNREACH || err == ENONET;
}

static int sys_accept(gci_sys *sys, int fd, gci_addr *from)
{
    (void)sys;
    sys_name name;
    socklen_t bytes = sizeof name;
    int got;
    memset(&name, 0, sizeof name);
    do
        got = accept4(fd, &name.any, &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return sys_is_lost_caller(errno) ? -EAGAIN : -errno;
    if (from && name.any.sa_family == AF_UNIX)
        *from = (gci_addr){.family = GCI_UNIX};     /* who calls has no name */
    else if (from)
        sys_addr_from_name(&name.any, from);
    return got;
}

/* Its port is chosen when it is known who is called, so that one port serves calls to many. (Before Linux 4.2 it is chosen
 * here, and must be free for all.) */
static int sys_bind_source(int fd, const gci_addr *source)
{
    sys_name name;
    gci_addr from = *source;
    from.port = 0;
    socklen_t bytes = sys_name_from_addr(&from, &name);
    (void)sys_set(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
    return bind(fd, &name.any, bytes) == 0 ? 0 : -errno;
}

static int sys_connect(gci_sys *sys, const gci_addr *to, const gci_addr *source, uint32_t bind_to)
{
    sys_name name;
    socklen_t bytes = sys_name_from_addr(to, &name);
    if (source && source->family != to->family)
        return -EAFNOSUPPORT;
    int fd = sys_socket(to);
    if (fd < 0)
        return fd;
    int err = bind_to ? gci_netlink_bind(fd, bind_to) : 0;
    if (!err && source)
        err = sys_bind_source(fd, source);
    /* Interrupted, a connect goes on by itself: it is begun, which is all that is asked. */
    if (!err && connect(fd, &name.any, bytes) != 0 && errno != EINPROGRESS && errno != EINTR)
        err = -errno;
    if (err) {
        sys_close(sys, fd);
        return err;
    }
    return fd;
}

/* A port chosen for the calling end may be the very port that is called: then TCP connects the socket to itself. It happens to
 * who calls a dead process of his own host again and again; nobody listens there, so it is refused. */
static int sys_connected(gci_sys *sys, int fd)
{
    (void)sys;
    struct pollfd ask = {.fd = fd, .events = POLLOUT};
    int n, err = 0;
    do
        n = poll(&ask, 1, 0);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    if (n == 0)
        return -EINPROGRESS;
    socklen_t bytes = sizeof err;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &bytes) != 0)
        return -errno;
    if (err)
        return -err;
    sys_name name;
    gci_addr mine = {0}, theirs = {0};
    memset(&name, 0, sizeof name);
    bytes = sizeof name;
    if (getpeername(fd, &name.any, &bytes) != 0)
        return -errno;
    sys_addr_from_name(&name.any, &theirs);
    if (!theirs.family)
        return 0;                   /* within this host */
    err = sys_own_name(fd, &mine);
    if (err)
        return err;
    return mine.port == theirs.port && gci_addr_equal(&mine, &theirs) ? -ECONNREFUSED : 0;
}

static int sys_keepalive(int fd, int idle, int interval, int probes)
{
    int err = sys_set(fd, IPPROTO_TCP, TCP_KEEPIDLE, idle);
    if (!err)
        err = sys_set(fd, IPPROTO_TCP, TCP_KEEPINTVL, interval);
    if (!err)
        err = sys_set(fd, IPPROTO_TCP, TCP_KEEPCNT, probes);
    return err ? err : sys_set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
}

/* A silent host is found out at idle + probes * interval = peer_timeout, in whole seconds because the kernel counts so;
 * below 2 s at 2 s. Half of the time goes by before the first probe, so that probes stay rare, but no more than NATs
 * bear. The rest is shared by at least SYS_KEEPALIVE_PROBES probes where it is long enough. */
static int sys_tune_keepalive(int fd, int64_t peer_timeout)
{
    int64_t seconds = peer_timeout / GCI_SECOND, ms = peer_timeout / GCI_NS_PER_MS;
    int total = seconds > SYS_KEEPALIVE_MAX ? SYS_KEEPALIVE_MAX : seconds < 2 ? 2 : (int)seconds;
    int interval = total / (2 * SYS_KEEPALIVE_PROBES) > 0 ? total / (2 * SYS_KEEPALIVE_PROBES) : 1;
    int probes = (total - 1) / interval < SYS_KEEPALIVE_PROBES ? (total - 1) / interval : SYS_KEEPALIVE_PROBES;
    if (total - probes * interval > SYS_KEEPALIVE_IDLE) {
        interval = SYS_KEEPALIVE_IDLE;
        probes = (total - 1) / interval < SYS_KEEPALIVE_LONG ? (total - 1) / interval : SYS_KEEPALIVE_LONG;
        if (total - probes * interval > SYS_KEEPALIVE_IDLE)
            interval = (total - SYS_KEEPALIVE_IDLE + probes - 1) / probes;
    }
    int err = sys_keepalive(fd, total - probes * interval, interval, probes);
    if (!err)                       /* keepalive sleeps while data wait for an answer: this watches then */
        err = sys_set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, ms > INT_MAX ? INT_MAX : ms < 1 ? 1 : (int)ms);
    return err;
}

/* A data connection does not time out soon: a peer that does not read for an hour is alive, and whether it lives is asked
 * over the control connections. (TCP_USER_TIMEOUT does end a connection to a living peer whose window stays shut.) Its
 * keepalive is there for NATs in between, and to notice that one of them has forgotten the connection (sys_silence); the peer's
 * kernel answers it. Within this host there is nothing to watch over, and the child of a stream minds its connection itself. */
static int sys_tune(gci_sys *sys, int fd, enum gci_tune how, int64_t peer_timeout)
{
    (void)sys;
    int err = sys_set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    if (err && sys_is_local(fd))
        return how == GCI_TUNE_DATA ? sys_set(fd, SOL_SOCKET, SO_SNDBUF, SYS_LOCAL_BUFFER) : 0;
    if (err || how == GCI_TUNE_HANDSHAKE)
        return err;
    if (how == GCI_TUNE_CONTROL)
        return sys_tune_keepalive(fd, peer_timeout);
    err = sys_keepalive(fd, SYS_KEEPALIVE_IDLE, SYS_KEEPALIVE_AGAIN, SYS_KEEPALIVE_LONG);
    if (!err)
        err = sys_set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 0);
    if (!err)
        err = sys_set(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, SYS_UNSENT);
    return err;
}

static size_t sys_backlog(gci_sys *sys, int fd)
{
    (void)sys;
    int bytes = 0;
    return ioctl(fd, SIOCOUTQ, &bytes) == 0 && bytes > 0 ? (size_t)bytes : 0;
}

/* Probes are those of keepalive, and those that ask whether a shut window is still shut: a living host answers either. A child's
 * stream is never silent, the child sees to that. */
static int64_t sys_silence(gci_sys *sys, int fd)
{
    (void)sys;
    struct tcp_info info;
    socklen_t bytes = sizeof info;
    memset(&info, 0, sizeof info);              /* an old kernel fills less of it */
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0 || (info.tcpi_unacked == 0 && info.tcpi_probes == 0))
        return 0;
    return (int64_t)gci_min(info.tcpi_last_ack_recv, info.tcpi_last_data_recv) * GCI_NS_PER_MS;
}

/* One part is the common case, and the plain calls spare the kernel the copying and checking of a msghdr. */
/* The system calls themselves, not libc's: those are cancellation points, and a thread that ended here would keep the
 * monitor for ever. It is also a little faster. */
static ssize_t sys_send(gci_sys *sys, int fd, const struct iovec *part, int n)
{
    (void)sys;
    long sent;
    struct msghdr message = {.msg_iov = (struct iovec *)part};      /* only read; the type serves recvmsg too */
    message.msg_iovlen = (unsigned)(n < SYS_IOV ? n : SYS_IOV);
    do
        sent = n == 1 ? syscall(SYS_sendto, fd, part->iov_base, part->iov_len, MSG_NOSIGNAL | MSG_DONTWAIT, NULL, 0)
                      : syscall(SYS_sendmsg, fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    return sent >= 0 ? sent : -errno;
}

static ssize_t sys_recv(gci_sys *sys, int fd, const struct iovec *part, int n)
{
    (void)sys;
    long got;
    do
        got = n == 1 ? syscall(SYS_recvfrom, fd, part->iov_base, part->iov_len, MSG_DONTWAIT, NULL, NULL)
                     : syscall(SYS_readv, fd, part, n < SYS_IOV ? n : SYS_IOV);
    while (got < 0 && errno == EINTR);
    return got >= 0 ? got : -errno;
}

/* Nothing can be done about a failure, and little is lost. */
static void sys_acknowledge(gci_sys *sys, int fd)
{
    (void)sys;
    sys_set(fd, IPPROTO_TCP, TCP_QUICKACK, 1);
}

/* ---- children ------------------------------------------------------------------------------------------------ */

/* What a child tells before its program runs: its number, and, if it could not be loaded, why. */
typedef struct sys_child { int number, error; } sys_child;

static void sys_child_tell(int to, sys_child what)
{
    ssize_t n;
    do
        n = write(to, &what, sizeof what);
    while (n < 0 && errno == EINTR);
}

/* In the child, where only what is safe in a signal handler may be called: standard input and output are the stream, signals
 * are as a shell would have them, and it heads a process group of its own, out of reach of the terminal's. */
static void sys_child_run(int stream, int tell, char *const argv[])
{
    static const int reset[] = {SIGPIPE, SIGCHLD, SIGINT, SIGQUIT, SIGTERM, SIGHUP};
    sigset_t none;
    setpgid(0, 0);
    for (size_t i = 0; i < GCI_COUNT(reset); i++)
        signal(reset[i], SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    sys_child_tell(tell, (sys_child){.number = (int)getpid()});
    if (dup2(stream, STDIN_FILENO) >= 0 && dup2(stream, STDOUT_FILENO) >= 0)
        execvp(argv[0], argv);
    sys_child_tell(tell, (sys_child){.error = errno});
    _exit(127);
}

/* The number of the grandchild, whose parent has ended: the system's first process will collect it, so no handler and no
 * setting of SIGCHLD in this program matters, and nothing of it is ever left over here. */
static int sys_fork_twice(int stream, int tell[2], char *const argv[])
{
    sys_child child = {0}, heard;
    pid_t parent = fork();
    if (parent == 0) {
        pid_t own = fork();
        if (own == 0)
            sys_child_run(stream, tell[1], argv);
        if (own < 0)
            sys_child_tell(tell[1], (sys_child){.error = errno});
        _exit(0);
    }
    int err = parent < 0 ? -errno : 0;
    close(tell[1]);                 /* now it reads to the end, which comes when the program is loaded */
    while (parent >= 0) {
        ssize_t n = read(tell[0], &heard, sizeof heard);
        if (n < 0 && errno == EINTR)
            continue;
        if (n != (ssize_t)sizeof heard)
            break;
        child.number = heard.number ? heard.number : child.number;
        child.error = heard.error ? heard.error : child.error;
    }
    close(tell[0]);
    while (parent > 0 && waitpid(parent, NULL, 0) < 0 && errno == EINTR)
        ;
    return err ? err : child.error ? -child.error : child.number > 0 ? child.number : -ECHILD;
}

/* A descriptor that is none of 0, 1 and 2, which the child is about to give away. */
static int sys_lift(int fd)
{
    int high = fd > STDERR_FILENO ? fd : fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    int err = -errno;
    if (high != fd)
        close(fd);
    return high >= 0 ? high : err;
}

static int sys_spawn(gci_sys *sys, char *const argv[])
{
    int stream[2], tell[2], child;
    (void)sys;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, stream) != 0)
        return -errno;
    if (pipe2(tell, O_CLOEXEC) != 0) {
        child = -errno;
        goto no_pipe;
    }
    stream[1] = sys_lift(stream[1]);
    tell[1] = sys_lift(tell[1]);
    if (stream[1] < 0 || tell[1] < 0) {
        child = stream[1] < 0 ? stream[1] : tell[1];
        close(tell[0]);
        if (tell[1] >= 0)
            close(tell[1]);
        goto no_pipe;
    }
    child = sys_fork_twice(stream[1], tell, argv);
    if (child > 0 && fcntl(stream[0], F_SETFL, O_NONBLOCK) != 0) {
        kill(-child, SIGTERM);
        child = -errno;
    }
    if (child > 0)
        (void)fcntl(stream[0], F_SETOWN, child);    /* for sys_close; fails if it has ended already, and then it is right */
no_pipe:
    if (stream[1] >= 0)
        close(stream[1]);
    if (child < 0)
        close(stream[0]);
    return child < 0 ? child : stream[0];
}

/* ---- the poller ---------------------------------------------------------------------------------------------- */

static int sys_poller(gci_sys *sys)
{
    (void)sys;
    int fd = epoll_create1(EPOLL_CLOEXEC);
    return fd >= 0 ? fd : -errno;
}

/* Changing comes before adding: a link changes its events with every full socket and is added once. */
static int sys_watch(gci_sys *sys, int poller, int fd, unsigned events, uint64_t tag)
{
    (void)sys;
    struct epoll_event event = {.data.u64 = tag};
    if (events == 0)
        return epoll_ctl(poller, EPOLL_CTL_DEL, fd, &event) == 0 || errno == ENOENT ? 0 : -errno;
    event.events = (events & GCI_READ ? (uint32_t)EPOLLIN : 0) | (events & GCI_WRITE ? (uint32_t)EPOLLOUT : 0);
    if (epoll_ctl(poller, EPOLL_CTL_MOD, fd, &event) == 0)
        return 0;
    return errno == ENOENT && epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : -errno;
}

/* epoll_wait counts in milliseconds. The newer call, where kernel and sandbox know it, in ns; its structure has 64-bit
 * fields on every machine. Else the time is rounded up: rounded down, a wait of half a millisecond would spin. */
static int sys_epoll(int poller, struct epoll_event *events, int max, int64_t timeout)
{
    if (timeout <= 0 || timeout == GCI_FOREVER)
        return epoll_wait(poller, events, max, timeout <= 0 ? 0 : -1);
#ifdef SYS_epoll_pwait2
    struct { int64_t seconds, ns; } left = {timeout / GCI_SECOND, timeout % GCI_SECOND};
    int n = (int)syscall(SYS_epoll_pwait2, poller, events, max, &left, NULL, (size_t)0);
    if (n >= 0 || (errno != ENOSYS && errno != EPERM))
        return n;
#endif
    int64_t ms = timeout / GCI_NS_PER_MS + (timeout % GCI_NS_PER_MS != 0);
    return epoll_wait(poller, events, max, ms < INT_MAX ? (int)ms : INT_MAX);
}

static int sys_wait(gci_sys *sys, int poller, gci_event *out, int max, int64_t timeout)
{
    (void)sys;
    struct epoll_event events[SYS_EVENTS];
    int n = sys_epoll(poller, events, max < SYS_EVENTS ? max : SYS_EVENTS, timeout);
    if (n < 0)
        return errno == EINTR ? 0 : -errno;
    for (int i = 0; i < n; i++) {
        out[i].tag = events[i].data.u64;
        out[i].events = (events[i].events & (EPOLLIN | EPOLLERR | EPOLLHUP) ? (unsigned)GCI_READ : 0) |
                        (events[i].events & EPOLLOUT ? (unsigned)GCI_WRITE : 0);
    }
    return n;
}

static int sys_waker(gci_sys *sys)
{
    (void)sys;
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return fd >= 0 ? fd : -errno;
}

/* Neither can fail in a way that matters: a counter that is full is readable, one that is empty rests. */
static void sys_wake(gci_sys *sys, int waker)
{
    (void)sys;
    const uint64_t one = 1;
    while (write(waker, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

static void sys_rest(gci_sys *sys, int waker)
{
    (void)sys;
    uint64_t count;
    while (read(waker, &count, sizeof count) < 0 && errno == EINTR)
        ;
}

static int sys_timer(gci_sys *sys)
{
    (void)sys;
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    return fd >= 0 ? fd : -errno;
}

static void sys_arm(gci_sys *sys, int timer, int64_t at)
{
    (void)sys;
    struct itimerspec when = {.it_value = {0}};         /* zero: never */
    if (at != GCI_FOREVER) {
        when.it_value.tv_sec = (time_t)(at / GCI_SECOND);
        when.it_value.tv_nsec = (long)(at % GCI_SECOND);
    }
    timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL);
}

/* ---- threads ------------------------------------------------------------------------------------------------- */

struct gci_thread {
    pthread_t id;
    void (*run)(void *arg);
    void *arg;
};

static void *sys_thread_main(void *started)
{
    gci_thread *thread = started;
    pthread_setname_np(pthread_self(), "gridcomm");     /* for top and debuggers */
    thread->run(thread->arg);
    return NULL;
}

/* All signals are blocked, so that the application's handlers run on the application's threads only. The stack is small
 * because the library's frames are (kilobytes) and small boards commit all of it; the resolver of libc, the deepest call
 * made on it, keeps to 64 KiB. libc takes thread-local data out of the stack: where a program has more of it than
 * fits, the default size is tried. */
static int sys_thread(gci_sys *sys, gci_thread **out, void (*run)(void *), void *arg)
{
    (void)sys;
    gci_thread *thread = calloc(1, sizeof *thread);
    pthread_attr_t small;
    sigset_t all, before;
    if (!thread)
        return -ENOMEM;
    thread->run = run;
    thread->arg = arg;
    int err = pthread_attr_init(&small);
    if (err) {
        free(thread);
        return -err;
    }
    pthread_attr_setstacksize(&small, SYS_STACK);       /* fails only below the least size: then it is the default */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t id;
    err = pthread_create(&id, &small, sys_thread_main, thread);
    if (err == EINVAL)
        err = pthread_create(&id, NULL, sys_thread_main, thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&small);
    if (err) {
        free(thread);
        return -err;
    }
    thread->id = id;
    *out = thread;
    return 0;
}

static void sys_join(gci_sys *sys, gci_thread *thread)
{
    (void)sys;
    pthread_join(thread->id, NULL);
    free(thread);
}

struct gci_monitor {
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

static int sys_monitor(gci_sys *sys, gci_monitor **out)
{
    (void)sys;
    gci_monitor *monitor = calloc(1, sizeof *monitor);
    pthread_condattr_t monotonic;
    if (!monitor)
        return -ENOMEM;
    int err = pthread_mutex_init(&monitor->lock, NULL);
    if (err)
        goto no_lock;
    err = pthread_condattr_init(&monotonic);
    if (err)
        goto no_attributes;
    err = pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    if (!err)
        err = pthread_cond_init(&monitor->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (err)
        goto no_attributes;
    *out = monitor;
    return 0;
no_attributes:
    pthread_mutex_destroy(&monitor->lock);
no_lock:
    free(monitor);
    return -err;
}

static void sys_monitor_free(gci_sys *sys, gci_monitor *monitor)
{
    (void)sys;
    if (!monitor)
        return;
    pthread_cond_destroy(&monitor->changed);
    pthread_mutex_destroy(&monitor->lock);
    free(monitor);
}

static void sys_enter(gci_sys *sys, gci_monitor *monitor)
{
    (void)sys;
    pthread_mutex_lock(&monitor->lock);
}

static void sys_leave(gci_sys *sys, gci_monitor *monitor)
{
    (void)sys;
    pthread_mutex_unlock(&monitor->lock);
}

static void sys_await(gci_sys *sys, gci_monitor *monitor, int64_t timeout)
{
    int64_t now = sys_now(sys);
    if (timeout > GCI_FOREVER - now) {
        pthread_cond_wait(&monitor->changed, &monitor->lock);
        return;
    }
    int64_t until = now + (timeout > 0 ? timeout : 0);
    struct timespec at = {.tv_sec = (time_t)(until / GCI_SECOND), .tv_nsec = (long)(until % GCI_SECOND)};
    pthread_cond_timedwait(&monitor->changed, &monitor->lock, &at);
}

static void sys_notify(gci_sys *sys, gci_monitor *monitor)
{
    (void)sys;
    pthread_cond_broadcast(&monitor->changed);
}

/* Only simulated tables have state and change it: this one is constant, and a write to it would fault. */
GCI gci_sys *gci_sys_real(void)
{
    static const gci_sys real = {
        .now = sys_now, .random = sys_random, .yield = sys_yield,
        .host = sys_host, .interfaces = sys_interfaces, .route = sys_route, .gate = sys_gate, .resolve = sys_resolve,
        .listen = sys_listen, .adopt = sys_adopt, .inherit = sys_inherit, .accept = sys_accept, .connect = sys_connect,
        .connected = sys_connected,
        .tune = sys_tune, .silence = sys_silence, .backlog = sys_backlog, .send = sys_send, .recv = sys_recv,
        .acknowledge = sys_acknowledge, .close = sys_close,
        .poller = sys_poller, .watch = sys_watch, .wait = sys_wait, .waker = sys_waker, .wake = sys_wake, .rest = sys_rest,
        .timer = sys_timer, .arm = sys_arm, .spawn = sys_spawn,
        .thread = sys_thread, .join = sys_join,
        .monitor = sys_monitor, .monitor_free = sys_monitor_free, .enter = sys_enter, .leave = sys_leave,
        .await = sys_await, .notify = sys_notify,
    };
    return (gci_sys *)&real;
}

/* ---- memory with an account ---------------------------------------------------------------------------------- */

/* Before every block stands how many bytes were asked of the allocator, header included, so that free can account for them.
 * 16 bytes keep what follows aligned for any type. */
enum { SYS_HEADER = 16 };
_Static_assert(SYS_HEADER >= sizeof(size_t) && SYS_HEADER % _Alignof(max_align_t) == 0, "the header breaks alignment");

static void sys_account(gci_env *env, size_t before, size_t after)
{
    if (after <= before) {
        atomic_fetch_sub_explicit(&env->memory, before - after, memory_order_relaxed);
        return;
    }
    size_t grown = after - before;
    size_t total = grown + atomic_fetch_add_explicit(&env->memory, grown, memory_order_relaxed);
    size_t peak = atomic_load_explicit(&env->memory_peak, memory_order_relaxed);
    while (total > peak && !atomic_compare_exchange_weak_explicit(&env->memory_peak, &peak, total, memory_order_relaxed,
                                                                  memory_order_relaxed))
        ;
}

/* The block after a header that tells its size; NULL stays NULL. */
static void *sys_block(gci_env *env, void *base, size_t before, size_t after)
{
    if (!base)
        return NULL;
    memcpy(base, &after, sizeof after);
    sys_account(env, before, after);
    return (char *)base + SYS_HEADER;
}

/* Without a hook calloc spares the zeroing of pages fresh from the kernel. */
GCI void *gci_alloc(gci_env *env, size_t bytes)
{
    if (bytes > SIZE_MAX - SYS_HEADER)
        return NULL;
    size_t all = bytes + SYS_HEADER;
    void *base = env->alloc ? env->alloc(env->alloc_user, NULL, all) : calloc(1, all);
    if (base && env->alloc)
        memset(base, 0, all);
    return sys_block(env, base, 0, all);
}

GCI void *gci_realloc(gci_env *env, void *old, size_t bytes)
{
    if (bytes > SIZE_MAX - SYS_HEADER)
        return NULL;
    size_t before = 0, all = bytes + SYS_HEADER;
    void *base = NULL;
    if (old) {
        base = (char *)old - SYS_HEADER;
        memcpy(&before, base, sizeof before);
    }
    base = env->alloc ? env->alloc(env->alloc_user, base, all) : realloc(base, all);
    return sys_block(env, base, before, all);
}

GCI void gci_free(gci_env *env, void *block)
{
    if (!block)
        return;
    size_t before;
    void *base = (char *)block - SYS_HEADER;
    memcpy(&before, base, sizeof before);
    sys_account(env, before, 0);
    if (env->alloc)
        env->alloc(env->alloc_user, base, 0);
    else
        free(base);
}

GCI char *gci_strdup(gci_env *env, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = gci_realloc(env, NULL, bytes);
    if (copy)
        memcpy(copy, text, bytes);
    return copy;
}

/* ---- the log ------------------------------------------------------------------------------------------------- */

/* The bits of a list such as "boot,links"; first_unknown gets the first word that is none of them, or NULL. */
static unsigned sys_debug_bits(const char *list, const char **first_unknown)
{
    static const struct { const char *word; unsigned bits; } known[] = {
        {"boot", GCI_DEBUG_BOOT}, {"links", GCI_DEBUG_LINKS}, {"p2p", GCI_DEBUG_P2P}, {"coll", GCI_DEBUG_COLL},
        {"addrsel", GCI_DEBUG_ADDRSEL},
        {"all", GCI_DEBUG_BOOT | GCI_DEBUG_LINKS | GCI_DEBUG_P2P | GCI_DEBUG_COLL | GCI_DEBUG_ADDRSEL},
    };
    unsigned bits = 0;
    *first_unknown = NULL;
    for (const char *at = list + strspn(list, ", "); *at;) {
        size_t i = 0, bytes = strcspn(at, ", ");
        while (i < GCI_COUNT(known) && !(strlen(known[i].word) == bytes && memcmp(known[i].word, at, bytes) == 0))
            i++;
        if (i < GCI_COUNT(known))
            bits |= known[i].bits;
        else if (!*first_unknown)
            *first_unknown = at;
        at += bytes;
        at += strspn(at, ", ");
    }
    return bits;
}

GCI void gci_env_init(gci_env *env, gci_sys *sys, const gc_options *options)
{
    const char *unknown = NULL;
    memset(env, 0, sizeof *env);
    env->sys = sys;
    env->rank = -1;
    atomic_init(&env->memory, 0);
    atomic_init(&env->memory_peak, 0);
    if (!options)
        return;
    env->alloc = options->alloc;
    env->alloc_user = options->alloc_user;
    env->log = options->log;
    env->log_user = options->log_user;
    if (options->debug)
        env->debug = sys_debug_bits(options->debug, &unknown);
    if (unknown)
        gci_log(env, GC_LOG_WARN, "debug: no such word: %.*s", (int)gci_min(strcspn(unknown, ", "), 32), unknown);
}

/* One write, so that lines stay whole. It may find the reader gone: the SIGPIPE of that is taken back before anyone sees it. */
static void sys_write_stderr(const char *line, size_t bytes)
{
    sigset_t sigpipe, before, pending;
    sigemptyset(&sigpipe);
    sigaddset(&sigpipe, SIGPIPE);
    sigemptyset(&pending);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &sigpipe, &before);
    ssize_t n = write(STDERR_FILENO, line, bytes);
    if (n < 0 && errno == EPIPE && !sigismember(&pending, SIGPIPE))
        sigtimedwait(&sigpipe, NULL, &(struct timespec){0});
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Some of the text comes from peers: what could forge a second line, or drive a terminal, becomes '?'. */
static void sys_make_one_line(char *line)
{
    for (; *line; line++)
        if ((unsigned char)*line < ' ' || *line == 0x7f)
            *line = '?';
}

static void sys_log(gci_env *env, int level, const char *format, va_list args)
{
    static const char cut[] = "...";
    char line[SYS_LOG_LINE + 1];            /* and the end of line for stderr */
    int head = env->rank >= 0 ? snprintf(line, SYS_LOG_LINE, "gridcomm[%d]: ", env->rank)
                              : snprintf(line, SYS_LOG_LINE, "gridcomm: ");
    int text = vsnprintf(line + head, (size_t)(SYS_LOG_LINE - head), format, args);
    if (text < 0)
        return;                             /* a text that cannot be converted: there is nothing to say */
    if (text >= SYS_LOG_LINE - head)
        memcpy(line + SYS_LOG_LINE - sizeof cut, cut, sizeof cut);
    sys_make_one_line(line);
    if (env->log) {
        env->log(env->log_user, level, line);
        return;
    }
    size_t bytes = strlen(line);
    line[bytes++] = '\n';
    sys_write_stderr(line, bytes);
}

GCI void gci_log(gci_env *env, int level, const char *format, ...)
{
    va_list args;
    if (!env->log && !env->debug)
        return;
    va_start(args, format);
    sys_log(env, level, format, args);
    va_end(args);
}

GCI void gci_report(gci_env *env, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    sys_log(env, GC_LOG_WARN, format, args);
    va_end(args);
}

/* strerror speaks the locale's language and may share a buffer; the other speaks English from constants. Elsewhere (musl)
 * strerror gives constants too, as does an older glibc for every number it knows. */
GCI const char *gci_strerrno(int negative_errno)
{
    const char *text = NULL;
    int number = negative_errno < 0 && negative_errno != INT_MIN ? -negative_errno : 0;
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 32)
    text = strerrordesc_np(number);
#else
    if (number < 4096)                      /* the kernel's own bound */
        text = strerror(number);
#endif
    return text ? text : "unknown error";
}

/* ---- addresses ----------------------------------------------------------------------------------------------- */

static bool sys_is_link_local(const uint8_t ip[16])
{
    return ip[0] == 0xfe && (ip[1] & 0xc0) == 0x80;
}

/* The index behind '%': a decimal number, or the name of an interface of this host. 0: neither. */
static uint32_t sys_parse_scope(const char *text)
{
    uint64_t index = 0;
    size_t digits = strspn(text, "0123456789");
    if (text[digits])
        return strlen(text) < GCI_IFNAME_BYTES ? if_nametoindex(text) : 0;
    if (digits == 0 || digits > 10)
        return 0;
    for (; *text; text++)
        index = 10 * index + (uint64_t)(*text - '0');
    return index <= UINT32_MAX ? (uint32_t)index : 0;
}

GCI int gci_addr_parse(const char *text, gci_addr *addr)
{
    char ip[INET6_ADDRSTRLEN];
    gci_addr got = {.port = addr->port};
    size_t bytes = strcspn(text, "%");
    if (bytes >= sizeof ip)
        return GC_ERR_ARG;
    memcpy(ip, text, bytes);
    ip[bytes] = 0;
    if (inet_pton(AF_INET, ip, got.ip) == 1) {
        got.family = 4;
    } else if (inet_pton(AF_INET6, ip, got.ip) == 1) {
        got.family = 6;
        if (memcmp(got.ip, sys_mapped_prefix, sizeof sys_mapped_prefix) == 0) {
            memmove(got.ip, got.ip + sizeof sys_mapped_prefix, 4);
            memset(got.ip + 4, 0, sizeof got.ip - 4);
            got.family = 4;
        }
    } else {
        return GC_ERR_ARG;
    }
    if (text[bytes] == '%') {               /* only a link-local address needs to be told where it is */
        got.scope = got.family == 6 && sys_is_link_local(got.ip) ? sys_parse_scope(text + bytes + 1) : 0;
        if (got.scope == 0)
            return GC_ERR_ARG;
    }
    *addr = got;
    return GC_OK;
}

GCI const char *gci_addr_text(const gci_addr *addr, char text[GCI_ADDR_TEXT])
{
    char ip[INET6_ADDRSTRLEN], scope[12] = "";
    if (addr->family == GCI_UNIX) {
        snprintf(text, GCI_ADDR_TEXT, "unix:%u", (unsigned)addr->port);
        text[addr->port ? strlen(text) : strcspn(text, ":")] = 0;
        return text;
    }
    if ((addr->family != 4 && addr->family != 6) ||
        !inet_ntop(addr->family == 4 ? AF_INET : AF_INET6, addr->ip, ip, sizeof ip)) {
        snprintf(text, GCI_ADDR_TEXT, "none");
        return text;
    }
    if (addr->family == 6 && addr->scope)
        snprintf(scope, sizeof scope, "%%%" PRIu32, addr->scope);
    if (addr->port == 0)
        snprintf(text, GCI_ADDR_TEXT, "%s%s", ip, scope);
    else
        snprintf(text, GCI_ADDR_TEXT, addr->family == 4 ? "%s%s:%u" : "[%s%s]:%u", ip, scope, (unsigned)addr->port);
    return text;
}

GCI bool gci_addr_equal(const gci_addr *a, const gci_addr *b)
{
    return a->family == b->family && memcmp(a->ip, b->ip, a->family == 4 ? 4 : a->family == 6 ? 16 : 0) == 0;
}

GCI bool gci_addr_same(const gci_addr *a, const gci_addr *b)
{
    return gci_addr_equal(a, b) && a->port == b->port && a->scope == b->scope;
}

GCI bool gci_addr_is_loopback(const gci_addr *addr)
{
    static const uint8_t one[16] = {[15] = 1};
    if (addr->family == 4)
        return addr->ip[0] == 127;
    if (addr->family != 6)
        return addr->family == GCI_UNIX;
    if (memcmp(addr->ip, sys_mapped_prefix, sizeof sys_mapped_prefix) == 0)     /* from a card: a peer may write anything */
        return addr->ip[sizeof sys_mapped_prefix] == 127;
    return memcmp(addr->ip, one, sizeof one) == 0;
}

/* ---- SHA-256 (FIPS 180-4) and HMAC (RFC 2104) ---------------------------------------------------------------- */

enum { SYS_SHA_BLOCK = 64, SYS_SHA_ROUNDS = 64, SYS_SHA_LENGTH_AT = 56 };

static uint32_t sys_ror(uint32_t x, unsigned bits) { return x >> bits | x << (32 - bits); }

static uint32_t sys_get_big32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void sys_put_big32(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)(v >> 24);
    p[1] = (uint8_t)(v >> 16);
    p[2] = (uint8_t)(v >> 8);
    p[3] = (uint8_t)v;
}

/* Section 6.2.2; s is a to h. */
static void sys_sha_block(uint32_t h[8], const uint8_t block[SYS_SHA_BLOCK])
{
    static const uint32_t k[SYS_SHA_ROUNDS] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
        0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
        0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
        0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
        0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
        0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
        0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
    };
    uint32_t w[SYS_SHA_ROUNDS], s[8];
    for (size_t t = 0; t < 16; t++)
        w[t] = sys_get_big32(block + 4 * t);
    for (size_t t = 16; t < SYS_SHA_ROUNDS; t++) {
        uint32_t sigma0 = sys_ror(w[t - 15], 7) ^ sys_ror(w[t - 15], 18) ^ w[t - 15] >> 3;
        uint32_t sigma1 = sys_ror(w[t - 2], 17) ^ sys_ror(w[t - 2], 19) ^ w[t - 2] >> 10;
        w[t] = sigma1 + w[t - 7] + sigma0 + w[t - 16];
    }
    memcpy(s, h, sizeof s);
    for (size_t t = 0; t < SYS_SHA_ROUNDS; t++) {
        uint32_t choose = (s[4] & s[5]) ^ (~s[4] & s[6]), majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
        uint32_t t1 = s[7] + (sys_ror(s[4], 6) ^ sys_ror(s[4], 11) ^ sys_ror(s[4], 25)) + choose + k[t] + w[t];
        uint32_t t2 = (sys_ror(s[0], 2) ^ sys_ror(s[0], 13) ^ sys_ror(s[0], 22)) + majority;
        memmove(s + 1, s, 7 * sizeof s[0]);
        s[4] += t1;
        s[0] = t1 + t2;
    }
    for (size_t i = 0; i < 8; i++)
        h[i] += s[i];
}

GCI void gci_sha256_init(gci_sha256 *sha)
{
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(sha->h, start, sizeof start);
    sha->bytes = 0;
}

GCI void gci_sha256_add(gci_sha256 *sha, const void *data, size_t bytes)
{
    const uint8_t *in = data;
    size_t held = (size_t)(sha->bytes % SYS_SHA_BLOCK);
    sha->bytes += bytes;
    while (bytes > 0) {
        size_t n = gci_min(bytes, SYS_SHA_BLOCK - held);
        if (n == SYS_SHA_BLOCK) {
            sys_sha_block(sha->h, in);
        } else {
            memcpy(sha->block + held, in, n);
            if (held + n == SYS_SHA_BLOCK)
                sys_sha_block(sha->h, sha->block);
        }
        held = 0;
        in += n;
        bytes -= n;
    }
}

GCI void gci_sha256_end(gci_sha256 *sha, uint8_t out[GCI_MAC_BYTES])
{
    static const uint8_t padding[SYS_SHA_BLOCK] = {0x80};
    uint8_t length[8];
    uint64_t bits = sha->bytes * 8;
    size_t held = (size_t)(sha->bytes % SYS_SHA_BLOCK);
    sys_put_big32(length, (uint32_t)(bits >> 32));
    sys_put_big32(length + 4, (uint32_t)bits);
    gci_sha256_add(sha, padding, (held < SYS_SHA_LENGTH_AT ? SYS_SHA_LENGTH_AT : SYS_SHA_BLOCK + SYS_SHA_LENGTH_AT) - held);
    gci_sha256_add(sha, length, sizeof length);
    for (size_t i = 0; i < 8; i++)
        sys_put_big32(out + 4 * i, sha->h[i]);
}

GCI void gci_hmac(const void *key, size_t key_bytes, const struct iovec *parts, int n, uint8_t out[GCI_MAC_BYTES])
{
    enum { INNER = 0x36, OUTER = 0x5c };
    uint8_t pad[SYS_SHA_BLOCK] = {0};
    gci_sha256 sha;
    if (key_bytes > sizeof pad) {
        gci_sha256_init(&sha);
        gci_sha256_add(&sha, key, key_bytes);
        gci_sha256_end(&sha, pad);
    } else if (key_bytes > 0) {
        memcpy(pad, key, key_bytes);
    }
    for (size_t i = 0; i < sizeof pad; i++)
        pad[i] ^= INNER;
    gci_sha256_init(&sha);
    gci_sha256_add(&sha, pad, sizeof pad);
    for (int i = 0; i < n; i++)
        gci_sha256_add(&sha, parts[i].iov_base, parts[i].iov_len);
    gci_sha256_end(&sha, out);
    for (size_t i = 0; i < sizeof pad; i++)
        pad[i] ^= INNER ^ OUTER;
    gci_sha256_init(&sha);
    gci_sha256_add(&sha, pad, sizeof pad);
    gci_sha256_add(&sha, out, GCI_MAC_BYTES);
    gci_sha256_end(&sha, out);
    explicit_bzero(pad, sizeof pad);        /* key material; what is left in sha is hashed twice */
    explicit_bzero(&sha, sizeof sha);
}

/* A comparison that stops at the first difference tells a forger, by its time, how much was right. */
GCI bool gci_equal_in_constant_time(const void *a, const void *b, size_t bytes)
{
    const volatile uint8_t *x = a, *y = b;
    unsigned different = 0;
    for (size_t i = 0; i < bytes; i++)
        different |= (unsigned)(x[i] ^ y[i]);
    return different == 0;
}
