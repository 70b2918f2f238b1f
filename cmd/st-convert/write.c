/* SPDX-License-Identifier: ISC */
#include "cmd/st-convert/write.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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

/* Rows of an item, or a part of its numbers, while threads share them. */
struct block {
    const struct convert_item *item;
    const char *from; /* the mapped numbers */
    size_t n, k;      /* rows, columns; ROUNDED: n numbers */
    void *to;         /* codes, as in the file; or rounded numbers */
    size_t row_nbytes, groups;
    void *scale;                /* [n, groups], as in the file */
    uint8_t *zero;              /* [n, groups], or NULL */
    struct encode_error *error; /* [n]; 'max' is NaN where a number is not
                                 * finite */
    bool *overflow; /* a number became infinite; ROUNDED: by grain */
    struct encode_form form;
    const float *weight;         /* [k] or NULL */
    const struct weight *packed; /* UNPACKED: rows from 'first' on */
    size_t first;
    float *x;      /* [threads, k or GRAIN] */
    uint8_t *code; /* [threads, k] */
};

struct converter {
    struct convert_plan *plan;
    struct par *par;
    struct stw *w;
    int tensor; /* of 'w': the next item's first */
    struct progress progress;
    uint64_t n_in, n_out; /* bytes of tensors */
};

/* ---- numbers ---- */

static void
encode_rows(void *ctx, size_t begin, size_t end, int thread)
{
    const struct block *b = ctx;
    enum dtype dtype = b->item->from->t->dtype;
    size_t item = dtype_size(b->form.scale_dtype);
    float *x = b->x + (size_t)thread * (b->k + b->groups), *scale = x + b->k;
    uint8_t *code = b->code + (size_t)thread * b->k;

    for (size_t r = begin; r < end; r++) {
        uint8_t *to = (uint8_t *)b->to + r * b->row_nbytes;

        cvt_to_f32(x, b->from + r * b->k * dtype_size(dtype), dtype, b->k);
        if (!encode_row(&b->form, code, scale,
                        b->zero ? b->zero + r * b->groups : NULL, x, b->weight,
                        b->k, &b->error[r])) {
            b->error[r].max = (double)NAN;
            continue;
        }
        cvt_from_f32((char *)b->scale + r * b->groups * item,
                     b->form.scale_dtype, scale, b->groups);
        memset(to, 0, b->row_nbytes); /* the last word may have bits to spare */
        if (b->form.kind == ENCODE_I4)
            encode_halves(to, code, b->k);
        else
            memcpy(to, code, b->k);
    }
}

/* Zero points of 4 bits, packed along the rows: word r / 8 of each group. */
static int
write_zeros(struct converter *c, int tensor, const uint8_t *zero, size_t rows,
            size_t groups, struct err *err)
{
    uint8_t *line = xmalloc(4 * groups);
    int rc = 0;

    for (size_t r = 0; rc == 0 && r < rows; r += 8) {
        memset(line, 0, 4 * groups);
        for (size_t i = 0; i < 8 && r + i < rows; i++)
            for (size_t g = 0; g < groups; g++)
                line[4 * g + i / 2] |=
                    (uint8_t)(zero[(r + i) * groups + g] << 4 * (i % 2));
        rc = stw_write(c->w, tensor, line, 4 * groups, r / 8 * 4 * groups, err);
    }
    free(line);
    return rc;
}

static int
write_packed(struct converter *c, struct convert_item *it, int tensor,
             struct err *err)
{
    const struct st_tensor *t = it->from->t;
    const char *from = st_data(it->from->st, t);
    size_t out = t->shape[0], in = t->shape[1], done = 0;
    size_t item = dtype_size(t->dtype), rows, threads;
    struct block b = { .item = it, .k = in, .form = plan_form(c->plan, it) };
    uint8_t *zeros = NULL, shape[16];
    int rc = -1;

