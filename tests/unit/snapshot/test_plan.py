"""Patterns choose tables by schema and name, and `!` leaves out."""

import pytest

from auditlake.postgres.catalog import CatalogTable
from auditlake.relation import Relation, TableName
from auditlake.snapshot.plan import matches


def _table(schema: str, name: str) -> CatalogTable:
    relation = Relation(1, TableName(schema, name), "d", ())
    return CatalogTable(relation)


@pytest.mark.parametrize(
    ("patterns", "taken"),
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
def test_patterns(patterns: list[str], *, taken: bool) -> None:
    """Case counts, an exclusion wins, and exclusions alone take the rest."""
    assert matches(_table("public", "orders"), patterns) is taken
