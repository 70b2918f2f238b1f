/* SPDX-License-Identifier: ISC */
#include "core/format/look.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/format/stwant.h"
#include "core/js.h"
#include "core/le.h"
#include "core/mem.h"
#include "core/rng.h"
#include "core/str.h"

/* m latents, of them t top examples and s of a sample, c places, b bins, l
 * limbs; p latents with pairs, n of the SAE.  'i': only with ids. */
#define AT(field) offsetof(struct look, field)
const struct look_tensor look_tensors[LOOK_N_TENSORS] = {
    { "latent", DT_I32, AT(latent), "m" },
    { "rows_active", DT_I64, AT(rows_active), "m" },
    { "seqs_active", DT_I64, AT(seqs_active), "m" },
    { "sum_limbs", DT_I64, AT(sum_limbs), "ml" },
    { "sum", DT_F64, AT(sum), "m" },
    { "max", DT_F32, AT(max), "m" },
    { "hist", DT_I64, AT(hist), "mb" },
    { "top_value", DT_F32, AT(top.value), "mt" },
    { "top_row", DT_I64, AT(top.row), "mt" },
    { "top_acts", DT_F32, AT(top.acts), "mtc" },
    { "top_ids", DT_I32, AT(top.ids), "mtci" },
    { "sample_value", DT_F32, AT(sample.value), "ms" },
    { "sample_row", DT_I64, AT(sample.row), "ms" },
    { "sample_acts", DT_F32, AT(sample.acts), "msc" },
    { "sample_ids", DT_I32, AT(sample.ids), "msci" },
    { "pair_latent", DT_I32, AT(pair_latent), "p" },
    { "pairs", DT_I64, AT(pairs), "pn" },
};

size_t
look_shape(const struct look *l, const struct look_tensor *t, uint64_t shape[3])
{
    size_t n = 0;

    for (const char *d = t->dims; *d; d++) {
        if (*d == 'i')
            return l->ids_sha256 ? n : 0;
        shape[n++] = *d == 'm'   ? l->m
                     : *d == 'l' ? LOOK_LIMBS
                     : *d == 'b' ? LOOK_BINS
                     : *d == 't' ? l->top.n
                     : *d == 's' ? l->sample.n
                     : *d == 'c' ? l->c
                     : *d == 'p' ? l->p
                                 : l->n;
    }
    return n;
}

/* ---- look.json ---- */

static int
read_text(const struct js *root, const char *key, bool needed, char **to,
          struct err *err)
{
    struct js js = js_get(root, key);
    const char *s;

    if (!needed && js_absent(&js))
        return 0;
    if (js_str(&js, &s, NULL, err) < 0)
        return -1;
    *to = xstrdup(s);
    return 0;
}

static int
read_u64(const struct js *js, uint64_t min, uint64_t max, uint64_t *to,
         struct err *err)
{
    int64_t v = 0;
    int rc = js_i64(js, (int64_t)min, (int64_t)max, &v, err);

    *to = (uint64_t)v;
    return rc;
}

static int
get_u64(const struct js *root, const char *key, uint64_t min, uint64_t max,
        uint64_t *to, struct err *err)
{
    struct js js = js_get(root, key);

    return read_u64(&js, min, max, to, err);
}

/* Sorted ranges of whole sequences; *total becomes all their rows. */
static int
read_input(struct look *l, const struct js *root, uint64_t *total,
           struct err *err)
{
    struct js js = js_get(root, "input");
    size_t n = json_array_size(js.v);
    uint64_t last = 0;

    if (n == 0)
        return js_bad(&js, "an array of [first, end]", err);
    if (!(l->input = mem_try(n, sizeof(*l->input), js.file, err)))
        return -1;
    for (; l->n_input < n; l->n_input++) {
        struct js at = js_at(&js, l->n_input), ends[2];
        uint64_t *range = l->input[l->n_input];

        if (json_array_size(at.v) != 2)
            return js_bad(&at, "[first, end]", err);
        for (size_t k = 0; k < 2; k++) {
            ends[k] = js_at(&at, k);
            if (read_u64(&ends[k], k ? range[0] + 1 : last,
                         (uint64_t)INT64_MAX - (k == 0), &range[k], err) < 0)
                return -1;
            if (range[k] % l->n_tokens)
                return js_bad(&ends[k], "a multiple of T", err);
        }
        last = range[1];
        *total += range[1] - range[0];
    }
    return 0;
}

