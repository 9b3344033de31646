"""`torch.finfo` and `torch.iinfo` where PyTorch is not there: number formats by their definitions.

IEEE 754, bfloat16, and the FP8 formats of the Open Compute Project and their variants.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping
from typing import Any

# (bits, largest, smallest normal, epsilon)
_FLOATS: Mapping[str, tuple[int, float, float, float]] = {
    "float64": (64, sys.float_info.max, sys.float_info.min, sys.float_info.epsilon),
    "double": (64, sys.float_info.max, sys.float_info.min, sys.float_info.epsilon),
    "float32": (32, (2 - 2**-23) * 2.0**127, 2.0**-126, 2.0**-23),
    "float": (32, (2 - 2**-23) * 2.0**127, 2.0**-126, 2.0**-23),
    "float16": (16, 65504.0, 2.0**-14, 2.0**-10),
    "half": (16, 65504.0, 2.0**-14, 2.0**-10),
    "bfloat16": (16, (2 - 2**-7) * 2.0**127, 2.0**-126, 2.0**-7),
    "float8_e4m3fn": (8, 448.0, 2.0**-6, 2.0**-3),
    "float8_e4m3fnuz": (8, 240.0, 2.0**-7, 2.0**-3),
    "float8_e5m2": (8, 57344.0, 2.0**-14, 2.0**-2),
    "float8_e5m2fnuz": (8, 57344.0, 2.0**-15, 2.0**-2),
}
_INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "short": 16, "int": 32, "long": 64}


def _dtype_name(dtype: Any) -> str:
    path = str(getattr(dtype, "_path_", dtype))
    return path.removeprefix("torch.")


def finfo(dtype: Any) -> Any:
    name = _dtype_name(dtype)
    if name not in _FLOATS:
        return dtype._next_(f"torch.finfo({name})") if hasattr(dtype, "_next_") else None
    bits, largest, tiny, epsilon = _FLOATS[name]
    return types.SimpleNamespace(
        bits=bits, max=largest, min=-largest, tiny=tiny, smallest_normal=tiny, eps=epsilon, dtype=name
    )


def iinfo(dtype: Any) -> Any:
    name = _dtype_name(dtype)
    signed = not name.startswith("u")
    bits = _INTEGERS.get(name.removeprefix("u"))
    if bits is None:
        return dtype._next_(f"torch.iinfo({name})") if hasattr(dtype, "_next_") else None
    largest = 2 ** (bits - signed) - 1
    return types.SimpleNamespace(bits=bits, max=largest, min=-largest - 1 if signed else 0, dtype=name)
