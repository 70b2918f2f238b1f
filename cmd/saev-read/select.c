/* SPDX-License-Identifier: ISC */
#include "cmd/saev-read/select.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/dtype.h"
#include "core/format/npy.h"
#include "core/format/saev_mask.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/tty.h"

#define LIST_MAX ((size_t)1 << 40) /* bytes of standard input, or of a pipe */

int
check_name(const struct saevdir *dir, const struct read_cmd *cmd,
           struct err *err)
{
    struct str what = { 0 };
    int rc = saevdir_name_problem(dir, &what, err);

    if (rc == 0 && what.n && cmd->strict)
        rc = err_set(err, EX_DATAERR, "%s/%s", dir->path, what.s);
    else if (rc == 0 && what.n)
        err_warn("%s/%s, read as it is", dir->path, what.s);
    str_free(&what);
    return rc;
}

/* "N", "-N": a whole number up to 'end'; false if it is not that. */
static bool
number(const char *s, const char *end, int64_t *v)
{
    char *stop;

    if (s == end || (*s != '-' && (*s < '0' || *s > '9')))
        return false;
    errno = 0;
    *v = strtoll(s, &stop, 10);
    return errno == 0 && stop == end;
}

static int
bad_word(const struct row_list *l, const char *word, const char *why,
         struct err *err)
{
    if (l->name)
        return err_set(err, EX_DATAERR, "%s: line %zu: \"%s\" %s", l->name,
                       l->line, word, why);
    return err_set(err, TU_USAGE, "\"%s\" %s", word, why);
}

/* "FILE: line 3: DUMP: index 7, but ...", or without the line, of operands. */
static int
no_such_row(const struct row_list *l, const char *word, bool is_index,
            struct err *err)
{
    struct str where = { 0 };
    int rc;

    if (l->name)
        str_addf(&where, "%s: %s %zu: ", l->name, l->unit, l->line);
    str_addf(&where, "%s: ", l->t->dir.path);
    if (is_index)
        rc = err_set(err, EX_DATAERR, "%sindex %s, but the view has %zu row%s",
                     where.s, word, l->t->n_rows, plural(l->t->n_rows));
    else
        rc = err_set(err, EX_DATAERR,
                     "%simage:layer:patch %s is not among the view's %zu row%s",
                     where.s, word, l->t->n_rows, plural(l->t->n_rows));
    str_free(&where);
    return rc;
}

static int
add_range(struct row_list *l, size_t first, size_t last, struct err *err)
{
    size_t nbytes;

    if (!size_add(l->n_rows, last - first + 1, &l->n_rows) ||
        !size_mul(l->n_rows, l->t->dir.saev.row_nbytes, &nbytes))
        return err_set(err, EX_DATAERR, "more rows than 64 bits count");
    if (l->n_ranges == l->cap)
        l->ranges = xgrow(l->ranges, l->n_ranges, &l->cap, sizeof(*l->ranges));
    l->ranges[l->n_ranges++] = (struct index_range){ first, last };
    return 0;
}

/* INDEX, A-B or IMG:LAYER:PATCH. */
static int
add_word(struct row_list *l, const char *word, struct err *err)
{
    const struct dump_target *t = l->t;
    const struct saev *s = &t->dir.saev;
    const char *one = strchr(word, ':'),
               *two = one ? strchr(one + 1, ':') : NULL;
    int64_t img, layer, patch, row = -1;
    struct index_range r;
    size_t at = 0;
    char last[24];

    if (!one && range_parse(&r, word) < 0)
        return bad_word(l, word, "is not INDEX, A-B or IMG:LAYER:PATCH", err);
    if (!one && r.last < t->n_rows)
        return add_range(l, r.first, r.last, err);
    if (!one) {
        snprintf(last, sizeof(last), "%zu", r.last);
        return no_such_row(l, last, true, err);
    }
    if (!two || !number(word, one, &img) || !number(one + 1, two, &layer) ||
        !number(two + 1, word + strlen(word), &patch))
        return bad_word(l, word, "is not IMG:LAYER:PATCH", err);
    while (at < s->n_layers && s->layers[at] != layer)
        at++;
    if (img >= 0 && patch >= -(int64_t)s->cls_token && at < s->n_layers)
        row = saev_view_row(&t->view, (size_t)img, at,
                            (size_t)patch + s->cls_token);
    row -= (int64_t)t->first;
    if (row < 0 || (size_t)row >= t->n_rows)
        return no_such_row(l, word, false, err);
    return add_range(l, (size_t)row, (size_t)row, err);
}

static int
add_npy(struct row_list *l, const struct str *file, struct err *err)
{
    const struct dtype_info *type;
    struct npy npy;
    char text[32];

    if (npy_parse(&npy, file->s, file->n, l->name, err) < 0 ||
        npy_fits(&npy, file->n, l->name, err) < 0)
        return -1;
    type = &dtype_table[npy.dtype];
    if (type->kind != DK_INT && type->kind != DK_UINT)
        return err_set(err, EX_DATAERR, "%s: is %s (expected integers)",
                       l->name, type->name);
    l->unit = "element";
    for (l->line = 1; l->line <= npy.n_elements; l->line++) {
        /* exact: no view has 2^53 rows */
        double v = dtype_get(npy.dtype, file->s + npy.data_offset, l->line - 1);

        if (v < 0 || v >= (double)l->t->n_rows) {
            snprintf(text, sizeof(text), "%.0f", v);
            return no_such_row(l, text, true, err);
        }
        if (add_range(l, (size_t)v, (size_t)v, err) < 0)
            return -1;
    }
    return 0;
}

