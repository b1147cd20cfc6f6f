"""Many nodes: which there are, what their daemons say, and how far their clocks are apart.

targets         one node with its address and labels, checked; lists of nodes in the format of Prometheus
target_sources  the sources of nodes: DNS, files and HTTP
discovery       the nodes of all sources, read again and again
node_config     passwords and TLS for asking the nodes of a source
nodes           requests to many nodes in parallel, within a time
node_figures    what only its metrics say
stream_answers  the events of its stream
clock_offsets   how far the clock of a node is from this one, and how certain that is
node_table      the last state of every node
lateness        how much later a node begins a step than its peers
stalls          which nodes fell silent for several steps, and which stopped sending first
hot_rail        which rail carries more than its share on most nodes
rail_split      what is common to a node, to a rail, and what a single port differs by
failovers       one rail of a node falls silent, and another one carries twice as much
"""
