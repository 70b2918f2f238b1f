#include "cmd/moe-sft/batch.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/moe-sft/tensor.h"
#include "core/format/st.h"
#include "core/format/stwant.h"
#include "core/js.h"
#include "core/kernel/cvt.h"
#include "core/le.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/model/router.h"
#include "core/str.h"

#define MAX_HEADER ((uint64_t)1 << 20) /* bytes, of a batch in a stream */

struct parse {
    struct batch *b;
    struct st st;
    const char *data; /* behind the header */
    unsigned need;
    struct err *err;
};

static const void *
data_of(const struct parse *p, const struct st_tensor *t)
{
    return p->data + t->begin;
}

/* A tensor by name; *rc is -1 if it is needed and not there. */
static const struct st_tensor *
find(const struct parse *p, const char *name, bool needed, int *rc)
{
    const struct st_tensor *t = st_find(&p->st, name);

    *rc = !t && needed ? st_missing(p->st.path, name, p->err) : 0;
    return t;
}

/* The first tensor says how many tokens there are, and of which width. */
static int
check_rows(struct parse *p, const struct st_tensor *t, size_t hidden)
{
    struct st_want want = { .n_dims = 2,
                            .shape = { ST_OPEN, hidden ? hidden : ST_OPEN },
                            .open = "qlen, hidden" };

    if (p->b->hidden) {
        want.shape[0] = p->b->qlen;
        want.shape[1] = p->b->hidden;
    }
    if (st_want(p->st.path, t, &want, p->err) < 0)
        return -1;
    if (t->shape[1] == 0)
        return err_set(p->err, EX_DATAERR, "%s: %s has rows of no numbers",
                       p->st.path, t->name);
    p->b->qlen = t->shape[0];
    p->b->hidden = t->shape[1];
    return 0;
}

/* n + 1, so that no tokens are not NULL. */
static void *
room(const struct parse *p, size_t n, size_t size)
{
    return mem_try(n + 1, size, p->b->name, p->err);
}

static int
take_bf16(struct parse *p, const char *name, bool needed, size_t hidden,
          uint16_t **to)
{
    int rc;
    const struct st_tensor *t = find(p, name, needed, &rc);

    if (!t || check_rows(p, t, hidden) < 0)
        return t ? -1 : rc;
    *to = room(p, t->n_elements, sizeof(**to));
    if (!*to)
        return -1;
    tensor_bf16(*to, data_of(p, t), t->dtype, t->n_elements);
    return 0;
}

static int
take_f32(struct parse *p, const struct st_tensor *t, float **to)
{
    *to = room(p, t->n_elements, sizeof(**to));
    if (!*to)
        return -1;
    cvt_to_f32(*to, data_of(p, t), t->dtype, t->n_elements);
    return 0;
}

static int
take_target(struct parse *p, size_t hidden)
{
    int rc;
    const struct st_tensor *t = find(p, "target", p->need & BATCH_TARGET, &rc);

    if (!t || check_rows(p, t, hidden) < 0)
        return t ? -1 : rc;
    return take_f32(p, t, &p->b->target);
}

static int
take_ids(struct parse *p, const struct st_tensor *t)
{
    const size_t qlen = p->b->hidden ? p->b->qlen : ST_OPEN;
    const struct st_want want = { .n_dims = 2,
                                  .shape = { qlen, ST_OPEN },
                                  .open = "qlen, top_k" };
    const char *data = data_of(p, t);

    if (t->dtype != DT_I64 && t->dtype != DT_I32)
        return err_set(p->err, EX_DATAERR,
                       "%s: expert_ids is %s (expected I64 or I32)", p->st.path,
                       dtype_table[t->dtype].name);
    if (st_want_shape(p->st.path, t, &want, p->err) < 0)
        return -1;
    if (t->shape[1] == 0 || t->shape[1] > MOE_MAX_TOP_K)
        return err_set(p->err, EX_DATAERR,
                       "%s: expert_ids has %llu slots a token (expected 1 to "
                       "%d)",
                       p->st.path, (unsigned long long)t->shape[1],
                       MOE_MAX_TOP_K);
    p->b->expert_ids = room(p, t->n_elements, sizeof(int64_t));
    if (!p->b->expert_ids)
        return -1;
    for (size_t i = 0; i < t->n_elements; i++)
        p->b->expert_ids[i] = t->dtype == DT_I64 ? (int64_t)le64(data + 8 * i)
                                                 : (int32_t)le32(data + 4 * i);
    p->b->qlen = t->shape[0];
    p->b->top_k = t->shape[1];
    return 0;
}

