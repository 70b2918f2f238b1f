/* SPDX-License-Identifier: ISC */
#include "cmd/st-inspect/text.h"

#include <math.h>
#include <string.h>

#include "core/js.h"
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

void
put_u64(struct str *to, uint64_t v)
{
    char buf[20];
    size_t i = sizeof(buf);

    do
        buf[--i] = (char)('0' + v % 10);
    while (v /= 10);
    str_add(to, buf + i, sizeof(buf) - i);
}

void
put_u64_tab(struct str *to, uint64_t v)
{
    put_u64(to, v);
    str_addc(to, '\t');
}

void
put_shape(struct str *to, size_t n_dims, const uint64_t *shape)
{
    str_addc(to, '[');
    for (size_t i = 0; i < n_dims; i++) {
        if (i)
            str_addc(to, ',');
        put_u64(to, shape[i]);
    }
    str_addc(to, ']');
}

void
put_g6_tab(struct str *to, double v)
{
    if (isnan(v)) /* printf would show its sign */
        str_adds(to, "nan\t");
    else
        str_addf(to, "%.6g\t", v);
}

void
put_esc(struct str *to, const char *s)
{
    str_esc(to, s, strlen(s));
}

void
put_json_str(struct str *to, const char *s)
{
    js_put_str(to, s, strlen(s));
}

void
put_json_key(struct str *to, const char *name)
{
    str_adds(to, ",\"");
    str_adds(to, name);
    str_adds(to, "\":");
}

void
put_json_u64(struct str *to, const char *name, uint64_t v)
{
    put_json_key(to, name);
    put_u64(to, v);
}

void
put_json_f64(struct str *to, const char *name, double v)
{
    put_json_key(to, name);
    js_put_f64(to, v);
}

void
put_json_text(struct str *to, const char *name, const char *s)
{
    put_json_key(to, name);
    put_json_str(to, s);
}

void
put_json_tensor(struct str *to, const char *name, size_t name_n,
                const char *type, const struct st_tensor *t)
{
    str_adds(to, "{\"name\":");
    js_put_str(to, name, name_n);
    put_json_text(to, "dtype", type);
    put_json_key(to, "shape");
    put_shape(to, t->n_dims, t->shape);
}
