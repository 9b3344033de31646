"""`occupancy fit`: the smallest changes that reach a goal."""

from __future__ import annotations

from typing import Annotated

import typer

from occupancy_cli.cli import options
from occupancy_cli.cli.compiling import CompileOptions, compiles
from occupancy_cli.cli.show import show
from occupancy_cli.errors import InputError


@compiles
def fit(
    kernel: options.KernelArgument = None,
    ctas: Annotated[int | None, typer.Option("--ctas", min=1, max=32, help="Goal: so many CTAs per SM.")] = None,
    fits: Annotated[bool, typer.Option("--fits", help="Goal: that the config can launch at all.")] = False,
    no_spills: Annotated[bool, typer.Option("--no-spills", help="Goal: that no register is spilled.")] = False,
    config: Annotated[
        str | None,
        typer.Option("--config", metavar="NAME=VALUE,...", help="The config to start from; left out: the first one."),
    ] = None,
    batch: Annotated[str | None, typer.Option("--batch", help="Sets the shape `batch`.")] = None,
    gpu: options.GpuOption = options.DEFAULT_GPU,
    sets: options.SetOption = None,
    arguments: options.ArgOption = None,
    grid: options.GridOption = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=10_000, help="Candidates to compile at most, the nearest first.")
    ] = 60,
    output_format: options.FormatOption = options.Format.table,
    hw_profiles: options.ProfilesOption = None,
    *,
    how: CompileOptions,
) -> None:
    """The smallest changes of a config that reach a goal: every proposal is compiled, and ranked by predicted time.

    Knobs of the spec, names of its configs, num_warps, num_stages and maxnreg may change; what --set sets stays. Exit
    code 0 when something reaches it, 1 when nothing does, 2 when nothing does and candidates were left out.
    """
    from occupancy_cli.answers.fit import Goal
    from occupancy_cli.answers.fit import fit as run
    from occupancy_cli.plan.kernel_input import read_kernel_input

    if (ctas is not None) + fits + no_spills != 1:
        given_goals = "no goal is given" if ctas is None and not fits and not no_spills else "several goals are given"
        raise InputError(given_goals, where="fit", hint="Give one of --ctas 2, --fits, --no-spills.")
    profile = options.resolve_gpu(gpu, hw_profiles)
    given = read_kernel_input(kernel, arguments or [], grid)
    with how.service() as service:
        values = options.settings(sets, batch)
        report = run(given, profile, service, values, Goal(ctas, no_spills), config, limit=limit)
    show(report, output_format)
