# SPDX-License-Identifier: ISC
"""python/tensorutils.py against numpy: python_cases.py CASE, in a directory of
its own; "torch" and "moe" need torch."""
import concurrent.futures
import copy
import json
import os
import pickle
import re
import shutil
import struct
import subprocess
import sys
import warnings

import numpy as np

import lut_ref
import mkst
import tensorutils as tu

META = dict(vit_family="x", vit_ckpt="y", layers=[3, 7], n_patches_per_img=4,
            cls_token=True, d_vit=6, seed=0, n_imgs=10,
            max_patches_per_shard=35, data="")
X = np.random.default_rng(0).standard_normal((10, 2, 5, 6)).astype("f4")


def fails(kind, text, function, *args):
    try:
        function(*args)
    except kind as e:
        assert text in str(e), e
    else:
        raise AssertionError(text)


def fits(*command):
    """Does a tool take these files?  What it prints, or why not."""
    p = subprocess.run(command, capture_output=True, text=True)
    assert p.returncode in (0, 65, 66), (command, p)
    return (p.stdout, None) if p.returncode == 0 else (
        None, p.stderr.splitlines()[-1].split(": ", 1)[1])


def same_verdict(name, theirs, function):
    """An error where a tool refuses, in its words, and nowhere else."""
    try:
        ours, why = function(), None
    except (ValueError, FileNotFoundError) as e:
        ours, why = None, e.strerror if isinstance(e, OSError) else str(e)
    assert why == theirs[1], (name, why, theirs)
    return ours


def dump(out="acts", meta=META, x=X, options=("-q",)):
    with tu.Writer(out, meta, *options) as w:
        for i in range(0, len(x), 3):
            w.write(x[i:i + 3])
    return w.path


