/* SPDX-License-Identifier: ISC */
#include "core/text/template_value.h"

#include <stdlib.h>
#include <string.h>

#include "core/mem.h"

#define CHUNK ((size_t)65536)

struct tmpl_chunk {
    struct tmpl_chunk *next;
    size_t n;
    max_align_t data[];
};

void *
tmpl_alloc(struct tmpl_heap *heap, size_t nbytes)
{
    const size_t unit = sizeof(max_align_t);
    struct tmpl_chunk *chunk = heap->chunks;

    nbytes = (nbytes + unit - 1) / unit * unit;
    if (nbytes > heap->left) {
        size_t n = larger(nbytes, CHUNK);

        chunk = xmalloc(sizeof(*chunk) + n);
        chunk->n = n;
        heap->nbytes += n;
        if (heap->nbytes > TEMPLATE_MAX_MEMORY)
            heap->over = TMPL_OVER_MEMORY;
        if (n > CHUNK && heap->chunks) { /* the first still has room */
            chunk->next = heap->chunks->next;
            heap->chunks->next = chunk;
            return memset(chunk->data, 0, nbytes);
        }
        chunk->next = heap->chunks;
        heap->chunks = chunk;
        heap->left = n;
    }
    heap->left -= nbytes;
    return memset((char *)chunk->data + heap->left, 0, nbytes);
}

void *
tmpl_try(struct tmpl_heap *heap, size_t n, size_t size)
{
    size_t nbytes;

    if (!size_mul(n, size, &nbytes) || nbytes > TEMPLATE_MAX_MEMORY ||
        heap->nbytes + nbytes > TEMPLATE_MAX_MEMORY) {
        heap->over = TMPL_OVER_MEMORY;
        return NULL;
    }
    return tmpl_alloc(heap, nbytes);
}

void
tmpl_heap_free(struct tmpl_heap *heap)
{
    for (struct tmpl_chunk *next; heap->chunks; heap->chunks = next) {
        next = heap->chunks->next;
        free(heap->chunks);
    }
    *heap = (struct tmpl_heap){ 0 };
}

/* An array with room for one more; NULL beyond the bound. */
static void *
grow(struct tmpl_heap *heap, void *old, size_t n, size_t *cap, size_t size)
{
    void *p;

    if (n < *cap)
        return old;
    p = tmpl_try(heap, n ? 2 * n : 4, size);
    if (!p)
        return NULL;
    if (n)
        memcpy(p, old, n * size);
    *cap = n ? 2 * n : 4;
    return p;
}

static size_t
count_chars(const char *s, size_t n)
{
    size_t count = 0;

    for (size_t i = 0; i < n; i++)
        count += ((unsigned char)s[i] & 0xc0) != 0x80;
    return count;
}

struct tmpl_value
tmpl_text(struct tmpl_heap *heap, const char *s, size_t n, uint32_t of)
{
    struct tmpl_text *text = tmpl_alloc(heap, sizeof(*text));

    heap->work += n;
    *text = (struct tmpl_text){
        .s = s, .n = n, .n_chars = count_chars(s, n), .of = of
    };
    return (struct tmpl_value){ .kind = TMPL_TEXT, .text = text };
}

struct tmpl_value
tmpl_cut(struct tmpl_heap *heap, const struct tmpl_text *text, size_t from,
         size_t to)
{
    struct tmpl_text *cut;

    if (from == 0 && to == text->n)
        return (struct tmpl_value){ .kind = TMPL_TEXT, .text = text };
    cut = tmpl_alloc(heap, sizeof(*cut));
    *cut = *text;
    cut->s += from;
    cut->at += from;
    cut->n = cut->n_chars = to - from;
    if (text->n_chars < text->n) {
        heap->work += cut->n;
        cut->n_chars = count_chars(cut->s, cut->n);
    }
    return (struct tmpl_value){ .kind = TMPL_TEXT, .text = cut };
}

bool
tmpl_is(const struct tmpl_value *v, const char *word)
{
    return v->kind == TMPL_TEXT && v->text->n == strlen(word) &&
           !memcmp(v->text->s, word, v->text->n);
}

