/* --encode and --decode: the tokenizer alone. */
#include "cmd/hf-infer/run.h"

#include "core/map.h"

#define IDS_TEXT_MAX ((size_t)1 << 32) /* bytes */

int
run_encode(struct run *run, struct err *err)
{
    struct ids ids = { 0 };
    struct str line = { 0 };
    int rc = prompt_ids(run, &ids, err);

    if (rc == 0) {
        if (run->json)
            put_json_ids(&line, ids.id, ids.n);
        else
            put_ids(&line, ids.id, ids.n);
        str_addc(&line, '\n');
        rc = out_write(run->out, line.s, line.n, err);
    }
    ids_free(&ids);
    str_free(&line);
    return rc;
}

int
run_decode(struct run *run, struct err *err)
{
    const char *path = run->prompt_file ? run->prompt_file : "-";
    struct str text = { 0 }, ids_text = { 0 };
    struct ids ids = { 0 };
    int rc = run_open_tok(run, err);

    if (rc == 0 && run->ids_text)
        rc = prompt_ids(run, &ids, err);
    else if (rc == 0 &&
             (rc = file_read_all(path, IDS_TEXT_MAX, &ids_text, err)) == 0)
        rc = ids_parse(ids_text.s, ids_text.n, prompt_name(run), &ids, err);
    if (rc == 0)
        rc = ids_check(ids.id, ids.n, (int64_t)tok_size(run->tok),
                       prompt_name(run), err);
    if (rc == 0) {
        tok_decode(run->tok, ids.id, ids.n, run->skip_special, &text);
        if (text.n)
            rc = out_write(run->out, text.s, text.n, err);
    }
    ids_free(&ids);
    str_free(&ids_text);
    str_free(&text);
    return rc;
}
