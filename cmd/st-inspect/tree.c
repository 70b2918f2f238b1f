/* SPDX-License-Identifier: ISC */
/* tree: parameters and bytes by module. */
#include <stdlib.h>
#include <string.h>

#include "cmd/st-inspect/cmd.h"
#include "cmd/st-inspect/fold.h"
#include "cmd/st-inspect/packed.h"
#include "cmd/st-inspect/select.h"
#include "cmd/st-inspect/text.h"
#include "core/js.h"
#include "core/mem.h"

/* A module, or a tensor at the end of its name's dots. */
struct node {
    const char *path; /* of all of it, not terminated */
    size_t path_n;
    size_t at; /* where its own name starts in the path */
    size_t depth;
    uint64_t n_elements, nbytes, n_tensors;
    uint64_t types; /* bit i: enum dtype i, or a type of the quantization */
    size_t n_dims;  /* of a packed layer, which this is; else 0 */
    uint64_t shape[3];
    bool leaf; /* a tensor ends here */
    bool lone; /* a tensor that is all of its module */
};

struct tree {
    struct quantization q;
    const struct stdir *dir;
    size_t max_depth;
    size_t n, cap;
    struct node *nodes; /* each before its children */
    size_t *open;       /* [open_cap] the last node of each depth */
    size_t n_open, open_cap;
};

#define N_TYPES 64
_Static_assert(DT_COUNT < N_TYPES, "struct node has so many bits for types");

static size_t
add_node(struct tree *tree, const char *path, size_t path_n, size_t at)
{
    if (tree->n == tree->cap)
        tree->nodes =
            xgrow(tree->nodes, tree->n, &tree->cap, sizeof(*tree->nodes));
    if (tree->n_open == tree->open_cap)
        tree->open =
            xgrow(tree->open, tree->n_open, &tree->open_cap, sizeof(size_t));
    tree->nodes[tree->n] = (struct node){
        .path = path, .path_n = path_n, .at = at, .depth = tree->n_open
    };
    tree->open[tree->n_open++] = tree->n;
    return tree->n++;
}

/* Rows of one module must be adjacent.  The parts of a packed layer are of its
 * module, which has the layer's parameters. */
static void
add_row(struct tree *tree, const struct fold_row *r)
{
    uint64_t n_elements = r->t->t->n_elements;
    size_t at = 0, depth = 1, end, name_n = r->name_n, type = r->t->t->dtype;
    struct packed_part p = { 0 };
    struct node *last;
    struct err none;

    if (tree->q.n_groups &&
        packed_part(&p, &tree->q, tree->dir, r->t, &none) > 0) {
        n_elements = p.role == FORM_CODES ? p.n_elements : 0;
        name_n -= r->t->t->name_n - p.module_n;
        for (type = DT_COUNT; type < N_TYPES - 1; type++)
            if (!strcmp(tree->q.groups[type - DT_COUNT].type,
                        p.layer.group->type))
                break;
    }
    for (;; at = end + 1, depth++) {
        const struct node *node =
            depth < tree->n_open ? &tree->nodes[tree->open[depth]] : NULL;

        end =
            at; /* dots in a set of folded numbers, "{0..31}", do not end it */
        if (r->count > 1 && end < name_n && r->name[end] == '{')
            end += strspn(r->name + end, "{0123456789.,");
        while (end < name_n && r->name[end] != '.')
            end++;
        if (!node || node->path_n != end || memcmp(node->path, r->name, end)) {
            if (node)
                tree->n_open = depth;
            add_node(tree, r->name, end, at);
        }
        if (end == name_n || depth == tree->max_depth)
            break;
    }
    tree->n_open = depth + 1;
    last = &tree->nodes[tree->open[depth]];
    if (!p.layer.group) {
        last->leaf = end == name_n;
    } else if (end == name_n) {
        last->n_dims = p.n_dims;
        memcpy(last->shape, p.shape, sizeof(p.shape));
    }
    for (size_t i = 0; i <= depth; i++) {
        struct node *node = &tree->nodes[tree->open[i]];

        node->n_elements += r->count * n_elements;
        node->nbytes += r->count * r->t->t->nbytes;
        node->n_tensors += r->count;
        node->types |= UINT64_C(1) << type;
    }
}

