/* SPDX-License-Identifier: ISC */
/* label: the first lines of a model's answers, as RUN/labels.tsv. */
#include <stdlib.h>
#include <string.h>

#include "cmd/sae-look/cmd.h"
#include "core/format/look.h"
#include "core/js.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/out.h"

#define LABEL_MAX 200 /* characters */

struct answer {
    int64_t latent;
    char *label;
    size_t n;
};

struct answers {
    struct answer *v; /* [n] */
    size_t n, cap;
};

static bool
is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* The first line that has anything, without the spaces around it; a tab in it
 * becomes a space. */
static void
first_line(struct answer *a, const char *s, size_t n)
{
    size_t end = 0, next = 0, chars = 0;
    uint32_t c;

    while (n && is_space(*s))
        s++, n--;
    while (end < n && !memchr("\n\v\f\r", s[end], 4) && chars < LABEL_MAX) {
        next = (size_t)utf8_next(s + end, n - end, &c);
        end += next ? next : 1;
        chars++;
    }
    while (end && is_space(s[end - 1]))
        end--;
    a->label = xmalloc(end + 1);
    a->n = end;
    for (size_t i = 0; i < end; i++)
        a->label[i] = s[i] == '\t' ? ' ' : s[i];
}

static int
read_answer(struct answers *all, const struct look *l, const char *line,
            size_t nbytes, const char *name, size_t number, struct err *err)
{
    struct answer a = { 0 };
    struct str where = { 0 };
    json_t *v = js_line(line, nbytes, name, number, err);
    struct js root, id, text;
    const char *s;
    size_t n;
    int rc = -1;

    if (!v)
        return -1;
    str_addf(&where, "%s: line %zu", name, number);
    root = js_root(v, where.s);
    id = js_get(&root, "id");
    text = js_get(&root, "text");
    if (js_i64(&id, 0, (int64_t)l->n - 1, &a.latent, err) == 0 &&
        js_str(&text, &s, &n, err) == 0) {
        first_line(&a, s, n);
        if (all->n == all->cap)
            all->v = xgrow(all->v, all->n, &all->cap, sizeof(*all->v));
        all->v[all->n++] = a;
        rc = 0;
    }
    str_free(&where);
    json_decref(v);
    return rc;
}

static int
by_answer(const void *pa, const void *pb)
{
    const struct answer *a = pa, *b = pb;

    return (a->latent > b->latent) - (a->latent < b->latent);
}

int
label_main(const struct look_cmd *cmd, struct err *err)
{
    struct str text = { 0 }, path = { 0 }, labels = { 0 };
    struct answers all = { 0 };
    const char *name, *line;
    struct look l = { 0 };
    size_t number = 0;
    int rc;

    if (cmd->n_args != 2)
        return err_set(err, TU_USAGE, "label takes a RUN and the answers");
    name = strcmp(cmd->args[1], "-") == 0 ? "standard input" : cmd->args[1];
    rc = look_open(&l, cmd->args[0], err);
    if (rc == 0)
        rc = file_read_all(cmd->args[1], SIZE_MAX / 2, &text, err);
    for (size_t i = 0, n; rc == 0 && i < text.n; i += n + 1) {
        const char *end = memchr(text.s + i, '\n', text.n - i);

        line = text.s + i;
        n = end ? (size_t)(end - line) : text.n - i;
        number++;
        if (strspn(line, " \t\r") < n)
            rc = read_answer(&all, &l, line, n, name, number, err);
    }
    if (rc == 0 && all.n > 0)
        qsort(all.v, all.n, sizeof(*all.v), by_answer);
    str_adds(&labels, "latent\tlabel\n");
    for (size_t i = 0; rc == 0 && i < all.n; i++) {
        if (i > 0 && all.v[i].latent == all.v[i - 1].latent)
            rc = err_data(err, name, "latent %lld has two answers",
                          (long long)all.v[i].latent);
        if (all.v[i].n > 0) {
            str_addf(&labels, "%lld\t", (long long)all.v[i].latent);
            str_add(&labels, all.v[i].label, all.v[i].n);
            str_addc(&labels, '\n');
        }
    }
    if (rc == 0) {
        str_addf(&path, "%s/" LABELS_FILE, l.path);
        rc = out_put(path.s, cmd->out_flags, labels.s, labels.n, err);
    }
    for (size_t i = 0; i < all.n; i++)
        free(all.v[i].label);
    free(all.v);
    str_free(&text);
    str_free(&path);
    str_free(&labels);
    look_close(&l);
    return rc;
}
