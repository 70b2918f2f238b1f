/* SPDX-License-Identifier: ISC */
/*
 * A fuzzer without libFuzzer: the inputs in test/fuzz/NAME.seeds, or those
 * named as arguments, one after another, in a process of their own.
 */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/map.h"
#include "core/mem.h"
#include "test/fuzz/must.h"
#include "test/unit/tap.h"

/* What the child is at: the parent tells it, should it not come back. */
struct progress {
    size_t n;
    char path[256];
};

/* A copy of its own for each, so that ASan sees what is read beyond it. */
static void
run_file(struct progress *at, const char *path)
{
    struct str text = { 0 };
    struct err err = { 0 };
    uint8_t *data;

    snprintf(at->path, sizeof(at->path), "%s", path);
    if (file_read_all(path, 1 << 20, &text, &err) < 0) {
        printf("# %s\n", err.what);
        exit(1);
    }
    data = xmalloc(text.n ? text.n : 1);
    if (text.n)
        memcpy(data, text.s, text.n);
    LLVMFuzzerTestOneInput(data, text.n);
    free(data);
    str_free(&text);
    at->n++;
}

static void
run_seeds(struct progress *at, const char *name)
{
    struct dirent **entries = NULL;
    char dir[128], path[400];
    int n;

    snprintf(dir, sizeof(dir), "test/fuzz/%s.seeds", name);
    n = scandir(dir, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.')
            run_file(at, path);
        free(entries[i]);
    }
    free(entries);
}

int
main(int argc, char **argv)
{
    const char *slash = strrchr(argv[0], '/');
    const char *name = slash ? slash + 1 : argv[0];
    struct progress *at = mmap(NULL, sizeof(*at), PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status = -1;
    pid_t child = fork();

    if (child == 0) {
        for (int i = 1; i < argc; i++)
            run_file(at, argv[i]);
        if (argc == 1)
            run_seeds(at, name);
        exit(0);
    }
    waitpid(child, &status, 0);
    tap_ok(status == 0 && at->n > 0, "fuzz %s: %zu inputs%s%s%s", name, at->n,
           at->n ? "" : ", seeds are files of test/fuzz/NAME.seeds/",
           status ? ", ended at " : "", status ? at->path : "");
    return tap_done();
}
