/* The arguments of options: numbers, sizes, parts, words. */
#ifndef CORE_OPT_VALUE_H
#define CORE_OPT_VALUE_H

#include <stddef.h>
#include <stdint.h>

#include "core/dtype.h"
#include "core/err.h"

/* Numbers as arguments, whole and in range, or -1 with TU_USAGE; 'name' is
 * how the user knows the option ("--top"). */
int opt_i64(const char *name, const char *arg, int64_t min, int64_t max,
            int64_t *value, struct err *err);
int opt_u64(const char *name, const char *arg, uint64_t min, uint64_t max,
            uint64_t *value, struct err *err);
int opt_f64(const char *name, const char *arg, double min, double max,
            double *value, struct err *err);

/* opt_size() takes bytes, or K, M, G, T of them, powers of 1024: "64M". */
int opt_size(const char *name, const char *arg, size_t min, size_t *nbytes,
             struct err *err);

/* opt_shard() takes the I/N of --shard, part I of N: 0/8 .. 7/8. */
int opt_shard(const char *arg, uint64_t *part, uint64_t *n_parts,
              struct err *err);

/* opt_word() is the place of 'arg' in 'words', which end with NULL, or -1 with
 * TU_USAGE and all of them in the message. */
int opt_word(const char *name, const char *arg, const char *const *words,
             struct err *err);

/* opt_dtype() takes f32, f16 or bf16; 0, or -1 with TU_USAGE. */
int opt_dtype(const char *name, const char *arg, enum dtype *dtype,
              struct err *err);

#endif
