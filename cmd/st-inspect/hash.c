/* hash: digests of files and of their tensors. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/st-inspect/cmd.h"
#include "cmd/st-inspect/hashing.h"
#include "cmd/st-inspect/select.h"
#include "cmd/st-inspect/text.h"
#include "cmd/st-inspect/view.h"
#include "core/js.h"
#include "core/mem.h"
#include "core/tool.h"
#include "core/tty.h"

struct hashes {
    struct inspect_cmd *cmd;
    const struct selection *sel;
    char (*hex)[HASH_MAX_HEX]; /* [sel->n], for -t */
    struct err *errs;          /* [threads] */
};

/*
 * A hub cache keeps a file as blobs/SHA256 and links to it: the name says what
 * the digest must be.  NULL, or the 64 digits in 'real'.
 */
static const char *
blob_name(const char *path, char real[PATH_MAX])
{
    char *name;

    if (!realpath(path, real))
        return NULL;
    name = strrchr(real, '/');
    if (!name || strlen(name + 1) != 64 ||
        strspn(name + 1, "0123456789abcdef") != 64)
        return NULL;
    *name = '\0';
    return name - real >= 6 && !strcmp(name - 6, "/blobs") ? name + 1 : NULL;
}

/* 0, or TU_NEGATIVE and a line if the cache's name says otherwise. */
static int
check_blob(const struct inspect_cmd *cmd, const char *path, const char *hex)
{
    char real[PATH_MAX];
    const char *blob = cmd->hash == HASH_SHA256 ? blob_name(path, real) : NULL;

    if (!blob || !strcmp(blob, hex))
        return 0;
    tool_say("%s: is %s, but the hub cache calls it %s", path, hex, blob);
    return TU_NEGATIVE;
}

/* JSON is one array over all operands: its last byte says what comes next. */
static int
put(struct inspect_cmd *cmd, const struct st *st, const struct st_tensor *t,
    const char *hex, struct err *err)
{
    if (!cmd->json) {
        str_addf(&cmd->text, "%s\t%s\t", hash_name(cmd->hash), hex);
        put_u64(&cmd->text, t ? t->nbytes : st->file_size);
        str_addc(&cmd->text, '\t');
        put_esc(&cmd->text, st->path);
        str_addc(&cmd->text, '\t');
        if (t)
            str_esc(&cmd->text, t->name, t->name_n);
        str_addc(&cmd->text, '\n');
    } else {
        str_adds(&cmd->text, cmd->n_rows ? ",\n" : "\n");
        str_addf(&cmd->text, "{\"hash\":\"%s\",\"digest\":\"%s\"",
                 hash_name(cmd->hash), hex);
        put_json_u64(&cmd->text, "nbytes", t ? t->nbytes : st->file_size);
        put_json_text(&cmd->text, "file", st->path);
        put_json_key(&cmd->text, "tensor");
        if (t)
            js_put_str(&cmd->text, t->name, t->name_n);
        else
            str_adds(&cmd->text, "null");
        str_addc(&cmd->text, '}');
    }
    cmd->n_rows++;
    return text_end(cmd, err);
}

/* Brings the tensors of each file together, in the order that they have, and
 * says where the files' begin: [n_files + 1]. */
static size_t *
by_file(struct selection *sel)
{
    size_t n_files = sel->dir.n_files;
    size_t *first = xcalloc(n_files + 2, sizeof(*first));
    const struct stdir_tensor **t = xcalloc(sel->n, sizeof(*t));

    for (size_t i = 0; i < sel->n; i++)
        first[sel->t[i]->st - sel->dir.files + 2]++;
    for (size_t i = 2; i < n_files + 2; i++)
        first[i] += first[i - 1];
    for (size_t i = 0; i < sel->n; i++)
        t[first[sel->t[i]->st - sel->dir.files + 1]++] = sel->t[i];
    memcpy(sel->t, t, sel->n * sizeof(*t));
    free(t);
    return first;
}

