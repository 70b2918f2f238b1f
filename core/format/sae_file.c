/* SPDX-License-Identifier: ISC */
/*
 * Three kinds of files with an SAE's tensors: safetensors, torch.save()'s, and
 * numpy's .npz.
 * Source: saev's modeling.py, dump(), for the line before a torch.save().
 */
#include "core/format/sae_file.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/format/npy.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/str.h"

#define MAX_TENSORS 64    /* an SAE has up to 7 */
#define MAX_HEAD    65536 /* bytes; saev's line has some 600 */
#define MAX_GROWTH  64    /* times its bytes may an archive unpack to, */
#define MAY_GROW    ((size_t)64 << 20) /* and so many more */

/* Room for as many tensors. */
static int
make_room(struct sae_file *f, size_t n, struct err *err)
{
    if (n > MAX_TENSORS)
        return err_data(err, f->path, "has %zu tensors (expected at most %d)",
                        n, MAX_TENSORS);
    f->tensors = xcalloc(n ? n : 1, sizeof(*f->tensors));
    return 0;
}

/* The next tensor, which takes 'name': its sizes are still to be set. */
static uint64_t *
next_tensor(struct sae_file *f, char *name, size_t name_n, enum dtype dtype,
            size_t n_dims)
{
    struct sae_tensor *t = &f->tensors[f->n++];
    uint64_t *shape = xcalloc(n_dims ? n_dims : 1, sizeof(*shape));

    t->t.name = name;
    t->t.name_n = name_n;
    t->t.dtype = dtype;
    t->t.n_dims = n_dims;
    t->t.shape = shape;
    return shape;
}

/* It has all its sizes now. */
static void
set_elements(struct sae_file *f, uint64_t n_elements)
{
    struct sae_tensor *t = &f->tensors[f->n - 1];

    t->t.n_elements = n_elements;
    t->t.nbytes = n_elements * dtype_size(t->t.dtype);
}

/* What an archive of 'size' bytes unpacks to. */
static int
check_growth(const struct sae_file *f, size_t size, size_t nbytes,
             struct err *err)
{
    size_t most = MAX_GROWTH * size + MAY_GROW;

    if (nbytes <= most)
        return 0;
    return err_data(err, f->path,
                    "unpacks to %zu bytes (expected at most %zu, %d times its "
                    "own and 64 MiB)",
                    nbytes, most, MAX_GROWTH);
}

/* ---- safetensors ---- */

static int
open_safetensors(struct sae_file *f, struct err *err)
{
    f->container = SAE_SAFETENSORS;
    if (st_open(&f->st, f->path, err) < 0 || st_map(&f->st, err) < 0 ||
        make_room(f, f->st.n_tensors, err) < 0)
        return -1;
    for (; f->n < f->st.n_tensors; f->n++) {
        const struct st_tensor *t = &f->st.tensors[f->n];

        f->tensors[f->n] = (struct sae_tensor){ .t = *t };
    }
    return 0;
}

/* ---- torch.save() ---- */

/* Do elements follow each other, the last dim's first, or with 'by_col' the
 * first one's?  Strides of dims of 1 say nothing. */
static bool
is_dense(const struct pth_tensor *t, bool by_col)
{
    int64_t stride = 1;

    for (size_t i = 0; i < t->n_dims; i++) {
        size_t d = by_col ? i : t->n_dims - 1 - i;

        if (t->shape[d] != 1 && t->strides[d] != stride)
            return false;
        stride *= t->shape[d]; /* whose product fits: pth_open() */
    }
    return true;
}

static int
add_pt_tensor(struct sae_file *f, const struct pth_value *key,
              const struct pth_value *v, struct err *err)
{
    const struct pth_tensor *t = v->u.tensor;
    bool by_col = t->n_elements && !is_dense(t, false);
    uint64_t *shape;

    if (by_col && (t->n_dims != 2 || !is_dense(t, true)))
        return err_data(err, f->path,
                        "%.*s is a view whose numbers do not follow each other",
                        (int)key->n, key->u.s);
    shape =
        next_tensor(f, xstrndup(key->u.s, key->n), key->n, t->dtype, t->n_dims);
    for (size_t i = 0; i < t->n_dims; i++)
        shape[i] = (uint64_t)t->shape[i];
    set_elements(f, t->n_elements);
    f->tensors[f->n - 1].by_col = by_col;
    f->tensors[f->n - 1].pt = t;
    return 0;
}

