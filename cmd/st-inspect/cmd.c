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
