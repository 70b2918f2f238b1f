/* SPDX-License-Identifier: ISC */
/*
 * cmd/saev-read's verify, shards left out: a hostile metadata.json,
 * shards.json, manifest and names of files with their sizes, in this order.
 */
#include <fcntl.h>

#include "cmd/saev-read/verify.h"
#include "test/fuzz/files.h"

/* Each byte is a shard of 0 .. 15 whole or half ones' size. */
static void
make_shards(struct bytes part, const struct saev *s)
{
    for (size_t i = 0; i < part.n && i < 16; i++) {
        size_t unit = s->shard_nbytes > 1 << 20 ? 1 << 20 : s->shard_nbytes;
        size_t nbytes = unit * (part.data[i] & 15) / 2;
        char name[32];
        int fd;

        saev_shard_name(name, (size_t)part.data[i] >> 4);
        fd = open(fuzz_path(name), O_CREAT | O_WRONLY | O_TRUNC, 0600);
        MUST(fd >= 0 && ftruncate(fd, (off_t)nbytes) == 0 && close(fd) == 0);
    }
}

static void
remove_shards(void)
{
    for (size_t i = 0; i < 16; i++) {
        char name[32];

        saev_shard_name(name, i);
        unlink(fuzz_path(name));
    }
}

static void
check_dump(struct bytes shards)
{
    struct dump_check c;
    struct err err = { 0 };

    check_init(&c, NULL, fuzz_dir);
    if (saevdir_meta(&c.dir, fuzz_dir, &err) < 0) {
        MUST(err.status == EX_DATAERR && *err.what);
        return;
    }
    make_shards(shards, &c.dir.saev);
    MUST(saevdir_check(&c.dir, check_report, &c, &err) >= 0);
    for (size_t i = 1; i < c.dir.n_listed; i++)
        MUST(c.dir.files[i - 1].shard < c.dir.files[i].shard);
    MUST(check_others(&c, &err) == 0 && !c.run.what);
    for (size_t i = 0; i < c.problems.n; i++)
        MUST(*c.problems.s[i]);
    check_close(&c);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct bytes rest = { data, n };

    fuzz_file("metadata.json", next_part(&rest));
    fuzz_file("shards.json", next_part(&rest));
    fuzz_file("manifest.xxh3", next_part(&rest));
    remove_shards();
    check_dump(next_part(&rest));
    return 0;
}
