"""Nothing that names a node is left, and the same original has the same pseudonym."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.doctor.bundle import Redactor

GUID = "b8ce:f603:00aa:bb00"
HOSTS = ("gpu-node-17.cluster.example.com",)


@pytest.fixture
def redactor() -> Redactor:
    return Redactor(HOSTS, [GUID])


@pytest.mark.parametrize(
    ("text", "secrets"),
    [
        (f"guid {GUID}", [GUID]),
        ("guid b8cef60300aabb00 and 0xB8CEF60300AABB00.", ["b8cef603", "B8CEF603"]),
        ("gid fe80:0000:0000:0000:b8ce:f603:00aa:bb00", ["b8ce"]),
        ("gid 2a00:1450:4001:0811:b8ce:f603:00aa:bb00", ["2a00", "b8ce"]),
        ("mac b8:ce:f6:aa:bb:00, b8-ce-f6-aa-bb-00", ["b8:ce", "b8-ce"]),
        ("listens on 10.1.2.3:10055 and 192.168.7.9.", ["10.1.2.3", "192.168.7.9"]),
        ("listens on [2a00:1450::17]:10055", ["2a00", "1450"]),
        ("gpu-node-17 is gpu-node-17.cluster.example.com of cluster.example.com", ["gpu-node", "example"]),
        ("GPU-Node-17 mlx5_0", ["GPU-Node"]),
        ("interface enxb8cef60300aa, ibxb8cef60300aabb00", ["b8cef603"]),
    ],
)
def test_what_names_a_node_is_replaced(redactor: Redactor, text: str, secrets: list[str]) -> None:
    cleaned = redactor.clean(text)
    assert not [secret for secret in secrets if secret.lower() in cleaned.lower()], cleaned


@pytest.mark.parametrize(
    "text",
    [
        "0000:18:00.0 of pci0000:15, driver mlx5_core",
        "28.41.1000 fw 20.43.2026",
        "400 Gb/sec (4X NDR) at 4: ACTIVE",
        "205143497464492",
        "2051434974644921",
        "127.0.0.1:10055, [::1]:10055, :10055, 0.0.0.0",
        "2026-11-21T03:04:05Z took 12:30",
        "0-47,96-143",
        "0000:0000:0000:0000",
        "0000:0000:0000:0000:0000:0000:0000:0000",
        "00:00:00:00:00:00 ff:ff:ff:ff:ff:ff",
        "mlx5_0:1 eth0 ib0 6.8.0-45-generic numpy 2.1.3",
    ],
)
def test_what_names_nobody_stays(redactor: Redactor, text: str) -> None:
    assert redactor.clean(text) == text


def test_a_guid_is_the_same_however_it_is_written(redactor: Redactor) -> None:
    made = redactor.guid(GUID)
    digits = made.replace(":", "")
    assert re.fullmatch("([0-9a-f]{4}:){3}[0-9a-f]{4}", made)
    assert redactor.clean("0xb8cef60300aabb00") == f"0x{digits}"
    assert redactor.clean("fe80:0000:0000:0000:b8ce:f603:00aa:bb00") == f"fe80:0000:0000:0000:{made}"
    assert redactor.clean("ibxb8cef60300aabb00") == f"ibx{digits}"


def test_a_version_that_looks_like_an_address_stays() -> None:
    redactor = Redactor(versions=["230.0.162.0"])
    assert redactor.clean("firmware 230.0.162.0, where 2 have 10.0.162.0").startswith(
        "firmware 230.0.162.0, where 2 have 2"
    )
    assert redactor.clean_hardware("10.0.162.0") == "10.0.162.0"


def test_a_known_guid_of_digits_alone_is_told_from_a_count() -> None:
    redactor = Redactor(guids=["1234:5678:9012:3456"])
    assert redactor.clean("1234567890123456") != "1234567890123456"
    assert redactor.clean("6543210987654321") == "6543210987654321"


def test_a_host_is_the_same_with_and_without_its_domain(redactor: Redactor) -> None:
    short, whole = redactor.clean("gpu-node-17 gpu-node-17.cluster.example.com").split()
    assert short == whole
    assert short.startswith("host-")


@pytest.mark.parametrize("host", ["localhost", "localhost.localdomain", "7", "x", ""])
def test_a_host_name_that_names_nobody_is_left(host: str) -> None:
    text = f"a {host} b"
    assert Redactor([host]).clean(text) == text


def test_a_host_inside_a_word_is_another_word() -> None:
    redactor = Redactor(["node"])
    assert redactor.clean("node_guid nodes on node") == f"node_guid nodes on {redactor.host('node')}"


def test_two_redactors_have_nothing_in_common() -> None:
    assert Redactor().guid(GUID) != Redactor().guid(GUID)


def test_values_of_a_document_are_cleaned_and_keys_stay(redactor: Redactor) -> None:
    cleaned = redactor.clean_values({"gpu-node-17": [GUID, 5, None, ("10.1.2.3",)], "n": {"x": True}})
    assert cleaned == {
        "gpu-node-17": [redactor.guid(GUID), 5, None, [redactor.clean("10.1.2.3")]],
        "n": {"x": True},
    }


@given(st.binary(min_size=8, max_size=8).filter(any))
def test_no_guid_is_ever_its_own_pseudonym(raw: bytes) -> None:
    redactor = Redactor()
    text = ":".join(raw.hex()[place : place + 4] for place in range(0, 16, 4))
    made = redactor.guid(text)
    assert made == redactor.guid(text)
    assert made != text
    assert made.startswith("02")
