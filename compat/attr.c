/* attr.c: attributes of communicators: those that are always there, and those of programs, with their keys.
 * SPDX-License-Identifier: MIT
 *
 * A communicator has a list of attributes, the newest first. An attribute keeps its key, which may have been freed meanwhile.
 * The program's functions are called without the lock: they may set and get attributes themselves.
 */
#include "mpi_int.h"

#include <pthread.h>

enum { KEY_FIRST = 100 };               /* beyond those of the standard */

struct gcm_key {
    gcm_object object;
    struct gcm_key *next;
    int number, refs;                   /* refs: the program, and attributes */
    bool freed;                         /* by the program */
    MPI_Comm_copy_attr_function *copy;  /* or NULL */
    MPI_Comm_delete_attr_function *end; /* or NULL */
    void *extra;
};

struct gcm_attr { gcm_object object; struct gcm_attr *next; struct gcm_key *key; void *value; };

static struct keys { pthread_mutex_t lock; struct gcm_key *first; int next; } keys =
    { .lock = PTHREAD_MUTEX_INITIALIZER, .next = KEY_FIRST };

int MPI_COMM_DUP_FN(MPI_Comm comm, int key, void *extra, void *value, void *out, int *flag)
{
    (void)comm, (void)key, (void)extra;
    memcpy(out, &value, sizeof value);
    *flag = 1;
    return MPI_SUCCESS;
}

/* ---- keys: with the lock ----------------------------------------------------------------------------------------- */

static struct gcm_key *key_find(int number)
{
    struct gcm_key *k = keys.first;
    while (k && k->number != number)
        k = k->next;
    return k;
}

static void key_drop(struct gcm_key *key)
{
    if (--key->refs > 0)
        return;
    struct gcm_key **at = &keys.first;
    while (*at != key)
        at = &(*at)->next;
    *at = key->next;
    gcm_delete(key);
}

/* Where a communicator's attribute of that key is, or would be behind all others. */
static struct gcm_attr **attr_find(MPI_Comm comm, int number)
{
    struct gcm_attr **at = &comm->attrs;
    while (*at && (*at)->key->number != number)
        at = &(*at)->next;
    return at;
}

/* ---- attributes -------------------------------------------------------------------------------------------------- */

/* Calls the function that ends the attribute, and takes it out if that allows. Returns what the function does. */
static int attr_end(MPI_Comm comm, int number)
{
    pthread_mutex_lock(&keys.lock);
    struct gcm_attr *a = *attr_find(comm, number);
    struct gcm_key key = a ? *a->key : (struct gcm_key){ .end = NULL };
    void *value = a ? a->value : NULL;
    pthread_mutex_unlock(&keys.lock);
    int code = key.end ? key.end(comm, number, value, key.extra) : MPI_SUCCESS;
    pthread_mutex_lock(&keys.lock);
    struct gcm_attr **at = attr_find(comm, number);
    if (!code && (a = *at) != NULL) {
        *at = a->next;
        key_drop(a->key);
        gcm_delete(a);
    }
    pthread_mutex_unlock(&keys.lock);
    return code;
}

/* The newest's key, or MPI_KEYVAL_INVALID: there is none. */
static int attr_newest(MPI_Comm comm)
{
    pthread_mutex_lock(&keys.lock);
    int number = comm->attrs ? comm->attrs->key->number : MPI_KEYVAL_INVALID;
    pthread_mutex_unlock(&keys.lock);
    return number;
}

GCM int gcm_attrs_end(MPI_Comm comm)
{
    int code = MPI_SUCCESS;
    for (int number; !code && (number = attr_newest(comm)) != MPI_KEYVAL_INVALID; )
        code = attr_end(comm, number);
    return code;
}

/* MPI_SUCCESS, or an error class. */
static int attr_put(MPI_Comm comm, int number, void *value)
{
    struct gcm_attr *a = gcm_new(sizeof *a);
    if (!a)
        return MPI_ERR_NO_MEM;
    pthread_mutex_lock(&keys.lock);
    struct gcm_key *key = key_find(number);
    if (key) {
        key->refs++;
        a->next = comm->attrs;
        a->key = key;
        a->value = value;
        comm->attrs = a;
    }
    pthread_mutex_unlock(&keys.lock);
    if (!key)
        gcm_delete(a);
    return key ? MPI_SUCCESS : MPI_ERR_KEYVAL;
}

static int attr_copy(MPI_Comm from, MPI_Comm to, const struct gcm_key *key, void *old)
{
    void *value = NULL;
    int flag = 0, code = key->copy ? key->copy(from, key->number, key->extra, old, &value, &flag) : MPI_SUCCESS;
    return code || !flag ? code : attr_put(to, key->number, value);
}

/* The program's functions may change the list meanwhile, so it is copied first. The oldest goes first, so that those of the copy
 * are as old as each other's. */
