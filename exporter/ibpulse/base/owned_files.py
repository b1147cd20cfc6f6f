"""Opens the files that a daemon owns, such as its ring, plans and events, where no other user can replace them.

Files are opened below a checked directory; links are not followed, and pipes are not waited for. Every refusal is an
`OSError` with its reason as `strerror`. Standard library only, because the sampler process imports it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

NAME = "ibpulse"
# the ring of the systemd unit
RUNTIME_DIRECTORY = Path("/run") / NAME
DIRECTORY_MODE = 0o750
FILE_MODE = 0o640
_SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def directory_of_user() -> str:
    """Name of this user's directory among those of other users."""
    return f"{NAME}-{os.geteuid()}"


def default_directory(parent: Path) -> Path:
    """`ibpulse` in a directory that all users share, or `ibpulse-UID` if another user has made the former."""
    usual = parent / NAME
    try:
        status = usual.lstat()
    except OSError:
        return usual
    ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    return usual if ours else parent / directory_of_user()


# directories


def make_directory(given: Path) -> Path:
    """The directory for this user's files, made if it is missing, with all links resolved.

    It is `given`, or `ibpulse-UID` below it if others can write to `given` or it belongs to root.

    Raises:
        OSError: it cannot be made, or `given` belongs to another user, who could replace what is in it.
    """
    make_missing(given)
    return find_directory(given, make=True)


def find_directory(given: Path, *, make: bool = False) -> Path:
    """The directory that `make_directory` would return; `make` makes one below `given`.

    Raises:
        OSError: it does not exist, or `given` belongs to another user.
    """
    path = _resolve(given)
    status = path.stat()
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(given))
    user = os.geteuid()
    if _is_private(status, user):
        return path
    if status.st_uid not in (0, user):
        raise _foreign(given, status)
    below = path / directory_of_user()
    if make:
        with suppress(FileExistsError):
            below.mkdir(0o700)
    _make_private(below, user)
    return below


def find_directories(given: Path) -> list[Path]:
    """Directories in which a daemon of this user with this `given` directory, or the systemd unit, keeps its files."""
    found = [given, given / directory_of_user()]
    return [*found, RUNTIME_DIRECTORY] if given.name in (NAME, directory_of_user()) else found


def open_trusted_directory(given: Path) -> int:
    """Open a directory of this user or of root to which no other user can write; returns a descriptor.

    Raises:
        OSError: there is no such directory, or another user can change what is in it.
    """
    descriptor = os.open(_resolve(given), os.O_RDONLY | os.O_DIRECTORY | _SAFELY)
    try:
        _refuse_foreign(descriptor, given)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def make_missing(directory: Path) -> None:
    """Make a directory and those above it that are missing; other users can write to none of them."""
    if not directory.is_dir():
        make_missing(directory.parent)
        try:
            directory.mkdir(DIRECTORY_MODE)
        except FileExistsError:
            if not directory.is_dir():
                raise


def _resolve(given: Path) -> Path:
    """The path without links. Only links of this user and of root are followed."""
    for path in (given, *given.parents):
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode) and status.st_uid not in (0, os.geteuid()):
            raise PermissionError(errno.EPERM, f"{path} is a symbolic link of user {status.st_uid}", str(given))
    return Path(os.path.realpath(given))


def _is_private(status: os.stat_result, user: int) -> bool:
    """Whether it belongs to the user, and no other user can write to it.

    A group with the number of the user has no other member: each user has one, and the kubelet gives it to volumes.
    """
    others = stat.S_IWOTH if status.st_gid == user else stat.S_IWOTH | stat.S_IWGRP
    return status.st_uid == user and not status.st_mode & others


def _make_private(directory: Path, user: int) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | _SAFELY)
    try:
        status = os.fstat(descriptor)
        if status.st_uid != user:
            raise _foreign(directory, status)
        if not _is_private(status, user):
            os.fchmod(descriptor, 0o700)
    finally:
        os.close(descriptor)


def _foreign(path: Path, status: os.stat_result) -> PermissionError:
    reason = f"it belongs to user {status.st_uid}, who could replace the files of user {os.geteuid()} in it"
    return PermissionError(errno.EPERM, reason, str(path))


