/* SPDX-License-Identifier: ISC */
#include "core/text/tok_parts.h"

#include <string.h>

#include "core/mem.h"
#include "core/text/tok.h"
#include "core/text/tok_added.h"
#include "core/text/tok_impl.h"
#include "core/text/tok_map.h"
#include "core/text/tok_norm.h"

int
part_unknown(const struct js *js, const char *known, struct err *err)
{
    struct js at = js_get(js, "type");
    struct str name = { 0 };
    const char *s;
    size_t n;

    if (js_str(&at, &s, &n, err) < 0)
        return -1;
    js_put_str(&name, s, n);
    err_set(err, EX_DATAERR, "%s: %s %s is not supported (%s)", at.file,
            at.path, name.s, known);
    str_free(&name);
    return -1;
}

int
part_too_many(const struct js *js, struct err *err)
{
    return err_set(err, EX_DATAERR, "%s: %s: more than %d steps", js->file,
                   js->path, TOK_MAX_STEPS);
}

int
part_bool(const struct js *js, const char *key, int absent, bool *v,
          struct err *err)
{
    struct js at = js_get(js, key);

    if (absent >= 0 && js_absent(&at)) {
        *v = absent;
        return 0;
    }
    return js_bool(&at, v, err);
}

int
part_str(const struct js *js, const char *key, struct str *s, struct err *err)
{
    struct js at = js_get(js, key);
    const char *bytes;
    size_t n;

    if (js_str(&at, &bytes, &n, err) < 0)
        return -1;
    if (n > TOK_MAX_PIECE)
        return err_set(err, EX_DATAERR, "%s: %s has %zu bytes (at most %d)",
                       at.file, at.path, n, TOK_MAX_PIECE);
    str_add(s, bytes, n);
    return 0;
}

int
part_step(struct tok *tok, const struct js *js, const char *sequence,
          int (*parse)(struct tok *, const struct js *, struct err *),
          size_t *n_steps, const char **type, struct err *err)
{
    struct js at = js_get(js, "type"), list = js_get(js, sequence);
    size_t n;

    if (js_str(&at, type, &n, err) < 0)
        return -1;
    if (strcmp(*type, "Sequence") != 0) {
        if (n_steps && *n_steps == TOK_MAX_STEPS)
            return part_too_many(js, err);
        if (n_steps)
            ++*n_steps;
        return 1;
    }
    if (!js_is(&list, JSON_ARRAY))
        return js_bad(&list, "an array", err);
    for (size_t i = 0; i < json_array_size(list.v); i++) {
        at = js_at(&list, i);
        if (parse(tok, &at, err) < 0)
            return -1;
    }
    return 0;
}

static void
index_added(struct tok *tok)
{
    size_t n = tok->n_ids;

    for (size_t i = 0; i < tok->n_added; i++)
        if ((size_t)tok->added[i].id >= n)
            n = (size_t)tok->added[i].id + 1;
    tok->span = xrealloc(tok->span, n, sizeof(*tok->span));
    memset(tok->span + tok->n_ids, 0xff, (n - tok->n_ids) * sizeof(*tok->span));
    tok->n_ids = n;
    tok->added_of = xrealloc(NULL, n, sizeof(*tok->added_of));
    memset(tok->added_of, 0xff, n * sizeof(*tok->added_of));
    /* If several have the same id, the last one counts, here and in the tries.
     */
    for (size_t i = 0; i < tok->n_added; i++)
        tok->added_of[tok->added[i].id] = (int32_t)i;
    for (size_t i = 0; i < tok->n_added; i++) {
        const struct added *added = &tok->added[i];

        tok->special_normalized |= added->special && added->normalized;
        if (tok->added_of[added->id] == (int32_t)i)
            trie_add(added->normalized ? &tok->normalized : &tok->raw,
                     &added->pattern, (int32_t)i);
    }
    trie_link(&tok->raw);
    trie_link(&tok->normalized);
}

