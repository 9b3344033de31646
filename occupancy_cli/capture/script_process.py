"""The process that runs a user's script under capture: `python -m occupancy_cli.capture.script_process PLAN`.

PLAN is a JSON file: the script and its arguments, the target, where records go. The process ends as the script does;
its last record says how. Nothing of the script's exceptions is hidden: the traceback is the script's own, printed as
Python would, without the frames that started it.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy_cli.errors import OccupancyError
from occupancy_cli.loading.device_doors import open_doors
from occupancy_cli.loading.target_gpu import TargetGpu

if TYPE_CHECKING:  # it imports Triton, which loads behind the open doors
    from occupancy_cli.capture.given_values import GivenValues


def main() -> int:
    """Run the script that the plan names; returns the exit code."""
    plan: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    fd = os.open(plan["records"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.set_inheritable(fd, False)
    from occupancy_cli.capture import given_values, recorder, torch_cuda, triton_hooks
    from occupancy_cli.compile.triton_internals import require_internals

    record = recorder.Recorder(fd, plan["most_per_kernel"])
    try:
        require_internals(("compile", "capture") if not plan["live"] else ("capture",))
    except OccupancyError as moved:
        record.event("end", status="internals", message=moved.problem, versions=recorder.versions())
        return 2
    if plan["live"]:
        triton_hooks.install_live(record)
    else:
        target = TargetGpu(**plan["target"])
        open_doors(target, {"torch": lambda torch: torch_cuda.install(torch, record.note)})
        triton_hooks.install_without_gpu(record, target)
    values = given_values.GivenValues(plan["values"], record)
    values.install()
    code, status, message = _run(plan, values)
    record.flush()
    record.event("end", status=status, message=message, versions=recorder.versions())
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _run(plan: dict[str, Any], values: GivenValues) -> tuple[int, str, str]:
    """Exit code, status and, of a script that failed, the last line of its traceback."""
    sys.argv = [plan["script"], *plan["arguments"]]
    try:
        if plan["module"]:
            sys.path[0] = os.getcwd()  # noqa: PTH109 (as `python -m` does)
            runpy.run_module(plan["script"], run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = str(Path(plan["script"]).resolve().parent)
            changed = values.code_of(plan["script"])
            if changed is None:
                runpy.run_path(plan["script"], run_name="__main__")
            else:
                values.run_as_main(changed, plan["script"])
    except SystemExit as leaving:
        if leaving.code in (None, 0):
            return 0, "complete", ""
        if not isinstance(leaving.code, int):
            print(leaving.code, file=sys.stderr)  # noqa: T201 (as Python does)
            return 1, "failed", f"it left with: {leaving.code}"
        return leaving.code, "failed", f"it left with exit code {leaving.code}"
    except KeyboardInterrupt:
        return 130, "interrupted", "it was interrupted"
    except BaseException as bad:  # noqa: BLE001 (whatever a script raises is its own and is shown)
        _show(bad)
        return 1, "failed", traceback.format_exception_only(bad)[-1].strip()
    return 0, "complete", ""


def _show(bad: BaseException) -> None:
    """The traceback as Python prints it, from the script's first frame on."""
    frames = bad.__traceback__
    while frames is not None and frames.tb_next is not None and _is_ours(frames.tb_frame.f_code.co_filename):
        frames = frames.tb_next
    traceback.print_exception(type(bad), bad, frames)


def _is_ours(file: str) -> bool:
    return file in (__file__, runpy.__file__) or file.startswith("<frozen ")


if __name__ == "__main__":
    sys.exit(main())