def dumps():
    """All views of a dump in shards of three images, short and padded."""
    for path in dump(), dump("padded", META, X, ("-q", "--pad")):
        acts = tu.Acts(path)
        assert len(acts) == 10 and acts.d == 6 and acts.cls
        assert (np.stack([acts[i] for i in range(10)]) == X).all()
        tokens = {"all": slice(0, 5), "image": slice(1, 5), "cls": slice(0, 1)}
        for view in tokens:
            for layer in None, 3, 7:
                rows = acts.rows(view, layer)
                places = [0, 1] if layer is None else [[3, 7].index(layer)]
                want = X[:, places][:, :, tokens[view]].reshape(-1, 6)
                assert len(rows) == len(want)
                assert (np.asarray(rows) == want).all()
                for pick in (slice(2, 9, 3), [5, 1, 5, -1], slice(0, 0),
                             np.arange(len(want)) % 3 == 1):
                    assert (rows[pick] == want[pick]).all()
                assert (rows[-1] == want[-1]).all()
                for i in range(len(rows)):
                    image, patch, of = rows.where(i)
                    assert (X[image, [3, 7].index(of), patch + 1]
                            == want[i]).all()
        fails(IndexError, "image 10 of 10", acts.__getitem__, 10)
        fails(TypeError, "", acts.__getitem__, 1.5)
        fails(IndexError, "row -21 of 20", acts.rows("cls").__getitem__, [3, -21])
        fails(ValueError, "layer 4 is not in the dump", acts.rows, "all", 4)
        fails(ValueError, "layer x is not in the dump", acts.rows, "all", "x")
        fails(ValueError, "view 'most'", acts.rows, "most")
    # documents that hf-infer --pad filled up
    meta = dict(META, cls_token=False, n_patches_per_img=5, n_imgs=10,
                data={"windows": "padded"})
    n = np.array([5, 0, 3, 1, 5, 4, 2, 5, 0, 0])
    x = np.where((np.arange(5) < n[:, None])[:, None, :, None], X, 0)
    x[3, 0, 0], x[3, 1, 0] = 0, -0.0  # data, as not all bits are 0
    acts = tu.Acts(dump("documents", meta, x))
    for layer, of in (None, [0, 1]), (7, [1]):
        rows = acts.rows(layer=layer)
        want = np.concatenate([x[i, l, :n[i]] for i in range(10) for l in of])
        said = subprocess.run(["saev-read", "-q", "--raw", "--layer",
                               "all" if layer is None else "7", acts.path],
                              capture_output=True, check=True)
        assert want.tobytes() == said.stdout == rows[:].tobytes()
        assert [rows.where(k)[:2] for k in range(len(rows))] == [
            (i, t) for i in range(10) for l in of for t in range(n[i])]
        assert (rows[len(rows) - 1] == want[-1]).all()
        fails(IndexError, "of %d" % len(want), rows.where, len(want))
        assert (acts.rows(layer=layer, padding=True)[:] ==
                x[:, of].reshape(-1, 6)).all()
    shard = os.path.join(path, "acts000001.bin")
    os.chmod(shard, 0o644)
    os.truncate(shard, 100)
    fails(ValueError, "acts000001.bin: 100 bytes (expected 720)",
          tu.Acts, path)
    with open(os.path.join(path, "metadata.json"), "w") as f:
        json.dump({"vit_family": "x"}, f)
    fails(ValueError, "metadata.json: ", tu.Acts, path)

    # what saev-read refuses, and does not
    for i, (good, meta, shards) in enumerate([
            (True, {}, {}), (True, dict(layers=[7, 3]), {}),
            (True, dict(n_imgs=9), {3: None}), (True, {}, {3: 720}),
            (True, dict(n_imgs=9), {3: 720}), (False, dict(n_imgs=9), {}),
            (False, {}, {4: 720}), (False, {}, {4: 0}), (False, {}, {2: None}),
            (False, {}, {1: 240}), (False, {}, {3: 480}),
            (False, dict(layers=[0, 0]), {}), (False, dict(layers=[]), {}),
            (False, dict(layers=[0, True]), {}), (False, dict(layers=2), {}),
            (False, dict(n_imgs=True), {}), (False, dict(n_imgs=10.), {}),
            (False, dict(n_imgs=-1), {}), (False, dict(d_vit="6"), {}),
            (False, dict(d_vit=0), {}), (False, dict(cls_token=1), {}),
            (False, dict(max_patches_per_shard=9), {}),
            (False, dict(n_patches_per_img=0, cls_token=False), {})]):
        path = "d%d" % i
        os.mkdir(path)
        with open(path + "/metadata.json", "w") as f:
            json.dump(dict(META, **meta), f)
        sizes = {0: 720, 1: 720, 2: 720, 3: 240, **shards}
        for k in sizes:
            if sizes[k] is not None:
                with open(path + "/acts%06d.bin" % k, "wb") as f:
                    f.write(bytes(sizes[k]))
        theirs = fits("saev-read", "-q", "--raw", path, "0")
        assert (theirs[0] is not None) == good, (meta, shards)
        same_verdict((meta, shards), theirs, lambda: tu.Acts(path))
    with open("d0/metadata.json", "w") as f:
        f.write('{"n_imgs": 10, ' + json.dumps(META)[1:])
    same_verdict("twice", fits("saev-read", "-q", "d0", "0"), lambda: tu.Acts("d0"))
    os.remove("d1/acts000001.bin")
    os.mkfifo("d1/acts000001.bin")
    fails(ValueError, "d1/acts000001.bin: ", tu.Acts, "d1")

    # a directory of dumps is the only one of them
    os.mkdir("of")
    fails(FileNotFoundError, "of/metadata.json", tu.Acts, "of")
    os.rename("d2", "of/x")
    open("of/notes", "w").close()
    os.mkdir("of/table")  # has metadata, but no shards
    shutil.copy("of/x/metadata.json", "of/table")
    assert tu.Acts("of").path == "of/x"
    fails(ValueError, "has a NUL", tu.Acts, "of\0")
    os.rename("of/table", "of/" + 64 * "a")
    fails(ValueError, "of: holds 2 dumps, name one: of/" + 64 * "a", tu.Acts,
          "of")
    shutil.rmtree("of/" + 64 * "a")
    os.rename("d3", "of/y")
    fails(ValueError, "of: holds 2 dumps, name one: of/x, of/y", tu.Acts, "of")


def writer():
    """A run that fails leaves nothing, and says so."""
    def short():
        with tu.Writer("acts", META, "-q") as w:
            w.write(X[:9])

    def stops():
        with tu.Writer("acts", META, "-q") as w:
            w.write(X)
            raise KeyError("mine")

    fails(RuntimeError, "saev-write ended with status 65", short)
    fails(KeyError, "mine", stops)
    fails(ValueError, "activations [3, 2, 5] (expected [images, 2, 5, 6])",
          dump, "acts", META, X[..., 0])
    fails(RuntimeError, "saev-write ended with status", dump, "acts",
          dict(META, n_imgs=-1))
    assert not os.path.exists("acts") or not os.listdir("acts")
    counted = {k: v for k, v in META.items() if k != "n_imgs"}
    assert tu.Acts(dump("acts", counted)).n_imgs == 10
    fails(RuntimeError, "saev-write ended with status 73", dump, "acts",
          counted)
    assert tu.Acts(dump("acts", counted, X, ("-q", "-f"))).n_imgs == 10


