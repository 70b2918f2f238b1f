/* An SAE of any form as numbers to compute with. */
#ifndef SAE_TRAIN_LOAD_H
#define SAE_TRAIN_LOAD_H

#include "core/format/sae.h"

/*
 * load_sae() widens an SAE's four tensors to f32, as those of an SAE whose
 * activations are not scaled by norms.  encoder, decoder [n, in],
 * encoder_bias [n], decoder_bias [in].
 */
void load_sae(const struct sae *sae, float *encoder, float *decoder,
              float *encoder_bias, float *decoder_bias);

#endif
