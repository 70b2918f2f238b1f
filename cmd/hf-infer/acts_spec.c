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

struct parser {
    struct acts_spec *spec;
    const char *text;   /* all of it, for messages */
    int64_t n_layers;   /* of the model */
    const bool *sparse; /* [n_layers] has experts; NULL: none has */
    struct err *err;
};

static int
bad_layers(const struct parser *p, const char *at)
{
    int n = (int)strcspn(at, ",");
    const char *first = p->spec->point == TAP_RESID ? "-1" : "0";

    return err_set(p->err, TU_USAGE,
                   "--acts %s: \"%.*s\" is no layer (%s to %lld, A-B, or all)",
                   p->text, n, at, first, (long long)p->n_layers - 1);
}

static int
add_layer(struct parser *p, int64_t layer, const char *at)
{
    struct acts_spec *s = p->spec;

    if (layer >= p->n_layers || layer < (s->point == TAP_RESID ? -1 : 0))
        return bad_layers(p, at);
    if (s->point == TAP_IN_DOWN && p->sparse && p->sparse[layer])
        return err_set(
            p->err, TU_USAGE,
            "--acts %s: layer %lld has experts, and each has its own "
            "down_proj (in:gate_proj and mlp are of all)",
            p->text, (long long)layer);
    for (size_t i = 0; i < s->n_layers; i++)
        if (s->layers[i] == layer)
            return err_set(p->err, TU_USAGE,
                           "--acts %s: layer %lld is there twice", p->text,
                           (long long)layer);
    s->layers = xrealloc(s->layers, s->n_layers + 1, sizeof(*s->layers));
    s->layers[s->n_layers++] = layer;
    return 0;
}

/* "3", "-1", "0-5" at the start of 'at'; *end is what follows. */
static int
add_range(struct parser *p, const char *at, const char **end)
{
    char *e;
    long long a, b;

    errno = 0;
    if ((*at < '0' || *at > '9') && strncmp(at, "-1", 2) != 0)
        return bad_layers(p, at);
    a = b = strtoll(at, &e, 10);
    if (*e == '-' && e[1] >= '0' && e[1] <= '9')
        b = strtoll(e + 1, &e, 10);
    if (errno || (*e && *e != ',') || b < a || b >= p->n_layers)
        return bad_layers(p, at);
    for (long long i = a; i <= b; i++)
        if (add_layer(p, i, at) < 0)
            return -1;
    *end = e;
    return 0;
}

static int
add_layers(struct parser *p, const char *at)
{
    if (!strcmp(at, "all")) {
        for (int64_t i = 0; i < p->n_layers; i++)
            if (add_layer(p, i, at) < 0)
                return -1;
        return 0;
    }
    for (;;) {
        if (add_range(p, at, &at) < 0)
            return -1;
        if (!*at)
            return 0;
        at++;
    }
}

int
acts_spec_parse(struct acts_spec *spec, const char *text,
                const struct config *config, struct err *err)
{
    struct parser p = { spec, text, config->n_layers, config->sparse, err };
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
            return add_layers(&p, colon + 1);
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
