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
