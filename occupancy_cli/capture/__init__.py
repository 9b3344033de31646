"""Launch capture: a user's script, run with Triton's driver replaced by a recording one, and what it would launch.

`session` runs in the tool's own process: it starts the script's process, collects its records and writes the specs.
Everything else here runs in the script's process, started as `python -m occupancy_cli.capture.script_process`:

- `recorder` takes the launches down, one line of JSON each, as they happen;
- `triton_hooks` puts the recorder into Triton: the driver of the target GPU, launches, the autotuner;
- `kernel_snapshot` writes a kernel down as a file that stands alone, with what it reaches and the values that had;
- `torch_cuda` makes torch's CPU build answer as if the target GPU were there.

`captured_spec` and `captured_grid` make specs of what was recorded. May import `compile` and below; `device` stands
beside it. torch only in `torch_cuda`, and only when a capture without a GPU begins.
"""
