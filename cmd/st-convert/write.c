/* SPDX-License-Identifier: ISC */
#include "cmd/st-convert/write.h"

#include <jansson.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/st-convert/activations.h"
#include "core/format/stdir_copy.h"
#include "core/format/stw.h"
#include "core/js.h"
#include "core/kernel/cvt.h"
#include "core/le.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/outdir.h"
#include "core/par.h"
#include "core/record.h"
#include "core/tool.h"
#include "core/tty.h"

#define BLOCK   ((size_t)1 << 19) /* numbers that are converted at a time */
#define GRAIN   ((size_t)1 << 14) /* by one thread */
#define PIECE   ((size_t)4096)    /* of these, at a time */
#define COLUMNS ((size_t)32)      /* that are read at a time to become rows */

/* Bytes of a tensor that are to be written. */
struct part {
    int tensor;
    const void *data;
    size_t nbytes, offset;
};

/* What is written while the next block is converted. */
struct block {
    char *room;
    size_t room_nbytes;
    uint8_t shape[16];
    struct part parts[N_PIECES];
    size_t n_parts;
    struct stw *w;
    struct err err;
};

struct converter {
    struct convert_plan *plan;
    struct par *par;
    struct par_worker *writer;
    struct block blocks[2];
    bool second; /* the block whose turn it is */
    struct stw *w;
    struct progress progress;
    uint64_t n_in, n_out; /* bytes of tensors */
};

/* An item, and the rows of it that threads share.  Those of a tensor that is
 * KEPT are GRAIN bytes long, those of one that is ROUNDED GRAIN numbers, and
 * the last may be shorter. */
struct item_rows {
    struct convert_item *item;
    struct weight from;
    size_t out, k, total; /* rows, numbers of one, of all */
    size_t first, n;      /* rows at hand */
    size_t row_nbytes;    /* of one as it is written */
    char *to;             /* [n, row_nbytes] */
    atomic_bool overflow; /* a number became infinite */
    /* PACKED */
    struct encode_form form;
    float *weight; /* [k] or NULL */
    size_t groups;
    char *scale;                /* [n, groups], as in the file */
    uint8_t *zero;              /* [n, groups] */
    struct encode_error *error; /* [n]; 'max' is NaN where a number is not
                                 * finite */
};

/* ---- numbers ---- */

static void
copy_rows(void *ctx, size_t begin, size_t end)
{
    struct item_rows *r = ctx;
    size_t at = (r->first + begin) * r->k;
    size_t n = smaller((end - begin) * r->k, r->total - at);

    memcpy(r->to + begin * r->k, (const char *)r->from.data + at, n);
}

static void
encode_rows(void *ctx, size_t begin, size_t end)
{
    const struct item_rows *r = ctx;
    size_t scale_nbytes = r->groups * dtype_size(r->form.scale_dtype);
    size_t coded = r->form.kind == ENCODE_I4 ? (r->k + 1) / 2 : r->k;

    for (size_t i = begin; i < end; i++) {
        uint8_t *to = (uint8_t *)r->to + i * r->row_nbytes;

        memset(to + coded, 0, r->row_nbytes - coded); /* of the last word */
        if (!encode_row(&r->form, to, r->scale + i * scale_nbytes,
                        r->form.asymmetric ? r->zero + i * r->groups : NULL,
                        &r->from, r->first + i, r->k, r->weight, &r->error[i]))
            r->error[i].max = (double)NAN;
    }
}

static void
read_rows(void *ctx, size_t begin, size_t end)
{
    struct item_rows *r = ctx;
    enum dtype to = r->item->piece[0].dtype;
    bool f64 = r->from.dtype == DT_F64;
    size_t done = r->first * r->k, last = smaller(end * r->k, r->total - done);
    float x[PIECE];

    for (size_t i = begin * r->k, n; i < last; i += n) {
        n = smaller(smaller(PIECE, last - i), r->k - i % r->k);
        for (size_t j = 0; f64 && j < n; j++) {
            double v = dtype_get(DT_F64, r->from.data, done + i + j);

            x[j] = to == DT_F32 ? (float)v : f64_to_odd(v);
        }
        if (!f64)
            weight_read(x, &r->from, r->first + i / r->k, i % r->k, n);
        cvt_from_f32(r->to + i * dtype_size(to), to, x, n);
        if (cvt_fits(x, to, n))
            continue;
        for (size_t j = 0; j < n; j++) /* what was infinite may stay that */
            if (!cvt_fits(x + j, to, 1) &&
                isfinite(f64 ? dtype_get(DT_F64, r->from.data, done + i + j)
                             : (double)x[j]))
                r->overflow = true;
    }
}

