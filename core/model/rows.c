/* SPDX-License-Identifier: ISC */
#include "core/model/rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/format/npy.h"
#include "core/kernel/cvt.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/model/row_source.h"
#include "core/sig.h"
#include "core/tty.h"

#define RAW_BYTES   ((size_t)1 << 20)
#define AHEAD_BYTES ((size_t)8 << 20)
#define MAX_DIM     ((size_t)1 << 24) /* of a row; as --dim */
#define MAX_TOKENS  ((size_t)1 << 30)

/* ---- opening ---- */

/* By layers, a block of n rows of each comes next. */
static void
add_block(struct row_stream *in, size_t *cap, size_t n)
{
    size_t sum = in->n_blocks ? in->ends[in->n_blocks] : 0;

    if (in->n_blocks + 1 >= *cap)
        in->ends = xgrow(in->ends, *cap, cap, sizeof(*in->ends));
    in->ends[in->n_blocks++] = sum;
    in->ends[in->n_blocks] = sum + n;
}

/* Blocks of dumps of which not all rows count differ in their tokens. */
static void
find_ends(struct row_stream *in)
{
    size_t cap = 0;

    for (size_t i = 0; i < in->n_sources; i++) {
        const struct source *s = &in->sources[i];

        for (size_t row = 0;
             !s->view && s->n_rows != UNKNOWN && row < s->n_rows;
             row += in->tokens * in->n_layers)
            add_block(in, &cap, in->tokens);
        for (size_t img = s->first_img; s->view && img < s->end_img; img++) {
            size_t n =
                saev_view_img(s->view, img + 1) - saev_view_img(s->view, img);

            if (n > 0)
                add_block(in, &cap, n / in->n_layers);
        }
    }
}

/* Do all of them have the same rows? */
static int
check_sources(struct row_stream *in, const struct row_options *o,
              struct err *err)
{
    const struct source *first = in->sources;
    uint64_t all = 0;

    if (in->n_sources == 0) /* dumps without images */
        return err_set(err, EX_DATAERR, "%s: has no rows", o->paths[0]);
    in->d = first->last[2];
    in->n_layers = o->n_layers ? o->n_layers : 1;
    in->tokens = o->n_layers ? first->last[1] : 1;
    if (in->d > MAX_DIM || in->tokens > MAX_TOKENS)
        return err_set(err, EX_DATAERR,
                       "%s: rows of %zu numbers, %zu tokens (expected at most "
                       "%zu, %zu)",
                       first->path, in->d, in->tokens, MAX_DIM, MAX_TOKENS);
    for (size_t i = 0; i < in->n_sources; i++) {
        const struct source *s = &in->sources[i];

        if (s->last[2] != in->d)
            return err_set(err, EX_DATAERR,
                           "%s: rows have %zu numbers (expected %zu, as in %s)",
                           s->path, s->last[2], in->d, first->path);
        if (o->n_layers && (s->last[0] != o->n_layers ||
                            s->last[1] != in->tokens || in->tokens == 0))
            return err_set(err, EX_DATAERR,
                           "%s: its last dims are %zu, %zu, %zu (expected %zu "
                           "layer%s, tokens, d)",
                           s->path, s->last[0], s->last[1], s->last[2],
                           o->n_layers, plural(o->n_layers));
        if (o->n_layers && s->n_rows != UNKNOWN && !s->view &&
            s->n_rows % (o->n_layers * in->tokens) != 0)
            return err_set(err, EX_DATAERR,
                           "%s: has %llu row%s (expected whole blocks of %zu "
                           "layers and %zu tokens)",
                           s->path, (unsigned long long)s->n_rows,
                           plural(s->n_rows), o->n_layers, in->tokens);
        /* how many blocks are before it is not known */
        if (o->n_layers && s->view && in->is_stream)
            return err_set(err, TU_USAGE,
                           "%s: has padding: standard input or a pipe by "
                           "layers has to come after it",
                           s->path);
        if (saev_mask_difference(&s->mask, &first->mask))
            return err_set(err, EX_DATAERR,
                           "%s: %s has no rows of the same tokens (an SAE says "
                           "only one --skip-ids, --skip-positions, --max-norm)",
                           s->path, first->path);
        in->is_stream |= !s->is_file;
        if (s->n_rows == UNKNOWN || all == UNKNOWN)
            all = UNKNOWN;
        else if (__builtin_add_overflow(all, s->n_rows, &all))
            return err_set(err, EX_DATAERR, "%s: too many rows", s->path);
    }
    if (all == 0 && saev_mask_given(&in->mask))
        return err_set(err, EX_DATAERR,
                       "%s: no row is left by --skip-ids, --skip-positions and "
                       "--max-norm",
                       first->path);
    if (all == 0)
        return err_set(err, EX_DATAERR, "%s: has no rows", first->path);
    if (o->n_layers && in->dumps)
        find_ends(in);
    if (saev_mask_given(&first->mask)) {
        free(in->mask.ids); /* none: the mask is of dumps */
        in->mask = first->mask;
        in->sources->mask.ids = NULL;
    }
    in->n_rows = all == UNKNOWN ? 0 : all / in->n_layers + o->input_at;
    return 0;
}

