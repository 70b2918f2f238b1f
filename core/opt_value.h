/* SPDX-License-Identifier: ISC */
/*
 * The arguments of options: numbers, sizes, parts, words, and how they get to
 * their places.
 */
#ifndef CORE_OPT_VALUE_H
#define CORE_OPT_VALUE_H

#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/str.h"

/* Numbers as arguments, whole and in range, or -1 with TU_USAGE; 'name' is
 * how the user knows the option ("--top"). */
int opt_i64(const char *name, const char *arg, int64_t min, int64_t max,
            int64_t *value, struct err *err);
int opt_u64(const char *name, const char *arg, uint64_t min, uint64_t max,
            uint64_t *value, struct err *err);
int opt_f64(const char *name, const char *arg, double min, double max,
            double *value, struct err *err);

/* opt_f64_list() takes at most 'most' of them with commas between; returns how
 * many. */
int opt_f64_list(const char *name, const char *arg, double min, double max,
                 double *values, int most, struct err *err);

/* opt_size() takes bytes, or powers of 1024: "64M", "64MiB"; K, M, G, T. */
int opt_size(const char *name, const char *arg, size_t min, size_t *nbytes,
             struct err *err);

/* opt_shard() takes the I/N of --shard, part I of N: 0/8 .. 7/8. */
int opt_shard(const char *arg, uint64_t *part, uint64_t *n_parts,
              struct err *err);

/* opt_choice() is the place of 'arg' among words such as "f32|f16" ("fp16" is
 * "f16", "fp32" "f32"), or -1 with TU_USAGE and all of them in the message. */
int opt_choice(const char *name, const char *arg, const char *words,
               struct err *err);

/* The arguments of an option that may be given again.  Owner: the
 * struct's owner frees 'item'. */
struct opt_list {
    const char **item; /* [n], then NULL; or NULL */
    size_t n;
};

/* opt_keep() adds a copy of n bytes of 's' to a list, for what points to it,
 * and returns it; opt_drop() frees a list of such copies. */
const char *opt_keep(struct opt_list *list, const char *s, size_t n);
void opt_drop(struct opt_list *list);

/*
 * opt_put() takes the argument of option 'o', which the user knows as 'name',
 * to its place in the tool's struct: 0, or -1 with 'err' set (TU_USAGE).
 * opt_default() appends the value that it has there, if it can have it, and
 * opt_range() "1 to 1024", if a user could want more.
 */
struct opt;
int opt_put(const struct opt *o, const char *name, const char *arg, void *to,
            struct err *err);
void opt_default(const struct opt *o, const void *defaults, struct str *text);
void opt_range(const struct opt *o, struct str *text);

/*
 * An option as text in a file, from which a later command has it, if it is a
 * flag ("0", "1"), a number of 64 bits, a word or a text.
 * opt_save() appends its value in 'from', the tool's struct; "": none.
 * opt_load() takes such a text, which must outlive 'to', to its place there: 0,
 * or -1 with 'err' set (TU_USAGE): it is not what opt_put() takes.  What the
 * option is in 'defaults', if they are not NULL, may be out of range, as a 0
 * for "not given".
 * opt_copy() gives the option in 'to' the value that it has in 'from'.
 */
void opt_save(const struct opt *o, const void *from, struct str *text);
int opt_load(const struct opt *o, const char *name, const char *text,
             const void *defaults, void *to, struct err *err);
void opt_copy(const struct opt *o, const void *from, void *to);

#endif
