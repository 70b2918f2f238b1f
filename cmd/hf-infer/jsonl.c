#include "cmd/hf-infer/jsonl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/js.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/pyjson.h"
#include "core/str.h"

#define READ_NBYTES 65536

struct jsonl {
    int fd;
    char *name;
    struct str buf; /* what was read and not yet handed out */
    size_t begin;   /* of the next line in it */
    size_t number;  /* of the last line */
    bool end;       /* nothing more to read */
};

/* The members of a line that count. */
struct parser {
    struct jsonl_line *line;
    const char *name;
    const char *text_key; /* "prompt" or "text", once it was there */
    bool has_ids;
};

static int
take_text(struct parser *p, const char *key, const char *value, struct err *err)
{
    json_t *v;

    if (p->text_key)
        return err_set(err, EX_DATAERR,
                       "%s: both \"prompt\" and \"text\" are there (expected "
                       "one)",
                       p->name);
    p->text_key = key[0] == 'p' ? "prompt" : "text";
    v = json_loads(value, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    if (!json_is_string(v)) {
        err_set(err, EX_DATAERR, "%s: \"%s\" is %s (expected a string)",
                p->name, p->text_key,
                *value == '"'   ? "no Unicode text: half a surrogate pair"
                : *value == '{' ? "an object"
                : *value == '[' ? "an array"
                                : value);
        json_decref(v);
        return -1;
    }
    p->line->text_nbytes = json_string_length(v);
    p->line->text = xmalloc(p->line->text_nbytes + 1);
    memcpy(p->line->text, json_string_value(v), p->line->text_nbytes + 1);
    json_decref(v);
    return 0;
}

/* "[1, 2]", as pyjson writes it. */
static int
take_ids(struct parser *p, const char *value, struct err *err)
{
    size_t cap = 0;
    const char *s = value;

    p->has_ids = true;
    for (s += *s == '['; s > value && *s != ']'; s += *s == ',' ? 2 : 0) {
        char *end;
        long long id;

        errno = 0;
        id = strtoll(s, &end, 10);
        if (end == s || (*end != ',' && *end != ']') || errno || id < 0 ||
            id > INT32_MAX)
            break;
        if (p->line->n_ids == cap)
            p->line->ids = xrealloc(p->line->ids, cap = cap ? 2 * cap : 64,
                                    sizeof(*p->line->ids));
        p->line->ids[p->line->n_ids++] = (int32_t)id;
        s = end;
    }
    if (s > value && *s == ']')
        return 0;
    return err_set(err, EX_DATAERR,
                   "%s: \"ids\" is no array of token ids (its element %zu is "
                   "not an integer of 0 to 2147483647)",
                   p->name, p->line->n_ids);
}

static int
take_member(void *ctx, const char *key, size_t key_nbytes, const char *value,
            struct err *err)
{
    struct parser *p = ctx;

    if (strlen(key) != key_nbytes)
        return 0;
    if (!strcmp(key, "id"))
        p->line->id = xstrdup(value);
    else if (!strcmp(key, "prompt") || !strcmp(key, "text"))
        return take_text(p, key, value, err);
    else if (!strcmp(key, "ids"))
        return take_ids(p, value, err);
    return 0;
}

/* A line has one line: "line 7: line 1, column 3" says it twice. */
static void
drop_line_1(struct err *err)
{
    static const char twice[] = ": line 1, column ";
    char *at = strstr(err->what, twice);

    if (at)
        memmove(at + 2, at + 10, strlen(at + 10) + 1);
}

int
jsonl_parse(struct jsonl_line *line, const char *s, size_t nbytes,
            const char *name, struct err *err)
{
    struct parser p = { .line = line, .name = name };
    int rc = pyjson_members(s, nbytes, name, take_member, &p, err);

    if (rc < 0)
        drop_line_1(err);
    else if (p.has_ids && p.text_key)
        rc = err_set(err, EX_DATAERR,
                     "%s: both \"%s\" and \"ids\" are there (expected one)",
                     name, p.text_key);
    else if (!p.has_ids && !p.text_key)
        rc = err_set(err, EX_DATAERR,
                     "%s: neither \"prompt\" nor \"ids\" is there", name);
    return rc;
}

int
jsonl_open(struct jsonl **jsonl, const char *path, struct err *err)
{
    struct jsonl *j;
    int fd = strcmp(path, "-") ? open(path, O_RDONLY | O_CLOEXEC) : 0;

    *jsonl = NULL;
    if (fd < 0)
        return err_set(err, EX_NOINPUT, "%s: %s", path, strerror(errno));
    j = xcalloc(1, sizeof(*j));
    j->fd = fd;
    j->name = xstrdup(fd ? path : "standard input");
    *jsonl = j;
    return 0;
}

void
jsonl_close(struct jsonl *j)
{
    if (!j)
        return;
    if (j->fd > 0)
        close(j->fd);
    free(j->name);
    str_free(&j->buf);
    free(j);
}

const char *
jsonl_name(const struct jsonl *j)
{
    return j->name;
}

/* More bytes behind those that are there: 1, or 0 at the end, or -1. */
static int
fill(struct jsonl *j, struct err *err)
{
    long n;

    if (j->end)
        return 0;
    if (j->begin > 0) {
        memmove(j->buf.s, j->buf.s + j->begin, j->buf.n - j->begin);
        j->buf.n -= j->begin;
        j->begin = 0;
    }
    if (j->buf.n > JSONL_MAX_LINE)
        return err_set(err, EX_DATAERR,
                       "%s: line %zu: longer than %zu MiB (expected a prompt "
                       "a line)",
                       j->name, j->number + 1, JSONL_MAX_LINE >> 20);
    str_reserve(&j->buf, READ_NBYTES);
    n = read_some(j->fd, j->buf.s + j->buf.n, READ_NBYTES);
    if (n < 0)
        return err_set(err, EX_IOERR, "%s: %s", j->name, strerror(errno));
    j->buf.n += (size_t)n;
    j->end = n == 0;
    return n > 0;
}

/* The next line, without its end, as bytes of the buffer: 1, 0 or -1. */
static int
next_bytes(struct jsonl *j, const char **s, size_t *nbytes, struct err *err)
{
    size_t searched = 0;

    for (;;) {
        size_t n = j->buf.n - j->begin;
        const char *at = n ? j->buf.s + j->begin : "";
        const char *nl = memchr(at + searched, '\n', n - searched);
        int rc;

        if (nl || (j->end && n > 0)) {
            *s = at;
            *nbytes = nl ? (size_t)(nl - at) : n;
            j->begin += *nbytes + (nl != NULL);
            j->number++;
            return 1;
        }
        searched = n;
        rc = fill(j, err);
        if (rc < 0 || (rc == 0 && n == 0))
            return rc;
    }
}

static bool
is_blank(const char *s, size_t nbytes)
{
    for (size_t i = 0; i < nbytes; i++)
        if (!memchr(" \t\r", s[i], 3))
            return false;
    return true;
}

int
jsonl_next(struct jsonl *j, struct jsonl_line *line, struct err *err)
{
    struct str name = { 0 };
    const char *s = NULL;
    size_t nbytes = 0;
    int rc;

    memset(line, 0, sizeof(*line));
    do
        rc = next_bytes(j, &s, &nbytes, err);
    while (rc > 0 && is_blank(s, nbytes));
    if (rc <= 0)
        return rc;
    line->number = j->number;
    str_addf(&name, "%s: line %zu", j->name, j->number);
    rc = jsonl_parse(line, s, nbytes, name.s, err);
    str_free(&name);
    if (rc < 0)
        jsonl_line_free(line);
    return rc < 0 ? -1 : 1;
}

void
jsonl_line_free(struct jsonl_line *line)
{
    free(line->id);
    free(line->text);
    free(line->ids);
    memset(line, 0, sizeof(*line));
}
