"""The web application in front of many nodes.

app              assembles the application; parts: its interface to the command
gateway_pages    the pages; page_routes: their routes, the API reference and the probes
node_list        all nodes
node_data        the data of one node; node_stream: its stream
job_stream       the data of a job
alert_captures   Alertmanager's notifications
gateway_metrics  the metrics of the gateway itself
"""