GCM int gcm_attrs_copy(MPI_Comm from, MPI_Comm to)
{
    struct known { struct gcm_key key; void *value; } *all = NULL;
    int n = 0, code = MPI_SUCCESS;
    pthread_mutex_lock(&keys.lock);
    for (const struct gcm_attr *a = from->attrs; a; a = a->next)
        n++;
    if (n > 0 && (all = malloc((size_t)n * sizeof *all)) != NULL) {
        int i = 0;
        for (const struct gcm_attr *a = from->attrs; a; a = a->next)
            all[i++] = (struct known){ *a->key, a->value };
    }
    pthread_mutex_unlock(&keys.lock);
    if (n > 0 && !all)
        return MPI_ERR_NO_MEM;
    while (n-- > 0 && !code)
        code = attr_copy(from, to, &all[n].key, all[n].value);
    free(all);
    return code;
}

/* ---- the program's keys ------------------------------------------------------------------------------------------ */

int MPI_Comm_create_keyval(MPI_Comm_copy_attr_function *copy, MPI_Comm_delete_attr_function *end, int *number, void *extra)
{
    if (!number)
        return GCM_FAIL(NULL, MPI_ERR_ARG);
    struct gcm_key *k = gcm_new(sizeof *k);
    if (!k)
        return GCM_FAIL(NULL, MPI_ERR_NO_MEM);
    k->copy = copy;
    k->end = end;
    k->extra = extra;
    k->refs = 1;
    pthread_mutex_lock(&keys.lock);
    *number = k->number = keys.next++;
    k->next = keys.first;
    keys.first = k;
    pthread_mutex_unlock(&keys.lock);
    return MPI_SUCCESS;
}

int MPI_Comm_free_keyval(int *number)
{
    pthread_mutex_lock(&keys.lock);
    struct gcm_key *k = number ? key_find(*number) : NULL;
    bool drop = k && !k->freed;         /* programs free copies of a key that attributes still have */
    if (drop) {
        k->freed = true;
        key_drop(k);
    }
    pthread_mutex_unlock(&keys.lock);
    if (!k)
        return GCM_FAIL(NULL, MPI_ERR_KEYVAL);
    *number = MPI_KEYVAL_INVALID;
    return MPI_SUCCESS;
}

static bool key_known(int number)
{
    pthread_mutex_lock(&keys.lock);
    bool known = key_find(number) != NULL;
    pthread_mutex_unlock(&keys.lock);
    return known;
}

static int attr_check(MPI_Comm comm, int number)
{
    return gcm_comm_bad(comm) ? MPI_ERR_COMM : !key_known(number) ? MPI_ERR_KEYVAL : MPI_SUCCESS;
}

int MPI_Comm_set_attr(MPI_Comm comm, int number, void *value)
{
    int code = attr_check(comm, number);
    if (!code)
        code = attr_end(comm, number);
    if (!code)
        code = attr_put(comm, number, value);
    return code ? GCM_FAIL(comm, code) : MPI_SUCCESS;
}

int MPI_Comm_delete_attr(MPI_Comm comm, int number)
{
    int code = attr_check(comm, number);
    if (!code)
        code = attr_end(comm, number);
    return code ? GCM_FAIL(comm, code) : MPI_SUCCESS;
}

/* Of the predefined ones, which every communicator has, a pointer to each is what programs get. */
static const void *attr_predefined(int number)
{
    static const int tag_ub = GC_TAG_MAX, host = MPI_PROC_NULL, io = MPI_ANY_SOURCE, global, last = MPI_ERR_LASTCODE, app;
    const int *const all[] = { [MPI_TAG_UB] = &tag_ub, [MPI_HOST] = &host, [MPI_IO] = &io, [MPI_WTIME_IS_GLOBAL] = &global,
                               [MPI_UNIVERSE_SIZE] = &gcm_comm_world.size, [MPI_LASTUSEDCODE] = &last, [MPI_APPNUM] = &app };
    return number >= MPI_TAG_UB && number <= MPI_APPNUM ? all[number] : NULL;
}

int MPI_Comm_get_attr(MPI_Comm comm, int number, void *value, int *flag)
{
    const void *given = attr_predefined(number);
    int code = given && !gcm_comm_bad(comm) ? MPI_SUCCESS : attr_check(comm, number);
    if (code || !value || !flag)
        return GCM_FAIL(comm, code ? code : MPI_ERR_ARG);
    pthread_mutex_lock(&keys.lock);
    const struct gcm_attr *a = given ? NULL : *attr_find(comm, number);
    const void *found = a ? a->value : given;
    *flag = given || a;
    pthread_mutex_unlock(&keys.lock);
    if (*flag)
        memcpy(value, &found, sizeof found);
    return MPI_SUCCESS;
}

/* ---- MPI 1 ------------------------------------------------------------------------------------------------------- */

int MPI_Keyval_create(MPI_Copy_function *copy, MPI_Delete_function *end, int *number, void *extra)
{
    return MPI_Comm_create_keyval(copy, end, number, extra);
}
int MPI_Keyval_free(int *number) { return MPI_Comm_free_keyval(number); }
int MPI_Attr_put(MPI_Comm comm, int number, void *value) { return MPI_Comm_set_attr(comm, number, value); }
int MPI_Attr_get(MPI_Comm comm, int number, void *value, int *flag) { return MPI_Comm_get_attr(comm, number, value, flag); }
int MPI_Attr_delete(MPI_Comm comm, int number) { return MPI_Comm_delete_attr(comm, number); }
