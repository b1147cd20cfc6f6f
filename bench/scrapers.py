"""Scrapers of one daemon, each once a second. `scrapers.py PORT SCRAPERS SECONDS` prints the waits in s as JSON.

Each has an address of its own, because a daemon limits the connections of an address. It fails if one of them does.
"""

from __future__ import annotations

import http.client
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

PERIOD_SECONDS = 1.0


def scrape(port: int, number: int, begin: float, end: float) -> list[float]:
    """Scrape once a second from `begin` to `end`, over one connection; returns the waits in s.

    Raises:
        OSError: a scrape was refused.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30, source_address=(f"127.0.1.{number + 1}", 0))
    due, waits = begin, []
    while due < end:
        time.sleep(max(0.0, due - time.monotonic()))
        begun = time.monotonic()
        connection.request("GET", "/metrics")
        response = connection.getresponse()
        response.read()
        if response.status != 200:
            raise OSError(f"scraper {number}: status {response.status}")
        waits.append(time.monotonic() - begun)
        due += PERIOD_SECONDS
    connection.close()
    return waits


def main(port: int, scrapers: int, seconds: float) -> list[float]:
    begin = time.monotonic() + 0.2
    with ThreadPoolExecutor(scrapers) as threads:
        asked = [
            threads.submit(scrape, port, number, begin + PERIOD_SECONDS * number / scrapers, begin + seconds)
            for number in range(scrapers)
        ]
    return [wait for one in asked for wait in one.result()]


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))))
