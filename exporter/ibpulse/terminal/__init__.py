"""The live view in a terminal, `ibpulse top`.

view      the displayed values
daemon_watcher, ring_watcher   views of a running daemon, or of a ring in this process
styled_text, rail_table, screen   a view as lines of text, for any terminal size
display   the terminal itself, with curses
driver    the loop: keys, signals, redrawing
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ibpulse.base.late_names import late_names

if TYPE_CHECKING:
    from ibpulse.terminal.daemon_watcher import DaemonWatcher
    from ibpulse.terminal.ring_watcher import RingWatcher

__all__ = ["DaemonWatcher", "RingWatcher"]

__getattr__ = late_names(__name__, {"DaemonWatcher": "daemon_watcher", "RingWatcher": "ring_watcher"})
"""Each needs much that the other does not."""
