"""The configs that a serving engine tuned on GPUs and ships, beside the model: does it know what was best there?

    python validation/sglang/engine_tables.py                       # the recorded tables, a table a kernel
    python validation/sglang/engine_tables.py --gpus h200,l40s      # these GPUs
    python validation/sglang/engine_tables.py --write               # into validation/sglang/README.md
    python validation/sglang/engine_tables.py --collect WHEEL.whl   # the tables anew, into tables.json.gz

Most of these GPUs cannot be had here, so the question is asked the other way round. At each point of a table (a shape
and a number of tokens) the engine's winner was the fastest of all that its tuner tried on that GPU. Asked of the model:
how much slower does it take the winner to be than the best, by the model, of all configs that won anywhere in this
GPU's tables; and does it prefer the winner to the engine's default, which runs where there is no table?

Predicted are kernels of this project that do the same work, not the engine's, whose code is not here: `gemm_fp8_blocks`
and, for the first product of an MoE layer in BF16, `grouped_gemm` of `validation/kernels`; in FP8 the shipped
`moe_grouped_gemm`, which has no scales by blocks. Winners that hang on a detail of its kernel may be others'. The width
of a model, which no table names, is taken as 4,096. Compiled with the installed Triton, for each architecture once.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import datetime
import gzip
import hashlib
import json
import multiprocessing
import os
import re
import statistics
import sys
import tempfile
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from judge_kinds import percentile, table
from kind_code import RecordedService, binary_of, key_of_request

from occupancy_cli.answers.analyze import compile_points
from occupancy_cli.answers.measured_points import point_of
from occupancy_cli.answers.workload import candidate_of
from occupancy_cli.compile.compile_service import CompileService, triton_version
from occupancy_cli.compile.request import CompileOutcome, CompileRequest
from occupancy_cli.compile.worker_client import Limits
from occupancy_cli.errors import InputError
from occupancy_cli.gpu.profiles import GpuProfile, load_gpu
from occupancy_cli.model.ranking import Scored, time_candidates
from occupancy_cli.plan.kernel_input import read_kernel_input
from occupancy_cli.plan.prepared_kernel import prepare

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TABLES = HERE / "tables.json.gz"
RESULT = HERE / "README.md"

_NAME = re.compile(
    r"(?P<shape>(?:E=\d+,)?N=\d+(?:,K=\d+)?),device_name=(?P<device>[^,.]+?)"
    r"(?:,dtype=(?P<dtype>\w+?))?(?:,block_shape=(?P<block>\[[\d, ]+\]))?\.json$"
)
_TILE = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M")
_OPTIONS = {"num_warps": 4, "num_stages": 3}  # Triton's own, where an entry names none
_FIELDS = (*_TILE, *_OPTIONS)
BATCHES = (1, 16, 64, 256, 1024, 4096)
SHAPES = 2
HIDDEN = 4096  # the width of a model, which a MoE table's name does not tell
TOP_K = 8
LOW_SHARED_BYTES = 128 << 10
"""Below so much shared memory of a CTA the engine has another default for FP8 without blocks."""

Config = tuple[int, ...]
Shape = Mapping[str, int]


@dataclass(frozen=True)
class Winner:
    """A point of a table: the GPU by the driver's name, the shape, the tokens, whether scales are by blocks, and the
    config that was fastest."""

    device: str
    shape: tuple[tuple[str, int], ...]
    batch: int
    blocks: bool
    config: Config


@dataclass(frozen=True)
class Family:
    """Tables of one kernel of the engine: the folder in its wheel and the formats that file names give; the spec of the
    kernel of this project that does the same work, a row of it for a config, and the engine's default."""

    folder: str
    formats: tuple[tuple[str, str], ...]
    spec: Path
    row: Callable[[Shape, int, Config], dict[str, Any] | None]
    default: Callable[[Winner, GpuProfile], Config]


# ---- The facts: configs of the wheel's tables.


