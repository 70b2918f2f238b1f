# SPDX-License-Identifier: ISC
"""turns_ref.py [DIR]: what of conversations a model says, for test/unit/turns.c.

A JSON object a line: "template" and "vars"; "tokenizer", whose special tokens
are those of the template, and "eos", its ids; "said", the texts that the model
says, read off the templates by hand, or "error", what the message has; and
"trl", as trl finds replies: each prefix of the messages that ends before one,
rendered with a generation prompt, and each that ends with it, by Jinja2.  null
where one is none of the whole text.  With DIR, published templates.
"""
import json
import os
import sys

from chat_template_ref import render

# ---- templates of these tests, by the forms of published ones ----

CHATML = ("{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + "
          "m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
          "{% endif %}")
# the same, but names what is said
MARKED = """\
{%- for m in messages %}
    {%- if m.role == 'assistant' %}
        {{- '<|im_start|>assistant\n' }}
        {%- generation %}{{- m.content + '<|im_end|>' }}{%- endgeneration %}
        {{- '\n' }}
    {%- else %}
        {{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
"""
# reasoning before the last question is left out; an answer after it has a place
# for some, if it is the last message
THINKS = """\
{%- set ns = namespace(last=-1) %}
{%- for m in messages if m.role == 'user' %}
    {%- set ns.last = messages.index(m) if false else ns.last %}
{%- endfor %}
{%- for m in messages %}
    {%- if m.role == 'user' and '<tool_response>' not in m.content %}
        {%- set ns.last = loop.index0 %}
    {%- endif %}
{%- endfor %}
{%- for m in messages %}
    {%- set content = m.content.split('</think>')[-1].lstrip('\n') %}
    {%- set thought = m.content.split('</think>')[0].split('<think>')[-1].strip('\n')
            if '</think>' in m.content else '' %}
    {{- '<|im_start|>' + m.role + '\n' }}
    {%- if m.role == 'assistant' and loop.index0 > ns.last and (loop.last or thought) %}
        {{- '<think>\n' + thought + '\n</think>\n\n' }}
    {%- endif %}
    {{- (content if m.role == 'assistant' else m.content) + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and not enable_thinking %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}
""".replace("""\
{%- for m in messages if m.role == 'user' %}
    {%- set ns.last = messages.index(m) if false else ns.last %}
{%- endfor %}
""", "")
LLAMA3 = ("{% for m in messages %}{% set c = '<|start_header_id|>' + m['role'] "
          "+ '<|end_header_id|>\n\n' + m['content'] | trim + '<|eot_id|>' %}"
          "{% if loop.first %}{% set c = bos_token + c %}{% endif %}{{ c }}"
          "{% endfor %}{% if add_generation_prompt %}"
          "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}")
# the system's text stands in the last question; there is no generation prompt
MISTRAL = """\
{%- set rest = messages[1:] if messages[0].role == 'system' else messages %}
{{- bos_token }}
{%- for m in rest %}
    {%- if m.role == 'user' and messages[0].role == 'system'
            and (loop.last or loop.index + 1 == rest | length) %}
        {{- '[INST] ' + messages[0].content + '\n\n' + m.content + '[/INST]' }}
    {%- elif m.role == 'user' %}
        {{- '[INST] ' + m.content + '[/INST]' }}
    {%- elif m.tool_calls %}
        {{- '[TOOL_CALLS]' + m.tool_calls | tojson + eos_token }}
    {%- elif m.role == 'tool' %}
        {{- '[TOOL_RESULTS]' + m.content + '[/TOOL_RESULTS]' }}
    {%- else %}
        {{- ' ' + m.content + eos_token }}
    {%- endif %}
{%- endfor %}
"""
# channels; the last reply has another end, and a tool's turn the name of what
# the assistant has called
CHANNELS = """\
{%- set ns = namespace(name='') %}
{%- for m in messages %}
    {%- if m.tool_calls %}
        {{- '<|start|>assistant to=' + m.tool_calls[0].name + '<|message|>' }}
        {{- m.tool_calls[0].arguments | tojson + '<|call|>' }}
        {%- set ns.name = m.tool_calls[0].name %}
    {%- elif m.role == 'tool' %}
        {{- '<|start|>' + ns.name + '<|message|>' + m.content + '<|end|>' }}
    {%- elif m.role == 'assistant' %}
        {%- if m.thinking and loop.last and not add_generation_prompt %}
            {{- '<|start|>assistant<|channel|>analysis<|message|>' + m.thinking + '<|end|>' }}
        {%- endif %}
        {{- '<|start|>assistant<|channel|>final<|message|>' + m.content }}
        {{- '<|return|>' if loop.last and not add_generation_prompt else '<|end|>' }}
    {%- else %}
        {{- '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}
"""
# a turn ends where the next begins, and a prompt for the assistant is always
# the end
OPEN = ("{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{% endfor %}"
        "<|assistant|>")
