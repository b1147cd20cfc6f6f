from tests.ring.tiny import tiny_tmpfs

__all__ = ["tiny_tmpfs"]
