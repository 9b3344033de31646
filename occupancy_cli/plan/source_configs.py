"""The configs that a kernel's own file gives, where neither the spec nor Triton's autotuner does.

In this order: the configs of the spec; those of `triton.autotune`; those that other decorators carry; the options at
the launches in the file; Triton's defaults, which are then named as such. What the file says and reading does not give
stands in `not_read`: an answer names it, and a gate that would be judged without it ends undecided.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from occupancy_cli.compile.kernel_record import KernelDescription
from occupancy_cli.compile.result_cache import default_cache_dir
from occupancy_cli.errors import InputError
from occupancy_cli.model.launch_options import DEFAULTS, LAUNCH_OPTIONS
from occupancy_cli.plan.kernel_input import KernelRef, source_name
from occupancy_cli.source.kernel_text import module_text
from occupancy_cli.source.knob_types import NotRead, SourceLaunch, SourceOptions
from occupancy_cli.source.source_files import read_source
from occupancy_cli.spec.kernel_spec import Launch

_SHOWN = 3
_DECORATOR = re.compile(r"^[ \t]*@([\w.]+)", re.MULTILINE)
_TRITONS = frozenset({"triton.jit", "triton.autotune", "triton.heuristics", "gluon.jit", "staticmethod", "property"})


@dataclass(frozen=True)
class SourceConfigs:
    """`configs` from the file (None: it gives none), what an answer says of their origin, and what was not read."""

    configs: tuple[Mapping[str, Any], ...] | None = None
    notes: tuple[str, ...] = ()
    not_read: tuple[str, ...] = ()

    @property
    def names(self) -> set[str]:
        """The names that every config gives."""
        return set.intersection(*(set(c) for c in self.configs)) if self.configs else set()

    def joined(self, other: SourceConfigs) -> SourceConfigs:
        """These configs, with what is said of another kernel's too."""
        return replace(self, notes=(*self.notes, *other.notes), not_read=(*self.not_read, *other.not_read))


def source_configs(
    spec: Launch,
    ref: KernelRef,
    description: KernelDescription,
    set_names: Collection[str],
    settled: Collection[str],
) -> SourceConfigs:
    """What the file of `ref` adds to a launch of a spec that lists no configs.

    `settled` are the names that the spec itself gives values to, `set_names` those that --set gives.
    """
    listed = "configs" in spec.model_fields_set
    if listed and spec.configs != "autotune":
        return SourceConfigs()
    if spec.configs == "autotune" and description.autotune is not None and _is_plainly_decorated(ref, description):
        return SourceConfigs()
    # Importing the reader of source takes a tenth of a warm run.
    from occupancy_cli.source.source_knobs import module_file
    from occupancy_cli.source.source_launches import source_options

    path = ref.file or module_file(ref.module or "")
    said = source_options(path, source_name(path, ref.kernel)) if path is not None else SourceOptions()
    fixed = {*spec.constexprs, *settled}
    settled = {*fixed, *set_names}
    carried = [n for n in said.not_read if not (n.name and n.name in settled)]
    if description.autotune is not None:
        return _tuned(spec, description, said, carried)
    known = {*description.constexprs, *LAUNCH_OPTIONS}
    launches = said.decorated or said.launches
    missed = [] if said.decorated else list(dict.fromkeys(n for launch in launches for n in launch.not_read))
    missed = [n for n in missed if not (n.name and n.name in settled) and (not n.name or n.name in known)]
    given = [{n: v for n, v in launch.values.items() if n in known - fixed} for launch in launches]
    configs: list[dict[str, Any]] = []
    for config in given:
        if config not in configs:
            configs.append(config)
    notes = _origins(launches, settled) if any(configs) else []
    defaults = [n for n in ("num_warps", "num_stages") if n not in settled and not any(n in c for c in given)]
    if defaults:
        why = "launches in the file give none" if launches else "nothing in the file gives options"
        notes.append(f"defaults: {', '.join(f'{n} {DEFAULTS[n]}' for n in defaults)} ({why})")
    not_read = [*carried, *missed]
    if said.bare and len(defaults) == 2:
        not_read += said.bare
    else:
        notes += [str(n) for n in said.bare]
    return SourceConfigs(tuple(configs) if any(configs) else None, tuple(notes), tuple(map(str, not_read)))


