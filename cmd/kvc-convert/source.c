/* SPDX-License-Identifier: ISC */
#include "cmd/kvc-convert/source.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/format/st.h"
#include "core/mem.h"

/* Each name is compared with each prefix, and safetensors may say which: a long
 * one would cost its length for each of the names. */
#define MAX_WORD 256 /* bytes */

/* Splits "a, b,c" at its commas, blanks and empty ones dropped; how many, or
 * -1 for more than 'max', or one that is too long. */
static int
split(const char *list, char **items, size_t max)
{
    size_t n = 0;

    for (const char *p = list; *p; p += *p == ',') {
        size_t begin = strspn(p, " "), next = strcspn(p, ","), end = next;

        while (end > begin && p[end - 1] == ' ')
            end--;
        if (end > begin && (n == max || end - begin > MAX_WORD))
            return -1;
        if (end > begin)
            items[n++] = xstrndup(p + begin, end - begin);
        p += next;
    }
    return (int)n;
}

int
order_read(struct order *o, const char *prefixes, const char *slots,
           struct err *err)
{
    int n;

    order_free(o);
    n = split(prefixes, o->prefixes, MAX_PREFIXES);
    if (n <= 0)
        return err_set(
            err, TU_USAGE,
            "--prefix-order: \"%s\" is not 1 to %d names of up to %d bytes",
            prefixes, MAX_PREFIXES, MAX_WORD);
    o->n_prefixes = (size_t)n;
    if (split(slots, o->slots, KVC_SLOTS) != KVC_SLOTS)
        return err_set(err, TU_USAGE, "--slot-order: \"%s\" is not %d numbers",
                       slots, KVC_SLOTS);
    for (size_t i = 0; i < KVC_SLOTS; i++) {
        char *slot = o->slots[i], *digits = slot + strspn(slot, "0");

        if (strspn(slot, "0123456789") != strlen(slot))
            return err_set(err, TU_USAGE,
                           "--slot-order: \"%s\" is not a number", slot);
        digits -= !*digits; /* names have 3 for 03, and 0 for 00 */
        memmove(slot, digits, strlen(digits) + 1);
    }
    return 0;
}

void
order_free(struct order *o)
{
    for (size_t i = 0; i < MAX_PREFIXES; i++)
        free(o->prefixes[i]);
    for (size_t i = 0; i < KVC_SLOTS; i++)
        free(o->slots[i]);
    *o = (struct order){ 0 };
}

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
                                       : FORM_UNKNOWN;
    return 0;
}

size_t
source_n(const struct weight_source *src)
{
    size_t n = 0;

    if (!src->is_pth)
        return src->dir.n_tensors;
    if (src->state)
        pth_items(src->state, &n);
    return n / 2;
}

const char *
source_name(const struct weight_source *src, size_t i, size_t *nbytes)
{
    const char *name = "";

    *nbytes = 0;
    if (src->is_pth) {
        const struct pth_value *key = src->state->u.list->items[2 * i];

        if (key->kind == PTH_STR && key->n <= PTH_MAX_KEY) {
            *nbytes = key->n;
            name = key->u.s;
        }
    } else if (src->dir.tensors[i].t->name_n <= PTH_MAX_KEY) {
        *nbytes = src->dir.tensors[i].t->name_n;
        name = src->dir.tensors[i].t->name;
    }
    return name;
}

/* Training wrappers put a word before every name: which one?  NULL: no name is
 * one of the order's, after any of the words. */
static const char *
find_start(const struct weight_source *src, const struct order *order)
{
    static const char *const starts[] = { "", "module.", "compressor.",
                                          "module.compressor.",
                                          "compressor.module." };

    for (size_t j = 0; j < sizeof(starts) / sizeof(starts[0]); j++)
        for (size_t i = 0; i < source_n(src); i++) {
            size_t n_start = strlen(starts[j]), n;
            const char *name = source_name(src, i, &n);

            if (n < n_start || memcmp(name, starts[j], n_start) != 0)
                continue;
            for (size_t k = 0; k < order->n_prefixes; k++) {
                size_t n_prefix = strlen(order->prefixes[k]);

                if (n > n_start + n_prefix && name[n_start + n_prefix] == '.' &&
                    !memcmp(name + n_start, order->prefixes[k], n_prefix))
                    return starts[j];
            }
        }
    return NULL;
}

/* The dict below 'v' under 'key', or NULL. */
static const struct pth_value *
dict_at(const struct pth_value *v, const char *key)
{
    const struct pth_value *item = v ? pth_get(v, key) : NULL;

    return item && item->kind == PTH_DICT ? item : NULL;
}

/*
 * A checkpoint keeps the compressor's state in the first of several places that
 * has weights, those of the engine's script before what other trainers call
 * theirs.  Where none has, and if 'strict', it is the script's choice.
 */
int
source_settle(struct weight_source *src, const struct order *order, bool strict,
              struct err *err)
{
    const struct pth_value *root = src->pth.root;
    const char *start = NULL;

