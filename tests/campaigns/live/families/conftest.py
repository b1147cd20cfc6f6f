from tests.families.conftest import scan

__all__ = ["scan"]
