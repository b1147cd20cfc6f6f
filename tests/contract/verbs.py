"""What the command line prints: help, completion, results as text and JSON, refusals, each with its exit code."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from ibpulse.commands import VERBS
from tests.contract.goldens import Golden
from tests.contract.inputs import write_inputs
from tests.contract.surroundings import run, surroundings

# its default depends on the machine
RING = "--ring.dir=/run/ibpulse"
# by golden; `ibpulse`, `--help` and `--help-all` of every verb come by themselves
COMMANDS: Mapping[str, Sequence[str]] = {
    "ibpulse": (
        "",
        "--help",
        "--version",
        "help report",
        "fleet --help",
        "nonsense",
        "recrod x.parquet",
        "fleet",
        "fleet raport",
        "report --formt=json dense.parquet",
        "serve surplus",
        "serve --sampler.interval=7ms --web.listen-address=nowhere",
    ),
    "completion": ("completion bash", "completion zsh", "completion fish", "completion tcsh"),
    "config": (
        f"config check {RING}",
        f"config check {RING} --config.file=settings.yaml --sampler.history=10m",
        f"config check {RING} --web.config.file=web.yml",
        "config check --config.file=wrong.yaml",
        "config check --config.file=none.yaml",
        f"config print {RING}",
        f"config print {RING} --format=json",
        "config",
    ),
    "serve": ("serve --sampler.interval=10xs", "serve --config.file=wrong.yaml"),
    "demo": ("demo --workload=nothing", "demo --ports=0 --nodes=99", "demo --fault=slow-rail"),
    "gateway": ("gateway", "gateway --nodes.sources=ftp://x"),
    "simulate": ("simulate", "simulate dataset", "simulate new --ports=0", "simulate new --fault=none=mlx5_0"),
    "doctor": ("doctor --check=nonsense", "doctor --watch=x"),
    "record": (
        "record",
        "record new.parquet --from=node7:10055",
        "record dense.parquet --duration=1s",
        "record new.parquet --duration=x --until-idle=0s",
    ),
    "replay": ("replay", "replay none.parquet new", "replay broken.parquet new", "replay dense.parquet dataset"),
    "top": ("top", "top --url=http://127.0.0.1:1 --alone", "top --from=node7"),
    "import": (
        "import log.csv -o log.parquet --time=when --port=port --transmit=tx --receive=rx --unit=MB --since-before",
        "import log.csv",
        "import log.csv -o new.parquet --time=none --port=port --transmit=tx --receive=rx --unit=words",
    ),
    "report": (
        "report dense.parquet --resamples=200",
        "report dense.parquet moe.parquet --resamples=200",
        "report dense.parquet moe.parquet --resamples=200 --brief",
        "report dense.parquet moe.parquet --resamples=200 --format=json",
        "report dense.parquet moe.parquet --resamples=200 --format=markdown",
        "report log.parquet --resamples=200 --format=html",
        "report node3.parquet lossy.parquet --resamples=200",
        "report dense.parquet moe.parquet --resamples=200 --claim=20ms --last=4s",
        "report dense.parquet --from=1s --to=3s --port=mlx5_1 --title=before --resamples=200",
        "report",
        "report none.parquet",
        "report broken.parquet",
        "report dense.parquet --last=0s --from=x",
        "report dense.parquet --port=mlx5_9",
        "report dense.parquet -o dense.parquet",
    ),
    "render": (
        "render dense.parquet moe.parquet -o rails.png",
        "render dense.parquet lossy.parquet -o rails.perfetto --last=2s",
        "render dataset -o rails.perfetto --force",
        "render dense.parquet -o new.perfetto --job=7 --trim",
        "render dense.parquet -o spread.svg --picture=distribution",
        "render dense.parquet",
        "render dense.parquet -o x.docx",
        "render dense.parquet -o dense.parquet",
        "render broken.parquet -o x.png",
    ),
    "model": (
        "model --model=qwen2.5-7b --nodes=2 --rails=7 --algorithm=ring --recompute=none --step=315ms",
        "model --model=mixtral-8x7b --nodes=2 --format=json",
        "model job.yaml",
        "model config.json --nodes=2",
        "model --job=qwen2.5-7b-fsdp --step=315ms --against=lossy.parquet -o steps.png",
        "model",
        "model --model=nonsense --nodes=2",
        "model none.yaml",
        "model wrong.yaml",
        "model --job=none",
    ),
    "model-experts": (
        "model experts loads.csv --ranks=4 --nodes=2",
        "model experts loads.csv --ranks=4 --nodes=2 --format=json",
        "model experts loads.csv --ranks=3 --nodes=2",
        "model experts none.csv --ranks=4 --nodes=2",
    ),
    "model-check": (
        "model check run_config.yaml",
        "model check run_config.yaml --set torch=2.6.0 --format=json",
        "model check run_config.yaml --set moe_token_dispatcher_type=alltoall --strict",
        "model check model_args.yaml --format=json",
        "model check none.yaml",
    ),
    "nccl": (
        "nccl nccl.txt --rails=8 --rate=50GB/s --gpu-rate=450GB/s --algorithm=ring",
        "nccl nccl.json perftest.json --rate=50GB/s --format=json",
        "nccl nccl.json",
        "nccl",
        "nccl none.txt",
        "nccl log.csv",
        "nccl nccl.txt --rate=400 --ranks=0 --mtu=-1",
    ),
    "trace": (
        "trace rank0.json",
        "trace rank0.json --against=node7.parquet",
        "trace rank0.json --against=node7.parquet --format=json",
        "trace",
        "trace none.json",
        "trace config.json",
        "trace rank0.json --against=moe.parquet",
        "trace rank0.json --against=node7.parquet --shift=10ms",
        "trace rank0.json --against=node7.parquet --shift=20ms",
        "trace rank0.json --against=node7.parquet -o merged.json.gz",
        "trace rank0.json --against=moe.parquet -o shifted.json --shift=0ms",
    ),
    "fleet-collect": (
        "fleet collect node1.parquet -o collected --processes=1 --nodes.sources=nodes.json",
        "fleet collect node1.parquet -o collected --processes=1 --nodes.sources=nodes.json",
        "fleet collect",
        "fleet collect -o collected",
        "fleet collect a -o collected --last=x --processes=0",
        "fleet collect none.parquet -o collected --processes=1",
    ),
    "fleet-report": (
        "fleet report dataset",
        "fleet report dataset --format=json",
        "fleet report dataset --job=9999",
        "fleet report none",
        "fleet report",
    ),
    "fleet-render": (
        "fleet render dataset -o waterfall.png",
        "fleet render dataset",
        "fleet render none -o none.png",
        "fleet render dataset -o x.png --picture=nonsense",
    ),
}


def verb_goldens(folder: Path) -> list[Golden]:
    """Help of every verb, then a golden for each row of the table. They work in the folder, which is empty."""
    with surroundings(folder):
        write_inputs(folder)
        names = sorted(VERBS)
        help_pages = [line for name in names for line in (f"{name} --help", f"{name} --help-all")]
        goldens = [Golden("help.txt", dict(_answers(help_pages)))]
        return goldens + [Golden(f"{name}.txt", dict(_answers(lines))) for name, lines in COMMANDS.items()]


def _answers(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """What each command line does, with the names of the files that it wrote."""
    seen: dict[str, int] = {}
    for line in lines:
        before = set(Path().rglob("*"))
        answer = without_pictures(like_newer_python(str(run(shlex.split(line)))))
        written = sorted(str(path) for path in set(Path().rglob("*")) - before if path.is_file())
        seen[line] = seen.get(line, 0) + 1
        title = f"ibpulse {line}".strip() + (f" (again: {seen[line]})" if seen[line] > 1 else "")
        yield title, answer + "".join(f"wrote {name}\n" for name in written)


def like_newer_python(text: str) -> str:
    """Help and refusals of argparse as Python 3.13 has them."""
    text = re.sub(r"^  (-\w) (\S+), (--[\w-]+) \2$", r"  \1, \3 \2", text, flags=re.MULTILINE)
    return re.sub(r"\(choose from [^)]*\)", lambda found: found[0].replace("'", ""), text)


def without_pictures(text: str) -> str:
    """The text without the bytes of pictures and their sizes, which are those of Matplotlib's release."""
    text = re.sub(r"(data:(?:image/\w+|application/gzip);base64),[\w+/=]+", r"\1,…", text)
    return re.sub(r"^(\S+\.(?:png|svg): .*, )\d+ kB$", r"\1… kB", text, flags=re.MULTILINE)
