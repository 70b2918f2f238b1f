/* lut-precompute: the command line. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cmd/lut-precompute/cmd.h"
#include "cmd/lut-precompute/digest.h"
#include "cmd/lut-precompute/index.h"
#include "cmd/lut-precompute/job.h"
#include "cmd/lut-precompute/plan.h"
#include "cmd/lut-precompute/sae.h"
#include "cmd/lut-precompute/target.h"
#include "cmd/lut-precompute/tile.h"
#include "cmd/lut-precompute/verify.h"
#include "core/kernel/cpu.h"
#include "core/mem.h"
#include "core/out.h"
#include "core/outdir.h"
#include "core/sig.h"
#include "core/tool.h"

enum {
    O_LAYERS = OPT_LONG,
    O_FUSE,
    O_DTYPE,
    O_K,
    O_CENTERING,
    O_STORE_WEIGHTS,
    O_INDEX,
    O_RESUME,
    O_SHARD,
    O_VERIFY,
    O_DRY_RUN,
    O_DEADLINE,
};

static const struct opt opts[] = {
    { 'm', "model", "MODEL", NULL, OPT_NOTHING,
      "the model: a folder with config.json" },
    { 's', "sae", "SAE", NULL, OPT_NOTHING,
      "a checkpoint, or a folder with one for each layer" },
    { 'o', "output", "DIR", NULL, OPT_NOTHING,
      "the folder of tables (default MODEL/lut)" },
    { O_LAYERS, "layers", "GLOB,..", NULL, OPT_NOTHING,
      "only these, with or without model. before (default: all with an SAE)" },
    { O_FUSE, "fuse", "qkv|gate_up,..", NULL, OPT_NOTHING,
      "one table in place of several" },
    { O_DTYPE, "dtype", "bf16|f16|f32", NULL, OPT_NOTHING,
      "of the tables (default bf16)" },
    { O_K, "k", "K", NULL, OPT_NOTHING,
      "latents active at most (default: as the SAE says)" },
    { O_CENTERING, "centering", "fold|explicit", NULL, OPT_NOTHING,
      "fold it into the bias, or keep it explicit (default fold)" },
    { O_STORE_WEIGHTS, "store-weights", NULL, NULL, OPT_NOTHING,
      "the layer's weights, too: for compensation without the model" },
    { O_INDEX, "index", "DIR", NULL, OPT_NOTHING,
      "make metadata.json from the files" },
    { O_RESUME, "resume", NULL, NULL, OPT_NOTHING,
      "keep files that are there, of the same sources and options" },
    { O_SHARD, "shard", "I/N", NULL, OPT_NOTHING,
      "every N-th layer from the I-th (from 0), no metadata.json" },
    { O_VERIFY, "verify", NULL, NULL, OPT_NOTHING,
      "compare a sample of each file with sums in double precision" },
    { O_DRY_RUN, "dry-run", NULL, NULL, OPT_NOTHING,
      "print layers, bytes, GFLOP and seconds; write nothing" },
    { O_DEADLINE, "deadline", "SECONDS", NULL, OPT_NOTHING,
      "stop after that as SIGTERM does: status 75" },
    { 'j', "threads", "N", NULL, OPT_NOTHING,
      "threads (default: CPUs of this process)" },
    { 'f', "force", NULL, NULL, OPT_NOTHING, "replace files that are there" },
    { 'v', "verbose", NULL, NULL, OPT_NOTHING,
      "a line on stderr for each layer" },
    { 'q', "quiet", NULL, NULL, OPT_NOTHING, "no warnings, no progress" },
    { 0 },
};

static const struct opt_tool tool = {
    .name = "lut-precompute",
    .usage = "lut-precompute -m MODEL -s SAE [-o DIR] [OPTION...]\n"
             "lut-precompute --index DIR",
    .summary = "Makes lookup tables of linear layers from sparse "
               "autoencoders.",
    .opts = opts,
};

/* ---- the command line ---- */

