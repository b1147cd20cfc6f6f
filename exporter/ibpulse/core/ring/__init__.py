"""The ring: a memory-mapped file that holds the last minutes of samples.

`layout` and `file` use only the standard library, because the sampler process imports them; `reader` reads records as
numpy arrays, and `spans` computes rates for spans of ticks or of wall time.

Four functions return a recent tick, from newest to oldest:

RingFile.latest_begun_tick  the newest tick that a sampler has begun to write
RingReader.newest_tick      the newest tick that is completely written, according to the clock
spans.complete_tick         the newest tick with a rate for all ports, if the sampler is on time
spans.settled_tick          the newest tick that will no longer change, even if the sampler is late
"""
