"""How far a recording is, as text for people. It must not print."""

from __future__ import annotations

from pathlib import Path

from ibpulse.recorder.session import Progress

_SIZES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def say_progress(progress: Progress) -> str:
    """One line: time, bandwidth of the rails, size of the file and how it grows, time left if there is a bound."""
    bandwidth = progress.bandwidth_bytes_per_second
    parts = [
        f"{say_seconds(progress.seconds)} of {progress.ports} ports",
        "nothing measured" if bandwidth is None else f"{bandwidth / 1e9:.1f} GB/s",
        f"{say_size(progress.bytes_written)}"
        + (f" ({say_size(progress.bytes_written / progress.seconds)}/s)" if progress.seconds else ""),
    ]
    if progress.kept_ratio < 1:
        parts.append(f"{say_ratio(progress.kept_ratio)} kept")
    if progress.remaining_seconds is not None:
        parts.append(f"{say_seconds(progress.remaining_seconds)} left")
    return ", ".join(parts)


def say_end(path: Path, progress: Progress, file_bytes: int, trimmed_seconds: float) -> str:
    """What was recorded: one sentence."""
    cut = f"; {say_seconds(trimmed_seconds)} of silence cut off" if trimmed_seconds >= 0.05 else ""
    return (
        f"{path}: {say_seconds(progress.seconds - trimmed_seconds)} of {progress.ports} ports, "
        f"{progress.ticks} ticks read, {say_ratio(progress.kept_ratio)} of their samples kept, "
        f"{say_size(file_bytes)}{cut}"
    )


def say_seconds(seconds: float) -> str:
    """Hours, minutes and seconds, like `1h02m03s`, `2m03s` or `3.5s`."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m{rest:02}s" if hours else f"{minutes}m{rest:02}s"


def say_size(size_bytes: float) -> str:
    """A size in decimal units, like `1.2 MB`."""
    for size, unit in _SIZES:
        if size_bytes >= size:
            return f"{size_bytes / size:.1f} {unit}"
    return f"{size_bytes:.0f} B"


def say_ratio(ratio: float) -> str:
    """A share of all that never says all when it is not: `99.98 %`."""
    return "100 %" if ratio >= 1 else f"{min(ratio * 100, 99.99):.2f} %"
