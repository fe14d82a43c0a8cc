/* simnet_net.c: the simulated machines and wires: sites, hosts, NICs, networks, wide-area links, and the way between two.
 * SPDX-License-Identifier: MIT
 *
 * A host sends by destination, as Linux does: the longest prefix among the networks of its NICs, then its further routes, then
 * the default route. A source address changes nothing of it; binding to a NIC leaves the routes of that NIC. What is on the
 * link finds its owner there, all else goes to the site's router, which knows the site's networks and those of the sites that a
 * wide-area link leads to. The answers go by the routes of the host at the other end, to the address that it sees. Networks that
 * belong to no site are islands: that is where colliding private addresses live. So do the IPv4 addresses of sites behind a NAT,
 * which are looked for within the site only; the NAT's own address leads to the forwarded port, or nowhere.
 *
 *     host --out--> [network latency] --in--> host                               within a network
 *     host --out--> [latency of both] --in--> host                               between two networks of one site
 *     host --out--> [uplink] -> wide-area link, its latency -> [downlink] --in--> host     between sites
 */
#include "simnet_int.h"

enum { SIM_LOOPBACK = 1, SIM_SYS_LOOPBACK_PREFIX = 8, SIM_FIRST_PORT = 32768 };      /* SIM_LOOPBACK: its index */
static const int64_t sim_loopback_rate = 2000000000, sim_loopback_latency = 5000;
static const size_t sim_default_queue = 64 << 10;

/* ---- building ---- */

static void sim_parse(const char *text, gci_addr *addr, uint8_t *prefix)
{
    char address[GCI_ADDR_TEXT];
    const char *slash = strchr(text, '/');
    size_t n = slash ? (size_t)(slash - text) : strlen(text);
    if (n >= sizeof address || (memcpy(address, text, n), address[n] = 0, gci_addr_parse(address, addr) != 0)) {
        fprintf(stderr, "simnet: not an address: %s\n", text);
        abort();
    }
    addr->port = 0;
    *prefix = (uint8_t)(slash ? atoi(slash + 1) : addr->family == 4 ? 32 : 128);
}

sim_net *sim_net_new(sim *s, const char *name, int64_t latency)
{
    for (sim_net *n = s->nets; n; n = n->next) {
        if (strcmp(n->name, name) == 0) {
            return n;
        }
    }
    sim_net *net = sim_calloc(1, sizeof *net);
    *net = (sim_net){ .next = s->nets, .name = sim_copy(name), .latency = latency };
    s->nets = net;
    return net;
}

sim_site *sim_site_new(sim *s, const char *name, int64_t lan_latency)
{
    sim_site *site = sim_calloc(1, sizeof *site);
    *site = (sim_site){ .s = s, .next = s->sites, .name = sim_copy(name), .index = s->sites ? s->sites->index + 1 : 0 };
    site->net = sim_net_new(s, name, lan_latency);
    site->net->site = site;
    s->sites = site;
    return site;
}

void sim_nic_address(sim_nic *nic, const char *text, unsigned flags)
{
    sim_address new = { .flags = (uint8_t)flags };
    int i = 0;
    sim_parse(text, &new.addr, &new.prefix);
    while (i < nic->addresses && !gci_addr_equal(&nic->address[i].addr, &new.addr)) {
        i++;
    }
    if (i == SIM_ADDRESSES) {
        fprintf(stderr, "simnet: too many addresses on %s\n", nic->name);
        abort();
    }
    nic->address[i] = new;
    nic->addresses += i == nic->addresses;
}

void sim_nic_speed(sim_nic *nic, uint32_t speed) { nic->speed = speed; }
void sim_nic_point_to_point(sim_nic *nic) { nic->point_to_point = true; }

sim_nic *sim_nic_new(sim_host *h, const char *name, sim_net *net, const char *address, int64_t rate)
{
    sim_nic *nic = sim_calloc(1, sizeof *nic), **last = &h->nics;
    *nic = (sim_nic){ .host = h, .net = net, .next_in_net = net->nics, .index = SIM_LOOPBACK + 1, .speed = -1,
                      .out = { .name = "out", .rate = rate }, .in = { .name = "in", .rate = rate } };
    snprintf(nic->name, sizeof nic->name, "%s", name);
    net->nics = nic;
    for (; *last; last = &(*last)->next) {
        nic->index++;
    }
    *last = nic;
    sim_nic_address(nic, address, 0);
    return nic;
}

