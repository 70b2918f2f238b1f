/* SPDX-License-Identifier: ISC */
/*
 * core/hash and core/rng.  SHA-256: FIPS 180-2, appendix B.  XXH3-128 of
 * nothing: xxHash's own sanity table; of more: its function for all at once.
 * Philox: numpy.random.Philox, asked at run time where $PYTHON has numpy.
 */
#include "core/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "core/rng.h"
#include "test/unit/tap.h"

static void
hex_of(enum hash_kind kind, const char *s, size_t n, size_t step,
       char hex[HASH_MAX_HEX])
{
    struct hash *h = hash_new(kind);

    for (size_t i = 0; i < n; i += step)
        hash_add(h, s + i, n - i < step ? n - i : step);
    hash_end(h, hex);
}

static void
test_sha256(void)
{
    static const char abc[] =
        "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    char hex[HASH_MAX_HEX], *a = malloc(1000000);

    hex_of(HASH_SHA256, "abc", 3, 3, hex);
    tap_ok(!strcmp(hex, "ba7816bf8f01cfea414140de5dae2223"
                        "b00361a396177a9cb410ff61f20015ad"),
           "SHA-256 of \"abc\" is FIPS 180-2's");
    hex_of(HASH_SHA256, abc, 56, 1, hex);
    tap_ok(!strcmp(hex, "248d6a61d20638b8e5c026930c3e6039"
                        "a33ce45964ff2167f6ecedd419db06c1"),
           "SHA-256 of two blocks is FIPS 180-2's, byte by byte");
    memset(a, 'a', 1000000);
    hex_of(HASH_SHA256, a, 1000000, 4099, hex);
    tap_ok(!strcmp(hex, "cdc76e5c9914fb9281a1c7e284d73e67"
                        "f1809a48a497200e046d39ccc7112cd0"),
           "SHA-256 of a million a is FIPS 180-2's, in pieces");
    free(a);
}

static void
test_xxh3(void)
{
    char hex[HASH_MAX_HEX], want[HASH_MAX_HEX], s[9000];
    size_t n_wrong = 0;

    hex_of(HASH_XXH3, "", 0, 1, hex);
    tap_ok(!strcmp(hex, "99aa06d3014798d86001c324468d497f"),
           "XXH3-128 of nothing is the published one, high half first");
    for (size_t i = 0; i < sizeof(s); i++)
        s[i] = (char)(i * 7 + i / 256);
    for (size_t n = 0; n < sizeof(s); n += 37) {
        XXH128_hash_t h = XXH3_128bits(s, n);

        snprintf(want, sizeof(want), "%016" PRIx64 "%016" PRIx64,
                 (uint64_t)h.high64, (uint64_t)h.low64);
        hex_of(HASH_XXH3, s, n, 11, hex);
        n_wrong += strcmp(hex, want) != 0;
        hex_of(HASH_XXH3, s, n, 4099, hex);
        n_wrong += strcmp(hex, want) != 0;
    }
    tap_ok(n_wrong == 0,
           "XXH3-128 in pieces is that of the whole by libxxhash's plain path");
    tap_ok(!strcmp(hash_name(HASH_XXH3), "xxh3") &&
               !strcmp(hash_name(HASH_SHA256), "sha256"),
           "hashes have names");
}

/* The bytes of two's complement and of IEEE 754, least significant first. */
static void
test_numbers(void)
{
    static const int32_t i32[] = { -100, 0x01020304 };
    static const uint64_t u64[] = { 0x0102030405060708, 9 };
    static const float f32[] = { 1, -0.1f };
    static const double f64[] = { -2 };
    static const unsigned char bytes[] = {
        0x9c, 0xff, 0xff, 0xff, 4,    3,    2,    1, /* i32 */
        8,    7,    6,    5,    4,    3,    2,    1,
        9,    0,    0,    0,    0,    0,    0,    0,    /* u64 */
        0,    0,    0x80, 0x3f, 0xcd, 0xcc, 0xcc, 0xbd, /* f32 */
        0,    0,    0,    0,    0,    0,    0,    0xc0, /* f64 */
    };
    struct hash *h = hash_new(HASH_SHA256);
    char hex[HASH_MAX_HEX], want[HASH_MAX_HEX];

    hash_add_numbers(h, i32, 2, 4);
    hash_add_numbers(h, u64, 2, 8);
    hash_add_numbers(h, NULL, 0, 8);
    hash_add_numbers(h, f32, 2, 4);
    hash_add_numbers(h, f64, 1, 8);
    hash_end(h, hex);
    hex_of(HASH_SHA256, (const char *)bytes, sizeof(bytes), 64, want);
    tap_ok(!strcmp(hex, want), "hash_add_numbers: little-endian bytes");
}

static void
test_numpy(void)
{
    static const char script[] =
        "import numpy as np\n"
        "for s, t in ((0, 0), (1, 2), (2**64 - 1, 2**63)):\n"
        "    p = np.random.Philox(key=s | t << 64)\n"
        "    for i, v in enumerate(p.random_raw(99)):\n"
        "        print(s, t, i, v)\n"
        "    g = np.random.Generator(np.random.Philox(key=s | t << 64))\n"
        "    for i, v in enumerate(g.random(9)):\n"
        "        print(s, t, i, v.hex(), 1)\n";
    const char *python = getenv("PYTHON");
    char command[1024], line[200], word[64];
    uint64_t seed, stream, i;
    size_t n = 0, n_wrong = 0;
    FILE *f;

    snprintf(command, sizeof(command), "%s -c '%s' 2>/dev/null",
             python ? python : "python3", script);
    f = popen(command, "r");
    while (f && fgets(line, sizeof(line), f)) {
        if (sscanf(line, "%" SCNu64 " %" SCNu64 " %" SCNu64 " %63s", &seed,
                   &stream, &i, word) != 4)
            break;
        n++;
        n_wrong += strchr(word, 'x')
                       ? rng_f64(seed, stream, i) != strtod(word, NULL)
                       : rng_u64(seed, stream, i) != strtoull(word, NULL, 10);
    }
    if (!f || pclose(f) != 0)
        tap_skip("Philox is numpy's", "no numpy");
    else
        tap_ok(n == 3 * 108 && n_wrong == 0,
               "Philox is numpy's: 99 words and 9 floats of 3 streams");
}

static void
test_words(void)
{
    uint64_t words[16];
    size_t n_wrong = 0;

    for (uint64_t first = 0; first < 9; first++)
        for (size_t n = 0; n < 16; n++) {
            words[n] = 7;
            rng_words(5, 6, first, n, words);
            for (size_t i = 0; i < n; i++)
                n_wrong += words[i] != rng_u64(5, 6, first + i);
            n_wrong += words[n] != 7;
        }
    tap_ok(n_wrong == 0, "rng_words: those of rng_u64, whatever the first");
}

static void
test_ranges(void)
{
    float most = 0;
    double sum = 0;

    for (uint64_t i = 0; i < 100000; i++) {
        float v = rng_f32(7, 1, i);

        sum += (double)v;
        most = v > most ? v : most;
    }
    tap_ok(most < 1 && most > 0.9999f && sum > 49500 && sum < 50500,
           "100000 rng_f32() lie in [0, 1), mean within 5.5 sigma of 1/2");
}

int
main(void)
{
    test_sha256();
    test_xxh3();
    test_numbers();
    test_numpy();
    test_words();
    test_ranges();
    return tap_done();
}
