#include "cmd/sae-train/save.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/format/sae.h"
#include "core/format/stw.h"
#include "core/inuse.h"
#include "core/kernel/cpu.h"
#include "core/kernel/gemm.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/out.h"
#include "core/outdir.h"

/* All that a run may leave. */
static const char *const files[] = { "cfg.json", SAE_SPARSIFY_FILE,
                                     SAE_SAELENS_FILE, OUTDIR_STATE,
                                     "log.tsv" };
#define N_FILES 5

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
file_path(const struct planned *p, const char *name, struct str *path)
{
    str_clear(path);
    str_addf(path, "%s/%s", p->dir.s, name);
}

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
    p->state = (struct train_state){
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
save_claim(const struct planned *p, bool resume, struct err *err)
{
    const char *svg = p->svg_path.n ? p->svg_path.s : NULL;

    if (outdir_claim(p->dir.s, files, N_FILES, resume, err) < 0)
        return -1;
    return svg && (inuse_check(svg, err) < 0 ||
                   inuse_claim(svg, resume, err) < 0)
               ? -1
               : 0;
}

/* Is an earlier run there?  It is replaced with --force alone. */
static int
find_files(const struct planned *p, const struct train_cmd *cmd, bool *found,
           struct err *err)
{
    struct str path = { 0 };
    int rc = 0;

    for (int i = 0; i < N_FILES && rc == 0 && !cmd->resume; i++) {
        file_path(p, files[i], &path);
        if (file_missing(path.s))
            continue;
        *found = true;
        if (!(cmd->out_flags & OUT_FORCE))
            rc = out_exists(path.s, err);
    }
    str_free(&path);
    return rc;
}

/* Its places in the input, and rows, which become whole numbers. */
static int
check_state(const struct planned *p, struct err *err)
{
    const double *in = p->input, limit = 0x1p53;
    double rows =
        p->state.step ? train_state_at(&p->state, p->state.step - 1)[0] : 0;

    if (in[BEFORE] >= 0 && in[BEFORE] <= in[AFTER] && in[AFTER] < limit &&
        rows >= 0 && rows < limit)
        return 0;
    return err_set(err, EX_DATAERR, "%s: its places in the input are no such",
                   p->state_path.s);
}

int
save_open(struct planned *p, const struct train_cmd *cmd, struct err *err)
{
    struct sae_trainer *t = &p->trainer;
    struct train_log log = { .path = p->log_path.s,
                             .title = p->dir.s,
                             .svg = p->svg_path.n ? p->svg_path.s : NULL,
                             .unit = "FVU + C aux",
                             .table = &table,
                             .each = p->o.log_every,
                             .fd = -1 };

    if (outdir_lock(p->dir.s, "sae-train", &p->lock, &p->n_old, err) < 0 ||
        find_files(p, cmd, &log.replaces, err) < 0)
        return -1;
    set_state(p, cmd);
    if (p->has_state && train_state_read(&p->state, p->state_path.s, err) < 0)
        return -1;
    if (p->has_state && check_state(p, err) < 0)
        return -1;
    if (p->state.step) {
        t->step = p->saved = p->state.step;
        t->rows = (uint64_t)train_state_at(&p->state, t->step - 1)[0];
    }
    for (uint64_t i = 0; i < t->step; i++) {
        const struct sae_record *r = (const void *)train_state_at(&p->state, i);

        t->averaged += r->l0 > 0;
    }
    if (!(cmd->out_flags & OUT_FORCE) &&
        train_log_check(&log, cmd->resume, p->state.records,
                        (size_t)p->state.step, err) < 0)
        return -1;
    log.replaces |= cmd->out_flags & OUT_FORCE && train_log_exists(&log);
    p->log = log;
    p->made = !log.replaces;
    if (train_log_begin(&p->log, p->state.records, (size_t)p->state.step, err) <
        0)
        return -1;
    /* what is resumed has its options, also if it is killed soon; what is
     * replaced stays until there is a step */
    return p->has_state || log.replaces ? 0 : save_state(p, err);
}

int
save_state(struct planned *p, struct err *err)
{
    struct stw *w;
    int rc;

    w = train_state_write(&p->state, p->state_path.s, err);
    if (w)
        train_log_sync(&p->log);
    rc = w ? stw_commit(w, err) : -1;
    stw_free(w);
    if (rc == 0)
        p->saved = p->trainer.step;
    return rc < 0 ? -1
                  : train_log_draw(&p->log, p->state.records,
                                   (size_t)p->state.step, err);
}

int
save_result(struct planned *p, struct err *err)
{
    const struct sae_trainer *t = &p->trainer;
    const struct sae_write out = {
        .n = t->set.n,
        .in = t->set.d,
        .k = t->set.k,
        .encoder_weight = sae_encoder_weight(t, t->adamw.master),
        .encoder_bias = sae_encoder_bias(t, t->adamw.master),
        .decoder_weight = sae_decoder_weight(t, t->adamw.master),
        .decoder_bias = sae_decoder_bias(t, t->adamw.master),
        .activation = t->set.batchtopk ? "batchtopk" : "topk",
        .normalize = t->set.normalize,
        /* as readers keep it */
        .threshold = t->set.batchtopk ? (double)(float)sae_threshold(t) : -1,
        .hook = p->o.hook,
        .format = p->o.format == FORMAT_SAELENS ? SAE_SAELENS : SAE_SPARSIFY,
    };

    errno = p->log.error;
    if (errno)
        return err_sys(err, EX_IOERR, "%s: cannot be written", p->log_path.s);
    return sae_write(p->dir.s, &out, OUT_RUN, err);
}

void
save_undo(const struct planned *p)
{
    if (!p->saved && p->made) {
        train_log_remove(&p->log);
        unlink(p->state_path.s);
    }
    if (!p->saved)
        outdir_unmake(p->dir.s, p->n_old);
}