static int
read_mask(struct look *l, const struct js *root, struct err *err)
{
    struct js ids = js_get(root, "skip_ids"), norm = js_get(root, "max_norm");
    struct js positions = js_get(root, "skip_positions");
    size_t n = json_array_size(ids.v);
    uint64_t id;

    if (!js_absent(&ids) && !js_is(&ids, JSON_ARRAY))
        return js_bad(&ids, "an array of token ids", err);
    if (!(l->mask.ids = mem_try(n + 1, sizeof(*l->mask.ids), ids.file, err)))
        return -1;
    for (; l->mask.n_ids < n; l->mask.n_ids++) {
        struct js at = js_at(&ids, l->mask.n_ids);

        if (read_u64(&at, 0, INT32_MAX, &id, err) < 0)
            return -1;
        l->mask.ids[l->mask.n_ids] = (int32_t)id;
    }
    if (!js_absent(&positions) &&
        read_u64(&positions, 0, INT64_MAX, &l->mask.positions, err) < 0)
        return -1;
    return js_absent(&norm) ? 0 : js_f64(&norm, &l->mask.max_norm, err);
}

static int
read_root(struct look *l, const struct js *root, struct err *err)
{
    static const char *const known[] = {
        "format", "sae",      "sae_xxh3",       "hook",     "latents",
        "d",      "rows",     "left_out",       "T",        "sequences",
        "input",  "top",      "sample",         "context",  "per",
        "seed",   "skip_ids", "skip_positions", "max_norm", "ids_sha256",
        NULL
    };
    struct js per = js_get(root, "per"), context = js_get(root, "context");
    uint64_t format, total = 0;
    const char *s;

    if (get_u64(root, "format", LOOK_FORMAT, LOOK_FORMAT, &format, err) < 0 ||
        read_text(root, "sae", true, &l->sae, err) < 0 ||
        read_text(root, "sae_xxh3", true, &l->sae_xxh3, err) < 0 ||
        read_text(root, "hook", false, &l->hook, err) < 0 ||
        read_text(root, "ids_sha256", false, &l->ids_sha256, err) < 0 ||
        get_u64(root, "latents", 1, LOOK_MAX_LATENTS, &l->n, err) < 0 ||
        get_u64(root, "d", 1, LOOK_MAX_LATENTS, &l->d, err) < 0 ||
        get_u64(root, "T", 1, LOOK_MAX_TOKENS, &l->n_tokens, err) < 0 ||
        read_input(l, root, &total, err) < 0 ||
        get_u64(root, "rows", 0, total, &l->rows, err) < 0 ||
        get_u64(root, "left_out", total - l->rows, total - l->rows,
                &l->left_out, err) < 0 ||
        get_u64(root, "sequences", 0, l->rows, &l->sequences, err) < 0 ||
        get_u64(root, "top", 0, LOOK_MAX_EXAMPLES, &l->top.n, err) < 0 ||
        get_u64(root, "sample", 0, LOOK_MAX_EXAMPLES - l->top.n, &l->sample.n,
                err) < 0 ||
        get_u64(root, "seed", 0, INT64_MAX, &l->seed, err) < 0 ||
        js_str(&per, &s, NULL, err) < 0 || read_mask(l, root, err) < 0)
        return -1;
    l->per_row = !strcmp(s, "row");
    if (!l->per_row && strcmp(s, "sequence") != 0)
        return js_bad(&per, "\"sequence\" or \"row\"", err);
    if (json_array_size(context.v) != 2)
        return js_bad(&context, "[before, after]", err);
    for (size_t k = 0; k < 2; k++) {
        struct js at = js_at(&context, k);

        if (read_u64(&at, 0, LOOK_MAX_TOKENS, &l->context[k], err) < 0)
            return -1;
    }
    l->c = l->context[0] + 1 + l->context[1];
    for (void *at = NULL; (s = js_unknown(root, known, &at));)
        err_warn("%s: member \"%s\" is not known, ignored", root->file, s);
    return 0;
}

