"""The settings as checked, frozen values: types, the checks of each, and the checks across settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from ibpulse.config.setting_types import (
    Address,
    Count,
    Cpu,
    DurationNs,
    GridNs,
    GridsNs,
    NodeNames,
    OptionalPath,
    PortPatterns,
    RateBytesPerSecond,
    Ratio,
    SecondsNs,
    SizeBytes,
    SomePath,
    Switch,
    TickBytes,
    WindowsNs,
    Words,
    choice,
    lasting,
)
from ibpulse.config.table import row
from ibpulse.units import SECOND_NS, format_duration
from ibpulse.validators import between, some_of


def setting(name: str) -> Any:
    """A field with the name, default and help that the table gives."""
    entry = row(name)
    return Field(
        default=entry.default,
        alias=name.partition(".")[2],
        description=entry.sentence,
        validate_default=True,
    )


def group() -> Any:
    """A field for a group; when no source mentions it, it has all its defaults."""
    return Field(default_factory=dict, validate_default=True)


class SettingsGroup(BaseModel):
    """Settings that share the first part of their name."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class PathSettings(SettingsGroup):
    """Where the kernel's files are."""

    sysfs: SomePath = setting("path.sysfs")


class SamplerSettings(SettingsGroup):
    """How the counters are sampled."""

    interval: Annotated[GridNs, lasting("1ms", "1s")] = setting("sampler.interval")
    history: Annotated[DurationNs, lasting("10s", "1h")] = setting("sampler.history")
    scheduler: Annotated[Literal["other", "fifo"], choice("other", "fifo")] = setting("sampler.scheduler")
    cpu: Cpu = setting("sampler.cpu")


class RingSettings(SettingsGroup):
    """Where the raw samples are kept."""

    dir: SomePath = setting("ring.dir")


class PortSettings(SettingsGroup):
    """Which ports are read, and which of them are rails."""

    include: PortPatterns = setting("ports.include")
    exclude: PortPatterns = setting("ports.exclude")
    rails: PortPatterns = setting("ports.rails")


class AnalysisSettings(SettingsGroup):
    """What is computed from the samples; windows and time scales are sorted, shortest first."""

    active_threshold: RateBytesPerSecond = setting("analysis.active-threshold")
    windows: WindowsNs = setting("analysis.windows")
    timescales: GridsNs = setting("analysis.timescales")
    traffic_window: Annotated[SecondsNs, lasting("10s", "10m")] = setting("analysis.traffic-window")
    saturation_level: Ratio = setting("analysis.saturation-level")
    saturation_window: Annotated[SecondsNs, lasting("5s", "10m")] = setting("analysis.saturation-window")
    moe_saturation_hold: Annotated[DurationNs, lasting("1s", "1h")] = setting("analysis.moe-saturation-hold")
    moe_saturation_duty: Ratio = setting("analysis.moe-saturation-duty")
    moe_saturation_peak: Ratio = setting("analysis.moe-saturation-peak")


class SlowSettings(SettingsGroup):
    """What is read beside the samples."""

    interval: Annotated[DurationNs, lasting("1s", "10m")] = setting("slow.interval")
    counters: Annotated[Literal["diagnostic", "all", "none"], choice("diagnostic", "all", "none")] = setting(
        "slow.counters"
    )
    xmit_wait_tick: TickBytes = setting("slow.xmit-wait-tick")


class TopologySettings(SettingsGroup):
    """Where devices are plugged in, if the kernel does not say."""

    file: OptionalPath = setting("topology.file")


class WebSettings(SettingsGroup):
    """How the results are served."""

    listen_address: Address = setting("web.listen-address")
    config_file: OptionalPath = setting("web.config.file")
    max_points: Annotated[Count, between(1_000, 100_000_000)] = setting("web.max-points")


class CaptureSettings(SettingsGroup):
    """What freezes the samples around an instant to a file."""

    dir: SomePath = setting("capture.dir")
    before: Annotated[DurationNs, lasting("1s", "1h")] = setting("capture.before")
    after: Annotated[DurationNs, lasting("0s", "10m")] = setting("capture.after")
    rules: Annotated[Words, some_of("traffic-stalled", "rail-lost", "moe-saturation", "step-slower")] = setting(
        "capture.rules"
    )
    cooldown: Annotated[DurationNs, lasting("1s", "30d")] = setting("capture.cooldown")
    max_count: Annotated[Count, between(1, 100_000)] = setting("capture.max-count")
    max_bytes: SizeBytes = setting("capture.max-bytes")
    min_free: SizeBytes = setting("capture.min-free")
    node: NodeNames = setting("capture.node")
    allow_unauthenticated: Switch = setting("capture.allow-unauthenticated")


