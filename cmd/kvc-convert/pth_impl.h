/* What the parts of the checkpoint reader share. */
#ifndef KVC_CONVERT_PTH_IMPL_H
#define KVC_CONVERT_PTH_IMPL_H

#include "cmd/kvc-convert/pickle.h"
#include "cmd/kvc-convert/pth.h"
#include "cmd/kvc-convert/rebuild.h"
#include "cmd/kvc-convert/zip.h"
#include "core/map.h"

/* A compressed member's bytes: small ones in memory, else in a scratch file
 * without a name. */
struct unpacked {
    const struct zip_member *of; /* NULL: nothing */
    uint8_t *data;
    bool scratch;
};

struct pth {
    char *path;
    struct map map;
    struct zip zip; /* zeroed for a legacy stream */
    struct unpacked pkl;
    struct unpacked *storage; /* the last one read from */
    struct pickle pickle;
    const struct pth_value *root;
};

/* The two forms of a file: both fill 'root' and find every storage. */
int pth_zip_open(struct pth *pth, struct err *err);
int pth_legacy_open(struct pth *pth, struct err *err);

/* unpack() replaces what 'u' holds by a ZIP_DEFLATE member's bytes. */
int unpack(struct unpacked *u, const struct zip *zip, struct zip_member *m,
           struct err *err);
void unpacked_free(struct unpacked *u);

#endif
