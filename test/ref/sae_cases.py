# SPDX-License-Identifier: ISC
"""SAE checkpoints for test/unit/sae.c: check those that it wrote, of numbers
that both know, against what sparsify and SAELens dump; make those that it
reads."""

import io
import json
import os
import sys

import numpy as np

import mkst
import pth_make as pth
import sae_files

N, D, K = 37, 19, 4
HOOK = "layers.1.mlp.gate_proj"


def sae():
    """Numbers that float32 holds, each another one."""
    i, j = np.arange(N)[:, None], np.arange(D)[None]
    return dict(encoder_weight=i + j / 64, encoder_bias=np.arange(N) / 8 - 2,
                decoder_weight=-i - j / 128, decoder_bias=np.arange(D) / 4)


def tensors(layout, threshold=None):
    s = sae()
    t = {"b_dec": s["decoder_bias"], "W_dec": s["decoder_weight"]}
    if layout == "sparsify":
        t.update({"encoder.weight": s["encoder_weight"],
                  "encoder.bias": s["encoder_bias"]})
    else:
        t.update(W_enc=s["encoder_weight"].T, b_enc=s["encoder_bias"])
    if threshold is not None:
        t["threshold"] = np.full(N, threshold)
    return {name: a.astype("<f4") for name, a in t.items()}


# As sparsify's save_to_disk() and SAELens's save_model() dump a configuration.
def sparsify(activation, **more):
    return dict(activation=activation, expansion_factor=N // D,
                normalize_decoder=activation == "topk", num_latents=N, k=K,
                multi_topk=False, skip_connection=False, transcode=False,
                d_in=D, **more)


def saelens(metadata, **more):
    return dict(d_in=D, d_sae=N, dtype="float32", device="cpu",
                apply_b_dec_to_input=True, normalize_activations="none",
                reshape_activations="none",
                metadata={"sae_lens_version": "6.18.0",
                          "sae_lens_training_version": None, **metadata},
                **more)


WRITTEN = {
    "sparsify": (sparsify("topk"), "sparsify", None),
    "sparsify-batchtopk": (sparsify("batchtopk", hook=HOOK, threshold=0.375),
                           "sparsify", None),
    "saelens": (saelens({}, k=K, rescale_acts_by_decoder_norm=False,
                        architecture="topk"), "saelens", None),
    "saelens-batchtopk": (saelens({"hook_name": HOOK},
                                  architecture="jumprelu"), "saelens", 0.375),
}


def check(root):
    for name, (config, layout, threshold) in WRITTEN.items():
        d = os.path.join(root, name)
        file = {"sparsify": "sae.safetensors",
                "saelens": "sae_weights.safetensors"}[layout]
        assert sorted(os.listdir(d)) == ["cfg.json", file], os.listdir(d)
        with open(os.path.join(d, "cfg.json")) as f:
            text = f.read()
        assert text == json.dumps(config), (name, text)
        found, meta = mkst.load_all(os.path.join(d, file))
        assert meta == {"format": "pt"}, meta
        want = {k: mkst.entry(v) for k, v in tensors(layout, threshold).items()}
        assert found == want, (name, found.keys(), want.keys())


THRESHOLDS = np.arange(N) / 16 - 1


def save(root, name, file, config_file, config, tensors, **more):
    d = os.path.join(root, name)
    os.makedirs(d)
    tensors.update({k: np.asarray(v, "<f4") for k, v in more.items()})
    mkst.save(os.path.join(d, file), tensors)
    with open(os.path.join(d, config_file), "w") as f:
        json.dump(config, f)


