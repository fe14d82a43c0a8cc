/* test_link.c: the order of a send queue.
 * SPDX-License-Identifier: MIT
 */
#include "gridcomm_int.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>

/* c: a chunk; e, E: an envelope, with as much payload. */
static void put(gci_link *link, char kind, uint32_t seq)
{
    link->out[link->queued++].packet = (gci_packet){ .type = kind == 'c' ? GCI_CHUNK : GCI_ENVELOPE, .seq = seq,
                                                     .length = kind == 'e' ? 0 : 4096 };
    gci_slot_settle(link);
}

static gci_link *link_of(const char *packets)
{
    gci_link *link = calloc(1, sizeof *link);
    assert_non_null(link);
    for (uint32_t seq = 1; *packets; packets++)
        put(link, *packets, seq++);
    return link;
}

static void pop(gci_link *link)
{
    memmove(link->out, link->out + 1, (size_t)--link->queued * sizeof link->out[0]);
}

/* Envelopes get past chunks, each kind keeps its order. */
static void test_order(void **state)
{
    static const uint32_t expected[] = { 3, 4, 6, 1, 2, 5 };
    (void)state;
    gci_link *link = link_of("cceece");
    for (int i = 0; i < 6; i++)
        assert_int_equal(link->out[i].packet.seq, expected[i]);
    free(link);
}

/* One with as much payload does not, and no other gets past it. */
static void test_payload(void **state)
{
    static const uint32_t expected[] = { 3, 1, 2, 4, 5 };
    (void)state;
    gci_link *link = link_of("cceEe");
    for (int i = 0; i < 5; i++)
        assert_int_equal(link->out[i].packet.seq, expected[i]);
    free(link);
}

/* What has begun to leave is not got past. */
static void test_begun(void **state)
{
    (void)state;
    gci_link *link = link_of("cc");
    link->gone = 1;
    put(link, 'e', 3);
    assert_int_equal(link->out[0].packet.seq, 1);
    assert_int_equal(link->out[1].packet.seq, 3);
    assert_int_equal(link->out[2].packet.seq, 2);
    free(link);
}

/* Envelopes without end, and the chunk leaves all the same; the envelopes keep their order round it. */
static void test_flood(void **state)
{
    (void)state;
    gci_link *link = link_of("ec");
    int chunk_left = -1;
    uint32_t last = 0;
    for (int i = 0; i < 100; i++) {
        link->gone = 1;                 /* the first is on its way when the next comes */
        put(link, 'e', (uint32_t)(10 + i));
        if (link->out[0].packet.type == GCI_CHUNK) {
            assert_int_equal(chunk_left, -1);
            chunk_left = i;
        } else {
            assert_true(link->out[0].packet.seq > last);
            last = link->out[0].packet.seq;
        }
        pop(link);
    }
    assert_in_range(chunk_left, 8, 20);
    free(link);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_order), cmocka_unit_test(test_payload), cmocka_unit_test(test_begun),
                                        cmocka_unit_test(test_flood) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
