/* SPDX-License-Identifier: ISC */
#include "core/text/tok_decode.h"

#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/regex.h"
#include "core/text/tok.h"
#include "core/text/tok_added.h"
#include "core/text/tok_growth.h"
#include "core/text/tok_impl.h"
#include "core/text/tok_parts.h"
#include "core/text/tok_utf8.h"

#define TOKEN_GROWTH 64 /* times its bytes, at most, by a Replace */

/*
 * A decoder is a chain of steps, each from a list of tokens to another.  To
 * stream, a list is passed on in fragments: what a step is certain of, in
 * whole characters; 'last' ends a token.
 */
struct fragment {
    size_t end; /* in the list's text */
    bool last;
};

struct list {
    struct str text;
    struct fragment *fragment;
    size_t n, cap;
};

struct dec_state {
    struct str held;  /* a token that has not ended */
    struct str bytes; /* ByteLevel, ByteFallback: not yet characters */
    size_t n_tokens;  /* Metaspace: that ended */
    size_t n_cut;     /* Strip: characters removed from the token's start */
    bool past_start;  /* Strip: no more are to be removed */
    struct regex_work regexes; /* Replace: of all its tokens */
};

struct tok_stream {
    const struct tok *tok;
    bool skip_special;
    bool begun;           /* a token was there */
    struct growth growth; /* of all tokens' texts */
    struct list in, out;
    struct dec_state state[TOK_MAX_STEPS];
};

static void
put(struct list *list, const char *s, size_t n, bool last)
{
    if (n == 0 && !last)
        return;
    if (list->n == list->cap)
        list->fragment =
            xgrow(list->fragment, list->n, &list->cap, sizeof(*list->fragment));
    str_add(&list->text, s, n);
    list->fragment[list->n++] = (struct fragment){ list->text.n, last };
}

/* Passes on the bytes that are whole characters, or never will be. */
static void
put_utf8(struct str *bytes, bool end, struct list *out)
{
    size_t at = 0, n;
    bool cut;

    while (at < bytes->n) {
        n = utf8_valid(bytes->s + at, bytes->n - at);
        put(out, bytes->s + at, n, false);
        at += n;
        if (at == bytes->n)
            break;
        n = utf8_bad(bytes->s + at, bytes->n - at, &cut);
        if (cut && !end)
            break;
        put(out, REPLACEMENT, 3, false);
        at += n;
    }
    if (at) {
        memmove(bytes->s, bytes->s + at, bytes->n - at);
        bytes->n -= at;
    }
}

/* A token spelled in the alphabet is bytes, any other is its own text. */
static void
byte_level(struct str *bytes, const char *s, size_t n)
{
    size_t start = bytes->n;
    uint32_t c;
    int length, byte;

    str_reserve(bytes, n + 1);
    for (size_t i = 0; i < n; i += (size_t)length) {
        length = utf8_next(s + i, n - i, &c);
        byte = alphabet_byte(c);
        if (byte < 0) {
            bytes->n = start;
            str_add(bytes, s, n);
            return;
        }
        str_addc(bytes, (char)byte);
    }
}

