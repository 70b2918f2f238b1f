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

/* How many columns a terminal gives the text: one for each code point. */
static size_t
width_of(const char *s, size_t nbytes)
{
    size_t n = 0;

    for (size_t i = 0; i < nbytes; i++)
        n += ((unsigned char)s[i] & 0xc0) != 0x80;
    return n;
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

static void
pad(struct str *to, size_t n)
{
    while (n-- > 0)
        str_addc(to, ' ');
}

/* Tabs become spaces; numbers move to the right of their columns.  The first
 * pass measures, the second writes. */
static void
align(struct str *text)
{
    struct column columns[MAX_COLUMNS] = { { 0 } };
    struct str to = { 0 };
    const char *end = text->s + text->n, *nl;

    for (const char *p = text->s; p < end; p = nl + 1) {
        nl = memchr(p, '\n', (size_t)(end - p));
        for (struct column *c = columns; c < columns + MAX_COLUMNS; c++) {
            const char *tab = memchr(p, '\t', (size_t)(nl - p));
            size_t n = (size_t)((tab ? tab : nl) - p), w = width_of(p, n);

            if (w > c->width && w <= ALIGN_MAX)
                c->width = w;
            if (c->head && n && strspn(p, "0123456789.+-einfa") < n)
                c->text = true;
            c->head = true;
            if (!tab)
                break;
            p = tab + 1;
        }
    }
    for (const char *p = text->s; p < end; p = nl + 1) {
        nl = memchr(p, '\n', (size_t)(end - p));
        for (struct column *c = columns; c < columns + MAX_COLUMNS; c++) {
            const char *tab = memchr(p, '\t', (size_t)(nl - p));
            size_t n = (size_t)((tab ? tab : nl) - p), w = width_of(p, n);
            size_t gap = w < c->width ? c->width - w : 0;

            pad(&to, c->text ? 0 : gap);
            str_add(&to, p, n);
            if (!tab)
                break;
            pad(&to, (c->text ? gap : 0) + 2);
            p = tab + 1;
        }
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
put_g6(struct str *to, double v)
{
    if (isnan(v)) /* printf would show its sign */
        str_adds(to, "nan");
    else
        str_addf(to, "%.6g", v);
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
