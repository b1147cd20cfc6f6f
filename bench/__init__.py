"""The benchmarks: measure every budget and compare with a C program, a naive loop and node_exporter.

`python -m bench` runs them and writes `docs/benchmarks.md`. They are not part of the installed package.
"""
