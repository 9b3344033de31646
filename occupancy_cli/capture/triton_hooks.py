"""The recorder's places in Triton: the driver, the compile, every launch, the autotuner.

Without a GPU the driver is one that answers for the target and launches nothing, and a compile is put off until
somebody asks for what only a compiled kernel has (a script that reads `n_regs`, say). With a GPU (`live`) everything
runs as it would, and launches are written down on the way. In both a grid function is called once more for every new
launch, to see how it computes its result (`traced_grid`).

What this touches beyond Triton's public interface is in the table of `compile.triton_internals`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import triton
import triton.compiler
import triton.testing
from triton.runtime import driver as runtime_driver
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from occupancy_cli.capture.recorder import Bound, Recorder, Tuned
from occupancy_cli.capture.traced_grid import traced_axes
from occupancy_cli.compile.target_driver import TargetDriver, untimed
from occupancy_cli.loading.target_gpu import TargetGpu
from occupancy_cli.model.launch_options import LAUNCH_OPTIONS
from occupancy_cli.readers import cubin

NO_TIMES = "kernels did not run: every time that the script measured is NaN"


# --- the driver --------------------------------------------------------------------------------------------------


class RecordingDriver(TargetDriver):
    """The target's driver with launches that are written down."""

    def __init__(self, target: TargetGpu, recorder: Recorder) -> None:
        super().__init__(target)
        self.utils.load_binary = _load_binary
        self.launcher_cls = functools.partial(_Launcher, recorder)

    def get_empty_cache_for_benchmark(self) -> Any:
        import torch

        return torch.empty(256, dtype=torch.int, device="cuda")

    def allocate_default_profile_scratch(self, *_args: Any) -> None:
        return None


def _load_binary(name: str, binary: bytes, _shared: int, _device: int) -> tuple[Any, ...]:
    """Module, function, registers and local bytes of a thread, most threads: from the cubin, nothing is loaded."""
    found = {k.name: k for k in cubin.read_cubin(binary)}
    if name not in found:
        return 0, 0, 0, 0, 1024
    return 0, 0, found[name].registers_per_thread, found[name].frame_bytes, 1024


class _Launcher:
    """What Triton calls to launch a kernel that it really compiled."""

    def __init__(self, recorder: Recorder, src: Any, metadata: Any) -> None:
        self._recorder = recorder
        self._src = src
        self._options = {n: getattr(metadata, n, None) for n in LAUNCH_OPTIONS}

    def __call__(self, x: int, y: int, z: int, *rest: Any) -> None:
        # The stream, the function, its packed and launch metadata and two hooks come before the kernel's arguments.
        if not self._recorder.state.in_launch:
            _record_compiled(self._recorder, self._src, self._options, (x, y, z), rest[6:])


# --- compiling later ---------------------------------------------------------------------------------------------


class LazyKernel:
    """Stands for a compiled kernel until something of it is needed that only a compiled one has."""

    def __init__(
        self, recorder: Recorder, src: Any, compile_now: Callable[[], Any], options: Mapping[str, Any]
    ) -> None:
        self._recorder = recorder
        self._compile_now = compile_now
        self._compiled: Any = None
        self._options = options
        self.src = src
        self.function = 0
        self.module = 0
        self.packed_metadata: tuple[Any, ...] = ()
        self.name = src.fn.fn.__name__

    def launch_metadata(self, *_args: Any) -> None:
        """No profiler looks at a launch that does not happen."""

    def run(self, x: int, y: int, z: int, *rest: Any) -> None:
        """A launch. Triton calls it from `JITFunction.run`, which is recorded already, or a script does."""
        if not self._recorder.state.in_launch:
            _record_compiled(self._recorder, self.src, self._options, (x, y, z), rest[6:])

    def __getitem__(self, grid: Sequence[Any]) -> Callable[..., None]:
        axes = (*grid, 1, 1)[:3]
        return lambda *args, **_stream: _record_compiled(self._recorder, self.src, self._options, axes, args)

    def _init_handles(self) -> None:
        self._real()._init_handles()

    def _real(self) -> Any:
        if self._compiled is None:
            self._compiled = self._compile_now()
        return self._compiled

    def __getattr__(self, name: str) -> Any:
        # Triton 3.6 asks every kernel whether it is a future; that must not compile it.
        if name in ("result", "__wrapped__") or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(name)
        real = self._real()
        if name in ("n_regs", "n_spills", "n_max_threads"):
            real._init_handles()
        return getattr(real, name)