static void
put_types(struct str *to, const struct tree *tree, uint64_t types, bool json)
{
    const char *comma = "", *quote = json ? "\"" : "";

    for (size_t i = 0; i < N_TYPES; i++)
        if (types >> i & 1) {
            str_addf(to, "%s%s%s%s", comma, quote,
                     i < DT_COUNT ? dtype_table[i].name
                                  : tree->q.groups[i - DT_COUNT].type,
                     quote);
            comma = ",";
        }
}

static void
put_node(struct record *row, const struct tree *tree, const struct node *node)
{
    struct str *to = row->to;
    double all = (double)tree->nodes[0].n_elements;
    bool json = row->json;

    record_begin(row);
    if (json) {
        record_text(row, "module", node->path, node->path_n);
        record_u64(row, "depth", node->depth);
    }
    record_u64(row, "n_elements", node->n_elements);
    if (!json) {
        record_key(row, "percent");
        str_addf(to, "%.1f",
                 all > 0 ? 100 * (double)node->n_elements / all : 0);
    }
    record_u64(row, "nbytes", node->nbytes);
    record_u64(row, "n_tensors", node->n_tensors);
    record_key(row, "dtypes");
    str_adds(to, json ? "[" : "");
    put_types(to, tree, node->types, json);
    str_adds(to, json ? "]" : "");
    if (json && node->n_dims) {
        row_shape(row, "shape", node->n_dims, node->shape);
    } else if (node->n_dims) {
        str_addc(to, ' ');
        put_shape(to, node->n_dims, node->shape);
    }
    if (json)
        return;
    record_key(row, "module");
    str_addf(to, "%*s%s", 2 * (int)node->depth, "", node->depth ? "" : ".");
    str_esc(to, node->path + node->at, node->path_n - node->at);
}

static int
print_tree(struct inspect_cmd *cmd, const struct tree *tree, const char *path,
           struct err *err)
{
    if (cmd->json)
        js_addf(&cmd->text, "{\"path\":%s,\"modules\":[", path);
    else
        str_adds(&cmd->text,
                 "parameters\tpercent\tbytes\ttensors\tdtype\tmodule\n");
    for (size_t i = 0; i < tree->n; i++) {
        if (tree->nodes[i].lone)
            continue;
        put_node(&cmd->row, tree, &tree->nodes[i]);
        if (row_end(cmd, err) < 0)
            return -1;
    }
    if (cmd->json)
        str_adds(&cmd->text, "\n]}\n");
    return 0;
}

static int
by_name(const void *pa, const void *pb)
{
    const struct fold_row *a = pa, *b = pb;
    size_t i = 0;

    while (i < a->name_n && i < b->name_n && a->name[i] == b->name[i])
        i++;
    if (i == a->name_n || i == b->name_n)
        return (a->name_n > b->name_n) - (a->name_n < b->name_n);
    return dot_first(a->name[i]) - dot_first(b->name[i]);
}

int
tree_main(struct inspect_cmd *cmd, struct err *err)
{
    const char *path = one_operand(cmd, err);
    struct folded folded = { 0 };
    struct tree tree = { 0 };
    struct selection sel;
    int rc = -1;

    if (!path || select_open(&sel, path, cmd, err) < 0)
        return -1;
    tree.dir = &sel.dir;
    packed_load(&tree.q, &sel.dir, cmd->verbose);
    if (fold(&folded, &sel, cmd->fold, err) < 0)
        goto out;
    /* folding keeps the order of names, which can separate the rows of a module
     */
    if (cmd->fold)
        qsort(folded.rows, folded.n, sizeof(*folded.rows), by_name);
    tree.max_depth = cmd->depth ? (size_t)cmd->depth : TREE_MAX_DEPTH;
    add_node(&tree, "", 0, 0);
    for (size_t i = 0; i < folded.n; i++)
        add_row(&tree, &folded.rows[i]);
    /* "up_proj" is enough where "weight" is its only tensor, and has none below
     * it, such as "weight.absmax" */
    tree.n_open = 0;
    for (size_t i = 0; i < tree.n; i++) {
        struct node *node = &tree.nodes[i];

        tree.open[node->depth] = i;
        node->lone =
            node->leaf && node->depth > 1 &&
            tree.nodes[tree.open[node->depth - 1]].n_tensors ==
                node->n_tensors &&
            (i + 1 == tree.n || tree.nodes[i + 1].depth <= node->depth);
    }
    rc = print_tree(cmd, &tree, path, err);
    say_totals(cmd, &sel);
out:
    free(tree.nodes);
    free(tree.open);
    quantization_free(&tree.q);
    fold_free(&folded);
    select_close(&sel);
    return rc;
}
