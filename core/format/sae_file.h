/* SPDX-License-Identifier: ISC */
/*
 * The tensors of an SAE's file, whatever kind of file that is: for
 * core/format/sae.c and sae_config.c alone.
 */
#ifndef CORE_FORMAT_SAE_FILE_H
#define CORE_FORMAT_SAE_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "core/format/pth.h"
#include "core/format/st.h"
#include "core/format/zip.h"

enum sae_container {
    SAE_SAFETENSORS,
    SAE_PT,  /* torch.save() of a state dict */
    SAE_NPZ, /* numpy's arrays in a zip archive */
};

struct sae_tensor {
    struct st_tensor t;
    bool by_col; /* a matrix whose columns are stored, not its rows */

    const struct pth_tensor *pt; /* of a PT; private, like the rest */
    struct zip_member *member;   /* of an NPZ, with its header, */
    size_t at;                   /* of so many bytes */
    struct zip_unpacked unpacked;
};

struct sae_file {
    const char *path;
    enum sae_container container;
    const char *head; /* [head_n] the line of JSON before a PT; NULL: none */
    size_t head_n;
    size_t n;
    struct sae_tensor *tensors; /* [n] */

    struct st st;
    struct pth pth;
    struct map map; /* of an NPZ */
    struct zip zip;
};

/*
 * sae_file_open() opens the file at 'path', of the kind that its bytes show,
 * and finds its tensors' names and shapes.
 * 0, or -1 with 'err' set, as st_open() and pth_open(); EX_DATAERR, too, where
 * there is something else among the tensors, or one that is a view, or where
 * an archive unpacks to over 64 times its bytes and 64 MiB.
 * Owner: the caller, until sae_file_close(), also after an error; 'path' must
 * live as long.
 */
int sae_file_open(struct sae_file *f, const char *path, struct err *err);
void sae_file_close(struct sae_file *f); /* a zeroed struct is fine */

/* sae_file_find(): the tensor of that name, or NULL. */
const struct sae_tensor *sae_file_find(const struct sae_file *f,
                                       const char *name);

/*
 * sae_file_data() is a tensor's numbers, [t.nbytes], as st_data(): in the
 * mapped file, or where an archive has them compressed, in memory or scratch,
 * whole and checked.  They stay until sae_file_close().  NULL with 'err' set.
 */
const void *sae_file_data(struct sae_file *f, const struct sae_tensor *t,
                          struct err *err);

#endif
