"""Programs that write the Grafana dashboards, the recording rules and the alerts."""
