/* linksfile.c: the file that says which links are made by ssh (GRIDCOMM_LINKS, docs/links.md) (pure).
 * SPDX-License-Identifier: MIT
 *
 * One line, one link that is required; the first that fits a pair counts. The file is the user's own, but it may be damaged or
 * not be one at all, and what it names becomes words of a command line: nothing is taken over that could be read as
 * an option or by a shell, every length is bounded, and an error shows the line and the word, printable whatever is in it.
 */
#include "gridcomm_int.h"

enum { LINKS_MAX = 4096, LINKS_SHOWN = 40 };    /* lines; bytes of a word in an error text */

typedef struct links_reader {
    gci_env *env;
    char    *error;             /* [GCI_TEXT] */
    int      line, n, room;
    gci_require *out;
} links_reader;

typedef struct links_word { const char *at; size_t bytes; } links_word;

static int links_fail(links_reader *, links_word, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Refuses the line; the word is shown behind the text, printable and short whatever is in it. */
static int links_fail(links_reader *r, links_word w, const char *format, ...)
{
    char reason[GCI_TEXT / 2], shown[LINKS_SHOWN + 1];
    size_t n = gci_min(w.bytes, LINKS_SHOWN);
    va_list args;
    for (size_t i = 0; i < n; i++)
        shown[i] = w.at[i] > ' ' && w.at[i] <= '~' ? w.at[i] : '?';
    shown[n] = 0;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    snprintf(r->error, GCI_TEXT, "links file, line %d: %s", r->line, reason);
    if (w.at)
        snprintf(r->error + strlen(r->error), GCI_TEXT - strlen(r->error), " '%s%s'", shown, w.bytes > n ? "..." : "");
    return GC_ERR_CONFIG;
}

/* Words end at blanks, and a comment ends the line. bytes 0: no more. */
static links_word links_next(const char **at, const char *end)
{
    while (*at < end && (**at == ' ' || **at == '\t'))
        ++*at;
    links_word w = { *at, 0 };
    while (*at < end && **at != ' ' && **at != '\t' && **at != '#')
        ++*at;
    w.bytes = (size_t)(*at - w.at);
    if (*at < end && **at == '#')
        *at = end;
    return w;
}

/* What becomes a word of a command line must not look like an option, nor hold what nobody can see. */
static int links_take(links_reader *r, links_word w, const char *what, char *out, size_t room)
{
    if (w.bytes == 0)
        return links_fail(r, (links_word){ NULL, 0 }, "no %s", what);
    if (w.at[0] == '-')
        return links_fail(r, w, "a %s cannot begin with '-':", what);
    for (size_t i = 0; i < w.bytes; i++)
        if ((unsigned char)w.at[i] <= ' ' || w.at[i] == 0x7f)
            return links_fail(r, w, "not a %s:", what);
    if (w.bytes >= room)
        return links_fail(r, w, "a %s is at most %zu bytes long:", what, room - 1);
    memcpy(out, w.at, w.bytes);
    out[w.bytes] = 0;
    return GC_OK;
}

/* Names of users are plain, because ssh hands them to shells (%r). */
static int links_user(links_reader *r, links_word w, gci_require *q)
{
    for (size_t i = 0; i < w.bytes; i++) {
        char c = w.at[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!plain && (c == 0 || !strchr("._-+@", c)))
            return links_fail(r, w, "not a user:");
    }
    return w.bytes ? links_take(r, w, "user", q->user, sizeof q->user) : GC_OK;
}

/* KEY=VALUE: is it this key? Then w becomes the value. */
static bool links_is(links_word *w, const char *key)
{
    size_t n = strlen(key);
    if (w->bytes < n || memcmp(w->at, key, n) != 0)
        return false;
    w->at += n;
    w->bytes -= n;
    return true;
}

static int links_keys(links_reader *r, const char *at, const char *end, gci_require *q)
{
    bool via = false, user = false;
    for (links_word w = links_next(&at, end); w.bytes; w = links_next(&at, end)) {
        links_word whole = w;
        int err = GC_OK;
        if (links_is(&w, "via=")) {
            if (via)
                return links_fail(r, (links_word){ NULL, 0 }, "via= stands twice");
            if (w.bytes != 3 || memcmp(w.at, "ssh", 3) != 0)
                return links_fail(r, w, "via= can be ssh only, not");
            via = true;
        } else if (links_is(&w, "user=")) {
            if (user)
                return links_fail(r, (links_word){ NULL, 0 }, "user= stands twice");
            err = links_user(r, w, q);
            user = true;
        } else {
            const char *equals = memchr(w.at, '=', w.bytes);
            if (equals)
                whole.bytes = (size_t)(equals - w.at) + 1;
            return links_fail(r, whole, equals ? "unknown key" : "unknown word");
        }
        if (err < 0)
            return err;
    }
    return via ? GC_OK : links_fail(r, (links_word){ NULL, 0 }, "via=ssh is missing");
}

static int links_line(links_reader *r, const char *at, const char *end)
{
    gci_require q = { .user = "" };
    int err;
    if (memchr(at, 0, (size_t)(end - at)))
        return links_fail(r, (links_word){ NULL, 0 }, "a NUL byte: not a text");
    if (end > at && end[-1] == '\r')
        end--;
    links_word w = links_next(&at, end);
    if (w.bytes == 0)
        return GC_OK;
    if (w.bytes != 7 || memcmp(w.at, "require", 7) != 0)
        return links_fail(r, w, "unknown word");
    if ((err = links_take(r, links_next(&at, end), "source pattern", q.from, sizeof q.from)) < 0
        || (err = links_take(r, links_next(&at, end), "destination pattern", q.to, sizeof q.to)) < 0
        || (err = links_keys(r, at, end, &q)) < 0)
        return err;
    if (r->n == LINKS_MAX)
        return links_fail(r, (links_word){ NULL, 0 }, "more than %d links are required", LINKS_MAX);
    if (r->n == r->room) {
        int room = r->room ? 2 * r->room : 8;
        gci_require *grown = gci_realloc(r->env, r->out, (size_t)room * sizeof q);
        if (!grown)
            return GC_ERR_NOMEM;
        r->out = grown;
        r->room = room;
    }
    r->out[r->n++] = q;
    return GC_OK;
}

GCI int gci_links_parse(gci_env *env, const char *text, size_t bytes, gci_require **out, int *n, char error_text[GCI_TEXT])
{
    links_reader r = { .env = env, .error = error_text };
    const char *at = text, *end = text + bytes;
    int err = GC_OK;
    error_text[0] = 0;
    while (at < end && err == GC_OK) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        r.line++;
        err = links_line(&r, at, stop ? stop : end);
        at = stop ? stop + 1 : end;
    }
    if (err < 0) {
        gci_free(env, r.out);
        r.out = NULL;
        r.n = 0;
    }
    *out = r.out;
    *n = r.n;
    return err;
}

/* On a mismatch the last star takes one byte more: earlier stars need no second look, so it is O(pattern * text). */
GCI bool gci_pattern_part_fits(const char *pattern, size_t bytes, const char *text)
{
    const char *end = pattern + bytes, *star = NULL, *retry = NULL;
    while (*text) {
        if (pattern < end && *pattern == '*') {
            star = ++pattern;
            retry = text;
        } else if (pattern < end && (*pattern == '?' || *pattern == *text)) {
            pattern++;
            text++;
        } else if (star) {
            pattern = star;
            text = ++retry;
        } else
            return false;
    }
    while (pattern < end && *pattern == '*')
        pattern++;
    return pattern == end;
}

GCI bool gci_pattern_fits(const char *pattern, const char *text)
{
    return gci_pattern_part_fits(pattern, strlen(pattern), text);
}