/* Rows that are columns of what is packed. */
static void
read_columns(void *ctx, size_t begin, size_t end)
{
    struct item_rows *r = ctx;
    enum dtype to = r->item->piece[0].dtype;
    size_t n = end - begin, size = dtype_size(to);
    char rounded[4 * COLUMNS];
    float x[COLUMNS];

    for (size_t i = 0; i < r->k; i++) {
        weight_read(x, &r->from, i, r->first + begin, n);
        cvt_from_f32(rounded, to, x, n);
        for (size_t j = 0; j < n; j++)
            memcpy(r->to + ((begin + j) * r->k + i) * size, rounded + j * size,
                   size);
        if (!cvt_fits(x, to, n))
            r->overflow = true;
    }
}

/* ---- blocks ---- */

static void
write_block(void *ctx)
{
    struct block *b = ctx;

    for (size_t i = 0; i < b->n_parts && !b->err.status; i++)
        stw_write(b->w, b->parts[i].tensor, b->parts[i].data,
                  b->parts[i].nbytes, b->parts[i].offset, &b->err);
}

/* Waits for what is being written; then 'b' is, if it is not NULL. */
static int
hand_over(struct converter *c, struct block *b, struct err *err)
{
    par_sync(c->writer);
    for (int i = 0; i < 2; i++)
        if (c->blocks[i].err.status) {
            *err = c->blocks[i].err;
            return -1;
        }
    if (b)
        par_submit(c->writer, write_block, b);
    return 0;
}

static void
add_part(struct block *b, int tensor, const void *data, size_t nbytes,
         size_t offset)
{
    b->parts[b->n_parts++] = (struct part){ tensor, data, nbytes, offset };
}

/* Room for r->n rows, and for words of zero points. */
static int
block_open(struct block *b, struct item_rows *r, struct err *err)
{
    size_t errors = r->n * sizeof(*r->error), codes = r->n * r->row_nbytes;
    size_t scales = r->n * r->groups * sizeof(float);
    size_t zeros = r->form.asymmetric ? (r->n + 4) * r->groups * 2 : 0;
    size_t nbytes = errors + scales + zeros + codes;

    b->n_parts = 0;
    if (nbytes > b->room_nbytes) {
        free(b->room);
        b->room_nbytes = nbytes;
        b->room = mem_try(nbytes, 1, r->item->from->t->name, err);
    }
    if (!b->room)
        return -1;
    r->error = (struct encode_error *)(void *)b->room;
    r->scale = b->room + errors;
    r->zero = (uint8_t *)r->scale + scales;
    r->to = (char *)r->zero + zeros;
    return 0;
}

/* What packed rows have apart from codes.  Zero points of 4 bits are packed
 * along the rows: word r / 8 of each group. */
static int
add_scales(struct block *b, const struct item_rows *r, int tensor,
           struct err *err)
{
    size_t line = r->groups * dtype_size(r->form.scale_dtype);
    size_t n_words = (r->n + 7) / 8 * r->groups;
    struct encode_error *all = &r->item->error;
    uint8_t *words = r->zero + r->n * r->groups;

    for (size_t i = 0; i < r->n; i++) {
        if (!isfinite(r->error[i].max))
            return err_set(err, EX_DATAERR,
                           "%s: %s has a number in row %zu that is not finite, "
                           "or too large",
                           r->item->from->st->path, r->item->from->t->name,
                           r->first + i);
        encode_add(all, &r->error[i]);
    }
    add_part(b, tensor + PIECE_SCALE, r->scale, r->n * line, r->first * line);
    put_le64(b->shape, r->out);
    put_le64(b->shape + 8, r->k);
    if (r->first == 0 && r->item->n_pieces > PIECE_SHAPE)
        add_part(b, tensor + PIECE_SHAPE, b->shape, 16, 0);
    if (!r->form.asymmetric)
        return 0;
    memset(words, 0, 4 * n_words);
    for (size_t i = 0; i < r->n; i++)
        for (size_t g = 0; g < r->groups; g++)
            words[(i / 8 * r->groups + g) * 4 + i % 8 / 2] |=
                (uint8_t)(r->zero[i * r->groups + g] << 4 * (i % 2));
    add_part(b, tensor + PIECE_ZEROS, words, 4 * n_words,
             r->first / 8 * 4 * r->groups);
    return 0;
}

