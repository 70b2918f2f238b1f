/* SPDX-License-Identifier: ISC */
#include "core/model/look_pass.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/le.h"
#include "core/mem.h"

#define GRAIN ((size_t)16) /* latents of a thread */

/* Places of an example with one act, from the run before up to 'end'. */
struct look_run {
    uint32_t end;
    float act;
};

/* The examples of m latents: a heap of slots for each, the worst first. */
struct look_heap {
    struct look_examples *e;
    struct look_run **runs; /* [m, e->n] those of each, to l->c; NULL: none */
    uint64_t *key;          /* [m, e->n] of the sample; NULL: values decide */
    uint16_t *slot;         /* [m, e->n] */
    uint16_t *n;            /* [m] */
};

struct look_pass {
    struct look *l;
    struct par *par;
    struct look_heap top, sample;
    void *memory;
    size_t nbytes;

    /* the codes of look_pass_add() by latent, then row */
    uint32_t *begin; /* [l->n + 1] */
    uint32_t *row;   /* [cap] from the first */
    float *f;
    size_t cap;
    const struct look_codes *codes;
    const struct look *part; /* or of look_pass_merge() */
    const struct saev_ids *ids;
    atomic_bool full; /* no memory is left for runs */
};

/* ---- the places of an example, for look_write() ---- */

static void
put_acts(const void *ctx, const struct look_examples *of, size_t at, float *to)
{
    const struct look_pass *p = ctx;
    const struct look_heap *h = of == &p->l->top ? &p->top : &p->sample;
    const struct look_run none = { (uint32_t)p->l->c, -1 };
    const struct look_run *run = h->runs[at] ? h->runs[at] : &none;

    for (size_t k = 0; k < p->l->c; run++)
        for (; k < run->end; k++)
            to[k] = run->act;
}

static void
put_ids(const void *ctx, const struct look_examples *of, size_t at, int32_t *to)
{
    const struct look_pass *p = ctx;
    const struct look *l = p->l;
    size_t row = (size_t)of->row[at], t = row % l->n_tokens;
    bool is_example = of->row[at] >= 0;

    for (size_t k = 0; k < l->c; k++) {
        size_t place = t + k - l->context[0]; /* may wrap: it is not less */

        to[k] = !is_example ? -1
                : !p->ids   ? of->ids[at * l->c + k]
                : place < l->n_tokens
                    ? saev_ids_at(p->ids, row / l->n_tokens, place)
                    : -1;
    }
}

/* ---- memory ---- */

#define N_ARRAYS 21

#define RUNS_EXTRA 24 /* bytes that malloc() may add to an example's runs */

/* Both uses need the same: 'p' may be a pass without arrays. */
static void
list_arrays(struct look_pass *p, struct look *l, struct mem_array *arrays)
{
    size_t m = l->m, k = l->top.n, s = l->sample.n;
    size_t ids = l->ids_sha256 && !p->ids ? l->c : 0;
    const struct mem_array all[N_ARRAYS] = {
        { &l->rows_active, m, 1, sizeof(*l->rows_active) },
        { &l->seqs_active, m, 1, sizeof(*l->seqs_active) },
        { &l->sum_limbs, m, LOOK_LIMBS, sizeof(*l->sum_limbs) },
        { &l->sum, m, 1, sizeof(*l->sum) },
        { &l->max, m, 1, sizeof(*l->max) },
        { &l->hist, m, LOOK_BINS, sizeof(*l->hist) },
        { &l->top.value, m, k, sizeof(*l->top.value) },
        { &l->top.row, m, k, sizeof(*l->top.row) },
        { &p->top.runs, m, k, sizeof(struct look_run *) },
        { &l->top.ids, m * k, ids, sizeof(*l->top.ids) },
        { &l->sample.value, m, s, sizeof(*l->sample.value) },
        { &l->sample.row, m, s, sizeof(*l->sample.row) },
        { &p->sample.runs, m, s, sizeof(struct look_run *) },
        { &l->sample.ids, m * s, ids, sizeof(*l->sample.ids) },
        { &l->pairs, l->p, l->n, sizeof(*l->pairs) },
        { &p->top.slot, m, k, sizeof(*p->top.slot) },
        { &p->top.n, m, 1, sizeof(*p->top.n) },
        { &p->sample.key, m, s, sizeof(*p->sample.key) },
        { &p->sample.slot, m, s, sizeof(*p->sample.slot) },
        { &p->sample.n, m, 1, sizeof(*p->sample.n) },
        { &p->begin, l->n + 1, 1, sizeof(*p->begin) },
    };

    memcpy(arrays, all, sizeof(all));
}

