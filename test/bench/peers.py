# SPDX-License-Identifier: ISC
"""peers.py KERNELS TABLE MOE ENGINE LM SAE LOOK VISION: other libraries' products on
the shapes of the table, run in turns with ours (KERNELS is
build/test/bench/kernels), as our speed in ratio to theirs; and a lookup table's
formula as lut(5) has it, word for word, in torch, a batch of 64 (TABLE is
build/test/bench/table); and LoRA of experts by torch's autograd (MOE is
build/test/bench/moe), and of a model's two layers (LM is build/test/bench/lm),
whose forwards it keeps or, as we do, does again (torch.utils.checkpoint); and a
step of an autoencoder (SAE is build/test/bench/sae), dense as autograd has it,
or with gradients of active latents alone; and the sequences where latents are
strongest, which must be those of sae-look (LOOK); and the layers of ViT-B/16
(VISION is build/test/bench/vision). torch's products are those of
the system's BLAS, which should be libopenblas0-pthread: libblas3's are slow.
What is not installed is left out with a line that says so.

LLAMA_BENCH names a llama-bench, which then runs the same random model as GGUF
(ENGINE is build/test/bench/engine): BF16, tokens one by one and a prompt of 512.
LLAMA_SHAPE is one of random-model.py's, qwen3-0.6b if it is not set: llama-bench
from before April 2025 knows llama-3.2-1b, but not that.

oneDNN is called through its C interface, version 2 (Debian: libdnnl2),
OpenBLAS (libopenblas0-pthread) through numpy, if numpy has it, or cblas_sgemm,
torch (python3-torch) through torch.mm.  Each runs in a process of its own for
each thread count.

peers.py openblas KERNELS: OpenBLAS alone, which make bench always asks for.
"""
import ctypes
import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

SHAPES = [(512, 4096, 1024), (1024, 16384, 1024)]
LUT_SHAPE = (1024, 4096, 8192, 128)  # in, out, directions, k
# experts, of a token, hidden, intermediate, rank, tokens
MOE_SHAPE = (8, 2, 2048, 1408, 16, 512)
BATCH = 64
ROUNDS = 5
LAYOUT = "%-18s %-17s %-11s %7d %10.1f %-9s %5.2f  %s"


def typical(run):
    """Seconds, the median of some calls."""
    run()
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def fastest(run, m, n, k):
    """GFLOP/s."""
    return 2e-9 * m * n * k / typical(run)


def openblas(kind, m, n, k):
    import numpy as np

    a, b = np.ones((m, k), "f4"), np.ones((n, k), "f4")
    c = np.zeros((m, n), "f4")
    with open("/proc/self/maps") as loaded:
        if "openblas" in loaded.read():  # numpy's own
            return fastest(lambda: np.matmul(a, b.T, out=c), m, n, k)
    # Debian's lies in a directory of its own, not where the loader looks
    found = glob.glob("/usr/lib/*/openblas-pthread/libopenblas.so.0")
    lib = ctypes.CDLL(found[0] if found else "libopenblas.so.0")
    p, i, f = ctypes.c_void_p, ctypes.c_int, ctypes.c_float

    def run():
        # row-major, A, B transposed
        lib.cblas_sgemm(i(101), i(111), i(112), i(m), i(n), i(k), f(1),
                        p(a.ctypes.data), i(k), p(b.ctypes.data), i(k), f(0),
                        p(c.ctypes.data), i(n))

    return fastest(run, m, n, k)


