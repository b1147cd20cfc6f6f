from tests.sampler.conftest import close_files, inventory, ring, tiny_tmpfs, tree

__all__ = ["close_files", "inventory", "ring", "tiny_tmpfs", "tree"]
