/* SPDX-License-Identifier: ISC */
/* experts: a forward and a backward of four experts with LoRA. */
#include <stdio.h>
#include <tensorutils.h>

int
main(void)
{
    enum { E = 4, K = 2, D = 64, R = 8, N = 3 }; /* D: hidden, intermediate */
    static uint16_t w[E * D * D];                /* bf16: of all matrices */
    struct tu_moe_config c = { sizeof(c), E, K, D, D, R, 16, .max_len = N };
    struct tu_moe_weights base = { sizeof(base), E * D * D, w, w, w };
    struct tu_moe_lora lora = { .size = sizeof(lora) };
    static const int64_t ids[N * K] = { 0, 1, 1, 2, 3, 0 };
    static const float weights[N * K] = { .5f, .5f, .9f, .1f, .2f, .8f };
    struct tu_moe_batch batch = { sizeof(batch), N, K, D, ids, weights, w };
    static float out[N * D], grad[E * R * D]; /* grad: of gate's A */
    struct tu_moe_grads g = { sizeof(g), N, .n = { E * R * D }, { grad } };
    struct tu_err e;
    struct tu_moe *m;

    for (unsigned i = 0; i < E * D * D; i++)
        w[i] = 0x3d00 | (i * 40503u >> 4 & 0x80ff);
    for (int i = 0; i < TU_N_LORA; i++)
        lora.m[i] = w, lora.n[i] = E * R * D;
    if (tu_moe_open(&m, &c, &e) || tu_moe_load(m, &base, &e) ||
        tu_moe_update_lora(m, &lora, &e) ||
        tu_moe_forward(m, &batch, out, 1, &e) || tu_moe_backward(m, w, &g, &e))
        return fprintf(stderr, "%s\n", e.what), e.status;
    printf("%.4g %.4g\n", out[0], grad[0]);
}
