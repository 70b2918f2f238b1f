/* SPDX-License-Identifier: ISC */
/* How much memory a whole model's gradient takes, and its allocation. */
#include <math.h>
#include <stdlib.h>

#include "core/kernel/gemm.h"
#include "core/mem.h"
#include "core/model/train/lm_impl.h"

/* Of logits, or as many as HEAD_BYTES hold: gemm reads the head's weights once
 * for as many rows in the exact class; packing them costs more in that of
 * bf16. */
#define HEAD_ROWS_F32  256
#define HEAD_ROWS_BF16 512
#define HEAD_BYTES     ((size_t)320 << 20)

static struct kv
cache_of(const struct config *c)
{
    return (struct kv){ .n_layers = 1,
                        .n_heads = (size_t)c->n_kv_heads,
                        .head_dim = (size_t)c->head_dim,
                        .v_head_dim = (size_t)c->v_head_dim,
                        .dtype = DT_F32 };
}

void
lm_sizes(struct lm *lm)
{
    struct lm_work *w = lm->work;
    const struct lm_options *o = &w->options;
    size_t vocab = (size_t)lm->model->config.vocab_size;
    bool has_experts = lm->model->config.n_experts > 0;
    size_t head_rows =
        o->compute == COMPUTE_F32 ? HEAD_ROWS_F32 : HEAD_ROWS_BF16;

    w->rows = larger(o->max_tokens, o->chunk      ? o->chunk
                                    : has_experts ? LM_CHUNK_EXPERTS
                                                  : LM_CHUNK);
    /* the examples' last blocks are not full: 48 for 1024 rows */
    w->n_blocks = w->rows / KV_BLOCK + w->rows / 32 + 1;
    w->head.rows = smaller(head_rows, larger(1, HEAD_BYTES / 4 / vocab));
    lm_ranks_sizes(lm);
    for (size_t i = 0; i < w->n_adapted; i++)
        w->sums.widest = larger(w->sums.widest, w->adapted[i].linear->out);
}

static struct lm_region *
add_region(struct lm_work *w, const char *name)
{
    struct lm_region *r = &w->region[w->n_regions++];

    *r = (struct lm_region){ .name = name };
    return r;
}

static void
add(struct lm_region *r, void *to, size_t rows, size_t cols, size_t size)
{
    r->array[r->n_arrays++] = (struct mem_array){ to, rows, cols, size };
}

static void
list_int8(const struct config *c, struct lm_work *w)
{
    size_t n = (size_t)(c->n_sparse * c->n_experts);
    size_t width = (size_t)c->expert_size, hidden = (size_t)c->hidden_size;
    struct lm_region *r = add_region(w, "the experts' weights in int8");

    add(r, &w->int8, n * 3 * width, hidden, 1);
    add(r, &w->int8_scale, n, 2 * width + hidden, 4);
}

/* Numbers of a token. */
struct widths {
    size_t hidden, heads, inter;
    size_t q, k, v, attended; /* of attention, or of what is in its place */
    size_t gates, q_low, kv_low, low;
    struct gdn_sizes gdn;
};

static struct widths
widths_of(const struct config *c)
{
    const struct gdn_sizes gdn = gdn_sizes(c);
    size_t heads = (size_t)c->n_heads, dv = (size_t)c->v_head_dim;
    size_t kv_low = (size_t)c->kv_rank;

    return (struct widths){
        .hidden = (size_t)c->hidden_size,
        .heads = heads,
        .inter = (size_t)c->widest_mlp,
        .q = larger(heads * (size_t)c->head_dim, gdn.channels),
        .k = (size_t)(c->n_kv_heads * c->head_dim),
        .v = (size_t)c->n_kv_heads * dv,
        .attended = larger(heads * dv, gdn.values),
        .gates = larger(c->form.out_gate ? heads * dv : 0, gdn.values),
        .q_low = (size_t)c->q_rank,
        .kv_low = kv_low,
        .low = c->form.mla ? kv_low + (size_t)c->rotary_dim : 0,
        .gdn = gdn,
    };
}