sim_host *sim_host_new(sim_site *site, const char *name, const char *address, int64_t rate)
{
    sim *s = site->s;
    sim_host *h = sim_calloc(1, sizeof *h);
    *h = (sim_host){ .s = s, .site = site, .name = sim_copy(name), .index = s->hosts++, .next_port = SIM_FIRST_PORT,
                     .loopback = { .name = "lo", .rate = sim_loopback_rate } };
    *(s->host_last ? &s->host_last->next : &s->host_list) = h;
    s->host_last = h;
    sim_nic_new(h, "eth0", site->net, address, rate);
    return h;
}

sim_nic *sim_host_nic(sim_host *h, int index)
{
    sim_nic *nic = h->nics;
    while (nic && index-- > 0) {
        nic = nic->next;
    }
    return nic;
}

void sim_host_route(sim_host *h, const char *prefix, sim_nic *nic)
{
    sim_entry *e = sim_calloc(1, sizeof *e), **last = &h->routes;
    sim_parse(prefix, &e->to, &e->prefix);
    e->nic = nic;
    while (*last) {
        last = &(*last)->next;
    }
    *last = e;
}

void sim_host_hide_routes(sim_host *h, bool on) { h->routes_hidden = on; }
void sim_host_forbid_binding(sim_host *h, bool on) { h->no_binding = on; }
void sim_host_forbid_unix(sim_host *h, bool on) { h->no_unix = on; }
void sim_host_strict(sim_host *h, bool on) { h->strict = on; }

void sim_host_gate(sim_host *h, uint64_t gate)
{
    h->gate = gate;
    h->gate_set = true;
}

static sim_wide *sim_wide_find(const sim_site *from, const sim_site *to)
{
    sim_wide *w = from->s->wide;
    while (w && (w->from != from || w->to != to)) {
        w = w->next;
    }
    return w;
}

void sim_wan_one_way(sim_site *from, sim_site *to, int64_t latency, int64_t rate)
{
    sim_wide *w = sim_wide_find(from, to);
    if (!w) {
        w = sim_calloc(1, sizeof *w);
        *w = (sim_wide){ .next = from->s->wide, .from = from, .to = to };
        from->s->wide = w;
    }
    w->latency = latency;
    w->link = (sim_link){ .name = "wan", .rate = rate, .limit = rate ? sim_default_queue : 0 };
}

void sim_wan(sim_site *a, sim_site *b, int64_t latency, int64_t rate)
{
    sim_wan_one_way(a, b, latency, rate);
    sim_wan_one_way(b, a, latency, rate);
}

void sim_wan_queue(sim_site *a, sim_site *b, size_t bytes)
{
    sim_wide_find(a, b)->link.limit = sim_wide_find(b, a)->link.limit = bytes;
}

void sim_uplink(sim_site *site, int64_t rate)
{
    site->has_uplink = true;
    site->up = (sim_link){ .name = "uplink", .rate = rate, .limit = sim_default_queue };
    site->down = (sim_link){ .name = "downlink", .rate = rate };
}

sim_host **sim_grid(sim *s, int sites, const int hosts_per_site[], int64_t lan_latency, int64_t lan_rate, int64_t wan_latency,
                    int64_t wan_rate)
{
    enum { HOSTS_PER_BYTE = 250 };
    int total = 0, n = 0;
    char name[32], address[GCI_ADDR_TEXT];
    for (int i = 0; i < sites; i++) {
        total += hosts_per_site[i];
    }
    sim_host **hosts = sim_calloc((size_t)total + 1, sizeof *hosts);
    for (int i = 0; i < sites; i++) {
        snprintf(name, sizeof name, i < 26 ? "%c" : "s%d", i < 26 ? 'a' + i : i);
        sim_site *site = sim_site_new(s, name, lan_latency);
        for (sim_site *other = site->next; other; other = other->next) {
            sim_wan(site, other, wan_latency, wan_rate);
        }
        for (int h = 0; h < hosts_per_site[i]; h++) {
            snprintf(address, sizeof address, "10.%d.%d.%d/16", i + 1, h / HOSTS_PER_BYTE, h % HOSTS_PER_BYTE + 1);
            snprintf(name, sizeof name, i < 26 ? "%c%d" : "s%d.%d", i < 26 ? 'a' + i : i, h + 1);
            hosts[n++] = sim_host_new(site, name, address, lan_rate);
        }
    }
    return hosts;
}

sim_net *sim_site_net(sim_site *site, const char *name, int64_t latency)
{
    sim_net *net = sim_net_new(site->s, name, latency);
    net->site = site;
    return net;
}

void sim_nat_new(sim_site *site, const char *address, int64_t idle, enum sim_verdict unknown)
{
    uint8_t unused;
    site->nat = (sim_nat){ .idle = idle, .unknown = unknown, .next_port = SIM_FIRST_PORT };
    sim_parse(address, &site->nat.address, &unused);
}

