# SPDX-License-Identifier: ISC
"""SAE checkpoints in the files of every library, and what each computes.

write(path, form, sae, k, threshold): the directory 'path' with one; 'sae' has
lut(5)'s names: encoder_weight [N, d] and so on, as float64; 'threshold' [N].
active(form, z, k, threshold): which latents of rows of pre-activations are.
FORMS, for each form: does it encode x - b_dec, and how are latents active?

sae_files.py write DIR N D SEED
    DIR/FORM of every form, of the same random SAE, and DIR/sae.npz
sae_files.py torch DIR
    the .pt of these once more, by torch.save() itself
sae_files.py eval ROWS.npy DIR FORM
    compares what sae-train eval printed, standard input
sae_files.py init DIR FORM SAE
    compares what sae-train --init began with and did not change
"""
import io
import json
import os
import subprocess
import sys

import numpy as np

import mkst
import pth_make as pth
import sae_ref

K = 5
# centred, kind
FORMS = {
    "sparsify": (True, "topk"),
    "saelens-topk": (True, "topk"),
    "saelens-topk-x": (False, "topk"),
    "saelens-standard": (True, "relu"),
    "saelens-jumprelu": (True, "jumprelu"),
    "saelens-jumprelu-x": (False, "jumprelu"),
    "saev-TopK": (False, "topk"),
    "saev-BatchTopK": (False, "theta"),
    "saev-Relu": (False, "relu"),
    "saev-TopK-half": (False, "topk"),
    "gemma": (False, "jumprelu"),
    "gemma-packed": (False, "jumprelu"),
    "gemma-lower": (False, "jumprelu"),
    "gemma-half": (False, "jumprelu"),
    "scope-2": (False, "jumprelu"),
    "qwen": (False, "topk"),
}
LEARNING = {
    "AutoEncoder": (True, "relu"),
    "AutoEncoderTopK": (True, "topk"),
    "BatchTopKSAE": (True, "theta"),
    "MatryoshkaBatchTopKSAE": (True, "theta"),
    "JumpReluAutoEncoder": (False, "jumprelu"),
}
for _name, _how in LEARNING.items():
    FORMS[_name + ".safetensors"] = FORMS[_name + ".pt"] = _how


def f32(a):
    return np.ascontiguousarray(a, "<f4")


def storage_of(a):
    a = np.asarray(a)
    cls = {t[3]: t[0] for t in pth.TYPES if t[0]}[a.dtype.str.replace("|", "")]
    return pth.Storage(a.reshape(-1), cls)


