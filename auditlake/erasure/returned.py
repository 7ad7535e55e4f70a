"""Rows that were erased and are in the lake again: from a restored backup of the source, a late writer, or a new row.

An erasure is recorded by tokens of the keys that the row had (`lake.erasures`). The search reads later versions and
changes: those that began or committed after the position at which the row was erased. It only reports: before a row is
erased again, PostgreSQL must not have it any more. A history restored from before an erasure has no later versions; it
is an error while it has the erased values. A history is read as a whole only if its erasures differ from the records.

Rows are recognized by their erased keys alone: keys of rows erased as a whole, and former keys of others. The records
keep no value of any other erased column. Memory is bounded by the changes in one file; two microseconds a row in files
that are newer than the first erasure of the table (*estimated*).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain
from operator import attrgetter

import pyarrow.compute as pc

from auditlake.audit.lake_reader import Reader
from auditlake.delta.erasing import all_rows
from auditlake.delta.sql import TableFiles, read_newest, select
from auditlake.erasure.matching import InHistory, Matcher, PhysicalKey, keys_in, keys_of, physical_key, whole
from auditlake.erasure.scope import found_by, places_of
from auditlake.errors import AuditlakeError, LakeUnusable, Unsupported
from auditlake.lake.duckdb_rows import apart, is_float
from auditlake.lake.erasures import (
    Erasure,
    ReturnedRow,
    made_in,
    read_erasures,
    record_returned,
    require_erased_log,
)
from auditlake.lake.history import HistoryTable
from auditlake.lake.key_tokens import read_secret
from auditlake.lake.layout import Lake
from auditlake.lsn import Lsn
from auditlake.messages import Event, FailureReports, Notice, Say
from auditlake.relation import TableName
from auditlake.sql_names import standard_identifier
from auditlake.temporal.when import format_us

_Found = tuple[int, tuple[str, ...]]
"""An LSN, and the key of a row that was there."""


@dataclass(frozen=True, slots=True)
class Returned:
    """A row with a key that an erased row had, and the first commit after the erasure that has it."""

    erasure: Erasure
    key: tuple[str, ...]
    token: str
    lsn: Lsn

    @property
    def what(self) -> str:
        """Return a sentence about the row, without its key."""
        when = format_us(self.erasure.time_us)
        return f"{self.erasure.name} has a row again, since {self.lsn}, with a key that was erased at {when}"


def find_returned(lake: Lake, now: datetime) -> list[Returned]:
    """Find the erased rows that have come back, in the order of tables, then of commits.

    Raises LakeUnusable if the secret of tokens is missing, or a history or the log is from before an erasure;
    Unsupported if the key columns of such a table changed.
    """
    erasures = read_erasures(lake)
    done = [each for each in erasures if each.done_us is not None]
    if not done:
        return []
    of_table: dict[tuple[TableName, tuple[str, ...]], list[Erasure]] = {}
    for each in done:
        if each.gone_tokens:
            of_table.setdefault((each.name, each.where), []).append(each)
    require_erased_log(lake)
    reader, secret = Reader(lake, now), read_secret(lake)
    _require_newer(reader, erasures, secret)
    if not of_table:
        return []
    if secret is None:
        raise LakeUnusable(f"{lake.token_key} is missing, so erased rows are not recognized", "Restore it.")
    return [found for key in sorted(of_table) for found in _in_table(reader, of_table[key], secret)]


def report_returned(lake: Lake, now: datetime, report: Say, *, record: bool = False) -> None:
    """Report the erased rows that have come back, without their keys; or why that cannot be known.

    `record`: write for `status` which rows they are.
    """
    try:
        found = find_returned(lake, now)
        if record:
            record_returned(lake, [ReturnedRow(each.erasure.number, each.token, each.lsn) for each in found])
        for each in found:
            report(Notice(Event.ROW_RETURNED, f"{each.what}: auditlake forget --returned shows it"))
    except AuditlakeError as exc:
        FailureReports(report).report("erased rows are not looked for", exc)


def _require_newer(reader: Reader, erasures: Sequence[Erasure], secret: bytes | None) -> None:
    """Require that no history is from before an erasure, and so has the erased values; raises LakeUnusable."""
    for name, table in (reader.known.as_read or {}).items():
        of_table = [each for each in erasures if each.name == name and each.upto_lsn >= table.first_snapshot_lsn]
        made = made_in(of_table, table.erased, attrgetter("after"))
        missing = [each for each in of_table if each.done_us is not None and each not in made]
        if left := [each for each in missing if secret is None or _has_erased(reader, table, each, secret)]:
            erased = "; ".join(f"{each.what}, at {format_us(each.time_us)} by {each.by}" for each in left)
            raise LakeUnusable(
                f"{table.path} was put back: it is from before the erasure of {erased}", "Erase all of that once more."
            )


def _has_erased(reader: Reader, table: HistoryTable, erasure: Erasure, secret: bytes) -> bool:
    """Return whether a history has erased values, or ends before changes whose values were erased."""
    if table.position < erasure.upto_lsn:
        return True
    history = InHistory(_key(reader, table, Lsn(erasure.upto_lsn), erasure.where), Matcher(erasure, secret))
    for rows in all_rows(table.path):
        begun = pc.less_equal(rows["_from_lsn"], erasure.upto_lsn).to_numpy()
        if history.lost(rows, table.columns) or (not erasure.columns and (history.mask(rows) & begun).any()):
            return True
    return False


def _key(reader: Reader, table: HistoryTable, lsn: Lsn, where: Sequence[str]) -> PhysicalKey:
    keyed = reader.keyed_at(reader.known.tables[table.name], lsn)
    return physical_key(table, found_by(keyed, where))


def _in_table(reader: Reader, erasures: Sequence[Erasure], secret: bytes) -> list[Returned]:
    """Find the erased rows of a table that have come back; all erasures have the same columns in `where`."""
    name, where = erasures[0].name, erasures[0].where
    table = (reader.known.as_read or {}).get(name)
    if table is None:  # it was copied again under another name
        return []
    known = reader.known.tables[name]
    if (changed := reader.rekeyed_at(known, reader.known.last_lsn)) is not None:
        raise Unsupported(
            f"the columns that identify a row of {table.label} changed at {changed}, so erased rows are not recognized",
            "auditlake row shows what is known of a row.",
        )
    by_token = {each: erasure for erasure in erasures for each in erasure.gone_tokens}
    since = min(erasure.upto_lsn for erasure in erasures)
    first: dict[tuple[str, ...], Returned] = {}
    for lsn, key in chain(
        _begun(table, _key(reader, table, reader.known.last_lsn, where), since),
        _changed(reader, known, erasures[0], since),
    ):
        of_key = erasures[0].token(secret, key)
        erasure = by_token.get(of_key)
        if erasure is not None and lsn > erasure.upto_lsn and (key not in first or lsn < first[key].lsn):
            first[key] = Returned(erasure, key, of_key, Lsn(lsn))
    return sorted(first.values(), key=lambda found: (found.lsn, found.key))


def _begun(table: HistoryTable, key: PhysicalKey, since: int) -> Iterator[_Found]:
    """Yield the keys of rows with a version that began after an LSN, each with the first such version in a file."""
    columns = [*chain.from_iterable(key)]
    shown = ", ".join(standard_identifier(column.stored) for column in columns)
    shown += "".join(f", {apart(each, standard_identifier(each.stored))}" for each in columns if is_float(each))
    sql = f"select {shown}, _raw, min(_from_lsn) as lsn from t where _from_lsn > {since:d} group by all"
    for file in _each_file(read_newest(table.path), "_from_lsn", since):
        rows = select(sql, t=replace(file, gains_columns=True))
        for lsn, texts in zip(rows["lsn"].to_pylist(), map(whole, keys_in(key, rows)), strict=True):
            if texts is not None:
                yield lsn, texts


def _changed(reader: Reader, table: HistoryTable, erasure: Erasure, since: int) -> Iterator[_Found]:
    """Yield the keys of the rows that changed after an LSN."""
    places = places_of(reader, found_by(reader.keyed_at(table, reader.known.last_lsn), erasure.where), erasure)
    numbers = ", ".join(map(str, places))
    condition = f"lsn > {since:d} and lsn <= {reader.known.last_lsn:d} and relation in ({numbers})"
    for file in _each_file(reader.changes if places else None, "lsn", since):
        rows = select(f"select lsn, relation, old, new, unchanged from t where {condition}", t=file)
        for row in rows.to_pylist():
            for texts in map(whole, keys_of(places[row["relation"]], row)):
                if texts is not None:
                    yield row["lsn"], texts


def _each_file(table: TableFiles | None, column: str, since: int) -> Iterator[TableFiles]:
    """Yield the files that may have a greater value, one by one."""
    if table is not None:
        for file in table.within(**{column: (since + 1, None)}).files:
            yield replace(table, files=(file,))


def as_fields(found: Returned) -> Mapping[str, object]:
    """Return a row that has come back as plain values."""
    erasure = found.erasure
    about = {"erased": format_us(erasure.time_us), "by": erasure.by, "reason": erasure.reason}
    return {"table": str(erasure.name), "key": list(found.key), "since": str(found.lsn), **about}
