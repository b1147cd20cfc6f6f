"""Sets up logging to standard error, in one of three formats."""

from __future__ import annotations

import json
import logging
import textwrap
import time
from typing import Any

from ibpulse.base.text import escape_controls


class TextFormatter(logging.Formatter):
    """One line of text: time, level and message. Times are UTC in all formats.

    Messages contain names and reasons of unknown origin: none can begin a line of its own. Stack traces are indented.
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03dZ %(levelname)-7s %(message)s", "%Y-%m-%dT%H:%M:%S")
        self.converter = time.gmtime

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (the name in logging)
        """Time, level and the escaped message."""
        record.message = escape_controls(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802
        """The escaped stack trace, indented."""
        return textwrap.indent(escape_controls(super().formatException(ei), "\n"), "    ", lambda _: True)


class FieldsFormatter(logging.Formatter):
    """The fields for a log collector: time, level, logger, message, and the exception if any."""

    def __init__(self) -> None:
        super().__init__()
        self.converter = time.gmtime

    def fields(self, record: logging.LogRecord) -> dict[str, str]:
        """The fields of the record, in order."""
        fields = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{record.msecs:03.0f}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return fields


class JsonFormatter(FieldsFormatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        return escape_controls(json.dumps(self.fields(record)))


class LogfmtFormatter(FieldsFormatter):
    """One line of `key=value` pairs; values are quoted, as in JSON, where necessary."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        return " ".join(f"{key}={self._quote(value)}" for key, value in self.fields(record).items())

    @staticmethod
    def _quote(value: str) -> str:
        plain = value.isprintable() and value.isascii() and not set(value) & set(' "=\\')
        return value if value and plain else escape_controls(json.dumps(value))


FORMATTERS: dict[str, type[logging.Formatter]] = {
    "text": TextFormatter,
    "json": JsonFormatter,
    "logfmt": LogfmtFormatter,
}


def set_up_log(level: str, form: str) -> None:
    """Log messages of `level` and above, in one of `FORMATTERS`."""
    handler = logging.StreamHandler()
    handler.setFormatter(FORMATTERS[form]())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # the daemon logs its address and its end itself
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
