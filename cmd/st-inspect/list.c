/* SPDX-License-Identifier: ISC */
/* list: one row a tensor, or with --fold one for those of repeated layers. */
#include <stdlib.h>

#include "cmd/st-inspect/cmd.h"
#include "cmd/st-inspect/fold.h"
#include "cmd/st-inspect/packed.h"
#include "cmd/st-inspect/select.h"
#include "cmd/st-inspect/text.h"
#include "core/js.h"
#include "core/mem.h"

/* Rows in the order of --sort; equal ones by name. */
struct list_place {
    const struct fold_row *row;
    uint64_t key[2];
};

static int
by_place(const void *pa, const void *pb)
{
    const struct list_place *a = pa, *b = pb;

    for (int i = 0; i < 2; i++)
        if (a->key[i] != b->key[i])
            return a->key[i] < b->key[i] ? -1 : 1;
    return (a->row > b->row) - (a->row < b->row);
}

static void
put_row(struct str *to, const struct inspect_cmd *cmd, const struct fold_row *r,
        const struct packed_part *p)
{
    const struct st_tensor *t = r->t->t;

    str_addf(to, "%s\t", dtype_table[t->dtype].name);
    put_shape(to, t->n_dims, t->shape);
    str_addc(to, '\t');
    if (cmd->fold)
        put_u64_tab(to, r->count);
    put_u64_tab(to, r->count * t->n_elements);
    put_u64_tab(to, r->count * t->nbytes);
    if (cmd->long_rows) {
        put_u64_tab(to, r->t->st->data_offset + t->begin);
        put_esc(to, r->t->st->path);
        str_addc(to, '\t');
    }
    if (p && p->layer.group && p->role == FORM_CODES) {
        str_addf(to, "%s ", p->layer.group->type);
        put_shape(to, p->n_dims, p->shape);
        str_addc(to, '\t');
    } else if (p) {
        str_addf(to, "%s\t", p->layer.group ? packed_roles[p->role] : "-");
    }
    str_esc(to, r->name, r->name_n);
    str_addc(to, '\n');
}

static void
put_json(struct str *to, const struct inspect_cmd *cmd,
         const struct fold_row *r, const struct packed_part *p)
{
    const struct st_tensor *t = r->t->t;

    put_json_tensor(to, r->name, r->name_n, dtype_table[t->dtype].name, t);
    put_json_u64(to, "n_elements", r->count * t->n_elements);
    put_json_u64(to, "nbytes", r->count * t->nbytes);
    if (cmd->fold) {
        put_json_u64(to, "count", r->count);
    } else {
        put_json_u64(to, "offset", r->t->st->data_offset + t->begin);
        put_json_text(to, "file", r->t->st->path);
    }
    if (p && p->layer.group) {
        str_addf(to, ",\"packed\":{\"part\":\"%s\"", packed_roles[p->role]);
        put_json_key(to, "module");
        js_put_str(to, r->name, r->name_n - (t->name_n - p->module_n));
        put_json_text(to, "type", p->layer.group->type);
        put_json_key(to, "shape");
        put_shape(to, p->n_dims, p->shape);
        str_addc(to, '}');
    }
    str_addc(to, '}');
}

int
list_main(struct inspect_cmd *cmd, struct err *err)
{
    const char *path = one_operand(cmd, err);
    struct str *to = &cmd->text;
    struct folded folded = { 0 };
    struct list_place *p = NULL;
    struct quantization q = { 0 };
    struct packed_part part;
    struct err none;
    struct selection sel;
    int rc = -1;

    if (!path || select_open(&sel, path, cmd, err) < 0)
        return -1;
    packed_load(&q, &sel.dir, cmd->verbose);
    if (fold(&folded, &sel, cmd->fold, err) < 0 ||
        !(p = mem_try(folded.n, sizeof(*p), path, err)))
        goto out;
    for (size_t i = 0; i < folded.n; i++) {
        const struct fold_row *r = &folded.rows[i];

        p[i] = (struct list_place){ .row = r };
        if (cmd->sort == SORT_SIZE) {
            p[i].key[0] = UINT64_MAX - r->count * r->t->t->nbytes;
        } else if (cmd->sort == SORT_FILE) {
            p[i].key[0] = (uint64_t)(r->t->st - sel.dir.files);
            p[i].key[1] = r->t->t->begin;
        }
    }
    if (cmd->sort != SORT_NAME)
        qsort(p, folded.n, sizeof(*p), by_place);
    if (cmd->json) {
        str_adds(to, "{\"path\":");
        put_json_str(to, sel.dir.path);
        put_json_u64(to, "n_tensors", sel.n);
        put_json_u64(to, "n_elements", sel.n_elements);
        put_json_u64(to, "nbytes", sel.nbytes);
        put_json_key(to, "files");
        for (size_t i = 0; i < sel.dir.n_files; i++) {
            const struct st *st = &sel.dir.files[i];

            str_adds(to, i ? ",{\"file\":" : "[{\"file\":");
            put_json_str(to, st->path);
            put_json_u64(to, "size", st->file_size);
            put_json_u64(to, "data_offset", st->data_offset);
            str_addc(to, '}');
        }
        str_adds(to, "],\"tensors\":[");
    } else {
        str_addf(to, "dtype\tshape\t%selements\tbytes\t%s%sname\n",
                 cmd->fold ? "count\t" : "",
                 cmd->long_rows ? "offset\tfile\t" : "",
                 q.n_groups ? "packed\t" : "");
    }
    rc = 0;
    for (size_t i = 0; i < folded.n && rc == 0; i++) {
        if (cmd->json)
            str_adds(to, i ? ",\n" : "\n");
        if (q.n_groups)
            packed_part(&part, &q, &sel.dir, p[i].row->t, &none);
        (cmd->json ? put_json : put_row)(to, cmd, p[i].row,
                                         q.n_groups ? &part : NULL);
        rc = text_end(cmd, err);
    }
    if (cmd->json)
        str_adds(to, "\n]}\n");
    say_totals(cmd, &sel);
out:
    free(p);
    quantization_free(&q);
    fold_free(&folded);
    select_close(&sel);
    return rc;
}
