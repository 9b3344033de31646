"""The questions of the command line for a program or a notebook, under the names that `occupancy_cli` exports.

`questions` has one function a question, thin over `answers`; `given_kernel` takes whatever stands for a kernel, a live
JIT function too (`live_kernel`), `argument_types` what stands for its arguments; `compiling` says how to compile,
`pruner` prunes an autotuner's configs at run time. May import every floor but `cli`, beside which it stands; never
rich or typer, and Triton by `capture` alone, for a kernel that is live, so that Triton is there already.
"""
