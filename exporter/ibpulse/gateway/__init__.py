"""In front of many nodes: their pages and data at one address, and jobs across nodes.

nodes       the nodes that exist, how they are asked, and their last answers
service     the running gateway, its application and its own metrics; parts: its state as the routes see it
pages       pages, the list of nodes, and probes
node_proxy  the data and the stream of one node
jobs        the nodes of a job, its ports on each of them, its numbers and silence, and the rows of its page
job_api     the routes of jobs: list, stream, windows, summaries and events
live        the viewers of jobs, for whom nodes are polled
samples     the samples of a node
captures    captures of jobs; alerts: captures for Alertmanager's notifications
"""
