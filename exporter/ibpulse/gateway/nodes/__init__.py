"""Many nodes: which there are, what their daemons say, and how far their clocks are apart.

targets         one node with its address and labels, checked; lists of nodes in the format of Prometheus
target_sources  the sources of nodes: DNS, files and HTTP
discovery       the nodes of all sources, read again and again
dns_services    SRV records by the resolver of the system
node_config     passwords and TLS for asking the nodes of a source
nodes           requests to many nodes in parallel, within a time
node_figures    what only its metrics say
stream_answers  the events of its stream
clock_offsets   the offset of a node's clock from this one, and its uncertainty
node_table      the last state of every node
lateness        the delay of a node's steps against those of its peers
stalls          which nodes fell silent for several steps, and which stopped sending first
rails           hot rails, the split of rates into nodes, rails and ports, and failovers between rails
"""
