"""Measured time surfaces: what was run, how long it took, and the compiled kernels behind it.

A surface is three files of one name in a folder: `NAME.jsonl.gz` (one measured point a line), `NAME.json` (what a point
means: GPU, which fields are the config, the case and the choice, and the launches a point makes, as expressions over
its fields) and `NAME.code.json.xz` (TTGIR, SASS and resources of every compiled variant, written by `record_code.py`).
A description whose `code` names another surface shares its compiled variants. Points that were measured beside other
processes are kept in the file and set apart here; those whose clock the power cap held down are as users get them.
"""

from __future__ import annotations

import gzip
import json
import lzma
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from occupancy_cli.compile.kernel_times import at_launch, merged
from occupancy_cli.compile.packed_text import packed
from occupancy_cli.gpu.profiles import GpuProfile, load_gpu
from occupancy_cli.model.cta_work import CtaWork, LaunchShape, merge_runs
from occupancy_cli.model.launch_time import KernelLaunch
from occupancy_cli.model.occupancy import occupancy
from occupancy_cli.model.resources import KernelResources
from occupancy_cli.plan.launch_loads import Loads, dealt_out
from occupancy_cli.readers.ir_work import read_work, trip_counts
from occupancy_cli.readers.machine_work import with_sass
from occupancy_cli.readers.ttgir import TtgirKernel, parse_ttgir
from occupancy_cli.spec.expressions import parse_expression

GIVEN = Path(__file__).resolve().parent / "given"
MEASURED = Path(__file__).resolve().parent / "h200" / "surfaces"

Key = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Held:
    """CTAs/SM as a driver answered."""

    ctas_per_sm: int


@dataclass
class Surface:
    """One surface. `rows` are the measured points, each with the constants and derived values of its description;
    `marked` are those whose time does not stand for the GPU alone."""

    name: str
    about: Mapping[str, Any]
    rows: list[dict[str, Any]]
    code: Mapping[str, Mapping[str, Any]]
    marked: list[dict[str, Any]] = field(default_factory=list)
    _work: dict[tuple[str, int], CtaWork] = field(default_factory=dict)
    _parsed: dict[str, TtgirKernel] = field(default_factory=dict)
    _loads: dict[str, Loads] = field(default_factory=dict)
    _launches: dict[int, tuple[KernelLaunch, ...]] = field(default_factory=dict)

    @cached_property
    def gpu(self) -> GpuProfile:
        """The profile of the GPU the surface was measured on."""
        return load_gpu(self.about["gpu"])

    def config(self, row: Mapping[str, Any]) -> Key:
        return tuple((name, row[name]) for name in self.about["config"])

    def case(self, row: Mapping[str, Any]) -> Key:
        return tuple((name, row[name]) for name in self.about["case"])

    def choice(self, row: Mapping[str, Any]) -> Key:
        return tuple((name, row[name]) for name in self.about["choice"])

    def time_us(self, row: Mapping[str, Any]) -> float:
        return float(row[self.about["time"]])

    def launches(self, row: Mapping[str, Any]) -> tuple[KernelLaunch, ...]:
        """The launches of a point, each with the resources and the work of its own specialization."""
        if id(row) not in self._launches:
            launched = (about for about in self.about["launches"] if _value(about.get("if", 1), row))
            self._launches[id(row)] = tuple(self._launch(about, row) for about in launched)
        return self._launches[id(row)]

    def _launch(self, about: Mapping[str, Any], row: Mapping[str, Any]) -> KernelLaunch:
        key = variant_key(about, row)
        code = self.code[key]
        resources = KernelResources(**code["resources"])
        measured = about.get("measured")
        if measured is not None:
            given = {name: int(_value(text, row)) for name, text in measured.items()}
            held = given.pop("ctas_per_sm")
            resources = KernelResources(**{**code["resources"], **given})
        else:
            held = occupancy(
                self.gpu,
                threads_per_cta=resources.threads_per_cta,
                registers_per_thread=resources.registers_per_thread,
                shared_bytes=resources.shared_bytes,
                static_shared_bytes=resources.static_shared_bytes,
                num_ctas=resources.num_ctas,
            ).ctas_per_sm
        grid = tuple(int(_value(axis, row)) for axis in about["grid"])
        values = integer_arguments(about, row)
        if key not in self._parsed:
            self._parsed[key] = parse_ttgir(code["ttgir"])
            self._loads[key] = Loads(packed(code["ttgir"]))
        parsed, loads = self._parsed[key], self._loads[key]
        if (key, held) not in self._work:
            ir = read_work(parsed, values, ())
            self._work[key, held] = with_sass(ir, code["sass"], self.gpu, resources, held)
        shape = self._shape(about, row, parsed, values, grid)
        given = {name: float(_value(text, row)) for name, text in about.get("work", {}).items()}
        work = merged(CtaWork(**given), at_launch(self._work[key, held], loads.at(values)))
        if not work.plain:
            dealt = dealt_out(shape, loads.run(values, grid), work)
            assert not isinstance(dealt, str), dealt
            shape = dealt
        name = f"{about['kernel']} {dict(self.config(row))}" if about.get("measured") else about["kernel"]
        return KernelLaunch(name, resources, Held(held), work, shape)

    def _shape(
        self,
        about: Mapping[str, Any],
        row: Mapping[str, Any],
        parsed: TtgirKernel,
        values: Mapping[str, int],
        grid: tuple[int, ...],
    ) -> LaunchShape:
        given = about.get("iterations")
        if isinstance(given, Mapping) and "runs" in given:
            runs = ((int(_value(ctas, row)), float(_value(each, row))) for ctas, each in given["runs"])
            return LaunchShape(grid, merge_runs(runs))
        if isinstance(given, Mapping):
            return LaunchShape.split(
                grid, int(_value(given["tiles"], row)), int(_value(given["tiles_per_split"], row)), given.get("axis", 2)
            )
        if given is not None:
            return LaunchShape.uniform(grid, float(_value(given, row)))
        counts = trip_counts(parsed, values, grid)
        if counts is None:
            counts = np.ones(int(np.prod(grid)))
        return LaunchShape.ragged(grid, counts)