class LogSettings(SettingsGroup):
    """What is logged."""

    level: Annotated[Literal["debug", "info", "warning", "error"], choice("debug", "info", "warning", "error")] = (
        setting("log.level")
    )
    format: Annotated[Literal["text", "json"], choice("text", "json")] = setting("log.format")


class Settings(BaseSettings):
    """All settings, checked."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid")

    path: PathSettings = group()
    sampler: SamplerSettings = group()
    ring: RingSettings = group()
    ports: PortSettings = group()
    analysis: AnalysisSettings = group()
    slow: SlowSettings = group()
    topology: TopologySettings = group()
    web: WebSettings = group()
    capture: CaptureSettings = group()
    log: LogSettings = group()

    def written(self) -> dict[str, dict[str, object]]:
        """The settings by group and name, as texts and lists of texts that every source takes back."""
        return self.model_dump(mode="json", by_alias=True)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """What is passed in alone: the environment is read elsewhere, so that each fault has its place."""
        return (init_settings,)


@dataclass(frozen=True, slots=True)
class Rule:
    """A check of several settings; `find` gives each fault's sentence, which stands at the first of the names."""

    names: tuple[str, ...]
    find: Callable[[Settings], Iterator[str]]


def fit_timescales(settings: Settings) -> tuple[int, ...]:
    """The time scales that are multiples of the interval; never none if one second is among them."""
    return tuple(scale for scale in settings.analysis.timescales if scale % settings.sampler.interval == 0)


def fit_traffic_window(settings: Settings) -> int:
    """The traffic window, or all whole seconds of the history if that is shorter."""
    return min(settings.analysis.traffic_window, settings.sampler.history // SECOND_NS * SECOND_NS)


def fit_capture_after(settings: Settings) -> int:
    """The time after a trigger, or a quarter of the history if that is shorter."""
    return min(settings.capture.after, settings.sampler.history // 4)


def fit_capture_before(settings: Settings) -> int:
    """The time before a trigger, or what the history has beside the time after it; at least a second."""
    return min(settings.capture.before, max(SECOND_NS, settings.sampler.history - settings.capture.after))


def _history_covers_captures(settings: Settings) -> Iterator[str]:
    history, wanted = settings.sampler.history, settings.capture.before + settings.capture.after
    if history < wanted:
        yield (
            f"{format_duration(settings.capture.before)} with capture.after, "
            f"{format_duration(settings.capture.after)}, is more than sampler.history, {format_duration(history)}; "
            f"raise sampler.history to {format_duration(wanted)} or shorten the capture"
        )


def _history_covers_windows(settings: Settings) -> Iterator[str]:
    history, longest = settings.sampler.history, max(settings.analysis.windows)
    if history < longest:
        yield (
            f"{format_duration(history)} is shorter than the longest of analysis.windows; "
            f"raise sampler.history to {format_duration(longest)} or leave that window out"
        )


def _history_covers_traffic(settings: Settings) -> Iterator[str]:
    history, window = settings.sampler.history, settings.analysis.traffic_window
    if history < window:
        yield (
            f"{format_duration(history)} is shorter than analysis.traffic-window; "
            f"raise sampler.history to {format_duration(window)} or shorten that window"
        )


def _timescales_fit_interval(settings: Settings) -> Iterator[str]:
    fitting = fit_timescales(settings)
    for scale in settings.analysis.timescales:
        if scale not in fitting:
            yield (
                f"{format_duration(scale)} is no multiple of sampler.interval, "
                f"{format_duration(settings.sampler.interval)}; leave it out or change the interval"
            )


RULES = (
    Rule(("sampler.history", "analysis.windows"), _history_covers_windows),
    Rule(("sampler.history", "analysis.traffic-window"), _history_covers_traffic),
    Rule(("capture.before", "capture.after", "sampler.history"), _history_covers_captures),
    Rule(("analysis.timescales", "sampler.interval"), _timescales_fit_interval),
)