/* How many matrices a stack has that is unpacked; others are one. */
static size_t
item_matrices(const struct convert_item *it)
{
    return it->change == UNPACKED ? it->packed.n : 1;
}

/* 'matrix': which one of them. */
static int
rows_open(struct item_rows *r, struct converter *c, struct convert_item *it,
          size_t matrix, struct form_memory *memory, struct err *err)
{
    const struct st_convert_cmd *cmd = c->plan->cmd;
    const struct st_tensor *t = it->from->t;
    size_t items = it->change == KEPT ? t->nbytes : t->n_elements;
    struct linear l = { .w = { st_data(it->from->st, t), t->dtype, GRAIN },
                        .out = items / GRAIN + (items % GRAIN > 0),
                        .in = GRAIN };

    r->item = it;
    if (it->change == PACKED) {
        l.w.ld = l.in = t->shape[1];
        l.out = t->shape[0];
        r->form = (struct encode_form){
            .kind = (enum encode_kind)cmd->weights,
            .group = c->plan->group ? c->plan->group : l.in,
            .scale_dtype = it->piece[PIECE_SCALE].dtype,
            .asymmetric = cmd->asymmetric,
            .search = !cmd->absmax,
        };
        r->groups = encode_groups(&r->form, l.in);
        if (activations_weight(&r->weight, c->plan, t, err) < 0)
            return -1;
    } else if (it->change == UNPACKED &&
               form_bind(&l, &it->packed, matrix, memory, err) < 0) {
        return -1;
    }
    r->from = l.w;
    r->out = it->transposed ? l.in : l.out;
    r->k = it->transposed ? l.out : l.in;
    r->total = it->change == UNPACKED ? l.out * l.in : items;
    r->row_nbytes = it->change == KEPT ? r->k
                    : it->change == PACKED
                        ? it->piece[0].nbytes / l.out
                        : r->k * dtype_size(it->piece[0].dtype);
    return 0;
}

static int
write_matrix(struct converter *c, struct convert_item *it, size_t matrix,
             int tensor, struct form_memory *memory, struct err *err)
{
    static void (*const convert[])(void *, size_t, size_t) = {
        [KEPT] = copy_rows,
        [ROUNDED] = read_rows,
        [PACKED] = encode_rows,
        [UNPACKED] = read_rows,
    };
    const struct st_tensor *t = it->from->t;
    const char *from = st_data(it->from->st, t);
    struct item_rows r = { 0 };
    size_t line, most, unit, nbytes;
    int rc = -1;

    if (rows_open(&r, c, it, matrix, memory, err) < 0)
        goto out;
    nbytes = item_nbytes(it) / item_matrices(it);
    line = it->change == UNPACKED ? 0
           : it->change == KEPT   ? r.k
                                  : r.k * dtype_size(t->dtype);
    most = larger((size_t)par_threads(c->par), BLOCK / larger(r.k, 1));
    unit = it->transposed ? COLUMNS : r.form.asymmetric ? 8 : 1;
    most = (most + unit - 1) / unit * unit;
    for (; r.first < r.out; r.first += r.n) {
        struct block *b = &c->blocks[c->second = !c->second];
        size_t at = r.first * line;
        size_t to = (matrix * r.out + r.first) * r.row_nbytes, n;

        r.n = smaller(most, r.out - r.first);
        n = smaller(r.n * line, t->nbytes - at);
        if (block_open(b, &r, err) < 0)
            goto out;
        if (line)
            map_will_read(from + at + n, smaller(n, t->nbytes - at - n));
        if (it->transposed)
            par_for(c->par, r.n, COLUMNS, read_columns, &r);
        else
            par_for(c->par, r.n, GRAIN / r.k + 1, convert[it->change], &r);
        b->w = c->w;
        add_part(b, tensor, r.to,
                 smaller(r.n * r.row_nbytes, it->piece[0].nbytes - to), to);
        if ((it->change == PACKED && add_scales(b, &r, tensor, err) < 0) ||
            hand_over(c, b, err) < 0)
            goto out;
        if (line)
            map_was_read(&it->from->st->map, from + at, n);
        progress_at(&c->progress, c->n_in + matrix * nbytes +
                                      nbytes / r.out * (r.first + r.n));
    }
    rc = 0;
    it->overflow |= r.overflow;
    for (int i = 0; it->change == UNPACKED && i < FORM_N_ROLES; i++) {
        const struct stdir_tensor *p = it->packed.tensor[i];
        size_t part = p ? p->t->nbytes / item_matrices(it) : 0;

        if (p)
            map_was_read(&p->st->map,
                         (const char *)st_data(p->st, p->t) + matrix * part,
                         part);
    }
out:
    free(r.weight);
    return rc;
}

