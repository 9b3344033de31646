"""Launch capture: a user's script, run with Triton's driver replaced by a recording one, and what it would launch.

`session` runs in the tool's own process: it starts the script's guard, collects its records and writes the specs.
`script_guard` starts the script's process, and ends all of it when the tool or the script ends. Everything else here
runs in the script's process, `python -m occupancy_cli.capture.script_process`:

- `recorder` takes the launches down, one line of JSON each, as they happen;
- `triton_hooks` puts the recorder into Triton: the driver of the target GPU, launches, the autotuner;
- `kernel_snapshot` writes a kernel down as a file that stands alone, with what it reaches and the values that had;
- `traced_grid` tells how a grid function computes its axes;
- `torch_cuda` lets torch's CPU build work as if the target GPU were there, by `torch_tensors` (where tensors are) and
  `torch_streams` (streams, events, graphs). What it says of the GPU is in `loading.target_gpu`.

`captured_spec` and `captured_grid` make specs of what was recorded. May import `compile` and below; `device` stands
beside it. torch is imported by the script alone.
"""
