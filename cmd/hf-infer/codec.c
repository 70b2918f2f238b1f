/* SPDX-License-Identifier: ISC */
/* --encode, --decode and --render: the tokenizer, or the template, alone. */
#include "cmd/hf-infer/run.h"

#include "cmd/hf-infer/jsonl.h"
#include "cmd/hf-infer/messages.h"
#include "cmd/hf-infer/prompt.h"
#include "core/js.h"
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
    const char *name = prompt_name(run);
    struct str text = { 0 }, ids_text = { 0 };
    struct ids ids = { 0 };
    int rc = run_open_tok(run, err);

    if (rc == 0 && run->ids_text)
        rc = prompt_ids(run, &ids, err);
    else if (rc == 0 &&
             (rc = file_read_all(path, IDS_TEXT_MAX, &ids_text, err)) == 0)
        rc = ids_parse(ids_text.s, ids_text.n, name, &ids, err);
    if (rc == 0)
        rc = ids_check(ids.id, ids.n, (int64_t)tok_size(run->tok), name, err);
    if (rc == 0)
        rc = tok_decode(run->tok, ids.id, ids.n, run->skip_special, &text, err);
    if (rc == 0)
        rc = print_text(run, &text, err);
    ids_free(&ids);
    str_free(&ids_text);
    str_free(&text);
    return rc;
}

/* The text of each line, as a string of JSON. */
static int
render_lines(struct run *run, struct err *err)
{
    const char *path = run->prompt_file ? run->prompt_file : "-";
    struct jsonl in = { .fd = -1 };
    int rc = jsonl_open(&in, path, err);
    bool more = rc == 0;

    while (more && rc == 0) {
        struct rendered rendered = { 0 };
        struct jsonl_doc doc = { 0 };
        struct str line = { 0 };
        json_t *vars = NULL;

        rc = jsonl_next(&in, &doc, true, err);
        more = rc > 0;
        if (more) {
            vars = jsonl_vars(run, &doc, err);
            rc = vars ? messages_render(run, doc.where, vars, &rendered, err)
                      : -1;
        }
        if (more && rc == 0) {
            js_put_str(&line, rendered.text.n ? rendered.text.s : "",
                       rendered.text.n);
            str_addc(&line, '\n');
            rc = out_write(run->out, line.s, line.n, err);
        }
        if (more && rc == 0)
            rc = out_flush(run->out, err);
        json_decref(vars);
        str_free(&line);
        rendered_free(&rendered);
        jsonl_doc_free(&doc);
    }
    jsonl_close(&in);
    return rc;
}

int
run_render(struct run *run, struct err *err)
{
    struct rendered rendered = { 0 };
    json_t *vars;
    int rc;

    if (run->jsonl)
        return render_lines(run, err);
    vars = prompt_vars(run, err);
    rc = vars ? messages_render(run, NULL, vars, &rendered, err) : -1;
    if (rc == 0)
        rc = print_text(run, &rendered.text, err);
    rendered_free(&rendered);
    json_decref(vars);
    return rc;
}
