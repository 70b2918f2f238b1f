# SPDX-License-Identifier: ISC
# moe-sft tune: lines of JSON as tokens and labels.  What is expected is read
# off by hand: from the texts, from trl's documentation of its data formats, and
# from what LLaMA-Factory's supervised.py does otherwise.
load helpers

# dry [OPTION...]: on ./d.jsonl.
dry() {
    moe-sft tune -m "$DEMO" -d d.jsonl --dry-run "$@"
}

# count NAME: of what dry prints.
count() {
    awk -F '\t' -v name="$1" '$1 == name { print $2 }'
}

# masked: the example's text, the trained part in {}, newlines as \n.
masked() {
    awk -F '\t' 'example { on = $4 != -100
        text = text (on && !was ? "{" : !on && was ? "}" : "") $5; was = on }
        $1 == "line" { example = 1 } $1 == "" { example = 0 }
        END { text = text (was ? "}" : ""); print text }'
}

# shows LINE TEXT: what becomes of a line.
shows() {
    printf '%s\n' "$1" >d.jsonl
    dry >out
    [ "$(masked <out)" = "$2" ] || { masked <out; return 1; }
}

# refused LINE MESSAGE: as the second line of three.
refused() {
    { echo '{"text": "fine"}' && printf '%s\n' "$1" && echo '{"text": "also fine"}'; } >d.jsonl
    run -65 --separate-stderr dry
    [ "$stderr" = "moe-sft: d.jsonl: line 2: $2" ] || { echo "$stderr"; return 1; }
    [ -z "$output" ]
}

@test "moe-sft tune: of text all tokens are trained but the first, and an eos that is appended" {
    shows '{"text": "The sky is blue."}' 'The{ sky is blue.<|im_end|>}'
}

@test "moe-sft tune: an eos that text ends with is not doubled" {
    shows '{"text": "The sky is blue.<|im_end|>"}' 'The{ sky is blue.<|im_end|>}'
}

@test "moe-sft tune: of prompt and completion the completion is trained, with an eos" {
    shows '{"prompt": "The sky is", "completion": " blue."}' 'The sky is{ blue.<|im_end|>}'
    shows '{"prompt": "The sky is", "completion": " blue.<|im_end|>", "id": 7}' 'The sky is{ blue.<|im_end|>}'
    shows '{"prompt": "", "completion": "The sky"}' 'The{ sky<|im_end|>}'
}

@test "moe-sft tune: prompt and completion are encoded apart, no token spans them" {
    shows '{"prompt": "The sky is", "completion": "lands"}' 'The sky is{lands<|im_end|>}'
    ids=$(hf-infer "$DEMO" --encode -p "The sky is")
    [ "$(awk -F '\t' '$1 == 1 && $4 == -100 { printf "%s%s", n++ ? " " : "", $3 }' out)" = "$ids" ]
}

@test "moe-sft tune: of messages the assistant's replies and their ends are trained (trl: assistant_only_loss)" {
    shows '{"messages": [{"role": "user", "content": "What color is the sky?"}, {"role": "assistant", "content": "It is blue."}]}' \
        '<|im_start|>user\nWhat color is the sky?<|im_end|>\n<|im_start|>assistant\n{It is blue.<|im_end|>}\n'
    shows '{"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]}' \
        '<|im_start|>system\nS<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n{b<|im_end|>}\n<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n{d<|im_end|>}\n'
}

@test "moe-sft tune: the newline after a reply is not trained, which LLaMA-Factory does train" {
    shows '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}' \
        '<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n{b<|im_end|>}\n'
    [ "$(tail -n 1 out | cut -f 3-4)" = "$(printf '198\t-100')" ]
}

@test "moe-sft tune: a special token spelled in a message is text" {
    shows '{"messages": [{"role": "user", "content": "<|im_end|>"}, {"role": "assistant", "content": "<|im_start|>"}]}' \
        '<|im_start|>user\n<|im_end|><|im_end|>\n<|im_start|>assistant\n{<|im_start|><|im_end|>}\n'
    # 1023 alone is the mark: after the user's text and after the reply
    [ "$(awk -F '\t' '$3 == 1023' out | wc -l)" = 2 ]
}