# files


def open_regular(path: Path, flags: int = os.O_RDONLY, directory: int | None = None) -> int:
    """Open a regular file; returns a descriptor. `directory` is that of its directory, if this is open.

    Raises:
        FileNotFoundError: there is no file, or it is not a regular one.
        OSError: it cannot be opened.
    """
    try:
        name = path if directory is None else path.name
        descriptor = os.open(name, flags | _SAFELY, FILE_MODE, dir_fd=directory)
    except OSError as error:
        error.filename = str(path)
        if error.errno == errno.ELOOP:
            raise FileNotFoundError(errno.ENOENT, "it is a symbolic link", str(path)) from error
        if error.errno == errno.ENXIO:
            raise FileNotFoundError(errno.ENOENT, "it is not a regular file", str(path)) from error
        raise
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise FileNotFoundError(errno.ENOENT, "it is not a regular file", str(path))


def open_trusted(path: Path, directory: int) -> int:
    """Open a file of this user or of root to which no other user can write; returns a descriptor.

    `directory` is the descriptor of its directory.

    Raises:
        OSError: there is no such file, or another user can change it.
    """
    descriptor = open_regular(path, directory=directory)
    try:
        _refuse_foreign(descriptor, path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _refuse_foreign(descriptor: int, path: Path) -> None:
    status = os.fstat(descriptor)
    if status.st_uid not in (0, os.geteuid()):
        raise PermissionError(errno.EPERM, f"it belongs to user {status.st_uid}", str(path))
    if not _is_private(status, status.st_uid):
        reason = f"other users can write to it (mode {status.st_mode & 0o7777:04o})"
        raise PermissionError(errno.EPERM, reason, str(path))


def open_to_read(path: Path) -> int:
    """Open a file of this user or of root or, as root, of the user who owns its directory; returns a descriptor.

    Raises:
        OSError: there is no such file, or it belongs to another user.
    """
    with _opened(path.parent, 0) as directory:
        descriptor = open_regular(path, directory=directory)
        believed = {0, os.geteuid()}
        if not os.geteuid():
            believed.add(os.fstat(directory).st_uid)
    status = os.fstat(descriptor)
    if status.st_uid in believed:
        return descriptor
    os.close(descriptor)
    raise PermissionError(errno.EPERM, f"it belongs to user {status.st_uid}", str(path))


def open_to_write(path: Path, *, create: bool = False) -> int:
    """Open a file of this user in a directory to which only this user can write; returns a descriptor.

    Raises:
        OSError: it does not exist, unless `create` asks for an empty one, or others can write to it or its directory.
    """
    with _private(path.parent) as directory:
        descriptor = open_regular(path, os.O_RDWR | (os.O_CREAT if create else 0), directory)
    if _is_private(os.fstat(descriptor), os.geteuid()):
        return descriptor
    os.close(descriptor)
    raise PermissionError(errno.EPERM, "another user owns it or can write to it", str(path))


@contextmanager
def replacing(path: Path) -> Iterator[int]:
    """The descriptor of a new file, which replaces the one at `path` when the block ends, and is removed if it fails.

    Raises:
        OSError: it cannot be made, or others can write to its directory.
    """
    fresh = f"{path.name}.new"
    with _private(path.parent) as directory:
        with suppress(FileNotFoundError):
            os.unlink(fresh, dir_fd=directory)
        descriptor = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | _SAFELY, FILE_MODE, dir_fd=directory)
        try:
            yield descriptor
            os.rename(fresh, path.name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            with suppress(OSError):
                os.unlink(fresh, dir_fd=directory)
            raise
        finally:
            os.close(descriptor)


@contextmanager
def _opened(directory: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC | flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _private(directory: Path) -> Iterator[int]:
    with _opened(directory, os.O_NOFOLLOW) as descriptor:
        status = os.fstat(descriptor)
        if not _is_private(status, os.geteuid()):
            reason = f"its directory belongs to user {status.st_uid} and has mode {status.st_mode & 0o7777:04o}"
            raise PermissionError(errno.EPERM, f"{reason}, so another user could replace it", str(directory))
        yield descriptor
