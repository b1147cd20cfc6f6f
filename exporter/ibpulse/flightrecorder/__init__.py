"""The flight recorder: what the ring holds around an instant, frozen to a file.

rules         what two snapshots say about a second, the local rules, each with its cool-down
alertmanager  notifications of Alertmanager as requests for captures
recorder      captures asked for, waited for, written one after the other
known_ports   the ports of the last minutes, also those that are gone
writer        the short-lived process that writes one capture
store         the directory of captures: names, list, quotas, removal
"""
