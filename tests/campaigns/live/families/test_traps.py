"""Nothing of an excluded device is opened."""

from __future__ import annotations

from pathlib import Path

from tests.families.golden import run_doctor
from tests.families.table import BY_NAME
from tests.families.touched import Touched
from tests.running import Running, eventually


def test_no_counter_of_an_excluded_device_is_opened_by_the_daemon_or_by_doctor(tmp_path: Path) -> None:
    tree = tmp_path / "sys"
    BY_NAME["limited_functions"].build(tree)
    touched = Touched(tree)
    exclude = "--ports.exclude=mlx5_8,mlx5_9,mlx5_10,mlx5_11"
    with Running(tree, tmp_path / "ring", exclude, "--slow.interval=1s") as running:
        eventually(lambda: running.metrics().find("ibpulse_link_downed_total"))
    run_doctor(tree, tmp_path / "doctor-ring", exclude)
    opened, _ = touched.look()
    touched.close()
    assert [path for path in opened if path.endswith("infiniband/mlx5_3/ports/1/counters/link_downed")]
    devices = {path.split("/infiniband/")[1].split("/")[0] for path in opened if "/infiniband/" in path}
    assert devices == {"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"}
