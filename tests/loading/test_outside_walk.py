"""No function that can look outside is left out: a walk over `os`, `pathlib`, `importlib`, `io`, `subprocess`,
`sqlite3` and `ctypes`.

What a module has in the Python that runs the tests is either called here (one process, one recording a call) and has to
leave a fact or a reason not to keep, or it is listed as what looks at nothing. What a later Python brings is in neither
list, and fails the walk until somebody has looked at it.
"""

from __future__ import annotations

import ctypes
import importlib.machinery
import importlib.metadata
import importlib.resources
import importlib.util
import inspect
import io
import os
import pathlib
import sqlite3
import subprocess
from types import ModuleType
from typing import Any

import pytest
from test_outside_reads import OF_EVENTS, OF_NO_LOOK
from watched_process import filled, seen_by

from occupancy_cli.loading.watched_functions import WATCHED_IN_OS

# Arguments for functions of `os` that look; those not listed take none.
_FILE, _DESCRIPTOR = "'data.json'", "os.open('data.json', os.O_RDONLY)"
OF_OS = {
    **dict.fromkeys(("stat", "lstat", "statvfs", "getxattr", "listxattr", "mkfifo", "mknod"), _FILE),
    **dict.fromkeys(("fstat", "fstatvfs", "ttyname"), _DESCRIPTOR),
    **dict.fromkeys(("pathconf",), "'data.json', 'PC_NAME_MAX'"),
    **dict.fromkeys(("fpathconf",), f"{_DESCRIPTOR}, 'PC_NAME_MAX'"),
    **dict.fromkeys(("execle", "execlpe"), "'/nowhere', 'x', {}"),
    **dict.fromkeys(("execl", "execlp"), "'/nowhere', 'x'"),
    **dict.fromkeys(("execv", "execvp"), "'/nowhere', ['x']"),
    **dict.fromkeys(("execve", "execvpe"), "'/nowhere', ['x'], {}"),
    **dict.fromkeys(("posix_spawn", "posix_spawnp"), "'/nowhere', ['x'], {}"),
    **dict.fromkeys(("spawnl", "spawnlp"), "os.P_WAIT, '/nowhere', 'x'"),
    **dict.fromkeys(("spawnle", "spawnlpe"), "os.P_WAIT, '/nowhere', 'x', {}"),
    **dict.fromkeys(("spawnv", "spawnvp"), "os.P_WAIT, '/nowhere', ['x']"),
    **dict.fromkeys(("spawnve", "spawnvpe"), "os.P_WAIT, '/nowhere', ['x'], {}"),
    **dict.fromkeys(("getsid", "getpgid", "sched_getscheduler", "sched_getparam", "sched_rr_get_interval"), "0"),
    **dict.fromkeys(("sched_getaffinity", "sched_get_priority_max", "sched_get_priority_min", "nice"), "0"),
    **dict.fromkeys(("urandom", "getrandom"), "1"),
    "readlink": "'link'", "access": f"{_FILE}, os.R_OK", "open": "'data.json', os.O_RDONLY, dir_fd=3",
    "link": "'data.json', 'linked', src_dir_fd=3", "mkdir": "'made', dir_fd=3", "umask": "0o22", "sysconf": "'SC_PAGESIZE'",
    "confstr": "'CS_PATH'", "getpriority": "os.PRIO_PROCESS, 0", "getgrouplist": "'root', 0", "pidfd_open": "1",
    "system": "'true'", "getxattr": "'data.json', 'user.x'",
}  # fmt: skip
# What makes a child: in it nothing more is done.
_FORKS = ("fork", "forkpty")

