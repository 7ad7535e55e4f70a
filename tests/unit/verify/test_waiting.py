"""Verify waits for the process that captures, and reports at once whether it reads the slot."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from auditlake.errors import LakeConflict, NotAnswerable
from auditlake.lsn import Lsn
from auditlake.verify.comparison import ComparisonBounds, SourceComparison
from tests.small_lake import write_lake_with_manifest


@pytest.mark.parametrize(
    ("reader", "reads", "advice"),
    [
        (None, "no process reads slot shop", ("Start auditlake follow.", "Start auditlake follow and run")),
        (7, "pid 7 reads slot shop", ("auditlake status shows the lag.", "with a longer --timeout")),
    ],
)
def test_it_reports_who_captures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: int | None, reads: str, advice: tuple[str, str]
) -> None:
    """The lake knows every commit up to 0/380; the process that captures it has perhaps not connected yet."""

    def run_capture(*_: object) -> None:
        raise LakeConflict("another process captures into this lake", "Wait for it.")

    monkeypatch.setattr("auditlake.verify.comparison.run_capture", run_capture)
    source = SimpleNamespace(lsn=Lsn(0x500), slot="shop", slot_reader=lambda: reader, owner="")
    said: list[str] = []
    comparison = SourceComparison(
        cast("Any", None),
        write_lake_with_manifest(tmp_path),
        cast("Any", source),
        ComparisonBounds(0.3, 20),
        said.append,
    )
    with pytest.raises(NotAnswerable) as raised:
        comparison._await_lake()  # noqa: SLF001 - what precedes it needs a server
    tried = ["no process reads slot shop: capturing up to 0/500", "another process captures into this lake"]
    waits = f"waiting until capture, at 0/380, has passed 0/500: {reads}. {advice[0]}"
    assert said == [*(tried if reader is None else []), waits]
    assert raised.value.message == (
        f"after 0.3 s the lake has every commit up to 0/380, the snapshot is at 0/500; {reads}"
    )
    assert advice[1] in (raised.value.hint or "")
