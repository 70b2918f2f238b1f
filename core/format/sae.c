/* SPDX-License-Identifier: ISC */
/*
 * SAE checkpoints.  The names of the tensors say which library wrote one and
 * so which way they are stored; shapes are only checked.
 * Source: EleutherAI sparsify, SAELens, dictionary_learning; man/sae.5.
 */
#include "core/format/sae.h"

#include <dirent.h>
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/format/lut.h"
#include "core/format/sae_config.h"
#include "core/format/sae_file.h"
#include "core/format/stwant.h"
#include "core/hash_path.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/str.h"

enum which { E_WEIGHT, E_BIAS, D_WEIGHT, D_BIAS, N_WHICH };

static const struct layout_info {
    const char *names[N_WHICH];
    const char *or_bias; /* another name of the last */
    bool e_by_col, d_by_col;
    const char *threshold;
} layouts[] = {
    [LAYOUT_SPARSIFY] = { { "encoder.weight", "encoder.bias", "W_dec",
                            "b_dec" },
                          .threshold = "threshold" },
    [LAYOUT_SIX] = { { "encoder_weight", "encoder_bias", "decoder_weight",
                       "decoder_bias" },
                     .threshold = "threshold" },
    [LAYOUT_SAELENS] = { { "W_enc", "b_enc", "W_dec", "b_dec" },
                         .e_by_col = true,
                         .threshold = "threshold" },
    [LAYOUT_DICTIONARY] = { { "encoder.weight", "encoder.bias",
                              "decoder.weight", "bias" },
                            .or_bias = "b_dec",
                            .d_by_col = true,
                            .threshold = "threshold" },
    [LAYOUT_SAEV] = { { "W_enc", "b_enc", "W_dec", "b_dec" },
                      .e_by_col = true,
                      .threshold = "activation.threshold" },
    [LAYOUT_GEMMA] = { { "W_enc", "b_enc", "W_dec", "b_dec" },
                       .e_by_col = true,
                       .threshold = "threshold" },
    [LAYOUT_GEMMA_2] = { { "w_enc", "b_enc", "w_dec", "b_dec" },
                         .e_by_col = true,
                         .threshold = "threshold" },
    [LAYOUT_QWEN] = { { "W_enc", "b_enc", "W_dec", "b_dec" },
                      .d_by_col = true,
                      .threshold = "threshold" },
};

/* Tensors of what is not a plain SAE. */
static const struct {
    const char *name, *what;
} refused[] = {
    { "W_skip", "a transcoder's skip connection" },
    { "affine_skip_connection", "a transcoder's skip connection" },
    { "W_gate", "a gated SAE" },
    { "b_gate", "a gated SAE" },
    { "r_mag", "a gated SAE" },
    { "b_mag", "a gated SAE" },
    { "gate_bias", "a gated SAE" },
    { "mag_bias", "a gated SAE" },
    { "log_threshold", "JumpReLU" },
    { "b_dec_out", "a transcoder" },
};

#define SCALING "scaling_factor" /* of a fine-tuned SAE, or of ones */

/* What may be there and is not used: a table's other tensors, and what
 * training leaves. */
static const char *const ignored[] = { "precomputed_products",
                                       "bias_product",
                                       "compensation_weight_t",
                                       "k",
                                       SCALING,
                                       "num_tokens_since_fired" };

static const char *const files[] = {
    SAE_SPARSIFY_FILE, SAE_SAELENS_FILE, "ae.safetensors",     "ae.pt",
    "sae.pt",          "params.npz",     "params.safetensors",
};
#define N_FILES (sizeof(files) / sizeof(files[0]))

/* ---- where they are ---- */

static bool
is_checkpoint(const char *name)
{
    char *hook = sae_qwen_hook(name);
    bool is_one = hook;

    for (size_t i = 0; i < N_FILES; i++)
        is_one |= !strcmp(name, files[i]);
    free(hook);
    return is_one;
}

/* *path: the checkpoint in a directory, or NULL.  Two could be either. */
static int
in_directory(const char *dir, char **path, struct err *err)
{
    const char *first = NULL;
    struct str s = { 0 };
    struct dirent **list;
    int n = dir_list(&list, dir, err), rc = n < 0 ? -1 : 0;

    *path = NULL;
    for (int i = 0; i < n && rc == 0; i++) {
        const char *name = list[i]->d_name;

        if (!is_checkpoint(name))
            continue;
        if (first)
            rc = err_data(err, dir, "has %s and %s (name one)", first, name);
        first = first ? first : name;
    }
    if (rc == 0 && first) {
        str_addf(&s, "%s/%s", dir, first);
        *path = s.s;
    }
    if (n >= 0)
        dir_list_free(list, n);
    return rc;
}

