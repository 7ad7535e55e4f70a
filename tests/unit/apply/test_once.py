"""A run of apply that ends when all is applied, beside a capture that has yet to decide what changed a table."""

import threading
from contextlib import nullcontext
from pathlib import Path

import pytest

from auditlake.engine import Engine
from auditlake.errors import Unsupported
from auditlake.follow import Applier, run_apply
from auditlake.lake.layout import Lake
from auditlake.lake.parking import Cause, Parked, park, unpark
from auditlake.lake.stage_lock import Stage, hold
from auditlake.lsn import Lsn
from auditlake.spark.on_demand import SparkOnDemand
from tests.small_lake import ORDERS, write_small_lake


class _Stop(threading.Event):
    """Capture decides at each wait that the table goes on."""

    def __init__(self, lake: Lake) -> None:
        super().__init__()
        self._lake = lake

    def wait(self, _: float | None = None) -> bool:
        unpark(self._lake, ORDERS, Cause.PENDING)
        return False


@pytest.mark.parametrize("captures", [True, False])
def test_a_decision_is_awaited_while_capture_runs(tmp_path: Path, *, captures: bool) -> None:
    """It takes a moment; without a capture nobody would decide."""
    lake = write_small_lake(tmp_path / "lake")
    park(lake, Parked(ORDERS, Cause.PENDING, Lsn(0x2FF), Lsn(0x381), "its definition was changed", "Wait."))
    applier = Applier(lake, SparkOnDemand({}, Engine.DUCKDB), lambda _: None)
    capture = hold(lake, "capture", Stage.CAPTURE) if captures else nullcontext()
    expected = nullcontext() if captures else pytest.raises(Unsupported, match="its definition was changed")
    with capture, expected:
        run_apply(applier, _Stop(lake), once=True)
    assert bool(applier.parked) is not captures
