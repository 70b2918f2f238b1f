/* hash --check: the digests of a list, computed again. */
#include <string.h>

#include "cmd/st-inspect/inspect.h"
#include "core/js.h"
#include "core/map.h"

#define LIST_MAX ((size_t)1 << 30) /* bytes */

static int
read_list(struct sums *sums, const struct cmd *cmd, struct err *err)
{
    struct str text = { 0 };
    int rc = file_read_all(cmd->check, LIST_MAX, &text, err);

    if (rc == 0)
        rc = sums_parse(sums, text.s, text.n, cmd->check, err);
    str_free(&text);
    return rc;
}

static int
put_result(struct cmd *cmd, const struct sums_line *e, const char *result,
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
digest_now(const struct sums_line *e, const struct st *st,
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
is_nameless(const struct sums_line *e, const struct st *st,
            const struct file_hash *fh)
{
    const struct st_tensor *t = fh->tensors ? st_find(st, "") : NULL;

    return t && !e->tensor.s &&
           !strcmp(fh->tensors[t - st->tensors], e->digest);
}

static bool
same_file(const struct sums_line *a, const struct sums_line *b)
{
    return a->kind == b->kind && a->file.n == b->file.n &&
           !memcmp(a->file.s, b->file.s, a->file.n);
}

/*
 * Hashes one file as its entries need it: any file when they are all of the
 * whole, else one of tensors.  false: it cannot be read as such.
 */
static bool
hash_entry_file(struct cmd *cmd, const struct sums_line *e, bool tensors,
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
check_file(struct cmd *cmd, const struct sums_line *e, size_t n,
           struct err *err)
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
    struct sums list = { 0 };
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
            if (!same_file(&list.v[i], &list.v[end]))
                break;
        one = check_file(cmd, &list.v[i], end - i, err);
        status = one < 0 ? one : status | one;
    }
    if (cmd->json)
        str_adds(&cmd->text, "\n]\n");
    sums_free(&list);
    return status;
}
