"""The web pages and the API of a node.

app         all routes; parts: the daemon and the limits, as the routes see them
node        clock, metrics, ports, topology and summary
window, stream, events, jobs, captures
            the paths with these names; `jobs` also finds the job of a query
pages       the live page, the API reference, the probes
"""
