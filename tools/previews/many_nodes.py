"""`python -m tools.previews.many_nodes`: a Prometheus with many nodes, for previews of the boards of a large fleet.

Copies what the first screens and the recordings read of the nodes of a running Prometheus into blocks: one node many
times under other names, the others once. promtool evaluates the recordings of the fleet over them. The numbers are
those of the copied nodes at the same instants; sums, medians and jobs are those of the many.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
FIRST_SCREENS = ("fleet", "job")
STEP_SECONDS = 15
NODES_PER_JOB = 32
# the recordings over all nodes; those of one node are copied
EVALUATED = ("ibpulse-pace", "ibpulse-fleet", "ibpulse-jobs", "ibpulse-boards")
# one recording reads another, three deep
PASSES = 3
Series = Mapping[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the blocks and serve them until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m tools.previews.many_nodes", description=__doc__)
    parser.add_argument("--prometheus", default="http://localhost:9090", help="copied (default: %(default)s)")
    parser.add_argument("--repeat", required=True, help="instance of the node that most nodes are copies of")
    parser.add_argument("--nodes", type=int, default=500, help="(default: %(default)s)")
    parser.add_argument("--minutes", type=int, default=20, help="time range up to now (default: %(default)s)")
    parser.add_argument("--listen", default="127.0.0.1:9595", help="address to serve them at (default: %(default)s)")
    given = parser.parse_args(arguments)
    end = int(time.time()) // STEP_SECONDS * STEP_SECONDS
    instants = range(end - given.minutes * 60, end, STEP_SECONDS)
    with tempfile.TemporaryDirectory(prefix="ibpulse-many-") as name:
        folder = Path(name)
        make_blocks(folder, given.prometheus, given.repeat, given.nodes, instants, given.listen)
        with serving_blocks(folder, given.listen) as server:
            ready = (
                f"{given.nodes} nodes; Ctrl-C stops it. Draw them with --prometheus=http://{given.listen} --until={end}"
            )
            sys.stdout.write(ready + "\n")
            sys.stdout.flush()
            signal.signal(signal.SIGTERM, lambda *_: server.terminate())
            with contextlib.suppress(KeyboardInterrupt):
                server.wait()
    return 0


def make_blocks(folder: Path, source: str, repeated: str, nodes: int, instants: range, listen: str) -> None:
    """Copy the nodes into blocks in a folder, and evaluate the recordings over them, for which they are served.

    Raises:
        SystemExit: the node to repeat is not at the source.
    """
    (folder / "prometheus.yml").write_text("global: {}\n")
    write_samples(folder / "samples", source, repeated, nodes, instants)
    data = str(folder / "data")
    create_blocks(folder, "openmetrics", str(folder / "samples"), data)
    (folder / "rules.yml").write_text(yaml.safe_dump({"groups": recordings()}))
    span = (f"--start={instants[0]}", f"--end={instants[-1]}", f"--eval-interval={instants.step}s")
    for _ in range(PASSES):
        # it reads new blocks when it starts
        with serving_blocks(folder, listen):
            target = (f"--url=http://{listen}", f"--output-dir={data}", str(folder / "rules.yml"))
            create_blocks(folder, "rules", *span, *target)


def recordings() -> list[dict[str, Any]]:
    """The groups of recordings over all nodes."""
    document = yaml.safe_load((ROOT / "dashboards" / "rules" / "ibpulse-recording.yaml").read_text())
    return [{**group, "interval": f"{STEP_SECONDS}s"} for group in document["groups"] if group["name"] in EVALUATED]


def names_read() -> set[str]:
    """The words of all expressions of the first screens and of these recordings, metric names among them."""
    rules = [rule for group in recordings() for rule in group["rules"]]
    boards = [json.loads((ROOT / "dashboards" / f"{name}.json").read_text()) for name in FIRST_SCREENS]
    # the panels of a collapsed row are in the row
    targets = [target for board in boards for panel in board["panels"] for target in panel.get("targets", ())]
    variables = [each for board in boards for each in board["templating"]["list"] if each["type"] == "query"]
    texts = [each.get("expr", "") for each in (*rules, *targets)] + [each["query"] for each in variables]
    recorded = {rule["record"] for rule in rules}
    return {word for text in texts for word in re.findall(r"[a-zA-Z_][\w:]*", text)} - recorded


def write_samples(path: Path, source: str, repeated: str, nodes: int, instants: range) -> None:
    """Write the samples of all nodes as OpenMetrics text, sorted by metric.

    Raises:
        SystemExit: the node to repeat is not at the source.
    """
    instances = sorted({series["metric"]["instance"] for series in ask(source, 'up{job=~".*ibpulse"}', instants)})
    if repeated not in instances:
        raise SystemExit(f"{source} has no instance {repeated!r}; it has {', '.join(instances)}")
    others = [instance for instance in instances if instance != repeated]
    copies = {instance: [f"gpu-{number:03}"] for number, instance in enumerate(others)}
    copies[repeated] = [f"gpu-{number:03}" for number in range(len(others), nodes)]
    listed = f"{source}/api/v1/label/__name__/values"
    with urllib.request.urlopen(listed, timeout=60) as answer:
        names = names_read().intersection(json.load(answer)["data"])
    with path.open("w") as file:
        for name in sorted(names):
            file.write(f"# TYPE {name} unknown\n")
            # recordings are up to five minutes apart; a sample that is over must not stay for as long
            for series in ask(source, f"last_over_time({name}[{'5m' if ':' in name else '75s'}])", instants):
                for labels in relabelled(series["metric"], copies):
                    file.writelines(f"{name}{{{labels}}} {value} {at}\n" for at, value in series["values"])
        file.write("# EOF\n")


def relabelled(labels: Mapping[str, str], copies: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """The labels of a series of a node for each of its copies, which have a job for every few nodes."""
    for number, name in enumerate(copies.get(labels.get("instance", ""), ())):
        new = {**labels, "instance": name, "node": name, "cluster": "east"}
        new.pop("__name__", None)
        if "job_id" in new:
            new["job_id"] = f"{new['job_id']}-{number // NODES_PER_JOB:02}"
        yield ",".join(f"{label}={json.dumps(value)}" for label, value in sorted(new.items()))


def ask(source: str, query: str, instants: range) -> list[Series]:
    """The series of a query, sampled at these instants."""
    span = {"start": str(instants[0]), "end": str(instants[-1]), "step": str(instants.step)}
    url = f"{source}/api/v1/query_range?{urllib.parse.urlencode({'query': query, **span})}"
    with urllib.request.urlopen(url, timeout=120) as answer:
        found: list[Series] = json.load(answer)["data"]["result"]
        return found


def create_blocks(folder: Path, kind: str, *arguments: str) -> None:
    """Create blocks with promtool; what it says goes to a file."""
    with (folder / "promtool.log").open("ab") as log:
        subprocess.run(["promtool", "tsdb", "create-blocks-from", kind, *arguments], check=True, stdout=log)


@contextlib.contextmanager
def serving_blocks(folder: Path, listen: str) -> Iterator[subprocess.Popen[bytes]]:
    """A Prometheus that serves the blocks in a folder, and is ready.

    Raises:
        SystemExit: it is not ready in a minute.
    """
    flags = (f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}")
    quiet = ("--storage.tsdb.retention.time=10y", "--log.level=error", f"--web.listen-address={listen}")
    with subprocess.Popen(["prometheus", *flags, *quiet]) as process:
        try:
            wait_until_ready(f"http://{listen}/-/ready")
            yield process
        finally:
            process.terminate()


def wait_until_ready(url: str) -> None:
    """Ask twice a second for a minute."""
    for _ in range(120):
        time.sleep(0.5)
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5):
            return
    raise SystemExit(f"{url} does not answer")


if __name__ == "__main__":
    sys.exit(main())
