/* SPDX-License-Identifier: ISC */
#include "cmd/st-inspect/select.h"

#include <ctype.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "core/compat.h"
#include "core/le.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/near.h"
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

static int
by_key(const void *pa, const void *pb, void *text)
{
    const struct keyed *a = pa, *b = pb;
    const char *s = text;
    int c = memcmp(s + a->at, s + b->at, a->n < b->n ? a->n : b->n);

    return c ? c : (a->n > b->n) - (a->n < b->n);
}

bool
select_matches(const struct inspect_cmd *cmd, const struct st_tensor *t)
{
    bool has_nul = strlen(t->name) != t->name_n, yes = cmd->globs.n == 0;
    struct str shown = { 0 };

    for (size_t i = 0; !yes && i < cmd->globs.n; i++) {
        const char *glob = cmd->globs.item[i];

        yes = !has_nul && !fnmatch(glob, t->name, 0);
        if (yes)
            break;
        str_clear(&shown); /* as list prints it: what a user can copy */
        str_esc(&shown, t->name, t->name_n);
        yes = !strcmp(glob, shown.s ? shown.s : "") ||
              (has_nul && !fnmatch(glob, shown.s, FNM_NOESCAPE));
    }
    str_free(&shown);
    return yes;
}

int
select_open(struct selection *sel, const char *path,
            const struct inspect_cmd *cmd, struct err *err)
{
    struct str keys = { 0 };
    struct keyed *k = NULL;
    struct near near;

    *sel = (struct selection){ 0 };
    if (stdir_open(&sel->dir, path, err) < 0)
        return -1;
    if (cmd->dequantize && packed_open(&sel->packed, &sel->dir, err) < 0)
        goto fail;
    sel->t = mem_try(sel->dir.n_tensors, sizeof(*sel->t), path, err);
    k = mem_try(sel->dir.n_tensors, sizeof(*k), path, err);
    if (!sel->t || !k)
        goto fail;
    for (size_t i = 0; i < sel->dir.n_tensors; i++) {
        const struct st_tensor *t = sel->dir.tensors[i].t;

        if (!select_matches(cmd, t))
            continue;
        k[sel->n] = (struct keyed){ .t = &sel->dir.tensors[i], .at = keys.n };
        for (size_t at = 0, from; at < t->name_n;) {
            from = at;
            while (at < t->name_n && isdigit((unsigned char)t->name[at]))
                at++;
            if (at > from) /* after '0' + 9 runs of any length are alike */
                str_addc(&keys, (char)('0' + smaller(at - from, 9)));
            while (at < t->name_n && !isdigit((unsigned char)t->name[at]))
                at++;
            str_add(&keys, t->name + from, at - from);
        }
        for (size_t at = k[sel->n].at; at < keys.n; at++)
            keys.s[at] = (char)dot_first(keys.s[at]);
        k[sel->n].n = keys.n - k[sel->n].at;
        sel->n++;
        /* files cannot hold 2^64 bytes; elements of F4 are half of one */
        sel->n_elements += t->n_elements;
        sel->nbytes += t->nbytes;
    }
    if (sel->n == 0 && cmd->globs.n) {
        near_start(&near, cmd->globs.item[0]);
        for (size_t i = 0; i < sel->dir.n_tensors; i++)
            near_try(&near, sel->dir.tensors[i].t->name,
                     sel->dir.tensors[i].t->name_n);
        err_set(err, EX_NOINPUT, "%s: no tensor matches \"%s\"%s%s", path,
                cmd->globs.item[0],
                cmd->globs.n > 1 ? " or the other globs" : "",
                near_hint(&near));
        goto fail;
    }
    sort_with(k, sel->n, sizeof(*k), by_key, keys.s);
    for (size_t i = 0; i < sel->n; i++)
        sel->t[i] = k[i].t;
    str_free(&keys);
    free(k);
    return 0;
fail:
    str_free(&keys);
    free(k);
    select_close(sel);
    return -1;
}

