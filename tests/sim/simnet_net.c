/* simnet_net.c: the simulated machines and wires: sites, hosts, NICs, networks, wide-area links, and the way between two.
 * SPDX-License-Identifier: MIT
 *
 * A host reaches what is on-link at one of its NICs (longest prefix first), and everything on the site networks of other sites
 * through its own NIC on its site's network, if a wide-area link joins the two sites. Networks that belong to no site are
 * islands: that is where colliding private addresses live. So do the IPv4 addresses of sites behind a NAT, which are looked for
 * within the site only; the NAT's own address leads to the forwarded port, or nowhere.
 *
 *     host --out--> [network latency] --in--> host                               within a network
 *     host --out--> [latency of both] --in--> host                               between two networks of one site
 *     host --out--> [uplink] -> wide-area link, its latency -> [downlink] --in--> host     between sites
 */
#include "simnet_int.h"

enum { SIM_SYS_LOOPBACK_PREFIX = 8, SIM_FIRST_PORT = 32768 };
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

void sim_nic_address(sim_nic *nic, const char *text)
{
    if (nic->addresses == SIM_ADDRESSES) {
        fprintf(stderr, "simnet: too many addresses on %s\n", nic->name);
        abort();
    }
    sim_parse(text, &nic->address[nic->addresses].addr, &nic->address[nic->addresses].prefix);
    nic->addresses++;
}

sim_nic *sim_nic_new(sim_host *h, const char *name, sim_net *net, const char *address, int64_t rate)
{
    enum { LOOPBACK_INDEX = 1 };
    sim_nic *nic = sim_calloc(1, sizeof *nic), **last = &h->nics;
    *nic = (sim_nic){ .host = h, .net = net, .next_in_net = net->nics, .index = LOOPBACK_INDEX + 1,
                      .out = { .name = "out", .rate = rate }, .in = { .name = "in", .rate = rate } };
    snprintf(nic->name, sizeof nic->name, "%s", name);
    net->nics = nic;
    for (; *last; last = &(*last)->next) {
        nic->index++;
    }
    *last = nic;
    sim_nic_address(nic, address);
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

static sim_wide *sim_wide_find(const sim_site *from, const sim_site *to)
{
    sim_wide *w = from->s->wide;
    while (w && (w->from != from || w->to != to)) {
        w = w->next;
    }
    return w;
}

static void sim_wan_one_way(sim_site *from, sim_site *to, int64_t latency, int64_t rate)
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

void sim_on_spawn(sim *s, int (*ask)(void *, sim_proc *, char *const[], sim_host **, gci_addr *), void *user)
{
    s->spawner = ask;
    s->spawner_user = user;
}

const char *sim_host_name(const sim_host *h) { return h->name; }
const char *sim_host_site(const sim_host *h) { return h->site->name; }
sim_site *sim_site_of(const sim_host *h) { return h->site; }
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
    for (const sim_broken *b = s->broken; b && s->tuning.planted != SIM_PLANT_LEAKY_CUT; b = b->next) {
        if (!via ? sim_broken_on(b, p->from, p->from_site, p->to, p->to_site)
                 : sim_broken_on(b, p->from, p->from_site, via, via->site) || sim_broken_on(b, via, via->site, p->to, p->to_site)) {
            return false;
        }
    }
    return true;
}

/* ---- routes ---- */

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

static bool sim_same_prefix(const gci_addr *a, const gci_addr *b, int bits)
{
    int bytes = bits / 8, rest = bits % 8;
    if (a->family != b->family || memcmp(a->ip, b->ip, (size_t)bytes) != 0) {
        return false;
    }
    return !rest || (a->ip[bytes] ^ b->ip[bytes]) >> (8 - rest) == 0;
}

