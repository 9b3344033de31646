"""Capture fla-core's mesa_net for an RTX PRO 6000 without a GPU and check what comes out. Record: capture_fla.md.

    python -m pip download --no-deps fla-core==0.6.0 einops    # unpack both into SITE
    python validation/capture_fla.py SITE [--all]

Checks, on the machine's Triton:
1. the two conjugate-gradient solver kernels are over the cap by 13,312 and 29,696 bytes (Triton 3.9.0) and have one
   config each;
2. what was launched needs, by its spec, exactly what the library's own kernel needs when Triton compiles it in the
   captured process: the kernel files that a capture writes are faithful.

`--all` compiles every autotune config (minutes), not only the two solvers and what was launched.
"""

import argparse
import json
import os
import tempfile
from pathlib import Path

from occupancy_cli.answers.analyze import analyze
from occupancy_cli.capture.session import CaptureRequest, capture
from occupancy_cli.compile.compile_service import CompileService
from occupancy_cli.gpu.profiles import load_gpu
from occupancy_cli.plan.kernel_input import read_kernel_input

SCRIPT = Path(__file__).with_name("capture_fla_mesa_net.py")
SOLVERS = {"chunk_cg_solver_fwd": 13_312, "chunk_cg_solver_bwd": 29_696}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("site", type=Path)
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args()
    gpu = load_gpu("rtx-pro-6000")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(options.site), os.environ.get("PYTHONPATH", "")])
    with tempfile.TemporaryDirectory() as folder, CompileService() as service:
        os.environ["COMPILED_JSON"] = f"{folder}/compiled.json"
        result = capture(CaptureRequest(str(SCRIPT), (), Path(folder) / "captured", gpu))
        assert result.captured.status == "complete", result.captured.message
        assert not result.captured.not_captured, result.captured.not_captured
        compiled = json.loads(Path(os.environ["COMPILED_JSON"]).read_text())
        print(f"Triton {service.triton}: {result.captured.launches} launches, {len(result.captured.specs)} specs")
        wrong = 0
        for spec, path in zip(result.captured.specs, result.spec_paths, strict=True):
            own = [c for c in compiled if f"{c['file']}:" in spec.source + ":" and c["kernel"] == spec.kernel]
            given = read_kernel_input(str(path))
            if not options.all:
                given.spec.configs[1:] = []  # the first is what the captured run launched
            configs = analyze(given, gpu, service, {}).kernels[0].configs
            for config in configs:
                got = config.resources
                over = f"over by {config.over_bytes:,}" if config.over_bytes else ""
                print(f"  {path.stem}: {config.config} {got.shared_bytes if got else config.reason} {over}")
            first = configs[0].resources
            same = [
                c
                for c in own
                if first is not None
                and c["shared_bytes"] == first.shared_bytes
                and c["registers_per_thread"] == first.registers_per_thread
                and c["spill_bytes"] == first.spill_bytes
            ]
            if not same:
                wrong += 1
                print(f"  DIFFERS: {path.stem}: spec {first}, library {own}")
            for file, over_bytes in SOLVERS.items():
                if f"/{file}.py:" in spec.source and service.triton == "3.9.0":
                    assert [c.over_bytes for c in configs] == [over_bytes], configs
                    assert spec.configs == 1, spec
        print(f"{wrong} of {len(result.captured.specs)} specs differ from the library's own kernels")
        raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
