"""Forward and backward of fla's mesa_net at head dimension 128: captured for `capture_fla.md`."""

import torch
import torch.nn.functional as F
from fla.ops.mesa_net import chunk_mesa_net

B, T, H, D = 1, 512, 2, 128


def leaf(*shape, dtype):
    return torch.randn(*shape, device="cuda", dtype=dtype)


q, k, v = (leaf(B, T, H, D, dtype=torch.bfloat16).requires_grad_() for _ in range(3))
g = F.logsigmoid(leaf(B, T, H, dtype=torch.float32)).requires_grad_()
beta = leaf(B, T, H, dtype=torch.float32).sigmoid().requires_grad_()
lamb = (F.softplus(leaf(H, D, dtype=torch.float32)) + 0.25).requires_grad_()

o, *_ = chunk_mesa_net(q, k, v, g, beta, lamb, use_qk_l2norm_in_kernel=True)
o.sum().backward()
print(tuple(o.shape), o.dtype, tuple(q.grad.shape))
