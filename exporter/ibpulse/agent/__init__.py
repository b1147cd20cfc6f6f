"""What runs on every node: settings, sysfs, sampler, jobs, aggregator, metrics, flight recorder, web.

Doctor stands here too, because it examines them, but runs when a person asks.
"""
