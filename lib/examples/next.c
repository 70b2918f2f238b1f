/* SPDX-License-Identifier: ISC */
/* next MODEL TEXT: the most likely token after a text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tensorutils.h>

int
main(int argc, char **argv)
{
    struct tu_err err = { 2, "usage: next MODEL TEXT" };
    struct tu_model *m;
    struct tu_session *s;
    struct tu_tok *t;
    int32_t *ids, best = 0;
    size_t n, v;
    float *y; /* logits */
    char *text;

    if (argc != 3 || tu_model_open(&m, argv[1], &err) < 0 ||
        tu_session_open(&s, m, NULL, &err) < 0 ||
        tu_tok_open(&t, argv[1], &err) < 0 ||
        tu_tok_encode(t, argv[2], strlen(argv[2]), 0, &ids, &n, &err) < 0 ||
        !(y = malloc((v = tu_model_info(m)->vocab_size) * sizeof(*y))) ||
        tu_session_feed(s, ids, n, y, v, &err) < 0)
        return fprintf(stderr, "%s\n", err.what), err.status;
    for (size_t i = 0; i < v; i++)
        best = y[i] > y[best] ? (int32_t)i : best;
    if (tu_tok_decode(t, &best, 1, TU_TOK_SPECIAL, &text, &n, &err) == 0)
        puts(text);
}
