"""A fault campaign: a daemon under load suffers one fault after another, and is checked against what is documented.

`fault_table` lists the faults, `invariants` the checks, and `campaign` runs both. The command line is
`python -m bench.faults`.
"""
