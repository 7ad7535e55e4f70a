"""Tests of the choice of tables by patterns."""

import pytest

from auditlake.relation import Relation, ReplicaIdentity, TableName
from auditlake.snapshot.plan import is_chosen
from auditlake.source.catalog import CatalogTable


def _table(schema: str, name: str) -> CatalogTable:
    relation = Relation(1, TableName(schema, name), ReplicaIdentity.DEFAULT, ())
    return CatalogTable(relation)


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (["public.*"], True),
        (["public.orders"], True),
        (["sales.*"], False),
        (["public.*", "!public.ord*"], False),
        (["!public.log_*"], True),
        (["!public.orders"], False),
        (["PUBLIC.orders"], False),
    ],
)
def test_a_pattern_chooses_and_an_exclusion_wins(patterns: list[str], *, expected: bool) -> None:
    """Matching is case-sensitive; exclusions alone choose every other table."""
    assert is_chosen(_table("public", "orders"), tuple(patterns)) is expected


_NAMES = ["!orders", "a[1]", "[!a]", "a*", "a?", "^a", "a-z]", "x.y", '"', "Orders", "a\nb", "[", "!"]


@pytest.mark.parametrize("schema", ["public", "!s", "[a]", "x.y"])
def test_a_name_is_a_pattern_of_its_own(schema: str) -> None:
    """As PostgreSQL has it, unless its schema begins with an exclamation mark, and as messages quote it."""
    for name in _NAMES:
        table = _table(schema, name)
        assert is_chosen(table, (str(table.name),))
        assert not is_chosen(table, (f"!{table.name}",))
        assert schema.startswith("!") or is_chosen(table, (f"{schema}.{name}",))
        assert [each for each in _NAMES if is_chosen(_table(schema, each), frozenset({table.name}))] == [name]
