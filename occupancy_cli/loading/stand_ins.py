"""Stand-ins for what a kernel's module imports and is missing: the objects, and what was decided on their word.

    with standing_in(packages=["vllm"]) as used:
        module = importlib.import_module("vllm.v1.attention.ops.triton_decode_attention")
    used.names()     # ["torch", "vllm.platforms"]
    used.choices()   # ["vllm.platforms.current_platform.is_rocm() was taken as false"]

A stand-in takes every form in which a module's top level uses what it imports: attributes and calls chain to further
stand-ins; it decorates (and leaves what it decorates as it is), serves as a base class, annotation, default, context
manager or dictionary key. Asked for a decision it says no, and the choice is recorded. What the missing package would
say of the target GPU (see `target_gpu`), and PyTorch of its own types (`torch.finfo`), it says.

Which modules are stood in for is told by `absent_modules`, whose import hooks put these objects in place. After
loading, stand-ins are sealed: a value that is then needed of one (a constexpr, a global of a JIT function, an autotune
config, a heuristic's result) is a `ValueNeeded` that names it. Nothing that a stand-in said by guess can reach a
compile.
"""

from __future__ import annotations

import abc
import ast
import functools
import re
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CodeType, FrameType, ModuleType
from typing import Any

from occupancy_cli.errors import InputError
from occupancy_cli.loading.device_doors import known
from occupancy_cli.loading.import_facts import syntax_tree
from occupancy_cli.loading.torch_answers import ABSENT, NOT_KNOWN, TORCH_VERSION

MAX_CHAIN = 40
MAX_SUPPLIED = 50
_COMPILING = ("occupancy_cli.compile.triton_front", "occupancy_cli.compile.kernel_layers")


class ValueNeeded(InputError):
    """A kernel needs the value of something that only a stand-in is there for; `data['name']` is what."""

    def __repr__(self) -> str:
        # Triton writes repr() of what is raised while it visits a kernel into its own error.
        return self.problem


@dataclass
class StandIns:
    """One loading with stand-ins: what was stood in for, why, and which choices that made."""

    packages: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    guards: bool = True
    target: str = ""
    sealed: bool = False
    reasons: dict[str, str] = field(default_factory=dict)
    """Module name -> why it is stood in for, in whole or in part."""
    objects: dict[str, Any] = field(default_factory=dict)
    decided: dict[str, None] = field(default_factory=dict)
    supplied: dict[tuple[str, str], Any] = field(default_factory=dict)
    """(module, name) -> the stand-in put there, for names that an installed module does not have."""

    def supply(self, bad: BaseException) -> bool:
        """Whether a stand-in could be put in the place of a name that an installed module does not have."""
        match = (
            re.match(r"cannot import name '(\w+)' from '([\w.]+)'", str(bad)) if isinstance(bad, ImportError) else None
        )
        if match is None or len(self.supplied) >= MAX_SUPPLIED:
            return False
        name, module = match.groups()
        if hasattr(sys.modules.get(module), name) or module not in sys.modules:
            return False
        self.reasons[f"{module}.{name}"] = f"is not in {module} as installed"
        self.supplied[module, name] = self.child(f"{module}.{name}")
        setattr(sys.modules[module], name, self.supplied[module, name])
        return True

    def names(self) -> list[str]:
        """The modules stood in for, a package standing for its modules; sorted."""
        names = sorted(self.reasons)
        return [n for n in names if not any(n.startswith(f"{other}.") for other in names)]

    def choices(self) -> list[str]:
        """What was decided on a stand-in's word while loading, as sentences."""
        return list(self.decided)

    def why(self, path: str) -> str:
        """Why `path` (such as torch.cuda.x) is a stand-in."""
        parts = path.split(".")
        for length in range(len(parts), 0, -1):
            name = ".".join(parts[:length])
            if name in self.reasons:
                return f"{name} {self.reasons[name]}"
        return f"{parts[0]} is a stand-in"

    def child(self, path: str) -> Any:
        """The stand-in for `path`, always the same one; the missing package's own answer where that is known."""
        if path in self.objects:
            return self.objects[path]
        answer = known(path)
        self.objects[path] = answer if answer is not NOT_KNOWN else StandIn(self, path)
        return self.objects[path]

    def decide(self, question: str, root: str, answer: Any = False) -> Any:
        """`answer` while loading, with a record of it; once sealed, the error that the value is needed.

        `root` is the dotted name that the question is about.
        """
        if self.sealed:
            raise self.needed(question, root)
        self.decided[f"{question} was taken as {str(answer).lower()}"] = None
        return answer

    def needed(self, path: str, root: str) -> ValueNeeded:
        """The error for a value that no stand-in has."""
        return ValueNeeded(
            f"the value of {path} is needed, but {self.why(root)}",
            hint="Install what is missing beside Triton, or load the kernel from a file that defines the value.",
            name=path,
        )


