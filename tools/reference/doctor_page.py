"""`docs/doctor.md`: how to read the output of doctor, with tables written from its checks and known kernel faults."""

from __future__ import annotations

from collections.abc import Iterable

from ibpulse.doctor import CHECKS, Level
from ibpulse.doctor.machine_checks import TRAPS, Trap
from ibpulse.doctor.ring_facts import HISTORY_SECONDS, WHOLE_SECONDS
from ibpulse.doctor.sample_checks import MOST_LOST
from ibpulse.sampler.loop import LONGEST_READ
from ibpulse.sampler.sampling_interval import BUSY_SHARE


def doctor_markdown() -> str:
    """The page."""
    return _PAGE.format(
        seconds=WHOLE_SECONDS,
        history=HISTORY_SECONDS,
        lost=f"{MOST_LOST:.0%}",
        read=f"{LONGEST_READ:.0%}",
        tick=f"{BUSY_SHARE:.0%}",
        checks=_table(
            ("check", "subject", "machine check"),
            ((f"`{check.name}`", check.sentence, "yes" if check.of_machine else "") for check in CHECKS),
        ),
        traps=_table(
            ("kernel", "level", "fault", "consequence"),
            ((_say_versions(trap), Level(trap.level).name, trap.sentence, trap.meaning) for trap in TRAPS),
        ),
    )


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
ibpulse doctor --bundle=node.tar.gz             # a redacted bundle for the maintainers
```

Give it the settings of the daemon (the same flags, environment and file), so that it checks the daemon's configuration.

## Reading the output

There is one line per finding: level, check, subject, result. Findings with the same result for several ports share one
line. If something is wrong, two more lines give the meaning and the remedy.

| level | meaning |
| --- | --- |
| OK | no action needed |
| WARN | the numbers are correct, but could be better, or something on the node needs attention |
| FAIL | numbers are missing, or would be wrong |

The exit code is 0 for OK and WARN and 1 for FAIL; with `--strict` it is 1 for WARN too. Invalid arguments give 2. The
JSON document has `verdict`, the worst level, and `findings`, one per subject, each with `level`, `topic` (the check),
`subject`, `sentence`, `meaning` and `advice`.

## How it measures

If a daemon samples the same tree, doctor takes the samples from its ring (`ring.dir`), which it only reads: it takes
no lock and samples nothing a second time. Otherwise it samples for about {seconds} whole seconds itself, using the
daemon's sampler with a separate ring, so it sees the same as a daemon would. If a daemon is running, resets up to
{history} s in the past are also found. `--no-look` restricts doctor to static checks, without sampling.

Each device is examined in its own thread, and all of that in a separate process. A device whose firmware does not
respond is reported, and delays neither the other devices nor the end of the command.

In addition to the files that the daemon reads, doctor reads the counters of each port once, and a few of them twice. It
never opens the `hw_counters` of a device, only those of ports.

## Checks

{checks}

A machine check concerns the machine on which doctor runs. If the tree does not come from a kernel (a simulated
fabric, a fixture, a bundle), that machine is not the node; such findings are reported, but remain OK. `--check=NAME`
runs only the given checks.

- **reads.** A read that takes longer than {read} of the interval counts as missing, because the time at which its
  counter was taken is too uncertain. The shortest reliable interval is therefore the shortest one that divides a
  second, that is long enough for a p99 read to fit in {read} of it, and for the p99 of all reads of a sample, done
  one after the other in a single thread, to fit in {tick} of it.
- **ticks.** More than {lost} missed samples is a warning. A sampler that is short of CPU time misses samples, but never
  invents any.
- **resolution.** The time between two changes of a counter while traffic flows. Without traffic it is unknown.
- **balance.** The rails over the last {seconds} s, compared with the median of their siblings, by the rules of the
  daemon. A rail that carries nothing is *idle*. If its queue pairs nevertheless count requests, its counters are
  *stuck*. If nothing else on the port distinguishes the two, the finding says so.
- **rails.** A rail whose link is down is a failure; a port that looks like a rail but runs slower is a warning.
- **devices.** A card of the rails' model without an RDMA device: it lost the device, or the device was moved into
  another network namespace.
- **saturation.** Counters of 4, 8, 16 and 32 bits stop when they are full. From then on they are only a lower bound.

The simulated jobs `dense` and `moe` leave one of eight rails idle, like the runs they are modelled on: `ibpulse demo`
with these correctly shows a warning of the check `balance`. `ibpulse demo --workload=expert-parallel` is OK in all
checks.

## Known kernel faults

{traps}

Distributions backport fixes, so an older kernel may not have a fault that the table lists up to a later version.

## Bundles

`--bundle=FILE` writes a `.tar.gz` with the part of sysfs that ibpulse reads, including the counters at one instant,
the output of doctor as text and JSON, the settings, and the versions. GUIDs, host names, IP and MAC addresses are
replaced with made-up ones, consistently throughout the bundle; the key is random and not stored. GIDs, keys, LIDs and
serial numbers are omitted, and `node_desc` is replaced completely. Names of devices and interfaces, PCI addresses,
firmware versions and paths in the settings remain. Only the owner can read the file; check its content before you
pass it on.

The tree is a fixture. `ibpulse serve` shows the same fabric with it, and the same `/metrics` except for the GUIDs:

```sh
tar -xzf node.tar.gz
ibpulse serve --path.sysfs=ibpulse-bundle/sys
ibpulse doctor --path.sysfs=ibpulse-bundle/sys
```

A tree of plain files cannot reproduce a file that failed to be read (`EINVAL`). Such a file contains `N/A (no PMA)`,
as on old kernels, and is treated as unreadable as well; `unreadable.json` has the real reason. A device that did not
respond is listed there and not included in the tree.
"""
