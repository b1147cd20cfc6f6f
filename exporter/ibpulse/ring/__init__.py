"""The ring: the file in memory that holds the last minutes of samples.

`layout` and `file` use the standard library alone, because the sampler process imports them; `reader`
reads records as numpy arrays, and `window` turns spans of ticks or of wall time into rates.
"""