def tensors():
    """BF16 to nearest even, and every dtype there and back."""
    u = np.arange(1 << 16, dtype="<u2")
    f = tu.bf16_to_f32(u)
    back = tu.f32_to_bf16(f)
    nan = np.isnan(f)
    assert (back == u)[~nan].all() and np.isnan(tu.bf16_to_f32(back)[nan]).all()
    a = np.random.default_rng(1).standard_normal(10000).astype("f4")
    a[:3] = 1 + 2.0 ** -8, 1 + 3 * 2.0 ** -8, np.inf
    assert (tu.bf16_to_f32(tu.f32_to_bf16(a)) == lut_ref.round_to(a, "BF16")).all()
    made = {"f": a.reshape(100, 100), "half": a[:8].astype("f2"),
            "n": np.arange(5), "i8": np.arange(3, dtype="i1"),
            "none": np.empty((0, 4), "f4"), "one": np.float32(2.5), "b": a}
    tu.save_safetensors("t.safetensors", made, {"who": "me"}, bf16=["b"])
    assert subprocess.run(["st-inspect", "verify", "-q", "t.safetensors"]
                          ).returncode == 0
    t = tu.open_safetensors("t.safetensors")
    assert t.metadata == {"who": "me"} and set(t) == set(made)
    for name, want in mkst.load_all("t.safetensors")[0].items():
        assert t.dtype(name) == want[0]
        assert (t[name] == mkst.values(*want)).all() and t[name].shape == \
            mkst.values(*want).shape
    assert t.dtype("b") == "BF16" and t["b"].dtype == np.float32
    assert tu.open_safetensors("t.safetensors", True)["b"].dtype == np.uint16
    assert t["one"].shape == () and t["one"] == 2.5
    fails(TypeError, "x is object, which", tu.save_safetensors, "t.safetensors",
          {"x": np.array([None])})
    # names and metadata are text; by the format's own reader, too
    for kind, text, *args in (
            (TypeError, "4 is no string", {"x": a}, {"step": 4}),
            (TypeError, "1 is no string", {"x": a}, {1: "x"}),
            (TypeError, "2 is no string", {2: a}),
            (ValueError, "__metadata__ is not", {"__metadata__": a}),
            (ValueError, "surrogates", {"x\ud800": a}),
            (ValueError, "surrogates", {"x": a}, {"y": "\udfff"})):
        fails(kind, text, tu.save_safetensors, "t.safetensors", *args)
    assert os.listdir(".") == ["t.safetensors"]
    data = open("t.safetensors", "rb").read()
    for bad in data[:7], data[:-1], b"\xff" * 8 + data[8:]:
        open("bad", "wb").write(bad)
        fails(ValueError, "bad: ", tu.open_safetensors, "bad")
    # broken at random, by the format's rules
    mutate = os.path.join(os.path.dirname(__file__), "safetensors_mutate.py")
    records = subprocess.run([sys.executable, "-B", mutate, "3", "2000"],
                          stdout=subprocess.PIPE, check=True).stdout
    n, at = [0, 0], 0
    while at < len(records):
        size, dump = struct.unpack_from("<II", records, at)
        good = dump != 2 ** 32 - 1
        open("bad", "wb").write(records[at + 8:at + 8 + size])
        at += 8 + size + good * dump
        try:
            t = tu.open_safetensors("bad")
        except ValueError:
            t = None
        assert good == (t is not None), n
        for name in t or ():
            if t.dtype(name)[:2] not in ("F4", "F6"):  # 4 and 6 bits
                assert t[name].ndim >= 0
        n[good] += 1
    assert min(n) > 100
    os.remove("bad")
    os.mkfifo("bad")
    fails(ValueError, "bad: is not a regular file", tu.open_safetensors, "bad")
    # a file's place: no device is replaced, a link stays one
    fails(ValueError, "bad: is not a regular file", tu.save_safetensors, "bad", {})
    os.symlink("t.safetensors", "link")
    tu.save_safetensors("link", dict(tu.open_safetensors("link").items()))
    assert os.path.islink("link") and (tu.open_safetensors(
        "t.safetensors")["f"] == a.reshape(100, 100)).all()