void sim_nat_forward(sim_site *site, uint16_t port, sim_host *to, uint16_t to_port)
{
    sim_forward *f = sim_calloc(1, sizeof *f);
    *f = (sim_forward){ .next = site->nat.forwards, .port = port, .to_port = to_port, .to = to };
    site->nat.forwards = f;
}

void sim_nat_hairpin(sim_site *site, bool on) { site->nat.hairpin = on; }

void sim_rule_add(sim *s, const sim_rule *rule)
{
    sim_filter *f = sim_calloc(1, sizeof *f);
    f->rule = *rule;
    *(s->filters_last ? &s->filters_last->next : &s->filters) = f;
    s->filters_last = f;
}

void sim_firewall(sim *s, enum sim_verdict (*ask)(void *, sim_host *, sim_host *, uint16_t), void *user)
{
    s->firewall = ask;
    s->firewall_user = user;
}

void sim_on_syn(sim *s, void (*see)(void *, sim_host *, sim_nic *, const gci_addr *), void *user)
{
    s->syn_seen = see;
    s->syn_user = user;
}

void sim_on_spawn(sim *s, int (*ask)(void *, sim_proc *, char *const[], sim_host **, gci_addr *), void *user)
{
    s->spawner = ask;
    s->spawner_user = user;
}

const char *sim_host_name(const sim_host *h) { return h->name; }
const char *sim_host_site(const sim_host *h) { return h->site->name; }
sim_site *sim_site_of(const sim_host *h) { return h->site; }
const char *sim_nic_name(const sim_nic *nic) { return nic->name; }
uint64_t sim_nic_bytes(const sim_nic *nic, bool out) { return out ? nic->out.bytes : nic->in.bytes; }

uint64_t sim_wan_bytes(sim_site *from, sim_site *to)
{
    const sim_wide *w = sim_wide_find(from, to);
    return w ? w->link.bytes : 0;
}

/* ---- links ---- */

size_t sim_wire_bytes(const sim *s, size_t bytes)
{
    size_t packets = (bytes + SIM_SEGMENT_MIN - 1) / SIM_SEGMENT_MIN;
    return bytes + packets * (size_t)s->tuning.wire_overhead;
}

int64_t sim_wire_time(const sim *s, const sim_link *l, size_t bytes)
{
    return l->rate && s->tuning.planted != SIM_PLANT_NO_RATE ? (int64_t)sim_wire_bytes(s, bytes) * GCI_SECOND / l->rate : 0;
}

static bool sim_broken_on(const sim_broken *b, const sim_host *x, const sim_site *site_x, const sim_host *y, const sim_site *site_y)
{
    return b->a ? b->a == x && b->b == y : b->site_a == site_x && b->site_b == site_y;
}

bool sim_passes(sim *s, const sim_path *p)
{
    const sim_host *via = p->via;
    if (p->from->dead || p->to->dead || (via && via->dead)) {
        return false;
    }
    for (int i = 0; s->links_off && i < p->hops; i++) {
        if (p->hop[i].link->off && s->tuning.planted != SIM_PLANT_LEAKY_NIC) {
            return false;
        }
    }
    for (const sim_broken *b = s->broken; b && s->tuning.planted != SIM_PLANT_LEAKY_CUT; b = b->next) {
        if (!via ? sim_broken_on(b, p->from, p->from_site, p->to, p->to_site)
                 : sim_broken_on(b, p->from, p->from_site, via, via->site) || sim_broken_on(b, via, via->site, p->to, p->to_site)) {
            return false;
        }
    }
    return true;
}

/* ---- paths ---- */

static void sim_hop_add(sim_path *p, sim_link *link, int64_t latency)
{
    p->hop[p->hops++] = (sim_hop){ link, latency };
    p->latency += latency;
    if (link->rate && (!p->slowest || link->rate < p->slowest)) {
        p->slowest = link->rate;
    }
}

static void sim_path_loopback(sim_host *h, sim_path *p)
{
    *p = (sim_path){ .from = h, .to = h };
    sim_hop_add(p, &h->loopback, sim_loopback_latency);
}

/* On from one NIC to another; false: no wide-area link joins their sites. */
static bool sim_path_add(sim_path *p, sim_nic *from, sim_nic *to)
{
    sim_site *a = from->net->site, *b = to->net->site;
    if (from->net == to->net) {
        sim_hop_add(p, &from->out, from->net->latency);
    } else if (a && a == b) {
        sim_hop_add(p, &from->out, from->net->latency + to->net->latency);
    } else {
        sim_wide *w = a && b ? sim_wide_find(a, b) : NULL;
        if (!w) {
            return false;
        }
        sim_hop_add(p, &from->out, 0);
        if (a->has_uplink) {
            sim_hop_add(p, &a->up, 0);
        }
        sim_hop_add(p, &w->link, w->latency);
        if (b->has_uplink) {
            sim_hop_add(p, &b->down, 0);
        }
    }
    sim_hop_add(p, &to->in, 0);
    return true;
}

