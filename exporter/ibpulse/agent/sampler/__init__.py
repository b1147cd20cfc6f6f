"""The sampler: the process that reads counters every tick, and the supervisor that keeps it alive.

In the sampler process, standard library only:

process     starts and ends; plan: which files it reads, as written by the supervisor
deadlines   when the next tick is due; loop: the reads of one tick; kernel: its requests to the operating system

In the main process:

supervisor  starts, watches and replaces sampler processes; lane: one process and its heartbeat
quarantine  devices with a process of their own, because they hang or are slow
adaptive    measures read times and samples slow devices less often
temporary_sampler       a supervisor and a ring for one command
"""