class Dnnl:
    """A matmul of oneDNN 2: s8 x s8 -> s32 or bf16 x bf16 -> f32, the weights
    in the layout it likes best (as ours packed before)."""

    TYPES = {"bf16": (2, 2, 3), "int8": (5, 5, 4)}  # dnnl_data_type_t

    def __init__(self, kind, m, n, k):
        self.lib = lib = ctypes.CDLL("libdnnl.so.2")
        new = ctypes.create_string_buffer
        src, weights, dst = self.TYPES[kind]
        self.engine, self.stream = ctypes.c_void_p(), ctypes.c_void_p()
        self.check(lib.dnnl_engine_create(ctypes.byref(self.engine), 1,
                                          ctypes.c_size_t(0)))
        self.check(lib.dnnl_stream_create(ctypes.byref(self.stream),
                                          self.engine, 1))
        plain, like_best = 3, 1  # dnnl_ab, dnnl_format_tag_any
        mds = [self.layout((m, k), src, plain),
               self.layout((k, n), weights, like_best),
               self.layout((m, n), dst, plain)]
        op = new(16384)
        self.check(lib.dnnl_matmul_desc_init(op, mds[0], mds[1], None, mds[2]))
        pd = ctypes.c_void_p()
        self.check(lib.dnnl_primitive_desc_create(
            ctypes.byref(pd), op, None, self.engine, None))
        self.primitive = ctypes.c_void_p()
        self.check(lib.dnnl_primitive_create(ctypes.byref(self.primitive), pd))
        lib.dnnl_primitive_desc_query_md.restype = ctypes.c_void_p
        what = [129, 131, 133]  # dnnl_query_src_md, weights_md, dst_md
        args = (ctypes.c_byte * (16 * 3))()
        for i, (query, index) in enumerate(zip(what, (1, 33, 17))):
            md = ctypes.c_void_p(lib.dnnl_primitive_desc_query_md(pd, query, 0))
            memory = ctypes.c_void_p()
            # DNNL_MEMORY_ALLOCATE is the address -1
            self.check(lib.dnnl_memory_create(
                ctypes.byref(memory), md, self.engine, ctypes.c_void_p(-1)))
            self.fill(memory, md)
            ctypes.c_int.from_buffer(args, 16 * i).value = index
            ctypes.c_void_p.from_buffer(args, 16 * i + 8).value = memory.value
        self.args = args

    def fill(self, memory, md):
        """Pages of its own: what was never written is one page, and cached."""
        data, size = ctypes.c_void_p(), self.lib.dnnl_memory_desc_get_size
        size.restype = ctypes.c_size_t
        self.check(self.lib.dnnl_memory_get_data_handle(memory,
                                                        ctypes.byref(data)))
        ctypes.memset(data, 0x3c, size(md))

    def check(self, status):
        if status:
            raise OSError("oneDNN says %d" % status)

    def layout(self, dims, kind, tag):
        md = ctypes.create_string_buffer(4096)
        array = (ctypes.c_int64 * 12)(*dims)
        self.check(self.lib.dnnl_memory_desc_init_by_tag(md, 2, array, kind,
                                                         tag))
        return md

    def __call__(self):
        self.check(self.lib.dnnl_primitive_execute(self.primitive, self.stream,
                                                   3, self.args))
        self.check(self.lib.dnnl_stream_wait(self.stream))


def onednn(kind, m, n, k):
    return fastest(Dnnl(kind, m, n, k), m, n, k)


def torch(kind, m, n, k):
    import torch

    dtype = torch.bfloat16 if kind == "bf16" else torch.float32
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    a, b = torch.ones(m, k, dtype=dtype), torch.ones(n, k, dtype=dtype)
    return fastest(lambda: torch.mm(a, b.t()), m, n, k)


def lut(kind, step, d_in, d_out, n, k):
    """Rows a second of the formula itself, over a table of this dtype."""
    import torch

    dtype = torch.bfloat16 if kind == "bf16" else torch.float32
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    encoder = torch.randn(n, d_in).to(dtype)
    products = torch.randn(n, d_out).to(dtype)
    bias, bias_product = torch.zeros(n, dtype=dtype), torch.zeros(d_out,
                                                                  dtype=dtype)
    inputs = [torch.randn(BATCH, d_in).to(dtype) for _ in range(ROUNDS + 1)]

    def encode(x):
        return torch.topk(torch.relu(x @ encoder.T + bias), k)

    def combine(values, indices):
        selected = products[indices]
        return (values.unsqueeze(-1) * selected).sum(dim=1) + bias_product

    each = iter([encode(x) for x in inputs] if step == "combine" else inputs)
    if step == "combine":
        return BATCH / typical(lambda: combine(*next(each)))
    return BATCH / typical(lambda: combine(*encode(next(each))))