static bool sim_nic_owns(const sim_nic *nic, const gci_addr *addr)
{
    for (int i = 0; i < nic->addresses; i++) {
        if (gci_addr_equal(&nic->address[i].addr, addr)) {
            return true;
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
        if (sim_nic_owns(nic, addr)) {
            return true;
        }
    }
    return false;
}

/* The NIC by which an on-link address is reached, or failing that the one on the site's network; `from`: its own address. */
static sim_nic *sim_nic_towards(sim_host *h, const gci_addr *to, gci_addr *from, bool *on_link)
{
    sim_nic *best = NULL;
    int longest = -1;
    for (sim_nic *nic = h->nics; nic; nic = nic->next) {
        for (int i = 0; i < nic->addresses; i++) {
            const gci_addr *own = &nic->address[i].addr;
            int bits = nic->address[i].prefix;
            bool link = sim_same_prefix(own, to, bits) && (!to->scope || to->scope == nic->index);
            bool routed = nic->net->site && own->family == to->family;
            if ((link && bits > longest) || (routed && !best)) {
                best = nic;
                *from = *own;
                *on_link = link;
                longest = link ? bits : longest;
            }
        }
    }
    return best;
}

static sim_nic *sim_owner_in(const sim_net *net, const gci_addr *addr)
{
    sim_nic *nic = net->nics;
    while (nic && !sim_nic_owns(nic, addr)) {
        nic = nic->next_in_net;
    }
    return nic;
}

/* Whose address it is beyond the own network: the site's own networks come first, and those behind a NAT cannot be seen. */
static sim_nic *sim_owner_beyond(sim *s, const sim_site *site, const gci_addr *addr)
{
    for (int own = 1; own >= 0; own--) {
        for (sim_net *net = s->nets; net; net = net->next) {
            bool hidden = addr->family == 4 && net->site && net->site->nat.address.family && s->tuning.planted != SIM_PLANT_NAT_TRANSPARENT;
            sim_nic *owner = net->site && (net->site == site) == own && (own || !hidden) ? sim_owner_in(net, addr) : NULL;
            if (owner) {
                return owner;
            }
        }
    }
    return NULL;
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

int sim_route(sim_host *h, const gci_addr *to, sim_way *way)
{
    bool on_link = false;
    *way = (sim_way){ .at = *to };
    if (sim_own_address(h, to)) {
        way->from = *to;
        way->seen = way->from;
        way->from.port = way->seen.port = 0;
        sim_path_loopback(h, &way->there);
        way->back = way->there;
        return 0;
    }
    sim_nic *nic = sim_nic_towards(h, to, &way->from, &on_link);
    if (!nic) {
        return -ENETUNREACH;
    }
    sim_nic *owner = sim_owner_in(nic->net, to);
    if (!owner && on_link) {
        return -EHOSTUNREACH;
    }
    sim_site *inside = owner ? NULL : sim_nat_at(h->s, to);
    int code = inside ? sim_route_nat(inside, nic, to, way, &owner) : 0;
    if (!owner && !inside) {
        owner = sim_owner_beyond(h->s, nic->net->site, to);
    }
    if (!owner) {
        return code ? code : 1;
    }
    sim_site *site = nic->net->site;
    way->seen = way->from;
    if (to->family == 4 && site && site->nat.address.family && (owner->net->site != site || inside)) {
        way->seen = h->s->tuning.planted == SIM_PLANT_NAT_BARE ? way->from : site->nat.address;
        way->nat[0] = site;
    }
    return sim_path_wire(nic, owner, &way->there) && sim_path_wire(owner, nic, &way->back) ? 0 : -ENETUNREACH;
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
    int code = sim_route(via, to, way);
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

static int sim_sys_interfaces(gci_sys *sys, gci_ifaddr *out, int max)
{
    const sim_host *h = sim_call(sys)->proc->host;
    int n = 0;
    gci_ifaddr loopback = { .prefix = SIM_SYS_LOOPBACK_PREFIX, .flags = GCI_IF_LOOPBACK, .index = 1, .name = "lo" };
    (void)gci_addr_parse("127.0.0.1", &loopback.addr);
    if (n++ < max) {
        out[0] = loopback;
    }
    for (const sim_nic *nic = h->nics; nic; nic = nic->next) {
        for (int i = 0; i < nic->addresses; i++, n++) {
            if (n < max) {
                out[n] = (gci_ifaddr){ .addr = nic->address[i].addr, .prefix = nic->address[i].prefix, .index = nic->index,
                                       .speed = (uint32_t)(nic->out.rate * 8 / 1000000) };
                memcpy(out[n].name, nic->name, sizeof out[n].name);
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
            for (int i = 0; i < nic->addresses && n < max; i++, n++) {
                out[n] = nic->address[i].addr;
                out[n].port = port;
            }
        }
    }
    return n ? n : -ENOENT;
}

void sim_net_fill(gci_sys *t)
{
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
