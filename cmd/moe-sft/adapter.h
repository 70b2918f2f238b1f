/* Adapters of one layer's experts: in memory, and as our files. */
#ifndef MOE_SFT_ADAPTER_H
#define MOE_SFT_ADAPTER_H

#include <stddef.h>
#include <stdint.h>

#include "cmd/moe-sft/base.h"
#include "core/dtype.h"
#include "core/err.h"
#include "core/format/stdir.h"
#include "core/format/stw.h"
#include "core/hash.h"
#include "core/model/moe.h"
#include "core/str.h"

/*
 * An adapter: our file (gate_lora_a .. down_lora_b, sizes in __metadata__), or
 * a layer of a PEFT directory (the base's, or the only one), whose experts
 * without an adapter have zeros; it must fit 'base' unless that is NULL.
 * adapter_open() reads either into memory, bf16 (F16 and F32 are rounded);
 * adapter_map() leaves the numbers of our file there, as they are, and
 * adapter_map_layer() (peft.h) those of a PEFT directory.
 * Owner: the caller, until adapter_close().
 */
struct adapter_part {
    const void *data; /* in a mapped file; NULL: zeros */
    const struct st *st;
    enum dtype dtype;
};
struct expert_adapter {
    size_t n_experts, hidden, intermediate, rank;
    float alpha;
    int64_t layer;              /* -1: not said */
    uint16_t *m[MOE_N_LORA];    /* as struct moe_lora; NULL: mapped */
    struct adapter_part *parts; /* [MOE_N_LORA, n_experts]; NULL: in memory */
    struct stdir dir;           /* the files of the parts, if it owns them */
    int dtype; /* of the file's tensors, F32 if they differ; -1: no file */
};
int adapter_new(struct expert_adapter *a, const struct base *base, size_t rank,
                float alpha, struct err *err); /* zeros */
int adapter_open(struct expert_adapter *a, const char *path,
                 const struct base *base, struct err *err);
int adapter_map(struct expert_adapter *a, const char *path,
                const struct base *base, struct err *err);

/* adapter_layer() is the layer that our file says it is of; -1: none. */
int adapter_layer(const char *path, int64_t *layer, struct err *err);
void adapter_close(struct expert_adapter *a); /* a zeroed struct is fine */
struct moe_lora adapter_lora(const struct expert_adapter *a);
void adapter_digest(const struct expert_adapter *a, struct hash *hash);

/* adapter_size() are the numbers of an expert's matrix; adapter_f32() widens
 * them from the file of a mapped adapter. */
size_t adapter_size(const struct expert_adapter *a, enum moe_lora_matrix m);
void adapter_f32(const struct expert_adapter *a, enum moe_lora_matrix m,
                 size_t expert, float *to);

/* adapter_unchanged() is st_unchanged() of every file that a mapped adapter has
 * been read from: to be asked when its last number has been. */
int adapter_unchanged(const struct expert_adapter *a, struct err *err);

/* adapter_parts() makes parts without data, for sizes that it checks;
 * adapter_take() sets where 'n' experts' matrices are, from 'first' on. */
int adapter_parts(struct expert_adapter *a, struct err *err);
void adapter_take(struct expert_adapter *a, enum moe_lora_matrix m,
                  size_t first, size_t n, const struct st *st,
                  const struct st_tensor *t);

/* adapter_meta() sets the sizes as metadata of a file; adapter_put() writes
 * an expert's matrix into a tensor from that expert's place on, -1 all of them,
 * as numbers of adapter_dtype(): the file's that is mapped, else BF16. */
void adapter_meta(const struct expert_adapter *a, struct stw *w);
enum dtype adapter_dtype(const struct expert_adapter *a);
int adapter_put(const struct expert_adapter *a, struct stw *w, int tensor,
                enum moe_lora_matrix m, int64_t expert, struct err *err);
size_t adapter_nbytes(const struct expert_adapter *a);

/* adapter_write() writes our file, 'flags' as out_open(). */
int adapter_write(const struct expert_adapter *a, const char *path, int flags,
                  struct err *err);

/* adapter_config() is an operator's configuration for base, adapter and k. */
struct moe_config adapter_config(const struct expert_adapter *a, size_t top_k);

#endif
