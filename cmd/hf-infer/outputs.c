#include "cmd/hf-infer/outputs.h"

#include "core/model/tables.h"

static const char *
answer_path(const struct run *run)
{
    return run->logits_path ? run->logits_path
           : run->output    ? run->output
                            : "-";
}

int
outputs_open(struct run *run, struct err *err)
{
    bool binary = run->mode == MODE_LOGITS || run->mode == MODE_ACTS;

    if (out_open(&run->out, answer_path(run), run->out_flags, binary, err) < 0)
        return -1;
    return run->lut_report ? out_open(&run->lut_out, run->lut_report,
                                      run->out_flags, false, err)
                           : 0;
}

static int
write_report(struct run *run, struct err *err)
{
    struct out *out = run->lut_out;
    struct str tsv = { 0 };
    int rc;

    tables_report(run->tables, &tsv);
    rc = out_write(out, tsv.s, tsv.n, err);
    str_free(&tsv);
    if (rc < 0)
        return -1;
    run->lut_out = NULL;
    return out_commit(out, err);
}

int
outputs_close(struct run *run, int rc, struct err *err)
{
    if (rc == 0 && run->lut_out)
        rc = write_report(run, err);
    if (rc == 0 && run->out) /* a mode may have done it */
        rc = out_commit(run->out, err);
    else
        out_abort(run->out);
    out_abort(run->lut_out);
    return rc;
}
