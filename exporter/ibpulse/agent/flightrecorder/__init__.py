"""The flight recorder: saves the samples around an instant from the ring to a file.

triggers  the local rules, which compare consecutive snapshots, and Alertmanager's notifications
recorder  accepts requests, waits for the end of each window, writes captures one at a time
writer    the short-lived process that writes one capture
converter the short-lived process that converts one to a trace of Perfetto
store     the directory of captures: names, list, quotas, removal
"""
