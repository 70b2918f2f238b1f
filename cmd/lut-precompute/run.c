/* A run: the layers of a plan, each made, checked or estimated. */
#include <stdio.h>

#include "cmd/lut-precompute/digest.h"
#include "cmd/lut-precompute/index.h"
#include "cmd/lut-precompute/job.h"
#include "cmd/lut-precompute/plan.h"
#include "cmd/lut-precompute/run.h"
#include "cmd/lut-precompute/sae.h"
#include "cmd/lut-precompute/target.h"
#include "cmd/lut-precompute/tile.h"
#include "cmd/lut-precompute/verify.h"
#include "core/kernel/cpu.h"
#include "core/mem.h"
#include "core/out.h"
#include "core/outdir.h"
#include "core/sig.h"
#include "core/str.h"
#include "core/tool.h"

struct precompute_run {
    const struct precompute_cmd *cmd;
    struct target_model model;
    struct table_plan plan;
    struct threads threads;
    struct gemm *gemm;
    struct progress progress;
    uint64_t done;   /* operations */
    uint64_t nbytes; /* of --dry-run, as */
    double gflop;
    size_t n_made, n_kept;
    bool differs, header;
    double rate; /* GFLOP/s, of a probe */
};

/* With those above it. */
static int
make_folder(const char *path, struct err *err)
{
    struct str s = { 0 };
    int rc = 0;

    for (const char *p = path; rc == 0 && *p; p++) {
        if (p == path || *p != '/')
            continue;
        str_clear(&s);
        str_add(&s, path, (size_t)(p - path));
        rc = outdir_make(s.s, err);
    }
    if (rc == 0)
        rc = outdir_make(path, err);
    str_free(&s);
    return rc;
}

/* Of its products. */
static uint64_t
operations(const struct layer_job *job)
{
    return 2 * (uint64_t)job->sae->n * job->target->in * job->target->out;
}

static double
gflop(const struct layer_job *job)
{
    return 1e-9 * (double)operations(job);
}

/* 1 where another run with --resume has made the same file meanwhile. */
static int
make_file(struct precompute_run *run, struct layer_job *job, struct err *err)
{
    struct tiles tiles;
    struct err other;
    int rc;

    digests_start(&job->digests, run->threads.hashing);
    if (tiles_open(&tiles, run->cmd, run->gemm, job->target, job->sae, err) < 0)
        return -1;
    rc = job_write(job, &run->threads, &tiles, &run->progress, &run->done, err);
    tiles_close(&tiles);
    if (rc == 0 || err->status != EX_CANTCREAT || !run->cmd->resume)
        return rc;
    rc = job_is_there(job, &run->threads, &other);
    if (rc < 0 && other.status == EX_TEMPFAIL)
        *err = other;
    return rc > 0 ? 1 : -1;
}

static int
make(struct precompute_run *run, struct layer_job *job, struct err *err)
{
    int there = job_is_there(job, &run->threads, err), rc = 0;
    uint64_t before = run->done;

    if (there == 0)
        there = make_file(run, job, err);
    if (there < 0)
        return -1;
    if (run->done == before) /* as when it was kept */
        run->progress.kept += operations(job);
    run->done = before + operations(job);
    progress_at(&run->progress, run->done);
    if (there)
        out_sweep(job->path.s);
    run->n_made += !there;
    run->n_kept += (size_t)there;
    if (run->cmd->verbose) {
        char size[16];

        tool_say("%s: %zu -> %zu, N %zu, k %zu, %s, %s", job->target->name,
                 job->target->in, job->target->out, job->sae->n, job->k,
                 size_iec(size, job_nbytes(job)), there ? "kept" : "made");
    }
    if (run->cmd->verify)
        rc = job_verify(job, run->threads.par, &run->header, err);
    run->differs |= rc > 0;
    return rc < 0 ? -1 : 0;
}

static void
put_header(void)
{
    printf("layer\tin\tout\tnum_basis\tk\tbytes\tGFLOP\tseconds\n");
}

/* --dry-run: a line of the table. */
static int
estimate(struct precompute_run *run, struct layer_job *job, struct err *err)
{
    struct tiles tiles;

    if (run->rate == 0) {
        if (tiles_open(&tiles, run->cmd, run->gemm, job->target, job->sae,
                       err) < 0)
            return -1;
        run->rate = tiles_probe(&tiles);
        tiles_close(&tiles);
    }
    if (run->gflop == 0)
        put_header();
    printf("%s\t%zu\t%zu\t%zu\t%zu\t%llu\t%.6g\t%.3g\n", job->target->name,
           job->target->in, job->target->out, job->sae->n, job->k,
           (unsigned long long)job_nbytes(job), gflop(job),
           gflop(job) / run->rate);
    run->nbytes += job_nbytes(job);
    run->gflop += gflop(job);
    return 0;
}

