"""Tests of preflight: findings about the server, and the SQL of all findings."""

from dataclasses import replace

from auditlake.relation import Column, Relation, ReplicaIdentity, TableName
from auditlake.source.catalog import CatalogTable, FollowedTable
from auditlake.source.preflight import (
    ServerFacts,
    advise_on_encoding,
    check_access,
    check_server,
    check_table,
    fixing_sql,
)

READY = ServerFacts(
    major=18,
    wal_level="logical",
    in_recovery=False,
    encoding="UTF8",
    may_replicate=True,
    free_slots=2,
    role="me",
    may_create=True,
    database="shop",
    wal_senders=2,
    busy_wal_senders=1,
)


def test_a_server_with_a_free_wal_sender_is_ready() -> None:
    """One is enough: a running capture has its own."""
    assert check_server(READY, slot_exists=False) == []


def test_an_encoding_with_unassigned_bytes_is_a_warning() -> None:
    """It can be followed until a row with such bytes is written."""
    (warning,) = advise_on_encoding("WIN1252", "shop")
    assert "database shop: encoding WIN1252" in str(warning)
    assert advise_on_encoding("UTF8", "shop") == []


def test_exhausted_wal_senders_are_reported_with_both_numbers() -> None:
    """Capture would be refused for as long as all of them are in use."""
    (finding,) = check_server(replace(READY, busy_wal_senders=2), slot_exists=False)
    assert str(finding) == "max_wal_senders: is 2, 2 in use"
    assert "Raise max_wal_senders" in finding.fix


def test_all_remedies_are_one_block_of_sql() -> None:
    """Each statement once, in the order of the findings, identifiers quoted, and the restart at the end."""
    relation = Relation(1, TableName("public", 'odd "t"'), ReplicaIdentity.DEFAULT, ())
    table = FollowedTable(CatalogTable(relation, readable=False), relation)
    found = check_server(replace(READY, wal_level="replica", may_replicate=False), slot_exists=False)
    found += [*check_table(table, 18), *check_table(table, 18), *check_access(table, "me")]
    assert fixing_sql(found) == [
        "ALTER SYSTEM SET wal_level = 'logical';",
        'ALTER ROLE "me" REPLICATION;',
        'ALTER TABLE "public"."odd ""t""" REPLICA IDENTITY FULL;',
        'GRANT USAGE ON SCHEMA "public" TO "me";',
        'GRANT SELECT ON TABLE "public"."odd ""t""" TO "me";',
        "-- then restart PostgreSQL",
    ]


def test_a_partition_with_a_key_of_its_own_is_followed_if_both_are_full() -> None:
    """PostgreSQL logs whole old rows for both, so the partition's key identifies nothing."""
    assert check_table(_partitioned(ReplicaIdentity.FULL, own_key=True), 18) == []


def test_a_partition_identifies_rows_by_the_key_of_its_table() -> None:
    """Its changes are sent as the table's."""
    (finding,) = check_table(_partitioned(ReplicaIdentity.INDEX, own_key=False), 18)
    assert "partition public.part is 'i', of the table 'i', need the same key" in finding.problem


def _partitioned(identity: ReplicaIdentity, *, own_key: bool) -> FollowedTable:
    """Return a table and its partition; one of them has a key: the partition if `own_key`, else the table."""
    whole = Relation(1, TableName("public", "whole"), identity, (Column("id", 23, -1, key=not own_key),))
    part = Relation(2, TableName("public", "part"), identity, (Column("id", 23, -1, key=own_key),))
    return FollowedTable(CatalogTable(whole, kind="p"), whole, members=(CatalogTable(part, ancestors=(1,)),))
