/* diff: what two models have, then how far their numbers differ. */
#include <string.h>
#include <unistd.h>

#include "cmd/st-inspect/cmd.h"
#include "cmd/st-inspect/compare.h"
#include "cmd/st-inspect/select.h"
#include "cmd/st-inspect/text.h"
#include "cmd/st-inspect/view.h"
#include "core/format/npy.h"
#include "core/js.h"
#include "core/tool.h"
#include "core/tty.h"

/* One of the two: a model, or an array that has no name. */
struct side {
    const char *path;
    bool is_npy;
    int fd;
    struct npy npy;
    struct selection sel;
};

struct diff_row {
    const char *result;
    const char *name;
    size_t name_n;
    const struct view *a, *b; /* NULL: not there */
    struct tensor_distance d;
};

struct tally {
    struct comparer *comparer;
    size_t n_same, n_rows;
};

static int
open_npy(struct side *side, struct err *err)
{
    struct str head = { 0 };
    struct err not_a_file;
    size_t size, n;
    int rc = -1;

    side->fd = file_open(side->path, &size, &not_a_file);
    if (side->fd < 0)
        return 0; /* a folder, or the next to open it says what it is */
    n = size < NPY_MAX_HEAD ? size : NPY_MAX_HEAD;
    str_reserve(&head, n + 1);
    if (file_pread(side->fd, side->path, head.s, n, 0, err) < 0)
        goto out;
    side->is_npy = npy_sniff(head.s, n);
    rc = side->is_npy ? npy_parse(&side->npy, head.s, n, side->path, err) : 0;
    if (side->is_npy && rc == 0)
        rc = npy_fits(&side->npy, size, side->path, err);
out:
    str_free(&head);
    return rc;
}

static int
open_side(struct side *side, const struct inspect_cmd *cmd, struct err *err)
{
    if (open_npy(side, err) < 0)
        return -1;
    return side->is_npy ? 0 : select_open(&side->sel, side->path, cmd, err);
}

static void
close_side(struct side *side)
{
    if (side->fd >= 0)
        close(side->fd);
    select_close(&side->sel);
}

static void
put_pair(struct str *to, const struct diff_row *r)
{
    const struct view *a = r->a ? r->a : r->b, *b = r->b ? r->b : r->a;
    bool same = a->n_dims == b->n_dims &&
                (a->n_dims == 0 ||
                 !memcmp(a->shape, b->shape, a->n_dims * sizeof(*a->shape)));

    str_adds(to, dtype_table[a->dtype].name);
    if (a->dtype != b->dtype)
        str_addf(to, "/%s", dtype_table[b->dtype].name);
    str_addc(to, '\t');
    put_shape(to, a->n_dims, a->shape);
    if (!same) {
        str_addc(to, '/');
        put_shape(to, b->n_dims, b->shape);
    }
}

static bool
has_ulps(const struct diff_row *r)
{
    return r->d.measured && r->a->dtype == r->b->dtype &&
           dtype_table[r->a->dtype].kind == DK_FLOAT;
}

static void
put_row(struct str *to, const struct diff_row *r)
{
    str_addf(to, "%s\t", r->result);
    put_pair(to, r);
    str_addc(to, '\t');
    if (r->d.measured) {
        put_u64(to, r->d.n_differ);
        str_addc(to, '\t');
        put_g6(to, r->d.max_abs);
        str_addc(to, '\t');
        put_g6(to, r->d.relative);
        str_addc(to, '\t');
        put_g6(to, r->d.cosine);
        str_addc(to, '\t');
    } else {
        str_adds(to, "-\t-\t-\t-\t");
    }
    if (has_ulps(r))
        put_u64(to, r->d.max_ulp);
    else
        str_addc(to, '-');
    str_addc(to, '\t');
    str_esc(to, r->name, r->name_n);
    str_addc(to, '\n');
}

