"""`docs/doctor.md`: how to read the output of doctor, with tables written from its checks and known kernel faults."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from ibpulse.agent.doctor import CHECKS, Level
from ibpulse.agent.doctor.machine import TRAPS, Trap
from ibpulse.agent.doctor.samples import HISTORY_SECONDS, WHOLE_SECONDS

WIDTH = 120


def doctor_markdown() -> str:
    """The page."""
    return _PAGE.format(
        seconds=WHOLE_SECONDS,
        history=HISTORY_SECONDS,
        checks=_table(
            ("check", "subject", "machine check"),
            ((f"`{check.name}`", check.sentence, "yes" if check.of_machine else "") for check in CHECKS),
        ),
        details="\n".join(_fill(f"- **{check.name}.** {check.detail}") for check in CHECKS if check.detail),
        traps=_table(
            ("kernel", "level", "fault", "consequence"),
            ((_say_versions(trap), Level(trap.level).name, trap.sentence, trap.meaning) for trap in TRAPS),
        ),
    )


def _fill(item: str) -> str:
    return textwrap.fill(item, WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def _say_versions(trap: Trap) -> str:
    since = "" if trap.since == (0, 0) else f"from {trap.since[0]}.{trap.since[1]}"
    until = "" if trap.until is None else f"before {trap.until[0]}.{trap.until[1]}"
    return " ".join(filter(None, (since, until))) or "any"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


_PAGE = """\
<!-- Written by `python -m tools.reference docs` from the tables; do not edit. -->

# Doctor

`ibpulse doctor` checks within ten seconds whether this node's measurements can be trusted, and explains how to fix
problems. It needs no daemon and no privilege. Give it the flags, environment
and file of the daemon.

```sh
ibpulse doctor                                  # this node
ibpulse doctor --path.sysfs=/host/sys           # in a container with the host's /sys mounted there
ibpulse doctor --format=json                    # for programs
ibpulse doctor --watch=30s                      # repeat every 30 s
```

## Reading the output

One line per finding: level, check, subject, result; if something is wrong, two more give the meaning and the remedy.

| level | meaning |
| --- | --- |
| SKIP | not judged |
| OK | no action needed |
| WARN | the numbers are correct, but could be better, or something on the node needs attention |
| FAIL | numbers are missing, or would be wrong |

The exit code is 0 for OK and WARN and 1 for FAIL; with `--strict` it is 1 for WARN too. Invalid arguments give 2. The
JSON document has `verdict`, the worst level, and `findings`, one per subject, each with `level`, `topic` (the check),
`subject`, `sentence`, `meaning` and `advice`.

## How it measures

If a daemon samples the same tree, doctor takes the samples from its ring, which it only reads (`--ring.dir`; [which
ring](security.md#other-users-of-the-node)). Otherwise it samples for about {seconds} whole seconds itself, with the
daemon's sampler. With a daemon, resets up to {history} s in the past and the [event log](events.md) count too.
`--no-look` restricts doctor to static checks.

Each device is examined in its own thread, and all of that in a separate process, so a device whose firmware does not
respond is reported and delays nothing else. Doctor reads the counters of each port once or twice, never the
`hw_counters` of a device. Where GPUs are visible, it also reads which driver modules are loaded, and the IOMMU group
and PCI configuration space of the rails, their nearest GPUs and the switch ports between them, of which the kernel
shows to others than root only the first 64 bytes.

## Checks

{checks}

A machine check concerns the machine on which doctor runs; with a simulated tree it is a SKIP. `--check=NAME` runs only
the given checks.

{details}

## Known kernel faults

{traps}

Distributions backport fixes, so an older kernel may not have a fault that the table lists up to a later version.
"""