static int
set_fuse(struct cmd *cmd, const char *arg, struct err *err)
{
    static const char *const words[] = { "qkv", "gate_up", NULL };
    char *list = xstrdup(arg), *save = NULL;
    int i = 0;

    for (char *s = strtok_r(list, ",", &save); s && i >= 0;
         s = strtok_r(NULL, ",", &save)) {
        i = opt_word("--fuse", s, words, err);
        cmd->fuse_qkv |= i == 0;
        cmd->fuse_gate_up |= i == 1;
    }
    if (!*arg)
        i = opt_word("--fuse", arg, words, err);
    free(list);
    return i < 0 ? -1 : 0;
}

static int
set_centering(struct cmd *cmd, const char *arg, struct err *err)
{
    static const char *const words[] = { "fold", "explicit", NULL };
    int i = opt_word("--centering", arg, words, err);

    cmd->keep_centering = i == 1;
    return i < 0 ? -1 : 0;
}

static int
set_deadline(const char *arg, struct err *err)
{
    double seconds;

    if (opt_f64("--deadline", arg, 0, 1e9, &seconds, err) < 0)
        return -1;
    sig_deadline(seconds);
    return 0;
}

static int
set_number(struct cmd *cmd, int id, const char *arg, struct err *err)
{
    int64_t n;

    if (id == O_SHARD)
        return opt_shard(arg, &cmd->part, &cmd->n_parts, err);
    if (id == O_DEADLINE)
        return set_deadline(arg, err);
    if (id == O_K) {
        if (opt_i64("--k", arg, 1, INT32_MAX, &n, err) < 0)
            return -1;
        cmd->k = (size_t)n;
        return 0;
    }
    if (opt_i64("-j", arg, 1, 1024, &n, err) < 0)
        return -1;
    cmd->n_threads = (int)n;
    return 0;
}

static int
set_value(struct cmd *cmd, int id, const char *arg, struct err *err)
{
    if (!*arg && (id == 'm' || id == 's' || id == 'o' || id == O_INDEX))
        return err_set(err, TU_USAGE, "%s: \"\" is no file's name",
                       id == 'm'   ? "-m"
                       : id == 's' ? "-s"
                       : id == 'o' ? "-o"
                                   : "--index");
    switch (id) {
    case 'm':
        cmd->model = arg;
        return 0;
    case 's':
        cmd->sae = arg;
        return 0;
    case 'o':
        cmd->output = arg;
        return 0;
    case O_INDEX:
        cmd->index = arg;
        return 0;
    case O_LAYERS:
        cmd->layers = arg;
        return 0;
    case O_FUSE:
        return set_fuse(cmd, arg, err);
    case O_DTYPE:
        return opt_dtype("--dtype", arg, &cmd->dtype, err);
    case O_CENTERING:
        return set_centering(cmd, arg, err);
    default:
        return set_number(cmd, id, arg, err);
    }
}

static int
set_option(struct cmd *cmd, int id, const char *arg, struct err *err)
{
    const struct opt_place places[] = {
        { O_STORE_WEIGHTS, &cmd->store_weights, NULL },
        { O_RESUME, &cmd->resume, NULL },
        { O_VERIFY, &cmd->verify, NULL },
        { O_DRY_RUN, &cmd->dry_run, NULL },
        { 'v', &cmd->verbose, NULL },
        { 'q', &cmd->quiet, NULL },
        { 0 },
    };

    if (opt_store(places, id, arg))
        return 0;
    if (id == 'f') {
        cmd->out_flags = OUT_FORCE;
        return 0;
    }
    return set_value(cmd, id, arg, err);
}

static void
parse(struct cmd *cmd, int argc, char **argv)
{
    struct err err;
    const char *arg;
    bool more = false; /* than --index uses */
    int id, index;

    while ((id = tool_opt(&tool, argc, argv, &arg, &index)) != -1) {
        if (set_option(cmd, id, arg, &err) < 0)
            die_err(&err);
        more |= id != O_INDEX && id != 'q' && id != 'v' && id != 'j';
    }
    if (index < argc)
        die_usage("\"%s\": no operands are taken", argv[index]);
    if (cmd->index) {
        if (more)
            die_usage("--index DIR stands alone");
        return;
    }
    if (!cmd->model || !cmd->sae)
        die_usage("-m MODEL and -s SAE are needed");
    if (cmd->dry_run && cmd->verify)
        die_usage("--dry-run writes nothing to --verify");
    if (cmd->output && outdir_check_name(cmd->output, &err) < 0)
        die_err(&err);
}

