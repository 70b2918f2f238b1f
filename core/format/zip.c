/* SPDX-License-Identifier: ISC */
#include "core/format/zip.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <zlib.h>

#include "core/format/st.h"
#include "core/le.h"
#include "core/map.h"
#include "core/mem.h"

#define END_NBYTES     22 /* the end record, without its comment */
#define LOCATOR_NBYTES 20
#define END64_NBYTES   56
#define ENTRY_NBYTES   46 /* of the directory, without its name */
#define LOCAL_NBYTES   30 /* a local header, without its name */
#define MAX_COMMENT    65535
#define MAX_RATIO      1032 /* of DEFLATE: 258 bytes for two bits */

/* Where the directory is. */
struct directory {
    uint64_t offset, nbytes, n;
    size_t end; /* the directory ends here, and the end record starts */
};

static bool
signed_by(const struct zip *z, size_t at, const char *signature)
{
    return at <= z->size && z->size - at >= 4 &&
           !memcmp(z->data + at, signature, 4);
}

/* What no writer makes, and no cut leaves. */
static int
damaged(const struct zip *z, size_t at, const char *what, struct err *err)
{
    return err_data(err, z->path, "zip archive is damaged at byte %zu: %s", at,
                    what);
}

/* A field of the old record is "see ZIP64" or agrees with it. */
static bool
agrees(uint64_t small, uint64_t most, uint64_t big)
{
    return small == most || small == big;
}

/* Reads the ZIP64 end record, whose locator comes before the old end record. */
static int
read_end64(const struct zip *z, size_t old, struct directory *d,
           struct err *err)
{
    const uint8_t *e = z->data + old;
    size_t locator = old - LOCATOR_NBYTES;
    uint64_t at = le64(z->data + locator + 8);
    const uint8_t *p;

    if (locator < END64_NBYTES || at > locator - END64_NBYTES ||
        !signed_by(z, at, "PK\6\6") ||
        le64(z->data + at + 4) != locator - at - 12)
        return damaged(z, locator, "no zip64 end record is where it points",
                       err);
    p = z->data + at;
    if (le32(p + 16) != 0 || le32(p + 20) != 0 || le64(p + 24) != le64(p + 32))
        return err_data(err, z->path, "zip archive of several parts");
    *d = (struct directory){ .n = le64(p + 32),
                             .nbytes = le64(p + 40),
                             .offset = le64(p + 48),
                             .end = at };
    if (agrees(le16(e + 10), 0xffff, d->n) &&
        agrees(le32(e + 12), 0xffffffff, d->nbytes) &&
        agrees(le32(e + 16), 0xffffffff, d->offset))
        return 0;
    return damaged(z, old, "the end records contradict each other", err);
}

/* Finds the end record, and by it the directory. */
static int
read_end(const struct zip *z, struct directory *d, struct err *err)
{
    size_t at = z->size < END_NBYTES ? 0 : z->size - END_NBYTES;
    size_t last = at > MAX_COMMENT ? at - MAX_COMMENT : 0;
    const uint8_t *e;

    while (at > last && !signed_by(z, at, "PK\5\6"))
        at--;
    e = z->data + at;
    if (z->size < END_NBYTES || !signed_by(z, at, "PK\5\6"))
        return err_data(err, z->path,
                        "zip archive without an end record (cut short at "
                        "byte %zu?)",
                        z->size);
    if (le16(e + 20) != z->size - at - END_NBYTES)
        return damaged(z, at, "what follows is not the end's comment", err);
    if (at >= LOCATOR_NBYTES && signed_by(z, at - LOCATOR_NBYTES, "PK\6\7")) {
        if (read_end64(z, at, d, err) < 0)
            return -1;
    } else if (le16(e + 4) != 0 || le16(e + 6) != 0 ||
               le16(e + 8) != le16(e + 10)) {
        return err_data(err, z->path, "zip archive of several parts");
    } else {
        *d = (struct directory){ .n = le16(e + 10),
                                 .nbytes = le32(e + 12),
                                 .offset = le32(e + 16),
                                 .end = at };
    }
    if (d->n > ZIP_MAX_MEMBERS)
        return err_data(err, z->path,
                        "zip archive of %zu members (expected at most %d)",
                        (size_t)d->n, ZIP_MAX_MEMBERS);
    if (d->offset > d->end || d->nbytes != d->end - d->offset ||
        d->n > d->nbytes / ENTRY_NBYTES)
        return damaged(z, at, "the directory is not before its end", err);
    return d->n ? 0 : err_data(err, z->path, "zip archive without members");
}

