/* The table's head and its first rows: what this machine can do at most. */
#include "core/mem.h"
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

        if (probes[i].isa == ISA_NEON
                ? cpu_isa() != ISA_NEON
                : probes[i].isa > cpu_isa() || cpu_isa() == ISA_NEON)
            continue;
        rate = probe_peak(par, probes[i].isa, probes[i].kind);
        if (rate > 0)
            row(probes[i].what, "registers", isa_name(probes[i].isa),
                par_threads(par), 1e-9 * rate,
                probes[i].kind == PROBE_INT8 ? "GOP/s" : "GFLOP/s", 0, "");
    }
}

static void
reads(struct par *par, const void *p)
{
    double v[7];

    for (size_t i = 0; i < 7; i++)
        v[i] = probe_read(par, p, READ_NBYTES);
    row("read memory", "1 GiB", "-", par_threads(par), 1e-9 * median(v, 7),
        "GB/s", 0, "");
}

int
main(void)
{
    int all = par_default();
    struct par *par;
    struct err err;
    void *p;

    puts(BENCH_HEAD);
    for (int j = 1;; j = all) {
        if (par_open(&par, j, &err) < 0)
            return 1;
        peaks(par);
        p = mem_big(READ_NBYTES, 1, "the memory to read", &err);
        if (p) {
            memset(p, 1, READ_NBYTES);
            reads(par, p);
            mem_big_free(p, READ_NBYTES, 1);
        } else {
            fprintf(stderr, "bench: read memory: %s, left out\n", err.what);
        }
        par_close(par);
        if (j == all)
            return 0;
    }
}
