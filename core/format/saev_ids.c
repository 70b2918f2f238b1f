/* SPDX-License-Identifier: ISC */
#include "core/format/saev_ids.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/format/npy.h"
#include "core/hash.h"
#include "core/js.h"
#include "core/le.h"
#include "core/mem.h"

#define JSON_MAX ((size_t)16 << 20)

/* A size that FILE.json may say is FILE's. */
static int
check_size(const struct js *root, const char *key, size_t size, struct err *err)
{
    struct js js = js_get(root, key);
    char expected[64];
    int64_t v;

    if (js_absent(&js))
        return 0;
    if (js_i64(&js, 0, INT64_MAX, &v, err) < 0)
        return -1;
    snprintf(expected, sizeof(expected), "%zu, as the ids' shape", size);
    return (size_t)v == size ? 0 : js_bad(&js, expected, err);
}

/* FILE.json, of which sizes, special tokens and the dump's HASH matter here. */
static int
read_json(struct saev_ids *ids, const char *path, struct err *err)
{
    json_t *v = js_parse(ids->json.s, ids->json.n, path, err);
    struct js root = js_root(v, path), special, dump, sum;
    const char *hash = "", *sha256 = "";
    int rc = v ? 0 : -1;

    if (v && !json_is_object(v))
        rc = js_bad(&root, "an object", err);
    if (rc == 0)
        rc = check_size(&root, "n_windows", ids->n_imgs, err);
    if (rc == 0)
        rc = check_size(&root, "ctx", ids->n_tokens, err);
    dump = js_get(&root, "dump");
    if (rc == 0 && !js_absent(&dump))
        rc = js_str(&dump, &hash, NULL, err);
    sum = js_get(&root, "ids_sha256");
    if (rc == 0 && !js_absent(&sum))
        rc = js_str(&sum, &sha256, NULL, err);
    snprintf(ids->dump, sizeof(ids->dump), "%s", hash);
    snprintf(ids->sha256, sizeof(ids->sha256), "%s", sha256);
    special = js_get(&root, "special");
    ids->knows_special = rc == 0 && !js_absent(&special);
    if (ids->knows_special && !js_is(&special, JSON_ARRAY))
        rc = js_bad(&special, "an array of ids", err);
    if (ids->knows_special && rc == 0) {
        size_t n = json_array_size(special.v);

        ids->special = xcalloc(n + 1, sizeof(*ids->special));
        for (; ids->n_special < n && rc == 0; ids->n_special++) {
            struct js item = js_at(&special, ids->n_special);
            int64_t id = 0;

            rc = js_i64(&item, 0, INT32_MAX, &id, err);
            ids->special[ids->n_special] = (int32_t)id;
        }
        qsort(ids->special, ids->n_special, sizeof(*ids->special), by_i32);
    }
    json_decref(v);
    return rc;
}

/* Those that no dump is there for. */
static int
check_any(const struct saev_ids *ids, const char *path, struct err *err)
{
    for (size_t i = 0; i < ids->n_imgs * ids->n_tokens; i++) {
        int64_t id = ids->wide ? (int64_t)le64(ids->ids + i * 8)
                               : (int32_t)le32(ids->ids + i * 4);

        if (id < -1 || id > INT32_MAX)
            return err_set(err, EX_DATAERR,
                           "%s: sequence %zu, token %zu: %lld (expected an id, "
                           "or -1 where padded)",
                           path, i / ids->n_tokens, i % ids->n_tokens,
                           (long long)id);
    }
    return 0;
}

int32_t
saev_ids_at(const struct saev_ids *ids, size_t img, size_t token)
{
    size_t i = img * ids->n_tokens + token;

    return ids->wide ? (int32_t)le64(ids->ids + i * 8)
                     : (int32_t)le32(ids->ids + i * 4);
}

void
saev_ids_hash(const struct saev_ids *ids, char hex[SAEV_HASH_MAX])
{
    struct hash *hash = hash_new(HASH_SHA256);
    size_t n = ids->n_imgs * ids->n_tokens;

    if (!ids->wide)
        hash_add(hash, ids->ids, n * sizeof(int32_t));
    for (size_t i = 0; i < n && ids->wide; i++) {
        int32_t id = saev_ids_at(ids, 0, i);

        hash_add_numbers(hash, &id, 1, sizeof(id));
    }
    hash_end(hash, hex);
}

static int
check_sha256(const struct saev_ids *ids, const char *path, struct err *err)
{
    char hex[SAEV_HASH_MAX];

    if (!*ids->sha256)
        return 0;
    saev_ids_hash(ids, hex);
    return !strcmp(hex, ids->sha256)
               ? 0
               : err_data(err, path,
                          "has another SHA-256 (%s) than its .json says (%s)",
                          hex, ids->sha256);
}

