/* SPDX-License-Identifier: ISC */
/* What the pages and exports of a RUN have in common: the RUN, its labels, its
 * lens, the spellings of its tokens, and the latents that are shown. */
#ifndef SAE_LOOK_VIEW_H
#define SAE_LOOK_VIEW_H

#include "cmd/sae-look/cmd.h"
#include "cmd/sae-look/lens_file.h"
#include "cmd/sae-look/pick.h"
#include "core/format/look.h"
#include "core/format/look_labels.h"
#include "core/text/tok.h"

struct look_view {
    struct look l;
    struct labels labels;
    struct tok *tok; /* NULL: ids have no spellings */
    struct lens lens;
    size_t *picked, n; /* places among the m of 'l' */
};

/*
 * view_open() opens the RUN of a command and the model of -m, and picks the
 * latents of --latents, else the first 'most' of an order.  0, or -1 with 'err'
 * set.  Owner: the caller, until view_close(), after an error, too.
 */
int view_open(struct look_view *v, const struct look_cmd *cmd, size_t most,
              struct err *err);
void view_close(struct look_view *v);

/* view_token() appends a token's own bytes, or where they are unknown its id;
 * those of no token are none. */
void view_token(const struct look_view *v, int32_t id, struct str *to);

#endif