# a text of letters alone, as of models without special tokens
PLAIN = ("{% for m in messages %}{{ m.role | upper }}: {{ m.content }}\n"
         "{% endfor %}{% if add_generation_prompt %}ASSISTANT: {% endif %}")
# a prompt that replies do not have
PROMPTS = CHATML.replace("assistant\n", "assistant\n<think>\n")
# each special token that a call has is one that does not end it
CALLS = """\
{%- for m in messages %}
    {{- '<|im_start|>' + m.role + '\n' + m.content }}
    {%- for call in m.tool_calls or [] %}
        {{- '<|call|>' + call.name + '<|done|>' }}
    {%- endfor %}
    {{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}
"""

IM = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]
LLAMA = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
         "<|eot_id|>"]
INST = ["<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[TOOL_RESULTS]",
        "[/TOOL_RESULTS]"]
HARMONY = ["<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|call|>",
           "<|return|>"]


def chat(*lines, **variables):
    """Messages of "user: Hi"; a dictionary is one."""
    messages = [line if isinstance(line, dict) else
                dict(zip(("role", "content"), line.split(": ", 1)))
                for line in lines]
    return {"messages": messages, **variables}


CALL = {"role": "assistant", "content": "", "tool_calls": [
    {"name": "sky", "arguments": {"place": "Zürich"}}]}

