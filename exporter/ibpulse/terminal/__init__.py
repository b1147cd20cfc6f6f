"""The live view in a terminal, `ibpulse top`.

view      the displayed values
watchers  views of a running daemon, or of a ring in this process
screen    a view as lines of text, for any terminal size
driver    the terminal itself, with curses, and the loop: keys, signals, redrawing
"""
