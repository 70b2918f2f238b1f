#include "cmd/hf-infer/prompt.h"

#include <stdio.h>
#include <string.h>

#include "core/map.h"
#include "core/text/chat.h"

#define PROMPT_MAX ((size_t)1 << 30) /* bytes */

void
put_ids(struct str *str, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        str_addf(str, "%s%d", i ? " " : "", (int)ids[i]);
}

void
put_json_ids(struct str *str, const int32_t *ids, size_t n)
{
    str_addc(str, '[');
    for (size_t i = 0; i < n; i++)
        str_addf(str, "%s%d", i ? "," : "", (int)ids[i]);
    str_addc(str, ']');
}

static bool
is_separator(char c)
{
    return c == ' ' || c == ',' || c == '\n' || c == '\t' || c == '\r';
}

/* One id's digits from text[*i] on. */
static int
parse_id(const char *text, size_t nbytes, size_t *i, const char *name,
         struct ids *ids, struct err *err)
{
    size_t start = *i;
    int64_t id = 0;

    while (*i < nbytes && text[*i] >= '0' && text[*i] <= '9' && id <= INT32_MAX)
        id = id * 10 + (text[(*i)++] - '0');
    if (*i == start || (*i < nbytes && !is_separator(text[*i])) ||
        id > INT32_MAX) {
        size_t n = strcspn(text + start, " ,\n\t\r");

        return err_set(err, EX_DATAERR,
                       "%s: \"%.*s\" is not a token id (0 to %d)", name,
                       (int)(n < 40 ? n : 40), text + start, INT32_MAX);
    }
    ids_add(ids, (int32_t)id);
    return 0;
}

int
ids_parse(const char *text, size_t nbytes, const char *name, struct ids *ids,
          struct err *err)
{
    size_t i = 0;

    for (;;) {
        while (i < nbytes && is_separator(text[i]))
            i++;
        if (i == nbytes)
            return 0;
        if (parse_id(text, nbytes, &i, name, ids, err) < 0)
            return -1;
    }
}

int
ids_check(const int32_t *ids, size_t n, int64_t vocab_size, const char *name,
          struct err *err)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] >= vocab_size)
            return err_set(err, EX_DATAERR,
                           "%s: token id %d is not in the vocabulary "
                           "(0 to %lld)",
                           name, (int)ids[i], (long long)vocab_size - 1);
    return 0;
}

const char *
prompt_name(const struct run *run)
{
    const char *file = run->ids_text ? run->ids_text : run->prompt_file;

    if (run->prompt)
        return "-p";
    if (!file || !strcmp(file, "-"))
        return "standard input";
    return run->ids_text ? "--ids" : file;
}

/* The prompt's text: the argument, a file, or standard input. */
static int
read_text(const struct run *run, struct str *text, struct err *err)
{
    if (run->prompt) {
        str_adds(text, run->prompt);
        return 0;
    }
    return file_read_all(run->prompt_file ? run->prompt_file : "-", PROMPT_MAX,
                         text, err);
}

static int
ids_of_list(const struct run *run, struct ids *ids, struct err *err)
{
    struct str text = { 0 };
    int rc;

    if (strcmp(run->ids_text, "-") != 0)
        return ids_parse(run->ids_text, strlen(run->ids_text), prompt_name(run),
                         ids, err);
    rc = file_read_all("-", PROMPT_MAX, &text, err);
    if (rc == 0)
        rc = ids_parse(text.s, text.n, prompt_name(run), ids, err);
    str_free(&text);
    return rc;
}

static int
encode_chat(const struct run *run, const char *s, size_t nbytes,
            struct ids *ids, struct err *err)
{
    const char *system = run->system;
    struct str fixed = { 0 };
    int format = run->format, rc = 0;

    if (format < 0 && (format = chat_recognise(run->tok, err)) < 0)
        return -1;
    if (system)
        rc = tok_utf8("--system", system, strlen(system), run->strict_utf8,
                      &fixed, err);
    if (rc == 0)
        rc = chat_encode(run->tok, (enum chat)format,
                         fixed.n ? fixed.s : system, s, nbytes, 0, ids, err);
    str_free(&fixed);
    return rc;
}

int
prompt_encode(struct run *run, const char *name, const struct str *text,
              struct ids *ids, struct err *err)
{
    const char *s = text->s ? text->s : "";
    size_t n = text->n;
    int flags = run->plain ? TOK_PLAIN : 0, rc;
    struct str fixed = { 0 };

    if (tok_utf8(name, s, n, run->strict_utf8, &fixed, err) < 0)
        return -1;
    if (fixed.n) {
        s = fixed.s;
        n = fixed.n;
    }
    if (run->mode == MODE_ENCODE ? run->special : !run->raw)
        flags |= TOK_SPECIAL;
    rc = run->chat ? encode_chat(run, s, n, ids, err)
                   : tok_encode(run->tok, s, n, flags, ids, err);
    str_free(&fixed);
    return rc;
}

int
prompt_ids(struct run *run, struct ids *ids, struct err *err)
{
    struct str text = { 0 };
    int rc;

    if (run->ids_text)
        return ids_of_list(run, ids, err);
    rc = run_open_tok(run, err);
    if (rc == 0)
        rc = read_text(run, &text, err);
    if (rc == 0)
        rc = prompt_encode(run, prompt_name(run), &text, ids, err);
    str_free(&text);
    return rc;
}
