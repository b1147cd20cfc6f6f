"""Reports: tables of the statistics of recordings, side by side.

span        the part of a recording that a report covers
rows        the rows of the table, each with its statistic of `ibpulse.core.statistics.span`
run         one recording with its values, their intervals and its phases
comparison  statistically significant changes between recordings
table       values as text, and the notes around the table
formats     the report as plain text, Markdown, HTML and JSON
model       a prediction compared with a recording
"""
