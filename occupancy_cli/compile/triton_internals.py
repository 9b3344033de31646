"""What this tool relies on beyond Triton's public interface: one table, for compiling and capturing together.

`INTERNALS` has the name of each, the kind of thing that is relied upon, what for, and the versions it is there in.
`check_internals` looks at the Triton at hand, `require_internals` fails at the start of a worker or a capture with a
sentence such as

    Triton 3.10.0: triton.runtime.jit.JITFunction().device_caches is gone; it is needed to forget other targets

and not deep inside a compile, so that an upgrade that moves one is mended here.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import triton

from occupancy_cli.errors import MissingDependencyError
from occupancy_cli.model.launch_options import LAUNCH_OPTIONS

OLDEST, NEWEST = (3, 4), (3, 9)
VERSION: str = triton.__version__

Kind = Literal["module", "class", "dataclass", "function", "value", "text", "list", "dict"]
User = Literal["compile", "capture"]

BOTH: tuple[User, ...] = ("compile", "capture")


@dataclass(frozen=True)
class Internal:
    """One thing that is relied upon.

    `path` is a dotted name; a class with `()` stands for an object of it. `called_with` are the arguments that a
    function (a method, with `self`) is given: a number of positional ones, then names. `fallback` says what happens
    without it, where there is something: it is then reported and stops nothing.
    """

    path: str
    kind: Kind
    needed_to: str
    called_with: tuple[int, tuple[str, ...]] | None = None
    users: tuple[User, ...] = ("compile",)
    fallback: str = ""
    since: tuple[int, int] = OLDEST
    until: tuple[int, int] = NEWEST


_NV = "triton.backends.nvidia.compiler"
_JIT = "triton.runtime.jit.JITFunction"
_TUNER = "triton.runtime.autotuner.Autotuner"
_FULL = "every config is compiled in full"
_CAPTURE: tuple[User, ...] = ("capture",)

INTERNALS: tuple[Internal, ...] = (
    Internal("triton.runtime.driver.set_active", "function", "put the target's driver in place", (1, ()), BOTH),
    Internal("triton.backends.compiler.GPUTarget", "class", "name the target", users=BOTH),
    Internal("triton.backends.driver.DriverBase", "class", "derive the target's driver", users=BOTH),
    Internal(f"{_NV}.CUDABackend", "class", "compile for NVIDIA GPUs", users=BOTH),
    Internal(f"{_NV}.CUDAOptions", "dataclass", "tell a config's back-end options from mistakes", users=BOTH),
    Internal(f"{_NV}.CUDABackend.parse_options", "function", "read launch options", (2, ()), BOTH),
    Internal(f"{_NV}.CUDABackend.add_stages", "function", "see shared memory once allocated", (4, ()), fallback=_FULL),
    Internal(f"{_NV}.CUDABackend.make_llir", "function", "end a compile at the allocation", (5, ()), fallback=_FULL),
    Internal(f"{_NV}.ir.pass_manager", "class", "run the passes up to the allocation", fallback=_FULL),
    Internal(f"{_NV}.passes", "module", "see the passes that are added", fallback=_FULL),
    Internal(f"{_NV}.nvidia", "module", "see the passes that are added", fallback=_FULL),
    Internal(f"{_NV}.get_ptxas", "function", "name the ptxas", (0, ()), until=(3, 4)),
    Internal(f"{_NV}.get_ptxas", "function", "name the ptxas", (1, ()), since=(3, 5)),
    *(
        Internal(f"triton.knobs.{group}", "value", "know the variables that a compile depends on")
        for group in ("compilation", "language", "nvidia", "runtime")
    ),
    Internal("triton.compiler.compiler.triton_key", "function", "name cache entries", (0, ()), until=(3, 4)),
    Internal("triton.runtime.cache.triton_key", "function", "name cache entries", (0, ()), since=(3, 5)),
    Internal(f"{_JIT}.warmup", "function", "compile a launch", (1, ("grid",)), BOTH),
    Internal(f"{_JIT}.run", "function", "see launches", (1, ("grid", "warmup")), _CAPTURE),
    Internal(f"{_JIT}.create_binder", "function", "bind arguments as a launch does", (1, ()), BOTH),
    Internal(f"{_JIT}().device_caches", "dict", "forget other targets, and to bind arguments", users=BOTH),
    Internal(f"{_JIT}().params", "list", "read a kernel's signature", users=BOTH),
    Internal(f"{_JIT}().arg_names", "list", "read a kernel's signature", users=BOTH),
    Internal(f"{_JIT}().fn", "function", "find a kernel's source file", users=BOTH),
    Internal(f"{_JIT}().src", "text", "write a kernel down", users=_CAPTURE),
    Internal(f"{_JIT}().raw_src", "list", "name a kernel's line", users=_CAPTURE, since=(3, 5)),
    Internal(f"{_JIT}().starting_line_number", "value", "name a kernel's line", users=_CAPTURE),
    Internal(f"{_JIT}().noinline", "value", "write a kernel down", users=_CAPTURE),
    *(
        Internal(f"triton.runtime.jit.KernelParam().{name}", "value", "read a kernel's signature", users=BOTH)
        for name in ("name", "is_constexpr", "has_default", "default", "annotation", "do_not_specialize")
    ),
    *(
        Internal(f"triton.runtime.jit.KernelParam().{name}", "value", "write a kernel's signature", users=_CAPTURE)
        for name in ("annotation_type", "is_const", "do_not_specialize_on_alignment")
    ),
    Internal(f"{_TUNER}.prune_configs", "function", "prune configs as the autotuner does", (2, ()), BOTH),
    Internal(f"{_TUNER}.run", "function", "see tuned launches", (1, ()), _CAPTURE),
    Internal(f"{_TUNER}._bench", "function", "see configs being tried", (1, ("config",)), _CAPTURE),
    Internal(f"{_TUNER}().fn", "value", "see configs as the autotuner does", users=BOTH),
    *(
        Internal(f"{_TUNER}().{name}", "list", "see configs as the autotuner does", users=BOTH)
        for name in ("configs", "keys", "arg_names")
    ),
    Internal(f"{_TUNER}().early_config_prune", "value", "say that configs are pruned"),
    Internal(f"{_TUNER}().perf_model", "value", "say that configs are pruned"),
    Internal("triton.runtime.autotuner.Heuristics().fn", "value", "find the kernel below heuristics", users=BOTH),
    Internal("triton.runtime.autotuner.Heuristics().values", "dict", "compute what heuristics set", users=BOTH),
    Internal("triton.runtime.autotuner.Config.all_kwargs", "function", "read a config", (1, ()), BOTH),
    Internal("triton.runtime.autotuner.Config().kwargs", "dict", "read a config", users=BOTH),
    *(
        Internal(f"triton.runtime.autotuner.Config().{name}", "value", "read a config", users=BOTH)
        for name in (*LAUNCH_OPTIONS, "pre_hook")
    ),
    Internal("triton.compiler.compile", "function", "put compiles off", (1, ("target", "options")), _CAPTURE),
    Internal("triton.testing.do_bench", "function", "time nothing", (1, ("quantiles", "return_mode")), _CAPTURE),
    Internal("triton.testing.do_bench_cudagraph", "function", "time nothing", (1, ()), _CAPTURE),
    Internal("triton.testing.get_dram_gbps", "function", "answer for the target's memory", (0, ()), BOTH),
    Internal("triton.testing.nvsmi", "function", "answer for the target's clocks", (1, ()), BOTH),
)


@dataclass(frozen=True)
class Moved:
    """One of `INTERNALS` that is not as it was, and how."""

    internal: Internal
    how: str

    def __str__(self) -> str:
        return f"{self.internal.path} {self.how}; it is needed to {self.internal.needed_to}"


def is_supported() -> bool:
    """Whether this Triton is one of the versions that the tests run on."""
    return OLDEST <= _major_minor() <= NEWEST


def check_internals(users: Sequence[User] = BOTH) -> list[Moved]:
    """What `users` rely on that this Triton lacks, or has as something else; empty when all is as the table says."""
    wanted = [one for one in INTERNALS if _is_in_this_version(one) and set(one.users) & set(users)]
    return [Moved(one, how) for one in wanted if (how := _how_it_moved(one))]


def require_internals(users: Sequence[User]) -> None:
    """`MissingDependencyError` that names what `users` cannot do without and do not find."""
    moved = [str(one) for one in check_internals(users) if not one.internal.fallback]
    if moved:
        raise MissingDependencyError(
            f"Triton {VERSION}: {'; '.join(moved)}",
            hint=f"Versions {_shown(OLDEST)} to {_shown(NEWEST)} are tested; `occupancy doctor` looks at all of it.",
        )


def _shown(version: tuple[int, int]) -> str:
    return ".".join(str(part) for part in version)


def _major_minor() -> tuple[int, int]:
    major, minor = VERSION.split(".")[:2]
    return int(major), int(minor)


def _is_in_this_version(one: Internal) -> bool:
    # Later versions are expected to be as the newest known one is.
    return one.since <= _major_minor() and (_major_minor() <= one.until or one.until == NEWEST)


def _how_it_moved(one: Internal) -> str:
    """What is not as expected, as the end of a sentence; empty when all is."""
    try:
        value = _found(one.path)
    except (AttributeError, ImportError):
        return "is gone"
    except Exception as bad:  # noqa: BLE001 (an object of Triton's that cannot be made is a thing that moved)
        return f"cannot be looked at ({type(bad).__name__}: {bad})"
    if not _KINDS[one.kind](value):
        return f"is {_described(value)}, not a {one.kind}"
    if one.called_with is not None and not _takes(value, *one.called_with):
        count, names = one.called_with
        given = ", ".join([*(f"argument {n + 1}" for n in range(count)), *(f"{name}=" for name in names)])
        return f"takes {inspect.signature(value)}, not ({given})"
    return ""


def _found(path: str) -> Any:
    """The object of that name. `Class()` in it is an object of the class, made for looking at."""
    before, made, after = path.partition("()")
    found: Any = None
    name = ""
    for part in before.split("."):
        name = f"{name}.{part}".lstrip(".")
        # An attribute first: `triton.runtime.driver` is an object that hides the module of that name.
        found = importlib.import_module(name) if found is None or not hasattr(found, part) else getattr(found, part)
    if not made:
        return found
    one = _specimens()[found.__name__]
    for part in after.strip(".").split("."):
        one = getattr(one, part)
    return one


@functools.lru_cache(maxsize=1)
def _specimens() -> Mapping[str, Any]:
    """An object of each class whose objects are relied upon."""
    jit = triton.jit(_specimen)
    config = triton.Config({})
    tuned = triton.autotune(configs=[config], key=[])(jit)
    given = triton.heuristics({"y": lambda _arguments: 1})(jit)
    return {type(one).__name__: one for one in (jit, jit.params[0], config, tuned, given)}


def _specimen(x, y):  # type: ignore[no-untyped-def]
    return x


def _takes(function: Callable[..., Any], count: int, names: Sequence[str]) -> bool:
    try:
        signature = inspect.signature(function)
        signature.bind(*range(count), **dict.fromkeys(names))
    except TypeError:
        return False
    except ValueError:  # compiled code that does not tell
        return True
    return True


_KINDS: Mapping[Kind, Callable[[Any], bool]] = {
    "module": lambda value: isinstance(value, types.ModuleType),
    "class": inspect.isclass,
    "dataclass": lambda value: inspect.isclass(value) and dataclasses.is_dataclass(value),
    "function": lambda value: callable(value) and not inspect.isclass(value),
    "value": lambda value: not inspect.ismethod(value),
    "text": lambda value: isinstance(value, str),
    "list": lambda value: isinstance(value, (list, tuple)),
    "dict": lambda value: isinstance(value, dict),
}


def _described(value: Any) -> str:
    if isinstance(value, types.ModuleType):
        return "a module"
    if inspect.isclass(value):
        return "a class"
    return "a function" if callable(value) else f"of type {type(value).__name__}"
