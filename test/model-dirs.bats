# Model directories as people have them: what runs, and what is said of the rest.
load helpers

# write DIR NAME...: the demo model, with a tensor of ones [16] under each name.
write() {
    cp -r "$DEMO" "$1"
    py - "$@" <<'END'
import sys
import numpy as np, transformer
from tiny_models import write_safetensors
_, w = transformer.load(sys.argv[1])
write_safetensors(sys.argv[1] + "/model.safetensors", dict(w, **{x: np.ones(16) for x in sys.argv[2:]}), lambda n: "BF16")
END
}

@test "hf-infer, moe-sft tune: a tensor that the family has not in a layer is another model's; elsewhere it is a warning" {
    write buffers model.layers.0.self_attn.rotary_emb.inv_freq
    write towers visual.layers.0.norm.weight model.layers.99.self_attn.q_norm.weight
    write another model.layers.1.self_attn.sinks
    echo '{"text":"a"}' >d.jsonl
    want=$(hf-infer "$DEMO" -p "1+1=" --nll -q)
    run -0 --separate-stderr hf-infer buffers -p "1+1=" --nll
    [ "$output" = "$want" ]
    [[ $stderr != *tensor* ]]
    run -0 --separate-stderr hf-infer towers -p "1+1=" --nll
    [ "$output" = "$want" ]
    [[ $stderr == *"towers: 2 tensors are not weights of this model, ignored (the first is model.layers.99.self_attn.q_norm.weight)"* ]]
    says="another: tensor model.layers.1.self_attn.sinks is in a layer that is computed, but qwen3 has no such weight: it is another model's"
    run -65 hf-infer another -p "1+1=" --nll
    [ "$output" = "hf-infer: $says" ]
    run -65 moe-sft tune -m another -d d.jsonl -o o
    [ "$output" = "moe-sft: $says" ]
}
