/* SPDX-License-Identifier: ISC */
/* config.json and the router of a base's model directory. */
#include <stdlib.h>
#include <string.h>

#include "cmd/moe-sft/base.h"
#include "core/format/st.h"
#include "core/format/stwant.h"
#include "core/kernel/cvt.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/model/config.h"
#include "core/model/config_file.h"
#include "core/model/family.h"
#include "core/model/parts.h"

static int
read_routing(struct base *base, struct err *err)
{
    struct config_file f = { 0 };
    struct config_routing r = { 0 };
    int rc = file_is_dir(base->path, err);
    const struct family_experts *x =
        base->family ? base->family->experts : NULL;

    if (rc > 0 && stdir_has(base->path, "config.json")) {
        struct js text, act;

        rc = config_file_open(&f, base->path, err);
        text = js_get(&f.root, "text_config");
        if (!js_is(&text, JSON_OBJECT))
            text = f.root;
        act =
            js_get(&text, base->family ? family_key(base->family, "hidden_act")
                                       : "hidden_act");
        if (rc == 0 && js_is(&act, JSON_STRING) &&
            strcmp(json_string_value(act.v), "silu") != 0)
            rc = js_bad(&act, "\"silu\"", err);
        if (rc == 0)
            rc = config_routing(&r, &text, (int64_t)base->n_experts, err);
    }
    if (rc == 0 && r.n_experts && (size_t)r.n_experts != base->n_experts)
        rc = err_set(
            err, EX_DATAERR, "%s: is of %lld experts (expected %zu, as in %s)",
            f.path.s, (long long)r.n_experts, base->n_experts, base->prefix);
    config_file_close(&f);
    base->top_k =
        (size_t)(!r.n_experts_used && x ? x->n_used : r.n_experts_used);
    base->routing = r.router;
    base->routes = r.known;
    return rc < 0 ? -1 : 0;
}

/* A number for each expert: what is added to its logit, or to its score to
 * choose by. */
static int
bind_row(struct base *base, float **to, const char *name, struct err *err)
{
    const struct st_want want = { .n_dims = 1, .shape = { base->n_experts } };
    const struct stdir_tensor *t = stdir_find(&base->dir, name);

    if (!t)
        return st_missing(base->path, name, err);
    if (st_want(base->path, t->t, &want, err) < 0)
        return -1;
    *to = xcalloc(base->n_experts, sizeof(float));
    cvt_to_f32(*to, st_data(t->st, t->t), t->t->dtype, base->n_experts);
    return 0;
}

static int
find_router(struct base *base, struct err *err)
{
    const struct st_want want = { .n_dims = 2,
                                  .shape = { base->n_experts, base->hidden } };
    size_t n = strlen(base->prefix), k = strlen("experts.");
    struct gemm_matrix *to = &base->router;
    const struct stdir_tensor *t;
    struct str name = { 0 };
    struct linear l;
    int packed, rc;

    if (!base->routes || n < k)
        return 0;
    to->n = base->n_experts;
    to->k = base->hidden;
    str_add(&name, base->prefix, n - k);
    str_adds(&name, part_word(base->family, PART_ROUTER));
    packed = form_find(&l, &base->packed, &base->memory, &base->dir, name.s,
                       to->n, to->k, err);
    if (packed > 0)
        to->weight = l.w;
    rc = packed < 0 ? -1 : 0;
    n = name.n;
    str_adds(&name, ".weight");
    t = packed ? NULL : stdir_find(&base->dir, name.s);
    if (t)
        rc = st_want(base->path, t->t, &want, err);
    if (t && rc == 0)
        to->weight = (struct weight){ .data = st_data(t->st, t->t),
                                      .dtype = t->t->dtype,
                                      .ld = to->k };
    if (rc == 0 && to->weight.data && base->routing.corrected) {
        name.s[name.n = n] = 0;
        str_adds(&name, ".e_score_correction_bias");
        rc = bind_row(base, &base->correction, name.s, err);
    }
    if (rc == 0 && to->weight.data && base->family->form.router_bias) {
        name.s[name.n = n] = 0;
        str_adds(&name, ".bias");
        rc = bind_row(base, &base->router_bias, name.s, err);
    }
    str_free(&name);
    return rc;
}

int
base_router(struct base *base, struct err *err)
{
    return read_routing(base, err) < 0 ? -1 : find_router(base, err);
}