@test "moe-sft tune: a prompt of messages is what hf-infer --chat gives the model" {
    shows '{"messages": [{"role": "system", "content": "Be kind"}, {"role": "user", "content": " Hi\n"}, {"role": "assistant", "content": "\nYes"}]}' \
        '<|im_start|>system\nBe kind<|im_end|>\n<|im_start|>user\n Hi\n<|im_end|>\n<|im_start|>assistant\n{\nYes<|im_end|>}\n'
    want=$(hf-infer "$DEMO" --encode --chat --system "Be kind" -p $' Hi\n')
    [ "$(awk -F '\t' '$1 == 1 { if ($4 != -100) exit; printf "%s%s", n++ ? " " : "", $3 }' out)" = "$want" ]
}

@test "moe-sft tune: ids and labels are as they are, but that a first token is not predicted" {
    echo '{"ids": [5, 6, 7, 8], "labels": [5, -100, 9, 1023]}' >d.jsonl
    dry >out
    [ "$(awk -F '\t' 'n { print $3, $4 } $1 == "line" { n = 1 }' out | tr '\n' ';')" = "5 -100;6 -100;7 9;8 1023;" ]
    [ "$(count targets <out)" = 2 ]
    # integers of 64 bits and more elsewhere in the line do not matter
    echo '{"ids": [5, 6], "labels": [-100, 6], "id": 123456789012345678901234567890}' >d.jsonl
    [ "$(dry | count targets)" = 1 ]
    refused '{"ids": [5, 6.0], "labels": [5, 6]}' 'ids[1] is 6.0 (expected a token id, an integer from 0 to 1023)'
    refused '{"ids": [5, 6], "labels": [5, 6.0], "id": 123456789012345678901234567890}' \
        'labels[1] is 6.0 (expected a token id, an integer from 0 to 1023, or -100)'
    refused '{"ids": [5, 9223372036854775808], "labels": [5, 6]}' \
        'ids[1] is 9.223372036854776e+18 (expected a token id, an integer from 0 to 1023)'
}

@test "moe-sft tune: NaN and infinities, as Python writes them, are ignored where numbers are" {
    py -c 'import json
for score in float("nan"), float("inf"), -float("inf"):
    print(json.dumps({"score": [1, score], "messages": [{"role": "assistant", "content": "NaN"}], "id": 2 ** 70}))' >d.jsonl
    dry >out
    [ "$(count examples <out)" = 3 ]
    yes '{"messages": [{"role": "assistant", "content": "NaN"}]}' | head -n 3 >plain.jsonl
    moe-sft tune -m "$DEMO" -d plain.jsonl --dry-run | cmp - out
    refused '{"text": NaN}' 'text is NaN (expected a string)'
    refused '{"messages": [{"role": "user", "content": "a", "tool_calls": [{"x": NaN}]}]}' \
        'messages[0].tool_calls[0].x is NaN (expected what JSON can have)'
    refused '{"ids": [1, -Infinity], "labels": [1, 2]}' 'ids[1] is -Infinity (expected a token id, an integer from 0 to 1023)'
}

@test "moe-sft tune: a model without a tokenizer is trained on ids" {
    cp -r "$DEMO" m
    rm m/tokenizer*
    echo '{"ids": [5, 6, 7], "labels": [5, 6, 7]}' >d.jsonl
    moe-sft tune -m m -d d.jsonl -o run -n 1
    echo '{"text": "x"}' >d.jsonl
    run -66 moe-sft tune -m m -d d.jsonl --dry-run
    [[ $output == "moe-sft: m/tokenizer.json: "* ]]
}

