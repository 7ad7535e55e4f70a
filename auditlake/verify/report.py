"""Report of a verification: findings, the verdict of each table, and their output as text or JSON. Pure.

Findings name tables, keys and columns, never values of other columns; `--no-keys` omits keys, too.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from auditlake.audit.json_output import line
from auditlake.errors import AuditlakeError, LakeUnusable, NotAnswerable
from auditlake.lsn import Lsn

REMEDY = (
    "Run auditlake resync --table for each of them: it takes the present state from the source and records since when"
    " the history was wrong. Closed versions are not restored; `changes` still has every change."
)
"""Remedy for a damaged history."""
RESTORE = "Restore these files from a backup; without one, restore the lake, or begin a new one in another folder."
"""Remedy for damaged logs, and files of the lake's own tables."""
_AGAIN = "Run auditlake verify again; a running follow catches up by itself."


class TableVerdict(StrEnum):
    """Result of a table's verification."""

    EQUAL = "equal"
    """All compared rows and versions are equal."""
    DAMAGED = "damaged"
    """The lake differs from the source, from `changes` or from its own rules."""
    UNVERIFIED = "unverified"
    """The table could not be compared now."""
    SKIPPED = "skipped"
    """The source has nothing to compare it with."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem: its kind, the row's key by column, and the differing columns.

    `lsn` is the `_from_lsn` of the version concerned, `file` a data file's path, `count` the number of rows concerned.
    """

    kind: str
    key: tuple[tuple[str, str | None], ...] = ()
    columns: tuple[str, ...] = ()
    lsn: Lsn | None = None
    file: str | None = None
    detail: str | None = None
    count: int = 1

    def as_json(self, *, keys: bool) -> dict[str, object]:
        """Return the finding's non-empty fields."""
        fields: dict[str, object] = {
            "key": dict(self.key) if keys else {},
            "columns": list(self.columns),
            "version": None if self.lsn is None else str(self.lsn),
            "file": self.file,
            "detail": self.detail,
        }
        return {"kind": self.kind, **{name: value for name, value in fields.items() if value}, "rows": self.count}

    def line(self, *, keys: bool) -> str:
        """Return the finding as one line of text."""
        parts = [self.kind]
        if keys:
            parts += [f"{name}={'NULL' if value is None else _printable(value)}" for name, value in self.key]
        parts += [f"version {self.lsn}"] if self.lsn is not None else []
        parts += [f"columns {', '.join(self.columns)}"] if self.columns else []
        parts += [part for part in (self.file, self.detail) if part]
        parts += [f"{self.count} rows"] if self.count > 1 else []
        return "  ".join(parts)


@dataclass(frozen=True, slots=True)
class TableReport:
    """A table's result: rows compared with the source (None: not compared), versions checked, and findings.

    `reason` is set if it is unverified or skipped, `remedy` if something else than time ends that. `more`: `findings`
    does not list everything. `lost`: a new snapshot cannot replace what is damaged.
    """

    name: str
    rows: int | None = None
    versions: int | None = None
    findings: tuple[Finding, ...] = ()
    reason: str | None = None
    remedy: str | None = None
    skipped: bool = False
    more: bool = False
    notes: tuple[str, ...] = ()
    lost: bool = False

    @property
    def verdict(self) -> TableVerdict:
        if self.findings:
            return TableVerdict.DAMAGED
        if self.reason is not None:
            return TableVerdict.SKIPPED if self.skipped else TableVerdict.UNVERIFIED
        return TableVerdict.EQUAL

    def with_findings(self, findings: Sequence[Finding], limit: int, *, more: bool = False) -> "TableReport":
        """Add findings, at most `limit`; `more`: these are not all."""
        more = self.more or more or len(findings) > limit
        return replace(self, findings=(*self.findings, *findings[:limit]), more=more)

    def with_note(self, note: str) -> "TableReport":
        """Add a note."""
        return replace(self, notes=(*self.notes, note))

    def and_also(self, other: "TableReport") -> "TableReport":
        """Merge the result of another check of the same table."""
        return replace(
            self,
            rows=self.rows if other.rows is None else other.rows,
            versions=self.versions if other.versions is None else other.versions,
            findings=tuple(dict.fromkeys((*self.findings, *other.findings))),
            reason=self.reason or other.reason,
            remedy=self.remedy or other.remedy,
            skipped=(self.skipped or self.reason is None) and (other.skipped or other.reason is None),
            more=self.more or other.more,
            notes=(*self.notes, *other.notes),
            lost=self.lost or other.lost,
        )


