# SPDX-License-Identifier: ISC
# hf-infer: a model's vocabulary is larger than its tokenizer's, as Qwen's are.
# The ids behind have logits and no text.
load helpers

# m: whole, the demo model without an end of text, with the first 900 of its
# tokenizer's 1024 tokens.
small_tokenizer() {
    endless
    cp -r m whole
    "$PYTHON" - <<'END'
import json
t = json.load(open("m/tokenizer.json"))
vocab = {k: i for k, i in t["model"]["vocab"].items() if i < 900}
assert sorted(vocab.values()) == list(range(900))
t["model"]["merges"] = [p for p in t["model"]["merges"] if "".join(p) in vocab]
t["model"]["vocab"] = vocab
t["added_tokens"] = []
json.dump(t, open("m/tokenizer.json", "w"))
END
}

@test "hf-infer --top, --nll: ids that the tokenizer lacks have numbers and no text" {
    small_tokenizer
    ids=300,905,0,1023,790
    hf-infer whole --ids $ids --top 1024 >whole.tsv
    hf-infer m --ids $ids --top 1024 >m.tsv
    hf-infer m --ids $ids --top 1024 --json >m.json
    hf-infer whole --ids $ids --nll -q >whole.nll
    hf-infer m --ids $ids --nll -q >m.nll
    "$PYTHON" - <<'END'
import json
def cut(name, column):
    for line in open(name):
        r = line.rstrip("\n").split("\t")
        if r[column].isdigit() and int(r[column]) >= 900:
            assert name[0] == "m" and r[-1] == "" or name[0] == "w" and r[-1], r
            r[-1] = ""
        yield r
for kind, column, n in ("tsv", 0, 3 + 1024), ("nll", 1, 1 + 4):
    m = list(cut("m." + kind, column))
    assert m == list(cut("whole." + kind, column)) and len(m) == n, kind
top = json.load(open("m.json"))["top"]
rows = [l.rstrip("\n").split("\t") for l in open("m.tsv")][3:]
assert [t["id"] for t in top] == [int(r[0]) for r in rows]
assert all(("token" in t) == (t["id"] < 900) for t in top)
END
}

@test "hf-infer: ids that the tokenizer lacks are drawn, and leave no text" {
    small_tokenizer
    # At temperature 9 all ids are about as likely, those from 900 on 12 % of
    # 200: fewer than 4 are one draw of ten million.
    draw="-n 200 --temperature 9 --seed 3 --repetition-penalty 1.2"
    # shellcheck disable=SC2086
    {
        hf-infer m --ids 300,905,790 $draw --ids-out >ids
        hf-infer whole --ids 300,905,790 $draw --ids-out | cmp - ids
        hf-infer m --ids 300,905,790 $draw >text
        hf-infer m --ids 300,905,790 $draw --json >json
        hf-infer m --jsonl $draw <<<'{"ids":[300,905,790]}' >line
    }
    "$PYTHON" - <<'END'
import json, subprocess
ids = [int(i) for i in open("ids").read().split()]
known = [i for i in ids if i < 900]
assert len(ids) == 200 and 3 < len(known) < 197, ids
text = subprocess.check_output(["hf-infer", "whole", "--decode"], input=" ".join(map(str, known)).encode())
assert open("text", "rb").read() == text
for file in "json", "line":
    r = json.load(open(file, encoding="utf-8"))
    assert r["ids"] == ids and r["text"] == text.decode("utf-8", "replace"), file
END
}

@test "hf-infer --decode: ids that the tokenizer lacks are refused" {
    small_tokenizer
    hf-infer m --decode --ids 300,899
    run -65 --separate-stderr hf-infer m --decode --ids 300,900
    [ -z "$output" ]
    [ "$stderr" = "hf-infer: --ids: token id 900 is not in the vocabulary (0 to 899)" ]
}
