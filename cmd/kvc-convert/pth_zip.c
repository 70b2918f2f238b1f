/* Checkpoints of torch 1.6 and later: a zip archive of data.pkl, which is the
 * tree, and data/KEY, one for each storage. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cmd/kvc-convert/pickle.h"
#include "cmd/kvc-convert/pth_impl.h"
#include "cmd/kvc-convert/rebuild.h"
#include "cmd/kvc-convert/zip.h"
#include "core/mem.h"
#include "core/spill.h"

#define IN_MEMORY ((size_t)4 << 20) /* a larger member goes to scratch */

/* Where members go, one behind the other: to memory, or to scratch. */
struct room {
    uint8_t *data;
    struct spill spill; /* .fd < 0: to 'data' */
    size_t at;
};

static int
to_room(void *arg, const void *data, size_t nbytes, size_t offset,
        struct err *err)
{
    struct room *room = arg;

    offset += room->at;
    if (room->spill.fd >= 0)
        return spill_write(&room->spill, data, nbytes, offset, err);
    memcpy(room->data + offset, data, nbytes);
    return 0;
}

int
unpack(struct unpacked *u, const struct zip *zip, struct zip_member *const *m,
       size_t n, struct err *err)
{
    const char *dir = getenv("TMPDIR");
    struct room room = { .spill = { .fd = -1 } };
    int rc = 0;

    unpacked_free(u);
    for (size_t i = 0; i < n; i++)
        u->nbytes += m[i]->nbytes;
    u->scratch = u->nbytes > IN_MEMORY;
    if (!u->scratch)
        room.data = u->data = xmalloc(u->nbytes);
    else if (spill_open(&room.spill, dir && *dir ? dir : "/tmp", u->nbytes,
                        err) < 0)
        return -1;
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = zip_inflate(zip, m[i], to_room, &room, err);
        room.at += m[i]->nbytes;
    }
    if (rc == 0 && u->scratch) {
        u->data = map_fd(room.spill.fd, u->nbytes, room.spill.dir, err);
        rc = u->data ? 0 : -1;
    }
    spill_close(&room.spill);
    return rc;
}

void
unpacked_free(struct unpacked *u)
{
    if (!u->data)
        ;
    else if (u->scratch)
        munmap(u->data, u->nbytes);
    else
        free(u->data);
    *u = (struct unpacked){ 0 };
}

/* Is it a checkpoint at all? */
static int
check_members(const struct pth *pth, struct err *err)
{
    const struct zip *z = &pth->zip;

    if (zip_find(z, "constants.pkl", 13))
        return err_set(err, EX_DATAERR,
                       "%s: is a TorchScript archive, a program (expected what "
                       "torch.save() writes of a state_dict)",
                       pth->path);
    if (!zip_find(z, "data.pkl", 8))
        return err_set(err, EX_DATAERR,
                       "%s: is a zip archive, but no PyTorch checkpoint "
                       "(there is no data.pkl)",
                       pth->path);
    return 0;
}

/* A member's bytes, whole and checked; unpacked ones stay in 'u'. */
static const uint8_t *
member_data(struct unpacked *u, const struct zip *z, struct zip_member *m,
            struct err *err)
{
    const uint8_t *data = zip_packed(z, m, err);

    if (!data)
        return NULL;
    if (m->method == ZIP_STORED)
        return zip_check(z, m, data, err) < 0 ? NULL : data;
    return unpack(u, z, &m, 1, err) < 0 ? NULL : u->data;
}

static int
check_byteorder(const struct pth *pth, struct err *err)
{
    struct zip_member *m = zip_find(&pth->zip, "byteorder", 9);
    struct unpacked u = { 0 };
    const uint8_t *data;
    int rc = -1;

    if (!m)
        return 0;
    if (m->nbytes > 16)
        return err_set(err, EX_DATAERR,
                       "%s: member byteorder has %zu bytes (expected 6, "
                       "\"little\")",
                       pth->path, m->nbytes);
    data = member_data(&u, &pth->zip, m, err);
    if (!data)
        goto out;
    rc = 0;
    if (m->nbytes < 6 || memcmp(data, "little", 6) != 0)
        rc = err_set(err, EX_DATAERR,
                     "%s: its byte order is %.*s (expected little)", pth->path,
                     (int)m->nbytes, (const char *)data);
out:
    unpacked_free(&u);
    return rc;
}

static int
find_storage(struct pth *pth, struct pth_storage *s, struct err *err)
{
    char name[128] = "data/";

    memcpy(name + 5, s->key->u.s, s->key->n);
    s->member = zip_find(&pth->zip, name, 5 + s->key->n);
    if (!s->member && s->n > 0)
        return err_set(err, EX_DATAERR,
                       "%s: data.pkl: byte %zu: storage %.*s is not in the "
                       "archive",
                       pth->path, s->at, (int)s->key->n, s->key->u.s);
    if (!s->member)
        return 0;
    if (!s->member->storage)
        pth->nbytes += s->member->nbytes;
    s->member->storage = true;
    if (s->member->nbytes == s->total * s->size)
        return 0;
    return err_set(err, EX_DATAERR,
                   "%s: data.pkl: byte %zu: storage %.*s has %zu elements of "
                   "%zu bytes, but its member has %zu bytes",
                   pth->path, s->at, (int)s->key->n, s->key->u.s, s->total,
                   s->size, s->member->nbytes);
}

int
pth_zip_open(struct pth *pth, struct err *err)
{
    struct pickle *p = &pth->pickle;
    struct zip_member *m;
    size_t end;

    if (zip_open(&pth->zip, pth->map.data, pth->map.size, pth->path, err) < 0 ||
        check_members(pth, err) < 0 || check_byteorder(pth, err) < 0)
        return -1;
    m = zip_find(&pth->zip, "data.pkl", 8);
    if (m->nbytes > PICKLE_MAX_NBYTES)
        return err_set(err, EX_DATAERR,
                       "%s: data.pkl has %zu bytes (expected at most %zu)",
                       pth->path, m->nbytes, PICKLE_MAX_NBYTES);
    p->data = member_data(&pth->pkl, &pth->zip, m, err);
    if (!p->data)
        return -1;
    p->size = m->nbytes;
    p->where = "data.pkl: ";
    pth->root = pickle_run(p, 0, &end);
    if (!pth->root)
        return -1;
    for (struct pth_storage *s = p->storages; s; s = s->next)
        if (find_storage(pth, s, err) < 0)
            return -1;
    return 0;
}
