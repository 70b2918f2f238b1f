/* SPDX-License-Identifier: ISC */
#include "cmd/st-convert/plan.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/st-convert/activations.h"
#include "cmd/st-convert/experts.h"
#include "core/js.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/model/config_file.h"
#include "core/model/names.h"
#include "core/model/parts.h"
#include "core/near.h"
#include "core/outdir.h"
#include "core/tool.h"
#include "core/tty.h"

#define WEIGHT ".weight"
#define HEAD   "lm_head"

/* ---- names ---- */

/* EX_NOINPUT for a text of an option that no tensor's name has. */
static int
check_used(const struct convert_plan *p, const struct name_list *list,
           struct err *err)
{
    struct near near;
    size_t i = 0;
    char *name;

    while (i < list->of->n && list->used[i])
        i++;
    if (i == list->of->n)
        return 0;
    name = xstrndup(list->of->item[i], strcspn(list->of->item[i], "="));
    near_start(&near, name);
    for (size_t k = 0; k < p->dir.n_tensors; k++)
        near_try(&near, p->dir.tensors[k].t->name, p->dir.tensors[k].t->name_n);
    err_set(err, EX_NOINPUT, "%s: --%s: no tensor matches \"%s\"%s",
            p->dir.path, list->option, name, near_hint(&near));
    free(name);
    return -1;
}

static char *
new_name(struct convert_plan *p, const char *name)
{
    const struct name_list *list = &p->renamed;
    char *now = xstrdup(name);

    for (size_t i = 0; i < list->of->n; i++) {
        const char *equals = strchr(list->of->item[i], '='), *s = now;
        bool at_start = *list->of->item[i] == '^';
        const char *from = list->of->item[i] + at_start;
        size_t n = (size_t)(equals - from);
        struct str to = { 0 };

        str_adds(&to, "");
        while (*s)
            if (strncmp(s, from, n) == 0 && (!at_start || s == now)) {
                str_adds(&to, equals + 1);
                s += n;
                list->used[i] = true;
            } else {
                str_addc(&to, *s++);
            }
        free(now);
        now = to.s;
    }
    return now;
}

bool
plan_matches(const struct name_list *list, const char *name, bool layer)
{
    bool yes = false;

    for (size_t i = 0; i < list->of->n; i++)
        if (layer ? names_match(list->of->item[i], name)
                  : fnmatch(list->of->item[i], name, 0) == 0)
            yes = list->used[i] = true;
    return yes;
}

/* ---- which weights are packed ---- */

/* A layer's role by its name alone, where no family's table has it: of those
 * that are no linear layers. */
static enum model_part
guess_part(const char *module)
{
    static const char *const globs[] = {
        "*embed*",  "*wte",      "*wpe",
        "*lm_head", "*mlp.gate", "*block_sparse_moe.gate",
        "*norm*",   "*router*",  "*shared_expert_gate",
    };

    for (int i = 0; i < 9; i++)
        if (fnmatch(globs[i], module, 0) == 0)
            return i < 3 ? PART_EMBED : i == 3 ? PART_HEAD : PART_ROUTER;
    return PART_QKV;
}

/* The role of a tensor NAME.weight. */
static enum model_part
part_of(const struct convert_plan *p, const char *module, bool *known)
{
    struct part_at at = { .part = N_PARTS };

    *known = p->family && part_find(&at, p->family, module);
    return p->family ? at.part : guess_part(module);
}

/* With --head: does the model have an embedding, but no head? */
static const struct stdir_tensor *
find_tied(const struct convert_plan *p)
{
    const struct stdir_tensor *embed = NULL;

    for (size_t i = 0; p->cmd->head && i < p->dir.n_tensors; i++) {
        const struct stdir_tensor *t = &p->dir.tensors[i];
        const char *end = str_ends(t->t->name, WEIGHT);
        char *module =
            xstrndup(t->t->name, end ? (size_t)(end - t->t->name) : 0);
        bool known;
        enum model_part part = part_of(p, module, &known);

        free(module);
        if (end && part == PART_HEAD)
            return NULL;
        if (end && part == PART_EMBED && t->t->n_dims == 2)
            embed = t;
    }
    return embed;
}

