/* gcrun_proc.c: starting and ending processes.
 * SPDX-License-Identifier: MIT
 *
 * Nothing that gcrun started may outlive it. Three nets, one behind the other:
 *   - every process that is started leads a process group of its own, which signals go to;
 *   - the node is the subreaper of all below it: a grandchild whose parent dies becomes the node's child, so everything
 *     that a rank started stays findable below the node, whatever group or session it moved to;
 *   - ranks die with their node by the kernel's hand (PR_SET_PDEATHSIG), and a node sees the end of its standard input
 *     when gcrun dies, even by SIGKILL.
 *
 * Starting uses vfork: the child borrows the parent's memory until it has called exec, so starting costs no copy of page
 * tables and a failed exec is told through a variable. The child calls only system calls.
 */
#include "gcrun.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- speaking, memory, time ---- */

static void proc_say(const char *format, va_list args)
{
    char line[2 * GCRUN_TEXT];
    int n = snprintf(line, sizeof line, "gcrun: ");
    int m = vsnprintf(line + n, sizeof line - (size_t)n - 1, format, args);
    size_t bytes = strlen(line);
    if (m < 0) return;
    line[bytes++] = '\n';
    ssize_t written = write(STDERR_FILENO, line, bytes);    /* one call: the line stays whole */
    (void)written;                                          /* nobody is left to be told */
}

void gcrun_say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    proc_say(format, args);
    va_end(args);
}

void gcrun_die(int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    proc_say(format, args);
    va_end(args);
    exit(status);
}

void *gcrun_alloc(size_t count, size_t bytes)
{
    void *p = calloc(count ? count : 1, bytes);
    if (!p) gcrun_die(GCRUN_EXIT_FAILED, "out of memory");
    return p;
}

int64_t gcrun_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- this process ---- */

