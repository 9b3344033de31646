"""Times of about twenty kinds of kernels on a GPU, over configs x shapes, with warm and with cold L2.

    python3 validation/h200/measure_kinds.py --out DIR --budget 500   # on the GPU machine: all kernels
    python3 validation/h200/measure_kinds.py --out DIR --kernels gemm,rms_norm
    python3 validation/h200/measure_kinds.py --list                   # kernels and how many points each has
    python3 validation/h200/measure_kinds.py --self-test              # no GPU: specs, points, a compile each
    python3 validation/h200/measure_kinds.py --split DIR/kinds.jsonl FOLDER   # files that `occupancy compare` reads

`kinds.yaml` beside this file lists the kernels of `validation/kernels` with their shapes. For every point the output is
checked once against a reference in higher precision (fresh random inputs, what is written starts as NaN), then the
launch is timed by replays of a CUDA graph: so many launches a graph that it takes about a millisecond, three replays
thrown away, the median of the rest. Warm: every launch uses the same tensors. Cold: launches take turns over copies of
them that together are three times the L2; where even 256 copies are below 1.5 times the L2 there is no cold time.
Before a kernel's first point the GPU is kept busy so that its clock is up, and the first point is timed twice: the
first row is thrown away. Compiles run beside it in processes of their own, in the order in which they are needed. A
launch that faults takes the CUDA context with it: the program then starts itself anew with the next kernel.

Rows go to `DIR/kinds.jsonl` as they are measured; README-kinds.md beside this file says what they hold. A kernel whose
every point was measured ends with a line `done`; with `--resume FILE` those of an earlier file are left out. Needs
torch, Triton, PyYAML, and nothing else beside this repository.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import ctypes
import functools
import importlib.util
import json
import math
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))
KERNELS = REPOSITORY / "validation" / "kernels"
KINDS = Path(__file__).resolve().parent / "kinds.yaml"

from occupancy_cli.answers.times_file import SCHEMA, TimesHeader, sources_sha256  # noqa: E402
from occupancy_cli.compile.request import KernelSource  # noqa: E402
from occupancy_cli.spec.expressions import parse_expression  # noqa: E402
from occupancy_cli.version import VERSION  # noqa: E402

GPU = "h200-sxm"
ARCH, SHARED_BYTES, SM_COUNT, REGISTERS_PER_SM = 90, 232_448, 132, 65_536
OPTIONS = {"num_warps": 4, "num_stages": 3, "num_ctas": 1}  # Triton's own where a config names none
GATE = 1e-2  # relative error above which a result counts as wrong
GRAPH_US = 1000.0
POINT_US = 22_000.0
MOST_LAUNCHES = 50
LEAST_REPLAYS, MOST_REPLAYS, DISCARDED = 7, 21, 3
L2_TIMES, LEAST_L2_TIMES, MOST_COPIES = 3.0, 1.5, 256

Row = dict[str, Any]
Values = Mapping[str, Any]


# What is launched


@dataclass(frozen=True)
class Launch:
    """One kernel of a point with everything that its launch passes but the tensors."""

    kernel: str
    grid: tuple[int, ...]
    types: tuple[tuple[str, str], ...]
    numbers: tuple[tuple[str, Any], ...]
    constexprs: tuple[tuple[str, Any], ...]

    def specialized(self) -> str:
        """What decides which binary it is: Triton takes 1 as a constant and looks at divisibility by 16."""

        def seen(value: Any) -> Any:
            if not isinstance(value, int):
                return "number"
            return "1" if value == 1 else f"{value % 16 == 0} {abs(value) >= 2**31}"

        return json.dumps([self.kernel, [(n, seen(v)) for n, v in self.numbers], self.constexprs])


@dataclass(frozen=True)
class Point:
    """One row to be: its names, whether it may be used for fitting, and the launches it makes."""

    values: Values
    role: str
    launches: tuple[Launch, ...]


class Kind:
    """A kernel of `validation/kernels` with the shapes of `kinds.yaml`."""

    def __init__(self, name: str, about: Mapping[str, Any]) -> None:
        self.name = name
        self.about = about
        self.path = KERNELS / f"{name}.yaml"
        self.spec: Mapping[str, Any] = yaml.safe_load(self.path.read_text(encoding="utf-8"))

    @cached_property
    def module(self) -> ModuleType:
        return load_module(KERNELS / self.spec["kernel"].partition(":")[0])

    def inputs(self, values: Values, device: str) -> dict[str, Any]:
        made: dict[str, Any] = getattr(self.module, self.spec["inputs"].partition(":")[2])(values, device)
        return made

    def reference(self, tensors: Mapping[str, Any], values: Values) -> dict[str, Any]:
        expected: dict[str, Any] = getattr(self.module, self.about.get("reference", "reference"))(tensors, values)
        return expected

    @property
    def identity(self) -> tuple[str, ...]:
        """The names that make a point, in the order that `occupancy measure` gives them."""
        names = [*self.spec["shapes"], *self.spec.get("knobs", {})]
        names += [n for n in self.configs()[0] if n not in OPTIONS]
        return tuple(dict.fromkeys([*names, *OPTIONS, "maxnreg", *self.spec.get("derived", {})]))

    def configs(self) -> list[Row]:
        given = self.spec["configs"]
        if isinstance(given, Mapping):
            axes = given["product"]
            return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
        return [dict(c) for c in given]

    def points(self) -> list[Point]:
        shapes = [(role, shape) for role in ("fit", "held") for shape in self.about.get(role, ())]
        return [point for role, shape in shapes for point in self.points_of(role, shape)]

    def points_of(self, role: str, shape: Values) -> list[Point]:
        knobs = self.spec.get("knobs", {})
        chosen = [dict(zip(knobs, v, strict=True)) for v in product(*(k["values"] for k in knobs.values()))]
        points = [self._point(role, {**shape, **knob}, config) for knob in chosen for config in self.configs()]
        if "only" in self.about:
            points = [p for p in points if evaluated(self.about["only"], p.values)]
        # Knobs may come to the same launch: `splits` cannot exceed the steps there are.
        seen = {json.dumps([launch.__dict__ for launch in p.launches]): p for p in reversed(points)}
        return [p for p in points if any(p is kept for kept in seen.values())]

    def _point(self, role: str, given: Values, config: Values) -> Point:
        defaults = {n: s["default"] if isinstance(s, Mapping) else s for n, s in self.spec["shapes"].items()}
        fixed = {n: v for n, v in self.spec.get("constexprs", {}).items() if not isinstance(v, str)}
        names: Row = {**defaults, **given, **fixed, **OPTIONS, **config}
        for name, text in self.spec.get("derived", {}).items():
            names[name] = evaluated(text, names)
        launches = [launch_of(self.spec, names, {**OPTIONS, **config})]
        launches += [launch_of(about, names, OPTIONS) for about in self.spec.get("followed_by", ())]
        return Point(names, role, tuple(launches))

    def sources(self) -> str:
        """The hash of the sources, as the header of a file of times has it."""
        kernels = [self.spec["kernel"], *(f["kernel"] for f in self.spec.get("followed_by", ()))]
        parts = [text.partition(":") for text in kernels]
        return sources_sha256([KernelSource(name, str(KERNELS / file), None) for file, _, name in parts])


def evaluated(text: Any, names: Values) -> Any:
    return parse_expression(text)(names) if isinstance(text, str) else text


def launch_of(about: Mapping[str, Any], names: Values, options: Values) -> Launch:
    arguments = {n: a if isinstance(a, Mapping) else {"type": a} for n, a in about["arguments"].items()}
    tuned = {n: v for n, v in options.items() if n not in about.get("constexprs", {})}
    constexprs = {n: evaluated(v, names) for n, v in about.get("constexprs", {}).items()}
    return Launch(
        about["kernel"],
        tuple(int(evaluated(axis, names)) for axis in about["grid"]),
        tuple((n, a["type"]) for n, a in arguments.items()),
        tuple((n, evaluated(a["value"], names)) for n, a in arguments.items() if "value" in a),
        tuple({**tuned, **constexprs}.items()),
    )


def load_module(path: Path) -> ModuleType:
    name = f"validation_{path.stem}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


def kernel_object(text: str) -> Any:
    file, _, name = text.partition(":")
    return getattr(load_module(KERNELS / file), name)


def read_kinds(only: Sequence[str] = ()) -> list[Kind]:
    listed = yaml.safe_load(KINDS.read_text(encoding="utf-8"))
    unknown = [n for n in only if n not in listed]
    if unknown:
        sys.exit(f"--kernels: {', '.join(unknown)} not in {KINDS.name}; it has {', '.join(listed)}")
    return [Kind(name, about) for name, about in listed.items() if not only or name in only]


# Compiling, in processes without a GPU


@functools.cache
def install_driver() -> None:
    """Put the compile-only driver in place, once a process."""
    from occupancy_cli.compile import triton_front

    triton_front.install_driver(triton_front.TargetGpu(ARCH, SHARED_BYTES, SM_COUNT, REGISTERS_PER_SM))


def compile_launch(launch: Launch) -> str:
    """Leave the binary of a launch in Triton's cache; what went wrong, or nothing."""
    from occupancy_cli.compile import triton_front

    install_driver()
    values: Row = {n: triton_front.TensorStandIn(t[1:], 16) if t[0] == "*" else 0.5 for n, t in launch.types}
    try:
        triton_front.compile_plainly(
            kernel_object(launch.kernel), {**values, **dict(launch.numbers), **dict(launch.constexprs)}
        )
    except Exception as bad:  # noqa: BLE001 (the reason goes into the summary)
        return f"{type(bad).__name__}: {(str(bad).strip().splitlines() or [''])[0][:200]}"
    return ""


