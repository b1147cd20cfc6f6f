"""Every exported metric in one row: name, type, help, unit, labels, buckets and how to get its values."""
