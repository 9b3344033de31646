"""A pruner for an autotuner at run time: leaves out the configs that cannot launch, and compiles nothing to know.

    @occ.prune(gpu="rtx-pro-6000")                     # above @triton.autotune; knows what the result cache knows
    @triton.autotune(configs=CONFIGS, key=["n"])
    @triton.jit
    def kernel(...): ...

    prune_configs_by={"early_config_prune": occ.pruner(known="fits.json")}      # what was analyzed before and shipped

`fits.json` is what `occupancy analyze ... --format json` printed, or `Report.to_json`. A config is left out only if
all that is known of it for such a launch says that it is over the cap; one that nothing is known of stays. So a launch
in a serving process costs a look into a file, never a compile, and no worker is started.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from occupancy_cli.api.argument_types import config_of
from occupancy_cli.errors import InputError, OccupancyError
from occupancy_cli.json_reader import read_text, refuse_too_many_values

if TYPE_CHECKING:
    from occupancy_cli.gpu.gpu_profile import GpuProfile
    from occupancy_cli.report.kernel_parts import Config
    from occupancy_cli.report.report import Report

C = TypeVar("C")
A = TypeVar("A")

# What an autotuner's launch passes on beside the kernel's own arguments.
_OF_THE_LAUNCH = frozenset({"grid", "warmup"})
_LOCAL = "local"


class Pruner:
    """An `early_config_prune`. `dropped` has what the last call left out, each with its reason.

    Whatever it cannot find out it says once, as a warning, and keeps the configs: it never fails a launch.
    """

    def __init__(
        self,
        kernel: Any = None,
        *,
        gpu: str | GpuProfile | None = None,
        known: Report | str | Path | None = None,
        cache: str | Path | None = None,
        before: Callable[..., list[Any]] | None = None,
    ) -> None:
        if kernel is None and known is None:
            problem = "neither a kernel, whose results the cache may have, nor a Report is given"
            raise InputError(problem, where="pruner", hint='Put @occ.prune() on the kernel, or pass known="fits.json".')
        self.dropped: tuple[tuple[str, str], ...] = ()
        self._kernel, self._gpu, self._cache, self._before = kernel, gpu, cache, before
        self._report = known if known is None or not isinstance(known, (str, Path)) else _read(Path(known))
        if self._report is not None and not any(k.configs for k in self._report.kernels):
            raise InputError(
                f"a Report of `{self._report.command}` has no configs", where="known", hint="`analyze` has."
            )
        self._profile: GpuProfile | None = None
        self._said: set[str] = set()
        self._lock = threading.Lock()

    def __call__(self, configs: Sequence[C], named_args: Mapping[str, Any], **kwargs: Any) -> list[C]:
        """The configs to try, in their order; all of them where none is known to be able to launch."""
        given = list(configs) if self._before is None else self._before(configs, named_args, **kwargs)
        values = {n: v for n, v in {**named_args, **kwargs}.items() if n not in _OF_THE_LAUNCH}
        try:
            reasons = self._reasons([config_of(c, i) for i, c in enumerate(given)], values)
        except OccupancyError as bad:
            self._say(f"configs are not pruned: {bad}")
            return given
        self.dropped = tuple((str(c), why) for c, why in zip(given, reasons, strict=True) if why)
        kept = [c for c, why in zip(given, reasons, strict=True) if not why]
        if not kept and given:
            self._say(f"no config is left: {reasons[0]}; the autotuner is given all of them")
        return kept or given

    def _say(self, text: str) -> None:
        with self._lock:
            if text in self._said:
                return
            self._said.add(text)
        warnings.warn(f"occupancy: {text}", RuntimeWarning, stacklevel=3)

    def _target(self) -> GpuProfile:
        from occupancy_cli.api.questions import asked_gpu

        if self._profile is None:
            self._profile = asked_gpu(self._gpu if self._gpu is not None else _LOCAL, ()).profile()
        return self._profile

    def _reasons(self, configs: list[dict[str, Any]], values: Mapping[str, Any]) -> list[str]:
        """Of each config why it cannot launch; empty where it can, or nothing is known."""
        if self._report is not None:
            report, limits = self._report, self._target().limits
            cap = report.gpu.shared_per_cta_optin_bytes if report.gpu else None
            if report.gpu is None or cap != limits.shared_per_cta_optin_bytes:
                name = report.gpu.name if report.gpu else "no GPU"
                raise InputError(f"is of {name}, the cap of {self._target().name} is another", where="known")
            return [why_known(report, config, values) for config in configs]
        return self._from_cache(configs, values)

    def _from_cache(self, configs: list[dict[str, Any]], values: Mapping[str, Any]) -> list[str]:
        from occupancy_cli.api.given_kernel import given_kernel
        from occupancy_cli.compile.compile_service import CompileService
        from occupancy_cli.compile.result_cache import ResultCache
        from occupancy_cli.loading.target_gpu import target_of
        from occupancy_cli.model.launch_options import LAUNCH_OPTIONS
        from occupancy_cli.model.occupancy import occupancy_of
        from occupancy_cli.plan.kernel_input import parse_ref
        from occupancy_cli.plan.points import make_point
        from occupancy_cli.plan.prepared_kernel import kernel_source, prepare

        gpu = self._target()
        service = CompileService(cache=ResultCache(None if self._cache is None else Path(self._cache)))

        def describe(source: Any, target: Any) -> Any:
            known = service.known_description(source, target)
            if known is None:
                hint = "Fill the cache before: occ.analyze(kernel, args=...), or `occupancy analyze`, with these types."
                raise InputError("nothing is known of it", where=str(source), hint=hint)
            return known

        tuned = {n for config in configs for n in config}
        settings = {n: v for n, v in values.items() if n in LAUNCH_OPTIONS}
        arguments = {n: v for n, v in values.items() if n not in settings and n not in tuned}
        if isinstance(self._kernel, (str, Path)):  # a live kernel knows its constexprs itself
            source = kernel_source(parse_ref(str(self._kernel), Path.cwd(), "kernel"))
            constexprs = describe(source, target_of(gpu)).constexprs
            settings |= {n: v for n, v in arguments.items() if n in constexprs}
            arguments = {n: v for n, v in arguments.items() if n not in constexprs}
        given = given_kernel(self._kernel, args=arguments, grid=None, configs=configs, settings=settings)
        kernel = prepare(given.kernel, gpu, describe, given.settings, {})
        reasons = []
        for config in kernel.configs:
            shapes, fixed = ({n: s.values[0] for n, s in of.items()} for of in (kernel.settings, kernel.overrides))
            point = make_point(kernel, gpu, shapes, config, fixed, gpu.limits.shared_per_cta_optin_bytes)
            outcome = service.known_outcome(point.main.request)
            resources = None if outcome is None else outcome.resources
            occupancy = None if resources is None else occupancy_of(gpu, resources)
            reasons.append("" if occupancy is None or occupancy.launchable else occupancy.reason)
        return reasons


def why_known(report: Report, config: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    """Why `config` cannot launch with these arguments, if a Report says so in every entry that fits them."""
    entries = [c for kernel in report.kernels for c in kernel.configs if _is_of(c, config, values)]
    if not entries or any(c.status != "over_cap" for c in entries):
        return ""
    return entries[0].reason


def _is_of(entry: Config, config: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    """Whether an entry is of this config, and of no other value of a constexpr or knob that the launch passes."""
    has = {**entry.knobs, **entry.config}
    if any(n not in has or has[n] != v for n, v in config.items() if v is not None and (n, v) != ("num_ctas", 1)):
        return False
    return all(has[n] == v for n, v in values.items() if n in has and isinstance(v, (int, float, str)))


def _read(path: Path) -> Report:
    from occupancy_cli.report.schema import report_from_json

    text = read_text(path)
    refuse_too_many_values(text, str(path))
    try:
        return report_from_json(text)
    except ValueError as bad:
        first = str(bad).partition("\n")[0]
        hint = "Write it by: occupancy analyze ... --format json"
        raise InputError(f"is no Report: {first}", where=str(path), hint=hint) from None


def pruner(
    kernel: Any = None,
    *,
    gpu: str | GpuProfile | None = None,
    known: Report | str | Path | None = None,
    cache: str | Path | None = None,
) -> Pruner:
    """An `early_config_prune` for `triton.autotune`, by a Report that is `known` (or its JSON file), or by the cache.

    `kernel` is what is autotuned, `path/to/file.py:kernel` or the live kernel, where the cache is asked (`cache`: its
    folder, if not the usual one). `gpu` None is this machine's, looked at when the first launch asks.
    """
    return Pruner(kernel, gpu=gpu, known=known, cache=cache)


def prune(
    *, gpu: str | GpuProfile | None = None, known: Report | str | Path | None = None, cache: str | Path | None = None
) -> Callable[[A], A]:
    """A decorator to put above `@triton.autotune`: its configs pass through a `pruner`, after a pruning of its own."""

    def decorate(autotuned: A) -> A:
        target: Any = autotuned
        if not hasattr(target, "early_config_prune") or not hasattr(target, "configs"):
            problem = f"a {type(target).__name__} has no configs to prune"
            raise InputError(problem, where="@occ.prune", hint="Put it above @triton.autotune.")
        before = target.early_config_prune
        target.early_config_prune = Pruner(target, gpu=gpu, known=known, cache=cache, before=before)
        return autotuned

    return decorate
