/* simnet_fault.c: what goes wrong on command in the simulated network: deaths, stops, cuts and resets.
 * SPDX-License-Identifier: MIT
 */
#include "simnet_int.h"

static void sim_paths_changed(sim *s)
{
    for (sim_file *f = s->files; f; f = f->all) {
        if (f->kind == SIM_SOCKET) {
            sim_sock_path_changed((sim_sock *)f);
        }
    }
}

void sim_kill_proc(sim_proc *p)
{
    sim_proc_exit(p, true);
    sim_leave_if_dead(p->s);
}

void sim_kill_host(sim_host *h)
{
    sim *s = h->s;
    if (h->dead) {
        return;
    }
    sim_note(s, "host dies", h->index, 0, 0);
    h->dead = true;
    for (sim_proc *p = h->procs; p; p = p->next_on_host) {
        if (!p->done && !p->killed) {
            p->killed = true;
            s->unfinished--;
            sim_end_contexts(p);
        }
    }
    sim_paths_changed(s);
    sim_leave_if_dead(s);
}

void sim_stop_proc(sim_proc *p)
{
    sim_note(p->s, "stop", p->id, 0, 0);
    p->stopped = true;
    if (p->s->current && p->s->current->proc == p) {
        sim_give_way(p->s->current);
    }
}

void sim_continue_proc(sim_proc *p)
{
    sim_note(p->s, "continue", p->id, 0, 0);
    p->stopped = false;
    for (sim_ctx *c = p->contexts; c; c = c->next) {
        if (c->state == SIM_RUNNABLE && c->held) {
            c->state = SIM_BLOCKED;
            sim_ready(c);
        }
    }
}

static void sim_break(sim *s, const sim_broken *what, bool both)
{
    const sim_broken way[2] = { *what, { .a = what->b, .b = what->a, .site_a = what->site_b, .site_b = what->site_a } };
    for (int i = 0; i <= both; i++) {
        sim_broken *b = sim_calloc(1, sizeof *b);
        *b = way[i];
        b->next = s->broken;
        s->broken = b;
        sim_note(s, "cut", b->a ? b->a->index : b->site_a->index, b->b ? b->b->index : b->site_b->index, b->a != NULL);
    }
    sim_paths_changed(s);
}

static void sim_unbreak(sim *s, const sim_broken *what)
{
    for (sim_broken **at = &s->broken; *at;) {      /* whichever direction */
        sim_broken *b = *at;
        bool same = (b->a == what->a && b->b == what->b) || (b->a == what->b && b->b == what->a);
        bool same_sites = (b->site_a == what->site_a && b->site_b == what->site_b) || (b->site_a == what->site_b && b->site_b == what->site_a);
        if (same && same_sites) {
            *at = b->next;
            free(b);
        } else {
            at = &b->next;
        }
    }
    sim_note(s, "mend", what->a ? what->a->index : what->site_a->index, what->b ? what->b->index : what->site_b->index, what->a != NULL);
    sim_paths_changed(s);
}

void sim_cut(sim_host *a, sim_host *b) { sim_break(a->s, &(sim_broken){ .a = a, .b = b }, true); }
void sim_cut_way(sim_host *a, sim_host *b) { sim_break(a->s, &(sim_broken){ .a = a, .b = b }, false); }
void sim_mend(sim_host *a, sim_host *b) { sim_unbreak(a->s, &(sim_broken){ .a = a, .b = b }); }
void sim_cut_sites(sim_site *a, sim_site *b) { sim_break(a->s, &(sim_broken){ .site_a = a, .site_b = b }, true); }
void sim_cut_sites_way(sim_site *a, sim_site *b) { sim_break(a->s, &(sim_broken){ .site_a = a, .site_b = b }, false); }
void sim_mend_sites(sim_site *a, sim_site *b) { sim_unbreak(a->s, &(sim_broken){ .site_a = a, .site_b = b }); }

/* Of one NIC: what it cannot carry any more is lost in silence. */
static void sim_nic_changed(sim_nic *nic, const char *what)
{
    sim_host *h = nic->host;
    bool all = h->s->tuning.planted == SIM_PLANT_NIC_CUTS_HOST;
    for (sim_nic *n = all ? h->nics : nic; n; n = all ? n->next : NULL) {
        n->out.off = n->in.off = nic->cut || nic->down || nic->idle;
    }
    h->s->links_off = true;
    sim_note(h->s, what, h->index, nic->index, 0);
    sim_paths_changed(h->s);
}

static void sim_nic_set(sim_nic *nic, bool *what, bool on, const char *text)
{
    *what = on;
    sim_nic_changed(nic, text);
}

void sim_nic_cut(sim_nic *nic) { sim_nic_set(nic, &nic->cut, true, "cut NIC"); }
void sim_nic_mend(sim_nic *nic) { sim_nic_set(nic, &nic->cut, false, "mend NIC"); }
void sim_nic_down(sim_nic *nic) { sim_nic_set(nic, &nic->down, true, "NIC down"); }
void sim_nic_up(sim_nic *nic) { sim_nic_set(nic, &nic->down, false, "NIC up"); }
void sim_nic_carrier(sim_nic *nic, bool on) { sim_nic_set(nic, &nic->idle, !on, on ? "carrier" : "no carrier"); }

