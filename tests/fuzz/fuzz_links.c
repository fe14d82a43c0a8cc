/* fuzz_links.c: libFuzzer target for the links file. Whatever the bytes are, the parser refuses them with a text that names the
 * line, or gives requirements that keep its promises (nothing in them looks like an option, users are plain names), and
 * that read the same when written out again. Patterns are held against each other: it must end.
 * SPDX-License-Identifier: MIT
 *
 * covers: linksfile.c ^(links_|gci_links_parse|gci_pattern_fits)
 */
#include "gridcomm_int.h"
#include "tests/fuzz/fuzz.h"

static void check_word(const char *text, size_t room)
{
    size_t n = strnlen(text, room);
    must(n > 0 && n < room && text[0] != '-');
    for (size_t i = 0; i < n; i++)
        must((unsigned char)text[i] > ' ' && text[i] != 0x7f && text[i] != '#');
}

static void check(gci_env *env, const gci_require *q)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+@";
    char line[2 * sizeof *q], error[GCI_TEXT];
    gci_require *again;
    int count;
    check_word(q->from, sizeof q->from);
    check_word(q->to, sizeof q->to);
    if (q->user[0])
        check_word(q->user, sizeof q->user);
    must(q->user[strspn(q->user, plain)] == 0);
    int n = snprintf(line, sizeof line, "require\t%s %s user=%s via=ssh\r\n", q->from, q->to, q->user);
    must(gci_links_parse(env, line, (size_t)n, &again, &count, error) == GC_OK && count == 1);
    must(strcmp(again->from, q->from) == 0 && strcmp(again->to, q->to) == 0 && strcmp(again->user, q->user) == 0);
    gci_free(env, again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    gci_env env;
    char error[GCI_TEXT];
    gci_require *out;
    int n;
    gci_env_init(&env, gci_sys_real(), NULL);
    int err = gci_links_parse(&env, (const char *)data, bytes, &out, &n, error);
    if (err != GC_OK) {
        must(err == GC_ERR_CONFIG && !out && n == 0);
        must(memchr(error, 0, sizeof error) && strncmp(error, "links file, line ", 17) == 0);
    } else {
        must(error[0] == 0 && n >= 0 && (n > 0) == (out != NULL));
        for (int i = 0; i < n; i++) {
            check(&env, &out[i]);
            if (gci_pattern_fits(out[i].from, out[0].to))
                must(gci_pattern_fits("*", out[0].to));
            if (!strpbrk(out[i].to, "*?"))
                must(gci_pattern_fits(out[i].to, out[i].to));
        }
        gci_free(&env, out);
    }
    must(env.memory == 0);
    return 0;
}
