"""One module per question. Each has a `run(bench)` that measures and returns a `Section` of the report."""
