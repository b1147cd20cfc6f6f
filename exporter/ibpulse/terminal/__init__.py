"""The live view in a terminal. It must not compute any statistic.

view      what is to be seen, as values
marks     sparklines, bars and numbers as text
screen    a view as lines of text, for any size of a terminal
remote    views of a running daemon
local     views of a ring in this process
bins      what it computed before
display   the terminal itself, as curses has it
driver    looks, keys, signals
"""
