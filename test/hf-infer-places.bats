# Places by their names: --acts, --places, --sae, sae-train.
load helpers

@test "hf-infer --acts: a hook name and its short form make the same dump, in bytes and in name" {
    while read -r short hooks; do
        hf-infer "$DEMO" --ids 1,2,3,4 --acts "$short" -o short -f --acts-meta short.json
        hf-infer "$DEMO" --ids 1,2,3,4 --acts "$hooks" -o hooks -f --acts-meta hooks.json
        cmp short hooks
        cmp short.json hooks.json
    done <<'END'
resid:3,-1 layers.3,embed_tokens
resid:-1 hook_embed
attn:0 blocks.0.hook_attn_out
mlp:0-1 model.layers.0.mlp,mlp:1
in:up_proj:1,3 layers.1.mlp.up_proj,layers.3.mlp.up_proj
in:q_proj:2 layers.2.self_attn.qkv_proj
END
}

@test "hf-infer --places: each hook, short form and TransformerLens name is of rows of so many numbers" {
    # sizes of config.json: the heads' o_proj, down_proj
    hf-infer "$DEMO" --places >places.tsv
    py - "$DEMO" <<'END'
import json, sys
c = json.load(open(sys.argv[1] + "/config.json"))
d, heads = c["hidden_size"], c["num_attention_heads"] * c["head_dim"]
want = ["hook\tshort\ttransformer_lens\tdim", f"embed_tokens\tresid:-1\thook_embed\t{d}"]
for n in range(c["num_hidden_layers"]):
    for module, short, lens, dim in [
            *((f".self_attn.{x}_proj", f"in:{x}_proj", None, d) for x in "qkv"),
            (".self_attn.o_proj", "in:o_proj", "attn.hook_z", heads),
            (".self_attn", "attn", "hook_attn_out", d),
            *((f".mlp.{x}_proj", f"in:{x}_proj", None, d) for x in ("gate", "up")),
            (".mlp.down_proj", "in:down_proj", "mlp.hook_post", c["intermediate_size"]),
            (".mlp", "mlp", "hook_mlp_out", d), ("", "resid", "hook_resid_post", d)]:
        want.append(f"layers.{n}{module}\t{short}:{n}\t{f'blocks.{n}.{lens}' if lens else '-'}\t{dim}")
assert open("places.tsv").read().split("\n") == want + [""]
END
    grep -F .1. places.tsv | while IFS=$'\t' read -r hook short lens dim; do
        hf-infer "$DEMO" --ids 1 --acts "$short" >x
        [ "$(stat -c %s x)" -eq $((dim * 4)) ]
        hf-infer "$DEMO" --ids 1 --acts "$hook" | cmp - x
        [ "$lens" = - ] || hf-infer "$DEMO" --ids 1 --acts "$lens" | cmp - x
    done
}

@test "hf-infer --sae: what is no hook is refused by its hook name" {
    for at in in:up_proj:1 model.layers.1.mlp.up_proj.weight layers.1.mlp.up_proj.input; do
        run -2 --separate-stderr hf-infer "$DEMO" --ids 1,2 --nll --sae "$ROOT/demo/sae/layers.1.mlp.up_proj@$at"
        [ "${stderr_lines[0]}" = "hf-infer: $ROOT/demo/sae/layers.1.mlp.up_proj/sae.safetensors: \"$at\" is not a hook point (expected layers.1.mlp.up_proj)" ]
    done
}
