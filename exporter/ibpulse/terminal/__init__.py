"""The live view in a terminal, `ibpulse top`.

view      the values that are shown
watchers  views of a running daemon, or of a ring in this process
screen    a view as lines of text, for any size of a terminal
display   the terminal itself, by curses
driver    the loop: keys, signals, redrawing
"""