static void
free_runs(const struct look_heap *h, size_t m)
{
    for (size_t i = 0; i < m * h->e->n; i++)
        free(h->runs[i]);
}

bool
look_pass_nbytes(const struct look *l, const struct saev_ids *ids,
                 size_t *nbytes)
{
    struct look_pass p = { .ids = ids };
    struct look copy = *l;
    struct mem_array arrays[N_ARRAYS];
    size_t runs = smaller(l->c, l->n_tokens + 2) * sizeof(struct look_run);

    list_arrays(&p, &copy, arrays);
    return mem_arrays_nbytes(arrays, N_ARRAYS, nbytes) &&
           size_mul(l->m * (l->top.n + l->sample.n), runs + RUNS_EXTRA,
                    &runs) &&
           size_add(*nbytes, runs, nbytes);
}

int
look_pass_open(struct look_pass **pass, struct look *l,
               const struct saev_ids *ids, struct par *par, struct err *err)
{
    struct look_pass *p = xcalloc(1, sizeof(*p));
    struct mem_array arrays[N_ARRAYS];

    p->l = l;
    p->par = par;
    p->ids = ids;
    p->top.e = &l->top;
    p->sample.e = &l->sample;
    list_arrays(p, l, arrays);
    p->memory = mem_arrays(arrays, N_ARRAYS, &p->nbytes,
                           "the examples of latents (--top, --sample, "
                           "--context and --latents make them fewer)",
                           err);
    *pass = p;
    if (!p->memory)
        return -1;
    if (!l->ids_sha256 || ids)
        l->top.ids = l->sample.ids = NULL;
    l->put_acts = put_acts;
    l->put_ids = put_ids;
    l->put_ctx = p;
    return 0;
}

void
look_pass_close(struct look_pass *p)
{
    if (!p)
        return;
    if (p->memory) {
        free_runs(&p->top, p->l->m);
        free_runs(&p->sample, p->l->m);
        mem_big_free(p->memory, p->nbytes, 1);
    }
    free(p->row);
    free(p->f);
    free(p);
}

/* ---- examples ---- */

/* Lower is better: a higher value, or a lower key of the sample. */
static uint64_t
key_at(const struct look_heap *h, size_t at)
{
    return h->key ? h->key[at] : UINT32_MAX - f32_bits(h->e->value[at]);
}

/* Is one slot of a latent, whose first is at 'base', worse than another? */
static bool
is_worse(const struct look_heap *h, size_t base, size_t a, size_t b)
{
    uint64_t x = key_at(h, base + a), y = key_at(h, base + b);

    return x != y ? x > y : h->e->row[base + a] > h->e->row[base + b];
}

/* Where a slot sinks to from the top of a heap of n, in which the worse ones
 * rise. */
static size_t
sink(const struct look_heap *h, size_t base, uint16_t *slot, size_t n, size_t s)
{
    size_t k = 0;

    for (size_t child; (child = 2 * k + 1) < n; k = child) {
        if (child + 1 < n && is_worse(h, base, slot[child + 1], slot[child]))
            child++;
        if (!is_worse(h, base, slot[child], s))
            break;
        slot[k] = slot[child];
    }
    return k;
}

/* Offers an example to latent i; where it goes, or SIZE_MAX if it is worse than
 * those that are there. */
static size_t
offer(const struct look_heap *h, size_t i, float value, uint64_t key,
      int64_t row)
{
    size_t cap = h->e->n, base = i * cap, n = h->n[i], k = 0, s;
    uint16_t *slot = h->slot + base;

    if (cap == 0)
        return SIZE_MAX;
    if (n == cap) { /* takes the place of the worst */
        uint64_t worst = key_at(h, base + slot[0]);

        if (key > worst || (key == worst && row > h->e->row[base + slot[0]]))
            return SIZE_MAX;
    }
    s = n < cap ? n : slot[0];
    h->e->value[base + s] = value;
    h->e->row[base + s] = row;
    if (h->key)
        h->key[base + s] = key;
    if (n < cap) {
        for (k = n; k > 0 && is_worse(h, base, s, slot[(k - 1) / 2]);
             k = (k - 1) / 2)
            slot[k] = slot[(k - 1) / 2];
        h->n[i]++;
    } else {
        k = sink(h, base, slot, cap, s);
    }
    slot[k] = (uint16_t)s;
    return base + s;
}

