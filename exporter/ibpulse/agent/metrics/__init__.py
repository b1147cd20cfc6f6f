"""Every exported metric in one row: name, help, unit, labels and how to get its values; `page` is `/metrics`."""
