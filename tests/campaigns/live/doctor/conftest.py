from tests.doctor.conftest import in_this_process, opened, tree

__all__ = ["in_this_process", "opened", "tree"]