# Members of the classes and modules below that look, each called once.
CALLS = {
    "pathlib.Path.exists": "P('absent').exists()",
    "pathlib.Path.stat": "P('data.json').stat()",
    "pathlib.Path.lstat": "P('link').lstat()",
    "pathlib.Path.is_file": "P('absent').is_file()",
    "pathlib.Path.is_dir": "P('absent').is_dir()",
    "pathlib.Path.is_symlink": "P('link').is_symlink()",
    "pathlib.Path.is_mount": "P('folder').is_mount()",
    "pathlib.Path.is_socket": "P('data.json').is_socket()",
    "pathlib.Path.is_fifo": "P('data.json').is_fifo()",
    "pathlib.Path.is_block_device": "P('data.json').is_block_device()",
    "pathlib.Path.is_char_device": "P('data.json').is_char_device()",
    "pathlib.Path.samefile": "P('data.json').samefile('link')",
    "pathlib.Path.open": "P('data.json').open()",
    "pathlib.Path.read_text": "P('data.json').read_text()",
    "pathlib.Path.read_bytes": "P('data.json').read_bytes()",
    "pathlib.Path.iterdir": "list(P('folder').iterdir())",
    "pathlib.Path.glob": "list(P('folder').glob('*'))",
    "pathlib.Path.rglob": "list(P('folder').rglob('*'))",
    "pathlib.Path.walk": "list(P('folder').walk())",
    "pathlib.Path.info": "P('folder').info.exists()",
    "pathlib.Path.readlink": "P('link').readlink()",
    "pathlib.Path.resolve": "P('link').resolve()",
    "pathlib.Path.absolute": "P('data.json').absolute()",
    "pathlib.Path.cwd": "P.cwd()",
    "pathlib.Path.home": "P.home()",
    "pathlib.Path.expanduser": "P('~/x').expanduser()",
    "pathlib.Path.owner": "P('data.json').owner()",
    "pathlib.Path.group": "P('data.json').group()",
    # What changes something tells by failing.
    "pathlib.Path.mkdir": "P('folder/made').mkdir()",
    "pathlib.Path.rmdir": "P('folder/sub/none').rmdir()",
    "pathlib.Path.rename": "P('none').rename('none2')",
    "pathlib.Path.replace": "P('none').replace('none2')",
    "pathlib.Path.unlink": "P('none').unlink()",
    "pathlib.Path.touch": "P('touched').touch()",
    "pathlib.Path.chmod": "P('none').chmod(0o600)",
    "pathlib.Path.lchmod": "P('none').lchmod(0o600)",
    "pathlib.Path.symlink_to": "P('none3').symlink_to('x')",
    "pathlib.Path.hardlink_to": "P('none4').hardlink_to('data.json')",
    "pathlib.Path.link_to": "P('data.json').link_to('none5')",
    "pathlib.Path.write_text": "P('absent/x').write_text('')",
    "pathlib.Path.write_bytes": "P('absent/x').write_bytes(b'')",
    "pathlib.Path.copy": "P('data.json').copy('copied')",
    "pathlib.Path.copy_into": "P('data.json').copy_into('folder')",
    "pathlib.Path.move": "P('none').move('none6')",
    "pathlib.Path.move_into": "P('none').move_into('folder')",
    "io.open": "io.open('data.json')",
    "io.open_code": "io.open_code(os.path.abspath('data.json'))",
    "io.FileIO": "io.FileIO('data.json')",
    "subprocess.Popen": "subprocess.Popen(['/nowhere'])",
    "subprocess.run": "subprocess.run(['/nowhere'])",
    "subprocess.call": "subprocess.call(['/nowhere'])",
    "subprocess.check_call": "subprocess.check_call(['/nowhere'])",
    "subprocess.check_output": "subprocess.check_output(['/nowhere'])",
    "subprocess.getoutput": "subprocess.getoutput('true')",
    "subprocess.getstatusoutput": "subprocess.getstatusoutput('true')",
    "sqlite3.connect": "sqlite3.connect('tiles.db')",
    "sqlite3.Connection": "sqlite3.Connection(':memory:')",
    "ctypes.CDLL": "ctypes.CDLL(None)",
    "ctypes.PyDLL": "ctypes.PyDLL(None)",
    "ctypes.LibraryLoader": "ctypes.cdll.none",
    "ctypes.string_at": "ctypes.string_at(id(1), 1)",
    "ctypes.wstring_at": "ctypes.wstring_at(id(1), 1)",
    "ctypes.memoryview_at": "ctypes.memoryview_at(id(1), 1)",
    "ctypes.dllist": "ctypes.util.dllist()",
    "importlib.import_module": "importlib.import_module('tuned_absent')",
    "importlib.find_loader": "importlib.find_loader('tuned_absent')",
    "importlib.reload": "import sys; sys.path.insert(0, 'path'); import tuned; importlib.reload(tuned)",
    "importlib.util.find_spec": "importlib.util.find_spec('tuned_absent2')",
    "importlib.machinery.PathFinder": "importlib.machinery.PathFinder.find_spec('tuned_absent3')",
    "importlib.machinery.FileFinder": "importlib.machinery.FileFinder('path', *_LOADERS).find_spec('x')",
    "importlib.machinery.SourceFileLoader": "importlib.machinery.SourceFileLoader('t', 'path/tuned.py').load_module()",
    "importlib.machinery.SourcelessFileLoader": "importlib.machinery.SourcelessFileLoader('t', 'none.pyc').get_code('t')",
    "importlib.machinery.ExtensionFileLoader": (
        "l = importlib.machinery.ExtensionFileLoader('t', 'path/compiled_thing.abi3.so'); "
        "l.create_module(importlib.machinery.ModuleSpec('t', l, origin=os.path.abspath('path/compiled_thing.abi3.so')))"
    ),
    "importlib.machinery.NamespaceLoader": "import sys; sys.path.insert(0, 'folder'); import sub",
    "importlib.metadata.distribution": "importlib.metadata.distribution('tuned-dist')",
    "importlib.metadata.distributions": "list(importlib.metadata.distributions())",
    "importlib.metadata.entry_points": "importlib.metadata.entry_points()",
    "importlib.metadata.files": "importlib.metadata.files('tuned-dist')",
    "importlib.metadata.metadata": "importlib.metadata.metadata('tuned-dist')",
    "importlib.metadata.packages_distributions": "importlib.metadata.packages_distributions()",
    "importlib.metadata.requires": "importlib.metadata.requires('tuned-dist')",
    "importlib.metadata.version": "importlib.metadata.version('tuned-dist')",
    **{
        f"importlib.resources.{name}": f"importlib.resources.{name}('package', 'data.txt')"
        for name in ("open_binary", "open_text", "read_binary", "read_text", "is_resource")
    },
    "importlib.resources.files": "importlib.resources.files('package').joinpath('data.txt').read_text()",
    "importlib.resources.contents": "list(importlib.resources.contents('package'))",
    "importlib.resources.as_file": "importlib.resources.as_file(importlib.resources.files('package')).__enter__().exists()",
}
BEFORE = """
import ctypes, ctypes.util, importlib, importlib.machinery, importlib.metadata, importlib.resources, importlib.util, io, os
import sqlite3, subprocess, sys
from pathlib import Path as P
_LOADERS = [(importlib.machinery.SourceFileLoader, ['.py'])]
"""
# What computes on what it is given, works on what was opened before, or is a type, a base or an error.
NO_LOOK = {
    "pathlib.Path": {
        *("anchor", "drive", "name", "parent", "parents", "parts", "parser", "root", "stem", "suffix", "suffixes"),
        *("as_posix", "as_uri", "from_uri", "full_match", "is_absolute", "is_relative_to", "is_reserved", "joinpath"),
        *("is_junction",),  # Windows alone has them
        *("match", "relative_to", "with_name", "with_segments", "with_stem", "with_suffix"),
    },
    "io": {
        *("BlockingIOError", "BufferedIOBase", "BufferedRWPair", "BufferedRandom", "BufferedReader", "BufferedWriter"),
        *("BytesIO", "IOBase", "IncrementalNewlineDecoder", "RawIOBase", "StringIO", "TextIOBase", "TextIOWrapper"),
        *("UnsupportedOperation", "text_encoding", "Reader", "Writer"),
    },
    "subprocess": {"CalledProcessError", "CompletedProcess", "SubprocessError", "TimeoutExpired", "list2cmdline"},
    "sqlite3": {
        *(
            "Binary",
            "Blob",
            "Cursor",
            "DataError",
            "DatabaseError",
            "Date",
            "Error",
            "IntegrityError",
            "InterfaceError",
        ),
        *(
            "InternalError",
            "NotSupportedError",
            "OperationalError",
            "OptimizedUnicode",
            "PrepareProtocol",
            "Row",
            "Time",
        ),
        *("ProgrammingError", "Timestamp", "Warning", "adapt", "complete_statement", "enable_callback_tracebacks"),
        *("register_adapter", "register_converter", "enable_shared_cache", "DateFromTicks", "TimeFromTicks"),
        "TimestampFromTicks",
    },
    "ctypes": {
        *(
            "ARRAY",
            "ArgumentError",
            "Array",
            "BigEndianStructure",
            "BigEndianUnion",
            "CFUNCTYPE",
            "LittleEndianStructure",
        ),
        *(
            "LittleEndianUnion",
            "POINTER",
            "PYFUNCTYPE",
            "SetPointerType",
            "Structure",
            "Union",
            "addressof",
            "alignment",
        ),
        *(
            "byref",
            "c_buffer",
            "cast",
            "create_string_buffer",
            "create_unicode_buffer",
            "get_errno",
            "memmove",
            "memset",
        ),
        *("pointer", "py_object", "resize", "set_errno", "sizeof", "CField"),
    },
    "importlib": {"invalidate_caches"},
    "importlib.util": {
        *(
            "LazyLoader",
            "Loader",
            "cache_from_source",
            "contextmanager",
            "decode_source",
            "module_for_loader",
            "set_loader",
        ),
        *("module_from_spec", "resolve_name", "set_package", "source_from_cache", "source_hash", "spec_from_loader"),
        *("spec_from_file_location",),  # it makes a spec of the name: the loader looks
    },
    "importlib.machinery": {
        *("BuiltinImporter", "FrozenImporter", "ModuleSpec", "WindowsRegistryFinder", "all_suffixes"),
        "AppleFrameworkLoader",
    },
    "importlib.metadata": {
        *("Distribution", "DistributionFinder", "PackageMetadata", "PackageNotFoundError", "PackagePath", "SimplePath"),
    },
    "importlib.resources": {"Package", "Resource", "ResourceReader", "Anchor", "path"},  # a path looks when it is asked
}
MODULES: tuple[ModuleType | type, ...] = (
    *(pathlib.Path, io, subprocess, sqlite3, ctypes, importlib, importlib.util, importlib.machinery),
    *(importlib.resources, importlib.metadata),
)


