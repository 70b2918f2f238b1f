/* SPDX-License-Identifier: ISC */
/* Documents as token ids, whichever way they come in. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/hf-infer/acts.h"
#include "cmd/hf-infer/jsonl.h"
#include "cmd/hf-infer/prompt.h"
#include "core/format/npy.h"
#include "core/le.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/tty.h"

#define PIECE    ((size_t)65536)   /* ids of a .npy at once; bytes of a text */
#define TEXT_MAX ((size_t)1 << 30) /* bytes */

struct docs {
    struct run *run;
    enum { ONE, LINES, NPY } kind;
    const char *name; /* of all of them */
    struct str where; /* of the document read last */
    bool ended;
    struct ids one;     /* ONE */
    struct jsonl jsonl; /* LINES */
    int fd;             /* of the rest: NPY, and a text until it is read */
    struct str head;    /* read while the input was not known */
    size_t used;        /* of it: then the rest is read from fd */
    enum dtype dtype;
    bool rows;               /* [n_rows, length]; else one of them */
    uint64_t n_rows, length; /* of each */
    uint64_t row, i;         /* the next element */
};

static void
set_where(struct docs *d, const char *where)
{
    str_clear(&d->where);
    str_adds(&d->where, where);
}

/* Reads up to nbytes; 0 at the end. */
static long
read_docs(const struct docs *d, void *to, size_t nbytes, struct err *err)
{
    long n;

    if (file_wait(d->fd, err) < 0)
        return -1;
    n = read_some(d->fd, to, nbytes);
    return n < 0 ? err_sys(err, EX_IOERR, "%s: cannot be read", d->name) : n;
}

/* ---- .npy ---- */

/* Up to n more bytes: of those read with the header, then of the file. */
static int
read_more(struct docs *d, void *to, size_t nbytes, struct err *err)
{
    size_t done = d->head.n - d->used;

    done = done < nbytes ? done : nbytes;
    memcpy(to, d->head.s + d->used, done);
    d->used += done;
    while (done < nbytes) {
        long n = read_docs(d, (char *)to + done, nbytes - done, err);

        if (n < 0)
            return -1;
        if (n == 0)
            return err_set(
                err, EX_DATAERR, "%s: the file ends after %zu of %zu element%s",
                d->where.s, (size_t)d->i + done / dtype_size(d->dtype),
                (size_t)d->length, plural(d->length));
        done += (size_t)n;
    }
    return 0;
}

/* An element; one above 2^63 becomes negative, and is not a token id either. */
static int64_t
integer(enum dtype dtype, const uint8_t *p)
{
    switch (dtype) {
    case DT_U8:
        return *p;
    case DT_I8:
        return (int8_t)*p;
    case DT_U16:
        return le16(p);
    case DT_I16:
        return (int16_t)le16(p);
    case DT_U32:
        return le32(p);
    case DT_I32:
        return (int32_t)le32(p);
    default:
        return (int64_t)le64(p);
    }
}

static int
next_piece(struct docs *d, struct ids *ids, bool *last, struct err *err)
{
    size_t size = dtype_size(d->dtype);
    uint64_t left = d->length - d->i;
    size_t n = left < PIECE ? (size_t)left : PIECE;
    uint8_t *bytes = xmalloc(n * size + 1);
    long n_more;
    char more;
    int rc;

    set_where(d, d->name);
    if (d->rows)
        str_addf(&d->where, ": row %zu", (size_t)d->row);
    rc = read_more(d, bytes, n * size, err);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        int64_t id = integer(d->dtype, bytes + i * size);

        if (id < 0 || id > INT32_MAX)
            rc = err_set(err, EX_DATAERR,
                         "%s: element %zu: %.0f is not a token id (0 to %d)",
                         d->where.s, (size_t)d->i + i,
                         dtype_get(d->dtype, bytes, i), INT32_MAX);
        else
            ids_add(ids, (int32_t)id);
    }
    free(bytes);
    if (rc < 0)
        return -1;
    d->i += n;
    *last = d->i == d->length;
    if (*last) {
        d->row++;
        d->i = 0;
    }
    d->ended = d->row == d->n_rows;
    if (!d->ended)
        return 1;
    /* a file's size was compared with its header, a pipe's was not known */
    n_more = d->used < d->head.n ? 1 : read_docs(d, &more, 1, err);
    if (n_more > 0)
        return err_set(err, EX_DATAERR,
                       "%s: more data (expected %zu elements by its header)",
                       d->name, (size_t)(d->n_rows * d->length));
    return n_more < 0 ? -1 : 1;
}