@dataclass(frozen=True, slots=True)
class Report:
    """Results of all tables; lake and source were compared at `lsn`, None without a source."""

    lsn: Lsn | None
    tables: tuple[TableReport, ...] = field(default=())

    def of(self, verdict: TableVerdict) -> list[TableReport]:
        """Return the tables with this verdict."""
        return [table for table in self.tables if table.verdict is verdict]

    def summary(self) -> str:
        """Return a summary in one sentence."""
        rows = sum(table.rows or 0 for table in self.tables)
        versions = sum(table.versions or 0 for table in self.tables)
        scope = "without a source" if self.lsn is None else f"with the source at {self.lsn}: {rows:,} rows"
        counts = ", ".join(f"{len(matching)} {verdict}" for verdict in TableVerdict if (matching := self.of(verdict)))
        tables = f"{len(self.tables)} table{'' if len(self.tables) == 1 else 's'}"
        return f"verified {tables} {scope}, {versions:,} versions; {counts or 'no tables'}"

    def failure(self) -> AuditlakeError | None:
        """Return the error for damaged or unverified tables; None if there are none."""
        if damaged := self.of(TableVerdict.DAMAGED):
            names = ", ".join(table.name for table in damaged)
            lost = any(table.lost for table in damaged)
            return LakeUnusable(f"damaged in the lake: {names}", RESTORE if lost else REMEDY)
        if unverified := self.of(TableVerdict.UNVERIFIED):
            names = "; ".join(f"{table.name}: {table.reason}" for table in unverified)
            remedies = dict.fromkeys(table.remedy or _AGAIN for table in unverified)
            return NotAnswerable(f"could not be verified: {names}", " ".join(remedies))
        return None


def as_lines(report: Report, *, keys: bool) -> Iterator[str]:
    """Yield a report as text: a line per table, followed by its findings."""
    width = max((len(table.name) for table in report.tables), default=0)
    for table in report.tables:
        facts = [f"{table.rows:,} rows"] if table.rows is not None else []
        facts += [f"{table.versions:,} versions"] if table.versions is not None else []
        facts += [table.reason] if table.reason else []
        yield f"{table.name:{width}}  {table.verdict:10}  {', '.join(facts)}".rstrip()
        yield from (f"    {finding.line(keys=keys)}" for finding in table.findings)
        yield from (["    and more"] if table.more else [])
        yield from (f"    note: {note}" for note in table.notes)


def as_json_lines(report: Report, *, keys: bool) -> Iterator[str]:
    """Yield a report as JSON, one object per line: findings, tables, then the totals."""
    for table in report.tables:
        for finding in table.findings:
            yield line({"event": "finding", "table": table.name, **finding.as_json(keys=keys)})
        facts = {"rows": table.rows, "versions": table.versions, "reason": table.reason, "more": table.more}
        yield line({"event": "table", "table": table.name, "verdict": table.verdict, **facts, "notes": table.notes})
    lsn = None if report.lsn is None else str(report.lsn)
    counts = {verdict.value: len(report.of(verdict)) for verdict in TableVerdict}
    yield line({"event": "done", "lsn": lsn, "rows": sum(table.rows or 0 for table in report.tables), **counts})


def _printable(value: str) -> str:
    """Return a text without control characters for the terminal."""
    return value if value.isprintable() else json.dumps(value)
