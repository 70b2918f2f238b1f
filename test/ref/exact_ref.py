"""exact_ref.py DIR: experts with LoRA by torch's autograd in float64.

DIR/exact: E, k, H, I, rank, alpha, qlen; gate, up, down; the adapter's six
matrices; ids, weights, input, grad_output; then the output and the gradients
of the six, the input and the weights.  All as f64; operands are bf16's.
"""
import os
import sys

import torch

E, K, H, I, R, ALPHA, QLEN = 4, 3, 37, 29, 5, 8.0, 11
torch.manual_seed(3)
f = open(os.path.join(sys.argv[1], "exact"), "wb")


def put(*values):
    for v in values:
        v = torch.as_tensor(v, dtype=torch.float64).detach().flatten()
        f.write(v.numpy().astype("<f8").tobytes())


def bf16(*shape, scale=1.0):
    v = (torch.randn(*shape) * scale).to(torch.bfloat16)
    return v.double().requires_grad_()


gate, up = bf16(E, I, H, scale=0.2), bf16(E, I, H, scale=0.2)
down = bf16(E, H, I, scale=0.2)
lora = [bf16(E, R, H, scale=0.3), bf16(E, I, R, scale=0.3),
        bf16(E, R, H, scale=0.3), bf16(E, I, R, scale=0.3),
        bf16(E, R, I, scale=0.3), bf16(E, H, R, scale=0.3)]
ids = torch.randint(0, E - 1, (QLEN, K))  # the last expert is idle
ids[0] = 2  # one expert in all slots of a token
ids[1, 1], ids[2, 2], ids[3, 0] = -1, E, 2 ** 40
weights = torch.randn(QLEN, K).double().requires_grad_()
weights.data = weights.data.float().double()
x, g = bf16(QLEN, H), bf16(QLEN, H)


def linear(x, w, a, b):
    return x @ w.T + ALPHA / R * (x @ a.T) @ b.T


out = torch.zeros(QLEN, H).double()
for e in range(E):
    a = [m[e] for m in lora]
    h = (torch.nn.functional.silu(linear(x, gate[e], a[0], a[1]))
         * linear(x, up[e], a[2], a[3]))
    w = (weights * (ids == e)).sum(1, keepdim=True)
    out = out + w * linear(h, down[e], a[4], a[5])
(out * g).sum().backward()
put(E, K, H, I, R, ALPHA, QLEN, gate, up, down, *lora, ids, weights, x, g, out)
put(*[m.grad for m in lora], x.grad, weights.grad)
