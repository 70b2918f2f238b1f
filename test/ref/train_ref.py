# SPDX-License-Identifier: ISC
"""train_ref.py DIR: what torch makes of made-up losses and gradients.

DIR/mse: n, then output, target, loss, gradient (as f32 of bf16).
DIR/clip: n, clip, gradient, its norm, the clipped gradient.
DIR/adamw: for each run n, steps, lr, beta1, beta2, eps, weight decay; n
parameters; a gradient a step; then parameters, first and second moments.
DIR/cosine, DIR/linear: 20 rates from 1 on, no warm-up.  All as f64.
"""
import os
import sys

import torch

torch.manual_seed(7)


def put(name, *values):
    with open(os.path.join(sys.argv[1], name), "ab") as f:
        for v in values:
            v = torch.as_tensor(v, dtype=torch.float64).detach().flatten()
            f.write(v.numpy().astype("<f8").tobytes())


output = torch.randn(77, 13, requires_grad=True)
target = torch.randn(77, 13)
loss = torch.nn.functional.mse_loss(output.double(), target.double())
(grad,) = torch.autograd.grad(loss, output)
put("mse", output.numel(), output, target, loss, grad.to(torch.bfloat16))

for clip in (1.0, 1e9):
    p = torch.zeros(2001, dtype=torch.float64)
    p.grad = torch.randn(2001).double()
    put("clip", 2001, clip, p.grad, p.grad.norm())
    torch.nn.utils.clip_grad_norm_([p], clip)
    put("clip", p.grad)

for lr, betas, eps, decay in ((1e-4, (0.9, 0.999), 1e-8, 0.01),
                              (3e-2, (0.8, 0.95), 1e-3, 0.0),
                              (1e-2, (0.0, 0.0), 1e-8, 0.3)):
    p = torch.randn(301).double().requires_grad_()
    put("adamw", 301, 20, lr, *betas, eps, decay, p)
    adamw = torch.optim.AdamW([p], lr, betas, eps, decay)
    for t in range(20):
        # some entries see nothing but zeros, others nothing for a while
        p.grad = (torch.randn(301) * (torch.arange(301) % 7 > t % 3)).double()
        put("adamw", p.grad)
        adamw.step()
    s = adamw.state[p]
    put("adamw", p, s["exp_avg"], s["exp_avg_sq"])

for name, make in (
        ("cosine", lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 20)),
        ("linear", lambda o: torch.optim.lr_scheduler.LinearLR(o, 1, 0, 20))):
    o = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 1)
    s = make(o)
    for _ in range(20):
        put(name, o.param_groups[0]["lr"])
        o.step()
        s.step()
