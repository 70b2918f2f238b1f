/* SPDX-License-Identifier: ISC */
#include "cmd/sae-look/codes.h"

#include <stdlib.h>
#include <string.h>

#include "core/format/stw.h"
#include "core/js.h"
#include "core/kernel/cvt.h"
#include "core/le.h"
#include "core/mem.h"
#include "core/out.h"
#include "core/outdir.h"
#include "core/spill.h"
#include "core/str.h"
#include "core/tty.h"

#define PIECE   ((size_t)4096) /* activations that are written at once */
#define LEAST   1e-5f          /* delphi drops what is not over it */
#define F16_MAX 65504.0f

struct one_code {
    uint32_t seq, token, latent;
    float f;
};

/* A range of latents. */
struct codes_split {
    size_t first, end;
    uint64_t n; /* written to the spill */
    size_t fill;
    struct one_code buffer[PIECE];
    struct spill spill;
};

struct codes_out {
    const struct look *l;
    const struct saev_ids *ids;
    struct outdir_at dir;
    const char *parent;        /* --codes */
    size_t n_old;              /* of it was there before */
    struct codes_split *split; /* [n] */
    size_t n;
    uint64_t n_large;
};

/* A hook comes from a file, and becomes a directory. */
static int
check_hook(const struct look *l, struct err *err)
{
    if (!l->hook)
        return err_data(err, l->sae,
                        "has no hook, which names the directory of --codes");
    if (*l->hook && *l->hook != '.' &&
        strspn(l->hook, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                        "0123456789._-") == strlen(l->hook))
        return 0;
    return err_data(err, l->sae,
                    "its hook \"%s\" is no name for a directory of --codes "
                    "(letters, digits, . _ - and no leading dot)",
                    l->hook);
}

/* Neither may be the other, or in it: they appear one after the other. */
static int
check_apart(const struct outdir_at *codes, const struct outdir_at *run,
            const struct look_cmd *cmd, struct err *err)
{
    const struct outdir_at *of[2] = { codes, run };
    struct str at[2] = { { 0 } }; /* where it will be, and a slash */
    int rc = 0;

    for (int i = 0; i < 2; i++) {
        char *hidden = realpath(outdir_path(of[i]->dir), NULL);
        char *slash = hidden ? strrchr(hidden, '/') : NULL;

        str_add(&at[i], hidden ? hidden : "",
                slash ? (size_t)(slash - hidden) : 0);
        str_addf(&at[i], "/%s/", of[i]->name);
        free(hidden);
    }
    if (!strncmp(at[0].s, at[1].s, smaller(at[0].n, at[1].n)))
        rc = err_set(err, TU_USAGE,
                     "%s/%s of --codes and %s of -o are the same directory, or "
                     "one is in the other",
                     cmd->codes, codes->name, cmd->output);
    str_free(&at[0]);
    str_free(&at[1]);
    return rc;
}

static int
write_config(const struct codes_out *c, const char *model, struct err *err)
{
    struct str text = { 0 }, path = { 0 };
    int rc;

    js_addf(&text,
            "{\n    \"batch_size\": 1,\n    \"cache_ctx_len\": %zu,\n"
            "    \"n_tokens\": %zu,\n    \"n_splits\": %zu,\n"
            "    \"model_name\": %s\n}",
            c->l->n_tokens, c->ids->n_imgs * c->ids->n_tokens, c->n, model);
    str_addf(&path, "%s/config.json", outdir_path(c->dir.dir));
    rc = out_put(path.s, 0, text.s, text.n, err);
    str_free(&path);
    str_free(&text);
    return rc;
}

int
codes_open(struct codes_out **codes, const struct look_cmd *cmd,
           const struct look *l, const struct saev_ids *ids,
           const struct outdir_at *run, struct err *err)
{
    struct codes_out *c = xcalloc(1, sizeof(*c));
    struct str path = { 0 };
    int rc = check_hook(l, err);

    *codes = c;
    c->l = l;
    c->ids = ids;
    c->parent = cmd->codes;
    c->n_old = SIZE_MAX;
    c->n = smaller(cmd->splits, l->n);
    c->split = mem_try(c->n, sizeof(*c->split), "--codes", err);
    if (rc == 0 && !ids->ids)
        rc = err_set(err, TU_USAGE,
                     "--codes needs --acts-ids, or one dump with ids.npy");
    for (size_t i = 0; c->split && i < c->n; i++) {
        c->split[i].first = l->n * i / c->n;
        c->split[i].end = l->n * (i + 1) / c->n;
        c->split[i].n = c->split[i].fill = 0;
        c->split[i].spill.fd = -1;
    }
    if (rc < 0 || !c->split)
        return -1;
    str_addf(&path, "%s/%s", cmd->codes, l->hook);
    rc = outdir_make(cmd->codes, &c->n_old, err);
    if (rc == 0)
        rc = outdir_at_open(&c->dir, path.s, cmd->out_flags, err);
    if (rc == 0)
        rc = check_apart(&c->dir, run, cmd, err);
    for (size_t i = 0; i < c->n && rc == 0; i++)
        rc = spill_open(&c->split[i].spill, outdir_path(c->dir.dir), 0, err);
    if (rc == 0)
        rc = write_config(c, cmd->model_id, err);
    str_free(&path);
    return rc;
}

