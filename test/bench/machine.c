/* SPDX-License-Identifier: ISC */
/* The table's head and its first rows: what this machine can do at most. */
#include <sys/mman.h>
#include <unistd.h>

#include "test/bench/bench.h"
#include "test/bench/probe.h"

#define READ_NBYTES ((size_t)1 << 30)

static void
peaks(struct par *par)
{
    static const struct {
        enum isa isa;
        enum probe_kind kind;
        const char *what;
    } probes[] = {
        { ISA_AVX2, PROBE_F32, "f32 FMA" },
        { ISA_AVX512, PROBE_F32, "f32 FMA" },
        { ISA_AVX512BF16, PROBE_BF16, "vdpbf16ps" },
        { ISA_AMX, PROBE_BF16, "tdpbf16ps" },
        { ISA_AVX2, PROBE_INT8, "vpmaddwd" },
        { ISA_AVX512VNNI, PROBE_INT8, "vpdpbusd" },
        { ISA_AMX, PROBE_INT8, "tdpbssd" },
        { ISA_NEON, PROBE_F32, "f32 FMA" },
    };

    for (size_t i = 0; i < sizeof(probes) / sizeof(*probes); i++) {
        double rate;

        if (!isa_is_under(probes[i].isa, cpu_isa()))
            continue;
        rate = probe_peak(par, probes[i].isa, probes[i].kind);
        if (rate > 0)
            row(probes[i].what, "registers", isa_name(probes[i].isa),
                par_threads(par), 1e-9 * rate,
                probes[i].kind == PROBE_INT8 ? "GOP/s" : "GFLOP/s", 0, "");
    }
}

/* On pages of 4 KiB (or the machine's size), then on huge ones where the
 * system gives them. */
static void
reads(struct par *par, int advice, const char *shape)
{
    void *p = mmap(NULL, READ_NBYTES, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    double v[7];
    long huge;

    if (p == MAP_FAILED) {
        fprintf(stderr, "bench: read memory left out: no 1 GiB to map\n");
        return;
    }
    madvise(p, READ_NBYTES, advice);
    memset(p, 1, READ_NBYTES);
    huge = proc_kib("/proc/self/smaps_rollup", "AnonHugePages:");
    if (advice == MADV_HUGEPAGE && huge < (long)(READ_NBYTES >> 11)) {
        fprintf(stderr, "bench: no huge pages here, row left out\n");
    } else {
        for (size_t i = 0; i < 7; i++)
            v[i] = probe_read(par, p, READ_NBYTES);
        row("read memory", shape, "-", par_threads(par), 1e-9 * median(v, 7),
            "GB/s", 0, "");
    }
    munmap(p, READ_NBYTES);
}

/* Which CPU the table is of: what is tuned for one is not for another. */
static void
name_cpu(int threads)
{
    long family = proc_kib("/proc/cpuinfo", "cpu family\t:");
    long model = proc_kib("/proc/cpuinfo", "model\t\t:"), l2 = 0;
    char shape[32];

#ifdef _SC_LEVEL2_CACHE_SIZE /* musl has none */
    l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
    snprintf(shape, sizeof(shape), "%ld, %ld", family, model);
    if (family >= 0)
        row("CPU family, model", shape, isa_name(cpu_isa()), threads,
            l2 > 0 ? (double)(l2 >> 10) : 0, "KiB L2", 0, "");
}

int
main(void)
{
    int all = par_default();
    struct par *par;
    struct err err;

    puts(BENCH_HEAD);
    name_cpu(all);
    for (int j = 1;; j = all) {
        if (par_open(&par, j, &err) < 0)
            return 1;
        peaks(par);
        if (memory_for("read memory", READ_NBYTES)) {
            reads(par, MADV_NOHUGEPAGE, "small pages");
            reads(par, MADV_HUGEPAGE, "huge pages");
        }
        par_close(par);
        if (j == all)
            return 0;
    }
}