def _is_plainly_decorated(ref: KernelRef, description: KernelDescription) -> bool:
    """Whether the configs are the autotuner's own and no decorator of the file is another's: then nothing is lost."""
    assert description.autotune is not None
    if ref.file is None or all(c == dict(DEFAULTS) for c in description.autotune.configs):
        return False
    try:
        text = read_source(ref.file).decode("utf-8", "replace")
    except OSError:
        return False
    return set(_DECORATOR.findall(text)) <= _TRITONS


def _tuned(spec: Launch, description: KernelDescription, said: SourceOptions, carried: list[NotRead]) -> SourceConfigs:
    """Beside an autotuner only what is lost matters: of a list that a stand-in gave, Triton's one default is left."""
    assert description.autotune is not None
    notes = [str(n) for n in (*carried, *said.bare)]
    lost = said.configs_not_read
    bare_default = all(c == dict(DEFAULTS) for c in description.autotune.configs)
    if lost is not None and bare_default:
        return SourceConfigs(None, tuple(notes), (str(lost),))
    if spec.configs != "autotune":
        count = len(description.autotune.configs)
        what = f"the {count} configs" if count > 1 else "the config"
        notes.append(f"the spec lists no configs; `configs: autotune` takes {what} of the kernel's autotuner")
    return SourceConfigs(None, tuple(notes), ())


def _origins(launches: tuple[SourceLaunch, ...], settled: Collection[str]) -> list[str]:
    """Where the configs are from, a line for each place."""
    places: dict[tuple[str, int, str], list[SourceLaunch]] = {}
    for launch in launches:
        places.setdefault((launch.file, launch.line, launch.how), []).append(launch)
    lines = []
    for (file, line, how), found in places.items():
        if not any(launch.values for launch in found):
            continue
        texts = list(dict.fromkeys(_shown(launch.values, settled) for launch in found))
        if how.startswith("launched"):
            text = f"{how} in {file}:{line} with {' or '.join(texts[:_SHOWN])}"
            text += f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
            text += ", whichever its code picks: each is looked at" if len(texts) > 1 else ""
        elif len(texts) == 1:
            text = f"{how} in {file}:{line} gives {texts[0]}"
        else:
            text = f"{how} in {file}:{line} gives {len(texts)} configs"
        lines.append(text)
    return lines


def _shown(values: Mapping[str, Any], settled: Collection[str]) -> str:
    kept = {n: v for n, v in values.items() if n not in settled}
    return ", ".join(f"{n} {v}" for n, v in kept.items()) or "no options of its own"


def file_to_load(path: Path, kernel: str) -> Path:
    """The file that defines `kernel` when it is loaded: `path`, or the module of a notebook or of a text inside it.

    That is written once, beside the results, under a name of its content: what is kept of it stays right.
    """
    try:
        text = module_text(path, kernel)
    except (OSError, ValueError) as bad:
        raise InputError(str(bad), where=str(path)) from None
    if text is None:
        return path
    return written_source(text, path.stem, str(path))


def written_source(text: str, stem: str, origin: str) -> Path:
    """A file that holds `text`, the source of a kernel of `origin` that no file has, under a name of its content."""
    digest = hashlib.sha256(f"{origin}\n{text}".encode()).hexdigest()[:16]
    stem = re.sub(r"\W", "_", stem)
    made = default_cache_dir() / "sources" / digest / f"{stem}.py"
    try:
        if not made.is_file() or made.read_text(encoding="utf-8") != text:
            made.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            part = made.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
            part.write_text(text, encoding="utf-8")
            part.replace(made)
    except OSError as bad:
        problem = f"its module cannot be written to {made.parent}: {bad.strerror or bad}"
        raise InputError(
            problem, where=origin, hint="Set OCCUPANCY_CACHE_DIR to a folder that can be written."
        ) from None
    return made
