"""Forward and backward of fla's mesa_net at head dimension 128: the script that `capture_fla.py` captures.

With COMPILED_JSON set, it also has Triton compile every kernel that was launched, from the library's own objects, and
writes what each takes to that file: what the specs' figures are compared with.
"""

import json
import os
from pathlib import Path

import torch
import torch.nn.functional as F
import triton.compiler

launched = []
compile_later = triton.compiler.compile


def remember(src, **rest):
    kernel = compile_later(src, **rest)
    launched.append((src, kernel))
    return kernel


if "COMPILED_JSON" in os.environ:
    triton.compiler.compile = remember

from fla.ops.mesa_net import chunk_mesa_net  # noqa: E402 (fla reads the compiler when it is imported)

B, T, H, D = 1, 512, 2, 128


def random(*shape, dtype=torch.float32):
    return torch.randn(*shape, device="cuda", dtype=dtype)


q, k, v = (random(B, T, H, D, dtype=torch.bfloat16).requires_grad_() for _ in range(3))
g = F.logsigmoid(random(B, T, H)).requires_grad_()
beta = random(B, T, H).sigmoid().requires_grad_()
lamb = (F.softplus(random(H, D)) + 0.25).requires_grad_()

o, *_ = chunk_mesa_net(q, k, v, g, beta, lamb, use_qk_l2norm_in_kernel=True)
o.sum().backward()
print(tuple(o.shape), o.dtype, tuple(q.grad.shape))

if "COMPILED_JSON" in os.environ:
    found = []
    for src, kernel in launched:
        shared = kernel.metadata.shared
        fits = shared <= 101376
        found.append(
            {
                "kernel": src.fn.fn.__name__,
                "file": src.fn.fn.__code__.co_filename,
                "num_warps": kernel.metadata.num_warps,
                "shared_bytes": shared,
                "registers_per_thread": kernel.n_regs if fits else None,
                "spill_bytes": kernel.n_spills if fits else None,
            }
        )
    Path(os.environ["COMPILED_JSON"]).write_text(json.dumps(found, indent=1))
