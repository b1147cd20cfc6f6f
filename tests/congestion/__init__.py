"""A queueing simulator of small networks with the truth about what limits each port, and what a driver would count.

`network` moves bytes, `scenarios` draws workloads and faults from seeds, `drivers` turns events into counters as each
driver shows them. Nothing here imports ibpulse: the truth must not depend on what is tested against it.
"""
