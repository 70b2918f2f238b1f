# SPDX-License-Identifier: ISC
# Dumps, autoencoders and lookup tables by the library, libtensorutils(3): numpy's
# numbers, the tools' bits and words.
load helpers
load lib

# Programs say what they refuse, and write what they compute to NAME.got.
begin() {
    refusals
    cat <<'END'
#include <sys/wait.h>
#include <unistd.h>
__attribute__((unused)) static void put(const char *name, int i, const void *x, size_t nbytes)
{
    char path[80];
    FILE *f;
    snprintf(path, sizeof(path), "%s%d.got", name, i);
    f = fopen(path, "wb");
    fwrite(x, 1, nbytes, f);
    fclose(f);
}
__attribute__((unused)) static void get(const char *name, void *x, size_t nbytes)
{
    FILE *f = fopen(name, "rb");
    if (fread(x, 1, nbytes, f) != nbytes)
        exit(100);
    fclose(f);
}
__attribute__((unused)) static int child_failed(void)
{
    int status;
    return wait(&status) < 0 || status != 0;
}
END
}

@test "dumps: images and rows of every view, where each is, in threads and children; the rest is refused" {
    py - <<'END'
import json, numpy as np
x = np.random.default_rng(0).standard_normal((10, 2, 5, 6)).astype("<f4")
x.tofile("x.f32")
meta = dict(vit_family="x", vit_ckpt="y", layers=[3, 7], n_patches_per_img=4, cls_token=True, d_vit=6,
            seed=0, n_imgs=10, max_patches_per_shard=35, data="")
json.dump(meta, open("m.json", "w"))
pick = np.array([39, 0, 17, 17, 2, 38], "<u8")
pick.tofile("pick")
x[:, 1:, 1:].reshape(-1, 6)[pick].tofile("want")
np.array([[i // 4, i % 4, 7] for i in pick], "<i8").tofile("where.want")
padded = np.zeros((3, 2, 4, 6), "<f4")
for i, n in enumerate((4, 1, 3)): padded[i, :, :n] = x[i, :, :n]
padded.tofile("p.f32")
json.dump(dict(meta, cls_token=False, n_imgs=3, max_patches_per_shard=8, data=dict(windows="padded")),
          open("p.json", "w"))
np.concatenate([x[i, l, :n] for i, n in enumerate((4, 1, 3)) for l in (0, 1)]).tofile("data.want")
END
    saev-write -q -m m.json -o acts <x.f32
    saev-write -q -m p.json -o padded <p.f32
    begin >x.c
    cat >>x.c <<'END'
#include <pthread.h>
static struct tu_rows *rows;
static uint64_t pick[6];
static float want[36];
static void *again(void *ctx)
{
    float got[36];
    for (int i = 0; i < 2000; i++)
        if (tu_rows_gather(rows, pick, 6, got, NULL) < 0 || memcmp(got, want, sizeof(got)))
            return "differs";
    return ctx;
}
int main(void)
{
    static float x[600], all[600], got[600];
    const struct tu_dump_info *info;
    struct tu_place where[6];
    struct tu_dump *d, *other;
    struct tu_rows *r;
    pthread_t t[4];
    const float *images;
    const int32_t *ids;
    size_t n;
    uint64_t index[100];

    get("x.f32", x, sizeof(x));
    get("pick", pick, sizeof(pick));
    get("want", want, sizeof(want));
    no(tu_dump_open(NULL, "acts", &err), TU_BAD_CALL);
    no(tu_dump_open(&d, NULL, &err), TU_BAD_CALL);
    no(tu_dump_open(&d, "none", &err), TU_NO_INPUT);
    if (d || tu_dump_info(NULL) || tu_rows_count(NULL))
        return 1;
    yes(tu_dump_open(&d, "acts", &err));
    info = tu_dump_info(d);
    if (strncmp(info->path, "acts/", 5) || strlen(info->metadata) != info->metadata_n || info->n_imgs != 10 ||
        info->n_layers != 2 || info->layers[0] != 3 || info->layers[1] != 7 || info->n_tokens != 5 ||
        info->n_patches != 4 || info->d != 6 || info->cls != 1)
        return 2;
    for (size_t i = 0; i < 10; i += n) {
        yes(tu_dump_images(d, i, &images, &n, &err));
        if (n != (i < 9 ? 3 : 1) || memcmp(images, x + i * 60, n * 240))
            return 3;
    }
    yes(tu_dump_images(d, 4, &images, &n, &err));
    if (n != 2 || memcmp(images, x + 240, 480))
        return 4;
    no(tu_dump_images(d, 10, &images, &n, &err), TU_BAD_CALL);
    no(tu_dump_images(NULL, 0, &images, &n, &err), TU_BAD_CALL);
    no(tu_dump_images(d, 0, NULL, &n, &err), TU_BAD_CALL);
    no(tu_dump_images(d, 0, &images, NULL, &err), TU_BAD_CALL);

    ids = (void *)d;
    yes(tu_dump_ids(d, &ids, &err));
    if (ids)
        return 12;
    no(tu_dump_ids(NULL, &ids, &err), TU_BAD_CALL);
    no(tu_dump_ids(d, NULL, &err), TU_BAD_CALL);

    no(tu_rows_open(&rows, d, TU_ALL, 4, 0, &err), TU_BAD_DATA);
    no(tu_rows_open(&rows, d, 3, 7, 0, &err), TU_BAD_CALL);
    no(tu_rows_open(&rows, d, TU_ALL, 7, 2, &err), TU_BAD_CALL);
    no(tu_rows_open(&rows, NULL, TU_ALL, 7, 0, &err), TU_BAD_CALL);
    no(tu_rows_open(NULL, d, TU_ALL, 7, 0, &err), TU_BAD_CALL);
    yes(tu_rows_open(&r, d, TU_ALL, TU_ALL_LAYERS, TU_SKIP_PADDING, &err));
    for (size_t i = 0; i < 100; i++)
        index[i] = 99 - i;
    yes(tu_rows_gather(r, index, tu_rows_count(r), all, &err));
    for (size_t i = 0; i < 100; i++)
        if (memcmp(all + i * 6, x + (99 - i) * 6, 24))
            return 5;
    tu_rows_close(r);
    yes(tu_rows_open(&rows, d, TU_IMAGE, 7, 0, &err));
    if (tu_rows_count(rows) != 40)
        return 6;
    yes(tu_rows_gather(rows, NULL, 0, NULL, &err));
    no(tu_rows_gather(rows, NULL, 1, got, &err), TU_BAD_CALL);
    no(tu_rows_gather(rows, pick, 1, NULL, &err), TU_BAD_CALL);
    no(tu_rows_gather(NULL, pick, 1, got, &err), TU_BAD_CALL);
    index[0] = 40;
    no(tu_rows_gather(rows, index, 1, got, &err), TU_BAD_CALL);
    no(tu_rows_places(rows, index, 1, where, &err), TU_BAD_CALL);
    no(tu_rows_places(rows, pick, 1, NULL, &err), TU_BAD_CALL);
    yes(tu_rows_places(rows, pick, 6, where, &err));
    put("where", 0, where, sizeof(where));
    /* another handle, whose shards nobody has used: by many at once */
    tu_rows_close(rows);
    tu_dump_close(d);
    yes(tu_dump_open(&d, "acts", &err));
    yes(tu_rows_open(&rows, d, TU_IMAGE, 7, 0, &err));
    for (int i = 0; i < 4; i++)
        pthread_create(&t[i], NULL, again, NULL);
    if (fork() == 0)
        _exit(again(NULL) != NULL);
    for (int i = 0; i < 4; i++) {
        void *said = NULL;
        pthread_join(t[i], &said);
        if (said)
            return 7;
    }
    if (child_failed())
        return 8;
    tu_rows_close(rows);

    yes(tu_dump_open(&other, "padded", &err));
    yes(tu_rows_open(&r, other, TU_ALL, TU_ALL_LAYERS, 0, &err));
    if (tu_rows_count(r) != 24)
        return 9;
    tu_rows_close(r);
    yes(tu_rows_open(&r, other, TU_ALL, TU_ALL_LAYERS, TU_SKIP_PADDING, &err));
    for (size_t i = 0; i < 100; i++)
        index[i] = i;
    if (tu_rows_count(r) != 16)
        return 10;
    yes(tu_rows_gather(r, index, 16, got, &err));
    put("data", 0, got, 16 * 24);
    no(tu_rows_open(&rows, other, TU_CLS, 7, 0, &err), TU_BAD_DATA);
    tu_rows_close(r);
    tu_rows_close(NULL);
    tu_dump_close(other);
    tu_dump_close(d);
    tu_dump_close(NULL);
    /* one that became shorter since it was opened */
    yes(tu_dump_open(&d, "acts", &err));
    if (system("chmod u+w acts/*/*.bin && truncate -s 700 acts/*/acts000001.bin"))
        return 11;
    no(tu_dump_images(d, 3, &images, &n, &err), TU_BAD_DATA);
    tu_dump_close(d);
    no(tu_dump_open(&d, "acts", &err), TU_BAD_DATA);
    return 0;
}
END
    build x.c -pthread
    ASAN_OPTIONS=detect_leaks=1 run -0 ./x
    cmp where.want where0.got
    cmp data.want data0.got
    said=$output last=${lines[-1]}
    run -65 saev-read -q --raw acts 0
    [ "$output" = "saev-read: $last" ]
    for words in "acts000001.bin: 700 bytes (expected 720)" "has no CLS token" "row 40 of 40" \
        "image 10 of 10" "layer 4 is not in the dump"; do
        [[ $said == *"$words"* ]]
    done
}

@test "SAEs and tables: numpy's numbers, lut-apply's bits with any threads and in children; the rest is refused" {
    py - <<'END'
import numpy as np, lut_ref as ref
rng = np.random.default_rng(2)
x = rng.standard_normal((70, 20)).astype("<f4")
x[3, 5] = np.inf
np.save("x.npy", x); x.tofile("x.f32")
sae = ref.tiny_sae(rng, 48, 20)
layer, w = "model.layers.0.mlp.up_proj", rng.standard_normal((12, 20))
for i, dtype in enumerate(("F32", "BF16")):
    t = ref.write_lut("t%d" % i, {layer: ref.table(sae, w)}, 5, dtype, centered=True)[layer]
    ref.write_sae("s%d" % i, "saelens", {k: t[k] for k in sae}, 5, dtype, cfg=dict(hook_name="blocks.0.hook_resid_post"))
ref.write_sae("s2", "dictionary_topk", sae, 5, cfg=dict(k=None))
good = np.arange(70) != 3
z = ref.preact(t, x[good], True)
kept = np.zeros_like(z)
for r, s in enumerate(ref.top_k(z, 5)): kept[r, s] = z[r, s]
want = np.full((70, 48), np.nan)
want[good] = kept
np.save("z.npy", want)
END
    begin >x.c
    cat >>x.c <<'END'
int main(void)
{
    static float x[1400], z[70 * 48], zt[70 * 48], y[1400], yt[70 * 12], w[2][960], b[2][48];
    const struct tu_sae_info *info;
    const struct tu_table_info *of;
    struct tu_sae *sae, *none;
    struct tu_table *table;
    char name[20];

    get("x.f32", x, sizeof(x));
    no(tu_sae_open(NULL, "s0", 0, &err), TU_BAD_CALL);
    no(tu_sae_open(&none, NULL, 0, &err), TU_BAD_CALL);
    no(tu_sae_open(&none, "s0", -1, &err), TU_BAD_CALL);
    no(tu_sae_open(&none, "none", 0, &err), TU_NO_INPUT);
    no(tu_sae_open(&none, "s2", 0, &err), TU_BAD_DATA);
    no(tu_table_open(NULL, "t0", "x", 0, &err), TU_BAD_CALL);
    no(tu_table_open(&table, NULL, "x", 0, &err), TU_BAD_CALL);
    no(tu_table_open(&table, "t0", NULL, 0, &err), TU_BAD_CALL);
    no(tu_table_open(&table, "t0", "x", 5000, &err), TU_BAD_CALL);
    no(tu_table_open(&table, "s0", "x", 0, &err), TU_NO_INPUT);
    no(tu_table_open(&table, "t0", "layers.1.mlp.up_proj", 0, &err), TU_BAD_DATA);
    if (none || table || tu_sae_info(NULL) || tu_table_info(NULL))
        return 1;
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof(name), "s%d", i);
        yes(tu_sae_open(&sae, name, 1 + 2 * i, &err));
        info = tu_sae_info(sae);
        if (strncmp(info->path, name, 2) || strcmp(info->hook, "blocks.0.hook_resid_post") || info->n != 48 || info->d != 20 ||
            info->activation != TU_TOPK || info->k != 5 || !info->centered || info->thresholds)
            return 2;
        *name = 't';
        yes(tu_table_open(&table, name, "layers.0.mlp.up_proj", i, &err));
        of = tu_table_info(table);
        if (strcmp(of->layer, "model.layers.0.mlp.up_proj") || of->n != 48 || of->in != 20 || of->out != 12 || of->k != 5 ||
            !of->centered || !of->has_bias || of->thresholds || strncmp(of->path, name, 2))
            return 3;
        for (int k = 0; k < 3; k++) { /* in a child, here, and in a child after that */
            if (k != 1 && fork() != 0) {
                if (child_failed())
                    return 4;
                continue;
            }
            yes(tu_sae_encode(sae, x, 70, z, &err));
            yes(tu_table_encode(table, x, 70, zt, &err));
            yes(tu_table_encode(table, x + 200, 1, zt + 480, &err)); /* row 10 alone */
            if (memcmp(z, zt, sizeof(z)))
                return 5;
            yes(tu_sae_decode(sae, z, 70, y, &err));
            yes(tu_table_apply(table, x, 70, yt, &err));
            put(k == 1 ? "y" : k ? "y-after" : "y-before", i, y, sizeof(y));
            put(k == 1 ? "out" : k ? "out-after" : "out-before", i, yt, sizeof(yt));
            if (k == 1)
                continue;
            tu_sae_close(sae);
            tu_table_close(table);
            _exit(0);
        }
        put("z", i, z, sizeof(z));
        yes(tu_table_reconstruct(table, x, 70, y, &err));
        put("xhat", i, y, sizeof(y));
        yes(tu_sae_weights(sae, w[0], b[0], w[1], b[1], &err));
        put("w", i, w, sizeof(w));
        yes(tu_sae_encode(sae, NULL, 0, NULL, &err));
        no(tu_sae_encode(sae, NULL, 1, z, &err), TU_BAD_CALL);
        no(tu_sae_encode(NULL, x, 1, z, &err), TU_BAD_CALL);
        no(tu_sae_decode(sae, z, 1, NULL, &err), TU_BAD_CALL);
        no(tu_sae_decode(NULL, z, 1, y, &err), TU_BAD_CALL);
        no(tu_sae_weights(sae, w[0], NULL, w[1], b[1], &err), TU_BAD_CALL);
        no(tu_table_apply(NULL, x, 1, y, &err), TU_BAD_CALL);
        no(tu_table_encode(table, x, 1, NULL, &err), TU_BAD_CALL);
        no(tu_table_reconstruct(table, NULL, 1, y, &err), TU_BAD_CALL);
        tu_sae_close(sae);
        tu_table_close(table);
    }
    tu_sae_close(NULL);
    tu_table_close(NULL);
    return 0;
}
END
    build x.c
    ASAN_OPTIONS=detect_leaks=1 run -0 ./x
    for i in 0 1; do
        lut-apply -q "t$i" layers.0.mlp.up_proj --xhat "xhat$i.npy" --raw <x.npy >out.f32
        for f in out out-before out-after; do cmp out.f32 "$f$i.got"; done
        for f in y y-before y-after; do cmp "xhat$i.got" "$f$i.got"; done
    done
    py - <<'END'
import numpy as np, lut_ref as ref
f4 = lambda name, n: np.fromfile(name, "<f4").reshape(-1, n)
for i in "01":
    assert f4("xhat%s.got" % i, 20).tobytes() == np.load("xhat%s.npy" % i).tobytes()
    t = ref.read_safetensors("t%s/model.layers.0.mlp.up_proj.lut.safetensors" % i)[0]
    assert (f4("w%s.got" % i, 20) == np.vstack([t["encoder_weight"], t["decoder_weight"]])).all()
want = np.load("z.npy")
assert np.isnan(want[3]).all() and np.allclose(f4("z1.got", 48), want, atol=1e-4, equal_nan=True)
END
    [[ $output == *"s2/"*"does not say how many latents are active"* ]]
    [ "$(grep -c 'is NULL$' <<<"$output")" -eq 21 ]
}

@test "RUNs of sae-look: tensors and labels are what was written; the rest is refused" {
    ref="$ROOT/test/ref/look_ref.py"
    py "$ref" sae 24 8 4 1 sae
    py "$ref" rows 60 8 2 x.npy
    py "$ref" ids 6 10 3 ids.npy
    py "$ref" scan sae x.npy run ids=ids.npy top=4 sample=6 context=2,3 max_norm=40
    printf 'latent\tlabel\n4\tcats\n' >run/labels.tsv
    cp -r run bad
    py - <<'END'
import look_ref, numpy as np
meta, t = look_ref.read("run")
for name in "latent", "top_value", "sample_ids", "sum_limbs": t[name].tofile(name + "0.want")
print(meta["rows"], meta["left_out"], meta["sequences"])
i = int(np.argmax(t["rows_active"]))
ids = t["sample_ids"].copy()
ids[i, 0, 2] = -7
look_ref.write("worse", meta, {**t, "sample_ids": ids})
END
    rm bad/look.safetensors
    begin >x.c
    cat >>x.c <<'END'
int main(void)
{
    const char *const names[] = { "latent", "top_value", "sample_ids", "sum_limbs" };
    const struct tu_look_info *info;
    const struct tu_tensor *t;
    struct tu_look *look, *none;
    const char *label;
    size_t n;

    no(tu_look_open(NULL, "run", &err), TU_BAD_CALL);
    no(tu_look_open(&none, NULL, &err), TU_BAD_CALL);
    no(tu_look_open(&none, "bad", &err), TU_NO_INPUT);
    no(tu_look_open(&none, "sae", &err), TU_NO_INPUT);
    yes(tu_look_open(&look, "worse", &err));
    yes(tu_look_tensor(look, "top_acts", &t, &err));
    no(tu_look_tensor(look, "sample_ids", &t, &err), TU_BAD_DATA);
    no(tu_look_tensor(look, "sample_acts", &t, NULL), 0);
    if (t || tu_look_label(look, 0, &label, &n) != -1)
        return 1;
    tu_look_close(look);
    yes(tu_look_open(&look, "run", &err));
    info = tu_look_info(look);
    printf("%d %d %d\n", (int)info->rows, (int)info->left_out, (int)info->sequences);
    if (none || tu_look_info(NULL) || strcmp(info->path, "run") || info->n_latents != 24 || info->d != 8 ||
        info->n_tokens != 10 || info->before != 2 || info->after != 3 || info->per_row || info->hook)
        return 2;
    for (int i = 0; i < 4; i++) {
        yes(tu_look_tensor(look, names[i], &t, &err));
        if (strcmp(t->name, names[i]) || t->shape[0] != 24)
            return 3;
        put(names[i], 0, t->data, t->nbytes);
        if (i == 2 && (t->n_dims != 3 || t->shape[1] != 6 || t->shape[2] != 6 || t->n != 24 * 36 || strcmp(t->dtype, "I32")))
            return 4;
    }
    if (tu_look_tensor(look, "pairs", &t, &err) != 0 || t || tu_look_tensor(look, "x", &t, &err) != 0 || t)
        return 5;
    no(tu_look_tensor(NULL, "hist", &t, &err), TU_BAD_CALL);
    no(tu_look_tensor(look, NULL, &t, &err), TU_BAD_CALL);
    no(tu_look_tensor(look, "hist", NULL, &err), TU_BAD_CALL);
    if (tu_look_label(look, 0, &label, &n) != 4 || n != 4 || memcmp(label, "cats", 4) || tu_look_label(look, 1, &label, &n) != -1 ||
        tu_look_label(NULL, 0, &label, &n) != -1)
        return 6;
    tu_look_close(look);
    tu_look_close(NULL);
    return 0;
}
END
    build x.c
    ASAN_OPTIONS=detect_leaks=1 run -0 ./x
    for f in *.want; do cmp "$f" "${f%.want}.got"; done
}
