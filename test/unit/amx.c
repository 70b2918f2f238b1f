/* SPDX-License-Identifier: ISC */
/*
 * gemm's AMX code, executed instruction by instruction on a model of the
 * tiles: a process that never asks the kernel for tile data gets SIGILL for
 * each of them, on CPUs with AMX as on those without, if they have AVX-512.
 * Where there is AMX, a child that asks runs the same natively: the same bits.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/kernel/ops.h"
#include "core/mem.h"
#include "core/rng.h"
#include "test/unit/tap.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>

/* ---- the model ---- */

struct tilecfg {
    uint8_t palette, start_row, reserved[14];
    uint16_t colsb[16];
    uint8_t rows[16];
};

/* Palette 1: eight tiles of at most 16 rows of 64 bytes. */
struct tiles {
    struct tilecfg cfg;
    uint8_t data[8][16][64];
};

enum product { TDPBF16PS, TDPBSSD, TDPBSUD, TDPBUSD, TDPBUUD };

/* Denormals are zeros, in and out. */
static float
flush(float x)
{
    return fpclassify(x) == FP_SUBNORMAL ? copysignf(0, x) : x;
}

static float
get_bf16(const uint8_t *p)
{
    return flush(bf16_to_f32(load16(p, 0)));
}

static void
product_bf16(struct tiles *t, int sum, int a, int b)
{
    size_t n_cols = t->cfg.colsb[sum] / 4u, n_k = t->cfg.colsb[a] / 4u;

    for (size_t m = 0; m < t->cfg.rows[sum]; m++)
        for (size_t n = 0; n < n_cols; n++) {
            float chain[2] = { 0, 0 }, c;

            for (size_t k = 0; k < n_k; k++)
                for (size_t i = 0; i < 2; i++)
                    chain[i] = flush(fmaf(
                        get_bf16(t->data[a][m] + 4 * k + 2 * i),
                        get_bf16(t->data[b][k] + 4 * n + 2 * i), chain[i]));
            memcpy(&c, t->data[sum][m] + 4 * n, 4);
            c = flush(flush(c) + flush(chain[0] + chain[1]));
            memcpy(t->data[sum][m] + 4 * n, &c, 4);
        }
}

static int32_t
byte_of(const uint8_t *p, bool is_signed)
{
    return is_signed ? (int8_t)*p : *p;
}

static void
product_int8(struct tiles *t, enum product product, int sum, int a, int b)
{
    bool a_signed = product == TDPBSSD || product == TDPBSUD;
    bool b_signed = product == TDPBSSD || product == TDPBUSD;
    size_t n_cols = t->cfg.colsb[sum] / 4u, n_k = t->cfg.colsb[a] / 4u;

    for (size_t m = 0; m < t->cfg.rows[sum]; m++)
        for (size_t n = 0; n < n_cols; n++) {
            uint32_t c;

            memcpy(&c, t->data[sum][m] + 4 * n, 4);
            for (size_t k = 0; k < n_k; k++)
                for (size_t i = 0; i < 4; i++)
                    c += (uint32_t)(byte_of(t->data[a][m] + 4 * k + i,
                                            a_signed) *
                                    byte_of(t->data[b][k] + 4 * n + i,
                                            b_signed));
            memcpy(t->data[sum][m] + 4 * n, &c, 4);
        }
}

/* ---- the machine code ---- */

static struct tiles model;
static volatile sig_atomic_t n_emulated;

/* A VEX instruction of map 0F38, taken apart. */
struct insn {
    const uint8_t *next;
    uint8_t op;
    int prefix;        /* pp: none, 66, F3, F2 */
    int reg, rm, vvvv; /* tiles */
    bool is_register;  /* mod 3 */
    uint8_t *address;
    int64_t stride;
};

static int64_t
reg_of(const ucontext_t *u, int i)
{
    static const int order[16] = { REG_RAX, REG_RCX, REG_RDX, REG_RBX,
                                   REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                   REG_R8,  REG_R9,  REG_R10, REG_R11,
                                   REG_R12, REG_R13, REG_R14, REG_R15 };

    return u->uc_mcontext.gregs[order[i]];
}

