/* Moments of each dim, and the numbers that scale an SAE's input. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/saev-read/cmd.h"
#include "cmd/saev-read/columns.h"
#include "cmd/saev-read/gather.h"
#include "cmd/saev-read/spectrum.h"
#include "cmd/saev-read/target.h"
#include "core/clock.h"
#include "core/js.h"
#include "core/le.h"
#include "core/mem.h"
#include "core/tool.h"
#include "core/tty.h"

#define SPAN_NBYTES                                                          \
    ((size_t)1 << 20)                 /* for each thread: stays in its cache \
                                       */
#define LONG_NBYTES ((size_t)4 << 20) /* and where rows are long, for all */
#define SPAN_ROWS   ((size_t)65536)
#define MAX_THREADS 16
#define FLUSH_AT    65536 /* bytes of text */

/* The mean of the norms that are numbers: of rows that are finite. */
struct total {
    struct moments_sum sum;
    size_t n;
};

static double
mean_of(const struct total *t)
{
    return t->n ? (t->sum.s + t->sum.c) / (double)t->n : (double)NAN;
}

/* Both passes over the rows. */
struct stats_run {
    struct dump_stats *st;
    struct dump_target *t;
    struct gather gather;
    float *x; /* [span_rows, d] */
    size_t span_rows;
    double *mean; /* [d] in the second pass; NULL in the first */
    struct progress progress;
    size_t n_done; /* rows of both */
};

/* The files' order of bytes to this machine's. */
static void
to_native(float *x, size_t n)
{
    for (size_t i = 0; __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ && i < n; i++)
        x[i] = le_f32(&x[i]);
}

static int
pass(struct stats_run *r, struct total *total, struct err *err)
{
    struct columns *c = &r->st->columns;
    struct par *par = r->gather.shards.par;

    for (size_t row = 0, n; row < r->t->n_rows; row += n) {
        n = r->t->n_rows - row;
        n = n < r->span_rows ? n : r->span_rows;
        if (gather_range(&r->gather, row, n, r->x, err) < 0)
            return -1;
        to_native(r->x, n * c->d);
        if (r->mean)
            columns_distances(c, r->x, n, r->mean, par);
        else
            columns_add(c, r->x, n, par);
        for (size_t i = 0; i < n; i++)
            if (!isnan(c->norms[i])) {
                moments_add(&total->sum, c->norms[i]);
                total->n++;
            }
        r->n_done += n;
        progress_at(&r->progress, r->n_done * r->t->dir.saev.row_nbytes);
    }
    return 0;
}

static int
two_passes(struct stats_run *r, struct err *err)
{
    struct dump_stats *st = r->st;
    struct total norms = { 0 }, distances = { 0 };
    int rc;

    if (pass(r, &norms, err) < 0)
        return -1;
    st->n_rows = r->t->n_rows;
    st->n_finite = norms.n;
    st->mean_norm = mean_of(&norms);
    r->mean = xcalloc(st->columns.d, sizeof(*r->mean));
    for (size_t i = 0; i < st->columns.d; i++)
        r->mean[i] = moments_mean(&st->columns.all[i]);
    rc = pass(r, &distances, err);
    st->scalar = mean_of(&distances) / sqrt((double)st->columns.d);
    free(r->mean);
    return rc;
}

/* Whole blocks, so that their sums do not depend on the number of threads;
 * of rows too long for that, as many as fit. */
static size_t
span_rows(size_t row_nbytes, int n_threads)
{
    size_t n = (size_t)n_threads * SPAN_NBYTES / row_nbytes;

    if (row_nbytes > LONG_NBYTES / MOMENTS_ROWS)
        return LONG_NBYTES / row_nbytes;
    n = n < SPAN_ROWS ? n - n % MOMENTS_ROWS : SPAN_ROWS;
    return n ? n : MOMENTS_ROWS;
}

static int
measure(struct dump_stats *st, const struct read_cmd *cmd,
        struct dump_target *t, struct err *err)
{
    const struct saev *s = &t->dir.saev;
    struct stats_run r = { .st = st, .t = t };
    int n_threads = cmd->n_threads < MAX_THREADS ? cmd->n_threads : MAX_THREADS;
    int rc = -1;

    if (s->d > COLUMNS_MAX)
        return err_set(err, EX_DATAERR,
                       "%s: d_vit is %zu (stats takes at most %zu)", s->name,
                       s->d, COLUMNS_MAX);
    r.span_rows = span_rows(s->row_nbytes, n_threads);
    r.progress = (struct progress){ .what = "stats",
                                    .unit = "B",
                                    .total = 2 * t->n_rows * s->row_nbytes,
                                    .quiet = cmd->quiet };
    r.x = mem_big(r.span_rows, s->row_nbytes, "a span of rows", err);
    if (r.x && gather_open(&r.gather, t, n_threads, false, err) == 0) {
        progress_start(&r.progress);
        if (columns_open(&st->columns, s->d, r.span_rows, err) == 0)
            rc = two_passes(&r, err);
        progress_end(&r.progress);
    }
    gather_close(&r.gather);
    if (r.x)
        mem_big_free(r.x, r.span_rows, s->row_nbytes);
    return rc;
}

