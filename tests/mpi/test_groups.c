/* test_groups.c: groups, and the communicators that are made of them and of each other.
 * SPDX-License-Identifier: MIT
 */
#include "check.h"

static MPI_Group world;

static int size_of(MPI_Group group)
{
    int n;
    MPI_Group_size(group, &n);
    return n;
}

static int compared(MPI_Group a, MPI_Group b)
{
    int result = -1;
    MPI_Group_compare(a, b, &result);
    return result;
}

/* Has it these ranks of the world, in this order? Frees it. */
static int is_made_of(MPI_Group group, const int ranks[], int n)
{
    int right = size_of(group) == n, mine = MPI_UNDEFINED, got;
    int *own = malloc((size_t)check.size * sizeof *own), *there = malloc((size_t)check.size * sizeof *there);
    for (int i = 0; i < n; i++) {
        own[i] = i;
        if (ranks[i] == check.rank)
            mine = i;
    }
    if (right && n > 0)
        MPI_Group_translate_ranks(group, n, own, world, there);
    for (int i = 0; i < n && right; i++)
        right = there[i] == ranks[i];
    MPI_Group_rank(group, &got);
    right = right && got == mine;
    free(own);
    free(there);
    if (group != MPI_GROUP_EMPTY)
        MPI_Group_free(&group);
    return right;
}

static void picked(void)
{
    int n = check.size, *back = malloc((size_t)n * sizeof *back), *odd = malloc((size_t)n * sizeof *odd), odds = 0;
    int *even = malloc((size_t)n * sizeof *even), evens = 0;
    MPI_Group g;
    for (int i = 0; i < n; i++) {
        back[i] = n - 1 - i;
        if (i % 2)
            odd[odds++] = i;
        else
            even[evens++] = i;
    }
    MPI_Group_incl(world, n, back, &g);
    CHECK(is_made_of(g, back, n));
    MPI_Group_incl(world, odds, odd, &g);
    CHECK(is_made_of(g, odd, odds));
    MPI_Group_excl(world, odds, odd, &g);
    CHECK(is_made_of(g, even, evens));
    MPI_Group_excl(world, n, back, &g);
    CHECK(g == MPI_GROUP_EMPTY);
    MPI_Group_incl(world, 0, NULL, &g);
    CHECK(g == MPI_GROUP_EMPTY);
    int down[1][3] = { { n - 1, 0, -1 } }, twos[1][3] = { { 0, n - 1, 2 } }, single[1][3] = { { n - 1, n - 1, 5 } };
    int beyond[1][3] = { { 0, n, 2 * n } };
    MPI_Group_range_incl(world, 1, down, &g);
    CHECK(is_made_of(g, back, n));
    MPI_Group_range_incl(world, 1, twos, &g);
    CHECK(is_made_of(g, even, evens));
    MPI_Group_range_excl(world, 1, twos, &g);
    CHECK(is_made_of(g, odd, odds));
    MPI_Group_range_incl(world, 1, single, &g);
    CHECK(is_made_of(g, &back[0], 1));
    MPI_Group_range_incl(world, 1, beyond, &g);         /* the last need not be one that is computed */
    CHECK(is_made_of(g, even, 1));
    MPI_Group_range_incl(world, 0, NULL, &g);
    CHECK(g == MPI_GROUP_EMPTY);
    free(back);
    free(odd);
    free(even);
}

static void combined(void)
{
    int n = check.size, low[64], high[64], want[64], lows = (n + 1) / 2 + (n > 1), highs = n - n / 2, k;
    MPI_Group a, b, g;
    for (int i = 0; i < lows; i++)
        low[i] = i;
    for (int i = 0; i < highs; i++)
        high[i] = n - 1 - i;                            /* in the other direction; they share some */
    MPI_Group_incl(world, lows, low, &a);
    MPI_Group_incl(world, highs, high, &b);
    MPI_Group_union(a, b, &g);
    memcpy(want, low, sizeof low);
    k = lows;
    for (int i = 0; i < highs; i++)
        if (high[i] >= lows)
            want[k++] = high[i];
    CHECK(is_made_of(g, want, k));
    MPI_Group_intersection(b, a, &g);
    k = 0;
    for (int i = 0; i < highs; i++)
        if (high[i] < lows)
            want[k++] = high[i];
    CHECK(is_made_of(g, want, k));
    MPI_Group_difference(a, b, &g);
    k = 0;
    for (int i = 0; i < lows; i++)
        if (i < n - highs)
            want[k++] = i;
    CHECK(is_made_of(g, want, k));
    MPI_Group_difference(a, a, &g);
    CHECK(g == MPI_GROUP_EMPTY);
    MPI_Group_union(MPI_GROUP_EMPTY, MPI_GROUP_EMPTY, &g);
    CHECK(g == MPI_GROUP_EMPTY);
    MPI_Group_intersection(a, MPI_GROUP_EMPTY, &g);
    CHECK(g == MPI_GROUP_EMPTY);
    MPI_Group_union(MPI_GROUP_EMPTY, a, &g);
    CHECK_EQUAL(compared(g, a), MPI_IDENT);
    MPI_Group_free(&g);
    MPI_Group_free(&a);
    MPI_Group_free(&b);
    CHECK(a == MPI_GROUP_NULL);
}