# --- the objects -----------------------------------------------------------------------------------------------------


class StandIn:
    """Stands for one attribute, call or expression of what is missing."""

    # What names a chain of stand-ins must not clash with what code asks of it, hence the underscores.
    def __init__(self, owner: StandIns, path: str, depth: int = 0, root: str = "") -> None:
        self.__dict__["_stand_ins_"] = owner
        self.__dict__["_root_"] = root or path
        self.__dict__["_path_"] = path
        self.__dict__["_depth_"] = depth
        self.__dict__["__name__"] = path.rpartition(".")[2]
        self.__dict__["__qualname__"] = self.__dict__["__name__"]

    def _next_(self, path: str) -> Any:
        if self._depth_ >= MAX_CHAIN:
            raise AttributeError(f"{self._path_} is a stand-in, and has no end")
        return StandIn(self._stand_ins_, path, self._depth_ + 1, self._root_)

    def _decide_(self, question: str, answer: Any = False) -> Any:
        return self._stand_ins_.decide(question, self._root_, answer)

    def _needed_(self) -> ValueNeeded:
        needed: ValueNeeded = self._stand_ins_.needed(self._path_, self._root_)
        return needed

    def __getattr__(self, name: str) -> Any:
        owner: StandIns = self.__dict__["_stand_ins_"]
        path = f"{self._path_}.{name}"
        if name.startswith("__") and name.endswith("__"):
            return _dunder(owner, self._path_, name, self._root_)
        if owner.sealed and _triton_compiles_it(sys._getframe(1)):
            raise self._needed_()
        if ABSENT.match(path) or path.count(".") > MAX_CHAIN:
            raise AttributeError(f"{path} is a stand-in without an end")
        if self._depth_ == 0 and "(" not in path and "[" not in path:
            return owner.child(path)
        return self._next_(path)

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__[name] = value

    def __delattr__(self, name: str) -> None:
        self.__dict__.pop(name, None)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and _is_decorated(args[0]):
            return _decorated(self._stand_ins_, self._path_, args[0])
        if len(args) == 3 and isinstance(args[0], str) and isinstance(args[1], tuple) and isinstance(args[2], dict):
            return type(args[0], args[1], dict(args[2]))  # used as a metaclass
        return self._next_(f"{self._path_}()")

    def __mro_entries__(self, _bases: tuple[Any, ...]) -> tuple[type, ...]:
        return (_base_class(self._stand_ins_, self._path_),)

    def __instancecheck__(self, _instance: object) -> bool:
        return False

    def __subclasscheck__(self, _cls: type) -> bool:
        return False

    def __getitem__(self, _key: Any) -> Any:
        return self._next_(f"{self._path_}[...]")

    def __setitem__(self, _key: Any, _value: Any) -> None:
        return None

    def __contains__(self, item: object) -> bool:
        return bool(self._decide_(f"{item!r} in {self._path_}"))

    def __iter__(self) -> Iterator[Any]:
        if self._stand_ins_.sealed:
            raise self._needed_()
        count = _unpacked_into(sys._getframe(1))
        if count is None:
            self._decide_(f"what {self._path_} holds", "nothing")
        return iter([self._next_(f"{self._path_}[{i}]") for i in range(count or 0)])

    def __enter__(self) -> Any:
        return self._next_(f"{self._path_}()")

    def __exit__(self, *_exc: object) -> None:
        return None

    def __bool__(self) -> bool:
        return bool(self._decide_(self._path_))

    def __len__(self) -> int:
        return int(self._decide_(f"len({self._path_})", 0))

    def _number_(self, *_: Any) -> Any:
        raise self._needed_()

    __int__ = __index__ = __float__ = __complex__ = __round__ = __trunc__ = __floor__ = __ceil__ = _number_

    def __fspath__(self) -> str:
        return f"/no/such/path/{self._path_}"

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        if other is self or isinstance(other, StandIn) or not self._stand_ins_.sealed:
            return other is self
        raise self._needed_()

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __repr__(self) -> str:
        if self._stand_ins_.sealed:
            raise self._needed_()
        return f"<stand-in for {self._path_}>"

    def __str__(self) -> str:
        return repr(self)

    def __format__(self, _spec: str) -> str:
        return repr(self)

    def __deepcopy__(self, _memo: Any) -> Any:
        return self

    def __copy__(self) -> Any:
        return self


