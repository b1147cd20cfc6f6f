"""The live view in a terminal, `ibpulse top`.

view      the displayed values
watchers  views of a running daemon, or of a ring in this process
styled_text, rail_table, screen   a view as lines of text, for any terminal size
display   the terminal itself, with curses
driver    the loop: keys, signals, redrawing
"""