static int32_t
get_s32(const uint8_t *p)
{
    int32_t v;

    memcpy(&v, p, 4);
    return v;
}

/* The memory operand behind the ModRM byte at p; x, b: VEX.X, VEX.B. */
static const uint8_t *
take_memory(struct insn *in, const uint8_t *p, const ucontext_t *u, int x,
            int b)
{
    int mod = *p >> 6, rm = *p & 7;
    int64_t at = 0;

    p++;
    if (rm == 4) {
        int index = (*p >> 3 & 7) | x << 3, base = (*p & 7) | b << 3;

        in->stride = index == 4 ? 0 : reg_of(u, index) * (1 << (*p >> 6));
        if (mod == 0 && (base & 7) == 5) {
            at = get_s32(p + 1);
            p += 4;
        } else {
            at = reg_of(u, base);
        }
        p++;
    } else if (mod == 0 && rm == 5) { /* relative to the next instruction */
        at = (int64_t)(intptr_t)(p + 4) + get_s32(p);
        p += 4;
    } else {
        at = reg_of(u, rm | b << 3);
    }
    if (mod == 1)
        at += (int8_t)*p++;
    if (mod == 2) {
        at += get_s32(p);
        p += 4;
    }
    in->address = (uint8_t *)(intptr_t)at;
    return p;
}

static bool
decode(struct insn *in, const uint8_t *p, const ucontext_t *u)
{
    int r, x, b;

    *in = (struct insn){ 0 };
    if (p[0] != 0xc4 || (p[1] & 0x1f) != 2) /* VEX, map 0F38 */
        return false;
    r = !(p[1] & 0x80);
    x = !(p[1] & 0x40);
    b = !(p[1] & 0x20);
    in->vvvv = ~p[2] >> 3 & 15;
    in->prefix = p[2] & 3;
    in->op = p[3];
    in->reg = (p[4] >> 3 & 7) | r << 3;
    in->rm = (p[4] & 7) | b << 3;
    in->is_register = p[4] >> 6 == 3;
    in->next = in->is_register ? p + 5 : take_memory(in, p + 4, u, x, b);
    return !(p[2] & 0x84) && in->reg < 8; /* W 0, 128 bits, a tile */
}

/* On a CPU with AMX the configuration is the CPU's own: only tile data fault.
 */
static void
native_config(const ucontext_t *u)
{
    const uint8_t *xsave = (const uint8_t *)u->uc_mcontext.fpregs;
    uint32_t size, offset, c, d;
    uint64_t present;

    if (!xsave || !__get_cpuid_count(0xd, 17, &size, &offset, &c, &d) ||
        size != sizeof(model.cfg))
        return;
    memcpy(&present, xsave + 512, sizeof(present));
    if (present >> 17 & 1)
        memcpy(&model.cfg, xsave + offset, sizeof(model.cfg));
}

static void
move_rows(const struct insn *in, bool store)
{
    struct tiles *t = &model;

    for (size_t i = 0; i < t->cfg.rows[in->reg]; i++) {
        uint8_t *memory = in->address + (int64_t)i * in->stride;

        if (store)
            memcpy(memory, t->data[in->reg][i], t->cfg.colsb[in->reg]);
        else
            memcpy(t->data[in->reg][i], memory, t->cfg.colsb[in->reg]);
    }
}

static bool
run_config(const struct insn *in)
{
    if (in->is_register && in->prefix == 3)
        memset(model.data[in->reg], 0, sizeof(model.data[0]));
    else if (in->is_register && in->prefix == 0) /* TILERELEASE */
        memset(&model, 0, sizeof(model));
    else if (in->prefix == 0)
        memcpy(&model.cfg, in->address, sizeof(model.cfg));
    else if (in->prefix == 1)
        memcpy(in->address, &model.cfg, sizeof(model.cfg));
    else
        return false;
    return true;
}

