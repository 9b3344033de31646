"""What counts as seen: each way to look outside is recorded as a fact, or refuses keeping. Nothing goes by unseen.

Every case runs in a process of its own with the watches of a worker in place (`install` changes the whole process):
a "kernel" file does one thing, and what was recorded comes back. For facts there is a change of the outside, after
which the facts no longer hold.
"""

from __future__ import annotations

import os
import py_compile
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from watched_process import ROOT, filled, seen_by

from occupancy_cli.loading.outside_facts import MACHINE_FIGURES, Fact, World, interpreter, observe
from occupancy_cli.loading.watched_functions import CLOCKS, OF_THE_ZONE, WATCHED_ELSEWHERE, WATCHED_IN_OS


def facts_of(found: dict[str, Any]) -> list[Fact]:
    return [Fact(*fact) for fact in found["facts"]]


# Each looks at something outside by its own way; then the outside changes (by the second text), and a fact must break.
LOOKS = {
    "open": ("open('data.json').read()", "open('data.json', 'w').write('new')"),
    "open_absent": ("try: open('absent')\nexcept OSError: pass", "open('absent', 'w')"),
    "os_open": ("import os; os.read(os.open('data.json', os.O_RDONLY), 10)", "open('data.json', 'w').write('new')"),
    "open_bytes_path": ("open(b'data.json').read()", "open('data.json', 'w').write('new')"),
    "io_fileio": ("import io; io.FileIO('data.json').read()", "open('data.json', 'w').write('new')"),
    "io_open_code": ("import io, os; io.open_code(os.path.abspath('data.json'))", "open('data.json', 'w').write('new')"),
    "read_and_write": ("open('data.json', 'r+').read()", "open('data.json', 'w').write('new')"),
    "path_read_text": ("import pathlib; pathlib.Path('data.json').read_text()", "open('data.json', 'w').write('new')"),
    "path_exists": ("import pathlib; pathlib.Path('absent').exists()", "open('absent', 'w')"),
    "path_is_file": ("import pathlib; pathlib.Path('absent').is_file()", "open('absent', 'w')"),
    "path_is_dir": ("import pathlib; pathlib.Path('absent').is_dir()", "os.mkdir('absent')"),
    "path_stat": ("import pathlib; pathlib.Path('data.json').stat().st_size", "open('data.json', 'w').write('longer')"),
    "path_glob": ("import pathlib; list(pathlib.Path('folder').glob('*.json'))", "open('folder/b.json', 'w')"),
    "path_rglob": ("import pathlib; list(pathlib.Path('folder').rglob('*.json'))", "open('folder/sub/b.json', 'w')"),
    "path_iterdir": ("import pathlib; list(pathlib.Path('folder').iterdir())", "open('folder/b', 'w')"),
    "path_resolve": ("import pathlib; pathlib.Path('link').resolve()", "os.remove('link'); os.symlink('folder', 'link')"),
    "os_path_exists": ("import os; os.path.exists('absent')", "open('absent', 'w')"),
    "os_path_lexists": ("import os; os.path.lexists('absent')", "os.symlink('nowhere', 'absent')"),
    "os_path_isfile": ("import os; os.path.isfile('data.json')", "os.remove('data.json')"),
    "os_path_islink": ("import os; os.path.islink('data.json')", "os.remove('data.json'); os.symlink('x', 'data.json')"),
    "os_path_getsize": ("import os; os.path.getsize('data.json')", "open('data.json', 'w').write('longer')"),
    "os_path_getmtime": ("import os; os.path.getmtime('data.json')", "os.utime('data.json', (1, 1))"),
    "os_path_samefile": ("import os; os.path.samefile('data.json', 'link')", "os.remove('link'); open('link', 'w')"),
    "os_path_realpath": ("import os; os.path.realpath('link')", "os.remove('link'); os.symlink('folder', 'link')"),
    "os_stat": ("import os; os.stat('data.json')", "os.utime('data.json', (1, 1))"),
    "posix_stat": ("import posix; posix.stat('data.json')", "os.utime('data.json', (1, 1))"),
    "from_posix": ("from posix import stat; stat('data.json')", "os.utime('data.json', (1, 1))"),
    "os_fstat": ("import os; os.fstat(os.open('data.json', os.O_RDONLY))", "os.utime('data.json', (1, 1))"),
    "os_lstat": ("import os; os.lstat('link')", "os.remove('link'); os.symlink('folder', 'link')"),
    "os_readlink": ("import os; os.readlink('link')", "os.remove('link'); os.symlink('folder', 'link')"),
    "os_access": ("import os; os.access('absent', os.R_OK)", "open('absent', 'w')"),
    "os_listdir": ("import os; os.listdir('folder')", "open('folder/b', 'w')"),
    "os_listdir_here": ("import os; os.listdir()", "open('b', 'w')"),
    "os_scandir": ("import os; list(os.scandir('folder'))", "open('folder/b', 'w')"),
    "entry_is_dir": ("import os; [e.is_dir() for e in os.scandir('folder')]", "os.remove('folder/a.json'); os.mkdir('folder/a.json')"),
    "entry_stat": ("import os; [e.stat() for e in os.scandir('folder')]", "open('folder/a.json', 'w').write('longer')"),
    "os_walk": ("import os; list(os.walk('folder'))", "open('folder/sub/deep', 'w')"),
    "glob": ("import glob; glob.glob('folder/**/*.json', recursive=True)", "open('folder/sub/b.json', 'w')"),
    "shutil_which": ("import shutil; shutil.which('tool', path='folder')", "open('folder/tool', 'w'); os.chmod('folder/tool', 0o755)"),
    "makedirs": ("import os; os.makedirs('absent', exist_ok=True); os.rmdir('absent')", "os.mkdir('absent')"),
    "mkdir_in": ("import os\ntry: os.mkdir('absent/x')\nexcept OSError: pass", "os.mkdir('absent')"),
    "write_in": ("try: open('absent/x', 'w')\nexcept OSError: pass", "os.mkdir('absent')"),
    "mkfifo": ("import os; os.mkfifo('absent'); os.remove('absent')", "open('absent', 'w')"),
    "chdir": ("import os\ntry: os.chdir('absent')\nexcept OSError: pass", "os.mkdir('absent')"),
    "linecache": ("import linecache; linecache.getlines('data.json')", "open('data.json', 'w').write('new')"),
    "import_absent": ("try: import tuned_absent\nexcept ImportError: pass", "open('path/tuned_absent.py', 'w')"),
    "import_package": ("try: import tuned_absent\nexcept ImportError: pass", "os.mkdir('path/tuned_absent'); open('path/tuned_absent/__init__.py', 'w')"),
    "import_found": ("import tuned", "open('path/tuned.py', 'w').write('X = 2')"),
    "import_shadowed": ("import tuned", "open('early/tuned.py', 'w').write('X = 2')"),
    "import_into_no_folder": ("import tuned", "os.mkdir('no_folder_yet'); open('no_folder_yet/tuned.py', 'w')"),
    "import_module": ("import importlib; importlib.import_module('tuned')", "open('early/tuned.py', 'w')"),
    "find_spec": ("import importlib.util; importlib.util.find_spec('tuned_absent')", "open('path/tuned_absent.py', 'w')"),
    "path_finder": ("import importlib.machinery as m; m.PathFinder.find_spec('tuned_absent')", "open('path/tuned_absent.py', 'w')"),
    "spec_from_file": (
        "import importlib.util as u; s = u.spec_from_file_location('t', 'path/tuned.py'); "
        "s.loader.exec_module(u.module_from_spec(s))",
        "open('path/tuned.py', 'w').write('X = 2')",
    ),
    "source_loader": ("import importlib.machinery as m; m.SourceFileLoader('t', 'path/tuned.py').load_module()", "open('path/tuned.py', 'w').write('X = 2')"),
    "path_stats": ("import importlib.machinery as m; m.SourceFileLoader('t', 'path/tuned.py').path_stats('path/tuned.py')", "os.utime('path/tuned.py', (1, 1))"),
    "runpy_path": ("import runpy; runpy.run_path('path/tuned.py')", "open('path/tuned.py', 'w').write('X = 2')"),
    "runpy_module": ("import runpy; runpy.run_module('tuned')", "open('path/tuned.py', 'w').write('X = 2')"),
    "pkgutil": ("import pkgutil; list(pkgutil.iter_modules(['folder']))", "open('folder/new.py', 'w')"),
    "metadata": ("import importlib.metadata as m\ntry: m.version('tuned-dist')\nexcept m.PackageNotFoundError: pass", "os.mkdir('path/tuned_dist-1.dist-info')"),
    "resources": ("import importlib.resources as r; r.files('package').joinpath('data.txt').read_text()", "open('path/package/data.txt', 'w').write('new')"),
    "zip_import": ("import sys; sys.path.insert(0, 'lib.zip'); import zipped", "open('lib.zip', 'wb').write(b'new')"),
    "zipfile": ("import zipfile; zipfile.ZipFile('lib.zip').namelist()", "open('lib.zip', 'wb').write(b'new')"),
    "exec_of_a_file": ("exec(open('path/tuned.py').read())", "open('path/tuned.py', 'w').write('X = 2')"),
    "mmap": ("import mmap; f = open('data.json', 'rb'); mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)", "open('data.json', 'w').write('new')"),
    "numpy_load": ("import numpy; numpy.loadtxt('numbers.txt')", "open('numbers.txt', 'w').write('2')"),
    "numpy_fromfile": ("import numpy; numpy.fromfile('numbers.txt', dtype='u1')", "open('numbers.txt', 'w').write('2')"),
    "copyfile": ("import shutil; shutil.copyfile('data.json', 'copy.json')", "open('data.json', 'w').write('new')"),
    "configparser": ("import configparser; configparser.ConfigParser().read('absent.ini')", "open('absent.ini', 'w')"),
    "in_a_thread": ("import threading; t = threading.Thread(target=lambda: open('data.json').read()); t.start(); t.join()", "open('data.json', 'w').write('new')"),
    "getcwd": ("import os; os.getcwd()", "os.chdir('folder')"),
    "path_cwd": ("import pathlib; pathlib.Path.cwd()", "os.chdir('folder')"),
    "abspath": ("import os; os.path.abspath('x')", "os.chdir('folder')"),
    "relative": ("import os; os.path.exists('folder')", "os.chdir('folder')"),
    "getenv": ("import os; os.getenv('MY_MODE')", "os.environ['MY_MODE'] = 'b'"),
    "getenvb": ("import os; os.getenvb(b'MY_MODE')", "os.environ['MY_MODE'] = 'b'"),
    "environ_in": ("import os; 'MY_NEW' in os.environ", "os.environ['MY_NEW'] = 'b'"),
    "environ_del": ("import os\ntry: del os.environ['MY_NEW']\nexcept KeyError: pass", "os.environ['MY_NEW'] = 'b'"),
    "environ_pop": ("import os; os.environ.pop('MY_NEW', None)", "os.environ['MY_NEW'] = 'b'"),
    "environ_setdefault": ("import os; os.environ.setdefault('MY_NEW', 'a')", "os.environ['MY_NEW'] = 'b'"),
    "environ_items": ("import os; {k: v for k, v in os.environ.items() if k.startswith('MY_')}", "os.environ['MY_NEW'] = 'b'"),
    "environ_item_value": ("import os; dict(os.environ)", "os.environ['MY_MODE'] = 'b'"),
    "environ_len": ("import os; len(os.environ)", "os.environ['MY_NEW'] = 'b'"),
    "environ_copy": ("import os; os.environ.copy()", "os.environ['MY_MODE'] = 'b'"),
    "environ_or": ("import os; os.environ | {}", "os.environ['MY_MODE'] = 'b'"),
    "environ_repr": ("import os; repr(os.environ)", "os.environ['MY_MODE'] = 'b'"),
    "environ_data": ("import os; os.environ._data", "os.environ['MY_MODE'] = 'b'"),
    "environb": ("import os; list(os.environb)", "os.environ['MY_NEW'] = 'b'"),
    "posix_environ": ("import posix; posix.environ.get(b'MY_MODE')", "os.environ['MY_MODE'] = 'b'"),
    "expandvars": ("import os; os.path.expandvars('$MY_MODE')", "os.environ['MY_MODE'] = 'b'"),
    "expanduser": ("import os; os.path.expanduser('~/x')", "os.environ['HOME'] = '/nowhere'"),
    "path_home": ("import pathlib; pathlib.Path.home()", "os.environ['HOME'] = '/nowhere'"),
    "path_variable": ("import os; os.get_exec_path()", "os.environ['PATH'] = '/nowhere'"),
}  # fmt: skip

