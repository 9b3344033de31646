"""Opens the doors through which code asks about the GPU: each package's questions, as soon as it is imported.

Answered are the packages that are installed; `known` has what a stand-in for an absent one says, from the same
functions. Triton's driver is put in place by `compile.target_driver`. The environment, too, speaks of the target:
one visible device, and its architecture to build for.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from occupancy_cli.loading import nvidia_answers, torch_answers, triton_answers
from occupancy_cli.loading.target_gpu import TargetGpu, is_active, set_active
from occupancy_cli.loading.torch_answers import NOT_KNOWN
from occupancy_cli.loading.version_numbers import Version

DOORS: Mapping[str, Callable[[Any], None]] = {
    "torch": torch_answers.answer_in,
    "triton.testing": triton_answers.answer_in,
    **dict.fromkeys(
        (*nvidia_answers.NVML_MODULES, *nvidia_answers.DRIVER_MODULES, *nvidia_answers.RUNTIME_MODULES),
        nvidia_answers.answer_in,
    ),
}
"""Module -> what puts the target's answers into it."""


def open_doors(target: TargetGpu, more: Mapping[str, Callable[[Any], None]] | None = None) -> None:
    """Let every door of this process answer for `target`; `more` is done to modules after their import, likewise."""
    set_active(target)
    os.environ |= environment(target)
    if any(isinstance(finder, _Opener) for finder in sys.meta_path):
        return
    opener = _Opener({name: [answer, *_also(more, name)] for name, answer in DOORS.items()})
    for name in opener.answers:
        module = sys.modules.get(name)
        if module is not None:
            opener.open(module)
    sys.meta_path.insert(0, opener)


def known(path: str) -> Any:
    """What an absent package would say for `path` (`torch.cuda.is_available`); `NOT_KNOWN` if a stand-in has to do."""
    if path in ("packaging.version.parse", "packaging.version.Version", "packaging.version.LegacyVersion"):
        return Version
    if path.startswith("torch."):
        return torch_answers.known(path)
    return nvidia_answers.known(path, NOT_KNOWN) if is_active() else NOT_KNOWN


def environment(target: TargetGpu) -> dict[str, str]:
    """The variables that speak of devices, as they are where the target is the only one."""
    major, minor = target.capability
    return {"CUDA_VISIBLE_DEVICES": "0", "TORCH_CUDA_ARCH_LIST": f"{major}.{minor}"}


def _also(more: Mapping[str, Callable[[Any], None]] | None, name: str) -> list[Callable[[Any], None]]:
    return [more[name]] if more is not None and name in more else []


class _Opener(importlib.abc.MetaPathFinder):
    """Finds the modules of `DOORS` as they would be found, and has them answered before their importer goes on."""

    def __init__(self, answers: Mapping[str, Sequence[Callable[[Any], None]]]) -> None:
        self.answers = answers

    def open(self, module: ModuleType) -> None:
        for answer in self.answers[module.__name__]:
            answer(module)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self.answers:
            return None
        for finder in sys.meta_path:
            if type(finder).__module__.startswith("occupancy_cli."):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _AnsweredLoader(spec.loader, self.open)
                return spec
        return None


class _AnsweredLoader(importlib.abc.Loader):
    """Executes a module, then opens it."""

    def __init__(self, inner: importlib.abc.Loader, then: Callable[[ModuleType], None]) -> None:
        self._inner = inner
        self._then = then

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._inner.exec_module(module)
        self._then(module)

    def __getattr__(self, name: str) -> Any:
        # get_source and its kin, for inspect and linecache.
        return getattr(self._inner, name)
