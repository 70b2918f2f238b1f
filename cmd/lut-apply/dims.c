/* --dims: the inputs that are compensated in every row, from a .npy. */
#include <stdlib.h>
#include <string.h>

#include "cmd/lut-apply/apply.h"
#include "core/format/npy.h"
#include "core/le.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/str.h"
#include "core/tty.h"

/* The numbers of a .npy, which must be dims of 'in' inputs, ascending. */
static int
take(uint32_t *dims, const struct npy *npy, const char *data, const char *path,
     size_t in, struct err *err)
{
    for (size_t i = 0; i < npy->n_elements; i++) {
        int64_t d = npy->dtype == DT_I32 ? (int32_t)le32(data + 4 * i)
                                         : (int64_t)le64(data + 8 * i);

        if (d < 0 || (uint64_t)d >= in)
            return err_set(err, EX_DATAERR,
                           "%s: [%zu] is %lld (expected 0 to %zu: the layer "
                           "has %zu inputs)",
                           path, i, (long long)d, in - 1, in);
        if (i > 0 && d <= (int64_t)dims[i - 1])
            return err_set(err, EX_DATAERR,
                           "%s: [%zu] is %lld after %lu (expected ascending "
                           "inputs)",
                           path, i, (long long)d, (unsigned long)dims[i - 1]);
        dims[i] = (uint32_t)d;
    }
    return 0;
}

int
dims_read(struct table_fix *fix, uint32_t **dims, const char *path, size_t in,
          struct err *err)
{
    const char *name = strcmp(path, "-") ? path : "standard input";
    struct str s = { 0 };
    struct npy npy;
    int rc = -1;

    if (file_read_all(path, NPY_MAX_HEAD + 8 * in, &s, err) < 0 ||
        npy_parse(&npy, s.s, s.n, name, err) < 0 ||
        npy_fits(&npy, s.n, name, err) < 0)
        goto out;
    if ((npy.dtype != DT_I32 && npy.dtype != DT_I64) || npy.n_dims != 1) {
        err_set(err, EX_DATAERR,
                "%s: is %s of %zu dim%s (expected I32 or I64 of 1)", name,
                dtype_table[npy.dtype].name, npy.n_dims, plural(npy.n_dims));
        goto out;
    }
    if (npy.n_elements > in) {
        err_set(err, EX_DATAERR,
                "%s: has %llu numbers (expected at most %zu, the layer's "
                "inputs)",
                name, (unsigned long long)npy.n_elements, in);
        goto out;
    }
    *dims = xcalloc(in, sizeof(**dims));
    rc = take(*dims, &npy, s.s + npy.data_offset, name, in, err);
    fix->how = npy.n_elements ? FIX_DIMS : FIX_NONE;
    fix->dims = *dims;
    fix->n_dims = (size_t)npy.n_elements;
out:
    str_free(&s);
    return rc;
}