def moe(kind, n_experts, top_k, hidden, inter, rank, qlen):
    """Tokens a second of forward and backward by autograd, LoRA trained."""
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))

    def noise(*shape, train=True):
        x = (torch.rand(*shape) - 0.5) * 0.05
        return x.to(torch.bfloat16).requires_grad_(train)

    def pair(n, k):
        return noise(n_experts, rank, k), noise(n_experts, n, rank)

    shapes = [(inter, hidden), (inter, hidden), (hidden, inter)]
    base = [noise(n_experts, n, k, train=False) for n, k in shapes]
    lora = [pair(n, k) for n, k in shapes]
    x, grad = noise(qlen, hidden), noise(qlen, hidden, train=False).float()
    ids = torch.stack([torch.randperm(n_experts)[:top_k]
                       for _ in range(qlen)])
    weights = torch.full((qlen, top_k), 1 / top_k, requires_grad=True)

    def linear(i, e, x):
        a, b = lora[i][0][e], lora[i][1][e]
        return x @ base[i][e].t() + 32 / rank * ((x @ a.t()) @ b.t())

    def step():
        for t in [x, weights] + [m for p in lora for m in p]:
            t.grad = None
        out = torch.zeros(qlen, hidden)
        for e in range(n_experts):
            i, j = torch.where(ids == e)
            rows = x[i]
            h = torch.nn.functional.silu(linear(0, e, rows))
            y = linear(2, e, h * linear(1, e, rows))
            out = out.index_add(0, i, y.float() * weights[i, j, None])
        out.backward(grad)

    step()
    return qlen / typical(step)


