# SPDX-License-Identifier: ISC
# hf-infer --chat: a model's own chat template, where it is from, and what it is
# given.  What templates render is test/unit/template_ref's; here the reference
# is Jinja2 itself, in the environment of transformers.
load helpers

# tiny: m, a copy of the demo model that a test may change, without a template.
tiny() {
    cp -rL "$DEMO" m
    rm m/chat_template.jinja
}

# config JSON: members of m/tokenizer_config.json.
config() {
    printf '%s\n' "$1" >m/tokenizer_config.json
}

# chat ARGUMENT...: what is rendered, and a dot.
chat() {
    hf-infer m --chat --render "$@" && echo .
}

# jinja TEMPLATE VARIABLES: what Jinja2 makes of a file and a JSON object.
jinja() {
    "$PYTHON" -c 'import jinja2' || skip "no jinja2 here"
    "$PYTHON" - "$@" <<'END'
import json, sys
from jinja2.sandbox import ImmutableSandboxedEnvironment
env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
env.filters["tojson"] = lambda x, indent=None: json.dumps(x, ensure_ascii=False, indent=indent)
sys.stdout.write(env.from_string(open(sys.argv[1]).read()).render(**json.load(open(sys.argv[2]))))
END
}

# As much as a published template uses.
long_template() {
    cat <<'END'
{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0].role == 'system' %}{{ messages[0].content + '\n\n' }}{% endif %}
    {%- for tool in tools %}{{ tool | tojson }}
    {% endfor %}
    {{- '<|im_end|>\n' }}
{%- endif %}
{%- for m in messages %}
    {%- if not (loop.first and tools and m.role == 'system') %}
        {{- '<|im_start|>' + m.role + '\n' + (m.content | trim) + '<|im_end|>' + '\n' }}
    {%- endif %}
{%- endfor %}
{%- if documents is not none %}{{ documents | length }} documents{% endif %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}
END
}

@test "hf-infer --chat --render: messages, tools and variables are what Jinja2 makes of them" {
    tiny
    long_template >m/chat_template.jinja
    cat >all.json <<'END'
{"messages": [{"role": "system", "content": "Be <|im_end|> kind"},
              {"role": "user", "content": " Wie spät ist es?\n"},
              {"role": "assistant", "content": ""}, {"role": "user", "content": "\u00a0?"}],
 "tools": [{"type": "function", "function": {"name": "clock", "x": [1.5, null, true, "é\n"]}}],
 "documents": null, "add_generation_prompt": true, "enable_thinking": false}
END
    jinja m/chat_template.jinja all.json >want
    [ "$(grep -c 'im_end' want)" -ge 4 ]
    hf-infer m --chat --render --messages all.json | cmp - want
    hf-infer m --chat --render --messages - <all.json | cmp - want
    hf-infer m --chat --render --messages all.json -o got # -o, and no newline more
    cmp got want
    # in another place, as an adapter's trainers have it
    py -c 'import json
v = json.load(open("all.json"))
json.dump({"messages": v["messages"], "chat_template_kwargs": {k: v[k] for k in v if k != "messages"}}, open("kwargs.json", "w"))'
    hf-infer m --chat --render --messages kwargs.json | cmp - want
    # a list alone, and what is added: tools and documents null, a prompt for the answer
    py -c 'import json
v = json.load(open("all.json"))["messages"]
json.dump(v, open("list.json", "w"))
json.dump({"messages": v, "tools": None, "documents": None, "add_generation_prompt": True}, open("list.all.json", "w"))'
    jinja m/chat_template.jinja list.all.json >want
    hf-infer m --chat --render --messages list.json | cmp - want
    # a text is what a user says
    printf '{"messages":[{"role":"system","content":"S"},{"role":"user","content":"a\\n"}],"documents":null,"add_generation_prompt":true}' >text.json
    jinja m/chat_template.jinja text.json >want
    printf 'a\n' | hf-infer m --chat --render --system S | cmp - want
    printf '[{"role":"user","content":"a\\n"}]' >user.json
    hf-infer m --chat --render --system S --messages user.json | cmp - want
}

