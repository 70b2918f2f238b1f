/* SPDX-License-Identifier: ISC */
/* --places: what --acts, --sae and sae-train --hook can name. */
#include "core/model/places.h"
#include "cmd/hf-infer/run.h"

int
run_places(struct run *run, struct err *err)
{
    struct place p = { .row = SIZE_MAX };
    struct str tsv = { 0 };
    struct config config;
    int rc;

    if (config_load(&config, run->dir, err) < 0)
        return -1;
    str_adds(&tsv, "hook\tshort\ttransformer_lens\tdim\n");
    while (place_next(&p, &config)) {
        place_hook(&tsv, &p);
        str_addc(&tsv, '\t');
        place_short(&tsv, &p);
        str_addc(&tsv, '\t');
        place_lens(&tsv, &p);
        str_addf(&tsv, "\t%zu\n", tap_dim(&config, p.point));
    }
    rc = out_write(run->out, tsv.s, tsv.n, err);
    str_free(&tsv);
    config_free(&config);
    return rc;
}
