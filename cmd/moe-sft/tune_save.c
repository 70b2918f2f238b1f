/* SPDX-License-Identifier: ISC */
/* moe-sft tune: DIR, with the adapter, the state and the log. */
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cmd/moe-sft/peft.h"
#include "cmd/moe-sft/tune.h"
#include "cmd/moe-sft/write.h"
#include "core/format/peft.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/out.h"
#include "core/outdir.h"
#include "core/tool.h"

static const char *const files[] = { PEFT_MODEL, PEFT_CONFIG,
                                     "best/" PEFT_MODEL, "best/" PEFT_CONFIG,
                                     OUTDIR_STATE };

/* ---- files ---- */

/* Matrix m of an expert among the tensors of a layer's experts. */
static void
read_expert(const struct peft_stacks *s, enum moe_lora_matrix m, size_t expert,
            float *to)
{
    const struct tune *t = s->of;
    const struct lm_tensor *of = &t->lm->tensors[s->first];

    while (of->at.expert != expert || of->at.part != PART_EXPERT_GATE + m / 2)
        of += 2;
    of += m % 2;
    memcpy(to, t->adamw.master + of->first, of->rows * of->cols * sizeof(*to));
}

/* The experts of a layer, whose first tensor is i: of how many tensors; 0: it
 * is none of stacked experts. */
static size_t
find_stacks(struct peft_stacks *s, const struct tune *t, size_t i)
{
    const struct lm *lm = t->lm;
    const struct config *c = &lm->model->config;
    const struct family_stack *stack = family_stack(c->family);
    const struct lm_tensor *of = &lm->tensors[i];

    if (!lm->model->stacked || of->at.part < PART_EXPERT_GATE)
        return 0;
    *s = (struct peft_stacks){ .root = lm->model->root,
                               .layer = of->at.layer,
                               .n_experts = (size_t)c->n_experts,
                               .rank = lm->lora.rank,
                               .hidden = (size_t)c->hidden_size,
                               .intermediate = (size_t)c->expert_size,
                               .parts = lm->lora.targets >> LM_GATE & 7,
                               .take_turns = stack->in_out,
                               .dtype = DT_F32,
                               .read = read_expert,
                               .of = t,
                               .first = i };
    return 2 * s->n_experts * (size_t)__builtin_popcount(s->parts);
}

/* A file of the adapter's tensors with these numbers, not committed; NULL with
 * 'err' set.  'loss' NULL: it is PEFT's, which has stacked experts as such. */
static struct stw *
write_tensors_of(const struct tune *t, const float *values, const double *loss,
                 const char *path, int flags, struct err *err)
{
    struct peft_stacks s;
    const struct lm *lm = t->lm;
    struct stw *w = stw_new();
    float scalar = loss ? (float)*loss : 0;
    struct str text = { 0 };
    int rc = 0, scalar_at = 0, at = 0;

    stw_meta(w, "format", "pt");
    str_addf(&text, "%.9g", (double)scalar);
    if (loss)
        stw_meta(w, "loss", text.s);
    for (size_t i = 0, n; rc >= 0 && i < lm->n_tensors; i += n ? n : 1) {
        const uint64_t shape[] = { lm->tensors[i].rows, lm->tensors[i].cols };

        n = loss ? 0 : find_stacks(&s, t, i);
        rc = n ? peft_add_stacks(w, &s, err)
               : stw_add(w, lm->tensors[i].name, DT_F32, 2, shape, err);
    }
    if (rc >= 0 && loss)
        rc = scalar_at = stw_add(w, "loss", DT_F32, 0, NULL, err);
    if (rc >= 0)
        rc = stw_open(w, path, flags, err);
    for (size_t i = 0, n; rc == 0 && i < lm->n_tensors; i += n ? n : 1) {
        n = loss ? 0 : find_stacks(&s, t, i);
        rc = n ? peft_put_stacks(w, &at, &s, err)
               : stw_write_numbers(w, at++, values + lm->tensors[i].first,
                                   lm->tensors[i].rows * lm->tensors[i].cols, 4,
                                   err);
    }
    if (rc == 0 && loss)
        rc = stw_write_numbers(w, scalar_at, &scalar, 1, 4, err);
    str_free(&text);
    if (rc == 0)
        return w;
    stw_free(w);
    return NULL;
}

static int
commit(struct stw *w, struct err *err)
{
    int rc = w ? stw_commit(w, err) : -1;

    stw_free(w);
    return rc;
}

int
tune_write_grads(const struct tune *t, double loss, const char *path,
                 struct err *err)
{
    if (ranks_self(t->ranks) > 0)
        return 0;
    return commit(
        write_tensors_of(t, t->lm->grad, &loss, path, t->o.out_flags, err),
        err);
}

