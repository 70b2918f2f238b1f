/* SPDX-License-Identifier: ISC */
#include "core/image/source.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/compat.h"
#include "core/image/tar.h"
#include "core/le.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/tty.h"

#define MAX_DIRS       ((size_t)1 << 24) /* links can make any number of a few */
#define MAX_KEY_IMAGES 4096 /* images of one key, whose label may come last */
#define MAX_LABEL      64   /* bytes of a .cls */

enum kind { DIRECTORY, LIST, ONE, TAR };

struct image_source {
    enum kind kind;
    const char *path, *name; /* of messages: "standard input" */
    int fd;

    struct str text;    /* a directory's names, or a list's, each with its NUL;
                         * or the picture itself */
    size_t *name_at;    /* [count] in text: of a directory, sorted; of a list */
    size_t count, done; /* images */
    size_t names_cap;
    int64_t label; /* of the image before */
    struct str class;

    struct tar tar;
    bool has_member, ended;     /* the member is of the next key */
    struct source_image *group; /* [n_group] of one key, with their label */
    size_t n_group, n_given, cap;
};

void
source_image_free(struct source_image *image)
{
    str_free(&image->path);
    str_free(&image->class);
    str_free(&image->bytes);
}

static void
set_text(struct str *to, const char *s, size_t n)
{
    str_clear(to);
    str_add(to, s, n);
}

/* Does a name end in one of these, in any case?  The last one is NULL. */
static bool
ends_as(const char *name, const char *const *ends)
{
    const char *dot = strrchr(name, '.');

    while (dot && *ends && strcasecmp(dot, *ends) != 0)
        ends++;
    return dot && *ends;
}

/* Another name is there in the text. */
static void
add_name(struct image_source *s, size_t at)
{
    if (s->count == s->names_cap)
        s->name_at =
            xgrow(s->name_at, s->count, &s->names_cap, sizeof(*s->name_at));
    s->name_at[s->count++] = at;
}

/* ---- a directory ---- */

/* A directory to list, after the one that it is in: its name below the
 * source's, "" or "a/b/". */
struct dir {
    size_t above;
    dev_t dev;
    ino_t ino;
    char *name;
};

/* Is it one of those above, to which a link leads back? */
static bool
is_above(const struct dir *dirs, size_t i, const struct stat *st)
{
    while (dirs[i].dev != st->st_dev || dirs[i].ino != st->st_ino) {
        if (i == 0)
            return false;
        i = dirs[i].above;
    }
    return true;
}

struct walk {
    struct image_source *source;
    struct dir *dirs; /* [n] */
    size_t n, cap;
};

/* Takes what the directory w->dirs[i] has. */
static int
list_dir(struct walk *w, size_t i, struct err *err)
{
    static const char *const ends[] = { ".jpg",  ".jpeg", ".png", ".ppm",
                                        ".bmp",  ".pgm",  ".tif", ".tiff",
                                        ".webp", NULL };
    struct image_source *s = w->source;
    struct str path = { 0 };
    struct dirent *entry;
    struct stat st;
    DIR *dir;
    int rc = 0;

    str_addf(&path, "%s/%s", s->path, w->dirs[i].name);
    dir = opendir(path.s);
    if (!dir)
        rc = err_sys(err, file_status(errno), "%s", path.s);
    while (rc == 0 && (rc = dir_next(dir, path.s, &entry, err)) > 0) {
        const char *name = entry->d_name;
        bool there = fstatat(dirfd(dir), name, &st, 0) == 0;

        rc = 0;
        if (!strcmp(name, ".") || !strcmp(name, ".."))
            continue;
        if (there && S_ISDIR(st.st_mode)) {
            struct str below = { 0 };

            if (is_above(w->dirs, i, &st))
                rc = err_data(err, s->name, "%s%s: a link to a directory above",
                              w->dirs[i].name, name);
            else if (w->n == MAX_DIRS)
                rc = err_data(err, s->name, "more than %zu directories",
                              MAX_DIRS);
            if (rc < 0)
                break;
            str_addf(&below, "%s%s/", w->dirs[i].name, name);
            if (w->n == w->cap)
                w->dirs = xgrow(w->dirs, w->n, &w->cap, sizeof(*w->dirs));
            w->dirs[w->n++] = (struct dir){ i, st.st_dev, st.st_ino, below.s };
        } else if (ends_as(name, ends)) {
            add_name(s, s->text.n);
            str_addf(&s->text, "%s%s", w->dirs[i].name, name);
            str_addc(&s->text, '\0');
        }
        if (s->text.n > SOURCE_MAX_BYTES)
            rc = err_data(err, s->name, "over %zu bytes of names",
                          SOURCE_MAX_BYTES);
    }
    if (dir)
        closedir(dir);
    str_free(&path);
    return rc;
}

