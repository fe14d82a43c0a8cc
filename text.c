/* text.c: texts put together piece by piece (pure).
 * SPDX-License-Identifier: MIT
 *
 * What does not fit is counted and left out, so the caller learns how much room the whole needs. The text always has an
 * end, if there is room for anything at all.
 */
#include "gridcomm_int.h"

GCI void gci_text_begin(gci_text *t, char *text, size_t room)
{
    *t = (gci_text){ .text = text, .room = text ? room : 0 };
    if (t->room > 0)
        t->text[0] = '\0';
}

GCI void gci_text_add(gci_text *t, const char *format, ...)
{
    va_list args;
    size_t left = t->room > t->used ? t->room - t->used : 0;
    va_start(args, format);
    int bytes = vsnprintf(left > 0 ? t->text + t->used : NULL, left, format, args);
    va_end(args);
    if (bytes > 0)
        t->used += (size_t)bytes;
}

GCI void gci_text_quote(gci_text *t, const char *name)
{
    for (; *name; name++)
        gci_text_add(t, *name == '"' || *name == '\\' ? "\\%c" : "%c", (unsigned char)*name < ' ' ? '?' : *name);
}
