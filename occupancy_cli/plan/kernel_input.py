"""From what a person typed to a kernel: a spec file, `path/to/file.py:kernel`, `package.module:kernel`, or nothing.

A reference without a spec becomes a spec too, made from `--arg` flags, so that everything after knows one form only.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from occupancy_cli.data_files import shipped_dir
from occupancy_cli.errors import InputError, nearest
from occupancy_cli.source.kernel_text import NOTEBOOK
from occupancy_cli.source.source_files import split_reference
from occupancy_cli.spec.kernel_path import kernel_steps, plain_name
from occupancy_cli.spec.kernel_spec import MAX_ALIGN, SCHEMA, Argument, KernelSpecFile, canonical_type, load_spec
from occupancy_cli.spec.settings import split_outside_brackets
from occupancy_cli.yaml_reader import Document, find_file

COMPILED = (".ttir", ".ttgir", ".ptx", ".cubin")
"""Endings of files that a compiler wrote: a kernel that needs no spec to be analyzed."""
SHIPPED_KERNEL = "sparse_mla_decode"
_NOT_OF_16 = 17
"""An integer without a hint in a signature: neither 1 nor a multiple of 16, as Triton takes it."""
_ARGUMENT = re.compile(r"^(?P<name>[A-Za-z_]\w*)=(?P<type>[^=@]+)(?:@(?P<align>\d+))?(?:=(?P<value>.+))?$")


@dataclass(frozen=True)
class KernelRef:
    """A file or module, and the kernel's name in it. `file` is absolute."""

    kernel: str
    file: Path | None = None
    module: str | None = None

    def __str__(self) -> str:
        return f"{self.file or self.module}:{self.kernel}"


@dataclass(frozen=True)
class KernelInput:
    """A kernel to analyze: its spec, and where the spec came from (`document` has the lines)."""

    spec: KernelSpecFile
    document: Document
    folder: Path
    from_flags: bool = False

    @property
    def name(self) -> str:
        """What reports call it."""
        return self.spec.name or self.spec.kernel.rpartition(":")[2]

    @property
    def source(self) -> str:
        """The spec file, or the reference given."""
        return self.spec.kernel if self.from_flags else self.document.path


def shipped_specs() -> list[Path]:
    """The specs that ship with the tool."""
    return sorted(shipped_dir("kernels").glob("*.yaml"))


def read_kernel_input(
    text: str | None, arguments: Sequence[str] = (), grid: str | None = None, signature: str | None = None
) -> KernelInput:
    """The kernel that `text` names (None: the shipped one); `arguments`, `grid` and `signature` are what the options
    of these names gave.

    `InputError` for a file that is not there (with where it does lie), a reference without a kernel name, or `--arg`
    beside a spec.
    """
    if text is None:
        return _from_spec(shipped_dir("kernels") / f"{SHIPPED_KERNEL}.yaml", arguments, grid, signature)
    path = Path(text)
    if path.suffix in (".yaml", ".yml"):
        return _from_spec(find_file(path), arguments, grid, signature)
    by_name = {p.stem: p for p in shipped_specs()}
    if text in by_name:
        return _from_spec(by_name[text], arguments, grid, signature)
    if ":" not in text:
        raise _no_kernel(text, path, list(by_name))
    parsed: dict[str, Argument] = {}
    for given in arguments:
        name, argument = parse_argument(given)
        if name in parsed:
            raise InputError(f"{name} is given twice", where=f"--arg {given}")
        parsed[name] = argument
    constexprs: dict[str, Any] = {}
    if signature is not None:
        signed, constexprs = _signed(parse_ref(text, Path.cwd()), signature)
        parsed = signed | parsed
    return input_without_spec(text, parsed, None if grid is None else split_axes(grid), constexprs)


def input_without_spec(
    text: str,
    given: Mapping[str, Argument],
    grid: Sequence[str] | None,
    constexprs: Mapping[str, Any] | None = None,
) -> KernelInput:
    """A kernel by its reference (`path/to/file.py:kernel`), its arguments, the expressions of its grid's axes, and
    constexprs that are known beforehand."""
    ref = parse_ref(text, Path.cwd())
    parsed = _stated(ref, given) | dict(given)
    # An argument with a number is a name too: --grid may use it, --set may change it.
    shapes = {n: a.value for n, a in parsed.items() if isinstance(a.value, (int, float))}
    named = {n: a.model_copy(update={"value": n}) if n in shapes else a for n, a in parsed.items()}
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "kernel": text,
        "shapes": {n: int(v) if isinstance(v, bool) else v for n, v in shapes.items()},
        "arguments": named,
        "constexprs": dict(constexprs or {}),
        "configs": "autotune",
    }
    if grid is not None:
        data["grid"] = [_number(axis) for axis in grid]
    return KernelInput(KernelSpecFile.model_validate(data), Document(text, data), Path.cwd(), from_flags=True)