static const char *
shape_of(struct str *to, const struct npy *npy)
{
    str_adds(to, "");
    for (size_t i = 0; i < npy->n_dims; i++)
        str_addf(to, "%s%llu", i ? ", " : "",
                 (unsigned long long)npy->shape[i]);
    return to->s;
}

int
saev_ids_open(struct saev_ids *ids, const char *path, const struct saev *s,
              struct err *err)
{
    struct str name = { 0 };
    struct npy npy;
    int rc;

    *ids = (struct saev_ids){ 0 };
    if (map_open(&ids->map, path, err) < 0)
        return -1;
    rc = npy_parse(&npy, ids->map.data, smaller(ids->map.size, NPY_MAX_HEAD),
                   path, err);
    ids->wide = rc == 0 && npy.dtype == DT_I64 && !s;
    if (rc == 0 && !ids->wide && npy.dtype != DT_I32)
        rc = err_set(err, EX_DATAERR, "%s: dtype is %s (expected I32)", path,
                     dtype_table[npy.dtype].name);
    else if (rc == 0 && !s && npy.n_dims != 2)
        rc = err_set(err, EX_DATAERR,
                     "%s: has %zu dim%s (expected 2, sequences x tokens)", path,
                     npy.n_dims, npy.n_dims == 1 ? "" : "s");
    else if (rc == 0 && s &&
             (npy.n_dims != 2 || npy.shape[0] != s->n_imgs ||
              npy.shape[1] != s->n_tokens))
        rc = err_set(err, EX_DATAERR,
                     "%s: is [%s] (expected [%zu, %zu], images and tokens)",
                     path, shape_of(&name, &npy), s->n_imgs, s->n_tokens);
    str_clear(&name);
    if (rc == 0)
        rc = npy_fits(&npy, ids->map.size, path, err);
    if (rc == 0) {
        ids->ids = (const uint8_t *)ids->map.data + npy.data_offset;
        ids->n_imgs = (size_t)npy.shape[0];
        ids->n_tokens = (size_t)npy.shape[1];
        if (!s)
            rc = check_any(ids, path, err);
    }
    str_addf(&name, "%s.json", path);
    if (rc == 0 && !file_missing(name.s)) {
        rc = file_read_regular(name.s, JSON_MAX, &ids->json, err);
        if (rc == 0)
            rc = read_json(ids, name.s, err);
        if (rc == 0)
            rc = check_sha256(ids, path, err);
    }
    str_free(&name);
    if (rc < 0)
        saev_ids_close(ids);
    return rc;
}

int
saev_ids_of(struct saev_ids *ids, const struct saevdir *dir, struct err *err)
{
    struct str path = { 0 };
    char hash[SAEV_HASH_MAX] = "";
    int rc = 0;

    *ids = (struct saev_ids){ 0 };
    str_addf(&path, "%s/" SAEV_IDS, dir->path);
    if (!file_missing(path.s))
        rc = saev_ids_open(ids, path.s, &dir->saev, err);
    if (rc == 0 && ids->ids &&
        (saev_ids_check(ids, &dir->saev, path.s, err) < 0 ||
         saev_hash(&dir->saev, hash, err) < 0)) {
        saev_ids_close(ids);
        rc = -1;
    }
    if (rc == 0 && !saev_ids_are_of(ids, hash))
        err_warn("%s.json: names another dump: are these its ids?", path.s);
    str_free(&path);
    return rc;
}

bool
saev_ids_are_of(const struct saev_ids *ids, const char *hash)
{
    return !*ids->dump || !*hash || strcmp(ids->dump, hash) == 0;
}

void
saev_ids_close(struct saev_ids *ids)
{
    map_close(&ids->map);
    str_free(&ids->json);
    free(ids->special);
    *ids = (struct saev_ids){ 0 };
}

int
saev_ids_check(const struct saev_ids *ids, const struct saev *s,
               const char *path, struct err *err)
{
    for (size_t img = 0; img < s->n_imgs; img++)
        for (size_t t = 0, padded = 0; t < s->n_tokens; t++) {
            int32_t id = saev_ids_at(ids, img, t);

            padded |= s->is_padded && id == -1;
            if (padded ? id != -1 : id < 0)
                return err_set(err, EX_DATAERR,
                               "%s: image %zu, token %zu: %d (expected %s)",
                               path, img, t, id,
                               padded         ? "-1, as it is padded before"
                               : s->is_padded ? "an id, or -1 where padded"
                                              : "an id");
        }
    return 0;
}

void
saev_ids_default(struct str *path, const char *meta)
{
    static const char *const ends[] = { ".meta.json", ".json" };
    size_t n = strlen(meta);

    for (size_t i = 0; i < 2; i++) {
        size_t k = strlen(ends[i]);

        if (n > k && meta[n - k - 1] != '/' && !strcmp(meta + n - k, ends[i])) {
            n -= k;
            break;
        }
    }
    str_add(path, meta, n);
    str_adds(path, "." SAEV_IDS);
}
