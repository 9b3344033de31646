"""A kernel spec to start from: what a kernel's source says of its launch, with marked places for what it does not say.

Source is read, never imported (`source_knobs`, the launches in the file, and the kernel's own body for what is loaded
from and stored to). What the source states is written as it is. What is only likely (the type of a pointer by its name
and use, a shape that nobody states) carries the word "guess", so that the spec runs as it is written, and is counted:
an answer is for those guesses until a person has looked them over.
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from occupancy_cli.errors import InputError
from occupancy_cli.model.launch_options import DEFAULTS, LAUNCH_OPTIONS
from occupancy_cli.source.kernel_body import POINTER_NAME, KernelBody
from occupancy_cli.source.knob_types import SourceOptions
from occupancy_cli.source.launch_tensors import Passed
from occupancy_cli.source.source_knobs import (
    EnvironmentVariable,
    KernelKnobs,
    SourceKnobs,
    read_knobs,
)
from occupancy_cli.source.source_launches import source_options
from occupancy_cli.spec.expressions import ExpressionError, parse_expression
from occupancy_cli.spec.kernel_spec import SCHEMA, canonical_type
from occupancy_cli.spec.settings import parse_value

_INTEGER_DATA = re.compile(r"ind(ex|ices|x)|idx|ids?$|table|lens?$|length|offs|starts?$|cu_seq|req_to|count|num_", re.I)
_FP8_DATA = re.compile(r"fp8|float8|e4m3", re.IGNORECASE)
_FP32_DATA = re.compile(r"lse|scale|max|sum|acc|mid|rstd|mean|partial", re.IGNORECASE)
_FLOAT_SCALAR = re.compile(
    r"scale|eps|alpha|beta|gamma|cap$|factor|softcap|prob|dropout|lr$|theta|log2e|period|decay|momentum|temperature",
    re.IGNORECASE,
)
_TRUTH = re.compile(
    r"^(is|has|use|do|with|enable|need|store|load|causal|even)(_|$)|^(causal|normalize)$", re.IGNORECASE
)
_NUMBERS_BY_NAME = (
    (r"stride.*(_k|_d|_n|_dim)$", 1),
    (r"^(b|bs|bsz|z)$|batch|num_seqs", 16),
    (r"^(h|hq|hkv)$|heads?$", 32),
    (r"head_?dim|^d(_model)?$|^(dk|dv)$", 128),
    (r"offset|^start|_start$|_idx$|index$|seed", 16),
    (r"topk|splits?$|groups?$|experts?$|^n[a-z]$", 8),
)
_DIVIDES = frozenset({"cdiv", "ceil_div", "ceildiv"})


@dataclass(frozen=True)
class Skeleton:
    """The text of a spec, and the places in it that were guessed, by their names."""

    text: str
    guessed: tuple[str, ...]
    name: str


def write_skeleton(path: Path, kernel: str | None, reference: Callable[[str], str]) -> Skeleton:
    """The skeleton of the spec of `kernel` in the file at `path`; `reference` gives what a spec calls it by its name.

    `kernel` may be None where the file has one kernel. Raises `InputError` when there is no such kernel.
    """
    if path.is_dir():
        raise InputError("is a package: name the module in it", where=str(path))
    found = read_knobs(path, kernel=kernel)
    names = [k.qualname for k in found.kernels if k.role == "kernel"]
    if kernel is None:
        if len(names) != 1:
            listed = f"Kernels there: {', '.join(names[:20])}" if names else "It has no @triton.jit function."
            raise InputError(f"{len(names)} kernels in {path.name}; name one: {path.name}:NAME", hint=listed)
        found = read_knobs(path, kernel=names[0])
    chosen = found.kernels[-1]
    said = source_options(path, chosen.qualname)
    return _Writer(found, chosen, KernelBody.of(path, chosen), reference(chosen.qualname), said).write()


class _Writer:
    """Writes one skeleton, line by line."""

    def __init__(
        self, found: SourceKnobs, kernel: KernelKnobs, body: KernelBody, reference: str, said: SourceOptions
    ) -> None:
        self.found, self.kernel, self.body, self.reference, self.said = found, kernel, body, reference, said
        self.launches = [s for s in found.launches if kernel.name in s.kernels]
        self.lines: list[str] = []
        self.guessed: list[str] = []
        self.tuned: set[str] = set()
        if kernel.autotune is not None:
            self.tuned = {n for c in kernel.autotune.configs or () for n in c}
        elif said.decorated:
            self.tuned = set.intersection(*(set(c.values) for c in said.decorated))
        given = [p.name for p in kernel.arguments if p.name not in kernel.heuristics]
        self.integers = [n for n in given if self._kind(n)[0] == "i32"]
        self.knobs = dict(self._environment_knobs())
        self.constexprs = dict(self._constexprs())
        known = {*self.integers, *self.constexprs, *self.knobs, *self.tuned}
        self.grid, self.grid_shapes, self.grid_source = self._grid(known)

    def write(self) -> Skeleton:
        add = self.lines.append
        add(f"# Spec of {self.kernel.name} ({_on_one_line(str(self.kernel.place))}), drawn up from its source.")
        add("# Look over what is marked guess: answers are for these values. The format: occupancy schema spec")
        add(f"schema: {SCHEMA}")
        add(f"name: {_scalar(self.kernel.name.lstrip('_') or self.kernel.name)}")
        add(f"kernel: {_scalar(self.reference)}")
        self._write_shapes()
        self._write_knobs()
        self._write_arguments()
        self._write_constexprs()
        self._write_configs()
        self._write_grid()
        self._write_rest()
        return Skeleton("\n".join(self.lines) + "\n", tuple(self.guessed), self.kernel.name)

    def _guess(self, value: object, place: str) -> str:
        self.guessed.append(place)
        return str(value)

    # --- arguments ---

    def _kind(self, name: str) -> tuple[str, str]:
        """A type for an argument, and why (empty: the source says so)."""
        stated = (self.said.signature or {}).get(name, "")
        annotation = stated or self.body.annotations.get(name, "")
        spelled = annotation.rpartition(".")[2]
        spelled = f"*{spelled}" if annotation.startswith("*") else spelled
        with contextlib.suppress(ValueError):
            return canonical_type({"int": "i32", "float": "fp32"}.get(spelled, spelled)), ""
        passed = self.body.passed.get(name, Passed())
        if name in self.body.descriptors or passed.block_shape:
            return self._descriptor(name, passed)
        if passed.dtype is not None and (name in self.body.addressed or POINTER_NAME.search(name)):
            with contextlib.suppress(ValueError):
                return f"*{canonical_type(passed.dtype)}", ""
        if name in self.body.stored_as:
            with contextlib.suppress(ValueError):
                return f"*{canonical_type(self.body.stored_as[name])}", "stored as such"
        if name in self.body.addressed or POINTER_NAME.search(name):
            why = "loaded or stored through" if name in self.body.addressed else "by its name"
            if name in self.body.indices:
                return "*i32", "addresses are reckoned from what it holds"
            if name in self.body.float32:
                return "*fp32", "what it holds is carried with float32"
            named = re.sub(r"_?ptrs?$", "", name, flags=re.IGNORECASE)
            for pattern, element in ((_INTEGER_DATA, "*i32"), (_FP8_DATA, "*fp8e4nv"), (_FP32_DATA, "*fp32")):
                if pattern.search(named):
                    return element, why
            return "*bf16", why
        default = next((p.default for p in self.kernel.arguments if p.name == name), None)
        if default == "None":
            return "none", "its default"
        if default in ("True", "False") or _TRUTH.match(name):
            return "i1", "by its name"
        counted = name in self.body.integers or "stride" in name.casefold()
        if (_FLOAT_SCALAR.search(name) and not counted) or (
            default is not None and re.fullmatch(r"-?\d*\.\d*(e-?\d+)?", default)
        ):
            return "fp32", "by its name"
        return "i32", ""

    def _descriptor(self, name: str, passed: Passed) -> tuple[str, str]:
        """The type of a tensor descriptor: its block shape as launched, else of the constexprs by their order."""
        element = "bf16"
        why = "its type"
        with contextlib.suppress(ValueError):
            element, why = canonical_type(passed.dtype or "?"), ""
        constexprs = [p.name for p in self.kernel.constexprs]
        spelled = self._spelled({*constexprs, *self.tuned})
        axes = [(_grid_axes(text, spelled) or [""])[0] for text in passed.block_shape]
        if not axes or not all(_is_expression(axis, {*constexprs, *self.tuned}) for axis in axes):
            blocks = [n for n in constexprs if re.search(r"block|tile|^b[mnk]$", n, re.IGNORECASE)]
            axes = (blocks + ["64"] * 5)[: self.body.descriptors.get(name, 2)]
            why = "its block shape" if not why else "its type and block shape"
        return f"tensordesc<{element}[{', '.join(axes)}]>", why

    def _write_shapes(self) -> None:
        if not self.integers and not self.grid_shapes:
            return
        if self.integers:
            self.lines += [
                "",
                "# Arguments taken to be integers: nothing is loaded or stored through them. Values matter: 1 is a",
                "# constant of its own, and multiples of 16 are marked so, which often takes more shared memory.",
            ]
        self.lines += ["shapes:"] if self.integers else ["", "shapes:"]
        for name in self.integers:
            default = next((p.default for p in self.kernel.arguments if p.name == name), None)
            value = default if default and re.fullmatch(r"-?\d{1,18}", default) else self._launched_with(name)
            if value is not None:
                self.lines.append(f"  {name}: {value}")
            elif self._stride(name) is None:
                self.lines.append(f"  {name}: {self._guess(_likely(name), f'shapes.{name}')}  # guess")
        for name in self.grid_shapes:
            self.lines.append(f"  {name}: {self._guess(_likely(name, 16), f'shapes.{name}')}  # guess; for the grid")

    def _stride(self, name: str) -> str | None:
        """What a stride comes to where its tensor is contiguous, over the names of the spec; None if nobody says."""
        text = self.body.passed.get(name, Passed()).stride
        known = {*self.integers} - {name}
        axes = _grid_axes(text, self._spelled(known)) if text else None
        return axes[0] if axes and _is_expression(axes[0], known) else None

    def _launched_with(self, name: str) -> int | None:
        """The integer that stands for an argument at every launch in the file, where it is one."""
        numbers = {launch.numbers.get(name) for launch in self.said.launches}
        return numbers.pop() if len(numbers) == 1 else None

    def _write_arguments(self) -> None:
        heuristic = [a.name for a in self.kernel.arguments if a.name in self.kernel.heuristics]
        written = [a.name for a in self.kernel.arguments if a.name not in heuristic]
        if not written:
            return
        self.lines += [
            "",
            "# Types: *bf16, *fp16, *fp32, *fp8e4nv, *i32, ... (pointers), i32, i64, fp32, i1, none (None). A pointer",
            '# whose address is not a multiple of 16 bytes says so: {type: "*bf16", align: 4}.',
            "arguments:",
        ]
        for name in written:
            kind, why = self._kind(name)
            note = f"  # guess: {why}" if why else ""
            self.guessed += [f"arguments.{name}"] if why else []
            stride = self._stride(name) if kind == "i32" else None
            if stride is not None:
                self.lines.append(f"  {name}: {{type: i32, value: {_scalar(stride)}}}  # guess: contiguous")
                self.guessed.append(f"arguments.{name}")
            elif kind == "i32":
                self.lines.append(f"  {name}: {{type: i32, value: {name}}}{note}")
            elif kind == "i1":
                self.guessed += [] if why else [f"arguments.{name}"]
                self.lines.append(f"  {name}: {{type: i1, value: true}}  # guess")
            elif kind.startswith("tensordesc"):
                self.lines.append(f'  {name}: "{kind}"{note}')
            else:
                self.lines.append(f"  {name}: {_scalar(kind)}{note}")
        self.lines += [f"  # {name}: computed by @triton.heuristics" for name in heuristic]

    # --- constexprs, knobs, configs ---

    def _constexprs(self) -> Iterator[tuple[str, str | None]]:
        """Each constexpr that nothing else gives, with the value that launches agree on, or None."""
        for parameter in self.kernel.constexprs:
            name = parameter.name
            if name in self.tuned or name in self.kernel.heuristics or name in self.knobs:
                continue
            texts = {text for s in self.launches if (text := s.constexprs.get(name)) is not None}
            texts = {t for text in texts for t in self._resolved(text)}
            literal = texts.pop() if len(texts) == 1 else None
            agreed = {repr(launch.values[name]) for launch in self.said.launches if name in launch.values}
            if len(agreed) == 1 and (literal is None or _literal(literal) is None):
                literal = agreed.pop()
            if literal is None and parameter.default is not None:
                continue
            yield name, literal if literal is not None and _literal(literal) is not None else None

    def _resolved(self, text: str) -> list[str]:
        """What `text` was assigned before the launch, or at the top of its file, where it is a plain name."""
        found = [d.text for s in self.launches for d in s.definitions.get(text, ())]
        return found or [self.body.constants.get(text, text)]

    def _environment_knobs(self) -> Iterator[tuple[str, tuple[EnvironmentVariable, Any]]]:
        """Constexprs that are given the value of an environment variable at a launch, with its default."""
        for variable in self.found.environment:
            defaults = [v for r in variable.reads if isinstance(v := parse_value(str(r.default_value)), (int, float))]
            if not variable.literal or not defaults:
                continue
            for name in [p.name for p in self.kernel.constexprs if p.name not in self.tuned]:
                texts = [t for s in self.launches if name in s.constexprs for t in self._resolved(s.constexprs[name])]
                if any(variable.name in t for t in texts):
                    yield name, (variable, defaults[0])

    def _write_knobs(self) -> None:
        others = [v for v in self.found.environment if v not in [k for k, _ in self.knobs.values()]]
        if not self.knobs and not others:
            return
        self.lines += ["", "# What a person sets; `values` is what `occupancy recommend` may choose from."]
        if self.knobs:
            self.lines.append("knobs:")
        for name, (variable, default) in self.knobs.items():
            self.lines.append(f"  {name}: {{default: {_scalar(default)}, env: {variable.name}}}  # add values: [...]")
        for variable in others[:20]:
            default = variable.defaults[0] if variable.defaults else "none"
            self.lines.append(f"# {variable.name} is read at {variable.reads[0].place}, default {_one_line(default)}")

    def _write_constexprs(self) -> None:
        defaults = [p for p in self.kernel.constexprs if p.default is not None and p.name not in self.constexprs]
        defaults = [p for p in defaults if p.name not in self.tuned]
        if self.constexprs or defaults:
            self.lines += ["", "# Numbers, true or false, texts, and Triton types as tl.bfloat16."]
        if self.constexprs:
            self.lines.append("constexprs:")
        for name, literal in self.constexprs.items():
            written = [s.constexprs[name] for s in self.launches if name in s.constexprs]
            if literal is not None:
                self.lines.append(f"  {name}: {_literal(literal)}  # as launched")
                continue
            texts = dict.fromkeys(t for w in written for t in self._resolved(w))
            expression = self._expression(next(iter(texts))) if len(texts) == 1 else None
            if expression is not None:
                self.lines.append(f"  {name}: {_scalar(expression)}  # as launched")
                continue
            value = self._guess(self._likely_constexpr(name), f"constexprs.{name}")
            hint = f"; launched with {_one_line(' or '.join(texts))}" if texts else ""
            self.lines.append(f"  {name}: {value}  # guess{hint}")
        self.lines += [f"  # {p.name}: {_one_line(p.default or '')} by default" for p in defaults]

    def _likely_constexpr(self, name: str) -> object:
        """What a constexpr may be, by what the kernel does with it, else by its name."""
        if name in self.body.precisions:
            return "ieee"  # which every type of tl.dot takes
        asked = self.body.compared.get(name)
        if isinstance(asked, str):
            return _scalar(asked)
        expected = _expected(name)
        if expected == 1 and name in self.body.sizes:
            return 64
        return asked if expected == 1 and asked is not None else expected

    def _expression(self, text: str) -> str | None:
        """`text` of a launch as an expression over the spec's shapes and knobs, where it is one."""
        known = {*self.integers, *self.knobs}
        translated = _grid_axes(text, self._spelled(known))
        try:
            names = parse_expression(translated[0]).names if translated and len(translated) == 1 else frozenset({""})
        except ExpressionError:
            return None
        return translated[0] if translated and names and names <= known else None

    def _write_configs(self) -> None:
        self.lines.append("")
        autotune = self.kernel.autotune
        if autotune is not None:
            count = "configs that are computed" if autotune.configs is None else f"{len(autotune.configs)} configs"
            self.lines.append(f"# The {count} of @triton.autotune, keyed by {', '.join(autotune.key) or 'nothing'}.")
            self.lines += [f"# {name}: {_one_line(text)}" for name, text in autotune.more.items()]
            self.lines.append("configs: autotune")
            return
        launches = self.said.decorated or self.said.launches
        known = {*LAUNCH_OPTIONS} | (set(self.tuned) if self.said.decorated else set())
        configs = [{n: _scalar(v) for n, v in launch.values.items() if n in known} for launch in launches]
        missed = [n for launch in launches for n in launch.not_read if n.name in LAUNCH_OPTIONS]
        self.lines += [f"# Not read: {_one_line(str(n))}" for n in dict.fromkeys((*self.said.not_read, *missed))]
        distinct = list(dict.fromkeys(_flow(c) for c in configs if c))
        if distinct:
            places = dict.fromkeys(f"{launch.file}:{launch.line}" for launch in launches if launch.values)
            self.lines.append(f"# The launch options in the source: {', '.join([*places][:4])}")
            self.lines.append("configs:" if len(distinct) > 1 else f"configs: [{{{distinct[0]}}}]")
            self.lines += [f"  - {{{text}}}" for text in distinct] if len(distinct) > 1 else []
            return
        options = ", ".join(f"{n}: {DEFAULTS[n]}" for n in ("num_warps", "num_stages"))
        self.lines += [
            "# The source gives no launch options: Triton's defaults. Several: {product: {num_warps: [4, 8]}}",
            f"configs: [{{{options}}}]",
        ]

    # --- grid ---

    def _grid(self, known: set[str]) -> tuple[list[str] | None, list[str], str]:
        """The grid as expressions (None: not to be had), the names they need beside `known`, the grid as written."""
        source = ""
        folded = self._spelled(known)
        arguments = {p.name for p in self.kernel.arguments} | set(self.kernel.heuristics)
        for site in self.launches:
            for text in self._resolved(site.grid):
                source = source or text
                axes = _grid_axes(text, folded)
                if axes is None:
                    continue
                try:
                    names = {n for a in axes for n in parse_expression(a).names}
                except ExpressionError:
                    continue
                if not names & (arguments - known):
                    return axes, sorted(names - known), text
        return None, [], source

    def _spelled(self, known: set[str]) -> dict[str, str]:
        """How names around a launch are spelled in the spec: by the constexpr they are passed as, or but for case."""
        passed = {t.casefold(): n for s in self.launches for n, t in s.constexprs.items() if t.isidentifier()}
        return {t: n for t, n in passed.items() if n in known} | {n.casefold(): n for n in sorted(known)}

    def _write_grid(self) -> None:
        self.lines += [
            "",
            "# Programs along x, y, z: expressions over the names above. Without a grid, waves are unknown.",
        ]
        if self.grid_source:
            self.lines.append(f"# In the source: {_one_line(self.grid_source)}")
        if self.grid is not None:
            self.lines.append(f"grid: [{', '.join(_scalar(a) for a in self.grid)}]")
            return
        axes = [f"programs along {axis}" for axis in "xyz"[: min(self.body.axes, 3)]]
        self.lines.append(f"# grid: [{', '.join(axes)}]")

    def _write_rest(self) -> None:
        self.lines += [
            "",
            "# For times and `occupancy recommend`: iterations of a CTA's main loop, such as ceil_div(K, BLOCK_K).",
            "# work: {iterations: ...}",
            "# For `occupancy check`:",
            "# check: {gpus: [rtx-pro-6000], budgets: {max_spill_bytes: 0, min_ctas_per_sm: 1}}",
        ]


