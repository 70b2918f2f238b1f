/* SPDX-License-Identifier: ISC */
/* Dumps of activations for programs: images that are mapped, and rows. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/format/saev_ids.h"
#include "core/format/saev_mask.h"
#include "core/format/saevdir.h"
#include "core/kernel/cpu.h"
#include "core/kernel/cvt.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/par.h"
#include "lib/lib.h"

#define AHEAD  ((size_t)64 << 10) /* rows that are sorted for the disk */
#define SAMPLE 128 /* of these one is looked up in the page cache */
#define SPAN   ((size_t)1 << 20)   /* bytes of a read, at most */
#define GAP    ((size_t)128 << 10) /* takes less to read than to seek */

_Static_assert(TU_CLS == (int)SAEV_CLS && TU_IMAGE == (int)SAEV_IMAGE &&
                   TU_ALL == (int)SAEV_ALL && TU_ALL_LAYERS == SAEV_ALL_LAYERS,
               "the header's numbers are those of core");

/* No lock: two threads that map one shard keep the first's.  So a child after
 * fork() finds none that is held. */
struct tu_dump {
    struct saevdir dir;
    struct tu_dump_info info;
    _Atomic(const char *) *shards;  /* [n_shards] mapped; NULL: not yet */
    _Atomic(struct saev_ids *) ids; /* NULL: not yet */
};

struct tu_rows {
    struct tu_dump *dump;
    struct saev_view view;
    struct saev_kept *kept; /* of 'view', where padding is left out */
};

/* As saev-read without --strict: a name that is another dump's is a warning. */
static int
check_name(const struct saevdir *dir, struct err *err)
{
    struct str what = { 0 };
    int rc = saevdir_name_problem(dir, &what, err);

    if (rc == 0 && what.n)
        err_warn("%s/%s, read as it is", dir->path, what.s);
    str_free(&what);
    return rc;
}

int
tu_dump_open(struct tu_dump **dump, const char *path, struct tu_err *to)
{
    struct err err = { 0 };
    struct tu_dump *d;
    const struct saev *s;

    if (lib_null(to, "tu_dump_open", "dump", dump, "path", path, NULL) < 0)
        return -1;
    *dump = NULL;
    d = xcalloc(1, sizeof(*d));
    s = &d->dir.saev;
    if (cpu_check(&err) < 0 || saevdir_open(&d->dir, path, &err) < 0 ||
        check_name(&d->dir, &err) < 0 ||
        !(d->shards =
              mem_try(s->n_shards, sizeof(*d->shards), "shards", &err))) {
        tu_dump_close(d);
        return lib_fail(to, &err);
    }
    for (size_t i = 0; i < s->n_shards; i++)
        atomic_init(&d->shards[i], NULL);
    d->info = (struct tu_dump_info){
        .path = d->dir.path,
        .metadata = s->text,
        .metadata_n = s->text_nbytes,
        .n_imgs = s->n_imgs,
        .n_layers = s->n_layers,
        .layers = s->layers,
        .n_tokens = s->n_tokens,
        .n_patches = s->n_patches,
        .d = s->d,
        .cls = s->cls_token,
    };
    atomic_init(&d->ids, NULL);
    *dump = d;
    return 0;
}

static void
close_ids(struct saev_ids *ids)
{
    if (ids)
        saev_ids_close(ids);
    free(ids);
}

void
tu_dump_close(struct tu_dump *d)
{
    if (!d)
        return;
    for (size_t i = 0; d->shards && i < d->dir.saev.n_shards; i++) {
        void *p = (void *)(uintptr_t)atomic_load(&d->shards[i]);

        if (p)
            munmap(p, saev_shard_nbytes(&d->dir.saev, i));
    }
    free(d->shards);
    close_ids(atomic_load(&d->ids));
    saevdir_close(&d->dir);
    free(d);
}

const struct tu_dump_info *
tu_dump_info(const struct tu_dump *dump)
{
    return dump ? &dump->info : NULL;
}

