"""Compile every kernel variant of a measured surface and keep its TTGIR, SASS and resources beside the surface.

    python validation/record_code.py validation/given/NAME.jsonl.gz

Run it with the Triton version that the surface was measured with (the description's `triton`); no GPU is needed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import lzma
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import triton
from surfaces import _value, integer_arguments, read_surface, variant_key

from occupancy_cli.compile.triton_front import TensorStandIn, compile_plainly, install_driver
from occupancy_cli.loading.target_gpu import target_of
from occupancy_cli.readers.cubin import read_cubin

NVDISASM = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm"


def disassemble(cubin: bytes) -> str:
    """The text of `nvdisasm -c -hex`, of the encodings the control bits alone (105 and up): the rest says what the text
    says, and does not compress."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run([str(NVDISASM), "-c", "-hex", file.name], capture_output=True, text=True, check=True)
    kept = (line.rstrip() for line in done.stdout.splitlines() if "/*" in line or line.strip().endswith(":"))
    return _ENCODING.sub(_control_bits, "\n".join(kept))


_ENCODING = re.compile(r"/\* 0x([0-9a-f]{16}) \*/(\s*)/\* 0x([0-9a-f]{16}) \*/")


def _control_bits(found: re.Match[str]) -> str:
    high = int(found.group(3), 16) >> 41 << 41
    return f"/* 0x{0:016x} */{found.group(2)}/* 0x{high:016x} */"


def main(path: Path) -> None:
    surface = read_surface(path)
    if triton.__version__ != surface.about["triton"]:
        sys.exit(f"{path.name} was measured with Triton {surface.about['triton']}, this is {triton.__version__}")
    source = (path.parent / surface.about["source"]).resolve()
    spec = importlib.util.spec_from_file_location(source.name.replace(".", "_"), source)
    if spec is None or spec.loader is None:
        sys.exit(f"{source} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    install_driver(target_of(surface.gpu))
    code: dict[str, Any] = {}
    for row in (*surface.rows, *surface.marked):
        for about in surface.about["launches"]:
            key = variant_key(about, row)
            if key in code or not _value(about.get("if", 1), row):
                continue
            integers = integer_arguments(about, row)
            values: dict[str, Any] = {}
            for name, text in about["arguments"].items():
                if name in integers:
                    values[name] = integers[name]
                else:
                    values[name] = TensorStandIn(text.lstrip("*"), 16) if text.startswith("*") else 0.5
            for name, text in {**about.get("constexprs", {}), **about.get("options", {})}.items():
                values[name] = _value(text, row)
            compiled = compile_plainly(getattr(module, about["kernel"]), values)
            kernel = read_cubin(compiled["cubin"])[0]
            reserved = surface.gpu.limits.shared_reserved_per_cta_bytes if surface.gpu.arch >= 90 else 0
            code[key] = {
                "ttgir": compiled["ttgir"].replace(str(source.parent) + "/", ""),
                "sass": disassemble(compiled["cubin"]),
                "resources": {
                    "shared_bytes": compiled["shared_bytes"],
                    "num_warps": compiled["num_warps"],
                    "threads_per_cta": 32 * compiled["num_warps"],
                    "registers_per_thread": kernel.registers_per_thread,
                    "spill_bytes": kernel.frame_bytes,
                    "static_shared_bytes": max(kernel.static_shared_bytes - reserved, 0),
                    "num_ctas": compiled["num_ctas"],
                },
            }
            print(key, code[key]["resources"]["registers_per_thread"], "registers", flush=True)
    text = json.dumps(code, sort_keys=True)
    out = path.with_name(f"{surface.name}.code.json.xz")
    out.write_bytes(lzma.compress(text.encode(), preset=9))
    print(f"{len(code)} variants, {out.stat().st_size} bytes: {out.name}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("surface", type=Path, help="NAME.jsonl.gz, its description and source beside it")
    main(parser.parse_args().surface)
