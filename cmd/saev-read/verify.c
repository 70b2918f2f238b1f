/* verify: is a dump whole?  What is found, and how it is told. */
#include "cmd/saev-read/verify.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/saev-read/beside.h"
#include "cmd/saev-read/deep.h"
#include "core/js.h"
#include "core/mem.h"
#include "core/out.h"
#include "core/sig.h"
#include "core/tool.h"

void
lines_add(struct lines *lines, const char *s)
{
    if (lines->n == lines->cap) {
        lines->cap = 2 * lines->cap + 16;
        lines->s = xrealloc(lines->s, lines->cap, sizeof(*lines->s));
    }
    lines->s[lines->n++] = xstrdup(s);
}

void
lines_free(struct lines *lines)
{
    for (size_t i = 0; i < lines->n; i++)
        free(lines->s[i]);
    free(lines->s);
    *lines = (struct lines){ 0 };
}

static __attribute__((format(printf, 1, 0))) char *
format(const char *fmt, va_list ap)
{
    char *s;

    if (vasprintf(&s, fmt, ap) < 0)
        return xstrdup("out of memory");
    return s;
}

void
problem(struct dump_check *c, const char *fmt, ...)
{
    va_list ap;
    char *what;

    end_run(c);
    va_start(ap, fmt);
    what = format(fmt, ap);
    va_end(ap);
    lines_add(&c->problems, what);
    free(what);
}

void
end_run(struct dump_check *c)
{
    struct str line = { 0 };
    char name[32];

    if (!c->run.what)
        return;
    saev_shard_name(name, c->run.first);
    str_adds(&line, name);
    if (c->run.last > c->run.first) {
        saev_shard_name(name, c->run.last);
        str_addf(&line, " .. %s", name);
    }
    str_addf(&line, ": %s", c->run.what);
    lines_add(&c->problems, line.s);
    str_free(&line);
    free(c->run.what);
    c->run.what = NULL;
}

void
shard_problem(struct dump_check *c, size_t shard, const char *fmt, ...)
{
    va_list ap;
    char *what;

    va_start(ap, fmt);
    what = format(fmt, ap);
    va_end(ap);
    if (c->run.what && shard == c->run.last + 1 && !strcmp(what, c->run.what)) {
        c->run.last = shard;
        free(what);
        return;
    }
    end_run(c);
    c->run =
        (struct problem_run){ .first = shard, .last = shard, .what = what };
}

bool
right_size(const struct saevdir *dir, const struct saevdir_file *f)
{
    const struct saev *s = &dir->saev;

    if (f->shard < s->n_shards && f->nbytes == saev_shard_nbytes(s, f->shard))
        return true;
    if (f->nbytes != s->shard_nbytes)
        return false;
    return f->shard + 1 == s->n_shards ||
           (f->shard == s->n_shards && s->n_imgs % s->shard_imgs == 0);
}

const char *
short_of(const struct dump_check *c, const char *what)
{
    size_t n = strlen(c->path);

    while (n > 1 && c->path[n - 1] == '/')
        n--;
    return !strncmp(what, c->path, n) && what[n] == '/' ? what + n + 1 : what;
}

void
check_tell(void *ctx, const char *what)
{
    struct dump_check *c = ctx;

    lines_add(&c->problems, short_of(c, what));
}

static int
check_all(struct dump_check *c, struct err *err)
{
    if (saevdir_check(&c->dir, check_tell, c, err) < 0 ||
        check_beside(c, err) < 0)
        return -1;
    return c->cmd->deep ? check_deep(c, err) : check_holes(c, err);
}

static void
put_lines(struct str *to, const char *key, const struct lines *lines)
{
    str_addf(to, ",\"%s\":[", key);
    for (size_t i = 0; i < lines->n; i++) {
        str_adds(to, i ? "," : "");
        js_put_str(to, lines->s[i], strlen(lines->s[i]));
    }
    str_addc(to, ']');
}

static void
put_json(struct str *to, const struct dump_check *c, int status)
{
    str_adds(to, "{\"dump\":");
    js_put_str(to, c->path, strlen(c->path));
    str_addf(to, ",\"status\":%d", status);
    put_lines(to, "problems", &c->problems);
    put_lines(to, "notes", &c->notes);
    str_addc(to, '}');
}

