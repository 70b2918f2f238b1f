/* SPDX-License-Identifier: ISC */
/* A step: its examples in chunks, through the layers and back. */
#include <stdlib.h>
#include <string.h>

#include "core/kernel/cvt.h"
#include "core/mem.h"
#include "core/model/ends.h"
#include "core/model/train/lm_impl.h"
#include "core/sig.h"
#include "core/tty.h"

/* ---- a step's examples, slice by slice ---- */

struct cursor {
    const struct lm_seq *seqs;
    size_t n_seqs, n_slices, end; /* of this rank's slices */
    size_t slice, seq, example;   /* the next one */
};

/* Tokens [begin, begin + n) of a window, as far as a label needs them, of
 * n_all. */
struct example {
    const struct lm_seq *seq;
    size_t begin, n, n_all;
};

static size_t
example_end(const struct lm_seq *s, size_t i)
{
    return i + 1 < s->n_starts ? s->starts[i + 1] : s->n;
}

/* The next example with a target, which stays the next one; false: no more. */
static bool
look(struct cursor *c, struct example *e)
{
    for (; c->slice < c->end; c->seq = ++c->slice)
        for (; c->seq < c->n_seqs; c->seq += c->n_slices, c->example = 0) {
            const struct lm_seq *s = &c->seqs[c->seq];

            for (; c->example < larger(1, s->n_starts); c->example++) {
                size_t end = example_end(s, c->example);

                e->seq = s;
                e->begin = s->n_starts ? s->starts[c->example] : 0;
                e->n_all = end - e->begin;
                for (e->n = e->n_all > 0 ? e->n_all - 1 : 0; e->n > 0; e->n--)
                    if (s->labels[e->begin + e->n] != LM_NO_LABEL)
                        return true;
            }
        }
    return false;
}

static int
check_seq(const struct lm *lm, const struct lm_seq *s, struct err *err)
{
    size_t vocab = (size_t)lm->model->config.vocab_size;

    for (size_t i = 0; i < s->n; i++) {
        bool is_id = s->ids[i] >= 0 && (size_t)s->ids[i] < vocab;
        bool is_label = s->labels[i] == LM_NO_LABEL ||
                        (s->labels[i] >= 0 && (size_t)s->labels[i] < vocab);

        if (!is_id || !is_label)
            return err_set(err, EX_DATAERR,
                           "%s %ld is not in the vocabulary (0 to %zu)",
                           is_id ? "label" : "token id",
                           (long)(is_id ? s->labels : s->ids)[i], vocab - 1);
    }
    for (size_t i = 0; i < larger(1, s->n_starts); i++) {
        size_t n = example_end(s, i) - (s->n_starts ? s->starts[i] : 0);

        if (n > lm->work->options.max_tokens)
            return err_set(err, EX_DATAERR,
                           "an example has %zu token%s (expected %zu at most)",
                           n, plural(n), lm->work->options.max_tokens);
    }
    return 0;
}

size_t
lm_n_targets(const struct lm_seq *seqs, size_t n_seqs)
{
    size_t n = 0;

    for (const struct lm_seq *s = seqs; s < seqs + n_seqs; s++)
        for (size_t i = 0; i < larger(1, s->n_starts); i++) {
            size_t begin = s->n_starts ? s->starts[i] : 0;

            for (size_t t = begin + 1; t < example_end(s, i); t++)
                n += s->labels[t] != LM_NO_LABEL;
        }
    return n;
}

/* ---- a chunk of them ---- */

