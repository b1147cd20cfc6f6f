from tests.sysfs.conftest import opened, tree

__all__ = ["opened", "tree"]