@test "hf-infer --chat: the template is the file's, the list's default, a named one, or refused" {
    tiny
    [ ! -e m/chat_template.jinja ]
    none='hf-infer: m: has no chat template (--template FILE gives one, in the language of chat_template.jinja)'
    for how in '--render' '--encode' '-n 1' '--nll'; do
        # shellcheck disable=SC2086 # options
        run -65 --separate-stderr hf-infer m --chat $how -p Hi
        [ "$stderr" = "$none" ]
        [ -z "$output" ]
    done
    echo '{{ messages[0].content }} of the file' >t.jinja
    [ "$(chat -p Hi --template t.jinja)" = "Hi of the file." ]
    [ "$(chat -p Hi --template "$PWD/t.jinja")" = "Hi of the file." ]
    cp t.jinja plain
    [ "$(chat -p Hi --template plain)" = "Hi of the file." ]
    run -66 chat -p Hi --template no.jinja
    run -66 chat -p Hi --template ./no

    config '{"chat_template": "{{ messages[0].content }} of the string"}'
    [ "$(chat -p Hi)" = "Hi of the string." ]
    [ "$(chat -p Hi --template default)" = "Hi of the string." ]
    run -65 --separate-stderr chat -p Hi --template rag
    [ "$stderr" = 'hf-infer: m: has no chat template "rag"' ]

    mkfifo m/chat_template.jinja # what is to wait for is not the model's
    run -66 --separate-stderr timeout 20 hf-infer m --chat --render -p Hi
    [ "$stderr" = 'hf-infer: m/chat_template.jinja: is not a regular file' ]
    rm m/chat_template.jinja

    config '{"chat_template": [{"name": "rag", "template": "rag"}, {"name": "tool_use", "template": "{{ tools | length }} tools"},
                               {"name": "default", "template": "{{ messages[0].content }} of the list"}]}'
    echo '{"messages": [{"content": "Hi"}], "tools": []}' >tools.json
    [ "$(chat -p Hi)" = "Hi of the list." ]
    [ "$(chat -p Hi --template rag)" = "rag." ]
    [ "$(chat --messages tools.json)" = "0 tools." ]
    [ "$(chat --messages tools.json -q --template default)" = "Hi of the list." ]
    [ "$(chat --messages <(sed 's/\[]/null/' tools.json))" = "Hi of the list." ]
    run -65 --separate-stderr chat -p Hi --template nope
    [ "$stderr" = 'hf-infer: m: has no chat template "nope" (it has rag, tool_use, default)' ]
    config '{"chat_template": [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "{% frob %}"}]}'
    [ "$(chat -q -p Hi)" = "plain." ] # what is wrong is not needed
    run -65 --separate-stderr chat -q --messages tools.json
    [ "$stderr" = 'hf-infer: m/tokenizer_config.json: chat_template tool_use: line 1: {% frob %} is not supported' ]
    config '{"chat_template": [{"name": "rag", "template": "rag"}]}'
    run -65 --separate-stderr chat -p Hi
    [ "$stderr" = 'hf-infer: m: has no default chat template (--template NAME: rag)' ]

    config '{"chat_template": "tokenizer"}'
    [ "$(chat -p Hi)" = "tokenizer." ]
    config '{"chat_template": [{"name": "rag", "template": "rag"}]}'
    mkdir m/additional_chat_templates
    echo 'more' >m/additional_chat_templates/more.jinja
    [ "$(chat -p Hi --template more)" = "more." ]
    [ "$(chat -p Hi --template rag)" = "rag." ]
    echo '{{ messages[0].content }} of the model' >m/chat_template.jinja # wins over all of the list
    [ "$(chat -p Hi)" = "Hi of the model." ]
    [ "$(chat -p Hi --template more)" = "more." ]
    run -65 --separate-stderr chat -p Hi --template rag
    rm -r m/chat_template.jinja m/additional_chat_templates

    for bad in '{"chat_template": 3}:chat_template is 3 (expected a string, or an array of objects)' \
        '{"chat_template": [{"template": "x"}]}:chat_template[0].name is missing (expected a string)' \
        '{"chat_template": [{"name": "default"}]}:chat_template[0].template is missing (expected a string)' \
        '{"chat_template": "a\n{% frob %}"}:chat_template: line 2: {% frob %} is not supported'; do
        config "${bad%%\}:*}}"
        run -65 --separate-stderr chat -p Hi
        [ "$stderr" = "hf-infer: m/tokenizer_config.json: ${bad#*\}:}" ]
    done
    config '{'
    run -65 --separate-stderr chat -p Hi --template t.jinja
    [[ $stderr == "hf-infer: m/tokenizer_config.json: line "* ]]
}

