#include "core/text/tok_scan.h"

#include <string.h>

static void
scan_space(struct json_scan *scan)
{
    while (scan->p < scan->end && (*scan->p == ' ' || *scan->p == '\n' ||
                                   *scan->p == '\t' || *scan->p == '\r'))
        scan->p++;
}

bool
scan_char(struct json_scan *scan, char c)
{
    scan_space(scan);
    if (scan->p == scan->end || *scan->p != c)
        return false;
    scan->p++;
    return true;
}

static bool
scan_hex4(struct json_scan *scan, uint32_t *v)
{
    *v = 0;
    if (scan->end - scan->p < 4)
        return false;
    for (int i = 0; i < 4; i++) {
        char c = *scan->p++;

        if (c >= '0' && c <= '9')
            *v = *v << 4 | (uint32_t)(c - '0');
        else if ((c | 32) >= 'a' && (c | 32) <= 'f')
            *v = *v << 4 | (uint32_t)((c | 32) - 'a' + 10);
        else
            return false;
    }
    return true;
}

/* After a backslash. */
static bool
scan_escape(struct json_scan *scan, struct str *s)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *at;
    uint32_t c, low;
    char utf8[4];

    if (scan->p == scan->end)
        return false;
    if (*scan->p != 'u') {
        at = *scan->p ? strchr(from, *scan->p) : NULL;
        scan->p++;
        if (at)
            str_addc(s, to[at - from]);
        return at != NULL;
    }
    scan->p++;
    if (!scan_hex4(scan, &c) || (c >= 0xdc00 && c < 0xe000))
        return false;
    if (c >= 0xd800 && c < 0xdc00) {
        if (scan->end - scan->p < 6 || *scan->p++ != '\\' ||
            *scan->p++ != 'u' || !scan_hex4(scan, &low) || low < 0xdc00 ||
            low > 0xdfff)
            return false;
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    }
    str_add(s, utf8, (size_t)utf8_put(utf8, c));
    return true;
}

bool
scan_string(struct json_scan *scan, struct str *s)
{
    const char *p;

    str_clear(s);
    if (!scan_char(scan, '"'))
        return false;
    for (;;) {
        for (p = scan->p; p < scan->end && *p != '"' && *p != '\\'; p++)
            if ((unsigned char)*p < 0x20)
                return false;
        str_add(s, scan->p, (size_t)(p - scan->p));
        if (p == scan->end)
            return false;
        scan->p = p + 1;
        if (*p == '"')
            return utf8_valid(s->s, s->n) == s->n;
        if (!scan_escape(scan, s))
            return false;
    }
}

bool
scan_int(struct json_scan *scan, int64_t *v)
{
    const char *start;

    scan_space(scan);
    *v = 0;
    start = scan->p;
    while (scan->p < scan->end && *scan->p >= '0' && *scan->p <= '9') {
        if (*v > INT64_MAX / 10 - 1)
            return false;
        *v = *v * 10 + (*scan->p++ - '0');
    }
    return scan->p > start && (*start != '0' || scan->p == start + 1);
}

/* Past a string without decoding it. */
static bool
skip_string(struct json_scan *scan)
{
    for (scan->p++; scan->p < scan->end && *scan->p != '"'; scan->p++)
        if (*scan->p == '\\')
            scan->p++;
    if (scan->p >= scan->end)
        return false;
    scan->p++;
    return true;
}

bool
scan_skip(struct json_scan *scan)
{
    size_t depth = 0;

    scan_space(scan);
    while (scan->p < scan->end) {
        char c = *scan->p;

        if (depth == 0 && (c == ',' || c == '}' || c == ']'))
            return true;
        if (c == '"') {
            if (!skip_string(scan))
                return false;
            continue;
        }
        if (c == '{' || c == '[')
            depth++;
        else if (c == '}' || c == ']')
            depth--;
        scan->p++;
    }
    return depth == 0;
}

/* Steps to the next member of an object that 'first' says is not begun. */
static bool
next_member(struct json_scan *scan, struct str *key, bool first)
{
    return (first || scan_char(scan, ',')) && scan_string(scan, key) &&
           scan_char(scan, ':');
}

static bool
is_key(const struct str *key, const char *name)
{
    return key->n == strlen(name) && memcmp(key->s, name, key->n) == 0;
}

/* Past a value; empties it in the slim copy, unless it is of another kind. */
static bool
take(struct json_scan *scan, struct hot *hot, const char **copied, char open,
     const char **where)
{
    scan_space(scan);
    if (scan->p == scan->end || *scan->p != open)
        return scan_skip(scan);
    *where = scan->p;
    str_add(&hot->slim, *copied, (size_t)(scan->p - *copied));
    str_adds(&hot->slim, open == '{' ? "{}" : "[]");
    if (!scan_skip(scan))
        return false;
    *copied = scan->p;
    return true;
}

static bool
scan_model(struct json_scan *scan, struct hot *hot, const char **copied,
           struct str *key)
{
    bool ok = true, first = true;

    if (!scan_char(scan, '{'))
        return scan_skip(scan);
    while (ok && !scan_char(scan, '}')) {
        ok = next_member(scan, key, first);
        if (ok && is_key(key, "vocab"))
            ok = take(scan, hot, copied, '{', &hot->vocab);
        else if (ok && is_key(key, "merges"))
            ok = take(scan, hot, copied, '[', &hot->merges);
        else if (ok)
            ok = scan_skip(scan);
        first = false;
    }
    return ok;
}

bool
scan_hot(const char *json, size_t nbytes, struct hot *hot)
{
    struct json_scan scan = { json, json + nbytes };
    const char *copied = json;
    struct str key = { 0 };
    bool ok = scan_char(&scan, '{'), first = true;

    while (ok && !scan_char(&scan, '}')) {
        ok = next_member(&scan, &key, first);
        if (ok && is_key(&key, "model"))
            ok = scan_model(&scan, hot, &copied, &key);
        else if (ok)
            ok = scan_skip(&scan);
        first = false;
    }
    if (ok)
        str_add(&hot->slim, copied, (size_t)(scan.end - copied));
    str_free(&key);
    return ok;
}
