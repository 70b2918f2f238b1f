/* SPDX-License-Identifier: ISC */
/*
 * cmd/lut-precompute/index: a hostile metadata.json and header of a table's
 * file; the index that is made of them is made again from itself.
 */
#include "cmd/lut-precompute/cmd.h"
#include "core/format/lut.h"
#include "core/map.h"
#include "test/fuzz/files.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct bytes rest = { data, n };
    const char *path = fuzz_file("metadata.json", next_part(&rest));
    struct str first = { 0 }, again = { 0 };
    struct err err = { 0 };

    fuzz_st("t" LUT_SUFFIX, next_part(&rest));
    if (index_check(fuzz_dir, &err) < 0 ||
        index_write(fuzz_dir, n & 1, &err) < 0) {
        MUST(err.status == EX_DATAERR && *err.what);
        return 0;
    }
    MUST(file_read_all(path, SIZE_MAX / 2, &first, &err) == 0);
    MUST(index_write(fuzz_dir, n & 1, &err) == 0);
    MUST(file_read_all(path, SIZE_MAX / 2, &again, &err) == 0);
    MUST(first.n == again.n && !memcmp(first.s, again.s, first.n));
    str_free(&first);
    str_free(&again);
    return 0;
}
