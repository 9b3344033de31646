"""The compiled kernels behind the times of `h200/kinds`: TTGIR, SASS and resources of every binary that was timed.

    python validation/kind_code.py FOLDER [--kinds gemm,softmax] [--jobs 16]   # record, with the Triton of the times

`RecordedService` answers for them in the place of a compile service, so that predictions are of the binaries that were
timed, on any machine and with whatever Triton is installed. A kind's file, `NAME.code.json.xz`, has the versions of
Triton and ptxas, and the binaries by what decides them (`h200/measure_kinds.py`, `Launch.specialized`); of the
encodings of its SASS the control bits alone, as `record_code.py` keeps them.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import lzma
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from occupancy_cli.compile.compile_service import CompileService
from occupancy_cli.compile.kept_readings import KeptReadings
from occupancy_cli.compile.kernel_record import KeptTimes
from occupancy_cli.compile.request import CompileOutcome, CompileRequest
from occupancy_cli.compile.simulated_timing import read_texts
from occupancy_cli.compile.typed_json import to_json
from occupancy_cli.model.resources import KernelResources
from testing import interpreter

OPTIONS = {"num_warps": 4, "num_stages": 3, "num_ctas": 1}  # what a request leaves to Triton


def canonical(kernel: str, numbers: Mapping[str, Any], rest: Mapping[str, Any]) -> str:
    """What decides a binary, the same text whichever order it was written in."""
    return json.dumps([kernel, sorted(numbers.items()), sorted((n, repr(v)) for n, v in rest.items())])


def seen(value: Any) -> str:
    """What Triton's specialization sees of a number, as `Launch.specialized` has it."""
    if not isinstance(value, int):
        return "number"
    return "1" if value == 1 else f"{value % 16 == 0} {abs(value) >= 2**31}"


def key_of_recorded(text: str) -> str:
    """`canonical` of a recorded key."""
    kernel, numbers, rest = json.loads(text)
    return canonical(kernel, dict(numbers), dict(rest))


def key_of_request(request: CompileRequest) -> str:
    """`canonical` of a request."""
    name = f"{Path(request.source.file or '').name}:{request.source.kernel}"
    numbers = {a.name: seen(a.value) for a in request.arguments if a.value is not None}
    return canonical(name, numbers, {**OPTIONS, **dict(request.options), **dict(request.constexprs)})


@dataclass
class RecordedService:
    """A compile service that has compiled already: describes kernels by `service`, answers from recorded code."""

    service: CompileService
    binaries: Mapping[str, Mapping[str, Any]]
    triton: str
    ptxas: str
    _outcomes: dict[tuple[str, str], CompileOutcome] = field(default_factory=dict)

    @staticmethod
    def read(path: Path, service: CompileService) -> RecordedService:
        """The service of a kind's file."""
        data = json.loads(lzma.decompress(path.read_bytes()))
        binaries = {key_of_recorded(key): binary for key, binary in data["binaries"].items()}
        return RecordedService(service, binaries, data["triton"], data["ptxas"])

    def readings(self) -> KeptReadings:
        """Of this run alone."""
        return KeptReadings(None)

    def describe(self, *arguments: Any) -> Any:
        return self.service.describe(*arguments)

    def compile_all(self, requests: Sequence[CompileRequest], **_: Any) -> list[CompileOutcome]:
        """The outcome of each request; a binary that was not recorded is an error of the recording."""
        return [self._outcome(request) for request in requests]

    def _outcome(self, request: CompileRequest) -> CompileOutcome:
        key, time_on = key_of_request(request), request.time_on
        known = (key, "" if time_on is None else time_on.digest)
        if known not in self._outcomes:
            if key not in self.binaries:
                raise SystemExit(f"not recorded: {key}")
            binary = self.binaries[key]
            if "problem" in binary:
                return CompileOutcome(None, "compile", str(binary["problem"]))
            resources = KernelResources(**binary["resources"])
            times = {}
            if time_on is not None:
                arguments = {a.name: a.value if isinstance(a.value, int) else None for a in request.arguments}
                read = read_texts(binary["ttgir"], lambda: str(binary["sass"]), arguments, resources, time_on)
                times = {time_on.digest: KeptTimes(to_json(read))}
            tools = (("ptxas", self.ptxas), ("triton", self.triton))
            self._outcomes[known] = CompileOutcome(resources, toolchain=tools, times=times)
        return self._outcomes[known]


# ---- Recording.


