# SPDX-License-Identifier: ISC
"""Sparse autoencoders trained in numpy, float64: what sae-train must do.

sae_ref.py check
    every gradient against central differences of the loss, written a second
    time; the optimizer's step by hand
sae_ref.py check-torch
    the steps against torch's autograd and Adam
sae_ref.py init N D SEED DIR [exact]
    an SAE in sparsify's form; exact: in multiples of 1/8, so that with rows of
    integers the pre-activations are exact in f32, and many are equal
sae_ref.py follow ROWS.npy INIT DIR n=STEPS [NAME=VALUE...]
    trains INIT and compares DIR: sae.safetensors, cfg.json and log.tsv;
    follow alone: for each line of standard input, which has the arguments
sae_ref.py eval ROWS.npy DIR
    compares what sae-train eval printed, standard input
sae_ref.py rows N_ROWS D SEED OUT.npy [exact]
sae_ref.py plant N_ROWS D N_TRUE N_ACTIVE SEED OUT.npy DICTIONARY.npy
    rows of sums of a few of N_TRUE unit vectors, with noise
sae_ref.py planted DICTIONARY.npy DIR
    prints the mean over its vectors of the best cosine with a row of W_dec
sae_ref.py train ROWS.npy INIT OUT n=STEPS [NAME=VALUE...]
    what follow compares, written; for a planted dictionary
sae_ref.py median ROWS.npy DIR
    b_dec is the geometric median of the rows, W_enc is W_dec, b_enc is zero
"""
import json
import os
import sys

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import mkst  # noqa: E402

NAMES = "W_enc", "b_enc", "W_dec", "b_dec"
FILE_NAMES = dict(W_enc="encoder.weight", b_enc="encoder.bias", W_dec="W_dec", b_dec="b_dec")
DEFAULTS = dict(k=32, batch=16384, n=0, activation="topk", aux_coef=1 / 32, aux_k=-1, dead_after=10000000, lr=0.0,
                warmup=-1, decay=0.2, clip=0.0, normalize=1, compute="f32")
LOG = "step", "rows", "loss", "fvu", "aux", "l0", "dead", "lr", "grad_norm"


