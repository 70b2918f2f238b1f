/* SPDX-License-Identifier: ISC */
/*
 * --session: a hostile header of a session's file, and its data.  What is read
 * goes on, and comes back from a file as it was.  The model, a seed of model,
 * has longrope.
 */
#include "core/format/stw.h"
#include "core/mem.h"
#include "core/model/engine.h"
#include "core/model/model.h"
#include "core/model/session_file.h"

#include "test/fuzz/files.h"

#define MODEL "test/fuzz/model.seeds/phi3"

static struct engine *
engine(void)
{
    static const struct engine_options options = { .chunk = 2, .kv = DT_F32 };
    static struct engine *e;
    static struct model *model;
    struct err err;

    if (!e) {
        MUST(model_open(&model, fuzz_model(MODEL), &err) == 0);
        MUST(engine_open(&e, model, NULL, &options, &err) == 0);
    }
    return e;
}

/* The header and its length, and the data, with zeros to the size that the
 * header says. */
static const char *
file_of(struct bytes head, struct bytes data)
{
    size_t n = fuzz_st_nbytes(head);
    struct bytes file = { .n = 8 + head.n + n };
    uint8_t *bytes = xcalloc(file.n, 1);
    const char *path;

    put_le64(bytes, head.n);
    memcpy(bytes + 8, head.data, head.n);
    memcpy(bytes + 8 + head.n, data.data, smaller(n, data.n));
    file.data = bytes;
    path = fuzz_file("session", file);
    free(bytes);
    return path;
}

/* Puts the checksum that the message has in the place of the file's. */
static bool
mend(const char *path, struct bytes head, const struct err *err)
{
    static const char key[] = "\"xxh3\":\"";
    const char *hex = strstr(err->what, "(XXH3 ");
    const uint8_t *at = memmem(head.data, head.n, key, sizeof(key) - 1);
    size_t hex_n = hex ? strcspn(hex += 6, ")") : 0;
    FILE *f;

    if (!hex || !at ||
        (size_t)(head.data + head.n - at) < sizeof(key) - 1 + hex_n)
        return false;
    f = fopen(path, "r+b");
    MUST(f &&
         fseek(f, 8 + (at - head.data) + (long)sizeof(key) - 1, SEEK_SET) ==
             0 &&
         fwrite(hex, 1, hex_n, f) == hex_n && fclose(f) == 0);
    return true;
}

static void
check(struct session *s, const int32_t *ids)
{
    size_t vocab = (size_t)s->engine->model->config.vocab_size;
    float *logits = xcalloc(vocab, sizeof(*logits));
    const int32_t id = 0;
    struct session *fork, *again;
    int32_t *ids_again;
    struct stw *w;
    struct err err;

    MUST(s->n > 0 && s->n <= s->max_tokens &&
         session_may_fork(s, s->max_tokens));
    for (size_t i = 0; i < s->n; i++)
        MUST(ids[i] >= 0 && (size_t)ids[i] < vocab);
    w = session_file_begin(s, ids, s->n, fuzz_path("again"), OUT_FORCE, &err);
    MUST(w && session_file_end(w, s, ids, &err) == 0);
    MUST(session_file_read(&again, &ids_again, s->engine, fuzz_path("again"),
                           &err) == 0);
    MUST(again->n == s->n && !memcmp(ids, ids_again, s->n * sizeof(*ids)));
    fork = session_fork(again, s->n - 1, s->max_tokens);
    MUST(session_feed(fork, &id, 1, logits, 1, &err) == 0);
    session_close(again);
    session_close(fork);
    free(ids_again);
    free(logits);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct bytes rest = { data, n }, head = next_part(&rest);
    struct engine *e = engine();
    const char *path = file_of(head, rest);
    struct session *s = NULL;
    int32_t *ids = NULL;
    struct err err = { 0 };
    int rc = -1;

    for (int i = 0; i < 2 && rc < 0; i++) {
        rc = session_file_read(&s, &ids, e, path, &err);
        MUST(rc == 0 || (err.status == EX_DATAERR && *err.what && !s && !ids));
        if (rc < 0 && !mend(path, head, &err))
            break;
    }
    if (rc == 0)
        check(s, ids);
    session_close(s);
    free(ids);
    return 0;
}