/* Blanks around a word, and blank lines, mean nothing; a NUL is an error. */
static int
add_lines(struct row_list *l, struct str *file, struct err *err)
{
    char *end = file->s + file->n, *next;

    l->unit = "line";
    for (char *p = file->s; p < end; p = next) {
        char *stop = memchr(p, '\n', (size_t)(end - p));

        stop = stop ? stop : end;
        next = stop + 1;
        *stop = '\0';
        l->line++;
        if (strlen(p) < (size_t)(stop - p))
            return bad_word(l, p, "is followed by a NUL byte", err);
        while (stop > p && strchr(" \t\r", stop[-1]))
            *--stop = '\0';
        p += strspn(p, " \t");
        if (*p && add_word(l, p, err) < 0)
            return -1;
    }
    return 0;
}

int
list_open(struct row_list *l, const struct dump_target *t, char **words,
          int n_words, const char *path, struct err *err)
{
    struct str file = { 0 };
    int rc = 0;

    *l = (struct row_list){ .t = t };
    for (int i = 0; i < n_words && rc == 0; i++)
        rc = add_word(l, words[i], err);
    if (n_words == 0 && !path && t->n_rows)
        rc = add_range(l, 0, t->n_rows - 1, err);
    if (rc < 0 || !path)
        return rc;
    l->name = strcmp(path, "-") != 0 ? path : "standard input";
    rc = file_read_all(path, LIST_MAX, &file, err);
    if (rc == 0 && file.n)
        rc = npy_sniff(file.s, file.n) ? add_npy(l, &file, err)
                                       : add_lines(l, &file, err);
    str_free(&file);
    return rc;
}

void
list_close(struct row_list *l)
{
    free(l->ranges);
    *l = (struct row_list){ 0 };
}

/* ---- a target ---- */

static void
set_imgs_rows(struct dump_target *t, struct index_range imgs)
{
    t->first = saev_view_img(&t->view, imgs.first);
    t->n_rows = saev_view_img(&t->view, imgs.last + 1) - t->first;
}

/* Of the rows that count, those that --rows FILE names stay, each once. */
static int
keep_named(struct dump_target *t, const char *path, struct err *err)
{
    struct saev_kept *named = saev_kept_new(t->view.n_rows, err);
    struct row_list list = { 0 };
    int rc = named ? list_open(&list, t, NULL, 0, path, err) : -1;

    for (size_t k = 0; rc == 0 && k < list.n_ranges; k++)
        for (size_t i = list.ranges[k].first; i <= list.ranges[k].last; i++)
            named->bits[(t->first + i) / 64] |= (uint64_t)1
                                                << (t->first + i) % 64;
    list_close(&list);
    for (size_t i = 0; rc == 0 && t->kept && i <= named->n_rows / 64; i++)
        named->bits[i] &= t->kept->bits[i];
    if (rc == 0)
        saev_kept_count(named);
    saev_kept_free(t->kept);
    t->kept = named;
    return rc;
}

int
target_open(struct dump_target *t, const struct read_cmd *cmd, const char *path,
            struct err *err)
{
    const struct saev *s = &t->dir.saev;
    struct index_range imgs = cmd->imgs;
    bool all = imgs.first > imgs.last, named = cmd->rows || cmd->n_args > 1;
    bool random = cmd->shuffle || cmd->window || cmd->sample;
    struct saev_mask mask = cmd->mask;

    *t = (struct dump_target){ 0 };
    if (saevdir_open(&t->dir, path, err) < 0)
        return -1;
    if (check_name(&t->dir, cmd, err) < 0 ||
        saev_view_open(&t->view, s, cmd->tokens, cmd->layer, err) < 0)
        goto bad;
    t->n_rows = t->view.n_rows;
    if (!all && imgs.last >= s->n_imgs) {
        err_set(err, EX_DATAERR, "%s: --imgs %zu-%zu, but the dump has %zu",
                t->dir.path, imgs.first, imgs.last, s->n_imgs);
        goto bad;
    }
    if (all)
        imgs = (struct index_range){ 0, s->n_imgs - 1 };
    if (s->n_imgs == 0)
        return 0;
    set_imgs_rows(t, imgs);
    if (!named || random) {
        mask.padding |= named;
        if (saev_mask_open(&t->kept, &t->dir, &t->view, &mask, imgs.first,
                           imgs.last, cmd->n_threads, err) < 0 ||
            (cmd->rows && keep_named(t, cmd->rows, err) < 0))
            goto bad;
        saev_view_keep(&t->view, t->kept);
        set_imgs_rows(t, imgs);
        if (t->n_rows == 0 && saev_mask_given(&mask)) {
            err_set(err, EX_DATAERR,
                    "%s: no row is left by --skip-ids, --skip-positions and "
                    "--max-norm",
                    t->dir.path);
            goto bad;
        }
    }
    return 0;
bad:
    target_close(t);
    return -1;
}

void
target_close(struct dump_target *t)
{
    saevdir_close(&t->dir);
    saev_kept_free(t->kept);
    *t = (struct dump_target){ 0 };
}