int
sae_is_one(const char *path, struct err *err)
{
    int is_dir = file_is_dir(path, err), rc = 1;
    char *file;

    if (is_dir <= 0)
        return is_dir < 0 ? -1 : 1;
    if (in_directory(path, &file, err) < 0)
        return -1;
    if (!file)
        return sae_check_directory(path, err);
    if (access(file, F_OK) < 0)
        rc = err_sys(err, file_status(errno), "%s", file);
    free(file);
    return rc;
}

char *
sae_path(const char *dir, const char *layer, const char *or_name,
         struct err *err)
{
    static const char *const ends[] = { "", ".safetensors", LUT_SUFFIX };
    const char *names[] = { layer, or_name };
    struct str s = { 0 };

    for (size_t i = 0; i < 6; i++) {
        str_clear(&s);
        str_addf(&s, "%s/%s%s", dir, names[i % 2], ends[i / 2]);
        if (access(s.s, F_OK) == 0)
            return s.s;
        if (errno != ENOENT && errno != ENOTDIR) {
            err_sys(err, file_status(errno), "%s", s.s);
            break;
        }
    }
    str_free(&s);
    return NULL;
}

/* ---- what they hold ---- */

static bool
is_one_of(const char *name, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (names[i] && !strcmp(name, names[i]))
            return true;
    return false;
}

/* *v: a tensor of one number, NaN if it is none. */
static int
scalar(const struct sae *s, const struct sae_tensor *t, double *v,
       struct err *err)
{
    const void *data;

    *v = NAN;
    if (t->t.n_elements != 1 || dtype_table[t->t.dtype].bits % 8)
        return 0;
    data = sae_file_data(s->file, t, err);
    if (data)
        *v = dtype_get(t->t.dtype, data, 0);
    return data ? 0 : -1;
}

static int
unsaid(const struct sae *s, const char *name, struct err *err)
{
    return err_set(err, EX_DATAERR,
                   "%s: has %s, but its configuration does not say that it is "
                   "used",
                   s->path, name);
}

/* Every tensor must be known: another one may change what the SAE computes.
 * AutoEncoderTopK keeps a threshold that it does not use without use_threshold.
 */
static int
check_names(const struct sae *s, enum sae_layout layout, struct err *err)
{
    const struct layout_info *l = &layouts[layout];

    for (size_t i = 0; i < s->file->n; i++) {
        const struct sae_tensor *t = &s->file->tensors[i];
        const char *name = t->t.name;
        bool is_whole = strlen(name) == t->t.name_n;

        for (size_t j = 0; j < sizeof(refused) / sizeof(refused[0]); j++)
            if (!strcmp(name, refused[j].name))
                return err_set(err, EX_DATAERR,
                               "%s: has %s: %s is not supported", s->path, name,
                               refused[j].what);
        if (!strcmp(name, l->threshold) && is_whole) {
            if (s->ignores_threshold || s->uses_threshold ||
                layout == LAYOUT_DICTIONARY)
                continue;
            return unsaid(s, name, err);
        }
        /* Matryoshka's groups, of which all are used */
        if (layout == LAYOUT_SAELENS && s->batchtopk &&
            !strcmp(name, "group_sizes"))
            continue;
        if (!is_whole ||
            (!is_one_of(name, l->names, N_WHICH) &&
             !is_one_of(name, &l->or_bias, 1) &&
             !is_one_of(name, ignored, sizeof(ignored) / sizeof(ignored[0]))))
            return err_set(err, EX_DATAERR,
                           "%s: has %s, whose meaning is not known", s->path,
                           name);
    }
    return 0;
}

/* A matrix of this shape, or of any where that is ST_OPEN; with 0 rows a
 * vector.  'by_col': of that library's form, transposed.  Its numbers are still
 * to be fetched. */