@test "hf-infer --chat: special tokens are the model's, and the request's win" {
    tiny
    cat >m/chat_template.jinja <<'END'
{{ bos_token }}|{{ eos_token }}|{{ pad_token }}|{{ unk_token is defined }}|{{ add_bos_token is defined }}
END
    echo '{"bos_token": "map", "pad_token": {"content": "<p>"}, "eos_token": "map"}' >m/special_tokens_map.json
    config '{"bos_token": {"content": "<b>", "lstrip": false}, "eos_token": "<e>", "unk_token": null, "add_bos_token": true}'
    [ "$(chat -p x)" = "<b>|<e>|<p>|False|False." ]
    rm m/special_tokens_map.json
    [ "$(chat -p x)" = "<b>|<e>||False|False." ]
    echo '{"messages": [], "eos_token": "mine", "bos_token": null, "unk_token": 0}' >v.json
    [ "$(chat --messages v.json)" = "None|mine||True|False." ]
    [ "$(chat --messages v.json --template-var eos_token=no --template-var pad_token=p)" = "None|mine|p|True|False." ]
    config '{"extra_special_tokens": {"pad_token": "<x>", "other": 1}, "eos_token": "<e>"}'
    [ "$(chat -p x)" = "|<e>|<x>|False|False." ]
    rm m/tokenizer_config.json
    [ "$(chat -p x)" = "|||False|False." ]
}

@test "hf-infer --template-var: JSON or text, and the request's variables win" {
    tiny
    cat >m/chat_template.jinja <<'END'
{{ [a, b, c] | tojson }} {{ add_generation_prompt }}
END
    vars() { chat "$@" 2>/dev/null; }
    [ "$(vars -p x --template-var a=false --template-var b=3 --template-var 'c=[1, "é"]')" = '[false, 3, [1, "é"]] True.' ]
    [ "$(vars -p x --template-var a=False --template-var b=x=y --template-var 'c="3"')" = '["False", "x=y", "3"] True.' ]
    [ "$(vars -p x --template-var a= --template-var 'b={' --template-var c=null)" = '["", "{", null] True.' ]
    [ "$(vars -p x --template-var a=1 --template-var b=2 --template-var c=3 --template-var add_generation_prompt=false)" = '[1, 2, 3] False.' ]
    echo '{"messages": [], "a": 1, "b": 2, "c": 3, "add_generation_prompt": false}' >v.json
    [ "$(vars --messages v.json --template-var a=7)" = '[1, 2, 3] False.' ]
    bad() { # MESSAGE ARGUMENT...
        run -2 --separate-stderr hf-infer m --chat -p x --render "${@:2}"
        [ "${stderr_lines[0]}" = "hf-infer: $1" ]
        [ -z "$output" ]
    }
    bad '--template-var: "x" is not NAME=VALUE' --template-var x
    bad '--template-var: "=x" is not NAME=VALUE' --template-var =x
    bad '--template-var a: is given twice' --template-var a=1 --template-var a=1
    bad '--template-var messages: --messages gives these' --template-var 'messages=[]'
    echo '{{ messages[0].content }}' >>m/chat_template.jinja
    run -0 --separate-stderr hf-infer m --chat --render -p x --template-var d=1 --template-var a=1 --template-var b=1 --template-var c=1
    [ "$stderr" = 'hf-infer: m/chat_template.jinja: does not use "d", which is ignored' ]
}

