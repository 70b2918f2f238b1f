/* merge: W + s B A, summed in f64 and rounded once to the base's type. */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/moe-sft/adapter.h"
#include "cmd/moe-sft/base.h"
#include "cmd/moe-sft/layers.h"
#include "cmd/moe-sft/tensor.h"
#include "cmd/moe-sft/verbs.h"
#include "cmd/moe-sft/write.h"
#include "core/format/st.h"
#include "core/format/stw.h"
#include "core/kernel/cvt.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/model/moe.h"
#include "core/out.h"
#include "core/outdir.h"
#include "core/par.h"
#include "core/str.h"

#define SUFFIX ".safetensors"

struct merge {
    const struct cmd *cmd;
    struct layers layers;
    struct par *par;
    size_t largest; /* numbers of the largest matrix, of its longest row */
    size_t longest;
    size_t low;     /* numbers of the largest A or B */
    void *merged;   /* [largest] of up to 4 bytes */
    float *a, *b;   /* [low], of the adapter's expert: [rank, k], [n, rank] */
    double *sums;   /* [threads, longest] */
    float *rounded; /* [threads, longest] */
};

/* An expert's matrix of a layer, or the stack of all. */
struct item {
    const struct adapted_layer *of;
    enum base_matrix m;
    int64_t expert; /* -1: all, stacked */
};

/* ---- numbers ---- */

/* One matrix while threads share its rows. */
struct job {
    struct merge *g;
    const struct expert_adapter *adapter;
    const struct gemm_matrix *w;
};

static void
merge_rows(void *ctx, size_t begin, size_t end, int thread)
{
    const struct job *j = ctx;
    const struct merge *g = j->g;
    size_t rank = j->adapter->rank, k = j->w->k;
    size_t item = dtype_table[j->w->dtype].bits / 8;
    double s = (double)j->adapter->alpha / (double)rank;
    double *sums = g->sums + (size_t)thread * g->longest;
    float *row = g->rounded + (size_t)thread * g->longest;

    for (size_t r = begin; r < end; r++) {
        memset(sums, 0, k * sizeof(*sums));
        for (size_t i = 0; i < rank; i++) {
            double b = (double)g->b[r * rank + i];

            for (size_t c = 0; c < k; c++)
                sums[c] += b * (double)g->a[i * k + c];
        }
        cvt_to_f32(row, (const char *)j->w->data + r * j->w->ld * item,
                   j->w->dtype, k);
        for (size_t c = 0; c < k; c++) {
            double v = (double)row[c] + s * sums[c];

            row[c] = j->w->dtype == DT_F32 ? (float)v : f64_to_odd(v);
        }
        cvt_from_f32((char *)g->merged + r * k * item, j->w->dtype, row, k);
    }
}

static bool
all_finite(const float *x, size_t n)
{
    bool finite = true;

    for (size_t i = 0; i < n; i++)
        finite &= isfinite(x[i]) != 0;
    return finite;
}

/* Writes one expert's matrix, or all of them, as a tensor. */
static int
put_merged(struct merge *g, struct stw *w, int tensor, struct item it,
           struct err *err)
{
    const struct base *base = &it.of->base;
    size_t first = it.expert < 0 ? 0 : (size_t)it.expert;
    size_t end = it.expert < 0 ? base->n_experts : first + 1;
    size_t at = 0;

    for (size_t e = first; e < end; e++) {
        const struct gemm_matrix *x =
            base->matrices + it.m * base->n_experts + e;
        struct job j = { g, &it.of->adapter, x };
        size_t nbytes = x->n * x->k * (dtype_table[x->dtype].bits / 8);

        if (base_check_matrix(base, it.m, e, false, g->par, err) < 0)
            return -1;
        adapter_f32(j.adapter, 2 * it.m, e, g->a);
        adapter_f32(j.adapter, 2 * it.m + 1, e, g->b);
        if (!all_finite(g->a, adapter_size(j.adapter, 2 * it.m)) ||
            !all_finite(g->b, adapter_size(j.adapter, 2 * it.m + 1)))
            return err_set(err, EX_DATAERR,
                           "%s: %s of expert %zu has an adapter with NaN or "
                           "Inf",
                           it.of->path, base_names[it.m], e);
        par_for(g->par, x->n, 16, merge_rows, &j);
        if (stw_write(w, tensor, g->merged, nbytes, at, err) < 0)
            return -1;
        at += nbytes;
    }
    return 0;
}

/* Checks that no file that was read has another size by now. */
static int
inputs_unchanged(const struct merge *g, struct err *err)
{
    const struct layers *l = &g->layers;

    for (size_t i = 0; i < l->dir.n_files; i++)
        if (st_unchanged(&l->dir.files[i], err) < 0)
            return -1;
    for (size_t i = 0; i < l->n; i++)
        if (adapter_unchanged(&l->list[i].adapter, err) < 0)
            return -1;
    return 0;
}

