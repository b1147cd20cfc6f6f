"""Answers of the API of a daemon: one strict model each, which servers build and every reader parses.

A server builds an answer with `model_construct`, since its own values need no check, and documents it in OpenAPI. A
reader takes nothing that is not described: a name with control characters is refused, a sentence with them is escaped,
an unknown member is dropped, and lengths, counts and numbers have bounds.

members     the kinds of members with their bounds, and the check of a whole answer
node        clock, ports, topology, events, and signs of what limited the rails
jobs        jobs, until when each moved bytes, verdicts, and captures
summary     the statistics of a node and of a port, which snapshot, summary and stream share
samples     windows and streams
"""
