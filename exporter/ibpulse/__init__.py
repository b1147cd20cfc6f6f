"""ibpulse: what every InfiniBand and RoCE port of a node does, every 10 ms.

Holds the version, and the names of the Python API, which are imported on first use: the sampler process imports this
package, so nothing heavier may be imported here. `__init__.pyi` declares the names for type checkers.
"""

__version__ = "0.2.0"

__all__ = [
    "Dataset",
    "Events",
    "IbpulseError",
    "JobNodes",
    "Jobs",
    "NodeConnection",
    "Picture",
    "RunReport",
    "SampledRates",
    "SpanSummary",
    "connect",
    "read",
]


def __getattr__(name: str) -> object:
    """Import the Python API on first use (PEP 562).

    Raises:
        AttributeError: there is no such name.
        IbpulseError: pyarrow is not installed.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # with an import statement, every module that reads the version would depend on the API
    import importlib

    # the API needs pyarrow, and the error without it should be caught
    module = "ibpulse.base.errors" if name == "IbpulseError" else "ibpulse.workbench.python"
    found: object = getattr(importlib.import_module(module), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """The names of the API as well."""
    return sorted({*globals(), *__all__})