/* A shard's bytes; NULL with 'err' set where it cannot be mapped, or is shorter
 * than when the dump was opened. */
static const char *
map_shard(struct tu_dump *d, size_t i, struct err *err)
{
    const char *p = atomic_load(&d->shards[i]);
    size_t nbytes = saev_shard_nbytes(&d->dir.saev, i);
    struct str path = { 0 };
    struct stat st;
    void *mapped = NULL;
    int fd;

    if (p)
        return p;
    saevdir_shard_path(&d->dir, i, &path);
    fd = saevdir_shard(&d->dir, i, err);
    if (fd >= 0 && fstat(fd, &st) == 0 && (size_t)st.st_size < nbytes)
        err_data(err, path.s, "%zu bytes (expected %zu)", (size_t)st.st_size,
                 nbytes);
    else if (fd >= 0)
        mapped = map_fd(fd, nbytes, path.s, err);
    if (fd >= 0)
        close(fd);
    str_free(&path);
    if (!mapped || atomic_compare_exchange_strong(&d->shards[i], &p, mapped))
        return mapped;
    munmap(mapped, nbytes);
    return p;
}

int
tu_dump_images(struct tu_dump *d, size_t img, const float **images, size_t *n,
               struct tu_err *to)
{
    struct err err = { 0 };
    const struct saev *s;
    const char *p;

    if (lib_null(to, "tu_dump_images", "dump", d, "images", images, "n", n,
                 NULL) < 0)
        return -1;
    s = &d->dir.saev;
    if (img >= s->n_imgs)
        return lib_refuse(to, "image %zu of %zu", img, s->n_imgs);
    p = map_shard(d, img / s->shard_imgs, &err);
    if (!p)
        return lib_fail(to, &err);
    *images =
        (const float *)(const void *)(p + img % s->shard_imgs * s->img_nbytes);
    *n = saev_shard_imgs(s, img / s->shard_imgs) - img % s->shard_imgs;
    return 0;
}

int
tu_dump_ids(struct tu_dump *d, const int32_t **ids, struct tu_err *to)
{
    struct saev_ids *found, *other = NULL;
    struct err err = { 0 };

    if (lib_null(to, "tu_dump_ids", "dump", d, "ids", ids, NULL) < 0)
        return -1;
    found = atomic_load(&d->ids);
    if (!found) {
        found = xcalloc(1, sizeof(*found));
        if (saev_ids_of(found, &d->dir, &err) < 0 ||
            ((uintptr_t)found->ids % sizeof(**ids) &&
             err_data(&err, d->dir.path, SAEV_IDS " begins at an odd byte") <
                 0)) {
            close_ids(found);
            return lib_fail(to, &err);
        }
        if (!atomic_compare_exchange_strong(&d->ids, &other, found)) {
            close_ids(found);
            found = other;
        }
    }
    *ids = (const int32_t *)(const void *)found->ids;
    return 0;
}

/* ---- rows ---- */

int
tu_rows_open(struct tu_rows **rows, struct tu_dump *dump, enum tu_tokens tokens,
             int64_t layer, int flags, struct tu_err *to)
{
    const struct saev_mask padding = { 0 };
    struct err err = { 0 };
    struct tu_rows *r;

    if (lib_null(to, "tu_rows_open", "rows", rows, "dump", dump, NULL) < 0)
        return -1;
    *rows = NULL;
    if (tokens != TU_CLS && tokens != TU_IMAGE && tokens != TU_ALL)
        return lib_refuse(to, "tokens are %d, none of enum tu_tokens",
                          (int)tokens);
    if (flags & ~TU_SKIP_PADDING)
        return lib_refuse(to, "tu_rows_open: flags are %d", flags);
    r = xcalloc(1, sizeof(*r));
    r->dump = dump;
    if (saev_view_open(&r->view, &dump->dir.saev, (enum saev_tokens)tokens,
                       layer, &err) < 0 ||
        (flags & TU_SKIP_PADDING && tokens != TU_CLS &&
         saev_mask_open(&r->kept, &dump->dir, &r->view, &padding, 0, SIZE_MAX,
                        par_default(), &err) < 0)) {
        tu_rows_close(r);
        return lib_fail(to, &err);
    }
    saev_view_keep(&r->view, r->kept);
    *rows = r;
    return 0;
}