def make(root):
    def lens(name, config, **more):
        save(root, name, "sae_weights.safetensors", "cfg.json", config,
             tensors("saelens"), **more)

    def learning(name, config, columns, **more):
        t = tensors("saelens" if columns else "sparsify")
        if not columns:
            t["decoder.weight"] = np.ascontiguousarray(t.pop("W_dec").T)
        save(root, name, "ae.safetensors", "config.json", config, t, **more)

    def trainer(name):
        return {"trainer": {"dict_class": name, "k": K, "activation_dim": D}}

    jump = saelens({"hook_name": HOOK}, architecture="jumprelu")
    lens("jumprelu", jump, threshold=THRESHOLDS)
    lens("no-threshold", jump)
    lens("nan", jump, threshold=np.where(np.arange(N) == 5, np.nan, 0))
    lens("short", jump, threshold=THRESHOLDS[1:])
    lens("rescaled", dict(jump, rescale_acts_by_decoder_norm=True),
         threshold=THRESHOLDS)
    lens("unsaid", saelens({}, architecture="topk", k=K), threshold=THRESHOLDS)
    learning("batchtopk", trainer("BatchTopKSAE"), False, threshold=.625, k=K)
    learning("unset", trainer("BatchTopKSAE"), False, threshold=-1, k=K)
    learning("negative", trainer("BatchTopKSAE"), False, threshold=-.5, k=K)
    learning("no-class", {"k": K}, False, threshold=.625)
    learning("jumprelu-columns", trainer("JumpReluAutoEncoder"), True,
             threshold=THRESHOLDS)
    learning("matryoshka", {"dict_class": "MatryoshkaBatchTopKSAE"}, True,
             threshold=.625, k=K, group_sizes=[7, N - 7])
    learning("no-class-columns", {"trainer": {"k": K}}, True, threshold=.625)
    for name, config in {
            "sparsify-topk": sparsify("topk", threshold=.5),
            "sparsify-negative": sparsify("batchtopk", threshold=-.5),
            "sparsify-hook": sparsify("topk", hook=[HOOK]),
            "sparsify-huge": sparsify("batchtopk", threshold=1e39)}.items():
        save(root, name, "sae.safetensors", "cfg.json", config,
             tensors("sparsify"))


def put(root, name, file, data, config=None):
    d = os.path.join(root, name)
    os.makedirs(d)
    with open(os.path.join(d, file), "wb") as f:
        f.write(data)
    if config is not None:
        with open(os.path.join(d, "config.json"), "w") as f:
            json.dump(config, f)


