/* SPDX-License-Identifier: ISC */
/* core/text/template: any bytes as a template, rendered with fixed variables;
 * a text is whole runs and whole spans, an error has a line. */
#include "core/text/template.h"

#include <string.h>

#include "test/fuzz/must.h"

static const char variables[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\" Be brief \"},"
    "{\"role\":\"user\",\"content\":\"Gr\xc3\xbc\xc3\x9f"
    "e\\n\"},"
    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"function\":"
    "{\"name\":\"f\",\"arguments\":{\"x\":[1,2.5,true,\"y\"]}}}]},"
    "{\"role\":\"tool\",\"content\":[{\"type\":\"text\",\"text\":\"z\"}]}],"
    "\"tools\":[{\"name\":\"f\",\"items\":{}}],\"s\":\"a b\",\"n\":3,"
    "\"d\":{\"b\":1,\"A\":null},\"bos_token\":\"<s>\","
    "\"add_generation_prompt\":true}";

static void
check(const struct rendered *r)
{
    size_t end = 0;

    MUST(utf8_valid(r->text.n ? r->text.s : "", r->text.n) == r->text.n);
    for (size_t i = 0; i < r->n_runs; i++) {
        MUST(r->runs[i].end > end);
        MUST(r->runs[i].of <= 4 || r->runs[i].of == RENDERED_DATA);
        end = r->runs[i].end;
    }
    MUST(end == r->text.n);
    for (size_t i = 0; i < r->n_said; i++)
        MUST(r->said[i].begin <= r->said[i].end && r->said[i].end <= end);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static json_t *vars;
    struct template *t = NULL;
    struct rendered r = { 0 };
    struct err err = { 0 };

    if (!vars) {
        vars = json_loads(variables, 0, NULL);
        MUST(vars);
    }
    if (template_open(&t, "t", (const char *)data, size, &err) == 0 &&
        template_render(t, vars, &r, &err) == 0)
        check(&r);
    else
        MUST(err.status == EX_DATAERR && strncmp(err.what, "t: ", 3) == 0);
    rendered_free(&r);
    template_close(t);
    return 0;
}
