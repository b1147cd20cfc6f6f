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
problems. It needs no daemon, no privilege and no setting. In a container it needs the host's `/sys`:

```sh
ibpulse doctor                                  # this node
ibpulse doctor --path.sysfs=/host/sys           # in a container with the host's /sys mounted there
ibpulse doctor --format=json                    # for programs
ibpulse doctor --watch=30s                      # repeat every 30 s
ibpulse doctor --nccl=all_reduce.json           # also judge the result of a benchmark by this node's rails
```

Give it the settings of the daemon (the same flags, environment and file), so that it checks the daemon's configuration.

## Reading the output

There is one line per finding: level, check, subject, result. Findings with the same result for several ports share one
line. If something is wrong, two more lines give the meaning and the remedy.

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

If a daemon samples the same tree, doctor takes the samples from its ring (in `ring.dir` or in
[`ibpulse-UID`](security.md#other-users-of-the-node) below it; with the default `ring.dir` also in `/run/ibpulse`, where
the systemd unit has it), which it only reads: it takes no lock and samples nothing a second time. Otherwise it samples
for about {seconds} whole seconds itself, using the daemon's sampler with a separate ring, so it sees the same as a
daemon would. If a daemon is running, resets up to {history} s in the past are also found, and so is what the event log
([events.md](events.md)) says: ports that disappeared and since when, renamed devices, links that flapped in the last
hour. `--no-look` restricts doctor to static checks, without sampling.

Each device is examined in its own thread, and all of that in a separate process. A device whose firmware does not
respond is reported, and delays neither the other devices nor the end of the command, nor that of a program that reads
its output, such as `less`.

In addition to the files that the daemon reads, doctor reads the counters of each port once, and a few of them twice. It
never opens the `hw_counters` of a device, only those of ports.

Where GPUs are visible, it also reads which driver modules are loaded, and the IOMMU group and PCI configuration space
of the rails, their nearest GPUs and the switch ports between them. To other users than root the kernel shows only the
first 64 bytes of the configuration space.

## Checks

{checks}

A machine check concerns the machine on which doctor runs. If the tree does not come from a kernel (a simulated
fabric or a fixture), that machine is not the node; such findings are reported as SKIP, not judged. `--check=NAME`
runs only the given checks.

{details}

The simulated jobs `dense` and `moe` leave one of eight rails idle, like the runs they are modelled on: `ibpulse demo`
with these correctly shows a warning of the check `balance`. `ibpulse demo --workload=expert-parallel` is OK in all
checks.

## Known kernel faults

{traps}

Distributions backport fixes, so an older kernel may not have a fault that the table lists up to a later version.
"""
