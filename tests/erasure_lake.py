"""Lake with personal data in every place that has values, for the tests of erasure; and a search for them.

0x100  snapshot of people and notes
0x200  person 1 changes her e-mail address; a context names the new one
0x300  person 1 becomes 11; person 2 gets a note
0x400  person 11 is made anonymous at the source: name and address are others; person 3 marries
0x500  person 2 is deleted
0x600  person 4 arrives, and changes within the transaction
Person 3 has the same first name as person 1, and must keep it.
"""

import json
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import auditlake
from auditlake.capture.change_log import MONO_SCHEMA
from auditlake.delta.append_table import AppendLog
from auditlake.delta.data_files import check_files
from auditlake.delta.log_check import log_problems
from auditlake.engine import Engine
from auditlake.failpoints import After
from auditlake.follow import Applier
from auditlake.lake.layout import (
    ACKNOWLEDGED_APP,
    CHANGES_APP,
    CURRENT_APP,
    HISTORY_APP,
    SNAPSHOT_APP,
    SNAPSHOT_TIME_APP,
    TRANSACTIONS_APP,
    Lake,
)
from auditlake.lake.manifest import Manifest, write_manifest
from auditlake.lake.relations import RelationsLog
from auditlake.lsn import Lsn
from auditlake.pgoutput.batch_decoder import CHANGES_SCHEMA
from auditlake.relation import Column, Relation, ReplicaIdentity, TableName
from auditlake.spark.on_demand import SparkOnDemand
from auditlake.verify.lake_files import check_records, tables_of
from tests.command import run, run_here
from tests.small_lake import T0, T0_US, write_history
from tests.written_lake import written_once

PEOPLE, NOTES = TableName("public", "people"), TableName("public", "notes")
_DATE, _TEXT, _INT, _NUMERIC = 1082, 25, 23, 1700
PEOPLE_COLUMNS = (
    Column("id", _INT, -1, key=True),
    Column("name", _TEXT, -1, key=False),
    Column("email", _TEXT, -1, key=False),
    Column("born", _DATE, -1, key=False),
    Column("score", _NUMERIC, -1, key=False),
    Column("city", _TEXT, -1, key=False),
)
NOTE_COLUMNS = (Column("id", _INT, -1, key=True), Column("text", _TEXT, -1, key=False))
MOMENTS = (0x100, 0x200, 0x300, 0x400, 0x500, 0x600)
ONE = ("Gundula Musterfrau", "gundula@example.org", "gundula.neu@example.org", "1961-07-23", "NaN")
"""What is personal of person 1, as texts: of her row before it was made anonymous."""
TWO = ("Zacharias Beispiel", "zacharias@example.org", "1955-02-11", "3.14159")
OTHERS = ("Gundula Andere", "andere@example.org", "Gundula Verheiratet", "Kaspar Spaet")


@written_once
def write_lake(root: Path) -> Lake:
    """Write the lake, applied in two batches, so that deletion vectors mark rows."""
    lake = Lake(root)
    root.mkdir()
    write_manifest(lake, Manifest("1", 1, "d", "s", "p"))
    positions = {HISTORY_APP: 0x100, SNAPSHOT_APP: 0x100, SNAPSHOT_TIME_APP: T0_US}
    write_history(lake, PEOPLE, PEOPLE_COLUMNS, _people(), positions, 1)
    write_history(lake, NOTES, NOTE_COLUMNS, [version() | {"id": 1, "text": "first"}], positions, 2)
    relations = RelationsLog(lake)
    people = relations.register(Relation(1, PEOPLE, ReplicaIdentity.DEFAULT, PEOPLE_COLUMNS), Lsn(0x200))
    notes = relations.register(Relation(2, NOTES, ReplicaIdentity.DEFAULT, NOTE_COLUMNS), Lsn(0x300))
    relations.flush()
    changes = list(_changes(people, notes))
    for after, upto in ((0x100, 0x300), (0x300, 0x600)):
        _append(lake, [row for row in changes if after < row["lsn"] <= upto], upto)
        apply(lake)
    return lake


def apply(lake: Lake) -> None:
    """Apply what is captured, without a JVM."""
    Applier(lake, SparkOnDemand({}, Engine.DUCKDB), print).apply()


def _append(lake: Lake, rows: list[dict[str, Any]], upto: int) -> None:
    transactions = [_transaction(lsn, rows) for lsn in sorted({row["lsn"] for row in rows})]
    batch = pa.RecordBatch.from_pylist(transactions, schema=MONO_SCHEMA)
    AppendLog(lake.transactions, MONO_SCHEMA).append(batch, {TRANSACTIONS_APP: upto})
    positions = {CHANGES_APP: upto, ACKNOWLEDGED_APP: upto + 1, CURRENT_APP: T0_US + 1_000_000 * upto}
    AppendLog(lake.changes, CHANGES_SCHEMA).append(pa.RecordBatch.from_pylist(rows, CHANGES_SCHEMA), positions)