/* expert_ids and weights: both, or neither. */
static int
take_routing(struct parse *p)
{
    bool needed = p->need & BATCH_ROUTING;
    int rc;
    const struct st_tensor *ids = find(p, "expert_ids", needed, &rc), *w;
    struct st_want want = { .n_dims = 2 };

    if (rc < 0)
        return -1;
    w = find(p, "weights", needed || ids, &rc);
    if (rc < 0)
        return -1;
    if (!ids)
        return w ? st_missing(p->st.path, "expert_ids", p->err) : 0;
    if (take_ids(p, ids) < 0)
        return -1;
    want.shape[0] = p->b->qlen;
    want.shape[1] = p->b->top_k;
    if (st_want(p->st.path, w, &want, p->err) < 0)
        return -1;
    return take_f32(p, w, &p->b->weights);
}

static int
take_all(struct parse *p, size_t hidden)
{
    struct batch *b = p->b;

    if (take_bf16(p, "input", p->need & BATCH_INPUT, hidden, &b->input) < 0 ||
        take_bf16(p, "grad_output", p->need & BATCH_GRAD_OUTPUT, hidden,
                  &b->grad_output) < 0 ||
        take_target(p, hidden) < 0)
        return -1;
    return take_routing(p);
}

int
batch_parse(struct batch *b, const void *file, size_t nbytes, const char *name,
            unsigned need, size_t hidden, struct err *err)
{
    struct parse p = { .b = b, .need = need, .err = err };
    int rc;

    *b = (struct batch){ .name = xstrdup(name) };
    rc = st_parse(&p.st, file, nbytes, nbytes, name, err);
    if (rc == 0) {
        p.data = (const char *)file + p.st.data_offset;
        rc = take_all(&p, hidden);
        st_close(&p.st);
    }
    if (rc < 0)
        batch_close(b);
    return rc;
}

/* ---- a stream of them ---- */

/* Where the data of a header's last tensor end; st_parse() checks the rest. */
static int
data_end(const char *json, size_t nbytes, const char *name, size_t *end,
         struct err *err)
{
    json_t *root = js_parse(json, nbytes, name, err);
    const char *key;
    json_t *v;

    *end = 0;
    if (!root)
        return -1;
    json_object_foreach(root, key, v)
    {
        json_t *range = json_object_get(v, "data_offsets");
        json_int_t at = json_integer_value(json_array_get(range, 1));

        *end = at > 0 && (size_t)at > *end ? (size_t)at : *end;
    }
    json_decref(root);
    return 0;
}

static int
cut_short(const char *name, size_t n, size_t want, struct err *err)
{
    return err_set(err, EX_DATAERR, "%s: a batch ended after %zu of %zu bytes",
                   name, n, want);
}

/* Reads up to 'nbytes' in all into 'file', as they come: no more memory is
 * asked for than there are bytes. */
static int
read_to(struct str *file, size_t nbytes, int fd, const char *name,
        struct err *err)
{
    while (file->n < nbytes) {
        size_t n =
            nbytes - file->n < MAX_HEADER ? nbytes - file->n : MAX_HEADER;
        ssize_t got;

        str_reserve(file, n);
        got = file_read_full(fd, name, file->s + file->n, n, err);
        if (got < 0)
            return -1;
        file->n += (size_t)got;
        if ((size_t)got < n)
            return file->n ? cut_short(name, file->n, nbytes, err) : 1;
    }
    return 0;
}

/* One whole file of the stream: 1, 0 at its end, -1. */
static int
read_file(struct str *file, int fd, const char *name, struct err *err)
{
    size_t end, header;
    int rc = read_to(file, 8, fd, name, err);

    if (rc)
        return rc < 0 ? -1 : 0;
    header = le64(file->s);
    if (header > MAX_HEADER)
        return err_set(err, EX_DATAERR,
                       "%s: a batch's header length is %zu (expected at most "
                       "%zu)",
                       name, header, (size_t)MAX_HEADER);
    if (read_to(file, 8 + header, fd, name, err) < 0 ||
        data_end(file->s + 8, header, name, &end, err) < 0)
        return -1;
    if (!size_add(end, 8 + header, &end))
        return cut_short(name, file->n, SIZE_MAX, err);
    return read_to(file, end, fd, name, err) < 0 ? -1 : 1;
}

