/* SPDX-License-Identifier: ISC */
/*
 * Templates that ask for too much, of time, text, memory or depth: each ends
 * with an error, soon, or is harmless.
 */
#include "core/text/template.h"

#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "test/unit/tap.h"

/* head, n times piece, tail; 'fine': it must give a text. */
struct bound {
    const char *name, *head, *piece;
    size_t n;
    const char *tail;
    bool fine;
};

#define FOREVER   "{% for i in r %}{% for j in r %}{% for k in r %}"
#define ENDS      "{% endfor %}{% endfor %}{% endfor %}"
#define WITH_R    "{% set r = range(100000) %}"
#define NS(x)     "{% set ns = namespace(x=" x ") %}"
#define AGAIN(x)  "{% for i in range(64) %}{% set ns.x = " x " %}{% endfor %}"
#define ROUNDS(x) WITH_R "{% for i in r %}{% set ns.x = " x " %}{% endfor %}"

static const struct bound bounds[] = {
    { "loops in loops", WITH_R FOREVER, "", 0, ENDS, false },
    { "an endless output", WITH_R FOREVER, "{{ 'abcdefgh' * 100 }}", 1, ENDS,
      false },
    { "a range of a million", "{% for i in range(1000000) %}", "", 0,
      "{% endfor %}", false },
    { "ranges beyond numbers",
      "{{ range(-9223372036854775807, 9223372036854775807) | length }}", "", 0,
      "", false },
    { "a text that doubles", NS("'ab'") AGAIN("ns.x + ns.x"), "", 0, "",
      false },
    { "a text that doubles in a block", "{% set x = 'ab' %}",
      "{% set x %}{{ x }}{{ x }}{% endset %}", 64, "", false },
    { "a text times much", "{{ 'ab' * 1000000000000 }}", "", 0, "", false },
    { "a list times much", "{{ ([0] * 1000000000000) | length }}", "", 0, "",
      false },
    { "a list that grows", NS("[1]") ROUNDS("ns.x + [i]"), "", 0, "", false },
    { "texts in a list",
      "{% set x = 'a ' * 60000000 %}{{ x.split() | length }}", "", 0, "",
      false },
    { "a list searched for ever",
      WITH_R "{% set l = r | list %}{% for i in r %}{% if -1 in l %}"
             "{% endif %}{% endfor %}",
      "", 0, "", false },
    { "lists compared for ever",
      WITH_R "{% set l = r | list %}{% set m = r | list %}{% for i in r %}"
             "{% if l == m %}{% endif %}{% endfor %}",
      "", 0, "", false },
    { "dicts sorted for ever",
      "{% set d = {1: 2, 2: 3} %}" WITH_R
      "{% for i in r %}{% for j in r %}{% for k in d | dictsort %}"
      "{% break %}{% endfor %}{% endfor %}{% endfor %}",
      "", 0, "", false },
    { "a macro that calls itself",
      "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "", 0, "", false },
    { "macros that call each other",
      "{% macro f(x) %}{{ g(x) }}{% endmacro %}"
      "{% macro g(x) %}{% if x %}{{ f(x + 1) }}{% endif %}{% endmacro %}"
      "{{ f(1) }}",
      "", 0, "", false },
    { "a macro that calls itself twice",
      "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}"
      "{% endmacro %}{{ f(100) }}",
      "", 0, "", false },
    { "an indent of a billion", "{{ [[1]] | tojson(indent=1000000000) }}", "",
      0, "", false },
    { "an indent deep down", "{% set x = [1] %}", "{% set x = [x, x] %}", 15,
      "{{ x | tojson(indent=100000) }}", false },
    { "a value in a value in a value", NS("1") ROUNDS("[ns.x]"), "", 0,
      "{{ ns.x | tojson }}", false },
    { "a value as a tree of itself", "{% set x = [1] %}",
      "{% set x = [x, x] %}", 60, "{{ x | tojson }}", false },
    { "trees compared", "{% set x = [1] %}{% set y = [1] %}",
      "{% set x = [x, x] %}{% set y = [y, y] %}", 60, "{{ x == y }}", false },
    { "a namespace in itself",
      NS("1") "{% set ns.x = [ns] %}{{ ns.x[0].x[0].x is defined }}", "", 0, "",
      true },
    { "a namespace in itself, as JSON",
      NS("1") "{% set ns.x = [ns] %}{{ ns.x | tojson }}", "", 0, "", false },
    { "numbers beyond 64 bits", "{{ 9223372036854775807 * 2 }}", "", 0, "",
      false },
    { "the least number's opposite", "{{ -(-9223372036854775807 - 1) }}", "", 0,
      "", false },
    { "the least number divided", "{{ (-9223372036854775807 - 1) // -1 }}", "",
      0, "", false },
    { "the least number's rest", "{{ (-9223372036854775807 - 1) % -1 }}", "", 0,
      "", true },
    { "the least number's size", "{{ (-9223372036854775807 - 1) | abs }}", "",
      0, "", false },
    { "a power of a power", "{{ 9 ** 9 ** 9 }}", "", 0, "", false },
    { "a float too large for a number", "{{ 123456789012345678.0 | int }}", "",
      0, "", false },
    { "a number of many digits", "{{ ", "9", 200000, " }}", false },
    { "slices beyond numbers",
      "{{ 'abc'[-9223372036854775807:9223372036854775807] }}"
      "{{ 'abc'[::9223372036854775807] }}{{ 'abc'[::-9223372036854775807] }}"
      "{{ 'abc'[9223372036854775807:-9223372036854775807:-1] }}"
      "{{ [1, 2][9223372036854775807] }}",
      "", 0, "", true },
    { "many parts of a split", "{{ 'a,b'.split(',', 9223372036854775807)[1] }}",
      "", 0, "", true },
    { "parentheses", "{{ ", "(", 200000, "1", false },
    { "lists in lists", "{{ ", "[", 200000, "1", false },
    { "mappings in mappings", "{{ ", "{1:", 100000, "1", false },
    { "signs", "{{ ", "- ", 200000, "1 }}", false },
    { "nots", "{{ ", "not ", 100000, "1 }}", false },
    { "ifs", "", "{% if 1 %}", 100000, "", false },
    { "loops", "", "{% for i in [1] %}", 200000, "", false },
    { "macros in macros", "", "{% macro f() %}", 200000, "", false },
    { "blocks of set", "", "{% set x %}", 200000, "", false },
    { "sums", "{{ 1", " + 1", 100000, " }}", false },
    { "texts put together", "{{ ''", " ~ ''", 100000, " }}", false },
    { "comparisons", "{{ 1", " == 1", 100000, " }}", true },
    { "conditions", "{{ 1", " if 1 else 1", 100000, " }}", false },
    { "ors", "{{ 0", " or 0", 100000, " }}", false },
    { "filters", "{{ 'x'", " | trim", 100000, " }}", false },
    { "attributes", "{{ x", ".x", 200000, " }}", false },
    { "subscripts", "{{ x", "[0]", 200000, " }}", false },
    { "elifs", "{% if 0 %}", "{% elif 0 %}", 100000, "{% endif %}", true },
    { "arguments", "{{ x(", "1,", 200000, "1) }}", false },
    { "many names", "", "{{ x }}{% set y = 1 %}", 50000, "", true },
    { "much text", "", "some text {{ 1 }}\n", 100000, "", true },
    { "comments", "", "{# c #}", 100000, "", true },
    { "comments that do not end", "", "{#", 2000000, "", false },
    { "braces", "", "{ ", 2000000, "", true },
    { "spaces", "", " ", 4000000, "{%- set x = 1 -%}", true },
    { "spaces before tags", "", "        {%- set x = 1 -%}   \n   ", 100000, "",
      true },
    { "a long name", "{{ ", "name", 200000, " }}", true },
    { "a text too long", "", "some text of a template\n", 1000000, "", false },
};

static double
cpu_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static long
peak_mib(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return u.ru_maxrss / 1024;
}

static void
test_bound(const struct bound *b)
{
    struct str text = { 0 };
    struct template *t = NULL;
    struct rendered r = { 0 };
    struct err err = { 0 };
    json_t *vars = json_object();
    double from = cpu_s(), took;
    bool good;
    int rc;

    str_adds(&text, b->head);
    for (size_t i = 0; i < b->n; i++)
        str_adds(&text, b->piece);
    str_adds(&text, b->tail);
    rc = template_open(&t, "t", text.s, text.n, &err);
    if (rc == 0)
        rc = template_render(t, vars, &r, &err);
    rendered_free(&r);
    template_close(t);
    json_decref(vars);
    str_free(&text);
    took = cpu_s() - from;
    good = b->fine ? rc == 0
                   : rc < 0 && err.status == EX_DATAERR &&
                         strncmp(err.what, "t: ", 3) == 0;
    tap_ok(good && took < 60, "templates: %s: %.80s", b->name,
           rc < 0 ? err.what : "a text");
    printf("# %.2f s, %ld MiB at most until here\n", took, peak_mib());
}

int
main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; i < sizeof(bounds) / sizeof(*bounds); i++)
        test_bound(&bounds[i]);
    return tap_done();
}
