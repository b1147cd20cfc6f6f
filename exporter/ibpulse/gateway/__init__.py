"""In front of many nodes: their pages and data at one address, and jobs across nodes.

service          the running gateway; app: its application; parts: their interface; nodes: the nodes
gateway_pages    the pages; page_routes: their routes, the API reference and the probes
node_list        all nodes
node_data        the data of one node
node_stream      its stream, which node_feed reads once for all viewers
job_stream       the routes of jobs, which job_nodes lists with their nodes
job_hub          the streams of jobs: job_polls asks the nodes, job_view encodes a choice of job_rails
job_window       windows of a job; line_rates: the line rates of the past; job_spans: its numbers and events in a span
job_summary      the numbers of a job, from what job_node knows of each node, and its node_samples
job_captures     the captures of jobs; capture_archive: their files; alert_captures: Alertmanager's notifications
gateway_metrics  the metrics of the gateway itself
"""
