"""Reads of the import system: what was looked for in which folder or archive, found or not.

Its finders keep what they have seen, so that a look-up that found nothing touches no file and raises no event.
"""

from __future__ import annotations

import importlib._bootstrap_external as import_system
import os
import sys
import zipimport
from typing import Any

from occupancy_cli.loading.outside_callers import sort_of
from occupancy_cli.loading.outside_recordings import active, counts, looking, note, note_path, path_of
from occupancy_cli.loading.watched_functions import Watched, refusing

# Functions of modules that are not there yet, by module, with why their call makes a result unkeepable.
_WATCHED_LATER = {
    "_ssl": {"RAND_bytes": "takes a random number"},
    "torch": {"from_file": "reads a file that is not seen", "seed": "takes a random number"},
    "torch.jit": {"load": "reads a file that is not seen"},
}


def watch_imports() -> None:
    """The finders of the import system: what was looked for in which folder or archive, found or not."""
    finder: Any = import_system.FileFinder
    find = finder.find_spec

    def find_spec(self: Any, name: str, target: Any = None) -> Any:
        if active and not getattr(looking, "on", False):
            frame = sys._getframe(1)
            folder = os.path.normpath(self.path or ".")
            tail = name.rpartition(".")[2]
            recordings = counts(frame)
            path = path_of(folder, recordings) if recordings or not os.path.isabs(folder) else folder  # noqa: PTH117
            # Where a versioned package looks before it comes to where packages lie, another module may appear.
            seen = bool(recordings) or (path is not None and not path.endswith(("/site-packages", "/dist-packages")))
            if path is not None and seen and sort_of(f"{path}/") not in ("stdlib", "versioned", "tool"):
                note("module", f"{path}\0{tail}", recordings or list(active))
        return find(self, name, target)

    finder.find_spec = find_spec
    archive: Any = zipimport.zipimporter
    find_in_archive = archive.find_spec

    def find_spec_in_archive(self: Any, *args: Any, **kwargs: Any) -> Any:
        frame = sys._getframe(1)
        if recordings := counts(frame):
            note_path("content", self.archive, recordings, frame)
        return find_in_archive(self, *args, **kwargs)

    archive.find_spec = find_spec_in_archive
    read = archive.get_data

    def get_data(self: Any, *args: Any) -> Any:
        frame = sys._getframe(1)
        if recordings := counts(frame):
            note_path("content", self.archive, recordings, frame)
        return read(self, *args)

    archive.get_data = get_data
    entries: Any = import_system.PathFinder
    importer = vars(entries)["_path_importer_cache"].__func__

    def path_importer_cache(cls: Any, path: Any) -> Any:
        found = importer(cls, path)
        frame = sys._getframe(1)
        if found is None and (recordings := counts(frame)):
            note_path("kind", path, recordings, frame)
        return found

    entries._path_importer_cache = classmethod(path_importer_cache)
    # A compiled file stands for its source by the source's time of change: it may be of another text.
    for loader in (import_system.ExtensionFileLoader, import_system.SourceFileLoader):
        _watch_after_import(loader)
    system: Any = import_system
    cached = system.cache_from_source

    def cache_from_source(path: Any, *args: Any, **kwargs: Any) -> Any:
        text = os.fsdecode(path)
        if sort_of(text) == "kernel" and "/site-packages/" not in text and "/dist-packages/" not in text:
            raise NotImplementedError("a kernel's own files are compiled from their text")
        return cached(path, *args, **kwargs)

    system.cache_from_source = cache_from_source


def _watch_after_import(loader: Any) -> None:
    """Watch functions of modules as `loader` brings them in."""
    execute = loader.exec_module

    def exec_module(self: Any, module: Any) -> None:
        execute(self, module)
        found = _WATCHED_LATER.get(module.__name__, {})
        if module.__name__ == "numpy.random.mtrand":
            found = {
                name: "takes a random number"
                for name in module.__all__
                if name != "seed" and callable(value := getattr(module, name)) and not isinstance(value, type)
            }
        for name, why in found.items():
            if hasattr(module, name):
                setattr(module, name, Watched(getattr(module, name), refusing(why)))

    loader.exec_module = exec_module
