/* map.h: typemaps as the standard defines them (MPI 3.1, 4.1), written out entry by entry: what data types are compared with.
 * SPDX-License-Identifier: MIT
 */
#ifndef MPI_MAP_H
#define MPI_MAP_H

#include "check.h"

/* n basic elements; bounds, and whether they were set. */
typedef struct map {
    int n, room, align;
    long *at;
    unsigned char *size;
    long lb, ub;
    int any, lb_set, ub_set;            /* any: it has bounds */
} map;

static inline void map_free(map *m)
{
    free(m->at);
    free(m->size);
    memset(m, 0, sizeof *m);
}

static inline void map_entry(map *m, long at, int size)
{
    if (m->n == m->room) {
        m->room = m->room ? 2 * m->room : 8;
        m->at = realloc(m->at, (size_t)m->room * sizeof *m->at);
        m->size = realloc(m->size, (size_t)m->room);
        if (!m->at || !m->size)
            abort();
    }
    m->at[m->n] = at;
    m->size[m->n++] = (unsigned char)size;
}

static inline map map_basic(int size, int align)
{
    map m = { .align = align, .ub = size, .any = 1 };
    map_entry(&m, 0, size);
    return m;
}

/* A bound that was set counts more than one that was not; else the outermost does. */
static inline void map_bound(long *bound, int *is_set, long other, int other_is_set, int first, int sign)
{
    if (first || (other_is_set && !*is_set) || (other_is_set == *is_set && sign * other > sign * *bound))
        *bound = other;
    *is_set |= other_is_set;
}

/* Adds one element of type e, which may be without entries: at their place it has bounds all the same, as MPIs have it. */
static inline void map_put(map *m, const map *e, long at)
{
    for (int i = 0; i < e->n; i++)
        map_entry(m, at + e->at[i], e->size[i]);
    map_bound(&m->lb, &m->lb_set, at + e->lb, e->lb_set, !m->any, -1);
    map_bound(&m->ub, &m->ub_set, at + e->ub, e->ub_set, !m->any, 1);
    m->any = 1;
    if (e->align > m->align)
        m->align = e->align;
}

static inline long map_extent(const map *m) { return m->ub - m->lb; }

static inline void map_put_row(map *m, const map *e, long at, int count)
{
    for (int i = 0; i < count; i++)
        map_put(m, e, at + i * map_extent(e));
}

static inline void map_resize(map *m, long lb, long extent)
{
    m->lb = lb;
    m->ub = lb + extent;
    m->any = m->lb_set = m->ub_set = 1;
}

/* As a compiler pads a struct. */
static inline void map_pad(map *m)
{
    if (!m->ub_set && m->align > 0 && map_extent(m) % m->align)
        m->ub += m->align - map_extent(m) % m->align;
}

static inline long map_size(const map *m)
{
    long size = 0;
    for (int i = 0; i < m->n; i++)
        size += m->size[i];
    return size;
}

/* First byte of data of count elements, and the one behind the last. */
static inline void map_span(const map *m, int count, long *low, long *high)
{
    *low = *high = 0;
    for (int e = 0, first = 1; e < count; e++)
        for (int i = 0; i < m->n; i++, first = 0) {
            long at = e * map_extent(m) + m->at[i];
            if (first || at < *low)
                *low = at;
            if (first || at + m->size[i] > *high)
                *high = at + m->size[i];
        }
}

static inline void map_pack(const map *m, const unsigned char *buf, int count, unsigned char *out)
{
    for (int e = 0; e < count; e++)
        for (int i = 0; i < m->n; out += m->size[i++])
            memcpy(out, buf + e * map_extent(m) + m->at[i], m->size[i]);
}

/* At most bytes of it. */
static inline void map_unpack(const map *m, unsigned char *buf, int count, const unsigned char *in, long bytes)
{
    for (int e = 0; e < count; e++)
        for (int i = 0; i < m->n && bytes > 0; bytes -= m->size[i], in += m->size[i], i++)
            memcpy(buf + e * map_extent(m) + m->at[i], in, (size_t)(bytes < m->size[i] ? bytes : m->size[i]));
}

/* Basic elements in so many bytes, or MPI_UNDEFINED. */
static inline int map_elements(const map *m, long bytes)
{
    long rest = map_size(m) ? bytes % map_size(m) : bytes;
    int k = map_size(m) ? (int)(bytes / map_size(m)) * m->n : 0;
    for (int i = 0; i < m->n && rest > 0; rest -= m->size[i++])
        k++;
    return rest ? MPI_UNDEFINED : k;
}

/* May two entries of count elements share a byte? Then nothing can be received in them. */
static inline int map_overlaps(const map *m, int count)
{
    long low, high;
    int twice = 0;
    map_span(m, count, &low, &high);
    unsigned char *seen = calloc((size_t)(high - low) + 1, 1);
    for (int e = 0; e < count; e++)
        for (int i = 0; i < m->n; i++)
            for (int k = 0; k < m->size[i]; k++)
                twice |= seen[e * map_extent(m) + m->at[i] + k - low]++;
    free(seen);
    return twice;
}

/* A type and what it should be; derived: to be freed. */
typedef struct made { MPI_Datatype type; map map; int derived; } made;

static inline void made_free(made *m)
{
    if (m->derived)
        MPI_Type_free(&m->type);
    map_free(&m->map);
}

#endif