static void
list_activations(struct lm *lm, struct lm_work *w, const struct widths *of)
{
    const struct config *c = &lm->model->config;
    const struct model_form *f = &c->form;
    const struct gdn_sizes *gdn = &of->gdn;
    size_t n = w->rows, nb = w->n_blocks, hidden = of->hidden;
    struct activations *a = &w->acts;
    struct kv kv = cache_of(c);
    struct lm_region *r = add_region(w, "a layer's activations");

    add(r, &a->attn_in, n, hidden, 4);
    add(r, &a->qkv, n, larger(config_fused(c), gdn->fused), 4);
    add(r, &a->q_low, n, of->q_low, 4);
    add(r, &a->q_normed, n, of->q_low, 4);
    add(r, &a->kv_low, n, of->low, 4);
    add(r, &a->kv_normed, n, of->kv_low, 4);
    add(r, &a->q, n, of->q, 4);
    add(r, &a->k, n, larger(f->mla ? 0 : of->k, 2 * gdn->heads), 4);
    add(r, &a->v, n, of->v, 4);
    add(r, &a->q_rotated, n, of->q, 4);
    add(r, &a->k_rotated, n, of->k, 4);
    add(r, &a->attended, n, of->attended, 4);
    add(r, &a->out_gate, n, of->gates, 4);
    add(r, &a->gated, n, of->gates, 4);
    add(r, &a->beta, n, gdn->heads, 4);
    add(r, &a->decay, n, gdn->heads, 4);
    add(r, &a->slope, n, gdn->heads, 4);
    add(r, &a->states, n / GDN_BLOCK, gdn->values * (size_t)c->gdn.k_dim, 4);
    add(r, &a->scratch, (size_t)par_threads(w->par), gdn->scratch, 4);
    add(r, &a->lse, n, of->heads, 4);
    add(r, &a->attn_out, n, hidden, 4);
    add(r, &a->mlp_out, f->norm.places & NORM_POST ? n : 0, hidden, 4);
    add(r, &a->mid, n, hidden, 4);
    add(r, &a->mlp_in, n, hidden, 4);
    add(r, &a->gate, n, f->gate_up ? 2 * of->inter : of->inter, 4);
    add(r, &a->up, n, f->plain_mlp || f->gate_up ? 0 : of->inter, 4);
    add(r, &a->inner, n, of->inter, 4);
    add(r, &w->kv, nb, kv_block_nbytes(&kv), 1);
    add(r, &w->blocks, nb, 1, sizeof(*w->blocks));
    add(r, &w->sessions, n, 1, sizeof(*w->sessions));
}

static void
list_gradients(struct lm *lm, struct lm_work *w, const struct widths *of)
{
    const struct config *c = &lm->model->config;
    size_t n = w->rows, nb = w->n_blocks, hidden = of->hidden;
    size_t kv_heads = (size_t)c->n_kv_heads;
    size_t half = config_ropes(c) ? (size_t)c->rotary_dim / 2 : 0;
    bool outputs = c->form.norm.places & NORM_POST || c->residual_scale > 0;
    bool bf16 = w->options.compute == COMPUTE_BF16;
    const struct attention_sizes attention =
        attention_sizes((size_t)c->head_dim, (size_t)c->v_head_dim,
                        bf16 && attention_takes_bf16(c));
    struct block_grads *g = &w->grads;
    struct lm_region *r = add_region(w, "their gradients");

    add(r, &g->resid, n, hidden, 4);
    add(r, &g->output, outputs ? n : 0, hidden, 4);
    add(r, &g->input, n, hidden, 4);
    add(r, &g->inner, n, of->inter, 4);
    add(r, &g->attended, n, of->attended, 4);
    add(r, &g->q, n, of->q, 4);
    add(r, &g->beta, n, of->gdn.heads, 4);
    add(r, &g->decay, n, of->gdn.heads, 4);
    add(r, &g->q_low, n, of->q_low, 4);
    add(r, &g->kv_low, n, of->low, 4);
    add(r, &g->kv_normed, n, of->kv_low, 4);
    add(r, &g->k, n, of->k, 4);
    add(r, &g->v, n, of->v, 4);
    add(r, &g->sines_back, n, half, 4);
    add(r, &g->weights, n, c->n_experts ? (size_t)c->n_experts_used : 0, 4);
    add(r, &g->attention.delta, n, of->heads, 4);
    add(r, &g->attention.queries, nb * of->heads, attention.queries, 1);
    add(r, &g->attention.keys, nb * kv_heads, attention.keys, 1);
    add(r, &g->attention.tiles, (size_t)par_threads(w->par), attention.tile, 1);
}

