# SPDX-License-Identifier: ISC
"""steer_ref.py MODELS: hf-infer --steer, --ablate and --ablate-each against
float64, in a tiny qwen3 of MODELS, a gpt2 and a gemma2: SAEs of each kind at
several hooks, each change, tokens that are left alone, two hooks at once, rows
that the SAE normalizes.  Prints each model's worst logits as a part of what may
be; exits 1 above that.  Leaves the models, and an SAE of each kind of the
qwen3, in the working directory."""
import io
import json
import os
import subprocess
import sys

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import family_forward  # noqa: E402
import family_models  # noqa: E402
import family_read  # noqa: E402
import family_ref  # noqa: E402
import sae_input  # noqa: E402
import splice_ref  # noqa: E402
import transformer  # noqa: E402

# hooks, the family reference's places, and those of transformer.py
HOOKS = [
    ("blocks.0.hook_resid_pre", "layers.-1", ("resid", -1)),
    ("blocks.1.hook_resid_post", "layers.1", ("resid", 1)),
    ("blocks.0.mlp.hook_out", "mlp:0", ("mlp", 0)),
    ("blocks.1.attn.hook_z", "attn.hook_z:1", ("in:o_proj", 1)),
    ("blocks.1.hook_attn_out", "attn_out:1", ("attn", 1)),
    ("blocks.0.mlp.hook_post", "in_down:0", ("in:down_proj", 0)),
]


def qwen3(directory):
    """Its ids, and forward(seen, change), which has the family's places."""
    config, tensors = transformer.load(directory)
    ids = np.fromfile(os.path.join(directory, "ids.i32"), "<i4")[:24]
    at = {point: place for _, place, point in HOOKS}

    def forward(seen=None, change=None):
        def tap(point, layer, x):
            place = at.get((point, layer))
            if place in (change or {}):
                x = change[place](x)
            if seen is not None and place:
                seen[place] = x
            return x

        return transformer.forward(config, tensors, ids, tap)

    return list(map(int, ids)), forward


def family(name):
    family_models.make(name, name)
    ids = family_models.prompts(name)[0]
    model, _ = family_read.read(name, len(ids))
    return ids, lambda seen=None, change=None: family_forward.forward(
        model, ids, seen, change=change)


def transformed(x, kind):
    """Rows as they are encoded, and what a direction of theirs is times."""
    if kind == "layer_norm":
        mean, std = x.mean(axis=1)[:, None], x.std(axis=1, ddof=1)[:, None]
        return (x - mean) / (std + 1e-5), std
    if kind == "constant_norm_rescale":
        s = np.sqrt(x.shape[1]) / np.linalg.norm(x, axis=1)[:, None]
        return x * s, 1 / s
    if kind == "expected_average_only_in":
        return x * sae_input.FACTOR, 1 / sae_input.FACTOR
    return x, 1


def changed(sae, changes, x, kind=None, which=True, centres=False):
    """x + sum of c_i D_i, where 'which'; changes: (latent, how, X)."""
    inner, out = transformed(
        x - x.mean(axis=1, keepdims=True) if centres else x, kind)
    f, delta = sae.encode(inner), 0
    for i, how, value in changes:
        c = {"+": np.full(len(x), value), "=": value - f[:, i],
             "*": (value - 1) * f[:, i]}[how]
        delta = delta + c[:, None] * sae.decoder[i]
    return np.where(np.broadcast_to(which, len(x))[:, None], x + out * delta,
                    x)


def spec(path, changes):
    return "%s:%s" % (path, ",".join("%d%s%.9g" % c for c in changes))


def some(f, rng):
    """Changes of each kind, of latents that are active and one that is not,
    out of order."""
    often = np.argsort(-(f > 0).sum(axis=0))
    scale = f[f > 0].mean()
    i = [int(k) for k in rng.permutation(often[:8])[:4]] + [int(often[-1])]
    value = [float(np.float32(scale * v)) for v in rng.uniform(1, 3, 5)]
    changes = [(i[0], "+", value[0]), (i[1], "=", value[1]), (i[2], "*", 2.5),
               (i[3], "=", 0), (i[4], "+", -value[4])]
    return sorted(changes, key=lambda c: -c[0])


def hf_infer(*arguments):
    return subprocess.run(("hf-infer",) + arguments, check=True,
                          stdout=subprocess.PIPE).stdout


