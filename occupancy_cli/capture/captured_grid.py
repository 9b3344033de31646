"""One value or expression for a grid axis of several configs, out of what was recorded of each of them.

The text that the grid function itself gave is used when it comes to exactly the recorded number for every config.
Otherwise the numbers are written out by config: `8 if BLOCK == 64 else 4`, right for the configs that were recorded.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from occupancy_cli.errors import InputError
from occupancy_cli.model.launch_options import LAUNCH_OPTIONS
from occupancy_cli.spec.expressions import parse_expression

MAX_CHARACTERS = 900
MAX_CASES = 30
_MOST_KEYS = 3


def axis_expression(
    values: Sequence[int], configs: Sequence[Mapping[str, Any]], texts: Sequence[str | None], names: Mapping[str, int]
) -> int | str | None:
    """A number, or an expression over `names` and the configs' keys that gives `values`; None when there is none.

    `values`, `configs` and `texts` (of the grid function, None where it gave none) run alongside; `names` are the
    launch's own integers.
    """
    text = texts[0]
    if text is not None and all(t == text for t in texts) and _gives(text, values, configs, names):
        return text
    if len(set(values)) == 1:
        return values[0]
    return _cases(values, configs)


def _gives(text: str, values: Sequence[int], configs: Sequence[Mapping[str, Any]], names: Mapping[str, int]) -> bool:
    try:
        expression = parse_expression(text)
        return all(expression({**names, **config}) == value for config, value in zip(configs, values, strict=True))
    except InputError:
        return False


def _cases(values: Sequence[int], configs: Sequence[Mapping[str, Any]]) -> str | None:
    # A grid that differed by num_warps alone would be another launch's.
    keys = [k for k in configs[0] if k not in LAUNCH_OPTIONS and len({repr(c.get(k)) for c in configs}) > 1]
    for length in range(1, min(_MOST_KEYS, len(keys)) + 1):
        for chosen in itertools.combinations(keys, length):
            cases: dict[tuple[Any, ...], int] = {}
            found = [cases.setdefault(tuple(c.get(k) for k in chosen), v) for c, v in zip(configs, values, strict=True)]
            if found == list(values):
                text = _written(chosen, cases)
                if text is not None:
                    return text
    return None


def _written(chosen: Sequence[str], cases: Mapping[tuple[Any, ...], int]) -> str | None:
    plain = all(isinstance(v, (int, float)) for case in cases for v in case)
    if not plain or len(cases) > MAX_CASES:
        return None
    items = list(cases.items())
    text = str(items[-1][1])
    for case, value in reversed(items[:-1]):
        test = " and ".join(f"{k} == {_number(v)}" for k, v in zip(chosen, case, strict=True))
        text = f"{value} if {test} else ({text})" if " if " in text else f"{value} if {test} else {text}"
    return text if len(text) <= MAX_CHARACTERS else None


def _number(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)
