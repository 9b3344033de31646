"""What scripts do: kwargs, None, flags, misaligned views, dtypes and functions as constexprs, descriptors, autograd."""

import json
import os
import sys
from pathlib import Path

import helper_kernels
import torch
import triton
import triton.language as tl
from helper_kernels import twice as threefold
from triton.tools.tensor_descriptor import TensorDescriptor

LIMIT = tl.constexpr(7.5)
SCALE = tl.constexpr(11)


@triton.jit
def twice(x):
    return x + SCALE


@triton.jit
def many(
    x_ptr, y_ptr, n, scale, flag, maybe, step, BLOCK: tl.constexpr, MODE: tl.constexpr, T: tl.constexpr,
    F: tl.constexpr, MOST: tl.constexpr,
):  # fmt: skip
    # The comment above a kernel's first line stays.
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at * step, mask=at < n, other=0.0).to(T)
    if MODE == "n":
        x = helper_kernels.square(x) * scale
    x = tl.minimum(F(threefold(twice(x))), MOST)
    if maybe is not None:
        x += tl.load(maybe + at, mask=at < n)
    tl.store(y_ptr + at, tl.where(x > LIMIT, x, 0.0), mask=at < n)


@triton.jit(do_not_specialize=["n"])
def forward(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) + 1, mask=at < n)


@triton.jit
def backward(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) - 1, mask=at < n)


@triton.jit
def with_tuple(pointers, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(pointers[0] + at, tl.load(pointers[1] + at))


def set_block(arguments):
    arguments["d"].block_shape = [arguments["BM"], 64]


@triton.autotune(
    configs=[triton.Config({"BM": m}, num_warps=w, pre_hook=set_block) for m in (32, 64) for w in (4, 8)], key=["n"]
)
@triton.jit
def descriptor(d, y_ptr, n, BM: tl.constexpr):
    x = d.load([tl.program_id(0) * BM, 0])
    at = tl.arange(0, BM)[:, None] * 64 + tl.arange(0, 64)[None, :]
    tl.store(y_ptr + at, x)


def make(factor):
    FACTOR = tl.constexpr(factor)

    @triton.jit
    def inner(x_ptr, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        tl.store(x_ptr + at, tl.load(x_ptr + at) * FACTOR)

    return inner


class AddOne(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.empty_like(x)
        forward[(1,)](x, x.numel(), BLOCK=64)
        return y

    @staticmethod
    def backward(ctx, gradient):
        backward[(2,)](gradient, gradient.numel(), BLOCK=64)
        return gradient.clone()


x = torch.randn(1000, device="cuda")
y = torch.empty_like(x)
n = x.numel()


def grid(meta):
    return triton.cdiv(n, meta["BLOCK"]), 3


common = {"BLOCK": 256, "MODE": "n", "T": tl.float32, "F": twice, "MOST": float("inf")}
many[grid](x, y, n, 2.5, True, None, 1, **common)
many[grid](x[1:], y, n - 1, scale=2.5, flag=False, maybe=y, step=2, num_warps=8, **common)
many[grid](x, y, n, 2.5, True, None, 1, **{**common, "T": tl.float64})
many[grid](x[4:], y, n, 0.5, True, None, 1, **common)  # 16 bytes on: as aligned as x
with_tuple[(1,)]((x, y), BLOCK=16)
descriptor[lambda m: (triton.cdiv(128, m["BM"]),)](
    TensorDescriptor.from_tensor(torch.empty(128, 64, device="cuda", dtype=torch.float16), [1, 64]), y, 128
)
for factor in (5, 6):
    make(factor)[(1,)](x, BLOCK=64)

leaf = torch.randn(64, device="cuda", requires_grad=True)
AddOne.apply(leaf).sum().backward()

kernel = forward.warmup(x, 33, BLOCK=64, grid=(1,))
kernel._init_handles()
with torch.device("cuda"):
    under_context = torch.empty(3).device.type
generator = torch.Generator(device="cuda")
generator.manual_seed(3)
with torch.autocast("cuda", dtype=torch.bfloat16):
    product = (torch.ones(2, 2, device="cuda") @ torch.ones(2, 2, device="cuda")).dtype
layer = torch.nn.Linear(4, 4).cuda()
layer(torch.ones(1, 4, device="cuda")).sum().backward()
start = torch.cuda.Event(enable_timing=True)
start.record()
with torch.cuda.stream(torch.cuda.Stream()):
    torch.cuda.synchronize()

Path(sys.argv[1]).write_text(
    json.dumps(
        {
            "name": torch.cuda.get_device_name(),
            "capability": torch.cuda.get_device_capability(),
            "sms": torch.cuda.get_device_properties(0).multi_processor_count,
            "triton_sms": triton.runtime.driver.active.utils.get_device_properties(0)["multiprocessor_count"],
            "device": str(x.device),
            "is_cuda": x.is_cuda,
            "cpu": str(x.cpu().device),
            "asked_for_cpu": str(torch.ones(2, device="cpu").device),
            "gradient": [str(leaf.grad.device), list(leaf.grad.shape)],
            "under_context": under_context,
            "generator": str(generator.device),
            "autocast": str(product),
            "huge": torch.zeros(1 << 40, dtype=torch.uint8, device="cuda").numel(),
            "registers": kernel.n_regs,
            "time": repr(triton.testing.do_bench(lambda: forward[(5,)](x, 77, BLOCK=64))),
            "elapsed": repr(start.elapsed_time(start)),
            "cache": os.environ["TRITON_CACHE_DIR"],
            "shown": str(y[:2]),
        }
    )
)