bool sim_established(const sim_file *f)
{
    const sim_sock *k = (const sim_sock *)f;
    return f->kind == SIM_SOCKET && k->state == SIM_UP && k->peer && k->peer->state == SIM_UP && !k->got_rst;
}

static void sim_reset_both(sim_sock *k)
{
    sim_sock_reset(k);
    sim_sock_reset(k->peer);
}

int sim_reset(sim_proc *p, int fd)
{
    sim_file *f = fd >= 0 && fd < p->files_room ? p->files[fd] : NULL;
    if (!f || !sim_established(f)) {
        return -ENOTCONN;
    }
    sim_reset_both((sim_sock *)f);
    return 0;
}

int sim_reset_any(sim *s)
{
    uint64_t n = 0, chosen;
    for (const sim_file *f = s->files; f; f = f->all) {
        n += sim_established(f);
    }
    if (!n) {
        return -ENOTCONN;
    }
    chosen = sim_random(s) % n;
    for (sim_file *f = s->files; f; f = f->all) {
        if (sim_established(f) && chosen-- == 0) {
            sim_reset_both((sim_sock *)f);
            break;
        }
    }
    return 0;
}

int sim_reset_where(sim_proc *p, sim_proc *q, bool (*like)(void *, const uint8_t *, size_t), void *user)
{
    int n = 0;
    for (int fd = 0; fd < p->files_room; fd++) {
        sim_file *f = p->files[fd];
        sim_sock *k = (sim_sock *)f;
        if (f && sim_established(f) && (!q || k->peer->file.proc == q) &&
            (!like || like(user, k->opener->opening, k->opener->opening_bytes) || p->s->tuning.planted == SIM_PLANT_BLIND_AIM)) {
            sim_reset_both(k);
            n++;
        }
    }
    return n;
}

int sim_reset_between(sim_proc *p, sim_proc *q) { return sim_reset_where(p, q, NULL, NULL); }

int sim_nat_forget(sim_site *site)
{
    int n = 0;
    for (sim_file *f = site->s->files; f; f = f->all) {
        sim_sock *k = f->kind == SIM_SOCKET ? (sim_sock *)f : NULL;
        if (k && k->opener == k && !k->forgotten && k->peer && (k->way->nat[0] == site || k->way->nat[1] == site)) {
            n += sim_established(f);
            sim_sock_forgotten(k);
        }
    }
    sim_note(site->s, "forget", site->index, n, 0);
    return n;
}

/* ---- at a virtual instant ---- */

static void sim_do_kill_proc(void *p, void *unused) { (void)unused; sim_kill_proc(p); }
static void sim_do_kill_host(void *h, void *unused) { (void)unused; sim_kill_host(h); }
static void sim_do_stop(void *p, void *unused) { (void)unused; sim_stop_proc(p); }
static void sim_do_continue(void *p, void *unused) { (void)unused; sim_continue_proc(p); }
static void sim_do_cut_sites(void *a, void *b) { sim_cut_sites(a, b); }
static void sim_do_mend_sites(void *a, void *b) { sim_mend_sites(a, b); }
static void sim_do_forget(void *site, void *unused) { (void)unused; (void)sim_nat_forget(site); }
static void sim_do_cut(void *a, void *b) { sim_cut(a, b); }
static void sim_do_mend(void *a, void *b) { sim_mend(a, b); }
static void sim_do_nic_cut(void *nic, void *unused) { (void)unused; sim_nic_cut(nic); }
static void sim_do_nic_mend(void *nic, void *unused) { (void)unused; sim_nic_mend(nic); }

void sim_kill_proc_at(sim_proc *p, int64_t when) { sim_at(p->s, when, sim_do_kill_proc, p, NULL); }
void sim_kill_host_at(sim_host *h, int64_t when) { sim_at(h->s, when, sim_do_kill_host, h, NULL); }
void sim_stop_proc_at(sim_proc *p, int64_t when) { sim_at(p->s, when, sim_do_stop, p, NULL); }
void sim_continue_proc_at(sim_proc *p, int64_t when) { sim_at(p->s, when, sim_do_continue, p, NULL); }
void sim_cut_at(sim_host *a, sim_host *b, int64_t when) { sim_at(a->s, when, sim_do_cut, a, b); }
void sim_mend_at(sim_host *a, sim_host *b, int64_t when) { sim_at(a->s, when, sim_do_mend, a, b); }
void sim_cut_sites_at(sim_site *a, sim_site *b, int64_t when) { sim_at(a->s, when, sim_do_cut_sites, a, b); }
void sim_mend_sites_at(sim_site *a, sim_site *b, int64_t when) { sim_at(a->s, when, sim_do_mend_sites, a, b); }
void sim_nic_cut_at(sim_nic *nic, int64_t when) { sim_at(nic->host->s, when, sim_do_nic_cut, nic, NULL); }
void sim_nic_mend_at(sim_nic *nic, int64_t when) { sim_at(nic->host->s, when, sim_do_nic_mend, nic, NULL); }
void sim_nat_forget_at(sim_site *site, int64_t when) { sim_at(site->s, when, sim_do_forget, site, NULL); }
