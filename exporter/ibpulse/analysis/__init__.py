"""The definitions of all statistics, as arithmetic on arrays: no clock, no file, no log.

rates              counters to rates and bytes
resolution         how often a counter really changes
moments            time-weighted sums, and what follows from them
bins               equal bins of samples and of counters
bursts, balance, period, steps, signature, saturation
                   one statistic each
port_statistics    a span of single ports
node_statistics    a span of the sum over the rails
rail_series, span_statistics
                   everything about a recorded span
resampling_units, bootstrap
                   how certain that is

A function whose result obeys a law states it, and the tests check it.
"""
