from __future__ import annotations

from ibpulse.core.metrics.text import TextFormat, accepts_gzip, choose_format
from tests.tables import for_each

TEXT, OPENMETRICS = TextFormat.PROMETHEUS, TextFormat.OPENMETRICS

PROMETHEUS_2 = (
    "application/openmetrics-text;version=1.0.0;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
PROMETHEUS_NATIVE = (
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.7," + PROMETHEUS_3
)
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


@for_each(
    [
        (None, TEXT),
        (BROWSER, TEXT),
        ("application/json", TEXT),
        ('Application/OpenMetrics-Text; Version="1.0.0"', OPENMETRICS),
        ("application/openmetrics-text;version=0.0.1", TEXT),
        (PROMETHEUS_2, OPENMETRICS),
        (PROMETHEUS_3, OPENMETRICS),
        (PROMETHEUS_NATIVE, OPENMETRICS),
        ("text/plain;q=0.2,application/openmetrics-text;q=0.9", OPENMETRICS),
        ("text/plain,application/openmetrics-text", TEXT),
        ("application/openmetrics-text;q=0", TEXT),
        ("application/openmetrics-text;q=high,text/*;q=0.1", TEXT),
    ]
)
def test_the_format_with_the_highest_weight_is_chosen(accept: str | None, chosen: TextFormat) -> None:
    assert choose_format(accept) is chosen


@for_each(
    [
        (None, False),
        ("GZIP, deflate", True),
        ("deflate, br", False),
        ("br;q=1.0, gzip;q=0.8", True),
        ("*;q=0.5", True),
        ("*;q=1, gzip;q=0", False),
        ("gzip; q=0.000", False),
        ("gzip;q=x", False),
    ]
)
def test_gzip_is_used_where_it_is_accepted(accept_encoding: str | None, taken: bool) -> None:
    assert accepts_gzip(accept_encoding) is taken
