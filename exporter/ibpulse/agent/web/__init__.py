"""The web pages and the API of a node.

app         all routes; the live page, the API reference and the probes
parts       the daemon and the limits of its server, as the routes see them
node        clock, metrics, ports, topology, summary, limits and events
window, stream, jobs, captures
            the paths with these names; `jobs` also finds the job of a query
"""
