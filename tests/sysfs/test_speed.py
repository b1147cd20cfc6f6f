from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.agent.sysfs.speed import find_data_rate, parse_netdev_speed, parse_rate, remark_on_rate
from tests.tables import for_each

# name, number per lane in the file, data rate per lane in Gb/s
GENERATIONS = [
    ("SDR", 2.5, 2.0),
    ("DDR", 5, 4.0),
    ("QDR", 10, 8.0),
    ("FDR10", 10, 10.0),
    ("FDR", 14, 13.636363636363637),
    ("EDR", 25, 25.0),
    ("HDR", 50, 50.0),
    ("NDR", 100, 100.0),
    ("XDR", 200, 200.0),
]


def write_rate(name: str, per_lane: float, width: int) -> str:
    """The text of the kernel: an integer, or one with `.5`."""
    rate = per_lane * width
    return f"{rate:.0f} Gb/sec ({width}X {name})" if rate == int(rate) else f"{rate} Gb/sec ({width}X {name})"


@given(st.sampled_from(GENERATIONS), st.sampled_from([1, 2, 4, 8, 12]))
def test_every_generation_and_width_gives_its_data_rate(generation: tuple[str, float, float], width: int) -> None:
    name, per_lane, data = generation
    rate = parse_rate(write_rate(name, per_lane, width))
    assert rate == pytest.approx(data * width * 1e9 / 8, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "gigabytes"),
    [
        ("56 Gb/sec (4X FDR)", 6.818181818),
        ("400 Gb/sec (8X HDR)", 50.0),
        ("1600 Gb/sec (4X GDR)", 200.0),
        ("10 Gb/sec (4X)", 1.0),
    ],
)
def test_a_rate_of_the_table_is_parsed(text: str, gigabytes: float) -> None:
    assert parse_rate(text) == pytest.approx(gigabytes * 1e9)


@given(st.text())
def test_any_text_is_a_positive_rate_or_none(text: str) -> None:
    rate = parse_rate(text)
    assert rate is None or rate > 0


@pytest.mark.parametrize("text", ["", "0 Gb/sec (4X SDR)", "-1 Gb/sec (4X SDR)", "400 Gb/sec", "٤00 Gb/sec (4X NDR)"])
def test_a_text_of_another_form_has_no_rate(text: str) -> None:
    assert parse_rate(text) is None


def test_an_ethernet_label_says_nothing_of_coding() -> None:
    assert parse_rate("10 Gb/sec (1X QDR)", coded=False) == 1.25e9


@given(st.integers(min_value=1, max_value=3_200_000))
def test_a_netdev_speed_is_megabits(speed: int) -> None:
    assert parse_netdev_speed(str(speed)) == speed * 1e6 / 8


@pytest.mark.parametrize("text", ["-1", "0", "", "Unknown!", "4294967295"])
def test_a_netdev_that_is_down_has_no_speed(text: str) -> None:
    assert parse_netdev_speed(text) is None


@for_each(
    {
        "on Ethernet the netdev is the authority": ("Ethernet", "mlx5_core", "40 Gb/sec (4X QDR)", "800000", 100e9),
        "on InfiniBand it is not asked": ("InfiniBand", "mlx5_core", "400 Gb/sec (4X NDR)", "10", 50e9),
        "Ethernet without a netdev": ("Ethernet", "mlx5_core", "400 Gb/sec (8X HDR)", "-1", 50e9),
        "an unknown Ethernet mode of mlx5": ("Ethernet", "mlx5_core", "40 Gb/sec (4X QDR)", "", None),
        "40 gigabit of another driver": ("Ethernet", "ice", "40 Gb/sec (4X QDR)", "", 5e9),
    }
)
def test_the_rate_of_a_port(layer: str, driver: str, rate: str, netdev: str, bytes_per_second: float | None) -> None:
    assert find_data_rate(layer, driver, rate, netdev) == bytes_per_second


@for_each(
    {
        "no doubt": ("InfiniBand", "mlx5_core", "400 Gb/sec (4X NDR)", 50e9, ""),
        "not known": (
            *("Ethernet", "mlx5_core", "40 Gb/sec (4X QDR)", None),
            "its rate is unknown (rate file: '40 Gb/sec (4X QDR)'), so it has no utilisation.",
        ),
        "a rate file that failed is said elsewhere": ("InfiniBand", "mlx5_core", "", None, ""),
        "SDR on an active port": (
            *("InfiniBand", "mlx5_core", "10 Gb/sec (4X SDR)", 1e9),
            "the kernel reports '10 Gb/sec (4X SDR)', as it also does for a speed that it does not know: "
            "check the link.",
        ),
        "hard-wired by EFA": (
            *("Unknown", "efa", "100 Gb/sec (4X EDR)", 12.5e9),
            "older EFA drivers report '100 Gb/sec (4X EDR)' for every device: on a faster one the utilisation is "
            "too high.",
        ),
    }
)
def test_remarks(layer: str, driver: str, text: str, rate: float | None, remark: str) -> None:
    assert remark_on_rate(layer, driver, text, rate) == remark