static int
compare_bytes(const char *a, size_t n_a, const char *b, size_t n_b)
{
    int c = memcmp(a, b, smaller(n_a, n_b));

    return c ? c : (n_a > n_b) - (n_a < n_b);
}

/* By class, by directory, by name. */
static int
compare_names(const void *a, const void *b, void *ctx)
{
    const char *names = ctx;
    const char *x = names + *(const size_t *)a, *y = names + *(const size_t *)b;
    const char *last_x = strrchr(x, '/'), *last_y = strrchr(y, '/');
    int c;

    if (!last_x || !last_y)
        return last_x || last_y ? (last_x ? 1 : -1) : strcmp(x, y);
    c = compare_bytes(x, strcspn(x, "/"), y, strcspn(y, "/"));
    if (c == 0)
        c = compare_bytes(x, (size_t)(last_x - x), y, (size_t)(last_y - y));
    return c ? c : strcmp(last_x, last_y);
}

static int
open_dir(struct image_source *s, const struct stat *st, struct err *err)
{
    struct walk w = { .source = s };
    int rc = 0;

    s->kind = DIRECTORY;
    w.dirs = xgrow(NULL, 0, &w.cap, sizeof(*w.dirs));
    w.dirs[w.n++] = (struct dir){ 0, st->st_dev, st->st_ino, xstrdup("") };
    for (size_t i = 0; i < w.n && rc == 0; i++)
        rc = list_dir(&w, i, err);
    for (size_t i = 0; i < w.n; i++)
        free(w.dirs[i].name);
    free(w.dirs);
    sort_with(s->name_at, s->count, sizeof(*s->name_at), compare_names,
              s->text.s);
    return rc;
}

static void
next_of_dir(struct image_source *s, struct source_image *image)
{
    const char *name = s->text.s + s->name_at[s->done++];
    size_t n = strchr(name, '/') ? strcspn(name, "/") : 0;

    if (n != s->class.n || (n && memcmp(name, s->class.s, n) != 0)) {
        set_text(&s->class, name, n);
        s->label++;
    }
    str_addf(&image->path, "%s%s", s->path, str_ends(s->path, "/") ? "" : "/");
    image->name_at = image->path.n;
    str_adds(&image->path, name);
    str_add(&image->class, s->class.s, n);
    image->label = s->label;
}

/* ---- a list, and one picture ---- */

static int
open_list(struct image_source *s, struct err *err)
{
    s->kind = LIST;
    if (memchr(s->text.s, '\0', s->text.n))
        return err_data(err, s->name,
                        "is neither a directory, a PNG, a JPEG or a tar "
                        "archive, nor a list of paths, one a line");
    str_addc(&s->text, '\n');
    for (size_t at = 0, n; at < s->text.n; at += n + 1) {
        n = strcspn(s->text.s + at, "\n");
        s->text.s[at + n] = '\0';
        if (n > 0)
            add_name(s, at);
    }
    return 0;
}

static void
next_of_one(struct image_source *s, struct source_image *image)
{
    str_adds(&image->path, s->path);
    str_add(&image->bytes, s->text.s, s->text.n);
    image->nbytes = s->text.n;
    image->is_read = true;
    s->done++;
}

/* ---- an archive ---- */

/* KEY's bytes, 0: it has none. */
static size_t
key_nbytes(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const char *dot = strchr(name, '.');

    return dot ? (size_t)(dot - path) : 0;
}

static int
read_label(struct image_source *s, int64_t *label, struct err *err)
{
    struct str text = { 0 };
    char *end = NULL;
    int rc = 0;

    if (s->tar.nbytes <= MAX_LABEL)
        rc = tar_read(&s->tar, &text, err);
    str_addc(&text, '\0');
    errno = 0;
    *label = strtoll(text.s, &end, 10);
    if (rc == 0 && (errno || end == text.s ||
                    end + strspn(end, " \t\r\n") < text.s + text.n - 1))
        rc = err_data(err, s->name, "%s: is not an integer, a label",
                      s->tar.path.s);
    str_free(&text);
    return rc;
}

