/* SPDX-License-Identifier: ISC */
/*
 * stats: moments of each dim, and the numbers that scale an SAE's input.
 *
 * Rows come in spans; within one, blocks of rows and columns are summed on
 * their own and merged in order, so that no result depends on the number of
 * threads, nor on the spans' length if it is a multiple of MOMENTS_ROWS.
 *
 * --svg draws the deviations of all dims, the largest first, on a log scale,
 * the outliers with their names.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/saev-read/cmd.h"
#include "cmd/saev-read/gather.h"
#include "cmd/saev-read/select.h"
#include "core/chart.h"
#include "core/clock.h"
#include "core/js.h"
#include "core/kernel/moments.h"
#include "core/le.h"
#include "core/mem.h"
#include "core/out.h"
#include "core/record.h"
#include "core/tool.h"
#include "core/tty.h"

#define MAX_DIMS      ((size_t)1 << 19)  /* some 48 MiB */
#define SPAN_NBYTES   ((size_t)1 << 20)  /* a thread: stays in its cache */
#define LONG_NBYTES   ((size_t)4 << 20)  /* where rows are long, of all */
#define SPAN_ROWS     ((size_t)65536)    /* at most */
#define BLOCK_COLUMNS ((size_t)256)      /* summed by one thread */
#define GRAIN_NBYTES  ((size_t)64 << 10) /* of rows, for a thread */
#define MAX_THREADS   16
#define TEXT_NBYTES   65536 /* written at a time */

#define MAX_NAMED 20
#define OUTLIER   3.0 /* times the median deviation: labelled */
#define OUTLIERS  "over 3 x median"

struct dump_stats {
    const char *path; /* of the dump */
    const char *view; /* "cls", "image", "all" */
    char layer_json[24];
    size_t d;
    struct moments *dims;    /* [d] */
    size_t n_rows, n_finite; /* rows; those without a NaN or an infinity */
    double mean_norm;        /* of the finite ones; NaN if there are none */
    double scalar;           /* mean distance from the mean / sqrt(d) */
};

/* A span of rows; in the second pass there is 'mean'. */
struct stats_span {
    struct dump_stats *st;
    float *x; /* [n, d] */
    size_t n;
    double *mean;          /* [d] or NULL */
    double *norms;         /* [n] of x - mean; NaN where one is not finite */
    struct moments *parts; /* [blocks][d] */
    size_t n_across;       /* blocks side by side */
};

static void
find_norms(void *ctx, size_t begin, size_t end)
{
    const struct stats_span *s = ctx;
    size_t d = s->st->d;

    for (size_t r = begin; r < end; r++) {
        double v = moments_distance(s->x + r * d, s->mean, d);

        s->norms[r] = isfinite(v) ? v : (double)NAN;
    }
}

static void
find_parts(void *ctx, size_t begin, size_t end)
{
    const struct stats_span *s = ctx;
    size_t d = s->st->d;

    for (size_t i = begin; i < end; i++) {
        size_t row = i / s->n_across * MOMENTS_ROWS;
        size_t column = i % s->n_across * BLOCK_COLUMNS;
        size_t n = smaller(s->n - row, MOMENTS_ROWS);
        double bad = 0; /* NaN if any of the norms is */

        for (size_t r = row; r < row + n; r++)
            bad += s->norms[r] - s->norms[r];
        moments_columns(s->parts + row / MOMENTS_ROWS * d + column,
                        s->x + row * d + column, d, n,
                        smaller(d - column, BLOCK_COLUMNS), bad == 0);
    }
}

