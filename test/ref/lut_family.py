# SPDX-License-Identifier: ISC
"""lut_family.py FAMILY[:VARIANT]...: tables of families, in numpy.

Of each tiny model of family_models.py, a table of each matrix inside its layers:
products and biases of what lut-precompute writes, outputs of lut-apply with and
without compensation, and the logits of hf-infer --lut.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import family_forward  # noqa: E402
import family_models  # noqa: E402
import family_read  # noqa: E402
import family_ref  # noqa: E402
import lut_ref as lut  # noqa: E402

ROOTS = r"^(model\.|language_model\.|transformer\.|gpt_neox\.)+"
TOWERS = ("vision_tower", "visual", "multi_modal", "mm_projector", "model.visual",
          "mtp.")
# which run without tables
EXPERTS = re.compile(r"experts?[._]|(mlp|block_sparse_moe)\.gate$|\.router$")
RATIO = 0.12  # a transposed copy; or, [in, out], the file itself


def run(*command, stdin=None):
    done = subprocess.run(command, stdout=subprocess.PIPE, input=stdin,
                          stderr=subprocess.PIPE)
    assert done.returncode == 0, (command, done.stderr.decode())
    return done.stdout


def layers_of(directory, family):
    """{layer: (W [out, in], bias or None)}, by the names in the file."""
    w = lut.read_model(directory)
    found = {}
    for name, a in w.items():
        stem, _, last = name.rpartition(".")
        if (last != "weight" or a.ndim != 2 or stem.startswith(TOWERS) or
                not ("layers." in stem or "h." in stem) or "norm" in stem or
                EXPERTS.search(stem) or any(
                    stem.startswith(x.partition("eh_proj")[0]) for x in w
                    if ".eh_proj" in x)): # predicts a token more
            continue
        a = a.T if family == "gpt2" else a
        found[stem] = a, w.get(stem + ".bias")
    return found


def short(layer):
    return re.sub(ROOTS, "", layer)


def all_of_x(width):
    """An SAE whose reconstruction is x: relu(x) - relu(-x)."""
    both = np.concatenate([np.eye(width), -np.eye(width)])
    return dict(encoder_weight=both, encoder_bias=np.zeros(2 * width),
                decoder_weight=both, decoder_bias=np.zeros(width))


def near(what, got, want, tol):
    off = abs(got - want).max() / abs(want).max()
    assert got.shape == want.shape and off < tol, (what, off)


def logits(directory, ids, *args):
    out = os.path.join(directory, "logits.npy")
    run("hf-infer", directory, "-q", "-f", "--ids", ",".join(map(str, ids)),
        "--logits", out, *args)
    return np.load(out)


def one_layer(directory, layer, w, bias, rng):
    """The table's numbers, and lut-apply's outputs."""
    file = os.path.join(directory, "lut", "%s.lut.safetensors" % layer)
    t = lut.read_safetensors(file)[0]
    near(layer, t["precomputed_products"], t["decoder_weight"] @ w.T, 1e-6)
    b = 0 if bias is None else bias
    near(layer, t["bias_product"],
         t["decoder_bias"] @ w.T + b, 1e-6)
    x = rng.normal(0, 1, (19, w.shape[1])).astype("<f4")
    np.save(os.path.join(directory, "x.npy"), x)
    with open(os.path.join(directory, "x.npy"), "rb") as f:
        raw = f.read()
    z = lut.preact(t, x.astype(float))
    clear = lut.margin(z, 8) > 1e-4
    sets = lut.top_k(z, 8)
    error = x - lut.reconstruct(t, z, sets)
    norms = np.sqrt((w * w).sum(axis=0))
    dims = np.sort(rng.choice(w.shape[1], 5, replace=False)).astype("<i4")
    np.save(os.path.join(directory, "dims.npy"), dims)
    chosen = np.isin(np.arange(w.shape[1]), dims)[None]
    cases = (((), np.zeros(error.shape, bool)),
             (("--ratio", str(RATIO)), lut.choose(error, ratio=RATIO)),
             (("--ratio", "0.5"), lut.choose(error, ratio=0.5)),
             (("--ratio", "0.5", "--weighted"),
              lut.choose(error, ratio=0.5, weight=norms)),
             (("--tau", "0.4", "--absolute"), lut.choose(error, tau=0.4)),
             (("--dims", os.path.join(directory, "dims.npy")), chosen))
    for args, c in cases:
        got = run("lut-apply", os.path.join(directory, "lut"), short(layer),
                  "-m", directory, "-q", *args, "--raw", "--dtype", "f32",
                  stdin=raw)
        got = np.frombuffer(got, "<f4").reshape(len(x), -1)
        want = lut.compensate(lut.combine(t, z, sets), error, c, w)
        off = abs(got - want).max(axis=1) / abs(want).max()
        assert np.median(off) < 1e-5 and (off[clear] < 1e-5).mean() > 0.8, (
            layer, args, off)
    found = json.loads(run("lut-apply", os.path.join(directory, "lut"), layer,
                           "-m", directory, "--report", "--json", "--ratio",
                           "1", stdin=raw))
    assert found["rel_l2"] < 1e-5 < found["fvu_input"], (layer, found)


def check(name, directory):
    family_models.make(name, directory)
    family, _, _ = name.partition(":")
    ids = family_models.prompts(directory)[0]
    layers = layers_of(directory, family)
    rng = np.random.default_rng(1)
    for layer, (w, _) in layers.items():
        for kind, sae, k in (("exact", all_of_x(w.shape[1]), 2 * w.shape[1]),
                             ("sae", lut.tiny_sae(rng, 40, w.shape[1]), 8)):
            lut.write_sae(os.path.join(directory, kind, short(layer)),
                          "sparsify", sae, k)
    for kind in ("exact", "sae"):
        run("lut-precompute", "-q", "-f", "-m", directory, "-s",
            os.path.join(directory, kind), "-o", os.path.join(directory, "lut"),
            "--dtype", "f32", "--verify")
        model, _ = family_read.read(directory, len(ids))
        want = family_forward.forward(model, ids)
        lut_args = "--lut", os.path.join(directory, "lut")
        got = logits(directory, ids, *lut_args,
                     *(("--ratio", "1") if kind == "sae" else ()))
        off = abs(got - want).max() / family_ref.tolerance(want)
        assert off <= 1, (kind, off)
    plain = logits(directory, ids, *lut_args)
    assert abs(plain - want).max() > 100 * family_ref.tolerance(want), "no tables"
    report = os.path.join(directory, "report.tsv")
    run("hf-infer", directory, "-q", "--ids", ",".join(map(str, ids)), "--nll",
        *lut_args, "--lut-report", report)
    with open(report) as f:
        rows = [line.split("\t")[0] for line in f][1:]
    prefixed = {r.removeprefix("model.") for r in rows}
    assert sorted(map(short, prefixed)) == sorted(map(short, layers)), rows
    for row in rows:
        layer = next(x for x in layers if short(x) == short(row))
        one_layer(directory, row, *layers[layer], rng)
    print("%s: %d tables" % (name, len(rows)))


def main():
    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as tmp:
            check(name, os.path.join(tmp, "m"))


if __name__ == "__main__":
    main()
