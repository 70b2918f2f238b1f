/* --index: where rows lie, instead of what is there. */
#include "cmd/saev-read/read.h"
#include <string.h>

#include "core/js.h"

#define ENOUGH ((size_t)64 << 10) /* bytes handed on at a time */

static int
hand_on(struct places *p, size_t enough, struct err *err)
{
    if (p->text.n < enough)
        return 0;
    if (out_write(p->out, p->text.s, p->text.n, err) < 0)
        return -1;
    str_clear(&p->text);
    return 0;
}

void
places_open(struct places *p, const struct cmd *cmd, const struct target *t)
{
    *p = (struct places){ .out = cmd->out, .t = t, .json = cmd->json };
    if (!p->json) {
        str_adds(&p->text, "img\tlayer\tpatch\ttoken\tshard\toffset\n");
        return;
    }
    str_adds(&p->text, "{\"path\":");
    js_put_str(&p->text, t->dir.path, strlen(t->dir.path));
    str_addf(&p->text, ",\"n_rows\":%zu,\"rows\":[", t->n_rows);
}

int
places_put(struct places *p, size_t row, struct err *err)
{
    struct saev_place at = target_at(p->t, row);
    long long layer = p->t->dir.saev.layers[at.layer];

    str_addf(&p->text,
             p->json ? "%s\n{\"img\":%zu,\"layer\":%lld,\"patch\":%lld,"
                       "\"token\":%zu,\"shard\":%zu,\"offset\":%zu}"
                     : "%s%zu\t%lld\t%lld\t%zu\t%zu\t%zu\n",
             p->json && p->n ? "," : "", at.img, layer, (long long)at.patch,
             at.token, at.shard, at.offset);
    p->n++;
    return hand_on(p, ENOUGH, err);
}

int
places_end(struct places *p, struct err *err)
{
    if (p->json)
        str_adds(&p->text, "]}\n");
    return hand_on(p, 0, err);
}

void
places_close(struct places *p)
{
    str_free(&p->text);
}
