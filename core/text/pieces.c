/* SPDX-License-Identifier: ISC */
#include "core/text/pieces.h"

#include <stdlib.h>

#include "core/mem.h"

void
pieces_add(struct pieces *p, const char *s, size_t nbytes, bool special)
{
    struct chat_piece *to = p->n ? &p->list[p->n - 1] : NULL;

    if (nbytes == 0)
        return;
    if (!to || special || to->special || to->scored != p->scored) {
        if (p->n == p->room) {
            p->room = p->room ? 2 * p->room : 16;
            p->list = xrealloc(p->list, p->room, sizeof(*p->list));
        }
        to = &p->list[p->n++];
        *to = (struct chat_piece){ .at = p->text.n,
                                   .special = special,
                                   .scored = p->scored,
                                   .message = p->message };
    }
    str_add(&p->text, s, nbytes);
    to->nbytes += nbytes;
    if (special)
        str_addc(&p->text, '\0');
}

void
pieces_free(struct pieces *p)
{
    str_free(&p->text);
    free(p->list);
    *p = (struct pieces){ 0 };
}

int
pieces_encode(struct pieces *p, const struct tok *tok, const char *by,
              int flags, struct ids *ids, struct err *err)
{
    for (size_t i = 0; i < p->n; i++) {
        struct chat_piece *each = &p->list[i];
        const char *s = p->text.s + each->at;
        int more = flags | TOK_PLAIN | (ids->n ? TOK_MORE : 0);
        int32_t id = each->special ? tok_id(tok, s) : -1;

        if (each->special && id < 0)
            return err_set(err, EX_DATAERR,
                           "%s: has no %s, which template %s needs",
                           tok_name(tok), s, by);
        if (each->special)
            ids_add(ids, id);
        else if (tok_encode(tok, s, each->nbytes, more, ids, err) < 0)
            return -1;
        each->ids_end = ids->n;
    }
    return 0;
}
