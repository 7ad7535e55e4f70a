"""Physical columns of one column of the source, by attribute number, or by name where numbers cannot be compared."""

import pytest

from auditlake.lake.column_identity import source_columns
from auditlake.lsn import Lsn
from auditlake.relation import Column, Former


def _column(  # noqa: PLR0913, PLR0917 - what identifies a column
    stored: str,
    attnum: int | None,
    since: int | None = None,
    until: int | None = None,
    name: str = "",
    former: tuple[Former, ...] = (),
) -> Column:
    begin, end = (None if lsn is None else Lsn(lsn) for lsn in (since, until))
    return Column(name or stored, 23, -1, False, stored, begin, attnum, end, former)


@pytest.mark.parametrize(
    ("columns", "former_oids", "groups"),
    [
        pytest.param(
            [_column("a", 1, until=9), _column("b", 2), _column("a~2", 1, 9, 20), _column("a~3", 1, 20)],
            [],
            [["a", "a~2", "a~3"], ["b"]],
            id="rewritten twice",
        ),
        pytest.param([_column("a", 1, until=9), _column("a~2", 3, 9)], [], [["a"], ["a~2"]], id="dropped and added"),
        pytest.param([_column("a", 1, until=9), _column("a~2", 1, 12)], [], [["a", "a~2"]], id="published again"),
        pytest.param(
            [_column("a", 1, until=9), _column("c", 1, 9, former=(Former(Lsn(12), "b", key=False),))],
            [],
            [["a", "c"]],
            id="rewritten and renamed",
        ),
        pytest.param(
            [_column("a", None, until=9), _column("a~2", None, 9, name="a"), _column("b", None)],
            [],
            [["a", "a~2"], ["b"]],
            id="numbers unknown",
        ),
        pytest.param(
            [_column("a", None, until=9), _column("a~2", None, 12, name="a")], [], [["a"], ["a~2"]], id="gone"
        ),
        pytest.param(
            # The former source had a and b as 2 and 3, the restored one has b as 2 and a, of another type, as 3.
            [_column("id", 1), _column("a", 2, until=9), _column("b", 2), _column("a~2", 3, 9, name="a")],
            [(Lsn(5), 16385)],
            [["id"], ["a", "a~2"], ["b"]],
            id="another source",
        ),
        pytest.param(
            [_column("a", 2, until=9), _column("a~2", 2, 9, 30, name="a"), _column("b", 2, 30)],
            [(Lsn(9), 16385)],
            [["a", "a~2", "b"]],
            id="rewritten in the new source and with it",
        ),
    ],
)
def test_physical_columns_of_one_column_are_found(
    columns: list[Column], former_oids: list[tuple[Lsn, int]], groups: list[list[str]]
) -> None:
    """Oldest first."""
    found = source_columns(columns, former_oids)
    assert sorted([column.stored for column in each] for each in found) == sorted(groups)
