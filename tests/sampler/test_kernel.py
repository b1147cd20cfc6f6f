"""What the kernel refuses to a sampler is an errno."""

from __future__ import annotations

import os

from ibpulse.agent.sampler.kernel import pin_to_cpu
from tests.tables import for_each


@for_each([-1, 4095, 2**40])
def test_a_missing_cpu_is_an_errno(cpu: int) -> None:
    assert os.strerror(pin_to_cpu(cpu)) == "Invalid argument"
