/* cmd/hf-infer/jsonl: any bytes as a line; what is taken keeps its promises. */
#include "cmd/hf-infer/jsonl.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct jsonl_line line = { 0 };
    struct err err = { 0 };

    if (jsonl_parse(&line, (const char *)data, size, "f", &err) == 0) {
        if (line.text && (line.ids || line.text[line.text_nbytes] != '\0'))
            abort();
        for (size_t i = 0; i < line.n_ids; i++)
            if (line.ids[i] < 0)
                abort();
    } else if (err.status != EX_DATAERR || strchr(err.what, '\n')) {
        abort();
    }
    jsonl_line_free(&line);
    return 0;
}
