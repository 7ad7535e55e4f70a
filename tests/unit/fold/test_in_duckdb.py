"""Tests of versions from before a tail in the columns at its end."""

import pytest

from auditlake.delta.sql import open_duckdb
from auditlake.fold.in_duckdb import in_shape
from auditlake.lsn import Lsn
from auditlake.relation import Column
from auditlake.schema.evolution import AddedColumn, Followed

_ROWS = """
select * from (values (1, 7, map(['x'], ['y'])), (2, 3, map(['x'], ['y'])), (3, 3, null), (4, null, null))
    v(id, _to_lsn, _raw)
"""


@pytest.mark.parametrize("count", [1, 40])
def test_missing_values_that_do_not_fit_are_raw_texts_of_the_versions_that_had_them(count: int) -> None:
    """A version that ended before has no such entry; many added columns make a query of moderate length."""
    kept = Column("id", 23, -1, key=True)
    added = [Column(f"c{n}", 1184, -1, key=False, since=Lsn(5)) for n in range(count)]
    followed = Followed((), tuple(AddedColumn(each, "infinity") for each in added), {}, (kept, *added))
    with open_duckdb() as connection:
        query = in_shape(connection, _ROWS, {"id", "_to_lsn", "_raw"}, followed)
        found = connection.sql(f"select id, c0, _raw from ({query}) order by id").fetchall()
    missing = {f"c{n}": "infinity" for n in range(count)}
    assert found == [(1, None, {"x": "y"} | missing), (2, None, {"x": "y"}), (3, None, None), (4, None, missing)]
