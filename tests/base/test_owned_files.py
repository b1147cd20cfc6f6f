"""Whose directories are used, whose files are believed, and what other users can do about it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from ibpulse.base.owned_files import (
    default_directory,
    find_directories,
    find_directory,
    make_directory,
    open_regular,
    open_to_read,
    open_to_write,
    replacing,
)
from tests.other_users import ANOTHER, USER, needs_other_users, python, shared_directory

ME = f"ibpulse-{os.geteuid()}"


@pytest.fixture
def shared() -> Iterator[Path]:
    with shared_directory() as made:
        yield made


@pytest.fixture(autouse=True)
def anything_goes() -> Iterator[None]:
    """No test may depend on what the user's umask takes away."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def folder_of(user: int, path: Path, permissions: int) -> Path:
    path.mkdir()
    os.chown(path, user, user)
    path.chmod(permissions)
    return path


def file_of(user: int, path: Path, permissions: int = 0o640) -> Path:
    path.write_text(f"of {user}")
    os.chown(path, user, user)
    path.chmod(permissions)
    return path


def content(descriptor: int) -> str:
    with open(descriptor) as file:
        return file.read()


# which directory


def test_a_directory_is_made_private_and_used_unchanged(tmp_path: Path) -> None:
    given = tmp_path / "a" / "b"
    assert make_directory(given) == given
    assert [mode(given), mode(given.parent)] == [0o750, 0o750]
    for permissions in (0o700, 0o755):
        given.chmod(permissions)
        assert make_directory(given) == find_directory(given) == given
        assert mode(given) == permissions


@pytest.mark.parametrize("permissions", [0o777, 0o1777, 0o2777])
def test_a_shared_directory_has_one_per_user(tmp_path: Path, permissions: int) -> None:
    given = tmp_path / "given"
    given.mkdir()
    given.chmod(permissions)
    with pytest.raises(FileNotFoundError):
        find_directory(given)
    assert make_directory(given) == make_directory(given) == find_directory(given) == given / ME
    assert mode(given / ME) & 0o777 == 0o700


@needs_other_users
def test_an_own_directory_open_to_others_is_closed(tmp_path: Path) -> None:
    """The kubelet lets the group of a volume write to everything in it."""
    tmp_path.chmod(0o777)
    (tmp_path / ME).mkdir()
    os.chown(tmp_path / ME, -1, 12345)
    (tmp_path / ME).chmod(0o2770)
    assert make_directory(tmp_path) == tmp_path / ME
    assert mode(tmp_path / ME) & 0o777 == 0o700


