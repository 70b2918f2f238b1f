# SPDX-License-Identifier: ISC
# hf-infer: what a hostile tokenizer.json may cost, and what stands in its place;
# a model directory that cannot be looked at.
load helpers

@test "hf-infer: a FIFO or a device as tokenizer.json is refused at once with 66" {
    cp -r "$DEMO" m
    rm m/tokenizer.json
    mkfifo m/tokenizer.json
    run -66 --separate-stderr timeout 20 hf-infer m --encode <<<a
    [ "$stderr" = "hf-infer: m/tokenizer.json: is not a regular file" ]
    run -66 timeout 20 hf-infer m -p a -n 1
    ln -sf /dev/zero m/tokenizer.json
    run -66 --separate-stderr timeout 20 hf-infer m --encode <<<a
    [ "$stderr" = "hf-infer: m/tokenizer.json: is not a regular file" ]
}

# bats test_tags=long
@test "hf-infer --encode, --decode: a text that grows 65-fold is refused with 65 and the bound" {
    mkdir m
    "$PYTHON" - <<'END'
import json
replace = {"type": "Replace", "pattern": {"String": "x"}, "content": "y" * 65}
json.dump({"normalizer": replace, "decoder": replace,
           "model": {"vocab": {"x": 0}, "merges": []}}, open("m/tokenizer.json", "w"))
open("text", "w").write("x" * (1048576 + 1))
open("ids", "w").write("0 " * (1048576 + 1))
END
    run -65 --separate-stderr hf-infer m --encode --file text
    [ -z "$output" ]
    [ "$stderr" = "hf-infer: m/tokenizer.json: normalizer: step 1 makes a text of 1048577 bytes longer than 68157504" ]
    hf-infer m --encode --file <(head -c 1048576 text)
    run -65 --separate-stderr hf-infer m --decode --file ids
    [ -z "$output" ]
    [ "$stderr" = "hf-infer: m/tokenizer.json: decoder: step 1 makes a text of 1048577 bytes longer than 68157504" ]
    [ "$(hf-infer m --decode --file <(head -c $((2 * 1048576)) ids) | wc -c)" = 68157440 ]
}

@test "hf-infer: a model directory that cannot be looked at is an I/O error, never a missing one" {
    not_sanitized "LeakSanitizer does not run under strace"
    local stats='?stat,newfstatat,?statx'
    strace -o /dev/null -e trace="$stats" -e inject="$stats:error=EIO:when=99" true 2>/dev/null ||
        skip "no strace here that fails calls"
    mkdir m
    run -74 --separate-stderr strace -o trace -P "$(realpath m)" -e trace="$stats" -e inject="$stats:error=EIO" \
        hf-infer "$(realpath m)" -p x
    grep INJECTED trace
    [ "$stderr" = "hf-infer: $(realpath m): Input/output error" ]
}

@test "hf-infer, moe-sft tune: an eos that the tokenizer adds, and a bos that the text has, too, are named once; none is between prompt and completion" {
    cp -r "$DEMO" m
    "$PYTHON" - <<'END'
import json
t = json.load(open('m/tokenizer.json'))
bos, eos = '<|im_start|>', '<|endoftext|>' # ids 1022, 1021
t['post_processor'] = {'type': 'TemplateProcessing', 'pair': [], 'single': [
    {'SpecialToken': {'id': bos, 'type_id': 0}}, {'Sequence': {'id': 'A', 'type_id': 0}}, {'SpecialToken': {'id': eos, 'type_id': 0}}],
    'special_tokens': {x: {'id': x, 'ids': [i], 'tokens': [x]} for x, i in ((bos, 1022), (eos, 1021))}}
json.dump(t, open('m/tokenizer.json', 'w'))
json.dump({'eos_token': eos}, open('m/tokenizer_config.json', 'w'))
END
    text=$(hf-infer m --encode -p "1+1=" | tr ' ' ,)
    eos='hf-infer: m/tokenizer.json: adds <|endoftext|> (eos) to the end of a text, as in transformers'
    bos='adds <|im_start|> (bos) to a text that begins with it: there are two'
    run -0 --separate-stderr hf-infer m -p "1+1=" -n 1 --json
    [[ $output == "{\"prompt_ids\":[1022,$text,1021],"* ]]
    [ "$stderr" = "$eos" ]
    for how in "-n 1" --nll "--acts resid:-1 -o x.npy -f --ctx 2"; do
        run -0 --separate-stderr hf-infer m --jsonl $how <<<$'{"text":"ab"}\n{"text":"<|im_start|>ab"}\n{"text":"<|im_start|>ab"}'
        [ "$(grep -c eos <<<"$stderr")$(grep -c "$bos" <<<"$stderr")" = 11 ]
    done
    run -0 --separate-stderr hf-infer m -p "<|im_start|>1+1=" --raw -n 1
    [ -z "$stderr" ]
    run -0 --separate-stderr hf-infer m -p "1+1=" --encode --special
    [ -z "$stderr" ]
    example() { # LINE: its ids, and what is said
        echo "$1" >d.jsonl
        run -0 --separate-stderr moe-sft tune -m m -d d.jsonl --dry-run
        awk -F '\t' 'on { printf "%s%s", n++ ? "," : "", $3 } $1 == "line" { on = 1 }' <<<"$output" | sed 's/^[^0-9]*//'
        echo "${stderr:+|$stderr}"
    }
    [ "$(example '{"prompt":"1+1=","completion":"2"}')" = "1022,$text,17,1021" ]
    [ "$(example '{"text":"1+1="}')" = "1022,$text,1021" ]
    [ "$(example '{"text":"<|im_start|>1+1="}')" = "1022,1022,$text,1021|moe-sft: m/tokenizer.json: $bos" ]
}
