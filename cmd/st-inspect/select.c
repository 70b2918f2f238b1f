#include "cmd/st-inspect/select.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/str.h"
#include "core/tool.h"
#include "core/tty.h"

unsigned char
dot_first(char c)
{
    unsigned char b = (unsigned char)c;

    return b == '.' ? 0 : b < '.' ? b + 1 : b;
}

/*
 * A name's sorting key: the name's bytes by dot_first(), with the length of
 * each run of digits before it, so that memcmp() of keys is the natural order.
 */
struct keyed {
    const struct stdir_tensor *t;
    size_t at; /* in the text of all keys */
    size_t n;
};

static bool
is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static void
put_key(struct str *keys, const char *s, size_t n)
{
    size_t i = 0, start = keys->n;

    while (i < n) {
        size_t from = i;

        while (i < n && is_digit(s[i]))
            i++;
        if (i > from) /* after '0' + 9 runs of any length are alike */
            str_addc(keys, (char)('0' + (i - from < 9 ? i - from : 9)));
        while (i < n && !is_digit(s[i]))
            i++;
        str_add(keys, s + from, i - from);
    }
    for (i = start; i < keys->n; i++)
        keys->s[i] = (char)dot_first(keys->s[i]);
}

static int
by_key(const void *pa, const void *pb, void *text)
{
    const struct keyed *a = pa, *b = pb;
    const char *s = text;
    int c = memcmp(s + a->at, s + b->at, a->n < b->n ? a->n : b->n);

    return c ? c : (a->n > b->n) - (a->n < b->n);
}

static int
sort_naturally(struct selection *sel, struct err *err)
{
    struct keyed *k = mem_try(sel->n, sizeof(*k), sel->dir.path, err);
    struct str keys = { 0 };

    if (!k)
        return -1;
    for (size_t i = 0; i < sel->n; i++) {
        const struct st_tensor *t = sel->t[i]->t;

        k[i] = (struct keyed){ .t = sel->t[i], .at = keys.n };
        put_key(&keys, t->name, t->name_n);
        k[i].n = keys.n - k[i].at;
    }
    qsort_r(k, sel->n, sizeof(*k), by_key, keys.s);
    for (size_t i = 0; i < sel->n; i++)
        sel->t[i] = k[i].t;
    str_free(&keys);
    free(k);
    return 0;
}

static bool
glob_matches(const char *glob, const struct st_tensor *t)
{
    bool has_nul = strlen(t->name) != t->name_n;
    struct str shown = { 0 };
    bool yes = !has_nul && !fnmatch(glob, t->name, 0);

    if (!yes) { /* as list prints it: what a user can copy */
        str_esc(&shown, t->name, t->name_n);
        yes = !strcmp(glob, shown.s ? shown.s : "") ||
              (has_nul && !fnmatch(glob, shown.s, FNM_NOESCAPE));
        str_free(&shown);
    }
    return yes;
}

bool
select_matches(const struct inspect_cmd *cmd, const struct st_tensor *t)
{
    if (cmd->globs.n == 0)
        return true;
    for (size_t i = 0; i < cmd->globs.n; i++)
        if (glob_matches(cmd->globs.item[i], t))
            return true;
    return false;
}

static int
collect(struct selection *sel, const struct inspect_cmd *cmd, struct err *err)
{
    sel->t = mem_try(sel->dir.n_tensors, sizeof(*sel->t), sel->dir.path, err);
    if (!sel->t)
        return -1;
    for (size_t i = 0; i < sel->dir.n_tensors; i++) {
        const struct stdir_tensor *t = &sel->dir.tensors[i];

        if (!select_matches(cmd, t->t))
            continue;
        sel->t[sel->n++] = t;
        /* files cannot hold 2^64 bytes; elements of F4 are half of one */
        sel->n_elements += t->t->n_elements;
        sel->nbytes += t->t->nbytes;
    }
    if (sel->n == 0 && cmd->globs.n)
        return err_set(err, EX_NOINPUT, "%s: no tensor matches \"%s\"%s",
                       sel->dir.path, cmd->globs.item[0],
                       cmd->globs.n > 1 ? " or the other globs" : "");
    return sort_naturally(sel, err);
}

int
select_open(struct selection *sel, const char *path,
            const struct inspect_cmd *cmd, struct err *err)
{
    *sel = (struct selection){ 0 };
    if (stdir_open(&sel->dir, path, err) < 0)
        return -1;
    if (collect(sel, cmd, err) < 0) {
        select_close(sel);
        return -1;
    }
    return 0;
}

void
select_close(struct selection *sel)
{
    free(sel->t);
    stdir_close(&sel->dir);
    *sel = (struct selection){ 0 };
}

/* A name as list prints it comes first: one that has a backslash itself is
 * printed with two. */
const struct stdir_tensor *
select_find(const struct stdir *dir, const char *name, struct err *err)
{
    const struct stdir_tensor *t = NULL;
    const struct st_tensor *like = NULL;
    struct str shown = { 0 };

    if (!strchr(name, '\\'))
        t = stdir_find(dir, name);
    for (size_t i = 0; !t && i < dir->n_tensors; i++) {
        const struct st_tensor *u = dir->tensors[i].t;

        str_clear(&shown);
        str_esc(&shown, u->name, u->name_n);
        if (shown.s && !strcmp(shown.s, name))
            t = &dir->tensors[i];
        else if (!like && *name && strstr(u->name, name))
            like = u;
    }
    str_free(&shown);
    t = t ? t : stdir_find(dir, name);
    if (!t && like)
        err_set(err, EX_NOINPUT,
                "%s: there is no tensor \"%s\" (did you mean \"%s\"?)",
                dir->path, name, like->name);
    else if (!t)
        err_set(err, EX_NOINPUT, "%s: there is no tensor \"%s\"", dir->path,
                name);
    return t;
}

void
say_totals(const struct inspect_cmd *cmd, const struct selection *sel)
{
    char size[16];

    if (!cmd->verbose)
        return;
    tool_say("%s: %zu tensors, %llu parameters, %s in %zu file%s",
             sel->dir.path, sel->n, (unsigned long long)sel->n_elements,
             size_iec(size, sel->nbytes), sel->dir.n_files,
             sel->dir.n_files == 1 ? "" : "s");
}

const char *
one_operand(const struct inspect_cmd *cmd, struct err *err)
{
    if (cmd->n_args == 1)
        return cmd->args[0];
    err_set(err, TU_USAGE, "%s takes one FILE or FOLDER (found %d)", cmd->verb,
            cmd->n_args);
    return NULL;
}
