/* SPDX-License-Identifier: ISC */
/*
 * core/format/pth against trees that Python wrote down: hand-made archives
 * by numpy (test/ref/pth_cases.py), and torch.save()'s own where torch is
 * installed (test/ref/pth_torch.py).
 */
#include "core/format/pth.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/map.h"
#include "core/mem.h"
#include "core/str.h"
#include "test/unit/pth-tree.h"
#include "test/unit/ref.h"
#include "test/unit/tap.h"

static const char *dir;

/* The tree of a file, or "STATUS MESSAGE". */
static int
describe_file(struct str *out, const char *path)
{
    struct err err = { 0 };
    struct pth pth;

    str_clear(out);
    if (pth_open(&pth, path, 0, NULL, &err) < 0) {
        str_addf(out, "%d %s", err.status, err.what);
        return -1;
    }
    tree_describe(out, &pth, pth.root, "");
    pth_close(&pth);
    return 0;
}

static void
test_case(const char *name, const char *file)
{
    struct str path = { 0 }, got = { 0 }, want = { 0 };
    bool good;

    (void)file;
    str_addf(&path, "%s/%s", dir, name);
    ref_read(dir, name, ".want", &want);
    describe_file(&got, path.s);
    good = got.n == want.n && !memcmp(got.s, want.s, got.n);
    tap_ok(good && got.n > 0, "pth: %s is read as Python does", name);
    if (!good)
        tree_difference(&got, &want);
    str_free(&path);
    str_free(&got);
    str_free(&want);
}

static void
test_refused(const char *name, const char *message)
{
    struct str path = { 0 }, got = { 0 };
    int rc;

    str_addf(&path, "%s/%s", dir, name);
    rc = describe_file(&got, path.s);
    tap_ok(rc < 0 && !strncmp(got.s, "65 ", 3) && strstr(got.s, path.s) &&
               !strchr(got.s, '\n') && strstr(got.s, message),
           "pth: %s is refused: %.200s", name, got.s);
    str_free(&path);
    str_free(&got);
}

/* The tree has the message in the place of elements. */
static void
test_unread(const char *name, const char *message)
{
    struct str path = { 0 }, got = { 0 };
    int rc;

    str_addf(&path, "%s/%s", dir, name);
    rc = describe_file(&got, path.s);
    tap_ok(rc == 0 && strstr(got.s, path.s) && strstr(got.s, message),
           "pth: %s opens, but is not read: %s", name, message);
    if (rc < 0 || !strstr(got.s, message))
        printf("# %.300s\n", got.s);
    str_free(&path);
    str_free(&got);
}

/* Each line of DIR/LIST: a name, a tab, the rest. */
static void
for_each(const char *list, void (*test)(const char *name, const char *rest))
{
    struct str text = { 0 };
    char *save = NULL;
    size_t n = 0;

    ref_read(dir, list, "", &text);
    for (char *line = text.n ? strtok_r(text.s, "\n", &save) : NULL; line;
         line = strtok_r(NULL, "\n", &save), n++) {
        char *tab = strchr(line, '\t');

        if (tab)
            *tab++ = '\0';
        test(line, tab);
    }
    tap_ok(n > 0, "pth: there were %zu %s", n, list);
    str_free(&text);
}

/* All that this process has touched, files included. */
static void
test_memory(void)
{
    struct rusage u;
    const char *run = getenv("TU_RUN");

#ifdef __SANITIZE_ADDRESS__
    run = "sanitized";
#endif
    getrusage(RUSAGE_SELF, &u);
    if (run)
        tap_skip("pth: less than 64 MiB, whatever the file", run);
    else
        tap_ok(u.ru_maxrss < 64 << 10,
               "pth: less than 64 MiB, whatever the file: %ld KiB",
               u.ru_maxrss);
}

/* A file in memory that holds the first n bytes of 'data'; its path. */
static const char *
in_memory(const struct str *data, size_t n)
{
    static char path[64];
    static int fd = -1;

    if (fd < 0)
        fd = memfd_create("damaged", 0);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (ftruncate(fd, (off_t)n) < 0 || pwrite(fd, data->s, n, 0) != (ssize_t)n)
        tap_ok(0, "%s can be written", path);
    return path;
}

