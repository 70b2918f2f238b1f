/* SPDX-License-Identifier: ISC */
/* --acts SPEC: which places. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/hf-infer/acts.h"
#include "core/mem.h"
#include "core/near.h"
#include "core/tty.h"

/* One item of the list: a hook's name, or layers of a short form, whose point
 * an item before it may have. */
enum item { HOOK, LAYERS, NEITHER };

static enum item
read_item(struct place *p, bool goes_on, const char *at, const char **layers)
{
    char *item = xstrndup(at, strcspn(at, ",")), *colon = strrchr(item, ':');
    enum item kind = NEITHER;

    *layers = at;
    if (goes_on &&
        (!*item || strchr("-0123456789", *item) || !strcmp(item, "all")))
        kind = LAYERS;
    else if (colon && place_point(p, item, (size_t)(colon - item)))
        kind = p->point == TAP_NORM ? NEITHER : LAYERS;
    else if (place_find(p, item))
        kind = HOOK;
    if (kind == LAYERS && colon)
        *layers += colon - item + 1;
    free(item);
    return kind;
}

static int
no_place(const char *at, const struct config *c, struct err *err)
{
    char *item = xstrndup(at, strcspn(at, ",")), *colon = strrchr(item, ':');
    struct place p = { .row = SIZE_MAX };
    struct str name = { 0 }, hint = { 0 };
    struct near near;

    place_hint(&hint, item);
    if (colon)
        *colon = '\0';
    near_start(&near, item);
    while (place_next(&p, c)) {
        str_clear(&name);
        place_hook_in(&name, &p, c);
        if (colon)
            near_try(&near, place_word(&p), strlen(place_word(&p)));
        else if (strncmp(name.s, "blocks.", 7) || *item == 'b')
            near_try(&near, name.s, name.n);
    }
    err_set(err, TU_USAGE,
            "--acts: \"%.*s\" is not a place (layers.1, layers.1.mlp.up_proj, "
            ".., or resid:1,3; --places prints all)%s",
            (int)strcspn(at, ","), at, hint.n ? hint.s : near_hint(&near));
    str_free(&name);
    str_free(&hint);
    free(item);
    return -1;
}

static int
bad_layers(const char *text, const struct place *p, const char *at,
           const struct config *c, struct err *err)
{
    bool from_end = c->family->vision && *at == '-';
    int64_t first, last;

    place_layers(p, c->n_layers, &first, &last);
    return err_set(
        err, TU_USAGE,
        "--acts %s: \"%.*s\" is not a layer (%lld%s to %lld, A-B, or "
        "all)",
        text, (int)strcspn(at, ","), at, (long long)first,
        from_end && first < 0 ? ", the embedding and not the last," : "",
        (long long)last);
}

static int
add_place(struct acts_spec *s, const char *text, const struct place *p,
          const struct config *c, struct err *err)
{
    struct str hook = { 0 }, why = { 0 }, other = { 0 };
    struct place settled = *p;
    bool again = false;
    int rc = 0;

    place_settle(&settled, c);
    p = &settled;
    place_hook_in(&hook, p, c);
    if (p->layer >= c->n_layers)
        rc = err_set(err, TU_USAGE, "--acts %s: %s: the model has %lld layer%s",
                     text, hook.s, (long long)c->n_layers, plural(c->n_layers));
    else if (place_missing(&why, c, p))
        rc = err_set(err, TU_USAGE, "--acts %s: %s", text, why.s);
    for (size_t i = 0; i < s->n && rc == 0 && !again; i++) {
        again =
            s->places[i].point == p->point && s->places[i].layer == p->layer;
        if (!again)
            continue;
        place_hook_in(&other, &s->places[i], c);
        if (!strcmp(other.s, hook.s))
            rc = err_set(err, TU_USAGE, "--acts %s: %s is there twice", text,
                         hook.s);
        else if (s->n_again++ == 0)
            str_addf(&s->again, "%s and %s are one place", other.s, hook.s);
    }
    str_free(&hook);
    str_free(&why);
    str_free(&other);
    if (rc < 0 || again)
        return rc;
    s->places = xrealloc(s->places, s->n + 1, sizeof(*s->places));
    s->places[s->n++] = settled;
    return 0;
}

/* "all", "3", "-1" or "0-5". */
static int
add_layers(struct acts_spec *s, const char *text, struct place p,
           const char *at, const struct config *c, struct err *err)
{
    int64_t least, most;
    long long first, last;
    char *end;
    int rc = 0;

    place_layers(&p, c->n_layers, &least, &most);
    first = most < 0 ? most : 0;
    last = most;
    if (strncmp(at, "all", 3) != 0 || (at[3] && at[3] != ',')) {
        errno = 0;
        if ((*at < '0' || *at > '9') && strncmp(at, "-1", 2) != 0)
            return bad_layers(text, &p, at, c, err);
        first = last = strtoll(at, &end, 10);
        if (*end == '-' && end[1] >= '0' && end[1] <= '9')
            last = strtoll(end + 1, &end, 10);
        if (errno || (*end && *end != ',') || first < least || last < first ||
            last > most)
            return bad_layers(text, &p, at, c, err);
    }
    for (long long layer = first; layer <= last && rc == 0; layer++) {
        place_set_layer(&p, layer);
        rc = add_place(s, text, &p, c, err);
    }
    return rc;
}

int
acts_spec_parse(struct acts_spec *spec, const char *text,
                const struct config *config, struct err *err)
{
    enum item kind = NEITHER;
    struct place p;
    int rc = 0;

    *spec = (struct acts_spec){ 0 };
    for (const char *at = text, *layers; at && rc == 0;
         at = strchr(at, ','), at += at != NULL) {
        kind = read_item(&p, kind == LAYERS, at, &layers);
        rc = kind == NEITHER ? no_place(at, config, err)
             : kind == HOOK  ? add_place(spec, text, &p, config, err)
                             : add_layers(spec, text, p, layers, config, err);
    }
    for (size_t i = 1; i < spec->n; i++)
        spec->is_mixed |= spec->places[i].point != spec->places->point;
    if (rc == 0 && spec->n_again > 0 && !spec->is_mixed)
        rc = err_set(err, TU_USAGE, "--acts %s: %s", text, spec->again.s);
    return rc;
}

void
acts_spec_free(struct acts_spec *spec)
{
    free(spec->places);
    str_free(&spec->again);
    *spec = (struct acts_spec){ 0 };
}
