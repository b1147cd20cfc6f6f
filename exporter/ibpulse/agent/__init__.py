"""What runs on every node: settings, sysfs, sampler, jobs, aggregator, metrics, flight recorder, doctor, web."""