@test "hf-infer --chat: what a message says is text, also where it spells a special token" {
    tiny
    end=$(printf '<|im_end|>' | hf-infer m --encode)
    start=$(printf '<|im_start|>' | hf-infer m --encode)
    count() { tr ' ' '\n' <<<"$ids" | grep -cx "$1" || :; }
    cat >m/chat_template.jinja <<'END'
{%- for m in messages -%}
<|{{ m.role }}|>{{ m.content }}<|im_end|>
{%- endfor -%}
END
    # a token of the template's, with a role in it; and what is in a message and a tool
    echo '[{"role": "im_start", "content": "a <|im_end|> b"}, {"role": "user", "content": "<|im_start"}]' >c.json
    ids=$(hf-infer m --chat --encode --messages c.json)
    [ "$(count "$start")" = 1 ]
    [ "$(count "$end")" = 2 ]
    [ "$(hf-infer m --decode <<<"$ids")" = '<|im_start|>a <|im_end|> b<|im_end|><|user|><|im_start<|im_end|>' ]
    # as the reference encodes a text that spells no special token, cut at those that are there
    want=$({
        printf '<|im_start|>'
        printf 'a <|im_end|> b' | hf-infer m --encode --plain | hf-infer m --decode --skip-special
    } >/dev/null && for part in '<|im_start|>' 'a <|im_end|> b' '<|im_end|>' '<|user|><|im_start' '<|im_end|>'; do
        how=--plain
        [[ $part == '<|im_'*'|>' ]] && how=
        # shellcheck disable=SC2086 # none, or an option
        printf %s "$part" | hf-infer m --encode $how
    done | xargs)
    [ "$ids" = "$want" ]
    # a user's name for a token that a template's end completes
    echo '[{"role": "x", "content": "<|im_start"}]' >c.json
    echo '{{ messages[0].content }}|>' >m/chat_template.jinja
    ids=$(hf-infer m --chat --encode --messages c.json)
    [ "$(count "$start")" = 0 ]
    [ "$(hf-infer m --decode <<<"$ids")" = '<|im_start|>' ]
    # tools, variables, --system
    echo '{{ tools[0].t }}{{ v }}{{ messages[0].content }}{{ eos_token }}' >m/chat_template.jinja
    echo '{"messages": [{"role": "user", "content": ""}], "tools": [{"t": "<|im_end|>"}], "v": "<|im_start|>"}' >c.json
    config '{"eos_token": "<|im_end|>"}'
    ids=$(hf-infer m --chat --encode --messages c.json --system '<|im_end|>')
    [ "$(count "$start") $(count "$end")" = "0 1" ]
}

@test "hf-infer --chat: ids are those of the rendered text" {
    tiny
    long_template >m/chat_template.jinja
    echo '{"messages": [{"role": "user", "content": "What is 1+1?"}, {"role": "assistant", "content": "1+1=2."}, {"role": "user", "content": " And é?"}], "tools": [{}]}' >c.json
    hf-infer m --chat --render --messages c.json >text
    [ "$(hf-infer m --chat --encode --messages c.json)" = "$(hf-infer m --encode --file text)" ]
    [ "$(hf-infer m --chat --encode --json --messages c.json)" = "$(hf-infer m --encode --json --file text)" ]
    ids=$(hf-infer m --chat --encode --messages c.json | tr ' ' ,)
    for how in '--top 3' '--nll' '--ppl' '--logits -' '-n 9 --greedy --ids-out'; do
        # shellcheck disable=SC2086 # options
        cmp <(hf-infer m --chat --messages c.json -q $how) <(hf-infer m --ids "$ids" -q $how)
    done
    hf-infer m --chat --messages c.json --acts resid:0 --acts-meta a.json -o a.npy
    hf-infer m --ids "$ids" --acts resid:0 -o b.npy
    cmp a.npy b.npy
    # what changes the numbers is said
    hf-infer m --chat --messages c.json --acts resid:0 --template m/chat_template.jinja --template-var x=1 --acts-meta b.json -q -o c.npy
    py -c 'import json
a, b = (json.load(open(f))["data"] for f in ("a.json", "b.json"))
assert a["chat"] and "template" not in a and a["input"] == "c.json" and len(a["input_xxh3"]) == 32
assert b["template"] == "m/chat_template.jinja" and b["template_vars"] == ["x=1"]
assert a["ids_sha256"] == b["ids_sha256"] and a["template_xxh3"] == b["template_xxh3"]'
    # and other templates make another dump, also where no ids are known yet
    dump() { hf-infer m --chat --messages c.json --acts resid:0 --acts-meta "$1" -f >/dev/null; }
    dump a.json
    echo >>m/chat_template.jinja
    dump b.json
    [ "$(cat a.json | sed 's/"template_xxh3": "[0-9a-f]*"/X/')" = "$(cat b.json | sed 's/"template_xxh3": "[0-9a-f]*"/X/')" ]
    run -1 cmp -s a.json b.json
}

