"""Programs that write committed files: dashboards, rules, parts of the chart, reference pages. Not in the wheel."""
