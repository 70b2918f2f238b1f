#include "core/model/train/log.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/fd.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/out.h"
#include "core/plot.h"
#include "core/scale.h"
#include "core/svg.h"

/* Pixels. */
#define WIDTH   640
#define HEIGHT  400
#define LEFT    70
#define TOP     44
#define INNER_W 540.0
#define INNER_H 290.0

#define TITLE_CHARS 72 /* of the title: its end */
#define PLOT_TITLE  60 /* the same, on a terminal */
#define TITLE_END   ": loss</text>\n"
#define FIRST_STEP  "step 1: "
#define MORE_MAX    ((size_t)16 << 20) /* bytes of a log beyond the records */

#define EVAL_COLOR SVG_ORANGE

#define N_TICKS  5
#define N_POINTS ((size_t)540) /* at most; each is the mean of some steps */

/* Ends a line with what was evaluated after that step, or nothing. */
static void
put_eval(struct str *to, uint64_t step, const struct eval_list *evals)
{
    if (evals)
        str_addc(to, '\t');
    for (size_t i = evals ? evals->n : 0; i > 0; i--)
        if (evals->list[i - 1].step == (double)step) {
            str_addf(to, "%.9g", evals->list[i - 1].loss);
            break;
        }
    str_addc(to, '\n');
}

static const struct train_column step_columns[] = {
    { "loss", false },
    { "lr", false },
    { "grad_norm", false },
    { "tokens", true },
};
const struct train_table train_step_table = {
    step_columns, sizeof(step_columns) / sizeof(*step_columns), 0
};

void
train_log_head(struct str *to, const struct train_table *table,
               const struct eval_list *evals)
{
    str_adds(to, "step");
    for (size_t i = 0; i < table->n; i++)
        str_addf(to, "\t%s", table->columns[i].name);
    str_adds(to, evals ? "\teval_loss\n" : "\n");
    if (evals && evals->n && evals->list[0].step == 0) {
        str_addc(to, '0');
        for (size_t i = 0; i < table->n; i++)
            str_addc(to, '\t');
        put_eval(to, 0, evals);
    }
}

void
train_log_line(struct str *to, const struct train_table *table, uint64_t step,
               const double *record, const struct eval_list *evals)
{
    str_addf(to, "%llu", (unsigned long long)step);
    for (size_t i = 0; i < table->n; i++)
        str_addf(to, table->columns[i].is_whole ? "\t%.0f" : "\t%.9g",
                 record[i]);
    put_eval(to, step, evals);
}

static bool
has_line(const struct train_log *log, uint64_t step)
{
    return !log->each || step % log->each == 0;
}

static void
log_all(struct str *to, const struct train_log *log, const double *records,
        size_t n)
{
    train_log_head(to, log->table, log->evals);
    for (size_t i = 0; i < n; i++)
        if (has_line(log, i + 1))
            train_log_line(to, log->table, i + 1, records + i * log->table->n,
                           log->evals);
}

/* Points of the curve: step and loss; of many steps the mean of a few. */
struct curve {
    size_t n;
    double x[N_POINTS], y[N_POINTS];
    struct scale scale; /* of y and of what was evaluated */
    bool any;           /* is there a step, and a number that can be shown? */
    double last;        /* step */
};

/* How many of them are of the first n steps. */
static size_t
n_evals_of(const struct eval_list *evals, size_t n)
{
    size_t k = 0;

    while (evals && k < evals->n && evals->list[k].step <= (double)n)
        k++;
    return k;
}