def compiled(job: tuple[str, Any]) -> tuple[str, dict[str, Any] | str]:
    """A launch's key, and its binary or what went wrong."""
    key, launch = job
    kinds = interpreter.load_kernel("validation/h200/measure_kinds.py")
    kinds.install_driver()
    values = {**stand_ins(launch.types), **dict(launch.numbers), **dict(launch.constexprs)}
    return key, texts_of(kinds.kernel_object(launch.kernel), values, reserved_bytes=1024)


def binary_of(request: CompileRequest) -> dict[str, Any] | str:
    """The binary of a request, in a process that serves one architecture alone; or what went wrong."""
    from occupancy_cli.compile import triton_front

    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
    triton_front.install_driver(request.target)
    module = interpreter.load_kernel(str(Path(request.source.file or "").relative_to(interpreter.REPOSITORY)))
    values = stand_ins([(a.name, a.type) for a in request.arguments])
    values |= {a.name: a.value for a in request.arguments if a.value is not None}
    values |= {**dict(request.options), **dict(request.constexprs)}
    reserved = 1024 if request.target.arch >= 90 else 0
    return texts_of(getattr(module, request.source.kernel), values, reserved_bytes=reserved)


def stand_ins(types: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """What is passed for arguments that have no number."""
    from occupancy_cli.compile import triton_front

    return {n: triton_front.TensorStandIn(t[1:], 16) if t[0] == "*" else 0.5 for n, t in types}


def texts_of(kernel: Any, values: Mapping[str, Any], reserved_bytes: int) -> dict[str, Any] | str:
    """TTGIR, SASS and resources of a kernel compiled with these values; or what went wrong. `reserved_bytes` of shared
    memory are the system's, which ptxas counts as the kernel's from compute capability 9.0 on."""
    from record_code import disassemble

    from occupancy_cli.compile import triton_front
    from occupancy_cli.readers.cubin import read_cubin

    try:
        found = triton_front.compile_plainly(kernel, dict(values))
        read = read_cubin(found["cubin"])[0]
        sass = disassemble(found["cubin"])  # nvdisasm does not know every chip that ptxas does
    except Exception as bad:  # noqa: BLE001 (the reason is printed, the others still count)
        return f"{type(bad).__name__}: {(str(bad).strip().splitlines() or [''])[0][:200]}"
    resources = {
        "shared_bytes": found["shared_bytes"],
        "num_warps": found["num_warps"],
        "threads_per_cta": 32 * found["num_warps"],
        "registers_per_thread": read.registers_per_thread,
        "spill_bytes": read.frame_bytes,
        "static_shared_bytes": max(read.static_shared_bytes - reserved_bytes, 0),
        "num_ctas": found["num_ctas"],
    }
    ttgir = found["ttgir"].replace(str(interpreter.REPOSITORY), "")
    return {"ttgir": ttgir, "sass": sass, "resources": resources}


def write(path: Path, triton: str, ptxas: str, binaries: Mapping[str, Any]) -> None:
    """A kind's file."""
    data = {"triton": triton, "ptxas": ptxas, "binaries": dict(sorted(binaries.items()))}
    path.write_bytes(lzma.compress(json.dumps(data).encode(), preset=9))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="for NAME.code.json.xz")
    parser.add_argument("--kinds", default="", help="only these, separated by commas")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="compiles at once")
    given = parser.parse_args()
    os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"
    os.environ.setdefault("TRITON_CACHE_DIR", tempfile.mkdtemp(prefix="kinds-triton-"))
    kinds = interpreter.load_kernel("validation/h200/measure_kinds.py")
    from occupancy_cli.compile import triton_front

    given.folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    with concurrent.futures.ProcessPoolExecutor(given.jobs, multiprocessing.get_context("spawn")) as pool:
        for kind in kinds.read_kinds([k for k in given.kinds.split(",") if k]):
            launches = {w.specialized(): w for p in kind.points() for w in p.launches}
            found = dict(pool.map(compiled, launches.items()))
            bad = {key: text for key, text in found.items() if isinstance(text, str)}
            failed += len(bad)
            binaries = {key: binary for key, binary in found.items() if key not in bad}
            path = given.folder / f"{kind.name}.code.json.xz"
            write(path, triton_front.VERSION, triton_front.ptxas_version(kinds.ARCH), binaries)
            print(f"{kind.name}: {len(binaries)} binaries, {path.stat().st_size:,} bytes", *bad.values(), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
