# SPDX-License-Identifier: ISC
"""What the makers of tiny models share: sizes, tensors by name, and a decoder
with llama's names.

Sizes are small and odd, and values are such that each step of a family moves
logits: biases are not 0, weights of norms not 1, epsilons large, windows shorter
than a prompt.
"""
import numpy as np

VOCAB = 97
SIZES = dict(hidden_size=48, intermediate_size=88, num_hidden_layers=3,
             num_attention_heads=4, num_key_value_heads=2, vocab_size=VOCAB,
             max_position_embeddings=64)
EPS = 0.02 # so that a reader of another key is seen
VISION = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=1,
              num_attention_heads=2, image_size=28, patch_size=14)


class Maker:
    """Tensors by name; 'at' is what their names begin with."""

    def __init__(self, seed, at=""):
        self.rng, self.at, self.t = np.random.default_rng(seed), at, {}

    def matrix(self, name, rows, cols, bias=False, gain=1.4, conv=False):
        w = self.rng.normal(0, gain / np.sqrt(cols), (rows, cols))
        self.t[self.at + name + ".weight"] = w.T if conv else w
        if bias:
            self.t[self.at + name + ".bias"] = self.rng.normal(0, 0.5, rows)

    def gelu_mlp(self, up, down, size, width, conv=False):
        """Most of what gelu gets is around -2.3, where it is small and its two
        forms are furthest apart."""
        self.matrix(up, size, width, gain=0.7, conv=conv)
        self.t[self.at + up + ".bias"] = self.rng.normal(-2.3, 0.4, size)
        self.matrix(down, width, size, True, gain=15, conv=conv)

    def norm(self, name, shape, bias=False, offset=0):
        w = self.rng.normal(1 - offset, 0.3, shape)
        self.t[self.at + name + ".weight"] = w
        if bias:
            self.t[self.at + name + ".bias"] = self.rng.normal(0, 0.3, shape)

    def embedding(self, name, rows, cols, scale=0.3):
        self.t[self.at + name + ".weight"] = self.rng.normal(0, scale,
                                                             (rows, cols))


def decoder(seed, c, at="model.", norms=None, offset=0, norm_bias=False,
            qkv_bias=False, o_bias=False, mlp_bias=False, qk=None, o="o_proj",
            fused_qkv=False, fused_mlp=False, mlp=None, final="norm", head=None,
            head_bias=False, embedding=0.3, gain=1.4, gelu=False, mixer=None,
            experts=None, out_gate=False):
    """Tensors of a decoder with llama's names, and what differs from it.
    qk: fn(maker, name, heads, head_dim) makes q_norm and k_norm.  gelu: dim 0
    of all embeddings is large, and brings most gates to around -2.3, where
    gelu's forms are furthest apart.  mixer, experts: fn(maker, layer's name, i)
    makes what layer i has for attention, for the MLP, if it returns True."""
    h, size = c["hidden_size"], c["intermediate_size"]
    heads, kv = c["num_attention_heads"], c["num_key_value_heads"]
    d = c.get("head_dim") or h // heads
    m = Maker(seed, at)
    m.embedding("embed_tokens", VOCAB, h, embedding)
    if gelu:
        m.t[at + "embed_tokens.weight"][:, 0] = 3 * embedding
    for i in range(c["num_hidden_layers"]):
        at_layer = "layers.%d." % i
        for name in norms or ("input_layernorm", "post_attention_layernorm"):
            m.norm(at_layer + name, h, norm_bias, offset)
        attn = at_layer + "self_attn."
        if not (mixer and mixer(m, at_layer, i)):
            if fused_qkv:
                m.matrix(attn + "qkv_proj", (heads + 2 * kv) * d, h, qkv_bias)
            else:
                for x, n in zip("qkv", (heads * (1 + out_gate), kv, kv)):
                    m.matrix("%s%s_proj" % (attn, x), n * d, h, qkv_bias,
                             1.4 if x == "v" else gain)
            m.matrix(attn + o, h, heads * d, o_bias)
            if qk:
                qk(m, attn + "q", heads, d)
                qk(m, attn + "k", kv, d)
        if experts and experts(m, at_layer, i):
            continue
        at_mlp = at_layer + "mlp."
        gain_down = 15 if gelu else 1.4
        if fused_mlp:
            m.matrix(at_mlp + "gate_up_proj", 2 * size, h, mlp_bias)
            m.matrix(at_mlp + "down_proj", h, size, mlp_bias)
            continue
        up, down = mlp or ("gate_proj", "down_proj")
        if mlp and mlp_bias:
            m.gelu_mlp(at_mlp + up, at_mlp + down, size, h)
            continue
        m.matrix(at_mlp + up, size, h, mlp_bias)
        m.matrix(at_mlp + down, h, size, mlp_bias, gain_down)
        if not mlp:
            m.matrix(at_mlp + "up_proj", size, h, mlp_bias)
        if gelu:
            w = m.t[at + at_mlp + up + ".weight"]
            w *= 0.5
            w[:, 0] = -1.0
    m.norm(final, h, norm_bias, offset)
    m.at = ""
    if head:
        m.matrix(head, VOCAB, h, head_bias)
    return c, m.t


def with_sizes(model_type, arch, **more):
    c = dict(architectures=[arch], model_type=model_type, **SIZES)
    c.update(attention_dropout=0.0, initializer_range=0.02, use_cache=True,
             torch_dtype="float32")
    c.update(more)
    return {k: x for k, x in c.items() if x != "absent"}


def with_vision(seed, tensors, *ats):
    """A tower and a projector, whose names a text model's could be."""
    m = Maker(seed + 1)
    for at in ats:
        for x in ("self_attn.q_proj", "self_attn.k_proj", "mlp.fc1"):
            m.matrix("%s.layers.0.%s" % (at, x), 16, 16, True)
        m.norm(at + ".layers.0.input_layernorm", 16, True)
        m.norm(at + ".norm", 16)
    return dict(m.t, **tensors)


def outer(c, model_type, arch, **more):
    """A configuration whose text part is c."""
    c = {k: x for k, x in c.items() if k != "architectures"}
    return dict(architectures=[arch], model_type=model_type, text_config=c,
                torch_dtype=c.pop("torch_dtype"), **more)


def gemma_qk(m, name, heads, d):
    m.norm(name + "_norm", d, offset=1)
