/* SPDX-License-Identifier: ISC */
/*
 * PyTorch checkpoints (torch.save): the zip archives of 1.6 and later and the
 * stream before that, pickle protocols 2 to 5.  Nothing in a file is ever
 * executed: a checkpoint becomes a tree of plain values.
 */
#ifndef CORE_FORMAT_PTH_H
#define CORE_FORMAT_PTH_H

#include "core/format/pickle.h"
#include "core/format/zip.h"
#include "core/map.h"

struct pth {
    const struct pth_value *root; /* what was saved */
    size_t nbytes; /* of all storages, each counted once, however many tensors
                      use it; at most 1032 times those of the file */
    struct pickle pickle; /* .globals: in the order of the file */
    struct map map;
    struct zip zip; /* zeroed for a legacy stream */
    struct zip_unpacked pkl;
    struct zip_unpacked unpacked; /* all compressed storages */
};

/* pth_sniff(): do these first n bytes of a file begin a checkpoint? */
bool pth_sniff(const uint8_t *head, size_t n);

/*
 * pth_open() maps the checkpoint at 'path', which begins after 'skip' bytes,
 * and reads all of it but the tensors' bytes.  Afterwards the tree is as
 * pickle_close() promises; each tensor lies within its storage, and each
 * storage within the file.
 *
 * The classes and functions that a file names have to be on a list, that of
 * torch's weights_only and some more, or among 'allowed': "module.name" each,
 * the last NULL; or NULL, where the user has no --allow.
 *
 * Returns 0, or -1 with 'err' set: EX_NOINPUT (cannot be opened), EX_DATAERR
 * (breaks a format, names a global that is not allowed, or is something else:
 * the message says what), EX_IOERR, EX_CANTCREAT (scratch for
 * a compressed member, in $TMPDIR).
 * Owner: the caller, until pth_close(); 'path' must live as long.
 * Memory: some 800 bytes a tensor; whatever is in the file, at most 64 MiB and
 * 1/64 of its size.
 */
int pth_open(struct pth *pth, const char *path, size_t skip,
             const char *const *allowed, struct err *err);
void pth_close(struct pth *pth); /* a zeroed struct is fine */

/* pth_get() returns the value of a string key (of at most PTH_MAX_KEY bytes),
 * or NULL: no such key, or not a dict.  O(log n), after pickle_close(). */
const struct pth_value *pth_get(const struct pth_value *dict, const char *key);

/*
 * pth_read() writes elements first .. first+n-1 of a tensor, counted in C
 * order whatever its strides, to 'to': contiguous, in the file's dtype,
 * little-endian.  first + n <= n_elements.
 * 0, or -1 with 'err' set: EX_DATAERR (a checksum, or compressed bytes that
 * are damaged), EX_IOERR and EX_CANTCREAT as above.  The checksum of a
 * storage is verified when it is first read from; compressed ones are all
 * unpacked then, in memory up to 4 MiB, else in scratch.
 * Threads: one at a time.
 */
int pth_read(struct pth *pth, const struct pth_tensor *t, size_t first,
             size_t n, void *to, struct err *err);

/*
 * pth_data() is where in its storage a tensor's first element lies: its strides
 * count from there, no alignment is promised, and the bytes stay until
 * pth_close().  NULL with 'err' set, as pth_read().
 */
const void *pth_data(struct pth *pth, const struct pth_tensor *t,
                     struct err *err);

#endif
