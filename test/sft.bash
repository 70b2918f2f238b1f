# SPDX-License-Identifier: ISC
# moe-sft's files: made by test/ref/moe.py, and changed.

# data DIR [NAME=VALUE...]: base, lora, batch, hf and peft, LoRA half of all.
data() {
    "$PYTHON" "$ROOT/test/ref/moe.py" "$@"
}

# edit FILE CODE: changes t, its tensors as mkst.load() has them, and m, its
# metadata.
edit() {
    py -c 'import json, sys, numpy as np, mkst
path, code = sys.argv[1:]
t = mkst.load(path)
data = open(path, "rb").read()
m = json.loads(data[8:8 + int.from_bytes(data[:8], "little")]).get("__metadata__")
exec(code)
mkst.save(path, t, m)' "$@"
}