/* One layer: its weights and its SAE are open while 'each' runs. */
static int
with_layer(struct precompute_run *run, const struct planned_table *work,
           int (*each)(struct precompute_run *run, struct layer_job *job,
                       struct err *err),
           struct err *err)
{
    struct target_layer target;
    struct sae sae;
    struct layer_job job = {
        .cmd = run->cmd, .model = &run->model, .target = &target, .sae = &sae
    };
    int rc;

    if (sig_stop())
        return job_stopped(err);
    rc = target_open(&target, &run->model, work->layer, err);
    if (rc <= 0)
        return rc;
    rc = -1;
    if (sae_open(&sae, work->sae, err) == 0) {
        if (job_open(&job, err) == 0)
            rc = each(run, &job, err);
        job_close(&job); /* before what its digests are of */
        sae_close(&sae);
    }
    target_close(&target);
    return rc;
}

static int
all_layers(struct precompute_run *run,
           int (*each)(struct precompute_run *run, struct layer_job *job,
                       struct err *err),
           struct err *err)
{
    for (size_t i = 0; i < run->plan.n; i++)
        if (with_layer(run, &run->plan.work[i], each, err) < 0)
            return -1;
    return 0;
}

static int
estimate_all(struct precompute_run *run, struct err *err)
{
    if (all_layers(run, estimate, err) < 0)
        return -1;
    if (run->gflop == 0)
        put_header();
    printf("total\t-\t-\t-\t-\t%llu\t%.6g\t%.3g\n",
           (unsigned long long)run->nbytes, run->gflop,
           run->gflop > 0 ? run->gflop / run->rate : 0);
    return 0;
}

/* Before the first product: is everything there, does it fit? */
static int
look(struct precompute_run *run, struct layer_job *job, struct err *err)
{
    (void)err;
    if (job->sae->unsure)
        err_warn("%s: does not say input_centering: it is taken to encode x, "
                 "not x - decoder_bias",
                 job->sae->path);
    run->progress.total += operations(job);
    return 0;
}

/* -v: "HOST, avx2, 2 threads, shard 0/4". */
static void
say_setup(const struct precompute_run *run)
{
    const struct precompute_cmd *cmd = run->cmd;
    struct str shard = { 0 };

    if (cmd->n_parts)
        str_addf(&shard, ", shard %llu/%llu", (unsigned long long)cmd->part,
                 (unsigned long long)cmd->n_parts);
    tool_say("%s, %s, %d threads%s", tool_host(), isa_name(cpu_isa()),
             cmd->n_threads, shard.s ? shard.s : "");
    str_free(&shard);
}

static int
make_all(struct precompute_run *run, struct err *err)
{
    struct err late;
    int rc;

    if (index_check(run->cmd->output, err) < 0 ||
        all_layers(run, look, err) < 0 ||
        make_folder(run->cmd->output, err) < 0)
        return -1;
    if (run->cmd->verbose)
        say_setup(run);
    run->progress.what = "products";
    run->progress.unit = "FLOP";
    run->progress.quiet = run->cmd->quiet;
    progress_start(&run->progress);
    rc = all_layers(run, make, err);
    progress_end(&run->progress);
    /* what is finished is usable, even if the rest is not */
    if (run->cmd->n_parts == 0 && (rc == 0 || run->n_made > 0) &&
        index_folder(run->cmd->output, false, rc < 0 ? &late : err) < 0)
        return -1;
    return rc;
}

static int
run_open(struct precompute_run *run, struct err *err)
{
    const struct precompute_cmd *cmd = run->cmd;
    struct threads *t = &run->threads;

    if (cpu_check(err) < 0 ||
        target_model_open(&run->model, cmd->model, err) < 0 ||
        plan_make(&run->plan, cmd, &run->model, err) < 0 ||
        par_open(&t->par, cmd->n_threads, err) < 0)
        return -1;
    if (cmd->n_threads > 1 && (par_worker_open(&t->writing, err) < 0 ||
                               par_worker_open(&t->hashing, err) < 0))
        return -1;
    return gemm_open(&run->gemm, t->par, err);
}

int
run_all(const struct precompute_cmd *cmd, struct err *err)
{
    struct precompute_run run = { .cmd = cmd };
    int rc = run_open(&run, err);

    if (rc == 0)
        rc = cmd->dry_run ? estimate_all(&run, err) : make_all(&run, err);
    gemm_close(run.gemm);
    par_worker_close(run.threads.hashing);
    par_worker_close(run.threads.writing);
    par_close(run.threads.par);
    plan_free(&run.plan);
    target_model_close(&run.model);
    return rc < 0 ? -1 : run.differs ? TU_NEGATIVE : 0;
}
