"""Jobs that stall or pause, made from the causes, with the truth: the independent side of the tests of verdicts.

Imports nothing of ibpulse. `training` computes when each node of a healthy job communicates, `broken` stops a job,
`healthy` lets one pause for hours, and `material` turns either into what the daemon of each node would have. All
times are seconds of one true clock; only `material.observe` applies the clock of a node.
"""
