/* SPDX-License-Identifier: ISC */
/* --places: what --acts, --sae and sae-train --hook can name.  --families:
 * which models run. */
#include "core/model/places.h"
#include "cmd/hf-infer/run.h"

int
run_families(struct run *run, struct err *err)
{
    struct str tsv = { 0 };
    int rc;

    str_adds(&tsv, "model_type\tclass\n");
    for (const struct model_family *f = NULL; (f = family_next(f));)
        if (!f->variant)
            str_addf(&tsv, "%s\t%s\n", f->model_type, f->classes[0]);
    rc = out_write(run->out, tsv.s, tsv.n, err);
    str_free(&tsv);
    return rc;
}

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
        place_hook_in(&tsv, &p, &config);
        str_addc(&tsv, '\t');
        place_short(&tsv, &p);
        str_addc(&tsv, '\t');
        place_lens(&tsv, &p, &config);
        str_addf(&tsv, "\t%zu\n", tap_dim(&config, p.point, p.layer));
    }
    rc = out_write(run->out, tsv.s, tsv.n, err);
    str_free(&tsv);
    config_free(&config);
    return rc;
}
