/* SPDX-License-Identifier: ISC */
/* meta: what files say in __metadata__. */
#include "cmd/st-inspect/cmd.h"
#include "cmd/st-inspect/text.h"
#include "core/format/stdir.h"
#include "core/js.h"

int
meta_main(struct inspect_cmd *cmd, struct err *err)
{
    struct record *row = &cmd->row;
    struct str *to = &cmd->text;

    if (cmd->n_args == 0)
        return err_set(err, TU_USAGE, "meta: a FILE or DIR is missing");
    str_adds(to, cmd->json ? "[" : "file\tkey\tvalue\n");
    for (int i = 0; i < cmd->n_args; i++) {
        struct stdir dir;

        if (stdir_open(&dir, cmd->args[i], err) < 0)
            return -1;
        for (size_t f = 0; f < dir.n_files; f++) {
            const struct st *st = &dir.files[f];

            if (cmd->json) {
                record_begin(row);
                record_string(row, "file", st->path);
                record_key(row, "metadata");
            }
            for (size_t k = 0; k < st->n_meta; k++) {
                const struct st_meta *m = &st->meta[k];

                if (cmd->json) {
                    str_adds(to, k ? "," : "{");
                    js_put_str(to, m->key, m->key_n);
                    str_addc(to, ':');
                    js_put_str(to, m->value, m->value_n);
                    continue;
                }
                record_begin(row);
                record_string(row, "file", st->path);
                record_text(row, "key", m->key, m->key_n);
                record_text(row, "value", m->value, m->value_n);
                record_end(row);
            }
            if (cmd->json)
                str_adds(to, st->n_meta ? "}}" : "{}}");
        }
        stdir_close(&dir);
        if (text_end(cmd, err) < 0)
            return -1;
    }
    if (cmd->json)
        str_adds(to, "\n]\n");
    return 0;
}
