/* SPDX-License-Identifier: ISC */
/*
 * hash --check: the digests of a list, computed again.  A file is read once,
 * however many lines name it and in whatever order.
 */
#include <stdlib.h>
#include <string.h>

#include "cmd/st-inspect/cmd.h"
#include "cmd/st-inspect/hash.h"
#include "cmd/st-inspect/sums.h"
#include "cmd/st-inspect/text.h"
#include "core/js.h"
#include "core/mem.h"

#define LIST_MAX ((size_t)1 << 30) /* bytes */

static int
put_result(struct inspect_cmd *cmd, const struct sums_line *e, struct err *err)
{
    struct record *row = &cmd->row;
    const struct str *tensor = &e->tensor;

    if (cmd->quiet && !strcmp(e->result, "ok"))
        return 0;
    record_begin(row);
    record_string(row, "result", e->result);
    record_text(row, "file", e->file.s, e->file.n);
    record_text(row, "tensor", tensor->s || cmd->json ? tensor->s : "",
                tensor->n);
    return row_end(cmd, err);
}

/* Lines of one file follow each other, as the list has them. */
static int
by_file(const void *pa, const void *pb)
{
    const struct sums_line *a = *(struct sums_line *const *)pa;
    const struct sums_line *b = *(struct sums_line *const *)pb;
    int c = strcmp(a->file.s, b->file.s);

    if (c == 0)
        c = (int)a->kind - (int)b->kind;
    return c ? c : (a > b) - (a < b);
}

static bool
is_same(const struct hash_range *r, const char *digest)
{
    return r->end > 0 && !strcmp(r->hex, digest);
}

/* The results of the n lines of one file.  A line without a tensor is that of
 * the file, or of a tensor without a name. */
static void
check_file(struct inspect_cmd *cmd, struct sums_line **e, size_t n)
{
    struct hash_range *r = xcalloc(2 * n, sizeof(*r));
    struct st st = { .fd = -1 };
    struct err err = { 0 };
    bool readable = st_open(&st, e[0]->file.s, &err) == 0;

    for (size_t i = 0; readable && i < n; i++) {
        const struct str *name = &e[i]->tensor;
        const struct st_tensor *t =
            st_find_n(&st, name->s ? name->s : "", name->n);

        if (!name->s)
            r[2 * i] = hash_part(&st, NULL);
        if (t)
            r[2 * i + 1] = hash_part(&st, t);
        e[i]->result = t || !name->s ? "differs" : "missing";
    }
    readable =
        readable && hash_st(r, 2 * n, &st, e[0]->kind, cmd->par, &err) == 0;
    if (!readable)
        err_warn("%s", err.what);
    for (size_t i = 0; i < n; i++)
        if (!readable)
            e[i]->result = "unreadable";
        else if (is_same(&r[2 * i], e[i]->digest) ||
                 is_same(&r[2 * i + 1], e[i]->digest))
            e[i]->result = "ok";
    free(r);
    st_close(&st);
}

int
check_main(struct inspect_cmd *cmd, struct err *err)
{
    struct sums_line **v = NULL; /* the list's lines by file */
    struct sums_list list = { 0 };
    struct str text = { 0 };
    int status = -1;

    if (cmd->n_args)
        return err_set(err, TU_USAGE,
                       "hash --check FILE takes no operands: the list names "
                       "its files");
    if (file_read_all(cmd->check, LIST_MAX, &text, err) < 0 ||
        sums_parse(&list, text.s, text.n, cmd->check, err) < 0 ||
        !(v = mem_try(list.n, sizeof(*v), cmd->check, err)))
        goto out;
    for (size_t i = 0; i < list.n; i++)
        v[i] = &list.v[i];
    qsort(v, list.n, sizeof(*v), by_file);
    for (size_t i = 0; i < list.n; i++)
        v[i]->first = i && v[i]->kind == v[i - 1]->kind &&
                              !strcmp(v[i]->file.s, v[i - 1]->file.s)
                          ? v[i - 1]->first
                          : i;
    str_adds(&cmd->text, cmd->json ? "[" : "result\tfile\ttensor\n");
    status = 0;
    /* lines in their order, each when its file is known */
    for (size_t i = 0; status >= 0 && i < list.n; i++) {
        struct sums_line *e = &list.v[i];
        size_t end = e->first;

        while (!e->result && end < list.n && v[end]->first == e->first)
            end++;
        if (!e->result)
            check_file(cmd, v + e->first, end - e->first);
        if (strcmp(e->result, "ok") != 0)
            status = TU_NEGATIVE;
        if (put_result(cmd, e, err) < 0)
            status = -1;
    }
out:
    if (cmd->json)
        str_adds(&cmd->text, "\n]\n");
    str_free(&text);
    free(v);
    sums_free(&list);
    return status;
}
