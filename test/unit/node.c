/* SPDX-License-Identifier: ISC */
/* NUMA nodes, on whatever machine this is. */
#include "core/node.h"

#include <sched.h>

#include "core/par.h"
#include "test/unit/tap.h"

int
main(void)
{
    int n = node_count(), all = par_default(), sum = 0;
    cpu_set_t mask;

    sched_getaffinity(0, sizeof(mask), &mask);
    tap_ok(n >= 1 && n <= all, "no more nodes than CPUs: %d", n);
    for (int i = 0; i < n; i++) {
        node_bind(i);
        sum += par_default();
        sched_setaffinity(0, sizeof(mask), &mask);
    }
    tap_ok(sum == all, "each CPU of the mask is on one node");
    node_bind(n);
    tap_ok(par_default() == all, "a node that is not there changes nothing");
    node_bind(0);
    tap_ok(node_count() == 1 && par_default() >= 1,
           "a thread on one node sees that one");
    return tap_done();
}
