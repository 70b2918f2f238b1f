#include "cmd/kvc-convert/order.h"

#include <stdlib.h>
#include <string.h>

#include "core/mem.h"

/* Names are compared with each, and safetensors may say which: a long one would
 * cost its length for each of the names. */
#define MAX_WORD 256 /* bytes */

/* Splits "a, b,c" at its commas, blanks and empty ones dropped; how many, or
 * -1 for more than 'max', or one that is too long. */
static int
split(const char *list, char **items, size_t max)
{
    size_t n = 0;

    for (const char *p = list; *p; p += *p == ',') {
        size_t begin = strspn(p, " "), next = strcspn(p, ","), end = next;

        while (end > begin && p[end - 1] == ' ')
            end--;
        if (end > begin && (n == max || end - begin > MAX_WORD))
            return -1;
        if (end > begin)
            items[n++] = xstrndup(p + begin, end - begin);
        p += next;
    }
    return (int)n;
}

static void
drop(char **items, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(items[i]);
        items[i] = NULL;
    }
}

int
order_prefixes(struct order *o, const char *list, struct err *err)
{
    int n;

    drop(o->prefixes, MAX_PREFIXES);
    n = split(list, o->prefixes, MAX_PREFIXES);
    o->n_prefixes = n > 0 ? (size_t)n : 0;
    if (n > 0)
        return 0;
    return err_set(
        err, TU_USAGE,
        "--prefix-order: \"%s\" is not 1 to %d names of up to %d bytes", list,
        MAX_PREFIXES, MAX_WORD);
}

int
order_slots(struct order *o, const char *list, struct err *err)
{
    drop(o->slots, KVC_SLOTS);
    if (split(list, o->slots, KVC_SLOTS) != KVC_SLOTS)
        return err_set(err, TU_USAGE, "--slot-order: \"%s\" is not %d numbers",
                       list, KVC_SLOTS);
    for (size_t i = 0; i < KVC_SLOTS; i++) {
        char *slot = o->slots[i], *digits = slot + strspn(slot, "0");

        if (strspn(slot, "0123456789") != strlen(slot))
            return err_set(err, TU_USAGE,
                           "--slot-order: \"%s\" is not a number", slot);
        digits -= !*digits; /* names have 3 for 03, and 0 for 00 */
        memmove(slot, digits, strlen(digits) + 1);
    }
    return 0;
}

void
order_free(struct order *o)
{
    drop(o->prefixes, MAX_PREFIXES);
    drop(o->slots, KVC_SLOTS);
}
