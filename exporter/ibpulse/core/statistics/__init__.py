"""Defines all statistics as pure functions of arrays: no clock, no files, no logging.

rates              bytes and rates from counters
resolution         effective resolution of a counter
moments            time-weighted sums and the statistics derived from them
quantiles          quantiles, equal to those of numpy
bins               resampling of samples and counters into equal bins
balance, signature, saturation
                   one statistic each
steps              runs of samples, bursts, the step period, edges of steps, phases of a job
port_statistics    statistics of single ports over a time range
node_statistics    statistics of the sum over the rails over a time range
rail_series, span_statistics
                   all statistics of a recorded time range
resampling_units, bootstrap
                   confidence intervals
clock_offsets, lateness, stalls, rails
                   many nodes: how far their clocks are apart, which is late or fell silent, which rail is hot

Docstrings state the laws that a result obeys, and the tests check them.
"""