# What cannot be recorded: a reason not to keep, which names the line and what it does.
REFUSED = {
    "popen": ("import subprocess; subprocess.run(['true'])", "starts a process"),
    "check_output": ("import subprocess; subprocess.check_output(['true'])", "starts a process"),
    "os_popen": ("import os; os.popen('true').read()", "starts a process"),
    "os_system": ("import os; os.system('true')", "starts a process"),
    "posix_spawn": ("import os; os.posix_spawn('/bin/true', ['true'], {})", "starts a process"),
    "os_spawn": ("import os; os.spawnv(os.P_WAIT, '/bin/true', ['true'])", "forks"),
    "fork": ("import os\nif os.fork() == 0: os._exit(0)", "forks"),
    "fork_exec": ("import multiprocessing as m; p = m.get_context('spawn').Process(target=len); p.start(); p.join()", "starts a process"),
    "sqlite": ("import sqlite3; sqlite3.connect('tiles.db').execute('SELECT 1')", "opens a database"),
    "sqlite_attach": ("import sqlite3; sqlite3.connect(':memory:').execute(\"ATTACH 'tiles.db' AS t\")", "opens a database"),
    "try_lock": ("import fcntl; fcntl.flock(open('data.json'), fcntl.LOCK_EX | fcntl.LOCK_NB)", "asks for a lock"),
    "test_lock": ("import os; os.lockf(os.open('data.json', os.O_RDWR), os.F_TEST, 0)", "asks for a lock"),
    "kill": ("import os; os.kill(os.getpid(), 0)", "asks of a process"),
    "umask": ("import os; os.umask(os.umask(0))", "asks the system"),
    "native_id": ("import threading; threading.get_native_id()", "number of a process"),
    "rand_bytes": ("import ssl; ssl.RAND_bytes(1)", "takes a random number"),
    "torch_from_file": ("import sys; sys.path.insert(0, 'path'); import torch; torch.from_file('data.json')", "not seen"),
    "cdll": ("import ctypes; ctypes.CDLL(None)", "loads a library"),
    "pythonapi": ("import ctypes; ctypes.pythonapi.Py_GetVersion", "calls a library"),
    "string_at": ("import ctypes; ctypes.string_at(id(1), 1)", "ctypes.string_at"),
    "socket": ("import socket\ntry: socket.create_connection(('127.0.0.1', 9), 0.1)\nexcept OSError: pass", "socket"),
    "gethostname": ("import socket; socket.gethostname()", "socket.gethostname"),
    "getaddrinfo": ("import socket; socket.getaddrinfo('localhost', 80)", "socket.getaddrinfo"),
    "urlopen": ("import urllib.request\ntry: urllib.request.urlopen('http://127.0.0.1:9', timeout=0.1)\nexcept OSError: pass", "urllib"),
    "time": ("import time; time.time()", "reads the clock"),
    "from_time": ("from time import time; time()", "reads the clock"),
    "perf_counter": ("import time; time.perf_counter_ns()", "reads the clock"),
    "localtime": ("import time; time.localtime()", "reads the clock"),
    "gmtime": ("import time; time.gmtime()", "reads the clock"),
    "datetime_now": ("import datetime; datetime.datetime.now()", "reads the clock"),
    "from_datetime": ("from datetime import datetime; datetime.utcnow()", "reads the clock"),
    "date_today": ("from datetime import date; date.today()", "reads the clock"),
    "random": ("import random; random.random()", "takes a random number"),
    "randint": ("from random import randint; randint(1, 2)", "takes a random number"),
    "new_random": ("import random; random.Random()", "takes a random number"),
    "system_random": ("import random; random.SystemRandom().random()", "takes a random number"),
    "numpy_random": ("import numpy; numpy.random.rand()", "takes a random number"),
    "numpy_generator": ("import numpy; numpy.random.default_rng()", "takes a random number"),
    "urandom": ("import os; os.urandom(1)", "takes a random number"),
    "secrets": ("import secrets; secrets.token_hex()", "takes a random number"),
    "uuid": ("import uuid; uuid.uuid4()", "takes a random number"),
    "getpid": ("import os; os.getpid()", "number of a process"),
    "load": ("import os; os.getloadavg()", "load of the machine"),
    "statvfs": ("import os; os.statvfs('.')", "asks a file system"),
    "disk_usage": ("import shutil; shutil.disk_usage('.')", "asks a file system"),
    "proc": ("open('/proc/meminfo').read()", "reads /proc/meminfo"),
    "proc_link": ("import os; os.readlink('/proc/self/exe')", "reads /proc/self/exe"),
    "proc_stat": ("import pathlib; pathlib.Path('/proc/self/ns/pid').stat()", "reads /proc/self/ns/pid"),
    "proc_of_a_process": ("import os; os.path.exists('/proc/1/exe')", "reads /proc/1/exe"),
    "proc_access": ("import os; os.access('/proc/1/exe', os.R_OK)", "reads /proc/1/exe"),
    "sys_folder": ("import os; os.listdir('/sys')", "reads /sys"),
    "dev": ("open('/dev/urandom', 'rb').read(1)", "reads /dev/urandom"),
    "fifo": ("import os; os.mkfifo('fifo'); os.open('fifo', os.O_RDONLY | os.O_NONBLOCK)", "which is no file"),
    "dir_fd": ("import os; os.open('data.json', os.O_RDONLY, dir_fd=os.open('.', os.O_RDONLY))", "from a descriptor"),
    "stat_dir_fd": ("import os; os.stat('data.json', dir_fd=os.open('.', os.O_RDONLY))", "from a descriptor"),
    "pwd": ("import pwd; pwd.getpwuid(0)", "asks the system"),
    "rusage": ("import resource; resource.getrusage(resource.RUSAGE_SELF)", "asks the system"),
    "getatime": ("import os; os.path.getatime('data.json')", "when a file was read"),
    "xattr": ("import os\ntry: os.listxattr('data.json')\nexcept OSError: pass", "asks the system"),
    "extension": ("import sys; sys.path.insert(0, 'path'); import compiled_thing", "which is compiled"),
    "own_event": ("import sys; sys.audit('of.a.package', 1)", "of.a.package"),
    "shared_memory": ("from multiprocessing import shared_memory as s; m = s.SharedMemory(create=True, size=1); m.unlink()", "asks the system"),
}  # fmt: skip