static int
read_json(struct look *l, struct err *err)
{
    struct str path = { 0 };
    int rc = -1;

    str_addf(&path, "%s/" LOOK_JSON, l->path);
    if ((l->json = js_load(path.s, err))) {
        struct js root = js_root(l->json, path.s);

        rc = js_is(&root, JSON_OBJECT) ? read_root(l, &root, err)
                                       : js_bad(&root, "an object", err);
    }
    str_free(&path);
    return rc;
}

/* ---- look.safetensors ---- */

/* A tensor's numbers in this machine's order, where they can be used. */
static void *
numbers(struct look *l, const struct st_tensor *t, struct err *err)
{
    const char *from = st_data(&l->st, t);
    size_t item = dtype_size(t->dtype);
    char *to;

    if (t->n_elements == 0 || (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ &&
                               (uintptr_t)from % item == 0))
        return (void *)(uintptr_t)from;
    if (!(to = mem_try(t->n_elements, item, l->st.path, err)))
        return NULL;
    l->copies = xrealloc(l->copies, l->n_copies + 1, sizeof(*l->copies));
    l->copies[l->n_copies++] = to;
    memcpy(to, from, t->nbytes);
    le_numbers(to, t->n_elements, item);
    return to;
}

/* m and p are the first shapes of their tensors; the others must fit. */
static int
read_tensors(struct look *l, struct err *err)
{
    const struct st_tensor *m = st_find(&l->st, "latent");
    const struct st_tensor *p = st_find(&l->st, "pair_latent");

    l->m = m && m->n_dims == 1 && m->n_elements <= l->n ? m->n_elements : l->n;
    l->p = !p                                        ? 0
           : p->n_dims == 1 && p->n_elements <= l->n ? p->n_elements
                                                     : l->n;
    for (size_t i = 0; i < LOOK_N_TENSORS; i++) {
        const struct look_tensor *want = &look_tensors[i];
        const struct st_tensor *t = st_find(&l->st, want->name);
        struct st_want shape = { 0 };
        void *to;

        shape.n_dims = look_shape(l, want, shape.shape);
        if (shape.n_dims == 0 || (!t && *want->dims == 'p' && l->p == 0))
            continue;
        if (!st_want_data(&l->st, want->name, want->dtype, &shape, err) ||
            !(to = numbers(l, t, err)))
            return -1;
        memcpy((char *)l + want->at, &to, sizeof(to));
    }
    return 0;
}

/* Rounds once: the three highest limbs, and whether there is more below. */
double
look_sum(const int64_t *limb)
{
    __extension__ unsigned __int128 v = 0;
    int high = LOOK_LIMBS - 1;

    while (high > 0 && limb[high] == 0)
        high--;
    for (int k = high; k > high - 3; k--)
        v = v << 32 | (uint64_t)(k >= 0 ? limb[k] : 0);
    for (int k = 0; k <= high - 3; k++)
        v |= limb[k] != 0;
    return ldexp((double)v, 32 * (high - 2) - 149);
}

/* ---- what is read is checked ---- */

static int
check_ascending(const struct look *l, const char *name, const int32_t *latent,
                size_t n, struct err *err)
{
    for (size_t i = 0; i < n; i++)
        if (latent[i] < (i ? latent[i - 1] + 1 : 0) ||
            (size_t)latent[i] >= l->n)
            return err_data(
                err, l->st.path, "%s[%zu] is %ld (expected %ld to %zu)", name,
                i, (long)latent[i], i ? latent[i - 1] + 1L : 0L, l->n - 1);
    return 0;
}

/* Counts and sums of a latent, which say the same thing several times. */
static int
check_counts(const struct look *l, size_t i, struct err *err)
{
    int64_t rows = l->rows_active[i], seqs = l->seqs_active[i];
    const int64_t *hist = l->hist + i * LOOK_BINS;
    const int64_t *limb = l->sum_limbs + i * LOOK_LIMBS;
    uint64_t left = l->rows;
    bool good = rows >= 0 && (uint64_t)rows <= l->rows && seqs >= (rows > 0) &&
                seqs <= rows && (uint64_t)seqs <= l->sequences;

    for (size_t k = 0; k < LOOK_BINS && good; k++) {
        good = hist[k] >= 0 && (uint64_t)hist[k] <= left;
        left -= (uint64_t)hist[k];
    }
    for (size_t k = 0; k < LOOK_LIMBS; k++)
        good = good && limb[k] >= 0 && limb[k] <= UINT32_MAX;
    if (good && l->rows - left == (uint64_t)rows &&
        l->sum[i] == look_sum(limb) && (l->sum[i] > 0) == (rows > 0) &&
        isfinite(l->max[i]) && (rows ? l->max[i] > 0 : l->max[i] == 0))
        return 0;
    return err_data(err, l->st.path,
                    "rows_active, seqs_active, hist, sum_limbs, sum and max of "
                    "[%zu] contradict each other (%lld active rows in %lld "
                    "sequences, a sum of %.17g)",
                    i, (long long)rows, (long long)seqs, l->sum[i]);
}

