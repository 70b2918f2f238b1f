#include "core/format/peft_name.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"

#define ANY '\1' /* '.': of all characters in names the least */

/* A step of a search compares names some dozen times. */
#define STEPS 4

static bool
is_plain(char c)
{
    return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') ||
           c == '_' || c == '-';
}

char *
peft_name_read(const char *pattern)
{
    size_t n = strlen(pattern), at = n;
    char *name;

    if (n == 0 || n > PEFT_MAX_NAME)
        return NULL;
    name = xcalloc(n + 1, 1);
    for (const char *p = pattern; *p; p++) {
        bool escaped = *p == '\\' && p[1] && strchr("._-/ ", p[1]);

        p += escaped;
        if (!escaped && *p != '.' && !is_plain(*p)) {
            free(name);
            return NULL;
        }
        name[--at] = escaped || *p != '.' ? *p : ANY;
    }
    memmove(name, name + at, n - at + 1);
    return name;
}

static int
by_end(const void *a, const void *b)
{
    const struct peft_name *x = a, *y = b;
    int order = strcmp(x->reversed, y->reversed);

    return order ? order : (x->place > y->place) - (x->place < y->place);
}

void
peft_names_sort(struct peft_name *names, size_t n)
{
    qsort(names, n, sizeof(*names), by_end);
}

struct search {
    const struct peft_name *names;
    const char *module;
    uint64_t steps, max_steps;
    size_t found;
};

/* The first of names[lo..hi[ whose character 'at' is 'least' or more. */
static size_t
first_from(const struct search *s, size_t lo, size_t hi, size_t at, int least)
{
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if ((unsigned char)s->names[mid].reversed[at] < least)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Of names[lo..hi[ the last 'at' characters take the module from 'pos' on. */
static void
search(struct search *s, size_t lo, size_t hi, size_t at, size_t pos)
{
    const char *module = s->module;

    for (; lo < hi && s->steps <= s->max_steps; at++, pos--) {
        size_t some, before = pos;
        int c;

        s->steps += STEPS;
        if (!s->names[lo]
                 .reversed[at]) { /* it ends here: the first of equals */
            if (pos == 0 || module[pos - 1] == '.')
                s->found = smaller(s->found, s->names[lo].place);
            lo = first_from(s, lo, hi, at, ANY);
        }
        if (pos == 0)
            return;
        do
            before--;
        while (before > 0 && ((uint8_t)module[before] & 0xc0) == 0x80);
        some = first_from(s, lo, hi, at, ANY + 1);
        search(s, lo, some, at + 1, before);
        c = (unsigned char)module[pos - 1];
        lo = first_from(s, some, hi, at, c);
        hi = first_from(s, lo, hi, at, c + 1);
    }
}

size_t
peft_names_find(const struct peft_name *names, size_t n, const char *module,
                size_t nbytes, uint64_t *steps, uint64_t max_steps)
{
    struct search s = { names, module, *steps, max_steps, SIZE_MAX };

    if (!memchr(module, '\n', nbytes)) /* '.' does not take it */
        search(&s, 0, n, 0, nbytes);
    *steps = s.steps;
    return s.found;
}
