/* meta: what files say in __metadata__. */
#include "cmd/st-inspect/cmd.h"
#include "cmd/st-inspect/text.h"
#include "core/format/stdir.h"
#include "core/js.h"

static void
put_rows(struct str *to, const struct st *st)
{
    for (size_t i = 0; i < st->n_meta; i++) {
        const struct st_meta *m = &st->meta[i];

        put_esc(to, st->path);
        str_addc(to, '\t');
        str_esc(to, m->key, m->key_n);
        str_addc(to, '\t');
        str_esc(to, m->value, m->value_n);
        str_addc(to, '\n');
    }
}

static void
put_json(struct str *to, const struct st *st)
{
    str_adds(to, "{\"file\":");
    put_json_str(to, st->path);
    put_json_key(to, "metadata");
    str_addc(to, '{');
    for (size_t i = 0; i < st->n_meta; i++) {
        if (i)
            str_addc(to, ',');
        js_put_str(to, st->meta[i].key, st->meta[i].key_n);
        str_addc(to, ':');
        js_put_str(to, st->meta[i].value, st->meta[i].value_n);
    }
    str_adds(to, "}}");
}

int
meta_main(struct inspect_cmd *cmd, struct err *err)
{
    size_t n = 0;

    if (cmd->n_args == 0)
        return err_set(err, TU_USAGE, "meta: a FILE or FOLDER is missing");
    str_adds(&cmd->text, cmd->json ? "[" : "file\tkey\tvalue\n");
    for (int i = 0; i < cmd->n_args; i++) {
        struct stdir dir;

        if (stdir_open(&dir, cmd->args[i], err) < 0)
            return -1;
        for (size_t f = 0; f < dir.n_files; f++, n++) {
            if (!cmd->json) {
                put_rows(&cmd->text, &dir.files[f]);
                continue;
            }
            str_adds(&cmd->text, n ? ",\n" : "\n");
            put_json(&cmd->text, &dir.files[f]);
        }
        stdir_close(&dir);
        if (text_end(cmd, err) < 0)
            return -1;
    }
    if (cmd->json)
        str_adds(&cmd->text, "\n]\n");
    return 0;
}
