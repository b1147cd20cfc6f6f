"""The machine of these tests: one boot serves all of them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.campaigns.vm.build import Image, build_image
from tests.campaigns.vm.daemon import WEB_PORTS, Daemon
from tests.campaigns.vm.errors import MissingPartError
from tests.campaigns.vm.link import Link
from tests.campaigns.vm.machine import Machine

# The cache folder holds a whole Debian, with tests of its own.
collect_ignore = ["out"]


@pytest.fixture(scope="session")
def image() -> Image:
    """The machine's image. Where it cannot be had, the tests are skipped, but fail under CI."""
    try:
        return build_image()
    except MissingPartError as missing:
        reason = f"no soft-RoCE machine: {missing}"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def machine(image: Image) -> Iterator[Machine]:
    with Machine(image, ports=WEB_PORTS) as booted:
        yield booted


@pytest.fixture
def link(machine: Machine) -> Link:
    """A pair of devices without any traffic so far."""
    pair = Link(machine)
    pair.create()
    return pair


@pytest.fixture(scope="module")
def link_of_module(machine: Machine) -> Link:
    """A pair of devices for all tests of a module."""
    pair = Link(machine)
    pair.create()
    return pair


@pytest.fixture(scope="session")
def daemon(machine: Machine) -> Iterator[Daemon]:
    """A daemon that looks for changed devices often, and to which this slow machine's traffic is active."""
    serving = Daemon(machine, ["--sampler.scheduler=fifo", "--slow.interval=2s", "--analysis.active-threshold=1MB/s"])
    yield serving
    assert serving.program.stop() == 0, serving.program.output()
