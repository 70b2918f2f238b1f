# SPDX-License-Identifier: ISC
# What made the demo model's texts: scripts/demo makes them again, and its
# tokenizer in Python is hf-infer's.
load helpers

# bats test_tags=long
@test "demo: the scripts make the same corpus and tokenizer again" {
    "$PYTHON" -B "$ROOT/scripts/demo/corpus.py" corpus
    "$PYTHON" -c 'end = "<|endoftext|>"
import sys; own, all, seen = (open(f).read().split(end) for f in sys.argv[1:])
all, seen = ({d.strip() for d in docs} for docs in (all, seen))
assert len(own) == 32 and set(own) <= all and not set(own) & seen
' "$ROOT/demo/held-out.txt" corpus/held-out.txt corpus/train.txt
    "$PYTHON" -B "$ROOT/scripts/demo/bpe.py" corpus/train.txt model
    cmp model/tokenizer.json "$DEMO/tokenizer.json"
    for f in tokenizer_config.json chat_template.jinja; do
        cmp model/$f "$DEMO/$f"
    done
}

@test "hf-infer --encode: the demo's corpus has the ids that bpe.py gives it" {
    "$PYTHON" -B "$ROOT/scripts/demo/corpus.py" corpus
    PYTHONPATH=$ROOT/scripts/demo "$PYTHON" -B -c '
import sys, bpe
tok = bpe.Tokenizer(sys.argv[1])
print(*tok.encode(open("corpus/train.txt", newline="").read()))
' "$DEMO/tokenizer.json" >want
    [ "$(wc -w <want)" -gt 100000 ]
    hf-infer "$DEMO" --encode <corpus/train.txt >got
    cmp want got
    hf-infer "$DEMO" --decode <got >back
    cmp back corpus/train.txt
}

# bats test_tags=long
@test "demo: sae.sh makes demo/sae again, to the last byte" {
    "$PYTHON" -B "$ROOT/scripts/demo/corpus.py" corpus
    "$ROOT/scripts/demo/sae.sh" "$DEMO" corpus/train.txt sae >eval
    for f in cfg.json sae.safetensors; do
        cmp sae/$f "$ROOT/demo/sae/layers.1.mlp.up_proj/$f"
    done
    awk '$1 == "fvu" { n++; if ($2 > .05) exit 1 } END { exit n != 1 }' eval
}

@test "demo: pictures.py draws demo/pictures again, to the last pixel" {
    "$PYTHON" -B "$ROOT/scripts/demo/pictures.py" again
    "$PYTHON" - "$ROOT/demo/pictures" again <<'END'
import pathlib, sys
import numpy as np
from PIL import Image
was, now = ({p.relative_to(d): np.asarray(Image.open(p)) for p in pathlib.Path(d).glob("*/*")} for d in sys.argv[1:])
assert was.keys() == now.keys() and len(was) == 20
for p in was:
    assert was[p].shape == (96, 96, 3) and (was[p] == now[p]).all(), p
END
}
