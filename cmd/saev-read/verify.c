/* SPDX-License-Identifier: ISC */
/* verify: is a dump whole?  What is found, and how it is reported. */
#include "cmd/saev-read/verify.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/format/saev_ids.h"
#include "core/js.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/out.h"
#include "core/sig.h"
#include "core/tool.h"
#include "core/tty.h"

#define XXH3_DIGITS     32
#define MANIFEST_MAX    ((size_t)1 << 30)
#define MANIFEST_NAME   "manifest.xxh3"
#define LOWER_HEX       "0123456789abcdef"
#define MANIFEST_MIDDLE "  "

/* Takes ownership of 's'. */
static void
lines_add(struct lines *lines, char *s)
{
    if (lines->n == lines->cap)
        lines->s = xgrow(lines->s, lines->n, &lines->cap, sizeof(*lines->s));
    lines->s[lines->n++] = s;
}

/* A line without the dump's own name in front. */
void
check_report(void *ctx, const char *what)
{
    struct dump_check *c = ctx;
    size_t n = strlen(c->path);

    while (n > 1 && c->path[n - 1] == '/')
        n--;
    if (!strncmp(what, c->path, n) && what[n] == '/')
        what += n + 1;
    lines_add(&c->problems, xstrdup(what));
}

void
check_init(struct dump_check *c, struct read_cmd *cmd, const char *path)
{
    *c = (struct dump_check){ .cmd = cmd,
                              .path = path,
                              .run = { .report = check_report, .ctx = c } };
}

void
check_close(struct dump_check *c)
{
    for (size_t i = 0; i < c->problems.n; i++)
        free(c->problems.s[i]);
    free(c->problems.s);
    free(c->hex);
    saevdir_close(&c->dir);
}

