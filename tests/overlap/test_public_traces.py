"""Public traces of the PyTorch profiler, which are not part of the project, to the microsecond."""

from __future__ import annotations

import pytest

from ibpulse.workbench.overlap.communication_kernels import CommunicationNames
from ibpulse.workbench.overlap.exposed_time import measure_overlap
from ibpulse.workbench.overlap.kineto_trace import read_trace
from tests.analysis.test_public_data import find_file

# from the events of kernels alone, counted independently of this project: communication kernels, then microseconds of
# the span, of the union of communication, of the union of computation, of the overlap, and exposed
KNOWN = {
    "kineto_two_streams.json.gz": (60, 463_441, 163_535, 281_336, 75_614, 87_921),
    "kineto_no_overlap.json.gz": (2_020, 1_732_965, 357_343, 620_516, 0, 357_343),
}


@pytest.mark.parametrize("name", KNOWN)
def test_a_public_trace_has_its_known_times(name: str) -> None:
    trace = read_trace(find_file(name), CommunicationNames())
    (device,) = trace.devices
    found = measure_overlap(device, trace.steps)
    whole = found.whole
    times = (whole.length_ns, whole.communication_ns, whole.computation_ns, whole.overlap_ns, whole.exposed_ns)
    assert times == tuple(1000 * known for known in KNOWN[name][1:])
    assert sum(one.kernels for one in found.communicators) == KNOWN[name][0]
    inside = sum(time.communication_ns for _, time in found.steps)
    # consecutive steps are a few microseconds apart
    assert inside + found.outside_ns == whole.communication_ns
