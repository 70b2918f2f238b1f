/* SPDX-License-Identifier: ISC */
/*
 * NUMA nodes, as Linux lists them in /sys: memory is on the node of the
 * thread that first touches it, so binding threads is all there is to do.
 */
#ifndef CORE_NODE_H
#define CORE_NODE_H

/* node_count() is how many nodes have CPUs of this process's affinity mask;
 * 1 where that is unknown. */
int node_count(void);

/* node_bind() keeps the calling thread, and those that it starts from then on,
 * to the CPUs of the mask on the i-th of these nodes.  Where it cannot, nothing
 * changes. */
void node_bind(int i);

#endif