static bool
run_insn(const struct insn *in)
{
    static const enum product int8_of[4] = { TDPBUUD, TDPBUSD, TDPBSUD,
                                             TDPBSSD };

    if (in->op == 0x49)
        return run_config(in);
    if (in->op == 0x4b && !in->is_register)
        move_rows(in, in->prefix == 2); /* F3; 66 is TILELOADDT1 */
    else if (in->op == 0x5c && in->is_register && in->prefix == 2)
        product_bf16(&model, in->reg, in->rm, in->vvvv);
    else if (in->op == 0x5e && in->is_register)
        product_int8(&model, int8_of[in->prefix], in->reg, in->rm, in->vvvv);
    else
        return false;
    return true;
}

static void
on_sigill(int sig, siginfo_t *info, void *context)
{
    ucontext_t *u = context;
    struct insn in;

    (void)info;
    native_config(u);
    if (!decode(&in, (const uint8_t *)u->uc_mcontext.gregs[REG_RIP], u) ||
        !run_insn(&in)) {
        signal(sig, SIG_DFL); /* what is not a tile's dies of it again */
        return;
    }
    n_emulated++;
    u->uc_mcontext.gregs[REG_RIP] = (greg_t)in.next;
}

static void
catch_sigill(void)
{
    struct sigaction sa = { .sa_sigaction = on_sigill, .sa_flags = SA_SIGINFO };

    sigaction(SIGILL, &sa, NULL);
}

/* ---- the tests ---- */

enum { MAX_M = 70, MAX_K = 1216, N_RUNS = 24 };

static const struct run {
    size_t m, k; /* k in bytes of a row of X: a multiple of 64 */
    bool add;
} runs[N_RUNS] = {
    { 1, 64, false },    { 2, 64, true },    { 3, 128, false },
    { 5, 192, true },    { 8, 64, false },   { 12, 320, true },
    { 15, 64, false },   { 16, 64, true },   { 16, 576, false },
    { 17, 64, false },   { 18, 192, true },  { 23, 128, false },
    { 31, 64, true },    { 32, 64, false },  { 32, 1216, true },
    { 33, 128, false },  { 40, 64, true },   { 47, 64, false },
    { 48, 192, true },   { 49, 64, false },  { 63, 64, true },
    { 64, 1088, false }, { 65, 1024, true }, { 70, 1152, false },
};

/* Everything one pass of all runs makes: shared with the native child. */
struct results {
    float bf16[N_RUNS][MAX_M][64];
    float split[N_RUNS][MAX_M][64]; /* a row of X and the next: hi and lo */
    int32_t int8[N_RUNS][MAX_M][64];
};

static uint8_t *x, *b; /* [MAX_M, ld], [MAX_K / 64, 4096] */
static const size_t ld = MAX_K + 64;

/* Numbers of both signs, some of them denormal, and no NaN. */
static void
fill_bf16(uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t v = f32_to_bf16(2 * rng_f32(1, n, i) - 1);

        if (i % 97 == 0)
            v &= 0x807f;
        memcpy(p + 2 * i, &v, 2);
    }
}

static void
fill_int8(uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (uint8_t)rng_u64(2, n, i);
}

/* As gemm_packed.c does it; to c, where sums can go there from the tiles. */
static void
compute_split(const struct gemm_bf16_ops *ops, float (*to)[64],
              const struct run *run, bool past)
{
    const uint16_t *hi = (const uint16_t *)(const void *)x, *lo = hi + ld / 2;
    const uint16_t *panel = (const uint16_t *)(const void *)b;
    static _Alignas(64) float t[MAX_M][64];

    if (ops->product_to) {
        memcpy(t, to, sizeof(t));
        ops->product_to(t[0], to[0], 64, past ? TO_STREAM : TO_STORE, hi, lo,
                        ld / 2, panel, run->m, 64, run->k / 2, run->add,
                        &(struct gemm_ahead){ past ? panel : NULL, 64 });
        return;
    }
    ops->product(to[0], hi, ld / 2, panel, run->m, 64, run->k / 2, run->add);
    ops->product(to[0], lo, ld / 2, panel, run->m, 64, run->k / 2, true);
}

