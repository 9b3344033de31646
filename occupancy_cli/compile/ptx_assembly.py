"""PTX text to a cubin, by the ptxas that ships with Triton; Triton itself is not imported."""

from __future__ import annotations

import importlib.util
import subprocess
import tempfile
from pathlib import Path

from occupancy_cli.errors import CompileError, MissingDependencyError

ASSEMBLY_SECONDS = 120


def ptxas_path(arch: int) -> Path:
    """The ptxas of the installed Triton for a GPU of `arch`: from 100 on the one for Blackwell, where there are two."""
    spec = importlib.util.find_spec("triton")
    if spec is None or not spec.origin:
        raise MissingDependencyError("triton is not installed", hint="Install it: python -m pip install triton")
    tools = Path(spec.origin).parent / "backends" / "nvidia" / "bin"
    names = ("ptxas-blackwell", "ptxas") if arch >= 100 else ("ptxas",)
    found = next((tools / name for name in names if (tools / name).is_file()), None)
    if found is None:
        raise MissingDependencyError(f"this Triton ships no ptxas: {tools} has none")
    return found


def assemble(text: str, arch: int, target: str) -> bytes:
    """The cubin of `text` for `target` (sm_90a); a `CompileError` with what ptxas says where it refuses."""
    tool = ptxas_path(arch)
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder) / "kernels.ptx", Path(folder) / "kernels.cubin"
        source.write_text(text, encoding="utf-8")
        command = [str(tool), f"-arch={target}", "-o", str(cubin), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=ASSEMBLY_SECONDS, check=False)
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines()
            raise CompileError(f"{tool.name} refuses {target}: {said[0] if said else f'exit code {done.returncode}'}")
        return cubin.read_bytes()