/* Appends a layer that quantization_config has to name as not packed. */
static void
add_ignored(struct convert_plan *p, const char *module)
{
    str_adds(&p->ignore, p->ignore.n ? ", " : "");
    js_put_str(&p->ignore, module, strlen(module));
}

/* Is the tensor, with its new name, a matrix that is packed?  Others of a layer
 * are ignored. */
static bool
is_packed(struct convert_plan *p, const struct st_tensor *t, const char *name)
{
    const char *end = str_ends(t->name, WEIGHT);
    enum model_part part;
    char *module;
    bool known, packed, embeds;

    if (p->cmd->weights < 0 || !end || t->n_dims != 2)
        return false;
    module = xstrndup(t->name, (size_t)(end - t->name));
    part = part_of(p, module, &known);
    packed = (known || !p->family) && dtype_computes(t->dtype) &&
             t->n_elements > 0 &&
             (part == PART_HEAD ? p->cmd->head
                                : part >= PART_QKV && part != PART_ROUTER &&
                                      part != PART_SHARED_ROUTER);
    packed = !plan_matches(&p->ignored, module, true) && packed;
    embeds = part == PART_EMBED || part == PART_POSITIONS ||
             (!known && guess_part(module) == PART_EMBED);
    free(module);
    if (!packed && !embeds) {
        end = str_ends(name, WEIGHT);
        module = xstrndup(name, end ? (size_t)(end - name) : strlen(name));
        add_ignored(p, module);
        if (p->cmd->verbose)
            tool_say("%s: %s is not packed", p->dir.path, module);
        free(module);
    }
    return packed;
}

/* ---- tensors ---- */

static int
set_nbytes(struct convert_piece *q, struct err *err)
{
    if (size_mul(q->dims[0], q->dims[1], &q->nbytes) &&
        (q->n_dims < 3 || size_mul(q->nbytes, q->dims[2], &q->nbytes)) &&
        dtype_nbytes(q->dtype, q->nbytes, &q->nbytes))
        return 0;
    return err_set(err, EX_DATAERR, "%s: is too large", q->name);
}

/* Adds the tensor NAME.SUFFIX; 'n' bytes of 'name' are NAME. */
static int
add_piece(struct convert_item *it, const char *name, size_t n,
          const char *suffix, enum dtype dtype, uint64_t rows, uint64_t cols,
          struct err *err)
{
    struct convert_piece *q = &it->piece[it->n_pieces++];
    struct str s = { 0 };

    str_addf(&s, "%.*s.%s", (int)n, name, suffix);
    *q = (struct convert_piece){
        .name = s.s, .dtype = dtype, .n_dims = 2, .dims = { rows, cols }
    };
    return set_nbytes(q, err);
}

static int
plan_packed(struct convert_plan *p, struct convert_item *it, const char *name,
            struct err *err)
{
    const struct st_tensor *t = it->from->t;
    const char *end = str_ends(name, WEIGHT);
    uint64_t out = t->shape[0], in = t->shape[1];
    size_t groups = p->group ? in / p->group : 1;
    bool f8 = p->cmd->weights == ENCODE_F8;
    size_t word = p->cmd->weights == ENCODE_I4 ? 8 : 4;
    enum dtype scale =
        p->cmd->dtype >= 0 ? (enum dtype)p->cmd->dtype : t->dtype;
    size_t n;
    int rc;

