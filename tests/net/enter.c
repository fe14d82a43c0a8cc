/* enter.c: runs a command on a host of the test bed.
 *
 * SPDX-License-Identifier: MIT
 *
 *     enter DIR HOST command...            runs the command itself
 *     enter --agent DIR HOST command...    like ssh: joins the words with blanks and hands them to the host's /bin/sh
 *
 * DIR is a bed's state directory; its files HOST.net and HOST.uts are the host's network and UTS namespaces, and if there is
 * a HOST.hosts, the command sees it as /etc/hosts. Otherwise nothing is mounted. No process stays between, so 64 starts cost
 * milliseconds, and signals and exit codes are the command's.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

enum { PATH_BYTES = 4096, EXIT_NOT_ENTERED = 125, EXIT_NOT_RUN = 127 };     /* as env and sh have them */

static int join(const char *dir, const char *host, const char *kind, int type)
{
    char path[PATH_BYTES];
    if ((size_t)snprintf(path, sizeof path, "%s/%s.%s", dir, host, kind) >= sizeof path) return -1;
    const int ns = open(path, O_RDONLY | O_CLOEXEC);
    const int bad = ns < 0 || setns(ns, type) < 0 ? -1 : 0;
    if (bad) fprintf(stderr, "enter: %s: %s\n", path, strerror(errno));
    if (ns >= 0) close(ns);
    return bad;
}

/* The host's own /etc/hosts, if it has one, for this process and its children. */
static int mount_names(const char *dir, const char *host)
{
    char path[PATH_BYTES];
    if ((size_t)snprintf(path, sizeof path, "%s/%s.hosts", dir, host) >= sizeof path) return -1;
    if (access(path, F_OK) < 0) return 0;
    if (unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0
        && mount(path, "/etc/hosts", NULL, MS_BIND, NULL) == 0) return 0;
    fprintf(stderr, "enter: %s: %s\n", path, strerror(errno));
    return -1;
}

static char *joined(char **words)
{
    size_t bytes = 1;
    for (char **w = words; *w; w++) bytes += strlen(*w) + 1;
    char *text = malloc(bytes), *end = text;
    if (!text) return NULL;
    for (char **w = words; *w; w++) {
        const size_t n = strlen(*w);
        if (w != words) *end++ = ' ';
        memcpy(end, *w, n);
        end += n;
    }
    *end = 0;
    return text;
}

int main(int argc, char **argv)
{
    const int agent = argc > 1 && strcmp(argv[1], "--agent") == 0;
    char **arg = argv + 1 + agent;
    if (argc - agent < 4) {
        fprintf(stderr, "usage: enter [--agent] DIR HOST command...\n");
        return EXIT_NOT_ENTERED;
    }
    if (join(arg[0], arg[1], "net", CLONE_NEWNET) < 0 || join(arg[0], arg[1], "uts", CLONE_NEWUTS) < 0
        || mount_names(arg[0], arg[1]) < 0) return EXIT_NOT_ENTERED;
    if (agent) {
        char *line = joined(arg + 2);
        if (line) execl("/bin/sh", "sh", "-c", line, (char *)NULL);
    } else {
        execvp(arg[2], arg + 2);
    }
    fprintf(stderr, "enter: %s: %s\n", arg[2], strerror(errno));
    return EXIT_NOT_RUN;
}
