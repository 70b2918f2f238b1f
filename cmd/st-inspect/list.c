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

/* What a tensor is of packed weights. */
static void
put_packed(struct record *row, const struct fold_row *r,
           const struct packed_part *p)
{
    const struct quantized_group *group = p->layer.group;

    if (!row->json && group && p->role == FORM_CODES) {
        record_key(row, "packed");
        str_addf(row->to, "%s ", group->type);
        put_shape(row->to, p->n_dims, p->shape);
    } else if (!row->json) {
        record_string(row, "packed", group ? packed_roles[p->role] : NULL);
    } else if (group) {
        record_key(row, "packed");
        js_addf(row->to, "{\"part\":%s,\"module\":", packed_roles[p->role]);
        js_put_str(row->to, r->name,
                   r->name_n - (r->t->t->name_n - p->module_n));
        js_addf(row->to, ",\"type\":%s,\"shape\":", group->type);
        put_shape(row->to, p->n_dims, p->shape);
        str_addc(row->to, '}');
    }
}

static void
put_row(struct inspect_cmd *cmd, const struct fold_row *r,
        const struct packed_part *p)
{
    const struct st_tensor *t = r->t->t;
    struct record *row = &cmd->row;

    record_begin(row);
    record_name(row, "name", r->name, r->name_n);
    record_string(row, "dtype", dtype_table[t->dtype].name);
    row_shape(row, "shape", t->n_dims, t->shape);
    if (cmd->fold && !row->json)
        record_u64(row, "count", r->count);
    record_u64(row, "n_elements", r->count * t->n_elements);
    record_u64(row, "nbytes", r->count * t->nbytes);
    if (cmd->fold && row->json)
        record_u64(row, "count", r->count);
    if (cmd->json ? !cmd->fold : cmd->long_rows) {
        record_u64(row, "offset", r->t->st->data_offset + t->begin);
        record_string(row, "file", r->t->st->path);
    }
    if (p)
        put_packed(row, r, p);
}

int
list_main(struct inspect_cmd *cmd, struct err *err)
{
    const char *path = one_operand(cmd, err);
    struct str *to = &cmd->text;
    struct folded folded = { 0 };
    struct quantization q = { 0 };
    struct packed_part part;
    struct err none;
    struct selection sel;
    int rc = -1;

    if (!path || select_open(&sel, path, cmd, err) < 0)
        return -1;
    packed_load(&q, &sel.dir, cmd->verbose);
    if (fold(&folded, &sel, cmd->fold, err) < 0)
        goto out;
    if (cmd->json) {
        js_addf(to,
                "{\"path\":%s,\"n_tensors\":%zu,\"n_elements\":%llu,"
                "\"nbytes\":%llu,\"files\":[",
                sel.dir.path, sel.n, (unsigned long long)sel.n_elements,
                (unsigned long long)sel.nbytes);
        for (size_t i = 0; i < sel.dir.n_files; i++) {
            const struct st *st = &sel.dir.files[i];

            str_adds(to, i ? "," : "");
            js_addf(to, "{\"file\":%s,\"size\":%zu,\"data_offset\":%zu}",
                    st->path, st->file_size, st->data_offset);
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
        if (q.n_groups)
            packed_part(&part, &q, &sel.dir, folded.rows[i].t, &none);
        put_row(cmd, &folded.rows[i], q.n_groups ? &part : NULL);
        rc = row_end(cmd, err);
    }
    if (cmd->json)
        str_adds(to, "\n]}\n");
    say_totals(cmd, &sel);
out:
    quantization_free(&q);
    fold_free(&folded);
    select_close(&sel);
    return rc;
}
