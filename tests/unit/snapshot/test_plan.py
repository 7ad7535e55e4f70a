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
    assert is_chosen(_table("public", "orders"), patterns) is expected
