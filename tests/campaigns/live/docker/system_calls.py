"""`python -m tests.campaigns.live.docker.system_calls UNIT COMMAND...`: a command under the system calls of a unit.

systemd says which calls its groups hold, and the kernel's header which number each has. Needs x86-64.
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

HEADER = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
# linux/bpf_common.h, linux/seccomp.h, linux/audit.h, linux/prctl.h
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | 1
NUMBER, ARCHITECTURE, X86_64 = 0, 4, 0xC000003E
NO_NEW_PRIVILEGES, SECCOMP, FILTER = 38, 22, 2


def names_of(group: str) -> set[str]:
    """The calls of a group such as @resources, and of the groups in it; a single call is its own."""
    if not group.startswith("@"):
        return {group}
    done = subprocess.run(["systemd-analyze", "syscall-filter", group], check=True, capture_output=True, text=True)
    members = [line.strip() for line in done.stdout.splitlines()[1:] if not line.strip().startswith("#")]
    return set().union(*(names_of(member) for member in members if member))


def allowed(unit: str) -> set[str]:
    """The calls that a unit leaves, after each of its lines in order, as systemd.exec describes them."""
    left: set[str] = names_of("@default")
    for line in re.findall(r"(?m)^SystemCallFilter=(.+)$", unit):
        calls = set().union(*(names_of(word) for word in line.removeprefix("~").split()))
        left = left - calls if line.startswith("~") else left | calls
    return left


def restrict(calls: set[str]) -> None:
    """Refuse all other calls of this process, and of what it runs, with EPERM, the unit's SystemCallErrorNumber."""
    numbers = dict(re.findall(r"(?m)^#define __NR_(\w+) (\d+)$", HEADER.read_text()))
    steps = [(LOAD, 0, 0, ARCHITECTURE), (EQUAL, 1, 0, X86_64), (RETURN, 0, 0, REFUSE), (LOAD, 0, 0, NUMBER)]
    for name in sorted(calls & set(numbers)):
        steps += [(EQUAL, 0, 1, int(numbers[name])), (RETURN, 0, 0, ALLOW)]
    steps.append((RETURN, 0, 0, REFUSE))
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    for call in ((NO_NEW_PRIVILEGES, 1, 0, 0, 0), (SECCOMP, FILTER, program, 0, 0)):
        if libc.prctl(*call):
            raise OSError(ctypes.get_errno(), f"prctl {call[0]}")


if __name__ == "__main__":
    restrict(allowed(Path(sys.argv[1]).read_text()))
    os.execvp(sys.argv[2], sys.argv[2:])