def _add_operators() -> None:
    def compared(symbol: str) -> Callable[[StandIn, Any], bool]:
        return lambda self, other: bool(self._decide_(f"{self._path_} {symbol} {_shown(other)}"))

    def made(symbol: str, *, swapped: bool = False) -> Callable[[StandIn, Any], Any]:
        def apply(self: StandIn, other: Any) -> Any:
            left, right = (_shown(other), self._path_) if swapped else (self._path_, _shown(other))
            return self._next_(f"{left} {symbol} {right}")

        return apply

    for name, symbol in {"lt": "<", "le": "<=", "gt": ">", "ge": ">="}.items():
        setattr(StandIn, f"__{name}__", compared(symbol))
    binary = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**"}
    binary |= {"and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>", "matmul": "@"}
    for name, symbol in binary.items():
        setattr(StandIn, f"__{name}__", made(symbol))
        setattr(StandIn, f"__r{name}__", made(symbol, swapped=True))
    for name, symbol in {"neg": "-", "pos": "+", "invert": "~"}.items():
        setattr(StandIn, f"__{name}__", lambda self, symbol=symbol: self._next_(f"{symbol}{self._path_}"))


_add_operators()


def _shown(value: Any) -> str:
    if isinstance(value, StandIn):
        return str(value._path_)
    return repr(value)[:40] if isinstance(value, (int, float, str, bool, type(None), tuple)) else type(value).__name__


def _dunder(owner: StandIns, path: str, name: str, root: str) -> Any:
    """Attributes with underscores on both sides: absent, but for those that have a plain meaning."""
    if name == "__version__":
        return TORCH_VERSION if path == "torch" else owner.decide(f"{path}.__version__", root, "0.0.0")
    if name in ("__triton_builtin__", "__triton_aggregate__") and _triton_asks(sys._getframe(2)):
        # Triton asks this of every global that a JIT function names: first of all of them, for its cache key, then of
        # those that the code it compiles really reaches.
        if _triton_compiles_it(sys._getframe(2)):
            raise owner.needed(path, root)
        return name == "__triton_builtin__"
    if name == "__get_pydantic_core_schema__":
        return _any_schema
    raise AttributeError(f"{path} is a stand-in and has no {name}")


