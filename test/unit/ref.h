/* SPDX-License-Identifier: ISC */
/* Expectations that Python computes: the directory of a script of test/ref. */
#ifndef TEST_UNIT_REF_H
#define TEST_UNIT_REF_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/map.h"
#include "core/str.h"
#include "test/unit/tap.h"

/* "HOW test/ref/SCRIPT DIR", where $PYTHON has the module. */
static bool
ref_by(const char *how, const char *script, const char *dir, const char *module)
{
    struct str command = { 0 };
    bool good;

    str_addf(&command,
             "%s -c 'import importlib.util as u, sys; "
             "sys.exit(not u.find_spec(\"%s\"))'",
             getenv("PYTHON") ? getenv("PYTHON") : "python3", module);
    good = system(command.s) == 0;
    str_clear(&command);
    str_addf(&command, "%s test/ref/%s %s", how, script, dir);
    if (!good)
        tap_skip(script, "Python has no such module");
    else
        good = tap_ok(system(command.s) == 0, "%s runs", script);
    str_free(&command);
    return good;
}

/*
 * ref_run() runs test/ref/SCRIPT DIR with $PYTHON.  False where that has no
 * MODULE, which is a skip, or where the script fails, which is not.
 */
static __attribute__((unused)) bool
ref_run(const char *script, const char *dir, const char *module)
{
    const char *python = getenv("PYTHON");

    return ref_by(python ? python : "python3", script, dir, module);
}

/* ref_kept() runs it once for all builds: a script that reads nothing in DIR
 * and writes DIR's name into no file. */
static __attribute__((unused)) bool
ref_kept(const char *script, const char *dir, const char *module)
{
    return ref_by("sh test/unit/kept.sh", script, dir, module);
}

/* ref_dir() makes a directory and says its name, or NULL; ref_remove() removes
 * it and all that is in it. */
static __attribute__((unused)) char *
ref_dir(void)
{
    static char dir[] = "/tmp/tensorutils-unit.XXXXXX";

    return tap_ok(mkdtemp(dir) != NULL, "there is a directory for the files")
               ? dir
               : NULL;
}

/* ref_path() is DIR/NAME, until the next call. */
static __attribute__((unused)) const char *
ref_path(const char *dir, const char *name)
{
    static char path[300];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return path;
}

static __attribute__((unused)) void
ref_remove(const char *dir)
{
    struct str command = { 0 };

    str_addf(&command, "rm -r '%s'", dir);
    tap_ok(system(command.s) == 0, "the directory is removed");
    str_free(&command);
}

/* ref_read() puts DIR/NAMEEND into 'text'; false: there is nothing in it. */
static __attribute__((unused)) bool
ref_read(const char *dir, const char *name, const char *end, struct str *text)
{
    struct str path = { 0 };
    struct err err;

    str_clear(text);
    str_addf(&path, "%s/%s%s", dir, name, end);
    if (file_read_all(path.s, 1 << 26, text, &err) < 0)
        printf("# %s\n", err.what);
    str_free(&path);
    return text->n > 0;
}

/* ref_each() runs SCRIPT by ref_run() or ref_kept(), and calls test(DIR, NAME)
 * for each line of DIR/cases, which it has made. */
static __attribute__((unused)) void
ref_each(bool (*by)(const char *script, const char *dir, const char *module),
         const char *script, const char *dir, const char *module,
         void (*test)(const char *dir, const char *name))
{
    struct str cases = { 0 };
    char *save = NULL;

    if (by(script, dir, module) && ref_read(dir, "cases", "", &cases))
        for (char *name = strtok_r(cases.s, "\n", &save); name;
             name = strtok_r(NULL, "\n", &save))
            test(dir, name);
    str_free(&cases);
}

#endif
