"""Record streams of real servers: `python -m tests.data.pgoutput.record_streams [NAME]…`, from the repository root.

Unlike `record`, this must read while the transactions run, because a server does not send a subtransaction that has
already been rolled back. Each step of `SCRIPTS` names a session and a statement; after each step all messages are
received. The files have the format of `record`, one per entry of `SCRIPTS` and version.

`!stream` and `!plain` switch immediate streaming on and off (debug_logical_replication_streaming).
"""

import select
import struct
import sys
from contextlib import ExitStack, closing
from pathlib import Path

import psycopg
from psycopg import pq
from psycopg.pq.abc import PGconn

from auditlake.lsn import Lsn
from auditlake.source.connection import connect_replication
from tests.server import Server

FOLDER = Path(__file__).parent
VERSIONS = (16, 18)
SETTINGS = {"max_prepared_transactions": "5", "autovacuum": "off"}
SETUP = """
create table items (id int primary key, name text);
create type mood as enum ('sad', 'ok');
create table moods (id int primary key, m mood);
create publication p for table items, moods;
select pg_replication_origin_create('far');
"""

STREAMS = [
    ("!stream", ""),
    ("one", "insert into items values (1, 'one')"),
    ("one", "savepoint a"),
    ("one", "insert into items values (2, 'rolled back')"),
    ("two", "insert into items values (10, 'rolled back')"),
    ("one", "rollback to a"),
    ("two", "rollback"),
    ("one", "insert into moods values (3, 'ok')"),
    ("one", """select pg_logical_emit_message(true, 'auditlake', '{"user": "ann"}')"""),
    ("!plain", ""),
    ("three", "insert into items values (20, 'plain')"),
    ("three", "commit"),
    ("!stream", ""),
    ("one", "update items set name = 'uno', id = 4 where id = 1"),
    ("one", "truncate moods"),
    ("one", "commit"),
    ("two", "delete from items where id = 20"),
    ("two", "prepare transaction 'kept'"),
    ("!plain", ""),
    ("three", "select pg_logical_emit_message(false, 'x', 'not transactional')"),
    ("three", "commit"),
    ("two", "commit prepared 'kept'"),
    ("!stream", ""),
    ("two", "select pg_replication_origin_session_setup('far')"),
    ("two", "insert into items values (30, null)"),
    ("two", "commit"),
]
TWO_PHASE = [
    ("!plain", ""),
    ("one", "insert into items values (1, 'kept')"),
    ("one", "prepare transaction 'a'"),
    ("one", "commit prepared 'a'"),
    ("one", "insert into items values (2, 'dropped')"),
    ("one", "prepare transaction 'b'"),
    ("one", "rollback prepared 'b'"),
    ("!stream", ""),
    ("one", "insert into items values (3, 'streamed')"),
    ("one", "prepare transaction 'c'"),
    ("one", "commit prepared 'c'"),
]
SCRIPTS = {
    "streamed": (STREAMS, "streaming 'on'", False),
    "parallel": (STREAMS, "streaming 'parallel'", False),
    "prepared": (TWO_PHASE, "streaming 'on'", True),
}


class Recorder:
    """Reader of a slot that receives everything up to a given LSN."""

    def __init__(self, pgconn: PGconn, options: str) -> None:
        command = "START_REPLICATION SLOT s LOGICAL 0/0 (proto_version '4', publication_names 'p', messages 'true', "
        result = pgconn.exec_(f"{command}{options})".encode())
        assert result.status == pq.ExecStatus.COPY_BOTH, result.get_error_message()
        pgconn.nonblocking = 1
        self._pgconn = pgconn
        self.payloads: list[bytes] = []

    def take(self, end: Lsn) -> None:
        """Receive all messages up to `end`."""
        reached = Lsn(0)
        while reached < end:
            self._pgconn.put_copy_data(struct.pack(">cqqqqc", b"r", 0, 0, 0, 0, b"\1"))
            self._pgconn.flush()
            select.select([self._pgconn.socket], [], [], 0.05)
            self._pgconn.consume_input()
            length, message = self._pgconn.get_copy_data(1)
            while length > 0:
                if message[0] == ord("w"):
                    self.payloads.append(bytes(message[25:]))
                else:
                    reached = Lsn(int.from_bytes(message[1:9]))
                length, message = self._pgconn.get_copy_data(1)


def record(name: str, version: int) -> Path:
    """Run the steps on a server of this version and write its slot's messages to a file."""
    steps, options, two_phase = SCRIPTS[name]
    with ExitStack() as opened:
        server = opened.enter_context(Server(version, settings=SETTINGS))
        dsn = server.dsn(server.create_database())
        control = opened.enter_context(psycopg.connect(dsn, autocommit=True))
        control.execute(SETUP)
        control.execute("select pg_create_logical_replication_slot('s', 'pgoutput', false, %s)", [two_phase])
        sessions = {each: opened.enter_context(psycopg.connect(dsn)) for each in ("one", "two", "three")}
        # A server that stops waits for its walsender.
        replication = opened.enter_context(closing(connect_replication(dsn)))
        recorder = Recorder(replication.pgconn, options)
        for session, statement in steps:
            _step(control, sessions, session, statement)
            control.execute("select pg_logical_emit_message(false, 'end', '')")
            row = control.execute("select pg_current_wal_insert_lsn()::text").fetchone()
            assert row is not None
            recorder.take(Lsn.parse(row[0]))
    path = FOLDER / f"{name}.pg{version}.bin"
    ours = [payload for payload in recorder.payloads if b"end\0" not in payload]
    path.write_bytes(b"".join(struct.pack(">I", len(payload)) + payload for payload in ours))
    return path


def _step(
    control: psycopg.Connection[tuple[object, ...]],
    sessions: dict[str, psycopg.Connection[tuple[object, ...]]],
    session: str,
    statement: str,
) -> None:
    if session.startswith("!"):
        mode = {"!stream": "immediate", "!plain": "buffered"}[session]
        control.execute(f"alter system set debug_logical_replication_streaming = {mode}")
        control.execute("select pg_reload_conf()")
    elif " prepared " in statement:
        sessions[session].rollback()
        sessions[session].autocommit = True
        sessions[session].execute(statement)
        sessions[session].autocommit = False
    elif statement in {"commit", "rollback"}:
        getattr(sessions[session], statement)()
    else:
        sessions[session].execute(statement)


if __name__ == "__main__":
    for each in sys.argv[1:] or SCRIPTS:
        for major in VERSIONS:
            sys.stdout.write(f"{record(each, major)}\n")
