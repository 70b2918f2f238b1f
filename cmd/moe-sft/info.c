/* SPDX-License-Identifier: ISC */
/* info: shapes, bytes, and the memory that a run needs. */
#include "cmd/moe-sft/adapter.h"
#include "cmd/moe-sft/base.h"
#include "cmd/moe-sft/batch.h"
#include "cmd/moe-sft/run.h"
#include "cmd/moe-sft/verbs.h"
#include "core/kernel/cpu.h"
#include "core/model/moe.h"
#include "core/out.h"
#include "core/pyjson.h"
#include "core/str.h"

/* "name<TAB>value" lines or, with --json, the members of one object. */
struct report {
    struct str s;
    bool json;
    bool has_members; /* the next one needs a comma */
};

static void
put_key(struct report *r, const char *key)
{
    if (r->json)
        str_addf(&r->s, "%s\"%s\": ", r->has_members ? ",\n " : "{", key);
    else
        str_addf(&r->s, "%s\t", key);
    r->has_members = true;
}

static void
put_size(struct report *r, const char *key, size_t v)
{
    put_key(r, key);
    str_addf(&r->s, r->json ? "%zu" : "%zu\n", v);
}

static void
put_word(struct report *r, const char *key, const char *v)
{
    put_key(r, key);
    str_addf(&r->s, r->json ? "\"%s\"" : "%s\n", v);
}

static size_t
first_nonzero(size_t a, size_t b, size_t c)
{
    return a ? a : b ? b : c;
}

/* The files' sizes first, then the options', then the defaults; but --top-k and
 * --length go before what a file says. */
static struct moe_config
sizes_of(const struct cmd *cmd, const struct base *base,
         const struct expert_adapter *a, const struct batch *batch)
{
    struct moe_config c = {
        .n_experts = first_nonzero(base->n_experts, (size_t)cmd->n_experts,
                                   DEFAULT_EXPERTS),
        .hidden =
            first_nonzero(base->hidden, (size_t)cmd->hidden,
                          first_nonzero(batch->hidden, 0, DEFAULT_HIDDEN)),
        .intermediate =
            first_nonzero(base->intermediate, (size_t)cmd->intermediate,
                          DEFAULT_INTERMEDIATE),
        .top_k = first_nonzero((size_t)cmd->top_k, batch->top_k,
                               first_nonzero(base->top_k, 0, DEFAULT_TOP_K)),
        .lora_rank = first_nonzero(a->rank, (size_t)cmd->rank, DEFAULT_RANK),
        .lora_alpha = a->rank ? a->alpha : (float)cmd->alpha,
        .max_len =
            first_nonzero((size_t)cmd->length, batch->qlen, DEFAULT_LENGTH),
        .max_cache_depth = first_nonzero((size_t)cmd->depth, 0, 1),
        .n_parts = (size_t)cmd->n_parts,
    };

    if (!cmd->base && a->rank) {
        c.n_experts = a->n_experts;
        c.hidden = a->hidden;
        c.intermediate = a->intermediate;
    }
    return c;
}

int
info_main(const struct cmd *cmd, struct err *err)
{
    struct report r = { .json = cmd->json };
    struct base base = { 0 };
    struct expert_adapter a = { 0 };
    struct batch batch = { 0 };
    struct moe_config c;
    struct moe_memory m;
    size_t lora_nbytes = 0;
    int rc = -1;

    if ((cmd->base && base_open(&base, cmd->base, cmd->layer, err) < 0) ||
        (cmd->lora &&
         adapter_open(&a, cmd->lora, cmd->base ? &base : NULL, err) < 0) ||
        (cmd->input && batch_open(&batch, cmd->input, 0, base.hidden, err) < 0))
        goto out;
    c = sizes_of(cmd, &base, &a, &batch);
    if (base_mode(&base, cmd->mode, &c.mode, err) < 0)
        goto out;
    put_size(&r, "experts", c.n_experts);
    put_size(&r, "top_k", c.top_k);
    put_size(&r, "hidden", c.hidden);
    put_size(&r, "intermediate", c.intermediate);
    put_size(&r, "lora_rank", c.lora_rank);
    put_key(&r, "lora_alpha");
    py_float_repr(&r.s, (double)c.lora_alpha);
    str_adds(&r.s, r.json ? "" : "\n");
    put_size(&r, "max_len", c.max_len);
    put_size(&r, "depth", c.max_cache_depth);
    put_size(&r, "parts", c.n_parts);
    put_word(&r, "mode", mode_names[c.mode]);
    put_word(&r, "isa", isa_name(cpu_isa()));
    put_size(&r, "threads", (size_t)cmd->n_threads);
    if (base.n_experts) {
        put_word(&r, "base_dtype",
                 base.type ? base.type
                           : dtype_table[base.matrices->dtype].name);
        put_size(&r, "base_nbytes", base_nbytes(&base));
        put_word(&r, "base_form", base.stacked ? "stacked" : "folder");
        if (base.layer >= 0)
            put_size(&r, "layer", (size_t)base.layer);
        put_word(&r, "router", base.router.weight.data ? "yes" : "no");
    }
    for (enum moe_lora_matrix i = 0; i < MOE_N_LORA && a.rank; i++)
        lora_nbytes += a.n_experts * adapter_size(&a, i) * sizeof(*a.m[i]);
    if (a.rank)
        put_size(&r, "lora_nbytes", lora_nbytes);
    if (moe_memory(&c, cmd->n_threads, &m, err) < 0)
        goto out;
    put_size(&r, "memory_base", m.base);
    put_size(&r, "memory_load", m.load);
    put_size(&r, "memory_slot", m.slot);
    put_size(&r, "memory_cache", m.cache);
    put_size(&r, "memory_scratch", m.scratch);
    put_size(&r, "memory_total", m.total);
    put_size(&r, "origin_slot", m.origin_slot);
    str_adds(&r.s, r.json ? "}\n" : "");
    rc = out_put(cmd->output ? cmd->output : "-", cmd->out_flags | OUT_TABLE,
                 r.s.s, r.s.n, err);
out:
    str_free(&r.s);
    batch_close(&batch);
    adapter_close(&a);
    base_close(&base);
    return rc;
}
