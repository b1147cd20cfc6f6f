"""`docs/doctor.md`: how to read what doctor says, with tables written from its checks and from its traps of kernels."""

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
            ("check", "what it looks at", "of the machine"),
            ((f"`{check.name}`", check.sentence, "yes" if check.of_machine else "") for check in CHECKS),
        ),
        traps=_table(
            ("kernel", "level", "trap", "what follows"),
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

`ibpulse doctor` tells within ten seconds whether the numbers of a node can be trusted, and what to do where they
cannot. It needs no daemon, no privilege and no setting; on a container host it needs the host's `/sys`:

```sh
ibpulse doctor                                  # this node
ibpulse doctor --path.sysfs=/host/sys           # in a container with the host's /sys mounted there
ibpulse doctor --format=json                    # for programs
ibpulse doctor --watch=30s                      # again and again
ibpulse doctor --bundle=node.tar.gz             # what a maintainer needs, redacted
```

Give it the settings of the daemon (the same flags, environment and file): it looks at what that daemon would do.

## How to read it

One line per finding: level, check, what it is about, what was found. Findings that say the same of several ports
stand in one line. Where something is wrong, two more lines say what it means and what to do.

| level | meaning |
| --- | --- |
| OK | nothing to do |
| WARN | the numbers are true, but not all that they could be, or something of the node needs a look |
| FAIL | numbers are missing, or would be wrong |

The exit code is 0 for OK and WARN and 1 for FAIL; with `--strict` it is 1 for WARN too. Arguments that cannot be
used end with 2. The JSON document has `verdict`, the worst level, and `findings`, one per subject, each with
`level`, `topic` (the check), `subject`, `sentence`, `meaning` and `advice`.

## How it looks

Where a daemon samples the same tree, doctor takes the samples from its ring (`ring.dir`), which it only reads: it
takes no lock, and samples nothing a second time. Otherwise it samples by itself for about {seconds} whole seconds,
by the daemon's own sampler on a ring of its own, so that it sees what the daemon would see. A reset is also found
if it was up to {history} s ago and a daemon saw it. `--no-look` takes no samples at all.

Every device is asked in a thread of its own, and all of that in a process apart. A device whose firmware does not
answer is named, and holds up neither the other devices nor the end of the command.

What it reads on top of what the daemon reads: the counters of each port once, and a few of them twice. It never
opens `hw_counters` of a device itself, only those of ports.

## The checks

{checks}

A check of the machine says something of the machine that doctor runs on. When the tree is no kernel's (a simulated
fabric, a fixture, a bundle), that machine is not the node: such findings are told, but stay OK. `--check=NAME` runs
only the checks that are named.

- **reads.** A read that takes over {read} of the interval is a hole, since nobody knows when its counter was taken.
  So the shortest honest interval is the shortest that divides a second, of which {read} holds a read at p99, and
  {tick} holds all reads of a tick at p99, one after the other as one thread does them.
- **ticks.** More than {lost} lost is a warning. A sampler that is short of CPU time loses ticks, and never invents
  any.
- **resolution.** The time between two changes of a counter while traffic flows. Without traffic it is not known.
- **balance.** The rails of the last {seconds} s against the median of their siblings, by the rules of the daemon. A
  rail that carries nothing is *idle*. When its queue pairs count requests all the same, its counters are *stuck*.
  Where nothing else of the port tells the two apart, the line says so.
- **rails.** A rail whose link is down is a failure; a port that looks like a rail but runs slower is a warning.
- **devices.** A card of the rails' make without an RDMA device has lost it, or it was moved into another network
  namespace.
- **saturation.** Counters of 4, 8, 16 and 32 bits stop when they are full. They say "at least this" from then on.

The simulated job `dense` (and `moe`) leaves one rail of eight idle, as the run that it imitates did: `ibpulse demo`
with these shows a warning of the check `balance`, rightly. `ibpulse demo --workload=expert-parallel` is all OK.

## Traps of kernels

{traps}

Distributions carry fixes back, so an older kernel may be free of a trap that ends with a later version.

## Bundles

`--bundle=FILE` writes a `.tar.gz` that holds the part of sysfs that ibpulse reads, with the counters as they were
at one instant, doctor's answer as text and JSON, the settings, and the versions. GUIDs, host names, IP and MAC
addresses are replaced by made-up ones, the same original by the same one everywhere; the key is random and kept
nowhere. GIDs, keys, LIDs and serial numbers are left out, and `node_desc` is replaced as a whole. Names of devices
and interfaces, PCI addresses, firmware versions and paths of the settings stay. The file is readable by its owner
alone; look through it before you hand it on.

The tree is a fixture. `ibpulse serve` over it shows the same fabric, with the same `/metrics` but for the GUIDs:

```sh
tar -xzf node.tar.gz
ibpulse serve --path.sysfs=ibpulse-bundle/sys
ibpulse doctor --path.sysfs=ibpulse-bundle/sys
```

A file that refused to be read (`EINVAL`) cannot be kept as such in a tree of plain files. It says `N/A (no PMA)`
there, as old kernels say it, and nothing is read from it either; `unreadable.json` has the real reason. A device
that did not answer is named there, and left out of the tree.
"""
