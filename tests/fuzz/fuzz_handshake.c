/* fuzz_handshake.c: libFuzzer target for the handshake of every port. Raw bytes never prove anything; of an honest pair whose
 * messages are tampered with no side takes what was altered for a proof, and no byte is taken beyond the handshake. Where
 * both are satisfied they call the connection by the same number.
 * SPDX-License-Identifier: MIT
 *
 * covers: boot.c ^(gci_shake|shake_)
 */
#include "gridcomm_int.h"
#include "tests/fuzz/fuzz.h"

enum { RANKS = 8, ACCEPTOR = 3, CONNECTOR = 5 };

static gci_shake_self self_of(int rank, uint64_t job, const char *key)
{
    return (gci_shake_self){ rank, RANKS, job, (const uint8_t *)key, strlen(key) };
}

/* Whoever feeds raw bytes does not know the key. */
static void raw(source *s, bool acceptor)
{
    static const uint8_t nonce[GCI_NONCE_BYTES] = { 1 };
    gci_shake_self self = self_of(acceptor ? ACCEPTOR : CONNECTOR, 42, "sesame");
    gci_shake k;
    char text[GCI_TEXT];

    if (acceptor)
        gci_shake_accept(&k, &self, nonce);
    else
        gci_shake_connect(&k, &self, GCI_PURPOSE_DATA, ACCEPTOR, 0, 0, nonce);
    while (k.state == GCI_SHAKE_READS && s->bytes) {
        size_t piece = 1 + next(s) % 64, wants = gci_shake_wants(&k), took;
        piece = gci_min(piece, s->bytes);
        took = gci_shake_feed(&k, s->data, piece);
        must(took == gci_min(piece, wants));
        s->data += took;
        s->bytes -= took;
        if (k.state == GCI_SHAKE_DECIDES)
            gci_shake_decide(&k, GCI_REFUSE_NOT);
    }
    must(k.state != GCI_SHAKE_DONE);
    must(gci_shake_feed(&k, s->data, s->bytes) <= gci_min(s->bytes, GCI_CHALLENGE_BYTES));
    must(strlen(gci_shake_text(&k, text)) > 0);
}

/* Moves what `from` says to `to`, perhaps altered. Returns whether it was. */
static bool carry(gci_shake *from, gci_shake *to, source *s)
{
    uint8_t count = next(s) % 4, before[GCI_CHALLENGE_BYTES];
    bool altered;

    memcpy(before, from->out, sizeof before);
    for (uint8_t i = 0; i < count && from->out_bytes; i++) {
        size_t at = next(s) % from->out_bytes;
        from->out[at] ^= next(s);
    }
    altered = memcmp(before, from->out, sizeof before) != 0;
    for (size_t at = 0; at < from->out_bytes;) {
        size_t took = gci_shake_feed(to, from->out + at, from->out_bytes - at);
        if (!took)
            break;
        at += took;
        if (to->state == GCI_SHAKE_DECIDES)
            gci_shake_decide(to, next(s) % 8 == 7 ? GCI_REFUSE_BUSY : GCI_REFUSE_NOT);
    }
    from->out_bytes = 0;
    return altered;
}

static void tampered(source *s)
{
    static const uint8_t nonce_a[GCI_NONCE_BYTES] = { 1 }, nonce_c[GCI_NONCE_BYTES] = { 2 };
    uint8_t choice = next(s);
    enum gci_purpose purpose = (enum gci_purpose)(1 + choice % (GCI_PURPOSES - 1));
    gci_shake_self a = self_of(ACCEPTOR, choice & 64 ? 43 : 42, "sesame");
    gci_shake_self c = self_of(CONNECTOR, purpose == GCI_PURPOSE_JOIN ? 0 : 42, choice & 128 ? "open" : "sesame");
    gci_shake acceptor, connector;
    bool altered = false, met = true, same = a.key_bytes == c.key_bytes && (a.job == c.job || !c.job);
    unsigned strand = purpose == GCI_PURPOSE_STRAND ? choice : 0, trunk = purpose == GCI_PURPOSE_STRAND ? next(s) : 0;

    gci_shake_accept(&acceptor, &a, nonce_a);
    gci_shake_connect(&connector, &c, purpose, choice & 32 ? ACCEPTOR + 1 : ACCEPTOR, strand, trunk, nonce_c);
    for (int message = 0; message < 2; message++) {
        altered = carry(&connector, &acceptor, s) || altered;
        must(acceptor.state != GCI_SHAKE_DONE || (message == 1 && !altered && same));
        must(acceptor.state != GCI_SHAKE_DONE || (acceptor.strand == strand && acceptor.trunk == trunk && !strand == !trunk));
        bool answer = carry(&acceptor, &connector, s);
        if (message == 0)               /* HELLO and CHALLENGE prove the acceptor; the verdict itself proves nothing */
            met = !(altered = altered || answer);
        must(connector.state != GCI_SHAKE_DONE || (message == 1 && met && same));
        must(connector.state != GCI_SHAKE_DONE || acceptor.state != GCI_SHAKE_DONE || (connector.id && connector.id == acceptor.id));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    source s = { data, bytes };
    uint8_t mode = next(&s) % 4;

    if (mode < 2)
        raw(&s, mode == 0);
    else
        tampered(&s);
    return 0;
}