static void
compute(enum isa isa, struct results *r, bool int8)
{
    const struct gemm_bf16_ops *bf16_ops = gemm_bf16_ops_of(isa);
    static int32_t comp[64]; /* unused by signed products */

    for (size_t i = 0; i < N_RUNS; i++) {
        const struct run *run = &runs[i];

        if (int8)
            gemm_int8_ops_of(isa)->product(r->int8[i][0], (const int8_t *)x, ld,
                                           (const int8_t *)b, comp, run->m,
                                           run->k, run->add);
        else
            bf16_ops->product(r->bf16[i][0], (const uint16_t *)(const void *)x,
                              ld / 2, (const uint16_t *)(const void *)b, run->m,
                              64, run->k / 2, run->add);
        if (!int8)
            compute_split(bf16_ops, r->split[i], run, i % 2);
    }
}

static void
compute_all(enum isa isa, struct results *r)
{
    fill_bf16(x, (MAX_M + 1) * ld / 2);
    fill_bf16(b, MAX_K / 64 * 4096 / 2);
    for (size_t i = 0; i < N_RUNS * MAX_M * 64; i++) {
        (&r->bf16[0][0][0])[i] = (float)(i % 13) - 6;
        (&r->split[0][0][0])[i] = (float)(i % 17) - 8;
        (&r->int8[0][0][0])[i] = (int32_t)(i % 1301) - 600;
    }
    compute(isa, r, false);
    fill_int8(x, (MAX_M + 1) * ld);
    fill_int8(b, MAX_K / 64 * 4096);
    compute(isa, r, true);
}

static bool
close_enough(float (*got)[MAX_M][64], float (*want)[MAX_M][64])
{
    for (size_t i = 0; i < N_RUNS; i++)
        for (size_t r = 0; r < MAX_M; r++)
            for (size_t j = 0; j < 64; j++) {
                float e = got[i][r][j] - want[i][r][j];

                /* a row beyond m is not touched */
                if (!(fabsf(e) <= (r < runs[i].m ? 1e-4f : 0)))
                    return false;
            }
    return true;
}

static struct results *
shared(void)
{
    void *p = mmap(NULL, sizeof(struct results), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    return p == MAP_FAILED ? NULL : p;
}

/* Products of fewer columns, of which the first n are the same; they stay in t,
 * as those that gemm_packed.c finishes. */
static bool
same_narrow(struct results *all, size_t n)
{
    const struct gemm_bf16_ops *ops = gemm_bf16_ops_of(ISA_AMX);
    const uint16_t *hi = (const uint16_t *)(const void *)x, *lo = hi + ld / 2;
    const uint16_t *panel = (const uint16_t *)(const void *)b;
    static _Alignas(64) float t[MAX_M][64];
    bool same = true;

    fill_bf16(x, (MAX_M + 1) * ld / 2);
    fill_bf16(b, MAX_K / 64 * 4096 / 2);
    for (size_t i = 0; i < N_RUNS; i++) {
        if (runs[i].add)
            continue;
        ops->product(t[0], hi, ld / 2, panel, runs[i].m, n, runs[i].k / 2,
                     false);
        for (size_t r = 0; r < runs[i].m; r++)
            same &= !memcmp(t[r], all->bf16[i][r], n * sizeof(float));
        ops->product_to(t[0], NULL, 0, TO_STORE, hi, lo, ld / 2, panel,
                        runs[i].m, n, runs[i].k / 2, false,
                        &(struct gemm_ahead){ panel, 64 });
        for (size_t r = 0; r < runs[i].m; r++)
            same &= !memcmp(t[r], all->split[i][r], n * sizeof(float));
    }
    return same;
}

static void
test_emulated(struct results *got, struct results *want)
{
    bool narrow;

    catch_sigill();
    compute_all(ISA_AMX, got);
    narrow =
        same_narrow(got, 1) && same_narrow(got, 32) && same_narrow(got, 33);
    signal(SIGILL, SIG_DFL);
    tap_ok(n_emulated > 1000, "amx: %d instructions were run on the model",
           (int)n_emulated);
    tap_ok(close_enough(got->bf16, want->bf16),
           "amx bf16: the sums of the scalar kernel within 1e-4");
    tap_ok(close_enough(got->split, want->split),
           "amx bf16, two halves: the same");
    tap_ok(narrow, "amx bf16, 1, 32 and 33 columns, split or not: those of 64");
    tap_ok(!memcmp(got->int8, want->int8, sizeof(got->int8)),
           "amx int8: the sums of the scalar kernel exactly");
}

/* A child that is granted tiles. */
static void
test_native(const struct results *emulated)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XTILEDATA = 18 };
    const char *name = "amx: the CPU's own tiles give the model's bits";
    struct results *native = shared();
    pid_t pid = native ? fork() : -1;
    int status = -1;

    if (pid == 0) {
        if (syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XTILEDATA) != 0)
            _exit(3);
        compute_all(ISA_AMX, native);
        _exit(0);
    }
    if (pid > 0)
        waitpid(pid, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 3)
        tap_skip(name, "no AMX here");
    else
        tap_ok(status == 0 && !memcmp(native, emulated, sizeof(*native)), "%s",
               name);
}

