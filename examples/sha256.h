/* sha256.h: SHA-256 (FIPS 180-4) of a stream of bytes, in one header.
 * SPDX-License-Identifier: MIT
 *
 * sha256 s; sha256_begin(&s); sha256_add(&s, data, bytes); ... sha256_end(&s, digest);
 */
#ifndef SHA256_H
#define SHA256_H

#include <stdint.h>
#include <string.h>

enum { SHA256_BYTES = 32, SHA256_BLOCK = 64 };

typedef struct sha256 {
    uint32_t h[8];
    uint64_t bytes;                         /* so far */
    unsigned char block[SHA256_BLOCK];      /* the last bytes % 64 of them */
} sha256;

static inline uint32_t sha256_turn(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

/* Round j of eight: variable x of the standard (a to h: 0 to 7) is v[(x - j) mod 8]. */
static inline void sha256_round(uint32_t v[8], int j, uint32_t kw)
{
    uint32_t a = v[(8 - j) & 7], b = v[(9 - j) & 7], c = v[(10 - j) & 7], e = v[(12 - j) & 7], f = v[(13 - j) & 7], g = v[(14 - j) & 7];
    uint32_t t = v[(15 - j) & 7] + (sha256_turn(e, 6) ^ sha256_turn(e, 11) ^ sha256_turn(e, 25)) + ((e & f) ^ (~e & g)) + kw;
    v[(11 - j) & 7] += t;
    v[(15 - j) & 7] = t + (sha256_turn(a, 2) ^ sha256_turn(a, 13) ^ sha256_turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
}

static inline void sha256_block(uint32_t h[8], const unsigned char *p)
{
    static const uint32_t k[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
        0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
        0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
        0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
        0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
        0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
        0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2 };
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 | (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + w[i - 7] + (sha256_turn(a, 7) ^ sha256_turn(a, 18) ^ a >> 3)
               + (sha256_turn(b, 17) ^ sha256_turn(b, 19) ^ b >> 10);
    }
    memcpy(v, h, sizeof v);
    for (int i = 0; i < 64; i += 8) {       /* the eight variables take turns instead of moving on; unrolled, they stay in registers */
        sha256_round(v, 0, k[i] + w[i]);
        sha256_round(v, 1, k[i + 1] + w[i + 1]);
        sha256_round(v, 2, k[i + 2] + w[i + 2]);
        sha256_round(v, 3, k[i + 3] + w[i + 3]);
        sha256_round(v, 4, k[i + 4] + w[i + 4]);
        sha256_round(v, 5, k[i + 5] + w[i + 5]);
        sha256_round(v, 6, k[i + 6] + w[i + 6]);
        sha256_round(v, 7, k[i + 7] + w[i + 7]);
    }
    for (int i = 0; i < 8; i++) h[i] += v[i];
}

static inline void sha256_begin(sha256 *s)
{
    static const uint32_t h[8] = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19 };
    memcpy(s->h, h, sizeof h);
    s->bytes = 0;
}

static inline void sha256_add(sha256 *s, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    size_t held = (size_t)(s->bytes % SHA256_BLOCK);
    s->bytes += bytes;
    if (held) {
        size_t part = SHA256_BLOCK - held < bytes ? SHA256_BLOCK - held : bytes;
        memcpy(s->block + held, p, part);
        p += part;
        bytes -= part;
        if (held + part < SHA256_BLOCK) return;
        sha256_block(s->h, s->block);
    }
    for (; bytes >= SHA256_BLOCK; p += SHA256_BLOCK, bytes -= SHA256_BLOCK) sha256_block(s->h, p);
    if (bytes) memcpy(s->block, p, bytes);
}

static inline void sha256_end(sha256 *s, unsigned char digest[SHA256_BYTES])
{
    static const unsigned char padding[SHA256_BLOCK] = { 0x80 };
    unsigned char length[8];
    uint64_t bits = s->bytes * 8;
    size_t held = (size_t)(s->bytes % SHA256_BLOCK);
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)(bits >> (56 - 8 * i));
    sha256_add(s, padding, held < 56 ? 56 - held : 120 - held);
    sha256_add(s, length, 8);
    for (int i = 0; i < 32; i++) digest[i] = (unsigned char)(s->h[i / 4] >> (24 - 8 * (i % 4)));
}

#endif