def collect(wheel: Path) -> dict[str, Any]:
    """The tables of a wheel: which files there are, and the config of each batch; nothing of its code."""
    found: dict[str, list[Any]] = {name: [] for name in FAMILIES}
    with zipfile.ZipFile(wheel) as files:
        for path in sorted(files.namelist()):
            match = _NAME.search(path)
            if match is None or not match["device"].startswith("NVIDIA") or match["device"].endswith("_down"):
                continue
            written = (match["dtype"] or "", match["block"] or "")
            for name, family in FAMILIES.items():
                if family.folder not in path or written not in family.formats:
                    continue
                shape = [[n, int(v)] for n, v in (part.split("=") for part in match["shape"].split(","))]
                version = re.search(r"/(triton_\d+_\d+_\d+)/", path)
                # An entry with more (operands swapped, the depth split) is of another kernel of the engine.
                entries = {
                    batch: [{**_OPTIONS, **entry}[f] for f in _FIELDS]
                    for batch, entry in json.loads(files.read(path)).items()
                    if batch.isdecimal() and set(_TILE) <= set(entry) <= set(_FIELDS)
                }
                if entries:
                    found[name].append(
                        [match["device"], version[1] if version else "", shape, bool(written[1]), entries]
                    )
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return {"wheel": wheel.name, "sha256": digest, "fields": _FIELDS, "tables": found}


def winners(data: Mapping[str, Any], family: str) -> list[Winner]:
    """Every point of the tables of a family; of one that several Triton versions have, the newest's."""
    newest: dict[tuple[str, str], list[Any]] = {}
    for row in sorted(data["tables"][family], key=lambda r: [int(n) for n in re.findall(r"\d+", r[1])]):
        newest[row[0], json.dumps(row[2:4])] = row
    return [
        Winner(device, tuple((n, v) for n, v in shape), int(batch), blocks, tuple(config))
        for device, _, shape, blocks, entries in newest.values()
        for batch, config in entries.items()
    ]


def chosen(points: Sequence[Winner], shapes: int, batches: Sequence[int]) -> list[Winner]:
    """The points asked about: so many shapes, spread over those of the GPU by their size, at these batches."""
    listed = sorted({p.shape for p in points}, key=lambda shape: [v for _, v in shape])
    step = max(1, len(listed) / shapes)
    kept = {listed[int(i * step)] for i in range(min(shapes, len(listed)))}
    return [p for p in points if p.shape in kept and p.batch in batches]


# ---- The kernels of this project that do the same work.


def gemm_row(shape: Shape, batch: int, config: Config) -> dict[str, Any] | None:
    """A point of `gemm_fp8_blocks`; None for what it cannot be: its depth of a tile is 128."""
    block_m, block_n, block_k, group_m, num_warps, num_stages = config
    if block_k != 128:
        return None
    names = {"m": batch, "n": shape["N"], "k": shape["K"], "BLOCK_M": block_m, "BLOCK_N": block_n, "GROUP_M": group_m}
    return {**names, "num_warps": num_warps, "num_stages": num_stages, "num_ctas": 1}