@pytest.mark.parametrize("kind", ["link", "file", "pipe"])
def test_what_is_no_directory_is_not_used_for_one(tmp_path: Path, kind: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    tmp_path.chmod(0o777)
    if kind == "link":
        (tmp_path / ME).symlink_to(tmp_path / "elsewhere")
    elif kind == "file":
        (tmp_path / ME).write_text("")
    else:
        os.mkfifo(tmp_path / ME)
    with pytest.raises(OSError, match="Not a directory"):
        make_directory(tmp_path)


def test_a_link_of_this_user_is_followed(tmp_path: Path) -> None:
    """systemd makes the runtime directory of a dynamic user a link."""
    (tmp_path / "private").mkdir(0o750)
    (tmp_path / "link").symlink_to("private")
    assert make_directory(tmp_path / "link") == tmp_path / "private"
    assert make_directory(tmp_path / "link" / "below") == tmp_path / "private" / "below"


@needs_other_users
@pytest.mark.parametrize("permissions", [0o700, 0o1777])
def test_a_directory_of_another_user_is_refused(shared: Path, permissions: int) -> None:
    given = folder_of(USER, shared / "given", permissions)
    for use in (make_directory, find_directory):
        with pytest.raises(PermissionError) as caught:
            use(given)
        assert caught.value.strerror == f"it belongs to user {USER}, who could replace the files of user 0 in it"
    assert list(given.iterdir()) == []


@needs_other_users
def test_a_link_of_another_user_is_not_followed(shared: Path) -> None:
    (shared / "mine").mkdir(0o700)
    (shared / "link").symlink_to("mine")
    os.lchown(shared / "link", USER, USER)
    for given in (shared / "link", shared / "link" / "below"):
        with pytest.raises(PermissionError, match=f"{shared / 'link'} is a symbolic link of user {USER}"):
            make_directory(given)


@needs_other_users
def test_what_another_user_put_in_place_of_ours_is_refused(shared: Path) -> None:
    folder_of(USER, shared / ME, 0o777)
    with pytest.raises(PermissionError, match=f"it belongs to user {USER}"):
        make_directory(shared)


@needs_other_users
@pytest.mark.parametrize("permissions", [0o1777, 0o2777])
@pytest.mark.real("process")
def test_a_user_has_a_directory_below_that_of_root(shared: Path, permissions: int) -> None:
    shared.chmod(permissions)
    program = "import sys, pathlib, ibpulse.base.owned_files as o; print(o.make_directory(pathlib.Path(sys.argv[1])))"
    for user in (USER, ANOTHER):
        assert python(user, program, shared).strip() == str(shared / f"ibpulse-{user}")
        status = (shared / f"ibpulse-{user}").stat()
        assert (status.st_uid, status.st_mode & 0o777) == (user, 0o700)


@needs_other_users
def test_a_directory_of_the_users_own_group_is_used_and_one_of_others_is_not(tmp_path: Path) -> None:
    tmp_path.chmod(0o770)
    os.chown(tmp_path, -1, os.getegid())
    expected = tmp_path if os.getegid() == os.geteuid() else tmp_path / ME
    assert make_directory(tmp_path) == expected
    os.chown(tmp_path, -1, USER)
    assert make_directory(tmp_path) == tmp_path / ME


# the default


def test_the_first_user_gets_the_plain_default(shared: Path) -> None:
    assert default_directory(shared) == shared / "ibpulse"
    (shared / "ibpulse").mkdir()
    assert default_directory(shared) == shared / "ibpulse"


@needs_other_users
@pytest.mark.real("process")
def test_a_default_directory_of_another_user_is_not_used(shared: Path) -> None:
    folder_of(USER, shared / "ibpulse", 0o777)
    assert default_directory(shared) == shared / ME
    assert make_directory(default_directory(shared)) == shared / ME
    program = (
        "import sys, pathlib, ibpulse.base.owned_files as o; print(o.default_directory(pathlib.Path(sys.argv[1])))"
    )
    assert python(USER, program, shared).strip() == str(shared / "ibpulse")
    assert python(ANOTHER, program, shared).strip() == str(shared / f"ibpulse-{ANOTHER}")


def test_a_link_in_place_of_the_default_is_not_used(shared: Path) -> None:
    (shared / "ibpulse").symlink_to("/etc")
    assert default_directory(shared) == shared / ME


# where daemons are


def test_a_daemon_is_looked_for_where_its_user_has_it(shared: Path) -> None:
    assert find_directories(shared / "ring") == [shared / "ring", shared / "ring" / ME]
    for name in ("ibpulse", ME):
        assert find_directories(shared / name) == [shared / name, shared / name / ME, Path("/run/ibpulse")]


# files


def test_replacing_makes_a_private_file(tmp_path: Path) -> None:
    (tmp_path / "ring").write_text("old")
    (tmp_path / "ring.new").symlink_to(tmp_path / "precious")
    (tmp_path / "precious").write_text("precious")
    with replacing(tmp_path / "ring") as descriptor:
        os.write(descriptor, b"new")
        assert (tmp_path / "ring").read_text() == "old"
    assert (tmp_path / "ring").read_text() == "new"
    assert mode(tmp_path / "ring") == 0o640
    assert (tmp_path / "precious").read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["precious", "ring"]


@pytest.mark.parametrize("permissions", [0o777, 0o1777, 0o757])
def test_nothing_is_written_where_others_write(tmp_path: Path, permissions: int) -> None:
    (tmp_path / "ring").write_text("old")
    tmp_path.chmod(permissions)
    with pytest.raises(PermissionError, match=f"has mode {permissions:04o}, so another user could replace it"):
        open_to_write(tmp_path / "ring")
    with pytest.raises(PermissionError), replacing(tmp_path / "ring"):
        pass
    assert (tmp_path / "ring").read_text() == "old"


def test_a_file_that_others_write_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "ring"
    path.write_text("")
    path.chmod(0o666)
    with pytest.raises(PermissionError, match="another user owns it or can write to it"):
        open_to_write(path)
    path.chmod(0o644)
    os.close(open_to_write(path))


def test_an_empty_file_is_made_on_request(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_to_write(tmp_path / "lock")
    os.close(open_to_write(tmp_path / "lock", create=True))
    os.close(open_to_write(tmp_path / "lock", create=True))
    assert mode(tmp_path / "lock") == 0o640


@pytest.mark.parametrize("kind", ["link", "pipe", "directory", "device"])
def test_only_regular_files_are_opened_and_nothing_is_waited_for(tmp_path: Path, kind: str) -> None:
    path, before = tmp_path / "file", len(os.listdir("/proc/self/fd"))
    (tmp_path / "secret").write_text("secret")
    if kind == "link":
        path.symlink_to(tmp_path / "secret")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path = Path("/dev/null")
    for use in (open_regular, open_to_read, *([open_to_write] if kind in ("link", "pipe") else [])):
        with pytest.raises(FileNotFoundError, match=r"it is a symbolic link|it is not a regular file"):
            use(path)
    assert len(os.listdir("/proc/self/fd")) == before


@needs_other_users
@pytest.mark.real("process")
def test_whom_a_reader_believes(shared: Path) -> None:
    """A user believes root and himself; root also the owner of the directory, who put the file there."""
    home = folder_of(USER, shared / "home", 0o755)
    for owner in (0, USER, ANOTHER):
        file_of(owner, home / str(owner), 0o644)
    assert content(open_to_read(home / "0")) == "of 0"
    assert content(open_to_read(home / str(USER))) == f"of {USER}"
    with pytest.raises(PermissionError, match=f"it belongs to user {ANOTHER}"):
        open_to_read(home / str(ANOTHER))
    program = """
import sys, pathlib, ibpulse.base.owned_files as o
for name in sys.argv[2:]:
    try:
        print(open(o.open_to_read(pathlib.Path(sys.argv[1]) / name)).read())
    except PermissionError as error:
        print(error.strerror)
"""
    said = python(ANOTHER, program, home, 0, USER, ANOTHER).splitlines()
    assert said == ["of 0", f"it belongs to user {USER}", f"of {ANOTHER}"]