static void compared_and_translated(void)
{
    int n = check.size, back[64], ranks[3] = { 0, MPI_PROC_NULL, n - 1 }, out[3];
    MPI_Group reverse, first, own;
    for (int i = 0; i < n; i++)
        back[i] = n - 1 - i;
    MPI_Group_incl(world, n, back, &reverse);
    MPI_Group_incl(world, 1, &(int){ 0 }, &first);
    CHECK_EQUAL(compared(world, world), MPI_IDENT);
    CHECK_EQUAL(compared(world, reverse), n > 1 ? MPI_SIMILAR : MPI_IDENT);
    CHECK_EQUAL(compared(first, reverse), n > 1 ? MPI_UNEQUAL : MPI_IDENT);
    CHECK_EQUAL(compared(MPI_GROUP_EMPTY, first), MPI_UNEQUAL);
    CHECK_EQUAL(compared(MPI_GROUP_EMPTY, MPI_GROUP_EMPTY), MPI_IDENT);
    MPI_Group_translate_ranks(world, 3, ranks, reverse, out);
    CHECK(out[0] == n - 1 && out[1] == MPI_PROC_NULL && out[2] == 0);
    MPI_Group_translate_ranks(reverse, 3, ranks, first, out);
    CHECK(out[0] == (n > 1 ? MPI_UNDEFINED : 0) && out[1] == MPI_PROC_NULL && out[2] == 0);
    MPI_Comm_group(MPI_COMM_SELF, &own);
    MPI_Group_translate_ranks(own, 1, ranks, world, out);
    CHECK_EQUAL(out[0], check.rank);
    MPI_Group_free(&reverse);
    MPI_Group_free(&first);
    MPI_Group_free(&own);
}

/* ---- communicators ----------------------------------------------------------------------------------------------- */

/* Do the members find each other? Frees it. */
static void works(MPI_Comm comm, int rank, int size)
{
    int r, n, sum;
    MPI_Comm_rank(comm, &r);
    MPI_Comm_size(comm, &n);
    CHECK_EQUAL(r, rank);
    CHECK_EQUAL(n, size);
    MPI_Allreduce(&r, &sum, 1, MPI_INT, MPI_SUM, comm);
    CHECK_EQUAL(sum, size * (size - 1) / 2);
    MPI_Comm_free(&comm);
    CHECK(comm == MPI_COMM_NULL);
}

static int compared_comms(MPI_Comm a, MPI_Comm b)
{
    int result = -1;
    MPI_Comm_compare(a, b, &result);
    return result;
}

static void split(void)
{
    int n = check.size;
    MPI_Comm c;
    MPI_Comm_dup(MPI_COMM_WORLD, &c);
    CHECK_EQUAL(compared_comms(c, MPI_COMM_WORLD), MPI_CONGRUENT);
    CHECK_EQUAL(compared_comms(c, c), MPI_IDENT);
    works(c, check.rank, n);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -check.rank, &c);
    CHECK_EQUAL(compared_comms(c, MPI_COMM_WORLD), n > 1 ? MPI_SIMILAR : MPI_CONGRUENT);
    CHECK_EQUAL(compared_comms(c, MPI_COMM_SELF), n > 1 ? MPI_UNEQUAL : MPI_CONGRUENT);
    works(c, n - 1 - check.rank, n);
    MPI_Comm_split(MPI_COMM_WORLD, check.rank % 3, 7, &c);      /* equal keys */
    works(c, check.rank / 3, (n - check.rank % 3 + 2) / 3);
    MPI_Comm_split(MPI_COMM_WORLD, check.rank % 2 ? 4 : MPI_UNDEFINED, 0, &c);
    CHECK((c == MPI_COMM_NULL) == (check.rank % 2 == 0));
    if (c != MPI_COMM_NULL)
        works(c, check.rank / 2, n / 2);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, check.rank, MPI_INFO_NULL, &c);
    works(c, check.rank, n);                            /* the tests run on one host */
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_UNDEFINED, 0, MPI_INFO_NULL, &c);
    CHECK(c == MPI_COMM_NULL);
}