static int
find(const struct sae *s, struct matrix *to, const char *name, bool by_col,
     size_t rows, size_t cols, struct err *err)
{
    const struct sae_tensor *t = sae_file_find(s->file, name);
    const struct st_want want = {
        .n_dims = rows ? 2 : 1,
        .shape = { by_col || !rows ? cols : rows, by_col ? rows : cols },
        .open = by_col ? "inputs, latents" : "latents, inputs",
    };

    if (!t)
        return st_missing(s->path, name, err);
    if (st_want(s->path, &t->t, &want, err) < 0)
        return -1;
    if (t->t.n_elements == 0)
        return err_set(err, EX_DATAERR, "%s: %s is empty", s->path, name);
    *to = (struct matrix){ .dtype = t->t.dtype,
                           .rows = rows ? (size_t)t->t.shape[by_col] : 1,
                           .cols = (size_t)t->t.shape[rows && !by_col],
                           .by_col = by_col != t->by_col };
    return 0;
}

/* Its numbers, all of which must be finite. */
static int
fetch(struct sae *s, struct matrix *m, const char *name, struct err *err)
{
    const struct sae_tensor *t = sae_file_find(s->file, name);
    size_t i = 0, cols = t->t.n_dims == 2 ? (size_t)t->t.shape[1] : 0;

    m->data = sae_file_data(s->file, t, err);
    if (!m->data)
        return -1;
    if (dtype_finite(m->data, m->dtype, (size_t)t->t.n_elements))
        return 0;
    while (isfinite(dtype_get(m->dtype, m->data, i)))
        i++;
    if (t->by_col) /* [j, i] is stored at i shape[0] + j */
        i = i % (size_t)t->t.shape[0] * cols + i / (size_t)t->t.shape[0];
    if (cols)
        return err_data(err, s->path, "%s[%zu, %zu] is NaN or infinite", name,
                        i / cols, i % cols);
    return err_data(err, s->path, "%s[%zu] is NaN or infinite", name, i);
}

/* A tensor k, which must agree with the configuration, and both with N. */
static int
check_k(struct sae *s, struct err *err)
{
    const struct sae_tensor *t = sae_file_find(s->file, "k");
    double v = 0;

    if (t) {
        if (scalar(s, t, &v, err) < 0)
            return -1;
        if (!(v >= 1 && v <= (double)SAE_MAX_K && v == floor(v)))
            return err_data(err, s->path,
                            "k is %g (expected a whole number from 1 to %lld)",
                            v, (long long)SAE_MAX_K);
        if (s->k && (size_t)v != s->k)
            return err_data(err, s->path,
                            "k is %.0f (expected %zu, as its configuration "
                            "says)",
                            v, s->k);
        s->k = (size_t)v;
    }
    if (s->k > s->n)
        return err_data(err, s->path, "k is %zu, but it has %zu latents", s->k,
                        s->n);
    return 0;
}

/* SAELens 2 and 3 wrote ones, which it drops. */
static int
check_scaling(struct sae *s, struct err *err)
{
    const struct sae_tensor *t = sae_file_find(s->file, SCALING);
    struct matrix m;

    if (!t)
        return 0;
    if (find(s, &m, SCALING, false, 0, s->n, err) < 0 ||
        fetch(s, &m, SCALING, err) < 0)
        return -1;
    for (size_t i = 0; i < s->n; i++)
        if (matrix_get(&m, 0, i) != 1)
            return err_data(err, s->path,
                            SCALING "[%zu] is %g (expected 1: a fine-tuned SAE "
                                    "is not supported)",
                            i, matrix_get(&m, 0, i));
    return 0;
}

/* A latent's threshold, from a tensor, [n] or of all of them, or from the
 * configuration. */
static int
load_thresholds(struct sae *s, enum sae_layout layout, struct err *err)
{
    const char *name = layouts[layout].threshold;
    const struct sae_tensor *t = sae_file_find(s->file, name);
    struct matrix m = { 0 };
    bool same = true, is_one = t && t->t.n_dims == 0;

    if (t && !s->uses_threshold && !s->ignores_threshold) {
        double v;

        if (scalar(s, t, &v, err) < 0)
            return -1;
        if (v != -1) /* dictionary_learning's for none */
            return unsaid(s, name, err);
    }
    if (s->uses_threshold &&
        (s->batchtopk ? is_one || !t : is_one && layout == LAYOUT_SIX)) {
        double v = -1;

        if (t && scalar(s, t, &v, err) < 0)
            return -1;
        if (layout == LAYOUT_SAEV && v < 0 && t)
            v = 0; /* it then has all over 0 */
        if (!(v >= 0 && v <= FLT_MAX) && !(v == -1 && s->batchtopk))
            return err_set(err, EX_DATAERR,
                           "%s: %s is %g (expected a float from 0 on%s)",
                           s->path, name, v, s->batchtopk ? ", or -1" : "");
        s->threshold = v;
    } else if (s->uses_threshold &&
               (find(s, &m, name, false, 0, s->n, err) < 0 ||
                fetch(s, &m, name, err) < 0)) {
        return -1;
    }
    if (!m.data && s->threshold < 0)
        return 0;
    s->thresholds = xcalloc(s->n, sizeof(*s->thresholds));
    for (size_t i = 0; i < s->n; i++) {
        double v = m.data ? matrix_get(&m, 0, i) : s->threshold;

        s->thresholds[i] = v > 0 ? (float)v : 0;
        same = same && s->thresholds[i] == s->thresholds[0];
    }
    if (m.data)
        s->threshold = same ? (double)s->thresholds[0] : -1;
    return 0;
}