static void
add_example(struct lm_work *w, const struct example *e, size_t seq,
            size_t block)
{
    struct chunk *c = &w->engine->chunk;
    struct session *s = &w->sessions[c->n_spans];
    const int32_t *labels = e->seq->labels + e->begin + 1;

    s->max_tokens = e->n_all; /* positions may depend on it */
    s->kv.blocks = w->blocks + block;
    s->kv.n_blocks = (e->n + KV_BLOCK - 1) / KV_BLOCK;
    c->spans[c->n_spans++] =
        (struct span){ .session = s, .row = c->n_rows, .n = e->n };
    for (size_t i = 0; i < e->n; i++) {
        if (labels[i] != LM_NO_LABEL) {
            w->wanted[c->n_wanted] =
                (struct lm_wanted){ .target = labels[i], .seq = seq };
            c->wanted[c->n_wanted++] = c->n_rows;
        }
        w->engine->ids[c->n_rows] = e->seq->ids[e->begin + i];
        c->rows[c->n_rows++] =
            (struct row){ .session = s, .position = i, .slot = i };
    }
}

/* Begins the slices *n_begun .. end - 1.  They are marked as ended, too:
 * segment_of() takes the mark from the one that gets rows. */
static void
begin_slices(struct lm_work *w, size_t end, size_t *n_begun)
{
    size_t row = w->engine->chunk.n_rows;

    if (w->n_segments > 0 && *n_begun < end)
        w->segments[w->n_segments - 1].is_last = true;
    for (; *n_begun < end; ++*n_begun)
        w->segments[w->n_segments++] = (struct lm_segment){
            .slice = *n_begun, .row = row, .is_first = true, .is_last = true
        };
}

/* The segment of the slice that has begun last, which gets rows. */
static struct lm_segment *
segment_of(struct lm_work *w, size_t slice)
{
    if (w->n_segments == 0) /* it began in a chunk before */
        w->segments[w->n_segments++] = (struct lm_segment){ .slice = slice };
    w->segments[w->n_segments - 1].is_last = false;
    return &w->segments[w->n_segments - 1];
}

/* Fills the engine's chunk; false: there are no more examples. */
static bool
fill(struct lm_work *w, struct cursor *at, size_t *n_begun)
{
    struct chunk *c = &w->engine->chunk;
    struct example e;
    size_t n_blocks = 0;
    bool more;

    c->n_rows = c->n_spans = c->n_wanted = w->n_segments = 0;
    while ((more = look(at, &e))) {
        size_t need = (e.n + KV_BLOCK - 1) / KV_BLOCK;

        if (c->n_rows > 0 &&
            (e.n > w->rows - c->n_rows || need > w->n_blocks - n_blocks))
            break;
        begin_slices(w, at->slice + 1, n_begun);
        segment_of(w, at->slice)->n += e.n;
        add_example(w, &e, at->seq, n_blocks);
        n_blocks += need;
        at->example++;
    }
    if (c->n_rows == 0)
        return false;
    if (!more)
        begin_slices(w, at->end, n_begun);
    if (!more || at->slice >= *n_begun)
        w->segments[w->n_segments - 1].is_last = true;
    return true;
}

/* ---- through the layers ---- */

static float *
kept(const struct lm *lm, size_t layer)
{
    size_t hidden = (size_t)lm->model->config.hidden_size;

    return lm->work->kept + layer * lm->work->rows * hidden;
}

/* backward() finds the last layer's activations as they are left here, and has
 * the other layers' computed anew.  False: it was stopped. */
static bool
forward(struct lm *lm)
{
    struct lm_work *w = lm->work;
    size_t n_layers = (size_t)lm->model->config.n_layers;

    embed_ids(w->engine, &w->engine->chunk, w->engine->ids, kept(lm, 0), NULL);
    trunk_begin(w->engine, &w->engine->chunk);
    for (size_t i = 0; i < n_layers; i++) {
        if (sig_stop())
            return false;
        w->acts.x = kept(lm, i);
        w->acts.out = kept(lm, i + 1);
        block_run(w->engine, &w->engine->chunk, &w->acts, i,
                  i + 1 < n_layers ? BLOCK_OUT : BLOCK_ALL);
    }
    return true;
}

