"""Metrics that agent and gateway share.

row     the row of a metric in a table, and the function that reads its samples
text    rows and the families of the client library in the Prometheus text formats
web     the rows of a web server, and the counts behind them
"""
