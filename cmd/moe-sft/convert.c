/* convert: our file of an adapter to PEFT's folder, and back. */
#include <string.h>

#include "cmd/moe-sft/sft.h"
#include "core/map.h"

#define SUFFIX ".safetensors"

static int
to_ours(const struct cmd *cmd, const struct base *base, struct err *err)
{
    struct adapter a;
    int rc;

    if (adapter_open_peft(&a, cmd->lora, cmd->layer, base, true, err) < 0)
        return -1;
    rc = adapter_write(&a, cmd->output, cmd->out_flags, err);
    adapter_close(&a);
    return rc;
}

static int
to_peft(const struct cmd *cmd, const struct base *base, struct err *err)
{
    struct adapter a;
    int rc;

    if (adapter_open_exact(&a, cmd->lora, base, err) < 0)
        return -1;
    a.layer = cmd->layer >= 0 ? cmd->layer : a.layer;
    if (a.layer < 0)
        rc = err_set(err, TU_USAGE,
                     "%s: does not say of which layer it is: --layer N does",
                     cmd->lora);
    else
        rc = adapter_write_peft(&a, cmd->output, cmd->out_flags, err);
    adapter_close(&a);
    return rc;
}

int
convert_main(const struct cmd *cmd, struct err *err)
{
    struct base base = { 0 };
    size_t n = strlen(cmd->output), k = strlen(SUFFIX);
    int folder = file_is_folder(cmd->lora, err), rc;

    if (folder < 0)
        return -1;
    if (!folder && n > k && !strcmp(cmd->output + n - k, SUFFIX))
        return err_set(err, TU_USAGE,
                       "-o %s: %s becomes a PEFT folder, which has another "
                       "kind of name",
                       cmd->output, cmd->lora);
    if (can_write(cmd, cmd->output, err) < 0)
        return -1;
    if (cmd->base && base_open(&base, cmd->base, cmd->layer, err) < 0)
        return -1;
    rc = (folder ? to_ours : to_peft)(cmd, cmd->base ? &base : NULL, err);
    base_close(&base);
    return rc;
}