int gcrun_process_begin(const int signals[], int n, gcrun_inherit *was)
{
    sigset_t set;
    struct sigaction action;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (int i = 0; i < n; i++)
        if (sigaction(signals[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN) sigaddset(&set, signals[i]);
    was->pipe_ignored = sigaction(SIGPIPE, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
    if (sigprocmask(SIG_BLOCK, &set, &was->mask) != 0) return -errno;
    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD, SIG_DFL);                   /* ignored, no exit status would come */
    prctl(PR_SET_CHILD_SUBREAPER, 1L, 0L, 0L, 0L);
    if (getrlimit(RLIMIT_NOFILE, &was->files) == 0) {
        struct rlimit most = { was->files.rlim_max, was->files.rlim_max };
        setrlimit(RLIMIT_NOFILE, &most);        /* a few descriptors a rank; children get back what was */
    }
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return fd < 0 ? -errno : fd;
}

/* ---- starting ---- */

/* In the child, on the parent's memory. Returns only if it failed. */
static int proc_become(const gcrun_spawn *s, pid_t parent)
{
    const gcrun_inherit *was = s->inherit;
    setpgid(0, 0);
    if (s->die_with_parent) {
        prctl(PR_SET_PDEATHSIG, (long)SIGKILL, 0L, 0L, 0L);
        if (getppid() != parent) return ECHILD;
    }
    for (int i = 0; i < 3; i++)
        if (s->fd[i] != i && dup2(s->fd[i], i) < 0) return errno;
    if (s->keep >= 0 && fcntl(s->keep, F_SETFD, 0) < 0) return errno;
    if (was->files.rlim_max) setrlimit(RLIMIT_NOFILE, &was->files);
    if (!was->pipe_ignored) signal(SIGPIPE, SIG_DFL);
    if (sigprocmask(SIG_SETMASK, &was->mask, NULL) != 0) return errno;
    execvpe(s->argv[0], s->argv, s->envp);
    return errno;
}

pid_t gcrun_spawn_run(const gcrun_spawn *s)
{
    pid_t parent = getpid();
    volatile int failed = 0;
    pid_t pid = vfork();
    if (pid == 0) {
        failed = proc_become(s, parent);
        _exit(GCRUN_EXIT_NO_PROGRAM);
    }
    if (pid < 0) return -errno;
    if (!failed) return pid;
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) continue;
    return -failed;
}

/* ---- ending ---- */

typedef struct proc_table { pid_t *pid, *parent; bool *below; int n, room; } proc_table;

static bool proc_add(proc_table *t, pid_t pid, pid_t parent)
{
    if (t->n == t->room) {
        int room = t->room ? 2 * t->room : 256;
        pid_t *p = realloc(t->pid, (size_t)room * sizeof *p);
        if (p) t->pid = p;
        pid_t *q = realloc(t->parent, (size_t)room * sizeof *q);
        if (q) t->parent = q;
        bool *b = realloc(t->below, (size_t)room * sizeof *b);
        if (b) t->below = b;
        if (!p || !q || !b) return false;
        t->room = room;
    }
    t->pid[t->n] = pid;
    t->parent[t->n] = parent;
    t->below[t->n++] = false;
    return true;
}

/* The parent from /proc/PID/stat: "pid (name) state ppid ..."; a name may contain anything, so look for the last ')'. A
 * zombie is left out: it is dead. -1: none. */
static pid_t proc_parent(const char *pid)
{
    char path[300], stat[512];
    snprintf(path, sizeof path, "/proc/%.280s/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    ssize_t n = read(fd, stat, sizeof stat - 1);
    close(fd);
    if (n <= 0) return -1;
    stat[n] = 0;
    char state = 0;
    int parent = -1;
    const char *after = strrchr(stat, ')');
    if (!after || sscanf(after + 1, " %c %9d", &state, &parent) != 2 || state == 'Z') return -1;
    return parent;
}

static proc_table proc_list(void)
{
    proc_table t = { NULL, NULL, NULL, 0, 0 };
    DIR *dir = opendir("/proc");
    if (!dir) return t;
    for (struct dirent *d = readdir(dir); d; d = readdir(dir)) {
        if (d->d_name[0] < '0' || d->d_name[0] > '9') continue;
        pid_t parent = proc_parent(d->d_name);
        if (parent >= 0 && !proc_add(&t, (pid_t)strtol(d->d_name, NULL, 10), parent)) break;
    }
    closedir(dir);
    return t;
}

static void proc_free(proc_table *t)
{
    free(t->pid);
    free(t->parent);
    free(t->below);
}

static bool proc_spared(pid_t pid, const pid_t spare[], int spares)
{
    for (int i = 0; i < spares; i++)
        if (spare[i] == pid) return true;
    return false;
}

/* Marks all below me; a pass per generation, since the list is in no order. */
static void proc_mark(proc_table *t, pid_t me, const pid_t spare[], int spares)
{
    for (bool more = true; more;) {
        more = false;
        for (int i = 0; i < t->n; i++) {
            bool below = t->parent[i] == me;
            for (int k = 0; k < t->n && !below; k++) below = t->below[k] && t->pid[k] == t->parent[i];
            if (!below || t->below[i] || proc_spared(t->pid[i], spare, spares)) continue;
            t->below[i] = more = true;
        }
    }
}

int gcrun_kill_descendants(int sig, const pid_t spare[], int spares)
{
    proc_table t = proc_list();
    int found = 0;
    proc_mark(&t, getpid(), spare, spares);
    for (int i = 0; i < t.n; i++) {
        if (!t.below[i]) continue;
        found++;
        kill(t.pid[i], sig);
    }
    proc_free(&t);
    return found;
}

int gcrun_children(pid_t out[], int max)
{
    proc_table t = proc_list();
    pid_t me = getpid();
    int n = 0;
    for (int i = 0; i < t.n && n < max; i++)
        if (t.parent[i] == me) out[n++] = t.pid[i];
    proc_free(&t);
    return n;
}

/* ---- descriptors ---- */

bool gcrun_nonblock(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

bool gcrun_pipe(int fd[2])
{
    return pipe2(fd, O_CLOEXEC) == 0;
}

enum gcrun_io gcrun_queue_fill(gcrun_queue *q, int fd, size_t max)
{
    if (!gcrun_queue_reserve(q, max)) gcrun_die(GCRUN_EXIT_FAILED, "out of memory");
    ssize_t n = read(fd, q->data + q->end, max);
    if (n > 0) q->end += (size_t)n;
    if (n > 0) return GCRUN_IO_OK;
    return n < 0 && (errno == EAGAIN || errno == EINTR) ? GCRUN_IO_OK : GCRUN_IO_END;
}

enum gcrun_io gcrun_queue_flush(gcrun_queue *q, int fd)
{
    while (gcrun_queue_bytes(q) > 0) {
        ssize_t n = write(fd, q->data + q->start, gcrun_queue_bytes(q));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno == EAGAIN ? GCRUN_IO_OK : GCRUN_IO_END;
        gcrun_queue_drop(q, (size_t)n);
    }
    return GCRUN_IO_OK;
}

int gcrun_polls_add(gcrun_polls *p, int fd, short events)
{
    if (fd < 0 || !events) return -1;
    if (p->n == p->room) {
        int room = p->room ? 2 * p->room : 64;
        struct pollfd *grown = realloc(p->at, (size_t)room * sizeof *grown);
        if (!grown) gcrun_die(GCRUN_EXIT_FAILED, "out of memory");
        p->at = grown;
        p->room = room;
    }
    p->at[p->n] = (struct pollfd){ .fd = fd, .events = events };
    return p->n++;
}

short gcrun_polls_seen(const gcrun_polls *p, int index)
{
    return index < 0 ? (short)0 : p->at[index].revents;
}
