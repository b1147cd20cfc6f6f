"""`ibpulse report` and `ibpulse render` of recordings: files, or the recent past of daemons."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from ibpulse.agent.config import Settings
from ibpulse.base.document import members_of
from ibpulse.base.errors import ConfigError, PictureError, RecordingError
from ibpulse.base.files import write_whole
from ibpulse.base.text import count_text, escape_controls, kilobytes, size_text
from ibpulse.base.units import SECOND_NS, parse_duration
from ibpulse.commands.options import LAST
from ibpulse.core.captures import TRACE_SUFFIX
from ibpulse.core.client import wait_for_daemon
from ibpulse.core.recordings import Recording
from ibpulse.workbench import fleet, recorder
from ibpulse.workbench.pictures.options import KINDS, PictureOptions, choose_kind, size_faults
from ibpulse.workbench.pictures.still import draw_report, name_runs, picture_run, render
from ibpulse.workbench.reports.comparison import Report, assemble
from ibpulse.workbench.reports.formats import render_json, render_markdown, render_page, render_text
from ibpulse.workbench.reports.run import describe_run
from ibpulse.workbench.reports.span import Outside, ReportOptions, load_part


def await_daemon(url: str) -> str:
    """The URL, once its daemon listens or 15 s have passed; waiting is reported on standard error."""
    wait_for_daemon(url, lambda text: print(f"ibpulse: {text}", file=sys.stderr, flush=True))
    return url


def read_recordings(arguments: argparse.Namespace, faults: list[str]) -> list[Path | str]:
    """The files and addresses that are given; errors are appended to `faults`."""
    found = [*arguments.files, *arguments.url]
    if not found:
        faults.append("no recording is given; name a file, or the address of a daemon with --url")
    if any(isinstance(each, str) for each in found) and (arguments.begin or arguments.end):
        faults.append("flag --from: a daemon's recent past is chosen with --last; use that, or record it first")
    return found


def source_path(source: Path | str) -> Path:
    """The path that names a recording: that of its file, or host, port and path of an address, without its password."""
    if isinstance(source, Path):
        return source
    parts = urlsplit(source if "://" in source else f"http://{source}")
    return Path(parts.netloc.rpartition("@")[2] + parts.path.rstrip("/"))


def load_source(source: Path | str, options: ReportOptions, last_ns: int) -> tuple[Recording, Outside]:
    """The part of a file that the options select, or the last `last_ns` (default: 60 s) of a daemon."""
    if isinstance(source, Path):
        return load_part(source, options, last_ns)
    return recorder.fetch_recent(await_daemon(source), last_ns or parse_duration(LAST)), (0, 0)


def load_against(arguments: argparse.Namespace, options: ReportOptions) -> tuple[Path, Recording, Outside] | None:
    """The recording of `--against`, or the last of the daemon at `--url`, as `load_source`; None without them."""
    if isinstance(arguments.against, str):
        raise ConfigError(f"flag --against: {arguments.against!r} is an address; use --url={arguments.against}")
    if arguments.against and arguments.url:
        raise ConfigError("flag --against: cannot be combined with --url; use one of them")
    source: Path | str | None = arguments.against or arguments.url
    return (source_path(source), *load_source(source, options, arguments.last or 0)) if source else None


def check_output(arguments: argparse.Namespace, faults: list[str]) -> None:
    """Check that the output may be written, and that there are not more titles than files.

    Errors are appended to `faults`.
    """
    output, files = arguments.output, len(arguments.files) + len(arguments.url)
    if output is not None and not arguments.force and output.exists():
        faults.append(f"output {output} exists; use --force to replace it, or name another file")
    if len(arguments.title) > files:
        faults.append(f"flag --title: {len(arguments.title)} titles for {files} recordings; give at most one for each")


SUFFIXES = {".md": "markdown", ".json": "json", ".html": "html"}
RENDERERS = {"text": render_text, "markdown": render_markdown, "json": render_json}


def run_report(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print the report, or write it to a file."""
    faults: list[str] = arguments.faults
    sources = read_recordings(arguments, faults)
    options = _options(arguments, settings, len(sources), faults)
    output: Path | None = arguments.output
    form = arguments.format or SUFFIXES.get(output.suffix.lower() if output else "", "text")
    runs, drawn = [], []
    for place, source in enumerate(sources):
        recording, outside = load_source(source, options, arguments.last or 0)
        runs.append(describe_run(source_path(source), recording, options, place, outside))
        if form == "html" and place < KINDS["heatmap"].most_runs:
            drawn.append((recording, outside))
    report = assemble(runs, options, arguments.title)
    text = _page(report, drawn, options) if form == "html" else RENDERERS[form](report)
    if output is None:
        print(text, end="")
    else:
        write_whole(output, lambda path: path.write_text(text, encoding="utf-8"), RecordingError)
        print(escape_controls(f"{output}: report of {', '.join(report.names)}, {size_text(output.stat().st_size)}"))
    return 0