void
select_close(struct selection *sel)
{
    free(sel->t);
    packed_close(&sel->packed, &sel->dir);
    stdir_close(&sel->dir);
    *sel = (struct selection){ 0 };
}

/* Prefers a name as list prints it, in which a backslash is doubled. */
const struct stdir_tensor *
select_find(const struct stdir *dir, const char *name, struct err *err)
{
    const struct stdir_tensor *t = NULL;
    struct near near;
    struct str shown = { 0 };

    near_start(&near, name);
    if (!strchr(name, '\\'))
        t = stdir_find(dir, name);
    for (size_t i = 0; !t && i < dir->n_tensors; i++) {
        const struct st_tensor *u = dir->tensors[i].t;

        str_clear(&shown);
        str_esc(&shown, u->name, u->name_n);
        if (shown.s && !strcmp(shown.s, name))
            t = &dir->tensors[i];
        else
            near_try(&near, u->name, u->name_n);
    }
    str_free(&shown);
    t = t ? t : stdir_find(dir, name);
    if (!t)
        err_set(err, EX_NOINPUT, "%s: there is no tensor \"%s\"%s", dir->path,
                name, near_hint(&near));
    return t;
}

void
say_totals(const struct inspect_cmd *cmd, const struct selection *sel)
{
    char size[16];

    if (!cmd->verbose)
        return;
    tool_say("%s: %zu tensor%s, %llu parameter%s, %s in %zu file%s",
             sel->dir.path, sel->n, plural(sel->n),
             (unsigned long long)sel->n_elements, plural(sel->n_elements),
             size_iec(size, sel->nbytes), sel->dir.n_files,
             plural(sel->dir.n_files));
}

const char *
one_operand(const struct inspect_cmd *cmd, struct err *err)
{
    if (cmd->n_args == 1)
        return cmd->args[0];
    err_set(err, TU_USAGE, "%s takes one FILE or DIR (found %d)", cmd->verb,
            cmd->n_args);
    return NULL;
}

struct view
view_of(const struct stdir_tensor *t)
{
    struct packed_tensor *p = packed_of(t);

    return (struct view){
        .path = p ? NULL : t->st->path,
        .fd = p ? -1 : t->st->fd,
        .offset = p ? 0 : t->st->data_offset + t->t->begin,
        .dtype = t->t->dtype,
        .type = p ? p->p.layer.group->type : dtype_table[t->t->dtype].name,
        .n_dims = t->t->n_dims,
        .shape = t->t->shape,
        .n = t->t->n_elements,
        .nbytes = p ? 4 * t->t->n_elements : t->t->nbytes,
        .packed = p,
    };
}

int
view_read(const struct view *v, void *buf, uint64_t first, size_t n,
          struct err *err)
{
    size_t size = dtype_size(v->dtype);

    if (v->packed) {
        packed_read(v->packed, buf, first, n);
        return 0;
    }
    return file_pread(v->fd, v->path, buf, n * size, v->offset + first * size,
                      err);
}

bool
widens(enum dtype dtype)
{
    return dtype_table[dtype].bits >= 8 &&
           dtype_table[dtype].kind != DK_COMPLEX;
}

void
widen(double *to, const void *from, enum dtype dtype, size_t n)
{
    if (dtype == DT_F32)
        for (size_t i = 0; i < n; i++)
            to[i] = (double)le_f32((const uint8_t *)from + 4 * i);
    else if (dtype == DT_F64)
        for (size_t i = 0; i < n; i++)
            to[i] = le_f64((const uint8_t *)from + 8 * i);
    else if (dtype == DT_BF16)
        for (size_t i = 0; i < n; i++)
            to[i] = bf16_to_f32(le16((const uint8_t *)from + 2 * i));
    else
        for (size_t i = 0; i < n; i++)
            to[i] = dtype_get(dtype, from, i);
}
