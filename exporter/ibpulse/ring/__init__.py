"""The ring: the file in memory that holds the last minutes of samples.

`layout` and `file` use the standard library alone, because the sampler process imports them; `reader`
reads records as numpy arrays, and `window` turns spans of ticks or of wall time into rates.

Four ticks say how new a sample is, from newest to oldest:

RingFile.latest_begun_tick  the newest tick that a sampler has begun to write
RingReader.newest_tick      the newest tick that is written in full, by the clock
window.complete_tick        the newest tick with a rate for all ports, if the sampler is on time
window.settled_tick         the newest tick that will not change any more, however late the sampler is
"""