def _page(report: Report, drawn: Sequence[tuple[Recording, Outside]], options: ReportOptions) -> str:
    """The page with the first recordings, and their heatmap if matplotlib is installed."""
    picture, recordings = None, [recording for recording, _ in drawn]
    try:
        picture = draw_report(report, drawn)
    except PictureError as error:
        print(f"ibpulse: the page has no picture: {error}", file=sys.stderr)
    return render_page(report, picture, recordings, options.ports)


def _options(arguments: argparse.Namespace, settings: Settings, count: int, faults: list[str]) -> ReportOptions:
    """The options for `count` recordings."""
    check_output(arguments, faults)
    given = len(arguments.gpu_active)
    if given not in (0, 1, count):
        faults.append(f"flag --gpu-active: given {given} times for {count} recordings; give it once, or once for each")
    if arguments.claim and count != 2:
        faults.append(f"flag --claim: is about two recordings, before and after a change; {count} are given")
    if faults:
        raise ConfigError(faults)
    return replace(
        _choose_part(arguments, settings),
        timescales_ns=arguments.timescales,
        gpu_active=tuple(arguments.gpu_active),
        claim_seconds=(arguments.claim or 0) / SECOND_NS,
        **members_of(arguments, "least_change", "resamples", "seed", "brief"),
    )


def _choose_part(arguments: argparse.Namespace, settings: Settings) -> ReportOptions:
    """The part of each recording that the arguments choose."""
    return ReportOptions(
        ports=tuple(arguments.port),
        active_bytes_per_second=settings.analysis.active_threshold,
        **members_of(arguments, "begin", "end", "trim"),
    )


def run_render(arguments: argparse.Namespace, settings: Settings) -> int:
    """Draw the picture, or write the trace for Perfetto, and print its path and size."""
    faults: list[str] = arguments.faults
    if arguments.output.suffix == TRACE_SUFFIX:
        return _write_trace(arguments, settings, faults)
    if arguments.job:
        faults.append(
            f"flag --job: chooses the nodes of a trace; write one with -o NAME{TRACE_SUFFIX}, or use fleet render"
        )
    kind = choose_kind(arguments.output, arguments.picture)
    sources = read_recordings(arguments, faults)
    chosen, options = _read_options(arguments, settings, kind, len(sources), faults)

    names = name_runs([source_path(source) for source in sources], arguments.title)
    runs = []
    for source, name in zip(sources, names, strict=True):
        part, outside = load_source(source, chosen, arguments.last or 0)
        runs.append(picture_run(source_path(source), name, part, chosen, options.direction, outside))

    render(kind, runs, arguments.output, options)
    size_bytes = arguments.output.stat().st_size
    print(escape_controls(f"{arguments.output}: {kind} of {', '.join(names)}, {kilobytes(size_bytes)}"))
    return 0


def _write_trace(arguments: argparse.Namespace, settings: Settings, faults: list[str]) -> int:
    sources = read_recordings(arguments, faults)
    check_output(arguments, faults)
    if arguments.picture or arguments.trim:
        faults.append(f"flag --{'picture' if arguments.picture else 'trim'}: is not for {TRACE_SUFFIX}; omit it")
    if arguments.job and any(isinstance(each, Path) and not each.is_dir() for each in sources):
        faults.append("flag --job: chooses the nodes of a dataset or a gateway, not of a recording; omit it")
    if faults:
        raise ConfigError(faults)
    for source in sources:
        if isinstance(source, str):
            await_daemon(source)
    recent_ns, options = arguments.last or parse_duration(LAST), _choose_part(arguments, settings)
    nodes = fleet.open_sources(sources, arguments.job, options, arguments.last or 0, recent_ns)
    count = fleet.save_trace(nodes, arguments.output, settings.analysis.active_threshold)
    size = size_text(arguments.output.stat().st_size)
    print(escape_controls(f"{arguments.output}: trace of {count_text(count, 'node')}, {size}; open it in Perfetto"))
    return 0


def _read_options(
    arguments: argparse.Namespace, settings: Settings, kind: str, count: int, faults: list[str]
) -> tuple[ReportOptions, PictureOptions]:
    """The part of `count` recordings, and how to draw it."""
    width = arguments.width or KINDS[kind].width_pixels
    dpi = arguments.dpi or KINDS[kind].dpi
    check_output(arguments, faults)
    chosen = replace(_choose_part(arguments, settings), resamples=1)
    options = PictureOptions(
        width_pixels=width,
        dpi=dpi,
        frames_per_second=arguments.fps,
        window_ns=arguments.window,
        **members_of(arguments, "unit", "theme", "direction", "statistic", "speed"),
        active_bytes_per_second=settings.analysis.active_threshold,
    )
    faults += size_faults(width, dpi)
    if count > KINDS[kind].most_runs:
        faults.append(f"{count} recordings given, but a {kind} takes at most {KINDS[kind].most_runs}")
    if faults:
        raise ConfigError(faults)
    return chosen, options
