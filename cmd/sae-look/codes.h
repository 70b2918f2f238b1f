/* SPDX-License-Identifier: ISC */
/*
 * scan --codes DIR: all activations, as delphi's LatentCache writes them.
 * DIR/HOOK has config.json and, for each of some ranges of latents,
 * START_END.safetensors: locations [n, 3] of sequence, token and latent from
 * START on, activations [n], F16, and tokens [S, T].
 * Source: EleutherAI delphi, latents/cache.py and latents/loader.py.
 */
#ifndef SAE_LOOK_CODES_H
#define SAE_LOOK_CODES_H

#include "cmd/sae-look/cmd.h"
#include "core/format/saev_ids.h"
#include "core/model/look_pass.h"
#include "core/outdir.h"

/*
 * codes_open() starts DIR/HOOK, which appears whole or not at all; what is
 * active goes to a file without a name there first, because a header has how
 * many there are.  'ids' is borrowed, and so is 'l', whose sizes and hook
 * count.  'run' is open, and its directory must be apart from this one.
 * 0, or -1 with 'err' set (EX_DATAERR: a hook that is no name of a directory;
 * TU_USAGE).
 * Owner: the caller, until codes_close(), which removes DIR if it was made here
 * and is empty.
 */
struct codes_out;
int codes_open(struct codes_out **codes, const struct look_cmd *cmd,
               const struct look *l, const struct saev_ids *ids,
               const struct outdir_at *run, struct err *err);
int codes_add(struct codes_out *codes, const struct look_codes *c,
              struct err *err);
int codes_commit(struct codes_out *codes, struct err *err);
void codes_close(struct codes_out *codes); /* NULL is fine */

#endif