static void created(void)
{
    int n = check.size, back[64], half = (n + 1) / 2;
    MPI_Group g, other;
    MPI_Comm c;
    for (int i = 0; i < n; i++)
        back[i] = n - 1 - i;
    MPI_Group_incl(world, n, back, &g);
    MPI_Comm_create(MPI_COMM_WORLD, g, &c);
    works(c, n - 1 - check.rank, n);
    MPI_Group_free(&g);
    MPI_Group_incl(world, half, back, &g);
    MPI_Comm_create(MPI_COMM_WORLD, g, &c);
    CHECK((c == MPI_COMM_NULL) == (check.rank < n - half));
    if (c != MPI_COMM_NULL)
        works(c, n - 1 - check.rank, half);
    MPI_Group_excl(world, half, back, &other);
    if (check.rank >= n - half) {                       /* only they call */
        MPI_Comm_create_group(MPI_COMM_WORLD, g, 3, &c);
        works(c, n - 1 - check.rank, half);
    }
    MPI_Comm_create(MPI_COMM_WORLD, check.rank >= n - half ? g : other, &c);    /* two that share nobody, in one call */
    if (check.rank >= n - half)
        works(c, n - 1 - check.rank, half);
    else
        works(c, check.rank, n - half);
    MPI_Comm_create(MPI_COMM_WORLD, MPI_GROUP_EMPTY, &c);
    CHECK(c == MPI_COMM_NULL);
    MPI_Group_free(&g);
    if (other != MPI_GROUP_EMPTY)
        MPI_Group_free(&other);
}

static void of_each_other(void)
{
    MPI_Comm half, pair;
    int rank, size, low, sum = 0;
    MPI_Group group;
    MPI_Comm_split(MPI_COMM_WORLD, check.rank % 2, -check.rank, &half);
    MPI_Comm_rank(half, &rank);
    MPI_Comm_size(half, &size);
    MPI_Comm_split(half, rank / 2, -rank, &pair);
    MPI_Comm_group(half, &group);
    MPI_Group_translate_ranks(group, 1, &rank, world, &low);
    CHECK_EQUAL(low, check.rank);
    MPI_Group_free(&group);
    MPI_Comm_free(&half);                               /* the other lives on */
    MPI_Allreduce(&check.rank, &sum, 1, MPI_INT, MPI_SUM, pair);
    int alone = rank / 2 * 2 + 1 >= size, partner = rank % 2 ? check.rank + 2 : check.rank - 2;
    CHECK_EQUAL(sum, alone ? check.rank : check.rank + partner);
    MPI_Comm_free(&pair);
}

/* It is freed while messages of it are under way. */
static void freed_in_use(void)
{
    MPI_Comm c;
    MPI_Request r[2];
    int next = (check.rank + 1) % check.size, before = (check.rank + check.size - 1) % check.size, in = -1;
    MPI_Comm_dup(MPI_COMM_WORLD, &c);
    MPI_Irecv(&in, 1, MPI_INT, before, 0, c, &r[0]);
    MPI_Isend(&check.rank, 1, MPI_INT, next, 0, c, &r[1]);
    MPI_Comm_free(&c);
    CHECK(c == MPI_COMM_NULL);
    MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
    CHECK_EQUAL(in, before);
}

static void many(void)
{
    for (int i = 0; i < 50; i++) {
        MPI_Comm c;
        int x = i, all[64];
        MPI_Comm_dup(MPI_COMM_WORLD, &c);
        MPI_Allgather(&x, 1, MPI_INT, all, 1, MPI_INT, c);
        CHECK(all[0] == i && all[check.size - 1] == i);
        MPI_Comm_free(&c);
    }
}

static void names_and_attributes(void)
{
    char name[MPI_MAX_OBJECT_NAME];
    int length, *value, found, inter = 1;
    MPI_Comm c;
    MPI_Comm_get_name(MPI_COMM_WORLD, name, &length);
    CHECK(strcmp(name, "MPI_COMM_WORLD") == 0 && length == 14);
    MPI_Comm_get_name(MPI_COMM_SELF, name, &length);
    CHECK(strcmp(name, "MPI_COMM_SELF") == 0);
    MPI_Comm_dup(MPI_COMM_SELF, &c);
    MPI_Comm_set_name(c, "mine");
    MPI_Comm_get_name(c, name, &length);
    CHECK(strcmp(name, "mine") == 0 && length == 4);
    MPI_Comm_test_inter(c, &inter);
    CHECK(!inter);
    MPI_Comm_free(&c);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &found);
    CHECK(found && *value >= 32767);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_WTIME_IS_GLOBAL, &value, &found);
    CHECK(!found || *value == 0 || *value == 1);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, &value, &found);
    CHECK(!found || *value >= 1);
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv, 100);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    run("picked", picked);
    run("combined", combined);
    run("compared, translated", compared_and_translated);
    run("split", split);
    run("created", created);
    run("of each other", of_each_other);
    run("freed in use", freed_in_use);
    run("many", many);
    run("names, attributes", names_and_attributes);
    MPI_Group_free(&world);
    return check_end();
}
