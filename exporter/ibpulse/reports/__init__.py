"""Recordings to what people read: tables of their statistics, side by side. It must not open a file nor print.

options      what is asked of a report
window       which part of a recording is described
series       the rails of a recording and their sum, tick by tick
period       its step period and where its steps begin
units        its steps, or blocks of time, as sums that every statistic is a quotient of
statistics   the statistics of a window
rows         the rows of the table: names, units, definitions
run          one recording with all that is said of it
changes      what differs between two of them beyond the noise
report       all recordings of a report
cells        values as text
text, markdown, page, document   the report as plain text, Markdown, HTML and JSON
"""
