"""The Python API: `ibpulse.connect` and `ibpulse.read`, and their results.

node     asks a running daemon, or the nodes of a job through a gateway
samples  rates of many ports, from files or a daemon: as a table, a picture, a report
tables   summaries, events and jobs as tables
"""
