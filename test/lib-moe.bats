# SPDX-License-Identifier: ISC
# The experts' operator of the library: libtensorutils(3).
load helpers
load lib

@test "experts.c: the numbers of float64" {
    example experts
    ./experts >said
    py - <<'END'
import numpy as np, mkst, moe
E, K, D, R, N = 4, 2, 64, 8, 3
i = np.arange(E * D * D, dtype="u8")
w = mkst.from_bf16((0x3d00 | (i * 40503 & 0xffffffff) >> 4 & 0x80ff).astype("<u2")).astype("f8")
base = {p + "_proj": w.reshape(E, D, D) for p in moe.PROJ}
lora = {n: w[:E * R * D].reshape((E, R, D) if n[-1] == "a" else (E, D, R)) for n in moe.LORA}
x = w[:N * D].reshape(N, D)
want = moe.reference(base, lora, 16.0, dict(
    input=x, grad_output=x, expert_ids=np.array([[0, 1], [1, 2], [3, 0]]),
    weights=np.array([[.5, .5], [.9, .1], [.2, .8]])))
for got, z in zip(open("said").read().split(), (want["output"], want["grad_gate_lora_a"])):
    assert abs(float(got) - z.flat[0]) < 0.02 * abs(z).mean(), (got, z.flat[0])
END
}

# operator: a program that runs moe.py's numbers, which a.safetensors and so on
# have, and writes what comes out; its calls are direct, or, if argv[1] is
# submit, in the operator's thread; argv[2] parts, argv[3] the mode.
operator() {
    refusals
    cat <<'END'
static const uint16_t *of(const struct tu_st *st, const char *name, size_t *n)
{
    const struct tu_tensor *t = tu_st_find(st, name);

    if (!t)
        printf("no %s\n", name), exit(3);
    *n = t->n;
    return t->data;
}
static void *aligned(const struct tu_st *st, const char *name)
{
    const struct tu_tensor *t = tu_st_find(st, name);

    return memcpy(malloc(t->nbytes), t->data, t->nbytes);
}
static void put(const char *name, const void *p, size_t nbytes)
{
    FILE *f = fopen(name, "wb");

    fwrite(p, 1, nbytes, f);
    fclose(f);
}
enum { E = 4, K = 2, H = 96, I = 80, R = 5, N = 37 };
static const char *const names[] = { "gate_lora_a", "gate_lora_b", "up_lora_a", "up_lora_b", "down_lora_a", "down_lora_b" };

int main(int argc, char **argv)
{
    struct tu_moe_config c = { sizeof(c), E, K, H, I, R, 10, .max_len = N, .n_threads = 2 };
    struct tu_moe_weights base = { .size = sizeof(base) };
    struct tu_moe_lora lora = { .size = sizeof(lora) };
    struct tu_moe_batch batch = { sizeof(batch), N, K, H, NULL, NULL, NULL };
    struct tu_moe_grads g = { sizeof(g), N, malloc(N * H * 2), malloc(N * K * 4), 0, { 0 }, { 0 } };
    struct tu_moe_memory memory = { .size = sizeof(memory) };
    float *out = malloc(N * H * 4);
    struct tu_st *a, *b, *l;
    struct tu_moe *m;
    const uint16_t *dy;
    int later = argc > 1 && !strcmp(argv[1], "submit");
    size_t n;

    c.n_parts = (size_t)atoi(argv[2]);
    c.mode = !strcmp(argv[3], "int8") ? TU_MOE_INT8 : TU_MOE_BF16;
    yes(tu_st_open(&a, "base.safetensors", &err));
    yes(tu_st_open(&b, "batch.safetensors", &err));
    yes(tu_st_open(&l, "lora.safetensors", &err));
    base.gate = of(a, "gate_proj", &base.n);
    base.up = of(a, "up_proj", &base.n);
    base.down = of(a, "down_proj", &base.n);
    for (int i = 0; i < TU_N_LORA; i++) {
        lora.m[i] = of(l, names[i], &lora.n[i]);
        g.n[i] = lora.n[i];
        g.lora[i] = malloc(g.n[i] * 4);
    }
    batch.expert_ids = aligned(b, "expert_ids");
    batch.weights = aligned(b, "weights");
    batch.input = of(b, "input", &n);
    dy = of(b, "grad_output", &n);
    yes(tu_moe_memory(&c, &memory, &err));
    yes(memory.total < memory.base + memory.cache || memory.cache < memory.slot);
    yes(tu_moe_open(&m, &c, &err));
    if (later) {
        yes(tu_moe_update_lora(m, &lora, &err));
        yes(tu_moe_submit_load(m, &base, &err));
        yes(tu_moe_submit_forward(m, &batch, out, 1, &err));
        yes(tu_moe_submit_backward(m, dy, &g, &err));
        no(tu_moe_forward(m, &batch, out, 1, &err), TU_BAD_CALL);
        no(tu_moe_update_lora(m, &lora, &err), TU_BAD_CALL);
        no(tu_moe_drop(m, &err), TU_BAD_CALL);
        yes(tu_moe_sync(m, &err));
    } else {
        yes(tu_moe_load(m, &base, &err));
        yes(tu_moe_update_lora(m, &lora, &err));
        yes(tu_moe_warm_up(m, &err));
        yes(tu_moe_forward(m, &batch, out, 1, &err));
        yes(tu_moe_depth(m) != 1 || tu_moe_skipped(m));
        yes(tu_moe_backward(m, dy, &g, &err));
    }
    yes(tu_moe_depth(m) != 0);
    put("output", out, N * H * 4);
    put("grad_input", g.input, N * H * 2);
    put("grad_weights", g.weights, N * K * 4);
    for (int i = 0; i < TU_N_LORA; i++)
        put(names[i], g.lora[i], g.n[i] * 4);
    tu_moe_close(m);
    return 0;
}
END
}

