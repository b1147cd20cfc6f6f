"""Defines all statistics as pure functions of arrays: no clock, no files, no logging.

rates       bytes and rates from counters, effective resolution of a counter
plausible   rates above the line rate, and how uncertain each one is
series      rates over long and short spans, and between common instants
moments     time-weighted sums, the statistics derived from them, quantiles
sums        ports, and the sum over the rails of a node, over a time range
balance, signature
            one statistic each; saturation
silences, verdict
            the silence of a job: when it began on each node and when it ended, and its cause
steps       runs of samples, bursts, the step period, edges of steps, phases of a job
recorded, span
            all statistics of a recorded time range, with confidence intervals
gains, signs
            readings of the counters of congestion of a port, what they gained, and signs of what limited it
lateness, nodes
            many nodes: how far their clocks are apart, which is late or fell silent, which rail is hot

Docstrings state the laws that a result obeys, and the tests check them.
"""
