/* SPDX-License-Identifier: ISC */
#include "core/node.h"

#include "core/compat.h"

#if ON_LINUX
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define NODES    "/sys/devices/system/node/"
#define MAX_NODE 1024 /* numbers may have gaps; Linux's own limit */

/* "0-3,8-11": which of them 'mask' has. */
static bool
read_list(FILE *f, cpu_set_t *cpus, const cpu_set_t *mask)
{
    int first, last, c;

    CPU_ZERO(cpus);
    while (fscanf(f, "%d", &first) == 1) {
        last = first;
        c = fgetc(f);
        if (c == '-' && fscanf(f, "%d", &last) != 1)
            break;
        if (c == '-')
            c = fgetc(f);
        for (; first >= 0 && first <= last && first < CPU_SETSIZE; first++)
            if (CPU_ISSET(first, mask))
                CPU_SET(first, cpus);
        if (c != ',')
            break;
    }
    return CPU_COUNT(cpus) > 0;
}

/* The i-th node with CPUs of ours, or how many there are. */
static int
find(int i, cpu_set_t *cpus)
{
    cpu_set_t mask;
    int n = 0;

    if (sched_getaffinity(0, sizeof(mask), &mask) != 0)
        return 0;
    for (int node = 0; node < MAX_NODE && n <= i; node++) {
        char path[64];
        FILE *f;

        snprintf(path, sizeof(path), NODES "node%d/cpulist", node);
        f = fopen(path, "re");
        if (!f)
            continue;
        n += read_list(f, cpus, &mask);
        fclose(f);
    }
    return n;
}

int
node_count(void)
{
    cpu_set_t cpus;
    int n = find(MAX_NODE, &cpus);

    return n > 0 ? n : 1;
}

void
node_bind(int i)
{
    cpu_set_t cpus;

    if (find(i, &cpus) == i + 1)
        sched_setaffinity(0, sizeof(cpus), &cpus);
}
#else
/* No other system says which memory is whose: there is one node. */
int
node_count(void)
{
    return 1;
}

void
node_bind(int i)
{
    (void)i;
}
#endif
