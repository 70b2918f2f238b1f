/* From an instruction set to each family's table. */
#include "core/kernel/ops.h"

#define TABLE(family)                                        \
    const struct family##_ops *family##_ops_of(enum isa isa) \
    {                                                        \
        (void)isa;                                           \
        return &family##_scalar;                             \
    }

TABLE(cvt)
TABLE(gemv)
TABLE(vec)
