/* SPDX-License-Identifier: ISC */
/* verify: is each file whole?  The bad ones are named. */
#include <stdlib.h>
#include <string.h>

#include "cmd/st-inspect/cmd.h"
#include "cmd/st-inspect/packed.h"
#include "cmd/st-inspect/text.h"
#include "core/format/stdir.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/tool.h"
#include "core/tty.h"

/*
 * Files are opened by several threads: on a network file system the wait for
 * each header is what takes the time.
 */
struct verify_job {
    const char *path;
    size_t n_tensors;
    struct err err; /* status 0: sound */
};

static void
verify_some(void *ctx, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++) {
        struct verify_job *job = (struct verify_job *)ctx + i;
        struct quantization q = { 0 };
        struct packed_part part;
        struct stdir dir;
        int rc = 0;

        if (stdir_open(&dir, job->path, &job->err) < 0)
            continue;
        job->n_tensors = dir.n_tensors;
        /* one file has not all of a layer's tensors */
        if (file_is_dir(job->path, &job->err) > 0)
            packed_load(&q, &dir, false);
        for (size_t k = 0; rc >= 0 && q.n_groups && k < dir.n_tensors; k++)
            rc = packed_part(&part, &q, &dir, &dir.tensors[k], &job->err);
        quantization_free(&q);
        stdir_close(&dir);
    }
}

int
verify_main(struct inspect_cmd *cmd, struct err *err)
{
    size_t n = (size_t)cmd->n_args, n_bad = 0;
    struct str *to = &cmd->text;
    struct verify_job *jobs;
    int status = 0;

    if (n == 0)
        return err_set(err, TU_USAGE, "verify: a FILE or DIR is missing");
    if (par_open(&cmd->par, cmd->n_threads, err) < 0)
        return -1;
    jobs = xcalloc(n, sizeof(*jobs));
    for (size_t i = 0; i < n; i++)
        jobs[i].path = cmd->args[i];
    par_for(cmd->par, n, 1, verify_some, jobs);
    if (cmd->json)
        str_addf(to, "{\"checked\":%zu,\"bad\":[", n);
    for (size_t i = 0; i < n && status >= 0; i++) {
        const char *path = jobs[i].path, *problem = jobs[i].err.what;
        size_t path_n = strlen(path);

        if (jobs[i].err.status == 0) {
            if (cmd->verbose)
                tool_say("%s: sound, %zu tensor%s", path, jobs[i].n_tensors,
                         plural(jobs[i].n_tensors));
            continue;
        }
        /* the path has a column of its own */
        if (!strncmp(problem, path, path_n) &&
            !strncmp(problem + path_n, ": ", 2))
            problem += path_n + 2;
        str_adds(to, n_bad || cmd->json ? "" : "file\tproblem\n");
        record_begin(&cmd->row);
        record_string(&cmd->row, "path", path);
        record_string(&cmd->row, "problem", problem);
        if (cmd->json)
            record_u64(&cmd->row, "status", (uint64_t)jobs[i].err.status);
        n_bad++;
        /* A file that is not sound is the answer "no"; one that could not be
         * read at all is no answer: its status replaces 0, but not "no". */
        if (row_end(cmd, err) < 0)
            status = -1;
        else if (jobs[i].err.status == EX_DATAERR)
            status = TU_NEGATIVE;
        else if (status != TU_NEGATIVE)
            status = jobs[i].err.status;
    }
    if (cmd->json)
        str_adds(to, n_bad ? "\n]}\n" : "]}\n");
    free(jobs);
    return status;
}