/* A state dict after the first 'skip' bytes. */
static int
open_pt(struct sae_file *f, size_t skip, struct err *err)
{
    struct pth_value **items;
    size_t n;

    f->container = SAE_PT;
    if (pth_open(&f->pth, f->path, skip, NULL, err) < 0)
        return -1;
    if (f->pth.root->kind != PTH_DICT)
        return err_data(err, f->path, "is a pickle, but not of a state dict");
    items = pth_items(f->pth.root, &n);
    if (make_room(f, n / 2, err) < 0 ||
        check_growth(f, f->pth.map.size, f->pth.nbytes, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i += 2) {
        const struct pth_value *key = items[i];

        if (key->kind != PTH_STR || key->n > PTH_MAX_KEY)
            return err_data(err, f->path, "a name of a tensor is not a string");
        if (items[i + 1]->kind != PTH_TENSOR)
            return err_data(err, f->path, "%.*s is not a tensor", (int)key->n,
                            key->u.s);
    }
    for (size_t i = 0; i < n; i += 2)
        if (add_pt_tensor(f, items[i], items[i + 1], err) < 0)
            return -1;
    if (skip) {
        f->head = (const char *)f->pth.map.data;
        f->head_n = skip;
    }
    return 0;
}

/* ---- .npz ---- */

#define NPY_END   ".npy"
#define NPY_END_N 4

static bool
is_npy(const struct zip_member *m)
{
    return m->name_n > NPY_END_N &&
           !memcmp(m->name + m->name_n - NPY_END_N, NPY_END, NPY_END_N);
}

/* The header alone is unpacked: head [NPY_MAX_HEAD] is for it. */
static int
add_npy(struct sae_file *f, struct zip_member *m, uint8_t *head,
        struct err *err)
{
    ssize_t n = zip_head(&f->zip, m, head, NPY_MAX_HEAD, err);
    struct str name = { 0 };
    struct npy npy;
    int rc = -1;

    str_addf(&name, "%s: %.*s", f->path, (int)m->name_n, m->name);
    if (n >= 0 && npy_parse(&npy, head, (size_t)n, name.s, err) == 0 &&
        npy_fits(&npy, m->nbytes, name.s, err) == 0) {
        size_t name_n = m->name_n - NPY_END_N;
        uint64_t *shape = next_tensor(f, xstrndup(m->name, name_n), name_n,
                                      npy.dtype, npy.n_dims);

        memcpy(shape, npy.shape, npy.n_dims * sizeof(*shape));
        set_elements(f, npy.n_elements);
        f->tensors[f->n - 1].member = m;
        f->tensors[f->n - 1].at = npy.data_offset;
        rc = 0;
    }
    str_free(&name);
    return rc;
}

/* A zip archive: numpy's, or torch.save()'s. */
static int
open_zip(struct sae_file *f, struct err *err)
{
    uint8_t *head;
    size_t nbytes = 0;
    bool any = false;
    int rc;

    if (map_open(&f->map, f->path, err) < 0 ||
        zip_open(&f->zip, f->map.data, f->map.size, f->path, err) < 0)
        return -1;
    for (size_t i = 0; i < f->zip.n_members; i++) {
        any |= is_npy(&f->zip.members[i]);
        nbytes += f->zip.members[i].nbytes; /* each at most 1032 file sizes */
    }
    if (!any) {
        zip_close(&f->zip);
        map_close(&f->map);
        return open_pt(f, 0, err);
    }
    f->container = SAE_NPZ;
    if (make_room(f, f->zip.n_members, err) < 0 ||
        check_growth(f, f->map.size, nbytes, err) < 0)
        return -1;
    head = xmalloc(NPY_MAX_HEAD);
    rc = 0;
    for (size_t i = 0; i < f->zip.n_members && rc == 0; i++) {
        struct zip_member *m = &f->zip.members[i];

        rc = is_npy(m) ? add_npy(f, m, head, err)
                       : err_data(err, f->path, "member %.*s is not .npy",
                                  (int)m->name_n, m->name);
    }
    free(head);
    return rc;
}

/* ---- any ---- */

/* How long is the line of JSON before a torch.save()?  0: there is none. */
static size_t
json_line(const uint8_t *head, size_t n)
{
    const uint8_t *end = n && head[0] == '{' ? memchr(head, '\n', n) : NULL;
    size_t at = end ? (size_t)(end - head) + 1 : 0;

    /* not safetensors, which begins with 8 bytes, some of them 0 */
    return at && !memchr(head, 0, at) && pth_sniff(end + 1, n - at) ? at : 0;
}

int
sae_file_open(struct sae_file *f, const char *path, struct err *err)
{
    uint8_t *head;
    size_t n, line;
    int fd, rc;

    *f = (struct sae_file){ .path = path };
    fd = file_open(path, &n, err);
    if (fd < 0)
        return -1;
    n = smaller(n, MAX_HEAD);
    head = xcalloc(n + 1, 1);
    rc = file_pread(fd, path, head, n, 0, err);
    close(fd);
    line = json_line(head, n);
    if (rc < 0)
        ;
    else if (line)
        rc = open_pt(f, line, err);
    else if ((n >= 9 && head[8] == '{') || !pth_sniff(head, n))
        rc = open_safetensors(f, err);
    else
        rc = head[0] == 'P' ? open_zip(f, err) : open_pt(f, 0, err);
    free(head);
    return rc;
}

void
sae_file_close(struct sae_file *f)
{
    for (size_t i = 0; i < f->n && f->container != SAE_SAFETENSORS; i++) {
        free((void *)(uintptr_t)f->tensors[i].t.name);
        free((void *)(uintptr_t)f->tensors[i].t.shape);
        zip_unpacked_free(&f->tensors[i].unpacked);
    }
    free(f->tensors);
    zip_close(&f->zip);
    map_close(&f->map);
    pth_close(&f->pth);
    st_close(&f->st);
    *f = (struct sae_file){ 0 };
}

const struct sae_tensor *
sae_file_find(const struct sae_file *f, const char *name)
{
    size_t n = strlen(name);

    for (size_t i = 0; i < f->n; i++)
        if (f->tensors[i].t.name_n == n &&
            !memcmp(f->tensors[i].t.name, name, n))
            return &f->tensors[i];
    return NULL;
}

const void *
sae_file_data(struct sae_file *f, const struct sae_tensor *tensor,
              struct err *err)
{
    struct sae_tensor *t = &f->tensors[tensor - f->tensors];
    const uint8_t *data = t->unpacked.data;

    if (f->container == SAE_SAFETENSORS)
        return st_data(&f->st, &t->t);
    if (f->container == SAE_PT)
        return pth_data(&f->pth, t->pt, err);
    if (!data)
        data = zip_data(&t->unpacked, &f->zip, t->member, err);
    return data ? data + t->at : NULL;
}
