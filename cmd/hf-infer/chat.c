#include "cmd/hf-infer/chat.h"

#include <string.h>

/*
 * A turn is 'before', the text, 'after'; the prompt is 'start', the system
 * turn if there is one, the user's turn, 'answer'.  Source: the
 * chat_template of Qwen2/Qwen3, Llama-3-Instruct, Mistral-7B-Instruct-v0.3
 * (which puts the system text before the user's, two newlines between).
 */
static const struct template
{
    const char *name;
    const char *mark[4]; /* its special tokens; the first gives it away */
    const char *start;
    const char *system_before, *system_after;
    const char *user_before, *user_after;
    const char *answer;
    bool system_in_user;
}
templates[] = {
    [CHAT_CHATML] = { "chatml",
                      { "<|im_start|>", "<|im_end|>" },
                      "",
                      "<|im_start|>system\n",
                      "<|im_end|>\n",
                      "<|im_start|>user\n",
                      "<|im_end|>\n",
                      "<|im_start|>assistant\n",
                      false },
    [CHAT_LLAMA3] = { "llama3",
                      { "<|start_header_id|>", "<|end_header_id|>",
                        "<|eot_id|>", "<|begin_of_text|>" },
                      "<|begin_of_text|>",
                      "<|start_header_id|>system<|end_header_id|>\n\n",
                      "<|eot_id|>",
                      "<|start_header_id|>user<|end_header_id|>\n\n",
                      "<|eot_id|>",
                      "<|start_header_id|>assistant<|end_header_id|>\n\n",
                      false },
    [CHAT_MISTRAL] = { "mistral",
                       { "[INST]", "[/INST]", "<s>" },
                       "<s>",
                       "",
                       "\n\n",
                       "[INST] ",
                       "[/INST]",
                       "",
                       true },
};
#define N_TEMPLATES ((int)(sizeof(templates) / sizeof(templates[0])))
#define N_MARKS     4

int
chat_parse(const char *name)
{
    for (int i = 0; i < N_TEMPLATES; i++)
        if (!strcmp(name, templates[i].name))
            return i;
    return -1;
}

const char *
chat_name(enum chat chat)
{
    return templates[chat].name;
}

int
chat_recognise(const struct tok *tok, struct err *err)
{
    for (int i = 0; i < N_TEMPLATES; i++)
        if (tok_id(tok, templates[i].mark[0]) >= 0)
            return i;
    return err_set(err, EX_DATAERR,
                   "tokenizer.json: has none of <|im_start|>, "
                   "<|start_header_id|>, [INST]: no chat template is known "
                   "for it (--template names one)");
}

/* A prompt in the making: text waits until the next special token, so that
 * it is tokenized as one piece. */
struct builder {
    const struct tok *tok;
    const struct template *t;
    int flags;
    struct str text;
    struct ids *ids;
};

static int
flush(struct builder *b, struct err *err)
{
    int rc = 0;

    if (b->text.n)
        rc = tok_encode(b->tok, b->text.s, b->text.n, b->flags | TOK_PLAIN,
                        b->ids, err);
    str_clear(&b->text);
    return rc;
}

static int
put_mark(struct builder *b, const char *mark, struct err *err)
{
    int32_t id = tok_id(b->tok, mark);

    if (id < 0)
        return err_set(err, EX_DATAERR,
                       "tokenizer.json: has no %s, which template %s needs",
                       mark, b->t->name);
    if (flush(b, err) < 0)
        return -1;
    ids_add(b->ids, id);
    return 0;
}

/* A piece of the template: its marks become special tokens. */
static int
put_template(struct builder *b, const char *s, struct err *err)
{
    while (*s) {
        const char *mark = NULL;

        for (int i = 0; i < N_MARKS && b->t->mark[i] && !mark; i++)
            if (!strncmp(s, b->t->mark[i], strlen(b->t->mark[i])))
                mark = b->t->mark[i];
        if (!mark) {
            str_addc(&b->text, *s++);
            continue;
        }
        if (put_mark(b, mark, err) < 0)
            return -1;
        s += strlen(mark);
    }
    return 0;
}

static int
put_system(struct builder *b, const char *system, struct err *err)
{
    if (!system)
        return 0;
    if (put_template(b, b->t->system_before, err) < 0)
        return -1;
    str_adds(&b->text, system);
    return put_template(b, b->t->system_after, err);
}

static int
put_user(struct builder *b, const char *system, const char *user, size_t nbytes,
         struct err *err)
{
    if (put_template(b, b->t->user_before, err) < 0 ||
        (b->t->system_in_user && put_system(b, system, err) < 0))
        return -1;
    str_add(&b->text, user, nbytes);
    return put_template(b, b->t->user_after, err);
}

int
chat_encode(const struct tok *tok, enum chat chat, const char *system,
            const char *user, size_t user_nbytes, int flags, struct ids *ids,
            struct err *err)
{
    struct builder b = { tok, &templates[chat], flags, { 0 }, ids };
    int rc = -1;

    if (put_template(&b, b.t->start, err) < 0 ||
        (!b.t->system_in_user && put_system(&b, system, err) < 0) ||
        put_user(&b, system, user, user_nbytes, err) < 0 ||
        put_template(&b, b.t->answer, err) < 0 || flush(&b, err) < 0)
        goto out;
    rc = 0;
out:
    str_free(&b.text);
    return rc;
}