def prepare_compiler(cache: str) -> None:
    """The environment that a compile and the launch after it must have in common."""
    os.environ["TRITON_CACHE_DIR"] = cache
    os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"


class Compiles:
    """Every binary of the kinds, compiled by other processes in the order of the kinds."""

    def __init__(self, kinds: Sequence[Kind], processes: int, cache: str) -> None:
        context = multiprocessing.get_context("spawn")
        self.pool = concurrent.futures.ProcessPoolExecutor(processes, context, prepare_compiler, (cache,))
        self.futures: dict[str, dict[str, concurrent.futures.Future[str]]] = {}
        for kind in kinds:
            launches = {w.specialized(): w for p in kind.points() for w in p.launches}
            self.futures[kind.name] = {key: self.pool.submit(compile_launch, w) for key, w in launches.items()}

    def wait(self, kind: Kind, seconds: float) -> dict[str, str]:
        """The problems of a kind's launches, by `specialized`, when all are compiled."""
        futures = self.futures[kind.name]
        _, late = concurrent.futures.wait(futures.values(), max(seconds, 0.0))
        # Where the pool itself broke, the launch compiles once more and shows what is wrong.
        return {
            k: "not compiled in time" if f in late else "" if f.exception() else f.result() for k, f in futures.items()
        }

    def close(self) -> None:
        self.pool.shutdown(wait=False, cancel_futures=True)


