/* SPDX-License-Identifier: ISC */
/* A run: the layers of a plan, each made, checked or estimated. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/lut-precompute/job.h"
#include "core/clock.h"
#include "core/kernel/cpu.h"
#include "core/mem.h"
#include "core/model/autoencoder.h"
#include "core/model/splice.h"
#include "core/out.h"
#include "core/outdir.h"
#include "core/sig.h"
#include "core/tool.h"

struct precompute_run {
    const struct precompute_cmd *cmd;
    struct target_model model;
    struct table_plan plan;
    struct job_threads threads;
    struct progress progress;
    uint64_t done;   /* operations */
    uint64_t nbytes; /* of --dry-run, as */
    double gflop;
    size_t n_made;
    bool differs, header;
    double rate; /* GFLOP/s, of a probe */
};

/* Before the first product: does everything exist, and fit? */
static int
look(struct precompute_run *run, struct layer_job *job, struct err *err)
{
    const struct sae *s = job->sae;

    (void)err;
    if (s->unsure)
        err_warn("%s: does not say input_centering: it is assumed to encode x, "
                 "not x - decoder_bias",
                 s->path);
    splice_compare(s, job->target->name, NULL);
    if (sae_without_any(&s->without))
        err_warn("%s: was trained without some rows (%s), which a table of it "
                 "approximates, too",
                 s->path,
                 s->without.special || s->without.n_ids
                     ? "exclude_special_tokens"
                 : s->without.is_slice ? "seqpos_slice"
                                       : "max_norm");
    if (!job->over && (s->thresholds || s->activation == SAE_RELU))
        err_warn("%s: its latents are active over thresholds: by --k the table "
                 "takes the %zu largest instead",
                 s->path, job->k);
    if (!job->over && s->activation == SAE_BATCHTOPK && !run->cmd->k)
        err_warn("%s: is BatchTopK without a threshold: the table takes the "
                 "%zu largest of each row",
                 s->path, job->k);
    run->progress.total += job_flop(job);
    return 0;
}

static int
make(struct precompute_run *run, struct layer_job *job, struct err *err)
{
    int kept = job_exists(job, &run->threads, err), rc = 0;
    uint64_t before = run->done;
    struct err other;

    if (kept == 0 &&
        job_write(job, &run->threads, &run->progress, &run->done, err) < 0) {
        if (err->status != EX_CANTCREAT || !run->cmd->resume)
            return -1;
        /* another run with --resume may have made the same file meanwhile */
        kept = job_exists(job, &run->threads, &other);
        if (kept < 0 && other.status == EX_TEMPFAIL)
            *err = other;
        kept = kept > 0 ? 1 : -1;
    }
    if (kept < 0)
        return -1;
    if (run->done == before) /* as when it was kept */
        run->progress.kept += job_flop(job);
    run->done = before + job_flop(job);
    progress_at(&run->progress, run->done);
    if (kept)
        out_sweep(job->path.s);
    else
        run->n_made++;
    if (run->cmd->verbose) {
        char size[16], k[32] = "thresholds";

        if (!job->over)
            snprintf(k, sizeof(k), "k %zu", job->k);
        tool_say("%s: %zu -> %zu, N %zu, %s, %s, %s", job->target->name,
                 job->target->in, job->target->out, job->sae->n, k,
                 size_iec(size, job_nbytes(job)), kept ? "kept" : "made");
    }
    if (run->cmd->verify)
        rc = job_verify(job, run->threads.par, &run->header, err);
    run->differs |= rc > 0;
    return rc < 0 ? -1 : 0;
}

static void
print_header(struct precompute_run *run)
{
    if (!run->header)
        tool_put("layer\tin\tout\tnum_basis\tk\tbytes\tGFLOP\tseconds\n");
    run->header = true;
}

/* --dry-run: a line of the table. */
static int
estimate(struct precompute_run *run, struct layer_job *job, struct err *err)
{
    double gflop = 1e-9 * (double)job_flop(job);
    char k[24] = "-";

    if (run->rate == 0 && tiles_probe(job, &run->threads, &run->rate, err) < 0)
        return -1;
    if (!job->over)
        snprintf(k, sizeof(k), "%zu", job->k);
    print_header(run);
    tool_put("%s\t%zu\t%zu\t%zu\t%s\t%llu\t%.6g\t%.3g\n", job->target->name,
             job->target->in, job->target->out, job->sae->n, k,
             (unsigned long long)job_nbytes(job), gflop, gflop / run->rate);
    run->nbytes += job_nbytes(job);
    run->gflop += gflop;
    return 0;
}

