"""Discovery of a node's RDMA ports in a sysfs tree: identity, byte and error counters, topology, rails.

files       small files as text or numbers, with the reason if a read fails; a file that stays open
byte_counters, error_counters   the files that count a port's bytes, and its errors and congestion, by driver
speed       the data rate of a port
device      one device with its ports, read at every scan
links       the links of all ports, read every second
inventory   all devices in parallel, isolated from each other, and their places in the PCIe tree
kinds       kinds of functions and ports
roles       the role of every port, and how many rails there should be
pcie, gpus  PCIe locations of devices and GPUs; overrides: the values of topology.file
"""
