/* Converting: which way, with what, and is it done already? */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/kvc-convert/cmd.h"
#include "cmd/kvc-convert/order.h"
#include "cmd/kvc-convert/pickle_global.h"
#include "cmd/kvc-convert/source.h"
#include "core/map.h"
#include "core/mem.h"

/* MODULE.NAME; what could run code stays refused. */
static int
check_allowed(const char *arg, struct err *err)
{
    const char *dot = strrchr(arg, '.');
    char *module = xstrndup(arg, dot ? (size_t)(dot - arg) : 0);
    bool dangerous = dot && pickle_dangerous(module, dot + 1);

    free(module);
    if (!dot || dot == arg || !dot[1])
        return err_set(err, TU_USAGE, "--allow: \"%s\" is not MODULE.NAME",
                       arg);
    if (dangerous)
        return err_set(err, TU_USAGE,
                       "--allow: %s could run code: no checkpoint needs it",
                       arg);
    return 0;
}

static int
check_options(const struct convert_cmd *cmd, struct err *err)
{
    struct order order = { 0 };
    int rc = 0;

    if (cmd->n_args)
        return err_set(err, TU_USAGE,
                       "\"%s\": files are named by --input and --output",
                       cmd->args[0]);
    if (file_same(cmd->input, cmd->output))
        return err_set(err, TU_USAGE, "--input and --output are both %s",
                       cmd->output);
    for (size_t i = 0; i < cmd->allowed.n; i++)
        if (check_allowed(cmd->allowed.item[i], err) < 0)
            return -1;
    if (cmd->prefix_order)
        rc = order_prefixes(&order, cmd->prefix_order, err);
    if (rc == 0 && cmd->slot_order)
        rc = order_slots(&order, cmd->slot_order, err);
    order_free(&order);
    return rc;
}

/* Is there an option that shapes a .bin that is made? */
static bool
shapes_bin(const struct convert_cmd *cmd)
{
    return cmd->dtype >= 0 || cmd->factor >= 0 || cmd->min_seq_len >= 0 ||
           cmd->num_heads >= 0 || cmd->head_dim >= 0 || cmd->strict ||
           cmd->allowed.n || cmd->allow_views || cmd->provenance;
}

/* --if-missing: 1 if the output is there and sound. */
static int
is_there(const struct convert_cmd *cmd, enum form form, struct err *err)
{
    struct stdir dir;
    struct kvc k;

    if (!cmd->if_missing || access(cmd->output, F_OK) < 0)
        return 0;
    if (form == FORM_BIN) {
        if (stdir_open(&dir, cmd->output, err) < 0)
            return -1;
        stdir_close(&dir);
        return 1;
    }
    if (kvc_open(&k, cmd->output, err) < 0)
        return -1;
    kvc_close(&k);
    return 1;
}

int
convert_main(const struct convert_cmd *cmd, struct err *err)
{
    enum form form = cmd->from;
    size_t n = strlen(cmd->output);
    int there;

    if (check_options(cmd, err) < 0)
        return -1;
    if (form == FORM_AUTO && form_of(cmd->input, &form, err) < 0)
        return -1;
    if ((form == FORM_PTH || form == FORM_SAFETENSORS) && n > 12 &&
        !strcmp(cmd->output + n - 12, ".safetensors"))
        return err_set(err, TU_USAGE,
                       "--output: %s becomes a .bin; that becomes safetensors",
                       cmd->input);
    if (form == FORM_BIN && shapes_bin(cmd))
        return err_set(err, TU_USAGE,
                       "--input: %s is a .bin already: of what shapes one, "
                       "only --prefix-order and --slot-order go with it",
                       cmd->input);
    there = is_there(cmd, form, err);
    if (there)
        return there < 0 ? -1 : 0;
    return form == FORM_BIN ? back(cmd, err) : convert(cmd, err);
}
