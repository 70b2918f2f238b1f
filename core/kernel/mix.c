#include "core/kernel/mix.h"

#include "core/kernel/ops.h"

void
mix(const struct mix *m)
{
    const struct mix_ops *ops = mix_ops_of(cpu_isa());

    (m->w_dtype == DT_BF16  ? ops->bf16
     : m->w_dtype == DT_F16 ? ops->f16
                            : ops->f32)(m);
}
