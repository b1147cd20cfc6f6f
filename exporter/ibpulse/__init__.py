"""ibpulse: what every InfiniBand and RoCE port of a node does, every 10 ms.

Holds the version, and the names of the Python API, which are imported on first use: the sampler process imports this
package, so nothing heavier may be imported here. `__init__.pyi` declares the names for type checkers.
"""

__version__ = "0.2.0"

_SAMPLES, _TABLES, _NODE = "workbench.python.samples", "workbench.python.tables", "workbench.python.node"
_MODULES = {
    "Dataset": _SAMPLES,
    "Events": _TABLES,
    "IbpulseError": "base.errors",
    "JobNodes": _NODE,
    "Jobs": _TABLES,
    "NodeConnection": _NODE,
    "Picture": "workbench.pictures.still",
    "RunReport": _SAMPLES,
    "SampledRates": _SAMPLES,
    "SpanSummary": _TABLES,
    "connect": _NODE,
    "read": _SAMPLES,
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> object:
    """Import the Python API on first use (PEP 562).

    Raises:
        AttributeError: there is no such name.
        IbpulseError: pyarrow is not installed.
    """
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # with an import statement, every module that reads the version would depend on the API
    import importlib

    found: object = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """The names of the API as well."""
    return sorted({*globals(), *__all__})
