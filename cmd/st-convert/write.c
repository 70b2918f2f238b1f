/* SPDX-License-Identifier: ISC */
#include "cmd/st-convert/write.h"

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
#include "core/tool.h"
#include "core/tty.h"

#define BLOCK ((size_t)1 << 20) /* numbers that are converted at a time */
#define GRAIN ((size_t)1 << 14) /* by one thread */

/* Rows of an item while threads share them.  Those of numbers that are ROUNDED
 * are GRAIN long, the last one shorter. */
struct block {
    struct convert_item *item;
    struct weight from;
    size_t k;          /* numbers of a row */
    size_t first, n;   /* rows of this block */
    size_t row_nbytes; /* of one as it is written */
    char *to;          /* [n, row_nbytes] */
    float *x;          /* [threads, n_x] */
    size_t n_x;
    atomic_bool overflow; /* a number became infinite */
    /* PACKED */
    struct encode_form form;
    float *weight; /* [k] or NULL */
    size_t groups;
    char *scale;                /* [n, groups], as in the file */
    uint8_t *zero;              /* [n, groups], or NULL */
    struct encode_error *error; /* [n]; 'max' is NaN where a number is not
                                 * finite */
};

struct converter {
    struct convert_plan *plan;
    struct par *par;
    struct stw *w;
    struct progress progress;
    uint64_t n_in, n_out; /* bytes of tensors */
};

/* ---- numbers ---- */

static void
encode_rows(void *ctx, size_t begin, size_t end, int thread)
{
    const struct block *b = ctx;
    size_t scale_nbytes = b->groups * dtype_size(b->form.scale_dtype);
    float *x = b->x + (size_t)thread * b->n_x, *scale = x + b->k;
    uint8_t *code = (uint8_t *)(scale + b->groups);

    for (size_t r = begin; r < end; r++) {
        uint8_t *to = (uint8_t *)b->to + r * b->row_nbytes;

        weight_read(x, &b->from, b->first + r, 0, b->k);
        if (!encode_row(&b->form, code, scale,
                        b->zero ? b->zero + r * b->groups : NULL, x, b->weight,
                        b->k, &b->error[r])) {
            b->error[r].max = (double)NAN;
            continue;
        }
        cvt_from_f32(b->scale + r * scale_nbytes, b->form.scale_dtype, scale,
                     b->groups);
        memset(to, 0, b->row_nbytes); /* the last word may have bits to spare */
        if (b->form.kind == ENCODE_I4)
            encode_halves(to, code, b->k);
        else
            memcpy(to, code, b->k);
    }
}

static void
read_rows(void *ctx, size_t begin, size_t end, int thread)
{
    struct block *b = ctx;
    bool rounded = b->item->change == ROUNDED;
    enum dtype to = b->item->piece[0].dtype;
    float *x = b->x + (size_t)thread * b->n_x;

    for (size_t r = begin; r < end; r++) {
        size_t at = (b->first + r) * b->k, n = b->k;
        bool f64 = b->from.dtype == DT_F64;

        if (rounded)
            n = smaller(n, b->item->from->t->n_elements - at);
        for (size_t i = 0; f64 && i < n; i++) {
            double v = dtype_get(DT_F64, b->from.data, at + i);

            x[i] = to == DT_F32 ? (float)v : f64_to_odd(v);
        }
        if (!f64)
            weight_read(x, &b->from, b->first + r, 0, n);
        cvt_from_f32(b->to + r * b->row_nbytes, to, x, n);
        if (cvt_fits(x, to, n))
            continue;
        for (size_t i = 0; i < n; i++) /* what was infinite may stay that */
            if (!cvt_fits(x + i, to, 1) &&
                isfinite(f64 ? dtype_get(DT_F64, b->from.data, at + i)
                             : (double)x[i]))
                b->overflow = true;
    }
}

/* What a block has apart from codes.  Zero points of 4 bits are packed along
 * the rows: word r / 8 of each group. */
static int
write_scales(struct converter *c, const struct block *b, int tensor,
             struct err *err)
{
    size_t item = dtype_size(b->form.scale_dtype);
    size_t n_words = (b->n + 7) / 8 * b->groups;
    uint8_t *words;

    for (size_t r = 0; r < b->n; r++) {
        struct encode_error *all = &b->item->error;

        if (!isfinite(b->error[r].max))
            return err_set(err, EX_DATAERR,
                           "%s: %s has a number in row %zu that is not finite, "
                           "or too large",
                           b->item->from->st->path, b->item->from->t->name,
                           b->first + r);
        all->squares += b->error[r].squares;
        all->of += b->error[r].of;
        all->max = fmax(all->max, b->error[r].max);
    }
    if (stw_write(c->w, tensor + PIECE_SCALE, b->scale, b->n * b->groups * item,
                  b->first * b->groups * item, err) < 0)
        return -1;
    if (!b->zero)
        return 0;
    words = b->zero + b->n * b->groups;
    memset(words, 0, 4 * n_words);
    for (size_t r = 0; r < b->n; r++)
        for (size_t g = 0; g < b->groups; g++)
            words[(r / 8 * b->groups + g) * 4 + r % 8 / 2] |=
                (uint8_t)(b->zero[r * b->groups + g] << 4 * (r % 2));
    return stw_write(c->w, tensor + PIECE_ZEROS, words, 4 * n_words,
                     b->first / 8 * 4 * b->groups, err);
}