/* Do W_enc's rows and W_dec's columns have the latents, whose number b_enc has?
 * Where it is the inputs', too, the configuration has to say so. */
static bool
is_by_row(const struct sae *s)
{
    const struct sae_tensor *w = sae_file_find(s->file, "W_enc");
    const struct sae_tensor *d = sae_file_find(s->file, "W_dec");
    const struct sae_tensor *b = sae_file_find(s->file, "b_enc");

    return b && b->t.n_dims == 1 && w->t.n_dims == 2 &&
           w->t.shape[0] == b->t.shape[0] && w->t.shape[1] != b->t.shape[0] &&
           !(d->t.n_dims == 2 && d->t.shape[0] == b->t.shape[0]);
}

/* Whose names the tensors have: the file's form says so, or the two weights'
 * names, which no two of the others share. */
static int
find_layout(const struct sae *s, enum sae_layout *layout, struct err *err)
{
    static const enum sae_layout by_name[] = { LAYOUT_GEMMA_2, LAYOUT_SPARSIFY,
                                               LAYOUT_SIX, LAYOUT_SAELENS,
                                               LAYOUT_DICTIONARY };

    *layout = s->file->head ? LAYOUT_SAEV : LAYOUT_GEMMA;
    if (s->file->head ||
        (s->file->container == SAE_NPZ && !sae_file_find(s->file, "w_enc")))
        return 0;
    for (size_t i = 0; i < sizeof(by_name) / sizeof(by_name[0]); i++) {
        const struct layout_info *l = &layouts[by_name[i]];

        if (sae_file_find(s->file, l->names[E_WEIGHT]) &&
            sae_file_find(s->file, l->names[D_WEIGHT])) {
            *layout = by_name[i] == LAYOUT_SAELENS && is_by_row(s) ? LAYOUT_QWEN
                                                                   : by_name[i];
            return 0;
        }
    }
    return err_set(err, EX_DATAERR,
                   "%s: is not a known SAE: it has neither encoder.weight "
                   "and W_dec (sparsify), nor encoder.weight and "
                   "decoder.weight (dictionary_learning), W_enc and W_dec "
                   "(SAELens, Qwen Scope), w_enc and w_dec (Gemma Scope 2), "
                   "encoder_weight and decoder_weight",
                   s->path);
}