/* Calls 'each' for every layer, with its weights and its SAE open. */
static int
for_layers(struct precompute_run *run,
           int (*each)(struct precompute_run *run, struct layer_job *job,
                       struct err *err),
           struct err *err)
{
    int rc = 0;

    for (size_t i = 0; i < run->plan.n && rc >= 0; i++) {
        struct target_layer target;
        struct sae sae;
        struct layer_job job = { .cmd = run->cmd,
                                 .model = &run->model,
                                 .target = &target,
                                 .sae = &sae };

        if (sig_stop())
            return job_stopped(err);
        rc = target_open(&target, &run->model, run->plan.work[i].layer, err);
        if (rc <= 0)
            continue;
        rc =
            sae_open_plain(&sae, run->plan.work[i].sae, run->model.family, err);
        if (rc == 0) {
            rc = job_open(&job, err) < 0 ? -1 : each(run, &job, err);
            job_close(&job); /* before what its digests are of */
            sae_close(&sae);
        }
        target_close(&target);
    }
    return rc < 0 ? -1 : 0;
}

static int
make_all(struct precompute_run *run, struct err *err)
{
    const struct precompute_cmd *cmd = run->cmd;
    struct str shard = { 0 };
    struct err other;
    double made = 0; /* seconds, if progress was drawn */
    size_t n_old;
    int rc;

    if (run->plan.n == 0) { /* of --shard I/N with fewer layers */
        err_warn("--shard %llu/%llu: has no layer, and makes nothing",
                 (unsigned long long)cmd->part,
                 (unsigned long long)cmd->n_parts);
        return 0;
    }
    if (index_check(cmd->output, err) < 0 || for_layers(run, look, err) < 0 ||
        outdir_make(cmd->output, &n_old, err) < 0)
        return -1;
    if (cmd->n_parts)
        str_addf(&shard, ", shard %llu/%llu", (unsigned long long)cmd->part,
                 (unsigned long long)cmd->n_parts);
    if (cmd->verbose)
        tool_say("%s, %s, %d thread%s%s", tool_host(), isa_name(cpu_isa()),
                 cmd->n_threads, plural((uint64_t)cmd->n_threads),
                 shard.n ? shard.s : "");
    str_free(&shard);
    run->progress.what = "products";
    run->progress.unit = "FLOP";
    run->progress.quiet = cmd->quiet;
    progress_start(&run->progress);
    rc = for_layers(run, make, err);
    if (run->progress.dirty && rc == 0)
        made = clock_s() - run->progress.started;
    progress_end(&run->progress);
    if (made > 0)
        tool_say("%s: %zu table%s made in %.0f s", cmd->output, run->n_made,
                 plural(run->n_made), made);
    /* but tasks of an array may just be about to write there */
    if (rc < 0 && run->n_made == 0 && cmd->n_parts == 0)
        outdir_unmake(cmd->output, n_old);
    /* what is finished is usable, even if the rest is not */
    if (cmd->n_parts == 0 && (rc == 0 || run->n_made > 0) &&
        index_write(cmd->output, false, rc < 0 ? &other : err) < 0)
        return -1;
    return rc;
}

int
run_all(const struct precompute_cmd *cmd, struct err *err)
{
    struct precompute_run run = { .cmd = cmd };
    struct job_threads *t = &run.threads;
    int rc = -1;

    if (cpu_check(err) == 0 &&
        target_model_open(&run.model, cmd->model, err) == 0 &&
        plan_make(&run.plan, cmd, &run.model, err) == 0 &&
        par_open(&t->par, cmd->n_threads, err) == 0 &&
        gemm_open(&t->gemm, t->par, err) == 0 &&
        (cmd->n_threads == 1 || (par_worker_open(&t->writing, err) == 0 &&
                                 par_worker_open(&t->hashing, err) == 0)))
        rc = cmd->dry_run ? for_layers(&run, estimate, err)
                          : make_all(&run, err);
    if (rc == 0 && cmd->dry_run) {
        print_header(&run);
        tool_put("total\t-\t-\t-\t-\t%llu\t%.6g\t%.3g\n",
                 (unsigned long long)run.nbytes, run.gflop,
                 run.gflop > 0 ? run.gflop / run.rate : 0);
    }
    par_worker_close(t->hashing);
    par_worker_close(t->writing);
    gemm_close(t->gemm);
    par_close(t->par);
    plan_free(&run.plan);
    target_model_close(&run.model);
    return rc < 0 ? -1 : run.differs ? TU_NEGATIVE : 0;
}
