/* SPDX-License-Identifier: ISC */
/* Tokenizers for programs. */
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/text/tok.h"
#include "lib/lib.h"

_Static_assert(TU_TOK_SPECIAL == (int)TOK_SPECIAL &&
                   TU_TOK_PLAIN == (int)TOK_PLAIN,
               "the header's flags are those of core");

struct tu_tok {
    struct tok *tok;
};

int
tu_tok_open(struct tu_tok **tok, const char *dir, struct tu_err *to)
{
    struct err err = { 0 };
    struct str path = { 0 };
    struct tok *t;
    int rc;

    if (lib_null(to, "tu_tok_open", "tok", tok, "dir", dir, NULL) < 0)
        return -1;
    *tok = NULL;
    str_addf(&path, "%s/tokenizer.json", dir);
    rc = tok_open(&t, path.s, &err);
    str_free(&path);
    if (rc < 0)
        return lib_fail(to, &err);
    *tok = xcalloc(1, sizeof(**tok));
    (*tok)->tok = t;
    return 0;
}

void
tu_tok_close(struct tu_tok *tok)
{
    if (!tok)
        return;
    tok_close(tok->tok);
    free(tok);
}

static int
check_flags(int flags, const char *fn, struct tu_err *to)
{
    if (flags & ~(TU_TOK_SPECIAL | TU_TOK_PLAIN))
        return lib_refuse(to, "%s: flags are %d", fn, flags);
    return 0;
}

int
tu_tok_encode(const struct tu_tok *tok, const char *text, size_t nbytes,
              int flags, int32_t **ids, size_t *n, struct tu_err *to)
{
    struct err err = { 0 };
    struct ids list = { 0 };

    if (ids)
        *ids = NULL;
    if (lib_null(to, "tu_tok_encode", "tok", tok, "ids", ids, "n", n, "text",
                 LIB_IF(nbytes, text), NULL) < 0 ||
        check_flags(flags, "tu_tok_encode", to) < 0)
        return -1;
    if (tok_encode(tok->tok, text ? text : "", nbytes, flags, &list, &err) <
        0) {
        ids_free(&list);
        return lib_fail(to, &err);
    }
    *ids = list.id ? list.id : xmalloc(sizeof(**ids));
    *n = list.n;
    return 0;
}

int
tu_tok_decode(const struct tu_tok *tok, const int32_t *ids, size_t n, int flags,
              char **text, size_t *nbytes, struct tu_err *to)
{
    struct err err = { 0 };
    struct str s = { 0 };

    if (text)
        *text = NULL;
    if (lib_null(to, "tu_tok_decode", "tok", tok, "text", text, "nbytes",
                 nbytes, "ids", LIB_IF(n, ids), NULL) < 0 ||
        check_flags(flags, "tu_tok_decode", to) < 0)
        return -1;
    if (tok_decode(tok->tok, ids, n, !(flags & TU_TOK_SPECIAL), &s, &err) < 0) {
        str_free(&s);
        return lib_fail(to, &err);
    }
    *text = s.s ? s.s : xstrdup("");
    *nbytes = s.n;
    return 0;
}