def append_change(lake: Lake, lsn: int, *rows: dict[str, Any]) -> None:
    """Append a transaction with a change, or several."""
    changes = [{**_change(lsn, at, "insert", PEOPLE, 0, None, None), **row} for at, row in enumerate(rows)]
    _append(lake, changes, lsn)


def version() -> dict[str, Any]:
    """Return what a copied version has beside its values."""
    period = {"_from_lsn": 0x100, "_from_time": T0, "_op": "snapshot", "_ordinal": 0, "_part": "open", "_raw": None}
    return period | dict.fromkeys(("_to_lsn", "_to_time", "_end_op", "_xid", "_end_xid"))


def _people() -> list[dict[str, Any]]:
    rows = [
        (1, "Gundula Musterfrau", "gundula@example.org", date(1961, 7, 23), None, "Jena"),
        (2, "Zacharias Beispiel", "zacharias@example.org", date(1955, 2, 11), "3.14159", "Jena"),
        (3, "Gundula Andere", "andere@example.org", None, None, "Jena"),
    ]
    names = [column.name for column in PEOPLE_COLUMNS]
    found = [version() | dict(zip(names, row, strict=True)) for row in rows]
    for row in found:  # numeric without a precision is text in a history
        row["_raw"] = [("score", "NaN")] if row["id"] == 1 else None
    return found


def _changes(people: int, notes: int) -> Iterator[dict[str, Any]]:
    context = {"actor": "gundula.neu@example.org", "reason": "my address"}
    yield _change(0x200, 0, "message", None, None, None, None) | {
        "prefix": "auditlake",
        "content": json.dumps(context).encode(),
    }
    first = ["Gundula Musterfrau", "gundula.neu@example.org", "1961-07-23", "NaN", "Jena"]
    yield _change(0x200, 1, "update", PEOPLE, people, None, ["1", *first])
    yield _change(0x300, 0, "update", PEOPLE, people, ["1", *[None] * 5], ["11", *first])
    yield _change(0x300, 1, "update", NOTES, notes, None, ["1", "second"])
    yield _change(0x400, 0, "update", PEOPLE, people, None, ["11", "(gone)", None, None, None, "Jena"])
    yield _change(
        0x400,
        1,
        "update",
        PEOPLE,
        people,
        None,
        ["3", "Gundula Verheiratet", "andere@example.org", *[None] * 2, "Jena"],
    )
    yield _change(0x500, 0, "delete", PEOPLE, people, ["2", *[None] * 5], None)
    yield _change(0x600, 0, "insert", PEOPLE, people, None, ["4", "Kaspar Spaet", *[None] * 3, "Ulm"])
    yield _change(0x600, 1, "update", PEOPLE, people, None, ["4", "Kaspar Spaet", *[None] * 3, "Bonn"])


def _change(  # noqa: PLR0913, PLR0917 - the columns of one row, in their order
    lsn: int, ordinal: int, op: str, name: TableName | None, relation: int | None, old: Any, new: Any
) -> dict[str, Any]:
    at = {"lsn": lsn, "ordinal": ordinal, "xid": lsn, "time": _time(lsn), "op": op, "relation": relation}
    named = {"schema": name.schema, "table": name.table} if name else {}
    return at | named | {"old": old, "new": new}


def _time(lsn: int) -> datetime:
    return T0 + timedelta(seconds=lsn)


def _transaction(lsn: int, rows: list[dict[str, Any]]) -> dict[str, Any]:
    own = [row for row in rows if row["lsn"] == lsn]
    counts = {f"{op}s": sum(row["op"] == op for row in own) for op in ("insert", "update", "delete", "truncate")}
    tables = sorted({str(TableName(row["schema"], row["table"])) for row in own if row.get("table")})
    found = {"lsn": lsn, "end_lsn": lsn + 0x20, "xid": lsn, "time": _time(lsn), "time_mono": _time(lsn)}
    messages = [row["content"].decode() for row in own if row["op"] == "message"]
    context = {"context": f'{{"app": {messages[0]}}}'} if messages else {}
    return found | counts | {"tables": tables} | context


_REASON = ("--reason", "request 7", "--by", "dpo")
OF_ONE = ("people", "11", "--columns", "name,email,born,score", *_REASON)
"""Arguments that erase what is personal of person 1 before she was made anonymous."""
OF_TWO = ("people", "2", *_REASON)
"""Arguments that erase person 2."""


