#include "cmd/st-inspect/cmd.h"

const char *
one_operand(const struct inspect_cmd *cmd, struct err *err)
{
    if (cmd->n_args == 1)
        return cmd->args[0];
    err_set(err, TU_USAGE, "%s takes one FILE or FOLDER (found %d)", cmd->verb,
            cmd->n_args);
    return NULL;
}

int
need_threads(struct inspect_cmd *cmd, struct err *err)
{
    if (cmd->par)
        return 0;
    return par_open(&cmd->par, cmd->n_threads ? cmd->n_threads : par_default(),
                    err);
}
