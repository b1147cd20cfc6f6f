"""The jobs of a node as values: `claims` of their sources, and `job_history`, the jobs of the past from the events."""
