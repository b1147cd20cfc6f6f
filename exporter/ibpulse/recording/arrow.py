"""pyarrow for the modules beside this one, or the sentence that says what to install. It must hold nothing else."""

from __future__ import annotations

from ibpulse.errors import RecordingError

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError as error:
    raise RecordingError(
        "recordings are Parquet files, which need pyarrow; install it with pip install 'ibpulse[recording]'"
    ) from error

__all__ = ["pa", "pq"]
