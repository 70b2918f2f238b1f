/* SPDX-License-Identifier: ISC */
#include "core/text/tok_split.h"

#include <string.h>

#include "core/text/tok_bpe.h"
#include "core/text/tok_impl.h"
#include "core/text/tok_parts.h"
#include "core/text/tok_utf8.h"

/* GPT-2's words: what ByteLevel splits into by itself. */
#define GPT2_REGEX                                                       \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|" \
    "\\s+(?!\\S)|\\s+"

/* One piece being cut by one step; a segment that may still grow is pending. */
struct cutter {
    struct encoder *enc;
    const struct split_step *step;
    size_t i_step;
    const char *s;
    bool first; /* the piece starts where the whole text starts */
    bool pending, match;
    size_t a, b;
};

static int
emit(struct cutter *cut, size_t a, size_t b)
{
    if (a == b)
        return 0;
    return split_run(cut->enc, cut->i_step + 1, cut->s + a, b - a,
                     cut->first && a == 0);
}

static int
flush(struct cutter *cut)
{
    bool pending = cut->pending;

    cut->pending = false;
    return pending ? emit(cut, cut->a, cut->b) : 0;
}

/* The text's next segment: a match of the pattern or the text between two. */
static int
segment(struct cutter *cut, size_t a, size_t b, bool match)
{
    enum split_behavior behavior = cut->step->behavior;

    if (a == b && !match)
        return 0;
    match ^= cut->step->invert;
    if (behavior == SPLIT_ISOLATED)
        return emit(cut, a, b);
    if (behavior == SPLIT_REMOVED)
        return match ? 0 : emit(cut, a, b);
    /* does it belong to the one before? */
    if (cut->pending && (behavior == SPLIT_CONTIGUOUS ? match == cut->match
                         : behavior == SPLIT_PREVIOUS ? match && !cut->match
                                                      : !match && cut->match)) {
        cut->b = b;
        cut->match = match;
        return 0;
    }
    if (flush(cut) < 0)
        return -1;
    cut->pending = true;
    cut->match = match;
    cut->a = a;
    cut->b = b;
    return 0;
}

static int
cut_by_regex(struct cutter *cut, size_t n)
{
    struct tok_regex_iter it =
        tok_regex_start(&cut->step->regex, &cut->enc->regexes, cut->s, n);
    size_t done = 0, a, b;
    int rc;

    while ((rc = tok_regex_next(&it, &a, &b, cut->enc->err)) > 0) {
        if (segment(cut, done, a, false) < 0 || segment(cut, a, b, true) < 0)
            return -1;
        done = b;
    }
    if (rc < 0 || segment(cut, done, n, false) < 0)
        return -1;
    return flush(cut);
}

int
split_run(struct encoder *enc, size_t i_step, const char *s, size_t n,
          bool first)
{
    const struct split_step *step = &enc->tok->split[i_step];
    const struct metaspace *meta = &step->metaspace;
    struct str *out = &enc->scratch[i_step];
    struct cutter cut = { enc, step, i_step, s, first, false, false, 0, 0 };
    char utf8[4];

    if (i_step == enc->tok->n_split)
        return word_encode(enc, s, n);
    switch (step->type) {
    case SPLIT_PATTERN:
        return cut_by_regex(&cut, n);
    case SPLIT_BYTE_LEVEL:
        if (!step->add_prefix_space || s[0] == ' ')
            break;
        str_clear(out);
        str_addc(out, ' ');
        str_add(out, s, n++);
        cut.s = out->s;
        break;
    case SPLIT_MAP_BYTES:
        /* ByteLevel in the middle: the next steps see its alphabet */
        str_clear(out);
        for (size_t i = 0; i < n; i++)
            str_add(out, utf8, alphabet_put(utf8, (uint8_t)s[i]));
        cut.s = out->s;
        n = out->n;
        break;
    case SPLIT_METASPACE:
        str_clear(out);
        if (s[0] != ' ' &&
            (n < meta->n || memcmp(s, meta->replacement, meta->n) != 0) &&
            (meta->prepend == PREPEND_ALWAYS ||
             (meta->prepend == PREPEND_FIRST && first)))
            str_add(out, meta->replacement, meta->n);
        for (size_t i = 0, word; i < n; i = word) {
            const char *space = memchr(s + i, ' ', n - i);

            word = space ? (size_t)(space - s) : n;
            str_add(out, s + i, word - i);
            if (space) {
                str_add(out, meta->replacement, meta->n);
                word++;
            }
        }
        cut.s = out->s;
        n = out->n;
        break;
    }
    if (growth_add(&enc->split, i_step, n, enc->err) < 0)
        return -1;
    if (step->regex.re || step->regex.is_literal)
        return cut_by_regex(&cut, n);
    return emit(&cut, 0, n);
}

