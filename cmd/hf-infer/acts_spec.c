/* --acts SPEC: which point, which layers. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/hf-infer/acts.h"
#include "core/mem.h"
#include "core/near.h"

static const struct {
    const char *name;
    enum tap_point point;
} points[] = {
    { "resid", TAP_RESID },
    { "attn", TAP_ATTN },
    { "mlp", TAP_MLP },
    { "in:q_proj", TAP_IN_QKV },
    { "in:k_proj", TAP_IN_QKV },
    { "in:v_proj", TAP_IN_QKV },
    { "in:o_proj", TAP_IN_O },
    { "in:gate_proj", TAP_IN_GATE_UP },
    { "in:up_proj", TAP_IN_GATE_UP },
    { "in:down_proj", TAP_IN_DOWN },
};

static int
bad_layers(const struct acts_spec *s, const char *text, const char *at,
           int64_t n_layers, struct err *err)
{
    return err_set(
        err, TU_USAGE,
        "--acts %s: \"%.*s\" is not a layer (%s to %lld, A-B, or all)", text,
        (int)strcspn(at, ","), at, s->point == TAP_RESID ? "-1" : "0",
        (long long)n_layers - 1);
}

/* "all", or "3", "-1" and "0-5" with commas between. */
static int
add_layers(struct acts_spec *s, const char *text, const char *at,
           const struct config *config, struct err *err)
{
    int64_t n_layers = config->n_layers, min = s->point == TAP_RESID ? -1 : 0;

    for (bool all = !strcmp(at, "all"), more = true; more;) {
        long long first = 0, last = n_layers - 1;
        char *end;

        if (!all) {
            errno = 0;
            if ((*at < '0' || *at > '9') && strncmp(at, "-1", 2) != 0)
                return bad_layers(s, text, at, n_layers, err);
            first = last = strtoll(at, &end, 10);
            if (*end == '-' && end[1] >= '0' && end[1] <= '9')
                last = strtoll(end + 1, &end, 10);
            if (errno || (*end && *end != ',') || first < min || last < first ||
                last >= n_layers)
                return bad_layers(s, text, at, n_layers, err);
            at = *end ? end + 1 : end;
        }
        more = !all && *end;
        for (long long layer = first; layer <= last; layer++) {
            if (s->point == TAP_IN_DOWN && config->sparse &&
                config->sparse[layer])
                return err_set(
                    err, TU_USAGE,
                    "--acts %s: layer %lld has experts, and each has its own "
                    "down_proj (in:gate_proj and mlp are of all)",
                    text, layer);
            for (size_t i = 0; i < s->n_layers; i++)
                if (s->layers[i] == layer)
                    return err_set(err, TU_USAGE,
                                   "--acts %s: layer %lld is there twice", text,
                                   layer);
            s->layers =
                xrealloc(s->layers, s->n_layers + 1, sizeof(*s->layers));
            s->layers[s->n_layers++] = layer;
        }
    }
    return 0;
}

int
acts_spec_parse(struct acts_spec *spec, const char *text,
                const struct config *config, struct err *err)
{
    const char *colon = strrchr(text, ':');
    size_t n = colon ? (size_t)(colon - text) : 0;
    char point[NEAR_MAX];
    struct near near;

    memset(spec, 0, sizeof(*spec));
    snprintf(point, sizeof(point), "%.*s", (int)smaller(n, NEAR_MAX), text);
    near_start(&near, point);
    for (size_t i = 0; i < sizeof(points) / sizeof(*points); i++) {
        near_try(&near, points[i].name, strlen(points[i].name));
        if (strlen(points[i].name) == n && !memcmp(points[i].name, text, n)) {
            spec->name = xstrndup(text, n);
            spec->point = points[i].point;
            return add_layers(spec, text, colon + 1, config, err);
        }
    }
    return err_set(err, TU_USAGE,
                   "--acts: \"%s\" is no POINT:LAYERS (points: resid, attn, "
                   "mlp, in:q_proj and in: the other projections)%s",
                   text, near_hint(&near));
}

void
acts_spec_free(struct acts_spec *spec)
{
    free(spec->name);
    free(spec->layers);
    memset(spec, 0, sizeof(*spec));
}
