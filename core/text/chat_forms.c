/* SPDX-License-Identifier: ISC */
#include "core/text/chat_forms.h"

#include <string.h>

#include "core/hash.h"
#include "core/js.h"
#include "core/map.h"
#include "core/text/pieces.h"
#include "core/text/tok_impl.h"
#include "core/text/tok_norm.h"

#define N_MARKS 4

/*
 * A conversation is 'start' and its messages, a prompt also the 'answer' that
 * the model continues.  A message is its 'before', the text, its 'after'; a
 * reply is 'answer', 'reply_before', the text, 'reply_end', 'reply_after'.
 * Source: the chat_template of Qwen3, Meta-Llama-3-8B-Instruct,
 * Mistral-7B-Instruct v0.3 and v0.1, Mistral-Nemo.  Mistral has no system
 * message: as in mistral-common, that text is put before the last user's, and
 * before the first user's by its tokenizers before v0.3.
 */
struct format {
    const char *name;
    const char
        *mark[N_MARKS]; /* special tokens; by the first it is recognised */
    const char *start;
    const char *system_before, *system_after;
    const char *user_before, *user_after;
    const char *answer;
    const char *reply_before, *reply_end, *reply_after;
    bool system_in_user, system_first; /* the first user's, not the last */
    bool trim;                         /* remove white space around texts */
    bool thinks; /* a reply has its reasoning between <think> and </think> */
};

static const struct format formats[] = {
    [CHAT_CHATML] = { .name = "chatml",
                      .mark = { "<|im_start|>", "<|im_end|>" },
                      .start = "",
                      .system_before = "<|im_start|>system\n",
                      .system_after = "<|im_end|>\n",
                      .user_before = "<|im_start|>user\n",
                      .user_after = "<|im_end|>\n",
                      .answer = "<|im_start|>assistant\n",
                      .reply_before = "",
                      .reply_end = "<|im_end|>",
                      .reply_after = "\n" },
    [CHAT_LLAMA3] = { .name = "llama3",
                      .mark = { "<|start_header_id|>", "<|end_header_id|>",
                                "<|eot_id|>", "<|begin_of_text|>" },
                      .start = "<|begin_of_text|>",
                      .system_before =
                          "<|start_header_id|>system<|end_header_id|>\n\n",
                      .system_after = "<|eot_id|>",
                      .user_before =
                          "<|start_header_id|>user<|end_header_id|>\n\n",
                      .user_after = "<|eot_id|>",
                      .answer =
                          "<|start_header_id|>assistant<|end_header_id|>\n\n",
                      .reply_before = "",
                      .reply_end = "<|eot_id|>",
                      .reply_after = "",
                      .trim = true },
    [CHAT_MISTRAL] = { .name = "mistral",
                       .mark = { "[INST]", "[/INST]", "<s>", "</s>" },
                       .start = "<s>",
                       .system_before = "",
                       .system_after = "\n\n",
                       .user_before = "[INST] ",
                       .user_after = "[/INST]",
                       .answer = "",
                       .reply_before = " ",
                       .reply_end = "</s>",
                       .reply_after = "",
                       .system_in_user = true },
    [CHAT_QWEN3] = { .name = "qwen3",
                     .mark = { "<|im_start|>", "<|im_end|>", "<think>",
                               "</think>" },
                     .start = "",
                     .system_before = "<|im_start|>system\n",
                     .system_after = "<|im_end|>\n",
                     .user_before = "<|im_start|>user\n",
                     .user_after = "<|im_end|>\n",
                     .answer = "<|im_start|>assistant\n",
                     .reply_before = "",
                     .reply_end = "<|im_end|>",
                     .reply_after = "\n",
                     .thinks = true },
};
#define N_FORMATS ((int)(sizeof(formats) / sizeof(formats[0])))

/* SHA-256 of chat_templates, without a newline at the end, whose prompts for a
 * user's text, with or without a system text, are those of a format, and the
 * format of their conversations. */
