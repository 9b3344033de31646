"""The operations of TTGIR that the readers evaluate: integer arithmetic and comparisons, what accesses memory, what
counts as FLOPs; how a loop's header and a function's arguments are written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from occupancy_cli.readers.ttgir import Function, Operation

LOADED_LENGTH = 1 << 30
"""What a loaded length is taken to be: longer than anything that bounds it."""
FOR = re.compile(r"scf\.for\s+(?:unsigned\s+)?(%[\w$.-]+)\s*=\s*(\S+)\s+to\s+(\S+)\s+step\s+(\S+)")
ITER_ARGS = re.compile(r"iter_args\((.*?)\)\s*->")

COMPARE = {
    "eq": np.equal, "ne": np.not_equal, "slt": np.less, "sle": np.less_equal, "sgt": np.greater,
    "sge": np.greater_equal, "ult": np.less, "ule": np.less_equal, "ugt": np.greater, "uge": np.greater_equal,
}  # fmt: skip
ARITHMETIC: dict[str, tuple[Any, str]] = {
    "addi": (np.add, "({} + {})"), "subi": (np.subtract, "({} - {})"), "muli": (np.multiply, "{} * {}"),
    "minsi": (np.minimum, "min({}, {})"), "maxsi": (np.maximum, "max({}, {})"),
    "minui": (np.minimum, "min({}, {})"), "maxui": (np.maximum, "max({}, {})"),
    "andi": (np.bitwise_and, "({} & {})"), "ori": (np.bitwise_or, "({} | {})"), "xori": (np.bitwise_xor, "({} ^ {})"),
    "shli": (np.left_shift, "({} << {})"), "shrsi": (np.right_shift, "({} >> {})"),
    "shrui": (np.right_shift, "({} >> {})"),
}  # fmt: skip
# What keeps programs apart that were apart before; other scalar arithmetic may bring them together.
KEEPS_AXES = {"addi", "subi", "muli", "extsi", "extui", "trunci", "index_cast", "bitcast"}
FLOAT_OPS = {
    "arith.addf": 1, "arith.subf": 1, "arith.mulf": 1, "arith.divf": 1, "arith.maximumf": 1, "arith.minimumf": 1,
    "arith.maxnumf": 1, "arith.minnumf": 1, "math.exp2": 1, "math.exp": 1, "math.log2": 1, "math.log": 1,
    "math.sqrt": 1, "math.rsqrt": 1, "math.sin": 1, "math.cos": 1, "math.tanh": 1, "math.erf": 1, "math.fma": 2,
    "tt.reduce": 1,
}  # fmt: skip
SAME = {
    "arith.extsi", "arith.extui", "arith.trunci", "arith.index_cast", "arith.bitcast", "tt.bitcast",
    "ttg.convert_layout", "tt.int_to_ptr", "tt.ptr_to_int",
}  # fmt: skip
DOTS = {"tt.dot", "ttng.warp_group_dot", "ttng.tc_gen5_mma", "tt.dot_scaled", "ttng.tc_gen5_mma_scaled"}
ACCESSES = {"tt.load", "tt.store", "ttg.async_copy_global_to_local", "tt.atomic_rmw"}
BULK_LOADS = {"tt.descriptor_load", "tt.descriptor_gather", "ttng.async_tma_copy_global_to_local",
               "ttng.async_tma_gather"}  # fmt: skip
BULK_STORES = {"tt.descriptor_store", "ttng.async_tma_copy_local_to_global"}


def is_access(op: Operation) -> bool:
    """Whether an operation moves global memory."""
    return op.name in ACCESSES or op.name in BULK_LOADS or op.name in BULK_STORES


def number_accesses(ops: Sequence[Operation]) -> dict[int, int]:
    """Each access's number in the order of the text, by the identity of its operation."""
    found: dict[int, int] = {}

    def walk(some: Sequence[Operation]) -> None:
        for op in some:
            if is_access(op):
                found[id(op)] = len(found)
            walk(op.children)

    walk(ops)
    return found


def program_axis(op: Operation) -> int:
    """The axis of a `tt.get_program_id` or `tt.get_num_programs`."""
    return "xyz".index(op.text.split()[1][0]) if len(op.text.split()) > 1 else 0


def argument_names(function: Function, arguments: Mapping[str, Any]) -> list[str]:
    """The arguments' names. Triton before 3.6 numbers them (arg0, arg1, ...), without those that became constants: the
    names of `arguments` then follow in order, if each pointer falls on a pointer and each number on a number."""
    written = [name for name, _, _ in function.arguments]
    if not written or not all(re.fullmatch(r"arg\d+", name) for name in written):
        return written
    for names in ([n for n, v in arguments.items() if v != 1], list(arguments)):
        pairs = list(zip(names, function.arguments, strict=False))
        if len(pairs) == len(written) and all(
            isinstance(arguments[name], int | float) != kind.startswith("!tt") for name, (_, kind, _) in pairs
        ):
            return [name for name, _ in pairs]
    return written


def simplified(kind: str, left: str, right: str, form: str) -> str:
    """An expression's text without additions of 0 and products with 1."""
    if kind == "muli" and "1" in (left, right):
        return right if left == "1" else left
    if kind == "addi" and "0" in (left, right):
        return right if left == "0" else left
    if kind == "subi" and right == "0":
        return left
    return form.format(left, right)