def moe_fp8_row(shape: Shape, batch: int, config: Config) -> dict[str, Any] | None:
    """A point of `moe_grouped_gemm`: the product of gate and up, twice the table's N wide."""
    block_m, block_n, block_k, group_m, num_warps, num_stages = config
    experts = shape["E"]
    names = {"batch": batch, "topk": min(TOP_K, experts), "experts": experts, "N": 2 * shape["N"], "K": HIDDEN}
    tiles = {"block_m": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": group_m}
    return {**names, **tiles, "num_warps": num_warps, "num_stages": num_stages, "num_ctas": 1}


def moe_bf16_row(shape: Shape, batch: int, config: Config) -> dict[str, Any] | None:
    """A point of `grouped_gemm`, the same product in BF16, the experts that are used with equal shares of the rows."""
    block_m, block_n, block_k, _, num_warps, num_stages = config
    pairs = batch * min(TOP_K, shape["E"])
    used = min(pairs, shape["E"])
    names = {"experts": used, "share": -(-pairs // used), "n": 2 * shape["N"], "k": HIDDEN}
    tiles = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return {**names, **tiles, "num_warps": num_warps, "num_stages": num_stages, "num_ctas": 1}


def blocks_default(_winner: Winner, _gpu: GpuProfile) -> Config:
    """With scales by blocks of 128."""
    return (64, 128, 128, 32, 4, 3)


def moe_fp8_default(winner: Winner, gpu: GpuProfile) -> Config:
    """FP8 without blocks: by whether there are more tokens than experts, and how much shared memory a CTA may have."""
    if winner.blocks:
        return blocks_default(winner, gpu)
    many = winner.batch > dict(winner.shape)["E"]
    if gpu.limits.shared_per_cta_optin_bytes < LOW_SHARED_BYTES:
        return (64, 128, 256, 64, 4, 2) if many else (32, 64, 256, 1, 4, 4)
    return (128, 256, 128, 32, 8, 4) if many else (64, 128, 128, 1, 4, 4)


def moe_bf16_default(winner: Winner, _gpu: GpuProfile) -> Config:
    """BF16: by whether there are more tokens than experts."""
    return (64, 64, 32, 8, 4, 3) if winner.batch > dict(winner.shape)["E"] else (16, 32, 64, 1, 4, 3)


_MOE = "srt/layers/moe/moe_runner/triton_utils/configs/"
_BLOCKS = ("fp8_w8a8", "[128, 128]")
FAMILIES = {
    "gemm_fp8_blocks": Family(
        "kernels/ops/gemm/configs/",
        (_BLOCKS,),
        ROOT / "validation/kernels/gemm_fp8_blocks.yaml",
        gemm_row,
        blocks_default,
    ),
    "moe_fp8": Family(
        _MOE, (_BLOCKS, ("fp8_w8a8", "")), ROOT / "kernels/moe_grouped_gemm.yaml", moe_fp8_row, moe_fp8_default
    ),
    "moe_bf16": Family(
        _MOE, (("", ""),), ROOT / "validation/kernels/grouped_gemm.yaml", moe_bf16_row, moe_bf16_default
    ),
}


# ---- Compiling for the GPUs of an architecture, each binary once.


@dataclass
class TextService(RecordedService):
    """Compiles what it is asked for that lies not yet in the folder `kept`, and times TTGIR and SASS for any GPU of the
    architecture. In this process, which serves one architecture alone."""

    kept: Path = Path()
    failed: Counter[str] = field(default_factory=Counter)

    def compile_all(self, requests: Sequence[CompileRequest], **_: Any) -> list[CompileOutcome]:
        for request in requests:
            key = key_of_request(request)
            if key not in self.binaries:
                self.binaries = {**self.binaries, key: self._binary(key, request)}
        return super().compile_all(requests)

    def _binary(self, key: str, request: CompileRequest) -> Mapping[str, Any]:
        digest = hashlib.sha256(f"{self.triton} {request.target.arch} {key}".encode()).hexdigest()[:32]
        path = self.kept / f"{digest}.json.gz"
        if path.is_file():
            found = json.loads(gzip.decompress(path.read_bytes()))
        else:
            found = binary_of(request)
            own = path.with_suffix(f".{os.getpid()}")
            own.write_bytes(gzip.compress(json.dumps(found).encode(), 6))
            own.replace(path)
        if isinstance(found, str):
            self.failed[found] += 1
            return {"problem": found}
        known: Mapping[str, Any] = found
        return known


# ---- Judging.


@dataclass(frozen=True)
class JudgedWinner:
    """A winner with its predicted time, that of the default (None: it cannot launch, or is no config of the kernel),
    and that of the best of the GPU's winners; `is_default`: the tuner found nothing faster than the default."""

    winner: Winner
    winner_us: float
    default_us: float | None
    best_us: float
    is_default: bool

    @property
    def behind_percent(self) -> float:
        """How much slower than the best the model takes the winner to be."""
        return 100 * (self.winner_us / self.best_us - 1)


def judge(family: Family, gpu: GpuProfile, points: Sequence[Winner], service: TextService) -> list[JudgedWinner]:
    """Every point with the predicted times of all candidates: what won anywhere among them, and the default."""
    prepared = prepare(read_kernel_input(str(family.spec)), gpu, service.describe, {}, {})
    won = dict.fromkeys(p.config for p in points)
    rows = {}
    for p in points:
        for config in (*won, family.default(p, gpu)):
            row = family.row(dict(p.shape), p.batch, config)
            if row is not None:
                rows[p.shape, p.batch, config] = row
    analyzed = compile_points(prepared, gpu, service, [point_of(prepared, gpu, r) for r in rows.values()], timed=True)
    launched = {}
    for (key, row), each in zip(rows.items(), analyzed, strict=True):
        candidate, _ = candidate_of(prepared, gpu, int(row.get("batch", 1)), each)
        if candidate is not None:
            launched[key] = candidate
    timed = time_candidates(gpu, list(launched.values()), None, False)
    times = {key: one.time_us for key, one in zip(launched, timed, strict=True) if isinstance(one, Scored)}
    found = []
    for p in points:
        us, default = times.get((p.shape, p.batch, p.config)), family.default(p, gpu)
        if us is not None:
            best = min(t for config in won if (t := times.get((p.shape, p.batch, config))) is not None)
            found.append(JudgedWinner(p, us, times.get((p.shape, p.batch, default)), best, p.config == default))
    return found


def row_of(name: str, asked: int, found: Sequence[JudgedWinner]) -> list[str]:
    """A GPU's line: points, how far winners are from the best, and whether they are preferred to the default."""
    if not found:
        return [name, f"0 of {asked}", *["-"] * 5]
    behind = [j.behind_percent for j in found]
    beside = [j for j in found if j.default_us is not None and not j.is_default]
    preferred = [j.winner_us < j.default_us for j in beside if j.default_us is not None]
    gains = [j.default_us / j.winner_us for j in beside if j.default_us is not None]
    return [
        name,
        f"{len(found)} of {asked}",
        f"{statistics.median(behind):.1f}",
        f"{percentile(behind, 90):.1f}",
        f"{100 * statistics.fmean(b <= 5 for b in behind):.0f}",
        f"{100 * statistics.fmean(preferred):.0f} of {len(preferred)}" if preferred else "-",
        f"{statistics.median(gains):.2f}" if gains else "-",
    ]


HEAD = [
    "GPU",
    "points with a time",
    "winner behind the model's best, median %",
    "p90 %",
    "within 5 %, %",
    "winner preferred to the default, %",
    "default / winner, median",
]


def profile_of(device: str) -> GpuProfile | None:
    """The profile of a GPU as a table's file name spells it; None where there is none."""
    try:
        return load_gpu(device.replace("_", " "))
    except InputError:
        return None


def judged_gpu(family: str, gpu: str, points: Sequence[Winner], kept: Path) -> list[JudgedWinner]:
    """The points of a GPU, in a process of their own."""
    with CompileService(limits=Limits(120, 0), jobs=1) as service:
        texts = TextService(service, {}, service.triton, "", kept=kept)
        found = judge(FAMILIES[family], load_gpu(gpu), points, texts)
    said = [f"{count} x {text}" for text, count in texts.failed.items()]
    print(f"{family} {gpu}: {len(found)} of {len(points)}", *said, sep="; ", file=sys.stderr, flush=True)
    return found


def alone(family: str, gpu: str, points: Sequence[Winner], kept: Path) -> list[JudgedWinner]:
    """`judged_gpu` in a new process: a compiler that takes it down costs this GPU's points."""
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        try:
            return pool.submit(judged_gpu, family, gpu, points, kept).result()
        except BrokenProcessPool:
            print(f"{family} {gpu}: the compiler took its process down", file=sys.stderr, flush=True)
            return []


def by_profile(points: Iterable[Winner], wanted: Collection[str]) -> tuple[dict[str, list[Winner]], Counter[str]]:
    """The points by the id of their GPU's profile, and how many are of GPUs that have none."""
    found: dict[str, list[Winner]] = defaultdict(list)
    unknown = Counter[str]()
    for p in points:
        profile = profile_of(p.device)
        if profile is None:
            unknown[p.device] += 1
        elif not wanted or profile.id in wanted:
            found[profile.id].append(p)
    return dict(sorted(found.items(), key=lambda item: (load_gpu(item[0]).arch, item[0]))), unknown


def report(data: Mapping[str, Any], families: Sequence[str], gpus: Sequence[str], given: Any) -> Iterator[str]:
    """A table a family of tables."""
    wanted = {load_gpu(name).id for name in gpus}
    given.kept.mkdir(parents=True, exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as threads:
        asked = {}
        for family in families:
            grouped, _ = by_profile(winners(data, family), wanted)
            for gpu, all_points in grouped.items():
                points = chosen(all_points, given.shapes, BATCHES)
                asked[family, gpu] = (points, threads.submit(alone, family, gpu, points, given.kept))
        for family in families:
            rows, pooled, count = [], [], 0
            for (of, gpu), (points, answer) in asked.items():
                if of == family:
                    found = answer.result()
                    rows.append(row_of(load_gpu(gpu).name, len(points), found))
                    pooled += found
                    count += len(points)
            if len(rows) > 1:
                rows.append(row_of("all", count, pooled))
            every = winners(data, family)
            yield f"## {family}, by `{FAMILIES[family].spec.stem}`: {len(every):,} points in the tables\n"
            yield table(HEAD, rows) + "\n"
            _, unknown = by_profile(every, wanted)
            if unknown and not wanted:
                text = ", ".join(f"{device} ({points})" for device, points in sorted(unknown.items()))
                yield f"Points of GPUs without a profile, left out: {text}.\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collect", type=Path, metavar="WHEEL", help="read the tables of a wheel")
    parser.add_argument("--kernels", default=",".join(FAMILIES), help="tables of these; default: all")
    parser.add_argument("--gpus", default="", help="only these, separated by commas")
    parser.add_argument("--shapes", type=int, default=SHAPES, help=f"of each GPU's tables; default {SHAPES}")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="GPUs at once")
    kept = Path(tempfile.gettempdir()) / "engine-tables"
    parser.add_argument("--kept", type=Path, default=kept, help="folder for what was compiled, to be used again")
    parser.add_argument("--write", action="store_true", help="put the text into README.md beside this file")
    given = parser.parse_args()
    if given.collect is not None:
        text = json.dumps(collect(given.collect), separators=(",", ":"))
        TABLES.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
        print(f"{TABLES.name}: {TABLES.stat().st_size:,} bytes")
        return 0
    data = json.loads(gzip.decompress(TABLES.read_bytes()))
    lines = list(report(data, given.kernels.split(","), [g for g in given.gpus.split(",") if g], given))
    today = datetime.datetime.now(datetime.timezone.utc).date()
    whence = (
        f"Tables: {data['wheel']} (SHA-256 {data['sha256'][:16]}...), `tables.json.gz`: configs alone. Predicted with "
        f"Triton {triton_version()}, no GPU, {today}; {given.shapes} shapes a GPU at "
        f"{', '.join(map(str, BATCHES))} tokens."
    )
    assert __doc__ is not None
    text = f"# What an engine ships, beside the model\n\n{__doc__.strip()}\n\n{whence}\n\n" + "\n".join(lines)
    print(text)
    if given.write:
        RESULT.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
