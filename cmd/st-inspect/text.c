/* SPDX-License-Identifier: ISC */
#include "cmd/st-inspect/text.h"

#include "core/out.h"

#define FLUSH_AT 65536 /* bytes */

int
text_end(struct inspect_cmd *cmd, struct err *err)
{
    int rc;

    if (cmd->align || cmd->text.n < FLUSH_AT)
        return 0;
    rc = out_write(cmd->out, cmd->text.s, cmd->text.n, err);
    str_clear(&cmd->text);
    return rc;
}

int
text_finish(struct inspect_cmd *cmd, struct err *err)
{
    struct out *out = cmd->out;

    if (cmd->text.n && out_write(out, cmd->text.s, cmd->text.n, err) < 0)
        return -1;
    cmd->out = NULL;
    return out_commit(out, err);
}

int
row_end(struct inspect_cmd *cmd, struct err *err)
{
    record_end(&cmd->row);
    return text_end(cmd, err);
}

void
put_shape(struct str *to, size_t n_dims, const uint64_t *shape)
{
    str_addc(to, '[');
    for (size_t i = 0; i < n_dims; i++)
        str_addf(to, i ? ",%llu" : "%llu", (unsigned long long)shape[i]);
    str_addc(to, ']');
}

void
row_shape(struct record *r, const char *key, size_t n_dims,
          const uint64_t *shape)
{
    record_key(r, key);
    put_shape(r->to, n_dims, shape);
}
