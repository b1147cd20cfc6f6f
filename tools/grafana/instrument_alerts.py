"""The alerts about ibpulse itself: whether the fleet is measured, and whether the numbers can be trusted."""

from __future__ import annotations

from tools.grafana.alert import AT_ONCE, DEVICE_NAME, INSTANCE, PORT_NAME, Alert
from tools.grafana.node_recordings import MISSED_WINDOW
from tools.grafana.rule_levels import DEVICE, EXPORTERS, FLEET, NODE, PORT, newest, summed, targets
from tools.grafana.rule_numbers import Threshold, fixed

BOARD = "ibpulse-exporter"
RESOLUTION, INTERVAL = (
    newest(f"ibpulse_port_{kind}_seconds") for kind in ("effective_resolution", "sampling_interval")
)
TOLERATED = Threshold("missing_share", "0.05", "Single nodes have alerts of their own, and some are always rebooting.")
SILENT = f"count by ({FLEET}) ({EXPORTERS} == 0<unless>)"
MISSING_SHARE = f"{SILENT} / on ({FLEET}) job:ibpulse_exporters:count"

COVERAGE = (
    Alert(
        "IBPulseExportersMissing",
        "warning",
        f"{MISSING_SHARE} > <missing_share>\n"
        "or on (cluster) cluster:ibpulse_missing_nodes:count / cluster:ibpulse_expected_nodes:count > <missing_share>\n"
        f"or absent({targets()})",
        Threshold("missing_for", "15m", "Longer than a rolling update takes for each group of nodes."),
        "A part of the fleet is not measured.",
        "<$value | humanizePercentage> of the nodes have no exporter that Prometheus can scrape.",
        (TOLERATED,),
        BOARD,
        of_node=False,
    ),
    Alert(
        "IBPulseExporterDown",
        "warning",
        # a rack without power is one alert, not one for each of its nodes until that one fires
        f"{EXPORTERS} == 0\nunless on ({FLEET}) ({MISSING_SHARE} > <missing_share> and {SILENT} > <missing_many>)",
        Threshold("exporter_for", "5m", "A rolling update restarts a node's pod within a minute or two."),
        "An exporter cannot be scraped.",
        f"Prometheus has not been able to scrape {INSTANCE} for <exporter_for>.",
        (
            TOLERATED,
            fixed(
                "missing_many",
                "10",
                "Nodes. More at once have one cause, and one alert if they are a large share.",
            ),
        ),
        BOARD,
    ),
    Alert(
        "IBPulseNumbersStale",
        "warning",
        f"max by ({NODE}) (changes(ibpulse_aggregated_until_timestamp_seconds[<stale_window>])) == 0",
        fixed("stale_for", "2m", "A daemon that restarts begins with a single sample."),
        "An exporter answers, but its numbers do not move.",
        f"{INSTANCE} has aggregated no new sample for <stale_window>: what it shows is old.",
        (fixed("stale_window", "3m", "At least two scrapes, even once a minute. No clock is compared with another."),),
        BOARD,
    ),
    Alert(
        "IBPulseSamplerDown",
        "warning",
        f"{newest('ibpulse_sampler_heartbeat_age_seconds', NODE)} > <heartbeat_age>",
        Threshold("sampler_for", "2m", "A daemon that restarts needs seconds."),
        "The sampler sends no heartbeat.",
        f"The sampler of {INSTANCE} has not sent a heartbeat for <$value | humanizeDuration>; no counters are read.",
        (fixed("heartbeat_age", "10", "Seconds. The supervisor restarts a silent sampler within three seconds."),),
        BOARD,
    ),
)
QUALITY = (
    Alert(
        "IBPulseReadsFailing",
        "warning",
        f"{newest('ibpulse_port_left_alone')} == 1\n"
        f"or (\n  {summed('rate', 'ibpulse_sampler_read_errors_total', '<read_errors_window>')}\n"
        f"  / on ({NODE}) group_left () {summed('rate', 'ibpulse_sampler_ticks_total', '<read_errors_window>', NODE)} "
        "> <read_errors_ratio>\n)",
        Threshold("read_errors_for", "10m", "A firmware reset is over by then."),
        "A port's counters cannot be read.",
        f"Reads of the byte counters of port {PORT_NAME} fail. Failed reads are missing data, never zeros.",
        (
            fixed("read_errors_window", "10m", "A device being reset fails for seconds only."),
            Threshold("read_errors_ratio", "0.01", "Fewer than 1 % of missing samples do not affect the statistics."),
        ),
        BOARD,
    ),
    Alert(
        "IBPulseDeviceQuarantined",
        "warning",
        f"{newest('ibpulse_device_quarantined', DEVICE)} == 1",
        Threshold("quarantine_for", "5m", "A device that hung once leaves quarantine after ten steady seconds."),
        "A device hangs when it is read.",
        f"A read of {DEVICE_NAME} hung; the device has been quarantined (sampled by a separate process) for "
        "<quarantine_for>. The other devices are not affected.",
        board=BOARD,
    ),
    Alert(
        "IBPulseSamplerMissingTicks",
        "warning",
        "instance:ibpulse_missed_ticks:ratio > <missed_ratio>",
        Threshold("missed_for", "10m", "A booting node or a running build is done by then."),
        "The sampler misses samples.",
        f"{INSTANCE} missed <$value | humanizePercentage> of its samples in the last <missed_window>. Short "
        "peaks may be hidden in the missing samples.",
        (
            MISSED_WINDOW,
            Threshold(
                "missed_ratio",
                "0.01",
                "One sample in a hundred: below that, statistics do not change in their third digit.",
            ),
        ),
        BOARD,
    ),
    Alert(
        "IBPulseCpuThrottled",
        "warning",
        f"{summed('rate', 'ibpulse_cgroup_throttled_periods_total', '<throttled_window>', NODE)} > <throttled_rate>",
        fixed("throttled_for", "10m", "A process needs more CPU in its first minutes than later."),
        "A CPU limit throttles the exporter.",
        f"The kernel throttles the exporter of {INSTANCE} in <$value | humanize> periods per second. Each "
        "costs samples: remove the CPU limit; a request is enough.",
        (
            fixed("throttled_window", "10m", "A build or a log rotation is over by then."),
            Threshold(
                "throttled_rate",
                "0.1",
                "Throttled periods per second: one in a hundred, as there are ten periods per second.",
            ),
        ),
        BOARD,
    ),
    Alert(
        "IBPulseRecorderFailing",
        "warning",
        f"{summed('increase', 'ibpulse_capture_errors_total', '<recorder_window>', NODE)} > 0",
        AT_ONCE,
        "Captures cannot be written.",
        f"The flight recorder of {INSTANCE} failed to write <$value | humanize> captures in the last "
        "<recorder_window>. Its log gives the reason.",
        (fixed("recorder_window", "15m", "One alert per failing capture, not one per scrape."),),
        BOARD,
        keep=False,
    ),
)
NOTES = (
    Alert(
        "IBPulseCounterSourceDegraded",
        "info",
        f"{RESOLUTION} / {INTERVAL} > <degraded_factor>",
        Threshold("degraded_for", "10m", "The resolution is a quartile over a minute; ten minutes confirm it."),
        "A port's counters are updated less often than they are read.",
        f"The counters of port {PORT_NAME} change only every <$value | humanize> samples under traffic. "
        "Peaks, duty cycle and burstiness of this port are smeared over that time; bytes and means are correct.",
        (Threshold("degraded_factor", "2", "Jitter and quiet minutes never reach twice the sampling interval."),),
        BOARD,
    ),
    Alert(
        "IBPulseIntervalLengthened",
        "info",
        f"{newest('ibpulse_device_interval_lengthened', DEVICE)} == 1",
        Threshold("lengthened_for", "15m", "The daemon shortens the interval again when the device recovers."),
        "A device is sampled less often because its reads are slow.",
        f"Reads of {DEVICE_NAME} take so long that ibpulse samples it at a longer "
        "interval than the other devices. Its numbers are correct at that longer interval.",
        board=BOARD,
    ),
    Alert(
        "IBPulseCountersReset",
        "info",
        f"{summed('increase', 'ibpulse_port_resets_total', '<reset_window>')} > <reset_count>",
        AT_ONCE,
        "A port's counters are reset repeatedly.",
        f"The counters of port {PORT_NAME} were reset <$value | humanize> times in the last "
        "<reset_window>. Some tool clears them, or the firmware restarts; errors counted in between are lost to "
        "every reader.",
        (
            fixed("reset_window", "15m", "A single reset is harmless; repeated resets are not."),
            Threshold(
                "reset_count", "2", "A driver reload, or clearing the counters twice by hand, causes two resets."
            ),
        ),
        BOARD,
        keep=False,
    ),
    Alert(
        "IBPulseErrorCounterStuck",
        "info",
        f"max by ({PORT}, counter) (ibpulse_port_counter_saturated) == 1",
        fixed("stuck_for", "15m", "A tool that clears the counters regularly needs no alert."),
        "An error counter is full and counts nothing more.",
        f"The counter <$labels.counter> of port {PORT_NAME} is at its largest value: further errors are invisible "
        "until it is cleared.",
        board=BOARD,
    ),
    Alert(
        "IBPulseFabricNotice",
        "info",
        f"{newest('ibpulse_fabric_notices', NODE)} > 0",
        fixed("notice_for", "30m", "Devices that appear or disappear cause notices for a moment."),
        "An exporter has something to say about its devices.",
        f"The last scan of the devices of {INSTANCE} gave <$value> notices; its log and its page show them.",
        board=BOARD,
    ),
)
INSTRUMENT = (*COVERAGE, *QUALITY, *NOTES)