/* Reads the ZIP64 extra field: 64-bit values for those fields of the entry that
 * are all ones. */
static bool
read_extra(struct zip_member *m, const uint8_t *p, size_t left)
{
    size_t *const values[] = { &m->nbytes, &m->packed_bytes, &m->header };

    while (left >= 4) {
        size_t n = le16(p + 2);

        if (n > left - 4)
            return false;
        if (le16(p) == 1) {
            const uint8_t *q = p + 4, *end = q + n;

            for (size_t i = 0; i < 3; i++)
                if (*values[i] == 0xffffffff) {
                    if (end - q < 8)
                        return false;
                    *values[i] = le64(q);
                    q += 8;
                }
            return true;
        }
        p += 4 + n;
        left -= 4 + n;
    }
    return true;
}

static int
read_members(struct zip *z, const struct directory *d, struct err *err)
{
    size_t at = d->offset;

    for (size_t i = 0; i < d->n; i++) {
        struct zip_member *m = z->members + i;
        const uint8_t *p = z->data + at;
        size_t left = d->end - at, extra_n = 0, n = 0;

        if (left >= ENTRY_NBYTES && memcmp(p, "PK\1\2", 4) == 0) {
            m->flags = le16(p + 8);
            m->method = le16(p + 10);
            m->crc = le32(p + 16);
            m->packed_bytes = le32(p + 20);
            m->nbytes = le32(p + 24);
            m->name_n = le16(p + 28);
            m->header = le32(p + 42);
            m->name = (const char *)p + ENTRY_NBYTES;
            extra_n = le16(p + 30);
            n = (size_t)ENTRY_NBYTES + m->name_n + extra_n + le16(p + 32);
        }
        if (n == 0 || n > left ||
            !read_extra(m, p + ENTRY_NBYTES + m->name_n, extra_n))
            return damaged(z, at, "an entry of the directory", err);
        if (m->method == ZIP_STORED && m->nbytes != m->packed_bytes)
            return damaged(z, at, "a stored member has two sizes", err);
        if (m->method == ZIP_DEFLATE && m->nbytes / MAX_RATIO > m->packed_bytes)
            return err_data(
                err, z->path, "zip member %.*s: %zu bytes cannot unpack to %zu",
                (int)m->name_n, m->name, m->packed_bytes, m->nbytes);
        at += n;
    }
    z->n_members = d->n;
    return at == d->end ? 0 : damaged(z, at, "the directory goes on here", err);
}

static int
by_header(const void *a, const void *b)
{
    size_t x = ((const struct zip_member *)a)->header;
    size_t y = ((const struct zip_member *)b)->header;

    return (x > y) - (x < y);
}

static int
by_name(const void *a, const void *b)
{
    const struct zip_member *x = a, *y = b;

    return st_name_cmp(x->name, x->name_n, y->name, y->name_n);
}

int
zip_open(struct zip *z, const void *data, size_t size, const char *path,
         struct err *err)
{
    struct directory d = { 0 };
    struct zip_member *m, *end;
    const char *slash;

    *z = (struct zip){ .path = path, .data = data, .size = size };
    if (read_end(z, &d, err) < 0)
        return -1;
    z->members = xcalloc(d.n, sizeof(*z->members));
    if (read_members(z, &d, err) < 0)
        return -1;
    z->root = z->members->name;
    slash = memchr(z->root, '/', z->members->name_n);
    z->root_n = slash ? (size_t)(slash - z->root) : 0;
    /* What a local header adds, zip_packed() checks. */
    end = z->members + z->n_members;
    qsort(z->members, z->n_members, sizeof(*m), by_header);
    for (m = z->members; m < end; m++) {
        size_t need = (size_t)LOCAL_NBYTES + m->name_n;

        m->end = m + 1 < end ? m[1].header : d.offset;
        if (m->end > d.offset || m->header > m->end ||
            need > m->end - m->header ||
            m->packed_bytes > m->end - m->header - need)
            return damaged(z, m->header, "a member is in another", err);
    }
    qsort(z->members, z->n_members, sizeof(*m), by_name);
    for (m = z->members; m < end; m++) {
        if (m > z->members && by_name(m - 1, m) == 0)
            return err_data(err, path, "zip member %.*s occurs twice",
                            (int)m->name_n, m->name);
        /* The names that begin with ROOT/ are next to each other. */
        if (z->root_n > 0 && m->name_n > z->root_n &&
            memcmp(m->name, z->root, z->root_n + 1) == 0 && z->n_below++ == 0)
            z->first = (size_t)(m - z->members);
    }
    return 0;
}