static void
put_json_side(struct str *to, const char *key, const struct view *v)
{
    put_json_key(to, key);
    if (!v) {
        str_adds(to, "null");
        return;
    }
    str_addf(to, "{\"dtype\":\"%s\",\"shape\":", dtype_table[v->dtype].name);
    put_shape(to, v->n_dims, v->shape);
    str_addc(to, '}');
}

static void
put_json(struct str *to, const struct diff_row *r)
{
    str_addf(to, "{\"result\":\"%s\",\"name\":", r->result);
    js_put_str(to, r->name, r->name_n);
    put_json_side(to, "a", r->a);
    put_json_side(to, "b", r->b);
    if (r->d.measured) {
        put_json_u64(to, "n_differ", r->d.n_differ);
        put_json_f64(to, "max_abs", r->d.max_abs);
        put_json_f64(to, "relative", r->d.relative);
        put_json_f64(to, "cosine", r->d.cosine);
    }
    if (has_ulps(r))
        put_json_u64(to, "max_ulp", r->d.max_ulp);
    str_addc(to, '}');
}

static int
put(struct inspect_cmd *cmd, struct tally *tally, const struct diff_row *r,
    struct err *err)
{
    bool same = !strcmp(r->result, "same");

    tally->n_same += same;
    if (same && !cmd->all)
        return 0;
    if (cmd->json) {
        str_adds(&cmd->text, tally->n_rows ? ",\n" : "\n");
        put_json(&cmd->text, r);
    } else {
        if (tally->n_rows == 0)
            str_adds(&cmd->text, "result\tdtype\tshape\tdiffer\tmax_abs\t"
                                 "relative\tcosine\tmax_ulp\tname\n");
        put_row(&cmd->text, r);
    }
    tally->n_rows++;
    return text_end(cmd, err);
}

/* What one word says of two tensors of one shape. */
static const char *
judge(const struct inspect_cmd *cmd, const struct diff_row *r)
{
    bool other_dtype = r->a->dtype != r->b->dtype;

    if (other_dtype && (!cmd->ignore_dtype || !r->d.measured))
        return r->a->n || !cmd->ignore_dtype ? "dtype" : "same";
    if (!r->d.other_bytes)
        return "same";
    if (!r->d.measured)
        return "bytes";
    if (r->d.n_differ)
        return "values";
    /* -0 and 0, or two NaNs: equal as numbers */
    return other_dtype || cmd->atol > 0 || cmd->rtol > 0 ? "same" : "bytes";
}

static int
diff_pair(struct inspect_cmd *cmd, struct tally *tally, struct diff_row *r,
          struct err *err)
{
    const struct view *a = r->a, *b = r->b;

    if (a->n_dims != b->n_dims ||
        (a->n_dims &&
         memcmp(a->shape, b->shape, a->n_dims * sizeof(*a->shape)))) {
        r->result = "shape";
    } else {
        if (compare(tally->comparer, &r->d, a, b, err) < 0)
            return -1;
        r->result = judge(cmd, r);
    }
    return put(cmd, tally, r, err);
}

/* The other model's tensor of that name, if -t means it. */
static const struct stdir_tensor *
partner(const struct side *side, const struct st_tensor *t,
        const struct inspect_cmd *cmd)
{
    const struct stdir_tensor *u =
        stdir_find_n(&side->sel.dir, t->name, t->name_n);

    return u && select_matches(cmd, u->t) ? u : NULL;
}

static int
diff_models(struct inspect_cmd *cmd, struct side *a, struct side *b,
            struct tally *tally, struct err *err)
{
    struct progress p = {
        .what = "diff", .unit = "B", .total = a->sel.nbytes, .quiet = cmd->quiet
    };
    uint64_t done = 0;
    int rc = 0;