void
problem(struct dump_check *c, const char *fmt, ...)
{
    struct str line = { 0 };
    va_list ap;

    saevdir_end_run(&c->run);
    va_start(ap, fmt);
    str_addv(&line, fmt, ap);
    va_end(ap);
    check_report(c, line.s);
    str_free(&line);
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

/* "HEX  acts000012.bin" in [line, end); false: it is not that. */
static bool
parse_entry(char hex[HASH_MAX_HEX], size_t *shard, const char *line,
            const char *end)
{
    char name[32] = "";
    size_t n = (size_t)(end - line);
    const size_t fixed = XXH3_DIGITS + sizeof(MANIFEST_MIDDLE) - 1;

    if (n <= fixed || n - fixed >= sizeof(name) ||
        memcmp(line + XXH3_DIGITS, MANIFEST_MIDDLE, fixed - XXH3_DIGITS) != 0)
        return false;
    memcpy(hex, line, XXH3_DIGITS);
    hex[XXH3_DIGITS] = '\0';
    memcpy(name, line + fixed, n - fixed);
    return strspn(hex, LOWER_HEX) == XXH3_DIGITS && saev_shard_of(name, shard);
}

/* Reads the manifest, if there is one.  Every file has one entry, every entry a
 * file; a shard that is missing has been reported. */
static int
check_manifest(struct dump_check *c, const char *path, struct err *err)
{
    const struct saevdir *dir = &c->dir;
    size_t n_lines = 1, first_bad = 0, n_bad = 0;
    struct str text = { 0 };
    const char *end, *line_end;

    if (file_missing(path))
        return 0;
    if (file_read_regular(path, MANIFEST_MAX, &text, err) < 0) {
        str_free(&text);
        return -1;
    }
    c->hex = xcalloc(dir->n_listed + 1, sizeof(*c->hex));
    end = text.s + text.n;
    for (const char *p = text.s; p < end; p = line_end + 1, n_lines++) {
        const struct saevdir_file *f;
        char hex[HASH_MAX_HEX];
        size_t shard;

        line_end = memchr(p, '\n', (size_t)(end - p));
        if (!line_end)
            line_end = end;
        if (!parse_entry(hex, &shard, p, line_end)) {
            first_bad = n_bad++ ? first_bad : n_lines;
            continue;
        }
        f = saevdir_file(dir, shard);
        if (f && *c->hex[f - dir->files])
            saevdir_problem(&c->run, shard, shard,
                            "more than once in " MANIFEST_NAME);
        else if (f)
            memcpy(c->hex[f - dir->files], hex, sizeof(hex));
        else if (shard >= dir->saev.n_shards)
            saevdir_problem(&c->run, shard, shard,
                            "in " MANIFEST_NAME ", but missing");
    }
    str_free(&text);
    for (size_t i = 0; i < dir->n_listed; i++)
        if (!*c->hex[i])
            saevdir_problem(&c->run, dir->files[i].shard, dir->files[i].shard,
                            "not in " MANIFEST_NAME);
    if (n_bad)
        problem(c,
                MANIFEST_NAME ": %zu lines are not HASH, two spaces and a "
                              "shard's name (the first is line %zu)",
                n_bad, first_bad);
    saevdir_end_run(&c->run);
    return 0;
}

int
check_others(struct dump_check *c, struct err *err)
{
    const struct saev *s = &c->dir.saev;
    struct str path = { 0 }, text = { 0 };
    struct saev_ids ids = { 0 };
    struct stat st;
    size_t want;
    int rc;

    str_addf(&path, "%s/labels.bin", c->dir.path);
    if (s->version >= SAEV_1_1 && !file_missing(path.s)) {
        /* u8 [n_imgs, n_patches] */
        rc = stat(path.s, &st);
        if (rc < 0)
            err_sys(err, file_status(errno), "%s", path.s);
        else if (size_mul(s->n_imgs, s->n_patches, &want) &&
                 (size_t)st.st_size != want)
            problem(c, "labels.bin: %zu bytes (expected %zu)",
                    (size_t)st.st_size, want);
        if (rc < 0)
            goto out;
    }
    rc = saevdir_name_problem(&c->dir, &text, err);
    if (rc == 0 && text.n)
        problem(c, "%s", text.s);
    str_clear(&path);
    str_addf(&path, "%s/shards.json", c->dir.path);
    if (s->version >= SAEV_1_0 && file_missing(path.s))
        problem(c, "shards.json: missing");
    if (rc == 0 && saev_ids_of(&ids, &c->dir, err) < 0) {
        rc = err->status == EX_DATAERR ? 0 : -1;
        if (rc == 0)
            problem(c, "%s", err->what);
        *err = rc == 0 ? (struct err){ 0 } : *err;
    }
    saev_ids_close(&ids);
    str_clear(&path);
    str_addf(&path, "%s/" MANIFEST_NAME, c->dir.path);
    if (rc == 0)
        rc = check_manifest(c, path.s, err);
out:
    str_free(&path);
    str_free(&text);
    return rc;
}

void
lines_json(struct str *to, const char *key, const struct lines *lines)
{
    str_addf(to, ",\"%s\":[", key);
    for (size_t i = 0; i < lines->n; i++) {
        str_adds(to, i ? "," : "");
        js_put_str(to, lines->s[i], strlen(lines->s[i]));
    }
    str_addc(to, ']');
}

/* Returns the dump's status: 0, TU_NEGATIVE, or why it cannot be judged; what
 * has been found to be wrong before stays wrong. */
static int
verify_dump(struct read_cmd *cmd, const char *path, struct str *to)
{
    struct dump_check c;
    struct err err = { 0 };
    int status = 0;

    check_init(&c, cmd, path);
    if (saevdir_meta(&c.dir, path, &err) < 0 ||
        saevdir_check(&c.dir, check_report, &c, &err) < 0 ||
        check_others(&c, &err) < 0 || (cmd->deep && check_deep(&c, &err) < 0))
        status = err.status;
    saevdir_end_run(&c.run);
    if (status == EX_TEMPFAIL) { /* one line, wherever that was */
        struct str how = { 0 };

        if (c.n_part)
            str_addf(&how, "%zu of %zu shard%s of %s read", c.n_read, c.n_part,
                     plural(c.n_part), path);
        else
            str_addf(&how, "no shard of %s was read", path);
        str_adds(&how, ", run it again");
        sig_stopped(how.s, &err);
        tool_say("%s", err.what);
        str_free(&how);
    } else if (status) {
        status = c.problems.n ? TU_NEGATIVE : status;
        check_report(&c, err.what); /* a line, too */
    } else if (c.problems.n) {
        status = TU_NEGATIVE;
    } else if (cmd->verbose && cmd->sharded) {
        tool_say("%s: part %llu/%llu is sound, %zu shard%s, %zu bytes", path,
                 (unsigned long long)cmd->part,
                 (unsigned long long)cmd->n_parts, c.n_read, plural(c.n_read),
                 c.nbytes_read);
    } else if (cmd->verbose) {
        tool_say("%s: sound, %zu shard%s, %zu bytes", path, c.dir.n_files,
                 plural(c.dir.n_files), c.dir.nbytes);
    }
    if (cmd->json) {
        str_adds(to, "{\"dump\":");
        js_put_str(to, path, strlen(path));
        str_addf(to, ",\"status\":%d", status);
        lines_json(to, "problems", &c.problems);
        str_addc(to, '}');
    }
    for (size_t i = 0; !cmd->json && i < c.problems.n; i++) {
        str_esc(to, path, strlen(path));
        str_addc(to, '\t');
        str_esc(to, c.problems.s[i], strlen(c.problems.s[i]));
        str_addc(to, '\n');
    }
    check_close(&c);
    return status;
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
        /* "run me again" wins over "no", and that over "cannot be judged" */
        if (one == EX_TEMPFAIL || one == TU_NEGATIVE || !status)
            status = one;
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
