/* SPDX-License-Identifier: ISC */
/* cmd/saev-read/select: any operand, and any bytes as --rows FILE, text or
 * .npy; the rows that come are of the view, and as many as were counted. */
#include "cmd/saev-read/cmd.h"
#include "cmd/saev-read/select.h"
#include "test/fuzz/files.h"

static const char metadata[] =
    "{\"vit_family\":\"clip\",\"vit_ckpt\":\"c\",\"layers\":[3,-1],"
    "\"n_patches_per_img\":4,\"cls_token\":true,\"d_vit\":2,"
    "\"n_imgs\":5,\"max_patches_per_shard\":20,\"data\":\"\",\"seed\":1}";

static void
open_target(struct dump_target *t)
{
    static char path[] = "d";
    struct err err;

    *t = (struct dump_target){ .dir.path = path };
    MUST(saev_parse(&t->dir.saev, metadata, sizeof(metadata) - 1, "d", 0,
                    &err) == 0);
    MUST(saev_view_open(&t->view, &t->dir.saev, SAEV_ALL, SAEV_ALL_LAYERS,
                        &err) == 0);
    t->n_rows = t->view.n_rows;
}

static void
check(struct row_list *l, const struct dump_target *t)
{
    size_t n = 0;

    for (size_t i = 0; i < l->n_ranges; i++) {
        const struct index_range *r = &l->ranges[i];

        MUST(r->first <= r->last && r->last < t->n_rows);
        n += r->last - r->first + 1;
    }
    MUST(n == l->n_rows);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct bytes rest = { data, n }, first = next_part(&rest);
    char *word = strndup((const char *)first.data, first.n);
    struct err err = { 0 };
    struct dump_target target;
    struct row_list list;

    open_target(&target);
    if (list_open(&list, &target, &word, 1, NULL, &err) == 0)
        check(&list, &target);
    else
        MUST(err.status == TU_USAGE || err.status == EX_DATAERR);
    list_close(&list);
    if (list_open(&list, &target, &word, 0, fuzz_file("rows", rest), &err) == 0)
        check(&list, &target);
    else
        MUST(err.status == EX_DATAERR && *err.what);
    list_close(&list);
    saev_free(&target.dir.saev);
    free(word);
    return 0;
}