static bool sim_path_wire(sim_nic *from, sim_nic *to, sim_path *p)
{
    *p = (sim_path){ .from = from->host, .to = to->host, .from_site = from->net->site, .to_site = to->net->site };
    return sim_path_add(p, from, to);
}

/* ---- addresses ---- */

static bool sim_same_prefix(const gci_addr *a, const gci_addr *b, int bits)
{
    int bytes = bits / 8, rest = bits % 8;
    if (a->family != b->family || memcmp(a->ip, b->ip, (size_t)bytes) != 0) {
        return false;
    }
    return !rest || (a->ip[bytes] ^ b->ip[bytes]) >> (8 - rest) == 0;
}

/* IPv6 link-local: it means nothing without an interface. */
static bool sim_is_scoped(const gci_addr *a)
{
    return a->family == 6 && a->ip[0] == 0xfe && (a->ip[1] & 0xc0) == 0x80;
}

/* An interface that is down keeps its IPv4 addresses, and loses its IPv6 ones. */
static bool sim_nic_owns(const sim_nic *nic, const gci_addr *addr)
{
    for (int i = 0; i < nic->addresses; i++) {
        if (gci_addr_equal(&nic->address[i].addr, addr)) {
            return addr->family == 4 || !nic->down;
        }
    }
    return false;
}

bool sim_own_address(const sim_host *h, const gci_addr *addr)
{
    if (gci_addr_is_loopback(addr)) {
        return true;
    }
    for (const sim_nic *nic = h->nics; nic; nic = nic->next) {
        if (sim_nic_owns(nic, addr) && (!addr->scope || addr->scope == nic->index)) {
            return true;
        }
    }
    return false;
}

static bool sim_answers(const sim_nic *nic) { return !nic->down && !nic->idle; }

static sim_nic *sim_owner_in(const sim_net *net, const gci_addr *addr)
{
    sim_nic *nic = net->nics;
    while (nic && !(sim_nic_owns(nic, addr) && sim_answers(nic))) {
        nic = nic->next_in_net;
    }
    return nic;
}

/* Linux answers ARP by each of its interfaces for all of its addresses. */
static sim_nic *sim_stand_in(const sim_net *net, const gci_addr *addr)
{
    sim_nic *nic = addr->family == 4 ? net->nics : NULL;
    while (nic && !(sim_own_address(nic->host, addr) && sim_answers(nic))) {
        nic = nic->next_in_net;
    }
    return nic;
}

static bool sim_joined(const sim_site *a, const sim_site *b)
{
    return a == b || (a && sim_wide_find(a, b));
}

/* Whose address it is beyond the own network: the site's own networks come first, and those behind a NAT cannot be seen. */
static sim_nic *sim_owner_beyond(sim *s, const sim_site *site, const gci_addr *addr)
{
    for (int own = 1; own >= 0; own--) {
        for (sim_net *net = s->nets; net; net = net->next) {
            bool hidden = addr->family == 4 && net->site && net->site->nat.address.family && s->tuning.planted != SIM_PLANT_NAT_TRANSPARENT;
            sim_nic *owner = net->site && (net->site == site) == own && (own || !hidden) ? sim_owner_in(net, addr) : NULL;
            if (owner && sim_joined(site, net->site)) {
                return owner;
            }
        }
    }
    return NULL;
}

/* What RFC 6724 likes better as source, in short; of IPv4 the address of the network comes first. Below 0: not at all. */
static int sim_source_worth(const sim_address *own, const gci_addr *to)
{
    enum { SCOPE = 4000, FRESH = 2000, TEMPORARY = 1000, BITS = 128 };
    int like = 0;
    if (own->addr.family != to->family) {
        return -1;
    }
    if (to->family == 4) {
        return sim_same_prefix(&own->addr, to, own->prefix);
    }
    while (like < BITS && sim_same_prefix(&own->addr, to, like + 1)) {
        like++;
    }
    return (sim_is_scoped(&own->addr) == sim_is_scoped(to) ? SCOPE : 0) + (own->flags & GCI_IF_DEPRECATED ? 0 : FRESH)
           + (own->flags & GCI_IF_TEMPORARY ? TEMPORARY : 0) + like;
}

static const gci_addr *sim_source(const sim_nic *nic, const gci_addr *to)
{
    const sim_address *best = NULL;
    for (int i = 0; i < nic->addresses; i++) {
        int worth = sim_source_worth(&nic->address[i], to);
        if (worth >= 0 && (!best || worth > sim_source_worth(best, to))) {
            best = &nic->address[i];
        }
    }
    return best ? &best->addr : NULL;
}

