/* SPDX-License-Identifier: ISC */
/* sae-train info: what a run had, and what its SAE is. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/sae-train/cmd.h"
#include "core/format/sae.h"
#include "core/format/st.h"
#include "core/js.h"
#include "core/map.h"
#include "core/model/train/sae.h"
#include "core/str.h"
#include "core/tool.h"

/* ---- what the state says ---- */

static int
not_state(const struct st *st, struct err *err)
{
    return err_set(err, EX_DATAERR, "%s: is not a state of sae-train",
                   st->path);
}

/* Rows of the input that the run had: "input", its second number. */
static int
rows_had(const struct st *st, double *rows, struct err *err)
{
    const struct st_tensor *t = st_find(st, "input");

    if (!t || t->dtype != DT_F64 || t->n_elements != 3)
        return not_state(st, err);
    return st_read_numbers(st, t, 1, rows, 1, 8, err);
}

/* How many steps there were, and the record of the last one. */
static int
last_step(const struct st *st, int64_t *n, struct sae_record *last,
          struct err *err)
{
    const struct st_tensor *t = st_find(st, "steps");
    size_t n_columns = sizeof(*last) / 8;

    if (!t || t->dtype != DT_F64 || t->n_dims != 2 || t->shape[1] != n_columns)
        return not_state(st, err);
    *n = t->shape[0];
    return *n == 0 ? 0
                   : st_read_numbers(st, t, t->n_elements - n_columns, last,
                                     n_columns, 8, err);
}

/* The number, or with --json all that the state says of itself. */
static int
print_rows(const char *path, bool json, struct err *err)
{
    struct str text = { 0 };
    struct st st;
    double rows = 0;
    int rc;

    if (st_open(&st, path, err) < 0)
        return -1;
    rc = rows_had(&st, &rows, err);
    if (rc == 0 && !json)
        printf("%.0f\n", rows);
    if (rc == 0 && json) {
        str_addf(&text, "{\"rows\":%.0f", rows);
        for (size_t i = 0; i < st.n_meta; i++) {
            str_addc(&text, ',');
            js_put_str(&text, st.meta[i].key, st.meta[i].key_n);
            str_addc(&text, ':');
            js_put_str(&text, st.meta[i].value, st.meta[i].value_n);
        }
        printf("%s}\n", text.s);
    }
    str_free(&text);
    st_close(&st);
    return rc;
}

/* ---- lines of TSV ---- */

struct facts {
    struct str to;
    const char *path; /* before each line; NULL: none */
};

static void
put_text(struct facts *f, const char *name, const char *value)
{
    if (f->path) {
        str_esc(&f->to, f->path, strlen(f->path));
        str_addc(&f->to, '\t');
    }
    str_addf(&f->to, "%s\t", name);
    str_esc(&f->to, value, strlen(value));
    str_addc(&f->to, '\n');
}

static void
put_number(struct facts *f, const char *name, double v)
{
    struct str text = { 0 };

    js_put_f64(&text, v);
    put_text(f, name, text.s);
    str_free(&text);
}

/* The keys of its configuration, as they are there. */
static void
put_without(struct facts *f, const struct sae_without *w)
{
    struct str text = { 0 };

    for (size_t i = 0; i < w->n_ids; i++)
        str_addf(&text, "%s%ld", i ? "," : "", (long)w->ids[i]);
    if (w->special || text.n)
        put_text(f, "exclude_special_tokens", w->special ? "true" : text.s);
    str_clear(&text);
    str_addf(&text, "[%lld,", (long long)w->start);
    if (w->end == INT64_MAX)
        str_adds(&text, "null");
    else
        str_addf(&text, "%lld", (long long)w->end);
    if (w->step > 1)
        str_addf(&text, ",%lld", (long long)w->step);
    str_addc(&text, ']');
    if (w->is_slice)
        put_text(f, "seqpos_slice", text.s);
    if (w->max_norm > 0)
        put_number(f, "max_norm", w->max_norm);
    str_free(&text);
}

