"""What is said of the samples: cost, ticks, resolution, resets, flaps, balance, full counters."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from ibpulse.agent.doctor import Level, examine
from ibpulse.agent.doctor.facts import Counts, Folders, Reads
from ibpulse.agent.doctor.sample_checks import find_shortest_interval
from ibpulse.base.units import GRID_NS
from ibpulse.core.answers.statistics import RailStatistics
from ibpulse.core.model import ByteSource, Fabric
from tests.doctor.making import MS, make_facts, make_port, make_port_samples, only_trouble, sentences, troubles

RAILS = (make_port("mlx5_0"), make_port("mlx5_1"))
SILENT = RailStatistics(rail_share_ratio=0.0, rail_idle=True, rail_slow=False)
HW_FOLDER = "/sys/class/infiniband/rdmap0/ports/1/hw_counters"
HW_SOURCE = ByteSource("hw_bytes", (f"{HW_FOLDER}/tx_bytes",), (f"{HW_FOLDER}/rx_bytes",), 1, refresh_seconds=0.014)


def test_every_interval_divides_a_second() -> None:
    assert GRID_NS[:6] == (MS, 2 * MS, 4 * MS, 5 * MS, 8 * MS, 10 * MS)
    assert GRID_NS[-1] == 1000 * MS


@pytest.mark.parametrize(
    ("read", "tick", "expected"),
    [
        (1e-6, 16e-6, MS),
        # a read of 150 µs fits a tenth of 2 ms
        (150e-6, 300e-6, 2 * MS),
        # eight ports of two reads each: half of the interval
        (150e-6, 2.4e-3, 5 * MS),
        (0.9e-3, 7e-3, 20 * MS),
        (0.2, 0.2, None),
    ],
)
def test_the_shortest_reliable_interval_holds_every_read(read: float, tick: float, expected: int | None) -> None:
    assert find_shortest_interval(read, tick) == expected


def slow_reads(factor: float) -> Reads:
    return Reads(700, 1e-6 * factor, 10e-6 * factor, 50e-6 * factor, 20e-6 * factor)


def test_the_cost_of_reads_is_told() -> None:
    assert sentences(make_facts(), "reads") == [
        ": One read takes 1 µs (median), 10 µs (p99, on mlx5_0:1), 50 µs (maximum); "
        "all reads of a sample take 40 µs (p99). The shortest reliable interval is 1ms."
    ]


def test_an_interval_that_is_too_short_is_a_warning_with_the_right_one() -> None:
    slow = make_port_samples(reads=slow_reads(120))
    finding = only_trouble(make_facts(samples={"mlx5_0": slow, "mlx5_1": slow}))
    assert finding.sentence.endswith("The shortest reliable interval is 20ms, but sampler.interval is 10ms.")
    assert finding.advice == "Set sampler.interval to 20ms."


def test_reads_too_slow_for_any_interval_are_said_so() -> None:
    slow = make_port_samples(reads=slow_reads(20_000))
    finding = only_trouble(make_facts(samples={"mlx5_0": slow, "mlx5_1": slow}))
    assert "longer than 1s" in finding.sentence


def test_one_slow_card_among_others_is_named() -> None:
    rails = [make_port(f"mlx5_{number}") for number in range(4)]
    facts = make_facts(rails, samples={"mlx5_2": make_port_samples(reads=slow_reads(30))})
    finding = only_trouble(facts)
    assert (finding.subject, finding.topic) == ("mlx5_2:1", "reads")
    assert finding.sentence == "has slow reads: 300 µs at p99, compared with 10 µs on the other ports."


def test_a_port_that_the_sampler_reads_more_seldom_is_named() -> None:
    finding = only_trouble(make_facts(samples={"mlx5_1": make_port_samples(stride=2, resolution_seconds=0.02)}))
    assert finding.sentence == "is sampled only every 20 ms, as its reads are slow."


def test_a_look_without_reads_tells_no_cost() -> None:
    facts = make_facts([RAILS[0]], samples={"mlx5_0": make_port_samples(reads=None)})
    assert sentences(facts, "reads") == []


def test_lost_ticks_are_a_warning() -> None:
    finding = only_trouble(make_facts(sampling={"missed_ticks": 50}))
    assert (
        finding.sentence
        == "350 of 400 samples captured; median wake-up delay up to 100 µs; p99 wake-up delay up to 1 ms."
    )


def test_lateness_that_nobody_knows_is_left_out() -> None:
    facts = make_facts(sampling={"lateness_p50": None, "lateness_p99": None})
    assert sentences(facts, "ticks") == [": 350 of 350 samples captured."]
    assert sentences(make_facts(sampling={"ticks": 0}), "ticks") == []


def test_counters_that_are_refreshed_seldom_are_a_warning() -> None:
    finding = only_trouble(make_facts(samples={"mlx5_1": make_port_samples(resolution_seconds=0.1)}))
    assert (finding.subject, finding.topic) == ("mlx5_1:1", "resolution")
    assert finding.sentence == "is sampled every 10 ms, but its counters are refreshed only every 100 ms."


def test_a_resolution_that_nobody_knows_is_told() -> None:
    facts = make_facts([RAILS[0]], samples={"mlx5_0": make_port_samples(resolution_seconds=None)})
    assert sentences(facts, "resolution") == [
        "mlx5_0:1: carries too little traffic to measure how often its counters change."
    ]


def test_without_a_look_the_resolution_is_not_known() -> None:
    facts = make_facts([RAILS[0]], no_sampling="sampling was not requested", options={"sample": False})
    assert sentences(facts, "resolution") == ["mlx5_0:1: was not sampled; how often its counters change is unknown."]
    assert troubles(facts) == []


def test_cached_counters_say_how_fine_they_are() -> None:
    port = make_port("rdmap0", identity={"driver": "efa", "link_layer": "Unknown"}, source=HW_SOURCE)
    samples = make_port_samples(stride=5, resolution_seconds=0.05)
    finding = only_trouble(make_facts([port], samples={"rdmap0": samples}))
    assert finding.sentence == (
        "is sampled every 50 ms. Its byte counters are in hw_counters, which the kernel refreshes at most every 14 ms "
        "(lifespan 10 ms)."
    )
    assert "lifespan" in finding.advice
    still = make_facts([port], no_sampling="sampling was not requested", options={"sample": False})
    assert sentences(still, "resolution")[0].startswith("rdmap0:1: Its byte counters are in hw_counters")


def test_counters_read_by_netlink_say_how_fresh_they_are_and_their_cost() -> None:
    asked = replace(HW_SOURCE, refresh_seconds=0.0, netlink=True)
    port = make_port("rdmap0", identity={"driver": "efa", "link_layer": "Unknown"}, source=asked)
    said = (
        "is sampled every 10 ms. Its byte counters are in hw_counters, and are read by netlink, which asks the device "
        "at each request. A reading takes 1 µs, 10 µs at p99. They change every 10 ms."
    )
    assert sentences(make_facts([port]), "resolution") == [f"rdmap0:1: {said}"]
    seldom = make_facts([port], samples={"rdmap0": make_port_samples(resolution_seconds=1.0)})
    assert only_trouble(seldom).sentence.endswith("They change every 1 s.")
    still = make_facts([port], no_sampling="sampling was not requested", options={"sample": False})
    assert sentences(still, "resolution")[0].endswith("which asks the device at each request.")
    many = make_port("rdmap0", identity={"driver": "efa"}, source=replace(asked, pause_seconds=0.02))
    samples = make_port_samples(stride=2, resolution_seconds=0.02)
    assert "has many such ports" in sentences(make_facts([many], samples={"rdmap0": samples}), "resolution")[0]
    assert "hw_counters/rx_bytes, read by netlink," in sentences(make_facts([port]), "files")[0]


def test_a_refusal_of_netlink_is_told_with_its_reason() -> None:
    source = replace(HW_SOURCE, refusal="the kernel has no RDMA netlink")
    port = make_port("rdmap0", identity={"driver": "efa", "link_layer": "Unknown"}, source=source)
    finding = only_trouble(make_facts([port], samples={"rdmap0": make_port_samples(stride=5, resolution_seconds=0.05)}))
    assert finding.sentence.endswith("They are not read by netlink: the kernel has no RDMA netlink.")


def test_lifespan_is_not_blamed_for_a_device_that_is_slow_itself() -> None:
    port = make_port("bnxt_re0", identity={"driver": "bnxt_en"}, source=replace(HW_SOURCE, refresh_seconds=1.0))
    finding = only_trouble(
        make_facts([port], samples={"bnxt_re0": make_port_samples(stride=100, resolution_seconds=None)})
    )
    assert finding.sentence == "is sampled every 1 s. The device itself updates its counters every 1 s."
    assert "one sample can miss an update that the next one then includes" in finding.meaning
    assert "lifespan" not in finding.advice
    still = make_facts(
        [port], tree={"folders": {}}, no_sampling="sampling was not requested", options={"sample": False}
    )
    assert sentences(still, "resolution") == ["bnxt_re0:1: The device itself updates its counters every 1 s."]


def test_a_long_lifespan_is_blamed() -> None:
    port = make_port("rdmap0", identity={"driver": "efa"}, source=replace(HW_SOURCE, refresh_seconds=1.004))
    folders = {port.id: Folders(False, True, 1000)}
    samples = make_port_samples(stride=100, resolution_seconds=None)
    assert "lifespan" in only_trouble(make_facts([port], tree={"folders": folders}, samples={"rdmap0": samples})).advice


def test_a_reset_is_a_warning() -> None:
    facts = make_facts(samples={"mlx5_1": make_port_samples(resets=1)})
    assert only_trouble(facts).sentence == "was reset: its counters dropped once in the last 4 s."
    facts = make_facts(samples={"mlx5_1": make_port_samples(resets=3)})
    assert "dropped 3 times" in only_trouble(facts).sentence


def test_reads_that_fail_are_a_failure_with_the_error() -> None:
    facts = make_facts(samples={"mlx5_1": make_port_samples(errors=6, last_errno=errno.EINVAL, left_alone=True)})
    finding = only_trouble(facts)
    assert finding.level is Level.FAIL
    assert finding.sentence == ("has failing reads: EINVAL (Invalid argument); the sampler retries it once a minute.")


def test_a_port_without_a_sample_is_a_failure() -> None:
    nothing = make_port_samples(samples=0, reads=None, rates=None, standing=None, resolution_seconds=None)
    assert only_trouble(make_facts(samples={"mlx5_1": nothing})).sentence == "produced no sample in 3.5 s."


def test_a_node_that_could_not_be_sampled_is_a_failure() -> None:
    finding = only_trouble(make_facts(no_sampling="ring /x has no room"))
    assert (finding.level, finding.sentence) == (Level.FAIL, "Sampling failed: ring /x has no room.")


def test_who_sampled_is_told() -> None:
    assert "by the running daemon." in sentences(make_facts(sampling={"by_daemon": True}), "counting")[0]
    assert "by doctor itself." in sentences(make_facts(), "counting")[0]


def test_a_link_that_flaps_is_a_warning() -> None:
    down = replace(RAILS[1], active=False, state="DOWN")
    facts = make_facts()
    assert facts.sampling is not None
    fabrics = tuple(Fabric((RAILS[0], port), topology=facts.fabric.topology) for port in (RAILS[1], down, RAILS[1]))
    finding = only_trouble(replace(facts, sampling=replace(facts.sampling, fabrics=fabrics)))
    assert finding.sentence == "flapped while doctor was running: ACTIVE then DOWN then ACTIVE."


def test_a_flap_between_two_scans_is_seen_in_its_counter() -> None:
    counts = {"mlx5_1": Counts({"counters/link_downed": 3}, {"counters/link_downed": 4})}
    assert only_trouble(make_facts(counts=counts)).sentence == (
        "flapped while doctor was running: counters/link_downed rose."
    )


def test_an_idle_rail_is_a_warning() -> None:
    facts = make_facts(
        samples={"mlx5_1": make_port_samples(rates=(0.0, 0.0), standing=SILENT, resolution_seconds=None)}
    )
    finding = only_trouble(facts)
    assert (finding.level, finding.subject) == (Level.WARN, "mlx5_1:1")
    assert finding.sentence == "is idle: it carries 0 GB/s; the median of the other rails is 40.0 GB/s."


def test_an_idle_rail_without_requests_to_compare_may_be_stuck() -> None:
    silent = make_port_samples(rates=(0.0, 0.0), standing=SILENT, resolution_seconds=None)
    facts = make_facts(samples={"mlx5_1": silent}, counts={"mlx5_1": Counts({}, {"counters/symbol_error": 0})})
    assert only_trouble(facts).sentence.endswith(
        "Its counters may also be stuck; this port has no other counter to tell the two apart."
    )


def test_a_rail_that_stands_still_while_requests_come_is_stuck() -> None:
    silent = make_port_samples(rates=(0.0, 0.0), standing=SILENT, resolution_seconds=None)
    name = "hw_counters/rx_write_requests"
    facts = make_facts(samples={"mlx5_1": silent}, counts={"mlx5_1": Counts({name: 100}, {name: 5100})})
    finding = only_trouble(facts)
    assert finding.level is Level.FAIL
    assert finding.sentence == "has stuck byte counters: they do not change, although it received 5000 requests."


def test_a_slow_rail_is_a_warning() -> None:
    slow = make_port_samples(
        rates=(10e9, 10e9), standing=RailStatistics(rail_share_ratio=0.3, rail_idle=False, rail_slow=True)
    )
    assert only_trouble(make_facts(samples={"mlx5_1": slow})).sentence == (
        "is slow: it carries 20.0 GB/s; the median of the other rails is 40.0 GB/s."
    )


def test_a_slow_rail_is_shown_with_the_rails_of_its_job() -> None:
    slow = make_port_samples(
        rates=(10e9, 10e9), standing=RailStatistics(rail_share_ratio=0.3, rail_idle=False, rail_slow=True)
    )
    little = make_port_samples(rates=(1e9, 1e9))
    ports = tuple(make_port(f"mlx5_{number}") for number in range(4))
    owners = dict.fromkeys((port.id for port in ports[2:]), frozenset({("slurm", "7")}))
    samples = {"mlx5_1": slow, "mlx5_2": little, "mlx5_3": little}
    assert only_trouble(make_facts(ports, samples=samples, sampling={"owners": owners})).sentence == (
        "is slow: it carries 20.0 GB/s; the median of the other rails is 40.0 GB/s."
    )


def test_balance_is_not_judged_without_traffic() -> None:
    still = make_port_samples(rates=(0.0, 0.0), standing=None, resolution_seconds=None)
    facts = make_facts(samples={"mlx5_0": still, "mlx5_1": still})
    assert sentences(facts, "balance") == [": The rails carry no traffic, so their balance is unknown."]


def test_even_rails_say_how_much_they_carry() -> None:
    facts = make_facts(samples={"mlx5_1": make_port_samples(rates=(21e9, 20e9))})
    assert sentences(facts, "balance") == [": 2 rails carry 40.0 GB/s to 41.0 GB/s each (both directions)."]
    facts = make_facts([RAILS[0]], samples={"mlx5_0": make_port_samples(rates=None)})
    assert sentences(facts, "balance") == []


def test_full_counters_are_a_warning() -> None:
    full = Counts({}, {"counters/port_xmit_wait": 2**32 - 1}, ("counters/port_xmit_wait", "counters/link_downed"))
    finding = only_trouble(make_facts(counts={"mlx5_0": full}))
    assert finding.sentence == ("has counters at their maximum: link_downed, port_xmit_wait.")


def test_how_many_counters_were_looked_at_is_told() -> None:
    assert sentences(make_facts(), "saturation") == [": None of 4 counters is at its maximum."]
    assert sentences(make_facts(counts={"mlx5_0": Counts(), "mlx5_1": Counts()}), "saturation") == []


def test_files_that_refuse_are_a_warning() -> None:
    refused = Counts({}, {}, (), {"counters/VL15_dropped": "cannot be read: Invalid argument"})
    finding = only_trouble(make_facts(counts={"mlx5_1": refused}))
    assert finding.sentence == (
        "has 1 counter without a value, such as counters/VL15_dropped, which cannot be read: Invalid argument."
    )
    assert "virtual function" not in finding.advice


@pytest.mark.parametrize(("file", "judged"), [("counters/VL15_dropped", False), ("hw_counters/out_of_buffer", True)])
def test_counters_of_the_physical_port_may_refuse_a_virtual_function(file: str, judged: bool) -> None:
    port = make_port("mlx5_0", identity={"kind": "vf"})
    facts = make_facts([port], counts={"mlx5_0": Counts({}, {}, (), {file: "cannot be read: Invalid argument"})})
    assert bool(troubles(facts)) is judged
    usual = "Invalid argument. This is normal on a virtual function; the daemon skips such files."
    assert sentences(facts, "files")[-1].endswith(usual) is not judged


def test_the_files_of_each_port_are_told() -> None:
    port = replace(
        make_port("irdma0"),
        source=replace(HW_SOURCE, transmit=(f"{HW_FOLDER}/ip4OutOctets", f"{HW_FOLDER}/ip6OutOctets")),
    )
    facts = make_facts([RAILS[0], port], tree={"folders": {}})
    assert [one.split(": ", 1)[1] for one in sentences(facts, "files")] == [
        "counts bytes in counters/port_xmit_data and counters/port_rcv_data, in units of 4 bytes; "
        "it has no readable counter folder.",
        "counts bytes in hw_counters/ip4OutOctets + hw_counters/ip6OutOctets and hw_counters/rx_bytes, "
        "in units of 1 byte; it has no readable counter folder.",
    ]


def test_the_checks_of_the_look_say_nothing_without_one() -> None:
    facts = make_facts(no_sampling="sampling was not requested", options={"sample": False})
    assert examine(facts, ["reads", "ticks", "counting", "links", "balance"]) == ()