/* Is a row among those that were read? */
static bool
is_input(const struct look *l, int64_t row)
{
    size_t low = 0, high = l->n_input;

    while (low < high) {
        size_t mid = low + (high - low) / 2;

        if (row < 0 || (uint64_t)row < l->input[mid][0])
            high = mid;
        else if ((uint64_t)row >= l->input[mid][1])
            low = mid + 1;
        else
            return true;
    }
    return false;
}

static int
check_examples(const struct look *l, const char *name,
               const struct look_examples *e, size_t i, struct err *err)
{
    const float *value = e->value + i * e->n;
    const int64_t *row = e->row + i * e->n;
    int64_t active = l->per_row ? l->rows_active[i] : l->seqs_active[i];
    size_t n = smaller(e->n, (size_t)active);
    struct look_keys keys = { { l->seed, (uint64_t)l->latent[i] },
                              UINT64_MAX,
                              { 0 } };
    uint64_t last = 0, key;
    float most = l->max[i];

    for (size_t j = 0; j < e->n; j++) {
        if (j >= n && row[j] == -1 && value[j] == 0)
            continue;
        if (j >= n || !is_input(l, row[j]) ||
            !(value[j] > 0 && value[j] <= most))
            return err_data(err, l->st.path,
                            "example [%zu, %zu] of %s is row %lld with %g "
                            "(expected a row of the input for the first %zu, "
                            "with up to %g, then -1)",
                            i, j, name, (long long)row[j], (double)value[j], n,
                            (double)most);
        if (e == &l->top)
            most = value[j];
        key = e == &l->top ? UINT32_MAX - f32_bits(value[j])
                           : look_key(l, &keys, row[j]);
        if (j > 0 && (key < last || (key == last && row[j] <= row[j - 1])))
            return err_data(err, l->st.path,
                            "example [%zu, %zu] of %s is row %lld, which does "
                            "not come after row %lld",
                            i, j, name, (long long)row[j],
                            (long long)row[j - 1]);
        last = key;
    }
    return 0;
}

static int
check_pairs(const struct look *l, size_t k, struct err *err)
{
    const int64_t *both = l->pairs + k * l->n;
    int64_t most = both[l->pair_latent[k]];

    for (size_t i = 0, at = 0; i < l->n; i++) {
        bool known = at < l->m && (size_t)l->latent[at] == i;

        if (both[i] < 0 || both[i] > most || (uint64_t)both[i] > l->rows ||
            (known && (both[i] > l->rows_active[at] ||
                       (l->pair_latent[k] == (int32_t)i &&
                        both[i] != l->rows_active[at]))))
            return err_data(err, l->st.path,
                            "pairs[%zu, %zu] is %lld, more or less rows than "
                            "the latents have",
                            k, i, (long long)both[i]);
        at += known;
    }
    return 0;
}

static int
check(const struct look *l, struct err *err)
{
    if (check_ascending(l, "latent", l->latent, l->m, err) < 0 ||
        check_ascending(l, "pair_latent", l->pair_latent, l->p, err) < 0)
        return -1;
    for (size_t i = 0; i < l->m; i++)
        if (check_counts(l, i, err) < 0 ||
            check_examples(l, "top", &l->top, i, err) < 0 ||
            check_examples(l, "sample", &l->sample, i, err) < 0)
            return -1;
    for (size_t k = 0; k < l->p; k++)
        if (check_pairs(l, k, err) < 0)
            return -1;
    return 0;
}