int
added_parse(struct tok *tok, const struct js *list, struct err *err)
{
    struct regex_work work = { 0 };
    struct growth growth = {
        tok->name, "added_tokens", TOK_MAX_GROWN, 0, { 0 }
    };
    int32_t next = (int32_t)tok->vocab.n, known;
    size_t n = json_array_size(list->v); /* 0 for what is no array */
    int rc = 0;

    if (!js_absent(list) && !js_is(list, JSON_ARRAY))
        return js_bad(list, "an array", err);
    tok->added = xcalloc(n, sizeof(*tok->added));
    for (size_t i = 0; i < n; i++) {
        struct js js = js_at(list, i), at = js_get(&js, "id");
        struct added *added = &tok->added[tok->n_added++];
        struct str *content = &added->content;
        bool at_start;
        int64_t id;

        if ((rc = part_str(&js, "content", content, err)) < 0 ||
            (rc = js_i64(&at, 0, TOK_MAX_ID, &id, err)) < 0 ||
            (rc = part_bool(&js, "special", 0, &added->special, err)) < 0 ||
            (rc = part_bool(&js, "normalized", !added->special,
                            &added->normalized, err)) < 0 ||
            (rc = part_bool(&js, "lstrip", 0, &added->lstrip, err)) < 0 ||
            (rc = part_bool(&js, "rstrip", 0, &added->rstrip, err)) < 0 ||
            (rc = part_bool(&js, "single_word", 0, &added->single_word, err)) <
                0)
            break;
        growth.nbytes += content->n;
        work.nbytes += content->n;
        if (!added->normalized || !tok->n_norm)
            str_add(&added->pattern, content->s, content->n);
        else if ((rc = norm_run(tok->norm, tok->n_norm, content->s, content->n,
                                &growth, &work, &added->pattern, &at_start,
                                err)) < 0)
            break;
        if (content->n == 0) { /* the reference leaves it out */
            str_free(content);
            str_free(&added->pattern);
            *added = (struct added){ 0 };
            tok->n_added--;
            continue;
        }
        /* the id that the reference gives: the vocabulary's, or the next */
        known = strmap_get(&tok->added_ids, content->s, content->n);
        if (known < 0)
            known = strmap_get(&tok->vocab, content->s, content->n);
        if (known < 0)
            known = next++;
        if (known != id)
            err_warn("%s: %s.id is %lld, but the token gets %d: the "
                     "vocabulary decides, as in the reference",
                     js.file, js.path, (long long)id, known);
        added->id = known;
        strmap_put(&tok->added_ids, content->s, content->n, known, NULL);
        if (added->special)
            strmap_put(&tok->special_set, content->s, content->n, known, NULL);
    }
    regex_work_free(&work);
    if (rc == 0)
        index_added(tok);
    return rc;
}

static int
parse_template(struct tok *tok, const struct js *js, struct err *err)
{
    struct js single = js_get(js, "single");
    struct js special = js_get(js, "special_tokens");
    struct ids before = { 0 }, after = { 0 };
    bool seen = false; /* the text, "A" */
    int64_t v;
    int rc = 0;

    if (!js_is(&single, JSON_ARRAY))
        return js_bad(&single, "an array", err);
    for (size_t i = 0; i < json_array_size(single.v) && rc == 0; i++) {
        struct js piece = js_at(&single, i);
        struct js token = js_get(&piece, "SpecialToken");
        struct js text = js_get(&piece, "Sequence");
        struct js id = js_get(js_absent(&token) ? &text : &token, "id");
        const char *s;

        rc = js_str(&id, &s, NULL, err);
        if (rc == 0 && js_absent(&token)) {
            if (strcmp(s, "A") != 0 || seen)
                rc = js_bad(&id, "one \"A\"", err);
            seen = true;
        } else if (rc == 0) { /* its name's ids in special_tokens */
            struct js entry = js_get(&special, s), list = js_get(&entry, "ids");
            struct ids *ids = seen ? &after : &before;

            if (!js_is(&list, JSON_ARRAY))
                rc = js_bad(&list, "an array of ids", err);
            for (size_t k = 0; rc == 0 && k < json_array_size(list.v); k++) {
                struct js at = js_at(&list, k);

                rc = js_i64(&at, 0, TOK_MAX_ID, &v, err);
                if (rc == 0 && ids->n == TOK_MAX_AROUND)
                    rc = err_set(err, EX_DATAERR,
                                 "%s: %s: more than %d ids on one side of a "
                                 "text",
                                 at.file, at.path, TOK_MAX_AROUND);
                if (rc == 0)
                    ids_add(ids, (int32_t)v);
            }
        }
    }
    if (rc == 0 && !seen)
        rc = js_bad(&single, "a template with the sequence \"A\"", err);
    if (rc == 0 && (before.n || after.n) && (tok->before.n || tok->after.n))
        rc = err_set(err, EX_DATAERR,
                     "%s: %s: a second template that adds something is not "
                     "supported",
                     js->file, js->path);
    if (rc == 0 && (before.n || after.n)) {
        tok->before = before; /* where nothing was */
        tok->after = after;
        return 0;
    }
    ids_free(&before);
    ids_free(&after);
    return rc;
}

int
post_parse(struct tok *tok, const struct js *js, struct err *err)
{
    const char *type;
    int rc = part_step(tok, js, "processors", post_parse, NULL, &type, err);

    if (rc <= 0)
        return rc;
    if (strcmp(type, "TemplateProcessing") == 0)
        return parse_template(tok, js, err);
    if (strcmp(type, "ByteLevel") == 0) /* offsets, which nobody asks for */
        return 0;
    return part_unknown(js, "ByteLevel, TemplateProcessing, Sequence", err);
}
