"""An exact fabric for tests: a FUSE tree whose counters are computed at the moment of each read.

    from tests.fusefabric import FuseFabric, why_not

    @pytest.mark.needs("fuse")
    def test_...(tmp_path):
        with FuseFabric(tmp_path / "sys", "square", {"period_ns": 100_000_000, "duty": 0.3}) as fabric:
            ...                                            # read fabric.root as if it were /sys
            at_ns = fabric.set("mlx5_3", hang_seconds=60)  # monotonic instant from which it holds
            fabric.clear()
            truth = fabric.truth(begin_ns, end_ns)         # monotonic ns; see fabric.wall_offset_ns

It runs as a process of its own, `python -m tests.fusefabric MOUNTPOINT ...`, and ends when its standard input ends.
"""

from tests.fusefabric.client import FuseFabric, why_not
from tests.fusefabric.rule import EVERY_FILE, Rule

__all__ = ["EVERY_FILE", "FuseFabric", "Rule", "why_not"]
