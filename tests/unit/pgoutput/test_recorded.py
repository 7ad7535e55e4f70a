"""Bytes that real servers sent for `tests/data/pgoutput/walk.sql` against the rows that its statements mean."""

import contextlib
import json
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from auditlake.errors import DecodeError
from auditlake.pgoutput.columnar import ChangeDecoder
from auditlake.pgoutput.messages import LogicalMessage, Truncate
from auditlake.pgoutput.wire import decode
from auditlake.relation import Column, Relation
from tests.unit.pgoutput.encode import encode
from tests.unit.pgoutput.framing import frame
from tests.unit.pgoutput.model import Model, version

FOLDER = Path(__file__).parents[2] / "data" / "pgoutput"
TEXT, INT4, NUMERIC = 25, 23, 1700


@pytest.fixture(params=[16, 18], ids=lambda major: f"PostgreSQL {major}")
def payloads(request: pytest.FixtureRequest) -> list[bytes]:
    """Give the recorded messages of one server."""
    data = (FOLDER / f"walk.pg{request.param}.bin").read_bytes()
    found, at = [], 0
    while at < len(data):
        (size,) = struct.unpack_from(">I", data, at)
        found.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return found


def expected() -> list[dict[str, Any]]:
    """Read the transactions that were written down by hand."""
    loaded: list[dict[str, Any]] = json.loads((FOLDER / "walk.json").read_text(), object_hook=_long_value)
    return loaded


def _long_value(spelled: dict[str, Any]) -> Any:
    match spelled:
        case {"repeat": [text, times]}:
            return text * times
        case {"hex": text}:
            return bytes.fromhex(text)
        case _:
            return spelled


def _row(row: dict[str, Any]) -> list[Any]:
    if row["op"] == "message":
        content = row["content"]
        with contextlib.suppress(UnicodeDecodeError):
            content = content.decode()
        return [row["op"], row["prefix"], content]
    return [row[name] for name in ("op", "schema", "table", "old", "new", "unchanged")]


def test_the_rows_are_those_of_the_statements(payloads: list[bytes]) -> None:
    """Every statement's rows, in order, transaction by transaction."""
    decoded = ChangeDecoder(lambda relation, _: version(relation)).decode(*frame(payloads))
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


def test_commit_lsns_rise(payloads: list[bytes]) -> None:
    """The order key rises from commit to commit, and each end comes after its commit."""
    transactions = ChangeDecoder(lambda *_: 0).decode(*frame(payloads)).transactions.to_pylist()
    assert all(before["end_lsn"] <= after["lsn"] for before, after in pairwise(transactions))
    assert all(each["lsn"] < each["end_lsn"] for each in transactions)


def test_relations_are_those_of_the_tables(payloads: list[bytes]) -> None:
    """Each table's shape as it was created, and the new one after a column was added."""
    registered: dict[Relation, int] = {}
    ChangeDecoder(registered.setdefault).decode(*frame(payloads))
    seen = list(registered)
    mood = next(column.type_oid for relation in seen for column in relation.columns if column.name == "m")
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
    ] == [(str(relation.name), relation.replica_identity, relation.columns) for relation in seen]


def test_both_decoders_agree(payloads: list[bytes]) -> None:
    """The plain decoder, folded by the model, gives the same rows; one buffer per message gives them too."""
    decoder = ChangeDecoder(lambda relation, _: version(relation))
    batches = [decoder.decode(*frame([payload])) for payload in payloads]
    model = Model().feed(map(decode, payloads))
    assert model.changes == [row for batch in batches for row in batch.changes.to_pylist()]
    assert model.transactions == [row for batch in batches for row in batch.transactions.to_pylist()]


def test_the_encoder_of_the_tests_writes_what_servers_write(payloads: list[bytes]) -> None:
    """Encoding what was decoded gives the server's own bytes, so the other tests speak of real messages."""
    for payload in payloads:
        assert payload == encode(decode(payload)) or payload[:1] in b"RY"  # they may abbreviate pg_catalog


def test_messages_have_their_flags(payloads: list[bytes]) -> None:
    """RESTART IDENTITY and the non-transactional message are seen as what they are."""
    messages = [decode(payload) for payload in payloads]
    assert [(m.cascade, m.restart_identity) for m in messages if isinstance(m, Truncate)] == [(False, True)]
    assert [m.transactional for m in messages if isinstance(m, LogicalMessage)] == [False, True, True]


def test_a_cut_message_is_refused(payloads: list[bytes]) -> None:
    """A real message without its last bytes is refused, wherever it is cut."""
    for payload in payloads:
        for size in range(min(len(payload), 200)):
            with pytest.raises(DecodeError):
                decode(payload[:size])
