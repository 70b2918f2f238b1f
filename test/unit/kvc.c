/* SPDX-License-Identifier: ISC */
/* core/format/kvc: refusals are those of the format's text, made by hand from
 * a sound file of test/ref/kvc_ref.py. */
#include "core/format/kvc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/le.h"
#include "core/map.h"
#include "core/str.h"
#include "test/unit/ref.h"
#include "test/unit/tap.h"

static const char *dir;

static void
keep(void *ctx, const char *what)
{
    str_addf(ctx, "%s\n", what);
}

/* Writes 0.bin with 'nbytes' of it, some bytes changed, and tries it. */
static void
spoil(size_t at, uint32_t value, size_t nbytes, const char *want, bool opens)
{
    struct str s = { 0 }, said = { 0 };
    struct err err = { 0 };
    struct kvc k;
    FILE *f = fopen(ref_path(dir, "bad.bin"), "wb");
    bool as_wanted;

    ref_read(dir, "0.bin", "", &s);
    str_addc(&s, 'x');
    put_le32(s.s + at, value);
    if (f) {
        fwrite(s.s, 1, nbytes ? nbytes : s.n - 1, f);
        fclose(f);
    }
    if (kvc_open(&k, ref_path(dir, "bad.bin"), &err) < 0) {
        as_wanted = !opens && strstr(err.what, want);
        str_adds(&said, err.what);
    } else {
        int n = kvc_check(&k, 0, keep, &said);

        as_wanted = opens && (*want ? n > 0 && strstr(said.s, want) : n == 0);
        kvc_close(&k);
    }
    if (!tap_ok(as_wanted, "kvc: %s", *want ? want : "a sound file is sound"))
        printf("# %s\n", said.s ? said.s : "");
    str_free(&s);
    str_free(&said);
}

static void
test_defects(void)
{
    struct str s = { 0 };
    size_t first = KVC_HEADER_BYTES, rows, second;

    ref_read(dir, "0.bin", "", &s);
    rows = le32(s.s + first);
    second = first + KVC_BLOCK_BYTES + rows * (40 + 1) * 2; /* f16, biases */
    tap_ok(le32(s.s + second + 4) == rows && second + 4 < s.n,
           "kvc: the second block is where it is expected");
    spoil(8, 0, second + 4, "ends before block 1 of 24 (4 bytes are left)",
          false);
    spoil(8, 0, 0, "", true);
    spoil(0, 1, 0, "magic is 0x00000001 (expected 0x4b56434d)", false);
    spoil(4, 2, 0, "version is 2 (expected 1)", false);
    spoil(8, 3, 0, "dtype code is 3", false);
    spoil(12, 0, 0, "0 layers of 12 blocks (expected 1 or more)", false);
    spoil(36, 0, 0, "2 layers of 0 blocks (expected 1 or more)", false);
    spoil(12, 0xffffffff, 0, "4294967295 layers of 12 blocks, but", false);
    spoil(40, 0xffffffff, 0, "metadata of 4294967295 bytes, but", false);
    spoil(first, 0, 0, "block 0 at byte 44 is 0 x 40 (expected 1 or more)",
          false);
    spoil(first, 0xffffffff, 0, "block 0 at byte 44 is 4294967295 x 40", false);
    spoil(8, 0, s.n - 1, "bytes are left", false);
    spoil(8, 0, 43, "has 43 bytes (expected at least 44)", false);
    spoil(8, 0, s.n + 1, "1 byte after the last block", true);
    spoil(8, 7u << 16, 0, "reserved is 7 (expected 0)", true);
    spoil(first + 8, 2, 0, "has_bias is 2 (expected 0 or 1)", true);
    spoil(20, 7, 0, "head_dim 7 x compression_factor 5 is not hidden_size, 40",
          true);
    spoil(24, 41, 0, "hidden_size is 41, but the first block has 40 columns",
          true);
    spoil(36, 3, 0, "weight_count_per_layer is 3 (expected 6, text, or 12",
          true);
    spoil(28, 1, 0, "compression_factor is 1: nothing is compressed", true);
    spoil(first + 12, 0x7e007c00, 0, "2 NaN or infinite numbers", true);
    str_free(&s);
}

int
main(void)
{
    dir = ref_dir();
    if (!dir)
        return tap_done();
    if (ref_kept("kvc_ref.py", dir, "numpy"))
        test_defects();
    ref_remove(dir);
    return tap_done();
}
