"""What goes on now as a recording that grows. It must not sample, and must not know who watches.

ports     the ports of a fabric as a recording names them
ring      the newest ticks of a ring, piece by piece
remote    the newest ticks of a running daemon, piece by piece
session   pieces into a file, until it is enough
progress  how far it is, as text
"""
