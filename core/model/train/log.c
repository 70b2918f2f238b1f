/* SPDX-License-Identifier: ISC */
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

#define TITLE_ABOUT ": loss"
#define FIRST_STEP  "step 1: "
#define MORE_MAX    ((size_t)16 << 20) /* bytes of a log beyond the records */
#define N_POINTS    ((size_t)540) /* at most; each is the mean of some steps */

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

/* The loss of n steps, of many the mean of a few, and what was evaluated up to
 * the last of them. */
struct loss_chart {
    double *x, *y; /* [n] of the steps, then [n_evals] */
    struct str says, eval_says;
    struct chart_line lines[2];
    struct chart chart;
};

static void
loss_chart_of(struct loss_chart *l, const struct train_log *log,
              const double *records, size_t n)
{
    const struct train_table *table = log->table;
    const struct eval_record *evals = log->evals ? log->evals->list : NULL;
    size_t each = (n + N_POINTS - 1) / N_POINTS, at = 0, n_evals = 0;

    while (evals && n_evals < log->evals->n && evals[n_evals].step <= (double)n)
        n_evals++;
    *l = (struct loss_chart){ .chart = { .title = log->title,
                                         .about = TITLE_ABOUT,
                                         .x = "step",
                                         .y = log->unit,
                                         .left = 1,
                                         .right = (double)n,
                                         .log_y = true,
                                         .whole_x = true,
                                         .lines = l->lines,
                                         .n_lines = 1 } };
    l->x = xcalloc(N_POINTS + n_evals, sizeof(*l->x));
    l->y = xcalloc(N_POINTS + n_evals, sizeof(*l->y));
    for (size_t i = 0; i < n; i += each, at++) {
        size_t end = smaller(i + each, n);

        for (size_t k = i; k < end; k++)
            l->y[at] += records[k * table->n + table->loss];
        l->x[at] = (double)(i + 1 + end) / 2;
        l->y[at] /= (double)(end - i);
    }
    l->lines[0] = (struct chart_line){ l->x, l->y, .n = at };
    if (n > 0) {
        str_addf(&l->says, FIRST_STEP "%.4g; step %zu: %.4g",
                 records[table->loss], n,
                 records[(n - 1) * table->n + table->loss]);
        l->lines[0].says = l->says.s;
    }
    for (size_t i = 0; i < n_evals; i++) {
        /* what was evaluated before step 1 is at its place */
        l->x[at + i] = fmax(evals[i].step, 1);
        l->y[at + i] = evals[i].loss;
    }
    if (n > 0 && n_evals > 0) {
        const struct eval_record *last = &evals[n_evals - 1];

        str_addf(&l->eval_says, "eval_loss: %.4g; step %.0f: %.4g",
                 evals[0].loss, last->step, last->loss);
        l->lines[1] = (struct chart_line){ l->x + at, l->y + at, n_evals,
                                           .says = l->eval_says.s };
        l->chart.n_lines = 2;
    }
}

void
train_log_chart(struct str *to, const struct train_log *log,
                const double *records, size_t n,
                void (*draw)(struct str *to, const struct chart *chart))
{
    struct loss_chart l;

    loss_chart_of(&l, log, records, n);
    draw(to, &l.chart);
    free(l.x);
    free(l.y);
    str_free(&l.says);
    str_free(&l.eval_says);
}

/* Do both begin with the same text, which ends with 'end'? */
static bool
same_until(const char *a, const char *b, const char *end)
{
    const char *at = a && b ? strstr(b, end) : NULL;

    return at && !strncmp(a, b, (size_t)(at - b) + strlen(end));
}

/* Is it a picture of this run, of whatever steps: its title, and where it has
 * steps the first of them? */
static bool
is_picture(const struct train_log *log, const struct str *there,
           const double *records, size_t n)
{
    const char *first = there->n ? strstr(there->s, FIRST_STEP) : NULL;
    struct str ours = { 0 };
    bool same;

    train_log_chart(&ours, log, records, n, chart_svg);
    same = there->n &&
           same_until(strstr(there->s, "<text"), strstr(ours.s, "<text"),
                      TITLE_ABOUT "<") &&
           (!first || same_until(first, strstr(ours.s, FIRST_STEP), ";"));
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
    if (same && !picture && n == 0 && found.n > ours.n) {
        const char *line = found.s + ours.n, *end = strchr(line, '\n');

        /* what was evaluated before step 1 is not in 'evals' yet */
        if (log->evals && !strncmp(line, "0\t", 2) && end)
            line = end + 1;
        str_add(&log->first, line, strcspn(line, "\n"));
    }
    if (!same &&
        (rc == 0 || (err->status != EX_IOERR && err->status != EX_TEMPFAIL)))
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

        /* devices are written to; a link that points to nothing is in the way;
         * train_run_open() has refused the rest */
        if (!path || (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) ||
            (lstat(path, &st) < 0 && errno == ENOENT))
            continue;
        if (lstat(path, &st) < 0)
            return err_sys(err, EX_CANTCREAT, "%s", path);
        if ((resume ? check_file(log, picture, records, n, err)
                    : out_exists(path, err)) < 0)
            return -1;
    }
    return 0;
}

/* Not a device or a link to one, which existed before the run. */
static bool
is_file(const char *path)
{
    struct stat st;

    return path && lstat(path, &st) == 0 && S_ISREG(st.st_mode);
}

bool
train_log_exists(const struct train_log *log)
{
    return is_file(log->path) || is_file(log->svg);
}

/* Writes the log so far, and opens it for more, where no link leads elsewhere
 * but to a device. */
static int
write_log(struct train_log *log, const struct str *text, struct err *err)
{
    struct stat st;
    int flags = O_WRONLY | O_APPEND | O_CLOEXEC;

    if (out_put(log->path, OUT_RUN, text->s, text->n, err) < 0)
        return -1;
    if (stat(log->path, &st) < 0 || S_ISREG(st.st_mode))
        flags |= O_NOFOLLOW;
    log->fd = open(log->path, flags);
    return log->fd >= 0
               ? 0
               : err_sys(err, EX_CANTCREAT, "%s: cannot be written", log->path);
}

int
train_log_begin(struct train_log *log, const double *records, size_t n,
                struct err *err)
{
    struct str text = { 0 };
    int rc = 0;

    if (!log->table)
        return 0; /* of a rank that has none */
    if (log->fd >= 0)
        close(log->fd);
    log->fd = -1;
    log_all(&text, log, records, n);
    if (log->replaces) {
        str_free(&log->lines);
        log->lines = text;
        return 0;
    }
    if (log->path && !log->first.n)
        rc = write_log(log, &text, err);
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
    train_log_line(log->replaces ? &log->lines : &line, log->table, step,
                   record, log->evals);
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
    if (log->replaces && is_file(log->path))
        unlink(log->path);
}

int
train_log_draw(struct train_log *log, const double *records, size_t n,
               struct err *err)
{
    struct str text = { 0 };
    int rc;

    if (log->replaces && log->path && write_log(log, &log->lines, err) < 0)
        return -1;
    log->replaces = false;
    str_free(&log->lines);
    if (!log->svg)
        return 0;
    train_log_chart(&text, log, records, n, chart_svg);
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
    str_free(&log->lines);
}

void
train_log_remove(const struct train_log *log)
{
    if (!log->replaces && is_file(log->path))
        unlink(log->path);
    if (!log->replaces && is_file(log->svg))
        unlink(log->svg);
}
