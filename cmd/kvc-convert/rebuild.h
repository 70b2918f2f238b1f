/*
 * What the globals of a PyTorch checkpoint mean: storages by persistent id,
 * tensors, parameters, and the standard containers.  All else is opaque.
 * Source: torch/_utils.py and torch/serialization.py, 0.1.12 to 2.9.
 */
#ifndef KVC_CONVERT_REBUILD_H
#define KVC_CONVERT_REBUILD_H

#include <stddef.h>
#include <stdint.h>

#include "cmd/kvc-convert/pickle.h"

struct zip_member;

/* A storage as a persistent id names it; where it lies is found out later. */
struct pth_storage {
    struct pth_storage *next;
    const struct pth_value *type, *key; /* GLOBAL, STR */
    int dtype;                          /* -1: it has no name here */
    size_t size;                        /* bytes of an element */
    size_t total;                       /* elements in the file */
    size_t base, n;                     /* those that are this storage */
    size_t at;                          /* byte of the pickle, for messages */
    const uint8_t *data;                /* [total * size], of a legacy stream */
    struct zip_member *member;          /* of a zip archive */
};

/* For struct pickle. */
struct pth_value *rebuild_call(struct pickle *p, struct pth_value *callee,
                               struct pth_value *args);
struct pth_value *rebuild_persistent(struct pickle *p, struct pth_value *id);

#endif