static void
settle(struct curve *c, const struct train_table *table, const double *records,
       size_t n, const struct eval_list *evals)
{
    size_t each = (n + N_POINTS - 1) / N_POINTS, n_evals = n_evals_of(evals, n);
    double low = HUGE_VAL, high = -HUGE_VAL;

    *c = (struct curve){ .last = (double)n };
    for (size_t i = 0; i < n; i += each, c->n++) {
        size_t end = i + each < n ? i + each : n;
        double sum = 0;

        for (size_t k = i; k < end; k++)
            sum += records[k * table->n + table->loss];
        c->x[c->n] = (double)(i + 1 + end) / 2;
        c->y[c->n] = scale_clip(sum / (double)(end - i), true);
        low = fmin(low, c->y[c->n]); /* of a number and NaN: the number */
        high = fmax(high, c->y[c->n]);
    }
    for (size_t i = 0; i < n_evals; i++) {
        low = fmin(low, scale_clip(evals->list[i].loss, true));
        high = fmax(high, scale_clip(evals->list[i].loss, true));
    }
    c->any = n > 0 && low <= high;
    if (c->any)
        c->scale = scale_of(low, high, true, false);
}

static double
x_of(const struct curve *c, double step)
{
    return LEFT + (c->last > 1 ? INNER_W * (step - 1) / (c->last - 1) : 0);
}

static double
y_of(const struct curve *c, double loss)
{
    return TOP + INNER_H * (1 - scale_part(&c->scale, loss));
}

static void
put_point(struct str *to, const struct curve *c, double step, double loss)
{
    loss = scale_clip(loss, true);
    if (!isnan(loss))
        svg_line_to(to, x_of(c, step), y_of(c, loss));
}

static void
put_axes(struct str *to, const struct curve *c, const char *unit)
{
    double was = 0;

    svg_axis_y(to, &c->scale, LEFT, TOP, INNER_W, INNER_H);
    for (int i = 0; i <= N_TICKS; i++) {
        double step = 1 + floor((c->last - 1) * i / N_TICKS);

        if (step == was)
            continue;
        was = step;
        svg_tick_x(to, x_of(c, step), TOP + INNER_H, 9, step);
    }
    str_addf(to, "<text x=\"%d\" y=\"%.0f\">step; y: %s%s</text>\n", LEFT,
             TOP + INNER_H + 36, unit, c->scale.log ? ", on a log scale" : "");
}

/* The first loss and the last, of all n steps and of what was evaluated. */
static void
say_losses(struct str *to, const struct train_table *table,
           const double *records, size_t n)
{
    str_addf(to, FIRST_STEP "%.4g; step %zu: %.4g", records[table->loss], n,
             records[(n - 1) * table->n + table->loss]);
}

static void
say_evals(struct str *to, const struct eval_list *evals, size_t n)
{
    str_addf(to, "eval_loss: %.4g; step %.0f: %.4g", evals->list[0].loss,
             evals->list[n - 1].step, evals->list[n - 1].loss);
}

/* What was evaluated: a line in another color, its last loss in words. */
static void
put_evals(struct str *to, const struct curve *c, const struct eval_list *evals,
          size_t n)
{
    svg_line_begin(to, EVAL_COLOR);
    for (size_t i = 0; i < n; i++)
        /* what was evaluated before step 1 is at its place */
        put_point(to, c, fmax(evals->list[i].step, 1), evals->list[i].loss);
    svg_line_end(to);
    str_addf(to, "<text x=\"%d\" y=\"%.0f\" fill=\"" EVAL_COLOR "\">", LEFT,
             TOP + INNER_H + 54);
    say_evals(to, evals, n);
    str_adds(to, "</text>\n");
}

void
train_log_svg(struct str *to, const struct train_log *log,
              const double *records, size_t n)
{
    const struct train_table *table = log->table;
    const struct eval_list *evals = log->evals;
    size_t n_evals = n_evals_of(evals, n);
    struct curve c;

    settle(&c, table, records, n, evals);
    svg_begin(to, WIDTH, HEIGHT);
    str_addf(to, "<text x=\"%d\" y=\"20\" font-size=\"13\">", LEFT);
    svg_name(to, log->title, strlen(log->title), TITLE_CHARS);
    str_adds(to, TITLE_END);
    if (c.any) {
        put_axes(to, &c, log->unit);
        svg_line_begin(to, SVG_BLUE);
        for (size_t i = 0; i < c.n; i++)
            put_point(to, &c, c.x[i], c.y[i]);
        svg_line_end(to);
        str_addf(to, "<text x=\"%d\" y=\"36\">", LEFT);
        say_losses(to, table, records, n);
        str_adds(to, "</text>\n");
    }
    if (c.any && n_evals > 0)
        put_evals(to, &c, evals, n_evals);
    svg_end(to);
}

