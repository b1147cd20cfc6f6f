"""What a firing alert silences: the consequences of a fault, while the fault itself is known.

They are inhibition rules of Alertmanager. A label that both alerts lack counts as equal, so a cause that is compared by
`node` must have one: without it, a single alert would silence every alert of ibpulse that has none.
"""

from __future__ import annotations

from dataclasses import dataclass

NODE = ("cluster", "instance")
PORT = (*NODE, "device", "port")


@dataclass(frozen=True, slots=True)
class Inhibition:
    """While one of `causes` fires, `effects` with the same labels `equal` notify nobody; `reason` says why.

    With `spares_critical`, those of them that are critical notify all the same.
    """

    causes: tuple[str, ...]
    effects: tuple[str, ...]
    equal: tuple[str, ...]
    reason: str
    spares_critical: bool = False


INHIBITIONS = (
    Inhibition(
        ("KubeNodeNotReady", "KubeNodeUnreachable"),
        ("IBPulse.+",),
        ("cluster", "node"),
        "The node itself is lost. Its job may be alive, so critical alerts notify.",
        spares_critical=True,
    ),
    Inhibition(
        ("IBPulseLinkDown",),
        ("IBPulseLinkWentDown", "IBPulseRailIdle", "IBPulseRailSlow", "IBPulseAckTimeouts"),
        PORT,
        "A port that is down carries nothing.",
    ),
    Inhibition(("IBPulseRailTrainedDown",), ("IBPulseRailSlow",), PORT, "The link is slow, so the rail is."),
    Inhibition(("IBPulsePcieDegraded",), ("IBPulseRailSlow",), (*NODE, "device"), "The card cannot move more."),
    Inhibition(
        ("IBPulseLinkDown", "IBPulseRailMissing", "IBPulseRailTrainedDown"),
        ("IBPulseNodeBehindItsJob",),
        NODE,
        "The node is slow for this reason.",
    ),
    Inhibition(
        ("IBPulseTrafficStalled",),
        ("IBPulseStepTimeRegressed", "IBPulseSustainedMoESaturation"),
        ("cluster", "job_id"),
        "The job does not run.",
    ),
)


Matcher = tuple[str, str, str]
"""A label, how it is compared, and with what."""


def matchers_of(row: Inhibition) -> tuple[list[Matcher], list[Matcher]]:
    """What chooses the causes, and what the effects."""
    causes, effects = (("alertname", "=~", "|".join(names)) for names in (row.causes, row.effects))
    return (
        [causes, *([("node", "!=", "")] if "node" in row.equal else [])],
        [effects, *([("severity", "!=", "critical")] if row.spares_critical else [])],
    )


def rule_of(row: Inhibition) -> dict[str, list[str]]:
    """The rule in Alertmanager's form."""
    causes, effects = ([f'{label}{how}"{text}"' for label, how, text in each] for each in matchers_of(row))
    return {"source_matchers": causes, "target_matchers": effects, "equal": list(row.equal)}


def resource_rule_of(row: Inhibition) -> dict[str, list[dict[str, str]] | list[str]]:
    """The rule in the form of the Prometheus operator's AlertmanagerConfig."""
    causes, effects = (
        [{"name": label, "matchType": how, "value": text} for label, how, text in each] for each in matchers_of(row)
    )
    return {"sourceMatch": causes, "targetMatch": effects, "equal": list(row.equal)}