static void
merge_parts(void *ctx, size_t begin, size_t end)
{
    const struct stats_span *s = ctx;

    for (size_t block = 0; block * MOMENTS_ROWS < s->n; block++)
        for (size_t i = begin; i < end; i++)
            moments_merge(&s->st->dims[i], &s->parts[block * s->st->d + i]);
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

/* Both passes over the rows: the second for the distances from the mean. */
static int
measure(struct dump_stats *st, const struct read_cmd *cmd,
        const struct dump_target *t, struct err *err)
{
    size_t d = st->d, row_nbytes = t->dir.saev.row_nbytes, n_done = 0;
    int n_threads = cmd->n_threads < MAX_THREADS ? cmd->n_threads : MAX_THREADS;
    size_t most = span_rows(row_nbytes, n_threads);
    size_t grain = GRAIN_NBYTES / row_nbytes + 1;
    struct stats_span s = { .st = st,
                            .n_across =
                                (d + BLOCK_COLUMNS - 1) / BLOCK_COLUMNS };
    struct progress progress = { .what = "stats",
                                 .unit = "B",
                                 .total = 2 * t->n_rows * row_nbytes,
                                 .quiet = cmd->quiet };
    struct gather gather = { 0 };
    size_t n_blocks = (most + MOMENTS_ROWS - 1) / MOMENTS_ROWS;
    int rc = -1;

    s.x = mem_big(most, row_nbytes, "a span of rows", err);
    if (!s.x || gather_open(&gather, t, n_threads, false, err) < 0)
        goto out;
    s.norms = mem_try(most, sizeof(*s.norms), "norms", err);
    st->dims = mem_try(d, sizeof(*st->dims), "moments", err);
    s.parts = mem_try(n_blocks * d, sizeof(*s.parts), "moments", err);
    if (!s.norms || !st->dims || !s.parts)
        goto out;
    for (size_t i = 0; i < d; i++)
        st->dims[i] = MOMENTS_NONE;
    st->n_rows = t->n_rows;
    progress_start(&progress);
    for (int pass = 0; pass < 2; pass++) {
        struct moments_sum sum = { 0 };
        double mean_norm;
        size_t n_finite = 0;

        for (size_t row = 0; row < t->n_rows; row += s.n) {
            s.n = smaller(t->n_rows - row, most);
            rc = gather_range(&gather, row, s.n, s.x, err);
            if (rc < 0)
                goto out;
            le_numbers(s.x, s.n * d, sizeof(*s.x));
            par_for(gather.par, s.n, grain, find_norms, &s);
            if (pass == 0) {
                n_blocks = (s.n + MOMENTS_ROWS - 1) / MOMENTS_ROWS;
                par_for(gather.par, n_blocks * s.n_across, 1, find_parts, &s);
                par_for(gather.par, d, BLOCK_COLUMNS, merge_parts, &s);
            }
            for (size_t i = 0; i < s.n; i++)
                if (!isnan(s.norms[i])) {
                    moments_add(&sum, s.norms[i]);
                    n_finite++;
                }
            n_done += s.n;
            progress_at(&progress, n_done * row_nbytes);
        }
        mean_norm = n_finite ? (sum.s + sum.c) / (double)n_finite : (double)NAN;
        if (pass == 1) {
            st->scalar = mean_norm / sqrt((double)d);
            break;
        }
        st->n_finite = n_finite;
        st->mean_norm = mean_norm;
        s.mean = xcalloc(d, sizeof(*s.mean));
        for (size_t i = 0; i < d; i++)
            s.mean[i] = moments_mean(&st->dims[i]);
    }
    rc = 0;
out:
    progress_end(&progress);
    gather_close(&gather);
    mem_big_free(s.x, most, row_nbytes);
    free(s.norms);
    free(s.parts);
    free(s.mean);
    return rc;
}

static int
put_stats(const struct read_cmd *cmd, const struct dump_stats *st,
          struct err *err)
{
    struct str text = { 0 };
    struct record row = { .to = &text, .json = cmd->json };
    int rc = 0;

    if (cmd->json) {
        js_addf(&text, "{\"dump\":%s,\"view\":%s,\"layer\":", st->path,
                st->view);
        str_adds(&text, st->layer_json);
        js_addf(&text,
                ",\"n_rows\":%zu,\"n_not_finite\":%zu,\"mean_norm\":%g,"
                "\"scalar\":%g,\"dims\":[",
                st->n_rows, st->n_rows - st->n_finite, st->mean_norm,
                st->scalar);
    } else {
        str_adds(&text, "dim\tmean\tstd\tmin\tmax\tnan\tinf\n");
    }
    for (size_t i = 0; i < st->d && rc == 0; i++) {
        const struct moments *m = &st->dims[i];

        record_begin(&row);
        record_u64(&row, "dim", i);
        record_f64(&row, "mean", moments_mean(m));
        record_f64(&row, "std", moments_std(m));
        /* without finite numbers no range */
        record_f64(&row, "min", m->n ? m->min : (double)NAN);
        record_f64(&row, "max", m->n ? m->max : (double)NAN);
        record_u64(&row, "n_nan", (size_t)m->n_nan);
        record_u64(&row, "n_inf", st->n_rows - (size_t)(m->n + m->n_nan));
        record_end(&row);
        if (text.n >= TEXT_NBYTES) {
            rc = out_write(cmd->out, text.s, text.n, err);
            str_clear(&text);
        }
    }
    str_adds(&text, cmd->json ? "\n]}\n" : "");
    if (rc == 0)
        rc = out_write(cmd->out, text.s, text.n, err);
    str_free(&text);
    return rc;
}

struct bar {
    double std;
    size_t dim;
};

static int
by_std(const void *pa, const void *pb)
{
    const struct bar *a = pa, *b = pb;

    if (a->std != b->std)
        return a->std > b->std ? -1 : 1;
    return a->dim < b->dim ? -1 : a->dim > b->dim;
}

/* The deviations of all dims, the largest first, and the outliers' names. */
static int
put_spectrum(struct out *out, const struct dump_stats *st,
             void (*draw)(struct str *, const struct chart *), struct err *err)
{
    const char *layer = *st->layer_json == '"' ? "all" : st->layer_json;
    struct bar *bars = mem_try(st->d, sizeof(*bars), "a spectrum", err);
    double *x = mem_try(2 * st->d, sizeof(*x), "a spectrum", err);
    char labels[MAX_NAMED][CHART_LABEL_MAX + 1];
    struct chart_mark marks[MAX_NAMED];
    struct str about = { 0 }, subtitle = { 0 }, says = { 0 }, to = { 0 };
    size_t n = 0, n_unknown = 0, n_constant;
    struct chart_line line = { x, x ? x + st->d : NULL, .n = 0 };
    struct chart c = { .title = st->path,
                       .x = "rank of the dim, largest std first",
                       .y = "std",
                       .left = 1,
                       .log_y = true,
                       .whole_x = true,
                       .lines = &line,
                       .n_lines = 1,
                       .marks = marks,
                       .marked = OUTLIERS };
    double median = 0;
    int rc = -1;

    for (size_t i = 0; bars && x && i < st->d; i++) {
        double std = moments_std(&st->dims[i]);

        n_unknown += isnan(std);
        if (std > 0)
            bars[n++] = (struct bar){ std, i };
    }
    n_constant = st->d - n - n_unknown;
    if (!bars || !x)
        goto out;
    if (n) {
        qsort(bars, n, sizeof(*bars), by_std);
        median = (bars[(n - 1) / 2].std + bars[n / 2].std) / 2;
    }
    for (size_t i = 0; i < n; i++) {
        x[i] = (double)i + 1;
        x[st->d + i] = bars[i].std;
    }
    for (size_t i = 0;
         i < smaller(n, MAX_NAMED) && bars[i].std > OUTLIER * median; i++) {
        snprintf(labels[i], sizeof(labels[i]), "dim %zu", bars[i].dim);
        marks[c.n_marks++] =
            (struct chart_mark){ labels[i], bars[i].std, (double)i + 1 };
    }
    str_addf(&about, ": std of %zu dim%s, view %s, layer %s", st->d,
             plural(st->d), st->view, layer);
    str_addf(&subtitle, "%zu row%s, mean norm %.6g, scalar %.6g", st->n_rows,
             plural(st->n_rows), st->mean_norm, st->scalar);
    str_addf(&says, "median %.4g; %zu dim%s with std 0, %zu without numbers",
             median, n_constant, plural(n_constant), n_unknown);
    c.about = about.s;
    c.subtitle = subtitle.s;
    c.right = (double)n;
    line.n = n;
    line.says = says.s;
    draw(&to, &c);
    rc = out_write(out, to.s, to.n, err);
out:
    free(bars);
    free(x);
    str_free(&about);
    str_free(&subtitle);
    str_free(&says);
    str_free(&to);
    return rc;
}

int
stats_main(struct read_cmd *cmd, struct err *err)
{
    static const char *const views[] = { "cls", "image", "all" };
    struct dump_stats st = { .view = views[cmd->tokens] };
    struct dump_target t;
    struct out *svg = NULL;
    double start = clock_s(), seconds;
    int rc = -1;

    if (cmd->n_args != 1)
        return err_set(err, TU_USAGE, "stats: one DUMP is expected");
    if (target_open(&t, cmd, cmd->args[0], err) < 0)
        return -1;
    st.path = t.dir.path;
    st.d = t.dir.saev.d;
    snprintf(st.layer_json, sizeof(st.layer_json),
             cmd->layer == SAEV_ALL_LAYERS ? "\"all\"" : "%lld",
             (long long)cmd->layer);
    if (st.d > MAX_DIMS) {
        err_set(err, EX_DATAERR, "%s: d_vit is %zu (stats takes at most %zu)",
                t.dir.saev.name, st.d, MAX_DIMS);
        goto out;
    }
    /* before the work: an output that cannot be is an error at once */
    if (cmd->svg && out_open(&svg, cmd->svg, cmd->out_flags, false, err) < 0)
        goto out;
    if (measure(&st, cmd, &t, err) < 0 ||
        (cmd->plot ? put_spectrum(cmd->out, &st, chart_text, err)
                   : put_stats(cmd, &st, err)) < 0)
        goto out;
    seconds = clock_s() - start;
    if (cmd->verbose)
        tool_say(
            "%s: %zu row%s x %zu dim%s, %zu row%s not finite, mean norm %.6g, "
            "scalar %.6g, two passes in %.3f s, %.2f GB/s each",
            st.path, st.n_rows, plural(st.n_rows), st.d, plural(st.d),
            st.n_rows - st.n_finite, plural(st.n_rows - st.n_finite),
            st.mean_norm, st.scalar, seconds,
            seconds > 0 ? 8e-9 * (double)st.n_rows * (double)st.d / seconds
                        : 0);
    rc = svg ? put_spectrum(svg, &st, chart_svg, err) : 0;
    if (rc == 0 && svg) {
        rc = out_commit(svg, err);
        svg = NULL;
    }
out:
    out_abort(svg);
    free(st.dims);
    target_close(&t);
    return rc;
}