    if (!end)
        return err_set(err, TU_USAGE,
                       "--rename: %s has to end in " WEIGHT ", as it is packed",
                       t->name);
    if (p->family && p->family->form.in_out)
        return err_set(err, EX_DATAERR,
                       "%s: model_type \"%s\" has weights as [in, out], which "
                       "compressed-tensors does not pack",
                       p->dir.path, p->family->model_type);
    if (p->group && in % p->group)
        return err_set(
            err, EX_DATAERR,
            "%s: %s has %zu columns, not a multiple of %zu (--group, "
            "or --ignore %.*s)",
            it->from->st->path, t->name, in, p->group, (int)(end - name), name);
    if (p->cmd->activations && activations_find(&p->inputs, p, t))
        p->n_weighed++;
    else if (p->cmd->activations && p->cmd->verbose)
        tool_say("%s: is not there: the layer's errors are not weighed",
                 p->inputs.s);
    it->change = PACKED;
    p->n_packed++;
    n = (size_t)(end - name);
    rc = f8 ? add_piece(it, name, n, "weight", DT_F8_E4M3, out, in, err)
            : add_piece(it, name, n, "weight_packed", DT_I32, out,
                        in / word + (in % word > 0), err);
    if (rc == 0)
        rc = add_piece(it, name, n, "weight_scale", scale, out, groups, err);
    if (rc == 0 && !f8) {
        rc = add_piece(it, name, n, "weight_shape", DT_I64, 2, 1, err);
        it->piece[PIECE_SHAPE].n_dims = 1;
    }
    if (rc == 0 && p->cmd->asymmetric)
        rc = add_piece(it, name, n, "weight_zero_point", DT_I32,
                       out / 8 + (out % 8 > 0), groups, err);
    return rc;
}

/* Codes become the numbers they stand for; what else a packed layer has goes.
 * 1: the tensor is of one; else as form_of(). */
static int
plan_unpacked(struct convert_plan *p, struct convert_item *it, struct err *err)
{
    const struct family_stack *stack =
        p->family ? family_stack(p->family) : NULL;
    const struct form_tensors *t = &it->packed;
    const char *name = it->from->t->name;
    enum dtype dtype = (enum dtype)p->cmd->dtype;
    const struct stdir_tensor *scale;
    enum form_role role;
    struct str module = { 0 };
    char *to;
    size_t n;
    int rc = form_of(&it->packed, &role, &n, &p->quantization, &p->dir,
                     it->from, err);

    if (rc <= 0 || role != FORM_CODES)
        return rc;
    /* MXFP4's stacks are gpt-oss's, unless config.json says whose */
    it->transposed =
        t->stacked &&
        (stack ? stack->in_out : t->group->form->layout == LAYOUT_MXFP4);
    if (it->transposed && t->group->form->layout != LAYOUT_MXFP4)
        return form_refuse_in_out(p->dir.path, name, p->family, err);
    scale = t->tensor[FORM_SCALE];
    if (p->cmd->dtype < 0)
        dtype = scale && scale->t->dtype == DT_F16 ? DT_F16 : DT_BF16;
    str_addf(&module, "%.*s%s", (int)n, name, t->stacked ? "" : WEIGHT);
    to = new_name(p, module.s);
    str_free(&module);
    it->change = UNPACKED;
    it->n_pieces = 1;
    it->piece[0] = (struct convert_piece){
        .name = to, .dtype = dtype, .n_dims = 2, .dims = { t->out, t->in }
    };
    if (t->stacked) {
        it->piece[0].n_dims = 3;
        it->piece[0].dims[0] = t->n;
        it->piece[0].dims[1] = it->transposed ? t->in : t->out;
        it->piece[0].dims[2] = it->transposed ? t->out : t->in;
    }
    return set_nbytes(it->piece, err) < 0 ? -1 : 1;
}

static int
plan_item(struct convert_plan *p, struct convert_item *it, struct err *err)
{
    const struct st_tensor *t = it->from->t;
    const char *path = it->from->st->path;
    int dtype = p->cmd->dtype, rc = 0;
    char *name;

    if (strlen(t->name) != t->name_n)
        return err_set(err, EX_DATAERR,
                       "%s: \"%s\" ends at a NUL, as a name here may not", path,
                       t->name);
    if (p->cmd->dequantize)
        rc = plan_unpacked(p, it, err);
    if (rc)
        return rc < 0 ? -1 : 0;
    if (p->cmd->dequantize && dtype_table[t->dtype].kind == DK_FLOAT &&
        dtype_table[t->dtype].bits <= 8)
        return err_set(err, EX_DATAERR,
                       "%s: %s is %s, which is not unpacked in this shape",
                       path, t->name, dtype_table[t->dtype].name);
    name = new_name(p, it->head ? HEAD WEIGHT : t->name);
    if (it->head || is_packed(p, t, name)) {
        rc = plan_packed(p, it, name, err);
        free(name);
        return rc;
    }
    it->n_pieces = 1;
    it->piece[0] = (struct convert_piece){ .name = name,
                                           .dtype = t->dtype,
                                           .n_dims = t->n_dims,
                                           .shape = t->shape,
                                           .nbytes = t->nbytes };
    if (dtype >= 0 && dtype != (int)t->dtype &&
        (dtype_computes(t->dtype) || t->dtype == DT_F64)) {
        it->change = ROUNDED;
        it->piece[0].dtype = (enum dtype)dtype;
        if (!dtype_nbytes(it->piece[0].dtype, t->n_elements,
                          &it->piece[0].nbytes))
            rc = err_set(err, EX_DATAERR, "%s: is too large", t->name);
    }
    return rc;
}