static size_t
put_run(struct look_run *to, size_t n, size_t end, float act)
{
    if (to)
        to[n] = (struct look_run){ (uint32_t)end, act };
    return n + 1;
}

/* What is active around a row, in runs: how many; 'to' may be NULL.  'begin' ..
 * 'end' are the codes of the latent in the sequence, of p->row and p->f. */
static size_t
list_runs(const struct look_pass *p, struct look_run *to, size_t row,
          size_t begin, size_t end)
{
    const struct look *l = p->l;
    size_t before = l->context[0], t = row % l->n_tokens;
    size_t k = before - smaller(before, t); /* the sequence begins */
    size_t stop = smaller(l->c, before - t + l->n_tokens);
    size_t n = k > 0 ? put_run(to, 0, k, -1) : 0;

    while (p->row[begin] + before < row + k)
        begin++;
    while (k < stop) {
        size_t next =
            begin < end ? smaller(p->row[begin] + before - row, stop) : stop;
        const bool *counts = p->codes->counts + (row + k - before), *other;

        if (k == next) {
            n = put_run(to, n, ++k, p->f[begin++]);
            continue;
        }
        other = memchr(counts, !*counts, next - k);
        k = other ? k + (size_t)(other - counts) : next;
        n = put_run(to, n, k, (float)*counts - 1);
    }
    return stop < l->c ? put_run(to, n, l->c, -1) : n;
}

/* Those of places whose acts are known. */
static size_t
runs_of(struct look_run *to, const float *acts, size_t c)
{
    size_t n = 0;

    for (size_t k = 1; k <= c; k++)
        if (k == c || f32_bits(acts[k]) != f32_bits(acts[k - 1]))
            n = put_run(to, n, k, acts[k - 1]);
    return n;
}

/* Room for n runs of an example, instead of those that it had; or NULL. */
static struct look_run *
new_runs(struct look_pass *p, const struct look_heap *h, size_t at, size_t n)
{
    struct look_run *to = realloc(h->runs[at], n * sizeof(*to));

    if (to)
        h->runs[at] = to;
    else
        atomic_store(&p->full, true);
    return to;
}

static int
check_full(struct look_pass *p, struct err *err)
{
    return !p->full ? 0
                    : err_set(err, EX_SOFTWARE,
                              "the examples of latents: out of memory");
}

/* ---- adding rows ---- */

/* f = m 2^(e - 149) adds m 2^(e % 32) to limb e / 32 and the next. */
static void
add_limbs(int64_t *limb, float f)
{
    uint32_t bits = f32_bits(f), e = bits >> 23;
    uint64_t m = bits & 0x7fffff;

    if (e > 0) {
        m |= 0x800000;
        e--;
    }
    m <<= e % 32;
    limb[e / 32] += (int64_t)(m & UINT32_MAX);
    limb[e / 32 + 1] += (int64_t)(m >> 32);
}

static void
carry(int64_t *limb)
{
    for (size_t k = 0; k + 1 < LOOK_LIMBS; k++) {
        limb[k + 1] += limb[k] >> 32;
        limb[k] &= UINT32_MAX;
    }
}

/* The example at 'at' is a row's, of the codes begin .. end - 1 of a sequence.
 */
static void
set_runs(struct look_pass *p, const struct look_heap *h, size_t at, size_t row,
         size_t begin, size_t end)
{
    size_t n = list_runs(p, NULL, row, begin, end);
    struct look_run *to = new_runs(p, h, at, n);

    if (to)
        list_runs(p, to, row, begin, end);
}

/* An example in codes begin .. end - 1 of a sequence, at code 'best'. */
static void
add_example(struct look_pass *p, size_t i, size_t begin, size_t end,
            size_t best, struct look_keys *keys)
{
    const struct look *l = p->l;
    size_t row = p->row[best], at;
    int64_t number = (int64_t)(p->codes->first + row);
    float f = p->f[best];

    at = offer(&p->top, i, f, UINT32_MAX - f32_bits(f), number);
    if (at != SIZE_MAX)
        set_runs(p, &p->top, at, row, begin, end);
    if (l->sample.n == 0)
        return;
    at = offer(&p->sample, i, f, look_key(l, keys, number), number);
    if (at != SIZE_MAX)
        set_runs(p, &p->sample, at, row, begin, end);
}