/* All that is allocated here, whose pointers are in 'w'. */
static void
list_regions(struct lm *lm, struct lm_work *w)
{
    const struct config *c = &lm->model->config;
    const struct widths of = widths_of(c);
    size_t n = w->rows, hidden = of.hidden, rank = lm->lora.rank;
    size_t vocab = (size_t)c->vocab_size;
    size_t threads = (size_t)par_threads(w->par);
    bool bf16 = w->options.compute == COMPUTE_BF16;
    struct block_grads *g = &w->grads;
    struct lm_region *r;

    w->n_regions = 0;
    if (w->options.int8)
        list_int8(c, w);
    r = add_region(w, "the layers' inputs");
    add(r, &w->kept, n * ((size_t)c->n_layers + 1), hidden, 4);
    list_activations(lm, w, &of);
    list_gradients(lm, w, &of);
    r = add_region(w, "logits");
    add(r, &w->head.logits, w->head.rows, vocab, 4);
    add(r, &w->head.rounded, bf16 ? w->head.rows : 0,
        gemm_ld_bf16(LM_HEAD_PART), 2);
    add(r, &w->head.x, w->head.rows, hidden, 4);
    add(r, &w->head.in, w->head.rows, hidden, 4);
    add(r, &w->wanted, n, 1, sizeof(*w->wanted));
    r = add_region(w, "the adapter's gradients");
    add(r, &w->sums.copies, w->sums.n_copies, lm->n_params, 4);
    add(r, &w->swapped, LM_SWAPS, lm->n_params, 4);
    add(r, &g->low, n, rank, 4);
    add(r, &w->sums.high, n, rank, 4);
    add(r, &w->sums.low_t, n, rank, 4);
    add(r, &w->sums.high_t, n, rank, 4);
    add(r, &w->sums.b_t, threads * rank, w->sums.widest, 4);
    add(r, &w->segments, w->options.n_slices, 1, sizeof(*w->segments));
    if (w->exchange.n_window == 0)
        return;
    r = add_region(w, "exchange with other ranks");
    add(r, &w->exchange.sent, w->sums.n_copies, w->exchange.n_window, 4);
    add(r, &w->exchange.received, w->exchange.n_received, w->exchange.n_part,
        4);
}

static struct engine_options
engine_options(const struct lm *lm)
{
    return (struct engine_options){ .chunk = lm->work->rows,
                                    .compute = lm->work->options.compute,
                                    .kv = DT_F32,
                                    .bare = true };
}

