"""The live view in a terminal, `ibpulse top`.

view    the displayed values
daemon  the view of a running daemon
ring    the view of a ring in this process
screen  a view as lines of text, for any terminal size
driver  the terminal itself, with curses, and the loop: keys, signals, redrawing
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ibpulse.base.installation import late_names

if TYPE_CHECKING:
    from ibpulse.workbench.top.daemon import DaemonWatcher
    from ibpulse.workbench.top.ring import RingWatcher

__all__ = ["DaemonWatcher", "RingWatcher"]

__getattr__ = late_names(__name__, {"DaemonWatcher": "daemon", "RingWatcher": "ring"})
"""Each needs much that the other does not."""