@test "experts: within the operator's limits of float64, in parts, int8, and in its thread the same bits" {
    py "$ROOT/test/ref/moe.py" .
    operator >x.c
    build x.c
    cat >judge.py <<'END'
import sys, numpy as np, mkst, moe
weights, meta = moe.read("lora.safetensors")
want = moe.reference(moe.read("base.safetensors")[0], weights, float(meta["lora_alpha"]), moe.read("batch.safetensors")[0])
got = {n: np.fromfile(n.replace("grad_", "") if "lora" in n else n, "<u2" if n == "grad_input" else "<f4").reshape(z.shape) for n, z in want.items()}
got["grad_input"] = mkst.from_bf16(got["grad_input"]).reshape(want["grad_input"].shape)
bad = moe.compare(got, want, ["output"], float(sys.argv[1]), 4)
bad += moe.compare(got, want, [n for n in want if n != "output"], float(sys.argv[2]), 4)
assert not bad, bad
END
    for parts in 1 3; do
        for mode in bf16 int8; do
            ./x now $parts $mode
            if [ $mode = bf16 ]; then py judge.py 0.01 0.015; else py judge.py 0.05 0.06; fi
            md5sum output grad_* *_lora_* >now
            rm -f output grad_* *_lora_*
            ./x submit $parts $mode >said
            [ "$(grep -c 'submitted calls may be running (tu_moe_sync)' said)" = 3 ]
            md5sum --quiet -c now
        done
    done
}

# bats test_tags=long
@test "experts: tensorutils.py finds the library that was installed with it" {
    not_sanitized
    need_torch
    unset LD_LIBRARY_PATH
    PYTHONPATH=$P/share/tensorutils/python run -0 "$PYTHON" -c 'import torch, tensorutils as tu
w = torch.ones(2, 8, 8).bfloat16()
op = tu.MoE(w, w, w, [w] * 6, 8, 1, 4)
print(op(w[0, :4], torch.zeros(4, 1).long(), torch.ones(4, 1)).shape)
print(sorted({line.split()[-1] for line in open("/proc/self/maps") if "libtensorutils" in line}))'
    [ "${lines[0]}" = "torch.Size([4, 8])" ]
    [ "${lines[1]}" = "['$P/lib/$(basename "$(readlink -f "$P/lib/libtensorutils.so")")']" ]
}