void
tu_rows_close(struct tu_rows *rows)
{
    if (!rows)
        return;
    saev_kept_free(rows->kept);
    free(rows);
}

size_t
tu_rows_count(const struct tu_rows *rows)
{
    return rows ? rows->view.n_rows : 0;
}

static int
check_index(const struct tu_rows *r, const uint64_t *index, size_t n,
            const void *to, const char *fn, struct tu_err *err)
{
    if (lib_null(err, fn, "rows", r, "index", LIB_IF(n, index), "to",
                 LIB_IF(n, to), NULL) < 0)
        return -1;
    for (size_t i = 0; i < n; i++)
        if (index[i] >= r->view.n_rows)
            return lib_refuse(err, "row %llu of %zu",
                              (unsigned long long)index[i], r->view.n_rows);
    return 0;
}

int
tu_rows_places(const struct tu_rows *r, const uint64_t *index, size_t n,
               struct tu_place *to, struct tu_err *to_err)
{
    if (check_index(r, index, n, to, "tu_rows_places", to_err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        struct saev_place p = saev_view_at(&r->view, index[i]);

        to[i] = (struct tu_place){ (int64_t)p.img, p.patch,
                                   r->dump->info.layers[p.layer] };
    }
    return 0;
}

/* A row that is wanted, where it is, and its index in the answer. */
struct row_want {
    size_t row, at;
    const char *from;
};

static int
by_row(const void *a, const void *b)
{
    size_t x = ((const struct row_want *)a)->row;
    size_t y = ((const struct row_want *)b)->row;

    return x < y ? -1 : x > y;
}

/* Asks for n rows of nbytes, those that are near each other at once. */
static void
read_ahead(const struct row_want *want, size_t n, size_t nbytes)
{
    for (size_t i = 0, k; i < n; i = k) {
        for (k = i + 1; k < n; k++)
            if ((uintptr_t)want[k].from - (uintptr_t)want[k - 1].from >
                    nbytes + GAP ||
                (uintptr_t)want[k].from - (uintptr_t)want[i].from > SPAN)
                break;
        map_will_read(want[i].from,
                      (size_t)(want[k - 1].from - want[i].from) + nbytes);
    }
}

int
tu_rows_gather(const struct tu_rows *r, const uint64_t *index, size_t n,
               float *to, struct tu_err *to_err)
{
    struct err err = { 0 };
    struct row_want *want;
    size_t d;

    if (check_index(r, index, n, to, "tu_rows_gather", to_err) < 0)
        return -1;
    d = r->dump->info.d;
    want = mem_try(smaller(n, AHEAD), sizeof(*want), "rows", &err);
    for (size_t done = 0, some; want && done < n; done += some) {
        bool cached = true;

        some = smaller(n - done, AHEAD);
        for (size_t i = 0; i < some; i++)
            want[i] = (struct row_want){ index[done + i], done + i, NULL };
        qsort(want, some, sizeof(*want), by_row);
        for (size_t i = 0; i < some && !err.status; i++) {
            struct saev_place p = saev_view_at(&r->view, want[i].row);

            want[i].from = map_shard(r->dump, p.shard, &err);
            if (want[i].from)
                want[i].from += p.offset;
            if (i % SAMPLE == 0)
                cached = cached && map_cached(want[i].from);
        }
        if (err.status)
            break;
        if (!cached)
            read_ahead(want, some, d * sizeof(*to));
        for (size_t i = 0; i < some; i++)
            cvt_to_f32(to + want[i].at * d, want[i].from, DT_F32, d);
    }
    free(want);
    return err.status ? lib_fail(to_err, &err) : 0;
}
