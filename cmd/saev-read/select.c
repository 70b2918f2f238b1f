/* SPDX-License-Identifier: ISC */
#include "cmd/saev-read/select.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/dtype.h"
#include "core/format/saev_mask.h"
#include "core/le.h"
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
    if (l->reading)
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

    if (l->reading)
        str_addf(&where, "%s: %s %zu: ", l->name,
                 l->is_npy ? "element" : "line", l->line);
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

/* A layer, and its position in the metadata's list. */
struct list_layer {
    int64_t layer;
    size_t position;
};

static int
by_layer(const void *a, const void *b)
{
    int64_t x = ((const struct list_layer *)a)->layer;
    int64_t y = ((const struct list_layer *)b)->layer;

    return x < y ? -1 : x > y;
}

/* INDEX, A-B or IMG:LAYER:PATCH. */
static int
parse_word(const struct row_list *l, const char *word, struct index_range *r,
           struct err *err)
{
    const struct dump_target *t = l->t;
    const struct saev *s = &t->dir.saev;
    const char *one = strchr(word, ':'),
               *two = one ? strchr(one + 1, ':') : NULL;
    struct list_layer key, *found;
    int64_t img, patch, row = -1;
    char last[24];

    if (!one && range_parse(r, word) < 0)
        return bad_word(l, word, "is not INDEX, A-B or IMG:LAYER:PATCH", err);
    if (!one && r->last < t->n_rows)
        return 0;
    if (!one) {
        snprintf(last, sizeof(last), "%zu", r->last);
        return no_such_row(l, last, true, err);
    }
    if (!two || !number(word, one, &img) || !number(one + 1, two, &key.layer) ||
        !number(two + 1, word + strlen(word), &patch))
        return bad_word(l, word, "is not IMG:LAYER:PATCH", err);
    found = bsearch(&key, l->layers, s->n_layers, sizeof(key), by_layer);
    if (img >= 0 && patch >= -(int64_t)s->cls_token && found)
        row = saev_view_row(&t->view, (size_t)img, found->position,
                            (size_t)patch + s->cls_token);
    row -= (int64_t)t->first;
    if (row < 0 || (size_t)row >= t->n_rows)
        return no_such_row(l, word, false, err);
    *r = (struct index_range){ (size_t)row, (size_t)row };
    return 0;
}

static int
next_npy(struct row_list *l, struct index_range *r, struct err *err)
{
    unsigned size = (unsigned)dtype_size(l->npy.dtype);
    unsigned char bytes[8];
    char text[24];
    unsigned bits = 8 * size;
    bool negative;
    uint64_t v;

    if (l->line == l->npy.n_elements) { /* the end of the file as well */
        if (fgetc(l->file) != EOF)
            return err_set(
                err, EX_DATAERR,
                "%s: more data (expected %llu elements by its header)", l->name,
                (unsigned long long)l->npy.n_elements);
        if (ferror(l->file))
            return err_sys(err, EX_IOERR, "%s: cannot be read", l->name);
        return 0;
    }
    if (fread(bytes, size, 1, l->file) != 1 && ferror(l->file))
        return err_sys(err, EX_IOERR, "%s: cannot be read", l->name);
    if (feof(l->file))
        return err_set(err, EX_DATAERR, "%s: ends after %zu of %llu element%s",
                       l->name, l->line, (unsigned long long)l->npy.n_elements,
                       plural(l->npy.n_elements));
    l->line++;
    v = size == 1   ? bytes[0]
        : size == 2 ? le16(bytes)
        : size == 4 ? le32(bytes)
                    : le64(bytes);
    negative = dtype_table[l->npy.dtype].kind == DK_INT && v >> (bits - 1) != 0;
    if (negative || v >= l->t->n_rows) {
        if (negative && bits < 64)
            v |= ~(uint64_t)0 << bits;
        snprintf(text, sizeof(text), negative ? "%lld" : "%llu",
                 (unsigned long long)v);
        return no_such_row(l, text, true, err);
    }
    *r = (struct index_range){ v, v };
    return 1;
}

/* Blanks around a word, and blank lines, mean nothing; a NUL is an error. */
static int
next_line(struct row_list *l, struct index_range *r, struct err *err)
{
    ssize_t n;
    char *word;

    while ((n = getline(&l->text, &l->text_cap, l->file)) >= 0) {
        l->line++;
        if (strlen(l->text) < (size_t)n)
            return bad_word(l, l->text, "is followed by a NUL byte", err);
        while (n > 0 && strchr(" \t\r\n", l->text[n - 1]))
            l->text[--n] = '\0';
        word = l->text + strspn(l->text, " \t");
        if (*word)
            return parse_word(l, word, r, err) < 0 ? -1 : 1;
    }
    if (!feof(l->file)) /* or no memory for the line */
        return err_sys(err, EX_IOERR, "%s: cannot be read", l->name);
    return 0;
}