def _stated(ref: KernelRef, given: Collection[str]) -> dict[str, Argument]:
    """Arguments whose type generated code states itself (`triton_meta`), but for those given; integers as launched."""
    if ref.file is None:
        return {}
    from occupancy_cli.source.source_launches import source_options

    said = source_options(ref.file, source_name(ref.file, ref.kernel))
    numbers = {n: v for launch in said.launches for n, v in launch.numbers.items()}
    found = {}
    for name, kind in (said.signature or {}).items():
        if name in given or kind == "constexpr":
            continue
        try:
            canonical = canonical_type(kind)
        except ValueError:
            continue
        if canonical.startswith(("*", "fp", "bf")) or name in numbers:
            found[name] = Argument(type=canonical, value=None if canonical.startswith("*") else numbers.get(name))
    return found


def _signed(ref: KernelRef, signature: str) -> tuple[dict[str, Argument], dict[str, Any]]:
    """(arguments, constexprs) of a signature as Triton's `tools.compile` takes it: `*fp32:16, *fp32:16, i32, 1024`.

    A type stands for an argument; behind the colon is what divides it, 16, or 1 for an integer that is 1. What is no
    type is the value of a constexpr.
    """
    from occupancy_cli.source.source_launches import parameter_names

    where = f"--signature {signature}"
    items = [item.strip() for item in split_outside_brackets(signature)]
    names = parameter_names(ref.file, source_name(ref.file, ref.kernel)) if ref.file is not None else []
    if len(items) != len(names):
        known = f"{ref.kernel} has {len(names)} parameters: {', '.join(names)}" if names else "its source is not found"
        raise InputError(f"a signature of {len(items)}; {known}", where=where, hint="Write one item for each of them.")
    arguments: dict[str, Argument] = {}
    constexprs: dict[str, Any] = {}
    for name, item in zip(names, items, strict=True):
        text, _, hint = item.partition(":")
        if hint not in ("", "1", "16"):
            raise InputError(f"{item!r}: what divides an argument is 16 or 1", where=where)
        try:
            kind = canonical_type(text)
        except ValueError:
            constexprs[name] = _number(text)
            continue
        if kind.startswith("*"):
            arguments[name] = Argument(type=kind, align=16 if hint == "16" else 1)
        elif hint or not kind.startswith(("i", "u")) or kind == "i1":
            arguments[name] = Argument(type=kind, value=int(hint) if hint else None)
        else:
            arguments[name] = Argument(type=kind, value=_NOT_OF_16)
    return arguments, constexprs


def source_name(path: Path, kernel: str) -> str:
    """What a kernel is called in the text of its file: `make.kernel`, where `make(64)` makes one."""
    plain = plain_name(kernel)
    if not kernel.endswith(")"):
        return plain
    from occupancy_cli.source.kernel_makers import makers_in

    made = [maker.kernel for maker in makers_in(path) if maker.function == plain]
    return f"{plain}.{made[0]}" if len(made) == 1 else plain


def _no_kernel(text: str, path: Path, shipped: Sequence[str]) -> InputError:
    """What is wrong with a reference that is neither a spec nor `place:kernel`, with the nearest that is one."""
    shown = f"Shipped: {', '.join(shipped)}."
    if path.suffix in (".py", NOTEBOOK):
        find_file(path)
        names = _kernels_in(path)
        hint = f"Name the kernel in it: {' or '.join(f'{text}:{n}' for n in names[:5])}" if names else ""
        return InputError(f"{text!r} names no kernel", where="KERNEL", hint=hint or f"Write {text}:NAME. {shown}")
    files = {p.name: p for p in path.parent.glob("*") if p.suffix in (".yaml", ".yml", ".py") and p.is_file()}
    close = [] if path.suffix or "/" in text else nearest(text.replace("-", "_"), shipped)
    close = close or [str(files[n]) for n in nearest(path.name, files)]
    form = "Give a spec (file.yaml), path/to/file.py:kernel or package.module:kernel"
    if text and path.exists():
        form += f"; {text} is a {'folder' if path.is_dir() else 'file of another kind'}"
    meant = f"Did you mean {' or '.join(close)}?\n" if close else ""
    return InputError(f"{text!r} names no kernel", where="KERNEL", hint=f"{meant}{form}. {shown}")


def _kernels_in(path: Path) -> list[str]:
    """The kernels that a file's source has, read without running it; none where it cannot be read."""
    from occupancy_cli.source.source_knobs import read_knobs  # only an error needs it

    try:
        return [k.name for k in read_knobs(path).kernels if k.role == "kernel"]
    except InputError:
        return []


