"""Verify waits for capture: it says at once whether any runs."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from auditlake.errors import NotAnswerable
from auditlake.lsn import Lsn
from auditlake.verify.comparison import Bounds, Comparison
from tests.small_lake import write_lake_with_manifest


@pytest.mark.parametrize(
    ("reader", "reads", "first", "last"),
    [
        (None, "no process reads slot shop", "Start auditlake follow.", "Start auditlake follow and run"),
        (7, "pid 7 reads slot shop", "auditlake status shows the lag.", "with a longer --timeout"),
    ],
)
def test_it_says_who_captures(tmp_path: Path, reader: int | None, reads: str, first: str, last: str) -> None:
    """The lake of the test knows every commit up to 0/380, and nobody continues it."""
    source = SimpleNamespace(lsn=Lsn(0x500), slot="shop", slot_reader=lambda: reader)
    said: list[str] = []
    comparison = Comparison(
        cast("Any", None), write_lake_with_manifest(tmp_path), cast("Any", source), Bounds(0.3, 20), said.append
    )
    with pytest.raises(NotAnswerable) as raised:
        comparison._await_lake()  # noqa: SLF001 - what precedes it needs a server
    assert said == [f"waiting until capture, at 0/380, has passed 0/500: {reads}. {first}"]
    assert raised.value.message == (
        f"after 0.3 s the lake has every commit up to 0/380, the snapshot is at 0/500; {reads}"
    )
    assert last in (raised.value.hint or "")
