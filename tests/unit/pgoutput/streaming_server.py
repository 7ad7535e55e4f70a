"""Simulated server that streams: it runs steps of several sessions, and returns its payloads and the rows they mean.

It keeps pgoutput's state: the relations already sent, in plain transactions and in each streamed one, and the events
that require sending one again (pgoutput.c: maybe_send_schema, cleanup_rel_sync_cache, rel_sync_cache_relation_cb).
Renaming a schema changes a Relation message without a lock, so it can happen while other transactions have changed the
table's rows.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeAlias

from auditlake.lsn import Lsn
from auditlake.pgoutput.decoder import (
    Begin,
    Commit,
    Insert,
    Message,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
)
from auditlake.relation import Column, Relation, ReplicaIdentity, TableName
from tests.unit.pgoutput.encode import encode, encode_streamed

TIME = datetime(2026, 11, 21, 9, 30, 0, 123456, tzinfo=UTC)
OIDS = (0x4001, 0x4002)

Row: TypeAlias = tuple[str, str]
"""The relation's name at the time, and the inserted value."""


@dataclass
class _Session:
    """A transaction: its savepoints (sets of xids, the innermost last), the rows sent, and the rows pending."""

    xid: int
    nest: list[set[int]]
    pending: list[tuple[int, int, str]] = field(default_factory=list)
    sent: list[tuple[int, Row]] = field(default_factory=list)
    streamed: bool = False


class StreamingServer:
    """Runs steps; `payloads` are those sent so far, `committed` the rows of each transaction in commit order."""

    def __init__(self, first_xid: int) -> None:
        self.payloads: list[bytes] = []
        self.committed: list[tuple[int, list[Row]]] = []
        self._next_xid = first_xid
        self._lsn = 100
        self._value = 0
        self._sessions: dict[int, _Session] = {}
        self._names = dict.fromkeys(OIDS, 0)
        self._described: set[int] = set()
        self._described_in: set[tuple[int, int]] = set()

    def step(self, kind: str, number: int, choice: int) -> None:
        """Run one step in session `number`, if it is possible there; `choice` selects a variant of it."""
        session = self._sessions.get(number)
        if kind == "plain":
            self._plain(choice)
        elif kind == "rename":
            self._rename(OIDS[choice % 2])
        elif session is None:
            xid = self._xid()
            self._sessions[number] = _Session(xid, [{xid}])
        else:
            getattr(self, f"_{kind}")(session, choice)
            if kind in {"commit", "abort"}:
                del self._sessions[number]

    def _xid(self) -> int:
        self._next_xid = (self._next_xid + 1) % 2**32
        return self._next_xid

    def _send(self, *messages: Message) -> None:
        self.payloads += [encode(message) for message in messages]

    def _relation(self, oid: int) -> Relation:
        name = TableName("public", f"t{oid:x}_{self._names[oid]}")
        return Relation(oid, name, ReplicaIdentity.DEFAULT, (Column("id", 23, -1, key=True),))

    def _rename(self, oid: int) -> None:
        self._names[oid] += 1
        self._described.discard(oid)
        self._described_in = {each for each in self._described_in if each[1] != oid}

    def _new(self, choice: int) -> tuple[int, str]:
        self._value += 1
        return OIDS[choice % 2], str(self._value)

    def _plain(self, choice: int) -> None:
        self._lsn += 50
        xid, rows = self._xid(), []
        self._send(Begin(Lsn(self._lsn), TIME, xid))
        for part in range(choice % 3):
            oid, value = self._new(choice + part)
            if oid not in self._described:
                self._send(self._relation(oid))
                self._described.add(oid)
            self._send(Insert(oid, (value,)))
            rows.append((self._relation(oid).name.table, value))
        self._send(Commit(Lsn(self._lsn), Lsn(self._lsn + 20), TIME))
        self.committed.append((self._lsn, rows))

    def _change(self, session: _Session, choice: int) -> None:
        innermost = max(session.nest[-1]) if choice % 4 else min(session.nest[-1])
        session.pending.append((innermost, *self._new(choice)))

    def _savepoint(self, session: _Session, _: int) -> None:
        session.nest.append({self._xid()})

    def _release(self, session: _Session, _: int) -> None:
        if len(session.nest) > 1:
            released = session.nest.pop()
            session.nest[-1] |= released

    def _rollback(self, session: _Session, choice: int) -> None:
        if len(session.nest) == 1:
            return
        gone = session.nest.pop()
        if choice % 2:
            self._stream(session, choice)
        session.pending = [each for each in session.pending if each[0] not in gone]
        for xid in sorted(gone, reverse=True):
            if session.streamed:
                self._send(StreamAbort(session.xid, xid))
                self._undescribe(session)
        session.sent = [each for each in session.sent if each[0] not in gone]

    def _undescribe(self, session: _Session) -> None:
        self._described_in = {each for each in self._described_in if each[0] != session.xid}

    def _stream(self, session: _Session, _: int) -> None:
        self._send(StreamStart(session.xid, first=not session.streamed))
        session.streamed = True
        for xid, oid, value in session.pending:
            relation = self._relation(oid)
            if (session.xid, oid) not in self._described_in:
                self.payloads.append(encode_streamed(xid, relation))
                self._described_in.add((session.xid, oid))
            self.payloads.append(encode_streamed(xid, Insert(oid, (value,))))
            session.sent.append((xid, (relation.name.table, value)))
        session.pending.clear()
        self._send(StreamStop())

    def _commit(self, session: _Session, choice: int) -> None:
        self._stream(session, choice)
        self._lsn += 50
        self._send(StreamCommit(session.xid, Lsn(self._lsn), Lsn(self._lsn + 20), TIME))
        self.committed.append((self._lsn, [row for _, row in session.sent]))
        self._described |= {oid for xid, oid in self._described_in if xid == session.xid}
        self._undescribe(session)

    def _abort(self, session: _Session, choice: int) -> None:
        if choice % 2:
            self._stream(session, choice)
        if session.streamed:
            self._send(StreamAbort(session.xid, session.xid))
        self._undescribe(session)
