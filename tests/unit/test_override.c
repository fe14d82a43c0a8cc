/* test_override.c: what the user lays down about addresses: good words, and what is said about bad ones.
 * SPDX-License-Identifier: MIT
 */
#include "gridcomm_int.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static void check_filter(const char *patterns, const char *kept, const char *wrong)
{
    gci_ifaddr addr[] = { { .name = "lo", .flags = GCI_IF_LOOPBACK }, { .name = "eth0" }, { .name = "eth0" }, { .name = "eth1" },
                          { .name = "ib0" }, { .name = "docker0" } };
    char text[GCI_TEXT] = "", names[256];
    gci_text t;
    int n = gci_if_filter(patterns, "a", addr, (int)GCI_COUNT(addr), text);
    gci_text_begin(&t, names, sizeof names);
    for (int i = 0; i < n; i++)
        gci_text_add(&t, "%s%s", i ? " " : "", addr[i].name);
    if (wrong) {
        assert_int_equal(n, GC_ERR_CONFIG);
        assert_non_null(strstr(text, wrong));
    } else
        assert_string_equal(names, kept);
}

static void test_filter(void **state)
{
    (void)state;
    check_filter("eth*,ib0", "lo eth0 eth0 eth1 ib0", NULL);
    check_filter("^docker*,virbr*", "lo eth0 eth0 eth1 ib0", NULL);
    check_filter("^docker0", "lo eth0 eth0 eth1 ib0", NULL);
    check_filter("eth?", "lo eth0 eth0 eth1", NULL);
    check_filter("*0", "lo eth0 eth0 ib0 docker0", NULL);
    check_filter("*t*1", "lo eth1", NULL);
    check_filter("e*h*0*", "lo eth0 eth0", NULL);
    check_filter("*", "lo eth0 eth0 eth1 ib0 docker0", NULL);
    check_filter("ib0, eth1,", "lo eth1 ib0", NULL);
    check_filter("eth", NULL, "a has no interface \"eth\" that is up and has an address; it has eth0, eth1, ib0, docker0");
    check_filter("ib0,eth7", NULL, "\"eth7\"");
    check_filter("^eth7", NULL, "\"eth7\"");
    check_filter("en*", NULL, "GRIDCOMM_IF=en* leaves a no interface; it has eth0");
    check_filter("eth??", NULL, "leaves a no interface");
    check_filter("^*", NULL, "leaves a no interface");
    check_filter("lo", NULL, "leaves a no interface");
    check_filter("", NULL, "leaves a no interface");
}

static void check_advertise(const char *text, const char *want)
{
    char wrong[GCI_TEXT] = "", got[GCI_ADDR_TEXT];
    gci_addr a;
    int err = gci_advertise_parse(text, &a, wrong);
    if (!want) {
        assert_int_equal(err, GC_ERR_CONFIG);
        assert_non_null(strstr(wrong, "GRIDCOMM_ADVERTISE="));
        return;
    }
    assert_int_equal(err, GC_OK);
    assert_string_equal(gci_addr_text(&a, got), want);
}

static void test_overrides(void **state)
{
    static const char *const no_ports[] = { "", "7000", "7000-", "-7000", "0-7", "7-65536", "9-8", "a-b", "7000-7010x",
        "7000--7010",
                                            "99999999999-99999999999", " 1-2" };
    uint16_t low, high;
    char wrong[GCI_TEXT];
    (void)state;
    check_advertise("203.0.113.1", "203.0.113.1");
    check_advertise("203.0.113.1:7000", "203.0.113.1:7000");
    check_advertise("2001:db8::1", "2001:db8::1");
    check_advertise("[2001:db8::1]", "2001:db8::1");
    check_advertise("[2001:db8::1]:65535", "[2001:db8::1]:65535");
    check_advertise("10.0.0.1", "10.0.0.1");
    static const char *const none[] = { "", "host", "203.0.113.1:", "203.0.113.1:0", "203.0.113.1:65536", "203.0.113.1:70x",
        "[2001:db8::1", "[]",
                                        "[2001:db8::1]7000", "127.0.0.1", "::1", "0.0.0.0", "::", "224.0.0.1", "fe80::1",
                                          "fe80::1%2", ":7000" };
    for (size_t i = 0; i < GCI_COUNT(none); i++)
        check_advertise(none[i], NULL);
    assert_int_equal(gci_ports_parse("7000-7099", &low, &high, wrong), GC_OK);
    assert_int_equal(low, 7000);
    assert_int_equal(high, 7099);
    assert_int_equal(gci_ports_parse("1-65535", &low, &high, wrong), GC_OK);
    assert_int_equal(gci_ports_parse("80-80", &low, &high, wrong), GC_OK);
    for (size_t i = 0; i < GCI_COUNT(no_ports); i++) {
        assert_int_equal(gci_ports_parse(no_ports[i], &low, &high, wrong), GC_ERR_CONFIG);
        assert_non_null(strstr(wrong, "GRIDCOMM_PORTS="));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_filter), cmocka_unit_test(test_overrides) };
    return cmocka_run_group_tests_name("override", tests, NULL, NULL);
}