    threads = (size_t)par_threads(c->par);
    rows = smaller(out, larger(threads, BLOCK / in));
    b.groups = encode_groups(&b.form, in);
    b.row_nbytes = it->piece[PIECE_CODES].nbytes / out;
    b.to = mem_try(rows, b.row_nbytes, t->name, err);
    b.scale = mem_try(rows, b.groups * 4, t->name, err);
    b.error = mem_try(rows, sizeof(*b.error), t->name, err);
    b.x = mem_try(in + b.groups, threads * sizeof(*b.x), t->name, err);
    b.code = mem_try(in, threads, t->name, err);
    if (b.form.asymmetric)
        zeros = mem_try(out, b.groups, t->name, err);
    if (!b.to || !b.scale || !b.error || !b.x || !b.code ||
        (b.form.asymmetric && !zeros))
        goto out;
    for (; done < out; done += b.n) {
        size_t line = b.groups * dtype_size(b.form.scale_dtype);

        b.n = smaller(rows, out - done);
        b.from = from + done * in * item;
        b.zero = zeros ? zeros + done * b.groups : NULL;
        map_will_read(b.from + b.n * in * item,
                      smaller(rows, out - done - b.n) * in * item);
        par_for_thread(c->par, b.n, GRAIN / in + 1, encode_rows, &b);
        for (size_t r = 0; r < b.n; r++) {
            if (!isfinite(b.error[r].max)) {
                err_set(err, EX_DATAERR,
                        "%s: %s has a number in row %zu that is not finite",
                        it->from->st->path, t->name, done + r);
                goto out;
            }
            it->error.squares += b.error[r].squares;
            it->error.of += b.error[r].of;
            it->error.max = fmax(it->error.max, b.error[r].max);
        }
        if (stw_write(c->w, tensor, b.to, b.n * b.row_nbytes,
                      done * b.row_nbytes, err) < 0 ||
            stw_write(c->w, tensor + PIECE_SCALE, b.scale, b.n * line,
                      done * line, err) < 0)
            goto out;
        map_was_read(b.from, b.n * in * item);
        progress_at(&c->progress, c->n_in + (done + b.n) * in * item);
    }
    put_le64(shape, out);
    put_le64(shape + 8, in);
    rc = it->n_pieces > PIECE_SHAPE
             ? stw_write(c->w, tensor + PIECE_SHAPE, shape, 16, 0, err)
             : 0;
    if (rc == 0 && zeros)
        rc = write_zeros(c, tensor + PIECE_ZEROS, zeros, out, b.groups, err);
out:
    free(zeros);
    free(b.code);
    free(b.x);
    free(b.error);
    free(b.scale);
    free(b.to);
    return rc;
}

static void
round_numbers(void *ctx, size_t begin, size_t end, int thread)
{
    const struct block *b = ctx;
    enum dtype from = b->item->from->t->dtype, to = b->item->piece[0].dtype;
    float *x = b->x + (size_t)thread * GRAIN;
    size_t n = end - begin;

    if (from == DT_F64)
        for (size_t i = 0; i < n; i++) {
            double v = dtype_get(from, b->from, begin + i);

            x[i] = to == DT_F32 ? (float)v : f64_to_odd(v);
        }
    else
        cvt_to_f32(x, b->from + begin * dtype_size(from), from, n);
    cvt_from_f32((char *)b->to + begin * dtype_size(to), to, x, n);
    if (cvt_fits(x, to, n))
        return;
    for (size_t i = 0; i < n; i++) /* what was infinite may stay that */
        if (isfinite(dtype_get(from, b->from, begin + i)) &&
            !cvt_fits(x + i, to, 1))
            b->overflow[begin / GRAIN] = true;
}

static void
warn_overflow(const struct convert_item *it)
{
    err_warn("%s: %s has numbers that become infinite in %s",
             it->from->st->path, it->from->t->name,
             dtype_table[it->piece[0].dtype].name);
}

