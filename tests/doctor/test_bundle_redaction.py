"""Nothing that names a node is left, and the same original has the same pseudonym."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.doctor.redaction import Redactor

GUID = "b8ce:f603:00aa:bb00"
HOSTS = ("gpu-node-17.cluster.example.com",)


@pytest.fixture
def redactor() -> Redactor:
    return Redactor(HOSTS, [GUID], homes=["/export/people/carol_x/"])


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
        ("ib0 00:00:10:29:fe:80:00:00:00:00:00:00:b8:ce:f6:03:00:aa:bb:00", ["b8:ce:f6", "00:aa:bb:00"]),
        ("ib0 80-00-02-08-2a-00-14-50-00-00-00-00-b8-ce-f6-03-00-aa-bb-00", ["b8-ce-f6", "2a-00-14", "b8:ce:f6"]),
        ("ib0 80000208fe80000000000000b8cef60300aabb00", ["b8cef603"]),
        ("ib0 0x800002082a00145000000000b8cef60300aabb00", ["b8cef603", "2a001450"]),
        ("eui b8:ce:f6:03:00:aa:bb:00 b8-ce-f6-03-00-aa-bb-00", ["b8:ce:f6", "b8-ce-f6", "00:aa:bb"]),
        ("mac b8cef6aabb00, B8CEF6AABB01 and 0xb8cef6aabb02", ["b8cef6"]),
        ("mac b8ce.f6aa.bb00.", ["b8ce.f6aa", "f6aa.bb00"]),
        ("gpu_node_17, gpunode17, GPU.Node.17, gpu-node-017, x_gpu-node-17_y", ["gpu_", "gpunode", "gpu.", "gpu-"]),
        ("gpu_node_17_cluster_example_com", ["example", "node"]),
        ("Serial number: MT2052X01234, s/n ABC1234567.", ["MT2052X01234", "ABC1234567"]),
        ("SN=7CTQ9L3, serial 1322621098765, MT2052X01235", ["7CTQ9L3", "1322621098765", "MT2052X01235"]),
        ("uuid 8f0b2d3e-1a2b-4c5d-8e9f-0a1b2c3d4e5f", ["8f0b2d3e", "0a1b2c3d4e5f"]),
        ("/home/alice/ring and /Users/bob.b, /home/alice", ["alice", "bob"]),
        ("/scratch/carol_x/ring of carol_x", ["carol"]),
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
        "205143497464 of 123456789012 bytes",
        "0000.0000.0000 000000000000 ffffffffffff",
        "00:00:00:00:fe:80:00:00:00:00:00:00 is too short",
        "3f786850e387550fdab836ed7e6dc881de23001b is a commit",
        "serial numbers and a serial port",
        "node 17 of the gpu, gpu 17",
        "/home and /homes/x",
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


def test_an_address_of_ip_over_infiniband_keeps_its_form_and_has_the_pseudonym_of_its_guid(redactor: Redactor) -> None:
    made = redactor.guid(GUID).replace(":", "")
    found = redactor.clean("00:00:10:29:fe:80:00:00:00:00:00:00:b8:ce:f6:03:00:aa:bb:00")
    assert found.replace(":", "") == f"00001029fe80000000000000{made}"
    assert re.fullmatch("([0-9a-f]{2}:){19}[0-9a-f]{2}", found)
    assert redactor.clean("00001029fe80000000000000b8cef60300aabb00") == f"00001029fe80000000000000{made}"


def test_a_mac_address_is_the_same_however_it_is_written(redactor: Redactor) -> None:
    made = redactor.clean("b8:ce:f6:aa:bb:00")
    assert redactor.clean("b8cef6aabb00") == made.replace(":", "")
    assert redactor.clean("b8ce.f6aa.bb00").replace(".", "") == made.replace(":", "")


def test_a_mac_address_of_digits_alone_is_known_from_the_guid_of_its_card() -> None:
    redactor = Redactor(guids=["1234:5603:0078:9012"])
    assert redactor.clean("123456789012") != "123456789012"
    assert redactor.clean("123456789013") == "123456789013"


def test_all_spellings_of_a_host_have_one_pseudonym(redactor: Redactor) -> None:
    found = set(
        redactor.clean("gpu-node-17 gpu_node_17 gpunode17 GPU-NODE-017 gpu_node_17.cluster.example.com").split()
    )
    assert len(found) == 1


def test_a_member_that_is_called_serial_is_replaced_whatever_it_holds(redactor: Redactor) -> None:
    found = redactor.clean_values({"gpu_serial": "0321", "n": {"Serial Number": "abc"}})
    assert isinstance(found, dict)
    assert re.fullmatch("serial-[0-9a-f]{8}", found["gpu_serial"])
    assert re.fullmatch("serial-[0-9a-f]{8}", found["n"]["Serial Number"])


@pytest.mark.parametrize("home", ["/root", "/", "", "/home/ab"])
def test_a_user_who_is_nobody_is_left(home: str) -> None:
    assert Redactor(homes=[home]).clean("root ab of /root") == "root ab of /root"