/* The byte that "<0xHH>" stands for, or -1. */
static int
fallback_byte(const char *s, size_t n)
{
    static const char digits[] = "0123456789abcdef";
    const char *high, *low;

    if (n != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>' || !s[3] || !s[4])
        return -1;
    high = strchr(digits, s[3] >= 'A' && s[3] <= 'F' ? s[3] | 32 : s[3]);
    low = strchr(digits, s[4] >= 'A' && s[4] <= 'F' ? s[4] | 32 : s[4]);
    return high && low ? (int)((high - digits) << 4 | (low - digits)) : -1;
}

/* A run of bytes is text if all of it is; else each byte is U+FFFD. */
static void
put_run(struct str *bytes, struct list *out)
{
    if (bytes->n && utf8_valid(bytes->s, bytes->n) == bytes->n)
        put(out, bytes->s, bytes->n, true);
    else
        for (size_t i = 0; i < bytes->n; i++)
            put(out, REPLACEMENT, 3, true);
    bytes->n = 0;
}

/* A step's character goes from a token's start, so often at most. */
static void
strip(const struct dec_step *step, struct dec_state *state, const char *s,
      size_t n, bool last, struct list *out)
{
    const struct str *content = &step->content;

    while (!state->past_start && n) {
        state->past_start = state->n_cut == step->start || n < content->n ||
                            memcmp(s, content->s, content->n) != 0;
        if (state->past_start)
            break;
        s += content->n;
        n -= content->n;
        state->n_cut++;
    }
    put(out, s, n, last);
    if (last) {
        state->past_start = false;
        state->n_cut = 0;
    }
}

/* A fragment of a token through a step; 'last' ends the token.  A replacement
 * ends where 'out' is longer than 'max'. */
static int
step_token(const struct dec_step *step, struct dec_state *state, const char *s,
           size_t n, bool last, size_t max, struct list *out, struct err *err)
{
    const struct metaspace *meta = &step->metaspace;
    struct tok_regex_iter it;
    size_t done = 0, a, b;
    const char *at;
    int byte, rc = 0;

    /* the others need the whole token */
    if (step->type != DEC_METASPACE && step->type != DEC_FUSE &&
        step->type != DEC_STRIP && !(last && !state->held.n)) {
        str_add(&state->held, s, n);
        if (!last)
            return 0;
        s = state->held.s;
        n = state->held.n;
        state->held.n = 0; /* the bytes stay until the next fragment */
    }
    switch (step->type) {
    case DEC_BYTE_LEVEL:
        byte_level(&state->bytes, s, n);
        put_utf8(&state->bytes, false, out);
        break;
    case DEC_METASPACE:
        /* the first token loses its replacements, those of others are spaces */
        while ((at = memmem(s, n, meta->replacement, meta->n))) {
            put(out, s, (size_t)(at - s), false);
            if (state->n_tokens > 0 || meta->prepend == PREPEND_NEVER)
                put(out, " ", 1, false);
            n -= (size_t)(at - s) + meta->n;
            s = at + meta->n;
        }
        put(out, s, n, last);
        state->n_tokens += last;
        break;
    case DEC_REPLACE:
        it = tok_regex_start(&step->regex, &state->regexes, s, n);
        state->regexes.nbytes += n;
        while (n && out->text.n <= max &&
               (rc = tok_regex_next(&it, &a, &b, err)) > 0) {
            put(out, s + done, a - done, false);
            put(out, step->content.s, step->content.n, false);
            done = b;
        }
        put(out, s + done, n - done, true);
        return rc < 0 ? -1 : 0;
    case DEC_BYTE_FALLBACK:
        byte = fallback_byte(s, n);
        if (byte >= 0) {
            str_addc(&state->bytes, (char)byte);
            break;
        }
        put_run(&state->bytes, out);
        put(out, s, n, true);
        break;
    case DEC_FUSE:
        put(out, s, n, false);
        break;
    case DEC_STRIP:
        strip(step, state, s, n, last, out);
        break;
    }
    return 0;
}

/* Runs all steps on stream->in. */
static int
run(struct tok_stream *stream, bool end, struct str *text, struct err *err)
{
    const struct tok *tok = stream->tok;

    for (size_t i = 0; i < tok->n_dec; i++) {
        struct list *in = &stream->in, *out = &stream->out, t;
        size_t at = 0, max = growth_room(&stream->growth, i);

        str_clear(&out->text);
        out->n = 0;
        for (size_t k = 0; k < in->n; k++) {
            if (step_token(&tok->dec[i], &stream->state[i],
                           in->text.s ? in->text.s + at : "",
                           in->fragment[k].end - at, in->fragment[k].last, max,
                           out, err) < 0)
                return -1;
            at = in->fragment[k].end;
        }
        if (end) {
            enum dec_type type = tok->dec[i].type;

            if (type == DEC_BYTE_LEVEL)
                put_utf8(&stream->state[i].bytes, true, out);
            if (type == DEC_BYTE_FALLBACK)
                put_run(&stream->state[i].bytes, out);
            if (type == DEC_BYTE_LEVEL || type == DEC_FUSE)
                put(out, "", 0, true);
        }
        if (growth_add(&stream->growth, i, out->text.n, err) < 0)
            return -1;
        t = *in;
        *in = *out;
        *out = t;
    }
    str_add(text, stream->in.text.s, stream->in.text.n);
    return 0;
}

struct tok_stream *
tok_stream_new(const struct tok *tok, bool skip_special)
{
    struct tok_stream *stream = xcalloc(1, sizeof(*stream));

    stream->tok = tok;
    stream->skip_special = skip_special;
    stream->growth =
        (struct growth){ tok->name, "decoder", SIZE_MAX, 0, { 0 } };
    return stream;
}

int
tok_stream_add(struct tok_stream *stream, int32_t id, struct str *text,
               struct err *err)
{
    const struct tok *tok = stream->tok;
    size_t n;
    const char *s = tok_text(tok, id, &n);

    if (!s || (stream->skip_special && tok_is_special(tok, id)))
        return 0;
    if (tok->added_of[id] >= 0) {
        const struct str *pattern = &tok->added[tok->added_of[id]].pattern;

        s = pattern->s ? pattern->s : "";
        n = pattern->n;
    }
    str_clear(&stream->in.text);
    stream->in.n = 0;
    if (stream->begun && !tok->has_decoder)
        put(&stream->in, " ", 1, false);
    stream->begun = true;
    stream->growth.nbytes += n;
    put(&stream->in, s, n, true);
    return run(stream, false, text, err);
}

int
tok_stream_end(struct tok_stream *stream, struct str *text, struct err *err)
{
    str_clear(&stream->in.text);
    stream->in.n = 0;
    return run(stream, true, text, err);
}

void
tok_stream_free(struct tok_stream *stream)
{
    if (!stream)
        return;
    for (size_t i = 0; i < TOK_MAX_STEPS; i++) {
        str_free(&stream->state[i].held);
        str_free(&stream->state[i].bytes);
        regex_work_free(&stream->state[i].regexes);
    }
    str_free(&stream->in.text);
    str_free(&stream->out.text);
    free(stream->in.fragment);
    free(stream->out.fragment);
    free(stream);
}

int
tok_decode(const struct tok *tok, const int32_t *ids, size_t n,
           bool skip_special, struct str *text, struct err *err)
{
    struct tok_stream *stream = tok_stream_new(tok, skip_special);
    int rc = 0;

    for (size_t i = 0; i < n && rc == 0; i++)
        rc = tok_stream_add(stream, ids[i], text, err);
    if (rc == 0)
        rc = tok_stream_end(stream, text, err);
    tok_stream_free(stream);
    return rc;
}

bool
tok_bytes(const struct tok *tok, int32_t id, struct str *to)
{
    struct dec_state state = { .n_tokens = 1 }; /* others were before it */
    struct list list = { 0 };
    struct str now = { 0 };
    struct err none;
    size_t n;
    const char *s = tok_text(tok, id, &n);
    int byte, rc = 0;

    str_add(&now, s ? s : "", n);
    for (size_t i = 0; s && tok->added_of[id] < 0 && i < tok->n_dec; i++) {
        const struct dec_step *step = &tok->dec[i];

        str_clear(&list.text);
        list.n = 0;
        if (step->type == DEC_BYTE_LEVEL) {
            byte_level(&list.text, now.s, now.n);
        } else if (step->type == DEC_BYTE_FALLBACK) {
            byte = fallback_byte(now.s, now.n);
            if (byte < 0)
                continue;
            str_addc(&list.text, (char)byte);
        } else if (step->type == DEC_METASPACE || step->type == DEC_REPLACE) {
            rc = step_token(step, &state, now.s, now.n, true,
                            TOKEN_GROWTH * now.n, &list, &none);
            if (rc < 0)
                break; /* what no decoder can do is shown as it is */
        } else {
            continue;
        }
        str_clear(&now);
        str_add(&now, list.text.s ? list.text.s : "", list.text.n);
    }
    str_add(to, now.s, now.n);
    str_free(&now);
    str_free(&list.text);
    free(list.fragment);
    str_free(&state.held);
    regex_work_free(&state.regexes);
    return s != NULL;
}

int
dec_parse(struct tok *tok, const struct js *js, struct err *err)
{
    static const char *const names[] = { "ByteLevel",    "Metaspace", "Replace",
                                         "ByteFallback", "Fuse",      "Strip" };
    struct js pattern = js_get(js, "pattern"), content = js_get(js, "content");
    struct js start = js_get(js, "start"), stop = js_get(js, "stop");
    struct dec_step *step;
    int64_t n_start, n_stop;
    const char *type;
    uint32_t c;
    int rc = part_step(tok, js, "decoders", dec_parse, &tok->n_dec, &type, err);

    if (rc <= 0)
        return rc;
    step = &tok->dec[tok->n_dec - 1];
    while (step->type <= DEC_STRIP && strcmp(type, names[step->type]) != 0)
        step->type++;
    switch (step->type) {
    case DEC_BYTE_LEVEL:
    case DEC_BYTE_FALLBACK:
    case DEC_FUSE:
        return 0;
    case DEC_METASPACE:
        return metaspace_parse(&step->metaspace, js, err);
    case DEC_REPLACE:
        if (part_str(js, "content", &step->content, err) < 0)
            return -1;
        return tok_regex_parse(&step->regex, &pattern, err);
    case DEC_STRIP:
        if (part_str(js, "content", &step->content, err) < 0 ||
            js_i64(&start, 0, INT32_MAX, &n_start, err) < 0 ||
            js_i64(&stop, 0, INT32_MAX, &n_stop, err) < 0)
            return -1;
        if (n_stop > 0)
            return js_bad(&stop, "0", err);
        if (step->content.n == 0 ||
            (size_t)utf8_next(step->content.s, step->content.n, &c) !=
                step->content.n)
            return js_bad(&content, "one character", err);
        step->start = (size_t)n_start;
        return 0;
    }
    return part_unknown(js,
                        "ByteLevel, Metaspace, Replace, ByteFallback, Fuse, "
                        "Strip, Sequence",
                        err);
}

void
dec_free(struct dec_step *step)
{
    str_free(&step->content);
    tok_regex_free(&step->regex);
}
