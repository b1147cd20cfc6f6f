"""The benchmarks: every budget of the design, measured beside a C program, a naive loop and node_exporter.

`python -m bench` runs them and writes `docs/benchmarks.md`. Nothing here is part of the product.
"""
