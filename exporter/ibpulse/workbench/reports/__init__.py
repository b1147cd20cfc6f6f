"""Reports: tables of the statistics of recordings, side by side.

span          the part of a recording that a report covers
report_row    a row: its words and its statistic
rows          the rows of the table, each with its statistic of `ibpulse.core.statistics.span_statistics`
run           one recording with its values and their intervals
comparison    statistically significant changes between recordings
report_table  values as text, and the notes around the table
formats       the report as plain text, Markdown, HTML and JSON
"""
