"""The nodes of a gateway.

discovery  the nodes that exist, by DNS, files and HTTP, and the passwords for them
targets    one node with its address and labels; lists of nodes in the format of Prometheus
requests   requests to one node, or to many in parallel
table      the last state of every node
"""
