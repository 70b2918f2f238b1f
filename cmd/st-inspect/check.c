/*
 * hash --check: the digests of a list, computed again.  A file is read once,
 * however many lines name it, by whatever names, and wherever they stand.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cmd/st-inspect/cmd.h"
#include "cmd/st-inspect/hashing.h"
#include "cmd/st-inspect/sums.h"
#include "cmd/st-inspect/text.h"
#include "core/js.h"
#include "core/mem.h"

#define LIST_MAX ((size_t)1 << 30) /* bytes */

static int
put_result(struct inspect_cmd *cmd, const struct sums_line *e, struct err *err)
{
    struct str *to = &cmd->text;

    if (cmd->quiet && !strcmp(e->result, "ok"))
        return 0;
    if (!cmd->json) {
        str_addf(to, "%s\t", e->result);
        str_esc(to, e->file.s, e->file.n);
        str_addc(to, '\t');
        str_esc(to, e->tensor.s, e->tensor.n);
        str_addc(to, '\n');
        return text_end(cmd, err);
    }
    str_addf(to, "%s{\"result\":\"%s\",\"file\":", cmd->n_rows++ ? ",\n" : "\n",
             e->result);
    js_put_str(to, e->file.s, e->file.n);
    put_json_key(to, "tensor");
    if (e->tensor.s)
        js_put_str(to, e->tensor.s, e->tensor.n);
    else
        str_adds(to, "null");
    str_addc(to, '}');
    return text_end(cmd, err);
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
    t = fh->tensors ? st_find_n(st, e->tensor.s, e->tensor.n) : NULL;
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

/* Lines of one file follow each other, as the list has them. */
static int
by_file(const void *pa, const void *pb)
{
    const struct sums_line *a = *(struct sums_line *const *)pa;
    const struct sums_line *b = *(struct sums_line *const *)pb;

    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    if (a->dev != b->dev)
        return a->dev < b->dev ? -1 : 1;
    if (a->ino != b->ino)
        return a->ino < b->ino ? -1 : 1;
    return (a > b) - (a < b);
}

static bool
same_file(const struct sums_line *a, const struct sums_line *b)
{
    return a->kind == b->kind && a->dev == b->dev && a->ino == b->ino && a->ino;
}

/* Which lines are of one file: pointers to all, those of a file together. */
static struct sums_line **
group(struct sums_list *list, const struct inspect_cmd *cmd, struct err *err)
{
    struct sums_line **v = mem_try(list->n, sizeof(*v), cmd->check, err);
    struct stat st;

    for (size_t i = 0; v && i < list->n; i++) {
        v[i] = &list->v[i];
        if (stat(v[i]->file.s, &st) == 0) {
            v[i]->dev = st.st_dev;
            v[i]->ino = st.st_ino;
        }
    }
    if (v)
        qsort(v, list->n, sizeof(*v), by_file);
    for (size_t i = 0; v && i < list->n; i++)
        v[i]->first = i > 0 && same_file(v[i - 1], v[i]) ? v[i - 1]->first : i;
    return v;
}

/*
 * Hashes one file as its entries need it: any file when they are all of the
 * whole, else one of tensors.  false: it cannot be read as such.
 */
static bool
hash_entry_file(struct inspect_cmd *cmd, const struct sums_line *e,
                bool tensors, struct st *st, struct file_hash *fh)
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

/* What the n lines of one file say of it. */
static void
check_file(struct inspect_cmd *cmd, struct sums_line **e, size_t n)
{
    struct file_hash fh;
    struct st st;
    bool tensors = false, good;

    for (size_t i = 0; i < n; i++)
        tensors |= e[i]->tensor.s != NULL;
    good = hash_entry_file(cmd, e[0], tensors, &st, &fh);
    for (size_t i = 0; i < n; i++) {
        char hex[HASH_MAX_HEX];
        bool there = good && digest_now(e[i], &st, &fh, hex);
        bool same = there &&
                    (!strcmp(hex, e[i]->digest) || is_nameless(e[i], &st, &fh));

        e[i]->result = same    ? "ok"
                       : there ? "differs"
                       : good  ? "missing"
                               : "unreadable";
    }
    file_hash_free(&fh);
    if (tensors)
        st_close(&st);
}

/* Lines in their order, each when its file is known. */
static int
check_lines(struct inspect_cmd *cmd, struct sums_list *list,
            struct sums_line **v, struct err *err)
{
    int status = 0;

    for (size_t i = 0; i < list->n; i++) {
        struct sums_line *e = &list->v[i];
        size_t end = e->first;

        while (!e->result && end < list->n && v[end]->first == e->first)
            end++;
        if (!e->result)
            check_file(cmd, v + e->first, end - e->first);
        if (strcmp(e->result, "ok") != 0)
            status = TU_NEGATIVE;
        if (put_result(cmd, e, err) < 0)
            return -1;
    }
    return status;
}

static int
read_list(struct sums_list *list, const char *path, struct err *err)
{
    struct str text = { 0 };
    int rc = file_read_all(path, LIST_MAX, &text, err);

    if (rc == 0)
        rc = sums_parse(list, text.s, text.n, path, err);
    str_free(&text);
    return rc;
}

int
check_main(struct inspect_cmd *cmd, struct err *err)
{
    struct sums_line **v = NULL;
    struct sums_list list = { 0 };
    int status = -1;

    if (cmd->n_args)
        return err_set(err, TU_USAGE,
                       "hash --check FILE takes no operands: the list names "
                       "its files");
    if (read_list(&list, cmd->check, err) == 0 &&
        (v = group(&list, cmd, err))) {
        str_adds(&cmd->text, cmd->json ? "[" : "result\tfile\ttensor\n");
        status = check_lines(cmd, &list, v, err);
    }
    if (cmd->json)
        str_adds(&cmd->text, "\n]\n");
    free(v);
    sums_free(&list);
    return status;
}