static int
write_rounded(struct converter *c, struct convert_item *it, int tensor,
              struct err *err)
{
    const struct st_tensor *t = it->from->t;
    const char *from = st_data(it->from->st, t);
    size_t item = dtype_size(t->dtype), to = dtype_size(it->piece[0].dtype);
    size_t n = t->n_elements, most = smaller(n, BLOCK);
    bool overflow[BLOCK / GRAIN] = { 0 }, any = false;
    struct block b = { .item = it, .overflow = overflow };
    int rc = -1;

    b.to = mem_try(most, to, t->name, err);
    b.x = mem_try(GRAIN, (size_t)par_threads(c->par) * sizeof(*b.x), t->name,
                  err);
    rc = b.to && b.x ? 0 : -1;
    for (size_t done = 0; rc == 0 && done < n; done += b.n) {
        b.n = smaller(most, n - done);
        b.from = from + done * item;
        par_for_thread(c->par, b.n, GRAIN, round_numbers, &b);
        rc = stw_write(c->w, tensor, b.to, b.n * to, done * to, err);
        map_was_read(b.from, b.n * item);
        progress_at(&c->progress, c->n_in + (done + b.n) * item);
    }
    for (size_t i = 0; i < BLOCK / GRAIN; i++)
        any |= overflow[i];
    if (any)
        warn_overflow(it);
    free(b.x);
    free(b.to);
    return rc;
}

static void
read_rows(void *ctx, size_t begin, size_t end, int thread)
{
    const struct block *b = ctx;
    float *x = b->x + (size_t)thread * b->k;
    enum dtype to = b->item->piece[0].dtype;

    for (size_t r = begin; r < end; r++) {
        weight_read(x, b->packed, b->first + r, 0, b->k);
        cvt_from_f32((char *)b->to + r * b->row_nbytes, to, x, b->k);
        if (!cvt_fits(x, to, b->k))
            b->overflow[0] = true;
    }
}

static int
write_unpacked(struct converter *c, struct convert_item *it, int tensor,
               struct err *err)
{
    struct form_memory memory = { .par = c->par };
    struct linear l = { 0 };
    size_t out = it->packed.out, in = it->packed.in, rows;
    bool overflow = false;
    struct block b = {
        .item = it, .k = in, .packed = &l.w, .overflow = &overflow
    };
    int rc = form_bind(&l, &it->packed, 0, &memory, err);

    b.row_nbytes = in * dtype_size(it->piece[0].dtype);
    rows = smaller(out, larger((size_t)par_threads(c->par), BLOCK / in));
    b.to = mem_try(rows, b.row_nbytes, it->piece[0].name, err);
    b.x = mem_try(in, (size_t)par_threads(c->par) * sizeof(*b.x),
                  it->piece[0].name, err);
    rc = rc == 0 && b.to && b.x ? 0 : -1;
    for (; rc == 0 && b.first < out; b.first += b.n) {
        b.n = smaller(rows, out - b.first);
        par_for_thread(c->par, b.n, GRAIN / in + 1, read_rows, &b);
        rc = stw_write(c->w, tensor, b.to, b.n * b.row_nbytes,
                       b.first * b.row_nbytes, err);
        progress_at(&c->progress,
                    c->n_in + item_nbytes(it) / out * (b.first + b.n));
    }
    if (overflow)
        warn_overflow(it);
    for (int i = 0; i < FORM_N_ROLES; i++)
        if (it->packed.tensor[i])
            map_was_read(
                st_data(it->packed.tensor[i]->st, it->packed.tensor[i]->t),
                it->packed.tensor[i]->t->nbytes);
    form_memory_free(&memory);
    free(b.x);
    free(b.to);
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
        [ROUNDED] = write_rounded,
        [PACKED] = write_packed,
        [UNPACKED] = write_unpacked,
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
        const char *name = it->from->t->name;

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
