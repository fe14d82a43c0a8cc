/* test_attributes.c: attributes that programs give their communicators, and what is called when those are copied and freed.
 * SPDX-License-Identifier: MIT
 */
#include "check.h"

static struct calls { int copies, ends, refuse; MPI_Comm of; void *value; void *extra; } calls;
static int order[8], ended;

static int copy_next(MPI_Comm comm, int key, void *extra, void *value, void *out, int *flag)
{
    int *next = (int *)value + 1;
    (void)key;
    calls.copies++;
    calls.of = comm;
    calls.extra = extra;
    *flag = calls.refuse != 1;
    memcpy(out, &next, sizeof next);
    return calls.refuse == 2 ? MPI_ERR_OTHER : MPI_SUCCESS;
}

static int count_end(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm;
    if (calls.refuse == 3)
        return MPI_ERR_OTHER;
    calls.ends++;
    calls.value = value;
    calls.extra = extra;
    if (ended < 8)
        order[ended++] = key;
    return MPI_SUCCESS;
}

static int values[4], extra_state;

static void *get(MPI_Comm comm, int key)
{
    void *value = NULL;
    int flag = -1;
    MPI_Comm_get_attr(comm, key, &value, &flag);
    return flag ? value : NULL;
}

static void set_and_get(void)
{
    int key, other, flag = -1;
    void *value = values;
    memset(&calls, 0, sizeof calls);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, count_end, &key, &extra_state);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &other, NULL);
    CHECK(key != other && key != MPI_KEYVAL_INVALID && key != MPI_TAG_UB);
    MPI_Comm_get_attr(MPI_COMM_WORLD, key, &value, &flag);
    CHECK(!flag);
    MPI_Comm_set_attr(MPI_COMM_WORLD, key, &values[0]);
    MPI_Comm_set_attr(MPI_COMM_WORLD, other, NULL);
    CHECK(get(MPI_COMM_WORLD, key) == &values[0]);
    MPI_Comm_get_attr(MPI_COMM_WORLD, other, &value, &flag);
    CHECK(flag && !value);
    CHECK(!get(MPI_COMM_SELF, key) && calls.ends == 0);
    MPI_Comm_set_attr(MPI_COMM_WORLD, key, &values[1]);         /* the one before ends */
    CHECK(calls.ends == 1 && calls.value == &values[0] && calls.extra == &extra_state);
    CHECK(get(MPI_COMM_WORLD, key) == &values[1]);
    MPI_Comm_delete_attr(MPI_COMM_WORLD, key);
    CHECK(calls.ends == 2 && calls.value == &values[1] && !get(MPI_COMM_WORLD, key));
    MPI_Comm_delete_attr(MPI_COMM_WORLD, other);
    MPI_Comm_free_keyval(&key);
    MPI_Comm_free_keyval(&other);
    CHECK(key == MPI_KEYVAL_INVALID && other == MPI_KEYVAL_INVALID);
}

static void duplicated(void)
{
    MPI_Comm a, b;
    int next, same, none;
    memset(&calls, 0, sizeof calls);
    MPI_Comm_create_keyval(copy_next, count_end, &next, &extra_state);
    MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, &same, NULL);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, count_end, &none, NULL);
    MPI_Comm_dup(MPI_COMM_WORLD, &a);
    MPI_Comm_set_attr(a, next, &values[0]);
    MPI_Comm_set_attr(a, same, &values[2]);
    MPI_Comm_set_attr(a, none, &values[3]);
    MPI_Comm_dup(a, &b);
    CHECK(calls.copies == 1 && calls.of == a && calls.extra == &extra_state);
    CHECK(get(b, next) == &values[1] && get(b, same) == &values[2] && !get(b, none));
    CHECK(get(a, next) == &values[0] && get(a, none) == &values[3]);
    MPI_Comm_free(&b);
    CHECK(calls.ends == 1 && calls.value == &values[1]);
    calls.refuse = 1;                   /* it may say that it is not copied */
    MPI_Comm_dup(a, &b);
    CHECK(calls.copies == 2 && !get(b, next) && get(b, same) == &values[2]);
    MPI_Comm_free(&b);
    CHECK_EQUAL(calls.ends, 1);
    MPI_Comm_split(a, 0, 0, &b);        /* only dup copies */
    CHECK(calls.copies == 2 && !get(b, same));
    MPI_Comm_free(&b);
    int copy = next;
    MPI_Comm_free_keyval(&next);        /* it lives until its attribute goes, ... */
    MPI_Comm_free_keyval(&copy);        /* ... however often it is freed */
    MPI_Comm_free(&a);
    CHECK_EQUAL(calls.ends, 3);
    MPI_Comm_free_keyval(&same);
    MPI_Comm_free_keyval(&none);
}

