#include "core/model/router.h"

#include "core/kernel/vec.h"

void
router_select(uint32_t *ids, float *weights, size_t k, float *p, size_t n,
              bool normalize)
{
    float sum = vec_exp_sum(p, vec_max(p, n), n);

    for (size_t i = 0; i < n; i++)
        p[i] /= sum;
    vec_topk(ids, k, p, n);
    sum = 0;
    for (size_t i = 0; i < k; i++) {
        weights[i] = p[ids[i]];
        sum += weights[i];
    }
    for (size_t i = 0; normalize && i < k; i++)
        weights[i] /= sum;
}
