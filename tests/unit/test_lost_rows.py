"""A partition with a new file: whether the catalog and the stream show that it kept its rows."""

import pytest

from auditlake.capture.partition_watch import Partition, PartNow, Since, Truncated, lost_rows
from auditlake.lsn import Lsn

_BEFORE, _XID = Partition("t_a", 100, "7", 50), 9


def _lost(rows: int, since: Since) -> str | None:
    now = PartNow(Partition("t_a", 200, "7", 50), made_here=False, changed_by=_XID, vacuumed=False)
    return lost_rows(_BEFORE, now, rows, since, reports=False)


@pytest.mark.parametrize(
    ("rows", "inserts", "kept"), [(1, 0, True), (0, 0, False), (100, 100, False), (101, 100, True)]
)
def test_only_more_rows_than_were_inserted_show_that_it_was_not_truncated(
    rows: int, inserts: int, *, kept: bool
) -> None:
    """Each of the others was there before."""
    assert (_lost(rows, Since({}, inserts)) is None) == kept


@pytest.mark.parametrize("filled", [True, False])
def test_a_truncate_of_the_whole_table_explains_it_unless_rows_followed(*, filled: bool) -> None:
    """A second TRUNCATE in its transaction, of the partition alone, would leave no trace."""
    since = Since({_XID: Truncated(Lsn(300), 0, filled=filled)}, 5)
    assert _lost(0, since) == ("was truncated" if filled else None)
