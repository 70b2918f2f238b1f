/* list: one row a tensor. */
#include <stdlib.h>

#include "cmd/st-inspect/cmd.h"
#include "cmd/st-inspect/fold.h"
#include "cmd/st-inspect/select.h"
#include "cmd/st-inspect/text.h"
#include "core/js.h"
#include "core/mem.h"

static void
put_head(struct str *to, const struct inspect_cmd *cmd)
{
    str_adds(to, "dtype\tshape\t");
    if (cmd->fold)
        str_adds(to, "count\t");
    str_adds(to, "elements\tbytes\t");
    if (cmd->long_rows)
        str_adds(to, "offset\tfile\t");
    str_adds(to, "name\n");
}

/* dtype, shape, count, elements and bytes: what all forms of a row begin by. */
static void
put_sizes(struct str *to, const struct st_tensor *t, uint64_t count, bool fold)
{
    str_adds(to, dtype_table[t->dtype].name);
    str_addc(to, '\t');
    put_shape(to, t->n_dims, t->shape);
    if (fold) {
        str_addc(to, '\t');
        put_u64(to, count);
    }
    str_addc(to, '\t');
    put_u64(to, count * t->n_elements);
    str_addc(to, '\t');
    put_u64(to, count * t->nbytes);
    str_addc(to, '\t');
}

static void
put_row(struct str *to, const struct inspect_cmd *cmd,
        const struct stdir_tensor *t)
{
    put_sizes(to, t->t, 1, false);
    if (cmd->long_rows) {
        put_u64(to, t->st->data_offset + t->t->begin);
        str_addc(to, '\t');
        put_esc(to, t->st->path);
        str_addc(to, '\t');
    }
    str_esc(to, t->t->name, t->t->name_n);
    str_addc(to, '\n');
}

static void
put_json_sizes(struct str *to, const struct st_tensor *t, const char *name,
               size_t name_n, uint64_t count)
{
    str_adds(to, "{\"name\":");
    js_put_str(to, name, name_n);
    put_json_text(to, "dtype", dtype_table[t->dtype].name);
    put_json_key(to, "shape");
    put_shape(to, t->n_dims, t->shape);
    put_json_u64(to, "n_elements", count * t->n_elements);
    put_json_u64(to, "nbytes", count * t->nbytes);
}

static void
put_json_row(struct str *to, const struct stdir_tensor *t)
{
    put_json_sizes(to, t->t, t->t->name, t->t->name_n, 1);
    put_json_u64(to, "offset", t->st->data_offset + t->t->begin);
    put_json_text(to, "file", t->st->path);
    str_addc(to, '}');
}

static void
put_json_head(struct str *to, const struct selection *sel)
{
    str_adds(to, "{\"path\":");
    put_json_str(to, sel->dir.path);
    put_json_u64(to, "n_tensors", sel->n);
    put_json_u64(to, "n_elements", sel->n_elements);
    put_json_u64(to, "nbytes", sel->nbytes);
    put_json_key(to, "files");
    for (size_t i = 0; i < sel->dir.n_files; i++) {
        const struct st *st = &sel->dir.files[i];

        str_adds(to, i ? ",{\"file\":" : "[{\"file\":");
        put_json_str(to, st->path);
        put_json_u64(to, "size", st->file_size);
        put_json_u64(to, "data_offset", st->data_offset);
        str_addc(to, '}');
    }
    str_adds(to, "],\"tensors\":[");
}

/* Rows in the order that --sort asks for; equal ones by name. */
struct place {
    size_t row;
    uint64_t key[2];
};

static int
by_place(const void *pa, const void *pb)
{
    const struct place *a = pa, *b = pb;

    for (int i = 0; i < 2; i++)
        if (a->key[i] != b->key[i])
            return a->key[i] < b->key[i] ? -1 : 1;
    return (a->row > b->row) - (a->row < b->row);
}

static struct place *
places(const struct inspect_cmd *cmd, const struct selection *sel,
       const struct folded *folded, size_t n, struct err *err)
{
    struct place *p = mem_try(n, sizeof(*p), sel->dir.path, err);

    for (size_t i = 0; p && i < n; i++) {
        const struct fold_row *f = folded ? &folded->rows[i] : NULL;
        const struct st_tensor *t = f ? f->t : sel->t[i]->t;

        p[i] = (struct place){ .row = i };
        if (cmd->sort == SORT_SIZE) {
            p[i].key[0] = UINT64_MAX - t->nbytes * (f ? f->count : 1);
        } else if (cmd->sort == SORT_FILE) {
            p[i].key[0] = (uint64_t)(sel->t[i]->st - sel->dir.files);
            p[i].key[1] = t->begin;
        }
    }
    if (p && cmd->sort != SORT_NAME)
        qsort(p, n, sizeof(*p), by_place);
    return p;
}

static void
put_folded(struct str *to, const struct inspect_cmd *cmd,
           const struct fold_row *r)
{
    if (cmd->json) {
        put_json_sizes(to, r->t, r->name, r->name_n, r->count);
        put_json_u64(to, "count", r->count);
        str_addc(to, '}');
    } else {
        put_sizes(to, r->t, r->count, true);
        str_esc(to, r->name, r->name_n);
        str_addc(to, '\n');
    }
}

static int
list_rows(struct inspect_cmd *cmd, const struct selection *sel,
          const struct folded *folded, struct err *err)
{
    size_t n = folded ? folded->n : sel->n;
    struct place *p = places(cmd, sel, folded, n, err);
    int rc = p ? 0 : -1;

    for (size_t i = 0; i < n && rc == 0; i++) {
        struct str *to = &cmd->text;

        if (cmd->json)
            str_adds(to, i ? ",\n" : "\n");
        if (folded)
            put_folded(to, cmd, &folded->rows[p[i].row]);
        else if (cmd->json)
            put_json_row(to, sel->t[p[i].row]);
        else
            put_row(to, cmd, sel->t[p[i].row]);
        rc = text_end(cmd, err);
    }
    free(p);
    return rc;
}

int
list_main(struct inspect_cmd *cmd, struct err *err)
{
    const char *path = one_operand(cmd, err);
    struct folded folded = { 0 };
    struct selection sel;
    int rc = -1;

    if (!path || select_open(&sel, path, cmd, err) < 0)
        return -1;
    if (cmd->fold && fold(&folded, &sel, err) < 0)
        goto out;
    if (cmd->json)
        put_json_head(&cmd->text, &sel);
    else
        put_head(&cmd->text, cmd);
    rc = list_rows(cmd, &sel, cmd->fold ? &folded : NULL, err);
    if (cmd->json)
        str_adds(&cmd->text, "\n]}\n");
    say_totals(cmd, &sel);
out:
    fold_free(&folded);
    select_close(&sel);
    return rc;
}
