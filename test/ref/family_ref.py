# SPDX-License-Identifier: ISC
"""family_ref.py list | make FAMILY[:VARIANT] DIR [--seed S] | ids DIR |
logits DIR --ids LIST -o F.npy | acts DIR --ids LIST --place PLACE -o F.npy |
check DIR --ids LIST [--place PLACE] --got F | places DIR |
trap FAMILY[:VARIANT]... | run [FAMILY[:VARIANT]...] | selftest

Tiny random models of families (family_models.py), and their logits and
activations in float64 (family_read.py, family_forward.py), which hf-infer is
held to.  LIST is ids between commas.  PLACE is embed, layers.N (-1: what the
first layer gets), resid_mid:N, attn_out:N and mlp_out:N as TransformerLens has
them, attn:N and mlp:N as these modules return them, attn.hook_z:N, in_qkv:N,
in_mlp:N, in_down:N.  'check' exits 1 where F (.npy, or raw f32) is further off
than 2e-4 * max(1, max|ref| / 5); 'trap' prints for each way to read a family
wrongly how many times that its logits would be off, and exits 1 where this is
less than 20: a test would not see it.  'make' writes the ids of its tests, a
line a prompt, to DIR/ids.
"""
import argparse
import os
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import family_forward  # noqa: E402
import family_models  # noqa: E402
import family_read  # noqa: E402

VISIBLE = 20


def tolerance(ref):
    return 2e-4 * max(1, np.abs(ref).max() / 5)


def rows(directory, ids, place=None, wrong=()):
    """The reference's logits, or its rows at a place."""
    model, _ = family_read.read(directory, len(ids), wrong)
    seen = {}
    logits = family_forward.forward(model, ids, seen)
    if place is None:
        return logits
    if place not in seen:
        sys.exit("family_ref: this model has no %s" % place)
    return seen[place]


def got_rows(path, shape):
    with open(path, "rb") as f:
        is_npy = f.read(6) == b"\x93NUMPY"
    got = np.load(path) if is_npy else np.fromfile(path, "<f4")
    if not is_npy and got.size == np.prod(shape):
        got = got.reshape(shape)
    if got.shape != tuple(shape):
        sys.exit("%s: %s (expected %s)" % (path, list(got.shape), list(shape)))
    return got.astype(np.float64)


def check(directory, ids, place, path):
    ref = rows(directory, ids, place)
    got = got_rows(path, ref.shape)
    off = np.abs(got - ref)
    off[~np.isfinite(got)] = np.inf
    at = np.unravel_index(off.argmax(), off.shape)
    print("worst: row %d, column %d: %.7g (expected %.7g): %.3g, %.3g of what "
          "may be" % (*at, got[at], ref[at], off[at],
                      off[at] / tolerance(ref)))
    return off[at] <= tolerance(ref)


def trap(name, seed):
    """By the prompt that shows it best, as in a test of all prompts."""
    seen = True
    with tempfile.TemporaryDirectory() as tmp:
        family_models.make(name, tmp, seed)
        tests = family_models.prompts(tmp)
        refs = [rows(tmp, ids) for ids in tests]
        traps = family_read.read(tmp, max(map(len, tests)))[1]
        for wrong in traps:
            if name not in family_models.SHOWN_BY.get(wrong, (name,)):
                continue
            off = max(np.abs(rows(tmp, ids, wrong=[wrong]) - ref).max()
                      / tolerance(ref) for ids, ref in zip(tests, refs))
            seen &= off >= VISIBLE
            print("%s\t%s\t%.3g%s" % (name, wrong, off, "" if off >= VISIBLE
                                      else "\ttoo little to be seen"))
    return seen


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("verb", choices=("list", "make", "ids", "logits", "acts",
                                    "check", "places", "trap", "run",
                                    "selftest"))
    p.add_argument("names", nargs="*")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--ids", type=family_models.parse)
    p.add_argument("--place")
    p.add_argument("--got")
    p.add_argument("-o", dest="out")
    o = p.parse_args()
    names = o.names or list(family_models.MODELS)
    if o.verb == "list":
        for name in names:
            print("%s\t%s" % (name, family_models.MODELS[name]))
    elif o.verb == "make":
        family_models.make(o.names[0], o.names[1], o.seed)
    elif o.verb == "ids":
        for ids in family_models.prompts(o.names[0]):
            print(",".join(map(str, ids)))
    elif o.verb == "places":
        model, _ = family_read.read(o.names[0], 1)
        seen = {}
        family_forward.forward(model, [0], seen)
        print("\n".join(seen))
    elif o.verb in ("logits", "acts"):
        np.save(o.out, rows(o.names[0], o.ids, o.place))
    elif o.verb == "check":
        sys.exit(not check(o.names[0], o.ids, o.place, o.got))
    elif o.verb == "selftest":
        import family_selftest
        family_selftest.run(tolerance)
    elif o.verb == "run":
        import family_run
        family_run.run(names, tolerance)
    elif o.verb == "trap":
        sys.exit(not all([trap(name, o.seed) for name in names]))


if __name__ == "__main__":
    main()
