/* SPDX-License-Identifier: ISC */
/* cmd/moe-sft/batch: any bytes are a batch or an error, the same from memory
 * and from a stream; every number of a batch can be read. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/moe-sft/batch.h"
#include "test/fuzz/must.h"

/* Touches all that a batch says it has. */
static uint64_t
read_all(const struct batch *b)
{
    uint64_t sum = 0;

    for (size_t i = 0; b->expert_ids && i < b->qlen * b->top_k; i++)
        sum += (uint64_t)b->expert_ids[i] + (b->weights[i] > 0);
    for (size_t i = 0; i < b->qlen * b->hidden; i++)
        sum += (b->input ? b->input[i] : 0) +
               (b->grad_output ? b->grad_output[i] : 0) +
               (b->target ? b->target[i] > 0 : 0);
    return sum;
}

/* What a stream gives first, and whether memory gives it, too. */
static void
from_stream(const uint8_t *data, size_t n, uint64_t sum, bool good)
{
    static char path[] = "/tmp/batch-fuzz.XXXXXX";
    static int fd = -1;
    struct batch b;
    struct err err;

    if (fd < 0)
        fd = mkstemp(path);
    if (ftruncate(fd, 0) < 0 || pwrite(fd, data, n, 0) != (ssize_t)n ||
        lseek(fd, 0, SEEK_SET) != 0)
        return;
    if (batch_next(&b, fd, "stream", 0, 0, &err) > 0) {
        if (good && read_all(&b) != sum)
            abort();
        batch_close(&b);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct batch b;
    struct err err;
    bool good = batch_parse(&b, data, n, "memory", 0, 0, &err) == 0;
    uint64_t sum = 0;

    if (good) {
        sum = read_all(&b);
        batch_close(&b);
    }
    if (batch_parse(&b, data, n, "memory",
                    BATCH_INPUT | BATCH_ROUTING | BATCH_GRAD_OUTPUT, 3,
                    &err) == 0)
        batch_close(&b);
    from_stream(data, n, sum, good);
    return 0;
}
