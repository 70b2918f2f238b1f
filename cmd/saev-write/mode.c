/* SPDX-License-Identifier: ISC */
/* What each mode does and prints. */
#include <errno.h>
#include <stdio.h>

#include "cmd/saev-write/run.h"
#include "core/clock.h"
#include "core/tool.h"

int
print_plan(struct write_run *run, const struct write_cmd *cmd, bool images,
           struct err *err)
{
    size_t first, n;

    if (run_load(run, cmd, err) < 0)
        return -1;
    if (images) {
        if (run_images(run, &first, &n, err) < 0)
            return -1;
        if (n == SIZE_MAX)
            printf("%zu\t-\n", first);
        else
            printf("%zu\t%zu\n", first, n);
        return 0;
    }
    if (run->counts)
        return err_set(err, EX_DATAERR,
                       "%s: the key n_imgs is missing (HASH is known when the "
                       "images are counted)",
                       run->saev.name);
    if (cmd->parent)
        printf("%s\t%s\n", run->hash, run->path.s);
    else
        printf("%s\n", run->hash);
    return 0;
}

int
write_dump(struct write_run *run, const struct write_cmd *cmd, bool finishes,
           struct err *err)
{
    double started = clock_s(), seconds;
    char size[16], rate[16];
    int more = 1, rc = 0;

    /* The stream first: a pipe's other end writes META before it. */
    if (!finishes) {
        if (input_open(&run->in, cmd->input_path, cmd->dtype, err) < 0)
            return -1;
        more = input_more(&run->in, err);
        if (more < 0)
            return -1;
    }
    if (run_load(run, cmd, err) < 0)
        return more == 0 && err->error == ENOENT
                   ? err_set(err, EX_NOINPUT,
                             "%s: is not there, and %s is empty: did the "
                             "program that writes them fail?",
                             cmd->meta_path, run->in.name)
                   : -1;
    if (!run->counts)
        rc = run_exists(run, err);
    if (rc == 0 &&
        (rc = finishes ? finish(run, err) : run_stream(run, err)) != 0)
        rc = run_second(run, rc, err);
    if (rc < 0)
        return -1;
    if (!cmd->sharded)
        printf("%s\n", run->path.s);
    if (!cmd->verbose && !run->tells)
        return 0;
    seconds = clock_s() - started;
    tool_say(
        "%s: %zu shard%s written, %zu kept, %zu image%s in all; %s in %.1f "
        "s, %s/s, on %s",
        run->hash, run->n_made, plural(run->n_made), run->n_kept,
        run->saev.n_imgs, plural(run->saev.n_imgs),
        size_iec(size, run->in.n_taken), seconds,
        size_iec(rate, (uint64_t)((double)run->in.n_taken / (seconds + 1e-9))),
        tool_host());
    return 0;
}