# Timing


class ReadNames(Mapping[str, Any]):
    """A point's names that remembers which of them were read: tensors may be kept while those stay the same."""

    def __init__(self, values: Values) -> None:
        self.values_ = values
        self.read: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name in self.values_:
            self.read[name] = self.values_[name]
            return self.values_[name]
        self.read[name] = None
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        self.read[str(name)] = self.values_.get(str(name))
        return name in self.values_

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_)

    def __len__(self) -> int:
        return len(self.values_)


@dataclass
class Tensors:
    """The tensors of a shape: as made (never launched on), what the outputs must become, and copies to launch on, which
    are enough for cold launches where `cold`."""

    read: dict[str, Any]
    made: dict[str, Any]
    expected: dict[str, Any]
    copies: list[dict[str, Any]]
    cold: bool


@dataclass(frozen=True)
class Timing:
    """One time: microseconds a launch with quartiles, how they were taken, and the SM clock before and while."""

    us: float
    quartiles_us: tuple[float, float]
    spread_percent: float
    launches: int
    replays: int
    clock_before_mhz: int | None
    clock_mhz: int | None
    throttled: tuple[str, ...]


class Device:
    """The GPU of this machine."""

    def __init__(self) -> None:
        import torch

        from occupancy_cli.device.cuda_driver import pci_bus_id
        from occupancy_cli.device.gpu_state import GpuState

        self.torch = torch
        torch.cuda.set_device(0)
        properties = torch.cuda.get_device_properties(0)
        self.name, self.sm_count = properties.name, properties.multi_processor_count
        self.capability = f"{properties.major}.{properties.minor}"
        self.l2_bytes = int(properties.L2_cache_size)
        self.state = GpuState(pci_bus_id(0))
        self.state.__enter__()
        self.tensors: Tensors | None = None
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.square = torch.randn((4096, 4096), device="cuda", dtype=torch.bfloat16)

    def raise_clock(self, seconds: float) -> None:
        """Keep the GPU busy: an idle one has a low clock."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for _ in range(20):
                self.torch.matmul(self.square, self.square)
            self.torch.cuda.synchronize()

    def tensors_of(self, kind: Kind, values: Values) -> Tensors:
        """Tensors for a point; those of the last one while nothing that they were made from has changed."""
        kept = self.tensors
        if kept is not None and all(values.get(n) == v for n, v in kept.read.items()):
            return kept
        self.tensors = kept = None
        seen = ReadNames(values)
        made = kind.inputs(seen, "cuda")
        expected = kind.reference(made, seen)
        for name in kind.spec["shapes"]:
            seen.read[name] = values[name]
        size = sum(t.nbytes for t in made.values() if hasattr(t, "nbytes"))
        if "touched" in kind.about:
            size = int(evaluated(kind.about["touched"], values))
        count = min(MOST_COPIES, 1 + math.ceil(L2_TIMES * self.l2_bytes / size))
        cold = count * size >= LEAST_L2_TIMES * self.l2_bytes
        copies = [clone(made) for _ in range(max(count, 2) if cold else 1)]
        self.tensors = Tensors(seen.read, made, expected, copies, cold)
        return self.tensors

    def check(self, point: Point, tensors: Tensors) -> tuple[float, list[Any]]:
        """The largest relative error of an output, and the loaded kernels."""
        fresh = clone(tensors.made)
        compiled = [run(launch, fresh) for launch in point.launches]
        self.torch.cuda.synchronize()
        return max(relative_error(fresh[n], e) for n, e in tensors.expected.items()), compiled

    def time(self, launches: Sequence[Launch], copies: Sequence[dict[str, Any]], cold: bool) -> Timing:
        """The time of these launches, one after the other."""
        torch = self.torch
        calls = [[bound(w, tensors) for w in launches] for tensors in copies]

        def event() -> Any:
            return torch.cuda.Event(enable_timing=True)

        start, end = event(), event()
        start.record()
        for i in range(3):
            for call in calls[i % len(calls)]:
                call()
        end.record()
        torch.cuda.synchronize()
        estimate = 1e3 * start.elapsed_time(end) / 3
        count = max(1, min(MOST_LAUNCHES, int(GRAPH_US / estimate)))
        if cold:
            count = max(count, len(copies))
        graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            graph.capture_begin()
            for i in range(count):
                for call in calls[i % len(calls)]:
                    call()
            graph.capture_end()
        torch.cuda.current_stream().wait_stream(stream)
        before, _ = self.state.clocks()
        start.record()
        for _ in range(DISCARDED):
            graph.replay()
        end.record()
        torch.cuda.synchronize()
        each = max(1e3 * start.elapsed_time(end) / DISCARDED, 1e-3)
        replays = max(LEAST_REPLAYS, min(MOST_REPLAYS, int(POINT_US / each)))
        graph.replay()  # keeps the GPU busy while the first timed replay is set up
        events = [(event(), event()) for _ in range(replays)]
        for start, end in events:
            start.record()
            graph.replay()
            end.record()
        clock, throttled = self.state.clocks()
        torch.cuda.synchronize()
        graph.reset()
        times = sorted(1e3 * start.elapsed_time(end) / count for start, end in events)
        low, high = times[len(times) // 10], times[-1 - len(times) // 10]
        median = statistics.median(times)
        quartiles = (round(times[len(times) // 4], 4), round(times[-1 - len(times) // 4], 4))
        spread = round(100 * (high - low) / median, 2)
        return Timing(round(median, 4), quartiles, spread, count, replays, before, clock, throttled)

    def is_lost(self) -> bool:
        """Whether a launch has taken the CUDA context with it."""
        try:
            self.torch.cuda.synchronize()
        except RuntimeError:
            return True
        return False

    def ctas_per_sm(self, compiled: Any) -> int | None:
        """The driver's own answer."""
        found = ctypes.c_int()
        code = self.driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(
            ctypes.byref(found),
            ctypes.c_void_p(compiled.function),
            32 * compiled.metadata.num_warps,
            ctypes.c_size_t(compiled.metadata.shared),
        )
        return None if code else found.value


