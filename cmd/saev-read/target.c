#include "cmd/saev-read/target.h"

int
range_parse(struct index_range *range, const char *s, size_t n)
{
    size_t *to = &range->first;
    bool digits = false;

    *range = (struct index_range){ 0 };
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '-' && digits && to == &range->first) {
            to = &range->last;
            digits = false;
        } else if (s[i] < '0' || s[i] > '9' ||
                   __builtin_mul_overflow(*to, 10u, to) ||
                   __builtin_add_overflow(*to, (size_t)(s[i] - '0'), to)) {
            return -1;
        } else {
            digits = true;
        }
    }
    if (to == &range->first)
        range->last = range->first;
    return digits && range->first <= range->last ? 0 : -1;
}

int
target_open(struct dump_target *t, const struct read_cmd *cmd, const char *path,
            struct err *err)
{
    const struct saev *s = &t->dir.saev;
    struct index_range imgs = cmd->imgs;

    *t = (struct dump_target){ 0 };
    if (saevdir_open(&t->dir, path, err) < 0)
        return -1;
    if (saev_view_open(&t->view, s, cmd->tokens, cmd->layer, err) < 0)
        goto bad;
    t->n_rows = t->view.n_rows;
    if (imgs.first > imgs.last)
        return 0;
    if (imgs.last >= s->n_imgs) {
        err_set(err, EX_DATAERR, "%s: --imgs %zu-%zu, but the dump has %zu",
                t->dir.path, imgs.first, imgs.last, s->n_imgs);
        goto bad;
    }
    t->first = imgs.first * t->view.img_rows;
    t->n_rows = (imgs.last - imgs.first + 1) * t->view.img_rows;
    return 0;
bad:
    target_close(t);
    return -1;
}

void
target_close(struct dump_target *t)
{
    saevdir_close(&t->dir);
    *t = (struct dump_target){ 0 };
}
