"""A fabric without hardware: workloads as schedules of bytes, and a sysfs tree that advances as they say.

timeline    the bytes of a workload at every instant
workloads   the workloads
jobs        jobs on fabrics, alone or on several nodes, with their documents
faults      the faults by name
tree        the sysfs tree as text, and its files
pacing      when, and how much at a time
fabric      NICs, their counters under traffic and faults, and a running fabric
fleet       the nodes of one job
node_clock  the shifted clocks of their processes
replay      a recording as a fabric
"""