HARMLESS = {
    "arithmetic": "x = sum(i * i for i in range(10))",
    "imports_of_the_standard_library": "import json, logging, random, uuid, tempfile, subprocess, datetime, socket",
    "logging": "import logging; logging.getLogger('x').warning('said'); logging.basicConfig()",
    "dates": "import datetime; assert isinstance(datetime.datetime(2020, 1, 1), datetime.date); datetime.timedelta(1)",
    "seeded": "import random; random.Random(7).random()",
    "lock": "import threading; threading.Lock().acquire(timeout=1)",
    "temporary": "import tempfile\nwith tempfile.TemporaryDirectory() as f: open(f + '/x', 'w').write('y'); open(f + '/x').read()",
    "dataclass": "import dataclasses\n@dataclasses.dataclass\nclass A: x: int = 1\nA()",
    "null": "open('/dev/null').read()",
    "lock_that_is_waited_for": "import fcntl; fcntl.flock(open('/dev/null'), fcntl.LOCK_SH)",
    "gmtime_of": "import time; time.gmtime(0); time.sleep(0)",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return filled(tmp_path)


def environment_of(folder: Path) -> dict[str, str]:
    places = (
        folder / "early",
        folder / "no_folder_yet",
        folder / "path",
        ROOT,
    )  # the last as the watched process has it
    return {"MY_MODE": "a", "PYTHONPATH": os.pathsep.join(map(str, places))}


@pytest.mark.slow
@pytest.mark.parametrize("name", LOOKS)
def test_what_is_looked_at_is_a_fact_that_a_change_breaks(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look, change = LOOKS[name]
    monkeypatch.delenv("MY_NEW", raising=False)
    for variable, value in environment_of(folder).items():
        monkeypatch.setenv(variable, value)
    monkeypatch.chdir(folder)
    (found,) = seen_by(look, folder=folder)
    assert (found["error"], found["refusals"]) == ("", [])
    facts = [f for f in facts_of(found) if not f.name.endswith("copy.json")]  # which the kernel writes itself
    unbroken = World().broken(facts)
    if name not in ("environ_items", "environ_item_value", "environ_copy", "environ_or", "environ_repr", "environ_data",
                    "posix_environ", "environb"):  # fmt: skip
        assert unbroken is None, unbroken
    else:  # the variables that the runner of these tests changes from moment to moment are among them
        assert unbroken is None or unbroken.name.startswith("PYTEST"), unbroken
        facts = [f for f in facts if not f.name.startswith("PYTEST")]
    with mock.patch.dict(os.environ):
        exec(change, {"os": os})
        assert not World().holds(facts), facts


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What was seen of each that cannot be recorded, one after the other in one process."""
    folder = filled(tmp_path_factory.mktemp("refused"))
    found = seen_by(*(look for look, _ in REFUSED.values()), folder=folder)
    for number, each in enumerate(found):
        each["file"] = f"{folder}/kernel{number}.py"
    return dict(zip(REFUSED, found, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_recorded_is_a_reason_not_to_keep(name: str, refused: dict[str, dict[str, Any]]) -> None:
    found = refused[name]
    assert any(REFUSED[name][1] in reason for reason in found["refusals"]), found
    assert any(reason.startswith(f"{found['file']}:") for reason in found["refusals"]), found


def test_what_looks_at_nothing_outside_is_kept(folder: Path) -> None:
    temporary = folder / "temporary"
    temporary.mkdir()
    found = seen_by(*HARMLESS.values(), folder=folder, TMPDIR=str(temporary))
    for name, each in zip(HARMLESS, found, strict=True):
        assert (each["error"], each["refusals"]) == ("", []), name
        # The import system is asked for what is not loaded yet; beyond that nothing is seen.
        # (Of the places for temporary files, the working directory is the last.)
        expected = {"module", "kind", "variable", *(("cwd",) if name == "temporary" else ())}
        assert {kind for kind, _, _ in each["facts"]} <= expected, name


# --- no function that can look outside is left out ---

# Of `os`: what makes or changes, works on what was opened before, or computes.
OF_NO_LOOK = frozenset(
    ["abort", "add_dll_directory", "chdir", "chflags", "chmod", "chown", "chroot", "close", "closerange", "copy_file_range", "cpu_count", "ctermid", "dup", "dup2", "eventfd", "eventfd_read", "eventfd_write", "fchdir", "fchmod", "fchown", "fdatasync", "fdopen", "fsencode", "fsdecode", "fspath", "fsync", "ftruncate", "get_blocking", "get_inheritable", "initgroups", "isatty", "kill", "killpg", "lchflags", "lchmod", "lchown", "lockf", "login_tty", "major", "makedev", "makedirs", "memfd_create", "minor", "mkdir", "mkfifo", "mknod", "nice", "openpty", "pidfd_open", "pipe", "pipe2", "popen", "posix_fadvise", "posix_fallocate", "posix_openpt", "grantpt", "unlockpt", "ptsname", "pread", "preadv", "putenv", "pwrite", "pwritev", "read", "readv", "register_at_fork", "remove", "removedirs", "removexattr", "rename", "renames", "replace", "rmdir", "sched_setaffinity", "setpgrp", "sched_setparam", "sched_setscheduler", "sched_yield", "sendfile", "set_blocking", "set_inheritable", "setegid", "seteuid", "setgid", "setgroups", "setns", "setpgid", "setpriority", "setregid", "setresgid", "setresuid", "setreuid", "setsid", "setuid", "setxattr", "splice", "strerror", "symlink", "sync", "tcsetpgrp", "truncate", "umask", "unlink", "unsetenv", "unshare", "utime", "write", "writev", "device_encoding", "get_terminal_size", "lseek", "tcgetpgrp", "get_handle_inheritable", "timerfd_create", "timerfd_settime", "timerfd_settime_ns", "timerfd_gettime", "timerfd_gettime_ns", "WCOREDUMP", "WEXITSTATUS", "WIFCONTINUED", "WIFEXITED", "WIFSIGNALED", "WIFSTOPPED", "WSTOPSIG", "WTERMSIG", "waitstatus_to_exitcode", "wait", "wait3", "wait4", "waitid", "waitpid", "posix_openpty", "fwalk", "walk", "get_exec_path", "getenv", "getenvb", "listdir", "scandir", "link", "_exit"]
)  # fmt: skip
# Those that raise an event which is refused, or a read of which is an event; and those that lead to others here.
OF_EVENTS = frozenset(
    ["execl", "execle", "execlp", "execlpe", "execv", "execve", "execvp", "execvpe", "fork", "forkpty", "posix_spawn", "posix_spawnp", "spawnl", "spawnle", "spawnlp", "spawnlpe", "spawnv", "spawnve", "spawnvp", "spawnvpe", "system", "getxattr", "listxattr", "startfile"]
)  # fmt: skip


def test_every_function_of_os_is_watched_or_known_to_look_at_nothing() -> None:
    functions = {n for n in dir(os) if callable(getattr(os, n)) and not isinstance(getattr(os, n), type)}
    functions = {n for n in functions if not n.startswith("_") or n == "_exit"}
    assert functions - OF_NO_LOOK - OF_EVENTS - set(WATCHED_IN_OS) == set()


def test_every_function_of_random_and_of_the_clock_is_watched() -> None:
    import random
    import time

    random_ones = {n for n in dir(random) if not n.startswith("_") and hasattr(getattr(random, n), "__self__")}
    watched = {name for functions in WATCHED_ELSEWHERE.values() for module, name in functions if module == "random"}
    assert random_ones - watched - {"seed", "setstate"} == set()
    clocks = {n for n in dir(time) if not n.startswith("_") and callable(getattr(time, n))}
    clocks = {n for n in clocks if not isinstance(getattr(time, n), type)}
    known = {*CLOCKS, *OF_THE_ZONE, "gmtime", "asctime"}
    # A setter, what describes a clock, what waits, what needs a thread's number, and what parses a text.
    assert clocks - known - {"clock_settime", "clock_settime_ns", "clock_getres", "get_clock_info", "sleep", "tzset",
                             "pthread_getcpuclockid", "strptime"} == set()  # fmt: skip


def test_figures_of_the_machine_are_facts(folder: Path) -> None:
    found = seen_by(
        *(f"import os; os.{n}({'0' if 'affinity' in n else ''})" for n in sorted(MACHINE_FIGURES)), folder=folder
    )
    for name, each in zip(sorted(MACHINE_FIGURES), found, strict=True):
        assert [f[:2] for f in each["facts"]] == [["machine", name]], name
        assert observe("machine", name) == each["facts"][0][2]


# --- whose look it is, and when ---


def test_a_package_with_a_version_answers_for_what_its_own_import_reads(folder: Path) -> None:
    (found,) = seen_by("import numpy", folder=folder, PYTHONPATH=str(folder / "early"))
    assert found["refusals"] == []
    assert {kind for kind, _, _ in found["facts"]} <= {"module", "kind", "variable"}
    # But a module that took the place of one of its own would be seen.
    assert f"{folder / 'early'}\0numpy" in {name for kind, name, _ in found["facts"] if kind == "module"}


def test_a_package_that_looks_at_its_own_process_when_imported_is_no_look_of_the_kernels(folder: Path) -> None:
    """filelock does, which PyTorch imports; what a kernel has it do later counts."""
    package = folder / "site-packages" / "filelock"
    package.mkdir(parents=True)
    look = "import os, pathlib\ndef look(): return os.getpid(), pathlib.Path('/proc/self/ns/pid').stat().st_ino\n"
    (package / "__init__.py").write_text(f"{look}IDENTITY = look()")
    imported, called = seen_by("import filelock", "import filelock; filelock.look()", folder=folder,
                               PYTHONPATH=str(package.parent))  # fmt: skip
    assert (imported["error"], imported["refusals"]) == ("", [])
    assert {kind for kind, _, _ in imported["facts"]} <= {"module", "kind", "variable"}
    assert len(called["refusals"]) == 2


def test_what_the_kernel_writes_itself_is_no_read_of_it(folder: Path) -> None:
    log, cache, appended = seen_by(
        "open('log.txt', 'w').write('x'); open('log.txt').read()",
        "import os\nos.makedirs('own', exist_ok=True)\nopen('own/cache.json', 'w').write('[]')\nopen('own/cache.json').read()",
        "open('data.json', 'a').write('x')",
        folder=folder,
    )
    for each in (log, cache, appended):
        assert [f for f in each["facts"] if f[0] == "content"] == []
    assert str(folder / "own/cache.json") in cache["written"] and str(folder / "data.json") in appended["written"]


def test_a_compiled_file_does_not_stand_for_a_kernels_text(folder: Path) -> None:
    """Python takes it when time and size of the text are what they were, whatever the text is now."""
    tuned = folder / "path" / "tuned.py"
    py_compile.compile(str(tuned))
    assert list(tuned.parent.glob("__pycache__/tuned.*.pyc"))
    was = tuned.stat()
    tuned.write_text("X = 8")
    os.utime(tuned, ns=(was.st_atime_ns, was.st_mtime_ns))
    check = "import tuned; assert tuned.X == 8"
    (found,) = seen_by(check, folder=folder, PYTHONPATH=str(tuned.parent))
    assert found["error"] == ""


def test_a_file_too_large_to_hash_is_refused(folder: Path) -> None:
    with (folder / "large.bin").open("wb") as file:
        file.truncate((64 << 20) + 1)
    (found,) = seen_by("open('large.bin', 'rb').read(1)", folder=folder)
    assert "more than 64 MiB" in found["refusals"][0]


def test_how_python_starts_hangs_on_its_own_variables_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def started() -> str:
        interpreter.cache_clear()
        return interpreter()

    before = started()
    monkeypatch.setenv("PYTHON", "python3.12")  # a Makefile's name of an interpreter: Python reads no such variable
    monkeypatch.setenv("TERM", "dumb")
    assert started() == before
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    assert started() != before
    monkeypatch.undo()
    assert started() == before
