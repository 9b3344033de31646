"""Launch capture: a user's script, run with Triton's driver replaced by a recording one, and what it would launch.

`session` runs in the tool's own process: it starts the script's process, collects its records and writes the specs.
Everything else here runs in the script's process, started as `python -m occupancy_cli.compile.capture.run`:

- `recorder` takes the launches down, one line of JSON each, as they happen;
- `hooks` puts the recorder into Triton: the driver of the target GPU, launches, the autotuner;
- `snapshot` writes a kernel down as a file that stands alone, with what it reaches and the values that had;
- `torch_cuda` makes torch's CPU build answer as if the target GPU were there.

May import what `compile` may; torch only in `torch_cuda`, and only when a capture without a GPU begins.
"""
