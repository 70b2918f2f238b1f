/*
 * hash --check: digests are read from what hash printed, or from the lines of
 * sha256sum and xxhsum, and computed again.
 */
#include <stdlib.h>
#include <string.h>

#include "cmd/st-inspect/inspect.h"
#include "core/js.h"
#include "core/map.h"
#include "core/mem.h"

#define LIST_MAX ((size_t)1 << 30) /* bytes */
#define HEAD     "algorithm\tdigest\tbytes\tfile\ttensor"

/* A line of the list. */
struct entry {
    enum hash_kind kind;
    char digest[HASH_MAX_HEX];
    struct str file, tensor; /* tensor.s NULL: the whole file */
};

struct list {
    struct entry *entries;
    size_t n, cap;
};

static int
hex_value(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* What str_esc() did, undone; false if it cannot have written this. */
static bool
unescape(struct str *to, const char *s, size_t n)
{
    static const char from[] = "\\ntr", means[] = "\\\n\t\r";

    str_adds(to, ""); /* so that an empty field is not NULL */
    for (size_t i = 0; i < n; i++) {
        const char *simple;
        uint32_t c = 0;
        char utf8[4];
        size_t k;

        if (s[i] != '\\') {
            str_addc(to, s[i]);
            continue;
        }
        if (++i == n)
            return false;
        if (s[i] && (simple = strchr(from, s[i]))) {
            str_addc(to, means[simple - from]);
        } else if (s[i] == 'x' && n - i > 2 && hex_value(s[i + 1]) >= 0 &&
                   hex_value(s[i + 2]) >= 0) {
            str_addc(to,
                     (char)(hex_value(s[i + 1]) << 4 | hex_value(s[i + 2])));
            i += 2;
        } else if (s[i] == 'u' && n - i > 2 && s[i + 1] == '{') {
            for (k = i + 2; k < n && hex_value(s[k]) >= 0 && c <= 0xffff; k++)
                c = c << 4 | (uint32_t)hex_value(s[k]);
            if (k == n || s[k] != '}')
                return false;
            str_add(to, utf8, (size_t)utf8_put(utf8, c));
            i = k;
        } else {
            return false;
        }
    }
    return true;
}

static bool
take_digest(struct entry *e, const char *hex, size_t n)
{
    if (n != 32 && n != 64)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (hex_value(hex[i]) < 0)
            return false;
        e->digest[i] = "0123456789abcdef"[hex_value(hex[i])];
    }
    e->digest[n] = '\0';
    e->kind = n == 64 ? HASH_SHA256 : HASH_XXH3;
    return true;
}

/* "sha256 TAB digest TAB bytes TAB file TAB tensor" */
static bool
parse_own(struct entry *e, const char *line, size_t n)
{
    const char *field[5];
    size_t field_n[5];
    int i = 0;

    for (;; i++) {
        const char *tab = memchr(line, '\t', n);

        if (i == 5)
            return false;
        field[i] = line;
        field_n[i] = tab ? (size_t)(tab - line) : n;
        if (!tab)
            break;
        n -= field_n[i] + 1;
        line = tab + 1;
    }
    return i == 4 && take_digest(e, field[1], field_n[1]) &&
           strlen(hash_name(e->kind)) == field_n[0] &&
           !memcmp(hash_name(e->kind), field[0], field_n[0]) &&
           unescape(&e->file, field[3], field_n[3]) &&
           (field_n[4] == 0 || unescape(&e->tensor, field[4], field_n[4]));
}

/* "digest  file", or " *file" for what sha256sum calls binary; behind a
 * backslash at the beginning the name has escapes. */
static bool
parse_sums(struct entry *e, const char *line, size_t n)
{
    bool escaped = *line == '\\';
    size_t hex_n;

    line += escaped;
    n -= escaped;
    hex_n = strcspn(line, " \n");
    if (hex_n + 2 >= n || !take_digest(e, line, hex_n) ||
        (line[hex_n + 1] != ' ' && line[hex_n + 1] != '*'))
        return false;
    line += hex_n + 2;
    n -= hex_n + 2;
    if (escaped)
        return unescape(&e->file, line, n);
    str_add(&e->file, line, n);
    return true;
}

