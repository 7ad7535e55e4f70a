"""The histories that benches write: every state has the versions that the harness says, in files by month."""

from pathlib import Path

import pytest
from harness.versions import Versions, factor

import auditlake
from auditlake.lake.history import open_history
from auditlake.lake.history_files import find_files, part_of
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import Manifest, write_manifest
from auditlake.relation import Column, TableName

_NAME = TableName("public", "t")
_COLUMNS = tuple(Column(name, 20, -1, key=name == "id") for name in ("id", "v0", "v1"))


def _write(root: Path, versions: Versions) -> Lake:
    lake = Lake(root)
    write_manifest(lake, Manifest("1", 1, "d", "s", "p"))
    versions.write(lake, _NAME, _COLUMNS)
    return lake


@pytest.mark.parametrize("changes", [0, 1, 17, 40])
def test_a_state_has_the_last_version_of_each_key(tmp_path: Path, changes: int) -> None:
    """Numbers from `changes` on, as many as there are keys, whether they are closed or open now."""
    versions = Versions(keys=10, closed=40, months=4)
    _write(tmp_path, versions)
    state = auditlake.Lake(tmp_path).as_of(str(versions.after(changes))).table("t").to_arrow()
    expected = {n % 10: n for n in range(changes, changes + 10)}
    assert {row["id"]: (row["v0"], row["v1"]) for row in state.to_pylist()} == {
        key: (n * factor(0) % 1000, n * factor(1) % 1000) for key, n in expected.items()
    }
    assert state.num_rows == 10


def test_closed_versions_are_in_as_many_partitions_as_months(tmp_path: Path) -> None:
    """The first month of the fourteenth is in the second year."""
    lake = _write(tmp_path, Versions(keys=10, closed=70, months=14))
    table = open_history(lake, _NAME)
    assert table is not None
    files = find_files(table)
    assert files is not None
    parts = sorted(part_of(file) for file in files.by_name.values())
    assert (len(parts), parts[0], parts[12], parts[-1]) == (15, "2007-01", "2008-01", "open")
