/*
 * What moves an adapter: the loss and its gradient, the learning rate of a
 * step, AdamW.  The same bits for any number of threads.
 */
#ifndef CORE_MODEL_TRAIN_OPTIM_H
#define CORE_MODEL_TRAIN_OPTIM_H

#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/par.h"

/*
 * A learning rate that grows from 0 over 'warmup' steps, then stays, or falls
 * to 0 at step 'total' on a line or half a cosine, and stays there.
 * Source: Hugging Face transformers, get_constant_schedule_with_warmup,
 * get_linear_schedule_with_warmup, get_cosine_schedule_with_warmup.
 */
enum schedule_kind { SCHEDULE_CONSTANT, SCHEDULE_LINEAR, SCHEDULE_COSINE };
extern const char *const schedule_names[]; /* "constant", .., NULL */

struct schedule {
    enum schedule_kind kind;
    double lr; /* the highest */
    uint64_t warmup, total;
};

/* schedule_lr() is the rate of a step; the first is 0. */
double schedule_lr(const struct schedule *s, uint64_t step);

/*
 * loss_mse() is the mean over n > 0 elements of (output - target)^2; its
 * gradient 2 (output - target) / n is rounded to bf16 (little-endian).
 */
double loss_mse(uint16_t *grad, const float *output, const float *target,
                size_t n, struct par *par);

/* grad_norm() is sqrt(sum of squares), summed in double. */
double grad_norm(const float *grad, size_t n, struct par *par);

/* clip_scale() is what a gradient of that norm is multiplied by to have 'clip'
 * at most; 0: no limit.  Source: torch.nn.utils.clip_grad_norm_. */
double clip_scale(double norm, double clip);

/* grad_add() adds n gradients to 'sum'. */
void grad_add(float *sum, const float *grad, size_t n, struct par *par);

/*
 * AdamW: Adam with decoupled weight decay, f32 parameters and moments, each
 * step computed in double and rounded once.
 * Source: torch.optim.AdamW (amsgrad, maximize: false); Loshchilov & Hutter,
 * ICLR 2019.
 */
struct adamw {
    double beta1, beta2, eps, weight_decay;
    size_t n;
    float *master, *m, *v; /* [n]: parameters, first and second moment */
};

/* adamw_open() makes room for n parameters, all 0; the other fields are the
 * caller's.  -1 with 'err' set (EX_SOFTWARE). */
int adamw_open(struct adamw *a, size_t n, struct err *err);
void adamw_close(struct adamw *a); /* a zeroed struct is fine */

/* adamw_step() is step t = 1, 2, .. by the gradients scale * grad. */
void adamw_step(struct adamw *a, const float *grad, double scale, double lr,
                uint64_t t, struct par *par);

#endif