void
train_log_plot(struct str *to, const struct train_log *log,
               const double *records, size_t n)
{
    const struct train_table *table = log->table;
    const struct eval_list *evals = log->evals;
    size_t n_evals = n_evals_of(evals, n);
    double *x = xcalloc(2 * (n_evals + 1), sizeof(*x)), *y = x + n_evals + 1;
    struct plot_axes axes = { .x = "step",
                              .y = log->unit,
                              .left = 1,
                              .right = (double)n,
                              .log_y = true,
                              .whole_x = true };
    struct curve c;

    settle(&c, table, records, n, evals);
    for (size_t i = 0; i < n_evals; i++) {
        x[i] = fmax(evals->list[i].step, 1);
        y[i] = evals->list[i].loss;
    }
    str_esc_end(to, log->title, strlen(log->title), PLOT_TITLE);
    str_adds(to, ": loss\n");
    plot_lines(to, &axes,
               (struct plot_line[]){ { c.x, c.y, c.n }, { x, y, n_evals } }, 2);
    if (n > 0) {
        say_losses(to, table, records, n);
        str_addc(to, '\n');
    }
    if (n > 0 && n_evals > 0) {
        str_adds(to, "o ");
        say_evals(to, evals, n_evals);
        str_addc(to, '\n');
    }
    free(x);
}

/* The parts of a picture: its beginning, which all have; its end, after the
 * title; where that names the first step.  NULLs: it is not one. */
struct parts {
    size_t head_n;
    const char *end, *first;
};

static struct parts
parts_of(const struct str *svg)
{
    const char *end = svg->n ? strstr(svg->s, TITLE_END) : NULL;

    if (!end)
        return (struct parts){ 0 };
    return (struct parts){ (size_t)(end - svg->s), end,
                           strstr(end, FIRST_STEP) };
}

/* Is it a picture of some of these steps, or of more after the same first? */
static bool
is_picture(const struct train_log *log, const struct str *there,
           const double *records, size_t n_steps)
{
    struct parts p = parts_of(there), q;
    unsigned long long n = 0;
    struct str ours = { 0 };
    bool same;

    if (p.first)
        sscanf(p.first, FIRST_STEP "%*[^;]; step %llu", &n);
    train_log_svg(&ours, log, records, n < n_steps ? n : n_steps);
    q = parts_of(&ours);
    same = p.end && p.head_n >= q.head_n && !memcmp(there->s, ours.s, q.head_n);
    if (n <= n_steps)
        same = same && !strcmp(p.end, q.end);
    else
        same = same && q.first &&
               !strncmp(p.first, q.first, strcspn(q.first, ";") + 1);
    str_free(&ours);
    return same;
}

static int
not_ours(const char *path, const char *what, struct err *err)
{
    return err_set(err, EX_CANTCREAT,
                   "%s: exists already and is not the %s of this run (--force "
                   "replaces it)",
                   path, what);
}

/* Is a file the log of a resumed run of these steps, or its picture? */
static int
check_file(struct train_log *log, bool picture, const double *records, size_t n,
           struct err *err)
{
    const char *path = picture ? log->svg : log->path;
    struct str found = { 0 }, ours = { 0 };
    bool same = false;
    int rc;

