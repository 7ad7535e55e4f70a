"""JSON of the page's API: what every endpoint returns, and the OpenAPI document describes.

Answers of the audit questions are those of `audit.json_output`, in what a page shows around them. Values of rows are
PostgreSQL's own text, or null. LSNs are in PostgreSQL's notation, times ISO 8601 in UTC. In the document the schemas
have the names of the classes without `Json`.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from auditlake.audit import json_output as objects


def schema_name(model: type) -> str:
    """Return the name of a model in the OpenAPI document."""
    return model.__name__.removesuffix(objects.SUFFIX)


class Model(BaseModel):
    """Base of all models."""

    model_config = ConfigDict(extra="forbid", frozen=True, model_title_generator=schema_name)


class ProblemJson(Model):
    """An error, with its remedy, and the exit code of the command that asks the same."""

    error: str
    hint: str | None = None
    code: int


class MomentJson(Model):
    """A moment: an LSN, the time of the last commit up to it, and how many commits of the lake are up to it."""

    lsn: str
    time: str | None
    commit: int
    commits: int
    is_now: bool


class BarJson(Model):
    """Commits in a part of a period; `lsn` is the last commit up to its end."""

    from_us: int
    to_us: int
    commits: int
    lsn: str | None


class StretchJson(Model):
    """A stretch in which changes of a table, of all if it is null, are unknown; without an end, it is parked.

    Times are in microseconds since 1970; null if it began before the first commit.
    """

    table: str | None
    lsn: str
    to_lsn: str | None
    from_us: int | None
    to_us: int | None
    reason: str


class TimelineJson(Model):
    """Density of commits in a period; times in microseconds since 1970. `first_us` and `last_us` are the lake's.

    `unknown` has the first of `unknown_count` stretches.
    """

    first_us: int | None
    last_us: int | None
    from_us: int
    to_us: int
    commits: int
    bars: list[BarJson]
    unknown: list[StretchJson]
    unknown_count: int


class CommitJson(Model):
    """One commit: its number from 1, LSN and time.

    The number 0 is the beginning of the lake, before the first commit: it has that one's `time_us`, and no time.
    """

    number: int
    lsn: str
    time: str | None
    time_us: int


class ColumnJson(Model):
    """A column at a moment: its type as SQL has it, the operations of filters on it, and whether rows sort by it.

    `counted` says whether its values have facets.
    """

    name: str
    type: str
    key: bool
    numeric: bool
    ops: list[str]
    sortable: bool
    counted: bool


class TableSummaryJson(Model):
    """A table at a moment; `problem` is why it cannot be answered, `rows` null then."""

    table: str
    rows: int | None
    columns: int | None
    problem: str | None
    hint: str | None
    parked: str | None


class TablesJson(Model):
    """The tables of the lake at a moment. At most `limit` of them; `total` is their number."""

    at: MomentJson
    total: int
    tables: list[TableSummaryJson]


class RowJson(Model):
    """A row: its values in the order of the columns, and its key; null in a table without one."""

    values: list[str | None]
    key: list[str] | None


class RowsJson(Model):
    """A page of the rows of a table; `count` is the number of rows that the filters take.

    `cut`: there are fewer than `limit`, because these have enough characters; the next page begins after them.
    """

    at: MomentJson
    table: str
    columns: list[ColumnJson]
    rows: list[RowJson]
    count: int
    offset: int
    limit: int
    where: list[str]
    sort: str | None
    cut: bool


class NeighbourJson(Model):
    """The key of the row before or after another; null if there is none."""

    at: MomentJson
    table: str
    key: list[str] | None


class FacetJson(Model):
    """A value of a column and the number of rows that have it."""

    value: str | None
    rows: int


class FacetsJson(Model):
    """The most frequent values of a column; `values` is null if it has more than 10,000."""

    at: MomentJson
    table: str
    column: str
    distinct: int | None
    values: list[FacetJson] | None


class LogJson(Model):
    """Transactions, newest first; `before` is the LSN to ask for the next page with, null on the last.

    `expired` is the LSN up to which what the answer needs has expired: it has no transaction up to there. `notes` say
    in which gaps others may be missing.
    """

    at: MomentJson
    transactions: list[objects.TransactionJson]
    before: str | None
    expired: str | None = None
    notes: list[str] = []


class NeighboursJson(Model):
    """The transactions before and after, by table, actor or row; null if there is none."""

    by: str
    before: str | None
    after: str | None


class TransactionDetailJson(Model):
    """A transaction with its changes; `more` if there are others than the first `limit`, or than have room.

    `notes` say what is not known of the rows before them, because it has expired or was erased.
    """

    at: MomentJson
    transaction: objects.TransactionJson
    neighbours: list[NeighboursJson]
    changes: list[objects.ContentJson]
    more: bool
    notes: list[str] = []


class RowDifferenceJson(Model):
    """A row at another moment, `before`, and at the moment of the answer: whether it exists, and what differs."""

    before: MomentJson
    existed: bool
    exists: bool
    changed: objects.Changed
    unchanged: int


class RowHistoryJson(Model):
    """The life of a row up to a moment, newest event first; `exists` at that moment.

    `difference` is from the moment `versus`, if that was asked. `notes` say what is not known, because it has expired,
    was erased, or is in a gap.

    `before`: events are left out, because these have enough characters; ask as of this LSN for them.
    """

    at: MomentJson
    table: str
    key_columns: list[str]
    key: list[str]
    exists: bool
    notes: list[str]
    events: list[objects.EventJson]
    gaps: list[objects.GapJson]
    blame: list[objects.BlameJson]
    before: str | None
    difference: RowDifferenceJson | None


class FoundJson(Model):
    """A row that some version matches: the version's period, the columns that matched, and the row's state now."""

    key: list[str] | None
    state: Literal["exists", "deleted"]
    columns: list[str]
    values: list[str | None]
    from_lsn: str
    from_time: str | None
    to_lsn: str | None
    to_time: str | None
    versions: int


class FindsJson(Model):
    """Rows with a version that has the value in some column, those that do not exist any more first.

    `notes` say in which gaps other versions may be missing.
    """

    at: MomentJson
    table: str
    columns: list[ColumnJson]
    found: list[FoundJson]
    more: bool
    notes: list[str] = []


class TableDiffJson(Model):
    """Net difference of a table between two moments; `begins` if its history begins between them, so it is new."""

    table: str
    begins: str | None = None
    rows_before: int | None = None
    rows_after: int | None = None
    added: int = 0
    removed: int = 0
    modified: int = 0
    schema_changes: list[str] = []
    problem: str | None = None
    entries: list[objects.DifferenceJson] = []
    more: bool = False


class ComparisonJson(Model):
    """Two moments compared."""

    before: MomentJson
    after: MomentJson
    tables: list[TableDiffJson]


class ChartJson(Model):
    """A series over time."""

    name: str
    unit: str
    times_us: list[int]
    values: list[float | None]


class StatusReportJson(Model):
    """Verdict, positions and lag: `status` has the fields of `auditlake status --json`."""

    at: MomentJson
    code: int
    verdict: str
    remedy: str | None
    status: dict[str, object]
    charts: list[ChartJson]
    sizes: list["TableSizeJson"]


class TableSizeJson(Model):
    """Size of a history on disk: live files, their bytes, versions of rows; the table has its last name."""

    table: str
    history: str
    files: int
    bytes: int
    versions: int | None


class SqlColumnJson(Model):
    """A column of an answer."""

    name: str
    type: str
    numeric: bool


class AnswerJson(Model):
    """Rows of a statement: values as text; `more` if there are others. `tables` are those that it reads."""

    at: MomentJson
    engine: str
    seconds: float
    columns: list[SqlColumnJson]
    rows: list[list[str | None]]
    more: bool
    tables: list[str]


class CompletionJson(Model):
    """A completion, and how many characters before the cursor it replaces."""

    text: str
    replaces: int


class CompletionsJson(Model):
    """Completions of the end of a statement."""

    completions: list[CompletionJson]


class LakeInfoJson(Model):
    """The lake."""

    at: MomentJson
    database: str
    version: str
    tables: list[str]
    horizon: str
