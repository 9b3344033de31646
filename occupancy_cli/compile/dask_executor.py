"""Compiles on the workers of a dask scheduler."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from occupancy_cli.errors import InputError, MissingDependencyError

if TYPE_CHECKING:
    from concurrent.futures import Executor


@contextlib.contextmanager
def dask_executor(address: str) -> Iterator[Executor]:
    """An executor on the workers of a dask scheduler at `address` (host:port)."""
    try:
        from distributed import Client
    except ImportError as missing:
        raise MissingDependencyError(
            "--executor dask:// needs the package `distributed`",
            hint="Install it: python -m pip install 'occupancy-cli[dask]'",
        ) from missing
    try:
        client = Client(f"tcp://{address}", timeout="10s")
    except OSError as bad:
        raise InputError(f"no dask scheduler answers: {bad}", where=f"--executor dask://{address}") from bad
    except ValueError as bad:  # an address without a port, or with one that is no number
        form = "Write --executor dask://host:port."
        raise InputError(f"{address!r} is no address", where=f"--executor dask://{address}", hint=form) from bad
    with client:
        # A compile whose worker was lost runs again elsewhere; `pure=False` keeps equal messages apart.
        yield client.get_executor(pure=False, retries=2)