static void
add_latent(struct look_pass *p, size_t i)
{
    const struct look *l = p->l;
    size_t latent = (size_t)l->latent[i];
    size_t begin = p->begin[latent], last = p->begin[latent + 1], end, best;
    int64_t *limb = l->sum_limbs + i * LOOK_LIMBS;
    struct look_keys keys = { { l->seed, latent }, UINT64_MAX, { 0 } };

    l->rows_active[i] += (int64_t)(last - begin);
    for (; begin < last; begin = end) {
        size_t next = p->row[begin] - p->row[begin] % l->n_tokens + l->n_tokens;

        best = begin;
        for (end = begin; end < last && p->row[end] < next; end++) {
            float f = p->f[end];

            if (f > p->f[best])
                best = end;
            add_limbs(limb, f);
            l->hist[i * LOOK_BINS + (size_t)look_bin(f)]++;
        }
        l->seqs_active[i]++;
        if (p->f[best] > l->max[i])
            l->max[i] = p->f[best];
        if (!l->per_row)
            add_example(p, i, begin, end, best, &keys);
        for (size_t k = begin; l->per_row && k < end; k++)
            add_example(p, i, begin, end, k, &keys);
    }
    carry(limb);
}

static void
add_latents(void *ctx, size_t begin, size_t end)
{
    for (; begin < end; begin++)
        add_latent(ctx, begin);
}

static void
add_pairs(void *ctx, size_t begin, size_t end)
{
    const struct look_pass *p = ctx;
    const struct look_codes *c = p->codes;

    for (size_t i = begin; i < end; i++) {
        size_t latent = (size_t)p->l->pair_latent[i];
        int64_t *pairs = p->l->pairs + i * p->l->n;

        for (size_t k = p->begin[latent]; k < p->begin[latent + 1]; k++)
            for (size_t j = c->begin[p->row[k]]; j < c->begin[p->row[k] + 1];
                 j++)
                pairs[c->idx[j]]++;
    }
}

/* Sorts the codes by latent; those of one stay in the order of their rows. */
static int
sort_codes(struct look_pass *p, const struct look_codes *c, struct err *err)
{
    size_t n = c->begin[c->n_rows], sum = 0, all = p->l->n;

    if (n > UINT32_MAX)
        return err_set(err, EX_DATAERR,
                       "%zu active latents at once (at most %u)", n,
                       UINT32_MAX);
    if (n > p->cap) {
        free(p->row);
        free(p->f);
        p->cap = 0;
        p->row = mem_try(n, sizeof(*p->row), "active latents", err);
        p->f = mem_try(n, sizeof(*p->f), "active latents", err);
        if (!p->row || !p->f)
            return -1;
        p->cap = n;
    }
    memset(p->begin, 0, (all + 1) * sizeof(*p->begin));
    for (size_t k = 0; k < n; k++)
        p->begin[c->idx[k]]++;
    for (size_t i = 0; i <= all; i++) { /* ends, then beginnings */
        sum += p->begin[i];
        p->begin[i] = (uint32_t)sum;
    }
    for (size_t r = c->n_rows; r-- > 0;)
        for (size_t k = c->begin[r]; k < c->begin[r + 1]; k++) {
            size_t at = --p->begin[c->idx[k]];

            p->row[at] = (uint32_t)r;
            p->f[at] = c->f[k];
        }
    return 0;
}

int
look_pass_add(struct look_pass *p, const struct look_codes *c, struct err *err)
{
    struct look *l = p->l;

    if (sort_codes(p, c, err) < 0)
        return -1;
    p->codes = c;
    for (size_t r = 0; r < c->n_rows; r += l->n_tokens) {
        size_t n = 0;

        for (size_t t = 0; t < l->n_tokens; t++)
            n += c->counts[r + t];
        l->rows += n;
        l->left_out += l->n_tokens - n;
        l->sequences += n > 0;
    }
    par_for(p->par, l->m, GRAIN, add_latents, p);
    par_for(p->par, l->p, 1, add_pairs, p);
    return check_full(p, err);
}

/* ---- merging ---- */

