# SPDX-License-Identifier: ISC
# hf-infer --jsonl: many prompts, answers as each would get alone.
load helpers

# prompts N: N lines with prompts of several lengths.
prompts() {
    "$PYTHON" - "$1" <<'END'
import json, sys
words = ['1+1=', 'What is the capital of France?', 'Hello', 'The', '2+3=5\n',
         'One two three four five six seven eight nine ten']
for i in range(int(sys.argv[1])):
    print(json.dumps({'id': i, 'prompt': words[i % 6] * (1 + i // 6)}))
END
}

# alone OPTION...: what each line of p.jsonl gets by itself, as --json says it.
alone() {
    "$PYTHON" - "$DEMO" "$@" <<'END'
import json, subprocess, sys
for line in open('p.jsonl'):
    p = json.loads(line)
    out = json.loads(subprocess.run(
        ['hf-infer', sys.argv[1], '-p', p['prompt'], '--json'] + sys.argv[2:],
        check=True, capture_output=True).stdout)
    del out['prompt_ids']
    print(json.dumps({'id': p['id'], **out}, sort_keys=True))
END
}

# sorted: the answers, members in alone's order.
sorted() {
    "$PYTHON" -c "import json, sys
for line in sys.stdin:
    print(json.dumps(json.loads(line), sort_keys=True))"
}

@test "hf-infer --jsonl: each answer is what its prompt gets alone" {
    prompts 20 >p.jsonl
    alone -n 12 --greedy >want
    hf-infer "$DEMO" --jsonl -n 12 --greedy <p.jsonl | sorted | cmp - want
    hf-infer "$DEMO" --jsonl -n 12 --greedy --file p.jsonl | sorted | cmp - want
    for how in '--batch 1' '--batch 3 -j 1' '--batch 7 --chunk 5' '-j 3'; do
        # shellcheck disable=SC2086
        hf-infer "$DEMO" --jsonl -n 12 --greedy $how <p.jsonl | sorted |
            cmp - want
    done
}

@test "hf-infer --jsonl: stop strings, --chat and -o are each prompt's own" {
    prompts 9 >p.jsonl
    alone -n 20 --greedy --stop 'is' --stop '=' >want
    hf-infer "$DEMO" --jsonl -n 20 --greedy --stop 'is' --stop '=' -o out \
        <p.jsonl
    sorted <out | cmp - want
    grep -q '"stop"' out
    alone -n 20 --chat --system 'Be brief.' >want
    hf-infer "$DEMO" --jsonl -n 20 --chat --system 'Be brief.' --batch 4 \
        <p.jsonl | sorted | cmp - want
}

@test "hf-infer --jsonl: a NUL is a character of a text" {
    ids=$(printf 'a\0b' | hf-infer "$DEMO" --encode --special)
    hf-infer "$DEMO" --jsonl -n 8 --greedy >out <<END
{"id":"x\u0000","prompt":"a\u0000b"}
{"id":"x\u0000","ids":[${ids// /,}]}
END
    [ "$(uniq out | wc -l)" = 1 ]
    [[ $(cat out) == '{"id":"x\u0000","text":"'* ]]
}

@test "hf-infer --jsonl: the id comes back as it was written" {
    hf-infer "$DEMO" --jsonl -n 1 --greedy >out <<'END'
{"id": 1.10, "prompt": "a", "more": {"id": 5}}
{"other":["}",{"id":1}],"prompt":"a","id":{"a": [1,"},\""]}}
{"prompt":"a"}

{"text":"a" , "id" : null }
{"id":"x\u00e9\"","ids":[16,10,16,28]}
{"ids":[16],"\u0069d":-12345678901234}
{"ids":[16],"id":"\ud83d\ude00\/é\\\" }, "}
{"id":18446744073709551615,"ids":[0,16]}
{"id":1,"hash":-340282366920938463463374607431768211456,"prompt":"a"}
{"score":[NaN,-Infinity],"id":"NaN","prompt":"a"}
END
    sed 's/,"text".*//; s/{"text".*/{/' out >ids
    diff ids - <<'END'
{"id":1.10
{"id":{"a": [1,"},\""]}
{
{"id":null
{"id":"x\u00e9\""
{"id":-12345678901234
{"id":"\ud83d\ude00\/é\\\" }, "
{"id":18446744073709551615
{"id":1
{"id":"NaN"
END
}

@test "hf-infer --jsonl: draws are a prompt's own, whatever runs beside it" {
    endless # 12 draws, no two answers alike
    for _ in 1 2 3 4 5 6; do echo '{"ids":[16,10,16,28]}'; done >p.jsonl
    how='-n 12 --temperature 3 --seed 5'
    # shellcheck disable=SC2086
    {
        hf-infer m --jsonl $how <p.jsonl >a
        hf-infer m --jsonl $how --batch 1 <p.jsonl >b
        hf-infer m --jsonl $how --batch 4 -j 2 <p.jsonl >c
        ids=$(hf-infer m --ids 16,10,16,28 $how --ids-out)
    }
    cmp a b
    cmp a c
    [ "$(sort -u a | wc -l)" = 6 ]
    head -n 1 a | grep -F "\"ids\":[${ids// /,}]"
}

@test "hf-infer --jsonl: the same draws of any number of threads" {
    for i in $(seq 24); do echo "{\"ids\":[$i,10,16,28]}"; done >p.jsonl
    for how in '--temperature 3' '--temperature 2 --top-p 0.9 --repetition-penalty 1.3' \
        '--temperature 3 --top-k 300 --min-p 0.01'; do
        # shellcheck disable=SC2086
        same_for '-j 1 --batch 1' '-j 1' '-j 2' '-j 5' '-j 3 --batch 5' -- \
            hf-infer "$DEMO" --jsonl -n 12 --seed 5 $how --file p.jsonl
    done
}

@test "hf-infer --jsonl: a wrong line ends it after the answers before it" {
    prompts 5 >good
    hf-infer "$DEMO" --jsonl -n 4 --greedy <good >want
    refused() {
        { cat good; printf '\n%s\n' "$1"; prompts 1; } >p.jsonl
        run -65 --separate-stderr hf-infer "$DEMO" --jsonl -n 4 --greedy \
            --batch "${3:-16}" <p.jsonl
        [ "$output" = "$(cat want)" ]
        [ "$stderr" = "hf-infer: standard input: line 7: $2" ]
    }
    none='has none of "prompt", "text", "messages" and "ids" (expected one)'
    many='has more than one of "prompt", "text", "messages" and "ids" (expected one)'
    range='(expected a whole number from 0 to 2147483647)'
    refused '{"id":3}' "$none"
    refused '{"id":3}' "$none" 1
    refused '{"prompt":"a","ids":[1]}' "$many"
    refused '{"prompt":null,"text":null}' "$none"
    refused '[1]' 'not a JSON object'
    refused '{"prompt":NaN}' 'prompt is NaN (expected a string)'
    refused '{"prompt":"a","id":[-Infinity]}' 'id has NaN or Infinity, which are not JSON'
    refused '{"prompt":5}' 'prompt is 5 (expected a string)'
    refused '{"ids":[1,-2]}' "ids[1] is -2 $range"
    refused '{"ids":[1,99999]}' \
        'token id 99999 is not in the vocabulary (0 to 1023)'
    refused '{"ids":[]}' 'the prompt has no tokens (expected at least 1)'
    refused "{\"ids\":[$(seq -s, 1 510)]}" "the prompt has 510 tokens and -n \
is 4, together 514 (expected at most 513, one more than the model's context)"
    { cat good; echo '{"id":3'; } >p.jsonl
    run -65 --separate-stderr hf-infer "$DEMO" --jsonl -n 4 --greedy <p.jsonl
    [[ $stderr == "hf-infer: standard input: line 6, column "* ]]
    run -65 hf-infer "$DEMO" --jsonl -n 4 --greedy -o out <p.jsonl
    [ ! -e out ]
    cmp out.partial want
}

# bats test_tags=long
@test "hf-infer --jsonl --skip-bad: a wrong line is reported, all others are answered" {
    prompts 6 >good
    hf-infer "$DEMO" --jsonl -n 4 --temperature 2 --seed 3 --batch 2 <good | sed 2d >want
    { head -n 1 good; echo '{"id":3'; sed -n 3,4p good; echo; sed -n 5,6p good; } >p.jsonl
    hf-infer "$DEMO" --jsonl -n 4 --temperature 2 --seed 3 --batch 2 --skip-bad -o out <p.jsonl 2>err
    cmp out want # each line's draws are those of its place
    [[ $(cat err) == "hf-infer: standard input: line 2, column "*": skipped" ]]
    for bad in '{"id":3}' '[1]' '{"prompt":5}' '{"ids":[5,6.0]}' '{"ids":[1,99999]}' '{"ids":[]}' '{"prompt":"a","max_tokens":600}'; do
        for at in 1 4 7; do
            sed "$at{h;s/.*/$bad/;G}" <(cat good; echo) | sed '$d' >p.jsonl
            [ $at != 7 ] || { cat good; echo "$bad"; } >p.jsonl
            hf-infer "$DEMO" --jsonl -n 4 --greedy --skip-bad --batch 3 <p.jsonl >out 2>err
            hf-infer "$DEMO" --jsonl -n 4 --greedy <good | cmp - out
            [ "$(wc -l <err)" = 1 ]
            grep -q "^hf-infer: standard input: line $at: .*: skipped\$" err
        done
    done
    run -74 hf-infer "$DEMO" --jsonl -n 1 --skip-bad --file /proc/self/mem
    run -2 hf-infer "$DEMO" -p a --skip-bad
}

@test "hf-infer --jsonl --resume: after a wrong line is mended, to the same bytes" {
    prompts 9 >good
    go() { hf-infer "$DEMO" --jsonl -n 6 --temperature 2 --seed 3 --batch 2 "$@"; }
    go <good >want
    sed '4s/.*/{"id":3/; 8s/.*/[1]/' good >p.jsonl
    run -65 --separate-stderr go -o out --file p.jsonl
    [[ ${stderr_lines[0]} == "hf-infer: out.partial: 3 answers are kept: --resume continues after them" ]]
    [[ ${stderr_lines[1]} == "hf-infer: p.jsonl: line 4, column "* ]]
    [ ! -e out ]
    cmp out.partial <(head -n 3 want)
    sed '8s/.*/[1]/' good >p.jsonl # the next wrong line
    run -65 go -o out --resume --file p.jsonl
    cmp out.partial <(head -n 7 want)
    run -65 --separate-stderr go -o out --resume --file <(head -n 5 good)
    [[ $stderr == *"out.partial: has more answers than "* ]]
    cmp out.partial <(head -n 7 want)
    run -65 --separate-stderr go -o out --resume --file <(sed '2s/"id": 1/"id": 7/' good)
    [[ $stderr == *"hf-infer: out.partial: answer 2 is not of "*": line 2, which has another id" ]]
    cmp out.partial <(head -n 7 want)
    run -0 --separate-stderr go -o out --resume --file good
    [ -z "$stderr" ]
    cmp out want
    [ ! -e out.partial ]
    # there is nothing to resume: from the beginning
    run -0 go -o new --resume --file good
    cmp new want
    # nothing is kept where nothing was answered, or the answers went out
    run -65 go -o none <<<'[1]'
    [ ! -e none.partial ]
    run -2 go --resume
    run -2 hf-infer "$DEMO" -p a --resume -o x
}

@test "hf-infer --jsonl: a line's settings are those of the options for it alone" {
    endless # draws differ, and nothing ends by itself
    { printf '\357\273\277' && cat; } >p.jsonl <<'END' # a byte order mark
{"ids":[16,10,16,28],"max_tokens":7}
{"ids":[16,10,16,28],"temperature":3,"seed":5}
{"ids":[16,10,16,28],"temperature":2,"top_p":0.5,"seed":5,"max_tokens":20}
{"ids":[16,10,16,28],"temperature":3,"top_k":3,"seed":9007199254740993}
{"ids":[16,10,16,28],"temperature":3,"seed":18446744073709551615}
{"ids":[16,10,16,28],"temperature":0}
{"prompt":"What is the capital of France?","stop":["zzz","is"],"temperature":0}
{"prompt":"What is the capital of France?","stop":"is","top_k":1,"max_tokens":null}
{"ids":[16,10,16,28]}
END
    "$PYTHON" - >want <<'END'
import json, subprocess
options = {'max_tokens': '-n', 'stop': '--stop', 'ids': '--ids', 'prompt': '-p'}
for line in open('p.jsonl', encoding='utf-8-sig'):
    how = ['-n', '12'] # the command's, unless the line says otherwise
    for k, v in json.loads(line).items():
        if v is None:
            continue
        if k == 'ids':
            v = ','.join(map(str, v))
        if k == 'max_tokens':
            how = how[2:]
        for one in v if isinstance(v, list) else [v]:
            how += [options.get(k, '--' + k.replace('_', '-')), str(one)]
    out = json.loads(subprocess.run(['hf-infer', 'm', '--json'] + how, check=True, capture_output=True).stdout)
    del out['prompt_ids']
    print(json.dumps(out, sort_keys=True))
END
    for batch in 1 3 16; do
        hf-infer m --jsonl -n 12 --batch $batch <p.jsonl 2>err | sorted | cmp - want
        [ ! -s err ]
    done
    # the command's draws go by the line's number, a line's own seed does not
    for _ in 1 2 3; do echo '{"ids":[16,10,16,28],"seed":5}'; done |
        hf-infer m --jsonl -n 12 --temperature 3 >out
    [ "$(sort -u out | wc -l)" = 1 ]
    # --greedy stays, but for a temperature
    printf '%s\n' '{"ids":[16],"seed":5,"top_p":0.9}' '{"ids":[16]}' | hf-infer m --jsonl -n 12 --greedy >out
    [ "$(sort -u out | wc -l)" = 1 ]
    wrong() {
        run -65 --separate-stderr hf-infer m --jsonl -n 1 <<<"{\"ids\":[1],$1}"
        [ "$stderr" = "hf-infer: standard input: line 1: $2" ]
    }
    wrong '"max_tokens":-1' 'max_tokens is -1 (expected a whole number from 0 to 2147483647)'
    wrong '"max_tokens":600' "the prompt has 1 token and max_tokens is 600, together 601 (expected at most 513, one more than the model's context)"
    wrong '"temperature":-1' 'temperature is -1 (expected a number from 0 to 1e+06)'
    wrong '"top_p":1.5' 'top_p is 1.5 (expected a number from 0 to 1)'
    wrong '"top_k":"a"' 'top_k is "a" (expected a whole number from 0 to 2147483647)'
    wrong '"seed":0.5' 'seed is 0.5 (expected a whole number from 0 to 2^64 - 1)'
    wrong '"seed":18446744073709551616' 'seed is 1.8446744073709552e+19 (expected a whole number from 0 to 2^64 - 1)'
    wrong '"stop":5' 'stop is 5 (expected a string, or an array of at most 16 strings)'
    wrong '"stop":[""]' 'stop[0] is "" (expected a string of at least one character, without NUL)'
}

# bats test_tags=long
@test "hf-infer: JSON objects with a prompt are no plain text, unless --as-text says so" {
    # the text's ids, by the library's rule that a text is what it is
    for line in '{"id":1,"text":"a b"}' '{"title":"a"}' '{"prompt":"a"}' '{"ids":[1]}' '[ {"messages":[]},' $'\357\273\277 {"te\\u0078t":"a"}'; do
        printf '%s\n%s\n' "$line" '{"text":"c"}' >d.txt
        for how in '--acts resid:0' --nll '-n 1' '--top 1' --encode '--logits l.npy'; do
            # shellcheck disable=SC2086
            run -2 --separate-stderr hf-infer "$DEMO" $how --file d.txt
            [[ ${stderr_lines[0]} == "hf-infer: d.txt: begins with a JSON object that has \""*"--as-text takes it as plain text" ]]
            [ -z "$output" ] && [ ! -e l.npy ]
        done
        run -2 --separate-stderr hf-infer "$DEMO" --nll <d.txt
        [[ ${stderr_lines[0]} == "hf-infer: standard input: "*"--jsonl reads one object per line, --as-text "* ]]
        hf-infer "$DEMO" --encode --as-text <d.txt | hf-infer "$DEMO" --decode | cmp - d.txt
        hf-infer "$DEMO" --encode -p "$(cat d.txt; echo .)" >typed
    done
    for line in '{"a":{"text":1}}' '{"text":"a"' '{text}' '["text"]' 'x {"text":"a"}' ''; do
        printf %s "$line" >d.txt
        hf-infer "$DEMO" --encode --file d.txt | hf-infer "$DEMO" --decode | cmp - d.txt
    done
    run -2 hf-infer "$DEMO" --as-text --jsonl
}

# bats test_tags=long
@test "hf-infer --jsonl: progress on a terminal, where the answers do not go there" {
    endless
    prompts 60 >p.jsonl
    # tty OPTION...: what a terminal shows of its standard error
    tty() {
        "$PYTHON" - "$@" <<'END'
import os, pty, subprocess, sys
ours, theirs = pty.openpty()
p = subprocess.Popen(['hf-infer', 'm', '--jsonl', '--file', 'p.jsonl', '-n', '60', '--greedy'] + sys.argv[1:],
                     stdout=theirs if '--here' in os.environ.get('HOW', '') else open('out', 'w'), stderr=theirs)
os.close(theirs)
seen = b''
try:
    while piece := os.read(ours, 65536):
        seen += piece
except OSError: # the other end is closed
    pass
assert p.wait() == 0
sys.stdout.buffer.write(seen)
END
    }
    [[ $(tty) == *token* ]]
    [ "$(wc -l <out)" = 60 ]
    [ -z "$(tty -q)" ]
    HOW=--here tty >both
    [ "$(grep -c finish_reason both)" = 60 ]
    run -1 grep -q 'tokens:\|token/s\|tokens/s' both
}

@test "hf-infer --jsonl: members that are not known are named, each once" {
    cat >p.jsonl <<'END'
{"ids":[16],"max_new_tokens":5,"meta":{"max_tokens":1}}
{"ids":[16],"meta":1,"id":1}
{"ids":[16],"Temperature":1}
END
    run -0 --separate-stderr hf-infer "$DEMO" --jsonl -n 1 --greedy --file p.jsonl
    [ "$(sort <<<"$stderr")" = 'hf-infer: p.jsonl: line 1: member "max_new_tokens" is not known, ignored here and below
hf-infer: p.jsonl: line 1: member "meta" is not known, ignored here and below
hf-infer: p.jsonl: line 3: member "Temperature" is not known, ignored here and below' ]
    run -0 --separate-stderr hf-infer "$DEMO" --jsonl -n 1 --greedy --file p.jsonl -q
    [ -z "$stderr" ]
    # documents of a data set have members of all kinds
    run -0 --separate-stderr hf-infer "$DEMO" --nll --jsonl -q --file p.jsonl
    [ -z "$stderr" ]
}

@test "hf-infer --jsonl: a member that is null is not there" {
    echo '{"prompt":"1+1=","text":null,"ids":null}' | hf-infer "$DEMO" --jsonl -n 4 --greedy >nulls
    echo '{"prompt":"1+1="}' | hf-infer "$DEMO" --jsonl -n 4 --greedy >want
    cmp nulls want
}

@test "hf-infer --jsonl: an answer does not wait for the next prompt" {
    mkfifo in out
    hf-infer "$DEMO" --jsonl -n 3 --greedy <in >out 3>&- &
    exec 6>in 7<out
    for i in 1 2 3; do
        echo "{\"id\":$i,\"prompt\":\"1+1=\"}" >&6
        read -r -t 60 line <&7
        [[ $line == "{\"id\":$i,"* ]]
    done
    exec 6>&- 7<&-
    wait $!
}

@test "hf-infer: documents in a directory, unreadable, of a pipe without a writer yet" {
    mkdir directory
    for how in "--jsonl -n 1 --greedy" "--acts resid:0 --as-text" "--acts resid:0 --jsonl"; do
        run -66 --separate-stderr hf-infer "$DEMO" $how --file directory
        [ "$stderr" = "hf-infer: directory: is a directory, not a file" ]
        run -66 --separate-stderr hf-infer "$DEMO" $how --file none
        [ "$stderr" = "hf-infer: none: No such file or directory" ]
        # nothing is mapped at its byte 0
        run -74 --separate-stderr hf-infer "$DEMO" $how --file /proc/self/mem
        [ "$stderr" = "hf-infer: /proc/self/mem: cannot be read: Input/output error" ]
        rm -f p
        mkfifo p
        hf-infer "$DEMO" $how --file p >got &
        sleep 0.2
        echo '{"ids":[16,10]}' >p
        wait $!
        [ -s got ]
    done
}

@test "hf-infer --jsonl: an endless input, read by head, ends quietly" {
    endless() {
        yes '{"ids":[16,10]}' | hf-infer "$DEMO" --jsonl -n 1 2>err |
            head -n 300 >out
        echo "${PIPESTATUS[@]:1}"
    }
    run -0 endless
    [ "$output" = "141 0" ] # SIGPIPE; and head had its lines
    [ "$(wc -l <out)" = 300 ]
    [ ! -s err ]
}

@test "hf-infer --jsonl: no prompts, no tokens" {
    run -0 --separate-stderr hf-infer "$DEMO" --jsonl </dev/null
    [ -z "$output$stderr" ]
    run -0 hf-infer "$DEMO" --jsonl -n 0 <<<'{"id":7,"prompt":"1+1="}'
    [ "$output" = '{"id":7,"text":"","ids":[],"finish_reason":"length"}' ]
    run -66 hf-infer "$DEMO" --jsonl --file nowhere
}

@test "hf-infer --jsonl: without a tokenizer ids go in and out" {
    cp -r "$DEMO" m
    rm m/tokenizer.json
    run -0 hf-infer m --jsonl -n 2 --greedy <<<'{"ids":[16,10,16,28]}'
    [ "$output" = "$(hf-infer "$DEMO" --jsonl -n 2 --greedy \
        <<<'{"ids":[16,10,16,28]}' | sed 's/"text":"[^"]*",//')" ]
    run -66 --separate-stderr hf-infer m --jsonl <<<'{"prompt":"a"}'
    [[ $stderr == *m/tokenizer.json* ]]
    # what ends before a text needs the text
    run -66 --separate-stderr hf-infer m --jsonl --stop x <<<'{"ids":[16]}'
    [ "$stderr" = "hf-infer: m/tokenizer.json: No such file or directory" ]
    run -66 hf-infer m --ids 16 --json --stop x
}

@test "hf-infer --jsonl: what it does not go with is a usage error" {
    for bad in '-p a' '--ids 1' --json --ids-out '--top 3' '--batch 0'; do
        # shellcheck disable=SC2086
        run -2 hf-infer "$DEMO" --jsonl $bad </dev/null
    done
    run -2 hf-infer "$DEMO" -p a --batch 2
}
