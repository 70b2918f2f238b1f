/*
 * SHA-256 of what a layer's file is made of: a chain that no thread can share,
 * and so, of large SAEs, worth doing beside the products.
 */
#include "cmd/lut-precompute/digest.h"

#include "cmd/lut-precompute/job.h"
#include "core/sig.h"

#define PIECE ((size_t)4 << 20) /* some milliseconds */

static void
add(struct digest_source *s, const struct matrix *m)
{
    if (m->data)
        s->parts[s->n++] = m;
}

/* Goes on by a piece. */
static void
advance(struct digest_source *s)
{
    const struct matrix *m;
    size_t n;

    if (!s->hash)
        return;
    if (s->at == s->n) {
        hash_hex(s->hash, s->hex);
        hash_free(s->hash);
        s->hash = NULL;
        return;
    }
    m = s->parts[s->at];
    n = matrix_nbytes(m) - s->nbytes;
    n = n < PIECE ? n : PIECE;
    hash_add(s->hash, (const char *)m->data + s->nbytes, n);
    s->nbytes += n;
    if (s->nbytes == matrix_nbytes(m)) {
        s->at++;
        s->nbytes = 0;
    }
}

static bool
more(const struct digests *d)
{
    return d->sae.hash || d->weights.hash;
}

void
digests_open(struct digests *d, const struct sae *sae,
             const struct target_layer *target)
{
    *d = (struct digests){ 0 };
    d->sae.hash = hash_new(HASH_SHA256);
    add(&d->sae, &sae->encoder_weight);
    add(&d->sae, &sae->encoder_bias);
    add(&d->sae, &sae->decoder_weight);
    add(&d->sae, &sae->decoder_bias);
    d->weights.hash = hash_new(HASH_SHA256);
    for (size_t i = 0; i < target->n_parts; i++) {
        add(&d->weights, &target->parts[i].w);
        add(&d->weights, &target->parts[i].bias);
    }
}

static void
go_on(void *ctx)
{
    struct digests *d = ctx;

    while (more(d) && !atomic_load(&d->pause)) {
        advance(&d->weights);
        advance(&d->sae);
    }
}

void
digests_start(struct digests *d, struct par_worker *worker)
{
    d->worker = worker;
    if (worker && more(d))
        par_submit(worker, go_on, d);
}

static void
hold(struct digests *d)
{
    atomic_store(&d->pause, true);
    if (d->worker)
        par_sync(d->worker);
}

static void
advance_each(void *ctx, size_t begin, size_t end, int thread)
{
    struct digests *d = ctx;

    (void)thread;
    for (size_t i = begin; i < end; i++)
        advance(i == 0 ? &d->sae : &d->weights);
}

int
digests_end(struct digests *d, struct par *par, struct err *err)
{
    hold(d);
    while (more(d)) {
        if (sig_stop())
            return job_stopped(err);
        par_for(par, 2, 1, advance_each, d);
    }
    return 0;
}

void
digests_close(struct digests *d)
{
    hold(d);
    hash_free(d->sae.hash);
    hash_free(d->weights.hash);
}
