/* SPDX-License-Identifier: ISC */
/*
 * Chat templates.  Expected are the strings that the published chat_templates
 * give, read off by hand, a special token in braces.
 */
#include "core/text/chat_forms.h"

#include "test/unit/tap.h"
#include "test/unit/tok.h"

/* Of ByteLevel's alphabet. */
#define SPACE   "\xc4\xa0"
#define NEWLINE "\xc4\x8a"

/* A tokenizer of single characters and these special tokens. */
static struct tok *
make_tok(const char *parts, const char *const *special)
{
    struct str json = { 0 };
    struct err err = { 0 };
    struct tok *tok = NULL;
    int id = 0;

    str_addf(&json, "{%s\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{",
             parts);
    for (char c = ' '; c <= '~'; c++) {
        str_addc(&json, id ? ',' : ' ');
        js_put_str(&json, &c, 1);
        str_addf(&json, ":%d", id++);
    }
    str_addf(&json,
             ",\"\\n\":%d,\"" M "\":%d,\"" SPACE "\":%d,\"" NEWLINE
             "\":%d}},\"added_tokens\":[",
             id, id + 1, id + 2, id + 3);
    id += 4;
    for (int i = 0; special[i]; i++)
        str_addf(&json,
                 "%s{\"id\":%d,\"content\":\"%s\",\"special\":true,"
                 "\"normalized\":false}",
                 i ? "," : "", id++, special[i]);
    str_adds(&json, "]}");
    if (tok_parse(&tok, json.s, json.n, "t", &err) < 0)
        printf("# %s\n", err.what);
    str_free(&json);
    return tok;
}

/* What the assistant says stands between carets. */
static void
put_tokens(struct str *text, const struct tok *tok, const struct ids *ids,
           const struct chat_message *m, size_t n_messages)
{
    for (size_t i = 0; i <= ids->n; i++) {
        size_t n = 0;
        const char *s = i < ids->n ? tok_text(tok, ids->id[i], &n) : NULL;
        bool special = i < ids->n && tok_is_special(tok, ids->id[i]);

        for (size_t k = 0; k < n_messages; k++)
            if (m[k].begin != m[k].end && (i == m[k].begin || i == m[k].end))
                str_addc(text, '^');
        str_adds(text, special ? "{" : "");
        str_add(text, s ? s : "", n);
        str_adds(text, special ? "}" : "");
    }
}

/* What messages, "system: S", "user: Hi", "assistant: Oh", give; or the error.
 */
static void
whole(const char *name, const struct tok *tok, enum chat_form chat,
      const char *const *lines, const char *want)
{
    struct chat_message m[8] = { 0 };
    struct str text = { 0 };
    struct ids ids = { 0 };
    struct err err = { 0 };
    size_t n = 0;

    for (; lines[n]; n++) {
        m[n].role = lines[n][0] == 's'   ? CHAT_SYSTEM
                    : lines[n][0] == 'u' ? CHAT_USER
                                         : CHAT_ASSISTANT;
        m[n].text = strchr(lines[n], ' ') + 1;
        m[n].nbytes = strlen(m[n].text);
    }
    if (chat_form_encode(tok, chat, m, n, false, 0, &ids, &err) == 0)
        put_tokens(&text, tok, &ids, m, n);
    else
        str_adds(&text, err.what);
    if (!tap_ok(same_text(&text, want, strlen(want)), "chat: %s", name))
        printf("# %s\n", text.n ? text.s : "nothing");
    str_free(&text);
    ids_free(&ids);
}

static void
gives(const char *name, const struct tok *tok, int chat, const char *system,
      const char *user, const char *want)
{
    struct str text = { 0 };
    struct ids ids = { 0 };
    struct err err = { 0 };
    struct chat_message m[] = {
        { CHAT_SYSTEM, system, system ? strlen(system) : 0, 0, 0 },
        { CHAT_USER, user, strlen(user), 0, 0 },
    };
    size_t first = system ? 0 : 1;

    if (chat < 0)
        chat = chat_form_recognise(tok, &err);
    if (chat >= 0 && chat_form_encode(tok, (enum chat_form)chat, m + first,
                                      2 - first, true, 0, &ids, &err) == 0)
        put_tokens(&text, tok, &ids, NULL, 0);
    if (!tap_ok(same_text(&text, want, strlen(want)), "chat: %s", name))
        printf("# %s %s\n", text.n ? text.s : "nothing", err.what);
    str_free(&text);
    ids_free(&ids);
}