/* Room for blocks of 'most' rows, and what errors are weighed by. */
static int
block_open(struct block *b, const struct converter *c, size_t most,
           struct err *err)
{
    const struct st_tensor *t = b->item->from->t;
    size_t threads = (size_t)par_threads(c->par);
    bool packs = b->item->change == PACKED;

    b->to = mem_try(most, b->row_nbytes, t->name, err);
    b->x = mem_try(b->n_x, threads * sizeof(*b->x), t->name, err);
    if (!b->to || !b->x || !packs)
        return b->to && b->x ? 0 : -1;
    b->scale = mem_try(most, b->groups * sizeof(float), t->name, err);
    b->error = mem_try(most, sizeof(*b->error), t->name, err);
    if (b->form.asymmetric) /* and their words */
        b->zero = mem_try(most * 3 / 2 + 4, b->groups, t->name, err);
    if (!b->scale || !b->error || (b->form.asymmetric && !b->zero))
        return -1;
    return activations_weight(&b->weight, c->plan, t, err);
}

static void
block_close(struct block *b)
{
    free(b->weight);
    free(b->zero);
    free(b->error);
    free(b->scale);
    free(b->x);
    free(b->to);
}

/* PACKED, ROUNDED, UNPACKED: block after block. */
static int
write_rows(struct converter *c, struct convert_item *it, int tensor,
           struct err *err)
{
    const struct st_tensor *t = it->from->t;
    const char *from = st_data(it->from->st, t);
    size_t threads = (size_t)par_threads(c->par), nbytes = it->piece[0].nbytes;
    bool packs = it->change == PACKED;
    struct form_memory memory = { .par = c->par };
    struct linear l = { .w = { from, t->dtype, GRAIN },
                        .out =
                            t->n_elements / GRAIN + (t->n_elements % GRAIN > 0),
                        .in = GRAIN };
    struct block b = { .item = it };
    uint8_t shape[16];
    size_t line, most;
    int rc = -1;

    if (packs) {
        l.w.ld = l.in = t->shape[1];
        l.out = t->shape[0];
        b.form = plan_form(c->plan, it);
        b.groups = encode_groups(&b.form, l.in);
    } else if (it->change == UNPACKED &&
               form_bind(&l, &it->packed, 0, &memory, err) < 0) {
        goto out;
    }
    b.from = l.w;
    b.k = l.in;
    b.n_x = packs ? b.k + b.groups + b.k / 4 + 1 : b.k;
    b.row_nbytes =
        packs ? nbytes / l.out : b.k * dtype_size(it->piece[0].dtype);
    line = it->change == UNPACKED ? 0 : b.k * dtype_size(t->dtype);
    most = smaller(l.out, larger(threads, BLOCK / b.k) / 8 * 8 + 8);
    if (block_open(&b, c, most, err) < 0)
        goto out;
    for (; b.first < l.out; b.first += b.n) {
        size_t at = b.first * line, to = b.first * b.row_nbytes, n;

        b.n = smaller(most, l.out - b.first);
        n = smaller(b.n * line, t->nbytes - at);
        if (line)
            map_will_read(from + at + n, smaller(n, t->nbytes - at - n));
        par_for_thread(c->par, b.n, GRAIN / b.k + 1,
                       packs ? encode_rows : read_rows, &b);
        if (stw_write(c->w, tensor, b.to,
                      smaller(b.n * b.row_nbytes, nbytes - to), to, err) < 0 ||
            (packs && write_scales(c, &b, tensor, err) < 0))
            goto out;
        if (line)
            map_was_read(from + at, n);
        progress_at(&c->progress,
                    c->n_in + item_nbytes(it) / l.out * (b.first + b.n));
    }
    put_le64(shape, l.out);
    put_le64(shape + 8, l.in);
    rc = packs && it->n_pieces > PIECE_SHAPE
             ? stw_write(c->w, tensor + PIECE_SHAPE, shape, 16, 0, err)
             : 0;
    if (b.overflow)
        err_warn("%s: %s has numbers that become infinite in %s",
                 it->from->st->path, t->name,
                 dtype_table[it->piece[0].dtype].name);
    for (int i = 0; it->change == UNPACKED && i < FORM_N_ROLES; i++) {
        const struct stdir_tensor *p = it->packed.tensor[i];

        if (p)
            map_was_read(st_data(p->st, p->t), p->t->nbytes);
    }
out:
    form_memory_free(&memory);
    block_close(&b);
    return rc;
}

static int
write_kept(struct converter *c, struct convert_item *it, int tensor,
           struct err *err)
{
    const char *from = st_data(it->from->st, it->from->t);
    size_t n = it->from->t->nbytes;