static void
put_sae(struct facts *f, const struct sae *s)
{
    static const char *const names[] = { [SAE_TOPK] = "topk",
                                         [SAE_BATCHTOPK] = "batchtopk",
                                         [SAE_JUMPRELU] = "threshold",
                                         [SAE_RELU] = "relu" };
    float least = INFINITY, most = 0;

    put_text(f, "file", s->path);
    put_text(f, "activation",
             s->batchtopk ? "batchtopk" : names[s->activation]);
    put_number(f, "latents", (double)s->n);
    put_number(f, "d", (double)s->in);
    if (s->k)
        put_number(f, "k", (double)s->k);
    for (size_t i = 0; s->thresholds && i < s->n; i++) {
        least = fminf(least, s->thresholds[i]);
        most = fmaxf(most, s->thresholds[i]);
    }
    if (s->thresholds && least == most) {
        put_number(f, "threshold", (double)most);
    } else if (s->thresholds) {
        put_number(f, "threshold_min", (double)least);
        put_number(f, "threshold_max", (double)most);
    }
    put_text(f, "encodes", s->centered ? "x - b_dec" : "x");
    if (s->input != SAE_INPUT_PLAIN)
        put_text(f, "normalize_activations",
                 s->input == SAE_INPUT_LAYER  ? "layer_norm"
                 : s->input == SAE_INPUT_NORM ? "constant_norm_rescale"
                                              : "expected_average_only_in");
    if (s->mean_off)
        put_text(f, "center_writing_weights", "true");
    if (s->hook)
        put_text(f, "hook", s->hook);
    put_without(f, &s->without);
}

/* Settings of the run, first those of an SAE that is not written yet. */
static void
put_settings(struct facts *f, const struct st *st, bool has_sae)
{
    static const struct {
        const char *key, *name;
        bool of_sae;
    } settings[] = {
        { "--activation", "activation", true },
        { "--latents", "latents", true },
        { "d", "d", true },
        { "--k", "k", true },
        { "--hook", "hook", true },
        { "--init", "init", false },
        { "--seed", "seed", false },
        { "--batch", "batch", false },
        { "--lr", "lr", false },
        { "--warmup", "warmup", false },
        { "--decay", "decay", false },
    };

    for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++) {
        const char *value = st_meta(st, settings[i].key);

        if (value && *value && !(settings[i].of_sae && has_sae))
            put_text(f, settings[i].name, value);
    }
}

static int
put_run(struct facts *f, const char *path, bool has_sae, struct err *err)
{
    struct sae_record last = { 0 };
    const char *s;
    double rows = 0;
    int64_t n = 0, total;
    struct st st;
    int rc = st_open(&st, path, err);

    if (rc < 0)
        return -1;
    if (rows_had(&st, &rows, err) < 0 || last_step(&st, &n, &last, err) < 0) {
        st_close(&st);
        return -1;
    }
    s = st_meta(&st, "-n");
    total = s ? strtoll(s, NULL, 10) : 0;
    if (has_sae && total > n)
        err_warn("%s: its run has not ended: the SAE next to it is of an "
                 "earlier one, or of fewer steps",
                 path);
    put_settings(f, &st, has_sae);
    if (total && total >= n) /* of a stream, the first array's may be fewer */
        put_number(f, "steps_in_all", (double)total);
    put_number(f, "steps", (double)n);
    put_number(f, "rows", rows);
    if (n > 0) {
        put_number(f, "fvu", last.fvu);
        put_number(f, "l0", last.l0);
        put_number(f, "dead", last.dead);
    }
    st_close(&st);
    return 0;
}

static int
print_long(const char *dir, const char *state, bool several, struct err *err)
{
    struct facts f = { .path = several ? dir : NULL };
    int has_sae = sae_is_one(dir, err), rc = has_sae < 0 ? -1 : 0;
    struct sae sae;

    if (has_sae > 0) {
        rc = sae_open(&sae, dir, err);
        if (rc == 0)
            put_sae(&f, &sae);
        sae_close(&sae);
    }
    /* where both are missing, the message is the state's */
    if (rc == 0 && !(has_sae && file_missing(state)))
        rc = put_run(&f, state, has_sae, err);
    if (rc == 0)
        tool_put("%s", f.to.s);
    str_free(&f.to);
    return rc;
}

int
info_main(const struct train_cmd *cmd, struct err *err)
{
    int rc = 0;

    if (cmd->n_paths == 0)
        return err_set(err, TU_USAGE, "a DIR is missing");
    for (int i = 0; i < cmd->n_paths && rc == 0; i++) {
        struct str state = { 0 };

        str_addf(&state, "%s/state.safetensors", cmd->paths[i]);
        rc = !cmd->long_info && (cmd->rows || cmd->json)
                 ? print_rows(state.s, cmd->json, err)
                 : print_long(cmd->paths[i], state.s, cmd->n_paths > 1, err);
        if (rc < 0 && err->status == EX_NOINPUT && file_missing(state.s) &&
            !file_missing(cmd->paths[i]))
            err_set(
                err, EX_NOINPUT,
                "%s: has no state.safetensors (of several SAEs each has its "
                "own, in %s/NAME)",
                cmd->paths[i], cmd->paths[i]);
        str_free(&state);
    }
    return rc;
}
