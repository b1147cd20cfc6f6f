"""ibpulse: what every InfiniBand and RoCE port of a node does, every 10 ms.

Holds the version alone. The sampler process imports this package, so nothing heavier may be imported here.
"""

__version__ = "0.1.0"
