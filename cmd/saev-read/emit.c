#include <stdlib.h>

#include "cmd/saev-read/read.h"
#include "core/format/npy.h"
#include "core/kernel/cvt.h"
#include "core/mem.h"

#define EMIT_FLOATS ((size_t)64 << 10) /* converted at a time: stays in L2 */

int
emit_open(struct emit *emit, const struct cmd *cmd, size_t n_rows, size_t d,
          struct err *err)
{
    const uint64_t shape[] = { n_rows, d };
    struct str header = { 0 };
    int rc = 0;

    *emit = (struct emit){ .out = cmd->out, .dtype = cmd->dtype, .d = d };
    if (emit->dtype != DT_F32) {
        emit->native = xmalloc(EMIT_FLOATS * sizeof(float));
        emit->converted = xmalloc(EMIT_FLOATS * 2);
    }
    if (cmd->raw)
        return 0;
    rc = npy_header(&header, cmd->dtype, 2, shape, err);
    if (rc == 0)
        rc = out_write(cmd->out, header.s, header.n, err);
    str_free(&header);
    return rc;
}

int
emit_rows(struct emit *emit, const void *rows, size_t n_rows, struct err *err)
{
    const char *from = rows;
    size_t left = n_rows * emit->d;

    if (emit->dtype == DT_F32)
        return out_write(emit->out, rows, left * sizeof(float), err);
    for (size_t n; left > 0; left -= n, from += n * sizeof(float)) {
        n = left < EMIT_FLOATS ? left : EMIT_FLOATS;
        cvt_to_f32(emit->native, from, DT_F32, n);
        cvt_from_f32(emit->converted, emit->dtype, emit->native, n);
        if (out_write(emit->out, emit->converted, n * 2, err) < 0)
            return -1;
    }
    return 0;
}

void
emit_close(struct emit *emit)
{
    free(emit->native);
    free(emit->converted);
    *emit = (struct emit){ 0 };
}
