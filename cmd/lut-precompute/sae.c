/*
 * SAE checkpoints.  The names of its tensors say which library wrote one and
 * so how each lies; shapes are only checked.
 * Source: EleutherAI sparsify, SAELens, dictionary_learning; man/lut.5.
 */
#include "cmd/lut-precompute/sae.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/lut-precompute/sae_config.h"
#include "core/format/lut.h"
#include "core/format/stwant.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/model/names.h"
#include "core/str.h"

enum which { E_WEIGHT, E_BIAS, D_WEIGHT, D_BIAS, N_WHICH };

/* Each layout is known by its first two names, which no two share. */
static const struct layout_info {
    const char *names[N_WHICH];
    const char *or_bias; /* another name of the last */
    bool e_by_col, d_by_col;
} layouts[] = {
    [SPARSIFY] = { { "encoder.weight", "encoder.bias", "W_dec", "b_dec" },
                   NULL,
                   false,
                   false },
    [SIX] = { { "encoder_weight", "encoder_bias", "decoder_weight",
                "decoder_bias" },
              NULL,
              false,
              false },
    [SAELENS] = { { "W_enc", "b_enc", "W_dec", "b_dec" }, NULL, true, false },
    [DICTIONARY] = { { "encoder.weight", "encoder.bias", "decoder.weight",
                       "bias" },
                     "b_dec",
                     false,
                     true },
};
#define N_LAYOUTS (sizeof(layouts) / sizeof(layouts[0]))

/* Names of what is no plain SAE. */
static const struct {
    const char *name, *what;
} refused[] = {
    { "W_skip", "a transcoder's skip connection" },
    { "W_gate", "a gated SAE" },
    { "b_gate", "a gated SAE" },
    { "r_mag", "a gated SAE" },
    { "b_mag", "a gated SAE" },
    { "gate_bias", "a gated SAE" },
    { "mag_bias", "a gated SAE" },
    { "log_threshold", "JumpReLU" },
    { "b_dec_out", "a transcoder" },
    { "scaling_factor", "a fine-tuned SAE" },
};

/* What may be there besides and is not used: a table's other tensors, and what
 * training leaves. */
static const char *const ignored[] = { "precomputed_products", "bias_product",
                                       "compensation_weight_t", "k",
                                       "num_tokens_since_fired" };

static const char *const files[] = { "sae.safetensors",
                                     "sae_weights.safetensors",
                                     "ae.safetensors" };

/* ---- where they are ---- */

/* The checkpoint in a folder, or NULL. */
static char *
in_folder(const char *folder)
{
    struct str s = { 0 };

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        str_clear(&s);
        str_addf(&s, "%s/%s", folder, files[i]);
        if (!file_missing(s.s))
            return s.s;
    }
    str_free(&s);
    return NULL;
}

int
sae_is_one(const char *path, struct err *err)
{
    int folder = file_is_folder(path, err), rc = 1;
    char *file;

    if (folder <= 0)
        return folder < 0 ? -1 : 1;
    file = in_folder(path);
    if (!file)
        return 0;
    if (access(file, F_OK) < 0)
        rc = err_sys(err, file_status(errno), "%s", file);
    free(file);
    return rc;
}

