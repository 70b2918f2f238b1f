/* Expectations that Python computes: running a script of test/ref. */
#ifndef TEST_UNIT_REF_H
#define TEST_UNIT_REF_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/str.h"
#include "test/unit/tap.h"

/*
 * ref_run() runs test/ref/SCRIPT DIR with $PYTHON.  False where that has no
 * MODULE, which is a skip, or where the script fails, which is not.
 */
static bool
ref_run(const char *script, const char *dir, const char *module)
{
    const char *python = getenv("PYTHON") ? getenv("PYTHON") : "python3";
    struct str command = { 0 };
    bool good;

    str_addf(&command, "%s -c 'import %s' 2>/dev/null", python, module);
    good = system(command.s) == 0;
    str_clear(&command);
    str_addf(&command, "%s test/ref/%s %s", python, script, dir);
    if (!good)
        tap_skip(script, "Python has no such module");
    else
        good = tap_ok(system(command.s) == 0, "%s runs", script);
    str_free(&command);
    return good;
}

#endif
