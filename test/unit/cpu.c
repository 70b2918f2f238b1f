/* SPDX-License-Identifier: ISC */
/* TU_ISA and what the processor has; CPU_WANT names the best, under qemu. */
#include "core/kernel/cpu.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/kernel/ops.h"
#include "test/unit/tap.h"

extern const struct cvt_ops cvt_scalar;
extern const struct gemv_ops gemv_scalar;
extern const struct vec_ops vec_scalar;

/* What a fresh process finds with TU_ISA set: "STATUS NAME what is wrong". */
static const char *
ask(const char *isa)
{
    static char line[2048];
    struct err err = { 0 };
    ssize_t n;
    int fd[2];
    pid_t pid;

    if (pipe(fd) < 0 || (pid = fork()) < 0)
        return "";
    if (pid == 0) {
        setenv("TU_ISA", isa, 1);
        cpu_check(&err);
        dprintf(fd[1], "%d %s %s", err.status, isa_name(cpu_isa()), err.what);
        _exit(0);
    }
    close(fd[1]);
    n = read(fd[0], line, sizeof(line) - 1);
    line[n > 0 ? n : 0] = '\0';
    close(fd[0]);
    waitpid(pid, NULL, 0);
    return line;
}

static void
test_level(enum isa isa, enum isa best)
{
    const char *got = ask(isa_name(isa));
    char want[200];

    if (isa_is_under(isa, best)) {
        snprintf(want, sizeof(want), "0 %s ", isa_name(isa));
        tap_ok(!strcmp(got, want), "TU_ISA=%s is obeyed", isa_name(isa));
        return;
    }
    snprintf(want, sizeof(want),
             "2 %s TU_ISA is \"%s\", but this machine's best is \"%s\"",
             isa_name(best), isa_name(isa), isa_name(best));
    tap_ok(!strcmp(got, want), "TU_ISA=%s is an error here", isa_name(isa));
}

/* Has it kernels that the next lower one lacks? */
static bool
own_kernels(enum isa isa)
{
    enum isa below = isa_below(isa);

    return isa == ISA_SCALAR || vec_ops_of(isa) != vec_ops_of(below) ||
           gemm_bf16_ops_of(isa) != gemm_bf16_ops_of(below) ||
           gemm_int8_ops_of(isa) != gemm_int8_ops_of(below);
}

int
main(void)
{
    struct err err = { 0 };
    enum isa best = ISA_SCALAR;
    const char *got;

    got = ask("avx3");
    tap_ok(!strncmp(got, "2 ", 2) &&
               strstr(got, " TU_ISA is \"avx3\" (expected scalar, "),
           "an unknown TU_ISA is an error that names all");
    got = ask("");
    tap_ok(!strncmp(got, "0 ", 2), "an empty TU_ISA is none");
    for (enum isa i = ISA_SCALAR; i < ISA_COUNT; i++)
        if (!strncmp(got + 2, isa_name(i), strlen(isa_name(i))) &&
            strlen(got) == strlen(isa_name(i)) + 3)
            best = i;
    for (enum isa i = ISA_SCALAR; i < ISA_COUNT; i++)
        test_level(i, best);
    unsetenv("TU_ISA");
    tap_ok(cpu_check(&err) == 0 && cpu_isa() == best,
           "cpu_check: no TU_ISA, no error, the best");
    if (getenv("CPU_WANT"))
        tap_ok(!strcmp(isa_name(best), getenv("CPU_WANT")),
               "the best is %s, as CPU_WANT says", getenv("CPU_WANT"));
    tap_ok(cvt_ops_of(ISA_SCALAR) == &cvt_scalar &&
               gemv_ops_of(ISA_SCALAR) == &gemv_scalar &&
               vec_ops_of(ISA_SCALAR) == &vec_scalar,
           "scalar has its own tables");
    tap_ok(own_kernels(best), "the best, %s, was built", isa_name(best));
    return tap_done();
}
