"""The model's terms fitted to measured times: three factors for each compiled kernel.

    calibration = fit(gpu, [MeasuredPoint((split, combine), 33.1), ...])
    calibration.of(split)       # Factors(start=1.02, iteration=0.94, sharing=1.1)

Few points have to do, so each factor is held near 1 and near those of the kernel's other variants; what the points
leave open is named.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from occupancy_cli.model.launch_batch import KernelLaunches, TimedLaunches
from occupancy_cli.model.launch_time import Factors, GpuRates, KernelLaunch

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Calibration:
    """Factors by `KernelLaunch.specialization`, fitted to measured times.

    `fit_error_percent` is the root mean square of what remains; `undetermined` names factors that the points leave open
    (specialization: factor). Kernels without an entry keep the model's own terms.
    """

    factors: tuple[tuple[str, Factors], ...]
    points: int
    fit_error_percent: float
    undetermined: tuple[str, ...] = ()

    def of(self, launch: KernelLaunch) -> Factors:
        """The factors of a launch's kernel."""
        return dict(self.factors).get(launch.specialization, Factors())

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a file; `from_dict` reads it back."""
        return {
            "factors": {name: [f.start, f.iteration, f.sharing] for name, f in self.factors},
            "points": self.points,
            "fit_error_percent": self.fit_error_percent,
            "undetermined": list(self.undetermined),
        }

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Calibration:
        """The calibration that `to_dict` wrote."""
        return Calibration(
            tuple((name, Factors(*(float(v) for v in values))) for name, values in data["factors"].items()),
            int(data["points"]),
            float(data["fit_error_percent"]),
            tuple(data["undetermined"]),
        )


@dataclass(frozen=True)
class MeasuredPoint:
    """Launches that ran one after the other, and the time they took together, in microseconds."""

    launches: tuple[KernelLaunch, ...]
    time_us: float


_FACTOR_NAMES = ("start", "iteration", "sharing")
# Of log factors: how far the model may be off before points say otherwise, for all variants of a kernel together, and
# for one of them from the others.
_PRIOR = np.array([0.5, 0.3, 0.6])
_PRIOR_OF_ONE = np.array([0.1, 0.1, 0.15])
_POINT_ERROR = 0.08  # of log times: what the model leaves open within one kernel, and a fit is not to chase
_STEPS = 12


def _prior(kernels: Sequence[str]) -> tuple[Floats, Floats]:
    """(spread of each log factor, the matrix that makes independent deviations of spread 1 of them), with three factors
    for each variant of the kernels named."""
    same = np.array([[a == b for b in kernels] for a in kernels], dtype=float)
    alike = np.kron(same, np.diag(_PRIOR**2)) + np.kron(np.eye(len(kernels)), np.diag(_PRIOR_OF_ONE**2))
    return np.sqrt(np.diag(alike)), np.asarray(np.linalg.inv(np.linalg.cholesky(alike)))


def fit(gpu: GpuRates, points: Sequence[MeasuredPoint], cold: bool = False) -> Calibration:
    """Factors for every compiled kernel among the points, by damped least squares on log times.

    Each factor is held near 1 as firmly as the model is trusted, and near those of the same kernel's other variants, so
    that few points suffice and none is chased; what the points leave as open as before is reported as undetermined.
    Points whose launches have no time are left out.
    """
    names = sorted({launch.specialization for point in points for launch in point.launches})
    index = {name: i for i, name in enumerate(names)}
    launches = [launch for point in points for launch in point.launches]
    follows = [number > 0 for point in points for number in range(len(point.launches))]
    first = np.cumsum([0, *(len(point.launches) for point in points)]).tolist()
    kernels = KernelLaunches(gpu, launches, follows, cold)

    def timed(logs: Floats) -> TimedLaunches:
        def factors_of(launch: KernelLaunch) -> Factors:
            at = 3 * index[launch.specialization]
            return Factors(*np.exp(logs[at : at + 3]).tolist())

        return kernels.timed(factors_of)

    def log_time(at: TimedLaunches, which: int) -> float | None:
        total = 0.0
        for i in range(first[which], first[which + 1]):
            one = at.time_us(i)
            if one is None:
                return None
            total += one
        return math.log(total)

    logs = np.zeros(3 * len(names))
    start = timed(logs)
    usable = [i for i, p in enumerate(points) if p.time_us > 0 and log_time(start, i) is not None]
    if not usable:
        return Calibration((), 0, 0.0, tuple(f"{name}: {factor}" for name in names for factor in _FACTOR_NAMES))
    target = np.log([points[i].time_us for i in usable])
    prior, unlike = _prior([name.split(":")[0].split(" ")[0] for name in names])

    touched = [[index[launch.specialization] for launch in points[i].launches] for i in usable]

    def times_at(at: Floats, which: Sequence[int]) -> Floats:
        now = timed(at)
        return np.array([log_time(now, usable[i]) for i in which], dtype=float)

    def residuals(at: Floats) -> Floats:
        return np.concatenate([(times_at(at, range(len(usable))) - target) / _POINT_ERROR, unlike @ at])

    def jacobian_at(at: Floats) -> Floats:
        """Derivatives by central differences; a factor moves only the points that launch its kernel."""
        found = np.zeros((len(usable) + len(at), len(at)))
        for k in range(len(at)):
            which = [i for i, kernels in enumerate(touched) if k // 3 in kernels]
            shift = np.zeros_like(at)
            shift[k] = 0.02
            found[which, k] = (times_at(at + shift, which) - times_at(at - shift, which)) / 0.04 / _POINT_ERROR
        found[len(usable) :] = unlike
        return found

    current = residuals(logs)
    jacobian = np.zeros((len(current), len(logs)))
    damping = 1e-3
    for _ in range(_STEPS):
        jacobian = jacobian_at(logs)
        normal = jacobian.T @ jacobian
        step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), -jacobian.T @ current)
        step = np.clip(step, -0.5, 0.5)
        proposed = residuals(logs + step)
        if proposed @ proposed < current @ current:
            gain = current @ current - proposed @ proposed
            logs, current = logs + step, proposed
            damping = max(damping / 4, 1e-6)
            if gain < 1e-3:
                break
        else:
            damping *= 8
            if damping > 1e4:
                break
    covariance = np.linalg.inv(jacobian.T @ jacobian)
    open_ = np.sqrt(np.diag(covariance)) > 0.7 * prior
    # A kernel without a loop has no iteration time, one that fills its SM alone shares with nobody.
    for i in usable:
        for launch in points[i].launches:
            at = 3 * index[launch.specialization]
            if launch.shape.max_iterations == 0 or not launch.work.main:
                open_[at + 1] = False
            if launch.occupancy.ctas_per_sm == 1:
                open_[at + 2] = False
    errors = current[: len(usable)] * _POINT_ERROR
    return Calibration(
        tuple((name, Factors(*np.exp(logs[3 * i : 3 * i + 3]).tolist())) for name, i in index.items()),
        len(usable),
        100.0 * float(np.sqrt(np.mean(errors**2))),
        tuple(
            f"{name}: {factor}"
            for name, i in index.items()
            for k, factor in enumerate(_FACTOR_NAMES)
            if open_[3 * i + k]
        ),
    )
