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
#include "core/map.h"
#include "core/mem.h"
#include "core/tty.h"

#define PIECE    ((size_t)65536)   /* ids of a .npy at once; bytes of a text */
#define TEXT_MAX ((size_t)1 << 30) /* bytes */
#define HEAD     10                /* bytes that show a .npy */

static void
set_where(struct docs *d, const char *where)
{
    str_clear(&d->where);
    str_adds(&d->where, where);
}

/* ---- .npy ---- */

static int
next_piece(struct docs *d, struct ids *ids, bool *last, struct err *err)
{
    size_t size = dtype_size(d->dtype);
    uint64_t left = d->length - d->i;
    size_t n = left < PIECE ? (size_t)left : PIECE;
    uint8_t *bytes = xmalloc(n * size + 1);
    ssize_t got;
    char more;

    set_where(d, d->name);
    if (d->rows)
        str_addf(&d->where, ": row %zu", (size_t)d->row);
    got = file_read_full(d->fd, d->name, bytes, n * size, err);
    if (got >= 0 && (size_t)got < n * size)
        got = err_set(err, EX_DATAERR,
                      "%s: the file ends after %zu of %zu element%s",
                      d->where.s, (size_t)d->i + (size_t)got / size,
                      (size_t)d->length, plural(d->length));
    for (size_t i = 0; got >= 0 && i < n; i++) {
        double id = dtype_get(d->dtype, bytes, i);

        if (id < 0 || id > INT32_MAX)
            got = err_set(err, EX_DATAERR,
                          "%s: element %zu: %.0f is not a token id (0 to %d)",
                          d->where.s, (size_t)d->i + i, id, INT32_MAX);
        else
            ids_add(ids, (int32_t)id);
    }
    free(bytes);
    if (got < 0)
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
    got = file_read_full(d->fd, d->name, &more, 1, err);
    if (got > 0)
        return err_set(err, EX_DATAERR,
                       "%s: more data (expected %zu elements by its header)",
                       d->name, (size_t)(d->n_rows * d->length));
    return got < 0 ? -1 : 1;
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
    d->kind = DOCS_NPY;
    d->dtype = npy->dtype;
    d->rows = npy->n_dims == 2;
    d->n_rows = d->rows ? npy->shape[0] : 1;
    d->length = npy->shape[npy->n_dims - 1];
    d->n = d->n_rows;
    d->n_ids = npy->n_elements;
    d->ended = d->n_ids == 0;
    return 0;
}

/* The rest of a text, after what is known of it. */
static int
read_text(struct docs *d, struct str *text, struct err *err)
{
    ssize_t n = (ssize_t)PIECE;

    while (n == (ssize_t)PIECE) {
        if (text->n > TEXT_MAX)
            return err_set(err, EX_DATAERR,
                           "%s: over %zu bytes (--jsonl reads documents one "
                           "by one)",
                           d->name, TEXT_MAX);
        str_reserve(text, PIECE);
        n = file_read_full(d->fd, d->name, text->s + text->n, PIECE, err);
        text->n += n > 0 ? (size_t)n : 0;
    }
    return n < 0 ? -1 : 0;
}

/* A file or standard input: its first bytes say what it is. */
static int
open_stream(struct docs *d, const char *path, struct err *err)
{
    struct str text = { 0 };
    struct npy npy;
    ssize_t n;
    int rc = -1;

    d->fd = strcmp(path, "-") == 0 ? 0 : file_open_any(path, err);
    if (d->fd < 0)
        return -1;
    str_reserve(&text, NPY_MAX_HEAD);
    n = file_read_full(d->fd, d->name, text.s, HEAD, err);
    text.n = n > 0 ? (size_t)n : 0;
    if (n >= 0 && npy_sniff(text.s, text.n))
        rc = npy_read(&npy, d->fd, d->name, text.s, text.n, err) < 0
                 ? -1
                 : open_npy(d, &npy, err);
    else if (n >= 0 && read_text(d, &text, err) == 0 &&
             prompt_is_text(d->run, d->name, &text, err) == 0 &&
             run_open_tok(d->run, err) == 0)
        rc = prompt_encode(d->run, d->name, &text, &d->one, err);
    str_free(&text);
    return rc;
}

/* ---- any ---- */

int
docs_open(struct docs *d, struct run *run, struct err *err)
{
    const char *path = run->prompt_file ? run->prompt_file : "-";
    int rc;

    d->run = run;
    d->fd = d->jsonl.fd = -1;
    d->name = prompt_name(run);
    set_where(d, d->name);
    if (run->jsonl) {
        d->kind = DOCS_LINES;
        rc = jsonl_open(&d->jsonl, path, err);
    } else if (run->prompt || run->ids_text || run->messages) {
        rc = prompt_ids(run, &d->one, err);
    } else {
        rc = open_stream(d, path, err);
    }
    if (d->kind == DOCS_ONE) {
        d->n = 1;
        d->n_ids = d->one.n;
    }
    return rc;
}

void
docs_close(struct docs *d)
{
    jsonl_close(&d->jsonl);
    if (d->fd > 0)
        close(d->fd);
    ids_free(&d->one);
    str_free(&d->where);
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
    if (d->kind == DOCS_ONE) {
        for (size_t i = 0; i < d->one.n; i++)
            ids_add(ids, d->one.id[i]);
        ids_free(&d->one);
        d->ended = true;
        rc = 1;
    } else if (d->kind == DOCS_NPY) {
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