def lm(how):
    """Tokens a second of a step: build/test/bench/lm's two layers of
    Qwen3-0.6B's shape, head and all, in f32."""
    import torch
    from torch.nn.functional import cross_entropy, silu
    from torch.utils.checkpoint import checkpoint

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    n_seqs, n, vocab, hidden, inter = 4, 512, 11264, 1024, 3072
    heads, kv_heads, d, rank = 16, 8, 128, 16
    shapes = dict(q=(heads * d, hidden), k=(kv_heads * d, hidden),
                  v=(kv_heads * d, hidden), o=(hidden, heads * d),
                  gate=(inter, hidden), up=(inter, hidden),
                  down=(hidden, inter))

    def noise(*shape, train=False):
        return ((torch.rand(*shape) - 0.5) * 0.05).requires_grad_(train)

    layers = [{name: (noise(*s), noise(rank, s[1], train=True),
                      noise(s[0], rank, train=True))
               for name, s in shapes.items()} for _ in range(2)]
    embedding, ones = noise(vocab, hidden), torch.ones(hidden)
    angle = torch.outer(torch.arange(n), 1e6 ** -(torch.arange(d // 2) * 2 / d))
    cos, sin = angle.cos(), angle.sin()
    unseen = torch.full((n, n), float("-inf")).triu(1)
    ids = torch.randint(vocab, (n_seqs, n))

    def norm(x, weight):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * weight

    def linear(layer, name, x):
        w, a, b = layer[name]
        return x @ w.t() + 2 * ((x @ a.t()) @ b.t())

    def rotate(x):
        a, b = norm(x, ones[:d]).transpose(1, 2).chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    def block(i, x):
        layer = layers[i]
        h = norm(x, ones)
        q = rotate(linear(layer, "q", h).view(n_seqs, n, heads, d))
        k = rotate(linear(layer, "k", h).view(n_seqs, n, kv_heads, d))
        v = linear(layer, "v", h).view(n_seqs, n, kv_heads, d).transpose(1, 2)
        k, v = (t.repeat_interleave(heads // kv_heads, 1) for t in (k, v))
        p = (q @ k.transpose(2, 3) / d ** 0.5 + unseen).softmax(-1)
        out = (p @ v).transpose(1, 2).reshape(n_seqs, n, heads * d)
        x = x + linear(layer, "o", out)
        h = norm(x, ones)
        h = silu(linear(layer, "gate", h)) * linear(layer, "up", h)
        return x + linear(layer, "down", h)

    def step():
        for layer in layers:
            for _, a, b in layer.values():
                a.grad = b.grad = None
        x = embedding[ids]
        for i in range(2):
            x = (checkpoint(block, i, x, use_reentrant=False)
                 if how == "again" else block(i, x))
        logits = norm(x, ones)[:, :-1] @ embedding.t()
        cross_entropy(logits.reshape(-1, vocab),
                      ids[:, 1:].reshape(-1)).backward()

    step()
    return n_seqs * n / typical(step)


def vit(how):
    """Images a second of ViT-B/16's layers, in f32: batches of 8 at 224."""
    import torch
    from torch.nn.functional import gelu, layer_norm

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    n, tokens, d, heads, inner = 8, 197, 768, 12, 3072

    def noise(*shape):
        return (torch.rand(*shape) - 0.5) * 0.05

    shapes = dict(q=(d, d), k=(d, d), v=(d, d), o=(d, d), up=(inner, d),
                  down=(d, inner))
    layers = [{name: (noise(*s), noise(s[0])) for name, s in shapes.items()}
              for _ in range(12)]
    patch, pixels = (noise(d, 3, 16, 16), noise(d)), noise(n, 3, 224, 224)
    cls, ones, zeros = noise(n, 1, d), torch.ones(d), torch.zeros(d)

    def linear(layer, name, x):
        return torch.nn.functional.linear(x, *layer[name])

    def step():
        x = torch.nn.functional.conv2d(pixels, *patch, stride=16)
        x = torch.cat((cls, x.flatten(2).transpose(1, 2)), 1)
        for layer in layers:
            h = layer_norm(x, (d,), ones, zeros)
            q, k, v = (linear(layer, z, h).view(n, tokens, heads, -1)
                       .transpose(1, 2) for z in "qkv")
            p = (q @ k.transpose(2, 3) / 8).softmax(-1) @ v
            x = x + linear(layer, "o", p.transpose(1, 2).reshape(n, tokens, d))
            h = linear(layer, "up", layer_norm(x, (d,), ones, zeros))
            x = x + linear(layer, "down", gelu(h))

    with torch.no_grad():
        step()
        return n / typical(step)


def sae(how):
    """Rows a second of a training step: d 1024, 16384 latents, TopK 32, batches
    of 4096, in f32 with torch's Adam."""
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    d, n, k, rows = 1024, 16384, 32, 4096
    x = torch.rand(rows, d) + torch.rand(rows, d) - 1
    w_dec = torch.nn.functional.normalize(torch.randn(n, d))
    w_enc, b_enc, b_dec = w_dec.clone(), torch.zeros(n), x.mean(0)
    params = [w.requires_grad_() for w in (w_enc, w_dec, b_enc, b_dec)]
    adam = torch.optim.Adam(params, 2e-4)

    class Encode(torch.autograd.Function):
        """The largest k, and gradients of their rows alone."""

        @staticmethod
        def forward(ctx, x, w, b):
            v, i = torch.relu(torch.addmm(b, x, w.t())).topk(k, sorted=False)
            ctx.save_for_backward(x, w, b, i, v)
            return v, i

        @staticmethod
        def backward(ctx, dv, _):
            x, w, b, i, v = ctx.saved_tensors
            dv = dv * (v > 0)
            dw, db = torch.zeros_like(w), torch.zeros_like(b)
            dx = torch.empty_like(x)
            for r in range(0, rows, 512):  # 64 MB of products at once
                at, g = slice(r, r + 512), dv[r:r + 512]
                dw.index_add_(0, i[at].flatten(), (
                    g[:, :, None] * x[at, None]).reshape(-1, d))
                dx[at] = torch.nn.functional.embedding_bag(
                    i[at], w, per_sample_weights=g, mode="sum")
            db.index_add_(0, i.flatten(), dv.flatten())
            return dx, dw, db

    def step():
        adam.zero_grad()
        if how == "dense":
            h = torch.relu((x - b_dec) @ w_enc.t() + b_enc)
            v, i = h.topk(k, sorted=False)
            y = torch.zeros_like(h).scatter(1, i, v) @ w_dec + b_dec
        else:
            v, i = Encode.apply(x - b_dec, w_enc, b_enc)
            y = torch.nn.functional.embedding_bag(
                i, w_dec, per_sample_weights=v, mode="sum") + b_dec
        loss = (y - x).pow(2).sum() / (x - x.mean(0)).pow(2).sum()
        loss.backward()
        with torch.no_grad():
            g = w_dec.grad
            g -= (g * w_dec).sum(1, keepdim=True) * w_dec
        adam.step()
        with torch.no_grad():
            w_dec.div_(w_dec.norm(dim=1, keepdim=True))

    return rows / typical(step)


LOOK = dict(n=8192, d=512, k=16, tokens=128, rows=4096, top=4)


def look_files(directory):
    """An SAE and rows whose sums f32 holds, in any order: all find the same."""
    import numpy as np

    sys.path.insert(0, "test/ref")
    import sae_ref

    rng = np.random.default_rng(1)
    n, d = LOOK["n"], LOOK["d"]
    w = rng.integers(-127, 128, (n, d)).astype("<f4")
    p = dict(W_enc=w, W_dec=w, b_enc=np.zeros(n), b_dec=np.zeros(d))
    sae_ref.write_sae(directory + "/sae", p, LOOK["k"])
    np.save(directory + "/x.npy",
            rng.integers(-1023, 1024, (LOOK["rows"], d)).astype("<f4"))
    np.save(directory + "/w.npy", w)


def look(directory):
    """Rows a second, from files to the tops, their rows and values."""
    import numpy as np
    import torch

    if not os.path.exists(directory + "/x.npy"):
        look_files(directory)
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    start, tokens, values, rows = time.perf_counter(), LOOK["tokens"], [], []
    x = torch.from_numpy(np.load(directory + "/x.npy"))
    w = torch.from_numpy(np.load(directory + "/w.npy"))
    for at in range(0, LOOK["rows"], 8 * tokens):
        f = torch.relu(x[at:at + 8 * tokens] @ w.t())
        v, i = f.topk(LOOK["k"], sorted=False)
        f = torch.zeros_like(f).scatter_(1, i, v)
        best, token = f.view(8, tokens, -1).max(1)
        values.append(best)
        rows.append(token + at + tokens * torch.arange(8)[:, None])
    value, order = torch.cat(values).t().sort(stable=True, descending=True)
    value, order = (t[:, :LOOK["top"]] for t in (value, order))
    row = torch.cat(rows).t().gather(1, order)
    taken = time.perf_counter() - start
    np.savez(directory + "/tops.npz", value=value.numpy(),
             row=torch.where(value > 0, row, -1).numpy())
    return LOOK["rows"] / taken


def look_ours(tool, directory, threads):
    """The same of sae-look, contexts and a RUN on disk, too."""
    start = time.perf_counter()
    subprocess.run([tool, "scan", "-qf", "-j", threads, "-s",
                    directory + "/sae", "-o", directory + "/run", "--tokens",
                    str(LOOK["tokens"]), "--top", str(LOOK["top"]), "--context",
                    "20,11", "--sample", "0", directory + "/x.npy"], check=True)
    return LOOK["rows"] / (time.perf_counter() - start)


def llama(kind, path):
    """Tokens a second of a prompt of 512, or of 12 tokens, as engine's."""
    n = {"decode": ("0", "12"), "prompt": ("512", "0")}[kind]
    done = subprocess.run(
        [os.environ["LLAMA_BENCH"], "-m", path, "-p", n[0], "-n", n[1],
         "-t", os.environ["OMP_NUM_THREADS"], "-r", "3", "-o", "json"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    return json.loads(done.stdout)[0]["avg_ts"]


# peer, its class, ours, what to install
PEERS = [
    (torch, "f32", "exact", "python3-torch"),
    (onednn, "bf16", "bf16-packed", "libdnnl2"),
    (torch, "bf16", "bf16", "python3-torch"),
    (onednn, "int8", "int8-packed", "libdnnl2"),
]


def cpu_has(*flags):
    with open("/proc/cpuinfo") as cpu:
        return not set(flags).isdisjoint(cpu.read().split())


def speed(command, threads):
    env = dict(os.environ, OMP_NUM_THREADS=str(threads),
               OPENBLAS_NUM_THREADS=str(threads))
    # Debian's does not know the newest CPUs, and dies where AVX-512 is not
    if cpu_has("avx512f"):
        env.setdefault("OPENBLAS_CORETYPE", "SkylakeX")
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)
    return float(done.stdout) if done.returncode == 0 else None


def in_turns(theirs, ours, threads):
    """Both medians, or None if the peer does not run here."""
    they, we = [], []
    for _ in range(3):
        got = speed([sys.executable, __file__, "run", *theirs], threads)
        if got is None:
            return None
        they.append(got)
        we.append(speed([*ours, str(threads)], threads))
    return statistics.median(they), statistics.median(we)


def compare(kernels, peer, kind, ours, threads, shape):
    """One row, or False if the peer does not run here."""
    numbers = [str(x) for x in shape]
    got = in_turns([peer.__name__, kind, *numbers],
                   [kernels, "one", ours, *numbers], threads)
    if got:
        they, we = got
        print(LAYOUT % ("%s %s" % (peer.__name__, kind), "x".join(numbers),
                        "-", threads, they, "GFLOP/s", we / they,
                        "ours (gemm %s) over it" % ours), flush=True)
    return bool(got)


def compare_lut(table, kind, step, threads):
    numbers = [str(x) for x in LUT_SHAPE]
    got = in_turns(["lut", kind, step, *numbers],
                   [table, "one", step, *numbers], threads)
    if got:
        they, we = got
        what = "formula" if step == "all" else "gather"
        print(LAYOUT % ("torch %s" % what, "%s>%s %s:%s" % tuple(numbers),
                        kind, threads, they, "row/s", we / they,
                        "ours (table %s) over it" % step), flush=True)
    return bool(got)


def compare_moe(bench, threads):
    got = in_turns(["moe", "bf16", *[str(x) for x in MOE_SHAPE]],
                   [bench, "one", "bf16"], threads)
    if got:
        they, we = got
        print(LAYOUT % ("torch MoE LoRA", "E%s k%s %sx%s" % MOE_SHAPE[:4],
                        "bf16", threads, they, "token/s", we / they,
                        "ours (moe-sft bf16) over it"), flush=True)
    return bool(got)


def compare_lm(bench, how, threads):
    got = in_turns(["lm", how], [bench, "one", "f32"], threads)
    if got:
        they, we = got
        print(LAYOUT % ("torch tune", "forward " + how, "f32", threads, they,
                        "token/s", we / they, "ours (moe-sft tune) over it"),
              flush=True)
    return bool(got)


def compare_vit(bench, directory, threads):
    got = in_turns(["vit", "f32"], [bench, "one", "f32", directory], threads)
    if got:
        they, we = got
        print(LAYOUT % ("torch ViT-B/16", "224, batches of 8", "f32", threads,
                        they, "image/s", we / they,
                        "ours (hf-infer --images) over it"), flush=True)
    return bool(got)


def compare_sae(bench, how, threads):
    got = in_turns(["sae", how], [bench, "one", "f32"], threads)
    if got:
        they, we = got
        print(LAYOUT % ("torch SAE", "%s gradients" % how, "f32", threads, they,
                        "row/s", we / they, "ours (sae-train) over it"),
              flush=True)
    return bool(got)


def compare_look(tool, directory, threads):
    """One row; both must find the same."""
    got = in_turns(["look", directory],
                   [sys.executable, __file__, "run", "look-ours", tool,
                    directory], threads)
    if got:
        import numpy as np

        sys.path.insert(0, "test/ref")
        import look_ref

        they, we = got
        theirs = np.load(directory + "/tops.npz")
        ours = look_ref.read(directory + "/run")[1]
        assert (theirs["row"] >= 0).mean() > 0.9
        for name in "value", "row":
            assert (theirs[name] == ours["top_" + name]).all(), name
        print(LAYOUT % ("torch tops", "%(d)sx%(n)s:%(k)s" % LOOK, "f32",
                        threads, they, "row/s", we / they,
                        "ours (sae-look scan) over it"), flush=True)
    return bool(got)


def compare_llama(engine, shape, directory):
    """Both rows of each thread count, or False if it does not run here."""
    model, gguf = directory + "/model", directory + "/model.gguf"
    for script in (["random-model.py", "--shape", shape, model],
                   ["bench-gguf.py", model, gguf]):
        subprocess.run([sys.executable, "scripts/" + script[0], *script[1:]],
                       check=True)
    for threads in thread_counts():
        for kind, ours in ("decode", "decode"), ("prompt", "bf16"):
            got = in_turns(["llama", kind, gguf],
                           [engine, "one", ours, model], threads)
            if not got:
                return False
            they, we = got
            print(LAYOUT % ("llama-bench", "%s %s" % (shape, kind), "bf16",
                            threads, they, "token/s", we / they,
                            "ours (hf-infer %s) over it" % ours), flush=True)
    return True


def left_out(what, package):
    print("bench: %s does not run here, left out (Debian: %s)"
          % (what, package), file=sys.stderr)


def thread_counts():
    return sorted({1, len(os.sched_getaffinity(0))})


def compare_products(kernels, counts, peer, kind, ours, package):
    if not all(compare(kernels, peer, kind, ours, t, s)
               for t in counts for s in SHAPES):
        left_out("%s %s" % (peer.__name__, kind), package)


def main(kernels, table, moe_bench, engine, lm_bench, sae_bench, sae_look,
         vision):
    counts = thread_counts()
    # torch's bf16 makes 1 GFLOP/s where the CPU has no instruction for it
    bf16 = cpu_has("avx512_bf16", "amx_bf16", "bf16")
    for peer, kind, ours, package in PEERS:
        if peer is torch and kind == "bf16" and not bf16:
            print("bench: torch bf16 left out: the CPU has no bf16",
                  file=sys.stderr)
            continue
        compare_products(kernels, counts, peer, kind, ours, package)
    kinds = ("f32", "bf16") if bf16 else ("f32",)
    rows = [(k, s, t) for t in counts for k in kinds
            for s in ("combine", "all")]
    if not all(compare_lut(table, *row) for row in rows):
        left_out("torch, the formula of lut(5),", "python3-torch")
    if bf16 and not all(compare_moe(moe_bench, t) for t in counts):
        left_out("torch, LoRA of experts,", "python3-torch")
    if not all(compare_lm(lm_bench, h, t) for t in counts
               for h in ("kept", "again")):
        left_out("torch, a model's LoRA,", "python3-torch")
    if not all(compare_sae(sae_bench, h, t) for t in counts
               for h in ("dense", "sparse")):
        left_out("torch, an autoencoder's step,", "python3-torch")
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([sys.executable, "scripts/random-model.py", "--shape",
                        "vit-b-16", directory], check=True)
        if not all(compare_vit(vision, directory, t) for t in counts):
            left_out("torch, a vision encoder,", "python3-torch")
    with tempfile.TemporaryDirectory() as directory:
        if not compare_look(sae_look, directory, 1):
            left_out("torch, the strongest of latents,", "python3-torch")
    if os.environ.get("LLAMA_BENCH"):
        shape = os.environ.get("LLAMA_SHAPE", "qwen3-0.6b")
        with tempfile.TemporaryDirectory() as directory:
            if not compare_llama(engine, shape, directory):
                print("bench: llama-bench does not run %s here, left out"
                      % shape, file=sys.stderr)


if sys.argv[1:3] == ["run", "lut"]:
    print(lut(*sys.argv[3:5], *map(int, sys.argv[5:9])))
elif sys.argv[1:3] == ["run", "moe"]:
    print(moe(sys.argv[3], *map(int, sys.argv[4:10])))
elif sys.argv[1:3] == ["run", "lm"]:
    print(lm(sys.argv[3]))
elif sys.argv[1:3] == ["run", "sae"]:
    print(sae(sys.argv[3]))
elif sys.argv[1:3] == ["run", "vit"]:
    print(vit(sys.argv[3]))
elif sys.argv[1:3] == ["run", "look"]:
    print(look(sys.argv[3]))
elif sys.argv[1:3] == ["run", "look-ours"]:
    print(look_ours(*sys.argv[3:6]))
elif sys.argv[1:3] == ["run", "llama"]:
    print(llama(*sys.argv[3:5]))
elif sys.argv[1] == "run":
    peer = {"openblas": openblas, "onednn": onednn, "torch": torch}
    print(peer[sys.argv[2]](sys.argv[3], *map(int, sys.argv[4:7])))
elif sys.argv[1] == "openblas":
    compare_products(sys.argv[2], thread_counts(), openblas, "f32", "exact",
                     "libopenblas0-pthread")
else:
    main(*sys.argv[1:8])