static const struct {
    enum chat_form chat, whole;
    const char *sha256;
} same_templates[] = {
    { CHAT_CHATML, CHAT_CHATML, /* OpenHermes 2.5 and many others */
      "fcf7a096fe99a48fd9ad2b250bf9237e"
      "96e8f48bffec1c7ea4d3f225176cd40e" },
    { CHAT_CHATML, CHAT_QWEN3, /* Qwen3 */
      "87a2728cb8dc9fe424d624542f6060ec"
      "05a1d285ebbec578bb078900e33396b5" },
    { CHAT_CHATML, CHAT_CHATML, /* of the demo */
      "4b95c1d6f52b38f6ad70d90b65819672"
      "f62b2e41a23c675a84d5c90012a677f4" },
    { CHAT_MISTRAL, CHAT_MISTRAL, /* Mistral-Nemo-Instruct-2407 */
      "e7deee034838db2bfc7487788a3013d8"
      "a307ab69f72f3c54a85f06fd76007d4e" },
};

const char *
chat_form_name(int chat)
{
    return formats[chat].name;
}

/* The row of same_templates[] that a text is, or -1. */
static int
find_template(const char *text, size_t nbytes)
{
    struct hash *hash = hash_new(HASH_SHA256);
    char sum[HASH_MAX_HEX];

    while (nbytes > 0 && text[nbytes - 1] == '\n')
        nbytes--;
    hash_add(hash, text, nbytes);
    hash_end(hash, sum);
    for (size_t i = 0; i < sizeof(same_templates) / sizeof(*same_templates);
         i++)
        if (!strcmp(same_templates[i].sha256, sum))
            return (int)i;
    return -1;
}

bool
chat_form_is_same(enum chat_form chat, const char *text, size_t nbytes)
{
    int i = find_template(text, nbytes);

    return i >= 0 &&
           (same_templates[i].chat == chat || same_templates[i].whole == chat);
}

int
chat_form_known(const char *text, size_t nbytes)
{
    int i = find_template(text, nbytes);

    return i < 0 ? -1 : (int)same_templates[i].whole;
}

int
chat_form_template(const char *dir, struct str *text, struct err *err)
{
    struct str jinja = { 0 }, name = { 0 };
    json_t *config = NULL;
    struct js root, js;
    int rc = 0;

    str_addf(&jinja, "%s/chat_template.jinja", dir);
    str_addf(&name, "%s/tokenizer_config.json", dir);
    if (!file_missing(jinja.s)) {
        rc = file_read_all(jinja.s, JS_MAX_BYTES, text, err);
    } else if (!file_missing(name.s)) {
        config = js_load(name.s, err);
        rc = config ? 0 : -1;
    }
    root = js_root(config, name.s);
    js = js_get(&root, "chat_template");
    /* a string, or objects with names of which "default" is used */
    for (size_t i = 0; json_is_array(js.v) && i < json_array_size(js.v); i++) {
        const json_t *each = json_array_get(js.v, i);
        const char *s = json_string_value(json_object_get(each, "name"));

        if (s && !strcmp(s, "default"))
            js.v = json_object_get(each, "template");
    }
    if (json_is_string(js.v))
        str_add(text, json_string_value(js.v), json_string_length(js.v));
    json_decref(config);
    str_free(&name);
    str_free(&jinja);
    return rc;
}

int
chat_form_recognise(const struct tok *tok, struct err *err)
{
    for (int i = 0; i < N_FORMATS; i++)
        if (tok_id(tok, formats[i].mark[0]) >= 0)
            return i;
    return err_set(err, EX_DATAERR,
                   "%s: has none of <|im_start|>, <|start_header_id|>, [INST]: "
                   "no chat template is known for it (--template names one)",
                   tok_name(tok));
}

struct builder {
    struct format f;
    struct pieces pieces;
};

/* A piece of the template: its marks become special tokens. */
static void
put_template(struct builder *b, const char *s)
{
    for (size_t n; *s; s += n) {
        const char *mark = NULL;

        for (int i = 0; i < N_MARKS && b->f.mark[i] && !mark; i++)
            if (!strncmp(s, b->f.mark[i], strlen(b->f.mark[i])))
                mark = b->f.mark[i];
        n = mark ? strlen(mark) : 1;
        pieces_add(&b->pieces, s, n, mark != NULL);
    }
}

