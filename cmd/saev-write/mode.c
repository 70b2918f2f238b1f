/* The modes: a stream, the end of one that was written in parts, or what is
 * known before. */
#include <stdio.h>

#include "cmd/saev-write/input.h"
#include "cmd/saev-write/mode.h"
#include "cmd/saev-write/publish.h"
#include "cmd/saev-write/run.h"
#include "core/clock.h"
#include "core/tool.h"

static int
print_hash(struct write_run *run, struct err *err)
{
    if (!run->saev.n_imgs_known)
        return err_set(err, EX_DATAERR,
                       "%s: the key n_imgs is missing (HASH is known when the "
                       "images are counted)",
                       run->saev.name);
    if (run->cmd->parent)
        printf("%s\t%s\n", run->hash, run->path.s);
    else
        printf("%s\n", run->hash);
    return 0;
}

static int
print_images(struct write_run *run, struct err *err)
{
    size_t first, n;

    if (run_images(run, &first, &n, err) < 0)
        return -1;
    if (n == SIZE_MAX)
        printf("%zu\t-\n", first);
    else
        printf("%zu\t%zu\n", first, n);
    return 0;
}

/* The stream comes first: a pipe's other end writes META before it. */
static int
write_stream(struct write_run *run, const struct write_cmd *cmd,
             struct err *err)
{
    int there = 0;

    if (input_open(&run->in, cmd, err) < 0 || input_more(&run->in, err) < 0 ||
        run_load(run, cmd, err) < 0 || run_part(run, err) < 0)
        return -1;
    if (run->saev.n_imgs_known)
        there = run_exists(run, err);
    if (there < 0)
        return -1;
    return there ? 0 : run_stream(run, err);
}

static int
write_finish(struct write_run *run, const struct write_cmd *cmd,
             struct err *err)
{
    int there;

    if (run_load(run, cmd, err) < 0 || run_part(run, err) < 0)
        return -1;
    there = run->saev.n_imgs_known ? run_exists(run, err) : 0;
    return there ? there < 0 ? -1 : 0 : finish(run, err);
}

int
run_mode(struct write_run *run, const struct write_cmd *cmd,
         enum write_mode mode, struct err *err)
{
    double started = clock_s();
    int rc;

    if (mode == HASH || mode == IMAGES) {
        if (run_load(run, cmd, err) < 0)
            return -1;
        return mode == HASH ? print_hash(run, err) : print_images(run, err);
    }
    rc = mode == FINISH ? write_finish(run, cmd, err)
                        : write_stream(run, cmd, err);
    if (rc < 0)
        return -1;
    if (!cmd->sharded)
        printf("%s\n", run->path.s);
    if (cmd->verbose) {
        /* -v: "HASH: 2 shards written, 5 kept, ...". */
        double seconds = clock_s() - started;
        char size[16], rate[16];
        uint64_t n = run->in.n_taken;

        tool_say(
            "%s: %zu shards written, %zu kept, %zu images in all; %s in %.1f "
            "s, %s/s, on %s",
            run->hash, run->n_made, run->n_kept, run->saev.n_imgs,
            size_iec(size, n), seconds,
            size_iec(rate, (uint64_t)((double)n / (seconds + 1e-9))),
            tool_host());
    }
    return 0;
}