    if (src->is_pth && root->kind != PTH_DICT)
        return err_data(err, src->path, "is a pickle, but not of a state dict");
    if (src->is_pth) {
        const struct pth_value *model = dict_at(root, "model_state_dict");
        const struct pth_value *state = dict_at(root, "state_dict");
        const struct pth_value *places[] = { dict_at(model, "compressor"),
                                             dict_at(root, "compressor"),
                                             root,
                                             dict_at(state, "compressor"),
                                             state,
                                             model };

        for (size_t i = 0; !strict && !start && i < 6; i++) {
            src->state = places[i];
            start = src->state ? find_start(src, order) : NULL;
        }
        if (!start)
            src->state = places[0] ? places[0] : places[1] ? places[1] : root;
    }
    if (!strict && !src->is_pth)
        start = find_start(src, order);
    src->strip = start ? start : "";
    return 0;
}

int
source_open(struct weight_source *src, const struct convert_cmd *cmd,
            struct err *err)
{
    static const char *const none[] = { NULL };
    enum form form;

    *src = (struct weight_source){ .path = cmd->input, .strip = "" };
    if (form_of(cmd->input, &form, err) < 0)
        return -1;
    if (form == FORM_SAFETENSORS) {
        if (stdir_open(&src->dir, src->path, err) < 0)
            return -1;
        for (size_t i = 0; i < src->dir.n_tensors; i++)
            src->nbytes += src->dir.tensors[i].t->nbytes;
        return 0;
    }
    src->is_pth = true;
    if (pth_open(&src->pth, cmd->input, 0,
                 cmd->allowed.n ? cmd->allowed.item : none, err) < 0)
        return -1;
    src->nbytes = src->pth.nbytes;
    return 0;
}

void
source_close(struct weight_source *src)
{
    pth_close(&src->pth);
    stdir_close(&src->dir);
    *src = (struct weight_source){ 0 };
}

bool
source_find(const struct weight_source *src, const char *name,
            struct source_tensor *t)
{
    char full[PTH_MAX_KEY + 1];
    int n = snprintf(full, sizeof(full), "%s%s", src->strip, name);

    *t = (struct source_tensor){ 0 };
    if (n < 0 || (size_t)n >= sizeof(full))
        return false;
    if (src->is_pth) {
        const struct pth_value *v = pth_get(src->state, full);

        if (!v || v->kind != PTH_TENSOR) {
            t->other = v;
            return false;
        }
        t->pth = v->u.tensor;
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
source_read(struct weight_source *src, const struct source_tensor *t,
            size_t first, size_t n, void *to, struct err *err)
{
    size_t item = dtype_size(t->dtype);

    if (t->pth)
        return pth_read(&src->pth, t->pth, first, n, to, err);
    return st_pread(t->st->st, t->st->t, to, n * item, first * item, err);
}

const char *
source_meta(const struct weight_source *src, const char *key)
{
    for (size_t i = 0; i < src->dir.n_files; i++) {
        const char *value = st_meta(&src->dir.files[i], key);

        if (value)
            return value;
    }
    return NULL;
}

void
source_hint(const struct weight_source *src, const struct order *order,
            struct str *text)
{
    static const char end[] = ".weight";
    const char *found[MAX_PREFIXES];
    size_t n_bytes[MAX_PREFIXES], n_found = 0, n_known = 0;
    size_t strip = strlen(src->strip), n_end = sizeof(end) - 1;

    for (size_t i = 0; i < source_n(src) && n_found < MAX_PREFIXES; i++) {
        size_t n, k = 0;
        const char *name = source_name(src, i, &n);

        if (n < strip + n_end || memcmp(name, src->strip, strip) != 0 ||
            memcmp(name + n - n_end, end, n_end) != 0)
            continue;
        name += strip;
        n -= strip + n_end;
        /* of PREFIX.LAYER.SLOT the bytes of PREFIX; 0: it is not so */
        for (int j = 0; j < 2; j++) {
            size_t digits = 0;

            for (; n > 0 && isdigit((unsigned char)name[n - 1]); n--)
                digits++;
            n = digits == 0 || n < 2 || name[n - 1] != '.' ? 0 : n - 1;
        }
        if (memchr(name, ',', n)) /* a list cannot have it */
            continue;
        while (k < n_found &&
               (n_bytes[k] != n || memcmp(found[k], name, n) != 0))
            k++;
        if (n == 0 || k < n_found)
            continue;
        found[n_found] = name;
        n_bytes[n_found++] = n;
    }
    for (size_t k = 0; k < order->n_prefixes; k++)
        for (size_t i = 0; i < n_found; i++)
            n_known += strlen(order->prefixes[k]) == n_bytes[i] &&
                       !memcmp(order->prefixes[k], found[i], n_bytes[i]);
    if (n_found == 0 || n_known == order->n_prefixes)
        return;
    for (size_t i = 0; i < n_found; i++)
        str_addf(text, "%s%.*s", i ? "," : " (the file has --prefix-order ",
                 (int)n_bytes[i], found[i]);
    str_addc(text, ')');
}
