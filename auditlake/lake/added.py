"""The `added` table: what rows that were there before show in a column that was added (`auditlake.added`).

One row for each time that the source was asked. What is known once stays so; of what was not known the newest answer
says why. An answer is about the column as it was first seen, in the commit at `lsn`: one that is added again is another
column, and has an answer of its own.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa

from auditlake.added import Existing
from auditlake.lake.history import open_history
from auditlake.lake.layout import Lake
from auditlake.lake.log import AppendLog, open_delta
from auditlake.relation import Relation, TableName

ADDED_SCHEMA = pa.schema(
    [
        ("lsn", pa.int64()),
        ("oid", pa.int64()),
        ("schema", pa.string()),
        ("table", pa.string()),
        ("column", pa.string()),
        ("value", pa.string()),
        ("problem", pa.string()),
        ("time", pa.timestamp("us", tz="UTC")),
    ]
)


@dataclass(frozen=True, slots=True)
class Added:
    """A column of the relation with this OID that was first seen in the commit at `lsn`."""

    relation: int
    column: str
    lsn: int


@dataclass(frozen=True, slots=True)
class Question:
    """What rows from before show in a column that was added to `table`."""

    table: TableName
    added: Added


Answers = Mapping[Added, Existing]
Ask = Callable[[Sequence[Question]], Sequence[Existing]]
"""Asks the source; one answer for each question."""


def read_added(lake: Lake) -> dict[Added, Existing]:
    """Read what is known of added columns."""
    table = open_delta(lake.added)
    return {} if table is None else _answers(pa.table(table.to_pyarrow_table()).sort_by("time").to_pylist())


def _answers(rows: Iterable[dict[str, object]]) -> dict[Added, Existing]:
    found: dict[Added, Existing] = {}
    for row in rows:
        added = Added(int(str(row["oid"])), str(row["column"]), int(str(row["lsn"])))
        value, problem = row["value"], row["problem"]
        if added not in found or found[added].problem is not None:
            found[added] = Existing(None if value is None else str(value), None if problem is None else str(problem))
    return found


class AddedLog:
    """Asks the source about columns that were added, and appends the answers."""

    def __init__(self, lake: Lake, ask: Ask | None) -> None:
        """Ask nobody where `ask` is None: the questions stay open."""
        self._lake = lake
        self._ask = ask
        self._log: AppendLog | None = None
        self._answers = read_added(lake)

    def settle(self, versions: Sequence[tuple[int, Relation]], names: frozenset[TableName]) -> None:
        """Ask what is open about tables of these names; `versions` are all (LSN, relation) so far, in order."""
        if self._ask is None:
            return
        asked = [question for name in sorted(names) for question in self._open(versions, name)]
        if not asked:
            return
        answers = dict(zip((question.added for question in asked), self._ask(asked), strict=True))
        self._append([_row(question, answers[question.added]) for question in asked])
        self._answers |= answers

    def _open(self, versions: Sequence[tuple[int, Relation]], name: TableName) -> Iterator[Question]:
        """What was added to a table and is neither in its history nor known."""
        history = open_history(self._lake, name)
        if history is None:
            return
        held = {column.name for column in history.columns}
        before = held
        for lsn, relation in versions:
            if relation.name != name or lsn <= history.horizon:
                continue
            now = {column.name for column in relation.columns}
            for column in sorted(now - before - held):
                added = Added(relation.oid, column, lsn)
                if self._answers.get(added, Existing(problem="")).problem is not None:
                    yield Question(name, added)
            before = now

    def _append(self, rows: list[dict[str, object]]) -> None:
        self._log = self._log or AppendLog(self._lake.added, ADDED_SCHEMA)
        self._log.append(pa.RecordBatch.from_pylist(rows, schema=ADDED_SCHEMA), {})


def _row(question: Question, answer: Existing) -> dict[str, object]:
    added = question.added
    return {
        "lsn": added.lsn,
        "oid": added.relation,
        "schema": question.table.schema,
        "table": question.table.table,
        "column": added.column,
        "value": answer.value,
        "problem": answer.problem,
        "time": datetime.now(UTC),
    }