def _is_marked(row: Mapping[str, Any]) -> bool:
    """Whether a point's time does not stand for the GPU alone."""
    return bool(row.get("shared"))


def _value(text: Any, row: Mapping[str, Any]) -> Any:
    return parse_expression(text)(row) if isinstance(text, str) else text


def integer_arguments(about: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, int]:
    """Values of a launch's integer arguments."""
    return {
        name: int(_value(text, row))
        for name, text in about["arguments"].items()
        if not (isinstance(text, str) and (text.startswith("*") or text in ("fp32", "fp64")))
    }


def variant_key(about: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    """What a point's launch was compiled as: constexprs, options, and which integers specialization found to be 1 or,
    where the description asks, multiples of 16."""
    fixed = {**about.get("constexprs", {}), **about.get("options", {})}
    parts = [f"{name}={_value(text, row)}" for name, text in fixed.items()]
    values = integer_arguments(about, row)
    parts += [f"{name}=1" for name in about.get("specialized", ()) if values[name] == 1]
    parts += [f"{name}%16" for name in about.get("aligned", ()) if values[name] % 16 == 0]
    return " ".join([about["kernel"], *parts])


def read_surface(path: Path) -> Surface:
    """The surface of a `NAME.jsonl.gz` and the files beside it; without recorded code, `code` is empty."""
    name = path.name.removesuffix(".jsonl.gz")
    about = json.loads(path.with_name(f"{name}.json").read_text(encoding="utf-8"))
    constants = about.get("constants", {})
    rows: list[dict[str, Any]] = []
    marked: list[dict[str, Any]] = []
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            measured = json.loads(line)
            if "schema" in measured:  # the first line of a file that `occupancy measure` wrote
                continue
            row = {**constants, **measured}
            for derived, text in about.get("derived", {}).items():
                row[derived] = _value(text, row)
            (marked if _is_marked(row) else rows).append(row)
    code_path = path.with_name(f"{about.get('code', name)}.code.json.xz")
    code = json.loads(lzma.decompress(code_path.read_bytes())) if code_path.is_file() else {}
    return Surface(name, about, rows, code, marked)