/* ---- routes ---- */

static sim_nic *sim_nic_indexed(const sim_host *h, uint32_t index)
{
    sim_nic *nic = h->nics;
    while (nic && nic->index != index) {
        nic = nic->next;
    }
    return nic;
}

/* That of the default route, unless the host was given one: the first that a site's router is behind. */
static sim_nic *sim_default_nic(const sim_host *h, uint8_t family)
{
    for (const sim_entry *e = h->routes; e; e = e->next) {
        if (e->prefix == 0 && e->to.family == family) {
            return NULL;
        }
    }
    for (sim_nic *nic = h->nics; nic; nic = nic->next) {
        for (int i = 0; nic->net->site && i < nic->addresses; i++) {
            if (nic->address[i].addr.family == family && !sim_is_scoped(&nic->address[i].addr)) {
                return nic;
            }
        }
    }
    return NULL;
}

/* A host's entry for a destination. nic NULL: none. on_link: it needs no router. */
typedef struct sim_found { sim_nic *nic; int bits; bool on_link; } sim_found;

static bool sim_leads(const sim_nic *nic, uint32_t bound) { return !nic->down && (!bound || nic->index == bound); }

static sim_found sim_look_up(const sim_host *h, const gci_addr *to, uint32_t bound)
{
    sim_found found = { .bits = -1 };
    bool any = h->s->tuning.planted == SIM_PLANT_ANY_PREFIX;
    for (sim_nic *nic = h->nics; nic; nic = nic->next) {
        for (int i = 0; i < nic->addresses && sim_leads(nic, bound); i++) {
            int bits = nic->address[i].prefix;
            if (bits > found.bits && sim_same_prefix(&nic->address[i].addr, to, bits)) {
                found = (sim_found){ nic, bits, true };
            }
        }
    }
    for (const sim_entry *e = h->routes; e; e = e->next) {
        if (e->prefix > found.bits && sim_same_prefix(&e->to, to, e->prefix) && (!e->nic || sim_leads(e->nic, bound)) &&
            !(any && found.nic)) {
            found = (sim_found){ e->nic, e->prefix, false };
        }
    }
    sim_nic *out = found.bits < 0 && !sim_is_scoped(to) ? sim_default_nic(h, to->family) : NULL;
    return out && sim_leads(out, bound) ? (sim_found){ out, 0, false } : found;
}

static sim_site *sim_nat_at(sim *s, const gci_addr *addr)
{
    sim_site *site = s->sites;
    while (site && !(site->nat.address.family && gci_addr_equal(&site->nat.address, addr))) {
        site = site->next;
    }
    return site;
}

/* To the address of a NAT: whom it lets in there. 0, 1 or 2 as sim_route. */
static int sim_route_nat(sim_site *inside, const sim_nic *nic, const gci_addr *to, sim_way *way, sim_nic **owner)
{
    const sim_nat *nat = &inside->nat;
    const sim_forward *f = nat->forwards;
    while (f && f->port != to->port) {
        f = f->next;
    }
    if (!f || (nic->net->site == inside && !nat->hairpin)) {
        const sim_wide *w = nic->net->site && nic->net->site != inside ? sim_wide_find(nic->net->site, inside) : NULL;
        way->there.latency = w ? w->latency : nic->net->latency;
        return nat->unknown == SIM_REFUSE ? 2 : 1;
    }
    *owner = f->to->nics;
    while (*owner && ((*owner)->net->site != inside || (*owner)->address[0].addr.family != 4)) {
        *owner = (*owner)->next;
    }
    if (!*owner) {
        return 1;
    }
    way->at = (*owner)->address[0].addr;
    way->at.port = f->to_port;
    way->nat[1] = inside;
    return 0;
}

static sim_nic *sim_home_of(const sim_host *h, const gci_addr *own)
{
    sim_nic *nic = h->nics;
    while (nic && !sim_nic_owns(nic, own)) {
        nic = nic->next;
    }
    return nic;
}

/* What the kernel does not even look up. bound: on return, also by the scope of the address. */
static int sim_route_check(const sim_host *h, const gci_addr *to, const gci_addr *source, uint32_t *bound)
{
    if (*bound && h->no_binding) {
        return -EPERM;
    }
    if (*bound > SIM_LOOPBACK && !sim_nic_indexed(h, *bound)) {
        return -ENODEV;
    }
    if (sim_is_scoped(to) && ((!to->scope && !*bound) || (to->scope && *bound && *bound != to->scope))) {
        return -EINVAL;
    }
    *bound = *bound ? *bound : to->scope;
    if (h->s->tuning.planted == SIM_PLANT_NO_BINDING && !sim_is_scoped(to)) {
        *bound = 0;
    }
    if (source && source->family != to->family) {
        return -EAFNOSUPPORT;
    }
    if (source && !sim_own_address(h, source)) {
        return -EADDRNOTAVAIL;
    }
    return source && gci_addr_is_loopback(source) && !sim_own_address(h, to) ? -EINVAL : 0;
}

