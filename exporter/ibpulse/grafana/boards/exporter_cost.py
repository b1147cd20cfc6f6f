"""What an exporter costs, its captures and its version. It must not judge what it measures."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as model

from ibpulse.grafana.fields import ORANGE
from ibpulse.grafana.panels import Face, lines
from ibpulse.grafana.queries import Query, Scope, by_node
from ibpulse.grafana.tables import Column, table

NODES = Scope()
NOTHING = "No exporter of this selection answers"


def cost_panels() -> list[model.Panel]:
    """Processor, memory, scrapes, requests, captures, versions."""
    return [_cpu(), _memory(), _scrapes(), _requests(), _captures(), _capture_size(), _versions()]


def _cpu() -> model.Panel:
    return lines(
        Face("CPU", "Processor time of the daemon, and of its sampler; 1 is a whole core.", "percentunit", NOTHING),
        [
            Query(NODES.rate("process_cpu_seconds_total"), "{{instance}} daemon"),
            Query(NODES.rate("ibpulse_sampler_cpu_seconds_total"), "{{instance}} sampler"),
        ],
    )


def _memory() -> model.Panel:
    return lines(
        Face(
            "Memory of the daemon",
            "Resident memory of the main process; the sampler's is not in it, the shared ring is.",
            "bytes",
            NOTHING,
        ),
        [Query(NODES.pick("process_resident_memory_bytes"))],
    )


def _scrapes() -> model.Panel:
    return lines(
        Face(
            "Scrapes",
            "How long a scrape took, as Prometheus saw it.",
            "s",
            NOTHING,
        ),
        [Query(NODES.pick("scrape_duration_seconds"))],
    )


def _requests() -> model.Panel:
    return lines(
        Face("Requests", "Requests per second that the exporter answered, by status.", "reqps", NOTHING),
        [Query(f"sum by (code) ({NODES.rate('ibpulse_http_requests_total')})", "{{code}}")],
    )


def _captures() -> model.Panel:
    return lines(
        Face(
            "Captures",
            "Captures taken and captures that could not be written, in a point of the picture. Absent without a "
            "directory for them.",
            "none",
            "The flight recorder has no directory",
        ),
        [
            Query(by_node("sum", NODES.over("increase", "ibpulse_captures_total")), "{{instance}} taken"),
            Query(by_node("sum", NODES.over("increase", "ibpulse_capture_errors_total")), "{{instance}} failed"),
        ],
    )


def _capture_size() -> model.Panel:
    return lines(
        Face("Size of the captures", "All captures in the directory of each node.", "decbytes", "No captures"),
        [Query(NODES.pick("ibpulse_capture_stored_bytes"))],
    )


def _versions() -> model.Panel:
    build = f"max by (cluster, job, instance, version, python) ({NODES.pick('ibpulse_build_info')})"
    scheduler = (
        "max by (cluster, job, instance, requested, actual, cpu_actual) "
        f"({NODES.pick('ibpulse_sampler_scheduler_info')})"
    )
    newest = by_node("max", NODES.pick("ibpulse_capture_last_timestamp_seconds"))
    return table(
        Face(
            "Exporters",
            "Version, scheduling class that was asked for and that the sampler got, things that the last scan has to "
            "tell (see the page of the node), captures.",
            "none",
            NOTHING,
            width=24,
        ),
        [
            Column("", build, "none"),
            Column("", scheduler, "none"),
            Column("Notices", by_node("max", NODES.pick("ibpulse_fabric_notices")), "none", ((1, ORANGE),)),
            Column("Captures", by_node("max", NODES.pick("ibpulse_captures_stored")), "none"),
            Column("Newest capture", f"1000 * {newest}", "dateTimeAsIso"),
        ],
        {
            "instance": "Node",
            "job": "Job",
            "cluster": "Cluster",
            "version": "Version",
            "python": "Python",
            "requested": "Scheduler asked for",
            "actual": "Scheduler",
            "cpu_actual": "CPU",
        },
        sort=("Notices",),
    )
