/* SPDX-License-Identifier: ISC */
/* core/inuse: what is read is not replaced.  Each expectation is inuse.h's
 * text. */
#include "core/inuse.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/map.h"
#include "core/out.h"
#include "core/outdir.h"
#include "core/str.h"
#include "test/unit/tap.h"

static int
read_file(const char *path, struct err *err)
{
    struct str s = { 0 };
    int rc = file_read_all(path, 100, &s, err);

    str_free(&s);
    return rc;
}

static bool
refused(int rc, const struct err *err, const char *path, const char *why)
{
    size_t n = strlen(path);

    return rc < 0 && err->status == TU_USAGE && !strncmp(err->what, path, n) &&
           err->what[n] == ':' && strstr(err->what, why);
}

static const char both[] = "is both an input and an output of this command";
static const char twice[] = "would be two outputs of this command";

static void
test_input_first(struct err *err)
{
    struct out *out = NULL;

    tap_ok(read_file("a", err) == 0 &&
               refused(out_open(&out, "d/../hard", OUT_FORCE, false, err), err,
                       "d/../hard", both) &&
               refused(inuse_check("a", err), err, "a", both) &&
               inuse_check("b", err) == 0 && inuse_check("-", err) == 0,
           "what was read is not replaced, by another of its names: %s",
           err->what);
    tap_ok(out_put("a", OUT_FORCE | OUT_OWN, "1", 1, err) == 0 &&
               out_put("a", OUT_FORCE, "2", 1, err) == 0,
           "but by what may do so, and the new file was not read");
}

static void
test_output_first(struct err *err)
{
    struct out *out = NULL;
    int rc;

    rc = out_open(&out, "b", OUT_FORCE, false, err);
    tap_ok(rc == 0 && read_file("a", err) == 0 &&
               refused(read_file("./b", err), err, "./b", both),
           "what is being replaced is not read: %s", err->what);
    tap_ok(refused(out_commit(out, err), err, "b", both) &&
               read_file("b", err) == 0,
           "nor is it replaced where the tool went on");
    rc = out_open(&out, "new", 0, false, err);
    tap_ok(rc == 0 && read_file("a", err) == 0 && out_commit(out, err) == 0 &&
               read_file("new", err) == 0,
           "a new file replaces none");
}

static void
test_outputs(struct err *err)
{
    struct out *one = NULL, *two = NULL;
    int rc = out_open(&one, "x", 0, false, err);

    tap_ok(rc == 0 &&
               refused(out_open(&two, "d/../x", 0, false, err), err, "d/../x",
                       twice) &&
               out_open(&two, "y", 0, false, err) == 0,
           "two outputs of one name: %s", err->what);
    out_abort(two);
    out_abort(one);
    rc = out_open(&one, "x", 0, false, err);
    tap_ok(rc == 0, "but one after the other");
    out_abort(one);
}

static void
test_claims(struct err *err)
{
    tap_ok(
        inuse_claim("free", false, err) == 0 &&
            refused(inuse_claim("./free", false, err), err, "./free", twice) &&
            inuse_claim("no/x", true, err) == 0 &&
            refused(inuse_claim("./no//x", true, err), err, "./no//x", twice) &&
            out_put("free", OUT_RUN, "1", 1, err) == 0 && unlink("free") == 0,
        "a name is claimed once, and written by its owner: %s", err->what);
    tap_ok(inuse_claim("e", false, err) == 0 &&
               refused(read_file("d/../e", err), err, "d/../e", both) &&
               inuse_claim("b", true, err) == 0 && read_file("b", err) == 0,
           "what is claimed is not read, but by its owner: %s", err->what);
    tap_ok(inuse_input_dir("d", err) == 0 &&
               refused(inuse_claim("d/no/y", false, err), err, "d/no/y",
                       "would be written into d") &&
               inuse_claim("d2", false, err) == 0 && mkdir("no", 0700) == 0 &&
               refused(inuse_input_dir("./no", err), err, "./no//x",
                       "would be written into ./no") &&
               rmdir("no") == 0,
           "nothing is made in an input that is a directory: %s", err->what);
}

static void
test_directory(struct err *err)
{
    tap_ok(
        out_put("d/f", 0, "1", 1, err) == 0 &&
            outdir_replaceable("d", false, err) == 0 &&
            read_file("d/f", err) == 0 &&
            refused(outdir_replaceable("d", false, err), err, "d", "f in it"),
        "a file in a directory: %s", err->what);
    tap_ok(outdir_replaceable("no", false, err) == 0, "no such directory");
    unlink("d/f");
}

int
main(void)
{
    static const char *const files[] = { "a", "b", "e", "hard", "new" };
    char dir[] = "/tmp/tu-inuse.XXXXXX";
    struct err err = { 0 };

    if (!mkdtemp(dir) || chdir(dir) < 0 || mkdir("d", 0700) < 0 ||
        out_put("a", 0, "1", 1, &err) < 0 || link("a", "hard") < 0 ||
        out_put("b", 0, "2", 1, &err) < 0 || out_put("e", 0, "1", 1, &err) < 0)
        return 1;
    tap_ok(read_file("b", &err) == 0 &&
               out_put("b", OUT_FORCE, "3", 1, &err) == 0,
           "a program that did not ask for it may replace what it has read");
    inuse_begin();
    test_input_first(&err);
    test_output_first(&err);
    test_outputs(&err);
    test_directory(&err);
    test_claims(&err);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        unlink(files[i]);
    return rmdir("d") < 0 || chdir("/") < 0 || rmdir(dir) < 0 ? 1 : tap_done();
}