static int
by_place(const void *a, const void *b)
{
    const struct stdir_tensor *s = ((const struct convert_item *)a)->from;
    const struct stdir_tensor *t = ((const struct convert_item *)b)->from;

    if (s->st != t->st)
        return s->st < t->st ? -1 : 1;
    if (s->t->begin != t->t->begin)
        return s->t->begin < t->t->begin ? -1 : 1;
    if (s->t != t->t)
        return s->t < t->t ? -1 : 1;
    return ((const struct convert_item *)a)->head ? 1 : -1;
}

/* Forms are of matrices: other stacks of experts stay as they are. */
static void
warn_stacks(const struct convert_plan *p)
{
    const char *first = NULL;
    char size[16];
    size_t n = 0, nbytes = 0;

    for (size_t i = 0; i < p->n_items; i++) {
        const struct st_tensor *t = p->items[i].from->t;

        if (t->n_dims != 3 || !strstr(t->name, ".experts."))
            continue;
        first = n++ ? first : t->name;
        nbytes += t->nbytes;
    }
    size_iec(size, nbytes);
    if (n)
        err_warn("%s: %zu stack%s of experts, %s, %s not packed (the first is "
                 "%s)",
                 p->dir.path, n, plural(n), size, n == 1 ? "is" : "are", first);
}

static int
plan_items(struct convert_plan *p, struct err *err)
{
    const struct st_convert_cmd *cmd = p->cmd;
    const struct stdir_tensor *tied = find_tied(p);
    struct part_at at;
    size_t n = 0, n_parts;

    for (size_t i = 0; i < p->dir.n_tensors; i++) {
        const struct st_tensor *t = p->dir.tensors[i].t;

        n_parts = experts_find(p, t, &at);
        n += n_parts ? t->shape[0] * n_parts : 0;
    }
    p->experts = mem_try(n + 1, sizeof(*p->experts), p->dir.path, err);
    p->items =
        mem_try(p->dir.n_tensors + n + 1, sizeof(*p->items), p->dir.path, err);
    if (!p->items || !p->experts)
        return -1;
    n = 0;
    for (size_t i = 0; i < p->dir.n_tensors; i++) {
        struct convert_item item = { .from = &p->dir.tensors[i] };

        if (cmd->selected.n &&
            !plan_matches(&p->selected, item.from->t->name, false))
            continue;
        n_parts = experts_find(p, item.from->t, &at);
        if (n_parts) {
            experts_add(p, item.from, at, n_parts);
            continue;
        }
        p->items[p->n_items++] = item;
        item.head = true;
        if (tied == item.from)
            p->items[p->n_items++] = item;
    }
    qsort(p->items, p->n_items, sizeof(*p->items), by_place);
    for (size_t i = 0; i < p->n_items; i++)
        if (plan_item(p, &p->items[i], err) < 0)
            return -1;
    for (size_t i = 0; i < p->n_items; i++) /* scales, shapes: none is left */
        if (p->items[i].n_pieces)
            p->items[n++] = p->items[i];
    p->n_items = n;
    for (size_t i = 0; i < n; i++)
        if (!*p->items[i].piece[0].name)
            return err_set(err, TU_USAGE, "--rename: nothing is left of %s",
                           p->items[i].from->t->name);
    if (check_used(p, &p->selected, err) < 0 ||
        check_used(p, &p->ignored, err) < 0 ||
        check_used(p, &p->renamed, err) < 0)
        return -1;
    if (cmd->weights >= 0 && p->n_packed == 0)
        return err_data(err, p->dir.path,
                        "has no weights of linear layers to pack");
    if (cmd->weights >= 0)
        warn_stacks(p);
    if (cmd->activations && p->n_weighed == 0)
        return err_set(err, EX_NOINPUT, "%s: has no inputs of a layer (%s)",
                       cmd->activations, p->inputs.s);
    return 0;
}