def _triton_asks(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith("triton.")


def _triton_compiles_it(frame: FrameType) -> bool:
    """Whether the compiler asks, at work on a value, or this tool; `triton.runtime.jit` only looks at what is named."""
    name = str(frame.f_globals.get("__name__", ""))
    return name.startswith(("triton.", *_COMPILING)) and name != "triton.runtime.jit"


def _any_schema(*_: Any) -> Any:
    from pydantic_core import core_schema

    return core_schema.any_schema()


def _is_decorated(value: Any) -> bool:
    if isinstance(value, (types.FunctionType, types.MethodType, type, staticmethod, classmethod, property)):
        return True
    return hasattr(value, "__wrapped__") or any(c.__module__.startswith("triton.") for c in type(value).__mro__)


class _Decorated(StandIn):
    """A function that was given to something missing: itself when it is called, a stand-in in every other use.

    What was missing may have been a decorator, or a call that takes a function and returns anything at all.
    """

    def __init__(self, owner: StandIns, path: str, function: Any) -> None:
        super().__init__(owner, f"{path}()", 1, path)
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__dict__["__wrapped__"](*args, **kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return other is self

    __hash__ = StandIn.__hash__

    def __repr__(self) -> str:
        return repr(self.__dict__["__wrapped__"])

    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(self.__dict__["__wrapped__"], name)
        except AttributeError:
            if self._stand_ins_.sealed:
                raise
            return super().__getattr__(name)


def _decorated(owner: StandIns, path: str, value: Any) -> Any:
    if not isinstance(value, types.FunctionType) or _is_under_jit(value):
        return value
    return _Decorated(owner, path, value)


def _is_under_jit(function: types.FunctionType) -> bool:
    """Whether the function's own decorators, by its source, end in a JIT: that takes functions alone."""
    code = function.__code__
    for node in ast.walk(syntax_tree(code.co_filename)):
        if isinstance(node, ast.FunctionDef) and node.name == function.__name__:
            first = min((d.lineno for d in node.decorator_list), default=node.lineno)
            if code.co_firstlineno in (first, node.lineno):
                called = (d.func if isinstance(d, ast.Call) else d for d in node.decorator_list)
                return any(getattr(c, "attr", getattr(c, "id", "")) == "jit" for c in called)
    return False


class _Meta(abc.ABCMeta):
    """Classes derived from what is missing: attributes that only the missing base would have are stand-ins."""

    def __getattr__(cls, name: str) -> Any:
        origin = next((c.__dict__["_origin_"] for c in cls.__mro__ if "_origin_" in c.__dict__), None)
        if origin is None or (name.startswith("__") and name.endswith("__")) or name.startswith("_abc_"):
            raise AttributeError(name)
        owner, path = origin
        return StandIn(owner, f"{path}.{name}", 1, path)


_classes: weakref.WeakValueDictionary[tuple[int, str], type] = weakref.WeakValueDictionary()


def _base_class(owner: StandIns, path: str) -> type:
    """A class in the place of a missing base class."""
    key = (id(owner), path)
    known = _classes.get(key)
    if known is not None:
        return known

    def initialize(_self: Any, *_args: Any, **_kwargs: Any) -> None:
        return None

    def attribute(self: Any, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return StandIn(owner, f"{path}().{name}", 1, path)

    namespace = {
        "_origin_": (owner, path),
        "__init__": initialize,
        "__getattr__": attribute,
        "__init_subclass__": classmethod(lambda _cls, **_kwargs: None),
        "__class_getitem__": classmethod(lambda cls, _key: cls),
        "__module__": __name__,
    }
    made = _Meta(path.rpartition(".")[2].replace("()", "") or "StandIn", (), namespace)
    _classes[key] = made
    return made


def _unpacked_into(frame: FrameType) -> int | None:
    """How many names the caller takes the value apart into (`a, b = value`); None when it does something else."""
    import dis

    code: CodeType = frame.f_code
    for instruction in dis.get_instructions(code):
        if instruction.offset >= frame.f_lasti:
            if instruction.opname == "UNPACK_EX":  # a, *b: how many stand before the star, and after it
                return (instruction.arg or 0) % 256 + (instruction.arg or 0) // 256
            return instruction.arg if instruction.opname == "UNPACK_SEQUENCE" else None
    return None


def stand_in_module(owner: StandIns, name: str) -> ModuleType:
    """A module of type `ModuleType` itself (Triton asks for exactly that) whose every attribute is a stand-in."""
    module = ModuleType(name)

    def attribute(attr: str) -> Any:
        if attr.startswith("__") and attr.endswith("__"):
            if attr in ("__triton_builtin__", "__triton_aggregate__"):
                raise AttributeError(attr)  # Triton lets modules pass, and asks again of what is taken from them
            return [] if attr == "__all__" else _dunder(owner, name, attr, name)
        if ABSENT.match(f"{name}.{attr}"):
            raise AttributeError(f"{name}.{attr}")
        return owner.child(f"{name}.{attr}")

    module.__getattr__ = attribute  # type: ignore[method-assign]
    module.__path__ = []
    return module