def _record_compiled(
    recorder: Recorder, src: Any, options: Mapping[str, Any], grid: Sequence[Any], args: Sequence[Any]
) -> None:
    """A launch of a compiled kernel by hand: the arguments come by position, constexprs among them or not."""
    jit = getattr(src, "fn", None)
    if not isinstance(jit, JITFunction):
        recorder.note("a kernel that was compiled from text, not from a Python function, was launched: not captured")
        return
    constants = {path[0]: value for path, value in src.constants.items() if isinstance(path, tuple)}
    given: dict[str, Any] = {}
    left = list(args)
    with_all = len(left) >= len(jit.params)
    for i, param in enumerate(jit.params):
        if (with_all or not param.is_constexpr) and left:
            given[param.name] = left.pop(0)
            if param.is_constexpr:
                given[param.name] = constants.get(i, given[param.name])
        elif i in constants:
            given[param.name] = constants[i]
    known = {n: options[n] for n in LAUNCH_OPTIONS if options.get(n) is not None}
    try:
        bound = _bind(jit, (), given | known)
    except TypeError as bad:
        recorder.note(f"a launch of a compiled {jit.fn.__name__} was not captured: {bad}")
        return
    recorder.launch(replace(bound, options=known), tuple(grid))


# --- launches ----------------------------------------------------------------------------------------------------


