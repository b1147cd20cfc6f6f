"""The cost of one sample: the sampler, the C program and the naive loop."""

from __future__ import annotations

from statistics import median

from bench import pairs, reference
from bench.bench import MILLISECOND_NS, PORTS, Bench
from bench.report import Budget, Section, Table, microseconds, percent
from bench.sampler import running_sampler

LIMIT = 1.5
METHOD = f"""\
{PORTS} ports, two counters each. The sampler and the C program run at the same time, offset by a fraction of an
interval; the naive loop runs after each of these rounds. Values are medians over the rounds. CPU time is the kernel's
count of user and system time while the process samples (excluding start and end), including the cost of sleeping and
waking, divided by the number of samples."""
NAIVE_NOTE = """\
The naive loop opens, reads and closes each file for every sample and then sleeps for the interval, so its period is the
interval plus its work plus the kernel's timer slack. Rates computed from the nominal interval are wrong by that much
on average, and by far more for single samples."""


def run(bench: Bench) -> Section:
    """Measure at 10 ms and at 1 ms."""
    program = reference.build(bench.new_folder("reference"))
    tables, budgets = [], []
    for interval_ms, seconds in ((10, 5.0), (1, 3.0)):
        interval_ns = interval_ms * MILLISECOND_NS
        rounds, naive = [], []
        with running_sampler(bench.new_folder("sampler"), interval_ns, PORTS) as reader:
            for _ in range(bench.rounds(5)):
                rounds.append(pairs.measure(program, reader, interval_ms, bench.seconds(seconds)))
                naive.append(reference.run_naive(interval_ns, bench.seconds(seconds) / 2, PORTS))
        both = pairs.Pairs(rounds)
        tables.append(_table(interval_ms, both, naive))
        what = f"CPU of one sample, {PORTS} ports × 2 counters, every {interval_ms} ms"
        ratio = both.cost_ratio()
        budgets.append(Budget(what, f"≤ {LIMIT} × the C program", f"{ratio:.2f} ×", ratio <= LIMIT))
    return Section("One sample", METHOD, tables, [NAIVE_NOTE], budgets)


def _table(interval_ms: int, both: pairs.Pairs, naive: list[dict[str, float]]) -> Table:
    def row(name: str, cpu_ns: float, kept: float, late: str) -> list[str]:
        share = cpu_ns / (interval_ms * MILLISECOND_NS)
        return [name, microseconds(cpu_ns), percent(share), percent(kept), late]

    rows = []
    for which, name in ((1, "C program"), (0, "ibpulse sampler")):
        late = ", ".join(microseconds(both.late_ns(part)[which]) for part in ("p50", "p99"))
        rows.append(row(name, both.cost_ns()[which], both.kept()[which], late))
    gap_ms = median(one["mean_gap_seconds"] for one in naive) * 1e3
    rows.append(
        row(
            "naive loop",
            median(one["cpu_ns_per_tick"] for one in naive),
            median(one["ticks"] / one["wanted"] for one in naive),
            f"no deadlines; mean period {gap_ms:.2f} ms",
        )
    )
    return Table(
        [f"every {interval_ms} ms", "CPU per sample", "of one core", "samples captured", "wake-up delay p50, p99"],
        rows,
    )