/* First names and shapes, then numbers. */
static int
load(struct sae *s, struct err *err)
{
    enum sae_layout layout = LAYOUT_SPARSIFY;
    const struct layout_info *l;
    const struct sae_tensor *t, *b, *d;
    const char *bias;

    if (find_layout(s, &layout, err) < 0)
        return -1;
    l = &layouts[layout];
    t = sae_file_find(s->file, l->names[E_WEIGHT]);
    if (t && t->t.n_dims == 2) {
        s->n = (size_t)t->t.shape[l->e_by_col];
        s->in = (size_t)t->t.shape[!l->e_by_col];
    }
    /* one that is transposed is not what the others are measured by */
    b = sae_file_find(s->file, l->names[E_BIAS]);
    d = sae_file_find(s->file, l->names[D_WEIGHT]);
    if (b && b->t.n_dims == 1 && d && d->t.n_dims == 2 &&
        s->n != b->t.shape[0] && d->t.shape[l->d_by_col] == b->t.shape[0]) {
        s->n = (size_t)b->t.shape[0];
        s->in = (size_t)d->t.shape[!l->d_by_col];
    }
    if (sae_read_config(s, &layout, err) < 0 || check_names(s, layout, err) < 0)
        return -1;
    l = &layouts[layout];
    bias = l->names[D_BIAS];
    if (l->or_bias && sae_file_find(s->file, l->or_bias)) {
        if (sae_file_find(s->file, bias))
            return err_data(err, s->path, "has both %s and %s", bias,
                            l->or_bias);
        bias = l->or_bias;
    }
    if (find(s, &s->encoder_weight, l->names[E_WEIGHT], l->e_by_col,
             s->n ? s->n : ST_OPEN, s->n ? s->in : ST_OPEN, err) < 0 ||
        find(s, &s->encoder_bias, l->names[E_BIAS], false, 0, s->n, err) < 0 ||
        find(s, &s->decoder_weight, l->names[D_WEIGHT], l->d_by_col, s->n,
             s->in, err) < 0 ||
        find(s, &s->decoder_bias, bias, false, 0, s->in, err) < 0 ||
        check_k(s, err) < 0 || load_thresholds(s, layout, err) < 0 ||
        check_scaling(s, err) < 0 ||
        fetch(s, &s->encoder_bias, l->names[E_BIAS], err) < 0 ||
        fetch(s, &s->decoder_bias, bias, err) < 0 ||
        fetch(s, &s->encoder_weight, l->names[E_WEIGHT], err) < 0 ||
        fetch(s, &s->decoder_weight, l->names[D_WEIGHT], err) < 0)
        return -1;
    /* of dictionary_learning's classes AutoEncoder alone has a 'bias' */
    if (layout == LAYOUT_DICTIONARY && bias == l->names[D_BIAS] &&
        !s->ignores_threshold && s->k == 0)
        s->activation = SAE_RELU;
    if (s->thresholds || s->batchtopk)
        s->activation = s->thresholds ? SAE_JUMPRELU : SAE_BATCHTOPK;
    if (s->scaled) {
        const struct matrix *m = &s->decoder_weight;

        s->norms = xcalloc(s->n, sizeof(*s->norms));
        for (size_t i = 0; i < s->n; i++) {
            for (size_t j = 0; j < s->in; j++) {
                double v = matrix_get(m, i, j);

                s->norms[i] += v * v;
            }
            s->norms[i] = sqrt(s->norms[i]);
        }
    }
    return 0;
}

void
sae_fold(const struct sae *s, size_t i, bool decoder, float *row)
{
    double norm = s->norms ? s->norms[i] : 1;

    if (norm == 1)
        return;
    for (size_t j = 0; j < s->in; j++)
        row[j] = (float)(!decoder    ? (double)row[j] * norm
                         : norm == 0 ? 0
                                     : (double)row[j] / norm);
}

int
sae_open(struct sae *s, const char *path, struct err *err)
{
    int is_dir = file_is_dir(path, err);

    *s = (struct sae){ .threshold = -1 };
    if (is_dir < 0)
        return -1;
    if (!is_dir)
        s->path = xstrdup(path);
    else if (in_directory(path, &s->path, err) < 0)
        return -1;
    if (!s->path) {
        struct str names = { 0 };

        for (size_t i = 0; i < N_FILES; i++)
            str_addf(&names, "%s%s",
                     i == 0            ? ""
                     : i + 1 < N_FILES ? ", "
                                       : " or ",
                     files[i]);
        err_set(err, EX_NOINPUT, "%s: has no %s", path, names.s);
        str_free(&names);
        return -1;
    }
    s->file = xcalloc(1, sizeof(*s->file));
    if (sae_file_open(s->file, s->path, err) == 0 && load(s, err) == 0)
        return 0;
    sae_close(s);
    return -1;
}

void
sae_close(struct sae *s)
{
    if (s->file)
        sae_file_close(s->file);
    free(s->file);
    free(s->thresholds);
    free(s->hook);
    free(s->transform);
    sae_without_free(&s->without);
    free(s->norms);
    free(s->path);
    *s = (struct sae){ 0 };
}

int
sae_hash(struct hash *hash, const char *file, struct err *err)
{
    const char *slash = strrchr(file, '/');
    char *dir =
        slash ? xstrndup(file, (size_t)(slash - file) + 1) : xstrdup("./");
    int rc = 0;

    for (int i = 0; i < 2 && rc == 0; i++) {
        struct str path = { 0 };

        str_addf(&path, "%s%s", dir, i ? "config.json" : "cfg.json");
        if (!file_missing(path.s))
            rc = hash_path(hash, path.s, 0, err);
        str_free(&path);
    }
    free(dir);
    return rc < 0 ? -1 : hash_path(hash, file, 0, err);
}

int
sae_xxh3(const char *file, char hex[HASH_MAX_HEX], struct err *err)
{
    struct hash *hash = hash_new(HASH_XXH3);
    int rc = sae_hash(hash, file, err);

    hash_end(hash, hex);
    return rc;
}
