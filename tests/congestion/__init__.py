"""A queueing simulator of small networks with the truth about what limits each port, and what a driver would count.

`network` moves bytes, `scenarios` draws workloads and faults from seeds, `drivers` turns events into counters as each
driver shows them. None of these imports ibpulse, so that the truth does not depend on what is tested against it.
`readings` gives the counters to ibpulse, and `scoring` compares what it finds with the truth.
"""
