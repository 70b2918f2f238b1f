/* sae-train info: what the state of a run says. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/sae-train/cmd.h"
#include "core/format/st.h"
#include "core/js.h"
#include "core/le.h"
#include "core/str.h"

/* Rows of the input that the run had: "input", its second number. */
static int
rows_had(const struct st *st, double *rows, struct err *err)
{
    const struct st_tensor *t = st_find(st, "input");
    unsigned char number[8];

    if (!t || t->dtype != DT_F64 || t->n_elements != 3)
        return err_set(err, EX_DATAERR, "%s: is not a state of sae-train",
                       st->path);
    if (st_pread(st, t, number, 8, 8, err) < 0)
        return -1;
    *rows = le_f64(number);
    return 0;
}

static int
print_run(const char *dir, bool json, struct err *err)
{
    struct str path = { 0 }, text = { 0 };
    struct st st;
    double rows = 0;
    int rc;

    str_addf(&path, "%s/state.safetensors", dir);
    rc = st_open(&st, path.s, err);
    str_free(&path);
    if (rc < 0)
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

int
info_main(const struct train_cmd *cmd, struct err *err)
{
    if (cmd->n_paths == 0)
        return err_set(err, TU_USAGE, "a DIR is missing");
    for (int i = 0; i < cmd->n_paths; i++)
        if (print_run(cmd->paths[i], cmd->json, err) < 0)
            return -1;
    return 0;
}