@test "moe-sft tune: blank lines, CRLF, a byte order mark and a missing last newline are fine" {
    printf '\xef\xbb\xbf\r\n{"text": "a"}\r\n\n  \n{"text": "b"}' >d.jsonl
    dry >out
    [ "$(count examples <out)" = 2 ]
    printf '{"text": "a"}\n{"text": "b"}\n' >plain.jsonl
    moe-sft tune -m "$DEMO" -d plain.jsonl --dry-run | grep -v '^[0-9]' | cmp - <(grep -v '^[0-9]' out)
    moe-sft tune -m "$DEMO" -d - --dry-run <plain.jsonl | cmp - <(moe-sft tune -m "$DEMO" -d plain.jsonl --dry-run)
    printf '\xef\xbb\xbf{"text": "a"}\n{"text": "b"}\n' >d.jsonl
    dry | cmp - <(moe-sft tune -m "$DEMO" -d plain.jsonl --dry-run)
    printf '\xef\xbb\xbf' >d.jsonl
    run -65 dry
    [ "$output" = "moe-sft: d.jsonl: has no examples" ]
}

@test "moe-sft tune: examples none of which has a target are a warning, and of --eval an error" {
    echo '{"messages": [{"role": "user", "content": "a"}]}' >d.jsonl
    echo '{"text": "a b"}' >fine.jsonl
    run -0 --separate-stderr dry
    [ "$stderr" = "moe-sft: d.jsonl: no example has a target: nothing is learned from it" ]
    run -65 --separate-stderr moe-sft tune -m "$DEMO" -d fine.jsonl --eval - -o run --keep-best <d.jsonl
    [ "$stderr" = "moe-sft: standard input: no example has a target, so there is no loss on it" ]
    [ ! -e run ]
    cat fine.jsonl >>d.jsonl
    run -0 --separate-stderr dry
    [ -z "$stderr" ]
}

@test "moe-sft tune: a bad line is refused, and named" {
    printf '{"text": "fine"}\n{"text": "x"\n' >d.jsonl
    run -65 dry
    [ "$output" = "moe-sft: d.jsonl: line 2, column 12: '}' expected near end of file" ]
    refused '["x"]' 'is not a JSON object'
    refused '{"input": "x"}' 'has none of "messages", "prompt" and "completion", "text", "ids" and "labels"'
    refused '{"text": "x", "prompt": "y", "completion": "z"}' 'has "prompt" and "text" (expected one kind of example)'
    refused '{"prompt": "y"}' 'completion is missing (expected a string)'
    refused '{"text": 5}' 'text is 5 (expected a string)'
    refused '{"messages": []}' 'messages is an empty array (expected an array of messages)'
    refused '{"messages": [{"role": "user", "content": "a"}, "b"]}' 'messages[1] is "b" (expected a message, an object)'
    refused '{"messages": [{"rolle": "user", "content": "a"}]}' 'messages[0].role is missing (expected a string)'
    refused '{"messages": [{"role": "user\u0000", "content": "a"}]}' \
        'messages[0].role is "user\\u0000" (expected a string without a NUL)'
    refused '{"ids": [1, 2]}' 'labels is missing (expected an array of labels)'
    refused '{"ids": [1, 2], "labels": [1]}' 'has 2 ids and 1 label (expected as many)'
    refused '{"ids": [], "labels": []}' 'ids is an empty array (expected an array of token ids)'
    refused '{"ids": [1, 1024], "labels": [1, 2]}' 'ids[1] is 1024 (expected a token id, an integer from 0 to 1023)'
    refused '{"ids": [1, 2], "labels": [1, 1024]}' 'labels[1] is 1024 (expected a token id, an integer from 0 to 1023, or -100)'
    refused '{"ids": [1, 2], "labels": [1, -1]}' 'labels[1] is -1 (expected a token id, an integer from 0 to 1023, or -100)'
    refused '{"ids": [1, 0.1], "labels": [1, 2]}' 'ids[1] is 0.1 (expected a token id, an integer from 0 to 1023)'
    refused '{"ids": [1, 2.5], "labels": [1, 2]}' 'ids[1] is 2.5 (expected a token id, an integer from 0 to 1023)'
    printf '{"text": "fine"}\n{"text": "\xff"}\n' >d.jsonl
    run -65 dry
    [[ $output == "moe-sft: d.jsonl: line 2, column "* ]]
    : >d.jsonl
    run -65 dry
    [ "$output" = "moe-sft: d.jsonl: has no examples" ]
    run -66 moe-sft tune -m "$DEMO" -d nothing --dry-run
}

