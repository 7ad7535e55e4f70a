"""Tests of windows: a backlog is cut at commit LSNs by its uncompressed size, never within a transaction."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditlake.apply.windows import ChangeFile, cut
from auditlake.delta.row_groups import ROW_BYTES, held_bytes, row_groups
from auditlake.lsn import Lsn

_VALUE_BYTES = 100_000
_ROW = _VALUE_BYTES + ROW_BYTES + 200  # something for the other columns


def _file(folder: Path, lsns: Sequence[int]) -> ChangeFile:
    path = folder / f"{len(list(folder.iterdir()))}.parquet"
    new = pa.array([["x" * _VALUE_BYTES]] * len(lsns))
    pq.write_table(pa.table({"lsn": pa.array(lsns), "new": new}), path, use_dictionary=False)
    return ChangeFile(path, min(lsns), max(lsns))


def test_compressible_values_count_with_their_length(tmp_path: Path) -> None:
    """The file itself is less than a tenth of that."""
    file = _file(tmp_path, [1, 2, 3])
    assert 3 * _VALUE_BYTES < held_bytes([file.path]) < 3 * _ROW
    assert file.path.stat().st_size < 3 * _VALUE_BYTES / 10


@pytest.mark.parametrize(
    ("files", "rows", "ends"),
    [
        ([[1, 2], [3, 4], [5]], 10, [5]),
        ([[1, 2], [3, 4], [5]], 2, [2, 4, 5]),
        ([[1, 2], [3, 4], [5]], 3, [3, 5]),
        ([[1, 2, 3, 4, 5, 6]], 2, [2, 4, 6]),
        ([[1], [2, 2], [2, 2], [2, 3], [4]], 2, [1, 2, 4]),  # one transaction in parts, larger than a window
        ([[1, 6], [2, 3], [4, 5]], 2, [2, 4, 6]),  # joined files, not in order
    ],
)
def test_windows_are_no_larger_than_the_limit_or_one_transaction(
    tmp_path: Path, files: list[list[int]], rows: int, ends: list[int]
) -> None:
    """Windows are consecutive up to the limit; only the last has no `more`."""
    made = [_file(tmp_path, lsns) for lsns in files]
    found, after, more = list[int](), 0, True
    while more:
        window = cut(made, Lsn(after), Lsn(ends[-1]), rows * _ROW)
        changes = sum(after < lsn <= window.upto for lsns in files for lsn in lsns)
        assert changes * _VALUE_BYTES <= window.held_bytes <= changes * _ROW
        more, after = window.more, window.upto
        found.append(after)
    assert found == ends


def test_a_window_begins_inside_a_file(tmp_path: Path) -> None:
    """Changes that are applied already do not count."""
    file = _file(tmp_path, [1, 2, 3, 4])
    assert cut([file], Lsn(2), Lsn(4), 2 * _ROW).upto == 4
    assert not cut([file], Lsn(2), Lsn(4), 2 * _ROW).more
    assert cut([file], Lsn(4), Lsn(9), _ROW).held_bytes == 0


def test_a_footer_is_read_once(tmp_path: Path) -> None:
    """Files of a table never change."""
    file = _file(tmp_path, [1])
    assert row_groups(file.path) == (row_groups(file.path)[0],)
    file.path.unlink()
    assert row_groups(file.path)[0].rows == 1
