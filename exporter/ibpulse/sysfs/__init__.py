"""Discovery of a node's RDMA ports in a sysfs tree: what they are, where their bytes count, which are rails.

files       one small file as text or number, with the reason when there is none
identity    what a device is; speed: the data rate of a port
byte_counters           which files count a port's bytes, by driver
error_counters          which files count errors and congestion; error_counter_reader reads them
port, device            one port, one device, read again at every scan
inventory   all devices in parallel, whatever one of them does
rails       kinds of functions and ports, and which ports are rails
pcie, gpus, topology    where devices and GPUs are plugged in; overrides: what topology.file says instead
"""
