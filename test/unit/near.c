/* SPDX-License-Identifier: ISC */
/* Names that a typing error turns into what was typed: distances by hand. */
#include "core/near.h"

#include <string.h>

#include "test/unit/tap.h"

/* Of the names, "" after the last, is 'want' the nearest to 'word'? */
static void
nearest(const char *word, const char *const *names, const char *want)
{
    struct near near;

    near_start(&near, word);
    for (; *names; names++)
        near_try(&near, *names, strlen(*names));
    tap_ok(!strcmp(near.name, want), "%s: \"%s\" (got \"%s\")", word, want,
           near.name);
}

int
main(void)
{
    static const char *const verbs[] = { "list",   "tree", "stats", "hash",
                                         "verify", "cat",  NULL };
    static const char *const options[] = { "depth", "temperature", "template",
                                           "top-k", "top-p",       NULL };
    static const char *const tensors[] = {
        "model.embed_tokens.weight",
        "model.layers.1.self_attn.q_proj.weight",
        "model.layers.2.self_attn.q_proj.weight",
        "model.layers.2.self_attn.o_proj.weight",
        "model.norm.weight",
        NULL
    };
    static const char *const norms[] = {
        "model.layers.0.input_layernorm.weight",
        "model.layers.0.self_attn.q_norm.weight",
        "model.norm.weight",
        "model.norm.weights",
        "nor.weight",
        NULL
    };
    char text[2 * NEAR_MAX];
    struct near near;

    nearest("lst", verbs, "list");       /* one letter less */
    nearest("lisst", verbs, "list");     /* one more */
    nearest("tere", verbs, "tree");      /* two swapped */
    nearest("LIST", verbs, "list");      /* case */
    nearest("verrifi", verbs, "verify"); /* two */
    nearest("lust", verbs, "list");      /* one wrong */
    nearest("modl", verbs, "");
    nearest("ls", verbs, ""); /* too short for an error in four */
    nearest("dgree", verbs, "");
    nearest("depht", options, "depth");
    nearest("temprature", options, "temperature");
    nearest("perature", options, "temperature"); /* a part */
    nearest("top-", options, "top-k");           /* the first of equals */
    nearest("model.layers.2.self_attn.qproj.weight", tensors, tensors[2]);
    nearest("model.layers.3.self_attn.q_proj.weight", tensors, "");
    nearest("model.layers.12.self_attn.q_proj.weight", tensors, "");
    nearest("model.layers.2.self_atn.o_porj.weight", tensors, tensors[3]);
    nearest("norm", tensors, "model.norm.weight");
    nearest("norm.weigh", norms, "model.norm.weight"); /* least around it */
    nearest("norm.weight", norms, "model.norm.weight");
    nearest("q_norm", norms, norms[1]);
    nearest("nrm.weight", norms, "nor.weight"); /* a part of none */
    nearest("", tensors, "");
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    near_start(&near, text);
    near_try(&near, text, NEAR_MAX - 1);
    tap_ok(!*near_hint(&near), "a word of %zu bytes is near nothing",
           strlen(text));
    text[NEAR_MAX - 1] = '\0';
    near_start(&near, text + 1);
    near_try(&near, text, NEAR_MAX - 1);
    tap_ok(strlen(near_hint(&near)) == NEAR_MAX - 1 +
                                           strlen(" (did you mean "
                                                  "\"\"?)"),
           "the longest name fits the hint");
    near_start(&near, text);
    near_try(&near, text, NEAR_MAX);
    tap_ok(!*near_hint(&near), "a name of %d bytes is not compared", NEAR_MAX);
    return tap_done();
}