static int
add_image(struct image_source *s, size_t *nbytes, struct err *err)
{
    struct tar *t = &s->tar;
    struct source_image *image;
    bool too_big = t->nbytes > SOURCE_MAX_BYTES;

    *nbytes += too_big ? 0 : t->nbytes;
    if (s->n_group == MAX_KEY_IMAGES || *nbytes > SOURCE_MAX_BYTES)
        return err_data(err, s->name,
                        "%s: the images of one key, those before the first "
                        "dot, are over %d or over %zu bytes",
                        t->path.s, MAX_KEY_IMAGES, SOURCE_MAX_BYTES);
    if (s->n_group == s->cap) {
        size_t before = s->cap;

        s->group = xgrow(s->group, s->n_group, &s->cap, sizeof(*s->group));
        memset(s->group + before, 0, (s->cap - before) * sizeof(*s->group));
    }
    image = &s->group[s->n_group++];
    set_text(&image->path, t->path.s, t->path.n);
    str_clear(&image->bytes);
    image->nbytes = t->nbytes;
    return too_big ? 0 : tar_read(t, &image->bytes, err);
}

/* All members of the next key. */
static int
read_group(struct image_source *s, struct err *err)
{
    static const char *const ends[] = { ".png", ".jpg", ".jpeg", NULL };
    struct str key = { 0 };
    size_t nbytes = 0;
    bool has_label = false;
    int64_t label = -1;
    int rc = 0;

    s->n_group = s->n_given = 0;
    while (rc == 0) {
        const char *path;
        size_t n;

        rc = s->has_member ? 1 : tar_next(&s->tar, err);
        s->has_member = rc > 0;
        s->ended = rc == 0;
        if (rc <= 0)
            break;
        rc = 0;
        path = s->tar.path.s;
        n = key_nbytes(path);
        if (key.n > 0 && (n != key.n || memcmp(path, key.s, n) != 0))
            break;
        s->has_member = false;
        if (n == 0)
            continue;
        set_text(&key, path, n);
        if (!strcmp(path + n, ".cls")) {
            if (has_label)
                rc = err_data(err, s->name, "%s: a second label of one key",
                              path);
            has_label = true;
            rc = rc < 0 ? -1 : read_label(s, &label, err);
        } else if (ends_as(path, ends)) {
            rc = add_image(s, &nbytes, err);
        }
    }
    for (size_t i = 0; i < s->n_group; i++)
        s->group[i].label = label;
    str_free(&key);
    return rc;
}

static int
next_of_tar(struct image_source *s, struct source_image *image, struct err *err)
{
    struct source_image *from, empty = *image;

    while (s->n_given == s->n_group && !s->ended)
        if (read_group(s, err) < 0)
            return -1;
    if (s->n_given == s->n_group)
        return s->done ? 0
                       : err_data(err, s->name,
                                  "there is no image in the archive (.png, "
                                  ".jpg, .jpeg)");
    from = &s->group[s->n_given++];
    *image = *from; /* and its memory for the next group */
    *from = empty;
    image->name_at = 0;
    image->is_read = true;
    s->done++;
    return 1;
}

/* ---- any ---- */

/* What a file is by its first bytes. */
static int
open_stream(struct image_source *s, struct err *err)
{
    ssize_t n;

    s->fd = strcmp(s->path, "-") == 0 ? 0 : file_open_any(s->path, err);
    if (s->fd < 0)
        return -1;
    str_reserve(&s->text, TAR_BLOCK);
    n = file_read_full(s->fd, s->name, s->text.s, TAR_BLOCK, err);
    if (n < 0)
        return -1;
    s->text.n = (size_t)n;
    if (tar_sniff(s->text.s, s->text.n)) {
        s->kind = TAR;
        s->tar = (struct tar){
            .fd = s->fd, .name = s->name, .has_block = true, .at = TAR_BLOCK
        };
        memcpy(s->tar.block, s->text.s, TAR_BLOCK);
        return 0;
    }
    while (n > 0) {
        size_t piece = larger(s->text.n, 1 << 16);

        if (s->text.n > SOURCE_MAX_BYTES)
            return err_data(err, s->name, "over %zu bytes", SOURCE_MAX_BYTES);
        str_reserve(&s->text, piece);
        n = file_read_full(s->fd, s->name, s->text.s + s->text.n, piece, err);
        if (n < 0)
            return -1;
        s->text.n += (size_t)n;
    }
    if (s->text.n > 7 && (!memcmp(s->text.s, "\x89PNG", 4) ||
                          !memcmp(s->text.s, "\xff\xd8", 2))) {
        s->kind = ONE;
        s->count = 1;
        return 0;
    }
    return open_list(s, err);
}

