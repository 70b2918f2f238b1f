/* SPDX-License-Identifier: ISC */
#include "cmd/hf-infer/jsonl.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/hf-infer/messages.h"
#include "cmd/hf-infer/prompt.h"
#include "cmd/hf-infer/run.h"
#include "core/jpull.h"
#include "core/js.h"
#include "core/map.h"
#include "core/mem.h"

#define READ_BYTES ((size_t)1 << 16)

/* ---- lines ---- */

int
jsonl_open(struct jsonl *j, const char *path, struct err *err)
{
    bool input = strcmp(path, "-") == 0;

    *j = (struct jsonl){ .name = input ? "standard input" : path,
                         .settings = j->settings };
    j->fd = input ? 0 : file_open_any(path, err);
    return j->fd < 0 ? -1 : 0;
}

void
jsonl_close(struct jsonl *j)
{
    if (j->fd > 0)
        close(j->fd);
    str_free(&j->buf);
    for (size_t i = 0; i < j->n_unknown; i++)
        free(j->unknown[i]);
}

/* Finds the next line, in the buffer and without its newline.  Returns as
 * jsonl_next(). */
static int
next_line(struct jsonl *j, const char **line, size_t *nbytes, bool wait,
          struct err *err)
{
    struct pollfd p = { .fd = j->fd, .events = POLLIN };
    const char *end = NULL;

    for (;;) {
        long n;

        if (j->buf.n > j->scanned)
            end = memchr(j->buf.s + j->scanned, '\n', j->buf.n - j->scanned);
        if (end || j->ended)
            break;
        j->scanned = j->buf.n;
        if (!wait && poll(&p, 1, 0) == 0)
            return JSONL_NOT_YET;
        if (j->at > 0) {
            memmove(j->buf.s, j->buf.s + j->at, j->buf.n - j->at);
            j->buf.n -= j->at;
            j->scanned -= j->at;
            j->at = 0;
        }
        if (j->buf.n > JS_MAX_BYTES)
            return err_set(err, EX_DATAERR, "%s: line %zu: over %zu bytes",
                           j->name, j->n_lines + 1, JS_MAX_BYTES);
        if (wait && file_wait(j->fd, err) < 0)
            return -1;
        str_reserve(&j->buf, READ_BYTES);
        n = read_some(j->fd, j->buf.s + j->buf.n, READ_BYTES);
        if (n < 0)
            return err_sys(err, EX_IOERR, "%s: cannot be read", j->name);
        j->buf.n += (size_t)n;
        j->ended = n == 0;
    }
    if (!end && j->at == j->buf.n)
        return 0;
    *line = j->buf.s + j->at;
    *nbytes = (end ? (size_t)(end - j->buf.s) : j->buf.n) - j->at;
    j->at += *nbytes + (end ? 1 : 0);
    j->scanned = j->at;
    if (j->n_lines++ == 0) {
        size_t mark = js_mark(*line, *nbytes);

        *line += mark;
        *nbytes -= mark;
    }
    return 1;
}

/* ---- one line's object ---- */

/* A member's value as the line, which is known to be valid, spells it: a number
 * is not rounded to a double, and \u escapes stay. */
static struct jpull
spelled(const char *name, const char *line, size_t nbytes)
{
    struct jpull j = jpull_start(line, nbytes, JS_DEPTH);
    struct jspan key;

    j.python = true;
    jpull_enter(&j, '{', "an object");
    while (jpull_member(&j, &key) && !jspan_is(&key, name))
        jpull_skip(&j);
    jpull_peek(&j);
    return jpull_start(j.p, (size_t)(j.end - j.p), JS_DEPTH);
}

static int
copy_id(struct jsonl_doc *doc, json_t *v, const char *line, size_t nbytes,
        struct err *err)
{
    struct jpull text;

    if (!json_object_get(v, "id"))
        return 0;
    text = spelled("id", line, nbytes);
    if (!jpull_skip(&text))
        return err_set(err, EX_DATAERR,
                       "%s: id has NaN or Infinity, which are not JSON",
                       doc->where);
    js_put_json(&doc->id, text.text, (size_t)(text.p - text.text));
    return 0;
}

/* Members that are no variables of a chat template. */
static const char *const known[] = { "id",          "prompt",     "text",
                                     "ids",         "max_tokens", "seed",
                                     "temperature", "top_k",      "top_p",
                                     "stop",        "logprobs",   NULL };