/* "SHA256 (file) = digest", as --tag writes it. */
static bool
parse_tag(struct entry *e, const char *line, size_t n)
{
    static const char *const heads[] = { "SHA256 (", "XXH128 (" };
    bool escaped = *line == '\\';
    const char *end;
    size_t head = strlen(heads[0]);

    line += escaped;
    n -= escaped;
    end = memrchr(line, ')', n);
    if (!end || n < head || (size_t)(line + n - end) < 4 ||
        memcmp(end, ") = ", 4) != 0 ||
        !take_digest(e, end + 4, (size_t)(line + n - end) - 4) ||
        memcmp(line, heads[e->kind == HASH_XXH3], head) != 0)
        return false;
    line += head;
    if (!escaped)
        str_add(&e->file, line, (size_t)(end - line));
    else if (!unescape(&e->file, line, (size_t)(end - line)))
        str_clear(&e->file);
    return e->file.n > 0;
}

/* Our own lines have a tab behind their first word; in one of sha256sum only
 * the file's name can have it. */
static bool
is_own(const char *line)
{
    return line[strcspn(line, " \t\n")] == '\t';
}

static int
parse_line(struct list *list, const char *line, size_t n, size_t number,
           const struct cmd *cmd, struct err *err)
{
    struct entry e = { 0 };

    if (n == 0 || (n == strlen(HEAD) && !memcmp(line, HEAD, n)))
        return 0;
    if (!is_own(line) && line[n - 1] == '\r')
        n--; /* written elsewhere */
    if (n == 0)
        return 0;
    if (is_own(line) ? !parse_own(&e, line, n)
                     : !parse_tag(&e, line, n) && !parse_sums(&e, line, n)) {
        str_free(&e.file);
        str_free(&e.tensor);
        return err_set(err, EX_DATAERR,
                       "%s: line %zu is no digest (expected st-inspect hash's "
                       "or sha256sum's lines)",
                       cmd->check, number);
    }
    if (list->n == list->cap) {
        list->cap = list->cap ? 2 * list->cap : 64;
        list->entries =
            xrealloc(list->entries, list->cap, sizeof(*list->entries));
    }
    list->entries[list->n++] = e;
    return 0;
}

static int
read_list(struct list *list, const struct cmd *cmd, struct err *err)
{
    struct str text = { 0 };
    size_t at = 0;
    int rc = file_read_all(cmd->check, LIST_MAX, &text, err);

    for (size_t number = 1; rc == 0 && at < text.n; number++) {
        const char *nl = memchr(text.s + at, '\n', text.n - at);
        size_t n = nl ? (size_t)(nl - text.s) - at : text.n - at;

        rc = parse_line(list, text.s + at, n, number, cmd, err);
        at += n + 1;
    }
    str_free(&text);
    if (rc == 0 && list->n == 0)
        rc = err_set(err, EX_DATAERR, "%s: holds no digests", cmd->check);
    return rc;
}

static int
put_result(struct cmd *cmd, const struct entry *e, const char *result,
           struct err *err)
{
    struct str *to = &cmd->text;

    if (cmd->quiet && !strcmp(result, "ok"))
        return 0;
    if (!cmd->json) {
        str_addf(to, "%s\t", result);
        str_esc(to, e->file.s, e->file.n);
        str_addc(to, '\t');
        str_esc(to, e->tensor.s, e->tensor.n);
        str_addc(to, '\n');
        return text_end(cmd, err);
    }
    str_addf(to, "%s{\"result\":\"%s\",\"file\":", cmd->n_rows++ ? ",\n" : "\n",
             result);
    js_put_str(to, e->file.s, e->file.n);
    put_json_key(to, "tensor");
    if (e->tensor.s)
        js_put_str(to, e->tensor.s, e->tensor.n);
    else
        str_adds(to, "null");
    str_addc(to, '}');
    return text_end(cmd, err);
}

/* st_find() takes names without NULs; one in it is legal, and rare. */
static const struct st_tensor *
find(const struct st *st, const struct str *name)
{
    if (!memchr(name->s, '\0', name->n))
        return st_find(st, name->s);
    for (size_t i = 0; i < st->n_tensors; i++)
        if (st->tensors[i].name_n == name->n &&
            !memcmp(st->tensors[i].name, name->s, name->n))
            return &st->tensors[i];
    return NULL;
}

