"""The settings as checked, frozen values: the type and the checks of each. It must not read any source.

Names, defaults and help stand in the table; fields are named as there, with `_` for `-`. Durations are whole
nanoseconds, rates bytes per second.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from ibpulse.config.table import row
from ibpulse.config.values import (
    POSITIVE,
    Address,
    Count,
    Cpu,
    DurationNs,
    GridNs,
    GridsNs,
    NodeNames,
    OptionalPath,
    OptionalRate,
    PortPatterns,
    RateBytesPerSecond,
    Ratio,
    SecondsNs,
    SixNumbers,
    SizeBytes,
    SomePath,
    Switch,
    TickBytes,
    WindowsNs,
    Words,
    between,
    choice,
    lasting,
    some_of,
)


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


class Group(BaseModel):
    """Settings that share the first part of their name."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class PathSettings(Group):
    """Where the kernel's files are."""

    sysfs: SomePath = setting("path.sysfs")


class SamplerSettings(Group):
    """How the counters are sampled."""

    interval: Annotated[GridNs, lasting("1ms", "1s")] = setting("sampler.interval")
    history: Annotated[DurationNs, lasting("10s", "1h")] = setting("sampler.history")
    scheduler: Annotated[Literal["other", "fifo"], choice("other", "fifo")] = setting("sampler.scheduler")
    cpu: Cpu = setting("sampler.cpu")


class RingSettings(Group):
    """Where the raw samples are kept."""

    dir: SomePath = setting("ring.dir")


class PortSettings(Group):
    """Which ports are read, and which of them are rails."""

    include: PortPatterns = setting("ports.include")
    exclude: PortPatterns = setting("ports.exclude")
    rails: PortPatterns = setting("ports.rails")


class AnalysisSettings(Group):
    """What is computed from the samples; windows and time scales are sorted, shortest first."""

    active_threshold: RateBytesPerSecond = setting("analysis.active-threshold")
    windows: WindowsNs = setting("analysis.windows")
    timescales: GridsNs = setting("analysis.timescales")
    burst_low: OptionalRate = setting("analysis.burst-low")
    traffic_window: Annotated[SecondsNs, lasting("10s", "10m")] = setting("analysis.traffic-window")
    signature_dense: SixNumbers = setting("analysis.signature-dense")
    signature_moe: SixNumbers = setting("analysis.signature-moe")
    signature_tolerance: Annotated[SixNumbers, POSITIVE] = setting("analysis.signature-tolerance")
    signature_confidence: Ratio = setting("analysis.signature-confidence")
    saturation_level: Ratio = setting("analysis.saturation-level")
    saturation_window: Annotated[SecondsNs, lasting("5s", "10m")] = setting("analysis.saturation-window")
    moe_saturation_hold: Annotated[DurationNs, lasting("1s", "1h")] = setting("analysis.moe-saturation-hold")
    moe_saturation_duty: Ratio = setting("analysis.moe-saturation-duty")
    moe_saturation_peak: Ratio = setting("analysis.moe-saturation-peak")


class SlowSettings(Group):
    """What is read beside the samples."""

    interval: Annotated[DurationNs, lasting("1s", "10m")] = setting("slow.interval")
    counters: Annotated[Literal["diagnostic", "all", "none"], choice("diagnostic", "all", "none")] = setting(
        "slow.counters"
    )
    xmit_wait_tick: TickBytes = setting("slow.xmit-wait-tick")


class TopologySettings(Group):
    """Where devices are plugged in, if the kernel does not say."""

    file: OptionalPath = setting("topology.file")


class WebSettings(Group):
    """How the results are served."""

    listen_address: Address = setting("web.listen-address")
    config_file: OptionalPath = setting("web.config.file")
    max_wide_requests: Annotated[Count, between(1, 64)] = setting("web.max-wide-requests")
    max_points: Annotated[Count, between(1_000, 100_000_000)] = setting("web.max-points")
    max_viewers: Annotated[Count, between(1, 1_000)] = setting("web.max-viewers")


class CaptureSettings(Group):
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


class LogSettings(Group):
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
