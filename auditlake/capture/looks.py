"""Looks at tables now and then, so that a column that is added later can be explained (`auditlake.added`).

A look is kept only if it shows no column that the lake has not heard of: one that it shows could not be told from those
that were there before, and a table that was written anew to add it could not be seen any more.
"""

import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence

import psycopg

from auditlake.added import Existing, Found, Look, decide
from auditlake.lake.added import Question, read_added
from auditlake.lake.history import open_history
from auditlake.lake.layout import Lake
from auditlake.lake.looks import read_look, write_look
from auditlake.lsn import Lsn
from auditlake.postgres.added import Looked, read_column, read_looks
from auditlake.postgres.connection import Row, connect, hung_up_after
from auditlake.relation import TableName

# A commit that waits for a standby is in the stream before the catalog shows it.
_VISIBLE_WITHIN_S = 2.0
_POLL_S = 0.1


def first_look(control: psycopg.Connection[Row], lake: Lake, tables: Mapping[TableName, int]) -> None:
    """Look at tables, by OID, that have no history yet; before their snapshot."""
    for name, looked in _by_name(control, tables).items():
        write_look(lake, name, looked.look)


class Looks:
    """The looks at the tables of one lake."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._last: dict[TableName, Look | None] = {}

    def refresh(self, control: psycopg.Connection[Row], tables: Mapping[TableName, int]) -> None:
        """Look at tables, by OID, that have a history, and keep what has changed where it may be kept."""
        for name, looked in _by_name(control, tables).items():
            if name not in self._last:
                self._last[name] = read_look(self._lake, name)
            before, now = self._last[name], looked.look
            if before is not None and _is_same(before, now):
                continue
            since = 0 if before is None or before.relation != now.relation else before.attributes
            later = [column for column, number in looked.columns.items() if number > since]
            if self._know(name, now.relation, later):
                write_look(self._lake, name, now)
                self._last[name] = now

    def _know(self, name: TableName, relation: int, columns: Collection[str]) -> bool:
        history = open_history(self._lake, name)
        if history is None:
            return False
        known = {column.name for column in history.columns}
        if unheard := [column for column in columns if column not in known]:
            answers = read_added(self._lake)
            known |= {a.column for a, answer in answers.items() if a.relation == relation and answer.problem is None}
            return known.issuperset(unheard)
        return True


def _is_same(one: Look, other: Look) -> bool:
    return (one.relation, one.attributes, one.files) == (other.relation, other.attributes, other.files)


def _by_name(control: psycopg.Connection[Row], tables: Mapping[TableName, int]) -> dict[TableName, Looked]:
    names = {relation: name for name, relation in tables.items()}
    return {names[looked.look.relation]: looked for looked in read_looks(control, names)}


class Asker:
    """Asks the source, over a connection of its own, what rows from before show in columns that were added."""

    def __init__(self, conninfo: str, lake: Lake, deaf_s: float) -> None:
        self._conninfo = conninfo
        self._lake = lake
        self._deaf_s = deaf_s

    def __call__(self, questions: Sequence[Question]) -> Sequence[Existing]:
        """Answer each question.

        Raises SourceUnreachable.
        """
        with connect(self._conninfo) as conn, hung_up_after(conn.fileno(), self._deaf_s):
            return list(self._answers(conn, questions))

    def _answers(self, conn: psycopg.Connection[Row], questions: Iterable[Question]) -> Iterable[Existing]:
        for question in questions:
            added = question.added
            look = read_look(self._lake, question.table)
            found = _read_when_visible(conn, added.relation, added.column)
            yield decide(look if look and look.relation == added.relation else None, found, Lsn(added.lsn))


def _read_when_visible(conn: psycopg.Connection[Row], relation: int, column: str) -> Found | None:
    until = time.monotonic() + _VISIBLE_WITHIN_S
    while (found := read_column(conn, relation, column)) is None and time.monotonic() < until:
        threading.Event().wait(_POLL_S)
    return found