# name, template, special tokens, those that end a reply, variables, and what is
# said, or the error
OWN = [
    ("chatml", CHATML, IM, ["<|im_end|>"],
     chat("system: S", "user: a", "assistant: \nb\n", "user: <|im_end|>",
          "assistant: "),
     ["\nb\n<|im_end|>", "<|im_end|>"]),
    ("chatml, of which no eos is known", CHATML, IM, [],
     chat("user: a", "assistant: b", "user: c", "assistant: d"),
     ["b<|im_end|>", "d<|im_end|>"]),
    ("chatml, any order of roles", CHATML, IM, ["<|im_end|>"],
     chat("assistant: b", "assistant: c", "system: S"),
     ["b<|im_end|>", "c<|im_end|>"]),
    ("chatml, an end in a reply is text", CHATML, IM, ["<|im_end|>"],
     chat("user: a", "assistant: x<|im_end|>y", "user: c"),
     ["x<|im_end|>y<|im_end|>"]),
    ("chatml, no reply", CHATML, IM, ["<|im_end|>"], chat("user: a"), []),
    ("chatml with generation blocks", MARKED, IM, [],
     chat("system: S", "user: a", "assistant: b", "user: c", "assistant: d"),
     ["b<|im_end|>", "d<|im_end|>"]),
    ("generation blocks, no reply", MARKED, IM, [], chat("user: a"), []),
    ("thinks, the last reply has a place for it", THINKS, IM, ["<|im_end|>"],
     chat("user: a", "assistant: b", "user: c", "assistant: \nd"),
     ["b<|im_end|>", "<think>\n\n</think>\n\nd<|im_end|>"]),
    ("thinks, before the last question it is left out", THINKS, IM,
     ["<|im_end|>"],
     chat("user: a", "assistant: <think>\nx\n</think>\n\nb", "user: c",
          "assistant: <think>\ny\n</think>\n\nd"),
     ["b<|im_end|>", "<think>\ny\n</think>\n\nd<|im_end|>"]),
    ("thinks, two replies: the first has no empty thought", THINKS, IM,
     ["<|im_end|>"], chat("user: a", "assistant: b", "assistant: c"),
     ["b<|im_end|>", "<think>\n\n</think>\n\nc<|im_end|>"]),
    ("thinks, what a tool answers is no question", THINKS, IM, ["<|im_end|>"],
     chat("user: a", "assistant: <think>\nx\n</think>\n\nb",
          "user: <tool_response>\n1\n</tool_response>", "assistant: c"),
     ["<think>\nx\n</think>\n\nb<|im_end|>",
      "<think>\n\n</think>\n\nc<|im_end|>"]),
    ("thinks, without: a prompt that one reply has", THINKS, IM,
     ["<|im_end|>"],
     chat("user: a", "assistant: b", enable_thinking=False), ["b<|im_end|>"]),
    ("thinks, without: and that an earlier one does not have", THINKS, IM,
     ["<|im_end|>"],
     chat("user: a", "assistant: b", "user: c", "assistant: d",
          enable_thinking=False),
     'messages[1]: its prompt ends with "<|im_end|>\\n<|im_start|>assistant\\n'
     '<think>\\n\\n</think>\\n\\n", which'),
    ("llama3, which trims", LLAMA3, LLAMA, ["<|eot_id|>"],
     chat("system: S", "user: a ", "assistant:  b\n", "user: c",
          "assistant: d", bos_token="<|begin_of_text|>"),
     ["b<|eot_id|>", "d<|eot_id|>"]),
    ("mistral, whose earlier prompt has the system's text", MISTRAL, INST,
     ["</s>"],
     chat("system: S", "user: a", "assistant: b", "user: c", "assistant: d",
          bos_token="<s>", eos_token="</s>"), [" b</s>", " d</s>"]),
    ("mistral, of which no eos is known", MISTRAL, INST, [],
     chat("user: a", "assistant: b", "user: c", "assistant: d",
          bos_token="<s>", eos_token="</s>"), [" b</s>", " d</s>"]),
    ("mistral, [INST] no special token", MISTRAL, INST[:2], ["</s>"],
     chat("system: S", "user: a", "assistant: b", "user: c", "assistant: d",
          bos_token="<s>", eos_token="</s>"), [" b</s>", " d</s>"]),
    ("mistral, a call", MISTRAL, INST, ["</s>"],
     chat("user: a", CALL, "tool: 5", "assistant: d",
          bos_token="<s>", eos_token="</s>"),
     ['[TOOL_CALLS][{"name": "sky", "arguments": {"place": "Zürich"}}]</s>',
      " d</s>"]),
    ("channels", CHANNELS, HARMONY, ["<|return|>", "<|call|>"],
     chat("user: a", "assistant: b", "user: c",
          {"role": "assistant", "content": "d", "thinking": "hm"}),
     ["<|channel|>final<|message|>b<|end|>",
      "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>"
      "final<|message|>d<|return|>"]),
    ("channels, a call, whose name is the tool's turn's, too", CHANNELS,
     HARMONY, ["<|return|>", "<|call|>"],
     chat("user: a", CALL, "tool: 5", "assistant: d"),
     [' to=sky<|message|>{"place": "Zürich"}<|call|>',
      "<|channel|>final<|message|>d<|return|>"]),
    ("open turns", OPEN, ["<|system|>", "<|user|>", "<|assistant|>"],
     ["<|user|>"],
     chat("user: a", "assistant: b", "user: c", "assistant: d"),
     ["\nb", "\nd"]),
    ("letters alone", PLAIN, [], [],
     chat("user: a", "assistant: b", "user: c", "assistant: d"), ["b", "d"]),
    ("a call of special tokens ends with the eos", CALLS,
     IM + ["<|call|>", "<|done|>"], ["<|im_end|>"],
     chat("user: a", CALL, "tool: 5", "assistant: d"),
     ["<|call|>sky<|done|><|im_end|>", "d<|im_end|>"]),
    ("an end of which a message has the first or last byte is text",
     "{% for m in messages %}{{ m.role }}: {{ m.content }}|><|{{ m.more }}"
     "<|im_end|>{% endfor %}{{ 'assistant: ' if add_generation_prompt }}", IM,
     ["<|im_end|>"],
     chat("user: a", {"role": "assistant", "content": "b<|im_end",
                      "more": "im_end|>c"}),
     ["b<|im_end|><|im_end|>c<|im_end|>"]),
    ("nothing behind a message to look for",
     "{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}",
     [], [], chat("user: a", "assistant: b"),
     'messages[1]: its prompt ends with "1a", which'),
    ("a prompt that no reply has", PROMPTS, IM, ["<|im_end|>"],
     chat("user: a", "assistant: b"),
     'messages[1]: its prompt ends with "<|im_end|>\\n<|im_start|>assistant\\n'
     '<think>\\n", which'),
    ("a prompt that cannot be rendered",
     "{{ raise_exception('no question') if not messages }}" + CHATML, IM,
     ["<|im_end|>"], chat("assistant: b", "user: c"),
     "messages[0]: its prompt, the 0 messages before it: "),
]