/* ---- a file of the experts alone ---- */

/* Item i of a layer; false after the last. */
static bool
item_at(const struct merge *g, const struct adapted_layer *of, size_t i,
        struct item *it)
{
    bool stacked = of->base.stacked || g->cmd->stacked;

    *it = (struct item){ of, (enum base_matrix)(i % BASE_N),
                         stacked ? -1 : (int64_t)(i / BASE_N) };
    return i < BASE_N * (stacked ? 1 : of->base.n_experts);
}

static int
write_experts(struct merge *g, struct err *err)
{
    const struct layers *l = &g->layers;
    struct stw *w = stw_new();
    struct str name = { 0 };
    int tensor = 0, rc = 0;
    struct item it;

    for (size_t i = 0; i < l->n; i++)
        for (size_t k = 0; rc >= 0 && item_at(g, &l->list[i], k, &it); k++) {
            const struct base *base = &it.of->base;
            bool stacked = it.expert < 0;
            const struct gemm_matrix *x = base->matrices +
                                          it.m * base->n_experts +
                                          (stacked ? 0 : it.expert);
            const uint64_t shape[] = { base->n_experts, x->n, x->k };

            str_clear(&name);
            if (g->cmd->stacked)
                str_adds(&name, base_names[it.m]);
            else
                base_tensor_name(base, it.m, (size_t)it.expert, &name);
            rc = stw_add(w, name.s, x->dtype, stacked ? 3 : 2,
                         stacked ? shape : shape + 1, err);
        }
    if (rc >= 0)
        rc = stw_open(w, g->cmd->output, g->cmd->out_flags, err);
    for (size_t i = 0; i < l->n; i++)
        for (size_t k = 0; rc == 0 && item_at(g, &l->list[i], k, &it); k++)
            rc = put_merged(g, w, tensor++, it, err);
    if (rc == 0)
        rc = inputs_unchanged(g, err);
    if (rc == 0)
        rc = stw_commit(w, err);
    stw_free(w);
    str_free(&name);
    return rc;
}

/* ---- a whole directory ---- */

/* Is a tensor one of a layer that is merged? */
static bool
find_item(const struct merge *g, const struct st_tensor *t, struct item *it)
{
    struct str tail = { 0 };
    bool found = false;

    for (size_t i = 0; !found && i < g->layers.n * BASE_N; i++) {
        const struct adapted_layer *of = &g->layers.list[i / BASE_N];
        const struct base *b = &of->base;
        enum base_matrix m = (enum base_matrix)(i % BASE_N);
        size_t n = strlen(b->prefix);
        struct name name;

        if (t->name_n < n || memcmp(t->name, b->prefix, n) != 0)
            continue;
        str_clear(&tail);
        str_addf(&tail, "%s%s", base_names[m], b->suffix);
        found = name_parse(&name, t, tail.s) &&
                (name.expert < 0) == b->stacked && name.prefix_n == n;
        *it = (struct item){ of, m, found ? name.expert : -1 };
    }
    str_free(&tail);
    return found;
}

static int
write_shard(struct merge *g, const struct st *st, const char *path,
            struct err *err)
{
    struct stw *w = stw_new();
    struct item it;
    int rc = 0;

    for (size_t i = 0; i < st->n_meta; i++)
        stw_meta(w, st->meta[i].key, st->meta[i].value);
    for (size_t i = 0; rc >= 0 && i < st->n_tensors; i++) {
        const struct st_tensor *t = st->tensors + i;

        if (strlen(t->name) != t->name_n)
            rc = err_set(err, EX_DATAERR,
                         "%s: \"%s\" ends at a NUL, as a name here may not",
                         st->path, t->name);
        else
            rc = stw_add(w, t->name, t->dtype, t->n_dims, t->shape, err);
    }
    if (rc >= 0)
        rc = stw_open(w, path, 0, err);
    for (size_t i = 0; rc == 0 && i < st->n_tensors; i++) {
        const struct st_tensor *t = st->tensors + i;

        rc = find_item(g, t, &it)
                 ? put_merged(g, w, (int)i, it, err)
                 : write_mapped(w, (int)i, st_data(st, t), t->nbytes, 0, err);
    }
    if (rc == 0)
        rc = stw_commit(w, err);
    stw_free(w);
    return rc;
}

static bool
has_suffix(const char *s)
{
    size_t n = strlen(s), k = strlen(SUFFIX);

    return n >= k && !strcmp(s + n - k, SUFFIX);
}