def make_archives(root):
    """torch.save()'s files and numpy's, sound ones and others."""
    s = sae()

    def learning(name, cls, change=lambda t: t, **how):
        t = change(sae_files.learning(cls, s, K, np.full(N, .625)))
        put(root, name, "ae.pt", sae_files.state_dict(t, **how),
            {"trainer": {"dict_class": cls, "k": K}})

    def saev(name, cls, schema=5, k=K, **more):
        put(root, name, "sae.pt", sae_files.saev_head(cls, k, (N, D), schema) +
            sae_files.state_dict(sae_files.columns(s, **more)),
            {"trainer": {"dict_class": "another program's"}})

    def gemma(name, change=lambda b: b, **more):
        t = sae_files.columns(s, threshold=sae_files.f32(THRESHOLDS))
        t.update(more)
        put(root, name, "params.npz", change(sae_files.npz(t)))

    def with_threshold(value):
        return lambda t: dict(t, threshold=sae_files.f32(value))

    def theta(value):
        return {"activation.threshold": np.float32(value)}

    learning("pt-topk", "AutoEncoderTopK")
    learning("pt-relu", "AutoEncoder")
    learning("pt-batchtopk", "BatchTopKSAE")
    learning("pt-matryoshka", "MatryoshkaBatchTopKSAE", how=pth.legacy)
    learning("pt-jumprelu", "JumpReluAutoEncoder", with_threshold(THRESHOLDS),
             method=8)
    saev("saev-topk", "TopK")
    saev("saev-relu", "Relu", 4)
    saev("saev-batchtopk", "BatchTopK", **theta(.625))
    saev("saev-below", "BatchTopK", **theta(-1))
    saev("saev-unset", "BatchTopK", 3)
    gemma("gemma")

    sae_files.write(os.path.join(root, "scope-2"), "scope-2", s, K, THRESHOLDS)
    sae_files.write(os.path.join(root, "qwen"), "qwen", s, K)

    # what is refused
    gemma("cut", lambda b: b[:-30])
    gemma("damaged", lambda b: b.replace(sae_files.f32(THRESHOLDS).tobytes(),
                                         sae_files.f32(-THRESHOLDS).tobytes()))
    gemma("npz-nan", threshold=np.where(np.arange(N) == 5, np.nan, 0).astype("<f4"))
    gemma("npz-f64", W_dec=s["decoder_weight"])
    gemma("npz-transposed", W_dec=sae_files.f32(s["decoder_weight"].T.copy()))
    gemma("npz-unknown", affine=np.zeros((D, D), "<f4"))
    gemma("npz-affine", affine_skip_connection=np.zeros((D, D), "<f4"))
    gemma("npz-twice", w_enc=sae_files.columns(s)["W_enc"], w_dec=sae_files.columns(s)["W_dec"])
    huge = io.BytesIO()
    np.lib.format.write_array_header_1_0(huge, dict(
        descr="<f4", fortran_order=False, shape=(1 << 40, 1 << 40)))
    put(root, "huge", "params.npz", pth.zip_bytes(
        [pth.Member("W_enc.npy", huge.getvalue())]))
    put(root, "mixed", "params.npz", pth.zip_bytes(
        [pth.Member("x.npy.txt", b"x"), pth.Member("z.npy", b"x")]))
    put(root, "many", "params.npz", pth.zip_bytes(
        [pth.Member("%d.npy" % i, b"") for i in range(65)]))
    put(root, "hostile", "ae.pt", pth.zip_bytes(pth.members(
        b"\x80\x02cposix\nsystem\nU\x02ls\x85R.", {})))
    put(root, "list", "ae.pt", pth.archive([1]))
    put(root, "no-tensor", "ae.pt", pth.archive({"encoder.weight": "x"}))
    put(root, "number", "ae.pt", pth.archive({1: "x"}))
    storage = sae_files.storage_of(np.zeros(4, "<f4"))
    put(root, "view", "ae.pt", pth.archive(
        {"encoder.bias": pth.Tensor(storage, 0, (1 << 40,), (0,))}))
    put(root, "overflow", "ae.pt", pth.archive(
        {"encoder.weight": pth.Tensor(storage, 0, (1 << 40, 1 << 40), (0, 0))}))
    learning("nul", "AutoEncoderTopK", lambda t: {**t, "k\0": t["k"]})
    learning("gated", "AutoEncoder", lambda t: {**t, "gate_bias": t["bias"]})
    saev("saev-2", "TopK", 2)
    saev("saev-class", "Softmax")
    saev("saev-k", "TopK", k=0)
    saev("saev-nan", "BatchTopK", **theta(np.nan))
    put(root, "saev-no-cfg", "sae.pt", b'{"schema": 5}\n' + pth.archive({}))
    put(root, "saev-json", "sae.pt", b'{"schema": 5\n' + pth.archive({}))