int
rows_open(struct row_stream *in, const struct row_options *o, struct err *err)
{
    static char dash[] = "-", *const std[] = { dash };
    int n = o->n_paths ? o->n_paths : 1, rc = 0;
    char *const *paths = o->n_paths ? o->paths : std;

    *in = (struct row_stream){ .skip_bad = o->skip_bad,
                               .all = o->all,
                               .layers = o->layers,
                               .first = o->input_at,
                               .taken = o->input_at };
    in->is_whole = o->is_whole;
    in->mask = (struct saev_mask){ .positions = o->skip_positions,
                                   .max_norm = o->max_norm,
                                   .has_ids = o->ids,
                                   .by_token = o->n_layers > 0 };
    if (o->skip_ids)
        rc = saev_mask_ids(&in->mask, o->skip_ids, err);
    for (int i = 0; i < n && rc == 0; i++)
        rc = source_add(in, paths[i], o, err);
    return rc < 0 ? -1 : check_sources(in, o, err);
}

int
rows_room(struct row_stream *in, size_t batch, struct err *err)
{
    in->batch = batch;
    in->cap = in->batch + in->tokens - 1;
    in->x =
        mem_big(in->n_layers * in->cap, in->d * sizeof(float), "a batch", err);
    in->raw = xmalloc(larger(RAW_BYTES, in->d * 4));
    in->n_room = smaller(in->batch, larger(AHEAD_BYTES / 4 / in->d, 1));
    if (!in->x || par_worker_open(&in->reader, err) < 0)
        return -1;
    in->ahead =
        mem_big(in->n_room, in->d * sizeof(float), "rows read ahead", err);
    return in->ahead ? 0 : -1;
}

int
rows_wrap(struct row_stream *in, struct err *err)
{
    const char *dir = getenv("TMPDIR");
    size_t nbytes = 0;

    if (in->first || (in->is_stream && (in->ends || !in->n_rows)))
        return 0;
    for (size_t i = 0; i < in->n_sources; i++)
        if (!in->sources[i].is_file)
            nbytes += (size_t)in->sources[i].n_rows * in->d *
                      source_item(&in->sources[i]);
    if (in->is_stream &&
        spill_open(&in->copy, dir && *dir ? dir : "/tmp", nbytes, err) < 0)
        return -1;
    in->copies = in->is_stream;
    in->wraps = true;
    return 1;
}

void
rows_close(struct row_stream *in)
{
    if (in->reading) /* it may wait for a pipe that nobody needs any more */
        sig_adopt(SIGTERM);
    par_worker_close(in->reader);
    if (in->ahead)
        mem_big_free(in->ahead, in->n_room, in->d * sizeof(float));
    if (in->copy.dir)
        spill_close(&in->copy);
    for (size_t i = 0; i < in->n_sources; i++) {
        if (in->sources[i].fd > 2 && !in->sources[i].is_copy)
            close(in->sources[i].fd);
        free(in->sources[i].path);
        free(in->sources[i].hook);
        free(in->sources[i].family);
        free(in->sources[i].mask.ids);
    }
    if (in->x)
        mem_big_free(in->x, in->n_layers * in->cap, in->d * sizeof(float));
    free(in->sources);
    free(in->mask.ids);
    source_free_dumps(in->dumps);
    free(in->ends);
    free(in->raw);
    *in = (struct row_stream){ 0 };
}

/* ---- reading ---- */

/* What was read once is a part of the copy from now on. */
static void
use_copy(struct row_stream *in)
{
    uint64_t all = 0;

    for (size_t i = 0; i < in->n_sources; i++) {
        struct source *s = &in->sources[i];

        all += s->n_rows;
        if (s->is_file)
            continue;
        if (s->fd > 2)
            close(s->fd);
        s->fd = in->copy.fd;
        s->is_file = s->is_copy = true;
    }
    in->n_rows = all / in->n_layers;
    in->copies = false;
}

