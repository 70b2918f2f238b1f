#include "cmd/lut-precompute/target.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/js.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/model/linear_file.h"
#include "core/str.h"

#define MAX_LAYERS 4096

/* An object with those of the keys that are there. */
static json_t *
some_of(const struct js *root, const char *const keys[][2])
{
    json_t *o = json_object();

    for (size_t i = 0; keys[i][0]; i++) {
        struct js js = js_get(root, keys[i][1]);

        if (!js_absent(&js))
            json_object_set_new(o, keys[i][0], json_deep_copy(js.v));
    }
    return o;
}

char *
base_name(const char *path, struct err *err)
{
    char *real = realpath(path, NULL);
    char *name;

    if (!real) {
        err_sys(err, file_status(errno), "%s", path);
        return NULL;
    }
    name = xstrdup(strrchr(real, '/') + 1);
    free(real);
    return name;
}

static int
take_config(struct target_model *m, const char *path, struct err *err)
{
    static const char *const keys[][2] = {
        { "model_type", "model_type" },
        { "num_layers", "num_hidden_layers" },
        { "num_attention_heads", "num_attention_heads" },
        { "hidden_size", "hidden_size" },
        { NULL, NULL },
    };
    struct str file = { 0 };
    json_t *v;
    int64_t n;
    int rc = -1;

    str_addf(&file, "%s/config.json", path);
    v = js_load(file.s, err);
    if (v) {
        struct js root = js_root(v, file.s);
        struct js js = js_get(&root, "num_hidden_layers");

        rc = js_is(&root, JSON_OBJECT) ? js_i64(&js, 1, MAX_LAYERS, &n, err)
                                       : js_bad(&root, "an object", err);
        if (rc == 0) {
            m->n_layers = (size_t)n;
            m->config = some_of(&root, keys);
        }
    }
    json_decref(v);
    str_free(&file);
    return rc;
}

int
target_model_open(struct target_model *m, const char *path, struct err *err)
{
    *m = (struct target_model){ .name = base_name(path, err) };
    if (m->name && take_config(m, path, err) == 0 &&
        stdir_open(&m->dir, path, err) == 0) {
        if (stdir_map(&m->dir, err) == 0)
            return 0;
    }
    target_model_close(m);
    return -1;
}

void
target_model_close(struct target_model *m)
{
    stdir_close(&m->dir);
    json_decref(m->config);
    free(m->name);
    *m = (struct target_model){ 0 };
}

static int
take_part(struct target_layer *t, const struct target_model *m,
          struct target_part *p, struct err *err)
{
    const struct stdir_tensor *bias;
    struct linear l;
    int has = linear_file_find(&l, &bias, &m->dir, p->name, err);

    if (has <= 0)
        return has;
    if (t->out > 0 && l.cols != t->in)
        return err_set(err, EX_DATAERR,
                       "%s: %s.weight has %zu columns, but %s.weight %zu",
                       m->dir.path, p->name, l.cols, t->parts[0].name, t->in);
    p->w = (struct matrix){ l.w, l.dtype, l.rows, l.cols, false };
    if (bias)
        p->bias = (struct matrix){ st_data(bias->st, bias->t), bias->t->dtype,
                                   1, l.rows, false };
    t->in = l.cols;
    t->out += l.rows;
    t->has_bias |= bias != NULL;
    return 1;
}

int
target_open(struct target_layer *t, const struct target_model *m,
            const char *name, struct err *err)
{
    char *parts[LUT_MAX_PARTS];
    int there = 1;

    *t = (struct target_layer){ .name = xstrdup(name) };
    t->op = strrchr(t->name, '.') ? strrchr(t->name, '.') + 1 : t->name;
    t->n_parts = linear_file_parts(&m->dir, name, parts);
    for (size_t i = 0; i < t->n_parts; i++)
        t->parts[i].name = parts[i];
    for (size_t i = 0; i < t->n_parts && there > 0; i++)
        there = take_part(t, m, &t->parts[i], err);
    if (there <= 0)
        target_close(t);
    return there;
}

void
target_close(struct target_layer *t)
{
    for (size_t i = 0; i < t->n_parts; i++)
        free(t->parts[i].name);
    free(t->name);
    *t = (struct target_layer){ 0 };
}