def options(given):
    o = dict(DEFAULTS)
    for name, value in given.items():
        o[name] = type(o[name])(value)
    # what the page says of the defaults
    if o["warmup"] < 0:
        o["warmup"] = min(1000, o["n"] // 20) if o["n"] else 1000
    return o


def read_sae(path):
    t = mkst.read(os.path.join(path, "sae.safetensors"))[0]
    assert set(t) == set(FILE_NAMES.values()), set(t)
    return {name: t[FILE_NAMES[name]] for name in NAMES}


def write_sae(path, p, k):
    n, d = p["W_enc"].shape
    os.makedirs(path)
    mkst.save(os.path.join(path, "sae.safetensors"),
              {FILE_NAMES[name]: p[name].astype("<f4") for name in ("b_dec", "W_dec", "W_enc", "b_enc")})
    with open(os.path.join(path, "cfg.json"), "w") as f:
        json.dump(dict(activation="topk", expansion_factor=max(1, n // d), normalize_decoder=True, num_latents=n, k=k,
                       multi_topk=False, skip_connection=False, transcode=False, d_in=d), f)


def largest(h, n):
    """Where the n largest of each row are; of equal ones the first."""
    where = np.zeros(h.shape, bool)
    np.put_along_axis(where, np.argsort(-h, axis=1, kind="stable")[:, :n], True, axis=1)
    return where


def bf16(x):
    return mkst.from_bf16(mkst.bf16(x)[2]).reshape(x.shape)


def forward_backward(p, x, dead, o):
    """The loss of rows x [rows, d] where the latents 'dead' are, its gradient
    by each parameter, the activations [rows, latents], and what the log has."""
    rows, d = x.shape
    centred = x - p["b_dec"]
    if o["compute"] == "bf16":
        z = bf16(centred) @ bf16(p["W_enc"]).T + p["b_enc"]
    else:
        z = centred @ p["W_enc"].T + p["b_enc"]
    relu = np.maximum(z, 0)
    if o["activation"] == "topk":
        kept = largest(relu, o["k"])
    else:
        kept = largest(relu.reshape(1, -1), o["k"] * rows).reshape(z.shape)
    h = np.where(kept, relu, 0)
    e = x - (h @ p["W_dec"] + p["b_dec"])
    total = ((x - x.mean(0)) ** 2).sum()
    fvu = (e ** 2).sum() / total

    d_xhat = -2 * e / total  # d loss / d x^
    d_W_dec = h.T @ d_xhat
    d_h = np.where(h > 0, d_xhat @ p["W_dec"].T, 0)

    aux = 0.0
    if dead.any() and o["aux_coef"] > 0 and o["aux_k"]:
        a = np.zeros_like(h)
        of_dead = relu[:, dead]
        a[:, dead] = np.where(largest(of_dead, d // 2 if o["aux_k"] < 0 else o["aux_k"]), of_dead, 0)
        left = e - a @ p["W_dec"]
        total_e = ((e - e.mean(0)) ** 2).sum()
        with np.errstate(all="ignore"):
            aux = (left ** 2).sum() / total_e
        if np.isfinite(aux):
            d_ehat = -2 * o["aux_coef"] * left / total_e
            d_W_dec += a.T @ d_ehat
            d_h += np.where(a > 0, d_ehat @ p["W_dec"].T, 0)
        else:
            aux = 0.0

    g = dict(W_enc=d_h.T @ centred, b_enc=d_h.sum(0), W_dec=d_W_dec,
             b_dec=d_xhat.sum(0) - d_h.sum(0) @ p["W_enc"])
    return fvu + o["aux_coef"] * aux, g, h, dict(fvu=fvu, aux=aux)


class Trainer:
    def __init__(self, p, o, dtype=np.float64):
        self.p = {name: p[name].astype(dtype) for name in NAMES}
        self.m = {name: np.zeros_like(a) for name, a in self.p.items()}
        self.v = {name: np.zeros_like(a) for name, a in self.p.items()}
        self.idle = np.zeros(len(p["b_enc"]), np.int64)  # rows since it was last active
        self.o = o
        self.step_no = self.rows = 0
        self.least = []  # values kept, of a step
        short = np.sqrt(2 ** 27 / (o["n"] * o["batch"])) if o["n"] else 1
        self.lr = o["lr"] or 2e-4 / np.sqrt(len(p["b_enc"]) / 16384) * min(max(short, 1), 4)
        self.log = []

    def rate(self, t):
        """Step t's, from 1: a ramp of 'warmup' steps; in the last D of n steps
        D/(D+1), .. 1/(D+1) of it."""
        n, lr = self.o["n"], self.lr
        last = int(np.floor(self.o["decay"] * n + 0.5))
        if t <= self.o["warmup"]:
            lr *= t / self.o["warmup"]
        if t > n - last:
            lr *= (n - t + 1) / (last + 1)
        return lr

    def step(self, x):
        o, p = self.o, self.p
        self.step_no += 1
        t = self.step_no
        dead = self.idle >= o["dead_after"]
        loss, g, h, said = forward_backward(p, x, dead, o)
        if o["normalize"]:  # what would only make the row longer
            w = p["W_dec"]
            g["W_dec"] = g["W_dec"] - (g["W_dec"] * w).sum(1, keepdims=True) / (w * w).sum(1, keepdims=True) * w
        norm = np.sqrt(sum((a ** 2).sum() for a in g.values()))
        if o["clip"] and norm > o["clip"]:
            g = {name: a * (o["clip"] / (norm + 1e-6)) for name, a in g.items()}
        lr = self.rate(t)
        for name in NAMES:
            self.m[name] = 0.9 * self.m[name] + 0.1 * g[name]
            self.v[name] = 0.999 * self.v[name] + 0.001 * g[name] ** 2
            p[name] = p[name] - lr * (self.m[name] / (1 - 0.9 ** t)) / (np.sqrt(self.v[name] / (1 - 0.999 ** t)) + 1e-8)
        if o["normalize"]:
            p["W_dec"] = p["W_dec"] / np.sqrt((p["W_dec"] ** 2).sum(1, keepdims=True))
        active = (h > 0).any(0)
        self.idle = np.where(active, 0, self.idle + len(x))
        if active.any():
            self.least.append(float(h[h > 0].min()))
        self.rows += len(x)
        self.log.append(dict(said, step=t, rows=self.rows, loss=loss, l0=(h > 0).sum() / len(x), dead=int(dead.sum()),
                             lr=lr, grad_norm=norm))

    def threshold(self):
        """Their mean, where each weighs 0.99 of the next."""
        return np.average(self.least, weights=0.99 ** np.arange(len(self.least))[::-1])

    def run(self, rows):
        b = min(self.o["batch"], len(rows))
        for t in range(self.o["n"]):
            self.step(rows[t * b:(t + 1) * b].astype(self.p["b_dec"].dtype))
        return self


def load_rows(path):
    x = np.load(path).astype(np.float64)
    return x.reshape(-1, x.shape[-1])


# How far f32 may be from f64: of how far a tensor has moved, and of its size.
FAR = dict(f32=(5e-5, 3e-7), bf16=(0.2, 3e-7))
FAR_LOG = dict(f32=2e-6, bf16=1e-2)


def follow(rows, init, path, o):
    start = read_sae(init)
    want = Trainer(start, o).run(load_rows(rows))
    found = read_sae(path)
    worst = {}
    for name in NAMES:
        assert found[name].shape == want.p[name].shape, (name, found[name].shape)
        off, moved = (np.linalg.norm(a - want.p[name]) for a in (found[name], start[name]))
        of_moved, of_size = FAR[o["compute"]]
        worst[name] = off / (moved + of_size / of_moved * np.linalg.norm(want.p[name]))
    lines = [line.rstrip("\n").split("\t") for line in open(os.path.join(path, "log.tsv"))]
    assert tuple(lines[0]) == LOG, lines[0]
    assert len(lines) == 1 + o["n"], len(lines)
    far = FAR_LOG[o["compute"]]
    for line, step in zip(lines[1:], want.log):
        for name, text in zip(LOG, line):
            off = abs(float(text) - step[name]) / (abs(step[name]) or 1)
            worst[name] = max(worst.get(name, 0), off)
            limit = 0 if name in ("step", "rows", "dead") else 1e-6 if name == "lr" else far
            assert off <= limit, (name, line, step)
    cfg = json.load(open(os.path.join(path, "cfg.json")))
    n, d = start["W_enc"].shape
    assert (cfg["num_latents"], cfg["d_in"], cfg["k"]) == (n, d, o["k"]), cfg
    if o["activation"] == "batchtopk":
        threshold = want.threshold()
        worst["threshold"] = abs(cfg["threshold"] - threshold) / (threshold + 0.1)  # of sums that may cancel
        assert worst["threshold"] <= far, (cfg["threshold"], threshold)
    else:
        assert "threshold" not in cfg, cfg
    print(path, " ".join("%s %.1e" % item for item in worst.items()))
    for name in NAMES:
        assert worst[name] <= FAR[o["compute"]][0], (name, worst[name])


def compare_eval(x, decoded, h):
    """Standard input has what rows x, reconstructed of activations h, have."""
    error = ((x - decoded) ** 2).sum(1)
    # the 1 % largest, rounded up: of equal ones the first
    order = np.argsort(-(x ** 2).sum(1), kind="stable")
    want = dict(l0=(h > 0).sum() / len(x), dead=(~(h > 0).any(0)).sum())
    for to, rows in ("", order), ("_without_largest", order[-(-len(x) // 100):]):
        want["rows" + to], want["mse" + to] = len(rows), error[rows].sum() / len(rows)
        want["fvu" + to] = error[rows].sum() / ((x[rows] - x[rows].mean(0)) ** 2).sum()
    found = dict(line.rstrip("\n").split("\t") for line in sys.stdin)
    assert found.keys() == want.keys(), found
    for name, value in want.items():
        assert abs(float(found[name]) - value) <= 2e-6 * abs(value), (name, found[name], value)
    print(want)


def check_eval(rows, path):
    x, p = load_rows(rows), read_sae(path)
    cfg = json.load(open(os.path.join(path, "cfg.json")))
    h = np.maximum((x - p["b_dec"]) @ p["W_enc"].T + p["b_enc"], 0)
    h = np.where(h > cfg["threshold"] if "threshold" in cfg else largest(h, cfg["k"]), h, 0)
    compare_eval(x, h @ p["W_dec"] + p["b_dec"], h)


def make_init(n, d, seed, exact=False):
    rng = np.random.default_rng(seed)
    w = rng.standard_normal((n, d))
    if exact:  # and no row of norm 1
        return dict(W_enc=rng.integers(-8, 9, (n, d)) / 8, b_enc=rng.integers(-8, 9, n) / 8,
                    W_dec=w / 3, b_dec=rng.integers(-4, 5, d) / 4)
    w /= np.linalg.norm(w, axis=1, keepdims=True)
    return dict(W_enc=w + 0.05 * rng.standard_normal((n, d)), b_enc=0.1 * rng.standard_normal(n), W_dec=w,
                b_dec=0.1 * rng.standard_normal(d))


def make_rows(n, d, seed, exact=False):
    rng = np.random.default_rng(seed)
    if exact:
        return rng.integers(-3, 4, (n, d)).astype("<f4")
    scale = np.exp(rng.standard_normal(d) / 2)
    return (rng.standard_normal((n, d)) * scale + rng.standard_normal(d)).astype("<f4")


def plant(n, d, n_true, n_active, seed):
    rng = np.random.default_rng(seed)
    w = rng.standard_normal((n_true, d))
    w /= np.linalg.norm(w, axis=1, keepdims=True)
    active = largest(rng.random((n, n_true)), n_active)
    c = np.where(active, 0.5 + rng.random((n, n_true)), 0)
    return (c @ w + 0.02 * rng.standard_normal((n, d))).astype("<f4"), w


def recovered(dictionary, w_dec):
    w = w_dec / np.linalg.norm(w_dec, axis=1, keepdims=True)
    return (dictionary @ w.T).max(1).mean()


def check_median(rows, path):
    x, p = load_rows(rows), read_sae(path)
    m = x.mean(0)
    for _ in range(10000):  # Weiszfeld
        w = 1 / np.linalg.norm(x - m, axis=1)
        m = w @ x / w.sum()
    far = np.linalg.norm(p["b_dec"] - m) / np.linalg.norm(x.mean(0) - m)
    assert far < 0.02, far
    assert np.allclose(p["W_enc"], p["W_dec"], rtol=1e-6, atol=1e-9) and np.abs(p["b_enc"]).max() < 1e-20
    assert np.abs((p["W_dec"] ** 2).sum(1) - 1).max() < 1e-6
    n, d = p["W_dec"].shape  # as many directions as there are: none that most have
    assert np.linalg.norm(p["W_dec"].sum(0)) < 2 * np.sqrt(n)
    assert np.abs(np.triu(p["W_dec"] @ p["W_dec"].T, 1)).max() < 6 / np.sqrt(d)


def plain_loss(p, x, dead, o, e_was=None):
    """The loss once more, a row at a time.  e_was: the residual that aux is of,
    which is a constant to the gradient."""
    n, d = p["W_enc"].shape
    h = []
    for row in x:
        h.append([max(0.0, float(np.dot(row - p["b_dec"], p["W_enc"][i]) + p["b_enc"][i])) for i in range(n)])
    places = [(-h[r][i], r, i) for r in range(len(x)) for i in range(n)]
    if o["activation"] == "topk":
        kept = [q for r in range(len(x)) for q in sorted(q for q in places if q[1] == r)[:o["k"]]]
    else:
        kept = sorted(places)[:o["k"] * len(x)]
    e = x - p["b_dec"]
    for minus_h, r, i in kept:
        e[r] += minus_h * p["W_dec"][i]
    loss = sum(np.dot(r, r) for r in e) / sum(np.dot(r, r) for r in x - x.mean(0))
    if dead.any():
        const = e if e_was is None else e_was
        left = const.copy()
        for r in range(len(x)):
            for minus_h, _, i in sorted(q for q in places if q[1] == r and dead[q[2]])[:o["aux_k"]]:
                left[r] += minus_h * p["W_dec"][i]
        loss += o["aux_coef"] * sum(np.dot(r, r) for r in left) / sum(np.dot(r, r) for r in const - const.mean(0))
    return loss, e


def check_gradients():
    n, d, rows = 13, 5, 11
    for seed in range(1 if os.environ.get("TU_WAYS") == "one" else 3):
        for activation in "topk", "batchtopk":
            for dead in np.zeros(n, bool), np.arange(n) % 3 == 0:
                o = options(dict(k=3, activation=activation, aux_coef=0.3, aux_k=2))
                p, x = make_init(n, d, seed), make_rows(rows, d, seed).astype(np.float64)
                loss, g, h, said = forward_backward(p, x, dead, o)
                same, e = plain_loss(p, x, dead, o)
                assert abs(loss - same) < 1e-13 * loss, (loss, same)
                assert (said["aux"] > 0) == dead.any()
                for name in NAMES:
                    diff = np.zeros_like(p[name])
                    for at in np.ndindex(p[name].shape):
                        was = p[name][at]
                        p[name][at] = was + 1e-5
                        up = plain_loss(p, x, dead, o, e)[0]
                        p[name][at] = was - 1e-5
                        diff[at] = (up - plain_loss(p, x, dead, o, e)[0]) / 2e-5
                        p[name][at] = was
                    off = np.linalg.norm(diff - g[name]) / np.linalg.norm(g[name])
                    assert off < 1e-8, (activation, dead.any(), name, off)
                    print(activation, "dead" if dead.any() else "-", name, "%.1e" % off)


def check_torch():
    """The same steps by torch's autograd, Adam and clip_grad_norm_."""
    import torch
    n, d, rows = 24, 8, 40
    x = make_rows(20 * rows, d, 5).astype(np.float64)
    for activation in "topk", "batchtopk":
        start = make_init(n, d, 6)
        o = options(dict(n=20, k=3, batch=rows, activation=activation, dead_after=3 * rows, aux_coef=0.3, aux_k=2,
                         lr=0.01, warmup=4, clip=0.5))
        want = Trainer(start, o).run(x)
        p = {name: torch.tensor(start[name], requires_grad=True) for name in NAMES}
        adam = torch.optim.Adam(p.values(), lr=o["lr"])
        idle = torch.zeros(n)
        for t in range(20):
            xt = torch.tensor(x[t * rows:(t + 1) * rows])
            relu = torch.relu((xt - p["b_dec"]) @ p["W_enc"].T + p["b_enc"])
            flat = relu if activation == "topk" else relu.reshape(1, -1)
            top = flat.topk(o["k"] if activation == "topk" else o["k"] * rows)
            h = torch.zeros_like(flat).scatter(1, top.indices, top.values).reshape(relu.shape)
            e = xt - (h @ p["W_dec"] + p["b_dec"])
            loss = e.pow(2).sum() / (xt - xt.mean(0)).pow(2).sum()
            dead = idle >= o["dead_after"]
            if dead.any():
                top = torch.where(dead, relu, torch.tensor(-1.0).double()).topk(min(2, int(dead.sum())))
                of_dead = torch.zeros_like(relu).scatter(1, top.indices, top.values)
                was = e.detach()
                loss = loss + 0.3 * (was - of_dead @ p["W_dec"]).pow(2).sum() / (was - was.mean(0)).pow(2).sum()
            adam.zero_grad()
            loss.backward()
            with torch.no_grad():
                w, g = p["W_dec"], p["W_dec"].grad
                g -= (g * w).sum(1, keepdim=True) / (w * w).sum(1, keepdim=True) * w
                norm = torch.nn.utils.clip_grad_norm_(p.values(), 0.5)
                adam.param_groups[0]["lr"] = want.rate(t + 1)
                adam.step()
                w /= w.norm(dim=1, keepdim=True)
                idle = torch.where((h > 0).any(0), torch.tensor(0.0), idle + rows)
            for name, value in ("loss", loss), ("grad_norm", norm), ("dead", dead.sum()):
                assert np.isclose(float(value), want.log[t][name], rtol=1e-12), (t, name, value, want.log[t])
        assert want.log[-1]["dead"] > 0 and want.log[-1]["grad_norm"] < 0.5 < want.log[0]["grad_norm"]
        for name in NAMES:
            off = np.linalg.norm(p[name].detach().numpy() - want.p[name]) / np.linalg.norm(want.p[name])
            print("torch", activation, name, "%.1e" % off)
            assert off < 1e-12


def check_rules():
    # ties: of four equal ones the first; across rows the upper row's
    h = np.array([[1.0, 2, 2, 2], [2, 0, 2, 1]])
    assert largest(h, 2).tolist() == [[False, True, True, False], [True, False, True, False]]
    assert largest(h.reshape(1, -1), 4).reshape(h.shape).tolist() == [[False, True, True, True],
                                                                     [True, False, False, False]]
    p = make_init(8, 4, 1)
    t = Trainer(p, options(dict(n=10, lr=1.0, warmup=4, decay=0.3)))
    assert np.allclose([t.rate(i) for i in range(1, 11)], [.25, .5, .75, 1, 1, 1, 1, .75, .5, .25])
    # Adam's first step is a step of lr against the sign of the gradient
    x = make_rows(20, 4, 1).astype(np.float64)
    o = options(dict(n=1, k=2, lr=0.01, warmup=0, decay=0, normalize=0))
    g = forward_backward(p, x, np.zeros(8, bool), o)[1]
    t = Trainer(p, o)
    t.step(x)
    for name in NAMES:
        assert np.allclose(t.p[name], p[name] - 0.01 * g[name] / (np.abs(g[name]) + 1e-8), rtol=1e-12, atol=0)
    # with normalize: rows of norm 1, and what is left of the gradient is
    # orthogonal to the row, whatever its norm was
    p["W_dec"] = p["W_dec"] * 3
    t = Trainer(p, options(dict(n=1, k=2, lr=0.01, warmup=0, decay=0)))
    t.step(x)
    assert np.allclose((t.p["W_dec"] ** 2).sum(1), 1)
    assert np.abs((t.m["W_dec"] * p["W_dec"]).sum(1)).max() < 1e-15
    # latents that no row reaches die after two batches, not during the second
    p["b_enc"][5:] = -1e3
    t = Trainer(p, options(dict(n=4, k=2, dead_after=40, aux_k=1)))
    for _ in range(4):
        t.step(x)
    assert [s["dead"] for s in t.log][:3] == [0, 0, 3], t.log


def main(verb, *args):
    paths = [a for a in args if "=" not in a]
    o = options(dict(a.split("=", 1) for a in args if "=" in a))
    exact = paths[-1:] == ["exact"]
    if exact:
        paths.pop()
    if verb == "check":
        check_gradients()
        check_rules()
    elif verb == "check-torch":
        check_torch()
    elif verb == "init":
        n, d, seed = map(int, paths[:3])
        write_sae(paths[3], make_init(n, d, seed, exact), min(n, 32))
    elif verb == "rows":
        n, d, seed = map(int, paths[:3])
        np.save(paths[3], make_rows(n, d, seed, exact))
    elif verb == "plant":
        rows, dictionary = plant(*map(int, paths[:5]))
        np.save(paths[5], rows)
        np.save(paths[6], dictionary)
    elif verb == "planted":
        print("%.4f" % recovered(np.load(paths[0]), read_sae(paths[1])["W_dec"]))
    elif verb == "median":
        check_median(*paths)
    elif verb == "follow":
        for line in [args] if args else map(str.split, sys.stdin):
            follow(*line[:3], options(dict(a.split("=", 1) for a in line[3:])))
    elif verb == "eval":
        check_eval(*paths)
    elif verb == "train":
        t = Trainer(read_sae(paths[1]), o).run(load_rows(paths[0]))
        write_sae(paths[2], t.p, o["k"])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:])
