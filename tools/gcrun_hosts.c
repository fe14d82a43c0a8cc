/* gcrun_hosts.c: the host file.
 * SPDX-License-Identifier: MIT
 *
 * A pure function from text to an array. A line is words separated by blanks: a host, then slots=N and cluster=PATH in
 * any order, each at most once. The alphabet of names is narrow on purpose: a host's name becomes a word of the agent's
 * command line, so it must not look like an option or like something that a shell takes apart.
 */
#include "gcrun.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct hosts_reader {
    const char *file;
    int         line;
    char       *error;
    gcrun_host *host;
    int         count, room;
    long        slots;          /* of all hosts so far */
} hosts_reader;

typedef struct hosts_word { const char *at; size_t bytes; } hosts_word;

static int hosts_fail(hosts_reader *, const char *format, ...) __attribute__((format(printf, 2, 3)));

static int hosts_fail(hosts_reader *r, const char *format, ...)
{
    char reason[GCRUN_TEXT / 2];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    snprintf(r->error, GCRUN_TEXT, "%.200s:%d: %s", r->file, r->line, reason);
    return -1;
}

/* A word for an error text: printable and short whatever is in it. */
static const char *hosts_show(hosts_word w, char out[48])
{
    size_t n = w.bytes < 40 ? w.bytes : 40;
    for (size_t i = 0; i < n; i++) out[i] = w.at[i] > ' ' && w.at[i] < 127 ? w.at[i] : '?';
    memcpy(out + n, w.bytes > n ? "..." : "", w.bytes > n ? 4 : 1);
    return out;
}

static bool hosts_only(hosts_word w, const char *punctuation)
{
    for (size_t i = 0; i < w.bytes; i++) {
        char c = w.at[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!letter && (c == 0 || !strchr(punctuation, c))) return false;
    }
    return true;
}

static int hosts_name(hosts_reader *r, hosts_word w, gcrun_host *host)
{
    char shown[48];
    if (w.bytes >= sizeof host->name) return hosts_fail(r, "host name longer than %zu bytes", sizeof host->name - 1);
    if (w.at[0] == '-') return hosts_fail(r, "a host name cannot begin with '-': '%s'", hosts_show(w, shown));
    if (memchr(w.at, '=', w.bytes)) return hosts_fail(r, "the line must begin with a host name, not '%s'", hosts_show(w, shown));
    if (!hosts_only(w, "._-:@%[]")) return hosts_fail(r, "not a host name: '%s'", hosts_show(w, shown));
    memcpy(host->name, w.at, w.bytes);
    return 0;
}

static int hosts_slots(hosts_reader *r, hosts_word value, gcrun_host *host)
{
    char shown[48];
    long n = 0;
    for (size_t i = 0; i < value.bytes; i++) {
        if (value.at[i] < '0' || value.at[i] > '9' || n > GCRUN_RANKS_MAX) { n = 0; break; }
        n = n * 10 + (value.at[i] - '0');
    }
    if (n < 1 || n > GCRUN_RANKS_MAX)
        return hosts_fail(r, "slots must be a number from 1 to %d, not '%s'", GCRUN_RANKS_MAX, hosts_show(value, shown));
    host->slots = (int)n;
    return 0;
}

static int hosts_cluster(hosts_reader *r, hosts_word value, gcrun_host *host)
{
    char shown[48];
    if (value.bytes >= sizeof host->cluster) return hosts_fail(r, "cluster path longer than %zu bytes", sizeof host->cluster - 1);
    bool empty_name = true;
    for (size_t i = 0; i < value.bytes; i++) {
        if (value.at[i] == '/' && empty_name) break;
        empty_name = value.at[i] == '/';
    }
    if (empty_name || !hosts_only(value, "._-/"))
        return hosts_fail(r, "not a path of cluster names: '%s'", hosts_show(value, shown));
    memcpy(host->cluster, value.at, value.bytes);
    return 0;
}

/* The value of w if it is KEY=..., else at NULL. */
static hosts_word hosts_value(hosts_word w, const char *key)
{
    size_t n = strlen(key);
    if (w.bytes < n || memcmp(w.at, key, n) != 0) return (hosts_word){ NULL, 0 };
    return (hosts_word){ w.at + n, w.bytes - n };
}

static int hosts_attribute(hosts_reader *r, hosts_word w, gcrun_host *host)
{
    char shown[48];
    hosts_word value = hosts_value(w, "slots=");
    if (value.at) {
        if (host->slots) return hosts_fail(r, "slots= stands twice");
        return hosts_slots(r, value, host);
    }
    value = hosts_value(w, "cluster=");
    if (value.at) {
        if (host->cluster[0]) return hosts_fail(r, "cluster= stands twice");
        return hosts_cluster(r, value, host);
    }
    return hosts_fail(r, "unknown word '%s' (slots=N and cluster=PATH are known)", hosts_show(w, shown));
}

static bool hosts_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

static int hosts_add(hosts_reader *r, const gcrun_host *host)
{
    r->slots += host->slots;
    if (r->slots > GCRUN_RANKS_MAX) return hosts_fail(r, "more than %d slots in all", GCRUN_RANKS_MAX);
    if (r->count == r->room) {
        int room = r->room ? 2 * r->room : 8;
        gcrun_host *grown = realloc(r->host, (size_t)room * sizeof *grown);
        if (!grown) return hosts_fail(r, "out of memory");
        r->host = grown;
        r->room = room;
    }
    r->host[r->count++] = *host;
    return 0;
}

static int hosts_line(hosts_reader *r, const char *at, const char *end)
{
    const char *comment = memchr(at, '#', (size_t)(end - at));
    if (comment) end = comment;
    gcrun_host host = { .slots = 0 };
    for (;;) {
        while (at < end && hosts_blank(*at)) at++;
        if (at == end) break;
        hosts_word w = { at, 0 };
        while (at < end && !hosts_blank(*at)) at++;
        w.bytes = (size_t)(at - w.at);
        int err = host.name[0] ? hosts_attribute(r, w, &host) : hosts_name(r, w, &host);
        if (err) return err;
    }
    if (!host.name[0]) return 0;
    if (!host.slots) host.slots = 1;
    return hosts_add(r, &host);
}

int gcrun_hosts_parse(const char *text, size_t bytes, const char *file, gcrun_host **hosts, int *count,
                      char error[GCRUN_TEXT])
{
    hosts_reader r = { .file = file, .error = error };
    const char *at = text, *end = text + bytes;
    int err = 0;
    *hosts = NULL;
    *count = 0;
    while (!err && at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        r.line++;
        err = hosts_line(&r, at, newline ? newline : end);
        at = newline ? newline + 1 : end;
    }
    if (!err && r.count == 0) {
        snprintf(error, GCRUN_TEXT, "%.200s: no host in it", file);
        err = -1;
    }
    if (err) {
        free(r.host);
        return err;
    }
    *hosts = r.host;
    *count = r.count;
    return 0;
}
