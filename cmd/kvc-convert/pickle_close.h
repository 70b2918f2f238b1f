/*
 * What holds for a finished tree.
 */
#ifndef KVC_CONVERT_PICKLE_CLOSE_H
#define KVC_CONVERT_PICKLE_CLOSE_H

#include "cmd/kvc-convert/pickle.h"

#define PICKLE_MAX_KEY 1024 /* bytes; pth_get() finds these */

/*
 * pickle_close() checks that the tree below 'root' keeps the promises of
 * pth_open(), drops all but the last item of equal keys (strings of at most
 * PICKLE_MAX_KEY bytes, and integers), and sorts these for pth_get().
 * -1 with p->err set (EX_DATAERR).
 */
int pickle_close(struct pickle *p, const struct pth_value *root);

/* The item of a string key in a closed dict, or NULL. */
const struct pth_value *pickle_find(const struct pickle_list *dict,
                                    const struct pth_value *key);

#endif
