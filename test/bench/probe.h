/* SPDX-License-Identifier: ISC */
/*
 * The machine's limits: as many operations as an instruction set can do on
 * registers alone, and bytes as fast as they can be read.
 */
#ifndef TEST_BENCH_PROBE_H
#define TEST_BENCH_PROBE_H

#include <stddef.h>
#include <stdint.h>

#include "core/kernel/cpu.h"
#include "core/par.h"

/* n steps; how many operations that was: a multiply and an add are two. */
struct probe {
    double (*f32)(uint64_t n);
    double (*bf16)(uint64_t n);
    double (*int8)(uint64_t n);
};

enum probe_kind { PROBE_F32, PROBE_BF16, PROBE_INT8, PROBE_KINDS };

/* probe_peak(): operations a second of all the threads together, at one level;
 * 0 where it has no such instruction.  About 20 ms. */
double probe_peak(struct par *par, enum isa isa, enum probe_kind kind);

/* probe_best(): of the level that runs now, or the best below it. */
double probe_best(struct par *par, enum probe_kind kind);

/* probe_cpu(): the same of one thread, a second of CPU time: neighbours that
 * take the CPU away are not in it. */
double probe_cpu(enum probe_kind kind);

/* probe_read(): bytes a second of reading [p, p + nbytes) once. */
double probe_read(struct par *par, const void *p, size_t nbytes);

/* probe_evict() reads other memory, as large as the last cache: what was read
 * before comes from memory, then. */
void probe_evict(struct par *par);

#endif
