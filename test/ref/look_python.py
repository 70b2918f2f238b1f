# SPDX-License-Identifier: ISC
"""tensorutils.Look against look_ref.py, and against what sae-look says of the
same RUN: look_python.py, in a directory of its own."""
import concurrent.futures
import json
import os
import pickle
import shutil
import warnings

import numpy as np

import look_ref
import tensorutils as tu
from python_cases import fails, fits, same_verdict

look_ref.sae(24, 8, 5, 3, "sae")
x, ids = look_ref.rows(60, 8, 5), look_ref.ids(6, 10, 4)


def same(got, want, name):
    if want is None:
        assert got is None, name
        return
    assert got.dtype == want.dtype and got.shape == want.shape and not (got.size and got.flags.writeable), name
    assert got.tobytes() == want.tobytes(), name


def is_look(path, options):
    """Every array and fact of a RUN, by the tool or in other bytes, is numpy's."""
    meta, tensors = look_ref.scan("sae", x, **options)
    look = tu.Look(path)
    for name in ("latent rows_active seqs_active sum_limbs sum max hist pair_latent pairs").split():
        same(getattr(look, name), tensors.get(name), name)
    for of in "top", "sample":
        for what in "value", "row", "acts", "ids":
            same(getattr(getattr(look, of), what), tensors.get(of + "_" + what), of + what)
    assert (look.n_latents, look.d, look.hook, look.per, look.context) == (
        24, 8, meta["hook"], meta["per"], tuple(meta["context"]))
    assert (look.rows, look.left_out, look.sequences, look.n_tokens) == (
        meta["rows"], meta["left_out"], meta["sequences"], meta["T"])
    assert look.path == path and look.sae == "sae" and look.meta["seed"] == meta["seed"]
    active = tensors["rows_active"]
    assert (look.density == active / max(meta["rows"], 1)).all()
    assert (look.mean[active > 0] == tensors["sum"][active > 0] / active[active > 0]).all()
    assert (look.mean[active == 0] == 0).all() and (active == 0).any()
    # and as the tool prints them
    lines = [line.split("\t") for line in fits("sae-look", "list", path)[0].splitlines()[1:]]
    assert [(int(a), b, e, f) for a, b, _, _, e, f, _ in lines] == [
        (i, "%.6g" % d, "%.6g" % m, "%.6g" % v)
        for i, d, m, v in zip(look.latent, look.density, look.mean, look.max)]
    return look


def scan(path, **options):
    np.save("ids.npy", options.get("ids", ids))
    np.save("rows.npy", x)
    words = [w for k, v in options.items() for w in ("--" + k.replace("ids", "acts-ids", k == "ids").replace("_", "-"),
             "ids.npy" if k == "ids" else ",".join(map(str, v)) if isinstance(v, (list, tuple)) else str(v))]
    assert fits("sae-look", "scan", "-q", "-s", "sae", "-o", path, *words, "rows.npy")[1] is None
    return is_look(path, options)


def sums():
    look = scan("run", ids=ids, top=4, sample=3, context=(2, 3), pairs=[3, 7], skip_ids=[5, 6])
    assert look.labels == {} and repr(look) == "Look('run'): 24 of 24 latents, in %d rows" % look.rows
    scan("plain", top=2, sample=0, latents=[0, 5, 9], per="row")
    scan("none", top=1, sample=1, latents=[0], max_norm=1e-3)
    # not as the tool writes it: unaligned, with members and labels
    meta, tensors = look_ref.scan("sae", x, ids=ids, top=4, sample=3, context=(2, 3), pairs=[3, 7])
    tensors["x"] = np.zeros(3, "u1")
    look_ref.write("other", dict(meta, sae="sae", note=1), tensors)
    with open("other/labels.tsv", "wb") as f:
        f.write(b"latent\tlabel\n2\tdigits, \xc3\xa9\n9\t\n17\ta\tb \xff")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        look = is_look("other", dict(ids=ids, top=4, sample=3, context=(2, 3), pairs=[3, 7]))
    assert ['other/look.json: member "note" is not known, ignored'] == [str(w.message) for w in said]
    assert look.labels == {2: "digits, \xe9", 9: "", 17: "a\tb \ufffd"}
    # arrays outlive it; pickles, threads and children have the same
    acts, labels = look.top.acts, look.labels
    del look
    assert (acts == tensors["top_acts"]).all()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        look = pickle.loads(pickle.dumps(tu.Look("other")))
    assert look.labels == labels
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for got in pool.map(lambda _: look.sample.ids, range(20)):
            assert (got == tensors["sample_ids"]).all()
    if os.fork() == 0:
        os._exit(not (look.top.acts == acts).all())
    assert os.wait()[1] == 0


def refusals():
    meta, tensors = look_ref.scan("sae", x, ids=ids, top=4, sample=3, context=(2, 3), pairs=[3, 7])
    i = int(np.argmax(tensors["rows_active"]))

    def bad(change, at, value, verb=("list", "bad"), use=tu.Look, **members):
        shutil.rmtree("bad", ignore_errors=True)
        t = {k: v.copy() for k, v in tensors.items()}
        if change:
            t[change][at] = value
        look_ref.write("bad", dict(meta, **members), t)
        theirs = fits("sae-look", *verb)
        assert theirs[1], (change, value, members)
        same_verdict((change, at, value), theirs, lambda: use("bad"))

    for change, at, value in (("latent", 5, 24), ("rows_active", i, 61), ("hist", (i, 1), 1), ("sum", i, np.nan),
                              ("max", i, -1), ("top_row", (i, 0), 60), ("sample_value", (i, 1), 0),
                              ("pairs", (0, 2), 99), ("sum_limbs", (i, 10), 1 << 33), ("seqs_active", i, 0)):
        bad(change, at, value)
    bad(None, 0, 0, format=2)
    bad(None, 0, 0, latents=23)
    # acts and ids: with the examples that they are of
    for of in "top", "sample":
        for what, values in ("_acts", (np.nan, -2, tensors["max"][i] * 2)), ("_ids", (-2, -2 ** 31)):
            for value in values:
                bad(of + what, (i, 0, 2), value, ("show", "bad", str(i)), lambda p: getattr(tu.Look(p), of))
    tu.Look("bad").top  # those are the sample's
    for name in tensors:
        look_ref.write("short", meta, {k: v for k, v in tensors.items() if k != name})
        same_verdict(name, fits("sae-look", "list", "short"), lambda: tu.Look("short"))
        shutil.rmtree("short")
    look_ref.write("labelled", meta, tensors)
    for text in "latent\tlabel\n24\tx\n", "latent\tlabel\n3\tx\n3\ty\n", "\nx\n":
        with open("labelled/labels.tsv", "w") as f:
            f.write(text)
        same_verdict(text, fits("sae-look", "list", "labelled"), lambda: tu.Look("labelled"))
    os.remove("labelled/look.safetensors")
    fails(FileNotFoundError, "labelled/look.safetensors", tu.Look, "labelled")
    fails(FileNotFoundError, "none such/look.json", tu.Look, "none such")
    fails(ValueError, "NUL", tu.Look, "a\0b")
    with open("none/look.json", "w") as f:
        json.dump([], f)
    fails(ValueError, "expected an object", tu.Look, "none")


if __name__ == "__main__":
    sums()
    refusals()