# qwen3 N: its published template's texts, and of each Nth the ids.
qwen3() {
    local n=0 t=$SHARED/templates
    [ -e "$SHARED/qwen3-tokenizer/tokenizer.json.gz" ] && [ -e "$t/Qwen-Qwen3-0.6B.jinja" ] || skip "no templates in TEST_DATA, $SHARED"
    tiny
    gzip -dc "$SHARED/qwen3-tokenizer/tokenizer.json.gz" >m/tokenizer.json
    cp "$t/Qwen-Qwen3-0.6B.jinja" m/chat_template.jinja
    config '{"eos_token": "<|im_end|>", "bos_token": null}'
    py - "$t" <<'END'
import json, sys
from pathlib import Path
t = Path(sys.argv[1])
says = json.loads((t / "conversations.json").read_text())
n = 0
for line in open(t / "Qwen-Qwen3-0.6B.cases.jsonl"):
    case = json.loads(line)
    if "expected" in case:
        json.dump(says[case["case"]], open(f"{n}.json", "w"))
        Path(f"{n}.want").write_text(case["expected"])
        n += 1
assert n > 5
END
    for want in *.want; do
        hf-infer m --chat --render -q --messages "${want%want}json" | cmp - "$want"
        [ $((n++ % $1)) = 0 ] || continue
        hf-infer m --encode --file "$want" >want.ids # as in tokenizers: test/unit/tok
        hf-infer m --chat --encode -q --messages "${want%want}json" | cmp - want.ids
    done
}

@test "hf-infer --chat: Qwen3's template and tokenizer give the texts and ids of the reference" {
    qwen3 4
}

# bats test_tags=long
@test "hf-infer --chat: Qwen3's template and tokenizer give all ids of the reference" {
    qwen3 1
}