static int
write_adapter(const struct tune *t, const char *dir, int flags, struct err *err)
{
    const struct lm_lora *lora = &t->lm->lora;
    struct str names = { 0 }, path = { 0 }, stacks = { 0 };
    struct str rank = { 0 }, alpha = { 0 };
    unsigned modules = 0;
    unsigned parts = t->lm->model->stacked ? lora->targets >> LM_GATE & 7 : 0;
    int rc;

    for (size_t i = 0; i < t->lm->n_tensors; i++)
        if (!parts || t->lm->tensors[i].at.part < PART_EXPERT_GATE)
            modules |= 1u << t->lm->tensors[i].target;
    str_addc(&names, '[');
    lm_target_modules(&names, &t->config, modules, "\"");
    str_addc(&names, ']');
    str_addf(
        &stacks, "[%s%s%s]", parts & 3 ? "\"mlp.experts.gate_up_proj\"" : "",
        parts > 4 ? ", " : "", parts & 4 ? "\"mlp.experts.down_proj\"" : "");
    if ((parts & 3) == 3) { /* with the same scale */
        str_addf(&rank, "{\"mlp\\\\.experts\\\\.gate_up_proj\": %zu}",
                 2 * lora->rank);
        str_adds(&alpha, "{\"mlp\\\\.experts\\\\.gate_up_proj\": ");
        peft_put_alpha(&alpha, lora->alpha * (lora->rslora ? sqrt(2) : 2));
        str_addc(&alpha, '}');
    }

    struct peft_written config = { .base_model = t->o.tune.model,
                                   .rank = lora->rank,
                                   .alpha = lora->alpha,
                                   .rslora = lora->rslora,
                                   .in_out = t->config.form.in_out,
                                   .rank_pattern = rank.s,
                                   .alpha_pattern = alpha.s,
                                   .targets = names.s,
                                   .parameters = parts ? stacks.s : NULL };

    str_addf(&path, "%s/" PEFT_MODEL, dir);
    rc = commit(write_tensors_of(t, t->adamw.master, NULL, path.s, flags, err),
                err);
    if (rc == 0)
        rc = peft_write_config(&config, dir, flags, err);
    str_free(&path);
    str_free(&names);
    str_free(&stacks);
    str_free(&rank);
    str_free(&alpha);
    return rc;
}

int
tune_dir_best(struct tune *t, struct err *err)
{
    const struct eval_list *e = &t->run.state.evals;
    double loss = e->list[e->n - 1].loss, lowest = INFINITY;
    struct str path = { 0 };

    if (ranks_self(t->ranks) > 0)
        return 0;
    str_addf(&path, "%s/" PEFT_MODEL, t->best_path.s);
    if (file_missing(path.s)) /* not written yet, or deleted */
        t->best_from = e->n - 1;
    str_free(&path);
    for (size_t i = t->best_from; i + 1 < e->n; i++)
        lowest = fmin(lowest, e->list[i].loss);
    if (loss >= lowest)
        return 0;
    if (outdir_make(t->best_path.s, NULL, err) < 0)
        return -1;
    return write_adapter(t, t->best_path.s, OUT_RUN, err);
}

/* ---- the run ---- */

/* Is DIR one that this run may use? */
int
tune_dir_check(const struct tune *t, struct err *err)
{
    const char *dir = t->o.output;
    struct str adapter = { 0 };
    struct stat st;
    int rc = 0;

    if (outdir_check_name(dir, err) < 0)
        return -1;
    if (lstat(dir, &st) < 0)
        return 0;
    if (file_same(dir, t->o.tune.model))
        return err_set(err, TU_USAGE, "-o %s is the model's own directory",
                       dir);
    if (!t->run.resume && !t->run.force)
        return train_run_taken(dir, err);
    /* an adapter that no run of ours has left is not for us to replace */
    str_addf(&adapter, "%s/" PEFT_MODEL, dir);
    if (t->run.resume && !t->run.force && file_missing(t->run.state_path.s) &&
        file_missing(t->run.log_path.s) && !file_missing(adapter.s))
        rc = err_set(err, EX_NOINPUT,
                     "%s: has no state.safetensors, from which --resume "
                     "continues (--init begins with an adapter)",
                     dir);
    str_free(&adapter);
    return rc;
}

/* No file that is read is replaced, and the picture is none of the others, nor
 * in DIR/best, which a run without --keep-best removes. */
static int
claim_files(struct tune *t, struct err *err)
{
    const char *svg = t->o.train.svg;

    if (train_run_claim(&t->run, err) < 0)
        return -1;
    if (svg && (file_same(svg, t->best_path.s) ||
                (!t->o.tune.keep_best && file_is_in(svg, t->best_path.s))))
        return err_set(err, TU_USAGE, "--svg %s: is in a directory of the run",
                       svg);
    return 0;
}

int
tune_dir_open(struct tune *t, struct err *err)
{
    t->run.log.svg = t->o.train.svg;
    if (t->o.tune.eval)
        t->run.log.evals = &t->run.state.evals;
    if (ranks_self(t->ranks) == 0 &&
        (tune_dir_check(t, err) < 0 || claim_files(t, err) < 0))
        return -1;
    if (train_run_open(&t->run, err) < 0)
        return -1;
    tune_drop_extra(t);
    return train_run_begin(&t->run, err);
}

/* The adapter in DIR, whose state has no name yet. */
static int
write_run(void *of, struct err *err)
{
    struct tune *t = of;

    /* what an earlier run left there is not this one's best */
    if (!t->run.any_saved && !t->o.tune.keep_best &&
        !file_missing(t->best_path.s) &&
        out_remove_dir(AT_FDCWD, t->best_path.s) < 0)
        return err_sys(err, EX_CANTCREAT, "%s: cannot be removed",
                       t->best_path.s);
    return write_adapter(t, t->o.output, OUT_RUN, err);
}

void
tune_dir_init(struct tune *t)
{
    struct train_run *r = &t->run;

    train_run_init(r, t->o.output);
    r->what = "tune";
    r->files = files;
    r->n_files = sizeof(files) / sizeof(*files);
    r->resume = t->o.train.resume;
    r->force = t->o.out_flags & OUT_FORCE;
    r->save_every = t->o.train.save_every;
    r->print_every = t->o.tune.log_every;
    r->ranks = t->ranks;
    r->print = tool_print;
    r->write = write_run;
    r->of = t;
    r->log.unit = "nats per target token";
    r->log.table = &train_step_table;
    str_addf(&t->best_path, "%s/best", t->o.output);
}

void
tune_dir_undo(const struct tune *t)
{
    if (t->run.is_new && !t->run.any_saved)
        out_remove_dir(AT_FDCWD, t->best_path.s);
    train_run_undo(&t->run);
}
