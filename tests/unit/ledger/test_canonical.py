"""Canonical form: distinct rows have distinct texts, SQL and Python agree, and an erased value cannot be guessed."""

from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from auditlake.delta.append_table import AppendLog
from auditlake.delta.datafusion import hashed
from auditlake.delta.sql import read_newest, select
from auditlake.lake.histories import list_histories
from auditlake.lake.layout import CHANGES_APP
from auditlake.ledger.canonical import (
    IN_DATAFUSION,
    IN_DUCKDB,
    Identity,
    Kind,
    NotCanonical,
    Value,
    canonical_text,
    commitment_of,
    hash_of,
    list_texts,
    record_of,
    secret_of,
    sql_constant,
)
from auditlake.ledger.copies import copied_rows, copies_of, derived, row_entries
from auditlake.ledger.entries import CHANGES, TRANSACTIONS, entry_of, sql_has_form, sql_of, with_us
from auditlake.lsn import Lsn
from auditlake.pgoutput.batch_decoder import CHANGES_SCHEMA
from tests.proof_verifier import fields
from tests.s3_server import chosen_store
from tests.small_lake import write_lake_with_manifest

_texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
_values = st.one_of(st.none(), _texts, st.lists(st.one_of(st.none(), _texts), max_size=4))


@given(st.lists(_values, max_size=5))
def test_the_fields_can_be_read_back_so_no_two_rows_have_one_text(values: list[Value]) -> None:
    """The reader is that of the independent verifier."""
    assert fields(canonical_text(values)) == values


@pytest.mark.parametrize("value", ["a\0b", "\0N", ["a", "\0,"]])
def test_a_text_with_the_byte_0_has_no_canonical_form(value: Value) -> None:
    """PostgreSQL's text never has it."""
    with pytest.raises(NotCanonical):
        canonical_text([value])


def test_the_form_of_a_record_is_fixed() -> None:
    """A lake that was sealed must verify for ever: this is version 1, written out."""
    key, identity = bytes(range(32)), Identity(Kind.CHANGE, 0x150, 3, "")
    secret = secret_of(key, identity)
    by_hand = sha256(f"auditlake secret 1\0;{key.hex()}\0;change\0;336\0;3\0;\0;".encode()).digest()
    assert secret == by_hand[:16]
    commitment = commitment_of(secret, [None, ["1", None, "é"], ""])
    assert commitment == sha256(f"auditlake values 1\0;{secret.hex()}\0;\0-3\0[1\0,\0N\0,é\0]\0;".encode()).digest()
    record = record_of(Kind.CHANGE, (336, 3, None), commitment)
    assert record == f"auditlake entry 1\0;change\0;336\0;3\0;\0-{commitment.hex()}\0;"
    assert hash_of(record) == sha256(record.encode()).digest()


_HOSTILE = [
    None,
    [],
    [None],
    [""],
    ["a", None, "é\U0001f600"],
    [",", ";", "\x01", "\\", "'", '"', "\n"],
    ["NULL", "null", "{a,b}", "x" * 5000],
]


def test_sql_hashes_hostile_values_as_python_does(tmp_path: Path) -> None:
    """NULL, empty lists and texts, separators, quotes, and bytes in every column that may have them."""
    place = chosen_store(tmp_path / "changes")
    rows = [
        {
            "lsn": 1 << 40,
            "ordinal": number,
            "xid": None if number % 3 else 7,
            "time": None if number % 4 else 1_700_000_000_000_001,
            "origin": [None, "", "o'"][number % 3],
            "op": "message",
            "schema": [None, "public"][number % 2],
            "table": [None, 'or"ders'][number % 2],
            "relation": [None, 5][number % 2],
            "old": values,
            "new": _HOSTILE[::-1][number],
            "unchanged": [None, [], [1, 2, 3]][number % 3],
            "prefix": [None, "", "p"][number % 3],
            "content": [None, b"", b"\0\xff"][number % 3],
        }
        for number, values in enumerate(_HOSTILE)
    ]
    AppendLog(place, CHANGES_SCHEMA).append(pa.RecordBatch.from_pylist(rows, CHANGES_SCHEMA), {CHANGES_APP: 1 << 40})
    table, key = read_newest(place), bytes(32)
    assert table is not None
    in_duckdb, in_datafusion = (
        f"select {sql_of(CHANGES, sql_constant(key.hex()), dialect)} as h from t order by ordinal"
        for dialect in (IN_DUCKDB, IN_DATAFUSION)
    )
    read = with_us(select("from t order by ordinal", t=table)).to_pylist()
    expected = [(entry := entry_of(CHANGES, row)).hash(entry.secret(key)) for row in read]
    assert select(in_duckdb, t=table)["h"].to_pylist() == expected
    found = hashed(place, in_datafusion)
    assert found is not None
    assert found["h"].to_pylist() == expected
    assert select(f"select bool_and({sql_has_form(CHANGES)}) as ok from t", t=table)["ok"].to_pylist() == [True]


def test_sql_reports_a_text_with_the_byte_0(tmp_path: Path) -> None:
    """Its hash could be that of another row."""
    place = tmp_path / "transactions"
    schema = pa.schema([("origin", pa.string()), ("context", pa.string()), ("tables", pa.list_(pa.string()))])
    rows = [
        {"origin": "a", "context": "{}", "tables": ["t"]},
        {"origin": "a\0b", "context": "{}", "tables": ["t"]},
        {"origin": "a", "context": "{}", "tables": ["t", "\0N"]},
    ]
    write_deltalake(place, pa.Table.from_pylist(rows, schema))
    table = read_newest(place)
    assert table is not None
    found = select(f"select {sql_has_form(TRANSACTIONS)} as ok from t", t=table)
    assert found["ok"].to_pylist() == [True, False, False]


def test_rows_of_copies_are_hashed_by_column_as_one_by_one(tmp_path: Path) -> None:
    """The first is fast, the second is what a proof shows."""
    lake, key = write_lake_with_manifest(tmp_path / "lake"), bytes(32)
    counted = 0
    for table in list_histories(lake):
        for lsn in copies_of(table, Lsn(0)):
            for part in copied_rows(table, lsn, derived(key)):
                assert part.hashes == [
                    each.hash(each.secret(key)) for each in row_entries(table, lsn, part.kind, part.rows)
                ]
                counted += len(part.hashes)
    assert counted == 3


def test_lists_by_column_have_the_form_of_lists() -> None:
    """Of no column, too."""
    columns = [pa.array(["a", None], pa.string()), pa.array([None, ""], pa.string())]
    assert list_texts(columns, 2).to_pylist() == [canonical_text([["a", None]]), canonical_text([[None, ""]])]
    assert list_texts([], 1).to_pylist() == [canonical_text([[]])]
    with pytest.raises(NotCanonical):
        list_texts([pa.array(["a\0"])], 1)


def test_equal_values_have_unequal_commitments() -> None:
    """Otherwise a commitment whose values are gone could be compared with that of a guess."""
    key = bytes(32)
    entries = [Identity(Kind.CHANGE, 1, ordinal, "") for ordinal in range(3)]
    assert len({commitment_of(secret_of(key, each), ["jane@example.com"]) for each in entries}) == 3
    assert len({secret_of(bytes([each] * 32), entries[0]) for each in range(3)}) == 3