def layers():
    """Tables and autoencoders are lut_ref's, of all forms."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal((50, 20)).astype("f4")
    sae = lut_ref.tiny_sae(rng, 48, 20)
    w = rng.standard_normal((12, 20))
    for i, (k, threshold) in enumerate([(5, None), (48, None), (5, 0.5),
                                        (5, rng.random(48))]):
        t = lut_ref.write_lut("t%d" % i, {"model.layers.0.mlp.up_proj":
                                          lut_ref.table(sae, w)}, k, "F32",
                              threshold=threshold)["model.layers.0.mlp.up_proj"]
        table = tu.Table("t%d" % i, "layers.0.mlp.up_proj")
        z = lut_ref.preact(t, x)
        sets = lut_ref.active(t, z, k)
        assert np.allclose(table(x), lut_ref.combine(t, z, sets), atol=1e-4)
        assert np.allclose(table.reconstruct(x),
                           lut_ref.reconstruct(t, z, sets), atol=1e-4)
    for layout in "sparsify", "saelens", "six", "dictionary_topk":
        lut_ref.write_sae(layout, layout, sae, 5)
        got = tu.SAE(layout)
        p = (x - sae["decoder_bias"]) @ sae["encoder_weight"].T + \
            sae["encoder_bias"]
        want = np.zeros_like(p)
        for r, s in enumerate(lut_ref.top_k(p, 5)):
            want[r, s] = p[r, s]
        assert np.allclose(got.encode(x), want, atol=1e-4), layout
        assert np.allclose(got.decode(want), want @ sae["decoder_weight"]
                           + sae["decoder_bias"], atol=1e-4)
        assert (got.W_dec == sae["decoder_weight"]).all() and \
            (got.b_enc == sae["encoder_bias"]).all() and got.k == 5
        assert repr(got) == "SAE('%s'): 48 latents, d 20, topk 5" % layout
    for shape in (20,), (0, 20), (2, 5, 20):
        one = x[:np.prod(shape, dtype=int) // 20].reshape(shape)
        assert (got.encode(one).reshape(-1, 48) == got.encode(x)[:one.size // 20]).all()
    fails(ValueError, "x is [50, 12] (expected [.., 20])", got.encode, x[:, :12])
    fails(ValueError, "has no layer layers.1.mlp.up_proj", tu.Table, "t0",
          "layers.1.mlp.up_proj")
    assert (table.encoder_weight == sae["encoder_weight"]).all()
    assert table.entry["file"] == os.path.basename(table.file)
    lut_ref.write_lut("t4", {"model.layers.0.mlp.up_proj": lut_ref.table(sae, w)},
                      5, "F32", exporter=True)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        tu.Table("t4", "layers.0.mlp.up_proj")
    assert "leaves out the layer" in str(said[0]) and said[0].filename == __file__


def shared():
    """Threads, children and other processes have the same numbers."""
    acts = tu.Acts(dump())
    rows, sae = acts.rows("image", 7), lut_ref.tiny_sae(np.random.default_rng(5), 48, 6)
    lut_ref.write_sae("sae", "sparsify", sae, 5)
    lut_ref.write_lut("lut", {"model.layers.0.mlp.up_proj": lut_ref.table(
        sae, np.ones((12, 6)))}, 5, "F32")
    tu.save_safetensors("w.safetensors", {"x": X})
    opened = [acts, rows, tu.SAE("sae"), tu.Table("lut", "layers.0.mlp.up_proj"),
              tu.open_safetensors("w.safetensors")]

    def numbers(acts, rows, sae, table, st):
        return acts[4], rows[[9, 0]], sae.encode(rows), table(rows), st["x"]

    def same(*objects):
        return all(map(np.array_equal, numbers(*objects), wanted))

    wanted = numbers(*opened)
    assert np.array_equal(wanted[1], X[:, 1, 1:].reshape(-1, 6)[[9, 0]])
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda _: same(*opened), range(200)))
        busy = [pool.submit(same, *opened) for _ in range(200)]
        for _ in range(5):  # while these threads compute
            assert os.waitpid(os.fork() or os._exit(not same(*opened)), 0)[1] == 0
        assert all(f.result() for f in busy)
    copies = pickle.loads(pickle.dumps(opened))
    assert copies[1].acts is copies[0] and same(*copies)
    assert repr(opened[3]) == "Table('lut', 'model.layers.0.mlp.up_proj'): " \
        "6 -> 12 by 48 latents, 5 active"
    # what an array is of stays, and it cannot be changed
    image, tensor = tu.Acts(acts.path)[9], tu.open_safetensors("w.safetensors")["x"]
    assert (image == X[9]).all() and (tensor == X).all() and not image.flags.writeable


def saes():
    """SAEs that sae-train refuses, or computes: by name, layout, changes of
    the configuration, tensors."""
    z, N = np.zeros(24), None
    plain = [
        ("sparsify", {}, {}), ("saelens", {}, {}), ("saelens_args", {}, {}),
        ("saelens", dict(apply_b_dec_to_input=N), {}),
        ("saelens", dict(apply_b_dec_to_input=False), {}),
        ("saelens", dict(architecture="standard", k=N), {}),
        ("saelens", dict(architecture="jumprelu", k=N), dict(threshold=z + .4)),
        ("saelens", dict(architecture="jumprelu"), dict(threshold=z - .4)),
        ("sparsify", dict(activation="batchtopk", threshold=.5), {}),
        ("sparsify", dict(activation="BatchTopK"), {}),
        ("sparsify", dict(num_latents=0, signed=False, hook="layers.1"), {}),
        ("saelens", dict(metadata=dict(hook_name="h"), hook_name="h"), {}),
        ("saelens", {}, dict(scaling_factor=z + 1))]
    refused = [("sparsify", cfg, {}) for cfg in (
        dict(transcode=True), dict(skip_connection=True), dict(signed=True),
        dict(activation="groupmax"), dict(activation="batchtopk", threshold=-1),
        dict(threshold=.5), dict(num_tiles=4), dict(use_hadamard=True),
        dict(k=25), dict(k=N), dict(k=0), dict(k=True), dict(k=4.),
        dict(rescale_acts_by_decoder_norm=True), dict(num_latents=25),
        dict(d_in=59), dict(activation=N, normalize_activations="layer_norm"),
        dict(trainer=dict(k=5)), dict(hook="a", hook_name="b"), dict(hook=1),
        dict(hook_name_out="b"), dict(k=N, other=dict(k=4)))]
    refused += [("saelens", cfg, {}) for cfg in (
        dict(architecture="gated"), dict(architecture="jumprelu"),
        dict(normalize_activations="batch_norm"), dict(activation_fn="tanh"),
        dict(reshape_activations="hook_q"), dict(d_sae=25), dict(d_out=6),
        dict(activation_fn_kwargs=dict(k=4, signed=True)),
        dict(activation_fn_kwargs=dict(k=5)), dict(hook_head_index=0),
        dict(apply_b_dec_to_input="no"), dict(dict_class="GatedAutoEncoder"),
        dict(hook_name="a", hook_name_out="b"), dict(finetuning_scaling_factor=True),
        dict(hook_name="a", metadata=dict(hook_name="b")),
        dict(metadata=dict(hook_name="a", hook_point="b")), dict(metadata=dict(k=5)),
        dict(metadata=dict(model_from_pretrained_kwargs=dict(fold_ln=True))))]
    refused += [
        ("sparsify", {}, dict(W_skip=np.zeros((60, 60)))),
        ("sparsify", {}, dict(post_enc=z)), ("saelens", {}, dict(threshold=z)),
        ("saelens", dict(architecture="jumprelu"), dict(threshold=z + np.nan)),
        ("saelens", dict(architecture="jumprelu"), dict(threshold=z[1:])),
        ("saelens", {}, dict(b_enc=z + np.inf)),
        ("saelens", {}, dict(scaling_factor=z)),
        ("sparsify", {}, dict(W_dec=np.ones((60, 24))))]
    assert len(refused) >= 28
    return plain, refused


def forms():
    """What sae-train and lut-apply compute and refuse, SAE and Table do."""
    rng = np.random.default_rng(1)
    sae, x = lut_ref.tiny_sae(rng, 24, 60), rng.normal(0, 1, (50, 60)).astype("f4")
    np.save("x.npy", x)
    plain, refused = saes()
    for i, (layout, cfg, extra) in enumerate(plain + refused):
        lut_ref.write_sae("s%d" % i, layout, sae, 4, cfg=cfg, extra=extra)
        said = fits("sae-train", "eval", "-s", "s%d" % i, "x.npy")
        assert (said[0] is None) == (i >= len(plain)), (layout, cfg)
        got = same_verdict((layout, cfg, list(extra)), said,
                           lambda: tu.SAE("s%d" % i))
        if got:
            mse = float(re.search(r"mse\s(\S+)", said[0])[1])
            assert abs(((got.decode(got.encode(x)) - x) ** 2).sum() / len(x)
                       - mse) < 1e-3 * mse, (layout, cfg)
    for beside in "hadamard.pt", "sae_weights.safetensors", "ae.pt":
        lut_ref.write_sae(beside + ".d", "sparsify", sae, 4)
        open(beside + ".d/" + beside, "w").close()
        same_verdict(beside, fits("sae-train", "eval", "-s", beside + ".d", "x.npy"),
                     lambda: tu.SAE(beside + ".d"))

    layer, w = "model.layers.0.mlp.up_proj", rng.standard_normal((12, 60))
    tables = [dict(), dict(k_active=24), dict(activation="topk"),
              dict(encoder=dict(input_centering=True)), dict(k_active=None),
              dict(num_basis=None, target_bias=False)]
    refused = [dict(file="../t0/%s.lut.safetensors" % layer), dict(file="fifo"),
               dict(file=os.path.abspath("t0/%s.lut.safetensors" % layer)),
               dict(file=""), dict(file=".x"), dict(k_active=0),
               dict(k_active=-2), dict(k_active=100), dict(k_active=True),
               dict(k_active=2.), dict(input_dim=59), dict(output_dim=13),
               dict(num_basis=23), dict(activation="relu"),
               dict(activation="threshold"), dict(input_dim=None),
               dict(encoder=dict(input_centering="yes")), dict(target_bias=1)]
    for i, entry in enumerate(tables + refused):
        lut_ref.write_lut("t%d" % i, {layer: lut_ref.table(sae, w)}, 5, "F32")
        os.mkfifo("t%d/fifo" % i)
        with open("t%d/metadata.json" % i) as f:
            meta = json.load(f)
        members = meta["layers"][layer]
        members.update(entry)
        for key in [key for key in members if members[key] is None]:
            del members[key]
        with open("t%d/metadata.json" % i, "w") as f:
            json.dump(meta, f)
        said = fits("lut-apply", "t%d" % i, layer, "-q", "-i", "x.npy",
                    "-fo", "y.npy")
        assert (said[0] is None) == (i >= len(tables)), entry
        table = same_verdict(entry, said, lambda: tu.Table("t%d" % i, layer))
        if table:
            assert (table(x) == np.load("y.npy")).all(), entry
    for meta, threshold in (dict(version="2.0"), None), ({}, -.5), ({}, np.nan), \
            ({}, rng.random(23)), (dict(layers={layer: {}, layer[6:]: {}}), None):
        lut_ref.write_lut("bad", {layer: lut_ref.table(sae, w)}, 5, "F32",
                          meta=meta, threshold=threshold)
        said = fits("lut-apply", "bad", layer, "-i", "x.npy", "-fo", "y.npy")
        assert said[1].startswith("bad/")
        same_verdict(meta, said, lambda: tu.Table("bad", layer))


def torch():
    """Modules' outputs in a dump, and its rows in a DataLoader."""
    import torch

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Linear(6, 8)
            self.b = torch.nn.LSTM(8, 8, batch_first=True)  # gives a tuple
            self.idle = torch.nn.Linear(1, 1)

        def forward(self, x):
            return self.b(self.a(x))[0]

    model, x = Model().eval(), torch.randn(7, 5, 6)
    with torch.no_grad():
        a = model.a(x)
        want = torch.stack([a, model.b(a)[0]], 1).numpy()
    with torch.no_grad(), tu.Recorder(model, ["a", "b"], "acts", {}, "-q") as r:
        model(x[:4])
        model(x[4:])
    acts = tu.Acts(r.path)
    assert acts.meta["vit_family"] == "Model" and acts.n_imgs == 7
    got = np.stack([acts[i] for i in range(7)])
    assert np.allclose(got, want, atol=1e-6)
    for how in None, "fork", "spawn":
        n = 0
        for batch in torch.utils.data.DataLoader(
                acts.rows(layer=1).torch(), batch_size=4, shuffle=True,
                num_workers=2 if how else 0, multiprocessing_context=how):
            for act, i, p in zip(batch["act"], batch["image"], batch["patch"]):
                assert (act.numpy() == got[i, 1, p]).all()
                n += 1
        assert n == 35
    model(x)  # no hook is left

    class InPlace(torch.nn.Module):
        """Each module's output is changed by the next one, where it is."""
        def __init__(self, order):
            super().__init__()
            self.a, self.b = torch.nn.Linear(6, 6), torch.nn.ReLU(inplace=True)
            self.order = order

        def forward(self, x):
            for name in self.order:
                x = getattr(self, name)(x)
                x += 1
            return x

    def record(order, names=("a", "b")):
        net = InPlace(order).eval()
        with torch.no_grad(), tu.Recorder(net, names, order, {}, "-qf") as r:
            net(x)
        with torch.no_grad():
            a = net.a(x)
        return tu.Acts(r.path), a.numpy()

    acts, a = record("ab")
    got = np.stack([acts[i] for i in range(7)])
    assert (got == np.stack([a, np.maximum(a + 1, 0)], 1)).all()
    # a module that runs twice: two images, or refused where they are torn
    assert len(record("abab")[0]) == 14 and len(record("aa", ["a"])[0]) == 14
    fails(RuntimeError, "a has run twice, but b has not run", record, "aab")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        record("ab")
        with tu.Recorder(InPlace("ab").train(), ["a"], "train", {}, "-q"):
            pass
    assert [str(w.message) for w in said] == [
        "the model is in training mode: its dropout is in the activations"]

    def partly():
        with tu.Recorder(model, ["a", "idle"], "part", {}, "-q"):
            model(x)

    fails(RuntimeError, "some modules did not run", partly)
    fails(ValueError, "has no module c", tu.Recorder, model, ["c"], "d", {})
    assert not os.path.exists("part")