/* Who takes it. 0, -EHOSTUNREACH, 1 or 2 as sim_route. */
static int sim_route_to(const sim_found *found, const gci_addr *to, sim_way *way, sim_nic **owner)
{
    sim *s = found->nic->host->s;
    if (found->nic->idle) {
        return -EHOSTUNREACH;   /* neither it nor the router answers */
    }
    *owner = sim_owner_in(found->nic->net, to);
    if (!*owner && found->on_link) {
        *owner = sim_stand_in(found->nic->net, to);
        return *owner ? 0 : -EHOSTUNREACH;
    }
    sim_site *inside = *owner ? NULL : sim_nat_at(s, to);
    if (inside) {
        return sim_route_nat(inside, found->nic, to, way, owner);
    }
    *owner = *owner ? *owner : sim_owner_beyond(s, found->nic->net->site, to);
    return *owner ? 0 : 1;
}

/* Where an answer to way->seen comes in that leaves `at` by the routes of its host; NULL: nowhere, or at another host. */
static sim_nic *sim_route_back(sim_host *h, const sim_nic *at, const sim_way *way, sim_nic **out)
{
    uint32_t scope = sim_is_scoped(&way->seen) ? at->index : 0;
    sim_found found = sim_look_up(at->host, &way->seen, scope);
    sim_nic *in = NULL;
    if (h->s->tuning.planted == SIM_PLANT_ANSWERS_ON_ARRIVAL) {
        found = sim_look_up(at->host, &way->seen, at->index);
    }
    if (!found.nic || found.nic->idle || (way->nat[1] && found.nic->net->site != way->nat[1]) ||
        (at->host->strict && way->seen.family == 4 && found.nic != at)) {
        return NULL;
    }
    *out = found.nic;
    if (way->nat[0]) {          /* its router knows whose it is */
        in = h->nics;
        while (in && !(in->net->site == way->nat[0] && sim_nic_owns(in, &way->from) && sim_answers(in))) {
            in = in->next;
        }
        return in;
    }
    in = sim_owner_in(found.nic->net, &way->seen);
    if (!in) {
        in = found.on_link ? sim_stand_in(found.nic->net, &way->seen) : sim_owner_beyond(h->s, found.nic->net->site, &way->seen);
    }
    return in && in->host == h ? in : NULL;
}

/* Over wires, from one NIC to another. 0, 1 or -ENETUNREACH as sim_route. */
static int sim_route_wire(sim_host *h, sim_nic *owner, const gci_addr *to, uint32_t bound, sim_way *way)
{
    bool hears_all = h->s->tuning.planted == SIM_PLANT_BOUND_HEARS_ALL;
    sim_nic *out = NULL, *in;
    if (!sim_path_wire(way->nic, owner, &way->there)) {
        return -ENETUNREACH;
    }
    in = sim_route_back(h, owner, way, &out);
    bool deaf = !in || (bound && in->index != bound && !hears_all) ||
                (h->strict && to->family == 4 && sim_look_up(h, to, 0).nic != in);
    return deaf || !sim_path_wire(out, in, &way->back);
}

static int sim_route_own(sim_host *h, const gci_addr *to, const gci_addr *source, sim_way *way)
{
    way->from = source ? *source : *to;
    way->from.port = 0;
    way->seen = way->from;
    sim_path_loopback(h, &way->there);
    way->back = way->there;
    return 0;
}

int sim_route(sim_host *h, const gci_addr *to, const gci_addr *source, uint32_t bound, sim_way *way)
{
    *way = (sim_way){ .at = *to };
    int code = sim_route_check(h, to, source, &bound);
    if (code || sim_own_address(h, to)) {
        return code ? code : sim_route_own(h, to, source, way);
    }
    sim_found found = sim_look_up(h, to, bound);
    if (source && h->s->tuning.planted == SIM_PLANT_SOURCE_ROUTES) {
        found.nic = sim_home_of(h, source);
    }
    const gci_addr *from = source || !found.nic ? source : sim_source(found.nic, to);
    if (!found.nic || !from) {
        return found.nic ? -EADDRNOTAVAIL : -ENETUNREACH;
    }
    way->nic = found.nic;
    way->from = *from;
    way->from.port = 0;
    sim_nic *owner;
    code = sim_route_to(&found, to, way, &owner);
    if (code) {
        return code;
    }
    sim_site *site = found.nic->net->site;
    way->seen = way->from;
    if (to->family == 4 && site && site->nat.address.family && (owner->net->site != site || way->nat[1])) {
        way->seen = h->s->tuning.planted == SIM_PLANT_NAT_BARE ? way->from : site->nat.address;
        way->nat[0] = site;
    }
    if (sim_is_scoped(to)) {
        way->from.scope = found.nic->index;
        way->seen.scope = way->at.scope = owner->index;
    }
    return sim_route_wire(h, owner, to, bound, way);
}