def _steps(tables: int) -> tuple[str, ...]:
    """Return the steps of an erasure from so many Delta tables."""
    of_a_table = (After.VALUES_REWRITTEN, After.VALUES_ERASED, After.FILES_DELETED)
    of_tables = (f"{step}:{n}" for step in of_a_table for n in range(1, tables + 1))
    return After.ERASURE_BEGUN, *of_tables, After.LOG_CHECKPOINTED, After.LOG_FORGOTTEN, After.ERASURE_ENDED


STEPS = _steps(3)
"""Of `transactions`, `changes` and the history."""
STEPS_IN_LEDGER = (*_steps(5), After.SECRETS_DESTROYED)
"""The same in a sealed lake: of the ledger's entries and blocks before."""


def states(lake: Lake) -> dict[tuple[int, str], list[dict[str, Any]]]:
    """Return every state of every table, by its LSN."""
    opened = auditlake.Lake(lake.root)
    moments = {lsn: opened.as_of(f"lsn:{lsn}") for lsn in MOMENTS}
    return {
        (lsn, table): sorted(moment.table(f"public.{table}").texts(), key=lambda row: int(row["id"] or 0))
        for lsn, moment in moments.items()
        for table in ("people", "notes")
    }


def without(states: dict[tuple[int, str], list[dict[str, Any]]], change: Callable[[dict[str, Any]], Any]) -> Any:
    """Return the states with `change` made to the rows of people; None removes one."""
    return {
        (lsn, table): [new for row in rows if (new := change(row) if table == "people" else row)]
        for (lsn, table), rows in states.items()
    }


def require_sound(lake: Lake) -> None:
    """Require that logs, records and data files are as `verify` wants them."""
    assert list(check_records(lake)) == []
    for _, place in tables_of(lake):
        assert log_problems(place) == []
        version = max(int(file.name[:20]) for file in (place / "_delta_log").glob("*.json"))
        assert check_files(place, version) == ()


def columns_gone(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of people as it is once `OF_ONE` is erased."""
    ended = row["id"] in {"1", "11"} and row["name"] != "(gone)"
    return row | dict.fromkeys(("name", "email", "born", "score")) if ended else row


def kill_and_finish(lake: Lake, step: str) -> None:
    """Kill an erasure after a step: the lake can be read, another erasure waits, and it ends as without the kill."""
    before = states(lake)
    assert run(["forget", *OF_ONE, "--lake", str(lake.root)], {"AUDITLAKE_FAILPOINT": step}).code == -9
    for (lsn, table), rows in states(lake).items():
        assert [row["id"] for row in rows] == [row["id"] for row in before[lsn, table]]
    if step != After.ERASURE_ENDED:
        status = json.loads(run_here(["status", "--json", "--lake", lake.root]).stdout)
        assert [each["table"] for each in status["unfinished_erasures"]] == ["public.people"]
        refused = run_here(["forget", *OF_TWO, "--lake", lake.root])
        assert (refused.code, "auditlake forget --resume" in refused.stderr) == (3, True)
        assert run_here(["forget", "--resume", "--lake", lake.root]).code == 0
    assert found_in(lake, ONE) == {}
    assert states(lake) == without(before, columns_gone)
    require_sound(lake)
    assert "no erasure is unfinished" in run_here(["forget", "--resume", "--lake", lake.root]).stderr


_BEGUN = b"PAR1"
"""A file whose writer was killed before its first page."""


_LEAST_BYTES = 6


def found_in(lake: Lake, texts: tuple[str, ...]) -> dict[str, set[str]]:
    """Return which texts are somewhere in the bytes of the lake's files, or in the cells of Parquet files, by file."""
    found: dict[str, set[str]] = {}
    for file in sorted(lake.root.rglob("*")):
        if file.is_file():
            content = file.read_bytes()
            # three bytes are found in compressed ones by chance, once in 16 MB; cells are read below
            is_text = file.suffix not in {".parquet", ".bin"}
            here = {text for text in texts if text.encode() in content and (is_text or len(text) >= _LEAST_BYTES)}
            if file.suffix == ".parquet" and content != _BEGUN:
                here |= _in_cells(file, texts)
            if here:
                found[str(file.relative_to(lake.root))] = here
    return found


def _in_cells(file: Path, texts: tuple[str, ...]) -> set[str]:
    parquet = pq.ParquetFile(file)
    shown = [repr(parquet.metadata.row_group(n).to_dict()) for n in range(parquet.num_row_groups)]
    shown += [_shown(row) for row in parquet.read().to_pylist()]
    return {text for text in texts for each in shown if text in each}


def _shown(cell: object) -> str:
    """Return all values in a cell as text, as PostgreSQL prints them."""
    match cell:
        case dict():
            return " ".join(_shown(each) for pair in cell.items() for each in pair)
        case list() | tuple():
            return " ".join(map(_shown, cell))
        case bytes():
            return cell.decode(errors="replace")
        case _:
            return str(cell)
