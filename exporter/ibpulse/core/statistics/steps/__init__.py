"""Runs of samples and the steps of a job: the only place that finds runs, periods, edges and phases.

runs    runs of samples, joined and marked; bursts and gaps; active and silent samples
period  the step period of a series of rates
edges   where steps begin and end: by their shape, or after silences, with bounds
phases  the phases of a job, and their search in the traffic of a recording; the daemon watches second by second
"""
