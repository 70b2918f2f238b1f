#include "core/text/chat.h"

#include <string.h>

#include "core/hash.h"
#include "core/text/tok_impl.h"
#include "core/text/tok_norm.h"

#define N_MARKS 4

/*
 * The prompt is 'start', the system message if there is one, the user's,
 * 'answer'; a message is its 'before', the text, its 'after'.  Source: the
 * chat_template of Qwen3, Meta-Llama-3-8B-Instruct, Mistral-7B-Instruct v0.3
 * and v0.1, Mistral-Nemo.  Mistral has no system message: that text is put
 * before the user's.
 */
struct format {
    const char *name;
    const char
        *mark[N_MARKS]; /* special tokens; by the first it is recognised */
    const char *start;
    const char *system_before, *system_after;
    const char *user_before, *user_after;
    const char *answer;
    bool system_in_user;
    bool trim; /* remove white space around texts */
};

static const struct format formats[] = {
    [CHAT_CHATML] = { .name = "chatml",
                      .mark = { "<|im_start|>", "<|im_end|>" },
                      .start = "",
                      .system_before = "<|im_start|>system\n",
                      .system_after = "<|im_end|>\n",
                      .user_before = "<|im_start|>user\n",
                      .user_after = "<|im_end|>\n",
                      .answer = "<|im_start|>assistant\n" },
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
                      .trim = true },
    [CHAT_MISTRAL] = { .name = "mistral",
                       .mark = { "[INST]", "[/INST]", "<s>" },
                       .start = "<s>",
                       .system_before = "",
                       .system_after = "\n\n",
                       .user_before = "[INST] ",
                       .user_after = "[/INST]",
                       .answer = "",
                       .system_in_user = true },
};
#define N_FORMATS ((int)(sizeof(formats) / sizeof(formats[0])))

/* SHA-256 of chat_templates, without a newline at the end, whose prompts for a
 * user's text, with or without a system text, are those of a format. */
static const struct {
    enum chat chat;
    const char *sha256;
} same_templates[] = {
    { CHAT_CHATML, /* OpenHermes 2.5 and many others */
      "fcf7a096fe99a48fd9ad2b250bf9237e"
      "96e8f48bffec1c7ea4d3f225176cd40e" },
    { CHAT_CHATML, /* Qwen3 */
      "87a2728cb8dc9fe424d624542f6060ec"
      "05a1d285ebbec578bb078900e33396b5" },
    { CHAT_MISTRAL, /* Mistral-Nemo-Instruct-2407 */
      "e7deee034838db2bfc7487788a3013d8"
      "a307ab69f72f3c54a85f06fd76007d4e" },
};

const char *
chat_name(int chat)
{
    return formats[chat].name;
}

bool
chat_is_same(enum chat chat, const char *text, size_t nbytes)
{
    struct hash *hash = hash_new(HASH_SHA256);
    char sum[HASH_MAX_HEX];

    while (nbytes > 0 && text[nbytes - 1] == '\n')
        nbytes--;
    hash_add(hash, text, nbytes);
    hash_hex(hash, sum);
    hash_free(hash);
    for (size_t i = 0; i < sizeof(same_templates) / sizeof(*same_templates);
         i++)
        if (same_templates[i].chat == chat &&
            !strcmp(same_templates[i].sha256, sum))
            return true;
    return false;
}

int
chat_recognise(const struct tok *tok, struct err *err)
{
    for (int i = 0; i < N_FORMATS; i++)
        if (tok_id(tok, formats[i].mark[0]) >= 0)
            return i;
    return err_set(err, EX_DATAERR,
                   "%s: has none of <|im_start|>, <|start_header_id|>, [INST]: "
                   "no chat template is known for it (--template names one)",
                   tok_name(tok));
}

/* A prompt as it grows: text waits until the next special token, so that
 * it is tokenized as one piece. */
struct builder {
    const struct tok *tok;
    struct format f;
    int flags;
    struct str text;
    struct ids *ids;
};

static int
flush(struct builder *b, struct err *err)
{
    int flags = b->flags | TOK_PLAIN | (b->ids->n ? TOK_MORE : 0);
    int rc = 0;

    if (b->text.n)
        rc = tok_encode(b->tok, b->text.s, b->text.n, flags, b->ids, err);
    str_clear(&b->text);
    return rc;
}

/* A piece of the template: its marks become special tokens. */
static int
put_template(struct builder *b, const char *s, struct err *err)
{
    while (*s) {
        const char *mark = NULL;

        for (int i = 0; i < N_MARKS && b->f.mark[i] && !mark; i++)
            if (!strncmp(s, b->f.mark[i], strlen(b->f.mark[i])))
                mark = b->f.mark[i];
        if (!mark) {
            str_addc(&b->text, *s++);
            continue;
        }

        int32_t id = tok_id(b->tok, mark);

        if (id < 0)
            return err_set(err, EX_DATAERR,
                           "%s: has no %s, which template %s needs",
                           tok_name(b->tok), mark, b->f.name);
        if (flush(b, err) < 0)
            return -1;
        ids_add(b->ids, id);
        s += strlen(mark);
    }
    return 0;
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

static int
put_message(struct builder *b, const char *before, const char *s, size_t n,
            const char *after, struct err *err)
{
    size_t k;

    if (put_template(b, before, err) < 0)
        return -1;
    while (b->f.trim && (k = space_at(s, n)) > 0) {
        s += k;
        n -= k;
    }
    for (k = 1; b->f.trim && k <= n && k <= 3;)
        if (space_at(s + n - k, k) == k) {
            n -= k;
            k = 1;
        } else {
            k++;
        }
    str_add(&b->text, s, n);
    return put_template(b, after, err);
}

int
chat_encode(const struct tok *tok, enum chat chat, const char *system,
            const char *user, size_t user_nbytes, int flags, struct ids *ids,
            struct err *err)
{
    struct builder b = {
        .tok = tok, .f = formats[chat], .flags = flags, .ids = ids
    };
    struct format *f = &b.f;
    int rc = 0;

    if (chat == CHAT_MISTRAL && tok_id(tok, "[INST]") < 0) {
        /* Mistral's tokenizers before v0.3 have no special token [INST] */
        f->mark[0] = f->mark[1] = "<s>";
        f->user_after = " [/INST]";
    } else if (chat == CHAT_MISTRAL && tok->bytes) {
        /* since Mistral-Nemo there is no space before a word, which only
         * SentencePiece adds */
        f->user_before = "[INST]";
    }
    if (put_template(&b, f->start, err) < 0 ||
        (f->system_in_user && put_template(&b, f->user_before, err) < 0) ||
        (system && put_message(&b, f->system_before, system, strlen(system),
                               f->system_after, err) < 0) ||
        put_message(&b, f->system_in_user ? "" : f->user_before, user,
                    user_nbytes, f->user_after, err) < 0 ||
        put_template(&b, f->answer, err) < 0 || flush(&b, err) < 0)
        rc = -1;
    str_free(&b.text);
    return rc;
}
