"""A fabric without hardware: workloads as schedules of bytes, and a sysfs tree that advances as they say."""
