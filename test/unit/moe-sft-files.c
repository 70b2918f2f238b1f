/* SPDX-License-Identifier: ISC */
/*
 * cmd/moe-sft's files: the same numbers stacked, as a model directory and as
 * PEFT's directory are the same weights; what does not fit is named.  The files
 * are written by test/ref/moe.py.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/moe-sft/adapter.h"
#include "cmd/moe-sft/base.h"
#include "cmd/moe-sft/batch.h"
#include "cmd/moe-sft/peft.h"
#include "core/map.h"
#include "test/unit/ref.h"
#include "test/unit/tap.h"

static char dir[64];

static const char *
path(const char *name)
{
    static char buf[4][128];
    static int i;

    i = (i + 1) % 4;
    snprintf(buf[i], sizeof(buf[i]), "%s/%s", dir, name);
    return buf[i];
}

static void
digest_of_base(const char *name, int64_t layer, char hex[HASH_MAX_HEX])
{
    struct hash *h = hash_new(HASH_XXH3);
    struct err err = { 0 };
    struct base b;

    if (!tap_ok(base_open(&b, path(name), layer, &err) == 0,
                "base: %s opens: %s", name, err.what))
        return;
    base_digest(&b, h);
    hash_end(h, hex);
    tap_ok(b.n_experts == 4 && b.hidden == 96 && b.intermediate == 80,
           "base: %s has 4 experts, 96 x 80", name);
    base_close(&b);
}

static void
test_base(void)
{
    char a[HASH_MAX_HEX] = "a", b[HASH_MAX_HEX] = "b";
    struct err err = { 0 };
    struct base base;

    digest_of_base("base.safetensors", -1, a);
    digest_of_base("hf", 3, b);
    tap_ok(!strcmp(a, b), "base: stacked and directory are the same weights");
    base_open(&base, path("hf"), -1, &err);
    tap_ok(base.layer == 3 && base.top_k == 2 && base.routing.normalize &&
               base.router.weight.data,
           "base: a directory's only layer, its router and configuration");
    base_close(&base);
    tap_ok(base_open(&base, path("hf"), 7, &err) < 0 &&
               strstr(err.what, "has no experts of layer 7 (of layers 3 to 3)"),
           "base: a layer that is not there: %s", err.what);
    tap_ok(base_open(&base, path("batch.safetensors"), -1, &err) < 0 &&
               strstr(err.what, "has no tensor gate_proj, nor model.layers."),
           "base: a file of something else: %s", err.what);
}

static void
digest_of_adapter(const char *name, const struct base *base,
                  char hex[HASH_MAX_HEX])
{
    struct hash *h = hash_new(HASH_XXH3);
    struct err err = { 0 };
    struct expert_adapter a;

    if (!tap_ok(adapter_open(&a, path(name), base, &err) == 0,
                "adapter: %s opens: %s", name, err.what))
        return;
    adapter_digest(&a, h);
    hash_end(h, hex);
    tap_ok(a.rank == 5 && a.alpha == 10 && a.layer == 3,
           "adapter: %s has rank 5, alpha 10, layer 3", name);
    adapter_close(&a);
}

static void
test_round_trip(const char *name, const char *want)
{
    char hex[HASH_MAX_HEX] = "";
    struct expert_adapter a;
    struct err err = { 0 };
    int rc;

    adapter_open(&a, path("lora.safetensors"), NULL, &err);
    rc = strchr(name, '.')
             ? adapter_write(&a, path(name), 0, &err)
             : adapter_write_peft(&a, 1, NULL, false, path(name), 0, &err);
    tap_ok(rc == 0, "adapter: is written as %s: %s", name, err.what);
    adapter_close(&a);
    digest_of_adapter(name, NULL, hex);
    tap_ok(!strcmp(hex, want), "adapter: %s is the same adapter", name);
}

static void
test_adapter(void)
{
    char a[HASH_MAX_HEX] = "a", b[HASH_MAX_HEX] = "b", c[HASH_MAX_HEX] = "c";
    struct err err = { 0 };
    struct expert_adapter adapter;
    struct base base;

    base_open(&base, path("base.safetensors"), -1, &err);
    digest_of_adapter("lora.safetensors", &base, a);
    digest_of_adapter("peft", NULL, b);
    digest_of_adapter("peft", &base, c);
    tap_ok(!strcmp(a, b) && !strcmp(a, c),
           "adapter: ours and PEFT's are the same numbers");
    test_round_trip("again.safetensors", a);
    test_round_trip("again", a);
    base.hidden = 97;
    tap_ok(adapter_open(&adapter, path("lora.safetensors"), &base, &err) < 0 &&
               strstr(err.what, "gate_lora_a is [4, 5, 96] (expected [4, rank, "
                                "97])"),
           "adapter: of another width is refused: %s", err.what);
    base.hidden = 96;
    base_close(&base);
}

/* ---- batches ---- */