static int
read_prompt(struct jsonl_doc *doc, const json_t *v, struct err *err)
{
    struct js root = js_root(v, doc->where);
    struct js prompt = js_get(&root, "prompt"), text = js_get(&root, "text");
    struct js ids = js_get(&root, "ids"), say = js_get(&root, "messages");
    int n = !js_absent(&prompt) + !js_absent(&text) + !js_absent(&ids) +
            !js_absent(&say);
    const char *s;
    size_t nbytes;

    if (!json_is_object(v))
        return err_set(err, EX_DATAERR, "%s: not a JSON object", doc->where);
    if (n != 1)
        return err_set(err, EX_DATAERR,
                       "%s: has %s of \"prompt\", \"text\", \"messages\" and "
                       "\"ids\" (expected one)",
                       doc->where, n ? "more than one" : "none");
    if (!js_absent(&say)) {
        doc->vars = chat_vars(&root, known, err);
        return doc->vars ? 0 : -1;
    }
    doc->is_ids = !js_absent(&ids);
    if (doc->is_ids && !js_is(&ids, JSON_ARRAY))
        return js_bad(&ids, "an array of token ids", err);
    for (size_t i = 0; doc->is_ids && i < json_array_size(ids.v); i++) {
        struct js item = js_at(&ids, i);
        int64_t id;

        if (js_i64(&item, 0, INT32_MAX, &id, err))
            return -1;
        ids_add(&doc->ids, (int32_t)id);
    }
    if (doc->is_ids)
        return 0;
    if (js_str(js_absent(&prompt) ? &text : &prompt, &s, &nbytes, err))
        return -1;
    str_add(&doc->text, s, nbytes);
    return 0;
}

static int
add_stop(struct jsonl_doc *doc, const struct js *js, struct err *err)
{
    const char *s;
    size_t n;

    if (js_str(js, &s, &n, err))
        return -1;
    if (n == 0 || strlen(s) < n)
        return js_bad(js, "a string of at least one character, without NUL",
                      err);
    doc->stop[doc->n_stop++] = xstrndup(s, n);
    return 0;
}

/* Reads the setting 'key', 0 .. max, and sets its bit, if the line has it. */
static int
read_number(const struct js *root, const char *key, double max, unsigned bit,
            double *v, struct jsonl_doc *doc, struct err *err)
{
    struct js js = js_get(root, key);
    char expected[64];

    if (js_absent(&js))
        return 0;
    if (js_f64(&js, v, err))
        return -1;
    snprintf(expected, sizeof(expected), "a number from 0 to %g", max);
    if (!(*v >= 0 && *v <= max))
        return js_bad(&js, expected, err);
    doc->set |= bit;
    return 0;
}

static int
read_settings(struct jsonl_doc *doc, json_t *object, const char *line,
              size_t nbytes, struct err *err)
{
    const struct js at = js_root(object, doc->where), *root = &at;
    struct js max_tokens = js_get(root, "max_tokens");
    struct js seed = js_get(root, "seed"), top_k = js_get(root, "top_k");
    struct js stop = js_get(root, "stop"), best = js_get(root, "logprobs");
    struct jpull text;
    int64_t v;

    if (!js_absent(&max_tokens) &&
        js_whole(&max_tokens, 0, INT32_MAX, &doc->max_tokens, err))
        return -1;
    if (!js_absent(&best) &&
        js_whole(&best, 0, LOGPROBS_MAX, &doc->n_best, err))
        return -1;
    if (!js_absent(&seed)) {
        text = spelled("seed", line, nbytes);
        if (!jpull_u64(&text, &doc->seed)) { /* it may be 7.0 */
            if (js_whole(&seed, 0, INT64_MAX, &v, err))
                return js_bad(&seed, "a whole number from 0 to 2^64 - 1", err);
            doc->seed = (uint64_t)v;
        }
        doc->set |= SET_SEED;
    }
    if (!js_absent(&top_k)) {
        if (js_whole(&top_k, 0, INT32_MAX, &doc->top_k, err))
            return -1;
        doc->set |= SET_TOP_K;
    }
    if (read_number(root, "temperature", 1e6, SET_TEMPERATURE,
                    &doc->temperature, doc, err) ||
        read_number(root, "top_p", 1, SET_TOP_P, &doc->top_p, doc, err))
        return -1;
    if (js_absent(&stop) || js_is(&stop, JSON_STRING))
        return js_absent(&stop) ? 0 : add_stop(doc, &stop, err);
    if (!js_is(&stop, JSON_ARRAY) || json_array_size(stop.v) > STOP_MAX)
        return js_bad(&stop, "a string, or an array of at most 16 strings",
                      err);
    for (size_t i = 0; i < json_array_size(stop.v); i++) {
        struct js item = js_at(&stop, i);

        if (add_stop(doc, &item, err))
            return -1;
    }
    return 0;
}

