"""Arrow tables of the tiers from numpy columns; a value that is not known is null.

Arrow's own conversion of numpy arrays would import pandas where that is installed, which takes 40 MB.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ibpulse.core.arrays import Bools
from ibpulse.core.recordings.file_format import pa
from ibpulse.workbench.fleet.dataset_schema import SCHEMAS

Column = Any
"""A numpy array, a list of texts, or an array of Arrow."""


def make_table(tier: str, columns: Mapping[str, Column]) -> Any:
    """The table of a tier from columns of one length; NaN, masked values, and None in a list of texts are null.

    Raises:
        ValueError: a column is missing, or one that must be known is not.
    """
    schema = SCHEMAS[tier]
    arrays = []
    for field in schema:
        array = _column(field.type, columns[field.name])
        if not field.nullable and array.null_count:
            raise ValueError(f"the column {field.name} of {tier} has values that are not known")
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=schema)


def _column(kind: Any, values: Column) -> Any:
    if isinstance(values, pa.Array):
        return values
    if not isinstance(values, np.ndarray):
        return pa.array(values, kind)
    # whole numbers beyond 2**53 cannot be NaN, so they come with a mask
    missing = np.ma.getmaskarray(values) if isinstance(values, np.ma.MaskedArray) else _find_nan(values)
    values = np.ma.getdata(values)
    if pa.types.is_boolean(kind):
        known = np.nan_to_num(values).astype(np.bool_)
        return pa.Array.from_buffers(kind, len(values), [_valid(missing), _bits(known)])
    filled = values if missing is None else np.where(missing, 0, values)
    if pa.types.is_integer(kind) and values.dtype.kind == "f":
        filled = np.rint(filled)
    content = np.ascontiguousarray(filled, dtype=kind.to_pandas_dtype())
    return pa.Array.from_buffers(kind, len(values), [_valid(missing), pa.py_buffer(content)])


def _find_nan(values: npt.NDArray[Any]) -> Bools | None:
    return np.isnan(values) if values.dtype.kind == "f" else None


def _valid(missing: Bools | None) -> Any:
    return None if missing is None or not missing.any() else _bits(~missing)


def _bits(flags: Bools) -> Any:
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


def repeat_words(words: Sequence[str | None], codes: npt.NDArray[Any]) -> Any:
    """A column of texts that occur often: `codes` are places in `words`."""
    chosen = [word for word in words if word is not None]
    places = np.array([-1 if word is None else chosen.index(word) for word in words], dtype=np.int16)[codes]
    valid = None if (places >= 0).all() else _bits(places >= 0)
    indices = pa.Array.from_buffers(
        pa.int16(), len(places), [valid, pa.py_buffer(np.maximum(places, 0).astype(np.int16))]
    )
    return pa.DictionaryArray.from_arrays(indices, pa.array(chosen, pa.string()))