/* A file, and n of its tensors. */
static int
hash_file(struct inspect_cmd *cmd, const struct st *st,
          const struct stdir_tensor *const *t, size_t n, struct err *err)
{
    struct file_hash fh = { 0 };
    int status = -1;

    if (hash_st(&fh, st, cmd->hash, !cmd->whole, cmd->par, err) < 0 ||
        put(cmd, st, NULL, fh.whole, err) < 0)
        goto out;
    status = check_blob(cmd, st->path, fh.whole);
    for (size_t i = 0; !cmd->whole && i < n; i++)
        if (put(cmd, st, t[i]->t, fh.tensors[t[i]->t - st->tensors], err) < 0) {
            status = -1;
            break;
        }
out:
    file_hash_free(&fh);
    return status;
}

static void
hash_some(void *ctx, size_t begin, size_t end, int thread)
{
    struct hashes *h = ctx;

    for (size_t i = begin; i < end && !h->errs[thread].status; i++) {
        struct view v = view_of(h->sel->t[i]);

        hash_range(h->hex[i], &v, h->cmd->hash, &h->errs[thread]);
    }
}

/* With -t only what was asked for is read. */
static int
hash_selected(struct inspect_cmd *cmd, const struct selection *sel,
              struct err *err)
{
    size_t n_threads = (size_t)par_threads(cmd->par);
    struct hashes h = { .cmd = cmd, .sel = sel };
    int rc = -1;

    h.errs = xcalloc(n_threads, sizeof(*h.errs));
    h.hex = mem_try(sel->n, sizeof(*h.hex), sel->dir.path, err);
    if (!h.hex)
        goto out;
    par_for(cmd->par, sel->n, 1, hash_some, &h);
    rc = 0;
    for (size_t i = 0; i < n_threads; i++)
        if (h.errs[i].status) {
            *err = h.errs[i];
            rc = -1;
        }
    for (size_t i = 0; rc == 0 && i < sel->n; i++)
        rc = put(cmd, sel->t[i]->st, sel->t[i]->t, h.hex[i], err);
out:
    free(h.hex);
    free(h.errs);
    return rc;
}

static int
hash_operand(struct inspect_cmd *cmd, const char *path, struct err *err)
{
    struct progress p = { .what = "hash", .unit = "B", .quiet = cmd->quiet };
    struct selection sel;
    size_t *first;
    int status = 0;
    uint64_t done = 0;

    if (select_open(&sel, path, cmd, err) < 0)
        return -1;
    say_totals(cmd, &sel);
    if (cmd->globs.n) {
        status = hash_selected(cmd, &sel, err);
        select_close(&sel);
        return status;
    }
    for (size_t i = 0; i < sel.dir.n_files; i++)
        p.total += sel.dir.files[i].file_size;
    first = by_file(&sel);
    progress_start(&p);
    for (size_t i = 0; status >= 0 && i < sel.dir.n_files; i++) {
        int one = hash_file(cmd, &sel.dir.files[i], sel.t + first[i],
                            first[i + 1] - first[i], err);

        status = one < 0 ? one : status | one;
        progress_at(&p, done += sel.dir.files[i].file_size);
    }
    progress_end(&p);
    free(first);
    select_close(&sel);
    return status;
}

int
hash_main(struct inspect_cmd *cmd, struct err *err)
{
    int status = 0;

    if (par_open(&cmd->par, cmd->n_threads, err) < 0)
        return -1;
    if (cmd->check)
        return check_main(cmd, err);
    if (cmd->n_args == 0)
        return err_set(err, TU_USAGE, "hash: a FILE or FOLDER is missing");
    str_adds(&cmd->text,
             cmd->json ? "[" : "algorithm\tdigest\tbytes\tfile\ttensor\n");
    for (int i = 0; status >= 0 && i < cmd->n_args; i++) {
        int one = hash_operand(cmd, cmd->args[i], err);

        status = one < 0 ? one : status | one;
    }
    if (cmd->json)
        str_adds(&cmd->text, "\n]\n");
    return status;
}
