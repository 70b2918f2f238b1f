/* SPDX-License-Identifier: ISC */
/* The token ids of a dump: next to its shards, outside of its hash. */
#include "core/format/saev_ids.h"

#include <stdlib.h>
#include <string.h>

#include "cmd/saev-write/run.h"
#include "core/js.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/sig.h"

#define PIECE ((size_t)1 << 20)

/* Where hf-infer left the ids of this dump: next to the metadata, or where the
 * .json there says; nothing is appended where that is of another dump. */
static int
find_default(const struct write_run *run, struct str *path, struct err *err)
{
    struct str name = { 0 };
    const char *file, *hash = "";
    char *place;
    struct js root, dump, elsewhere;
    json_t *v;
    int rc = 0;

    saev_ids_default(&name, run->cmd->meta_path);
    file = place = xstrdup(name.s);
    str_adds(&name, ".json");
    v = file_missing(name.s) ? NULL : js_load(name.s, err);
    root = js_root(v, name.s);
    dump = js_get(&root, "dump");
    elsewhere = js_get(&root, "file");
    if (!v)
        rc = err->status ? -1 : 0;
    else if ((!js_absent(&dump) && js_str(&dump, &hash, NULL, err) < 0) ||
             (!js_absent(&elsewhere) &&
              js_str(&elsewhere, &file, NULL, err) < 0))
        rc = -1;
    else if (strcmp(hash, run->hash) != 0)
        err_warn("%s: is of another dump, its ids are left out (--ids FILE "
                 "stores them)",
                 name.s);
    else
        str_adds(path, file);
    json_decref(v);
    free(place);
    str_free(&name);
    return rc;
}

static int
put(const struct write_run *run, const char *name, const void *data, size_t n,
    struct err *err)
{
    struct str path = { 0 };
    struct out *out;
    int rc;

    str_addf(&path, "%s/%s", outdir_path(run->dir), name);
    rc = out_open(&out, path.s, OUT_RUN | OUT_READ_ONLY, false, err);
    for (size_t at = 0; rc == 0 && at < n; at += PIECE) {
        rc = sig_stop() ? sig_stopped("all shards are kept, run it again", err)
                        : out_write(out, (const char *)data + at,
                                    smaller(PIECE, n - at), err);
        if (rc < 0)
            out_abort(out);
    }
    str_free(&path);
    return rc < 0 ? -1 : out_commit(out, err);
}

int
ids_store(struct write_run *run, struct err *err)
{
    const struct write_cmd *cmd = run->cmd;
    struct str path = { 0 };
    struct saev_ids ids = { 0 };
    int rc = 0;

    if (cmd->ids_path)
        str_adds(&path, cmd->ids_path);
    else if (strcmp(cmd->meta_path, "-") != 0)
        rc = find_default(run, &path, err);
    if (rc == 0 && path.n)
        rc = saev_ids_open(&ids, path.s, &run->saev, err);
    if (rc == 0 && ids.ids)
        rc = saev_ids_check(&ids, &run->saev, path.s, err);
    if (rc == 0 && ids.ids && !saev_ids_are_of(&ids, run->hash)) {
        err_warn("%s.json: is of another dump%s", path.s,
                 cmd->ids_path ? ""
                               : ", its ids are left out (--ids FILE stores "
                                 "them)");
        if (!cmd->ids_path)
            saev_ids_close(&ids);
    }
    if (rc == 0 && ids.ids) {
        run->ids = true;
        run->ids_json = ids.json.n > 0;
        rc = put(run, SAEV_IDS, ids.map.data, ids.map.size, err);
        if (rc == 0 && run->ids_json)
            rc = put(run, SAEV_IDS ".json", ids.json.s, ids.json.n, err);
    }
    saev_ids_close(&ids);
    str_free(&path);
    return rc;
}
