/* SPDX-License-Identifier: ISC */
#include "cmd/sae-train/save.h"

#include "core/format/sae.h"
#include "core/kernel/cpu.h"
#include "core/kernel/gemm.h"
#include "core/out.h"
#include "core/outdir.h"

/* All that a run may leave, but for its log. */
static const char *const files[] = { OUTDIR_STATE, "cfg.json",
                                     SAE_SPARSIFY_FILE, SAE_SAELENS_FILE };

static const struct train_column columns[] = {
    { "rows", true }, { "loss", false },      { "fvu", false },
    { "aux", false }, { "l0", false },        { "dead", true },
    { "lr", false },  { "grad_norm", false },
};
static const struct train_table table = { columns,
                                          sizeof(columns) / sizeof(*columns),
                                          1 };
_Static_assert(sizeof(struct sae_record) ==
                   sizeof(columns) / sizeof(*columns) * sizeof(double),
               "a column for each number");

static void
set_state(struct planned *p, const struct train_cmd *cmd)
{
    struct sae_trainer *t = &p->trainer;
    const struct train_tensor tensors[N_TENSORS] = {
        { "encoder.weight", { t->set.n, t->set.d }, 2 },
        { "W_dec", { t->set.n, t->set.d }, 2 },
        { "encoder.bias", { t->set.n }, 1 },
        { "b_dec", { t->set.d }, 1 },
    };
    const struct train_numbers others[N_OTHERS] = {
        { "idle", t->idle, t->set.n },
        { "threshold", &t->threshold, 1 },
        { "input", p->input, 3 },
    };

    for (int i = 0; i < N_TENSORS; i++)
        p->tensors[i] = tensors[i];
    for (int i = 0; i < N_OTHERS; i++)
        p->others[i] = others[i];
    p->run.state = (struct train_state){
        .program = "sae-train",
        .format = "sae-train state 1",
        .arithmetic =
            p->trainer.set.bf16 ? isa_name(cpu_isa()) : GEMM_EXACT_ORDER,
        .any_isa = cmd->any_isa,
        .table = &table,
        .tensors = p->tensors,
        .n_tensors = N_TENSORS,
        .adamw = &t->adamw,
        .others = p->others,
        .n_others = N_OTHERS,
    };
    plan_set_state(p, cmd->line->tool);
}

int
save_claim(struct planned *p, const struct train_cmd *cmd, struct err *err)
{
    struct train_run *r = &p->run;

    r->what = "sae-train";
    r->files = files;
    r->n_files = sizeof(files) / sizeof(*files);
    r->resume = cmd->resume;
    r->force = cmd->out_flags & OUT_FORCE;
    r->save_every = cmd->save_every;
    r->log.svg = p->svg_path.n ? p->svg_path.s : NULL;
    r->log.unit = "FVU + C aux";
    r->log.table = &table;
    r->log.each = p->o.log_every;
    return train_run_claim(r, err);
}

/* Its places in the input, and rows, which become whole numbers. */
static int
check_state(const struct planned *p, struct err *err)
{
    const double *in = p->input, limit = 0x1p53;
    double rows = p->run.state.step
                      ? train_state_at(&p->run.state, p->run.state.step - 1)[0]
                      : 0;

    if (in[BEFORE] >= 0 && in[BEFORE] <= in[AFTER] && in[AFTER] < limit &&
        rows >= 0 && rows < limit)
        return 0;
    return err_set(err, EX_DATAERR, "%s: its places in the input are no such",
                   p->run.state_path.s);
}

int
save_open(struct planned *p, const struct train_cmd *cmd, struct err *err)
{
    struct sae_trainer *t = &p->trainer;
    struct train_run *r = &p->run;

    set_state(p, cmd);
    if (train_run_open(r, err) < 0 || check_state(p, err) < 0)
        return -1;
    if (r->state.step) {
        t->step = r->state.step;
        t->rows = (uint64_t)train_state_at(&r->state, t->step - 1)[0];
    }
    for (uint64_t i = 0; i < t->step; i++) {
        const struct sae_record *record =
            (const void *)train_state_at(&r->state, i);

        t->averaged += record->l0 > 0;
    }
    if (train_run_begin(r, err) < 0)
        return -1;
    if (r->any_saved || r->log.replaces)
        return 0;
    /* what is resumed has its options, also if it is killed soon, but one that
     * fails before its first step leaves nothing; what is replaced stays until
     * there is a step */
    if (train_run_save(r, err) < 0)
        return -1;
    r->any_saved = false;
    return 0;
}

int
save_result(const struct planned *p, const struct saev_mask *mask,
            struct err *err)
{
    const struct sae_trainer *t = &p->trainer;
    const struct sae_tensors of = sae_tensors(t, t->adamw.master);
    const struct sae_write out = {
        .n = t->set.n,
        .in = t->set.d,
        .k = t->set.k,
        .encoder_weight = of.encoder,
        .encoder_bias = of.encoder_bias,
        .decoder_weight = of.decoder,
        .decoder_bias = of.decoder_bias,
        .activation = t->set.batchtopk ? "batchtopk" : "topk",
        .normalize = t->set.normalize,
        /* as readers keep it */
        .threshold = t->set.batchtopk ? (double)(float)sae_threshold(t) : -1,
        .hook = p->o.hook,
        .mask = mask,
        .format = p->o.format == FORMAT_SAELENS ? SAE_SAELENS : SAE_SPARSIFY,
    };

    if (train_run_end(&p->run, err) < 0)
        return -1;
    return sae_write(p->dir.s, &out, OUT_RUN, err);
}
