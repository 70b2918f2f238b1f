/* SPDX-License-Identifier: ISC */
/* What config.json says of a base's experts and their router. */
#include <string.h>

#include "cmd/moe-sft/base.h"
#include "core/map.h"
#include "core/model/config.h"
#include "core/model/config_file.h"
#include "core/model/family.h"

int
base_routing(struct base *base, struct err *err)
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
