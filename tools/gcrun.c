/* gcrun.c: starts the processes of a job, here or on other hosts. Options and main; the work is in the other gcrun_ files.
 * SPDX-License-Identifier: MIT
 */
#include "gcrun.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAIN_HOSTFILE_MAX = 16 << 20 };      /* bytes: 65,536 lines of the longest names */
#define MAIN_AGENT "ssh -o BatchMode=yes -o ControlMaster=no"   /* never asks: gcrun has the terminal; leaves nothing that outlives it */
#define MAIN_START_TIMEOUT 60.0             /* s; as the library's own */

static const char main_usage[] =
    "usage: gcrun -n N [-H HOSTFILE] [options] [--] PROGRAM [ARGUMENTS]\n"
    "Starts N processes (ranks 0 to N-1) of a gridcomm job and ends when all have ended.\n"
    "\n"
    "  -n N                   how many; without it, as many as the host file has slots\n"
    "  -H, --hostfile FILE    where: lines `host [slots=N] [cluster=path/of/names]`, # begins a comment; ranks fill\n"
    "                         the slots in order. Without it, all on this host\n"
    "  --agent COMMAND        how to run something on another host: COMMAND host command... (default: " MAIN_AGENT ");\n"
    "                         if given, this host goes through it too. The command runs with standard input and output\n"
    "  --gcrun PATH           gcrun on the other hosts (default: the path of this one)\n"
    "  --on-failure kill|wait when a rank fails: end the others (default), or let them go on to their end\n"
    "  --no-prefix            output as it comes. Otherwise each line has `[rank] ` in front; a line of more than\n"
    "                         16 KiB is cut, the further pieces have `[rank]+`\n"
    "  --wdir DIR             working directory of the ranks (default: this one)\n"
    "  -x NAME[=VALUE]        pass a variable to the ranks; those named GRIDCOMM_* are always passed\n"
    "  --start-timeout S      seconds for all hosts to answer (default 60, or GRIDCOMM_START_TIMEOUT)\n"
    "  -h, --help             this text\n"
    "\n"
    "Standard input goes to rank 0. SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 go to all ranks; a second\n"
    "SIGINT, SIGTERM, SIGHUP or SIGQUIT kills them. Exit status: 0 if every rank's is 0, else that of the first rank that\n"
    "failed (128 + signal if it was killed); 127 if the program or the agent does not exist; 2 for wrong usage; 1 if\n"
    "something else kept the job from running.\n";

typedef struct main_state {
    gcrun_options opt;
    const char   *hostfile, *agent;
    char          cwd[PATH_MAX];
} main_state;

static long main_number(const char *name, const char *text, long low, long high)
{
    char *end;
    errno = 0;
    long n = strtol(text, &end, 10);
    if (errno || *end || end == text || n < low || n > high)
        gcrun_die(GCRUN_EXIT_USAGE, "%s needs a number from %ld to %ld, not '%s'", name, low, high, text);
    return n;
}

static double main_seconds(const char *name, const char *text)
{
    char *end;
    double s = strtod(text, &end);
    if (*end || end == text || !(s > 0 && s < 1e6))
        gcrun_die(GCRUN_EXIT_USAGE, "%s needs seconds, more than 0, not '%s'", name, text);
    return s;
}

static char *main_copy(const char *text, size_t bytes)
{
    char *copy = gcrun_alloc(bytes + 1, 1);
    memcpy(copy, text, bytes);
    return copy;
}

static void main_variable(gcrun_options *opt, const char *text)
{
    size_t name = strcspn(text, "=");
    const char *value = text[name] ? NULL : getenv(text);
    char *variable;
    if (name == 0) gcrun_die(GCRUN_EXIT_USAGE, "-x needs a name, not '%s'", text);
    if (!text[name] && !value) gcrun_die(GCRUN_EXIT_USAGE, "-x %s: there is no such variable", text);
    if (!value) {
        variable = main_copy(text, strlen(text));
    } else {
        size_t bytes = name + strlen(value) + 2;
        variable = gcrun_alloc(bytes, 1);
        snprintf(variable, bytes, "%s=%s", text, value);
    }
    opt->env[opt->envs++] = variable;
}

enum main_option { MAIN_N, MAIN_HOSTS, MAIN_AGENT_COMMAND, MAIN_PATH, MAIN_ON_FAILURE, MAIN_NO_PREFIX, MAIN_WDIR, MAIN_X,
                   MAIN_TIMEOUT, MAIN_HELP };

