"""The web pages and the API of a node.

app         the application: pages, probes, clock, metrics, ports, topology, summary, limits and events
parts       the daemon and the limits of its server, as the routes see them
window, stream, jobs, captures
            the paths with these names; `jobs` also finds the job of a query
"""
