/* SPDX-License-Identifier: ISC */
#include "core/hash.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "core/le.h"
#include "core/mem.h"

/*
 * XXH3 with the CPU's vectors, where libxxhash was built with its dispatcher:
 * shared libraries on x86-64 mostly are, Debian's libxxhash.a is not.  The
 * plain function has SSE2, half as fast as read(2) of a cached file.  NULL if
 * there is none; the states are the same.
 */
extern XXH_errorcode XXH3_128bits_update_dispatch(XXH3_state_t *state,
                                                  const void *data, size_t n)
    __attribute__((weak));

struct hash {
    enum hash_kind kind;
    XXH3_state_t *xxh3;
    EVP_MD_CTX *sha256;
};

static void *
ssl_malloc(size_t nbytes, const char *file, int line)
{
    (void)file;
    (void)line;
    return xmalloc(nbytes);
}

static void *
ssl_realloc(void *p, size_t nbytes, const char *file, int line)
{
    (void)file;
    (void)line;
    if (nbytes)
        return xrealloc(p, nbytes, 1);
    free(p);
    return NULL;
}

static void
ssl_free(void *p, const char *file, int line)
{
    (void)file;
    (void)line;
    free(p);
}

/* Without memory, libcrypto's first steps take NULL for a lock. */
__attribute__((constructor)) static void
die_without_memory(void)
{
    CRYPTO_set_mem_functions(ssl_malloc, ssl_realloc, ssl_free);
}

/* A state without memory is the same case as xmalloc()'s. */
static void *
need(void *p, size_t nbytes)
{
    return p ? p : xmalloc(nbytes);
}

struct hash *
hash_new(enum hash_kind kind)
{
    struct hash *h = xcalloc(1, sizeof(*h));

    h->kind = kind;
    if (kind == HASH_XXH3) {
        h->xxh3 = need(XXH3_createState(), SIZE_MAX / 2);
        XXH3_128bits_reset(h->xxh3);
    } else {
        h->sha256 = need(EVP_MD_CTX_new(), SIZE_MAX / 2);
        if (!EVP_DigestInit_ex(h->sha256, EVP_sha256(), NULL))
            xmalloc(SIZE_MAX / 2); /* it fails for want of memory alone */
    }
    return h;
}

void
hash_add(struct hash *h, const void *data, size_t nbytes)
{
    if (h->kind == HASH_SHA256)
        EVP_DigestUpdate(h->sha256, data, nbytes);
    else if (XXH3_128bits_update_dispatch)
        XXH3_128bits_update_dispatch(h->xxh3, data, nbytes);
    else
        XXH3_128bits_update(h->xxh3, data, nbytes);
}

void
hash_sample(struct hash *hash, const void *data, size_t nbytes)
{
    enum { PIECES = 16, PIECE = 4096 };
    size_t n = smaller(nbytes, PIECE);

    for (size_t i = 0; i < PIECES; i++)
        hash_add(hash,
                 (const char *)data + (nbytes - n) / (PIECES - 1) * i +
                     (nbytes - n) % (PIECES - 1) * i / (PIECES - 1),
                 n);
}

void
hash_add_numbers(struct hash *hash, const void *numbers, size_t n, size_t item)
{
    char block[1 << 14];

    for (size_t i = 0, k; i < n; i += k) {
        k = smaller(n - i, sizeof(block) / item);
        memcpy(block, (const char *)numbers + i * item, k * item);
        le_numbers(block, k, item);
        hash_add(hash, block, k * item);
    }
}

void
hash_free(struct hash *h)
{
    if (!h)
        return;
    XXH3_freeState(h->xxh3);
    EVP_MD_CTX_free(h->sha256);
    free(h);
}

void
hash_end(struct hash *h, char hex[HASH_MAX_HEX])
{
    static const char digits[] = "0123456789abcdef";
    unsigned char sum[32];
    unsigned n = 32;

    if (h->kind == HASH_XXH3) {
        XXH128_canonical_t c;

        XXH128_canonicalFromHash(&c, XXH3_128bits_digest(h->xxh3));
        n = sizeof(c.digest);
        memcpy(sum, c.digest, n);
    } else {
        EVP_DigestFinal_ex(h->sha256, sum, &n);
    }
    for (unsigned i = 0; i < n; i++) {
        hex[2 * i] = digits[sum[i] >> 4];
        hex[2 * i + 1] = digits[sum[i] & 15];
    }
    hex[2 * n] = '\0';
    hash_free(h);
}

const char *
hash_name(enum hash_kind kind)
{
    return kind == HASH_XXH3 ? "xxh3" : "sha256";
}