/* The source that has more, NULL at the end. */
static struct source *
source_at(struct row_stream *in)
{
    for (;; in->at++, in->row = 0) {
        if (in->at == in->n_sources && in->copies)
            use_copy(in);
        if (in->at == in->n_sources && in->wraps)
            in->at = 0;
        if (in->at == in->n_sources)
            return NULL;
        if (in->row < in->sources[in->at].n_rows)
            return &in->sources[in->at];
        source_close(&in->sources[in->at]);
    }
}

/* More arrays follow the first of a pipe, whose rows alone were counted. */
static int
more_arrays(struct row_stream *in, const struct source *s, struct err *err)
{
    in->has_more = true;
    if (in->copies && in->is_whole)
        return err_set(err, EX_DATAERR,
                       "%s: more arrays follow the first, so how many rows "
                       "there are is not known (--epochs needs a FILE; or -n "
                       "STEPS)",
                       s->path);
    if (in->copies)
        spill_close(&in->copy);
    in->wraps = in->copies = false;
    return 0;
}

/* Rows of a source as they are there: how many, or -1. */
static ssize_t
read_source(struct row_stream *in, struct source *s, char *to, size_t n,
            struct err *err)
{
    size_t row = in->d * source_item(s), size;
    uint64_t adjacent, n_rows;
    ssize_t got;

    if (s->fd < 0) {
        s->fd = file_open(s->path, &size, err);
        if (s->fd < 0)
            return -1;
    }
    if (s->n_rows - in->row < n)
        n = (size_t)(s->n_rows - in->row);
    if (s->is_file) {
        size_t at = source_place(s, in->row, &adjacent);

        n = smaller(n, (size_t)adjacent);
        if (file_pread(s->fd, s->path, to, n * row, at, err) < 0)
            return -1;
        got = (ssize_t)(n * row);
    } else {
        got = file_read_full(s->fd, s->path, to, n * row, err);
    }
    if (got < 0 || (s->is_raw && in->row == 0 &&
                    npy_is_raw(to, (size_t)got, s->path, err) < 0))
        return -1;
    if ((size_t)got % row != 0 ||
        (s->n_rows != UNKNOWN && (size_t)got < n * row))
        return err_set(err, EX_DATAERR,
                       "%s: ended in row %llu (expected whole rows of %zu "
                       "bytes)",
                       s->path,
                       (unsigned long long)(in->row + (size_t)got / row), row);
    if (in->copies && !s->is_file) {
        if (in->row == 0)
            s->offset = in->n_copied;
        if (spill_write(&in->copy, to, (size_t)got, in->n_copied, err) < 0)
            return -1;
        in->n_copied += (size_t)got;
    }
    in->row += (size_t)got / row;
    n_rows = s->n_rows;
    if ((size_t)got < n * row)
        s->n_rows = in->row; /* now it is known */
    else if (in->row == n_rows && !s->is_file &&
             source_more(s, in->layers, err) < 0)
        return -1;
    if (s->n_rows > n_rows && !in->has_more && more_arrays(in, s, err) < 0)
        return -1;
    return got / (ssize_t)row;
}

/* n rows from the sources, fewer at the end. */
static ssize_t
read_sources(struct row_stream *in, float *to, size_t n, struct err *err)
{
    size_t done = 0;

    while (done < n) {
        struct source *s = source_at(in);
        size_t part;
        ssize_t got;

        if (!s)
            break;
        if (sig_stop())
            return sig_stopped("no batch was complete", err);
        part = smaller(n - done, larger(RAW_BYTES / (in->d * 4), 1));
        got = read_source(in, s, in->raw, part, err);
        if (got < 0)
            return -1;
        cvt_to_f32(to + done * in->d, in->raw, s->dtype, (size_t)got * in->d);
        done += (size_t)got;
    }
    return (ssize_t)done;
}

static void
read_ahead(void *ctx)
{
    struct row_stream *in = ctx;
    ssize_t n = read_sources(in, in->ahead, in->n_room, &in->ahead_err);

    in->ahead_rc = n < 0 ? -1 : 0;
    in->n_ahead = n < 0 ? 0 : (size_t)n;
    in->n_used = 0;
}

void
rows_ahead(struct row_stream *in)
{
    if (in->n_used < in->n_ahead || in->ahead_rc < 0)
        return; /* of a block that is longer than the batch */
    in->reading = true;
    par_submit(in->reader, read_ahead, in);
}