char *
sae_path(const char *folder, const char *layer, struct err *err)
{
    static const char *const ends[] = { "", ".safetensors", LUT_SUFFIX };
    const char *names[] = { layer, names_short(layer) };
    struct str s = { 0 };

    for (size_t i = 0; i < 6; i++) {
        str_clear(&s);
        str_addf(&s, "%s/%s%s", folder, names[i % 2], ends[i / 2]);
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

static int
find_layout(const struct sae *s, enum layout *layout, struct err *err)
{
    for (size_t i = 0; i < N_LAYOUTS; i++)
        if (st_find(&s->st, layouts[i].names[E_WEIGHT]) &&
            st_find(&s->st, layouts[i].names[D_WEIGHT])) {
            *layout = (enum layout)i;
            return 0;
        }
    return err_set(err, EX_DATAERR,
                   "%s: no SAE that is known: neither encoder.weight and W_dec "
                   "(sparsify), nor encoder.weight and decoder.weight "
                   "(dictionary_learning), W_enc and W_dec (SAELens), "
                   "encoder_weight and decoder_weight",
                   s->path);
}

static bool
is_one_of(const char *name, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (names[i] && !strcmp(name, names[i]))
            return true;
    return false;
}

/* AutoEncoderTopK keeps a threshold that it does not use unless asked to. */
static int
check_threshold(const struct sae *s, const struct st_tensor *t,
                const struct sae_config *c, struct err *err)
{
    if (c->ignore_threshold)
        return 0;
    return err_set(err, EX_DATAERR,
                   "%s: has %s: JumpReLU is not supported (a TopK SAE is)",
                   s->path, t->name);
}

/* Every tensor that is there is understood: one that is not may change what
 * the SAE computes. */
static int
check_names(const struct sae *s, enum layout layout, const struct sae_config *c,
            struct err *err)
{
    for (size_t i = 0; i < s->st.n_tensors; i++) {
        const struct st_tensor *t = &s->st.tensors[i];

        for (size_t j = 0; j < sizeof(refused) / sizeof(refused[0]); j++)
            if (!strcmp(t->name, refused[j].name))
                return err_set(err, EX_DATAERR,
                               "%s: has %s: %s is not supported", s->path,
                               t->name, refused[j].what);
        if (!strcmp(t->name, "threshold")) {
            if (check_threshold(s, t, c, err) < 0)
                return -1;
            continue;
        }
        if (!is_one_of(t->name, layouts[layout].names, N_WHICH) &&
            !is_one_of(t->name, &layouts[layout].or_bias, 1) &&
            !is_one_of(t->name, ignored, sizeof(ignored) / sizeof(ignored[0])))
            return err_set(err, EX_DATAERR,
                           "%s: has %s, whose meaning is not known", s->path,
                           t->name);
    }
    return 0;
}

static const struct st_tensor *
find(const struct sae *s, const char *name, const struct st_want *want,
     struct err *err)
{
    const struct st_tensor *t = st_find(&s->st, name);

    if (!t)
        st_missing(s->path, name, err);
    else if (st_want(s->path, t, want, err) < 0)
        return NULL;
    else if (t->n_elements == 0)
        err_set(err, EX_DATAERR, "%s: %s is empty", s->path, name);
    else
        return t;
    return NULL;
}

static int
take_vector(const struct sae *s, struct matrix *to, const char *name, size_t n,
            struct err *err)
{
    const struct st_want want = { .n_dims = 1, .shape = { n } };
    const struct st_tensor *t = find(s, name, &want, err);

    if (!t)
        return -1;
    *to = (struct matrix){
        .data = st_data(&s->st, t), .dtype = t->dtype, .rows = 1, .cols = n
    };
    return 0;
}

/* ST_OPEN: a size that is not known yet. */
static int
take_matrix(const struct sae *s, struct matrix *to, const char *name,
            bool by_col, size_t rows, size_t cols, struct err *err)
{
    const struct st_want want = {
        .n_dims = 2,
        .shape = { by_col ? cols : rows, by_col ? rows : cols },
        .open = by_col ? "inputs, latents" : "latents, inputs",
    };
    const struct st_tensor *t = find(s, name, &want, err);

    if (!t)
        return -1;
    *to = (struct matrix){ .data = st_data(&s->st, t),
                           .dtype = t->dtype,
                           .rows = (size_t)t->shape[by_col ? 1 : 0],
                           .cols = (size_t)t->shape[by_col ? 0 : 1],
                           .by_col = by_col };
    return 0;
}

static int
take_all(struct sae *s, enum layout layout, struct err *err)
{
    const struct layout_info *l = &layouts[layout];
    const char *bias = l->names[D_BIAS];

    if (l->or_bias && !st_find(&s->st, bias))
        bias = l->or_bias;
    if (take_matrix(s, &s->encoder_weight, l->names[E_WEIGHT], l->e_by_col,
                    ST_OPEN, ST_OPEN, err) < 0)
        return -1;
    s->n = s->encoder_weight.rows;
    s->in = s->encoder_weight.cols;
    if (take_vector(s, &s->encoder_bias, l->names[E_BIAS], s->n, err) < 0 ||
        take_matrix(s, &s->decoder_weight, l->names[D_WEIGHT], l->d_by_col,
                    s->n, s->in, err) < 0 ||
        take_vector(s, &s->decoder_bias, bias, s->in, err) < 0)
        return -1;
    return 0;
}

static int
load(struct sae *s, struct err *err)
{
    struct sae_config config;
    enum layout layout = SPARSIFY;

    if (find_layout(s, &layout, err) < 0 ||
        sae_config(&config, layout, s, err) < 0 ||
        check_names(s, layout, &config, err) < 0 ||
        take_all(s, layout, err) < 0)
        return -1;
    s->k = config.k;
    s->centered = config.centered;
    s->unsure = config.unsure;
    return 0;
}

int
sae_open(struct sae *s, const char *path, struct err *err)
{
    int folder = file_is_folder(path, err);

    *s = (struct sae){ 0 };
    if (folder < 0)
        return -1;
    s->path = folder ? in_folder(path) : xstrdup(path);
    if (!s->path)
        return err_set(err, EX_NOINPUT,
                       "%s: has no sae.safetensors, sae_weights.safetensors "
                       "or ae.safetensors",
                       path);
    if (st_open(&s->st, s->path, err) == 0 && st_map(&s->st, err) == 0 &&
        load(s, err) == 0)
        return 0;
    sae_close(s);
    return -1;
}

void
sae_close(struct sae *s)
{
    st_close(&s->st);
    free(s->path);
    *s = (struct sae){ 0 };
}
