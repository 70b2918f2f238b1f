/* SPDX-License-Identifier: ISC */
/* prompts: a question for each latent, for hf-infer --jsonl. */
#include <stdlib.h>

#include "cmd/sae-look/cmd.h"
#include "cmd/sae-look/view.h"
#include "core/js.h"
#include "core/mem.h"
#include "core/out.h"

static const char question[] =
    "A feature of a language model is active at the tokens between << and >> "
    "in the texts below.  After each text are these tokens, and how active it "
    "is there, from 1 to 10.  What do they have in common?  Answer with one "
    "short phrase and nothing else.\n";

/* A window's text; 'marked': its runs of active tokens are in << >>. */
static void
put_text(const struct look_view *v, const struct look_example *e, bool marked,
         struct str *to)
{
    bool inside = false;

    for (size_t k = 0; k < e->n; k++) {
        bool active = marked && e->acts[k] > 0;

        if (active != inside)
            str_adds(to, active ? "<<" : ">>");
        inside = active;
        view_token(v, e->ids[k], to);
    }
    str_adds(to, inside ? ">>\n" : "\n");
}

static void
put_levels(const struct look_view *v, const struct look_example *e,
           struct str *to)
{
    const char *comma = "";

    for (size_t k = 0; k < e->n; k++) {
        if (e->acts[k] <= 0)
            continue;
        str_adds(to, comma);
        view_json(v, e->ids[k], to);
        str_addf(to, " %d", view_level(v, e->acts[k]));
        comma = ", ";
    }
    str_addc(to, '\n');
}

/* Is a row in a sequence that is known to have it? */
static bool
is_known(const struct look_view *v, int64_t row)
{
    int64_t n_tokens = (int64_t)v->l.n_tokens;

    for (size_t j = 0; j < v->n_top + v->n_sample; j++) {
        const struct look_example *e =
            j < v->n_top ? &v->top[j] : &v->sample[j - v->n_top];

        if (e->row / n_tokens == row / n_tokens)
            return true;
    }
    return false;
}

#define TRIED 64 /* latents for each text */

/* Windows of the strongest examples of the latents that follow, in a circle:
 * each sequence once. */
static int
put_negatives(const struct look_view *v, struct str *to, struct err *err)
{
    const struct look *l = &v->l;
    size_t most = v->cmd->negatives;
    int64_t *used = xcalloc(most + 1, sizeof(*used));
    size_t n = 0;
    int rc = 0;

    for (size_t k = 1; rc >= 0 && k < l->m && k <= TRIED * most && n < most;
         k++) {
        struct look_example e;
        size_t other = (v->i + k) % l->m, at = 0;

        rc = look_example(l, &l->top, other, 0, &e, err);
        if (rc <= 0 || is_known(v, e.row))
            continue;
        while (at < n && used[at] != e.row / (int64_t)l->n_tokens)
            at++;
        if (at < n)
            continue;
        used[n++] = e.row / (int64_t)l->n_tokens;
        if (n == 1)
            str_adds(to, "\nIt is not active in these texts:\n");
        str_addf(to, "\nText without it %zu: ", n);
        put_text(v, &e, false, to);
    }
    free(used);
    return rc < 0 ? -1 : 0;
}

static int
put_prompt(struct look_view *v, size_t i, struct out *out, struct err *err)
{
    struct str text = { 0 }, line = { 0 };
    int rc = view_latent(v, i, err);

    str_adds(&text, question);
    for (size_t j = 0; rc == 0 && j < v->n_top; j++) {
        str_addf(&text, "\nText %zu: ", j + 1);
        put_text(v, &v->top[j], true, &text);
        str_adds(&text, "Active: ");
        put_levels(v, &v->top[j], &text);
    }
    if (rc == 0)
        rc = put_negatives(v, &text, err);
    str_addf(&line, "{\"id\": %ld, \"text\": ", v->latent);
    js_put_str(&line, text.s, text.n);
    str_adds(&line, "}\n");
    if (rc == 0)
        rc = out_write(out, line.s, line.n, err);
    str_free(&text);
    str_free(&line);
    return rc;
}

int
prompts_main(const struct look_cmd *cmd, struct err *err)
{
    struct out *out = NULL;
    struct look_view v = { 0 };
    int rc = -1;

    if (cmd->n_args != 1)
        return err_set(err, TU_USAGE, "prompts takes one RUN");
    if (view_open(&v, cmd, SIZE_MAX, err) < 0)
        goto out;
    if (!v.l.ids_sha256 || v.l.top.n == 0) {
        err_data(err, v.l.path, "has no %s",
                 v.l.ids_sha256 ? "strongest examples (scan --top)"
                                : "token ids (scan --acts-ids)");
        goto out;
    }
    rc = out_open(&out, cmd->output ? cmd->output : "-", cmd->out_flags, false,
                  err);
    for (size_t k = 0; rc == 0 && k < v.n; k++)
        if (v.l.rows_active[v.picked[k]] > 0)
            rc = put_prompt(&v, v.picked[k], out, err);
    if (rc == 0) {
        rc = out_commit(out, err);
        out = NULL;
    }
out:
    out_abort(out);
    view_close(&v);
    return rc;
}