static void
plan_shards(struct convert_plan *p)
{
    const struct st_convert_cmd *cmd = p->cmd;
    size_t most = cmd->merge || !p->to_dir ? SIZE_MAX : cmd->shard_nbytes;
    const struct st *file = NULL;
    size_t filled = 0;

    for (size_t i = 0; i < p->n_items; i++) {
        struct convert_item *it = &p->items[i];
        size_t nbytes = 0;

        for (size_t k = 0; k < it->n_pieces; k++)
            nbytes += it->piece[k].nbytes;
        if (p->n_shards == 0 ||
            (most ? filled > 0 && (nbytes > most || filled > most - nbytes)
                  : it->from->st != file)) {
            p->n_shards++;
            filled = 0;
        }
        file = it->from->st;
        filled += nbytes;
        it->shard = p->n_shards - 1;
    }
    p->n_shards += !p->n_shards; /* a model without tensors is a model, too */
}

/* ---- config.json ---- */

/* Keys that have their defaults are left out. */
static void
put_scheme(const struct convert_plan *p, struct str *to)
{
    const struct st_convert_cmd *cmd = p->cmd;
    bool f8 = cmd->weights == ENCODE_F8;

    str_addf(to,
             "{\n    \"config_groups\": {\n      \"group_0\": {\n"
             "        \"targets\": [\"Linear\"],\n"
             "        \"weights\": {\n"
             "          \"num_bits\": %d,\n"
             "          \"type\": \"%s\",\n"
             "          \"symmetric\": %s,\n",
             cmd->weights == ENCODE_I4 ? 4 : 8, f8 ? "float" : "int",
             cmd->asymmetric ? "false" : "true");
    if (p->group)
        str_addf(to, "          \"group_size\": %zu,\n", p->group);
    str_addf(to,
             "          \"strategy\": \"%s\"\n        }\n      }\n    },\n"
             "    \"format\": \"%s\",\n"
             "    \"ignore\": [%s],\n"
             "    \"quant_method\": \"compressed-tensors\",\n"
             "    \"quantization_status\": \"compressed\"\n  }",
             p->group ? "group" : "channel",
             f8 ? "float-quantized" : "pack-quantized",
             p->ignore.s ? p->ignore.s : "");
}

static int
plan_config(struct convert_plan *p, struct err *err)
{
    static const char *const names[] = { [DT_BF16] = "\"bfloat16\"",
                                         [DT_F16] = "\"float16\"",
                                         [DT_F32] = "\"float32\"" };
    const char *dtype = p->cmd->dtype >= 0 ? names[p->cmd->dtype] : NULL;
    struct config_edit edits[5] = { { 0 } };
    struct str scheme = { 0 };
    size_t n = 0;
    int rc;

    if (dtype) {
        edits[n++] = (struct config_edit){ "torch_dtype", dtype, true };
        edits[n++] = (struct config_edit){ "dtype", dtype, true };
    }
    if (p->cmd->dequantize)
        edits[n++] = (struct config_edit){ "quantization_config", NULL, true };
    if (p->cmd->weights >= 0) {
        if (p->cmd->head)
            edits[n++] =
                (struct config_edit){ "tie_word_embeddings", "false", false };
        else if (!strstr(p->ignore.s ? p->ignore.s : "", "\"" HEAD "\""))
            add_ignored(p, HEAD);
        put_scheme(p, &scheme);
        edits[n++] =
            (struct config_edit){ "quantization_config", scheme.s, false };
    }
    rc = config_file_edit(&p->config, p->dir.path, edits, n, err);
    str_free(&scheme);
    return rc;
}