static void
test_chatml(void)
{
    struct tok *tok =
        make_tok("", WORDS("<|endoftext|>", "<|im_start|>", "<|im_end|>"));

    gives("chatml", tok, -1, NULL, "Hi\n",
          "{<|im_start|>}user\nHi\n{<|im_end|>}\n{<|im_start|>}assistant\n");
    gives("chatml with a system text", tok, CHAT_CHATML, "Be kind", "Hi",
          "{<|im_start|>}system\nBe kind{<|im_end|>}\n"
          "{<|im_start|>}user\nHi{<|im_end|>}\n{<|im_start|>}assistant\n");
    gives("chatml, a mark in the user's text is text", tok, CHAT_CHATML, NULL,
          "<|im_end|>",
          "{<|im_start|>}user\n<|im_end|>{<|im_end|>}\n"
          "{<|im_start|>}assistant\n");
    whole("chatml, a conversation: replies and their ends are the model's", tok,
          CHAT_CHATML,
          WORDS("system: S", "user: a", "assistant: \nb\n", "user: <|im_end|>",
                "assistant: "),
          "{<|im_start|>}system\nS{<|im_end|>}\n"
          "{<|im_start|>}user\na{<|im_end|>}\n"
          "{<|im_start|>}assistant\n^\nb\n{<|im_end|>}^\n"
          "{<|im_start|>}user\n<|im_end|>{<|im_end|>}\n"
          "{<|im_start|>}assistant\n^{<|im_end|>}^\n");
    whole("chatml, any order of roles", tok, CHAT_CHATML,
          WORDS("assistant: b", "assistant: c", "system: S"),
          "{<|im_start|>}assistant\n^b{<|im_end|>}^\n"
          "{<|im_start|>}assistant\n^c{<|im_end|>}^\n"
          "{<|im_start|>}system\nS{<|im_end|>}\n");
    whole("qwen3 needs its marks", tok, CHAT_QWEN3,
          WORDS("user: a", "assistant: b"),
          "t: has no <think>, which template qwen3 needs");
    tok_close(tok);
}

static void
test_qwen3(void)
{
    struct tok *tok = make_tok(
        "", WORDS("<|im_start|>", "<|im_end|>", "<think>", "</think>"));

    whole("qwen3, the last reply has a place for what it thought", tok,
          CHAT_QWEN3,
          WORDS("user: a", "assistant: b", "user: c", "assistant: \nd"),
          "{<|im_start|>}user\na{<|im_end|>}\n"
          "{<|im_start|>}assistant\n^b{<|im_end|>}^\n"
          "{<|im_start|>}user\nc{<|im_end|>}\n"
          "{<|im_start|>}assistant\n^{<think>}\n\n{</think>}\n\n"
          "d{<|im_end|>}^\n");
    whole("qwen3, what it thought before the last question is left out", tok,
          CHAT_QWEN3,
          WORDS("user: a", "assistant: <think>\nx\n</think>\n\nb", "user: c",
                "assistant: <think>\ny\n</think>\n\nd"),
          "{<|im_start|>}user\na{<|im_end|>}\n"
          "{<|im_start|>}assistant\n^b{<|im_end|>}^\n"
          "{<|im_start|>}user\nc{<|im_end|>}\n"
          "{<|im_start|>}assistant\n^{<think>}\ny\n{</think>}\n\n"
          "d{<|im_end|>}^\n");
    whole("qwen3, two replies: the first has no empty thought", tok, CHAT_QWEN3,
          WORDS("user: a", "assistant: b", "assistant: c"),
          "{<|im_start|>}user\na{<|im_end|>}\n"
          "{<|im_start|>}assistant\n^b{<|im_end|>}^\n"
          "{<|im_start|>}assistant\n^{<think>}\n\n{</think>}\n\n"
          "c{<|im_end|>}^\n");
    whole("qwen3, without a question no reply has a thought", tok, CHAT_QWEN3,
          WORDS("system: S", "assistant: <think>\nx\n</think>\n\nb"),
          "{<|im_start|>}system\nS{<|im_end|>}\n"
          "{<|im_start|>}assistant\n^b{<|im_end|>}^\n");
    whole("qwen3, what a tool answers is no question", tok, CHAT_QWEN3,
          WORDS("user: a", "assistant: <think>\nx\n</think>\n\nb",
                "user: <tool_response>\n1\n</tool_response>", "assistant: c"),
          "{<|im_start|>}user\na{<|im_end|>}\n"
          "{<|im_start|>}assistant\n^{<think>}\nx\n{</think>}\n\n"
          "b{<|im_end|>}^\n"
          "{<|im_start|>}user\n<tool_response>\n1\n</tool_response>"
          "{<|im_end|>}\n"
          "{<|im_start|>}assistant\n^{<think>}\n\n{</think>}\n\n"
          "c{<|im_end|>}^\n");
    tok_close(tok);
}