def name_of(owner: ModuleType | type) -> str:
    return owner.__name__ if isinstance(owner, ModuleType) else "pathlib.Path"


def members(owner: ModuleType | type) -> set[str]:
    """What is public of it, but for number types of ctypes, modules, and what typing brings in."""
    if owner in (importlib.resources, importlib.metadata):
        return set(owner.__all__)  # the rest is what they are made of
    found = {n for n in dir(owner) if not n.startswith("_")}
    if isinstance(owner, ModuleType):
        found = {n for n in found if callable(getattr(owner, n))}
        found = {n for n in found if getattr(getattr(owner, n), "__module__", "") not in ("typing", "collections.abc")}
    return {n for n in found if not (owner is ctypes and n.startswith("c_"))}


@pytest.mark.parametrize("owner", MODULES, ids=name_of)
def test_each_member_looks_at_nothing_or_is_called_below(owner: ModuleType | type) -> None:
    name = name_of(owner)
    called = {each.removeprefix(f"{name}.") for each in CALLS if each.startswith(f"{name}.")}
    assert members(owner) - NO_LOOK[name] - called == set()
    assert called & NO_LOOK[name] == set()


def tried(call: str) -> str:
    return f"try:\n    {call}\nexcept Exception as bad:\n    said = bad"


def is_there(name: str) -> bool:
    """Whether this Python has it."""
    *modules, last = name.split(".")
    owner: Any = pathlib.Path if modules[0] == "pathlib" else importlib.import_module(".".join(modules))
    return hasattr(owner, last)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What was seen of each call, one after the other in one process."""
    folder = filled(tmp_path_factory.mktemp("walk"))
    codes = {name: f"{BEFORE}{tried(call)}" for name, call in CALLS.items() if is_there(name)}
    for name in sorted({*OF_OS, *OF_EVENTS, *WATCHED_IN_OS}):
        if hasattr(os, name):
            call = f"os.{name}({OF_OS.get(name, '')})"
            child = f"pid = {call}\n    if pid == 0 or (isinstance(pid, tuple) and pid[0] == 0): os._exit(0)"
            codes[f"os.{name}"] = "import os\n" + tried(child if name in _FORKS else call)
    place = os.pathsep.join(str(folder / each) for each in ("path", "early"))
    return dict(zip(codes, seen_by(*codes.values(), folder=folder, PYTHONPATH=place), strict=True))


def test_each_call_leaves_a_fact_or_a_reason_not_to_keep(seen: dict[str, dict[str, Any]]) -> None:
    assert len(seen) > 150
    unseen = {name: each for name, each in seen.items() if not each["facts"] and not each["refusals"]}
    assert unseen == {}
    # That the working directory was noted for a relative name is not yet the look itself.
    own = {"pathlib.Path.cwd", "pathlib.Path.absolute", "os.getcwd", "os.getcwdb"}
    weak = [
        name
        for name, each in seen.items()
        if name not in own and not each["refusals"] and {kind for kind, _, _ in each["facts"]} <= {"cwd"}
    ]
    assert weak == []


def test_every_function_of_os_that_looks_was_called(seen: dict[str, dict[str, Any]]) -> None:
    functions: set[str] = {n for n, _ in inspect.getmembers(os, callable) if not n.startswith("_")}
    functions = {n for n in functions if not isinstance(getattr(os, n), type)}
    called = {name.removeprefix("os.") for name in seen if name.startswith("os.")}
    assert functions - OF_NO_LOOK - called == set()