int
look_open(struct look *l, const char *path, struct err *err)
{
    struct str file = { 0 };
    int rc;

    *l = (struct look){ .path = xstrdup(path) };
    if (read_json(l, err) < 0)
        return -1;
    str_addf(&file, "%s/" LOOK_TENSORS, path);
    rc = st_open(&l->st, file.s, err);
    str_free(&file);
    if (rc < 0) {
        l->st = (struct st){ 0 };
        return -1;
    }
    return st_map(&l->st, err) < 0 || read_tensors(l, err) < 0 ? -1
                                                               : check(l, err);
}

void
look_close(struct look *l)
{
    for (size_t i = 0; i < l->n_copies; i++)
        free(l->copies[i]);
    free(l->copies);
    free(l->input);
    free(l->mask.ids);
    free(l->sae);
    free(l->sae_xxh3);
    free(l->hook);
    free(l->ids_sha256);
    json_decref(l->json);
    if (l->st.path)
        st_close(&l->st);
    free(l->path);
    *l = (struct look){ 0 };
}

/* ---- of a latent ---- */

double
look_bin_low(int bin)
{
    return bin == 0 ? 0 : (double)f32_from_bits((uint32_t)(bin + 222) << 22);
}

uint64_t
look_key(const struct look *l, struct look_keys *k, int64_t row)
{
    uint64_t q = l->per_row ? (uint64_t)row : (uint64_t)row / l->n_tokens;
    /* numpy counts up before it makes a block */
    const uint64_t counter[4] = { q / 4 + 1, 0, 2, 0 };

    if (k->block != q / 4)
        rng_philox(k->key, counter, k->word);
    k->block = q / 4;
    return k->word[q % 4];
}

size_t
look_find(const struct look *l, int64_t latent)
{
    int32_t key = (int32_t)latent;
    const int32_t *at = key == latent && l->m ? bsearch(&key, l->latent, l->m,
                                                        sizeof(key), by_i32)
                                              : NULL;

    return at ? (size_t)(at - l->latent) : SIZE_MAX;
}

double
look_density(const struct look *l, size_t i)
{
    return l->rows_active[i] ? (double)l->rows_active[i] / (double)l->rows : 0;
}

double
look_mean(const struct look *l, size_t i)
{
    return l->rows_active[i] ? l->sum[i] / (double)l->rows_active[i] : 0;
}

static int
bad_place(const struct look *l, const struct look_examples *of,
          const char *what, size_t i, size_t j, size_t k, double v,
          struct err *err)
{
    return err_data(err, l->st.path, "%s_%s[%zu, %zu, %zu] is %g",
                    of == &l->top ? "top" : "sample", what, i, j, k, v);
}

int
look_example(const struct look *l, const struct look_examples *of, size_t i,
             size_t j, struct look_example *e, struct err *err)
{
    size_t at = l->context[0], first, end, position;
    const float *acts;
    const int32_t *ids;

    if (j >= of->n || of->row[i * of->n + j] < 0)
        return 0;
    *e = (struct look_example){ .value = of->value[i * of->n + j],
                                .row = of->row[i * of->n + j] };
    acts = of->acts + (i * of->n + j) * l->c;
    ids = of->ids ? of->ids + (i * of->n + j) * l->c : NULL;
    position = (size_t)e->row % l->n_tokens;
    first = at - smaller(at, position);
    end = at + 1 + smaller(l->context[1], l->n_tokens - 1 - position);
    for (size_t k = first; k < end; k++) {
        if (!(acts[k] >= 0 && acts[k] <= l->max[i]) && acts[k] != -1)
            return bad_place(l, of, "acts", i, j, k, (double)acts[k], err);
        if (ids && ids[k] < -1)
            return bad_place(l, of, "ids", i, j, k, ids[k], err);
    }
    if (acts[at] != e->value)
        return bad_place(l, of, "acts", i, j, at, (double)acts[at], err);
    while (ids && first < at && ids[first] < 0) /* padding */
        first++;
    while (ids && end > at + 1 && ids[end - 1] < 0)
        end--;
    e->n = end - first;
    e->at = at - first;
    e->acts = acts + first;
    e->ids = ids ? ids + first : NULL;
    return 1;
}

int
look_check_examples(const struct look *l, const struct look_examples *of,
                    struct err *err)
{
    struct look_example e;

    for (size_t i = 0; i < l->m; i++)
        for (size_t j = 0; j < of->n; j++)
            if (look_example(l, of, i, j, &e, err) < 0)
                return -1;
    return 0;
}
