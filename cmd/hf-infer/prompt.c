/* Where a prompt comes from, and how it becomes ids. */
#include "cmd/hf-infer/run.h"

#include <stdio.h>
#include <string.h>

#include "cmd/hf-infer/chat.h"
#include "core/map.h"

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
        return ids_parse(run->ids_text, strlen(run->ids_text), "--ids", ids,
                         err);
    rc = file_read_all("-", PROMPT_MAX, &text, err);
    if (rc == 0)
        rc = ids_parse(text.s, text.n, "standard input", ids, err);
    str_free(&text);
    return rc;
}

int
prompt_encode(struct run *run, const struct str *text, struct ids *ids,
              struct err *err)
{
    const char *s = text->s ? text->s : "";
    int flags = run->strict_utf8 ? TOK_STRICT_UTF8 : 0;
    int format = run->format;

    if (run->chat) {
        if (format < 0 && (format = chat_recognise(run->tok, err)) < 0)
            return -1;
        return chat_encode(run->tok, (enum chat)format, run->system, s, text->n,
                           flags, ids, err);
    }
    if (run->plain)
        flags |= TOK_PLAIN;
    if (run->mode == MODE_ENCODE ? run->special : !run->raw)
        flags |= TOK_SPECIAL;
    return tok_encode(run->tok, s, text->n, flags, ids, err);
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
        rc = prompt_encode(run, &text, ids, err);
    str_free(&text);
    return rc;
}