void
zip_close(struct zip *z)
{
    free(z->members);
    *z = (struct zip){ 0 };
}

struct zip_member *
zip_find(const struct zip *z, const char *name, size_t nbytes)
{
    size_t lo = z->first, hi = z->first + z->n_below, skip = z->root_n + 1;

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        struct zip_member *m = z->members + mid;
        int c = st_name_cmp(name, nbytes, m->name + skip, m->name_n - skip);

        if (c == 0)
            return m;
        if (c < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}

#define PIECE     ((size_t)64 << 10)
#define IN_MEMORY ((size_t)4 << 20) /* more unpacked bytes go to scratch */

static int
bad(const struct zip *z, const struct zip_member *m, const char *what,
    struct err *err)
{
    return err_data(err, z->path, "zip member %.*s %s", (int)m->name_n, m->name,
                    what);
}

const uint8_t *
zip_packed(const struct zip *z, struct zip_member *m, struct err *err)
{
    const uint8_t *p = z->data + m->header; /* the local header */
    size_t n = (size_t)LOCAL_NBYTES + m->name_n, room = m->end - m->header;
    const char *wrong = NULL;

    if (m->data)
        return z->data + m->data;
    if (memcmp(p, "PK\3\4", 4) != 0 || le16(p + 26) != m->name_n ||
        memcmp(p + LOCAL_NBYTES, m->name, m->name_n) != 0) {
        damaged(z, m->header, "a member has no header of its own", err);
        return NULL;
    }
    if (le16(p + 6) != m->flags || le16(p + 8) != m->method) {
        damaged(z, m->header, "a member's two headers differ", err);
        return NULL;
    }
    n += le16(p + 28);
    if (n > room || m->packed_bytes > room - n)
        wrong = "overlaps what follows it";
    else if (m->flags & 1)
        wrong = "is encrypted";
    else if (m->method != ZIP_STORED && m->method != ZIP_DEFLATE)
        wrong = "is compressed in another way than by DEFLATE";
    if (wrong) {
        bad(z, m, wrong, err);
        return NULL;
    }
    m->data = m->header + n;
    return z->data + m->data;
}

/* A checksum of 0 was not computed: torch has an option for that. */
static int
check_crc(const struct zip *z, struct zip_member *m, uint32_t crc,
          struct err *err)
{
    m->checked = m->crc == 0 || m->crc == crc;
    if (m->checked)
        return 0;
    return err_data(err, z->path,
                    "zip member %.*s is damaged: its CRC is %08x (expected "
                    "%08x)",
                    (int)m->name_n, m->name, crc, m->crc);
}

int
zip_check(const struct zip *z, struct zip_member *m, const uint8_t *data,
          struct err *err)
{
    if (m->checked)
        return 0;
    return check_crc(z, m, m->crc ? (uint32_t)crc32_z(0, data, m->nbytes) : 0,
                     err);
}

ssize_t
zip_head(const struct zip *z, struct zip_member *m, uint8_t *to, size_t n,
         struct err *err)
{
    const uint8_t *p = zip_packed(z, m, err);
    z_stream s = { 0 };
    int status;

    if (!p)
        return -1;
    n = smaller(n, m->nbytes);
    if (m->method == ZIP_STORED) {
        memcpy(to, p, n);
        return (ssize_t)n;
    }
    if (inflateInit2(&s, -15) != Z_OK)
        return err_set(err, EX_SOFTWARE, "zlib: out of memory");
    s.next_in = (z_const Bytef *)(uintptr_t)p;
    s.avail_in = (uInt)smaller(m->packed_bytes, 2 * n + PIECE);
    s.next_out = to;
    s.avail_out = (uInt)n;
    status = inflate(&s, Z_SYNC_FLUSH);
    inflateEnd(&s);
    if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR)
        return bad(z, m, "is damaged: its bytes are not DEFLATE's", err);
    return (ssize_t)(n - s.avail_out);
}