def _bind(jit: JITFunction, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Bound:
    """A launch as Triton's own binder makes it."""
    *_, backend, binder = jit.device_caches[runtime_driver.active.get_current_device()]
    bound, specialization, options = binder(*args, **kwargs)
    return Bound(jit, bound, specialization, dict(options), backend)


def _record_launches(recorder: Recorder) -> None:
    original = JITFunction.run
    state = recorder.state

    @functools.wraps(original)
    def run(self: JITFunction, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        if state.in_launch:
            return original(self, *args, grid=grid, warmup=warmup, **kwargs)
        seen: list[Any] = []

        def evaluated(meta: Mapping[str, Any]) -> Any:
            seen.append(grid(meta) if callable(grid) else grid)
            return seen[-1]

        def axes_text(bound: Mapping[str, Any]) -> Sequence[str | None]:
            return traced_axes(grid, bound) if callable(grid) else ()

        if state.dry:
            bound = _bind(self, args, kwargs)
            evaluated(bound.arguments)
            recorder.launch(bound, _axes(seen[0]), axes_text=axes_text, candidate=True)
            return None
        error = ""
        state.in_launch += 1
        try:
            result = original(self, *args, grid=grid if warmup else evaluated, warmup=warmup, **kwargs)
        except Exception as why:
            error = f"{type(why).__name__}: {why}"[:500]
            raise
        finally:
            state.in_launch -= 1
            # A launch that Triton refused before it asked for the grid (a wrong argument) is none.
            if seen or warmup:
                launched = _axes(seen[0]) if seen else None
                bound = _bind(self, args, kwargs)
                recorder.launch(bound, launched, error, axes_text=axes_text, candidate=state.benchmark)
            if state.benchmark:
                state.in_launch += 1  # what is timed from here on is the kernel, not the recorder
        return result

    JITFunction.run = run


def _axes(grid: Any) -> tuple[Any, ...]:
    return tuple(grid) if isinstance(grid, (tuple, list)) else (grid,)


# --- the autotuner -----------------------------------------------------------------------------------------------


def _jit_of(kernel: Any) -> JITFunction:
    while not isinstance(kernel, JITFunction):
        kernel = kernel.fn
    return kernel


def _prepare(config: Any, values: Mapping[str, Any]) -> None:
    """What a config does before its launch, such as setting a descriptor's block shape."""
    if config.pre_hook is not None:
        config.pre_hook(dict(values))


def _tuned(tuner: Any, config: Any, kept: bool) -> Tuned:
    return Tuned(tuple(config.all_kwargs()), kept, len(tuner.configs))


def _candidate(recorder: Recorder, tuner: Any, config: Any, kept: bool, args: Any, kwargs: Mapping[str, Any]) -> None:
    """Write down the launch that `config` would make."""
    given = config.all_kwargs()
    try:
        with recorder.tuning(_tuned(tuner, config, kept)), recorder.dry():
            tuner.fn.run(*args, **kwargs, **given)
    except Exception as why:  # noqa: BLE001 (a library's own hooks and heuristics; the reason is recorded)
        recorder.failed_config(_jit_of(tuner), given, why)


def _tune_without_timing(recorder: Recorder) -> None:
    """Every config of an autotuned launch is written down once; the first that can be launched goes on. No timing."""
    prune = Autotuner.prune_configs

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        configs = list(self.configs)
        kept = list(prune(self, kwargs)) if len(configs) > 1 else configs
        first_failure: Exception | None = None
        for chosen in kept:
            values = {**self.nargs, **kwargs, **chosen.all_kwargs()}
            try:
                _prepare(chosen, values)
                with recorder.tuning(_tuned(self, chosen, True)):
                    result = self.fn.run(*args, **kwargs, **chosen.all_kwargs())
                break
            except Exception as why:  # noqa: BLE001 (as the autotuner: a config that fails is passed over)
                first_failure = first_failure or why
                recorder.failed_config(_jit_of(self), chosen.all_kwargs(), why)
        else:
            if first_failure is not None:
                raise first_failure
            raise ValueError(f"no config of {_jit_of(self).fn.__name__} is left after pruning")
        self.best_config = chosen
        if recorder.state.last_is_new and len(configs) > 1:
            explore(self, configs, kept, chosen, args, kwargs)
        self.nargs = None
        return result

    def explore(tuner: Any, configs: list[Any], kept: list[Any], chosen: Any, args: Any, kwargs: Any) -> None:
        for config in configs:
            if config is chosen:
                continue
            try:
                _prepare(config, {**tuner.nargs, **kwargs, **config.all_kwargs()})
            except Exception as why:  # noqa: BLE001 (a library's own hook; the reason is recorded)
                recorder.failed_config(_jit_of(tuner), config.all_kwargs(), why)
                continue
            _candidate(recorder, tuner, config, any(config is k for k in kept), args, kwargs)
        _prepare(chosen, {**tuner.nargs, **kwargs, **chosen.all_kwargs()})

    # A tuner of a library's own (a subclass with a `run` of its own) comes by way of these two.
    def pruned(self: Any, kwargs: Any, *rest: Any, **more: Any) -> Any:
        kept = prune(self, kwargs, *rest, **more)
        self._occupancy_kept = list(kept)
        return kept

    def bench(self: Any, *args: Any, config: Any, **meta: Any) -> list[float]:
        kept = getattr(self, "_occupancy_kept", None) or [config]
        if config is kept[0]:
            for other in self.configs:
                if not any(other is k for k in kept):
                    _candidate(recorder, self, other, False, args, meta)
        try:
            _prepare(config, {**(self.nargs or {}), **meta, **config.all_kwargs()})
        except Exception as why:  # noqa: BLE001 (a library's own hook; the reason is recorded)
            recorder.failed_config(_jit_of(self), config.all_kwargs(), why)
        else:
            _candidate(recorder, self, config, True, args, meta)
        return [math.nan] * 3

    Autotuner.run = run
    Autotuner.prune_configs = pruned
    Autotuner._bench = bench


def _watch_tuning(recorder: Recorder) -> None:
    """With a GPU the autotuner does its work; what it tries and what it takes is written down."""
    run_original, bench_original = Autotuner.run, Autotuner._bench
    state = recorder.state

    @functools.wraps(bench_original)
    def bench(self: Any, *args: Any, config: Any, **meta: Any) -> Any:
        before = state.in_launch, state.benchmark
        state.benchmark = True
        try:
            with recorder.tuning(_tuned(self, config, True)):
                return bench_original(self, *args, config=config, **meta)
        finally:
            state.in_launch, state.benchmark = before

    @functools.wraps(run_original)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        names = tuple(dict.fromkeys(n for c in self.configs for n in c.all_kwargs()))
        with recorder.tuning(Tuned(names, True, len(self.configs))):
            result = run_original(self, *args, **kwargs)
        if state.last_is_new and not state.in_launch and len(self.configs) > 1:
            # What it did not try, because of pruning or because it knew the best one already. A config with a hook is
            # left alone: in a run that is real, when hooks run is the script's business.
            self.nargs = dict(zip(self.arg_names, args, strict=False))
            kept = self.prune_configs(kwargs)
            for config in self.configs:
                if config is not self.best_config and config.pre_hook is None:
                    _candidate(recorder, self, config, any(config is k for k in kept), args, kwargs)
            self.nargs = None
        return result

    Autotuner.run = run
    Autotuner._bench = bench


# --- installing --------------------------------------------------------------------------------------------------


def install_without_gpu(recorder: Recorder, target: TargetGpu) -> None:
    """Make Triton answer for the target, launch nothing and record everything. Before any library is imported."""
    driver = RecordingDriver(target, recorder)
    runtime_driver.set_active(driver)
    # A library that resets the driver gets the same one again.
    setattr(runtime_driver, "_default" if hasattr(runtime_driver, "_default") else "default", driver)
    compile_original = triton.compiler.compile

    def compile_later(src: Any, target: Any = None, options: Any = None, **rest: Any) -> Any:
        def now() -> Any:
            return compile_original(src, target=target, options=options, **rest)

        if not isinstance(getattr(src, "fn", None), JITFunction):
            return now()
        return LazyKernel(recorder, src, now, options or {})

    triton.compiler.compile = compile_later
    triton.compile = compile_later

    def noted(call: Callable[[], Any], *args: Any, **kwargs: Any) -> Any:
        recorder.note(NO_TIMES)
        return untimed(call, *args, **kwargs)

    triton.testing.do_bench = noted
    triton.testing.do_bench_cudagraph = noted
    _record_launches(recorder)
    _tune_without_timing(recorder)


def install_live(recorder: Recorder) -> None:
    """Record what really runs."""
    _record_launches(recorder)
    _watch_tuning(recorder)
