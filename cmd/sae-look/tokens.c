/* SPDX-License-Identifier: ISC */
#include "cmd/sae-look/tokens.h"

#include "core/format/stdir.h"
#include "core/js.h"
#include "core/map.h"

int
tokens_open(struct tok **tok, const char *dir, bool needed, struct err *err)
{
    struct str path = { 0 };
    int rc = 0;

    *tok = NULL;
    if (!dir)
        return 0;
    str_addf(&path, "%s/tokenizer.json", dir);
    if (needed || !file_missing(path.s))
        rc = stdir_check(dir, false, err) < 0 ? -1 : tok_open(tok, path.s, err);
    str_free(&path);
    return rc;
}

void
tokens_one(struct str *to, const struct tok *tok, int32_t id)
{
    struct str own = { 0 };

    if (id >= 0 && tok_bytes(tok, id, &own))
        js_put_str(to, own.s ? own.s : "", own.n);
    else
        str_adds(to, "null");
    str_free(&own);
}

void
tokens_json(struct str *to, const struct tok *tok, const int32_t *ids, size_t n)
{
    str_addc(to, '[');
    for (size_t k = 0; k < n; k++) {
        str_adds(to, k ? "," : "");
        tokens_one(to, tok, ids[k]);
    }
    str_addc(to, ']');
}

void
tokens_esc(struct str *to, const struct tok *tok, int32_t id)
{
    struct str own = { 0 };

    if (id >= 0 && tok_bytes(tok, id, &own) && own.n)
        str_esc(to, own.s, own.n);
    str_free(&own);
}