/* n rows, fewer at the end: first those that were read ahead. */
static ssize_t
read_rows(struct row_stream *in, float *to, size_t n, struct err *err)
{
    size_t had = smaller(n, in->n_ahead - in->n_used);
    ssize_t got;

    if (in->ahead_rc < 0) {
        *err = in->ahead_err;
        return -1;
    }
    memcpy(to, in->ahead + in->n_used * in->d, had * in->d * sizeof(*to));
    in->n_used += had;
    if (had == n)
        return (ssize_t)n;
    got = read_sources(in, to + had * in->d, n - had, err);
    return got < 0 ? -1 : (ssize_t)had + got;
}

static float *
room_at(const struct row_stream *in, size_t layer, size_t row)
{
    return in->x + (layer * in->cap + row) * in->d;
}

/* The source of a row of the input, which becomes its own. */
static const struct source *
source_of(const struct row_stream *in, uint64_t *row)
{
    size_t i = 0;

    *row -= in->first;
    if (in->wraps && !in->copies)
        *row %= in->n_rows;
    for (; i + 1 < in->n_sources; i++) {
        uint64_t n = in->sources[i].n_rows / in->n_layers;

        if (in->sources[i].n_rows == UNKNOWN || *row < n)
            break;
        *row -= n;
    }
    *row += i == 0 && !in->sources[i].view ? in->first : 0;
    return &in->sources[i];
}

/* Row 'at' of a layer of the input is not finite. */
static int
bad_row(const struct row_stream *in, size_t layer, uint64_t at, struct err *err)
{
    const struct source *s = source_of(in, &at);
    uint64_t more;

    if (s->view && !in->layers) /* as the file counts it */
        at = source_place(s, at, &more) / (in->d * sizeof(float));
    return err_set(err, EX_DATAERR, "%s: row %llu%s%s has NaN or Inf%s",
                   s->path, (unsigned long long)at, in->layers ? " of " : "",
                   in->layers ? in->layers[layer] : "",
                   in->layers ? "" : " (--skip-bad leaves such out)");
}

/* Rows at 'row' of a layer's room that are not finite are an error, or left
 * out; returns how many stay. */
static ssize_t
check_rows(struct row_stream *in, size_t layer, size_t row, size_t n,
           uint64_t number, struct err *err)
{
    size_t kept = 0;

    if (in->all)
        return (ssize_t)n;
    for (size_t i = 0; i < n; i++) {
        float *x = room_at(in, layer, row + i);
        bool good = cvt_fits(x, DT_F32, in->d);

        if (!good && !in->skip_bad)
            return bad_row(in, layer, number + i, err);
        if (!good) {
            in->n_bad++;
            continue;
        }
        if (kept != i)
            memcpy(room_at(in, layer, row + kept), x, in->d * sizeof(*x));
        kept++;
    }
    return (ssize_t)kept;
}

/* Goes on to the next block: the tokens of a layer there. */
static size_t
next_block(struct row_stream *in)
{
    size_t i = in->block;

    if (i == in->n_blocks && in->wraps)
        i = 0;
    in->block = i < in->n_blocks ? i + 1 : i;
    return i < in->n_blocks ? in->ends[i + 1] - in->ends[i] : in->tokens;
}

/* A block: the tokens of each layer.  How many there are, 0 at the end. */
static ssize_t
read_block(struct row_stream *in, size_t want, struct err *err)
{
    size_t n = in->layers ? next_block(in) : want;
    ssize_t got = 0, kept = 0;

    for (size_t l = 0; l < in->n_layers; l++) {
        got = read_rows(in, room_at(in, l, in->fill), n, err);
        if (got > 0 && in->layers && (size_t)got < n)
            return err_set(err, EX_DATAERR,
                           "the input ended in a block of %zu layers and %zu "
                           "tokens",
                           in->n_layers, in->tokens);
        if (got <= 0)
            return got;
        kept = check_rows(
            in, l, in->fill, (size_t)got,
            in->layers ? in->taken + in->fill : in->taken + in->n_taken, err);
        if (kept < 0)
            return -1;
    }
    in->fill += (size_t)kept;
    in->n_taken += (uint64_t)got;
    in->n_barren = kept ? 0 : in->n_barren + (uint64_t)got;
    if (in->wraps && !in->copies && in->n_barren >= in->n_rows)
        return err_set(err, EX_DATAERR, "%s: all rows have NaN or Inf",
                       in->sources[0].path);
    return got;
}

