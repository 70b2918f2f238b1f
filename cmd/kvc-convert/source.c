#include "cmd/kvc-convert/source.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/format/kvc.h"
#include "core/format/st.h"

#define MAX_NAME 1024

int
form_of(const char *path, enum form *form, struct err *err)
{
    unsigned char head[16] = { 0 };
    size_t size, n;
    int fd = file_open(path, &size, err);
    int rc;

    if (fd < 0)
        return -1;
    n = size < sizeof(head) ? size : sizeof(head);
    rc = file_pread(fd, path, head, n, 0, err);
    close(fd);
    if (rc < 0)
        return -1;
    /* a pickle or a zip begins otherwise: a header's length, then JSON */
    *form = kvc_sniff(head, n)         ? FORM_BIN
            : n >= 9 && head[8] == '{' ? FORM_SAFETENSORS
            : pth_sniff(head, n)       ? FORM_PTH
                                       : FORM_AUTO;
    return 0;
}

/* The dict below 'v' under 'key', or NULL. */
static const struct pth_value *
dict_at(const struct pth_value *v, const char *key)
{
    const struct pth_value *item = v ? pth_get(v, key) : NULL;

    return item && pth_kind(item) == PTH_DICT ? item : NULL;
}

size_t
source_n(const struct weight_source *src)
{
    if (!src->pth)
        return src->dir.n_tensors;
    return src->state ? pth_n(src->state) : 0;
}

const char *
source_name(const struct weight_source *src, size_t i, size_t *nbytes)
{
    const struct st_tensor *t = src->pth ? NULL : src->dir.tensors[i].t;
    const char *s = t ? t->name : pth_str(pth_key(src->state, i), nbytes);

    if (t)
        *nbytes = t->name_n;
    if (s && *nbytes <= MAX_NAME)
        return s;
    *nbytes = 0;
    return "";
}

/* Does a name begin with 'start' and then with a prefix and a dot? */
static bool
has_prefix(const char *name, size_t n, const char *start, const char *prefix)
{
    size_t s = strlen(start), p = strlen(prefix);

    return n > s + p && !memcmp(name, start, s) &&
           !memcmp(name + s, prefix, p) && name[s + p] == '.';
}

/* Does a name of the state begin with 'start', a prefix of the order, a dot? */
static bool
has_names(const struct weight_source *src, const struct order *order,
          const char *start)
{
    for (size_t i = 0; i < source_n(src); i++) {
        size_t n;
        const char *name = source_name(src, i, &n);

        for (size_t k = 0; k < order->n_prefixes; k++)
            if (has_prefix(name, n, start, order->prefixes[k]))
                return true;
    }
    return false;
}

/* Training wrappers put a word before every name: which one?  NULL: no name is
 * one of the order's. */
static const char *
find_start(const struct weight_source *src, const struct order *order)
{
    static const char *const starts[] = { "", "module.", "compressor.",
                                          "module.compressor.",
                                          "compressor.module." };

    for (size_t j = 0; j < sizeof(starts) / sizeof(starts[0]); j++)
        if (has_names(src, order, starts[j]))
            return starts[j];
    return NULL;
}

/*
 * Where a checkpoint keeps the compressor's state: the first of the places
 * that has weights, those of the engine's script before what other trainers
 * call theirs.  Where none has, and if 'strict', it is the script's choice.
 */
static int
find_state(struct weight_source *src, const struct order *order, bool strict,
           struct err *err)
{
    const struct pth_value *root = pth_root(src->pth);
    const struct pth_value *model = dict_at(root, "model_state_dict");
    const struct pth_value *state = dict_at(root, "state_dict");
    const struct pth_value *places[] = { dict_at(model, "compressor"),
                                         dict_at(root, "compressor"),
                                         root,
                                         dict_at(state, "compressor"),
                                         state,
                                         model };

    if (pth_kind(root) != PTH_DICT)
        return err_set(err, EX_DATAERR,
                       "%s: is a pickle of something else than a state dict",
                       src->path);
    for (size_t i = 0; !strict && i < sizeof(places) / sizeof(*places); i++) {
        src->state = places[i];
        if (src->state && find_start(src, order))
            return 0;
    }
    src->state = places[0] ? places[0] : places[1] ? places[1] : root;
    return 0;
}

int
source_settle(struct weight_source *src, const struct order *order, bool strict,
              struct err *err)
{
    const char *start;

    if (src->pth && find_state(src, order, strict, err) < 0)
        return -1;
    start = strict ? NULL : find_start(src, order);
    src->strip = start ? start : "";
    return 0;
}

int
source_open(struct weight_source *src, const struct convert_cmd *cmd,
            struct err *err)
{
    enum form form = cmd->from;

    *src = (struct weight_source){ .path = cmd->input, .strip = "" };
    if (form == FORM_AUTO && form_of(cmd->input, &form, err) < 0)
        return -1;
    if (form == FORM_SAFETENSORS) {
        if (stdir_open(&src->dir, src->path, err) < 0)
            return -1;
        for (size_t i = 0; i < src->dir.n_tensors; i++)
            src->nbytes += src->dir.tensors[i].t->nbytes;
        return 0;
    }
    if (pth_open(&src->pth, cmd->input, cmd->allowed.item, err) < 0)
        return -1;
    src->nbytes = pth_nbytes(src->pth);
    return 0;
}

void
source_close(struct weight_source *src)
{
    pth_close(src->pth);
    stdir_close(&src->dir);
    *src = (struct weight_source){ 0 };
}

bool
source_find(const struct weight_source *src, const char *name,
            struct source_tensor *t)
{
    char full[MAX_NAME + 1];
    int n = snprintf(full, sizeof(full), "%s%s", src->strip, name);

    *t = (struct source_tensor){ 0 };
    if (n < 0 || (size_t)n >= sizeof(full))
        return false;
    if (src->pth) {
        const struct pth_value *v = pth_get(src->state, full);

        t->pth = v ? pth_tensor(v) : NULL;
        t->other = t->pth ? NULL : v;
        if (!t->pth)
            return false;
        t->dtype = t->pth->dtype;
        t->n_dims = t->pth->n_dims;
        t->n_elements = t->pth->n_elements;
        for (size_t i = 0; i < 2 && i < t->n_dims; i++)
            t->shape[i] = (uint64_t)t->pth->shape[i];
        return true;
    }
    t->st = stdir_find(&src->dir, full);
    if (!t->st)
        return false;
    t->dtype = t->st->t->dtype;
    t->n_dims = t->st->t->n_dims;
    t->n_elements = t->st->t->n_elements;
    for (size_t i = 0; i < 2 && i < t->n_dims; i++)
        t->shape[i] = t->st->t->shape[i];
    return true;
}

void
source_want(const struct weight_source *src, const struct source_tensor *t)
{
    if (t->pth)
        pth_want(src->pth, t->pth);
}

int
source_read(const struct weight_source *src, const struct source_tensor *t,
            size_t first, size_t n, void *to, struct err *err)
{
    size_t item = dtype_table[t->dtype].bits / 8;

    if (t->pth)
        return pth_read(src->pth, t->pth, first, n, to, err);
    return st_pread(t->st->st, t->st->t, to, n * item, first * item, err);
}

const char *
source_meta(const struct weight_source *src, const char *key)
{
    if (src->pth)
        return NULL;
    for (size_t i = 0; i < src->dir.n_files; i++) {
        const char *value = st_meta(&src->dir.files[i], key);

        if (value)
            return value;
    }
    return NULL;
}