static void
test_llama3(void)
{
    struct tok *tok =
        make_tok("", WORDS("<|begin_of_text|>", "<|start_header_id|>",
                           "<|end_header_id|>", "<|eot_id|>"));

    gives("llama3, which trims", tok, -1, NULL, " \nHi there\n",
          "{<|begin_of_text|>}{<|start_header_id|>}user{<|end_header_id|>}\n\n"
          "Hi there{<|eot_id|>}"
          "{<|start_header_id|>}assistant{<|end_header_id|>}\n\n");
    gives("llama3, which trims as Python does", tok, -1, NULL,
          "\xe3\x80\x80\x1c\xc2\xa0Hi there\xc2\x85\xe2\x80\x88\x1f",
          "{<|begin_of_text|>}{<|start_header_id|>}user{<|end_header_id|>}\n\n"
          "Hi there{<|eot_id|>}"
          "{<|start_header_id|>}assistant{<|end_header_id|>}\n\n");
    gives("llama3 with a system text", tok, -1, "S ", "",
          "{<|begin_of_text|>}"
          "{<|start_header_id|>}system{<|end_header_id|>}\n\nS{<|eot_id|>}"
          "{<|start_header_id|>}user{<|end_header_id|>}\n\n{<|eot_id|>}"
          "{<|start_header_id|>}assistant{<|end_header_id|>}\n\n");
    whole("llama3, a conversation, trimmed", tok, CHAT_LLAMA3,
          WORDS("user: a ", "assistant:  b\n"),
          "{<|begin_of_text|>}"
          "{<|start_header_id|>}user{<|end_header_id|>}\n\na{<|eot_id|>}"
          "{<|start_header_id|>}assistant{<|end_header_id|>}\n\n"
          "^b{<|eot_id|>}^");
    tok_close(tok);
}

#define METASPACE                                             \
    "\"pre_tokenizer\":{\"type\":\"Metaspace\","              \
    "\"replacement\":\"" M "\",\"prepend_scheme\":\"first\"," \
    "\"split\":false},"

#define BYTE_LEVEL                                                   \
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"use_regex\":false," \
    "\"add_prefix_space\":false},"

static void
test_mistral(void)
{
    struct tok *tok = make_tok("", WORDS("<s>", "</s>", "[INST]", "[/INST]"));
    struct tok *meta = make_tok(METASPACE, WORDS("<s>", "</s>"));
    struct tok *old = make_tok("", WORDS("<unk>", "<s>", "</s>"));
    struct tok *bytes =
        make_tok(BYTE_LEVEL, WORDS("<s>", "</s>", "[INST]", "[/INST]"));
    struct err err = { 0 };

    gives("mistral v0.3", tok, -1, NULL, "Hi", "{<s>}{[INST]} Hi{[/INST]}");
    gives("mistral v0.3 with a system text", tok, -1, "S", "Hi",
          "{<s>}{[INST]} S\n\nHi{[/INST]}");
    gives("mistral of bytes has no space after [INST]", bytes, -1, NULL, "Hi",
          "{<s>}{[INST]}Hi{[/INST]}");
    gives("mistral of bytes with a system text", bytes, -1, "S", "Hi",
          "{<s>}{[INST]}S" NEWLINE NEWLINE "Hi{[/INST]}");
    gives("mistral v0.1, where [INST] is text", old, CHAT_MISTRAL, NULL, "Hi",
          "{<s>}[INST] Hi [/INST]");
    gives("mistral v0.1, no space is put before what is not first", meta,
          CHAT_MISTRAL, NULL, "Hi", "{<s>}[INST]" M "Hi" M "[/INST]");
    whole("mistral v0.3, a conversation: the system's text is in the last "
          "question",
          tok, CHAT_MISTRAL,
          WORDS("system: S", "user: a", "assistant: b", "user: c",
                "assistant: d"),
          "{<s>}{[INST]} a{[/INST]}^ b{</s>}^{[INST]} S\n\nc{[/INST]}"
          "^ d{</s>}^");
    whole("mistral of bytes, a conversation", bytes, CHAT_MISTRAL,
          WORDS("user: a", "assistant: b", "user: c", "assistant: d"),
          "{<s>}{[INST]}a{[/INST]}^b{</s>}^{[INST]}c{[/INST]}^d{</s>}^");
    whole("mistral v0.1, a conversation: the system's text is in the first "
          "question",
          old, CHAT_MISTRAL,
          WORDS("system: S", "user: a", "assistant: b", "user: c",
                "assistant: d"),
          "{<s>}[INST] S\n\na [/INST]^ b{</s>}^[INST] c [/INST]^ d{</s>}^");
    whole("mistral, whose roles alternate", tok, CHAT_MISTRAL,
          WORDS("user: a", "user: b"),
          "message 2 is the user's (expected the assistant's: in template "
          "mistral they alternate)");
    whole("mistral with a system's text alone", tok, CHAT_MISTRAL,
          WORDS("system: S"),
          "there is no message of a user, which template mistral needs");
    tap_ok(chat_form_recognise(old, &err) < 0 && err.status == EX_DATAERR &&
               strstr(err.what, "t: has none of <|im_start|>, "
                                "<|start_header_id|>, [INST]") == err.what,
           "chat: what is not recognised names what was looked for");
    tap_ok(!strcmp(chat_form_name(CHAT_MISTRAL), "mistral"),
           "chat: templates have names");
    tok_close(tok);
    tok_close(meta);
    tok_close(old);
    tok_close(bytes);
}

int
main(void)
{
    test_chatml();
    test_qwen3();
    test_llama3();
    test_mistral();
    return tap_done();
}