/* False: it was stopped. */
static bool
backward(struct lm *lm)
{
    struct lm_work *w = lm->work;
    const struct chunk *c = &w->engine->chunk;

    for (size_t i = (size_t)lm->model->config.n_layers, last = i - 1;
         i-- > 0;) {
        if (sig_stop())
            return false;
        w->acts.x = kept(lm, i);
        w->acts.out = kept(lm, i + 1);
        if (i < last)
            block_run(w->engine, c, &w->acts, i, BLOCK_BACKWARD);
        block_backward(w->engine, c, &w->acts, &w->grads, i, i == 0);
    }
    return true;
}

/* This rank's share of the sequences: it adds their losses to losses [n_seqs]
 * and, if 'back', leaves their gradient in the copies of its sums. */
static int
run_own(struct lm *lm, const struct lm_seq *seqs, size_t n_seqs,
        size_t n_slices, bool back, double *losses, struct err *err)
{
    struct lm_work *w = lm->work;
    const struct chunk *c = &w->engine->chunk;
    size_t n_targets = lm_n_targets(seqs, n_seqs), n_begun;
    size_t n_layers = (size_t)lm->model->config.n_layers;
    struct cursor at = { .seqs = seqs, .n_seqs = n_seqs, .n_slices = n_slices };
    bool going = true, any = false;

    for (size_t i = 0; i < n_seqs; i++)
        if (check_seq(lm, &seqs[i], err))
            return -1;
    lm_own_slices(w, n_slices, (size_t)ranks_self(w->options.ranks), &at.slice,
                  &at.end);
    w->sums.first_slice = n_begun = at.seq = at.slice;
    if (LM_SWAPS)
        cvt_from_f32(w->swapped, DT_F32, w->values, lm->n_params);
    while (going && fill(w, &at, &n_begun)) {
        any = true;
        going = forward(lm);
        if (going)
            lm_head(lm, kept(lm, n_layers), back ? w->grads.resid : NULL,
                    1 / (double)n_targets);
        if (going && back)
            going = backward(lm);
        for (size_t i = 0; i < c->n_wanted; i++)
            losses[w->wanted[i].seq] += w->wanted[i].loss;
    }
    if (back && !any)
        memset(w->sums.copies, 0,
               larger(1, lm_n_blocks(w->sums.first_slice, at.end)) *
                   lm->n_params * sizeof(*w->sums.copies));
    return going ? 0 : sig_stopped("the step is not done", err);
}

/* The loss of a step by all ranks, summed in the order of its sequences; if
 * 'back', its gradient, too. */
static int
run(struct lm *lm, const struct lm_seq *seqs, size_t n_seqs, bool back,
    double *loss_sum, struct err *err)
{
    struct lm_work *w = lm->work;
    struct ranks *ranks = w->options.ranks;
    size_t n_slices = smaller(
        back ? w->options.n_slices : (size_t)ranks_count(ranks), n_seqs);
    double *losses =
        mem_try(larger(1, n_seqs), sizeof(*losses), "the losses", err);
    int rc = losses ? 0 : -1;

    for (size_t i = 0; losses && i < n_seqs; i++)
        losses[i] = 0;
    if (rc == 0)
        rc = run_own(lm, seqs, n_seqs, n_slices, back, losses, err);
    rc = ranks_agree(ranks, rc, err);
    if (rc == 0 && back && lm_n_targets(seqs, n_seqs) > 0)
        lm_sums_finish(lm, n_slices);
    if (rc == 0)
        ranks_sum(ranks, losses, n_seqs);
    *loss_sum = 0;
    for (size_t i = 0; rc == 0 && i < n_seqs; i++)
        *loss_sum += losses[i];
    free(losses);
    return rc;
}

int
lm_grad(struct lm *lm, const struct lm_seq *seqs, size_t n_seqs,
        double *loss_sum, struct err *err)
{
    return run(lm, seqs, n_seqs, true, loss_sum, err);
}

int
lm_loss(struct lm *lm, const struct lm_seq *seqs, size_t n_seqs,
        double *loss_sum, struct err *err)
{
    return run(lm, seqs, n_seqs, false, loss_sum, err);
}
