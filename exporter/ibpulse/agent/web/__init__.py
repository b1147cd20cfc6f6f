"""The web pages and the API of a node.

app         all routes; parts: its interface to the daemon
job_choice  the job of a query
routes      one file per resource; window, stream: their larger parts
"""
