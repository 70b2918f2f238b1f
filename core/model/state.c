/* SPDX-License-Identifier: ISC */
#include "core/model/state.h"

#include <stdlib.h>
#include <string.h>

#include "core/mem.h"

void
state_free(struct state *s, size_t n)
{
    if (s->users && --*s->users == 0) {
        mem_big_free(s->at, n, sizeof(*s->at));
        free(s->users);
    }
    *s = (struct state){ 0 };
}

int
state_own(struct state *s, size_t n, struct err *err)
{
    struct state own = { 0 };

    if (s->users && *s->users == 1)
        return 0;
    own.at = mem_big(n, sizeof(*own.at), "the state of a sequence", err);
    if (!own.at)
        return -1;
    own.users = xmalloc(sizeof(*own.users));
    *own.users = 1;
    if (s->at)
        memcpy(own.at, s->at, n * sizeof(*own.at));
    state_free(s, n);
    *s = own;
    return 0;
}

void
state_share(struct state *to, const struct state *from, size_t n)
{
    state_free(to, n);
    *to = *from;
    if (to->users)
        ++*to->users;
}