@test "experts: every wrong call is an error, now or at the sync, and nothing is changed" {
    refusals >x.c
    cat >>x.c <<'END'
enum { E = 4, K = 2, H = 32, I = 48, R = 2, N = 4 };
static uint16_t w[E * H * I], dy[N * H];
static float out[N * H], gw[N * K], odd[N * K + 1];
static int64_t ids[N * K];
static struct tu_moe *m;

static void config(struct tu_moe_config c)
{
    no(tu_moe_open(&m, &c, &err), TU_BAD_CALL);
    if (m)
        exit(3);
}

int main(void)
{
    struct tu_moe_config c = { sizeof(c), E, K, H, I, R, 4, .max_len = N, .strict_ids = 1 }, d;
    struct tu_moe_weights base = { sizeof(base), E * H * I, w, w, w };
    struct tu_moe_lora lora = { .size = sizeof(lora) };
    struct tu_moe_batch b = { sizeof(b), N, K, H, ids, gw, dy }, e;
    struct tu_moe_grads g = { sizeof(g), N, NULL, gw, 0, { 0 }, { 0 } }, h;
    struct tu_moe_memory memory = { 0 };

#define WITH(field, value) (d = c, d.field = (value), d)
    config(WITH(size, 8));
    config(WITH(n_experts, 0));
    config(WITH(n_experts, 1 << 20));
    config(WITH(top_k, 0));
    config(WITH(hidden, 0));
    config(WITH(hidden, (size_t)1 << 62));
    config(WITH(intermediate, 0));
    config(WITH(lora_rank, 0));
    config(WITH(max_len, 0));
    config(WITH(max_cache_depth, 1 << 30));
    config(WITH(n_parts, 1 << 20));
    config(WITH(n_threads, -1));
    config(WITH(mode, 2));
    no(tu_moe_open(NULL, &c, &err), TU_BAD_CALL);
    no(tu_moe_open(&m, NULL, &err), TU_BAD_CALL);
    no(tu_moe_memory(&c, NULL, &err), TU_BAD_CALL);
    no(tu_moe_memory(&c, &memory, &err), TU_BAD_CALL);
    config(WITH(max_len, (size_t)1 << 44));
    d = WITH(hidden, (size_t)1 << 45); /* more than there are addresses */
    if (tu_moe_open(&m, &d, &err) == 0 || err.status != TU_NO_MEMORY)
        return puts(err.what), 4;
    for (int i = 0; i < TU_N_LORA; i++) {
        lora.m[i] = w;
        lora.n[i] = (size_t)E * R * (i == TU_GATE_A || i == TU_UP_A || i == TU_DOWN_B ? H : I);
    }
    yes(tu_moe_open(&m, &c, &err));
    no(tu_moe_forward(m, &b, out, 1, &err), TU_BAD_CALL); /* no weights */
    no(tu_moe_warm_up(m, &err), TU_BAD_CALL);
    base.n--;
    no(tu_moe_load(m, &base, &err), TU_BAD_CALL);
    base.n++;
    base.up = NULL;
    no(tu_moe_load(m, &base, &err), TU_BAD_CALL);
    base.up = w;
    no(tu_moe_load(NULL, &base, &err), TU_BAD_CALL);
    no(tu_moe_load(m, NULL, &err), TU_BAD_CALL);
    yes(tu_moe_load(m, &base, &err));
    no(tu_moe_forward(m, &b, out, 1, &err), TU_BAD_CALL); /* no adapter */
    lora.n[3]++;
    no(tu_moe_update_lora(m, &lora, &err), TU_BAD_CALL);
    lora.n[3]--;
    lora.m[5] = NULL;
    no(tu_moe_update_lora(m, &lora, &err), TU_BAD_CALL);
    lora.m[5] = w;
    yes(tu_moe_update_lora(m, &lora, &err));
    no(tu_moe_backward(m, dy, &g, &err), TU_BAD_CALL); /* no forward */
    no(tu_moe_drop(m, &err), TU_BAD_CALL);
#define BATCH(field, value) (e = b, e.field = (value), &e)
    no(tu_moe_forward(m, BATCH(qlen, N + 1), out, 1, &err), TU_BAD_CALL);
    no(tu_moe_forward(m, BATCH(top_k, 1), out, 1, &err), TU_BAD_CALL);
    no(tu_moe_forward(m, BATCH(hidden, 1), out, 1, &err), TU_BAD_CALL);
    no(tu_moe_forward(m, BATCH(expert_ids, NULL), out, 1, &err), TU_BAD_CALL);
    no(tu_moe_forward(m, BATCH(weights, (float *)(void *)((char *)odd + 1)), out, 1, &err), TU_BAD_CALL);
    no(tu_moe_forward(m, BATCH(input, NULL), out, 1, &err), TU_BAD_CALL);
    no(tu_moe_forward(m, &b, NULL, 1, &err), TU_BAD_CALL);
    no(tu_moe_forward(m, NULL, out, 1, &err), TU_BAD_CALL);
    no(tu_moe_forward(NULL, &b, out, 1, &err), TU_BAD_CALL);
    ids[3] = E;
    no(tu_moe_forward(m, &b, out, 1, &err), TU_BAD_CALL); /* strict_ids */
    yes(tu_moe_submit_forward(m, &b, out, 1, &err));
    yes(tu_moe_submit_backward(m, dy, &g, &err)); /* dropped */
    no(tu_moe_sync(m, &err), TU_BAD_CALL);
    yes(tu_moe_sync(m, &err));
    ids[3] = 0;
    yes(tu_moe_forward(m, BATCH(qlen, 0), NULL, 1, &err));
    h = g;
    h.qlen = 0;
    no(tu_moe_backward(m, dy, &g, &err), TU_BAD_CALL); /* another qlen */
    yes(tu_moe_backward(m, NULL, &h, &err));
    yes(tu_moe_forward(m, &b, out, 1, &err));
    no(tu_moe_forward(m, &b, out, 1, &err), TU_BAD_CALL); /* the cache is full */
    yes(tu_moe_depth(m) != 1);
    g.lora[2] = out, g.n[2] = 1;
    no(tu_moe_backward(m, dy, &g, &err), TU_BAD_CALL);
    g.lora[2] = NULL;
    no(tu_moe_backward(m, NULL, &g, &err), TU_BAD_CALL);
    no(tu_moe_backward(m, dy, NULL, &err), TU_BAD_CALL);
    no(tu_moe_backward(NULL, dy, &g, &err), TU_BAD_CALL);
    yes(tu_moe_drop(m, &err));
    yes(tu_moe_depth(m) != 0);
    yes(tu_moe_forward(m, &b, out, 1, &err));
    yes(tu_moe_backward(m, dy, &g, &err));
    no(tu_moe_sync(NULL, &err), TU_BAD_CALL);
    yes(tu_moe_submit_forward(m, &b, out, 1, &err));
    tu_moe_close(m); /* waits */
    tu_moe_close(NULL);
    return tu_moe_depth(NULL) || tu_moe_skipped(NULL);
}
END
    build x.c
    run -0 ./x
    [[ $output == *"weights of 6143 numbers (expected 6144)"* ]]
    [[ $output == *"up_lora_b has "*" numbers (expected 384)"* ]]
    [[ $output == *"the cache is full (1, by max_cache_depth)"* ]]
}
