/* What the parts of the checkpoint reader share. */
#ifndef KVC_CONVERT_PTH_IMPL_H
#define KVC_CONVERT_PTH_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cmd/kvc-convert/pickle.h"
#include "cmd/kvc-convert/zip.h"
#include "core/map.h"

/* Bytes of compressed members: few in memory, more in a scratch file without a
 * name. */
struct unpacked {
    uint8_t *data; /* [nbytes] */
    size_t nbytes;
    bool scratch;
};

/* Compressed storages that were read from. */
struct storages {
    struct unpacked one; /* the last of those that one tensor lies in */
    const struct zip_member *last; /* this one; NULL: none */
    struct unpacked shared;        /* all others that pth_want() was told of */
};

struct pth {
    char *path;
    struct map map;
    struct zip zip; /* zeroed for a legacy stream */
    struct unpacked pkl;
    struct storages *storages;
    struct pickle pickle;
    size_t nbytes; /* of all storages, each counted once */
    const struct pth_value *root;
};

/* The two forms of a file: both fill 'root' and find every storage. */
int pth_zip_open(struct pth *pth, struct err *err);
int pth_legacy_open(struct pth *pth, struct err *err);

/* unpack() replaces what 'u' holds by the bytes of n ZIP_DEFLATE members that
 * zip_packed() has seen, one behind the other. */
int unpack(struct unpacked *u, const struct zip *zip,
           struct zip_member *const *m, size_t n, struct err *err);
void unpacked_free(struct unpacked *u);

#endif
