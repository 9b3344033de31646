"""Kernels of another module: a name that the script has too, a constant, a function reached as an attribute."""

import triton
import triton.language as tl

SCALE = tl.constexpr(3)


@triton.jit
def twice(x):
    return x * SCALE


@triton.jit
def square(x, by: tl.constexpr = 2):
    return x * x * by
