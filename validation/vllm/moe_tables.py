"""The fused-MoE tables of the vLLM wheel against its own kernel: how many entries fit, listed where they do not.

    python validation/vllm/moe_tables.py ada-blackwell   # tables that name a GPU of CC 8.9 or 12.x, each on its own
    python validation/vllm/moe_tables.py h200-on-sm120   # tables tuned on an H200, on CC 12.0

Needs the wheel unpacked on PYTHONPATH. Runs `occupancy check` on the specs beside this file with their tables narrowed,
and prints a line a spec and GPU, then a line for each entry over the cap.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SPECS = ("fused_moe_bf16", "fused_moe_fp8", "fused_moe_fp8_blocks", "fused_moe_int8")
CASES = {
    "ada-blackwell": (["NVIDIA_GeForce_RTX_4090", "NVIDIA_L40S", "NVIDIA_L20", "NVIDIA_RTX_PRO_6000*"], []),
    "h200-on-sm120": (["NVIDIA_H200"], ["--gpu", "sm120"]),
}


def check(spec: Path, devices: list[str], options: list[str]) -> dict[str, Any] | str:
    """The report of `occupancy check`, or its one-line error."""
    text = spec.read_text(encoding="utf-8").replace("device_name: NVIDIA_*", f"device_name: {json.dumps(devices)}")
    with tempfile.TemporaryDirectory() as folder:
        narrowed = Path(folder) / spec.name
        narrowed.write_text(text, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "occupancy_cli", "check", str(narrowed), *options, "--format", "json"],
            capture_output=True,
            text=True,
            check=False,
        )
    if not done.stdout:
        return done.stderr.splitlines()[0]
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def main() -> None:
    devices, options = CASES[sys.argv[1]]
    total: Counter[str] = Counter()
    for name in SPECS:
        report = check(HERE / f"{name}.yaml", devices, options)
        if isinstance(report, str):
            print(f"{name}: {report.rpartition(': ')[2]}")
            continue
        findings = report["findings"]
        levels = Counter((f["gpu"], f["level"]) for f in findings)
        for gpu in dict.fromkeys(f["gpu"] for f in findings):
            mine = [f for f in findings if f["gpu"] == gpu]
            most = max((f["required"] for f in mine if f["required"] is not None), default=0)
            counts = {level: levels[gpu, level] for level in ("ok", "violation", "undecided") if levels[gpu, level]}
            total.update(counts)
            print(f"{name} on {gpu}: {counts}, at most {most:,} bytes, Triton {report['toolchain']['triton']}")
        for finding in findings:
            if finding["level"] == "ok":
                continue
            config = " ".join(f"{n.removeprefix('BLOCK_SIZE_')}={v}" for n, v in finding["config"].items())
            over = finding["required"] - finding["limit"] if finding["required"] else finding["message"]
            place = f"{Path(finding['file']).name} batch {finding['knobs'].get('batch')}"
            print(f"  {place}: {config}: {finding['required']} bytes, {over} over")
    print(f"total: {dict(total)}")


if __name__ == "__main__":
    main()
