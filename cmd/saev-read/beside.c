#include "cmd/saev-read/beside.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/js.h"
#include "core/map.h"
#include "core/mem.h"

#define HASH_DIGITS     64
#define XXH3_DIGITS     32
#define MANIFEST_MAX    ((size_t)1 << 30)
#define SHARDS_MAX      ((size_t)1 << 30)
#define MANIFEST_NAME   "manifest.xxh3"
#define LOWER_HEX       "0123456789abcdef"
#define MANIFEST_MIDDLE "  "

/* The last name of a path: 64 hex digits, or NULL. */
static const char *
hash_name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;

    return strlen(name) == HASH_DIGITS && strspn(name, LOWER_HEX) == HASH_DIGITS
               ? name
               : NULL;
}

bool
folder_hash(const struct saevdir *dir, char hash[SAEV_HASH_MAX])
{
    char *real = realpath(dir->path, NULL);
    const char *name = hash_name_of(dir->path);

    if (!name && real)
        name = hash_name_of(real);
    if (name)
        memcpy(hash, name, SAEV_HASH_MAX);
    free(real);
    return name != NULL;
}

static int
check_name(struct dump_check *c, struct err *err)
{
    char hash[SAEV_HASH_MAX], name[SAEV_HASH_MAX];

    if (!folder_hash(&c->dir, name))
        return 0;
    if (saev_hash(&c->dir.saev, hash, err) < 0)
        return -1;
    if (*hash && strcmp(name, hash) != 0)
        problem(c,
                "metadata.json: has the hash %s (expected the folder's name)",
                hash);
    return 0;
}

/* One entry of shards.json. */
static int
check_entry(struct dump_check *c, const struct js *entry, size_t i,
            struct err *err)
{
    const struct saev *s = &c->dir.saev;
    struct js name = js_get(entry, "name"), n = js_get(entry, "n_imgs");
    const char *found, *key = "n_imgs";
    char expected[32];
    int64_t n_imgs;
    size_t want = i < s->n_shards ? saev_shard_imgs(s, i) : 0;

    if (js_absent(&n)) {
        n = js_get(entry, "n_examples");
        key = "n_examples";
    }
    if (js_str(&name, &found, NULL, err) < 0 ||
        js_i64(&n, 0, INT64_MAX, &n_imgs, err) < 0)
        return -1;
    saev_shard_name(expected, i);
    if (strcmp(found, expected) != 0)
        problem(c, "shards.json: [%zu].name is \"%s\" (expected \"%s\")", i,
                found, expected);
    else if ((size_t)n_imgs != want)
        shard_problem(c, i, "%s in shards.json is %zu (expected %zu)", key,
                      (size_t)n_imgs, want);
    return 0;
}

static int
check_entries(struct dump_check *c, const json_t *v, const char *path,
              struct err *err)
{
    const struct saev *s = &c->dir.saev;
    struct js root = js_root(v, path);
    size_t n = json_array_size(v);
    bool extra = s->n_imgs % s->shard_imgs == 0 && n == s->n_shards + 1;

    if (!js_is(&root, JSON_ARRAY))
        return js_bad(&root, "an array", err);
    if (n != s->n_shards && !extra)
        problem(c, "shards.json: lists %zu shards (expected %zu)", n,
                s->n_shards);
    for (size_t i = 0; i < n && i < s->n_shards + extra; i++) {
        struct js entry = js_at(&root, i);

        if (check_entry(c, &entry, i, err) < 0) {
            end_run(c);
            return -1;
        }
    }
    end_run(c);
    return 0;
}

static int
check_shards_json(struct dump_check *c, struct err *err)
{
    struct str path = { 0 }, text = { 0 };
    json_t *v = NULL;
    int rc = -1;

    if (c->dir.saev.version < SAEV_1_0)
        return 0;
    str_addf(&path, "%s/shards.json", c->dir.path);
    if (file_read_regular(path.s, SHARDS_MAX, &text, err) == 0)
        v = js_parse(text.s, text.n, path.s, err);
    if (v)
        rc = check_entries(c, v, path.s, err);
    json_decref(v);
    str_free(&path);
    str_free(&text);
    if (rc == 0 || err->status == EX_IOERR || err->status == EX_TEMPFAIL)
        return rc;
    problem(c, "%s", short_of(c, err->what));
    return 0;
}

/* u8 [n_imgs, n_patches], if it is there. */
static int
check_labels(struct dump_check *c, struct err *err)
{
    const struct saev *s = &c->dir.saev;
    struct str path = { 0 };
    struct stat st;
    size_t want;
    int rc = 0;

    if (s->version < SAEV_1_1)
        return 0;
    str_addf(&path, "%s/labels.bin", c->dir.path);
    if (file_missing(path.s))
        ;
    else if (stat(path.s, &st) < 0)
        rc = err_sys(err, file_status(errno), "%s", path.s);
    else if (size_mul(s->n_imgs, s->n_patches, &want) &&
             (size_t)st.st_size != want)
        problem(c, "labels.bin: %zu bytes (expected %zu)", (size_t)st.st_size,
                want);
    str_free(&path);
    return rc;
}

