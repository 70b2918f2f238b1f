# SPDX-License-Identifier: ISC
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
attn_out:0 blocks.0.attn.hook_out
resid_mid:1-2 blocks.1.hook_resid_mid,blocks.2.ln2.hook_in
resid:0,2 model.layers.1.input,model.layers.2.output
mlp:0-1 model.layers.0.mlp,mlp:1
in:up_proj:1,3 layers.1.mlp.up_proj,model.layers.3.mlp.up_proj.input
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
            (".self_attn", "attn", "hook_attn_out", d), (None, "resid_mid", "hook_resid_mid", d),
            (".mlp.gate_proj", "in:gate_proj", None, d), (".mlp.up_proj", "in:up_proj", "mlp.hook_in", d),
            (".mlp.down_proj", "in:down_proj", "mlp.hook_post", c["intermediate_size"]),
            (".mlp", "mlp", "hook_mlp_out", d), ("", "resid", "hook_resid_post", d)]:
        lens = f"blocks.{n}.{lens}" if lens else "-"
        want.append(f"{lens if module is None else f'layers.{n}{module}'}\t{short}:{n}\t{lens}\t{dim}")
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
    for at in in:up_proj:1 model.layers.1.mlp.up_proj.weight; do
        run -2 --separate-stderr hf-infer "$DEMO" --ids 1,2 --nll --sae "$ROOT/demo/sae/layers.1.mlp.up_proj@$at"
        [ "${stderr_lines[0]}" = "hf-infer: $ROOT/demo/sae/layers.1.mlp.up_proj/sae.safetensors: \"$at\" is not a hook point (expected layers.1.mlp.up_proj)" ]
    done
    # another place than that of the hook, which is its input
    run -2 hf-infer "$DEMO" --ids 1,2 --nll --sae "$ROOT/demo/sae/layers.1.mlp.up_proj@layers.1.mlp.up_proj.output"
    [[ ${lines[0]} == *"layers.1.mlp.up_proj.output\" is not a hook point (layers.3, layers.3.mlp, "* ]]
}

# dump SPEC [OPTION...]: rows of the demo model in acts/HASH, the path.
dump() {
    hf-infer "$DEMO" --file "$ROOT/demo/held-out.txt" --ctx 16 --acts "$1" --acts-meta meta.json -qf "${@:2}" |
        saev-write -q -m meta.json -o acts
}