/* ---- the run ---- */

struct run {
    const struct cmd *cmd;
    struct model_dir model;
    struct plan plan;
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
operations(const struct job *job)
{
    return 2 * (uint64_t)job->sae->n * job->target->in * job->target->out;
}

static double
gflop(const struct job *job)
{
    return 1e-9 * (double)operations(job);
}

static void
say(const struct job *job, const char *what)
{
    char size[16];

    tool_say("%s: %zu -> %zu, N %zu, k %zu, %s, %s", job->target->name,
             job->target->in, job->target->out, job->sae->n, job->k,
             size_iec(size, job_nbytes(job)), what);
}

/* 1 where another run with --resume has made the same file meanwhile. */
static int
make_file(struct run *run, struct job *job, struct err *err)
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
make(struct run *run, struct job *job, struct err *err)
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
    if (run->cmd->verbose)
        say(job, there ? "kept" : "made");
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
estimate(struct run *run, struct job *job, struct err *err)
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
with_layer(struct run *run, const struct work *work,
           int (*each)(struct run *run, struct job *job, struct err *err),
           struct err *err)
{
    struct target target;
    struct sae sae;
    struct job job = {
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
all_layers(struct run *run,
           int (*each)(struct run *run, struct job *job, struct err *err),
           struct err *err)
{
    for (size_t i = 0; i < run->plan.n; i++)
        if (with_layer(run, &run->plan.work[i], each, err) < 0)
            return -1;
    return 0;
}

static int
estimate_all(struct run *run, struct err *err)
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
look(struct run *run, struct job *job, struct err *err)
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
say_setup(const struct run *run)
{
    const struct cmd *cmd = run->cmd;
    struct str shard = { 0 };

    if (cmd->n_parts)
        str_addf(&shard, ", shard %llu/%llu", (unsigned long long)cmd->part,
                 (unsigned long long)cmd->n_parts);
    tool_say("%s, %s, %d threads%s", tool_host(), isa_name(cpu_isa()),
             cmd->n_threads, shard.s ? shard.s : "");
    str_free(&shard);
}

static int
make_all(struct run *run, struct err *err)
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
threads_open(struct threads *t, int n, struct err *err)
{
    if (par_open(&t->par, n, err) < 0)
        return -1;
    if (n > 1 && (par_worker_open(&t->writing, err) < 0 ||
                  par_worker_open(&t->hashing, err) < 0))
        return -1;
    return 0;
}

static void
threads_close(struct threads *t)
{
    par_worker_close(t->hashing);
    par_worker_close(t->writing);
    par_close(t->par);
}

static int
run_open(struct run *run, struct err *err)
{
    const struct cmd *cmd = run->cmd;

    if (cpu_check(err) < 0 ||
        model_dir_open(&run->model, cmd->model, err) < 0 ||
        plan_make(&run->plan, cmd, &run->model, err) < 0 ||
        threads_open(&run->threads, cmd->n_threads, err) < 0)
        return -1;
    return gemm_open(&run->gemm, run->threads.par, err);
}

static int
run_all(const struct cmd *cmd, struct err *err)
{
    struct run run = { .cmd = cmd };
    int rc = run_open(&run, err);

    if (rc == 0)
        rc = cmd->dry_run ? estimate_all(&run, err) : make_all(&run, err);
    gemm_close(run.gemm);
    threads_close(&run.threads);
    plan_free(&run.plan);
    model_dir_close(&run.model);
    return rc < 0 ? -1 : run.differs ? TU_NEGATIVE : 0;
}

int
main(int argc, char **argv)
{
    struct cmd cmd = { .dtype = DT_BF16, .n_threads = par_default() };
    struct str lut = { 0 };
    struct err err = { 0 };
    int status;

    tool_start(&tool);
    sig_install(false);
    parse(&cmd, argc, argv);
    if (cmd.quiet)
        tool_quiet();
    if (!cmd.output && cmd.model) {
        str_addf(&lut, "%s/lut", cmd.model);
        cmd.output = lut.s;
    }
    status =
        cmd.index ? index_folder(cmd.index, true, &err) : run_all(&cmd, &err);
    str_free(&lut);
    if (status < 0)
        die_err(&err);
    tool_end(status);
}