def bound(launch: Launch, tensors: Mapping[str, Any]) -> Callable[[], Any]:
    """A launch with its tensors, ready to be called."""
    kernel = kernel_object(launch.kernel)[launch.grid]
    values = {n: tensors[n] for n, t in launch.types if n in tensors and n not in dict(launch.numbers)}
    values |= {**dict(launch.numbers), **dict(launch.constexprs)}
    return lambda: kernel(**values)


def run(launch: Launch, tensors: Mapping[str, Any]) -> Any:
    return bound(launch, tensors)()


def clone(tensors: Mapping[str, Any]) -> dict[str, Any]:
    return {n: t.clone() if hasattr(t, "clone") else t for n, t in tensors.items()}


def relative_error(found: Any, expected: Any) -> float:
    """The norm of the difference over that of the reference; infinite where anything is not finite."""
    import torch

    found, expected = found.double(), expected.double()
    if found.shape != expected.shape or not bool(torch.isfinite(found).all()):
        return math.inf
    return float((found - expected).norm() / expected.norm().clamp(min=1e-30))


def measure_point(device: Device, kind: Kind, point: Point) -> Iterator[Row]:
    """The rows of a point: warm, then cold."""
    tensors = device.tensors_of(kind, point.values)
    error, compiled = device.check(point, tensors)
    row: Row = {n: point.values[n] for n in kind.identity if n in point.values}
    row |= {
        "grid": list(point.launches[0].grid),
        "smem": compiled[0].metadata.shared,
        "regs": compiled[0].n_regs,
        "spills": compiled[0].n_spills,
        "ctas_per_sm": device.ctas_per_sm(compiled[0]),
        "binary": str(compiled[0].hash)[:16],
    }
    if len(compiled) > 1:
        row["followers"] = [
            {"smem": c.metadata.shared, "regs": c.n_regs, "spills": c.n_spills, "ctas_per_sm": device.ctas_per_sm(c)}
            for c in compiled[1:]
        ]
    for l2 in ("warm", "cold") if tensors.cold else ("warm",):
        copies = tensors.copies if l2 == "cold" else tensors.copies[:1]
        whole = main = device.time(point.launches, copies, l2 == "cold")
        if len(point.launches) > 1:
            main = device.time(point.launches[:1], copies, l2 == "cold")
        timed: Row = {
            "us_split": main.us,
            "us_total": whole.us,
            "quartiles_us": list(whole.quartiles_us),
            "spread_percent": max(whole.spread_percent, main.spread_percent),
            "sm_clock_before_mhz": whole.clock_before_mhz,
            "sm_clock_mhz": whole.clock_mhz,
            "launches": whole.launches,
            "replays": whole.replays,
            "copies": len(copies),
            "relative_error": float(f"{error:.3g}") if math.isfinite(error) else None,
        }
        throttled = tuple(dict.fromkeys((*whole.throttled, *main.throttled)))
        if throttled:
            timed["throttled"] = list(throttled)
        yield {"kind": kind.name, "l2": l2, "use": point.role, **row, **timed}