/* Files that are not tensors: configuration, tokenizer, index. */
static int
copy_others(const struct merge *g, const char *to, struct err *err)
{
    DIR *d = opendir(g->cmd->base);
    struct str from = { 0 }, path = { 0 };
    struct dirent *e;
    struct stat st;
    int rc;

    if (!d)
        return err_sys(err, file_status(errno), "%s", g->cmd->base);
    while ((rc = dir_next(d, g->cmd->base, &e, err)) > 0) {
        struct out *out = NULL;
        ssize_t n = 1;
        size_t size;
        int fd = -1;

        str_clear(&from);
        str_clear(&path);
        str_addf(&from, "%s/%s", g->cmd->base, e->d_name);
        str_addf(&path, "%s/%s", to, e->d_name);
        if (e->d_name[0] == '.' || has_suffix(e->d_name))
            continue;
        if (stat(from.s, &st) < 0 && errno == ENOENT)
            continue;
        if (stat(from.s, &st) < 0) {
            rc = err_sys(err, file_status(errno), "%s", from.s);
        } else if (S_ISREG(st.st_mode)) {
            fd = file_open(from.s, &size, err);
            if (fd >= 0 && out_open(&out, path.s, 0, false, err) == 0)
                while (n > 0)
                    n = out_copy(out, fd, from.s, (size_t)1 << 30, err);
            rc = n == 0 ? out_commit(out, err) : -1;
            if (n != 0)
                out_abort(out);
            if (fd >= 0)
                close(fd);
        }
        if (rc < 0)
            break;
    }
    closedir(d);
    str_free(&from);
    str_free(&path);
    return rc;
}

static int
write_directory(struct merge *g, struct err *err)
{
    const struct stdir *dir = &g->layers.dir;
    size_t n = strlen(dir->path) + 1;
    struct outdir_at f;
    int rc;

    if (outdir_at_open(&f, g->cmd->output, g->cmd->out_flags, err) < 0)
        return -1;
    rc = copy_others(g, outdir_path(f.dir), err);
    for (size_t i = 0; rc == 0 && i < dir->n_files; i++) {
        const struct st *st = dir->files + i;
        struct str path = { 0 };

        str_addf(&path, "%s/%s", outdir_path(f.dir), st->path + n);
        rc = strchr(st->path + n, '/')
                 ? err_set(
                       err, EX_DATAERR,
                       "%s: is in a directory of its own (expected next to the "
                       "index)",
                       st->path)
                 : write_shard(g, st, path.s, err);
        str_free(&path);
    }
    if (rc == 0)
        rc = inputs_unchanged(g, err);
    if (rc == 0)
        return outdir_at_commit(&f, err);
    outdir_at_abort(&f);
    return -1;
}

/* ---- the verb ---- */

int
merge_main(const struct cmd *cmd, struct err *err)
{
    struct merge g = { .cmd = cmd };
    const struct layers *l = &g.layers;
    size_t threads = (size_t)cmd->n_threads;
    int rc = -1, is_dir = file_is_dir(cmd->base, err);

    if (is_dir < 0 || can_write(cmd, cmd->output, err) < 0 ||
        layers_open(&g.layers, cmd, err) < 0)
        return -1;
    if (cmd->stacked && l->n > 1) {
        err_set(err, TU_USAGE,
                "--stacked is for one layer, and %s has adapters of layers "
                "%lld to %lld",
                cmd->n_loras > 1 ? "-l" : cmd->loras[0].path,
                (long long)l->list[0].adapter.layer,
                (long long)l->list[l->n - 1].adapter.layer);
        goto out;
    }
    for (size_t i = 0; i < l->n; i++) {
        const struct adapted_layer *x = &l->list[i];
        size_t h = x->base.hidden, k = x->base.intermediate;

        if (base_want_float(&x->base, err) < 0)
            goto out;
        g.largest = larger(g.largest, h * k);
        g.longest = larger(g.longest, larger(h, k));
        for (int m = 0; m < MOE_N_LORA; m++)
            g.low = larger(g.low, adapter_size(&x->adapter, m));
    }
    if (par_open(&g.par, cmd->n_threads, err) < 0)
        goto out;
    g.merged = mem_try(g.largest, 4, "merged matrix", err);
    g.a = mem_try(g.low, sizeof(*g.a), "adapter", err);
    g.b = mem_try(g.low, sizeof(*g.b), "adapter", err);
    g.sums = mem_try(g.longest, threads * sizeof(*g.sums), "sums", err);
    g.rounded = mem_try(g.longest, threads * sizeof(*g.rounded), "sums", err);
    if (!g.merged || !g.a || !g.b || !g.sums || !g.rounded)
        goto out;
    if (is_dir && !cmd->stacked && !has_suffix(cmd->output))
        rc = write_directory(&g, err);
    else
        rc = write_experts(&g, err);
out:
    free(g.rounded);
    free(g.sums);
    free(g.b);
    free(g.a);
    free(g.merged);
    par_close(g.par);
    layers_close(&g.layers);
    return rc;
}
