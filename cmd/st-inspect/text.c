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

#define MAX_COLUMNS 40

/* Characters.  A longer cell does not widen its column: padding all rows to the
 * longest name could take the square of a file's size. */
#define ALIGN_MAX 100

struct column {
    size_t width;
    bool head; /* its header was seen */
    bool text; /* something under the header is not a number */
};

/* Tabs become spaces; numbers move to the right of their columns.  The first
 * pass measures, the second writes. */
static void
align(struct str *text)
{
    struct column columns[MAX_COLUMNS] = { { 0 } };
    struct str to = { 0 };
    const char *end = text->s + text->n, *nl, *tab;

    for (int pass = 0; pass < 2; pass++)
        for (const char *p = text->s; p < end; p = nl + 1) {
            nl = memchr(p, '\n', (size_t)(end - p));
            for (struct column *c = columns; c < columns + MAX_COLUMNS; c++) {
                size_t n, w = 0, gap;

                tab = memchr(p, '\t', (size_t)(nl - p));
                n = (size_t)((tab ? tab : nl) - p);
                /* a terminal gives each code point one column */
                for (size_t i = 0; i < n; i++)
                    w += ((unsigned char)p[i] & 0xc0) != 0x80;
                gap = w < c->width ? c->width - w : 0;
                if (pass == 0) {
                    if (w > c->width && w <= ALIGN_MAX)
                        c->width = w;
                    if (c->head && n && strspn(p, "0123456789.+-einfa") < n)
                        c->text = true;
                    c->head = true;
                } else {
                    str_addf(&to, "%*s", c->text ? 0 : (int)gap, "");
                    str_add(&to, p, n);
                }
                if (!tab)
                    break;
                if (pass == 1)
                    str_addf(&to, "%*s", (c->text ? (int)gap : 0) + 2, "");
                p = tab + 1;
            }
            if (pass == 1)
                str_addc(&to, '\n');
        }
    str_free(text);
    *text = to;
}

int
text_finish(struct inspect_cmd *cmd, struct err *err)
{
    struct out *out = cmd->out;

    if (cmd->align && cmd->text.n)
        align(&cmd->text);
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
                const struct st_tensor *t)
{
    str_adds(to, "{\"name\":");
    js_put_str(to, name, name_n);
    put_json_text(to, "dtype", dtype_table[t->dtype].name);
    put_json_key(to, "shape");
    put_shape(to, t->n_dims, t->shape);
}