/* The digest that the entry's thing has now; false: it is not there. */
static bool
digest_now(const struct entry *e, const struct st *st,
           const struct file_hash *fh, char hex[HASH_MAX_HEX])
{
    const struct st_tensor *t;

    if (!e->tensor.s) {
        memcpy(hex, fh->whole, HASH_MAX_HEX);
        return true;
    }
    t = fh->tensors ? find(st, &e->tensor) : NULL;
    if (t)
        memcpy(hex, fh->tensors[t - st->tensors], HASH_MAX_HEX);
    return t != NULL;
}

/* A line without a tensor is the file's, or that of one without a name. */
static bool
is_nameless(const struct entry *e, const struct st *st,
            const struct file_hash *fh)
{
    const struct st_tensor *t = fh->tensors ? st_find(st, "") : NULL;

    return t && !e->tensor.s &&
           !strcmp(fh->tensors[t - st->tensors], e->digest);
}

static bool
same_file(const struct entry *a, const struct entry *b)
{
    return a->kind == b->kind && a->file.n == b->file.n &&
           !memcmp(a->file.s, b->file.s, a->file.n);
}

/*
 * Hashes one file as its entries need it: any file when they are all of the
 * whole, else one of tensors.  false: it cannot be read as such.
 */
static bool
hash_entry_file(struct cmd *cmd, const struct entry *e, bool tensors,
                struct st *st, struct file_hash *fh)
{
    struct err err = { 0 };
    bool good;

    *fh = (struct file_hash){ 0 };
    *st = (struct st){ .fd = -1 };
    if (!tensors)
        good = hash_plain(fh->whole, e->file.s, e->kind, &err) == 0;
    else
        good = st_open(st, e->file.s, &err) == 0 &&
               hash_st(fh, st, e->kind, true, cmd->par, &err) == 0;
    if (!good)
        err_warn("%s", err.what);
    return good;
}

/* All entries of one file, [0, n). */
static int
check_file(struct cmd *cmd, const struct entry *e, size_t n, struct err *err)
{
    struct file_hash fh;
    struct st st;
    bool tensors = false, good;
    int status = 0;

    for (size_t i = 0; i < n; i++)
        tensors |= e[i].tensor.s != NULL;
    good = hash_entry_file(cmd, e, tensors, &st, &fh);
    for (size_t i = 0; i < n && status >= 0; i++) {
        char hex[HASH_MAX_HEX];
        bool there = good && digest_now(&e[i], &st, &fh, hex);
        bool same = there &&
                    (!strcmp(hex, e[i].digest) || is_nameless(&e[i], &st, &fh));

        if (!same)
            status = TU_NEGATIVE;
        if (put_result(cmd, &e[i],
                       same    ? "ok"
                       : there ? "differs"
                       : good  ? "missing"
                               : "unreadable",
                       err) < 0)
            status = -1;
    }
    file_hash_free(&fh);
    if (tensors)
        st_close(&st);
    return status;
}

int
check_main(struct cmd *cmd, struct err *err)
{
    struct list list = { 0 };
    int status = 0;

    if (cmd->n_args)
        return err_set(err, TU_USAGE,
                       "hash --check FILE takes no operands: the list names "
                       "its files");
    if (read_list(&list, cmd, err) < 0)
        status = -1;
    else
        str_adds(&cmd->text, cmd->json ? "[" : "result\tfile\ttensor\n");
    for (size_t i = 0, end; status >= 0 && i < list.n; i = end) {
        int one;

        for (end = i + 1; end < list.n; end++)
            if (!same_file(&list.entries[i], &list.entries[end]))
                break;
        one = check_file(cmd, &list.entries[i], end - i, err);
        status = one < 0 ? one : status | one;
    }
    if (cmd->json)
        str_adds(&cmd->text, "\n]\n");
    for (size_t i = 0; i < list.n; i++) {
        str_free(&list.entries[i].file);
        str_free(&list.entries[i].tensor);
    }
    free(list.entries);
    return status;
}
