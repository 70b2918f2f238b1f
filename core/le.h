/* SPDX-License-Identifier: ISC */
/*
 * Little-endian integers in files: read and written byte by byte, so that
 * neither alignment nor the machine's own order matters.  Compilers turn each
 * into one instruction.
 */
#ifndef CORE_LE_H
#define CORE_LE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint16_t
le16(const void *p)
{
    const uint8_t *b = p;

    return (uint16_t)(b[0] | b[1] << 8);
}

static inline uint32_t
le32(const void *p)
{
    return le16(p) | (uint32_t)le16((const uint8_t *)p + 2) << 16;
}

static inline uint64_t
le64(const void *p)
{
    return le32(p) | (uint64_t)le32((const uint8_t *)p + 4) << 32;
}

static inline void
put_le16(void *p, uint16_t v)
{
    uint8_t *b = p;

    b[0] = (uint8_t)v;
    b[1] = (uint8_t)(v >> 8);
}

static inline void
put_le32(void *p, uint32_t v)
{
    put_le16(p, (uint16_t)v);
    put_le16((uint8_t *)p + 2, (uint16_t)(v >> 16));
}

static inline void
put_le64(void *p, uint64_t v)
{
    put_le32(p, (uint32_t)v);
    put_le32((uint8_t *)p + 4, (uint32_t)(v >> 32));
}

static inline float
le_f32(const void *p)
{
    uint32_t u = le32(p);
    float f;

    memcpy(&f, &u, sizeof(f));
    return f;
}

static inline double
le_f64(const void *p)
{
    uint64_t u = le64(p);
    double f;

    memcpy(&f, &u, sizeof(f));
    return f;
}

/* le_numbers() makes n numbers of 4 or 8 bytes, an 'item', little-endian where
 * the machine's order is another, or such ones its own. */
static inline void
le_numbers(void *numbers, size_t n, size_t item)
{
    unsigned char *at = numbers;

    for (size_t i = 0; __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ && i < n; i++) {
        uint64_t v = item == 4 ? le32(at + i * item) : le64(at + i * item);

        for (size_t k = item; k-- > 0; v >>= 8)
            at[i * item + k] = (unsigned char)v;
    }
}

#endif