/* What the program's functions object to does not take place. */
static void refused(void)
{
    MPI_Comm a, b = MPI_COMM_WORLD;
    int key;
    memset(&calls, 0, sizeof calls);
    MPI_Comm_create_keyval(copy_next, count_end, &key, NULL);
    MPI_Comm_dup(MPI_COMM_WORLD, &a);
    MPI_Comm_set_errhandler(a, MPI_ERRORS_RETURN);
    MPI_Comm_set_attr(a, key, &values[0]);
    calls.refuse = 2;
    CHECK(MPI_Comm_dup(a, &b) != MPI_SUCCESS);
    CHECK(!STRICT || b == MPI_COMM_NULL);
    calls.refuse = 3;
    CHECK(MPI_Comm_delete_attr(a, key) != MPI_SUCCESS);
    CHECK(MPI_Comm_set_attr(a, key, &values[1]) != MPI_SUCCESS);
    calls.refuse = 0;
    CHECK(get(a, key) == &values[0]);
    CHECK(!STRICT || MPI_Comm_set_attr(a, MPI_TAG_UB, &values[1]) != MPI_SUCCESS);
    MPI_Comm_free(&a);
    CHECK_EQUAL(calls.ends, 1);
    MPI_Comm_free_keyval(&key);
}

/* By the names of MPI 1. */
static void old_names(void)
{
    MPI_Comm comm;
    int key, flag;
    void *value = NULL;
    memset(&calls, 0, sizeof calls);
    MPI_Keyval_create(MPI_DUP_FN, count_end, &key, NULL);
    MPI_Attr_put(MPI_COMM_WORLD, key, &values[0]);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Attr_get(comm, key, &value, &flag);
    CHECK(flag && value == &values[0]);
    MPI_Attr_delete(MPI_COMM_WORLD, key);
    CHECK_EQUAL(calls.ends, 1);
    MPI_Attr_get(MPI_COMM_WORLD, key, &value, &flag);
    CHECK(!flag);
    MPI_Comm_free(&comm);
    CHECK_EQUAL(calls.ends, 2);
    MPI_Keyval_free(&key);
}

/* Those of MPI_COMM_SELF end in MPI_Finalize, the newest first, when all of MPI is still there. */
static int at_the_end(MPI_Comm comm, int key, void *value, void *extra)
{
    int finalized = 1, size = 0;
    (void)comm, (void)key;
    MPI_Finalized(&finalized);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    ended += !finalized && size == check.size && value == &values[3 - ended] && extra == values;
    return MPI_SUCCESS;
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv, 100);
    run("set and get", set_and_get);
    run("duplicated", duplicated);
    run("refused", refused);
    run("old names", old_names);
    ended = 0;
    for (int i = 1; i < 4; i++) {
        int key;
        MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, at_the_end, &key, values);
        MPI_Comm_set_attr(MPI_COMM_SELF, key, &values[i]);
        MPI_Comm_free_keyval(&key);
    }
    int status = check_end();
    return status ? status : ended != 3;
}