static int
write_item(struct converter *c, struct convert_item *it, int tensor,
           struct err *err)
{
    struct form_memory memory = { .par = c->par };
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < item_matrices(it); i++)
        rc = write_matrix(c, it, i, tensor, &memory, err);
    form_memory_free(&memory);
    if (rc == 0 && it->overflow)
        err_warn("%s: %s has numbers that become infinite in %s",
                 it->from->st->path, it->from->t->name,
                 dtype_table[it->piece[0].dtype].name);
    return rc;
}

/* ---- files ---- */

static int
write_shard(struct converter *c, struct convert_item *items, size_t n,
            const char *path, int flags, struct err *err)
{
    const struct stdir *dir = &c->plan->dir;
    struct err late;
    int rc = 0, tensor = 0;

    c->w = stw_new();
    for (size_t f = 0; f < dir->n_files; f++)
        for (size_t i = 0; i < dir->files[f].n_meta; i++)
            stw_meta(c->w, dir->files[f].meta[i].key,
                     dir->files[f].meta[i].value);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; rc >= 0 && k < items[i].n_pieces; k++) {
            const struct convert_piece *q = &items[i].piece[k];

            rc = stw_add(c->w, q->name, q->dtype, q->n_dims,
                         q->shape ? q->shape : q->dims, err);
        }
    if (rc >= 0)
        rc = stw_open(c->w, path, flags, err);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        rc = write_item(c, &items[i], tensor, err);
        tensor += (int)items[i].n_pieces;
        c->n_in += item_nbytes(&items[i]);
        for (size_t k = 0; k < items[i].n_pieces; k++)
            c->n_out += items[i].piece[k].nbytes;
    }
    if (hand_over(c, NULL, rc < 0 ? &late : err) < 0)
        rc = -1;
    if (rc == 0)
        rc = stdir_unchanged(dir, err);
    if (rc == 0)
        rc = stw_commit(c->w, err);
    stw_free(c->w);
    c->w = NULL;
    return rc;
}

static void
add_shard_name(const struct convert_plan *p, size_t shard, struct str *to)
{
    const char *path = p->dir.files[0].path, *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;

    if (p->n_shards > 1)
        str_addf(to, "model-%05zu-of-%05zu.safetensors", shard + 1,
                 p->n_shards);
    else /* an adapter's is not model.safetensors */
        str_adds(to, p->dir.n_files > 1 || !strcmp(name, STDIR_ONE_SHARD) ||
                             !p->is_dir
                         ? STDIR_ONE_FILE
                         : name);
}

static int
write_index(const struct convert_plan *p, const char *dir, uint64_t nbytes,
            struct err *err)
{
    json_t *map = json_object(), *index;
    struct str path = { 0 }, shard = { 0 };
    char *text;
    int rc = 0;

    for (size_t i = 0; i < p->n_items; i++)
        for (size_t k = 0; k < p->items[i].n_pieces; k++) {
            const char *name = p->items[i].piece[k].name;

            if (json_object_get(map, name))
                rc = err_set(err, EX_DATAERR, "tensor \"%s\": appears twice",
                             name);
            str_clear(&shard);
            add_shard_name(p, p->items[i].shard, &shard);
            json_object_set_new(map, name, json_string(shard.s));
        }
    index = json_pack("{s{sI}so}", "metadata", "total_size", (json_int_t)nbytes,
                      "weight_map", map);
    text = json_dumps(index, JSON_INDENT(2) | JSON_SORT_KEYS);
    str_addf(&path, "%s/" STDIR_INDEX, dir);
    if (!text)
        rc = err_set(err, EX_SOFTWARE, "%s: out of memory", path.s);
    if (rc == 0)
        rc = out_put(path.s, 0, text, strlen(text), err);
    free(text);
    json_decref(index);
    str_free(&path);
    str_free(&shard);
    return rc;
}