@test "moe-sft tune: a signal stops it while it encodes the examples, 75" {
    mkfifo p
    moe-sft tune -m "$DEMO" -d p -o run 2>err &
    {
        yes '{"text": "The sky is blue, the capital of France is Paris, and nobody knows why."}' |
            head -n 200000
        echo '{' # where it would end otherwise
    } >p
    sleep 0.1
    kill -TERM $!
    status=0
    wait $! || status=$?
    [ $status = 75 ]
    [[ $(<err) == "moe-sft: stopped by SIGTERM: "* ]]
    [ ! -e run ]
}

@test "moe-sft tune: no tools are as none, and in a line of text they are not looked at" {
    one='{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]'
    for more in '}' ', "tools": null}' ', "tools": [], "chat_template_kwargs": {}}'; do
        shows "$one$more" '<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n{b<|im_end|>}\n'
    done
    shows '{"text": "The sky", "tools": [1]}' 'The{ sky<|im_end|>}'
}

@test "moe-sft tune: an example beyond the model's positions is refused, and --ctx and --pack cut and share" {
    py -c 'import json
print(json.dumps({"ids": [1] * 513, "labels": [1] * 513}))' >d.jsonl
    run -65 dry
    [ "$output" = "moe-sft: d.jsonl: line 1: has 513 tokens (the model has 512 positions; --ctx cuts)" ]
    dry --ctx 512 >out
    [ "$(count tokens <out) $(count targets <out) $(count truncated <out) $(count dropped <out)" = "512 511 1 0" ]
    py -c 'import json
for i in range(3): print(json.dumps({"ids": [1] * 400, "labels": [1] * 400}))' >d.jsonl
    dry --ctx 1300 --pack >out # a sequence may be longer than the positions
    [ "$(count sequences <out) $(count tokens <out) $(count targets <out)" = "1 1200 1197" ]
}

@test "moe-sft tune: --ctx cuts on the right, after masking; what has no target left is dropped (LLaMA-Factory cuts both in proportion)" {
    cat >d.jsonl <<'END'
{"ids": [1, 2, 3, 4, 5, 6], "labels": [-100, -100, -100, -100, 5, 6]}
{"ids": [1, 2, 3, 4, 5, 6, 7], "labels": [-100, -100, 3, 4, 5, 6, 7]}
{"ids": [1, 2, 3], "labels": [-100, -100, -100]}
{"ids": [1, 2, 3, 4], "labels": [1, 2, 3, 4]}
END
    dry --ctx 4 >out
    # the third has no target, but was not cut: it keeps its place
    [ "$(count examples <out) $(count truncated <out) $(count dropped <out) $(count tokens <out) $(count targets <out) $(count longest <out)" = "3 2 1 11 5 4" ]
    [ "$(awk -F '\t' 'n { print $1, $3, $4 } $1 == "line" { n = 1 }' out | tr '\n' ';')" = "2 1 -100;2 2 -100;2 3 3;2 4 4;" ]
    dry --ctx 5 >out
    [ "$(count examples <out) $(count dropped <out) $(count targets <out)" = "4 0 7" ]
    head -n 1 d.jsonl >one && mv one d.jsonl
    run -65 dry --ctx 4
    [ "$output" = "moe-sft: d.jsonl: has no examples with a target within --ctx" ]
}