static void
put_g6(struct str *to, double v)
{
    if (isnan(v)) /* printf would show its sign */
        str_adds(to, "\tnan");
    else
        str_addf(to, "\t%.6g", v);
}

/* The range of a dim without finite numbers is none. */
static double
known(const struct moments *m, double v)
{
    return m->n ? v : (double)NAN;
}

static size_t
n_inf(const struct columns *c, size_t i)
{
    return c->n_rows - (size_t)(c->all[i].n + c->all[i].n_nan);
}

static void
put_row(struct str *to, const struct columns *c, size_t i)
{
    const struct moments *m = &c->all[i];

    str_addf(to, "%zu", i);
    put_g6(to, moments_mean(m));
    put_g6(to, moments_std(m));
    put_g6(to, known(m, m->min));
    put_g6(to, known(m, m->max));
    str_addf(to, "\t%zu\t%zu\n", (size_t)m->n_nan, n_inf(c, i));
}

static void
put_value(struct str *to, const char *key, double v)
{
    str_addf(to, ",\"%s\":", key);
    js_put_f64(to, v); /* null for NaN */
}

static void
put_object(struct str *to, const struct columns *c, size_t i)
{
    const struct moments *m = &c->all[i];

    str_addf(to, "%s\n{\"dim\":%zu", i ? "," : "", i);
    put_value(to, "mean", moments_mean(m));
    put_value(to, "std", moments_std(m));
    put_value(to, "min", known(m, m->min));
    put_value(to, "max", known(m, m->max));
    str_addf(to, ",\"n_nan\":%zu,\"n_inf\":%zu}", (size_t)m->n_nan,
             n_inf(c, i));
}

static void
put_head(struct str *to, const struct read_cmd *cmd,
         const struct dump_stats *st)
{
    if (!cmd->json) {
        str_adds(to, "dim\tmean\tstd\tmin\tmax\tnan\tinf\n");
        return;
    }
    str_adds(to, "{\"dump\":");
    js_put_str(to, st->path, strlen(st->path));
    str_addf(to, ",\"view\":\"%s\",\"layer\":%s", st->view, st->layer_json);
    str_addf(to, ",\"n_rows\":%zu,\"n_not_finite\":%zu", st->n_rows,
             st->n_rows - st->n_finite);
    put_value(to, "mean_norm", st->mean_norm);
    put_value(to, "scalar", st->scalar);
    str_adds(to, ",\"dims\":[");
}

static int
put_stats(const struct read_cmd *cmd, const struct dump_stats *st,
          struct err *err)
{
    const struct columns *c = &st->columns;
    struct str text = { 0 };
    int rc = 0;

    put_head(&text, cmd, st);
    for (size_t i = 0; i < c->d && rc == 0; i++) {
        if (cmd->json)
            put_object(&text, c, i);
        else
            put_row(&text, c, i);
        if (text.n >= FLUSH_AT) {
            rc = out_write(cmd->out, text.s, text.n, err);
            str_clear(&text);
        }
    }
    if (cmd->json)
        str_adds(&text, "\n]}\n");
    if (rc == 0)
        rc = out_write(cmd->out, text.s, text.n, err);
    str_free(&text);
    return rc;
}

static int
stats_of(struct read_cmd *cmd, struct dump_target *t, struct dump_stats *st,
         struct err *err)
{
    struct out *svg = NULL;
    double start = clock_s();

    /* before the work: an output that cannot be is told at once */
    if (cmd->svg && out_open(&svg, cmd->svg, cmd->out_flags, false, err) < 0)
        return -1;
    if (measure(st, cmd, t, err) < 0 || put_stats(cmd, st, err) < 0) {
        out_abort(svg);
        return -1;
    }
    if (cmd->verbose) {
        /* The line of -v. */
        double seconds = clock_s() - start;
        double nbytes = (double)st->n_rows * (double)st->columns.d * 4;

        tool_say(
            "%s: %zu rows x %zu dims, %zu rows not finite, mean norm %.6g, "
            "scalar %.6g, two passes in %.3f s, %.2f GB/s each",
            st->path, st->n_rows, st->columns.d, st->n_rows - st->n_finite,
            st->mean_norm, st->scalar, seconds,
            seconds > 0 ? 2 * nbytes / seconds / 1e9 : 0);
    }
    /* The picture, once all is known. */
    if (!svg)
        return 0;
    if (spectrum_svg(svg, st, err) == 0)
        return out_commit(svg, err);
    out_abort(svg);
    return -1;
}

int
stats_main(struct read_cmd *cmd, struct err *err)
{
    static const char *const views[] = { "cls", "image", "all" };
    struct dump_stats st = { .view = views[cmd->tokens] };
    struct dump_target t;
    int rc;

    if (cmd->n_args != 1)
        return err_set(err, TU_USAGE, "stats: one DUMP is expected");
    if (target_open(&t, cmd, cmd->args[0], err) < 0)
        return -1;
    st.path = t.dir.path;
    if (cmd->layer == SAEV_ALL_LAYERS)
        snprintf(st.layer_json, sizeof(st.layer_json), "\"all\"");
    else
        snprintf(st.layer_json, sizeof(st.layer_json), "%lld",
                 (long long)cmd->layer);
    rc = stats_of(cmd, &t, &st, err);
    columns_close(&st.columns);
    target_close(&t);
    return rc;
}