static void
merge_examples(struct look_pass *p, const struct look_heap *h,
               const struct look_examples *from, size_t i)
{
    const struct look *l = p->l;
    struct look_keys keys = { { l->seed, (uint64_t)l->latent[i] },
                              UINT64_MAX,
                              { 0 } };

    for (size_t k = i * from->n; k < (i + 1) * from->n; k++) {
        float v = from->value[k];
        int64_t row = from->row[k];
        struct look_run *to;
        size_t at;

        if (row < 0)
            break;
        at = offer(h, i, v,
                   h->key ? look_key(l, &keys, row) : UINT32_MAX - f32_bits(v),
                   row);
        if (at == SIZE_MAX)
            continue;
        to = new_runs(p, h, at, runs_of(NULL, from->acts + k * l->c, l->c));
        if (to)
            runs_of(to, from->acts + k * l->c, l->c);
        if (h->e->ids)
            memcpy(h->e->ids + at * l->c, from->ids + k * l->c,
                   l->c * sizeof(*from->ids));
    }
}

static void
merge_latents(void *ctx, size_t begin, size_t end)
{
    struct look_pass *p = ctx;
    const struct look *from = p->part;
    struct look *l = p->l;

    for (size_t i = begin; i < end; i++) {
        l->rows_active[i] += from->rows_active[i];
        l->seqs_active[i] += from->seqs_active[i];
        if (from->max[i] > l->max[i])
            l->max[i] = from->max[i];
        for (size_t k = i * LOOK_BINS; k < (i + 1) * LOOK_BINS; k++)
            l->hist[k] += from->hist[k];
        for (size_t k = i * LOOK_LIMBS; k < (i + 1) * LOOK_LIMBS; k++)
            l->sum_limbs[k] += from->sum_limbs[k];
        carry(l->sum_limbs + i * LOOK_LIMBS);
        merge_examples(p, &p->top, &from->top, i);
        merge_examples(p, &p->sample, &from->sample, i);
    }
}

int
look_pass_merge(struct look_pass *p, const struct look *part, struct err *err)
{
    struct look *l = p->l;

    p->part = part;
    par_for(p->par, l->m, GRAIN, merge_latents, p);
    for (size_t k = 0; k < l->p * l->n; k++)
        l->pairs[k] += part->pairs[k];
    l->rows += part->rows;
    l->left_out += part->left_out;
    l->sequences += part->sequences;
    return check_full(p, err);
}

/* ---- the end ---- */

/* The worst first, as a heap that is taken apart puts them last. */
static void
sort_slots(const struct look_heap *h, size_t i)
{
    size_t base = i * h->e->n;
    uint16_t *slot = h->slot + base;

    for (size_t n = h->n[i]; n-- > 1;) {
        uint16_t s = slot[n];

        slot[n] = slot[0];
        slot[sink(h, base, slot, n, s)] = s;
    }
}

/* Moves a latent's items of 'size' bytes to where the slots say. */
static void
permute(const struct look_heap *h, size_t i, void *items, size_t size,
        char *room)
{
    char *at = (char *)items + i * h->e->n * size;
    const uint16_t *slot = h->slot + i * h->e->n;

    if (size == 0 || !items)
        return;
    for (size_t k = 0; k < h->n[i]; k++)
        memcpy(room + k * size, at + slot[k] * size, size);
    memcpy(at, room, h->n[i] * size);
}

static void
end_examples(const struct look_pass *p, const struct look_heap *h, size_t i,
             char *room)
{
    const struct look_examples *e = h->e;
    sort_slots(h, i);
    permute(h, i, e->value, sizeof(*e->value), room);
    permute(h, i, e->row, sizeof(*e->row), room);
    permute(h, i, h->runs, sizeof(*h->runs), room);
    permute(h, i, e->ids, p->l->c * sizeof(*e->ids), room);
    for (size_t k = h->n[i]; k < e->n; k++)
        e->row[i * e->n + k] = -1;
}

static void
end_latents(void *ctx, size_t begin, size_t end)
{
    const struct look_pass *p = ctx;
    const struct look *l = p->l;
    size_t most = larger(l->top.n, l->sample.n);
    char *room = xcalloc(most + 1, larger(l->c * sizeof(float), 8));

    for (size_t i = begin; i < end; i++) {
        l->sum[i] = look_sum(l->sum_limbs + i * LOOK_LIMBS);
        end_examples(p, &p->top, i, room);
        end_examples(p, &p->sample, i, room);
    }
    free(room);
}

void
look_pass_end(struct look_pass *p)
{
    par_for(p->par, p->l->m, GRAIN, end_latents, p);
}
