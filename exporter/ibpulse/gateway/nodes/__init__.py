"""The nodes of a gateway: which there are, how they are asked, and what they last said.

targets         one node with its address and labels, checked; lists of nodes in the format of Prometheus
target_sources  the sources of nodes: DNS, files and HTTP
discovery       the nodes of all sources, read again and again
node_config     passwords and TLS for asking the nodes of a source
nodes           requests to many nodes in parallel, within a time
node_figures    what only its metrics say
stream_answers  the events of its stream
node_table      the last state of every node
"""