/* The run of an origin that its byte 'at' is in. */
static size_t
run_at(const struct tmpl_origin *origin, size_t at)
{
    size_t low = 0, high = origin->n - 1;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (origin->runs[middle].end > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

uint32_t
tmpl_origin_at(const struct tmpl_text *text, size_t i)
{
    if (!text->origin)
        return text->of;
    return text->origin->runs[run_at(text->origin, text->at + i)].of;
}

size_t
tmpl_byte_at(const struct tmpl_text *text, size_t i)
{
    size_t at = 0;

    if (text->n_chars == text->n || i >= text->n_chars)
        return i < text->n_chars ? i : text->n;
    for (; i > 0 || ((unsigned char)text->s[at] & 0xc0) == 0x80; at++)
        i -= ((unsigned char)text->s[at] & 0xc0) != 0x80;
    return at;
}

void
tmpl_put(struct tmpl_builder *b, const char *s, size_t n, uint32_t of)
{
    if (n == 0)
        return;
    if (n > TEMPLATE_MAX_TEXT - b->n)
        b->heap->over = TMPL_OVER_TEXT;
    if (b->heap->over)
        return;
    if (n > b->cap - b->n) {
        size_t cap = larger(larger(2 * b->cap, b->n + n), 64);
        char *p = tmpl_try(b->heap, cap, 1);

        if (!p)
            return;
        if (b->n)
            memcpy(p, b->s, b->n);
        b->s = p;
        b->cap = cap;
    }
    memcpy(b->s + b->n, s, n);
    b->n += n;
    b->heap->work += n;
    if (b->n_runs == 0 || b->runs[b->n_runs - 1].of != of) {
        struct rendered_run *runs =
            grow(b->heap, b->runs, b->n_runs, &b->cap_runs, sizeof(*b->runs));

        if (!runs) {
            b->n -= n;
            return;
        }
        b->runs = runs;
        b->runs[b->n_runs++].of = of;
    }
    b->runs[b->n_runs - 1].end = b->n;
}

void
tmpl_put_cut(struct tmpl_builder *b, const struct tmpl_text *text, size_t from,
             size_t to)
{
    size_t end;

    if (!text->origin || from == to) {
        tmpl_put(b, text->s + from, to - from, text->of);
        return;
    }
    for (size_t i = run_at(text->origin, text->at + from); from < to;
         from = end) {
        const struct rendered_run *run = &text->origin->runs[i++];

        end = smaller(run->end - text->at, to);
        tmpl_put(b, text->s + from, end - from, run->of);
    }
}

void
tmpl_put_text(struct tmpl_builder *b, const struct tmpl_text *text)
{
    tmpl_put_cut(b, text, 0, text->n);
}

struct tmpl_value
tmpl_built(struct tmpl_builder *b)
{
    struct tmpl_value v =
        tmpl_text(b->heap, b->n ? b->s : "", b->n, b->n ? b->runs[0].of : 0);

    if (b->n_runs > 1 || b->markup) {
        struct tmpl_origin *origin = tmpl_alloc(b->heap, sizeof(*origin));
        struct tmpl_text *text = tmpl_alloc(b->heap, sizeof(*text));

        *origin = (struct tmpl_origin){ b->runs, b->n_runs };
        *text = *v.text;
        text->origin = b->n_runs > 1 ? origin : NULL;
        text->markup = b->markup;
        v.text = text;
    }
    return v;
}

struct tmpl_value
tmpl_list(struct tmpl_heap *heap, enum tmpl_kind kind)
{
    return (struct tmpl_value){
        .kind = kind, .list = tmpl_alloc(heap, sizeof(struct tmpl_list))
    };
}

void
tmpl_push(struct tmpl_heap *heap, struct tmpl_list *list, struct tmpl_value v)
{
    struct tmpl_value *p =
        grow(heap, list->v, list->n, &list->cap, sizeof(*list->v));

    heap->work += sizeof(v);
    if (p) {
        list->v = p;
        list->v[list->n++] = v;
    }
}

struct tmpl_value
tmpl_pair(struct tmpl_heap *heap, struct tmpl_value a, struct tmpl_value b)
{
    struct tmpl_value pair = tmpl_list(heap, TMPL_TUPLE);

    tmpl_push(heap, pair.list, a);
    tmpl_push(heap, pair.list, b);
    return pair;
}

struct tmpl_value
tmpl_dict(struct tmpl_heap *heap)
{
    return (struct tmpl_value){
        .kind = TMPL_DICT, .dict = tmpl_alloc(heap, sizeof(struct tmpl_dict))
    };
}

struct tmpl_value *
tmpl_find(struct tmpl_heap *heap, struct tmpl_dict *dict,
          const struct tmpl_value *key)
{
    heap->work += 16 * dict->n;
    for (size_t i = 0; i < dict->n; i++)
        if (tmpl_equal(heap, &dict->pairs[i].key, key))
            return &dict->pairs[i].value;
    return NULL;
}

/* Appends what is known not to be there. */
static void
add_member(struct tmpl_heap *heap, struct tmpl_dict *dict,
           struct tmpl_value key, struct tmpl_value value)
{
    struct tmpl_pair *p =
        grow(heap, dict->pairs, dict->n, &dict->cap, sizeof(*p));

    if (p) {
        dict->pairs = p;
        p[dict->n++] = (struct tmpl_pair){ key, value };
    }
}

void
tmpl_set(struct tmpl_heap *heap, struct tmpl_dict *dict, struct tmpl_value key,
         struct tmpl_value value)
{
    struct tmpl_value *old = tmpl_find(heap, dict, &key);

    if (old)
        *old = value;
    else
        add_member(heap, dict, key, value);
}

bool
tmpl_true(const struct tmpl_value *v)
{
    switch (v->kind) {
    case TMPL_ABSENT:
    case TMPL_UNDEFINED:
    case TMPL_NONE:
        return false;
    case TMPL_BOOL:
        return v->b;
    case TMPL_INT:
        return v->i != 0;
    case TMPL_FLOAT:
        return v->f != 0;
    case TMPL_TEXT:
        return v->text->n > 0;
    case TMPL_LIST:
    case TMPL_TUPLE:
    case TMPL_RANGE:
    case TMPL_VIEW:
        return v->list->n > 0;
    case TMPL_DICT:
        return v->dict->n > 0;
    default:
        return true;
    }
}

bool
tmpl_number(const struct tmpl_value *v, double *f)
{
    *f = v->kind == TMPL_FLOAT ? v->f
         : tmpl_is_int(v)      ? (double)tmpl_as_int(v)
                               : 0;
    return v->kind == TMPL_FLOAT || tmpl_is_int(v);
}

static bool
equal(struct tmpl_heap *heap, const struct tmpl_value *a,
      const struct tmpl_value *b, int depth)
{
    double x, y;

    heap->work += 16;
    if (depth > TEMPLATE_MAX_NESTED)
        heap->over = TMPL_OVER_VALUE;
    if (heap->over)
        return false;
    if (tmpl_is_int(a) && tmpl_is_int(b))
        return tmpl_as_int(a) == tmpl_as_int(b);
    if (tmpl_number(a, &x) && tmpl_number(b, &y))
        return x == y;
    if (a->kind != b->kind)
        return false;
    switch (a->kind) {
    case TMPL_TEXT:
        if (a->text->n != b->text->n)
            return false;
        heap->work += a->text->n;
        return !memcmp(a->text->s, b->text->s, a->text->n);
    case TMPL_LIST:
    case TMPL_TUPLE:
    case TMPL_RANGE:
        if (a->list->n != b->list->n)
            return false;
        for (size_t i = 0; i < a->list->n; i++)
            if (!equal(heap, &a->list->v[i], &b->list->v[i], depth + 1))
                return false;
        return true;
    case TMPL_DICT:
        if (a->dict->n != b->dict->n)
            return false;
        for (size_t i = 0; i < a->dict->n; i++) {
            const struct tmpl_value *other =
                tmpl_find(heap, b->dict, &a->dict->pairs[i].key);

            if (!other ||
                !equal(heap, &a->dict->pairs[i].value, other, depth + 1))
                return false;
        }
        return true;
    case TMPL_UNDEFINED:
    case TMPL_NONE:
        return true;
    default:
        return a->list == b->list; /* the same thing */
    }
}

bool
tmpl_equal(struct tmpl_heap *heap, const struct tmpl_value *a,
           const struct tmpl_value *b)
{
    return equal(heap, a, b, 0);
}

const char *
tmpl_type(const struct tmpl_value *v)
{
    static const char *const names[] = {
        [TMPL_ABSENT] = "Undefined",  [TMPL_UNDEFINED] = "Undefined",
        [TMPL_NONE] = "NoneType",     [TMPL_BOOL] = "bool",
        [TMPL_INT] = "int",           [TMPL_FLOAT] = "float",
        [TMPL_TEXT] = "str",          [TMPL_LIST] = "list",
        [TMPL_TUPLE] = "tuple",       [TMPL_RANGE] = "range",
        [TMPL_VIEW] = "dict_items",   [TMPL_ITER] = "generator",
        [TMPL_DICT] = "dict",         [TMPL_NAMESPACE] = "Namespace",
        [TMPL_LOOP] = "LoopContext",  [TMPL_MACRO] = "Macro",
        [TMPL_FUNCTION] = "function",
    };

    return v->kind == TMPL_TEXT && v->text->markup ? "Markup" : names[v->kind];
}

struct tmpl_value
tmpl_json(struct tmpl_heap *heap, const json_t *json, uint32_t of, int depth)
{
    struct tmpl_value v = TMPL_NONE_VALUE;
    json_t *object; /* jansson's iterators take no const one */

    if (depth > TEMPLATE_MAX_NESTED)
        heap->over = TMPL_OVER_VALUE;
    if (heap->over)
        return v;
    switch (json_typeof(json)) {
    case JSON_OBJECT:
        v = tmpl_dict(heap);
        memcpy(&object, &json, sizeof(object));
        for (void *it = json_object_iter(object); it;
             it = json_object_iter_next(object, it))
            add_member(
                heap, v.dict,
                tmpl_text(heap, json_object_iter_key(it),
                          strlen(json_object_iter_key(it)), of),
                tmpl_json(heap, json_object_iter_value(it), of, depth + 1));
        return v;
    case JSON_ARRAY:
        v = tmpl_list(heap, TMPL_LIST);
        for (size_t i = 0; i < json_array_size(json); i++)
            tmpl_push(heap, v.list,
                      tmpl_json(heap, json_array_get(json, i), of, depth + 1));
        return v;
    case JSON_STRING:
        return tmpl_text(heap, json_string_value(json),
                         json_string_length(json), of);
    case JSON_INTEGER:
        return tmpl_int(json_integer_value(json));
    case JSON_REAL:
        return tmpl_float(json_real_value(json));
    case JSON_TRUE:
    case JSON_FALSE:
        return tmpl_bool(json_is_true(json));
    case JSON_NULL:
        break;
    }
    return v;
}