static int
open_npy(struct docs *d, const struct npy *npy, struct err *err)
{
    const struct run *run = d->run;
    enum dtype_kind kind = dtype_table[npy->dtype].kind;
    struct stat st;

    if (run->chat || run->raw || run->plain || run->strict_utf8)
        return err_set(err, TU_USAGE,
                       "%s: is token ids (.npy): --chat, --raw, --plain and "
                       "--strict-utf8 have no meaning for it",
                       d->name);
    if ((kind != DK_INT && kind != DK_UINT) || npy->n_dims < 1 ||
        npy->n_dims > 2)
        return err_set(err, EX_DATAERR,
                       "%s: %s with %zu dim%s (expected integers, token ids, "
                       "[n] or [rows, n])",
                       d->name, dtype_table[npy->dtype].name, npy->n_dims,
                       plural(npy->n_dims));
    if (d->fd > 0 && fstat(d->fd, &st) == 0 && S_ISREG(st.st_mode) &&
        npy_fits(npy, (size_t)st.st_size, d->name, err) < 0)
        return -1;
    d->kind = NPY;
    d->dtype = npy->dtype;
    d->rows = npy->n_dims == 2;
    d->n_rows = d->rows ? npy->shape[0] : 1;
    d->length = npy->shape[npy->n_dims - 1];
    d->used = npy->data_offset;
    d->ended = npy->n_elements == 0;
    return 0;
}

/* A file or standard input: its first bytes say what it is. */
static int
open_stream(struct docs *d, const char *path, struct err *err)
{
    struct str *head = &d->head;
    struct npy npy;
    long n = 1;

    d->fd = strcmp(path, "-") == 0 ? 0 : file_open_any(path, err);
    if (d->fd < 0)
        return -1;
    str_reserve(head, NPY_MAX_HEAD);
    while (n > 0 && head->n < NPY_MAX_HEAD &&
           (head->n < 6 || npy_sniff(head->s, head->n))) {
        n = read_docs(d, head->s + head->n, NPY_MAX_HEAD - head->n, err);
        if (n < 0)
            return -1;
        head->n += (size_t)n;
    }
    if (npy_sniff(head->s, head->n))
        return npy_parse(&npy, head->s, head->n, d->name, err) < 0
                   ? -1
                   : open_npy(d, &npy, err);
    while (n > 0) { /* the rest of a text */
        if (head->n > TEXT_MAX)
            return err_set(err, EX_DATAERR,
                           "%s: over %zu bytes (--jsonl reads documents one "
                           "by one)",
                           d->name, TEXT_MAX);
        str_reserve(head, PIECE);
        n = read_docs(d, head->s + head->n, PIECE, err);
        if (n < 0)
            return -1;
        head->n += (size_t)n;
    }
    if (prompt_is_text(d->run, d->name, head, err) < 0 ||
        run_open_tok(d->run, err) < 0)
        return -1;
    return prompt_encode(d->run, d->name, head, &d->one, err);
}

/* ---- any ---- */

int
docs_open(struct docs **docs, struct run *run, struct err *err)
{
    struct docs *d = xcalloc(1, sizeof(*d));
    const char *path = run->prompt_file ? run->prompt_file : "-";
    int rc;

    d->run = run;
    d->fd = d->jsonl.fd = -1;
    d->name = prompt_name(run);
    set_where(d, d->name);
    if (run->jsonl) {
        d->kind = LINES;
        rc = jsonl_open(&d->jsonl, path, err);
    } else if (run->prompt || run->ids_text || run->messages) {
        rc = prompt_ids(run, &d->one, err);
    } else {
        rc = open_stream(d, path, err);
    }
    if (rc < 0) {
        docs_close(d);
        d = NULL;
    }
    *docs = d;
    return rc;
}

void
docs_close(struct docs *d)
{
    if (!d)
        return;
    jsonl_close(&d->jsonl);
    if (d->fd > 0)
        close(d->fd);
    ids_free(&d->one);
    str_free(&d->head);
    str_free(&d->where);
    free(d);
}

int
docs_next(struct docs *d, struct ids *ids, bool *last, struct err *err)
{
    struct jsonl_doc doc = { 0 };
    size_t from = ids->n;
    int rc;

    if (d->ended)
        return 0;
    *last = true;
    if (d->kind == ONE) {
        for (size_t i = 0; i < d->one.n; i++)
            ids_add(ids, d->one.id[i]);
        ids_free(&d->one);
        d->ended = true;
        rc = 1;
    } else if (d->kind == NPY) {
        rc = next_piece(d, ids, last, err);
    } else {
        rc = jsonl_next(&d->jsonl, &doc, true, err);
        d->ended = rc != 1;
        if (rc == 1) {
            set_where(d, doc.where);
            rc = jsonl_ids(d->run, &doc, ids, err) < 0 ? -1 : 1;
        }
        jsonl_doc_free(&doc);
    }
    if (rc == 1 && ids_check(ids->id + from, ids->n - from,
                             d->run->config->vocab_size, d->where.s, err) < 0)
        return -1;
    return rc;
}

const char *
docs_where(const struct docs *d)
{
    return d->where.s;
}

const char *
docs_input(const struct docs *d)
{
    return d->name;
}

size_t
docs_count(const struct docs *d)
{
    return d->kind == LINES ? 0 : d->kind == NPY ? d->n_rows : 1;
}

size_t
docs_n_ids(const struct docs *d)
{
    return d->kind == LINES ? 0
           : d->kind == NPY ? d->n_rows * d->length
                            : d->one.n;
}
