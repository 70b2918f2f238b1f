/* SPDX-License-Identifier: ISC */
/*
 * Linear layers that run on their lookup tables: --lut.
 */
#ifndef CORE_MODEL_TABLES_H
#define CORE_MODEL_TABLES_H

#include <stdbool.h>
#include <stddef.h>

#include "core/err.h"
#include "core/kernel/screen.h"
#include "core/str.h"

struct apply;
struct chunk;
struct engine;
struct model;

/*
 * tables_open() has layers of the model run on the tables, lut(5), of a
 * directory: those whose names match one of the globs 'layers', separated by
 * commas (NULL: all), with or without "model.".  Engines are opened after it.
 * A fused table stands for its parts.
 * -1 with 'err' set, as lut_open() does; EX_DATAERR for a table that is of no
 * layer, of another shape, or the second of a layer.
 * Owner: the caller, until tables_close(), after the engines; it warns where
 * outputs were NaN or infinite.
 */
struct tables;
struct tables_options {
    const char *layers;
    /* which inputs are compensated, by the layer itself; one of: */
    double ratio;     /* this part of them; else not over 0 */
    double tau;       /* those over so many elbow thresholds; else under 0 */
    const char *dims; /* those in DIR/LAYER.npy of each table; else NULL */
    bool report;      /* run the layers as well, and compare */
    bool times;       /* run the layers as well, and time both */
    bool screen;      /* see table_screen() */
};
int tables_open(struct tables **tables, struct model *model, const char *dir,
                const struct tables_options *options, struct err *err);
void tables_close(struct tables *tables); /* NULL is fine */
size_t tables_count(const struct tables *tables);

/* tables_use() has the layer of one table, of tables_count(), run on it, as all
 * do at first, or on its own weights.  Not while an engine runs.
 * tables_layer() is that layer's name. */
void tables_use(struct tables *tables, size_t i, bool use);
const char *tables_layer(const struct tables *tables, size_t i);

/* tables_times(): par_cpu_s() that one table took for a row so far, and its
 * layer by its own weights, as the engine computes it: medians of several runs,
 * 0 without a row. */
struct table_times {
    double table, layer;
};
struct table_times tables_times(const struct tables *tables, size_t i);

/* tables_stored(): how many hold the weights to compensate with; the others
 * use the model's. */
size_t tables_stored(const struct tables *tables);

/* tables_screened() adds up what they are screened by; NULL is fine. */
void tables_screened(const struct tables *tables, struct screen_counts *to);

/* tables_report() appends a line for each table, of all rows so far. */
void tables_report(const struct tables *tables, struct str *tsv);

/*
 * tables_apply() applies the tables among n layers to a chunk's rows x, and
 * copies the layers without one to 'rest' [n]; returns how many.  An engine has
 * the memory for it from tables_work_open() to tables_work_close().
 */
size_t tables_apply(struct engine *engine, const struct chunk *chunk,
                    const struct apply *to, size_t n, const float *x,
                    struct apply *rest);
/* tables_floats() is how many floats that is for each row. */
size_t tables_floats(const struct tables *tables);
int tables_work_open(struct engine *engine, struct err *err);
void tables_work_close(struct engine *engine);

#endif