/* The bytes of the character that s begins with if Jinja's trim, Python's
 * str.strip(), takes it; else 0. */
static size_t
space_at(const char *s, size_t n)
{
    uint32_t c;
    int length = n ? utf8_next(s, n, &c) : 0;
    bool space = length > 0 && (is_white_space(c) || (c >= 0x1c && c <= 0x1f));

    return space ? (size_t)length : 0;
}

/* Removes what Jinja's trim removes. */
static void
trim(const char **s, size_t *n)
{
    size_t k;

    while ((k = space_at(*s, *n)) > 0) {
        *s += k;
        *n -= k;
    }
    for (k = 1; k <= *n && k <= 3;)
        if (space_at(*s + *n - k, k) == k) {
            *n -= k;
            k = 1;
        } else {
            k++;
        }
}

static void
put_message(struct builder *b, const char *before, const char *s, size_t n,
            const char *after)
{
    put_template(b, before);
    if (b->f.trim)
        trim(&s, &n);
    pieces_add(&b->pieces, s, n, false);
    put_template(b, after);
}

static size_t
skip_newlines(const char *s, size_t n)
{
    size_t i = 0;

    while (i < n && s[i] == '\n')
        i++;
    return i;
}

static const char *
last_of(const char *s, size_t n, const char *word)
{
    size_t k = strlen(word);

    for (size_t i = n; i >= k; i--)
        if (!memcmp(s + i - k, word, k))
            return s + i - k;
    return NULL;
}

/*
 * Qwen3's reply: what it thought, as its text has it up to </think>, is kept
 * after the last question alone, where the last reply has a place for it even
 * if it did not think.
 */
static void
put_thinking(struct builder *b, const char **s, size_t *n, bool current,
             bool last)
{
    static const char open[] = "<think>", close[] = "</think>";
    const char *thought = *s, *end = memmem(*s, *n, close, strlen(close));
    size_t n_thought = 0, k;

    if (end) {
        const char *answer = last_of(*s, *n, close) + strlen(close), *begin;

        n_thought = (size_t)(end - *s);
        while (n_thought > 0 && thought[n_thought - 1] == '\n')
            n_thought--;
        begin = last_of(thought, n_thought, open);
        if (begin) {
            n_thought -= (size_t)(begin - thought) + strlen(open);
            thought = begin + strlen(open);
        }
        k = skip_newlines(thought, n_thought);
        thought += k;
        n_thought -= k;
        *n -= (size_t)(answer - *s);
        *s = answer;
        k = skip_newlines(*s, *n);
        *s += k;
        *n -= k;
    }
    if (!current || (!last && n_thought == 0))
        return;
    put_template(b, "<think>\n");
    pieces_add(&b->pieces, thought, n_thought, false);
    put_template(b, "\n</think>\n\n");
    k = skip_newlines(*s, *n);
    *s += k;
    *n -= k;
}

/* A reply.  Its text is encoded apart from what is before it, as it is when the
 * model continues that. */
static void
put_reply(struct builder *b, const struct chat_message *m, bool current,
          bool last)
{
    const char *s = m->text;
    size_t n = m->nbytes;

    put_template(b, b->f.answer);
    b->pieces.scored = true;
    if (b->f.thinks)
        put_thinking(b, &s, &n, current, last);
    put_message(b, b->f.reply_before, s, n, b->f.reply_end);
    b->pieces.scored = false;
    put_template(b, b->f.reply_after);
}

/* Mistral's users and assistants alternate. */
static int
check_order(const struct chat_message *messages, size_t n, size_t first,
            struct err *err)
{
    static const char *const names[] = { "system", "user", "assistant" };