static const struct { const char *name; enum main_option option; bool value; } main_options[] = {
    { "-n", MAIN_N, true }, { "-H", MAIN_HOSTS, true }, { "--hostfile", MAIN_HOSTS, true },
    { "--agent", MAIN_AGENT_COMMAND, true }, { "--gcrun", MAIN_PATH, true }, { "--on-failure", MAIN_ON_FAILURE, true },
    { "--no-prefix", MAIN_NO_PREFIX, false }, { "--wdir", MAIN_WDIR, true }, { "-x", MAIN_X, true },
    { "--start-timeout", MAIN_TIMEOUT, true }, { "-h", MAIN_HELP, false }, { "--help", MAIN_HELP, false } };
enum { MAIN_OPTIONS = sizeof main_options / sizeof main_options[0] };

/* -1: no such option. `--name=value` and `-nvalue` are split. */
static int main_find(const char *word, const char **value)
{
    *value = NULL;
    for (int i = 0; i < MAIN_OPTIONS; i++) {
        size_t bytes = strlen(main_options[i].name);
        if (strncmp(word, main_options[i].name, bytes) != 0) continue;
        if (word[bytes] == 0) return i;
        bool is_long = word[1] == '-';
        if (!main_options[i].value || (is_long && word[bytes] != '=')) continue;
        *value = word + bytes + (is_long ? 1 : 0);
        return i;
    }
    return -1;
}

static void main_on_failure(gcrun_options *opt, const char *value)
{
    if (strcmp(value, "wait") != 0 && strcmp(value, "kill") != 0)
        gcrun_die(GCRUN_EXIT_USAGE, "--on-failure is kill or wait, not '%s'", value);
    opt->wait = value[0] == 'w';
}

static void main_option(main_state *m, int index, const char *value)
{
    gcrun_options *opt = &m->opt;
    switch (main_options[index].option) {
    case MAIN_N:             opt->ranks = (int)main_number("-n", value, 1, GCRUN_RANKS_MAX); break;
    case MAIN_HOSTS:         m->hostfile = value; break;
    case MAIN_AGENT_COMMAND: m->agent = value; opt->agent_given = true; break;
    case MAIN_PATH:          opt->node_path = (char *)value; break;
    case MAIN_ON_FAILURE:    main_on_failure(opt, value); break;
    case MAIN_NO_PREFIX:     opt->prefix = false; break;
    case MAIN_WDIR:          opt->cwd = value; break;
    case MAIN_X:             main_variable(opt, value); break;
    case MAIN_TIMEOUT:       opt->start_timeout = main_seconds("--start-timeout", value); break;
    case MAIN_HELP:
        fputs(main_usage, stdout);
        exit(fflush(stdout) == 0 ? 0 : GCRUN_EXIT_FAILED);
    }
}

static void main_arguments(main_state *m, int argc, char **argv)
{
    int at = 1;
    m->opt.env = gcrun_alloc((size_t)argc, sizeof *m->opt.env);
    for (; at < argc && argv[at][0] == '-' && argv[at][1]; at++) {
        const char *value;
        if (strcmp(argv[at], "--") == 0) { at++; break; }
        int index = main_find(argv[at], &value);
        if (index < 0) gcrun_die(GCRUN_EXIT_USAGE, "unknown option '%s' (gcrun --help lists them)", argv[at]);
        if (main_options[index].value && !value) {
            if (at + 1 == argc) gcrun_die(GCRUN_EXIT_USAGE, "%s needs a value", argv[at]);
            value = argv[++at];
        }
        main_option(m, index, value);
    }
    m->opt.arg = argv + at;
    m->opt.args = argc - at;
    if (m->opt.args == 0) gcrun_die(GCRUN_EXIT_USAGE, "which program? (gcrun --help explains)");
}

static char *main_read(const char *path, size_t *bytes)
{
    gcrun_queue q = { NULL, 0, 0, 0 };
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) gcrun_die(GCRUN_EXIT_USAGE, "%s: %s", path, strerror(errno));
    for (;;) {
        size_t before = gcrun_queue_bytes(&q);
        errno = 0;
        enum gcrun_io io = gcrun_queue_fill(&q, fd, 65536);
        if (io == GCRUN_IO_END && errno) gcrun_die(GCRUN_EXIT_USAGE, "%s: %s", path, strerror(errno));
        if (io == GCRUN_IO_END) break;
        if (before > MAIN_HOSTFILE_MAX) gcrun_die(GCRUN_EXIT_USAGE, "%s: too long for a host file", path);
    }
    close(fd);
    *bytes = gcrun_queue_bytes(&q);
    char *text = main_copy((const char *)q.data + q.start, *bytes);
    gcrun_queue_free(&q);
    return text;
}

