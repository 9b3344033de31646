"""Launches on arrays that have what Triton asks a tensor for: a dtype and an address. No torch anywhere."""

import os
import sys

import triton
import triton.language as tl


class Array:
    def __init__(self, dtype, address=4096):
        self.dtype = dtype
        self.address = address

    def data_ptr(self):
        return self.address

    def ptr_range(self):  # asked by Triton's AMD backend alone
        return 0


@triton.jit
def add(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) + 1, mask=at < n)


def wrong(args):
    if args["BLOCK"] == 512:
        raise ValueError("no such block")
    return args["n"] % args["BLOCK"] == 0


@triton.autotune(configs=[triton.Config({"BLOCK": b}, num_warps=2) for b in (512, 64, 128)], key=["n"])
@triton.heuristics({"EVEN": wrong})
@triton.jit
def scale(x_ptr, n, factor, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(x_ptr + at, tl.load(x_ptr + at) * factor)
    else:
        tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) * factor, mask=at < n)


@triton.jit
def never(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), 0.0)


x, y = Array("fp32"), Array("fp32")
for n in (1000, 1000, 4096, 1):
    add[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](x, y, n, BLOCK=256)
add[(4,)](Array("fp32", 4096 + 4), y, 1000, BLOCK=256)
scale[lambda meta: (triton.cdiv(320, meta["BLOCK"]), 2)](x, 320, 0.5)
scale[lambda meta: (triton.cdiv(320, meta["BLOCK"]), 2)](x, 320, 0.25)  # the same launch: only a float differs
never[(0,)](x, BLOCK=16)
for step in range(3, 13):  # a number that goes up with every step: 3 to 12, none of them 1 or a multiple of 16
    add[(5,)](x, y, step, BLOCK=512)

print("home", os.environ["HOME"])
print("arguments", sys.argv[1:])
if "fail" in sys.argv:
    raise RuntimeError("as asked")
if "die" in sys.argv:
    os._exit(7)
if "leave" in sys.argv:
    sys.exit(3)
if "fork" in sys.argv:
    child = os.fork()
    add[(77,)](x, y, 77 if child == 0 else 78, BLOCK=256)
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
