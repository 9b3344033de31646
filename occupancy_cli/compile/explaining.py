"""What a compile leaves behind, read for `explain`: the map of shared memory, and where registers go.

Runs in the worker, right after a compile, when a request asks for it (`CompileRequest.explain`). The map comes from the
IR behind the allocation pass, which every compile reaches; registers from the cubin, by the nvdisasm that ships with
Triton. Source lines are read here too, where the files are: the answer may be made on another machine.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from occupancy_cli.compile.kernel_explanation import KernelCode, KernelExplanation
from occupancy_cli.compile.packed_text import packed
from occupancy_cli.errors import OccupancyError
from occupancy_cli.readers.argument_uses import unmarked_arguments
from occupancy_cli.readers.kernel_parameters import parameter_places
from occupancy_cli.readers.register_life import RegisterUse, countable, instruction_sources, read_register_use
from occupancy_cli.readers.shared_map import SharedMap, read_shared_map
from occupancy_cli.readers.ttgir import SourceLine, parse_ttgir

DISASSEMBLY_SECONDS = 60


def read_explanation(allocated: str, cubin: bytes | None, ttgir: str, kernel: str, tools: Path) -> KernelExplanation:
    """The explanation of one compile. `allocated` is the IR behind the allocation pass, `cubin` None where the compile
    ended there, `ttgir` the IR before it, `tools` the folder of nvdisasm."""
    shared_map = read_shared_map(allocated)
    if cubin is None:
        note = "compiled up to its shared memory only: it is over the cap"
        return KernelExplanation(shared_map, None, _texts(_named(shared_map, None)), note)
    registers, code, note = None, None, ""
    named: set[SourceLine] = set()
    try:
        lives, disassembly = _disassembled(cubin, tools)
        registers = read_register_use(lives, disassembly, kernel)
        code = _code(cubin, disassembly, ttgir, kernel)
        named = {line for lines in instruction_sources(disassembly, kernel).values() for line in lines}
    except subprocess.CalledProcessError as failed:
        note = f"registers and accesses by line are unknown: nvdisasm says {failed.stderr.strip() or failed}"
    except (OSError, subprocess.SubprocessError, OccupancyError) as failed:
        note = f"registers and accesses by line are unknown: {failed}"
    return KernelExplanation(shared_map, registers, _texts(_named(shared_map, registers) | named), note, code)


def _disassembled(cubin: bytes, tools: Path) -> tuple[str, str]:
    """(lives of registers, instructions with their lines)."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(countable(cubin))
        file.flush()
        return _run(tools, "-c", "-lrm", "narrow", file.name), _run(tools, "-c", "-hex", "-gi", file.name)


def _code(cubin: bytes, disassembly: str, ttgir: str, kernel: str) -> KernelCode:
    parsed = parse_ttgir(ttgir)
    names = tuple(name for name, _, _ in parsed.function.arguments)
    places = parameter_places(cubin, kernel)
    return KernelCode(kernel, packed(disassembly), packed(ttgir), places, names, unmarked_arguments(parsed))


def _run(tools: Path, *arguments: str) -> str:
    command = [str(tools / "nvdisasm"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=DISASSEMBLY_SECONDS)
    return done.stdout


def _named(shared_map: SharedMap, registers: RegisterUse | None) -> set[SourceLine]:
    named = {line for buffer in shared_map.buffers for line in buffer.source}
    if registers is not None:
        named.update(line for holder in registers.holders for line in holder.source)
        named.update(line for each in registers.lines for line in each.source)
        named.update(line for spill in registers.spills for line in spill.source)
        named.update(registers.peak_source)
    return named


def _texts(named: Iterable[SourceLine]) -> Mapping[str, str]:
    """The text of each line, by `file:line`, where the file can be read."""
    found: dict[str, str] = {}
    files: dict[str, list[str]] = {}
    for file, line in sorted((each.file, each.line) for each in named):
        if file not in files:
            try:
                files[file] = Path(file).read_text(encoding="utf-8", errors="replace").splitlines()
            except (OSError, ValueError):
                files[file] = []
        if 0 < line <= len(files[file]):
            found[f"{file}:{line}"] = files[file][line - 1].strip()
    return found
