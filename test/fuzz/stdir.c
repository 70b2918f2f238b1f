/* SPDX-License-Identifier: ISC */
/* core/format/stdir: any bytes as a model.safetensors.index.json beside two
 * shards; what opens finds each of its tensors where the index says. */
#include "core/format/stdir.h"

#include <sys/stat.h>

#include "test/fuzz/files.h"

/* Two bytes each, "a" and "b", "b" and "c". */
#define SHARD(one, two)                                                 \
    "\x70\0\0\0\0\0\0\0{\"" one                                         \
    "\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"" two \
    "\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}}       1234"

static void
make_shards(void)
{
    static const char one[] = SHARD("a", "b"), two[] = SHARD("b", "c");

    if (*fuzz_dir)
        return;
    MUST(mkdir(fuzz_path("sub"), 0700) == 0);
    fuzz_file("1.safetensors",
              (struct bytes){ (const uint8_t *)one, sizeof(one) - 1 });
    fuzz_file("sub/2.safetensors",
              (struct bytes){ (const uint8_t *)two, sizeof(two) - 1 });
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct err err = { 0 };
    struct stdir dir;

    make_shards();
    fuzz_file("model.safetensors.index.json", (struct bytes){ data, n });
    if (stdir_open(&dir, fuzz_dir, &err) < 0) {
        MUST(err.status == EX_DATAERR);
        MUST(!dir.path && !dir.files && !dir.tensors);
        return 0;
    }
    MUST(dir.n_files <= 2 && dir.n_tensors >= 1 && dir.n_tensors <= 3);
    for (size_t i = 0; i < dir.n_tensors; i++) {
        const struct stdir_tensor *t = &dir.tensors[i];

        MUST(t->st >= dir.files && t->st < dir.files + dir.n_files);
        MUST(stdir_find(&dir, t->t->name) == t);
    }
    MUST(stdir_map(&dir, &err) == 0 && !stdir_find(&dir, "d"));
    stdir_close(&dir);
    return 0;
}