def _expected(name: str) -> object:
    """What a constexpr of that name may be."""
    if _TRUTH.match(name):
        return "true"
    if re.search(r"dtype|_type$", name, re.IGNORECASE):
        return "tl.bfloat16"
    if re.search(r"block|tile|size|dim|head|^b[mnkdtvsc]$", name, re.IGNORECASE):
        return 64
    # A name of a letter or two is a dimension, as tl.dot (16 at least) and tl.arange (powers of two) take them.
    return 16 if len(name) <= 2 else 1


def _likely(name: str, otherwise: int = 4096) -> int:
    """A number that an integer of that name may have; `otherwise` for one whose name says nothing."""
    for pattern, value in _NUMBERS_BY_NAME:
        if re.search(pattern, name, re.IGNORECASE):
            return value
    return otherwise


def _is_expression(text: str, names: Iterable[str]) -> bool:
    """Whether a text is an expression over these names alone."""
    try:
        return parse_expression(text).names <= set(names)
    except ExpressionError:
        return False


def _literal(text: str) -> str | None:
    """A Python literal, or a Triton type, as YAML; None for anything else."""
    if re.fullmatch(r"(tl|triton\.language)\.(b?float\d+|u?int\d+|float8e\w+)", text):
        return f"tl.{text.rpartition('.')[2]}"
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    return _scalar(value) if value is None or isinstance(value, (bool, int, float, str)) else None


