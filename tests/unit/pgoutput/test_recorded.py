"""Tests on recordings of real servers: the bytes for `tests/data/pgoutput/walk.sql` decode to its statements' rows."""

import contextlib
import json
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from auditlake.errors import DecodeError
from auditlake.pgoutput.batch_decoder import ChangeDecoder
from auditlake.pgoutput.batch_layout import Described
from auditlake.pgoutput.decoder import LogicalMessage, Truncate, decode
from auditlake.relation import Column
from tests.unit.pgoutput.encode import encode
from tests.unit.pgoutput.framing import frame
from tests.unit.pgoutput.model import Model, Versions

FOLDER = Path(__file__).parents[2] / "data" / "pgoutput"
TEXT, INT4, NUMERIC = 25, 23, 1700


@pytest.fixture(params=[16, 18], ids=lambda major: f"PostgreSQL {major}")
def payloads(request: pytest.FixtureRequest) -> list[bytes]:
    """Read the recorded messages of one server."""
    data = (FOLDER / f"walk.pg{request.param}.bin").read_bytes()
    recorded, at = [], 0
    while at < len(data):
        (size,) = struct.unpack_from(">I", data, at)
        recorded.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return recorded


def expected() -> list[dict[str, Any]]:
    """Read the expected transactions, which were written by hand."""
    loaded: list[dict[str, Any]] = json.loads((FOLDER / "walk.json").read_text(), object_hook=_long_value)
    return loaded


def _long_value(value: dict[str, Any]) -> Any:
    match value:
        case {"repeat": [text, times]}:
            return text * times
        case {"hex": text}:
            return bytes.fromhex(text)
        case _:
            return value


def _row(row: dict[str, Any]) -> list[Any]:
    if row["op"] == "message":
        content = row["content"]
        with contextlib.suppress(UnicodeDecodeError):
            content = content.decode()
        return [row["op"], row["prefix"], content]
    return [row[name] for name in ("op", "schema", "table", "old", "new", "unchanged")]


def test_recorded_bytes_decode_to_the_statements_rows(payloads: list[bytes]) -> None:
    """Every transaction has the rows of its statements, in order."""
    decoded = ChangeDecoder().decode(*frame(payloads))
    changes, transactions = decoded.changes.to_pylist(), decoded.transactions.to_pylist()
    assert len(expected()) == len(transactions)
    for wanted, transaction in zip(expected(), transactions, strict=True):
        rows = [row for row in changes if row["lsn"] == transaction["lsn"]]
        assert wanted["rows"] == [_row(row) for row in rows]
        assert list(range(len(rows))) == [row["ordinal"] for row in rows]
        assert {(transaction["xid"], transaction["time"], wanted.get("origin"))} == {
            (row["xid"], row["time"], row["origin"]) for row in rows
        }
        context = f'{{"app": {wanted["context"]}}}' if "context" in wanted else None
        assert (wanted.get("origin"), context) == (transaction["origin"], transaction["context"])
        assert sorted(wanted["tables"]) == transaction["tables"]
        for op in ("insert", "update", "delete", "truncate"):
            assert sum(row[0] == op for row in wanted["rows"]) == transaction[f"{op}s"]


def test_commit_lsns_increase(payloads: list[bytes]) -> None:
    """Each end LSN is after its commit LSN and not after the next commit LSN."""
    transactions = ChangeDecoder().decode(*frame(payloads)).transactions.to_pylist()
    assert all(before["end_lsn"] <= after["lsn"] for before, after in pairwise(transactions))
    assert all(each["lsn"] < each["end_lsn"] for each in transactions)


def test_one_relation_version_is_registered_per_table_definition(payloads: list[bytes]) -> None:
    """Each table as created, and again after a column was added."""
    entries = ChangeDecoder().decode(*frame(payloads)).entries
    versions = list(dict.fromkeys(entry.relation for entry in entries if isinstance(entry, Described)))
    mood = next(column.type_oid for relation in versions for column in relation.columns if column.name == "m")
    id_key, big = Column("id", INT4, -1, key=True), Column("big", TEXT, -1, key=True)
    # numeric(6,2): the modifier is precision << 16 | scale, plus 4
    odd = (Column("Ключ", INT4, -1, key=True), Column("V 1", NUMERIC, (6 << 16 | 2) + 4, key=True), big)
    moods = (
        Column("id", INT4, -1, key=False),
        Column("m", mood, -1, key=False),
        Column("code", TEXT, -1, key=True),
    )
    assert [
        ("public.items", "d", (id_key, Column("name", TEXT, -1, key=False), Column("note", TEXT, -1, key=False))),
        ('"Ünï"."a ""b"" c"', "f", odd),
        ("public.moods", "i", moods),
        ("public.moods", "i", (*moods, Column("extra", INT4, -1, key=False))),
    ] == [(str(relation.name), relation.replica_identity, relation.columns) for relation in versions]


def test_both_decoders_agree(payloads: list[bytes]) -> None:
    """The model on the message decoder has the same rows as the batch decoder with one buffer per message."""
    decoder = ChangeDecoder()
    versions, batches = Versions(), [decoder.decode(*frame([payload])) for payload in payloads]
    model = Model().feed(map(decode, payloads))
    assert model.changes == [row for batch in batches for row in versions.rows(batch).to_pylist()]
    assert model.transactions == [row for batch in batches for row in batch.transactions.to_pylist()]


def test_the_test_encoder_reproduces_the_servers_bytes(payloads: list[bytes]) -> None:
    """Encoding a decoded message restores the server's bytes, so the other tests use realistic messages."""
    for payload in payloads:
        assert payload == encode(decode(payload)) or payload[:1] in b"RY"  # they may abbreviate pg_catalog


def test_flags_of_recorded_messages_are_decoded(payloads: list[bytes]) -> None:
    """RESTART IDENTITY is set on the truncate, and one logical message is non-transactional."""
    messages = [decode(payload) for payload in payloads]
    assert [(m.cascade, m.restart_identity) for m in messages if isinstance(m, Truncate)] == [(False, True)]
    assert [m.transactional for m in messages if isinstance(m, LogicalMessage)] == [False, True, True]


def test_a_truncated_recorded_message_is_refused(payloads: list[bytes]) -> None:
    """A recorded message without its last bytes raises, for every length up to 200 bytes."""
    for payload in payloads:
        for size in range(min(len(payload), 200)):
            with pytest.raises(DecodeError):
                decode(payload[:size])