    log_all(&ours, log, records, n);
    rc = file_read_regular(path, ours.n + MORE_MAX, &found, err);
    if (rc == 0 && picture)
        same = is_picture(log, &found, records, n);
    else if (rc == 0) /* the same lines as far as both go */
        same = !found.n || !memcmp(found.s, ours.s, smaller(found.n, ours.n));
    if (same && !picture && n == 0 && found.n > ours.n)
        str_add(&log->first, found.s + ours.n, strcspn(found.s + ours.n, "\n"));
    if (!same && (rc == 0 || err->status != EX_IOERR))
        rc = not_ours(path, picture ? "picture" : "log", err);
    str_free(&found);
    str_free(&ours);
    return rc;
}

int
train_log_check(struct train_log *log, bool resume, const double *records,
                size_t n, struct err *err)
{
    struct stat st;

    for (int picture = 0; picture < 2; picture++) {
        const char *path = picture ? log->svg : log->path;

        /* devices are written to; a link that points to nothing is in the way,
         * and of a new run a directory, too */
        if (!path || (stat(path, &st) == 0 && !S_ISREG(st.st_mode) &&
                      (resume || !S_ISDIR(st.st_mode))))
            continue;
        if (lstat(path, &st) < 0 && errno == ENOENT)
            continue;
        if (lstat(path, &st) < 0)
            return err_sys(err, EX_CANTCREAT, "%s", path);
        if ((resume ? check_file(log, picture, records, n, err)
                    : out_exists(path, err)) < 0)
            return -1;
    }
    return 0;
}

int
train_log_begin(struct train_log *log, const double *records, size_t n,
                struct err *err)
{
    struct str text = { 0 };
    int rc = 0;

    log->fd = -1;
    if (log->path && !log->first.n) {
        log_all(&text, log, records, n);
        rc = out_put(log->path, OUT_FORCE | OUT_OWN, text.s, text.n, err);
        if (rc == 0)
            log->fd = open(log->path, O_WRONLY | O_APPEND | O_CLOEXEC);
        if (rc == 0 && log->fd < 0)
            rc = err_sys(err, EX_CANTCREAT, "%s: cannot be written", log->path);
    }
    str_free(&text);
    return rc < 0 ? -1 : train_log_draw(log, records, n, err);
}

int
train_log_step(struct train_log *log, uint64_t step, const double *record,
               struct err *err)
{
    struct str line = { 0 };
    bool ours;
    int rc = 0;

    if (!log->path || !has_line(log, step))
        return 0;
    train_log_line(&line, log->table, step, record, log->evals);
    if (log->first.n) { /* of it a kill may have left a part */
        ours = log->first.n < line.n &&
               !memcmp(log->first.s, line.s, log->first.n);
        str_free(&log->first);
        rc = ours ? train_log_begin(log, record, 0, err)
                  : not_ours(log->path, "log", err);
    }
    for (size_t at = 0; rc == 0 && !log->error && at < line.n;) {
        ssize_t n = write(log->fd, line.s + at, line.n - at);

        if (n < 0 && errno != EINTR)
            log->error = errno;
        at += n > 0 ? (size_t)n : 0;
    }
    str_free(&line);
    return rc;
}

void
train_log_sync(struct train_log *log)
{
    if (log->fd >= 0 && !log->error && fd_sync(log->fd) < 0)
        log->error = errno;
}

int
train_log_draw(const struct train_log *log, const double *records, size_t n,
               struct err *err)
{
    struct str text = { 0 };
    int rc;

    if (!log->svg)
        return 0;
    train_log_svg(&text, log, records, n);
    rc = out_put(log->svg, OUT_FORCE | OUT_OWN, text.s, text.n, err);
    str_free(&text);
    return rc;
}

void
train_log_close(struct train_log *log)
{
    if (log->fd >= 0)
        close(log->fd);
    log->fd = -1;
    str_free(&log->first);
}

/* Not a device or a link to one, which existed before the run. */
static void
remove_file(const char *path)
{
    struct stat st;

    if (path && lstat(path, &st) == 0 && S_ISREG(st.st_mode))
        unlink(path);
}

void
train_log_remove(const struct train_log *log)
{
    remove_file(log->path);
    remove_file(log->svg);
}