int
metaspace_parse(struct metaspace *meta, const struct js *js, struct err *err)
{
    struct js replacement = js_get(js, "replacement");
    struct js scheme = js_get(js, "prepend_scheme");
    const char *s = "always";
    bool prefix;
    uint32_t c;
    size_t n;

    if (part_bool(js, "add_prefix_space", 1, &prefix, err) < 0 ||
        part_bool(js, "split", 1, &meta->split, err) < 0 ||
        js_str(&replacement, &s, &n, err) < 0)
        return -1;
    if (n == 0 || n > 4 || (size_t)utf8_next(s, n, &c) != n)
        return js_bad(&replacement, "one character", err);
    memcpy(meta->replacement, s, n);
    meta->n = n;
    s = prefix ? "always" : "never";
    if (!js_absent(&scheme) && js_str(&scheme, &s, &n, err) < 0)
        return -1;
    if (strcmp(s, "always") == 0)
        meta->prepend = PREPEND_ALWAYS;
    else if (strcmp(s, "never") == 0)
        meta->prepend = PREPEND_NEVER;
    else if (strcmp(s, "first") == 0)
        meta->prepend = PREPEND_FIRST;
    else
        return js_bad(&scheme, "always, never or first", err);
    if (!prefix && meta->prepend != PREPEND_NEVER)
        return js_bad(&scheme, "never: add_prefix_space is false", err);
    return 0;
}

/* A step with a regex of our own. */
static int
set_regex(struct split_step *step, const struct js *js, const char *regex,
          struct err *err)
{
    json_t *v = json_pack("{s:s}", "Regex", regex);
    struct js pattern = js_root(v, js->file);
    int rc = tok_regex_parse(&step->regex, &pattern, err);

    json_decref(v);
    return rc;
}

int
split_parse(struct tok *tok, const struct js *js, struct err *err)
{
    static const char *const behaviors[] = { "Removed", "Isolated",
                                             "MergedWithPrevious",
                                             "MergedWithNext", "Contiguous" };
    struct js behavior = js_get(js, "behavior"), pattern;
    struct split_step *step;
    const char *type, *s;
    bool flag; /* use_regex; individual_digits */
    size_t n;
    int rc = part_step(tok, js, "pretokenizers", split_parse, &tok->n_split,
                       &type, err);

    if (rc <= 0)
        return rc;
    step = &tok->split[tok->n_split - 1];
    step->behavior = SPLIT_ISOLATED;
    if (strcmp(type, "ByteLevel") == 0) {
        step->type = SPLIT_BYTE_LEVEL;
        if (part_bool(js, "add_prefix_space", -1, &step->add_prefix_space,
                      err) < 0 ||
            part_bool(js, "use_regex", 1, &flag, err) < 0)
            return -1;
        if (flag && set_regex(step, js, GPT2_REGEX, err) < 0)
            return -1;
        if (tok->n_split == TOK_MAX_STEPS)
            return part_too_many(js, err);
        tok->split[tok->n_split++].type = SPLIT_MAP_BYTES;
        return 0;
    }
    if (strcmp(type, "Split") == 0) {
        step->type = SPLIT_PATTERN;
        if (js_str(&behavior, &s, &n, err) < 0 ||
            part_bool(js, "invert", 0, &step->invert, err) < 0)
            return -1;
        for (n = 0; n < 5 && strcmp(s, behaviors[n]) != 0;)
            n++;
        if (n == 5)
            return js_bad(&behavior,
                          "Removed, Isolated, MergedWithPrevious, "
                          "MergedWithNext or Contiguous",
                          err);
        step->behavior = (enum split_behavior)n;
        pattern = js_get(js, "pattern");
        return tok_regex_parse(&step->regex, &pattern, err);
    }
    if (strcmp(type, "Metaspace") == 0) {
        step->type = SPLIT_METASPACE;
        step->behavior = SPLIT_NEXT;
        if (metaspace_parse(&step->metaspace, js, err) < 0)
            return -1;
        step->regex.is_literal = step->metaspace.split;
        str_add(&step->regex.literal, step->metaspace.replacement,
                step->metaspace.n);
        return 0;
    }
    if (strcmp(type, "Digits") != 0)
        return part_unknown(js, "ByteLevel, Split, Digits, Metaspace, Sequence",
                            err);
    step->type = SPLIT_PATTERN;
    if (part_bool(js, "individual_digits", -1, &flag, err) < 0)
        return -1;
    step->behavior = flag ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS;
    return set_regex(step, js, "\\p{N}", err);
}

void
split_free(struct split_step *step)
{
    tok_regex_free(&step->regex);
}