@test "sae-train: an SAE of a dump says where its rows are from, and lut-precompute and --sae know it" {
    o=(-q --latents 64 -k 4 --batch 256 -n 3 --warmup 1)
    d=$(dump in:up_proj:1)
    sae-train -o sae "${o[@]}" "$d"
    grep -q '"hook": "layers.1.mlp.up_proj"' sae/cfg.json
    hf-infer "$DEMO" --ids 1,2,3 --logits want --sae sae@layers.1.mlp.up_proj
    hf-infer "$DEMO" --ids 1,2,3 --logits - --sae sae | cmp - want
    lut-precompute -q -m "$DEMO" -s sae -o lut
    [ "$(ls lut)" = "$(printf '%s\n' metadata.json model.layers.1.mlp.up_proj.lut.safetensors)" ]
    # all of a pass; one that says it keeps its name of the same place
    sae-train -o many "${o[@]}" --decay 0 --sae a --sae b:hook=model.layers.1.mlp.gate_proj "$d"
    grep -q '"hook": "layers.1.mlp.up_proj"' many/a/cfg.json
    grep -q '"hook": "model.layers.1.mlp.gate_proj"' many/b/cfg.json
    sae-train -o many -q --resume -n 4 "$d"
    grep -q '"hook": "layers.1.mlp.up_proj"' many/a/cfg.json
    for at in embed_tokens:resid:-1 layers.2:layers.2 layers.0.self_attn:attn:0; do
        sae-train -o sae -f "${o[@]}" "$(dump "${at#*:}")"
        grep -q "\"hook\": \"${at%%:*}\"" sae/cfg.json
    done
    # a part of a dump is of the same place; rows of several layers have none
    d=$(dump layers.1.mlp,layers.2.mlp)
    saev-read meta --layer 2 "$d" >part.json
    saev-read -q --raw --layer 2 "$d" | saev-write -q -m part.json -o part >/dev/null
    sae-train -o sae -f "${o[@]}" part/*
    grep -q '"hook": "layers.2.mlp"' sae/cfg.json
    sae-train -o sae -f "${o[@]}" "$d"
    run -1 grep hook sae/cfg.json
}

@test "sae-train: a hook that is not the dump's, or a short form, is refused with the right name" {
    d=$(dump in:up_proj:1)
    run -65 --separate-stderr sae-train -o sae --hook layers.1.mlp.down_proj "$d"
    [ "$stderr" = "sae-train: $d: is of layers.1.mlp.up_proj, not of layers.1.mlp.down_proj" ]
    run -65 --separate-stderr sae-train -o sae --hook embed_tokens "$d"
    [[ $stderr == "sae-train: $d: rows of layer 1 are not of embed_tokens "* ]]
    for o in --hook=in:up_proj:1 --layers=in:up_proj:1 --sae=a:hook=in:up_proj:1; do
        run -2 --separate-stderr sae-train -o sae $o "$d"
        [ "${stderr_lines[0]}" = 'sae-train: "in:up_proj:1" is not the name of a hook (expected layers.1.mlp.up_proj)' ]
    done
    [ ! -e sae ]
}

@test "sae-train eval: rows of another place than the SAE's are evaluated with a warning" {
    d=$(dump in:up_proj:1)
    sae-train -q -o sae --latents 64 -k 4 --batch 256 -n 3 --warmup 1 "$d"
    run -0 --separate-stderr sae-train eval -s sae "$d"
    [ -z "$stderr" ] && [[ $output == *fvu* ]]
    other=$(dump layers.1)
    run -0 --separate-stderr sae-train eval -s sae "$other"
    [ "$stderr" = "sae-train: sae: was trained elsewhere: $other: is of layers.1, not of layers.1.mlp.up_proj" ]
}

@test "hf-infer --acts -o DIR: places of several points in one pass are what each is alone" {
    one() {
        hf-infer "$DEMO" --file "$ROOT/demo/held-out.txt" -q --ctx 16 "$@"
    }
    one --acts embed_tokens,layers.3.mlp.up_proj,layers.1,in:down_proj:0,attn:2 -o dir
    [ "$(find dir -name '*.meta.json' | wc -l)" = 5 ]
    for p in embed_tokens layers.3.mlp.up_proj layers.1 layers.0.mlp.down_proj layers.2.self_attn; do
        one --acts $p -f -o x.npy --acts-meta m.json --acts-ids i.npy
        cmp x.npy dir/$p.npy
        cmp m.json dir/$p.meta.json
        cmp i.npy dir/$p.ids.npy
        cmp i.npy.json dir/$p.ids.npy.json
    done
    [ "$(find dir -type f | wc -l)" = 20 ]
    saev-write -q -m dir/layers.1.meta.json -o acts <dir/layers.1.npy >dump
    [[ $(cat dir/layers.1.ids.npy.json) == *"\"dump\": \"$(basename "$(cat dump)")\""* ]]
    # more files than most programs have open
    one --acts resid:all,mlp:all,attn:all,in:q_proj:all,in:o_proj:all,in:up_proj:all,in:down_proj:all -o all
    [ "$(find all -name '*.npy' ! -name '*.ids.npy' | wc -l)" = 28 ]
    cmp all/layers.1.npy dir/layers.1.npy
    # padding, too
    printf '{"ids":[1]}\n{"ids":[4,5,6,7]}\n' >docs
    for p in layers.0 layers.1.mlp layers.0,layers.1.mlp; do
        hf-infer "$DEMO" --jsonl --file docs --ctx 3 --pad -q --acts $p -o pad-$p
    done
    tail -c +129 pad-layers.0,layers.1.mlp/layers.1.mlp.npy | cmp - pad-layers.1.mlp
    tail -c +129 pad-layers.0,layers.1.mlp/layers.0.npy | cmp - pad-layers.0
}

@test "hf-infer --acts -o DIR: all that --places prints at once, and points that only some families tell apart" {
    py "$ROOT/test/ref/family_ref.py" make gemma2 m
    hf-infer m --ids 1,2,3 --acts attn:1,attn_out:1 -o two # before and after a norm
    for p in layers.1.self_attn blocks.1.hook_attn_out; do
        hf-infer m --ids 1,2,3 --acts $p -o $p.npy
        cmp $p.npy two/$p.npy
    done
    run ! cmp -s two/*.npy
    hf-infer m --places | tail -n +2 >places
    run -0 --separate-stderr hf-infer m --ids 1,2,3 --acts "$(cut -f 1 places | paste -sd,)" -o all
    # of each of 4 layers q_proj, k_proj and v_proj read one input, gate_proj and up_proj another
    [ "$stderr" = "hf-infer: --acts: layers.0.self_attn.q_proj and layers.0.self_attn.k_proj are one place, written once, and so are others" ]
    [ "$(find all -name '*.meta.json' | wc -l)" = $(($(wc -l <places) - 4 * 3)) ]
    s=in:q_proj:1,in:k_proj:1
    run -2 --separate-stderr hf-infer m --ids 1,2,3 --acts $s -o x.npy
    [ "${stderr_lines[0]}" = "hf-infer: --acts $s: layers.1.self_attn.q_proj and layers.1.self_attn.k_proj are one place" ]
}

@test "hf-infer --acts -o DIR: whole or not at all, and only where there are several points" {
    s=layers.1,mlp:1
    for o in "" "-o -" "-o x.npy"; do
        run -2 --separate-stderr hf-infer "$DEMO" --ids 1,2 --acts $s $o
        [ "${stderr_lines[0]}" = "hf-infer: --acts $s: places of different points need -o DIR, which gets a file of each" ]
    done
    for o in --acts-ids --acts-meta; do
        run -2 --separate-stderr hf-infer "$DEMO" --ids 1,2 --acts $s -o d $o x
        [ "${stderr_lines[0]}" = "hf-infer: --acts $s: -o DIR gets the metadata and the ids of each place: not with --acts-meta or --acts-ids" ]
    done
    printf '{"ids":[1]}\n{"ids":[1,2]}\n' >two
    run -65 hf-infer "$DEMO" --acts $s --jsonl --file two -o d

    [ -z "$(find . -name "*d.tmp*" -o -name d)" ]
    hf-infer "$DEMO" --ids 1,2 --acts $s -o d
    run -73 --separate-stderr hf-infer "$DEMO" --ids 1,2 --acts $s -o d
    [ "$stderr" = "hf-infer: d: exists already (--force replaces it)" ]
    hf-infer "$DEMO" --ids 1,2 --acts layers.0,mlp:1 -o d -f
    [ ! -e d/layers.1.npy ] && [ -e d/layers.0.npy ]
    # as before, several layers of one point are one array
    hf-infer "$DEMO" --ids 1,2 --acts layers.1,layers.3 -o x.npy
    py -c 'import numpy as np; assert np.load("x.npy").shape[:3] == (1, 2, 2)'
}
