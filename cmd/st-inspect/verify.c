/* verify: is each file whole?  The bad ones are named. */
#include <stdlib.h>
#include <string.h>

#include "cmd/st-inspect/cmd.h"
#include "cmd/st-inspect/text.h"
#include "core/format/stdir.h"
#include "core/mem.h"
#include "core/tool.h"

/*
 * Files are opened by several threads: on a network file system the wait for
 * each header is what takes the time.
 */
struct job {
    const char *path;
    size_t n_tensors;
    struct err err; /* status 0: sound */
};

struct jobs {
    struct job *jobs;
};

static void
verify_some(void *ctx, size_t begin, size_t end, int thread)
{
    struct jobs *jobs = ctx;

    (void)thread;
    for (size_t i = begin; i < end; i++) {
        struct job *job = &jobs->jobs[i];
        struct stdir dir;

        if (stdir_open(&dir, job->path, &job->err) < 0)
            continue;
        job->n_tensors = dir.n_tensors;
        stdir_close(&dir);
    }
}

/* The line without the path that its own column already says. */
static const char *
problem(const struct job *job)
{
    size_t n = strlen(job->path);
    const char *s = job->err.what;

    return !strncmp(s, job->path, n) && !strncmp(s + n, ": ", 2) ? s + n + 2
                                                                 : s;
}

/*
 * A file that is not sound is the answer "no"; one that could not be read at
 * all is no answer, and its status wins over 0 but not over "no".
 */
static int
report(struct inspect_cmd *cmd, const struct job *job, size_t n_bad, int status,
       struct err *err)
{
    if (job->err.status == 0) {
        if (cmd->verbose)
            tool_say("%s: sound, %zu tensors", job->path, job->n_tensors);
        return status;
    }
    if (cmd->json)
        str_adds(&cmd->text, n_bad ? ",\n" : "\n");
    else if (n_bad == 0)
        str_adds(&cmd->text, "file\tproblem\n");
    if (cmd->json) {
        str_adds(&cmd->text, "{\"path\":");
        put_json_str(&cmd->text, job->path);
        put_json_text(&cmd->text, "problem", problem(job));
        put_json_u64(&cmd->text, "status", (uint64_t)job->err.status);
        str_addc(&cmd->text, '}');
    } else {
        put_esc(&cmd->text, job->path);
        str_addc(&cmd->text, '\t');
        put_esc(&cmd->text, problem(job));
        str_addc(&cmd->text, '\n');
    }
    if (text_end(cmd, err) < 0)
        return -1;
    if (job->err.status == EX_DATAERR || status == TU_NEGATIVE)
        return TU_NEGATIVE;
    return job->err.status;
}

int
verify_main(struct inspect_cmd *cmd, struct err *err)
{
    size_t n = (size_t)cmd->n_args, n_bad = 0;
    struct jobs jobs;
    int status = 0;

    if (n == 0)
        return err_set(err, TU_USAGE, "verify: a FILE or FOLDER is missing");
    if (par_open(&cmd->par, cmd->n_threads, err) < 0)
        return -1;
    jobs.jobs = xcalloc(n, sizeof(*jobs.jobs));
    for (size_t i = 0; i < n; i++)
        jobs.jobs[i].path = cmd->args[i];
    par_for(cmd->par, n, 1, verify_some, &jobs);
    if (cmd->json)
        str_addf(&cmd->text, "{\"checked\":%zu,\"bad\":[", n);
    for (size_t i = 0; i < n && status >= 0; i++) {
        status = report(cmd, &jobs.jobs[i], n_bad, status, err);
        n_bad += jobs.jobs[i].err.status != 0;
    }
    if (cmd->json)
        str_adds(&cmd->text, n_bad ? "\n]}\n" : "]}\n");
    free(jobs.jobs);
    return status;
}