/* First from one to the other, then as `via` would. That one's own router and firewall let the first part pass. */
static bool sim_path_join(sim_host *h, sim_host *via, sim_path *p, bool there)
{
    sim_path whole = *p;
    whole.hops = 0;
    whole.latency = whole.slowest = 0;
    whole.via = via;
    bool joined = !there || sim_path_add(&whole, h->nics, via->nics);
    for (int i = 0; i < p->hops; i++) {
        sim_hop_add(&whole, p->hop[i].link, p->hop[i].latency);
    }
    if (!there) {
        whole.to = h;
        whole.to_site = h->site;
        joined = sim_path_add(&whole, via->nics, h->nics);
    } else {
        whole.from = h;
        whole.from_site = h->site;
    }
    *p = whole;
    return joined;
}

int sim_route_child(sim_host *h, sim_host *via, const gci_addr *to, sim_way *way)
{
    int code = sim_route(via, to, NULL, 0, way);
    if (code || h == via) {
        return code;
    }
    return sim_path_join(h, via, &way->there, true) && sim_path_join(h, via, &way->back, false) ? 0 : -ENETUNREACH;
}

enum sim_verdict sim_filtered(sim *s, const sim_way *way)
{
    const sim_path *p = &way->there;
    const sim_host *from = p->via ? p->via : p->from;
    const sim_site *site = p->via ? p->via->site : p->from_site;
    bool exempt = from == p->to || s->tuning.planted == SIM_PLANT_NO_RULES;
    for (const sim_filter *f = exempt ? NULL : s->filters; f; f = f->next) {
        const sim_rule *r = &f->rule;
        if ((!r->from_site || r->from_site == site) && (!r->to_site || r->to_site == p->to_site) && (!r->across || site != p->to_site) &&
            (!r->from_host || r->from_host == from) && (!r->to_host || r->to_host == p->to) &&
            (!r->port_last || (way->at.port >= r->port_first && way->at.port <= r->port_last))) {
            return r->verdict;
        }
    }
    return SIM_PASS;
}

/* ---- what a process sees of it ---- */

static int sim_sys_host(gci_sys *sys, char id[GCI_HOST_ID_BYTES], char name[GCI_HOST_NAME_BYTES])
{
    const sim_host *h = sim_call(sys)->proc->host;
    snprintf(id, GCI_HOST_ID_BYTES, "sim-%s", h->name);
    snprintf(name, GCI_HOST_NAME_BYTES, "%s", h->name);
    return 0;
}

static int sim_sys_spawn(gci_sys *sys, char *const argv[])
{
    sim_ctx *c = sim_call(sys);
    sim *s = c->s;
    sim_host *via = NULL;
    gci_addr to = { 0 };
    int code = s->spawner ? s->spawner(s->spawner_user, c->proc, argv, &via, &to) : -ENOSYS;
    return code < 0 ? code : sim_tunnel(c->proc, via, &to);
}

static void sim_fill(const sim_nic *nic, const sim_address *a, gci_ifaddr *out)
{
    int64_t speed = nic->speed < 0 ? nic->out.rate * 8 / 1000000 : nic->speed;
    *out = (gci_ifaddr){ .addr = a->addr, .prefix = a->prefix, .index = nic->index, .speed = (uint32_t)speed };
    out->flags = (uint8_t)(a->flags | (nic->point_to_point ? GCI_IF_POINT_TO_POINT : 0) | (nic->idle ? GCI_IF_IDLE : 0));
    out->addr.scope = sim_is_scoped(&a->addr) ? nic->index : 0;
    memcpy(out->name, nic->name, sizeof out->name);
}

static int sim_sys_interfaces(gci_sys *sys, gci_ifaddr *out, int max)
{
    const sim_host *h = sim_call(sys)->proc->host;
    int n = 0;
    gci_ifaddr loopback = { .prefix = SIM_SYS_LOOPBACK_PREFIX, .flags = GCI_IF_LOOPBACK, .index = SIM_LOOPBACK, .name = "lo" };
    (void)gci_addr_parse("127.0.0.1", &loopback.addr);
    if (n++ < max) {
        out[0] = loopback;
    }
    for (const sim_nic *nic = h->nics; nic; nic = nic->next) {
        for (int i = 0; i < nic->addresses && (!nic->down || h->s->tuning.planted == SIM_PLANT_DOWN_IS_LISTED); i++, n++) {
            if (n < max) {
                sim_fill(nic, &nic->address[i], &out[n]);
            }
        }
    }
    return n;
}