def _from_spec(path: Path, arguments: Sequence[str], grid: str | None, signature: str | None) -> KernelInput:
    if arguments or grid is not None or signature is not None:
        flag = "--arg" if arguments else "--grid" if grid is not None else "--signature"
        hint = f"Edit {path}, or change a value by --set NAME=VALUE." if arguments else f"Edit {path}."
        raise InputError(f"{flag} is for a kernel without a spec", where=flag, hint=hint)
    spec, document = load_spec(path)
    return KernelInput(spec, document, path.resolve().parent)


def parse_ref(text: str, folder: Path, where: str = "KERNEL") -> KernelRef:
    """`file.py:kernel` (relative to `folder`) or `package.module:kernel`; a function may make the kernel."""
    place, kernel = split_reference(text)
    if place and "(" in kernel:
        try:
            kernel_steps(kernel)
        except ValueError as bad:
            hint = "Write path/to/file.py:make(64, 'fp8').kernel."
            raise InputError(f"{kernel!r} names no kernel: {bad}", where=where, hint=hint) from None
    elif not place or not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", kernel):
        file = folder / (place or text)
        names = _kernels_in(file) if file.suffix in (".py", NOTEBOOK) and file.is_file() else []
        close = nearest(kernel.replace("-", "_"), names) or names[:5]
        hint = f"Did you mean {' or '.join(f'{place or text}:{n}' for n in close)}?" if close else ""
        raise InputError(f"{text!r} names no kernel", where=where, hint=hint or "Write path/to/file.py:kernel.")
    if place.endswith((".py", NOTEBOOK)) or "/" in place:
        path = Path(place) if Path(place).is_absolute() else folder / place
        return KernelRef(kernel, file=find_file(path).resolve())
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", place):
        raise InputError(f"{place!r} is neither a .py file nor a module", where=where)
    top = place.partition(".")[0]
    if importlib.util.find_spec(top) is None and not (folder / top).exists():
        here = [p.stem for p in folder.glob("*") if p.suffix == ".py" or (p.is_dir() and p.name.isidentifier())]
        close = nearest(top, here)
        hint = f"Did you mean {' or '.join(close)}? " if close else ""
        hint += "A file is given as path/to/file.py."
        raise InputError(f"no module {top!r} is installed here", where=where, hint=hint)
    return KernelRef(kernel, module=place)


def parse_argument(text: str) -> tuple[str, Argument]:
    """`NAME=TYPE[@ALIGN][=VALUE]`, such as `q_ptr=*bf16`, `stride=i32=576`, `k_ptr=*fp8e4nv@4`, `p=none`.

    A number or truth value alone, `n=4096`, has the type that Triton gives such a value of Python.
    """
    match = _ARGUMENT.match(text)
    form = "Write --arg NAME=TYPE[@ALIGN][=VALUE]: q_ptr=*bf16, stride=i32=576, k_ptr=*fp8e4nv@4, n=4096, p=none."
    if match is None:
        raise InputError(f"{text!r} is not an argument", where="--arg", hint=form)
    alone = _number(match["type"].strip())
    if match["align"] is None and match["value"] is None and not isinstance(alone, str):
        return match["name"], Argument(type=_type_of_number(alone), value=alone)
    try:
        kind = canonical_type(match["type"])
    except ValueError as bad:
        raise InputError(str(bad), where=f"--arg {text}", hint=form) from None
    if match["align"] and not kind.startswith("*"):
        raise InputError(f"only a pointer has an alignment, {match['name']} is {kind}", where=f"--arg {text}")
    align = int(match["align"] or 16)
    if not 1 <= align <= MAX_ALIGN:
        raise InputError(f"an alignment of {align} bytes", where=f"--arg {text}", hint=f"It is 1 to {MAX_ALIGN:,}.")
    value = None if match["value"] is None else _number(match["value"])
    return match["name"], Argument(type=kind, value=value, align=align)


def _type_of_number(value: float) -> str:
    """What Triton takes a value of Python for, as `mangle_type` of its `runtime.jit` has it."""
    if isinstance(value, bool):
        return "i1"
    if isinstance(value, float):
        return "fp32"
    return "i32" if -(2**31) <= value < 2**31 else "i64" if value < 2**63 else "u64"


def split_axes(text: str) -> list[str]:
    """The axes of `--grid`: split at the commas that stand outside parentheses."""
    axes = split_outside_brackets(text)
    if len(axes) > 3 or not all(a.strip() for a in axes):
        raise InputError(f"{text!r} is no grid", where="--grid", hint="One to three axes: 'ceil_div(n, 128),batch'.")
    return [a.strip() for a in axes]


def _number(text: str) -> int | float | bool | str:
    """A number if `text` is one, else the expression it is."""
    if text in ("true", "True", "false", "False"):
        return text in ("true", "True")
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