@test "moe-sft tune --pack: windows are those of trl's best fit decreasing" {
    for seed in 1 2 3 4; do
        py - $seed >want <<'END'
import collections, json, random, sys
random.seed(int(sys.argv[1]))
ctx = [16, 50, 100, 200][int(sys.argv[1]) - 1]
lengths = [random.randint(1, ctx if i % 3 else max(1, ctx // 5)) for i in range(120)]
with open("d.jsonl", "w") as f:
    for n in lengths:
        f.write(json.dumps({"ids": [1] * n, "labels": [1] * n}) + "\n")
windows, queues = [], collections.defaultdict(collections.deque)
for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):  # stable
    fits = [room for room in queues if queues[room] and room >= lengths[i]]
    room = min(fits) if fits else ctx
    w = queues[room].popleft() if fits else []
    if not fits:
        windows.append(w)
    w.append(i)
    queues[room - lengths[i]].append(w)
for k, w in enumerate(windows):
    print(k, sum(lengths[i] for i in w), ",".join(str(i + 1) for i in w), sep="\t")
END
        ctx=$(cut -d ' ' -f $seed <<<"16 50 100 200")
        dry --pack --ctx "$ctx" | sed '1,/^sequence\t/d' | diff - want
        [ "$(dry --pack --ctx "$ctx" | count sequences)" = "$(wc -l <want)" ]
    done
}

# own TEXT: the model m is the demo's with this template.
own() {
    [ -e m ] || cp -r "$DEMO" m
    printf %s "$1" >m/chat_template.jinja
}

# shown LINE TEXT [OPTION...]: what becomes of a line by m.
shown() {
    printf '%s\n' "$1" >d.jsonl
    moe-sft tune -m m -d d.jsonl --dry-run "${@:3}" >out
    [ "$(masked <out)" = "$2" ] || { masked <out; return 1; }
}

@test "moe-sft tune: the model's own chat template is used, or that of --template, or none, 65" {
    one='{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}'
    own "{% for m in messages %}<{{ m.role }}>{{ m.content }}<|im_end|>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
    shown "$one" '<user>a<|im_end|><assistant>{b<|im_end|>}'
    printf '%s' '{% for m in messages %}{{ m.role + "=" + m.content + eos_token }}{% endfor %}{{ "assistant=" if add_generation_prompt }}' >x.jinja
    shown "$one" 'user=a<|im_end|>assistant={b<|im_end|>}' --template x.jinja
    mkdir m/additional_chat_templates
    mv x.jinja m/additional_chat_templates/
    shown "$one" 'user=a<|im_end|>assistant={b<|im_end|>}' --template x
    run -65 moe-sft tune -m m -d d.jsonl --dry-run --template chatml
    [[ $output == 'moe-sft: m: has no chat template "chatml"'* ]]
    own '{% include "x" %}'
    run -65 moe-sft tune -m m -d d.jsonl --dry-run
    [[ $output == 'moe-sft: m/chat_template.jinja: line 1: '*include* ]]
    rm m/chat_template.jinja
    py -c 'import json
c = json.load(open("m/tokenizer_config.json")); c.pop("chat_template", 0)
json.dump(c, open("m/tokenizer_config.json", "w"))'
    run -65 moe-sft tune -m m -d d.jsonl --dry-run
    [[ $output == "moe-sft: m: has no chat template (--template FILE gives one"* ]]
    echo '{"text": "a"}' >d.jsonl
    moe-sft tune -m m -d d.jsonl --dry-run >out
}

@test "moe-sft tune: any role, member and variable is the template's; a line's own wins over --template-var" {
    own '{{ documents | length if documents }}{% for t in tools or [] %}<tool>{{ t.name }}{% endfor %}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.calls or [] %}{{ c | tojson }}{% endfor %}<|im_end|>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}'
    shown '{"tools": [{"name": "sky"}], "messages": [{"role": "developer", "content": "a"}, {"role": "assistant", "calls": [{"x": [1, "y"]}]}, {"role": "tool", "content": "c"}, {"role": "assistant", "content": "d"}], "documents": [{}, {}]}' \
        '2<tool>sky<developer>a<|im_end|><assistant>{{"x": [1, "y"]}<|im_end|>}<tool>c<|im_end|><assistant>{d<|im_end|>}'
    one='{"messages": [{"role": "assistant", "content": "b"}]'
    # the prompt ends with what is not there in the text
    own '{% for m in messages %}<{{ m.role }}>{{ m.content }}<|im_end|>{% endfor %}{{ "<assistant>" if add_generation_prompt else tone }}'
    shown "$one, \"tone\": \"kind\"}" '<assistant>{b<|im_end|>}kind'
    shown "$one, \"chat_template_kwargs\": {\"tone\": \"kind\"}}" '<assistant>{b<|im_end|>}kind' --template-var tone=rude
    shown "$one}" '<assistant>{b<|im_end|>}rude' --template-var tone=rude
    shown "$one}" '<assistant>{b<|im_end|>}rude' --template-var 'tone="rude"'
    shown "$one, \"add_generation_prompt\": true}" '<assistant>{b<|im_end|>}'
    run -0 --separate-stderr moe-sft tune -m m -d d.jsonl --dry-run --template-var tune=rude
    [ "$stderr" = 'moe-sft: m/chat_template.jinja: does not use "tune", which is ignored' ]
    run -2 moe-sft tune -m m -d d.jsonl --dry-run --template-var messages=1
    [[ $output == 'moe-sft: --template-var messages: --data gives these'* ]]
    run -2 moe-sft tune -m m -d d.jsonl --dry-run --template-var tone
    [[ $output == 'moe-sft: --template-var: "tone" is not NAME=VALUE'* ]]
}

@test "moe-sft tune: what stands in generation blocks is trained (transformers: return_assistant_tokens_mask)" {
    own '{% for m in messages %}{{ m.role }}:{% if m.role == "assistant" %}{% generation %} {{ m.content }}.{% endgeneration %}{% else %} {{ m.content }};{% endif %}{% endfor %}'
    shown '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "assistant", "content": "c"}]}' \
        'user: a;assistant:{ b.}assistant:{ c.}'
}

@test "moe-sft tune: a reply whose prompt the conversation does not have is refused: line, message, what to do" {
    own '{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant><think>{% endif %}'
    { echo '{"text": "fine"}' && echo '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}'; } >d.jsonl
    run -65 --separate-stderr moe-sft tune -m m -d d.jsonl -o run
    [ "$stderr" = 'moe-sft: d.jsonl: line 2: messages[1]: its prompt ends with "<assistant><think>", which the whole conversation does not have there, so its reply is not found (--template FILE can mark replies by {% generation %})' ]
    [ ! -e run ]
    own '{{ messages | length if not messages }}'
    run -65 --separate-stderr moe-sft tune -m m -d d.jsonl -o run
    [ "$stderr" = "moe-sft: d.jsonl: line 2: m/chat_template.jinja renders nothing of it" ]
    own '{% for m in messages %}{% if m.role != "user" %}{{ raise_exception("only users") }}{% endif %}{% endfor %}'
    run -65 --separate-stderr moe-sft tune -m m -d d.jsonl -o run
    [[ $stderr == "moe-sft: d.jsonl: line 2: m/chat_template.jinja: line 1: "*"only users" ]]
}

@test "moe-sft tune --resume: another chat template or variable is another run, the same by another name is not" {
    own '{{ strftime_now("%Y") }}{{ n }}{% for m in messages %}<{{ m.role }}>{{ tone }}{{ m.content }}<|im_end|>{% endfor %}{% if add_generation_prompt %}<assistant>{{ tone }}{% endif %}'
    echo '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}' >d.jsonl
    on() { moe-sft tune -m m -d d.jsonl -o run --resume "$@"; }
    refused() {
        run -65 --separate-stderr on "${@:2}"
        [ "$stderr" = "moe-sft: run/state.safetensors: $1; --force starts a new run)" ] || { echo "$stderr"; return 1; }
    }
    SOURCE_DATE_EPOCH=86400 on -n 1 --template-var tone=kind --template-var n=1
    on -n 2 # the year, too, is that of the state
    on -n 2 --template-var 'n=1' --template-var 'tone="kind"'
    refused '--template-var was {"n":1,"tone":"kind"} (now {"tone":"kind"}' --template-var tone=kind
    mv m/chat_template.jinja x.jinja
    on -n 3 --template x.jinja
    mv x.jinja m/chat_template.jinja
    echo '{# #}' >>m/chat_template.jinja
    run -66 --separate-stderr on -n 3
    [ "$stderr" = "moe-sft: x.jinja: No such file or directory" ]
    run -65 --separate-stderr on -n 3 --template m/chat_template.jinja
    [ "$stderr" = "moe-sft: run/state.safetensors: its template is not that of m/chat_template.jinja (--force starts a new run)" ]
}

@test "moe-sft tune: text ends with tokenizer_config's eos_token, or config's" {
    cp -r "$DEMO" m
    echo '{"text": "a b"}' >d.jsonl
    for name in '"<|endoftext|>"' '{"content": "<|endoftext|>", "lstrip": false}'; do
        py -c 'import json, sys
c = json.load(open("m/tokenizer_config.json")); c["eos_token"] = json.loads(sys.argv[1])
json.dump(c, open("m/tokenizer_config.json", "w"))' "$name"
        [ "$(moe-sft tune -m m -d d.jsonl --dry-run | tail -n 1 | cut -f 3)" = 1021 ]
    done
    rm m/tokenizer_config.json
    [ "$(moe-sft tune -m m -d d.jsonl --dry-run | tail -n 1 | cut -f 3)" = 1023 ]
    rm m/generation_config.json
    sed -i '/eos_token_id/d' m/config.json
    run -65 moe-sft tune -m m -d d.jsonl --dry-run
    [ "$output" = "moe-sft: m: has no eos token, which text ends with" ]
}

@test "moe-sft tune --resume: examples of --eval that have moved are looked for where the state says, and named so" {
    echo '{"text": "a b"}' | tee d.jsonl >e.jsonl
    moe-sft tune -m "$DEMO" -d d.jsonl -o run -n 1 --eval e.jsonl
    mv e.jsonl moved.jsonl
    run -66 --separate-stderr moe-sft tune -m "$DEMO" -d d.jsonl -o run -n 2 --resume
    [ "$stderr" = "moe-sft: run/state.safetensors: its --eval: e.jsonl: No such file or directory (--eval says where it is now)" ]
    moe-sft tune -m "$DEMO" -d d.jsonl -o run -n 2 --resume --eval moved.jsonl
}

@test "moe-sft tune --resume: a run of more steps than it will ever do is continued, too" {
    yes '{"text": "a b"}' | head -n 9 >d.jsonl
    for how in constant cosine; do
        rm -rf run
        moe-sft tune -m "$DEMO" -d d.jsonl -o run --epochs 1000000000 --batch 1 --schedule $how --warmup 0.5 -q &
        pid=$!
        until [ -e run/log.tsv ] && [ "$(wc -l <run/log.tsv)" -ge 2 ]; do kill -0 $pid; sleep 0.02; done
        kill -TERM $pid
        status=0
        wait $pid || status=$?
        [ $status = 75 ]
        run -75 moe-sft tune -m "$DEMO" -d d.jsonl -o run --resume --deadline 0
    done
}

# bats test_tags=long
@test "moe-sft-tune(1): the examples run as typed; by default a dozen lines are learnt" {
    ln -s "$ROOT/demo" demo
    examples moe-sft-tune.1 >script
    run -0 bash -eo pipefail script
    [[ $output == *" of old cheese."* ]]
    st-inspect verify zorg/adapter_model.safetensors more/best/adapter_model.safetensors
    [ "$(tail -n 1 zorg/log.tsv | cut -f 1)" = 40 ]
    # what "moe-sft tune -m demo/qwen3-tiny -d demo/facts.jsonl -o facts" makes
    [ "$(tail -n 1 facts/log.tsv | cut -f 1)" = 200 ]
    hf-infer "$DEMO" --lora facts --greedy --jsonl -n 24 -q <"$ROOT/demo/facts.jsonl" >said
    py -c 'import json, sys
for said, fact in zip(open("said"), open(sys.argv[1])):
    assert json.loads(said)["text"].strip() == json.loads(fact)["completion"].strip(), said' "$ROOT/demo/facts.jsonl"
    [ "$(wc -l <said)" = 12 ]
}

@test "moe-sft tune: a dozen lines are gone over often by default, and many once" {
    steps() { moe-sft tune -m "$DEMO" -d "$1" -o run --dry-run "${@:2}" | awk '$1 == "steps" && NF == 2 { print $2 }'; }
    # by hand, 12 lines: of 8 a step 100 epochs of 2; of 3 50 epochs of 4 steps; of 1 17 epochs of 12
    [ "$(steps "$ROOT/demo/facts.jsonl") $(steps "$ROOT/demo/facts.jsonl" --batch 3)" = "200 200" ]
    [ "$(steps "$ROOT/demo/facts.jsonl" --batch 1)" = 204 ]
    for _ in $(seq 200); do cat "$ROOT/demo/facts.jsonl"; done >many
    [ "$(steps many)" = 300 ]
}