static int
check_leftovers(struct dump_check *c, struct err *err)
{
    DIR *d = opendir(c->dir.path);
    struct dirent *e;
    struct str line = { 0 };
    int rc;

    if (!d)
        return err_sys(err, file_status(errno), "%s", c->dir.path);
    while ((rc = dir_next(d, c->dir.path, &e, err)) > 0)
        if (*e->d_name == '.' && strstr(e->d_name, ".tmp.")) {
            str_clear(&line);
            str_addf(&line, "%s: a writer left it, or still writes it",
                     e->d_name);
            lines_add(&c->notes, line.s);
        }
    str_free(&line);
    closedir(d);
    return rc;
}

/* "HEX  acts000012.bin" in [line, end); false: it is not that. */
static bool
parse_entry(struct manifest_entry *entry, const char *line, const char *end)
{
    char name[32] = "";
    size_t n = (size_t)(end - line);
    const size_t fixed = XXH3_DIGITS + sizeof(MANIFEST_MIDDLE) - 1;

    if (n <= fixed || n - fixed >= sizeof(name) ||
        memcmp(line + XXH3_DIGITS, MANIFEST_MIDDLE, fixed - XXH3_DIGITS) != 0)
        return false;
    memcpy(entry->hex, line, XXH3_DIGITS);
    entry->hex[XXH3_DIGITS] = '\0';
    memcpy(name, line + fixed, n - fixed);
    return strspn(entry->hex, LOWER_HEX) == XXH3_DIGITS &&
           saev_shard_of(name, &entry->shard);
}

static int
by_shard(const void *a, const void *b)
{
    size_t x = ((const struct manifest_entry *)a)->shard;
    size_t y = ((const struct manifest_entry *)b)->shard;

    return x < y ? -1 : x > y;
}

static void
parse_manifest(struct dump_check *c, const struct str *text)
{
    struct manifest *m = &c->manifest;
    const char *end = text->s + text->n, *line_end;
    size_t n_lines = 1, first_bad = 0, n_bad = 0;

    for (const char *p = text->s; p < end; p = line_end + 1, n_lines++) {
        struct manifest_entry entry;

        line_end = memchr(p, '\n', (size_t)(end - p));
        if (!line_end)
            line_end = end;
        if (!parse_entry(&entry, p, line_end)) {
            first_bad = n_bad++ ? first_bad : n_lines;
            continue;
        }
        if (m->n == m->cap) {
            m->cap = 2 * m->cap + 64;
            m->entries = xrealloc(m->entries, m->cap, sizeof(*m->entries));
        }
        m->entries[m->n++] = entry;
    }
    if (n_bad)
        problem(c,
                MANIFEST_NAME ": %zu lines are not HASH, two spaces and a "
                              "shard's name (the first is line %zu)",
                n_bad, first_bad);
    if (m->n)
        qsort(m->entries, m->n, sizeof(*m->entries), by_shard);
}

/* Every file has one entry, every entry a file; a shard that is missing has
 * been told. */
static void
match_manifest(struct dump_check *c)
{
    const struct manifest *m = &c->manifest;
    const struct saevdir *dir = &c->dir;
    size_t i = 0, k = 0;

    while (i < m->n || k < dir->n_there) {
        size_t entry = i < m->n ? m->entries[i].shard : SIZE_MAX;
        size_t file = k < dir->n_there ? dir->files[k].shard : SIZE_MAX;
        size_t before = i;

        while (i < m->n && m->entries[i].shard == entry && entry <= file)
            i++;
        if (i - before > 1)
            shard_problem(c, entry, "%zu times in " MANIFEST_NAME, i - before);
        else if (file < entry)
            shard_problem(c, file, "not in " MANIFEST_NAME);
        else if (entry < file && entry >= dir->saev.n_shards)
            shard_problem(c, entry, "in " MANIFEST_NAME ", but not there");
        k += file <= entry && k < dir->n_there;
    }
    end_run(c);
}

static int
check_manifest(struct dump_check *c, struct err *err)
{
    struct str path = { 0 }, text = { 0 };
    int rc = 0;

    str_addf(&path, "%s/" MANIFEST_NAME, c->dir.path);
    if (!file_missing(path.s)) {
        rc = file_read_regular(path.s, MANIFEST_MAX, &text, err);
        if (rc == 0) {
            parse_manifest(c, &text);
            match_manifest(c);
        }
    }
    str_free(&path);
    str_free(&text);
    return rc;
}

int
check_beside(struct dump_check *c, struct err *err)
{
    if (check_labels(c, err) < 0 || check_name(c, err) < 0 ||
        check_shards_json(c, err) < 0 || check_manifest(c, err) < 0)
        return -1;
    return check_leftovers(c, err);
}
