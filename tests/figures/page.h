/* page.h: pages of docs/ in which a program rewrites what stands between <!-- NAME --> and <!-- end -->.
 * SPDX-License-Identifier: MIT
 */
#ifndef PAGE_H
#define PAGE_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_MAX = 1 << 18 };
typedef struct text { char at[TEXT_MAX]; size_t used; } text;

static inline void fail(const char *what)
{
    fprintf(stderr, "figures: %s\n", what);
    exit(1);
}

static inline void say(text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static inline void say(text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(t->at + t->used, sizeof t->at - t->used, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof t->at - t->used)
        fail("a text is too long");
    t->used += (size_t)n;
}

static inline FILE *file_open(const char *directory, const char *file, const char *mode)
{
    char name[4096];
    FILE *f = snprintf(name, sizeof name, "%s/%s", directory, file) < (int)sizeof name ? fopen(name, mode) : NULL;
    if (!f)
        fail("cannot open a file in that directory");
    return f;
}

static inline void file_write(const char *directory, const char *file, const text *t)
{
    FILE *f = file_open(directory, file, "w");
    if (fwrite(t->at, 1, t->used, f) != t->used || fclose(f) != 0)
        fail("cannot write");
}

static inline void file_read(const char *directory, const char *file, text *t)
{
    FILE *f = file_open(directory, file, "r");
    t->used = fread(t->at, 1, sizeof t->at - 1, f);
    t->at[t->used] = 0;
    fclose(f);
}

/* Puts the table between its marks. */
static inline void part_replace(text *page, const char *name, const text *table)
{
    static text rest;
    char mark[64];
    snprintf(mark, sizeof mark, "<!-- %s -->\n", name);
    char *begin = strstr(page->at, mark), *end = begin ? strstr(begin, "<!-- end -->") : NULL;
    if (!end)
        fail("a mark is missing in the page");
    rest.used = 0;
    say(&rest, "%s", end);
    page->used = (size_t)(begin - page->at) + strlen(mark);
    say(page, "%s%s", table->at, rest.at);
}

#endif