/* Warns of unknown members, once for each name; with messages they are
 * variables. */
static void
warn_unknown(struct jsonl *j, const struct jsonl_doc *doc, json_t *object)
{
    const struct js root = js_root(object, doc->where);
    const char *key;

    for (void *at = NULL;
         !doc->vars && (key = js_unknown(&root, known, &at));) {
        bool skip = j->n_unknown == JSONL_MAX_UNKNOWN;

        for (size_t i = 0; i < j->n_unknown; i++)
            skip |= strcmp(key, j->unknown[i]) == 0;
        if (skip)
            continue;
        err_warn("%s: member \"%s\" is not known, ignored here and below",
                 doc->where, key);
        j->unknown[j->n_unknown++] = xstrdup(key);
    }
}

int
jsonl_next(struct jsonl *j, struct jsonl_doc *doc, bool wait, struct err *err)
{
    struct str where = { 0 };
    struct jpull spaces;
    const char *line = NULL;
    size_t nbytes = 0;
    json_t *v;
    int rc;

    do {
        rc = next_line(j, &line, &nbytes, wait, err);
        spaces = jpull_start(line, nbytes, 0);
    } while (rc == 1 && jpull_done(&spaces));
    if (rc != 1)
        return rc;
    str_addf(&where, "%s: line %zu", j->name, j->n_lines);
    doc->where = where.s;
    v = js_line(line, nbytes, j->name, j->n_lines, err);
    if (!v)
        return -1;
    doc->max_tokens = doc->n_best = -1;
    rc = read_prompt(doc, v, err);
    if (rc == 0 && j->settings) {
        rc = read_settings(doc, v, line, nbytes, err);
        warn_unknown(j, doc, v);
    }
    if (rc == 0 && doc->vars)
        rc = messages_check_json(line, nbytes, doc->where, err);
    if (rc == 0)
        rc = copy_id(doc, v, line, nbytes, err);
    json_decref(v);
    return rc < 0 ? -1 : 1;
}

json_t *
jsonl_vars(const struct run *run, const struct jsonl_doc *doc, struct err *err)
{
    if (doc->is_ids || !run->chat)
        return err_data(err, doc->where, "has \"%s\", %s",
                        doc->is_ids ? "ids" : "messages",
                        doc->is_ids ? "which no chat template makes text of"
                                    : "which only --chat reads"),
               NULL;
    return doc->vars ? json_incref(doc->vars)
                     : prompt_say(run, doc->where, &doc->text, err);
}

int
jsonl_ids(struct run *run, const struct jsonl_doc *doc, struct ids *ids,
          struct err *err)
{
    struct err cause;
    json_t *vars;
    int rc;

    for (size_t i = 0; i < doc->ids.n; i++)
        ids_add(ids, doc->ids.id[i]);
    if (doc->is_ids)
        return 0;
    if (run_open_tok(run, err) < 0)
        return -1;
    if (run->chat || doc->vars) {
        vars = jsonl_vars(run, doc, err);
        rc = vars ? messages_ids(run, doc->where, vars, ids, err) : -1;
        json_decref(vars);
    } else {
        rc = prompt_encode(run, "text", &doc->text, ids, &cause);
        if (rc < 0)
            err_set(err, cause.status, "%s: %s", doc->where, cause.what);
    }
    return rc;
}

void
jsonl_doc_free(struct jsonl_doc *doc)
{
    free(doc->where);
    str_free(&doc->id);
    str_free(&doc->text);
    ids_free(&doc->ids);
    json_decref(doc->vars);
    for (size_t i = 0; i < doc->n_stop; i++)
        free(doc->stop[i]);
}
