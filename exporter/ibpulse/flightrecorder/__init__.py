"""The flight recorder: what the ring holds around an instant, frozen to a file. It must not compute statistics.

options       what the settings say
trigger       what asks for a capture
names         file names of captures, and nothing else that could be a path
store         the directory: list, quotas, removal
ports         what is known of the ports of the last minutes
window        ticks of the ring as a recording
writer        the short-lived process that writes one capture
job           what that process is told
recorder      captures asked for, waited for, written one after the other
alertmanager  notifications of Alertmanager to what they ask for
sight         what two snapshots say about one second
rules         the local rules, as functions of what is seen
watch         the rules at work, each with its cool-down
"""
