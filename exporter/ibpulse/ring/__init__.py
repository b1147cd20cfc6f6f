"""The ring: the file in memory that holds the last minutes of samples.

`layout` and `file` use the standard library alone, because the sampler process imports them; `reader` uses numpy.
"""
