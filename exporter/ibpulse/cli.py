"""The command line: picks the verb, gathers its settings, runs it.

Only this module prints errors and turns them into exit codes.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext

from ibpulse import __version__
from ibpulse.base import limits
from ibpulse.base.errors import ConfigError, IbpulseError
from ibpulse.base.text import escape_controls
from ibpulse.commands import group_overview, overview

INTERRUPTED = 130
BROKEN_PIPE = 141
OUT_OF_MEMORY = (
    "ibpulse: out of memory: this takes more than three quarters of what this machine has available; choose a part of "
    "the recording, or use a machine with more memory"
)


def main(words: Sequence[str] | None = None, environ: Mapping[str, str] | None = None) -> int:
    """Run the command line and return its exit code: 0, 1 on failure, 2 on configuration errors, 130 on Ctrl-C.

    Args:
        words: the arguments after the program's name (default: those of the process).
        environ: the environment (default: that of the process).
    """
    if words is None:
        atexit.register(release_streams)
    try:
        code = run(sys.argv[1:] if words is None else words, os.environ if environ is None else environ)
        sys.stdout.flush()
    except IbpulseError as error:
        for fault in error.faults if isinstance(error, ConfigError) else (str(error),):
            print(f"ibpulse: {escape_controls(fault)}", file=sys.stderr)
        return error.exit_code
    except MemoryError:
        print(OUT_OF_MEMORY, file=sys.stderr)
        return IbpulseError.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # the rest of the buffer has no reader; without this, Python complains at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    return code


def release_streams() -> None:
    """Close the standard streams of a process that cannot end, so that nobody who reads them waits for its end.

    A process cannot end while one of its threads hangs in the kernel.
    """
    if threading.active_count() > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nowhere, descriptor)


def run(words: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run the verb that the first word names and return its exit code.

    Raises:
        IbpulseError: the command failed.
    """
    first = words[0] if words else "--help"
    if first == "help" and len(words) > 1:
        return run([*words[1:], "--help"], environ)
    if first in ("--help", "-h", "help"):
        print(overview(), end="")
        return 0
    if first == "--help-all":
        print(overview(every=True), end="")
        return 0
    if first in ("--version", "version"):
        print(f"ibpulse {__version__}")
        return 0
    if tuple(words[1:]) in ((), ("--help",), ("-h",)) and group_overview(first):
        print(group_overview(first), end="")
        return 0
    return run_verb(words, environ)


def run_verb(words: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run a verb with the settings from flags, environment and file.

    Raises:
        IbpulseError: the command failed; a ConfigError lists the errors of all sources.
    """
    from ibpulse.commands.parser import parse, split_verb  # not for the list of commands

    verb, rest = split_verb(words)
    parsed = parse(verb, rest)
    from ibpulse.agent.config.loading import resolve  # not for help
    from ibpulse.commands.logs import set_up_log

    try:
        settings, origins = resolve(parsed.flags, environ)
    except ConfigError as error:
        raise ConfigError([*parsed.faults, *error.faults]) from None
    if parsed.faults:
        raise ConfigError(parsed.faults)
    parsed.arguments.origins = origins
    if "log" in verb.settings:
        set_up_log(settings.log.level, settings.log.format)
    if verb.writes_files:
        # pyarrow reads it on import
        os.environ.update(limits.ALLOCATOR)
    with limits.bounded() if verb.reads_files else nullcontext():
        try:
            return verb.run(parsed.arguments, settings)
        except ModuleNotFoundError as error:
            from ibpulse.base.installation import how_to_install  # not for help

            name = error.name or "a package"
            packages = ("httpx", "sniffio") if name == "httpx" else (name,)
            missing = f"`ibpulse {verb.name}` needs {name}, which is not installed; {how_to_install(*packages)}"
            raise ConfigError([missing]) from error
