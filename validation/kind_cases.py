"""Numbers of the kernels of `validation/kernels` at a tiny shape, under Triton's interpreter: a JSON line a kernel."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from testing import interpreter

interpreter.install()
measure_kinds = interpreter.load_kernel("validation/h200/measure_kinds.py")


def case(kind: Any) -> dict[str, Any]:
    """The relative error of the kernel's outputs, which start as NaN, in the middle one of its configs."""
    points = kind.points_of("tiny", kind.about["tiny"])
    point = points[len(points) // 2]
    tensors = kind.inputs(point.values, "cpu")
    expected = kind.reference(tensors, point.values)
    for launch in point.launches:
        measure_kinds.run(launch, tensors)
    return {"error": max(measure_kinds.relative_error(tensors[n], e) for n, e in expected.items())}


if __name__ == "__main__":
    assert importlib.util.find_spec("torch") is not None
    for kind in measure_kinds.read_kinds():
        try:
            found = case(kind)
        except Exception as bad:  # noqa: BLE001 (a case of its own: the others still count)
            traceback.print_exc()
            found = {"error": None, "problem": f"{type(bad).__name__}: {str(bad)[:300]}"}
        print(json.dumps({"case": kind.name, **found}), flush=True)
