"""Draws the boards with Grafana's published libraries from a running Prometheus, and measures what eyes overlook."""
