#include "cmd/hf-infer/outputs.h"

#include <stdlib.h>
#include <string.h>

#include "core/format/stdir.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/model/tables.h"

static const char *
answer_path(const struct run *run)
{
    return run->logits_path ? run->logits_path
           : run->output    ? run->output
                            : "-";
}

/* An input is not to be replaced by what is made of it; 'option' is what names
 * it. */
static int
check_input(const struct run *run, const char *option, const char *path,
            const char *name, struct err *err)
{
    if (!stdir_holds(path, answer_path(run)) &&
        !stdir_holds(path, run->acts_meta) &&
        !stdir_holds(path, run->lut_report))
        return 0;
    return err_set(err, TU_USAGE,
                   "%s%s is, or has in it, the name of an output", option,
                   name);
}

/* DIR, FILE or FILE@LAYER. */
static int
check_adapter(const struct run *run, const char *path, struct err *err)
{
    const char *layer;
    char *file = file_split(path, '@', &layer);
    int rc = check_input(run, "--lora ", file ? file : path, path, err);

    free(file);
    return rc;
}

static int
check_adapters(const struct run *run, const char *list, struct err *err)
{
    char *copy = xstrdup(list), *next = copy, *path;
    int rc = 0;

    while (rc == 0 && (path = strsep(&next, ",")))
        rc = check_adapter(run, path, err);
    free(copy);
    return rc;
}

int
outputs_check(const struct run *run, struct err *err)
{
    if (check_input(run, "", run->dir, run->dir, err) < 0 ||
        check_input(run, "--file ", run->prompt_file, run->prompt_file, err) <
            0 ||
        check_input(run, "--kvc ", run->kvc, run->kvc, err) < 0 ||
        check_input(run, "--lut ", run->lut, run->lut, err) < 0)
        return -1;
    for (size_t i = 0; i < run->lora.n; i++)
        if (check_adapters(run, run->lora.item[i], err) < 0)
            return -1;
    if (file_same(run->acts_meta, answer_path(run)))
        return err_set(err, TU_USAGE, "-o and --acts-meta name the same file");
    if (file_same(run->lut_report, answer_path(run)) ||
        file_same(run->lut_report, run->acts_meta))
        return err_set(
            err, TU_USAGE,
            "--lut-report needs a file that the answer does not go to");
    return 0;
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