    for (size_t i = first; i < n; i++) {
        enum chat_role want = (i - first) % 2 ? CHAT_ASSISTANT : CHAT_USER;

        if (messages[i].role != want)
            return err_set(err, EX_DATAERR,
                           "message %zu is the %s's (expected the %s's: in "
                           "template mistral they alternate)",
                           i + 1, names[messages[i].role], names[want]);
    }
    return first < n ? 0
                     : err_set(err, EX_DATAERR,
                               "there is no message of a user, which template "
                               "mistral needs");
}

static void
put_user(struct builder *b, const struct chat_message *system,
         const struct chat_message *m)
{
    const struct format *f = &b->f;

    put_template(b, f->user_before);
    if (system)
        put_message(b, f->system_before, system->text, system->nbytes,
                    f->system_after);
    put_message(b, "", m->text, m->nbytes, f->user_after);
}

/* Does qwen3 take a user's message for a question, after which replies keep
 * what they thought?  Not if it is the answer of a tool. */
static bool
is_question(const struct chat_message *m)
{
    static const char open[] = "<tool_response>", close[] = "</tool_response>";
    const size_t k = strlen(open), n = strlen(close);

    return m->role == CHAT_USER &&
           (m->nbytes < n || memcmp(m->text, open, k) != 0 ||
            memcmp(m->text + m->nbytes - n, close, n) != 0);
}

static int
put_all(struct builder *b, const struct chat_message *messages, size_t n,
        struct err *err)
{
    const struct format *f = &b->f;
    const struct chat_message *system = NULL;
    size_t first = 0, last_user = n, last_question = n, with_system = 0;

    if (f->system_in_user && n > 0 && messages[0].role == CHAT_SYSTEM)
        system = &messages[first++];
    if (f->system_in_user && check_order(messages, n, first, err) < 0)
        return -1;
    for (size_t i = first; i < n; i++) {
        if (messages[i].role == CHAT_USER)
            last_user = i;
        if (is_question(&messages[i]))
            last_question = i;
    }
    with_system = f->system_first ? first : last_user;
    for (size_t i = first; i < n; i++) {
        const struct chat_message *m = &messages[i];

        b->pieces.message = i;
        if (m->role == CHAT_ASSISTANT)
            put_reply(b, m, i > last_question, i + 1 == n);
        else if (m->role == CHAT_USER)
            put_user(b, i == with_system ? system : NULL, m);
        else
            put_message(b, f->system_before, m->text, m->nbytes,
                        f->system_after);
    }
    return 0;
}

/* The ids of a message's pieces that are scored. */
static void
set_spans(struct chat_message *messages, const struct pieces *p, size_t begin)
{
    for (size_t i = 0; i < p->n; begin = p->list[i++].ids_end) {
        struct chat_message *m = &messages[p->list[i].message];

        if (!p->list[i].scored)
            continue;
        if (m->end == 0)
            m->begin = begin;
        m->end = p->list[i].ids_end;
    }
}

int
chat_form_encode(const struct tok *tok, enum chat_form chat,
                 struct chat_message *messages, size_t n, bool answer,
                 int flags, struct ids *ids, struct err *err)
{
    struct builder b = { .f = formats[chat] };
    struct format *f = &b.f;
    size_t begin = ids->n;
    int rc;

    for (size_t i = 0; i < n; i++)
        messages[i].begin = messages[i].end = 0;
    if (chat == CHAT_MISTRAL && tok_id(tok, "[INST]") < 0) {
        /* Mistral's tokenizers before v0.3 have no special token [INST] */
        f->mark[0] = f->mark[1] = "<s>";
        f->user_after = " [/INST]";
        f->system_first = true;
    } else if (chat == CHAT_MISTRAL && tok->bytes) {
        /* since Mistral-Nemo there is no space before a word, which only
         * SentencePiece adds */
        f->user_before = "[INST]";
        f->reply_before = "";
    }
    put_template(&b, f->start);
    rc = put_all(&b, messages, n, err);
    if (answer)
        put_template(&b, f->answer);
    if (rc == 0)
        rc = pieces_encode(&b.pieces, tok, f->name, flags, ids, err);
    if (rc == 0)
        set_spans(messages, &b.pieces, begin);
    pieces_free(&b.pieces);
    return rc;
}
