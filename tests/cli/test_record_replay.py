"""`ibpulse record` and `ibpulse replay` refuse with the way out, and say how a replay is read."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

from ibpulse.cli import main
from ibpulse.commands.simulate import describe
from ibpulse.core.recordings import Recording
from ibpulse.core.recordings.writing import save
from ibpulse.workbench.simulate.replay import Player, Replay
from tests.recordings.recordings import START_NS, make_recording
from tests.tables import for_each

MS = 1_000_000


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    """A recording in the file `there`."""
    made = make_recording(100)
    save(tmp_path / "there", made)
    return made


@for_each(
    [
        (("record", "there"), 1, "recording there exists already; name another file, or replace it with --force"),
        (("record", "killed"), 1, "recording killed.partial exists already; name another file, or replace it"),
        (("record", "x", "--duration=0s"), 2, "flag --duration: '0s' is zero; give more than 0"),
        (("record", "x", "--duration=5", "--until-idle=1x"), 2, "flag --duration: 5 has no unit; write"),
        (("record", "x", "--until-idle=1x"), 2, "flag --until-idle: '1x' is not a duration"),
        (("replay", "none", "y"), 1, "cannot be read: No such file or directory; name another file"),
        (("replay", "there", "."), 1, "is not empty and holds no simulated fabric"),
        (("replay", "there", "y", "--speed=0"), 2, "flag --speed: 0 is out of bounds; choose 0.01 to 1000"),
        (("replay", "there", "y", "--speed=nan", "--delay=x"), 2, "flag --delay: 'x' is not a duration"),
        (("replay", "there", "y", "--interval=3ms"), 2, "flag --interval: 3ms does not divide one second; the nearest"),
        (("replay", "there", "y", "--interval=3"), 2, "flag --interval: 3 has no unit"),
    ]
)
def test_a_refusal_names_the_value_and_the_way_out(
    words: tuple[str, ...],
    code: int,
    sentence: str,
    recording: Recording,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("killed.partial").touch()
    before = Path("there").read_bytes()
    assert main(words, {}) == code
    assert sentence in capsys.readouterr().err
    assert Path("there").read_bytes() == before
    assert not [*tmp_path.glob("x*")]


def test_a_replay_says_how_a_daemon_reads_it(recording: Recording, tmp_path: Path) -> None:
    arguments = Namespace(directory=tmp_path / "tree", speed=1.0)
    player = Player(lambda: iter([recording]), len(recording.meta.ports), 1.0)
    replay = Replay(tmp_path / "tree", recording.meta, player, 10 * MS, START_NS)
    replay.build()
    replay.close()
    player.close()
    said = describe(Path("there"), recording.meta, arguments, 10 * MS)
    assert f"{len(recording.meta.ports)} ports, at 1x speed, in {tmp_path / 'tree'}\n" in said
    assert f"read it with: ibpulse serve --path.sysfs={tmp_path / 'tree'} --sampler.interval=10ms" in said