/* Ranks fill the slots in the order of the file; hosts that get none are left out. */
static void main_hosts(main_state *m)
{
    gcrun_options *opt = &m->opt;
    if (!m->hostfile) {
        if (!opt->ranks) gcrun_die(GCRUN_EXIT_USAGE, "how many? -n N, or -H with a host file");
        opt->host = gcrun_alloc(1, sizeof *opt->host);
        opt->hosts = 1;
        opt->host[0].slots = opt->ranks;
        snprintf(opt->host[0].name, sizeof opt->host[0].name, "localhost");
        return;
    }
    char error[GCRUN_TEXT];
    size_t bytes;
    int slots = 0, left;
    char *text = main_read(m->hostfile, &bytes);
    if (gcrun_hosts_parse(text, bytes, m->hostfile, &opt->host, &opt->hosts, error) != 0)
        gcrun_die(GCRUN_EXIT_USAGE, "%s", error);
    free(text);
    for (int i = 0; i < opt->hosts; i++) slots += opt->host[i].slots;
    if (opt->ranks > slots) gcrun_die(GCRUN_EXIT_USAGE, "-n %d is more than the %d slots in %s", opt->ranks, slots, m->hostfile);
    if (!opt->ranks) opt->ranks = slots;
    left = opt->ranks;
    for (int i = 0; i < opt->hosts; i++) {
        if (left == 0) opt->hosts = i;
        else if (opt->host[i].slots > left) opt->host[i].slots = left;
        if (i < opt->hosts) left -= opt->host[i].slots;
    }
}

static void main_agent(main_state *m)
{
    gcrun_options *opt = &m->opt;
    const char *at = m->agent ? m->agent : MAIN_AGENT;
    opt->agent = gcrun_alloc(strlen(at) / 2 + 2, sizeof *opt->agent);
    while (*(at += strspn(at, " \t"))) {
        size_t bytes = strcspn(at, " \t");
        opt->agent[opt->agent_words++] = main_copy(at, bytes);
        at += bytes;
    }
    if (opt->agent_words == 0) gcrun_die(GCRUN_EXIT_USAGE, "--agent needs a command");
}

/* The path goes through an agent, which may or may not hand it to a shell: so only names that both read alike. */
static void main_node_path(main_state *m)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+,:@%";
    char self[PATH_MAX];
    if (!m->opt.node_path) {
        ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
        if (n <= 0) gcrun_die(GCRUN_EXIT_FAILED, "cannot find the path of gcrun: %s", strerror(errno));
        m->opt.node_path = main_copy(self, (size_t)n);
    } else {
        m->opt.node_path = main_copy(m->opt.node_path, strlen(m->opt.node_path));
    }
    bool remote = m->agent != NULL || m->hostfile != NULL;
    if (remote && m->opt.node_path[strspn(m->opt.node_path, plain)])
        gcrun_die(GCRUN_EXIT_USAGE, "the path of gcrun has characters that a remote shell may misread; --gcrun names another: %s",
                  m->opt.node_path);
}

static void main_free(main_state *m)
{
    for (int i = 0; i < m->opt.agent_words; i++) free(m->opt.agent[i]);
    for (int i = 0; i < m->opt.envs; i++) free(m->opt.env[i]);
    free(m->opt.agent);
    free(m->opt.env);
    free(m->opt.host);
    free(m->opt.node_path);
}

int main(int argc, char **argv)
{
    main_state m = { .opt = { .prefix = true, .start_timeout = MAIN_START_TIMEOUT } };
    int fd;
    while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd <= STDERR_FILENO) continue;      /* 0, 1 and 2 are never pipes of ours */
    if (fd >= 0) close(fd);
    if (argc == 2 && strcmp(argv[1], "--node") == 0) return gcrun_node_main();
    const char *timeout = getenv("GRIDCOMM_START_TIMEOUT");
    if (timeout && *timeout) m.opt.start_timeout = main_seconds("GRIDCOMM_START_TIMEOUT", timeout);
    main_arguments(&m, argc, argv);
    main_hosts(&m);
    main_agent(&m);
    main_node_path(&m);
    if (!m.opt.cwd) {
        if (!getcwd(m.cwd, sizeof m.cwd)) gcrun_die(GCRUN_EXIT_FAILED, "cannot find the working directory: %s", strerror(errno));
        m.opt.cwd = m.cwd;
    }
    int status = gcrun_head_main(&m.opt);
    main_free(&m);
    return status;
}