int
batch_next(struct batch *b, int fd, const char *name, unsigned need,
           size_t hidden, struct err *err)
{
    struct str file = { 0 };
    int rc;

    *b = (struct batch){ 0 };
    rc = read_file(&file, fd, name, err);
    if (rc > 0 && batch_parse(b, file.s, file.n, name, need, hidden, err) < 0)
        rc = -1;
    str_free(&file);
    return rc;
}

/* Standard input, a pipe or a device: the first of its batches. */
static int
open_stream(struct batch *b, const char *path, unsigned need, size_t hidden,
            struct err *err)
{
    bool std = !strcmp(path, "-");
    const char *name = std ? "standard input" : path;
    int fd = std ? 0 : file_open_any(path, err), rc;

    if (fd < 0)
        return -1;
    rc = batch_next(b, fd, name, need, hidden, err);
    if (!std)
        close(fd);
    if (rc == 0)
        return err_set(err, EX_DATAERR, "%s: is empty", name);
    return rc < 0 ? -1 : 0;
}

int
batch_open(struct batch *b, const char *path, unsigned need, size_t hidden,
           struct err *err)
{
    struct stat st;
    struct map map;
    int rc;

    *b = (struct batch){ 0 };
    if (!strcmp(path, "-") ||
        (stat(path, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode))))
        return open_stream(b, path, need, hidden, err);
    if (map_open(&map, path, err) < 0)
        return -1;
    rc = batch_parse(b, map.data, map.size, path, need, hidden, err);
    map_close(&map);
    return rc;
}

void
batch_close(struct batch *b)
{
    free(b->name);
    free(b->expert_ids);
    free(b->weights);
    free(b->input);
    free(b->grad_output);
    free(b->target);
    *b = (struct batch){ 0 };
}

struct moe_batch
batch_of(const struct batch *b)
{
    return (struct moe_batch){ b->qlen, b->expert_ids, b->weights, b->input };
}

/* ---- routing ---- */

#define ROWS 256 /* tokens at a time */

/* The ids and weights of rows from 'first' on. */
static void
select_rows(struct batch *b, const struct base *base, float *logits,
            size_t first, size_t n_rows, uint32_t *ids)
{
    size_t k = b->top_k, n = base->n_experts;

    for (size_t i = 0; i < n_rows; i++) {
        size_t at = (first + i) * k;

        router_select(ids, b->weights + at, k, logits + i * n, n,
                      base->norm_topk_prob);
        for (size_t j = 0; j < k; j++)
            b->expert_ids[at + j] = ids[j];
    }
}

int
batch_route(struct batch *b, const struct base *base, struct gemm *gemm,
            struct err *err)
{
    size_t h = base->hidden, n = base->n_experts, k = base->top_k;
    float *x, *logits;
    uint32_t *ids;
    bool made;

    if (b->expert_ids)
        return 0;
    if (!base->router.data || !k)
        return err_set(err, EX_DATAERR,
                       "%s: has no expert_ids, and %s no router that is known "
                       "(qwen3_moe, num_experts_per_tok)",
                       b->name, base->path);
    b->top_k = k;
    b->expert_ids = mem_try(b->qlen + 1, k * sizeof(int64_t), b->name, err);
    b->weights = mem_try(b->qlen + 1, k * sizeof(float), b->name, err);
    x = mem_try(ROWS, h * sizeof(float), b->name, err);
    logits = mem_try(ROWS, n * sizeof(float), b->name, err);
    ids = mem_try(k, sizeof(*ids), b->name, err);
    made = b->expert_ids && b->weights && x && logits && ids;
    for (size_t i = 0, m; made && i < b->qlen; i += m) {
        const struct gemm_job job = { .w = base->router,
                                      .c = logits,
                                      .ldc = n };

        m = smaller(b->qlen - i, ROWS);
        cvt_to_f32(x, b->input + i * h, DT_BF16, m * h);
        gemm_exact(gemm, &job, 1, x, h, m);
        select_rows(b, base, logits, i, m, ids);
    }
    free(ids);
    free(logits);
    free(x);
    return made ? 0 : -1;
}
