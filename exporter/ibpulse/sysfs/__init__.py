"""Discovery of a node's RDMA ports in a sysfs tree: what they are, where their bytes count, which are rails."""
