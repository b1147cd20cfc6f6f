"""Recordings described: tables of their statistics, side by side.

span         which part of a recording is described
rows         the rows of the table, each with its statistic of `ibpulse.analysis.span_statistics`
run          one recording with its values and their intervals
comparison   what differs between recordings beyond the noise
table        values as text, and the notes around the table
formats      the report as plain text, Markdown, HTML and JSON
"""