/* arch_prctl() fails with EPERM from here on; false: no seccomp here. */
static bool
refuse_tiles(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_arch_prctl, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { sizeof(code) / sizeof(*code), code };

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* Refused tiles are not an error: the next lower level works. */
static void
test_refused(void)
{
    const char *name = "amx: refused by the kernel, the level below serves";
    pid_t pid = fork();
    int status = -1;

    if (pid == 0) {
        if (!refuse_tiles())
            _exit(3);
        unsetenv("TU_ISA");
        if (cpu_isa() == ISA_AMX)
            _exit(1);
        compute_all(cpu_isa(), shared());
        _exit(0);
    }
    if (pid > 0)
        waitpid(pid, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 3)
        tap_skip(name, "no seccomp here");
    else
        tap_ok(status == 0, "%s", name);
}

static void
test_products(void)
{
    const int8_t a = -3;
    const uint8_t c = 200;
    static const int32_t want[] = { [TDPBSSD] = -3 * -56,
                                    [TDPBSUD] = -3 * 200,
                                    [TDPBUSD] = 253 * -56,
                                    [TDPBUUD] = 253 * 200 };
    bool good = true;

    for (enum product p = TDPBSSD; p <= TDPBUUD; p++) {
        struct tiles t = { .cfg = { .palette = 1 } };
        int32_t got;

        for (int i = 0; i < 3; i++) {
            t.cfg.rows[i] = 1;
            t.cfg.colsb[i] = 4;
        }
        t.data[1][0][2] = (uint8_t)a;
        t.data[2][0][2] = c;
        product_int8(&t, p, 0, 1, 2);
        memcpy(&got, t.data[0][0], 4);
        good &= got == want[p];
    }
    tap_ok(good, "amx: the model's signed and unsigned bytes");
}

int
main(void)
{
    struct results *got = shared(), *want = shared();
    bool built = gemm_bf16_ops_of(ISA_AMX) != gemm_bf16_ops_of(ISA_AVX512BF16);

    if (!got || !want)
        return 1;
    x = xcalloc(MAX_M + 1, ld);
    b = xcalloc(MAX_K / 64, 4096);
    test_products();
    if (!built) {
        tap_skip("amx: the kernels", "this compiler knows no AMX");
        return tap_done();
    }
    if (!__builtin_cpu_supports("avx512f")) {
        tap_skip("amx: the kernels", "no AVX-512 here, their other vectors");
        return tap_done();
    }
    compute_all(ISA_SCALAR, want);
    test_emulated(got, want);
    test_native(got);
    test_refused();
    free(x);
    free(b);
    return tap_done();
}
#else
int
main(void)
{
    tap_skip("amx", "not x86-64");
    return tap_done();
}
#endif
