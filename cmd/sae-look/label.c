/* SPDX-License-Identifier: ISC */
/* label: the first lines of a model's answers, as RUN/labels.tsv. */
#include <string.h>

#include "cmd/sae-look/cmd.h"
#include "core/format/look.h"
#include "core/js.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/out.h"

#define LABEL_MAX 200 /* characters */

static bool
is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Appends the first line that has anything, without the spaces around it; a tab
 * in it becomes a space. */
static void
first_line(struct str *to, const char *s, size_t n)
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
    for (size_t i = 0; i < end; i++)
        str_addc(to, s[i] == '\t' ? ' ' : s[i]);
}

/* 'label' [l->n] is what each was called: a string once there is an answer. */
static int
read_answer(struct str *label, const struct look *l, const char *line,
            size_t nbytes, const char *name, size_t number, struct err *err)
{
    struct str where = { 0 };
    json_t *v = js_line(line, nbytes, name, number, err);
    struct js root, id, text;
    const char *s;
    int64_t latent;
    size_t n;
    int rc = -1;

    if (!v)
        return -1;
    str_addf(&where, "%s: line %zu", name, number);
    root = js_root(v, where.s);
    id = js_get(&root, "id");
    text = js_get(&root, "text");
    if (js_i64(&id, 0, (int64_t)l->n - 1, &latent, err) == 0 &&
        js_str(&text, &s, &n, err) == 0)
        rc = !label[latent].s
                 ? 0
                 : err_data(err, name, "latent %lld has two answers",
                            (long long)latent);
    if (rc == 0) {
        str_reserve(&label[latent], 1);
        first_line(&label[latent], s, n);
    }
    str_free(&where);
    json_decref(v);
    return rc;
}

int
label_main(const struct look_cmd *cmd, struct err *err)
{
    struct str text = { 0 }, path = { 0 }, labels = { 0 }, *label = NULL;
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
    if (rc == 0 && !(label = mem_big(l.n, sizeof(*label), name, err)))
        rc = -1;
    for (size_t i = 0, n; rc == 0 && i < text.n; i += n + 1) {
        const char *end = memchr(text.s + i, '\n', text.n - i);

        line = text.s + i;
        n = end ? (size_t)(end - line) : text.n - i;
        number++;
        if (strspn(line, " \t\r") < n)
            rc = read_answer(label, &l, line, n, name, number, err);
    }
    str_adds(&labels, "latent\tlabel\n");
    for (size_t i = 0; label && i < l.n; i++) {
        if (!label[i].s)
            continue;
        if (label[i].n) {
            str_addf(&labels, "%zu\t", i);
            str_add(&labels, label[i].s, label[i].n);
            str_addc(&labels, '\n');
        }
        str_free(&label[i]);
    }
    if (rc == 0) {
        str_addf(&path, "%s/" LABELS_FILE, l.path);
        rc = out_put(path.s, cmd->out_flags, labels.s, labels.n, err);
    }
    if (label)
        mem_big_free(label, l.n, sizeof(*label));
    str_free(&text);
    str_free(&path);
    str_free(&labels);
    look_close(&l);
    return rc;
}
