/* SPDX-License-Identifier: ISC */
/*
 * families [NAME]: a prompt and decode, as engine has them, of models with
 * experts, with Gated DeltaNet and with multi-head latent attention, or of one
 * of them.  A model has as many layers, of Qwen3-Next as many experts, too, as
 * memory holds, a vocabulary as much smaller, and holes as weights; every token
 * of a prompt has other experts.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "test/bench/feed.h"

static const struct {
    const char *name, *maker;
    size_t mib; /* of the file in memory */
} shapes[] = {
#define FOUR " --holes --set num_hidden_layers=4 --set vocab_size="
    { "Qwen3-30B-A3B", MAKER "qwen3-30b-a3b" FOUR "12544", 4800 },
    { "Qwen3-Next-80B",
      MAKER "qwen3-next-80b-a3b --set num_experts=128 "
            "--set max_position_embeddings=4096" FOUR "12544",
      3400 },
    { "DeepSeek-V2-Lite", MAKER "deepseek-v2-lite" FOUR "15168", 3600 },
};

int
main(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
        char *made;

        if (argc > 1 && strcmp(argv[1], shapes[i].name) != 0)
            continue;
        made = scratch_name("families");
        if (!mkdtemp(made))
            return 1;
        if (room_for_model(made, shapes[i].name, shapes[i].mib)) {
            bench_shell(shapes[i].maker, made);
            run_other(made, shapes[i].name);
        }
        bench_shell("rm -r", made);
        free(made);
    }
    return 0;
}