def make_contradictions(root):
    """Files that say two things, or one that would be another function."""
    s = sae()

    def lens(name, change, **more):
        c = saelens({}, k=K, architecture="topk", rescale_acts_by_decoder_norm=False)
        c.update(change)
        save(root, name, "sae_weights.safetensors", "cfg.json", c, tensors("saelens"), **more)

    def scope(name, change):
        d = os.path.join(root, name)
        sae_files.write(d, "scope-2", s, K, THRESHOLDS)
        with open(os.path.join(d, "config.json")) as f:
            c = json.load(f)
        c.update(change)
        with open(os.path.join(d, "config.json"), "w") as f:
            json.dump(c, f)

    def kwargs(**on):
        return {"metadata": {"model_from_pretrained_kwargs": on}}

    lens("ones", {"hook_point": HOOK, "hook_point_head_index": None, "d_out": D, **kwargs(
        center_writing_weights=False, n_ctx=128)}, scaling_factor=np.ones(N))
    lens("tuned", {}, scaling_factor=np.where(np.arange(N) == 3, 1.25, 1))
    lens("turned", {}, W_enc=s["encoder_weight"])
    lens("bos-word", {"prepend_bos": "x"})
    lens("wide", {"d_in": 32})
    lens("many-latents", {"d_sae": 38})
    lens("out", {"d_out": 7})
    lens("two-k", {"activation_fn_kwargs": {"k": 5}})
    lens("all-k", {"k": N + 1})
    lens("signed", {"activation_fn_kwargs": {"k": K, "signed": True}})
    lens("other-hook", {"hook_name": HOOK, "metadata": {"hook_name": "layers.1"}})
    lens("hook-out", {"hook_name": "blocks.1.ln2.hook_normalized",
                      "hook_name_out": "blocks.1.hook_mlp_out"})
    lens("head", {"metadata": {"hook_head_index": 0}})
    lens("centred", kwargs(center_writing_weights=True))
    lens("folded", {"model_from_pretrained_kwargs": {"fold_ln": True}})
    lens("unembed", kwargs(center_unembed=True))
    lens("nan-weight", {}, W_enc=np.where(np.arange(D * N).reshape(D, N) == 2 * N + 7, np.nan,
                                          s["encoder_weight"].T))
    lens("inf-bias", {}, b_dec=np.where(np.arange(D) == 2, np.inf, 0))
    save(root, "latents", "sae.safetensors", "cfg.json", dict(sparsify("topk"), num_latents=38),
         tensors("sparsify"))
    save(root, "zero-latents", "sae.safetensors", "cfg.json", dict(sparsify("topk"), num_latents=0),
         tensors("sparsify"))
    put(root, "k", "ae.pt", sae_files.state_dict(sae_files.learning("AutoEncoderTopK", s, K, [0])),
        {"trainer": {"dict_class": "AutoEncoderTopK", "k": 5}})
    put(root, "k-half", "ae.pt", sae_files.state_dict(dict(
        sae_files.learning("AutoEncoderTopK", s, K, [0]), k=np.float32(.5))),
        {"trainer": {"dict_class": "AutoEncoderTopK"}})
    put(root, "dict-size", "ae.pt", sae_files.state_dict(sae_files.learning("AutoEncoder", s, K, [0])),
        {"trainer": {"dict_class": "AutoEncoder", "dict_size": 38}})
    t = sae_files.learning("AutoEncoder", s, K, [0])
    t["encoder.weight"][7, 2] = -np.inf  # a transposed view
    put(root, "pt-inf", "ae.pt", sae_files.state_dict(t), {"trainer": {"dict_class": "AutoEncoder"}})
    save(root, "both", "sae.safetensors", "cfg.json", sparsify("topk"), tensors("sparsify"))
    mkst.save(os.path.join(root, "both", "sae_weights.safetensors"), tensors("saelens"))
    scope("scope-width", {"width": 38})
    scope("scope-type", {"type": "crosscoder"})
    scope("scope-out", {"hf_hook_point_out": "model.layers.1.post_feedforward_layernorm.output"})
    scope("scope-affine", {"affine_connection": True})
    # as many latents as inputs, stored by rows or by columns
    square = {n: a[:D] for n, a in s.items() if n != "decoder_bias"}
    square["decoder_bias"] = s["decoder_bias"]
    for name, say in ("square", None), ("square-qwen", "qwen-scope"), ("square-lens", "saelens"):
        sae_files.write(os.path.join(root, name), "qwen", square, K)
        with open(os.path.join(root, name, "cfg.json"), "w") as f:
            json.dump(dict(k=K, **({"library": say} if say else {})), f)
    put(root, "unpacks", "params.npz", sae_files.npz(sae_files.columns(dict(
        encoder_weight=np.zeros((1 << 13, 1 << 11)), encoder_bias=np.zeros(1 << 13),
        decoder_weight=np.zeros((1 << 13, 1 << 11)), decoder_bias=np.zeros(1 << 11)),
        threshold=np.zeros(1 << 13, "<f4")), True))


if __name__ == "__main__":
    check(sys.argv[1])
    make_contradictions(sys.argv[1])
    make(sys.argv[1])
    make_archives(sys.argv[1])
