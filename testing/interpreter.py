"""Makes Triton's CPU interpreter able to run kernels, so that their numbers can be tested without a GPU.

The interpreter keeps BF16 as raw uint16 and multiplies those integers in `tl.dot` (Triton documents BF16 arithmetic as
unsupported there); it drops the low bits of an FP32 value that becomes BF16, where a GPU rounds to nearest even; and
under Triton 3.4 to 3.6 it turns a loop bound into an index with a call that numpy 2.4 no longer takes. `install`
replaces the three: BF16 and FP8 operands of a dot are widened to FP32, which is exact, as tensor cores widen them.

Run with TRITON_INTERPRET=1 set before the kernels are imported; `load_kernel` imports one by its file.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]


def install() -> None:
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter

    def widen(operand: Any) -> Any:
        if operand.dtype == tl.bfloat16:
            return (operand.data.astype(np.uint32) << 16).view(np.float32)
        if operand.dtype == tl.float8e4nv:
            bits = operand.data.astype(np.int32)
            exponent, fraction = (bits >> 3) & 15, bits & 7
            magnitude = np.where(exponent == 0, fraction / 512.0, (1 + fraction / 8.0) * 2.0 ** (exponent - 7))
            magnitude = np.where(bits & 127 == 127, np.nan, magnitude)
            return np.where(bits & 128, -magnitude, magnitude).astype(np.float32)
        return operand.data

    def create_dot(self: Any, a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: Any) -> Any:
        product = np.matmul(widen(a), widen(b), dtype=d.data.dtype)
        return interpreter.TensorHandle(product + d.data, d.dtype.scalar)

    interpreter.InterpreterBuilder.create_dot = create_dot

    cast = interpreter.InterpreterBuilder.cast_impl

    def cast_rounding_bf16(self: Any, source: Any, target_type: Any) -> Any:
        if source.dtype.scalar == tl.float32 and target_type.scalar == tl.bfloat16:
            bits = source.data.view(np.uint32)
            nearest_even = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
            rounded = np.where(np.isnan(source.data), bits >> 16 | 64, nearest_even).astype(np.uint16)
            return interpreter.TensorHandle(rounded, tl.bfloat16)
        return cast(self, source, target_type)

    interpreter.InterpreterBuilder.cast_impl = cast_rounding_bf16

    patch_tensor = interpreter._patch_lang_tensor

    def patch_tensor_and_index(tensor: Any, *rest: Any) -> None:
        patch_tensor(tensor, *rest)
        index = lambda self: int(self.handle.data.item())  # noqa: E731
        if rest:  # Triton 3.6 on: undone when the launch ends
            rest[0].set_attr(tensor, "__index__", index)
        else:
            tensor.__index__ = index

    interpreter._patch_lang_tensor = patch_tensor_and_index


def load_kernel(path: str) -> ModuleType:
    """The module at `path`, relative to the repository."""
    file = REPOSITORY / path
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module