/* Every cut is refused; a changed byte may go unseen, but does no harm. */
static void
test_damage(const char *name)
{
    struct str data = { 0 }, got = { 0 };
    size_t n_taken = 0, n_odd = 0;

    ref_read(dir, name, "", &data);
    for (size_t n = 0; n < data.n; n++) {
        n_taken += describe_file(&got, in_memory(&data, n)) == 0;
        n_odd += strncmp(got.s, "65 ", 3) != 0;
    }
    tap_ok(data.n > 500 && n_taken == 0 && n_odd == 0,
           "pth: %s cut at any of %zu bytes is refused with 65", name, data.n);
    n_odd = 0;
    for (size_t n = 0; n < data.n; n++) {
        data.s[n] ^= 0x55;
        if (describe_file(&got, in_memory(&data, data.n)) < 0)
            n_odd += strncmp(got.s, "65 ", 3) != 0;
        data.s[n] ^= 0x55;
    }
    tap_ok(n_odd == 0, "pth: %s with any byte changed is read or refused",
           name);
    str_free(&data);
    str_free(&got);
}

/* Elements first .. first + n - 1 are those of the whole tensor. */
static void
test_parts(const char *name)
{
    struct str path = { 0 };
    struct err err = { 0 };
    struct pth pth;
    size_t n_wrong = 0, n_parts = 0, n_items;
    struct pth_value **items;

    str_addf(&path, "%s/%s", dir, name);
    if (!tap_ok(pth_open(&pth, path.s, 0, NULL, &err) == 0, "pth: %s opens",
                name))
        return;
    items = pth_items(pth.root, &n_items);
    for (size_t k = 1; k < n_items; k += 2) { /* of a dict */
        const struct pth_tensor *t = items[k]->u.tensor;
        size_t size = dtype_size(t->dtype);
        uint8_t all[1024], part[1024];

        n_wrong += pth_read(&pth, t, 0, t->n_elements, all, &err) < 0;
        for (size_t i = 0; i <= t->n_elements; i++)
            for (size_t n = 0; i + n <= t->n_elements; n++, n_parts++) {
                part[n * size] = 0xa5;
                n_wrong += pth_read(&pth, t, i, n, part, &err) < 0 ||
                           memcmp(part, all + i * size, n * size) != 0 ||
                           part[n * size] != 0xa5;
            }
    }
    tap_ok(n_wrong == 0 && n_parts > 1000,
           "pth: %zu parts of the tensors of %s are parts of the whole",
           n_parts, name);
    pth_close(&pth);
    str_free(&path);
}

static void
test_cases(void)
{
    if (ref_kept("pth_cases.py", dir, "numpy")) {
        for_each("cases", test_case);
        test_damage("checkpoint-2");
        test_damage("checkpoint-4-legacy");
        test_damage("deflated");
        test_parts("views-2");
        test_parts("deflated-views");
    }
    if (ref_kept("pth_torch.py", dir, "torch"))
        for_each("torch", test_case);
    if (ref_run("pth_hostile.py", dir, "numpy")) {
        for_each("hostile", test_refused);
        for_each("unread", test_unread);
    }
}

static void
test_no_file(void)
{
    struct pth pth;
    struct err err = { 0 };

    tap_ok(pth_open(&pth, "/nowhere/x.pth", 0, NULL, &err) < 0 && !pth.root &&
               err.status == EX_NOINPUT,
           "pth: a file that is not there: %s", err.what);
    tap_ok(pth_open(&pth, "/dev/null", 0, NULL, &err) < 0 &&
               err.status == EX_NOINPUT,
           "pth: a device: %s", err.what);
}

/* With a file as argument: what is in it. */
static int
show(const char *path)
{
    struct str s = { 0 };
    struct err err = { 0 };
    struct pth pth;

    if (pth_open(&pth, path, 0, NULL, &err) < 0) {
        printf("%d %s\n", err.status, err.what);
        return err.status;
    }
    tree_describe(&s, &pth, pth.root, "");
    fputs(s.s, stdout);
    for (const struct pth_global *g = pth.pickle.globals; g; g = g->next)
        printf("global %s.%s at byte %zu\n", g->module, g->name, g->at);
    str_free(&s);
    pth_close(&pth);
    return 0;
}

int
main(int argc, char **argv)
{
    if (argc > 1)
        return show(argv[1]);
    test_no_file();
    dir = ref_dir();
    if (dir) {
        test_cases();
        test_memory();
        ref_remove(dir);
    }
    return tap_done();
}
