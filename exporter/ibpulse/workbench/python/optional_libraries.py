"""Libraries that only some results need."""

from __future__ import annotations

from typing import Any

from ibpulse.base.errors import IbpulseError
from ibpulse.base.missing_packages import how_to_install


def import_pandas() -> Any:
    """The module pandas.

    Raises:
        IbpulseError: it is not installed.
    """
    try:
        import pandas
    except ImportError as error:
        raise IbpulseError(f"to_pandas() needs pandas; {how_to_install('pandas')}, or use to_arrow()") from error
    return pandas


def import_arrow() -> Any:
    """The module pyarrow.

    Raises:
        RecordingError: it is not installed; the message says how to install it.
    """
    from ibpulse.core.recordings.file_format import pa

    return pa