/* Unpacks a ZIP_DEFLATE member to 'to' or, if that is NULL, to 'spill' at
 * 'offset', and checks its size and checksum. */
static int
zip_inflate(const struct zip *z, struct zip_member *m, uint8_t *to,
            const struct spill *spill, size_t offset, struct err *err)
{
    const uint8_t *p = zip_packed(z, m, err), *end;
    uint8_t buf[PIECE];
    z_stream s = { 0 };
    size_t done = 0, n;
    uLong crc = 0;
    int status, rc = -1;

    if (!p)
        return -1;
    end = p + m->packed_bytes;
    s.next_in = (z_const Bytef *)(uintptr_t)p;
    if (inflateInit2(&s, -15) != Z_OK)
        return err_set(err, EX_SOFTWARE, "zlib: out of memory");
    do {
        s.next_out = buf;
        s.avail_out = (uInt)PIECE;
        s.avail_in = (uInt)smaller((size_t)(end - s.next_in), PIECE);
        status = inflate(&s, Z_NO_FLUSH);
        n = PIECE - s.avail_out;
        if (status == Z_MEM_ERROR) {
            err_set(err, EX_SOFTWARE, "zlib: out of memory");
            goto out;
        }
        if (status != Z_OK && status != Z_STREAM_END) {
            bad(z, m, "is damaged: its bytes are not DEFLATE's", err);
            goto out;
        }
        if (n > m->nbytes - done) {
            bad(z, m, "unpacks to more than its size", err);
            goto out;
        }
        crc = crc32_z(crc, buf, n);
        if (to)
            memcpy(to + done, buf, n);
        else if (spill_write(spill, buf, n, offset + done, err) < 0)
            goto out;
        done += n;
    } while (status == Z_OK);
    if (done != m->nbytes || s.next_in != end)
        bad(z, m, "unpacks to less than its size", err);
    else
        rc = check_crc(z, m, (uint32_t)crc, err);
out:
    inflateEnd(&s);
    return rc;
}

/* ---- where they stay ---- */

void
zip_unpacked_free(struct zip_unpacked *u)
{
    if (u->scratch && u->data)
        munmap(u->data, u->nbytes);
    else
        free(u->data);
    *u = (struct zip_unpacked){ 0 };
}

int
zip_unpack(struct zip_unpacked *u, const struct zip *z,
           struct zip_member *const *m, size_t n, struct err *err)
{
    const char *dir = getenv("TMPDIR");
    struct spill spill = { .fd = -1 };
    int rc = 0;

    zip_unpacked_free(u);
    for (size_t i = 0; i < n; i++)
        u->nbytes += m[i]->nbytes;
    u->scratch = u->nbytes > IN_MEMORY;
    if (!u->scratch)
        u->data = xmalloc(u->nbytes);
    else if (spill_open(&spill, dir && *dir ? dir : "/tmp", u->nbytes, err) < 0)
        return -1;
    for (size_t i = 0, at = 0; i < n && rc == 0; at += m[i++]->nbytes)
        rc = zip_inflate(z, m[i], u->data ? u->data + at : NULL, &spill, at,
                         err);
    if (rc == 0 && u->scratch) {
        u->data = map_fd(spill.fd, u->nbytes, spill.dir, err);
        rc = u->data ? 0 : -1;
    }
    spill_close(&spill);
    return rc;
}

const uint8_t *
zip_data(struct zip_unpacked *u, const struct zip *z, struct zip_member *m,
         struct err *err)
{
    const uint8_t *data = zip_packed(z, m, err);

    if (!data)
        return NULL;
    if (m->method == ZIP_STORED)
        return zip_check(z, m, data, err) < 0 ? NULL : data;
    return zip_unpack(u, z, &m, 1, err) < 0 ? NULL : u->data;
}