int
image_source_open(struct image_source **source, const char *path,
                  struct err *err)
{
    struct image_source *s = xcalloc(1, sizeof(*s));
    bool is_stdin = !strcmp(path, "-");
    struct stat st;
    int rc;

    s->path = path;
    s->name = is_stdin ? "standard input" : path;
    s->fd = -1;
    s->label = -1;
    rc = !is_stdin && stat(path, &st) == 0 && S_ISDIR(st.st_mode)
             ? open_dir(s, &st, err)
             : open_stream(s, err);
    if (rc == 0 && s->kind != TAR && s->count == 0)
        rc = err_data(err, s->name, "there is no image");
    if (rc < 0) {
        image_source_close(s);
        s = NULL;
    }
    *source = s;
    return rc;
}

void
image_source_close(struct image_source *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->cap; i++)
        source_image_free(&s->group[i]);
    free(s->group);
    tar_free(&s->tar);
    if (s->fd > 0)
        close(s->fd);
    str_free(&s->class);
    str_free(&s->text);
    free(s->name_at);
    free(s);
}

const char *
image_source_name(const struct image_source *s)
{
    return s->name;
}

size_t
image_source_count(const struct image_source *s)
{
    return s->count;
}

int
image_source_next(struct image_source *s, struct source_image *image,
                  struct err *err)
{
    if (s->kind == TAR)
        return next_of_tar(s, image, err);
    if (s->done == s->count)
        return 0;
    str_clear(&image->path);
    str_clear(&image->class);
    str_clear(&image->bytes);
    image->name_at = image->nbytes = 0;
    image->label = -1;
    image->is_read = false;
    if (s->kind == DIRECTORY)
        next_of_dir(s, image);
    else if (s->kind == LIST)
        str_adds(&image->path, s->text.s + s->name_at[s->done++]);
    else
        next_of_one(s, image);
    return 1;
}

int
image_source_bad(const struct image_source *s, const struct source_image *image,
                 const struct err *why, struct err *err)
{
    const char *path = image->path.s, *what = why->what;
    size_t n = image->path.n;
    struct err e = *why;

    if (!strncmp(what, path, n) && !strncmp(what + n, ": ", 2))
        what += n + 2;
    if (e.status == EX_NOINPUT)
        e.status = EX_DATAERR;
    if (s->kind == ONE)
        err_set(err, e.status, "%s: %s", s->name, what);
    else
        err_set(err, e.status, "%s: %s: %s", s->name, path + image->name_at,
                what);
    return -1;
}

int
image_source_read(const struct image_source *s, struct source_image *image,
                  struct err *err)
{
    struct err why = { 0 };

    if (!image->is_read) {
        if (file_read_regular(image->path.s, SOURCE_MAX_BYTES, &image->bytes,
                              &why) < 0)
            return image_source_bad(s, image, &why, err);
        image->nbytes = image->bytes.n;
        image->is_read = true;
    }
    if (image->nbytes <= SOURCE_MAX_BYTES)
        return 0;
    err_set(&why, EX_DATAERR, "is longer than %zu bytes", SOURCE_MAX_BYTES);
    return image_source_bad(s, image, &why, err);
}

void
source_image_hash(struct hash *hash, const struct source_image *image,
                  bool bytes)
{
    uint8_t size[8];

    put_le64(size, image->nbytes);
    hash_add(hash, image->path.s + image->name_at,
             image->path.n - image->name_at + 1);
    hash_add(hash, size, sizeof(size));
    if (bytes && image->bytes.n > 0)
        hash_add(hash, image->bytes.s, image->bytes.n);
}

int
image_source_hash(struct image_source *s, struct hash *hash, bool bytes,
                  struct err *err)
{
    struct source_image image = { 0 };
    struct err why = { 0 };
    struct stat st;
    int rc;

    while ((rc = image_source_next(s, &image, err)) > 0) {
        if (bytes && image_source_read(s, &image, &why) < 0 &&
            why.status != EX_DATAERR) {
            rc = err_set(err, why.status, "%s", why.what);
            break;
        }
        if (!image.is_read && stat(image.path.s, &st) == 0) {
            image.nbytes = (size_t)st.st_size;
        } else if (!image.is_read && errno == EIO) { /* not: it is not there */
            rc = err_sys(err, EX_IOERR, "%s", image.path.s);
            break;
        }
        source_image_hash(hash, &image, bytes);
    }
    source_image_free(&image);
    s->done = 0;
    s->label = -1;
    str_clear(&s->class);
    return rc;
}