# Published templates: special tokens, those that end a reply, and of
# conversations what is said.  Replies of "multi" and "system-multi-nogen" and
# the call of "tool-turns" as the template renders them.
SHARED = {
    "Qwen-Qwen3-0.6B": (IM, IM[1:], {
        "multi": ["Hello! How can I help?<|im_end|>", "Blue.<|im_end|>"],
        "system-multi-nogen": [
            "Arr!<|im_end|>", "<think>\n\n</think>\n\nFair winds.<|im_end|>"],
        "tool-turns": [
            '<tool_call>\n{"name": "get_weather", "arguments": '
            '{"place": "Zürich", "days": 3}}\n</tool_call><|im_end|>',
            "It is clear.<|im_end|>"],
        "think-history": ["Yes.<|im_end|>"]}),
    "Qwen-Qwen2.5-7B-Instruct": (IM, IM[1:], {
        "multi": ["Hello! How can I help?<|im_end|>", "Blue.<|im_end|>"],
        "system-multi-nogen": ["Arr!<|im_end|>", "Fair winds.<|im_end|>"],
        "tool-turns": [
            '<tool_call>\n{"name": "get_weather", "arguments": '
            '{"place": "Zürich", "days": 3}}\n</tool_call><|im_end|>',
            "It is clear.<|im_end|>"]}),
    "HuggingFaceTB-SmolLM3-3B": (IM, IM[1:2], {
        "multi": ["Hello! How can I help?<|im_end|>", "Blue.<|im_end|>"],
        "system-multi-nogen": ["Arr!<|im_end|>", "Fair winds.<|im_end|>"],
        # it does not render calls
        "tool-turns": ["<|im_end|>", "It is clear.<|im_end|>"]}),
    "chatml-OpenHermes-2.5": (IM, IM[1:2], {
        "multi": ["Hello! How can I help?<|im_end|>", "Blue.<|im_end|>"],
        "system-multi-nogen": ["Arr!<|im_end|>", "Fair winds.<|im_end|>"],
        "tool-turns": ["<|im_end|>", "It is clear.<|im_end|>"]}),
    "meta-llama-Llama-3.1-8B-Instruct": (
        LLAMA + ["<|eom_id|>", "<|end_of_text|>"], ["<|eot_id|>"], {
            "multi": ["Hello! How can I help?<|eot_id|>", "Blue.<|eot_id|>"],
            "system-multi-nogen": ["Arr!<|eot_id|>", "Fair winds.<|eot_id|>"],
            "spaces": ["padded answer<|eot_id|>"],
            "tool-turns": [
                '{"name": "get_weather", "parameters": {"place": "Zürich", '
                '"days": 3}}<|eot_id|>', "It is clear.<|eot_id|>"]}),
    "google-gemma-3": (
        ["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"],
        ["<eos>", "<end_of_turn>"], {
            "multi": ["Hello! How can I help?<end_of_turn>",
                      "Blue.<end_of_turn>"],
            "system-multi-nogen": ["Arr!<end_of_turn>",
                                   "Fair winds.<end_of_turn>"]}),
    "mistralai-Mistral-Nemo-Instruct-2407": (
        INST + ["[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"], ["</s>"], {
            "multi": ["Hello! How can I help?</s>", "Blue.</s>"],
            "system-multi-nogen": ["Arr!</s>", "Fair winds.</s>"],
            "tool-turns": [
                '[TOOL_CALLS][{"name": "get_weather", "arguments": {"place": '
                '"Zürich", "days": 3}, "id": "call00001"}]</s>',
                "It is clear.</s>"]}),
    "ibm-granite-granite-3.0": (
        ["<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>"],
        ["<|end_of_text|>"], {
            "multi": ["Hello! How can I help?<|end_of_text|>",
                      "Blue.<|end_of_text|>"],
            "system-multi-nogen": ["Arr!<|end_of_text|>",
                                   "Fair winds.<|end_of_text|>"],
            "tool-turns": ["<|end_of_text|>", "It is clear.<|end_of_text|>"]}),
    "microsoft-Phi-4-mini-instruct": (
        ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>",
         "<|endoftext|>"], ["<|end|>", "<|endoftext|>"], {
            "multi": ["Hello! How can I help?<|end|>", "Blue.<|end|>"],
            "system-multi-nogen": ["Arr!<|end|>", "Fair winds.<|end|>"],
            "tool-turns": ["<|end|>", "It is clear.<|end|>"]}),
    # a turn ends where the next one begins; the text ends with <|assistant|>,
    # which the model does not say
    "THUDM-glm-4-9b": (
        ["<|system|>", "<|user|>", "<|assistant|>", "<|observation|>",
         "<|endoftext|>"], ["<|endoftext|>", "<|user|>", "<|observation|>"], {
            "multi": ["\nHello! How can I help?<|user|>", "\nBlue.<|user|>"],
            "system-multi-nogen": ["\nArr!<|user|>", "\nFair winds."],
            "tool-turns": ["\nIt is clear.<|user|>"]}),
    "openai-gpt-oss-120b": (
        HARMONY + ["<|endoftext|>"], ["<|return|>", "<|endoftext|>",
                                      "<|call|>"], {
            "multi": [
                "<|channel|>final<|message|>Hello! How can I help?<|end|>",
                "<|channel|>final<|message|>Blue.<|end|>"],
            "system-multi-nogen": [
                "<|channel|>final<|message|>Arr!<|end|>",
                "<|channel|>final<|message|>Fair winds.<|return|>"],
            "tool-turns": [
                ' to=functions.get_weather<|channel|>commentary json'
                '<|message|>{"place": "Zürich", "days": 3}<|call|>',
                "<|channel|>final<|message|>It is clear.<|end|>"]}),
    # it never renders what its prompt ends with
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": (
        ["<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>"],
        ["<｜end▁of▁sentence｜>"], {
            "multi": 'messages[1]: its prompt ends with "<｜Assistant｜>'
                     '<think>\\n</think>", which'}),
}
# Whose texts end with what no reply ends with: "<|assistant|>", or an eos more.
OTHER_ENDS = {"THUDM-glm-4-9b", "microsoft-Phi-4-mini-instruct", "open turns"}


