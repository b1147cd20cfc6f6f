"""Sets up the log of a command: lines for people or JSON objects, on standard error. It must not log by itself."""

from __future__ import annotations

import json
import logging
import time


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and the exception if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        entry = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{record.msecs:03.0f}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry)


def set_up_log(level: str, form: str) -> None:
    """Log from `level` up, as `text` or `json`; times are UTC."""
    formatter = (
        JsonFormatter()
        if form == "json"
        else logging.Formatter("%(asctime)s.%(msecs)03dZ %(levelname)-7s %(message)s", "%Y-%m-%dT%H:%M:%S")
    )
    formatter.converter = time.gmtime
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # the daemon says itself what it serves and that it stopped
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