static void
put_tsv(struct str *to, const struct dump_check *c)
{
    for (size_t i = 0; i < c->problems.n; i++) {
        const char *s = c->problems.s[i];

        str_esc(to, c->path, strlen(c->path));
        str_addc(to, '\t');
        str_esc(to, s, strlen(s));
        str_addc(to, '\n');
    }
    for (size_t i = 0; i < c->notes.n; i++)
        err_warn("%s: %s", c->path, c->notes.s[i]);
}

static void
say_sound(const struct dump_check *c)
{
    const struct read_cmd *cmd = c->cmd;

    if (cmd->sharded)
        tool_say("%s: part %llu/%llu is sound, %zu shards, %zu bytes", c->path,
                 (unsigned long long)cmd->part,
                 (unsigned long long)cmd->n_parts, c->n_read, c->nbytes_read);
    else
        tool_say("%s: sound, %zu shards, %zu bytes", c->path, c->dir.n_files,
                 c->dir.nbytes);
}

/* The line of a stop, wherever that was. */
static void
say_stopped(const struct dump_check *c, struct err *err)
{
    struct str how = { 0 };

    if (c->n_part)
        str_addf(&how, "%zu of %zu shards of %s were read", c->n_read,
                 c->n_part, c->path);
    else
        str_addf(&how, "no shard of %s was read", c->path);
    str_adds(&how, ", run it again");
    sig_stopped(how.s, err);
    tool_say("%s", err->what);
    str_free(&how);
}

/* Returns the dump's status: 0, TU_NEGATIVE, or why it cannot be judged; what
 * has been found to be wrong before stays wrong. */
static int
verify_dump(struct read_cmd *cmd, const char *path, struct str *to)
{
    struct dump_check c = { .cmd = cmd, .path = path };
    struct err err = { 0 };
    int status = 0;
    bool failed =
        saevdir_meta(&c.dir, path, &err) < 0 || check_all(&c, &err) < 0;

    if (failed && err.status == EX_TEMPFAIL) {
        status = EX_TEMPFAIL;
        say_stopped(&c, &err);
    } else if (failed) {
        end_run(&c);
        status = c.problems.n ? TU_NEGATIVE : err.status;
        lines_add(&c.problems, short_of(&c, err.what)); /* a line, too */
    } else if (c.problems.n) {
        status = TU_NEGATIVE;
    } else if (cmd->verbose) {
        say_sound(&c);
    }
    if (cmd->json)
        put_json(to, &c, status);
    else
        put_tsv(to, &c);
    free(c.manifest.entries);
    free(c.run.what);
    lines_free(&c.problems);
    lines_free(&c.notes);
    saevdir_close(&c.dir);
    return status;
}

/* "Run me again" wins over "no", that over "cannot be judged", and that over
 * "sound". */
static int
worse(int a, int b)
{
    if (b == EX_TEMPFAIL)
        return b;
    if (a == TU_NEGATIVE || b == TU_NEGATIVE)
        return TU_NEGATIVE;
    return a ? a : b;
}

int
verify_main(struct read_cmd *cmd, struct err *err)
{
    struct str text = { 0 };
    int status = 0, n = 0, n_bad = 0, rc;

    if (cmd->n_args == 0)
        return err_set(err, TU_USAGE, "verify: a DUMP is missing");
    if (cmd->deep && par_open(&cmd->par, cmd->n_threads, err) < 0)
        return -1;
    if (cmd->json)
        str_adds(&text, "{\"dumps\":[");
    while (n < cmd->n_args && status != EX_TEMPFAIL) {
        struct str rows = { 0 };
        int one;

        if (cmd->json)
            str_adds(&rows, n ? ",\n" : "\n");
        one = verify_dump(cmd, cmd->args[n++], &rows);
        if (rows.n && one && n_bad++ == 0 && !cmd->json)
            str_adds(&text, "dump\tproblem\n");
        status = worse(status, one);
        str_add(&text, rows.s ? rows.s : "", rows.n);
        str_free(&rows);
    }
    if (cmd->json)
        str_addf(&text, "\n],\"checked\":%d,\"bad\":%d}\n", n, n_bad);
    sig_install(true); /* nothing is read any more: a pipe may stay full */
    rc = out_write(cmd->out, text.s ? text.s : "", text.n, err);
    str_free(&text);
    return rc < 0 ? -1 : status;
}
