"""Which arguments decide how wide each access of a kernel may be: from the TTGIR, by source line.

    {"copy.py:36": ("n",)}     # the accesses of line 36 depend on n, of which Triton knows no divisor

Triton widens an access as far as it can show that addresses and masks are multiples of more elements. It knows that of
pointers and integers marked `tt.divisibility`, as multiples of 16 are at a launch; an unmarked one that an address or a
mask depends on keeps the access narrow.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from occupancy_cli.readers.ttgir import Operation, TtgirKernel

_ACCESSES = ("tt.load", "tt.store", "tt.atomic_rmw", "tt.atomic_cas", "ttg.async_copy_global_to_local")
_DIVISIBLE = re.compile(r"tt\.divisibility = (\d+)")
_CARRIED = re.compile(r"(%[\w$.-]+) = (%[\w$.-]+(?:#\d+)?)")
_ENOUGH = 16


def unmarked_arguments(kernel: TtgirKernel) -> Mapping[str, tuple[str, ...]]:
    """`file:line` of each access -> the arguments without a known divisor that its address and mask depend on."""
    unmarked = {
        f"%{name}": name
        for name, kind, attributes in kernel.function.arguments
        if (kind.startswith("!tt.ptr") or kind in ("i32", "i64"))
        and not any(int(divisor) >= _ENOUGH for divisor in _DIVISIBLE.findall(attributes))
    }
    sources: dict[str, set[str]] = {}
    operations = list(_all(kernel.function.ops))
    for op in operations:
        for result in op.results:
            sources.setdefault(result, set()).update(op.operands)
        if op.name == "scf.for":
            carried = _CARRIED.findall(op.text.partition("iter_args(")[2].partition(") ->")[0])
            for i, (inside, before) in enumerate(carried):
                sources.setdefault(inside, set()).update((before, *op.yields[i : i + 1]))
    found: dict[str, set[str]] = {}
    for op in operations:
        if op.name in _ACCESSES and op.place:
            place = op.place.rpartition(":")[0]
            behind = _behind(_address_and_mask(op), sources)
            found.setdefault(place, set()).update(unmarked[name] for name in behind & unmarked.keys())
    order = list(unmarked.values())
    return {place: tuple(sorted(names, key=order.index)) for place, names in found.items() if names}


def _address_and_mask(op: Operation) -> list[str]:
    """The operands but for the value that is stored, the second one."""
    return [name for i, name in enumerate(op.operands) if not (i == 1 and op.name == "tt.store")]


def _all(operations: Iterable[Operation]) -> Iterable[Operation]:
    for op in operations:
        yield op
        yield from _all(op.children)


def _behind(names: Iterable[str], sources: Mapping[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    todo = list(names)
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            # A result of several, %x#1, hangs on the operation that %x names.
            todo += sources.get(name, ()) or sources.get(name.partition("#")[0], ())
    return seen