def moe():
    """MoE against torch's autograd in float64; what it must refuse."""
    import torch
    from torch.utils.checkpoint import checkpoint
    g = torch.Generator().manual_seed(2)
    E, K, H, I, R, N = 4, 2, 96, 80, 5, 37

    def bf16(*shape, over):
        return (torch.randn(*shape, generator=g) / over ** .5).bfloat16()

    base = [bf16(E, I, H, over=H), bf16(E, I, H, over=H), bf16(E, H, I, over=I)]
    lora = []  # about half of the signal, s being 2
    for i, o in (H, I), (H, I), (I, H):
        lora += [bf16(E, R, i, over=i), bf16(E, o, R, over=4 * R)]
    lora = [t.requires_grad_() for t in lora]
    x, before = bf16(2, N, H, over=1), bf16(H, H, over=H).requires_grad_()
    ids = torch.rand(2, N, E, generator=g).argsort(-1)[..., :K]
    logits = torch.randn(2, N, K, generator=g).requires_grad_()
    dy = torch.randn(2, N, H, generator=g)

    def formula(x, weights, lora):
        """The experts' outputs, each for all tokens, weighted."""
        y = 0
        for e in range(E):
            def linear(i, v):
                a, b = lora[2 * i][e], lora[2 * i + 1][e]
                return v @ base[i][e].double().T + 2 * (v @ a.T) @ b.T
            h = torch.nn.functional.silu(linear(0, x)) * linear(1, x)
            y = y + (weights * (ids == e)).sum(-1, keepdim=True) * linear(2, h)
        return y

    leaves = [before, logits] + lora
    wide = [t.detach().double().requires_grad_() for t in leaves]
    z = x.double() @ wide[0]
    rounded = z + (z.bfloat16().double() - z).detach()  # the operator's input
    want = formula(rounded, wide[1].softmax(-1), wide[2:])
    (want * dy).sum().backward()

    def by(v):
        """v @ before, rounded once: torch may sum a bf16 product in bf16."""
        return (v.float() @ before.float()).bfloat16()

    def near(a, b, limit):
        d = (a.double() - b).abs().mean() / b.abs().mean()
        assert d < limit, (float(d), a.shape)

    def cleared():
        for t in leaves:
            t.grad = None

    for mode, parts, limits in (("bf16", 1, (.01, .015)),
                                ("bf16", 3, (.01, .015)),
                                ("int8", 2, (.05, .06))):
        op = tu.MoE(*base, lora, alpha=10, top_k=K, max_len=2 * N, mode=mode,
                    parts=parts, threads=2)
        cleared()
        y = op(by(x), ids, logits.softmax(-1))
        assert y.shape == x.shape and y.dtype == torch.float32
        (y * dy).sum().backward()
        near(y, want, limits[0])
        for t, w in zip(leaves, wide):
            assert t.grad.dtype == t.dtype
            near(t.grad, w.grad, limits[1])

    op = tu.MoE(*base, lora, 10, K, 2 * N)

    def run():
        return op(by(x), ids, logits.softmax(-1))

    def backward(y):
        cleared()
        (y * dy).sum().backward()
        return [t.grad.clone() for t in leaves]

    grads = backward(run())
    same = lambda a, b: all(map(torch.equal, a, b))
    with torch.no_grad():
        run(), run()  # none is kept
    run()  # nor this one
    y = run()
    fails(ValueError, "the cache is full (1, by max_cache_depth)", run)
    assert same(grads, backward(y))
    y = checkpoint(lambda v: op(by(v), ids, logits.softmax(-1)),
                   x.clone().requires_grad_())
    assert same(grads, backward(y))
    y = run()
    (y * dy).sum().backward(retain_graph=True)
    fails(RuntimeError, "second backward", (y * dy).sum().backward)
    y = run()
    with torch.no_grad():
        lora[3] += 0
    fails(RuntimeError, "modified by an inplace operation", (y * dy).sum().backward)
    del y

    # twice in one graph: the last forward's backward comes first
    op = tu.MoE(*base, lora, 10, K, 2 * N, depth=2)
    twice = backward(run() + run())
    for t, once in zip(twice, grads):
        near(t, 2 * once.double(), 1e-2)
    first, second = run(), run()
    fails(RuntimeError, "not the last forward", (first * dy).sum().backward)
    del first, second

    # an adapter that moves is followed; training reduces the loss
    moved = [t.detach().clone().requires_grad_() for t in lora]
    op.lora = moved
    other = tu.MoE(*base, lora, 10, K, 2 * N)
    assert torch.equal(run(), other(by(x), ids, logits.softmax(-1)))
    sgd, losses = torch.optim.SGD(op.parameters(), lr=.5), []
    for _ in range(6):
        sgd.zero_grad()
        losses.append(((run() - dy) ** 2).mean())
        losses[-1].backward()
        sgd.step()
    assert losses[-1] < .8 * losses[0], losses

    w = logits.softmax(-1)
    fails(ValueError, "x is torch.float32", op, x.float(), ids, w)
    fails(ValueError, "expert_ids is [2, 37, 1]", op, x, ids[..., :1], w)
    fails(ValueError, "expert_ids is torch.int32", op, x, ids.int(), w)
    fails(ValueError, "weights is", op, x, ids, w[:1])
    fails(ValueError, "qlen is 148, but max_len 74", op,
          *(torch.cat((t, t)) for t in (x, ids, w)))
    op.lora = moved[:1] + moved[:1] + moved[2:]
    fails(ValueError, "gate's B is torch.bfloat16 [4, 5, 96]", op, x, ids, w)
    fails(ValueError, "down is torch.bfloat16 [4, 80, 96]", tu.MoE,
          base[0], base[0], base[0], lora, 10, K, N)
    fails(ValueError, "gate is [80, 96] (expected [n_experts, ", tu.MoE,
          base[0][0], *base[1:], lora, 10, K, N)
    for n in 5, 0:
        fails(ValueError, "lora has %d tensors" % n, tu.MoE, *base, lora[:n], 10, K, N)
    op.lora = moved[:5]
    fails(ValueError, "lora has 5 tensors", op, x, ids, w)
    # before the first call, the adapter's parts, by name: a matrix of another
    # layer, one transposed, one of another rank, one of another type
    names = [n + m for n in ("gate", "up", "down") for m in ("'s A", "'s B")]
    for i, name in enumerate(names):
        want = list(lora[i].shape)
        wrong = lora[i].mT.contiguous()
        for t in wrong, wrong.mT, lora[i].float(), lora[i][0]:
            fails(ValueError, "%s is %s %s on cpu (expected contiguous "
                  "torch.bfloat16 %s on cpu)"
                  % (name, t.dtype, list(t.shape), want), tu.MoE, *base,
                  lora[:i] + [t] + lora[i + 1:], 10, K, N)
    wider = torch.cat((lora[0], lora[0]), 1)
    fails(ValueError, "gate's A is torch.bfloat16 [4, 10, 96] on cpu (expected "
          "contiguous torch.bfloat16 [4, 5, 96]", tu.MoE, *base,
          [wider] + lora[1:], 10, K, N)
    fails(ValueError, "top_k is 0", tu.MoE, *base, lora, 10, 0, N)
    fails(ValueError, "expert_ids", tu.MoE(*base, lora, 10, K, 2 * N, strict_ids=True),
          x, ids + 9, w)
    skipping = tu.MoE(*base, lora, 10, K, 2 * N)
    assert not skipping(x, ids + 9, w).any() and skipping.skipped == ids.numel()
    for copied in copy.copy, copy.deepcopy, pickle.dumps:
        fails(TypeError, "cannot be copied", copied, skipping)
    op = tu.MoE(*base, lora, 10, K, 2 * N, parts=2)  # whose threads stay here
    assert os.waitpid(os.fork() or os._exit(bool(fails(
        RuntimeError, "alone", op, x, ids, w) or op.__del__())), 0)[1] == 0
    y = skipping(x, ids, w)
    for _ in range(2):
        skipping.__del__()
        fails(ValueError, "NULL", skipping, x, ids, w)
    fails(ValueError, "NULL", (y * dy).sum().backward)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
