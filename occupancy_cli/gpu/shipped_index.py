"""The index of the shipped profiles, `hw_profiles/index.txt`: which file answers to which name, and what was checked.

    h200-sxm.yaml 5d0c1f2e h200 h200141gb h200sxm h200sxm5 hgxh200 nvidiah200
    compute_capability/9.0.yaml 90ab12cd

A line has a file, the CRC-32 of its text when the index was written, and the names that it answers to, normalized.
With it, one name costs one product file; without it every file would be parsed to learn who answers. The index cannot
be wrong unnoticed: a file whose text has another CRC is checked against its schema like a stranger's and its names are
read from itself, and a name that the index lacks is looked for in every file. `python -m
occupancy_cli.gpu.shipped_index` checks every shipped file and writes the index anew; a test holds it to that.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from occupancy_cli.data_files import shipped_dir

INDEX = "index.txt"
_HEAD = "# What each profile answers to. Written by `python -m occupancy_cli.gpu.shipped_index`; see its docstring.\n"


@dataclass(frozen=True)
class ShippedIndex:
    """`checksums` by file (relative to the folder), `files` by normalized name: several where a name is ambiguous."""

    checksums: Mapping[str, str]
    files: Mapping[str, tuple[str, ...]]


@functools.lru_cache(maxsize=1)
def shipped_index() -> ShippedIndex:
    """The shipped index; empty where there is none, which costs time and changes no answer."""
    try:
        text = (shipped_dir("hw_profiles") / INDEX).read_text(encoding="utf-8")
    except OSError:
        text = ""
    checksums: dict[str, str] = {}
    files: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            file, checksum, *names = line.split()
            checksums[file] = checksum
            for name in names:
                files[name] = (*files.get(name, ()), file)
    return ShippedIndex(checksums, files)


def checksum_of(content: bytes) -> str:
    """CRC-32 as eight hexadecimal digits; of lines that end in a newline alone, whatever a checkout makes of them."""
    text = content.replace(b"\r\n", b"\n")
    return f"{zlib.crc32(text):08x}"


def is_as_shipped(path: Path) -> bool:
    """Whether `path` is a shipped file with the text that was checked when the index was written."""
    try:
        relative = path.relative_to(shipped_dir("hw_profiles")).as_posix()
    except ValueError:
        return False
    known = shipped_index().checksums.get(relative)
    return known is not None and path.is_file() and checksum_of(path.read_bytes()) == known


def index_text(folder: Path) -> str:
    """The index of the profiles in `folder`, each of them checked against its schema."""
    from occupancy_cli.gpu.profile_form import COMPUTE_CAPABILITY_SCHEMA, GPU_SCHEMA, names_of
    from occupancy_cli.gpu.profile_schema import check_profile
    from occupancy_cli.yaml_reader import load_yaml

    lines = [_HEAD]
    products = sorted(folder.glob("*.yaml"))
    for path in (*products, *sorted((folder / "compute_capability").glob("*.yaml"))):
        document = load_yaml(path)
        is_product = path.parent == folder
        check_profile(document, GPU_SCHEMA if is_product else COMPUTE_CAPABILITY_SCHEMA)
        names = sorted(names_of(document.data, path.stem)) if is_product else []
        file = path.relative_to(folder).as_posix()
        lines.append(" ".join((file, checksum_of(path.read_bytes()), *names)) + "\n")
    return "".join(lines)


if __name__ == "__main__":
    from occupancy_cli.errors import OccupancyError

    target = shipped_dir("hw_profiles") / INDEX
    try:
        target.write_text(index_text(target.parent), encoding="utf-8")
    except OccupancyError as bad:
        raise SystemExit(str(bad)) from None