int
lm_memory(const struct lm *lm, struct lm_memory *m, struct err *err)
{
    struct lm copy = *lm;
    struct lm_work work = *lm->work;
    struct model model = *lm->model;
    struct engine_options options = engine_options(lm);
    bool fits;

    *m = (struct lm_memory){ .n_items = 0 };
    model.lora_rank = lm->lora.rank;
    copy.work = &work;
    list_regions(&copy, &work);
    fits = engine_bare_nbytes(&model, par_threads(work.par), &options,
                              &m->item[0].nbytes);
    m->item[m->n_items++].name = "the products' workspace";
    for (size_t i = 0; i < work.n_regions; i++) {
        struct lm_region *r = &work.region[i];

        m->item[m->n_items].name = r->name;
        fits = fits && mem_arrays_nbytes(r->array, r->n_arrays,
                                         &m->item[m->n_items++].nbytes);
    }
    if (lm->model->packed.nbytes) {
        m->item[m->n_items].name = "packed weights, laid out";
        m->item[m->n_items++].nbytes = lm->model->packed.nbytes;
    }
    for (size_t i = 0; i < m->n_items; i++)
        fits = fits && size_add(m->total, m->item[i].nbytes, &m->total);
    for (size_t i = 0; i < lm->model->dir.n_files; i++)
        m->mapped += lm->model->dir.files[i].map.size;
    if (fits)
        return 0;
    return err_set(err, EX_DATAERR,
                   "the model's gradient takes more bytes than 64 bits can "
                   "count");
}

/* The values where the engine finds them. */
static void
bind(struct lm *lm)
{
    const float *values = LM_SWAPS ? lm->work->swapped : lm->work->values;
    struct adapter *adapter = xcalloc(1, sizeof(*adapter));
    struct lm_work *w = lm->work;
    struct model *m = lm->model;
    double root = sqrt((double)lm->lora.rank);
    double scale =
        lm->lora.alpha / (lm->lora.rslora ? root : (double)lm->lora.rank);

    adapter->next = m->adapters;
    m->adapters = adapter;
    adapter->parts = w->parts = xcalloc(w->n_adapted, sizeof(*w->parts));
    m->lora_rank = 0;
    for (size_t i = 0; i < w->n_adapted; i++) {
        const struct lm_tensor *t = &lm->tensors[w->adapted[i].tensor];
        struct linear *l = w->adapted[i].linear;

        l->lora = NULL; /* init's */
        lora_bind(m, adapter, l,
                  &(struct lora){
                      .a = { .w = { values + t[0].first, DT_F32, t[0].cols },
                             .in = t[0].cols,
                             .out = t[0].rows },
                      .b = { .w = { values + t[1].first, DT_F32, t[1].cols },
                             .in = t[1].cols,
                             .out = t[1].rows },
                      .scale = (float)scale });
    }
}

int
lm_prepare(struct lm *lm, const float *values, struct err *err)
{
    const struct engine_options options = engine_options(lm);
    struct lm_work *w = lm->work;
    struct kv kv = cache_of(&lm->model->config);
    struct lm_memory memory;

    if (lm_memory(lm, &memory, err))
        return -1;
    w->values = values;
    list_regions(lm, w);
    for (size_t i = 0; i < w->n_regions; i++) {
        struct lm_region *r = &w->region[i];

        r->data = mem_arrays(r->array, r->n_arrays, &r->nbytes, r->name, err);
        if (!r->data)
            return -1;
    }
    bind(lm);
    if (engine_open(&w->engine, lm->model, w->par, &options, err))
        return -1;
    for (size_t i = 0; i < w->n_blocks; i++)
        w->blocks[i] = w->kv + i * kv_block_nbytes(&kv);
    for (size_t i = 0; i < w->rows; i++)
        w->sessions[i] = (struct session){ .engine = w->engine, .kv = kv };
    if (!(lm->model->config.form.norm.places & NORM_POST))
        w->acts.mlp_out = w->acts.attn_out;
    if (lm->model->config.form.gate_up)
        w->acts.up = w->acts.gate + lm->model->config.widest_mlp;
    if (w->options.int8 && lm_quantize(lm, err))
        return -1;
    w->grads.linear = lm_sums_add;
    w->grads.ctx = lm;
    lm->grad = w->sums.copies;
    return 0;
}

void
lm_free(struct lm *lm)
{
    struct lm_work *w = lm->work;

    for (size_t i = 0; i < w->n_regions; i++)
        mem_big_free(w->region[i].data, w->region[i].nbytes, 1);
    engine_close(w->engine);
}