    for (size_t done = 0, k; done < n; done += k) {
        k = smaller(n - done, BLOCK);
        if (stw_write_mapped(c->w, tensor, from + done, k, done, err) < 0)
            return -1;
        map_was_read(from + done, k);
        progress_at(&c->progress, c->n_in + done + k);
    }
    return 0;
}

/* ---- files ---- */

static int
write_shard(struct converter *c, struct convert_item *items, size_t n,
            const char *path, int flags, struct err *err)
{
    static int (*const write[])(struct converter *, struct convert_item *, int,
                                struct err *) = {
        [KEPT] = write_kept,
        [ROUNDED] = write_rows,
        [PACKED] = write_rows,
        [UNPACKED] = write_rows,
    };
    const struct stdir *dir = &c->plan->dir;
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
        rc = write[items[i].change](c, &items[i], tensor, err);
        tensor += (int)items[i].n_pieces;
        c->n_in += item_nbytes(&items[i]);
        for (size_t k = 0; k < items[i].n_pieces; k++)
            c->n_out += items[i].piece[k].nbytes;
    }
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

struct index_entry {
    const char *name;
    size_t shard;
};

static int
by_name(const void *a, const void *b)
{
    return strcmp(((const struct index_entry *)a)->name,
                  ((const struct index_entry *)b)->name);
}

static int
write_index(const struct convert_plan *p, const char *dir, uint64_t nbytes,
            struct err *err)
{
    struct index_entry *places =
        xcalloc(p->n_items * N_PIECES, sizeof(*places));
    struct str text = { 0 }, path = { 0 };
    size_t n = 0;
    int rc = 0;

    for (size_t i = 0; i < p->n_items; i++)
        for (size_t k = 0; k < p->items[i].n_pieces; k++)
            places[n++] = (struct index_entry){ p->items[i].piece[k].name,
                                                p->items[i].shard };
    qsort(places, n, sizeof(*places), by_name);
    str_addf(&text,
             "{\n  \"metadata\": {\n    \"total_size\": %zu\n  },\n"
             "  \"weight_map\": {",
             (size_t)nbytes);
    for (size_t i = 0; i < n; i++) {
        if (i && !strcmp(places[i - 1].name, places[i].name))
            rc = err_set(err, EX_DATAERR, "tensor \"%s\": appears twice",
                         places[i].name);
        str_adds(&text, i ? ",\n    " : "\n    ");
        js_put_str(&text, places[i].name, strlen(places[i].name));
        str_adds(&text, ": \"");
        add_shard_name(p, places[i].shard, &text);
        str_addc(&text, '"');
    }
    str_adds(&text, "\n  }\n}\n");
    str_addf(&path, "%s/" STDIR_INDEX, dir);
    if (rc == 0)
        rc = out_put(path.s, 0, text.s, text.n, err);
    str_free(&path);
    str_free(&text);
    free(places);
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

static double
relative_rms(const struct encode_error *e)
{
    return e->of > 0 ? sqrt(e->squares / e->of) : 0;
}

static int
report(const struct converter *c, struct err *err)
{
    const struct convert_plan *p = c->plan;
    struct encode_error all = { 0 };
    struct str text = { 0 };
    char in[16], out[16];
    bool json = p->cmd->json;
    int rc;

    for (size_t i = 0; i < p->n_items; i++) {
        const struct convert_item *it = &p->items[i];
        const char *name = it->head ? "lm_head.weight" : it->from->t->name;

        if (it->change != PACKED)
            continue;
        all.squares += it->error.squares;
        all.of += it->error.of;
        if (json) {
            str_adds(&text, text.n ? ",\n  " : "{\"tensors\": [\n  ");
            js_addf(&text, "{\"tensor\": %s, \"form\": %s, ", name,
                    plan_word(p));
            js_addf(&text, "\"relative_rms\": %g, \"max_error\": %g}",
                    relative_rms(&it->error), it->error.max);
            continue;
        }
        if (text.n == 0)
            str_adds(&text, "tensor\tform\trelative_rms\tmax_error\n");
        str_esc(&text, name, strlen(name));
        str_addf(&text, "\t%s\t%.6f\t%.6g\n", plan_word(p),
                 relative_rms(&it->error), it->error.max);
    }
    if (json) {
        str_adds(&text, text.n ? "],\n " : "{\"tensors\": [],\n ");
        js_addf(&text, "\"relative_rms\": %g, ", relative_rms(&all));
        str_addf(&text, "\"input_bytes\": %zu, \"output_bytes\": %zu}\n",
                 (size_t)c->n_in, (size_t)c->n_out);
    }
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
                 relative_rms(&all), out, in);
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
    if (par_open(&c.par, p->cmd->n_threads, err) == 0) {
        progress_start(&c.progress);
        rc = p->to_dir ? write_dir(&c, err)
                       : write_shard(&c, p->items, p->n_items, p->cmd->out_path,
                                     p->cmd->out_flags, err);
        progress_end(&c.progress);
    }
    par_close(c.par);
    return rc < 0 ? -1 : report(&c, err);
}