def header_of(kind: Kind, device: Device, cold: bool) -> Row:
    """The first line of a kind's file of times."""
    import torch
    import triton

    from occupancy_cli.compile import triton_front

    header = TimesHeader(
        kernel=str(kind.path.relative_to(REPOSITORY)),
        source_sha256=kind.sources(),
        gpu=GPU,
        device=device.name,
        compute_capability=device.capability,
        sm_count=device.sm_count,
        triton=triton.__version__,
        ptxas=triton_front.ptxas_version(ARCH),
        torch=torch.__version__,
        l2="cold" if cold else "warm",
        cold=cold,
        launches_per_replay=0,
        replays=0,
        identity=kind.identity,
        sm_clock_max_mhz=device.state.max_sm_clock_mhz(),
        clocks_unknown=device.state.trouble,
        date=time.strftime("%Y-%m-%d", time.gmtime()),
        occupancy=VERSION,
    )
    return {"kind": kind.name, **json.loads(header.to_line())}


def start_anew(kinds: Sequence[Kind], out: Path, budget_s: float, processes: int, cache: str) -> None:
    """Replace this process, whose CUDA context is lost, by one that measures the kinds given; it never returns."""
    options = ["--out", str(out), "--kernels", ",".join(k.name for k in kinds), "--budget", f"{budget_s:.0f}"]
    options += ["--processes", str(processes), "--cache", cache]
    print(f"CUDA context lost; anew from {kinds[0].name}", flush=True)
    os.execv(sys.executable, [sys.executable, str(Path(__file__).resolve()), *options])


