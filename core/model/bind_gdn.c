/* SPDX-License-Identifier: ISC */
/* What Gated DeltaNet has besides linear layers and its norm. */
#include <stdlib.h>
#include <string.h>

#include "core/format/stwant.h"
#include "core/kernel/f64.h"
#include "core/mem.h"
#include "core/model/bind.h"
#include "core/model/model.h"

/* A tensor of the module that has out_proj. */
static int
bind_own(struct binder *b, size_t layer, const char *word,
         const struct st_want *want, float **to)
{
    bind_name(b, (struct part_at){ PART_GDN_OUT, layer, 0 }, "");
    b->name.n = (size_t)(strrchr(b->name.s, '.') + 1 - b->name.s);
    str_adds(&b->name, word);
    *to = NULL;
    return bind_needed(b, want, to);
}

int
bind_gdn(struct binder *b, size_t layer)
{
    const struct config *c = &b->model->config;
    struct gdn *g = &b->model->layers[layer].gdn;
    size_t heads = (size_t)c->gdn.n_v_heads, kernel = (size_t)c->gdn.kernel;
    size_t channels = gdn_sizes(c).channels;
    const struct st_want of_heads = { 1, .shape = { heads }, .by = BIND_BY };
    const struct st_want of_conv = { 3, .shape = { channels, 1, kernel },
                                     .by = BIND_BY };
    float *rate, *bias, *conv, *by_channel;

    if (bind_own(b, layer, "A_log", &of_heads, &rate) ||
        bind_own(b, layer, "dt_bias", &of_heads, &bias) ||
        bind_own(b, layer, "conv1d.weight", &of_conv, &conv))
        return -1;
    for (size_t i = 0; i < heads; i++)
        rate[i] = (float)-f64_exp((double)rate[i]);
    by_channel = xmalloc(channels * kernel * sizeof(*conv));
    memcpy(by_channel, conv, channels * kernel * sizeof(*conv));
    for (size_t i = 0; i < channels * kernel; i++)
        conv[i % kernel * channels + i / kernel] = by_channel[i];
    free(by_channel);
    g->rate = rate;
    g->bias = bias;
    g->conv = conv;
    return 0;
}
