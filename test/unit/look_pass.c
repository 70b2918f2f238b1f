/* SPDX-License-Identifier: ISC */
/* core/model/look_pass: what test/sae-look-scan.bats is too small for. */
#include "core/model/look_pass.h"

#include "test/unit/tap.h"

int
main(void)
{
    int32_t latent = 0;
    const bool counts = true;
    const size_t begin[] = { 0, (size_t)1 << 32 };
    const struct look_codes codes = {
        .first = 5, .n_rows = 1, .counts = &counts, .begin = begin
    };
    struct look l = {
        .n = 1, .m = 1, .latent = &latent, .n_tokens = 1, .c = 1
    };
    struct look_pass *pass;
    struct par *par;
    struct err err = { 0 };

    if (par_open(&par, 1, &err) < 0 ||
        look_pass_open(&pass, &l, NULL, par, &err) < 0)
        return 1;
    tap_ok(look_pass_add(pass, &codes, &err) < 0 && err.status == EX_DATAERR &&
               l.rows == 0,
           "look_pass_add: 2^32 codes at once are refused, before one is read");
    look_pass_close(pass);
    par_close(par);
    return tap_done();
}