static int sim_sys_resolve(gci_sys *sys, const char *name, uint16_t port, gci_addr *out, int max)
{
    const sim_proc *p = sim_call(sys)->proc;
    gci_addr literal = { 0 };
    int n = 0;
    if (max < 1) {
        return 0;
    }
    if (gci_addr_parse(strcmp(name, "localhost") == 0 ? "127.0.0.1" : name, &literal) == 0) {
        out[0] = literal;
        out[0].port = port;
        return 1;
    }
    for (const sim_host *h = p->s->host_list; h; h = h->next) {
        for (const sim_nic *nic = strcmp(h->name, name) == 0 ? h->nics : NULL; nic; nic = nic->next) {
            for (int i = 0; i < nic->addresses && n < max; i++) {
                if (!sim_is_scoped(&nic->address[i].addr)) {    /* nobody's name leads to those */
                    out[n] = nic->address[i].addr;
                    out[n++].port = port;
                }
            }
        }
    }
    return n ? n : -ENOENT;
}

static gci_route_answer sim_sys_route(gci_sys *sys, const gci_addr *to, uint32_t bound)
{
    const sim_host *h = sim_call(sys)->proc->host;
    if (h->routes_hidden || (bound && h->no_binding)) {
        return (gci_route_answer){ GCI_ROUTE_UNKNOWN, 0 };
    }
    if (sim_own_address(h, to)) {
        return (gci_route_answer){ GCI_ROUTE_SPECIFIC, SIM_LOOPBACK };
    }
    if (sim_is_scoped(to) && !to->scope && !bound) {
        return (gci_route_answer){ GCI_ROUTE_UNKNOWN, 0 };
    }
    sim_found found = sim_look_up(h, to, bound ? bound : to->scope);
    if (!found.nic || found.nic->idle || (to->scope && found.nic->index != to->scope)) {
        return (gci_route_answer){ GCI_ROUTE_NONE, 0 };
    }
    return (gci_route_answer){ found.bits > 1 ? GCI_ROUTE_SPECIFIC : GCI_ROUTE_DEFAULT, found.nic->index };
}

static uint64_t sim_sys_gate(gci_sys *sys)
{
    static const gci_addr anywhere[] = { { .family = 4 }, { .family = 6 } };
    const sim_host *h = sim_call(sys)->proc->host;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);       /* FNV-1a */
    sim_nic *nic = sim_look_up(h, &anywhere[0], 0).nic;
    nic = nic ? nic : sim_look_up(h, &anywhere[1], 0).nic;
    if (h->gate_set || !nic || nic->idle) {
        return h->gate;
    }
    for (const char *c = nic->net->site ? nic->net->site->name : nic->net->name; *c; c++) {
        hash = (hash ^ (uint8_t)*c) * UINT64_C(0x100000001b3);
    }
    return h->s->tuning.planted == SIM_PLANT_ONE_GATE ? 1 : hash | 1;
}

void sim_net_fill(gci_sys *t)
{
    t->route = sim_sys_route;
    t->gate = sim_sys_gate;
    t->host = sim_sys_host;
    t->interfaces = sim_sys_interfaces;
    t->resolve = sim_sys_resolve;
    t->spawn = sim_sys_spawn;
}

/* ---- the end ---- */

static void sim_host_free(sim_host *h)
{
    while (h->nics) {
        sim_nic *nic = h->nics;
        h->nics = nic->next;
        free(nic);
    }
    for (sim_entry *e; (e = h->routes);) {
        h->routes = e->next;
        free(e);
    }
    free(h->name);
    free(h);
}

void sim_net_free(sim *s)
{
    for (sim_host *h; (h = s->host_list);) {
        s->host_list = h->next;
        sim_host_free(h);
    }
    for (sim_net *n; (n = s->nets);) {
        s->nets = n->next;
        free(n->name);
        free(n);
    }
    for (sim_site *a; (a = s->sites);) {
        s->sites = a->next;
        for (sim_forward *f; (f = a->nat.forwards);) {
            a->nat.forwards = f->next;
            free(f);
        }
        free(a->name);
        free(a);
    }
    for (sim_wide *w; (w = s->wide);) {
        s->wide = w->next;
        free(w);
    }
    for (sim_filter *f; (f = s->filters);) {
        s->filters = f->next;
        free(f);
    }
    for (sim_broken *b; (b = s->broken);) {
        s->broken = b->next;
        free(b);
    }
}
