/* SPDX-License-Identifier: ISC */
/*
 * Zip archives in memory, as torch.save() and miniz write them: ZIP64, STORED
 * and DEFLATE.  Only the central directory is read: the local
 * headers of such files hold sizes and checksums of 0.  Their flags and methods
 * must be the directory's, because other readers use these.
 * Source: PKWARE's APPNOTE.TXT 6.3.9.
 */
#ifndef CORE_FORMAT_ZIP_H
#define CORE_FORMAT_ZIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/spill.h"

#define ZIP_MAX_MEMBERS 131072

struct zip_member {
    size_t header;       /* offset of the local header */
    size_t data;         /* set by zip_packed(); 0: not yet */
    size_t end;          /* where the next member, or the directory, starts */
    size_t nbytes;       /* of the data */
    size_t packed_bytes; /* in the archive */
    const char *name;    /* [name_n], in the archive */
    uint32_t crc;        /* 0: not computed */
    uint16_t name_n;
    uint16_t flags;
    uint16_t method; /* ZIP_STORED, ZIP_DEFLATE or what is not supported */
    bool checked;    /* the checksum was verified */
    bool storage;    /* counted in pth.nbytes */
    const uint8_t *unpacked; /* pth's, of a storage; or NULL */
};

enum { ZIP_STORED = 0, ZIP_DEFLATE = 8 };

struct zip {
    const char *path;    /* for messages */
    const uint8_t *data; /* [size] the archive */
    size_t size;
    struct zip_member *members; /* [n_members], by name */
    size_t n_members;
    const char *root; /* [root_n], the first member's directory without '/' */
    size_t root_n;
    size_t first, n_below; /* members[first ..] are below it */
};

/*
 * zip_open() reads the directory of the archive in 'data'; both it and 'path'
 * must outlive the struct.  Afterwards names are unique, no two members' ranges
 * overlap, and no member claims to unpack to more than DEFLATE can make of its
 * bytes, 1032 times as many.
 * 0, or -1 with 'err' set (EX_DATAERR).  zip_close() in either case.
 */
int zip_open(struct zip *zip, const void *data, size_t size, const char *path,
             struct err *err);
void zip_close(struct zip *zip); /* a zeroed struct is fine */

/* zip_find() finds a member by its name below the root directory; or NULL. */
struct zip_member *zip_find(const struct zip *zip, const char *name,
                            size_t nbytes);

/*
 * zip_packed() is a member's bytes as they are in the archive; for ZIP_STORED
 * its data.  NULL with 'err' set (EX_DATAERR): the local header is another
 * member's or contradicts the directory, the data runs into the next one, the
 * method is not supported.  The local header is read once.
 */
const uint8_t *zip_packed(const struct zip *zip, struct zip_member *m,
                          struct err *err);

/* zip_check() compares the checksum of all of a member's data, once. */
int zip_check(const struct zip *zip, struct zip_member *m, const uint8_t *data,
              struct err *err);

/*
 * zip_head() copies the first n bytes of a member's data to 'to', or all where
 * it has fewer, unpacked and not yet checked.  How many, or -1 with 'err' set
 * (EX_DATAERR).
 */
ssize_t zip_head(const struct zip *zip, struct zip_member *m, uint8_t *to,
                 size_t n, struct err *err);

/* Bytes of compressed members: few in memory, more in a scratch file without a
 * name. */
struct zip_unpacked {
    uint8_t *data; /* [nbytes] */
    size_t nbytes;
    bool scratch;
};

/*
 * zip_unpack() replaces what 'u' holds by the bytes of n ZIP_DEFLATE members,
 * one after the other, and checks their sizes and checksums.  0, or -1 with
 * 'err' set: EX_DATAERR, EX_IOERR, or EX_CANTCREAT (scratch, in $TMPDIR).
 */
int zip_unpack(struct zip_unpacked *u, const struct zip *zip,
               struct zip_member *const *m, size_t n, struct err *err);
void zip_unpacked_free(struct zip_unpacked *u); /* a zeroed struct is fine */

/* zip_data() is a member's bytes, whole and checked: in the archive, or in 'u'
 * where they are compressed.  NULL with 'err' set, as zip_packed() and
 * zip_unpack(). */
const uint8_t *zip_data(struct zip_unpacked *u, const struct zip *zip,
                        struct zip_member *m, struct err *err);

#endif
