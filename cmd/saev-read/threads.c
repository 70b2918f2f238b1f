/* The threads that the verbs share, opened when one needs them. */
#include "cmd/saev-read/read.h"
#include "core/par.h"

int
need_threads(struct cmd *cmd, struct err *err)
{
    int n = cmd->n_threads ? cmd->n_threads : par_default();

    return cmd->par ? 0 : par_open(&cmd->par, n, err);
}