static int
next_range(struct row_list *l, struct index_range *r, struct err *err)
{
    if (l->next < l->n_ranges) {
        *r = l->ranges[l->next++];
        return 1;
    }
    if (!l->file)
        return 0;
    l->reading = true;
    return l->is_npy ? next_npy(l, r, err) : next_line(l, r, err);
}

/* The output was sized by list_open()'s count: the file must not change. */
int
list_next(struct row_list *l, struct index_range *r, struct err *err)
{
    int rc = next_range(l, r, err);
    size_t n = rc > 0 ? r->last - r->first + 1 : 0;

    if (rc < 0)
        return -1;
    if (n > l->n_left || (rc == 0 && l->n_left > 0))
        return err_set(err, EX_DATAERR, "%s: was changed while it was read",
                       l->name);
    l->n_left -= n;
    return rc;
}

static int
rewind_list(struct row_list *l, struct err *err)
{
    l->next = l->line = 0;
    l->reading = false;
    if (l->file && fseek(l->file, (long)l->npy.data_offset, SEEK_SET) < 0)
        return err_sys(err, EX_IOERR, "%s", l->name);
    return 0;
}

/* Integers in .npy, or text.  A file that can be read twice is; anything else
 * is kept in memory. */
static int
open_file(struct row_list *l, const char *path, struct err *err)
{
    struct stat st;
    char *head;
    size_t n;
    int rc = 0;

    l->name = strcmp(path, "-") != 0 ? path : "standard input";
    if (l->name == path && stat(path, &st) == 0 && S_ISREG(st.st_mode)) {
        size_t size;
        int fd = file_open(path, &size, err);

        l->file = fd < 0 ? NULL : fdopen(fd, "r");
        if (fd < 0)
            return -1;
    } else {
        if (file_read_all(path, LIST_MAX, &l->kept, err) < 0)
            return -1;
        if (l->kept.n == 0)
            return 0;
        l->file = fmemopen(l->kept.s, l->kept.n, "r");
    }
    if (!l->file)
        return err_sys(err, file_status(errno), "%s", path);
    head = xmalloc(NPY_MAX_HEAD);
    n = fread(head, 1, NPY_MAX_HEAD, l->file);
    if (ferror(l->file))
        rc = err_sys(err, EX_IOERR, "%s: cannot be read", l->name);
    l->is_npy = rc == 0 && npy_sniff(head, n);
    if (l->is_npy)
        rc = npy_parse(&l->npy, head, n, l->name, err);
    free(head);
    if (l->is_npy && rc == 0) {
        const struct dtype_info *type = &dtype_table[l->npy.dtype];

        if (type->kind != DK_INT && type->kind != DK_UINT)
            return err_set(err, EX_DATAERR, "%s: is %s (expected integers)",
                           l->name, type->name);
    }
    return rc == 0 ? rewind_list(l, err) : -1;
}

int
list_open(struct row_list *l, const struct dump_target *t, char **words,
          int n_words, const char *path, struct err *err)
{
    const struct saev *s = &t->dir.saev;
    struct index_range r;
    size_t nbytes;
    int rc;

    *l = (struct row_list){ .t = t };
    /* by their numbers: a million lines may each name one of 65536 */
    l->layers = xcalloc(s->n_layers, sizeof(*l->layers));
    for (size_t i = 0; i < s->n_layers; i++)
        l->layers[i] = (struct list_layer){ s->layers[i], i };
    qsort(l->layers, s->n_layers, sizeof(*l->layers), by_layer);
    l->ranges = xcalloc((size_t)n_words + 1, sizeof(*l->ranges));
    for (int i = 0; i < n_words; i++)
        if (parse_word(l, words[i], &l->ranges[l->n_ranges++], err) < 0)
            goto bad;
    if (n_words == 0 && !path && t->n_rows)
        l->ranges[l->n_ranges++] = (struct index_range){ 0, t->n_rows - 1 };
    if (path && open_file(l, path, err) < 0)
        goto bad;
    while ((rc = next_range(l, &r, err)) > 0)
        if (!size_add(l->n_rows, r.last - r.first + 1, &l->n_rows) ||
            !size_mul(l->n_rows, s->row_nbytes, &nbytes)) {
            rc = err_set(err, EX_DATAERR, "more rows than 64 bits count");
            break;
        }
    l->n_left = l->n_rows;
    if (rc == 0 && rewind_list(l, err) == 0)
        return 0;
bad:
    list_close(l);
    return -1;
}

void
list_close(struct row_list *l)
{
    if (l->file)
        fclose(l->file);
    free(l->text);
    str_free(&l->kept);
    free(l->ranges);
    free(l->layers);
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
    struct index_range r;
    struct row_list list;
    int rc = named ? list_open(&list, t, NULL, 0, path, err) : -1;

    if (rc == 0) {
        while ((rc = list_next(&list, &r, err)) > 0)
            for (size_t i = t->first + r.first; i <= t->first + r.last; i++)
                named->bits[i / 64] |= (uint64_t)1 << i % 64;
        list_close(&list);
    }
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