def measure(kinds: Sequence[Kind], out: Path, budget_s: float, processes: int, cache: str) -> int:
    """Measure everything into `out`; the exit code: 1 where a result was wrong or a launch failed."""
    started = time.monotonic()
    prepare_compiler(cache)
    compiles = Compiles(kinds, processes, cache)
    device = Device()
    print(f"{device.name}, {len(kinds)} kernels, {sum(len(k.points()) for k in kinds)} points", flush=True)
    table, wrong, left = [], 0, []
    with (out / "kinds.jsonl").open("a", encoding="utf-8") as file:

        def write(line: Mapping[str, Any]) -> None:
            file.write(json.dumps(line) + "\n")
            file.flush()

        for place, kind in enumerate(kinds):
            remaining = budget_s - (time.monotonic() - started)
            if remaining < 5:
                left.append(kind.name)
                continue
            begun = time.monotonic()
            problems = compiles.wait(kind, remaining)
            waited = time.monotonic() - begun
            for cold in (False, True):
                write(header_of(kind, device, cold))
            device.raise_clock(0.3)
            points, rows, errors = kind.points(), [], []
            failed: collections.Counter[str] = collections.Counter()
            complete = True
            device.tensors = None
            for number, point in enumerate([points[0], *points]):
                if time.monotonic() - started > budget_s:
                    complete = False
                    break
                bad = next((problems[w.specialized()] for w in point.launches if problems[w.specialized()]), "")
                try:
                    made = [] if bad else list(measure_point(device, kind, point))
                except Exception as failure:  # noqa: BLE001 (the reason goes into the file, and the next point runs)
                    text = (str(failure).strip().splitlines() or [""])[0][:200]
                    bad, made = f"{type(failure).__name__}: {text}", []
                    device.tensors = None
                    if type(failure).__name__ not in ("OutOfResources", "OutOfMemoryError"):
                        traceback.print_exc(limit=4)
                if bad and device.is_lost():
                    write({"kind": kind.name, "failed": bad, "lost": True})
                    compiles.close()
                    rest = kinds[place + 1 :]
                    if rest:
                        start_anew(rest, out, budget_s - (time.monotonic() - started), processes, cache)
                    return 1
                if number == 0:
                    continue  # the first row is thrown away: its clock was still rising
                if bad:
                    failed[bad] += 1
                    names = {n: point.values[n] for n in kind.identity if n in point.values}
                    write({"kind": kind.name, "failed": bad, **names})
                for row in made:
                    write(row)
                rows += made
                errors += [r["relative_error"] for r in made[:1]]
            if complete:
                write({"kind": kind.name, "done": True, "points": len(points)})
            else:
                left.append(kind.name)
            inaccurate = sum(e is None or e > GATE for e in errors)
            real = {t: n for t, n in failed.items() if not t.startswith("OutOfResources")}
            wrong += inaccurate + sum(real.values())
            seconds = time.monotonic() - begun
            table.append(summary_line(kind, rows, errors, inaccurate, failed, seconds, waited))
            print(table[-1], flush=True)
    compiles.close()
    print(f"\n{'kernel':22}{'rows':>6}{'us, least to most':>22}{'spread':>8}{'throttled':>10}{'error':>9}  seconds")
    print("\n".join(table))
    print(f"{time.monotonic() - started:.0f} s in all; wrong or failed: {wrong}")
    if left:
        print(f"left for lack of time: --kernels {','.join(left)}")
    return 1 if wrong else 0


