"""Writes the generated parts of the Helm chart: `python -m tools.chart`."""
