"""Where the work on parts runs: in this process, in several processes of this machine, or on workers of Dask."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager

from ibpulse.base.errors import ConfigError, DatasetError
from ibpulse.base.memory import ALLOCATOR
from ibpulse.base.missing_packages import how_to_install
from ibpulse.base.text import split_lines

CONNECT_SECONDS = 10


@contextmanager
def open_workers(processes: int) -> Iterator[Executor]:
    """Workers of this machine; with one, the work runs in a thread of this process."""
    if processes == 1:
        with ThreadPoolExecutor(1, "part") as threads:
            yield threads
        return
    # a fork would copy the locks of other threads; workers import what they need
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_begin_process) as pool:
        yield pool


def _begin_process() -> None:
    os.environ.update(ALLOCATOR)
    import pyarrow as pa  # after the environment is set

    # there is a process for each CPU already
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)


@contextmanager
def open_scheduler(address: str) -> Iterator[Executor]:
    """The workers of a Dask scheduler at an address such as `tcp://scheduler:8786`.

    They need ibpulse in the same version, and the dataset at the same place.

    Raises:
        ConfigError: distributed is not installed.
        DatasetError: the scheduler does not answer.
    """
    try:
        from distributed import Client  # only where it is asked for
    except ModuleNotFoundError as error:
        missing = f"flag --scheduler: needs distributed, which is not installed; {how_to_install('distributed')}"
        raise ConfigError([missing]) from error
    try:
        client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        reason = (split_lines(str(error)) or [type(error).__name__])[0][:200]
        raise DatasetError(
            f"the scheduler {address} does not answer: {reason}; is `dask scheduler` running there?"
        ) from error
    with client, client.get_executor(pure=False) as executor:
        yield executor
