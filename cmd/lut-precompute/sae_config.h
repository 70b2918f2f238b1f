/*
 * What the files next to an SAE's checkpoint say.
 */
#ifndef LUT_PRECOMPUTE_SAE_CONFIG_H
#define LUT_PRECOMPUTE_SAE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

#include "cmd/lut-precompute/sae.h"
#include "core/err.h"

enum layout { SPARSIFY, SIX, SAELENS, DICTIONARY };
struct sae_config {
    size_t k;
    bool centered, unsure;
    bool ignore_threshold; /* a tensor that is not used when encoding */
};
/* sae_config() fills 'config' for a checkpoint of that layout; -1 with 'err'
 * set: a file is damaged, or says what is not done here. */
int sae_config(struct sae_config *config, enum layout layout,
               const struct sae *sae, struct err *err);

/* sae_beside(): are there files in a folder that say that inputs are
 * transformed?  -1, with their name. */
int sae_beside(const char *folder, struct err *err);

#endif
