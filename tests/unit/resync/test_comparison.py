"""A new snapshot compared with the open versions, against the rule written in Python."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from auditlake.delta.log_writer import put_commit
from auditlake.lake.history import history_schema
from auditlake.lake.history_files import Files, marked
from auditlake.lake.layout import HISTORY_APP, SNAPSHOT_APP, SNAPSHOT_TIME_APP, Lake
from auditlake.lsn import Lsn
from auditlake.relation import Column, TableName
from auditlake.resync.comparison import comparing
from auditlake.snapshot.ctid_ranges import SnapshotMark
from tests.small_lake import T0, T0_US, files_of, write_history

_NAME = TableName("public", "t")
_MARK = SnapshotMark(Lsn(0x500), T0_US + 7)
_TEXTS = st.sampled_from([None, "", "a", "b"])
_FLOATS = st.sampled_from([None, "0", "-0", "NaN", "1.5"])
_DATES = st.sampled_from([None, "infinity", "-infinity", "2026-01-01", "0044-03-15 BC"])
_LSNS = st.integers(0x100, 0x104)

Texts = tuple[str | None, ...]


@dataclass(frozen=True)
class Version:
    """A version in the history; `ordinal` identifies it, `to_lsn` is None if it is open."""

    texts: Texts
    from_lsn: int
    to_lsn: int | None
    ordinal: int
    deleted: bool = False


@dataclass(frozen=True)
class Case:
    """A history and a snapshot."""

    keyed: bool
    names: tuple[str, ...]
    versions: tuple[Version, ...]
    fresh: tuple[Texts, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        types = (23, 25, 701, 1082)
        return tuple(
            Column(n, t, -1, key=self.keyed and not p) for p, (n, t) in enumerate(zip(self.names, types, strict=True))
        )

    def key(self, texts: Texts) -> Texts:
        return texts[:1] if self.keyed else texts


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw a history and a snapshot."""
    keyed = draw(st.booleans())
    names = draw(
        st.sampled_from(
            [("id", "t", "f", "d"), ("id", "file_row_number", "file", "d"), ("h", "File_Index", "row", "o")]
        )
    )
    row = st.tuples(st.sampled_from(["1", "2", "3"]), _TEXTS, _FLOATS, _DATES)
    fresh = draw(st.lists(row, max_size=6, unique_by=(lambda each: each[0]) if keyed else None))
    opened = draw(st.lists(st.one_of(row, *([st.sampled_from(fresh)] if fresh else [])), max_size=6))
    past = draw(st.lists(row, max_size=4)) if keyed else []
    versions = [Version(r, draw(_LSNS), None, n, draw(st.integers(0, 4)) == 0) for n, r in enumerate(opened)]
    for number, texts in enumerate(past):
        begin = draw(_LSNS)
        versions.append(Version(texts, begin, begin + draw(st.integers(1, 3)), 100 + number, draw(st.booleans())))
    return Case(keyed, names, tuple(versions), tuple(fresh))


@given(cases())
@settings(max_examples=40)
def test_the_difference_is_that_of_the_rule(case: Case) -> None:
    """Ends, begins and removed versions of tables with and without a key; `tests/release` has more cases."""
    check_difference(case)


def check_difference(case: Case) -> None:
    """Compare, and require what the rule says; deleted rows do not count."""
    with TemporaryDirectory() as folder:
        files = _history(Lake(Path(folder, "lake")), case)
        path = Path(folder, "copied.parquet")
        pq.write_table(_table(case, [(texts, 0x500, None, n) for n, texts in enumerate(case.fresh)]), path)
        copied = [path] if case.fresh else []
        with comparing(files, copied, case.columns, _MARK, Path(folder)) as found:
            closed = [row for rows in found.closed_rows() for row in rows.to_pylist()]
            begun = [row for rows in found.begun_rows() for row in rows.to_pylist()]
        closing, removed, begins, unmatched = _expected(case)
        opened = {each.ordinal: each for each in case.versions}
        assert sorted(row["_ordinal"] for row in closed) == sorted(closing)
        assert [row["_ordinal"] for row in begun if row["_from_lsn"] != 0x500] == []
        assert sorted(row["_ordinal"] for row in begun) == sorted(begins)
        assert (found.closed, found.begun, found.removed, found.unmatched) == (
            len(closing),
            len(begins),
            len(removed),
            unmatched,
        )
        assert found.since == min((opened[n].from_lsn for n in (*closing, *removed)), default=None)
        assert sum(len(rows) for rows in found.ended.values()) == len(closing) + len(removed)
        for row in closed:
            assert (row["_to_lsn"], row["_end_op"], row["_end_xid"]) == (0x500, "resync", None)
            assert row["_to_time"] == datetime.fromtimestamp((T0_US + 7) / 1e6, UTC)
            assert _texts(case, row) == opened[row["_ordinal"]].texts
        for row in begun:
            assert _texts(case, row) == case.fresh[row["_ordinal"]]