static int
write_dir(struct converter *c, struct err *err)
{
    struct convert_plan *p = c->plan;
    const struct stdir_text instead[] = { { STDIR_INDEX, NULL },
                                          { "config.json", p->config.s } };
    struct outdir_at f;
    struct str path = { 0 };
    size_t first = 0, n;
    const char *to;
    int rc = 0;

    if (outdir_at_open(&f, p->cmd->out_path, p->cmd->out_flags, err) < 0)
        return -1;
    to = outdir_path(f.dir);
    if (p->is_dir)
        rc = stdir_copy_others(&p->dir, to, instead, p->config.n ? 2 : 1,
                               "nothing was converted in", err);
    for (size_t shard = 0; rc == 0 && shard < p->n_shards; shard++) {
        for (n = first; n < p->n_items && p->items[n].shard == shard;)
            n++;
        str_clear(&path);
        str_addf(&path, "%s/", to);
        add_shard_name(p, shard, &path);
        rc = write_shard(c, p->items + first, n - first, path.s, 0, err);
        first = n;
    }
    if (rc == 0 && p->n_shards > 1)
        rc = write_index(p, to, c->n_out, err);
    str_free(&path);
    if (rc == 0)
        return outdir_at_commit(&f, err);
    outdir_at_abort(&f);
    return -1;
}

/* ---- the report ---- */

static int
report(const struct converter *c, struct err *err)
{
    const struct convert_plan *p = c->plan;
    struct encode_error all = { 0 };
    struct str text = { 0 };
    struct record row = { .to = &text, .json = p->cmd->json };
    char in[16], out[16];
    int rc;

    if (row.json)
        str_adds(&text, "{\"tensors\": [");
    else if (p->n_packed)
        str_adds(&text, "tensor\tform\trelative_rms\tmax_error\n");
    for (size_t i = 0; i < p->n_items; i++) {
        const struct convert_item *it = &p->items[i];

        if (it->change != PACKED)
            continue;
        encode_add(&all, &it->error);
        record_begin(&row);
        record_string(&row, "tensor",
                      it->head ? "lm_head.weight" : it->from->t->name);
        record_string(&row, "form", plan_word(p));
        record_key(&row, "relative_rms");
        if (row.json)
            js_put_f64(&text, encode_relative_rms(&it->error));
        else /* to be sorted as text */
            str_addf(&text, "%.6f", encode_relative_rms(&it->error));
        record_f64(&row, "max_error", it->error.max);
        record_end(&row);
    }
    if (row.json)
        js_addf(&text,
                "],\n\"relative_rms\": %g, \"input_bytes\": %zu, "
                "\"output_bytes\": %zu}\n",
                encode_relative_rms(&all), (size_t)c->n_in, (size_t)c->n_out);
    rc = out_put("-", OUT_TABLE, text.s ? text.s : "", text.n, err);
    str_free(&text);
    size_iec(in, c->n_in);
    size_iec(out, c->n_out);
    if (rc < 0 || p->cmd->quiet)
        return rc;
    if (p->n_packed)
        tool_say("%s: %zu of %zu tensors packed as %s, relative rms %.4f, %s "
                 "of %s",
                 p->cmd->out_path, p->n_packed, p->n_items, plan_word(p),
                 encode_relative_rms(&all), out, in);
    else
        tool_say("%s: %zu tensor%s%s, %s of %s", p->cmd->out_path, p->n_items,
                 plural(p->n_items), p->cmd->dequantize ? ", unpacked" : "",
                 out, in);
    return 0;
}

int
convert_write(struct convert_plan *p, struct err *err)
{
    struct converter c = {
        .plan = p,
        .progress = { .what = "convert", .unit = "B", .quiet = p->cmd->quiet }
    };
    int rc = -1;

    for (size_t i = 0; i < p->n_items; i++)
        c.progress.total += item_nbytes(&p->items[i]);
    if (par_open(&c.par, p->cmd->n_threads, err) == 0 &&
        par_worker_open(&c.writer, err) == 0) {
        progress_start(&c.progress);
        rc = p->to_dir ? write_dir(&c, err)
                       : write_shard(&c, p->items, p->n_items, p->cmd->out_path,
                                     p->cmd->out_flags, err);
        progress_end(&c.progress);
    }
    par_worker_close(c.writer);
    par_close(c.par);
    for (int i = 0; i < 2; i++)
        free(c.blocks[i].room);
    return rc < 0 ? -1 : report(&c, err);
}
