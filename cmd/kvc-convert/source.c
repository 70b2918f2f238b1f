/* Tensors by name, from a checkpoint of torch's or from safetensors. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/kvc-convert/kvc.h"
#include "core/map.h"

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

/* Where a checkpoint keeps the compressor's state, the likeliest first. */
static const struct pth_value *
find_state(const struct pth *pth, bool strict)
{
    const struct pth_value *root = pth_root(pth), *found;
    const struct pth_value *model = dict_at(root, "model_state_dict");
    const struct pth_value *state = dict_at(root, "state_dict");

    if ((found = dict_at(model, "compressor")) ||
        (found = dict_at(root, "compressor")))
        return found;
    if (!strict && ((found = dict_at(state, "compressor")) || (found = state) ||
                    (found = model)))
        return found;
    return pth_kind(root) == PTH_DICT ? root : NULL;
}

size_t
source_n(const struct source *src)
{
    return src->pth ? pth_n(src->state) : src->dir.n_tensors;
}

const char *
source_name(const struct source *src, size_t i, size_t *nbytes)
{
    const char *s;

    if (!src->pth) {
        *nbytes = src->dir.tensors[i].t->name_n;
        return src->dir.tensors[i].t->name;
    }
    s = pth_str(pth_key(src->state, i), nbytes);
    if (!s)
        *nbytes = 0;
    return s ? s : "";
}

/* Does a name begin with 'start' and then with a prefix and a dot? */
static bool
has_prefix(const char *name, size_t n, const char *start, const char *prefix)
{
    size_t s = strlen(start), p = strlen(prefix);

    return n > s + p && !memcmp(name, start, s) &&
           !memcmp(name + s, prefix, p) && name[s + p] == '.';
}

/* Training wrappers put a word before every name: which one? */
void
source_strip(struct source *src, const struct order *order)
{
    static const char *const starts[] = { "", "module.", "compressor.",
                                          "module.compressor.",
                                          "compressor.module." };

    for (size_t j = 0; j < sizeof(starts) / sizeof(starts[0]); j++)
        for (size_t i = 0; i < source_n(src); i++) {
            size_t n;
            const char *name = source_name(src, i, &n);

            for (size_t k = 0; k < order->n_prefixes; k++)
                if (has_prefix(name, n, starts[j], order->prefixes[k])) {
                    src->strip = starts[j];
                    return;
                }
        }
}

int
source_open(struct source *src, const struct cmd *cmd, struct err *err)
{
    enum form form = cmd->from;
    struct stat st;

    *src = (struct source){ .path = cmd->input, .strip = "" };
    if (form == FORM_AUTO && form_of(cmd->input, &form, err) < 0)
        return -1;
    if (stat(cmd->input, &st) == 0)
        src->nbytes = (size_t)st.st_size;
    if (form == FORM_SAFETENSORS) {
        if (stdir_open(&src->dir, cmd->input, err) < 0)
            return -1;
    } else {
        if (pth_open(&src->pth, cmd->input, err) < 0)
            return -1;
        src->state = find_state(src->pth, cmd->strict);
        if (!src->state) {
            source_close(src);
            return err_set(err, EX_DATAERR,
                           "%s: is a pickle of something else than a state "
                           "dict",
                           cmd->input);
        }
    }
    return 0;
}

void
source_close(struct source *src)
{
    pth_close(src->pth);
    stdir_close(&src->dir);
    *src = (struct source){ 0 };
}

bool
source_find(const struct source *src, const char *name, struct tensor *t)
{
    char full[MAX_NAME];
    int n = snprintf(full, sizeof(full), "%s%s", src->strip, name);

    *t = (struct tensor){ 0 };
    if (n < 0 || (size_t)n >= sizeof(full))
        return false;
    if (src->pth) {
        const struct pth_value *v = pth_get(src->state, full);

        t->pth = v ? pth_tensor(v) : NULL;
        t->other = v && !t->pth;
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

int
source_read(const struct source *src, const struct tensor *t, size_t first,
            size_t n, void *to, struct err *err)
{
    size_t item = dtype_table[t->dtype].bits / 8;

    if (t->pth)
        return pth_read(src->pth, t->pth, first, n, to, err);
    return st_pread(t->st->st, t->st->t, to, n * item, first * item, err);
}

const char *
source_meta(const struct source *src, const char *key)
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