static struct str file;

static int
parse(struct batch *b, unsigned need, size_t hidden, struct err *err)
{
    return batch_parse(b, file.s, file.n, "b", need, hidden, err);
}

static void
test_batch(void)
{
    struct err err = { 0 };
    struct batch b;
    size_t n_taken = 0;

    file_read_all(path("batch.safetensors"), 1 << 20, &file, &err);
    tap_ok(parse(&b,
                 BATCH_INPUT | BATCH_ROUTING | BATCH_GRAD_OUTPUT | BATCH_TARGET,
                 96, &err) == 0 &&
               b.qlen == 37 && b.top_k == 2 && b.hidden == 96,
           "batch: 37 tokens, 2 experts each, 96 wide");
    tap_ok(b.expert_ids && b.expert_ids[0] >= 0 && b.expert_ids[0] < 4 &&
               b.weights && b.weights[0] > 0 && b.weights[0] < 1,
           "batch: ids and weights in this machine's order");
    batch_close(&b);
    tap_ok(parse(&b, BATCH_INPUT, 95, &err) < 0 &&
               !strcmp(err.what, "b: input is [37, 96] (expected [qlen, 95])"),
           "batch: another width: %s", err.what);
    for (size_t n = 0; n < file.n; n += n < 700 ? 1 : 997) {
        char *copy = malloc(n + 1); /* so that ASan sees a read beyond it */

        memcpy(copy, file.s, n);
        n_taken += batch_parse(&b, copy, n, "b", 0, 0, &err) == 0;
        free(copy);
    }
    tap_ok(n_taken == 0, "batch: cut anywhere is refused");
}

/* The file twice and then a half: two batches, then an error. */
static void
test_stream(void)
{
    FILE *f = tmpfile();
    struct err err = { 0 };
    struct batch b;
    int rc[4];

    fwrite(file.s, 1, file.n, f);
    fwrite(file.s, 1, file.n, f);
    fwrite(file.s, 1, file.n / 2, f);
    fflush(f);
    lseek(fileno(f), 0, SEEK_SET);
    for (int i = 0; i < 3; i++) {
        rc[i] = batch_next(&b, fileno(f), "s", BATCH_INPUT, 96, &err);
        if (rc[i] > 0)
            batch_close(&b);
    }
    tap_ok(rc[0] == 1 && rc[1] == 1 && rc[2] == -1 &&
               strstr(err.what, "s: a batch ended after"),
           "batch: a stream of two and a half: %s", err.what);
    tap_ok(batch_next(&b, fileno(f), "s", BATCH_INPUT, 96, &err) == 0,
           "batch: the end of a stream is 0");
    fclose(f);
}

/* The router's choice against numpy: test/moe-sft.bats; here what it is. */
static void
test_route(void)
{
    struct err err = { 0 };
    struct gemm *gemm;
    struct base base;
    struct batch b;
    int good = 1;

    gemm_open(&gemm, NULL, &err);
    base_open(&base, path("hf"), 3, &err);
    parse(&b, BATCH_INPUT, 96, &err);
    free(b.expert_ids);
    free(b.weights);
    b.expert_ids = NULL;
    b.weights = NULL;
    tap_ok(batch_route(&b, &base, gemm, &err) == 0 && b.top_k == 2,
           "route: a batch without routing gets the model's: %s", err.what);
    for (size_t i = 0; i < b.qlen; i++) {
        float w0 = b.weights[2 * i], w1 = b.weights[2 * i + 1];

        good &= b.expert_ids[2 * i] != b.expert_ids[2 * i + 1];
        good &= w0 >= w1 && w0 + w1 > 0.999999F && w0 + w1 < 1.000001F;
    }
    tap_ok(good, "route: two experts, the heavier first, normalized");
    batch_close(&b);
    base_close(&base);
    gemm_close(gemm);
}

int
main(void)
{
    char command[128];

    strcpy(dir, "/tmp/moe-sft-files.XXXXXX");
    if (!mkdtemp(dir))
        return 1;
    if (ref_kept("moe.py", dir, "numpy")) {
        test_base();
        test_adapter();
        test_batch();
        test_stream();
        test_route();
    }
    str_free(&file);
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    return system(command) || tap_done();
}
