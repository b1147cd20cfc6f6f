"""A fabric without hardware: workloads as schedules of bytes, and a sysfs tree that advances as they say.

timeline    the bytes of a workload at every instant; workloads, fsdp: the workloads
faults      the faults by name; nic: one NIC, its counters under traffic and faults
tree        the sysfs tree as text; tree_files writes it; pacing: when, and how much at a time
simulated_jobs  jobs on the fabric, with their documents
shared_job  the traffic of a job on several nodes; fleet: these nodes; node_clock: the shifted clocks of their processes
fabric      a running fabric; replayed_tree: a recording as a fabric, whose links replayed_links writes
"""
