# SPDX-License-Identifier: ISC
# hf-infer --chat: which template is used, and what is said of others.
load helpers

# tiny: a copy of the demo model that a test may change.
tiny() {
    cp -r "$DEMO" m
}

@test "hf-infer --chat: a chat_template of the model's own that is not run is reported" {
    tiny
    said() { # OPTION...
        run -0 --separate-stderr hf-infer m --encode -p Hi --chat "$@"
        [ "$output" = "$(hf-infer "$DEMO" --encode -p Hi --chat -q)" ]
        echo "$stderr"
    }
    warning="hf-infer: m: the model's own chat_template is not run: --template chatml is used"
    # what it renders, by hand, is <|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n, or not
    plain="{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
    config=m/tokenizer_config.json
    [ -z "$(said)" ]
    json() { "$PYTHON" -c 'import json, sys; print(json.dumps({"chat_template": eval(sys.argv[1], {"plain": sys.argv[2]})}))' "$1" "$plain" >$config; }
    json plain
    [ -z "$(said)" ]
    json '"You are kind. " + plain'
    [ "$(said)" = "$warning" ]
    [ -z "$(said --template chatml)" ]
    [ -z "$(said -q)" ]
    json '[{"name": "tool_use", "template": "x"}, {"name": "default", "template": plain}]'
    [ -z "$(said)" ]
    json '[{"name": "tool_use", "template": plain}, {"name": "default", "template": "x"}]'
    [ "$(said)" = "$warning" ]
    printf '%s\n' "${plain//\\\\/\\}" >m/chat_template.jinja # wins
    [ -z "$(said)" ]
    rm m/chat_template.jinja
    echo '{' >$config
    [[ $(said) == "hf-infer: m/tokenizer_config.json: line "* ]]
    # of many prompts once
    json '"x"'
    printf '{"prompt":"a"}\n{"prompt":"b"}\n' | hf-infer m --jsonl --chat -n 1 2>err >out
    [ "$(cat err)" = "$warning" ]
}

@test "hf-infer --chat: the template is recognised, its marks are needed" {
    tiny
    ids=$(printf 'Hi <|im_end|>' | hf-infer m --encode --chat --system S)
    want=$'<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nHi <|im_end|><|im_end|>\n<|im_start|>assistant\n'
    [ "$(hf-infer m --decode <<<"$ids"; echo .)" = "$want." ]
    # the user's <|im_end|> is text: only the template's three turns are marks
    [ "$(tr ' ' '\n' <<<"$ids" | grep -cx "$(printf '<|im_end|>' | hf-infer m --encode)")" = 2 ]
    run -65 --separate-stderr hf-infer m -p Hi --chat --template llama3
    [ "$stderr" = "hf-infer: m/tokenizer.json: has no <|begin_of_text|>, which template llama3 needs" ]
    [ -z "$output" ]
}