def _grid_axes(text: str, known: Mapping[str, str]) -> list[str] | None:
    """A launch grid (a tuple, a lambda or function that returns one) as expressions of a spec.

    `known` maps names in lower case to the spec's own spelling: `block_h` at a launch is BLOCK_H of the kernel.
    """
    try:
        tree = ast.parse(text.strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    statement = tree.body[0] if tree.body else None
    node: ast.expr | None = None
    if isinstance(statement, ast.Expr):
        node = statement.value.body if isinstance(statement.value, ast.Lambda) else statement.value
    elif isinstance(statement, ast.FunctionDef) and len(statement.body) == 1:
        returned = statement.body[0]
        node = returned.value if isinstance(returned, ast.Return) else None
    if node is None:
        return None
    items = node.elts if isinstance(node, (ast.Tuple, ast.List)) else [node]
    return [ast.unparse(_Translate(known).visit(e)) for e in items] if 1 <= len(items) <= 3 else None


class _Translate(ast.NodeTransformer):
    """Python around a launch, in the words of a spec: triton.cdiv(a, b) is ceil_div(a, b), META["X"] is X."""

    def __init__(self, known: Mapping[str, str]) -> None:
        self.known = known

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(id=self.known.get(node.id.casefold(), node.id), ctx=ast.Load())

    def visit_Call(self, node: ast.Call) -> ast.AST:
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        name = "ceil_div" if called in _DIVIDES else called
        arguments = [self.visit(a) for a in node.args]
        return ast.Call(func=ast.Name(id=name, ctx=ast.Load()), args=arguments, keywords=node.keywords)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        key = node.slice
        if isinstance(key, ast.Constant) and isinstance(key.value, str) and key.value.isidentifier():
            return self.visit_Name(ast.Name(id=key.value, ctx=ast.Load()))
        return node


def _scalar(value: Any) -> str:
    """A value as a YAML scalar that is safe inside a flow mapping."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (int, float)):
        return repr(value)
    text = str(value)
    plain = re.fullmatch(r"[A-Za-z_./][\w./ :+*()-]*", text) and ": " not in text and not text.endswith((":", " "))
    if plain and text.casefold() not in ("null", "true", "false", "yes", "no", "on", "off", "none", "y", "n"):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    # What is not printed YAML takes as an escape alone.
    shown = (c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped)
    return f'"{"".join(shown)}"'


def _flow(values: Mapping[str, str]) -> str:
    return ", ".join(f"{n}: {v}" for n, v in values.items())


def _one_line(text: str, most: int = 100) -> str:
    joined = " ".join(text.split())
    return joined if len(joined) <= most else joined[: most - 3] + "..."


def _on_one_line(text: str) -> str:
    """What a comment may hold of a file's name: YAML takes neither control characters nor halves of a letter."""
    return "".join(c if c.isprintable() else "?" for c in text)