ssize_t
rows_batch(struct row_stream *in, struct err *err)
{
    size_t left = in->fill - in->used;

    if (in->reading)
        par_sync(in->reader);
    in->reading = false;
    in->taken += in->n_taken;
    for (size_t l = 0; l < in->n_layers && left && in->used; l++)
        memmove(room_at(in, l, 0), room_at(in, l, in->used),
                left * in->d * sizeof(float));
    in->fill = left;
    in->n_taken = in->used = 0;
    while (in->fill < in->batch) {
        ssize_t got = read_block(in, in->batch - in->fill, err);

        if (got < 0)
            return -1;
        if (got == 0)
            break;
    }
    in->used = smaller(in->fill, in->batch);
    if (in->layers) /* what is left is the next batch's */
        in->n_taken = in->used;
    return (ssize_t)in->used;
}

const float *
rows_layer(const struct row_stream *in, size_t layer)
{
    return room_at(in, layer, 0);
}

void
rows_ids(const struct row_stream *in, int32_t *ids)
{
    for (size_t i = 0; i < in->used; i++) {
        uint64_t row = in->taken + i;
        const struct source *s = source_of(in, &row);
        struct saev_place at =
            saev_view_at(&s->dump->view, s->first + (size_t)row);

        ids[i] = saev_ids_at(&s->dump->ids, at.img, at.token);
    }
}

int32_t *
rows_all_ids(const struct row_stream *in, size_t *n)
{
    int32_t *ids = NULL;
    size_t cap = 0;

    *n = 0;
    for (const struct source_dump *p = in->dumps; p; p = p->next) {
        const struct saev *s = &p->dir.saev;

        for (size_t i = 0; i < s->n_imgs * s->n_tokens; i++) {
            int32_t id = saev_ids_at(&p->ids, i / s->n_tokens, i % s->n_tokens);

            if (*n == cap)
                ids = xgrow(ids, *n, &cap, sizeof(*ids));
            if (id >= 0)
                ids[(*n)++] = id;
        }
    }
    return ids;
}

void
rows_padding(const struct row_stream *in, bool *padding)
{
    for (size_t i = 0; i < in->used;) {
        uint64_t row = in->taken + i;
        const struct source *s = source_of(in, &row);
        const struct saev_kept *kept = s->dump ? s->dump->kept : NULL;

        row -= s == in->sources && !s->view ? in->first : 0;
        for (; i < in->used && row < s->n_rows; i++, row++) {
            uint64_t bit = s->first + row;

            padding[i] = kept && !(kept->bits[bit / 64] >> bit % 64 & 1);
        }
    }
}

bool
rows_bad(const struct row_stream *in, size_t i)
{
    return !cvt_fits(room_at(in, 0, i), DT_F32, in->d);
}

int
rows_bad_error(const struct row_stream *in, size_t i, struct err *err)
{
    return bad_row(in, 0, in->taken + i, err);
}

uint64_t
rows_after(const struct row_stream *in)
{
    return in->taken + in->n_taken;
}

static int
too_few(uint64_t row, struct err *err)
{
    return err_set(err, EX_DATAERR,
                   "the input has fewer rows than the run to resume had, %llu",
                   (unsigned long long)row);
}

int
rows_skip(struct row_stream *in, uint64_t row, struct err *err)
{
    uint64_t all = row - in->first, n = in->ends ? in->ends[in->n_blocks] : 0;
    size_t rest;

    if (in->wraps && !in->copies) /* whole passes over the files */
        all %= in->n_rows;
    while (in->block < in->n_blocks && in->ends[in->block + 1] <= all)
        in->block++;
    n = in->block < in->n_blocks ? in->ends[in->block]
                                 : n + (all - n) / in->tokens * in->tokens;
    rest = (size_t)(all - n);
    n *= in->n_layers;
    while (n > 0) {
        struct source *s = source_at(in);
        uint64_t left;
        ssize_t got;

        if (!s)
            return too_few(row, err);
        left = s->n_rows == UNKNOWN ? n : s->n_rows - in->row;
        if (s->is_file) {
            left = left < n ? left : n;
            in->row += left;
            n -= left;
            continue;
        }
        if (sig_stop())
            return sig_stopped("rows that were had are passed over", err);
        got = read_source(in, s, in->raw,
                          smaller((size_t)(n < left ? n : left),
                                  larger(RAW_BYTES / (in->d * 4), 1)),
                          err);
        if (got < 0)
            return -1;
        n -= (uint64_t)got;
    }
    in->taken = row - rest;
    in->fill = in->used = 0;
    if (rest > 0) {
        ssize_t got = read_block(in, 0, err);

        if (got <= 0)
            return got < 0 ? -1 : too_few(row, err);
        for (size_t l = 0; l < in->n_layers; l++)
            memmove(room_at(in, l, 0), room_at(in, l, rest),
                    (in->fill - rest) * in->d * sizeof(float));
        in->fill -= rest;
    }
    in->taken = row;
    in->n_taken = 0;
    return 0;
}
