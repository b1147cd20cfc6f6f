from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ibpulse.agent.sysfs.roles import ExpectedRails
from ibpulse.core.events.event import STARTED, Event, state_to_json
from ibpulse.core.events.log import EventFile, EventLog
from ibpulse.core.model import ByteSource, Fabric, Port, PortId, PortIdentity, PortState

RAIL = PortState("ACTIVE", "LinkUp", True, 50e9, rail=True)
STORAGE = replace(RAIL, rail=False, role="storage")


def started(states: dict[str, PortState]) -> Event:
    ports = {name: state_to_json(state) for name, state in states.items()}
    return Event(1, STARTED, "", "the daemon started", details={"ports": ports})


def change(name: str, before: PortState | None, after: PortState | None) -> Event:
    return Event(2, "role-change" if before and after else "disappeared", name, "", before=before, after=after)


def fabric(rails: int, functions: int = 0) -> Fabric:
    source = ByteSource("words", ("t",), ("r",), 4)
    ports = [
        Port(PortId(f"mlx5_{number}", 1), PortIdentity(), True, "ACTIVE", 50e9, source, rail=True)
        for number in range(rails)
    ]
    return Fabric(tuple(ports), rail_functions=functions)


def log_of(*events: Event) -> EventLog:
    log = EventLog()
    for event in events:
        log.add(event)
    return log


def names(count: int) -> Sequence[str]:
    return [f"mlx5_{number}:1" for number in range(count)]


def test_the_setting_takes_precedence() -> None:
    assert ExpectedRails(log_of(started(dict.fromkeys(names(8), RAIL))), 4).update(fabric(6, 9)) == 4
    assert ExpectedRails(EventLog(), 0).update(fabric(6)) == 0


def test_without_events_the_ports_and_their_functions_count() -> None:
    assert ExpectedRails(EventLog()).update(fabric(6)) == 6
    assert ExpectedRails(EventLog()).update(fabric(6, 8)) == 8


def test_a_rail_that_disappeared_is_still_expected() -> None:
    log = log_of(started(dict.fromkeys(names(8), RAIL)))
    expected = ExpectedRails(log)
    assert expected.update(fabric(8)) == 8
    log.add(change("mlx5_3:1", RAIL, None))
    assert expected.update(fabric(7)) == 8
    log.add(change("mlx5_9:1", None, RAIL))
    assert expected.update(fabric(8)) == 8
    log.add(change("mlx5_3:1", None, RAIL))
    assert expected.update(fabric(9)) == 9


def test_the_log_of_earlier_daemons_counts(tmp_path: Path) -> None:
    log = EventLog(EventFile(tmp_path / "events"))
    log.load(1)
    log.add(started(dict.fromkeys(names(8), RAIL)))
    log.close()
    log = EventLog(EventFile(tmp_path / "events"))
    log.load(2)
    expected = ExpectedRails(log)
    log.add(started(dict.fromkeys(names(6), RAIL)))
    assert expected.update(fabric(6)) == 8
    log.close()


def test_a_role_that_was_taken_away_starts_the_count_again() -> None:
    log = log_of(started(dict.fromkeys(names(10), RAIL)))
    for name in names(10)[8:]:
        log.add(change(name, RAIL, STORAGE))
    expected = ExpectedRails(log)
    assert expected.update(fabric(8)) == 8
    log.add(change("mlx5_0:1", RAIL, None))
    assert expected.update(fabric(7)) == 8


def test_a_change_of_another_property_of_a_rail_changes_nothing() -> None:
    log = log_of(started(dict.fromkeys(names(2), RAIL)))
    log.add(Event(2, "link-down", "mlx5_0:1", "", before=RAIL, after=replace(RAIL, active=False, state="DOWN")))
    assert ExpectedRails(log).update(fabric(1)) == 2
