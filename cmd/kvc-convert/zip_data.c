/* The members' bytes: where they start, unpacked, with the right checksum. */
#include <string.h>
#include <zlib.h>

#include "cmd/kvc-convert/zip.h"
#include "core/le.h"

#define LOCAL_NBYTES 30
#define PIECE        ((size_t)64 << 10)

static int
bad(const struct zip *z, const struct zip_member *m, const char *what,
    struct err *err)
{
    return err_set(err, EX_DATAERR, "%s: zip member %.*s %s", z->path,
                   (int)m->name_n, m->name, what);
}

/* Sets m->data from the local header at 'p'. */
static int
read_local(const struct zip *z, struct zip_member *m, const uint8_t *p,
           struct err *err)
{
    size_t n = (size_t)LOCAL_NBYTES + m->name_n;

    if (memcmp(p, "PK\3\4", 4) != 0 || le16(p + 26) != m->name_n ||
        memcmp(p + LOCAL_NBYTES, m->name, m->name_n) != 0)
        return err_set(err, EX_DATAERR,
                       "%s: zip member %.*s has no header of its own at byte "
                       "%zu",
                       z->path, (int)m->name_n, m->name, m->header);
    if (le16(p + 6) != m->flags || le16(p + 8) != m->method)
        return err_set(err, EX_DATAERR,
                       "%s: zip member %.*s has flags 0x%04x and method %u at "
                       "byte %zu, but 0x%04x and %u in the directory",
                       z->path, (int)m->name_n, m->name, le16(p + 6),
                       le16(p + 8), m->header, m->flags, m->method);
    n += le16(p + 28);
    if (n > m->end - m->header || m->packed_bytes > m->end - m->header - n)
        return bad(z, m, "runs into what follows it", err);
    if (m->flags & 1)
        return bad(z, m, "is encrypted", err);
    if (m->method != ZIP_STORED && m->method != ZIP_DEFLATE)
        return bad(z, m, "is compressed in another way than by DEFLATE", err);
    m->data = m->header + n;
    return 0;
}

const uint8_t *
zip_packed(const struct zip *z, struct zip_member *m, struct err *err)
{
    if (!m->data && read_local(z, m, z->data + m->header, err) < 0)
        return NULL;
    return z->data + m->data;
}

/* A checksum of 0 was not computed: torch can be told so. */
static int
check_crc(const struct zip *z, struct zip_member *m, uint32_t crc,
          struct err *err)
{
    m->checked = m->crc == 0 || m->crc == crc;
    if (m->checked)
        return 0;
    return err_set(err, EX_DATAERR,
                   "%s: zip member %.*s is damaged: its CRC is %08x (expected "
                   "%08x)",
                   z->path, (int)m->name_n, m->name, crc, m->crc);
}

int
zip_check(const struct zip *z, struct zip_member *m, const uint8_t *data,
          struct err *err)
{
    if (m->checked)
        return 0;
    if (m->crc == 0)
        return check_crc(z, m, 0, err);
    return check_crc(z, m, (uint32_t)crc32_z(0, data, m->nbytes), err);
}

/* One piece: all that the bytes at hand give, at most PIECE of them. */
static int
inflate_piece(z_stream *s, uint8_t *buf, const uint8_t *end, size_t *n)
{
    size_t left = (size_t)(end - s->next_in);
    int rc;

    s->next_out = buf;
    s->avail_out = (uInt)PIECE;
    s->avail_in = (uInt)(left < PIECE ? left : PIECE);
    rc = inflate(s, Z_NO_FLUSH);
    *n = PIECE - s->avail_out;
    return rc;
}

/* Never more than m->nbytes go to the sink. */
static int
inflate_all(const struct zip *z, struct zip_member *m, z_stream *s,
            const uint8_t *end,
            int (*sink)(void *, const void *, size_t, size_t, struct err *),
            void *arg, struct err *err)
{
    uint8_t buf[PIECE];
    size_t done = 0, n = 0;
    uLong crc = 0;
    int rc;

    do {
        rc = inflate_piece(s, buf, end, &n);
        if (rc == Z_MEM_ERROR)
            return err_set(err, EX_SOFTWARE, "zlib: out of memory");
        if (rc != Z_OK && rc != Z_STREAM_END)
            return bad(z, m, "is damaged: its bytes are not DEFLATE's", err);
        if (n > m->nbytes - done)
            return bad(z, m, "unpacks to more than it says", err);
        crc = crc32_z(crc, buf, n);
        if (n > 0 && sink(arg, buf, n, done, err) < 0)
            return -1;
        done += n;
    } while (rc == Z_OK);
    if (done != m->nbytes || s->next_in != end)
        return bad(z, m, "unpacks to less than it says", err);
    return check_crc(z, m, (uint32_t)crc, err);
}

int
zip_inflate(const struct zip *z, struct zip_member *m,
            int (*sink)(void *arg, const void *data, size_t nbytes,
                        size_t offset, struct err *err),
            void *arg, struct err *err)
{
    const uint8_t *p = zip_packed(z, m, err);
    z_stream s = { 0 };
    int rc;

    if (!p)
        return -1;
    s.next_in = (z_const Bytef *)(uintptr_t)p;
    if (inflateInit2(&s, -15) != Z_OK)
        return err_set(err, EX_SOFTWARE, "zlib: out of memory");
    rc = inflate_all(z, m, &s, p + m->packed_bytes, sink, arg, err);
    inflateEnd(&s);
    return rc;
}
