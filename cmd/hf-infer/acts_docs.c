/* The documents whose activations are dumped. */
#include <stdlib.h>
#include <string.h>

#include "cmd/hf-infer/acts.h"
#include "cmd/hf-infer/jsonl.h"
#include "core/format/npy.h"
#include "core/map.h"
#include "core/mem.h"

#define TEXT_MAX                                                 \
    ((size_t)1 << 30) /* bytes of one text, or of .npy in a pipe \
                       */

struct docs {
    struct run *run;
    struct jsonl jsonl; /* with --jsonl */
    struct str where;
    bool done; /* the one prompt was handed out */

    /* .npy of token ids: rows of 'length' */
    struct map map;
    struct str piped;
    const uint8_t *data;
    enum dtype dtype;
    size_t rows, length, row;
};

static const char *
input_name(const struct run *run)
{
    return run->prompt        ? "-p"
           : run->ids_text    ? "--ids"
           : run->prompt_file ? run->prompt_file
                              : "standard input";
}

static bool
is_integer(enum dtype dtype)
{
    return dtype_table[dtype].kind == DK_INT ||
           dtype_table[dtype].kind == DK_UINT;
}

/* [n] is one document, [rows, length] are 'rows' of them. */
static int
open_npy(struct docs *d, const void *bytes, size_t nbytes, struct err *err)
{
    const char *name = input_name(d->run);
    struct npy npy;

    if (npy_parse(&npy, bytes, nbytes, name, err) < 0)
        return -1;
    if (!is_integer(npy.dtype) || npy.n_dims < 1 || npy.n_dims > 2)
        return err_set(err, EX_DATAERR,
                       "%s: %s with %zu dims (expected integers, token ids, "
                       "[n] or [rows, n])",
                       name, dtype_table[npy.dtype].name, npy.n_dims);
    if (npy.nbytes != nbytes - npy.data_offset)
        return err_set(err, EX_DATAERR,
                       "%s: %zu bytes of data (expected %zu by its header)",
                       name, nbytes - npy.data_offset, npy.nbytes);
    d->data = (const uint8_t *)bytes + npy.data_offset;
    d->dtype = npy.dtype;
    d->rows = npy.n_dims == 1 ? 1 : npy.shape[0];
    d->length = npy.shape[npy.n_dims - 1];
    return 0;
}

/* A file or pipe may be .npy: its first bytes tell. */
static int
open_file(struct docs *d, struct err *err)
{
    const char *path = d->run->prompt_file ? d->run->prompt_file : "-";
    struct err ignored;

    if (strcmp(path, "-") != 0 && map_open(&d->map, path, &ignored) == 0 &&
        npy_sniff(d->map.data, d->map.size))
        return open_npy(d, d->map.data, d->map.size, err);
    map_close(&d->map);
    d->map = (struct map){ 0 };
    if (file_read_all(path, TEXT_MAX, &d->piped, err) < 0)
        return -1;
    if (d->piped.n && npy_sniff(d->piped.s, d->piped.n))
        return open_npy(d, d->piped.s, d->piped.n, err);
    return 0;
}

int
docs_open(struct docs **docs, struct run *run, struct err *err)
{
    struct docs *d = xcalloc(1, sizeof(*d));
    int rc = 0;

    d->run = run;
    str_adds(&d->where, input_name(run));
    if (run->jsonl)
        rc = jsonl_open(&d->jsonl, run->prompt_file ? run->prompt_file : "-",
                        err);
    else if (!run->prompt && !run->ids_text)
        rc = open_file(d, err);
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
    if (d->run->jsonl)
        jsonl_close(&d->jsonl);
    map_close(&d->map);
    str_free(&d->piped);
    str_free(&d->where);
    free(d);
}

/* An error inside a document says where that is. */
static int
locate(const struct docs *d, struct err *err)
{
    struct err inner = *err;

    return err_set(err, inner.status, "%s: %s", d->where.s, inner.what);
}

static int
next_line(struct docs *d, struct ids *ids, struct err *err)
{
    struct jsonl_doc doc = { 0 };
    int rc = jsonl_next(&d->jsonl, &doc, true, err);

    if (rc <= 0)
        return rc;
    str_clear(&d->where);
    str_adds(&d->where, doc.where);
    if (doc.is_ids) {
        for (size_t i = 0; i < doc.ids.n; i++)
            ids_add(ids, doc.ids.id[i]);
    } else if (run_open_tok(d->run, err) < 0) {
        rc = -1;
    } else if (prompt_encode(d->run, &doc.text, ids, err) < 0) {
        rc = locate(d, err);
    }
    jsonl_doc_free(&doc);
    return rc;
}

static int
next_row(struct docs *d, struct ids *ids, struct err *err)
{
    const uint8_t *row =
        d->data + d->row * d->length * (dtype_table[d->dtype].bits / 8);

    if (d->row == d->rows)
        return 0;
    str_clear(&d->where);
    str_addf(&d->where, "%s: row %zu", input_name(d->run), d->row++);
    for (size_t i = 0; i < d->length; i++) {
        double id = dtype_get(d->dtype, row, i);

        if (id < 0 || id > INT32_MAX)
            return err_set(err, EX_DATAERR, "%s: %.0f is no token id (0 to %d)",
                           d->where.s, id, INT32_MAX);
        ids_add(ids, (int32_t)id);
    }
    return 1;
}

static int
next_prompt(struct docs *d, struct ids *ids, struct err *err)
{
    if (d->done)
        return 0;
    d->done = true;
    if (d->run->prompt || d->run->ids_text)
        return prompt_ids(d->run, ids, err) < 0 ? -1 : 1;
    if (run_open_tok(d->run, err) < 0)
        return -1;
    return prompt_encode(d->run, &d->piped, ids, err) < 0 ? locate(d, err) : 1;
}

int
docs_next(struct docs *d, struct ids *ids, struct err *err)
{
    int64_t vocab = d->run->config->vocab_size;
    int rc;

    ids->n = 0;
    rc = d->run->jsonl ? next_line(d, ids, err)
         : d->data     ? next_row(d, ids, err)
                       : next_prompt(d, ids, err);
    for (size_t i = 0; rc > 0 && i < ids->n; i++)
        if (ids->id[i] >= vocab)
            rc = err_set(err, EX_DATAERR,
                         "%s: token id %d is beyond the vocabulary (%lld)",
                         d->where.s, (int)ids->id[i], (long long)vocab);
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
    return input_name(d->run);
}

size_t
docs_count(const struct docs *d)
{
    return d->run->jsonl ? 0 : d->data ? d->rows : 1;
}

size_t
docs_length(const struct docs *d)
{
    return d->data ? d->length : 0;
}
