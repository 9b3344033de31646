"""What stands for an argument of a kernel in Python, as a spec has it: a type, or the value itself.

    argument_of("q_ptr", "*bf16")                 # as on the command line: "*fp8e4nv@4", "i32=576", "none"
    argument_of("q_ptr", torch.bfloat16)          # a dtype: a pointer to it
    argument_of("q_ptr", a_tensor)                # its dtype, and what its address is a multiple of
    argument_of("k", 4096)                        # an integer has its value, since Triton specializes on it

Nothing here imports torch, numpy or Triton: what they make is known by what it has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from occupancy_cli.errors import InputError
from occupancy_cli.model.launch_options import LAUNCH_OPTIONS
from occupancy_cli.plan.kernel_input import parse_argument
from occupancy_cli.spec.kernel_spec import Argument, canonical_type

_FORM = 'A type ("*bf16", "i32=576", "fp32", "none"), a dtype, a tensor, a number or None.'
_MOST_BITS = 64


def arguments_of(given: Mapping[str, Any]) -> dict[str, Argument]:
    """Each argument by name; `InputError` names the one that stands for nothing a kernel takes."""
    return {name: argument_of(name, value) for name, value in given.items()}


def argument_of(name: str, value: Any) -> Argument:
    """One argument."""
    where = f'args["{name}"]'
    if isinstance(value, str):
        try:
            return parse_argument(f"{name}={value}")[1]
        except InputError as bad:
            raise InputError(bad.problem, where=where, hint=_FORM) from None
    if value is None:
        return Argument(type="none")
    if isinstance(value, bool):
        return Argument(type="i1", value=value)
    if isinstance(value, int):
        return Argument(type=_integer_type(value, where), value=value)
    if isinstance(value, float):
        return Argument(type="fp32", value=value)
    if (blocks := getattr(value, "block_shape", None)) is not None:
        return Argument(type=f"tensordesc<{_element(_base(value), where)}[{', '.join(map(str, blocks))}]>")
    if getattr(value, "dtype", None) is not None:
        return Argument(type=f"*{_element(value.dtype, where)}", align=_alignment(value))
    if (element := _known_element(value)) is not None:
        return Argument(type=f"*{element}")
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    raise InputError(f"a {kind} stands for no argument of a kernel", where=where, hint=_FORM)


def argument_text(name: str, value: Any) -> str:
    """An argument as `--arg` takes it: `q_ptr=*bf16@8`, `n=i32=4096`."""
    found = argument_of(name, value)
    align = f"@{found.align}" if found.type.startswith("*") else ""
    return f"{name}={found.type}{align}" + ("" if found.value is None else f"={found.value}")


def _integer_type(value: int, where: str) -> str:
    if -(2**31) <= value < 2**31:
        return "i32"
    if -(2**63) <= value < 2**63:
        return "i64"
    if 0 <= value < 2**_MOST_BITS:
        return "u64"
    raise InputError(f"{value} has more than {_MOST_BITS} bits", where=where)


def _base(descriptor: Any) -> Any:
    return getattr(getattr(descriptor, "base", descriptor), "dtype", descriptor)


def _known_element(dtype: Any) -> str | None:
    """Triton's name of an element type, such as torch.bfloat16, numpy.float32 or triton.language.bfloat16."""
    text = re.sub(r"^(<class ')|('>)$", "", str(getattr(dtype, "name", None) or dtype)).rpartition(".")[2]
    try:
        return canonical_type(text)
    except ValueError:
        return None


def _element(dtype: Any, where: str) -> str:
    found = _known_element(dtype)
    if found is None:
        raise InputError(f"the dtype {dtype} is none that Triton has", where=where, hint=_FORM)
    return found


def _alignment(value: Any) -> int:
    """The largest power of two, up to 16, that divides its address; 16 for what has none (meta tensors)."""
    pointer = getattr(value, "data_ptr", None)
    address = int(pointer()) if callable(pointer) else 0
    return 16 if address % 16 == 0 else address & -address


def config_of(value: Any, number: int) -> dict[str, Any]:
    """A config by name: a mapping, or a `triton.Config` with its launch options."""
    if isinstance(value, Mapping):
        return dict(value)
    kwargs = getattr(value, "kwargs", None)
    if isinstance(kwargs, Mapping):
        options = {n: getattr(value, n, None) for n in LAUNCH_OPTIONS}
        return {**kwargs, **{n: v for n, v in options.items() if v is not None}}
    problem = f"a {type(value).__name__} is no config"
    raise InputError(problem, where=f"configs[{number}]", hint='Such as {"BLOCK": 64, "num_warps": 4}.')


def configs_of(given: Iterable[Any]) -> list[dict[str, Any]]:
    """The configs, in their order; `InputError` for a launch option that no launch can have, or none at all."""
    from occupancy_cli.model.launch_options import check_launch_option

    found = [config_of(value, i) for i, value in enumerate(given)]
    if not found:
        raise InputError("there is none", where="configs", hint="Leave `configs` out to take the kernel's own.")
    for i, config in enumerate(found):
        for name, value in config.items():
            check_launch_option(name, value, f"configs[{i}]")
    return found
