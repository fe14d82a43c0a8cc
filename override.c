/* override.c: what the user lays down about addresses, where the choice is not to be left to addrsel.c (pure).
 * SPDX-License-Identifier: MIT
 *
 * GRIDCOMM_IF         interfaces that take part: "eth*,ib0", or "^docker*,virbr*" for all but those
 * GRIDCOMM_ADVERTISE  the address, and perhaps the port, at which others reach this process: a container with mapped ports
 * GRIDCOMM_PORTS      the ports that a firewall lets in: "7000-7099"
 *
 * Nobody should need them, so whoever sets one means it: what cannot be meant is an error that says what there is.
 */
#include "gridcomm_int.h"

static bool override_stays(const gci_ifaddr *a)
{
    return a->flags & GCI_IF_LOOPBACK || gci_addr_is_loopback(&a->addr);
}

static void override_tell_names(gci_text *t, const gci_ifaddr *addr, int n)
{
    int told = 0;
    for (int i = 0; i < n; i++) {
        int k = 0;
        while (k < i && strcmp(addr[k].name, addr[i].name) != 0)
            k++;
        if (k == i && !override_stays(&addr[i]))
            gci_text_add(t, "%s%s", told++ ? ", " : "", addr[i].name);
    }
    if (!told)
        gci_text_add(t, "none");
}

/* The next pattern of a list; false: there is none. */
static bool override_next_pattern(const char **at, size_t *bytes)
{
    *at += strspn(*at, ", ");
    *bytes = strcspn(*at, ", ");
    return *bytes > 0;
}

static bool override_named(const char *list, const char *name)
{
    size_t bytes;
    for (; override_next_pattern(&list, &bytes); list += bytes)
        if (gci_pattern_part_fits(list, bytes, name))
            return true;
    return false;
}

GCI int gci_if_filter(const char *patterns, const char *host, gci_ifaddr *addr, int n, char error_text[GCI_TEXT])
{
    bool except = patterns[0] == '^';
    const char *list = patterns + except;
    int kept = 0, others = 0;
    size_t bytes;
    gci_text t;

    gci_text_begin(&t, error_text, GCI_TEXT);
    for (const char *at = list; override_next_pattern(&at, &bytes); at += bytes) {
        int i = 0;
        while (i < n && !gci_pattern_part_fits(at, bytes, addr[i].name))
            i++;
        if (i == n && !memchr(at, '*', bytes) && !memchr(at, '?', bytes)) {
            gci_text_add(&t, "GRIDCOMM_IF: %s has no interface \"%.*s\" that is up and has an address; it has ", host,
                (int)bytes, at);
            override_tell_names(&t, addr, n);
            return GC_ERR_CONFIG;
        }
    }
    for (int i = 0; i < n; i++)
        others += !override_stays(&addr[i]) && override_named(list, addr[i].name) != except;
    if (!others) {
        gci_text_add(&t, "GRIDCOMM_IF=%s leaves %s no interface; it has ", patterns, host);
        override_tell_names(&t, addr, n);
        return GC_ERR_CONFIG;
    }
    for (int i = 0; i < n; i++)
        if (override_stays(&addr[i]) || override_named(list, addr[i].name) != except)
            addr[kept++] = addr[i];
    return kept;
}

/* A decimal number from 1 to 65535 that ends at `end`. */
static bool override_port(const char *text, const char *end, uint16_t *port)
{
    uint32_t value = 0;
    if (text == end)
        return false;
    for (; text < end; text++) {
        if (*text < '0' || *text > '9' || (value = value * 10 + (uint32_t)(*text - '0')) > UINT16_MAX)
            return false;
    }
    *port = (uint16_t)value;
    return value > 0;
}

static bool override_address(const char *text, gci_addr *out)
{
    char ip[GCI_ADDR_TEXT];
    bool bracket = text[0] == '[';
    const char *first = text + bracket, *colon = strchr(first, ':'), *end;

    if (bracket)
        end = strchr(first, ']');
    else if (colon && !strchr(colon + 1, ':'))
        end = colon;
    else
        end = first + strlen(first);
    if (!end || end == first || (size_t)(end - first) >= sizeof ip)
        return false;
    memcpy(ip, first, (size_t)(end - first));
    ip[end - first] = '\0';
    *out = (gci_addr){ 0 };
    if (gci_addr_parse(ip, out) < 0)
        return false;
    end += bracket;
    return !*end || (*end == ':' && override_port(end + 1, end + strlen(end), &out->port));
}

GCI int gci_advertise_parse(const char *text, gci_addr *out, char error_text[GCI_TEXT])
{
    if (!override_address(text, out)) {
        snprintf(error_text, GCI_TEXT,
            "GRIDCOMM_ADVERTISE=%.80s is no address: 192.0.2.1, 192.0.2.1:7000 or [2001:db8::1]:7000", text);
        return GC_ERR_CONFIG;
    }
    if (gci_addr_class(out) < GCI_CLASS_PRIVATE) {
        snprintf(error_text, GCI_TEXT, "GRIDCOMM_ADVERTISE=%.80s: other hosts cannot reach such an address", text);
        return GC_ERR_CONFIG;
    }
    return GC_OK;
}

GCI int gci_ports_parse(const char *text, uint16_t *low, uint16_t *high, char error_text[GCI_TEXT])
{
    const char *dash = strchr(text, '-');
    if (!dash || !override_port(text, dash, low) || !override_port(dash + 1, dash + strlen(dash), high) || *low > *high) {
        snprintf(error_text, GCI_TEXT, "GRIDCOMM_PORTS=%.80s is no range of ports: low-high, 1 to 65535, as in 7000-7099", text);
        return GC_ERR_CONFIG;
    }
    return GC_OK;
}