@test "hf-infer --jsonl --chat: a line's messages are what they are alone" {
    cat >lines <<'END'
{"id": 1, "messages": [{"role": "user", "content": "What is 2+2?"}], "max_tokens": 9}
{"id": 2, "prompt": "What is 1+1?", "max_tokens": 12}
{"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "Who are you?"}], "stop": "a", "max_tokens": 7, "source": "web", "more": null}
{"messages": [{"role": "user", "content": "Hi"}], "source": "book", "max_tokens": 4}
END
    alone() { hf-infer "$DEMO" --chat --greedy --json -q "$@" | py -c 'import json, sys; print(json.load(sys.stdin)["ids"])'; }
    m() { printf '[%s]' "$(printf ',{"role": "%s", "content": "%s"}' "$@" | cut -c 2-)"; }
    {
        alone -n 9 --messages <(m user 'What is 2+2?')
        alone -n 12 -p 'What is 1+1?'
        alone -n 7 --stop a --messages <(m system S user 'Who are you?')
        alone -n 4 -p Hi
    } >want
    for batch in 1 3; do
        hf-infer "$DEMO" --jsonl --chat --greedy --batch $batch --file lines 2>err |
            py -c 'import json, sys; [print(json.loads(s)["ids"]) for s in sys.stdin]' | cmp - want
        [ "$(cat err)" = "hf-infer: $DEMO/chat_template.jinja: does not use \"source\", which is ignored" ]
    done
    hf-infer "$DEMO" --chat --nll --jsonl --file lines -q | cut -d, -f2 | sed 's/.*://' >n
    py -c 'import json; [print(json.dumps({"messages": v["messages"]}) if "messages" in v else json.dumps([{"role": "user", "content": v["prompt"]}])) for v in map(json.loads, open("lines"))]' >each
    while read -r line; do hf-infer "$DEMO" --chat --encode --messages <(echo "$line") | wc -w; done <each | awk '{ print $1 - 1 }' >n.want
    head -n 2 n >n.2 && sed -n 1,2p n.want | cmp - n.2
    hf-infer "$DEMO" --chat --acts resid:0 --jsonl --file lines -q | cmp - <(while read -r line; do hf-infer "$DEMO" --chat --acts resid:0 -q --messages <(echo "$line"); done <each)

    hf-infer "$DEMO" --jsonl --chat --render --file lines -q >strings
    while read -r line; do hf-infer "$DEMO" --chat --render --messages <(echo "$line"); done <each >texts
    py -c 'import json, sys; sys.stdout.write("".join(map(json.loads, open("strings"))))' | cmp - texts
    [ "$(wc -l <strings)" = 4 ]
}

@test "hf-infer --jsonl --chat: a line that cannot be rendered is named, or skipped" {
    tiny
    cat >m/chat_template.jinja <<'END'
{% for m in messages %}
{% if m.role == 'tool' %}{{ raise_exception('No tools here, "' + m.content + '"') }}{% endif %}
{{ m.content }}
{% endfor %}
END
    bad() { # MESSAGE LINE [OPTION...]
        run -65 --separate-stderr hf-infer m --jsonl --chat -n 1 "${@:3}" <<<'{"prompt":"x"}'$'\n'"$2"
        [ "$stderr" = "hf-infer: standard input: line 2: $1" ]
        [ "${#lines[@]}" = 1 ]
    }
    tool='{"messages":[{"role":"user","content":"a"},{"role":"tool","content":"b"}]}'
    bad 'm/chat_template.jinja: line 2: raise_exception: No tools here, "b"' "$tool"
    bad 'has NaN or Infinity, which are not JSON' '{"messages":[{"content":"NaN"}],"x":[NaN]}'
    bad 'messages is 3 (expected an array of messages)' '{"messages":3}'
    bad 'messages[1] is "Hi" (expected a message, an object)' '{"messages":[{},"Hi"]}'
    bad 'has more than one of "prompt", "text", "messages" and "ids" (expected one)' '{"messages":[],"prompt":"x"}'
    bad '"a" stands in chat_template_kwargs and next to it' '{"messages":[],"a":1,"chat_template_kwargs":{"a":1}}'
    bad 'the messages begin with one of the system (--system gives another)' '{"messages":[{"role":"system"}]}' --system S
    run -65 --separate-stderr hf-infer m --jsonl -n 1 <<<"$tool"
    [ "$stderr" = 'hf-infer: standard input: line 1: has "messages", which only --chat reads' ]
    run -65 --separate-stderr hf-infer m --jsonl --chat --render <<<'{"ids":[1]}'
    [ "$stderr" = 'hf-infer: standard input: line 1: has "ids", which no chat template makes text of' ]
    run -0 --separate-stderr hf-infer m --jsonl --chat -n 1 --skip-bad <<<"$tool"$'\n{"id":7,"prompt":"x"}'
    [[ $output == '{"id":7,'* ]]
    [[ $stderr == *'"b": skipped'* ]]
    # one conversation
    echo '[{"role":"tool","content":"b"}]' >c.json
    for how in --render --encode '-n 1'; do
        # shellcheck disable=SC2086 # an option
        run -65 --separate-stderr hf-infer m --chat --messages c.json $how
        [ "$stderr" = 'hf-infer: m/chat_template.jinja: line 2: raise_exception: No tools here, "b"' ]
        [ -z "$output" ]
    done
    for bad in '3:the document is 3 (expected an array of messages, or an object with messages)' '{}:messages is missing (expected an array of messages)' \
        '[-Infinity]:has NaN or Infinity, which are not JSON' '[1]:messages[0] is 1 (expected a message, an object)'; do
        run -65 --separate-stderr hf-infer m --chat --render --messages - <<<"${bad%%:*}"
        [ "$stderr" = "hf-infer: standard input: ${bad#*:}" ]
    done
}

@test "hf-infer --render: reads no weights, and needs no tokenizer" {
    mkdir m
    cp "$DEMO"/{config.json,chat_template.jinja} m
    run -0 --separate-stderr hf-infer m --chat --render -p "What is 1+1?"
    [ "$output" = $'<|im_start|>user\nWhat is 1+1?<|im_end|>\n<|im_start|>assistant' ]
    [ -z "$stderr" ]
    [ "$(hf-infer m --chat --render -p a | tail -c 1)" = "" ]
    [ "$(hf-infer m --chat --render --messages <(echo '{"messages":[],"add_generation_prompt":false}') | wc -c)" = 0 ]
}

@test "hf-infer --chat: options that go with it, and those that do not" {
    bad() { # MESSAGE ARGUMENT...
        run -2 --separate-stderr hf-infer "$DEMO" "${@:2}" </dev/null
        [ "${stderr_lines[0]}" = "hf-infer: $1" ]
    }
    bad '--messages is for --chat' --messages c.json
    bad '--render is for --chat' --render -p x
    bad '--template is for --chat' --template x -p x
    bad '--template-var is for --chat' --template-var x=1 -p x
    bad '-p, --file, --ids and --messages exclude each other' --chat --messages c.json -p x
    bad '--jsonl does not go with --messages' --chat --messages c.json --jsonl
    run -2 hf-infer "$DEMO" --chat --messages c.json --as-text
    run -66 hf-infer "$DEMO" --chat --messages no.json --render
    # a conversation on standard input that is not asked for
    run -2 --separate-stderr hf-infer "$DEMO" --chat <<<'{"messages":[]}'
    [[ ${stderr_lines[0]} == *'has "messages": --chat --messages reads a conversation, '* ]]
    # an output is no input
    cp -rL "$DEMO" m
    echo '[]' >c.json
    for f in c.json m/chat_template.jinja; do
        run -2 hf-infer m --chat --render --messages c.json --template m/chat_template.jinja -f -o $f
        [ -s $f ]
    done
}

@test "chat(5): the bounds, and all names of the language, are those of the program" {
    py - "$ROOT" <<'END'
import re, sys
from pathlib import Path
root = Path(sys.argv[1])
page = (root / "man/chat.5").read_text()
words = " ".join(page.replace(",", "").split())
bounds = dict(re.findall(r"#define TEMPLATE_MAX_(\w+) +\(?(?:\(size_t\))?(.+?)\)?\n", (root / "core/text/template.h").read_text()))
assert len(bounds) == 6, bounds # the last one of each: fuzzers have less
for name, value in bounds.items():
    assert f"at most {eval(value) >> 20 if '<<' in value else value}" in words, (name, value)
c = "".join(p.read_text() for p in (root / "core/text").glob("template*.c"))
have = {}
for kinds, names in re.findall(r'\{ "([ftgsd]+)", "([^"]+)",', c):
    for kind in kinds:
        have.setdefault("s" if kind == "d" else kind, set()).update(n for n in names.split() if n.isidentifier())
for kind, title in zip("ftsg", ["filters", "tests", "methods", "functions"]):
    text = re.search(rf"^\.It {title}\n(.*?)^\.(It|El)", page, re.M | re.S).group(1)
    said = set(re.findall(r"\w+", text)) if kind == "g" else set(re.findall(r"[a-z_]+(?=[,;\n])", text))
    lacks = have[kind] - said
    more = set() if kind == "g" else said - have[kind] - {"and", "place"}
    assert not lacks and not more, (title, lacks, more)
END
}

@test "chat(5): the examples run as typed" {
    ln -s "$ROOT/demo" .
    examples chat.5 >script
    run -0 --separate-stderr bash -eo pipefail script
    grep -q '^1+1=2' <<<"$output"
    [[ $output == *$'<|im_start|>user\nWhat is 1+1?<|im_end|>\n'* ]]
    [[ $output == *'{"id":1,"text":'* ]]
    [[ $output == *$'<|im_start|>user\nHi, please<|im_end|>\n<|im_start|>assistant' ]]
    [ -z "$stderr" ]
}