def _expected(case: Case) -> tuple[list[int], list[int], list[int], int]:
    """Return the ordinals of versions that end, of those removed, of rows that begin; and how many have no version."""
    opened, fresh = defaultdict[Texts, list[Version]](list), defaultdict[Texts, list[int]](list)
    for each in sorted(case.versions, key=lambda each: (each.from_lsn, each.ordinal)):
        if each.to_lsn is None and not each.deleted:
            opened[case.key(each.texts)].append(each)
    for number, texts in enumerate(case.fresh):
        fresh[case.key(texts)].append(number)
    pairs = [
        (place, old, new)
        for key in {*opened, *fresh}
        for place, (old, new) in enumerate(zip_longest(opened[key], fresh[key]))
        if old is None or new is None or old.texts != case.fresh[new]
    ]
    is_removed = {old.ordinal: case.keyed and (place > 0 or _overlaps(case, old)) for place, old, _ in pairs if old}
    closing, removed = ([n for n, gone in is_removed.items() if gone is wanted] for wanted in (False, True))
    begins = [new for _, _, new in pairs if new is not None]
    return closing, removed, begins, sum(old is None for _, old, _ in pairs)


def _overlaps(case: Case, version: Version) -> bool:
    past = (each for each in case.versions if each.to_lsn is not None and not each.deleted)
    return any(each.texts[0] == version.texts[0] and (each.to_lsn or 0) > version.from_lsn for each in past)


def _history(lake: Lake, case: Case) -> Files:
    """Write the history, a file per part, and mark the deleted rows."""
    rows = [(each.texts, each.from_lsn, each.to_lsn, each.ordinal) for each in case.versions]
    cells = _table(case, rows).to_pylist()
    for row in cells:
        row["_part"] = "open" if row["_to_lsn"] is None else "2026-11"
        row["_raw"] = row["_raw"] and dict(row["_raw"])
    positions = {HISTORY_APP: 0x200, SNAPSHOT_APP: 0x100, SNAPSHOT_TIME_APP: T0_US}
    write_history(lake, _NAME, case.columns, cells, positions)
    files = files_of(lake, _NAME)
    gone = {each.ordinal for each in case.versions if each.deleted}
    places = {name: BitMap64(_places(files, name, gone)) for name in files.by_name}
    places = {name: rows for name, rows in places.items() if rows}
    if places:
        put_commit(files.table.path, files.table.delta_version + 1, "DELETE", marked(files, places))
    return files_of(lake, _NAME)


def _places(files: Files, name: str, gone: set[int]) -> list[int]:
    (path,) = files.named({name}).paths
    with pq.ParquetFile(path) as file:
        ordinals = file.read(["_ordinal"])["_ordinal"].to_pylist()
    return [place for place, ordinal in enumerate(ordinals) if ordinal in gone]


def _table(case: Case, rows: Sequence[tuple[Texts, int, int | None, int]]) -> pa.Table:
    return pa.Table.from_pylist([_row(case, *each) for each in rows], schema=history_schema(case.columns))


def _row(case: Case, texts: Texts, from_lsn: int, to_lsn: int | None, ordinal: int) -> dict[str, Any]:
    number, text, real, day = texts
    fits = day is None or (day[0].isdigit() and not day.endswith("BC"))
    values = (
        int(number or 0),
        text,
        None if real is None else float(real),
        date.fromisoformat(day) if day and fits else None,
    )
    return dict(zip(case.names, values, strict=True)) | {
        "_from_lsn": from_lsn,
        "_to_lsn": to_lsn,
        "_from_time": T0,
        "_to_time": None if to_lsn is None else T0,
        "_op": "snapshot",
        "_end_op": None if to_lsn is None else "update",
        "_xid": None,
        "_end_xid": None,
        "_ordinal": ordinal,
        "_raw": None if fits else [(case.names[3], day)],
    }


def _texts(case: Case, row: dict[str, Any]) -> Texts:
    number, text, real, day = (row[name] for name in case.names)
    raw = dict(row["_raw"] or [])
    reals = {"0.0": "0", "-0.0": "-0", "nan": "NaN", "1.5": "1.5", "None": None}
    return str(number), text, reals[str(real)], raw.get(case.names[3]) or (day and day.isoformat())
