"""What a scan tells the operator, each notice one clear sentence with the way out.

The text of a notice is the same as long as its cause is the same, so that whoever logs them can drop repetitions.
This room must not read any file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ibpulse.model import Port
from ibpulse.sysfs.device import DeviceView
from ibpulse.sysfs.rails import find_slow_twins

NAMED_SUBJECTS = 4


def say_no_class(class_folder: str) -> str:
    """There is no directory of RDMA devices."""
    return f"There is no {class_folder}: load an RDMA driver, or set path.sysfs to the host's /sys."


def say_no_devices(class_folder: str, listed: int) -> str:
    """There are no devices, or the patterns leave none of those listed."""
    if listed:
        return f"All {listed} devices in {class_folder} are left out by ports.include and ports.exclude: change these."
    return f"There is no device in {class_folder}: load the driver of your RDMA devices."


def say_other_namespace(sysfs: str) -> str:
    """The devices are those of a view without counters."""
    return (
        f"The devices under {sysfs} have no counters, because this sysfs view belongs to another network namespace:"
        " mount the host's /sys and set path.sysfs to it."
    )


def collect_remarks(views: Sequence[DeviceView]) -> list[tuple[str, str]]:
    """Pairs of a device's or port's name and what is to be said about it, in the order of the ports."""
    remarks = [(view.name, text) for view in views for text in view.remarks]
    for port_view in (port_view for view in views for port_view in view.ports):
        port = port_view.port
        note = port.source.note if port.source else ""
        texts = (port.problem, note, *port_view.remarks)
        remarks += [(str(port.id), text) for text in texts if text]
    return remarks


def remark_on_slow_twins(ports: Sequence[Port]) -> list[tuple[str, str]]:
    """A remark for each port that looks like a rail but is slower than the rails."""
    text = "it is of the rails' hardware but slower, so it is not a rail: check the link, or set ports.rails."
    return [(str(port.id), text) for port in find_slow_twins(ports)]


def group_remarks(remarks: Iterable[tuple[str, str]]) -> list[str]:
    """One notice per different text, naming the first few it is about and how many more."""
    subjects: dict[str, list[str]] = {}
    for subject, text in remarks:
        subjects.setdefault(text, []).append(subject)
    return [f"{_join(names)}: {text}" for text, names in subjects.items()]


def _join(names: Sequence[str]) -> str:
    more = len(names) - NAMED_SUBJECTS
    named = ", ".join(names[:NAMED_SUBJECTS])
    return f"{named} and {more} more" if more > 0 else named
