/* SPDX-License-Identifier: ISC */
#include <immintrin.h>
#include <string.h>

#include "test/bench/probe.h"

/* Eight full tiles: 16 rows of 64 bytes. */
static void
configure(void)
{
    uint8_t c[64] = { 1 };

    for (int i = 0; i < 8; i++) {
        c[16 + 2 * i] = 64;
        c[48 + i] = 16;
    }
    __asm__ volatile("" : : "m"(c)); /* all 64 bytes are read */
    _tile_loadconfig(c);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
}

/* 16 x 16 sums of 32 products, four tiles side by side. */
static double
bf16(uint64_t n)
{
    configure();
    for (uint64_t k = 0; k < n; k++) {
        _tile_dpbf16ps(0, 4, 5);
        _tile_dpbf16ps(1, 4, 5);
        _tile_dpbf16ps(2, 4, 5);
        _tile_dpbf16ps(3, 4, 5);
    }
    _tile_release();
    return 4.0 * 16 * 16 * 32 * 2 * (double)n;
}

static double
int8(uint64_t n)
{
    configure();
    for (uint64_t k = 0; k < n; k++) {
        _tile_dpbssd(0, 4, 5);
        _tile_dpbssd(1, 4, 5);
        _tile_dpbssd(2, 4, 5);
        _tile_dpbssd(3, 4, 5);
    }
    _tile_release();
    return 4.0 * 16 * 16 * 64 * 2 * (double)n;
}

const struct probe probe_amx = { .bf16 = bf16, .int8 = int8 };
