"""The sampler: the process that reads counters every tick, and the supervisor that keeps it alive.

`process`, `loop`, `clock`, `plan` and `scheduling` run in the sampler process and use the standard library alone.
"""