def tokenizer(special):
    """Of bytes, and special tokens."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    vocab = {chr(b): i for i, b in enumerate(plain)}
    vocab.update({chr(256 + i): len(plain) + i for i in range(len(rest))})
    step = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    return json.dumps({
        "pre_tokenizer": step, "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
        "added_tokens": [{"id": 256 + i, "content": word, "special": True,
                          "normalized": False}
                         for i, word in enumerate(special)]})


def trl(template, variables, whole, ends):
    """[begin, end] in bytes of each reply, or [begin, None]."""
    spans = []
    for i, m in enumerate(variables["messages"]):
        if m["role"] != "assistant":
            continue
        prompt = render(template, {**variables, "add_generation_prompt": True,
                                   "messages": variables["messages"][:i]})
        reply = render(template, {**variables,
                                  "messages": variables["messages"][:i + 1]})
        if not whole.startswith(prompt.get("expected", "\0")):
            return None
        begin, end = prompt["expected"], reply.get("expected", "\0")
        same = ends and whole.startswith(end)
        spans.append([len(begin.encode()),
                      len(end.rstrip().encode()) if same else None])
    return spans


def put(name, template, special, eos, variables, want):
    variables = {"tools": None, "documents": None, **variables,
                 "add_generation_prompt": False}
    got = render(template, variables)
    case = {"name": name, "template": template, "vars": variables,
            "tokenizer": tokenizer(special),
            "eos": [256 + special.index(word) for word in eos],
            "text": got["expected"], "trl": None}
    if "{%- generation" not in template:
        case["trl"] = trl(template, variables, got["expected"],
                          name.split(":")[0] not in OTHER_ENDS)
    else:  # as in transformers' return_assistant_tokens_mask
        assert [got["expected"][a:b] for a, b in got["said"]] == want
    case["said" if isinstance(want, list) else "error"] = want
    print(json.dumps(case))


def main():
    if len(sys.argv) < 2:
        for case in OWN:
            put(*case)
        return
    folder = sys.argv[1]
    with open(os.path.join(folder, "conversations.json")) as f:
        conversations = json.load(f)
    for name, (special, eos, wants) in SHARED.items():
        path = os.path.join(folder, name)
        with open(path + ".jinja", encoding="utf-8", newline="") as f:
            template = f.read()
        with open(path + ".cases.jsonl", encoding="utf-8") as f:
            tokens = json.loads(f.readline())
        for which, want in wants.items():
            put(name + ": " + which, template, special, eos,
                {"bos_token": tokens["bos_token"],
                 "eos_token": tokens["eos_token"], **conversations[which]},
                want)


if __name__ == "__main__":
    main()
