/*
 * Chat templates.  Expected are the strings that the published chat_templates
 * give, read off by hand, a special token in braces.
 */
#include "core/text/chat.h"

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

static void
put_tokens(struct str *text, const struct tok *tok, const struct ids *ids)
{
    for (size_t i = 0; i < ids->n; i++) {
        size_t n = 0;
        const char *s = tok_text(tok, ids->id[i], &n);
        bool special = tok_is_special(tok, ids->id[i]);

        str_adds(text, special ? "{" : "");
        str_add(text, s ? s : "", n);
        str_adds(text, special ? "}" : "");
    }
}

static void
gives(const char *name, const struct tok *tok, int chat, const char *system,
      const char *user, const char *want)
{
    struct str text = { 0 };
    struct ids ids = { 0 };
    struct err err = { 0 };

    if (chat < 0)
        chat = chat_recognise(tok, &err);
    if (chat >= 0 && chat_encode(tok, (enum chat)chat, system, user,
                                 strlen(user), 0, &ids, &err) == 0)
        put_tokens(&text, tok, &ids);
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
    tap_ok(chat_recognise(old, &err) < 0 && err.status == EX_DATAERR &&
               strstr(err.what, "t: has none of <|im_start|>, "
                                "<|start_header_id|>, [INST]") == err.what,
           "chat: what is not recognised names what was looked for");
    tap_ok(!strcmp(chat_name(CHAT_MISTRAL), "mistral"),
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
    test_llama3();
    test_mistral();
    return tap_done();
}
