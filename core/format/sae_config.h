/* SPDX-License-Identifier: ISC */
/*
 * What stands next to the tensors of an SAE: for core/format/sae.c alone.
 */
#ifndef CORE_FORMAT_SAE_CONFIG_H
#define CORE_FORMAT_SAE_CONFIG_H

#include "core/format/sae.h"

/* Whose names the tensors have; SIX are a lookup table's, GEMMA Gemma Scope's,
 * QWEN Qwen Scope's. */
enum sae_layout {
    LAYOUT_SPARSIFY,
    LAYOUT_SIX,
    LAYOUT_SAELENS,
    LAYOUT_DICTIONARY,
    LAYOUT_SAEV,
    LAYOUT_GEMMA,
    LAYOUT_GEMMA_2,
    LAYOUT_QWEN,
};

#define SAE_MAX_K ((int64_t)1 << 31)

/* sae_qwen_hook() is "layers.N" of the name layerN.sae.pt, NULL of others.
 * Owner: the caller. */
char *sae_qwen_hook(const char *file);

/* sae_check_directory(): are there files in a directory that say that inputs
 * are transformed?  0, as where there is no directory, or -1 with 'err' set. */
int sae_check_directory(const char *dir, struct err *err);

/*
 * sae_read_config() reads the configuration next to sae->path, or the
 * checkpoint's own metadata, and sets what it says: k, and how inputs are
 * encoded.  It must agree with itself, and with sae->n and sae->in where these
 * are known, not 0.  '*layout' becomes QWEN where it alone says so.
 * 0, as where there is none, or -1 with 'err' set.
 */
int sae_read_config(struct sae *sae, enum sae_layout *layout, struct err *err);

#endif
