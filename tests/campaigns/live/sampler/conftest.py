from tests.sampler.conftest import close_files, inventory, ring, tree

__all__ = ["close_files", "inventory", "ring", "tree"]