def torch_tensor(a):
    """As torch.save() has it: in C order, or a transposed view of that."""
    a = np.asarray(a)
    if a.ndim == 2 and a.flags.f_contiguous and not a.flags.c_contiguous:
        s = storage_of(np.ascontiguousarray(a.T))
        return pth.Tensor(s, 0, a.shape, (1, a.shape[0]))
    s = storage_of(np.ascontiguousarray(a))
    return pth.Tensor(s, 0, a.shape, [n // a.itemsize for n in a.strides])


def state_dict(tensors, how=pth.archive, **more):
    return how({name: torch_tensor(a) for name, a in tensors.items()}, **more)


# In a process of its own, where torch is not pth_make's.
TORCH_SAVE = """
import io, sys, numpy, torch
with numpy.load(io.BytesIO(sys.stdin.buffer.read())) as arrays:
    torch.save({name: torch.from_numpy(arrays[name]) for name in arrays.files}, sys.stdout.buffer)
"""


def torch_save(tensors):
    """By torch.save(), of tensors with numpy's strides."""
    return subprocess.run([sys.executable, "-c", TORCH_SAVE], input=npz(tensors),
                          stdout=subprocess.PIPE, check=True).stdout


def npz(tensors, packed=False):
    f = io.BytesIO()
    (np.savez_compressed if packed else np.savez)(f, **tensors)
    return f.getvalue()


def saev_head(cls, k, shape, schema=5):
    params = {} if cls == "Relu" else {"top_k": k}
    return json.dumps({
        "schema": schema, "cfg": dict(
            d_model=shape[1], d_sae=shape[0], activation={"cls": cls, "params": dict(
                params, sparsity={"cls": "NoSparsity", "params": {}})},
            reinit_blend=0.8, normalize_w_dec=True),
        "commit": "unknown", "lib": "0.3.0"}).encode() + b"\n"


def columns(sae, **more):
    """Under the names that most have, W_enc [d, N]."""
    t = dict(W_enc=f32(sae["encoder_weight"].T), b_enc=f32(sae["encoder_bias"]),
             W_dec=f32(sae["decoder_weight"]), b_dec=f32(sae["decoder_bias"]))
    return dict(t, **more)


def learning(name, sae, k, threshold):
    """dictionary_learning's state dict; its encoder.weight is, as made by
    AutoEncoder, a transposed view."""
    if name == "JumpReluAutoEncoder":
        return columns(sae, threshold=f32(threshold))
    n = len(sae["encoder_weight"])
    counts = dict(k=np.int32(k), threshold=np.float32(threshold[0]))
    if name == "MatryoshkaBatchTopKSAE":
        return columns(sae, group_sizes=np.array([n - 3, 3]), **counts)
    t = {"encoder.weight": np.asfortranarray(sae["encoder_weight"], "<f4"),
         "encoder.bias": f32(sae["encoder_bias"]),
         "decoder.weight": f32(sae["decoder_weight"].T)}
    if name == "AutoEncoder":
        return dict(t, bias=f32(sae["decoder_bias"]))
    return dict(t, b_dec=f32(sae["decoder_bias"]), **counts)


def saelens_config(form, n, d, k):
    kind = form.split("-")[1]
    c = dict(d_in=d, d_sae=n, dtype="float32", device="cpu",
             apply_b_dec_to_input=not form.endswith("-x"),
             normalize_activations="none", reshape_activations="none",
             metadata={"sae_lens_version": "6.18.0"}, architecture=kind)
    if kind == "topk":
        c.update(k=k, rescale_acts_by_decoder_norm=False)
    return c


def files(form, sae, k, threshold, save=state_dict):
    """The files of a directory: bytes, a dict of tensors for safetensors, or a
    configuration."""
    n, d = sae["encoder_weight"].shape
    if form == "sparsify":
        return {"sae.safetensors": {
                    "encoder.weight": f32(sae["encoder_weight"]),
                    "encoder.bias": f32(sae["encoder_bias"]),
                    "W_dec": f32(sae["decoder_weight"]),
                    "b_dec": f32(sae["decoder_bias"])},
                "cfg.json": dict(activation="topk", num_latents=n, k=k, d_in=d)}
    if form.startswith("saelens-"):
        more = dict(threshold=f32(threshold)) if "jumprelu" in form else {}
        return {"sae_weights.safetensors": columns(sae, **more),
                "cfg.json": saelens_config(form, n, d, k)}
    if form.startswith("saev-"):
        cls, t = form.split("-")[1], columns(sae)
        if cls == "BatchTopK":
            t["activation.threshold"] = np.float32(threshold[0])
        # W_dec.T.clone(), whose strides are the transpose's
        t["W_enc"] = np.asfortranarray(t["W_enc"])
        if form.endswith("-half"):
            t = {name: a.astype("<f2") for name, a in t.items()}
        return {"sae.pt": saev_head(cls, k, (n, d)) + save(t),
                "config.json": {"train_data": {}, "sae": {}}}
    if form.startswith("gemma"):
        t = columns(sae, threshold=f32(threshold))
        if form == "gemma-half":
            t = {name: a.astype("<f2") for name, a in t.items()}
        if form == "gemma-lower":
            t = {name.replace("W_", "w_"): a for name, a in t.items()}
        return {"params.npz": npz(t, form == "gemma-packed")}
    if form == "scope-2":  # Gemma Scope 2
        t = columns(sae, threshold=f32(threshold))
        return {"params.safetensors": {n.replace("W_", "w_"): a for n, a in t.items()},
                "config.json": dict(hf_hook_point_in="model.layers.1.output", width=n, l0=20,
                                    hf_hook_point_out="model.layers.1.output", architecture="jump_relu",
                                    affine_connection=False, type="sae", model_name="m")}
    if form == "qwen":  # Qwen Scope, and the k that its page has
        t = columns(sae)
        t.update({n: np.ascontiguousarray(t[n].T) for n in ("W_enc", "W_dec")})
        return {"layer1.sae.pt": save(t), "cfg.json": dict(k=k)}
    name, end = form.split(".")
    t = learning(name, sae, k, threshold)
    config = {"trainer": dict(dict_class=name, activation_dim=d, dict_size=n,
                              lm_name="m", **({"k": k} if "k" in t else {})),
              "buffer": {"d_submodule": d}}
    if end == "pt":
        return {"ae.pt": save(t), "config.json": config}
    return {"ae.safetensors": t,
            "config.json": config}


def write(path, form, sae, k=K, threshold=None, save=state_dict):
    os.makedirs(path, exist_ok=True)
    for name, v in files(form, sae, k, threshold, save).items():
        file = os.path.join(path, name)
        if name.endswith(".json"):
            with open(file, "w") as f:
                json.dump(v, f)
        elif isinstance(v, dict):
            mkst.save(file, v)  # in C order
        else:
            with open(file, "wb") as f:
                f.write(v)


def active(form, z, k, threshold):
    kind = FORMS[form][1]
    if kind == "topk":
        place = np.argsort(np.argsort(-z, axis=1, kind="stable"), axis=1)
        return (z > 0) & (place < k)
    return z > {"relu": 0, "theta": max(threshold[0], 0),
                "jumprelu": np.maximum(threshold, 0)}[kind]


def edge(form, z, k, threshold):
    """How near is a pre-activation to becoming active, or not?"""
    kind = FORMS[form][1]
    if kind == "topk":
        z = -np.sort(-z, axis=1)
        return np.abs(z[:, k - 1] - z[:, k]).min()
    return np.abs(z - {"relu": 0, "theta": threshold[0],
                       "jumprelu": threshold}[kind]).min()


def random_sae(n, d, seed):
    """Numbers that float16 holds."""
    rng = np.random.default_rng(seed)
    w = rng.standard_normal((n, d))
    w /= np.linalg.norm(w, axis=1, keepdims=True)
    sae = dict(encoder_weight=w + 0.1 * rng.standard_normal((n, d)),
               encoder_bias=0.3 * rng.standard_normal(n),
               decoder_weight=w * rng.uniform(.5, 2, (n, 1)),
               decoder_bias=0.5 * rng.standard_normal(d))
    threshold = np.concatenate([[0.75], rng.uniform(-.2, 2, n - 1)])
    half = {name: a.astype("<f2").astype(float) for name, a in sae.items()}
    return half, threshold.astype("<f2").astype(float)


def check_eval(rows, root, form):
    saved = np.load(os.path.join(root, "sae.npz"))
    s, threshold = dict(saved), saved["threshold"]
    x = np.load(rows).astype(float)
    z = (x - s["decoder_bias"] * FORMS[form][0]) @ s["encoder_weight"].T + s["encoder_bias"]
    assert edge(form, z, K, threshold) > 1e-6, edge(form, z, K, threshold)
    f = np.where(active(form, z, K, threshold), z, 0)
    sae_ref.compare_eval(x, f @ s["decoder_weight"] + s["decoder_bias"], f)


def check_init(root, form, path):
    s = dict(np.load(os.path.join(root, "sae.npz")))
    found = {name: v.astype(float) for name, v in mkst.read(os.path.join(path, "sae.safetensors"))[0].items()}
    bias = s["encoder_bias"]
    if not FORMS[form][0]:
        bias = bias + s["encoder_weight"] @ s["decoder_bias"]
    want = {"encoder.weight": s["encoder_weight"], "encoder.bias": bias,
            "W_dec": s["decoder_weight"], "b_dec": s["decoder_bias"]}
    for name, a in want.items():
        assert np.abs(found[name] - a).max() < 1e-5, (form, name, np.abs(found[name] - a).max())


if __name__ == "__main__":
    if sys.argv[1] == "torch":
        saved = np.load(os.path.join(sys.argv[2], "sae.npz"))
        for form in FORMS:
            if form.endswith(".pt") or form.startswith("saev-"):
                write(os.path.join(sys.argv[2], form), form, dict(saved), K, saved["threshold"], torch_save)
    elif sys.argv[1] == "init":
        check_init(*sys.argv[2:])
    elif sys.argv[1] == "write":
        root, (n, d, seed) = sys.argv[2], map(int, sys.argv[3:])
        sae, threshold = random_sae(n, d, seed)
        for form in FORMS:
            write(os.path.join(root, form), form, sae, K, threshold)
        np.savez(os.path.join(root, "sae.npz"), threshold=threshold, **sae)
        np.save(os.path.join(root, "rows.npy"), f32(
            np.random.default_rng(seed + 1).standard_normal((200, d)) + sae["decoder_bias"]))
    else:
        check_eval(*sys.argv[2:])
