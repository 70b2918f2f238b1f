/* SPDX-License-Identifier: ISC */
#include "core/record.h"

#include <math.h>
#include <string.h>

#include "core/js.h"

void
record_begin(struct record *r)
{
    if (r->json)
        str_adds(r->to, r->n_rows ? ",\n{" : "\n{");
    r->n_rows++;
    r->n_fields = 0;
    r->name = NULL;
}

void
record_end(struct record *r)
{
    if (r->name)
        record_text(r, NULL, r->name, r->name_n);
    str_addc(r->to, r->json ? '}' : '\n');
}

void
record_key(struct record *r, const char *key)
{
    if (r->n_fields++)
        str_addc(r->to, r->json ? ',' : '\t');
    if (!r->json)
        return;
    str_addc(r->to, '"');
    str_adds(r->to, key);
    str_adds(r->to, "\":");
}

void
record_text(struct record *r, const char *key, const char *s, size_t nbytes)
{
    record_key(r, key);
    if (!s)
        str_adds(r->to, r->json ? "null" : "-");
    else if (r->json)
        js_put_str(r->to, s, nbytes);
    else
        str_esc(r->to, s, nbytes);
}

void
record_name(struct record *r, const char *key, const char *s, size_t nbytes)
{
    if (r->json) {
        record_text(r, key, s, nbytes);
    } else {
        r->name = s;
        r->name_n = nbytes;
    }
}

void
record_string(struct record *r, const char *key, const char *s)
{
    record_text(r, key, s, s ? strlen(s) : 0);
}

void
record_u64(struct record *r, const char *key, uint64_t v)
{
    char buf[20];
    size_t i = sizeof(buf);

    record_key(r, key);
    do
        buf[--i] = (char)('0' + v % 10);
    while (v /= 10);
    str_add(r->to, buf + i, sizeof(buf) - i);
}

void
record_f64(struct record *r, const char *key, double v)
{
    record_key(r, key);
    if (r->json)
        js_put_f64(r->to, v);
    else if (isnan(v)) /* printf would show its sign */
        str_adds(r->to, "nan");
    else
        str_addf(r->to, "%.6g", v);
}

void
record_none(struct record *r, const char *key)
{
    record_text(r, key, NULL, 0);
}