class Held:
    def __init__(self, path, ids, forward):
        self.path, self.ids, self.forward, self.worst = path, ids, forward, 0
        self.text = ",".join(map(str, ids))
        self.seen = {}
        self.plain = forward(self.seen)

    def hold(self, change, *options):
        ref = self.forward(change=change)
        got = np.load(io.BytesIO(hf_infer(
            self.path, "--ids", self.text, "--logits", "-", *options)))
        may = family_ref.tolerance(ref)
        assert np.abs(ref - self.plain).max() > 20 * may, options
        off = np.abs(got - ref).max() / may
        assert off <= 1, (self.path, options, off)
        self.worst = max(self.worst, off)


def nll(logits, ids):
    z = logits[:-1] - logits[:-1].max(axis=1, keepdims=True)
    return (np.log(np.exp(z).sum(axis=1))
            - z[np.arange(len(z)), ids[1:]]).sum()


def each(held, sae, path, place):
    """--ablate-each of all latents."""
    rows = hf_infer(held.path, "--ids", held.text, "--nll", "-q",
                    "--ablate-each", "%s:0-%d" % (path, splice_ref.N - 1))
    f, most = sae.encode(held.seen[place]), 0
    lines = rows.decode().splitlines()
    assert lines[0] == "latent\trows_active\tnll_sum\tdelta", lines[0]
    assert len(lines) == splice_ref.N + 1
    before = nll(held.plain, held.ids)
    for i, line in enumerate(lines[1:]):
        latent, active, total, delta = map(float, line.split("\t"))
        ref = nll(held.forward(change={
            place: lambda x, i=i: changed(sae, [(i, "=", 0)], x)}), held.ids)
        assert latent == i and active == (f[:, i] > 0).sum(), line
        assert abs(total - ref) < 4e-3, (line, ref)
        assert abs(delta - (ref - before)) < 4e-3, (line, ref - before)
        most = max(most, abs(ref - before))
    assert most > .5, most


def check(name, path, ids, forward):
    rng = np.random.default_rng(3)
    held, saes = Held(path, ids, forward), {}
    for k, (hook, place, _) in enumerate(HOOKS):
        kind = ("topk", "threshold", "relu")[k % 3]
        rows, sae = held.seen[place], "%s-sae/%s" % (name, hook)
        saes[place] = inner = splice_ref.make(sae, kind, hook, rows, k)
        changes = some(inner.encode(rows), rng)
        held.hold({place: lambda x: changed(inner, changes, x)},
                  "--steer", spec(sae, changes))
        held.hold({place: lambda x: changed(
            inner, changes, x, which=(np.arange(len(x)) >= 3)
            & (np.arange(len(x)) <= 12))},
            "--steer", spec(sae, changes), "--steer-at", "3-12")
        off = [c[0] for c in changes]
        held.hold({place: lambda x: changed(
            inner, [(i, "=", 0) for i in off], x)},
            "--ablate", "%s:%s" % (sae, ",".join(map(str, off))))
        if k in (1, 3):
            each(held, inner, sae, place)
    # two hooks at once, and a third with --sae
    (a, b, c), of = ("layers.-1", "layers.1", "mlp:0"), "%s-sae/%s"
    hooks = {place: of % (name, hook) for hook, place, _ in HOOKS}
    first = some(saes[a].encode(held.seen[a]), rng)
    second = some(saes[b].encode(held.seen[b]), rng)
    held.hold({a: lambda x: changed(saes[a], first, x),
               b: lambda x: changed(saes[b], second, x), c: saes[c]},
              "--steer", spec(hooks[b], second), "--steer",
              spec(hooks[a], first), "--sae", hooks[c])
    # rows that are normalized, or centred, before they are encoded
    for k, (keys, centres) in enumerate(sae_input.CASES):
        kind = keys.get("normalize_activations")
        hook, place, _ = HOOKS[1]
        sae, rows = "%s-sae/in%d" % (name, k), held.seen[place]
        inner = splice_ref.make(sae, "relu", hook, rows, k)
        given = ["--sae-center"] if "--sae-center" in keys else []
        if given and name != "gpt2":  # refused: its norms are RMSNorm
            continue
        sae_input.configure(sae, {} if given else keys)
        centres = centres and name == "gpt2"
        encoded = transformed(rows - rows.mean(axis=1, keepdims=True)
                              if centres else rows, kind)[0]
        changes = some(inner.encode(encoded), rng)
        for how in changes, changes[:0] + [c for c in changes if c[1] == "+"]:
            held.hold({place: lambda x: changed(inner, how, x, kind,
                                                centres=centres)},
                      "--steer", spec(sae, how), *given)
    print("%s: %.2g of what may be" % (name, held.worst))


def main():
    os.symlink(os.path.join(sys.argv[1], "qwen3"), "qwen3")
    check("qwen3", "qwen3", *qwen3("qwen3"))
    for name in "gpt2", "gemma2":
        check(name, name, *family(name))


if __name__ == "__main__":
    main()
