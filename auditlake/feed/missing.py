"""LSNs up to which a feed is complete: capture knows that changes of some tables are missing from the stream.

Gaps (`gaps`) and tables that capture has parked make a feed of these tables incomplete. The feed delivers everything
before, then refuses by name. Tables parked by apply do not: their changes are in the lake.

The records are on the disk before the watermark passes their LSN, so a reader that reads the watermark first misses
none. They are read again only when their files change.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from auditlake.errors import NotAnswerable
from auditlake.lake.gaps import Gap, read_gaps
from auditlake.lake.history import list_histories
from auditlake.lake.layout import Lake
from auditlake.lake.parking import Parked, read_parked
from auditlake.lsn import Lsn
from auditlake.relation import TableName
from auditlake.store.files import fingerprint

_HINT = "Read the state of the table after that, and continue without what is missing (allow_gaps, --allow-gaps)."


@dataclass(frozen=True, slots=True)
class _Missing:
    """Changes of a table after `after` are missing, up to `upto` if that is known."""

    after: Lsn
    upto: Lsn | None
    refusal: NotAnswerable


class Completeness:
    """What is known to be missing of the selected tables, all if None."""

    def __init__(self, lake: Lake, tables: frozenset[TableName] | None) -> None:
        self._lake = lake
        self._tables = tables
        self._seen: tuple[object, ...] | None = None
        self._missing: list[_Missing] = []

    def limit(self, position: Lsn, watermark: Lsn) -> Lsn:
        """Return the LSN up to which every selected change after `position` is in the lake; read the watermark before.

        Raises NotAnswerable if none is known to be after `position`.
        """
        self._refresh()
        ahead = [each for each in self._missing if each.upto is None or each.upto > position]
        first = min(ahead, key=lambda each: each.after, default=None)
        if first is None or watermark <= first.after:
            return watermark
        if position >= first.after:
            raise first.refusal
        return first.after

    def _refresh(self) -> None:
        records = sorted(self._lake.all_parked.glob("*/*.json"))
        seen = (fingerprint(self._lake.gaps / "_delta_log"), *((path, path.stat().st_mtime_ns) for path in records))
        if seen != self._seen:
            self._missing = [*self._of_gaps(), *(self._of_parked() if records else ())]
            self._seen = seen

    def _selects(self, table: TableName | None) -> bool:
        return self._tables is None or table is None or table in self._tables

    def _of_gaps(self) -> Iterator[_Missing]:
        for gap in read_gaps(self._lake):
            if self._selects(gap.table):
                yield _Missing(gap.lsn_from, gap.lsn_to, _gap_refusal(gap))

    def _of_parked(self) -> Iterator[_Missing]:
        for parked in read_parked(self._lake, list_histories(self._lake), silent=True).values():
            if self._selects(parked.table) and not parked.ended:
                yield _Missing(parked.lsn, None, _parked_refusal(parked))


def _gap_refusal(gap: Gap) -> NotAnswerable:
    what = "all tables" if gap.table is None else str(gap.table)
    return NotAnswerable(
        f"the changes of {what} between {gap.lsn_from} and {gap.lsn_to} are missing: {gap.reason}", _HINT
    )


def _parked_refusal(parked: Parked) -> NotAnswerable:
    return NotAnswerable(
        f"the changes of {parked.table} after {parked.lsn} are missing: {parked.reason}", f"{parked.remedy} {_HINT}"
    )
