"""The flight recorder: saves the samples around an instant from the ring to a file.

rules         the local rules, which compare consecutive snapshots, each with its cool-down
alerts        turns Alertmanager's notifications into capture requests
recorder      accepts requests, waits for the end of each window, writes captures one at a time
known_ports   the ports of the last minutes, including those that disappeared
writer        the short-lived process that writes one capture
store         the directory of captures: names, list, quotas, removal
"""