static int
flush(struct codes_split *s, struct err *err)
{
    if (spill_write(&s->spill, s->buffer, s->fill * sizeof(*s->buffer),
                    s->n * sizeof(*s->buffer), err) < 0)
        return -1;
    s->n += s->fill;
    s->fill = 0;
    return 0;
}

int
codes_add(struct codes_out *c, const struct look_codes *codes, struct err *err)
{
    size_t t = c->l->n_tokens;

    for (size_t r = 0; r < codes->n_rows; r++) {
        struct codes_split *s = c->split;
        uint64_t row = codes->first + r;

        for (size_t k = codes->begin[r]; k < codes->begin[r + 1]; k++) {
            if (!(codes->f[k] > LEAST))
                continue;
            while (codes->idx[k] >= s->end)
                s++;
            c->n_large += codes->f[k] > F16_MAX;
            s->buffer[s->fill++] =
                (struct one_code){ (uint32_t)(row / t), (uint32_t)(row % t),
                                   codes->idx[k] - (uint32_t)s->first,
                                   codes->f[k] > F16_MAX ? F16_MAX
                                                         : codes->f[k] };
            if (s->fill == PIECE && flush(s, err) < 0)
                return -1;
        }
    }
    return 0;
}

/* The tokens of all sequences; padding, which no tokenizer decodes, as 0. */
static int
write_tokens(const struct codes_out *c, struct stw *w, int tensor,
             struct err *err)
{
    size_t n = c->ids->n_imgs * c->ids->n_tokens;
    uint8_t le[PIECE * 8];

    for (size_t i = 0, some; i < n; i += some) {
        some = smaller(n - i, PIECE);
        for (size_t k = 0; k < some; k++) {
            int32_t id = saev_ids_at(c->ids, 0, i + k);

            put_le64(le + k * 8, id < 0 ? 0 : (uint64_t)id);
        }
        if (stw_write(w, tensor, le, some * 8, i * 8, err) < 0)
            return -1;
    }
    return 0;
}

/* Locations are of 16 bits where all numbers of the split have them, as delphi
 * has it. */
static int
write_codes(struct codes_split *s, struct stw *w, int locations,
            int activations, size_t item, struct err *err)
{
    struct one_code *code = s->buffer;
    uint8_t le[PIECE * 12];
    float f[PIECE];
    int rc = 0;

    for (uint64_t i = 0; i < s->n && rc == 0; i += PIECE) {
        size_t some = smaller((size_t)(s->n - i), PIECE);

        rc = spill_read(&s->spill, code, some * sizeof(*code),
                        i * sizeof(*code), err);
        for (size_t k = 0; k < some && rc == 0; k++) {
            uint8_t *at = le + k * 3 * item;

            f[k] = code[k].f;
            /* three times the low half, or all */
            put_le32(at, code[k].seq);
            put_le32(at + item, code[k].token);
            if (item == 4)
                put_le32(at + 2 * item, code[k].latent);
            else
                put_le16(at + 2 * item, (uint16_t)code[k].latent);
        }
        if (rc == 0)
            rc =
                stw_write(w, locations, le, some * 3 * item, i * 3 * item, err);
        cvt_from_f32(le, DT_F16, f, rc == 0 ? some : 0);
        if (rc == 0)
            rc = stw_write(w, activations, le, some * 2, i * 2, err);
    }
    return rc;
}

static int
write_split(struct codes_out *c, struct codes_split *s, struct err *err)
{
    const size_t most = (size_t)1 << 16;
    bool small = s->end - s->first <= most && c->ids->n_imgs <= most &&
                 c->l->n_tokens <= most;
    struct str path = { 0 };
    struct stw *w = stw_new();
    const uint64_t of_a[2] = { s->n + s->fill, 3 };
    const uint64_t of_t[2] = { c->ids->n_imgs, c->ids->n_tokens };
    /* a handle is how many were added before */
    int rc =
        stw_add(w, "locations", small ? DT_U16 : DT_U32, 2, of_a, err) < 0 ||
                stw_add(w, "activations", DT_F16, 1, of_a, err) < 0 ||
                stw_add(w, "tokens", DT_I64, 2, of_t, err) < 0
            ? -1
            : flush(s, err);

    str_addf(&path, "%s/%zu_%zu.safetensors", outdir_path(c->dir.dir), s->first,
             s->end - 1);
    if (rc == 0)
        rc = stw_open(w, path.s, 0, err);
    if (rc == 0)
        rc = write_tokens(c, w, 2, err);
    if (rc == 0)
        rc = write_codes(s, w, 0, 1, small ? 2 : 4, err);
    if (rc == 0)
        rc = stw_commit(w, err);
    stw_free(w);
    str_free(&path);
    return rc;
}

int
codes_commit(struct codes_out *c, struct err *err)
{
    for (size_t i = 0; i < c->n; i++)
        if (write_split(c, &c->split[i], err) < 0)
            return -1;
    if (c->n_large)
        err_warn("--codes: %llu activation%s over 65504 became 65504, the "
                 "largest F16",
                 (unsigned long long)c->n_large, plural(c->n_large));
    return outdir_at_commit(&c->dir, err);
}

void
codes_close(struct codes_out *c)
{
    if (!c)
        return;
    for (size_t i = 0; c->split && i < c->n; i++)
        if (c->split[i].spill.fd >= 0)
            spill_close(&c->split[i].spill);
    free(c->split);
    outdir_at_abort(&c->dir);
    outdir_unmake(c->parent, c->n_old); /* where it is empty */
    free(c);
}