/* ---- all of it ---- */

size_t
item_nbytes(const struct convert_item *it)
{
    size_t nbytes = 0;

    for (int i = 0; it->change == UNPACKED && i < FORM_N_ROLES; i++)
        if (it->packed.tensor[i])
            nbytes += it->packed.tensor[i]->t->nbytes;
    return it->change == UNPACKED ? nbytes : it->from->t->nbytes;
}

/* Numbers and codes of a packed model change together. */
static int
load_quantization(struct convert_plan *p, struct err *err)
{
    const struct st_convert_cmd *cmd = p->cmd;

    if (!cmd->dequantize && cmd->weights < 0 && cmd->dtype < 0)
        return 0;
    if (quantization_load(&p->quantization, cmd->input, err) < 0)
        return -1;
    if (!cmd->dequantize == !p->quantization.n_groups)
        return 0;
    return cmd->dequantize
               ? err_set(err, EX_DATAERR,
                         "%s: has no quantization_config to unpack", cmd->input)
               : err_set(err, EX_DATAERR,
                         "%s: has a quantization_config: its weights are "
                         "packed already (--dequantize first)",
                         p->quantization.file);
}

const char *
plan_word(const struct convert_plan *p)
{
    static const char *const words[] = { "fp8", "int8", "int4" };

    return words[p->cmd->weights];
}

static void
list_open(struct name_list *list, const char *option, const struct opt_list *of)
{
    list->option = option;
    list->of = of;
    list->used = xcalloc(of->n + 1, sizeof(*list->used));
}

int
plan_open(struct convert_plan *p, const struct st_convert_cmd *cmd,
          struct err *err)
{
    int rc;

    *p = (struct convert_plan){ .cmd = cmd };
    list_open(&p->selected, "select", &cmd->selected);
    list_open(&p->ignored, "ignore", &cmd->ignored);
    list_open(&p->renamed, "rename", &cmd->renamed);
    p->group = cmd->group                  ? (size_t)cmd->group
               : cmd->weights == ENCODE_I4 ? 128
                                           : 0;
    for (size_t i = 0; i < cmd->renamed.n; i++) {
        const char *s = cmd->renamed.item[i];

        if (!strchr(s, '=') || s[*s == '^'] == '=')
            return err_set(err, TU_USAGE, "--rename: \"%s\" is not FROM=TO", s);
    }
    rc = file_is_dir(cmd->input, err);
    if (rc < 0)
        return -1;
    p->is_dir = rc > 0;
    p->to_dir = p->is_dir ? !str_ends(cmd->out_path, ".safetensors")
                          : cmd->shard_nbytes > 0;
    if (stdir_open(&p->dir, cmd->input, err) < 0 ||
        stdir_map(&p->dir, err) < 0 ||
        config_family(&p->family, cmd->input, err) < 0)
        return -1;
    if (load_quantization(p, err) < 0 || plan_items(p, err) < 0)
        return -1;
    plan_shards(p);
    if (p->to_dir && p->is_dir && stdir_has(cmd->input, "config.json"))
        return plan_config(p, err);
    if (cmd->verbose && cmd->weights >= 0)
        tool_say("%s: no config.json is written, which says how weights are "
                 "packed",
                 cmd->out_path);
    return 0;
}

void
plan_close(struct convert_plan *p)
{
    for (size_t i = 0; i < p->n_items; i++)
        for (size_t k = 0; k < p->items[i].n_pieces; k++)
            free(p->items[i].piece[k].name);
    for (size_t i = 0; i < p->n_experts; i++)
        free((char *)(uintptr_t)p->experts[i].t.name);
    free(p->experts);
    free(p->items);
    free(p->selected.used);
    free(p->ignored.used);
    free(p->renamed.used);
    quantization_free(&p->quantization);
    str_free(&p->ignore);
    str_free(&p->inputs);
    str_free(&p->config);
    stdir_close(&p->dir);
    *p = (struct convert_plan){ 0 };
}
