"""Discovery of a node's RDMA ports in a sysfs tree: identity, byte and error counters, topology, rails.

files       small files as text or numbers, with the reason if a read fails
identity    the identity of a device; speed: the data rate of a port
byte_counters           the files that count a port's bytes, by driver
error_counters          the files that count errors and congestion; error_counter_reader reads them
port, device            one port and one device, read at every scan
inventory   all devices in parallel, isolated from each other
state_poller            the links of all ports every second; link_reader reads one, kept_file a file that stays open
kinds       kinds of functions and ports
roles       the role of every port; near_rule: by its distance to GPUs; expected_rails: how many rails there should be
pcie, gpus, topology    PCIe locations of devices and GPUs; overrides: the values of topology.file
"""