def summary_line(
    kind: Kind,
    rows: Sequence[Row],
    errors: Sequence[float | None],
    inaccurate: int,
    failed: Mapping[str, int],
    seconds: float,
    waited: float,
) -> str:
    times = [r["us_total"] for r in rows] or [0.0]
    spread = statistics.median([r["spread_percent"] for r in rows] or [0.0])
    throttled = sum("throttled" in r for r in rows)
    worst = max((math.inf if e is None else e for e in errors), default=0.0)
    line = f"{kind.name:22}{len(rows):6}{min(times):11.1f}{max(times):11.1f}{spread:7.1f}%{throttled:10}{worst:9.1e}"
    line += f"  {seconds:.0f} (waited {waited:.0f})"
    if inaccurate:
        line += f"; {inaccurate} over {GATE}"
    return line + "".join(f"; {n} x {text[:90]}" for text, n in failed.items())


# Without a GPU


def self_test(kinds: Sequence[Kind], every: bool) -> int:
    """Read everything, make every point, and compile one config of each kind (or all) for sm_90."""
    with tempfile.TemporaryDirectory() as cache:
        prepare_compiler(cache)
        total, bad = 0, 0
        for kind in kinds:
            points = kind.points()
            total += len(points)
            launches = {w.specialized(): w for p in points for w in p.launches}
            chosen = list(launches.values()) if every else list(points[0].launches)
            problems = [p for p in map(compile_launch, chosen) if p]
            bad += len(problems)
            print(f"{kind.name:22}{len(points):5} points, {len(launches):4} binaries", *problems[:2], flush=True)
        print(f"{total} points, {bad} problems")
    return 1 if bad else 0


# What a file of times may say of a point beside its names; the rest stays in kinds.jsonl.
_FIGURES = (
    *("us_total", "us_split", "spread_percent", "sm_clock_mhz", "grid", "smem", "regs", "spills", "ctas_per_sm"),
    *("throttled", "shared", "copies"),
)


def split(file: Path, folder: Path) -> None:
    """Write what a run measured as files of times, `NAME.warm.jsonl.gz` and `NAME.cold.jsonl.gz`."""
    import gzip

    folder.mkdir(parents=True, exist_ok=True)
    parts: dict[tuple[str, str], list[Row]] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        data = json.loads(line)
        kind = data.pop("kind")
        if data.get("schema") == SCHEMA:
            parts.setdefault((kind, data["l2"]), [data])
        elif "us_total" in data:
            parts[kind, data.pop("l2")].append(data)
    for (kind, l2), lines in parts.items():
        rows = {json.dumps([r.get(n) for n in lines[0]["identity"]]): r for r in lines[1:]}  # the last one counts
        if rows:
            kept = {*lines[0]["identity"], *_FIGURES}
            points = [{n: v for n, v in row.items() if n in kept} for row in rows.values()]
            text = "".join(json.dumps(line) + "\n" for line in [lines[0], *points])
            (folder / f"{kind}.{l2}.jsonl.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
            print(f"{kind}.{l2}: {len(rows)} points")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--out", type=Path, help="folder for kinds.jsonl")
    parser.add_argument("--kernels", default="", help="only these, separated by commas")
    parser.add_argument("--resume", type=Path, help="an earlier kinds.jsonl: kernels that are done there are left out")
    parser.add_argument("--budget", type=float, default=480.0, help="seconds after which no further point is timed")
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) - 2), help="compiling")
    parser.add_argument("--cache", help="folder for Triton's cache, to be used again")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--self-test", nargs="?", const="one", choices=("one", "all"))
    parser.add_argument("--split", nargs=2, type=Path, metavar=("FILE", "FOLDER"))
    given = parser.parse_args()
    kinds = read_kinds([n for n in given.kernels.split(",") if n])
    if given.resume:
        lines = map(json.loads, given.resume.read_text(encoding="utf-8").splitlines())
        done = {line["kind"] for line in lines if line.get("done")}
        kinds = [k for k in kinds if k.name not in done]
    if given.split:
        split(*given.split)
        return 0
    if given.list:
        for kind in kinds:
            print(f"{kind.name:22}{len(kind.points()):5} points")
        print(f"{'':22}{sum(len(k.points()) for k in kinds):5}")
        return 0
    if given.self_test:
        return self_test(kinds, given.self_test == "all")
    if given.out is None:
        parser.error("--out is needed")
    given.out.mkdir(parents=True, exist_ok=True)
    cache = given.cache or tempfile.mkdtemp(prefix="kinds-triton-")
    return measure(kinds, given.out, given.budget, given.processes, cache)


if __name__ == "__main__":
    sys.exit(main())