    progress_start(&p);
    for (int k = 0; k < 2; k++) {
        const struct selection *sel = k ? &b->sel : &a->sel;

        for (size_t i = 0; rc == 0 && i < sel->n; i++) {
            const struct st_tensor *t = sel->t[i]->t;
            const struct stdir_tensor *u = partner(k ? a : b, t, cmd);
            struct view v = view_of(sel->t[i]), w;
            struct diff_row r = { .name = t->name, .name_n = t->name_n };

            if (u && k)
                continue; /* was compared already */
            if (u) {
                w = view_of(u);
                r.a = &v;
                r.b = &w;
                rc = diff_pair(cmd, tally, &r, err);
                progress_at(&p, done += v.nbytes);
                continue;
            }
            r.result = k ? "only_b" : "only_a";
            *(k ? &r.b : &r.a) = &v;
            rc = put(cmd, tally, &r, err);
        }
    }
    progress_end(&p);
    return rc;
}

/* The one tensor of a side that stands against an unnamed array. */
static int
only_view(const struct side *side, struct view *v, struct err *err)
{
    if (side->is_npy) {
        *v = (struct view){ .path = side->path,
                            .fd = side->fd,
                            .offset = side->npy.data_offset,
                            .dtype = side->npy.dtype,
                            .n_dims = side->npy.n_dims,
                            .shape = side->npy.shape,
                            .n = side->npy.n_elements,
                            .nbytes = side->npy.nbytes };
        return 0;
    }
    if (side->sel.n != 1)
        return err_set(err, TU_USAGE,
                       "diff: %s has %zu tensors for one array: choose by "
                       "--tensor",
                       side->path, side->sel.n);
    *v = view_of(side->sel.t[0]);
    return 0;
}

static int
diff_arrays(struct inspect_cmd *cmd, struct side *a, struct side *b,
            struct tally *tally, struct err *err)
{
    struct view v, w;
    struct diff_row r = { .a = &v, .b = &w, .name = b->path };
    const struct side *named = !a->is_npy ? a : !b->is_npy ? b : NULL;

    if (only_view(a, &v, err) < 0 || only_view(b, &w, err) < 0)
        return -1;
    r.name_n = strlen(r.name);
    if (named) {
        r.name = named->sel.t[0]->t->name;
        r.name_n = named->sel.t[0]->t->name_n;
    }
    return diff_pair(cmd, tally, &r, err);
}

int
diff_main(struct inspect_cmd *cmd, struct err *err)
{
    struct side a = { .fd = -1 }, b = { .fd = -1 };
    struct tally tally = { 0 };
    size_t n_other;
    int rc = -1;

    if (cmd->n_args != 2)
        return err_set(err, TU_USAGE, "diff takes A B (found %d)", cmd->n_args);
    a.path = cmd->args[0];
    b.path = cmd->args[1];
    if (par_open(&cmd->par, cmd->n_threads, err) < 0 ||
        open_side(&a, cmd, err) < 0 || open_side(&b, cmd, err) < 0 ||
        !(tally.comparer = compare_open(cmd, err)))
        goto out;
    if (cmd->json) {
        str_adds(&cmd->text, "{\"a\":");
        put_json_str(&cmd->text, cmd->args[0]);
        put_json_text(&cmd->text, "b", cmd->args[1]);
        put_json_key(&cmd->text, "tensors");
        str_addc(&cmd->text, '[');
    }
    rc = (a.is_npy || b.is_npy ? diff_arrays : diff_models)(cmd, &a, &b, &tally,
                                                            err);
    n_other = tally.n_rows - (cmd->all ? tally.n_same : 0);
    if (cmd->json)
        str_addf(&cmd->text, "\n],\"n_same\":%zu,\"n_different\":%zu}\n",
                 tally.n_same, n_other);
    if (rc == 0 && cmd->verbose)
        tool_say("%zu tensors are the same, %zu are not", tally.n_same,
                 n_other);
    if (rc == 0 && n_other)
        rc = TU_NEGATIVE;
out:
    compare_close(tally.comparer);
    close_side(&a);
    close_side(&b);
    return rc;
}
