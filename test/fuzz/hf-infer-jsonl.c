/* SPDX-License-Identifier: ISC */
/*
 * Hostile JSON lines: each is refused, or gives a prompt or ids and an id that
 * is one JSON value again.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cmd/hf-infer/jsonl.h"
#include "core/js.h"
#include "test/fuzz/must.h"

static void
check_doc(const struct jsonl_doc *doc)
{
    json_t *id;
    uint32_t c;

    MUST(doc->where && strncmp(doc->where, "fuzz: line ", 11) == 0);
    MUST(!doc->is_ids || doc->text.n == 0);
    for (size_t i = 0; i < doc->ids.n; i++)
        MUST(doc->ids.id[i] >= 0);
    if (doc->id.n == 0)
        return;
    for (size_t i = 0; i < doc->id.n;
         i += (size_t)utf8_put((char[4]){ 0 }, c)) {
        MUST(utf8_next(doc->id.s + i, doc->id.n - i, &c) > 0);
        MUST(c == '\t' || (c >= 32 && c != 127 && !utf8_deceives(c)));
    }
    /* integers of any size: as doubles */
    id = json_loadb(doc->id.s, doc->id.n,
                    JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL,
                    NULL);
    MUST(id != NULL);
    json_decref(id);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct jsonl jsonl = { .fd = memfd_create("fuzz", MFD_CLOEXEC),
                           .name = "fuzz",
                           .settings = true };
    struct err err = { 0 };
    int rc = 1;

    MUST(write(jsonl.fd, data, size) == (ssize_t)size);
    lseek(jsonl.fd, 0, SEEK_SET);
    while (rc == 1) {
        struct jsonl_doc doc = { 0 };

        rc = jsonl_next(&jsonl, &doc, true, &err);
        if (rc == 1)
            check_doc(&doc);
        jsonl_doc_free(&doc);
    }
    MUST(rc == 0 || (rc == -1 && err.status == EX_DATAERR && *err.what));
    jsonl_close(&jsonl);
    return 0;
}
